"""``safe-sysid demo`` as a user has it: four processes, real topics; and what happens when one of them is killed."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

pytest.importorskip("rclpy")

from ros_harness import wait_for

from safe_sysid.bring_up import processes as processes_module
from safe_sysid.bring_up.fork_server import ForkServer
from safe_sysid.bring_up.processes import ProcessDiedError, ProcessGroup
from safe_sysid.bring_up.shared_memory import mapped_segments
from safe_sysid.cli import main
from safe_sysid.report.run.summary import Summary
from safe_sysid.resources import resource_path
from safe_sysid.robot import load_robot

pytestmark = pytest.mark.ros

SHM = Path("/dev/shm")


class Demo:
    """A demo in a process of its own."""

    def __init__(self, directory: Path, *arguments: str) -> None:
        self.robot = arguments[arguments.index("--robot") + 1] if "--robot" in arguments else "kinova_gen3"
        self.looked = 0.0
        self.segments: set[str] = set()
        self.foreign: set[str] = set()
        self.lines: list[str] = []
        # A shell's background job ignores SIGINT, and so does what it starts: the demo must not care.
        #: Ports of runs that were killed before: whoever takes such a port finds them.
        self.before = {entry.name for entry in SHM.iterdir()}
        self.process = subprocess.Popen(
            [sys.executable, "-u", "-m", "safe_sysid", "demo", *arguments], cwd=directory, text=True,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, start_new_session=True,
            env={**os.environ, "TERM": "dumb"},
        )  # fmt: skip

    def _read(self) -> Iterator[str]:
        """Lines as they come, kept; now and then it looks which shared memory the demo's processes have."""
        for line in self.process.stdout:
            self.lines.append(line)
            if time.monotonic() - self.looked > 0.3:
                pids = _processes()  # first: what begins between two looks must not count as another's
                own = self._own()
                self.segments |= mapped_segments(own)
                self.foreign |= mapped_segments(pids - own)
                self.looked = time.monotonic()
            yield line

    def read_until(self, word: str) -> None:
        """Read output up to a line with this word."""
        assert any(word in line for line in self._read()), f"no {word!r} in:\n{self.output}"

    def finish(self) -> int:
        """Exit status, once the rest of the output is read."""
        list(self._read())
        status = self.process.wait(timeout=10.0)
        # Ports are numbered for the whole machine: what the other worker's nodes have, or had when a test killed them,
        # is not this demo's to remove.
        self.segments -= self.before | self.foreign | mapped_segments(_processes())
        return status

    @property
    def output(self) -> str:
        return "".join(self.lines)

    def nodes(self) -> dict[str, int]:
        """Living processes that this demo has started, by name; "solver" is the planner's own."""
        return {name: pid for pid, (name, _, started) in self._living().items() if started}

    def _own(self) -> set[int]:
        """The demo and what it has started, also what has no environment of its own yet."""
        living = self._living()
        own = {self.process.pid, *(pid for pid, (_, _, started) in living.items() if started)}
        while more := {pid for pid, (_, parent, _) in living.items() if parent in own} - own:
            own |= more
        return own

    def _living(self) -> dict[int, tuple[str, int, bool]]:
        """Of all living processes: name, parent, and whether their environment says that this demo started them."""
        found, mark = {}, f"SAFE_SYSID_DEMO_PID={self.process.pid}".encode()
        for pid in _processes():
            entry = Path(f"/proc/{pid}")
            with suppress(OSError, ValueError):
                state, parent, *_ = (entry / "stat").read_text().rpartition(") ")[2].split()
                started = mark in (entry / "environ").read_bytes().split(b"\0")
                if state != "Z":
                    found[pid] = (entry / "comm").read_text().strip(), int(parent), started
        return found

    def left(self) -> set[str]:
        """The middleware's shared memory that this demo had, still there although nobody uses it."""
        return {name for name in self.segments - mapped_segments(_processes()) if (SHM / name).exists()}


def _processes() -> set[int]:
    return {int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdigit()}


def robot_file(directory: Path, name: str, **sections: Any) -> str:
    """A packaged robot's file with other settings, in a directory."""
    settings = yaml.safe_load(resource_path(f"config/{name}.yaml").read_text(encoding="utf-8"))
    settings["urdf"] = str(resource_path(f"urdf/{name}.urdf"))
    for section, changed in sections.items():
        settings[section] = {**settings.get(section, {}), **changed} if isinstance(changed, dict) else changed
    file = directory / "robot.yaml"
    file.write_text(yaml.safe_dump(settings))
    return str(file)


