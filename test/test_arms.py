"""Arms by configuration only: each loads, has gains, may start, and gets certified plans that identify its payload."""

from __future__ import annotations

import functools
import json
import sys
from pathlib import Path

import numpy as np
import pytest

from safe_sysid.cli import main
from safe_sysid.control.gains.design import check_acceleration, design_gains
from safe_sysid.demo.options import start_reasons
from safe_sysid.dynamics import dynamics_of
from safe_sysid.episode import Episode
from safe_sysid.errors import ParameterError
from safe_sysid.robot import load_robot, load_scene
from safe_sysid.robot.frames import forward_kinematics
from safe_sysid.simulation import DUMBBELLS, draw_truth, payload_from_spec, payload_in_hand
from safe_sysid.simulation.assembly import build_plant

BALL = "{m},0,0,0.12,{i},0,{i},0,0,{i}"
#: Payloads inside each arm's prior.
PAYLOADS = {
    "three_joint": "4lb",
    "three_joint_wall": "5lb",
    "ur5e": BALL.format(m=1.2, i=0.002),
    "franka_panda": BALL.format(m=0.5, i=0.0005),
}
needs_package = pytest.mark.skipif(
    not any((Path(entry) / "cmeel.prefix/share/example-robot-data").is_dir() for entry in sys.path),
    reason="the registry package example-robot-data is not installed",
)
cached_robot = functools.cache(load_robot)
PANDA = pytest.param("franka_panda", marks=needs_package)
ARMS = [*list(PAYLOADS)[:3], PANDA]


@pytest.mark.parametrize("name", [*ARMS[:3], pytest.param("franka_panda", marks=(needs_package, pytest.mark.slow))])
def test_gains_exist_and_the_home_pose_may_be_held_in_lock_step_and_in_real_time(name: str) -> None:
    model, scene = cached_robot(name), load_scene("open")
    for lockstep in (True, False):
        gains = design_gains(model, lockstep)
        check_acceleration(model, gains)
        assert np.max(gains.e_bound) < 0.06
        assert start_reasons(model, scene, gains, np.array(model.settings.home)) == []


@pytest.mark.parametrize("name", ["three_joint", pytest.param("three_joint_wall", marks=pytest.mark.slow)])
def test_one_certified_plan_later_the_truth_is_inside_smaller_bounds(name: str) -> None:
    model, scene = cached_robot(name), load_scene("open")
    plant = build_plant(model, payload_from_spec(PAYLOADS[name]), scene, seed=3)
    result = (episode := Episode(model, plant, scene, plans=1, seed=3)).run()
    assert [answer.status.value for answer in result.plans] == ["planned"]
    assert result.refusals == []
    assert float(np.max(result.energy)) < result.gains.V_max
    box = episode.identifier.box
    assert np.all((box.lower <= plant.theta_true) & (plant.theta_true <= box.upper))
    prior = model.arm_prior
    assert (box.payload_upper - box.payload_lower)[0] < 0.5 * (prior.payload_upper - prior.payload_lower)[0]


@pytest.mark.slow
@pytest.mark.parametrize("name", ARMS)
def test_the_demo_holds_every_bound(name: str, tmp_path: Path) -> None:
    out = str(tmp_path / "run")
    assert main(["demo", "--robot", name, "--payload", PAYLOADS[name], "--seed", "4", "--out", out, "--quiet"]) == 0
    summary = json.loads((tmp_path / "run" / "summary.json").read_text(encoding="utf-8"))
    assert all(p["lower"] <= p["truth"] <= p["upper"] for p in summary["parameters"])


HELD = {"kinova_gen3": "8lb", "three_joint": "5lb", "ur5e": "ball of 1.19 kg", "franka_panda": "ball of 0.226 kg"}


@pytest.mark.parametrize("name", [*list(HELD)[:3], PANDA])
@pytest.mark.parametrize("mode", ["uniform", "corner"])
def test_what_the_hand_holds_unasked_fits_every_true_arm(name: str, mode: str) -> None:
    model = cached_robot(name)
    held = payload_in_hand(model, "auto")
    assert held.name == HELD[name]
    centre = held.theta[1:4] / held.theta[0]
    np.testing.assert_allclose(centre, model.settings.payload.envelope.center, atol=1e-9)
    for seed in range(5):
        draw_truth(model, held, seed, mode)
    if held.name in DUMBBELLS[:-1]:
        heavier = payload_in_hand(model, DUMBBELLS[DUMBBELLS.index(held.name) + 1])
        with pytest.raises(ParameterError, match="outside the prior"):
            draw_truth(model, heavier, 0)


