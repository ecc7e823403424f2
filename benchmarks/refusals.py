"""Refusals beside witnesses: is a task refused that a plain search can certify?

Tasks are those of random scenes (3 to 10 obstacles, boxes only or all kinds; start and goal that may be rested at),
with the whole prior of the payload or, every second time, a twentieth of it, as after an identification. Each is given
to :class:`safe_sysid.planning.task.task.TaskPlanner`. Where that refuses, a *witness* is looked for by code that shares
nothing with its searches: the straight line first, then two plain random trees (RRT-connect) whose poses may each be
rested at, and one ``verify_plan`` for every motion from rest to rest along them, halved where it fails. A chain of
certified plans from start to goal is a witness: the refusal is a defect. No witness proves nothing; but no chain can
end at a goal where staying is not certified, and the table tells these tasks apart, as well as those whose refusal
names an angle that parts start and goal. Such a reason is attacked: 10,000 other poses with the joint at this angle are
drawn, and from the nearest misses the rest of the pose climbs to where less speaks against it. A pose that may be
rested at refutes the reason.

One JSON line per task as it ends; an interrupted run goes on where it stopped. Exit status 1 with a defect.

    python benchmarks/refusals.py --out refusals.jsonl --jobs 2
    python benchmarks/refusals.py --out refusals.jsonl --robots ur5e --scenes 0:40 --minutes 4
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import time
from collections.abc import Callable
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from rich.console import Console
from rich.progress import Progress
from rich.table import Table

from safe_sysid.control.gains import ControllerGains
from safe_sysid.control.gains.design import design_gains
from safe_sysid.planning.certification.certificate import PlanCertificate, may_rest, verify_plan
from safe_sysid.planning.planner import Planner
from safe_sysid.planning.task.task import TaskPlanner, TaskStatus, follow
from safe_sysid.robot.loading import load_robot
from safe_sysid.robot.model import RobotModel
from safe_sysid.robot.parameters import ParameterBox
from safe_sysid.robot.scenes.scene import Scene
from safe_sysid.simulation.random_scenes import ALL_KINDS, random_scene
from safe_sysid.trajectories.plan import Plan
from safe_sysid.trajectories.quintic import QuinticTrajectory

FloatArray = NDArray[np.float64]
ROBOTS = ("kinova_gen3", "ur5e", "franka_panda", "three_joint", "three_joint_wall")
VERSION = 2  # of what is drawn
SLICE = 10_000  # poses against an angle that is said to part start and goal
_CLIMBERS, _ROUNDS, _AROUND = (8, 30, 25)  # climbs after that: from so many poses, so often, to the best of so many
_SCALE = {"m": 0.1, "rad": 0.1, "N m": 10.0}  # margins that count the same in a climb
KNOWN = 0.05  # share of the prior's widths that is left where the payload is known
_STRIDE, _RESOLUTION = (
    0.4,
    0.1,
)  # rad of the longest joint: one extension of a tree, two poses checked one after another
_SHORTEST = 5e-3  # rad: a motion this short that is not certified ends the try


@lru_cache(maxsize=1)
def arm(name: str) -> tuple[RobotModel, ControllerGains]:
    """The robot, and its gains in lock-step."""
    model = load_robot(name)
    return model, design_gains(model, lockstep=True)


def draw(robot: str, seed: int, number: int) -> tuple[Scene, ParameterBox]:
    """Scene with start and goal, and box of one task; odd numbers: all kinds of obstacles, not boxes only."""
    model, gains = arm(robot)
    box = model.arm_prior
    if number % 4 >= 2:
        rad = KNOWN * (box.payload_upper - box.payload_lower)
        middle = 0.5 * (box.payload_upper + box.payload_lower)
        box = box.with_payload(middle - 0.5 * rad, middle + 0.5 * rad)
    kinds = ("box",) if number % 2 == 0 else ALL_KINDS
    return random_scene(model, np.random.default_rng([seed, number]), box=box, kinds=kinds, gains=gains), box


class Witness:
    """A plain search for a chain of certified plans."""

    def __init__(self, robot: str, scene: Scene, box: ParameterBox, seed: int, seconds: float) -> None:
        """Prepare; stops after so many seconds."""
        self.model, self.gains = arm(robot)
        self.box = box
        self.scene, self.rng = scene, np.random.default_rng([seed, 7])
        self.end = time.perf_counter() + seconds
        self.poses, self.found, self.way = 0, 0, np.zeros((0, self.model.n))
        limits = self.model.limits
        self.lower = np.where(self.model.continuous, -np.pi, limits.position_lower)
        self.upper = np.where(self.model.continuous, np.pi, limits.position_upper)

    def search(self) -> bool:
        """Whether there is one; ``way`` then holds its rests (m, n)."""
        straight: list[FloatArray] | None = [self.scene.start, self.scene.goal]
        while time.perf_counter() < self.end:
            way, straight = straight or self._connect(), None
            if way is not None:
                self.found += 1
                rests = self._certified(way)
                if rests is not None:
                    self.way = np.array(rests)
                    return True
        return False

    def staying(self) -> str:
        """Why staying at the goal is not certified; empty if it is."""
        found = self._certificate(self.scene.goal, self.scene.goal)
        return "" if found.ok else found.status

    def _towards(self, a: FloatArray, b: FloatArray) -> tuple[FloatArray, bool]:
        """The last free pose on the line from a, at most a stride long; whether it is b."""
        gap = float(np.abs(b - a).max())
        end = b if gap <= _STRIDE else a + (b - a) * (_STRIDE / gap)
        count = max(int(np.ceil(min(gap, _STRIDE) / _RESOLUTION)), 1)
        poses = a + np.linspace(0.0, 1.0, count + 1)[1:, None] * (end - a)
        self.poses += count
        free, _ = may_rest(self.model, self.box, self.scene, self.gains, poses)
        if free.all():
            return end, gap <= _STRIDE
        reached = int(np.argmin(free))
        return (poses[reached - 1] if reached else a), False

    def _connect(self) -> list[FloatArray] | None:
        trees = [[self.scene.start], [self.scene.goal]]
        parents: list[list[int]] = [[-1], [-1]]
        # The straight way first, then towards random poses, the trees in turn.
        aim, side = self.scene.goal, 0
        while time.perf_counter() < self.end:
            tip = self._grow(trees[side], parents[side], aim)
            if tip is not None:
                target = trees[side][tip]
                while True:
                    end = self._grow(trees[1 - side], parents[1 - side], target)
                    if end is None:
                        break
                    if np.array_equal(trees[1 - side][end], target):
                        ways = [self._back(trees[side], parents[side], tip)]
                        ways.append(self._back(trees[1 - side], parents[1 - side], end))
                        one, other = ways if side == 0 else ways[::-1]
                        return one[::-1] + other[1:]
            aim, side = self.rng.uniform(self.lower, self.upper), 1 - side
        return None

    def _grow(self, tree: list[FloatArray], parents: list[int], aim: FloatArray) -> int | None:
        nearest = int(np.argmin(np.linalg.norm(np.array(tree) - aim, axis=1)))
        q, _ = self._towards(tree[nearest], aim)
        if np.array_equal(q, tree[nearest]):
            return None
        tree.append(q)
        parents.append(nearest)
        return len(tree) - 1

    @staticmethod
    def _back(tree: list[FloatArray], parents: list[int], index: int) -> list[FloatArray]:
        way = []
        while index >= 0:
            way.append(tree[index])
            index = parents[index]
        return way

    def _certified(self, way: list[FloatArray]) -> list[FloatArray] | None:
        """Rests along a way between which every motion is certified: as far as it goes, else half of that."""
        rests, at = [way[0]], 0
        while at < len(way) - 1:
            ahead = len(way) - 1
            while ahead > at + 1 and not self._moves(rests[-1], way[ahead]):
                ahead = at + (ahead - at) // 2
            if ahead == at + 1 and not self._fine(rests, way[ahead]):
                return None
            if ahead > at + 1:
                rests.append(way[ahead])
            at = ahead
        return rests

    def _fine(self, rests: list[FloatArray], goal: FloatArray) -> bool:
        """Add rests up to the goal, halving what is not certified."""
        share = 1.0
        while not np.array_equal(rests[-1], goal):
            if time.perf_counter() > self.end:
                return False
            gap = goal - rests[-1]
            aim = goal if share == 1.0 else rests[-1] + share * gap
            if self._moves(rests[-1], aim):
                rests.append(aim)
                share = min(1.0, 2.0 * share)
            elif share * np.abs(gap).max() < _SHORTEST:
                return False
            else:
                share *= 0.5
        return True

    def _moves(self, a: FloatArray, b: FloatArray) -> bool:
        """Whether the motion from rest at a to rest at b is certified."""
        settings = self.model.settings.planner
        if np.any(np.abs(b - a) > settings.k_range):
            return False
        return self._certificate(a, b).ok

    def _certificate(self, a: FloatArray, b: FloatArray) -> PlanCertificate:
        settings = self.model.settings.planner
        rest = np.stack([a, 0.0 * a, 0.0 * a])
        plan = Plan(
            QuinticTrajectory.to_rest(rest, b, settings.t_f), 0.0, settings.t_p,
            self.box.identity, 0, (b - a) / settings.k_range,
        )  # fmt: skip
        return verify_plan(plan, self.model, self.box, self.scene, self.gains, threads=1)


def pose_at(robot: str, scene: Scene, box: ParameterBox, angle: tuple[int, float], seed: int) -> FloatArray | None:
    """A pose (n,) that may be rested at with one joint at an angle: (joint, rad); None if none is found."""
    model, gains = arm(robot)
    limits, rng = model.limits, np.random.default_rng([seed, 13])
    lower = np.where(model.continuous, -np.pi, limits.position_lower)
    upper = np.where(model.continuous, np.pi, limits.position_upper)
    joint, at = angle

    def misses(poses: FloatArray) -> FloatArray:
        poses[:, joint] = at
        _, against = may_rest(model, box, scene, gains, poses)
        return np.array([sum(-m.value / _SCALE.get(m.unit, 0.1) for m in found) for found in against])

    poses = rng.uniform(lower, upper, (SLICE, model.n))
    by = np.concatenate([misses(part) for part in np.array_split(poses, SLICE // 200)])
    best = np.argsort(by)[:_CLIMBERS]
    for pose, short in zip(poses[best], by[best], strict=True):
        width = 0.3
        for _ in range(_ROUNDS):
            near = np.clip(pose + rng.normal(0.0, width, (_AROUND, model.n)), lower, upper)
            found = misses(near)
            i = int(np.argmin(found))
            pose, short, width = (near[i], found[i], width) if found[i] < short else (pose, short, 0.7 * width)
            if short <= 0.0:
                return np.asarray(pose)
    return None


def run_one(job: tuple[str, int, int, float]) -> dict[str, Any]:
    """One task; returns a JSON-able record."""
    robot, seed, number, seconds = job
    model, gains = arm(robot)
    scene, box = draw(robot, seed, number)
    task = TaskPlanner(Planner(model, scene, gains), scene.goal, seed=number)
    began = time.perf_counter()
    plans, by_last_resort = 0, 0
    for answer in follow(task, scene.start, box):
        plans += answer.plan is not None
        by_last_resort += answer.plan is not None and task.in_last_resort
    record: dict[str, Any] = {
        "robot": robot,
        "seed": seed,
        "number": number,
        "version": VERSION,
        "obstacles": len(scene.obstacles),
        "status": task.status.value,
        "reasons": list(task.reasons),
        "known": bool(number % 4 >= 2),
        "plans": plans,
        "plans_of_last_resort": by_last_resort,
        "seconds": time.perf_counter() - began,
    }
    if task.status is TaskStatus.REFUSED:
        began = time.perf_counter()
        witness = Witness(robot, scene, box, number, seconds)
        record["goal_not_certified"] = witness.staying()
        record["witness"] = not record["goal_not_certified"] and witness.search()
        record["witness_s"] = time.perf_counter() - began
        record["witness_plans"] = max(len(witness.way) - 1, 0)
        record["witness_poses"], record["ways_not_certified"] = witness.poses, witness.found
        record["parted"] = [(found.joint, found.angle) for found in task.parted]
        poses = [pose_at(robot, scene, box, angle, number) for angle in record["parted"]]
        record["reason_refuted"] = any(pose is not None for pose in poses)
    return record


def attempt(job: tuple[str, int, int, float]) -> dict[str, Any]:
    """A task that raises is a record too."""
    try:
        return run_one(job)
    except Exception as error:  # the benchmark must tell of every task
        robot, seed, number, _ = job
        record = {"robot": robot, "seed": seed, "number": number, "version": VERSION}
        return {**record, "status": "error", "reasons": [f"{type(error).__name__}: {error}"]}


def summarise(records: list[dict[str, Any]]) -> dict[str, dict[str, Any]]:
    """Counts and times, by robot and in all."""

    def of(some: list[dict[str, Any]]) -> dict[str, Any]:
        count: Callable[[str], int] = lambda status: sum(r["status"] == status for r in some)  # noqa: E731
        seconds = [r["seconds"] for r in some if r["status"] == "arrived"]
        slow = [r["seconds"] for r in some if r["status"] == "refused"]
        return {
            "tasks": len(some),
            "arrived": count("arrived"),
            "arrived by the last resort": sum(r["status"] == "arrived" and r["plans_of_last_resort"] > 0 for r in some),
            "refused": count("refused"),
            "refused with a witness": sum(bool(r.get("witness")) for r in some),
            "refused, staying at the goal is not certified": sum(bool(r.get("goal_not_certified")) for r in some),
            "refused, an angle parts start and goal": sum(bool(r.get("parted")) for r in some),
            "of these, a pose at this angle was found": sum(bool(r.get("reason_refuted")) for r in some),
            "errors": len(some) - count("arrived") - count("refused"),
            "s to arrive, median, 95 %": _quantiles(seconds),
            "s to refuse, median, 95 %": _quantiles(slow),
            "plans, median": float(np.median([r["plans"] for r in some if r["status"] == "arrived"] or [0])),
        }

    robots = sorted({r["robot"] for r in records})
    return {name: of([r for r in records if r["robot"] == name]) for name in robots} | {"all": of(records)}


def _quantiles(values: list[float]) -> list[float]:
    return [round(float(np.quantile(values, q)), 2) for q in (0.5, 0.95)] if values else []


def main() -> int:
    """Run what is missing in the file, then print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--robots", nargs="+", default=ROBOTS)
    parser.add_argument("--scenes", default="0:200", help="numbers of the scenes, FIRST:LAST, the last excluded")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--witness-s", type=float, default=60.0, help="s to look for a witness")
    parser.add_argument("--minutes", type=float, default=None, help="begin no task after so many")
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--out", type=Path, default=Path("refusals.jsonl"))
    options = parser.parse_args()
    console = Console()
    first, last = (int(part) for part in options.scenes.split(":"))
    done = [json.loads(line) for line in options.out.read_text().splitlines()] if options.out.exists() else []
    done = [r for r in done if (r["seed"], r["version"]) == (options.seed, VERSION)]
    known = {(r["robot"], r["number"]) for r in done}
    todo = [
        (robot, options.seed, i, options.witness_s)
        for robot in options.robots
        for i in range(first, last)
        if (robot, i) not in known
    ]
    end = None if options.minutes is None else time.monotonic() + 60.0 * options.minutes
    context = multiprocessing.get_context("spawn")
    with options.out.open("a") as file, Progress(console=console) as progress:
        bar = progress.add_task("tasks", total=len(todo))
        with context.Pool(options.jobs) as pool:
            for record in map(attempt, todo) if options.jobs == 1 else pool.imap(attempt, todo):
                done.append(record)
                file.write(json.dumps(record) + "\n")
                file.flush()
                progress.advance(bar)
                if end is not None and time.monotonic() > end:
                    pool.terminate()
                    break
    summary = summarise(done)
    table = Table(title="refusals beside witnesses")
    table.add_column("")
    for name in summary:
        table.add_column(name, justify="right")
    for key in summary["all"]:
        table.add_row(key, *(str(column[key]) for column in summary.values()))
    console.print(table)
    for r in done:
        if r.get("witness") or r["status"] == "error":
            console.print(f"{r['robot']} scene {r['number']}: {r['status']}, {r['reasons']}", highlight=False)
    return int(summary["all"]["refused with a witness"] + summary["all"]["errors"] > 0)


if __name__ == "__main__":
    raise SystemExit(main())
