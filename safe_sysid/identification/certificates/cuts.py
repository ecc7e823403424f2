r"""Checks that a cut holds for every payload that agrees with what is declared about payloads, in interval arithmetic.

A cut is ``u^T J v >= mass m + constant`` with J the pseudo-inertia of the payload alone, m its mass. It holds if

- *semidefinite*: u = v (then ``u^T J u`` is the integral of a square) and the right-hand side is never positive;
- *box*: ``u.[x;1]`` and ``v.[x;1]`` are >= 0 at the eight corners of the declared box, hence on the payload, and the
  right-hand side is never positive. A constant >= 0 needs no box;
- *density*, at most rho in that box: with u = v = (a, b). Along an edge of direction e, of the box's section F
  across it, the values ``s = a.x + b`` have a mass per unit of s of at most ``D = rho F / |a.e|`` (a plane's part in
  the box is at most ``F |a| / |a.e|``). Of all such distributions of mass m the slab ``|s| <= m / (2 D)`` has the
  least second moment, ``m^3 / (12 D^2)``, so the cut holds if ``m^3 / (12 D^2) - mass m`` is never below ``constant``:
  its minimum is ``-(4/3) D mass^(3/2)`` (zero for mass <= 0). With u = v = 0 the payload's mass itself is bounded,
  by rho times the volume: ``mass m + constant <= 0`` there.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from itertools import product

import numpy as np

from safe_sysid.core.arrays import FloatArray
from safe_sysid.identification.certificates.interval_dynamics.arrays import IntervalArray, exactly, inflate
from safe_sysid.identification.certificates.interval_dynamics.regressors import PLACEMENT_ERROR
from safe_sysid.robot.config import EnvelopeSettings
from safe_sysid.robot.model import RobotModel

__all__ = ["CUT_KINDS", "PayloadDeclaration", "cut_coefficients", "cut_refusal"]

CUT_KINDS = ("semidefinite", "box", "density")


@dataclass(frozen=True, eq=False)
class PayloadDeclaration:
    """Declarations about the payload of a run, in the last joint's frame."""

    corners: IntervalArray | None = None  #: (8, 3) of a box that holds it, m; None if none is declared
    edges: IntervalArray | None = None  #: (3, 3) intervals, columns are the box's edge directions
    size: FloatArray | None = None  #: (3,) edge lengths, m
    density: float = np.inf  #: largest density, kg/m^3; infinite if none is declared

    @classmethod
    def from_model(cls, model: RobotModel) -> PayloadDeclaration:
        """Read the declarations of the robot's configuration."""
        payload = model.settings.payload
        shape = payload.box if isinstance(payload.box, EnvelopeSettings) else payload.envelope
        if payload.box is None:
            return cls()
        rotation, translation = (np.asarray(x, float) for x in model.payload_frame)
        edges = IntervalArray(rotation - PLACEMENT_ERROR, rotation + PLACEMENT_ERROR)
        size = np.asarray(shape.size, float)
        corners = []
        for signs in product((-1.0, 1.0), repeat=3):
            local = exactly(shape.center) + exactly(0.5 * np.array(signs) * size)
            corners.append((edges * local[None, :]).transposed().total() + exactly(translation))
        both = IntervalArray(np.array([c.lo for c in corners]), np.array([c.hi for c in corners]))
        density = np.inf if payload.density is None else float(payload.density[1])
        return cls(both, edges, size, density)


def cut_coefficients(u: FloatArray, v: FloatArray, mass: float) -> IntervalArray:
    """(10,) interval g with ``g . theta_p = u^T J(theta_p) v - mass m``; symmetric in u and v.

    Args:
        u: (4,) affine function of position.
        v: (4,) likewise.
        mass: coefficient of the payload's mass on the right-hand side.
    """
    a, b = exactly(u), exactly(v)
    squares = (a[:3] * b[:3]).halved()
    xx, yy, zz = squares[0], squares[1], squares[2]

    def mixed(i: int, j: int) -> IntervalArray:
        return a[i] * b[j] + a[j] * b[i]

    g = [
        a[3] * b[3] - exactly(mass),
        *(mixed(3, i) for i in range(3)),
        yy + zz - xx,  # S_xx = (Iyy + Izz - Ixx) / 2 and so on; S_xy = -Ixy
        -mixed(0, 1),
        xx + zz - yy,
        -mixed(0, 2),
        -mixed(1, 2),
        xx + yy - zz,
    ]
    return IntervalArray(np.array([float(x.lo) for x in g]), np.array([float(x.hi) for x in g]))


def cut_refusal(
    u: FloatArray, v: FloatArray, mass: float, constant: float, kind: str, declared: PayloadDeclaration
) -> str | None:
    """Explain why the cut is not proved; None if it is.

    Args:
        u: (4,) affine function of position.
        v: (4,) likewise.
        mass: coefficient of the payload's mass on the right-hand side.
        kind: one of :data:`CUT_KINDS`.
    """
    if kind == "density":
        return _density_refusal(u, v, mass, constant, declared)
    if mass > 0.0 or constant > 0.0:
        return f"{kind} cut with right-hand side {mass:g} m_p + {constant:g}: expected none above zero"
    if kind == "semidefinite":
        return None if np.array_equal(u, v) else "semidefinite cut with u != v"
    for name, function in (("u", u), ("v", v)):
        if np.all(function[:3] == 0.0) and function[3] >= 0.0:
            continue
        if declared.corners is None:
            return "box cut, but no payload box is declared"
        values = (declared.corners * exactly(function[:3])[None, :]).transposed().total() + exactly(function[3])
        if not np.all(values.lo >= 0.0):
            return f"box cut: {name} is {np.min(values.lo):.3e} at a corner of the declared payload box"
    return None


def _density_refusal(
    u: FloatArray, v: FloatArray, mass: float, constant: float, declared: PayloadDeclaration
) -> str | None:
    if not np.array_equal(u, v):
        return "density cut with u != v"
    if constant > 0.0:
        return f"density cut with constant {constant:g}: expected none above zero"
    if mass <= 0.0:
        return None  # u^T J u >= 0 >= mass m + constant
    if declared.edges is None or declared.size is None or not np.isfinite(declared.density):
        return "density cut, but no largest density and payload box are declared"
    size = declared.size
    if np.all(u == 0.0):
        largest = Fraction(declared.density) * Fraction(size[0]) * Fraction(size[1]) * Fraction(size[2])
        if Fraction(constant) <= -Fraction(mass) * largest:
            return None
        return f"density cut: {constant!r} is above -{mass:g} times {float(largest)!r} kg"
    along = (declared.edges.transposed() * exactly(u[:3])[None, :]).transposed().total()  # a.e of each edge
    least = np.maximum(np.maximum(along.lo, -along.hi), 0.0)
    needed = np.inf
    for j in range(3):
        if least[j] > 0.0:
            d = declared.density * size[(j + 1) % 3] * size[(j + 2) % 3] / least[j]
            needed = min(needed, float(inflate(4.0 / 3.0 * d * mass * np.sqrt(mass))))
    return None if constant <= -needed else f"density cut: constant {constant:g} is above {-needed:g}"
