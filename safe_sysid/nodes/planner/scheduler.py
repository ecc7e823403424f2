"""Plan scheduler: when to request which plan, and what to do with the answer (PSO, Algorithm 2). No ROS calls.

Plan j+1 is asked for when plan j begins, from the state at plan j's hand-over. Real time: what is certified by then is
published a margin before the hand-over, whatever the solver does; if nothing is, nothing is published, and the arm
brakes along the certified tail. Lock-step: simulated time waits for the answer, so there always is one.
"""

from __future__ import annotations

import time
from dataclasses import replace
from functools import partial

import numpy as np
from numpy.typing import NDArray

from safe_sysid.nodes.common.messages import JointSample
from safe_sysid.nodes.common.time_base import TimeBase, to_ns
from safe_sysid.nodes.planner.goal_server import Answer, last_line
from safe_sysid.nodes.planner.objectives import Excitation, Objective, Situation, Task
from safe_sysid.nodes.planner.scheduler_parts import (
    Offer,
    OpenRequest,
    SchedulerOutput,
    SchedulerSettings,
    begin_at,
    failure,
)
from safe_sysid.nodes.planner.solver_client import SolverLink
from safe_sysid.planning.results import PlannerResult, PlanStatus, hand_over_state
from safe_sysid.planning.solver_process.jobs import Step
from safe_sysid.planning.solver_process.process import Event
from safe_sysid.robot.parameters import ParameterBox

__all__ = ["PlanScheduler"]

FloatArray = NDArray[np.float64]
#: Real time: the solver is to be done so long before its answer is published, s; more where it once took longer.
_RESERVE, _MOST_RESERVE = 0.05, 0.5
#: Real time: how long a search may take while the arm rests, s; nothing waits for it. And how long it may take when
#: that was too little, once each: a machine that is busy now may take so much longer, for ever nobody waits.
_AT_REST = 6.0
_LONGER = (_AT_REST, 2.0 * _AT_REST, 4.0 * _AT_REST)
#: Too little time to ask once more, s.
_HURRY = 0.2
#: A solver that is cancelled, or late, is killed after this, s. At rest nobody waits for it: it may be compiling, which
#: cannot be interrupted, and whoever kills it then makes the next one begin anew.
_GRACE, _GRACE_AT_REST = 1.0, 15.0
#: Lock-step: share of the controller's patience after which a silent solver counts as hanging; it is asked twice.
_IMPATIENCE = 0.4
#: Reference and plan are the same motion if positions agree to this, rad; looked at this long after the hand-over, ns.
_SAME, _SETTLED = 1e-7, 50_000_000
#: Real time: a controller that commands tells its reference every few ticks. One that was silent for so long commanded
#: nothing in between: less than it needs to judge an arm before it takes it over again, by its stamps, s; and on the
#: wall clock, where a busy machine is no silence.
_SILENT, _UNHEARD = 0.2, 1.0
#: A reference that is older than the last by more than this is of another time, s.
_BACK = 0.2
#: So many failures to plan in a run: real time, and lock-step, where the same question has the same answer.
_ATTEMPTS, _ATTEMPTS_LOCKSTEP = 4, 1
#: Of a task, whose planner itself counts what it looks at and says when that is enough: searches that pause, too.
_TASK_ATTEMPTS = 60


