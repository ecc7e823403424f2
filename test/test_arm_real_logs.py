"""Logs as real arms give them: stops with sticking joints, coupled wrists, no velocities, currents, only a URDF."""

from __future__ import annotations

import json
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import numpy as np
import pinocchio as pin
import pytest
from rigid_arm import pinocchio_model

from safe_sysid.cli import main
from safe_sysid.dynamics.closed_chain import Mechanism
from safe_sysid.identification.arm.estimates.friction import at_rest
from safe_sysid.identification.arm.identify import ArmIdentification, ArmOptions, identify_samples
from safe_sysid.identification.arm.logs.preparation import ArmData, prepare
from safe_sysid.identification.arm.wrong_columns import common_scale
from safe_sysid.identification.equations.measurements import Measurements
from safe_sysid.resources import share_directory
from safe_sysid.robot.loading import load_robot

pytestmark = pytest.mark.unproved

RATE, NOISE, COULOMB = 200.0, 0.05, 1.5
MODEL = load_robot("three_joint")


def motion(rng: np.random.Generator, moves: int = 50) -> tuple[np.ndarray, ...]:
    """Stamps, q, qd, qdd: from place to place in 0.6 s, with a rest of 0.4 s at each."""
    t = np.arange(0.0, 1.0, 1.0 / RATE)[:, None]
    x = np.minimum(t / 0.6, 1.0)
    shape = (10 * x**3 - 15 * x**4 + 6 * x**5, 30 * x**2 * (1 - x) ** 2 / 0.6, 60 * x * (1 - x) * (1 - 2 * x) / 0.36)
    places = rng.uniform(-1.2, 1.2, (moves + 1, MODEL.n))
    parts = [(a + shape[0] * (b - a), shape[1] * (b - a), shape[2] * (b - a)) for a, b in pairwise(places)]
    q, qd, qdd = (np.concatenate([part[i] for part in parts]) for i in range(3))
    return np.arange(len(q)) / RATE, q, qd, qdd


def recorded(seed: int = 0, coupled: bool = False, behind: float | None = None) -> Measurements:
    """A log of an arm that is not as drawn; joints that rest stick, at any torque that friction can hold.

    ``behind``: torques are link-side ones, and feel so much Coulomb friction of the shoulder.
    """
    rng, layout = np.random.default_rng(seed), MODEL.layout
    theta = np.array(MODEL.theta_nominal)
    for j in range(MODEL.n):
        theta[layout.link(j)] *= rng.uniform(0.75, 1.3)
    oracle = pinocchio_model(MODEL, theta)
    stamps, q, qd, qdd = motion(rng)
    data = oracle.createData()
    rigid = np.array([pin.rnea(oracle, data, *x) for x in zip(q, qd, qdd, strict=True)])
    turns = qd.copy()
    if coupled:
        turns[:, 2] += qd[:, 1]
    held = np.repeat(rng.uniform(-1.0, 1.0, (50, MODEL.n)), round(RATE), axis=0)
    friction = COULOMB * np.where(np.abs(turns) > 1e-9, np.sign(turns), held) + 0.8 * turns
    torque = rigid + friction + theta[layout.rotor_inertia] * qdd
    if coupled:
        torque[:, 1] += friction[:, 2]
    if behind is not None:
        torque = rigid + behind * np.sign(qd) * [0.0, 1.0, 0.0]
    return Measurements(stamps, q, qd, torque + NOISE * rng.normal(size=q.shape))


def identified(log: Measurements, link_side: bool = False) -> tuple[ArmIdentification, ArmData]:
    mechanism = Mechanism.of_robot(MODEL)
    samples, held_out = prepare([log], mechanism.actuated_names).split()
    return identify_samples(mechanism, samples, held_out, ArmOptions(link_side=link_side)), held_out


def test_a_sensor_on_the_link_side_leaves_friction_and_rotors_as_declared() -> None:
    layout = MODEL.layout
    unseen = np.concatenate([np.arange(layout.size)[x] for x in (layout.coulomb, layout.viscous, layout.rotor_inertia)])
    for behind, kinds in ((0.0, []), (0.8, [("coulomb", 1)])):
        found, _ = identified(recorded(behind=behind), link_side=True)
        assert np.array_equal(found.theta[unseen], MODEL.theta_nominal[unseen])
        assert [(column.kind, column.row) for column in found.columns] == kinds
        assert not any("friction of" in name or "rotor" in name for name in found.names)
        assert np.all(found.rms < 0.1)
    assert "behind the torque sensor of shoulder" in found.columns[0].words


