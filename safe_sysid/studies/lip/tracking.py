"""Table III and figure 9 of [LIP], simulated: computed torque on a flexible Panda, eqs. (36) and (37).

The arm has flexible joints, friction and gears that ripple; the rigid nominal model is 5 to 30 % off, as a maker's
drawing may be. Data are one run with the nominal model and amplitude 0.5 rad, one sample of twenty.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from safe_sysid.core.arrays import FloatArray
from safe_sysid.core.layout import PER_LINK
from safe_sysid.dynamics import dynamics_of
from safe_sysid.errors import SafeSysIdError
from safe_sysid.learning.gaussian_process.motions import MotionSamples
from safe_sysid.robot.model import RobotModel
from safe_sysid.simulation.flexible import FlexibleArm, read_effects
from safe_sysid.studies.hybrid.make_data import acceleration, load_panda
from safe_sysid.studies.hybrid.rigid_models import drawing, identified, rigid_torque
from safe_sysid.studies.lip.methods import learn, training

__all__ = ["TRACKED", "drive_arm", "run_tracking", "true_regressor"]

#: In the order of the table.
TRACKED = ("chain", "LIP", "nominal", "identified", "SE", "GIP")
_SECONDS, _RATE, _THIN, _LEARNED = 10.0, 1000.0, 20, 0.5
_MIDDLE = np.array([0.0, 0.0, 0.0, -1.5, 0.0, 1.9, 0.0])
_KP = np.array([600.0, 600.0, 600.0, 600.0, 250.0, 150.0, 50.0])  # N m/rad
_KD = np.array([30.0, 30.0, 30.0, 30.0, 8.0, 6.0, 3.0])  # N m s/rad
_LOST = 1.0  # rad
_Torque = Callable[[FloatArray, FloatArray, FloatArray], FloatArray]


def reference(amplitude: float) -> FloatArray:
    """(N, 3, 7) position, velocity and acceleration of eq. (37) about a middle position. ``amplitude``: rad."""
    t = np.arange(round(_SECONDS * _RATE)) / _RATE
    slope, w = amplitude / _SECONDS, np.pi
    q = slope * t * np.cos(w * t)
    qd = slope * (np.cos(w * t) - w * t * np.sin(w * t))
    qdd = slope * (-2.0 * w * np.sin(w * t) - w**2 * t * np.cos(w * t))
    return np.stack([_MIDDLE + q[:, None], np.tile(qd[:, None], 7), np.tile(qdd[:, None], 7)], axis=1)


def drive_arm(model: RobotModel, wanted: FloatArray, feed: _Torque) -> dict[str, FloatArray]:
    """The closed loop: measured ``q``, ``qd``, ``torque``, and ``feedback``, (N, 7) each.

    Args:
        model: of the arm.
        wanted: (N, 3, 7) position, velocity, acceleration at 1 kHz.
        feed: torque that is added to the feedback's.

    Raises:
        SafeSysIdError: a joint is 1 rad off.
    """
    effects = read_effects("panda_effects", model.theta_nominal)
    arm = FlexibleArm(model, effects, wanted[0, 0])
    rows = np.zeros((4, len(wanted), 7))
    for k, (q_d, qd_d, qdd_d) in enumerate(wanted):
        feedback = _KP * (q_d - arm.q) + _KD * (qd_d - arm.qd)
        command = np.clip(feed(q_d, qd_d, qdd_d) + feedback, -model.limits.torque, model.limits.torque)
        rows[:, k] = arm.q, arm.qd, command, feedback
        if np.max(np.abs(q_d - arm.q)) > _LOST:
            raise SafeSysIdError(f"the arm was lost after {k / _RATE:.3f} s")
        arm.step(command)
    return dict(zip(("q", "qd", "torque", "feedback"), rows, strict=True))


def true_regressor(model: RobotModel, joints: int) -> Callable[[MotionSamples], FloatArray]:
    """Features (N n, P) of the links' parameters of the arm, of its first n joints, the others in the middle at rest.

    ``model``: of the arm; ``joints``: n.
    """
    dynamics = dynamics_of(model.kinematics)

    def features(x: MotionSamples) -> FloatArray:
        whole = np.zeros((3, len(x), model.n))
        whole[0] = _MIDDLE
        for rows, values in zip(whole, (x.q, x.qd, x.qdd), strict=True):
            rows[:, :joints] = values
        return np.concatenate(
            [dynamics.torque_regressor(*at)[:joints, : PER_LINK * model.n] for at in zip(*whole, strict=True)]
        )

    return features


def _feed(method: str, model: RobotModel, wanted: FloatArray, case: dict[str, Any], options: dict[str, Any]) -> _Torque:
    """The feed-forward of a method for one run; what is learned is learned from a run with the nominal model."""
    nominal = drawing(model)

    def rigid(theta: FloatArray) -> _Torque:
        return lambda q, qd, qdd: rigid_torque(model, theta, q, qd, qdd)

    if method == "nominal":
        return rigid(nominal)
    run = drive_arm(model, reference(_LEARNED), rigid(nominal))
    qdd = acceleration(run["qd"])
    at = slice(200, -200, _THIN)
    q, qd, qdd, torque = run["q"][at], run["qd"][at], qdd[at], run["torque"][at]
    if method == "identified":
        return rigid(identified(model, [(q, qd, qdd, torque)], "all")[0])
    # Adam on batches alone, as the paper trains. L-BFGS over all samples finds hyperparameters that are more likely and
    # track worse (mean square of the feedback 2.2 in the place of 0.3): what ripple and flexible joints leave over is
    # no noise, but goes with the one path that was driven.
    how = training(method, {**options, "finish": 0}, case["seed"])
    x = MotionSamples(q, qd, qdd, [False] * 7)
    found = learn(method, x, torque, how, lambda _: np.zeros((0, 0)), friction=True)
    rows = iter(found.predict(MotionSamples(wanted[:, 0], wanted[:, 1], wanted[:, 2], [False] * 7)))
    return lambda *_: next(rows)  # the loop asks for the desired motion's torques in their order


def run_tracking(case: dict[str, Any], options: dict[str, Any]) -> dict[str, Any]:
    """One method, one amplitude.

    ``case``: ``method``, ``amplitude`` (rad) and ``seed``; ``options``: of the experiment.
    """
    model = load_panda()
    wanted = reference(case["amplitude"])
    run = drive_arm(model, wanted, _feed(case["method"], model, wanted, case, options))
    error = wanted[:, 0] - run["q"]
    row = {
        **case,
        "joints": 7,
        "nmse": (np.mean(error**2, axis=0) / np.var(wanted[:, 0], axis=0)).tolist(),
        "feedback": np.mean(run["feedback"] ** 2, axis=0).tolist(),
    }
    series = {"error": error[::_THIN].tolist(), "feedback": run["feedback"][::_THIN].tolist()}
    return {"rows": [row], "series": series}
