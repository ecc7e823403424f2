r"""Derivation of pseudo-symbolic models: every function of the torque, and base parameters [PSDM].

1. ``D_ij`` and the potential energy as polynomials of the joints (:mod:`safe_sysid.dynamics.generated.polynomials`),
   each coefficient a row of what every inertial parameter contributes. ``D_ij``, i <= j, is the force along joint i of
   the links behind joint j under a unit acceleration of joint j: it does not depend on the joints up to i.
2. Base parameters: the columns that depend on no earlier ones, in the order of [KhalilDombre2004]; velocity terms are
   combinations of these rows and need not be looked at.
3. Velocity terms by differentiating: ``tau_k = sum d_m d_kj qd_m qd_j - 1/2 sum d_k d_xy qd_x qd_y``, Christoffel's
   form with a *minus* before the third term of [PSDM eq. 19], printed with a plus.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_matrix, vstack

from safe_sysid.core.arrays import BoolArray, FloatArray, IntArray
from safe_sysid.core.layout import PER_LINK
from safe_sysid.dynamics.generated.chain import Chain, chain_of
from safe_sysid.dynamics.generated.model import GRAVITY, PseudoSymbolicModel, accelerations
from safe_sysid.dynamics.generated.polynomials import (
    DIGITS,
    FunctionRows,
    Matrices,
    derivatives,
    expand,
    joint_transforms,
)
from safe_sysid.errors import ParameterError
from safe_sysid.robot.model import Kinematics

__all__ = ["base_columns", "derive", "parameter_order"]


#: Of a link's ten parameters, last the ones that dissolve in others: mass, m c_z and one of Ixx, Iyy.
_ORDER = (4, 5, 7, 8, 9, 1, 2, 6, 3, 0)
#: A column is dependent if this share of it, or less, is not in the span of the earlier ones.
_DEPENDENT = 1e-9
_ROUNDING = 1e-12


def _force_of_unit_acceleration(sliding: bool) -> FloatArray:
    """(6, 10): force and moment about z's frame on a body that accelerates along or about z, per parameter."""
    out = np.zeros((6, PER_LINK))
    if sliding:
        out[2, 0], out[3, 2], out[4, 1] = 1.0, 1.0, -1.0
    else:
        out[0, 2], out[1, 1] = -1.0, 1.0
        out[3, 7], out[4, 8], out[5, 9] = 1.0, 1.0, 1.0
    return out


def _placed(parts: list[tuple[int, FunctionRows]], width: int) -> FunctionRows:
    """One :class:`FunctionRows` of ``width`` columns from parts with (first column, rows), equal functions together."""
    codes, which = np.unique(np.concatenate([rows.code for _, rows in parts]), return_inverse=True)
    row, size, at = np.zeros((len(codes), width)), np.zeros((len(codes), width)), 0
    for first, rows in parts:
        lines = which[at : at + len(rows.code)]
        at += len(rows.code)
        columns = slice(first, first + rows.row.shape[1])
        np.add.at(row[:, columns], lines, rows.row)
        np.add.at(size[:, columns], lines, rows.size)
    return FunctionRows(codes, row, size)


def _mass_matrix(
    chain: Chain, transforms: list[tuple[Matrices, Matrices, Matrices]]
) -> dict[tuple[int, int], FunctionRows]:
    """``D_ij``, i <= j, per parameter: ten of each link, then the rotors."""
    n, none = chain.n, np.zeros(1, np.int64)
    parts: dict[tuple[int, int], list[tuple[int, FunctionRows]]] = {}
    for i in range(n):
        unit = np.zeros((1, 6))
        unit[0, 2 if chain.sliding[i] else 5] = 1.0
        along = FunctionRows(none, unit, unit)
        for j in range(i, n):
            if j > i:
                along = expand(along, j, transforms[j][1])
            unit_force = _force_of_unit_acceleration(bool(chain.sliding[j]))
            rows = FunctionRows(along.code, along.row @ unit_force, along.size @ np.abs(unit_force))
            parts[i, j] = [(PER_LINK * j, rows)]
            for k in range(j + 1, n):
                rows = expand(rows, k, transforms[k][2])
                parts[i, j].append((PER_LINK * k, rows))
    for j in range(n):
        parts[j, j].append((PER_LINK * n + j, FunctionRows(none, np.ones((1, 1)), np.ones((1, 1)))))
    for j, carrier, gear, axis in zip(*chain.motors, strict=True):
        for i in range(int(carrier) + 1):
            if chain.sliding[i]:
                continue
            z = np.array([[0.0, 0.0, 1.0]])
            rows = FunctionRows(none, z, z)
            for k in range(i + 1, int(carrier) + 1):
                rows = expand(rows, k, {d: x[:3, :3] for d, x in transforms[k][1].items() if np.any(x[:3, :3])})
            seen = FunctionRows(
                rows.code, gear * rows.row @ axis[:, None], abs(gear) * rows.size @ np.abs(axis)[:, None]
            )
            parts[i, int(j)].append((PER_LINK * n + int(j), seen))
    return {pair: _placed(part, 11 * n) for pair, part in parts.items()}


