r"""Loop closures, compiled: errors, Jacobian, second derivatives, and the passive joints that keep them closed.

A closure joins a frame of one link to a frame of another, ``R_1, x_1`` and ``R_2, x_2`` in the world. Its error is
``R_1^T (x_2 - x_1)`` and, if it is 6D, the rotation vector of ``R_1^T R_2`` too. Where it is zero, its rate is
``R_1^T (v_2 - v_1)`` and ``R_1^T (w_2 - w_1)``, and its second derivative the same difference of accelerations; terms
with the frame's own motion vanish there with the error. Newton's method uses that Jacobian everywhere: what it leaves
out is of the order of the error, so convergence stays quadratic.

``rows`` takes all rows of all closures to the independent ones: redundant ones of planar loops are not in it.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numba import njit

from safe_sysid.core.arrays import BoolArray, FloatArray, IntArray
from safe_sysid.robot.frames import kinematics_kernel
from safe_sysid.robot.model import Kinematics

__all__ = ["CONVERGED", "Loops", "close", "derivatives", "follow", "linearise", "transmission_rates"]

IndexArray = IntArray
#: Largest error of a closed loop after Newton's method, in units of the loop's length (and rad).
CONVERGED = 1e-11
_ITERATIONS = 12
_SMALLEST_STEP = 2.0**-20  # of the way between two samples
_FARTHEST = 0.1  # rad (or m): how far Newton's method may be from its prediction


class Loops(NamedTuple):
    """Closures of K loops, M rows in all, and which joints are passive."""

    joint: IndexArray  #: (K, 2) joints whose frames carry the two ends; -1 the world
    rotation: FloatArray  #: (K, 2, 3, 3) of the ends in those frames
    point: FloatArray  #: (K, 2, 3) their origins there, m
    six: BoolArray  #: (K,) whether the closure holds the rotation, too
    rows: FloatArray  #: (n_u, M) combinations of rows that are independent, translations per length of their loop
    actuated: IndexArray  #: (n_a,) joints
    passive: IndexArray  #: (n_u,) joints


@njit(cache=True)
def _put(x: FloatArray, out: FloatArray) -> None:
    """``out = x``: an assigned slice brings texts of errors with it, which take seconds to compile."""
    for i in range(x.shape[0]):
        out[i] = x[i]


@njit(cache=True)
def _end(loops: Loops, k: int, side: int, r: FloatArray, p: FloatArray, rotation: FloatArray, x: FloatArray) -> None:
    """Frame of one end in the world."""
    j = loops.joint[k, side]
    if j < 0:
        for a in range(3):
            x[a] = loops.point[k, side, a]
            for b in range(3):
                rotation[a, b] = loops.rotation[k, side, a, b]
        return
    for a in range(3):
        x[a] = p[j, a]
        for b in range(3):
            x[a] += r[j, a, b] * loops.point[k, side, b]
            rotation[a, b] = 0.0
            for c in range(3):
                rotation[a, b] += r[j, a, c] * loops.rotation[k, side, c, b]


@njit(cache=True)
def _rotation_vector(r: FloatArray, out: FloatArray) -> None:
    """Rotation vector (3,) of ``r``, rad."""
    s = np.array((r[2, 1] - r[1, 2], r[0, 2] - r[2, 0], r[1, 0] - r[0, 1])) * 0.5
    cosine = 0.5 * (r[0, 0] + r[1, 1] + r[2, 2] - 1.0)
    sine = np.sqrt(s[0] ** 2 + s[1] ** 2 + s[2] ** 2)
    if sine > 1e-6:
        _put(s * (np.arctan2(sine, cosine) / sine), out)
    elif cosine > 0.0:
        _put(s, out)
    else:  # half a turn: about the largest column of r + 1
        best = 0
        for i in range(3):
            if r[i, i] > r[best, best]:
                best = i
        axis = r[:, best].copy()
        axis[best] += 1.0
        _put(axis * (np.pi / np.sqrt(axis[0] ** 2 + axis[1] ** 2 + axis[2] ** 2)), out)


@njit(cache=True)
def _cross(a: FloatArray, b: FloatArray) -> FloatArray:
    return np.array((a[1] * b[2] - a[2] * b[1], a[2] * b[0] - a[0] * b[2], a[0] * b[1] - a[1] * b[0]))


@njit(cache=True)
def _linearise(
    kin: Kinematics, loops: Loops, r: FloatArray, p: FloatArray, error: FloatArray, jacobian: FloatArray
) -> None:
    """Errors (M,) and Jacobian (M, n) of all closures, from the joints' frames."""
    first, second, x, y = np.empty((3, 3)), np.empty((3, 3)), np.empty(3), np.empty(3)
    jacobian[:] = 0.0
    row = 0
    for k in range(loops.joint.shape[0]):
        _end(loops, k, 0, r, p, first, x)
        _end(loops, k, 1, r, p, second, y)
        _put(first.T @ (y - x), error[row : row + 3])
        if loops.six[k]:
            _rotation_vector(first.T @ second, error[row + 3 : row + 6])
        for side in range(2):
            sign = 1.0 if side == 1 else -1.0
            j = loops.joint[k, side]
            while j >= 0:
                z = r[j] @ kin.axis[j]
                turns = not np.isfinite(kin.travel[j, 0])
                arm = (y if side == 1 else x) - p[j]
                velocity = first.T @ (_cross(z, arm) if turns else z)
                for i in range(3):
                    jacobian[row + i, j] += sign * velocity[i]
                if loops.six[k] and turns:
                    rate = first.T @ z
                    for i in range(3):
                        jacobian[row + 3 + i, j] += sign * rate[i]
                j = kin.parent[j]
        row += 6 if loops.six[k] else 3


