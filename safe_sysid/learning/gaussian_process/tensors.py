"""The kernels as operations on whole arrays, for a graphics processor.

Formulas as in :mod:`.chain_gradient` and :mod:`.lagrangian_kernel`.

The same lines work on numpy's arrays and on torch's tensors. Torch (extra ``learn``) moves them to any device that it
knows and finds derivatives by the parameters; those of the kernel by motions stay the ones derived by hand.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from safe_sysid.core.arrays import FloatArray
from safe_sysid.errors import ParameterError
from safe_sysid.learning.gaussian_process.factor import JITTERS, NotPositiveDefiniteError
from safe_sysid.learning.gaussian_process.kernels import (
    ChainPart,
    LagrangianPart,
    LinearPart,
    SquaredExponentialPart,
    SumKernel,
)
from safe_sysid.learning.gaussian_process.motions import MotionSamples

__all__ = ["TensorLikelihood", "kernel_matrix"]

_SMALL = 1e-8  # of a factor p, relative to its weights: a smaller one is taken to be this


def _joint_sum(a: Any) -> Any:
    return a.sum(-1)[..., None]


def _factors(xp: Any, position: Any, rows: Any, columns: Any) -> tuple[Any, Any, Any, Any]:
    """``p``, and ``p_q/p``, ``p_q'/p``, ``p_qq'/p`` of each pair and joint, (N, M, m).

    Args:
        xp: numpy or torch.
        position: (m, 3).
        rows: (N, 1, m, FEATURES).
        columns: (1, M, m, FEATURES).
    """
    sigma, c, z = position[:, 0], position[:, 1], position[:, 2]
    f, df, g, dg = (rows[..., k] for k in range(4))
    p = sigma + c * f * columns[..., 0] + z * g * columns[..., 2]
    least = _SMALL * (sigma + c + z)
    p = xp.where(abs(p) < least, least, p)
    p1 = c * df * columns[..., 0] + z * dg * columns[..., 2]
    p2 = c * f * columns[..., 1] + z * g * columns[..., 3]
    p12 = c * df * columns[..., 1] + z * dg * columns[..., 3]
    return p, p1 / p, p2 / p, p12 / p


def _link(xp: Any, weight: Any, position: Any, rows: Any, columns: Any) -> Any:
    """Block (N, M, m, m) of a link's kinetic energy; arguments as :func:`_factors`, weight (m,)."""
    p, p1, p2, p12 = _factors(xp, position, rows, columns)
    u1, u2, mix = 2.0 * p1, 2.0 * p2, 2.0 * (p12 - p1 * p2)
    v, acc, v2, acc2 = rows[..., 4], rows[..., 5], columns[..., 4], columns[..., 5]
    P = (p * p).prod(-1)[..., None]
    U1, U2, M = _joint_sum(u1 * v), _joint_sum(u2 * v2), _joint_sum(mix * v * v2)
    h, h1 = _joint_sum(weight * v * v2), _joint_sum(weight * acc * v2)
    h2, h12 = _joint_sum(weight * v * acc2), _joint_sum(weight * acc * acc2)
    one, alpha, alpha2 = 0.0 * p + 1.0, weight * v, weight * v2
    left = (weight * (acc2 + U2 * v2), alpha2 * one, u1, -h * v2 * mix)
    right = (
        weight * (acc + U1 * v),
        M * alpha - (h1 + h * U1) * u2 - h * v * mix,
        0.5 * h * h * u2 - (h2 + h * U2) * alpha,
        alpha * one,
    )
    diagonal = 2.0 * weight * (h12 + h1 * U2 + h2 * U1 + h * (U1 * U2 + M)) + h * h * mix
    products = xp.stack(left, -1) @ xp.stack(right, -2)
    return P[..., None] * (2.0 * products + diagonal[..., None] * _eye(xp, diagonal))


def _eye(xp: Any, like: Any) -> Any:
    return xp.eye(like.shape[-1]) if xp is np else xp.eye(like.shape[-1], dtype=like.dtype, device=like.device)


