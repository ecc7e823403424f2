r"""Finite Fourier series as joint trajectories, from rest to rest in one period [Swevers1997].

``q_j(t) = start_j + sum_l a_jl sin(l w t) / (l w) + b_jl (1 - cos(l w t)) / (l w)``, ``w = 2 pi / period``. Velocity at
both ends is ``sum_l a_jl``, acceleration ``w sum_l l b_jl``; both are zero, so of 2 L coefficients 2 L - 2 are free.
The arm ends where it began.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import ArrayLike

from safe_sysid.core.arrays import FloatArray
from safe_sysid.errors import PlanError
from safe_sysid.robot.parameters import frozen_array
from safe_sysid.trajectories.quintic import QuinticTrajectory

__all__ = ["FourierFamily", "FourierTrajectory"]

#: Room for rounding of a series' value, per its sum of magnitudes: arguments below 2 pi L, L up to a hundred, a sine's
#: and a cosine's last digits, and a sum of 2 L terms.
_ROUNDING = 1e-12
#: Sum of coefficients that counts as rest, per their largest.
_REST = 1e-9
#: First cells of a range search, and halvings after which it ends.
_CELLS, _HALVINGS = 64, 30
#: Width (share of the magnitude) at which a range counts as found.
_WIDTH = 1e-9


def _waves(times: FloatArray, period: float, harmonics: int) -> tuple[FloatArray, FloatArray]:
    """Derivatives 0 to 3 of the sine terms and of the cosine terms, each (4, N, L), per unit of a and b."""
    rate = np.asarray(2.0 * math.pi / period * np.arange(1, harmonics + 1), float)
    angle = np.outer(times, rate)
    sine, cosine = np.sin(angle), np.cos(angle)
    return (
        np.stack([sine / rate, cosine, -rate * sine, -(rate**2) * cosine]),
        np.stack([(1.0 - cosine) / rate, sine, rate * cosine, -(rate**2) * sine]),
    )


@dataclass(frozen=True, eq=False)
class FourierTrajectory:
    """One period of a Fourier series per joint; rests before and after it."""

    start: FloatArray  #: (n,) rad, where it begins and ends
    period: float  #: s
    sine: FloatArray  #: (n, L) a, rad/s; every row sums to zero
    cosine: FloatArray  #: (n, L) b, rad/s; every row times 1 .. L sums to zero.

    def __post_init__(self) -> None:
        """Validate and freeze.

        Raises:
            PlanError: shapes, a period that is not positive, or ends that are not at rest.
        """
        start = frozen_array(self.start, None, "Fourier start")
        sine, cosine = (
            frozen_array(x, None, f"Fourier {name}") for x, name in ((self.sine, "sine"), (self.cosine, "cosine"))
        )
        if start.ndim != 1 or sine.ndim != 2 or sine.shape != cosine.shape or len(sine) != len(start):
            raise PlanError(
                f"Fourier series: start {start.shape}, a {sine.shape}, b {cosine.shape}: expected (n,), (n, L)"
            )
        if not (np.isfinite(self.period) and self.period > 0.0):
            raise PlanError(f"Fourier period = {self.period!r} s: expected a positive time")
        harmonic = np.arange(1, sine.shape[1] + 1)
        for name, end, size in (
            ("velocity", sine.sum(axis=1), np.abs(sine).sum(axis=1)),
            ("acceleration", cosine @ harmonic, np.abs(cosine) @ harmonic),
        ):
            joint = int(np.argmax(np.abs(end) - _REST * size))
            if np.abs(end[joint]) > _REST * size[joint]:
                raise PlanError(f"Fourier series of joint {joint + 1}: {name} at its ends: expected rest")
        for key, value in (("start", start), ("sine", sine), ("cosine", cosine)):
            object.__setattr__(self, key, value)

    @property
    def n(self) -> int:
        """Number of joints."""
        return len(self.start)

    @property
    def harmonics(self) -> int:
        """Number L of harmonics."""
        return int(self.sine.shape[1])

    @property
    def duration(self) -> float:
        """One period, s."""
        return self.period

    def states(self, t: ArrayLike) -> FloatArray:
        """(N, 4, n) position, velocity, acceleration, jerk at times (N,), s; rest outside of [0, period]."""
        times = np.atleast_1d(np.asarray(t, float))
        a, b = _waves(times, self.period, self.harmonics)
        out = a @ self.sine.T + b @ self.cosine.T
        out[0] += self.start
        still = (times <= 0.0) | (times >= self.period)
        out[0, still], out[1:, still] = self.start, 0.0
        return np.moveaxis(out, 0, 1)

    def state(self, t: float) -> FloatArray:
        """(4, n) at one time; as a quintic's, to be tracked by a controller."""
        return np.asarray(self.states([t])[0])

    def magnitude(self, order: int) -> FloatArray:
        """(n,) bound of the order-th derivative's magnitude (order 0: of the way from the start), by all terms' sum."""
        rate = 2.0 * math.pi / self.period * np.arange(1, self.harmonics + 1)
        # A cosine term of the position is 1 - cos.
        share = np.abs(self.sine) + (2.0 if order == 0 else 1.0) * np.abs(self.cosine)
        return np.asarray(share @ rate ** (order - 1.0))

    def ranges(self, order: int) -> FloatArray:
        """(n, 2) bounds of the order-th derivative over all times, order 0 to 3: its range, and at most 1e-9 more.

        Where a periodic function is largest its slope is zero; so the middle of a cell of half width h that holds this
        point has at least that value less ``h^2 / 2`` times the largest second derivative, which the sum of all terms'
        magnitudes bounds. Cells that may hold it are halved.

        Raises:
            PlanError: another order.
        """
        if order not in range(4):
            raise PlanError(f"order = {order!r}: expected a derivative from 0 to 3")
        bend, size = self.magnitude(order + 2), self.magnitude(order)
        out = np.empty((self.n, 2))
        for j in range(self.n):
            room = _ROUNDING * (size[j] + self.magnitude(order + 1)[j] * self.period / _CELLS)
            for side, sign in ((0, -1.0), (1, 1.0)):
                out[j, side] = sign * self._largest(j, order, sign, float(bend[j]), float(size[j]), room)
        if order == 0:
            out += self.start[:, None]
            # A sum of floats is rounded once more.
            out[:, 0], out[:, 1] = np.nextafter(out[:, 0], -np.inf), np.nextafter(out[:, 1], np.inf)
        return out

    def _largest(self, j: int, order: int, sign: float, bend: float, size: float, room: float) -> float:
        """Upper bound of ``sign`` times one joint's derivative."""
        half = 0.5 * self.period / _CELLS
        middle: FloatArray = (2.0 * np.arange(_CELLS, dtype=np.float64) + 1.0) * half
        # Both ends are at rest; a period's jerk and what leads to rest are inside.
        attained = 0.0 if order < 3 else -np.inf
        for _ in range(_HALVINGS):
            value = sign * self._derivative(j, order, middle)
            top = value + 0.5 * bend * half * half
            attained = max(attained, float(value.max()))
            alive = top > attained + _WIDTH * size
            if not alive.any():
                break
            half *= 0.5
            middle = np.concatenate([middle[alive] - half, middle[alive] + half])
        else:
            return float(max(top.max(), attained)) + room
        return attained + _WIDTH * size + room

    def _derivative(self, j: int, order: int, times: FloatArray) -> FloatArray:
        """One joint's derivative of any order (order 0: less its start) at times inside the period."""
        rate = 2.0 * math.pi / self.period * np.arange(1, self.harmonics + 1)
        angle = np.outer(times, rate) + 0.5 * math.pi * order
        wave = np.sin(angle) @ (self.sine[j] * rate ** (order - 1.0))
        wave -= np.cos(angle) @ (self.cosine[j] * rate ** (order - 1.0))
        return np.asarray(wave + (np.sum(self.cosine[j] / rate) if order == 0 else 0.0))

    def quintic(self, pieces: int = 0) -> QuinticTrajectory:
        """Quintics through states of the series: what can be certified, and *is* what is tracked.

        Args:
            pieces: of equal length; 0: sixteen per period of the highest harmonic, which differ from the series by
                less than 1e-7 of its amplitude (:meth:`quintic_error`).
        """
        count = 16 * self.harmonics if pieces == 0 else pieces
        times = np.linspace(0.0, self.period, count + 1)
        knots = self.states(times)[:, :3]
        return QuinticTrajectory(times, knots)

    def quintic_error(self, pieces: int = 0) -> FloatArray:
        """(n,) bound of the distance of :meth:`quintic` from the series, rad: ``max |q^(6)| h^6 / (6! 2^6)``."""
        count = 16 * self.harmonics if pieces == 0 else pieces
        return np.asarray(self.magnitude(6) * (self.period / count) ** 6 / (math.factorial(6) * 2.0**6))


