"""Intervals that a run did not narrow although any real motion would have."""

from __future__ import annotations

import numpy as np

from safe_sysid.core.arrays import BoolArray, FloatArray
from safe_sysid.core.layout import PAYLOAD_NAMES
from safe_sysid.dynamics import dynamics_of
from safe_sysid.robot.model import RobotModel

__all__ = ["not_narrowed", "shown_by_motion", "why_taught_nothing"]

#: An interval wider than this share of the prior's was not narrowed.
_SAME = 0.95
#: Postures that are looked at, within so many rad or m of home; how many of them a short run is reckoned to see; and
#: the share of a parameter's prior (as a standard deviation) that they may leave if motion is to count as showing it.
_POSTURES, _REACH, _SEEN, _LEFT = 200, 0.5, 10, 0.5


def why_taught_nothing(model: RobotModel, lower: FloatArray, upper: FloatArray) -> str:
    """Explain why a run has taught nothing; "" if it has taught something.

    ``lower``: (10,) of theta_e after the run; ``upper``: (10,).
    """
    left = not_narrowed(model, lower, upper)
    if not left:
        return ""
    return (
        f"the motion taught nothing about {', '.join(left)}: still as wide as the prior, where a few other postures "
        "would have narrowed it against the declared errors (did the arm move?)"
    )


def not_narrowed(model: RobotModel, lower: FloatArray, upper: FloatArray) -> list[str]:
    """Names of theta_e's parameters whose intervals still equal the prior's although a motion would narrow them.

    Compared with the robot's own prior: where a bounds file or a tare had made an interval tight before the run, it is
    narrow. What this arm cannot show (no motion of it depends on the parameter, or only together with others), and a
    prior that is tight against the declared errors, is no reason.

    ``lower``: (10,) of theta_e after the run; ``upper``: (10,).
    """
    prior = model.arm_prior
    width = prior.payload_upper - prior.payload_lower
    wide = (width > 0.0) & (np.asarray(upper) - np.asarray(lower) > _SAME * width)
    if not wide.any():
        return []
    return [PAYLOAD_NAMES[i] for i in np.flatnonzero(wide & shown_by_motion(model))]


def shown_by_motion(model: RobotModel) -> BoolArray:
    """Which of the ten parameters (10,) a few random postures near home reveal despite all errors.

    Every measurement there is off by the declared errors and by what the arm's own uncertainty makes of it.
    """
    rng, n, settings, box = np.random.default_rng(0), model.n, model.settings, model.arm_prior
    m, last = settings.measurement, box.layout.payload
    q = np.array(settings.home) + rng.uniform(-_REACH, _REACH, (_POSTURES, n))
    w = dynamics_of(model.kinematics).torque_regressor(q, 0.0 * q, 0.0 * q, model.friction_transition_velocity)
    own = np.ones(box.size, bool)
    own[last] = False
    error, relative = m.torque_error(n)
    error = error + relative * np.abs(w @ box.mid) + np.abs(w[:, :, own]) @ box.rad[own]
    rows = (w[:, :, last] * box.rad[last] / np.maximum(error, 1e-12)[:, :, None]).reshape(-1, 10)
    left = np.linalg.inv(rows.T @ rows * (_SEEN / _POSTURES) + np.eye(10))
    return np.asarray(np.sqrt(np.diag(left)) < _LEFT)
