r"""Regressor columns of one link along a motion, and their adjoint: what every excitation cost is made of.

Seen from the link's own frame its share of the torque is ``J^T (A(a) + v x* A(v)) theta_e``, with J the body Jacobian,
``v = J qd`` and a the frame's acceleration less gravity. For the payload only ten columns are needed, so no recursion
over the other links' parameters is run, and the derivative with respect to (q, qd, qdd) is a few brackets of columns of
J: ``dJ_j/dq_i = [J_j, J_i]`` for i > j. Hence a recursion of its own, for serial chains. All of it is plain
floating point: it steers the optimiser and proves nothing.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numba import njit

from safe_sysid.core.arrays import FloatArray
from safe_sysid.core.layout import ROTOR, VISCOUS, ParameterLayout
from safe_sysid.dynamics import dynamics_of
from safe_sysid.dynamics.spatial import cross
from safe_sysid.robot.frames import forward_kinematics
from safe_sysid.robot.model import Kinematics

__all__ = ["payload_regressor", "payload_regressor_gradient", "regressor_gradient"]


@njit(cache=True, inline="always")
def _bracket(x: FloatArray, y: FloatArray, out: FloatArray) -> None:
    """Lie bracket ``out = [x, y]`` of twists (linear, angular)."""
    out[0] = x[4] * y[2] - x[5] * y[1] + x[1] * y[5] - x[2] * y[4]
    out[1] = x[5] * y[0] - x[3] * y[2] + x[2] * y[3] - x[0] * y[5]
    out[2] = x[3] * y[1] - x[4] * y[0] + x[0] * y[4] - x[1] * y[3]
    out[3] = x[4] * y[5] - x[5] * y[4]
    out[4] = x[5] * y[3] - x[3] * y[5]
    out[5] = x[3] * y[4] - x[4] * y[3]


@njit(cache=True, inline="always")
def _inertia_times(u: FloatArray, v: FloatArray, out: FloatArray) -> None:
    """``out = A(v) u``: spatial inertia with the ten parameters u, times the twist v."""
    m, cx, cy, cz = u[0], u[1], u[2], u[3]
    x, y, z, wx, wy, wz = v[0], v[1], v[2], v[3], v[4], v[5]
    out[0] = m * x - wz * cy + wy * cz
    out[1] = m * y + wz * cx - wx * cz
    out[2] = m * z - wy * cx + wx * cy
    out[3] = cy * z - cz * y + u[4] * wx + u[5] * wy + u[7] * wz
    out[4] = cz * x - cx * z + u[5] * wx + u[6] * wy + u[8] * wz
    out[5] = cx * y - cy * x + u[7] * wx + u[8] * wy + u[9] * wz


@njit(cache=True, inline="always")
def _force_cross(v: FloatArray, f: FloatArray, out: FloatArray) -> None:
    """``out = v x* f`` for a twist v and a wrench f (force, moment)."""
    out[0] = v[4] * f[2] - v[5] * f[1]
    out[1] = v[5] * f[0] - v[3] * f[2]
    out[2] = v[3] * f[1] - v[4] * f[0]
    out[3] = v[4] * f[5] - v[5] * f[4] + v[1] * f[2] - v[2] * f[1]
    out[4] = v[5] * f[3] - v[3] * f[5] + v[2] * f[0] - v[0] * f[2]
    out[5] = v[3] * f[4] - v[4] * f[3] + v[0] * f[1] - v[1] * f[0]


@njit(cache=True, inline="always")
def _dot6(x: FloatArray, y: FloatArray) -> float:
    return x[0] * y[0] + x[1] * y[1] + x[2] * y[2] + x[3] * y[3] + x[4] * y[4] + x[5] * y[5]


class Twists(NamedTuple):
    """Rows (n, 6) of a link's body Jacobian; its twists and accelerations (n + 1, 6) by its first 0 to n joints."""

    jac: FloatArray
    below: FloatArray
    accel: FloatArray


