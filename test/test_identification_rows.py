"""Momentum rows: the true parameters satisfy every one, for any arm, noise and source; what is left out is found."""

import dataclasses
import itertools

import numpy as np
import pytest
from identification_plant import noisy, random_arm, random_consistent_box, simulate, wavy_plans

from safe_sysid.dynamics import dynamics_of
from safe_sysid.errors import ParameterError
from safe_sysid.identification.certificates.log_view import LogView
from safe_sysid.identification.equations import momentum
from safe_sysid.identification.equations.measurement_errors import MeasurementErrors, sensor_prior, torque_interval
from safe_sysid.identification.equations.measurements import Measurements, SampleScreen
from safe_sysid.identification.equations.momentum import RowSource
from safe_sysid.identification.equations.remainders import magnitudes, motion_bounds
from safe_sysid.identification.equations.row_errors import ERROR_CAUSES
from safe_sysid.identification.equations.windows import WindowCutter


class Case:
    """A random arm, its box and a short log."""

    def __init__(self, seed, n, dt=1e-3, duration=0.8, v_c=0.01, coulomb=1.0, chatter=1.0, substeps=2):
        rng = np.random.default_rng(seed)
        self.kin, theta = random_arm(rng, n, coulomb=coulomb)
        self.theta, self.box = random_consistent_box(rng, theta, n)
        self.v_c, self.rng, self.n, self.dt = v_c, rng, n, dt
        plans = wavy_plans(rng, n, duration)
        self.log = simulate(self.kin, self.theta, v_c, plans, dt=dt, substeps=substeps, rng=rng, chatter=chatter)

    def errors(self, **changes):
        declared = {
            "torque_source": "motor", "torque_abs": 1e-7, "torque_rel": 0.0, "position": 0.0, "velocity": 0.0,
            "acceleration": 1.02 * self.log.largest_acceleration, "transition": self.v_c, "stamp": 0.0,
        }  # fmt: skip
        return MeasurementErrors(self.n, **(declared | changes))

    def rows(self, data, errors, lengths=(0.1,), ramp=0.0, stride=1.0):
        parts = []
        for run in SampleScreen(np.zeros(self.n, bool), 1.0).runs(data):
            cut = WindowCutter(lengths, self.dt, stride, errors.margin(self.dt)).cut(run)
            source = RowSource(self.kin, self.box, errors, cut.tail, ramp > 0.0)
            parts += [source.rows(windows, ramp) for windows in cut.windows]
        return momentum.MomentumRows.concatenate(parts)

    def ratio(self, rows):
        """|error| / w of every row, for the true parameters."""
        assert len(rows) > 0
        assert np.all(rows.slack > 0.0)
        return np.abs(rows.matrix @ self.theta - rows.target) / rows.slack


@pytest.fixture(scope="module")
def case():
    return Case(3, 4)


@pytest.mark.parametrize("seed", [0, 1, 3, 6, *(pytest.param(k, marks=pytest.mark.slow) for k in (2, 4, 5, 7))])
def test_truth_satisfies_every_row_of_random_arms(seed):
    rng = np.random.default_rng(100 + seed)
    n = 1 + seed % 7
    case = Case(seed, n, dt=float(rng.choice([1e-3, 2e-3, 5e-3])), v_c=float(rng.choice([0.01, 0.05])))
    a, b = float(rng.uniform(0, 0.2)), float(rng.uniform(0, 0.2))
    for mode in ("uniform", "random_sign", "constant", "grow", "shrink"):
        dq, dv = float(rng.choice([0.0, 1e-4])), float(rng.choice([0.0, 2e-3]))
        data = noisy(case.log, a, b, rng, mode, position=dq, velocity=dv)
        errors = case.errors(torque_abs=a + 1e-9, torque_rel=b, position=dq, velocity=dv, stamp=1e-9)
        for lengths, ramp in (((0.1,), 0.0), ((0.02, 0.05), 0.0), ((0.1,), 0.02), ((0.03,), 0.015), ((0.005,), 0.0)):
            assert case.ratio(case.rows(data, errors, lengths, ramp)).max() <= 1.0


@pytest.mark.parametrize("ramp", [0.0, 0.03])
def test_quadrature_alone_holds_at_coarse_sampling(ramp):
    # No noise: what is left is what integration between samples leaves, at 10 ms with torque jumps every sample.
    case = Case(11, 3, dt=1e-2, chatter=8.0, coulomb=0.0, substeps=10, duration=2.0)
    rows = case.rows(noisy(case.log, 0.0, 0.0, case.rng, "none"), case.errors(torque_abs=1e-12), (0.1, 0.04), ramp)
    ratio = case.ratio(rows)
    assert ratio.max() <= 1.0
    assert ratio.max() > 0.005  # a bound a thousand times too large would prove nothing


