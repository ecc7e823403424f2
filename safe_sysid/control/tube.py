r"""The tube: how far an arm may be from its desired motion, as a value with two sources.

- The theorem of our own torque law (:func:`~safe_sysid.control.gains.design.design_gains`): proved.
- The arm's own position controller (``controller.interface: trajectory``): measured by ``safe-sysid tube``, declared in
  the arm's file, watched at every sample. Nothing about it is proved ("Trajectory interface" in
  docs/understand/guarantees.md).

Planner and certificates take either; data flows from here to them and never back.

The theorem's tube is narrower where the box is smaller, with the same law: :func:`tubes_of`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from weakref import WeakKeyDictionary

import numpy as np

from safe_sysid.control.gains import ControllerGains, TrackingAssumptions
from safe_sysid.control.gains.design import design_gains
from safe_sysid.control.gains.synthesis import narrowed
from safe_sysid.control.laws.robust import RobustLaw
from safe_sysid.core.arrays import FloatArray
from safe_sysid.decimals import at_most
from safe_sysid.dynamics.magnitudes import rotor_ceiling
from safe_sysid.errors import ParameterError
from safe_sysid.robot.config import per_joint
from safe_sysid.robot.model import RobotModel
from safe_sysid.robot.parameters import ParameterBox

__all__ = ["MeasuredTube", "TrackingTube", "measured_tube", "torque_reserve", "tracking_tube", "tubes_of"]

#: Stands for "no hypothesis" where the theorem has one (of S, sqrt(W/s), and of H, kg m^2). Finite: margins are scaled.
_NONE = 1e6
#: An arm's inertia beside its rotors', as torque feels it, guessed.
_SHAPE = 1.5
#: Of the gains' own bound of S: what narrower tubes assume. A last step in V_max below a tenth is not worth a tube.
_SHARES = (0.75, 0.56, 0.42, 0.32, 0.24, 0.18, 0.135, 0.1)
_WORTH = 0.9
_KNOWN: WeakKeyDictionary[ControllerGains, tuple[ControllerGains, ...]] = WeakKeyDictionary()


@dataclass(frozen=True, eq=False)
class MeasuredTube:
    """A declared tube: at every instant ``|e_j|``, ``|de_j|``, ``|dde_j|`` are at most these; boxes, joint by joint.

    Attributes:
        assumptions: the largest desired motion for which it was measured; what else the theorem assumes is void.
        box: the prior that it is declared for: no heavier than what it was measured with.
        e_bound, de_bound, dde_bound: (n,) outer tube, that certificates rest on; rad, rad/s, rad/s^2.
        inner_e, inner_de: (n,) inner tube, that the watch stops at.
        inertia_lower: (n,) ones: weights of a measure that nothing is asked of here.
        origin: what it was measured on.
    """

    assumptions: TrackingAssumptions
    box: ParameterBox
    e_bound: FloatArray
    de_bound: FloatArray
    dde_bound: FloatArray
    inner_e: FloatArray
    inner_de: FloatArray
    inertia_lower: FloatArray
    origin: str


#: What planner and certificates take.
TrackingTube = ControllerGains | MeasuredTube


def tracking_tube(model: RobotModel, lockstep: bool = False) -> TrackingTube:
    """The tube of the configured interface: ``controller.interface``.

    Raises:
        ParameterError: no tracking bound exists, or the declared tube does not cover what is asked for.
    """
    if model.settings.follows_trajectories:
        return measured_tube(model)
    return design_gains(model, lockstep)


def tubes_of(model: RobotModel, tube: TrackingTube) -> tuple[TrackingTube, ...]:
    """All tubes that plans may be certified for, the widest first: ``tube`` itself.

    The others are of the same law, for boxes that ask for less S: "Narrower tubes" in docs/understand/guarantees.md. A
    plan names its tube by its place in this list (:attr:`~safe_sysid.trajectories.plan.Plan.tube`). A measured tube,
    and a law that proves nothing, have no other.
    """
    if isinstance(tube, MeasuredTube) or model.settings.controller.law != RobustLaw.name:
        return (tube,)
    known = _KNOWN.get(tube)
    if known is None:
        known = _KNOWN[tube] = _narrower(model, tube)
    return (tube, *known)


def _narrower(model: RobotModel, gains: ControllerGains) -> tuple[ControllerGains, ...]:
    """The narrower ones alone: a value that held its key would live for ever."""
    found, before = [], gains
    for share in _SHARES:
        most = share * gains.assumptions.uncertainty
        tube = narrowed(gains, model.kinematics, model.friction_transition_velocity, most)
        if tube is None or not tube.V_max <= _WORTH * before.V_max:
            break
        found.append(tube)
        before = tube
    return tuple(found)


def measured_tube(model: RobotModel) -> MeasuredTube:
    """The tube that the arm's file declares.

    Raises:
        ParameterError: none is declared; the prior is heavier, or plans may be faster, than what it was measured with;
            accelerations may be larger than identification assumes; or torque is known at samples only.
    """
    model.require_known_reactions("a measured tube")
    s, n = model.settings, model.n
    tube, control, names = s.controller.tube, s.controller, model.joint_names
    if tube is None:
        raise ParameterError(
            f"{model.name}: controller.interface is trajectory and controller.tube is not declared: expected the tube "
            "that `safe-sysid tube` measures and writes"
        )
    # What was weighed is real; an identified arm's prior may be about another last link that moves as the real one.
    excess = float(model.kinematics.excess_by_link[-1, 0])
    heaviest = float(model.arm_prior.payload_upper[0])
    heaviest = math.nextafter(heaviest + excess, math.inf) if excess else heaviest
    if not heaviest <= tube.heaviest:
        raise ParameterError(
            f"payload.prior_upper: mass up to {heaviest:g} kg (last link, hand and payload): expected at most "
            f"{tube.heaviest:g} kg, the heaviest that controller.tube was measured with; measure it with more, or "
            "shrink the prior"
        )
    motion = []
    for what, unit in (("velocity", "rad/s"), ("acceleration", "rad/s^2"), ("jerk", "rad/s^3")):
        asked, known = per_joint(getattr(control, what), n), per_joint(getattr(tube, f"largest_{what}"), n)
        motion.append(asked)
        if not np.all(asked <= known):
            j = int(np.argmax(asked - known))
            raise ParameterError(
                f"controller.{what} = {asked[j]:g} {unit} of {names[j]}: expected at most {known[j]:g}, the fastest "
                "that controller.tube was measured with"
            )
    dde, allowed = per_joint(tube.acceleration, n), model.acceleration_bound
    if not np.all((motion[1] + dde) * (1.0 + 1e-12) <= allowed):
        j = int(np.argmax(motion[1] + dde - allowed))
        raise ParameterError(
            f"identification.acceleration_bound = {allowed[j]:g} rad/s^2 of {names[j]}: expected at least "
            f"{at_most(float((motion[1] + dde)[j]), 4)}, the desired acceleration and the tube's"
        )
    zero, none = np.zeros(n), np.full(n, _NONE)
    assume = TrackingAssumptions(
        velocity=motion[0], acceleration=motion[1], jerk=motion[2], uncertainty=_NONE, inertia_upper=none,
        position_error=zero, velocity_error=zero, actuator_abs=zero, actuator_rel=zero,
        torque_limit=np.asarray(model.limits.torque), feed_forward=zero,
        hold_max=s.timing.hold_max_s, delay_max=s.timing.delay_max_s,
    )  # fmt: skip
    e, de, inner_e, inner_de = (
        per_joint(value, n) for value in (tube.position, tube.velocity, tube.inner_position, tube.inner_velocity)
    )
    # From leaving the inner tube until the stop acts: a sample, the way back and the way there.
    reaction = 1.0 / s.measurement.rate_hz + tube.latency_s
    for what, outer, inner, rate in (("position", e, inner_e, de), ("velocity", de, inner_de, dde)):
        if not np.all(inner + reaction * rate <= outer * (1.0 + 1e-9)):
            j = int(np.argmax(inner + reaction * rate - outer))
            raise ParameterError(
                f"controller.tube.{what} = {outer[j]:g} of {names[j]}: expected at least "
                f"{at_most(float((inner + reaction * rate)[j]), 4)}: the inner tube, and what the error may grow by "
                f"in the {reaction:g} s of a sample and the latency"
            )
    return MeasuredTube(assume, model.arm_prior, e, de, dde, inner_e, inner_de, np.ones(n), tube.origin)


def torque_reserve(model: RobotModel, tube: TrackingTube, box: ParameterBox) -> FloatArray:
    """First guess (n,) N m of what tracking errors cost in torque, as if joints did not couple. No proof."""
    rotor = rotor_ceiling(model.kinematics, box)
    if isinstance(tube, MeasuredTube):
        return np.asarray(2.0 * rotor * tube.dde_bound)
    return np.asarray((tube.K_d + (2.0 * tube.K_r + _SHAPE * tube.own_damping) * rotor) * tube.r_bound)
