r"""Tied positions: velocities tie neighbouring readings to each other, which bounds positions more tightly.

On a step ``q(t_{k+1}) - q(t_k)`` is the integral of the true velocity: ``d_k = h u``, u the mean of the velocities at
both ends, off by at most ``r_k = H rho + 2 sigma |u|`` (rho of u, the duration's error). So every reading of a sample
before is one of this sample, too: ``q_j + sum d`` is off by at most ``dq + sum r``. What they have in common holds the
true position. Neighbours are taken from the nearest on; one that would leave nothing ends them: declared errors are
then false, which the equations show. None behind are used: they would not be known yet of all rows, and a checker has
to come to the same.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from safe_sysid.core.arrays import BoolArray, FloatArray

__all__ = ["NEIGHBOURS", "tied_positions"]

#: Samples before whose readings are used. The checker's code has this number, too.
NEIGHBOURS = 48
_ROUND = 1e-17  # rad or m: what a step's differences, far below 0.1, round by


def tied_positions(
    q: FloatArray, position: FloatArray, residual: FloatArray, loose: FloatArray, wrong: BoolArray
) -> tuple[FloatArray, FloatArray]:
    """Positions (N, n) and their error bounds, no larger than those of the readings.

    Args:
        q: (N, n) readings of one run, unwrapped.
        position: (n,) their error bound.
        residual: (N - 1, n) change by the velocities, less the readings' change.
        loose: (N - 1, n) error bound of the former.
        wrong: (N - 1,) steps that contradict what is declared: nothing is tied over them.
    """
    shift, off = np.zeros(q.shape), np.empty(q.shape)
    _tie(position, residual, loose * (1.0 + 1e-12) + _ROUND, wrong, shift, off)
    return q + shift, off


@njit(cache=True, nogil=True)
def _tie(
    position: FloatArray, residual: FloatArray, loose: FloatArray, wrong: BoolArray, shift: FloatArray, off: FloatArray
) -> None:
    """Fill ``shift`` and ``off`` (N, n): middle and half width of true position less reading."""
    steps = residual.shape[0]
    for j in range(position.size):
        dq = position[j]
        for k in range(steps + 1):
            low, high = -dq, dq
            total, error = 0.0, dq
            for step in range(k - 1, max(k - 1 - NEIGHBOURS, -1), -1):
                if wrong[step]:
                    break
                total += residual[step, j]
                error += loose[step, j]
                least, most = max(low, total - error), min(high, total + error)
                if least > most:
                    break
                low, high = least, most
            shift[k, j] = 0.5 * (low + high)
            off[k, j] = 0.5 * (high - low)