def test_dumbbells_are_gripped_where_the_robots_file_says() -> None:
    envelope = {"center": [0.0, 0.01, 0.2], "size": [0.085, 0.21, 0.085]}
    held = payload_in_hand(load_robot("three_joint", **{"payload.envelope": envelope}), "4lb")
    np.testing.assert_allclose(held.theta[1:4] / held.theta[0], envelope["center"], atol=1e-9)


def test_a_prior_that_nothing_suits_is_told() -> None:
    lower = load_robot("three_joint").settings.payload.prior_upper
    prior = {"payload.prior_lower": lower, "payload.prior_upper": [x + 1e-6 for x in lower]}
    with pytest.raises(ParameterError, match=r"three_joint.*expected numbers or a URDF"):
        payload_in_hand(load_robot("three_joint", **prior), "auto")


UR5E_DH = {  # Universal Robots, "DH parameters for calculations of kinematics and dynamics": a, d in m, alpha in rad
    "a": (0.0, -0.425, -0.3922, 0.0, 0.0, 0.0),
    "d": (0.1625, 0.0, 0.0, 0.1333, 0.0997, 0.0996),
    "alpha": (np.pi / 2, 0.0, 0.0, np.pi / 2, -np.pi / 2, 0.0),
}


def test_the_ur5e_moves_as_its_published_table_says() -> None:
    model = cached_robot("ur5e")
    for q in np.random.default_rng(0).uniform(-3.0, 3.0, (20, 6)):
        pose = np.diag([-1.0, -1.0, 1.0, 1.0])  # base_link is the table's base frame turned by half a turn about z
        for a, d, alpha, angle in zip(*UR5E_DH.values(), q, strict=True):
            c, s, ca, sa = np.cos(angle), np.sin(angle), np.cos(alpha), np.sin(alpha)
            pose = pose @ np.array(
                [[c, -s * ca, s * sa, a * c], [s, c * ca, -c * sa, a * s], [0, sa, ca, d], [0, 0, 0, 1]]
            )
        rotations, positions = forward_kinematics(model.kinematics, q)
        np.testing.assert_allclose(positions[-1], pose[:3, 3], atol=1e-12)
        np.testing.assert_allclose(rotations[-1], pose[:3, :3], atol=1e-12)


def test_an_arm_on_a_wall_feels_gravity_from_the_side() -> None:
    """Static torques of the mounted arm are those of the upright one with gravity turned the other way."""
    upright, wall = cached_robot("three_joint"), cached_robot("three_joint_wall")
    turned = upright.kinematics._replace(gravity=np.array([9.81, 0.0, 0.0]))  # world down, in the root's axes
    zero = np.zeros(3)
    for q in np.random.default_rng(1).uniform(-2.0, 2.0, (10, 3)):
        expected = dynamics_of(turned).torque_regressor(q, zero, zero) @ upright.theta_nominal
        found = dynamics_of(wall.kinematics).torque_regressor(q, zero, zero) @ wall.theta_nominal
        np.testing.assert_allclose(found, expected, atol=1e-9)
        standing = dynamics_of(upright.kinematics).torque_regressor(q, zero, zero) @ upright.theta_nominal
        assert abs(standing[0]) < 1e-9 < abs(found[0])  # its first axis is horizontal now


@needs_package
def test_the_panda_of_the_registry_has_its_mass_and_its_fingers_on_the_last_joint() -> None:
    model = cached_robot("franka_panda")
    assert model.n == 7
    # link7, hand and two fingers (kg), as the package's URDF gives them
    assert model.theta_nominal[60] == pytest.approx(0.735522 + 0.73 + 2 * 0.015)
    fingers = [body for body in model.bodies if "finger" in body.name]
    assert [(body.joint, body.kind) for body in fingers] == [(6, "hand")] * 8
    rotation, position = model.flange
    y = [np.mean((body.points - position) @ rotation, axis=0)[1] for body in fingers]
    assert max(y) > 0.02
    assert min(y) == pytest.approx(-max(y))  # the mimic opens as far, to the other side
