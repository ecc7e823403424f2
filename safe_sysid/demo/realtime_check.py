"""Real-time check of this machine: a bare loop beside the controller's, and the timing that can be declared.

A controller holds a simulated arm of seven joints over topics on this machine, with gains for such slow timing that it
is never refused: how fast the machine is does not depend on the arm. Beside it a thread of higher
priority sleeps to every millisecond and does nothing else: what that loses, nothing of ours can keep.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import yaml
from rich.console import Console
from rich.table import Table

from safe_sysid.bring_up.arrangement import REALTIME
from safe_sysid.bring_up.domain import own_domain, ros_environment
from safe_sysid.bring_up.fork_server import ForkServer
from safe_sysid.bring_up.processes import ProcessGroup
from safe_sysid.control.gains.design import design_gains
from safe_sysid.core.arrays import FloatArray, IntArray
from safe_sysid.decimals import at_most
from safe_sysid.errors import ParameterError, SafeSysIdError
from safe_sysid.robot.loading import load_robot
from safe_sysid.whole_files import write_text

__all__ = ["BareLoop", "TimingRecord", "TimingVerdict", "judge", "measure", "print_timing", "theorem"]

#: Half widths of an empty hand's parameters that are known well: kg, kg m, kg m^2.
_KNOWN = np.repeat([0.1, 0.02, 0.01], [1, 3, 6])
#: Of the bare thread: above everything of ours.
_BARE = 50
_PERIOD_NS = 1_000_000
_WARM_UP, _PATIENCE = 1.0, 300.0  # s
#: Commands that may come later than declared, and steps of what is declared, s.
_LATER, _STEP = 0.02, 5e-5
#: What we lost is the machine's where the bare loop, which is always a little late, lost at least this share of it at
#: the same time, and so much in any case, s.
_SAME, _LEAST = 0.5, 5e-5


#: Bins of the histograms, ms.
_EDGES_MS = (0.1, 0.2, 0.3, 0.5, 0.8, 1.2, 1.5, 2.5, 5.0, 10.0, 20.0)


@dataclass(frozen=True)
class TimingRecord:
    """One run. ``stamp``: (K,) of the measurements that were answered, ns; the others by it, s."""

    stamp: IntArray
    delay: FloatArray  #: (K,) from the measurement to its command's arrival
    age: FloatArray  #: (K,) of the measurement behind the torque that this command ends
    bare_stamp: IntArray  #: (B,) when the bare loop woke up, ns
    bare_late: FloatArray  #: (B,) how late, s
    without: float  #: share of periods without a new command
    scheduling: str  #: what the system granted, of controller and bare loop


@dataclass(frozen=True)
class TimingVerdict:
    """What can be declared."""

    #: hold_max_s, delay_max_s: later than one of these came at most 2 % of the commands
    hold_max_s: float
    delay_max_s: float
    command_timeout_s: float  #: the drives must wait at least so long for a command: twice the longest silence
    later: float  #: share of commands later than the file declares
    of_the_machine: float  #: share of these that the bare loop lost, too
    longest: tuple[float, float]  #: of a torque in force, s, and of the bare loop's delays, s

    def settings(self, period: float) -> dict[str, float]:
        """``timing`` of a robot's file; ``period``: s."""
        return {"period_s": period, "hold_max_s": self.hold_max_s, "delay_max_s": self.delay_max_s}


class BareLoop:
    """A thread that sleeps to every millisecond, in real time if it may. ``scheduling``: as it runs."""

    def __init__(self, seconds: float) -> None:
        count = round(1e9 * seconds / _PERIOD_NS)
        self.stamp, self.late = np.zeros(count, np.int64), np.zeros(count)
        self.scheduling = "normal"
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> BareLoop:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._thread.join()

    def _run(self) -> None:
        try:
            os.sched_setscheduler(threading.get_native_id(), os.SCHED_FIFO, os.sched_param(_BARE))
            self.scheduling = f"SCHED_FIFO {_BARE}"
        except OSError:
            pass
        due = time.monotonic_ns() + _PERIOD_NS
        for k in range(len(self.late)):
            if (wait := due - time.monotonic_ns()) > 0:
                time.sleep(1e-9 * wait)
            self.stamp[k], self.late[k] = time.time_ns(), 1e-9 * max(time.monotonic_ns() - due, 0)
            due = max(due + _PERIOD_NS, time.monotonic_ns())


