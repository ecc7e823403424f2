"""`safe-sysid identify` on arms of 2 to 5 joints that nobody has seen: names, rate, axes, errors, priors all random."""

import json

import numpy as np
import pytest
import yaml
from identification_plant import exciting_plans, noisy, simulate
from log_support import csv_columns, run_identify, write_csv
from urdf_factory import random_arm, write_arm

from safe_sysid.identification.equations.measurements import Measurements
from safe_sysid.robot import load_robot
from safe_sysid.robot.parameters import inertia_from_com


def arm_and_truth(rng, n, folder):
    """Robot file with a prior that holds the truth off centre; the truth's links are consistent."""
    urdf, config = random_arm(rng, n)
    path = write_arm(folder, urdf, config)
    theta = load_robot(path).theta_nominal.copy()
    for j in range(n):
        theta[10 * j : 10 * j + 10] *= 1.0 + 0.06 * rng.uniform(-1, 1)
    theta[10 * n :] *= 1.0 + 0.06 * rng.uniform(-1, 1, 4 * n)
    hand = theta[10 * n - 10 : 10 * n]
    hand += inertia_from_com(rng.uniform(0.5, 2.0), rng.uniform(-0.1, 0.1, 3), 3e-3 * np.eye(3))
    pad = rng.uniform(0.05, 0.4, (2, 10))
    config["payload"]["prior_lower"] = np.maximum(hand - pad[0], [0.1, *[-9.0] * 9]).tolist()
    config["payload"]["prior_upper"] = (hand + pad[1]).tolist()
    return path, config, theta


def slow(*values):
    return pytest.param(*values, marks=pytest.mark.slow)


@pytest.mark.parametrize(("seed", "n"), [slow(0, 2), (1, 3), slow(2, 4), (3, 5)])
def test_truth_is_inside(tmp_path, seed, n):
    rng = np.random.default_rng(seed)
    path, config, theta = arm_and_truth(rng, n, tmp_path)
    model = load_robot(path)
    plans = exciting_plans(np.array(model.settings.home), rng, n_plans=2, t_f=2.0, t_p=1.0, amplitude=0.6)
    log = simulate(model.kinematics, theta, 0.02, plans, dt=0.002, rng=rng, chatter=0.2)
    config["identification"]["acceleration_bound"] = (1.05 * log.largest_acceleration).tolist()
    (tmp_path / "arm.yaml").write_text(yaml.safe_dump(config, sort_keys=False))
    m = noisy(log, 0.1, 0.02, rng, rng.choice(["uniform", "random_sign"]), velocity=1e-3)
    wrapped = np.where(model.continuous, (m.q + np.pi) % (2.0 * np.pi) - np.pi, m.q)
    m = Measurements(m.stamps, wrapped, m.qd, m.effort)
    columns = csv_columns(m, lambda w, j, i: f"{w} of {j}", rng.permutation(n), model.joint_names)
    write_csv(tmp_path / "log.csv", m.stamps, columns, ";")
    assert run_identify(tmp_path / "log.csv", "--robot", path, "--out", tmp_path / "out", "--quiet") == 0
    result = json.loads((tmp_path / "out" / "result.json").read_text())
    assert not [f["text"] for f in result["findings"] if f["code"] != "limits"]
    share = []
    for p, x in zip(result["parameters"], theta[10 * n - 10 : 10 * n], strict=True):
        assert p["lower"] <= x <= p["upper"], p
        share.append((p["upper"] - p["lower"]) / (p["prior_upper"] - p["prior_lower"]))
    assert min(share) < 0.9  # something was learnt
