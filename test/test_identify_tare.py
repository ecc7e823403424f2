"""`safe-sysid identify --tare`: the truth stays inside, intervals get narrower, a tare of another arm is refused."""

import datetime
import json
import os

import numpy as np
import pytest
from identification_plant import exciting_plans, noisy, simulate
from log_support import JOINTS, measured, robot, run_identify, true_log

from safe_sysid.cli import main
from safe_sysid.identification.equations.measurement_errors import MeasurementErrors
from safe_sysid.identification.tare.file import read_tare, write_tare
from safe_sysid.identification.tare.tare import make_tare
from safe_sysid.logs import write_log
from safe_sysid.robot.parameters import transform_inertial
from safe_sysid.simulation.payloads import dumbbell


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Logs of the same arm with and without its payload, and the tare of the latter."""
    folder = tmp_path_factory.mktemp("tare")
    model = robot()
    theta, _ = true_log()
    bare = theta.copy()
    bare[60:70] -= transform_inertial(*model.flange, dumbbell(8).theta)
    rng = np.random.default_rng(8)
    plans = exciting_plans(np.array(model.settings.home), rng, n_plans=2, t_f=2.0, t_p=1.0, amplitude=0.4)
    v_c = model.friction_transition_velocity
    log = simulate(model.kinematics, bare, v_c, plans, rng=rng, chatter=0.5, substeps=1)
    m = noisy(log, 0.05, 0.025, rng)
    write_log(folder / "empty.npz", JOINTS, m)
    write_log(folder / "log.npz", JOINTS, measured()[:1500])
    write_tare(folder / "tare.npz", make_tare(model, MeasurementErrors.from_model(model), m))
    return folder


def intervals(path):
    result = json.loads(path.read_text())
    return np.array([[p["lower"], p["upper"]] for p in result["parameters"]]), result


@pytest.mark.slow  # the same without the command: test_tare.py
def test_truth_inside_and_narrower(folder):
    assert run_identify(folder / "log.npz", "--out", folder / "without", "--quiet") == 0
    command = [folder / "log.npz", "--out", folder / "with", "--quiet", "--tare", folder / "tare.npz"]
    assert run_identify(*command) == 0
    without, _ = intervals(folder / "without" / "result.json")
    tight, result = intervals(folder / "with" / "result.json")
    truth = true_log()[0][60:70]
    assert np.all((tight[:, 0] <= truth) & (truth <= tight[:, 1]))
    assert np.sum(tight[4:, 1] - tight[4:, 0]) < 0.9 * np.sum(without[4:, 1] - without[4:, 0])
    assert "samples of" in result["tare"]
    tare = read_tare(folder / "tare.npz")
    last = json.loads((folder / "with" / result["certificate"]).read_text())
    assert last["tare_log"] == {"sha256": tare.log_hash, "samples": tare.samples}
    assert main(["verify", str(folder / "with"), "--tare-log", str(folder / "empty.npz")]) == 0


def test_a_tare_that_must_not_be_used_is_refused(folder, capsys):
    command = [folder / "log.npz", "--out", folder / "x", "--quiet", "--tare", folder / "tare.npz"]
    assert run_identify(*command, "--torque-noise", "0.1,0.05") == 2
    assert "make a new tare" in capsys.readouterr().err
    assert run_identify(*command[:-1], folder / "log.npz") == 2
    assert "tare" in capsys.readouterr().err
    late = os.stat(folder / "log.npz").st_mtime + 100 * 3600.0
    os.utime(folder / "log.npz", (late, late))
    assert run_identify(*command) == 2
    assert "max_age_h" in capsys.readouterr().err


def test_the_age_of_a_tare_is_judged_by_what_is_said_else_by_the_file_with_a_warning(folder, capsys):
    command = [folder / "log.npz", "--out", folder / "y", "--method", "ols", "--tare", folder / "tare.npz"]
    made = read_tare(folder / "tare.npz").created
    said = (made + datetime.timedelta(hours=1)).strftime("%Y-%m-%dT%H:%M")
    old = (made - datetime.timedelta(days=30)).timestamp()
    os.utime(folder / "log.npz", (old, old))
    assert run_identify(*command) == 2
    error = capsys.readouterr().err
    assert f"{made:%Y-%m-%d %H:%M} UTC" in error
    assert f"{made - datetime.timedelta(days=30):%Y-%m-%d %H:%M} UTC (by the time of its file)" in error
    assert run_identify(*command, "--recorded", said) == 0
    assert "age of the tare" not in capsys.readouterr().err
    os.utime(folder / "log.npz", (made.timestamp() + 60.0,) * 2)
    assert run_identify(*command) == 0
    assert "age of the tare is judged by the time of the file" in capsys.readouterr().err
    assert run_identify(*command, "--recorded", "yesterday") == 2
    assert "ISO 8601" in capsys.readouterr().err
