r"""Motion of an arm with flexible joints and dynamic friction, compiled: accelerations and Runge-Kutta steps.

Link side ``q``, motor side ``theta`` (seen at the output), bristles ``z``, all of n joints:

- ``H(q) qdd + C qd + g = tau_s``, the rigid links by :func:`~safe_sysid.dynamics.newton_euler.newton_euler`;
- ``tau_s = K (theta + e - q) + D (thetad (1 + e') - qd)``, ``e(theta)`` the gear's kinematic error;
- ``B thetadd = (1 + ripple(theta)) u + cogging(theta) - (1 + e') tau_s - friction``;
- ``friction = s0 z + s1 zd + s2 thetad``, ``zd = thetad - s0 abs(thetad) z / g(thetad)`` [CanudasDeWit1995],
  ``g = Fc + (Fs - Fc) exp(-(thetad / v_s)^2)``.

A rotor's gear reaction on the link that carries it is left out, as usual for large ratios [Spong1987].

Integrated by the classical Runge-Kutta method in steps of some tenths of a millisecond. Reflected rotors make these
equations only moderately stiff: the fastest mode turns by less than 0.6 rad in a step, where the method hardly damps. A
semi-implicit Euler step would be stable for longer ones, but is of first order, and damps (or, explicit in friction,
feeds) just the resonances that are to be learned. The torque is held in every step. Work put in and energy dissipated
are integrated along, so that the balance of energy shows the error.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numba import njit

from safe_sysid.core.arrays import FloatArray
from safe_sysid.core.layout import PER_LINK
from safe_sysid.dynamics.newton_euler import newton_euler
from safe_sysid.robot.frames import joint_placement, unpacked
from safe_sysid.robot.model import PackedKinematics

__all__ = ["JointEffects", "advance", "joint_friction", "mass_matrix", "rates", "wave_sums"]


class JointEffects(NamedTuple):
    """What the joints have besides the links; a wave is (angular order, amplitude, phase)."""

    flexible: FloatArray  #: (2, n) stiffness, N m/rad, and damping, N m s/rad; an infinite stiffness: rigid joints
    rotor: FloatArray  #: (n,) kg m^2 at the output
    #: (6, n) Fc and Fs, N m, v_s, rad/s, s0, N m/rad, s1 and s2, N m s/rad; infinite s0: Fc sat(v / v_s)
    friction: FloatArray
    gear: FloatArray  #: (m, n, 3) waves of the kinematic error, rad
    ripple: FloatArray  #: (m, n, 3) waves of the torque, as a share of it
    cogging: FloatArray  #: (m, n, 3) waves of the torque, N m


@njit(cache=True)
def wave_sums(waves: FloatArray, j: int, angle: float) -> tuple[float, float]:
    """Sum of joint j's waves (m, n, 3) at an angle, rad, and its derivative."""
    value, slope = 0.0, 0.0
    for k in range(waves.shape[0]):
        order, amplitude = waves[k, j, 0], waves[k, j, 1]
        turn = order * angle + waves[k, j, 2]
        value += amplitude * np.sin(turn)
        slope += amplitude * order * np.cos(turn)
    return value, slope


@njit(cache=True)
def joint_friction(friction: FloatArray, j: int, v: float, bristle: float) -> tuple[float, float]:
    """Torque of joint j's friction, N m, and how fast its bristles bend, rad/s.

    Args:
        friction: (6, n) as of :class:`JointEffects`.
        v: rad/s.
        bristle: how far they are bent, rad.
    """
    coulomb, static, stribeck = friction[0, j], friction[1, j], friction[2, j]
    s0, s1, s2 = friction[3, j], friction[4, j], friction[5, j]
    if not np.isfinite(s0):
        return coulomb * max(-1.0, min(1.0, v / stribeck)) + s2 * v, 0.0
    share = v / stribeck
    level = coulomb + (static - coulomb) * np.exp(-share * share)
    bending = v - s0 * abs(v) / level * bristle
    return s0 * bristle + s1 * bending + s2 * v, bending


