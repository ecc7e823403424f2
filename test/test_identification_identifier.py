"""The identifier on simulated Kinova logs: truth inside, nested, honest about failure; noise aimed at its bounds."""

import dataclasses

import highspy
import numpy as np
import pytest
from identification_plant import exciting_plans, noisy, simulate

from safe_sysid.errors import ParameterError
from safe_sysid.identification.bounds.programs import Programs
from safe_sysid.identification.equations import momentum
from safe_sysid.identification.equations.measurement_errors import MeasurementErrors
from safe_sysid.identification.equations.measurements import Measurements
from safe_sysid.identification.equations.stream import MomentumStream, default_ramp, default_windows
from safe_sysid.identification.identifier import METHODS, Identifier, UpdateStatus
from safe_sysid.robot import ParameterBox, load_robot
from safe_sysid.robot.parameters import pseudo_inertia
from safe_sysid.simulation.arms import draw_truth
from safe_sysid.simulation.payloads import dumbbell

MODES = ("uniform", "random_sign", "constant", "grow", "shrink")


def log_of(model, seed, payload=8, n_plans=1, mode="uniform", t_f=2.0):
    rng = np.random.default_rng(seed)
    theta = draw_truth(model, dumbbell(payload), rng, mode)
    plans = exciting_plans(np.array(model.settings.home), rng, n_plans=n_plans, t_f=t_f, t_p=1.0)
    return theta, simulate(model.kinematics, theta, model.friction_transition_velocity, plans, rng=rng, chatter=0.5)


@pytest.fixture(scope="module")
def case(model):
    return log_of(model, 0)


@pytest.fixture(scope="module")
def errors(model):
    return MeasurementErrors.from_model(model)


def measured(case, mode="uniform", seed=1, samples=None):
    """A case's log, its first samples if need be, with noise of the declared size."""
    return noisy(case[1], 0.05, 0.025, np.random.default_rng(seed), mode)[:samples]


def fed(model, errors, data, **options):
    """An identifier with a log in it."""
    identifier = Identifier(model, errors, **options)
    identifier.add(data)
    return identifier


def follow(identifier, data, theta, step=0.5):
    """Feed a log update by update; the truth must be inside and boxes nested at every one."""
    last, results = identifier.box, []
    for start in np.arange(0.0, data.stamps[-1], step):
        identifier.add(data[(data.stamps > start - (start == 0.0)) & (data.stamps <= start + step)])
        result = identifier.update()
        assert result.status is UpdateStatus.OK, result.message
        assert result.box.contains(theta)
        assert result.box.is_inside(last)
        assert result.box.seq == last.seq + 1
        assert np.all((result.box.payload_lower <= result.nominal) & (result.nominal <= result.box.payload_upper))
        assert np.array_equal(np.delete(result.box.lower, range(60, 70)), np.delete(last.lower, range(60, 70)))
        last = result.box
        results.append(result)
    return results


@pytest.mark.parametrize(
    "mode", [pytest.param(mode, marks=() if mode == "shrink" else pytest.mark.slow) for mode in MODES]
)
def test_truth_inside_and_boxes_nested_after_every_update(model, errors, case, mode):
    results = follow(Identifier(model, errors), measured(case, mode), case[0], 0.7)
    prior = model.arm_prior.payload_upper - model.arm_prior.payload_lower
    assert results[-1].widths[0] < 0.5 * prior[0]
    assert results[-1].nominal_consistent


@pytest.mark.parametrize(("dq", "dv"), [pytest.param(0.0, 5e-3, marks=pytest.mark.slow), (1e-4, 1e-3)])
def test_state_errors_are_carried(model, errors, case, dq, dv):
    theta, log = case
    declared = dataclasses.replace(errors, position=dq, velocity=dv)
    data = noisy(log, 0.05, 0.025, np.random.default_rng(2), "random_sign", position=dq, velocity=dv)
    follow(Identifier(model, declared), data, theta, 1.0)


def test_corner_arms_and_light_payloads(model, errors):
    for seed, payload in ((1, 4), (2, 6)):
        corner = log_of(model, seed, payload, mode="corner", t_f=1.0)
        follow(Identifier(model, errors), measured(corner, "grow", seed), corner[0], 1.0)


