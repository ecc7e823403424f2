"""What the launch files write for other programs, and the launch files themselves as texts; no ROS needed."""

from __future__ import annotations

import ast
import importlib.util
import json
import math
import os
import re
import shutil
import subprocess
import sys
import xml.etree.ElementTree as ET
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pinocchio as pin
import pytest
import yaml
from docs_commands.launch_files import declared
from hypothesis import given, settings
from hypothesis import strategies as st

from safe_sysid.errors import SafeSysIdError
from safe_sysid.robot.files.urdf import read_urdf
from safe_sysid.robot.parameters import com_and_inertia
from safe_sysid.robot.scenes.obstacles import SceneBox, SceneCapsule, SceneSphere, SceneZonotope, rotation_from_rpy
from safe_sysid.robot.scenes.scene import Scene, load_scene
from safe_sysid.simulation.payloads import NO_PAYLOAD, hexagonal_dumbbell, payload_from_spec
from safe_sysid.simulation.servo import GazeboServoArm

ROOT = Path(__file__).resolve().parent.parent
LAUNCH = ROOT / "launch"
sys.path.insert(0, str(LAUNCH))
from safe_sysid_launch import arm_files  # noqa: E402

LAUNCH_FILES = sorted(path.name for path in LAUNCH.glob("*.launch.py"))
ROBOTS = sorted(path.stem for path in (ROOT / "config").glob("*.yaml"))
_INERTIA = '<mass value="1"/><inertia ixx="1" ixy="0" ixz="0" iyy="1" iyz="0" izz="1"/>'
HAND = f"""
<robot name="hand">
  <link name="base"/>
  <link name="arm"><inertial>{_INERTIA}</inertial></link>
  <link name="finger"><visual><geometry><mesh filename="finger.stl"/></geometry></visual>
    <inertial>{_INERTIA}</inertial></link>
  <link name="tip"><inertial>{_INERTIA}</inertial></link>
  <joint name="shoulder" type="revolute"><parent link="base"/><child link="arm"/><axis xyz="0 0 1"/>
    <limit lower="-1" upper="1" effort="1" velocity="1"/><dynamics damping="9"/></joint>
  <joint name="finger_joint" type="{{kind}}"><parent link="arm"/><child link="finger"/>
    <origin xyz="{{xyz}}" rpy="{{rpy}}"/><axis xyz="{{axis}}"/>
    <limit lower="-3" upper="3" effort="1" velocity="1"/></joint>
  <joint name="tip_joint" type="{{kind}}"><parent link="finger"/><child link="tip"/>
    <mimic joint="finger_joint" multiplier="-1" offset="0.1"/>
    <origin xyz="0.1 0 0"/><axis xyz="0 1 0"/><limit lower="-3" upper="3" effort="1" velocity="1"/></joint>
  <gazebo reference="arm"><material>Gazebo/Red</material></gazebo>
</robot>
"""


@pytest.fixture(scope="module", params=ROBOTS)
def arm(request: pytest.FixtureRequest) -> arm_files.Arm:
    return arm_files.load_arm(request.param)


def hand(folder: Path, position: float = 0.0, old: str = "", new: str = "", **words: Any) -> arm_files.Arm:
    """The arm whose finger is locked at a position, with something else in the place of ``old`` in its URDF."""
    file, mounting = folder / "hand.urdf", words.pop("mounting", None)
    given_words = {"kind": "revolute", "xyz": "0 0 0", "rpy": "0 0 0", "axis": "0 0 1", **words}
    file.write_text(HAND.format(**given_words).replace(old, new))
    joints = {"shoulder": SimpleNamespace(viscous=3.0, coulomb=0.5, velocity=None, torque=7.0)}
    declared: Any = SimpleNamespace(name="hand", joints=joints, mounting=mounting, home=[0.0])
    return arm_files.Arm(folder / "hand.yaml", file, declared, read_urdf(file, {"finger_joint": position}))


def place(model: pin.Model, frame: str, q: np.ndarray) -> np.ndarray:
    data = model.createData()
    pin.framesForwardKinematics(model, data, q)
    return np.asarray(data.oMf[model.getFrameId(frame)].homogeneous)


