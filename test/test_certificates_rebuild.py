"""Rows rebuilt from logs: they hold for the truth and imply what the identifier says; bad windows are refused."""

from __future__ import annotations

import dataclasses
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from identification_plant import geared, noisy, random_arm, random_consistent_box, simulate, wavy_plans

from safe_sysid.dynamics import dynamics_of
from safe_sysid.identification.certificates.interval_dynamics import step_bounds as step_bounds_module
from safe_sysid.identification.certificates.interval_dynamics.arrays import IntervalArray, added, exactly, inflate
from safe_sysid.identification.certificates.interval_dynamics.derivatives import derivatives_at
from safe_sysid.identification.certificates.interval_dynamics.regressors import interval_kinematics
from safe_sysid.identification.certificates.log_view import LogView, true_torque
from safe_sysid.identification.certificates.rebuild import RowRebuilder, Window
from safe_sysid.identification.equations.measurement_errors import MeasurementErrors
from safe_sysid.identification.equations.measurements import Measurements
from safe_sysid.identification.equations.momentum import momentum_rows
from safe_sysid.identification.equations.row_errors import ERROR_CAUSES
from safe_sysid.robot.unknowns import Unknowns

WINDOWS = [(20, 120), (25, 26), (37, 38), (64, 66), (120, 160), (100, 200)]
FULL = {
    "torque_bias": 0.1, "torque_drift": 0.02, "torque_delay": 1e-3, "torque_jitter": 1e-4, "gravity_angle": 0.01,
    "gravity_relative": 1e-3,
}  # fmt: skip
SAMPLED = {"effort": "sampled", "torque_rate": 1000.0, "jerk": 500.0, "torque_jitter": 1e-4}


def values(interval, box):
    """Lower and upper bound of ``interval . theta`` over a box."""
    corners = [getattr(interval, a) * getattr(box, b) for a in ("lo", "hi") for b in ("lower", "upper")]
    return np.minimum.reduce(corners).sum(), np.maximum.reduce(corners).sum()


def case(n, source="motor", position=0.0, velocity=0.0, stamp=1e-9, more=None, motors=False):
    rng = np.random.default_rng(n)
    kin, theta = random_arm(rng, n)
    kin = geared(rng, kin) if motors else kin
    theta, box = random_consistent_box(rng, theta, n)
    log = simulate(kin, theta, 0.0, wavy_plans(rng, n, 0.25), rng=rng)
    bound = 1.01 * log.largest_acceleration
    errors = MeasurementErrors(n, source, 0.05, 0.02, position, velocity, bound, 0.0, stamp, **(more or {}))
    data = noisy(log, 0.05, 0.02, rng, "random_sign", position, velocity, link=source == "link")
    return kin, theta, box, errors, data


def rebuilder_of(kin, box, errors, data, windows, ramp=0.0, continuous=False, rate=1000.0):
    view = LogView(data, errors, np.full(errors.n, continuous), rate)
    wanted = [Window(a, b, ramp) for a, b in windows if b - a > 1 or ramp == 0.0]
    assert all(view.refusal(w.first, w.last) is None for w in wanted)
    return wanted, RowRebuilder(kin, view, box, wanted, Unknowns(np.zeros(len(kin.axis))))


def rebuild(kin, box, errors, data, windows, **more):
    wanted, rebuilder = rebuilder_of(kin, box, errors, data, windows, **more)
    return wanted, [rebuilder.rows(w, np.arange(errors.n)) for w in wanted]


def broken(kin, theta, box, errors, data, windows, **more):
    """How many rows the true parameters break."""
    point = dataclasses.replace(box, lower=theta, upper=theta)
    found = [row for rows in rebuild(kin, point, errors, data, windows, **more)[1] for row in rows.values()]
    ranges = [(*values(row.matrix, point), row) for row in found]
    return sum(high < row.lower or low > row.upper for low, high, row in ranges)


