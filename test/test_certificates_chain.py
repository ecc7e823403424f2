"""Chains of certificates: honest ones are proved, forged ones are not, for the right reason."""

from __future__ import annotations

import dataclasses
import re
import shutil

import numpy as np
import pytest
from certificate_support import (
    declaring,
    forge,
    naming,
    proved_before,
    put,
    random_log,
    random_model,
    verdicts,
    write_chain,
)  # fmt: skip
from command_support import called

from safe_sysid.apps.verify.verification import Verification
from safe_sysid.commands import verify
from safe_sysid.core.layout import PAYLOAD_NAMES
from safe_sysid.identification.certificates.files.update import CertificateError, read_certificate
from safe_sysid.identification.certificates.row_check import CertificateRefusedError, NamedLog, RowChecker
from safe_sysid.identification.equations.measurement_errors import MeasurementErrors
from safe_sysid.identification.equations.measurements import Measurements
from safe_sysid.logs.formats.npz import write_log
from safe_sysid.robot.parameters import ParameterBox


@pytest.fixture(scope="module")
def chain(tmp_path_factory):
    """(model, truth, log, paths): three certificates of a random arm of three joints."""
    rng = np.random.default_rng(7)
    model, theta = random_model(rng, 3)
    data = random_log(rng, model, theta, 1.2)
    paths, box = write_chain(tmp_path_factory.mktemp("chain"), model, data, 401)
    assert len(paths) == 3
    assert box.contains(theta)
    return model, theta, data, paths


@pytest.mark.parametrize("n", [pytest.param(n, marks=() if n in (1, 4, 7) else pytest.mark.slow) for n in range(1, 10)])
def test_honest_certificates_of_random_arms_are_proved(n, tmp_path):
    rng = np.random.default_rng(n)
    velocity = 1e-3 * (n % 2)
    model, theta = random_model(rng, n, velocity=velocity, position=2e-5 * (n % 3), continuous=n == 4)
    data = random_log(rng, model, theta, 0.5)
    if n == 4:
        data = dataclasses.replace(data, q=(data.q + np.pi) % (2 * np.pi) - np.pi)
    paths, box = write_chain(tmp_path, model, data, 260)
    assert paths
    assert box.contains(theta)
    prior, payload = model.arm_prior, theta[model.layout.payload]
    for verdict, path in zip(verdicts(model, paths, data), paths, strict=True):
        assert verdict.passed, verdict.reason
        assert verdict.spare >= 0.0
        published = read_certificate(path).arrays
        assert np.all((published["lower"] <= verdict.proved_lower) & (verdict.proved_lower <= payload))
        assert np.all((payload <= verdict.proved_upper) & (verdict.proved_upper <= published["upper"]))
    assert np.any(box.payload_upper - box.payload_lower < 0.9 * (prior.payload_upper - prior.payload_lower))


def test_a_bound_one_unit_inside_the_proved_one_is_refused(chain, tmp_path):
    model, _, data, paths = chain
    honest, judge = verdicts(model, paths[:2], data)[1], proved_before(model, paths[:1], data)

    def tight(arrays):
        arrays["lower"][:], arrays["upper"][:] = honest.proved_lower, honest.proved_upper

    for name, inward in (("lower", np.inf), ("upper", -np.inf)):
        for k in range(10):

            def edit(arrays, name=name, k=k, inward=inward):
                tight(arrays)
                arrays[name][k] = np.nextafter(arrays[name][k], inward)

            verdict = judge(forge(paths[1], tmp_path, edit))
            assert not verdict.passed
            assert f"{name} bound of {PAYLOAD_NAMES[k]}: published" in verdict.reason
    assert judge(forge(paths[1], tmp_path, tight)).passed


@pytest.fixture(scope="module")
def third(chain):
    """A judge of what claims to be the third certificate."""
    model, _, data, paths = chain
    return proved_before(model, paths[:2], data)


def widest(arrays):
    """Row with the largest part in some bound, and that bound."""
    k, i = np.unravel_index(np.argmax(np.abs(arrays["row_multipliers"]) * arrays["slack"]), (20, len(arrays["slack"])))
    return int(k), int(i)


def change(name, at, by):
    def edit(arrays):
        _, i = widest(arrays)
        value = arrays[name]
        value[(i, *at) if at else i] += by(arrays, i) if callable(by) else by

    return edit


def flip(arrays):
    k, i = widest(arrays)
    arrays["row_multipliers"][k, i] *= -1.0


def uneven_cut(arrays):
    kind = arrays["cut_kind"] == "semidefinite"
    arrays["cut_u"][kind] += 2.0**-20
    assert np.any(kind)


