"""For every mistake in a robot's files an error that names file, key or element, value and expectation."""

from __future__ import annotations

import re
from functools import reduce

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from urdf_factory import random_arm, write_arm

from safe_sysid.errors import ConfigError, ModelError, SafeSysIdError
from safe_sysid.resources import resource_path
from safe_sysid.robot import load_robot, load_scene
from safe_sysid.robot.files.yaml_file import read_yaml

# --- mistakes in the settings ---

NUMBER_KEYS = [
    "joints.joint_3.velocity", "joints.joint_3.torque", "joints.joint_3.coulomb", "joints.joint_3.offset",
    "uncertainty.relative", "uncertainty.floor.mass", "measurement.torque_abs", "measurement.torque_rel",
    "measurement.velocity_error", "measurement.rate_hz", "actuator.torque_rel", "timing.hold_max_s",
    "identification.acceleration_bound", "controller.K_r", "planner.k_range", "friction_transition_velocity",
]  # fmt: skip


@pytest.mark.parametrize("key", NUMBER_KEYS)
@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf"), "many", "1.0", None, True, {}, 10**400])
def test_what_is_not_a_finite_number_is_refused_by_name(key, value):
    if value is None and key in ("joints.joint_3.velocity", "joints.joint_3.torque"):
        return  # None means: take the URDF's
    with pytest.raises(ConfigError) as caught:
        load_robot("kinova_gen3", **{key: value})
    assert caught.value.key == key
    assert "kinova_gen3.yaml" in caught.value.file
    assert "number" in caught.value.expected or "mapping" in caught.value.expected


@pytest.mark.parametrize(
    ("key", "value", "named", "expected"),
    [
        ("joints.joint_1.position", [1.0, -1.0], "joints.joint_1.position", "lower < upper"),
        ("joints.joint_1.position", [1.0], "joints.joint_1.position", "2 numbers"),
        ("joints.joint_1.position", [0.0, float("nan")], "joints.joint_1.position[1]", "finite"),
        ("joints.joint_1.position", "endless", "joints.joint_1.position", "continuous"),
        ("joints.joint_1.velocty", 1.0, "joints.joint_1.velocty", "'velocity'"),
        ("joints.joint_8", {"viscous": 1.0}, "joints.joint_8.rotor_inertia", "required"),
        ("measurment", {}, "measurment", "'measurement'"),
        ("planner.intervalls", 1, "planner.intervalls", "'intervals'"),
        ("planner.intervals", 12.5, "planner.intervals", "whole number"),
        ("planner.t_p", 3.0, "planner.t_p", "t_p < t_f"),
        ("timing.hold_max_s", 0.001, "timing.hold_max_s", "period_s + delay_max_s"),
        ("measurement.max_age_s", 1e-4, "measurement.max_age_s", "timing.hold_max_s = 0.0015"),
        ("measurement.max_age_s", 0.0015, "measurement.max_age_s", "timing.hold_max_s = 0.0015"),
        ("timing.hold_max_s", 0.02, "measurement.max_age_s", "timing.hold_max_s = 0.02"),
        ("measurement.torque_source", "magic", "measurement.torque_source", "'link'"),
        ("measurement.torque_abs", [0.1] * 6, "measurement.torque_abs", "7 numbers"),
        ("measurement.torque_abs", [], "measurement.torque_abs", "number"),
        ("payload.prior_lower", [-1.0] + [-0.2] * 9, "payload.prior_lower[0]", "mass"),
        ("payload.prior_lower", [6.0] + [-0.2] * 9, "payload.prior_lower[0]", "prior_upper[0] = 5.2"),
        ("payload.prior_upper", [5.0] * 4 + [-0.1] + [0.2] * 5, "payload.prior_upper[4]", "> 0"),
        ("payload.prior_upper", [5.0] * 9, "payload.prior_upper", "10 numbers"),
        ("payload.prior_upper", [5.0] * 9 + ["x"], "payload.prior_upper[9]", "finite"),
        ("payload.box", {"center": [0, 0, 0], "size": [0.1, 0.1, 0.0]}, "payload.box.size[2]", "> 0"),
        ("payload.box", {"centre": [0, 0, 0], "size": [0.1, 0.1, 0.1]}, "payload.box.centre", "'center'"),
        ("payload.box", "hand", "payload.box", "the word `envelope`"),
        ("payload.hand_links", ["forearm_link"], "payload.hand_links[0]", "joint_7"),
        ("payload.hand_links", ["nothing"], "payload.hand_links[0]", "joint_7"),
        ("payload.link", "forearm_link", "payload.link", "tip_link"),
        ("payload.link", "nothing", "payload.link", "joint_7"),
        ("gravity", [0.0, 0.0], "gravity", "3 numbers"),
        ("home", [0.0] * 6, "home", "7 numbers"),
        ("home", 0.0, "home", "per joint"),
        ("home", [0.0, 0.0, 0.0, -2.6, 0.0, 0.0, 0.0], "home[3]", "joint_4"),
        ("tool_frame", "nowhere", "tool_frame", "joint_7"),
        ("tool_frame", "forearm_link", "tool_frame", "joint_7"),
        ("base_link", "shoulder_link", "base_link", "root"),
        ("urdf", "nothing.urdf", "urdf", "searched"),
        ("urdf", "", "urdf", "non-empty"),
        ("geometry", {"nothing": []}, "geometry.nothing", "a link of"),
        ("geometry.forearm_link", [{"points": [], "radius": 0.1}], "geometry.forearm_link[0].points", "at least 1"),
        ("geometry.forearm_link", [{"points": [[0, 0]], "radius": 1}], "geometry.forearm_link[0].points[0]", "3"),
        ("geometry.forearm_link", [{"points": [[0, 0, 0]], "radius": -1}], "geometry.forearm_link[0].radius", ">= 0"),
        ("geometry.forearm_link", None, "geometry.forearm_link", "a list"),
        ("allowed_pairs", [["payload", "nothing"]], "allowed_pairs[0][1]", "forearm_link"),
        ("allowed_pairs", [["payload"]], "allowed_pairs[0]", "2 entries"),
        ("name", "", "name", "non-empty"),
    ],
)  # fmt: skip
def test_wrong_value_names_key_value_and_expectation(key, value, named, expected):
    """Numbers outside of their ranges, for every key: test_schema.py."""
    with pytest.raises(ConfigError) as caught:
        load_robot("kinova_gen3", **{key: value})
    assert caught.value.key == named
    assert expected in caught.value.expected
    assert "kinova_gen3.yaml" in str(caught.value)


