"""Start checks: whether efforts at rest fit the box, and whether the tracking error's energy lets control begin.

Both run at every activation. The first, static gravity, catches what no tracking bound survives: efforts with the
wrong sign or unit, joints that are mixed up, another torque source than declared, an arm mounted otherwise than its
model says.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numba import njit

from safe_sysid.control.gains import ControllerGains
from safe_sysid.control.take_over import TAKE_OVER
from safe_sysid.core.arrays import BoolArray, FloatArray
from safe_sysid.decimals import at_least, at_most, bracketed
from safe_sysid.dynamics import dynamics_of
from safe_sysid.dynamics.magnitudes import link_norms, torque_sensitivity
from safe_sysid.robot.config import per_joint
from safe_sysid.robot.model import RobotModel
from safe_sysid.robot.parameters import ParameterBox

__all__ = [
    "check_static_gravity",
    "judge_rest",
    "other_source",
    "signs_confirmed",
    "static_effort_range",
    "tracking_energy",
    "why_not_rate",
    "wrong_units",
]


_ROUND = 1e-9


def static_effort_range(
    model: RobotModel, box: ParameterBox, q: FloatArray, qd: FloatArray, source: str | None = None
) -> tuple[FloatArray, FloatArray]:
    """Bounds (n,), (n,) of the effort, in N m, that is measured while the arm is held at rest.

    They hold for all parameters in the box and every declared error, of measurement, actuator and gravity. That the
    arm is held by its drives and does not accelerate is assumed.

    Args:
        q: (n,) measured, rad.
        qd: (n,) measured, rad/s; small.
        source: of the effort, ``motor``, ``command`` or ``link``; None for the declared one.
    """
    n, m = model.n, model.settings.measurement
    source = source or m.torque_source
    zero = np.zeros(n)
    rows = dynamics_of(model.kinematics).torque_regressor(q, zero, zero)
    largest = np.maximum(np.abs(box.lower), np.abs(box.upper))
    speed = np.abs(qd) + per_joint(m.velocity_error, n)
    sensitivity = torque_sensitivity(
        model.kinematics, link_norms(model.kinematics, box.lower, box.upper), speed, speed, zero
    )
    spread = sensitivity.q @ model.position_error + (sensitivity.qd + sensitivity.qd_a) @ speed
    spread = spread + _ROUND * (1.0 + np.abs(rows) @ largest)
    spread = spread + _gravity_cone(model, q, largest)
    if source == "link":
        rows = rows.copy()
        rows[:, model.layout.joint_terms] = 0.0
    else:
        spread = spread + box.upper[box.layout.coulomb] + box.upper[box.layout.viscous] * speed
    lower = rows @ box.mid - np.abs(rows) @ box.rad - spread
    upper = rows @ box.mid + np.abs(rows) @ box.rad + spread
    return _with_errors(model, lower, upper)


def _gravity_cone(model: RobotModel, q: FloatArray, largest: FloatArray) -> FloatArray:
    """Torque (n,) that gravity may differ by inside its declared cone, N m."""
    m, zero = model.settings.measurement, np.zeros(model.n)
    g = model.kinematics.gravity
    share = 2.0 * np.sin(0.5 * min(m.gravity_angle, np.pi)) * (1.0 + m.gravity_relative) + m.gravity_relative
    if share == 0.0:
        return zero
    squares = zero
    for axis in np.eye(3):
        dynamics = dynamics_of(model.kinematics._replace(gravity=axis))
        rows = dynamics.torque_regressor(q, zero, zero)[:, model.layout.links]
        squares = squares + (np.abs(rows) @ largest[model.layout.links]) ** 2
    return share * float(np.linalg.norm(g)) * np.sqrt(squares)


def _with_errors(model: RobotModel, lower: FloatArray, upper: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Actuator first, sensor next: each moves a torque by ``a + b |torque|`` at most."""
    m, a, n = model.settings.measurement, model.settings.actuator, model.n
    actuator = per_joint(a.torque_abs, n), per_joint(a.torque_rel, n)
    for absolute, relative in (actuator, m.torque_error(n)):
        lower = lower - absolute - relative * np.abs(lower)
        upper = upper + absolute + relative * np.abs(upper)
    return lower, upper


