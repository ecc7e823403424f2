"""Experiments of [Hybrid]: motions, data, rigid models, tracking, and attacks on the guard under the impedance law."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from functools import cache
from pathlib import Path

import numpy as np
import pytest
from hybrid_support import made_up

from safe_sysid.cli import main
from safe_sysid.control.laws.law import ModelInUse
from safe_sysid.core.layout import COULOMB
from safe_sysid.dynamics import dynamics_of
from safe_sysid.errors import ParameterError
from safe_sysid.identification.arm.base_parameters import random_states
from safe_sysid.learning.neural.dataset import MeasuredMotion, read_dataset, write_index, write_motion
from safe_sysid.learning.neural.file import write_hybrid
from safe_sysid.robot.model import RobotModel
from safe_sysid.robot.parameters import is_consistent
from safe_sysid.simulation.flexible import FlexibleArm, read_effects
from safe_sysid.studies.campaign.summary import rows_and_errors
from safe_sysid.studies.hybrid import budgets
from safe_sysid.studies.hybrid import make_data as data
from safe_sysid.studies.hybrid.base_parameters import combinations, summary_5, table_5
from safe_sysid.studies.hybrid.budgets import normalised_error, run_budget, table_which, train_part
from safe_sysid.studies.hybrid.drive import ModelFeedForward, drive, impedance
from safe_sysid.studies.hybrid.friction import OwnFriction
from safe_sysid.studies.hybrid.model_tables import summary_joints
from safe_sysid.studies.hybrid.motions import FAST, SLOW, exciting_series, minimum_jerk, set_points, slower
from safe_sysid.studies.hybrid.paper import JOINTS, average
from safe_sysid.studies.hybrid.rigid_models import drawing, identified, rigid_torque
from safe_sysid.studies.hybrid.tracking import (
    load_model,
    run_trial,
    torques_along,
    total,
    trained_models,
    write_rigid_models,
)
from safe_sysid.studies.hybrid.tracking_tables import summary, table

pytestmark = pytest.mark.unproved


@cache
def panda() -> RobotModel:
    return data.load_panda()


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A data set of some seconds."""
    folder = tmp_path_factory.mktemp("data")
    made: list[str] = []
    data.make_data(folder, "tiny", 1.0, 1, made.append)
    assert len(made) == 8
    return folder


def arm(scale: float) -> FlexibleArm:
    model = panda()
    return FlexibleArm(model, read_effects("panda_effects", model.theta_nominal, scale), model.settings.home)


# ------------------------------------------------------------------------------------------------------- motions


def test_series_fill_their_limits_and_excite_more_than_draws() -> None:
    model = panda()
    series = exciting_series(model, 3, 4.0, draws=3, improvements=10)
    t = np.linspace(0.0, 4.0, 3000)
    q, qd = np.moveaxis(series.states(t)[:, :2], 1, 0)
    assert np.all(np.abs(qd).max(axis=0) <= 1.02 * FAST * model.limits.velocity)
    assert np.all((q >= model.limits.position_lower) & (q <= model.limits.position_upper))
    assert np.any(np.abs(qd).max(axis=0) > 0.98 * FAST * model.limits.velocity)
    again = exciting_series(model, 3, 4.0, draws=3, improvements=10)
    assert np.array_equal(again.sine, series.sine)
    late = slower(series, FAST / SLOW)
    assert late.states(4.0 * t)[1:-1, 0] == pytest.approx(q[1:-1], abs=1e-12)
    assert late.states(4.0 * t)[1:-1, 1] == pytest.approx(0.25 * qd[1:-1], abs=1e-12)


def test_set_points_are_joined_at_rest_by_derivatives() -> None:
    motions = set_points(panda(), 2.0, 3, seed=4)
    reference = motions.reference()
    assert reference.shape == (6000, 3, 7)
    assert reference[[1999, 3999, 5999], 0] == pytest.approx(motions.points[1:], abs=1e-12)
    for k in (0, 1):
        slope = (reference[2:2000, k] - reference[: 2000 - 2, k]) / 2e-3
        assert slope == pytest.approx(reference[1:1999, k + 1], abs=1e-4)
    way, pace, push = minimum_jerk(np.array([0.0, 0.5, 1.0]))
    assert way == pytest.approx([0.0, 0.5, 1.0])
    assert pace == pytest.approx([0.0, 1.875, 0.0])
    assert push == pytest.approx([0.0, 0.0, 0.0])


