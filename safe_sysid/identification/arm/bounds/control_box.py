r"""A box of the arm's parameters for control laws, from the equations that proved its base parameters.

Torques, momentum and H do not change if a body that looks the same from all angles of a turning joint (a mass on its
axis, a moment along it, a rod: three numbers), or one without mass and moment of a sliding joint (six), moves from the
link behind the joint to the link before it. With these exchanges N (P, g), *every* ``theta + N V (e - E theta)`` moves
as the true theta does. E picks one entry of the link behind for each exchange, V is the inverse of ``E N`` as it came
out in floats, and e is what the estimate says: there the new parameters are the estimate's, and the others are
combinations of theta that logs know better than theta itself. A law that holds for all of the box holds for the arm.
The last link is one of them: its mass on the joint's axis, of which no torque says whose it is, becomes the estimate's,
and what a hand carries is added to that. So what is declared of last link and payload together moves, too.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from safe_sysid.core.arrays import FloatArray, IntArray
from safe_sysid.core.layout import PER_LINK
from safe_sysid.dynamics import dynamics_of
from safe_sysid.identification.arm.base_parameters import BaseParameters, random_states
from safe_sysid.identification.arm.bounds.intervals import ArmIntervals, intervals_of_rows
from safe_sysid.identification.bounds.drift import drift_of
from safe_sysid.robot.model import Kinematics, RobotModel
from safe_sysid.robot.parameters import ParameterBox, pseudo_inertia_to_theta

__all__ = ["ControlBox", "control_box", "control_boxes", "exchanges"]

#: Of an exchange: what kinematics leave open, rotations and axes to 1e-14 each, and the rounding of its computation.
_EXACT = 1e-13
_INERTIA = (4, 6, 9)  # of a link: Ixx, Iyy, Izz


@dataclass(frozen=True, eq=False)
class ControlBox:
    """A box, and its proof."""

    #: (P,) holds parameters that move as the arm does; the last link's ten are those of the empty hand
    box: ParameterBox
    intervals: ArmIntervals  #: of the combinations that it is made of
    #: (10,), (10,) hold last link, hand and payload together, of an arm with its empty hand in the box
    payload: tuple[FloatArray, FloatArray]
    excess: FloatArray  #: (n, 3) as ``Kinematics.excess``: the arm's links beside those of the box


def control_box(found: ArmIntervals, model: RobotModel, theta: FloatArray) -> ControlBox:
    """Compute a box that also holds the estimate, with exchanges between links, or without them if that is tighter.

    An estimate on the edge of the proved base parameters may lie outside the proved box; the box is then widened.

    Args:
        found: of logs of the arm with the empty hand.
        model: of the arm; its ``tare.drift`` says by how much friction and offsets may differ from those of the logs.
        theta: (P,) the estimate.

    Raises:
        ArmIntervalsError: it is proved that what is declared is false.
    """
    regressor = np.abs(random_states(model.n, dynamics_of(model.kinematics).torque_regressor))
    boxes = [
        replace(one, box=box, payload=_payload(model, box, one.intervals), excess=_excess(model, box, one.intervals))
        for one in control_boxes(found, model, theta)
        for box in [_with(one.box, theta)]
    ]
    return min(boxes, key=lambda one: float(np.sum(regressor @ one.box.rad)))


def _with(box: ParameterBox, theta: FloatArray) -> ParameterBox:
    """Widen the box to hold theta."""
    return ParameterBox(np.minimum(box.lower, theta), np.maximum(box.upper, theta))


def control_boxes(found: ArmIntervals, model: RobotModel, theta: FloatArray) -> list[ControlBox]:
    """Both proved boxes: with exchanges between links, and without. Arguments as in :func:`control_box`."""
    return [_box(found, model, theta, bodies) for bodies in (exchanges(model.kinematics), np.zeros((len(theta), 0)))]


def exchanges(kin: Kinematics) -> FloatArray:
    """(P, g) change of the parameters by each exchange between the links at a joint."""
    n = len(kin.axis)
    columns = []
    for j in range(n):
        pose = np.eye(4)
        pose[:3, :3], pose[:3, 3] = kin.rotation[j], kin.translation[j]
        for body in _bodies(np.array(kin.axis[j]), bool(kin.sliding[j])):
            column = np.zeros(14 * n)
            column[PER_LINK * j : PER_LINK * (j + 1)] = pseudo_inertia_to_theta(body)
            if j:
                column[PER_LINK * (j - 1) : PER_LINK * j] = -pseudo_inertia_to_theta(pose @ body @ pose.T)
            columns.append(column)
    return np.array(columns).reshape(-1, 14 * n).T


def _bodies(axis: FloatArray, sliding: bool) -> list[FloatArray]:
    """Pseudo-inertias (4, 4) that may move from link to link across the joint without changing any torque."""
    found = []
    if sliding:
        for i in range(3):
            for k in range(i + 1):
                body = np.zeros((4, 4))
                body[i, k] = body[k, i] = 1.0
                found.append(body)
        return found
    for i, k in ((3, 3), (3, 0), (0, 0)):
        side = [np.append(axis, 0.0) if x == 0 else np.array([0.0, 0.0, 0.0, 1.0]) for x in (i, k)]
        found.append(0.5 * (np.outer(side[0], side[1]) + np.outer(side[1], side[0])))
    return found


def _picked(kin: Kinematics) -> IntArray:
    """(g,) one parameter of the link behind the joint for each exchange; it takes the estimate's value."""
    found: list[int] = []
    for j in range(len(kin.axis)):
        if kin.sliding[j]:
            found += [PER_LINK * j + k for k in range(4, 10)]
        else:
            axis = np.abs(np.array(kin.axis[j]))
            found += [PER_LINK * j + k for k in (0, 1 + int(axis.argmax()), _INERTIA[int(axis.argmin())])]
    return np.array(found, np.int64)


