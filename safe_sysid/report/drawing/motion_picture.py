"""Picture of a planned motion: joints, tool and margins over time, and the way seen from above and from the side."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from scipy.spatial import ConvexHull, QhullError

from safe_sysid.core.arrays import FloatArray
from safe_sysid.decimals import at_least
from safe_sysid.picture_style import new_figure, save_figure, style_axis
from safe_sysid.planning.certification.certificate import FAMILIES, PlanCertificate
from safe_sysid.planning.task.inverse_kinematics import tool_pose
from safe_sysid.robot.frames import forward_kinematics
from safe_sysid.robot.margin import Margin
from safe_sysid.robot.model import RobotModel
from safe_sysid.robot.scenes.scene import Scene
from safe_sysid.trajectories.plan import Plan

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["draw_motion"]

_GRID, _LIMIT, _SOLID, _ARM = "#d8dde3", "#c1121f", "#c9ced6", "#1f6fb4"
_JOINTS = ("#1f6fb4", "#e08e0b", "#2a9d5c", "#8a4fbe", "#b5651d", "#d1609c", "#5c6770", "#9aa516", "#17a2b8")
_SAMPLES = 60  # per plan
_SKELETONS = 9


def draw_motion(
    path: str | Path,
    model: RobotModel,
    scene: Scene,
    steps: Sequence[tuple[Plan, PlanCertificate]],
    waypoints: FloatArray | None,
    title: str,
) -> None:
    """Draw what is driven of each plan: until the next one begins, the last one to its end.

    Args:
        steps: plans in the order in which they are driven, with their certificates; at least one.
        waypoints: (W, n) rad, marked; None for none.
    """
    figure = new_figure(15.0, 9.0, title)
    grid = figure.add_gridspec(3, 12)
    ends = [*(plan.start_time for plan, _ in steps[1:]), steps[-1][0].end_time]
    times, q = _motion([plan for plan, _ in steps], ends)
    joints = figure.add_subplot(grid[0, :6])
    for j, name in enumerate(model.joint_names):
        joints.plot(times, q[:, j], color=_JOINTS[j % len(_JOINTS)], lw=1.4, label=name)
        if waypoints is not None:
            arrived = [times[int(np.argmin(np.abs(model.shortest_way(q - w)).max(axis=1)))] for w in waypoints]
            shown = [q[times == t][0, j] for t in arrived]
            joints.plot(arrived, shown, "o", ms=4, color=_JOINTS[j % len(_JOINTS)])
    for plan, _ in steps:
        joints.axvline(plan.start_time, color=_GRID, lw=1.0, zorder=0)
    joints.set_title("joint positions [rad], each plan's start as a line", fontsize=10.5, loc="left")
    joints.legend(fontsize=7.5, framealpha=0.7, edgecolor="none", ncols=5, loc="best")
    for place, (a, b), name in ((grid[0, 6:9], (0, 1), "from above"), (grid[0, 9:], (0, 2), "from the side")):
        _view(figure.add_subplot(place), model, scene, q, a, b, name)
    for i, family in enumerate(FAMILIES):
        row, column = divmod(i, 3)
        _margins(figure.add_subplot(grid[1 + row, 4 * column : 4 * column + 4]), family, steps, ends)
    for axis in figure.axes:
        style_axis(axis)
    save_figure(figure, path)


def _motion(plans: Sequence[Plan], ends: Sequence[float]) -> tuple[FloatArray, FloatArray]:
    """Times (N,) and positions (N, n) that are driven."""
    times, positions = [], []
    for plan, end in zip(plans, ends, strict=True):
        t = np.linspace(plan.start_time, max(end, plan.start_time), _SAMPLES)
        times.append(t)
        positions.append(plan.trajectory.states(t - plan.start_time)[:, 0])
    return np.concatenate(times), np.concatenate(positions)


def _view(axis: Axes, model: RobotModel, scene: Scene, q: FloatArray, a: int, b: int, name: str) -> None:
    """Obstacles' outlines, the arm at some instants as lines between its joints, the tool's path."""
    tool = np.array([tool_pose(model, angles)[0] for angles in q])
    reach = 1.15 * max(float(np.abs(tool[:, [a, b]]).max()), 0.3)
    for obstacle in scene.obstacles:
        flat = np.asarray(obstacle.points)[:, [a, b]]
        try:
            corners = flat[ConvexHull(flat).vertices] if len(flat) > 2 else flat
        except QhullError:
            corners = flat
        axis.fill(corners[:, 0], corners[:, 1], color=_SOLID, alpha=0.45, lw=0)
        if obstacle.radius > 0.0:
            axis.plot(flat[:, 0], flat[:, 1], "o", color=_SOLID, ms=6)
    for i, angles in enumerate(q[np.linspace(0, len(q) - 1, _SKELETONS).astype(int)]):
        origins = forward_kinematics(model.kinematics, angles)[1]
        line = np.vstack([np.zeros(3), origins, tool_pose(model, angles)[0]])
        shade = 0.2 + 0.8 * i / (_SKELETONS - 1)
        axis.plot(line[:, a], line[:, b], color=_ARM, alpha=shade, lw=1.2, solid_capstyle="round")
    axis.plot(tool[:, a], tool[:, b], color=_LIMIT, lw=1.4)
    axis.set_xlim(-reach, reach)
    low = -reach if b == 1 else min(-0.05, float(tool[:, b].min()) - 0.1)
    axis.set_ylim(low, low + 2.0 * reach)
    axis.set_aspect("equal")
    axis.set_title(f"{name}: {'xyz'[a]}, {'xyz'[b]} [m]", fontsize=10.5, loc="left")


def _margins(axis: Axes, family: str, steps: Sequence[tuple[Plan, PlanCertificate]], ends: Sequence[float]) -> None:
    """Smallest certified margin of a family at every instant that is driven."""
    worst = Margin.unconstrained(family)
    for (plan, certificate), end in zip(steps, ends, strict=True):
        values = np.asarray(certificate.margins[family])
        if not values.size:
            continue
        edges = plan.start_time + np.asarray(certificate.grid)
        axis.stairs(
            np.clip(values.min(axis=1)[edges[:-1] < end], -1e3, 1e3),
            np.minimum(edges[: int(np.count_nonzero(edges[:-1] < end)) + 1], end),
            color=_ARM,
            lw=1.3,
            baseline=None,
        )
        worst = min(worst, certificate.families[family], key=lambda margin: margin.value)
    for (_, _), end in zip(steps, ends, strict=True):
        axis.axvline(end, color=_GRID, lw=1.0, zorder=0)
    axis.axhline(0.0, color=_LIMIT, lw=1.2)
    axis.set_title(f"{family.replace('_', ' ')} margin [{worst.unit}]", fontsize=10.5, loc="left")
    told = "unconstrained" if worst.value == math.inf else f"smallest {at_least(worst.value)}: {worst.culprit}"
    axis.set_xlabel(f"time [s]; {told}", fontsize=9)
