"""Tare: true rows whatever friction does within its drift, tighter bounds, files believed only when right."""

import dataclasses
from datetime import datetime, timedelta, timezone

import numpy as np
import pytest
from identification_plant import exciting_plans, noisy, simulate
from test_identification_identifier import proved

from safe_sysid.identification.equations.measurement_errors import MeasurementErrors
from safe_sysid.identification.identifier import Identifier, UpdateStatus
from safe_sysid.identification.payload_alone import payload_bounds
from safe_sysid.identification.tare.file import load_tare, read_tare, write_tare
from safe_sysid.identification.tare.tare import TareError, TareRecorder, drift_of, gained, make_tare
from safe_sysid.logs.online.session import IdentifierSession
from safe_sysid.robot import load_robot
from safe_sysid.robot.parameters import is_consistent
from safe_sysid.simulation.arms import draw_link, draw_truth, hand_box
from safe_sysid.simulation.payloads import dumbbell, theta_e_with_payload

LAST = slice(60, 70)


@pytest.fixture(scope="module")
def errors(model):
    return MeasurementErrors.from_model(model)


def log_of(model, theta, rng, t_f=1.5):
    """Measured with noise on its bounds."""
    plans = exciting_plans(np.array(model.settings.home), rng, n_plans=1, t_f=t_f)
    log = simulate(model.kinematics, theta, model.friction_transition_velocity, plans, rng=rng, chatter=0.5)
    return noisy(log, 0.05, 0.025, rng)


def updated(model, errors, data, **options):
    """The first update of an identifier that has seen a log."""
    identifier = Identifier(model, errors, **options)
    identifier.add(data)
    return identifier.update()


@pytest.fixture(scope="module")
def arm(model, errors):
    """Truth with the empty hand, with a payload, and the tare of the first."""
    rng = np.random.default_rng(4)
    loaded = draw_truth(model, dumbbell(8), rng)
    hand = draw_link(rng, *hand_box(model), model.theta_nominal[LAST], "uniform")
    empty = loaded.copy()
    empty[LAST], loaded[LAST] = hand, theta_e_with_payload(model, hand, dumbbell(8))
    data = log_of(model, empty, rng)
    return empty, loaded, data, make_tare(model, errors, data)


def test_the_true_arm_satisfies_every_row_and_many_parameters_are_known_better(arm):
    empty, _, _, tare = arm
    rows = tare.log_rows
    assert np.all(np.abs(rows.matrix @ empty - rows.target) <= rows.slack)
    assert np.all(rows.log == 1)
    assert 50 < len(rows) <= 1000
    inertia = slice(84, 91)
    assert np.median(tare.after[inertia] / tare.before[inertia]) < 0.5
    assert np.all(tare.after <= tare.before)
    assert "rotor inertia" in gained(tare)


def test_rows_hold_for_any_friction_within_the_drift_and_not_much_beyond(model, arm):
    empty, _, _, tare = arm
    columns, rng = model.layout.drifting, np.random.default_rng(0)
    rows, bare = tare.rows, tare.log_rows
    broken = 0
    for _ in range(200):
        now = empty.copy()
        now[columns] += tare.drift * rng.choice([-1.0, 1.0], tare.drift.size)
        assert np.all(np.abs(rows.matrix @ now - rows.target) <= rows.slack)
        broken += np.any(np.abs(bare.matrix @ now - bare.target) > bare.slack)
    assert broken == 200  # without the enlargement the truth would be excluded each time
    # Row by row the worst drift is reached: nothing is given away.
    residual = bare.matrix @ empty - bare.target
    worst = np.abs(residual) + np.abs(bare.matrix[:, columns]) @ tare.drift
    assert np.all(worst <= rows.slack)
    assert np.max(worst / rows.slack) > 0.99


def test_a_sensor_bias_may_differ_from_run_to_run(model, errors):
    biased = dataclasses.replace(errors, torque_bias=0.1 * np.ones(7))
    assert np.allclose(drift_of(model, biased)[14:] - drift_of(model, errors)[14:], 0.2)


