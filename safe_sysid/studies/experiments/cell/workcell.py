"""Work cells of the experiments: what stands where, what is moved where, and what counts as success, from YAML files.

A work cell is two files: the hand-written one, and beside it the motions that :mod:`~.cell.make_motions` made for it,
with a digest of the geometry that they were made for.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from safe_sysid.core.arrays import FloatArray
from safe_sysid.errors import ConfigError, ParameterError
from safe_sysid.robot.files.yaml_file import read_yaml, validate
from safe_sysid.robot.model import RobotModel
from safe_sysid.robot.parameters import frozen_array
from safe_sysid.robot.scenes.obstacles import SceneBox, rotation_from_rpy
from safe_sysid.robot.scenes.scene import Scene, config_path
from safe_sysid.simulation.payloads import Payload, hexagonal_dumbbell
from safe_sysid.studies.experiments.cell.settling import SurfaceFriction
from safe_sysid.studies.experiments.cell.workcell_file import MotionFile, MotionsWanted, WorkcellFile
from safe_sysid.studies.experiments.interfaces import CarryTask
from safe_sysid.trajectories.quintic import QuinticTrajectory

__all__ = ["GRIP", "Criteria", "Dumbbell", "Timing", "Workcell", "load_workcell", "tool_axes"]

#: Where the hand holds a dumbbell, in the tool frame, m.
GRIP = np.array([0.0, 0.0, 0.14])
#: Axes of a dumbbell in the tool frame when it is held: the same handle, up where the tool's z points down.
GRASP_TURN = np.diag([-1.0, 1.0, -1.0])
#: How much longer the empty hand takes to go back than a dumbbell was carried.
SLOWER = 1.0
#: How much of a lift's time it takes the empty hand to go the other way.
APPROACH_PACE = 0.5
_NAMES = ("a", "b", "c")


@dataclass(frozen=True, eq=False)
class Dumbbell:
    """A dumbbell in the rack; its own frame: origin in the middle, y along the handle, flats across z."""

    name: str  #: such as "8lb"
    payload: Payload  #: solids and parameters in its own frame
    position: FloatArray  #: (3,) m, in the rack
    rotation: FloatArray  #: (3, 3) in the rack

    @property
    def height(self) -> float:
        """Across the flats of its heads, m: what it adds to a stack."""
        return self.payload.shapes[1].size[0]


@dataclass(frozen=True, eq=False)
class Criteria:
    """What counts as success; fixed in the work cell's file before any method is run."""

    position: float  #: m, from the place to the dumbbell's centre after settling; also of those placed before
    angle: float  #: rad, the same
    torque: FloatArray  #: (n,) N m; a larger command counts as saturation
    drive_torque: FloatArray  #: (n,) N m, where the simulated drives saturate: the hard thresholds


@dataclass(frozen=True)
class Timing:
    """Times of the choreography, s."""

    grasp: float  #: at rest after the weld
    hold: float  #: at rest before the release
    settle: float  #: at least, after the release
    settle_most: float  #: at most, until everything is quiet


@dataclass(frozen=True, eq=False)
class Workcell:
    """One experiment's work cell."""

    name: str  #: "a", "b", "c" or a file's own
    title: str
    scene: Scene  #: table, rack, platform, obstacles, all boxes; its start is the ready pose
    dumbbells: tuple[Dumbbell, ...]  #: in the rack, in the order in which they are moved
    supports: tuple[str, ...]  #: names of boxes that a dumbbell may touch until it is lifted
    place: FloatArray  #: (3,) m: point on top of the platform, or, where nothing is released, the end of the motion
    place_rotation: FloatArray  #: (3, 3) of dumbbells there
    release: bool  #: whether dumbbells are put down and stacked (else the run ends when the carry is over)
    gap: float  #: m, between a dumbbell at its place pose and what it will fall on
    friction: SurfaceFriction
    criteria: Criteria
    timing: Timing
    ready: FloatArray  #: (n,) rad, where identification and carry begin
    tasks: tuple[CarryTask, ...]  #: one per dumbbell
    file: str

    def dumbbell(self, name: str) -> Dumbbell:
        """A dumbbell by name. Raises ConfigError: there is none of that name."""
        for item in self.dumbbells:
            if item.name == name:
                return item
        known = ", ".join(item.name for item in self.dumbbells)
        raise ConfigError(self.file, "dumbbells", name, f"one of {known}")

    def target(self, name: str) -> FloatArray:
        """Centre (3,) of a dumbbell when it stands where it belongs, m."""
        if not self.release:
            return self.place
        height = 0.0
        for item in self.dumbbells:
            if item.name == name:
                break
            height += item.height
        return np.asarray(self.place + np.array([0.0, 0.0, height + 0.5 * self.dumbbell(name).height]))


def tool_axes(rotation: FloatArray) -> FloatArray:
    """Tool frame's axes (3, 3) when it holds a dumbbell with axes ``rotation`` (3, 3) from above."""
    return np.asarray(rotation @ GRASP_TURN.T)


def motion_file(path: Path) -> Path:
    """Where the motions of a work cell's file are kept."""
    return path.with_name(f"{path.stem}_motions{path.suffix}")