def _potential(chain: Chain, transforms: list[tuple[Matrices, Matrices, Matrices]]) -> FunctionRows:
    """Potential energy per parameter."""
    start = -np.append(chain.gravity, 0.0)[None]
    rows, parts = FunctionRows(np.zeros(1, np.int64), start, np.abs(start)), []
    for k in range(chain.n):
        rows = expand(rows, k, transforms[k][0])
        turned = FunctionRows(rows.code, rows.row[:, [3, 0, 1, 2]], rows.size[:, [3, 0, 1, 2]])
        parts.append((PER_LINK * k, turned))
    return _placed(parts, 11 * chain.n)


def parameter_order(n: int) -> IntArray:
    """(11 n,) order in which parameters are taken for base parameters: links from the base on, then rotors."""
    links = [PER_LINK * j + np.array(_ORDER) for j in range(n)]
    return np.concatenate([*links, np.arange(PER_LINK * n, 11 * n)])


def base_columns(rows: FloatArray, order: IntArray) -> tuple[IntArray, FloatArray]:
    """Columns that span all, each independent of those before it in an order; all columns as combinations of them.

    ``rows``: (m, P); ``order``: (P,) indices of columns.
    Returns indices (l,), ascending in ``order``, and B (l, P) with ``rows = rows[:, indices] B``.
    """
    basis, chosen = np.zeros((0, rows.shape[0])), []
    for column in order:
        x = rows[:, column].copy()
        size = np.linalg.norm(x)
        if size == 0.0:
            continue
        for _ in range(2):
            x -= basis.T @ (basis @ x)
        if np.linalg.norm(x) > _DEPENDENT * size:
            chosen.append(column)
            basis = np.vstack([basis, x / np.linalg.norm(x)])
    selected = np.array(chosen, dtype=np.int64)
    if len(selected) == 0:
        return selected, np.zeros((0, rows.shape[1]))
    weights: NDArray[Any] = np.linalg.lstsq(rows[:, selected], rows, rcond=None)[0]
    scale = np.linalg.norm(rows, axis=0) / np.linalg.norm(rows[:, selected], axis=0)[:, None]
    weights[np.abs(weights) <= 1e-11 * np.maximum(scale, 1e-300)] = 0.0
    weights[:, selected] = np.eye(len(selected))
    return selected, np.asarray(weights)


def _distinct(rows: FloatArray) -> FloatArray:
    """Rows up to their scale, once each; rows of zeros not at all."""
    size = np.abs(rows).max(axis=1, initial=0.0)
    kept = rows[size > 0.0] / size[size > 0.0, None]
    first = np.argmax(kept != 0.0, axis=1)
    kept *= np.sign(kept[np.arange(len(kept)), first])[:, None]
    mark = np.round(kept @ np.random.default_rng(17).standard_normal(rows.shape[1]), 9)
    return kept[np.unique(mark, return_index=True)[1]]


def _pruned(sums: csr_matrix, sizes: csr_matrix) -> csr_matrix:
    """``sums`` without what is the rounding error of zero, given the sums of magnitudes."""
    kept = (abs(sums) - _ROUNDING * sizes) > 0.0
    sums = sums.multiply(kept).tocsr()
    sums.eliminate_zeros()
    return sums


