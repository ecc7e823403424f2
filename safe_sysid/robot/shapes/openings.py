"""Opening hands: the shapes of the hand's links swept over all positions of the joints that open it.

A point of a link is a smooth function of these joints' positions. Between neighbours of a grid of positions it is no
farther from the interpolation of its values there than ``sum_d h_d^2 / 8 sup|second derivative along d|`` (h the grid's
steps), and the interpolation lies in the hull of these values. So the hull of a shape's points at all positions of the
grid, inflated by that, holds the shape at every position between; sliding joints need no grid but their two ends.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import product
from typing import Any

import numpy as np
import pinocchio as pin

from safe_sysid.core.arrays import FloatArray
from safe_sysid.errors import ConfigError
from safe_sysid.robot.config import Settings
from safe_sysid.robot.files.urdf import UrdfChain
from safe_sysid.robot.shapes.hulls import outer_hull

__all__ = ["Openings"]

#: Positions of a turning joint of the hand: alone, beside another, beside more.
_GRID = (17, 7, 4)
_CORNERS = 24  # of a swept hull
_KEY = "payload.hand_joints"


@dataclass(frozen=True, eq=False)
class Openings:
    """The joints of a hand and how far they move."""

    chain: UrdfChain
    travels: Mapping[str, tuple[float, float]]  #: joint -> ends of its positions, rad or m
    model: Any  #: Pinocchio's, with the locked joints moving; None where no joint of the hand moves

    @classmethod
    def of(cls, chain: UrdfChain, settings: Settings, file: str) -> Openings:
        """As the robot's file declares them.

        Raises:
            ConfigError: a hand whose opening changes its inertia but not its geometry, a joint that is not a locked one
                of the hand, or a position outside of its travel; the travel changes inertia by more than declared.
        """
        payload = settings.payload
        free = [name for name in chain.follows if chain.follows[name][0] == name and _in_hand(chain, name)]
        if payload.hand_joints is None:
            if any(payload.hand_opening):
                some = ", ".join(f"{name}: [smallest, largest]" for name in free)
                raise ConfigError(
                    file,
                    _KEY,
                    "missing",
                    f"{{{some or 'joint: [smallest, largest]'}}}, between which the hand opens and closes, since "
                    "payload.hand_opening says that it does; or {} if its shapes hold all of it at every opening",
                )
            return cls(chain, {}, None)
        for name, (low, high) in payload.hand_joints.items():
            if name not in free:
                known = ", ".join(free) or "none"
                expected = f"locked joints behind the last joint that mimic no other ({known})"
                raise ConfigError(file, f"{_KEY}.{name}", [low, high], expected)
            if not low <= chain.locked[name] <= high:
                expected = f"positions around the locked one, {chain.locked[name]:g}"
                raise ConfigError(file, f"{_KEY}.{name}", [low, high], expected)
        if not payload.hand_joints:
            return cls(chain, {}, None)
        model = pin.buildModelFromXML(chain.text_for_pinocchio(tuple(chain.link_joint)))
        openings = cls(chain, payload.hand_joints, model)
        openings.check_inertia(np.array(payload.hand_opening), file)
        return openings

    def swept(self, link: str, points: FloatArray, radius: float) -> tuple[FloatArray, float]:
        """A hull that holds a link's hull at every position of the hand's joints.

        ``points``: (m, 3) in the last joint's frame, the hand as it is locked, m; ``radius``: m.
        Returns points (k, 3) in the same frame and radius; the same ones for links that no joint of the hand moves.
        """
        leaders = [] if self.model is None else self._leaders(link)
        if not leaders:
            return points, radius
        rotation, origin = self._place(link, {})
        local = (points - origin) @ rotation
        bends = {leader: self._bend(link, local, leader) for leader in leaders}
        count = _GRID[min(sum(bend > 0.0 for bend in bends.values()), len(_GRID)) - 1]
        grids, slack = [], 0.0
        for leader, bend in bends.items():
            low, high = self.travels[leader]
            grids.append(np.linspace(low, high, count if bend > 0.0 else 2))
            slack += ((high - low) / (len(grids[-1]) - 1)) ** 2 / 8.0 * bend
        found = []
        for positions in product(*grids):
            rotation, origin = self._place(link, dict(zip(leaders, positions, strict=True)))
            found.append(local @ rotation.T + origin)
        corners, left_out = outer_hull(np.concatenate(found), _CORNERS)
        return corners, radius + slack + left_out

    def check_inertia(self, declared: FloatArray, file: str) -> None:
        """Refuse a change of inertia larger than declared, at some positions of the hand's joints.

        ``declared``: (10,) largest change.

        Raises:
            ConfigError: names the entry and what it would have to be at least.
        """
        grids = [np.linspace(*self.travels[name], _GRID[-1]) for name in self.travels]
        found = []
        for positions in product(*grids):
            q = self._positions(dict(zip(self.travels, positions, strict=True)))
            reduced = pin.buildReducedModel(self.model, self._locked_ids(), q)
            found.append(np.array(reduced.inertias[reduced.njoints - 1].toDynamicParameters()))
        change = np.ptp(np.array(found), axis=0)
        short = change > declared * (1.0 + 1e-9) + 1e-15
        if np.any(short):
            i = int(np.argmax(short))
            expected = f"at least {change[i]:.4g}, which {_KEY} changes it by"
            raise ConfigError(file, f"payload.hand_opening[{i}]", float(declared[i]), expected)

    def _leaders(self, link: str) -> list[str]:
        """Joints of the hand that move a link, by themselves or through one that follows them."""
        names = {self.model.names[joint] for joint in self._path(link)}
        found = {self.chain.follows[name][0] for name in names if name in self.chain.follows}
        return [leader for leader in self.travels if leader in found]

    def _path(self, link: str) -> list[int]:
        """Pinocchio's joints from the link up to the arm's last one, which is left out."""
        last = self.model.getJointId(self.chain.joints[-1].name)
        joint = self.model.frames[self.model.getFrameId(link, pin.FrameType.BODY)].parentJoint
        path = []
        while joint not in (0, last):
            path.append(joint)
            joint = self.model.parents[joint]
        return path if joint == last else []

    def _locked_ids(self) -> list[int]:
        return [self.model.getJointId(name) for name in self.chain.locked]

    def _positions(self, moved: Mapping[str, float]) -> FloatArray:
        """Positions of all joints of the model; those that follow a moved one move with it."""
        q = pin.neutral(self.model)
        for name, value in self.chain.locked.items():
            leader, slope = self.chain.follows[name]
            away = moved[leader] - self.chain.locked[leader] if leader in moved else 0.0
            q[self.model.joints[self.model.getJointId(name)].idx_q] = value + slope * away
        return np.asarray(q)

    def _place(self, link: str, moved: Mapping[str, float]) -> tuple[FloatArray, FloatArray]:
        """Rotation and origin of a link in the last joint's frame."""
        data = self.model.createData()
        pin.framesForwardKinematics(self.model, data, self._positions(moved))
        base = data.oMi[self.model.getJointId(self.chain.joints[-1].name)]
        place = base.actInv(data.oMf[self.model.getFrameId(link, pin.FrameType.BODY)])
        return np.array(place.rotation), np.array(place.translation)

    def _bend(self, link: str, local: FloatArray, leader: str) -> float:
        """Largest second derivative of the link's points (m, 3) in its own frame by a joint's position, m per unit^2.

        From the link up: a point at most ``reach`` from a frame, moving there at most at ``speed``, bending at most
        ``bend``, has after a joint that turns by k per unit at most ``speed + k reach`` and ``bend + 2 k speed +
        k^2 reach``; a joint that slides adds to the speed.
        """
        frame = self.model.frames[self.model.getFrameId(link, pin.FrameType.BODY)]
        inner = local @ frame.placement.rotation.T + frame.placement.translation
        reach, speed, bend = float(np.linalg.norm(inner, axis=1).max()), 0.0, 0.0
        kinds = {joint.name: joint.kind for joint in self.chain.all_joints}
        for joint in self._path(link):
            name = self.model.names[joint]
            first, slope = self.chain.follows[name]
            rate = abs(slope) if first == leader else 0.0
            if kinds[name] == "prismatic":
                speed += rate
                ends = np.array(self.travels.get(first, (self.chain.locked[first],) * 2))
                at = self.chain.locked[name] + slope * (ends - self.chain.locked[first])
                reach += float(np.abs(at).max())
            else:
                bend += 2.0 * rate * speed + rate**2 * reach
                speed += rate * reach
            reach += float(np.linalg.norm(self.model.jointPlacements[joint].translation))
        return bend * (1.0 + 1e-9)


def _in_hand(chain: UrdfChain, joint: str) -> bool:
    """Whether a locked joint moves a link behind the arm's last joint."""
    child = next(one.child for one in chain.all_joints if one.name == joint)
    return chain.link_joint[child] == len(chain.joints) - 1
