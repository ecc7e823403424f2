"""Each check fires on the log that was spoilt for it, names what is wrong, and stays silent on a good one."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from log_support import JOINTS, measured, robot, true_log

from safe_sysid.identification.equations.measurement_errors import MeasurementErrors
from safe_sysid.identification.equations.measurements import Measurements
from safe_sysid.logs import Log, LogError
from safe_sysid.logs.checks.checks import check_log
from safe_sysid.logs.checks.effort_checks import check_efforts
from safe_sysid.logs.checks.stamp_checks import check_stamps
from safe_sysid.logs.checks.state_checks import check_states
from safe_sysid.logs.filtering import low_pass
from safe_sysid.robot.loading import load_robot


def one(n, j, value):
    out = np.ones(n)
    out[j] = value
    return out


def exreplace(i, j, n=7):
    out = np.arange(n)
    out[[i, j]] = j, i
    return out


def declared(**changes):
    return replace(MeasurementErrors.from_model(robot()), **changes)


def findings(m, errors=None, origin_ns=0, **columns):
    return check_log(Log(JOINTS, m, origin_ns, columns), robot(), errors or declared())


def codes(found, level="error"):
    return {f.code for f in found if f.level == level}


def test_a_good_log_has_no_finding():
    assert [f.text for f in findings(measured())] == []


@pytest.mark.parametrize("seed", range(3))
def test_other_good_logs_have_none_either(seed):
    m = measured()
    rng = np.random.default_rng(seed)
    start = int(rng.integers(0, 1500))
    errors = declared(position=1e-5, velocity=1e-3)
    part = m[start : start + 800]
    q = part.q + 1e-5 * rng.uniform(-1, 1, part.q.shape)
    qd = part.qd + 1e-3 * rng.choice([-1.0, 1.0], part.qd.shape)
    wrapped = np.where(robot().continuous, (q + np.pi) % (2.0 * np.pi) - np.pi, q)
    assert [f.text for f in findings(replace(part, q=wrapped, qd=qd), errors)] == []


@pytest.mark.parametrize(("dq", "dv"), [(1e-3, 0.0), (0.0, 0.01), (0.0, 0.3), (0.02, 0.1), (0.1, 2.0)])
@pytest.mark.parametrize("pattern", ["constant", "random", "alternating", "against", "slower"])
def test_errors_that_are_declared_are_never_called_an_error_of_the_log(dq, dv, pattern):
    m, rng = measured()[:1000], np.random.default_rng(1)
    sign = {
        "constant": np.tile(rng.choice([-1.0, 1.0], 7), (1000, 1)),
        "random": rng.choice([-1.0, 1.0], (1000, 7)),
        "alternating": np.where(np.arange(1000)[:, None] % 40 < 20, 1.0, -1.0) * np.ones(7),
        "against": -np.sign(m.qd),
        "slower": -np.clip(m.qd / max(dv, 1e-9), -1.0, 1.0),  # as if the velocity were zero, where that is allowed
    }[pattern]
    found = findings(replace(m, q=m.q + dq * sign, qd=m.qd + dv * sign), declared(position=dq, velocity=dv))
    # A velocity column of nothing but zeros is an error whatever was declared.
    assert codes(found) <= {"constant"}, [f.text for f in found]
    assert pattern == "slower" or not codes(found)


MUTATIONS = {
    "degrees": (lambda m: replace(m, q=np.rad2deg(m.q), qd=np.rad2deg(m.qd)), "degrees", "--angles deg"),
    "positions_in_degrees": (lambda m: replace(m, q=np.rad2deg(m.q)), "degrees", "the velocities do not"),
    "velocities_in_degrees": (lambda m: replace(m, qd=np.rad2deg(m.qd)), "velocity_scale", "deg/s"),
    "milliseconds": (lambda m: replace(m, stamps=1e3 * m.stamps), "stamp_unit", "--time-unit ms"),
    "nanoseconds": (lambda m: replace(m, stamps=1e9 * m.stamps), "stamp_unit", "--time-unit ns"),
    "velocity_sign": (lambda m: replace(m, qd=m.qd * one(7, 2, -1.0)), "velocity_scale", "sign"),
    "velocity_order": (lambda m: replace(m, qd=m.qd[:, exreplace(1, 3)]), "velocity_unrelated", "another joint"),
    "effort_sign": (lambda m: replace(m, effort=-m.effort), "effort_sign", "opposite sign"),
    "effort_sign_of_one": (lambda m: replace(m, effort=m.effort * one(7, 1, -1.0)), "effort_sign", "opposite sign"),
    "effort_unit": (lambda m: replace(m, effort=1e3 * m.effort), "effort_scale", "mN m"),
    "effort_unit_kgf": (lambda m: replace(m, effort=m.effort / 9.80665), "effort_scale", "kgf m"),
    "effort_unit_share": (lambda m: replace(m, effort=m.effort / robot().limits.torque), "effort_scale", "fractions"),
    "effort_order": (lambda m: replace(m, effort=m.effort[:, exreplace(1, 3)]), "effort_order", "joint_4.effort for"),
    "joint_order": (
        lambda m: replace(m, **{k: getattr(m, k)[:, exreplace(0, 2)] for k in ("q", "qd", "effort")}),
        "joint_order", "joint_1 and joint_3 exchanged",
    ),
    "direction": (
        lambda m: replace(m, q=m.q * one(7, 1, -1.0), qd=m.qd * one(7, 1, -1.0), effort=m.effort * one(7, 1, -1.0)),
        "joint_direction", "joint_2 counted in the other direction",
    ),
    "late_effort": (lambda m: replace(m[1:], effort=m.effort[:-1]), "effort_delay", "1 samples after"),
    "early_effort": (lambda m: replace(m[:-1], effort=m.effort[1:]), "effort_delay", "1 samples before"),
    "no_velocity": (lambda m: replace(m, qd=0.0 * m.qd), "constant", "right column"),
    "no_effort": (lambda m: replace(m, effort=m.effort * one(7, 4, 0.0)), "constant", "right column"),
    "no_position": (lambda m: replace(m, q=np.ones_like(m.q)), "constant", "right column"),
    "thinned": (lambda m: m[::10], "rate", "--rate"),
    "two_recordings": (lambda m: Measurements.concatenate([m, m]), "out_of_order", "merged"),
    "two_samples": (lambda m: m[:2], "too_short", ""),
}  # fmt: skip


@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=pytest.mark.slow if name.startswith("effort_unit_") else ()) for name in MUTATIONS],
)
def test_a_spoilt_log_is_explained(name):
    spoil, code, hint = MUTATIONS[name]
    # In the first second two joints move so alike that their velocities are exchanged for factors.
    found = findings(spoil(measured()[: {"velocity_order": 1500, "direction": 1000}.get(name, 700)]))
    errors = [f for f in found if f.level == "error"]
    assert code in codes(found), [f.text for f in found]
    assert any(hint in f.text for f in errors if f.code == code), [f.text for f in errors]
    assert found[: len(errors)] == errors  # errors come first


def test_torque_of_the_other_side_is_proved_impossible_and_named():
    linked = measured(link=True)[:1000]
    found = findings(linked)
    assert codes(found) == {"torque_source"}
    assert all("--torque-source link" in f.suggestion for f in found if f.level == "error")
    link = declared(torque_source="link")
    assert codes(findings(linked, link)) == set()
    assert codes(findings(measured()[:1000], link)) == {"torque_source"}


def test_a_torque_that_nothing_explains_is_a_warning_with_value_and_range():
    m = measured()[:800]
    effort = np.array(m.effort)
    effort[500:700, 3] += 40.0
    (found,) = [f for f in findings(replace(m, effort=effort)) if f.code == "impossible"]
    assert found.level == "warning"
    assert "joint_4" in found.column
    assert 0.35 < found.time < 0.7
    assert "within [" in found.expected


def test_stamps_gaps_and_missing_numbers_are_counted_and_placed():
    m = measured()
    stamps, effort = np.array(m.stamps), np.array(m.effort)
    stamps[500:] += 0.25  # a gap after 0.499 s
    stamps[100] = stamps[99]
    stamps[[200, 201]] = stamps[[201, 200]]
    effort[700:703, 5] = np.nan
    found = {f.code: f for f in findings(replace(m, stamps=stamps, effort=effort)) if f.level == "warning"}
    assert found["duplicate_stamps"].count == 1
    assert found["duplicate_stamps"].time == pytest.approx(0.099)
    assert found["out_of_order"].count == 1
    assert found["not_finite"].count == 3
    assert "joint_6" in found["not_finite"].column
    assert found["not_finite"].time == pytest.approx(0.95)
    assert "0.499" in found["gaps"].value


@pytest.mark.parametrize("declared", [1.0, 0.5])
def test_a_lost_message_is_found_also_where_the_rate_is_declared_too_low(declared):
    """A step of two periods is no gap by half the rate: its torque was taken for known."""
    m = measured()
    lost = m[np.delete(np.arange(len(m)), 700)]
    rate = declared / float(np.median(np.diff(m.stamps)))
    whole = {f.code for f in check_stamps(Log(JOINTS, m, 0, {}), rate, 1e-6)}
    found = {f.code: f for f in check_stamps(Log(JOINTS, lost, 0, {}), rate, 1e-6)}
    assert "gaps" not in whole
    assert found["gaps"].count == 1
    assert found["gaps"].time == pytest.approx(m.stamps[699])


def test_a_column_that_is_mostly_missing_is_an_error():
    m = measured()
    effort = np.array(m.effort)
    effort[::2, 5], effort[1, 5] = np.nan, np.nan
    assert "not_finite" in codes(findings(replace(m, effort=effort)))


@pytest.mark.parametrize(("factor", "level"), [(1.2, "warning"), (2.0, "error"), (0.4, "warning")])
def test_the_rate_is_compared_with_the_declared_one(factor, level):
    m = measured()
    found = [f for f in findings(replace(m, stamps=factor * m.stamps)) if f.code == "rate"]
    assert [f.level for f in found] == [level]


def test_undeclared_velocity_error_and_acceleration_are_placed():
    m = measured()
    rng = np.random.default_rng(0)
    qd = m.qd + 0.02 * rng.uniform(-1, 1, m.qd.shape)
    found = findings(replace(m, qd=qd))
    assert {"velocity_error", "acceleration"} <= {f.code for f in found}
    jump = np.array(m.qd)
    jump[1500, 2] += 0.5
    (found,) = [f for f in findings(replace(m, qd=jump)) if f.code == "acceleration"]
    assert found.time == pytest.approx(1.5, abs=0.002)
    assert found.count == 2


def test_resting_joints_and_assumed_order_are_warnings():
    m = measured()[:600]
    still = one(7, 6, 0.0)
    hold = replace(m, q=np.where(still == 0.0, 1.0, m.q), qd=m.qd * still)
    assert "constant" in codes(findings(hold), "warning")
    assert "order_assumed" in codes(findings(m, order=["assumed"]), "warning")
    assert "other_joints" in codes(findings(m, lacking=["5"]), "warning")


def test_findings_name_the_files_own_columns():
    m = measured()[:1000]
    columns = {"effort": [f"tau_{j}" for j in range(7)]}
    found = findings(replace(m, effort=m.effort * one(7, 1, -1.0)), **columns)
    assert {f.column for f in found if f.code == "effort_sign"} == {"tau_1"}


def test_the_filter_refuses_what_it_cannot_do_and_keeps_what_is_slow():
    model, m = robot(), measured()
    log = Log(JOINTS, m)
    smooth = low_pass(log, model, 40.0).measurements
    assert np.array_equal(smooth.stamps, m.stamps)
    truth = true_log()[1]
    inner = slice(200, -200)
    assert np.max(np.abs(smooth.q[inner] - truth.q[inner])) < 1e-4
    rough = [np.std(np.diff(x.effort[inner], axis=0)) for x in (smooth, m)]
    assert rough[0] < 0.1 * rough[1]
    with pytest.raises(LogError, match="expected a frequency"):
        low_pass(log, model, 600.0)
    stamps = np.array(m.stamps)
    stamps[50:] += 0.1
    with pytest.raises(LogError, match="unbroken"):
        low_pass(Log(JOINTS, replace(m, stamps=stamps)), model, 40.0)


@settings(max_examples=30)
@given(
    seed=st.integers(0, 2**32 - 1),
    count=st.integers(1, 300),
    scale=st.sampled_from([1e-300, 1e-3, 1.0, 1e3, 1e6]),
    mess=st.sets(st.sampled_from(["nan", "inf", "order", "twice", "constant", "zero", "smooth"])),
)
def test_whatever_the_numbers_are_the_checks_answer(seed, count, scale, mess):
    rng = np.random.default_rng(seed)
    stamps = 1e-3 * np.arange(count)
    q, qd, effort = scale * rng.normal(size=(3, count, 7))
    if "smooth" in mess:
        qd = 1e-3 * scale * np.cumsum(rng.normal(size=(count, 7)), axis=0)
        q = np.cumsum(1e-3 * qd, axis=0)
    if "constant" in mess:
        q[:, rng.integers(7)], qd[:, rng.integers(7)], effort[:, rng.integers(7)] = 1.0, 2.0, 3.0
    if "zero" in mess:
        q, qd, effort = 0.0 * q, 0.0 * qd, 0.0 * effort
    if "order" in mess:
        stamps = rng.permutation(stamps)
    if "twice" in mess:
        stamps[rng.integers(count)] = stamps[rng.integers(count)]
    for name, value in (("nan", np.nan), ("inf", np.inf)):
        if name in mess:
            for x in (stamps, q, qd, effort):
                x.flat[rng.integers(x.size, size=1 + x.size // 20)] = value
    log, model, errors = Log(JOINTS, Measurements(stamps, q, qd, effort)), robot(), declared()
    found = check_log(log, model, errors)
    found += check_states(log, model, errors) + check_efforts(log, model, errors)  # even where errors come before
    assert all(f.level in ("error", "warning") and f.text and "\n" not in f.text for f in found)


def test_late_velocities_within_their_declared_error_are_no_error_of_the_efforts():
    m = measured()
    late = np.concatenate([m.qd[:1]] * 3 + [m.qd[:-3]])
    found = findings(replace(m, qd=late), declared(velocity=1.01 * np.max(np.abs(late - m.qd))))
    assert codes(found) == set(), [f.text for f in found]
    assert "effort_delay" in codes(found, "warning")  # it is said all the same


def stamp_findings(stamps, rounding=0.0):
    m = replace(measured()[: len(stamps)], stamps=stamps)
    found = check_stamps(Log(JOINTS, m, 0, {}, rounding), 1000.0, declared().stamp)
    return [(f.level, f.suggestion) for f in found if f.code == "stamp_resolution"]


def test_stamps_that_were_rounded_beyond_their_declared_error_are_noticed():
    rng, exact = np.random.default_rng(0), np.array(measured().stamps[:1500])
    jittery = exact + rng.uniform(0.0, 2e-5, len(exact))
    assert stamp_findings(exact) == []
    assert stamp_findings(jittery) == []
    assert stamp_findings(np.round(jittery, 9)) == []  # ROS
    assert stamp_findings(np.round(exact, 3)) == []  # a clock that ticks in ms
    (large,) = stamp_findings(1.7e9 + jittery)
    assert large[0] == "error"
    assert "stamp_error_s=1." in large[1]
    (single,) = stamp_findings(exact, rounding=1.2e-7)
    assert single[0] == "error"
    (few_digits,) = stamp_findings(np.round(jittery, 6))
    assert few_digits[0] == "warning"
    assert "stamp_error_s=5.3e-07" in few_digits[1]


def test_what_is_advised_about_stamps_helps():
    m = replace(measured()[:1500], stamps=1.7e9 + measured().stamps[:1500])
    (found,) = (f for f in findings(m) if f.code == "stamp_resolution")
    errors = declared(stamp=float(found.suggestion.rpartition("=")[2]))
    assert "stamp_resolution" not in codes(findings(m, errors))


def differences(m, kind):
    h, d = np.diff(m.stamps)[:, None], np.diff(m.q, axis=0)
    return {
        "backward": np.vstack([m.qd[:1], d / h]),
        "forward": np.vstack([d / h, m.qd[-1:]]),
        "central": np.gradient(m.q, m.stamps, axis=0),
        "nominal": np.vstack([m.qd[:1], d / 1e-3]),
    }[kind]


@pytest.mark.parametrize("kind", ["backward", "forward", "central", "nominal"])
def test_velocities_made_from_positions_are_refused_unless_their_error_is_declared(kind):
    m = measured()[:1000]
    made = replace(m, qd=differences(m, kind))
    (found,) = (f for f in findings(made) if f.code == "velocity_derived")
    assert found.level == "error"
    assert "all 7 joints" in found.column
    assert "velocity_derived" not in codes(findings(made, declared(velocity=0.1)))
    advised = float(found.suggestion.rpartition(" ")[2])
    assert kind == "nominal" or np.max(np.abs(made.qd - m.qd)) <= advised
    part = replace(m, qd=np.where(np.arange(7) == 3, made.qd, m.qd))
    assert [f.column for f in findings(part) if f.code == "velocity_derived"] == ["joint_4.velocity"]


def test_a_wrong_unit_is_one_line_and_not_also_an_acceleration():
    m = measured()
    found = findings(replace(m, q=np.rad2deg(m.q), qd=np.rad2deg(m.qd)))
    assert "acceleration" not in {f.code for f in found}
    scaled = [f for f in findings(replace(m, qd=np.rad2deg(m.qd))) if f.level == "error"]
    assert len(scaled) == 1
    assert "(all 7 joints)" in scaled[0].text


def test_decimals_of_seconds_since_1970_as_floating_point_ask_for_its_rounding():
    jitter = np.random.default_rng(0).uniform(0.0, 2e-5, 1500)
    stamps = np.round(np.array(measured().stamps[:1500]) + jitter, 7)
    found = findings(replace(measured()[:1500], stamps=stamps), origin_ns=1_700_000_000 * 10**9)
    (advice,) = (f.suggestion for f in found if f.code == "stamp_resolution")
    assert float(advice.rpartition("=")[2]) > 0.5 * np.spacing(1.7e9)


def test_floating_point_seconds_since_1970_written_with_nine_decimals_are_known_for_what_they_are():
    """As tools export them: nanoseconds to look at, rounded to 2^-22 s; a clock of 128 Hz is none of it."""
    start, regular = 1_700_000_000, np.array(measured().stamps[:1500])
    for stamps, expected in (
        (np.round(start + regular, 9) - start, ["error"]),
        (regular, []),
        (np.arange(1500) / 128.0, []),
    ):
        found = findings(replace(measured()[:1500], stamps=stamps), origin_ns=start * 10**9)
        assert [f.level for f in found if f.code == "stamp_resolution"] == expected


@pytest.mark.slow
def test_a_hypothesis_that_cannot_be_tested_is_skipped():
    """Windows with a ramp have no equation of a link-side torque: that is tried out, and must not end the run."""
    model = load_robot("kinova_gen3", **{"measurement.velocity_error": 0.005})
    log = measured()[:400]
    log = Log(JOINTS, replace(log, effort=log.effort + 60.0))
    found = check_efforts(log, model, MeasurementErrors.from_model(model))
    assert {finding.code for finding in found} == {"impossible"}
    assert len(found) == model.n
