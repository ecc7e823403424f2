r"""Torque of one parameter vector at one state by the Newton-Euler recursion, without a regressor.

``H qdd_a + C(q, qd) qd_a + g + Fc sigma(v_f) + Fv v_f + beta`` with Christoffel's C, which is symmetric in the two
velocities: the recursion is polarised as in :mod:`safe_sysid.dynamics.recursion`, of which it equals ``W_s theta``.
``v_f``, the velocity of the friction terms, is ``qd_a`` in Slotine-Li laws and ``qd`` in inverse dynamics.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from safe_sysid.core.arrays import FloatArray
from safe_sysid.core.layout import COULOMB, OFFSET, PER_LINK, ROTOR, VISCOUS
from safe_sysid.dynamics.spatial import friction_sign, polarised_motions, polarised_reaction, workspace
from safe_sysid.robot.frames import unpacked
from safe_sysid.robot.model import PackedKinematics

__all__ = ["newton_euler"]


@njit(cache=True)
def _momentum(theta: FloatArray, link: int, v: FloatArray, out: FloatArray) -> None:
    """Spatial momentum (linear, angular) of a link that moves with ``v``."""
    o = PER_LINK * link
    m, cx, cy, cz = theta[o], theta[o + 1], theta[o + 2], theta[o + 3]
    xx, xy, yy, xz, yz, zz = (
        theta[o + 4], theta[o + 5], theta[o + 6], theta[o + 7], theta[o + 8], theta[o + 9],
    )  # fmt: skip
    x, y, z, wx, wy, wz = v[0], v[1], v[2], v[3], v[4], v[5]
    out[0] = m * x + wy * cz - wz * cy
    out[1] = m * y + wz * cx - wx * cz
    out[2] = m * z + wx * cy - wy * cx
    out[3] = xx * wx + xy * wy + xz * wz + cy * z - cz * y
    out[4] = xy * wx + yy * wy + yz * wz + cz * x - cx * z
    out[5] = xz * wx + yz * wy + zz * wz + cx * y - cy * x


@njit(cache=True)
def _add_force_cross(v: FloatArray, h: FloatArray, scale: float, out: FloatArray) -> None:
    """``out += scale * v x* h``."""
    x, y, z, wx, wy, wz = v[0], v[1], v[2], v[3], v[4], v[5]
    out[0] += scale * (wy * h[2] - wz * h[1])
    out[1] += scale * (wz * h[0] - wx * h[2])
    out[2] += scale * (wx * h[1] - wy * h[0])
    out[3] += scale * (wy * h[5] - wz * h[4] + y * h[2] - z * h[1])
    out[4] += scale * (wz * h[3] - wx * h[5] + z * h[0] - x * h[2])
    out[5] += scale * (wx * h[4] - wy * h[3] + x * h[1] - y * h[0])


@njit(cache=True)
def newton_euler(
    arm: PackedKinematics,
    q: FloatArray,
    qd: FloatArray,
    qd_a: FloatArray,
    qdd_a: FloatArray,
    friction_velocity: FloatArray,
    transition: float,
    theta: FloatArray,
    torque: FloatArray,
) -> None:
    """Fill ``torque`` (n,) in N m.

    Args:
        q: (n,) rad.
        qd: (n,) first velocity of the Coriolis form, rad/s.
        qd_a: (n,) its second velocity, rad/s.
        qdd_a: (n,) rad/s^2.
        friction_velocity: (n,) rad/s.
        transition: friction transition velocity, rad/s.
        theta: (14 n,) parameters.
        torque: output.
    """
    kin = unpacked(arm)
    axis, travel, parent, motors = kin.axis, kin.travel, kin.parent, kin.motors
    n = axis.shape[0]
    work, force = workspace(n), np.empty((n, 6))
    rot, shift, x, y, acc = work.rotation, work.origin, work.x, work.y, work.acceleration
    momentum, moment = work.motion, work.moment
    polarised_motions(kin, work, q, qd, qd_a, qdd_a)
    for j in range(n):
        _momentum(theta, j, acc[j], force[j])
        _momentum(theta, j, y[j], momentum)
        _add_force_cross(x[j], momentum, 0.5, force[j])
        _momentum(theta, j, x[j], momentum)
        _add_force_cross(y[j], momentum, 0.5, force[j])
    torque[:] = 0.0
    for m in range(motors.joint.shape[0]):
        j, c = motors.joint[m], motors.carrier[m]
        rotor = theta[ROTOR * n + j]
        polarised_reaction(motors, m, work, qd, qd_a, qdd_a)
        for i in range(3):
            force[c, 3 + i] += rotor * moment[i]
            torque[j] += rotor * motors.gear[m] * motors.axis[m, i] * acc[c, 3 + i]
    for j in range(n - 1, -1, -1):
        f = force[j]
        v = friction_velocity[j]
        o = 0 if np.isfinite(travel[j, 0]) else 3
        torque[j] += (
            axis[j, 0] * f[o]
            + axis[j, 1] * f[o + 1]
            + axis[j, 2] * f[o + 2]
            + theta[COULOMB * n + j] * friction_sign(v, transition)
            + theta[VISCOUS * n + j] * v
            + theta[ROTOR * n + j] * qdd_a[j]
            + theta[OFFSET * n + j]
        )
        if parent[j] >= 0:
            t, r = shift[j], rot[j]
            gx = r[0, 0] * f[0] + r[0, 1] * f[1] + r[0, 2] * f[2]
            gy = r[1, 0] * f[0] + r[1, 1] * f[1] + r[1, 2] * f[2]
            gz = r[2, 0] * f[0] + r[2, 1] * f[1] + r[2, 2] * f[2]
            p = force[parent[j]]
            p[0] += gx
            p[1] += gy
            p[2] += gz
            p[3] += r[0, 0] * f[3] + r[0, 1] * f[4] + r[0, 2] * f[5] + t[1] * gz - t[2] * gy
            p[4] += r[1, 0] * f[3] + r[1, 1] * f[4] + r[1, 2] * f[5] + t[2] * gx - t[0] * gz
            p[5] += r[2, 0] * f[3] + r[2, 1] * f[4] + r[2, 2] * f[5] + t[0] * gy - t[1] * gx
