"""`identify --sensor`: errors as a log shows them, told as an if."""

import json
import re
from dataclasses import replace

import numpy as np
import pytest
from identification_plant import exciting_plans, simulate
from log_support import run_identify

from safe_sysid.apps.identify.sensors import SENSORS, log_settings, torque_settings
from safe_sysid.commands import identify as command
from safe_sysid.errors import ConfigError
from safe_sysid.identification.equations.measurements import Measurements
from safe_sysid.logs import write_log
from safe_sysid.logs.log import Log, LogError
from safe_sysid.robot import load_robot
from safe_sysid.robot.loading import with_declared
from safe_sysid.simulation.arms import draw_truth
from safe_sysid.simulation.payloads import payload_from_spec

GAIN, NOISE, VELOCITY = np.array([1.03, 0.97, 1.02]), 0.15, 2e-3


@pytest.fixture(scope="module")
def recorded():
    """True parameters, and a log of motor currents at 500 Hz: gains off, Gaussian noise, noisy velocities."""
    model, rng = load_robot("three_joint"), np.random.default_rng(8)
    truth = draw_truth(model, payload_from_spec("4lb"), rng, "uniform")
    plans = exciting_plans(np.array(model.settings.home), rng, n_plans=3, t_f=2.5, amplitude=0.8)
    log = simulate(model.kinematics, truth, model.friction_transition_velocity, plans, dt=0.002)
    effort = log.torque * GAIN + np.clip(rng.normal(0.0, NOISE, log.torque.shape), -0.6, 0.6)
    qd = log.qd + rng.uniform(-VELOCITY, VELOCITY, log.qd.shape)
    return truth, Log(model.joint_names, Measurements(log.stamps, log.q, qd, effort))


def test_what_a_log_shows_are_its_errors(recorded):
    """Neither far below the true errors nor far above; not below what the file declares."""
    log = recorded[1]
    settings = log_settings(log, load_robot("three_joint"))
    assert settings["measurement.rate_hz"] == 500.0
    velocity = np.array(settings["measurement.velocity_error"])
    assert np.all((velocity >= 0.9 * VELOCITY) & (velocity < 2.0 * VELOCITY))
    settings |= {"measurement.torque_rel": 0.05, "measurement.torque_source": "motor"}
    torque = np.array(torque_settings(log, load_robot("three_joint", **settings))["measurement.torque_abs"])
    assert np.all((torque >= 2.5 * NOISE) & (torque < 10.0 * NOISE))
    coarse = load_robot("three_joint", **{"measurement.velocity_error": 0.5})
    assert log_settings(log, coarse)["measurement.velocity_error"] == [0.5] * 3


def test_errors_of_a_log_do_not_read_the_robot_again():
    values = {"measurement.torque_source": "link", "measurement.velocity_error": [0.1, 0.2, 0.3]}
    values["identification.acceleration_bound"] = [20.0] * 3
    quick, read = with_declared(load_robot("three_joint"), values), load_robot("three_joint", **values)
    assert quick.settings == read.settings
    assert np.array_equal(quick.arm_prior.lower, read.arm_prior.lower)
    with pytest.raises(ConfigError, match=r"velocity_error"):
        with_declared(quick, {"measurement.velocity_error": -1.0})


def test_intervals_hold_and_are_told_as_an_if(tmp_path, recorded, capsys):
    truth, log = recorded
    write_log(tmp_path / "log.npz", log.joint_names, log.measurements)
    out = tmp_path / "out"
    options = ["--robot", "three_joint", "--sensor", "current", "--out", out]
    assert run_identify(tmp_path / "log.npz", *options) == 0
    said = capsys.readouterr().out
    assert "estimated from this log" in said
    last = said.strip().splitlines()[-1]
    assert re.match(r"ESTIMATE: .* guaranteed if torque errors are at most .* as estimated from this log", last)
    result = json.loads((out / "result.json").read_text())
    assert not result["guaranteed"]
    assert not list(out.glob("certificate_*"))
    assert result["declared"]["measurement.torque_rel"].startswith("0.05")
    for p, x in zip(result["parameters"], truth[20:30], strict=True):
        assert p["lower"] <= x <= p["upper"], p
    assert result["parameters"][0]["upper"] - result["parameters"][0]["lower"] < 1.5


def test_an_option_goes_before_what_the_log_shows(tmp_path, recorded):
    log = recorded[1]
    write_log(tmp_path / "log.npz", log.joint_names, log.measurements[:800])
    options = ["--sensor", "current", "--torque-noise", "0.9,0.07", "--quiet", "--out", tmp_path / "out"]
    assert run_identify(tmp_path / "log.npz", "--robot", "three_joint", *options) == 0
    declared = json.loads((tmp_path / "out" / "result.json").read_text())["declared"]
    assert declared["measurement.torque_abs"].startswith("0.9")
    assert declared["measurement.torque_rel"].startswith("0.07")


def test_too_little_is_an_error(recorded):
    log = recorded[1]
    with pytest.raises(LogError, match="samples in a row"):
        log_settings(replace(log, measurements=log.measurements[:40]), load_robot("three_joint"))
    assert set(command.SENSORS) == set(SENSORS)
