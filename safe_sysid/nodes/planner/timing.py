"""Timing policies of the plan scheduler: what differs between lock-step and real time. They call no ROS.

Lock-step: simulated time waits, so every hand-over gets an answer, and only finished searches count. Real time: a
search has a deadline, its result is the best plan so far, and a controller that falls silent ends what was requested
before.
"""

from __future__ import annotations

from safe_sysid.nodes.common.messages.contents import JointSample
from safe_sysid.nodes.common.messages.time_base import to_ns
from safe_sysid.nodes.planner.scheduler_parts import OpenRequest, SchedulerOutput, SchedulerSettings
from safe_sysid.planning.results import PlanStatus
from safe_sysid.planning.solver_process.jobs import Step

__all__ = ["GRACE", "PlanTiming", "RealTimePlanTiming"]

#: Real time: the solver is to end so long before its answer is published, s; longer after a search that overran.
_RESERVE, _MOST_RESERVE = 0.05, 0.5
#: Real time: how long a search may take while the arm rests, s. If that was too little, each further search is longer:
#: the machine may be busy now, and nothing waits for the answer.
_AT_REST = 6.0
_LONGER = (_AT_REST, 2.0 * _AT_REST, 4.0 * _AT_REST)
#: With less time than this left there is no second request, s.
_HURRY = 0.2
#: A solver that is cancelled, or late, is killed after this, s. At rest nothing waits for it, and it may be compiling,
#: which cannot be interrupted: the next process would begin anew.
GRACE, _GRACE_AT_REST = 1.0, 15.0
#: Lock-step: share of the controller's patience after which a silent solver counts as hanging; it is asked twice.
_IMPATIENCE = 0.4
#: Real time: a controller that commands publishes a reference every few ticks. After a gap of so long between two
#: stamps (s) it commanded nothing in between: it needs longer than that to judge an arm before it takes control again.
#: The second figure is for silence on the wall clock, where a busy machine is no silence, s.
_SILENT, _UNHEARD = 0.2, 1.0
#: So many failures to plan end the exciting trajectories; in lock-step the same question has the same answer.
_ATTEMPTS, _ATTEMPTS_LOCKSTEP = 4, 1


class PlanTiming:
    """What a mode decides for the scheduler; here lock-step: simulated time waits for the answer."""

    attempts, free_losses = _ATTEMPTS_LOCKSTEP, _ATTEMPTS
    #: attempts: failures to plan that end exciting trajectories; free_losses: so many plans that the controller did not
    #: follow cost no attempt; needs_ready: whether a request waits until the solver process is ready; answers_always:
    #: whether the controller is told that there is no plan; more_batches: batches of data to wait for after the last
    #: motion, beyond those that end by then
    needs_ready, answers_always, more_batches = False, True, 0

    def __init__(self, settings: SchedulerSettings, clock: SchedulerOutput) -> None:
        """``clock`` has the wall clock, and that of stamps."""
        self._settings, self._clock = settings, clock

    def may_replace(self, waiting: JointSample, newer: JointSample) -> bool:
        """Whether a newer reference may take the place of one that waits for its box.

        Only the same one, repeated: which reference begins a plan must not depend on chance.
        """
        return newer.stamp_ns == waiting.stamp_ns

    def silence_between(self, previous_ns: int | None, stamp_ns: int) -> float:
        """A reference has come; for how long the controller commanded nothing before it, s; 0: it did."""
        return 0.0

    def silence(self) -> float:
        """For how long the controller has been silent until now, s; 0: it is not, or time stands still."""
        return 0.0

    def forget_references(self) -> None:
        """Begin anew: the controller may be silent until its next reference."""

    def start_at_rest(self, announced_ns: int, stamp_ns: int) -> int | None:
        """When a plan from rest begins, ns: when it was announced, or now; None: as soon as it is certified."""
        return max(announced_ns, stamp_ns)

    def is_late(self, start_ns: int, stamp_ns: int) -> bool:
        """Whether a hand-over passed before its plan was requested: nobody waited for the plan before."""
        return start_ns <= stamp_ns

    def due(self, start_ns: int | None, patient: bool) -> float | None:
        """When the best plan so far is published, monotonic s; None: when the search ends."""
        return None

    def deadline(self, due: float | None) -> float | None:
        """When the solver is to end, monotonic s; None: there is no deadline."""
        return None

    def kill_time(self, request: OpenRequest) -> float:
        """When a solver that does not answer is killed, monotonic s.

        Before the controller loses its patience: a solver that hangs must not look like a dead planner.
        """
        return self._clock.monotonic() + _IMPATIENCE * self._settings.patience

    def grace(self, request: OpenRequest) -> float:
        """How long a solver that is cancelled may take to end, s."""
        return GRACE

    def is_due(self, request: OpenRequest) -> bool:
        """Whether the time of the request is over."""
        return False

    def is_hurried(self, request: OpenRequest) -> bool:
        """Whether too little time is left to ask again."""
        return False

    def longer_search(self, request: OpenRequest) -> float | None:
        """How long a further search from rest may take, s; None: the first had all the time that it asked for."""
        return None

    def overrun(self) -> None:
        """A search did not end in time."""

    def best_so_far(self, request: OpenRequest) -> Step | None:
        """What counts of an unfinished search: nothing, for how far it came depends on the machine."""
        return None

    def may_retry_at_rest(self, status: PlanStatus) -> bool:
        """Whether a search that failed so may succeed at rest: one without a lesson, for another motion begins."""
        return status is PlanStatus.NO_LESSON


