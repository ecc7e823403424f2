"""Scene changes from markers: the part without ROS. Boxes, balls, cylinders and meshes come, move and go by name."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

import numpy as np

from safe_sysid.core.arrays import FloatArray
from safe_sysid.errors import ConfigError, SafeSysIdError
from safe_sysid.robot.files.meshes import read_mesh
from safe_sysid.robot.files.packages import is_package_uri, package_file
from safe_sysid.robot.frames import rotation_from_quaternion
from safe_sysid.robot.scenes.obstacles import (
    Obstacle,
    SceneBox,
    SceneCapsule,
    SceneMesh,
    SceneSphere,
    rpy_from_rotation,
)
from safe_sysid.robot.scenes.scene import Scene

__all__ = ["MARKER_PREFIX", "SceneMarker", "scene_from_markers"]

#: Begins the names of obstacles that came as markers; only these can be moved or deleted by markers.
MARKER_PREFIX = "marker:"
_KINDS = ("cube", "sphere", "cylinder", "mesh")
_ACTIONS = ("add", "delete", "delete_all")
_UNIT = 1e-3  # by which the norm of a quaternion may differ from one


@dataclass(frozen=True, eq=False)
class SceneMarker:
    """One marker, as visualization_msgs/Marker means it."""

    ns: str = ""  #: namespace; with ``id`` the name
    id: int = 0  #: number in the namespace
    action: str = "add"  #: "add" (also modifies), "delete" or "delete_all" (of the namespace, if one is given)
    kind: str = "cube"  #: "cube", "sphere", "cylinder" or "mesh"; any other text is refused with it
    frame: str = ""  #: that the pose is given in; empty for the world
    position: tuple[float, ...] = (0.0, 0.0, 0.0)  #: (3,) m
    orientation: tuple[float, ...] = (0.0, 0.0, 0.0, 1.0)  #: (4,) quaternion x, y, z, w
    scale: tuple[float, ...] = (1.0, 1.0, 1.0)  #: (3,) full sizes, m; factors of a mesh
    #: package:// address of a mesh: who sends markers chooses among installed meshes, not among files
    mesh_resource: str = ""

    @property
    def name(self) -> str:
        """Name of the obstacle that it makes."""
        return f"{MARKER_PREFIX}{self.ns}/{self.id}"


def scene_from_markers(markers: Iterable[SceneMarker], scene: Scene) -> Scene:
    """The scene after markers, in their order. All of them count or, if one is wrong, none.

    A sphere of unequal sizes becomes the ball around it, a cylinder the capsule that contains it, a mesh its convex
    hull. What did not come as a marker stays: a publisher of markers cannot take the table away.

    ``scene``: before them; its allowed pairs, start and goal are kept.
    Returns a new scene; deleting what is not there changes nothing.

    Raises:
        ConfigError: naming the marker, the field and what was expected.
    """
    obstacles = {obstacle.name: obstacle for obstacle in scene.obstacles}
    for i, marker in enumerate(markers):
        where = f"markers[{i}] ({marker.ns}/{marker.id})"
        if marker.action == "add":
            try:
                obstacles[marker.name] = _obstacle(marker, where)
            except ConfigError:
                raise
            except SafeSysIdError as error:
                raise ConfigError("scene markers", where, marker.kind, str(error)) from error
        elif marker.action == "delete":
            obstacles.pop(marker.name, None)
        elif marker.action == "delete_all":
            obstacles = {name: o for name, o in obstacles.items() if not _in_namespace(name, marker.ns)}
        else:
            raise ConfigError("scene markers", f"{where}.action", marker.action, f"one of {', '.join(_ACTIONS)}")
    kept = frozenset(
        pair
        for pair in scene.allowed_pairs
        if not any(n.startswith(MARKER_PREFIX) and n not in obstacles for n in pair)
    )
    return replace(scene, obstacles=tuple(obstacles.values()), allowed_pairs=kept)


def _in_namespace(name: str, ns: str) -> bool:
    """Whether an obstacle came as a marker of a namespace; "a/b" is not in "a". Empty: of any."""
    return name.startswith(MARKER_PREFIX) and (not ns or name.rpartition("/")[0] == MARKER_PREFIX + ns)


def _obstacle(marker: SceneMarker, where: str) -> Obstacle:
    if marker.kind not in _KINDS:
        raise ConfigError("scene markers", f"{where}.type", marker.kind, f"one of {', '.join(_KINDS)}")
    if marker.frame not in ("", "world", "/world"):
        raise ConfigError("scene markers", f"{where}.frame_id", marker.frame, "'world': poses in the world frame")
    xyz = _numbers(marker.position, 3, f"{where}.position")
    turn = _numbers(marker.orientation, 4, f"{where}.orientation")
    scale = _numbers(marker.scale, 3, f"{where}.scale")
    norm = float(np.linalg.norm(turn))
    if not abs(norm - 1.0) <= _UNIT:
        raise ConfigError(
            "scene markers", f"{where}.orientation", list(marker.orientation), "a quaternion x, y, z, w of length one"
        )
    if not np.all(scale > 0.0):
        raise ConfigError("scene markers", f"{where}.scale", list(marker.scale), "three numbers > 0")
    rpy = rpy_from_rotation(rotation_from_quaternion(turn / norm))
    if marker.kind == "cube":
        return SceneBox(marker.name, xyz, rpy, scale)
    if marker.kind == "sphere":
        return SceneSphere(marker.name, xyz, 0.5 * float(scale.max()))
    if marker.kind == "cylinder":
        return SceneCapsule(marker.name, xyz, 0.5 * float(scale[:2].max()), rpy, float(scale[2]))
    if not is_package_uri(marker.mesh_resource):
        raise ConfigError(
            "scene markers",
            f"{where}.mesh_resource",
            marker.mesh_resource,
            "package://NAME/PATH of a mesh (other files: in the scene file)",
        )
    path = package_file(marker.mesh_resource, "scene markers")
    vertices, _, error = read_mesh(path, scale)
    return SceneMesh(marker.name, xyz, rpy, vertices, error, str(path))


def _numbers(values: tuple[float, ...], count: int, key: str) -> FloatArray:
    array = np.asarray(values, float)
    if array.shape != (count,) or not np.all(np.isfinite(array)):
        raise ConfigError("scene markers", key, list(values), f"{count} finite numbers")
    return array