def measure(seconds: float, busy: int, say: Callable[[str], None]) -> TimingRecord:
    """Start the nodes, look on, end them.

    ``seconds``: that are measured; ``busy``: endless loops beside them, ordinary processes; ``say``: progress.
    Raises SafeSysIdError: a node ends, or does not begin.
    """
    names, slow = ("controller", "plant"), _slow_timing()
    with tempfile.TemporaryDirectory(prefix="safe_sysid_realtime_") as place, own_domain() as domain:
        folder = Path(place)
        environment = ros_environment(domain, folder / "ros", lockstep=False)
        with ForkServer("safe_sysid.demo.preload") as server, ProcessGroup(server) as group:
            say(f"starting {', '.join(names)} in ROS domain {domain}")
            for name in names:
                given: dict[str, Any] = {
                    "robot": "kinova_gen3",
                    "lockstep": False,
                    "run_dir": str(folder),
                    "robot_settings": slow,
                }
                given |= {"realtime": dict(REALTIME[name])} | ({"autostart": True} if name == "controller" else {})
                file = folder / f"{name}.yaml"
                file.write_text(yaml.safe_dump({"/**": {"ros__parameters": given}}), encoding="utf-8")
                group.start(name, ("--ros-args", "--params-file", str(file)), environment, folder / f"{name}.log")
            end = time.monotonic() + _PATIENCE
            while not all(process.check_ready() for process in group.processes):
                group.check()
                if time.monotonic() > end:
                    raise SafeSysIdError(f"nodes are not ready after {_PATIENCE:g} s")
                time.sleep(0.1)
            burners = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(busy)]
            try:
                time.sleep(_WARM_UP)
                say(f"measuring for {seconds:g} s")
                with BareLoop(seconds) as bare:
                    pass
            finally:
                for burner in burners:
                    burner.kill()
                    burner.wait()
            group.check()
            group.stop()
        return _read(folder, bare)


def _slow_timing() -> dict[str, Any]:
    """Settings of an arm that is known well enough to be held, and proved, with commands that are very late."""
    robot = load_robot("kinova_gen3")
    hand = robot.theta_nominal[robot.layout.payload]
    return {
        "timing": {"hold_max_s": 5e-3, "delay_max_s": 3e-3},
        "driver": {"command_timeout_s": 0.02},
        "uncertainty": {"relative": 0.01},
        "payload": {"prior_lower": (hand - _KNOWN).tolist(), "prior_upper": (hand + _KNOWN).tolist()},
        "identification": {"acceleration_bound": 50.0},
        "controller": {"velocity": 0.3, "uncertainty": 2.0},
    }


