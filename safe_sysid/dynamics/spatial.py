"""Spatial vectors of the recursions: motions and forces (linear, angular) in link frames, and space to work in."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numba import njit

from safe_sysid.core.arrays import FloatArray
from safe_sysid.robot.frames import joint_placement
from safe_sysid.robot.model import Kinematics, Motors

__all__ = [
    "Workspace",
    "add_velocity_product",
    "cross",
    "friction_sign",
    "moment_to_joints",
    "polarised_motions",
    "polarised_reaction",
    "to_child",
    "workspace",
]


class Workspace(NamedTuple):
    """What a recursion over n joints writes on its way: made by :func:`workspace` in compiled code.

    Arrays that come from Python cost some 0.1 us each at every call, more than new ones.
    """

    rotation: FloatArray  #: (n, 3, 3) joint frame j in its parent's, at the joint's position
    origin: FloatArray  #: (n, 3) its origin there, m
    #: x, y: (n, 6) motions of the links for the first and the second velocity of the Coriolis form
    x: FloatArray
    y: FloatArray
    acceleration: FloatArray  #: (n, 6) of the links, polarised in the two, gravity included
    motion: FloatArray  #: (6,) of the base, or of one step
    moment: FloatArray  #: (3,) of one rotor


@njit(cache=True)
def workspace(n: int) -> Workspace:
    """Space for the recursions over n joints."""
    return Workspace(
        np.empty((n, 3, 3)),
        np.empty((n, 3)),
        np.empty((n, 6)),
        np.empty((n, 6)),
        np.empty((n, 6)),
        np.empty(6),
        np.empty(3),
    )


@njit(cache=True)
def add_velocity_product(axis: FloatArray, sliding: bool, scale: float, v: FloatArray, out: FloatArray) -> None:
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


@njit(cache=True, inline="always")
def polarised_motions(
    kin: Kinematics, work: Workspace, q: FloatArray, qd: FloatArray, qd_a: FloatArray, qdd_a: FloatArray
) -> None:
    """Outward pass of the recursions at one state: placements, ``x``, ``y`` and ``acceleration`` of all links.

    Args:
        work: output.
        q: (n,) rad.
        qd: (n,) first velocity of the Coriolis form, rad/s.
        qd_a: (n,) its second velocity, rad/s.
        qdd_a: (n,) rad/s^2.
    """
    axis, gravity, travel, parent = kin.axis, kin.gravity, kin.travel, kin.parent
    rotation, translation = kin.rotation, kin.translation
    rot, shift, x, y, acc, base = work.rotation, work.origin, work.x, work.y, work.acceleration, work.motion
    for j in range(axis.shape[0]):
        sliding = np.isfinite(travel[j, 0])
        joint_placement(rotation[j], translation[j], axis[j], sliding, q[j], rot[j], shift[j])
        before = parent[j]
        if before < 0:
            base[:] = 0.0
            to_child(rot[j], shift[j], base, x[j])
            to_child(rot[j], shift[j], base, y[j])
            base[0], base[1], base[2] = -gravity[0], -gravity[1], -gravity[2]
            to_child(rot[j], shift[j], base, acc[j])
        else:
            to_child(rot[j], shift[j], x[before], x[j])
            to_child(rot[j], shift[j], y[before], y[j])
            to_child(rot[j], shift[j], acc[before], acc[j])
        o = 0 if sliding else 3
        for i in range(3):
            x[j, o + i] += axis[j, i] * qd[j]
            y[j, o + i] += axis[j, i] * qd_a[j]
            acc[j, o + i] += axis[j, i] * qdd_a[j]
        # Polarised velocity product: (x x S y_j + y x S x_j) / 2.
        add_velocity_product(axis[j], sliding, 0.5 * qd_a[j], x[j], acc[j])
        add_velocity_product(axis[j], sliding, 0.5 * qd[j], y[j], acc[j])


@njit(cache=True)
def moment_to_joints(kin: Kinematics, work: Workspace, link: int, column: FloatArray) -> None:
    """Add to ``column`` (n,) the joint torques of the moment ``work.moment`` on a link, in its frame.

    Args:
        work: its placements are read, its moment is used up.
        link: index.
        column: output, N m.
    """
    axis, moment, i = kin.axis, work.moment, link
    while i >= 0:
        x, y, z = moment[0], moment[1], moment[2]
        if not np.isfinite(kin.travel[i, 0]):
            column[i] += axis[i, 0] * x + axis[i, 1] * y + axis[i, 2] * z
        for a in range(3):
            moment[a] = work.rotation[i, a, 0] * x + work.rotation[i, a, 1] * y + work.rotation[i, a, 2] * z
        i = kin.parent[i]


@njit(cache=True)
def polarised_reaction(
    motors: Motors, m: int, work: Workspace, qd: FloatArray, qd_a: FloatArray, qdd_a: FloatArray
) -> None:
    """Moment ``work.moment`` on the carrier of motor m, per unit of its joint's rotor inertia, polarised."""
    j, c, gear, x, y = motors.joint[m], motors.carrier[m], motors.gear[m], work.x, work.y
    for i in range(3):
        a, b = (i + 1) % 3, (i + 2) % 3
        za, zb = motors.axis[m, a], motors.axis[m, b]
        turned = qd_a[j] * (x[c, 3 + a] * zb - x[c, 3 + b] * za) + qd[j] * (y[c, 3 + a] * zb - y[c, 3 + b] * za)
        work.moment[i] = gear * (qdd_a[j] * motors.axis[m, i] + 0.5 * turned)


@njit(cache=True)
def friction_sign(v: float, transition: float) -> float:
    """``sat(v / transition)``; the sign for ``transition == 0``."""
    if transition > 0.0:
        return max(-1.0, min(1.0, v / transition))
    return float(np.sign(v))
