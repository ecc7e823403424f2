"""What the campaign's trials are made of: motions, plants, payloads, priors and errors keep their own laws."""

import dataclasses
import itertools

import numpy as np
import pinocchio as pin
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.integrate import quad

from safe_sysid.identification.bounds.consistency import face_functions
from safe_sysid.robot.parameters import pseudo_inertia, transform_inertial
from safe_sysid.studies.campaign.cases.arms import CHAINS, arm_model, draw_arm, prior_around
from safe_sysid.studies.campaign.cases.case import on_cone
from safe_sysid.studies.campaign.cases.motions import MOTIONS, SMOOTH, draw_motion
from safe_sysid.studies.campaign.cases.noise import NOISES, draw_levels, draw_signs, measure
from safe_sysid.studies.campaign.cases.payloads import PAYLOADS, draw_payload
from safe_sysid.studies.campaign.cases.plant import exact_record, instants, pinocchio_model
from safe_sysid.studies.campaign.cases.settings import draw_settings
from safe_sysid.studies.campaign.cases.simulation import simulated_record

seeds = st.integers(0, 2**31 - 1)


def motion_of(seed, kind, n=3, duration=0.4, period=0.01):
    return draw_motion(np.random.default_rng(seed), kind, n, duration, period, 0.02)


def arm_of(seed, n=3, payload="solid", coulomb=2.0, chain="random"):
    rng = np.random.default_rng(seed)
    return draw_arm(rng, n, chain, draw_payload(rng, payload), coulomb)


# --- motions -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", MOTIONS)
@given(seed=seeds)
@settings(max_examples=8)
def test_motions_are_continuous_and_know_their_derivatives_and_extremes(kind, seed):
    motion = motion_of(seed, kind)
    assert motion.end >= 0.4
    eps = 1e-9
    inner = motion.knots[1:-1]
    before, after = motion.state(inner - eps), motion.state(inner + eps)
    fastest = 1.0 + np.abs(motion.state(np.linspace(0.0, 0.4, 500))[1]).max()
    for x, y in zip(before[: 3 if kind in SMOOTH else 2], after, strict=False):
        assert np.allclose(x, y, atol=1e-5 * fastest)
    # Away from the knots: differences agree with derivatives.
    t = 0.5 * (motion.knots[1:] + motion.knots[:-1])
    h = np.minimum(1e-5, 0.2 * np.diff(motion.knots).min())
    for order in (0, 1):
        slope = (motion.state(t + h)[order] - motion.state(t - h)[order]) / (2.0 * h)
        assert np.allclose(slope, motion.state(t)[order + 1], atol=2e-2, rtol=1e-3)
    dense = motion.state(np.linspace(0.0, motion.end, 4001))[2]
    bound = motion.largest_acceleration()
    assert np.all(np.abs(dense).max(axis=0) <= bound * (1.0 + 1e-9) + 1e-9)
    assert np.all(np.abs(dense).max(axis=0) >= 0.95 * bound - 1e-3)  # attained, not only bounded


@pytest.mark.parametrize("kind", ["quintic", "wave", "bang", "creep"])
@given(seed=seeds)
@settings(max_examples=8)
def test_no_crossing_of_a_velocity_level_is_missed(kind, seed):
    motion = motion_of(seed, kind)
    for level in (0.02, -0.02, 0.0):
        cuts = np.unique(np.concatenate([[0.0, motion.end], motion.knots, motion.crossings(1, level)]))
        for start, end in itertools.pairwise(cuts):
            speed = motion.state(np.linspace(start, end, 40)[1:-1])[1][:, 1] - level
            assert np.all(speed >= -1e-10) or np.all(speed <= 1e-10)


def test_jerk_is_bounded_where_acceleration_is_continuous():
    for kind in SMOOTH:
        motion = motion_of(3, kind)
        t = np.linspace(0.0, motion.end, 20001)
        steepest = np.abs(np.diff(motion.state(t)[2], axis=0)).max(axis=0) / (t[1] - t[0])
        assert np.all(steepest <= motion.largest_jerk() * (1.0 + 1e-6))
        assert np.all(steepest >= 0.9 * motion.largest_jerk())


