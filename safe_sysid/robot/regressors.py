r"""Regressors: matrices linear in the 14 n parameters, by one spatial recursion, compiled and batched.

With the layout of :mod:`safe_sysid.robot.parameters` and ``H`` including rotor inertia:

- ``W_s(q, qd, qd_a, qdd_a) theta = H qdd_a + C(q, qd) qd_a + g + Fc sigma(qd_a) + Fv qd_a + beta`` [SlotineLi1987],
- ``W(q, qd, qdd) = W_s(q, qd, qd, qdd)``, the torque regressor,
- ``W_m(q, qd) theta = H qd``, the momentum regressor [PSO eq. 11],
- ``W_c(q, qd) theta = C^T qd - g - friction`` [PSO eq. 12]; then ``d/dt W_m - W_c = W``.

The column of a rotor inertia ``Ia_j`` belongs to the energy ``qd_j^2 / 2 + gear (z . omega) qd_j`` per unit, z the axis
and omega the angular velocity of what carries the motor: besides ``e_j e_j^T`` the mass matrix has
``gear (e_j w^T + w e_j^T)``, ``w_i = z . z_i`` for turning joints i up to the carrier. So joint j feels ``gear z .
domega``, and the carrier the moment ``gear (qdd_j z + qd_j omega x z)``, the change of the rotor's momentum. Without
``Kinematics.motors`` only ``e_j e_j^T`` is left.

``C`` is Christoffel's: ``C(q, x) y`` is the symmetric bilinear form whose diagonal the Newton-Euler recursion gives,
so it is evaluated directly in polarised form; no finite differences, no factor-dependent ``C``.
"""

from __future__ import annotations

import numpy as np
from numba import njit
from numpy.typing import NDArray

from safe_sysid.errors import ParameterError
from safe_sysid.robot.model import Kinematics, Motors

__all__ = [
    "forward_kinematics",
    "momentum_rate_regressor",
    "momentum_regressor",
    "slotine_li_kernel",
    "slotine_li_regressor",
    "torque_regressor",
]

FloatArray = NDArray[np.float64]


@njit(cache=True)
def joint_rotation(fixed: FloatArray, axis: FloatArray, angle: float, out: FloatArray) -> None:
    """``out = fixed @ exp([axis] angle)`` (3, 3), Rodrigues' formula for a unit axis."""
    c, s = np.cos(angle), np.sin(angle)
    x, y, z = axis[0], axis[1], axis[2]
    t = 1.0 - c
    r00, r01, r02 = c + t * x * x, t * x * y - s * z, t * x * z + s * y
    r10, r11, r12 = t * x * y + s * z, c + t * y * y, t * y * z - s * x
    r20, r21, r22 = t * x * z - s * y, t * y * z + s * x, c + t * z * z
    for i in range(3):
        a, b, d = fixed[i, 0], fixed[i, 1], fixed[i, 2]
        out[i, 0] = a * r00 + b * r10 + d * r20
        out[i, 1] = a * r01 + b * r11 + d * r21
        out[i, 2] = a * r02 + b * r12 + d * r22


@njit(cache=True)
def joint_placement(
    fixed: FloatArray,
    translation: FloatArray,
    axis: FloatArray,
    sliding: bool,
    q: float,
    rotation: FloatArray,
    origin: FloatArray,
) -> None:
    """Frame of a joint in the one before it: ``rotation`` (3, 3) and ``origin`` (3,), at q rad or, if sliding, m."""
    if sliding:
        for i in range(3):
            for k in range(3):
                rotation[i, k] = fixed[i, k]
            origin[i] = translation[i] + q * (
                fixed[i, 0] * axis[0] + fixed[i, 1] * axis[1] + fixed[i, 2] * axis[2]
            )
    else:
        joint_rotation(fixed, axis, q, rotation)
        for i in range(3):
            origin[i] = translation[i]


@njit(cache=True)
def add_velocity_product(
    axis: FloatArray, sliding: bool, scale: float, v: FloatArray, out: FloatArray
) -> None:
    """``out += scale * v x S`` of motions (linear, angular); S is ``(axis, 0)`` if sliding, else ``(0, axis)``."""
    for i in range(3):
        a, b = (i + 1) % 3, (i + 2) % 3
        turned = v[3 + a] * axis[b] - v[3 + b] * axis[a]
        if sliding:
            out[i] += scale * turned
        else:
            out[i] += scale * (v[a] * axis[b] - v[b] * axis[a])
            out[3 + i] += scale * turned


