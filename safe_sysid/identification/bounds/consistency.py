r"""Physical consistency as linear inequalities ("cuts") over the joint set. Imports no solver.

Theorem (one cut). Let ``J = int [x;1][x;1]^T dm`` be the pseudo-inertia of the payload alone. If the functions
``u.[x;1]`` and ``v.[x;1]`` have a product >= 0 at every point of the payload, then ``u^T J v >= 0``: the integral of a
non-negative function. ``u = v`` is allowed for every payload: this is ``J`` positive semidefinite, one direction at a
time [Wensing2018]. Where a box that holds the payload is known, its six faces are such functions, and so is 1.

A cut is written ``u^T J(theta_p) v >= mass * m_p + constant``; ``mass`` and ``constant`` are zero except where the
density is bounded (:func:`density_cuts`). The payload alone is ``theta_p = theta_e - theta_h - d``: last link with hand
and payload, less last link with the empty hand, less what the hand's opening changes, ``|d| <= opening``.

Rounding: u, v and mass lie on a grid of 2^-20, below 32 in size, so that every coefficient of a cut is an exact float.
A semidefinite cut may take any vector, so nothing is lost; functions of a box are moved outward by more than the grid.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from safe_sysid.core.arrays import FloatArray
from safe_sysid.errors import ParameterError
from safe_sysid.robot.parameters import frozen_array, pseudo_inertia

__all__ = ["CutSet", "box_cuts", "density_cuts", "face_functions", "on_grid", "semidefinite_cuts", "tangent_cuts"]

GRID = 2.0**-20
_LARGEST = 32.0
_UNITS = np.stack([pseudo_inertia(unit) for unit in np.eye(10)])  # J is linear in theta
_ONE = np.array([0.0, 0.0, 0.0, 1.0])


@dataclass(frozen=True, eq=False)
class CutSet:
    """Inequalities ``u^T J(theta_p) v >= mass * m_p + constant`` of the payload alone, last joint's frame."""

    #: u, v: (K, 4) affine functions of position, on the grid
    u: FloatArray
    v: FloatArray
    mass: FloatArray  #: (K,) m^2 or 1, on the grid
    constant: FloatArray  #: (K,) in the unit of the left-hand side
    kind: NDArray[np.str_]  #: (K,) "semidefinite", "box" or "density"

    def __post_init__(self) -> None:
        """Validate and freeze.

        Raises:
            ParameterError: a shape, or a number that is not finite, not on the grid or too large for exact products.
        """
        k = len(self.kind)
        for name, shape in (("u", (k, 4)), ("v", (k, 4)), ("mass", (k,)), ("constant", (k,))):
            value = frozen_array(getattr(self, name), shape, f"CutSet.{name}")
            if name != "constant" and np.any((np.abs(value) > _LARGEST) | (value / GRID != np.rint(value / GRID))):
                raise ParameterError(f"CutSet.{name}: expected multiples of {GRID} of size {_LARGEST} at most")
            object.__setattr__(self, name, value)
        kind = np.array(self.kind, dtype="U16")
        kind.setflags(write=False)
        object.__setattr__(self, "kind", kind)

    def __len__(self) -> int:
        return len(self.kind)

    @classmethod
    def none(cls) -> CutSet:
        """No cuts."""
        return cls(np.empty((0, 4)), np.empty((0, 4)), np.empty(0), np.empty(0), np.empty(0, "U16"))

    @classmethod
    def concatenate(cls, parts: list[CutSet]) -> CutSet:
        """All cuts of several sets."""
        fields = ("u", "v", "mass", "constant", "kind")
        return cls(*(np.concatenate([getattr(part, name) for part in parts]) for name in fields))

    def take(self, which: NDArray) -> CutSet:
        """Cuts by index or mask."""
        return CutSet(self.u[which], self.v[which], self.mass[which], self.constant[which], self.kind[which])

    def coefficients(self) -> FloatArray:
        """(K, 10) exact g with ``g . theta_p >= constant``."""
        # Products of multiples of 2^-20 below 2^5 are multiples of 2^-41 (with the half of the trace) below 2^10, and
        # sums of a dozen of them stay below 2^53 such units: no operation rounds, in whatever order.
        g = np.einsum("ki,pij,kj->kp", self.u, _UNITS, self.v)
        g[:, 0] -= self.mass
        return g


def on_grid(values: ArrayLike) -> FloatArray:
    """Nearest multiples of the grid, within the size allowed; values of any shape."""
    return np.clip(np.rint(np.asarray(values, float) / GRID) * GRID, -_LARGEST, _LARGEST)