# ---------------------------------------------------------------------------------------------------------- data


@pytest.mark.parametrize("size", ["small", "full"])
def test_split_is_the_papers(size: str) -> None:
    lines = data.entries(data.SIZES[size])
    count = {split: sum(line.split == split for line in lines) for split in ("train", "validation", "test")}
    assert count == {"train": 42, "validation": 6, "test": 4}
    of = {split: {line.file[:2] for line in lines if line.split == split} for split in count}
    assert len(of["test"]) == 2
    assert not of["test"] & (of["train"] | of["validation"])
    assert len(of["validation"] - of["train"]) == 2, "two series that training never sees"
    assert len(of["validation"] & of["train"]) == 2, "two that it sees at another speed"
    s = data.SIZES[size]
    minutes = s.series * 5.0 * s.period * s.repeats / 60.0
    assert minutes == pytest.approx({"small": 30.0, "full": 300.0}[size], rel=1e-3)


def test_acceleration_has_no_phase() -> None:
    t = np.arange(4000) * 1e-3
    wave = np.sin(2.0 * np.pi * 0.5 * t)[:, None]
    found = data.acceleration(wave)[1000:3000, 0]
    assert found == pytest.approx(np.pi * np.cos(2.0 * np.pi * 0.5 * t[1000:3000]), abs=0.02 * np.pi)


@pytest.mark.slow
def test_data_are_made_resumed_and_refused(tiny: Path, tmp_path: Path) -> None:
    shutil.copytree(tiny, tmp_path, dirs_exist_ok=True)
    made: list[str] = []
    dataset = read_dataset(tmp_path)
    assert len(dataset.trajectories) == 8
    assert dataset.effects == 1.0
    first = {entry.file: dataset.motion(entry) for entry in dataset.trajectories}
    (tmp_path / "01_fast.npz").unlink()
    again = data.make_data(tmp_path, "tiny", 1.0, 1, made.append)
    assert [text.split()[0] for text in made] == ["01_fast.npz"]
    for entry in again.trajectories:
        assert np.array_equal(again.motion(entry).tau, first[entry.file].tau), "the same to the last bit"
    with pytest.raises(ParameterError, match=r"holds data 'tiny 1\.0'"):
        data.make_data(tmp_path, "tiny", 2.0, 1)
    with pytest.raises(ParameterError, match="expected one of tiny"):
        data.make_data(tmp_path, "huge")


# -------------------------------------------------------------------------------------------------- rigid models


def test_identified_is_the_truth_of_a_rigid_arm() -> None:
    """Torques of the nominal arm, links and Coulomb friction alone, at random states: found again, consistent."""
    model, rng = panda(), np.random.default_rng(5)
    theta = np.array(model.theta_nominal)
    theta[model.layout.joint_terms] = 0.0
    theta[model.layout.block(COULOMB)] = [1.0, 0.9, 0.8, 0.7, 0.3, 0.2, 0.1]
    low, high = model.limits.position_lower, model.limits.position_upper
    q, qd, qdd = rng.uniform(low, high, (400, 7)), *rng.normal(0.0, 1.0, (2, 400, 7))
    tau = rigid_torque(model, theta, q, qd, qdd)
    found, base = identified(model, [(q, qd, qdd, tau)], "coulomb")
    assert len(base) == 50, "43 of the links, as the paper's table V, and seven of friction"
    fresh = rng.uniform(low, high, (100, 7)), *rng.normal(0.0, 1.0, (2, 100, 7))
    assert rigid_torque(model, found, *fresh) == pytest.approx(rigid_torque(model, theta, *fresh), abs=1e-6)
    assert all(is_consistent(x[model.layout.link(j)]) for x in (found, drawing(model)) for j in range(7))
    with pytest.raises(ParameterError, match="expected one of links"):
        identified(model, [(q, qd, qdd, tau)], "rotors")


