"""Bodies as balls, for the optimiser's distances: good to a centimetre or two, and cheap."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from safe_sysid.core.arrays import FloatArray, IntArray
from safe_sysid.robot.model import Body

__all__ = ["BallCover", "cover"]

#: Largest edge of the cells that a body is cut into, m.
_CELL = 0.06


def _cells(points: FloatArray, edge: float) -> tuple[FloatArray, float]:
    """Cut the box around points (m, 3), in its principal axes or the given ones, into cells: centres and their size."""
    _, _, principal = np.linalg.svd(points - points.mean(axis=0), full_matrices=True)
    volumes = [np.prod(np.ptp(points @ axes.T, axis=0) + 1e-3) for axes in (np.eye(3), principal)]
    axes = principal if volumes[1] < volumes[0] * (1.0 - 1e-9) else np.eye(3)
    lower, extent = (points @ axes.T).min(axis=0), np.ptp(points @ axes.T, axis=0)
    count = np.maximum(np.ceil(extent / edge - 1e-9), 1).astype(int)
    size = extent / count
    grid = np.stack(np.meshgrid(*(np.arange(c) + 0.5 for c in count), indexing="ij"), axis=-1).reshape(-1, 3)
    centres = (lower + grid * size) @ axes
    # Between the ball inside the cell and the one around it.
    return centres, 0.25 * float(size.max() + np.linalg.norm(size))


@dataclass(frozen=True, eq=False)
class BallCover:
    """Balls that stand for bodies."""

    joint: IntArray  #: (B,) index of the joint frame that each ball moves with, -1 for fixed
    centre: FloatArray  #: (B, 3) in that frame, m
    radius: FloatArray  #: (B,) m
    body: IntArray  #: (B,) index of the body that it belongs to


def cover(bodies: Iterable[Body]) -> BallCover:
    """Balls for all bodies."""
    joint: list[int] = []
    centre: list[FloatArray] = []
    radius: list[float] = []
    owner: list[int] = []
    for index, body in enumerate(bodies):
        centres, size = _cells(np.asarray(body.points), max(_CELL, 1.2 * body.radius))
        # A swept ball of radius r around a short edge s reaches sqrt(r^2 + s^2) at most.
        r = float(np.hypot(body.radius, size)) if body.radius > 0.0 else size
        joint += [body.joint] * len(centres)
        centre += list(centres)
        radius += [r] * len(centres)
        owner += [index] * len(centres)
    return BallCover(
        np.array(joint, dtype=np.int64),
        np.array(centre, dtype=float).reshape(-1, 3),
        np.array(radius, dtype=float),
        np.array(owner, dtype=np.int64),
    )