@pytest.fixture
def start(tmp_path: Path) -> Iterator[object]:
    """Start demos; none outlives its test."""
    demos: list[Demo] = []

    def begin(*arguments: str) -> Demo:
        demos.append(Demo(tmp_path, *arguments))
        return demos[-1]

    yield begin
    for demo in demos:
        if demo.process.poll() is None:
            demo.process.kill()
            demo.process.wait()
        for pid in demo.nodes().values():
            os.kill(pid, signal.SIGKILL)


@pytest.fixture(scope="module", params=["three_joint", pytest.param("kinova_gen3", marks=pytest.mark.slow)])
def run(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[Demo, Path]:
    """A short run from beginning to end, and on to a goal nearby; of the small arm with trajectories of a second."""
    directory, robot = tmp_path_factory.mktemp("demo"), request.param
    home = load_robot(robot).settings.home
    if robot == "three_joint":
        planner = {"t_f": 1.0, "t_p": 0.5, "intervals": 32, "iteration_budget": 6}
        robot = robot_file(directory, robot, planner=planner, identification={"update_s": 0.5, "take_after_s": 0.3})
    scene = {"name": "near", "goal": [home[0] + 0.1, *home[1:]], "boxes": []}
    (directory / "near.yaml").write_text(yaml.safe_dump(scene))
    demo = Demo(
        directory, "--robot", robot, "--plans", "2", "--payload", "4lb", "--seed", "5", "--out", "here",
        "--json", "also.json", "--scene", "near.yaml", "--then-goal",
    )  # fmt: skip
    try:
        status = demo.finish()
    except BaseException:  # out of time: nothing of it goes on beside the other tests
        demo.process.kill()
        raise
    assert status == 0, demo.output
    return demo, directory


def test_the_run_succeeds_and_says_what_it_does(run: tuple[Demo, Path]) -> None:
    demo, _ = run
    for words in (
        "grips '4lb' in scene near.yaml; uniform noise, seed 5, lock-step",
        "starting controller, planner, identifier",
        "plant is ready",
        "arm is holding",
        "plan 1 of 2",
        "plan 2 of 2",
        "certified for box 0:0",
        "self_clearance",
        "bounds 0:1 at",
        "arm is tracking",
        "arm is braking",
        "step to the goal",
        "way to the goal",
        "--scene near.yaml --lockstep",  # how to prove it again
        "every bound held, nothing was violated",
    ):
        assert words in demo.output, demo.output
    assert demo.output.count("\x1b[") == 0, "no escape codes where nobody can draw"


def test_the_run_leaves_everything(run: tuple[Demo, Path]) -> None:
    demo, directory = run
    out = directory / "here"
    names = {path.name for path in out.iterdir()}
    certificates = {name for name in names if name.startswith("certificate_")}
    plans = {name for name in names if name.startswith("plan_")}
    assert plans == {f"plan_{i:05d}.json" for i in range(len(plans))}
    assert len(plans) >= 3
    assert {
        "summary.json", "plant.npz", "controller.npz", "identifier.json", "planner.json", "log.npz",
        "bounds.png", "judged.npz", "report.html", "log", "parameters",
    } == names - certificates - plans  # fmt: skip
    updates = json.loads((out / "identifier.json").read_text())["updates"]
    narrowed = [update["identity"] for update in updates if update["status"] == "OK"]
    assert len(narrowed) >= 2
    assert certificates == {
        f"certificate_0_{int(identity.split(':')[1]):05d}.{kind}" for identity in narrowed for kind in ("json", "npz")
    }
    scene = str(directory / "near.yaml")
    command = ["verify", str(out), "--robot", demo.robot, "--scene", scene, "--lockstep"]
    assert main(command) == 0, "what the nodes published can be shown again"
    logs = {path.name for path in (out / "log").iterdir()}
    assert logs == {"plant.log", "controller.log", "planner.log", "identifier.log", "ros"}
    assert (directory / "also.json").read_text() == (out / "summary.json").read_text()
    assert demo.nodes() == {}
    assert len(demo.segments) > 5
    assert demo.left() == set()


def test_the_summary_holds(run: tuple[Demo, Path]) -> None:
    summary = Summary.model_validate(json.loads((run[1] / "here" / "summary.json").read_text()))
    assert summary.exit.status == 0
    assert summary.violations.total == 0
    assert (summary.payload, summary.seed, summary.mode) == ("4lb", 5, "lockstep")
    assert {plan.status for plan in summary.plans} == {"planned"}
    assert [plan.purpose for plan in summary.plans[:3]] == ["excitation", "excitation", "task"]
    assert summary.goal.reached
    assert summary.goal.distance_rad < 5e-3
    for plan in summary.plans:
        assert all(m.smallest is None or m.smallest >= 0.0 for m in plan.margins.values())
    evidence = summary.safety.evidence
    assert evidence.tracking_ticks > (6000 if run[0].robot == "kinova_gen3" else 1500)
    assert evidence.updates >= 4
    assert summary.parameters[0].width_share < 0.5, "two trajectories tell a lot about the mass"
    assert all(row.holds for row in summary.parameters)
    for use in (summary.safety.torque, summary.safety.velocity, summary.safety.position):
        assert 0.0 < use.percent < 100.0
    assert 0.0 < summary.safety.tracking_position.percent < 100.0


def test_the_verdict_is_not_blind(run: tuple[Demo, Path]) -> None:
    """The same logs with one number changed: the judge must see it."""
    from safe_sysid.apps.judge.evaluation import evaluate
    from safe_sysid.control.gains.design import design_gains
    from safe_sysid.report.run.logs import read_logs

    model = load_robot(run[0].robot)
    gains = design_gains(model, lockstep=True)
    logs = read_logs(run[1] / "here", model.n)
    assert logs.missing == ()
    logs.plant.q[3000, 1] -= 2.0 * gains.e_bound[1]
    logs.plant.applied[4000, 1] = 1.01 * model.limits.torque[1]
    result = evaluate(logs, model, gains, lambda q: (0.2, None))
    assert (result.violations.tracking, result.violations.torque) == (1, 1)
    part = model.arm_prior.layout.payload
    theta = logs.plant.theta_true
    theta[part.start] = 0.5 * (theta[part.start] + model.arm_prior.payload_lower[0])
    assert evaluate(logs, model, gains, lambda q: (0.2, None)).violations.bounds > 0


@pytest.mark.slow
def test_a_demo_whose_plans_do_not_move_fails_and_says_so(start: object, tmp_path: Path) -> None:
    """Every plan would be certified, nothing would be violated, and nothing learned: that is no success.

    The same of the planner and of the judge, without nodes: test_planning_lessons.py, test_report_evaluation.py.
    """
    robot = robot_file(tmp_path, "kinova_gen3", planner={"k_range": 5e-4, "iteration_budget": 4})
    demo = start("--robot", robot, "--plans", "2", "--payload", "4lb", "--out", "here")
    assert demo.finish() == 1, demo.output
    failed = demo.output.partition("safe-sysid demo: FAILED: ")[2]
    assert "not one certified plan: the only certified plan teaches nothing" in failed, demo.output
    assert "taught nothing about mcy: still as wide as the prior" in failed
    assert "every bound held, nothing was violated" not in demo.output
    summary = Summary.model_validate(json.loads((tmp_path / "here" / "summary.json").read_text()))
    assert summary.exit.status == 1
    assert "taught nothing" in summary.exit.reason
    assert summary.violations.total == 0
    told = json.loads((tmp_path / "here" / "planner.json").read_text())
    assert told["failure"].startswith("excitation failed after 0 plans, 2 more were wanted: no plan that teaches")
    assert {plan["status"] for plan in told["plans"]} == {"no plan that teaches anything"}


def test_the_nodes_were_told_nothing_about_the_payload(run: tuple[Demo, Path]) -> None:
    folder = run[1] / "here" / "parameters"
    for path in folder.iterdir():
        text = path.read_text()
        assert ("payload" in text) == (path.stem == "plant")
        assert ("4lb" in text) == (path.stem == "plant")
    with np.load(run[1] / "here" / "controller.npz") as log:
        assert "theta_true" not in log.files


@pytest.mark.parametrize(
    ("moment", "number", "status", "word"),
    [
        # Nodes that are told in the middle of planning: test_nodes_failures.py; a group's escalation: below.
        pytest.param("arm is holding", signal.SIGINT, 130, "interrupted", marks=pytest.mark.slow),
        # The same signal, and another one that nodes are told of in the same way, before anything can move.
        pytest.param("starting controller", signal.SIGINT, 130, "interrupted", marks=pytest.mark.slow),
        pytest.param("controller is ready", signal.SIGTERM, 143, "terminated", marks=pytest.mark.slow),
    ],
)
def test_ctrl_c_ends_everything(start: object, moment: str, number: int, status: int, word: str) -> None:
    demo = start("--payload", "4lb")
    demo.read_until(moment)
    wait_for(lambda: len(demo.nodes()) >= 3, 10.0, "three nodes")
    began = time.monotonic()
    demo.process.send_signal(number)
    assert demo.finish() == status
    assert time.monotonic() - began < 12.0
    assert demo.nodes() == {}
    assert demo.left() == set()
    assert word in demo.output
    assert "Traceback" not in demo.output


@pytest.mark.slow
@pytest.mark.parametrize("victim", ["planner", "controller"])
def test_a_killed_process_fails_the_run_with_its_name_and_last_lines(
    start: object, victim: str, tmp_path: Path
) -> None:
    demo = start("--out", "here")
    demo.read_until("arm is holding")
    os.kill(demo.nodes()[victim], signal.SIGKILL)
    assert demo.finish() == 1
    assert f"{victim} was killed by SIGKILL" in demo.output
    # How much it wrote before the signal reached it depends on the machine: READY may have scrolled away.
    last_lines = demo.output.partition(f"{victim} was killed by SIGKILL")[2].partition("its last lines:")[2]
    assert f"READY {victim}" in last_lines or f"[{victim}]: " in last_lines
    assert demo.nodes() == {}
    assert demo.left() == set()
    data = json.loads((tmp_path / "here" / "summary.json").read_text())
    assert data["exit"]["status"] == 1
    assert victim in data["exit"]["reason"]
    assert sum(data["violations"].values()) == 0


@pytest.mark.slow
def test_no_process_outlives_a_killed_demo(start: object) -> None:
    demo = start()
    demo.read_until("all four work")
    assert set(demo.nodes()) == {"fork_server", "controller", "planner", "solver", "identifier", "plant"}
    demo.process.kill()
    wait_for(lambda: not demo.nodes(), 60.0, "the end of all")  # half a second, if nothing is being compiled


@pytest.mark.slow
def test_a_node_that_cannot_start_is_reported(start: object, tmp_path: Path) -> None:
    """The corner of the tolerances together with a payload at the edge of the prior: only the plant can find out."""
    # Friction so steep that the simulator refuses it; everything that the parent checks is fine.
    demo = start("--robot", robot_file(tmp_path, "kinova_gen3", friction_transition_velocity=1e-7))
    assert demo.finish() == 1, demo.output
    assert "plant ended with exit status 2; its last lines" in demo.output
    assert "Coulomb friction" in demo.output


@pytest.fixture
def stubborn(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ProcessGroup]:
    """A process that ignores what can be ignored, in a group that does not wait long."""
    (tmp_path / "be_stubborn.py").write_text(
        "import signal, sys, time\n"
        "def become_node(*_):\n"
        "    for number in (signal.SIGINT, signal.SIGTERM): signal.signal(number, signal.SIG_IGN)\n"
        "    print('READY stubborn', flush=True)\n"
        "    time.sleep(600)\n"
        "sys.modules['__main__'].become_node = become_node\n"  # the server's
    )
    monkeypatch.setattr("safe_sysid.bring_up.processes._ESCALATION", ((2, 0.3), (15, 0.3), (9, 5.0)))
    monkeypatch.syspath_prepend(tmp_path)  # where the server looks for modules, too
    with ForkServer("be_stubborn") as server, ProcessGroup(server) as group:
        process = group.start("stubborn", (), dict(os.environ), tmp_path / "log")
        wait_for(process.check_ready, 10.0, "READY")
        group.check()
        yield group


def test_a_process_that_ignores_everything_is_killed(stubborn: ProcessGroup) -> None:
    """Bounded waits: three signals, then it is gone."""
    assert stubborn.stop() == ["stubborn"]
    assert stubborn.processes[0].process.poll() == -signal.SIGKILL
    with pytest.raises(ProcessDiedError, match="stubborn was killed by SIGKILL"):
        stubborn.check()


def test_a_terminal_that_is_closed_meanwhile_leaves_nobody(
    stubborn: ProcessGroup, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ctrl-C, and then SIGHUP or SIGTERM while it is waited for: the next step at once, and then the end."""

    class Terminated(BaseException):
        pass

    wait, times = processes_module._wait, []

    def interrupted(processes: list[Any], patience: float, brakes: bool) -> None:
        times.append(patience)
        if len(times) == 1:
            raise Terminated
        wait(processes, patience, brakes)

    monkeypatch.setattr(processes_module, "_wait", interrupted)
    with pytest.raises(Terminated):
        stubborn.stop()
    assert stubborn.processes[0].process.poll() == -signal.SIGKILL
