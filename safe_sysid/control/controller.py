"""The controller as a pure state machine around the robust law: no clocks, no I/O, every refusal with a reason.

``idle -> holding -> tracking -> braking -> holding`` and ``fault``; the table is in docs/controller.md. Every input
(measurement, plan, box) is judged here, so that a node, the in-process episode and a test behave alike.
"""

from __future__ import annotations

from collections import Counter, OrderedDict
from dataclasses import dataclass, replace
from enum import Enum

import numpy as np
from numpy.typing import NDArray

from safe_sysid.control.gains import ControllerGains
from safe_sysid.control.robust import RobustLaw
from safe_sysid.robot.model import RobotModel
from safe_sysid.robot.parameters import ParameterBox
from safe_sysid.trajectories.plan import Plan, parse_identity
from safe_sysid.trajectories.quintic import QuinticTrajectory

__all__ = ["Controller", "ControllerOutput", "ControllerState"]

FloatArray = NDArray[np.float64]
#: Two plans connect if their states at the hand-over agree to this (rad, rad/s, rad/s^2); messages carry 64 bits.
CONNECTION_TOLERANCE = 1e-9
#: A plan may be announced this early, s.
_EARLIEST = 30.0
#: How many announced boxes stay known, so that a plan certified for an older one can be taken.
_KNOWN_BOXES = 64


class ControllerState(Enum):
    """What the controller does now."""

    IDLE = "idle"
    HOLDING = "holding"
    TRACKING = "tracking"
    BRAKING = "braking"
    FAULT = "fault"


@dataclass
class ControllerOutput:
    """Result of one step; arrays are reused by the next step.

    Attributes:
        torque: (n,) N m, or None: command nothing, the arm's own brakes hold.
        reference: (4, n) desired position .. jerk.
        energy: lower bound of V from the measurement, J; above V_max an assumption is false.
        announce: the box to announce as ``bounds_active`` (after a blend), else None.
    """

    torque: FloatArray | None
    reference: FloatArray
    energy: float = 0.0
    announce: ParameterBox | None = None


