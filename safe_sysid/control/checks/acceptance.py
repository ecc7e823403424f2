"""Acceptance of plans and boxes by the controller; each refusal has its reason."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping

import numpy as np

from safe_sysid.core.arrays import FloatArray
from safe_sysid.robot.parameters import ParameterBox
from safe_sysid.trajectories.plan import Plan, parse_identity

__all__ = ["KnownBoxes", "why_not_box", "why_not_connected", "why_not_plan"]

#: Two plans connect if their states at the hand-over agree to this (rad, rad/s, rad/s^2); messages carry 64 bits.
_CONNECTION_TOLERANCE = 1e-9
#: A plan may be announced this early, s.
_EARLIEST = 30.0
#: How many announced boxes stay known, so that a plan certified for an older one can be taken.
_KNOWN_BOXES = 64


class KnownBoxes(OrderedDict[str, ParameterBox]):
    """Boxes of this epoch that were announced, by identity; the oldest are forgotten."""

    def note(self, box: ParameterBox) -> None:
        """A box was announced; one of another epoch makes all before it foreign. ``box``: in force."""
        if any(known.epoch != box.epoch for known in self.values()):
            self.clear()
        self[box.identity] = box
        while len(self) > _KNOWN_BOXES:
            self.popitem(last=False)


def why_not_plan(
    plan: Plan, n: int, box: ParameterBox, known: Mapping[str, ParameterBox], tubes: int = 1
) -> str | None:
    """Reason why a plan is not certified for what this controller does, None if it is.

    ``box``: in force; ``tubes``: so many tracking tubes this controller's gains have.
    """
    if plan.trajectory.n != n:
        return f"plan has {plan.trajectory.n} joints: expected {n}"
    if plan.tube >= tubes:
        return f"plan is certified for tube {plan.tube}: expected at most {tubes - 1}, this controller's narrowest"
    epoch, _ = parse_identity(plan.box_identity)
    if epoch != box.epoch:
        return f"plan is certified for box {plan.box_identity}: expected epoch {box.epoch}"
    certified = known.get(plan.box_identity)
    if certified is None:
        return f"plan is certified for box {plan.box_identity}, which was not announced by this controller"
    if not box.is_inside(certified):
        return f"box {box.identity} in use is not inside the certified {plan.box_identity}"
    return None


def why_not_connected(
    plan: Plan, now: float, expected: float | None, state: FloatArray, names: tuple[str, ...]
) -> str | None:
    """Reason why a plan does not start when and where the motion under way is, None if it does.

    Args:
        now: s.
        expected: time of the hand-over, s; None while holding.
        state: (>= 3, n) desired position, velocity, acceleration at the hand-over.
    """
    start = plan.start_time
    if start < now - 1e-9:
        return f"plan starts at {start:.4f} s, now is {now:.4f} s: too late"
    if expected is not None and abs(start - expected) > 1e-6:
        return f"plan starts at {start:.6f} s: expected the hand-over at {expected:.6f} s"
    if start > now + _EARLIEST:
        return f"plan starts at {start:.3f} s, now is {now:.3f} s: expected within {_EARLIEST:g} s"
    gap = np.abs(plan.trajectory.knots[0] - state[:3])
    if not np.all(gap <= _CONNECTION_TOLERANCE):
        order, joint = np.unravel_index(int(np.argmax(gap)), gap.shape)
        quantity = ("position", "velocity", "acceleration")[order]
        return f"plan does not connect: {quantity} of {names[joint]} is off by {gap[order, joint]:.3g}"
    return None


def why_not_box(box: ParameterBox, latest: ParameterBox) -> str | None:
    """Reason why a box is not a tighter one of the same payload, None if it is."""
    if box.size != latest.size:
        return f"box has {box.size} parameters: expected {latest.size}"
    if box.epoch != latest.epoch:
        return f"box {box.identity}: expected epoch {latest.epoch}"
    if box.seq <= latest.seq:
        return f"box {box.identity}: expected a sequence number above {latest.seq}"
    if not box.is_inside(latest):
        return f"box {box.identity}: expected it inside {latest.identity}"
    return None
