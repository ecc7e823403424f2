"""What stands between a real arm and a first command: its declarations, and who acts when commands cease."""

from __future__ import annotations

import contextlib
import itertools
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from safe_sysid.errors import ConfigError, SafeSysIdError
from safe_sysid.robot import load_robot
from safe_sysid.robot.overrides import overrides_of

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "launch"))
from safe_sysid_launch import command_guard, declarations  # noqa: E402
from safe_sysid_launch.command_guard import CommandWatch, watch  # noqa: E402

SILENCE = 0.05


class Commands:
    """A clock, commands at given times, a controller manager that may fail, and the signal to end."""

    def __init__(self, times: list[float], *, fails: int = 0, end: float = 1e9) -> None:
        self.now, self.times, self.fails, self.end = 0.0, sorted(times), fails, end
        self.state, self.acts, self.said = CommandWatch(SILENCE), [], []
        self.limit = (max(times) if times else 0.0) + 10.0

    def turn(self) -> None:
        """As a node's: what waits comes first, else half the silence passes."""
        if self.now > self.limit:
            raise EOFError
        if self.times and self.times[0] <= self.now + 0.5 * SILENCE:
            self.now = max(self.now, self.times.pop(0))
            self.state.heard(self.now)
        else:
            self.now += 0.5 * SILENCE

    def act(self) -> bool:
        self.acts.append(self.now)
        self.fails -= 1
        self.now += 0.01
        return self.fails < 0

    def run(self, **options: float) -> Commands:
        with contextlib.suppress(EOFError):
            watch(
                self.state, self.turn, self.act, lambda: self.now >= self.end, self.said.append, lambda: self.now,
                **options,
            )  # fmt: skip
        return self


def test_the_controller_is_deactivated_once_when_commands_cease_and_not_before_the_first() -> None:
    commands = Commands([1.0 + 0.001 * k for k in range(500)]).run()
    (acted,) = commands.acts
    assert 1.499 + SILENCE <= acted <= 1.499 + 2.6 * SILENCE
    assert "deactivated" in commands.said[0]
    again = Commands([1.0, 1.01, 3.0, 3.02]).run()
    assert [round(t) for t in again.acts] == [1, 3], "each time anew"
    assert Commands([]).run().acts == []


@settings(max_examples=50, deadline=None)
@given(st.lists(st.floats(0.0, 0.9 * SILENCE), min_size=1, max_size=40), st.integers(0, 5))
def test_only_silence_counts_and_a_refusal_is_asked_again(gaps: list[float], fails: int) -> None:
    times = list(itertools.accumulate(gaps, initial=1.0))[1:]
    commands = Commands(times, fails=fails).run()
    assert min(commands.acts) >= times[-1] + SILENCE
    assert len(commands.acts) == fails + 1
    assert sum("NOT" in line for line in commands.said) == (fails > 0), "told once, not a thousand times"
    assert "effort controller deactivated" in commands.said[-1]


def test_a_program_that_stalled_hears_first_and_judges_then() -> None:
    commands = Commands([1.0 + 0.001 * k for k in range(1000)])
    turn = commands.turn

    def stalling() -> None:
        turn()
        if 1.4 < commands.now < 1.5:
            commands.now = 1.8  # and 400 commands wait

    commands.turn = stalling  # type: ignore[method-assign]
    commands.run()
    assert min(commands.acts) >= 1.999 + SILENCE


def test_at_the_end_it_stays_until_commands_have_ceased() -> None:
    commands = Commands([1.0 + 0.001 * k for k in range(1000)], end=1.2).run()
    assert len(commands.acts) == 1
    assert commands.acts[0] >= 1.999 + SILENCE
    idle = Commands([], end=0.5).run()
    assert (idle.acts, idle.now) == ([], pytest.approx(0.5, abs=SILENCE))
    for_ever = Commands([1.0 + 0.01 * k for k in range(1000)], end=1.2).run()
    assert for_ever.acts == []
    assert for_ever.now < 5.0
    assert "NOT deactivated" in for_ever.said[0]
    broken = Commands([1.0], end=1.0, fails=10**6).run()
    assert broken.now < 5.0
    assert "NOT deactivated" in broken.said[-1]


def test_at_the_end_it_waits_for_the_controller_to_brake() -> None:
    commands = Commands([1.0 + 0.001 * k for k in range(5000)], end=1.2).run(patience=7.0)
    assert [5.999 + SILENCE <= acted < 6.2 for acted in commands.acts] == [True]
    assert commands.now < 6.3, "it has ended"


def test_a_controller_that_hands_back_with_zero_torque_is_not_deactivated() -> None:
    assert command_guard.why_it_falls("forward_command_controller/ForwardCommandController") == ""
    for kind in ("effort_controllers/JointGroupEffort", "joint_trajectory_controller/JointTrajectory"):
        assert "the arm would fall" in command_guard.why_it_falls(f"{kind}Controller")


