"""Certificate files are not trusted: whatever they hold, the answer is one clear error, never another exception."""

from __future__ import annotations

import dataclasses
import hashlib
import io
import json
import zipfile

import numpy as np
import pytest
from certificate_support import forge, random_log, random_model, verdicts, write_chain

from safe_sysid.errors import SafeSysIdError
from safe_sysid.identification.certificates.files.robot_identity import (
    errors_from_json,
    errors_to_json,
    robot_differences,
    robot_to_json,
    smaller_errors,
)
from safe_sysid.identification.certificates.files.update import CertificateError, read_certificate
from safe_sysid.identification.digest import LogDigest, log_digest
from safe_sysid.identification.equations.measurement_errors import MeasurementErrors
from safe_sysid.identification.equations.measurements import Measurements
from safe_sysid.robot import load_robot


@pytest.fixture(scope="module")
def certificate(tmp_path_factory):
    rng = np.random.default_rng(1)
    model, theta = random_model(rng, 2)
    data = random_log(rng, model, theta, 0.3)
    paths, _ = write_chain(tmp_path_factory.mktemp("one"), model, data, 301)
    return model, data, paths[0]


def test_reading_gives_what_was_written(certificate):
    _, _, path = certificate
    found = read_certificate(path)
    assert found.identity == "0:1"
    assert found.arrays["matrix"].shape == (len(found.arrays["target"]), 28)
    assert found.sha256 == hashlib.sha256(path.read_bytes()).hexdigest()
    assert found.header["bounds"][0]["lower"] == found.arrays["lower"][0]
    text = path.read_text()
    assert '"torque_abs": [0.02, 0.02]' in text  # lists on one line: people read it
    assert path.with_suffix(".npz").stat().st_size < 200_000


HEADERS = [
    (lambda h: h.update(schema="another"), "schema = 'another'"),
    (lambda h: h.update(epoch=-1), "epoch = -1"),
    (lambda h: h.update(epoch=True), "epoch = True"),
    (lambda h: h.update(seq=1.5), "seq = 1.5"),
    (lambda h: h.pop("method"), "method"),
    (lambda h: h.pop("robot"), "robot"),
    (lambda h: h["robot"].pop("urdf"), "joint_names"),
    (lambda h: h["robot"]["urdf"].update(joint_names=[1, 2]), "joint_names"),
    (lambda h: h["robot"]["urdf"].update(joint_names=["a"] * 10), "1 to 9 names"),
    (lambda h: h["robot"]["urdf"].update(joint_names=["a"]), "matrix"),
    (lambda h: h.update(log=None), "log"),
    (lambda h: h["log"].update(sha256="x" * 64), "log"),
    (lambda h: h["log"].update(samples=-3), "log"),
    (lambda h: h.update(tare_log=[]), "tare_log"),
    (lambda h: h.update(previous_sha256=7), "previous_sha256"),
    (lambda h: h["arrays"].update(sha256="0" * 64), "sha256 is"),
    (lambda h: h["arrays"].update(rows=1), "arrays.rows = 1"),
    (lambda h: h.update(bounds=h["bounds"][:9]), "ten of them"),
    (lambda h: h["bounds"][2].update(name="mass"), "mcy in kg m"),
    (lambda h: h["bounds"][2].update(lower="0"), "numbers lower and upper"),
    (lambda h: h["bounds"][2].update(upper=0.123), "bounds[2].upper = 0.123"),
    (lambda h: h["bounds"].__setitem__(0, None), "m in kg"),
]


@pytest.mark.parametrize(("edit", "why"), HEADERS)
def test_malformed_headers(certificate, tmp_path, edit, why):
    with pytest.raises(CertificateError) as error:
        read_certificate(forge(certificate[2], tmp_path, header=edit))
    assert why in str(error.value)


ARRAYS = [
    (lambda a: a.pop("slack"), "no array 'slack'"),
    (lambda a: a.update(slack=a["slack"][:-1]), "'slack' has shape"),
    (lambda a: a.update(lower=np.zeros(11)), "'lower' has shape"),
    (lambda a: a.update(target=a["target"].astype(np.float32)), "type float32"),
    (lambda a: a.update(first=a["first"].astype(float)), "expected kind 'i'"),
    (lambda a: a.update(target=a["target"].astype(">f8")), "type >f8"),
    (lambda a: a.update(target=np.array([print], dtype=object)), "type object|bad header"),  # pickles are never read
    (lambda a: a["target"].__setitem__(0, np.nan), "not finite"),
    (lambda a: a["row_multipliers"].__setitem__((3, 0), np.inf), "not finite"),
    (lambda a: a.update(cut_u=a["cut_u"][:, :3]), "'cut_u' has shape"),
    (lambda a: a.update(cut_kind=np.array(["x" * 50] * len(a["cut_kind"]))), "type <U50"),
    (lambda a: a.update(matrix=a["matrix"].reshape(-1)), "'matrix' has shape"),
    (lambda a: a.update(row_multipliers=a["row_multipliers"][:19]), "'row_multipliers' has shape"),
]