def _read(folder: Path, bare: BareLoop) -> TimingRecord:
    try:
        with np.load(folder / "plant.npz") as plant, np.load(folder / "controller.npz") as control:
            stamp, delay, age = plant["command_stamp"], plant["delay"], plant["age"]
            mode, origin, granted = plant["mode"], int(plant["origin_ns"]), str(control["scheduling"])
    except OSError as error:
        raise SafeSysIdError(f"a node has left no log: {error.strerror or error}") from None
    stamp = np.asarray(stamp, np.int64)
    inside = (stamp >= bare.stamp[0]) & (stamp <= bare.stamp[-1])
    if not inside.any():
        raise SafeSysIdError("the controller has commanded nothing while it was measured: expected an arm that is held")
    first, last = ((int(bare.stamp[k]) - origin) // _PERIOD_NS for k in (0, -1))
    mode = mode[max(first, 0) : max(last, 1)]
    scheduling = f"controller {granted or 'normal'}; bare loop {bare.scheduling}"
    return TimingRecord(
        stamp[inside], np.ravel(delay)[inside], np.ravel(age)[inside], bare.stamp, bare.late,
        float(np.mean(mode != 0)) if len(mode) else 1.0, scheduling,
    )  # fmt: skip


def judge(timing: TimingRecord, hold_max: float, delay_max: float, period: float) -> TimingVerdict:
    """What can be declared, and what became of what is declared.

    Args:
        hold_max: as declared, s.
        delay_max: likewise.
        period: of the arm's commands, s; a millisecond was measured.
    """
    timing = replace(timing, age=timing.age + (period - 1e-9 * _PERIOD_NS))
    bare = timing.bare_late - np.median(timing.bare_late)
    late = (timing.age > hold_max) | (timing.delay > delay_max)
    ours = 0
    for k in np.flatnonzero(late):
        lost = max(timing.age[k] - hold_max, timing.delay[k] - delay_max)
        begin, end = timing.stamp[k] - round(1e9 * timing.age[k]), timing.stamp[k] + round(1e9 * timing.delay[k])
        # A wake-up that was due in this time is noted when it came: what is late by more than that ends later.
        first, last = np.searchsorted(timing.bare_stamp, (begin, end + round(1e9 * lost)))
        ours += not np.any(bare[first:last] >= max(_SAME * lost, _LEAST))
    share = float(np.mean(late))
    # Each half of what may be late, so that together they are no more; a hold is at least a period and a delay.
    delay = _up(float(np.quantile(timing.delay, 1.0 - 0.5 * _LATER, method="higher")))
    hold = max(_up(float(np.quantile(timing.age, 1.0 - 0.5 * _LATER, method="higher"))), _up(period + delay))
    silence = float(timing.age.max())
    return TimingVerdict(
        hold, delay, _up(2.0 * silence, 1e-3), share, 1.0 - ours / late.sum() if late.any() else 0.0,
        (silence, float(timing.bare_late.max())),
    )  # fmt: skip


def _up(seconds: float, step: float = _STEP) -> float:
    return round(float(np.ceil(seconds / step - 1e-9)) * step, 9)


def theorem(robot: str, settings: dict[str, Any] | None) -> str:
    """Whether the tracking bound exists with a timing, in words.

    ``robot``: name or file; ``settings``: that replace the file's; None: none.
    """
    try:
        gains = design_gains(load_robot(robot, **(settings or {})))
    except ParameterError as error:
        return f"no tracking bound: {error}"
    off = at_most(float(np.max(gains.e_bound)), 3, scale=1000)
    return f"tracking errors proved below {off} mrad or mm, V_max {at_most(gains.V_max, 3)} J"


def _tables(timing: TimingRecord) -> tuple[Table, Table]:
    """Percentiles, and how many of a thousand are in which bin: what both loops have is the machine's."""
    percentiles = Table(title=f"ms; {timing.scheduling}; {os.cpu_count()} processors")
    bins = Table(title="of a thousand, so many up to .. ms")
    for table, names in (
        (percentiles, ("p50", "p99", "p99.9", "longest")),
        (bins, (*(f"{edge:g}" for edge in _EDGES_MS), "longer")),
    ):
        table.add_column("")
        for name in names:
            table.add_column(name, justify="right")
    for name, values in (
        ("bare loop wakes up late", timing.bare_late),
        ("measurement to command", timing.delay),
        ("age of the torque in force", timing.age),
    ):
        found = (*np.percentile(values, (50.0, 99.0, 99.9)), values.max())
        percentiles.add_row(name, *(f"{1e3 * x:.2f}" for x in found))
        counts, _ = np.histogram(1e3 * values, (-np.inf, *_EDGES_MS, np.inf))
        bins.add_row(name, *(f"{1e3 * count / len(values):.1f}" if count else "" for count in counts))
    return percentiles, bins


def print_timing(robot: str, seconds: float, busy: int, out: Path | None) -> int:
    """Measure and say what was found; returns the exit status. Raises SafeSysIdError: it cannot be measured.

    Args:
        robot: name or file of the arm whose timing is judged.
        seconds: that are measured.
        busy: endless loops beside.
        out: file for what can be declared; None: none.
    """
    model = load_robot(robot)
    declared = model.settings.timing
    timing = measure(seconds, busy, lambda text: print(text, flush=True))
    found = judge(timing, declared.hold_max_s, declared.delay_max_s, declared.period_s)
    console = Console(width=110, highlight=False)
    for table in _tables(timing):
        console.print(table)
    print(f"periods without a new command: {100.0 * timing.without:.2f} %")
    print(
        f"later than declared (hold {1e3 * declared.hold_max_s:g}, delay {1e3 * declared.delay_max_s:g} ms): "
        f"{100.0 * found.later:.2f} % of {len(timing.age)} commands; the bare loop lost "
        f"{100.0 * found.of_the_machine:.0f} % of these, too"
    )
    print(f"as declared: {theorem(robot, None)}")
    print(
        f"can be declared: hold_max_s {found.hold_max_s:g}, delay_max_s {found.delay_max_s:g}; drives must wait for a "
        f"command for {found.command_timeout_s:g} s at least"
    )
    settings = found.settings(declared.period_s)
    print(f"with these: {theorem(robot, {'timing': settings})}")
    if out is not None:
        drives = (
            f"# driver.command_timeout_s: what the drives do; for this machine at least {found.command_timeout_s:g}.\n"
        )
        head = "# Measured by safe-sysid realtime-check, without driver or network; for the robot's file.\n"
        write_text(out, head + drives + yaml.safe_dump({"timing": settings}, sort_keys=False))
        print(f"wrote {out}")
    return 0 if found.later <= _LATER else 1
