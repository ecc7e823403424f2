"""Friction that the package has never heard of, added as a stranger would: a term of a file, and one line in a table.

It reaches names, layout, priors, regressors, inverse dynamics, momentum equations, bounds and the drift of a tare. What
it does not reach yet refuses a term that may be other than zero: every law and the tracking theorem, the certificate of
torques, the checker of certificates, the simulator. Configurations have no key for it.
"""

import dataclasses

import numpy as np
import pinocchio as pin
import pytest
from identification_plant import pinocchio_model

from safe_sysid.control.gains.design import design_gains
from safe_sysid.control.laws import make_law
from safe_sysid.core import layout as layout_module
from safe_sysid.core.layout import JOINT_TERMS, OFFSET, JointTerm
from safe_sysid.dynamics import dynamics_of
from safe_sysid.errors import SafeSysIdError
from safe_sysid.extensions import DYNAMICS
from safe_sysid.identification.certificates.row_check import CertificateRefusedError, RowChecker
from safe_sysid.identification.equations.measurement_errors import MeasurementErrors
from safe_sysid.identification.equations.measurements import Measurements
from safe_sysid.identification.equations.momentum import momentum_rows
from safe_sysid.identification.identifier import Identifier, UpdateStatus
from safe_sysid.robot.loading import load_robot
from safe_sysid.robot.parameters import ParameterBox
from safe_sysid.robot.scenes.scene import load_scene
from safe_sysid.simulation.arms import draw_truth
from safe_sysid.simulation.payloads import payload_from_spec
from safe_sysid.simulation.plant import Plant

# --- the stranger's file ---

FADES_AT = 0.25  # rad/s


def smooth_sign(velocity, transition):
    return np.clip(velocity / transition, -1.0, 1.0) if transition > 0.0 else np.sign(velocity)


def stribeck(velocity, transition):
    return smooth_sign(velocity, transition) * np.exp(-np.square(velocity / FADES_AT))


def stribeck_bounds(lower, upper, transition):
    """It fades with speed on either side of zero."""
    ends = stribeck(np.stack([lower, upper]), 0.0)
    slow = (lower <= transition) & (upper >= -transition)
    return np.where(slow, -1.0, ends.min(axis=0)), np.where(slow, 1.0, ends.max(axis=0))


def forward(velocity, transition):
    return 0.5 + 0.5 * smooth_sign(velocity, transition)


def forward_bounds(lower, upper, transition):
    return np.where(lower > transition, 1.0, 0.0), np.where(upper < -transition, 0.0, 1.0)


STRIBECK = JointTerm(
    "stribeck", "Fs", "Stribeck friction", "N m", signed=False, drifts=True, torque=stribeck, bounds=stribeck_bounds
)
FORWARD = JointTerm(
    "forward", "Fa", "more friction forward", "N m", signed=True, drifts=True, torque=forward, bounds=forward_bounds
)


# --- tests ---


@pytest.fixture(params=[STRIBECK, FORWARD], ids=lambda term: term.key)
def term(request, monkeypatch):
    monkeypatch.setattr(layout_module, "JOINT_TERMS", (*JOINT_TERMS, request.param))  # the line in the table
    return request.param


def arm_with(term, seed=0, largest=2.0):
    """Arm whose prior leaves the term between 0 and ``largest``, and its true parameters with a payload."""
    model = load_robot("three_joint")
    (part, _), *_ = model.layout.further
    theta = draw_truth(model, payload_from_spec("4lb"), seed)
    theta[part] = largest * np.random.default_rng(seed).uniform(0.4, 0.9, model.n)
    nominal, upper = model.theta_nominal.copy(), model.arm_prior.upper.copy()
    nominal[part], upper[part] = 0.5 * largest, largest
    prior = ParameterBox(model.arm_prior.lower, upper)
    return dataclasses.replace(model, theta_nominal=nominal, arm_prior=prior), theta


def inverse_dynamics(model, theta, q, qd, qdd, v_c):
    """By Pinocchio and by hand."""
    layout = model.layout
    fc, fv, _, beta, own = layout.by_term(theta)
    rigid = pinocchio_model(model.kinematics, theta)
    data = rigid.createData()
    torque = np.array([pin.rnea(rigid, data, *state) for state in zip(q, qd, qdd, strict=True)])
    (_, term), *_ = layout.further
    return torque + fc * smooth_sign(qd, v_c) + fv * qd + beta + own * term.torque(qd, v_c)


