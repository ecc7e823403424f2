"""A user's first day: an arm that is not as drawn, two exciting motions, `identify-arm`, then a payload in its hand."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import yaml

from safe_sysid.cli import main
from safe_sysid.dynamics import dynamics_of
from safe_sysid.dynamics.closed_chain import Mechanism
from safe_sysid.episode import Episode
from safe_sysid.identification.arm.bounds.intervals import base_of
from safe_sysid.identification.arm.excitation.motions import exciting
from safe_sysid.identification.equations.measurements import Measurements
from safe_sysid.identification.payload_alone import payload_bounds
from safe_sysid.logs.formats.npz import write_log
from safe_sysid.report.arm.files import robot_file, urdf_with
from safe_sysid.robot.config import load_settings
from safe_sysid.robot.loading import find_urdf, load_robot
from safe_sysid.robot.scenes.scene import config_path, load_scene
from safe_sysid.simulation.noise import NoiseModel
from safe_sysid.simulation.payloads import NO_PAYLOAD, Payload, payload_from_spec, theta_e_with_payload
from safe_sysid.simulation.plant import Plant

ROBOT, SEED = "three_joint", 1
#: Proportional gain of the log's own controller is its square, 1/s^2; seconds of a motion, and of its beginning.
STIFF, SECONDS, BEGINNING = 8.0, 9.0, 1.0


def true_parameters(rng: np.random.Generator) -> np.ndarray:
    """Every link, friction and rotor 5 to 30 % off the drawing, each by itself; offsets that nobody told."""
    model = load_robot(ROBOT)
    theta, layout = model.theta_nominal.copy(), model.layout
    for j in range(model.n):
        theta[layout.link(j)] *= 1.0 + rng.choice([-1, 1]) * rng.uniform(0.05, 0.30)
    for block in (layout.coulomb, layout.viscous, layout.rotor_inertia):
        for j in range(model.n):
            theta[block][j] *= 1.0 + rng.choice([-1, 1]) * rng.uniform(0.05, 0.30)
    theta[layout.offset] = rng.uniform(-0.3, 0.3, model.n)
    return theta


def plant_of(theta: np.ndarray, payload: Payload, seed: int, q0: np.ndarray) -> Plant:
    model = load_robot(ROBOT)
    s = model.settings
    return Plant(
        model, theta, payload, load_scene("open"), seed, NoiseModel.declared(s, "uniform"), q0=q0,
        period=s.timing.period_s, actuator_mode="random", actuator_abs=s.actuator.torque_abs,
        actuator_rel=s.actuator.torque_rel,
    )  # fmt: skip


def exciting_log(theta: np.ndarray, rng: np.random.Generator, seed: int) -> Measurements | None:
    """A motion of the true arm in MuJoCo, by a controller that believes the drawing; None if it hits something."""
    model = load_robot(ROBOT)
    waves = exciting(Mechanism.of_robot(model), base_of(model).independent, rng, 8.0, 2.0)
    plant = plant_of(theta, NO_PAYLOAD, seed, waves.at(np.zeros(1))[0][0])
    sample, dynamics, period = (plant.measurement, dynamics_of(model.kinematics), model.settings.timing.period_s)
    rows = []
    for i in range(int(SECONDS / period)):
        q, qd, qdd = (x[0] for x in waves.at(np.array([i * period])))
        wanted = qdd + 2.0 * STIFF * (qd - sample.qd) + STIFF**2 * (q - sample.q)
        sample = plant.step(
            dynamics.inverse_dynamics(model.theta_nominal, sample.q[None], sample.qd[None], wanted[None])[0]
        )
        rows.append((sample.stamp, sample.q.copy(), sample.qd.copy(), sample.effort.copy()))
    stamps, q, qd, effort = (np.array(x) for x in zip(*rows, strict=True))
    if plant.contact_steps or np.any(np.abs(effort).max(axis=0) > model.limits.torque):
        return None
    late = stamps > BEGINNING
    return Measurements(stamps[late], q[late], qd[late], effort[late])


def described(folder: Path, theta: np.ndarray) -> Path:
    """Robot file and URDF of an arm as it truly is."""
    path, mechanism = config_path(ROBOT, "config"), Mechanism.of_robot(load_robot(ROBOT))
    known = SimpleNamespace(theta=theta, mechanism=mechanism, columns=(), estimate=SimpleNamespace(theta=theta))
    folder.mkdir()
    (folder / "arm.urdf").write_text(urdf_with(find_urdf(path, load_settings(path, {})), known))
    (folder / "robot.yaml").write_text(robot_file(path, known, "arm.urdf"))
    return folder / "robot.yaml"


def driven(robot: Path, theta: np.ndarray, **declared: float) -> np.ndarray:
    """Smallest and largest mass after three plans of the loop that believes a robot file; nothing is violated."""
    drawn, believed = load_robot(ROBOT), load_robot(robot, **declared)
    payload = payload_from_spec("1.5,0,0,0.15,0.03,0,0.03,0,0,0.003")
    true, hand = theta.copy(), drawn.layout.payload
    true[hand] = theta_e_with_payload(drawn, theta[hand], payload)
    scene = load_scene("open")
    plant = plant_of(true, payload, 5, scene.start_for(believed))
    result = Episode(believed, plant, scene, plans=3, seed=1).run()
    log, ticks = plant.truth(), slice(1, len(result.stamps) + 1)
    assert result.refusals == []
    assert result.failure == ""
    assert plant.contact_steps == 0
    assert np.all(np.abs(result.reference[:, 0] - log["q"][ticks]) <= result.gains.e_bound)
    assert np.all(np.abs(result.reference[:, 1] - log["qd"][ticks]) <= result.gains.de_bound)
    assert np.all(np.abs(log["tau_applied"]) <= believed.limits.torque)
    box = result.updates[-1][1].box
    lower, upper = box.payload_lower, box.payload_upper
    alone = payload_bounds(believed, lower, 0.5 * (lower + upper), upper)  # the last link need not be the true one
    assert np.all((alone.lower <= payload.theta) & (payload.theta <= alone.upper))
    return np.array([alone.lower[0], alone.upper[0]])


@pytest.mark.slow
def test_an_identified_arm_bounds_a_payload_nearly_as_well_as_the_true_one(tmp_path: Path) -> None:
    rng = np.random.default_rng(SEED)
    theta, logs, draws = true_parameters(rng), [], 0
    while len(logs) < 2:
        draws += 1
        assert draws < 20
        log = exciting_log(theta, rng, SEED + len(logs))
        if log is not None:
            logs.append(tmp_path / f"{len(logs)}.npz")
            write_log(logs[-1], load_robot(ROBOT).joint_names, log)
    # What the user declares of an arm of which little is known.
    path = config_path(ROBOT, "config")
    settings = yaml.safe_load(path.read_text())
    settings["urdf"] = str(find_urdf(path, load_settings(path, {})))
    floor = settings["uncertainty"]["floor"] | {"offset": 0.35, "coulomb": 0.1}
    settings["uncertainty"] = {"relative": 0.35, "floor": floor}
    (tmp_path / "wide.yaml").write_text(yaml.safe_dump(settings))
    out = tmp_path / "found"
    command = ["identify-arm", *map(str, logs), "--robot", str(tmp_path / "wide.yaml"), "--out", str(out)]
    assert main([*command, "--quiet"]) == 0
    result = json.loads((out / "result.json").read_text())
    assert result["consistent"] is True
    assert result["intervals"]["proved"] is True
    assert main(["verify", str(out), "--robot", str(tmp_path / "wide.yaml")]) == 0
    uncertainty = load_robot(ROBOT).settings.uncertainty
    floors = {f"uncertainty.floor.{key}": getattr(uncertainty.floor, key) for key in ("coulomb", "offset")}
    known = described(tmp_path / "true", theta)
    found, known = driven(out / "robot.yaml", theta), driven(known, theta, **floors)
    assert np.ptp(found) <= 1.5 * np.ptp(known)
    content = yaml.safe_load((out / "robot.yaml").read_text())
    content["payload"]["prior_upper"][0] -= 0.01  # the declared one no longer
    (out / "robot.yaml").write_text(yaml.safe_dump(content))
    assert main(["verify", str(out), "--robot", str(tmp_path / "wide.yaml")]) == 1