@njit(cache=True)
def mass_matrix(arm: PackedKinematics, theta: FloatArray, q: FloatArray, out: FloatArray) -> None:
    """Fill ``out`` (n, n) with H of the links alone, by composite bodies; joints turn.

    Args:
        theta: (14 n,) parameters, of which the links' are read.
        q: (n,) rad.
        out: kg m^2.
    """
    kin = unpacked(arm)
    n = kin.axis.shape[0]
    rotation, origin = np.empty((n, 3, 3)), np.empty((n, 3))
    mass, moment, inertia = np.empty(n), np.empty((n, 3)), np.empty((n, 3, 3))
    for j in range(n):
        joint_placement(kin.rotation[j], kin.translation[j], kin.axis[j], False, q[j], rotation[j], origin[j])
        o = PER_LINK * j
        mass[j] = theta[o]
        for i in range(3):
            moment[j, i] = theta[o + 1 + i]
        inertia[j, 0, 0], inertia[j, 1, 1], inertia[j, 2, 2] = theta[o + 4], theta[o + 6], theta[o + 9]
        inertia[j, 0, 1] = inertia[j, 1, 0] = theta[o + 5]
        inertia[j, 0, 2] = inertia[j, 2, 0] = theta[o + 7]
        inertia[j, 1, 2] = inertia[j, 2, 1] = theta[o + 8]
    turned, half = np.empty(3), np.empty((3, 3))
    force, couple = np.empty(3), np.empty(3)
    for j in range(n - 1, -1, -1):
        z, c, r = kin.axis[j], moment[j], rotation[j]
        # Force and moment, at the origin, of a unit acceleration about the axis.
        force[0], force[1], force[2] = (
            z[1] * c[2] - z[2] * c[1], z[2] * c[0] - z[0] * c[2], z[0] * c[1] - z[1] * c[0],
        )  # fmt: skip
        for i in range(3):
            couple[i] = inertia[j, i, 0] * z[0] + inertia[j, i, 1] * z[1] + inertia[j, i, 2] * z[2]
        out[j, j] = z[0] * couple[0] + z[1] * couple[1] + z[2] * couple[2]
        b = j
        while kin.parent[b] >= 0:
            t, m = origin[b], rotation[b]
            f0 = m[0, 0] * force[0] + m[0, 1] * force[1] + m[0, 2] * force[2]
            f1 = m[1, 0] * force[0] + m[1, 1] * force[1] + m[1, 2] * force[2]
            f2 = m[2, 0] * force[0] + m[2, 1] * force[1] + m[2, 2] * force[2]
            c0 = m[0, 0] * couple[0] + m[0, 1] * couple[1] + m[0, 2] * couple[2] + t[1] * f2 - t[2] * f1
            c1 = m[1, 0] * couple[0] + m[1, 1] * couple[1] + m[1, 2] * couple[2] + t[2] * f0 - t[0] * f2
            c2 = m[2, 0] * couple[0] + m[2, 1] * couple[1] + m[2, 2] * couple[2] + t[0] * f1 - t[1] * f0
            force[0], force[1], force[2] = f0, f1, f2
            couple[0], couple[1], couple[2] = c0, c1, c2
            b = kin.parent[b]
            a = kin.axis[b]
            out[b, j] = out[j, b] = a[0] * c0 + a[1] * c1 + a[2] * c2
        p = kin.parent[j]
        if p < 0:
            continue
        t = origin[j]
        dot, square = 0.0, 0.0
        for i in range(3):
            turned[i] = r[i, 0] * c[0] + r[i, 1] * c[1] + r[i, 2] * c[2]
            dot += t[i] * turned[i]
            square += t[i] * t[i]
            for k in range(3):
                half[i, k] = r[i, 0] * inertia[j, 0, k] + r[i, 1] * inertia[j, 1, k] + r[i, 2] * inertia[j, 2, k]
        for i in range(3):
            moment[p, i] += turned[i] + mass[j] * t[i]
            for k in range(3):
                inertia[p, i, k] += (
                    half[i, 0] * r[k, 0] + half[i, 1] * r[k, 1] + half[i, 2] * r[k, 2]
                    - t[i] * turned[k] - turned[i] * t[k] - mass[j] * t[i] * t[k]
                )  # fmt: skip
            inertia[p, i, i] += 2.0 * dot + mass[j] * square
        mass[p] += mass[j]


@njit(cache=True)
def _solve(matrix: FloatArray, x: FloatArray) -> None:
    """Solve in place with a positive definite matrix, which is overwritten by its factor."""
    n = x.size
    for i in range(n):
        for j in range(i + 1):
            value = matrix[i, j]
            for k in range(j):
                value -= matrix[i, k] * matrix[j, k]
            matrix[i, j] = np.sqrt(value) if i == j else value / matrix[j, j]
    for i in range(n):
        for k in range(i):
            x[i] -= matrix[i, k] * x[k]
        x[i] /= matrix[i, i]
    for i in range(n - 1, -1, -1):
        for k in range(i + 1, n):
            x[i] -= matrix[k, i] * x[k]
        x[i] /= matrix[i, i]


