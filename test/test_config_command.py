"""``safe-sysid config``: check, show, reference; what they say of good, doubtful and broken files."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml

from safe_sysid.cli import main
from safe_sysid.resources import resource_path
from safe_sysid.robot import load_robot
from safe_sysid.robot.config import KEYS
from safe_sysid.robot.suspicious import suspicions

KINOVA = resource_path("config/kinova_gen3.yaml").read_text(encoding="utf-8")


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def doubts(*changes: tuple[str, str]) -> str:
    """Of a copy of the packaged robot's file, arm.yaml, with some texts replaced."""
    text, path = KINOVA, Path("arm.yaml")
    for old, new in changes:
        assert text.count(old) >= 1, old
        text = text.replace(old, new, 1)
    path.write_text(text, encoding="utf-8")
    return "\n".join(suspicions(load_robot(path), path))


def said(capsys: pytest.CaptureFixture[str], *words: str, status: int = 0) -> str:
    """What ``safe-sysid config`` prints, or complains of."""
    assert main(["config", *words]) == status
    out, error = capsys.readouterr()
    return error if status else out


# -- show --------------------------------------------------------------------------------------------------------


def test_show_has_every_value_its_unit_source_and_meaning(capsys: pytest.CaptureFixture[str]) -> None:
    doubts(
        ("  velocity_error: 0.0 ", "  # velocity_error "),
        ("torque: 56.7, ", ""),
        ("measurement:\n", "measurement:\n  velocity_error: 0.01\n"),
    )
    lines = said(capsys, "show", "arm.yaml").splitlines()
    shown = dict(line.split(": ", 1) for line in lines if not line.startswith(" "))
    assert shown["measurement.velocity_error"] == "0.01 rad/s  (file)"
    assert shown["controller.laws.impedance.stiffness"] == "200.0 N m/rad  (default)"
    assert shown["joints.joint_1.torque"].endswith("N m  (URDF)")
    assert shown["joints.joint_1.position"] == "continuous rad  (file)"
    assert shown["measurement.jerk"] == "none rad/s^3  (default)"
    for key, line in zip(lines[::2], lines[1::2], strict=True):
        assert line.strip() == KEYS.find(key.partition(": ")[0]).description


def test_show_of_some_keys(capsys: pytest.CaptureFixture[str]) -> None:
    lines = said(capsys, "show", "kinova_gen3", "--key", "timing", "--key", "measurement.effort").splitlines()
    keys = [line.partition(": ")[0] for line in lines[::2]]
    assert keys == ["measurement.effort", "timing.period_s", "timing.hold_max_s", "timing.delay_max_s"]
    # The nominal, and what is proved of it.
    assert said(capsys, "show", "kinova_gen3", "--key", "viscous").count("joints.joint_") == 14
    error = said(capsys, "show", "kinova_gen3", "--key", "timming", status=2)
    assert "timming" in error
    assert "timing" in error.replace("timming", "")


def test_show_as_yaml_is_the_same_robot(capsys: pytest.CaptureFixture[str]) -> None:
    text = said(capsys, "show", "kinova_gen3", "--yaml")
    Path("whole.yaml").write_text(text, encoding="utf-8")
    assert load_robot("whole.yaml").settings == load_robot("kinova_gen3").settings
    data = yaml.safe_load(text)
    optional = ("mounting.", "controller.tube.", "<")
    required = {p.path for p in KEYS.values() if p.type != "section" and not any(o in p.path for o in optional)}
    assert not [path for path in required if not _has(data, path.split("."))], "nothing is left to a default"


def _has(data: object, path: list[str]) -> bool:
    return not path or (isinstance(data, dict) and path[0] in data and _has(data[path[0]], path[1:]))


def test_show_as_json_is_for_programs(capsys: pytest.CaptureFixture[str]) -> None:
    (value,) = json.loads(said(capsys, "show", "kinova_gen3", "--key", "planner.t_p", "--json"))
    assert value.pop("description")
    assert value == {
        "key": "planner.t_p", "value": 1.5, "unit": "s", "source": "file", "default": 1.5, "required": False,
        "allowed": "(0, inf)",
    }  # fmt: skip


# -- check: doubts -----------------------------------------------------------------------------------------------