def _paths(data, prefix=()):
    for key, value in data.items():
        yield (*prefix, key)
        if isinstance(value, dict):
            yield from _paths(value, (*prefix, key))


OPTIONAL = re.compile(
    r"name|base_link|gravity|planner|driver(\..*)?|geometry|allowed_pairs|(controller|planner|uncertainty\.floor)\.(?!uncertainty).*"
    r"|uncertainty\.floor|measurement\.(max_age_s|stamp_error_s|torque_(bias|drift|delay_s|jitter_s)|gravity_\w+|effort)"
    r"|identification\.(window_s|update_s|method)|payload\.(hand_opening|box|density)|tare(\..*)?"
    r"|joints\.\w+\.(position|velocity|torque)"
)


@pytest.mark.parametrize("path", [".".join(p) for p in _paths(read_yaml(resource_path("config/kinova_gen3.yaml")))])
def test_every_required_key_is_missed_by_name(tmp_path, path):
    data = read_yaml(resource_path("config/kinova_gen3.yaml"))
    data["urdf"] = str(resource_path("urdf/kinova_gen3.urdf")) if path != "urdf" else data["urdf"]
    *parents, leaf = path.split(".")
    del reduce(dict.__getitem__, parents, data)[leaf]
    file = write_arm(tmp_path, "", data)
    if OPTIONAL.fullmatch(path):
        load_robot(file)
        return
    with pytest.raises(ConfigError) as caught:
        load_robot(file)
    assert caught.value.key in (path, "home")  # one joint fewer: the lists are too long
    assert caught.value.file == str(file)


@pytest.mark.parametrize(
    ("text", "key", "expected"),
    [
        ("a: 1\nb: 2\na: 3\n", "a", "line 1"),
        ("a: {b: [{c: 1, c: 2}]}", "a.b[0].c", "one value"),
        ("a: [1, 2", "YAML syntax", "valid YAML"),
        ("a: \t1\n b: 2", "YAML syntax", "valid YAML"),
        ("a: !!python/object/apply:os.getcwd []", "YAML syntax", "valid YAML"),
        ("? [1, 2]\n: 3", "YAML syntax", "valid YAML"),
        ("a: 2024-13-45", "YAML syntax", "valid YAML"),
        ("", "(whole file)", "mapping"),
        ("- 1", "(whole file)", "mapping"),
        ("a: &x [*x]", "YAML syntax", "valid YAML"),
        ("1: 2", "urdf", "required"),
        ("\x00", "YAML syntax", "valid YAML"),
    ],
)
def test_bad_yaml_is_told_with_its_place(tmp_path, text, key, expected):
    file = tmp_path / "arm.yaml"
    file.write_text(text, encoding="utf-8")
    with pytest.raises(ConfigError) as caught:
        load_robot(file)
    assert caught.value.key == key
    assert expected in caught.value.expected