@pytest.mark.parametrize(
    ("edit", "why"),
    [
        (flip, "bound of .* short by"),
        (change("matrix", (2,), 1e-4), "not what the log gives"),
        (change("target", (), lambda a, i: 0.01 * a["slack"][i]), "not what the log gives"),
        (change("slack", (), lambda a, i: -0.05 * a["slack"][i]), "not what the log gives"),
        (change("slack", (), lambda a, i: -2.0 * a["slack"][i]), "slack .* expected >= 0"),
        (change("first", (), 1), "not what the log gives|first < last|expected some"),
        (change("last", (), -1), "not what the log gives|first < last|expected some"),
        (change("last", (), 5000), "expected some of the first"),
        (change("joint", (), 1), "not what the log gives|joint 3"),
        (change("joint", (), 70), "joint 7., expected 0 to 2"),
        (change("ramp", (), 0.003), "not what the log gives|ramp needs"),
        (change("ramp", (), -0.003), "ramp .* expected >= 0"),
        (
            put("box_seq", slice(None), 3),
            "sized by box 3, which the chain has not proved before",
        ),  # by what they publish
        (change("log", (), 1), "log 1, expected 0"),
        (put("box_lower", 0, lambda x: np.nextafter(x, np.inf)), "box in force: lower bound of parameter 0"),
        (put("hand_upper", 0, lambda x: x - 1e-9), "hand: hand_upper of m"),
        (put("opening", 3, lambda x: x + 1e-9), "hand: opening of mcz"),
        (uneven_cut, "semidefinite cut with u != v"),
        (put("cut_constant", slice(None), 1e-6), "right-hand side"),
        (put("cut_multipliers", (0, 0), -1e-12), "multiplier is negative"),
        (put("cut_kind", 0, "obviously"), "kind 'obviously'"),
        (put("cut_kind", slice(None), "box"), "no payload box is declared"),
    ],
)
def test_forged_arrays_are_refused(chain, third, tmp_path, edit, why):
    verdict = third(forge(chain[3][2], tmp_path, edit))
    assert not verdict.passed
    assert re.search(why, verdict.reason), verdict.reason
    assert verdict.reason.startswith("certificate 0:3")


@pytest.mark.parametrize(
    ("field", "factor", "words"),
    [
        *(
            (field, factor, f"errors: smaller, or other, than the robot's configuration declares: {field}")
            for field, factor in (("torque_abs", 0.5), ("torque_rel", 0.9), ("acceleration", 0.99), ("transition", 0.0))
        ),
        # Larger ones are taken as declared: they may only make rows weaker, here too weak for what was published.
        ("torque_abs", 3.0, "not what the log gives"),
    ],
)
def test_errors_declared_smaller_or_larger_are_refused(chain, tmp_path, field, factor, words):
    model, _, data, paths = chain

    def edit(header):
        value = header["errors"][field]
        header["errors"][field] = [factor * x for x in value] if isinstance(value, list) else factor * value

    assert words in verdicts(model, [forge(paths[0], tmp_path, header=edit)], data)[-1].reason


def test_broken_chains_are_refused(chain, third, tmp_path):
    model, _, data, paths = chain
    assert "is missing" in verdicts(model, [paths[1]], data)[0].reason
    assert "expected" in verdicts(model, [paths[0], paths[2]], data)[1].reason
    assert "begun already" in verdicts(model, [paths[0], paths[0]], data)[1].reason
    forged = forge(paths[2], tmp_path, header=lambda header: header.update(seq=5))
    assert "sequence number 5, expected 3" in third(forged).reason
    forged = forge(paths[2], tmp_path, header=lambda header: header.update(previous_sha256=None, epoch=1))
    assert "sequence number 3, expected 1" in verdicts(model, [*paths[:2], forged], data)[2].reason


def test_a_changed_log_is_not_the_log(chain):
    model, _, data, paths = chain
    effort = data.effort.copy()
    effort[300, 1] = np.nextafter(effort[300, 1], np.inf)
    with pytest.raises(CertificateError, match="needs a log whose first 401 samples have sha256"):
        verdicts(model, paths, dataclasses.replace(data, effort=effort))
    with pytest.raises(CertificateError, match=r"looked at: log\.npz"):
        verdicts(model, paths, data, names=("a", "b", "c"))
    # What comes after the last certificate does not matter.
    more = Measurements.concatenate([data, data])
    assert all(v.passed for v in verdicts(model, paths, more))