# -- robot descriptions -------------------------------------------------------------------------------------------


@settings(max_examples=30, deadline=None)
@given(
    st.sampled_from(["revolute", "prismatic"]),
    st.lists(st.floats(-3, 3), min_size=10, max_size=10),
    st.floats(-2.5, 2.5),
)
def test_a_locked_joint_becomes_a_fixed_one_where_it_is_locked(
    tmp_path_factory: pytest.TempPathFactory, kind: str, numbers: list[float], position: float
) -> None:
    xyz, rpy, axis = (" ".join(map(repr, numbers[i : i + 3])) for i in (0, 3, 6))
    if np.linalg.norm(numbers[6:9]) < 1e-3:
        axis = "0 0 1"
    made = hand(tmp_path_factory.mktemp("hand"), position, kind=kind, xyz=xyz, rpy=rpy, axis=axis)
    before = pin.buildModelFromXML(made.urdf.read_text())
    after = pin.buildModelFromXML(ET.tostring(arm_files.plain_urdf(made), encoding="unicode"))
    assert list(after.names)[1:] == ["shoulder"] == list(made.joint_names)
    turn = 0.3 * numbers[9]
    q = pin.neutral(before)
    for name, value in (("shoulder", turn), ("finger_joint", position), ("tip_joint", 0.1 - position)):
        q[before.joints[before.getJointId(name)].idx_q] = value
    for frame in ("finger", "tip"):
        np.testing.assert_allclose(place(after, frame, np.array([turn])), place(before, frame, q), atol=1e-9)


def test_other_programs_get_what_the_robot_file_declares(tmp_path: Path) -> None:
    (tmp_path / "finger.stl").write_text("")
    made = hand(tmp_path)
    robot = arm_files.plain_urdf(made, declared=True)
    dynamics, limit = (robot.findall(f"joint[@name='shoulder']/{tag}") for tag in ("dynamics", "limit"))
    assert [d.attrib for d in dynamics] == [{"damping": "3.0", "friction": "0.5"}]
    limits = {key: float(value) for key, value in limit[0].attrib.items()}
    assert limits == {"lower": -1.0, "upper": 1.0, "effort": 7.0, "velocity": 1.0}
    assert robot.find("gazebo") is None
    assert robot.find("joint/mimic") is None
    assert next(robot.iter("mesh")).get("filename") == (tmp_path / "finger.stl").as_uri()
    untouched = arm_files.plain_urdf(made).findall("joint[@name='shoulder']/dynamics")
    assert [d.attrib for d in untouched] == [{"damping": "9"}], "a driver's own description says what it says"


def test_the_description_hangs_on_the_world_as_the_arm_is_mounted(tmp_path: Path) -> None:
    mounting = SimpleNamespace(xyz=(0.5, -1.0, 0.25), rpy=(0.1, math.pi / 2, -2.0))
    model = pin.buildModelFromXML(arm_files.robot_description(hand(tmp_path, mounting=mounting)))
    base = place(model, "base", np.zeros(1))
    np.testing.assert_allclose(base[:3, :3], rotation_from_rpy(mounting.rpy), atol=1e-12)
    np.testing.assert_allclose(base[:3, 3], mounting.xyz)
    # The name is the markers' frame; another link of it would be another world.
    with pytest.raises(SafeSysIdError, match="world"):
        arm_files.robot_description(hand(tmp_path, 0.0, '"tip"', '"world"', mounting=mounting))
    rooted = hand(tmp_path, 0.0, '"base"', '"world"', mounting=mounting)
    assert len(ET.fromstring(arm_files.robot_description(rooted)).findall("link")) == 4