def test_the_proof_says_what_is_published_and_needs_all_of_the_drift(model, errors, arm):
    """By formulas of its own, in extended precision."""
    _, loaded, _, tare = arm
    proof = updated(model, errors, log_of(model, loaded, np.random.default_rng(5), 1.0), **tare.options()).proof
    assert np.array_equal(proof.drift, tare.drift)
    assert np.any(proof.rows.log == 1)
    published, sign = np.concatenate([proof.lower, proof.upper]), np.repeat([1.0, -1.0], 10)
    assert np.all(sign * (proved(proof) - published) >= 0.0)
    larger = dataclasses.replace(proof, drift=1.1 * proof.drift)
    assert np.any(sign * (proved(larger) - published) < 0.0)


@pytest.mark.parametrize("drift", [0.0, 0.02])
def test_identification_starts_tighter_and_the_truth_stays_inside(model, errors, arm, drift):
    _, loaded, _, tare = arm
    drifts = drift_of(model, errors) * (drift / 0.02)
    rng = np.random.default_rng(7)
    now = loaded.copy()
    columns = model.layout.drifting
    now[columns] += drifts * rng.choice([-1.0, 1.0], drifts.size)
    prior = model.arm_prior
    now[columns] = np.clip(now[columns], prior.lower[columns], prior.upper[columns])
    data = log_of(model, now, rng)
    widths = {}
    for name, options in (("without", {}), ("with", tare.with_drift(drifts).options())):
        result = updated(model, errors, data, method="lp", **options)
        assert result.status is UpdateStatus.OK
        assert result.box.contains(now)
        widths[name] = result.widths
    # One update has a budget of solver work: a component that it did not get to may be wider for now.
    assert np.median(widths["with"] / widths["without"]) < (0.8 if drift == 0.0 else 1.0)
    assert widths["with"][0] < 0.9 * widths["without"][0]


@pytest.mark.parametrize("pounds", [4, 8])
def test_the_estimate_of_a_run_with_a_tare_is_a_body_inside_its_own_intervals(model, errors, arm, pounds):
    """The mass printed first lay outside of the interval printed beside it, in two of six runs."""
    empty, _, _, tare = arm
    rng = np.random.default_rng(11)
    now, payload = empty.copy(), dumbbell(pounds)
    now[LAST] = theta_e_with_payload(model, empty[LAST], payload)
    result = updated(model, errors, log_of(model, now, rng, 1.0), method="lp", **tare.options())
    assert result.status is UpdateStatus.OK
    box = result.box
    alone = payload_bounds(model, box.payload_lower, result.nominal, box.payload_upper)
    assert alone.possible
    assert np.all((alone.lower <= alone.nominal) & (alone.nominal <= alone.upper))
    assert is_consistent(alone.nominal, 1e-9)
    assert np.all((alone.lower <= payload.theta) & (payload.theta <= alone.upper))


def test_drift_far_beyond_the_declared_is_noticed_or_harmless_and_never_told_as_fine_with_a_wrong_box(
    model, errors, arm
):
    """Friction 4 % off in all joints although none was declared: the equations contradict each other."""
    _, loaded, _, tare = arm
    now, rng = loaded.copy(), np.random.default_rng(8)
    now[77:84] = np.clip(1.04 * now[77:84], model.arm_prior.lower[77:84], model.arm_prior.upper[77:84])
    undrifted = tare.with_drift(np.zeros(21)).options()
    found = updated(model, errors, log_of(model, now, rng), method="lp", **undrifted)
    assert found.status is UpdateStatus.EMPTY_SET


def test_a_payload_in_the_hand_during_the_tare_is_noticed(model, errors, arm):
    with pytest.raises(TareError, match="Was the hand empty") as caught:
        make_tare(model, errors, log_of(model, arm[1], np.random.default_rng(9), 1.0))
    assert caught.value.rows is not None


def test_nothing_collected_is_no_tare(model, errors, arm):
    recorder = TareRecorder(model, errors, max_samples=10)
    with pytest.raises(TareError, match="no sample"):
        recorder.finish()
    recorder.add(arm[2][:30])
    assert (recorder.samples, recorder.ignored) == (10, 20)
    with pytest.raises(TareError, match="gave no equation"):
        make_tare(model, errors, arm[2][:1])


