"""Kernels of torques as sums of parts: Lagrangian, linear in features, squared exponential.

A part adds its share to a kernel matrix whose rows and columns are ordered by sample, then joint, and pulls a
derivative by the matrix back to its parameters, which are given by their logarithms.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import ClassVar, Protocol

import numpy as np

from safe_sysid.core.arrays import FloatArray
from safe_sysid.learning.gaussian_process.chain_gradient import sum_chain_gradients
from safe_sysid.learning.gaussian_process.chain_kernel import fill_chain_energies, fill_chain_torques
from safe_sysid.learning.gaussian_process.lagrangian_gradient import sum_gradients
from safe_sysid.learning.gaussian_process.lagrangian_kernel import fill_energies, fill_torques
from safe_sysid.learning.gaussian_process.motions import MotionSamples, in_threads

__all__ = [
    "ChainPart",
    "EnergyPart",
    "KernelPart",
    "LagrangianPart",
    "LinearPart",
    "SquaredExponentialPart",
    "SumKernel",
    "friction_features",
    "lip_kernel",
]


_TAKEN_AWAY = 0.01  # of a joint's largest weight: training leaves out what few samples do not need


class KernelPart(Protocol):
    """A term of a kernel."""

    @property
    def count(self) -> int:
        """Parameters."""

    def start(self, x: MotionSamples) -> FloatArray:
        """(count,) logarithms to begin training with, given the samples."""

    def add(self, log: FloatArray, x: MotionSamples, y: MotionSamples | None, out: FloatArray) -> None:
        """Add the part's matrix.

        Args:
            log: (count,) logarithms of the parameters.
            x: N samples of the rows.
            y: M samples of the columns; None: those of the rows, and what lies above the diagonal need not be right.
            out: (N n, M n), added to.
        """

    def pull(self, log: FloatArray, x: MotionSamples, inverse: FloatArray, dual: FloatArray) -> FloatArray:
        """Derivative (count,) of ``(log det C + y^T C^-1 y) / 2`` by the logarithms.

        Args:
            log: (count,).
            x: N samples.
            inverse: (N n, N n) ``C^-1``; only what lies at and below the diagonal is right.
            dual: (N n,) ``C^-1 y``.
        """


class EnergyPart(KernelPart, Protocol):
    """A term whose torques are those of energies."""

    def energies(self, log: FloatArray, x: MotionSamples, y: MotionSamples) -> FloatArray:
        """Covariance (2, N, M n) of the kinetic and the potential energy at x with torques at y.

        ``log``: (count,); ``x``: N samples.
        """

    def energy_kernels(self, log: FloatArray, x: MotionSamples, y: MotionSamples) -> FloatArray:
        """Kernels (2, N, M) of the kinetic and the potential energy.

        ``log``: (count,); ``x``: N samples.
        """


def _position_factors(position: FloatArray, x: MotionSamples, y: MotionSamples) -> FloatArray:
    """(m, N, M) ``p(q, q')`` of the first m joints. ``position``: (m, 3); ``x``: N samples."""
    f, g = (np.einsum("rb,jb->brj", x.rows[:, k::6], y.rows[:, k::6])[: len(position)] for k in (0, 2))
    sigma, c, s = (position[:, k, None, None] for k in range(3))
    return np.asarray(sigma + c * f + s * g)


@dataclass(frozen=True)
class ChainPart:
    """Torques of the energies that a chain of n links can have: :mod:`.chain_kernel`."""

    n: int

    @property
    def count(self) -> int:
        """Of every joint weights of its velocity and of its link's energies, and twice three of positions."""
        return 9 * self.n

    def start(self, x: MotionSamples) -> FloatArray:
        """Weights one, of positions a half, so that ``p(q, q)`` of a joint that turns is one."""
        return np.repeat(np.log([1.0, 0.5]), [3 * self.n, 6 * self.n])

    def unpack(self, log: FloatArray) -> tuple[FloatArray, ...]:
        """Speeds (n,), links (n,), position and potential (n, 3), heights (n,) of :func:`.chain_kernel.torque_block`.

        ``log``: (count,).
        """
        speeds, links, heights, position, potential = np.split(np.exp(log), np.cumsum([1, 1, 1, 3]) * self.n)
        return speeds, links, position.reshape(self.n, 3), potential.reshape(self.n, 3), heights

    def widened(self, log: FloatArray) -> FloatArray:
        """With no weight of positions below a hundredth of its joint's largest: what training took away comes back.

        A kernel with larger weights is one with something added, so deviations only grow. ``log``: (count,).
        """
        wide = log.copy()
        weights = wide[3 * self.n :].reshape(-1, 3)
        np.maximum(weights, weights.max(1, keepdims=True) + np.log(_TAKEN_AWAY), out=weights)
        return wide

    def add(self, log: FloatArray, x: MotionSamples, y: MotionSamples | None, out: FloatArray) -> None:
        """See :class:`KernelPart`."""
        parameters, other = self.unpack(log), x if y is None else y

        def share(first: int, step: int) -> None:
            fill_chain_torques(first, step, y is None, x.rows, other.columns, *parameters, out)

        in_threads(share, len(x) * len(other))

    def energies(self, log: FloatArray, x: MotionSamples, y: MotionSamples) -> FloatArray:
        """See :class:`EnergyPart`."""
        parameters, out = self.unpack(log), np.empty((2, len(x), len(y) * self.n))
        in_threads(lambda first, step: fill_chain_energies(first, step, x.rows, y.columns, *parameters, out), out.size)
        return out

    def energy_kernels(self, log: FloatArray, x: MotionSamples, y: MotionSamples) -> FloatArray:
        """See :class:`EnergyPart`."""
        speeds, links, position, potential, heights = self.unpack(log)
        speed = np.einsum("rb,jb->brj", x.qd, y.qd)
        factors, lifts = (_position_factors(p, x, y) for p in (position, potential))
        h, height = np.zeros(speed.shape[1:]), np.ones(speed.shape[1:])
        out = np.zeros((2, *h.shape))
        for i in range(self.n):
            h = factors[i] * h + speeds[i] * speed[i]
            height = lifts[i] * height
            out += np.stack([links[i] * h * h, heights[i] * height])
        return out

    def pull(self, log: FloatArray, x: MotionSamples, inverse: FloatArray, dual: FloatArray) -> FloatArray:
        """See :class:`KernelPart`."""
        parameters = self.unpack(log)
        found: list[FloatArray] = []

        def share(first: int, step: int) -> None:
            out = np.zeros((self.n, 9))
            sum_chain_gradients(first, step, x.rows, x.columns, *parameters, inverse, dual, out)
            found.append(out)

        in_threads(share, 8 * len(x) ** 2)
        by = sum(found[1:], found[0])
        weights = (parameters[2] * by[:, 3:6]).ravel(), (parameters[3] * by[:, 6:]).ravel()
        return np.concatenate([by[:, 0], by[:, 1], by[:, 2], *weights])


@dataclass(frozen=True)
class LagrangianPart:
    """Torques of polynomial energies as [LIP] has them: :mod:`.lagrangian_kernel`; n joints."""

    n: int

    @property
    def count(self) -> int:
        """A weight and three of positions for every link and joint before it, three of the potential by joint."""
        return 2 * self.n * (self.n + 1) + 3 * self.n

    def start(self, x: MotionSamples) -> FloatArray:
        """Velocities have weight one, positions a half, so that every ``p(q, q)`` of a joint that turns is one."""
        return np.concatenate([np.zeros(self.n * (self.n + 1) // 2), np.full(self.count, np.log(0.5))])[: self.count]

    def unpack(self, log: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Weights (n, n), position (n, n, 3), potential (n, 3) of :func:`.lagrangian_kernel.torque_block`.

        ``log``: (count,).
        """
        n, value = self.n, np.exp(log)
        lower = np.tril_indices(n)
        size = len(lower[0])
        weights, position = np.zeros((n, n)), np.zeros((n, n, 3))
        weights[lower], position[lower] = value[:size], value[size : 4 * size].reshape(size, 3)
        return weights, position, value[4 * size :].reshape(n, 3).copy()

    def add(self, log: FloatArray, x: MotionSamples, y: MotionSamples | None, out: FloatArray) -> None:
        """See :class:`KernelPart`."""
        parameters, other = self.unpack(log), x if y is None else y

        def share(first: int, step: int) -> None:
            fill_torques(first, step, y is None, x.rows, other.columns, *parameters, out)

        in_threads(share, len(x) * len(other))

    def energies(self, log: FloatArray, x: MotionSamples, y: MotionSamples) -> FloatArray:
        """See :class:`EnergyPart`."""
        parameters, out = self.unpack(log), np.empty((2, len(x), len(y) * self.n))
        in_threads(lambda first, step: fill_energies(first, step, x.rows, y.columns, *parameters, out), out.size)
        return out

    def energy_kernels(self, log: FloatArray, x: MotionSamples, y: MotionSamples) -> FloatArray:
        """See :class:`EnergyPart`; eqs. (25) and (21) of [LIP]."""
        weights, position, potential = self.unpack(log)
        speed = np.einsum("rb,jb->brj", x.qd, y.qd)
        kinetic = sum(
            np.einsum("b,brj->rj", weights[i, : i + 1], speed[: i + 1]) ** 2
            * np.prod(_position_factors(position[i, : i + 1], x, y), 0) ** 2
            for i in range(self.n)
        )
        return np.stack([kinetic, np.prod(_position_factors(potential, x, y), 0)])

    def pull(self, log: FloatArray, x: MotionSamples, inverse: FloatArray, dual: FloatArray) -> FloatArray:
        """See :class:`KernelPart`."""
        parameters = self.unpack(log)
        found: list[tuple[FloatArray, ...]] = []

        def share(first: int, step: int) -> None:
            sums = tuple(np.zeros(p.shape) for p in parameters)
            sum_gradients(first, step, x.rows, *parameters, inverse, dual, *sums)
            found.append(sums)

        in_threads(share, 8 * len(x) ** 2)
        weights, position, potential = (
            p * sum(parts) for p, parts in zip(parameters, zip(*found, strict=True), strict=True)
        )
        lower = np.tril_indices(self.n)
        return np.concatenate([weights[lower], position[lower].ravel(), potential.ravel()])


def friction_features(x: MotionSamples) -> FloatArray:
    """Features (N n, 2 n) of viscous and Coulomb friction of every joint, eq. (34) of [LIP]. ``x``: N samples."""
    out = np.zeros((len(x), x.n, 2 * x.n))
    joint = np.arange(x.n)
    out[:, joint, 2 * joint] = x.qd
    out[:, joint, 2 * joint + 1] = x.direction
    return out.reshape(-1, 2 * x.n)


@dataclass(frozen=True)
class LinearPart:
    """``Phi(x) diag(gamma) Phi(x')^T``: friction, eq. (34) of [LIP], or a rigid-body regressor, eq. (32)."""

    features: Callable[[MotionSamples], FloatArray]  #: (N n, count) of N samples
    count: int

    def start(self, x: MotionSamples) -> FloatArray:
        """All variances one."""
        return np.zeros(self.count)

    def add(self, log: FloatArray, x: MotionSamples, y: MotionSamples | None, out: FloatArray) -> None:
        """See :class:`KernelPart`."""
        phi = self.features(x)
        out += (phi * np.exp(log)) @ (phi if y is None else self.features(y)).T

    def pull(self, log: FloatArray, x: MotionSamples, inverse: FloatArray, dual: FloatArray) -> FloatArray:
        """See :class:`KernelPart`."""
        phi = self.features(x)
        below = np.tril(inverse, -1) @ phi
        quadratic = np.einsum("rk,rk->k", phi, 2.0 * below + np.diag(inverse)[:, None] * phi)
        return 0.5 * np.exp(log) * (quadratic - (phi.T @ dual) ** 2)


@dataclass(frozen=True)
class SquaredExponentialPart:
    """For each of n joints ``lambda exp(-sum_k (x_k - x'_k)^2 / l_k^2)`` of (q, qd, qdd), eq. (4) of [LIP]."""

    n: int
    by_joint: ClassVar[bool] = True

    @property
    def count(self) -> int:
        """A variance and 3 n lengths for each joint."""
        return self.n * (1 + 3 * self.n)

    def start(self, x: MotionSamples) -> FloatArray:
        """Variance one; lengths sqrt(3 n) times the deviation of their column, one where that is constant."""
        spread = np.std(x.inputs, axis=0)
        lengths = np.where(spread > 0.0, spread * np.sqrt(3.0 * self.n), 1.0)
        return np.tile(np.concatenate([[0.0], np.log(lengths)]), self.n)

    def matrices(self, log: FloatArray, x: MotionSamples, y: MotionSamples) -> FloatArray:
        """(n, N, M) of each joint. ``log``: (count,); ``x``: N samples."""
        out = np.empty((self.n, len(x), len(y)))
        for j, part in enumerate(log.reshape(self.n, -1)):
            a, b = x.inputs * np.exp(-part[1:]), y.inputs * np.exp(-part[1:])
            distance = np.sum(a * a, 1)[:, None] + np.sum(b * b, 1) - 2.0 * a @ b.T
            out[j] = np.exp(part[0] - np.maximum(distance, 0.0))
        return out

    def add(self, log: FloatArray, x: MotionSamples, y: MotionSamples | None, out: FloatArray) -> None:
        """See :class:`KernelPart`."""
        for j, block in enumerate(self.matrices(log, x, x if y is None else y)):
            out[j :: self.n, j :: self.n] += block

    def pull(self, log: FloatArray, x: MotionSamples, inverse: FloatArray, dual: FloatArray) -> FloatArray:
        """See :class:`KernelPart`."""
        result = []
        for j, (part, block) in enumerate(zip(log.reshape(self.n, -1), self.matrices(log, x, x), strict=True)):
            own = np.tril(inverse[j :: self.n, j :: self.n])
            own = own + np.tril(own, -1).T - np.outer(dual[j :: self.n], dual[j :: self.n])
            weight = 0.5 * own * block
            a = x.inputs * np.exp(-part[1:])
            squares = 2.0 * (weight.sum(1) @ (a * a) - np.einsum("rk,rk->k", a, weight @ a))
            result.append(np.concatenate([[weight.sum()], 2.0 * squares]))
        return np.concatenate(result)


@dataclass(frozen=True)
class SumKernel:
    """A sum of parts, their parameters one after the other."""

    parts: tuple[KernelPart, ...]

    @property
    def count(self) -> int:
        """Parameters of all parts."""
        return sum(part.count for part in self.parts)

    @property
    def by_joint(self) -> bool:
        """Whether torques of different joints have no covariance: all parts say so."""
        return all(getattr(part, "by_joint", False) for part in self.parts)

    def split(self, log: FloatArray) -> list[FloatArray]:
        """Each part's parameters. ``log``: (count,)."""
        return np.split(log, np.cumsum([part.count for part in self.parts])[:-1])

    def start(self, x: MotionSamples) -> FloatArray:
        """See :class:`KernelPart`."""
        return np.concatenate([part.start(x) for part in self.parts])

    def matrix(self, log: FloatArray, x: MotionSamples, y: MotionSamples | None = None) -> FloatArray:
        """Kernel matrix (N n, M n); without y (N n, N n), right at and below the diagonal.

        ``log``: (count,); ``x``: N samples of the rows.
        """
        out = np.zeros((len(x) * x.n, len(x if y is None else y) * x.n))
        for part, own in zip(self.parts, self.split(log), strict=True):
            part.add(own, x, y, out)
        return out

    def pull(self, log: FloatArray, x: MotionSamples, inverse: FloatArray, dual: FloatArray) -> FloatArray:
        """See :class:`KernelPart`."""
        return np.concatenate(
            [part.pull(own, x, inverse, dual) for part, own in zip(self.parts, self.split(log), strict=True)]
        )


def lip_kernel(
    n: int,
    *,
    friction: bool = False,
    residual: bool = False,
    extra: Sequence[KernelPart] = (),
    energies: Callable[[int], EnergyPart] = ChainPart,
) -> SumKernel:
    """A kernel that knows Lagrange, eq. (35) of [LIP].

    Args:
        friction: with viscous and Coulomb friction of each joint, eq. (34).
        residual: with a squared exponential of each joint, eq. (34).
        extra: further parts, as a :class:`LinearPart` of the rigid-body regressor.
        energies: of a chain; :class:`LagrangianPart` for those of [LIP], eqs. (21), (24) and (25).
    """
    parts: list[KernelPart] = [energies(n)]
    if friction:
        parts.append(LinearPart(friction_features, 2 * n))
    if residual:
        parts.append(SquaredExponentialPart(n))
    return SumKernel((*parts, *extra))