def test_the_description_puts_every_link_where_the_model_has_it(arm: arm_files.Arm) -> None:
    theirs = pin.buildModelFromXML(arm_files.robot_description(arm))
    ours = pin.buildModelFromXML(arm.chain.text_for_pinocchio(tuple(arm.chain.link_joint), arm.mounting))
    position = dict(zip(arm.joint_names, np.linspace(-0.9, 1.1, len(arm.joint_names)), strict=True))
    assert set(theirs.names[1:]) == set(position), "what is locked does not move"
    poses = []
    for model in (theirs, ours):
        q = pin.neutral(model)
        for name, value in {**arm.chain.locked, **position}.items():
            if not model.existJointName(name):
                continue
            joint = model.joints[model.getJointId(name)]
            two = joint.nq == 2  # a continuous joint: cosine and sine
            q[joint.idx_q : joint.idx_q + joint.nq] = [math.cos(value), math.sin(value)] if two else value
        poses.append({link: place(model, link, q) for link in arm.chain.link_joint})
    for link, pose in poses[0].items():
        np.testing.assert_allclose(pose, poses[1][link], atol=1e-9, err_msg=link)


# -- controllers --------------------------------------------------------------------------------------------------

#: What the controllers of ros2_controllers (branch jazzy) take, of what we write: type, and parameters but the joints.
CONTROLLERS: dict[str, tuple[str, dict[str, Any]]] = {
    "joint_state_broadcaster": (
        "joint_state_broadcaster/JointStateBroadcaster", {"interfaces": ["position", "velocity", "effort"]},
    ),
    "effort_controller": ("forward_command_controller/ForwardCommandController", {"interface_name": "effort"}),
    "joint_trajectory_controller": (
        "joint_trajectory_controller/JointTrajectoryController",
        {
            "command_interfaces": ["position"], "state_interfaces": ["position", "velocity"],
            "interpolate_from_desired_state": True,
        },
    ),
}  # fmt: skip


@pytest.mark.parametrize(("follows", "moves"), [(False, "effort_controller"), (True, "joint_trajectory_controller")])
def test_controllers_have_the_parameters_that_they_know(arm: arm_files.Arm, follows: bool, moves: str) -> None:
    known = {name: CONTROLLERS[name] for name in ("joint_state_broadcaster", moves)}
    content = yaml.safe_load(yaml.safe_dump(arm_files.controllers(arm.joint_names, 1000.0, follows)))
    parameters: dict[str, Any] = {name: own | {"joints": list(arm.joint_names)} for name, (_, own) in known.items()}
    parameters["controller_manager"] = {name: {"type": kind} for name, (kind, _) in known.items()}
    parameters["controller_manager"]["update_rate"] = 1000
    assert content == {f"/**/{name}": {"ros__parameters": values} for name, values in parameters.items()}
    assert isinstance(content["/**/controller_manager"]["ros__parameters"]["update_rate"], int)


def test_the_example_of_the_docs_is_what_is_written() -> None:
    example = yaml.safe_load((ROOT / "config" / "ros2_control" / "kinova_gen3.yaml").read_text())
    kinova = arm_files.load_arm("kinova_gen3")
    assert example == arm_files.controllers(kinova.joint_names, 1.0 / kinova.settings.timing.period_s)


def test_what_gazebo_cannot_simulate_is_named() -> None:
    kinova = arm_files.load_arm("kinova_gen3")
    found = arm_files.gazebo_differences(kinova)
    assert len(found) == 8
    assert "torque_source motor" in found[0]
    assert all("rotor_inertia" in line for line in found[1:])
    no_rotors = {f"joints.{name}.rotor_inertia": 0.0 for name in kinova.joint_names}
    without = arm_files.load_arm("kinova_gen3", {"measurement.torque_source": "link"} | no_rotors)
    assert arm_files.gazebo_differences(without) == []
    assert arm_files.gazebo_differences(arm_files.load_arm("kinova_gen3_gazebo")) == []
    offset = arm_files.load_arm("kinova_gen3", {"joints.joint_3.offset": -0.5, "joints.joint_3.rotor_inertia": 0.0})
    assert any("joint_3: offset -0.5" in line for line in arm_files.gazebo_differences(offset))


# -- xacro and SDF ------------------------------------------------------------------------------------------------


def expanded(arm: arm_files.Arm, folder: Path, namespace: str = "") -> ET.Element:
    if importlib.util.find_spec("xacro") is None:
        if os.environ.get("CI"):
            pytest.fail("xacro is not installed: in CI nothing is skipped")
        pytest.skip("xacro is not installed (pip install xacro)")
    return ET.fromstring(arm_files.gazebo_description(arm, folder / "controllers.yaml", namespace))


