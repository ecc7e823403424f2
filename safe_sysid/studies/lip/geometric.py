"""The geometrically inspired polynomial kernel (GIP), a baseline of [LIP]: each joint's torque is a polynomial."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from safe_sysid.core.arrays import FloatArray
from safe_sysid.learning.gaussian_process.lagrangian_kernel import FEATURES
from safe_sysid.learning.gaussian_process.motions import MotionSamples

__all__ = ["GeometricPart"]


@dataclass(frozen=True)
class GeometricPart:
    """For each of n joints ``(s + sum_k g_k a_k a'_k) prod_b p_b^2`` [Dalla Libera and Carli, 2019].

    ``a`` are accelerations and products of two velocities, ``p_b`` is as in the LIP kernel.
    """

    n: int
    by_joint: ClassVar[bool] = True

    @property
    def count(self) -> int:
        """Of each joint: an offset, a weight for each ``a``, and three for each joint's position."""
        return self.n * (1 + self._features + 3 * self.n)

    @property
    def _features(self) -> int:
        return self.n + self.n * (self.n + 1) // 2

    def _motion(self, x: MotionSamples) -> FloatArray:
        i, j = np.triu_indices(self.n)
        return np.hstack([np.ones((len(x), 1)), x.qdd, x.qd[:, i] * x.qd[:, j]])

    def start(self, x: MotionSamples) -> FloatArray:
        """See :class:`~safe_sysid.learning.gaussian_process.kernels.KernelPart`."""
        one = np.concatenate([np.zeros(1 + self._features), np.full(3 * self.n, np.log(0.5))])
        return np.tile(one, self.n)

    def _blocks(
        self, log: FloatArray, x: MotionSamples, y: MotionSamples
    ) -> list[tuple[FloatArray, FloatArray, FloatArray, FloatArray]]:
        """Of each joint: its parameters, the factor of motions, those of positions (n, N, M), the block."""
        f, g = (np.einsum("rb,jb->brj", x.rows[:, k::FEATURES], y.rows[:, k::FEATURES]) for k in (0, 2))
        a, b, out = self._motion(x), self._motion(y), []
        for own in np.exp(log).reshape(self.n, -1):
            motion = (a * own[: a.shape[1]]) @ b.T
            c = own[a.shape[1] :].reshape(self.n, 3, 1, 1)
            p = c[:, 0] + c[:, 1] * f + c[:, 2] * g
            out.append((own, motion, p, motion * np.prod(p, axis=0) ** 2))
        return out

    def add(self, log: FloatArray, x: MotionSamples, y: MotionSamples | None, out: FloatArray) -> None:
        """See :class:`~safe_sysid.learning.gaussian_process.kernels.KernelPart`."""
        for j, (*_, block) in enumerate(self._blocks(log, x, x if y is None else y)):
            out[j :: self.n, j :: self.n] += block

    def pull(self, log: FloatArray, x: MotionSamples, inverse: FloatArray, dual: FloatArray) -> FloatArray:
        """See :class:`~safe_sysid.learning.gaussian_process.kernels.KernelPart`."""
        f, g = (np.einsum("rb,jb->brj", x.rows[:, k::FEATURES], x.rows[:, k::FEATURES]) for k in (0, 2))
        a, result = self._motion(x), []
        for j, (own, motion, p, _) in enumerate(self._blocks(log, x, x)):
            weight = np.tril(inverse[j :: self.n, j :: self.n])
            weight = weight + np.tril(weight, -1).T - np.outer(dual[j :: self.n], dual[j :: self.n])
            product = np.prod(p, axis=0)
            by_motion = 0.5 * weight * product**2
            result.append(own[: a.shape[1]] * np.einsum("rk,rk->k", a, by_motion @ a))
            for b in range(self.n):
                others = np.prod(np.delete(p, b, axis=0), axis=0)
                by_p = weight * motion * product * others
                c = own[a.shape[1] + 3 * b :][:3]
                result.append(c * np.array([by_p.sum(), np.sum(by_p * f[b]), np.sum(by_p * g[b])]))
        return np.concatenate(result)
