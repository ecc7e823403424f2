"""The judge finds every planted violation, and invents none."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pinocchio as pin
import pytest
from demo_support import PAIR, TICKS, clean_logs, oracle, rig
from hypothesis import given
from hypothesis import strategies as st
from simulation_support import pinocchio_arm

from safe_sysid.apps.judge.evaluation import CLEARANCE_STRIDE, Evaluation, evaluate
from safe_sysid.control.gains.design import design_gains
from safe_sysid.demo.run import _success
from safe_sysid.demo.summarise import not_covered, timing_notes
from safe_sysid.report.run.logs import BRAKING, PlanEntry, RunLogs
from safe_sysid.report.run.summary import VIOLATION_KINDS


def judge(logs: RunLogs, clearance: Callable | None = oracle) -> Evaluation:
    r = rig()
    return evaluate(logs, r.model, r.gains, clearance)


def counts(evaluation: Evaluation) -> dict[str, int]:
    return {kind: n for kind in VIOLATION_KINDS if (n := getattr(evaluation.violations, kind))}


@given(seed=st.integers(0, 2**32 - 1))
def test_nothing_is_invented(seed: int) -> None:
    result = judge(clean_logs(np.random.default_rng(seed)), lambda q: (0.2, PAIR))
    assert counts(result) == {}
    assert result.gaps == ()
    assert result.ok
    assert result.safety.findings == []


def test_a_run_that_has_taught_nothing_is_no_success() -> None:
    """Every limit kept, every bound true, four of four planned, and the arm stood still: mcy is the prior's."""
    logs, prior = clean_logs(), rig().model.arm_prior
    for update in logs.updates:
        update.lower[2], update.upper[2] = prior.payload_lower[2], prior.payload_upper[2]
    result = judge(logs)
    assert result.violations.total == 0
    assert not result.ok
    (gap,) = result.gaps
    assert "identifier: the motion taught nothing about mcy" in gap


def test_a_planner_without_a_plan_says_why() -> None:
    reason = "the only certified plan teaches nothing"
    failed = PlanEntry(0, "no plan that teaches anything", 0.5, reasons=(reason,))
    (gap,) = judge(replace(clean_logs(), plans=(failed,))).gaps
    assert gap == f"planner: not one certified plan: {reason}"


def test_evidence_is_counted() -> None:
    evidence = judge(clean_logs()).safety.evidence
    assert (evidence.ticks, evidence.tracking_ticks, evidence.updates, evidence.plans) == (2400, 2400, 3, 2)
    assert evidence.clearance_samples == 2400 // CLEARANCE_STRIDE + 1  # the last tick as well


@pytest.mark.parametrize("tick", [0, 1177, 2399])
@pytest.mark.parametrize("sign", [-1.0, 1.0])
@pytest.mark.parametrize("joint", [1, 3, 5])
def test_position_outside_its_limit(tick: int, sign: float, joint: int) -> None:
    logs, limits = clean_logs(), rig().model.limits
    border = (limits.position_upper if sign > 0 else limits.position_lower)[joint]
    beyond = np.nextafter(border, sign * np.inf)
    logs.plant.q[tick, joint] = beyond
    logs.controller.q_d[tick, joint] = beyond  # the reference is where the arm is: no tracking error
    result = judge(logs)
    assert counts(result) == {"position": 1}
    assert result.safety.position.joint == rig().model.joint_names[joint]
    assert result.safety.position.percent == pytest.approx(100.0)
    logs.plant.q[tick, joint] = logs.controller.q_d[tick, joint] = border
    assert counts(judge(logs)) == {}


def test_continuous_joints_have_no_position_limit_and_full_turns_of_them_are_no_tracking_error() -> None:
    logs = clean_logs()
    logs.plant.q[:, 0] += 50.0
    logs.controller.q_d[:, 0] += 50.0
    logs.controller.q_d[:, 2] += 2.0 * np.pi
    assert counts(judge(logs)) == {}
    logs.controller.q_d[:, 1] += 2.0 * np.pi  # but one of a joint with limits is
    assert counts(judge(logs)) == {"tracking": 2400}