def test_xacro_gives_every_joint_its_interfaces(arm: arm_files.Arm, tmp_path: Path) -> None:
    robot = expanded(arm, tmp_path, "cell/arm_1")
    (system,) = robot.findall("ros2_control")
    assert system.findtext("hardware/plugin") == "gz_ros2_control/GazeboSimSystem"
    joints = system.findall("joint")
    assert [joint.get("name") for joint in joints] == list(arm.joint_names)
    for joint, home in zip(joints, arm.settings.home, strict=True):
        assert [c.get("name") for c in joint.findall("command_interface")] == ["position" if arm.follows else "effort"]
        assert [s.get("name") for s in joint.findall("state_interface")] == ["position", "velocity", "effort"]
        assert float(joint.findtext("state_interface/param") or "nan") == home
    plugin = robot.find("gazebo/plugin")
    assert plugin.findtext("parameters") == str(tmp_path / "controllers.yaml")
    assert plugin.findtext("ros/namespace") == "cell/arm_1"
    assert float(plugin.findtext("position_proportional_gain") or "nan") == GazeboServoArm.GAIN
    assert expanded(arm, tmp_path).find("gazebo/plugin/ros") is None
    assert set(arm.chain.link_joint) <= {link.get("name") for link in robot.findall("link")}


@pytest.mark.parametrize("spec", ["8lb", "3.1,0.01,0,0.1,0.01,0,0.02,0,0,0.03", "hexagon"])
def test_gazebo_holds_what_the_hand_holds(tmp_path: Path, spec: str) -> None:
    """Mass, centre and inertia by Pinocchio's own reader, fastened to the tool."""
    held = hexagonal_dumbbell(6) if spec == "hexagon" else payload_from_spec(spec)
    arm = arm_files.load_arm("kinova_gen3_gazebo")
    texts = (arm_files.gazebo_description(arm, tmp_path / "c.yaml", payload=payload) for payload in (NO_PAYLOAD, held))
    models = [pin.buildModelFromXML(text) for text in texts]
    before, after = (model.inertias[model.njoints - 1] for model in models)
    tool = models[1].frames[models[1].getFrameId("end_effector_link")].placement
    mass, centre, inertia = com_and_inertia(held.theta)
    expected = before + tool.act(pin.Inertia(mass, centre, inertia))
    assert models[0].njoints == models[1].njoints == 8
    assert after.isApprox(expected, 1e-9)


def with_urdf(folder: Path, old: str, new: str) -> arm_files.Arm:
    """The three joints, their URDF and robot file changed alike."""
    for source in (ROOT / "urdf" / "three_joint.urdf", ROOT / "config" / "three_joint.yaml"):
        text = source.read_text().replace("urdf: three_joint.urdf", f"urdf: {folder}/three_joint.urdf")
        (folder / source.name).write_text(text.replace(old, new))
    return arm_files.load_arm(str(folder / "three_joint.yaml"))


def test_a_urdf_is_no_program(tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("TOPSECRET")
    program = f"${{xacro.load_yaml('{secret}')}}"
    fixed = f'<joint name="$(env HOME)" type="fixed"><parent link="pedestal"/><child link="{program}"/></joint>'
    robot = expanded(with_urdf(tmp_path, "</robot>", f'<link name="{program}"/>{fixed}</robot>'), tmp_path)
    assert "TOPSECRET" not in ET.tostring(robot, encoding="unicode")
    assert program in {link.get("name") for link in robot.findall("link")}
    assert "$(env HOME)" in {joint.get("name") for joint in robot.findall("joint")}


@pytest.mark.parametrize("name", ["the elbow", "$(env HOME)", "${1 + 1}", "a'] + ['b"])
def test_joints_that_xacro_would_take_apart_are_refused(tmp_path: Path, name: str) -> None:
    expanded(arm_files.load_arm("three_joint"), tmp_path)
    with pytest.raises(SafeSysIdError, match="letters, digits") as refused:
        arm_files.gazebo_description(hand(tmp_path, 0.0, "shoulder", name), tmp_path / "c.yaml")
    assert refused.value.value == name


def test_a_namespace_that_is_none_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SafeSysIdError, match="namespace"):
        arm_files.gazebo_description(arm_files.load_arm("three_joint"), tmp_path / "c.yaml", "x' or 'y")