# --- plants --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["quintic", "bang", "chatter", "creep"])
@pytest.mark.parametrize("law", ["saturated", "stick"])
def test_mean_torques_are_exact(kind, law):
    """Against adaptive quadrature of RNEA and of the friction law, period by period."""
    arm, transition, period = arm_of(5), 0.05, 0.01
    motion = motion_of(11, kind)
    times = period * (np.arange(38) + 0.3)
    gravity = np.array([1.0, -3.0, -9.0])
    record = exact_record(arm, arm.theta, motion, times, transition, law, gravity)
    stick = np.full_like(record.q, 0.7)
    motor, link = record.torque(stick, False), record.torque(stick, True)
    model = pinocchio_model(arm, arm.theta, gravity)
    data = model.createData()
    fc, fv, ia, beta = arm.theta[30:].reshape(4, 3)

    def motor_torque(t, joint):
        q, v, a = (x[0] for x in motion.state(np.array([t])))
        s = np.clip(v / transition, -1, 1)
        if law == "stick":
            s = np.where(np.abs(v) <= transition, 0.7, np.sign(v))
        return (pin.rnea(model, data, q, v, a) + fc * s + fv * v + ia * a + beta)[joint]

    for k in (0, 9, 36):
        for joint in range(3):
            breaks = np.concatenate([motion.knots, *(motion.crossings(joint, s * transition) for s in (1, -1))])
            breaks = np.unique([times[k], *breaks[(breaks > times[k]) & (breaks < times[k + 1])], times[k + 1]])
            total = sum(
                quad(motor_torque, a, b, args=(joint,), epsabs=1e-13, epsrel=1e-13)[0]
                for a, b in itertools.pairwise(breaks)
            )
            scale = 1.0 + np.abs(record.rigid).max()
            assert motor[k + 1, joint] == pytest.approx(total / period, abs=1e-10 * scale)
    assert np.allclose(link[1:], (motor - record.friction - record.rotor - 0.7 * record.stuck)[1:] + beta)


def test_a_simulated_arm_obeys_the_law_of_momentum():
    """Its recorded motion, interpolated, needs the torque that it was given."""
    arm = arm_of(7, coulomb=0.5)
    theta = arm.theta.copy()
    theta[36:39] = np.maximum(theta[36:39], 0.5)
    motion, period, count = motion_of(2, "quintic", period=0.001, duration=0.2), 0.001, 150
    times = period * np.arange(count + 1)
    late = 0.3 * period
    record = simulated_record(
        arm, theta, motion, times, times[:-1] + late, 0.05, np.zeros((count, 3)), arm.kinematics.gravity, 2.5e-4
    )
    assert np.abs(record.q - motion.state(times)[0]).max() < 1e-3  # it follows
    model = pinocchio_model(arm, theta)
    data = model.createData()
    momentum = []
    for q, v in zip(record.q, record.qd, strict=True):
        upper = np.triu(pin.crba(model, data, q))
        momentum.append((upper + np.triu(upper, 1).T + np.diag(theta[36:39])) @ v)
    # d/dt (H qd) = tau_in_force - friction + C^T qd - g; the torque in force is a mix of two commands.
    command = record.torque(np.zeros_like(record.q), False)
    force = 0.3 * command[1:-1] + 0.7 * command[2:]
    rate = np.diff(momentum, axis=0)[1:] / period
    for k in range(0, count - 1, 10):
        q, v = 0.5 * (record.q[k + 1] + record.q[k + 2]), 0.5 * (record.qd[k + 1] + record.qd[k + 2])
        coriolis = pin.computeCoriolisMatrix(model, data, q, v)
        rest = force[k] - record.friction[k + 2] + coriolis.T @ v - pin.computeGeneralizedGravity(model, data, q)
        assert np.allclose(rate[k], rest, atol=2e-3 * (1.0 + np.abs(rest).max()))


def test_torques_at_instants_stay_below_their_rate():
    arm = arm_of(9)
    motion = motion_of(4, "wave")
    times = np.linspace(0.01, 0.39, 2000)
    record = instants(arm, arm.theta, motion, times, times, 0.02, arm.kinematics.gravity)
    for side in (0, 1):
        torque = record.torque(np.zeros_like(record.q), bool(side))
        steepest = np.abs(np.diff(torque, axis=0)).max(axis=0) / (times[1] - times[0])
        assert np.all(steepest <= record.rate[side])
        assert np.all(steepest >= 0.02 * record.rate[side])


# --- arms and payloads ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", PAYLOADS)
@given(seed=seeds)
@settings(max_examples=10)
def test_payloads_are_bodies_inside_their_box(kind, seed):
    payload = draw_payload(np.random.default_rng(seed), kind)
    j = pseudo_inertia(payload.theta)
    values = np.linalg.eigvalsh(j)
    assert values[0] >= -1e-15 * max(values[-1], 1e-3)
    rank = {"point": 1, "rod": 2, "plate": 3}.get(kind)
    if rank is not None:
        assert np.all(values[: 4 - rank] <= 1e-12 * values[-1])
    faces = face_functions(payload.center, payload.size, np.eye(3), np.zeros(3))
    for u in faces:
        for v in faces:
            assert u @ j @ v >= -1e-12
    if kind == "block":
        assert payload.theta[0] <= payload.density * payload.size.prod() * (1.0 + 1e-12)


