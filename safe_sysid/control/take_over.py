"""Taking over: how long the ramp to the law's torque may last so that the tracking bound holds from the start.

The arm rests and its drives hold it; ``tau_0``, the measured effort, is their torque. While control is taken over the
command is ``tau_0 + s (tau_law - tau_0)``, s from 0 to 1 (:mod:`safe_sysid.control.torque_rate`), and nothing but rest
is desired: the controller takes no plan that begins before. Statement, assumptions and proof: "Taking over" in
docs/understand/guarantees.md; the names here are the names there.
"""

from __future__ import annotations

import numpy as np

from safe_sysid.control.gains import ControllerGains
from safe_sysid.control.gains.power_loss import ClosedLoop
from safe_sysid.core.arrays import FloatArray
from safe_sysid.decimals import at_least, at_most
from safe_sysid.dynamics.magnitudes import link_norms, torque_sensitivity
from safe_sysid.robot.config import per_joint
from safe_sysid.robot.model import RobotModel
from safe_sysid.robot.parameters import ParameterBox

__all__ = ["TAKE_OVER", "choose_take_over", "effort_error", "longest_take_over"]

#: Duration of a take-over where the tracking bound allows it, s; and over the shortest that the rate allows, at least:
#: the law answers to the ramp with a rate of its own.
TAKE_OVER, _EASE = 0.02, 2.0
#: No take-over may last longer, s: how far the arm can move meanwhile follows from it.
_LONGEST = 0.05
_ROUND = 1.0 + 1e-9


def effort_error(model: RobotModel, gains: ControllerGains, box: ParameterBox, effort: FloatArray) -> float:
    """O: bound of ``|W_s theta - tau_0|_*`` while nothing but rest is desired, sqrt(W/s).

    Args:
        effort: (n,) measured at rest, N m.
    """
    n, a, lam = model.n, gains.assumptions, gains.inertia_lower
    nu = float(np.sqrt(2.0 * gains.V_max))
    mu, k_max, k_min = float(np.max(a.inertia_upper / lam)), float(gains.K_r.max()), float(gains.K_r.min())
    m = model.settings.measurement
    delta, relative = m.torque_error(n)
    delta = delta + relative * np.abs(effort) / (1.0 - relative)
    delta = delta + 2.0 * (a.actuator_abs + a.actuator_rel * np.abs(effort))  # at the start, and from then on
    # At rest Coulomb friction is anything in [-Fc, Fc]; a sensor on the link's side sees neither it nor the offset.
    delta = delta + 2.0 * box.upper[box.layout.coulomb]
    if m.torque_source == "link":
        offset = box.layout.offset
        delta = delta + np.maximum(np.abs(box.lower[offset]), np.abs(box.upper[offset]))
    speed = 2.0 * gains.r_bound
    moved = _LONGEST * speed + model.position_error
    sensitivity = torque_sensitivity(
        model.kinematics, link_norms(model.kinematics, box.lower, box.upper), speed, speed, np.zeros(n)
    )
    delta = delta + sensitivity.q @ moved + sensitivity.qd_a @ speed
    delta = delta + box.upper[box.layout.viscous] * gains.K_r * moved
    return float(np.linalg.norm(delta / np.sqrt(lam)) + k_max * np.sqrt(mu) * (1.0 + k_max / k_min) * nu)


def longest_take_over(
    model: RobotModel, gains: ControllerGains, box: ParameterBox, effort: FloatArray, energy: float
) -> float:
    """Longest ramp from the measured effort at rest to the law's torque, s.

    Args:
        effort: (n,) measured at rest, N m.
        energy: V at the start, at most, J.
    """
    a, lam, nu = gains.assumptions, gains.inertia_lower, float(np.sqrt(2.0 * gains.V_max))
    other = effort_error(model, gains, box, effort)
    kin, transition = model.kinematics, model.friction_transition_velocity
    loop = ClosedLoop(kin, gains.box, a, lam, gains.K_r, gains.K_d, gains.kappa, transition, gains.own_damping)
    crude = loop.crude(nu, a.hold_max, gains.lead)
    if crude is None or other > 2.0 * a.uncertainty + crude[0]:
        return 0.0
    # S without the stretch of "Damping by the arm's own inertia": |dr| and U are in inertia_lower's measure here.
    meets = 2.0 * a.uncertainty + nu * (loop.mu_d + loop.mu * loop.k + crude[2].by_r)
    extra = other * 0.5 * (a.hold_max + a.delay_max) * meets
    power = max(other * nu, gains.power_loss) + 0.25 * extra
    room = gains.V_start - energy - 2.0 * a.hold_max * extra
    return min(room / (power * _ROUND), _LONGEST)


def choose_take_over(
    model: RobotModel, gains: ControllerGains, box: ParameterBox, effort: FloatArray, energy: float, way: FloatArray
) -> tuple[float, str]:
    """Duration of the ramp, s, and the reason why the tracking bound does not allow it, "" if it does.

    Args:
        effort: (n,) measured at rest, N m.
        energy: V at the start, at most, J.
        way: (n,) from the effort to the law's torque, N m.
    """
    rate = per_joint(model.settings.controller.torque_rate, model.n)
    needs = _EASE * float(np.max(np.abs(way) / rate))
    allowed = longest_take_over(model, gains, box, effort, energy)
    if needs > allowed:
        return needs, (
            f"taking over takes {at_most(needs, places=4)} s, the tracking bound allows "
            f"{at_least(allowed, places=4)} s: "
            "expected a higher controller.torque_rate, or a smaller uncertainty"
        )
    return max(needs, min(TAKE_OVER, allowed)), ""