@pytest.mark.parametrize(("joint", "sign"), [(0, 1.0), (6, -1.0)])
def test_velocity_above_its_limit(joint: int, sign: float) -> None:
    logs, limits = clean_logs(), rig().model.limits
    for tick in (5, 6, 2000):
        logs.plant.qd[tick, joint] = logs.controller.qd_d[tick, joint] = sign * limits.velocity[joint] * (1.0 + 1e-9)
    result = judge(logs)
    assert counts(result) == {"velocity": 3}
    assert "first at 0.005 s" in result.safety.findings[0]


@pytest.mark.parametrize("which", ["commanded", "applied"])
def test_torque_above_its_limit(which: str) -> None:
    logs, limits = clean_logs(), rig().model.limits
    getattr(logs.plant, which)[700, 4] = -limits.torque[4] - 1e-6
    result = judge(logs)
    assert counts(result) == {"torque": 1}
    assert result.safety.torque.joint == rig().model.joint_names[4]
    assert result.safety.torque.time_s == pytest.approx(0.7)


def test_overlap() -> None:
    logs = clean_logs()
    deep = logs.plant.q[1000]
    result = judge(logs, lambda q: (-1e-6, PAIR) if np.array_equal(q, deep) else (0.2, PAIR))
    assert counts(result) == {"clearance": 1}
    assert result.safety.clearance.pair == list(PAIR)
    assert result.safety.clearance.smallest_m == -1e-6
    assert result.safety.clearance.time_s == pytest.approx(1.0)


def test_clearance_below_what_the_certificate_promised() -> None:
    """Plan 0 promises 0.015 + margin, plan 1 0.035 + margin; in the overlap the smaller promise holds."""
    margin = rig().model.settings.planner.clearance_margin
    logs = clean_logs()
    time_of = {tuple(q): t for q, t in zip(logs.plant.q, logs.plant.time, strict=True)}

    def at(distance: float, wanted: float) -> dict[str, int]:
        return counts(judge(logs, lambda q: (distance if abs(time_of[tuple(q)] - wanted) < 1e-9 else 0.2, PAIR)))

    assert at(0.014 + margin, 0.8) == {"clearance": 1}
    assert at(0.016 + margin, 0.8) == {}
    assert at(0.016 + margin, 1.4) == {}  # the tail of plan 0 might be what is tracked
    assert at(0.014 + margin, 1.4) == {"clearance": 1}
    assert at(0.034 + margin, 2.3) == {"clearance": 1}  # at rest at the end of plan 1
    assert at(0.001, 0.2) == {}  # before the first plan nothing is promised
    assert at(-0.001, 0.2) == {"clearance": 1}


def test_contact() -> None:
    logs = clean_logs()
    logs.plant.contacts[[3, 4, 900]] = [1, 4, 2]
    logs = replace(logs, plant=replace(logs.plant, contact_names=("forearm / post",)))
    result = judge(logs)
    assert counts(result) == {"contact": 3}
    assert "forearm / post" in result.safety.findings[0]


@pytest.mark.parametrize("joint", range(7))
@pytest.mark.parametrize("kind", ["position", "velocity"])
def test_tracking_error_above_its_proved_bound(joint: int, kind: str) -> None:
    r = rig()
    logs = clean_logs()
    if kind == "position":
        logs.plant.q[1500, joint] = logs.controller.q_d[1500, joint] - 1.001 * r.gains.e_bound[joint]
    else:
        logs.plant.qd[1500, joint] = logs.controller.qd_d[1500, joint] + 1.001 * r.gains.de_bound[joint]
    result = judge(logs)
    assert counts(result) == {"tracking": 1}
    worst = result.safety.tracking_position if kind == "position" else result.safety.tracking_velocity
    assert worst.joint == r.model.joint_names[joint]
    assert worst.percent == pytest.approx(100.1)


