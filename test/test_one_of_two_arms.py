"""One arm of a robot with two, by its tip link, from the URDF to a verified run: the whole way that a stranger goes."""

from __future__ import annotations

import json
import re
from pathlib import Path

import numpy as np
import pinocchio as pin
import pytest
import yaml
from urdf_factory import needs_example_robots, tutorial_urdf

from safe_sysid.cli import main
from safe_sysid.errors import ConfigError
from safe_sysid.identification.bounds.payload_constraints import PayloadConstraints
from safe_sysid.identification.certificates.cuts import PayloadDeclaration
from safe_sysid.identification.payload_alone import payload_bounds
from safe_sysid.new_arm import NewArm, write_configuration
from safe_sysid.robot import Scene, load_robot
from safe_sysid.robot.model import RobotModel
from safe_sysid.simulation.engines.mujoco_world import build_world
from safe_sysid.simulation.payloads import dumbbell, theta_e_with_payload

TALOS = "package://example-robot-data/robots/talos_data/robots/talos_full_v2.urdf"


def write_two_armed(folder: Path) -> Path:
    """Two of the tutorial's arms on a torso that turns on a pillar; to the right one's flange a bracket is fixed."""
    body = re.search(r"<robot[^>]*>(.*)</robot>", tutorial_urdf(), re.S)
    assert body is not None
    block = (
        '<inertial><mass value="{m}"/><inertia ixx="0.2" ixy="0" ixz="0" iyy="0.2" iyz="0" izz="0.2"/></inertial>'
        '<collision><geometry><box size="{size}"/></geometry></collision>'
    )
    parts = [
        f'<link name="pillar">{block.format(m=20, size="0.2 0.2 0.2")}</link>',
        f'<link name="torso">{block.format(m=10, size="0.2 1.6 0.2")}</link>',
        '<joint name="turn" type="revolute"><parent link="pillar"/><child link="torso"/><origin xyz="0 0 0.25"/>'
        '<axis xyz="0 0 1"/><limit lower="-1" upper="1" effort="100" velocity="1"/></joint>',
    ]
    for side, y in (("left", 0.7), ("right", -0.7)):
        parts.append(re.sub(r'(name|link)="', rf'\1="{side}_', body[1]))
        root = re.findall(r'<link name="([^"]*)"', body[1])[0]
        parts.append(
            f'<joint name="{side}" type="fixed"><parent link="torso"/><child link="{side}_{root}"/>'
            f'<origin xyz="0 {y} 0.1"/></joint>'
        )
    parts.append(
        '<link name="bracket"/><joint name="bolts" type="fixed"><parent link="right_tool0"/><child link="bracket"/>'
        '<origin xyz="0.02 0 0.05" rpy="0.3 0 1.5"/></joint>'
    )
    path = folder / "two_armed.urdf"
    path.write_text(f'<robot name="two_armed">{"".join(parts)}</robot>', encoding="utf-8")
    return path