def drive(model, theta, rng, seconds=1.5, h=1e-3):
    """(stamps, q, qd, torque): a wave through reversals; the torque is the mean over the period before each sample."""
    n, v_c = model.n, model.friction_transition_velocity
    amplitude, omega = rng.uniform(0.1, 0.3, n), rng.uniform(3.0, 7.0, n)
    phase, home = rng.uniform(0.0, 6.0, n), np.array(model.settings.home)

    def state(t):
        x = omega * t[:, None] + phase
        return home + amplitude * np.sin(x), amplitude * omega * np.cos(x), -amplitude * omega**2 * np.sin(x)

    nodes, weights = np.polynomial.legendre.leggauss(8)
    stamps = h * np.arange(round(seconds / h) + 1)
    fine = stamps[:-1, None] + 0.5 * h * (1.0 + nodes)
    torque = inverse_dynamics(model, theta, *state(fine.ravel()), v_c).reshape(len(fine), len(nodes), n)
    mean = np.einsum("k,ikj->ij", 0.5 * weights, torque)
    q, qd, _ = state(stamps)
    return stamps, q, qd, np.vstack([mean[:1], mean])


def noisy_log(model, theta, rng):
    errors = MeasurementErrors.from_model(model)
    stamps, q, qd, torque = drive(model, theta, rng)
    noise = errors.torque_abs + errors.torque_rel * np.abs(torque)
    return Measurements(stamps, q, qd, torque + 0.99 * noise * rng.choice([-1.0, 1.0], torque.shape))


def test_names_and_places_follow_the_table(term):
    model, theta = arm_with(term)
    layout = model.layout
    assert layout.size == len(theta) == 3 * (10 + 5)
    assert layout.names(model.joint_names)[-3:] == [f"{joint}.{term.symbol}" for joint in model.joint_names]
    assert layout.block(OFFSET + 1) == slice(42, 45)
    assert layout.locate(43) == (1, term)
    assert set(range(42, 45)) <= set(layout.drifting.tolist())
    assert (42 in layout.never_negative) == (not term.signed)
    with pytest.raises(SafeSysIdError, match="expected a multiple of 15"):
        ParameterBox(np.zeros(42), np.zeros(42)).layout  # noqa: B018


def test_regressors_are_the_dynamics(term):
    model, theta = arm_with(term)
    kin, v_c, rng = model.kinematics, model.friction_transition_velocity, np.random.default_rng(1)
    q, qd, qdd = rng.normal(size=(3, 20, 3)) * np.array([1.0, 0.3, 3.0])[:, None, None]
    expected = inverse_dynamics(model, theta, q, qd, qdd, v_c)
    for backend in DYNAMICS:
        dynamics = dynamics_of(kin, backend)
        torque = dynamics.torque_regressor(q, qd, qdd, v_c) @ theta
        np.testing.assert_allclose(torque, expected, rtol=0, atol=1e-12)
        torque = dynamics.inverse_dynamics(theta, q, qd, qdd, v_c)
        np.testing.assert_allclose(torque, expected, rtol=0, atol=1e-12)
        # d/dt W_m - W_c = W, by differences along the motion
        h = 1e-6
        ends = [dynamics.momentum_regressor(q + s * h * qd, qd + s * h * qdd) for s in (1.0, -1.0)]
        found = (ends[0] - ends[1]) / (2.0 * h) - dynamics.momentum_rate_regressor(q, qd, v_c)
        np.testing.assert_allclose(found @ theta, expected, rtol=0, atol=1e-6)


def test_bounds_of_the_terms_hold_in_every_interval(term):
    rng = np.random.default_rng(2)
    lower = rng.normal(0.0, 0.4, 500)
    upper = lower + rng.uniform(0.0, 0.3, 500)
    low, high = term.bounds(lower, upper, 0.01)
    values = term.torque(lower + np.linspace(0.0, 1.0, 50)[:, None] * (upper - lower), 0.01)
    assert np.all((low <= values + 1e-15) & (values - 1e-15 <= high))


@pytest.mark.parametrize("seed", range(3))
def test_equations_hold_for_the_truth(term, seed):
    """Noise on its bounds, reversals, random windows; and the slack is not what makes them hold."""
    model, theta = arm_with(term, seed)
    rng, errors = np.random.default_rng(seed), MeasurementErrors.from_model(model)
    data = noisy_log(model, theta, rng)
    start = rng.integers(0, 1300, 400)
    rows = momentum_rows(model.kinematics, model.arm_prior, errors, data, np.stack([start, start + 150], axis=1))
    off = np.abs(rows.matrix @ theta - rows.target)
    assert np.all(off <= rows.slack)
    without = theta.copy()
    without[model.layout.further[0][0]] = 0.0
    assert np.mean(np.abs(rows.matrix @ without - rows.target) > rows.slack) > 0.1