REBUILT = [
    (1, "motor", 0.0, 0.0, 0.0, 1e-9, None),
    (2, "command", 1e-5, 1e-3, 0.01, 1e-9, None),
    (3, "link", 1e-5, 1e-3, 0.0, 1e-9, None),
    (4, "motor", 0.0, 0.0, 0.0, 1e-9, FULL),
    (4, "motor", 1e-5, 1e-2, 0.01, 1e-5, FULL),
    (5, "motor", 1e-6, 1e-3, 0.01, 1e-7, None),
    (5, "link", 1e-6, 1e-3, 0.01, 1e-7, SAMPLED),
    (6, "motor", 1e-5, 1e-2, 0.0, 1e-5, SAMPLED),
    (6, "motor", 1e-5, 1e-2, 0.01, 1e-5, SAMPLED),
    (7, "motor", 0.0, 0.0, 0.0, 1e-9, None),
    (9, "motor", 1e-5, 5e-3, 0.02, 1e-9, {"gravity_angle": 0.05}),
]


@pytest.mark.parametrize(
    ("n", "source", "position", "velocity", "ramp", "stamp", "more", "motors"),
    [
        *((*case, True) for case in REBUILT),
        # Without motors the rows are shorter: two of each kind of torque by default, the others with --all.
        *(
            pytest.param(*case, False, marks=() if k in (1, 2, 7, 9) else pytest.mark.slow)
            for k, case in enumerate(REBUILT)
        ),
    ],
)
def test_what_the_log_gives_implies_what_the_identifier_says(n, source, position, velocity, ramp, stamp, more, motors):
    """For all parameters of the box: two derivations, one by intervals, of the same rows."""
    kin, theta, box, errors, data = case(n, source, position, velocity, stamp, more, motors)
    windows, rebuilt = rebuild(kin, box, errors, data, WINDOWS, ramp=ramp)
    rows = momentum_rows(kin, box, errors, data, [(w.first, w.last) for w in windows], ramp)
    assert len(rows) == n * len(windows)
    ratios = []
    for k in range(len(rows)):
        row = rebuilt[k // n][k % n]
        low, high = values(exactly(rows.matrix[k]) - row.matrix, box)
        assert high - low <= 1e-6 * rows.slack[k]
        assert rows.target[k] - rows.slack[k] <= row.lower + low
        assert row.upper + high <= rows.target[k] + rows.slack[k]
        ratios.append(0.5 * (row.upper - row.lower) / (rows.slack[k] - rows.parts[k, ERROR_CAUSES.index("rounding")]))
        low, high = values(row.matrix, dataclasses.replace(box, lower=theta, upper=theta))
        assert row.lower <= high
        assert low <= row.upper
    # The two slacks differ by the identifier's room for rounding only: what contradicts the checker's rows contradicts
    # the identifier's.
    assert min(ratios) > 1.0 - 1e-8


def test_a_smaller_error_than_was_made_is_noticed():
    """Teeth: noise on its bound breaks rows that were rebuilt with 15 % less declared."""
    kin, theta, box, errors, data = case(3)
    steps = [(k, k + 1) for k in range(20, 200)]
    assert broken(kin, theta, box, errors, data, steps) == 0
    small = dataclasses.replace(errors, torque_abs=0.85 * errors.torque_abs, torque_rel=0.85 * errors.torque_rel)
    assert broken(kin, theta, box, small, data, steps) > 10


def test_each_part_of_the_error_is_needed(monkeypatch):
    """With the truth known exactly and no noise, dropping the quadrature breaks rows of long steps."""
    rng = np.random.default_rng(2)
    kin, theta = random_arm(rng, 3)
    log = simulate(kin, theta, 0.0, wavy_plans(rng, 3, 1.0), dt=1e-2, substeps=20, rng=rng)
    errors = MeasurementErrors(3, "motor", 1e-9, 0.0, 0.0, 0.0, 1.05 * log.largest_acceleration, 0.0, 1e-12)
    data = noisy(log, 0.0, 0.0, rng)
    _, box = random_consistent_box(rng, theta, 3)
    arguments, steps = (kin, theta, box, errors, data), [(k, k + 20) for k in range(0, 80, 5)]
    assert broken(*arguments, steps, rate=100.0) == 0
    true = step_bounds_module.derivatives_at
    monkeypatch.setattr(step_bounds_module, "derivatives_at", lambda *a: type(true(*a))(*(0.0 * x for x in true(*a))))
    far = step_bounds_module.LinkBounds.over
    monkeypatch.setattr(
        step_bounds_module.LinkBounds,
        "over",
        lambda *a: type(far(*a))(*(0.0 * getattr(far(*a), f) for f in far(*a).__dataclass_fields__)),
    )
    assert broken(*arguments, steps, rate=100.0) > 0


@pytest.mark.parametrize("n", [1, 3, 6])
def test_derivatives_are_those_of_the_regressors(n):
    rng = np.random.default_rng(n)
    kin, theta = random_arm(rng, n)
    q, qd, step = rng.uniform(-3, 3, n), rng.uniform(-2, 2, n), 1e-6
    rigid = theta[: 10 * n]
    d = derivatives_at(
        interval_kinematics(kin), exactly(q[None]).stacked(), exactly(qd[None]).stacked(),
        exactly(rigid).stacked(), True, True, True,
    )  # fmt: skip

    def value(regressor, x, y):
        return getattr(dynamics_of(kin), regressor)(x, y)[:, : 10 * n] @ rigid

    for name, regressor, of_q in (
        ("p_q", "momentum_regressor", True),
        ("p_qd", "momentum_regressor", False),
        ("f_q", "momentum_rate_regressor", True),
        ("f_qd", "momentum_rate_regressor", False),
    ):
        for j in range(n):
            e = step * np.eye(n)[j]
            ends = [value(regressor, q + s * e * of_q, qd + s * e * (not of_q)) for s in (1, -1)]
            numeric = np.abs(ends[0] - ends[1]) / (2 * step)
            np.testing.assert_allclose(getattr(d, name)[0, :, j], numeric, atol=1e-6)
    for c in range(3):
        other = kin._replace(gravity=kin.gravity + np.eye(3)[c])
        moved = dynamics_of(other).momentum_rate_regressor(q, qd)[:, : 10 * n] @ rigid
        numeric = np.abs(moved - value("momentum_rate_regressor", q, qd))
        np.testing.assert_allclose(d.f_g[0, :, c], numeric, atol=1e-9)


def test_wrapped_positions_give_the_same_rows():
    kin, _, box, errors, data = case(3)
    turns = 2.0 * np.pi * np.random.default_rng(0).integers(-3, 4, data.q.shape)
    wrapped = dataclasses.replace(data, q=data.q + turns)
    _, plain = rebuild(kin, box, errors, data, WINDOWS)
    _, other = rebuild(kin, box, errors, wrapped, WINDOWS, continuous=True)
    for a, b in zip(plain, other, strict=True):
        for j, row in a.items():
            assert np.all(np.abs(row.matrix.lo - b[j].matrix.lo) < 1e-9)
            assert abs(row.lower - b[j].lower) < 1e-9
            assert abs(row.upper - b[j].upper) < 1e-9


def test_windows_that_are_none_are_refused():
    _, _, _, errors, data = case(2)
    stamps, q, qd, effort = (getattr(data, name).copy() for name in ("stamps", "q", "qd", "effort"))
    qd[50, 1] = np.nan
    stamps[60] = stamps[59]
    stamps[70] = stamps[40]
    stamps[80:] += 0.5
    stamps[90:] -= 0.2  # the clock jumps back: everything until it has caught up is rejected
    view = LogView(Measurements(stamps, q, qd, effort), errors, np.zeros(2, bool), 1000.0)
    assert view.refusal(0, 49) is None
    assert view.refusal(61, 69) is None
    assert view.refusal(80, 89) is None
    for first, last, why in (
        (45, 55, "sample 50 was rejected: not finite"),
        (55, 65, "sample 60 was rejected: out of order or a duplicate"),
        (65, 75, "sample 70 was rejected: out of order"),
        (75, 85, "gap of 0.501"),
        (95, 105, "sample 95 was rejected: out of order"),
        (10, 10, "first < last"),
        (-1, 10, "0 <= first"),
        (240, 260, "beyond the log"),
    ):
        assert why in str(view.refusal(first, last)), (first, last)
    late = dataclasses.replace(errors, stamp=6e-4)
    assert "stamp error" in LogView(data, late, np.zeros(2, bool), 1000.0).refusal(0, 5)


def test_contradicted_acceleration_is_found():
    kin, _, box, errors, data = case(2)
    qd = data.qd.copy()
    qd[100:] += 1.0
    jumping = dataclasses.replace(data, qd=qd)
    windows, rebuilder = rebuilder_of(kin, box, errors, jumping, [(80, 120), (20, 60)])
    assert rebuilder.contradiction(windows[0]) in (99, 100)
    assert rebuilder.contradiction(windows[1]) is None


def test_delay_asks_for_the_torque_beside_the_window():
    kin, _, box, errors, data = case(2, more=FULL)
    _, found = rebuild(kin, box, errors, data, [(0, 20), (10, 30), (230, 250)])
    assert [rows is None for rows in found] == [True, False, True]


@given(
    tau=st.floats(-50, 50), sign=st.floats(-1, 1), a=st.floats(0, 1), b=st.floats(0, 0.9), bias=st.floats(0, 1),
    at=st.floats(-1, 1), command=st.booleans(),
)  # fmt: skip
@settings(max_examples=300, deadline=None)
def test_true_torque_holds_the_torque(tau, sign, a, b, bias, at, command):
    errors = MeasurementErrors(1, "command" if command else "motor", a, b, 0.0, 0.0, 1.0, torque_bias=np.array([bias]))
    measured = tau + at * bias + sign * (a + b * abs(tau))
    found = true_torque(np.array([[measured]]), errors)
    assert found.lo[0, 0] - 1e-12 <= tau + at * bias <= found.hi[0, 0] + 1e-12


@given(seed=st.integers(0, 2**31))
@settings(max_examples=200, deadline=None)
def test_interval_arrays_hold_exact_results(seed):
    rng = np.random.default_rng(seed)
    a, b = (rng.normal(size=4) * 10.0 ** rng.integers(-8, 8, 4) for _ in range(2))
    x, y = exactly(a), exactly(b)
    exact = [Fraction(float(v)) for v in a], [Fraction(float(v)) for v in b]

    def holds(found: IntervalArray, values):
        return all(
            Fraction(float(lo)) <= v <= Fraction(float(hi))
            for lo, hi, v in zip(found.lo, found.hi, values, strict=True)
        )

    pairs = list(zip(*exact, strict=True))
    assert holds(x + y, [u + v for u, v in pairs])
    assert holds(x - y, [u - v for u, v in pairs])
    assert holds(x * y, [u * v for u, v in pairs])
    assert holds(-x, [-u for u in exact[0]])
    assert holds(x / exactly(np.abs(b)), [u / abs(v) for u, v in pairs])
    total = (x * y).total()
    assert Fraction(float(total.lo)) <= sum(u * v for u, v in pairs) <= Fraction(float(total.hi))


def test_upper_bounds_of_sums_and_products_are_upper_bounds():
    rng = np.random.default_rng(0)
    for count in (1, 7, 5000):
        x = rng.uniform(0, 1, (count, 3)) * 10.0 ** rng.integers(-9, 9, (count, 3))
        exact = [sum(Fraction(float(v)) for v in column) for column in x.T]
        assert all(Fraction(float(a)) >= b for a, b in zip(added(x), exact, strict=True))
        assert np.all(added(x) <= x.sum(axis=0) * (1.0 + 1e-11))
    a, b, c = rng.uniform(0, 1, (3, 500))
    product = [Fraction(float(x)) * Fraction(float(y)) + Fraction(float(z)) for x, y, z in zip(a, b, c, strict=True)]
    assert all(Fraction(float(x)) >= y for x, y in zip(inflate(a * b + c), product, strict=True))