@njit(cache=True)
def cross(a: FloatArray, b: FloatArray, out: FloatArray) -> None:
    """``out = a x b``; out must not alias."""
    out[0] = a[1] * b[2] - a[2] * b[1]
    out[1] = a[2] * b[0] - a[0] * b[2]
    out[2] = a[0] * b[1] - a[1] * b[0]


@njit(cache=True)
def to_child(rotation: FloatArray, translation: FloatArray, motion: FloatArray, out: FloatArray) -> None:
    """Motion vector (linear, angular) of the parent frame's origin, re-expressed in and at the child frame."""
    wx, wy, wz = motion[3], motion[4], motion[5]
    tx, ty, tz = translation[0], translation[1], translation[2]
    lx, ly, lz = motion[0] + wy * tz - wz * ty, motion[1] + wz * tx - wx * tz, motion[2] + wx * ty - wy * tx
    for i in range(3):
        out[i] = rotation[0, i] * lx + rotation[1, i] * ly + rotation[2, i] * lz
        out[3 + i] = rotation[0, i] * wx + rotation[1, i] * wy + rotation[2, i] * wz


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
def moment_to_joints(
    rotation: FloatArray,
    axis: FloatArray,
    travel: FloatArray,
    link: int,
    moment: FloatArray,
    column: FloatArray,
) -> None:
    """Add to ``column`` (n,) the joint torques of a moment (3,) on a link, in its frame; ``moment`` is used up.

    Args:
        rotation: (n, 3, 3) of each joint frame in the one before, at the joints' positions.
        axis: (n, 3).
        travel: (n, 2).
        link: index.
        moment: N m.
        column: output.
    """
    for i in range(link, -1, -1):
        x, y, z = moment[0], moment[1], moment[2]
        if not np.isfinite(travel[i, 0]):
            column[i] += axis[i, 0] * x + axis[i, 1] * y + axis[i, 2] * z
        for a in range(3):
            moment[a] = rotation[i, a, 0] * x + rotation[i, a, 1] * y + rotation[i, a, 2] * z


@njit(cache=True)
def polarised_reaction(
    motors: Motors,
    m: int,
    x: FloatArray,
    y: FloatArray,
    qd: FloatArray,
    qd_a: FloatArray,
    qdd_a: FloatArray,
    moment: FloatArray,
) -> None:
    """Moment (3,) on the carrier of motor m, per unit of its joint's rotor inertia, polarised in the velocities."""
    j, c, gear = motors.joint[m], motors.carrier[m], motors.gear[m]
    for i in range(3):
        a, b = (i + 1) % 3, (i + 2) % 3
        za, zb = motors.axis[m, a], motors.axis[m, b]
        turned = qd_a[j] * (x[c, 3 + a] * zb - x[c, 3 + b] * za) + qd[j] * (
            y[c, 3 + a] * zb - y[c, 3 + b] * za
        )
        moment[i] = gear * (qdd_a[j] * motors.axis[m, i] + 0.5 * turned)


@njit(cache=True)
def friction_sign(v: float, transition: float) -> float:
    """``sat(v / transition)``; the sign for ``transition == 0``."""
    if transition > 0.0:
        return max(-1.0, min(1.0, v / transition))
    return float(np.sign(v))