@pytest.mark.parametrize(
    "declared",
    [
        {"torque_delay_s": 2e-3, "torque_jitter_s": 2e-4},
        {"position_error": 2e-5, "velocity_error": 1e-3, "stamp_error_s": 1e-5, "torque_delay_s": 1e-3},
    ],
)
def test_a_certificate_does_not_depend_on_what_comes_after_it(declared, tmp_path):
    """Each proves the same numbers from its own samples alone, from the whole log, and before samples of another."""
    rng = np.random.default_rng(5)
    model, theta = random_model(rng, 2)
    model = declaring(model, **declared)
    data = random_log(rng, model, theta, 0.75)
    paths = write_chain(tmp_path, model, data, 300)[0][:2]
    whole = verdicts(model, paths, data)
    assert len(whole) == 2
    for k, path in enumerate(paths):
        samples = read_certificate(path).header["log"]["samples"]
        after = Measurements(
            data.stamps[samples:], data.q[samples:] + 9.0, -data.qd[samples:], data.effort[samples:] - 99.0
        )
        for log in (data[:samples], Measurements.concatenate([data[:samples], after])):
            alone = verdicts(model, paths[: k + 1], log)[k]
            assert whole[k].passed, whole[k].reason
            assert alone.passed, alone.reason
            assert np.array_equal(alone.proved_lower, whole[k].proved_lower)
            assert np.array_equal(alone.proved_upper, whole[k].proved_upper)


def test_the_torque_behind_the_named_samples_is_not_known(tmp_path):
    """A declared delay asks for samples behind those named: they are in the log, but not the certificate's."""
    rng = np.random.default_rng(5)
    model, theta = random_model(rng, 2)
    model = declaring(model, torque_delay_s=4e-3)
    data = random_log(rng, model, theta, 0.5)
    paths, _ = write_chain(tmp_path, model, data, 400)
    arrays, errors = read_certificate(paths[0]).arrays, MeasurementErrors.from_model(model)
    log, needed = NamedLog("log", model.joint_names, data), int(arrays["last"].max()) + 6
    checker = RowChecker(model)
    for samples, known in ((400, True), (needed, True), (needed - 1, False), (needed + 20, True)):
        call = (arrays, errors, {0: (log, samples)}, {0: model.arm_prior}, lambda share: None)
        if known:
            checker.check(*call)
        else:
            with pytest.raises(CertificateRefusedError, match="the torque beside the window, which the declared delay"):
                checker.check(*call)


def test_a_forged_digest_does_not_help(chain, tmp_path):
    """The log is changed and its new digest is written into the certificate: rows no longer follow."""
    model, _, data, paths = chain
    changed = dataclasses.replace(data, effort=data.effort + 0.02)
    forged = forge(paths[0], tmp_path, header=naming(model, changed[:401]))
    assert "not what the log gives" in verdicts(model, [forged], changed)[0].reason


def test_another_robot_is_named(chain):
    model, _, data, paths = chain
    kin = model.kinematics
    moved = kin.translation.copy()
    moved[1, 2] = np.nextafter(moved[1, 2], 9.0)
    other = dataclasses.replace(model, kinematics=kin._replace(translation=moved))
    with pytest.raises(CertificateError, match=r"another robot than random: joint joint_2.translation"):
        verdicts(other, paths, data)
    other = declaring(model, torque_abs=0.03)
    with pytest.raises(CertificateError, match=r"measurement.torque_abs: certificate 0.02, robot 0.03"):
        verdicts(other, paths, data)
    prior = model.arm_prior
    other = dataclasses.replace(model, arm_prior=ParameterBox(prior.lower, prior.upper + 1e-9))
    assert "box in force: upper bound" in verdicts(other, paths, data)[0].reason


def test_windows_over_rejected_samples_are_refused(chain, tmp_path):
    """The forger takes a window over a gap, with whatever numbers."""
    model, _, data, _ = chain
    keep = np.r_[0:150, 160:400]
    gapped = data[keep]
    paths, _ = write_chain(tmp_path, model, gapped, 390)
    assert verdicts(model, paths, gapped)[0].passed

    def edit(arrays):
        arrays["first"][0], arrays["last"][0] = 145, 155

    verdict = verdicts(model, [forge(paths[0], tmp_path, edit)], gapped)[0]
    assert "gap of 0.011 s after sample 149" in verdict.reason


@pytest.mark.parametrize(("ramp", "refused"), [(0.0, False), (0.005, True)])
def test_link_side_means_allow_no_ramps(chain, ramp, refused):
    """Behind gears the torque moves within a period although the motor holds its own."""
    model, _, data, paths = chain
    arrays = {name: value[:1].copy() for name, value in read_certificate(paths[0]).arrays.items()}
    arrays |= {"first": np.array([50]), "last": np.array([70]), "ramp": np.array([ramp])}
    errors = dataclasses.replace(MeasurementErrors.from_model(model), torque_source="link")
    log = NamedLog("log", model.joint_names, data)
    with pytest.raises(CertificateRefusedError) as refusal:
        RowChecker(model).check(arrays, errors, {0: (log, len(data))}, {0: model.arm_prior}, lambda share: None)
    assert ("only means over steps" in str(refusal.value)) == refused