def test_noise_aimed_at_a_bound_touches_but_does_not_cross(model, errors, case, monkeypatch):
    """Signs of the noise follow the multipliers: the bound is pushed onto the truth. With a smaller w it crosses."""
    theta, log = case
    a, b, window = 0.05, 0.15, (0.05,)
    declared = dataclasses.replace(errors, torque_rel=b, acceleration=1.05 * log.largest_acceleration)
    # The arm itself known exactly (a box with 88 flat sides), and nothing of the payload: only noise is in the way.
    room, payload = np.array([6.0] + 9 * [2.0]), theta[60:70]
    box = ParameterBox(theta, theta).with_payload(payload - room, payload + room)
    model = dataclasses.replace(model, arm_prior=box)

    def aim(proof, index, sign):
        """Signs (N, n) that raise the lower (sign > 0) or lower the upper bound: those of the rows' multipliers."""
        rows, y = proof.rows, sign * proof.row_multipliers[index - 60 if sign > 0 else index - 50]  # a minimiser's
        signs = np.zeros(log.torque.shape)
        for value, start, end, joint in zip(y, rows.start, rows.end, rows.joint, strict=True):
            signs[(log.stamps > start + 1e-6) & (log.stamps < end + 1e-6), joint] += np.sign(value)
        return np.sign(signs)

    def update(data):
        return fed(model, declared, data, windows=window, method="lp").update()

    attacked = []
    for index, sign in ((63, 1.0), (60, -1.0)):
        data = noisy(log, a, b, None, "none")
        distance = []
        for _ in range(4):
            result = update(data)
            assert result.status is UpdateStatus.OK
            assert result.box.contains(theta)
            distance.append(abs((result.box.lower if sign > 0 else result.box.upper)[index] - theta[index]))
            attacked.append(data)
            data = noisy(log, a, b, None, "none", signs=aim(result.proof, index, sign))
        assert distance[-1] < 0.12 * distance[0]  # the attack bites

    interval = momentum.torque_interval

    def too_narrow(tau_m, e):
        middle, half = interval(tau_m, e)
        return middle, 0.85 * half

    monkeypatch.setattr(momentum, "torque_interval", too_narrow)
    for data in (attacked[3], attacked[7]):
        result = update(data)
        assert result.status is UpdateStatus.EMPTY_SET or not result.box.contains(theta)


def test_update_without_data_keeps_the_box(model, errors):
    identifier = Identifier(model, errors)
    result = identifier.update()
    assert result.status is UpdateStatus.NO_DATA
    assert result.box is identifier.box
    assert result.box.identity == "0:0"


def test_a_payload_that_changes_is_an_empty_set_that_names_joint_and_window(model, errors, case):
    other = log_of(model, 0, payload=4, t_f=1.0)
    second, identifier = measured(other), fed(model, errors, measured(case, samples=1000))
    good = identifier.update()
    assert good.box.contains(case[0])
    identifier.add(Measurements(second.stamps + 10.0, second.q, second.qd, second.effort))
    result = identifier.update()
    assert result.status is UpdateStatus.EMPTY_SET
    assert result.box is good.box  # the last set stands
    assert "joint_" in result.message
    assert "window" in result.message
    assert identifier.update().status is UpdateStatus.EMPTY_SET  # and stays so until
    box = identifier.reset()
    assert box.identity == "1:0"
    assert np.array_equal(box.upper, model.arm_prior.upper)
    identifier.add(second)
    result = identifier.update()
    assert result.status is UpdateStatus.OK
    assert result.box.identity == "1:1"
    assert result.box.contains(other[0])


def test_a_solver_that_fails_is_said_and_the_last_box_stands(model, errors, case, monkeypatch):
    data = measured(case)
    identifier = fed(model, errors, data[:500])
    good = identifier.update()
    identifier.add(data[500:1000])
    for lie in (highspy.HighsModelStatus.kTimeLimit, highspy.HighsModelStatus.kInfeasible):
        monkeypatch.setattr(Programs, "_run", lambda *_, lie=lie: lie)
        result = identifier.update()
        assert result.status is UpdateStatus.SOLVER_FAILED
        assert result.box is good.box
    monkeypatch.undo()
    result = identifier.update()
    assert result.status is UpdateStatus.OK
    assert result.box.is_inside(good.box)
    assert result.box.contains(case[0])