@njit(cache=True)
def slotine_li_kernel(
    rotation: FloatArray,
    translation: FloatArray,
    axis: FloatArray,
    gravity: FloatArray,
    travel: FloatArray,
    motors: Motors,
    q: FloatArray,
    qd: FloatArray,
    qd_a: FloatArray,
    qdd_a: FloatArray,
    transition: float,
    out: FloatArray,
) -> None:
    """Fill ``out`` (N, n, 14 n) with W_s at N states (N, n); the first six arguments are Kinematics' fields."""
    n = axis.shape[0]
    rot, shift = np.empty((n, 3, 3)), np.empty((n, 3))
    x, y, acc = np.empty((n, 6)), np.empty((n, 6)), np.empty((n, 6))
    base = np.zeros(6)
    ax, ay, force = np.empty((6, 10)), np.empty((6, 10)), np.empty((6, 10))
    moment = np.empty(3)
    for k in range(q.shape[0]):
        out[k] = 0.0
        for j in range(n):
            sliding = np.isfinite(travel[j, 0])
            joint_placement(rotation[j], translation[j], axis[j], sliding, q[k, j], rot[j], shift[j])
            if j == 0:
                base[:] = 0.0
                to_child(rot[j], shift[j], base, x[j])
                to_child(rot[j], shift[j], base, y[j])
                base[0], base[1], base[2] = -gravity[0], -gravity[1], -gravity[2]
                to_child(rot[j], shift[j], base, acc[j])
            else:
                to_child(rot[j], shift[j], x[j - 1], x[j])
                to_child(rot[j], shift[j], y[j - 1], y[j])
                to_child(rot[j], shift[j], acc[j - 1], acc[j])
            o = 0 if sliding else 3
            for i in range(3):
                x[j, o + i] += axis[j, i] * qd[k, j]
                y[j, o + i] += axis[j, i] * qd_a[k, j]
                acc[j, o + i] += axis[j, i] * qdd_a[k, j]
            # Polarised velocity product: (x x S y_j + y x S x_j) / 2.
            add_velocity_product(axis[j], sliding, 0.5 * qd_a[k, j], x[j], acc[j])
            add_velocity_product(axis[j], sliding, 0.5 * qd[k, j], y[j], acc[j])
        for link in range(n):
            _momentum_columns(acc[link], force)
            _momentum_columns(x[link], ax)
            _momentum_columns(y[link], ay)
            _add_force_cross(x[link], ay, 0.5, force)
            _add_force_cross(y[link], ax, 0.5, force)
            for j in range(link, -1, -1):
                o = 0 if np.isfinite(travel[j, 0]) else 3
                for c in range(10):
                    out[k, j, 10 * link + c] = (
                        axis[j, 0] * force[o, c] + axis[j, 1] * force[o + 1, c] + axis[j, 2] * force[o + 2, c]
                    )
                if j > 0:
                    _to_parent(rot[j], shift[j], force)
        for j in range(n):
            out[k, j, 10 * n + j] = friction_sign(qd_a[k, j], transition)
            out[k, j, 11 * n + j] = qd_a[k, j]
            out[k, j, 12 * n + j] = qdd_a[k, j]
            out[k, j, 13 * n + j] = 1.0
        for m in range(motors.joint.shape[0]):
            j, c = motors.joint[m], motors.carrier[m]
            for i in range(3):
                out[k, j, 12 * n + j] += motors.gear[m] * motors.axis[m, i] * acc[c, 3 + i]
            polarised_reaction(motors, m, x, y, qd[k], qd_a[k], qdd_a[k], moment)
            moment_to_joints(rot, axis, travel, c, moment, out[k, :, 12 * n + j])


@njit(cache=True)
def _add_reaction_slopes(
    motors: Motors,
    m: int,
    rotation: FloatArray,
    axis: FloatArray,
    travel: FloatArray,
    carried: FloatArray,
    qd: FloatArray,
    column: FloatArray,
) -> None:
    """Add to ``column`` (n,) the derivatives by q of the energy ``gear (z . omega) qd_j`` of motor m.

    The axis seen from joint i is turned by it: ``d(z . omega)/dq_i = z . (omega_i x z_i)``, omega_i up to joint i.
    """
    spin = np.empty(3)
    for i in range(3):
        spin[i] = motors.gear[m] * qd[motors.joint[m]] * motors.axis[m, i]
    for i in range(motors.carrier[m], -1, -1):
        if not np.isfinite(travel[i, 0]):
            for a in range(3):
                b, c = (a + 1) % 3, (a + 2) % 3
                column[i] += spin[a] * (carried[i, 3 + b] * axis[i, c] - carried[i, 3 + c] * axis[i, b])
        x, y, z = spin[0], spin[1], spin[2]
        for a in range(3):
            spin[a] = rotation[i, a, 0] * x + rotation[i, a, 1] * y + rotation[i, a, 2] * z


