r"""From a pose of the tool frame to joint angles that may be held there: damped least squares from several seeds.

Each iteration takes ``dq = J^T (J J^T + mu^2)^{-1} x + (1 - J^T (J J^T + mu^2)^{-1} J) (q_near - q) / 4``, x the pose's
error (m, rad): what the pose leaves open pulls towards ``q_near``. Angles are clipped to their limits, so a solution
keeps them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import numpy as np
import pinocchio as pin
from numpy.typing import ArrayLike

from safe_sysid.core.arrays import FloatArray
from safe_sysid.errors import PlanError
from safe_sysid.robot.frames import forward_kinematics
from safe_sysid.robot.model import JointLimits, RobotModel
from safe_sysid.robot.parameters import frozen_array

__all__ = ["goal_from_pose", "nearest_turn", "tool_pose"]

#: Pose error at which it counts as reached, m and rad.
TOLERANCE = 1e-6
_ITERATIONS = 150
_SEEDS = 24
_DAMPING = 0.02
_LONGEST = 0.4  # rad, of one step
#: Solutions closer than this are one, rad.
_SAME = 0.05


def tool_pose(model: RobotModel, q: ArrayLike) -> tuple[FloatArray, FloatArray]:
    """Position (3,) in m and rotation (3, 3) of the tool frame in the world at angles ``q`` (n,) rad.

    ``q``: (n,) rad.
    """
    rotation, position = forward_kinematics(model.kinematics, np.asarray(q, float))
    flange_r, flange_p = model.flange
    return position[-1] + rotation[-1] @ flange_p, rotation[-1] @ flange_r


def nearest_turn(model: RobotModel, q: ArrayLike, near: ArrayLike) -> FloatArray:
    """The same pose with continuous joints on the turn nearest to ``near``; (n,) rad.

    ``q``: (n,) rad; ``near``: (n,) rad.
    """
    q, near = np.asarray(q, float), np.asarray(near, float)
    return np.where(model.continuous, q + 2.0 * np.pi * np.round((near - q) / (2.0 * np.pi)), q)


def goal_from_pose(
    model: RobotModel,
    xyz: ArrayLike,
    rotation: ArrayLike,
    q_near: ArrayLike,
    clear: Callable[[FloatArray], Sequence[str]] | None = None,
    seed: int = 0,
) -> FloatArray:
    """Joint angles (n,) that bring the tool frame to a pose; of those that may be held, the nearest to ``q_near``.

    Args:
        xyz: (3,) position of the tool frame in the world, m.
        rotation: (3, 3) of the tool frame in the world.
        q_near: (n,) rad, where the arm is.
        clear: reasons, in words, against resting at angles (n,), as of
            :func:`safe_sysid.planning.certification.certificate.start_check`; None: nothing speaks against any.
        seed: of the random angles that are tried besides ``q_near`` and the robot's home.

    Raises:
        PlanError: a malformed argument, a pose out of reach, or only solutions that may not be held; with reasons.
        ConfigError: the arm has a prismatic joint.
    """
    model.require_turning("inverse kinematics")
    target_p = frozen_array(xyz, (3,), "goal position")
    target_r = frozen_array(rotation, (3, 3), "goal rotation")
    if not (np.allclose(target_r @ target_r.T, np.eye(3), rtol=0.0, atol=1e-6) and np.linalg.det(target_r) > 0.0):
        raise PlanError(f"goal rotation = {target_r.tolist()}: expected a rotation matrix")
    near = frozen_array(q_near, (model.n,), "q_near")
    limits = model.limits
    found: list[FloatArray] = []
    closest, closest_error = near, np.inf
    for start in _seeds(model, limits, near, seed):
        q, error = _descend(model, target_p, target_r, start, near, limits)
        if error < closest_error:
            closest, closest_error = q, error
        q = nearest_turn(model, q, near)
        if error <= TOLERANCE and not any(np.abs(q - other).max() < _SAME for other in found):
            found.append(q)
    if not found:
        position, turn = tool_pose(model, closest)
        gap = float(np.linalg.norm(position - target_p))
        angle = float(np.linalg.norm(pin.log3(target_r @ turn.T)))
        raise PlanError(
            f"goal pose at {target_p.tolist()} m: expected one within reach; the nearest found is {gap:.3g} m and "
            f"{angle:.3g} rad off, limits of the joints kept"
        )
    refused: dict[str, int] = {}
    for q in sorted(found, key=lambda other: float(np.abs(other - near).max())):
        reasons = list(clear(q)) if clear is not None else []
        if not reasons:
            q.setflags(write=False)
            return q
        refused[reasons[0]] = refused.get(reasons[0], 0) + 1
    told = "; ".join(list(refused)[:3])
    raise PlanError(
        f"goal pose at {target_p.tolist()} m: none of {len(found)} solutions of the inverse kinematics may be held: "
        f"{told}"
    )


def _seeds(model: RobotModel, limits: JointLimits, near: FloatArray, seed: int) -> Iterator[FloatArray]:
    """``q_near``, home, then random angles: half of them around ``q_near``."""
    yield near
    yield nearest_turn(model, np.array(model.settings.home), near)
    rng = np.random.default_rng([seed, model.n])
    lower = np.where(np.isfinite(limits.position_lower), limits.position_lower, near - np.pi)
    upper = np.where(np.isfinite(limits.position_upper), limits.position_upper, near + np.pi)
    for i in range(_SEEDS):
        q = rng.uniform(lower, upper)
        yield np.clip(near + rng.normal(0.0, 0.7, model.n), lower, upper) if i % 2 else q


def _descend(
    model: RobotModel,
    target_p: FloatArray,
    target_r: FloatArray,
    start: FloatArray,
    near: FloatArray,
    limits: JointLimits,
) -> tuple[FloatArray, float]:
    """Best angles met, and their pose error."""
    q = np.clip(start, limits.position_lower, limits.position_upper)
    best, best_error = q, np.inf
    kin, (flange_r, flange_p) = model.kinematics, model.flange
    for i in range(_ITERATIONS):
        rotation, position = forward_kinematics(kin, q)
        tool = position[-1] + rotation[-1] @ flange_p
        axes = np.einsum("jab,jb->ja", rotation, kin.axis)
        error = np.concatenate([target_p - tool, pin.log3(target_r @ (rotation[-1] @ flange_r).T)])
        size = float(np.abs(error).max())
        if size < best_error:
            best, best_error = q, size
        if size <= 0.01 * TOLERANCE or (i > 60 and best_error > 0.3):
            break
        jacobian = np.concatenate([np.cross(axes, tool - position).T, axes.T])
        damping = min(_DAMPING, size) ** 2
        pinv = np.linalg.solve(jacobian @ jacobian.T + damping * np.eye(6) + 1e-18, jacobian).T
        towards = 0.25 * (near - q) if size > 1e-3 else np.zeros_like(q)
        step = pinv @ error + towards - pinv @ (jacobian @ towards)
        step *= min(1.0, _LONGEST / max(float(np.abs(step).max()), 1e-12))
        q = np.clip(q + step, limits.position_lower, limits.position_upper)
    return best, best_error