@njit(cache=True)
def rates(
    arm: PackedKinematics,
    theta: FloatArray,
    effects: JointEffects,
    torque: FloatArray,
    y: FloatArray,
    out: FloatArray,
    work: FloatArray,
) -> None:
    """Time derivative of the state.

    Args:
        theta: (14 n,) parameters of the links; joint terms are zero.
        torque: (n,) u, N m.
        y: (5 n + 2,) q, qd, theta, thetad, z; work put in and energy dissipated, J.
        out: (5 n + 2,).
        work: (n + 2, n) space.
    """
    n = torque.size
    q, qd, motor = y[:n], y[n : 2 * n], y[2 * n : 3 * n]
    speed, bristle = y[3 * n : 4 * n], y[4 * n : 5 * n]
    matrix, free, drive = work[:n], work[n], work[n + 1]
    out[2 * n :] = 0.0
    drive[:] = 0.0
    newton_euler(arm, q, qd, qd, drive, qd, 0.0, theta, free)  # `drive` is still zero: without acceleration
    mass_matrix(arm, theta, q, matrix)
    stiff = not np.isfinite(effects.flexible[0, 0])
    given, lost = 0.0, 0.0
    for j in range(n):
        v, x = (qd[j], q[j]) if stiff else (speed[j], motor[j])
        friction, bending = joint_friction(effects.friction, j, v, bristle[j])
        lost += friction * v
        if np.isfinite(effects.friction[3, j]):
            lost -= effects.friction[3, j] * bristle[j] * bending  # that bends the bristles
        out[4 * n + j] = bending
        ripple, _ = wave_sums(effects.ripple, j, x)
        cogging, _ = wave_sums(effects.cogging, j, x)
        shaft = (1.0 + ripple) * torque[j]
        given += shaft * v
        drive[j] = shaft + cogging - friction
        if stiff:
            free[j] = drive[j] - free[j]
            matrix[j, j] += effects.rotor[j]
        else:
            error, slope = wave_sums(effects.gear, j, x)
            twist = (1.0 + slope) * v - qd[j]
            spring = effects.flexible[0, j] * (x + error - q[j]) + effects.flexible[1, j] * twist
            lost += effects.flexible[1, j] * twist * twist
            free[j] = spring - free[j]
            out[2 * n + j] = v
            out[3 * n + j] = (drive[j] - (1.0 + slope) * spring) / effects.rotor[j]
    _solve(matrix, free)
    for j in range(n):
        out[j], out[n + j] = qd[j], free[j]
        if stiff:
            out[2 * n + j], out[3 * n + j] = qd[j], free[j]
    out[5 * n], out[5 * n + 1] = given, lost


@njit(cache=True)
def advance(
    arm: PackedKinematics,
    theta: FloatArray,
    effects: JointEffects,
    torque: FloatArray,
    h: float,
    y: FloatArray,
    past: FloatArray,
    work: FloatArray,
) -> None:
    """Integrate over the steps that ``past`` (steps, 2 n) has rows for, which take q and qd after each.

    Args:
        theta: (14 n,) as of :func:`rates`.
        torque: (n,) N m, held.
        h: of a step, s.
        y: (5 n + 2,) state, moved on.
        past: output.
        work: (n + 2, n) space.
    """
    n = torque.size
    k1, k2, k3 = np.empty_like(y), np.empty_like(y), np.empty_like(y)
    k4, x = np.empty_like(y), np.empty_like(y)
    for i in range(past.shape[0]):
        rates(arm, theta, effects, torque, y, k1, work)
        for j in range(y.size):
            x[j] = y[j] + 0.5 * h * k1[j]
        rates(arm, theta, effects, torque, x, k2, work)
        for j in range(y.size):
            x[j] = y[j] + 0.5 * h * k2[j]
        rates(arm, theta, effects, torque, x, k3, work)
        for j in range(y.size):
            x[j] = y[j] + h * k3[j]
        rates(arm, theta, effects, torque, x, k4, work)
        for j in range(y.size):
            y[j] += h / 6.0 * (k1[j] + 2.0 * k2[j] + 2.0 * k3[j] + k4[j])
        for j in range(2 * n):
            past[i, j] = y[j]
