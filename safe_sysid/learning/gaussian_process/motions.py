"""Samples of a motion, as kernels read them."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from safe_sysid.core.arrays import FloatArray
from safe_sysid.errors import ParameterError
from safe_sysid.learning.gaussian_process.lagrangian_kernel import FEATURES

__all__ = ["MotionSamples", "in_threads"]


class MotionSamples:
    """N samples of joint positions, velocities and accelerations; read-only."""

    def __init__(
        self, q: ArrayLike, qd: ArrayLike, qdd: ArrayLike, slides: Sequence[bool], direction: ArrayLike | None = None
    ) -> None:
        """Check and keep the samples.

        Args:
            q: (N, n) or (n,), rad or m.
            qd: the same shape, rad/s or m/s.
            qdd: the same shape, rad/s^2 or m/s^2.
            slides: (n,) whether a joint slides.
            direction: the same shape, what Coulomb friction is multiplied by: the sign of the velocity, through the
                filter that torques went through, if one did; None: the sign of qd.

        Raises:
            ParameterError: shapes that do not fit, or a number that is not finite.
        """
        n = len(slides)
        arrays = []
        direction = np.sign(qd) if direction is None else direction
        for name, given in (("q", q), ("qd", qd), ("qdd", qdd), ("direction", direction)):
            a = np.array(np.atleast_2d(np.asarray(given, float)))
            if a.ndim != 2 or a.shape[1] != n:
                raise ParameterError(f"{name} has shape {np.shape(given)}: expected (N, {n})")
            if not np.all(np.isfinite(a)):
                r, j = np.argwhere(~np.isfinite(a))[0]
                raise ParameterError(f"{name}[{r}, {j}] = {a[r, j]}: expected a finite number")
            a.setflags(write=False)
            arrays.append(a)
        if len({len(a) for a in arrays}) > 1:
            raise ParameterError(
                f"{[len(a) for a in arrays]} samples of q, qd, qdd and direction: expected as many of each"
            )
        self.q, self.qd, self.qdd, self.direction = arrays
        self.slides = tuple(bool(x) for x in slides)

    def __len__(self) -> int:
        return len(self.q)

    @property
    def n(self) -> int:
        """Joints."""
        return len(self.slides)

    def __getitem__(self, index: Any) -> MotionSamples:
        """Some of the samples: a slice or an array of indices."""
        return MotionSamples(self.q[index], self.qd[index], self.qdd[index], self.slides, self.direction[index])

    @cached_property
    def rows(self) -> FloatArray:
        """(N, n * FEATURES): f, df/dq, g, dg/dq, velocity and acceleration of each joint."""
        slides = np.array(self.slides)
        f, df = np.where(slides, self.q, np.cos(self.q)), np.where(slides, 1.0, -np.sin(self.q))
        g, dg = np.where(slides, 0.0, np.sin(self.q)), np.where(slides, 0.0, np.cos(self.q))
        parts = np.stack([f, df, g, dg, self.qd, self.qdd], axis=-1)
        return np.ascontiguousarray(parts.reshape(len(self), self.n * FEATURES))

    @cached_property
    def columns(self) -> FloatArray:
        """(n * FEATURES, N), the same."""
        return np.ascontiguousarray(self.rows.T)

    @cached_property
    def inputs(self) -> FloatArray:
        """(N, 3 n): q, qd, qdd."""
        return np.ascontiguousarray(np.hstack([self.q, self.qd, self.qdd]))


def in_threads(work: Callable[[int, int], None], size: int) -> None:
    """Do ``work(share, shares)`` for every share, on all cores that this process may use.

    Args:
        work: releases the interpreter's lock while it computes.
        size: of the whole, in pairs of samples; where it is small, one share is all.
    """
    shares = min(len(os.sched_getaffinity(0)), 1 + size // 20_000)
    if shares == 1:
        work(0, 1)
        return
    with ThreadPoolExecutor(shares) as pool:
        for done in [pool.submit(work, share, shares) for share in range(shares)]:
            done.result()