def _box(found: ArmIntervals, model: RobotModel, theta: FloatArray, moves: FloatArray) -> ControlBox:
    layout, prior = model.layout, found.box
    picked = _picked(model.kinematics)[: moves.shape[1]]
    inverse = np.linalg.inv(moves[picked])
    product = moves @ inverse
    free = np.setdiff1d(np.arange(layout.size), picked)
    intervals = intervals_of_rows(found, BaseParameters(free, np.sort(picked), -product[free][:, np.argsort(picked)]))
    wanted = theta[picked]
    lower, upper = prior.lower.copy(), prior.upper.copy()
    constant = product[free] @ wanted
    lower[free], upper[free] = intervals.lower + constant, intervals.upper + constant
    lower[picked] = upper[picked] = wanted
    # What was left out: (N V - its float) (e - E theta), of which V is no inverse exactly and N not known exactly.
    far = np.maximum(np.abs(wanted - prior.lower[picked]), np.abs(prior.upper[picked] - wanted))
    weight = np.abs(moves) + np.max(np.abs(moves), initial=0.0)
    error = (_EXACT * weight @ np.abs(inverse)) @ (far + np.abs(wanted))
    error[picked] += np.abs(product[picked] - np.eye(len(picked))) @ far
    error += 1e-15 * np.maximum(np.abs(lower), np.abs(upper)) * (error > 0.0)
    lower, upper = lower - error, upper + error
    opening = np.asarray(model.settings.payload.hand_opening, float)
    lower[layout.payload] = np.nextafter(lower[layout.payload] - opening, -np.inf)
    upper[layout.payload] = np.nextafter(upper[layout.payload] + opening, np.inf)
    terms = layout.joint_terms
    moving, drift = layout.drifting, drift_of(model, found.errors)
    lower[moving], upper[moving] = (
        np.nextafter(lower[moving] - drift, -np.inf),
        np.nextafter(upper[moving] + drift, np.inf),
    )
    lower[terms], upper[terms] = (
        np.maximum(lower[terms], prior.lower[terms]),
        np.minimum(upper[terms], prior.upper[terms]),
    )
    if found.errors.torque_source == "link":  # behind the friction: its bias stands in the offset's place
        lower[layout.offset], upper[layout.offset] = prior.lower[layout.offset], prior.upper[layout.offset]
    box = ParameterBox(lower, upper)
    return ControlBox(box, intervals, _payload(model, box, intervals), _excess(model, box, intervals))


def _payload(model: RobotModel, box: ParameterBox, intervals: ArmIntervals) -> tuple[FloatArray, FloatArray]:
    """The declared prior of last link, hand and payload; after exchanges the box's hand in the declared one's place.

    The payload alone has no negative mass and moments of inertia.
    """
    lower, upper = model.arm_prior.payload_lower, model.arm_prior.payload_upper
    if not len(intervals.base.dependent):
        return lower, upper
    least, most = model.hand_prior
    low = np.nextafter(np.nextafter(lower - most, -np.inf) + box.payload_lower, -np.inf)
    high = np.nextafter(np.nextafter(upper - least, np.inf) + box.payload_upper, np.inf)
    positive = [0, *_INERTIA]
    low[positive] = np.maximum(low[positive], box.payload_lower[positive])
    return low, high


def _excess(model: RobotModel, box: ParameterBox, intervals: ArmIntervals) -> FloatArray:
    """By how much links of the declared prior may exceed those of the box; none without exchanges."""
    found, prior = model.kinematics.excess_by_link.copy(), intervals.box
    if not len(intervals.base.dependent):
        return found
    for j, link in enumerate(map(model.layout.link, range(model.n))):
        above, below = prior.upper[link] - box.lower[link], box.upper[link] - prior.lower[link]
        length = np.linalg.norm(np.maximum(np.abs(above), np.abs(below))[1:4])
        found[j] += np.maximum([above[0], length, above[list(_INERTIA)].sum()], 0.0)
    return found * (1.0 + 1e-12) + 1e-12  # for rounding of the sums, and of who checks it
