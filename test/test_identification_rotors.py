"""Rotors on moving links in the equations of identification: columns, remainders, rows against spinning bodies."""

from itertools import product

import numpy as np
import pytest
from arm_factory import random_arm as any_arm
from identification_events import CASES, Attack, SmoothAttack
from identification_plant import geared

from safe_sysid.dynamics import dynamics_of
from safe_sysid.dynamics.momentum_columns import momentum_columns
from safe_sysid.identification.equations.linearisation import DERIVATIVES, derivative_bounds
from safe_sysid.identification.equations.remainders import magnitudes, motion_bounds
from safe_sysid.robot.model import NO_MOTORS
from safe_sysid.robot.parameters import ParameterBox

REGRESSORS = ("momentum_regressor", "momentum_rate_regressor")


def coupled(values, kin, own=True):
    """Columns (.., n, 14 n) of the links and of what motors add to those of Ia, without ``diag(qd)``."""
    n = len(kin.axis)
    plain = kin._replace(motors=NO_MOTORS)
    geared_too, without = (getattr(dynamics_of(x), values[0])(*values[1:]) for x in (kin, plain))
    columns = (geared_too - without)[:, 12 * n + kin.motors.joint]
    if not own:
        columns[kin.motors.joint, np.arange(len(kin.motors.joint))] = 0.0
    return np.hstack([without[:, : 10 * n], columns])


@pytest.mark.parametrize("slides", [0.0, 0.4])
@pytest.mark.parametrize("n", [2, 4, 9])
def test_columns_and_their_derivatives(n, slides):
    rng = np.random.default_rng(50 + n)
    kin, _, theta = any_arm(n, rng, slides)
    kin = geared(rng, kin)
    size = 10 * n + len(kin.motors.joint)
    mid = np.concatenate([theta[: 10 * n], theta[12 * n + kin.motors.joint]])
    rad = 0.1 * np.abs(mid)
    low = np.where(kin.sliding, kin.travel[:, 0], -3.0)
    high = np.where(kin.sliding, kin.travel[:, 1], 3.0)
    states, step = list(zip(rng.uniform(low, high, (2, n)), rng.uniform(-2, 2, (2, n)), strict=True)), 1e-5
    for own, (q, qd) in product((1.0, 0.0), states):
        bounds = np.zeros((len(DERIVATIVES), n, max(n, 3)))
        slopes = np.zeros((2, *bounds.shape))  # given and writable, as the identifier does: else compiled anew
        derivative_bounds(kin, mid, rad, own, True, False, q, qd, bounds, slopes)
        columns = np.zeros((2, n, size))
        momentum_columns(kin, kin.gravity.copy(), q, qd, own, *columns)
        for found, f in zip(columns, REGRESSORS, strict=True):
            np.testing.assert_allclose(found, coupled((f, q, qd), kin, own > 0.0), rtol=0, atol=1e-11)
        for j, (kind, (f, x)) in product(range(n), enumerate(product(REGRESSORS, (1.0, 0.0)))):
            d = np.eye(n)[j] * step
            ends = [coupled((f, q + s * x * d, qd + s * (1 - x) * d), kin, own > 0.0) for s in (1, -1)]
            slope = (ends[0] - ends[1]) / (2 * step)
            most = np.abs(slope @ mid) + np.abs(slope) @ rad
            np.testing.assert_allclose(bounds[kind, :, j], most, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("own", [True, False])
@pytest.mark.parametrize("slides", [0.0, 0.4])
def test_remainders_bound_sampled_derivatives_of_the_reaction_alone(slides, own):
    """Links without mass: else their bounds would hide a term that is missing."""
    closest = np.zeros(6)
    for seed in range(8):
        rng = np.random.default_rng(seed)
        n = int(rng.integers(2, 8))
        kin, _, theta = any_arm(n, rng, slides)
        kin = geared(rng, kin)._replace(gravity=np.zeros(3))
        theta[: 12 * n], theta[13 * n :] = 0.0, 0.0
        moving = 12 * n + kin.motors.joint
        v, x, y = (rng.uniform(0, 2, n) * rng.integers(0, 2, n) for _ in range(3))
        bound = np.empty((6, n))
        motion_bounds(magnitudes(kin, ParameterBox(theta, theta), own), v, x, y, x, y, bound)
        low = np.where(kin.sliding, kin.travel[:, 0], -3.0)
        high = np.where(kin.sliding, kin.travel[:, 1], 3.0)

        def value(f, q, qd, kin=kin, theta=theta, n=n, moving=moving):
            return coupled((f, q, qd), kin, own)[:, 10 * n :] @ theta[moving]

        for _ in range(60):
            q, qd = rng.uniform(low, high), v * rng.choice([-1, 1], n)
            dq, dv = x * rng.choice([-1, 1], n), y * rng.choice([-1, 1], n)
            h = 1e-4
            found = []
            for f in REGRESSORS:
                at = [value(f, q + s * h * dq, qd + s * h * dv) for s in (-1, 0, 1)]
                found += [at[1], (at[2] - at[0]) / (2 * h), (at[2] - 2 * at[1] + at[0]) / h**2]
            assert np.all(np.abs(found) <= bound * (1 + 1e-6) + np.array(2 * [[1e-7], [1e-6], [1e-5]]))
            closest = np.maximum(closest, np.max(np.abs(found) / (bound + 1e-3), axis=1))
    assert np.all(closest > [0.9, 0.5, 0.2, 0.3, 0.2, 0.1]), closest


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize(("kind", "link"), [(Attack, {}), (SmoothAttack, {}), (SmoothAttack, {"link": True})])
def test_rows_hold_for_arms_with_spinning_bodies(kind, link, name):
    largest, wrong = 0.0, 0.0
    for seed in range(6):
        attack = kind(seed, 2 + seed % 5, motors=True, period=5e-3, coulomb=0.3, **link)
        e = attack.errors(**CASES[name])
        for ramp, shortest in ((0.0, 4), (0.02, 7)):
            windows = np.array([[3, shortest], [4, 14], [5, 30], [10, 33]])
            signs = attack.rng.choice([-1.0, 1.0], (3 * attack.n + 1, len(attack.t)))
            largest = max(largest, np.abs(attack.ratios(e, signs, windows, ramp)).max())
            if wrong <= 1.5:
                kin, attack.kin = attack.kin, attack.kin._replace(motors=NO_MOTORS)
                wrong = max(wrong, np.abs(attack.ratios(e, signs, windows, ramp)).max())
                attack.kin = kin
    assert largest <= 1.0
    assert wrong > 1.5, "a truth with gear reaction of which nothing is declared must break equations"
