"""Configurations for new arms: what is written loads, has gains, and says what it does not know."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path

import numpy as np
import pytest
import yaml
from geometry_support import write_obj
from hypothesis import given, settings
from hypothesis import strategies as st
from identification_plant import exciting_plans, simulate
from urdf_factory import TUTORIAL, tutorial_urdf

from safe_sysid.cli import main
from safe_sysid.control.gains.design import design_gains
from safe_sysid.errors import ConfigError, ModelError, SafeSysIdError
from safe_sysid.identification.equations.measurements import Measurements
from safe_sysid.identification.identifier import Identifier
from safe_sysid.logs import write_log
from safe_sysid.new_arm import NewArm, write_configuration
from safe_sysid.new_arm.arm_facts import look_at
from safe_sysid.new_arm.home import inertia_matrices
from safe_sysid.new_arm.hypotheses import eigenvalue_bounds
from safe_sysid.new_arm.pairs import stated_pairs
from safe_sysid.new_arm.payload import CENTRED, PayloadGuess, prior_of
from safe_sysid.new_arm.shapes import fit_meshes, rounded_hull
from safe_sysid.new_arm.text import configuration_text
from safe_sysid.planning.certification.certificate import start_check
from safe_sysid.report.identification.output import declared_texts
from safe_sysid.robot.config import per_joint
from safe_sysid.robot.loading import load_robot
from safe_sysid.robot.model import RobotModel
from safe_sysid.robot.parameters import inertia_from_com
from safe_sysid.robot.scenes.scene import Scene
from safe_sysid.robot.shapes.hulls import distance_to_hull
from safe_sysid.robot.shapes.pairs import unchecked
from safe_sysid.robot.suspicious import suspicions


def tutorial_arm(folder: Path, *changes: tuple[str, str]) -> Path:
    """The URDF of the tutorial, changed."""
    text, path = tutorial_urdf(), folder / "my_arm.urdf"
    for old, new in changes:
        assert old in text
        text = text.replace(old, new)
    path.write_text(text, encoding="utf-8")
    return path


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[str]]:
    urdf = tutorial_arm(tmp_path_factory.mktemp("arm"))
    out = urdf.with_suffix(".yaml")
    return out, write_configuration(urdf, out, NewArm(payload_kg=2.0, simulated_drives=True))


@pytest.fixture(scope="module")
def model(written: tuple[Path, list[str]]) -> RobotModel:
    return load_robot(written[0])


def test_gains_exist_and_home_can_be_held(model: RobotModel) -> None:
    home = np.array(model.settings.home)
    for lockstep in (False, True):
        gains = design_gains(model, lockstep)
        assert start_check(model, model.arm_prior, Scene("nothing"), gains, home) == []
        assert np.all(gains.acceleration_bound <= model.settings.identification.acceleration_bound)


def test_nothing_unknown_is_silently_zero(written: tuple[Path, list[str]], model: RobotModel) -> None:
    n = model.n
    for k in range(3):  # Coulomb and viscous friction, rotor inertia
        block = slice((10 + k) * n, (11 + k) * n)
        assert np.all(model.theta_nominal[block] > 0.0)
        assert np.all(model.arm_prior.rad[block] > 0.09 * model.theta_nominal[block])
    assert np.all(model.arm_prior.rad[13 * n :] > 0.0)
    assert np.all(model.arm_prior.lower[model.layout.rotor_inertia] > 0.0)
    (marked,) = (line for line in suspicions(model, written[0]) if line.startswith("marked as to be measured"))
    for key in ("joints", "measurement", "actuator", "timing", "uncertainty.relative", "controller.torque_rate"):
        assert f"{key} (line" in marked
    assert "name (line" not in marked


def test_guesses_are_told_in_the_file_too(written: tuple[Path, list[str]]) -> None:
    out, remarks = written
    assert any(remark.startswith("tool_frame: tool0 is a guess") for remark in remarks)
    text = out.read_text(encoding="utf-8")
    assert max(map(len, text.splitlines())) <= 130
    unbroken = " ".join(line.removeprefix("#").strip() for line in text.splitlines())
    assert all(remark in unbroken for remark in remarks)


def test_limits_are_the_urdfs(model: RobotModel) -> None:
    assert model.limits.torque.tolist() == [60.0, 60.0, 30.0]
    assert model.limits.velocity.tolist() == [2.0, 2.0, 2.5]
    assert model.limits.position_upper.tolist() == [2.9, 2.0, 2.4]


@pytest.mark.parametrize("name", ["../victim", "/tmp/victim", "a b", "", ".", "a\n", "é"])
def test_a_name_that_could_be_a_path_is_refused(tmp_path: Path, name: str) -> None:
    urdf = tutorial_arm(tmp_path)
    with pytest.raises(ConfigError, match="--name") as refused:
        write_configuration(urdf, tmp_path / "in" / "out.yaml", NewArm(name=name))
    assert refused.value.value == name
    assert list(tmp_path.rglob("*")) == [urdf]


def test_an_existing_file_is_not_overwritten(written: tuple[Path, list[str]]) -> None:
    out, _ = written
    before = out.read_bytes()
    with pytest.raises(ConfigError, match="--overwrite"):
        write_configuration(out.with_suffix(".urdf"), out)
    assert out.read_bytes() == before


def test_eigenvalue_bounds_hold_under_attack(model: RobotModel) -> None:
    rng = np.random.default_rng(0)
    n, home = model.n, np.array(model.settings.home)
    everywhere, near, links = eigenvalue_bounds(model, home, 0.05)
    assert 0.0 < everywhere <= near
    assert links >= 0.0
    inside = home + rng.uniform(-0.05, 0.05, (200, n))
    anywhere = rng.uniform(-3.0, 3.0, (200, n))
    # Physical arms: links scaled within the box, any payload scaled between none and the heaviest.
    for scale in (0.951, 1.0, 1.049):
        theta = scale * model.theta_nominal
        assert np.all(theta[: 10 * n] >= model.arm_prior.lower[: 10 * n])
        rotors = np.diag(model.arm_prior.lower[model.layout.rotor_inertia])
        for q, bound in ((inside, near), (anywhere, everywhere)):
            smallest = np.linalg.eigvalsh(inertia_matrices(model, q, theta) + rotors)[:, 0].min()
            assert smallest >= bound * (1.0 - 1e-9)
        assert np.linalg.eigvalsh(inertia_matrices(model, inside, theta))[:, 0].min() >= links - 1e-9


@settings(deadline=None, max_examples=60)
@given(st.integers(0, 2**32 - 1))
def test_the_prior_holds_every_payload_in_the_box(seed: int) -> None:
    rng = np.random.default_rng(seed)
    guess = PayloadGuess.of(float(rng.uniform(0.2, 8.0)))
    frame, _ = np.linalg.qr(rng.normal(size=(3, 3)))
    shift = rng.uniform(-0.2, 0.2, 3)
    lower, upper = prior_of(guess, (np.zeros(10), np.zeros(10)), (frame, shift))
    half = 0.5 * np.array(guess.size)
    # Clouds of points with mirror images: centred, then moved as far as their own size lets them.
    points = rng.choice([-1.0, 1.0], (6, 3)) * rng.uniform(0.0, 1.0, 3) * half
    points = np.concatenate([points, -points])
    room = np.minimum(half - np.abs(points).max(axis=0), CENTRED * half)
    points = points + rng.choice([-1.0, 1.0], 3) * room + np.array(guess.center)
    placed = points @ frame.T + shift
    mass = guess.mass * rng.choice([1.0, rng.uniform()])
    r = placed - placed.mean(axis=0)
    about = mass / len(r) * (np.sum(r * r) * np.eye(3) - r.T @ r)
    theta = inertia_from_com(mass, placed.mean(axis=0), about)
    assert np.all(theta >= lower - 1e-9)
    assert np.all(theta <= upper + 1e-9)


@settings(deadline=None, max_examples=40)
@given(st.integers(0, 2**32 - 1))
def test_rounding_a_hull_loses_nothing(seed: int) -> None:
    rng = np.random.default_rng(seed)
    points, radius = rng.normal(scale=0.2, size=(rng.integers(1, 9), 3)), float(rng.uniform(0.0, 0.1))
    short, grown = rounded_hull(points, radius)
    # Each point is that near to one of the hull's: then the hulls of both are, too.
    assert np.linalg.norm(points - np.array(short), axis=1).max() <= grown - radius
    assert grown <= radius + 3e-4


def test_meshes_are_found_in_package_folders_and_covered(tmp_path: Path) -> None:
    corners = np.array([[x, y, z] for x in (0, 0.1) for y in (0, 0.2) for z in (0, 0.3)])
    faces = [(a, b, c) for a in range(8) for b in range(a) for c in range(b)]  # any surface will do
    mesh = tmp_path / "packages" / "my_package" / "part.obj"
    mesh.parent.mkdir(parents=True)
    write_obj(str(mesh), corners, np.array(faces))
    name = "package://my_package/part.obj"
    collision = f'<collision><origin xyz="0 0 1"/><geometry><mesh filename="{name}"/></geometry></collision>'
    link = '<link name="forearm">'
    chain = look_at(tutorial_arm(tmp_path, (link, link + collision))).chain
    hulls = fit_meshes(chain, [tmp_path / "packages"])["forearm"]
    for corner in corners + np.array([0.0, 0.0, 1.0]):
        assert any(distance_to_hull(corner, np.array(points)) <= radius for points, radius in hulls)
    assert len(hulls) >= 2  # the link's cylinder as well
    with pytest.raises(ModelError, match=r"forearm.*package://my_package"):
        fit_meshes(chain)


HAND = """
<link name="palm"/><joint name="wrist_mount" type="fixed"><parent link="tool0"/><child link="palm"/></joint>
<link name="left"/><joint name="finger" type="prismatic"><parent link="palm"/><child link="left"/><axis xyz="0 1 0"/>
<limit lower="0.01" upper="0.04" velocity="1" effort="1"/></joint>
<link name="right"/><joint name="other_finger" type="prismatic"><parent link="palm"/><child link="right"/>
<axis xyz="0 -1 0"/><limit lower="0" upper="0.04" velocity="1" effort="1"/>{mimic}</joint></robot>"""
JAW = """
<link name="jaw"/><joint name="gripper" type="revolute"><parent link="tool0"/><child link="jaw"/><axis xyz="0 1 0"/>
<limit lower="-0.2" upper="1.7" velocity="1" effort="1"/></joint></robot>"""


@pytest.mark.parametrize(
    ("hand", "locked"),
    [
        (HAND.format(mimic=""), {"finger": 0.01, "other_finger": 0.0}),
        (HAND.format(mimic='<mimic joint="finger"/>'), {"finger": 0.01}),
        (JAW, {"gripper": 0.0}),
    ],
    ids=["two fingers", "one follows the other", "a jaw that turns"],
)
def test_joints_of_a_hand_are_locked_not_taken_for_joints_of_the_arm(
    tmp_path: Path, hand: str, locked: dict[str, float]
) -> None:
    facts = look_at(tutorial_arm(tmp_path, ("</robot>", hand)))
    assert [joint.name for joint in facts.chain.joints] == ["waist", "shoulder", "elbow"]
    assert facts.locked == locked


def test_what_is_said_of_joints_counts(tmp_path: Path) -> None:
    urdf = tutorial_arm(tmp_path, ("</robot>", HAND.format(mimic="")))
    assert any("locked.finger: 0.01 is a guess" in remark for remark in look_at(urdf).remarks)
    assert look_at(urdf, locked={"finger": 0.03}).locked["finger"] == 0.03
    with pytest.raises(ConfigError, match="no_such"):
        look_at(urdf, joints=["waist", "no_such"])
    with pytest.raises(ConfigError, match="base_link"):
        look_at(urdf, tool_frame="base_link")
    urdf = tutorial_arm(tmp_path, ("</robot>", JAW))
    assert len(look_at(urdf, joints=["waist", "shoulder", "elbow", "gripper"]).chain.joints) == 4


@pytest.mark.parametrize(
    ("old", "new", "named"),
    [
        ('effort="30"', "", "elbow.*effort.*> 0"),
        ('velocity="2.5"', 'velocity="0"', "elbow.*velocity.*> 0"),
        ('lower="-2.4" upper="2.4"', "", "elbow.*lower < upper"),
        ('<mass value="1.2"/>', '<mass value="0"/>', "mass of what joint .elbow. moves.*<inertial>"),
        ('<cylinder radius="0.035" length="0.2"/>', '<mesh filename="package://x/../y.stl"/>', "forearm.*without `..`"),
        ('<mass value="1.2"/>', '<mass value="${forearm_mass}"/>', "forearm_mass.*expand it with `xacro`"),
        ('izz="0.001"', 'izz="0.1"', "elbow.*0.1.*none above the sum of the other two"),
        ('<cylinder radius="0.035" length="0.2"/>', '<mesh filename="gone.stl"/>', "forearm.*gone.stl"),
        ('<cylinder radius="0.035" length="0.2"/>', '<mesh filename="package://gone/x.stl"/>', "--package-dir"),
        ('type="revolute"', 'type="planar"', "planar"),
    ],
)
def test_bad_urdfs_are_refused_by_name(tmp_path: Path, old: str, new: str, named: str) -> None:
    out = tmp_path / "arm.yaml"
    with pytest.raises(SafeSysIdError, match=named):
        write_configuration(tutorial_arm(tmp_path, (old, new)), out)
    assert not out.exists()


def test_impossible_payloads_are_refused(tmp_path: Path) -> None:
    out = tmp_path / "arm.yaml"
    with pytest.raises(ConfigError, match="payload-kg"):
        write_configuration(tutorial_arm(tmp_path), out, NewArm(payload_kg=0.0))
    with pytest.raises(ModelError, match=r"no_such\.urdf"):
        write_configuration(tmp_path / "no_such.urdf", out)


@pytest.mark.slow
def test_an_arm_that_slides_gets_gains_and_a_remark(tmp_path: Path) -> None:
    out, urdf = tmp_path / "arm.yaml", tutorial_arm(
        tmp_path,
        ('name="elbow" type="revolute"', 'name="elbow" type="prismatic"'),
        ('<origin xyz="0 0 0.36"/> <axis xyz="0 1 0"/>', '<origin xyz="0 0 0.3"/> <axis xyz="0 0 1"/>'),
        ('lower="-2.4" upper="2.4" velocity="2.5" effort="30"', 'lower="0" upper="0.3" velocity="0.5" effort="200"'),
    )  # fmt: skip
    remarks = write_configuration(urdf, out, NewArm(payload_kg=1.0, simulated_drives=True))
    assert any("sliding joints (elbow)" in remark and "no plan was tried" in remark for remark in remarks)
    design_gains(load_robot(out))


def test_any_names_and_numbers_survive_the_text(written: tuple[Path, list[str]]) -> None:
    """Names that YAML would take for something else, and numbers that it would take for words."""
    data = yaml.safe_load(written[0].read_text(encoding="utf-8"))
    data["joints"] = dict(zip(("on", "joint: 1", 'a "b" #c'), data["joints"].values(), strict=True))
    data["name"] = "1e3"
    data["joints"]["on"]["coulomb"] = 1e-7
    data["geometry"] = {"link 1": [{"points": [[0.1 * i, 0.0, -1e-5] for i in range(40)], "radius": 0.01}]}
    data["allowed_pairs"] = [["yes", "~"]]
    data["locked"] = {"0": 0.5}
    told = dict.fromkeys(("source", "drives", "payload", "inertia", "gains", "geometry", "home"), "words: # more")
    assert yaml.safe_load(configuration_text(data, told, ["a remark: yes # no"])) == data


def test_a_link_with_mass_and_no_shape_is_said_to_be_a_guess(tmp_path: Path) -> None:
    body = '<inertial><mass value="0.3"/><inertia ixx="1e-4" iyy="1e-4" izz="1e-4" ixy="0" ixz="0" iyz="0"/></inertial>'
    camera = f'<link name="camera">{body}</link><joint name="camera_mount" type="fixed"><parent link="base_link"/>'
    urdf = tutorial_arm(tmp_path, ("</robot>", camera + '<child link="camera"/></joint></robot>'))
    out = tmp_path / "my_arm.yaml"
    remarks = write_configuration(urdf, out, NewArm(payload_kg=2.0))
    assert any(remark.startswith("geometry.camera: [] is a guess") for remark in remarks)
    assert yaml.safe_load(out.read_text(encoding="utf-8"))["geometry"]["camera"] == []
    assert any("camera" in line for line in unchecked(load_robot(out)))


@pytest.fixture(scope="module")
def unknown(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[str]]:
    """The same arm, and nobody has said anything about its drives."""
    urdf = tutorial_arm(tmp_path_factory.mktemp("unknown"))
    out = urdf.with_suffix(".yaml")
    arm = NewArm(payload_kg=2.0, gear_ratios={"elbow": 50.0}, allowed_pairs=[("base_link", "upper_arm")])
    return out, write_configuration(urdf, out, arm)


def test_drives_are_never_invented(unknown: tuple[Path, list[str]], capsys: pytest.CaptureFixture[str]) -> None:
    out, remarks = unknown
    model = load_robot(out)
    lower, upper = (side[model.layout.rotor_inertia] for side in (model.arm_prior.lower, model.arm_prior.upper))
    assert np.all(lower[:2] <= 0.0003 * model.limits.torque[:2])
    assert np.all(upper[:2] >= 0.03 * model.limits.torque[:2])
    assert 0.01 * 30.0 < upper[2] < 0.014 * 30.0  # 50 / 4000: the ratio that was given narrows it
    assert upper[:3].max() < 0.035 * 60.0  # and no multiple of what the joints move
    text = out.read_text(encoding="utf-8")
    assert "IDENTIFY ONLY" in text
    (need,) = (remark for remark in remarks if "IDENTIFY ONLY" in remark)
    assert "tracking bound at 1 kHz for 2 kg would need rotor inertia of about waist" in need
    assert np.max(model.arm_prior.payload_upper[0] - model.hand_prior[1][0]) == pytest.approx(2.0, abs=1e-4)
    with pytest.raises(ConfigError, match="identification only"):
        design_gains(model)
    assert main(["config", "check", str(out)]) == 0
    assert "identify only: nothing is known of the drives" in capsys.readouterr().out
    assert main(["demo", "--robot", str(out)]) == 2
    assert "--simulated-drives" in capsys.readouterr().err
    assert ("base_link", "upper_arm") in model.settings.allowed_pairs


def test_with_a_measured_tube_unknown_drives_are_judged_like_any_other(
    unknown: tuple[Path, list[str]], capsys: pytest.CaptureFixture[str]
) -> None:
    model, file = load_robot(unknown[0]), unknown[0].with_name("measured.yaml")
    settings = yaml.safe_load(unknown[0].read_text(encoding="utf-8"))
    tube = {
        "position": 0.004, "velocity": 0.02, "acceleration": 0.3, "inner_position": 0.003, "inner_velocity": 0.012,
        "largest_velocity": 2.0, "largest_acceleration": 2.0, "largest_jerk": 20.0, "latency_s": 0.01,
        "heaviest": float(model.arm_prior.payload_upper[0]), "origin": "a test",
    }  # fmt: skip
    settings["measurement"]["effort"] = "mean"
    settings["controller"] |= {"interface": "trajectory", "tube": tube}
    file.write_text(yaml.safe_dump(settings), encoding="utf-8")
    assert main(["config", "check", str(file)]) == 0
    told = capsys.readouterr().out
    assert "measured tracking error (rad): 0.0041 0.0041 0.0041" in told
    assert "start pose: can be held with every payload of the prior" in told
    assert "identify only" not in told
    # Slower than plans are asked to be: no verdict without what was measured.
    tube["largest_velocity"] = 0.1
    file.write_text(yaml.safe_dump(settings), encoding="utf-8")
    assert main(["config", "check", str(file)]) == 2
    assert "the fastest that controller.tube was measured with" in capsys.readouterr().err


@pytest.mark.slow
def test_unknown_drives_behind_their_own_controller_can_be_simulated(
    unknown: tuple[Path, list[str]], tmp_path: Path
) -> None:
    """Seed 0: light rotors with much friction, which the simulator's steps did not follow."""
    command = ["demo", "--robot", str(unknown[0]), "--interface", "trajectory", "--velocity-error", "1e-4"]
    assert main([*command, "--plans", "1", "--quiet", "--out", str(tmp_path / "run")]) == 0