@dataclass(frozen=True, eq=False)
class FourierFamily:
    """All series of one start, period and number of harmonics; x (n, m), m = 2 L - 2, selects one, in rad/s."""

    start: FloatArray  #: (n,) rad
    period: float  #: s
    harmonics: int = 5  #: L >= 2
    #: (L, L - 1) and ``cosine`` (L, L - 1): columns of coefficients that leave the ends at rest
    sine: FloatArray = field(init=False, repr=False)
    cosine: FloatArray = field(init=False, repr=False)

    def __post_init__(self) -> None:
        """Validate; a basis of the vectors that sum to zero (Helmert's).

        Raises:
            PlanError: a period that is not positive, fewer than two harmonics.
        """
        start = frozen_array(self.start, None, "Fourier start")
        if start.ndim != 1 or not (np.isfinite(self.period) and self.period > 0.0):
            raise PlanError(f"Fourier series: start {start.shape}, period {self.period!r} s: expected (n,), positive")
        size = self.harmonics
        if not 2 <= size <= 100:
            raise PlanError(f"harmonics = {size!r}: expected 2 to 100")
        helmert = np.zeros((size, size - 1))
        for k in range(1, size):
            helmert[:k, k - 1], helmert[k, k - 1] = 1.0, -k
            helmert[:, k - 1] /= math.sqrt(k * (k + 1.0))
        object.__setattr__(self, "start", start)
        object.__setattr__(self, "sine", helmert)
        object.__setattr__(self, "cosine", helmert / np.arange(1, size + 1)[:, None])
        self.sine.setflags(write=False)
        self.cosine.setflags(write=False)

    @property
    def n(self) -> int:
        """Number of joints."""
        return len(self.start)

    @property
    def free(self) -> int:
        """Number m of free numbers per joint."""
        return 2 * (self.harmonics - 1)

    def trajectory(self, x: ArrayLike) -> FourierTrajectory:
        """The series that x (n, m) selects."""
        a, b = np.split(np.asarray(x, float).reshape(self.n, self.free), 2, axis=1)
        return FourierTrajectory(self.start, self.period, a @ self.sine.T, b @ self.cosine.T)

    def basis(self, times: ArrayLike) -> FloatArray:
        """(4, N, m): what each free number adds to position, velocity, acceleration, jerk at times in the period."""
        a, b = _waves(np.asarray(times, float), self.period, self.harmonics)
        return np.concatenate([a @ self.sine, b @ self.cosine], axis=2)
