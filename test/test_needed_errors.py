"""``safe-sysid errors``: as large as the logs need, no larger, and what is proposed is enough for every equation."""

from __future__ import annotations

import json
from dataclasses import replace
from functools import cache
from pathlib import Path

import numpy as np
import pytest
import yaml
from identification_plant import exciting_plans, noisy, simulate

from safe_sysid.cli import main
from safe_sysid.identification.arm.bounds.needed_errors import NeededErrorsError, needed_errors
from safe_sysid.identification.equations.measurement_errors import MeasurementErrors
from safe_sysid.identification.equations.measurements import Measurements
from safe_sysid.identification.equations.stream import MomentumStream, default_windows
from safe_sysid.logs.formats.npz import write_log
from safe_sysid.robot.loading import load_robot
from safe_sysid.robot.model import RobotModel
from safe_sysid.simulation.arms import draw_truth
from safe_sysid.simulation.payloads import dumbbell

pytestmark = pytest.mark.unproved

A = 0.08


@cache
def logs() -> list:
    """Two motions of an arm within the prior, simulated by Pinocchio."""
    model = load_robot("kinova_gen3")
    rng = np.random.default_rng(2)
    theta = draw_truth(model, dumbbell(2), rng, "uniform")
    arm, home = (model.kinematics, theta, model.friction_transition_velocity), np.array(model.settings.home)
    return [simulate(*arm, exciting_plans(home, rng, n_plans=1, t_f=1.0), rng=rng, chatter=0.5) for _ in range(2)]


def declared() -> MeasurementErrors:
    errors = MeasurementErrors.from_model(load_robot("kinova_gen3"))
    return replace(errors, torque_rel=np.zeros(7), torque_abs=np.full(7, 0.01))


def measured(k: int, a: float) -> Measurements:
    return noisy(logs()[k], a, 0.0, np.random.default_rng(k), "random_sign")


def test_what_is_needed_is_enough_and_no_more_than_there_is(model: RobotModel) -> None:
    errors = declared()
    found = needed_errors(model, errors, [measured(0, A)[:900]], [measured(1, A)[:900]])
    # The truth is an arm of the prior that needs A at most: so does the least sum.
    assert found.absolute.sum() <= 7 * A * 1.01
    assert found.absolute.sum() > 0.3 * 7 * A
    assert found.validation.max() > 0.0
    enough = replace(errors, torque_abs=found.absolute * (1.0 + 1e-9) + 1e-12)
    stream = MomentumStream(model, enough, default_windows(model, enough))
    rows = stream.push(measured(0, A)[:900], model.arm_prior)
    assert rows is not None
    assert len(rows) <= found.equations
    assert np.all(np.abs(rows.matrix @ found.theta - rows.target) <= rows.slack * (1.0 + 1e-9))
    # A tenth less and no parameters satisfy all of them, at least not these.
    less = replace(errors, torque_abs=0.9 * found.absolute)
    rows = MomentumStream(model, less, default_windows(model, less)).push(measured(0, A)[:900], model.arm_prior)
    assert rows is not None
    assert np.any(np.abs(rows.matrix @ found.theta - rows.target) > rows.slack)


def test_a_sensor_that_is_worse_than_the_others_is_named_by_its_number(model: RobotModel) -> None:
    log = measured(0, 0.02)[:600]
    effort = np.array(log.effort)
    effort[:, 2] += 1.0 * np.random.default_rng(0).choice([-1.0, 1.0], len(effort))
    found = needed_errors(model, declared(), [Measurements(log.stamps, log.q, log.qd, effort)])
    assert int(np.argmax(found.absolute)) == 2
    assert 0.5 < found.absolute[2] < 1.05
    assert np.delete(found.absolute, 2).max() < 0.1


def test_a_log_without_equations_is_refused(model: RobotModel) -> None:
    with pytest.raises(NeededErrorsError, match="no momentum equations"):
        needed_errors(model, declared(), [measured(0, 0.0)[:10]])


@pytest.mark.slow
def test_the_command_writes_what_a_robot_file_takes(
    model: RobotModel, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for k in range(2):
        write_log(tmp_path / f"{k}.npz", model.joint_names, measured(k, A)[:450], 0)
    files = [str(tmp_path / name) for name in ("0.npz", "1.npz", "e.yaml", "e.json")]
    options = ["--validation", files[1], "--torque-rel", "0", "--front", "--out", files[2], "--json", files[3]]
    assert main(["errors", files[0], *options]) == 0
    said = capsys.readouterr().out
    assert said.count("guaranteed IF") == 1
    assert "proposed a against b" in said
    result, *front = json.loads(Path(files[3]).read_text())["results"]
    needed = np.array([[joint["needed"] for joint in other["joints"].values()] for other in front])
    assert np.all(np.diff(needed.sum(axis=1)) <= 1e-9), "a larger b needs no larger a"
    section = yaml.safe_load(Path(files[2]).read_text())["measurement"]
    for joint, a in zip(result["joints"].values(), section["torque_abs"], strict=True):
        assert a == joint["torque_abs"] >= 1.2 * max(joint["needed"], joint["needed_by_validation"])
    assert "IF no later error is larger" in Path(files[2]).read_text()
    assert main(["errors", files[0], "--torque-rel", "0", "--empty-hand", "--json", files[3]]) == 0  # it is not
    empty = json.loads(Path(files[3]).read_text())["results"][0]["joints"].values()
    assert sum(joint["needed"] for joint in empty) > 1.05 * sum(joint["needed"] for joint in result["joints"].values())
    loaded = load_robot("kinova_gen3", **{f"measurement.{key}": value for key, value in section.items()})
    assert list(loaded.settings.measurement.torque_abs) == section["torque_abs"]
