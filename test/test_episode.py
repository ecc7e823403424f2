"""The whole loop in one process: nothing is violated, every bound holds, the same seed gives the same run."""

import json
import os
import subprocess
import sys
from hashlib import sha256
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

from safe_sysid.apps.judge.evaluation import evaluate
from safe_sysid.apps.plan.drive import logs_of_episode
from safe_sysid.control.controller import ControllerState
from safe_sysid.control.recent_commands import RecentCommands
from safe_sysid.episode import Episode, EpisodeResult
from safe_sysid.errors import PlanError
from safe_sysid.identification.identifier import UpdateStatus
from safe_sysid.parent import ONE_THREAD
from safe_sysid.planning.task.task import TaskStatus
from safe_sysid.robot.model import RobotModel
from safe_sysid.robot.scenes.scene import load_scene
from safe_sysid.simulation.assembly import build_plant
from safe_sysid.simulation.noise import NoiseModel
from safe_sysid.simulation.payloads import payload_from_spec
from safe_sysid.simulation.plant import Plant


@pytest.mark.slow
def test_noise_beyond_what_is_declared_is_noticed(model: RobotModel) -> None:
    """Sensors ten times worse than declared: the identifier says so and keeps its last box; motion stays safe.

    With an offset in proportion the start is refused: at rest an arm knows its torques too well for that.
    """

    def run(**noise: float) -> tuple[EpisodeResult, Plant]:
        plant = build_plant(model, payload_from_spec("7lb"), load_scene("open"), 7, NoiseModel("uniform", **noise))
        return Episode(model, plant, load_scene("open"), plans=1, seed=7).run(), plant

    with pytest.raises(PlanError, match="start refused: joint_1: effort"):
        run(torque_abs=0.5, torque_rel=0.25)
    result, plant = run(torque_abs=0.05, torque_rel=0.25)
    assert any(update.status is UpdateStatus.EMPTY_SET for _, update in result.updates)
    assert plant.contact_steps == 0
    assert np.all(np.abs(plant.truth()["tau_applied"]) <= model.limits.torque)


def test_start_out_of_range_is_refused(model: RobotModel) -> None:
    q0 = np.array(model.settings.home)
    q0[1] = model.limits.position_upper[1] + 0.01
    plant = build_plant(model, payload_from_spec("4lb"), load_scene("open"), 0, q0=q0)
    with pytest.raises(PlanError, match="joint_2"):
        Episode(model, plant, load_scene("open"), plans=1).run()


@pytest.mark.slow
def test_start_that_may_be_too_heavy_is_refused_and_held(model: RobotModel) -> None:
    """Stretched out: the heaviest payload of the prior could not be held for sure, so nothing moves."""
    q0 = np.array([0.0, 1.5, 0.0, 0.1, 0.0, 0.1, 0.0])
    plant = build_plant(model, payload_from_spec("4lb"), load_scene("open"), 0, q0=q0)
    result = Episode(model, plant, load_scene("open"), plans=1).run()
    (answer,) = result.plans
    assert answer.plan is None
    assert any("joint_2" in reason and "N m" in reason for reason in answer.reasons)
    assert np.max(np.abs(plant.truth()["q"] - q0)) < np.max(result.gains.e_bound)


def there_and_back(model: RobotModel) -> tuple[EpisodeResult, Plant]:
    """Identify on the way out, then go back, certified for the last bounds; all errors at their worst."""
    scene, worst = load_scene("six_boxes"), {"noise": "adversarial", "draw": "corner", "actuator": "adversarial"}
    plant = build_plant(model, payload_from_spec("7lb"), scene, 3, **worst)
    return Episode(model, plant, scene, plans=2, seed=3, waypoints=scene.start_for(model)).run(), plant


@pytest.fixture(scope="module")
def back(model: RobotModel) -> tuple[EpisodeResult, Plant]:
    return there_and_back(model)


def test_nothing_is_violated_and_every_bound_holds(model: RobotModel, back: tuple[EpisodeResult, Plant]) -> None:
    result, plant = back
    truth, log, limits = plant.theta_true, plant.truth(), model.limits
    assert result.refusals == []
    assert all(answer.plan is not None for answer in result.plans)
    boxes = [model.arm_prior, *(update.box for _, update in result.updates)]
    for before, after in pairwise(boxes):
        assert after.is_inside(before)
        assert after.contains(truth)
    assert plant.contact_steps == 0
    assert np.all(log["q"] > limits.position_lower)
    assert np.all(log["q"] < limits.position_upper)
    assert np.all(np.abs(log["qd"]) <= limits.velocity)
    assert np.all(np.abs(log["tau_applied"]) <= limits.torque)
    ticks = slice(1, len(result.stamps) + 1)  # the plant's first row comes before the first tick
    q, qd = log["q"][ticks], log["qd"][ticks]
    assert np.allclose(log["t"][ticks], result.stamps, atol=1e-9)
    assert np.all(np.abs(result.reference[:, 0] - q) <= result.gains.e_bound)
    assert np.all(np.abs(result.reference[:, 1] - qd) <= result.gains.de_bound)
    assert min(plant.clearance(x)[0] for x in log["q"][::100]) > 0.0
    last = result.updates[-1][1]
    assert last.status is UpdateStatus.OK
    assert last.widths[0] < 0.5 * (model.arm_prior.payload_upper - model.arm_prior.payload_lower)[0]
    assert result.states[-1] == ControllerState.HOLDING.value
    assert len(result.announced) >= 3


