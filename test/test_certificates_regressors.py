"""Interval regressors: against Pinocchio, against the energy in 40 digits, and as enclosures of whole boxes."""

from __future__ import annotations

import numpy as np
import pinocchio as pin
import pytest
from arm_factory import mass_matrix, positions, random_arm
from hypothesis import given, settings
from hypothesis import strategies as st

from safe_sysid.dynamics import dynamics_of
from safe_sysid.errors import ModelError, ParameterError
from safe_sysid.identification.certificates.interval_dynamics.link_bounds import LinkBounds
from safe_sysid.identification.certificates.interval_dynamics.regressors import (
    PLACEMENT_ERROR,
    interval_kinematics,
    interval_momentum,
    interval_momentum_rate,
)

BOTH = ((interval_momentum, "momentum_regressor"), (interval_momentum_rate, "momentum_rate_regressor"))


def interval_times(lower, upper, theta):
    """Bounds of W theta, up to 1e-13."""
    mid, rad = 0.5 * (lower + upper), 0.5 * (upper - lower)
    return mid @ theta - rad @ np.abs(theta), mid @ theta + rad @ np.abs(theta)


@pytest.mark.parametrize("n", range(1, 10))
def test_points_agree_with_pinocchio(n):
    rng = np.random.default_rng(n)
    kin, model, theta = random_arm(n, rng, slides=0.0 if n % 2 else 0.6)
    rigid, data = theta[: 10 * n], model.createData()
    q, qd = rng.uniform(-3, 3, (5, n)), rng.uniform(-2, 2, (5, n))
    momentum, rate = (f(kin, q, q, qd, qd) for f in (interval_momentum, interval_momentum_rate))
    for k in range(len(q)):
        # C^T qd - g: with Christoffel's C, C^T qd = dH/dt qd - C qd = d(qd^T H qd / 2)/dq.
        c = pin.computeCoriolisMatrix(model, data, q[k], qd[k])
        change = c.T @ qd[k] - pin.computeGeneralizedGravity(model, data, q[k])
        for bounds, expected in ((momentum, mass_matrix(model, q[k]) @ qd[k]), (rate, change)):
            for side in interval_times(bounds[0][k], bounds[1][k], rigid):
                assert np.all(np.abs(side - expected) < 1e-9)


@pytest.mark.parametrize(("n", "slides"), [(1, 0.0), (3, 0.0), (9, 0.0), (1, 1.0), (5, 0.6)])
def test_points_agree_with_the_other_regressors_entry_by_entry(n, slides):
    rng = np.random.default_rng(n)
    kin, _, _ = random_arm(n, rng, slides)
    q, qd = rng.uniform(-3, 3, (10, n)), rng.uniform(-2, 2, (10, n))
    for interval, plain in BOTH:
        lower, upper = interval(kin, q, q, qd, qd)
        expected = getattr(dynamics_of(kin), plain)(q, qd)[:, :, : 10 * n]
        assert np.all(upper - lower < 1e-8)
        assert np.all((lower - 1e-13 <= expected) & (expected <= upper + 1e-13))
        assert np.max(np.abs(0.5 * (lower + upper) - expected)) < 1e-12


