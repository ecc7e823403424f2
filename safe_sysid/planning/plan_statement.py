"""What a plan's certificate rests on, in words and numbers: robot, scene, gains; and what differs from another one.

A plan file states all of it. A checker never computes with what is stated: it compares, and computes with the robot,
the scene and the gains that it trusts. So the comparison may forgive what another machine rounds (:data:`SAME`): it
answers "is this the file of that robot?", and no margin rests on it.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from safe_sysid.control.gains import ControllerGains
from safe_sysid.robot.identity import digest as identity_digest
from safe_sysid.robot.identity import identity
from safe_sysid.robot.model import RobotModel
from safe_sysid.robot.obstacles import Obstacle
from safe_sysid.robot.scene import Scene
from safe_sysid.robot.yaml_file import validate
from safe_sysid.schema.fields import Name, NamePair, StrictModel, Vector3

__all__ = [
    "LOCKSTEP",
    "REAL_TIME",
    "SAME",
    "differences",
    "digest",
    "gains_statement",
    "robot_statement",
    "scene_statement",
    "stated_scene",
    "timing_of",
]

#: Numbers are the same up to this, relative and (in SI units) absolute.
SAME = 1e-9
_SHA = "sha256"
#: What the gains of a plan are for: the timing that the robot declares, or a plant that waits for every command.
REAL_TIME, LOCKSTEP = "real-time", "lock-step"
_MOST_POINTS, _MOST_OBSTACLES = 4096, 1000


def _plain(value: Any) -> Any:
    """Arrays as lists, infinities as texts (JSON has none)."""
    if isinstance(value, np.ndarray):
        return _plain(value.tolist())
    if isinstance(value, (list, tuple)):
        return [_plain(entry) for entry in value]
    if isinstance(value, Mapping):
        return {str(key): _plain(entry) for key, entry in value.items()}
    if isinstance(value, (bool, str)) or value is None:
        return value
    value = float(value)
    return value if np.isfinite(value) else str(value)


def _with_digest(content: dict[str, Any]) -> dict[str, Any]:
    return {**content, _SHA: digest(content)}


def digest(content: Any) -> str:
    """SHA-256 of JSON content, whatever order or spacing it is written in."""
    text = json.dumps(content, sort_keys=True, separators=(",", ":"), allow_nan=False)
    return hashlib.sha256(text.encode()).hexdigest()


def robot_statement(model: RobotModel) -> dict[str, Any]:
    """Everything of a robot (URDF and YAML, overrides applied) that the certificate of a plan is computed from.

    And the identity of the robot that bounds in its box are of (:mod:`safe_sysid.robot.identity`).

    Args:
        model: the arm.
    """
    kin, limits, prior = model.kinematics, model.limits, model.arm_prior
    return _with_digest(
        _plain(
            {
                "name": model.name,
                "bounds_identity": identity_digest(identity(model, "bounds")),
                "joint_names": model.joint_names,
                "kinematics": kin._asdict(),
                "limits": {f.name: getattr(limits, f.name) for f in dataclasses.fields(limits)},
                "prior": {"lower": prior.lower, "upper": prior.upper},
                "friction_transition_velocity": model.friction_transition_velocity,
                "bodies": {
                    body.name: {"joint": body.joint, "points": body.points, "radius": body.radius}
                    for body in model.bodies
                },
                "allowed_pairs": sorted(sorted(pair) for pair in model.allowed_pairs),
            }
        )
    )


def scene_statement(scene: Scene) -> dict[str, Any]:
    """Obstacles of a scene as hulls of points in the world (m), inflated by a radius (m), and its allowed pairs.

    Args:
        scene: around the arm.
    """
    return _with_digest(
        _plain(
            {
                "name": scene.name,
                "obstacles": {o.name: {"points": o.points, "radius": o.radius} for o in scene.obstacles},
                "allowed_pairs": sorted(sorted(pair) for pair in scene.allowed_pairs),
            }
        )
    )


@dataclass(frozen=True, eq=False)
class _Stated(Obstacle):
    """A hull as a file states it, its points in the world."""

    kind: ClassVar[str] = "mesh"
    xyz: NDArray[np.float64]
    corners: NDArray[np.float64]
    inflated: float

    def _hull(self) -> tuple[NDArray[np.float64], float]:
        return self.corners, self.inflated


class _ObstaclePart(StrictModel):
    points: Annotated[list[Vector3], Field(min_length=1, max_length=_MOST_POINTS)]
    radius: Annotated[float, Field(ge=0.0)]


class _ScenePart(StrictModel):
    name: str
    obstacles: Annotated[dict[Name, _ObstaclePart], Field(max_length=_MOST_OBSTACLES)]
    allowed_pairs: Annotated[list[NamePair], Field(max_length=_MOST_POINTS)]
    sha256: str


def stated_scene(stated: Mapping[str, Any]) -> Scene:
    """The scene that a file states, believed.

    Args:
        stated: as :func:`scene_statement` gives it.

    Raises:
        SafeSysIdError: malformed.
    """
    part = validate("scene", stated, _ScenePart)
    obstacles = tuple(
        _Stated(name, np.zeros(3), np.array(hull.points, float), hull.radius)
        for name, hull in part.obstacles.items()
    )
    return Scene(part.name, obstacles, frozenset(frozenset(pair) for pair in part.allowed_pairs))


def timing_of(gains: ControllerGains, model: RobotModel) -> str:
    """:data:`REAL_TIME` if the gains bear the timing that the robot declares, else :data:`LOCKSTEP`.

    Args:
        gains: of the controller.
        model: the arm.
    """
    assumed, declared = gains.assumptions, model.settings.timing
    bears = assumed.hold_max >= declared.hold_max_s and assumed.delay_max >= declared.delay_max_s
    return REAL_TIME if bears else LOCKSTEP


def gains_statement(gains: ControllerGains, model: RobotModel) -> dict[str, Any]:
    """Gains, tracking bound, the timing that they are for, and what the bound's theorem assumes; SI units.

    Args:
        gains: of the controller.
        model: the arm.
    """
    # The box is the robot's prior, which the robot's statement holds.
    skipped = ("assumptions", "box")
    own = {f.name: getattr(gains, f.name) for f in dataclasses.fields(gains) if f.name not in skipped}
    assumed = {f.name: getattr(gains.assumptions, f.name) for f in dataclasses.fields(gains.assumptions)}
    if not np.any(gains.assumptions.feed_forward):
        del assumed["feed_forward"]  # plans of arms without one say nothing of it
    return _with_digest(_plain({"timing": timing_of(gains, model), **own, "assumptions": assumed}))


def differences(stated: Any, ours: Mapping[str, Any]) -> list[str]:
    """What a statement says that ours does not, one line each; empty if they agree and its digest is its own.

    Args:
        stated: read from a file: anything.
        ours: of the same kind, trusted.
    """
    if not isinstance(stated, dict):
        return [f"{type(stated).__name__}: expected an object"]
    lines = [
        f"{path}: file {_short(theirs)}, here {_short(mine)}"
        for path, theirs, mine in _compare("", {k: v for k, v in stated.items() if k != _SHA}, ours)
    ]
    own = digest({key: value for key, value in stated.items() if key != _SHA})
    if not lines and stated.get(_SHA) != own:
        lines.append(f"{_SHA}: file {_short(stated.get(_SHA))}, its content has {own}")
    return lines


def _compare(path: str, theirs: Any, mine: Any) -> Iterator[tuple[str, Any, Any]]:
    if isinstance(theirs, dict) and isinstance(mine, Mapping):
        for key in [*mine, *(k for k in theirs if k not in mine)]:
            if key == _SHA and not path:
                continue
            missing = "(missing)"
            yield from _compare(
                f"{path}.{key}" if path else str(key), theirs.get(key, missing), mine.get(key, missing)
            )
    elif isinstance(theirs, list) and isinstance(mine, list) and len(theirs) == len(mine):
        for i, (a, b) in enumerate(zip(theirs, mine, strict=True)):
            yield from _compare(f"{path}[{i}]", a, b)
    elif not _same(theirs, mine):
        yield path, theirs, mine


def _same(theirs: Any, mine: Any) -> bool:
    if type(theirs) in (int, float) and type(mine) is float:
        return abs(theirs) < 1e300 and abs(theirs - mine) <= SAME * (1.0 + abs(mine))
    return type(theirs) is type(mine) and bool(theirs == mine)


def _short(value: Any) -> str:
    text = json.dumps(value)
    return text if len(text) <= 80 else text[:77] + "..."
