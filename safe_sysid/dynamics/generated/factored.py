r"""Pseudo-symbolic models as few operations: common factors eliminated recursively [PSDM section 4.1].

A polynomial is split by the powers of one joint, ``P_0 + P_1 s + P_2 c + P_3 s c + P_4 c^2``, its parts by those of the
next joint outwards. Parts that are equal *up to a factor* are one part: with the distal joints innermost, entries of
the mass matrix, their derivatives and gravity are made of the same few inertias of the links behind a joint. That
takes ten times fewer operations than to look for equal parts alone (the paper: 18387 multiplications for seven
joints, here some thousand).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_matrix

from safe_sysid.core.arrays import FloatArray, IntArray
from safe_sysid.dynamics.generated.c_code import Graph, GraphValue
from safe_sysid.dynamics.generated.model import GRAVITY, PseudoSymbolicModel, accelerations
from safe_sysid.dynamics.generated.polynomials import DIGITS

__all__ = ["FactoredArm"]

Number = GraphValue | float
#: A polynomial: (function of the joints, number of its coefficient up to a factor or -1 for one, factor).
_Terms = tuple[tuple[int, int, float], ...]


class FactoredArm:
    """A model in a graph; every method traces one function, as those of :class:`TracedArm` do.

    Attributes:
        n: number of joints.
    """

    def __init__(self, model: PseudoSymbolicModel, graph: Graph | None = None) -> None:
        """Declare the inputs ``q qd qdd s c b`` of the code to be. ``graph``: to trace into; None: one of its own."""
        self.model, self.graph, self.n = model, graph if graph is not None else Graph(), model.n
        g = self.graph
        self._b = [g.parameter(f"b[{k}]") for k in range(model.l)]
        self.qd = [g.state(f"qd[{j}]") for j in range(self.n)]
        self.qdd = [g.state(f"qdd[{j}]") for j in range(self.n)]
        self._powers: list[list[GraphValue]] = []  # by digit; the first, one, is never looked up
        for j in range(self.n):
            if model.chain.sliding[j]:
                q = g.state(f"q[{j}]")
                self._powers.append([q, q, q * q])
            else:
                s, c = g.state(f"s[{j}]"), g.state(f"c[{j}]")
                self._powers.append([s, s, c, s * c, c * c])
        self._known: dict[tuple[int, _Terms], Number] = {}
        self._leaves: list[Number] = []
        self._leaf_of: dict[tuple, int] = {}
        self._parts: dict[tuple[int, int | None], dict[int, Number]] = {}

    def _leaf(self, indices: NDArray[np.int32], values: FloatArray) -> int:
        """The number of ``sum values b``, whose first value is 1."""
        key = tuple(zip(indices.tolist(), np.round(values, 10).tolist(), strict=True))
        found = self._leaf_of.get(key)
        if found is None:
            found = self._leaf_of[key] = len(self._leaves)
            total: Number = 0.0
            for k, x in zip(indices, values, strict=True):
                total = total + self._b[k] * float(x)
            self._leaves.append(total)
        return found

    def _value(self, terms: _Terms, joint: int) -> Number:
        scale = terms[0][2]
        if terms[-1][0] == 0:
            return self._leaves[terms[0][1]] * scale if terms[0][1] >= 0 else scale
        key = (joint, tuple((code, leaf, float(f"{x / scale:.10g}")) for code, leaf, x in terms))
        found = self._known.get(key)
        if found is None:
            parts: dict[int, list[tuple[int, int, float]]] = {}
            for code, leaf, x in terms:
                outer, digit = divmod(code, DIGITS)
                parts.setdefault(digit, []).append((outer, leaf, x / scale))
            found = 0.0
            for digit, part in sorted(parts.items()):
                value = self._value(tuple(part), joint + 1)
                found = found + (value * self._powers[joint][digit] if digit else value)
            self._known[key] = found
        return found * scale

    def _polynomial(self, code: IntArray, rows: csr_matrix, column: int | None) -> Number:
        """``sum_k function_k (rows_k b)``, or ``sum_k function_k rows_k,column``."""
        terms = []
        for k, function in enumerate(code.tolist()):
            where = slice(rows.indptr[k], rows.indptr[k + 1])
            indices, values = rows.indices[where], rows.data[where]
            if column is not None:
                terms += [(function, -1, float(x)) for x in values[indices == column]]
            elif len(values):
                order = np.argsort(indices)
                indices, values = indices[order], values[order]
                terms.append((function, self._leaf(indices, values / values[0]), float(values[0])))
        return self._value(tuple(terms), 0) if terms else 0.0

    def _coefficients(self, joint: int, column: int | None) -> dict[int, Number]:
        """What each acceleration is multiplied by in the torque of a joint, or in a column of its regressor."""
        found = self._parts.get((joint, column))
        if found is None:
            model, found = self.model, {}
            for a in np.unique(model.acceleration):
                (lines,) = np.nonzero(model.acceleration == a)
                found[int(a)] = self._polynomial(model.code[lines], model.reduction[joint][lines], column)
            self._parts[joint, column] = found
        return found

    def _total(self, joint: int, qd: Sequence[Number], qdd: Sequence[Number], column: int | None = None) -> Number:
        total: Number = 0.0
        table = accelerations(self.n)
        for a, value in self._coefficients(joint, column).items():
            factors = table[a]
            if a == GRAVITY:
                total = total + value
            elif len(factors) == 1:
                total = total + value * qdd[factors[0]]
            else:
                total = total + value * (qd[factors[0]] * qd[factors[1]])
        return total

    def torque(self, qd: Sequence[Number], qdd: Sequence[Number]) -> list[Number]:
        """Inverse dynamics (n,) without friction; with zeros gravity and induced torques [PSDM eq. 62]."""
        return [self._total(j, qd, qdd) for j in range(self.n)]

    def mass_matrix(self) -> list[list[Number]]:
        """D (n, n) [PSDM eq. 63, 64]."""
        return [[self._coefficients(i, None).get(1 + j, 0.0) for j in range(self.n)] for i in range(self.n)]

    def regressor(self, qd: Sequence[Number], qdd: Sequence[Number]) -> list[list[Number]]:
        """``Y`` (n, l) of the base parameters."""
        return [[self._total(j, qd, qdd, k) for k in range(self.model.l)] for j in range(self.n)]
