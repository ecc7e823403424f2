"""Excitation: regressor columns and adjoints against the full recursion, costs against direct linear algebra."""

from __future__ import annotations

import dataclasses
from functools import partial

import numpy as np
import pytest
from arm_factory import random_arm

from safe_sysid.dynamics import dynamics_of
from safe_sysid.identification.arm.base_parameters import excitable_columns, random_states
from safe_sysid.planning.costs.condition import ConditionCost, payload_scale
from safe_sysid.planning.costs.excitation import payload_regressor, payload_regressor_gradient, regressor_gradient
from safe_sysid.planning.costs.joint_set import KINDS, InformationCost
from safe_sysid.planning.optimiser.family import TrajectoryFamily
from safe_sysid.robot.model import RobotModel


def states(n: int, count: int, rng: np.random.Generator) -> tuple[np.ndarray, ...]:
    return tuple(rng.normal(size=(count, n)) for _ in range(3))


@pytest.mark.parametrize("n", [1, 2, 4, 7, 9])
def test_columns_are_those_of_the_full_regressor(n: int) -> None:
    rng = np.random.default_rng(n)
    kin, _, _ = random_arm(n, rng)
    motion = states(n, 20, rng)
    full = dynamics_of(kin).torque_regressor(*motion)[:, :, 10 * (n - 1) : 10 * n]
    assert np.allclose(payload_regressor(kin, *motion), full, rtol=0, atol=1e-12 * np.abs(full).max())


@pytest.mark.parametrize("n", [1, 3, 7])
def test_adjoints_are_derivatives(n: int) -> None:
    rng = np.random.default_rng(10 + n)
    kin, _, _ = random_arm(n, rng)
    motion = np.stack(states(n, 5, rng), axis=1)
    last = rng.normal(size=(5, n, 10))
    everything = rng.normal(size=(5, n, 14 * n))
    everything[:, :, 10 * n : 11 * n] = 0.0  # Coulomb columns jump; taken as constant

    def by_sample(x: np.ndarray, regressor, weight: np.ndarray) -> np.ndarray:
        return (regressor(*(np.ascontiguousarray(x[:, i]) for i in range(3))) * weight).sum(axis=(1, 2))

    for regressor, gradient, weight in (
        (partial(payload_regressor, kin), payload_regressor_gradient, last),
        (dynamics_of(kin).torque_regressor, regressor_gradient, everything),
    ):
        found = gradient(kin, *(np.ascontiguousarray(motion[:, i]) for i in range(3)), weight)
        for order in range(3):
            for j in range(n):
                step = np.zeros_like(motion)
                step[:, order, j] = 1e-6
                up, down = (by_sample(motion + s * step, regressor, weight) for s in (1, -1))
                expected = (up - down) / 2e-6
                assert np.allclose(found[:, order, j], expected, rtol=1e-6, atol=1e-7 * np.abs(found).max())


def condition_cost(rng: np.random.Generator, n: int = 7, **changes: object) -> ConditionCost:
    kin, _, _ = random_arm(n, rng)
    a = rng.normal(size=(4, 10))
    start = rng.normal(size=(3, n)) * np.array([[1.0], [0.3], [0.3]])
    family = TrajectoryFamily(start, rng.uniform(0.2, 1.0, n), 3.0)
    cost = ConditionCost(kin, family, rng.uniform(0.05, 2.0, 10), 0.01 * a.T @ a, 1.5)
    return dataclasses.replace(cost, **changes)


