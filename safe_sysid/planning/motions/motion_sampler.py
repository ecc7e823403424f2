"""Motions that are linear in free numbers, joint by joint: states at fixed times, and the chain rule back."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from safe_sysid.core.arrays import FloatArray

__all__ = ["MotionSampler"]


@dataclass(frozen=True, eq=False)
class MotionSampler:
    """``base + basis x_j`` for every joint j; what is free is x (n, m)."""

    times: FloatArray  #: (N,) s
    base: FloatArray  #: (4, N, n) position, velocity, acceleration, jerk at x = 0
    basis: FloatArray  #: (4, N, m) what each free number adds to its joint's

    def states(self, x: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray, FloatArray]:
        """Position, velocity, acceleration, jerk, each (N, n) and C-contiguous."""
        q, qd, qdd, jerk = (np.ascontiguousarray(self.base[o] + self.basis[o] @ x.T) for o in range(4))
        return q, qd, qdd, jerk

    def own(self, order: int, slope: FloatArray) -> FloatArray:
        """Derivatives (N n, n m) of numbers (N, n) that depend on their own joint's state only, by ``slope`` (N, n)."""
        count, n = slope.shape
        out = np.zeros((count, n, n, self.basis.shape[2]))
        joints = np.arange(n)
        out[:, joints, joints] = slope[..., None] * self.basis[order][:, None, :]
        return out.reshape(count * n, -1)

    def chain(self, by_state: FloatArray) -> FloatArray:
        """Derivatives (N c, n m) of numbers (N, c) from those by the first k orders of the state (N, c, k, n)."""
        count, columns, orders, n = by_state.shape
        out = np.einsum("scoi,osa->scia", by_state, self.basis[:orders])
        return np.asarray(out.reshape(count * columns, n * self.basis.shape[2]))

    def __call__(self, x: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Position, velocity, acceleration for x (n m,): what a cost asks of a family's sampler."""
        return self.states(x.reshape(self.base.shape[2], -1))[:3]

    def pull_back(self, by_state: FloatArray) -> FloatArray:
        """Derivative by x (n m,) from derivatives (N, 3, n) by the states."""
        return np.asarray(np.einsum("soi,osa->ia", by_state, self.basis[:3]).ravel())
