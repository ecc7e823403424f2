r"""Inertial parameters and boxes of them, with their frame. The only module that converts.

Order of the ten inertial parameters of a link (Pinocchio's): ``m, m cx, m cy, m cz, Ixx, Ixy, Iyy, Ixz, Iyz, Izz``,
SI units, expressed in the frame of the link's joint, inertia about that frame's *origin*. The order of all parameters
of an arm is :class:`~safe_sysid.core.layout.ParameterLayout`'s.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import ArrayLike

from safe_sysid.core.arrays import FloatArray
from safe_sysid.core.layout import ParameterLayout
from safe_sysid.errors import ParameterError
from safe_sysid.intervals import check_interval, mid_rad

__all__ = [
    "ParameterBox",
    "com_and_inertia",
    "from_log_cholesky",
    "inertia_from_com",
    "inertia_matrix",
    "is_consistent",
    "log_cholesky",
    "pseudo_inertia",
    "pseudo_inertia_to_theta",
    "transform_inertial",
    "zero_box_problem",
]


def frozen_array(values: ArrayLike, shape: tuple[int, ...] | None, what: str, finite: bool = True) -> FloatArray:
    """Copy to a read-only float array of the given shape.

    Raises:
        ParameterError: wrong shape, or an entry that is not finite.
    """
    array = np.array(values, dtype=float, order="C")
    if shape is not None and array.shape != shape:
        raise ParameterError(f"{what}: shape {array.shape}: expected {shape}")
    if finite and not np.all(np.isfinite(array)):
        i = int(np.flatnonzero(~np.isfinite(array.ravel()))[0])
        raise ParameterError(f"{what}[{i}] = {array.ravel()[i]!r}: expected a finite number")
    array.setflags(write=False)
    return array


def inertia_matrix(theta: ArrayLike) -> FloatArray:
    """Rotational inertia (3, 3) about the frame origin, kg m^2."""
    xx, xy, yy, xz, yz, zz = np.asarray(theta, float)[4:10]
    return np.array([[xx, xy, xz], [xy, yy, yz], [xz, yz, zz]])


def pseudo_inertia(theta: ArrayLike) -> FloatArray:
    r"""Pseudo-inertia ``J = \int [x;1][x;1]^T dm`` (4, 4); positive definite iff consistent [Wensing2018]."""
    theta = np.asarray(theta, float)
    inertia = inertia_matrix(theta)
    j = np.empty((4, 4))
    j[:3, :3] = 0.5 * np.trace(inertia) * np.eye(3) - inertia
    j[:3, 3] = j[3, :3] = theta[1:4]
    j[3, 3] = theta[0]
    return j


def pseudo_inertia_to_theta(j: ArrayLike) -> FloatArray:
    """Inverse of :func:`pseudo_inertia`: ten parameters (10,) of ``j`` (4, 4)."""
    j = np.asarray(j, float)
    inertia = np.trace(j[:3, :3]) * np.eye(3) - j[:3, :3]
    return _pack(j[3, 3], j[:3, 3], inertia)


def _pack(mass: float, first_moment: FloatArray, inertia: FloatArray) -> FloatArray:
    i = inertia
    return np.array([mass, *first_moment, i[0, 0], i[0, 1], i[1, 1], i[0, 2], i[1, 2], i[2, 2]])


def is_consistent(theta: ArrayLike, tolerance: float = 0.0) -> bool:
    """Whether some mass distribution has these ten parameters [Wensing2018].

    Its pseudo-inertia's eigenvalues are then >= 0; ``tolerance``: by how much they may be below, in kg or kg m^2.
    """
    return bool(np.linalg.eigvalsh(pseudo_inertia(theta))[0] >= -tolerance)


def inertia_from_com(mass: float, com: ArrayLike, inertia_at_com: ArrayLike) -> FloatArray:
    """Ten parameters from mass, centre of mass (3,) and inertia (3, 3) about that centre, same axes."""
    com = np.asarray(com, float)
    inertia = np.asarray(inertia_at_com, float) + mass * (com @ com * np.eye(3) - np.outer(com, com))
    return _pack(mass, mass * com, inertia)


def com_and_inertia(theta: ArrayLike) -> tuple[float, FloatArray, FloatArray]:
    """Mass, centre of mass (3,) and inertia (3, 3) about it.

    Raises:
        ParameterError: mass not positive.
    """
    theta = np.asarray(theta, float)
    mass = float(theta[0])
    if not mass > 0.0:
        raise ParameterError(f"m = {mass!r} kg: expected a positive mass")
    com = theta[1:4] / mass
    return mass, com, inertia_matrix(theta) - mass * (com @ com * np.eye(3) - np.outer(com, com))


def transform_inertial(rotation: ArrayLike, translation: ArrayLike, theta: ArrayLike) -> FloatArray:
    """Express a body's ten parameters, given in frame B, in frame A, where ``x_A = rotation x_B + translation``.

    ``rotation``: (3, 3); ``translation``: (3,) m; ``theta`` and result: (10,).
    """
    pose = np.eye(4)
    pose[:3, :3], pose[:3, 3] = rotation, translation
    return pseudo_inertia_to_theta(pose @ pseudo_inertia(theta) @ pose.T)


def from_log_cholesky(eta: ArrayLike) -> FloatArray:
    r"""Log-Cholesky map ``eta -> theta`` [Rucker2022; PSO eq. 16]: ``J = e^{2a} L L^T`` is always positive definite.

    ``eta``: (10,) ``[alpha, d1, d2, d3, s12, s23, s13, t1, t2, t3]``.
    """
    alpha, d1, d2, d3, s12, s23, s13, t1, t2, t3 = np.asarray(eta, float)
    u = np.array(
        [[np.exp(d1), s12, s13, t1], [0, np.exp(d2), s23, t2], [0, 0, np.exp(d3), t3], [0, 0, 0, 1.0]]
    ) * np.exp(alpha)
    return pseudo_inertia_to_theta(u @ u.T)


def log_cholesky(theta: ArrayLike) -> FloatArray:
    """Inverse of :func:`from_log_cholesky`.

    Raises:
        ParameterError: the parameters are not (strictly) physically consistent.
    """
    j = pseudo_inertia(theta)
    flip = np.eye(4)[::-1]
    try:
        u = flip @ np.linalg.cholesky(flip @ j @ flip) @ flip  # upper triangular factor J = U U^T
    except np.linalg.LinAlgError as error:
        raise ParameterError(
            f"theta = {np.asarray(theta).tolist()}: expected a positive definite pseudo-inertia, "
            f"eigenvalues are {np.linalg.eigvalsh(j).tolist()}"
        ) from error
    scale = u[3, 3]
    v = u / scale
    return np.array([np.log(scale), *np.log(np.diag(v)[:3]), v[0, 1], v[1, 2], v[0, 2], v[0, 3], v[1, 3], v[2, 3]])


@dataclass(frozen=True, eq=False)
class ParameterBox:
    """Interval vector of parameters that is claimed to hold the truth."""

    #: lower, upper: (P,) bounds, P = 14 n for a whole arm; read-only
    lower: FloatArray
    upper: FloatArray
    epoch: int = 0  #: counts payloads; boxes of different epochs say nothing about each other
    seq: int = 0  #: counts updates within the epoch; within an epoch boxes only shrink
    mid: FloatArray = field(init=False, repr=False)
    rad: FloatArray = field(init=False, repr=False)

    def __post_init__(self) -> None:
        lower = frozen_array(self.lower, None, "ParameterBox.lower")
        upper = frozen_array(self.upper, lower.shape, "ParameterBox.upper")
        check_interval(lower, upper, "ParameterBox")
        mid, rad = mid_rad(lower, upper)
        for name, value in (("lower", lower), ("upper", upper), ("mid", mid), ("rad", rad)):
            value.setflags(write=False)
            object.__setattr__(self, name, value)
        for name in ("epoch", "seq"):
            value = getattr(self, name)
            if not isinstance(value, int) or value < 0:
                raise ParameterError(f"ParameterBox.{name} = {value!r}: expected a non-negative integer")

    @property
    def size(self) -> int:
        """Number of parameters P."""
        return int(self.lower.size)

    @property
    def n(self) -> int:
        """Number of joints.

        Raises:
            ParameterError: the box is not one of all parameters of an arm.
        """
        return self.layout.n

    @property
    def layout(self) -> ParameterLayout:
        """Where everything lies in the vectors; raises as :attr:`n`."""
        return ParameterLayout.of_size(self.size)

    @property
    def identity(self) -> str:
        """``epoch:seq``, the label that messages carry."""
        return f"{self.epoch}:{self.seq}"

    @property
    def payload_lower(self) -> FloatArray:
        """(10,) lower bounds of theta_e."""
        return self.lower[self.layout.payload]

    @property
    def payload_upper(self) -> FloatArray:
        """(10,) upper bounds of theta_e."""
        return self.upper[self.layout.payload]

    def contains(self, theta: ArrayLike) -> bool:
        """Whether ``theta`` (P,) lies in the box."""
        theta = np.asarray(theta, float)
        return bool(np.all(self.lower <= theta) and np.all(theta <= self.upper))

    def is_inside(self, other: ParameterBox) -> bool:
        """Whether this box is a subset of the other, both of one epoch and size."""
        return (
            self.size == other.size
            and self.epoch == other.epoch
            and bool(np.all(other.lower <= self.lower) and np.all(self.upper <= other.upper))
        )

    def blend(self, other: ParameterBox, s: float) -> ParameterBox:
        """``(1 - s) self + s other`` for a nested ``other``; nested in self, holds whatever both hold.

        Clipped to [self, other] so that rounding cannot cut into ``other`` or leave ``self``.

        Raises:
            ParameterError: ``other`` is not inside this box, or s not in [0, 1].
        """
        if not other.is_inside(self):
            raise ParameterError(f"box {other.identity}: expected a box of epoch {self.epoch} inside {self.identity}")
        if not 0.0 <= s <= 1.0:
            raise ParameterError(f"blend factor s = {s!r}: expected 0 <= s <= 1")
        lower = np.clip((1.0 - s) * self.lower + s * other.lower, self.lower, other.lower)
        upper = np.clip((1.0 - s) * self.upper + s * other.upper, other.upper, self.upper)
        return ParameterBox(lower, upper, self.epoch, other.seq if s == 1.0 else self.seq)

    def with_payload(self, lower: ArrayLike, upper: ArrayLike, seq: int | None = None) -> ParameterBox:
        """The same box with theta_e's bounds replaced (each (10,)) and, if given, a new sequence number."""
        new_lower, new_upper = self.lower.copy(), self.upper.copy()
        new_lower[self.layout.payload] = frozen_array(lower, (10,), "payload lower")
        new_upper[self.layout.payload] = frozen_array(upper, (10,), "payload upper")
        return replace(self, lower=new_lower, upper=new_upper, seq=self.seq if seq is None else seq)


def zero_box_problem(box: ParameterBox, prior: ParameterBox) -> str | None:
    """Why a box may not be called what it is; None if it may. Number 0 of an epoch is the robot's prior, by its name.

    A box of that name that is smaller claims what nothing proves, and whoever knows the name takes it for the prior.
    """
    if box.seq != 0:
        return None
    if box.size != prior.size:
        return f"box {box.identity} has {box.size} parameters: expected the robot's prior, of {prior.size}"
    out = np.flatnonzero(~((box.lower <= prior.lower) & (prior.upper <= box.upper)))
    if not out.size:
        return None
    p = int(out[0])
    found, expected = ([float(of.lower[p]), float(of.upper[p])] for of in (box, prior))
    return (
        f"box {box.identity} is the robot's prior by its number, but parameter {p} is in {found} there: expected a box "
        f"that contains the prior's {expected}"
    )