def test_combinations_of_table_5_are_the_arms_base_parameters() -> None:
    """Every row is determined by torques (it lies in the regressor's row space), and together they are all of it."""
    dynamics = dynamics_of(panda().kinematics)
    rows = random_states(7, dynamics.torque_regressor)[:, :70]
    _, values, space = np.linalg.svd(rows, full_matrices=False)
    space = space[values > 1e-10 * values[0]]
    matrix = combinations()
    assert len(space) == len(matrix) == 43
    assert matrix - (matrix @ space.T) @ space == pytest.approx(0.0, abs=1e-13)
    assert np.linalg.matrix_rank(matrix) == 43
    told = summary_5({"itself": panda().theta_nominal}, panda().theta_nominal)
    assert [row["true"] for row in told["rows"]] == [row["models"]["itself"] for row in told["rows"]]
    assert table_5(told).row_count == 43


# ------------------------------------------------------------------------------------------------------ tracking


def test_stiff_impedance_tracks_a_rigid_arm_that_it_knows() -> None:
    model = panda()
    reference, law = set_points(model, 0.4, 1, step=0.2).reference(), impedance(model, "stiff")
    stiffness, damping, mobility = law._gains  # the paper's, critically damped
    assert stiffness == pytest.approx((400.0, 400.0, 200.0, 200.0, 200.0, 200.0, 200.0))
    assert damping == pytest.approx(2.0 * np.sqrt(stiffness))
    assert mobility == pytest.approx(1.0)
    run = drive(arm(0.0), law, np.array(model.theta_nominal), reference)
    assert np.abs(run.true - reference[:, 0]).max() < 2e-3


def test_a_model_in_the_seam_is_the_feed_forward() -> None:
    """With the truth in the seam, the law may invert a drawing: the command is the truth's, feedback apart."""
    model, off = panda(), drawing(panda())
    state = np.random.default_rng(8).uniform(-0.5, 0.5, (3, 7)) + [[0.0] * 3 + [-1.5] + [0.0] * 3] * 3
    feed = ModelFeedForward(model, off, lambda *s: rigid_torque(model, np.array(model.theta_nominal), *s))
    law = impedance(model, "soft")
    known = ModelInUse(off, off, np.zeros(len(off)))
    added, trust = feed(*state[:2], *state, 0.0)
    command = law.step(0.0, *state[:2], state, known) + trust * added
    assert command == pytest.approx(rigid_torque(model, np.array(model.theta_nominal), *state), abs=1e-9)


def test_trials_give_tables_beside_the_papers(tmp_path: Path) -> None:
    files = write_rigid_models(tmp_path, None)
    assert list(files) == ["drawing"]
    options = {"models": {"RBD 2S": files["drawing"]}, "scale": 0.0, "motions": 1}
    assert total(options) == 6
    results = [run_trial(0, k, options) for k in (3, 5)]  # fast, medium and stiff
    assert [r["gains"] for r in results] == ["medium", "stiff"]
    assert np.mean(results[1]["rmse"]) < 0.3 * np.mean(results[0]["rmse"]), "stiffness helps a wrong model"
    told = summary("7", {}, results)
    stiff = next(row for row in told["rows"] if row["gains"] == "stiff")
    assert stiff["joints"] == results[1]["rmse"]
    assert stiff["paper"] == average("rmse", "stiff", "RBD 2S")
    assert stiff["paper"] == pytest.approx(np.mean(JOINTS["rmse", "stiff"]["RBD 2S"]), abs=1e-3)
    assert table("7", told).row_count == 4
    assert table("3", summary("3", {}, results)).row_count == 6


def test_what_table_2_trained_is_tracked_with_by_the_papers_names(tmp_path: Path) -> None:
    """Seeds are one row; the rigid part of an end-to-end model, with and without friction, is a model of its own."""
    learned = made_up(panda(), "rbd_sign_lstm")
    for folder in ("rbd_sign_lstm_2s_0", "rbd_sign_lstm_e2e_1", "nea_e2e_0"):
        write_hybrid(tmp_path / folder / "model.npz", learned)
    found = trained_models(tmp_path)
    assert list(found) == [
        "RBD E2E, seed 1", "RBD+LSTM+Sign 2S, seed 0", "RBD+LSTM+Sign E2E, seed 1", "RBD+Sign E2E, seed 1",
    ]  # fmt: skip
    theta = {name: load_model(panda(), Path(found[f"{name} E2E, seed 1"]))[0] for name in ("RBD", "RBD+Sign")}
    np.testing.assert_array_equal(theta["RBD+Sign"], learned.theta)
    assert not np.any(theta["RBD"][panda().layout.coulomb])
    trial = {"gains": "soft", "duration": 10.0}
    trials = [trial | {"model": f"RBD E2E, seed {seed}", "rmse": [float(seed)] * 7} for seed in (1, 2)]
    row = summary("7", {}, trials)["rows"][0]
    assert (row["model"], row["mean"]) == ("RBD E2E", 1.5)
    assert row["paper"] == pytest.approx(19.013, abs=1e-3)