def check_static_gravity(
    model: RobotModel, box: ParameterBox, q: FloatArray, qd: FloatArray, effort: FloatArray
) -> list[str]:
    """Reasons why no parameters in the box explain the effort at rest, with what would; empty if some do.

    Args:
        q: (n,) measured, rad.
        qd: (n,) measured, rad/s.
        effort: (n,) measured, N m.
    """
    if not np.isfinite(effort).all():
        return [f"effort {effort.tolist()}: expected finite numbers"]
    lower, upper = static_effort_range(model, box, q, qd)
    bad = (effort < lower) | (effort > upper)
    if not bad.any():
        return []
    reasons = [
        f"{model.joint_names[j]}: effort {effort[j]:.4g} {model.torque_units[j]} at rest, expected within "
        f"{bracketed(lower[j], upper[j], 3)} for the parameters in box {box.identity}"
        for j in np.flatnonzero(bad)
    ]
    found = _explanations(model, box, q, qd, effort, bad)
    return [*reasons, "this would be explained by " + ", or ".join(found)] if found else reasons


def signs_confirmed(
    model: RobotModel, box: ParameterBox, q: FloatArray, qd: FloatArray, effort: FloatArray
) -> BoolArray:
    """(n,) whether the effort at rest could not as well be the opposite: no parameters in the box explain ``-effort``.

    An effort of zero is its own opposite: where zero may be, a sensor that gives nothing else is not confirmed either.

    Args:
        q: (n,) measured, rad or m.
        qd: (n,) measured, rad/s or m/s.
        effort: (n,) measured and explained by the box, N m or N.
    """
    lower, upper = static_effort_range(model, box, q, qd)
    return np.asarray((-effort < lower) | (-effort > upper))


def _explanations(
    model: RobotModel, box: ParameterBox, q: FloatArray, qd: FloatArray, effort: FloatArray, bad: BoolArray
) -> list[str]:
    """Single mistakes that would explain every effort."""
    n, settings = model.n, model.settings
    lower, upper = static_effort_range(model, box, q, qd)
    names = ", ".join(model.joint_names[j] for j in np.flatnonzero(bad))

    def fits(values: FloatArray, bounds: tuple[FloatArray, FloatArray] = (lower, upper)) -> bool:
        return bool(np.all((bounds[0] <= values) & (values <= bounds[1])))

    found = []
    if box.seq and fits(effort, static_effort_range(model, model.arm_prior, q, qd)):
        found.append("another payload than that of these bounds (controller/reset_bounds begins anew with the prior)")
    if np.all(np.abs(effort) <= _with_errors(model, np.zeros(n), np.zeros(n))[1]):
        found.append("no torque at all: brakes carry the arm, or nothing is commanded yet")
    if fits(np.where(bad, -effort, effort)):
        found.append(f"the wrong sign of the effort of {names}")
    elif fits(-effort):
        found.append("the wrong sign of all efforts")
    found += [f"efforts in {unit}" for unit, factor in wrong_units(model).items() if fits(effort * factor)]
    declared = settings.measurement.torque_source
    source = other_source(declared)
    if fits(effort, static_effort_range(model, box, q, qd, source)):
        found.append(f"measurement.torque_source: {source} (declared is {declared})")
    if fits(effort, static_effort_range(model, box, np.where(model.sliding, q, np.deg2rad(q)), qd)):
        found.append("positions in degrees")
    kin = model.kinematics
    turned = replace(model, kinematics=kin._replace(gravity=-kin.gravity))
    if fits(effort, static_effort_range(turned, box, q, qd)):
        found.append("an arm that hangs the other way up (gravity)")
    return found


