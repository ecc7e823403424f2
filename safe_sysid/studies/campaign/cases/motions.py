r"""Motions known in closed form: polynomials of time between knots, with jumps of acceleration at the knots.

Everything that an exact log needs follows without sampling: states, the largest acceleration, and the times at which a
velocity crosses a level. Shares no code with :mod:`safe_sysid.trajectories`.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from safe_sysid.core.arrays import FloatArray
from safe_sysid.errors import ParameterError
from safe_sysid.robot.parameters import frozen_array

__all__ = ["MOTIONS", "SMOOTH", "TrueMotion", "bang", "draw_motion", "hermite"]


#: Kinds of motion that :func:`draw_motion` draws.
MOTIONS = ("quintic", "wave", "pause", "bang", "chatter", "creep", "rest")
#: Those with a continuous acceleration.
SMOOTH = ("quintic", "wave", "pause")
_DEGREE = 5


@dataclass(frozen=True, eq=False)
class TrueMotion:
    """Positions of n joints, continuous with continuous velocity; ``q = sum_d c[p, j, d] (t - knots[p])^d``."""

    knots: FloatArray  #: (K+1,) increasing, s
    coefficients: FloatArray  #: (K, n, 6) of the pieces in local time, rad/s^d

    def __post_init__(self) -> None:
        """Check shapes and freeze. Raises ParameterError: shapes do not fit, or knots do not increase."""
        knots = frozen_array(self.knots, None, "TrueMotion.knots")
        c = np.asarray(self.coefficients, float)
        if knots.ndim != 1 or len(knots) < 2 or np.any(np.diff(knots) <= 0.0):
            raise ParameterError(f"TrueMotion.knots: shape {knots.shape}: expected two or more increasing times")
        if c.ndim != 3 or c.shape[::2] != (len(knots) - 1, _DEGREE + 1):
            raise ParameterError(
                f"TrueMotion.coefficients: shape {c.shape}: expected ({len(knots) - 1}, n, {_DEGREE + 1})"
            )
        object.__setattr__(self, "knots", knots)
        object.__setattr__(self, "coefficients", frozen_array(c, c.shape, "TrueMotion.coefficients"))

    @property
    def n(self) -> int:
        """Number of joints."""
        return int(self.coefficients.shape[1])

    @property
    def end(self) -> float:
        """Last time, s."""
        return float(self.knots[-1])

    def state(self, times: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Position, velocity, acceleration, each (T, n), at times (T,) s; at a knot that of the later piece."""
        times = np.asarray(times, float)
        piece = np.clip(np.searchsorted(self.knots, times, side="right") - 1, 0, len(self.knots) - 2)
        s = (times - self.knots[piece])[:, None]
        c = self.coefficients[piece]
        q, qd, qdd = c[..., _DEGREE].copy(), np.zeros(c.shape[:2]), np.zeros(c.shape[:2])
        for d in range(_DEGREE - 1, -1, -1):  # Horner, value and two derivatives at once
            qdd = qdd * s + 2.0 * qd
            qd = qd * s + q
            q = q * s + c[..., d]
        return q, qd, qdd

    def largest_acceleration(self) -> FloatArray:
        """(n,) supremum of ``|qdd|``, rad/s^2: at ends of pieces and where the jerk, a quadratic, vanishes."""
        c, span = self.coefficients, np.diff(self.knots)[:, None]
        a0, a1, a2, a3 = 2.0 * c[..., 2], 6.0 * c[..., 3], 12.0 * c[..., 4], 20.0 * c[..., 5]
        with np.errstate(divide="ignore", invalid="ignore"):
            root = np.sqrt(a2 * a2 - 3.0 * a3 * a1)
            stationary = [(-a2 + root) / (3.0 * a3), (-a2 - root) / (3.0 * a3), -a1 / (2.0 * a2)]
        largest = np.zeros(self.n)
        for s in [np.zeros_like(a0), np.broadcast_to(span, a0.shape), *stationary]:
            s = np.clip(np.nan_to_num(s, nan=0.0, posinf=0.0, neginf=0.0), 0.0, span)
            largest = np.maximum(largest, np.abs(a0 + s * (a1 + s * (a2 + s * a3))).max(axis=0))
        return largest

    def largest_jerk(self) -> FloatArray:
        """(n,) supremum of ``|qddd|`` between knots, rad/s^3: at ends of pieces and where it turns."""
        c, span = self.coefficients, np.diff(self.knots)[:, None]
        j0, j1, j2 = 6.0 * c[..., 3], 24.0 * c[..., 4], 60.0 * c[..., 5]
        with np.errstate(divide="ignore", invalid="ignore"):
            turn = np.clip(np.nan_to_num(-j1 / (2.0 * j2), nan=0.0, posinf=0.0, neginf=0.0), 0.0, span)
        at = (np.zeros_like(j0), np.broadcast_to(span, j0.shape), turn)
        return np.max([np.abs(j0 + s * (j1 + s * j2)).max(axis=0) for s in at], axis=0)

    def crossings(self, joint: int, level: float) -> FloatArray:
        """Times (unsorted, s) at which a joint's velocity may cross a level, rad/s; superfluous ones are harmless."""
        span = np.diff(self.knots)
        v = self.coefficients[:, joint, 1:] * np.arange(1, _DEGREE + 1)
        v = v * span[:, None] ** np.arange(_DEGREE)  # in local time from 0 to 1
        v[:, 0] -= level
        reach = np.abs(v[:, 1:]).sum(axis=1)
        near = np.abs(v[:, 0]) <= reach * (1.0 + 1e-12)
        near &= reach > 0.0  # a constant velocity crosses nothing
        straight = near & ~np.any(v[:, 2:], axis=1)
        times = [self.knots[:-1][straight] - span[straight] * v[straight, 0] / v[straight, 1]]
        for p in np.flatnonzero(near & ~straight):
            roots = np.polynomial.polynomial.polyroots(np.trim_zeros(v[p], "b"))
            roots = np.real(roots[np.abs(np.imag(roots)) < 1e-6])
            times.append(self.knots[p] + span[p] * _polished(v[p], roots))
        all_times = np.concatenate(times)
        return all_times[(all_times > self.knots[0]) & (all_times < self.knots[-1])]


