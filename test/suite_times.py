"""Where the time of a run of the whole suite goes: processor and clock by file, and kernels compiled by each worker."""

from __future__ import annotations

import resource
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest
from numba.core import event


def _processor_time() -> float:
    """Of this process and of its children that have ended, s."""
    both = map(resource.getrusage, (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return sum(used.ru_utime + used.ru_stime for used in both)


class SuiteTimes:
    """A plugin, in workers and in what started them."""

    def __init__(self) -> None:
        self._last, self._compiling = _processor_time(), event.TimingListener()
        self._workers: list[str] = []
        event.register("numba:compile", self._compiling)

    @pytest.hookimpl(hookwrapper=True)
    def pytest_runtest_makereport(self, item: pytest.Item) -> Iterator[None]:
        """Let each report say the processor time since the last one."""
        before, self._last = self._last, _processor_time()
        item.user_properties[:] = [("processor_s", self._last - before)]
        yield

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """A worker tells what it took in all, its list of tests included."""
        if hasattr(session.config, "workeroutput"):
            compiling = self._compiling.duration if self._compiling.done else 0.0
            told = f"{_processor_time():.0f} s, of which {compiling:.0f} s of the clock compiling"
            session.config.workeroutput["suite_times"] = told

    def pytest_testnodedown(self, node: Any) -> None:
        """What the worker told; nothing if it died."""
        self._workers.append(getattr(node, "workeroutput", {}).get("suite_times", "died"))

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
        """By file, as many short tests are more than the slowest twenty."""
        if not config.getoption("numprocesses", None):
            return
        clock: Counter[str] = Counter()
        spent: Counter[str] = Counter()
        for reports in terminalreporter.stats.values():
            for report in reports:
                if isinstance(report, pytest.TestReport):
                    name = report.nodeid.partition("::")[0]
                    clock[name] += report.duration
                    spent[name] += dict(report.user_properties).get("processor_s", 0.0)
        whole = f"{sum(spent.values()):.0f}, {sum(clock.values()):.0f}"
        terminalreporter.section(f"seconds by file: processor, clock; in all {whole}")
        for told in self._workers:
            terminalreporter.write_line(f"a worker: {told}")
        for name, seconds in spent.most_common():
            if max(seconds, clock[name]) > 2.0:
                terminalreporter.write_line(f"{seconds:7.1f} {clock[name]:7.1f} {name}")
