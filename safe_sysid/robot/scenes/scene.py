"""Scenes: what stands around the arm, from YAML."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import numpy as np
from pydantic import BeforeValidator, Field, PlainValidator

from safe_sysid.core.arrays import FloatArray
from safe_sysid.errors import ConfigError, ModelError, SafeSysIdError
from safe_sysid.resources import resource_path
from safe_sysid.robot.files.meshes import mesh_path, read_mesh
from safe_sysid.robot.files.yaml_file import read_yaml, validate
from safe_sysid.robot.model import Body, RobotModel
from safe_sysid.robot.parameters import frozen_array
from safe_sysid.robot.scenes.obstacles import Obstacle, SceneBox, SceneCapsule, SceneMesh, SceneSphere, SceneZonotope
from safe_sysid.schema.fields import (
    Name,
    NamePair,
    NonNegative,
    Pose,
    Positive,
    Size3,
    StrictModel,
    Vector3,
    as_tuple,
    numbers,
)

__all__ = ["SECTIONS", "Scene", "SceneBox", "config_path", "count_obstacles", "load_scene"]

MAX_OBSTACLES = 2000
#: Where obstacles of a kind stand in a scene's file.
SECTIONS = {"box": "boxes", "sphere": "spheres", "capsule": "capsules", "mesh": "meshes", "zonotope": "zonotopes"}


@dataclass(frozen=True, eq=False)
class Scene:
    """What stands around the arm."""

    name: str
    obstacles: tuple[Obstacle, ...] = ()
    #: pairs {obstacle's name, body's name} whose overlap is harmless, such as the ground and the base
    allowed_pairs: frozenset[frozenset[str]] = frozenset()
    start: FloatArray | None = None  #: (n,) rad, where a run starts in this scene; None for the robot's home
    goal: FloatArray | None = None  #: (n,) rad, where the scene's task ends; None if it has none
    file: str = "(scene)"  #: where it was read from, for messages

    def __post_init__(self) -> None:
        object.__setattr__(self, "obstacles", tuple(self.obstacles))
        seen: set[str] = set()
        if len(self.obstacles) > MAX_OBSTACLES:
            raise ConfigError(self.file, "obstacles", len(self.obstacles), f"at most {MAX_OBSTACLES}")
        for obstacle in self.obstacles:
            if obstacle.name in seen:
                same = [o for o in self.obstacles if o.kind == obstacle.kind]
                key = f"{SECTIONS.get(obstacle.kind, 'obstacles')}[{same.index(obstacle)}].name"
                raise ConfigError(self.file, key, obstacle.name, "a name that no other obstacle has")
            seen.add(obstacle.name)
        for key in ("start", "goal"):
            if getattr(self, key) is not None:
                object.__setattr__(self, key, frozen_array(getattr(self, key), None, f"scene {self.name}.{key}"))

    def check(self, model: RobotModel) -> None:
        """Check what only a robot can tell: length of the poses, names in the allowed pairs.

        Raises:
            ConfigError: naming file, key, value and expectation.
        """
        for key in ("start", "goal"):
            pose = getattr(self, key)
            if pose is not None and len(pose) != model.n:
                raise ConfigError(self.file, key, pose.tolist(), f"{model.n} numbers, one per joint of {model.name}")
        names, bodies = {obstacle.name for obstacle in self.obstacles}, {body.name for body in model.bodies}
        both = sorted(names & bodies)
        if both:
            section = next(SECTIONS.get(o.kind, "obstacles") for o in self.obstacles if o.name in bodies)
            raise ConfigError(self.file, section, both, f"names that no body of {model.name} has")
        for pair in sorted(self.allowed_pairs, key=sorted):
            if len(pair & names) != 1 or len(pair & bodies) != 1:
                raise ConfigError(
                    self.file,
                    "allowed_pairs",
                    sorted(pair),
                    f"one obstacle of the scene ({', '.join(sorted(names)) or 'none'}) and one body of {model.name} "
                    f"({', '.join(sorted(bodies))})",
                )

    def body(self, name: str) -> Body:
        """An obstacle as a body of the world.

        Raises:
            ConfigError: no obstacle of that name.
        """
        for obstacle in self.obstacles:
            if obstacle.name == name:
                return obstacle.body()
        known = ", ".join(obstacle.name for obstacle in self.obstacles) or "none"
        raise ConfigError(self.file, "obstacle", name, f"one of the scene's ({known})")

    def bodies(self) -> list[Body]:
        """All obstacles as bodies of the world, in order."""
        return [obstacle.body() for obstacle in self.obstacles]

    def start_for(self, model: RobotModel) -> FloatArray:
        """Start pose (n,) of a run: the scene's, or else the robot's home.

        Raises:
            ConfigError: the scene does not fit the robot.
        """
        self.check(model)
        return np.array(model.settings.home if self.start is None else self.start, float)


def count_obstacles(scene: Scene) -> str:
    """How many obstacles of each kind, in words: ``6 boxes, 1 capsule``; for meshes, that their hulls are taken."""
    parts = []
    for kind, section in SECTIONS.items():
        number = sum(obstacle.kind == kind for obstacle in scene.obstacles)
        if number:
            hulls = " (convex hulls)" if kind == "mesh" else ""
            parts.append(f"{number} {kind if number == 1 else section}{hulls}")
    return ", ".join(parts) or "no obstacles"


class _Placed(StrictModel):
    name: Name
    xyz: Vector3
    rpy: Vector3 = (0.0, 0.0, 0.0)


class _SceneBoxFile(_Placed):
    size: Size3


class _SphereFile(StrictModel):
    name: Name
    xyz: Vector3
    radius: Positive


class _CapsuleFile(_Placed):
    radius: Positive
    length: NonNegative


class _MeshFile(_Placed):
    file: Name
    scale: Annotated[float | tuple[float, ...], PlainValidator(numbers(positive=True))] = 1.0


class _ZonotopeFile(StrictModel):
    name: Name
    xyz: Vector3
    generators: Annotated[tuple[Vector3, ...], BeforeValidator(as_tuple), Field(min_length=1)]


class _SceneFile(StrictModel):
    name: Name
    start: Pose | None = None
    goal: Pose | None = None
    boxes: Annotated[tuple[_SceneBoxFile, ...], BeforeValidator(as_tuple)] = ()
    spheres: Annotated[tuple[_SphereFile, ...], BeforeValidator(as_tuple)] = ()
    capsules: Annotated[tuple[_CapsuleFile, ...], BeforeValidator(as_tuple)] = ()
    meshes: Annotated[tuple[_MeshFile, ...], BeforeValidator(as_tuple)] = ()
    zonotopes: Annotated[tuple[_ZonotopeFile, ...], BeforeValidator(as_tuple)] = ()
    allowed_pairs: Annotated[tuple[NamePair, ...], BeforeValidator(as_tuple)] = ()


def load_scene(name_or_path: str | Path) -> Scene:
    """Load a scene: the name of a packaged one (``open``, ``six_boxes``) or the path of a YAML file.

    Raises:
        ConfigError: no such scene, or a value that is missing, unknown or out of range.
    """
    path = config_path(name_or_path, "config/scenes")
    data = read_yaml(path)
    data.setdefault("name", path.stem)
    parsed = validate(str(path), data, _SceneFile)
    sections = set(SECTIONS.values())
    if not sections & set(data):
        expected = f"a value (required), or one of {', '.join(sorted(sections - {'boxes'}))}; [] if nothing is around"
        raise ConfigError(str(path), "boxes", "missing", expected)
    obstacles: list[Obstacle] = []
    for key, build in _BUILDERS.items():
        for i, entry in enumerate(getattr(parsed, key)):
            try:
                obstacles.append(build(entry, path))
            except SafeSysIdError as error:
                raise _refusal(str(path), f"{key}[{i}]", error) from error
    pairs = frozenset(frozenset(pair) for pair in parsed.allowed_pairs)
    start, goal = (None if pose is None else np.array(pose) for pose in (parsed.start, parsed.goal))
    return Scene(parsed.name, tuple(obstacles), pairs, start, goal, str(path))


def _refusal(file: str, key: str, error: SafeSysIdError) -> ConfigError:
    """What is wrong with an obstacle, as one value and one expectation."""
    if isinstance(error, ModelError) and error.expected:
        return ConfigError(file, key, error.value, error.expected)
    value, _, expected = str(error).rpartition(": expected ")
    return ConfigError(file, key, value or str(error), expected if value else "an obstacle")


def _read_mesh_obstacle(entry: _MeshFile, path: Path) -> SceneMesh:
    file = mesh_path(entry.file, path)
    if isinstance(entry.scale, tuple) and len(entry.scale) != 3:
        raise ModelError(f"scale = {list(entry.scale)}: expected a number, or one per axis")
    vertices, _, error = read_mesh(file, entry.scale)
    return SceneMesh(entry.name, np.array(entry.xyz), np.array(entry.rpy), vertices, error, str(file))


_BUILDERS: dict[str, Callable[[Any, Path], Obstacle]] = {
    "boxes": lambda e, _: SceneBox(e.name, e.xyz, e.rpy, e.size),
    "spheres": lambda e, _: SceneSphere(e.name, e.xyz, e.radius),
    "capsules": lambda e, _: SceneCapsule(e.name, e.xyz, e.radius, e.rpy, e.length),
    "meshes": _read_mesh_obstacle,
    "zonotopes": lambda e, _: SceneZonotope(e.name, e.xyz, e.generators),
}


def config_path(name_or_path: str | Path, folder: str) -> Path:
    """Path of a YAML file given by path (has a separator or ends in .yaml or .yml) or by the name of a packaged one.

    Raises:
        ConfigError: no such packaged file; the message lists those that there are.
    """
    path = Path(name_or_path)
    if isinstance(name_or_path, Path) or len(path.parts) > 1 or path.suffix in (".yaml", ".yml"):
        return path
    base = resource_path(folder)
    packaged = base / f"{name_or_path}.yaml"
    if not packaged.is_file():
        known = ", ".join(sorted(file.stem for file in base.glob("*.yaml")))
        raise ConfigError(str(base), "name", str(name_or_path), f"one of {known}, or the path of a YAML file")
    return packaged