def _lagrangian(xp: Any, n: int, values: Any, rows: Any, columns: Any) -> Any:
    """(N, M, n, n) of :class:`LagrangianPart`; values (count,) not logarithms."""
    size, first = n * (n + 1) // 2, 0
    potential = values[4 * size :].reshape(n, 3)
    V, p1, p2, p12 = _factors(xp, potential, rows, columns)
    eye = _eye(xp, p1)
    rank = p1[..., :, None] * p2[..., None, :]
    total = V.prod(-1)[..., None, None] * (rank * (1.0 - eye) + p12[..., None] * eye)
    for m in range(1, n + 1):
        weight, position = values[first : first + m], values[size + 3 * first : size + 3 * (first + m)].reshape(m, 3)
        total[..., :m, :m] += _link(xp, weight, position, rows[:, :, :m], columns[:, :, :m])
        first += m
    return total


def _chain_link(xp: Any, twice: Any, speeds: Any, factors: Any, rows: Any, columns: Any) -> Any:
    """Block (N, M, m, m) of a link's kinetic energy; arguments as :func:`_link`."""
    p, u1, u2, u12 = factors
    m, one = p.shape[-1], 0.0 * p[..., 0] + 1.0
    v, acc, v2, acc2 = rows[..., 4], rows[..., 5], columns[..., 4], columns[..., 5]
    R, r1, r2, T = [one], [0.0 * one], [0.0 * one], [0.0 * one]  # of the joints, the last one first
    for b in range(m - 1, 0, -1):
        d1, d2 = v[..., b] * u1[..., b], v2[..., b] * u2[..., b]
        T.append(T[-1] + d1 * r2[-1] + d2 * r1[-1] + v[..., b] * v2[..., b] * u12[..., b])
        R.append(R[-1] * p[..., b])
        r1.append(r1[-1] + d1)
        r2.append(r2[-1] + d2)
    R, r1, r2, T = (xp.stack(rows_of[::-1], -1) for rows_of in (R, r1, r2, T))
    W, b1, b2, mix = speeds * R, acc + v * r1, acc2 + v2 * r2, u12 - u1 * u2
    alpha, alpha2 = W * v2, W * v
    shares = alpha * v, alpha * b1, alpha2 * b2
    C, C1, C2 = (xp.cumsum(share, -1) - share for share in shares)
    h, h1, h2 = (_joint_sum(share) for share in shares)
    h12 = _joint_sum(W * (acc * b2 + v * (acc2 * r1 + v2 * T)))
    e, e2 = alpha * r1 - u1 * C, alpha2 * r2 - u2 * C
    gamma = W * (r1 * acc2 + v2 * T) - u1 * C2 - mix * v2 * C
    gamma2 = W * (r2 * acc + v * T) - u2 * C1 - mix * v * C
    pairs = xp.stack((alpha, gamma, W * b2, e), -1) @ xp.stack((gamma2, alpha2, W * b1, e2), -2)
    above = xp.stack((h * e + h1 * alpha, h * alpha), -1) @ xp.stack((u2, v * mix), -2)
    below = xp.stack((u1, v2 * mix), -1) @ xp.stack((h * e2 + h2 * alpha2, h * alpha2), -2)
    diagonal = W * (h12 + h1 * r2 + h2 * r1 + h * T) + h * u12 * C
    return twice * (pairs - xp.triu(above, 1) - xp.tril(below, -1) + diagonal[..., None] * _eye(xp, diagonal))


def _chain(xp: Any, n: int, values: Any, rows: Any, columns: Any) -> Any:
    """(N, M, n, n) of :class:`ChainPart`; values (count,) not logarithms."""
    speeds, links, heights = values[:n], values[n : 2 * n], values[2 * n : 3 * n]
    factors = _factors(xp, values[3 * n : 6 * n].reshape(n, 3), rows, columns)
    p, u1, u2, u12 = _factors(xp, values[6 * n :].reshape(n, 3), rows, columns)
    kernels = heights * xp.cumprod(p, -1)
    above = _joint_sum(kernels) - xp.cumsum(kernels, -1) + kernels  # of the links from a joint on
    high = above[..., np.maximum.outer(np.arange(n), np.arange(n))]
    eye = _eye(xp, u1)
    total = high * (u1[..., :, None] * u2[..., None, :] * (1.0 - eye) + u12[..., None] * eye)
    for m in range(1, n + 1):
        few = tuple(factor[..., :m] for factor in factors)
        total[..., :m, :m] += _chain_link(xp, 2.0 * links[m - 1], speeds[:m], few, rows[:, :, :m], columns[:, :, :m])
    return total


