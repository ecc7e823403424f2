"""The inequalities behind the slack, one by one: integrals over a step of any motion that the declared bounds allow."""

import itertools

import numpy as np
import pinocchio as pin
import pytest
from identification_plant import pinocchio_model, random_arm, random_consistent_box

from safe_sysid.dynamics import dynamics_of
from safe_sysid.dynamics.momentum_columns import momentum_columns
from safe_sysid.identification.certificates.interval_dynamics.step_bounds import box_facts
from safe_sysid.identification.certificates.log_view import LogView
from safe_sysid.identification.equations import held_torque
from safe_sysid.identification.equations.linearisation import DERIVATIVES, derivative_bounds
from safe_sysid.identification.equations.measurement_errors import MeasurementErrors
from safe_sysid.identification.equations.measurements import Measurements, SampleRun
from safe_sysid.identification.equations.momentum import RowSource, _limits
from safe_sysid.identification.equations.step_states import step_states
from safe_sysid.identification.equations.tied_positions import tied_positions
from safe_sysid.robot.unknowns import Unknowns

NODES, WEIGHTS = np.polynomial.legendre.leggauss(12)


class Motion:
    """Accelerations that jump between their bounds, or not, at random times: q and qd in closed form."""

    def __init__(self, rng, n, duration, bound, pieces=6):
        self.times = np.concatenate([[0.0], np.sort(rng.uniform(0, duration, pieces - 1)), [duration]])
        kind = rng.integers(3)
        self.a = bound * (
            rng.choice([-1.0, 1.0], (pieces, n)) if kind else np.sign(rng.normal(size=n)) * np.ones((pieces, n))
        )
        self.q, self.qd = [rng.uniform(-3, 3, n)], [rng.uniform(-1, 1, n)]
        for h, a in zip(np.diff(self.times), self.a, strict=True):
            self.q.append(self.q[-1] + h * self.qd[-1] + 0.5 * h * h * a)
            self.qd.append(self.qd[-1] + h * a)

    def state(self, t):
        k = min(int(np.searchsorted(self.times, t, side="right")) - 1, len(self.a) - 1)
        h = t - self.times[k]
        return self.q[k] + h * self.qd[k] + 0.5 * h * h * self.a[k], self.qd[k] + h * self.a[k]

    def integral(self, start, end, function):
        """Of ``function(t, q, qd)``, piece by piece."""
        cuts = [start, *(t for t in self.times if start < t < end), end]
        total = 0.0
        for a, b in itertools.pairwise(cuts):
            for x, w in zip(NODES, WEIGHTS, strict=True):
                t = 0.5 * (a + b) + 0.5 * (b - a) * x
                total = total + 0.5 * (b - a) * w * function(t, *self.state(t))
        return total


def arm(seed, n):
    rng = np.random.default_rng(seed)
    kin, theta = random_arm(rng, n)
    theta, box = random_consistent_box(rng, theta, n)
    theta[10 * n :] = 0.0
    return rng, kin, theta, box


def test_what_a_step_leaves_of_its_integrals():
    """``rate``, ``slope`` and ``ramp`` with exact measurements, 1 to 30 ms, accelerations on their bounds."""
    closest = np.zeros(3)
    for seed in range(30):
        n = 1 + seed % 4
        rng, kin, theta, box = arm(seed, n)
        h = float(rng.choice([1e-3, 1e-2, 3e-2]))
        bound = rng.uniform(0, 15, n)
        motion = Motion(rng, n, h, bound)
        (q0, v0), (q1, v1) = motion.state(0.0), motion.state(h)
        data = Measurements([0.0, h], np.array([q0, q1]), np.array([v0, v1]), np.zeros((2, n)))
        # Nothing of what a held torque allows: these motions are of no arm.
        e = MeasurementErrors(n, "motor", 0.0, 0.0, 0.0, 0.0, bound, stamp=0.0, torque_jitter=1e-9)
        source = RowSource(kin, box, e, SampleRun(data, False, 0), ramps=True)
        errors, c, u = source._errors, source._steps.centre[0], source._steps.mean[0]
        dynamics = dynamics_of(kin)
        at_mid = dynamics.momentum_rate_regressor(c, u) @ theta

        def of_each(t, q, v, dynamics=dynamics, theta=theta, at_mid=at_mid, middle=0.5 * h):
            rate = dynamics.momentum_rate_regressor(q, v) @ theta - at_mid
            return np.array([rate, (t - middle) * rate, dynamics.momentum_regressor(q, v) @ theta])

        rate, slope, momentum = motion.integral(0.0, h, of_each) / h
        ramp = momentum - dynamics.momentum_regressor(c, q1 - q0) @ theta / h
        for k, (got, most) in enumerate(((rate, errors.rate), (slope, errors.slope), (ramp, errors.ramp))):
            assert np.all(np.abs(got) <= most[0] * (1 + 1e-9) + 1e-13)
            closest[k] = max(closest[k], np.max(np.abs(got) / (most[0] + 1e-12)))
    assert np.all(closest > [0.3, 0.6, 0.05])  # bounds that are never come near would prove nothing


