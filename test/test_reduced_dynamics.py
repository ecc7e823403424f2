"""Reduced models: what is proved of them holds, what is left out is little, and the mass matrix is the arm's own."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import yaml
from test_generated_models import random_arm

from safe_sysid.apps.generate import task_of
from safe_sysid.cli import main
from safe_sysid.dynamics.generated.backend import drawn_parameters
from safe_sysid.dynamics.generated.derive import derive
from safe_sysid.dynamics.generated.enclosure import proved_bound
from safe_sysid.dynamics.generated.reduce import Task, accuracy, difference, evaluate, fitted, rank, reduce_to
from safe_sysid.errors import ParameterError
from safe_sysid.identification.equations.measurements import Measurements
from safe_sysid.logs.formats.npz import write_log
from safe_sysid.robot.loading import load_robot
from safe_sysid.studies.experiments.psdm.arms import PSDM_ARMS

ROOT = Path(__file__).resolve().parent.parent

TURN = np.array([[-np.pi, np.pi]])


def one_joint(weights, q, sliding=False):
    """The bound of ``w0 + w1 s + w2 c + w3 s c + w4 c^2`` (of a sliding joint ``w0 + w1 q + w2 q^2``) alone."""
    count, none = len(weights), np.zeros(1)
    functions = np.zeros(count, int), np.arange(count), np.array(weights)
    return proved_bound(*functions, np.array([sliding]), np.array([q]), none, none)


@pytest.mark.parametrize("seed", range(20))
def test_bounds_of_one_joint_hold_between_the_points_of_the_grid(seed):
    rng = np.random.default_rng(seed)
    w = rng.standard_normal(5)
    # The peak of a sine anywhere on the circle, nearly always between points of the grid.
    angle = rng.uniform(0, 2 * np.pi)
    assert 1.0 <= one_joint([0, np.sin(angle), np.cos(angle), 0, 0], TURN[0]) <= 1.01
    lower = rng.uniform(-3, 3)
    for q, sliding in ((TURN[0], False), ([lower, lower + rng.uniform(0.05, 2)], False), ([lower, lower + 1], True)):
        x = np.linspace(*q, 20001)
        s, c = np.sin(x), np.cos(x)
        values = np.stack([x**0, x, x**2]) if sliding else np.stack([x**0, s, c, s * c, c * c])
        weights = w[: len(values)]
        largest = np.abs(weights @ values).max()
        assert largest <= one_joint(weights, q, sliding) <= 1.02 * largest + 0.01


@pytest.mark.parametrize("seed", range(5))
def test_no_torque_of_the_task_is_off_by_more_than_is_proved(seed):
    rng = np.random.default_rng(500 + seed)
    n = 2 + seed % 3
    kin = random_arm(rng, n)
    model, theta = derive(kin), drawn_parameters(n, rng)
    theta[12 * n : 13 * n] = 0.0
    width = np.where(rng.random((n, 1)) < 0.5, np.pi, 0.4)
    task = Task(width * [-1.0, 1.0] + 0.1, rng.uniform(0.1, 2, n), rng.uniform(0.5, 5, n))
    ranking = rank(model, model.base_parameters(theta), task, bool(seed % 2), states=200)
    count = max(ranking.forced, model.p // 3)
    gap = difference(ranking, count, fitted(ranking, count))
    q, qd, qdd = task.states(4000, np.random.default_rng(seed))
    qd, qdd = np.sign(qd) * task.qd, np.sign(qdd) * task.qdd
    off = np.abs(evaluate(model, (q, qd, qdd), np.arange(model.p)) @ gap).max(axis=0)
    for j in range(n):
        bound = proved_bound(model.acceleration, model.code, gap[:, j], model.chain.sliding, task.q, task.qd, task.qdd)
        assert off[j] <= bound
        assert bound <= 4.0 * off[j] + 1e-9


def kr6(inverse_only=False, states=300):
    arm = PSDM_ARMS["kr6"]
    model = derive(arm.kinematics())
    task = Task(np.tile(TURN, (6, 1)), np.full(6, 0.1), np.ones(6))
    return rank(model, model.base_parameters(arm.parameters()), task, inverse_only, states)


def test_the_mass_matrix_stays_that_of_the_arm():
    ranking = kr6()
    accelerated = (ranking.model.acceleration > 0) & (ranking.model.acceleration <= 6)
    for count in (ranking.forced, ranking.forced + 200):
        assert not np.any(difference(ranking, count, fitted(ranking, count))[accelerated])


def test_fitting_again_helps_and_more_functions_do_too():
    ranking = kr6(inverse_only=True)
    counts = [40, 200]
    plain = [x[0][0.95] for x in accuracy(ranking, counts, fit=False, states=400)]
    better = [x[0][0.95] for x in accuracy(ranking, counts, states=400)]
    assert better[0] > plain[0]
    assert better[1] > better[0] + 0.5


def test_the_smallest_model_has_the_digits_that_are_asked_for():
    arm = PSDM_ARMS["sr6ia"]
    model = derive(arm.kinematics())
    reach = np.where(model.chain.sliding, 0.3, np.pi)
    task = Task(np.stack([-reach, reach], axis=1), np.ones(4), np.full(4, 10.0))
    small = reduce_to(rank(model, model.base_parameters(arm.parameters()), task, True), 2.0, 0.999)
    assert small.digits[0.999] >= 2.0
    assert small.kept[0] < 0.4 * small.kept[1]
    assert np.all(small.sampled <= small.proved)
    assert np.all(small.proved <= 1.25 * small.sampled + 1e-9)
    exact = reduce_to(rank(model, model.base_parameters(arm.parameters()), task), 15.0)
    assert exact.kept[0] > 60  # some are multiplied by zero
    assert np.all(exact.proved < 1e-9)
    with pytest.raises(ParameterError, match="expected more than 0"):
        reduce_to(rank(model, model.base_parameters(arm.parameters()), task), 0.0)


def test_the_command_prints_bounds_and_writes_code_that_passes_its_test(tmp_path, capsys, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    out, told = tmp_path / "made", tmp_path / "told.json"
    words = ["dynamics", "reduce", "three_joint", "--digits", "1.5", "--velocity", "0.3", "--acceleration", "2"]
    assert main([*words, "--json", str(told), "--out", str(out)]) == 0
    said = capsys.readouterr().out
    assert "N m (proved)" in said
    found = json.loads(told.read_text())
    assert found["kept"] < found["functions"]
    assert found["operations"] < found["operations_full"]
    assert all(row["proved"] >= row["sampled"] for row in found["joints"])
    assert "ok   forward" in (out / "README.md").read_text()
    assert "no torque is off by more than" in (out / "README.md").read_text()


def test_the_hull_of_a_log_is_a_task(tmp_path):
    robot = load_robot("three_joint")
    t = np.linspace(0.0, 2.0, 401)
    q = 0.3 * np.sin(2.0 * t)[:, None] * [1.0, 0.5, -1.0]
    qd = 0.6 * np.cos(2.0 * t)[:, None] * [1.0, 0.5, -1.0]
    path = tmp_path / "log.npz"
    write_log(path, robot.joint_names, Measurements(t, q, qd, np.zeros_like(q)))
    task = task_of(robot, path, None, None)
    np.testing.assert_allclose(task.q, np.stack([q.min(axis=0), q.max(axis=0)], axis=1))
    np.testing.assert_allclose(task.qd, [0.6, 0.3, 0.6], rtol=1e-3)
    np.testing.assert_allclose(task.qdd, [1.2, 0.6, 1.2], rtol=0.02)
    assert task_of(robot, path, 2.0, 3.0).qdd.tolist() == [3.0] * 3


@pytest.mark.parametrize("yaw", ["3.1416", "3.141593"])
def test_axes_that_are_nearly_parallel_are_refused(yaw, tmp_path, capsys):
    """Reviewed: their frames are up to 1e11 m away, and a bound was "proved" of a model that was wrong by as much."""
    urdf = (ROOT / "urdf" / "three_joint.urdf").read_text()
    robot = yaml.safe_load((ROOT / "config" / "three_joint.yaml").read_text())
    where = urdf.index('<joint name="elbow"')
    at = urdf.index('rpy="', where) + 5
    end = urdf.index('"', at)
    (tmp_path / "arm.urdf").write_text(f"{urdf[:at]}0 0 {yaw}{urdf[end:]}")
    robot["urdf"] = str(tmp_path / "arm.urdf")
    (tmp_path / "arm.yaml").write_text(yaml.safe_dump(robot))
    assert main(["dynamics", "reduce", str(tmp_path / "arm.yaml"), "--velocity", "0.3"]) == 2
    assert "from parallel" in capsys.readouterr().err


@pytest.mark.parametrize(
    "options", [["--acceleration", "2", "--inverse-only"], ["--acceleration", "0"],
                ["--acceleration", "0", "--inverse-only", "--digits", "1", "--velocity", "0.1"]],
)  # fmt: skip
def test_what_is_reduced_whole_can_be_written(options, tmp_path):
    out = ["--out", str(tmp_path / "c")]
    assert main(["dynamics", "reduce", "three_joint", "--velocity", "0.3", *options, *out]) == 0


def test_a_bound_of_nearly_equal_torques_leaves_room_for_their_rounding():
    """Reviewed: "0 N m (proved)" where code and arm differ by 5e-15."""
    robot = load_robot("three_joint")
    model = derive(robot.kinematics)
    task = Task(np.tile([-1.0, 1.0], (3, 1)), np.full(3, 0.3), np.full(3, 2.0))
    small = reduce_to(rank(model, model.base_parameters(robot.theta_nominal), task), 4.0)
    assert np.all(small.proved > 1e-14)
    assert np.all(small.proved < 1e-3)


@pytest.mark.parametrize("size", [1e155, np.nan, -1.0])
def test_a_task_faster_than_any_arm_is_refused(size: float) -> None:
    with pytest.raises(ParameterError, match=r"velocities = .* at most 1e"):
        Task(np.tile([-1.0, 1.0], (2, 1)), np.full(2, size), np.ones(2))