def test_dropping_a_term_of_w_is_found():
    """Each cause alone, removed from w, must leave the truth outside of some row: then every term is needed."""
    rough = Case(11, 3, dt=1e-2, chatter=8.0, coulomb=0.0, substeps=10, duration=2.0)
    slow = Case(5, 3, coulomb=3.0, chatter=0.0)
    attacks = {
        "torque": (slow, {"torque_abs": 0.1}, {"a": 0.1, "mode": "random_sign"}, 0.0),
        "coulomb": (slow, {}, {}, 0.0),
        "quadrature": (rough, {"torque_abs": 0.0}, {}, 0.0),
        "momentum": (slow, {"velocity": 5e-3}, {"velocity": 5e-3, "mode": "random_sign"}, 0.0),
        # Of means velocities say less than positions.
        "friction": (slow, {"position": 2e-5, "effort": "mean"}, {}, 0.0),
    }
    for cause, (case, declared, noise, ramp) in attacks.items():
        noise = {"a": 0.0, "b": 0.0, "mode": "none"} | noise
        data = noisy(case.log, rng=case.rng, **noise)
        # Position errors that change their sign far from the windows' ends: no neighbour of these gives them away.
        side = np.where(np.floor(data.stamps / 0.1 + 0.5) % 2.0, 1.0, -1.0)[:, None]
        data = dataclasses.replace(data, q=data.q + declared.get("position", 0.0) * side)
        rows = case.rows(data, case.errors(**declared), (0.1,), ramp)
        error = np.abs(rows.matrix @ case.theta - rows.target)
        assert np.all(error <= rows.slack), cause
        without = rows.slack - rows.parts[:, ERROR_CAUSES.index(cause)]
        assert np.any(error > without), f"nothing breaks without the term {cause!r}"


def left_rectangles(samples, *more, honest=momentum.step_states):
    return dataclasses.replace(honest(samples, *more), centre=samples.q[:-1], mean=samples.qd[:-1])