@njit(cache=True)
def _accelerations(
    kin: Kinematics, loops: Loops, r: FloatArray, p: FloatArray, qd: FloatArray, out: FloatArray
) -> None:
    """Second derivative (M,) of all closures at joint velocities ``qd`` without joint accelerations."""
    n = len(kin.axis)
    w, dw, a = np.zeros((n, 3)), np.zeros((n, 3)), np.zeros((n, 3))
    for j in range(n):
        z = r[j] @ kin.axis[j]
        before = kin.parent[j]
        if before >= 0:
            arm = p[j] - p[before]
            _put(w[before], w[j])
            _put(dw[before], dw[j])
            _put(a[before] + _cross(dw[before], arm) + _cross(w[before], _cross(w[before], arm)), a[j])
        if np.isfinite(kin.travel[j, 0]):
            _put(a[j] + 2.0 * qd[j] * _cross(w[j], z), a[j])
        else:
            _put(dw[j] + qd[j] * _cross(w[j], z), dw[j])
            _put(w[j] + qd[j] * z, w[j])
    frame, x, other = np.empty((3, 3)), np.empty(3), np.empty((3, 3))
    row = 0
    for k in range(loops.joint.shape[0]):
        point, turn = np.zeros((2, 3)), np.zeros((2, 3))
        for side in range(2):
            j = loops.joint[k, side]
            _end(loops, k, side, r, p, frame if side == 0 else other, x)
            if j >= 0:
                arm = x - p[j]
                _put(a[j] + _cross(dw[j], arm) + _cross(w[j], _cross(w[j], arm)), point[side])
                _put(dw[j], turn[side])
        _put(frame.T @ (point[1] - point[0]), out[row : row + 3])
        if loops.six[k]:
            _put(frame.T @ (turn[1] - turn[0]), out[row + 3 : row + 6])
        row += 6 if loops.six[k] else 3


@njit(cache=True)
def _solve(matrix: FloatArray, right: FloatArray) -> float:
    """``right`` (m, k) becomes ``matrix^-1 right``, ``matrix`` is used up; returns its determinant, 0 if singular."""
    m = matrix.shape[0]
    determinant = 1.0
    for i in range(m):
        pivot = i + np.argmax(np.abs(matrix[i:, i]))
        if not abs(matrix[pivot, i]) > 1e-14:
            return 0.0
        if pivot != i:
            for c in range(m):
                matrix[i, c], matrix[pivot, c] = matrix[pivot, c], matrix[i, c]
            for c in range(right.shape[1]):
                right[i, c], right[pivot, c] = right[pivot, c], right[i, c]
            determinant = -determinant
        determinant *= matrix[i, i]
        for k in range(i + 1, m):
            factor = matrix[k, i] / matrix[i, i]
            if factor != 0.0:
                for c in range(i, m):
                    matrix[k, c] -= factor * matrix[i, c]
                for c in range(right.shape[1]):
                    right[k, c] -= factor * right[i, c]
    for i in range(m - 1, -1, -1):
        for c in range(right.shape[1]):
            total = right[i, c]
            for k in range(i + 1, m):
                total -= matrix[i, k] * right[k, c]
            right[i, c] = total / matrix[i, i]
    return determinant