def test_energy_above_v_max_although_every_joint_is_within_its_bound() -> None:
    """All joints at once near their own bounds: only the true inertia matrix tells."""
    r = rig()
    logs = clean_logs()
    logs.plant.q[1500] = logs.controller.q_d[1500]
    logs.plant.qd[1500] = logs.controller.qd_d[1500] - 0.49 * r.gains.de_bound
    result = judge(logs)
    assert counts(result) == {"tracking": 1}
    assert result.safety.tracking_velocity.percent < 100.0 < result.safety.tracking_energy.percent


def test_energy_is_that_of_the_true_inertia() -> None:
    """Against Pinocchio's mass matrix."""
    r = rig()
    logs = clean_logs()
    arm = pinocchio_arm(r.model, r.theta)
    data = arm.createData()
    energy = []
    for k in range(0, 2400, 200):
        q, qd = logs.plant.q[k], logs.plant.qd[k]
        rr = logs.controller.qd_d[k] - qd + r.gains.K_r * (logs.controller.q_d[k] - q)
        upper = np.triu(pin.crba(arm, data, q))
        inertia = upper + np.triu(upper, 1).T
        energy.append(0.5 * rr @ inertia @ rr / r.gains.V_max)
    np.testing.assert_allclose(judge(logs).curves.energy_share[::200], energy, rtol=1e-9)


def test_no_tracking_is_claimed_where_nothing_is_guaranteed() -> None:
    logs = clean_logs()
    logs.controller.guaranteed[:100] = False
    logs.controller.state[:100] = "idle"
    logs.plant.q[:100] += 1e-2
    assert counts(judge(logs)) == {}
    assert judge(logs).ok


@pytest.mark.parametrize("side", ["lower", "upper"])
@pytest.mark.parametrize("parameter", range(10))
def test_bounds_without_the_truth(parameter: int, side: str) -> None:
    logs = clean_logs()
    truth = logs.plant.theta_true[rig().model.arm_prior.layout.payload]
    last = logs.updates[-1]
    bound = getattr(last, side).copy()
    bound[parameter] = np.nextafter(truth[parameter], np.inf if side == "lower" else -np.inf)
    logs = replace(logs, updates=(*logs.updates[:-1], replace(last, **{side: bound})))
    result = judge(logs)
    assert counts(result) == {"bounds": 1}
    assert "update 3" in result.safety.findings[0]


@pytest.mark.parametrize("number", [0, 1, 2])
def test_bounds_that_grow(number: int) -> None:
    logs = clean_logs()
    updates = list(logs.updates)
    before = rig().model.arm_prior.payload_upper if number == 0 else updates[number - 1].upper
    upper = updates[number].upper.copy()
    upper[7] = np.nextafter(before[7], np.inf)
    updates[number] = replace(updates[number], upper=upper)
    assert counts(judge(replace(logs, updates=tuple(updates)))) == {"bounds": 1}


def test_nan_is_never_a_pass() -> None:
    logs = clean_logs()
    logs.controller.q_d[10, 0] = np.nan
    assert counts(judge(logs)) == {"tracking": 1}
    logs = clean_logs()
    logs.plant.q[10, 0] = np.nan
    assert not judge(logs).ok
    logs = clean_logs()
    assert not judge(logs, lambda q: (np.nan, None)).ok
    logs = clean_logs()
    nan = logs.updates[1].lower.copy()
    nan[0] = np.nan
    updates = (logs.updates[0], replace(logs.updates[1], lower=nan), logs.updates[2])
    assert "bounds" in counts(judge(replace(logs, updates=updates)))


def put(logs: RunLogs, *places: tuple[np.ndarray, Any, Any]) -> RunLogs:
    """Other values at some places of the arrays."""
    for array, where, value in places:
        array[where] = value
    return logs


