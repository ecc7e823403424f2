"""Figures 5 to 8 of [LIP] on stand-ins for its real arms: a simulated Panda with flexible joints, friction and ripple.

The arm follows random sinusoids under the rigid nominal model and a PD law; positions, velocities and torques that its
sensors tell are filtered at 4 Hz, as in the paper. Seven joints stand in for the paper's Panda (tests have sinusoids of
twice the frequency), six of them, the last at rest, for its MELFA (tests have a wider range of positions).
"""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache
from typing import Any

import numpy as np
from scipy.signal import butter, sosfiltfilt

from safe_sysid.core.arrays import FloatArray
from safe_sysid.learning.gaussian_process.motions import MotionSamples
from safe_sysid.learning.gaussian_process.regression import TorqueProcess
from safe_sysid.studies.hybrid.make_data import load_panda
from safe_sysid.studies.hybrid.rigid_models import drawing, rigid_torque
from safe_sysid.studies.lip.methods import KNOW_ENERGIES, learn, training
from safe_sysid.studies.lip.panda import SETTINGS, Panda
from safe_sysid.studies.lip.tracking import drive_arm, true_regressor

__all__ = ["MEASURED", "run_measured"]

#: Methods, in the order of the tables; ID and SP know the arm's kinematics.
MEASURED = {7: ("chain", "LIP", "GIP", "SE", "LSE"), 6: ("chain", "LIP", "GIP", "SE", "LSE", "ID", "SP")}
_TESTS, _CUT, _THIN, _DENSE = 2, 2000, 100, 100  # test runs; samples that are left out at both ends; of 1 kHz
_CUTOFF = 4.0  # Hz


def _smooth(a: FloatArray) -> FloatArray:
    return np.asarray(sosfiltfilt(butter(2, _CUTOFF, fs=1000.0, output="sos"), a, axis=0))


@lru_cache(maxsize=8)
def _run(joints: int, seed: int, test: bool) -> tuple[MotionSamples, FloatArray, FloatArray]:
    """Samples, measured torque (N, n) and true kinetic energy (N,) of one run."""
    model, setting = load_panda(), SETTINGS["script"]
    if test:
        setting = replace(setting, sinusoids=100) if joints == 7 else SETTINGS["code"]
    x = Panda(7).trajectory(setting, seed, _DENSE)
    wanted = np.stack([x.q, x.qd, x.qdd], axis=1)
    wanted[:, 1:, joints:] = 0.0
    wanted[:, 0, joints:] = 0.5 * (setting.low + setting.high)[joints:]
    nominal = drawing(model)
    run = drive_arm(model, wanted, lambda *at: rigid_torque(model, nominal, *at))
    qd = _smooth(run["qd"])
    at = slice(_CUT, -_CUT, _THIN)
    q, torque, qdd = _smooth(run["q"])[at], _smooth(run["torque"])[at], np.gradient(qd, 1e-3, axis=0)[at]
    direction = _smooth(np.sign(qd))[at]
    still = np.zeros(7)
    truth = model.theta_nominal
    energy = [
        0.5 * v @ (rigid_torque(model, truth, p, still, v) - rigid_torque(model, truth, p, still, still))
        for p, v in zip(q, qd[at], strict=True)
    ]
    some = slice(0, joints)
    samples = MotionSamples(q[:, some], qd[at][:, some], qdd[:, some], [False] * joints, direction[:, some])
    return samples, torque[:, some], np.array(energy)


def run_measured(case: dict[str, Any], options: dict[str, Any]) -> dict[str, Any]:
    """Learn from one run, predict others.

    ``case``: ``joints`` (6 or 7), ``method`` and ``seed``; ``options``: of the experiment.
    """
    joints, seed = case["joints"], case["seed"]
    x, torque, _ = _run(joints, seed, False)
    how = training(case["method"], options, seed)
    found = learn(case["method"], x, torque, how, true_regressor(load_panda(), joints), friction=True)
    tests = [_run(joints, 1000 + _TESTS * seed + k, True) for k in range(_TESTS)]
    errors = [found.predict(far) - measured for far, measured, _ in tests]
    row: dict[str, Any] = {
        **case,
        "nmse": np.mean(
            [np.mean(e**2, axis=0) / np.var(t, axis=0) for e, (_, t, _) in zip(errors, tests, strict=True)], axis=0
        ).tolist(),
    }
    result: dict[str, Any] = {"rows": [row]}
    if case["method"] in KNOW_ENERGIES and isinstance(found, TorqueProcess):
        learned, true = found.energies(tests[0][0]).mean[0], tests[0][2]
        row["kinetic_nmse"] = float(np.mean((learned - true) ** 2) / np.var(true))
        if options.get("series"):
            result["series"] = {
                "learned": learned.tolist(), "true": true.tolist(),
                "positions": [x.q.tolist(), np.concatenate([far.q for far, *_ in tests]).tolist()],
            }  # fmt: skip
    return result
