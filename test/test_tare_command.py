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
from safe_sysid.robot import RobotModel
from safe_sysid.simulation.arms import draw_link, draw_truth, hand_box
from safe_sysid.simulation.payloads import NO_PAYLOAD, dumbbell, theta_e_with_payload


def log_of(model: RobotModel, pounds: int | None) -> Measurements:
    rng = np.random.default_rng(4)
    theta = draw_truth(model, dumbbell(8), rng)
    hand = draw_link(rng, *hand_box(model), model.theta_nominal[60:70], "uniform")
    payload = NO_PAYLOAD if pounds is None else dumbbell(pounds)
    theta[60:70] = theta_e_with_payload(model, hand, payload)
    plans = exciting_plans(np.array(model.settings.home), rng, n_plans=1, t_f=1.5)
    return noisy(
        simulate(model.kinematics, theta, model.friction_transition_velocity, plans, rng=rng), 0.05, 0.025, rng
    )


@pytest.fixture(scope="module")
def empty(model: RobotModel) -> Measurements:
    return log_of(model, None)


def test_a_tare_and_its_log(tmp_path: Path, model: RobotModel, empty: Measurements, capsys) -> None:
    write_log(tmp_path / "run.npz", model.joint_names, empty)
    assert main(["tare", str(tmp_path / "run.npz"), "--out", str(tmp_path / "tare.npz")]) == 0
    assert "equations of" in capsys.readouterr().out
    tare = read_tare(tmp_path / "tare.npz")
    kept = read_log(tmp_path / "tare_log.npz")
    assert tare.log_hash == log_digest(model.joint_names, kept.measurements)
    assert tare.samples == len(empty)
    assert np.all(tare.after <= tare.before * (1.0 + 1e-9))
    assert np.any(tare.after < 0.9 * tare.before)


def test_a_hand_that_holds_something_is_named(tmp_path: Path, model: RobotModel, capsys) -> None:
    write_log(tmp_path / "run.npz", model.joint_names, log_of(model, 8))
    assert main(["tare", str(tmp_path / "run.npz"), "--out", str(tmp_path / "tare.npz"), "--quiet"]) == 2
    assert "hand was not empty" in capsys.readouterr().err
    assert not (tmp_path / "tare.npz").exists()


@pytest.mark.parametrize("fault", ["stamps", "degrees"])
def test_logs_that_mean_nothing_are_refused(
    tmp_path: Path, model: RobotModel, empty: Measurements, capsys, fault: str
) -> None:
    if fault == "stamps":  # seconds since 1970 as floats: rounded by 1e-7 s
        log = replace(empty, stamps=empty.stamps + 1.7779e9)
    else:
        log = replace(empty, q=np.degrees(empty.q), qd=np.degrees(empty.qd))
    write_log(tmp_path / "run.npz", model.joint_names, log)
    assert main(["tare", str(tmp_path / "run.npz"), "--out", str(tmp_path / "tare.npz")]) == 2
    error = capsys.readouterr().err
    assert error.count("\n") == 1
    assert ("stamp" in error) if fault == "stamps" else ("degrees" in error)