def semidefinite_cuts(vectors: ArrayLike) -> CutSet:
    """``v^T J v >= 0`` for each row of ``vectors`` (K, 4), scaled to size 1 and put on the grid; zeros are left out."""
    v = np.atleast_2d(np.asarray(vectors, float)).reshape(-1, 4)
    size = np.max(np.abs(v), axis=1)
    good = np.isfinite(size) & (size > 0.0)
    v = on_grid(v[good] / size[good, None])
    zero = np.zeros(len(v))
    return CutSet(v, v, zero, zero, np.full(len(v), "semidefinite"))


def face_functions(center: ArrayLike, size: ArrayLike, rotation: ArrayLike, translation: ArrayLike) -> FloatArray:
    """(7, 4) functions that are >= 0 at every point of a box: six faces and 1.

    Each is ``a.x + b`` with a on the grid and b so large that it is provably >= 0 at the eight corners, so in the box.

    Args:
        center: (3,) of the box, m, in a frame with the pose of the next two.
        size: (3,) full edge lengths, m.
        rotation: (3, 3) of that frame (of the tool, say) in the last joint's frame.
        translation: (3,) its origin there, m.

    Raises:
        ParameterError: a box that reaches farther than the grid's numbers.
    """
    rotation, half = np.asarray(rotation, float), 0.5 * np.asarray(size, float)
    signs = np.array([[a, b, c] for a in (-1.0, 1.0) for b in (-1.0, 1.0) for c in (-1.0, 1.0)])
    corners = (np.asarray(center, float) + signs * half) @ rotation.T + np.asarray(translation, float)
    if not np.max(np.abs(corners)) < 0.25 * _LARGEST:
        raise ParameterError(f"payload box with corners up to {np.max(np.abs(corners)):g} m: expected below 8 m")
    faces = []
    for axis in rotation.T:
        for sign in (1.0, -1.0):
            a = on_grid(sign * axis)
            # One unit of the grid is thousands of times what rounding can take away here, in the corners too.
            b = on_grid(np.ceil(-np.min(corners @ a) / GRID) * GRID + GRID)
            faces.append([*a, float(b)])
    return np.array([*faces, _ONE])


def box_cuts(faces: FloatArray) -> CutSet:
    """All products of two functions (F, 4) that are >= 0 on the payload: linear, so valid for its integral."""
    i, j = np.triu_indices(len(faces))
    zero = np.zeros(len(i))
    return CutSet(faces[i], faces[j], zero, zero, np.full(len(i), "box"))


def density_cuts(size: ArrayLike, largest: float) -> CutSet:
    """``m_p <= rho V`` for a payload of density at most ``largest`` in a box of full edges ``size``: one cut.

    A *lower* bound of the density says nothing: a fine sponge has the moments of a body of any smaller density.
    """
    a, b, c = np.asarray(size, float)
    limit = a * b * c * largest * (1.0 + 1e-11)
    zero = np.zeros((1, 4))
    return CutSet(zero, zero, np.ones(1), np.array([-limit]), np.array(["density"]))


def tangent_cuts(functions: ArrayLike, areas: ArrayLike, masses: ArrayLike, largest: float) -> CutSet:
    r"""``int (a.x + b)^2 dm >= k m_p + c``, a tangent of ``m^3 / (12 D^2)``, ``D = rho A``, for a along box edges.

    Proof. Let A be the box's section across a. In slices along s = a.x + b (|a| = 1) the payload has a mass per length
    of at most D. Of all such distributions of total m the slab |s| <= m / (2 D) has the least second moment (moving
    mass towards 0 only lowers it), ``m^3 / (12 D^2)``. That is convex in m >= 0, so it lies above its tangents
    ``k m - 4/3 k^(3/2) D``, with equality at ``m = 2 D sqrt(k)``. Rounded to the grid, a is longer or shorter than 1,
    which D takes up, and tilted by 1e-6 rad at most, which enlarges the section by 1e-12: a factor below covers it.

    Args:
        functions: (K, 4) rows (a, b), on the grid.
        areas: (K,) section of the box across a, m^2.
        masses: (K,) kg, where to touch.
        largest: density, kg/m^3.
    """
    u = on_grid(functions).reshape(-1, 4)
    # s = a.x + b has |ds/dx| = |a|, so mass per unit of s at most rho A / |a|.
    density = largest * np.asarray(areas, float) / np.linalg.norm(u[:, :3], axis=1) * (1.0 + 1e-11)
    slope = np.clip(np.rint((np.asarray(masses, float) / (2.0 * density)) ** 2 / GRID), 0, 1.0 / GRID) * GRID
    constant = -(4.0 / 3.0) * slope**1.5 * density * (1.0 + 1e-11)
    return CutSet(u, u, slope, constant, np.full(len(u), "density"))