def test_an_arm_whose_root_is_the_world_is_not_fastened_twice(tmp_path: Path) -> None:
    rooted = expanded(with_urdf(tmp_path, "pedestal", "world"), tmp_path)
    assert len(rooted.findall("link[@name='world']")) == 1
    assert not rooted.findall("joint/child[@link='world']")


def sdf(file: Path, *arguments: str) -> str:
    program = shutil.which("ign") or shutil.which("gz")
    if program is None:
        pytest.skip("no sdformat tools (Debian 12: ignition-tools libsdformat-dev ruby)")
    result = subprocess.run(
        [program, "sdf", *arguments, str(file)], capture_output=True, text=True, timeout=60, check=False
    )
    assert result.returncode == 0, result.stderr
    return result.stdout


def test_sdformat_takes_the_arm_with_all_its_mass(arm: arm_files.Arm, tmp_path: Path) -> None:
    file = tmp_path / "expanded.urdf"
    file.write_text(ET.tostring(expanded(arm, tmp_path), encoding="unicode"))
    assert "Valid" in sdf(file, "-k")
    model = ET.fromstring(sdf(file, "-p")).find("model")
    mass = sum(float(link.findtext("inertial/mass") or 0.0) for link in model.findall("link"))
    assert mass == pytest.approx(sum(arm.chain.masses.values()), rel=1e-5)
    joints = {joint.get("name"): joint for joint in model.findall("joint")}
    for name in arm.joint_names:
        declared = arm.settings.joints[name]
        dynamics = [float(joints[name].findtext(f"axis/dynamics/{key}") or "nan") for key in ("damping", "friction")]
        assert dynamics == pytest.approx([declared.viscous, declared.coulomb], rel=1e-5)
        if declared.torque is not None:
            assert float(joints[name].findtext("axis/limit/effort") or "nan") == pytest.approx(declared.torque)


def test_the_world_has_the_scene(tmp_path: Path) -> None:
    rpy = np.array([0.3, -0.2, 1.0])
    scene = Scene(
        "s",
        (
            SceneBox(name="box", xyz=np.array([1.0, 2.0, 3.0]), size=np.array([0.1, 0.2, 0.3]), rpy=rpy),
            SceneSphere(name="ball", xyz=np.array([-1.0, 0.0, 0.5]), radius=0.25),
            SceneCapsule(name="pole", xyz=np.array([0.0, 1.0, 0.0]), radius=0.05, length=0.8, rpy=rpy),
        ),
    )
    text = arm_files.gazebo_world(scene)
    models = {model.get("name"): model for model in ET.fromstring(text).iter("model")}
    for obstacle in scene.obstacles:
        pose = np.array((models[obstacle.name].findtext("pose") or "").split(), float)
        np.testing.assert_allclose(pose[:3], obstacle.xyz)
        np.testing.assert_allclose(rotation_from_rpy(pose[3:]), obstacle.rotation, atol=1e-12)
        assert models[obstacle.name].findtext("static") == "true"
    for tag in ("collision", "visual"):
        assert models["box"].findtext(f"link/{tag}/geometry/box/size") == "0.1 0.2 0.3"
        assert models["ball"].findtext(f"link/{tag}/geometry/sphere/radius") == "0.25"
        assert models["pole"].findtext(f"link/{tag}/geometry/capsule/length") == "0.8"
    step = ET.fromstring(text).findtext("world/physics/max_step_size")
    assert float(step or 0.0) == arm_files.load_arm("kinova_gen3").settings.timing.period_s
    with pytest.raises(SafeSysIdError, match="zonotope"):
        arm_files.gazebo_world(Scene("z", (SceneZonotope(name="z", xyz=np.zeros(3), generators=0.1 * np.eye(3)),)))
    for name, content in (("scene", text), ("six", arm_files.gazebo_world(load_scene("six_boxes")))):
        file = tmp_path / f"{name}.sdf"
        file.write_text(content)
        assert "Valid" in sdf(file, "-k")


# -- rviz ---------------------------------------------------------------------------------------------------------