def test_values_that_are_to_be_measured_are_named_with_their_line() -> None:
    text = doubts(
        ("  relative: 0.05\n", "  relative: 0.05   # a guess: to be measured\n"),
        ("friction_transition_velocity", "# To be measured.\nfriction_transition_velocity"),
        ("  joint_3: {position", "  # to be measured: viscous\n  joint_3: {position"),
    )
    assert "to be measured: joints.joint_3" in text
    assert "friction_transition_velocity (line" in text
    assert "uncertainty.relative (line" in text
    line = int(text.split("uncertainty.relative (line ")[1].split(")")[0])
    assert "relative: 0.05" in Path("arm.yaml").read_text().splitlines()[line - 1]
    assert "to be measured" not in doubts()


def test_a_hand_with_fingers_that_changes_nothing_is_doubted() -> None:
    opening = KINOVA[KINOVA.index("  hand_opening:") : KINOVA.index("  # Locked joints that open")]
    assert "hand_opening" not in doubts()
    assert "payload.hand_opening is zero, but the hand has robotiq_85_left_knuckle_link" in doubts((opening, ""))


def test_limits_beyond_the_urdf_are_doubted() -> None:
    """The packaged robot's torque and velocity limits are the user guide's: more than its URDF has, and so are told."""
    assert "position limits" not in doubts()
    text = doubts(("position: [-2.2497, 2.2497]", "position: [-3.0, 2.0]"), ("torque: 56.7", "torque: 38.0"))
    assert "position limits allow more than the URDF: joint_2 3 instead of 2.41\n" in text
    assert "torque limits allow more than the URDF: joint_2 56.7 instead of 39, joint_3" in text


FLOOR = KINOVA[KINOVA.index("  floor:") : KINOVA.index("# What the last link")]


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ([("rotor_inertia: 8.03, viscous: 10.5", "rotor_inertia: 0.0, viscous: 0.0")], "joints.joint_1: no friction"),
        ([("torque_abs: 0.05 ", "torque_abs: 0.0 "), ("torque_rel: 0.025 ", "torque_rel: 0 ")], "torque_rel are zero"),
        ([("rate_hz: 1000.0", "rate_hz: 500.0")], "rate_hz = 500, but timing.period_s = 0.001"),
        ([("position_error: 0.0 ", "position_error: 1.0e-4 ")], "\nmeasurement.velocity_error: zero"),
        ([("  relative: 0.05", "  relative: 0.0"), (FLOOR, "")], "uncertainty is zero"),
        ([("  command_timeout_s: 0.02 ", "  command_timeout_s: null ")], "driver.command_timeout_s is not declared"),
    ],
)  # fmt: skip
def test_what_is_probably_not_meant(changes: list[tuple[str, str]], words: str) -> None:
    assert words in doubts(*changes)
    assert words not in doubts()


def test_an_arm_that_follows_trajectories_needs_no_command_timeout() -> None:
    """Where commands cease it ends at rest by itself, and nothing asks for the driver's timeout."""
    silent = [("  command_timeout_s: 0.02 ", "  command_timeout_s: null ")]
    follows = [("controller:\n", "controller:\n  interface: trajectory\n"), ("  effort: held", "  effort: mean")]
    assert "command_timeout_s" in doubts(*silent)
    assert "command_timeout_s" not in doubts(*silent, *follows)


