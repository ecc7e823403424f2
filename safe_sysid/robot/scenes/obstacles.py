"""Obstacles: boxes, spheres, capsules, convex meshes and zonotopes that stand still, in the world frame.

Whatever its kind, an obstacle is the hull of :attr:`Obstacle.points` inflated by :attr:`Obstacle.radius`; that is all
that enclosures look at. What placing the points rounds (coordinates of at most :data:`LARGEST`) is below
:data:`PLACEMENT`, which users of the points take off their distances.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np
from numpy.typing import ArrayLike

from safe_sysid.core.arrays import FloatArray
from safe_sysid.errors import ModelError
from safe_sysid.robot.model import Body
from safe_sysid.robot.parameters import frozen_array
from safe_sysid.robot.shapes.hulls import outer_hull

__all__ = [
    "LARGEST",
    "PLACEMENT",
    "Obstacle",
    "SceneBox",
    "SceneCapsule",
    "SceneMesh",
    "SceneSphere",
    "SceneZonotope",
    "box_corners",
    "rotation_from_rpy",
    "rpy_from_rotation",
]

#: Coordinates beyond this are no scene around an arm, m.
LARGEST = 100.0
#: More than rounding can move a placed point of coordinates up to LARGEST, m.
PLACEMENT = 1e-12
#: More generators than this make more corners than a scene needs.
MOST_GENERATORS = 12
#: A zonotope of more corners is inflated a little instead.
MOST_CORNERS = 64


def rotation_from_rpy(rpy: ArrayLike) -> FloatArray:
    """Rotation (3, 3) of fixed-axis roll, pitch, yaw (rad), as URDF means them: ``Rz(yaw) Ry(pitch) Rx(roll)``."""
    (sr, sp, sy), (cr, cp, cy) = np.sin(rpy), np.cos(rpy)
    return np.array(
        [
            [cy * cp, cy * sp * sr - sy * cr, cy * sp * cr + sy * sr],
            [sy * cp, sy * sp * sr + cy * cr, sy * sp * cr - cy * sr],
            [-sp, cp * sr, cp * cr],
        ]
    )


def rpy_from_rotation(rotation: FloatArray) -> FloatArray:
    """Roll, pitch, yaw (3,) (rad) whose :func:`rotation_from_rpy` is a given rotation (3, 3), up to a few roundings.

    Also where pitch is near a right angle: there any small error of yaw is harmless if roll is what remains after it.
    """
    yaw = np.arctan2(rotation[1, 0], rotation[0, 0])
    c, s = np.cos(yaw), np.sin(yaw)
    back = np.array([[c, s, 0.0], [-s, c, 0.0], [0.0, 0.0, 1.0]]) @ rotation  # = Ry(pitch) Rx(roll)
    roll, pitch = np.arctan2(-back[1, 2], back[1, 1]), np.arctan2(-back[2, 0], back[0, 0])
    return np.array([roll, pitch, yaw]) + 0.0  # no -0


def box_corners(size: ArrayLike) -> FloatArray:
    """The eight corners (8, 3) of a box about the origin, of full edge lengths ``size`` (3,)."""
    signs = np.array([[x, y, z] for x in (-1, 1) for y in (-1, 1) for z in (-1, 1)], float)
    return signs * np.asarray(size, float) / 2.0


@dataclass(frozen=True, eq=False)
class Obstacle:
    """What all kinds share; use one of the classes below."""

    kind: ClassVar[str] = ""  #: "box", "sphere", "capsule", "mesh" or "zonotope"
    name: str  #: unique in its scene
    xyz: FloatArray  #: (3,) centre, m
    points: FloatArray = field(init=False, repr=False)  #: (m, 3) in the world, m
    radius: float = field(init=False)  #: by which the hull of the points is inflated, m

    def __post_init__(self) -> None:
        self._freeze("xyz", (3,))
        local, radius = self._hull()
        object.__setattr__(self, "points", np.asarray(local, float) @ self.rotation.T + self.xyz)
        object.__setattr__(self, "radius", float(radius))
        self._freeze("points", (len(local), 3))
        reach = max(float(np.abs(self.points).max()) + self.radius, float(np.abs(self.xyz).max()))
        if not reach <= LARGEST:
            hint = "; of a mesh in millimetres: scale: 0.001" if self.kind == "mesh" else ""
            expected = f"at most {LARGEST:g} m (lengths are in metres{hint})"
            value = f"{self.name} reaches {reach:g} m from the origin"
            raise ModelError(f"{self.kind} {value}: expected {expected}", value, expected)

    def _freeze(self, key: str, shape: tuple[int, ...] | None, positive: bool = False) -> None:
        value = frozen_array(getattr(self, key), shape, f"{self.kind} {self.name}.{key}")
        if positive and not np.all(value > 0.0):
            raise ModelError(f"{self.kind} {self.name}.{key} = {value.tolist()}: expected numbers > 0")
        object.__setattr__(self, key, value)

    def _positive(self, key: str, zero: bool = False) -> None:
        value = getattr(self, key)
        if not (np.isfinite(value) and (value > 0.0 or (zero and value == 0.0))):
            expected = ">= 0" if zero else "> 0"
            raise ModelError(f"{self.kind} {self.name}.{key} = {value!r}: expected a number {expected}")
        object.__setattr__(self, key, float(value))

    @property
    def rotation(self) -> FloatArray:
        """Rotation (3, 3) of the obstacle's own frame in the world."""
        return np.eye(3)

    def _hull(self) -> tuple[FloatArray, float]:
        """Points (m, 3) in the obstacle's own frame and the radius, m."""
        raise NotImplementedError

    def body(self) -> Body:
        """The obstacle as a body of the world (joint -1)."""
        return Body(self.name, -1, self.points, self.radius, self.kind)


