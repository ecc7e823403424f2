"""Every declared error at its worst: rows hold for the truth; each formula agrees with a plain one; none is idle."""

import dataclasses
import itertools

import numpy as np
import pytest
from identification_events import Attack, SmoothAttack
from identification_plant import Wave, random_arm, random_consistent_box
from identification_reference import reference_rows

from safe_sysid.errors import ConfigError, ParameterError
from safe_sysid.identification.equations import momentum
from safe_sysid.identification.equations.measurement_errors import MeasurementErrors, sensor_prior
from safe_sysid.identification.equations.measurements import Measurements, SampleRun
from safe_sysid.identification.equations.momentum import MomentumRows, RowSource
from safe_sysid.identification.equations.row_errors import ERROR_CAUSES
from safe_sysid.identification.equations.stream import MomentumStream, default_ramp
from safe_sysid.robot import load_robot


def errors_of(n, **changes):
    declared = {
        "torque_source": "motor", "torque_abs": 0.02, "torque_rel": 0.03, "position": 0.0, "velocity": 0.0,
        "acceleration": 20.0, "transition": 0.02, "stamp": 0.0,
    }  # fmt: skip
    return MeasurementErrors(n, **(declared | changes))


EVERYTHING = {
    "position": 1e-4, "velocity": 2e-3, "stamp": 2e-6, "torque_bias": 0.3, "torque_drift": 0.01,
    "gravity_angle": 0.01, "gravity_relative": 0.002,
}  # fmt: skip
CASES = {
    "nothing": {},
    "everything": EVERYTHING | {"torque_delay": 3e-4, "torque_jitter": 1e-4},
    "position": {"position": 1e-5},
    "velocity": {"velocity": 5e-3, "stamp": 1e-9},
    "sampled": EVERYTHING | {"effort": "sampled", "torque_rate": 300.0, "jerk": 400.0, "torque_delay": 1e-4},
    "link": EVERYTHING | {"torque_source": "link"},
    "command": EVERYTHING | {"torque_source": "command"},
}


@pytest.mark.parametrize("name", CASES)
def test_rows_and_slacks_are_what_the_formulas_say(name):
    """Against plain Python, to twelve digits (parts: of the slack)."""
    for seed, n in ((0, 1), (1, 3)):
        rng = np.random.default_rng(seed)
        kin, theta = random_arm(rng, n)
        theta, box = random_consistent_box(rng, theta, n)
        e = errors_of(n, **CASES[name])
        t = 3.0 + np.cumsum(rng.uniform(0.8e-3, 1.2e-3, 30))
        q, qd = Wave(rng, n).state(t[:, None])[:2]
        effort = rng.normal(0, 3, (30, n))
        data = Measurements(t, q, qd, effort)
        source = RowSource(kin, box, e, SampleRun(data, False, 107), ramps=name != "link")
        reference = reference_rows(kin, box, e, data)
        for ramp in (0.0,) if name == "link" else (0.0, 4e-3):
            windows = np.array([[3, 4], [2, 14], [5, 7], [9, 25]])
            rows = source.rows(windows, ramp)
            kept = [w for w in windows if ramp == 0.0 or w[1] - w[0] >= 2]
            assert len(rows) == n * len(kept)
            for k, (first, last) in enumerate(kept):
                part = slice(k * n, (k + 1) * n)
                matrix, target, parts = reference(first, last, ramp)
                slack = parts.sum(axis=1)
                assert np.allclose(rows.matrix[part], matrix, rtol=1e-11, atol=1e-12 * np.abs(matrix).max())
                assert np.allclose(rows.target[part], target, rtol=1e-12, atol=1e-14)
                assert np.all(np.abs(rows.parts[part] - parts) <= 1e-10 * slack[:, None])
                assert np.allclose(rows.slack[part], slack, rtol=1e-10)
                assert np.all(rows.slack[part] >= slack)
                assert np.all(rows.first[part] == first + 107)
                assert np.all(rows.last[part] == last + 107)


# --- the truth, under errors in their worst signs --------------------------------------------------------------------

