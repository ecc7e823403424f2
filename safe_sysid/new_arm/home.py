"""Home pose of a new arm: clear of itself and the table, inside its limits, easy to hold.

Poses are drawn at random; the best is where the largest payload asks for little torque, and where what is unknown of
the payload moves the joints little, nearby too. A proposal: that it can be held is what ``start_check`` says later.
"""

from __future__ import annotations

import numpy as np

from safe_sysid.core.arrays import FloatArray
from safe_sysid.dynamics import dynamics_of
from safe_sysid.errors import ParameterError
from safe_sysid.new_arm.payload import GRIP, out_of_arm
from safe_sysid.planning.distances.pair_distances import PairDistances
from safe_sysid.robot.frames import forward_kinematics
from safe_sysid.robot.model import RobotModel
from safe_sysid.robot.scenes.scene import Scene

__all__ = ["inertia_matrices", "never_apart", "payload_capacity", "pose_range", "propose_home"]

_POSES, _FINALISTS, _NEAR = 4000, 40, 16
_NEVER = 0.02  # m
_CLEAR = 0.015  # m, to itself
_STRETCH = 3.0  # weight of the inertia that joints move
_ROOM = 0.3  # of the range of a joint, to each end at most, and no more than
_ENOUGH = 1.0  # rad
_SHARE = 0.75  # of the torque limits, held at rest


def pose_range(model: RobotModel) -> tuple[FloatArray, FloatArray]:
    """Bounds (n,), (n,) of poses that leave room on both sides; rad or m."""
    low, high = model.limits.position_lower, model.limits.position_upper
    low = np.where(np.isfinite(low), low, -np.pi)
    high = np.where(np.isfinite(high), high, np.pi)
    room = np.where(model.continuous, 0.0, np.minimum(_ROOM * (high - low), _ENOUGH))
    low, high = low + room, high - room
    # More than a turn says nothing new.
    return np.maximum(low, np.minimum(-np.pi, high)), np.minimum(high, np.maximum(np.pi, low))


def propose_home(model: RobotModel, reach: float) -> FloatArray:
    """A pose (n,) to start from; rad or m.

    Args:
        model: of the arm, with the payload's prior; its own home does not matter.
        reach: how far joints move from it, rad.

    Raises:
        ParameterError: no pose is clear and can be held; says what was wrong with most.
    """
    rng = np.random.default_rng(0)
    low, high = pose_range(model)
    q = rng.uniform(low, high, (_POSES, model.n))
    q[:, 0] = np.clip(0.0, low[0], high[0])  # turning the whole arm about a vertical axis changes nothing
    if abs(
        model.kinematics.axis[0] @ model.kinematics.rotation[0].T @ model.kinematics.gravity
    ) < 0.99 * np.linalg.norm(model.kinematics.gravity):
        q[:, 0] = rng.uniform(low[0], high[0], _POSES)
    share, measure = _burden(model, q)
    if not np.any(share <= _SHARE):
        raise ParameterError(
            f"home: in each of {_POSES} poses holding the largest payload takes more than {_SHARE:.0%} of a torque "
            f"limit, at best {share.min():.0%}: expected a smaller payload or higher torque limits"
        )
    cost = share / np.median(share) + measure / np.median(measure) + _STRETCH * _stretch(model, q)
    # On a table, if that can be: first those that stay above their base's lowest point.
    cost = cost + 1e3 * (_height_over_base(model, q) < 0.0) + 1e6 * (share > _SHARE)
    order = np.argsort(cost)[: 10 * _FINALISTS]
    pairs = PairDistances(model, Scene("nothing around"))
    each = pairs.at(q[order], want_slopes=False)[0]
    clear = each.min(axis=1, initial=1e3)
    if not np.any(clear >= _CLEAR):
        least = int(np.argmin(each.max(axis=0)))
        raise ParameterError(
            f"home: the arm is {clear.max():.3f} m from itself at best in {len(order)} poses, "
            f"{' / '.join(pairs.names[least])} {each[:, least].max():.3f} m: expected {_CLEAR} m; other geometry, or "
            "allowed_pairs (--allow-pair A,B)"
        )
    order = order[clear >= _CLEAR][:_FINALISTS]
    near = q[order, None] + rng.uniform(-reach, reach, (len(order), _NEAR, model.n))
    near = np.clip(near, model.limits.position_lower, model.limits.position_upper)
    flat = near.reshape(-1, model.n)
    share, measure = (value.reshape(len(order), _NEAR) for value in _burden(model, flat))
    touching = (_self_clearance(model, flat) < 0.01).reshape(len(order), _NEAR).mean(axis=1)
    final = share.mean(axis=1) / np.median(share) + measure.mean(axis=1) / np.median(measure) + 2.0 * touching
    final = final + _STRETCH * _stretch(model, flat).reshape(len(order), _NEAR).mean(axis=1)
    return np.round(q[order[int(np.argmin(final))]], 2)


