"""What the 1 kHz loop is made of: its thread, what it prints and compiles, scheduling, the record of its times."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

pytest.importorskip("rclpy")

from rclpy.node import Node
from rclpy.qos import QoSProfile
from rclpy.serialization import deserialize_message
from ros_harness import Probe, wait_for
from std_msgs.msg import Float64MultiArray

from safe_sysid.apps.rehearsal import rehearse_controller
from safe_sysid.control.controller import Controller
from safe_sysid.control.gains import ControllerGains
from safe_sysid.control.gains.design import design_gains
from safe_sysid.control.laws import make_law
from safe_sysid.nodes.common.messages.serialised import CommandBytesWriter, JointBytesReader, JointBytesWriter
from safe_sysid.nodes.common.realtime import scheduling
from safe_sysid.nodes.common.realtime.histograms import Histogram
from safe_sysid.nodes.common.realtime.loop import MessageLoop
from safe_sysid.nodes.common.realtime.scheduling import RealtimeOptions, Scheduling
from safe_sysid.nodes.controller.tick_log import TorqueTickLog
from safe_sysid.robot import RobotModel

STAMP = 1_700_000_000_123_456_789


# -- the loop's thread ------------------------------------------------------------------------------------------


@pytest.fixture
def node() -> Iterator[Node]:
    with Probe() as probe:
        yield probe.node


@contextmanager
def looping(node: Node, lock: Any, depth: int, *handlers: Any) -> Iterator[tuple[MessageLoop, Callable[[], None]]]:
    """A loop that runs, and what sends it a message."""
    loop = MessageLoop(node, lock, Float64MultiArray, "numbers", QoSProfile(depth=depth), *handlers)
    publisher = node.create_publisher(Float64MultiArray, "numbers", depth)
    try:
        loop.start()
        wait_for(lambda: publisher.get_subscription_count() > 0, 20.0, "the loop's subscription")
        yield loop, lambda: publisher.publish(Float64MultiArray(data=[4.0]))
    finally:
        loop.stop()


@pytest.mark.ros
def test_messages_and_deadlines_come_in_one_thread_that_holds_the_lock(node: Node) -> None:
    lock, seen, dues, outside = threading.RLock(), [], [], []

    def note(into: list[Any], value: Any) -> None:
        probe = threading.Thread(target=lambda: outside.append(lock.acquire(blocking=False)))
        probe.start()
        probe.join()
        into.append((threading.get_ident(), value))

    def due() -> int:
        note(dues, time.monotonic_ns())
        return 2_000_000

    def take(message: bytes) -> bool:
        seen.append((threading.get_ident(), message))
        return True

    with looping(node, lock, 1, take, due) as (loop, send):
        send()
        wait_for(lambda: len(seen) == 1 and len(dues) > 20, 20.0, "a message and deadlines")
    count = len(dues)
    assert {ident for ident, _ in seen + dues} == {loop.ident}
    assert loop.ident != threading.get_ident()
    assert not any(outside)  # nobody else could have had the lock meanwhile
    assert deserialize_message(seen[0][1], Float64MultiArray).data.tolist() == [4.0]
    gaps = np.diff([stamp for _, stamp in dues])
    assert np.median(gaps) >= 1_900_000  # it waits for its deadlines, it does not spin
    time.sleep(0.02)
    assert len(dues) == count  # it has ended
    loop.stop()  # once more: nothing happens


@pytest.mark.ros
def test_after_a_message_too_many_others_get_their_turn(node: Node) -> None:
    taken: list[int] = []

    def refuse(_: bytes) -> bool:
        taken.append(time.monotonic_ns())
        return False

    with looping(node, threading.RLock(), 20, refuse) as (_, send):
        for _ in range(10):
            send()
        wait_for(lambda: len(taken) >= 5, 20.0, "messages")
    assert np.min(np.diff(taken)) >= 1_000_000


@pytest.mark.ros
def test_what_ends_the_loop_is_raised_in_the_main_thread(node: Node) -> None:
    def due() -> int:
        raise ZeroDivisionError("the plant's integrator")

    loop = MessageLoop(node, threading.RLock(), Float64MultiArray, "numbers", QoSProfile(depth=1), print, due)
    loop.raise_error()
    loop.start()
    with pytest.raises(ZeroDivisionError, match="integrator"):
        wait_for(lambda: loop.raise_error(), 20.0, "it")
    loop.stop()


_HELD = """
import os, sys, threading
from safe_sysid.nodes.common.output import OutputPump
reader, writer = os.pipe()
os.set_blocking(writer, False)
try:
    while True:
        os.write(writer, b"x" * 4096)
