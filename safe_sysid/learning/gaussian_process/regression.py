"""Regression: torques, energies, mass matrix and gravity of an arm from measured torques, and how sure they are."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import ArrayLike
from scipy.linalg import solve_triangular

from safe_sysid.core.arrays import FloatArray, IntArray
from safe_sysid.errors import ParameterError
from safe_sysid.learning.gaussian_process import factor as factors
from safe_sysid.learning.gaussian_process.kernels import (
    ChainPart,
    EnergyPart,
    LagrangianPart,
    LinearPart,
    SumKernel,
    friction_features,
)
from safe_sysid.learning.gaussian_process.motions import MotionSamples

__all__ = ["Energies", "TorqueProcess", "Units", "check_size", "informative", "likelihood_gradient"]


_CHUNK = 64  # samples that are predicted at once
_MOST = 12.0  # GiB of a covariance
_NORMAL_95 = 1.96  # deviations


@dataclass(frozen=True)
class Units:
    """Units inside of a process. Lagrange's equations hold in any unit of torque and time, one for all joints."""

    torque: float = 1.0  #: N m (of joints that turn; N of those that slide)
    time: float = 1.0  #: s

    @classmethod
    def of(cls, x: MotionSamples, torque: FloatArray) -> Units:
        """Torques and velocities have a mean square of one; one where all are zero.

        ``x``: N samples; ``torque``: (N, n).
        """
        sizes = [float(np.sqrt(np.mean(a**2))) for a in (torque, x.qd)]
        return cls(sizes[0] or 1.0, 1.0 / (sizes[1] or 1.0))

    def inside(self, x: MotionSamples) -> MotionSamples:
        """Samples in these units. ``x``: N samples in SI units."""
        return MotionSamples(x.q, x.qd * self.time, x.qdd * self.time**2, x.slides, x.direction)


@dataclass(frozen=True)
class Energies:
    """Kinetic and potential energy at N samples, J. The potential's origin is not known from torques."""

    mean: FloatArray  #: (2, N)
    deviation: FloatArray  #: (2, N)


def check_size(rows: int, columns: int) -> None:
    """Refuse what no memory holds. ``rows``: torques, samples times joints.

    Raises:
        ParameterError: a matrix of them is too large.
    """
    size = 8.0 * rows * columns / 2**30
    if size > _MOST:
        raise ParameterError(
            f"{rows} and {columns} torques of all samples and joints: a covariance of {size:.3g} GiB: expected at most "
            f"{_MOST:g}; take fewer samples, evenly spaced or those that `informative` chooses from some thousands"
        )


def _covariance(kernel: SumKernel, log: FloatArray, log_noise: FloatArray, x: MotionSamples) -> FloatArray:
    c = kernel.matrix(log, x)
    np.einsum("ii->i", c)[:] += np.tile(np.exp(log_noise), len(x))
    return c


def likelihood_gradient(
    kernel: SumKernel,
    log: FloatArray,
    log_noise: FloatArray,
    x: MotionSamples,
    y: FloatArray,
    jitters: Sequence[float] = factors.JITTERS,
) -> tuple[float, FloatArray, FloatArray]:
    """Negative logarithm of the marginal likelihood ``(log det C + y^T C^-1 y) / 2`` and its derivatives.

    Returns the value and derivatives by `log` and by `log_noise`.

    Args:
        log: (count,) logarithms of its parameters.
        log_noise: (n,) logarithms of the variances of the noise.
        x: N samples.
        y: (N, n) torques.
        jitters: see :func:`.factor.cholesky`; the likelihood is that of a covariance with the jitter.

    Raises:
        NotPositiveDefiniteError: the covariance has no factor.
    """
    flat, value = np.ascontiguousarray(y).ravel(), 0.0
    if not kernel.by_joint:
        c, _ = factors.cholesky(lambda: _covariance(kernel, log, log_noise, x), jitters)
        dual = factors.solve(c, flat)
        value += float(np.sum(np.log(np.diag(c))))
        inverse = factors.invert(c)
    else:  # n small factors
        inverse, dual = _covariance(kernel, log, log_noise, x), np.empty(flat.size)
        for j in range(x.n):
            own = inverse[j :: x.n, j :: x.n]
            c, _ = factors.cholesky(own.copy, jitters)
            dual[j :: x.n] = factors.solve(c, flat[j :: x.n])
            value += float(np.sum(np.log(np.diag(c))))
            own[:] = factors.invert(c)
    value += 0.5 * float(flat @ dual)
    by_diagonal = 0.5 * (np.diag(inverse) - dual**2).reshape(len(x), x.n)
    return value, kernel.pull(log, x, inverse, dual), np.exp(log_noise) * by_diagonal.sum(0)