class RealTimePlanTiming(PlanTiming):
    """Deadlines on the wall clock."""

    attempts, free_losses = _ATTEMPTS, 0
    needs_ready, answers_always, more_batches = True, False, 1  # batches begin at any time

    def __init__(self, settings: SchedulerSettings, clock: SchedulerOutput) -> None:
        super().__init__(settings, clock)
        self._reserve = _RESERVE
        self._heard: float | None = None  # monotonic, when the last reference came
        self._interval = 0  # between the stamps of the last two, ns

    def may_replace(self, waiting: JointSample, newer: JointSample) -> bool:
        """Any newer one."""
        return True

    def silence_between(self, previous_ns: int | None, stamp_ns: int) -> float:
        """By the stamps, for longer than references usually take."""
        silence = 0.0
        if previous_ns is not None and self._heard is not None:
            gap = stamp_ns - previous_ns
            if gap > max(to_ns(_SILENT), 1.5 * self._interval):
                silence = 1e-9 * gap
            self._interval = gap
        self._heard = self._clock.monotonic()
        return silence

    def silence(self) -> float:
        """By the wall clock, for longer than references usually take."""
        if self._heard is None:
            return 0.0
        silence = self._clock.monotonic() - self._heard
        return silence if silence > max(_UNHEARD, 1.5e-9 * self._interval) else 0.0

    def forget_references(self) -> None:
        """The controller may begin later."""
        self._heard, self._interval = None, 0

    def start_at_rest(self, announced_ns: int, stamp_ns: int) -> int | None:
        """As soon as it is certified."""
        return None

    def is_late(self, start_ns: int, stamp_ns: int) -> bool:
        """Never: the plan begins at its start time or not at all."""
        return False

    def due(self, start_ns: int | None, patient: bool) -> float | None:
        """A margin before the hand-over; at rest after ``t_p``, or after six seconds where a search may take long."""
        if start_ns is None:
            return self._clock.monotonic() + (_AT_REST if patient else 1e-9 * self._settings.t_p_ns)
        return self._clock.monotonic() + 1e-9 * (start_ns - self._clock.now_ns()) - self._settings.margin

    def deadline(self, due: float | None) -> float | None:
        """A reserve before the answer is due."""
        return None if due is None else due - self._reserve

    def kill_time(self, request: OpenRequest) -> float:
        """Some time after the answer was due."""
        return (self._clock.monotonic() if request.due is None else request.due) + self.grace(request)

    def grace(self, request: OpenRequest) -> float:
        """A second; more at rest, where the solver may be compiling."""
        return _GRACE_AT_REST if request.start_ns is None else GRACE

    def is_due(self, request: OpenRequest) -> bool:
        """Whether the answer is due."""
        return request.due is not None and self._clock.monotonic() >= request.due

    def is_hurried(self, request: OpenRequest) -> bool:
        """Whether less than 0.2 s are left."""
        return request.due is not None and self._clock.monotonic() > request.due - _HURRY

    def longer_search(self, request: OpenRequest) -> float | None:
        """At rest: 6, 12 and 24 s; of searches that take long anyhow only the first."""
        longer = _LONGER[:1] if request.objective.patient else _LONGER
        if request.start_ns is not None or request.longer >= len(longer):
            return None
        return longer[request.longer]

    def overrun(self) -> None:
        """The next search is to end earlier."""
        self._reserve = min(self._reserve + _RESERVE, _MOST_RESERVE)

    def best_so_far(self, request: OpenRequest) -> Step | None:
        """The best certified plan."""
        return request.best

    def may_retry_at_rest(self, status: PlanStatus) -> bool:
        """Always: in motion there was a deadline, at rest there is none."""
        return True