except BlockingIOError:
    os.set_blocking(writer, True)  # full now, and nobody reads: whoever writes waits
told, screen = os.dup(1), os.dup(2)
os.dup2(writer, 2)
if "pump" in sys.argv:
    pump = OutputPump()
import rclpy
rclpy.init(args=[])
logger = rclpy.create_node("held").get_logger()
for line in range(300):  # long ones: of each the logger looks for its caller among all modules
    logger.info(f"line {line} " + 5000 * "-")
os.write(told, b"went on\\n")
threading.Thread(target=lambda: [os.read(reader, 1 << 16) for _ in range(1000)], daemon=True).start()
pump.close(20.0)
os.write(told, b"ended\\n")
os._exit(0)
"""


@pytest.mark.slow
@pytest.mark.ros
def test_a_held_terminal_does_not_stop_a_node() -> None:
    """Nobody reads what is printed, for as long as it takes: a writer would wait for ever, and all threads with it."""
    with pytest.raises(subprocess.TimeoutExpired):  # this is how bad it is: the test below can fail
        subprocess.run([sys.executable, "-c", _HELD], capture_output=True, timeout=4)
    result = subprocess.run([sys.executable, "-c", _HELD, "pump"], capture_output=True, text=True, timeout=60)
    assert result.stdout == "went on\nended\n", result


_REHEARSED = """
import sys, time
import numpy as np
import rclpy
from numba.core.dispatcher import Dispatcher
from safe_sysid.control.checks.activation import ActivationChecks
from safe_sysid.dynamics import dynamics_of
from safe_sysid.nodes.common.messages import conversions
from safe_sysid.nodes.controller.node import ControllerNode
from safe_sysid.nodes.common.digest import plan_digest
from safe_sysid.nodes.common.messages.serialised import JointBytesWriter
from safe_sysid.robot.parameters import ParameterBox
from safe_sysid.trajectories.plan import Plan
from safe_sysid.trajectories.quintic import QuinticTrajectory


def kernels():
    modules = [module for name, module in sys.modules.items() if name.startswith("safe_sysid")]
    found = {id(v): v for module in modules for v in vars(module).values() if isinstance(v, Dispatcher)}
    return {(k.py_func.__module__, k.py_func.__name__): len(k.signatures) for k in found.values()}


rclpy.init(args=["--ros-args", "-p", "robot_settings.measurement.max_age_s:=0.9"])
node = ControllerNode()
node.trigger_configure()
before, model, box = kernels(), node.model, node.model.arm_prior
writer, q, zero = JointBytesWriter(model.joint_names), np.array(model.settings.home), np.zeros(model.n)
effort = dynamics_of(model.kinematics).torque_regressor(q, zero, zero) @ box.mid
after_regressor, states, begin = kernels(), set(), time.time_ns()
clock = [begin]
time.time_ns = lambda: clock[0]  # a machine that is busy for a second is not the question either
inner = ParameterBox(box.mid + 0.9 * (box.lower - box.mid), box.mid + 0.9 * (box.upper - box.mid), 0, 1)
ActivationChecks._found = lambda checks: ([], 0)  # whether this machine is fast enough is not the question
for k in range(1500):
    stamp = begin + k * 1_000_000
    clock[0] = stamp + 200_000
    node._on_measurement(writer.fill(stamp, q, zero, effort))
    states.add(node.session.core.state.value)
    if node.session.core.state.commands:
        effort = node._command._torque.copy()
    if k == 250 and (node.trigger_activate(), node.active)[1] is False:
        sys.exit(node.overview()[1])
    if k == 300:
        node._on_bounds(conversions.bounds_message(inner, inner.mid, digest=node.digest))
    if k == 900:
        knots = np.array([[q, zero, zero], [q + 1e-4, zero, zero]])
        plan = Plan(QuinticTrajectory(np.array([0.0, 1.0]), knots), 0.0, 0.5, node.session.core.box.identity, 0, zero)
        node._on_plan(conversions.plan_message(plan, model.joint_names, stamp + 300_000_000, plan_digest(node.digest)))
