r"""Polynomial zonotopes over a trajectory parameter: dense in the parameter k, linear in all other symbols.

A set is ``sum_a k^a (c_a + sum_i g_ai eps_i) + rho u`` with multi-indices ``|a| <= degree`` for c and one less for g,
``k in [-1, 1]^n``, the symbols eps in a product of unit balls (one symbol: an interval) and a private ``u in [-1, 1]``.
That is the polynomial zonotope of [ARMOUR], except that *every* monomial up to the degree is kept instead of the
largest twenty or forty; ``order`` cuts it to that for comparison. Only benchmarks use this: it is what the package's
"slice first" is measured against.

What an operation cannot keep (monomials of higher degree, products of two eps, rounding) is added to rho.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from itertools import combinations_with_replacement
from math import factorial
from typing import Any

import numpy as np
from numba import njit
from numpy.typing import ArrayLike, NDArray

from safe_sysid.intervals import TRIG_ERROR

__all__ = ["Basis", "PolySet"]

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]
_EPS = 2.0**-52


@dataclass(frozen=True, eq=False)
class Basis:
    """The monomials of a computation.

    Attributes:
        parameters: number of entries of k.
        groups: sizes of the balls that the symbols eps live in.
        degree: largest total degree kept, >= 1.
        order: keep at most so many monomials per set; 0 keeps all.
    """

    parameters: int
    groups: tuple[int, ...]
    degree: int = 3
    order: int = 0

    @cached_property
    def exponents(self) -> IntArray:
        """(A, parameters) exponents of the monomials in k, in order of their degree."""
        rows = []
        for d in range(self.degree + 1):
            for choice in combinations_with_replacement(range(self.parameters), d):
                rows.append(np.bincount(np.array(choice, int), minlength=self.parameters))
        return np.array(rows, dtype=np.int64)

    @cached_property
    def degrees(self) -> IntArray:
        """(A,) total degree of each."""
        return self.exponents.sum(axis=1)

    @cached_property
    def pure(self) -> int:
        """Number of monomials in k alone."""
        return len(self.exponents)

    @cached_property
    def mixed(self) -> int:
        """Number of monomials in k that multiply a symbol eps: those of degree below the largest."""
        return int(np.sum(self.degrees < self.degree))

    @cached_property
    def symbols(self) -> int:
        """Number of symbols eps."""
        return int(sum(self.groups))

    @cached_property
    def size(self) -> int:
        """Length of a coefficient vector: ``c``, then ``g`` monomial by monomial."""
        return self.pure + self.mixed * self.symbols

    @cached_property
    def offsets(self) -> IntArray:
        """Borders of the balls among the symbols."""
        return np.concatenate([[0], np.cumsum(self.groups)]).astype(np.int64)

    @cached_property
    def pairs(self) -> IntArray:
        """(P, 3) indices a, b, c with ``k^a k^b = k^c``, all that are kept."""
        index = {tuple(e): i for i, e in enumerate(self.exponents)}
        return np.array(
            [
                (a, b, index[tuple(self.exponents[a] + self.exponents[b])])
                for a in range(self.pure)
                for b in range(self.pure)
                if self.degrees[a] + self.degrees[b] <= self.degree
            ],
            dtype=np.int64,
        )

    def powers(self, k: ArrayLike) -> FloatArray:
        """(A,) values of the monomials at k (parameters,)."""
        return np.prod(np.asarray(k, float) ** self.exponents, axis=1)

    def constant(self, values: ArrayLike) -> PolySet:
        """Exact numbers (...)."""
        values = np.asarray(values, float)
        c = np.zeros((*values.shape, self.size))
        c[..., 0] = values
        return PolySet(self, c, np.zeros(values.shape))


@njit(cache=True)
def _sums(
    x: FloatArray, degrees: IntArray, mixed: int, offsets: IntArray, pure: FloatArray, other: FloatArray
) -> None:
    """Per degree in k: bounds of the part in k alone and of the part with an eps."""
    pure[:] = 0.0
    other[:] = 0.0
    symbols = offsets[-1]
    start = degrees.shape[0]
    for a in range(start):
        pure[degrees[a]] += abs(x[a])
    for a in range(mixed):
        for g in range(offsets.shape[0] - 1):
            square = 0.0
            for i in range(offsets[g], offsets[g + 1]):
                square += x[start + a * symbols + i] ** 2
            other[degrees[a]] += np.sqrt(square)


@njit(cache=True)
def _cut(x: FloatArray, order: int) -> float:
    """Drop all but the ``order`` largest coefficients (centre apart, equals kept); returns the sum of what went."""
    last = x.shape[0] - 1
    if order <= 0 or order >= last or np.count_nonzero(x[1:]) <= order:
        return 0.0
    least = np.partition(np.abs(x[1:]), last - order)[last - order]
    dropped = 0.0
    for i in range(1, last + 1):
        if abs(x[i]) < least:
            dropped += abs(x[i])
            x[i] = 0.0
    return dropped * (1.0 + 1e-12)


@njit(cache=True)
def _cut_rows(x: FloatArray, order: int, rho: FloatArray) -> None:
    """Cut N sets (N, size) in place; what went is added to ``rho`` (N,)."""
    for n in range(x.shape[0]):
        rho[n] += _cut(x[n], order)


@njit(cache=True)
def _product(
    x: FloatArray,
    x_rho: FloatArray,
    y: FloatArray,
    y_rho: FloatArray,
    degrees: IntArray,
    mixed: int,
    offsets: IntArray,
    pairs: IntArray,
    order: int,
    out: FloatArray,
    out_rho: FloatArray,
) -> None:
    """``out[i] = x[i] y[i]`` for N sets."""
    pure, top, symbols = degrees.shape[0], degrees[-1], offsets[-1]
    xp, xe, yp, ye = np.zeros(top + 1), np.zeros(top + 1), np.zeros(top + 1), np.zeros(top + 1)
    for n in range(x.shape[0]):
        out[n] = 0.0
        for p in range(pairs.shape[0]):
            a, b, c = pairs[p, 0], pairs[p, 1], pairs[p, 2]
            u, v = x[n, a], y[n, b]
            out[n, c] += u * v
            if c >= mixed:
                continue
            to = pure + c * symbols
            if u != 0.0 and b < mixed:
                at = pure + b * symbols
                for i in range(symbols):
                    out[n, to + i] += u * y[n, at + i]
            if v != 0.0 and a < mixed:
                at = pure + a * symbols
                for i in range(symbols):
                    out[n, to + i] += x[n, at + i] * v
        _sums(x[n], degrees, mixed, offsets, xp, xe)
        _sums(y[n], degrees, mixed, offsets, yp, ye)
        lost = 0.0
        for d in range(top + 1):
            for e in range(top + 1):
                if d + e > top:
                    lost += xp[d] * yp[e]
                if d + e >= top:
                    lost += xp[d] * ye[e] + xe[d] * yp[e]
        x_all, y_all = xp.sum() + xe.sum(), yp.sum() + ye.sum()
        lost += xe.sum() * ye.sum() + x_rho[n] * (y_all + y_rho[n]) + x_all * y_rho[n]
        # A coefficient is a sum of at most 2 pure products; norms above are rounded, too.
        total = xp.sum() * yp.sum() + symbols * (x_all * y_all)
        lost += (2 * pure + 64) * _EPS * (total + lost) + 1e-300
        out_rho[n] = lost + _cut(out[n], order)


@dataclass(frozen=True, eq=False)
class PolySet:
    """An array (...) of sets.

    Attributes:
        basis: their monomials.
        c: (..., size) coefficients.
        rho: (...) private radii.
    """

    basis: Basis
    c: FloatArray
    rho: FloatArray

    @property
    def shape(self) -> tuple[int, ...]:
        """Of the array."""
        return self.rho.shape

    def __getitem__(self, index: Any) -> PolySet:
        index = index if isinstance(index, tuple) else (index,)
        return PolySet(self.basis, self.c[(*index, slice(None))], self.rho[index])

    def __neg__(self) -> PolySet:
        return PolySet(self.basis, -self.c, self.rho)

    def __add__(self, other: PolySet) -> PolySet:
        c, rho = self.c + other.c, self.rho + other.rho
        return self._limited(c, rho + 4 * _EPS * (np.abs(c).sum(axis=-1) + rho))

    def __sub__(self, other: PolySet) -> PolySet:
        return self + -other

    def scaled(self, factor: ArrayLike) -> PolySet:
        """Times exact floats (...)."""
        factor = np.asarray(factor, float)
        c, rho = self.c * factor[..., None], self.rho * np.abs(factor)
        return PolySet(self.basis, c, rho + 4 * _EPS * (np.abs(c).sum(axis=-1) + rho))

    def __mul__(self, other: PolySet) -> PolySet:
        b, shape = self.basis, np.broadcast_shapes(self.shape, other.shape)
        x, y = (np.broadcast_to(s.c, (*shape, b.size)).reshape(-1, b.size) for s in (self, other))
        xr, yr = (np.ascontiguousarray(np.broadcast_to(s.rho, shape)).ravel() for s in (self, other))
        out, rho = np.empty_like(x), np.empty_like(xr)
        x, y = np.ascontiguousarray(x), np.ascontiguousarray(y)
        _product(x, xr, y, yr, b.degrees, b.mixed, b.offsets, b.pairs, b.order, out, rho)
        return PolySet(b, out.reshape(*shape, b.size), rho.reshape(shape))

    def sum(self, axis: int) -> PolySet:
        """Sum along an axis >= 0 of the array."""
        count = self.shape[axis]
        c, rho = self.c.sum(axis=axis), self.rho.sum(axis=axis)
        size = np.abs(self.c).sum(axis=(axis, self.c.ndim - 1))
        return self._limited(c, rho + (count + 4) * _EPS * (size + rho))

    def _limited(self, c: FloatArray, rho: FloatArray) -> PolySet:
        if self.basis.order > 0:
            flat, extra = np.array(c).reshape(-1, self.basis.size), np.zeros(rho.size)
            _cut_rows(flat, self.basis.order, extra)
            c, rho = flat.reshape(c.shape), (rho + extra.reshape(rho.shape)) * (1.0 + 4 * _EPS)
        return PolySet(self.basis, c, rho)

    def reach(self) -> FloatArray:
        """(...) bound of the distance of any value from the constant coefficient."""
        b = self.basis
        g = self.c[..., b.pure :].reshape(*self.shape, b.mixed, b.symbols)
        parts = [
            np.linalg.norm(g[..., lo:hi], axis=-1).sum(axis=-1)
            for lo, hi in zip(b.offsets[:-1], b.offsets[1:], strict=True)
        ]
        total = np.abs(self.c[..., 1 : b.pure]).sum(axis=-1) + sum(parts) + self.rho
        return np.asarray(total * (1.0 + (b.size + 64) * _EPS))

    def sin_cos(self) -> tuple[PolySet, PolySet]:
        """Sine and cosine: Taylor's polynomial of degree five about the centre, Lagrange's remainder over the range."""
        b = self.basis
        centre, radius = self.c[..., 0], self.reach()
        d = PolySet(b, self.c.copy(), self.rho)
        d.c[..., 0] = 0.0
        d2 = d * d
        d3 = d2 * d
        d4, d5 = d2 * d2, d2 * d3
        even = b.constant(np.ones(self.shape)) - d2.scaled(0.5) + d4.scaled(1.0 / 24.0)
        odd = d - d3.scaled(1.0 / 6.0) + d5.scaled(1.0 / 120.0)
        s, c = np.sin(centre), np.cos(centre)
        # The rounding of 1/6 and 1/120, and libm's error times |even| + |odd|.
        size = np.cosh(np.minimum(radius, 30.0)) + np.sinh(np.minimum(radius, 30.0))
        extra = radius**6 / factorial(6) * (1.0 + 1e-12) + (4.0 * TRIG_ERROR + 1e-14) * size
        sine = even.scaled(s) + odd.scaled(c)
        cosine = even.scaled(c) - odd.scaled(s)
        return PolySet(b, sine.c, sine.rho + extra), PolySet(b, cosine.c, cosine.rho + extra)

    def slice(self, k: ArrayLike) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Centre (...), coefficients of eps (..., symbols) and radius (...) at one k."""
        b = self.basis
        powers = b.powers(k)
        centre = self.c[..., : b.pure] @ powers
        g = self.c[..., b.pure :].reshape(*self.shape, b.mixed, b.symbols)
        linear = np.einsum("...as,a->...s", g, powers[: b.mixed])
        slack = (b.pure + 64) * _EPS * np.abs(self.c).sum(axis=-1)
        return centre, linear, self.rho + slack

    def half_width(self, linear: FloatArray) -> FloatArray:
        """(...) range's half width of forms with coefficients ``linear`` (..., symbols)."""
        b = self.basis
        return np.asarray(
            sum(
                np.linalg.norm(linear[..., lo:hi], axis=-1)
                for lo, hi in zip(b.offsets[:-1], b.offsets[1:], strict=True)
            )
            * (1.0 + 1e-13)
        )


def stack(sets: list[PolySet], axis: int) -> PolySet:
    """Join along a new axis >= 0 of the arrays."""
    return PolySet(
        sets[0].basis, np.stack([s.c for s in sets], axis=axis), np.stack([s.rho for s in sets], axis=axis)
    )
