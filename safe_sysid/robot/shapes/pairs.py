"""Allowed pairs: which of the arm's own bodies are not checked against each other, and why.

Never checked are bodies that one joint moves: their distance is constant. Of the two links that a joint joins, and of
no others, those bodies are left out that overlap in every pose, which is proved: a point of the joint's axis stays
where it is in both links when the joint turns, so bodies that share one overlap always. Everything else is checked, or
named in ``allowed_pairs``.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import combinations

import numpy as np

from safe_sysid.core.arrays import FloatArray
from safe_sysid.errors import ConfigError
from safe_sysid.robot.model import Body, Kinematics, RobotModel
from safe_sysid.robot.scenes.scene import Scene
from safe_sysid.robot.shapes.hulls import gaps_to_hull

__all__ = ["allowed_pairs", "overlap_in_every_pose", "unchecked"]

#: Points of the axis that are looked at at once, and how often between the neighbours of the best of them.
_POINTS, _TURNS = 65, 7


def allowed_pairs(
    bodies: Sequence[Body],
    kinematics: Kinematics,
    joined: Iterable[tuple[str, str]],
    extra: Iterable[Iterable[str]] = (),
    file: str = "(settings)",
) -> frozenset[frozenset[str]]:
    """Pairs of bodies that are not checked; every other pair is.

    ``joined``: parent and child link of each moving joint, base to tip.

    Raises:
        ConfigError: an extra pair with a name that no body has.
    """
    by_name: Mapping[str, Body] = {body.name: body for body in bodies}
    pairs = {frozenset((a.name, b.name)) for a, b in combinations(bodies, 2) if a.joint == b.joint}
    for joint, (parent, child) in enumerate(joined):
        for a in (body for body in bodies if body.link == parent):
            for b in (body for body in bodies if body.link == child):
                if overlap_in_every_pose(a, b, joint, kinematics):
                    pairs.add(frozenset((a.name, b.name)))
    for i, extra_pair in enumerate(extra):
        names = tuple(extra_pair)
        for k, name in enumerate(names):
            if name not in by_name:
                raise ConfigError(file, f"allowed_pairs[{i}][{k}]", name, f"one of {', '.join(by_name)}")
        pairs.add(frozenset(names))
    return frozenset(pairs)


def overlap_in_every_pose(parent: Body, child: Body, joint: int, kinematics: Kinematics) -> bool:
    """Whether a point of a turning joint's axis provably lies in a body on either side of it.

    If not, they may overlap in every pose all the same: then they are checked, and every plan is refused.

    Args:
        parent: in the frame before the joint's.
        child: in the joint's frame.
        joint: its index.
    """
    if kinematics.sliding[joint] or (parent.joint, child.joint) != (joint - 1, joint):
        return False
    if not all(np.all(np.isfinite(part)) for part in (kinematics.rotation, kinematics.translation, kinematics.axis)):
        return False  # the model will be refused
    axis = kinematics.axis[joint]
    before, start = kinematics.rotation[joint] @ axis, kinematics.translation[joint]
    gaps_to_parent, gaps_to_child = gaps_to_hull(parent.points), gaps_to_hull(child.points)

    def outside(along: FloatArray) -> FloatArray:
        """By how much points of the axis (k,) are outside of the body that they are further out of; m."""
        from_parent = gaps_to_parent(start + along[:, None] * before) - parent.radius
        from_child = gaps_to_child(along[:, None] * axis) - child.radius
        return np.maximum(from_parent, from_child)

    places = child.points @ axis
    low, high = float(places.min()) - child.radius, float(places.max()) + child.radius
    for _ in range(_TURNS):  # the larger of two convex functions is one
        along = np.linspace(low, high, _POINTS)
        far = outside(along)
        best = int(np.argmin(far))
        if far[best] <= 0.0:
            return True
        low, high = along[max(best - 1, 0)], along[min(best + 1, _POINTS - 1)]
    return False


def unchecked(model: RobotModel, scene: Scene | None = None) -> tuple[str, ...]:
    """What a certificate of this arm does not check, and so assumes, in sentences."""
    joint = {body.name: body.joint for body in model.bodies}
    stated = {frozenset(pair) for pair in model.settings.allowed_pairs}
    moving = {pair for pair in model.allowed_pairs if len({joint.get(name) for name in pair}) > 1}
    geometry, payload = model.settings.geometry, model.settings.payload
    bare = [link for link, hulls in geometry.items() if not hulls]
    lines = []
    if model.settings.drives == "simulated":
        lines.append(model.drive_note)
    if joined := moving - stated:
        lines.append(
            "links that a joint joins, whose bodies overlap in every pose, do not hit each other within its position "
            f"limits (not checked): {_named(joined)}"
        )
    if said := moving & stated:
        lines.append(f"not checked, as the file of {model.name} says (allowed_pairs): {_named(said)}")
    if scene is not None and scene.allowed_pairs:
        lines.append(f"not checked, as scene {scene.name} says (allowed_pairs): {_named(scene.allowed_pairs)}")
    if bare:
        lines.append(f"without bodies of their own, as the file of {model.name} says (geometry): {', '.join(bare)}")
    if payload.hand_joints:
        travels = ", ".join(f"{name} in [{a:g}, {b:g}]" for name, (a, b) in payload.hand_joints.items())
        lines.append(f"the hand opens and closes within what its file says: {travels}")
    elif payload.hand_joints is not None:
        hand = ", ".join(body.name for body in model.bodies if body.kind == "hand") or "no body"
        lines.append(
            f"all of the hand, at every opening, is held by {hand}, as the file of {model.name} says (hand_joints)"
        )
    return tuple(lines)


def _named(pairs: Iterable[frozenset[str]]) -> str:
    return ", ".join(sorted(" - ".join(sorted(pair)) for pair in pairs))
