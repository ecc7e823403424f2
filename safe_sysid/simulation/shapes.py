"""Solids of simulated payloads: where they are, how far they reach, what they weigh."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import ArrayLike

from safe_sysid.core.arrays import FloatArray
from safe_sysid.errors import ParameterError
from safe_sysid.robot.parameters import frozen_array, inertia_from_com

__all__ = ["Shape"]

_SIZES = {"cylinder": 2, "box": 3, "sphere": 1, "hexagon": 2}


@dataclass(frozen=True, eq=False)
class Shape:
    """One solid, posed in the frame of the payload (the tool flange)."""

    #: "cylinder" (radius, length along own z), "box" (full sizes x, y, z), "sphere" (radius) or "hexagon", a regular
    #: prism (width across flats, length along own z) with two flats across own x
    kind: str
    size: tuple[float, ...]  #: the numbers above, m
    position: FloatArray  #: (3,) centre of the solid, m
    rotation: FloatArray = field(default_factory=lambda: np.eye(3))  #: (3, 3) axes of the solid in the payload's frame

    def __post_init__(self) -> None:
        if self.kind not in _SIZES:
            raise ParameterError(f"shape kind {self.kind!r}: expected one of {sorted(_SIZES)}")
        size = tuple(float(s) for s in self.size)
        if len(size) != _SIZES[self.kind] or not all(np.isfinite(s) and s > 0.0 for s in size):
            raise ParameterError(
                f"{self.kind} size {self.size}: expected {_SIZES[self.kind]} positive numbers, in metres"
            )
        object.__setattr__(self, "size", size)
        object.__setattr__(self, "position", frozen_array(self.position, (3,), f"{self.kind} position"))
        rotation = frozen_array(self.rotation, (3, 3), f"{self.kind} rotation")
        if np.abs(rotation @ rotation.T - np.eye(3)).max() > 1e-9 or np.linalg.det(rotation) < 0.0:
            raise ParameterError(f"{self.kind} rotation {rotation.tolist()}: expected a rotation matrix")
        object.__setattr__(self, "rotation", rotation)

    def support(self, direction: ArrayLike) -> float:
        """Largest ``direction . x`` over the solid; ``direction`` (3,) in the payload's frame."""
        d = np.asarray(direction, float)
        local = self.rotation.T @ d
        if self.kind == "sphere":
            reach = self.size[0] * float(np.linalg.norm(local))
        elif self.kind == "box":
            reach = 0.5 * float(np.abs(local) @ np.array(self.size))
        elif self.kind == "hexagon":
            reach = float((self.corners() @ local).max())
        else:
            radius, length = self.size
            reach = radius * float(np.hypot(local[0], local[1])) + 0.5 * length * abs(float(local[2]))
        return float(d @ self.position) + reach

    def corners(self) -> FloatArray:
        """Corners (m, 3) of a box or hexagon about its centre, in its own axes, m; none of round solids."""
        if self.kind == "box":
            signs = np.array([[x, y, z] for x in (-1, 1) for y in (-1, 1) for z in (-1, 1)], float)
            return 0.5 * signs * np.array(self.size)
        if self.kind != "hexagon":
            return np.zeros((0, 3))
        width, length = self.size
        turn = np.pi / 6.0 + np.arange(6) * np.pi / 3.0
        outline = width / np.sqrt(3.0) * np.column_stack([np.cos(turn), np.sin(turn), np.zeros(6)])
        return np.concatenate([outline + np.array([0.0, 0.0, z]) for z in (-0.5 * length, 0.5 * length)])

    def bounding_box(self) -> tuple[FloatArray, FloatArray]:
        """Lower and upper corner (3,) of the smallest box along the payload frame's axes that holds the solid."""
        axes = np.eye(3)
        return np.array([-self.support(-a) for a in axes]), np.array([self.support(a) for a in axes])

    def volume(self) -> float:
        """Volume, m^3."""
        if self.kind == "sphere":
            return 4.0 / 3.0 * np.pi * self.size[0] ** 3
        if self.kind == "box":
            return float(np.prod(self.size))
        if self.kind == "hexagon":
            return 0.5 * np.sqrt(3.0) * self.size[0] ** 2 * self.size[1]
        return np.pi * self.size[0] ** 2 * self.size[1]

    def inertial(self, mass: float) -> FloatArray:
        """Ten inertial parameters (10,) of the homogeneous solid of that mass, about the payload frame's origin."""
        if self.kind == "sphere":
            moments = np.full(3, 0.4 * mass * self.size[0] ** 2)
        elif self.kind == "box":
            squares = np.square(self.size)
            moments = mass / 12.0 * (squares.sum() - squares)
        elif self.kind == "hexagon":
            side, length = self.size[0] / np.sqrt(3.0), self.size[1]
            across = mass * (5.0 / 24.0 * side**2 + length**2 / 12.0)
            moments = np.array([across, across, mass * 5.0 / 12.0 * side**2])
        else:
            radius, length = self.size
            across = mass * (3.0 * radius**2 + length**2) / 12.0
            moments = np.array([across, across, 0.5 * mass * radius**2])
        inertia = self.rotation @ np.diag(moments) @ self.rotation.T
        return inertia_from_com(mass, self.position, inertia)