#: Of rviz_default_plugins and rviz_common (Jazzy), those that are used; a display's topic has this type.
DISPLAYS = {
    "rviz_default_plugins/Grid": None,
    "rviz_default_plugins/TF": None,
    "rviz_default_plugins/RobotModel": "String",
    "rviz_default_plugins/MarkerArray": "MarkerArray",
}


def published() -> dict[str, tuple[str, str]]:
    """Topic -> (type, quality of service) of every publisher in the nodes' sources."""
    found = {"robot_description": ("String", "LATCHED")}  # by robot_state_publisher
    for file in (ROOT / "safe_sysid" / "nodes").rglob("*.py"):
        for kind, topic, qos in re.findall(r'create_publisher\(\s*(\w+),\s*"(\w+)",\s*(\w+)\s*\)', file.read_text()):
            found[topic] = (kind, qos)
    return found


def picture() -> dict[str, Any]:
    return yaml.safe_load((ROOT / "rviz" / "safe_sysid.rviz").read_text())["Visualization Manager"]


def test_rviz_shows_topics_that_are_published() -> None:
    topics, shown = published(), set()
    for display in picture()["Displays"]:
        expected = DISPLAYS[display["Class"]]
        if expected is None:
            continue
        (topic,) = (value for key, value in display.items() if key.endswith("Topic"))
        name = topic["Value"].removeprefix("/")
        kind, qos = topics[name]
        assert kind == expected
        assert qos == "LATCHED"
        assert (topic["Durability Policy"], topic["Reliability Policy"]) == ("Transient Local", "Reliable")
        shown.add(name)
    assert shown == set(arm_files.PICTURED)
    assert picture()["Global Options"]["Fixed Frame"] == arm_files.WORLD


def test_rviz_shows_the_markers_that_are_drawn_in_the_frame_that_they_have() -> None:
    source = (ROOT / "safe_sysid" / "nodes" / "planner" / "markers.py").read_text()
    namespaces = set(re.findall(r'_marker\(\s*"(\w+)"', source))
    (display,) = (d for d in picture()["Displays"] if d["Class"] == "rviz_default_plugins/MarkerArray")
    assert set(display["Namespaces"]) == namespaces | {"payload"}  # in the tool frame: test_payload_markers.py
    assert re.findall(r"frame_id = (.+)", source) == [f'"{arm_files.WORLD}"']


@pytest.mark.parametrize("namespace", ["arm_1", "/arm_1/", "cell/arm_1"])
def test_rviz_looks_into_a_namespace(namespace: str) -> None:
    plain, inside = (yaml.safe_load(arm_files.rviz_picture(name)) for name in ("", namespace))
    values = lambda tree: re.findall(r"Value: (/\S+)", yaml.safe_dump(tree))  # noqa: E731
    assert values(inside) == [f"/{namespace.strip('/')}{topic}" for topic in values(plain)]
    assert yaml.safe_dump(inside).replace(f"/{namespace.strip('/')}/", "/") == yaml.safe_dump(plain)


# -- the launch files as texts ------------------------------------------------------------------------------------


def trees() -> dict[str, ast.Module]:
    files = [*LAUNCH.glob("*.launch.py"), *(LAUNCH / "safe_sysid_launch").glob("*.py")]
    return {file.name: ast.parse(file.read_text()) for file in files}


READERS = ("text", "boolean", "value", "seconds", "number")


def reads(function: ast.AST) -> tuple[set[str], set[str]]:
    """Arguments that a function reads, and functions that it calls."""
    arguments, calls = set(), set()
    for call in ast.walk(function):
        if isinstance(call, ast.Call) and isinstance(call.func, ast.Name):
            calls.add(call.func.id)
            words = [a.value for a in call.args if isinstance(a, ast.Constant) and isinstance(a.value, str)]
            if call.func.id in READERS and len(words) > (call.func.id == "value"):
                arguments.add(words[-1])
    return arguments, calls