class Exact:
    """Kinetic and potential energy of one arm in 40 digits, from positions of moving points alone."""

    def __init__(self, kin):
        self.mp = pytest.importorskip("mpmath")
        # Two differences, in steps of 1e-14 and 1e-12, cost 26 digits: of 40, too few are left to see an exact zero.
        self.mp.mp.dps = 60
        self.kin = kin
        self.n = len(kin.axis)
        self.rotation = [self._orthogonal(r) for r in kin.rotation]
        self.axis = [self.mp.matrix(a.tolist()) / self.mp.norm(self.mp.matrix(a.tolist())) for a in kin.axis]

    def _orthogonal(self, r):
        """Polar factor by Newton's iteration: an exact rotation next to the floats."""
        x = self.mp.matrix(r.tolist())
        for _ in range(6):
            x = (x + (x**-1).T) / 2
        return x

    def frames(self, q):
        mp, out = self.mp, []
        r, p = mp.eye(3), mp.matrix(3, 1)
        for j in range(self.n):
            p = p + r * mp.matrix(self.kin.translation[j].tolist())
            a = self.axis[j]
            k = mp.matrix([[0, -a[2], a[1]], [a[2], 0, -a[0]], [-a[1], a[0], 0]])
            r = r * self.rotation[j]
            if self.kin.sliding[j]:
                p = p + r * a * q[j]
            else:
                r = r * (mp.eye(3) + mp.sin(q[j]) * k + (1 - mp.cos(q[j])) * k * k)
            out.append((r, p))
        return out

    def lagrangian(self, q, qd, theta, weight):
        """L of all links; velocities by differentiating positions of four points per link (a numerical oracle)."""
        mp, step = self.mp, self.mp.mpf(10) ** -14
        ahead = self.frames([a + step * b for a, b in zip(q, qd, strict=True)])
        behind = self.frames([a - step * b for a, b in zip(q, qd, strict=True)])
        here = self.frames(q)
        total = mp.mpf(0)
        for link, ((r1, p1), (r0, p0), (r, p)) in enumerate(zip(ahead, behind, here, strict=True)):
            m, cx, cy, cz, xx, xy, yy, xz, yz, zz = (mp.mpf(float(t)) for t in theta[10 * link : 10 * link + 10])
            half = (xx + yy + zz) / 2
            sigma = mp.matrix([[half - xx, -xy, -xz], [-xy, half - yy, -yz], [-xz, -yz, half - zz]])
            # x = p + r s: the integral of |xdot|^2 needs only int dm, int s dm, int s s^T dm.
            v, w = (p1 - p0) / (2 * step), (r1 - r0) / (2 * step)
            c = mp.matrix([cx, cy, cz])
            moving = w * sigma * w.T
            total += (m * (v.T * v)[0] + 2 * (v.T * w * c)[0] + moving[0, 0] + moving[1, 1] + moving[2, 2]) / 2
            if weight:
                g = mp.matrix(self.kin.gravity.tolist())
                total += (g.T * (m * p + r * c))[0]
        return total


@pytest.mark.parametrize(
    ("n", "slides"), [(1, 0.0), (2, 0.0), pytest.param(4, 0.0, marks=pytest.mark.slow), (1, 1.0), (3, 0.6)]
)
def test_enclose_the_energy_in_40_digits(n, slides):
    rng = np.random.default_rng(n)
    kin, _, _ = random_arm(n, rng, slides)
    exact = Exact(kin)
    mp = exact.mp
    q, qd = rng.uniform(-3, 3, n), rng.uniform(-2, 2, n)
    momentum = interval_momentum(kin, q[None], q[None], qd[None], qd[None])
    rate = interval_momentum_rate(kin, q[None], q[None], qd[None], qd[None])
    columns = sorted(rng.choice(10 * n, min(10 * n, 12), replace=False))
    q_mp, qd_mp = [mp.mpf(float(x)) for x in q], [mp.mpf(float(x)) for x in qd]
    h = mp.mpf(10) ** -12
    for i in range(n):
        for column in columns:
            theta = np.eye(10 * n)[column]

            def along(x, y, amount, i=i):
                moved = list(x)
                moved[i] = moved[i] + amount
                return (moved, y) if x is q_mp else (y, moved)

            value = {}
            for name, x, y, weight in (("p", qd_mp, q_mp, False), ("f", q_mp, qd_mp, True)):
                a = exact.lagrangian(*along(x, y, h), theta, weight)
                b = exact.lagrangian(*along(x, y, -h), theta, weight)
                value[name] = (a - b) / (2 * h)
            # differences are good to some 1e-24: far below the widths
            for name, bounds in (("p", momentum), ("f", rate)):
                low, high = (mp.mpf(float(side[0, i, column])) for side in bounds)
                assert low - mp.mpf("1e-20") <= value[name] <= high + mp.mpf("1e-20"), (name, i, column)
                assert high - low < 1e-10


@settings(max_examples=40, deadline=None)
@given(seed=st.integers(0, 2**31), n=st.integers(1, 9), width=st.floats(1e-9, 1.0), slides=st.sampled_from([0.0, 0.5]))
def test_boxes_enclose_all_their_points_and_smaller_boxes(seed, n, width, slides):
    rng = np.random.default_rng(seed)
    kin, _, _ = random_arm(n, rng, slides)
    q, qd = rng.uniform(-3, 3, n), rng.uniform(-2, 2, n)
    dq, dqd = width * rng.uniform(0, 1, n), width * rng.uniform(0, 1, n)
    where = np.vstack([rng.uniform(-1, 1, (20, 2 * n)), rng.choice([-1.0, 1.0], (20, 2 * n))])
    points_q, points_qd = q + where[:, :n] * dq, qd + where[:, n:] * dqd
    for interval, plain in BOTH:
        lower, upper = interval(kin, (q - dq)[None], (q + dq)[None], (qd - dqd)[None], (qd + dqd)[None])
        value = getattr(dynamics_of(kin), plain)(points_q, points_qd)[:, :, : 10 * n]
        assert np.all((lower - 1e-13 <= value) & (value <= upper + 1e-13))
        inner = interval(
            kin, (q - 0.5 * dq)[None], (q + 0.5 * dq)[None], (qd - 0.5 * dqd)[None], (qd + 0.5 * dqd)[None]
        )
        assert np.all((lower <= inner[0]) & (inner[1] <= upper))