def test_a_task_follows_with_the_identified_box(model: RobotModel, back: tuple[EpisodeResult, Plant]) -> None:
    """Driven, and judged by the truth."""
    (result, plant), start = back, load_scene("six_boxes").start_for(model)
    assert result.task is TaskStatus.ARRIVED, result.task_reasons
    last = result.announced[-1][1]
    assert last.seq >= 1
    assert {box.identity for box, _ in result.task_plans} == {last.identity}
    assert np.abs(plant.truth()["q"][-1] - start).max() <= 1e-3 + result.gains.e_bound.max()
    judged = evaluate(logs_of_episode(result, plant), model, result.gains, plant.clearance)
    assert judged.ok, (judged.violations, judged.gaps)
    assert judged.safety.evidence.plans == 2 + len(result.task_plans)


def fingerprint(result: EpisodeResult, plant: Plant) -> dict[str, str]:
    """Every bit of what was planned, learnt, driven and felt."""
    truth = plant.truth()
    parts = {
        "plans": [answer.plan.trajectory.knots for answer in result.plans if answer.plan is not None],
        "bounds": [x for _, u in result.updates for x in (u.box.lower, u.box.upper, u.nominal)],
        "task": [answer.plan.trajectory.knots for _, answer in result.task_plans if answer.plan is not None],
        "truth": [truth[name] for name in ("q", "qd", "tau_applied", "effort")],
    }
    return {
        name: sha256(b"".join(np.ascontiguousarray(x).tobytes() for x in arrays)).hexdigest()
        for name, arrays in parts.items()
    }


_OTHER_PROCESS = """
import json, test_episode
from safe_sysid.robot.loading import load_robot
print(json.dumps(test_episode.fingerprint(*test_episode.there_and_back(load_robot("kinova_gen3")))))
"""


@pytest.mark.slow
def test_a_seed_gives_one_run(model: RobotModel, back: tuple[EpisodeResult, Plant]) -> None:
    """To the last bit: again in this process, and in another one with other threads and another order of sets.

    Not with other threads of BLAS, whose number changes its sums: nodes, commands and tests have one (ONE_THREAD).
    """
    threads = {"NUMBA_NUM_THREADS": "3", **ONE_THREAD}
    path = os.pathsep.join([str(Path(__file__).parent), *filter(None, sys.path)])
    other = subprocess.Popen(
        [sys.executable, "-c", _OTHER_PROCESS],
        env={**os.environ, **threads, "PYTHONHASHSEED": "77", "PYTHONPATH": path},
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        first = fingerprint(*back)
        assert fingerprint(*there_and_back(model)) == first
        told, _ = other.communicate(timeout=300)
    finally:
        other.kill()
        other.wait()
    assert json.loads(told.splitlines()[-1]) == first


@pytest.mark.slow
def test_a_task_alone_needs_no_identification(model: RobotModel) -> None:
    plant = build_plant(model, payload_from_spec("5lb"), load_scene("open"), 2)
    goal = np.array(model.settings.home) + 0.1
    known = model.arm_prior.with_payload(model.arm_prior.payload_lower, model.arm_prior.payload_upper, 1)
    result = Episode(model, plant, load_scene("open"), plans=0, waypoints=goal, box=known).run()
    assert result.task is TaskStatus.ARRIVED
    assert result.updates == []
    assert [box.identity for box, _ in result.task_plans] == ["0:1"] * len(result.task_plans)
    assert np.abs(plant.truth()["q"][-1] - goal).max() <= 1e-3 + result.gains.e_bound.max()


@pytest.mark.parametrize("begun", [True, False])
def test_a_plan_of_a_narrower_tube_that_is_not_begun_is_followed_by_one_of_the_widest(
    model: RobotModel, monkeypatch: pytest.MonkeyPatch, begun: bool
) -> None:
    if not begun:
        monkeypatch.setattr(RecentCommands, "why_not", lambda *_: "for this test")
    plant = build_plant(model, payload_from_spec("5lb"), load_scene("open"), 2)
    truth = plant.theta_true[model.arm_prior.layout.payload]
    off = 0.02 * (model.arm_prior.payload_upper - model.arm_prior.payload_lower)
    known = model.arm_prior.with_payload(truth - off, truth + off, 1)
    goal = np.array(model.settings.home) + 0.1
    result = Episode(model, plant, load_scene("open"), plans=0, waypoints=goal, box=known).run()
    tubes = [answer.plan.tube for _, answer in result.task_plans if answer.plan is not None]
    assert tubes[0] > 0, "a narrow tube is wanted first"
    assert result.task is TaskStatus.ARRIVED
    assert begun == all(tubes)
    assert begun or not any(tubes[1:])


def test_a_task_that_cannot_be_is_refused_and_the_arm_stands(model: RobotModel) -> None:
    scene = load_scene("six_boxes")
    plant = build_plant(model, payload_from_spec("5lb"), scene, 2)
    result = Episode(model, plant, scene, plans=0, waypoints=model.settings.home).run()
    assert result.task is TaskStatus.REFUSED
    assert any("post_middle" in reason for reason in result.task_reasons)
    assert np.max(np.abs(plant.truth()["q"] - scene.start)) < np.max(result.gains.e_bound)
    with pytest.raises(PlanError, match="no waypoints"):
        Episode(model, plant, scene, plans=0)