now = kernels()
new = [name for name in now if now[name] != before.get(name) and now[name] != after_regressor.get(name)]
print(node.session.core.box.identity, sorted(states), new, node.refusals)
"""


@pytest.mark.ros
def test_nothing_is_compiled_in_the_loop() -> None:
    """A start, ticks, a box blended in, a plan: every kernel, and each of its signatures, is there before READY."""
    result = subprocess.run([sys.executable, "-c", _REHEARSED], capture_output=True, text=True, timeout=240)
    assert result.returncode == 0, result.stderr[-2000:]
    last = result.stdout.splitlines()[-1].replace("'idle', ", "")
    assert last == "0:1 ['holding', 'tracking'] [] Counter()", result.stdout


# -- scheduling -------------------------------------------------------------------------------------------------


def test_what_is_not_permitted_is_told_and_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise PermissionError(1, "Operation not permitted")

    for name in ("sched_setscheduler", "sched_setaffinity", "setpriority"):
        monkeypatch.setattr(os, name, refuse)
    monkeypatch.setattr(scheduling, "_lock_memory", refuse)
    monkeypatch.setattr(scheduling, "_bound_computation", lambda _: None)
    told: list[str] = []
    options = RealtimeOptions(priority=10, nice=0, cpus=(0,), lock_memory=True)
    applied = Scheduling(options, told.append)
    applied.engage(threading.get_native_id())
    assert applied.text == "normal"
    assert [text.split(":")[0] for text in told] == ["no cpus (0,)", "no locking memory", "no SCHED_FIFO 10"]
    assert all("not permitted" in text and "going on without" in text for text in told)
    assert "CAP_SYS_NICE" in told[2]
    applied.check()
    applied.relax()
    nicer = Scheduling(RealtimeOptions(nice=5), told.append)
    nicer.engage(None)
    assert "no nice 5" in told[-1]


def test_a_node_without_a_loop_gets_no_real_time_priority(monkeypatch: pytest.MonkeyPatch) -> None:
    """Planner and identifier compute for seconds: they must never come before the loop, or before anyone."""
    changed: list[object] = []
    monkeypatch.setattr(os, "sched_setscheduler", lambda *a: changed.append(a))
    told: list[str] = []
    applied = Scheduling(RealtimeOptions(priority=50), told.append)
    applied.engage(None)
    assert changed == []
    assert applied.text == "normal"
    assert "no 1 kHz loop" in told[0]


def test_a_process_that_takes_a_whole_core_gives_its_priority_back(monkeypatch: pytest.MonkeyPatch) -> None:
    policies: list[int] = []
    clock = {"wall": 0.0, "cpu": 0.0}
    monkeypatch.setattr(os, "sched_setscheduler", lambda _, policy, __: policies.append(policy))
    monkeypatch.setattr(scheduling, "_bound_computation", lambda _: None)
    monkeypatch.setattr(scheduling, "_name", lambda _: "python")
    monkeypatch.setattr(scheduling.time, "monotonic", lambda: clock["wall"])
    monkeypatch.setattr(scheduling.time, "process_time", lambda: clock["cpu"])
    told: list[str] = []
    applied = Scheduling(RealtimeOptions(priority=10), told.append)
    applied.engage(threading.get_native_id())
    assert set(policies) == {os.SCHED_FIFO | os.SCHED_RESET_ON_FORK}
    for share in (0.5, 0.85, 0.85):
        clock["wall"], clock["cpu"] = clock["wall"] + 1.1, clock["cpu"] + 1.1 * share
        applied.check()
    assert told == []
    policies.clear()
    clock["wall"], clock["cpu"] = clock["wall"] + 1.1, clock["cpu"] + 1.1 * 0.97
    applied.check()
    assert set(policies) == {os.SCHED_OTHER}
    assert "no longer scheduled in real time" in told[0]
    assert "given back" in applied.text


def test_shared_memory_between_processes_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its locks are held by ordinary processes: the loop would wait for those."""
    monkeypatch.setattr(os, "sched_setscheduler", lambda *_: None)
    monkeypatch.setattr(scheduling, "_bound_computation", lambda _: None)
    for transport, count in (("dds.udp.7411", 0), ("dds.shm.7411", 1)):
        told: list[str] = []
        monkeypatch.setattr(scheduling, "_name", lambda _, transport=transport: transport)
        Scheduling(RealtimeOptions(priority=10), told.append).engage(threading.get_native_id())
        assert sum("shared memory" in text for text in told) == count, told


