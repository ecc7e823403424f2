"""Scenes: the boxes around the arm, from YAML."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import numpy as np
from numpy.typing import NDArray
from pydantic import BeforeValidator

from safe_sysid.errors import ConfigError
from safe_sysid.resources import resource_path
from safe_sysid.robot.fields import Name, NamePair, Pose, Size3, StrictModel, Vector3, as_tuple
from safe_sysid.robot.model import RobotModel
from safe_sysid.robot.parameters import frozen_array
from safe_sysid.robot.yaml_file import read_yaml, validate

__all__ = ["Scene", "SceneBox", "load_scene", "rotation_from_rpy"]

FloatArray = NDArray[np.float64]


def rotation_from_rpy(rpy: tuple[float, ...] | FloatArray) -> FloatArray:
    """Rotation (3, 3) of fixed-axis roll, pitch, yaw (rad), as URDF means them: ``Rz(yaw) Ry(pitch) Rx(roll)``."""
    (sr, sp, sy), (cr, cp, cy) = np.sin(rpy), np.cos(rpy)
    return np.array(
        [
            [cy * cp, cy * sp * sr - sy * cr, cy * sp * cr + sy * sr],
            [sy * cp, sy * sp * sr + cy * cr, sy * sp * cr - cy * sr],
            [-sp, cp * sr, cp * cr],
        ]
    )


@dataclass(frozen=True, eq=False)
class SceneBox:
    """A box that stands still, in the world frame.

    Attributes:
        name: unique in its scene.
        xyz: (3,) centre, m.
        rpy: (3,) fixed-axis roll, pitch, yaw, rad.
        size: (3,) full edge lengths, m.
    """

    name: str
    xyz: FloatArray
    rpy: FloatArray
    size: FloatArray

    def __post_init__(self) -> None:
        """Validate and freeze."""
        for key in ("xyz", "rpy", "size"):
            object.__setattr__(self, key, frozen_array(getattr(self, key), (3,), f"box {self.name}.{key}"))

    @property
    def rotation(self) -> FloatArray:
        """Rotation (3, 3) of the box in the world."""
        return rotation_from_rpy(self.rpy)

    @property
    def corners(self) -> FloatArray:
        """The eight corners (8, 3) in the world, m."""
        signs = np.array([[x, y, z] for x in (-1, 1) for y in (-1, 1) for z in (-1, 1)], float)
        return self.xyz + (signs * self.size / 2.0) @ self.rotation.T


@dataclass(frozen=True, eq=False)
class Scene:
    """What stands around the arm.

    Attributes:
        name: of the scene.
        boxes: obstacles.
        allowed_pairs: pairs {box name, body name} whose overlap is harmless, such as the ground and the base.
        start: (n,) rad, where a run starts in this scene; None for the robot's home.
        goal: (n,) rad, where the scene's task ends; None if it has none.
        file: where it was read from, for messages.
    """

    name: str
    boxes: tuple[SceneBox, ...] = ()
    allowed_pairs: frozenset[frozenset[str]] = frozenset()
    start: FloatArray | None = None
    goal: FloatArray | None = None
    file: str = "(scene)"

    def __post_init__(self) -> None:
        """Validate and freeze."""
        names = [box.name for box in self.boxes]
        for i, name in enumerate(names):
            if name in names[:i]:
                raise ConfigError(self.file, f"boxes[{i}].name", name, "a name that no other box has")
        for key in ("start", "goal"):
            if getattr(self, key) is not None:
                object.__setattr__(
                    self, key, frozen_array(getattr(self, key), None, f"scene {self.name}.{key}")
                )

    def check(self, model: RobotModel) -> None:
        """Check what only a robot can tell: length of the poses, names in the allowed pairs.

        Raises:
            ConfigError: naming file, key, value and expectation.
        """
        for key in ("start", "goal"):
            pose = getattr(self, key)
            if pose is not None and len(pose) != model.n:
                raise ConfigError(
                    self.file, key, pose.tolist(), f"{model.n} numbers, one per joint of {model.name}"
                )
        boxes, bodies = {box.name for box in self.boxes}, {body.name for body in model.bodies}
        both = sorted(boxes & bodies)
        if both:
            raise ConfigError(self.file, "boxes", both, f"names that no body of {model.name} has")
        for pair in sorted(self.allowed_pairs, key=sorted):
            if len(pair & boxes) != 1 or len(pair & bodies) != 1:
                raise ConfigError(
                    self.file,
                    "allowed_pairs",
                    sorted(pair),
                    f"one box of the scene ({', '.join(sorted(boxes)) or 'none'}) and one body of {model.name} "
                    f"({', '.join(sorted(bodies))})",
                )

    def start_for(self, model: RobotModel) -> FloatArray:
        """Start pose (n,) of a run: the scene's, or else the robot's home.

        Raises:
            ConfigError: the scene does not fit the robot.
        """
        self.check(model)
        return np.array(model.settings.home if self.start is None else self.start, float)


class _BoxFile(StrictModel):
    name: Name
    xyz: Vector3
    rpy: Vector3 = (0.0, 0.0, 0.0)
    size: Size3


class _SceneFile(StrictModel):
    name: Name
    start: Pose | None = None
    goal: Pose | None = None
    boxes: Annotated[tuple[_BoxFile, ...], BeforeValidator(as_tuple)]
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
    boxes = tuple(
        SceneBox(box.name, np.array(box.xyz), np.array(box.rpy), np.array(box.size)) for box in parsed.boxes
    )
    pairs = frozenset(frozenset(pair) for pair in parsed.allowed_pairs)
    start, goal = (None if pose is None else np.array(pose) for pose in (parsed.start, parsed.goal))
    return Scene(parsed.name, boxes, pairs, start, goal, str(path))


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
