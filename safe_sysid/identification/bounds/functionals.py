"""Objectives of the linear programs: single unknowns by index, then given combinations of theta."""

from __future__ import annotations

import numpy as np

from safe_sysid.core.arrays import FloatArray, IntArray
from safe_sysid.identification.bounds.dual_bounds import safe_lower, safe_upper
from safe_sysid.identification.bounds.programs import Program

__all__ = ["Functionals"]


class Functionals:
    """Objectives of P unknowns and F combinations, in unscaled unknowns and in the solver's."""

    def __init__(self, given: FloatArray | None, theta: int, scale: FloatArray, width: FloatArray) -> None:
        """Take combinations as they are: exact floats.

        Args:
            given: (F, theta) coefficients of the first unknowns; None for no combination.
            theta: number of the parameters.
            scale: (P,) of all unknowns, what a scaled one is multiplied by.
            width: (P,) the same, zero where the prior leaves no room.
        """
        given = np.zeros((0, theta)) if given is None else np.asarray(given, float)
        self._scale, self._width = scale, width
        self._matrix = np.zeros((len(given), len(scale)))
        self._matrix[:, :theta] = given
        reach = np.abs(self._matrix * width).max(axis=1, initial=0.0)
        self._reach = np.where(reach > 0.0, reach, 1.0)
        #: (F, P) as the solver has them, in unscaled unknowns: numbers near 1 once these are scaled.
        self.scaled = self._matrix / self._reach[:, None]

    def coefficients(self, index: int) -> FloatArray:
        """(P,) of an objective. ``index``: of an unknown, or P plus that of a combination."""
        size = len(self._scale)
        return np.eye(1, size, index)[0] if index < size else self._matrix[index - size]

    def unit(self, index: int) -> float:
        """What the solver's objective is multiplied by to be the unscaled one."""
        size = len(self._scale)
        return float(self._scale[index] if index < size else self._reach[index - size])

    def of_vertex(self, program: Program, z: FloatArray, lower: FloatArray, upper: FloatArray) -> tuple[float, float]:
        """The solver's objective at a vertex, and by how much it varies in the box of scaled unknowns.

        Args:
            z: (P,) the vertex.
            lower: (P,) of the box.
            upper: (P,) likewise.
        """
        index, sign = program
        if index < len(self._scale):
            return sign * float(z[index]), float(upper[index] - lower[index])
        c = self.scaled[index - len(self._scale)] * self._width
        return sign * float(c @ z), float(np.abs(c) @ (upper - lower))

    def range(self, indices: IntArray, box_lower: FloatArray, box_upper: FloatArray) -> tuple[FloatArray, FloatArray]:
        """(K,), (K,) proved bounds over a box alone.

        Args:
            indices: (K,) as above.
            box_lower: (P,) unscaled.
            box_upper: (P,) likewise.
        """
        single = np.minimum(indices, len(self._scale) - 1)
        lower, upper = box_lower[single].copy(), box_upper[single].copy()
        none = (np.zeros((0, len(self._scale))), np.zeros(0), np.zeros(0), box_lower, box_upper, np.zeros(0))
        for k in np.flatnonzero(indices >= len(self._scale)).tolist():
            c = self.coefficients(int(indices[k]))
            lower[k], upper[k] = safe_lower(c, *none), safe_upper(c, *none)
        return lower, upper
