"""Runs trials of any kind, here, on all cores or on a Dask cluster: the result is the same, only sooner.

A kind of trial is a function ``(seed, index, options) -> dict`` with an ``index``: plain data that depends on nothing
but these three (and on the code). It is named by module and function, so that workers can import it.
"""

from __future__ import annotations

import importlib
import multiprocessing
import os
import signal
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import islice
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from multiprocessing.resource_tracker import ensure_running
from typing import Any

from safe_sysid.parent import end_with_spawner
from safe_sysid.studies.campaign.results import CampaignError

__all__ = [
    "KINDS",
    "SUMMARIES",
    "THREAD_VARIABLES",
    "Campaign",
    "in_dask",
    "in_processes",
    "in_this_process",
    "run_chunk",
]

#: Kinds of trial, of campaigns and of the papers' experiments: module and function.
KINDS = {
    "identification": ("safe_sysid.studies.campaign.trial", "run_trial"),
    "arm": ("safe_sysid.studies.campaign.arm_trial", "run_trial"),
    "reachability": ("safe_sysid.studies.campaign.reachability.trial", "run_trial"),
    "printed": ("safe_sysid.studies.forgeries.printed_numbers", "run_trial"),
    "forgeries": ("safe_sysid.studies.forgeries.trial", "forge"),
    "contradictions": ("safe_sysid.studies.forgeries.trial", "contradict"),
    "task": ("safe_sysid.studies.experiments.trial", "run_trial"),
    "correlation": ("safe_sysid.studies.experiments.conditions", "run_motion"),
    "condition": ("safe_sysid.studies.experiments.conditions", "run_excitation"),
    "constrained": ("safe_sysid.studies.experiments.constrained.trial", "run_trial"),
    "lip": ("safe_sysid.studies.lip.trial", "run_trial"),
    "hybrid_models": ("safe_sysid.studies.hybrid.model_tables", "run_trial"),
    "hybrid_tracking": ("safe_sysid.studies.hybrid.tracking", "run_trial"),
    "hybrid_which": ("safe_sysid.studies.hybrid.budgets", "run_budget"),
    "hybrid_friction": ("safe_sysid.studies.hybrid.friction", "run_trial"),
}
#: Of a campaign's kinds the modules that sum up: ``is_sound``, ``complaint``, ``summarise``, ``as_json`` and ``table``.
SUMMARIES = {
    "identification": "safe_sysid.studies.campaign.summary",
    "arm": "safe_sysid.studies.campaign.summary",
    "reachability": "safe_sysid.studies.campaign.reachability.record",
    "printed": "safe_sysid.studies.forgeries.printed_numbers",
    "forgeries": "safe_sysid.studies.forgeries.trial",
    "contradictions": "safe_sysid.studies.forgeries.trial",
}
#: Linear algebra on one thread: sums of several threads end on other last digits, and cores are used by trials.
THREAD_VARIABLES = ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS")
#: Trials handed over at once: few where they are near, more where a network lies between.
_CHUNK, _FAR_CHUNK = 2, 8
_AHEAD = 4  # chunks waiting for each worker of a cluster

Result = dict[str, Any]


@dataclass(frozen=True)
class Campaign:
    """Which trials."""

    kind: str  #: key of :data:`KINDS`
    seed: int
    options: dict[str, Any] = field(default_factory=dict)  #: of the kind of trial; plain data

    def header(self) -> dict[str, Any]:
        """What two runs must share to be one campaign."""
        return {"kind": self.kind, "seed": self.seed, "options": self.options}

    def function(self) -> Callable[[int, int, dict[str, Any]], Result]:
        """The trial. Raises CampaignError: unknown kind."""
        if self.kind not in KINDS:
            raise CampaignError(f"kind of trial = {self.kind!r}: expected one of {', '.join(KINDS)}")
        module, name = KINDS[self.kind]
        function: Callable[[int, int, dict[str, Any]], Result] = getattr(importlib.import_module(module), name)
        return function

    def summary(self) -> Any:
        """The module that sums up its results."""
        return importlib.import_module(SUMMARIES[self.kind])


def run_chunk(campaign: Campaign, indices: Sequence[int]) -> list[Result]:
    """Some trials, one after the other. A trial that raises is a result too: ``{"index", "error"}``."""
    function = campaign.function()
    results = []
    for index in indices:
        try:
            results.append(function(campaign.seed, index, campaign.options))
        except Exception as error:  # the campaign goes on; the summary counts it and the exit status tells
            results.append({"index": index, "error": f"{type(error).__name__}: {error}"})
    return results