_RUNAWAY = """
import os, subprocess, sys, threading, time
from safe_sysid.nodes.common.realtime.scheduling import RealtimeOptions, Scheduling
told = []
other = threading.Thread(target=time.sleep, args=(30.0,), daemon=True)
other.start()
scheduling = Scheduling(RealtimeOptions(priority=10), told.append)
scheduling.engage(threading.get_native_id())
if "SCHED_FIFO" not in scheduling.text:
    sys.exit("refused")
mine, theirs = os.sched_getparam(0).sched_priority, os.sched_getparam(other.native_id).sched_priority
child = subprocess.run([sys.executable, "-c", "import os; print(os.sched_getscheduler(0) == os.SCHED_OTHER)"],
                       capture_output=True, text=True).stdout.strip()
end = time.monotonic() + 10.0
while not told and time.monotonic() < end:
    pass
print(mine, theirs, child, os.sched_getscheduler(0) & ~os.SCHED_RESET_ON_FORK == os.SCHED_OTHER, told)
"""


def test_the_kernel_ends_a_computation_without_pause() -> None:
    """A real process, a quarter of a second of an endless loop; what it starts is an ordinary process."""
    result = subprocess.run([sys.executable, "-c", _RUNAWAY], capture_output=True, text=True, timeout=60)
    if "refused" in result.stderr:
        pytest.skip("real-time scheduling is not permitted here")
    assert result.stdout.startswith("10 1 True True ['computed for 0.25 s without a pause"), result


# -- the record of times ----------------------------------------------------------------------------------------


@given(st.lists(st.floats(0.0, 0.2), min_size=1, max_size=200), st.sampled_from([50.0, 90.0, 99.0]))
@example(times=[0.125, 0.012], percent=50.0)
@example(times=[0.125, 0.004], percent=50.0)
def test_histograms_count_everything_once(times: list[float], percent: float) -> None:
    histogram = Histogram()
    for value in times:
        histogram.add(value)
    coarse = [int(part.rpartition(": ")[2]) for part in histogram.coarse().split(", ")]
    assert histogram.counts.sum() == sum(coarse) == len(times)
    assert histogram.above(1.5e-3) == sum(int(value / 1e-5) >= 150 for value in times)
    assert histogram.largest == max(times)
    exact = float(np.percentile(times, percent, method="inverted_cdf"))
    end_of_its_bin = (int(exact / 1e-5) + 1) * 1e-5 if exact < 0.0499 else np.inf
    assert exact <= histogram.percentile(percent) <= min(end_of_its_bin, max(times))


@pytest.fixture(scope="module")
def gains(model: RobotModel) -> ControllerGains:
    """With the delays of real time."""
    return design_gains(model)


