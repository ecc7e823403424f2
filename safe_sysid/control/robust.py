r"""The robust control law: the torque of some parameter in the box, plus damping.

``tau = W_s(q, qd, qd_a, qdd_a) (theta_mid + s) + K_d r``, ``s_p = rad_p sat((r^T W_s)_p / eps_p)``,
``eps_p = c h S w_p`` with ``w_p = |W_s,p|_*`` and ``S = sum_p rad_p w_p``: the gain adapts to the state and to the box,
so that the sampled loop's dissipation is proved at every tick (docs/guarantees.md, "Tracking"). For
``r = 0`` or a point box the robust term vanishes; it is continuous in r, and ``theta_mid + s`` stays in the box.
"""

from __future__ import annotations

import numpy as np
from numba import njit
from numpy.typing import NDArray

from safe_sysid.control.gains import ControllerGains
from safe_sysid.robot.model import Kinematics
from safe_sysid.robot.regressors import slotine_li_kernel

__all__ = ["RobustLaw", "robust_torque"]

FloatArray = NDArray[np.float64]


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
    weight = np.zeros(size)
    total = 0.0
    for j in range(n):
        inverse = 1.0 / inertia_lower[j]
        for p in range(size):
            weight[p] += regressor[j, p] * regressor[j, p] * inverse
    for p in range(size):
        weight[p] = np.sqrt(weight[p])
        total += rad[p] * weight[p]
    for j in range(n):
        torque[j] = K_d[j] * r[j]
    for p in range(size):
        value = mid[p]
        if rad[p] > 0.0 and weight[p] > 0.0:
            x = 0.0
            for j in range(n):
                x += r[j] * regressor[j, p]
            value += rad[p] * max(-1.0, min(1.0, x / (gain * total * weight[p])))
        for j in range(n):
            torque[j] += regressor[j, p] * value
    return total


class RobustLaw:
    """The law with its work arrays; ``step`` allocates nothing that grows and takes no locks."""

    def __init__(self, kin: Kinematics, gains: ControllerGains, transition: float) -> None:
        """``transition``: friction transition velocity of the model, rad/s."""
        n = len(kin.axis)
        self._kin, self._gains, self._transition = kin, gains, float(transition)
        self._gain = gains.robust_gain * gains.assumptions.hold_max
        self._regressor = np.empty((1, n, 14 * n))
        self._q, self._qd = np.empty((1, n)), np.empty((1, n))
        self._qd_a, self._qdd_a = np.empty((1, n)), np.empty((1, n))
        self.torque = np.empty(n)
        self.e, self.de, self.r = np.empty(n), np.empty(n), np.empty(n)
        self.uncertainty = 0.0

    def step(
        self, q: FloatArray, qd: FloatArray, reference: FloatArray, mid: FloatArray, rad: FloatArray
    ) -> FloatArray:
        """Commanded torque (n,) in N m; the array is reused by the next call.

        Args:
            q: (n,) measured, rad.
            qd: (n,) measured, rad/s.
            reference: (>= 3, n) desired position, velocity, acceleration.
            mid: (14 n,) centre of the box worked with now.
            rad: (14 n,) its half widths.
        """
        g = self._gains
        np.subtract(reference[0], q, out=self.e)
        np.subtract(reference[1], qd, out=self.de)
        self.r[:] = self.de + g.K_r * self.e
        self._q[0], self._qd[0] = q, qd
        self._qd_a[0] = reference[1] + g.K_r * self.e
        self._qdd_a[0] = reference[2] + g.K_r * self.de
        slotine_li_kernel(
            *self._kin, self._q, self._qd, self._qd_a, self._qdd_a, self._transition, self._regressor
        )
        self.uncertainty = robust_torque(
            self._regressor[0], mid, rad, self.r, g.K_d, g.inertia_lower, self._gain, self.torque
        )
        return self.torque