@pytest.mark.parametrize(("edit", "why"), ARRAYS)
def test_malformed_arrays(certificate, tmp_path, edit, why):
    with pytest.raises(CertificateError, match=why):
        read_certificate(forge_any(certificate[2], tmp_path, edit))


def forge_any(path, folder, edit):
    """As :func:`forge`, for arrays that cannot be repeated in the header."""
    with np.load(path.with_suffix(".npz")) as file:
        content = {name: file[name].copy() for name in file.files}
    edit(content)
    return with_arrays(path, folder, lambda file: np.savez(file, **content))


def with_arrays(path, folder, write):
    out = folder / path.name
    buffer = io.BytesIO()
    write(buffer)
    out.with_suffix(".npz").write_bytes(buffer.getvalue())
    head = json.loads(path.read_text())
    head["arrays"]["sha256"] = hashlib.sha256(buffer.getvalue()).hexdigest()
    out.write_text(json.dumps(head))
    return out


@pytest.mark.parametrize("shape", ["(10000000000000,)", "(-5,)", "(1, 2, 3)", "(100000,)", "'no'"])
def test_headers_that_claim_too_much_take_no_memory(certificate, tmp_path, shape):
    def write(file):
        with np.load(certificate[2].with_suffix(".npz")) as old, zipfile.ZipFile(file, "w") as archive:
            for name in old.files:
                part = io.BytesIO()
                np.save(part, old[name])
                data = part.getvalue()
                if name == "target":
                    header = f"{{'descr': '<f8', 'fortran_order': False, 'shape': {shape}, }}".ljust(117) + "\n"
                    data = b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header.encode()
                archive.writestr(f"{name}.npy", data)

    with pytest.raises(CertificateError):
        read_certificate(with_arrays(certificate[2], tmp_path, write))


@pytest.mark.parametrize(
    "text", ["", "[]", "{", "nonsense", '{"schema": NaN}', "[" * 100_000, "\ufeff{}", '{"epoch": 1e999}']
)
def test_headers_that_are_no_certificates(tmp_path, text):
    path = tmp_path / "x.json"
    path.write_text(text)
    with pytest.raises(CertificateError, match=r"x\.json"):
        read_certificate(path)


def test_missing_and_huge_files(certificate, tmp_path):
    with pytest.raises(CertificateError, match="cannot be read"):
        read_certificate(tmp_path / "none.json")
    lonely = tmp_path / certificate[2].name
    lonely.write_bytes(certificate[2].read_bytes())
    with pytest.raises(CertificateError, match="cannot be read"):
        read_certificate(lonely)
    large = tmp_path / "large.json"
    large.write_text('{"a": "' + "x" * (5 << 20) + '"}')
    with pytest.raises(CertificateError, match="expected at most"):
        read_certificate(large)


def test_bytes_turned_at_random(certificate, tmp_path):
    """Either unreadable, or refused by the checker, or a byte that says nothing; never another exception."""
    model, data, path = certificate
    rng = np.random.default_rng(0)
    text, binary = path.read_bytes(), path.with_suffix(".npz").read_bytes()
    out = tmp_path / path.name
    passed = 0
    for k in range(60):
        changed, arrays = bytearray(text), bytearray(binary)
        if k % 2:
            changed[rng.integers(len(changed))] ^= 1 << rng.integers(8)
        else:
            arrays[rng.integers(len(arrays))] ^= 1 << rng.integers(8)
            head = json.loads(text)
            head["arrays"]["sha256"] = hashlib.sha256(arrays).hexdigest()
            changed = bytearray(json.dumps(head).encode())
        out.write_bytes(changed)
        out.with_suffix(".npz").write_bytes(arrays)
        try:
            passed += all(v.passed for v in verdicts(model, [out], data))
        except SafeSysIdError:
            continue
    assert passed < 20