def test_late_commands_are_counted_as_covered_where_the_arm_was_quiet(
    model: RobotModel, gains: ControllerGains, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    zero, home, now = np.zeros(model.n), np.array(model.settings.home), [STAMP]
    for name in ("time_ns", "perf_counter_ns"):
        monkeypatch.setattr(f"safe_sysid.nodes.controller.tick_log.time.{name}", lambda: now[0])
    core = Controller(model, gains)
    assert core.start(0.0, home, zero) == []
    log, a = TorqueTickLog(core, lockstep=False), gains.assumptions
    quiet = np.abs(np.broadcast_to(a.velocity_error + gains.K_r * a.position_error, (model.n,)))

    def tick(k: int, latency: float, velocity: float = 0.0) -> None:
        stamp = STAMP + k * 1_000_000
        out = core.step(1e-3 * (k + 1), home, zero + velocity)
        now[0] = stamp + round(1e9 * latency)
        log.command_sent(stamp + 1000, stamp, out.torque is not None)
        log.add(stamp, out)

    tick(0, 5.0 * a.delay_max)  # nothing was in force before
    assert (core.bound_status.covered, core.bound_status.late) == (0, 0)
    for k in range(1, 10):
        tick(k, 0.9 * a.delay_max)
    assert (core.bound_status.covered, core.bound_status.late) == (0, 0)
    longest = gains.longest_covered_gap(quiet, core.uncertainty)
    tick(10, longest - 1e-3 - 1e-5)
    late = longest > a.hold_max  # else nothing late is ever covered
    assert (core.bound_status.covered, core.bound_status.late) == ((1, 0) if late else (0, 1))
    tick(11, longest - 1e-3 + 1e-4)
    assert core.bound_status.late == (1 if late else 2)
    assert log.period.count == 11
    assert log.missed == 0
    log.save(tmp_path / "controller.npz", {}, "SCHED_FIFO 11")
    with np.load(tmp_path / "controller.npz") as saved:
        assert str(saved["scheduling"]) == "SCHED_FIFO 11"
        for name in ("period", "latency", "compute"):
            rows, bins = saved[f"{name}_us"], saved[f"{name}_histogram"]
            expected = np.bincount(np.clip((rows / 10.0).astype(int), 0, len(bins) - 1), minlength=len(bins))
            expected[0] -= rows[0] == 0.0 and name == "period"  # before the first there was none
            assert np.abs(np.cumsum(bins) - np.cumsum(expected)).max() <= 1  # a time on a bin's edge
            assert bins.sum() == rows.size - (name == "period")


def test_a_tick_leaves_no_garbage_for_a_collector(model: RobotModel, gains: ControllerGains) -> None:
    """Collection is off in the loop: what it makes must go by itself."""
    # As a node does: nothing is compiled below.
    rehearse_controller(model, gains, lambda: make_law("robust", model, gains))
    core, zero, home = Controller(model, gains), np.zeros(model.n), np.array(model.settings.home)
    core.start(0.0, home, zero)
    core.offer_box(replace(model.arm_prior, seq=1), 0.0)
    writer, reader = JointBytesWriter(model.joint_names), JointBytesReader(model.joint_names)
    command, log = CommandBytesWriter(model.n), TorqueTickLog(core, lockstep=False)

    def ticks(first: int, last: int) -> None:
        for k in range(first, last):
            stamp = STAMP + k * 1_000_000
            sample = reader.read(writer.fill(stamp, home, zero, zero))
            out = core.step(1e-3 * (k + 1), sample.q, sample.qd)
            command.fill(stamp, out.torque)
            log.command_sent(time.perf_counter_ns(), stamp, True)
            log.add(stamp, out)

    ticks(0, 50)
    for _ in range(5):  # garbage of earlier tests: what finalisers touch goes the time after
        gc.collect()
    gc.disable()
    try:
        before = len(gc.get_objects())
        ticks(50, 1050)
        assert len(gc.get_objects()) - before < 20
        assert gc.collect() < 20
    finally:
        gc.enable()
