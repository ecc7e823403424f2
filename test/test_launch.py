"""The launch files by the stock ``launch``: they load, describe themselves, and start what they should."""

from __future__ import annotations

import asyncio
import importlib.util
import sys
from collections.abc import Iterator
from pathlib import Path
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
from launch.actions import DeclareLaunchArgument, OpaqueFunction  # noqa: E402
from launch.launch_description_sources import get_launch_description_from_python_launch_file  # noqa: E402
from launch_ros.actions import LifecycleNode, Node  # noqa: E402

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
        default = "".join(part.perform(context) for part in argument.default_value)
        if argument.choices is not None:
            assert default in argument.choices


@pytest.mark.parametrize("name", FILES)
def test_a_value_that_is_no_choice_is_refused(name: str) -> None:
    choosy = next(a for a in described(name).entities if isinstance(a, DeclareLaunchArgument) and a.choices)
    with pytest.raises(RuntimeError, match=choosy.name):
        actions(name, **{choosy.name: "neither"})


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
    assert (tmp_path / "left").is_dir()


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
