"""Plan scheduler: when to request which plan, and what to do with the answer (PSO, Algorithm 2).

It calls no ROS and has no clock of its own: references and boxes go in, plans and lines for people come out
(:class:`~.scheduler_parts.SchedulerOutput`). Plan j+1 is requested when plan j begins, from the state at plan j's
hand-over. What differs between lock-step and real time is in :mod:`.timing`.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from safe_sysid.core.arrays import FloatArray
from safe_sysid.nodes.common.messages.contents import JointSample
from safe_sysid.nodes.common.messages.time_base import TimeBase, to_ns
from safe_sysid.nodes.planner.objectives import ExcitationObjective, PlanObjective, PlanStart, TaskObjective
from safe_sysid.nodes.planner.plan_requests import PlanRequests
from safe_sysid.nodes.planner.scheduler_parts import (
    Answer,
    OpenRequest,
    PlanSolver,
    PublishedPlan,
    SchedulerOutput,
    SchedulerSettings,
    begin_at,
)
from safe_sysid.nodes.planner.timing import PlanTiming, RealTimePlanTiming
from safe_sysid.planning.results import hand_over_state
from safe_sysid.planning.solver_process.jobs import Step
from safe_sysid.robot.parameters import ParameterBox

__all__ = ["PlanScheduler"]

#: Reference and plan are the same motion if positions agree to this, rad; looked at this long after the hand-over, ns.
_SAME, _SETTLED = 1e-7, 50_000_000
#: A reference that is older than the last by more than this is of another time, s.
_BACK = 0.2
#: So many failures end a task; the solver itself says earlier when a search is in vain, pauses included.
_TASK_ATTEMPTS = 60


class PlanScheduler:
    """One objective at a time, one plan after another.

    Attributes:
        objective: what the plans are for; None: nothing is planned.
        failure: why the last exciting trajectories were given up; "" if they were not.
        sequence: number of the next plan.
        active: whether anything may be planned at all.
    """

    def __init__(
        self, settings: SchedulerSettings, output: SchedulerOutput, solver: PlanSolver, time_base: TimeBase
    ) -> None:
        """Nothing is planned before :meth:`activate`, and :meth:`start` or :meth:`go`."""
        self._settings, self._output, self._solver, self._time = settings, output, solver, time_base
        self._timing = (PlanTiming if settings.lockstep else RealTimePlanTiming)(settings, output)
        self._requests = PlanRequests(self._timing, solver, output, self._conclude)
        self.objective: PlanObjective | None = None
        self.text, self.outcome, self.sequence = "waiting for the controller", "", 0
        self.failure = ""
        self._boxes: dict[str, ParameterBox] = {}
        self._offered: PublishedPlan | None = None  # the last one
        self._trigger: JointSample | None = None  # the reference that begins the next request
        self._latest: JointSample | None = None
        self._hopeless = ""  # box that no plan was found for
        self._resume, self._next_start = 0, settings.first_ns  # not before; and in lock-step, from when
        self._moving_until = 0  # end of the last plan
        self._tasks, self._losses = 0, 0
        self._widest = False  # a plan of a narrower tube was not begun
        self.active = False

    @property
    def busy(self) -> bool:
        """Whether the solver is looking for a plan."""
        return self._requests.open is not None

    @property
    def phase(self) -> str:
        """``excitation``, ``task`` or ``over``."""
        return "over" if self.objective is None else self.objective.purpose

    # -- inputs -------------------------------------------------------------------------------------------------

    def on_box(self, box: ParameterBox) -> None:
        """The controller works with this box now."""
        self._boxes[box.identity] = box
        self._consider()

    def activate(self) -> None:
        """From now on plans may be requested."""
        self.active = True

    def deactivate(self) -> None:
        """Nothing is planned, whoever asks."""
        self.stop()
        self.active = False

    def on_reference(self, sample: JointSample) -> None:
        """The controller's reference, and by ``frame_id`` its box."""
        self._time.seconds(sample.stamp_ns)
        self._note_time(sample)
        self._note_gap(sample)
        self._latest = sample
        if self.objective is None or self._lost(sample):
            return
        if not self.busy and self._is_time(sample) and (self._trigger is None or self._outdated(sample)):
            self._trigger = sample
        self._consider()

    def _outdated(self, sample: JointSample) -> bool:
        """Whether the reference that waits for its box waits in vain: a late listener hears of the newest box only."""
        trigger = self._trigger
        if trigger is None or trigger.frame_id in self._boxes:
            return False
        return self._timing.may_replace(trigger, sample)

    def _note_time(self, sample: JointSample) -> None:
        """Stop if time went back (another simulation, or a clock that was set): no plan's time is valid any more."""
        if self._latest is None or self._latest.stamp_ns - sample.stamp_ns <= to_ns(_BACK):
            return
        self.stop("time went back, ~/start begins again")
        self._latest = None
        self._moving_until = self._resume = 0

    def _note_gap(self, sample: JointSample) -> None:
        """Real time: if the controller commanded nothing meanwhile (a fault, a deactivation), old requests end."""
        previous = None if self._latest is None else self._latest.stamp_ns
        self._abandon(self._timing.silence_between(previous, sample.stamp_ns))

    def _abandon(self, silence: float) -> None:
        if silence and self.objective is not None:
            self.stop(f"the controller commanded nothing for {silence:.1f} s, ~/start begins again")

    def forget_boxes(self) -> None:
        """The controller has another configuration: its boxes mean nothing here."""
        self._boxes.clear()

    def set_plans(self, plans: int) -> None:
        """Change how many exciting trajectories a run has that begins later."""
        self._settings = replace(self._settings, plans=plans)

    def _is_time(self, sample: JointSample) -> bool:
        """At rest for the first plan; at the hand-over to the last plan for the next one."""
        if self._offered is not None:
            return sample.stamp_ns >= self._offered.start_ns
        at_rest = not np.any(sample.qd) and sample.frame_id != self._hopeless
        ready = self._solver.ready or not self._timing.needs_ready
        return at_rest and sample.stamp_ns >= self._resume and ready

    def _lost(self, sample: JointSample) -> bool:
        """Whether the arm does not follow the plan; then nothing can be planned before it is at rest."""
        offered, objective = self._offered, self.objective
        if offered is None or objective is None:
            return False
        since = sample.stamp_ns - offered.start_ns
        if not _SETTLED <= since <= self._settings.t_p_ns:
            return False
        if np.max(np.abs(offered.plan.trajectory.state(since / 1e9)[0] - sample.q)) <= _SAME:
            return False
        self._not_followed(offered, objective, sample.frame_id)
        return True

    def _not_followed(self, offered: PublishedPlan, objective: PlanObjective, identity: str) -> None:
        self.text = f"the controller does not follow plan {offered.plan.sequence}"
        self._output.refuse("reference", "not followed", self.text)
        self._widest = offered.plan.tube > 0  # the controller says why it was not begun; the widest it can always begin
        start = offered.start_ns + self._settings.t_p_ns
        if self.busy:
            self._requests.drop()
        if self._losses < self._timing.free_losses:  # the solver found a plan: it is worth another try
            self._losses, objective.attempts = self._losses + 1, objective.attempts + 1
        self._go_on_at_rest(objective, start, identity, "the controller did not follow")
        if isinstance(self.objective, ExcitationObjective) and self._latest is not None:
            # The controller may wait for the successor of a plan of a planner that died: none comes, and it brakes.
            self._tell_none(self._latest.stamp_ns - 1, identity, self._latest.stamp_ns)

    def _consider(self) -> None:
        """Ask for a plan if it is time and the box in force is known."""
        trigger, objective, timing = self._trigger, self.objective, self._timing
        if trigger is None or objective is None or trigger.frame_id not in self._boxes:
            return
        self._trigger, previous, box = None, self._offered, self._boxes[trigger.frame_id]
        start: int | None
        if previous is None:
            state = np.stack([trigger.q, np.zeros_like(trigger.q), np.zeros_like(trigger.q)])
            start = timing.start_at_rest(self._next_start, trigger.stamp_ns)
            if start == trigger.stamp_ns:
                start += self._settings.t_p_ns
                self._tell_none(trigger.stamp_ns, trigger.frame_id, start)  # nobody waits for it yet
        else:
            state, start = hand_over_state(previous.plan), previous.start_ns + self._settings.t_p_ns
            self._widest = False
            if timing.is_late(start, trigger.stamp_ns):
                self._not_followed(previous, objective, trigger.frame_id)
                return
            if objective.pauses():
                self._pause(previous, start, box, objective)
                return
        reason = objective.over(self._boxes.values(), box)
        if reason:
            self._finish(objective, start or trigger.stamp_ns, box.identity, reason)
            return
        due = timing.due(start, objective.patient)
        under_way = None if previous is None else previous.plan
        begins = self._time.seconds(trigger.stamp_ns if start is None else start)
        situation = PlanStart(state, begins, box, self.sequence, under_way, timing.deadline(due), self._widest)
        self.text = f"planning {situation.sequence} for {situation.start_time:.3f} s"
        self._requests.ask(OpenRequest(objective, situation, start, due))

    # -- answers of the solver ----------------------------------------------------------------------------------

    def watch(self) -> None:
        """Call often. Real time: a silent controller ends the run; a search that is due ends with its best plan."""
        self._abandon(self._timing.silence())
        self._requests.watch()

    def _conclude(self, request: OpenRequest, step: Step) -> None:
        objective, result, box = request.objective, step.result, request.situation.box
        start = request.start_ns
        if start is None:  # the same motion, whenever it begins
            start = self._output.now_ns() + to_ns(self._settings.margin)
            result = begin_at(result, self._time.seconds(start))
        if result.plan is not None:
            self.text = self._output.publish_plan(start, box, result, objective.purpose)
            self._offered, self.sequence = PublishedPlan(result.plan, start), self.sequence + 1
            self._moving_until = self._offered.end_ns
            objective.planned(step)
            objective.answer(True, self.text)
        elif objective.over((), box) == "arrived":
            self._finish(objective, start, box.identity, "arrived")
        else:
            self._output.note_failure(start, box, result, objective.purpose)
            self._no_plan(request, start, step)

    # -- ends ---------------------------------------------------------------------------------------------------

    def _tell_none(self, start: int, identity: str, next_ns: int | None = None) -> None:
        """Lock-step: an answer, so that time goes on. Real time: silence, the arm brakes."""
        if self._timing.answers_always:
            self._output.publish_none(start, identity, next_ns)

    def _rest_until(self, resume: int) -> int:
        """The next plan is made at ``resume`` (ns), at rest; returns when it begins."""
        self._offered, self._trigger = None, None
        self._resume, self._next_start = resume, resume + self._settings.t_p_ns
        return self._next_start

    def _pause(self, offered: PublishedPlan, start: int, box: ParameterBox, objective: PlanObjective) -> None:
        """The plan under way is driven to its end; there it goes on."""
        following = self._rest_until(offered.end_ns)
        self._tell_none(start, box.identity, None if objective.last_stop() else following)

    def _finish(self, objective: PlanObjective, start: int, identity: str, reason: str) -> None:
        """No further trajectory is wanted: the controller brakes along the last one."""
        offered = self._offered
        self._end(objective, f"{objective.purpose} finished after {self.sequence} plans: {reason}", reason)
        objective.answer(reason == "arrived", reason)
        self._tell_none(start, identity, self._goal_after(objective, start if offered is None else offered.end_ns))
        self._output.say(self.text)

    def _end(self, objective: PlanObjective, text: str, outcome: str) -> None:
        self.objective, self._offered, self._trigger, self.text = None, None, None, text
        self.outcome = outcome if isinstance(objective, TaskObjective) else ""

    def _goal_after(self, objective: PlanObjective, rest: int) -> int | None:
        """After the exciting trajectories, at rest from ``rest`` on, to a goal, if wanted; returns when that begins."""
        settings, origin = self._settings, self._time.origin_ns
        if settings.then_goal is None or not isinstance(objective, ExcitationObjective):
            return None
        batches = -(-(rest - origin) // settings.update_ns) + self._timing.more_batches
        self._begin_task(settings.then_goal[None])
        return self._rest_until(origin + batches * settings.update_ns + settings.digest_ns)

    def _no_plan(self, request: OpenRequest, start: int, step: Step) -> None:
        objective, situation, status = request.objective, request.situation, step.result.status
        reason, self._widest = "; ".join((status.value, *step.result.reasons)), False
        self.text = f"no plan for {self._time.seconds(start):.3f} s: {reason}"
        self._output.refuse("planning", "no plan", self.text)
        hurried = isinstance(objective, ExcitationObjective) and objective.refused(step)
        hurried = hurried and self._timing.may_retry_at_rest(status)
        if hurried:
            # A search in motion had a deadline and may be repeated at rest. One at rest had all the time that it gets.
            objective.attempts = 1 if situation.previous is None else objective.attempts + 1
        self._go_on_at_rest(objective, start, situation.box.identity, reason)
        if isinstance(self.objective, ExcitationObjective) and not hurried:
            self._hopeless = situation.box.identity  # once at rest, with a smaller box, it may work

    def _go_on_at_rest(self, objective: PlanObjective, start: int, identity: str, reason: str) -> None:
        """There is no plan for the hand-over at ``start``: from where the arm comes to rest, if at all."""
        rest = start if self._offered is None else self._offered.end_ns
        objective.lost()
        self._offered, self._trigger = None, None
        following = None
        if not self._count_failure(objective, reason):
            following = self._goal_after(objective, rest)
        elif isinstance(objective, TaskObjective):
            following = self._rest_until(rest)
        self._tell_none(start, identity, following)

    def _count_failure(self, objective: PlanObjective, reason: str) -> bool:
        """Whether the objective goes on after one more failure."""
        objective.attempts -= 1
        given_up = objective.over((), next(iter(self._boxes.values()))) if isinstance(objective, TaskObjective) else ""
        if objective.attempts > 0 and not given_up:
            return True
        if isinstance(objective, ExcitationObjective):
            self.failure = self.text = (
                f"excitation failed after {self.sequence} plans, {objective.left} more were wanted: {reason}"
            )
            self._output.say(self.text)
        self._end(objective, self.text, given_up or reason)
        objective.answer(False, given_up or reason)
        return False

    def _begin_task(self, waypoints: FloatArray, answer: Answer | None = None) -> None:
        self._tasks, self._losses = self._tasks + 1, 0
        self.outcome, self._hopeless = "", ""
        self.objective = TaskObjective(self._tasks, waypoints, _TASK_ATTEMPTS, self._settings.seed, answer)

    # -- requests of people --------------------------------------------------------------------------------------

    def not_ready(self) -> str:
        """Why nothing new can be begun now; "" if it can."""
        if not self.active:
            return "the planner is not active: expected it to be"
        if silence := self._timing.silence():
            return f"no reference for {silence:.1f} s: expected a controller that commands"
        if self.objective is not None:
            return f"{self.text}: expected nothing to be planned (~/stop ends it)"
        ready = self._solver.ready
        return self.not_at_rest() or ("" if ready else "the solver process starts: expected it to be ready")

    def not_at_rest(self) -> str:
        """Why the arm moves, or may in a moment; "" if it rests and nothing is planned."""
        sample = self._latest
        if self.busy or self._offered is not None:
            return f"{self.text}: expected no plan under way"
        if sample is None or sample.frame_id not in self._boxes:
            return "nothing known of the arm: expected the controller's reference and bounds_active"
        # A motion begins and ends with a reference that stands still.
        if np.any(sample.qd != 0.0) or sample.stamp_ns < self._moving_until:
            end = self._time.seconds(self._moving_until)
            fast = np.max(np.abs(sample.qd))
            return f"the arm moves, until {end:.3f} s, now at {fast:.3g} rad/s: expected it at rest"
        return ""

    def scene_changed(self) -> None:
        """What could not be planned may be possible now."""
        self._hopeless = ""

    def rest(self) -> tuple[JointSample, ParameterBox]:
        """Where the arm rests, and the box in force; only when ready."""
        sample = self._latest
        if sample is None:
            raise RuntimeError("nothing known of the arm: expected to be asked only when ready")
        return sample, self._boxes[sample.frame_id]

    def go(self, waypoints: FloatArray, answer: Answer) -> None:
        """Begin a task; (W, n) rad."""
        if not self.active:
            answer(False, "the planner is not active: expected it to be")
            return
        sample, _ = self.rest()
        self._begin_task(waypoints, answer)
        self._tell_none(sample.stamp_ns, sample.frame_id, self._rest_until(sample.stamp_ns))

    def start(self) -> str | None:
        """Begin exciting trajectories (again); why not, if not."""
        if not self.active:
            return "the planner is not active: expected it to be"
        if self.objective is not None:
            return "planning already"
        self._timing.forget_references()
        self.objective, self.failure = ExcitationObjective(self._settings.plans, self._timing.attempts), ""
        self._rest_until(0 if self._latest is None else self._latest.stamp_ns)
        # In lock-step the first plan of all begins when the controller awaits it.
        self._next_start = self._settings.first_ns if self._latest is None else 0
        self._hopeless, self._losses = "", 0
        if self._settings.lockstep and self._latest is not None:
            self.on_reference(self._latest)  # there may be no other before it is answered
        return None

    def tell_idle(self) -> None:
        """Lock-step: the first plan that the controller waits for will not come by itself."""
        self._tell_none(self._settings.first_ns, "0:0")

    def stop(self, reason: str = "stopped") -> None:
        """No further plan; the arm brakes along the one under way."""
        objective, request, offered = self.objective, self._requests.open, self._offered
        if objective is None:
            return
        self._end(objective, f"{reason}, after {self.sequence} plans", reason)
        self._requests.drop()
        objective.answer(False, reason)
        if reason != "stopped":
            self._output.say(self.text)
        identity = next(iter(self._boxes), "0:0") if self._latest is None else self._latest.frame_id
        if request is not None and request.start_ns is not None:
            self._tell_none(request.start_ns, identity)
        elif offered is not None:
            self._tell_none(offered.start_ns + self._settings.t_p_ns, identity)
        elif self._next_start:
            self._tell_none(self._next_start, identity)  # announced, and not asked for yet