@njit(cache=True)
def momentum_kernel(
    rotation: FloatArray,
    translation: FloatArray,
    axis: FloatArray,
    gravity: FloatArray,
    travel: FloatArray,
    motors: Motors,
    q: FloatArray,
    qd: FloatArray,
    transition: float,
    want_momentum: bool,
    want_rate: bool,
    w_m: FloatArray,
    w_c: FloatArray,
) -> None:
    """Fill ``w_m`` and/or ``w_c`` (N, n, 14 n) at N states; the one not wanted may be any array of that rank."""
    n = axis.shape[0]
    rot, shift, across = np.empty((n, 3, 3)), np.empty((n, 3)), np.zeros(6)
    v, carried, weight = np.empty((n, 6)), np.empty((n, 6)), np.empty((n, 6))
    base = np.zeros(6)
    momentum, gforce = np.empty((6, 10)), np.empty((6, 10))
    moment = np.empty(3)
    for k in range(q.shape[0]):
        if want_momentum:
            w_m[k] = 0.0
        if want_rate:
            w_c[k] = 0.0
        for j in range(n):
            sliding = np.isfinite(travel[j, 0])
            joint_placement(rotation[j], translation[j], axis[j], sliding, q[k, j], rot[j], shift[j])
            if j == 0:
                base[:] = 0.0
                to_child(rot[j], shift[j], base, carried[j])
                base[0], base[1], base[2] = -gravity[0], -gravity[1], -gravity[2]
                to_child(rot[j], shift[j], base, weight[j])
            else:
                to_child(rot[j], shift[j], v[j - 1], carried[j])
                to_child(rot[j], shift[j], weight[j - 1], weight[j])
            o = 0 if sliding else 3
            for i in range(6):
                v[j, i] = carried[j, i]
            for i in range(3):
                v[j, o + i] += axis[j, i] * qd[k, j]
        for link in range(n):
            _momentum_columns(v[link], momentum)
            if want_rate:
                _momentum_columns(weight[link], gforce)
            for j in range(link, -1, -1):
                a0, a1, a2 = axis[j, 0], axis[j, 1], axis[j, 2]
                sliding = np.isfinite(travel[j, 0])
                o = 0 if sliding else 3
                if want_momentum:
                    for c in range(10):
                        w_m[k, j, 10 * link + c] = (
                            a0 * momentum[o, c] + a1 * momentum[o + 1, c] + a2 * momentum[o + 2, c]
                        )
                if want_rate:
                    # dv_link/dq_j, seen at joint j, is (carried x S): its product with the momentum is dT/dq_j.
                    across[:] = 0.0
                    add_velocity_product(axis[j], sliding, 1.0, carried[j], across)
                    for c in range(10):
                        w_c[k, j, 10 * link + c] = (
                            across[0] * momentum[0, c]
                            + across[1] * momentum[1, c]
                            + across[2] * momentum[2, c]
                            + across[3] * momentum[3, c]
                            + across[4] * momentum[4, c]
                            + across[5] * momentum[5, c]
                            - (a0 * gforce[o, c] + a1 * gforce[o + 1, c] + a2 * gforce[o + 2, c])
                        )
                if j > 0:
                    _to_parent(rot[j], shift[j], momentum)
                    if want_rate:
                        _to_parent(rot[j], shift[j], gforce)
        for j in range(n):
            if want_momentum:
                w_m[k, j, 12 * n + j] = qd[k, j]
            if want_rate:
                w_c[k, j, 10 * n + j] = -friction_sign(qd[k, j], transition)
                w_c[k, j, 11 * n + j] = -qd[k, j]
                w_c[k, j, 13 * n + j] = -1.0
        for m in range(motors.joint.shape[0]):
            j, c = motors.joint[m], motors.carrier[m]
            if want_momentum:
                for i in range(3):
                    moment[i] = motors.gear[m] * qd[k, j] * motors.axis[m, i]
                    w_m[k, j, 12 * n + j] += motors.gear[m] * motors.axis[m, i] * v[c, 3 + i]
                moment_to_joints(rot, axis, travel, c, moment, w_m[k, :, 12 * n + j])
            if want_rate:
                _add_reaction_slopes(motors, m, rot, axis, travel, carried, qd[k], w_c[k, :, 12 * n + j])


