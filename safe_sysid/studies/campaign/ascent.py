r"""Worst directions: errors on their bounds, and a prior placed about the truth, that push one bound onto the truth.

For each period k and joint j the truth satisfies an equation ``A theta = T`` up to an error eps that the declared
bounds allow to be as large as s. If a bound of ``c.theta`` is proved by multipliers Y of these equations, it is beyond
the truth by ``sum |Y| s - sum Y eps + (what the prior box adds)``. So errors with the sign of Y, and a prior that has
the truth at the end that the rest ``c - A^T Y`` points to, leave nothing between the bound and the truth: one equation
with a proved error that is too small, and the truth is excluded.

*Aimed* (no solver): ``Y = (A d) / s^2`` with ``(sum A^T A / s^2 + eps) d = c``: then ``c - A^T Y = eps d``, and for
these errors no better bound exists than the truth itself. *Ascent*: the multipliers of the bounds that the identifier
itself published for the errors so far. Longer windows are sums of periods, weighted by their test functions.

Errors of states and stamps act linearly to first order: a velocity error e at a sample through the inertia matrix,
``H e`` in the equation that ends there and ``-H e`` in the one that starts; a stamp through the length of the periods
on both sides. That is enough to choose signs.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pinocchio as pin

from safe_sysid.core.arrays import FloatArray, IntArray
from safe_sysid.core.layout import COULOMB, OFFSET, ROTOR, VISCOUS, ParameterLayout
from safe_sysid.identification.equations.momentum import MomentumRows
from safe_sysid.studies.campaign.cases.arms import TrueArm
from safe_sysid.studies.campaign.cases.noise import Levels, Signs
from safe_sysid.studies.campaign.cases.plant import TrueRecord, pinocchio_model
from safe_sysid.studies.campaign.cases.rotor_bodies import RotorBodies

__all__ = ["RecordDynamics", "aimed_direction", "field_of_rows", "signs_of_field", "worst_gravity"]


@dataclass(frozen=True, eq=False)
class RecordDynamics:
    """First-order facts of a record, by Pinocchio."""

    rows: FloatArray  #: (N, n, 14 n) coefficients of the equations ``h tau = rows theta`` of all periods, at mid states
    inertia: FloatArray  #: (N+1, n, n) with rotors, kg m^2
    stiffness: FloatArray  #: (N, n, n) derivative of the torque by position, N m/rad
    growth: FloatArray  #: (N, n) what a period's equation changes by if it were one second longer, N m

    @classmethod
    def of(cls, arm: TrueArm, record: TrueRecord, transition: float, link: bool, states: bool) -> RecordDynamics:
        """Evaluate a record.

        Args:
            arm: true.
            transition: velocity from which on the sign of friction is certain, rad/s.
            link: whether torques are those of the link side.
            states: whether states have errors; else what only these need is left zero.
        """
        n, count, layout = arm.n, len(record.times) - 1, arm.layout
        h = np.diff(record.times)[:, None]
        q, v = 0.5 * (record.q[1:] + record.q[:-1]), np.diff(record.q, axis=0) / h
        a = np.diff(record.qd, axis=0) / h
        model = pinocchio_model(arm, arm.theta)
        data = model.createData()
        rows = np.zeros((count, n, layout.size))
        inertia, stiffness = np.zeros((count + 1, n, n)), np.zeros((count, n, n))
        for k in range(count):
            rows[k, :, layout.links] = pin.computeJointTorqueRegressor(model, data, q[k], v[k], a[k])
        rotor = np.zeros(n) if link else arm.theta[layout.rotor_inertia]
        for j in arm.kinematics.motors.joint:  # what a torque gains by one more unit of its inertia
            less, more = (arm.theta + unit * (np.arange(layout.size) == ROTOR * n + j) for unit in (0.0, 1.0))
            bodies = [RotorBodies(arm.kinematics, theta) for theta in (less, more)]
            for k in range(count):
                parts = [b.parts(q[k], v[k], a[k]) for b in bodies]
                rows[k, :, ROTOR * n + j] = sum(parts[1][: 1 if link else 2]) - sum(parts[0][: 1 if link else 2])
        if states:
            spinning = RotorBodies(arm.kinematics, arm.theta)
            for k in range(count + 1):
                upper = np.triu(pin.crba(model, data, record.q[k]))
                rigid = upper + np.triu(upper, 1).T
                inertia[k] = rigid + np.diag(rotor) if link else spinning.inertia(record.q[k])
            for k in range(count):
                stiffness[k] = pin.computeRNEADerivatives(model, data, q[k], v[k], a[k])[0]
        joint = np.arange(n)
        if not link:
            rows[:, joint, COULOMB * n + joint] = np.where(np.abs(v) > transition, np.sign(v), 0.0)
            rows[:, joint, VISCOUS * n + joint] = v
            resting = np.setdiff1d(joint, arm.kinematics.motors.joint)
            rows[:, resting, ROTOR * n + resting] = a[:, resting]
        rows[:, joint, OFFSET * n + joint] = 1.0
        momentum = np.einsum("kij,kj->ki", inertia, record.qd)
        growth = np.diff(momentum, axis=0) / h + (0.0 if link else arm.theta[layout.viscous]) * v
        return cls(rows * h[..., None], inertia, stiffness, growth)


def aimed_direction(
    dynamics: RecordDynamics, half_width: FloatArray, scale: FloatArray, functional: FloatArray, ridge: float
) -> tuple[FloatArray, FloatArray]:
    """Multipliers that prove an upper bound of a combination, and the direction in which the prior box is felt.

    Args:
        half_width: (N, n) estimate of the half width of each period's equation, N m s, > 0.
        scale: (14 n,) half widths of the prior box.
        functional: (14 n,) coefficients of parameters divided by ``scale``.
        ridge: weight of the prior, > 0.

    Returns:
        Y (N, n) and the place (14 n,) of the truth in the prior: -1 or 1, in the middle for the largest coefficient.
    """
    a = dynamics.rows * scale / half_width[..., None]
    flat = a.reshape(-1, a.shape[-1])
    size = float(np.max(np.einsum("mp,mp->p", flat, flat), initial=0.0))
    # An information matrix on one scale: the ridge is relative to it.
    direction = np.linalg.solve(flat.T @ flat / max(size, 1e-300) + ridge * np.eye(len(scale)), functional)
    field = (a @ direction) / half_width
    place = np.where(direction >= 0.0, 1.0, -1.0)
    place[np.argmax(np.abs(functional))] = (
        0.0  # else the prior itself would be the bound, and nothing seen of the attack
    )
    return field / max(float(np.abs(field).max()), 1e-300), place


def worst_gravity(field: FloatArray, arm: TrueArm, record: TrueRecord, angle: float, relative: float) -> FloatArray:
    """True gravity (3,) on its cone that pushes along Y: the torque is linear in it.

    Args:
        field: Y (N, n).
        arm: true.
        angle: by which gravity may be turned, rad.
        relative: by which it may be stronger or weaker.
    """
    declared = np.asarray(arm.kinematics.gravity, float)
    q, h = 0.5 * (record.q[1:] + record.q[:-1]), np.diff(record.times)
    push = np.zeros(3)
    for c in range(3):
        model = pinocchio_model(arm, arm.theta, np.eye(3)[c])
        data = model.createData()
        torque = np.array([pin.computeGeneralizedGravity(model, data, x) for x in q])
        push[c] = -float(np.einsum("k,kj,kj->", h, field, torque))
    size = float(np.linalg.norm(declared))
    across = push - (push @ declared) / size**2 * declared
    across /= max(float(np.linalg.norm(across)), 1e-300)
    turned = np.cos(angle) * declared + np.sin(angle) * size * across
    return turned * (1.0 + relative * np.sign(push @ turned))


def field_of_rows(
    rows: MomentumRows, multipliers: FloatArray, stamps: FloatArray, order: IntArray, periods: int
) -> tuple[FloatArray, FloatArray]:
    """Multipliers of windows, spread over their periods.

    Returns Y (N, n), and what the proof leaves of the unknowns, minus ``A^T y`` (14 n,).

    Args:
        rows: with ``first``, ``last`` and ``ramp``.
        multipliers: (M,) of a published upper bound, or minus those of a lower one.
        stamps: (L,) of the log, s.
        order: (L,) which sample each entry of the log is; within a window none is missing.
        periods: N.
    """
    field = np.zeros((periods, rows.layout.n))
    for i in np.flatnonzero(multipliers):
        first, last = int(rows.first[i]), int(rows.last[i])
        if rows.log[i] != 0 or first < 0:
            continue
        phi = _test_function(stamps[first : last + 1], float(rows.ramp[i]))
        field[order[first] : order[last], int(rows.joint[i])] += multipliers[i] * 0.5 * (phi[1:] + phi[:-1])
    return field, -rows.matrix.T @ multipliers


def signs_of_field(
    field: FloatArray,
    place: FloatArray,
    dynamics: RecordDynamics,
    record: TrueRecord,
    viscous: FloatArray,
    levels: Levels,
    sampled: bool,
    before: Signs,
) -> Signs:
    """Errors on their bounds that push along Y; where Y is zero they stay as they were.

    Args:
        field: Y (N, n).
        place: (14 n,) of the truth in the prior: a sensor's bias adds to the offset.
        viscous: (n,) Fv, zero for torques of the link side.
        sampled: whether a torque serves the periods on both sides of its sample.
    """

    def pick(gain: FloatArray, old: FloatArray) -> FloatArray:
        return np.where(np.abs(gain) > 1e-9 * max(float(np.abs(gain).max()), 1e-300), np.sign(gain), old)

    h = np.diff(record.times)[:, None]
    none = np.zeros((1, field.shape[1]))
    ending, starting = np.vstack([none, field]), np.vstack([field, none])
    torque = pick(-(ending + starting) if sampled else -ending, before.torque)
    stick = pick(-ending, before.stick)
    offset = place[ParameterLayout(len(viscous)).offset]
    bias = np.where(offset == 0.0, before.bias, np.sign(offset))
    if not (np.any(levels.velocity) or np.any(levels.position) or levels.stamp > 1e-9):
        return Signs(torque, before.position, before.velocity, before.stamp, stick, bias)
    jump = ending - starting
    velocity = np.einsum("kij,ki->kj", dynamics.inertia, jump)
    pull = 0.5 * h * np.einsum("kij,ki->kj", dynamics.stiffness, field)
    position = viscous * jump + np.vstack([none, pull]) + np.vstack([pull, none])
    if np.any(levels.velocity):  # on ramps mean velocities come from positions
        level = 0.5 * (ending + starting)
        bend = np.diff(np.vstack([level[:1], level, level[-1:]]), n=2, axis=0)
        position = position + np.einsum("kij,ki->kj", dynamics.inertia, bend) / float(h.mean())
    work = np.einsum("kj,kj->k", field, dynamics.growth)
    stamp = np.concatenate([work, [0.0]]) - np.concatenate([[0.0], work])
    return Signs(
        torque, pick(position, before.position), pick(velocity, before.velocity), pick(stamp, before.stamp), stick, bias
    )


def _test_function(stamps: FloatArray, ramp: float) -> FloatArray:
    """At the samples of a window: 1, or up and down again over ``ramp`` s."""
    if ramp <= 0.0:
        return np.ones(len(stamps))
    start, end = stamps[0], stamps[-1]
    return np.minimum(np.minimum(stamps - start, end - stamps) / min(ramp, 0.5 * (end - start)), 1.0)