def test_bad_samples_are_counted_and_harmless(model, errors, case):
    data = measured(case, samples=1000)
    effort, qd = data.effort.copy(), data.qd.copy()
    effort[400, 2] = np.nan
    qd[700, 1] += 3.0  # a glitch
    order = np.delete(np.arange(len(data)), np.arange(900, 930))
    effort[900:931] = 1e3  # what is in the gap must never be used
    broken = Measurements(data.stamps[order], data.q[order], qd[order], effort[order])
    identifier = fed(model, errors, broken[:899])
    identifier.add(broken[899:])
    result = identifier.update()
    assert result.status is UpdateStatus.OK
    assert result.box.contains(case[0])
    assert result.rejected["not_finite"] == 1
    assert result.rejected["gap"] == 1
    assert result.rejected["acceleration"] >= 1
    with pytest.raises(ParameterError, match="joints"):
        identifier.add(Measurements(np.zeros(1), np.zeros((1, 3)), np.zeros((1, 3)), np.zeros((1, 3))))


def test_defaults_follow_the_declared_errors(model, errors):
    assert default_windows(model, errors) == (0.1, 0.02, 0.001)
    assert default_ramp(0.1, errors) == 0.0
    noisy_velocity = dataclasses.replace(errors, velocity=1e-3)
    assert default_windows(model, noisy_velocity)[-1] == 0.002
    both = dataclasses.replace(errors, position=1e-4, velocity=5e-3)
    assert default_windows(model, both) == (0.5, 0.2, 0.1, 0.02, 0.001)
    assert default_ramp(0.1, noisy_velocity) > 0.0
    assert default_ramp(0.1, dataclasses.replace(noisy_velocity, position=1e-3)) == 0.0


@pytest.mark.slow
def test_widths_after_four_exciting_plans(model, errors):
    rng = np.random.default_rng(5)
    theta = draw_truth(model, dumbbell(8), rng)
    plans = exciting_plans(np.array(model.settings.home), rng)
    log = simulate(model.kinematics, theta, model.friction_transition_velocity, plans, rng=rng)
    data = noisy(log, 0.05, 0.025, rng, "uniform")
    widths = follow(Identifier(model, errors), data, theta, 1.5)[-1].widths
    assert np.all(widths <= np.array([0.75, 0.05, 0.05, 0.16, *[0.36] * 6]))


# --- the proof -------------------------------------------------------------------------------------------------------