def _velocity_rows(
    chain: Chain, pairs: list[tuple[int, int]], codes: list[IntArray], inertia: csr_matrix, acceleration: dict
) -> tuple[IntArray, csr_matrix]:
    """Keys ``(acceleration n + joint) 5^n + function`` and rows of the velocity terms."""
    n, span, first = chain.n, DIGITS**chain.n, 0
    keys, sources, factors = [], [], []

    def add(joint: int, x: int, y: int, code: IntArray, source: IntArray, factor: FloatArray) -> None:
        keys.append((acceleration[min(x, y), max(x, y)] * n + joint) * span + code)
        sources.append(source)
        factors.append(factor)

    for (a, b), code in zip(pairs, codes, strict=True):
        for m in range(a + 1, n):
            slope, source, factor = derivatives(code, m, bool(chain.sliding[m]))
            source = source + first
            add(a, m, b, slope, source, factor)
            if a != b:
                add(b, m, a, slope, source, factor)
            add(m, a, b, slope, source, -factor if a != b else -0.5 * factor)
        first += len(code)
    if not keys:  # a single joint
        return np.zeros(0, np.int64), csr_matrix((0, inertia.shape[1]))
    distinct, line = np.unique(np.concatenate(keys), return_inverse=True)
    join = csr_matrix(
        (np.concatenate(factors), (line, np.concatenate(sources))), shape=(len(distinct), inertia.shape[0])
    )
    return distinct, _pruned(join @ inertia, abs(join) @ abs(inertia))


def derive(kin: Kinematics, zero: BoolArray | None = None, rotors: bool = False) -> PseudoSymbolicModel:
    """The pseudo-symbolic model of an arm.

    Args:
        zero: (10 n,) bool, inertial parameters about the joints' frames that are zero and may be relied on to be:
            the paper's implicit simplification. None: none is.

    Raises:
        ModelError: the arm is no chain.
        ParameterError: a mask of another shape.
    """
    chain = chain_of(kin)
    n, span = chain.n, DIGITS**chain.n
    transforms = [joint_transforms(chain, j) for j in range(n)]
    inertia, potential = _mass_matrix(chain, transforms), _potential(chain, transforms)
    free = np.eye(11 * n)[:, : (11 if rotors else 10) * n]
    if zero is not None:
        if np.shape(zero) != (10 * n,):
            raise ParameterError(f"zero of shape {np.shape(zero)}: expected ({10 * n},), ten of each link")
        links = np.eye(11 * n)
        links[: 10 * n, : 10 * n] = chain.link_parameters()
        free = links[:, np.append(~np.asarray(zero, bool), np.full(n, rotors))]
    pairs, codes, blocks = list(inertia), [], []
    for pair in pairs:
        row, size = inertia[pair].row @ free, inertia[pair].size @ np.abs(free)
        row[np.abs(row) <= _ROUNDING * size] = 0.0
        kept = np.any(row, axis=1)
        codes.append(inertia[pair].code[kept])
        blocks.append(row[kept])
    weight, weight_keys = [], []
    potential_rows = potential.row @ free
    potential_rows[np.abs(potential_rows) <= _ROUNDING * (potential.size @ np.abs(free))] = 0.0
    for j in range(n):
        code, source, factor = derivatives(potential.code, j, bool(chain.sliding[j]))
        distinct, line = np.unique(code, return_inverse=True)
        join = csr_matrix((factor, (line, source)), shape=(len(distinct), len(potential_rows)))
        weight.append(join @ potential_rows)
        weight_keys.append((GRAVITY * n + j) * span + distinct)
    everything = np.vstack([*blocks, *weight])
    order = parameter_order(n)[: free.shape[1]] if zero is None else np.arange(free.shape[1])
    selected, base = base_columns(_distinct(everything), order)
    stacked = csr_matrix(np.vstack(blocks)[:, selected])
    table = accelerations(n)
    keys = [np.zeros(0, np.int64)]
    rows = [csr_matrix((0, len(selected)))]
    first = 0
    for (i, j), code in zip(pairs, codes, strict=True):
        # D_ij qdd_j is in the torque of joint i, and D_ij qdd_i in that of joint j.
        for joint, driven in {(i, j), (j, i)}:
            keys.append(((1 + driven) * n + joint) * span + code)
            rows.append(stacked[first : first + len(code)])
        first += len(code)
    lookup = {pair: 1 + n + k for k, pair in enumerate(table[1 + n :])}
    velocity_keys, velocity = _velocity_rows(chain, pairs, codes, stacked, lookup)
    keys += [velocity_keys, *weight_keys]
    rows += [velocity, csr_matrix(np.vstack(weight)[:, selected])]
    return PseudoSymbolicModel.from_keys(
        chain, np.concatenate(keys), vstack(rows).tocsr(), selected, base, free, zero is not None
    )