def test_simulated_drives_are_named_in_every_verdict(written: tuple[Path, list[str]], model: RobotModel) -> None:
    assert model.settings.drives == "simulated"
    assert any("drives of my_arm are simulated" in line for line in unchecked(model))
    assert any("SIMULATED drives" in remark for remark in written[1])
    assert model.drive_note in declared_texts(model, False).values()  # result.json, report, last line
    assert load_robot("three_joint").drive_note == ""
    assert "drives" not in declared_texts(load_robot("three_joint"), False)


@pytest.mark.slow
def test_a_log_of_plausible_drives_is_no_contradiction(
    unknown: tuple[Path, list[str]], model: RobotModel, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Where drives are unknown the bounds hold the truth; drives that were chosen for a simulation contradict it."""
    simulated, model = model, load_robot(unknown[0])
    rng, torque, layout = np.random.default_rng(3), model.limits.torque, model.layout
    held, (rotation, translation) = np.array(model.theta_nominal), model.flange
    held[layout.payload] += inertia_from_com(1.2, translation + rotation @ [0.0, 0.0, 0.14], 0.0024 * np.eye(3))
    held[layout.rotor_inertia], held[layout.coulomb] = 0.007 * torque, 0.015 * torque
    held[layout.viscous], held[layout.offset] = 0.03 * torque, 0.005 * torque
    plans = exciting_plans(np.array([0.0, 0.5, 0.6]), rng, n_plans=1, t_f=2.0, amplitude=1.0)
    log = simulate(model.kinematics, held, model.friction_transition_velocity, plans)
    error = 0.5 * per_joint(model.settings.measurement.torque_abs, model.n)
    effort = log.torque * 1.02 + error * rng.uniform(-1.0, 1.0, log.torque.shape)
    answers = []
    for arm in (model, simulated):
        identifier = Identifier(arm)
        identifier.add(Measurements(log.stamps, log.q, log.qd, effort))
        answers.append(identifier.update(final=True))
    answer, contradiction = answers
    assert contradiction.status.name == "EMPTY_SET"
    assert answer.status.name == "OK", answer.message
    truth = held[layout.payload]
    assert np.all((answer.box.payload_lower <= truth) & (truth <= answer.box.payload_upper))
    prior = model.arm_prior.payload_upper - model.arm_prior.payload_lower
    assert np.min(answer.widths / prior) < 0.8
    write_log(tmp_path / "log.npz", model.joint_names, Measurements(log.stamps, log.q, log.qd, effort))
    command = ["identify", tmp_path / "log.npz", "--robot", unknown[0], "--out", tmp_path / "out", "--quiet"]
    assert main([str(word) for word in command]) == 0
    assert "drives of my_arm are unknown" in capsys.readouterr().out.splitlines()[-1]
    found = json.loads((tmp_path / "out" / "result.json").read_text(encoding="utf-8"))
    assert "rely on intervals" in found["declared"]["drives"]
    assert found["payload"]["lower"][0] <= 1.2 <= found["payload"]["upper"][0]
    assert found["payload"]["nominal"][0] == pytest.approx(1.2, abs=0.3)


@pytest.mark.slow
def test_measured_drives_are_taken_from_a_file(
    written: tuple[Path, list[str]], model: RobotModel, tmp_path: Path
) -> None:
    """Drives that a file declares stand in the next one, at least as wide; a payload asked for is never halved."""
    data = yaml.safe_load(written[0].read_text(encoding="utf-8")) | {"drives": "declared"}
    measured = tmp_path / "measured.yaml"
    measured.write_text(yaml.safe_dump(data | {"urdf": str(written[0].with_suffix(".urdf"))}), encoding="utf-8")
    arm = NewArm(payload_kg=2.0, drives=measured)
    write_configuration(written[0].with_suffix(".urdf"), tmp_path / "out.yaml", arm)
    again = load_robot(tmp_path / "out.yaml")
    assert again.settings.drives == "declared"
    assert not any("simulated" in line for line in unchecked(again))
    drives = slice(10 * model.n, None)
    assert np.all(again.arm_prior.lower[drives] <= model.arm_prior.lower[drives])
    assert np.all(again.arm_prior.upper[drives] >= model.arm_prior.upper[drives])
    rad, wanted = again.arm_prior.rad[drives], model.arm_prior.rad[drives]
    assert np.all(rad <= 1.02 * wanted)


def test_disabled_collisions_of_an_srdf_are_allowed_pairs(model: RobotModel, tmp_path: Path) -> None:
    srdf = tmp_path / "arm.srdf"
    srdf.write_text(
        '<robot name="my_arm"><disable_collisions link1="base_link" link2="forearm" reason="Never"/>'
        '<disable_collisions link1="base_link" link2="a_stranger"/></robot>'
    )
    assert stated_pairs(model, [], srdf) == (("base_link", "forearm"),)
    with pytest.raises(ConfigError, match="--allow-pair"):
        stated_pairs(model, [("base_link", "a_stranger")], None)


@pytest.mark.slow  # its four commands are run by test_docs_commands.py
def test_the_tutorial_shows_what_its_first_two_commands_say(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    text = TUTORIAL.read_text(encoding="utf-8")
    commands = [line for block in re.findall(r"```sh\n(.*?)```", text, re.S) for line in block.splitlines()]
    assert [shlex.split(command)[1] for command in commands] == ["config", "config", "demo", "verify"]
    tutorial_arm(tmp_path)
    monkeypatch.chdir(tmp_path)
    for command in commands[:2]:
        assert main(shlex.split(command)[1:]) == 0
        told = capsys.readouterr().out.splitlines()
        shown = text.split(f"```sh\n{command}\n```\n\n```text\n")[1].split("```")[0].splitlines()
        assert [line for line in shown if "..." not in line and line not in told] == []
    assert any(line.startswith("warning: marked as to be measured: joints") for line in told)