def _chunks(indices: Iterable[int], size: int) -> Iterator[list[int]]:
    iterator = iter(indices)
    while chunk := list(islice(iterator, size)):
        yield chunk


def in_this_process(campaign: Campaign, indices: Iterable[int]) -> Iterator[list[Result]]:
    """Trials one by one, as they end."""
    for index in indices:
        yield run_chunk(campaign, [index])


def _work(campaign: Campaign, connection: Connection[Any, Any]) -> None:
    """What a worker does: chunks, until there are no more or nobody listens."""
    end_with_spawner()
    with suppress(EOFError, BrokenPipeError):
        while indices := connection.recv():
            connection.send(run_chunk(campaign, indices))


def in_processes(campaign: Campaign, indices: Iterable[int], jobs: int, chunk: int = _CHUNK) -> Iterator[list[Result]]:
    """Trials on several cores; chunks come in the order in which they end.

    Close the iterator to stop: workers are killed at once, and with them the trials that are under way.

    Raises CampaignError: a worker died.
    """
    # Not a pool of concurrent.futures: after a second Ctrl-C that one waits for its workers for ever.
    chunks = _chunks(indices, chunk)
    workers: list[BaseProcess] = []
    busy: dict[Connection[Any, Any], list[int]] = {}
    try:
        for part in islice(chunks, jobs):
            connection = _start(campaign, workers)
            connection.send(part)
            busy[connection] = part
        while busy:
            for ready in wait(list(busy)):
                connection = next(known for known in busy if known is ready)
                part = busy.pop(connection)
                try:
                    results = connection.recv()
                except (EOFError, OSError) as error:
                    raise CampaignError(
                        f"a worker died in one of the trials {part}: expected it to finish; run one with --only"
                    ) from error
                following = next(chunks, [])  # an empty one ends the worker
                with suppress(OSError):  # died since: seen when its results are missing
                    connection.send(following)
                if following:
                    busy[connection] = following
                yield results
    finally:
        for worker in workers:
            worker.kill()
        for worker in workers:
            worker.join()


def _start(campaign: Campaign, workers: list[BaseProcess]) -> Connection[Any, Any]:
    """One worker more, and what it is talked to by."""
    # Fresh interpreters, not forks: no threads or locks are inherited, and libraries see the limits from the start.
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    worker = context.Process(target=_work, args=(campaign, theirs), daemon=True)
    # Ctrl-C is the parent's business: a worker inherits that it is held back.
    ensure_running()  # starting the first worker starts this, too, which would let Ctrl-C through
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        with _OneThread():
            worker.start()
        workers.append(worker)
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
    theirs.close()
    return ours


class _OneThread:
    """Environment for children; the parent's is put back."""

    def __enter__(self) -> None:
        self._before = {name: os.environ.get(name) for name in THREAD_VARIABLES}
        os.environ.update(dict.fromkeys(THREAD_VARIABLES, "1"))

    def __exit__(self, *_: object) -> None:
        for name, value in self._before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


def in_dask(
    campaign: Campaign, indices: Iterable[int], address: str, chunk: int = _FAR_CHUNK
) -> Iterator[list[Result]]:
    """Trials on a Dask cluster, whose workers must be able to import this package.

    ``address``: of the scheduler, as ``tcp://host:8786``.

    Raises CampaignError: Dask is not installed, the scheduler does not answer or has no workers, or a task was lost.
    """
    try:
        from distributed import Client, as_completed
    except ImportError as error:
        raise CampaignError(
            f"--scheduler {address}: Dask is not installed: expected `pip install 'safe_sysid[cluster]'`"
        ) from error
    try:
        client = Client(address, timeout="10s", set_as_default=False)
    except (OSError, ValueError, TimeoutError) as error:
        raise CampaignError(f"--scheduler {address}: {error}: expected the address of a Dask scheduler") from error
    with client:
        cores = sum(client.nthreads().values())
        if not cores:
            raise CampaignError(f"--scheduler {address}: no workers: expected at least one")
        chunks = _chunks(indices, chunk)

        def submit(part: list[int]) -> Any:
            return client.submit(run_chunk, campaign, part, pure=False)

        running = as_completed([submit(part) for part in islice(chunks, cores * _AHEAD)], loop=client.loop)
        try:
            for future in running:
                if future.status != "finished":
                    raise CampaignError(
                        f"--scheduler {address}: a task was lost ({future.status}): {future.exception()}"
                    )
                results: list[Result] = future.result()
                for following in islice(chunks, 1):
                    running.add(submit(following))
                yield results
        finally:
            for future in list(running.futures):
                future.cancel()