class PlanScheduler:
    """The receding horizon: one mission at a time, one plan after another.

    Attributes:
        mission: what is being done, if anything.
        text: what was done last, for people.
        outcome: of the last task.
        failure: why the last exciting trajectories were given up; "" if they were not.
        sequence: number of the next plan.
        active: whether anything may be planned at all.
    """

    def __init__(
        self,
        settings: SchedulerSettings,
        outlet: SchedulerOutput,
        link: SolverLink,
        time_base: TimeBase,
    ) -> None:
        """Nothing is planned before :meth:`activate`, and :meth:`start` or :meth:`go`."""
        self._settings, self._outlet, self._link, self._time = settings, outlet, link, time_base
        self.mission: Objective | None = None
        self.text, self.outcome, self.sequence = "waiting for the controller", "", 0
        self.failure = ""
        self._boxes: dict[str, ParameterBox] = {}
        self._asked: OpenRequest | None = None
        self._offered: Offer | None = None  # the last one
        self._trigger: JointSample | None = None
        self._latest: JointSample | None = None
        self._hopeless = ""  # box that no plan was found for
        self._resume, self._next_start = 0, settings.first_ns  # not before; and in lock-step, from when
        self._moving_until = 0  # end of the last plan
        self._tasks, self._reserve, self._losses = 0, _RESERVE, 0
        self.active = False
        self._heard: float | None = None  # monotonic, when a reference came last, since the mission began
        self._interval = 0  # between the last two of them, ns

    @property
    def busy(self) -> bool:
        """Whether the solver is looking for a plan."""
        return self._asked is not None

    @property
    def phase(self) -> str:
        """``excitation``, ``task`` or ``over``."""
        return "over" if self.mission is None else self.mission.purpose

    def _excitation(self) -> Excitation:
        settings = self._settings
        return Excitation(settings.plans, _ATTEMPTS_LOCKSTEP if settings.lockstep else _ATTEMPTS)

    # -- inputs -------------------------------------------------------------------------------------------------

    def on_box(self, box: ParameterBox) -> None:
        """The controller works with this box now."""
        self._boxes[box.identity] = box
        self._consider()

    def activate(self) -> None:
        """From now on it may be asked."""
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
        if self.mission is None or self._lost(sample):
            return
        if (
            self._asked is None
            and self._is_time(sample)
            and (self._trigger is None or self._outdated(sample))
        ):
            self._trigger = sample
        self._consider()

    def _outdated(self, sample: JointSample) -> bool:
        """Whether the reference that waits for its box waits in vain: who came late hears of the newest box alone.

        In lock-step only the same one, told again, may take its place: which one begins a plan is no matter of chance.
        """
        trigger = self._trigger
        if trigger is None or trigger.frame_id in self._boxes:
            return False
        return not self._settings.lockstep or sample.stamp_ns == trigger.stamp_ns

    def _note_time(self, sample: JointSample) -> None:
        """Time that went back: another simulation, or a clock that was set. No plan of before has a time any more."""
        if self._latest is None or self._latest.stamp_ns - sample.stamp_ns <= to_ns(_BACK):
            return
        self.stop("time went back, ~/start begins again")
        self._latest = None
        self._moving_until = self._resume = 0

    def _note_gap(self, sample: JointSample) -> None:
        """Real time: after a fault, or a deactivation, nothing moves because of what was asked for before."""
        if self._latest is not None and self._heard is not None:
            gap = sample.stamp_ns - self._latest.stamp_ns
            if gap > max(to_ns(_SILENT), 1.5 * self._interval):
                self._abandon(1e-9 * gap)
            self._interval = gap
        self._heard = time.monotonic()

    def _abandon(self, silence: float) -> None:
        if self.mission is not None and not self._settings.lockstep:
            self.stop(f"the controller commanded nothing for {silence:.1f} s, ~/start begins again")

    def forget_boxes(self) -> None:
        """Whatever the controller announced: it has another idea of the arm."""
        self._boxes.clear()

    def set_plans(self, plans: int) -> None:
        """So many exciting trajectories in a run that is started from now on."""
        self._settings = replace(self._settings, plans=plans)

    def _is_time(self, sample: JointSample) -> bool:
        """At rest for the first plan; at the hand-over to the last plan for the next one."""
        if self._offered is not None:
            return sample.stamp_ns >= self._offered.start_ns
        at_rest = not np.any(sample.qd) and sample.frame_id != self._hopeless
        ready = self._settings.lockstep or self._link.process.ready
        return at_rest and sample.stamp_ns >= self._resume and ready

    def _lost(self, sample: JointSample) -> bool:
        """Whether the arm does not do what was planned; then there is nothing to plan from until it is at rest."""
        offered, mission = self._offered, self.mission
        if offered is None or mission is None:
            return False
        since = sample.stamp_ns - offered.start_ns
        if not _SETTLED <= since <= self._settings.t_p_ns:
            return False
        if np.max(np.abs(offered.plan.trajectory.state(since / 1e9)[0] - sample.q)) <= _SAME:
            return False
        self._not_followed(offered, mission, sample.frame_id)
        return True

    def _not_followed(self, offered: Offer, mission: Objective, identity: str) -> None:
        self.text = f"the controller does not follow plan {offered.plan.sequence}"
        self._outlet.refuse("reference", "not followed", self.text)
        asked, start = self._asked, offered.start_ns + self._settings.t_p_ns
        if asked is not None:
            self._asked = None
            self._link.process.cancel(_GRACE)
        if (
            self._settings.lockstep and self._losses < _ATTEMPTS
        ):  # no answer of the solver's: it is worth another try
            self._losses, mission.attempts = self._losses + 1, mission.attempts + 1
        self._go_on_at_rest(mission, start, identity, "the controller did not follow")
        if isinstance(self.mission, Excitation) and self._latest is not None:
            # It may wait for the successor of another planner's plan, one that died: none comes. It brakes.
            self._tell_none(self._latest.stamp_ns - 1, identity, self._latest.stamp_ns)

    def _consider(self) -> None:
        """Ask for a plan if it is time and the box in force is known."""
        trigger, mission, settings = self._trigger, self.mission, self._settings
        if trigger is None or mission is None or trigger.frame_id not in self._boxes:
            return
        self._trigger, previous, box = None, self._offered, self._boxes[trigger.frame_id]
        start: int | None
        if previous is None:
            state = np.stack([trigger.q, np.zeros_like(trigger.q), np.zeros_like(trigger.q)])
            start = max(self._next_start, trigger.stamp_ns) if settings.lockstep else None
            if start == trigger.stamp_ns:
                start += settings.t_p_ns
                self._tell_none(trigger.stamp_ns, trigger.frame_id, start)  # nobody waits for it yet
        else:
            state, start = hand_over_state(previous.plan), previous.start_ns + settings.t_p_ns
            # The last one came too late, for nobody waited for it.
            if settings.lockstep and start <= trigger.stamp_ns:
                self._not_followed(previous, mission, trigger.frame_id)
                return
            if mission.pauses():
                self._pause(previous, start, box, mission)
                return
        reason = mission.over(self._boxes.values(), box)
        if reason:
            self._finish(mission, start or trigger.stamp_ns, box.identity, reason)
            return
        due = None
        if start is None:
            due = time.monotonic() + (_AT_REST if mission.patient else 1e-9 * settings.t_p_ns)
        elif not settings.lockstep:
            due = time.monotonic() + 1e-9 * (start - self._outlet.now_ns()) - settings.margin
        deadline = None if due is None else due - self._reserve
        under_way = None if previous is None else previous.plan
        begins = self._time.seconds(trigger.stamp_ns if start is None else start)
        situation = Situation(state, begins, box, self.sequence, under_way, deadline)
        self._ask(OpenRequest(situation, start, due), mission)

    # -- the solver ---------------------------------------------------------------------------------------------

    def _ask(self, asked: OpenRequest, mission: Objective) -> None:
        # A solver that hangs must not look like a dead planner.
        limit = time.monotonic() + _IMPATIENCE * self._settings.patience
        if asked.due is not None:
            limit = asked.due + _grace(asked)
        self.text = f"planning {asked.situation.sequence} for {asked.situation.start_time:.3f} s"
        self._asked = asked
        self._link.submit(mission.job(asked.situation), partial(self._on_step, asked), limit)

    def _on_step(self, asked: OpenRequest, event: Event) -> None:
        mission = self.mission
        if event.kind == "failed":
            self._link.failed(event.text)
        if asked is not self._asked or mission is None:
            return  # too late, or stopped
        if event.kind == "progress":
            asked.best = event.value
        elif event.kind == "done":
            self._conclude(asked, event.value, mission)
        elif asked.lives and (asked.due is None or time.monotonic() < asked.due):
            asked.lives -= 1
            self._ask(asked, mission)
        else:
            # In lock-step only whole answers count: how far it came depends on the machine.
            best = None if asked.due is None else asked.best
            self._conclude(asked, best or failure(last_line(event.text)), mission)

    def watch(self) -> None:
        """Real time, often: when it is time, what there is is published, whatever the solver does."""
        if self._heard is not None and (silence := self._unheard()) > 0.0:
            self._abandon(silence)
        asked, mission, now = self._asked, self.mission, time.monotonic()
        if asked is None or mission is None or asked.due is None:
            return
        if now < asked.due:
            return
        self._reserve = min(self._reserve + _RESERVE, _MOST_RESERVE)
        self._link.process.cancel(_grace(asked))  # before anything else is asked
        self._conclude(asked, asked.best or failure("nothing certified by the deadline"), mission)

    def _conclude(self, asked: OpenRequest, step: Step, mission: Objective) -> None:
        self._asked, result, box = None, step.result, asked.situation.box
        start = asked.start_ns
        if result.plan is None and mission.refused(step) and self._ask_again(asked, result, mission):
            return
        if start is None:  # the same motion, whenever it begins
            start = self._outlet.now_ns() + to_ns(self._settings.margin)
            result = begin_at(result, self._time.seconds(start))
        if result.plan is not None:
            self.text = self._outlet.publish_plan(start, box, result, mission.purpose)
            self._offered, self.sequence = Offer(result.plan, start), self.sequence + 1
            self._moving_until = self._offered.end_ns
            mission.planned(step)
            mission.answer(True, self.text)
        elif mission.over((), box) == "arrived":
            self._finish(mission, start, box.identity, "arrived")
        else:
            self._outlet.note_failure(start, box, result, mission.purpose)
            self._no_plan(asked, start, step, mission)

    def _ask_again(self, asked: OpenRequest, result: PlannerResult, mission: Objective) -> bool:
        """From rest another way may be found, if there is time; in motion the arm has to brake first."""
        longer = _LONGER[:1] if mission.patient else _LONGER
        if asked.start_ns is None and asked.longer < len(longer):
            due = time.monotonic() + longer[asked.longer]
            situation = replace(asked.situation, deadline=due - self._reserve)
            if not mission.patient:
                told = f"{'; '.join(result.reasons)}: the arm rests, searching for {longer[asked.longer]:g} s"
                self._outlet.refuse("planning", "searched for longer", told)
            self._ask(OpenRequest(situation, None, due, longer=asked.longer + 1), mission)
            return True
        late = asked.due is not None and time.monotonic() > asked.due - _HURRY
        if asked.situation.previous is not None or late or not asked.tries or not mission.patient:
            return False
        asked.best, asked.tries = None, asked.tries - 1
        self._ask(asked, mission)
        return True

    # -- ends ---------------------------------------------------------------------------------------------------

    def _tell_none(self, start: int, identity: str, next_ns: int | None = None) -> None:
        """Lock-step: an answer, so that time goes on. Real time: silence, the arm brakes."""
        if self._settings.lockstep:
            self._outlet.publish_none(start, identity, next_ns)

    def _rest_until(self, resume: int) -> int:
        """The next plan is made at ``resume`` (ns), at rest; returns when it begins."""
        self._offered, self._trigger = None, None
        self._resume, self._next_start = resume, resume + self._settings.t_p_ns
        return self._next_start

    def _pause(self, offered: Offer, start: int, box: ParameterBox, mission: Objective) -> None:
        """The plan under way is driven to its end; there it goes on."""
        following = self._rest_until(offered.end_ns)
        self._tell_none(start, box.identity, None if mission.last_stop() else following)

    def _finish(self, mission: Objective, start: int, identity: str, reason: str) -> None:
        """No further trajectory is wanted: the controller brakes along the last one."""
        offered = self._offered
        self._end(mission, f"{mission.purpose} finished after {self.sequence} plans: {reason}", reason)
        mission.answer(reason == "arrived", reason)
        self._tell_none(
            start, identity, self._goal_after(mission, start if offered is None else offered.end_ns)
        )
        self._outlet.say(self.text)

    def _end(self, mission: Objective, text: str, outcome: str) -> None:
        self.mission, self._offered, self._trigger, self.text = None, None, None, text
        self.outcome = outcome if isinstance(mission, Task) else ""

    def _goal_after(self, mission: Objective, rest: int) -> int | None:
        """After the exciting trajectories, at rest from ``rest`` on, to a goal, if wanted; returns when that begins."""
        settings, origin = self._settings, self._time.origin_ns
        if settings.then_goal is None or not isinstance(mission, Excitation):
            return None
        # In real time the batches are anywhere.
        batches = -(-(rest - origin) // settings.update_ns) + (0 if settings.lockstep else 1)
        self._begin_task(settings.then_goal[None])
        return self._rest_until(origin + batches * settings.update_ns + settings.digest_ns)

    def _no_plan(self, asked: OpenRequest, start: int, step: Step, mission: Objective) -> None:
        box, reason = asked.situation.box, "; ".join((step.result.status.value, *step.result.reasons))
        self.text = f"no plan for {self._time.seconds(start):.3f} s: {reason}"
        self._outlet.refuse("planning", "no plan", self.text)
        hurried = isinstance(mission, Excitation) and mission.refused(step)
        hurried = hurried and (not self._settings.lockstep or step.result.status is PlanStatus.NO_LESSON)
        if hurried:
            # In motion there was a deadline: at rest there is none. There it was given all the time that it gets.
            mission.attempts = 1 if asked.situation.previous is None else mission.attempts + 1
        self._go_on_at_rest(mission, start, box.identity, reason)
        if isinstance(self.mission, Excitation) and not hurried:
            self._hopeless = box.identity  # once at rest, with a smaller box, it may work

    def _go_on_at_rest(self, mission: Objective, start: int, identity: str, reason: str) -> None:
        """There is no plan for the hand-over at ``start``: from where the arm comes to rest, if at all."""
        rest = start if self._offered is None else self._offered.end_ns
        mission.lost()
        self._offered, self._trigger = None, None
        following = None
        if not self._count_failure(mission, reason):
            following = self._goal_after(mission, rest)
        elif isinstance(mission, Task):
            following = self._rest_until(rest)
        self._tell_none(start, identity, following)

    def _count_failure(self, mission: Objective, reason: str) -> bool:
        """Whether the mission goes on after one more failure."""
        mission.attempts -= 1
        given_up = mission.over((), next(iter(self._boxes.values()))) if isinstance(mission, Task) else ""
        if mission.attempts > 0 and not given_up:
            return True
        if isinstance(mission, Excitation):
            self.failure = self.text = (
                f"excitation failed after {self.sequence} plans, {mission.left} more were wanted: {reason}"
            )
            self._outlet.say(self.text)
        self._end(mission, self.text, given_up or reason)
        mission.answer(False, given_up or reason)
        return False

    def _begin_task(self, waypoints: FloatArray, answer: Answer | None = None) -> None:
        self._tasks, self._losses = self._tasks + 1, 0
        self.outcome, self._hopeless = "", ""
        self.mission = Task(self._tasks, waypoints, _TASK_ATTEMPTS, self._settings.seed, answer)

    # -- what people ask for ------------------------------------------------------------------------------------

    def _unheard(self) -> float:
        """For how long the controller has been silent, s; 0: it speaks, or it is lock-step's affair."""
        if self._settings.lockstep or self._heard is None:
            return 0.0
        silence = time.monotonic() - self._heard
        return silence if silence > max(_UNHEARD, 1.5e-9 * self._interval) else 0.0

    def not_ready(self) -> str:
        """Why nothing new can be begun now; "" if it can."""
        if not self.active:
            return "the planner is not active: expected it to be"
        if silence := self._unheard():
            return f"no reference for {silence:.1f} s: expected a controller that commands"
        if self.mission is not None:
            return f"{self.text}: expected nothing to be planned (~/stop ends it)"
        ready = self._link.process.ready
        return self.not_at_rest() or ("" if ready else "the solver process starts: expected it to be ready")

    def not_at_rest(self) -> str:
        """Why the arm moves, or may in a moment; "" if it rests and nothing is planned."""
        sample = self._latest
        if self._asked is not None or self._offered is not None:
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
        if self.mission is not None:
            return "planning already"
        self._heard, self._interval = None, 0  # the controller may begin later
        self.mission, self.failure = self._excitation(), ""
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
        """No further plan; the arm brakes along the one under way.

        Args:
            reason: for people.
        """
        mission, asked, offered = self.mission, self._asked, self._offered
        if mission is None:
            return
        self._asked = None
        self._end(mission, f"{reason}, after {self.sequence} plans", reason)
        self._link.process.cancel(_GRACE)
        mission.answer(False, reason)
        if reason != "stopped":
            self._outlet.say(self.text)
        identity = next(iter(self._boxes), "0:0") if self._latest is None else self._latest.frame_id
        if asked is not None and asked.start_ns is not None:
            self._tell_none(asked.start_ns, identity)
        elif offered is not None:
            self._tell_none(offered.start_ns + self._settings.t_p_ns, identity)
        elif self._next_start:
            self._tell_none(self._next_start, identity)  # announced, and not asked for yet


def _grace(asked: OpenRequest) -> float:
    """How long after its time a solver may answer, or end what it is at, before it is killed; s."""
    return _GRACE_AT_REST if asked.start_ns is None else _GRACE
