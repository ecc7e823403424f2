"""The launch files by the stock ``launch``: they load, describe themselves, and start what they should."""

from __future__ import annotations

import asyncio
import importlib.util
import sys
from collections.abc import Iterator
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import yaml


def _missing() -> str:
    for name in ("launch.launch_context", "launch_ros.actions", "composition_interfaces"):
        try:
            if importlib.util.find_spec(name) is None:
                return name
        except ModuleNotFoundError:
            return name
    return ""


if _missing():
    pytest.skip(
        f"{_missing().partition('.')[0]} is not installed: it is part of ROS 2 and in no registry",
        allow_module_level=True,
    )

from launch import LaunchContext, LaunchDescription, LaunchService  # noqa: E402
from launch.actions import DeclareLaunchArgument, ExecuteProcess, LogInfo, OpaqueFunction  # noqa: E402
from launch.launch_description_sources import get_launch_description_from_python_launch_file  # noqa: E402
from launch_ros.actions import LifecycleNode, Node  # noqa: E402

#: What real_arm.launch.py asks for before it starts anything.
REAL = {"robot": "kinova_gen3", "simulated_declarations": "accept", "driver_stops_without_commands": "yes"}
LAUNCH = Path(__file__).resolve().parent.parent / "launch"
FILES = sorted(path.name for path in LAUNCH.glob("*.launch.py"))
sys.path.insert(0, str(LAUNCH))


def described(name: str) -> LaunchDescription:
    return get_launch_description_from_python_launch_file(str(LAUNCH / name))


def actions(name: str, **arguments: str) -> list[Any]:
    """What the file starts with these arguments, nothing executed."""
    context = LaunchContext()
    context.launch_configurations.update(arguments)
    found: list[Any] = []
    for entity in described(name).entities:
        made = entity.visit(context)
        if isinstance(entity, OpaqueFunction):
            found += made or []
    return found


def nodes(found: list[Any]) -> dict[str, Node]:
    context = LaunchContext()
    result = {}
    for action in found:
        if isinstance(action, Node):
            action._perform_substitutions(context)
            result[action.node_name or action.node_executable] = action
    return result


def parameters(node: Node) -> dict[str, Any]:
    """What the node's parameter files say."""
    merged: dict[str, Any] = {}
    for file, is_file in node._Node__expanded_parameter_arguments or []:
        if is_file:
            for section in yaml.safe_load(Path(file).read_text()).values():
                merged |= section["ros__parameters"]
    return merged


def remappings(node: Node) -> dict[str, str]:
    return dict(node.expanded_remapping_rules or [])


