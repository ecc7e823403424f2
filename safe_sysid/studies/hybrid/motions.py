r"""Motions of the experiments: exciting Fourier series [Hybrid eq. 15], and minimum-jerk motions between set-points.

A series is drawn by its seed and then improved, draw by draw, in the determinant of the information that torques of the
rigid arm hold [Swevers1997]. Every joint's is as large as its range and its velocity limit let it be. Positions and
velocities are looked at in samples: nothing here is certified, and nothing knows of the arm's own shape.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy import linalg

from safe_sysid.core.arrays import FloatArray, IntArray
from safe_sysid.core.layout import OFFSET, ROTOR, ParameterLayout
from safe_sysid.dynamics import dynamics_of
from safe_sysid.errors import ParameterError
from safe_sysid.identification.arm.base_parameters import base_parameters, random_states
from safe_sysid.robot.model import RobotModel
from safe_sysid.trajectories.fourier import FourierFamily, FourierTrajectory

__all__ = ["FAST", "SLOW", "SetPoints", "exciting_series", "minimum_jerk", "set_points", "slower"]

#: Shares of the velocity limits.
SLOW, FAST = 0.1, 0.4
#: Share of the position range that series and set-points stay in, and of what is drawn new in one improvement.
_ROOM, _CHANGE = 0.9, 0.3
_SAMPLES = 160


def exciting_series(
    model: RobotModel,
    seed: int,
    period: float,
    harmonics: int = 5,
    speed: float = FAST,
    draws: int = 10,
    improvements: int = 50,
) -> FourierTrajectory:
    """One series, from rest to rest.

    Args:
        period: s.
        speed: largest share of the velocity limits, which every joint comes to unless its range ends before.
    """
    rng, n = np.random.default_rng(seed), model.n
    family = FourierFamily(np.zeros(n), period, harmonics)
    basis = family.basis(np.linspace(0.0, period, _SAMPLES))
    low, high = model.limits.position_lower, model.limits.position_upper
    dynamics = dynamics_of(model.kinematics)
    wanted = _columns(model)
    scale = np.linalg.norm(random_states(n, dynamics.torque_regressor)[:, wanted], axis=0)

    def fitted(x: FloatArray, place: FloatArray) -> tuple[FloatArray, FloatArray]:
        """As large as limits let it be, and where it starts."""
        q, qd = (np.einsum("tm,nm->tn", basis[k], x) for k in (0, 1))
        span = np.ptp(q, axis=0)
        share = np.minimum(speed * model.limits.velocity / np.abs(qd).max(axis=0), _ROOM * (high - low) / span)
        q, span = q * share, span * share
        free = 0.5 * (high - low) - 0.5 * span - 0.5 * (1.0 - _ROOM) * (high - low)
        middle = 0.5 * (low + high) + place * free
        return x * share[:, None], middle - 0.5 * (q.min(axis=0) + q.max(axis=0))

    def worth(x: FloatArray, start: FloatArray) -> float:
        q, qd, qdd = (np.einsum("tm,nm->tn", basis[k], x) for k in (0, 1, 2))
        rows = dynamics.torque_regressor(q + start, qd, qdd, 0.02).reshape(-1, model.layout.size)[:, wanted] / scale
        triangle = linalg.qr(rows, mode="r")[0][: len(wanted)]
        return float(np.sum(np.log(np.maximum(np.abs(np.diag(triangle)), 1e-300))))

    def drawn() -> tuple[FloatArray, FloatArray]:
        return rng.normal(size=(n, family.free)), rng.uniform(-1.0, 1.0, n)

    best, kept, found = -np.inf, drawn(), (np.zeros((n, family.free)), np.zeros(n))
    for k in range(draws + improvements):
        tried = drawn()
        if k >= draws:
            tried = (
                kept[0] / np.abs(kept[0]).max(axis=1, keepdims=True) + _CHANGE * tried[0],
                np.clip(kept[1] + _CHANGE * tried[1], -1.0, 1.0),
            )
        made = fitted(*tried)
        value = worth(*made)
        if value > best:
            best, kept, found = value, tried, made
    return FourierFamily(found[1], period, harmonics).trajectory(found[0])


def _columns(model: RobotModel) -> IntArray:
    """Independent columns of links and Coulomb friction: what [Hybrid] identifies."""
    layout, dynamics = ParameterLayout(model.n), dynamics_of(model.kinematics)
    base = base_parameters(random_states(model.n, lambda q, qd, qdd: dynamics.torque_regressor(q, qd, qdd, 0.02)))
    out = np.isin(base.independent, np.r_[layout.block(ROTOR), layout.block(OFFSET)])
    return base.independent[~out]


def slower(series: FourierTrajectory, factor: float) -> FourierTrajectory:
    """The same path in ``factor`` times the time. ``factor``: > 0."""
    return FourierTrajectory(series.start, factor * series.period, series.sine / factor, series.cosine / factor)


def minimum_jerk(share: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Way, velocity and acceleration (per duration and its square) at shares of the time [Flash1985].

    ``share``: (N,) of the time, 0 to 1.
    """
    s = np.clip(share, 0.0, 1.0)
    return (s**3 * (10.0 - 15.0 * s + 6.0 * s**2), 30.0 * s**2 * (1.0 - s) ** 2, 60.0 * s * (1.0 - s) * (1.0 - 2.0 * s))


@dataclass(frozen=True, eq=False)
class SetPoints:
    """Minimum-jerk motions one after the other. ``points``: (M + 1, n) rad; ``duration``: of each, s."""

    points: FloatArray
    duration: float

    def reference(self, rate: float = 1000.0) -> FloatArray:
        """(M duration rate, 3, n) desired position, velocity, acceleration. ``rate``: samples per second."""
        count = round(self.duration * rate)
        way, pace, push = minimum_jerk(np.arange(1, count + 1) / count)
        parts = []
        for first, last in zip(self.points[:-1], self.points[1:], strict=True):
            step = last - first
            parts.append(
                np.stack(
                    [
                        first + np.outer(way, step),
                        np.outer(pace, step) / self.duration,
                        np.outer(push, step) / self.duration**2,
                    ],
                    axis=1,
                )
            )
        return np.concatenate(parts)


def set_points(model: RobotModel, duration: float, count: int = 5, step: float = 0.7, seed: int = 0) -> SetPoints:
    """Set-points within the range that series have, each at most ``step`` from the one before.

    ``duration``: of each motion, s; ``step``: largest, of each joint, rad.

    Raises ParameterError: a joint that has no limits.
    """
    rng = np.random.default_rng(seed)
    low, high = model.limits.position_lower, model.limits.position_upper
    if not np.all(np.isfinite(high - low)):
        raise ParameterError(f"robot {model.name}: expected joints with position limits, for set-points")
    room = 0.5 * (1.0 - _ROOM) * (high - low)
    points = [np.array(model.settings.home, float)]
    for _ in range(count):
        points.append(np.clip(points[-1] + rng.uniform(-step, step, model.n), low + room, high - room))
    return SetPoints(np.array(points), duration)
