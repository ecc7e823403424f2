"""Makes the pre-planned motions of a work cell, once: ``python -m safe_sysid.studies.experiments.cell.make_motions a``.

As in the PSO paper (section VI-D3): one fast motion per dumbbell from the ready pose to its place, two quintics of 1 s,
of least jerk, free of obstacles and inside the limits, with the model of the *8 lb* dumbbell in the hand. The slow
lifts from the rack to the ready pose are quintics through a point above the rack.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import yaml

from safe_sysid.core.arrays import FloatArray
from safe_sysid.planning.motions.fast_motion import FastMotion, LimitDistances, MotionRefusedError, fast_motion
from safe_sysid.planning.motions.knot_family import KnotFamily
from safe_sysid.planning.task.inverse_kinematics import goal_from_pose
from safe_sysid.robot.files.yaml_file import read_yaml
from safe_sysid.robot.loading import load_robot
from safe_sysid.robot.model import Body, RobotModel
from safe_sysid.robot.scenes.obstacles import rotation_from_rpy
from safe_sysid.robot.scenes.scene import Scene
from safe_sysid.simulation.payloads import theta_e_with_payload
from safe_sysid.studies.experiments.cell.dumbbells import box_around, in_hand
from safe_sysid.studies.experiments.cell.workcell import (
    GRIP,
    Dumbbell,
    Workcell,
    digest,
    load_workcell,
    motion_file,
    tool_axes,
    wanted_motions,
)
from safe_sysid.trajectories.quintic import QuinticTrajectory

__all__ = ["carry", "holding", "lift", "main", "pose_for", "surroundings", "theta_with"]

#: Elbow up, hand down, straight ahead: where the search for the ready pose begins.
_HAND_DOWN = (0.0, 0.35, math.pi, -1.45, 0.0, -1.34, math.pi)
_FAST = (1.0, 1.0)
_ATTEMPTS = 4


def pose_for(model: RobotModel, position: FloatArray, rotation: FloatArray, near: FloatArray) -> FloatArray:
    """Joint angles (n,) with a dumbbell at a pose in the hand, the nearest to others.

    ``position``: (3,) of the dumbbell's middle, m; ``rotation``: (3, 3) its axes; ``near``: (n,) rad.
    """
    tool = tool_axes(rotation)
    return goal_from_pose(model, position - tool @ GRIP, tool, near)


def theta_with(model: RobotModel, dumbbell: Dumbbell) -> FloatArray:
    """Nominal arm (14 n,) with a dumbbell in its hand."""
    theta = model.theta_nominal.copy()
    hand = model.layout.payload
    theta[hand] = theta_e_with_payload(model, theta[hand], in_hand(dumbbell.payload))
    return theta


def holding(model: RobotModel, dumbbell: Dumbbell) -> RobotModel:
    """The arm with a dumbbell's own hull in the place of the payload's envelope."""
    rotation, position = model.flange
    turn = tool_axes(np.eye(3)).T
    corners = np.concatenate(
        [s.corners() @ s.rotation.T + s.position for s in dumbbell.payload.shapes if s.kind == "hexagon"]
    )
    points = position + (GRIP + corners @ turn.T) @ rotation.T
    bodies = [body for body in model.bodies if body.kind != "payload"]
    return replace(model, bodies=(*bodies, Body("payload", model.n - 1, points, 0.0, "payload")))


def surroundings(cell: Workcell, carried: str) -> Scene:
    """Work cell while a dumbbell is carried: those before it stand in the stack, those after it in the rack."""
    boxes, placed = [], True
    for item in cell.dumbbells:
        if item.name == carried:
            placed = False
            continue
        position = cell.target(item.name) if placed else item.position
        boxes.append(box_around(item, position, cell.place_rotation if placed else item.rotation))
    return replace(cell.scene, obstacles=(*cell.scene.obstacles, *boxes), start=None)


def lift(model: RobotModel, cell: Workcell, item: Dumbbell, ready: FloatArray) -> QuinticTrajectory:
    """Slow motion of least jerk from the rack to ``ready`` (n,), rad, through a point above the rack.

    Raises SafeSysIdError: the hand cannot reach the dumbbell.
    """
    wanted = wanted_motions(cell.file)
    pick = pose_for(model, item.position, item.rotation, ready)
    above = pose_for(model, item.position + np.array([0.0, 0.0, wanted.lift_height]), item.rotation, pick)
    way = np.array([np.abs(above - pick).max(), np.abs(ready - above).max()])
    pieces = 1.0 + way / wanted.lift_velocity
    while True:
        family = KnotFamily(pick, ready, pieces)
        motion = family.trajectory(family.smoothest(above[None]))
        fastest = np.abs(motion.states(np.linspace(0.0, motion.duration, 2000))).max(axis=(0, 2))
        limits = (wanted.lift_velocity, wanted.lift_acceleration, wanted.lift_jerk)
        ratio = max((fastest[k] / limits[k - 1]) ** (1.0 / k) for k in (1, 2, 3))
        if ratio <= 1.0:
            return motion
        pieces = pieces * max(ratio, 1.01)


def carry(
    model: RobotModel,
    cell: Workcell,
    item: Dumbbell,
    ready: FloatArray,
    near: FloatArray,
    seed: int,
    via: FloatArray | None,
) -> FastMotion:
    """The fast motion of one dumbbell, from the ready pose to just above its place.

    ``ready``, ``near``: (n,) rad, where it begins, and a pose near its end; ``via``: (K, n) rad, on the way, or None.

    Raises MotionRefusedError: no motion keeps the limits.
    """
    wanted = wanted_motions(cell.file)
    over = cell.target(item.name) + np.array([0.0, 0.0, cell.gap if cell.release else 0.0])
    goal = pose_for(model, over, cell.place_rotation, near)
    heaviest = max(cell.dumbbells, key=lambda other: other.payload.theta[0])
    keep = LimitDistances(clearance=wanted.clearance, torque=wanted.torque_margin)
    scene = surroundings(cell, item.name)
    arm, theta = holding(model, item), theta_with(model, heaviest)
    for attempt in range(_ATTEMPTS):
        try:
            return fast_motion(arm, theta, scene, ready, goal, _FAST, keep=keep, seed=seed + attempt, via=via)
        except MotionRefusedError as error:
            print(f"{item.name}: seed {seed + attempt}: {error}", flush=True)
            if attempt == _ATTEMPTS - 1:
                raise
    raise AssertionError  # pragma: no cover


def _plain(motion: QuinticTrajectory) -> dict:
    return {"times": motion.times.tolist(), "knots": motion.knots.tolist()}


def main(arguments: Sequence[str] | None = None) -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("workcell", help="a, b, c or the path of a YAML file")
    parser.add_argument("--robot", default="kinova_gen3")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args(arguments)
    model, cell = load_robot(options.robot), load_workcell(options.workcell, motions=False)
    wanted = wanted_motions(cell.file)
    ahead = np.array(_HAND_DOWN)
    x, y, _ = wanted.ready_xyz
    turned = ahead + np.array([-math.atan2(y, x), *(0.0,) * (model.n - 1)])
    yaw = np.array([0.0, 0.0, wanted.ready_yaw])
    ready = pose_for(model, np.array(wanted.ready_xyz), rotation_from_rpy(yaw), turned)
    tasks = []
    near, via = ahead, None
    for item in cell.dumbbells:
        slow = lift(model, cell, item, ready)
        fast = carry(model, cell, item, ready, near, options.seed, via)
        near, via = fast.trajectory.knots[-1, 0], fast.trajectory.knots[1:-1, 0]
        print(f"{item.name}: lift {slow.duration:.2f} s; carry {fast.summary()}", flush=True)
        tasks.append({"dumbbell": item.name, "lift": _plain(slow), "carry": _plain(fast.trajectory)})
    made = {"made_for": digest(read_yaml(cell.file)), "ready": ready.tolist(), "tasks": tasks}
    path = motion_file(Path(cell.file))
    head = "# Made by `python -m safe_sysid.studies.experiments.cell.make_motions`; do not edit. Knots: q, qd, qdd.\n"
    path.write_text(head + yaml.safe_dump(made, sort_keys=False, default_flow_style=None, width=118))


if __name__ == "__main__":
    main()
