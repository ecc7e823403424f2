r"""The kernel LSE, a baseline of [LIP]: the whole Lagrangian is one squared exponential [Cheng and Huang, 2015].

Its input is ``z = (v, f, g)``, velocities and ``(cos q, sin q)`` of joints that turn, ``(q, 0)`` of those that slide:
``k = s exp(-(z - z')^T Lambda (z - z'))``. A torque is ``tau_a = D_dz D_ea L - D_za L`` with ``dz = dz/dt`` and
directions ``ea = dz/dv_a``, ``za = dz/dq_a``. Every derivative of k is k times products of inner products with
``r = z - z'`` and of the directions with each other, all of them linear in Lambda; by hand, the block of a pair of
samples is (c = dz.r, c' = dz'.r, m = dz.dz', alpha = e.r, beta = dz.e, beta' = dz'.e, xi = z.r, xi' = z'.r,
eta = dz.z', eta' = dz'.z, kappa_a = z_a.z'_a)

    k { alpha [(16 c c' - 8 m) alpha - 8 c' beta - 8 c (beta' + xi') + 4 eta]^T + beta [4 (beta' + xi') - 8 c' alpha]^T
        + beta' [4 beta - 8 c alpha]^T + xi [8 c' alpha - 4 (beta' + xi')]^T - 4 eta' alpha^T
        + diag((4 m - 8 c c') lambda_v + 2 kappa) }.
"""

from __future__ import annotations

from dataclasses import dataclass
from types import SimpleNamespace

import numpy as np

from safe_sysid.core.arrays import FloatArray
from safe_sysid.learning.gaussian_process.lagrangian_kernel import FEATURES
from safe_sysid.learning.gaussian_process.motions import MotionSamples

__all__ = ["LagrangianExponentialPart"]

_ROWS = 50  # samples that are worked on at once


def _outer(a: FloatArray, b: FloatArray) -> FloatArray:
    return np.asarray(a[..., :, None] * b[..., None, :])