def _polished(polynomial: FloatArray, roots: FloatArray) -> FloatArray:
    """Two Newton steps; eigenvalue solvers leave the last digits to be desired."""
    derivative = np.polynomial.polynomial.polyder(polynomial)
    for _ in range(2):
        slope = np.polynomial.polynomial.polyval(roots, derivative)
        step = np.polynomial.polynomial.polyval(roots, polynomial) / np.where(slope == 0.0, np.inf, slope)
        roots = np.where(np.abs(step) < 1e-3, roots - step, roots)
    return roots


def hermite(knots: FloatArray, q: FloatArray, qd: FloatArray, qdd: FloatArray) -> TrueMotion:
    """Quintics through states (K+1, n) at knots (K+1,)."""
    h = np.diff(knots)[:, None]
    c = np.zeros((len(h), q.shape[1], _DEGREE + 1))
    c[..., 0], c[..., 1], c[..., 2] = q[:-1], qd[:-1], 0.5 * qdd[:-1]
    rest_q = q[1:] - (q[:-1] + h * (qd[:-1] + 0.5 * h * qdd[:-1]))
    rest_v = (qd[1:] - (qd[:-1] + h * qdd[:-1])) * h
    rest_a = (qdd[1:] - qdd[:-1]) * h * h
    c[..., 3] = (10.0 * rest_q - 4.0 * rest_v + 0.5 * rest_a) / h**3
    c[..., 4] = (-15.0 * rest_q + 7.0 * rest_v - rest_a) / h**4
    c[..., 5] = (6.0 * rest_q - 3.0 * rest_v + 0.5 * rest_a) / h**5
    return TrueMotion(knots, c)


def bang(knots: FloatArray, start: FloatArray, velocity: FloatArray, acceleration: FloatArray) -> TrueMotion:
    """Constant acceleration (K, n) between knots (K+1,), from a state (n,), (n,)."""
    count, n = acceleration.shape
    c = np.zeros((count, n, _DEGREE + 1))
    q, v = np.array(start, float), np.array(velocity, float)
    for p, h in enumerate(np.diff(knots)):
        c[p, :, 0], c[p, :, 1], c[p, :, 2] = q, v, 0.5 * acceleration[p]
        q, v = q + h * (v + 0.5 * h * acceleration[p]), v + h * acceleration[p]
    return TrueMotion(knots, c)


