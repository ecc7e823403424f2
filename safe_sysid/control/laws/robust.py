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
from safe_sysid.robot.model import Kinematics, RobotModel

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
        n = len(kin.axis)
        self._arm, self._gains, self._transition = kin.packed, gains, float(transition)
        self._gain = gains.robust_gain * gains.assumptions.hold_max
        self.residual_bound = gains.assumptions.feed_forward
        self._regressor = np.empty((1, n, ParameterLayout(n).size))
        self._q, self._qd = np.empty((1, n)), np.empty((1, n))
        self._qd_a, self._qdd_a = np.empty((1, n)), np.empty((1, n))
        self.torque = np.empty(n)
        self.e, self.de, self.r = np.empty(n), np.empty(n), np.empty(n)
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
        np.subtract(reference[0], q, out=self.e)
        np.subtract(reference[1], qd, out=self.de)
        self.r[:] = self.de + g.K_r * self.e
        self._qd[0] = qd
        self._q[0] = q + g.lead * qd
        self._qd_a[0] = reference[1] + g.K_r * self.e
        self._qdd_a[0] = reference[2] + g.K_r * self.de
        if g.own_damping > 0.0:  # by the arm's own inertia, whatever that is
            self._qdd_a[0] += g.own_damping * self.r
        slotine_li_kernel(self._arm, self._q, self._qd, self._qd_a, self._qdd_a, self._transition, self._regressor)
        self.uncertainty = robust_torque(
            self._regressor[0], model.mid, model.rad, self.r, g.K_d, g.inertia_lower, self._gain, self.torque
        )
        return self.torque


def make_robust_law(model: RobotModel, gains: ControllerGains) -> RobustLaw:
    """The law for an arm."""
    return RobustLaw(model.kinematics, gains, model.friction_transition_velocity)
