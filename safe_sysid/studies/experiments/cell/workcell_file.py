"""Sections of a work cell's YAML files: the hand-written one, and that of the motions made for it."""

from __future__ import annotations

from typing import Annotated

import numpy as np
from pydantic import BeforeValidator, Field

from safe_sysid.schema.fields import Name, NamePair, NonNegative, Pose, Positive, Size3, StrictModel, Vector3, as_tuple
from safe_sysid.trajectories.quintic import QuinticTrajectory

__all__ = ["MotionFile", "MotionsWanted", "WorkcellFile"]


class _WorkcellBoxFile(StrictModel):
    name: Name
    xyz: Vector3
    rpy: Vector3 = (0.0, 0.0, 0.0)
    size: Size3


class _DumbbellFile(StrictModel):
    name: Name
    pounds: Positive
    xyz: Vector3
    yaw: float = 0.0


class _PlaceFile(StrictModel):
    xyz: Vector3
    yaw: float = 0.0
    release: bool = True
    gap: NonNegative = 0.0


class _FrictionFile(StrictModel):
    sliding: Positive
    torsional: NonNegative
    rolling: NonNegative


class _CriteriaFile(StrictModel):
    position: Positive
    angle: Positive
    torque: Pose
    drive_torque: Pose


class _TimingFile(StrictModel):
    grasp: Positive
    hold: Positive
    settle: Positive
    settle_most: Positive


class MotionsWanted(StrictModel):
    """What the motions are made with: the ready pose, limits of the lift, distances to keep of the fast motion."""

    ready_xyz: Vector3
    ready_yaw: float = 0.0
    lift_height: Positive
    lift_velocity: Positive
    lift_acceleration: Positive
    lift_jerk: Positive
    clearance: Positive
    torque_margin: NonNegative


class WorkcellFile(StrictModel):
    """The hand-written file."""

    name: Name
    title: Name
    boxes: Annotated[tuple[_WorkcellBoxFile, ...], BeforeValidator(as_tuple), Field(min_length=1)]
    allowed_pairs: Annotated[tuple[NamePair, ...], BeforeValidator(as_tuple)] = ()
    dumbbells: Annotated[tuple[_DumbbellFile, ...], BeforeValidator(as_tuple), Field(min_length=1)]
    supports: Annotated[tuple[Name, ...], BeforeValidator(as_tuple)]
    place: _PlaceFile
    friction: _FrictionFile
    criteria: _CriteriaFile
    timing: _TimingFile
    motions: MotionsWanted


class _Knots(StrictModel):
    """A trajectory, knot by knot: times, then position, velocity and acceleration."""

    times: Pose
    knots: Annotated[tuple[Annotated[tuple[Pose, ...], BeforeValidator(as_tuple)], ...], BeforeValidator(as_tuple)]

    def trajectory(self) -> QuinticTrajectory:
        return QuinticTrajectory(np.array(self.times), np.array(self.knots))


class _TaskFile(StrictModel):
    dumbbell: Name
    lift: _Knots
    carry: _Knots


class MotionFile(StrictModel):
    """The motions, and the digest of the geometry that they were made for."""

    made_for: Name
    ready: Pose
    tasks: Annotated[tuple[_TaskFile, ...], BeforeValidator(as_tuple)]
