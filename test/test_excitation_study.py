"""The studies of excitation: PSO's observation matrices, correlations, runs, and what tables say of them."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from arm_factory import random_arm

from safe_sysid.dynamics import dynamics_of
from safe_sysid.planning.costs.observation import MomentumObservation, condition_number, torque_observation
from safe_sysid.robot.loading import load_robot
from safe_sysid.studies.experiments.conditions import RANDOM, CostCase, run_case
from safe_sysid.studies.experiments.correlation import Correlations, FourierDraw, motion_conditions
from safe_sysid.studies.experiments.results.tables import TABLE_FIVE, condition_rows

pytestmark = pytest.mark.unproved

SHORT = FourierDraw(duration=1.0, base=1.0, harmonics=3, coefficient=1.0)


def motion(n: int, seed: int) -> tuple[np.ndarray, ...]:
    return SHORT.motion(np.linspace(-1.0, 1.0, n), np.random.default_rng(seed))


def test_fourier_motions_are_derivatives_of_each_other() -> None:
    times, q, qd, qdd = motion(4, 0)
    h = times[1] - times[0]
    assert np.allclose(np.gradient(q, h, axis=0)[1:-1], qd[1:-1], atol=1e-3)
    assert np.allclose(np.gradient(qd, h, axis=0)[1:-1], qdd[1:-1], atol=1e-2)
    assert np.allclose(q[0], q[-1], atol=1e-9)  # the base period is the duration


@pytest.mark.parametrize("h", [1, 7, 250])
@pytest.mark.parametrize("n", [1, 3, 7])
def test_momentum_rows_are_equation_21(n: int, h: int) -> None:
    """Window by window and sample by sample, as the paper writes it."""
    kin, _, _ = random_arm(n, np.random.default_rng(n))
    times, q, qd, _ = motion(n, n)
    e = slice(10 * (n - 1), 10 * n)
    found = MomentumObservation(kin, times, q, qd).rows(h)
    windows = (len(times) - 1) // h
    assert found.shape == (windows * n, 10)
    momentum = dynamics_of(kin).momentum_regressor(q, qd)[:, :, e]
    rate = dynamics_of(kin).momentum_rate_regressor(q, qd)[:, :, e]
    for w in (0, windows // 2, windows - 1):
        i = w * h
        row = momentum[i + h] - momentum[i]
        for j in range(i, i + h):
            row = row - rate[j] * (times[j + 1] - times[j])
        assert np.allclose(found[w * n : (w + 1) * n], row, rtol=0, atol=1e-11 * np.abs(momentum).max())


def test_trapezoids_give_the_torques_integral_and_euler_does_not() -> None:
    """The law behind the equation: Y is the integral of W over the window."""
    n, h = 5, 100
    kin, _, _ = random_arm(n, np.random.default_rng(1))
    times, q, qd, qdd = motion(n, 1)
    observed = MomentumObservation(kin, times, q, qd)
    columns = torque_observation(kin, q, qd, qdd).reshape(-1, n, 10)
    full = dynamics_of(kin).torque_regressor(q, qd, qdd)[:, :, 10 * (n - 1) : 10 * n]
    assert np.allclose(columns, full, atol=1e-12 * np.abs(full).max())
    integral = np.stack([np.trapezoid(columns[i : i + h + 1], times[i : i + h + 1], axis=0) for i in (0, 400)])
    exact, euler = (observed.rows(h, rule).reshape(-1, n, 10)[[0, 4]] for rule in ("trapezoid", "euler"))
    assert np.abs(exact - integral).max() < 1e-4 * np.abs(integral).max()
    assert np.abs(euler - integral).max() > 20.0 * np.abs(exact - integral).max()


def test_condition_number_is_that_of_the_columns_as_scaled() -> None:
    rows = np.random.default_rng(0).normal(size=(40, 10)) * np.logspace(-2, 1, 10)
    assert condition_number(rows) == pytest.approx(np.linalg.cond(rows), rel=1e-9)
    scale = np.logspace(2, -1, 10)
    assert condition_number(rows, scale) == pytest.approx(np.linalg.cond(rows * scale), rel=1e-9)
    assert condition_number(np.eye(10) * (np.arange(10) > 0)) == np.inf


def test_correlations_repeat_and_do_not_depend_on_how_many_motions_there_are() -> None:
    model = load_robot("kinova_gen3")
    motions = [motion_conditions(model, 5, i, (1, 50), SHORT) for i in range(4)]
    torque, *momentum = (np.array(part) for part in zip(*motions, strict=True))
    again = motion_conditions(model, 5, 2, (1, 50), SHORT)
    assert all(np.array_equal(a, b) for a, b in zip(again, motions[2], strict=True))
    four = Correlations(torque, *momentum)
    # A window of one sample is the torque regressor, nearly.
    assert np.allclose(four.momentum[:, 0], four.torque, rtol=2e-2)
    expected = np.corrcoef(four.torque, four.momentum[:, 1])[0, 1]
    assert four.pearson()[1] == pytest.approx(expected)
    assert np.all(np.abs(four.spearman("trapezoid")) <= 1.0 + 1e-12)


def record(cost: str, seed: int, final: float, **changes: object) -> dict[str, object]:
    case = CostCase(cost, seed=seed)
    widths = np.full((2, 10), 0.5)
    widths[-1] = final
    base = {"widths": widths.tolist(), "prior": [1.0] * 10, "inside": True, "refusals": []}
    return {**dataclasses.asdict(case), **base, "condition": 1.0 + final, "condition_scaled": 3.0, **changes}


def test_condition_numbers_stand_beside_the_papers() -> None:
    records = [record("width", s, w, payload="4lb") for s, w in enumerate((1.0, 2.0, 9.0))]
    records += [record(RANDOM, 0, 4.0, payload="4lb"), record("width", 0, 1.0, payload="2.6lb")]
    odd, four = condition_rows(records)
    assert four.ours == {"width": 3.0, RANDOM: 5.0}
    assert four.paper == TABLE_FIVE["4lb"]
    assert four.runs == (3, 1)
    assert np.isnan(odd.paper[0])


@pytest.mark.slow
def test_one_run_of_random_plans() -> None:
    found = run_case(CostCase(RANDOM, seed=1, plans=1))
    assert found["inside"]
    assert found["planned"] == 1
    assert not found["refusals"]
    assert np.log(np.divide(found["widths"][-1], found["prior"])).mean() < -0.5
    assert 1.0 < found["condition"] < np.inf