def test_position_errors_on_slopes_by_abel_summation():
    closest = 0.0
    for seed in range(40):
        n = 1 + seed % 4
        rng, kin, theta, box = arm(seed, n)
        dq = 1e-4 * rng.uniform(0.1, 1, n)
        m = 6
        q = rng.uniform(-3, 3, n) + 0.02 * np.cumsum(rng.normal(size=(m + 1, n)), axis=0)
        data = Measurements(1e-3 * np.arange(m + 1), q, np.zeros_like(q), np.zeros_like(q))
        e = MeasurementErrors(n, "link", 0.0, 0.0, dq, 100.0, 1.0, stamp=0.0)
        errors = RowSource(kin, box, e, SampleRun(data, False, 0), ramps=True)._errors
        centre = 0.5 * (q[1:] + q[:-1])
        inertia = [
            np.stack([dynamics_of(kin).momentum_regressor(c, x) @ theta for x in np.eye(n)], axis=1) for c in centre
        ]
        s = np.concatenate([[0.0], rng.uniform(-1, 1, m), [0.0]])
        i = int(rng.integers(n))
        # The worst signs of all errors for one joint, by the sum as it is after Abel.
        bound, gain = 0.0, np.zeros((m + 1, n))
        for k in range(m + 1):
            before, after = max(k - 1, 0), min(k, m - 1)
            gain[k] = s[k + 1] * inertia[after][i] - s[k] * inertia[before][i]
            bound += abs(s[k + 1] - s[k]) * max(errors.shift[after, i], errors.shift[before, i])
            if 0 < k < m:
                bound += min(abs(s[k + 1]), abs(s[k])) * errors.twist[k, i]
        error = np.sign(gain) * dq
        direct = sum(s[k + 1] * inertia[k][i] @ (error[k + 1] - error[k]) for k in range(m))
        assert abs(direct) <= bound * (1 + 1e-9)
        closest = max(closest, abs(direct) / bound)
    assert closest > 0.3


@pytest.mark.parametrize("n", [1, 2, 5, 9])
def test_columns_and_derivatives(n):
    """Compiled columns are those of the regressors; derivative bounds are what finite differences give."""
    rng, kin, _, box = arm(100 + n, n)
    inertial = slice(0, 10 * n)
    states = rng.uniform(-3, 3, (3, n)), rng.uniform(-2, 2, (3, n))
    e = MeasurementErrors(n, "motor", 0.0, 0.0, 0.0, 0.0, 1.0)
    limits = _limits(kin, box, e, Unknowns(np.zeros(n)))
    step, dynamics = 1e-5, dynamics_of(kin, "pinocchio")
    for q, qd in zip(*states, strict=True):
        bounds = np.zeros((len(DERIVATIVES), n, max(n, 3)))
        slopes = np.zeros((2, *bounds.shape))  # given and writable, as the identifier does: else compiled anew
        derivative_bounds(kin, limits.mid, limits.rad, 1.0, True, True, q, qd, bounds, slopes)
        momentum, rate = np.zeros((n, 10 * n)), np.zeros((n, 10 * n))
        momentum_columns(kin, kin.gravity.copy(), q, qd, 1.0, momentum, rate)
        assert np.allclose(momentum, dynamics.momentum_regressor(q, qd)[:, inertial], rtol=0, atol=1e-12)
        assert np.allclose(rate, dynamics.momentum_rate_regressor(q, qd)[:, inertial], rtol=0, atol=1e-11)
        regressors = dynamics.momentum_regressor, dynamics.momentum_rate_regressor
        for j, (kind, (g, x)) in itertools.product(range(n), enumerate(itertools.product(regressors, (1.0, 0.0)))):
            d = np.eye(n)[j] * step
            slope = (g(q + x * d, qd + (1 - x) * d) - g(q - x * d, qd - (1 - x) * d))[:, inertial] / (2 * step)
            most = np.abs(slope @ limits.mid) + np.abs(slope) @ limits.rad
            assert np.allclose(bounds[kind, :n, j], most, rtol=1e-6, atol=1e-6)
        for c in range(3):
            pull = dynamics_of(kin._replace(gravity=np.eye(3)[c])).momentum_rate_regressor(q, 0 * qd)[:, inertial]
            most = np.abs(pull @ limits.mid) + np.abs(pull) @ limits.rad
            assert np.allclose(bounds[4, :n, c], most, rtol=1e-9, atol=1e-12)


