"""``safe-sysid demo``: from options to exit status."""

from __future__ import annotations

import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

from rich.console import Console
from rich.text import Text

from safe_sysid.apps.judge.evaluation import Evaluation, Oracle, evaluate
from safe_sysid.bring_up.domain import own_domain
from safe_sysid.bring_up.fork_server import ForkServer
from safe_sysid.bring_up.kernels import telling
from safe_sysid.bring_up.processes import ProcessDiedError
from safe_sysid.control.tube import MeasuredTube, tubes_of
from safe_sysid.demo.options import DemoOptions, Setup, prepare
from safe_sysid.demo.progress import Progress, make_console
from safe_sysid.demo.state import RunState
from safe_sysid.demo.summarise import (
    draw_pictures,
    goal_of,
    mass_line,
    not_covered,
    summarise,
    timing_notes,
    write_page,
)
from safe_sysid.demo.supervisor import RunClock, RunFailedError, supervise
from safe_sysid.demo.view import DemoView
from safe_sysid.errors import SafeSysIdError
from safe_sysid.report.run.logs import RunLogs, read_logs
from safe_sysid.report.run.summary import VIOLATION_KINDS, Exit, GoalSummary, write_summary
from safe_sysid.report.run.table import print_report
from safe_sysid.report.verify_command import plans_command

__all__ = ["run_demo"]

INTERRUPTED = 130


class _Terminated(BaseException):
    """SIGTERM or SIGHUP: leave as after Ctrl-C, with the shell's status for that signal."""

    def __init__(self, number: int) -> None:
        self.status = 128 + number