@njit(cache=True)
def linearise(kin: Kinematics, loops: Loops, q: FloatArray, error: FloatArray, jacobian: FloatArray) -> None:
    """Errors (N, M), m and rad, and Jacobians (N, M, n) of all closures at N positions ``q`` (N, n)."""
    n = len(kin.axis)
    r, p = np.empty((1, n, 3, 3)), np.empty((1, n, 3))
    for k in range(len(q)):
        kinematics_kernel(kin.parent, kin.rotation, kin.translation, kin.axis, kin.travel, q[k : k + 1], r, p)
        _linearise(kin, loops, r[0], p[0], error[k], jacobian[k])


@njit(cache=True)
def close(kin: Kinematics, loops: Loops, q: FloatArray, transmission: FloatArray) -> float:
    """Newton's method: the passive joints of ``q`` (n,) move until all loops are closed.

    ``q``: (n,) rad or m, in and out; ``transmission``: (n_u, n_a) out: ``-J_u^-1 J_a`` there.
    Returns the determinant of J_u; 0 if it is singular, or if there is no convergence.
    """
    n, passive, actuated, rows = len(kin.axis), loops.passive, loops.actuated, loops.rows
    r, p = np.empty((1, n, 3, 3)), np.empty((1, n, 3))
    error, jacobian = np.empty(rows.shape[1]), np.empty((rows.shape[1], n))
    right = np.empty((len(passive), 1 + len(actuated)))
    for _ in range(_ITERATIONS):
        kinematics_kernel(kin.parent, kin.rotation, kin.translation, kin.axis, kin.travel, q.reshape(1, n), r, p)
        _linearise(kin, loops, r[0], p[0], error, jacobian)
        short = rows @ error
        reduced = rows @ jacobian
        matrix = np.empty((len(passive), len(passive)))
        for i in range(len(passive)):
            right[i, 0] = -short[i]
            for c in range(len(passive)):
                matrix[i, c] = reduced[i, passive[c]]
            for c in range(len(actuated)):
                right[i, 1 + c] = -reduced[i, actuated[c]]
        determinant = _solve(matrix, right)
        if determinant == 0.0:
            return 0.0
        if np.max(np.abs(short)) < CONVERGED:
            for i in range(len(passive)):
                for c in range(len(actuated)):
                    transmission[i, c] = right[i, 1 + c]
            return determinant
        for i in range(len(passive)):
            q[passive[i]] += min(max(right[i, 0], -0.5), 0.5)
    return 0.0


@njit(cache=True)
def follow(kin: Kinematics, loops: Loops, q_a: FloatArray, start: FloatArray, q: FloatArray) -> int:
    """Passive joints along N positions of the actuated ones, on the branch that ``start`` is on.

    From sample to sample the passive joints are predicted with the transmission, then corrected by Newton's method.
    A step is halved where the correction is large or the determinant of J_u changes its sign, which it cannot without
    passing a singularity.

    Returns N, or the number of the first sample that was not reached.

    Args:
        q_a: (N, n_a) rad or m.
        start: (n,) closed loops.
        q: (N, n) out.
    """
    passive, actuated = loops.passive, loops.actuated
    now, trial = start.copy(), start.copy()
    transmission = np.empty((len(passive), len(actuated)))
    fresh = np.empty((len(passive), len(actuated)))
    sign = np.sign(close(kin, loops, now, transmission))
    if sign == 0.0:
        return 0
    for k in range(len(q_a)):
        origin = now[actuated]
        way = q_a[k] - origin
        done, step = 0.0, 1.0
        while done < 1.0:
            step = min(step, 1.0 - done)
            move = step * way
            ahead = transmission @ move
            largest = max(np.max(np.abs(ahead)), np.max(np.abs(move)))
            accepted = False
            if largest <= 4.0 * _FARTHEST:
                _put(now, trial)
                for i in range(len(actuated)):
                    trial[actuated[i]] = origin[i] + (done + step) * way[i]
                for i in range(len(passive)):
                    trial[passive[i]] += ahead[i]
                determinant = close(kin, loops, trial, fresh)
                farthest = 0.0
                for i in range(len(passive)):
                    farthest = max(farthest, abs(trial[passive[i]] - now[passive[i]] - ahead[i]))
                accepted = determinant * sign > 0.0 and farthest <= min(_FARTHEST, 0.5 * largest + 1e-6)
            if accepted:
                _put(trial, now)
                transmission, fresh = fresh, transmission
                done = 1.0 if done + step >= 1.0 else done + step
                step *= 2.0
            else:
                step *= 0.5
                if step < _SMALLEST_STEP:
                    return k
        for i in range(len(actuated)):
            now[actuated[i]] = q_a[k, i]
        _put(now, q[k])
    return len(q_a)


