"""Regressors by one spatial recursion, compiled and batched; :mod:`safe_sysid.dynamics.protocol` says what they are.

Christoffel's ``C(q, x) y`` is the symmetric bilinear form whose diagonal the Newton-Euler recursion gives, so it is
evaluated directly in polarised form; no finite differences, no factor-dependent ``C``.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from safe_sysid.core.arrays import FloatArray
from safe_sysid.core.layout import COULOMB, OFFSET, PER_LINK, ROTOR, VISCOUS, ParameterLayout
from safe_sysid.dynamics.momentum_columns import momentum_columns
from safe_sysid.dynamics.newton_euler import newton_euler
from safe_sysid.dynamics.protocol import add_further, as_parameters
from safe_sysid.dynamics.spatial import (
    friction_sign,
    moment_to_joints,
    polarised_motions,
    polarised_reaction,
    workspace,
)
from safe_sysid.robot.frames import as_batch, unpacked
from safe_sysid.robot.model import Kinematics, PackedKinematics

__all__ = ["RecursiveDynamics", "slotine_li_kernel"]


@njit(cache=True)
def _momentum_columns(v: FloatArray, out: FloatArray) -> None:
    """``A(v)`` (6, 10): spatial momentum (or inertial force for an acceleration) is ``A(v) theta_link``."""
    out[:, :] = 0.0
    x, y, z, wx, wy, wz = v[0], v[1], v[2], v[3], v[4], v[5]
    out[0, 0], out[1, 0], out[2, 0] = x, y, z
    out[0, 2], out[0, 3] = -wz, wy
    out[1, 1], out[1, 3] = wz, -wx
    out[2, 1], out[2, 2] = -wy, wx
    out[3, 2], out[3, 3] = z, -y
    out[4, 1], out[4, 3] = -z, x
    out[5, 1], out[5, 2] = y, -x
    out[3, 4], out[3, 5], out[3, 7] = wx, wy, wz
    out[4, 5], out[4, 6], out[4, 8] = wx, wy, wz
    out[5, 7], out[5, 8], out[5, 9] = wx, wy, wz


@njit(cache=True)
def _add_force_cross(v: FloatArray, momentum: FloatArray, scale: float, out: FloatArray) -> None:
    """``out += scale * v x* momentum`` for (6, 10) columns of forces."""
    x, y, z, wx, wy, wz = v[0], v[1], v[2], v[3], v[4], v[5]
    for c in range(10):
        f0, f1, f2 = momentum[0, c], momentum[1, c], momentum[2, c]
        n0, n1, n2 = momentum[3, c], momentum[4, c], momentum[5, c]
        out[0, c] += scale * (wy * f2 - wz * f1)
        out[1, c] += scale * (wz * f0 - wx * f2)
        out[2, c] += scale * (wx * f1 - wy * f0)
        out[3, c] += scale * (wy * n2 - wz * n1 + y * f2 - z * f1)
        out[4, c] += scale * (wz * n0 - wx * n2 + z * f0 - x * f2)
        out[5, c] += scale * (wx * n1 - wy * n0 + x * f1 - y * f0)


@njit(cache=True)
def _to_parent(rotation: FloatArray, translation: FloatArray, force: FloatArray) -> None:
    """Re-express (6, 10) force columns of a child frame in and at its parent frame, in place."""
    tx, ty, tz = translation[0], translation[1], translation[2]
    for c in range(10):
        f0, f1, f2 = force[0, c], force[1, c], force[2, c]
        n0, n1, n2 = force[3, c], force[4, c], force[5, c]
        gx = rotation[0, 0] * f0 + rotation[0, 1] * f1 + rotation[0, 2] * f2
        gy = rotation[1, 0] * f0 + rotation[1, 1] * f1 + rotation[1, 2] * f2
        gz = rotation[2, 0] * f0 + rotation[2, 1] * f1 + rotation[2, 2] * f2
        force[0, c], force[1, c], force[2, c] = gx, gy, gz
        force[3, c] = rotation[0, 0] * n0 + rotation[0, 1] * n1 + rotation[0, 2] * n2 + ty * gz - tz * gy
        force[4, c] = rotation[1, 0] * n0 + rotation[1, 1] * n1 + rotation[1, 2] * n2 + tz * gx - tx * gz
        force[5, c] = rotation[2, 0] * n0 + rotation[2, 1] * n1 + rotation[2, 2] * n2 + tx * gy - ty * gx


@njit(cache=True)
def slotine_li_kernel(
    arm: PackedKinematics,
    q: FloatArray,
    qd: FloatArray,
    qd_a: FloatArray,
    qdd_a: FloatArray,
    transition: float,
    out: FloatArray,
) -> None:
    """Fill ``out`` (N, n, 14 n) with W_s at N states (N, n); ``transition``: of friction, rad/s."""
    kin = unpacked(arm)
    axis, travel, parent, motors = kin.axis, kin.travel, kin.parent, kin.motors
    n = axis.shape[0]
    work = workspace(n)
    rot, shift, x, y, acc = work.rotation, work.origin, work.x, work.y, work.acceleration
    ax, ay, force = np.empty((6, 10)), np.empty((6, 10)), np.empty((6, 10))
    for k in range(q.shape[0]):
        out[k] = 0.0
        polarised_motions(kin, work, q[k], qd[k], qd_a[k], qdd_a[k])
        for link in range(n):
            _momentum_columns(acc[link], force)
            _momentum_columns(x[link], ax)
            _momentum_columns(y[link], ay)
            _add_force_cross(x[link], ay, 0.5, force)
            _add_force_cross(y[link], ax, 0.5, force)
            j = link
            while j >= 0:
                o = 0 if np.isfinite(travel[j, 0]) else 3
                for c in range(10):
                    out[k, j, PER_LINK * link + c] = (
                        axis[j, 0] * force[o, c] + axis[j, 1] * force[o + 1, c] + axis[j, 2] * force[o + 2, c]
                    )
                before = parent[j]
                if before >= 0:
                    _to_parent(rot[j], shift[j], force)
                j = before
        for j in range(n):
            out[k, j, COULOMB * n + j] = friction_sign(qd_a[k, j], transition)
            out[k, j, VISCOUS * n + j] = qd_a[k, j]
            out[k, j, ROTOR * n + j] = qdd_a[k, j]
            out[k, j, OFFSET * n + j] = 1.0
        for m in range(motors.joint.shape[0]):
            j, c = motors.joint[m], motors.carrier[m]
            for i in range(3):
                out[k, j, ROTOR * n + j] += motors.gear[m] * motors.axis[m, i] * acc[c, 3 + i]
            polarised_reaction(motors, m, work, qd[k], qd_a[k], qdd_a[k])
            moment_to_joints(kin, work, c, out[k, :, ROTOR * n + j])


@njit(cache=True)
def momentum_kernel(arm: PackedKinematics, q: FloatArray, qd: FloatArray, out: FloatArray) -> None:
    """Fill ``out`` (N, n, 14 n) with W_m at N states (N, n)."""
    kin = unpacked(arm)
    n, gravity, nothing = q.shape[1], kin.gravity.copy(), np.empty((0, 0))
    for k in range(q.shape[0]):
        out[k] = 0.0
        momentum_columns(kin, gravity, q[k], qd[k], 1.0, out[k], nothing)
        _place_motors(kin, out[k])
        for j in range(n):
            out[k, j, ROTOR * n + j] += qd[k, j]


@njit(cache=True)
def momentum_rate_kernel(
    arm: PackedKinematics, q: FloatArray, qd: FloatArray, transition: float, out: FloatArray
) -> None:
    """Fill ``out`` (N, n, 14 n) with W_c at N states (N, n); ``transition``: of friction, rad/s."""
    kin = unpacked(arm)
    n, gravity, nothing = q.shape[1], kin.gravity.copy(), np.empty((0, 0))
    for k in range(q.shape[0]):
        out[k] = 0.0
        momentum_columns(kin, gravity, q[k], qd[k], 1.0, nothing, out[k])
        _place_motors(kin, out[k])
        for j in range(n):
            out[k, j, COULOMB * n + j] = -friction_sign(qd[k, j], transition)
            out[k, j, VISCOUS * n + j] = -qd[k, j]
            out[k, j, OFFSET * n + j] = -1.0


@njit(cache=True)
def _place_motors(kin: Kinematics, out: FloatArray) -> None:
    """Move the motors' columns from behind the links' to those of their rotor inertias."""
    n, motors = out.shape[0], kin.motors
    for m in range(motors.joint.shape[0]):
        for j in range(n):
            out[j, ROTOR * n + motors.joint[m]] = out[j, PER_LINK * n + m]
            out[j, PER_LINK * n + m] = 0.0


class RecursiveDynamics:
    """The backend of this package (a :class:`~safe_sysid.dynamics.Dynamics`): spatial recursions, compiled."""

    def __init__(self, kin: Kinematics) -> None:
        self.kin = kin.read_only
        self._n = len(kin.axis)

    def inverse_dynamics(
        self, theta: FloatArray, q: FloatArray, qd: FloatArray, qdd: FloatArray, transition: float = 0.0
    ) -> FloatArray:
        """As :meth:`safe_sysid.dynamics.Dynamics.inverse_dynamics`."""
        return self._torque(self.kin, theta, (q, qd, qdd), transition)

    def _torque(
        self, kin: Kinematics, theta: FloatArray, state: tuple[FloatArray, FloatArray, FloatArray], transition: float
    ) -> FloatArray:
        (q, qd, qdd), single = as_batch(kin, *state)
        theta, arm = as_parameters(kin, theta), kin.packed
        out = np.empty(q.shape)
        for k in range(len(q)):
            newton_euler(arm, q[k], qd[k], qd[k], qdd[k], qd[k], transition, theta, out[k])
        for part, term in ParameterLayout(self._n).further:
            if term.torque is not None:
                out += theta[part] * term.torque(qd, transition)
        return out[0] if single else out

    def gravity(self, theta: FloatArray, q: FloatArray) -> FloatArray:
        """As :meth:`safe_sysid.dynamics.Dynamics.gravity`."""
        theta = np.array(as_parameters(self.kin, theta))
        theta[ParameterLayout(self._n).joint_terms] = 0.0
        still = np.zeros(np.shape(q))
        return self._torque(self.kin, theta, (q, still, still), 0.0)

    def mass_matrix(self, theta: FloatArray, q: FloatArray) -> FloatArray:
        """As :meth:`safe_sysid.dynamics.Dynamics.mass_matrix`."""
        (q,), single = as_batch(self.kin, q)
        n, theta = self._n, as_parameters(self.kin, theta)
        columns = self.momentum_regressor(np.repeat(q, n, axis=0), np.tile(np.eye(n), (len(q), 1))) @ theta
        inertia = np.ascontiguousarray(columns.reshape(len(q), n, n))
        return inertia[0] if single else inertia

    def slotine_li_regressor(
        self, q: FloatArray, qd: FloatArray, qd_a: FloatArray, qdd_a: FloatArray, transition: float = 0.0
    ) -> FloatArray:
        """As :meth:`safe_sysid.dynamics.Dynamics.slotine_li_regressor`."""
        (q, qd, qd_a, qdd_a), single = as_batch(self.kin, q, qd, qd_a, qdd_a)
        out = np.empty((len(q), self._n, ParameterLayout(self._n).size))
        slotine_li_kernel(self.kin.packed, q, qd, qd_a, qdd_a, transition, out)
        add_further(out, qd_a, transition, 1.0)
        return out[0] if single else out

    def torque_regressor(self, q: FloatArray, qd: FloatArray, qdd: FloatArray, transition: float = 0.0) -> FloatArray:
        """As :meth:`safe_sysid.dynamics.Dynamics.torque_regressor`."""
        return self.slotine_li_regressor(q, qd, qd, qdd, transition)

    def momentum_regressor(self, q: FloatArray, qd: FloatArray) -> FloatArray:
        """As :meth:`safe_sysid.dynamics.Dynamics.momentum_regressor`."""
        (q, qd), single = as_batch(self.kin, q, qd)
        out = np.empty((len(q), self._n, ParameterLayout(self._n).size))
        momentum_kernel(self.kin.packed, q, qd, out)
        return out[0] if single else out

    def momentum_rate_regressor(self, q: FloatArray, qd: FloatArray, transition: float = 0.0) -> FloatArray:
        """As :meth:`safe_sysid.dynamics.Dynamics.momentum_rate_regressor`."""
        (q, qd), single = as_batch(self.kin, q, qd)
        out = np.empty((len(q), self._n, ParameterLayout(self._n).size))
        momentum_rate_kernel(self.kin.packed, q, qd, transition, out)
        add_further(out, qd, transition, -1.0)
        return out[0] if single else out
