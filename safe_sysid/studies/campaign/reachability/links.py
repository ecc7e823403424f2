"""Links fixed to links: an arm from a URDF with posts and brackets, and Pinocchio's own geometry as the judge.

What is on trial is the whole way from a URDF to a certificate: which bodies there are, where, and which pairs of them
are checked. The judge reads the same URDF by itself and takes every pair of its shapes, but those that move with one
joint, and those of a joint's parent and child link that overlap at each of many poses.
"""

from __future__ import annotations

import tempfile
import xml.etree.ElementTree as ET
from functools import lru_cache
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import pinocchio as pin
import yaml

from safe_sysid.core.arrays import FloatArray
from safe_sysid.reachability.cells import TrackingSet, time_cells
from safe_sysid.reachability.clearance import enclose_clearance
from safe_sysid.robot.files.yaml_file import read_yaml
from safe_sysid.robot.loading import load_robot
from safe_sysid.robot.scenes.scene import Scene, config_path
from safe_sysid.studies.campaign.cases.settings import generator
from safe_sysid.studies.campaign.reachability.record import AttackRecord
from safe_sysid.studies.campaign.reachability.tube import desired
from safe_sysid.trajectories.quintic import QuinticTrajectory

__all__ = ["attack_links", "draw_urdf"]

_POSES, _STATES, _CELLS = 25, 60, 6
_STREAM = 30
_ROUNDING = 1e-7  # m: of coal's distances


def attack_links(seed: int, index: int, record: AttackRecord) -> None:
    """One arm, one motion: the enclosed distances of its links against those of its URDF."""
    rng = generator(seed, index, _STREAM)
    urdf, joints = draw_urdf(rng)
    with tempfile.TemporaryDirectory(prefix="safe_sysid_") as folder:
        (Path(folder) / "arm.urdf").write_text(urdf, encoding="utf-8")
        file = Path(folder) / "arm.yaml"
        file.write_text(yaml.dump(_configuration(joints), Dumper=yaml.CSafeDumper), encoding="utf-8")
        model = load_robot(file)
    n = model.n
    q = rng.uniform(-2.0, 2.0, n)
    turn = rng.uniform(-1.5, 1.5, n)
    trajectory = QuinticTrajectory.to_rest(np.stack([q, 0.0 * q, 0.0 * q]), q + turn, 2.0)
    axes = rng.uniform(1e-4, 0.05, n)
    cells = time_cells(trajectory, _CELLS)
    tracking = TrackingSet(axes, axes, np.ones(n))
    clearance = enclose_clearance(model, Scene("nothing around"), cells, tracking)
    claimed = dict(zip(map(frozenset, clearance.pairs), clearance.bounds.T, strict=True))

    judge = _Judge(urdf)
    exempt = judge.never_apart(rng.uniform(-np.pi, np.pi, (_POSES, n)))
    which = rng.integers(0, cells.count, _STATES)
    times = cells.grid[which] + rng.random(_STATES) * (cells.grid[which + 1] - cells.grid[which])
    error = rng.normal(size=(_STATES, n))
    error *= axes * rng.random((_STATES, 1)) ** (1.0 / n) / np.linalg.norm(error, axis=1, keepdims=True)
    states = desired(trajectory, times)[:, 0] - error
    found = np.array([judge.distances(state) for state in states])
    for k, pair in enumerate(judge.pairs):
        if pair in exempt:
            continue
        # A pair that nobody checks is one that is said never to touch.
        bounds = claimed[pair][which] if pair in claimed else np.zeros(_STATES)
        bounds = np.where(bounds < 0.0, np.nan, bounds)

        def where(i: tuple[int, ...], pair: frozenset[str] = pair) -> dict[str, Any]:
            return {"pair": sorted(pair), "q": states[i[0]].tolist(), "checked": pair in claimed}

        record.check("links", -bounds + _ROUNDING, -found[:, k], where)
    record.attacked("links", len(judge.pairs) - len(exempt))
    record.samples += _STATES


class _Judge:
    """Distances of a URDF's shapes by Pinocchio and coal, pair by pair of links."""

    def __init__(self, urdf: str) -> None:
        self.model = pin.buildModelFromXML(urdf)
        shapes = pin.buildGeomFromUrdfString(self.model, urdf, pin.GeometryType.COLLISION)
        joined = {
            frozenset((_link(joint, "parent"), _link(joint, "child")))
            for joint in ET.fromstring(urdf).findall("joint")
            if joint.get("type") != "fixed"
        }
        self.pairs: list[frozenset[str]] = []
        self._joined = joined
        for i, k in combinations(range(len(shapes.geometryObjects)), 2):
            a, b = shapes.geometryObjects[i], shapes.geometryObjects[k]
            if a.parentJoint == b.parentJoint:
                continue
            shapes.addCollisionPair(pin.CollisionPair(i, k))
            names = (self.model.frames[a.parentFrame].name, self.model.frames[b.parentFrame].name)
            self.pairs.append(frozenset(names))
        self._shapes, self._data, self._placed = shapes, self.model.createData(), shapes.createData()

    def distances(self, q: FloatArray) -> FloatArray:
        """(P,) m, negative where shapes overlap."""
        pin.computeDistances(self.model, self._data, self._shapes, self._placed, q)
        return np.array([result.min_distance for result in self._placed.distanceResults])

    def never_apart(self, poses: FloatArray) -> set[frozenset[str]]:
        """Joined pairs that overlap, or touch, in all poses."""
        largest = np.array([self.distances(q) for q in poses]).reshape(len(poses), -1).max(axis=0)
        return {
            pair for pair, most in zip(self.pairs, largest, strict=True) if pair in self._joined and most <= _ROUNDING
        }