@njit(cache=True)
def _body_motion(
    kin: Kinematics, r: FloatArray, p: FloatArray, qd: FloatArray, qdd: FloatArray, twists: Twists
) -> None:
    """Fill ``twists`` for the last link of a chain's first n joints, from its joint frames (r, p) in the world."""
    jac, below, accel = twists
    axis, gravity, n = kin.axis, kin.gravity, jac.shape[0]
    z, d, lin, bracket = np.empty(3), np.empty(3), np.empty(3), np.empty(6)
    last = n - 1
    for j in range(n):
        for i in range(3):
            z[i] = r[j, i, 0] * axis[j, 0] + r[j, i, 1] * axis[j, 1] + r[j, i, 2] * axis[j, 2]
            d[i] = p[last, i] - p[j, i]
        cross(z, d, lin)
        for i in range(3):
            jac[j, i] = r[last, 0, i] * lin[0] + r[last, 1, i] * lin[1] + r[last, 2, i] * lin[2]
            jac[j, 3 + i] = r[last, 0, i] * z[0] + r[last, 1, i] * z[1] + r[last, 2, i] * z[2]
    for i in range(6):
        below[0, i] = 0.0
        accel[0, i] = 0.0
    for i in range(3):
        accel[0, i] = -(r[last, 0, i] * gravity[0] + r[last, 1, i] * gravity[1] + r[last, 2, i] * gravity[2])
    for j in range(n):
        _bracket(below[j], jac[j], bracket)
        for i in range(6):
            below[j + 1, i] = below[j, i] + jac[j, i] * qd[j]
            accel[j + 1, i] = accel[j, i] + jac[j, i] * qdd[j] + bracket[i] * qd[j]


@njit(cache=True)
def regressor_kernel(
    kin: Kinematics, link: int, r: FloatArray, p: FloatArray, qd: FloatArray, qdd: FloatArray, out: FloatArray
) -> None:
    """Fill ``out`` (N, >= link + 1, 10) with the link's ten columns of W, from the joint frames (r, p) of N samples."""
    n = link + 1
    twists = Twists(np.empty((n, 6)), np.empty((n + 1, 6)), np.empty((n + 1, 6)))
    jac, below, accel = twists
    unit, h, f, g = np.zeros(10), np.empty(6), np.empty(6), np.empty(6)
    for k in range(qd.shape[0]):
        _body_motion(kin, r[k], p[k], qd[k], qdd[k], twists)
        for c in range(10):
            unit[c] = 1.0
            _inertia_times(unit, below[n], h)
            _inertia_times(unit, accel[n], f)
            _force_cross(below[n], h, g)
            unit[c] = 0.0
            for i in range(6):
                f[i] += g[i]
            for j in range(n):
                out[k, j, c] = _dot6(jac[j], f)


@njit(cache=True)
def adjoint_kernel(
    kin: Kinematics,
    link: int,
    r: FloatArray,
    p: FloatArray,
    qd: FloatArray,
    qdd: FloatArray,
    weight: FloatArray,
    first: int,
    out: FloatArray,
) -> None:
    """Add to ``out`` (N, 3, n): derivative of ``sum_jc weight_jc W_jc`` by each sample's q, qd and qdd.

    W are the link's ten columns, its weights the ten from ``first`` on.
    """
    n = link + 1
    twists = Twists(np.empty((n, 6)), np.empty((n + 1, 6)), np.empty((n + 1, 6)))
    jac, below, accel = twists
    force, a_bar, v_bar = np.empty((n, 6)), np.empty(6), np.empty(6)
    x, y, h = np.empty(6), np.empty(6), np.empty(6)
    above = np.empty(6)
    for k in range(qd.shape[0]):
        _body_motion(kin, r[k], p[k], qd[k], qdd[k], twists)
        v, a = below[n], accel[n]
        for i in range(6):
            a_bar[i] = 0.0
            v_bar[i] = 0.0
        for j in range(n):
            u = weight[k, j, first : first + 10]
            _inertia_times(u, v, h)
            _inertia_times(u, a, force[j])
            _force_cross(v, h, x)
            for i in range(6):
                force[j, i] += x[i]
            _inertia_times(u, jac[j], x)
            for i in range(6):
                a_bar[i] += x[i]
            _force_cross(jac[j], h, x)
            _bracket(v, jac[j], y)
            _inertia_times(u, y, h)
            for i in range(6):
                v_bar[i] -= x[i] + h[i]
        for i in range(n):
            _bracket(below[i], jac[i], x)  # dv/dq_i
            for c in range(6):
                above[c] = v[c] - below[i, c]
            _bracket(x, above, y)
            _bracket(accel[i], jac[i], h)
            by_q = _dot6(v_bar, x) + _dot6(a_bar, y) + _dot6(a_bar, h)
            for j in range(i):
                _bracket(jac[j], jac[i], y)
                by_q += _dot6(force[j], y)
            for c in range(6):
                above[c] = v[c] - below[i + 1, c]
            _bracket(jac[i], above, y)
            out[k, 0, i] += by_q
            out[k, 1, i] += _dot6(v_bar, jac[i]) + _dot6(a_bar, x) + _dot6(a_bar, y)
            out[k, 2, i] += _dot6(a_bar, jac[i])