@pytest.mark.parametrize("chain", CHAINS)
@given(seed=seeds, n=st.integers(3, 9), payload=st.sampled_from(PAYLOADS))
@settings(max_examples=6)
def test_priors_hold_the_truth_and_links_are_bodies(chain, seed, n, payload):
    arm = arm_of(seed, n, payload, chain=chain)
    for j in range(n):
        assert np.linalg.eigvalsh(pseudo_inertia(arm.theta[10 * j : 10 * j + 10]))[0] >= -1e-14
    alone = transform_inertial(*arm.flange, arm.payload.theta)
    opened = arm.theta[arm.layout.payload] - arm.hand - alone
    assert np.all(np.abs(opened) <= arm.opening + 1e-15)
    rng = np.random.default_rng(seed)
    for place in (None, np.ones(14 * n), -np.ones(14 * n), rng.choice([-1.0, 1.0], 14 * n)):
        prior = prior_around(np.random.default_rng(seed), arm, place)
        assert prior.contains(arm.theta)
        if place is not None:
            edge = np.where(place > 0, prior.upper, prior.lower)
            assert np.allclose(edge, arm.theta, rtol=1e-12, atol=1e-15) or place.min() < 0  # clipped at zero
    model = arm_model(rng, arm, prior, np.zeros(n, bool), {}, 0.01)
    lower, upper = model.hand_prior
    assert np.all((lower <= arm.hand) & (arm.hand <= upper))


# --- errors --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("noise", NOISES)
@given(seed=seeds, relative=st.booleans(), level=st.sampled_from(["usual", "tiny", "coarse", "states", "sensors"]))
@settings(max_examples=5)
def test_errors_are_within_what_is_declared_and_reach_it(noise, seed, relative, level):
    rng = np.random.default_rng(seed)
    arm, motion = arm_of(seed), motion_of(seed, "bang")
    times = 0.01 * (np.arange(30) + 0.5)
    record = exact_record(arm, arm.theta, motion, times, 0.02, "stick", arm.kinematics.gravity)
    levels = draw_levels(rng, 3, 0.01, level, "mean")
    torque = record.torque(np.zeros_like(record.q), False)
    signs = draw_signs(rng, noise, record, torque)
    for beyond in (1.05, 1.0):  # five per cent more than is declared are five per cent more
        data = measure(record, torque, levels, signs, beyond, relative, np.array([True, False, True]))
        effort = data.effort - beyond * levels.bias * signs.bias
        off, base = np.abs(effort - torque), np.abs(effort if relative else torque)
        allowed = beyond * (levels.torque_abs + levels.drift + levels.torque_rel * base)
        assert np.all(off <= allowed * (1.0 + 1e-9) + 1e-12)
        if noise not in ("uniform", "zero"):
            assert np.allclose(off[1:], allowed[1:], rtol=1e-6, atol=1e-12)  # no torque before the first sample
    turns = np.abs(data.q - record.q) / (2.0 * np.pi)
    assert np.all(np.abs(turns - np.round(turns)) * 2.0 * np.pi <= levels.position + 1e-12)
    assert np.all(np.abs(data.q[:, [0, 2]]) <= np.pi)
    assert np.all(np.abs(data.qd - record.qd) <= levels.velocity * (1.0 + 1e-12) + 1e-15)
    assert np.all(np.abs(data.stamps - times) <= levels.stamp)


def test_settings_follow_from_seed_and_index_and_cover_what_there_is():
    drawn = [draw_settings(3, i) for i in range(300)]
    assert drawn == [draw_settings(3, i) for i in range(300)]
    assert drawn != [draw_settings(4, i) for i in range(300)]
    for name, every in {
        "joints": range(3, 10), "noise": NOISES, "motion": MOTIONS, "payload": PAYLOADS, "simulated": (False, True),
        "source": ("motor", "link", "command"), "rate": (100.0, 200.0, 500.0, 1000.0), "effort": ("held", "sampled"),
    }.items():  # fmt: skip
        assert {getattr(settings_, name) for settings_ in drawn} == set(every), name
    other = draw_settings(3, 7, {"noise": "zero"})
    assert other == dataclasses.replace(drawn[7], noise="zero")


@given(seed=seeds)
@settings(max_examples=30)
def test_true_gravity_is_on_the_edge_of_its_cone(seed):
    rng = np.random.default_rng(seed)
    gravity = rng.normal(size=3)
    levels = draw_levels(rng, 3, 0.01, "sensors", "mean")
    true = on_cone(rng, gravity, levels)
    sizes = np.linalg.norm(true), np.linalg.norm(gravity)
    angle = np.arctan2(np.linalg.norm(np.cross(true, gravity)), true @ gravity)
    assert angle == pytest.approx(levels.angle, abs=1e-9)
    assert abs(sizes[0] / sizes[1] - 1.0) == pytest.approx(levels.relative, abs=1e-12)