class Controller:
    """See the module; one instance per arm and run."""

    def __init__(self, model: RobotModel, gains: ControllerGains, blend_s: float = 0.25) -> None:
        """Start idle with the prior box of epoch 0.

        Args:
            model: of the arm; its ``arm_prior`` is the first box.
            gains: of :func:`safe_sysid.control.gains.synthesise`.
            blend_s: duration of the blend to a new box, s.
        """
        self.model, self.gains, self._blend_s = model, gains, float(blend_s)
        self._law = RobustLaw(model.kinematics, gains, model.friction_transition_velocity)
        self.state = ControllerState.IDLE
        self.reason = "waiting for start"
        self.counts: Counter[str] = Counter()
        self.box = model.arm_prior
        self._mid, self._rad = self.box.mid, self.box.rad
        self._known: OrderedDict[str, ParameterBox] = OrderedDict({self.box.identity: self.box})
        self._target: ParameterBox | None = None
        self._blend_start, self._blend_from = 0.0, self.box
        self._plan: Plan | None = None
        self._next: Plan | None = None
        # Evaluated, not just zeros: compiles what the loop will call before the loop runs.
        self._hold = QuinticTrajectory.hold(np.zeros(model.n)).state(0.0)
        self._last_stamp = -np.inf
        self._output = ControllerOutput(None, self._hold)
        noise = gains.assumptions.velocity_error + gains.K_r * gains.assumptions.position_error
        self._r_noise = np.broadcast_to(noise, (model.n,))

    # -- inputs -------------------------------------------------------------------------------------------------

    @property
    def plan(self) -> Plan | None:
        """The plan that is tracked or braked along, if any."""
        return self._plan

    @property
    def pending_plan(self) -> Plan | None:
        """The plan accepted for the next hand-over, if any."""
        return self._next

    @property
    def blending(self) -> bool:
        """Whether a new box is being blended in."""
        return self._target is not None

    def start(self, stamp: float, q: FloatArray, qd: FloatArray) -> list[str]:
        """Leave idle or fault: hold the measured position. Returns reasons of a refusal, empty if started.

        The tracking theorem's guarantee begins here: at rest within the measurement error, ``V(0) <= V_max``.
        """
        reasons = []
        if self.state not in (ControllerState.IDLE, ControllerState.FAULT):
            reasons.append(f"state is {self.state.value}: expected idle or fault")
        if not (np.all(np.isfinite(q)) and np.all(np.isfinite(qd))):
            return [*reasons, "measurement is not finite"]
        a = self.gains.assumptions
        e, r = self._position_noise, np.abs(qd) + self._r_noise + self.gains.K_r * self._position_noise
        energy = 0.5 * float(np.sum(a.inertia_upper * r * r))
        # The norm, not each joint alone: the planner's tube takes r and K_r e from ellipsoids.
        spread = float(np.sum(np.square(self.gains.K_r * e / self.gains.r_bound)))
        if energy > self.gains.V_max or spread > 1.0:
            worst = int(np.argmax(np.abs(qd)))
            reasons.append(
                f"arm not at rest: V(0) may be {energy:.2g} J, V_max is {self.gains.V_max:.2g} J "
                f"({self.model.joint_names[worst]} moves at {qd[worst]:.3g} rad/s)"
            )
        for j, name in enumerate(self.model.joint_names):
            lower, upper = self.model.limits.position_lower[j], self.model.limits.position_upper[j]
            if not lower < q[j] < upper:
                reasons.append(f"{name} at {q[j]:.4f} rad: expected inside ({lower:.4f}, {upper:.4f})")
        if not reasons:
            self._hold[:] = 0.0
            self._hold[0] = q
            self._plan = self._next = None
            self._last_stamp = stamp
            self.state, self.reason = ControllerState.HOLDING, "started"
        return reasons

    @property
    def _position_noise(self) -> FloatArray:
        return np.broadcast_to(self.gains.assumptions.position_error, (self.model.n,))

    def offer_plan(self, plan: Plan, now: float) -> str | None:
        """Take a plan for the next hand-over; returns the reason of a refusal, None if taken."""
        reason = self._judge_plan(plan, now)
        if reason is None:
            # Exactly at the hand-over: what a stamp since 1970 rounds would be a jump of the desired motion.
            under_way = self._plan if self.state is ControllerState.TRACKING else None
            self._next = replace(plan, start_time=under_way.hand_over_time) if under_way else plan
        else:
            self.counts["plan refused"] += 1
        return reason

    def _judge_plan(self, plan: Plan, now: float) -> str | None:
        if plan.trajectory.n != self.model.n:
            return f"plan has {plan.trajectory.n} joints: expected {self.model.n}"
        epoch, _ = parse_identity(plan.box_identity)
        if epoch != self.box.epoch:
            return f"plan is certified for box {plan.box_identity}: expected epoch {self.box.epoch}"
        certified = self._known.get(plan.box_identity)
        if certified is None:
            return (
                f"plan is certified for box {plan.box_identity}, which was not announced by this controller"
            )
        if not self.box.is_inside(certified):
            return f"box {self.box.identity} in use is not inside the certified {plan.box_identity}"
        if self.state is ControllerState.TRACKING and self._plan is not None:
            expected_time, state = self._plan.hand_over_time, self._plan.trajectory.state(self._plan.t_plan)
        elif self.state is ControllerState.HOLDING:
            expected_time, state = None, self._hold
        else:
            return f"state is {self.state.value}: a plan is taken only while holding or tracking"
        if plan.start_time < now - 1e-9:
            return f"plan starts at {plan.start_time:.4f} s, now is {now:.4f} s: too late"
        if expected_time is not None and abs(plan.start_time - expected_time) > 1e-6:
            return f"plan starts at {plan.start_time:.6f} s: expected the hand-over at {expected_time:.6f} s"
        if plan.start_time > now + _EARLIEST:
            return (
                f"plan starts at {plan.start_time:.3f} s, now is {now:.3f} s: expected within {_EARLIEST:g} s"
            )
        gap = np.abs(plan.trajectory.knots[0] - state[:3])
        if not np.all(gap <= CONNECTION_TOLERANCE):
            order, joint = np.unravel_index(int(np.argmax(gap)), gap.shape)
            quantity = ("position", "velocity", "acceleration")[order]
            name = self.model.joint_names[joint]
            return f"plan does not connect: {quantity} of {name} is off by {gap[order, joint]:.3g}"
        return None

    def offer_box(self, box: ParameterBox, now: float) -> str | None:
        """Take a tighter box and blend to it; returns the reason of a refusal, None if taken."""
        latest = self._target or self.box
        reason = None
        if box.size != latest.size:
            reason = f"box has {box.size} parameters: expected {latest.size}"
        elif box.epoch != latest.epoch:
            reason = f"box {box.identity}: expected epoch {latest.epoch}"
        elif box.seq <= latest.seq:
            reason = f"box {box.identity}: expected a sequence number above {latest.seq}"
        elif not box.is_inside(latest):
            reason = f"box {box.identity}: expected it inside {latest.identity}"
        if reason is not None:
            self.counts["bounds refused"] += 1
            return reason
        self._blend_from, self._target, self._blend_start = self._current_box(), box, now
        return None

    def _current_box(self) -> ParameterBox:
        mid, rad = self._mid, self._rad
        if self._target is None:
            return self.box
        lower = np.maximum(mid - rad, self.box.lower)
        upper = np.minimum(mid + rad, self.box.upper)
        return ParameterBox(
            np.minimum(lower, self._target.lower),
            np.maximum(upper, self._target.upper),
            self.box.epoch,
            self.box.seq,
        )

    def reset_box(self) -> str | None:
        """Begin a new epoch with the prior (a new payload); at rest only. Returns the reason of a refusal."""
        if self.state not in (ControllerState.HOLDING, ControllerState.IDLE):
            return f"state is {self.state.value}: bounds are reset only while holding or idle"
        prior = self.model.arm_prior
        self._use(ParameterBox(prior.lower, prior.upper, self.box.epoch + 1, 0))
        self._target, self._next = None, None
        self._known.clear()
        self._known[self.box.identity] = self.box
        return None

    def stop(self) -> None:
        """Take no further plan: brake along the certified tail, then hold."""
        self._next = None
        if self.state is ControllerState.TRACKING:
            self.state, self.reason = ControllerState.BRAKING, "stop requested"

    def fault(self, reason: str) -> None:
        """Stop commanding; the arm's own brakes take over. ``start`` leaves this state."""
        self.state, self.reason = ControllerState.FAULT, reason
        self.counts["fault"] += 1

    # -- the 1 kHz step -----------------------------------------------------------------------------------------

    def step(self, stamp: float, q: FloatArray, qd: FloatArray) -> ControllerOutput:
        """One tick: judge the measurement, advance state and blend, compute the torque.

        Args:
            stamp: of the measurement, s.
            q: (n,) measured, in the model's joint order, unwrapped to the branch of the reference, rad.
            qd: (n,) measured, rad/s.
        """
        out = self._output
        out.torque, out.announce = None, None
        if self.state in (ControllerState.IDLE, ControllerState.FAULT):
            return out
        if not (np.all(np.isfinite(q)) and np.all(np.isfinite(qd))):
            self._bad_measurement("measurement not finite")
            return out
        if not stamp > self._last_stamp:
            self._bad_measurement("measurement not newer than the last")
            return out
        if stamp - self._last_stamp > self.model.settings.measurement.max_age_s:
            self.counts["measurement gap"] += 1
            self._brake(f"no measurement for {stamp - self._last_stamp:.3f} s")
        elif stamp - self._last_stamp > self.gains.assumptions.hold_max * (1.0 + 1e-6):
            self.counts["hold longer than hold_max"] += 1
        self._last_stamp = stamp
        self._advance_plan(stamp)
        self._advance_blend(stamp, out)
        if self._plan is None:
            out.reference = self._hold
        else:
            out.reference = self._plan.trajectory.state(stamp - self._plan.start_time)
        torque = self._law.step(q, qd, out.reference, self._mid, self._rad)
        out.energy = self._energy_lower_bound()
        if out.energy > self.gains.V_max:
            self.fault(
                f"V is at least {out.energy:.3g} J, above V_max = {self.gains.V_max:.3g} J: an assumption is false"
            )
            return out
        limit = self.model.limits.torque
        if np.any(np.abs(torque) > limit) or not np.all(np.isfinite(torque)):
            joint = int(np.argmax(np.abs(torque) / limit))
            self.counts["saturation"] += 1
            if not np.all(np.isfinite(torque)):
                self.fault("torque not finite")
                return out
            self._brake(
                f"torque of {self.model.joint_names[joint]} reached {torque[joint]:.1f} N m and was clipped"
            )
            np.clip(torque, -limit, limit, out=torque)
        out.torque = torque
        return out

    @property
    def tracking_error(self) -> tuple[FloatArray, FloatArray, FloatArray]:
        """``e``, ``de``, ``r`` of the last step, measured; each (n,), reused."""
        return self._law.e, self._law.de, self._law.r

    @property
    def uncertainty(self) -> float:
        """S of the last step."""
        return self._law.uncertainty

    def _energy_lower_bound(self) -> float:
        r = np.maximum(np.abs(self._law.r) - self._r_noise, 0.0)
        return 0.5 * float(np.sum(self.gains.inertia_lower * r * r))

    def _bad_measurement(self, reason: str) -> None:
        self.counts[reason] += 1
        self._brake(reason)

    def _brake(self, reason: str) -> None:
        self._next = None
        if self.state is ControllerState.TRACKING:
            self.state, self.reason = ControllerState.BRAKING, reason

    def _advance_plan(self, stamp: float) -> None:
        tolerance = 1e-9
        takes = self.state in (ControllerState.TRACKING, ControllerState.HOLDING)
        if self._next is not None and takes and stamp >= self._next.start_time - tolerance:
            self._plan, self._next = self._next, None
            self.state, self.reason = ControllerState.TRACKING, f"plan {self._plan.sequence}"
        plan = self._plan
        if plan is None:
            return
        if (
            self.state is ControllerState.TRACKING
            and stamp >= plan.hand_over_time - tolerance
            and plan.t_plan < plan.trajectory.duration
        ):
            self.state, self.reason = ControllerState.BRAKING, "no plan for the hand-over"
        if stamp >= plan.end_time:
            self._hold[:] = 0.0
            self._hold[0] = plan.trajectory.knots[-1, 0]
            self._plan = None
            self.state, self.reason = ControllerState.HOLDING, "at rest"

    def _use(self, box: ParameterBox) -> None:
        self.box, self._mid, self._rad = box, box.mid, box.rad

    def _advance_blend(self, stamp: float, out: ControllerOutput) -> None:
        target = self._target
        if target is None:
            return
        s = (stamp - self._blend_start) / self._blend_s
        if s >= 1.0:
            self._use(target)
            self._target = None
            self._known[target.identity] = target
            while len(self._known) > _KNOWN_BOXES:
                self._known.popitem(last=False)
            out.announce = target
            return
        s = max(s, 0.0)
        # A convex combination of two boxes that hold the truth holds it; mid and rad combine linearly.
        self._mid = (1.0 - s) * self._blend_from.mid + s * target.mid
        self._rad = ((1.0 - s) * self._blend_from.rad + s * target.rad) * (1.0 + 1e-15)
