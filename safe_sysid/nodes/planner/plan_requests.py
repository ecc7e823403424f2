"""Requests to the solver: one is open at a time; it is repeated, prolonged or ended at its deadline. No ROS calls."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial

from safe_sysid.nodes.planner.scheduler_parts import OpenRequest, PlanSolver, SchedulerOutput, failure, last_line
from safe_sysid.nodes.planner.timing import GRACE, PlanTiming
from safe_sysid.planning.solver_process.jobs import Step
from safe_sysid.planning.solver_process.process import Event

__all__ = ["PlanRequests"]


class PlanRequests:
    """Asks the solver and hands one answer per request to the scheduler.

    Attributes:
        open: what the solver works on now; None: nothing.
    """

    def __init__(
        self,
        timing: PlanTiming,
        solver: PlanSolver,
        output: SchedulerOutput,
        conclude: Callable[[OpenRequest, Step], None],
    ) -> None:
        """``conclude`` gets the request and its final answer, when no request is open any more."""
        self._timing, self._solver, self._output, self._conclude = timing, solver, output, conclude
        self.open: OpenRequest | None = None

    def ask(self, request: OpenRequest) -> None:
        """Give a request to the solver."""
        self.open = request
        job = request.objective.job(request.situation)
        self._solver.submit(job, partial(self._on_event, request), self._timing.kill_time(request))

    def drop(self) -> None:
        """Whatever the solver still answers counts no more."""
        self.open = None
        self._solver.cancel(GRACE)

    def watch(self) -> None:
        """End a search whose time is over: the best certified plan so far is its answer."""
        request = self.open
        if request is None or not self._timing.is_due(request):
            return
        self._timing.overrun()
        self._solver.cancel(self._timing.grace(request))  # before anything else is asked
        self._settle(request, request.best or failure("nothing certified by the deadline"))

    def _on_event(self, request: OpenRequest, event: Event) -> None:
        if event.kind == "failed":
            self._solver.failed(event.text)
        if request is not self.open:
            return  # too late, or dropped
        if event.kind == "progress":
            request.best = event.value
        elif event.kind == "done":
            self._settle(request, event.value)
        elif request.lives and not self._timing.is_due(request):
            request.lives -= 1
            self.ask(request)
        else:
            self._settle(request, self._timing.best_so_far(request) or failure(last_line(event.text)))

    def _settle(self, request: OpenRequest, step: Step) -> None:
        self.open = None
        if step.result.plan is None and request.objective.refused(step) and self._ask_again(request, step):
            return
        self._conclude(request, step)

    def _ask_again(self, request: OpenRequest, step: Step) -> bool:
        """From rest another plan may be found, if there is time; in motion the arm has to brake first."""
        patient, seconds = request.objective.patient, self._timing.longer_search(request)
        if seconds is not None:
            due = self._output.monotonic() + seconds
            situation = replace(request.situation, deadline=self._timing.deadline(due))
            if not patient:
                told = f"{'; '.join(step.result.reasons)}: the arm rests, searching for {seconds:g} s"
                self._output.refuse("planning", "searched for longer", told)
            self.ask(OpenRequest(request.objective, situation, None, due, longer=request.longer + 1))
            return True
        moves = request.situation.previous is not None
        if moves or self._timing.is_hurried(request) or not request.tries or not patient:
            return False
        request.best, request.tries = None, request.tries - 1
        self.ask(request)
        return True
