"""Arms, logs and chains for the tests of certificates, and the means to forge them."""

from __future__ import annotations

import copy
import dataclasses
import hashlib
import json
from pathlib import Path

import numpy as np
from identification_plant import noisy, random_arm, simulate, wavy_plans

from safe_sysid.identification.certificates.chain import ChainChecker
from safe_sysid.identification.certificates.files.update import CertificateContext, read_certificate, write_certificate
from safe_sysid.identification.certificates.row_check import LogBook, NamedLog
from safe_sysid.identification.digest import LogDigest, log_digest
from safe_sysid.identification.equations.measurement_errors import MeasurementErrors
from safe_sysid.identification.identifier import Identifier
from safe_sysid.identification.tare.tare import make_tare
from safe_sysid.robot.config import Settings
from safe_sysid.robot.files.yaml_file import read_yaml
from safe_sysid.robot.model import JointLimits, RobotModel
from safe_sysid.robot.parameters import ParameterBox, inertia_from_com
from safe_sysid.robot.scenes.scene import config_path


def random_model(rng, n, torque=(0.02, 0.02), position=0.0, velocity=0.0, acceleration=50.0, continuous=False):
    """(model, truth): an arm with unequal uncertainties and a payload of a few points in its hand."""
    kin, bare = random_arm(rng, n)
    hand = slice(10 * (n - 1), 10 * n)
    theta = bare.copy()
    for _ in range(4):
        theta[hand] += inertia_from_com(rng.uniform(0.1, 0.5), rng.uniform(-0.1, 0.1, 3), np.zeros((3, 3)))
    rad = 0.05 * np.abs(theta) * rng.uniform(0.2, 1.0, theta.size) + 1e-5
    rad[hand] = np.array([2.0, *(0.4,) * 3, *(0.2,) * 6]) * rng.uniform(0.5, 1.0, 10)
    lower, upper = theta - rad * rng.uniform(0, 2, theta.size), theta + rad
    lower = np.minimum(lower, theta)
    never_negative = np.r_[0 : 10 * n : 10, 10 * n : 13 * n]
    lower[never_negative] = np.maximum(lower[never_negative], 0.0)
    data = copy.deepcopy(read_yaml(config_path("kinova_gen3", "config")))
    names = tuple(f"joint_{j + 1}" for j in range(n))
    joint = {"position": "continuous", "velocity": 100.0, "torque": 1e4, "rotor_inertia": 0.0}
    data["joints"] = dict.fromkeys(names, joint | {"viscous": 0.0, "coulomb": 0.0, "offset": 0.0})
    data |= {"name": "random", "home": [0.0] * n, "gravity": kin.gravity.tolist()}
    data |= {"friction_transition_velocity": 0.01, "controller": {"uncertainty": 1.0}}
    data["uncertainty"] = {"relative": 0.05, "floor": {"mass": 1e-3}}
    data["payload"] |= {"prior_lower": lower[hand].tolist(), "prior_upper": upper[hand].tolist()}
    data["measurement"] |= {
        "torque_abs": torque[0], "torque_rel": torque[1], "position_error": position, "velocity_error": velocity,
    }  # fmt: skip
    data["identification"] |= {"acceleration_bound": acceleration}
    settings = Settings.model_validate(data)
    big = np.full(n, 100.0)
    model = RobotModel(
        name="random",
        joint_names=names,
        kinematics=kin,
        limits=JointLimits(-big, big, big, big),
        continuous=np.full(n, continuous),
        theta_nominal=bare,
        arm_prior=ParameterBox(lower, upper),
        friction_transition_velocity=0.01,
        flange=(np.eye(3), np.zeros(3)),
        bodies=(),
        allowed_pairs=frozenset(),
        settings=settings,
    )
    return model, theta


def declaring(model, **measurement):
    """The model with other declarations of what is measured."""
    settings = model.settings
    measured = settings.measurement.model_copy(update=measurement)
    return dataclasses.replace(model, settings=settings.model_copy(update={"measurement": measured}))


