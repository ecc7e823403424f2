"""``identify --sensor``: what measured the torques, and how large its errors are, as the log itself shows.

Torque errors are what the best fit leaves, velocity errors and accelerations are those against smoothed positions. A
log cannot show how large errors *may* be: intervals hold if they are no larger.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from safe_sysid.core.arrays import FloatArray
from safe_sysid.decimals import at_most
from safe_sysid.identification.arm.bounds.needed_errors import momentum_equations, torque_reach
from safe_sysid.identification.equations.measurement_errors import MeasurementErrors
from safe_sysid.identification.equations.measurements import GAP
from safe_sysid.logs.checks.stamp_checks import good_steps
from safe_sysid.logs.log import Log, LogError
from safe_sysid.logs.run import fit_log
from safe_sysid.robot.config import per_joint
from safe_sysid.robot.model import RobotModel

__all__ = ["MARGIN", "SENSORS", "assumed_text", "log_settings", "torque_settings"]

MARGIN = 0.2  # added to everything that a log shows


@dataclass(frozen=True)
class SensorClass:
    """A class of torque sensors: what it measures, and its relative error b, which a log can hardly show."""

    source: str
    relative: float
    what: str


SENSORS = {
    "current": SensorClass("motor", 0.05, "motor currents times torque constants, before friction"),
    "joint-torque": SensorClass("link", 0.02, "torque sensors in the joints, behind friction and gears"),
}
_SMOOTH_S = 0.06  # positions are smoothed over
_FEWEST = 7  # samples of a smoothing window
_CUBIC = 3


def log_settings(log: Log, model: RobotModel) -> dict[str, Any]:
    """Rate, velocity errors and largest accelerations that a log shows, as settings; never below the robot file's.

    ``log``: of the robot's joints; ``model``: with what its file declares.

    Raises LogError: not enough samples without a gap.
    """
    from scipy.signal import savgol_filter  # takes a second to import, and is rarely asked for

    m = log.measurements
    good = np.flatnonzero(good_steps(log))
    steps = np.diff(m.stamps[good])
    period = float(np.median(steps)) if steps.size else 0.0
    if not period > 0.0:
        raise LogError(f"--sensor: {len(good)} usable samples: expected a log with stamps that increase")
    length = max(_FEWEST, 2 * (round(_SMOOTH_S / period) // 2) + 1)
    velocity, acceleration = np.zeros(model.n), np.zeros(model.n)
    for part in np.split(good, np.flatnonzero(steps > GAP * period) + 1):
        if len(part) < 3 * length:
            continue
        q = np.array(m.q[part])
        q[:, model.continuous] = np.unwrap(q[:, model.continuous], axis=0)
        inner = slice(length, -length)  # at the ends the polynomials are worse
        smooth, bend = (savgol_filter(q, length, _CUBIC, deriv=order, delta=period, axis=0)[inner] for order in (1, 2))
        velocity = np.maximum(velocity, np.abs(m.qd[part][inner] - smooth).max(axis=0))
        acceleration = np.maximum(acceleration, np.abs(bend).max(axis=0))
    if not np.any(acceleration):
        raise LogError(
            f"--sensor: no {3 * length} samples in a row without a gap: expected {3 * length * period:.2g} s"
        )
    declared = MeasurementErrors.from_model(model)
    return {
        "measurement.rate_hz": float(f"{1.0 / period:.6g}"),
        "measurement.velocity_error": _at_least(velocity, declared.velocity),
        "identification.acceleration_bound": _at_least(acceleration, declared.acceleration),
    }


def torque_settings(log: Log, model: RobotModel) -> dict[str, Any]:
    """``torque_abs`` as a setting: the largest mean torque that the best fit leaves in any window, with the margin.

    Gains of the sensors are fitted, so what is left is beside the relative error. The smallest error with which *some*
    arm satisfies the equations (``safe-sysid errors``) would be far too small here: its arm bends to the errors.

    ``log``: of the robot's joints; ``model``: with everything else declared.

    Raises LogError: no equations.
    """
    fit = fit_log(log, model, model.arm_prior)
    if fit is None:
        raise LogError("--sensor: no momentum equations: expected samples at one rate, without gaps")
    n = model.n
    errors = replace(MeasurementErrors.from_model(model), torque_abs=np.zeros(n), torque_rel=np.zeros(n))
    most = np.zeros(n)
    for rows in momentum_equations(model, errors, [log.measurements], model.arm_prior):
        torque = (1.0 + fit.gains[rows.joint]) * (rows.matrix @ fit.unknowns)
        np.maximum.at(most, rows.joint, np.abs(torque - rows.target) / torque_reach(rows, errors.torque_rel))
    return {"measurement.torque_abs": _at_least(np.maximum(most, 1e-3), np.zeros(n))}


def _at_least(seen: FloatArray, declared: FloatArray) -> list[float]:
    """Three digits of what was seen, with the margin; not less than what is declared."""
    up = [float(at_most((1.0 + MARGIN) * x, 3)) for x in seen]
    return [max(x, float(y)) for x, y in zip(up, declared, strict=True)]


def assumed_text(sensor: str, settings: Mapping[str, Any], model: RobotModel) -> list[str]:
    """Lines for people: what was taken for granted, and what it comes from.

    ``sensor``: a key of :data:`SENSORS`; ``settings``: those that the log showed; ``model``: with all of them.
    """
    kind = SENSORS[sensor]
    b = per_joint(model.settings.measurement.torque_rel, model.n)
    lines = [
        f"--sensor {sensor}: {kind.what}; torque errors of {100 * float(np.max(b)):g} % of the torque are assumed, and",
        f"estimated from this log, with {100 * MARGIN:g} % margin (to declare them, put them into the robot's file):",
    ]
    return lines + [f"  {key}: {value}" for key, value in settings.items()]