@pytest.mark.slow
def test_learned_models_are_tracked_with_and_judged(tiny: Path, tmp_path: Path) -> None:
    """A network that says nothing beside a rigid part is that rigid model, in the loop and in figure 3."""
    model = panda()
    learned = made_up(model, "rbd_sign_lstm")
    silent = {name: 0.0 * array for name, array in learned.weights.items()}
    theta = drawing(model)
    theta[model.layout.joint_terms] = 0.0
    write_hybrid(tmp_path / "silent.npz", replace(learned, theta=theta, weights=silent))
    np.savez(tmp_path / "rigid.npz", theta=theta)
    models = {name: str(tmp_path / f"{name}.npz") for name in ("silent", "rigid")}
    settings = {"models": models, "scale": 1.0, "motions": 1}
    found = [run_trial(0, index, settings) for index in (3, 9)]
    assert [row["model"] for row in found] == ["silent", "rigid"]
    assert found[0]["guarded"] == 0
    assert found[0]["rmse"] == pytest.approx(found[1]["rmse"], rel=1e-3)
    rows = summary_joints(models, read_dataset(tiny))["rows"]
    assert rows[0]["joints"] == pytest.approx(rows[1]["joints"], rel=1e-9)
    write_hybrid(tmp_path / "loud.npz", replace(learned, theta=theta))
    loud = summary_joints({"loud": str(tmp_path / "loud.npz")}, read_dataset(tiny))["rows"]
    assert np.all(np.array(loud[0]["joints"]) != rows[1]["joints"])


def test_its_own_friction_is_what_the_arm_has() -> None:
    """Bristles that follow the motors' velocities bend as those of the arm."""
    simulated, friction = arm(1.0), None
    for k in range(150):
        before = simulated.state[21:28]
        simulated.step(simulated.effects.joints.friction[0] * 2.0 * np.sin(0.05 * k))
        friction = friction or OwnFriction(simulated.effects.joints.friction, False, simulated.period)
        middle, still = 0.5 * (before + simulated.state[21:28]), np.zeros(7)
        torque, _ = friction(still, middle, still, still, still, 0.0)
        bent = simulated.effects.joints.friction[3] * simulated.state[28:35]
        np.testing.assert_allclose(friction._bristles, simulated.state[28:35], atol=5e-5)
    assert np.all(np.abs(bent) > 0.4 * simulated.effects.joints.friction[0]), "they are bent by far more than that"
    assert np.all(torque * bent > 0.0)


@pytest.mark.slow
def test_friction_known_exactly_is_best_only_where_nothing_else_is_missed(tmp_path: Path) -> None:
    told = tmp_path / "told.json"
    arguments = ["--table", "friction", "--motions", "1", "--jobs", "1", "--out", str(tmp_path), "--json", str(told)]
    assert main(["experiment", "hybrid", *arguments]) == 0
    rows = {(row["arm"], row["friction"]): row["rmse"]["soft, 10 s"] for row in json.loads(told.read_text())["rows"]}
    assert len(rows) == 12
    assert rows["without both", "its own, desired"] < 0.2 * rows["without both", "Coulomb, measured"]
    for what in ("measured", "desired"):
        assert rows["as in the file", f"its own, {what}"] > 2.0 * rows["as in the file", "Coulomb, measured"]


# ------------------------------------------------------------------------------------------------ which model when


