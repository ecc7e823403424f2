"""Samples from logs as they are: rates, jitter, gaps, late or missing velocities, currents, quantised positions."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from safe_sysid.dynamics.closed_chain import load_mechanism
from safe_sysid.errors import ParameterError
from safe_sysid.identification.arm.excitation.motions import CRITERIA, box_of_motions, exciting
from safe_sysid.identification.arm.logs.checks import check_log, check_torques
from safe_sysid.identification.arm.logs.preparation import ArmData, DataError, Processing, prepare
from safe_sysid.identification.equations.measurements import Measurements

pytestmark = pytest.mark.unproved

NAMES = ("a", "b")
W, SIZE, PHASE = np.array([3.0, 5.0]), np.array([0.8, 0.5]), np.array([0.0, 1.0])


def state(t: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    angle = W * t[:, None] + PHASE
    q, qd = SIZE * np.sin(angle), SIZE * W * np.cos(angle)
    return q, qd, -SIZE * W**2 * np.sin(angle), 4.0 * np.sin(angle + 0.3)


def log(rate: float, seconds: float = 8.0, seed: int = 0, jitter: float = 0.0) -> Measurements:
    t = np.arange(round(seconds * rate)) / rate
    t = t + np.random.default_rng(seed).uniform(-jitter, jitter, len(t)) / rate
    q, qd, _, torque = state(t)
    return Measurements(t, q, qd, torque)


def errors(data: ArmData) -> list[float]:
    """Largest error of q, qd, qdd, torque, of the largest value."""
    return [
        float(np.max(np.abs(ours - true)) / np.max(np.abs(true)))
        for ours, true in zip((data.q, data.qd, data.qdd, data.torque), state(np.array(data.stamps)), strict=True)
    ]


@given(
    rate=st.sampled_from([30.0, 125.0, 500.0, 1000.0, 5000.0]),
    jitter=st.sampled_from([0.0, 0.3]),
    missing=st.booleans(),
    seed=st.integers(0, 1000),
)
@settings(max_examples=25, deadline=None)
def test_any_rate_with_jitter_and_without_velocities(rate: float, jitter: float, missing: bool, seed: int) -> None:
    raw = log(rate, 8.0, seed, jitter)
    data = prepare([replace(raw, qd=np.full_like(raw.qd, np.nan)) if missing else raw], NAMES)
    effect = data.effects[0]
    assert effect.rate_hz == pytest.approx(rate, rel=0.05)
    assert effect.velocity == ("positions" if missing else "log")
    assert len(data) > 0.5 * 8.0 * rate / effect.decimation
    # At 30 Hz and 5 rad/s a period has 38 samples: the difference's error is (w T)^4 / 30, interpolation's is larger.
    allowed = 0.03 if rate <= 30.0 and jitter else 0.003
    assert max(errors(data)) < allowed


def test_decimation_and_cutoff_are_as_asked_and_their_effect_is_told() -> None:
    raw = log(1000.0)
    noisy = replace(raw, effort=raw.effort + np.random.default_rng(1).normal(0, 0.5, raw.q.shape))
    plain = prepare([noisy], NAMES, Processing(cutoff_hz=0.0, decimation=1)).effects[0]
    effect = prepare([noisy], NAMES).effects[0]
    assert (effect.cutoff_hz, effect.decimation) == (20.0, 10)
    assert (plain.cutoff_hz, plain.decimation) == (np.inf, 1)
    np.testing.assert_allclose(plain.removed_torque, 0.0)
    # White noise of 0.5 N m: a filter of 20 Hz at 1 kHz leaves about sqrt(0.04) of it.
    np.testing.assert_allclose(effect.removed_torque, 0.49, atol=0.02)
    np.testing.assert_allclose(effect.velocity_rms, SIZE * W / np.sqrt(2), rtol=0.05)
    low = prepare([noisy], NAMES, Processing(cutoff_hz=1.0)).effects[0]
    assert np.all(low.removed_acceleration > 3.0 * effect.removed_acceleration)


def test_late_velocities_are_found_and_not_used() -> None:
    raw = log(500.0)
    late = replace(raw, qd=state(np.array(raw.stamps) - 0.008)[1])
    data = prepare([late], NAMES)
    np.testing.assert_allclose(data.effects[0].delay, 0.008, rtol=0.05)
    assert data.effects[0].velocity == "positions"
    assert max(errors(data)) < 0.003
    assert max(errors(prepare([late], NAMES, Processing(velocity="log")))[1:3]) > 0.02


def test_quantised_positions_without_velocities() -> None:
    raw = log(1000.0)
    step = 2 * np.pi / 2**16
    coarse = replace(raw, q=np.round(raw.q / step) * step, qd=np.zeros_like(raw.qd))
    assert max(errors(prepare([coarse], NAMES, Processing(cutoff_hz=10.0)))) < 0.01


def test_gaps_repeated_and_backward_stamps_and_missing_numbers() -> None:
    raw = log(200.0, 10.0)
    keep = np.ones(len(raw), bool)
    keep[900:1000] = False
    t, q = np.array(raw.stamps), np.array(raw.q)
    t[300] = t[299]
    t[310] = t[305]
    q[500, 1] = np.nan
    data = prepare([Measurements(t, q, raw.qd, raw.effort)[keep]], NAMES)
    assert len(data.segments) == 3
    assert data.effects[0].dropped == 3
    assert max(errors(data)) < 0.01
    assert data.stamps[data.segments[1]] - data.stamps[data.segments[1] - 1] > 0.5


def test_currents_become_torques() -> None:
    raw = log(200.0)
    data = prepare([raw], NAMES, Processing(torque_per_effort={"b": 100 * 0.05}))
    np.testing.assert_allclose(data.torque, prepare([raw], NAMES).torque * [1.0, 5.0])


def test_several_logs_are_split() -> None:
    data = prepare([log(200.0), log(100.0, seed=1), log(500.0, 4.0)], NAMES)
    assert data.logs.tolist() == [0, 1, 2]
    first, last = data.split(0.25)
    assert len(first) + len(last) == len(data)
    assert len(last) == pytest.approx(0.25 * len(data), abs=3)
    assert first.logs.tolist() == last.logs.tolist() == [0, 1, 2]
    for k in range(3):
        a, b = first.parts()[k], last.parts()[k]
        assert first.stamps[a][-1] < last.stamps[b][0]
    whole, other = data.split(validation_logs=[1])
    assert whole.logs.tolist() == [0, 2]
    assert other.logs.tolist() == [1]
    with pytest.raises(DataError, match="validation"):
        data.split(validation_logs=[7])


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda m: replace(m, effort=np.full_like(m.q, np.nan)), "a has no efforts"),
        (lambda m: m[:20], "20 samples"),
        (lambda m: Measurements(m.stamps, m.q[:, :1], m.qd[:, :1], m.effort[:, :1]), "1 joints: expected 2"),
    ],
)
def test_logs_that_cannot_be_used_are_named(change, message: str) -> None:
    with pytest.raises(DataError, match=message):
        prepare([log(200.0), change(log(200.0))], NAMES)


@pytest.mark.parametrize(
    "bad", [{"cutoff_hz": -1.0}, {"decimation": 0}, {"velocity": "both"}, {"torque_per_effort": {"a": 0.0}}]
)
def test_processing_is_checked(bad: dict) -> None:
    with pytest.raises(ParameterError):
        Processing(**bad)


def test_a_cutoff_beyond_half_the_rate_is_refused() -> None:
    with pytest.raises(DataError, match="cut-off"):
        prepare([log(30.0)], NAMES, Processing(cutoff_hz=20.0))


def test_swapped_reversed_and_wrong_units_are_named() -> None:
    raw = log(200.0)
    assert check_log(raw, NAMES) == []

    def kinds(q: np.ndarray, qd: np.ndarray) -> list[tuple[str, str]]:
        return [(f.joint, f.kind) for f in check_log(replace(raw, q=q, qd=qd), NAMES)]

    assert kinds(raw.q, raw.qd[:, ::-1]) == [("a", "swapped"), ("b", "swapped")]
    assert kinds(raw.q, raw.qd * [1.0, -1.0]) == [("b", "reversed")]
    assert kinds(raw.q, np.rad2deg(raw.qd)) == [("a", "unit"), ("b", "unit")]
    assert kinds(np.rad2deg(raw.q), raw.qd) == [("a", "unit"), ("b", "unit")]
    assert kinds(raw.q * [1.0, 0.0], raw.qd) == [("b", "still")]
    assert kinds(raw.q, np.zeros_like(raw.qd)) == []
    found = check_torques(raw.effort * [-1.0, 0.01], raw.effort, NAMES)
    assert [(f.joint, f.kind) for f in found] == [("a", "torque_sign"), ("b", "torque_scale")]
    assert check_torques(raw.effort * 1.3, raw.effort, NAMES) == []


@pytest.mark.parametrize("criterion", [CRITERIA[0], *(pytest.param(c, marks=pytest.mark.slow) for c in CRITERIA[1:])])
def test_exciting_motions_keep_limits_and_beat_the_others(criterion: str) -> None:
    m = load_mechanism("leg")
    columns = np.flatnonzero(np.isin(np.arange(m.layout.size), [*range(150, 165), *(180 + m.actuated)]))
    t = np.linspace(0.0, 6.0, 1500)

    def condition(tries: int) -> float:
        waves = exciting(m, columns, np.random.default_rng(2), 6.0, 3.0, tries, criterion)
        q, qd, qdd = waves.at(t)
        low, high = box_of_motions(m)
        assert np.all((q > low) & (q < high))
        # What is kept at samples is kept there.
        assert np.max(np.abs(waves.at(np.linspace(0.0, 6.0, 400))[1])) < 3.0 + 1e-9
        np.testing.assert_allclose(np.gradient(q, t, axis=0)[2:-2], qd[2:-2], atol=0.01)
        np.testing.assert_allclose(np.gradient(qd, t, axis=0)[2:-2], qdd[2:-2], atol=0.2)
        rows = m.regressor(m.motion(q, qd, qdd))[:, :, columns].reshape(-1, len(columns))
        return float(np.linalg.cond(rows / np.linalg.norm(rows, axis=0)))

    first, best = condition(1), condition(12)
    assert best < first or (criterion == "determinant" and best < 1.5 * first)
    with pytest.raises(ParameterError, match="criterion"):
        exciting(m, columns, np.random.default_rng(0), criterion="best")


def test_a_reversal_is_a_slope_in_the_torque_and_in_the_direction() -> None:
    """Coulomb friction went through the filter; its column does too, so that nothing is left where joints turn."""
    t = np.arange(0.0, 20.0, 2e-3)
    q = np.stack([np.sin(1.3 * t), np.cos(0.9 * t)], axis=1)
    qd = np.stack([1.3 * np.cos(1.3 * t), -0.9 * np.sin(0.9 * t)], axis=1)
    log = Measurements(t, q, qd, np.sign(qd) * [2.0, 0.5])
    samples = prepare([log], ["a", "b"])
    assert samples.direction is not None
    wrong = samples.torque - np.sign(samples.qd) * [2.0, 0.5]
    left = samples.torque - samples.direction * [2.0, 0.5]
    assert np.abs(wrong).max() > 0.5
    assert np.sqrt(np.mean(left**2)) < 0.1 * np.sqrt(np.mean(wrong**2))
    part = samples.split(0.3)[0]
    np.testing.assert_array_equal(part.direction, samples.direction[: len(part)])
    slow = prepare([log], ["a", "b"], Processing(transition=10.0))
    np.testing.assert_allclose(slow.direction, slow.qd / 10.0, atol=1e-3)
