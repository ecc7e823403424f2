"""The controller as a pure state machine around a control law: no clocks, no I/O, a reason for each refusal.

``idle -> holding -> tracking -> braking -> holding`` and ``fault``; the table is in docs/use/controller.md. Every input
(measurement, plan, box) is judged here, so that a node, the in-process episode and a test behave alike.
"""

from __future__ import annotations

import numpy as np

from safe_sysid.control.blending import BoxBlend
from safe_sysid.control.bound_status import BoundStatus
from safe_sysid.control.checks.acceptance import why_not_box
from safe_sysid.control.checks.command_watch import CommandWatch
from safe_sysid.control.checks.start import check_static_gravity, judge_rest, tracking_energy
from safe_sysid.control.coverage import Coverage
from safe_sysid.control.feed_forward import AddedTorque
from safe_sysid.control.following import PlanFollower
from safe_sysid.control.gains import ControllerGains
from safe_sysid.control.laws.law import ControlLaw
from safe_sysid.control.laws.robust import make_robust_law
from safe_sysid.control.recent_commands import RecentCommands
from safe_sysid.control.states import ControllerOutput, ControllerState
from safe_sysid.control.take_over import TAKE_OVER, choose_take_over
from safe_sysid.control.torque_rate import TorqueRate, clip_torque
from safe_sysid.control.tube import tubes_of
from safe_sysid.core.arrays import FloatArray
from safe_sysid.core.finite import all_finite
from safe_sysid.decimals import at_least, at_most
from safe_sysid.robot.config import per_joint
from safe_sysid.robot.model import RobotModel
from safe_sysid.robot.parameters import ParameterBox
from safe_sysid.trajectories.plan import Plan

__all__ = ["Controller", "ControllerOutput", "ControllerState"]

_TOLERANCE = 1e-9  # s
#: The tracking theorem looks back at the command in force and at the one before it: a command counts for two holds.
_RAMP_HOLDS = 2
#: Where the bound is not claimed, more commands are looked at before a plan begins (:class:`RecentCommands`).
_SEEN_HOLDS = 6