def test_errors_there_and_back():
    model = load_robot("kinova_gen3")
    errors = MeasurementErrors.from_model(model)
    again = errors_from_json(json.loads(json.dumps(errors_to_json(errors))))
    assert errors_to_json(again) == errors_to_json(errors)
    for bad in (None, [], {}, {"n": 7}, {**errors_to_json(errors), "torque_abs": "much"},
                {**errors_to_json(errors), "torque_abs": [1, 2]}, {**errors_to_json(errors), "n": 10**8},
                {**errors_to_json(errors), "torque_rel": [[0.1]] * 7}, {**errors_to_json(errors), "more": 1},
                {**errors_to_json(errors), "stamp": "x"}, {**errors_to_json(errors), "position": None}):  # fmt: skip
        with pytest.raises(SafeSysIdError):
            errors_from_json(bad)


def test_errors_are_compared_field_by_field():
    errors = MeasurementErrors.from_model(load_robot("kinova_gen3"))
    sampled = dataclasses.replace(errors, effort="sampled", torque_rate=10.0, jerk=100.0)
    assert smaller_errors(errors, errors) == smaller_errors(sampled, sampled) == []
    assert smaller_errors(dataclasses.replace(errors, torque_abs=1.0, stamp=1e-3), errors) == []
    for stated, declared, field in (
        (dataclasses.replace(errors, stamp=0.0), errors, "stamp"),
        (dataclasses.replace(errors, torque_source="command"), errors, "torque_source"),
        (dataclasses.replace(sampled, jerk=99.0), sampled, "jerk"),
        (dataclasses.replace(sampled, jerk=None), sampled, "jerk"),
        (sampled, errors, "effort"),
        (errors, sampled, "effort"),
    ):
        assert any(line.startswith(f"{field}: certificate") for line in smaller_errors(stated, declared))


def test_settings_are_stated_in_one_form_however_they_were_written():
    plain = load_robot("kinova_gen3")
    same = load_robot("kinova_gen3", **{"measurement.torque_abs": [0.05] * 7})
    other = load_robot("kinova_gen3", **{"measurement.torque_abs": 0.06})
    assert robot_differences(robot_to_json(plain), plain) == []
    assert robot_differences(json.loads(json.dumps(robot_to_json(plain))), load_robot("kinova_gen3")) == []
    assert robot_differences(robot_to_json(other), plain) == ["measurement.torque_abs: certificate 0.06, robot 0.05"]
    # one number for all joints and seven equal ones are different texts; errors, which count, are compared apart
    assert len(robot_differences(robot_to_json(same), plain)) == 1
    tuned = load_robot("kinova_gen3", **{"planner.t_f": 3.5, "controller.blend_s": 0.3})
    assert robot_differences(robot_to_json(tuned), plain) == []
    assert {"measurement", "payload", "uncertainty", "joints", "gravity"} <= set(robot_to_json(plain)["declared"])
    assert robot_differences(robot_to_json(plain) | {"urdf_sha256": "0" * 64}, plain)[0].startswith("urdf_sha256")


def test_the_digest_does_not_depend_on_batches_and_sees_every_bit():
    rng = np.random.default_rng(0)
    data = Measurements(np.arange(10.0), *(rng.normal(size=(10, 2)) for _ in range(3)))
    names = ("a", "b")
    whole = log_digest(names, data)
    parts = LogDigest(names)
    for k in (slice(0, 3), slice(3, 3), slice(3, 10)):
        parts.update(data[k])
    assert parts.hexdigest() == whole
    assert parts.count == 10
    branch = parts.copy()
    branch.update(data[:1])
    assert parts.hexdigest() == whole != branch.hexdigest()
    assert branch.count == 11
    for name in ("stamps", "q", "qd", "effort"):
        changed = {n: getattr(data, n).copy() for n in ("stamps", "q", "qd", "effort")}
        changed[name].ravel()[5] = np.nextafter(changed[name].ravel()[5], 99.0)
        assert log_digest(names, Measurements(**changed)) != whole
    assert log_digest(("b", "a"), data) != whole
    assert log_digest(names, data[::-1]) != whole
    with pytest.raises(SafeSysIdError, match="2 joints: expected 3"):
        log_digest(("a", "b", "c"), data)
    # a known value: the format must not change without notice
    one = Measurements(np.array([1.0]), np.array([[2.0]]), np.array([[3.0]]), np.array([[4.0]]))
    expected = hashlib.sha256(b'safe_sysid log 1\n["j"]\n' + np.array([1.0, 2.0, 3.0, 4.0], "<f8").tobytes())
    assert log_digest(("j",), one) == expected.hexdigest()
