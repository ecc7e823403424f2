"""Planted faults are named: the right joint first, with a change of declaration that makes the data consistent.

Where equations agree, the declaration that they contradict is named; absurd remedies are not offered.
"""

import dataclasses

import numpy as np
import pytest
from identification_plant import exciting_plans, noisy, simulate

from safe_sysid.identification.bounds.payload_constraints import PayloadBox, PayloadConstraints
from safe_sysid.identification.diagnosis.declared import payload_extent
from safe_sysid.identification.diagnosis.elastic import ElasticProgram
from safe_sysid.identification.diagnosis.excitation_words import describe_excitation, weak_combinations
from safe_sysid.identification.diagnosis.log import check_velocities, diagnose_log, rows_of_log
from safe_sysid.identification.diagnosis.rows import diagnose_rows, format_diagnosis, scaled_problem
from safe_sysid.identification.diagnosis.slack_watch import SlackWatch
from safe_sysid.identification.equations.measurement_errors import sensor_prior
from safe_sysid.identification.equations.measurements import Measurements
from safe_sysid.identification.identifier import Identifier, UpdateStatus
from safe_sysid.identification.tare.tare import TareError, make_tare
from safe_sysid.simulation.arms import draw_truth
from safe_sysid.simulation.payloads import dumbbell

pytestmark = pytest.mark.unproved


class Case:
    """A run of the arm with a dumbbell, whose true parameters are known."""

    def __init__(self, model, seed=0):
        self.model, self.rng = model, np.random.default_rng(seed)
        self.theta = draw_truth(model, dumbbell(8), self.rng)
        home = np.array(model.settings.home)
        self.plans = exciting_plans(home, self.rng, n_plans=1, t_f=2.0)
        self.log = self.simulate(self.theta)
        self.data = noisy(self.log, 0.05, 0.025, self.rng)

    def simulate(self, theta):
        v_c = self.model.friction_transition_velocity
        return simulate(self.model.kinematics, theta, v_c, self.plans, rng=self.rng, chatter=0.5, substeps=1)

    def with_(self, **columns):
        return dataclasses.replace(self.data, **columns)


@pytest.fixture(scope="module")
def case(model):
    return Case(model)


def fault(case, name):
    effort, truth = case.data.effort.copy(), case.log.torque
    if name == "noise":
        effort[:, 3] = truth[:, 3] + 2.0 * (effort[:, 3] - truth[:, 3])
    elif name == "bias":
        effort[:, 1] += 0.5
    elif name == "sign":
        effort[:, 1] *= -1.0
    elif name == "coulomb":
        theta = case.theta.copy()
        theta[72] = 0.6
        return noisy(case.simulate(theta), 0.05, 0.025, case.rng)
    elif name == "slip":
        theta = case.theta.copy()
        theta[61:64] += [0.06, 0.06, 0.03]
        after = noisy(case.simulate(theta), 0.05, 0.025, case.rng)
        half = len(after) // 2
        return Measurements.concatenate([case.data[:half], after[half + 2 :]])
    return case.with_(effort=effort)


@pytest.mark.parametrize(
    ("name", "kinds", "joint"),
    [
        pytest.param("noise", ("noise", "torque_abs"), 3, marks=pytest.mark.slow),
        ("bias", ("offset",), 1),
        pytest.param("coulomb", ("coulomb",), 2, marks=pytest.mark.slow),
        pytest.param("sign", ("sign",), 1, marks=pytest.mark.slow),  # of whole logs: test_logs_checks.py
        pytest.param("slip", ("payload",), None, marks=pytest.mark.slow),
    ],
)
def test_a_planted_fault_comes_first_and_its_remedy_works(model, errors, case, name, kinds, joint):
    found = diagnose_log(model, errors, fault(case, name))
    assert found.empty
    assert found.margin < 0.0
    first = found.explanations[0]
    assert first.kind in kinds
    assert first.joint == joint
    assert first.checked is True
    lines = format_diagnosis(found)
    assert any(line.startswith("most likely: ") for line in lines)
    assert not any("joint joint_" in line for line in lines)
    if joint is not None:
        assert model.joint_names[joint] in next(line for line in lines if line.startswith("most likely"))
    if name == "noise":
        assert found.joint_shares.argmax() == 3
        assert 1.5 < found.joint_scales[3] <= 2.01
    if name == "slip":
        assert "1.00 s" in first.text


