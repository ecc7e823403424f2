"""Where equations agree, the declaration that they contradict is named; absurd remedies are not offered."""

import dataclasses

import numpy as np
import pytest
from test_diagnosis import Case

from safe_sysid.identification.bounds.payload_constraints import PayloadBox, PayloadConstraints
from safe_sysid.identification.diagnosis.declared import payload_extent
from safe_sysid.identification.diagnosis.log import diagnose_log, rows_of_log
from safe_sysid.identification.diagnosis.rows import diagnose_rows, format_diagnosis
from safe_sysid.identification.equations.measurement_errors import sensor_prior
from safe_sysid.identification.identifier import Identifier, UpdateStatus
from safe_sysid.identification.tare.tare import TareError, make_tare

pytestmark = pytest.mark.unproved


@pytest.fixture(scope="module")
def run(model):
    return Case(model, seed=3)


@pytest.fixture(scope="module")
def rows(model, errors, run):
    return rows_of_log(model, errors, run.data[:800], model.arm_prior)


def known(model, size, center, density=np.inf):
    base = PayloadConstraints.from_model(model)
    box = PayloadBox(np.array(center), np.array(size), *model.flange, density)
    return PayloadConstraints(base.hand_lower, base.hand_upper, base.opening, box)


def test_a_payload_box_that_is_too_small_is_named_with_what_the_data_say(model, errors, rows):
    payload_constraints = known(model, [0.02] * 3, [0.0, 0.0, 0.05])
    found = diagnose_rows(model, errors, rows, model.arm_prior, payload_constraints)
    assert found.empty
    assert found.margin > 0.0
    assert [c.kind for c in found.contradictions] == ["box"]
    lines = format_diagnosis(found)
    assert lines[0].startswith("the equations agree without it: the declared payload box")
    assert "z is outside the box (0.040 .. 0.060)" in lines[1]


def test_the_box_of_a_configuration_needs_no_argument(model, errors, run):
    settings = model.settings
    wrong = settings.payload.envelope.model_copy(update={"size": (0.02,) * 3, "center": (0.0, 0.0, 0.05)})
    payload = settings.payload.model_copy(update={"box": wrong})
    other = dataclasses.replace(model, settings=settings.model_copy(update={"payload": payload}))
    identifier = Identifier(other)
    identifier.add(run.data[:800])
    assert identifier.update().status is UpdateStatus.EMPTY_SET
    found = diagnose_log(other, errors, run.data[:800])
    assert [c.kind for c in found.contradictions] == ["box"]


def test_a_density_that_is_too_small_is_named_and_the_box_is_not(model, errors, rows):
    found = diagnose_rows(model, errors, rows, model.arm_prior, known(model, [0.3] * 3, [0.0, 0.0, 0.1], density=20.0))
    assert [c.kind for c in found.contradictions] == ["density"]
    assert "20 kg/m^3" in format_diagnosis(found)[0]


def test_true_knowledge_is_not_accused(model, errors, rows):
    for density in (np.inf, 20_000.0):
        payload_constraints = known(model, [0.6] * 3, [0.0, 0.0, 0.14], density)
        found = diagnose_rows(model, errors, rows, model.arm_prior, payload_constraints)
        assert not found.empty
        assert found.contradictions == ()


def test_bounds_of_another_payload_are_named(model, errors, rows):
    """Equations of 8 kg more than the bounds allow: a payload that was exchanged."""
    lower, upper = model.arm_prior.payload_lower.copy(), model.arm_prior.payload_upper.copy()
    upper[0] = lower[0] + 0.1 * (upper[0] - lower[0])
    found = diagnose_rows(model, errors, rows, model.arm_prior.with_payload(lower, upper))
    assert found.empty
    first = format_diagnosis(found)
    assert any("another one than before" in line for line in first if line.startswith("most likely"))


def test_the_extent_holds_the_truth_and_narrows(model, errors, run, rows):
    hand = model.theta_nominal[60:70]
    theta_p = run.theta[60:70] - hand
    rotation, translation = model.flange
    centre = rotation.T @ (theta_p[1:4] / theta_p[0] - translation)
    extent = payload_extent(model, errors, rows, model.arm_prior)
    assert extent.mass[0] <= theta_p[0] <= extent.mass[1]
    assert extent.mass[1] - extent.mass[0] < 0.3 * theta_p[0]
    # The true hand is not the nominal one, so its part of the centre may be off by its uncertainty.
    assert np.all(extent.centre[:, 0] - 0.01 <= centre)
    assert np.all(centre <= extent.centre[:, 1] + 0.01)
    assert extent.centre[2, 1] - extent.centre[2, 0] < 0.1


def test_something_in_the_hand_at_a_tare_comes_first(model, errors, run):
    with pytest.raises(TareError) as caught:
        make_tare(model, errors, run.data)
    box = sensor_prior(model.empty_handed_prior, errors)
    found = diagnose_rows(model, errors, caught.value.rows, box)
    assert found.tare
    assert found.explanations[0].kind == "held"
    lines = format_diagnosis(found)
    assert next(line for line in lines if line.startswith("most likely")).startswith(
        "most likely: the hand was not empty: with a payload of 3."
    )


def test_no_absurd_factor_is_offered(model, errors, run):
    """Efforts of another robot: nothing small explains them, and that is what is said first."""
    found = diagnose_log(model, errors, run.with_(effort=run.data.effort[:, ::-1].copy())[:800])
    assert found.empty
    assert all(e.factor <= 10.0 for e in found.explanations)
    lines = format_diagnosis(found)
    verdicts = [line for line in lines if line.startswith(("most likely", "no single small change", "or: "))]
    assert verdicts[0].startswith("no single small change explains it: wrong robot, units")
    assert "nothing below 10 times on all joints" in " ".join(lines)


def test_velocities_that_are_differences_of_positions_are_recognised(model, errors, run):
    h = np.diff(run.data.stamps)
    errors = dataclasses.replace(errors, position=np.full(model.n, 2e-6), velocity=np.full(model.n, 1e-3))
    q = run.data.q + run.rng.uniform(-1.0, 1.0, run.data.q.shape) * 2e-6
    qd = np.vstack([run.data.qd[:1], np.diff(q, axis=0) / h[:, None]])
    found = diagnose_log(model, errors, run.with_(q=q, qd=qd)[:800])
    assert found.empty
    first = found.explanations[0]
    assert first.kind == "velocity"
    assert first.checked is True
    assert "differences of positions" in first.text
    assert np.all(first.errors["velocity"] >= errors.velocity)
    good = diagnose_log(model, errors, run.data[:800])
    assert good.explanations == ()