@dataclass(frozen=True)
class LagrangianExponentialPart:
    """Torques of a Lagrangian that is a squared exponential; n joints."""

    n: int

    @property
    def count(self) -> int:
        """A variance and a length for each of 3 n inputs."""
        return 1 + 3 * self.n

    @staticmethod
    def _of(x: MotionSamples) -> tuple[FloatArray, FloatArray, FloatArray]:
        """``z``, ``dz/dt`` and ``dz/dq`` (its columns f and g), each (N, 3, n)."""
        f, df, g, dg, v, acc = x.rows.reshape(len(x), x.n, FEATURES).transpose(2, 0, 1)
        slope = np.stack([np.zeros_like(v), df, dg], axis=1)
        return np.stack([v, f, g], axis=1), np.stack([acc, df * v, dg * v], axis=1), slope

    def start(self, x: MotionSamples) -> FloatArray:
        """Variance one; lengths sqrt(3 n) times the deviation of their input, one where that is constant."""
        spread = np.std(self._of(x)[0], axis=0).ravel()
        return np.concatenate([[0.0], np.log(np.where(spread > 0.0, spread * np.sqrt(3.0 * self.n), 1.0))])

    def _pairs(self, log: FloatArray, x: MotionSamples, y: MotionSamples) -> SimpleNamespace:
        """All inner products of each pair of samples, and factors of the block."""
        (zx, dx, sx), (zy, dy, sy) = (
            tuple(a[place] for a in self._of(m)) for m, place in ((x, np.s_[:, None]), (y, np.s_[None, :]))
        )
        rate = np.exp(-2.0 * log[1:]).reshape(3, self.n)
        p = SimpleNamespace(r=zx - zy, dx=dx, dy=dy, sx=sx, sy=sy, rate=rate)
        scaled = rate * p.r
        p.k = np.exp(log[0] - np.einsum("rjdb,rjdb->rj", scaled, p.r))
        p.c, p.c2 = ((scaled * d).sum((2, 3))[..., None] for d in (dx, dy))
        p.m = (rate * dx * dy).sum((2, 3))[..., None]
        p.alpha, p.beta, p.beta2 = scaled[:, :, 0], rate[0] * dx[:, :, 0], rate[0] * dy[:, :, 0]
        p.xi, p.xi2 = (scaled * sx).sum(2), (scaled * sy).sum(2)
        p.eta, p.eta2, p.kappa = (rate * dx * sy).sum(2), (rate * dy * sx).sum(2), (rate * sx * sy).sum(2)
        both = p.beta2 + p.xi2
        p.factors = (
            (p.alpha, (16.0 * p.c * p.c2 - 8.0 * p.m) * p.alpha - 8.0 * p.c2 * p.beta - 8.0 * p.c * both + 4.0 * p.eta),
            (p.beta, 4.0 * both - 8.0 * p.c2 * p.alpha),
            (p.beta2, 4.0 * p.beta - 8.0 * p.c * p.alpha),
            (p.xi, 8.0 * p.c2 * p.alpha - 4.0 * both),
            (p.eta2, -4.0 * p.alpha),
        )
        p.diagonal = (4.0 * p.m - 8.0 * p.c * p.c2) * rate[0] + 2.0 * p.kappa
        return p

    def add(self, log: FloatArray, x: MotionSamples, y: MotionSamples | None, out: FloatArray) -> None:
        """See :class:`~safe_sysid.learning.gaussian_process.kernels.KernelPart`."""
        n, y = self.n, x if y is None else y
        for k in range(0, len(x), _ROWS):
            p = self._pairs(log, x[k : k + _ROWS], y)
            block = sum(_outer(a, b) for a, b in p.factors)
            np.einsum("rjbb->rjb", block)[:] += p.diagonal
            block *= p.k[..., None, None]
            out[n * k : n * (k + _ROWS)] += block.transpose(0, 2, 1, 3).reshape(-1, n * len(y))

    def pull(self, log: FloatArray, x: MotionSamples, inverse: FloatArray, dual: FloatArray) -> FloatArray:
        """See :class:`~safe_sysid.learning.gaussian_process.kernels.KernelPart`."""
        n, result = self.n, np.zeros(self.count)
        for k in range(0, len(x), _ROWS):
            rows = slice(n * k, n * (k + _ROWS))
            weight = np.tril(inverse[rows], n * k)
            weight[:, rows] += np.tril(inverse[rows, rows], -1).T
            weight[:, rows.stop :] = inverse[rows.stop :, rows].T
            weight = 0.5 * (weight - np.outer(dual[rows], dual))
            result += self._reverse(log, x[k : k + _ROWS], x, weight.reshape(-1, n, len(x), n).swapaxes(1, 2))
        return result

    def _reverse(self, log: FloatArray, x: MotionSamples, y: MotionSamples, weight: FloatArray) -> FloatArray:
        """Derivative by the logarithms of the sum of all blocks times weights (N, M, n, n)."""
        p = self._pairs(log, x, y)
        weight = weight * p.k[..., None, None]
        left = [np.einsum("rjab,rja->rjb", weight, np.broadcast_to(a, p.xi.shape)) for a, _ in p.factors]
        right = [np.einsum("rjab,rjb->rja", weight, b) for _, b in p.factors]
        diagonal = np.einsum("rjbb->rjb", weight)
        trace = (diagonal * p.rate[0]).sum(-1, keepdims=True)

        def dot(a: FloatArray, b: FloatArray) -> FloatArray:
            return np.asarray((a * b).sum(-1, keepdims=True))

        first = dot(left[0], p.alpha)
        value = sum(dot(a, b) for a, (_, b) in zip(left, p.factors, strict=True)) + dot(diagonal, p.diagonal)
        by_m = 4.0 * trace - 8.0 * first
        by_c = 16.0 * p.c2 * first - 8.0 * (dot(left[0], p.beta2 + p.xi2) + dot(left[2], p.alpha) + p.c2 * trace)
        by_c2 = 16.0 * p.c * first - 8.0 * (dot(left[0], p.beta) + dot(left[1] - left[3], p.alpha) + p.c * trace)
        by_alpha = (
            right[0]
            + (16.0 * p.c * p.c2 - 8.0 * p.m) * left[0]
            - 8.0 * p.c2 * (left[1] - left[3])
            - 8.0 * p.c * left[2]
            - 4.0 * left[4]
        )
        by_beta = right[1] - 8.0 * p.c2 * left[0] + 4.0 * left[2]
        by_xi2 = 4.0 * (left[1] - left[3]) - 8.0 * p.c * left[0]
        by_beta2 = right[2] + by_xi2

        def all_inputs(a: FloatArray) -> FloatArray:
            return a[:, :, None]

        by_rate = (
            -all_inputs(value) * p.r**2
            + p.r * (all_inputs(by_c) * p.dx + all_inputs(by_c2) * p.dy)
            + all_inputs(by_m) * p.dx * p.dy
            + p.r * (all_inputs(right[3]) * p.sx + all_inputs(by_xi2) * p.sy)
            + 4.0 * all_inputs(left[0]) * p.dx * p.sy
            + all_inputs(right[4]) * p.dy * p.sx
            + 2.0 * all_inputs(diagonal) * p.sx * p.sy
        ).sum((0, 1))
        by_rate[0] += (
            by_alpha * p.r[:, :, 0]
            + by_beta * p.dx[:, :, 0]
            + by_beta2 * p.dy[:, :, 0]
            + diagonal * (4.0 * p.m - 8.0 * p.c * p.c2)
        ).sum((0, 1))
        return np.concatenate([[value.sum()], (-2.0 * p.rate * by_rate).ravel()])
