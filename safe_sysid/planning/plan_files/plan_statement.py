"""Statement of a plan file: robot, scene and gains that its certificate rests on, and differences of two statements.

A plan file states all of it. A checker never computes with what is stated: it compares, and computes with the robot,
the scene and the gains that it trusts. So the comparison may forgive what another machine rounds (:data:`SAME`): it
answers "is this the file of that robot?", and no margin rests on it.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar

import numpy as np
from pydantic import Field

from safe_sysid.control.laws.robust import RobustLaw
from safe_sysid.control.tube import MeasuredTube, TrackingTube
from safe_sysid.core.arrays import FloatArray
from safe_sysid.robot.config import per_joint
from safe_sysid.robot.files.yaml_file import validate
from safe_sysid.robot.identity import identity, scene_identity, statement
from safe_sysid.robot.model import RobotModel
from safe_sysid.robot.scenes.obstacles import Obstacle
from safe_sysid.robot.scenes.scene import Scene
from safe_sysid.schema.fields import Name, NamePair, StrictModel, Vector3

__all__ = [
    "LOCKSTEP",
    "REAL_TIME",
    "SAME",
    "gains_statement",
    "robot_statement",
    "scene_statement",
    "stated_scene",
    "timing_of",
]

#: Numbers are the same up to this, relative and (in SI units) absolute.
SAME = 1e-9
#: What the gains of a plan are for: the timing that the robot declares, or a plant that waits for every command.
REAL_TIME, LOCKSTEP = "real-time", "lock-step"
_MOST_POINTS, _MOST_OBSTACLES = 4096, 1000


def robot_statement(model: RobotModel) -> dict[str, Any]:
    """Everything of a robot that the certificate of a plan rests on, and bounds in its box: scope ``plans``."""
    return statement({"name": model.name, **identity(model, "plans")})


def scene_statement(scene: Scene) -> dict[str, Any]:
    """Obstacles of a scene as hulls of points in the world (m), inflated by a radius (m), and its allowed pairs."""
    return statement({"name": scene.name, **scene_identity(scene)})


@dataclass(frozen=True, eq=False)
class _Stated(Obstacle):
    """A hull as a file states it, its points in the world."""

    kind: ClassVar[str] = "mesh"
    xyz: FloatArray
    corners: FloatArray
    inflated: float

    def _hull(self) -> tuple[FloatArray, float]:
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
    """The scene that a file states, believed. ``stated``: as :func:`scene_statement` gives it.

    Raises:
        SafeSysIdError: malformed.
    """
    part = validate("scene", stated, _ScenePart)
    obstacles = tuple(
        _Stated(name, np.zeros(3), np.array(hull.points, float), hull.radius) for name, hull in part.obstacles.items()
    )
    return Scene(part.name, obstacles, frozenset(frozenset(pair) for pair in part.allowed_pairs))


def timing_of(gains: TrackingTube, model: RobotModel) -> str:
    """:data:`REAL_TIME` if the gains bear the timing that the robot declares, else :data:`LOCKSTEP`."""
    assumed, declared = gains.assumptions, model.settings.timing
    bears = assumed.hold_max >= declared.hold_max_s and assumed.delay_max >= declared.delay_max_s
    return REAL_TIME if bears else LOCKSTEP


def gains_statement(gains: TrackingTube, model: RobotModel) -> dict[str, Any]:
    """Gains, tracking bound, the timing that they are for, what the bound's theorem assumes, and the law; SI units.

    Of the robust law, whose gains these are, nothing is said; of another its name and its section. Of a measured tube
    all but where it comes from and what its watch stops at: whoever computes the tube checks that the outer one covers
    the inner one and the latency.
    """
    if isinstance(gains, MeasuredTube):
        return _tube_statement(gains, model)
    # The box is the robot's prior, which the robot's statement holds.
    skipped = ("assumptions", "box")
    own = {f.name: getattr(gains, f.name) for f in dataclasses.fields(gains) if f.name not in skipped}
    if gains.own_damping == 0.0:
        del own["own_damping"]  # plans of a constant K_d say nothing of it
    assumed = {f.name: getattr(gains.assumptions, f.name) for f in dataclasses.fields(gains.assumptions)}
    if not np.any(gains.assumptions.feed_forward):
        del assumed["feed_forward"]  # plans of arms without one say nothing of it
    name, laws = model.settings.controller.law, model.settings.controller.laws
    law = {} if name == RobustLaw.name else {"law": {"name": name, "settings": getattr(laws, name, None)}}
    return statement({"timing": timing_of(gains, model), **own, "assumptions": assumed, **law})


def _tube_statement(tube: MeasuredTube, model: RobotModel) -> dict[str, Any]:
    declared, n = model.settings.controller.tube, model.n
    measured: dict[str, Any] = {
        f"largest_{name}": per_joint(getattr(declared, f"largest_{name}"), n)
        for name in ("velocity", "acceleration", "jerk")
    }
    measured |= {"heaviest": declared.heaviest, "latency_s": declared.latency_s} if declared else {}
    rests_on = {name: getattr(tube.assumptions, name) for name in ("velocity", "acceleration", "jerk")}
    outer = {name: getattr(tube, name) for name in ("e_bound", "de_bound", "dde_bound")}
    return statement({"timing": timing_of(tube, model), **outer, "measured": measured, "assumptions": rests_on})
