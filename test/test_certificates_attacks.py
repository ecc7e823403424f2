"""Attacks that a chain alone does not show: which log is whose, what lies in the directory, numbers that overflow."""

from __future__ import annotations

import hashlib
import json
import shutil
from dataclasses import replace
from functools import partial

import numpy as np
import pytest
from certificate_support import forge, naming, put, random_log, random_model, write_chain
from command_support import called

from safe_sysid.apps.verify.verification import Verification
from safe_sysid.commands import verify
from safe_sysid.identification.certificates.chain import ChainChecker
from safe_sysid.identification.certificates.dual import proved_lower, proved_upper
from safe_sysid.identification.certificates.files.update import CertificateError, read_certificate
from safe_sysid.identification.certificates.row_check import CertificateRefusedError, LogBook, NamedLog, RowChecker
from safe_sysid.identification.equations.measurement_errors import MeasurementErrors
from safe_sysid.identification.equations.stream import MomentumStream, default_windows
from safe_sysid.identification.identifier import Identifier
from safe_sysid.logs.formats.npz import write_log
from safe_sysid.logs.online.certify import CertificateWriter


@pytest.fixture(scope="module")
def arm(tmp_path_factory):
    """(model, truth, log, certificates, another log)."""
    rng = np.random.default_rng(7)
    model, theta = random_model(rng, 2)
    data, other = random_log(rng, model, theta, 0.8), random_log(rng, model, theta, 0.8)
    paths, _ = write_chain(tmp_path_factory.mktemp("arm"), model, data, 401)
    assert len(paths) == 2
    return model, theta, data, paths, other


def judge(model, paths, logs, tares=()):
    run, tare = (
        LogBook([NamedLog(f"{word} {i}", model.joint_names, log) for i, log in enumerate(some)])
        for word, some in (("run", logs), ("tare", tares))
    )
    checker = ChainChecker(model, run, tare_logs=tare)
    return list(checker.check([read_certificate(path) for path in paths]))


@pytest.mark.parametrize("part", ["all", "prefix", "middle with other stamps"])
def test_a_log_of_the_run_is_no_tare(arm, tmp_path, part):
    model, _, data, paths, _ = arm
    other = replace(data[100:400], stamps=data.stamps[100:400] + 50.0)
    tare = {"all": data, "prefix": data[:300]}.get(part, other)
    forged = forge(paths[0], tmp_path, header=naming(model, tare, "tare_log"))
    with pytest.raises(CertificateError, match="tare_log: needs a log whose first"):
        judge(model, [forged], [data, tare])  # the certificate's word alone
    assert "same samples as the run's log run 0" in judge(model, [forged], [data], [tare])[-1].reason


def test_a_contradiction_proves_nothing(arm, tmp_path):
    """Logs of another arm contradict the prior: multipliers prove both sides of it."""
    model, _, data, paths, _ = arm
    wrong = replace(data, effort=data.effort + np.array([1e3, -1e3]))
    errors = MeasurementErrors.from_model(model)
    stream = MomentumStream(model, errors, default_windows(model, errors))
    rows = stream.push(wrong, model.arm_prior).take(np.array([0]))
    sign = float(np.sign(rows.target[0]))

    def arrays(a):
        for name in ("cut_kind", "cut_mass", "cut_constant", "cut_u", "cut_v"):
            a[name] = a[name][:0]
        for name in ("matrix", "target", "slack", "ramp", "first", "last", "joint", "box_seq", "log"):
            a[name] = np.asarray(getattr(rows, name))
        y = np.full((20, 1), 1e6 * sign)
        y[10:] *= -1.0
        a["row_multipliers"], a["cut_multipliers"] = y, np.zeros((20, 0))

    forged = forge(paths[0], tmp_path, arrays, naming(model, wrong))
    assert "a contradiction proves nothing" in judge(model, [forged], [wrong])[-1].reason


def follow(paths, folder, header):
    """The first certificate again as number two, with a changed header."""

    def edit(h):
        h["seq"] = 2
        h["previous_sha256"] = hashlib.sha256(paths[0].read_bytes()).hexdigest()
        header(h)

    first = read_certificate(paths[0]).arrays

    def arrays(a):
        p = len(a["box_lower"]) // 14
        last = slice(10 * p - 10, 10 * p)
        a["box_lower"][last], a["box_upper"][last] = first["lower"], first["upper"]

    return forge(paths[0], folder, arrays, edit)


def test_an_epoch_has_one_growing_log_and_one_tare(arm, tmp_path):
    model, _, data, paths, other = arm

    for log, logs, tares, key, words in (
        (other, [data, other], [], "log", "run 1 does not begin with the 401 samples"),
        (data[:300], [data], [], "log", "log: 300 samples, the certificate before it has 401"),
        (other, [data], [other], "tare_log", "tare_log: another than the certificate before it"),
    ):
        second = follow(paths, tmp_path, naming(model, log, key))
        assert words in judge(model, [paths[0], second], logs, tares)[-1].reason


def test_rows_of_one_log_are_not_kept_for_another(arm, tmp_path):
    """Even where the rule of one log per epoch would not be: the same checker, another log, the same windows."""
    model, _, data, paths, other = arm
    arrays, errors = read_certificate(paths[0]).arrays, MeasurementErrors.from_model(model)
    checker = RowChecker(model)
    for log in (data, other):
        named = {0: (NamedLog("log", model.joint_names, log), 401)}
        call = (arrays, errors, named, {0: model.arm_prior}, lambda share: None)
        if log is data:
            checker.check(*call)
        else:
            with pytest.raises(CertificateRefusedError, match="not what the log gives"):
                checker.check(*call)


