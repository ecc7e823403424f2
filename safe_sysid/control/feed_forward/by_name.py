"""Feed-forwards by name (:data:`safe_sysid.extensions.FEED_FORWARDS`); docs/understand/laws.md describes each."""

from __future__ import annotations

from typing import cast

import numpy as np

from safe_sysid.control.feed_forward import AddedTorque, FeedForward, FeedForwardInTick
from safe_sysid.control.feed_forward.process import FeedForwardProcess
from safe_sysid.control.gains import ControllerGains
from safe_sysid.core.arrays import FloatArray
from safe_sysid.errors import ParameterError
from safe_sysid.extensions import FEED_FORWARDS, chosen
from safe_sysid.learning import make_residual_model
from safe_sysid.robot.config import per_joint
from safe_sysid.robot.model import RobotModel

__all__ = ["ResidualFeedForward", "make_added_torque", "make_feed_forward"]


#: s between two ticks, after which a residual model's memory is stale: fewer than its warm-up forgets, and more than a
#: busy machine delays a tick by.
_GAP = 0.05


class ResidualFeedForward:
    """``controller.feed_forward.residual`` at the desired motion: no noise of measurements is fed forward.

    A residual model with a method ``reset`` has a memory of earlier ticks, which is emptied where ticks are missing.

    Attributes:
        in_tick: whether the residual model says that it may be evaluated in the controller's tick.
    """

    def __init__(self, model: RobotModel) -> None:
        """Load the residual model that the robot's file names; errors as :func:`make_residual_model`."""
        s = model.settings.controller.feed_forward
        self._residual = make_residual_model(model, s.residual, s.file)
        self.in_tick = bool(getattr(self._residual, "in_tick", False))
        self._forget = getattr(self._residual, "reset", None)
        self._last, self._gap = -np.inf, max(_GAP, 2.0 * model.settings.timing.period_s)

    def __call__(
        self, q: FloatArray, qd: FloatArray, q_d: FloatArray, qd_d: FloatArray, qdd_d: FloatArray, t: float
    ) -> tuple[FloatArray, float]:
        """See :class:`safe_sysid.control.feed_forward.FeedForward`."""
        if self._forget is not None and not 0.0 <= t - self._last <= self._gap:
            self._forget()
        self._last = t
        return self._residual.predict(q_d, qd_d, qdd_d)


def make_feed_forward(model: RobotModel) -> FeedForward:
    """The feed-forward that a robot's file names. ``model``: of the arm; ``controller.feed_forward.name`` is given.

    Raises:
        ParameterError: unknown name, or the feed-forward cannot be made.
    """
    name = model.settings.controller.feed_forward.name
    return cast(FeedForward, chosen(FEED_FORWARDS, name, "controller.feed_forward.name")(model))


def make_added_torque(model: RobotModel, gains: ControllerGains, lockstep: bool) -> AddedTorque | None:
    """What a controller adds to its law's torque, as a robot's file says; None where no feed-forward is named.

    Args:
        gains: of its controller, whose theorem leaves room for the bound.
        lockstep: simulated time waits for every answer; else a feed-forward works in a process of its own, and no tick
            waits for it, unless its ``in_tick`` is true.

    Raises:
        ParameterError: the name is unknown, no joint has a bound, the rate is above the torque's, or the feed-forward
            cannot be made.
    """
    s, n = model.settings.controller, model.n
    if s.feed_forward.name is None:
        return None
    bound, rate, most = (per_joint(x, n) for x in (s.feed_forward.bound, s.feed_forward.rate, s.torque_rate))
    if not np.any(bound):
        raise ParameterError(
            f"controller.feed_forward.bound = {s.feed_forward.bound!r}: expected a positive bound for some joint "
            f"where the feed-forward {s.feed_forward.name} is to be added"
        )
    if np.any(rate >= most):
        j = int(np.argmax(rate / most))
        raise ParameterError(
            f"controller.feed_forward.rate = {rate[j]:g} {model.torque_units[j]}/s for {model.joint_names[j]}: "
            f"expected less than controller.torque_rate = {most[j]:g}, which the law needs, too"
        )
    feed_forward = make_feed_forward(model)  # in real time, too: what is wrong with it is said at once
    late = s.feed_forward.late_s
    in_tick = lockstep or getattr(feed_forward, "in_tick", False)
    source = FeedForwardInTick(feed_forward, n) if in_tick else FeedForwardProcess(make_feed_forward, model, late)
    # Half of the torque's rate: the other half is the law's.
    back = np.maximum(rate, 0.5 * most)
    return AddedTorque(s.feed_forward.name, source, bound, rate, gains.assumptions.hold_max, back)