def test_equations_hold_at_errors_of_states_and_stamps(term):
    model, theta = arm_with(term)
    errors = dataclasses.replace(
        MeasurementErrors.from_model(model), position=np.full(3, 1e-4), velocity=np.full(3, 2e-3), stamp=2e-6
    )
    rng = np.random.default_rng(5)
    data = noisy_log(model, theta, rng)
    signs = rng.choice([-1.0, 1.0], (2, *data.q.shape))
    data = Measurements(
        data.stamps + errors.stamp * rng.choice([-0.99, 0.99], len(data.stamps)),
        data.q + 0.99 * errors.position * signs[0],
        data.qd + 0.99 * errors.velocity * signs[1],
        data.effort,
    )
    for ramp in (0.0, 0.03):
        start = rng.integers(0, 1300, 200)
        windows = np.stack([start, start + 150], axis=1)
        rows = momentum_rows(model.kinematics, model.arm_prior, errors, data, windows, ramp)
        assert len(rows) > 100
        assert np.all(np.abs(rows.matrix @ theta - rows.target) <= rows.slack)


def test_it_is_identified_and_without_it_the_data_contradict_the_arm(term):
    model, theta = arm_with(term)
    data = noisy_log(model, theta, np.random.default_rng(7))
    identifier = Identifier(model)
    identifier.add(data)
    result = identifier.update(final=True)
    assert result.status is UpdateStatus.OK
    truth = theta[model.layout.payload]
    box = result.box
    assert np.all((box.payload_lower <= truth) & (truth <= box.payload_upper))
    prior = model.arm_prior
    assert box.payload_upper[0] - box.payload_lower[0] < 0.4 * (prior.payload_upper[0] - prior.payload_lower[0])
    # The polytope bounds the term itself, too: the equations know it.
    part = np.arange(model.layout.size)[model.layout.further[0][0]]
    bounds = identifier._set.bound(part, identifier.box)
    assert np.all((bounds.lower <= theta[part]) & (theta[part] <= bounds.upper))
    assert np.min(bounds.upper - bounds.lower) < 1.0
    upper = prior.upper.copy()
    upper[part] = 0.0
    ignorant = Identifier(dataclasses.replace(model, arm_prior=ParameterBox(prior.lower, upper)))
    ignorant.add(data)
    assert ignorant.update(final=True).status is UpdateStatus.EMPTY_SET


def test_what_knows_nothing_of_it_refuses(term):
    model, theta = arm_with(term)
    words = f"{term.words} in .* {term.unit}: expected zero"
    with pytest.raises(SafeSysIdError, match=f"the tracking theorem: {words}"):
        design_gains(model, lockstep=True)
    with pytest.raises(SafeSysIdError, match=f"a control law: {words}"):
        make_law("gravity_pid", model, None)
    payload, scene = payload_from_spec("4lb"), load_scene("open")
    with pytest.raises(SafeSysIdError, match=f"the simulator: {words}"):
        Plant(model, theta, payload, scene, q0=np.array(model.settings.home))
    with pytest.raises(CertificateRefusedError, match=f"the certificates' checker: {words}"):
        RowChecker(model).check({"target": []}, MeasurementErrors.from_model(model), {}, {}, lambda share: None)


def test_an_arm_without_it_is_as_before(term, monkeypatch):
    """A line in the table that no arm uses changes no number of the others."""
    model = load_robot("three_joint")
    gains = design_gains(model, lockstep=True)
    assert not np.any(model.arm_prior.rad[model.layout.further[0][0]])
    rng = np.random.default_rng(3)
    motion = rng.normal(size=(3, 5, 3))
    rows = dynamics_of(model.kinematics).torque_regressor(*motion)
    monkeypatch.setattr(layout_module, "JOINT_TERMS", JOINT_TERMS)
    before = load_robot("three_joint")
    assert np.array_equal(rows[:, :, :42], dynamics_of(before.kinematics).torque_regressor(*motion))
    again = design_gains(before, lockstep=True)
    assert gains.V_max == again.V_max
    assert np.array_equal(gains.e_bound, again.e_bound)