def test_a_budget_is_fast_motions_first_and_no_more(tmp_path: Path) -> None:
    entries, rng = data.entries(data.SIZES["tiny"]), np.random.default_rng(6)
    for entry in entries:
        count = {"fast": 800, "slow": 3200}[entry.speed]
        write_motion(tmp_path / entry.file, MeasuredMotion(1e-3 * np.arange(count), *rng.normal(size=(4, count, 7))))
    dataset = write_index(tmp_path, "panda", panda().joint_names, 1000.0, 1.0, entries)
    whole = train_part(dataset, 30.0)
    assert sum(map(len, whole)) == sum(len(dataset.motion(entry)) for entry in dataset.of("train"))
    some = train_part(dataset, 1.6 / 60.0)
    assert [len(motion) for motion in some] == [800, 800], "two fast ones"
    first = next(entry for entry in dataset.of("train") if entry.speed == "fast")
    assert np.array_equal(some[0].tau, dataset.motion(first).tau[: len(some[0])])
    span = np.full(7, 2.0)
    assert normalised_error([whole[0].tau + 1.0], whole[:1], span) == pytest.approx(0.25)


@pytest.mark.slow
def test_a_trial_with_a_budget_has_all_that_the_page_shows(tiny: Path, tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr(budgets, "_SAMPLES", 100)  # of 500: there are no more than seconds of data
    monkeypatch.setattr(budgets, "_CANDIDATES", 400)
    settings = {"data": str(tiny), "out": str(tmp_path / "out"), "faster": str(tmp_path), "scale": 1.0, "motions": 1}
    settings |= {"learned": ["LIP"], "minutes": 1.0}
    drawn, taught, lip = (run_budget(0, k, settings) for k in (0, 7, 10))
    assert (lip["model"], lip["minutes"]) == ("LIP", 1.0)
    assert lip["test"] > 0.0, "half a second of data says nothing of other motions"
    assert (drawn["model"], drawn["minutes"]) == ("drawing", 0.0)
    assert (taught["model"], taught["minutes"]) == ("RBD, all friction", 1.0)
    assert all(0.0 < row[key] < 1.0 for row in (drawn, taught) for key in ("test", "faster"))
    train, span = train_part(read_dataset(tiny), 30.0), np.ones(7)
    errors = [
        normalised_error([rigid_torque(panda(), theta, m.q, m.qd, m.qdd) for m in train], train, span)
        for theta in (load_model(panda(), path)[0] for path in sorted((tmp_path / "out").glob("[Rd]*.npz")))
    ]
    assert errors[0] < errors[1], "where it was identified, a model beats the drawing"
    learned = [torques_along(panda(), tmp_path / "out" / "LIP, 1 min.npz", m) for m in train]
    assert normalised_error(learned, train, span) < errors[1], "so does a learned one"
    told = rows_and_errors({}, [drawn, taught, {"index": 8, "error": "no"}])
    assert told["errors"] == ["no"]
    assert table_which(told).row_count == 2


# ------------------------------------------------------------------------------------------------------- command


@pytest.mark.slow
def test_command_prints_base_parameters_and_refuses(tiny: Path, tmp_path: Path, capsys) -> None:
    told = tmp_path / "table.json"
    arguments = ["experiment", "hybrid", "--data", str(tiny), "--out", str(tmp_path / "out"), "--jobs", "1"]
    assert main([*arguments, "--table", "5", "--json", str(told)]) == 0
    shown = capsys.readouterr().out
    assert "l7y" in shown
    rows = json.loads(told.read_text())["rows"]
    assert len(rows) == 43
    assert set(rows[0]["models"]) == {"drawing", "RBD 2S", "RBD+Sign 2S", "RBD, all friction"}
    assert main([*arguments, "--figure", "3", "--json", str(told)]) == 0
    errors = {row["model"]: row["joints"] for row in json.loads(told.read_text())["rows"]}
    assert (tmp_path / "out" / "figure_3.png").is_file()
    assert np.all(np.array(errors["drawing"]) > 0.0)
    assert main(arguments) == 2
    assert "expected --table" in capsys.readouterr().err
    assert main([*arguments, "--table", "5", "--figure", "4"]) == 2
    (tmp_path / "odd.npz").write_bytes(b"no model")
    assert main([*arguments, "--table", "5", "--models", str(tmp_path / "odd.npz")]) == 2