def test_strict_counts_doubts(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("safe_sysid.apps.check.check.judge", lambda *_: [])
    assert main(["config", "check", "kinova_gen3"]) == 0
    capsys.readouterr()
    assert main(["config", "check", "kinova_gen3", "--strict"]) == 1
    out, error = capsys.readouterr()
    assert "warning: measurement.position_error" in out
    assert "warnings (--strict)" in error


# -- check: node parameters --------------------------------------------------------------------------------------

NODES = """
/**:
  ros__parameters:
    use_sim_time: false
    lockstep: true
    robot: kinova_gen3
    robot_settings: {measurement: {torque_abs: 0.1}, planner.plans: 3}
/left/planner:
  ros__parameters: {plans: 6, cost: condition}
right:
  plant:
    ros__parameters: {payload: 8lb, start_q: [0.0, 0.26, 3.1416, -2.27, 0.0, 0.96, 1.5708]}
robot_state_publisher:
  ros__parameters: {publish_frequency: 30.0}
"""


def test_a_file_of_node_parameters(capsys: pytest.CaptureFixture[str]) -> None:
    Path("nodes.yaml").write_text(NODES)
    status = main(["config", "check", "nodes.yaml"])
    out, error = capsys.readouterr()
    assert (status, error) == (0, "")
    assert "/left/planner: 2 parameters of planner" in out
    assert "right/plant: 2 parameters of plant" in out
    assert "warning: robot_state_publisher" in out
    assert "robot kinova_gen3 with 2 other settings" in out


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("plans: 6", "plans: -1", ["/left/planner: plans = -1", ">= 0", "exciting trajectories"]),
        ("torque_abs: 0.1", "torque_abs: -0.1", ["measurement.torque_abs = -0.1"]),
        ("plans: 6", "plan: 6", ["plan = 6", "did you mean plans?"]),
        ("plans: 6", "plans: null", ["plans = None", "ROS has no null"]),
        ("plans: 6", "payload: 8lb", ["payload = '8lb'", "expected a parameter of planner"]),
        ("[0.0, 0.26", "[0, 0.26", ["start_q", "entries of one type"]),
        ("lockstep: true", "lockstep: 1", ["lockstep = 1", "true or false"]),
        ("plans: 6", "plans: 6, robot: ur5e", ["robot: ", "planner 'ur5e'", "expected the same"]),
        ("plans: 6", "robot_settings.timing.hold_max_s: 0.002", ["timing.hold_max_s", "expected the same"]),
        ("ros__parameters: {plans: 6, cost: condition}", "{plans: 6}", ["/left/planner", "section ros__parameters"]),
    ],
)  # fmt: skip
def test_what_nodes_would_refuse(old: str, new: str, words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert NODES.count(old) == 1
    Path("nodes.yaml").write_text(NODES.replace(old, new))
    # What the robot cannot have is refused before nodes are looked at.
    error = said(capsys, "check", "nodes.yaml", status=2 if old.startswith("torque_abs") else 1)
    for word in words:
        assert word in error


def test_arms_in_namespaces_may_differ(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("safe_sysid.apps.check.parameters.judge", lambda *_: [])

    def check(text: str) -> int:
        Path("nodes.yaml").write_text(text)
        return main(["config", "check", "nodes.yaml"])

    two = """
/**: {ros__parameters: {seed: 3}}
/left/**: {ros__parameters: {robot_settings.measurement.torque_abs: 0.1}}
/left/controller: {ros__parameters: {lockstep: true}}
/left/planner: {ros__parameters: {lockstep: true}}
/right/planner: {ros__parameters: {robot_settings.measurement.torque_abs: 0.2}}
"""
    assert check(two) == 1
    error = capsys.readouterr().err
    assert "/right: robot_settings.measurement.torque_abs: controller '(not given)', planner 0.2" in error
    assert "/left: lockstep: controller True, planner True, identifier '(not given)'" in error
    good = two.replace("/right/planner", "/right/**")
    assert check(good.replace("{lockstep: true}", "{}")) == 0
    # rcl takes them in the order of the file: a pattern that comes later replaces what a node was given.
    assert check(good + "/left/*: {ros__parameters: {lockstep: false}}") == 0
    assert check("/left/*: {ros__parameters: {lockstep: false}}" + good) == 1


# -- init and reference ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--urdf", "a.urdf"], "--out"),
        (["--out", "a.yaml"], "--urdf"),
        (["--urdf", "a.urdf", "--out", "a.yaml", "--lock", "finger"], "JOINT=VALUE"),
        (["--urdf", "a.urdf", "--out", "a.yaml", "--lock", "finger=nan"], "JOINT=VALUE"),
        (["--urdf", "a.urdf", "--out", "a.yaml", "--payload-kg", "-1"], ">= 0"),
        (["--urdf", "nothing.urdf", "--out", "a.yaml"], "nothing.urdf"),
        (["--urdf", "nothing.urdf", "--out", "no/where/a.yaml"], "no/where"),
    ],
)
def test_init_refuses_in_one_line(arguments: list[str], words: str, capsys: pytest.CaptureFixture[str]) -> None:
    error = said(capsys, "init", *arguments, status=2)
    assert error.count("\n") == 1
    assert words in error
    assert not list(Path.cwd().iterdir())


def test_reference(capsys: pytest.CaptureFixture[str]) -> None:
    text = said(capsys, "reference")
    said(capsys, "reference", "--out", "page.md")
    assert Path("page.md").read_text(encoding="utf-8") == text
    said(capsys, "reference", "--out", "no/page.md", status=2)
