"""Rows and cuts over the joint unknowns ``x = (theta, theta_h, d, f, z)`` (:class:`UnknownsLayout`), and their bounds.

f is by how much the D parameters that may drift were larger at the tare; D = 0 where nothing drifts. z are the arm's
unknown constants that are no parameters (:class:`~safe_sysid.robot.unknowns.Unknowns`); most arms have none.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from safe_sysid.core.arrays import FloatArray, IntArray
from safe_sysid.core.layout import UnknownsLayout
from safe_sysid.identification.bounds.consistency import CutSet
from safe_sysid.identification.equations.momentum import MomentumRows

__all__ = ["LinearBounds", "Proof", "collect", "culprit", "cut_rows", "sides", "unscaled_rows"]

#: Which bound it proves (first K lower ones), multipliers, and the origin of each: a kept row, or -1 - index of a cut.
Proof = tuple[int, FloatArray, IntArray]
_NONE = np.zeros(0, np.int64)


@dataclass(frozen=True, eq=False)
class LinearBounds:
    """Proved bounds of some unknowns, their proof, and what became of the programs."""

    lower: FloatArray  #: (K,) proved
    upper: FloatArray  #: (K,) proved
    solved: int  #: programs that the solver finished, of 2 K
    empty: bool  #: the set is *proved* empty
    culprit: int = -1  #: index of the row with the largest part in that proof, -1 without one
    kinds: tuple[str, ...] = ()
    rows: IntArray | None = None  #: (M,) indices of the kept rows with a multiplier that is not zero somewhere
    cuts: CutSet | None = None
    #: row_multipliers, cut_multipliers: (2 K, M), (2 K, C): first K lower bounds, then K upper ones, signs as in
    #: :mod:`safe_sysid.identification.bounds.proof`
    row_multipliers: FloatArray | None = None
    cut_multipliers: FloatArray | None = None


def unscaled_rows(rows: MomentumRows, drifting: IntArray = _NONE) -> FloatArray:
    """(M, X) coefficients over x: those of a tare move from theta_e to theta_h, and multiply f besides.

    ``drifting``: (D,) columns of the parameters that may drift.
    """
    x = UnknownsLayout(rows.layout, len(drifting), rows.constants.shape[1])
    out = np.zeros((len(rows), x.size))
    out[:, : x.arm.size] = rows.matrix
    out[:, x.constants] = rows.constants
    tare = np.flatnonzero(rows.log == 1)
    if tare.size:
        out[tare, x.hand] = rows.matrix[tare, x.arm.payload]
        out[tare, x.arm.payload] = 0.0
        out[tare, x.drift] = rows.matrix[np.ix_(tare, drifting)]
    return out


def cut_rows(cuts: CutSet, x: UnknownsLayout) -> FloatArray:
    """(K, X) coefficients of cuts over x, exact."""
    out = np.zeros((len(cuts), x.size))
    if not len(cuts):
        return out
    g = cuts.coefficients()
    out[:, x.arm.payload], out[:, x.hand], out[:, x.opening] = g, -g, -g
    return out


def sides(
    rows: MomentumRows, cuts: CutSet, origin: IntArray, drifting: IntArray = _NONE
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Matrix (M, X) and sides (M,), rounded outward, of rows and cuts by ``origin`` (M,)."""
    mine = origin >= 0
    taken, taken_cuts = rows.take(origin[mine]), cuts.take(-1 - origin[~mine])
    x = UnknownsLayout(rows.layout, len(drifting), rows.constants.shape[1])
    matrix = np.empty((len(origin), x.size))
    lower, upper = np.empty(len(origin)), np.full(len(origin), np.inf)
    matrix[mine] = unscaled_rows(taken, drifting)
    matrix[~mine] = cut_rows(taken_cuts, x)
    lower[mine] = np.nextafter(taken.target - taken.slack, -np.inf)
    upper[mine] = np.nextafter(taken.target + taken.slack, np.inf)
    lower[~mine] = taken_cuts.constant
    return matrix, lower, upper


def culprit(rows: MomentumRows, cuts: CutSet, origin: IntArray, y: FloatArray) -> tuple[int, tuple[str, ...]]:
    """Row with the largest part in a proof of emptiness (-1 if none takes part), and the kinds of cuts in it."""
    mine = origin >= 0
    kinds = tuple(sorted({str(kind) for kind in cuts.kind[-1 - origin[~mine & (y != 0.0)]]}))
    if not np.any(y[mine]):
        return -1, kinds
    part = np.abs(y[mine]) * rows.slack[origin[mine]]
    return int(origin[mine][np.argmax(part)]), kinds


def collect(
    count: int, kept: int, cuts: CutSet, proofs: list[Proof]
) -> tuple[IntArray, CutSet, FloatArray, FloatArray]:
    """Rows and cuts with a multiplier somewhere, and all multipliers, of ``2 count`` bounds over ``kept`` rows.

    Returns indices of the M rows, the K cuts, and multipliers (2 count, M) and (2 count, K), lower bounds first.
    """
    rows, cut_part = np.zeros((2 * count, kept)), np.zeros((2 * count, len(cuts)))
    for at, y, origin in proofs:
        y = np.where(np.isfinite(y) & (np.abs(y) < 1e100), y, 0.0)
        mine = origin >= 0
        rows[at, origin[mine]] = y[mine]
        # A lower bound has cuts with multipliers >= 0, an upper one <= 0; others counted as zero when it was proved.
        cut_part[at, -1 - origin[~mine]] = np.maximum(y[~mine] if at < count else -y[~mine], 0.0)
    used, used_cuts = np.flatnonzero(rows.any(axis=0)), np.flatnonzero(cut_part.any(axis=0))
    return used, cuts.take(used_cuts), rows[:, used], cut_part[:, used_cuts]
