"""Timing policies of the controller: what differs between lock-step and real time. They call no ROS.

Lock-step: the simulated arm waits for each command, so every state gets an answer, if only an empty one, and a tick may
wait for a plan or a box. Real time: stamps are compared with the clock, and nothing waits.

The answer to hand-over T_j is due at T_j; the identifier's answer to batch m (data up to m U) at m U + take-after.
An answer that comes early waits for its tick. In lock-step a tick waits for an answer that is due, so that a run does
not depend on the machine's speed. The rules are in docs/use/nodes.md. All times in ns.
"""

from __future__ import annotations

from safe_sysid.nodes.common.messages.contents import (
    NOT_AWAITED,
    BoundsAnswer,
    JointSample,
    MessageRefusedError,
    PlanAnswer,
)

__all__ = ["ControlTiming", "PendingAnswers", "RealTimeControlTiming"]


class PendingAnswers:
    """Holds answers until they are due, and says what a tick still waits for."""

    def __init__(
        self, times: tuple[int, ...], await_plans: bool = True, await_bounds: bool = True, ahead: int = 0
    ) -> None:
        """Nothing has come.

        Args:
            times: first hand-over, time from one to the next, length of a batch, from its end to its answer.
            ahead: so long before its hand-over is a plan due: what an arm needs to have it in time.
        """
        self._ahead = ahead
        first_plan, self._t_plan, self._update, self._take_after = times
        self._await_plans = await_plans
        self._hand_over: int | None = first_plan if await_plans else None
        self._batch: int | None = 1 if await_bounds else None
        self._plans: list[PlanAnswer] = []
        self._bounds: list[BoundsAnswer] = []

    def put_plan(self, answer: PlanAnswer) -> None:
        """An answer has come; beyond 20 the oldest is dropped."""
        self._plans = [*self._plans[-19:], answer]

    def put_bounds(self, answer: BoundsAnswer) -> None:
        """An answer has come; beyond 20 the oldest is dropped."""
        self._bounds = [*self._bounds[-19:], answer]

    def due_plans(self, stamp: int) -> list[PlanAnswer]:
        """Answers to be offered at this tick, in order of arrival; each is returned once.

        While plans are awaited each is offered at its start, or ahead of it, otherwise at once.
        """
        if not self._plans:
            return []
        due = [answer for answer in self._plans if self._hand_over is None or answer.start_ns <= stamp + self._ahead]
        self._plans = [answer for answer in self._plans if answer not in due]
        return due

    def settle_plan(self, answer: PlanAnswer, taken: bool, stamp: int = 0) -> None:
        """A plan was taken, or refused at this tick; one without a trajectory says that none will follow, or when.

        When the next plan begins the planner alone knows: it may have been told to start after the time at which the
        controller expected the first, or anew after a stop. In place of a refused one comes no other: the planner sees
        that it is not followed only when time goes on.
        """
        if answer.next_ns is not None:
            if self._await_plans:
                self._hand_over = answer.next_ns if answer.next_ns > stamp + self._ahead else None
            return
        if answer.start_ns != self._hand_over:
            return
        self._hand_over = answer.start_ns + self._t_plan if taken and answer.trajectory is not None else None

    def due_bounds(self, stamp: int) -> list[BoundsAnswer]:
        """Answers to be taken at this tick; each is returned once. Ask when nothing is missing: plans come first."""
        if not self._bounds:
            return []
        due = [answer for answer in self._bounds if answer.batch is None or stamp >= self._due_time(answer.batch)]
        self._bounds = [answer for answer in self._bounds if answer not in due]
        for answer in due:
            if self._batch is not None and answer.batch is not None and answer.batch >= self._batch:
                self._batch = answer.batch + 1
        return due

    def _due_time(self, batch: int) -> int:
        return batch * self._update + self._take_after

    def missing(self, stamp: int) -> list[str]:
        """What this tick waits for; ask after the due plans were offered."""
        out = []
        if self._hand_over is not None and stamp + self._ahead >= self._hand_over:
            out.append(f"the plan for {self._hand_over / 1e9:.3f} s")
        if self._batch is not None and stamp >= self._due_time(self._batch) and not self._has(self._batch):
            out.append(f"the bounds of batch {self._batch}")
        return out

    def _has(self, batch: int) -> bool:
        """Or one of a later batch: answers come in order, so that who is here late gets none before it any more."""
        return any(answer.batch is not None and answer.batch >= batch for answer in self._bounds)

    def forget_plans(self, stamp: int) -> None:
        """Stop waiting for plans if one is missing at this tick."""
        if self._hand_over is not None and stamp + self._ahead >= self._hand_over:
            self._hand_over = None

    def begin_anew(self, stamp: int, plans: bool) -> None:
        """Control begins at this tick: wait for no plan that began before, and no batch whose answer was due before.

        ``plans``: whether plans are awaited as before; if not, the planner says when the next begins.
        """
        self.forget_plans(stamp)
        if not plans:
            self._hand_over = None
        if self._batch is not None:
            self._batch = max(self._batch, (stamp - self._take_after) // self._update + 1)

    def stop_waiting(self) -> None:
        """From now on no tick waits for anything."""
        self._hand_over = self._batch = None

    def give_up(self, stamp: int) -> None:
        """Stop waiting for the answers that are missing at this tick."""
        self.forget_plans(stamp)
        if self._batch is not None and stamp >= self._due_time(self._batch) and not self._has(self._batch):
            self._batch = None


class ControlTiming:
    """What a mode decides for the controller; here lock-step: simulated time waits for commands."""

    lockstep = True

    def __init__(self, times: tuple[int, ...], await_plans: bool, await_bounds: bool, ahead: int = 0) -> None:
        """``times`` and ``ahead`` as for :class:`PendingAnswers`; whether ticks wait for plans, and for boxes."""
        self.pending = PendingAnswers(times, await_plans, await_bounds, ahead)

    def is_repeated(self, sample: JointSample, last_ns: int) -> bool:
        """Whether the arm asks again for the answer to its last state: it repeats it until it hears one."""
        return sample.stamp_ns == last_ns

    def check_age(self, sample: JointSample, now_ns: int) -> None:
        """Raise MessageRefusedError if a measurement is too old, or from the future; in lock-step it has no age."""

    def awaits_command(self, sample: JointSample) -> bool:
        """Whether a command can still act: not on a plant that goes on alone, ahead of what it publishes."""
        return sample.frame_id != NOT_AWAITED

    def why_silent(self, silence: float) -> str:
        """Why control may not begin after so many seconds without a measurement; "" if it may."""
        return ""


class RealTimeControlTiming(ControlTiming):
    """Measurements come at their own pace."""

    lockstep = False

    def __init__(self, times: tuple[int, ...], max_age: float) -> None:
        """``max_age`` (s) of a measurement that is used; nothing is awaited."""
        super().__init__(times, False, False)
        self._max_age = max_age

    def is_repeated(self, sample: JointSample, last_ns: int) -> bool:
        """A stamp that comes twice is not newer."""
        return False

    def check_age(self, sample: JointSample, now_ns: int) -> None:
        """At most ``max_age``, in either direction."""
        age, longest = 1e-9 * (now_ns - sample.stamp_ns), self._max_age
        if not -longest <= age <= longest:
            text = f"measured {age:.3f} s ago: expected at most {longest:g} s (are all clocks the same?)"
            raise MessageRefusedError("stale" if age > 0.0 else "from the future", text)

    def awaits_command(self, sample: JointSample) -> bool:
        """Always."""
        return True

    def why_silent(self, silence: float) -> str:
        """After ``max_age`` without a measurement."""
        return f"no measurement for {silence:.3f} s: expected joint_states to go on" if silence > self._max_age else ""