class TorqueProcess:
    """A Gaussian process of torques with its data; everything that goes in and comes out is in SI units."""

    def __init__(
        self,
        kernel: SumKernel,
        log: ArrayLike,
        log_noise: ArrayLike,
        x: MotionSamples,
        torque: ArrayLike,
        units: Units | None = None,
        _factor: FloatArray | None = None,
    ) -> None:
        """Condition the process on data.

        Args:
            log: (count,) logarithms of its parameters, in `units`.
            log_noise: (n,) logarithms of the variances of the noise, in `units`.
            x: N samples.
            torque: (N, n) N m or N.
            units: of the parameters; None: SI.

        Raises:
            ParameterError: shapes that do not fit, no sample, or numbers that are not finite.
            NotPositiveDefiniteError: the covariance has no factor.
        """
        units = Units() if units is None else units
        log, log_noise, torque = (np.array(a, float) for a in (log, log_noise, torque))
        for name, a, shape in (
            ("parameters", log, (kernel.count,)),
            ("noise", log_noise, (x.n,)),
            ("torque", torque, (len(x), x.n)),
        ):
            if a.shape != shape:
                raise ParameterError(f"{name}: shape {a.shape}, expected {shape}")
            if not np.all(np.isfinite(a)):
                where = tuple(int(k) for k in np.argwhere(~np.isfinite(a))[0])
                raise ParameterError(f"{name}{list(where)} = {a[where]}: expected a finite number")
        if not len(x):
            raise ParameterError("no sample: expected at least one")
        check_size(torque.size, torque.size)
        self.kernel, self.log, self.log_noise, self.units = kernel, log, log_noise, units
        self.x, self.torque = x, torque
        self._inside = units.inside(x)
        #: Added to the diagonal of the covariance, as a share of the square of `units.torque`.
        self.jitter = 0.0
        if _factor is None:
            _factor, self.jitter = factors.cholesky(lambda: _covariance(kernel, log, log_noise, self._inside))
        self._factor = _factor
        self.dual = factors.solve(_factor, torque.ravel() / units.torque)

    @property
    def noise(self) -> FloatArray:
        """(n,) deviation of the noise that was found, N m or N; jitter is noise, too."""
        return self.units.torque * np.sqrt(np.exp(self.log_noise) + self.jitter)

    def predict(self, x: MotionSamples) -> FloatArray:
        """Torque (M, n) that is expected."""
        inside, out = self.units.inside(x), np.empty((len(x), x.n))
        for start in range(0, len(x), _CHUNK):
            part = slice(start, start + _CHUNK)
            out[part] = (self.kernel.matrix(self.log, inside[part], self._inside) @ self.dual).reshape(-1, x.n)
        return self.units.torque * out

    def covariance(self, x: MotionSamples) -> FloatArray:
        """Covariance (M, n, n) of the torque at each sample, noise not included."""
        inside, out, n = self.units.inside(x), np.empty((len(x), x.n, x.n)), x.n
        for start in range(0, len(x), _CHUNK):
            some = inside[start : start + _CHUNK]
            cross = self.kernel.matrix(self.log, self._inside, some)
            v = solve_triangular(self._factor, cross, lower=True, check_finite=False).reshape(-1, len(some), n)
            for k in range(0, len(some), 8):
                few = some[k : k + 8]
                prior = np.tril(self.kernel.matrix(self.log, few))
                prior = (prior + np.tril(prior, -1).T).reshape(len(few), n, len(few), n)
                explained = np.einsum("mra,mrb->rab", v[:, k : k + 8], v[:, k : k + 8])
                out[start + k : start + k + len(few)] = np.einsum("rarb->rab", prior) - explained
        return self.units.torque**2 * out

    def within_95(self, x: MotionSamples, measured: FloatArray) -> FloatArray:
        """(n,) share of measured torques (M, n) that are in the 95 % interval of what is predicted, noise included."""
        deviation = np.sqrt(self._variance_of_measured(x))
        return np.asarray(np.mean(np.abs(self.predict(x) - measured) <= _NORMAL_95 * deviation, axis=0))

    def log_density(self, x: MotionSamples, measured: FloatArray) -> float:
        """Mean over samples and joints of the logarithm of a measured torque's density; to compare processes.

        ``measured``: (M, n) N m or N, of samples that no process has seen.
        """
        variance = self._variance_of_measured(x)
        off = (self.predict(x) - measured) ** 2 / variance
        return float(np.mean(-0.5 * (off + np.log(2.0 * np.pi * variance))))

    def _variance_of_measured(self, x: MotionSamples) -> FloatArray:
        """(M, n) of each torque by itself, noise included."""
        return np.asarray(np.einsum("rjj->rj", self.covariance(x)) + self.noise**2)

    @cached_property
    def _lagrangian(self) -> tuple[EnergyPart, FloatArray]:
        for part, own in zip(self.kernel.parts, self.kernel.split(self.log), strict=True):
            if isinstance(part, (ChainPart, LagrangianPart)):
                return part, own
        raise ParameterError("the kernel has no energies: expected one with a Lagrangian part")

    def energies(self, x: MotionSamples) -> Energies:
        """Kinetic and potential energy, eqs. (28) and (29) of [LIP], without labels for them.

        ``x``: M samples; accelerations do not matter.

        Raises:
            ParameterError: the kernel knows no energies.
        """
        part, own = self._lagrangian
        inside = self.units.inside(x)
        mean, variance = np.empty((2, len(x))), np.empty((2, len(x)))
        for start in range(0, len(x), _CHUNK):
            some = inside[start : start + _CHUNK]
            here = slice(start, start + len(some))
            cross = part.energies(own, some, self._inside)
            mean[:, here] = cross @ self.dual
            prior = np.einsum("err->er", part.energy_kernels(own, some, some))
            for e in range(2):
                v = solve_triangular(self._factor, cross[e].T, lower=True, check_finite=False)
                variance[e, here] = prior[e] - np.sum(v * v, axis=0)
        scale = self.units.torque
        return Energies(scale * mean, scale * np.sqrt(np.maximum(variance, 0.0)))

    def _lagrangian_torque(self, x: MotionSamples) -> FloatArray:
        """(M, n) of the Lagrangian part alone: neither friction nor residual."""
        part, own = self._lagrangian
        inside, torque = self.units.inside(x), np.zeros((len(x) * x.n, len(self.dual)))
        part.add(own, inside, self._inside, torque)
        return self.units.torque * (torque @ self.dual).reshape(-1, x.n)

    def gravity(self, q: ArrayLike) -> FloatArray:
        """Gravity's torque (M, n) at positions. ``q``: (M, n) rad or m."""
        q = np.atleast_2d(np.asarray(q, float))
        still = np.zeros(q.shape)
        return self._lagrangian_torque(MotionSamples(q, still, still, self.x.slides))

    def mass_matrix(self, q: ArrayLike) -> FloatArray:
        """Mass matrix (n, n) at a position. It is symmetric, but nothing makes it positive definite: test before use.

        ``q``: (n,) rad or m.
        """
        n = self.x.n
        accelerations = np.vstack([np.zeros(n), np.eye(n)]) / self.units.time**2
        x = MotionSamples(np.tile(np.asarray(q, float), (n + 1, 1)), np.zeros((n + 1, n)), accelerations, self.x.slides)
        torque = self._lagrangian_torque(x)
        mass = (torque[1:] - torque[0]) * self.units.time**2
        return 0.5 * (mass + mass.T)

    def friction(self) -> tuple[FloatArray, FloatArray]:
        """Viscous (N m s/rad) and Coulomb friction (N m) of each joint: mean and deviation, each (n, 2).

        Raises:
            ParameterError: the kernel has no friction.
        """
        for part, own in zip(self.kernel.parts, self.kernel.split(self.log), strict=True):
            if isinstance(part, LinearPart) and part.features is friction_features:
                variance, phi = np.exp(own), part.features(self._inside)
                explained = solve_triangular(self._factor, phi, lower=True, check_finite=False) * variance
                left = variance - np.sum(explained**2, axis=0)
                scale = self.units.torque * np.array([self.units.time, 1.0])
                mean = (variance * (phi.T @ self.dual)).reshape(-1, 2)
                return mean * scale, np.sqrt(np.maximum(left, 0.0)).reshape(-1, 2) * scale
        raise ParameterError("the kernel has no friction: expected one with friction")

    def added(self, x: MotionSamples, torque: ArrayLike) -> TorqueProcess:
        """The process with further samples; the factor grows, nothing is factorised anew. ``torque``: (M, n) N m or N.

        Raises:
            NotPositiveDefiniteError: the samples follow from what was there.
        """
        inside = self.units.inside(x)
        cross = self.kernel.matrix(self.log, inside, self._inside)
        own = _covariance(self.kernel, self.log, self.log_noise, inside)
        grown = factors.append(self._factor, cross, own)
        q, qd, qdd, direction = (
            np.vstack([getattr(some, name) for some in (self.x, x)]) for name in ("q", "qd", "qdd", "direction")
        )
        every = MotionSamples(q, qd, qdd, x.slides, direction)
        return self._with(every, np.vstack([self.torque, np.atleast_2d(torque)]), grown)

    def without(self, sample: int) -> TorqueProcess:
        """The process without one of its samples. ``sample``: 0..N - 1.

        Raises:
            ParameterError: no such sample, or the last one.
        """
        if not 0 <= sample < len(self.x) or len(self.x) == 1:
            raise ParameterError(f"sample {sample} of {len(self.x)}: expected one of them, and one that stays")
        n, kept = self.x.n, np.r_[0:sample, sample + 1 : len(self.x)]
        smaller = factors.remove(self._factor, n * sample, n * sample + n)
        return self._with(self.x[kept], self.torque[kept], smaller)

    def _with(self, x: MotionSamples, torque: FloatArray, factor: FloatArray) -> TorqueProcess:
        made = TorqueProcess(self.kernel, self.log, self.log_noise, x, torque, self.units, factor)
        made.jitter = self.jitter
        return made


