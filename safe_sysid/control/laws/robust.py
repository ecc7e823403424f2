r"""The robust control law: the torque of some parameter in the box, plus damping.

``tau = W_s(q_p, qd, qd_a, qdd_a) (theta_mid + s) + K_d r``, ``s_p = rad_p sat((r^T W_s)_p / eps_p)``, with the
position ``q_p = q + lead qd`` that the arm will be at in the middle of the command's life, ``eps_p = c h b_p`` and
``b_p = sum_j |W_s,jp| a_j / L_j``, ``a_j = sum_p |W_s,jp| rad_p``: the gain adapts to the state and to the box, so
that the sampled loop's dissipation is proved at every tick (docs/understand/guarantees.md, "Tracking"). With
``controller.damping: inertia`` the damping is ``kappa r`` in the acceleration instead of ``K_d r``. For ``r = 0``
or a point box the robust term vanishes; it is continuous in r, and ``theta_mid + s`` stays in the box.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from safe_sysid.control.gains import ControllerGains
from safe_sysid.control.laws.law import ModelInUse, Proves
from safe_sysid.core.arrays import FloatArray
from safe_sysid.core.layout import ParameterLayout
from safe_sysid.dynamics.recursion import slotine_li_kernel
from safe_sysid.robot.model import Kinematics, PackedKinematics, RobotModel

__all__ = ["RobustLaw", "make_robust_law", "robust_torque"]


@njit(cache=True)
def robust_torque(
    regressor: FloatArray,
    mid: FloatArray,
    rad: FloatArray,
    r: FloatArray,
    K_d: FloatArray,
    inertia_lower: FloatArray,
    gain: float,
    torque: FloatArray,
) -> float:
    """Fill ``torque`` (n,) and return S. ``regressor`` (n, P), box ``mid``/``rad`` (P,), ``gain`` = c hold_max (s)."""
    n, size = regressor.shape
    spread = np.zeros(n)
    total = 0.0
    for j in range(n):
        for p in range(size):
            spread[j] += abs(regressor[j, p]) * rad[p]
        total += spread[j] * spread[j] / inertia_lower[j]
        spread[j] /= inertia_lower[j]
        torque[j] = K_d[j] * r[j]
    for p in range(size):
        value = mid[p]
        if rad[p] > 0.0:
            x = 0.0
            weight = 0.0
            for j in range(n):
                x += r[j] * regressor[j, p]
                weight += abs(regressor[j, p]) * spread[j]
            if weight > 0.0:
                value += rad[p] * max(-1.0, min(1.0, x / (gain * weight)))
        for j in range(n):
            torque[j] += regressor[j, p] * value
    return np.sqrt(total)


@njit(cache=True)
def _robust_step(
    arm: PackedKinematics,
    q: FloatArray,
    qd: FloatArray,
    reference: FloatArray,
    mid: FloatArray,
    rad: FloatArray,
    K_r: FloatArray,
    K_d: FloatArray,
    inertia_lower: FloatArray,
    numbers: FloatArray,
    errors: FloatArray,
    states: FloatArray,
    regressor: FloatArray,
    torque: FloatArray,
) -> float:
    """One step: errors (3, n), the regressor's states (4, 1, n), W_s, torque; returns S.

    One call: numpy's small operations take longer than the law, most of all where the caches are cold.

    ``numbers``: c hold_max, lead, own damping, transition.
    """
    gain, lead, own, transition = numbers
    for j in range(q.size):
        e, de = reference[0, j] - q[j], reference[1, j] - qd[j]
        r = de + K_r[j] * e
        errors[0, j], errors[1, j], errors[2, j] = e, de, r
        states[0, 0, j], states[1, 0, j] = q[j] + lead * qd[j], qd[j]
        states[2, 0, j] = reference[1, j] + K_r[j] * e
        acceleration = reference[2, j] + K_r[j] * de
        if own > 0.0:  # by the arm's own inertia, whatever that is
            acceleration += own * r
        states[3, 0, j] = acceleration
    slotine_li_kernel(arm, states[0], states[1], states[2], states[3], transition, regressor)
    return robust_torque(regressor[0], mid, rad, errors[2], K_d, inertia_lower, gain, torque)


class RobustLaw:
    """The law with its work arrays (a :class:`safe_sysid.control.laws.law.ControlLaw`), no memory between steps.

    Attributes:
        residual_bound: (n,) what the gains' theorem leaves to a feed-forward, N m.
        e, de, r: (n,) measured tracking errors of the last step; rad, rad/s, rad/s.
        torque: (n,) what the last step returned, N m.
    """

    name = "robust"
    proves = Proves.TRACKING

    def __init__(self, kin: Kinematics, gains: ControllerGains, transition: float) -> None:
        """``transition``: friction transition velocity of the model, rad/s."""
        n, g = len(kin.axis), gains
        self._arm, self._gains = kin.packed, gains
        self._numbers = np.array([g.robust_gain * g.assumptions.hold_max, g.lead, g.own_damping, float(transition)])
        self.residual_bound = gains.assumptions.feed_forward
        self._regressor, self._states = np.empty((1, n, ParameterLayout(n).size)), np.empty((4, 1, n))
        self._errors, self.torque = np.empty((3, n)), np.empty(n)
        self.e, self.de, self.r = self._errors
        self.uncertainty = 0.0

    def reset(self, t: float, q: FloatArray, qd: FloatArray) -> None:
        """Nothing to forget. ``t``: s; ``q``: (n,) rad; ``qd``: (n,) rad/s."""

    def step(self, t: float, q: FloatArray, qd: FloatArray, reference: FloatArray, model: ModelInUse) -> FloatArray:
        """Commanded torque (n,) in N m; the array is reused by the next call.

        Args:
            t: stamp of the measurement, s; not used.
            q: (n,) measured, rad.
            qd: (n,) measured, rad/s.
            reference: (>= 3, n) desired position, velocity, acceleration.
            model: its ``mid`` and ``rad`` are the box worked with now.
        """
        g = self._gains
        self.uncertainty = _robust_step(
            self._arm, q, qd, reference, model.mid, model.rad, g.K_r, g.K_d, g.inertia_lower, self._numbers,
            self._errors, self._states, self._regressor, self.torque,
        )  # fmt: skip
        return self.torque


def make_robust_law(model: RobotModel, gains: ControllerGains) -> RobustLaw:
    """The law for an arm."""
    return RobustLaw(model.kinematics, gains, model.friction_transition_velocity)
