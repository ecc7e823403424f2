"""Parameters of nodes, in a node: described, judged, changed only when that is sound."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

pytest.importorskip("rclpy")

import rclpy
from rclpy.context import Context
from rclpy.node import Node
from rclpy.parameter import Parameter
from rclpy.signals import SignalHandlerOptions

from safe_sysid.errors import ConfigError, SafeSysIdError
from safe_sysid.nodes.common.parameters import CommonOptions, NodeParameters, empty_lists_refused
from safe_sysid.nodes.settings import KINDS, ManagedSettings, parameters_of
from safe_sysid.robot import load_robot
from safe_sysid.robot.overrides import overrides_of
from safe_sysid.schema import SchemaError

pytestmark = pytest.mark.ros


@pytest.fixture(scope="module")
def context() -> Iterator[Context]:
    context = Context()
    rclpy.init(context=context, signal_handler_options=SignalHandlerOptions.NO, args=["--ros-args"])
    yield context
    rclpy.shutdown(context=context)


Make = Callable[..., tuple[Node, NodeParameters]]


@pytest.fixture
def make(context: Context) -> Iterator[Make]:
    """A node of a kind with values given at its start."""
    nodes: list[Node] = []

    how = {"use_global_arguments": False, "enable_rosout": False}
    how["automatically_declare_parameters_from_overrides"] = True

    def build(kind: str, **values: Any) -> tuple[Node, NodeParameters]:
        given = [_parameter(name.replace("__", "."), value) for name, value in values.items()]
        nodes.append(Node(kind, context=context, parameter_overrides=given, **how))
        return nodes[-1], NodeParameters(nodes[-1], kind)

    yield build
    for node in nodes:
        node.destroy_node()


def _parameter(name: str, value: Any) -> Parameter:
    return Parameter(name, Parameter.Type.DOUBLE_ARRAY, value) if value == [] else Parameter(name, value=value)


def _set(node: Node, name: str, value: Any) -> str:
    """Why it was refused; "" if it was set."""
    result = node.set_parameters([_parameter(name, value)])[0]
    assert result.successful == (result.reason == "")
    return result.reason


# -- descriptors -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
def test_every_parameter_is_described(make: Make, kind: str) -> None:
    node, _ = make(kind)
    for parameter in parameters_of(kind):
        descriptor = node.describe_parameter(parameter.path)
        assert parameter.description[1:] in descriptor.description
        assert f"[{parameter.unit}]" in descriptor.description or not parameter.unit
        assert ("any time" in descriptor.description) == (parameter.when == "live")
        fixed = parameter.when == "start" or (parameter.when == "configure" and ManagedSettings not in KINDS[kind])
        assert descriptor.read_only == fixed == ("Read-only" in descriptor.description)
        for choice in parameter.choices:
            assert choice in descriptor.additional_constraints
        ranges = [*descriptor.integer_range, *descriptor.floating_point_range]
        if parameter.range is not None and parameter.path != "temperature":  # nan, not known, is in no range
            assert (ranges[0].from_value, ranges[0].to_value) == (parameter.range.lower, parameter.range.upper)
        assert not descriptor.dynamic_typing


def test_settings_of_the_robot_are_described_in_its_units(make: Make) -> None:
    node, parameters = make("controller")
    model = load_robot("kinova_gen3")
    parameters.declare_settings(model)
    descriptor = node.describe_parameter("robot_settings.joints.joint_2.velocity")
    assert "Velocity limit" in descriptor.description
    assert "[rad/s]" in descriptor.description
    assert (descriptor.floating_point_range[0].from_value, descriptor.read_only) == (0.0, True)
    assert "> 0" in descriptor.additional_constraints
    law = node.describe_parameter("robot_settings.controller.law")
    assert "one of: robust, armour" in law.additional_constraints


# -- values ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
def test_values_are_the_defaults(make: Make, kind: str) -> None:
    _, parameters = make(kind)
    for parameter in parameters_of(kind):
        value = parameters.values()[parameter.path]
        assert value is None if parameter.unset else value == parameter.default
    with pytest.raises(TypeError):
        parameters.values()["seed"] = 3  # type: ignore[index]


@pytest.mark.parametrize(
    ("kind", "name", "value", "words"),
    [
        ("planner", "plans", -1, ["planner", "plans = -1", ">= 0"]),
        ("planner", "plans", 1.5, ["plans = 1.5", "whole number"]),
        ("planner", "plans", "many", ["plans = 'many'", "whole number"]),
        ("planner", "plans", True, ["plans = True", "whole number"]),
        ("plant", "noise", "loud", ["noise = 'loud'", "one of none, uniform, adversarial"]),
        ("plant", "watchdog_s", 0.0, ["watchdog_s = 0.0", "> 0"]),
        ("plant", "watchdog_s", math.nan, ["watchdog_s = nan", "finite"]),
        ("plant", "start_q", [0.0, math.inf], ["start_q", "list of numbers"]),
        ("controller", "lockstep", "yes", ["lockstep = 'yes'", "true or false"]),
        ("controller", "seed", -1, ["seed = -1"]),
        ("controller", "lockstep_patience", 3.0, ["lockstep_patience = 3.0", "as lockstep_patience_s"]),
        ("controller", "refrence_every", 3, ["refrence_every", "as reference_every"]),
        ("controller", "robot_setings__timing__hold_max_s", 0.002, ["as robot_settings.timing.hold_max_s"]),
        ("planner", "robotsettings__home", [0.0], ["as robot_settings.home"]),
        ("identifier", "temperature", -300.0, ["temperature = -300.0", "> -273.15"]),
        ("identifier", "method", "guess", ["method = 'guess'", "one of lp, sdp, or nothing"]),
    ],
)  # fmt: skip
def test_what_is_wrong_at_the_start_is_refused_by_name(
    make: Make, kind: str, name: str, value: Any, words: list[str]
) -> None:
    with pytest.raises(ConfigError) as caught:
        make(kind, **{name: value})
    for word in words:
        assert word in str(caught.value)
    assert caught.value.key == name.replace("__", ".")


def test_what_others_have_is_ignored(make: Make) -> None:
    """A file for /** reaches every node, and nodes of other packages."""
    _, parameters = make("controller", plans=3, use_sim_time=True, publish_frequency=30.0, robot_description="<robot/>")
    assert "plans" not in parameters.values()


def test_numbers_come_as_they_are_written(make: Make) -> None:
    node, parameters = make("plant", watchdog_s=1, start_q=[0, 1], realtime__cpus=1)
    values = parameters.values()
    assert (values["watchdog_s"], values["start_q"], values["realtime.cpus"]) == (1.0, [0.0, 1.0], "1")
    assert parameters.realtime.cpus == (1,)
    assert _set(node, "diagnostics_period_s", 2) == ""
    assert parameters["diagnostics_period_s"] == 2.0


def test_an_empty_list_is_given_as_text(make: Make) -> None:
    """``start_q: []`` in a file: rcl hands on a value of no type, which rclpy cannot declare."""
    _, parameters = make("plant", robot_settings__allowed_pairs="[]")
    assert CommonOptions.of(parameters).load_model().settings.allowed_pairs == ()
    with pytest.raises(ConfigError, match=r'parameters of plant.*"\[\]"'), empty_lists_refused("plant"):
        make("plant", start_q=None)


# -- changes -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("state", ["unconfigured", "inactive", "active"])
def test_a_parameter_changes_when_it_is_declared_to(make: Make, kind: str, state: str) -> None:
    node, parameters = make(kind)
    parameters.state = state
    for parameter in parameters_of(kind):
        before = node.get_parameter(parameter.path).value
        reason = _set(node, parameter.path, parameter.default)
        allowed = parameter.when == "live" or (
            parameter.when == "configure" and state == "unconfigured" and ManagedSettings in KINDS[kind]
        )
        assert (reason == "") == allowed, (parameter.path, reason)
        assert parameter.path in reason or allowed
        after = node.get_parameter(parameter.path).value
        assert after == before or math.isnan(after)
    assert "use_sim_time" in _set(node, "use_sim_time", True)


JUNK = (
    st.integers(-(2**63), 2**63 - 1)
    | st.floats()
    | st.text(max_size=20)
    | st.booleans()
    | st.lists(st.floats(), min_size=1, max_size=9)
    | st.lists(st.text(max_size=3), min_size=1, max_size=3)
)


@pytest.fixture
def one_of_each(make: Make) -> dict[str, tuple[Node, NodeParameters]]:
    return {kind: make(kind) for kind in KINDS}


@settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_whatever_is_set_the_values_stay_allowed(
    one_of_each: dict[str, tuple[Node, NodeParameters]], data: st.DataObject
) -> None:
    """The junk of a day, through ROS's own door: refused with a reason, or in force and allowed."""
    kind = data.draw(st.sampled_from(sorted(KINDS)))
    node, parameters = one_of_each[kind]
    declared = data.draw(st.sampled_from(parameters_of(kind)))
    _set(node, declared.path, data.draw(JUNK | st.sampled_from(declared.choices or ("",))))
    value = node.get_parameter(declared.path).value
    assert declared.why_not(list(value) if declared.type == "floats" else value) == ""
    parameters.values()


def test_a_live_change_is_told_once_it_is_in_force(make: Make) -> None:
    node, parameters = make("planner")
    told: list[Any] = []
    parameters.on_change("plans", lambda value: told.append((value, parameters["plans"])))
    parameters.state = "active"
    assert _set(node, "plans", 7) == ""
    assert _set(node, "plans", -1)
    assert _set(node, "plans", 0) == ""  # the robot file's again
    assert told == [(7, 7), (None, None)]
    with pytest.raises(SchemaError, match="live"):
        parameters.on_change("robot", told.append)


def test_a_callback_that_fails_is_told_and_nothing_else(make: Make) -> None:
    node, parameters = make("planner")
    parameters.on_change("plans", lambda _: 1 / 0)
    assert _set(node, "plans", 7) == ""
    assert parameters["plans"] == 7


def test_a_node_judges_too(make: Make) -> None:
    def judge(value: str) -> None:
        if value != "condition":
            raise SafeSysIdError(f"cost {value!r}: expected condition")

    node, parameters = make("planner")
    parameters.check("cost", judge)
    assert "expected condition" in _set(node, "cost", "speed")
    assert parameters["cost"] == "condition"
    _, parameters = make("planner", cost="speed")
    parameters.check("cost", judge)
    with pytest.raises(ConfigError, match="cost 'speed': expected condition") as caught:
        parameters.values()
    assert caught.value.key == "cost"


# -- the robot's settings ----------------------------------------------------------------------------------------


def test_settings_come_and_go(make: Make) -> None:
    node, parameters = make("controller")
    model = load_robot("kinova_gen3")
    before = set(node.list_parameters([], 0).names)
    for _ in range(2):
        parameters.declare_settings(model)
        assert node.get_parameter("robot_settings.measurement.torque_abs").value == 0.05
        assert list(node.get_parameter("robot_settings.home").value) == list(model.settings.home)
        assert node.get_parameter("robot_settings.tare.file").value == "null"
        assert node.get_parameter("robot_settings.joints.joint_1.position").value == "continuous"
        assert "read-only" in _set(node, "robot_settings.measurement.torque_abs", 0.1)
        parameters.declare_settings(model)  # again, without forgetting: the same
        parameters.undeclare_settings()
        assert set(node.list_parameters([], 0).names) == before


def test_settings_given_at_the_start_replace_the_file_s(make: Make) -> None:
    _, parameters = make(
        "controller",
        robot_settings__measurement__torque_abs=0.2,
        robot_settings__controller__kappa=11,
        robot_settings__controller__K_r=[2.5, 2.5, 2.5, 2.5, 2.5, 2.5, 2.6],
        robot_settings__tare__max_temperature_difference="null",
        robot_settings__allowed_pairs="[[base_link, payload]]",
        robot_settings__payload__box="envelope",
        robot_settings__joints__joint_2__position=[-1.0, 1.0],
    )
    model = CommonOptions.of(parameters).load_model()
    assert model.settings.measurement.torque_abs == 0.2
    assert model.settings.controller.kappa == 11.0
    assert model.settings.controller.K_r[-1] == 2.6  # type: ignore[index]
    assert model.settings.tare.max_temperature_difference is None
    assert model.settings.allowed_pairs == (("base_link", "payload"),)
    assert model.settings.payload.box == "envelope"
    assert model.limits.position_lower[1] == -1.0


@pytest.mark.parametrize(
    ("values", "key", "words"),
    [
        ({"realtime__priority": 10, "realtime__nice": 3}, "realtime.nice", "expected"),
        ({"realtime__cpus": "0;1"}, "realtime.cpus", "expected"),
        ({"realtime__cpus": "-1"}, "realtime.cpus", "expected"),
        ({"robot_settings__measurment__torque_abs": 0.2}, "measurment", "'measurement'"),
        ({"robot_settings__measurement__torque_abs": -0.2}, "measurement.torque_abs", "= -0.2: expected .*>= 0"),
        ({"robot_settings__measurement__torque_abs": "much"}, "measurement.torque_abs", "number"),
        ({"robot_settings__planner__intervals": 12.5}, "planner.intervals", "= 12.5: expected .*whole number"),
        ({"robot_settings__payload__box": "[1, 2"}, "payload.box", "expected"),
        ({"robot_settings__home": "null"}, "home", "expected"),
    ],
)
def test_options_and_settings_that_cannot_be_are_refused_by_name(
    make: Make, values: dict[str, Any], key: str, words: str
) -> None:
    _, parameters = make("controller", **values)
    with pytest.raises(ConfigError, match=words) as caught:
        CommonOptions.of(parameters).load_model()
    assert caught.value.key == key
    assert key.startswith("realtime") or "kinova_gen3.yaml" in str(caught.value)


def test_what_a_node_shows_makes_the_same_robot_again(make: Make) -> None:
    """``ros2 param dump`` of a configured node, loaded at the start of another: nothing changes."""
    node, parameters = make("controller")
    box = {"center": [0, 0, 0.1], "size": [1, 1, 1]}
    model = load_robot("kinova_gen3", **{"tare.file": "t.npz", "payload.box": box})
    parameters.declare_settings(model)
    names = [n for n in node.list_parameters([], 0).names if n.startswith("robot_settings.")]
    values = {n: node.get_parameter(n).value for n in names}
    dumped = {n: v if isinstance(v, (bool, int, float, str)) else list(v) for n, v in values.items()}
    given = yaml.safe_load(yaml.safe_dump(dumped))
    again = load_robot("kinova_gen3", **overrides_of({n.removeprefix("robot_settings."): v for n, v in given.items()}))
    assert again.settings == model.settings