@pytest.mark.parametrize("window", [1, 8])
@pytest.mark.parametrize("horizon", [1.5, 3.0])
def test_condition_number_is_that_of_the_stacked_rows(window: int, horizon: float) -> None:
    cost = condition_cost(np.random.default_rng(3), window=window, horizon=horizon, executed=np.zeros((10, 10)))
    k = np.linspace(-0.7, 0.9, 7)
    t = (np.arange(128) + 0.5) * horizon / 128
    x = cost.family.trajectory(k).states(t)
    rows = dynamics_of(cost.kinematics).torque_regressor(x[:, 0], x[:, 1], x[:, 2])[:, :, 60:70]
    rows = rows.reshape(128 // window, window, 7, 10).mean(axis=1).reshape(-1, 10)
    values = np.linalg.svd(rows * cost.scale, compute_uv=False)
    exact = values[0] / values[-1]
    assert cost.condition(k) == pytest.approx(exact, rel=1e-6)
    # The p-norms overestimate, by less than 10^(1/8) in both extremes together.
    assert np.log(exact) - 1e-6 <= cost.value(k) <= np.log(exact) + np.log(10.0) / 8


def test_windowed_rows_are_the_momentum_equation() -> None:
    """The mean torque row over a window is (W_m(end) - W_m(start) - integral of W_c) / h for theta_e's columns."""
    cost = condition_cost(np.random.default_rng(4), samples=1500, window=100, executed=np.zeros((10, 10)))
    k = np.linspace(0.8, -0.6, 7)
    trajectory, e = cost.family.trajectory(k), slice(60, 70)
    rows = cost.rows(k) / np.sqrt(0.1)
    for i in (0, 7, 14):
        t = np.linspace(0.1 * i, 0.1 * (i + 1), 2001)
        x = trajectory.states(t)
        change = np.diff(dynamics_of(cost.kinematics).momentum_regressor(x[[0, -1], 0], x[[0, -1], 1]), axis=0)[0]
        rate = np.trapezoid(dynamics_of(cost.kinematics).momentum_rate_regressor(x[:, 0], x[:, 1]), t, axis=0)
        assert np.allclose(rows[i], ((change - rate) / 0.1)[:, e], atol=1e-5)


def test_executed_information_steers_to_what_is_weak() -> None:
    """With everything but one parameter known, the cost ranks trajectories by that one."""
    rng = np.random.default_rng(8)
    executed = np.diag([1e6] * 9 + [0.0])
    cost = condition_cost(rng, scale=np.ones(10), executed=executed)
    ks = rng.uniform(-1, 1, (40, 7))
    # What k adds about the last parameter when the others are known: the Schur complement.
    totals = [cost.total(k) for k in ks]
    told = [g[9, 9] - g[9, :9] @ np.linalg.solve(g[:9, :9], g[:9, 9]) for g in totals]
    order = np.corrcoef(np.argsort(np.argsort([cost.value(k) for k in ks])), np.argsort(np.argsort(told)))[0, 1]
    assert order < -0.95


def information_cost(model: RobotModel, rng: np.random.Generator, **changes: object) -> InformationCost:
    size = model.arm_prior.size
    # A condition number of what nothing has excited is a limit of arithmetic, and its differences are rounding.
    rows = 400 if changes.get("kind") == "arm_condition" else 20
    a = rng.normal(size=(rows, size)) / model.arm_prior.rad.clip(1e-3)
    start = np.stack([np.array(model.settings.home), *(rng.normal(size=(2, model.n)) * 0.2)])
    family, prior = TrajectoryFamily(start, 0.8, 3.0), model.arm_prior
    return dataclasses.replace(InformationCost(model, family, prior, prior, 0.3 * a.T @ a, 1.5), **changes)


@pytest.mark.parametrize("kind", KINDS)
def test_joint_set_costs_are_those_of_the_equations(model: RobotModel, kind: str) -> None:
    """Rows from means over windows; errors from the torque's root mean square over the box, by sampling its moments."""
    rng = np.random.default_rng(9)
    prior = model.arm_prior
    half = rng.uniform(0.2, 1.0, 10) * 0.5 * (prior.payload_upper - prior.payload_lower)
    middle = 0.5 * (prior.payload_upper + prior.payload_lower)
    box = prior.with_payload(middle - half, middle + half)
    cost = information_cost(model, rng, kind=kind, row_weight=0.3, box=box)
    k = rng.uniform(-1, 1, 7)
    m = model.settings.measurement
    t = (np.arange(60) + 0.5) * 1.5 / 60
    x = cost.family.trajectory(k).states(t)
    regressor = dynamics_of(model.kinematics).torque_regressor(x[:, 0], x[:, 1], x[:, 2])
    square = np.einsum("kjp,pq,kjq->kj", regressor, np.outer(box.mid, box.mid) + np.diag(box.rad**2) / 3, regressor)
    error = m.torque_abs + m.torque_rel * np.sqrt(square).reshape(15, 4, 7).mean(axis=1)
    rows = (regressor.reshape(15, 4, 7, 98).mean(axis=1) / error[..., None]).reshape(-1, 98)
    radius = np.maximum(prior.rad, 1e-9)
    information = (np.diag(radius**-2.0) + cost.executed + 0.3 * rows.T @ rows) * np.outer(radius, radius)
    block, known = np.linalg.inv(information)[60:70, 60:70], information[60:70, 60:70]
    now = box.rad[60:70] / radius[60:70]
    if kind == "smallest_eigenvalue":
        exact = -0.5 * np.log(np.linalg.eigvalsh(known * np.outer(now, now))[0])
        assert exact - 1e-6 <= cost.value(k) <= exact + np.log(10.0) / 16
        return
    if kind == "arm_condition":
        base = excitable_columns(random_states(7, dynamics_of(model.kinematics).torque_regressor))
        gram = (cost.executed + 0.3 * rows.T @ rows)[np.ix_(base, base)]
        size = np.sqrt(np.diag(gram))
        exact = 0.5 * np.log(np.linalg.cond(gram / size / size[:, None]))
        assert exact - 0.01 <= cost.value(k) <= exact + np.log(len(base)) / 8
        return
    expected = {
        "width": 0.5 * np.log(np.mean(np.diag(block) * radius[60:70] ** 2 / cost.box.rad[60:70] ** 2)),
        "information": 0.05 * np.linalg.slogdet(block)[1],
        "log_determinant": -0.05 * np.linalg.slogdet(known * np.outer(now, now))[1],
        "arm": -0.05 * np.linalg.slogdet(information)[1],
    }[kind]
    assert cost.value(k) == pytest.approx(expected, rel=1e-7)


def test_errors_do_not_vanish_where_the_torque_of_the_middle_does(model: RobotModel) -> None:
    """Information is not to be had by trusting that the unknown payload weighs what the box's middle says."""
    box = model.arm_prior
    e = box.layout.payload
    cost = information_cost(model, np.random.default_rng(3), executed=np.zeros((98, 98)))
    k = np.zeros(7)
    certain = dataclasses.replace(cost, box=box.with_payload(box.mid[e] - 1e-9, box.mid[e] + 1e-9))
    gained = certain.information(k) - cost.information(k)
    assert np.linalg.eigvalsh(gained)[0] > -1e-9 * np.linalg.norm(gained)
    assert np.trace(certain.information(k)) > 1.1 * np.trace(cost.information(k))


def test_width_turns_to_the_interval_that_is_still_wide(model: RobotModel) -> None:
    """With nine intervals known ten times better than the tenth, the tenth's predicted width is the cost."""
    box = model.arm_prior
    half = 0.5 * (box.payload_upper - box.payload_lower)
    middle = box.payload_lower + half
    for wide in (0, 5):
        now = np.full(10, 10.0)
        now[wide] = 0.01
        cost = information_cost(model, np.random.default_rng(1), executed=np.zeros((98, 98)))
        other = dataclasses.replace(cost, box=box.with_payload(middle - half * now, middle + half * now))
        ks = np.random.default_rng(2).uniform(-1, 1, (10, 7))
        radius = np.maximum(box.rad, 1e-9)
        left = [np.linalg.inv(np.diag(radius**-2.0) + other.information(k))[60 + wide, 60 + wide] for k in ks]
        assert np.array_equal(np.argsort([other.value(k) for k in ks]), np.argsort(left))


def test_scale_keeps_a_column_for_what_is_known(model: RobotModel) -> None:
    box = model.arm_prior
    lower, upper = box.payload_lower.copy(), box.payload_upper.copy()
    lower[3] = upper[3]
    scale = payload_scale(box.with_payload(lower, upper))
    assert np.all(scale > 0.0)
    assert scale[0] == pytest.approx(0.5 * (upper[0] - lower[0]))