def payload_capacity(model: RobotModel) -> float:
    """A payload that the arm can hold in nearly every pose with half of the torque that its own weight leaves, kg.

    ``model``: of the arm; its payload's prior does not matter.
    """
    n, last = model.n, model.layout.payload.start
    q = np.random.default_rng(0).uniform(*pose_range(model), (400, n))
    w = dynamics_of(model.kinematics).torque_regressor(q, np.zeros_like(q), np.zeros_like(q), 1.0)
    rotation, translation = model.flange
    grip = translation + out_of_arm(model.flange) * GRIP * rotation[:, 2]
    own = np.abs(w[:, :, model.layout.links] @ model.theta_nominal[model.layout.links])
    each = np.abs(w[:, :, last] + w[:, :, last + 1 : last + 4] @ grip)
    most = ((model.limits.torque - own) / np.maximum(each, 1e-9)).min(axis=1)
    return float(f"{min(max(0.5 * float(np.quantile(most, 0.05)), 0.1), 50.0):.2g}")


def never_apart(model: RobotModel) -> dict[tuple[str, str], float]:
    """Pairs of bodies that are close in every pose, and that no proof exempts: to be allowed, or looked at.

    The joints between them keep them apart, or nothing would: bodies that cover them may overlap where they do not.

    Returns the largest distance of each pair in these poses, m; negative: how deep they overlap at best.
    """
    rng = np.random.default_rng(0)
    pairs = PairDistances(model, Scene("nothing around"))
    largest = pairs.at(rng.uniform(*pose_range(model), (400, model.n)), want_slopes=False)[0].max(axis=0)
    return {pair: float(distance) for pair, distance in zip(pairs.names, largest, strict=True) if distance < _NEVER}


def inertia_matrices(model: RobotModel, q: FloatArray, theta: FloatArray | None = None) -> FloatArray:
    """H without rotors (M, n, n) at poses (M, n), of the box's midpoint or of some parameters (14 n,)."""
    n = model.n
    inertial = (model.arm_prior.mid if theta is None else theta)[model.layout.links]
    out = np.empty((len(q), n, n))
    for i in range(n):
        unit = np.zeros_like(q)
        unit[:, i] = 1.0
        out[:, :, i] = dynamics_of(model.kinematics).momentum_regressor(q, unit)[:, :, model.layout.links] @ inertial
    return out


def _burden(model: RobotModel, q: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Largest share (N,) of a torque limit at rest, and what the payload makes uncertain, relative to limits (N,)."""
    zero = np.zeros_like(q)
    w = dynamics_of(model.kinematics).torque_regressor(q, zero, zero, 1.0)
    box = model.arm_prior
    spread = np.abs(w) @ box.rad
    torque = np.abs(w @ box.mid) + spread
    return (torque / model.limits.torque).max(axis=1), np.linalg.norm(spread / np.sqrt(model.limits.torque), axis=1)


def _stretch(model: RobotModel, q: FloatArray) -> FloatArray:
    """How much inertia the joints move, each compared with its median (N,)."""
    inertia = inertia_matrices(model, q).diagonal(axis1=1, axis2=2)
    return np.asarray((inertia / np.median(inertia, axis=0)).max(axis=1))


def _self_clearance(model: RobotModel, q: FloatArray) -> FloatArray:
    """(N,) m; smallest distance of the arm to itself, as far as it can be seen."""
    pairs = PairDistances(model, Scene("nothing around"))
    return np.asarray(pairs.at(q, want_slopes=False)[0].min(axis=1, initial=1e3))


def _height_over_base(model: RobotModel, q: FloatArray) -> FloatArray:
    """(N,) m; lowest point of what the second joint and later ones move, over the base's lowest."""
    down = np.array(model.kinematics.gravity) / max(float(np.linalg.norm(model.kinematics.gravity)), 1e-9)
    rotation, origin = forward_kinematics(model.kinematics, q)
    base = [float((body.points @ down).max()) + body.radius for body in model.bodies if body.joint < 0]
    depth = np.full(len(q), -1e3)
    for body in model.bodies:
        if body.joint >= 1:
            points = np.einsum("nij,mj->nmi", rotation[:, body.joint], body.points) + origin[:, body.joint, None]
            depth = np.maximum(depth, (points @ down).max(axis=1) + body.radius)
    return np.asarray(max(base, default=0.0) - depth)
