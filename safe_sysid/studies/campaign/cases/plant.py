"""True motion and torques of a trial: a motion in closed form, by inverse dynamics.

Only Pinocchio's RNEA is used, rotors in moving links being bodies of their own (``rotor_bodies``), and quadrature of
our own: nothing that the identifier is made of.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pinocchio as pin

from safe_sysid.core.arrays import FloatArray
from safe_sysid.studies.campaign.cases.arms import TrueArm
from safe_sysid.studies.campaign.cases.motions import TrueMotion
from safe_sysid.studies.campaign.cases.rotor_bodies import RotorBodies

__all__ = ["LAWS", "TrueRecord", "exact_record", "instants", "pinocchio_model"]


#: Coulomb torque below the transition velocity: proportional to the velocity, or stuck at anything within +-Fc.
LAWS = ("saturated", "stick")


@dataclass(frozen=True, eq=False)
class TrueRecord:
    """Truth at the samples, and for each sample the torque that is reported with it.

    That is the mean over the period before the sample (row 0 is then zero), or the torque at an instant.
    """

    times: FloatArray  #: (N+1,) s
    q: FloatArray  #: (N+1, n) rad, rad/s
    qd: FloatArray  #: (N+1, n) rad, rad/s
    #: (N+1, n) behind the gears: of the links' motion, of rotors that spin in them, and of gravity, N m
    rigid: FloatArray
    friction: FloatArray  #: (N+1, n) all friction and offset, apart from what is stuck, N m
    stuck: FloatArray  #: (N+1, n) share of the period in which a joint's Coulomb torque is free, times Fc, N m
    rotor: FloatArray  #: (N+1, n) of the joints' own rotors, N m
    offset: FloatArray  #: (n,) beta, N m
    acceleration: FloatArray  #: (n,) supremum of ``|qdd|``, rad/s^2
    jerk: FloatArray | None = None  #: (n,) supremum of ``|qddd|`` where qdd is continuous, rad/s^3; None elsewhere
    #: (n,) bound of the rate of the torque, motor side, then of the link side, N m/s; None where it jumps
    rate: tuple[FloatArray, FloatArray] | None = None

    def torque(self, stick: FloatArray, link: bool) -> FloatArray:
        """Torques (N+1, n) for the values in [-1, 1] (N+1, n) that stuck friction takes: motor or link side."""
        if link:
            return self.rigid + self.offset
        return self.rigid + self.rotor + self.friction + stick * self.stuck

    def then(self, later: TrueRecord, sample: int) -> TrueRecord:
        """The same motion with the torques of another record from a sample on."""
        names = ("rigid", "friction", "stuck", "rotor")
        parts: dict[str, Any] = {
            name: np.vstack([getattr(self, name)[:sample], getattr(later, name)[sample:]]) for name in names
        }
        return replace(self, **parts)


def pinocchio_model(arm: TrueArm, theta: FloatArray, gravity: FloatArray | None = None) -> pin.Model:
    """The chain with links of ``theta`` (14 n,), without rotors and friction."""
    kin = arm.kinematics
    model = pin.Model()
    model.gravity.linear = np.array(kin.gravity if gravity is None else gravity)
    for j in range(arm.n):
        placement = pin.SE3(np.array(kin.rotation[j]), np.array(kin.translation[j]))
        kind = pin.JointModelPrismaticUnaligned if kin.sliding[j] else pin.JointModelRevoluteUnaligned
        model.addJoint(j, kind(np.array(kin.axis[j])), placement, f"joint_{j + 1}")
        link = pin.Inertia.FromDynamicParameters(np.array(theta[arm.layout.link(j)]))
        model.appendBodyToJoint(j + 1, link, pin.SE3.Identity())
    return model


def exact_record(
    arm: TrueArm,
    theta: FloatArray,
    motion: TrueMotion,
    times: FloatArray,
    transition: float,
    law: str,
    gravity: FloatArray,
) -> TrueRecord:
    """A motion that is known in closed form, and the torque it takes: exact up to rounding, accelerations may jump.

    Args:
        theta: (14 n,) true parameters.
        times: (N+1,) true times of the samples, s, within the motion.
        transition: velocity from which on the Coulomb torque is Fc, rad/s.
        law: one of :data:`LAWS`.
        gravity: (3,) true gravity, m/s^2.
    """
    n = arm.n
    fc, fv, _, beta = arm.layout.by_term(theta)
    q, qd, _ = motion.state(times)
    bodies = RotorBodies(arm.kinematics, theta, gravity)
    spin = np.array([bodies.own_momentum(*state) for state in zip(q, qd, strict=True)])
    h = np.diff(times)[:, None]
    beyond, inside, travel = _friction_shares(motion, times, transition)
    linear = travel / transition if law == "saturated" and transition > 0.0 else np.zeros_like(travel)

    def after_first(values: FloatArray) -> FloatArray:
        return np.vstack([np.zeros((1, n)), values])

    return TrueRecord(
        times=times,
        q=q,
        qd=qd,
        rigid=after_first(_mean_rigid(bodies, motion, times)),
        friction=after_first(fc * (beyond + linear) / h + fv * np.diff(q, axis=0) / h + beta),
        stuck=after_first(fc * inside / h if law == "stick" else np.zeros_like(inside)),
        rotor=after_first(np.diff(spin, axis=0) / h),
        offset=beta,
        acceleration=motion.largest_acceleration(),
    )


def _mean_rigid(bodies: RotorBodies, motion: TrueMotion, times: FloatArray, nodes: int = 0) -> FloatArray:
    """Mean of RNEA over each period by Gauss-Legendre between samples and knots."""
    cuts = np.union1d(times, motion.knots[(motion.knots > times[0]) & (motion.knots < times[-1])])
    span = np.diff(cuts)
    if not nodes:  # the integrand is analytic between cuts: the error falls like (span * speed)^(2 nodes)
        turn = float(np.max(span) * max(1.0, np.abs(motion.state(cuts)[1]).sum(axis=1).max()))
        nodes = 4 if turn < 0.02 else 6 if turn < 0.08 else 10
    x, w = np.polynomial.legendre.leggauss(nodes)
    at = (0.5 * (cuts[1:] + cuts[:-1]))[:, None] + 0.5 * span[:, None] * x
    q, qd, qdd = motion.state(at.ravel())
    torque = np.array([bodies.parts(*state)[0] for state in zip(q, qd, qdd, strict=True)])
    integral = np.einsum("k,skj->sj", w, torque.reshape(len(span), nodes, -1)) * (0.5 * span)[:, None]
    first = np.searchsorted(cuts, times[:-1])
    return np.add.reduceat(integral, first, axis=0) / np.diff(times)[:, None]


def _friction_shares(
    motion: TrueMotion, times: FloatArray, transition: float
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Per period (N, n): time above less time below the transition velocity, time within, distance within."""
    beyond, inside, travel = (np.zeros((len(times) - 1, motion.n)) for _ in range(3))
    for j in range(motion.n):
        levels = {transition, -transition}
        crossings = np.concatenate([motion.crossings(j, level) for level in sorted(levels)])
        cuts = np.unique(np.concatenate([times, motion.knots, crossings]))
        cuts = cuts[(cuts >= times[0]) & (cuts <= times[-1])]
        middle = 0.5 * (cuts[1:] + cuts[:-1])
        speed = motion.state(middle)[1][:, j]
        within = np.abs(speed) <= transition
        span = np.diff(cuts)
        first = np.searchsorted(cuts, times[:-1])
        beyond[:, j] = np.add.reduceat(np.where(within, 0.0, np.sign(speed) * span), first)
        inside[:, j] = np.add.reduceat(np.where(within, span, 0.0), first)
        moved = np.diff(motion.state(cuts)[0][:, j])
        travel[:, j] = np.add.reduceat(np.where(within, moved, 0.0), first)
    return beyond, inside, travel


