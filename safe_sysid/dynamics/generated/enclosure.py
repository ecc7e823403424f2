r"""Proved bounds of pseudo-symbolic polynomials over ranges of the joints.

With factors ``x_a`` of the accelerations, ``|x_a| <= r_a``, a torque is ``sum_a x_a u_a(q)``; it is at most
``F(q) = sum_a r_a |u_a(q)|``, the largest over signs of ``sum_a +-r_a u_a``, and each of these is *one* polynomial:
trigonometric of degree d <= 2 in a turning joint, of degree 2 in a sliding one. So F is bounded by its values on a
grid, joint by joint:

- a whole turn, M equal steps: times ``1 / cos(pi d / M)`` [EhlichZeller1964];
- a sliding joint, M zeros of Chebyshev's polynomial: times ``1 / cos(pi d / (2 M))``, which is the same for
  ``q = cos t``;
- part of a turn, steps h: plus ``d^2 h^2 / 8 B``, B a bound over whole turns, as ``|f''| <= d^2 B`` (Bernstein).

Products of velocities are taken as independent. Rounding is below 1e-13 of the sum of all terms' magnitudes; 1e-12 of
it is added. The proof is in docs/understand/guarantees.md.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from safe_sysid.core.arrays import BoolArray, FloatArray, IntArray
from safe_sysid.dynamics.generated.model import GRAVITY, accelerations
from safe_sysid.dynamics.generated.polynomials import DIGITS

__all__ = ["proved_bound", "rounding"]


_POINTS = 1_500_000  # of the grid
_STEPS = (8, 64)  # of a joint, at least and at most
_ROUNDING = 1e-12


def _values(q: FloatArray, slides: bool) -> FloatArray:
    """(points, digits): what each function of a joint is at some positions."""
    if slides:
        return np.stack([np.ones_like(q), q, q * q], axis=1)
    s, c = np.sin(q), np.cos(q)
    return np.stack([np.ones_like(q), s, c, s * c, c * c], axis=1)


def proved_bound(
    acceleration: IntArray,
    code: IntArray,
    weight: FloatArray,
    sliding: BoolArray,
    q: FloatArray,
    qd: FloatArray,
    qdd: FloatArray,
) -> float:
    """An upper bound of ``|sum_k weight_k y_k|``.

    Args:
        acceleration: (p,) as of a model.
        code: (p,) likewise.
        weight: (p,) N m.
        sliding: (n,).
        q: (n, 2) range, rad or m; of a turning joint, more than a turn is a turn.
        qd: (n,) largest magnitude, rad/s or m/s.
        qdd: (n,) likewise, rad/s^2 or m/s^2.
    """
    used = weight != 0.0
    acceleration, code, weight = acceleration[used], code[used], weight[used]
    if len(weight) == 0:
        return 0.0
    n = len(sliding)
    digits = np.stack([code // DIGITS**j % DIGITS for j in range(n)], axis=1)
    joints = [j for j in range(n) if np.any(digits[:, j])]
    degree = {j: 1 if not sliding[j] and digits[:, j].max() < 3 else 2 for j in joints}
    reach = _reach(qd, qdd)
    parts = {j for j in joints if not sliding[j] and q[j, 1] - q[j, 0] < 2.0 * np.pi * (1.0 - 1e-12)}
    # A grid of few points makes the factors large: each joint gets as many as the number of joints allows.
    steps = int(np.clip(_POINTS ** (1.0 / max(len(joints), 1)), *_STEPS))
    positions: dict[int, FloatArray] = {}
    factor, curvature = 1.0, 0.0
    turned = np.asarray(np.arange(steps) * (2.0 * np.pi / steps), dtype=np.float64)
    whole: dict[int, FloatArray] = dict.fromkeys(joints, turned)
    whole_factor = 1.0
    for j in joints:
        turn = 1.0 / np.cos(np.pi * degree[j] / steps)
        positions[j] = whole[j]
        if sliding[j]:
            turn = 1.0 / np.cos(np.pi * degree[j] / (2 * steps))
            zeros = np.cos(np.pi * (np.arange(steps) + 0.5) / steps)
            positions[j] = whole[j] = q[j].mean() + 0.5 * (q[j, 1] - q[j, 0]) * zeros
        elif j in parts:
            positions[j] = np.linspace(q[j, 0], q[j, 1], steps)
            curvature += (degree[j] * (q[j, 1] - q[j, 0]) / (steps - 1)) ** 2 / 8.0
        whole_factor *= turn
        factor *= 1.0 if j in parts else turn

    def largest(at: dict[int, FloatArray]) -> float:
        total = np.zeros((1,) * len(joints))
        for a in np.unique(acceleration):
            mine = acceleration == a
            involved = [j for j in joints if np.any(digits[mine, j])]
            shape = [3 if sliding[j] else DIGITS for j in involved]
            where = np.zeros(int(mine.sum()), np.int64)
            for j, width in zip(involved, shape, strict=True):
                where = where * width + digits[mine, j]
            tensor: Any = np.bincount(where, weight[mine], int(np.prod(shape))).reshape(shape)
            for axis, j in enumerate(involved):
                tensor = np.moveaxis(np.tensordot(_values(at[j], bool(sliding[j])), tensor, (1, axis)), 0, axis)
            full = [len(at[j]) if j in involved else 1 for j in joints]
            total = total + reach[a] * np.abs(tensor.reshape(full))
        return float(total.max())

    bound = factor * largest(positions)
    if curvature > 0.0:
        bound += curvature * whole_factor * largest(whole)
    return bound + rounding(acceleration, weight, sliding, q, qd, qdd)


def rounding(
    acceleration: IntArray, weight: FloatArray, sliding: BoolArray, q: FloatArray, qd: FloatArray, qdd: FloatArray
) -> float:
    """Upper bound of what rounding makes of ``sum_k weight_k y_k`` in floats: 1e-12 of all terms' magnitudes.

    Arguments as of :func:`proved_bound`.
    """
    size = np.where(sliding, np.maximum(1.0, np.abs(q).max(axis=1)), 1.0)
    magnitude = np.abs(weight) * _reach(qd, qdd)[acceleration] * np.prod(size**2)
    return _ROUNDING * float(magnitude.sum())


def _reach(qd: FloatArray, qdd: FloatArray) -> FloatArray:
    """Largest magnitude of each acceleration function."""
    reach = np.array(
        [np.prod([(qd if len(f) == 2 else qdd)[i] for i in f]) for f in accelerations(len(qd))], dtype=np.float64
    )
    reach[GRAVITY] = 1.0
    return reach