@dataclass(frozen=True, eq=False)
class SceneBox(Obstacle):
    """A box. ``rpy``: (3,) fixed-axis roll, pitch, yaw, rad; ``size``: (3,) full edge lengths, m."""

    kind: ClassVar[str] = "box"
    rpy: FloatArray
    size: FloatArray

    def __post_init__(self) -> None:
        self._freeze("rpy", (3,))
        self._freeze("size", (3,), positive=True)
        super().__post_init__()

    @property
    def rotation(self) -> FloatArray:
        """Rotation (3, 3) of the box in the world."""
        return rotation_from_rpy(self.rpy)

    @property
    def corners(self) -> FloatArray:
        """The eight corners (8, 3) in the world, m."""
        return self.points

    def _hull(self) -> tuple[FloatArray, float]:
        return box_corners(self.size), 0.0


@dataclass(frozen=True, eq=False)
class SceneSphere(Obstacle):
    """A ball of a radius, m."""

    kind: ClassVar[str] = "sphere"
    radius: float

    def __post_init__(self) -> None:
        self._positive("radius")
        super().__post_init__()

    def _hull(self) -> tuple[FloatArray, float]:
        return np.zeros((1, 3)), self.radius


@dataclass(frozen=True, eq=False)
class SceneCapsule(Obstacle):
    """A segment along its own z axis, inflated: the cylinder of that radius and length, and half a ball at each end."""

    kind: ClassVar[str] = "capsule"
    radius: float
    rpy: FloatArray  #: (3,) fixed-axis roll, pitch, yaw, rad
    length: float  #: of the segment, m; 0 for a ball

    def __post_init__(self) -> None:
        self._freeze("rpy", (3,))
        self._positive("radius")
        self._positive("length", zero=True)
        super().__post_init__()

    @property
    def rotation(self) -> FloatArray:
        """Rotation (3, 3) of the capsule in the world."""
        return rotation_from_rpy(self.rpy)

    def _hull(self) -> tuple[FloatArray, float]:
        if self.length == 0.0:
            return np.zeros((1, 3)), self.radius
        return np.array([[0.0, 0.0, -0.5 * self.length], [0.0, 0.0, 0.5 * self.length]]), self.radius


@dataclass(frozen=True, eq=False)
class SceneMesh(Obstacle):
    """The convex hull of a cloud of vertices, with few corners and inflated so that it holds all of them."""

    kind: ClassVar[str] = "mesh"
    rpy: FloatArray  #: (3,) fixed-axis roll, pitch, yaw, rad
    vertices: FloatArray  #: (m, 3) in the mesh's own frame, m
    error: float = 0.0  #: by which coordinates of the vertices may be off, m
    source: str = ""  #: where the vertices come from, for messages

    def __post_init__(self) -> None:
        self._freeze("rpy", (3,))
        self._positive("error", zero=True)
        vertices = np.atleast_2d(np.asarray(self.vertices, float))
        object.__setattr__(self, "vertices", vertices)
        self._freeze("vertices", (max(len(vertices), 1), 3))
        super().__post_init__()

    @property
    def rotation(self) -> FloatArray:
        """Rotation (3, 3) of the mesh in the world."""
        return rotation_from_rpy(self.rpy)

    def _hull(self) -> tuple[FloatArray, float]:
        corners, slack = outer_hull(self.vertices)
        return corners, slack + self.error


@dataclass(frozen=True, eq=False)
class SceneZonotope(Obstacle):
    """All ``xyz + sum b_i generators_i`` with ``b_i`` in [-1, 1]. ``generators``: (g, 3), m."""

    kind: ClassVar[str] = "zonotope"
    generators: FloatArray

    def __post_init__(self) -> None:
        generators = np.atleast_2d(np.asarray(self.generators, float))
        count = len(generators)
        object.__setattr__(self, "generators", generators)
        self._freeze("generators", (count, 3))
        if not 1 <= count <= MOST_GENERATORS:
            raise ModelError(f"zonotope {self.name!r}: {count} generators: expected 1 to {MOST_GENERATORS}")
        super().__post_init__()

    def _hull(self) -> tuple[FloatArray, float]:
        count = len(self.generators)
        signs = 2.0 * ((np.arange(2**count)[:, None] >> np.arange(count)) & 1) - 1.0
        return outer_hull(signs @ self.generators, MOST_CORNERS)
