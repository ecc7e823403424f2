r"""Polynomials in sines, cosines and sliding positions of the joints, with rows of coefficients.

A function of the joints is a digit per joint, base 5: of a turning joint ``1, s, c, s c, c^2`` (``s^2 = 1 - c^2`` is
written so: the paper's first pre-filter), of a sliding one ``1, q, q^2``. :class:`FunctionRows` maps such functions
to rows of numbers, what each parameter multiplies. Transforms of one joint are short polynomials with matrix
coefficients, so that products along the chain solve, one joint at a time, the linear systems that the paper solves
for all at once ([PSDM eq. 25]).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from safe_sysid.core.arrays import FloatArray, IntArray
from safe_sysid.dynamics.generated.chain import PSEUDO, UNPSEUDO, Chain, kronecker, skew

__all__ = ["DIGITS", "FunctionRows", "Matrices", "derivatives", "expand", "joint_transforms"]


DIGITS = 5
#: Below this share of the sum of its terms' magnitudes a coefficient is the rounding error of zero.
_ROUNDING = 1e-12
#: (first, second) -> what their product is, of factors of degree one: [sliding][first][second] = ((digit, sign), ...).
_PRODUCTS: dict[bool, dict[tuple[int, int], tuple[tuple[int, float], ...]]] = {
    False: {
        (0, 0): ((0, 1.0),), (0, 1): ((1, 1.0),), (0, 2): ((2, 1.0),),
        (1, 0): ((1, 1.0),), (1, 1): ((0, 1.0), (4, -1.0)), (1, 2): ((3, 1.0),),
        (2, 0): ((2, 1.0),), (2, 1): ((3, 1.0),), (2, 2): ((4, 1.0),),
    },
    True: {(0, 0): ((0, 1.0),), (0, 1): ((1, 1.0),), (1, 0): ((1, 1.0),), (1, 1): ((2, 1.0),)},
}  # fmt: skip
#: digit -> derivative by the joint's position: ((digit, factor), ...).
_SLOPES: dict[bool, dict[int, tuple[tuple[int, float], ...]]] = {
    False: {1: ((2, 1.0),), 2: ((1, -1.0),), 3: ((4, 2.0), (0, -1.0)), 4: ((3, -2.0),)},
    True: {1: ((0, 1.0),), 2: ((1, 2.0),)},
}

Matrices = dict[int, FloatArray]


@dataclass(frozen=True)
class FunctionRows:
    """Functions of the joints with a row of numbers each."""

    code: IntArray  #: (m,) functions: ``sum of digit_j 5^j``
    row: FloatArray  #: (m, k)
    size: FloatArray  #: (m, k) sums of the magnitudes of what was added up in ``row``


def _product(
    first: Matrices, second: Matrices, sliding: bool, join: Callable[[FloatArray, FloatArray], FloatArray]
) -> Matrices:
    out: Matrices = {}
    for i, x in first.items():
        for j, y in second.items():
            for digit, sign in _PRODUCTS[sliding][i, j]:
                out[digit] = out.get(digit, 0.0) + sign * join(x, y)
    scale = max(float(np.abs(x).max()) for x in out.values())
    cleaned = {digit: np.where(np.abs(x) < 1e-14 * scale, 0.0, x) for digit, x in out.items()}
    return {digit: x for digit, x in cleaned.items() if np.any(x)}


def joint_transforms(chain: Chain, j: int) -> tuple[Matrices, Matrices, Matrices]:
    """Pose (4, 4), force transform (6, 6) and transfer of parameters (10, 10) from frame j to the one before.

    Returns matrix coefficients by digit of joint j.
    """
    (ca, sa), (cp, sp), a, r = chain.alpha[j], chain.turn(j), chain.a[j], chain.r[j]
    before = np.array([[1.0, 0, 0, a], [0, ca, -sa, 0], [0, sa, ca, 0], [0, 0, 0, 1.0]])
    sliding = bool(chain.sliding[j])
    if sliding:
        still = np.array([[cp, -sp, 0, 0], [sp, cp, 0, 0], [0, 0, 1.0, r], [0, 0, 0, 1.0]])
        moving = np.zeros((4, 4))
        moving[2, 3] = 1.0
        pose = {0: before @ still, 1: before @ moving}
    else:
        still = np.diag([0.0, 0.0, 1.0, 1.0])
        still[2, 3] = r
        sine, cosine = np.zeros((4, 4)), np.zeros((4, 4))
        cosine[:2, :2] = [[cp, -sp], [sp, cp]]
        sine[:2, :2] = [[-sp, -cp], [cp, -sp]]
        pose = {0: before @ still, 1: before @ sine, 2: before @ cosine}
    turn = {digit: kronecker(np.eye(2), x[:3, :3]) for digit, x in pose.items() if np.any(x[:3, :3])}
    lever = {0: np.eye(6)}
    for digit, x in pose.items():
        lever[digit] = lever.get(digit, np.zeros((6, 6)))
        lever[digit][3:, :3] = skew(x[:3, 3])
    force = _product(lever, turn, sliding, np.matmul)
    transfer = _product(pose, pose, sliding, lambda x, y: UNPSEUDO @ kronecker(x, y) @ PSEUDO)
    return {digit: x for digit, x in pose.items() if np.any(x)}, force, transfer


def expand(rows: FunctionRows, j: int, transform: Matrices) -> FunctionRows:
    """``rows`` times the transform of joint j, which they do not depend on yet; what is zero is left out."""
    codes, values, sizes = [], [], []
    for digit, matrix in transform.items():
        value, size = rows.row @ matrix, rows.size @ np.abs(matrix)
        value[np.abs(value) <= _ROUNDING * size] = 0.0
        kept = np.any(value, axis=1)
        codes.append(rows.code[kept] + digit * DIGITS**j)
        values.append(value[kept])
        sizes.append(size[kept])
    return FunctionRows(np.concatenate(codes), np.concatenate(values), np.concatenate(sizes))


def derivatives(code: IntArray, j: int, sliding: bool) -> tuple[IntArray, IntArray, FloatArray]:
    """Derivatives by the position of joint j.

    ``code``: (m,) functions.
    Returns codes (k,), the index (k,) of the function that each comes from, and its factor (k,).
    """
    digit = code // DIGITS**j % DIGITS
    codes, sources, factors = [code[:0]], [code[:0]], [np.zeros(0)]
    for before, slopes in _SLOPES[sliding].items():
        (source,) = np.nonzero(digit == before)
        for after, factor in slopes:
            codes.append(code[source] + (after - before) * DIGITS**j)
            sources.append(source)
            factors.append(np.full(len(source), factor))
    return np.concatenate(codes), np.concatenate(sources), np.concatenate(factors)
