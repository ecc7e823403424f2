"""Closed loop of the experiments: the flexible arm under the impedance law, with any model as feed-forward."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from safe_sysid.control.feed_forward import AddedTorque, FeedForward, FeedForwardInTick
from safe_sysid.control.laws.inverse_dynamics import ImpedanceLaw
from safe_sysid.control.laws.law import ModelInUse
from safe_sysid.control.settings import ImpedanceSettings
from safe_sysid.core.arrays import FloatArray
from safe_sysid.robot.model import RobotModel
from safe_sysid.simulation.flexible import FlexibleArm
from safe_sysid.studies.hybrid.rigid_models import rigid_torque

__all__ = ["GAINS", "Driven", "ModelFeedForward", "drive", "guard", "impedance"]

#: Stiffness of [Hybrid, section V-A] for a desired inertia of one. For the data its text lists six values
#: of seven: there, too, the stiff set is taken.
GAINS: dict[str, float | tuple[float, ...]] = {
    "soft": 1.0,
    "medium": 50.0,
    "stiff": (400.0, 400.0, 200.0, 200.0, 200.0, 200.0, 200.0),
}
#: Torque of inverse dynamics at (q, qd, qdd), (n,) each.
Predictor = Callable[[FloatArray, FloatArray, FloatArray], FloatArray]
#: The guard: what any model may add to the rigid one's torque, as a share of the limits, and how fast, per second.
_SHARE, _PACE = 0.35, 20.0


def impedance(model: RobotModel, gains: str) -> ImpedanceLaw:
    """The impedance law with a set of gains, critically damped. ``gains``: key of :data:`GAINS`."""
    return ImpedanceLaw(model, ImpedanceSettings(stiffness=GAINS[gains]))


class ModelFeedForward:
    """Any model in the seam of feed-forwards: what it says beyond the rigid model that the law inverts.

    The law computes ``f_r(q, qd, qdd_d + a_fb) = f_r(q, qd, qdd_d) + H a_fb``; with ``f - f_r`` added, the command is
    ``f(q, qd, qdd_d) + H a_fb``: the model is the feed-forward, the rigid one shapes the feedback [Hybrid eq. 1, 14].
    """

    def __init__(self, model: RobotModel, theta: FloatArray, predict: Predictor) -> None:
        """Put a predictor into the seam.

        ``theta``: (14 n,) of the law; ``predict``: inverse dynamics of one state; may remember the states before.
        """
        self._model, self._theta, self._predict = model, theta, predict

    def __call__(
        self, q: FloatArray, qd: FloatArray, q_d: FloatArray, qd_d: FloatArray, qdd_d: FloatArray, t: float
    ) -> tuple[FloatArray, float]:
        """See :class:`safe_sysid.control.feed_forward.FeedForward`."""
        return self._predict(q, qd, qdd_d) - rigid_torque(self._model, self._theta, q, qd, qdd_d), 1.0


def guard(model: RobotModel, feed_forward: FeedForward, name: str = "model") -> AddedTorque:
    """The guard of the controller's seam, with the bounds of the experiments."""
    bound = _SHARE * model.limits.torque
    source = FeedForwardInTick(feed_forward, model.n)
    return AddedTorque(name, source, bound, _PACE * bound, model.settings.timing.hold_max_s)


@dataclass(frozen=True, eq=False)
class Driven:
    """What a run recorded, period by period."""

    stamp: FloatArray  #: (N,) s
    #: q, qd: (N, n) measured before the command, rad, rad/s
    q: FloatArray
    qd: FloatArray
    torque: FloatArray  #: (N, n) commanded, N m
    true: FloatArray  #: (N, n) position of the links after the period, rad
    guarded: int  #: ticks in which the feed-forward was not followed


def drive(
    arm: FlexibleArm,
    law: ImpedanceLaw,
    theta: FloatArray,
    reference: FloatArray,
    added: AddedTorque | None = None,
    settle: int = 0,
) -> Driven:
    """Follow a reference; the parts, and their order, are those of a tick of the controller.

    Raises ModelError: the arm ran away.

    Args:
        arm: at rest where the reference begins.
        theta: (14 n,) that the law inverts.
        reference: (N, 3, n) desired position, velocity, acceleration at the end of each period.
        added: the guarded feed-forward; None: nothing.
        settle: periods before, in which the first position is held, and models get to know the state.
    """
    n, count = arm.model.n, len(reference)
    known, limit = ModelInUse(theta, theta, np.zeros(len(theta))), arm.model.limits.torque
    stamp = np.empty(count)
    q, qd, torque, true = (np.empty((count, n)) for _ in range(4))
    held = np.zeros((3, n))
    held[0] = reference[0, 0] if settle == 0 else arm.state[:n]
    law.reset(arm.time, arm.q, arm.qd)
    if added is not None:
        added.begin()
    guarded = 0
    for k in range(-settle, count):
        wanted = held if k < 0 else reference[k]
        now = arm.time
        command = law.step(now, arm.q, arm.qd, wanted, known)
        if added is not None:
            added.next(now, arm.q, arm.qd, wanted, arm.period)
            command += added.torque
            guarded += bool(added.why_not)
        np.clip(command, -limit, limit, out=command)
        if k >= 0:
            stamp[k], q[k], qd[k], torque[k] = now, arm.q, arm.qd, command
        arm.step(command)
        if k >= 0:
            true[k] = arm.state[:n]
    return Driven(stamp, q, qd, torque, true, guarded)