class Controller(PlanFollower):
    """See the module; one instance per arm and run."""

    def __init__(
        self,
        model: RobotModel,
        gains: ControllerGains,
        blend_s: float = 0.25,
        law: ControlLaw | None = None,
        added: AddedTorque | None = None,
    ) -> None:
        """Start idle with the prior box of epoch 0.

        Args:
            model: of the arm; its ``arm_prior`` is the first box.
            gains: of :func:`safe_sysid.control.gains.synthesis.synthesise`.
            blend_s: duration of the blend to a new box, s.
            law: of control; None for the robust one, the package's only one that proves the tracking bound.
            added: to the law's torque, by a feed-forward; None: nothing.
        """
        super().__init__(model)
        n = model.n
        self.gains = gains
        self.law = law or make_robust_law(model, gains)
        self.added = added
        self.bound_status = BoundStatus(model, gains, self.law, None if added is None else added.bound)
        self._blend = BoxBlend(self.box, float(blend_s), gains.assumptions.hold_max)
        self._new_epoch: ParameterBox | None = None  # the prior that a reset blends to
        self._tubes = tuple(tube for tube in tubes_of(model, gains) if isinstance(tube, ControllerGains))
        self.tube_count, self.tube = len(self._tubes), 0
        self._sent = CommandWatch(model)
        rate = per_joint(model.settings.controller.torque_rate, n)
        self._rate = TorqueRate(rate, gains.assumptions.hold_max)
        self._ramp_stamp = -np.inf  # of the last measurement whose command is not the law's but a ramp's, s
        timeout = model.settings.driver.command_timeout_s
        self.followed = Coverage(gains, min(self._watch.too_long, np.inf if timeout is None else timeout))
        self._output = ControllerOutput(None, self._hold)
        self._e, self._de, self._r = np.zeros(n), np.zeros(n), np.zeros(n)
        noise = gains.assumptions.velocity_error + gains.K_r * gains.assumptions.position_error
        self._r_noise = np.array(np.broadcast_to(noise, (n,)))
        self._recent, self._started = RecentCommands(gains, self._r_noise), -np.inf

    # -- what it does now ---------------------------------------------------------------------------------------

    @property
    def resetting(self) -> bool:
        """Whether the box grows to a prior that begins a new epoch."""
        return self._new_epoch is not None

    @property
    def blending(self) -> bool:
        """Whether a new box is being blended in."""
        return self._blend.target is not None

    @property
    def taking_over(self) -> bool:
        """Whether the command is still on its way from the torque that was in force to the law's."""
        return self._rate.taking_over

    @property
    def proved(self) -> bool:
        """Whether the tracking bound is claimed as of the last step; ``bound_status`` says why not."""
        return not self.bound_status.why_not

    @property
    def tracking_error(self) -> tuple[FloatArray, FloatArray, FloatArray]:
        """``e``, ``de``, ``r`` of the last step, measured; each (n,), reused."""
        return self._e, self._de, self._r

    @property
    def uncertainty(self) -> float:
        """S of the last step; nan if the law does not compute it."""
        return float(getattr(self.law, "uncertainty", np.nan))

    @property
    def claimed(self) -> ControllerGains:
        """The gains, with the bounds of the tube that is claimed now: the plan's, until S or another plan ends that."""
        return self._tubes[self.tube]

    # -- services -----------------------------------------------------------------------------------------------

    def start(
        self, stamp: float, q: FloatArray, qd: FloatArray, effort: FloatArray | None = None, tube: int = 0
    ) -> list[str]:
        """Leave idle or fault: hold the measured position. Returns reasons of a refusal, empty if started.

        The tracking theorem's guarantee begins here: at rest within the measurement error, ``V(0) <= V_start``.

        Args:
            stamp: of the measurement, s.
            q: (n,) measured, rad.
            qd: (n,) measured, rad/s.
            effort: (n,) measured, N m: judged against gravity, and the command departs from it without a jump. None:
                not measured, the first command is the law's.
            tube: that is claimed from the start: the pose may be held in it, with the box at hand.
        """
        if self.state.commands:
            return [f"state is {self.state.value}: expected idle or fault"]
        self._finish_reset()
        gains = self._tubes[tube]
        reasons, energy = judge_rest(self.model, gains, self._r_noise, q, qd)
        if not reasons and effort is not None and self.model.settings.controller.gravity_check:
            reasons += check_static_gravity(self.model, self.box, q, qd, effort)
        if reasons:
            return reasons
        self._hold[:] = 0.0
        self._hold[0] = q
        self.law.reset(stamp, q, qd)
        if self.added is not None:
            self.added.begin()
        self._claim(tube)
        self._recent.begin()
        self._started = stamp
        self.bound_status.begin()
        self.bound_status.hold(self.box, q)
        if effort is None:
            self._rate.release()
        else:
            wanted = self.law.step(stamp, q, qd, self._hold, self._blend.model)
            self.bound_status.step()
            if tube and not self.uncertainty <= gains.assumptions.uncertainty:
                self._claim(0)
                return [
                    f"S is {at_most(self.uncertainty)}, above what tube {tube} assumes: the pose has to be judged again"
                ]
            way, limit = wanted - effort, self.model.limits.torque
            duration, reason = choose_take_over(self.model, gains, self.box, effort, energy, way)
            if reason and self.bound_status.possible:
                self._claim(0)
                return [reason]
            self._rate.take_over(duration, np.clip(effort, -limit, limit))
        self._plan = self._next = None
        self._broken, self.stopped, self._ramp_stamp = "", False, -np.inf
        self._watch.begin(stamp, q)
        self.followed.begin(stamp, np.abs(qd) + self._r_noise)
        self._sent.clear()
        self.state, self.reason = ControllerState.HOLDING, "started"
        return []

    def silence(self) -> ControllerOutput:
        """Result of a step that commands nothing."""
        return ControllerOutput(None, self._hold)

    @property
    def status(self) -> dict[str, object]:
        """For diagnostics: law, tracking bound and feed-forward."""
        values: dict[str, object] = {"law": self.law.name, "tracking bound": self.bound_status.text}
        if self.tube:
            most = at_most(float(np.max(self.claimed.e_bound)), 3, scale=1000)
            values["tube"] = (
                f"{self.tube}, errors below {most} mrad or mm: S is at most {self.claimed.assumptions.uncertainty:.3g}"
            )
        return values if self.added is None else {**values, "feed-forward": self.added.text}

    def fault(self, reason: str) -> None:
        """Stop commanding; the arm's own brakes take over. ``start`` leaves this state."""
        self._end(ControllerState.FAULT, reason)
        self.bound_status.lose(self._watch.stamp, f"fault: {reason}")
        self.counts["fault"] += 1

    def doubt(self, why: str) -> None:
        """An assumption is known to be false: nothing is claimed until the next start."""
        self.bound_status.lose(self._watch.stamp, why)

    def release(self, reason: str) -> None:
        """Stop commanding an arm that rests: its drives hold it. ``start`` takes it over again.

        Bounds that are being reset are reset now: no torque has to stay continuous.
        """
        self._finish_reset()
        self._end(ControllerState.IDLE, reason)

    def _end(self, state: ControllerState, reason: str) -> None:
        self.state, self.reason = state, reason
        self._plan = self._next = None
        self.stopped = False  # nothing moves before a start anyway
        self._claim(0)
        self._rate.release()
        if self._new_epoch is None and (box := self._blend.finish()) is not None:
            self._take(box)

    def reset_box(self) -> str | None:
        """Begin a new epoch with the prior (a new payload); at rest only. Returns the reason of a refusal.

        While torque is commanded the box grows to the prior during a blend, so that the torque stays continuous; the
        hand may change when the new epoch is announced.
        """
        if self.state not in (ControllerState.HOLDING, ControllerState.IDLE, ControllerState.FAULT):
            return f"state is {self.state.value}: bounds are reset only at rest, while holding, idle or in fault"
        if self._new_epoch is not None:
            return "bounds are being reset already"
        if self.taking_over:  # the ramp's length was chosen for what is claimed now
            return "control is being taken over: bounds are reset once that is done"
        prior = self.model.arm_prior
        target = ParameterBox(prior.lower, prior.upper, self.box.epoch + 1, 0)
        self._next = None
        if self.state.commands:
            self._new_epoch = target
            self._blend.begin(target)
            self.bound_status.hold(target, self._hold[0])
        else:
            self._blend.use(target)
            self._take(target)
        return None

    # -- plans and boxes ----------------------------------------------------------------------------------------

    def rests_until(self, now: float) -> float:
        """Time, s, before which no plan may begin while the arm is held.

        The proof of a take-over needs rest to be desired until no command of its ramp counts any longer.

        ``now``: s.
        """
        ramp, hold = now + self._rate.left if self.taking_over else self._ramp_stamp, self.gains.assumptions.hold_max
        status = self.bound_status
        if status.possible and not (status.holds or status.lost):  # V is looked at again before a plan begins
            return max(ramp, self._started) + _SEEN_HOLDS * hold
        return ramp + _RAMP_HOLDS * hold

    def _begun(self, plan: Plan) -> None:
        self.bound_status.follow()
        self._claim(plan.tube)

    def _claim(self, tube: int) -> None:
        """Claim the bounds of another tube of the same law from now on."""
        self.tube = tube
        self.followed.use(self.claimed)
        self.bound_status.use(self.claimed)

    def _why_not_begin(self, plan: Plan, stamp: float) -> str:
        """A tube that is not claimed yet begins only where V and S have been small enough."""
        reason, status, tube = super()._why_not_begin(plan, stamp), self.bound_status, self._tubes[plan.tube]
        # What is claimed goes on, and the widest tube was not left either.
        if reason or not status.possible or (status.holds and plan.tube in (0, self.tube)):
            return reason
        if status.lost:  # nothing is claimed; a plan whose tube the arm is not in is not begun all the same
            return self._recent.why_too_large(tube) if plan.tube else ""
        reason = self._recent.why_not(tube, stamp)
        if not reason:
            status.seen()
        return reason

    def _why_not_yet(self, plan: Plan, now: float) -> str | None:
        """The ramp of a take-over must have ended."""
        rests = self.rests_until(now)
        if plan.start_time >= rests - _TOLERANCE:
            return None
        return (
            f"plan starts at {plan.start_time:.4f} s, while control is still taken over: expected a start after "
            f"{at_most(rests, places=4)} s"
        )

    def offer_box(self, box: ParameterBox, now: float, nominal: FloatArray | None = None) -> str | None:
        """Take a tighter box and blend to it; returns the reason of a refusal, None if taken.

        While nothing is commanded there is no torque that a blend would keep continuous: it is in force at once.

        Args:
            now: s; the blend begins at the next step.
            nominal: (14 n,) best estimate in it, for laws that want one; None for its centre.
        """
        reason = "bounds are being reset" if self._new_epoch is not None else None
        reason = reason or why_not_box(box, self._blend.target or self.box)
        if reason is not None:
            self.counts["bounds refused"] += 1
        elif self.state.commands:
            self._blend.begin(box, nominal)
        else:
            self._blend.use(box, nominal)
            self._take(box)
        return reason

    def _finish_reset(self) -> None:
        if self._new_epoch is not None:
            self._blend.use(self._new_epoch)
            self._take(self._new_epoch)

    def _take(self, box: ParameterBox) -> None:
        self._new_epoch = None
        if box.epoch != self.box.epoch:
            # Another payload: H, and V with it, may be another from now on.
            self._claim(0)
            self._recent.begin()
        super()._take(box)

    # -- the 1 kHz step -----------------------------------------------------------------------------------------

    def step(self, stamp: float, q: FloatArray, qd: FloatArray, effort: FloatArray | None = None) -> ControllerOutput:
        """One tick: judge the measurement, advance state and blend, compute the torque.

        Args:
            stamp: of the measurement, s.
            q: (n,) measured, in the model's joint order, continuous joints on any branch, rad.
            qd: (n,) measured, rad/s.
            effort: (n,) measured, N m: after a gap the drives may have taken over, and commands may be lost on their
                way. None: not measured.
        """
        out = self._output
        out.torque, out.announce = None, None
        if not self.state.commands:
            out.announce = self._new_epoch  # a fault came in between
            self._finish_reset()
            return out
        if not self._is_usable(stamp, q, qd):
            return out
        q, elapsed = self._watch.q, self._watch.elapsed
        if not self.followed.is_in_time(elapsed, self._watch.stamp, self.bound_status.holds):
            self.note_late(False, f"no measurement came for {1e3 * elapsed:.3g} ms")
        if elapsed > self._watch.too_long:
            self.counts["measurement gap"] += 1
            self.brake(f"no measurement for {elapsed:.3f} s")
            self._rate.take_over(TAKE_OVER, effort)
            self._sent.clear()
        if effort is not None and (j := self._sent.disagrees(effort, elapsed)) >= 0:
            found = f"effort of {self.model.joint_names[j]} is {effort[j]:.4g} {self.model.torque_units[j]}"
            self.fault(f"{found}: commands do not reach it{self._sent.gap}")
            return out
        self._advance_plan(stamp)
        reached = self._blend.advance(elapsed)
        if reached is not None:
            self._take(reached)
            out.announce = reached
        g, plan = self.claimed, self._plan
        out.reference = self._hold if plan is None else plan.trajectory.state(stamp - plan.start_time)
        out.energy = tracking_energy(
            q, qd, out.reference, g.K_r, self._r_noise, g.inertia_lower, self._e, self._de, self._r
        )
        if out.energy > g.V_max and self.bound_status.possible:
            self.fault(
                f"V is at least {at_least(out.energy)} J, above V_max = {at_most(g.V_max)} J: an assumption is false"
            )
            return out
        torque = self.law.step(stamp, q, qd, out.reference, self._blend.model)
        if plan is None and self.tube and not self.uncertainty <= g.assumptions.uncertainty:
            if self.taking_over:
                self.bound_status.lose(stamp, "S was above what the tube assumes while control was taken over")
            self._claim(0)  # a pose is held, and the box grows: no certificate speaks of S there
        if self.bound_status.step():
            self.counts["S above assumed"] += 1
        if self.bound_status.waits and not self._recent.why_not(self.claimed, stamp):
            self.bound_status.seen()
        self._command(torque, stamp, q, qd, elapsed, out)
        return out

    def note_late(self, covered: bool, what: str, age: float = 0.0) -> None:
        """A command came later than declared.

        Args:
            covered: whether the theorem covers it.
            age: of the command that was in force until then, s.
        """
        self._recent.grew_old(age)
        self.bound_status.note_late(self._watch.stamp, covered, what)

    def _command(
        self, torque: FloatArray, stamp: float, q: FloatArray, qd: FloatArray, elapsed: float, out: ControllerOutput
    ) -> None:
        """From the law's torque to the command: inside the limits, and without a jump, or not at all."""
        limit, names = self.model.limits.torque, self.model.joint_names
        if not all_finite(torque):
            self.fault(f"torque not finite: {torque.tolist()}")
            return
        clipped = clip_torque(torque, limit, self.model)
        if clipped:
            self.counts["saturation"] += 1
        if self.added is not None:
            self._add(self.added, torque, stamp, q, qd, elapsed, out.reference)
        j = self._rate.next(torque, elapsed)
        # What the rate cuts is a mix with the command before.
        if self.taking_over or (j >= 0 and self._ramp_stamp >= stamp - elapsed - _TOLERANCE):
            self._ramp_stamp = stamp
        own = j < 0 and not (clipped or self._rate.taking_over)
        self._recent.note(stamp, self._e, self._r, self.uncertainty if own else np.inf, elapsed)
        if j < 0:
            known = np.inf if self._rate.taking_over else self.uncertainty
            self.followed.note(stamp, np.abs(self._r) + self._r_noise, known)
        else:
            self.counts["torque rate cut"] += 1
            self.followed.cut(stamp, self.uncertainty)
            acts = stamp + self.gains.assumptions.hold_max
            if self.bound_status.possible and not (self.followed.lost or self.followed.covers(acts)):
                self.fault(
                    f"torque of {names[j]} would have to change faster than "
                    f"{self._rate.rate[j]:g} {self.model.torque_units[j]}/s: "
                    "the tracking bound does not hold any longer"
                )
                return
        out.torque = torque
        self._sent.note(torque)
        if clipped:
            self.brake(clipped)
            if self.state is ControllerState.BRAKING:
                self._broken = self._broken or clipped
            else:
                self.fault(clipped)

    def _add(
        self,
        added: AddedTorque,
        torque: FloatArray,
        stamp: float,
        q: FloatArray,
        qd: FloatArray,
        elapsed: float,
        reference: FloatArray,
    ) -> None:
        """What a feed-forward adds to the law's torque (inside the limits), as far as the limits leave room for it."""
        if self.taking_over:
            added.withdraw()  # the proof of a take-over knows of no other torque
            return
        added.next(stamp, q, qd, reference, elapsed)
        if added.why_not:
            self.counts[added.why_not] += 1
        torque += added.torque
        np.clip(torque, -self.model.limits.torque, self.model.limits.torque, out=torque)