@njit(cache=True)
def kinematics_kernel(
    rotation: FloatArray,
    translation: FloatArray,
    axis: FloatArray,
    travel: FloatArray,
    q: FloatArray,
    r: FloatArray,
    p: FloatArray,
) -> None:
    """Joint frames in the world: ``r`` (N, n, 3, 3) and ``p`` (N, n, 3)."""
    n = axis.shape[0]
    local, shift = np.empty((3, 3)), np.empty(3)
    for k in range(q.shape[0]):
        for j in range(n):
            sliding = np.isfinite(travel[j, 0])
            joint_placement(rotation[j], translation[j], axis[j], sliding, q[k, j], local, shift)
            if j == 0:
                r[k, j] = local
                p[k, j] = shift
            else:
                for a in range(3):
                    p[k, j, a] = p[k, j - 1, a]
                    for b in range(3):
                        p[k, j, a] += r[k, j - 1, a, b] * shift[b]
                        r[k, j, a, b] = 0.0
                        for c in range(3):
                            r[k, j, a, b] += r[k, j - 1, a, c] * local[c, b]


def _states(kin: Kinematics, *arrays: FloatArray) -> tuple[list[FloatArray], bool]:
    """Bring (n,) or (N, n) arguments to (N, n) C order; the flag says that they were single."""
    n = len(kin.axis)
    single = np.ndim(arrays[0]) == 1
    batch = [np.ascontiguousarray(np.atleast_2d(np.asarray(a, dtype=np.float64))) for a in arrays]
    for a in batch:
        if a.shape != batch[0].shape or a.shape[1] != n:
            raise ParameterError(f"joint states of shapes {[x.shape for x in batch]}: expected all (N, {n})")
    return batch, single


def slotine_li_regressor(
    kin: Kinematics, q: FloatArray, qd: FloatArray, qd_a: FloatArray, qdd_a: FloatArray, v_c: float = 0.0
) -> FloatArray:
    """W_s, (n, 14 n) for (n,) arguments, (N, n, 14 n) for (N, n). ``v_c``: friction transition velocity, rad/s.

    Raises:
        ParameterError: shapes do not match.
    """
    (q, qd, qd_a, qdd_a), single = _states(kin, q, qd, qd_a, qdd_a)
    out = np.empty((len(q), len(kin.axis), 14 * len(kin.axis)))
    slotine_li_kernel(*kin, q, qd, qd_a, qdd_a, v_c, out)
    return out[0] if single else out


def torque_regressor(
    kin: Kinematics, q: FloatArray, qd: FloatArray, qdd: FloatArray, v_c: float = 0.0
) -> FloatArray:
    """W with ``W theta`` the joint torque, N m; shapes as :func:`slotine_li_regressor`."""
    return slotine_li_regressor(kin, q, qd, qd, qdd, v_c)


def momentum_regressor(kin: Kinematics, q: FloatArray, qd: FloatArray) -> FloatArray:
    """W_m with ``W_m theta = H qd``, N m s; shapes as :func:`slotine_li_regressor`."""
    (q, qd), single = _states(kin, q, qd)
    out = np.empty((len(q), len(kin.axis), 14 * len(kin.axis)))
    momentum_kernel(*kin, q, qd, 0.0, True, False, out, out)
    return out[0] if single else out


def momentum_rate_regressor(kin: Kinematics, q: FloatArray, qd: FloatArray, v_c: float = 0.0) -> FloatArray:
    """W_c with ``W_c theta = C^T qd - g - friction``, N m; shapes as :func:`slotine_li_regressor`."""
    (q, qd), single = _states(kin, q, qd)
    out = np.empty((len(q), len(kin.axis), 14 * len(kin.axis)))
    momentum_kernel(*kin, q, qd, v_c, False, True, out, out)
    return out[0] if single else out


def forward_kinematics(kin: Kinematics, q: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Joint frames in the world: rotations (n, 3, 3) and origins (n, 3), with a leading N for (N, n) input."""
    (q,), single = _states(kin, q)
    n = len(kin.axis)
    r, p = np.empty((len(q), n, 3, 3)), np.empty((len(q), n, 3))
    kinematics_kernel(kin.rotation, kin.translation, kin.axis, kin.travel, q, r, p)
    return (r[0], p[0]) if single else (r, p)