def test_a_box_that_is_a_little_too_small_is_found():
    """The test above can fail: for a point outside, some entry lies outside."""
    rng = np.random.default_rng(5)
    kin, _, _ = random_arm(3, rng)
    q, qd = rng.uniform(-3, 3, 3), rng.uniform(-2, 2, 3)
    lower, upper = interval_momentum(kin, q[None], q[None], qd[None], qd[None])
    value = dynamics_of(kin).momentum_regressor(q + 1e-9, qd)[:, :30]
    assert not np.all((lower[0] <= value) & (value <= upper[0]))


def test_placements_that_are_none_are_refused():
    kin, _, _ = random_arm(3, np.random.default_rng(0))
    bent, mirrored = (kin.rotation * np.array(factors)[:, None, None] for factors in ([1, 1 + 1e-12, 1], [1, 1, -1]))
    for change, words in (
        ({"rotation": bent}, "joint 1: rotation"),
        ({"rotation": mirrored}, "joint 2: rotation"),
        ({"axis": kin.axis * 1.001}, "joint 0: axis"),
    ):
        with pytest.raises(ModelError, match=words):
            interval_kinematics(kin._replace(**change))
    rotation, _, axis, _, _, _ = interval_kinematics(kin)
    assert np.all(rotation[..., 1] - rotation[..., 0] <= 4 * PLACEMENT_ERROR)
    assert np.all((rotation[..., 0] <= kin.rotation) & (kin.rotation <= rotation[..., 1]))
    assert np.all((axis[..., 0] <= kin.axis) & (kin.axis <= axis[..., 1]))


def test_states_that_are_none_are_refused():
    kin, _, _ = random_arm(2, np.random.default_rng(0))
    one = np.ones((1, 2))
    with pytest.raises(ParameterError, match="lower <= upper"):
        interval_momentum(kin, one, 0 * one, one, one)
    for bad in (np.ones((1, 3)), np.full((1, 2), np.nan)):
        with pytest.raises(ParameterError):
            interval_momentum_rate(kin, bad, bad, bad, bad)


@pytest.mark.parametrize(("n", "slides"), [(1, 0.0), (2, 0.0), (5, 0.0), (9, 0.0), (1, 1.0), (2, 0.5), (4, 0.6)])
def test_derivative_bounds_hold_along_random_lines(n, slides):
    """First and second differences of momentum and rate never exceed what LinkBounds says of derivatives."""
    rng = np.random.default_rng(n)
    kin, _, theta = random_arm(n, rng, slides)
    rigid = theta[: 10 * n]
    bounds = LinkBounds(kin, theta, theta)
    for _ in range(40):
        q, qd = positions(kin, rng, 1)[0], rng.uniform(-2, 2, n)
        # A prismatic joint goes from here to an end of its travel at most.
        room = np.where(kin.sliding, np.min(np.abs(kin.travel - q[:, None]), axis=1), 0.3)
        x, y = rng.uniform(0, np.minimum(room, 0.3)), rng.uniform(0, 0.3, n)
        dq, dqd = rng.choice([-1.0, 1.0], n) * x, rng.choice([-1.0, 1.0], n) * y
        b = bounds.over((np.abs(qd) + y)[None], x[None], y[None])
        s = np.linspace(-1, 1, 9)[:, None]
        for plain, zero, one, two in (
            ("momentum_regressor", b.p0, b.p1, b.p2),
            ("momentum_rate_regressor", b.f0, b.f1, b.f2),
        ):
            value = getattr(dynamics_of(kin), plain)(q + s * dq, qd + s * dqd)[:, :, : 10 * n] @ rigid
            assert np.all(np.abs(value) <= zero[0] + 1e-12)
            assert np.all(np.abs(np.diff(value, axis=0)) <= 0.25 * one[0] + 1e-12)
            assert np.all(np.abs(value[2:] - 2 * value[1:-1] + value[:-2]) <= 0.0625 * two[0] + 1e-12)
    assert np.max(np.abs(value)) > 0.005 * np.max(zero)  # not a bound that bounds everything