def test_the_request_deactivates_and_nothing_else() -> None:
    class Request(SimpleNamespace):
        BEST_EFFORT, STRICT = 1, 2

    made = command_guard.request(SimpleNamespace(Request=Request), "effort_controller")
    assert vars(made) == {"deactivate_controllers": ["effort_controller"], "strictness": 1}


def test_without_ros2_control_the_guard_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["--topic", "t", "--controller", "c", "--manager", "m", "--silence", "0.1"]
    try:
        import controller_manager_msgs  # noqa: F401
    except ImportError:
        pytest.importorskip("rclpy")
        assert command_guard.main(words) == 1
        assert "controller_manager_msgs is not installed" in capsys.readouterr().err
    else:
        pytest.skip("it is installed here")


# -- declarations -------------------------------------------------------------------------------------------------


def declared_by(folder: Path, text: str, robot: str = "kinova_gen3", namespace: str = "") -> Any:
    """The arm that a robot's file and this parameter file declare."""
    (folder / "params.yaml").write_text(text)
    return declarations.declared_arm(robot, str(folder / "params.yaml"), namespace)


@pytest.mark.parametrize(
    "body",
    [
        "/**:\n  ros__parameters:\n    robot_settings.driver.command_timeout_s: 0.3\n",
        "/**:\n  ros__parameters:\n    robot_settings: {driver: {command_timeout_s: 0.3}}\n",
        "left:\n  '**':\n    ros__parameters: {robot_settings.driver.command_timeout_s: 0.3}\n",
    ],
)
def test_the_arm_is_the_one_that_the_nodes_will_have(tmp_path: Path, body: str) -> None:
    assert declared_by(tmp_path, body, namespace="/left").settings.driver.command_timeout_s == 0.3
    mounted = "/**:\n  ros__parameters: {robot_settings.mounting.xyz: [0.0, 0.0, 1.5]}\n"
    assert list(declared_by(tmp_path, mounted, "three_joint").mounting[0]) == [0, 0, 1.5]
    assert declarations.declared_arm("kinova_gen3").settings.driver.command_timeout_s == 0.02


@pytest.mark.parametrize(
    ("body", "named"),
    [
        ("/**:\n  ros__parameters: {robot: ur5e}\n", "robot"),
        ("/controller:\n  ros__parameters: {robot_settings.timing.hold_max_s: 0.002}\n", "timing.hold_max_s"),
        ("/**:\n  ros__parameters: {robot_settings.timing.hold_maximum: 0.002}\n", "hold_maximum"),
        ("plans: 3\n", "ros__parameters"),
    ],
)
def test_a_parameter_file_that_means_another_arm_is_refused(tmp_path: Path, body: str, named: str) -> None:
    with pytest.raises(SafeSysIdError, match=named):
        declared_by(tmp_path, body)


@pytest.mark.parametrize("robot", sorted(path.stem for path in (ROOT / "config").glob("*.yaml")))
def test_a_packaged_robot_is_no_real_one(robot: str, tmp_path: Path) -> None:
    try:
        declarations.declared_arm(robot)
    except ConfigError as error:
        pytest.skip(str(error))  # a URDF that another package brings
    packaged = ROOT / "config" / f"{robot}.yaml"
    link = tmp_path / "link.yaml"
    link.symlink_to(packaged)
    for name in (robot, str(packaged), str(link)):
        arm = declarations.declared_arm(name)
        with pytest.raises(ConfigError, match="copy it") as refused:
            declarations.refuse_simulated(arm, accepted=False)
        assert "command_timeout_s" in refused.value.expected
        declarations.refuse_simulated(arm, accepted=True)
    own = tmp_path / "my_arm.yaml"
    own.write_bytes(packaged.read_bytes())
    declarations.refuse_simulated(declarations.declared_arm(str(own)), accepted=False)


def test_nothing_is_activated_before_the_user_says_that_the_arm_stops() -> None:
    arm = declarations.declared_arm("kinova_gen3")
    ask: Callable[..., Any] = declarations.why_not_commanded
    assert ask(arm, True, True, "effort_controller") == ""
    assert ask(arm, True, False, "effort_controller") == ""
    assert "keeps the last torque" in ask(arm, False, False, "effort_controller")
    with pytest.raises(ConfigError, match="driver_stops_without_commands"):
        ask(arm, False, True, "effort_controller")


def test_an_unknown_timeout_is_one_that_real_time_refuses() -> None:
    given_settings = {key.removeprefix("robot_settings."): v for key, v in declarations.UNKNOWN_TIMEOUT.items()}
    assert load_robot("kinova_gen3", **overrides_of(given_settings)).settings.driver.command_timeout_s is None
