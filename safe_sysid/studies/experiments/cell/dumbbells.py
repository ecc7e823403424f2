"""Dumbbells: in the hand, around the arm, as boxes; and arms that can hold every one of them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike

from safe_sysid.core.arrays import FloatArray
from safe_sysid.errors import ParameterError
from safe_sysid.robot.model import RobotModel
from safe_sysid.robot.parameters import transform_inertial
from safe_sysid.robot.scenes.obstacles import Obstacle, SceneBox, SceneCapsule, SceneMesh, rpy_from_rotation
from safe_sysid.simulation.arms import draw_truth
from safe_sysid.simulation.payloads import Payload, check_inside_prior, theta_e_with_payload
from safe_sysid.simulation.shapes import Shape
from safe_sysid.studies.experiments.cell.workcell import GRIP, Dumbbell, tool_axes

__all__ = ["angle_between", "box_around", "draw_arm", "in_hand", "solids_of"]

_REDRAWS = 50
_INWARDS = 1e-9


def in_hand(payload: Payload, position: ArrayLike = GRIP, rotation: ArrayLike | None = None) -> Payload:
    """A dumbbell given in its own frame, as a payload in the tool frame.

    Args:
        payload: in the dumbbell's own frame.
        position: (3,) of the dumbbell's middle in the tool frame, m.
        rotation: (3, 3) of the dumbbell in the tool frame; None: held as it should be.
    """
    p = np.asarray(position, float)
    r = tool_axes(np.eye(3)).T if rotation is None else np.asarray(rotation, float)
    shapes = tuple(Shape(s.kind, s.size, p + r @ s.position, r @ s.rotation) for s in payload.shapes)
    return Payload(payload.name, transform_inertial(r, p, payload.theta), shapes)


def draw_arm(model: RobotModel, payloads: Sequence[Payload], seed: int, mode: str = "uniform") -> FloatArray:
    """True parameters (14 n,) of an arm with an *empty* hand, inside the prior with each payload in its hand.

    Raises ParameterError: a payload does not fit the prior (named parameter).

    Args:
        payloads: in the tool frame.
        seed: the same one gives the same arm.
        mode: one of :data:`~safe_sysid.simulation.arms.DRAW_MODES`.
    """
    rng = np.random.default_rng(seed)
    hand = model.layout.payload
    heaviest = max(payloads, key=lambda payload: payload.theta[0])
    for attempt in range(_REDRAWS):
        theta = draw_truth(model, heaviest, rng, mode)
        theta[hand] -= transform_inertial(*model.payload_frame, heaviest.theta)
        # A corner lies on the edge of what is a body; what adding and subtracting rounded must not push it over.
        theta[hand] += _INWARDS * (model.theta_nominal[hand] - theta[hand])
        try:
            for payload in payloads:
                check_inside_prior(model, theta_e_with_payload(model, theta[hand], payload), payload)
            return theta
        except ParameterError:
            if attempt == _REDRAWS - 1 or mode == "nominal":
                raise
    raise AssertionError  # pragma: no cover


def box_around(item: Dumbbell, position: FloatArray, rotation: FloatArray) -> SceneBox:
    """Smallest box along its own axes around a dumbbell at a pose.

    ``position``: (3,) of its middle, m; ``rotation``: (3, 3) its axes.
    """
    bounds = [shape.bounding_box() for shape in item.payload.shapes]
    size = np.max([high for _, high in bounds], axis=0) - np.min([low for low, _ in bounds], axis=0)
    return SceneBox(item.name, position, rpy_from_rotation(rotation), size)


def angle_between(one: FloatArray, two: FloatArray) -> float:
    """Angle (rad) of the rotation from one frame's axes (3, 3) to another's. ``one``: (3, 3); ``two``: (3, 3)."""
    r = one @ two.T
    skew = np.array([r[2, 1] - r[1, 2], r[0, 2] - r[2, 0], r[1, 0] - r[0, 1]])
    return float(np.arctan2(np.linalg.norm(skew), np.trace(r) - 1.0))


def solids_of(item: Dumbbell, position: FloatArray, rotation: FloatArray) -> list[Obstacle]:
    """A dumbbell's solids, named "<dumbbell>/<number>": heads as they are, its handle as a capsule inside of them.

    ``position``: (3,) of its middle, m; ``rotation``: (3, 3) its axes.
    """
    out: list[Obstacle] = []
    for i, shape in enumerate(item.payload.shapes):
        name, xyz = f"{item.name}/{i}", position + rotation @ shape.position
        rpy = rpy_from_rotation(rotation @ shape.rotation)
        if shape.kind == "cylinder":
            out.append(SceneCapsule(name, xyz, shape.size[0], rpy, shape.size[1]))
        else:
            out.append(SceneMesh(name, xyz, rpy, shape.corners()))
    return out
