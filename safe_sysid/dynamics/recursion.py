"""Regressors by one spatial recursion, compiled and batched; :mod:`safe_sysid.dynamics.protocol` says what they are.

Christoffel's ``C(q, x) y`` is the symmetric bilinear form whose diagonal the Newton-Euler recursion gives, so it is
evaluated directly in polarised form; no finite differences, no factor-dependent ``C``.
"""

from __future__ import annotations

import numpy as np
from numba import njit
from numpy.typing import NDArray

from safe_sysid.core.layout import COULOMB, OFFSET, PER_LINK, ROTOR, VISCOUS, ParameterLayout
from safe_sysid.dynamics.newton_euler import newton_euler
from safe_sysid.dynamics.protocol import add_further, as_parameters
from safe_sysid.dynamics.spatial import (
    Workspace,
    add_velocity_product,
    friction_sign,
    moment_to_joints,
    polarised_motions,
    polarised_reaction,
    to_child,
    workspace,
)
from safe_sysid.robot.frames import as_batch, joint_placement, unpacked
from safe_sysid.robot.model import Kinematics, PackedKinematics

__all__ = ["RecursiveDynamics", "momentum_kernel", "slotine_li_kernel"]

FloatArray = NDArray[np.float64]


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
def _add_reaction_slopes(
    kin: Kinematics, work: Workspace, m: int, qd: FloatArray, column: FloatArray
) -> None:
    """Add to ``column`` (n,) the derivatives by q of the energy ``gear (z . omega) qd_j`` of motor m.

    The axis seen from joint i is turned by it: ``d(z . omega)/dq_i = z . (omega_i x z_i)``, omega_i up to joint i,
    here the motions ``work.y`` that the links before the joints carry.
    """
    axis, motors, carried, spin = kin.axis, kin.motors, work.y, work.moment
    for i in range(3):
        spin[i] = motors.gear[m] * qd[motors.joint[m]] * motors.axis[m, i]
    i = motors.carrier[m]
    while i >= 0:
        if not np.isfinite(kin.travel[i, 0]):
            for a in range(3):
                b, c = (a + 1) % 3, (a + 2) % 3
                column[i] += spin[a] * (carried[i, 3 + b] * axis[i, c] - carried[i, 3 + c] * axis[i, b])
        x, y, z = spin[0], spin[1], spin[2]
        for a in range(3):
            spin[a] = work.rotation[i, a, 0] * x + work.rotation[i, a, 1] * y + work.rotation[i, a, 2] * z
        i = kin.parent[i]


