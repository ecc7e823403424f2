"""The certificate of an arm's own intervals: an honest one is proved by other code, a forged one is not."""

import re

import numpy as np
import pytest
from certificate_support import forge, put, random_log, random_model

from safe_sysid.identification.arm.bounds.intervals import arm_intervals
from safe_sysid.identification.certificates.arm_check import check_arm_certificate
from safe_sysid.identification.certificates.files.archive import CertificateError
from safe_sysid.identification.certificates.files.arm import read_arm_certificate, write_arm_certificate
from safe_sysid.identification.certificates.row_check import LogBook, NamedLog
from safe_sysid.identification.equations.measurement_errors import MeasurementErrors
from safe_sysid.identification.equations.measurements import Measurements


@pytest.fixture(scope="module")
def honest(tmp_path_factory):
    """(path, model, logs, true parameters) of a certificate of two joints and two logs."""
    rng = np.random.default_rng(5)
    model, theta = random_model(rng, 2)
    low, high = model.hand_prior
    theta[10:20] = 0.5 * (low + high)
    logs = [random_log(rng, model, theta, 3.0) for _ in range(2)]
    errors = MeasurementErrors.from_model(model)
    found = arm_intervals(model, errors, logs)
    path = tmp_path_factory.mktemp("arm") / "arm_certificate.json"
    names = [f"combination {i}" for i in range(len(found.base))]
    write_arm_certificate(path, found, names, ["kg"] * len(names), model, logs)
    assert set(found.rows.log.tolist()) == {0, 1}
    return path, model, logs, theta


def verdict(path, model, logs):
    book = LogBook([NamedLog(f"log_{k}.npz", model.joint_names, log) for k, log in enumerate(logs)])
    return check_arm_certificate(read_arm_certificate(path), model, book)


def test_an_honest_certificate_is_proved_by_other_code(honest):
    path, model, logs, theta = honest
    found = verdict(path, model, logs)
    assert found.reason is None
    assert found.logs == ("log_0.npz", "log_1.npz")
    arrays = read_arm_certificate(path).arrays
    truth = arrays["combinations"] @ theta
    assert np.all((arrays["lower"] <= found.lower) & (found.lower <= truth))
    assert np.all((truth <= found.upper) & (found.upper <= arrays["upper"]))
    wide = np.abs(arrays["combinations"]) @ (arrays["box_upper"] - arrays["box_lower"])
    # Torques err by exactly what is declared: what is left of a row is remainder, and room for rounding, of which the
    # checker has less. At which vertex the solver ends, and so how much less, differs from machine to machine.
    claimed_wider = (arrays["upper"] - found.upper) / (found.upper - found.lower)
    assert np.median(claimed_wider) <= 1.5e-2
    assert np.all(claimed_wider <= 3e-2)
    assert np.median((found.upper - found.lower) / wide) < 0.5


def tighter(content):
    width = content["upper"] - content["lower"]
    content["upper"][0] -= 2e-2 * width[0]  # more than the checker's rows are finer by, which it may well prove


def changed(name, change):
    """Of the row that says most."""
    return lambda arrays: put(name, int(np.argmax(np.abs(arrays["upper_multipliers"]).sum(axis=0))), change)(arrays)


FORGERIES = {
    "a bound that is better": (tighter, None, "short by"),
    "multipliers that are gone": (put("lower_multipliers", slice(None), 0.0), None, "short by"),
    "another combination": (put("combinations", 0, lambda x: 1.5 * x), None, "short by|contradicts"),
    "less slack": (changed("slack", lambda x: 0.9 * x), None, "not what the log gives"),
    "another target": (changed("target", lambda x: x + 0.1), None, "not what the log gives"),
    "another window": (changed("first", lambda x: x + 1), None, "not what the log gives|expected|samples"),
    "another log": (changed("log", lambda x: 1 - x), None, "not what the log gives|samples"),
    "no such log": (changed("log", lambda x: 7), None, "expected one of the 2"),
    "another prior": (put("box_upper", 12, lambda x: x - 1e-9), None, "prior: upper bound of parameter 12"),
    "smaller errors": (None, lambda head: head["errors"].update(torque_abs=[0.01, 0.01]), "errors: smaller"),
}


@pytest.mark.parametrize("name", FORGERIES)
def test_a_forged_certificate_is_not_proved(honest, tmp_path, name):
    path, model, logs, _ = honest
    arrays, header, reason = FORGERIES[name]
    found = verdict(forge(path, tmp_path, arrays, header), model, logs)
    assert found.reason is not None
    assert re.search(reason, found.reason), found.reason


def test_another_log_robot_or_file_is_an_error(honest, tmp_path):
    path, model, logs, _ = honest
    assert verdict(forge(path, tmp_path), model, logs).reason is None
    with pytest.raises(CertificateError, match="needs a log whose first"):
        verdict(path, model, logs[:1])
    other, _ = random_model(np.random.default_rng(6), 2)
    with pytest.raises(CertificateError, match="another robot"):
        verdict(path, other, logs)
    longer = Measurements.concatenate([logs[0], logs[0]])
    assert "may contradict" in verdict(path, model, [longer, logs[1]]).reason
    out = forge(path, tmp_path, header=lambda head: head["parameters"][0].update(lower=1.0))
    with pytest.raises(CertificateError, match=r"parameters\[0\]: expected"):
        read_arm_certificate(out)