def kernel_matrix(
    xp: Any, kernel: SumKernel, log: Any, x: MotionSamples, y: MotionSamples, take: Any = np.asarray
) -> Any:
    """Kernel matrix (N n, M n).

    Args:
        xp: numpy or torch.
        kernel: of energies, linear and squared exponential parts.
        log: (count,), of numpy or torch.
        x: N samples of the rows.
        y: M samples of the columns.
        take: from an array of numpy to one like `log`.

    Raises:
        ParameterError: another part.
    """
    n, total, first = x.n, 0.0, 0
    rows, columns = take(x.rows).reshape(len(x), 1, n, -1), take(y.rows).reshape(1, len(y), n, -1)
    for part in kernel.parts:
        values = xp.exp(log[first : first + part.count])
        first += part.count
        if isinstance(part, LinearPart):
            total = total + (take(part.features(x)) * values) @ take(part.features(y)).T
            continue
        if isinstance(part, ChainPart):
            block = _chain(xp, n, values, rows, columns)
        elif isinstance(part, LagrangianPart):
            block = _lagrangian(xp, n, values, rows, columns)
        elif isinstance(part, SquaredExponentialPart):
            own = values.reshape(n, -1)
            step = (take(x.inputs)[:, None, None] - take(y.inputs)[None, :, None]) / own[:, 1:]
            alike = own[:, 0] * xp.exp(-(step * step).sum(-1))
            block = alike[..., None] * _eye(xp, alike)
        else:
            raise ParameterError(f"a kernel with {type(part).__name__}: expected one of energies on this device")
        total = total + xp.swapaxes(block, 1, 2).reshape(len(x) * n, len(y) * n)
    return total


class TensorLikelihood:
    """:func:`.regression.likelihood_gradient` on a device of torch."""

    def __init__(self, device: str) -> None:
        """Look for the device. ``device``: "cpu", "cuda", "cuda:1", .

        Raises:
            ParameterError: no torch, or no such device.
        """
        try:
            import torch
        except ImportError as error:
            raise ParameterError(f"device {device!r} needs torch: pip install 'safe_sysid[learn]'") from error
        self._torch = torch
        try:
            self._device = torch.zeros(1, dtype=torch.float64, device=device).device
        except (RuntimeError, AssertionError, TypeError) as error:
            reason = str(error).splitlines()[0]
            raise ParameterError(f"device {device!r}: {reason}: expected one that torch has here, as cpu") from error

    def take(self, a: FloatArray) -> Any:
        """An array on the device."""
        return self._torch.as_tensor(np.array(a), dtype=self._torch.float64, device=self._device)

    def gradient(
        self,
        kernel: SumKernel,
        log: FloatArray,
        log_noise: FloatArray,
        x: MotionSamples,
        y: FloatArray,
        jitters: Sequence[float] = JITTERS,
    ) -> tuple[float, FloatArray, FloatArray]:
        """See :func:`.regression.likelihood_gradient`.

        Args:
            kernel: of energies, linear and squared exponential parts.
            log: (count,).
            log_noise: (n,).
            x: N samples.
            y: (N, n).
            jitters: see :func:`.factor.cholesky`.

        Raises:
            NotPositiveDefiniteError: the covariance has no factor.
        """
        torch, z = self._torch, self.take(np.concatenate([log, log_noise])).requires_grad_()
        torque = self.take(y).reshape(-1, 1)
        c = kernel_matrix(torch, kernel, z[: len(log)], x, x, self.take)
        c = c + torch.diag(torch.exp(z[len(log) :]).repeat(len(x)))
        least = torch.diag(c.diagonal().mean().detach().repeat(len(c)))
        for share in jitters:
            factor, info = torch.linalg.cholesky_ex(c + share * least)
            if not int(info):
                break
        else:
            raise NotPositiveDefiniteError(f"a covariance of {len(c)} torques is not positive definite")
        white = torch.linalg.solve_triangular(factor, torque, upper=False)
        value = factor.diagonal().log().sum() + 0.5 * (white * white).sum()
        (by,) = torch.autograd.grad(value, z)
        found = by.cpu().numpy()
        return float(value.detach()), found[: len(log)], found[len(log) :]
