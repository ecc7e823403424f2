"""Attack on poses, relative poses and swept volumes: where the arm can really be."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np

from safe_sysid.core.arrays import FloatArray, IntArray
from safe_sysid.reachability import cells as cell_module
from safe_sysid.reachability import pose as poses
from safe_sysid.reachability.cells import TimeCells
from safe_sysid.reachability.swept import SweptVolume
from safe_sysid.robot.frames import forward_kinematics
from safe_sysid.studies.campaign.reachability.case import ReachabilityCase
from safe_sysid.studies.campaign.reachability.exact import digits, exact, exact_poses, exact_states
from safe_sysid.studies.campaign.reachability.record import AttackRecord, climb
from safe_sysid.studies.campaign.reachability.scenery import body_corners

__all__ = ["attack_pose_forms", "attack_poses", "attack_swept", "position_only"]


def attack_poses(
    case: ReachabilityCase,
    cells: TimeCells,
    rotations: FloatArray,
    origins: FloatArray,
    rng: np.random.Generator,
    record: AttackRecord,
    tasks: int = 8,
    samples: int = 200,
) -> None:
    """Points of the arm's frames in frames before them, in all six directions; and the forms, symbol by symbol.

    Args:
        rotations: (M, n + 1, n + 1, 3, 3, K + 2) enclosed relative poses.
        origins: (M, n + 1, n + 1, 3, K + 2).
        tasks: cells and pairs of frames for ascent, half of them from the world.
    """
    n, tube, kin = case.n, case.tube, case.model.kinematics
    for task in range(tasks):
        base = 0 if task % 2 == 0 else int(rng.integers(0, n))
        frame = int(rng.integers(base + 1, n + 1))
        point = rng.uniform(-0.3, 0.3, 3) if rng.random() < 0.8 else np.zeros(3)
        cell = [0, cells.count - 1, int(rng.integers(cells.count))][int(rng.integers(3))]
        ranges = poses.point_ranges(rotations[:, base, frame], origins[:, base, frame], point[None])[:, 0]

        def place(q: FloatArray, base: int = base, frame: int = frame, point: FloatArray = point) -> FloatArray:
            r, p = forward_kinematics(kin, q)
            where = r[:, frame - 1] @ point + p[:, frame - 1]
            if base == 0:
                return where
            return np.einsum("nji,nj->ni", r[:, base - 1], where - p[:, base - 1])

        which = rng.integers(0, cells.count, samples // tasks)
        spread = tube.sample(rng, len(which))
        times = tube.times(np.stack([cells.grid[which], cells.grid[which + 1]], axis=1), spread)
        goal = np.repeat(np.arange(6), 2)
        borders = np.tile(cells.grid[cell : cell + 2], (len(goal), 1))

        def value(
            rows: IntArray, x: FloatArray, goal: Any = goal, borders: Any = borders, place: Any = place
        ) -> FloatArray:
            at = place(tube.states(tube.times(borders[rows], x), x).q)
            side = np.where(goal[rows] < 3, 1.0, -1.0)
            out: FloatArray = side * at[np.arange(len(rows)), goal[rows] % 3]
            return out

        x, best = climb(tube, tube.sample(rng, len(goal)), value)
        found = np.array([best[goal == g].max() for g in range(6)])
        width = ranges[cell, :, 1] - ranges[cell, :, 0]
        family = "pose" if base == 0 else "relative pose"
        record.attacked(family, 6, (found[:3] + found[3:]) / np.where(width > 1e-12, width, np.nan))
        x = np.concatenate([x, spread])
        times = np.concatenate([tube.times(borders, x[: len(goal)]), times])
        which = np.concatenate([np.full(len(goal), cell), which])
        at = place(tube.states(times, x).q)

        def precise(
            i: tuple[int, ...], times: Any = times, x: Any = x, base: int = base, frame: int = frame, point: Any = point
        ) -> Any:
            with digits():
                r, p = exact_poses(kin, exact_states(tube, float(times[i[0]]), x[i[0]]).q, base)
                return (1 - 2 * i[2]) * (p[frame - base] + r[frame - base] @ exact(point))[i[1]]

        def where(
            i: tuple[int, ...],
            times: Any = times,
            x: Any = x,
            which: Any = which,
            base: int = base,
            frame: int = frame,
            point: Any = point,
        ) -> dict[str, Any]:
            return {
                "cell": int(which[i[0]]), "time": float(times[i[0]]), "symbols": x[i[0]].tolist(), "base": base,
                "frame": frame, "point": point.tolist(), "axis": i[1], "side": 1 - 2 * i[2],
            }  # fmt: skip

        claims = np.stack([ranges[which, :, 1], -ranges[which, :, 0]], axis=-1)
        record.check(family, claims, np.stack([at, -at], axis=-1), where, precise, 1.0)
    attack_pose_forms(case, cells, rotations, origins, rng, record, samples)
    record.samples += 2 * samples


def attack_pose_forms(
    case: ReachabilityCase,
    cells: TimeCells,
    rotations: FloatArray,
    origins: FloatArray,
    rng: np.random.Generator,
    record: AttackRecord,
    samples: int = 200,
) -> None:
    """The truth at given symbols differs from the affine part by no more than the form's own remainder.

    Sharper than any range: overestimation elsewhere does not hide a remainder that is missing. Symbols are those of the
    enclosure, up to the last digits of half a cell and of the errors' axes: what that amounts to is allowed for.

    ``rotations``: (M, n + 1, n + 1, 3, 3, K + 2) enclosed relative poses; ``origins``: (M, n + 1, n + 1, 3, K + 2).
    """
    n, tube, kin = case.n, case.tube, case.model.kinematics
    which = rng.integers(0, cells.count, samples)
    x = tube.sample(rng, samples)
    times = tube.times(np.stack([cells.grid[which], cells.grid[which + 1]], axis=1), x)
    r, p = forward_kinematics(kin, tube.states(times, x).q)
    r = np.concatenate([np.tile(np.eye(3), (samples, 1, 1, 1)), r], axis=1)
    p = np.concatenate([np.zeros((samples, 1, 3)), p], axis=1)
    base = rng.integers(0, n, samples)
    frame = base + 1 + np.array([rng.integers(0, n - b) for b in base])
    each = np.arange(samples)
    back = r[each, base].transpose(0, 2, 1)
    true = np.concatenate(
        [(back @ r[each, frame]).reshape(samples, 9), np.einsum("nij,nj->ni", back, p[each, frame] - p[each, base])],
        axis=1,
    )
    forms = np.concatenate(
        [rotations[which, base, frame].reshape(samples, 9, -1), origins[which, base, frame].reshape(samples, 3, -1)],
        axis=1,
    )
    axes = cell_module.TrackingSet.of(case.gains, n).e
    symbols = np.concatenate([x[:, :1], x[:, 1 : n + 1] * (tube.e / axes)], axis=1)
    slopes = forms[..., 1:-1]
    affine = forms[..., 0] + np.einsum("nfk,nk->nf", slopes, symbols)
    # Times are rounded, too: a unit of the time's last digit moves the symbol by that over half a cell.
    half = 0.5 * (cells.grid[which + 1] - cells.grid[which])
    unsure = 1e-14 + 4e-16 * (cells.grid[which + 1] / half)
    size = np.abs(slopes).sum(axis=-1) * unsure[:, None] + 1e-13

    def where(i: tuple[int, ...]) -> dict[str, Any]:
        k = i[0]
        return {
            "cell": int(which[k]), "time": float(times[k]), "symbols": x[k].tolist(), "base": int(base[k]),
            "frame": int(frame[k]), "entry": i[1],
        }  # fmt: skip

    record.check("pose form", forms[..., -1] + size, np.abs(true - affine), where)


def attack_swept(
    case: ReachabilityCase,
    cells: TimeCells,
    swept: SweptVolume,
    rng: np.random.Generator,
    record: AttackRecord,
    tasks: int = 4,
    samples: int = 60,
) -> None:
    """Bodies, tracking errors included, against the boxes in the world that are to hold them.

    ``tasks``: groups of cells and bodies for ascent, in all six directions.
    """
    tube, model = case.tube, case.model
    bodies = {body.name: body for body in model.bodies}
    if swept.times[0, 0] != 0.0 or swept.times[-1, 1] < case.trajectory.duration:
        record.check("time", 0.0, 1.0, lambda _: {"swept": swept.times[[0, -1]].tolist()})

    def check(group: int, b: int, times: FloatArray, x: FloatArray) -> None:
        body = bodies[swept.names[b]]
        for i, q in enumerate(tube.states(times, x).q):
            corners = body_corners(model, body, q)
            found = np.stack([corners.max(axis=0) + body.radius, body.radius - corners.min(axis=0)])
            claims = np.stack([swept.upper[group, b], -swept.lower[group, b]])

            def where(at: tuple[int, ...], i: int = i) -> dict[str, Any]:
                return {
                    "group": group, "body": body.name, "time": float(times[i]), "symbols": x[i].tolist(),
                    "axis": at[1], "side": 1 - 2 * at[0],
                }  # fmt: skip

            record.check("swept volume", claims, found, where)

    for _ in range(tasks):
        group, b = int(rng.integers(len(swept.times))), int(rng.integers(len(swept.names)))
        body = bodies[swept.names[b]]
        goal = np.arange(6)
        borders = np.tile(swept.times[group], (6, 1))

        def value(
            rows: IntArray, x: FloatArray, borders: Any = borders, goal: Any = goal, body: Any = body
        ) -> FloatArray:
            out = np.empty(len(rows))
            for i, q in enumerate(tube.states(tube.times(borders[rows], x), x).q):
                side, axis = (1.0 if goal[rows[i]] < 3 else -1.0), goal[rows[i]] % 3
                out[i] = (side * body_corners(model, body, q)[:, axis]).max() + body.radius
            return out

        x, best = climb(position_only(tube), tube.sample(rng, 6), value, turns=3)
        check(group, b, tube.times(borders, x), x)
        width = swept.upper[group, b] - swept.lower[group, b]
        record.attacked("swept volume", 6, (best[:3] + best[3:]) / np.where(width > 1e-12, width, np.nan))
    for _ in range(samples):
        group, b = int(rng.integers(len(swept.times))), int(rng.integers(len(swept.names)))
        x = tube.sample(rng, 1)
        check(group, b, tube.times(swept.times[group][None], x), x)
    record.samples += samples


def position_only(tube: Any) -> Any:
    """The same tube, without symbols that do not move the arm."""
    none = np.zeros(tube.n)
    return dataclasses.replace(tube, r=none, dq=none, dv=none)