def test_a_file_says_what_was_written(model, errors, arm, tmp_path):
    tare, path = arm[3], tmp_path / "tare.npz"
    write_tare(path, tare)
    back = load_tare(path, model, errors)
    for name in ("matrix", "target", "slack", "parts", "first", "last", "joint", "log"):
        assert np.array_equal(getattr(back.log_rows, name), getattr(tare.log_rows, name))
    assert (back.created, back.log_hash) == (tare.created, tare.log_hash)
    assert np.array_equal(back.rows.slack, tare.rows.slack)
    other = load_robot("kinova_gen3", **{"tare.drift": {"viscous": 0.1}})
    assert np.all(load_tare(path, other, errors).rows.slack >= back.rows.slack)


def test_what_must_not_be_used_is_refused_with_its_reason(model, errors, arm):
    tare, now = arm[3], datetime.now(timezone.utc)
    assert tare.refusal(model, errors) is None
    assert "max_age_h = 24" in tare.refusal(model, errors, now + timedelta(hours=25))
    assert "future" in tare.refusal(model, errors, now - timedelta(hours=2))
    louder = dataclasses.replace(errors, torque_abs=0.06)
    assert "measurement error torque_abs" in tare.refusal(model, louder)
    heavier = load_robot("kinova_gen3", **{"uncertainty.relative": 0.06})
    assert "empty_hand.lower[0] = " in tare.refusal(heavier, errors)
    slower = load_robot("kinova_gen3", friction_transition_velocity=0.02)
    assert "declared.friction_transition_velocity = 0.01: expected 0.02" in tare.refusal(slower, errors)
    warm = dataclasses.replace(tare, temperature=20.0)
    assert warm.refusal(model, errors, now, 29.0) is None
    assert "difference of at most" in warm.refusal(model, errors, now, 31.0)
    assert "difference of at most" in warm.refusal(model, errors, now, float("nan"))
    with pytest.raises(TareError, match="refused"):
        warm.check(model, errors, now, 31.0)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"slack": lambda a: -a}, "slack: expected numbers > 0"),
        ({"target": lambda a: a * np.nan}, "target holds a number that is not finite"),
        ({"matrix": lambda a: a[:, :-1]}, "matrix has shape"),
        ({"joint": lambda a: a + 7}, "joint: expected indices below 7"),
        ({"joint": lambda a: a.astype(float)}, "joint has shape"),
        ({"drift": lambda a: -a - 1.0}, "drift"),
        ({"json": lambda a: np.array("{")}, "cannot be read as a tare"),
        ({"json": lambda a: np.array('{"schema": 9}')}, "schema = '9'"),
        ({"target": lambda a: np.array([object()])}, "cannot be read as a tare"),
        ({"first": None}, "no 'first'"),
    ],
)
def test_a_broken_file_is_refused_in_one_line(arm, tmp_path, change, message):
    path = tmp_path / "tare.npz"
    write_tare(path, arm[3])
    with np.load(path) as file:
        arrays = dict(file)
    for name, how in change.items():
        value = arrays.pop(name)
        if how is not None:
            arrays[name] = how(value)
    np.savez(path, **arrays)
    with pytest.raises(TareError, match=message) as caught:
        read_tare(path)
    assert "\n" not in str(caught.value)


def test_no_file_and_no_archive(tmp_path):
    with pytest.raises(TareError, match="no such file"):
        read_tare(tmp_path / "none.npz")
    (tmp_path / "text.npz").write_text("hello")
    with pytest.raises(TareError, match="cannot be read"):
        read_tare(tmp_path / "text.npz")


def test_a_session_lets_go_of_a_tare_that_has_aged_meanwhile(model, errors, arm, tmp_path):
    path = tmp_path / "tare.npz"
    write_tare(path, arm[3])
    session = IdentifierSession(model, tare_file=path)
    session.reset(1)
    assert session.tare is not None
    session.tare = dataclasses.replace(session.tare, created=datetime.now(timezone.utc) - timedelta(days=3))
    session.reset(2)
    assert session.tare is None
    assert "not used any more" in session.tare_text
    assert "max_age_h" in session.tare_text
    assert session.core.box.epoch == 2
