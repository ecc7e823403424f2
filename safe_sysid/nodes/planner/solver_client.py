"""Client of the solver process: sends jobs from the executor's thread, hands each event to whoever asked."""

from __future__ import annotations

from collections.abc import Callable

from safe_sysid.nodes.common.base import BaseNode
from safe_sysid.planning.solver_process.process import Event, Job, PlannerProcess

__all__ = ["SolverClient"]


class SolverClient:
    """A :class:`~.process.PlannerProcess` whose events come in the executor's thread."""

    def __init__(self, process: PlannerProcess) -> None:
        """Take over a process that nobody listens to."""
        self.process = process
        process.on_event = self._deliver
        self._handlers: dict[int, Callable[[Event], None]] = {}
        self._node: BaseNode | None = None

    def attach(self, node: BaseNode) -> None:
        """Events are handled by this node's executor, refusals told by it."""
        self._node = node

    def submit(self, job: Job, handler: Callable[[Event], None], limit: float | None = None) -> int:
        """Give a job to the solver, see :meth:`~safe_sysid.planning.solver_process.process.PlannerProcess.submit`."""
        ticket = self.process.submit(job, limit)
        self._handlers[ticket] = handler
        return ticket

    @property
    def ready(self) -> bool:
        """Whether the process takes requests."""
        return self.process.ready

    def cancel(self, grace: float) -> None:
        """End what the process is at; it is killed after ``grace`` s."""
        self.process.cancel(grace)

    def submit_aside(self, job: Job, what: str, again: bool = True) -> None:
        """A job whose answer nobody needs; if it fails twice, that is told.

        Once may be no fault of its own: the process is killed with all that waits when a search does not end in time.
        """

        def handle(event: Event) -> None:
            if event.kind == "failed" and again:
                if self._node is not None:
                    self._node.say(f"{what}: once more, for it failed: {event.text}")
                self.submit_aside(job, what, again=False)
            elif event.kind == "failed":
                self._refuse(what, event.text)

        self.submit(job, handle)

    def failed(self, text: str) -> None:
        """Count and tell what became of a job, or of the process."""
        self._refuse("solver", text)

    def _refuse(self, source: str, text: str) -> None:
        if self._node is not None:
            self._node.refuse(source, "failed", text)

    def _deliver(self, event: Event) -> None:
        """In the solver's thread: hand over to the executor's, which wakes up for it."""
        node = self._node
        if node is not None and node.executor is not None:
            node.executor.create_task(node.guarded("solver", self._on_event), event)

    def _on_event(self, event: Event) -> None:
        handler = self._handlers.get(event.ticket)
        if event.kind != "progress":
            self._handlers.pop(event.ticket, None)
        if handler is not None:
            handler(event)
        elif event.kind == "failed":
            self.failed(event.text)