@pytest.mark.slow
def test_the_smallest_noise_scale_is_the_smallest(model, errors, case):
    """With noise scaled by s times the result data agree, with a little less they do not."""
    rows = rows_of_log(model, errors, fault(case, "noise")[:1000], model.arm_prior)
    found = diagnose_rows(model, errors, rows, model.arm_prior)
    matrix, target, _ = scaled_problem(model, errors, rows, model.arm_prior)
    share = np.where(rows.joint == 3, rows.parts[:, 0] / rows.slack, 0.0)
    for factor, agree in ((1.0, True), (0.99, False)):
        room = 1.0 + factor * (found.joint_scales[3] - 1.0) * share
        assert ElasticProgram(matrix / room[:, None], target / room).minimise().feasible is agree


def test_a_wrong_scale_of_velocity_is_told_with_joint_and_factor(model, errors, case):
    qd = case.data.qd.copy()
    qd[:, 4] *= 1.1
    lines = format_diagnosis(diagnose_log(model, errors, case.with_(qd=qd)))
    assert lines[0].startswith("velocity of joint_5 contradicts its position")
    assert "1.100 times" in lines[0]
    assert check_velocities(model, errors, case.data) == []


def test_good_data_are_not_accused(model, errors, case):
    found = diagnose_log(model, errors, case.data)
    assert not found.empty
    assert 0.0 < found.margin < 1.0
    assert found.explanations == ()
    assert "agree with each other" in format_diagnosis(found)[0]
    nothing = diagnose_rows(model, errors, rows_of_log(model, errors, case.data[:1], model.arm_prior), model.arm_prior)
    assert not nothing.empty


def test_an_elastic_program_finds_what_a_direct_one_finds():
    rng = np.random.default_rng(1)
    from scipy.optimize import linprog

    for _ in range(10):
        matrix, target = rng.normal(size=(200, 5)), rng.normal(size=200) * 2.0
        widen = rng.uniform(0.0, 1.0, (200, 1))
        value = ElasticProgram(matrix, target, widen, [(2, 0)]).minimise(elastic={0: 1.0}).value
        a = np.block([[matrix, -widen], [-matrix, -widen], [np.eye(5)[2:3], -1.0], [-np.eye(5)[2:3], -1.0]])
        b = np.concatenate([target + 1.0, 1.0 - target, [1.0, 1.0]])
        bounds = [(-1, 1), (-1, 1), (None, None), (-1, 1), (-1, 1), (0, None)]
        direct = linprog(np.eye(6)[5], a, b, bounds=bounds)
        assert value == pytest.approx(direct.fun, rel=1e-6, abs=1e-8)


def test_a_margin_that_falls_is_told_before_the_set_is_empty(model, errors, case):
    watch = SlackWatch(model, errors)
    half = noisy(case.log, 0.02, 0.01, case.rng)
    prior = model.arm_prior
    quiet, loud = (rows_of_log(model, errors, data, prior) for data in (half, case.data))
    assert watch.update(quiet, prior) > 0.3
    assert not watch.falling
    assert 0.0 < watch.update(loud, prior) < 0.2
    small = dataclasses.replace(loud, slack=loud.slack * (1.0 - 0.99 * watch.margins[-1]))
    watch.update(small, prior)
    assert watch.falling
    assert "larger than before" in watch.text()
    watch.reset()
    assert not watch.falling
    # Errors that fill what is declared from the beginning: more data find larger ones, and nothing has changed.
    watch.update(loud, prior)
    watch.update(small, prior)
    assert watch.margins[0] < 0.2
    assert not watch.falling
    assert "larger than before" not in watch.text()


def test_what_was_hardly_excited_is_said_and_true(model, errors, case):
    v_c, prior = model.friction_transition_velocity, model.arm_prior
    home = np.array(model.settings.home)
    still = simulate(model.kinematics, case.theta, v_c, exciting_plans(home, case.rng, 1, 1.0, amplitude=0.0))
    rows = rows_of_log(model, errors, noisy(still, 0.05, 0.025, case.rng), prior)
    weak = weak_combinations(model, errors, rows, prior)
    assert weak[0].share > 0.9
    lines = describe_excitation(weak)
    assert lines[0].startswith("hardly excited: ")
    inertia = next(w for w in weak if w.unit == "kg m^2")
    assert inertia.name in " ".join(lines)
    assert "move joint_" in inertia.advice
    moved = weak_combinations(model, errors, rows_of_log(model, errors, case.data, prior), prior)
    better = {w.unit: w.share for w in moved}
    assert all(better[w.unit] <= w.share + 1e-9 for w in weak)


# --- declarations ---------------------------------------------------------------------------------------------------


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
    first = next(line for line in lines if line.startswith("most likely"))
    assert first.startswith("most likely: the hand was not empty: with a payload of 3.")


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
