r"""Pseudo-symbolic models: ``tau_i = y(q, qd, qdd) P_i theta_b`` in integer exponents and sparse matrices [PSDM]."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_matrix

from safe_sysid.core.arrays import FloatArray, IntArray
from safe_sysid.core.layout import PAYLOAD_NAMES
from safe_sysid.dynamics.generated.chain import Chain
from safe_sysid.dynamics.generated.polynomials import DIGITS

__all__ = ["GRAVITY", "PseudoSymbolicModel", "accelerations"]


#: The number of gravity among the accelerations of :func:`accelerations`.
GRAVITY = 0
#: digit -> powers of (q, sin q, cos q), of a turning and of a sliding joint.
POWERS = {False: ((0, 0, 0), (0, 1, 0), (0, 0, 1), (0, 1, 1), (0, 0, 2)), True: ((0, 0, 0), (1, 0, 0), (2, 0, 0))}
_PRINTED = 60  # terms of a joint's torque that are printed


def accelerations(n: int) -> list[tuple[int, ...]]:
    """The acceleration functions: gravity ``()``, ``(j,)`` for ``qdd_j``, ``(i, j)`` for ``qd_i qd_j``, i <= j."""
    return [(), *((j,) for j in range(n)), *((i, j) for i in range(n) for j in range(i, n))]


@dataclass(frozen=True, eq=False)
class PseudoSymbolicModel:
    """Inverse dynamics of a chain in base parameters, without friction."""

    chain: Chain
    acceleration: IntArray  #: (p,) number of each function's acceleration in :func:`accelerations`
    code: IntArray  #: (p,) its function of the joints (:mod:`safe_sysid.dynamics.generated.polynomials`)
    reduction: tuple[csr_matrix, ...]  #: n matrices ``P_i`` (p, l), sparse: ``tau_i = y P_i theta_b``
    selected: IntArray  #: (l,) the parameters that base parameters are named after, of those of ``free``
    base: FloatArray  #: B (l, k): ``theta_b = B x``
    free: FloatArray  #: (11 n, k): the parameters about ``chain`` (ten of each link, then rotors) are ``free x``
    masked: bool  #: the x are parameters about the joints' frames, some left out as zero; else those about ``chain``

    @classmethod
    def from_keys(
        cls,
        chain: Chain,
        keys: IntArray,
        rows: csr_matrix,
        selected: IntArray,
        base: FloatArray,
        free: FloatArray,
        masked: bool,
    ) -> PseudoSymbolicModel:
        """From rows (m, l) with keys ``(acceleration n + joint) 5^n + function``, each key once."""
        n, span = chain.n, DIGITS**chain.n
        kept = np.diff(rows.indptr) > 0
        keys, rows = keys[kept], rows[kept]
        which, code = np.divmod(keys, span)
        acceleration, joint = np.divmod(which, n)
        # Accelerations first, then velocities, then gravity: the order of the paper's examples.
        rank = np.where(acceleration == GRAVITY, acceleration.max(initial=0) + 1, acceleration)
        functions, line = np.unique(rank * span + code, return_inverse=True)
        number, codes = np.divmod(functions, span)
        number = np.where(number == acceleration.max(initial=0) + 1, GRAVITY, number)
        reduction = []
        for j in range(n):
            mine = joint == j
            lift = csr_matrix((np.ones(mine.sum()), (line[mine], np.nonzero(mine)[0])), (len(functions), len(keys)))
            reduction.append((lift @ rows).tocsr())
        return cls(chain, number, codes, tuple(reduction), selected, base, free, masked)

    @property
    def n(self) -> int:
        """Number of joints."""
        return self.chain.n

    @property
    def p(self) -> int:
        """Number of base regressor functions."""
        return len(self.code)

    @property
    def l(self) -> int:  # noqa: E743 - the paper's letter
        """Number of base parameters."""
        return len(self.selected)

    @cached_property
    def exponents(self) -> NDArray[np.int8]:
        """E (5 n, p): powers of ``[q, sin q, cos q, qd, qdd]`` in each function [PSDM eq. 50]."""
        n, out = self.n, np.zeros((5 * self.n, self.p), np.int8)
        for j in range(n):
            powers = np.array(POWERS[bool(self.chain.sliding[j])] + ((0, 0, 0),) * 2)
            out[[j, n + j, 2 * n + j]] = powers[self.code // DIGITS**j % DIGITS].T
        for number, factors in enumerate(accelerations(n)):
            for j in factors:
                out[(4 if len(factors) == 1 else 3) * n + j, self.acceleration == number] += 1
        return out

    def functions(self, q: FloatArray, qd: FloatArray, qdd: FloatArray) -> FloatArray:
        """``y`` (p,) at a state (n,)."""
        generators = np.concatenate([q, np.sin(q), np.cos(q), qd, qdd])
        return np.prod(generators[:, None] ** self.exponents, axis=0)

    def regressor(self, q: FloatArray, qd: FloatArray, qdd: FloatArray) -> FloatArray:
        """``Y`` (n, l) at a state (n,): ``Y theta_b`` is the torque, N m, without friction."""
        y = self.functions(q, qd, qdd)
        return np.stack([matrix.T @ y for matrix in self.reduction])

    def base_parameters(self, theta: FloatArray) -> FloatArray:
        """``theta_b`` (l,).

        ``theta``: (14 n,) of the layout, about the joints' frames; what a mask left out must be zero.
        """
        return self.base_map() @ theta[: 14 * self.n]

    def coefficients(self, theta_b: FloatArray) -> FloatArray:
        """(p, n): what each function is multiplied by in each torque, N m. ``theta_b``: (l,) base parameters."""
        return np.stack([np.asarray(matrix @ theta_b) for matrix in self.reduction], axis=1)

    def base_map(self) -> FloatArray:
        """(l, 14 n): base parameters from the parameters of the layout; friction and offsets have none."""
        n, links = self.n, np.zeros((11 * self.n, 14 * self.n))
        links[: 10 * n, : 10 * n] = self.chain.link_parameters()
        links[10 * n :, 12 * n : 13 * n] = np.eye(n)
        return self.base @ np.linalg.pinv(self.free) @ links

    def rows_as_parameters(self) -> tuple[IntArray, csr_matrix]:
        """The paper's own reduction: base parameters that are entries of ``theta_p`` themselves.

        Stacked vertically, ``theta_p = P_* theta_b``; l of its rows that are independent are the parameters, and all
        others the combinations of these that the echelon form gives ([PSDM eq. 54]; its eq. 34, 41 and 42 misprint it).

        Returns the rows (l,), joint i's function j being row ``i p + j``, and ``P_*`` (n p, l).
        """
        from scipy.linalg import qr
        from scipy.sparse import vstack

        stacked = vstack(self.reduction).toarray()
        _, _, pivots = qr(stacked.T, mode="economic", pivoting=True)
        rows = np.sort(pivots[: self.l])
        echelon = np.linalg.solve(stacked[rows].T, stacked.T).T
        echelon[np.abs(echelon) < 1e-12] = 0.0
        return rows, csr_matrix(echelon)

    def parameter_names(self) -> list[str]:
        """What each base parameter is: sums of the links' parameters, about the frames of ``chain`` if not masked."""
        n = self.n
        plain = [f"{name}_{j + 1}" for j in range(n) for name in PAYLOAD_NAMES]
        plain += [f"Ia_{j + 1}" for j in range(n)]
        if self.masked:
            # The columns of `free` that are left are those of the joints' frames, in order.
            links = np.eye(11 * n)
            links[: 10 * n, : 10 * n] = self.chain.link_parameters()
            index = [int(np.argmin(np.abs(links - column[:, None]).sum(axis=0))) for column in self.free.T]
        else:
            index = list(range(self.free.shape[1]))
        return [
            _sum([(row[k], plain[index[k]]) for k in [main, *(i for i in np.nonzero(row)[0] if i != main)]])
            for main, row in zip(self.selected, self.base, strict=True)
        ]

    def term(self, k: int) -> str:
        """Function k as a formula: ``s2 c3 qd1 qd2``."""
        n, e = self.n, self.exponents[:, k]
        symbols = ("q", "s", "c", "qd", "qdd")
        parts = [
            f"{symbols[g]}{j + 1}" + (f"^{e[g * n + j]}" if e[g * n + j] > 1 else "")
            for g in range(5)
            for j in range(n)
            if e[g * n + j]
        ]
        return " ".join(parts) or "1"

    def __str__(self) -> str:
        """The torques as formulas, then what the base parameters b1, b2, .. are."""
        lines = [f"{self.n} joints, {self.p} functions, {self.l} base parameters; gravity in frame 0, m/s^2: "]
        lines[0] += np.array2string(self.chain.gravity, precision=6)
        for joint, matrix in enumerate(self.reduction):
            used = np.nonzero(np.diff(matrix.indptr))[0]
            terms = []
            for k in used[:_PRINTED]:
                row = matrix[k]
                factor = _sum([(x, f"b{c + 1}") for c, x in zip(row.indices, row.data, strict=True)])
                terms.append(
                    f"({factor}) {self.term(k)}" if row.nnz > 1 or factor[0] == "-" else f"{factor} {self.term(k)}"
                )
            more = f" + ... ({len(used) - _PRINTED} more)" if len(used) > _PRINTED else ""
            lines.append(f"tau_{joint + 1} = " + (" + ".join(terms) or "0") + more)
        lines += [f"b{k + 1} = {name}" for k, name in enumerate(self.parameter_names())]
        return "\n".join(lines)


def _sum(terms: list[tuple[float, str]]) -> str:
    text = ""
    for factor, name in terms:
        size = abs(factor)
        number = f"{size:.6g} "
        number = "" if number == "1 " else number
        sign = "-" if factor < 0 else "+"
        text += f" {sign} {number}{name}" if text else f"{'-' if factor < 0 else ''}{number}{name}"
    return text or "0"