@pytest.mark.parametrize("name", LAUNCH_FILES)
def test_a_launch_file_reads_only_arguments_that_it_declares(name: str) -> None:
    functions = {
        node.name: node for tree in trees().values() for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)
    }
    own = {node.name: node for node in trees()[name].body if isinstance(node, ast.FunctionDef)}
    assert "generate_launch_description" in own
    assert ast.get_docstring(trees()[name])
    functions |= own
    read, reached, open_calls = set(), set(), {"start"}
    while open_calls:
        function = open_calls.pop()
        if function in reached or function not in functions or function in READERS:
            continue
        reached.add(function)
        arguments, calls = reads(functions[function])
        read |= arguments
        open_calls |= calls
    known = set(declared(name))
    assert read <= known, f"read, not declared: {sorted(read - known)}"
    unused = known - read - {"noise", "arm", "payload", "plans", "then_goal"}  # read in a loop over their names
    assert not unused, f"declared, never read: {sorted(unused)}"


def test_the_arguments_of_the_docs_are_those_of_the_launch_files() -> None:
    text = (ROOT / "docs" / "use" / "launch.md").read_text().partition("## Arguments")[2].partition("\n## ")[0]
    table = dict(re.findall(r"^\| `(\w+)` \| ([^|]*) \|", text, re.MULTILINE))
    short = {name: name.removesuffix(".launch.py") for name in LAUNCH_FILES}
    for name in short:
        named = {argument for argument, files in table.items() if short[name] in files or "all" in files}
        assert named == set(declared(name)), name


GAZEBO = """
import importlib.util, json, sys
from types import ModuleType
sys.path.insert(0, {test!r})
import launch_stand_in as stand_in
stand_in.install()
for place, name in (
    ("launch.event_handlers", "OnProcessExit"),
    ("launch.launch_description_sources", "PythonLaunchDescriptionSource"),
    ("launch.substitutions", "PathJoinSubstitution"),
    ("launch_ros.substitutions", "FindPackageShare"),
    ("launch.actions", "RegisterEventHandler"),
    ("launch.actions", "IncludeLaunchDescription"),
):
    module = sys.modules.setdefault(place, ModuleType(place))
    setattr(module, name, stand_in.kind(name))
spec = importlib.util.spec_from_file_location("gazebo", {file!r})
module = importlib.util.module_from_spec(spec)
spec.loader.exec_module(module)
context = stand_in.Launch(dict(argument.split(":=", 1) for argument in sys.argv[1:]))
context.visit_all(module.ARGUMENTS)
made = module.start(context)
nodes = [entity for entity in made if "executable" in entity.words]
given = [p for n in nodes for p in n.words.get("parameters", []) if "robot_description" in p]
print(json.dumps(dict(
    controller=[n.words["remappings"] for n in nodes if n.words.get("name") == "controller"],
    spawned=[n.words["arguments"] for n in nodes if n.words["executable"] == "create"],
    description=given[0]["robot_description"].args[0],
    told=[str(e.words.get("msg")) for e in made if type(e).__name__ == "LogInfo"],
)))
"""


def gazebo(*arguments: str) -> subprocess.CompletedProcess[str]:
    """What ``ros2 launch safe_sysid gazebo.launch.py`` would start."""
    program = GAZEBO.format(test=str(ROOT / "test"), file=str(LAUNCH / "gazebo.launch.py"))
    command = [sys.executable, "-c", program, "gazebo:=false", *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=280, check=False)


@pytest.mark.slow
def test_gazebo_starts_by_itself_with_an_arm_that_it_can_simulate(tmp_path: Path) -> None:
    if importlib.util.find_spec("xacro") is None and not os.environ.get("CI"):
        pytest.skip("xacro is not installed (pip install xacro)")
    done = gazebo()
    assert done.returncode == 0, done.stderr
    made = json.loads(done.stdout.splitlines()[-1])
    assert ["trajectory_command", "joint_trajectory_controller/joint_trajectory"] in made["controller"][0]
    assert not any("no bound and no tracking error" in told for told in made["told"])
    robot = ET.fromstring(made["description"])
    assert robot.find("link[@name='safe_sysid_payload']/inertial/mass") is not None
    assert {c.get("name") for c in robot.iter("command_interface")} == {"position"}
    other = gazebo("robot:=kinova_gen3")
    assert other.returncode != 0
    assert "rotor_inertia 8.03 kg m^2, in Gazebo 0" in other.stderr