WINDOWS = np.array([[3, 4], [2, 12], [5, 7], [9, 29]])
RAMPS = ((0.0, WINDOWS), (4e-3, WINDOWS[1:]))
SOURCES = {
    "torque": ({}, {"torque_abs": 0.05, "torque_rel": 0.1}, 0.999),
    "drift": ({}, {"torque_drift": 0.05}, 0.95),
    "bias": ({}, {"torque_bias": 0.5, "torque_rel": 0.2}, 0.999),
    "position": ({"chatter": 0.0}, {"position": 1e-4}, 0.8),
    "velocity": ({}, {"velocity": 3e-3}, 0.8),
    "stamps": ({}, {"stamp": 1e-5}, 0.8),
    "late": ({"delay": 3e-4}, {}, 0.9),
    "early": ({"delay": -1.3e-3}, {}, 0.5),
    "jitter": ({"switch_jitter": 1e-4}, {}, 0.8),
    "light": ({"gravity": (0.02, -0.003)}, {}, 0.3),
    "heavy": ({"gravity": (0.02, 0.003)}, {}, 0.3),
    "reversal": ({"coulomb": 5.0, "v_c": 0.05, "speed": 2.0}, {}, 0.1),
    "all": (
        {"delay": 2e-4, "switch_jitter": 1e-4, "gravity": (0.01, 0.002)},
        EVERYTHING | {"torque_abs": 0.05, "torque_rel": 0.05},
        0.1,
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", SOURCES)
def test_truth_satisfies_rows_with_errors_in_their_worst_signs(name):
    """Ascent over the sign of every error of every sample; and the bound is not idle: the attack comes near it."""
    build, declared, near = SOURCES[name]
    largest = 0.0
    for seed in range(3):
        n = 1 + seed % 3
        attack = Attack(seed, n, **build)
        errors = attack.errors(**{k: v for k, v in declared.items() if k not in _OF_PLANT})
        for sign in (1.0, -1.0) if np.any(errors.torque_bias) else (1.0,):
            attack.bias_sign = sign
            for ramp, windows in RAMPS:
                for _ in range(3):
                    signs = attack.rng.choice([-1.0, 1.0], (3 * n + 1, len(attack.t)))
                    largest = max(largest, np.abs(attack.ratios(errors, signs, windows, ramp)).max())
                shortest = WINDOWS[0 if ramp == 0.0 else 2]
                largest = max(largest, attack.worst(errors, shortest, ramp, int(attack.rng.integers(n))))
    assert near < largest <= 1.0


_OF_PLANT = ("gravity_angle", "gravity_relative", "torque_delay", "torque_jitter")


@pytest.mark.parametrize("n", range(1, 10))
def test_truth_satisfies_rows_of_arms_with_one_to_nine_joints(n):
    for source in ("motor", "command"):
        attack = Attack(50 + n, n, chatter=1.0, delay=2e-4, gravity=(0.01, 0.0))
        errors = attack.errors(
            torque_source=source, position=3e-5, velocity=1e-3, stamp=1e-6, torque_abs=0.02, torque_rel=0.05,
            torque_bias=0.1,
        )  # fmt: skip
        for ramp, windows in 6 * RAMPS:
            signs = attack.rng.choice([-1.0, 1.0], (3 * n + 1, len(attack.t)))
            assert np.abs(attack.ratios(errors, signs, windows, ramp)).max() <= 1.0


@pytest.mark.parametrize("link", [False, True])
@pytest.mark.parametrize("period", [1e-3, 1e-2])
def test_truth_satisfies_rows_of_sampled_torque(link, period):
    """Also at 100 Hz. Without the declared rate the same rows exclude the truth."""
    largest, without, jerk_gain = 0.0, 0.0, []
    for seed in range(6):
        n = 1 + seed % 4
        attack = SmoothAttack(
            seed, n, link=link, period=period, speed=2.0, delay=0.2 * period * (-1) ** seed, gravity=(0.01, 0.001)
        )
        errors = attack.errors(position=1e-6, velocity=1e-4, stamp=1e-7, torque_abs=1e-3)
        jerk = dataclasses.replace(errors, jerk=attack.jerk)
        for ramp in (0.0, 4.0 * period):
            windows = WINDOWS if ramp == 0.0 else WINDOWS[1:]
            signs = attack.rng.choice([-1.0, 1.0], (3 * n + 1, len(attack.t)))
            for e in (errors, jerk):
                largest = max(largest, np.abs(attack.ratios(e, signs, windows, ramp)).max())
            slow = attack.errors(torque_rate=0.02 * errors.torque_rate)
            without = max(without, np.abs(attack.ratios(slow, signs, windows, ramp)).max())
        run = SampleRun(attack.measure(errors, signs), False, 0)
        slack, sharp = (
            RowSource(attack.kin, attack.box, e, run, False).rows(WINDOWS, 0.0).slack for e in (errors, jerk)
        )
        jerk_gain.append(np.mean(sharp / slack))
    assert 0.05 < largest <= 1.0
    assert without > 1.0 or period < 5e-3  # at 1 kHz the rate is a small part of the slack
    assert np.max(jerk_gain) < 1.0


# --- without one of its terms -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("term", "build", "declared", "ramp"),
    [
        ("rate", {"period": 1e-2, "chatter": 8.0, "substeps": 10}, {}, 0.0),
        ("end", {}, {"velocity": 3e-3}, 0.0),
        ("shift", {"chatter": 0.0}, {"position": 1e-4}, 4e-3),
        ("size", {}, {"stamp": 1e-5}, 0.0),
        ("change", {"chatter": 8.0}, {"stamp": 2e-5}, 0.0),
        ("momentum", {"speed": 3.0}, {"stamp": 1e-5}, 4e-3),
        ("gravity", {"gravity": (0.02, 0.003)}, {}, 0.0),
    ],
)
def test_a_term_that_is_left_out_is_found(monkeypatch, term, build, declared, ramp):
    kernel = momentum.step_kernel

    def forgetful(*arguments):
        kernel(*arguments)
        getattr(arguments[-1], term)[:] = 0.0

    def found(seed):
        attack = Attack(seed, 1 + seed % 3, **build)
        window = WINDOWS[0] if ramp == 0.0 and term != "change" else WINDOWS[2]
        return attack.worst(attack.errors(**declared), window, ramp, seed % attack.n) > 1.0

    monkeypatch.setattr(momentum, "step_kernel", forgetful)
    assert any(map(found, range(8)))


def steps_break(attack, errors):
    """Whether errors of random signs, each on its bound, break an equation of one step."""
    signs = attack.rng.choice([-1.0, 1.0], (3 * attack.n + 1, len(attack.t)))
    windows = np.array([[k, k + 1] for k in range(3, 30)])
    return np.abs(attack.ratios(errors, signs, windows, 0.0)).max() > 1.0


@pytest.mark.parametrize(
    ("cause", "source"),
    [
        ("torque", "torque"), ("drift", "drift"), ("delay", "late"), ("delay", "jitter"), ("coulomb", "reversal"),
        ("momentum", "velocity"), ("friction", "position"), ("gravity", "heavy"), ("stamps", "stamps"),
    ],
)  # fmt: skip
def test_a_part_of_the_slack_that_is_left_out_is_found(monkeypatch, cause, source):
    kernel = momentum.window_kernel

    def forgetful(*arguments):
        kernel(*arguments)
        arguments[-1].parts[..., ERROR_CAUSES.index(cause)] = 0.0

    build, declared, _ = SOURCES[source]

    def found(seed):
        attack = Attack(seed, 1 + seed % 3, **build)
        errors = attack.errors(**declared)
        return steps_break(attack, errors) or attack.worst(errors, WINDOWS[0], 0.0, seed % attack.n) > 1.0

    monkeypatch.setattr(momentum, "window_kernel", forgetful)
    assert any(map(found, range(5)))


@pytest.mark.parametrize(
    ("build", "forgotten"),
    [
        ({"delay": 3e-4}, {"torque_delay": 0.0}),
        ({"delay": 3e-4}, {"torque_delay": 2.4e-4}),
        ({"switch_jitter": 1e-4}, {"torque_jitter": 0.0}),
        ({"gravity": (0.02, 0.003)}, {"gravity_angle": 0.0}),
    ],
)
def test_an_error_that_is_not_declared_is_found(build, forgotten):
    attacks = (Attack(seed, 1 + seed % 3, **build) for seed in range(8))
    assert any(steps_break(attack, attack.errors(**forgotten)) for attack in attacks)


def test_a_bias_without_its_share_of_the_relative_error_is_found(monkeypatch):
    """``upper(tau_m - bias) + bias`` is not ``upper(tau_m)``: with b = 0.2, a bias of 5 N m makes it 1.25 N m more."""
    attack = Attack(0, 2)
    errors = attack.errors(torque_bias=5.0, torque_rel=0.2)
    signs = np.ones((3 * attack.n + 1, len(attack.t)))
    interval = momentum.torque_interval

    def largest():
        out = 0.0
        for attack.bias_sign, sign in itertools.product((1.0, -1.0), repeat=2):
            out = max(out, np.abs(attack.ratios(errors, sign * signs, WINDOWS, 0.0)).max())
        return out

    assert 0.9 < largest() <= 1.0
    monkeypatch.setattr(
        momentum, "torque_interval", lambda m, e: interval(m, dataclasses.replace(e, torque_bias=np.zeros(e.n)))
    )
    assert largest() > 1.0


# --- what else is promised --------------------------------------------------------------------------------------------


def test_sensor_prior_holds_offset_and_bias_and_nothing_else_changes():
    rng = np.random.default_rng(0)
    _, theta = random_arm(rng, 3)
    theta, box = random_consistent_box(rng, theta, 3)
    errors = errors_of(3, torque_bias=[0.1, 0.0, 2.0])
    wide = sensor_prior(box, errors)
    for *sign, corner in itertools.product((-1.0, 1.0), (-1.0, 1.0), (-1.0, 1.0), (box.lower, box.upper)):
        shifted = corner.copy()
        shifted[39:] += np.array(sign) * errors.torque_bias
        assert wide.contains(shifted)
    assert np.array_equal(wide.lower[:39], box.lower[:39])
    assert np.array_equal(wide.upper[:39], box.upper[:39])
    assert sensor_prior(box, errors_of(3)) is box


def test_rows_do_not_depend_on_how_the_log_is_fed():
    """Windows, matrices and slacks, with margins for the delay."""
    model = load_robot("kinova_gen3")
    rng = np.random.default_rng(0)
    t = np.arange(400) * 1e-3
    q, qd = Wave(rng, 7).state(t[:, None])[:2]
    data = Measurements(t, np.array(model.settings.home) + q, qd, rng.normal(0, 5, (400, 7)))
    data.qd.flags.writeable = True
    data.qd[230, 2] = np.nan
    declared = {"acceleration": 40.0, "torque_delay": 2e-3, "torque_jitter": 1e-4, "position": 1e-6, "velocity": 0.01}
    errors = dataclasses.replace(MeasurementErrors.from_model(model), **declared)

    def rows(cuts):
        stream = MomentumStream(model, errors, (0.1, 0.02, 0.002))
        parts = [stream.push(data[a:b], model.arm_prior) for a, b in itertools.pairwise(cuts)]
        joined = MomentumRows.concatenate([p for p in parts if p is not None])
        return joined.take(np.lexsort((joined.joint, joined.last, joined.first)))

    whole = rows([0, 400])
    assert len(whole) > 1000
    pieces = rows([0, 1, 2, 35, 36, 150, 231, 240, 399, 400])
    for name in ("matrix", "target", "slack", "sigma", "parts", "start", "end", "joint", "first", "last", "ramp"):
        assert np.array_equal(getattr(whole, name), getattr(pieces, name)), name
    assert np.array_equal(whole.start, t[whole.first])
    assert np.array_equal(whole.end, t[whole.last])
    assert not np.any((whole.first <= 230) & (whole.last >= 230))
    # Torque beside a window must be known for a delay of two periods.
    assert whole.first.min() >= 3
    assert not np.any((whole.first > 230) & (whole.first < 234))


def test_windows_without_the_torque_beside_them_are_left_out():
    attack = Attack(0, 2, delay=1.5e-3)
    errors = attack.errors()
    run = SampleRun(attack.measure(errors, np.zeros((7, len(attack.t)))), False, 0)
    source = RowSource(attack.kin, attack.box, errors, run, False)
    assert source.rows(np.array([[0, 5]]), 0.0).rejected_delay == 1
    assert source.rows(np.array([[1, 5]]), 0.0).rejected_delay == 1
    assert len(source.rows(np.array([[4, 5]]), 0.0)) == 2


@pytest.mark.parametrize(
    ("wrong", "named"),
    [
        ({"effort": "sampled"}, "torque_rate"),
        ({"torque_rate": 10.0}, "torque_rate"),
        ({"jerk": 10.0}, "jerk"),
        ({"torque_source": "link", "torque_delay": 1e-4}, "torque_delay"),
        ({"torque_source": "link", "torque_jitter": 1e-4}, "torque_jitter"),
        ({"effort": "averaged"}, "effort"),
        ({"torque_delay": -1.0}, "torque_delay"),
        ({"gravity_angle": np.nan}, "gravity_angle"),
        ({"torque_bias": [0.1, 0.2, 0.3]}, "torque_bias"),
        ({"torque_drift": -0.1}, "torque_drift"),
    ],
)
def test_declarations_that_no_rule_is_sound_for_are_refused(wrong, named):
    with pytest.raises(ParameterError, match=named):
        errors_of(2, **wrong)


@pytest.mark.parametrize(
    ("overrides", "named"),
    [
        ({"measurement.effort": "sampled"}, "torque_rate"),
        ({"measurement.torque_rate": 100.0}, "torque_rate"),
        ({"measurement.jerk": 100.0}, "jerk"),
        ({"measurement.torque_source": "link", "measurement.torque_delay_s": 1e-4}, "torque_delay_s"),
        ({"measurement.stamp_error_s": 0.0004}, "stamp_error_s"),
        ({"measurement.torque_bias": [0.1, 0.2]}, "torque_bias"),
        ({"measurement.torque_drift": -1.0}, "torque_drift"),
        ({"measurement.effort": "averaged"}, "effort"),
    ],
)
def test_configurations_that_no_rule_is_sound_for_are_refused(overrides, named):
    with pytest.raises(ConfigError, match=named):
        load_robot("kinova_gen3", **overrides)


def test_configuration_reaches_the_rows():
    declared = {
        "effort": "sampled", "torque_rate": 100.0, "jerk": [50.0] * 7, "stamp_error_s": 2e-6, "torque_bias": 0.1,
        "torque_drift": [0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7], "torque_delay_s": 1e-4, "torque_jitter_s": 1e-5,
        "gravity_angle": 0.01, "gravity_relative": 0.001,
    }  # fmt: skip
    e = MeasurementErrors.from_model(load_robot("kinova_gen3", measurement=declared))
    for key, value in declared.items():
        got = getattr(e, key.removesuffix("_s").replace("stamp_error", "stamp"))
        assert np.all(np.asarray(got) == value) if not isinstance(value, str) else got == value, key


def test_mean_torque_of_a_link_side_sensor_has_no_slopes():
    """What a ramp weights within a step is not known of a mean; only a torque that is held is its mean everywhere."""
    attack = Attack(0, 2)
    errors = attack.errors(torque_source="link")
    run = SampleRun(attack.measure(errors, np.zeros((7, len(attack.t)))), False, 0)
    with pytest.raises(ParameterError, match="ramp"):
        RowSource(attack.kin, attack.box, errors, run, True).rows(WINDOWS[1:], 4e-3)
    assert default_ramp(0.1, dataclasses.replace(errors, velocity=np.full(2, 0.1))) == 0.0