@pytest.mark.parametrize("text", ["1e-3", "1.0e-3", "1E-3", ".001", "0.001", "+1e-3"])
def test_numbers_are_numbers_however_written(tmp_path, text):
    file = tmp_path / "a.yaml"
    file.write_text(f"a: {text}\nb: 3\nc: -2\nd: 1.", encoding="utf-8")
    data = read_yaml(file)
    assert data == {"a": 0.001, "b": 3, "c": -2, "d": 1.0}
    assert [type(value) for value in data.values()] == [float, int, int, float]


def test_missing_files_are_told(tmp_path):
    with pytest.raises(ConfigError, match=r"kinova_gen3, .*or the path"):
        load_robot("no_such_robot")
    with pytest.raises(ConfigError, match="six_boxes"):
        load_scene("no_such_scene")
    with pytest.raises(ConfigError, match="a file that exists"):
        load_robot(tmp_path / "missing.yaml")
    with pytest.raises(ConfigError, match="readable"):
        load_robot(str(tmp_path))


# --- mistakes in the URDF ---


JOINT_3 = '<joint name="joint_3" type="continuous">'
FIXED_7 = '<joint name="end_effector" type="fixed">'


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        (JOINT_3, JOINT_3.replace("continuous", "helical"), ["joint_3", "helical", "prismatic or fixed"]),
        (JOINT_3, JOINT_3.replace("continuous", "floating"), ["joint_3", "floating"]),
        (JOINT_3, JOINT_3.replace("continuous", "planar"), ["joint_3", "planar"]),
        (JOINT_3, JOINT_3.replace("continuous", ""), ["joint_3", "''"]),
        (JOINT_3, JOINT_3 + '<mimic joint="joint_1"/>', ["joint_3", "mimics 'joint_1', which is not", "independent"]),
        (JOINT_3, JOINT_3 + '<mimic joint="ghost"/>', ["joint_3", "mimics 'ghost', which is no moving joint"]),
        (JOINT_3, JOINT_3 + "<mimic/>", ["joint_3", "mimic", "name of a joint"]),
        (JOINT_3, JOINT_3 + '<mimic joint="joint_1" offset="a"/>', ["joint_3", "mimic", "finite number"]),
        (JOINT_3, JOINT_3.replace("joint_3", "joint_2"), ["joint_2", "twice"]),
        ('<parent link="half_arm_2_link"/>', '<parent link="base_link"/>', ["joint_4", "joint_1", "serial"]),
        ('<parent link="half_arm_2_link"/>', '<parent link="ghost"/>', ["joint_4", "'ghost'"]),
        ('<parent link="half_arm_2_link"/>', "", ["joint_4", "parent link None"]),
        ('<parent link="base_link"/>', '<parent link="forearm_link"/>', ["half_arm_1_link", "loop"]),
        ('<child link="forearm_link"/>', '<child link="half_arm_1_link"/>', ["half_arm_1_link", "joint_4"]),
        ('<link name="forearm_link">', '<link name="half_arm_1_link">', ["half_arm_1_link", "twice"]),
        ('<link name="forearm_link">', "<link>", ["without a name"]),
        ('<axis xyz="0 0 1"/>', '<axis xyz="0 0 0"/>', ["joint_1", "not zero"]),
        ('<axis xyz="0 0 1"/>', '<axis xyz="0 0"/>', ["joint_1", "3 finite"]),
        ('<axis xyz="0 0 1"/>', '<axis xyz="0 0 nan"/>', ["joint_1", "3 finite"]),
        ('xyz="0 0 0.15643"', 'xyz="0 0 wide"', ["joint_1", "origin", "3 finite"]),
        ('rpy="3.1416 0 0"', 'rpy="inf 0 0"', ["joint_1", "origin", "3 finite"]),
        ('mass value="1.3773"', 'mass value="nan"', ["shoulder_link", "mass", "finite"]),
        ('mass value="1.3773"', 'mass value="-1.3773"', ["shoulder_link", "mass >= 0"]),
        ('<mass value="1.3773"/>', "", ["shoulder_link", "missing"]),
        ('ixx="0.00457"', 'ixx="heavy"', ["shoulder_link", "ixx", "finite"]),
        ('ixx="0.00457"', "", ["shoulder_link", "ixx is missing"]),
        ('ixx="0.00457"', 'ixx="-0.00457"', ["shoulder_link", "ixx", ">= 0"]),
        ('radius="0.0565"', 'radius="-1"', ["shoulder_link", "cylinder", "> 0"]),
        ('radius="0.0565"', "", ["shoulder_link", "cylinder", "> 0"]),
        ("<sphere ", '<mesh filename="package://a/b.stl"/><sphere ', ["base_link", "exactly one"]),
        ("<robot ", "<robt ", ["broken XML"]),
        ("</robot>", "", ["broken XML"]),
        (None, "", ["broken XML"]),
        (None, "<mujoco/>", ["<mujoco>", "expected <robot>"]),
        (None, '<robot name="a"/>', ["root links []"]),
        (None, '<robot name="a"><link name="b"/></robot>', ["no joint moves"]),
        (None, '<robot name="a"><link name="b"/><link name="c"/></robot>', ["['b', 'c']", "exactly one"]),
        (None, '<robot xmlns:x="http://wiki.ros.org/xacro"><x:include filename="b"/></robot>', ["xacro"]),
        (None, '<?xml version="1.0" encoding="wrong"?><robot/>', ["broken XML"]),
    ],
)  # fmt: skip
def test_bad_urdf_names_the_element(tmp_path, old, new, words):
    """``old``: None for the whole file."""
    text = resource_path("urdf/kinova_gen3.urdf").read_text(encoding="utf-8")
    # Work on collision geometry, not the look-alike visuals.
    text = re.sub(r"\s*<visual>.*?</visual>", "", text, flags=re.S)
    file = tmp_path / "arm.urdf"
    assert old is None or old in text
    file.write_text(new if old is None else text.replace(old, new, 1), encoding="utf-8")
    with pytest.raises(ModelError) as caught:
        load_robot("kinova_gen3", urdf=str(file))
    for word in [str(file), *words]:
        assert word in str(caught.value)


