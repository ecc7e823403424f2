r"""Base parameters: the combinations of an arm's parameters that torques depend on, by QR with pivoting.

Columns of a regressor W (M, P) are split by a permutation into nb independent ones, ``Y = W Pb``, and the others,
``W Pd = Y Kd``. Then ``W theta = Y pi`` with

- ``pi = (Pb^T + Kd Pd^T) theta``, and
- ``theta = Pb (pi - Kd theta_d) + Pd theta_d`` for whatever ``theta_d = Pd^T theta`` one chooses

[ConstrainedSysID eq. 12 to 17; Gautier1990].
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import scipy  # scipy.linalg when it is first used

from safe_sysid.core.arrays import BoolArray, FloatArray, IntArray
from safe_sysid.core.layout import PAYLOAD_NAMES, PAYLOAD_UNITS, ParameterLayout
from safe_sysid.core.units import unit_for
from safe_sysid.errors import ParameterError

__all__ = [
    "BaseParameters",
    "base_parameters",
    "base_parameters_of_factor",
    "combination_names",
    "excitable_columns",
    "parameter_words",
    "random_states",
]

#: Of a column's norm: what is left of a dependent one is rounding; and a share that is not worth a word in a name.
_RANK, _WORDLESS = 1e-11, 1e-4
#: Of a column's norm: directions of which less is left are there on paper alone, as where axes are almost square.
_PAPER = 1e-4


@dataclass(frozen=True, eq=False)
class BaseParameters:
    """Independent columns of a regressor, and how the other columns follow from them."""

    independent: IntArray  #: (nb,) indices of parameters, increasing
    dependent: IntArray  #: (P - nb,) indices of the others, increasing
    combination: FloatArray  #: (nb, P - nb) Kd

    @property
    def size(self) -> int:
        """Number P of parameters."""
        return len(self.independent) + len(self.dependent)

    def __len__(self) -> int:
        return len(self.independent)

    @property
    def matrix(self) -> FloatArray:
        """(nb, P) ``Pb^T + Kd Pd^T``: base parameters are this times all parameters."""
        out = np.zeros((len(self), self.size))
        out[np.arange(len(self)), self.independent] = 1.0
        out[:, self.dependent] = self.combination
        return out

    def values(self, theta: FloatArray) -> FloatArray:
        """(nb,) base parameters of theta (P,)."""
        return np.asarray(theta[self.independent] + self.combination @ theta[self.dependent])

    def parameters(self, values: FloatArray, dependent: FloatArray) -> FloatArray:
        """(P,) parameters from base parameters (nb,) and dependent parameters (P - nb,)."""
        theta = np.empty(self.size)
        theta[self.independent] = values - self.combination @ dependent
        theta[self.dependent] = dependent
        return theta

    @property
    def unseen(self) -> IntArray:
        """Indices of parameters that no torque depends on at all."""
        return self.dependent[~self.combination.any(axis=0)]

    def names(self, words: Sequence[str]) -> list[str]:
        """Base parameters for people, as ``Izz of link 2 + Ixx of link 3 + 0.16 m of link 3``.

        ``words``: (P,) of the parameters, as of :func:`parameter_words`.
        """
        return combination_names(self.matrix, words)


def combination_names(matrix: FloatArray, words: Sequence[str]) -> list[str]:
    """Names of combinations of parameters, made from their coefficients; coefficients below 1e-4 are left out.

    ``matrix``: (nb, P) coefficients; ``words``: (P,) of the parameters.
    """
    names = []
    for row in matrix:
        terms = []
        for column in np.flatnonzero(np.abs(row) > _WORDLESS).tolist():
            size = "" if abs(abs(row[column]) - 1.0) < 5e-4 else f"{abs(row[column]):.3g} "
            terms.append(f"{'-' if row[column] < 0.0 else '+'} {size}{words[column]}")
        names.append(" ".join(terms).removeprefix("+ "))
    return names


def parameter_words(layout: ParameterLayout, joint_names: Sequence[str]) -> list[str]:
    """(P,) words of all parameters, as ``Izz of link 2`` and ``viscous friction of elbow``."""
    links = [f"{name} of link {j + 1}" for j in range(layout.n) for name in PAYLOAD_NAMES]
    return links + [f"{term.words} of {joint}" for term in layout.terms for joint in joint_names]


def parameter_units(layout: ParameterLayout, sliding: BoolArray) -> list[str]:
    """(P,) units of all parameters. ``sliding``: (n,) whether a joint slides."""
    terms = [unit_for(term.unit, [bool(slides)]) for term in layout.terms for slides in sliding]
    return [*PAYLOAD_UNITS * layout.n, *terms]


def excitable_columns(regressor: FloatArray) -> IntArray:
    """Independent columns that motions can tell apart; columns that are almost dependent are left out.

    ``regressor``: (M, P), as of :func:`base_parameters`.
    """
    return base_parameters(regressor, _PAPER).independent


def base_parameters(regressor: FloatArray, rank: float = _RANK) -> BaseParameters:
    """Base parameters of a regressor. The states may be any that excite every parameter.

    Args:
        regressor: (M, P) rows of joints and states, M at least P.
        rank: of a column's norm: where less is left the column counts as dependent.

    Raises:
        ParameterError: not finite, or too few rows.
    """
    regressor = np.asarray(regressor, float)
    if regressor.ndim != 2 or len(regressor) < regressor.shape[1]:
        expected = "(M, P), M at least P"
        raise ParameterError(f"regressor of shape {regressor.shape}: expected {expected}")
    return base_parameters_of_factor(scipy.linalg.qr(regressor, mode="r")[0][: regressor.shape[1]], rank)


def base_parameters_of_factor(factor: FloatArray, rank: float = _RANK) -> BaseParameters:
    """Base parameters from the triangular factor of a regressor's QR decomposition.

    ``factor``: (K, P); ``rank``: as of :func:`base_parameters`.

    Raises:
        ParameterError: a number is not finite, or all are zero.
    """
    if not np.all(np.isfinite(factor)):
        raise ParameterError("regressor: expected finite numbers")
    norms = np.linalg.norm(factor, axis=0)
    seen = norms > _RANK * max(float(norms.max(initial=0.0)), 1e-300)
    if not seen.any():
        raise ParameterError("regressor: all zero, expected one that depends on some parameter")
    scale = np.where(seen, norms, 1.0)
    columns = np.flatnonzero(seen)
    triangle, order = scipy.linalg.qr(factor[:, columns] / scale[columns], mode="r", pivoting=True)
    count = int(np.sum(np.abs(np.diag(triangle)) > rank))
    first, rest = columns[order[:count]], columns[order[count:]]
    solved = scipy.linalg.solve_triangular(triangle[:count, :count], triangle[:count, count:])
    solved = solved * scale[rest] / scale[first][:, None]
    size = np.abs(solved) * scale[first][:, None] / scale[rest]
    solved[size < 1e-13] = 0.0
    by_index = np.argsort(first)
    independent = first[by_index]
    dependent = np.setdiff1d(np.arange(factor.shape[1]), independent)
    combination = np.zeros((count, len(dependent)))
    combination[:, np.searchsorted(dependent, rest)] = solved[by_index]
    return BaseParameters(independent, dependent, combination)


def random_states(n: int, regressor: Callable[[FloatArray, FloatArray, FloatArray], FloatArray]) -> FloatArray:
    """Regressor at 200 random states. Its base parameters are all that any motion can identify.

    ``regressor``: of (N, n) positions, velocities and accelerations, (N, n, P).
    """
    rng, count = np.random.default_rng(0), 200
    q, qd, qdd = rng.uniform(-np.pi, np.pi, (count, n)), *(rng.normal(0.0, 3.0, (2, count, n)))
    return regressor(q, qd, qdd).reshape(count * n, -1)