@pytest.fixture(scope="module")
def tared(tmp_path_factory):
    """(model, truth, log of the empty hand, log with the payload, paths) of an arm of two joints."""
    rng = np.random.default_rng(3)
    model, theta = random_model(rng, 2)
    empty, last = theta.copy(), model.arm_prior.layout.payload
    empty[last] = model.theta_nominal[last]
    tare_log, data = random_log(rng, model, empty, 0.6), random_log(rng, model, theta, 0.5)
    paths, box = write_chain(tmp_path_factory.mktemp("tared"), model, data, 251, tare_log)
    assert box.contains(theta)
    return model, theta, tare_log, data, paths


def test_tare_rows_are_rebuilt_from_the_tare_log(tared, tmp_path):
    model, _, tare_log, data, paths = tared
    arrays = [read_certificate(path).arrays for path in paths]
    assert any(np.any(a["log"] == 1) for a in arrays)

    assert [v.reason for v in verdicts(model, paths, data, tare_log)] == [None] * len(paths)
    with pytest.raises(CertificateError, match="needs a log whose first"):
        verdicts(model, paths, data)
    which = max(i for i, a in enumerate(arrays) if np.any(a["log"] == 1))
    judge = proved_before(model, paths[:which], data, tare_log)
    every = slice(None)
    for edit, words in (
        (put("log", every, 0), "row"),
        # Less drift than is declared, in any joint, and more.
        *((put("drift", p, lambda x: (1.0 - 1e-9) * x), "drift since the tare") for p in range(6)),
        (put("drift", every, lambda x: 2.0 * x), ""),
    ):
        verdict = judge(forge(paths[which], tmp_path, edit))
        assert not verdict.passed
        assert words in verdict.reason


@pytest.mark.parametrize("seed", [0, 1, pytest.param(2, marks=pytest.mark.slow)])
def test_friction_that_drifted_to_a_corner_is_never_excluded(tmp_path, seed):
    """Random arms; at the run every Fc, Fv and beta is off by all that is declared, as far as the prior goes."""
    from safe_sysid.identification.bounds.drift import drift_of

    rng = np.random.default_rng(seed)
    model, theta = random_model(rng, 1 + seed % 3)
    columns, prior = model.layout.drifting, model.arm_prior
    drift = drift_of(model, MeasurementErrors.from_model(model))
    empty, last = theta.copy(), prior.layout.payload
    empty[last] = model.theta_nominal[last]
    theta[columns] += drift * rng.choice([-1.0, 1.0], drift.size)
    theta = np.clip(theta, prior.lower, prior.upper)
    tare_log = random_log(rng, model, empty, 0.4)
    data = random_log(rng, model, theta, 0.4)
    paths, box = write_chain(tmp_path, model, data, 201, tare_log)
    assert paths
    assert box.contains(theta)
    found = verdicts(model, paths, data, tare_log)
    assert [v.reason for v in found] == [None] * len(paths)
    assert np.all((found[-1].proved_lower <= theta[last]) & (theta[last] <= found[-1].proved_upper))


def test_an_identifier_that_forgets_the_drift_is_found(tared, tmp_path, monkeypatch):
    """It states the declared drift, and publishes bounds as if friction were that of the tare."""
    from safe_sysid.identification.bounds import feasible_set

    model, _, tare_log, data, _ = tared
    nothing = (np.zeros(0, np.int64), np.zeros(0))
    monkeypatch.setattr(feasible_set, "drifting", lambda drift, layout: nothing)
    paths, _ = write_chain(tmp_path, model, data, 501, tare_log)
    found = verdicts(model, paths, data, tare_log)
    assert not found[-1].passed
    assert "bound of" in found[-1].reason


def test_the_command_takes_a_tare_log_only_by_name(tared, tmp_path, monkeypatch, capsys):
    model, _, tare_log, data, paths = tared
    folder = shutil.copytree(paths[0].parent, tmp_path / "run")
    monkeypatch.setattr(Verification, "_robot_of", lambda self, certificate: model)
    write_log(folder / "log.npz", model.joint_names, data)
    write_log(folder / "other.npz", model.joint_names, tare_log)
    with pytest.raises(CertificateError, match="tare_log: needs"):
        called(verify, folder)
    assert called(verify, folder, "--tare-log", folder / "other.npz") == 0
    assert "hand empty in" in capsys.readouterr().out
    (folder / "other.npz").rename(folder / "tare_log.npz")
    assert called(verify, folder) == 0