@njit(cache=True)
def momentum_kernel(
    arm: PackedKinematics,
    q: FloatArray,
    qd: FloatArray,
    transition: float,
    want_momentum: bool,
    want_rate: bool,
    w_m: FloatArray,
    w_c: FloatArray,
) -> None:
    """Fill ``w_m`` and/or ``w_c`` (N, n, 14 n) at N states; the one not wanted may be any array of that rank."""
    kin = unpacked(arm)
    axis, gravity, travel, parent, motors = kin.axis, kin.gravity, kin.travel, kin.parent, kin.motors
    rotation, translation = kin.rotation, kin.translation
    n = axis.shape[0]
    work = workspace(n)
    rot, shift, moment, base = work.rotation, work.origin, work.moment, work.motion
    v, carried, weight = work.x, work.y, work.acceleration
    momentum, gforce, across = np.empty((6, 10)), np.empty((6, 10)), np.empty(6)
    for k in range(q.shape[0]):
        if want_momentum:
            w_m[k] = 0.0
        if want_rate:
            w_c[k] = 0.0
        for j in range(n):
            sliding = np.isfinite(travel[j, 0])
            joint_placement(rotation[j], translation[j], axis[j], sliding, q[k, j], rot[j], shift[j])
            before = parent[j]
            if before < 0:
                base[:] = 0.0
                to_child(rot[j], shift[j], base, carried[j])
                base[0], base[1], base[2] = -gravity[0], -gravity[1], -gravity[2]
                to_child(rot[j], shift[j], base, weight[j])
            else:
                to_child(rot[j], shift[j], v[before], carried[j])
                to_child(rot[j], shift[j], weight[before], weight[j])
            o = 0 if sliding else 3
            for i in range(6):
                v[j, i] = carried[j, i]
            for i in range(3):
                v[j, o + i] += axis[j, i] * qd[k, j]
        for link in range(n):
            _momentum_columns(v[link], momentum)
            if want_rate:
                _momentum_columns(weight[link], gforce)
            j = link
            while j >= 0:
                a0, a1, a2 = axis[j, 0], axis[j, 1], axis[j, 2]
                sliding = np.isfinite(travel[j, 0])
                o = 0 if sliding else 3
                if want_momentum:
                    for c in range(10):
                        w_m[k, j, PER_LINK * link + c] = (
                            a0 * momentum[o, c] + a1 * momentum[o + 1, c] + a2 * momentum[o + 2, c]
                        )
                if want_rate:
                    # dv_link/dq_j, seen at joint j, is (carried x S): its product with the momentum is dT/dq_j.
                    across[:] = 0.0
                    add_velocity_product(axis[j], sliding, 1.0, carried[j], across)
                    for c in range(10):
                        w_c[k, j, PER_LINK * link + c] = (
                            across[0] * momentum[0, c]
                            + across[1] * momentum[1, c]
                            + across[2] * momentum[2, c]
                            + across[3] * momentum[3, c]
                            + across[4] * momentum[4, c]
                            + across[5] * momentum[5, c]
                            - (a0 * gforce[o, c] + a1 * gforce[o + 1, c] + a2 * gforce[o + 2, c])
                        )
                before = parent[j]
                if before >= 0:
                    _to_parent(rot[j], shift[j], momentum)
                    if want_rate:
                        _to_parent(rot[j], shift[j], gforce)
                j = before
        for j in range(n):
            if want_momentum:
                w_m[k, j, ROTOR * n + j] = qd[k, j]
            if want_rate:
                w_c[k, j, COULOMB * n + j] = -friction_sign(qd[k, j], transition)
                w_c[k, j, VISCOUS * n + j] = -qd[k, j]
                w_c[k, j, OFFSET * n + j] = -1.0
        for m in range(motors.joint.shape[0]):
            j, c = motors.joint[m], motors.carrier[m]
            if want_momentum:
                for i in range(3):
                    moment[i] = motors.gear[m] * qd[k, j] * motors.axis[m, i]
                    w_m[k, j, ROTOR * n + j] += motors.gear[m] * motors.axis[m, i] * v[c, 3 + i]
                moment_to_joints(kin, work, c, w_m[k, :, ROTOR * n + j])
            if want_rate:
                _add_reaction_slopes(kin, work, m, qd[k], w_c[k, :, ROTOR * n + j])


class RecursiveDynamics:
    """The backend of this package (a :class:`~safe_sysid.dynamics.Dynamics`): spatial recursions, compiled.

    Attributes:
        kin: of the arm.
    """

    def __init__(self, kin: Kinematics) -> None:
        """Nothing is prepared."""
        self.kin = kin
        self._n = len(kin.axis)

    def inverse_dynamics(
        self, theta: FloatArray, q: FloatArray, qd: FloatArray, qdd: FloatArray, transition: float = 0.0
    ) -> FloatArray:
        """As :meth:`safe_sysid.dynamics.Dynamics.inverse_dynamics`."""
        return self._torque(self.kin, theta, (q, qd, qdd), transition)

    def _torque(
        self,
        kin: Kinematics,
        theta: FloatArray,
        state: tuple[FloatArray, FloatArray, FloatArray],
        transition: float,
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

    def torque_regressor(
        self, q: FloatArray, qd: FloatArray, qdd: FloatArray, transition: float = 0.0
    ) -> FloatArray:
        """As :meth:`safe_sysid.dynamics.Dynamics.torque_regressor`."""
        return self.slotine_li_regressor(q, qd, qd, qdd, transition)

    def momentum_regressor(self, q: FloatArray, qd: FloatArray) -> FloatArray:
        """As :meth:`safe_sysid.dynamics.Dynamics.momentum_regressor`."""
        (q, qd), single = as_batch(self.kin, q, qd)
        out = np.empty((len(q), self._n, ParameterLayout(self._n).size))
        momentum_kernel(self.kin.packed, q, qd, 0.0, True, False, out, out)
        return out[0] if single else out

    def momentum_rate_regressor(self, q: FloatArray, qd: FloatArray, transition: float = 0.0) -> FloatArray:
        """As :meth:`safe_sysid.dynamics.Dynamics.momentum_rate_regressor`."""
        (q, qd), single = as_batch(self.kin, q, qd)
        out = np.empty((len(q), self._n, ParameterLayout(self._n).size))
        momentum_kernel(self.kin.packed, q, qd, transition, False, True, out, out)
        add_further(out, qd, transition, -1.0)
        return out[0] if single else out
