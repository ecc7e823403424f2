"""The rows and cuts that the solver holds, scaled, and where each comes from. Proves nothing."""

from __future__ import annotations

import numpy as np

from safe_sysid.core.arrays import BoolArray, FloatArray, IntArray
from safe_sysid.core.layout import UnknownsLayout
from safe_sysid.identification.bounds.consistency import CutSet
from safe_sysid.identification.bounds.joint_rows import cut_rows, unscaled_rows
from safe_sysid.identification.bounds.payload_constraints import PayloadConstraints
from safe_sysid.identification.bounds.programs import Programs
from safe_sysid.identification.equations.momentum import MomentumRows

__all__ = ["WorkingSet"]

_WIDER = 1e-3  # of a row's slack


class WorkingSet:
    """Rows and cuts over ``x = mid + scale z``, in a persistent model of programs.

    Attributes:
        cuts: of the model, and those that it dropped since :meth:`forget_cuts`.
        origin: of each row of the model: index of a kept row, or -1 - index into ``cuts``.
    """

    def __init__(
        self,
        mid: FloatArray,
        scale: FloatArray,
        tolerance: float,
        layout: UnknownsLayout,
        drifting: IntArray,
        objectives: FloatArray | None = None,
    ) -> None:
        """Start empty.

        Args:
            mid: (P,) of the unknowns ``(theta, theta_h, d, f, z)``.
            scale: (P,) zero for an unknown that is fixed.
            tolerance: a cut is broken by a thousandth of it, relative.
            drifting: (D,) columns of the parameters that may drift after a tare.
            objectives: (F, P) of programs about more than one unknown.
        """
        self._mid, self._scale = mid, scale
        self._layout, self._drifting = layout, drifting
        self._tolerance = 1e-3 * tolerance
        self._random = np.random.default_rng(0)
        self.programs = Programs(len(mid), None if objectives is None else objectives * scale)
        self.cuts = CutSet.none()
        self.origin = np.empty(0, np.int64)

    def take_in_rows(self, rows: MomentumRows, index: IntArray) -> None:
        """Add rows, ``index`` of them among the kept ones."""
        matrix = unscaled_rows(rows, self._drifting)
        target = (rows.target - matrix @ self._mid) / rows.slack
        # Noise that sits on its bounds makes the truth a vertex where hundreds of rows meet, and simplex stall: the
        # solver gets rows wider by a little, each by another amount. What its multipliers prove is read off true rows.
        wider = 1.0 + _WIDER * self._random.uniform(0.5, 1.0, (2, len(rows)))
        self.programs.add_rows(matrix * self._scale / rows.slack[:, None], target - wider[0], target + wider[1])
        self.origin = np.concatenate([self.origin, index])

    def take_in_cuts(self, points: FloatArray, payload_constraints: PayloadConstraints, conic: bool) -> BoolArray:
        """Add the cuts that scaled points (K, P) break; returns which of them break one that is new.

        ``conic``: whether to look for cuts of the cone, too.
        """
        x = self._mid + self._scale * points
        theta_p = x[:, self._layout.arm.payload] - x[:, self._layout.hand] - x[:, self._layout.opening]
        parts = [payload_constraints.fixed]
        if conic:
            parts.append(payload_constraints.separate(theta_p, self._tolerance))
        cuts = CutSet.concatenate(parts)
        matrix, norm = self._scaled(cuts)
        low = cuts.constant - cut_rows(cuts, self._layout) @ self._mid
        excess = (points @ matrix.T - low) / norm
        wrong = (excess < -self._tolerance) & (np.abs(matrix).max(axis=1, initial=0.0) > 0.0)
        new = np.flatnonzero(wrong.any(axis=0) & ~self._has(cuts))
        if not new.size:
            return np.zeros(len(points), bool)
        self.programs.add_rows(matrix[new] / norm[new, None], low[new] / norm[new], np.full(len(new), np.inf))
        self.origin = np.concatenate([self.origin, -1 - len(self.cuts) - np.arange(len(new))])
        self.cuts = CutSet.concatenate([self.cuts, cuts.take(new)])
        return wrong[:, new].any(axis=1)

    def _scaled(self, cuts: CutSet) -> tuple[FloatArray, FloatArray]:
        """Coefficients (K, P) of scaled unknowns, and what each row is divided by."""
        matrix = cut_rows(cuts, self._layout) * self._scale
        return matrix, np.maximum(np.abs(matrix).max(axis=1, initial=0.0), 1e-300)

    def _has(self, cuts: CutSet) -> BoolArray:
        """(K,) which cuts the model has already."""
        mine = self.cuts.take(-1 - self.origin[self.origin < 0])
        known = {row.tobytes() for row in np.column_stack([mine.u, mine.v, mine.mass])}
        asked = np.column_stack([cuts.u, cuts.v, cuts.mass])
        return np.array([row.tobytes() in known for row in asked], bool)

    def unscaled(self, y: FloatArray, slack: FloatArray) -> FloatArray:
        """Multipliers (M,) of the model's rows as multipliers of true rows and cuts, per unit of z.

        ``y``: of the model's first rows.
        """
        origin = self.origin[: len(y)]
        mine, scale = origin >= 0, np.empty(len(y))
        scale[mine] = 1.0 / slack[origin[mine]]
        if not mine.all():
            scale[~mine] = 1.0 / self._scaled(self.cuts)[1][-1 - origin[~mine]]
        return y * scale

    def shrink(self, limit: int) -> bool:
        """Drop what is active at no vertex, if there are more than ``limit`` rows; whether anything was dropped."""
        keep = self.programs.drop_idle(limit)
        if keep.all():
            return False
        self.origin = self.origin[keep]
        return True

    def forget_cuts(self) -> None:
        """Forget the cuts that the model has dropped. Between updates only: answers refer to cuts by index."""
        mine = self.origin < 0
        cuts = -1 - self.origin[mine]
        self.cuts = self.cuts.take(cuts)
        self.origin[mine] = -1 - np.arange(len(cuts))

    def renumber(self, new_index: IntArray) -> None:
        """Kept rows have moved: row i is now ``new_index[i]``."""
        mine = self.origin >= 0
        self.origin[mine] = new_index[self.origin[mine]]