def _link(joint: ET.Element, end: str) -> str:
    element = joint.find(end)
    return "" if element is None else element.get("link", "")


def draw_urdf(rng: np.random.Generator) -> tuple[str, list[str]]:
    """A URDF of boxes and balls, one on each link, and the names of its moving joints, base to tip."""
    links: list[str] = []
    joints: list[str] = []
    moving: list[str] = []

    def add(shape: str, centre: FloatArray) -> str:
        name = f"link_{len(links)}"
        inertia = '<inertia ixx="0.01" iyy="0.01" izz="0.01" ixy="0" ixz="0" iyz="0"/>'
        place = f'<origin xyz="{_numbers(centre)}"/><geometry>{shape}</geometry>'
        links.append(
            f'<link name="{name}"><inertial><mass value="1"/>{inertia}</inertial><collision>{place}</collision></link>'
        )
        return name

    def join(parent: str, child: str, xyz: FloatArray, kind: str = "fixed", axis: FloatArray | None = None) -> None:
        name = f"{kind}_{child}"
        about = ""
        if axis is not None:
            about = f'<axis xyz="{_numbers(axis)}"/><limit lower="-9" upper="9" effort="50" velocity="2"/>'
        joints.append(
            f'<joint name="{name}" type="{kind}"><parent link="{parent}"/><child link="{child}"/>'
            f'<origin xyz="{_numbers(xyz)}" rpy="{_numbers(rng.choice([0.0, 0.5, 1.5707963], 3))}"/>{about}</joint>'
        )
        if axis is not None:
            moving.append(name)

    def shape(reach: FloatArray) -> tuple[str, FloatArray]:
        if rng.random() < 0.3:
            return f'<sphere radius="{rng.uniform(0.02, 0.08)!r}"/>', 0.5 * reach * rng.random()
        size = np.abs(reach) + rng.uniform(0.03, 0.08, 3)
        return f'<box size="{_numbers(size)}"/>', 0.5 * reach

    tip = add(*shape(np.array([0.0, 0.0, 0.1])))
    for _ in range(int(rng.integers(1, 5))):
        reach = rng.choice([-1.0, 1.0], 3) * rng.uniform(0.0, 0.35, 3) * (rng.random(3) < 0.6)
        hook = tip
        for _ in range(int(rng.choice([0, 1, 2], p=[0.4, 0.4, 0.2]))):  # a post, a bracket, one on the other
            mount = add(*shape(rng.uniform(-0.3, 0.3, 3) * (rng.random(3) < 0.6)))
            join(hook, mount, rng.uniform(-0.3, 0.3, 3))
            hook = mount if rng.random() < 0.5 else tip
        if rng.random() < 0.2:  # the joint hangs on a link that is fixed to the last one
            between = add(*shape(0.3 * reach))
            join(tip, between, 0.5 * reach)
            tip = between
        child = add(*shape(reach))
        axis = np.eye(3)[rng.integers(3)] if rng.random() < 0.7 else rng.normal(size=3)
        join(tip, child, reach, "revolute", axis)
        tip = child
    for _ in range(int(rng.integers(0, 3))):
        mount = add(*shape(rng.uniform(-0.3, 0.3, 3)))
        join(tip, mount, rng.uniform(-0.2, 0.2, 3))
    links.append('<link name="tool"/>')
    join(tip, "tool", np.zeros(3))
    return f'<robot name="campaign">{"".join(links + joints)}</robot>', moving


def _numbers(values: FloatArray) -> str:
    return " ".join(repr(float(value)) for value in values)


@lru_cache(maxsize=1)
def _template() -> dict[str, Any]:
    return read_yaml(config_path("three_joint", "config"))


def _configuration(joints: list[str]) -> dict[str, Any]:
    entry = {"rotor_inertia": 1.0, "viscous": 1.0, "coulomb": 0.1, "offset": 0.0}
    return _template() | {
        "name": "campaign",
        "urdf": "arm.urdf",
        "tool_frame": "tool",
        "joints": dict.fromkeys(joints, entry),
        "home": [0.0] * len(joints),
    }