def proved(proof):
    """(20,) what the multipliers prove, by the formulas of proof.py, in extended precision and without our own code."""
    rows, cuts, size = proof.rows, proof.cuts, proof.box.size
    payload = slice(size // 14 * 10 - 10, size // 14 * 10)
    a = np.zeros((len(rows), size + 20 + size // 14 * 3), np.longdouble)
    a[:, :size] = rows.matrix
    tare = rows.log == 1
    a[tare, size : size + 10], a[tare, payload] = rows.matrix[tare, payload], 0.0
    n = size // 14
    for k, first in enumerate((10 * n, 11 * n, 13 * n)):
        a[tare, size + 20 + k * n : size + 20 + k * n + n] = rows.matrix[tare, first : first + n]
    g = np.array(
        [[u @ pseudo_inertia(unit) @ v - (m if k == 0 else 0.0) for k, unit in enumerate(np.eye(10))]
         for u, v, m in zip(cuts.u, cuts.v, cuts.mass, strict=True)], np.longdouble,
    ).reshape(-1, 10)  # fmt: skip
    c = np.zeros((len(cuts), a.shape[1]), np.longdouble)
    c[:, payload], c[:, size : size + 10], c[:, size + 10 : size + 20] = g, -g, -g
    lower = np.concatenate([proof.box.lower, proof.hand_lower, -proof.opening, -proof.drift])
    upper = np.concatenate([proof.box.upper, proof.hand_upper, proof.opening, proof.drift])
    low, high = rows.target - rows.slack, rows.target + rows.slack
    out = []
    for k in range(20):
        y, lam = (proof.row_multipliers[k].astype(np.longdouble), proof.cut_multipliers[k].astype(np.longdouble))
        sign, worst = (1.0, np.minimum) if k < 10 else (-1.0, np.maximum)
        r = np.eye(a.shape[1])[payload.start + k % 10] - y @ a - sign * (lam @ c)
        out.append(worst(y * low, y * high).sum() + sign * (lam @ cuts.constant) + worst(r * lower, r * upper).sum())
    return np.array(out)


@pytest.mark.parametrize("mode", [pytest.param("uniform", marks=pytest.mark.slow), "random_sign"])
def test_proof_gives_what_is_published(model, errors, case, mode):
    boxed = load_robot("kinova_gen3", **{"payload.box": "envelope"})
    last, used = boxed.arm_prior, 0
    prior = last.payload_upper - last.payload_lower
    for result in follow(Identifier(boxed, errors), measured(case, mode), case[0], 1.0):
        proof = result.proof
        assert np.array_equal(proof.box.lower, last.lower)
        assert np.array_equal(proof.lower, result.box.payload_lower)
        assert np.array_equal(proof.upper, result.box.payload_upper)
        assert np.all(proof.rows.log == 0)
        assert np.all(np.any(proof.row_multipliers != 0.0, axis=0))
        assert len(proof.rows) < 400
        value, published = proved(proof), np.concatenate([proof.lower, proof.upper])
        sign = np.repeat([1.0, -1.0], 10)  # proved lies inside published, by the margin at least
        better = sign * (value - published) / np.tile(prior, 2)
        assert np.all(better >= 0.5e-7 * (published != np.concatenate([last.payload_lower, last.payload_upper])))
        assert np.all(better < 1e-6)
        used += len(proof.cuts)
        last = result.box
    assert used > 10


def test_proof_breaks_when_anything_in_it_is_changed(model, errors, case):
    """The formulas see every part: one multiplier, one slack, the opening, the hand."""
    boxed = load_robot("kinova_gen3", **{"payload.box": "envelope"})
    proof = fed(boxed, errors, measured(case, "random_sign", samples=1000)).update().proof
    sign, published = np.repeat([1.0, -1.0], 10), np.concatenate([proof.lower, proof.upper])
    multipliers = proof.row_multipliers.copy()
    multipliers[:, np.argmax(np.abs(multipliers).sum(axis=0))] *= 0.9
    cut_multipliers = proof.cut_multipliers.copy()
    cut_multipliers[:, np.argmax(cut_multipliers.sum(axis=0))] *= 0.9
    for changed in (
        {"row_multipliers": multipliers},
        {"cut_multipliers": cut_multipliers},
        {"rows": dataclasses.replace(proof.rows, slack=1.01 * proof.rows.slack)},
        {"opening": 2.0 * proof.opening},
        {"hand_lower": proof.hand_lower - 0.01 * np.abs(proof.hand_lower)},
        {"box": ParameterBox(proof.box.lower - 0.01, proof.box.upper + 0.01)},
    ):
        other = dataclasses.replace(proof, **changed)
        assert np.any(sign * (proved(other) - published) < 0.0), list(changed)


def test_method_and_knowledge_are_checked(model, errors, case):
    with pytest.raises(ParameterError, match="method"):
        Identifier(model, errors, method="guess")
    of_the_run = MomentumStream(model, errors, (0.1,)).push(measured(case, samples=300), model.arm_prior)
    with pytest.raises(ParameterError, match="tare_rows"):
        Identifier(model, errors, tare_rows=of_the_run)
    data = measured(case, "random_sign", samples=1000)
    results = [fed(model, errors, data, method=method).update() for method in METHODS]
    assert all(result.box.contains(case[0]) for result in results)
    assert results[0].proof.cuts.kind.tolist() in ([], ["box"])  # a mass is not negative: that much is linear
    assert np.all(results[1].widths <= results[0].widths * 1.02)
    assert np.median(results[1].widths[4:] / results[0].widths[4:]) < 0.8


@pytest.mark.slow
def test_long_standstill_neither_grows_nor_slows(model, errors, case):
    """The same motion again and again: rows kept, the solver's rows and the work of an update stay bounded."""
    identifier = Identifier(model, errors)
    work, kept, working = [], [], []
    for k in range(6):
        data = measured(case, seed=k, samples=400)
        identifier.add(Measurements(data.stamps + 10.0 * k, data.q, data.qd, data.effort))
        before = identifier._set._solver.programs.work
        result = identifier.update()
        assert result.status is UpdateStatus.OK
        assert result.box.contains(case[0])
        work.append(identifier._set._solver.programs.work - before)
        kept.append(len(identifier._set))
        working.append(len(identifier._set._solver.programs))
    assert max(kept) <= 4500
    assert max(working) <= 700
    assert max(work[3:]) <= 2 * max(work[:3])