def informative(
    kernel: SumKernel, log: FloatArray, log_noise: FloatArray, x: MotionSamples, most: int, units: Units | None = None
) -> IntArray:
    """Samples worth keeping where not all can be: each the one whose torque is least known from those before it.

    Returns (min(most, N),) indices, the most informative first.

    Args:
        log: (count,) logarithms of its parameters, in `units`.
        log_noise: (n,) logarithms of the variances of the noise; what is not known counts relative to it.
        x: N samples.
        units: of the parameters; None: SI.

    Raises:
        ParameterError: so many samples that no memory holds what they say of each other.
    """
    inside, n = (Units() if units is None else units).inside(x), x.n
    scale = np.exp(-0.5 * log_noise)
    chosen: list[int] = []
    most = min(most, len(x))
    check_size(len(x) * n, most * n)
    known = np.empty((len(x) * n, most * n))
    left = np.concatenate(
        [np.diag(kernel.matrix(log, inside[k : k + 16])).reshape(-1, n) * scale**2 for k in range(0, len(x), 16)]
    )
    while len(chosen) < most:
        score = left.sum(1)
        score[chosen] = -np.inf
        best, done = int(np.argmax(score)), len(chosen) * n
        rows = slice(best * n, best * n + n)
        cross = kernel.matrix(log, inside, inside[[best]]).reshape(len(x), n, n) * np.outer(scale, scale)
        cross -= (known[:, :done] @ known[rows, :done].T).reshape(len(x), n, n)
        corner = np.linalg.cholesky(cross[best] + np.eye(n))
        step = solve_triangular(corner, cross.reshape(-1, n).T, lower=True, check_finite=False).T
        left -= np.sum(step.reshape(len(x), n, n) ** 2, axis=2)
        known[:, done : done + n] = step
        chosen.append(best)
    return np.array(chosen, np.int64)