def held_step(rng, n, substeps=64):
    """An arm on one step of a held torque that errs as it likes within its bound: the step, what it did, the box."""
    kin, theta = random_arm(rng, n)
    theta, box = random_consistent_box(rng, theta, n)
    heavier = float(rng.choice([0.0, 0.3]))  # true gravity is larger than the declared one
    model = pinocchio_model(kin._replace(gravity=(1.0 + heavier) * kin.gravity), theta)
    data, (fc, fv, _, beta) = model.createData(), theta[10 * n :].reshape(4, n)
    h, noise = float(rng.choice([1e-3, 4e-3, 1e-2])), float(rng.choice([0.0, 0.1, 1.0]))
    q, v = rng.uniform(-3, 3, n), rng.choice([-1.0, 1.0], n) * rng.uniform(0.3, 1.5, n)
    wanted = rng.uniform(-8, 8, n)
    sign, start = np.sign(v), (q, v)
    torque = pin.rnea(model, data, q, v, wanted) + fc * sign + fv * v + beta
    turns = np.sort(rng.integers(0, substeps, 2))
    delta = noise * rng.choice([-1.0, 1.0], (3, n))
    seen = []

    def acceleration(q, v, error):
        return pin.aba(model, data, q, v, torque + error - fc * sign - fv * v - beta)

    s = h / substeps
    for k in range(substeps):
        error = delta[np.searchsorted(turns, k, side="right")]
        k1 = acceleration(q, v, error)
        k2 = acceleration(q + 0.5 * s * v, v + 0.5 * s * k1, error)
        k3 = acceleration(q + 0.5 * s * (v + 0.5 * s * k1), v + 0.5 * s * k2, error)
        k4 = acceleration(q + s * (v + 0.5 * s * k2), v + s * k3, error)
        q = q + s * v + s * s / 6 * (k1 + k2 + k3)
        v = v + s / 6 * (k1 + 2 * k2 + 2 * k3 + k4)
        seen += [k1, k4]
    effort = np.array([torque, torque])
    log = Measurements([0.0, h], np.array([start[0], q]), np.array([start[1], v]), effort)
    fastest = np.abs(seen).max(axis=0)
    errors = MeasurementErrors(
        n, "motor", noise + 1e-12, 0.0, 0.0, 0.0, np.maximum(60.0, 1.5 * fastest), transition=0.02, stamp=0.0,
        gravity_relative=heavier,
    )  # fmt: skip
    return kin, box, log, errors, fastest, np.sign(v) == sign


def test_no_held_torque_accelerates_an_arm_faster_than_its_equations_allow():
    """Torques that switch within their error, arms anywhere in the box; identifier and checker say the same."""
    closest, ridden, narrower, slack = [], [], 0, 1e-9
    for seed in range(60):
        rng = np.random.default_rng(seed)
        n = 1 + seed % 5
        kin, box, log, e, fastest, forward = held_step(rng, n)
        steps = RowSource(kin, box, e, SampleRun(log, False, 0), ramps=False)._steps
        bound = steps.acceleration[0]
        assert np.all(fastest <= bound * (1.0 + slack))
        view = LogView(log, e, np.zeros(n, bool), 1.0 / np.diff(log.stamps)[0])
        held = box_facts(kin, box, e, Unknowns(np.zeros(n))).held(kin, e)
        checked = view.steps(np.array([0]), held)
        assert np.allclose(checked.acceleration[0], bound, rtol=1e-9)
        assert np.allclose(checked.ride_off, steps.ride_off, rtol=1e-9)
        ridden.append(np.max(np.abs(np.diff(log.q, axis=0) - steps.ride) / steps.ride_off))
        if np.all(bound < e.acceleration) and np.all(forward):
            narrower += 1
            mean = np.abs(np.diff(log.qd, axis=0)[0]) / np.diff(log.stamps)[0]
            closest.append(np.max((fastest - mean) / (bound - mean)))
    assert narrower > 30
    assert max(closest) > 0.3  # without noise or the arm's own motion it would be below the truth
    assert 0.1 < max(ridden) <= 1.0 + slack  # positions by the velocities at both ends


@pytest.mark.parametrize("forgotten", ["noise", "motion"])
def test_a_part_of_the_acceleration_that_is_left_out_is_found(monkeypatch, forgotten):
    lower = held_torque._lower

    def forgetful(size, viscous, rotor, longest, speed, noise, change, known, heavier, *out):
        noise = 0.0 * noise if forgotten == "noise" else noise
        # A step of no length: the arm's own equations change nothing on it.
        longest = 0.0 * longest if forgotten == "motion" else longest
        lower(size, viscous, rotor, longest, speed, noise, change, known, heavier, *out)

    monkeypatch.setattr(held_torque, "_lower", forgetful)
    broken = ridden = 0
    for seed in range(30):
        rng = np.random.default_rng(seed)
        n = 1 + seed % 5
        kin, box, log, e, fastest, _ = held_step(rng, n)
        steps = RowSource(kin, box, e, SampleRun(log, False, 0), ramps=False)._steps
        broken += np.any(fastest > steps.acceleration[0] * (1.0 + 1e-9))
        ridden += np.any(np.abs(np.diff(log.q, axis=0) - steps.ride) > 1.01 * steps.ride_off)
    assert broken > 2
    assert ridden > 2


