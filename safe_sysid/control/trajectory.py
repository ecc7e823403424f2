r"""Control through the arm's own trajectory controller: certified quintics as points, the measured tube watched.

Every message ends at rest: it holds the plan under way and, if one was accepted, the next plan from the hand-over on.
The braking tail is the last segment, so that silence ends in a certified stop. A quintic is determined by position,
velocity and acceleration at two of its points: a controller that interpolates by quintics follows the plan exactly.

The watch compares each sample with the plan. Beyond the inner tube the arm brakes along its certified tail; a sample
that proves that the outer tube was left ends the claim from there ("Trajectory interface" in
docs/understand/guarantees.md).
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from safe_sysid.control.checks.acceptance import why_not_box
from safe_sysid.control.checks.start import check_static_gravity
from safe_sysid.control.following import PlanFollower
from safe_sysid.control.states import ControllerState
from safe_sysid.control.tube import MeasuredTube
from safe_sysid.core.arrays import FloatArray
from safe_sysid.decimals import at_least, at_most
from safe_sysid.robot.config import per_joint
from safe_sysid.robot.model import RobotModel
from safe_sysid.robot.parameters import ParameterBox
from safe_sysid.trajectories.plan import Plan

__all__ = ["SPACING_S", "TrajectoryController", "TrajectoryOutput", "TrajectoryPoints", "notice_of", "points_of"]

#: Between two points of what is sent, s.
SPACING_S = 0.1
#: From a message's arrival to its first point, s: a controller that begins beside the plan has this long to come back.
BLEND_S = 0.15
#: After a start, s: so slowly the arm's set point goes to where the arm was measured, which it holds from then on. No
#: plan begins before that: its message would take the set point there in :data:`BLEND_S`, and the arm out of its tube.
SETTLE_S = 0.8
_SHORTEST = 1e-3  # s, between two points
_TOLERANCE = 1e-9  # s


@dataclass(frozen=True, eq=False)
class TrajectoryPoints:
    """What a trajectory controller gets."""

    times: FloatArray  #: (K,) increasing, on the clock of the measurements, s
    knots: FloatArray  #: (K, 3, n) position, velocity, acceleration; the last one at rest


@dataclass
class TrajectoryOutput:
    """Result of one step."""

    reference: FloatArray  #: (4, n) desired position .. jerk.
    send: TrajectoryPoints | None = None  #: what is to be sent now, or None
    announce: ParameterBox | None = None  #: the box to announce as ``bounds_active``, or None
    energy: float = float("nan")  #: nan: there is no theorem here; so that records have the same columns
    commanding: bool = False  #: whether the arm is under control after this step
    torque: None = None  #: None: none is commanded here

    @property
    def command(self) -> TrajectoryPoints | None:
        """What goes to the arm, or None: it goes on with what it has."""
        return self.send


def points_of(plans: list[Plan], start: float) -> TrajectoryPoints:
    """Points from ``start`` (s) on, along plans that take over from one another, to rest at the last one's end.

    ``plans``: the one under way first; each begins at the hand-over of the one before.
    """
    times: list[float] = []
    knots: list[FloatArray] = []
    for i, plan in enumerate(plans):
        first = max(start, plan.start_time)
        last = plans[i + 1].start_time if i + 1 < len(plans) else plan.end_time
        own = [t for t in (plan.start_time + plan.trajectory.times).tolist() if first < t < last]
        bounds = [first, *own, last]
        for a, b in pairwise(bounds):
            if not b - a > 0.0:
                continue
            times += np.linspace(a, b, max(int(np.ceil((b - a) / SPACING_S)), 1) + 1)[:-1].tolist()
        knots += [plan.trajectory.state(t - plan.start_time)[:3] for t in times[len(knots) :]]
    end = plans[-1]
    rest = np.zeros((3, end.trajectory.n))
    rest[0] = end.trajectory.knots[-1, 0]
    times.append(max(end.end_time, start))
    knots.append(rest)
    # A point that is all but another one is left out: a spline through both would be of noise.
    keep = [*(b - a >= _SHORTEST for a, b in pairwise(times)), True]
    return TrajectoryPoints(np.array(times)[keep], np.array(knots)[keep])


def notice_of(model: RobotModel) -> float:
    """From a decision until an arm that follows trajectories follows what was sent for it, s; 0 for other arms."""
    control = model.settings.controller
    if control.interface != "trajectory" or control.tube is None:
        return 0.0
    return control.tube.latency_s + 2.0 / model.settings.measurement.rate_hz + BLEND_S


class TrajectoryController(PlanFollower):
    """One instance per arm and run."""

    def __init__(self, model: RobotModel, tube: MeasuredTube) -> None:
        """Start idle. ``tube``: of :func:`~safe_sysid.control.tube.measured_tube`."""
        super().__init__(model)
        n, measured = model.n, model.settings.measurement
        self.tube = tube
        self.period, self.notice = 1.0 / measured.rate_hz, notice_of(model)
        self.claim_lost: list[str] = []
        self._losses = 0  # of them, before the last start
        self._last: TrajectoryPoints | None = None  # to be sent, whatever the state
        stamp = measured.stamp_error_s  # the plan is looked up at a stamp that is off by this
        self._dq = model.position_error + 1e-12 + model.limits.velocity * stamp
        self._dv = per_joint(measured.velocity_error, n) + 1e-12 + model.acceleration_bound * stamp
        self._e = np.zeros(n)  # of the last sample
        self._de: FloatArray | None = None
        self._outside = ""
        self._late_stop = ""  # the next plan is under way to the arm already: brake as soon as it has begun
        self._settled = -np.inf  # when the set point is where the arm was measured, s
        self._announce: ParameterBox | None = None
        self._output = TrajectoryOutput(self._hold)
        self._resend = self._settle = False

    @property
    def proved(self) -> bool:
        """Whether the tube is claimed as of the last step."""
        return len(self.claim_lost) == self._losses

    @property
    def blending(self) -> bool:
        """Whether a box is to be announced with the next step."""
        return self._announce is not None

    @property
    def status(self) -> dict[str, object]:
        """For diagnostics: where the tube comes from, and since when it is not claimed, if so."""
        lost = "held" if self.proved else f"lost at {self.claim_lost[self._losses]}"
        return {"law": "the arm's own", "measured tube": lost, "tube of": self.tube.origin}

    @property
    def tracking_error(self) -> tuple[FloatArray, FloatArray]:
        """``e``, ``de`` of the last step, measured; each (n,)."""
        return self._e, np.zeros_like(self._e) if self._de is None else self._de

    def silence(self) -> TrajectoryOutput:
        """Result of a step that sends nothing."""
        return TrajectoryOutput(self._hold)

    @property
    def uncertainty(self) -> float:
        """Nan: nothing here depends on S."""
        return float("nan")

    def rests_until(self, now: float) -> float:
        """Time, s, before which no plan may begin while the arm is held: a message must come before it. ``now``: s."""
        return max(now + self.notice, self._settled)

    def _why_not_yet(self, plan: Plan, now: float) -> str | None:
        """The set point must be where the arm was measured."""
        if plan.start_time >= self._settled - _TOLERANCE:
            return None
        return (
            f"plan starts at {plan.start_time:.4f} s, while the arm's set point is brought to its pose: expected a "
            f"start after {at_most(self._settled, places=4)} s"
        )

    def start(
        self,
        stamp: float,
        q: FloatArray,
        qd: FloatArray,
        effort: FloatArray | None = None,
        desired: FloatArray | None = None,
        tube: int = 0,
    ) -> list[str]:
        """Leave idle or fault: hold the arm. Returns reasons of a refusal, empty if started.

        Args:
            stamp: of the measurement, s.
            q, qd: (n,) measured, rad and rad/s.
            effort: (n,) measured, N m: judged against gravity; None: not measured.
            desired: (n,) position that the arm's controller holds, rad; None: not known. Then the arm is to hold the
                measured one, to which the next step's message brings its set point in :data:`SETTLE_S`: the way is no
                longer than the tube is wide, as the arm is at rest.
            tube: what :meth:`.Controller.start` takes; there is but one measured tube.
        """
        if self.state.commands:
            return [f"state is {self.state.value}: expected idle or fault"]
        if not (np.isfinite(q).all() and np.isfinite(qd).all()):
            return ["measurement is not finite"]
        settle, desired = desired is None, np.array(q if desired is None else desired)
        reasons = []
        for j, name in enumerate(self.model.joint_names):
            for what, error, most in (
                ("position", abs(desired[j] - q[j]) + self._dq[j], self.tube.inner_e[j]),
                ("velocity", abs(qd[j]) + self._dv[j], self.tube.inner_de[j]),
            ):
                if not error <= most:
                    reasons.append(
                        f"{name}: {what} may be off rest by {at_most(error)}: expected at most {at_least(most)}, the "
                        "inner tube"
                    )
        if not reasons and effort is not None and self.model.settings.controller.gravity_check:
            reasons += check_static_gravity(self.model, self.box, q, qd, effort)
        if reasons:
            return reasons
        self._hold[:] = 0.0
        self._hold[0] = desired
        self._plan = self._next = None
        self._broken, self._late_stop, self._outside, self.stopped = "", "", "", False
        self._de, self._resend, self._settle = None, False, settle
        self._last, self._losses = None, len(self.claim_lost)
        self._settled = stamp + SETTLE_S + self.period if settle else -np.inf  # the next step sends it there
        self._watch.begin(stamp, q)
        self.state, self.reason = ControllerState.HOLDING, "started"
        return []

    def fault(self, reason: str) -> None:
        """Send nothing any more: what was sent last ends at rest. ``start`` leaves this state."""
        self.state, self.reason = ControllerState.FAULT, reason
        self._plan = self._next = None
        self.stopped = False
        self._lose(f"fault: {reason}")
        self.counts["fault"] += 1
        self._take_pending()

    def emergency_stop(self) -> None:
        """Take the next plan back if there is time, so that the arm ends in the nearest certified stop; then fault.

        Nothing that is certified stops sooner: the arm's own emergency stop does.
        """
        plan = self._plan
        early = self._next is not None and plan is not None and self._watch.stamp + self.notice <= plan.hand_over_time
        last = points_of([plan], self._watch.stamp + self.notice - 2.0 * self.period) if early and plan else None
        self.fault("emergency stop")
        self._last = last

    def doubt(self, why: str) -> None:
        """An assumption is known to be false: nothing is claimed until the next start."""
        self._lose(why)

    def release(self, reason: str) -> None:
        """Let go of an arm that rests: its own controller goes on holding it. ``start`` takes it over again."""
        self._plan = self._next = None
        self.stopped = False
        self.state, self.reason = ControllerState.IDLE, reason
        self._take_pending()

    def _take_pending(self) -> None:
        """A box that was to be announced with the next step: while nothing is sent there may be none for long."""
        if self._announce is not None:
            self._take(self._announce)
            self._announce = None

    def _lose(self, why: str, before: float = 0.0) -> None:
        """The tube is claimed no more, from the last usable measurement on, or from so long ``before`` (s)."""
        self.claim_lost.append(f"{self._watch.stamp - before:.3f} s: {why}")

    def offer_plan(self, plan: Plan, now: float) -> str | None:
        """Take a plan for the next hand-over and send it; returns the reason of a refusal, None if taken.

        ``now``: s.
        """
        begins = self._plan.hand_over_time if self.state is ControllerState.TRACKING and self._plan else plan.start_time
        reason = None
        if self._outside:
            reason = f"the inner tube was left: {self._outside}"
        elif self._late_stop or self._next is not None:
            reason = "another plan is on its way to the arm"
        elif now + self.notice > begins + _TOLERANCE:
            reason = (
                f"plan starts at {begins:.4f} s, now is {now:.4f} s: expected {self.notice:.3f} s before, for the "
                "arm's controller to have it in time"
            )
        if reason is not None:
            self.counts["plan refused"] += 1
            return reason
        reason = super().offer_plan(plan, now)
        self._resend |= reason is None
        return reason

    def brake(self, reason: str) -> None:
        """Brake along the certified tail: of the plan under way, or of the next if it is too late to take that back."""
        plan = self._plan
        if self._next is not None and plan is not None and self._watch.stamp + self.notice > plan.hand_over_time:
            self._late_stop = self._late_stop or reason
            return
        if self._next is not None:
            self._resend = True  # what was sent holds the next plan
        super().brake(reason)

    def offer_box(self, box: ParameterBox, now: float, nominal: FloatArray | None = None) -> str | None:
        """Take a tighter box, announced with the next step; returns the reason of a refusal, None if taken.

        While nothing is sent to the arm it is taken at once.

        ``now`` (s) and ``nominal`` (14 n,) are what :meth:`.Controller.offer_box` takes; neither matters here.
        """
        reason = why_not_box(box, self._announce or self.box)
        if reason is not None:
            self.counts["bounds refused"] += 1
        else:
            self._announce = box
            if not self.state.commands:
                self._take_pending()
        return reason

    def reset_box(self) -> str | None:
        """Begin a new epoch with the prior (a new payload); at rest only. Returns the reason of a refusal."""
        if self.state not in (ControllerState.HOLDING, ControllerState.IDLE, ControllerState.FAULT):
            return f"state is {self.state.value}: bounds are reset only at rest, while holding, idle or in fault"
        prior = self.model.arm_prior
        self._next = None
        self._announce = ParameterBox(prior.lower, prior.upper, self.box.epoch + 1, 0)
        if not self.state.commands:
            self._take_pending()
        return None

    def step(self, stamp: float, q: FloatArray, qd: FloatArray, effort: FloatArray | None = None) -> TrajectoryOutput:
        """One sample: judge it, advance the state, watch the tube, say what to send.

        Args:
            stamp: of the measurement, s.
            q: (n,) measured, continuous joints on any branch, rad.
            qd: (n,) measured, rad/s.
            effort: not looked at here.
        """
        out = self._output
        out.send, out.announce, out.commanding = self._last, self._announce, False
        self._last = None
        self._take_pending()
        if not self.state.commands or not self._is_usable(stamp, q, qd):
            return out
        q, elapsed = self._watch.q, self._watch.elapsed
        if elapsed > 1.5 * self.period:
            self.counts["samples missing"] += 1
            self._de = None
        if elapsed > self._watch.too_long:
            self.counts["measurement gap"] += 1
            self._lose(f"no measurement for {elapsed:.3f} s: the tube was not watched", elapsed)
            self.brake(f"no measurement for {elapsed:.3f} s")
        self._advance_plan(stamp)
        if not self.state.commands:  # the tail of a plan whose claim was lost is over
            return out
        if self._late_stop and self._next is None:
            reason, self._late_stop = self._late_stop, ""
            super().brake(reason)
        out.reference = self._hold if self._plan is None else self._plan.trajectory.state(stamp - self._plan.start_time)
        self._look(q, qd, out.reference, elapsed)
        out.commanding = self.state.commands
        if out.commanding and self._resend:
            out.send = self._points(stamp)
        elif out.commanding and self._settle:
            out.send = TrajectoryPoints(np.array([stamp + SETTLE_S]), self._hold[None, :3].copy())
        self._resend = self._settle = False
        return out

    def _points(self, now: float) -> TrajectoryPoints | None:
        plans = [plan for plan in (self._plan, self._next) if plan is not None]
        return points_of(plans, now + self.notice - 2.0 * self.period) if plans else None

    def _look(self, q: FloatArray, qd: FloatArray, reference: FloatArray, elapsed: float) -> None:
        """Compare a sample with the plan: inner tube left (possibly), outer tube left (certainly)."""
        tube, names = self.tube, self.model.joint_names
        self._e, de = reference[0] - q, reference[1] - qd
        e = np.abs(self._e)
        rate = np.zeros_like(e)
        if self._de is not None and elapsed > 0.0:
            # The mean over the step: what is above the outer tube was above it at some instant.
            rate = np.abs(de - self._de) / elapsed - 2.0 * self._dv / elapsed
        self._de = de
        speed = np.abs(de)
        left = (
            ("position", e - self._dq, tube.e_bound),
            ("velocity", speed - self._dv, tube.de_bound),
            ("acceleration", rate, tube.dde_bound),
        )
        for what, least, most in left:
            if not np.all(least <= most):
                j = int(np.argmax(least - most))
                why = f"{what} of {names[j]} is off by at least {at_least(least[j])}, outer tube {at_most(most[j])}"
                self.counts["outer tube left"] += 1
                if not self._broken:
                    self._lose(why, elapsed)  # since the last sample nobody knows
                self._broken = self._broken or why
                self.brake(why)
                if self._plan is None:
                    self.fault(why)
                return
        self._outside = ""
        for what, found, most in (
            ("position", e + self._dq, tube.inner_e),
            ("velocity", speed + self._dv, tube.inner_de),
        ):
            if not np.all(found <= most):
                j = int(np.argmax(found - most))
                self._outside = f"{what} of {names[j]} off by {at_most(found[j])}, inner tube {at_most(most[j])}"
                self.counts["inner tube left"] += 1
                self.brake(self._outside)
                return
