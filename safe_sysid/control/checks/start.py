"""Start checks: bounds the energy of the tracking error and decides whether control may begin."""

from __future__ import annotations

import numpy as np
from numba import njit

from safe_sysid.control.gains import ControllerGains
from safe_sysid.core.arrays import FloatArray
from safe_sysid.decimals import at_least, at_most
from safe_sysid.robot.model import RobotModel

__all__ = ["judge_rest", "tracking_energy"]


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
