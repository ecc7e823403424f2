r"""Interface of dynamics backends: torque, gravity, inertia and regressors of one arm.

With the layout of :mod:`safe_sysid.robot.parameters` and ``H`` including rotor inertia:

- ``W_s(q, qd, qd_a, qdd_a) theta = H qdd_a + C(q, qd) qd_a + g + Fc sigma(qd_a) + Fv qd_a + beta`` [SlotineLi1987],
- ``W(q, qd, qdd) = W_s(q, qd, qd, qdd)``, the torque regressor,
- ``W_m(q, qd) theta = H qd``, the momentum regressor [PSO eq. 11],
- ``W_c(q, qd) theta = C^T qd - g - friction`` [PSO eq. 12]; then ``d/dt W_m - W_c = W``.

``C`` is Christoffel's, sigma the friction sign ``sat(v / transition)``, the sign itself for ``transition = 0``.

The column of a rotor inertia ``Ia_j`` belongs to the energy ``qd_j^2 / 2 + gear (z . omega) qd_j`` per unit, z the axis
and omega the angular velocity of what carries the motor: besides ``e_j e_j^T`` the mass matrix has
``gear (e_j w^T + w e_j^T)``, ``w_i = z . z_i`` for turning joints i up to the carrier. So joint j feels ``gear z .
domega``, and the carrier the moment ``gear (qdd_j z + qd_j omega x z)``, the change of the rotor's momentum. Without
``Kinematics.motors`` only ``e_j e_j^T`` is left.
"""

from __future__ import annotations

from typing import Protocol

import numpy as np

from safe_sysid.core.arrays import FloatArray
from safe_sysid.core.layout import ParameterLayout
from safe_sysid.errors import ParameterError
from safe_sysid.robot.model import Kinematics

__all__ = ["Dynamics", "add_further", "as_parameters", "coulomb_direction"]


class Dynamics(Protocol):
    """Dynamics of one arm in floating point: no rounding is enclosed.

    States are (n,) or (N, n), rad, rad/s and rad/s^2 (m of sliding joints); results have a leading N for the latter.
    ``transition`` is the friction transition velocity, rad/s. Every method raises a
    :class:`~safe_sysid.errors.ParameterError` if shapes do not match.
    """

    kin: Kinematics

    def inverse_dynamics(
        self, theta: FloatArray, q: FloatArray, qd: FloatArray, qdd: FloatArray, transition: float = 0.0
    ) -> FloatArray:
        """Torque (n,) of the motors, N m, friction and rotors included: ``W(q, qd, qdd) theta``."""
        ...

    def gravity(self, theta: FloatArray, q: FloatArray) -> FloatArray:
        """Torque (n,) that holds the arm against gravity, N m, without the joints' offsets."""
        ...

    def mass_matrix(self, theta: FloatArray, q: FloatArray) -> FloatArray:
        """``H`` (n, n), kg m^2, rotors included."""
        ...

    def torque_regressor(self, q: FloatArray, qd: FloatArray, qdd: FloatArray, transition: float = 0.0) -> FloatArray:
        """``W`` (n, 14 n): ``W theta`` is the joints' torque, N m."""
        ...

    def slotine_li_regressor(
        self, q: FloatArray, qd: FloatArray, qd_a: FloatArray, qdd_a: FloatArray, transition: float = 0.0
    ) -> FloatArray:
        """``W_s`` (n, 14 n): the torque that is linear in two velocities, friction at ``qd_a``."""
        ...

    def momentum_regressor(self, q: FloatArray, qd: FloatArray) -> FloatArray:
        """``W_m`` (n, 14 n): ``W_m theta = H qd``, N m s."""
        ...

    def momentum_rate_regressor(self, q: FloatArray, qd: FloatArray, transition: float = 0.0) -> FloatArray:
        """``W_c`` (n, 14 n): ``W_c theta = C^T qd - g - friction``, N m."""
        ...


def as_parameters(kin: Kinematics, theta: FloatArray) -> FloatArray:
    """All parameters of an arm as a float64 array (14 n,).

    Raises:
        ParameterError: another shape.
    """
    theta = np.ascontiguousarray(theta, dtype=np.float64)
    size = ParameterLayout(len(kin.axis)).size
    if theta.shape != (size,):
        raise ParameterError(f"theta of shape {theta.shape}: expected ({size},)")
    return theta


def coulomb_direction(qd: FloatArray, transition: float) -> FloatArray:
    """What Coulomb friction is multiplied by: the velocity's sign, or what rises to it linearly, from -1 to 1.

    ``qd``: any shape, rad/s; ``transition``: friction transition velocity, rad/s; 0 for the sign.
    """
    return np.clip(qd / transition, -1.0, 1.0) if transition > 0.0 else np.sign(qd)


def add_further(out: FloatArray, qd: FloatArray, transition: float, sign: float) -> None:
    """Fill the columns of the layout's further terms, which no backend has: in each row that of its own joint.

    Args:
        out: (..., n, P) regressor.
        qd: (..., n) rad/s.
        transition: friction transition velocity, rad/s.
        sign: 1 for torques, -1 for rates of momentum.
    """
    joint = np.arange(qd.shape[-1])
    for columns, term in ParameterLayout(qd.shape[-1]).further:
        if term.torque is not None:
            out[..., joint, columns.start + joint] = sign * term.torque(qd, transition)