@pytest.fixture(autouse=True)
def _no_leftovers(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Environment variables that a launch sets go away with the test."""
    import os

    before = dict(os.environ)
    yield
    os.environ.clear()
    os.environ.update(before)


@pytest.mark.parametrize("name", FILES)
def test_every_argument_has_a_description_and_a_default_among_its_choices(name: str) -> None:
    arguments = [a for a in described(name).entities if isinstance(a, DeclareLaunchArgument)]
    assert arguments
    context = LaunchContext()
    for argument in arguments:
        assert len(argument.description) > 5
        assert "no description" not in argument.description.lower()
        if argument.default_value is None:
            assert (name, argument.name) == ("real_arm.launch.py", "robot"), "nothing else has to be given"
            continue
        default = "".join(part.perform(context) for part in argument.default_value)
        if argument.choices is not None:
            assert default in argument.choices


@pytest.mark.parametrize("name", FILES)
def test_a_value_that_is_no_choice_is_refused(name: str) -> None:
    choosy = next(a for a in described(name).entities if isinstance(a, DeclareLaunchArgument) and a.choices)
    with pytest.raises(RuntimeError, match=choosy.name):
        actions(name, **{"robot": "kinova_gen3", choosy.name: "neither"})


def test_sim_starts_three_managed_nodes_and_the_plant_after_them() -> None:
    found = nodes(
        actions(
            "sim.launch.py", namespace="arm_1", payload="4lb", seed="3", plans="2", state_publisher="false"
        )
    )
    assert set(found) == {"/arm_1/planner", "/arm_1/identifier", "/arm_1/controller"}
    assert all(isinstance(node, LifecycleNode) for node in found.values())
    for node in found.values():
        assert remappings(node) == {"/clock": "/arm_1/clock"} or remappings(node) == {"/clock": "clock"}
        values = parameters(node)
        assert values["robot"] == "kinova_gen3"
        assert values["lockstep"] is True
        assert values["seed"] == 3
        assert "payload" not in values, "what the hand holds is for the plant alone"
        assert "realtime.priority" not in values
    assert parameters(found["/arm_1/planner"])["plans"] == 2


def test_in_real_time_the_loop_comes_first() -> None:
    found = nodes(actions("sim.launch.py", lockstep="false", state_publisher="false"))
    values = {name: parameters(node) for name, node in found.items()}
    assert values["/controller"]["realtime.priority"] == 11
    assert values["/planner"]["realtime.nice"] == 5
    assert values["/identifier"]["realtime.nice"] == 10
    assert all(remappings(node) == {} for node in found.values())


@pytest.mark.parametrize("name", ["LOCALHOST", "SUBNET"])
def test_in_real_time_there_is_no_shared_memory(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    from launch.actions import SetEnvironmentVariable

    def variables(lockstep: str) -> dict[str, str]:
        context = LaunchContext()
        found = actions("sim.launch.py", lockstep=lockstep, state_publisher="false")
        perform = context.perform_substitution
        chosen = [action for action in found if isinstance(action, SetEnvironmentVariable)]
        return {"".join(map(perform, action.name)): "".join(map(perform, action.value)) for action in chosen}

    for variable in (
        "FASTDDS_BUILTIN_TRANSPORTS",
        "FASTDDS_DEFAULT_PROFILES_FILE",
        "FASTRTPS_DEFAULT_PROFILES_FILE",
    ):
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setenv("ROS_AUTOMATIC_DISCOVERY_RANGE", name)
    assert not [key for key in variables("true") if key.startswith(("FAST", "ROS"))]
    found = variables("false")
    if name == "LOCALHOST":  # brings shared memory with it
        assert found["ROS_AUTOMATIC_DISCOVERY_RANGE"] == "SYSTEM_DEFAULT"
        assert Path(found["FASTRTPS_DEFAULT_PROFILES_FILE"]).is_file()
    else:
        assert found["FASTDDS_BUILTIN_TRANSPORTS"] == "UDPv4"
        assert "ROS_AUTOMATIC_DISCOVERY_RANGE" not in found
    monkeypatch.setenv("FASTDDS_DEFAULT_PROFILES_FILE", "mine.xml")
    assert not [key for key in variables("false") if key.startswith(("FAST", "ROS"))]


@pytest.mark.parametrize(
    ("arguments", "command"),
    [
        ({}, "effort_controller/commands"),
        ({"effort_controller": "arm_effort"}, "arm_effort/commands"),
        ({"effort_command": "/driver/torques"}, "/driver/torques"),
    ],
)
def test_a_real_arm_is_met_on_its_own_topics(arguments: dict[str, str], command: str, tmp_path: Path) -> None:
    found = nodes(
        actions(
            "real_arm.launch.py",
            **REAL,
            namespace="left",
            joint_states="/left/driver/joint_states",
            run_dir=str(tmp_path),
            **arguments,
        )
    )
    assert set(found) == {"/left/planner", "/left/identifier", "/left/controller"}
    for node in found.values():
        assert remappings(node) == {"joint_states": "/left/driver/joint_states", "effort_command": command}
        values = parameters(node)
        assert values["lockstep"] is False
        assert values["run_dir"] == str(tmp_path / "left")
        assert values["use_sim_time"] is False
    assert parameters(found["/left/planner"])["start_on_activation"] is False, "motion is asked for by itself"
    assert (tmp_path / "left").is_dir()


def test_the_view_of_a_real_arm_hears_its_driver() -> None:
    measured = {"namespace": "left", "joint_states": "/left/driver/joint_states"}
    viewer = nodes(actions("real_arm.launch.py", **REAL, **measured, web="true"))["/left/viewer"]
    assert remappings(viewer) == {"joint_states": measured["joint_states"]}


def started(found: list[Any]) -> list[str]:
    """Words of the programs that are no ROS nodes of a package."""
    context = LaunchContext()
    plain = [a for a in found if isinstance(a, ExecuteProcess) and not isinstance(a, Node)]
    return [
        part for action in plain for word in action.cmd for part in [context.perform_substitution(word[0])]
    ]


def told(found: list[Any]) -> str:
    context = LaunchContext()
    return "\n".join(
        "".join(context.perform_substitution(part) for part in action.msg)
        for action in found
        if isinstance(action, LogInfo)
    )


def test_a_real_arm_has_to_be_named_and_be_none_of_the_simulation() -> None:
    with pytest.raises(RuntimeError, match="robot"):
        actions("real_arm.launch.py", driver_stops_without_commands="yes")
    with pytest.raises(Exception, match="copy it and declare"):
        actions("real_arm.launch.py", robot="kinova_gen3", driver_stops_without_commands="yes")


def test_a_real_arm_is_not_commanded_before_somebody_says_that_it_stops(tmp_path: Path) -> None:
    unsaid = {**REAL, "driver_stops_without_commands": "no"}
    with pytest.raises(Exception, match="driver_stops_without_commands"):
        actions("real_arm.launch.py", **unsaid, activate="true")
    file = tmp_path / "over.yaml"
    file.write_text("/**:\n  ros__parameters: {robot_settings.driver.command_timeout_s: 0.3}\n")
    found = actions("real_arm.launch.py", **unsaid, params_file=str(file))
    assert "will refuse to become active" in told(found)
    for node in nodes(found).values():
        value = parameters(node)["robot_settings.driver.command_timeout_s"]
        assert (value, type(value)) == ("null", str), "whatever the parameter file says"
    found = actions("real_arm.launch.py", **REAL, params_file=str(file))
    assert "refuse" not in told(found)
    for node in nodes(found).values():
        assert parameters(node)["robot_settings.driver.command_timeout_s"] == 0.3


def test_a_real_arm_has_a_guard_where_ros2_control_is(monkeypatch: pytest.MonkeyPatch) -> None:
    if importlib.util.find_spec("controller_manager_msgs") is None:
        found = actions("real_arm.launch.py", **REAL)
        assert "nobody deactivates effort_controller" in told(found)
        assert started(found) == []
    monkeypatch.setitem(sys.modules, "controller_manager_msgs", ModuleType("controller_manager_msgs"))
    sys.modules["controller_manager_msgs"].__spec__ = ModuleSpec("controller_manager_msgs", None)
    words = started(actions("real_arm.launch.py", **REAL, namespace="left", effort_controller="arm_effort"))
    assert words[0] == sys.executable
    assert Path(words[1]).is_file()
    assert dict(zip(words[2:12:2], words[3:12:2], strict=True)) == {
        "--topic": "arm_effort/commands",
        "--controller": "arm_effort",
        "--manager": "controller_manager",
        "--silence": "0.02",
        "--braking": "4.0",
    }
    assert words[12:] == ["--ros-args", "-r", "__ns:=/left"]
    assert started(actions("real_arm.launch.py", **REAL, effort_command="/torques")) == [], (
        "no controller to stop"
    )


def test_launch_files_have_the_arm_that_the_parameter_file_makes(tmp_path: Path) -> None:
    file = tmp_path / "over.yaml"
    file.write_text("/**:\n  ros__parameters: {robot_settings.no_such.key: 0.3}\n")
    for name in ("sim.launch.py", "gazebo.launch.py", "real_arm.launch.py"):
        more = REAL if name == "real_arm.launch.py" else {}
        with pytest.raises(Exception, match="no_such"):
            actions(name, **more, params_file=str(file))


def test_gazebo_refuses_an_arm_that_it_cannot_simulate() -> None:
    with pytest.raises(Exception, match="rotor_inertia"):
        actions("gazebo.launch.py", robot="kinova_gen3")


@pytest.mark.skipif(
    importlib.util.find_spec("xacro") is None, reason="xacro is not installed (pip install xacro)"
)
def test_gazebo_starts_world_arm_and_controllers_one_after_the_other() -> None:
    found = actions("gazebo.launch.py", differences="accept", namespace="arm_1", scene="six_boxes")
    started = {action.node_executable for action in found if isinstance(action, Node)}
    assert {"robot_state_publisher", "create", "parameter_bridge"} <= started
    assert "spawner" not in started, "only when the arm is there"
    words = [str(action) for action in found]
    assert words


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ({"robot": "no_such_robot"}, "no_such_robot"),
        ({"seed": "minus"}, "seed"),
        ({"patience": "-1"}, "patience"),
        ({"record": "true"}, "run_dir"),
    ],
)
def test_what_cannot_be_used_is_named(arguments: dict[str, str], expected: str) -> None:
    with pytest.raises(Exception, match=expected):
        actions("sim.launch.py", **arguments)


def test_a_launch_with_a_bad_argument_ends_with_an_error() -> None:
    service = LaunchService(noninteractive=True)
    service.include_launch_description(described("sim.launch.py"))
    service.context.launch_configurations["robot"] = "no_such_robot"
    loop = asyncio.new_event_loop()
    try:
        assert loop.run_until_complete(service.run_async()) == 1
    finally:
        loop.close()