def test_joints_that_settings_or_urdf_lack_are_named(tmp_path):
    text = resource_path("urdf/kinova_gen3.urdf").read_text(encoding="utf-8")
    file = tmp_path / "arm.urdf"
    file.write_text(text.replace('"joint_5"', '"elbow"'), encoding="utf-8")
    with pytest.raises(ConfigError) as caught:
        load_robot("kinova_gen3", urdf=str(file))
    assert caught.value.key == "joints.elbow"
    file.write_text(text.replace(JOINT_3, JOINT_3.replace("continuous", "fixed")), encoding="utf-8")
    with pytest.raises(ConfigError) as caught:
        load_robot("kinova_gen3", urdf=str(file))
    assert caught.value.key == "joints.joint_3"
    assert "joint_4" in caught.value.expected


def test_limit_that_nobody_gives_is_asked_for(tmp_path):
    urdf, config = random_arm(np.random.default_rng(1), 2)
    bare = re.sub(r"<limit[^>]*/>", "", urdf).replace('type="continuous"', 'type="revolute"')
    for present in ({}, {"position": [-1, 1]}, {"position": [-1, 1], "velocity": 1.0}):
        for joint in config["joints"].values():
            joint.update(present)
        missing = next(key for key in ("position", "velocity", "torque") if key not in present)
        with pytest.raises(ConfigError) as caught:
            load_robot(write_arm(tmp_path, bare, config))
        assert caught.value.key == f"joints.turn 0.{missing}"


def test_ten_joints_are_refused(tmp_path):
    urdf, config = random_arm(np.random.default_rng(1), 10)
    with pytest.raises(ModelError, match="10 moving joints: expected 1 to 9"):
        load_robot(write_arm(tmp_path, urdf, config))


@pytest.mark.parametrize("name", ["kinova_gen3.urdf", "kinova_gen3.yaml"])
@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    start=st.floats(0, 1),
    length=st.integers(1, 30),
    filler=st.sampled_from(["", "nan", "<", "{", '"', "0", "é", "&x;", ": ", "-", "\n"]),
)
def test_damaged_files_never_fail_otherwise_than_with_our_errors(tmp_path, name, start, length, filler):
    text = resource_path(f"{'urdf' if name.endswith('urdf') else 'config'}/{name}").read_text(encoding="utf-8")
    at = int(start * len(text))
    file = tmp_path / name
    file.write_text(text[:at] + filler + text[at + length :], encoding="utf-8")
    try:
        arm = load_robot(file) if file.suffix == ".yaml" else load_robot("kinova_gen3", urdf=str(file))
    except SafeSysIdError:
        return
    assert arm.n == 7
    assert np.all(np.isfinite(arm.theta_nominal))