@contextmanager
def _signals() -> Iterator[None]:
    """Turn the signals that would kill us into exceptions, so that the nodes are ended first."""

    def handle(number: int, frame: FrameType | None) -> None:
        raise _Terminated(number)

    def interrupt(number: int, frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    # SIGINT too: a shell that starts us in the background lets us ignore it.
    before = {number: signal.signal(number, handle) for number in (signal.SIGTERM, signal.SIGHUP)}
    before[signal.SIGINT] = signal.signal(signal.SIGINT, interrupt)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def run_demo(options: DemoOptions) -> int:
    """Run the demo; returns the exit status.

    Raises:
        SafeSysIdError: the options are wrong (nothing was started).
    """
    console = make_console()
    try:
        with _signals(), ForkServer("safe_sysid.demo.preload") as server:
            told = "reading the robot, computing gains, checking the start pose"
            with telling(_speaker(options, console), told):
                setup = prepare(options, _speaker(options, console))
            if options.payload == "auto":
                _speaker(options, console)(f"the hand holds: {setup.payload_name}")
            with own_domain() as domain, DemoView(setup, domain, _speaker(options, console)) as view:
                status = _run(setup, server, console, domain)
                view.stay()
            return status
    except ProcessDiedError as error:  # the view's: the others' are told with the run
        print(f"safe-sysid demo: error: {' '.join(str(error).split())}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("safe-sysid demo: interrupted; all processes have been ended", file=sys.stderr)
        return INTERRUPTED
    except _Terminated as terminated:
        print("safe-sysid demo: terminated; all processes have been ended", file=sys.stderr)
        return terminated.status


def _speaker(options: DemoOptions, console: Console) -> Callable[[str], None]:
    def say(text: str) -> None:
        if not options.quiet:
            console.print(Text(text), soft_wrap=True)

    return say


def _run(setup: Setup, server: ForkServer, console: Console, domain: int) -> int:
    options, clock = setup.options, RunClock()
    state = RunState(setup.model.settings, options.plans)
    trouble = ""
    with Progress(console, setup.model.arm_prior, options.quiet) as progress:
        try:
            supervise(setup, server, progress, clock, state, domain)
        except (ProcessDiedError, RunFailedError) as error:
            trouble = str(error)
        progress.say(f"judging the run by the plant's record in {setup.run_dir}")
        logs = read_logs(setup.run_dir, setup.model.n)
        evaluation = evaluate(logs, setup.model, setup.gains, _oracle(setup, logs))
        pictures = _draw(setup, logs, progress)
    tubes = tubes_of(setup.model, setup.gains)
    notes = timing_notes(logs, tubes, options.lockstep)
    reason = _reason(trouble, evaluation, goal_of(setup, logs), _tube_left(setup, logs))
    end = Exit(status=1 if reason else 0, reason=reason.partition("\n")[0])
    summary = summarise(setup, logs, evaluation, clock, state.warnings + notes, end)
    write_summary(setup.run_dir / "summary.json", summary)
    pages = _page(setup, evaluation)
    if options.json_file is not None:
        try:
            write_summary(options.json_file, summary)
        except OSError as error:
            print(f"safe-sysid demo: --json {options.json_file}: {error}", file=sys.stderr)
            end = Exit(status=1, reason="the summary could not be written where --json wants it")
    if logs.plant is not None or logs.updates:
        console.print(Text(mass_line(setup, logs), style="bold"))
        print_report(console, summary)
    left = ", ".join([*pages, "summary.json", *pictures, "logs"])
    console.print(Text(f"{setup.run_dir}: {left}"), soft_wrap=True)
    if not options.quiet and any(setup.run_dir.glob("plan_*.json")):
        console.print(Text(f"check bounds and plans with: {_check(setup)}"), soft_wrap=True)
    if options.record:
        bag = setup.run_dir / "bag"
        console.print(Text(f"recorded in {bag}; run again with: safe-sysid replay {bag}"), soft_wrap=True)
    if reason:
        print(f"safe-sysid demo: FAILED: {reason}", file=sys.stderr)
    elif end.status == 0:
        late = not_covered(logs, tubes, options.lockstep)
        console.print(_success(late, isinstance(setup.gains, MeasuredTube)))
    return end.status


def _success(late: int, measured: bool = False) -> Text:
    """The closing line; what was only observed is not called proved."""
    text = Text("every bound held, nothing was violated", style="bold green")
    if measured:
        text.append("; proved given the measured tube, which was watched at every sample", style="none")
        return text
    if late:
        commands = "1 late command" if late == 1 else f"{late} late commands"
        text.append(f"; {commands} not covered by the proof", style="yellow")
    return text


def _check(setup: Setup) -> str:
    """The command that proves bounds and plans of the run again."""
    options = setup.options
    settings = {f"{section}.{k}": v for section, part in options.overrides.items() for k, v in part.items()}
    return plans_command(setup.run_dir, options.robot, options.scene, settings, lockstep=options.lockstep)


def _oracle(setup: Setup, logs: RunLogs) -> Oracle | None:
    """The engine's distances for the true arm and payload; they share no code with the planner's certificate."""
    if logs.plant is None or not logs.plant.time.size:
        return None
    from safe_sysid.simulation import Plant, payload_in_hand

    try:
        payload = payload_in_hand(setup.model, setup.options.payload)
        truth, q0, engine = logs.plant.theta_true, logs.plant.q[0], setup.options.engine
        return Plant(setup.model, truth, payload, setup.scene, q0=q0, engine=engine).clearance
    except SafeSysIdError:
        return None


def _draw(setup: Setup, logs: RunLogs, progress: Progress) -> list[str]:
    """Pictures are for looking at: a run is not judged by whether they could be drawn."""
    try:
        return draw_pictures(setup, logs)
    except (OSError, ValueError, RuntimeError) as error:
        progress.say(f"no pictures: {error}")
        return []


def _page(setup: Setup, evaluation: Evaluation) -> list[str]:
    """The run as a page; like pictures, nothing that a run is judged by."""
    try:
        return [write_page(setup, evaluation)]
    except (OSError, ValueError, RuntimeError, SafeSysIdError) as error:
        print(f"safe-sysid demo: no report: {error}", file=sys.stderr)
        return []


def _tube_left(setup: Setup, logs: RunLogs) -> str:
    """Why a measured tube was claimed no more; "" if it always was, or is none."""
    lost = () if logs.controller is None else logs.controller.claim_lost
    return f"the measured tube is not claimed since {lost[0]}" if lost and isinstance(setup.gains, MeasuredTube) else ""


def _reason(trouble: str, evaluation: Evaluation, goal: GoalSummary | None, left: str) -> str:
    """Why the run is no success; empty if it is one. First line: in one line."""
    if trouble:
        return trouble
    counts = evaluation.violations
    broken = [f"{getattr(counts, kind)} {kind}" for kind in VIOLATION_KINDS if getattr(counts, kind)]
    if broken:
        return f"violations: {', '.join(broken)} ({evaluation.safety.findings[0]})"
    gaps = [*evaluation.gaps, *([left] if left else [])]
    if goal is not None and not goal.reached:
        gaps.append(f"the goal was not reached: {goal.text}")
    return "; ".join(gaps)