def digest(data: dict[str, Any]) -> str:
    """Of all that motions depend on in a work cell's file."""
    keys = ("boxes", "allowed_pairs", "dumbbells", "place", "motions")
    text = json.dumps({key: data.get(key) for key in keys}, sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def reversed_motion(motion: QuinticTrajectory, slower: float) -> QuinticTrajectory:
    """The same way back, ``slower`` times as long; both ends at rest. ``slower``: factor."""
    times = slower * (motion.duration - motion.times[::-1])
    scale = np.array([1.0, -1.0 / slower, 1.0 / slower**2])[None, :, None]
    return QuinticTrajectory(times, motion.knots[::-1] * scale)


def load_workcell(name_or_path: str | Path, motions: bool = True) -> Workcell:
    """Load a work cell and its motions.

    Args:
        name_or_path: "a", "b" or "c" for those of the PSO paper, or the path of a YAML file.
        motions: whether to load them; without, the work cell has no tasks (to make them).

    Raises:
        ConfigError: no such work cell, a value that is missing, unknown or out of range, or motions that are missing
            or were made for another geometry.
    """
    name = f"pso_{name_or_path}" if str(name_or_path) in _NAMES else name_or_path
    path = config_path(name, "config/experiments")
    data = read_yaml(path)
    file = str(path)
    parsed = validate(file, data, WorkcellFile)
    boxes = tuple(SceneBox(box.name, np.array(box.xyz), np.array(box.rpy), np.array(box.size)) for box in parsed.boxes)
    known = {box.name for box in boxes}
    for i, support in enumerate(parsed.supports):
        if support not in known:
            raise ConfigError(file, f"supports[{i}]", support, f"one of the boxes {', '.join(sorted(known))}")
    dumbbells: list[Dumbbell] = []
    for item in parsed.dumbbells:
        try:
            payload = hexagonal_dumbbell(item.pounds, np.zeros(3), item.name)
        except ParameterError as error:
            raise ConfigError(file, f"dumbbells[{len(dumbbells)}]", item.pounds, str(error)) from error
        middle = np.array(item.xyz) + np.array([0.0, 0.0, 0.5 * payload.shapes[1].size[0]])
        dumbbells.append(Dumbbell(item.name, payload, middle, _yaw(item.yaw)))
        if item.name in known:
            raise ConfigError(file, "dumbbells", item.name, "a name that no box and no other dumbbell has")
        known.add(item.name)
    ready, tasks = np.zeros(0), ()
    pairs = frozenset(frozenset(pair) for pair in parsed.allowed_pairs)
    cell = Workcell(
        parsed.name,
        parsed.title,
        Scene(parsed.name, boxes, pairs, file=file),
        tuple(dumbbells),
        parsed.supports,
        np.array(parsed.place.xyz),
        _yaw(parsed.place.yaw),
        parsed.place.release,
        parsed.place.gap,
        SurfaceFriction(**parsed.friction.model_dump()),
        Criteria(
            parsed.criteria.position,
            parsed.criteria.angle,
            frozen_array(parsed.criteria.torque, None, "criteria.torque"),
            frozen_array(parsed.criteria.drive_torque, None, "criteria.drive_torque"),
        ),
        Timing(**parsed.timing.model_dump()),
        ready,
        tasks,
        file,
    )
    return _with_motions(cell, path, digest(data)) if motions else cell


def _yaw(angle: float) -> FloatArray:
    return rotation_from_rpy((0.0, 0.0, angle))


def _with_motions(cell: Workcell, path: Path, wanted: str) -> Workcell:
    made = motion_file(path)
    if not made.is_file():
        raise ConfigError(cell.file, "motions", str(made), "a file that exists (made by make_motions)")
    parsed = validate(str(made), read_yaml(made), MotionFile)
    if parsed.made_for != wanted:
        raise ConfigError(
            str(made), "made_for", parsed.made_for, f"{wanted}, the digest of {cell.file}: make the motions anew"
        )
    names = [item.name for item in cell.dumbbells]
    if [task.dumbbell for task in parsed.tasks] != names:
        raise ConfigError(str(made), "tasks", [t.dumbbell for t in parsed.tasks], f"those of {names}, in order")
    tasks = []
    for task in parsed.tasks:
        lift, carry = task.lift.trajectory(), task.carry.trajectory()
        retract = reversed_motion(carry, SLOWER) if cell.release else None
        tasks.append(CarryTask(task.dumbbell, lift.knots[0, 0], lift, carry, retract))
    ready = frozen_array(parsed.ready, None, "ready")
    return replace(cell, ready=ready, tasks=tuple(tasks), scene=replace(cell.scene, start=ready))


def wanted_motions(file: str | Path) -> MotionsWanted:
    """What a work cell's file says of the motions to make."""
    return validate(str(file), read_yaml(file), WorkcellFile).motions


def check_fits(cell: Workcell, model: RobotModel) -> None:
    """Check what only a robot can tell.

    Raises ConfigError: numbers of joints, or names in allowed pairs, that do not fit.
    """
    cell.scene.check(model)
    for key in ("torque", "drive_torque"):
        value = getattr(cell.criteria, key)
        if value.size != model.n or not np.all(value > 0.0):
            raise ConfigError(cell.file, f"criteria.{key}", value.tolist(), f"{model.n} numbers > 0")
    for task in cell.tasks:
        if task.carry.n != model.n:
            raise ConfigError(cell.file, "motions", task.carry.n, f"motions of {model.n} joints")