@pytest.mark.parametrize("size", [1e99, 1e100, 1e150, 1e307, 1.79e308, np.inf, np.nan])
def test_huge_multipliers_never_prove_too_much(size):
    """With x in [0, 1] and a x = 0.6 with a in [0.5, 2]: x may be 0.3 and 1; products overflow."""
    none = (np.zeros((0, 1, 2)), np.zeros(0), np.zeros(0), np.array([[0.0, 1.0]]))
    for a, x in (((0.5, 2.0), 1.0), ((1 - 1e-13, 1 + 1e-13), 1.0)):
        rows, sides = np.array([[a]]), np.array([[0.6, 1.0 + 5e-14]])
        for y in (size, -size):
            assert proved_upper(0, rows, sides, np.array([y]), *none) >= x
            assert proved_lower(0, rows, sides, np.array([y]), *none) <= 0.31
    rows = np.array([[[np.nan, 1.0]]])
    assert proved_upper(0, rows, np.array([[0.0, 0.0]]), np.array([1.0]), *none) == 1.0


def test_multipliers_that_overflow_are_refused(arm, tmp_path):
    model, _, data, paths, _ = arm

    forged = forge(paths[0], tmp_path, put("row_multipliers", (3, 0), -1e100))
    assert "row multipliers: expected" in judge(model, [forged], [data])[-1].reason


@pytest.fixture
def folder(arm, tmp_path, monkeypatch):
    """A directory with chain and log; the command finds the random arm."""
    model, _, data, paths, _ = arm
    shutil.copytree(paths[0].parent, tmp_path / "run")
    write_log(tmp_path / "run" / "log.npz", model.joint_names, data)
    monkeypatch.setattr(Verification, "_robot_of", lambda self, certificate: model)
    return tmp_path / "run"


call = partial(called, verify)


def failure(folder, capsys):
    """What is said of a directory of which nothing passes."""
    assert call(folder) == 1
    out = capsys.readouterr().out
    assert "PASS" not in out
    return out


def test_nothing_in_a_directory_is_skipped(folder, capsys):
    assert call(folder) == 0
    assert "log.npz" in (out := capsys.readouterr().out)
    assert "one payload in one grasp" in out
    first, last = folder / "certificate_0_00001.json", folder / "certificate_0_00002.json"
    for path, content in ((last, last.read_text()[:-200]), (last.with_suffix(".npz"), None), (last, None),
                          (first, None)):  # fmt: skip
        before = path.read_bytes()
        path.unlink()
        if content is not None:
            path.write_text(content)
        assert call(folder) == 1
        out = capsys.readouterr().out
        assert "FAIL" in out
        assert "certificate_0_0000" in out
        assert "PASS" not in out or path == last
        path.write_bytes(before)
    assert call(folder) == 0


@pytest.mark.parametrize("name", ["bounds.yaml", "payload.urdf", "result.json"])
def test_what_is_published_comes_whole(folder, capsys, name):
    """Each of the three says something of the others; test_forgeries.py changes their fields."""
    (folder / name).write_text('{"parameters": []}')
    assert f"missing, {name} is there" in failure(folder, capsys)


@pytest.mark.parametrize(
    ("name", "content", "expected"),
    [
        ("result.json", {"status": "empty_set", "guaranteed": False}, "status = 'empty_set'"),
        ("result.json", {"status": "ok", "guaranteed": False}, "guaranteed = False"),
        (
            "identifier.json",
            {"updates": [{"status": "EMPTY_SET", "identity": "0:2", "message": "none agree"}]},
            "none agree",
        ),
        ("identifier.json", {"updates": "none"}, "no list of updates can be read"),
        ("withdrawn_0.json", {"epoch": 0, "reason": "no parameters agree"}, "were withdrawn"),
    ],
)
def test_certificates_beside_a_contradiction_fail(folder, capsys, name, content, expected):
    """What was proved before the data contradicted the assumptions rests on one of them that is false."""
    (folder / name).write_text(json.dumps(content))
    assert expected in failure(folder, capsys)


def test_samples_that_no_certificate_covers_fail(folder, arm, capsys):
    """A chain that ends before the log does says nothing of what came later."""
    paths = arm[3]
    for suffix in (".json", ".npz"):
        (folder / paths[-1].name).with_suffix(suffix).unlink()
    assert "covered by no certificate" in failure(folder, capsys)


def test_certificates_that_could_not_be_written_are_written_first(arm, tmp_path):
    model, _, data, _, _ = arm
    place = tmp_path / "run"
    place.write_text("in the way")
    writer = CertificateWriter(place, model, MeasurementErrors.from_model(model), "test")
    identifier = Identifier(model)
    for part in (data[:300], data[300:550], data[550:]):
        identifier.add(part)
        writer.add(part)
        result = identifier.update()
        assert result.proof is not None
        if part is data or len(part) == 300:
            with pytest.raises(CertificateError, match="cannot be written"):
                writer.write(result)
            place.unlink()
        else:
            writer.write(result)
    assert writer.written == 3
    verdicts = judge(model, sorted(place.glob("*.json")), [data])
    assert [v.reason for v in verdicts] == [None] * 3