def test_joints_that_stick_at_rest_say_nothing_of_their_friction() -> None:
    found, held_out = identified(recorded())
    rest = at_rest(held_out)
    assert 0.2 < rest.mean() < 0.6
    assert np.allclose(found.rest, rest.mean(axis=0))
    assert found.columns == ()
    # What the filter leaves of steps of friction between motion and rest, beside the noise.
    assert np.all(found.rms < 0.25)
    stuck = np.sqrt(np.mean((found.measured - found.modelled)[rest] ** 2))
    assert stuck > 2.0 * found.rms.max(), "what is left out would have been most of the residual"
    coulomb = found.theta[MODEL.layout.coulomb]
    assert np.allclose(coulomb, COULOMB, atol=0.15)


def test_a_joint_that_hardly_moves_keeps_all_its_samples() -> None:
    log = recorded()
    q, qd = np.array(log.q), np.array(log.qd)
    q[1000:, 0], qd[1000:, 0] = q[1000, 0], 0.0
    data = prepare([replace(log, q=q, qd=qd)], MODEL.joint_names)
    assert not at_rest(data)[:, 0].any() or np.sum(~at_rest(data)[:, 0]) >= 100


def test_a_wrist_whose_gears_couple_two_joints_is_told() -> None:
    found, _ = identified(recorded(coupled=True))
    told = [column for column in found.columns if column.kind.startswith("coupled")]
    assert told
    assert all(column.row == 1 and column.driven[0] == 2 and column.sign > 0.0 for column in told)
    assert "which turns with it plus" in told[0].words
    assert np.all(found.rms < 0.4)
    assert not any(column.kind.startswith("coupled") for column in identified(recorded())[0].columns)


def test_torques_that_are_all_too_large_are_a_warning_and_an_arm_off_its_drawing_is_none() -> None:
    mechanism, told = Mechanism.of_robot(MODEL), 0
    for seed in range(8):
        samples = prepare([recorded(seed)], mechanism.actuated_names)
        assert common_scale(mechanism, samples) == ""
        told += common_scale(mechanism, replace(samples, torque=1.5 * samples.torque)) != ""
    assert told >= 5
    assert "--known-mass" in common_scale(mechanism, replace(samples, torque=3.0 * samples.torque))


def table(path: Path, log: Measurements, **columns: np.ndarray) -> Path:
    """A CSV file with stamps, positions and these."""
    columns = {"position": log.q} | columns
    names = [f"{joint}.{word}" for word in columns for joint in MODEL.joint_names]
    rows = np.column_stack([log.stamps, *columns.values()])
    np.savetxt(path, rows, delimiter=",", header=",".join(["time", *names]), comments="")
    return path


def test_positions_currents_and_a_urdf_are_enough(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    log = table(tmp_path / "log.csv", recorded(), current=0.1 * recorded().effort)
    urdf = share_directory() / "urdf" / "three_joint.urdf"
    words = ["identify-arm", str(log), "--robot", str(urdf), "--out", str(tmp_path / "out")]
    assert main(words) == 2
    assert "currents are efforts if you say so" in capsys.readouterr().err
    for joint in MODEL.joint_names:
        words += ["--column", f"{joint}.effort={joint}.current", "--torque-per-effort", f"{joint}=10"]
    assert main([*words, "--joints", ",".join(MODEL.joint_names)]) == 0
    result = json.loads((tmp_path / "out" / "result.json").read_text())
    rms, before = result["validation"]["rms"], result["validation"]["rms_before"]
    assert all(rms[joint] < min(0.3, 0.5 * before[joint]) for joint in rms)
    assert "does not declare how wrong" in result["intervals"]["reason"]
    assert not (tmp_path / "out" / "robot.yaml").exists()
    built = pin.buildModelFromUrdf(str(tmp_path / "out" / "arm.urdf"))
    assert built.nv == MODEL.n
    assert "up to" in capsys.readouterr().out


def test_momentum_needs_velocities_and_the_declared_rate(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    log = recorded()
    without = table(tmp_path / "without.csv", log, effort=log.effort)
    assert main(["identify-arm", str(without), "--robot", "three_joint", "--out", str(tmp_path / "a")]) == 0
    assert "no velocities" in json.loads((tmp_path / "a" / "result.json").read_text())["intervals"]["reason"]
    table(tmp_path / "b.csv", log, velocity=log.qd, current=log.effort)
    columns = [word for joint in MODEL.joint_names for word in ("--column", f"{joint}.effort={joint}.current")]
    assert main(["errors", str(without), "--robot", "three_joint"]) == 2
    assert "no column for velocity" in capsys.readouterr().err
    assert main(["errors", str(tmp_path / "b.csv"), "--robot", "three_joint", *columns]) == 2
    assert "measurement.rate_hz = 1000, the logs have 200 Hz" in capsys.readouterr().err