LACKING: dict[str, Callable[[RunLogs], RunLogs]] = {
    "no updates": lambda logs: replace(logs, updates=()),
    "no plans": lambda logs: replace(logs, plans=()),
    "no plant": lambda logs: replace(logs, plant=None, missing=("plant.npz: not written",)),
    "no controller": lambda logs: replace(logs, controller=None, missing=("controller.npz: not written",)),
    "truth outside the prior": lambda logs: put(logs, (logs.plant.theta_true, 0, 2.0 * logs.plant.theta_true[0])),
    "other stamps": lambda logs: put(logs, (logs.controller.time, ..., logs.controller.time + 0.0005)),
    "ticks not logged": lambda logs: put(logs, (logs.controller.guaranteed, slice(800, 1600), False)),
    "watchdog": lambda logs: put(logs, (logs.plant.mode, slice(1800, 1900), BRAKING)),
    "fault": lambda logs: put(
        logs,
        (logs.controller.state, slice(2000, None), "fault"),
        (logs.controller.guaranteed, slice(2000, None), False),
    ),
}


@pytest.mark.parametrize("what", LACKING)
def test_missing_evidence_is_no_success(what: str) -> None:
    result = judge(LACKING[what](clean_logs()))
    assert counts(result) == {}
    assert result.gaps
    assert not result.ok


def test_clearance_that_nobody_measured_is_no_success() -> None:
    assert not judge(clean_logs(), None).ok


def test_one_of_each_is_found_together() -> None:
    logs, r = clean_logs(), rig()
    logs.plant.q[100, 1] = logs.controller.q_d[100, 1] = r.model.limits.position_upper[1] + 0.1
    logs.plant.qd[200, 0] = logs.controller.qd_d[200, 0] = 3.0
    logs.plant.applied[300, 0] = 60.0
    logs.plant.contacts[400] = 1
    logs.plant.q[500, 3] -= 0.02
    update = logs.updates[0]
    logs = replace(logs, updates=(replace(update, lower=update.upper), *logs.updates[1:]))
    hit = logs.plant.q[600]
    result = judge(logs, lambda q: (-0.01, PAIR) if np.array_equal(q, hit) else (0.2, PAIR))
    found = counts(result)
    # The next update is not inside the spoiled one either.
    assert found.pop("bounds") == 2
    assert found == dict.fromkeys(("position", "velocity", "torque", "clearance", "contact", "tracking"), 1)
    assert {text.partition(":")[0] for text in result.safety.findings} == set(VIOLATION_KINDS)


def test_timing_that_was_not_kept_is_told() -> None:
    logs, r = clean_logs(), rig()
    # Gains for real time: in lock-step the delay is zero.
    r = replace(r, gains=design_gains(r.model))
    assume, tubes = r.gains.assumptions, (r.gains,)
    assert timing_notes(logs, tubes, lockstep=False) == []
    kept = np.full(TICKS, 0.5 * assume.hold_max)
    late = np.where(np.arange(TICKS) % 4 == 0, 3.0 * assume.hold_max, kept)
    delay = np.full(TICKS, 0.5 * assume.delay_max)
    inside = replace(logs, plant=replace(logs.plant, delay=delay, age=kept))
    assert timing_notes(inside, tubes, lockstep=False) == []
    (note,) = timing_notes(replace(logs, plant=replace(logs.plant, delay=delay, age=late)), tubes, lockstep=False)
    assert "25.0% of torques acted later than timing.hold_max_s" in note
    outside = replace(logs, plant=replace(logs.plant, delay=delay, age=late))
    assert not_covered(outside, tubes, lockstep=False) == np.count_nonzero(late > assume.hold_max)
    assert not_covered(outside, tubes, lockstep=True) == not_covered(inside, tubes, lockstep=False) == 0
    assert str(_success(3)) == "every bound held, nothing was violated; 3 late commands not covered by the proof"
    assert str(_success(0)) == "every bound held, nothing was violated"
    # What the controller has said of its claim is not said better afterwards, by whichever record.
    assert logs.controller is not None
    lost = replace(logs, controller=replace(logs.controller, claim_lost=("1.5 s: too late",)))
    for lockstep in (True, False):
        assert timing_notes(lost, tubes, lockstep) == ["timing: the tracking bound is not proved since 1.5 s: too late"]
        assert not_covered(lost, tubes, lockstep) == 1
    assert timing_notes(replace(logs, plant=replace(logs.plant, delay=late, age=late)), tubes, lockstep=True) == []