@njit(cache=True)
def derivatives(
    kin: Kinematics,
    loops: Loops,
    q: FloatArray,
    qd_a: FloatArray,
    qdd_a: FloatArray,
    passive_jacobian: FloatArray,
    transmission: FloatArray,
    qd: FloatArray,
    qdd: FloatArray,
) -> int:
    """Equations 19 to 22 at N closed positions. Returns N, or the number of the first sample where J_u is singular.

    Args:
        q: (N, n).
        qd_a: (N, n_a) rad/s.
        qdd_a: (N, n_a) rad/s^2.
        passive_jacobian: (N, n_u, n_u) out, J_u.
        transmission: (N, n, n_a) out, G.
        qd: (N, n) out, ``G qd_a``.
        qdd: (N, n) out, ``G qdd_a + dG/dt qd_a``.
    """
    n, passive, actuated, rows = len(kin.axis), loops.passive, loops.actuated, loops.rows
    r, p = np.empty((1, n, 3, 3)), np.empty((1, n, 3))
    error, jacobian = np.empty(rows.shape[1]), np.empty((rows.shape[1], n))
    right, bias = np.empty((len(passive), len(actuated))), np.empty(rows.shape[1])
    last = np.empty((len(passive), 1))
    for k in range(len(q)):
        kinematics_kernel(kin.parent, kin.rotation, kin.translation, kin.axis, kin.travel, q[k : k + 1], r, p)
        _linearise(kin, loops, r[0], p[0], error, jacobian)
        reduced = rows @ jacobian
        for i in range(len(passive)):
            for c in range(len(passive)):
                passive_jacobian[k, i, c] = reduced[i, passive[c]]
            for c in range(len(actuated)):
                right[i, c] = -reduced[i, actuated[c]]
        if _solve(passive_jacobian[k].copy(), right) == 0.0:
            return k
        transmission[k] = 0.0
        for c in range(len(actuated)):
            transmission[k, actuated[c], c] = 1.0
            for i in range(len(passive)):
                transmission[k, passive[i], c] = right[i, c]
        _put(transmission[k] @ qd_a[k], qd[k])
        _put(transmission[k] @ qdd_a[k], qdd[k])
        _accelerations(kin, loops, r[0], p[0], qd[k], bias)
        _put(-(rows @ bias), last[:, 0])
        _solve(passive_jacobian[k].copy(), last)
        for i in range(len(passive)):
            qdd[k, passive[i]] += last[i, 0]
    return len(q)


@njit(cache=True)
def transmission_rates(
    kin: Kinematics,
    loops: Loops,
    q: FloatArray,
    passive_jacobian: FloatArray,
    transmission: FloatArray,
    qd: FloatArray,
    out: FloatArray,
) -> None:
    """``dG/dt`` (N, n, n_a) into ``out``.

    The closures' second derivative is quadratic in the joint velocities, ``B(x, x)``; with ``x = G qd_a`` and
    ``y = G e_i`` column i of the passive rows is ``-J_u^-1 B(x, y)``; ``4 B(x, y)`` is ``B(x + y, x + y)`` less
    ``B(x - y, x - y)``.

    Args:
        q: (N, n).
        passive_jacobian: (N, n_u, n_u), J_u.
        transmission: (N, n, n_a), G.
        qd: (N, n) rad/s, ``G qd_a``.
        out: (N, n, n_a) 1/s.
    """
    n, passive, rows = len(kin.axis), loops.passive, loops.rows
    r, p = np.empty((1, n, 3, 3)), np.empty((1, n, 3))
    plus, minus = np.empty(rows.shape[1]), np.empty(rows.shape[1])
    right = np.empty((len(passive), transmission.shape[2]))
    for k in range(len(q)):
        kinematics_kernel(kin.parent, kin.rotation, kin.translation, kin.axis, kin.travel, q[k : k + 1], r, p)
        for c in range(transmission.shape[2]):
            along = transmission[k, :, c].copy()
            _accelerations(kin, loops, r[0], p[0], qd[k] + along, plus)
            _accelerations(kin, loops, r[0], p[0], qd[k] - along, minus)
            _put(-0.25 * (rows @ (plus - minus)), right[:, c])
        _solve(passive_jacobian[k].copy(), right)
        out[k] = 0.0
        for i in range(len(passive)):
            _put(right[i], out[k, passive[i]])