def instants(
    arm: TrueArm,
    theta: FloatArray,
    motion: TrueMotion,
    times: FloatArray,
    moved: FloatArray,
    transition: float,
    gravity: FloatArray,
) -> TrueRecord:
    """A motion with continuous acceleration and the torque at instants beside the samples; friction is saturated.

    Args:
        theta: (14 n,) true parameters.
        times: (N+1,) true times of the samples, s.
        moved: (N+1,) true times of the torques, s.
        transition: velocity over which the Coulomb torque grows to Fc, rad/s, > 0.
        gravity: (3,) true gravity, m/s^2.
    """
    fc, fv, ia, beta = arm.layout.by_term(theta)
    bodies = RotorBodies(arm.kinematics, theta, gravity)

    def parts(at: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Behind the gears, and what the joints' own rotors take."""
        both = np.array([bodies.parts(*state) for state in zip(*motion.state(at), strict=True)])
        return both[:, 0], both[:, 1]

    q, qd, _ = motion.state(times)
    v = motion.state(moved)[1]
    dense = np.linspace(min(times[0], moved[0]), max(times[-1], moved[-1]), 6 * len(times))
    behind, own = parts(dense)
    more = own - ia * motion.state(dense)[2]  # by the rotation of the links that carry the rotors
    link, seen = (1.2 * np.abs(np.diff(x, axis=0)).max(axis=0) / (dense[1] - dense[0]) for x in (behind, behind + more))
    largest, jerk = motion.largest_acceleration(), motion.largest_jerk()
    motor = seen + (fc / transition + fv) * largest + ia * jerk
    friction = fc * np.clip(v / transition, -1.0, 1.0) + fv * v + beta
    behind, own = parts(moved)
    return TrueRecord(times, q, qd, behind, friction, np.zeros_like(q), own, beta, largest, jerk, (motor, link))