def draw_motion(
    rng: np.random.Generator, kind: str, n: int, duration: float, period: float, transition: float
) -> TrueMotion:
    """A random motion. Raises ParameterError: unknown kind.

    Args:
        kind: one of :data:`MOTIONS`: quintics to rest that follow each other before they end; waves; quintics with a
            pause; accelerations that jump between bounds; the same at (nearly) every sample; slow motion that stays
            about the velocity where friction changes; none.
        duration: s.
        period: of the samples, s.
        transition: velocity below which friction may be anything, rad/s.
    """
    start = rng.uniform(-np.pi, np.pi, n)
    limit = rng.uniform(2.0, 15.0, n)
    if kind == "quintic":
        return _quintics(rng, start, duration, limit)
    if kind == "wave":
        return _wave(rng, start, duration)
    if kind == "pause":
        t = duration * np.array([0.0, rng.uniform(0.25, 0.45), rng.uniform(0.55, 0.7), 1.0])
        step = limit * np.diff(t)[[0, 2]][:, None] ** 2 / 6.0 * rng.uniform(-1.0, 1.0, (2, n))
        q = start + np.vstack([np.zeros(n), step[0], step[0], step[0] + step[1]])
        return hermite(t, q, np.zeros_like(q), np.zeros_like(q))
    if kind in ("bang", "creep"):
        knots = np.concatenate([[0.0], np.sort(rng.uniform(0.0, duration, 12)), [duration]])
        fastest = 1.5 * transition if kind == "creep" else 1.5
        limit = np.minimum(limit, 20.0 * fastest / duration) if kind == "creep" else limit
        return _driven(rng, np.unique(knots), start, limit, fastest)
    if kind == "chatter":
        # Aligned with the samples, as under sample-and-hold, or between them.
        knots = np.arange(0.0, duration + period, period) + rng.choice([0.0, rng.uniform(0.1, 0.9)]) * period
        knots = np.unique(np.concatenate([[0.0], knots]))
        return _driven(rng, knots[: np.searchsorted(knots, duration) + 1], start, limit, 1.0)
    if kind == "rest":
        return TrueMotion(np.array([0.0, duration]), np.pad(start[None, :, None], ((0, 0), (0, 0), (0, _DEGREE))))
    raise ParameterError(f"motion = {kind!r}: expected one of {', '.join(MOTIONS)}")


def _quintics(rng: np.random.Generator, start: FloatArray, duration: float, limit: FloatArray) -> TrueMotion:
    """To rest in ``t_f``, replaced by the next one after half of it."""
    t_f = duration * rng.uniform(0.6, 1.4)
    state = np.stack([start, 0.0 * start, 0.0 * start])
    knots, pieces, now = [0.0], [], 0.0
    while now < duration:
        goal = state[0] + 0.5 * t_f * state[1] + limit * t_f**2 / 6.0 * rng.uniform(-1.0, 1.0, len(start))
        zero = np.zeros_like(goal)
        one = hermite(
            np.array([0.0, t_f]), np.stack([state[0], goal]), np.stack([state[1], zero]), np.stack([state[2], zero])
        )
        pieces.append(one.coefficients[0])
        now += 0.5 * t_f
        knots.append(now)
        state = np.stack([x[0] for x in one.state(np.array([0.5 * t_f]))])
    return TrueMotion(np.array(knots), np.array(pieces))


def _wave(rng: np.random.Generator, start: FloatArray, duration: float) -> TrueMotion:
    n = len(start)
    amplitude, phase = rng.uniform(0.02, 0.3, n), rng.uniform(0.0, 2.0 * np.pi, n)
    omega = np.minimum(rng.uniform(3.0, 30.0, n), np.sqrt(20.0 / amplitude))
    knots = np.linspace(0.0, duration, max(3, int(np.ceil(duration * omega.max() / 0.8))))
    x = omega * knots[:, None] + phase
    return hermite(
        knots, start + amplitude * np.sin(x), amplitude * omega * np.cos(x), -amplitude * omega**2 * np.sin(x)
    )


def _driven(
    rng: np.random.Generator, knots: FloatArray, start: FloatArray, limit: FloatArray, fastest: float
) -> TrueMotion:
    """Acceleration on its bounds, or between, or none; turned round where a velocity grows too large."""
    n, count = len(start), len(knots) - 1
    velocity = rng.uniform(-0.5, 0.5, n) * fastest
    kinds = rng.integers(0, 4, (count, n))
    drive = np.where(kinds < 2, rng.choice([-1.0, 1.0], (count, n)), rng.uniform(-1.0, 1.0, (count, n)))
    drive[kinds == 3] = 0.0
    v = velocity.copy()
    for p, h in enumerate(np.diff(knots)):
        ahead = v + h * limit * drive[p]
        drive[p] = np.where(np.abs(ahead) > fastest, -np.sign(v) * np.minimum(1.0, np.abs(v) / (h * limit)), drive[p])
        v = v + h * limit * drive[p]
    return bang(knots, start, velocity, limit * drive)
