"""``safe-sysid tare``: a file from a log, the log beside it for ``verify``, and refusals in one line."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from identification_plant import exciting_plans, noisy, simulate

from safe_sysid.cli import main
from safe_sysid.identification.digest import log_digest
from safe_sysid.identification.equations.measurements import Measurements
from safe_sysid.identification.tare.file import read_tare
from safe_sysid.logs.formats.npz import read_log, write_log
from safe_sysid.robot import RobotModel, load_robot
from safe_sysid.simulation.arms import draw_link, draw_truth, hand_box
from safe_sysid.simulation.payloads import NO_PAYLOAD, payload_from_spec, theta_e_with_payload

#: What a hand that should be empty holds.
HELD = payload_from_spec("0.5,0,0,0.1,0.003,0,0.003,0,0,0.0005")


@pytest.fixture(scope="module")
def model() -> RobotModel:
    return load_robot("three_joint")


def log_of(model: RobotModel, held: bool) -> Measurements:
    rng = np.random.default_rng(4)
    theta = draw_truth(model, HELD, rng)
    hand = draw_link(rng, *hand_box(model), model.theta_nominal[model.layout.payload], "uniform")
    payload = HELD if held else NO_PAYLOAD
    theta[model.layout.payload] = theta_e_with_payload(model, hand, payload)
    plans = exciting_plans(np.array(model.settings.home), rng, n_plans=1, t_f=1.5)
    log = simulate(model.kinematics, theta, model.friction_transition_velocity, plans, rng=rng)
    m = model.settings.measurement
    return noisy(log, m.torque_abs, m.torque_rel, rng)


def run_tare(folder: Path, model: RobotModel, log: Measurements, *options: str) -> int:
    """Exit status of the command."""
    write_log(folder / "run.npz", model.joint_names, log)
    return main(f"tare {folder}/run.npz --robot {model.name} --out {folder}/tare.npz".split() + list(options))


@pytest.fixture(scope="module")
def empty(model: RobotModel) -> Measurements:
    return log_of(model, held=False)


def test_a_tare_and_its_log(tmp_path: Path, model: RobotModel, empty: Measurements, capsys) -> None:
    assert run_tare(tmp_path, model, empty) == 0
    assert "equations of" in capsys.readouterr().out
    tare = read_tare(tmp_path / "tare.npz")
    kept = read_log(tmp_path / "tare_log.npz")
    assert tare.log_hash == log_digest(model.joint_names, kept.measurements)
    assert tare.samples == len(empty)
    assert np.all(tare.after <= tare.before * (1.0 + 1e-9))
    assert np.any(tare.after < 0.9 * tare.before)


def test_a_hand_that_holds_something_is_named(tmp_path: Path, model: RobotModel, capsys) -> None:
    assert run_tare(tmp_path, model, log_of(model, held=True), "--quiet") == 2
    assert "hand was not empty" in capsys.readouterr().err
    assert not (tmp_path / "tare.npz").exists()


def test_logs_that_mean_nothing_are_refused(tmp_path: Path, model: RobotModel, empty: Measurements, capsys) -> None:
    since_1970 = replace(empty, stamps=empty.stamps + 1.7779e9)  # floats, rounded by 1e-7 s
    degrees = replace(empty, q=np.degrees(empty.q), qd=np.degrees(empty.qd))
    for log, word in ((since_1970, "stamp"), (degrees, "degrees")):
        assert run_tare(tmp_path, model, log) == 2
        error = capsys.readouterr().err
        assert error.count("\n") == 1
        assert word in error