@pytest.fixture(scope="module")
def two_armed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Robot file of the right arm, as config init writes it."""
    folder = tmp_path_factory.mktemp("two_armed")
    arm = NewArm(payload_kg=2.0, base_link="torso", tip_link="right_tool0", tool_frame="right_tool0")
    write_configuration(write_two_armed(folder), folder / "right.yaml", arm)
    return folder / "right.yaml"


def test_config_init_takes_the_arm_by_its_tip(two_armed: Path) -> None:
    settings = yaml.safe_load(two_armed.read_text(encoding="utf-8"))
    assert (settings["base_link"], settings["tip_link"]) == ("torso", "right_tool0")
    assert list(settings["joints"]) == ["right_waist", "right_shoulder", "right_elbow"]
    assert set(settings["locked"]) == {"turn", "left_waist", "left_shoulder", "left_elbow"}
    model = load_robot(two_armed)
    assert {body.link for body in model.bodies if body.joint < 0} >= {"pillar", "torso", "left_forearm"}


@pytest.mark.parametrize(
    ("arguments", "key"),
    [
        ({"base_link": "torso"}, "base_link"),
        ({"tip_link": "right_hand"}, "tip_link"),
        ({"base_link": "left_forearm", "tip_link": "right_tool0"}, "tip_link"),
        ({"tip_link": "right_tool0", "joints": ["right_elbow"]}, "joints"),
    ],
)
def test_links_that_make_no_arm_are_refused_by_key(tmp_path: Path, arguments: dict, key: str) -> None:
    with pytest.raises(ConfigError) as refused:
        write_configuration(write_two_armed(tmp_path), tmp_path / "out.yaml", NewArm(**arguments))
    assert refused.value.key == key


def held_by(two_armed: Path, link: str | None) -> RobotModel:
    return load_robot(two_armed, **{"payload.link": link, "payload.box": "envelope"})


def test_a_payload_hangs_on_the_link_that_is_named(two_armed: Path) -> None:
    """The same body, told in the bracket's frame or in the tool's, is the same for arm, plant, bodies and messages."""
    tool, bracket = held_by(two_armed, None), held_by(two_armed, "bracket")
    assert (tool.payload_link, bracket.payload_link) == ("right_tool0", "bracket")
    np.testing.assert_array_equal(bracket.flange[1], tool.flange[1])  # goals stay the tool's
    turn = bracket.flange[0].T @ bracket.payload_frame[0]
    np.testing.assert_allclose(turn, pin.rpy.rpyToMatrix(0.3, 0.0, 1.5), atol=1e-12)
    shift = bracket.flange[0].T @ (bracket.payload_frame[1] - bracket.flange[1])
    np.testing.assert_allclose(shift, [0.02, 0.0, 0.05], atol=1e-12)
    for model in (tool, bracket):
        rotation, translation = model.payload_frame
        envelope = model.settings.payload.envelope
        middle = rotation @ envelope.center + translation
        corners = next(body for body in model.bodies if body.kind == "payload").points
        np.testing.assert_allclose(corners.mean(axis=0), middle, atol=1e-9)
        # The checker and the identifier have the declared box, each with code of its own.
        checked = PayloadDeclaration.from_model(model).corners
        assert checked is not None
        np.testing.assert_allclose(checked.lo.mean(axis=0), middle, atol=1e-9)
        known = PayloadConstraints.from_model(model).box
        assert known is not None
        np.testing.assert_array_equal(known.translation, translation)
        load = dumbbell(4.0, envelope.center)
        theta = np.array(model.theta_nominal)
        last = model.layout.payload
        theta[last] = theta_e_with_payload(model, theta[last], load)
        np.testing.assert_allclose(theta[last][1:4] - model.theta_nominal[last][1:4], load.theta[0] * middle, atol=1e-9)
        alone = payload_bounds(model, theta[last] - 1e-9, theta[last], theta[last] + 1e-9)
        np.testing.assert_allclose(alone.nominal, load.theta, atol=1e-6)
        # MuJoCo's solids of it lie around the same point of the last link.
        world = build_world(model, theta, load, Scene("nothing around"), np.full(model.n, 0.01), 1e-3).model
        solids = [i for i in range(world.ngeom) if world.geom(i).name.startswith("payload")]
        assert len(solids) == 3
        np.testing.assert_allclose(world.geom_pos[solids].mean(axis=0), middle, atol=1e-9)


def test_messages_name_the_link_that_carries(two_armed: Path) -> None:
    pytest.importorskip("geometry_msgs")
    from safe_sysid.nodes.identifier.payload_message import last_link_message

    for link in (None, "bracket"):
        model = held_by(two_armed, link)
        message = last_link_message(model, model.theta_nominal[model.layout.payload], 0)
        assert message.header.frame_id == (link or "right_tool0")


@pytest.mark.parametrize("link", ["right_forearm", "right_upper_arm", "left_tool0", "torso", "nowhere"])
def test_only_what_the_last_joint_moves_may_carry_it(two_armed: Path, link: str) -> None:
    model = load_robot(two_armed)
    last = {body.link for body in model.bodies if body.joint == model.n - 1}
    if link in last:
        assert held_by(two_armed, link).payload_link == link
        return
    with pytest.raises(ConfigError, match="let the arm end at an earlier link") as refused:
        held_by(two_armed, link)
    assert refused.value.key == "payload.link"


@pytest.mark.slow
@pytest.mark.timeout(1500)
@pytest.mark.parametrize(
    ("name", "base", "tip", "mass"),
    [
        ("two_armed", "torso", "bracket", "2"),
        pytest.param("talos", "torso_2_link", "gripper_left_base_link", "1.3", marks=needs_example_robots),
    ],
)
def test_one_arm_of_a_robot_with_two_goes_the_whole_way(
    name: str, base: str, tip: str, mass: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """From its URDF through config init, config check, demo and verify: every bound holds, and is checked again."""
    urdf = TALOS if name == "talos" else str(write_two_armed(tmp_path))
    file, run = str(tmp_path / f"{name}.yaml"), str(tmp_path / "run")
    links = ["--base-link", base, "--tip-link", tip]
    arm = [*links, "--payload-kg", mass, "--simulated-drives"]
    assert main(["config", "init", "--urdf", urdf, *arm, "--out", file]) == 0
    assert main(["config", "check", file]) == 0
    capsys.readouterr()
    assert main(["demo", "--robot", file, "--plans", "2", "--seed", "2", "--out", run, "--quiet"]) == 0
    summary = json.loads((Path(run) / "summary.json").read_text(encoding="utf-8"))
    assert sum(summary["violations"].values()) == 0
    assert all(p["lower"] <= p["truth"] <= p["upper"] for p in summary["parameters"])
    assert main(["verify", run, "--robot", file, "--scene", "open", "--lockstep"]) == 0