def wrong_units(model: RobotModel) -> dict[str, FloatArray]:
    """Factors (n,) that make N m of efforts, by the unit that they may be in; checks of logs try these as well."""
    one, limit = np.ones(model.n), np.asarray(model.limits.torque)
    return {
        "mN m": 1e-3 * one,
        "kN m": 1e3 * one,
        "kgf m": 9.80665 * one,
        "per cent of the torque limit": 0.01 * limit,
        "fractions of the torque limit": limit,
    }


def other_source(declared: str) -> str:
    """The torque source on the other side of the gears: ``command`` and ``motor`` are on one."""
    return "motor" if declared == "link" else "link"


def why_not_rate(model: RobotModel) -> str:
    """Why the declared rate of the torque is too low to run the arm with, "" if it is not.

    A take-over must be able to get from no torque to any inside the limits; planned torques change far more slowly.
    """
    rate, least = per_joint(model.settings.controller.torque_rate, model.n), model.limits.torque / TAKE_OVER
    if (rate >= least * (1.0 - 1e-9)).all():
        return ""
    j = int(np.argmin(rate / least))
    name, unit = model.joint_names[j], model.torque_units[j]
    return (
        f"controller.torque_rate is {rate[j]:g} {unit}/s for {name}: expected at least {at_most(least[j], 6)}, "
        f"its torque limit of {model.limits.torque[j]:g} {unit} within the {TAKE_OVER:g} s of a take-over"
    )


@njit(cache=True)
def tracking_energy(
    q: FloatArray,
    qd: FloatArray,
    reference: FloatArray,
    K_r: FloatArray,
    noise: FloatArray,
    inertia: FloatArray,
    e: FloatArray,
    de: FloatArray,
    r: FloatArray,
) -> float:
    """Fill the measured errors (n,) and return a lower bound of V, J."""
    energy = 0.0
    for j in range(q.size):
        e[j] = reference[0, j] - q[j]
        de[j] = reference[1, j] - qd[j]
        r[j] = de[j] + K_r[j] * e[j]
        least = max(abs(r[j]) - noise[j], 0.0)
        energy += 0.5 * inertia[j] * least * least
    return energy


def judge_rest(
    model: RobotModel, gains: ControllerGains, noise: FloatArray, q: FloatArray, qd: FloatArray
) -> tuple[list[str], float]:
    """Reasons why control cannot begin here, and a bound of V(0), J.

    Args:
        noise: (n,) bound of the error of r, rad/s.
        q: (n,) measured, rad.
        qd: (n,) measured, rad/s.
    """
    if not (np.isfinite(q).all() and np.isfinite(qd).all()):
        return ["measurement is not finite"], np.inf
    a, reasons = gains.assumptions, []
    e = np.broadcast_to(a.position_error, (model.n,))
    r = np.abs(qd) + noise + gains.K_r * e
    energy = 0.5 * float(np.sum(a.inertia_upper * r * r))
    # The norm, not each joint alone: the planner's tube takes r and K_r e from ellipsoids.
    spread = float(np.sum(np.square(gains.K_r * e / gains.r_bound)))
    if energy > gains.V_start or spread > 1.0:
        worst = int(np.argmax(np.abs(qd)))
        unit = model.position_units[worst]
        reasons.append(
            f"arm not at rest: V(0) may be {at_most(energy)} J, expected at most {at_least(gains.V_start)} J "
            f"({model.joint_names[worst]} moves at {qd[worst]:.3g} {unit}/s)"
        )
    for j, name in enumerate(model.joint_names):
        # Limits are those of the true position.
        lower, upper = model.limits.position_lower[j] + e[j], model.limits.position_upper[j] - e[j]
        if not lower < q[j] < upper:
            unit = model.position_units[j]
            reasons.append(f"{name} at {q[j]:.4f} {unit}: expected inside ({lower:.4f}, {upper:.4f})")
    return reasons, energy