@pytest.mark.parametrize(
    "unlike", [{"torque_source": "link"}, {"torque_delay": 1e-5}, {"torque_jitter": 1e-5}, {"effort": "sampled"}]
)
def test_where_a_torque_is_not_held_the_declared_acceleration_stays(unlike):
    kin, box, log, *_ = held_step(np.random.default_rng(0), 3)
    more = {"torque_rate": 10.0} if "effort" in unlike else {}
    e = MeasurementErrors(3, **({"torque_source": "motor"} | unlike), torque_abs=0.1, torque_rel=0.0, position=0.0,
                          velocity=0.0, acceleration=60.0, stamp=0.0, **more)  # fmt: skip
    source = RowSource(kin, box, e, SampleRun(log, False, 0), ramps=False)
    assert np.all(source._steps.acceleration == 60.0)
    assert box_facts(kin, box, e, Unknowns(np.zeros(3))).held(kin, e) is None


def tied_run(rng, kind):
    """A motion with accelerations on their bounds, sampled: log, errors, true positions; readings err by ``kind``."""
    n, m, dq = int(rng.integers(1, 4)), 60, 1e-4
    bound, dv = rng.uniform(1, 15, n), float(rng.choice([0.0, 1e-3]))
    motion = Motion(rng, n, 1e-3 * m, bound, pieces=20)
    q, qd = (np.array(x) for x in zip(*(motion.state(1e-3 * k) for k in range(m + 1)), strict=True))
    wrong = {
        "uniform": rng.uniform(-1, 1, q.shape),
        "signs": rng.choice([-1.0, 1.0], q.shape),
        "offset": rng.choice([-1.0, 1.0], n) * np.ones(q.shape),
    }[kind]
    turns = 2.0 * np.pi * rng.integers(-1, 2, (m + 1, 1)) * rng.integers(0, 2, n)  # of a continuous joint, wrapped
    log = Measurements(1e-3 * np.arange(m + 1), q + dq * wrong, qd + dv * rng.choice([-1.0, 1.0], n), 0.0 * q)
    errors = MeasurementErrors(n, "link", 0.0, 0.0, dq * (1 + 1e-9), dv * (1 + 1e-9), bound, stamp=1e-12)
    return log, errors, q, turns


@pytest.mark.parametrize("kind", ["uniform", "signs", "offset"])
def test_velocities_tie_positions_to_each_other(kind):
    """No true position is outside what a sample's neighbours leave of it; identifier and checker say the same."""
    known, broken = [], 0
    for seed in range(40):
        log, errors, q, turns = tied_run(np.random.default_rng(seed), kind)
        states = step_states(log, errors, tied=True)
        assert np.all(np.abs(q - states.q) <= states.off)
        known.append(np.median(states.off) / errors.position[0])
        wrapped = Measurements(log.stamps, log.q + turns, log.qd, log.effort)
        steps = LogView(wrapped, errors, np.ones(errors.n, bool), 1e3).steps(np.arange(len(q) - 1))
        assert np.allclose(steps.off, np.stack([states.off[:-1], states.off[1:]], axis=1), rtol=0, atol=1e-12)
        assert np.allclose(steps.delta.lo, states.delta, rtol=0, atol=1e-12)
        too_sure = tied_positions(
            log.q, errors.position, states.ride - np.diff(log.q, axis=0), 0.3 * states.ride_off, states.wrong
        )
        broken += np.any(np.abs(q - too_sure[0]) > too_sure[1])
    assert np.median(known) < {"uniform": 0.3, "signs": 0.2, "offset": 1.01}[kind]
    assert kind == "offset" or broken > 5


def test_a_log_that_no_motion_gives_keeps_its_readings():
    """Positions that jump by more than their error: neighbours beyond the jump say nothing, in either code."""
    log, errors, *_ = tied_run(np.random.default_rng(3), "uniform")
    q = np.array(log.q)
    q[30:] += 1e-2
    log = Measurements(log.stamps, q, log.qd, log.effort)
    states = step_states(log, errors, tied=True)
    steps = LogView(log, errors, np.zeros(errors.n, bool), 1e3).steps(np.arange(len(q) - 1))
    assert np.all(np.abs(states.q - q) <= errors.position)
    assert np.allclose(steps.off, np.stack([states.off[:-1], states.off[1:]], axis=1), rtol=0, atol=1e-12)
