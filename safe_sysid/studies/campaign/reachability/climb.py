"""Ascent over a tube's symbols: the linearised worst case again and again, and the best of a few steps towards it."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from safe_sysid.core.arrays import FloatArray
from safe_sysid.studies.campaign.reachability.tube import Tube

__all__ = ["climb"]

_STEPS = (1.0, 0.4, 0.1, 0.02)
_DIFFERENCE = 1e-4


def climb(tube: Tube, x: FloatArray, value: Callable[..., FloatArray], turns: int = 5) -> tuple[FloatArray, FloatArray]:
    """Largest values found from some starts. Returns symbols (N, size) and values (N,).

    Args:
        x: (N, size) starts, in the set.
        value: ``(rows, x) -> (len(rows),)``, what to make large, of the goals ``rows`` at symbols x.
    """
    n, live = tube.n, np.flatnonzero(tube.live)
    rows = np.arange(len(x))
    best = value(rows, x)
    for _ in range(turns):
        inner = tube.project(x * (1.0 - 2.0 * _DIFFERENCE))
        moved = np.repeat(inner[:, None], len(live) + 1, axis=1)
        moved[:, np.arange(len(live)), live] += _DIFFERENCE
        near = value(np.repeat(rows, len(live) + 1), moved.reshape(-1, x.shape[1]))
        near = near.reshape(len(x), len(live) + 1)
        slope = np.zeros_like(x)
        slope[:, live] = near[:, :-1] - near[:, -1:]
        worst = np.sign(slope)
        for part in (slice(1, n + 1), slice(n + 1, 2 * n + 1)):
            length = np.linalg.norm(slope[:, part], axis=1, keepdims=True)
            worst[:, part] = slope[:, part] / np.where(length > 0.0, length, 1.0)
        worst = np.where(slope != 0.0, worst, x)
        before = best.copy()
        start = x.copy()
        for step in _STEPS:
            trial = tube.project(start + step * (worst - start))
            found = value(rows, trial)
            better = found > best
            x[better], best[better] = trial[better], found[better]
        if not np.any(best > before + 1e-12 * np.abs(before)):
            break
    return x, best