@pytest.mark.parametrize(
    ("name", "wrong", "noise", "arm"),
    [
        # Noise scaled by the measured torque, which shrank.
        ("torque_interval", lambda tau_m, e: (tau_m, 0.02 + 0.2 * np.abs(tau_m)), (0.02, 0.2, "shrink"), {"n": 4}),
        ("step_states", left_rectangles, (0.0, 0.0, "none"), {"n": 4}),
        # The sign of friction taken from samples.
        (
            "coulomb_sign", lambda data, steps, e: np.sign(steps.mean), (0.0, 0.0, "none"),
            {"seed": 5, "n": 3, "coulomb": 3.0, "chatter": 0.0},
        ),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)  # fmt: skip
def test_a_wrong_formula_is_found(monkeypatch, name, wrong, noise, arm):
    case = Case(**({"seed": 3} | arm))
    a, b, mode = noise
    data, errors = noisy(case.log, a, b, case.rng, mode), case.errors(torque_abs=a + 1e-9, torque_rel=b)
    assert case.ratio(case.rows(data, errors)).max() <= 1.0
    monkeypatch.setattr(momentum, name, wrong)
    assert case.ratio(case.rows(data, errors)).max() > 1.0


def test_ramps_make_the_velocity_error_harmless(case):
    dv = 5e-3
    data = noisy(case.log, 0.0, 0.0, case.rng, "random_sign", velocity=dv)
    with_ends = case.rows(data, case.errors(velocity=dv))
    on_ramps = case.rows(data, case.errors(velocity=dv), ramp=0.02)
    assert case.ratio(on_ramps).max() <= 1.0
    assert np.median(on_ramps.slack) < 0.2 * np.median(with_ends.slack)


def test_link_side_torque_sees_neither_friction_nor_rotor(case):
    n = case.n
    data = noisy(case.log, 0.01, 0.02, case.rng, "random_sign", link=True)
    errors = case.errors(torque_source="link", torque_abs=0.011, torque_rel=0.02)
    rows = case.rows(data, errors)
    assert case.ratio(rows).max() <= 1.0
    assert not np.any(rows.matrix[:, 10 * n : 13 * n])
    assert not np.any(rows.parts[:, ERROR_CAUSES.index("coulomb")])
    as_motor = case.rows(data, case.errors(torque_abs=0.011, torque_rel=0.02))
    assert case.ratio(as_motor).max() > 1.0


def test_a_link_side_sensor_may_or_may_not_see_the_actuators_offset(case):
    errors = case.errors(torque_source="link", torque_abs=1e-6, torque_bias=0.02)
    prior = sensor_prior(case.box, errors)
    offset = case.theta[13 * case.n :]
    for seen in (offset + 0.02, np.full(case.n, 0.02)):
        log = dataclasses.replace(case.log, link_torque=case.log.link_torque - offset + seen)
        rows = case.rows(noisy(log, 0.0, 0.0, case.rng, link=True), errors)
        theta = np.concatenate([case.theta[: 13 * case.n], seen])  # the last are what equations call beta
        assert prior.contains(theta)
        assert np.all(np.abs(rows.matrix @ theta - rows.target) <= rows.slack)


def test_torque_interval_is_exact():
    rng = np.random.default_rng(0)
    tau = rng.normal(0, 2.0, 4000) * rng.choice([1.0, 0.02], 4000)
    for a, b in ((0.05, 0.0), (0.0, 0.3), (0.05, 0.3), (0.5, 0.9)):
        e = MeasurementErrors(1, "motor", a, b, 0.0, 0.0, 1.0)
        for sign in (-1.0, 1.0):
            measured = tau + sign * (a + b * np.abs(tau))
            middle, half = torque_interval(measured, e)
            assert np.all(np.abs(tau - middle) <= half * (1 + 1e-12) + 1e-12)
            # Both ends are torques that could have given this measurement: the interval is not larger than it must be.
            for end in (middle - half, middle + half):
                assert np.all(np.abs(measured - end) <= a + b * np.abs(end) + 1e-9)


def test_commanded_torque_takes_either_meaning_of_relative():
    e = MeasurementErrors(1, "command", 0.05, 0.1, 0.0, 0.0, 1.0)
    command = np.linspace(-5, 5, 101)
    middle, half = torque_interval(command, e)
    for tau in (command + 0.05 + 0.1 * np.abs(command), command - 0.05 - 0.1 * np.abs(command)):
        assert np.all(np.abs(tau - middle) <= half + 1e-12)


def test_remainders_bound_sampled_derivatives():
    for seed in range(5):
        rng = np.random.default_rng(seed)
        n = int(rng.integers(1, 7))
        kin, theta = random_arm(rng, n)
        dynamics = dynamics_of(kin)
        theta, box = random_consistent_box(rng, theta, n)
        rigid = theta.copy()
        rigid[10 * n :] = 0.0
        v, x, y = (rng.uniform(0, 2, n) * rng.integers(0, 2, n) for _ in range(3))
        bound = np.empty((6, n))
        motion_bounds(magnitudes(kin, box), v, x, y, x, y, bound)
        closest = np.zeros(6)
        for _ in range(150):
            q, qd = rng.uniform(-np.pi, np.pi, n), v * rng.choice([-1, 1], n)
            dq, dv = x * rng.choice([-1, 1], n), y * rng.choice([-1, 1], n)
            h = 1e-4
            values = np.array([
                [(f(q + s * h * dq, qd + s * h * dv) @ rigid) for s in (-1, 0, 1)]
                for f in (dynamics.momentum_regressor, dynamics.momentum_rate_regressor)
            ])  # fmt: skip
            first = (values[:, 2] - values[:, 0]) / (2 * h)
            second = (values[:, 2] - 2 * values[:, 1] + values[:, 0]) / h**2
            got = np.abs(np.stack([values[:, 1], first, second], axis=1).reshape(6, n))
            assert np.all(got <= bound * (1 + 1e-6) + 1e-4)
            closest = np.maximum(closest, np.max(got / (bound + 1e-3), axis=1))
        assert closest[0] > 0.02 or not v.any()


def test_windows_that_contradict_the_declared_acceleration_are_left_out(case):
    data = noisy(case.log, 0.0, 0.0, case.rng, "none")
    qd = data.qd.copy()
    qd[130, 1] += 1.0  # 0.03 s into the second window; a step of 1 rad/s within 1 ms
    rows = case.rows(Measurements(data.stamps, data.q, qd, data.effort), case.errors())
    assert rows.rejected_acceleration == 1
    assert not np.any((rows.start < 0.13) & (rows.end > 0.13))
    assert np.any(rows.start >= 0.199)


# --- screening -----------------------------------------------------------------------------------------------------


def log_of(stamps, n=2):
    stamps = np.asarray(stamps, float)
    t = np.nan_to_num(stamps)[:, None] * np.ones(n)
    return Measurements(stamps, np.sin(t), np.cos(t), t)


def test_bad_samples_are_counted_and_end_a_run():
    stamps = np.arange(40) * 1e-3
    data = log_of(stamps)
    q = data.q.copy()
    q[5, 1] = np.nan
    order = list(range(40))
    order[12], order[13] = 13, 12  # swapped on the wire
    order.insert(20, 19)  # sent twice
    del order[26]  # lost
    screen = SampleScreen(np.zeros(2, bool), 1e-3)
    runs = screen.runs(Measurements(stamps[order], q[order], data.qd[order], data.effort[order]))
    assert dict(screen.rejected) == {"not_finite": 1, "out_of_order": 1, "duplicate": 1, "gap": 2}
    for run in runs:
        assert np.all(np.abs(np.diff(run.samples.stamps) - 1e-3) < 1e-9)
        index = slice(run.first, run.first + len(run.samples))
        assert np.array_equal(run.samples.stamps, stamps[order][index])
    assert not any(run.continues for run in runs)


@pytest.mark.parametrize("declared", [1e-3, 2e-3, 5e-3])
def test_a_lost_message_ends_a_run_whatever_rate_is_declared(declared):
    """Screen and checker: a step of two periods looks usual at half the rate, but its torque is not known."""
    rng = np.random.default_rng(5)
    stamps = np.cumsum(rng.uniform(0.9e-3, 1.1e-3, 300))
    lost = [3, 17, 40, 170, 171]
    data = log_of(np.delete(stamps, lost))
    gaps = [2, 15, 37, 166]  # the samples before
    screen = SampleScreen(np.zeros(2, bool), declared)
    runs = [run for part in (data[:9], data[9:31], data[31:100], data[100:]) for run in screen.runs(part)]
    assert screen.rejected["gap"] == len(gaps)
    assert [run.first for run in runs if not run.continues] == [0, *(k + 1 for k in gaps)]
    errors = MeasurementErrors(2, "motor", 0.1, 0.0, 0.0, 0.0, 1e3, 0.01, 0.0)
    view = LogView(data, errors, np.zeros(2, bool), 1.0 / declared)
    assert [k for k in range(len(data) - 1) if view.refusal(k, k + 1)] == gaps


def test_runs_and_windows_do_not_depend_on_how_the_log_is_fed():
    rng = np.random.default_rng(4)
    stamps = np.cumsum(rng.uniform(0.8e-3, 1.2e-3, 400))
    stamps[200:] += 0.01
    data = log_of(stamps)

    def windows(parts):
        screen, cutter, out = (SampleScreen(np.zeros(2, bool), 1e-3), WindowCutter((0.02, 0.03), 1e-3, 0.5, 1), [])
        for run in (run for part in parts for run in screen.runs(part)):
            tail, cut = cutter.cut(run)
            assert np.array_equal(tail.samples.stamps, stamps[tail.first : tail.first + len(tail.samples)])
            for i, j in np.concatenate(cut):
                assert i >= 1
                assert j + 1 < len(tail.samples)
                out.append((tail.samples.stamps[i], tail.samples.stamps[j]))
        return sorted(out), screen.rejected

    whole, rejected = windows([data])
    cuts = [0, 1, 2, 50, 51, 170, 230, 231, 399, 400]
    assert windows([data[a:b] for a, b in itertools.pairwise(cuts)]) == (whole, rejected)
    assert rejected == {"gap": 1}
    gap = (stamps[199], stamps[200])
    assert not any(a < gap[1] and b > gap[0] for a, b in whole)
    assert all(0.0 < b - a < 0.0325 for a, b in whole)
    assert len(whole) > 40


def test_continuous_joints_are_unwrapped_across_calls():
    t = np.arange(3000) * 1e-3
    angle = np.stack([4.0 * t, -3.0 * t], axis=1)
    wrapped = (angle + np.pi) % (2 * np.pi) - np.pi
    data = Measurements(t, wrapped, np.zeros_like(angle), np.zeros_like(angle))
    screen = SampleScreen(np.array([True, True]), 1e-3)
    got = [run.samples.q for part in (data[:700], data[700:]) for run in screen.runs(part)]
    assert len(got) == 2
    assert np.allclose(np.concatenate(got), angle, atol=1e-12)
    unwrapped = SampleScreen(np.array([False, True]), 1e-3).runs(data)[0].samples.q
    assert np.array_equal(unwrapped[:, 0], wrapped[:, 0])


@pytest.mark.parametrize(
    "arrays",
    [
        (np.zeros(3), np.zeros((4, 2)), np.zeros((3, 2)), np.zeros((3, 2))),
        (np.zeros(3), np.zeros((3, 2)), np.zeros((3, 3)), np.zeros((3, 2))),
        (np.zeros((3, 1)), np.zeros((3, 2)), np.zeros((3, 2)), np.zeros((3, 2))),
        (np.zeros(3), np.zeros(3), np.zeros(3), np.zeros(3)),
    ],
)
def test_shapes_of_measurements_are_checked(arrays):
    with pytest.raises(ParameterError, match="Measurements"):
        Measurements(*arrays)


def test_measurements_are_read_only():
    with pytest.raises(ValueError, match="read-only"):
        log_of([0.0, 1.0]).q[0, 0] = 1.0
