r"""Entries of the regressor as inner products of screws and columns: compiled kernels.

By virtual power, a link's parameter p with force f and moment m (in the link's frame, at its origin) loads joint j with
``W_jp = z . m + s . f``, where z is the joint's axis and ``s = z x (link's origin - joint's)`` in that frame. (z, s)
depends on time and on the errors e of the joints *between* j and the link only: two vectors are turned, not a column
for each of ten parameters.

The second-order part ``sum_i (x_i's symbols) (y_i's symbols)`` is summed over the components i *before* any absolute
value, so that what cancels in an inner product does cancel. Its blocks: the time's square lies in [0, 1]; in the ball
of e, ``eps^T M eps`` by the eigenvalues of M's symmetric part (:func:`affine.quadratic_range`); others by norms.
"""

from __future__ import annotations

import math

from numba import njit

from safe_sysid.core.arrays import FloatArray
from safe_sysid.reachability.affine import quadratic_range

__all__ = ["inner", "norm_and_size"]

_EPS = 2.0**-52
_TINY = 1e-150
_UP = 1.0 + 32.0 * _EPS


@njit(cache=True, nogil=True)
def norm_and_size(v: FloatArray, n: int, first: int, last: int, with_r: int) -> tuple[float, float]:
    """Bound of a vector's length (3, K + 2) less its remainder, and the sum of all its magnitudes but that.

    It depends on time, on e of joints ``first`` to before ``last`` and on r of joints before ``with_r``.
    """
    centre, time, e, r, total = 0.0, 0.0, 0.0, 0.0, 0.0
    for i in range(3):
        centre += v[i, 0] * v[i, 0]
        time += v[i, 1] * v[i, 1]
        total += abs(v[i, 0]) + abs(v[i, 1])
        for k in range(2 + first, 2 + last):
            e += v[i, k] * v[i, k]
            total += abs(v[i, k])
        for k in range(2 + n, 2 + n + with_r):
            r += v[i, k] * v[i, k]
            total += abs(v[i, k])
    return (math.sqrt(centre) + math.sqrt(time) + math.sqrt(e) + math.sqrt(r)) * _UP, total


@njit(cache=True, nogil=True)
def inner(
    xs: FloatArray,
    x: int,
    ys: FloatArray,
    y: int,
    begin: int,
    end: int,
    n: int,
    first: int,
    first_r: int,
    last: int,
    private: float,
    total: float,
    outs: FloatArray,
    row: int,
    out: int,
) -> float:
    """``outs[row, out] = sum_i xs[x, i] ys[y, i]`` over i from ``begin`` to before ``end``; forms (K + 2).

    The left forms depend on time, on e of joints ``first`` to before ``last`` and on r of joints ``first_r`` to before
    ``last``, the right ones on time and on e and r of joints before ``last``; the result's symbols of later joints are
    not touched. ``private`` bounds all products with a private remainder, ``total`` the sum of all magnitudes.

    Indices instead of views of arrays: creating those takes longer than the arithmetic.

    Returns the result's reach (:func:`affine.reach`).
    """
    centre, linear, square = 0.0, 0.0, 0.0
    for i in range(begin, end):
        centre += xs[x, i, 0] * ys[y, i, 0]
        linear += xs[x, i, 0] * ys[y, i, 1] + xs[x, i, 1] * ys[y, i, 0]
        square += xs[x, i, 1] * ys[y, i, 1]
    outs[row, out, 1] = linear
    time = abs(linear)
    # Linear terms, and those with time, of e and of r.
    reach_e, reach_r, timed_e, timed_r = 0.0, 0.0, 0.0, 0.0
    for k in range(2, 2 + last):
        linear, timed = 0.0, 0.0
        for i in range(begin, end):
            linear += xs[x, i, 0] * ys[y, i, k]
            timed += xs[x, i, 1] * ys[y, i, k]
        if k >= 2 + first:
            for i in range(begin, end):
                linear += xs[x, i, k] * ys[y, i, 0]
                timed += xs[x, i, k] * ys[y, i, 1]
        outs[row, out, k] = linear
        reach_e += linear * linear
        timed_e += timed * timed
    for k in range(2 + n, 2 + n + last):
        linear, timed = 0.0, 0.0
        for i in range(begin, end):
            linear += xs[x, i, 0] * ys[y, i, k]
            timed += xs[x, i, 1] * ys[y, i, k]
        if k >= 2 + n + first_r:
            for i in range(begin, end):
                linear += xs[x, i, k] * ys[y, i, 0]
                timed += xs[x, i, k] * ys[y, i, 1]
        outs[row, out, k] = linear
        reach_r += linear * linear
        timed_r += timed * timed
    # Own blocks of the two balls; an off-diagonal element of the symmetric part is half the pair and occurs twice.
    shift, radius, mixed = 0.0, 0.0, 0.0
    for ball in range(2):
        base = 2 + ball * n
        active = first_r if ball == 1 else first
        trace, squares = 0.0, 0.0
        for a in range(base + active, base + last):
            for b in range(base, base + active):
                pair = 0.0
                for i in range(begin, end):
                    pair += xs[x, i, a] * ys[y, i, b]
                squares += 0.5 * pair * pair
            pair = 0.0
            for i in range(begin, end):
                pair += xs[x, i, a] * ys[y, i, a]
            trace += pair
            squares += pair * pair
            for b in range(a + 1, base + last):
                pair = 0.0
                for i in range(begin, end):
                    pair += xs[x, i, a] * ys[y, i, b] + xs[x, i, b] * ys[y, i, a]
                squares += 0.5 * pair * pair
        by, spread = quadratic_range(trace, squares, min(last, 2 * min(end - begin, last - active)), n)
        shift += by
        radius += spread
    # Between the balls.
    for a in range(2 + first, 2 + last):
        for b in range(2 + n, 2 + n + first_r):
            pair = 0.0
            for i in range(begin, end):
                pair += xs[x, i, a] * ys[y, i, b]
            mixed += pair * pair
    for b in range(2 + n + first_r, 2 + n + last):
        for a in range(2, 2 + last):
            pair = 0.0
            for i in range(begin, end):
                pair += xs[x, i, a] * ys[y, i, b] + xs[x, i, b] * ys[y, i, a]
            mixed += pair * pair
    rho = 0.5 * abs(square) + radius + math.sqrt(mixed) + math.sqrt(timed_e) + math.sqrt(timed_r)
    outs[row, out, 0] = centre + 0.5 * square + shift
    rest = outs.shape[2] - 1
    # No product passes through more than rest^2 + 64 roundings.
    outs[row, out, rest] = (rho + private) * _UP + (rest * rest + 96) * _EPS * total + _TINY
    return time + math.sqrt(reach_e) + math.sqrt(reach_r)