def random_log(rng, model, theta, seconds, mode="random_sign"):
    """Measurements of the true arm, noise inside what the model declares."""
    m = model.settings.measurement
    log = simulate(model.kinematics, theta, 0.01, wavy_plans(rng, model.n, seconds), rng=rng)
    bound = MeasurementErrors.from_model(model).acceleration
    assert np.all(log.largest_acceleration < bound)
    link = m.torque_source == "link"
    return noisy(log, m.torque_abs, m.torque_rel, rng, mode, m.position_error, m.velocity_error, link=link)


def write_chain(folder, model, data, step, tare_log=None):
    """Identify, one certificate per ``step`` samples; ``tare_log``: of the empty hand. Returns (paths, last box)."""
    errors, tare, rest = MeasurementErrors.from_model(model), {}, ()
    if tare_log is not None:
        tare = make_tare(model, errors, tare_log).options()
        rest = (log_digest(model.joint_names, tare_log), len(tare_log))
    identifier, digest, paths = Identifier(model, **tare), LogDigest(model.joint_names), []
    for k in range(0, len(data), step):
        part = data[k : k + step]
        digest.update(part)
        identifier.add(part)
        result = identifier.update()
        if result.proof is None:
            continue
        context = CertificateContext(
            model, errors, result.box.epoch, result.box.seq, digest.hexdigest(), digest.count, "test", *rest
        )
        paths.append(write_certificate(folder, result.proof, context, paths[-1] if paths else None))
    return paths, identifier.box


def checker_of(model, data, tare_log=None, names=None):
    """A checker that knows one log, and at most one of the empty hand."""
    run, tare = (
        LogBook([NamedLog("log.npz", names or model.joint_names, log)] if log is not None else [])
        for log in (data, tare_log)
    )
    return ChainChecker(model, run, tare_logs=tare)


def verdicts(model, paths, data, tare_log=None, names=None):
    """What the checker says about a chain."""
    return list(checker_of(model, data, tare_log, names).check([read_certificate(path) for path in paths]))


def proved_before(model, paths, data, tare_log=None):
    """A judge of the next certificate, after ``paths``: what is refused changes nothing, and rows are kept."""
    checker = checker_of(model, data, tare_log)
    assert all(verdict.passed for verdict in checker.check([read_certificate(path) for path in paths]))
    return lambda path: checker.check_next(read_certificate(path))


def put(name, at, value):
    """An edit of arrays; ``value``: the new one, or a function of the old one."""

    def edit(arrays):
        arrays[name][at] = value(arrays[name][at]) if callable(value) else value

    return edit


def naming(model, log, key="log"):
    """An edit of a header: the certificate is of this log."""
    return lambda header: header.update({key: {"sha256": log_digest(model.joint_names, log), "samples": len(log)}})


def forge(path: Path, folder: Path, arrays=None, header=None) -> Path:
    """A copy with changed content and all hashes made right again.

    Args:
        path: of the honest certificate.
        folder: where the forgery goes.
        arrays: called with a dict of writable arrays, to change in place.
        header: called with the header, likewise.
    """
    with np.load(path.with_suffix(".npz"), allow_pickle=False) as file:
        content = {name: file[name].copy() for name in file.files}
    head = json.loads(path.read_text())
    if arrays is not None:
        arrays(content)
    for name in ("lower", "upper"):
        for bound, value in zip(head.get("bounds") or head["parameters"], content[name].tolist(), strict=True):
            bound[name] = value
    out = folder / path.name
    np.savez(out.with_suffix(".npz"), **content)
    head["arrays"] = {
        "sha256": hashlib.sha256(out.with_suffix(".npz").read_bytes()).hexdigest(),
        "rows": len(content["target"]),
        "cuts": len(content.get("cut_kind", ())),
    }
    if header is not None:
        header(head)
    out.write_text(json.dumps(head))
    return out