def payload_regressor(kin: Kinematics, q: FloatArray, qd: FloatArray, qdd: FloatArray) -> FloatArray:
    """Columns of the torque regressor that belong to theta_e: (N, n, 10) for states (N, n), C-contiguous."""
    r, p = forward_kinematics(kin, q)
    n = len(kin.axis)
    out = np.empty((len(q), n, 10))
    regressor_kernel(kin, n - 1, r, p, qd, qdd, out)
    return out


def payload_regressor_gradient(
    kin: Kinematics, q: FloatArray, qd: FloatArray, qdd: FloatArray, weight: FloatArray
) -> FloatArray:
    """Derivatives (N, 3, n) of ``sum_jc weight_kjc W_kjc`` with respect to sample k's q, qd, qdd; weight (N, n, 10)."""
    r, p = forward_kinematics(kin, q)
    n = len(kin.axis)
    out = np.zeros((len(q), 3, n))
    adjoint_kernel(kin, n - 1, r, p, qd, qdd, weight, 0, out)
    return out


def regressor_gradient(
    kin: Kinematics, q: FloatArray, qd: FloatArray, qdd: FloatArray, weight: FloatArray
) -> FloatArray:
    """The same for all 14 n columns of the torque regressor; weight (N, n, 14 n).

    The Coulomb columns are taken as constant: their derivative is zero, or huge where a joint turns round.
    """
    r, p = forward_kinematics(kin, q)
    n = len(kin.axis)
    out, layout = np.zeros((len(q), 3, n)), ParameterLayout(n)
    for link in range(n):
        adjoint_kernel(kin, link, r, p, qd, qdd, weight, layout.link(link).start, out)
    joints = np.arange(n)
    out[:, 1] += weight[:, joints, VISCOUS * n + joints]
    resting = np.setdiff1d(joints, kin.motors.joint)
    out[:, 2, resting] += weight[:, resting, ROTOR * n + resting]
    if len(kin.motors.joint) > 0:
        _add_motor_gradient(kin, q, qd, qdd, weight, out)
    return out


def _add_motor_gradient(
    kin: Kinematics, q: FloatArray, qd: FloatArray, qdd: FloatArray, weight: FloatArray, out: FloatArray
) -> None:
    """Add the part of the columns of motors on moving links, by differences that are exact.

    They are of degree two in velocities, one in accelerations, and trigonometric polynomials of degree two in every
    angle, for which ``dg/dq = 2 d(pi/4) + (1 - sqrt 2) d(pi/2)``, ``d(a) = (g(q + a) - g(q - a)) / 2``.
    """
    n = q.shape[1]
    columns = ROTOR * n + kin.motors.joint
    wanted = weight[:, :, columns]

    def half(which: int, joint: int, step: float) -> FloatArray:
        ends = []
        for sign in (1.0, -1.0):
            state = [q, qd, qdd]
            state[which] = state[which] + sign * step * np.eye(n)[joint]
            rows = dynamics_of(kin).torque_regressor(state[0], state[1], state[2])[:, :, columns]
            ends.append(np.sum(rows * wanted, axis=(1, 2)))
        return 0.5 * (ends[0] - ends[1])

    for j in range(n):
        if not kin.sliding[j]:
            out[:, 0, j] += 2.0 * half(0, j, np.pi / 4.0) + (1.0 - np.sqrt(2.0)) * half(0, j, np.pi / 2.0)
        for which in (1, 2):
            out[:, which, j] += half(which, j, 1.0)
