r"""The inertial columns of the momentum regressors of one state, compiled: for the regressors and for equations.

A rigid velocity field of link l, in its frame, is ``r -> v + w x r``. The inner product of two of them over the
link's mass, ``int (l + a x r) . (v + w x r) dm``, is linear in the link's ten parameters: ``m (l.v) + mc . (l x w + v
x a) + a . I w``. With s_i the field ``d_i x`` of joint i, v that of the link's velocity, and t_i the derivative of
the latter with respect to q_i, ``p_i = <s_i, v>`` and ``f_i = <t_i, v> + g . int s_i dm``.

One more column per motor on a moving link, for the rotor inertia Ia_j of its joint, with ``a`` the angular part of
these fields of the carrier, z the rotor's axis: ``p_i = gear (z . a(s_i)) qd_j``, ``f_i = gear (z . a(t_i)) qd_j`` for
joints i up to the carrier, ``p_j = gear z . a(v)``. The part ``Ia_j qd_j`` of ``p_j`` is no such column: it needs no
position.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numba import njit

from safe_sysid.core.arrays import FloatArray, IntArray
from safe_sysid.core.layout import PER_LINK
from safe_sysid.dynamics.spatial import add_velocity_product, to_child
from safe_sysid.robot.frames import joint_placement
from safe_sysid.robot.model import Kinematics

__all__ = ["ColumnSpace", "column_space", "columns_from", "inertia_columns", "momentum_columns", "place_joint"]


@njit(cache=True, inline="always")
def _product(x: FloatArray, y: FloatArray, out: FloatArray) -> None:
    """``<x, y>`` as ten columns."""
    l0, l1, l2, a0, a1, a2 = x[0], x[1], x[2], x[3], x[4], x[5]
    v0, v1, v2, w0, w1, w2 = y[0], y[1], y[2], y[3], y[4], y[5]
    out[0] = l0 * v0 + l1 * v1 + l2 * v2
    out[1] = (l1 * w2 - l2 * w1) + (v1 * a2 - v2 * a1)
    out[2] = (l2 * w0 - l0 * w2) + (v2 * a0 - v0 * a2)
    out[3] = (l0 * w1 - l1 * w0) + (v0 * a1 - v1 * a0)
    out[4] = a0 * w0
    out[5] = a0 * w1 + a1 * w0
    out[6] = a1 * w1
    out[7] = a0 * w2 + a2 * w0
    out[8] = a1 * w2 + a2 * w1
    out[9] = a2 * w2


class ColumnSpace(NamedTuple):
    """What the columns of a state are made of: made by :func:`column_space` in compiled code."""

    #: rotation, origin: (n, 3, 3), (n, 3) joint frames in their parents', at the joints' positions
    rotation: FloatArray
    origin: FloatArray
    #: fields, slopes: (n + 1, n, 6) fields s_i and t_i of the joints before every link, in its frame; row 0 is the
    #: base's
    fields: FloatArray
    slopes: FloatArray
    #: motions, weights: (n + 1, 6), (n + 1, 3) velocities of the links and gravity, in their frames
    motions: FloatArray
    weights: FloatArray


@njit(cache=True)
def column_space(kin: Kinematics, q: FloatArray) -> ColumnSpace:
    """Space for the columns, with all joints placed at q (n,) rad."""
    n = q.size
    # One block of memory: with two the derivatives of columns took some hundredths longer.
    space = np.empty((2, n + 1, n, 6))
    work = ColumnSpace(
        np.empty((n, 3, 3)), np.empty((n, 3)), space[0], space[1], np.empty((n + 1, 6)), np.empty((n + 1, 3))
    )
    for link in range(n):
        place_joint(kin, link, q[link], work)
    return work


@njit(cache=True)
def place_joint(kin: Kinematics, j: int, q: float, work: ColumnSpace) -> None:
    """Put joint j at q rad or, if it slides, m."""
    sliding = np.isfinite(kin.travel[j, 0])
    joint_placement(kin.rotation[j], kin.translation[j], kin.axis[j], sliding, q, work.rotation[j], work.origin[j])


@njit(cache=True)
def momentum_columns(
    kin: Kinematics,
    gravity: FloatArray,
    q: FloatArray,
    qd: FloatArray,
    own: float,
    momentum: FloatArray,
    rate: FloatArray,
) -> None:
    """Inertial columns of W_m and W_c at one state; :mod:`safe_sysid.dynamics.protocol` says what these are.

    With M motors on moving links, K = 10 n + M columns; those of a link are written in the rows of the joints that
    move it, those of a motor in the rows of its own joint and those that move its carrier.

    Args:
        gravity: (3,) m/s^2, in place of the arm's.
        q: (n,) rad.
        qd: (n,) rad/s.
        own: 1.0 if the row of a joint holds what its own rotor does, 0.0 if it is seen from behind the gear.
        momentum: (n, >= K) result, or (0, 0) if it is not wanted; not None, with which numba would compile it anew.
        rate: (n, >= K) result, or (0, 0).
    """
    # Not 0 and True: numba compiles a kernel anew for each literal.
    columns_from(kin, gravity, qd, own, np.int64(0), np.bool_(True), column_space(kin, q), momentum, rate)


@njit(cache=True)
def columns_from(
    kin: Kinematics,
    gravity: FloatArray,
    qd: FloatArray,
    own: float,
    first: int,
    turned: bool,
    work: ColumnSpace,
    momentum: FloatArray,
    rate: FloatArray,
) -> None:
    """The same, of joints placed in ``work``, for a state that differs from the last one from a joint on.

    Args:
        first: joint; the links before it are as they were when ``work`` was last filled, and their columns are left.
        turned: whether positions differ, too; else ``work.fields`` are as they were.
        work: in and out; without ``rate`` its slopes are left.
    """
    axis, parent, motors = kin.axis, kin.parent, kin.motors
    n, with_momentum, with_rate = axis.shape[0], momentum.shape[0] > 0, rate.shape[0] > 0
    fields, slopes, motions, weights = work.fields, work.slopes, work.motions, work.weights
    motions[0] = 0.0
    for i in range(3):
        weights[0, i] = gravity[i]
    for link in range(first, n):
        sliding = np.isfinite(kin.travel[link, 0])
        r, p = work.rotation[link], work.origin[link]
        before, here = parent[link] + 1, link + 1
        s, t, v, g, down = fields[here], slopes[here], motions[here], weights[here], weights[before]
        to_child(r, p, motions[before], v)
        for i in range(3):
            g[i] = r[0, i] * down[0] + r[1, i] * down[1] + r[2, i] * down[2]
        j = parent[link]
        while j >= 0:
            if turned:
                to_child(r, p, fields[before, j], s[j])
            if with_rate:
                to_child(r, p, slopes[before, j], t[j])
            j = parent[j]
        o = 0 if sliding else 3
        for i in range(6):
            s[link, i] = t[link, i] = 0.0
        add_velocity_product(axis[link], sliding, 1.0, v, t[link])
        for i in range(3):
            s[link, o + i] = axis[link, i]
            v[o + i] += axis[link, i] * qd[link]
        columns = slice(PER_LINK * link, PER_LINK * here)
        j = link
        while j >= 0:
            if with_momentum:
                _product(s[j], v, momentum[j, columns])
            if with_rate:
                out = rate[j, columns]
                _product(t[j], v, out)
                out[0] += g[0] * s[j, 0] + g[1] * s[j, 1] + g[2] * s[j, 2]
                for i in range(3):
                    a, b = (i + 1) % 3, (i + 2) % 3
                    out[1 + i] += g[a] * s[j, 3 + b] - g[b] * s[j, 3 + a]
            j = parent[j]
    for m in range(motors.joint.shape[0]):
        driven, carrier, gear, z = motors.joint[m], motors.carrier[m], motors.gear[m], motors.axis[m]
        s, t, v, c = fields[carrier + 1], slopes[carrier + 1], motions[carrier + 1], PER_LINK * n + m
        j = carrier
        while j >= 0:
            if with_momentum:
                momentum[j, c] = gear * qd[driven] * (z[0] * s[j, 3] + z[1] * s[j, 4] + z[2] * s[j, 5])
            if with_rate:
                rate[j, c] = gear * qd[driven] * (z[0] * t[j, 3] + z[1] * t[j, 4] + z[2] * t[j, 5])
            j = parent[j]
        if with_momentum:
            momentum[driven, c] = own * gear * (z[0] * v[3] + z[1] * v[4] + z[2] * v[5])


@njit(cache=True)
def inertia_columns(kin: Kinematics, own: float, k: int, work: ColumnSpace, out: FloatArray) -> None:
    """Inertial columns of W_m for the unit velocity of joint k, of the fields in ``work``: v is s_k.

    ``out``: (n, >= K) result; where joint k has no part it is left.
    """
    parent, motors, fields = kin.parent, kin.motors, work.fields
    n = parent.size
    for link in range(k, n):
        if not _moves(parent, k, link):
            continue
        s, columns, j = fields[link + 1], slice(PER_LINK * link, PER_LINK * (link + 1)), link
        while j >= 0:
            _product(s[j], s[k], out[j, columns])
            j = parent[j]
    for m in range(motors.joint.shape[0]):
        driven, carrier, gear, z = motors.joint[m], motors.carrier[m], motors.gear[m], motors.axis[m]
        s, c = fields[carrier + 1], PER_LINK * n + m
        if driven == k:
            j = carrier
            while j >= 0:
                out[j, c] = gear * (z[0] * s[j, 3] + z[1] * s[j, 4] + z[2] * s[j, 5])
                j = parent[j]
        if _moves(parent, k, carrier):
            out[driven, c] = own * gear * (z[0] * s[k, 3] + z[1] * s[k, 4] + z[2] * s[k, 5])


@njit(cache=True)
def _moves(parent: IntArray, k: int, link: int) -> bool:
    """Whether joint k moves a link."""
    while link > k:
        link = parent[link]
    return link == k
