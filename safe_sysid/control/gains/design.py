"""Gain design: gains for a robot's configuration or for one motion, computed once for planner and controller."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from safe_sysid.control.gains import ControllerGains, TrackingAssumptions
from safe_sysid.control.gains.motion_hypotheses import MotionHypotheses, configured_hypotheses, hypotheses_of, torque_of
from safe_sysid.control.gains.synthesis import synthesise
from safe_sysid.core.arrays import FloatArray
from safe_sysid.decimals import at_most
from safe_sysid.dynamics.magnitudes import rotor_floor
from safe_sysid.errors import ParameterError
from safe_sysid.robot.config import per_joint
from safe_sysid.robot.model import RobotModel
from safe_sysid.robot.parameters import ParameterBox
from safe_sysid.trajectories.quintic import QuinticTrajectory

__all__ = ["STIFFEST", "check_acceleration", "design_gains", "gains_for_motion", "law_offset"]


#: The stiffest gains that a search considers, 1/s: K_r and kappa. No theorem's bound: that of a rigid arm would have
#: them far higher, a real one's joints and gears bend (their first resonances are at some 10 Hz).
STIFFEST = (10.0, 20.0)
#: The search's steps, as factors of the stiffest: geometric, from 1 down to a tenth.
_STEPS = np.geomspace(1.0, 0.1, 8)
#: Rounds of "gains give r_bound, r_bound is part of the hypotheses" until they agree.
_ROUNDS = 12


def design_gains(
    model: RobotModel,
    lockstep: bool = False,
    *,
    box: ParameterBox | None = None,
    motion_hypotheses: MotionHypotheses | None = None,
    K_r: ArrayLike | None = None,
    kappa: float | None = None,
) -> ControllerGains:
    """Synthesise the gains for a box of parameters, the motions asked for and the declared timing.

    Args:
        lockstep: the plant waits for every command: a torque then acts for exactly one period, without delay.
        box: that the theorem is computed for, inside the model's prior; None: the prior.
        motion_hypotheses: what motions need; None: the configuration's.
        K_r: (n,) or one for all, 1/s; None: the configuration's.
        kappa: decay rate, 1/s; None: the configuration's.

    Raises:
        ParameterError: no tracking bound exists; the message says what to relax. Or the box is not in the prior. Or
            stamps have errors and :func:`check_acceleration` fails: the theorem itself rests on it then. Or a prismatic
            joint's measured position may be too far beyond its limits.
    """
    model.require_known_reactions("gains")
    model.require_known_drives("gains")
    if model.settings.follows_trajectories:
        raise ParameterError(
            f"controller.interface = {model.settings.controller.interface!r} of {model.name}: expected 'torque' for "
            "our own law: this arm's own controller follows plans, within controller.tube (docs/use/trajectory.md)"
        )
    s, n, prior = model.settings, model.n, model.arm_prior
    if box is not None and (
        box.size != prior.size or np.any(box.lower < prior.lower) or np.any(box.upper > prior.upper)
    ):
        raise ParameterError(f"box {box.identity}: expected one inside the prior box of {model.name}")
    # A stamp that is wrong by this much dates the measurement wrongly: the arm has moved on in the meantime.
    stamp = s.measurement.stamp_error_s
    motion_hypotheses = configured_hypotheses(model) if motion_hypotheses is None else motion_hypotheses
    assume = TrackingAssumptions(
        velocity=motion_hypotheses.velocity,
        acceleration=motion_hypotheses.acceleration,
        jerk=motion_hypotheses.jerk,
        uncertainty=motion_hypotheses.uncertainty,
        inertia_upper=motion_hypotheses.inertia_upper,
        position_error=model.position_error + motion_hypotheses.velocity * stamp,
        velocity_error=per_joint(s.measurement.velocity_error, n) + model.acceleration_bound * stamp,
        actuator_abs=per_joint(s.actuator.torque_abs, n),
        actuator_rel=per_joint(s.actuator.torque_rel, n),
        torque_limit=np.asarray(model.limits.torque),
        feed_forward=per_joint(s.controller.feed_forward.bound, n),
        hold_max=s.timing.period_s if lockstep else s.timing.hold_max_s,
        delay_max=0.0 if lockstep else s.timing.delay_max_s,
    )
    box = prior if box is None else box
    lower = motion_hypotheses.inertia_lower
    gains = synthesise(
        model.kinematics,
        box,
        assume,
        rotor_floor(model.kinematics, box) if lower is None else lower,
        np.broadcast_to(np.asarray(s.controller.K_r if K_r is None else K_r, float), (n,)),
        s.controller.kappa if kappa is None else float(kappa),
        model.friction_transition_velocity,
        model.joint_names,
        s.controller.damping == "inertia",
    )
    if stamp > 0.0:
        check_acceleration(model, gains)
    _check_travel(model, gains)
    return gains


def _check_travel(model: RobotModel, gains: ControllerGains) -> None:
    """The bounds of the dynamics are those within the travel: the state that the law takes must be in it, too.

    Plans keep the true positions of prismatic joints within their limits; the law works at what is measured, ahead.
    """
    limits, travel, off = model.limits, model.kinematics.travel, law_offset(gains)
    for j in np.flatnonzero(model.sliding):
        room = min(limits.position_lower[j] - travel[j, 0], travel[j, 1] - limits.position_upper[j])
        if not off[j] <= room:
            raise ParameterError(
                f"{model.joint_names[j]}: the control law may take a position {off[j]:.4g} m beyond the limits: "
                f"expected at most {room:.4g} m, a share of the range; widen it, or lower measurement.position_error"
            )


def law_offset(gains: ControllerGains) -> FloatArray:
    """(n,) how far the position that the law takes may be off the true one, m or rad: by its error, and by the lead."""
    a = gains.assumptions
    return np.asarray(a.position_error + gains.lead * (a.velocity + a.velocity_error))


def check_acceleration(model: RobotModel, gains: ControllerGains) -> None:
    """Identification may assume ``identification.acceleration_bound``: whoever identifies with these gains asks here.

    Gains for one fast motion may allow for more; nobody identifies with them.

    Raises:
        ParameterError: the tracking bound allows for more than the declared.
    """
    declared = model.acceleration_bound
    if np.any(gains.acceleration_bound > declared):
        j = int(np.argmax(gains.acceleration_bound / declared))
        name, unit = model.joint_names[j], model.position_units[j]
        raise ParameterError(
            f"identification.acceleration_bound = {declared[j]:g} {unit}/s^2 of {name}: expected at least "
            f"{at_most(gains.acceleration_bound[j], 4)}, which the tracking bound allows for (gains.acceleration_bound)"
        )


def gains_for_motion(
    model: RobotModel,
    trajectory: QuinticTrajectory,
    box: ParameterBox,
    lockstep: bool = False,
    *,
    K_r: ArrayLike | None = None,
    kappa: float | None = None,
) -> ControllerGains:
    """Gains whose theorem covers one motion with one box, e.g. a fast one with an identified payload.

    K_r and kappa are those of the smallest tracking tube among those whose torque the motion leaves room for, up to
    :data:`STIFFEST`: by a descent over a grid of both (deterministic, a few seconds). Only a choice: that the theorem
    covers the motion with them, and that torques suffice, is what ``verify_plan`` with these gains and this box says;
    nested boxes are covered. They are for a law that works with this box from the start; a ``Controller`` begins with
    the prior, which they do not cover.

    Args:
        model: of the arm, with settings; its limits are those that torques shall keep.
        box: that the controller works with, inside the prior.
        lockstep: as in :func:`design_gains`.
        K_r: (n,) or one for all, 1/s; None: searched for.
        kappa: decay rate, 1/s; None: searched for.

    Raises:
        ParameterError: no tracking bound exists for it, or sizes do not match.
    """
    rates = [K_r] if K_r is not None else list(STIFFEST[0] * _STEPS)
    decays = [kappa] if kappa is not None else list(STIFFEST[1] * _STEPS)
    tried: dict[tuple[int, int], tuple[tuple[float, float], ControllerGains | None]] = {}

    def score(i: int, j: int) -> tuple[float, float]:
        """Torque beyond the limits, then reach; all joints' bounds keep their proportions, so any norm will do."""
        if not (0 <= i < len(rates) and 0 <= j < len(decays)):
            return np.inf, np.inf
        if (i, j) not in tried:
            tried[i, j] = (np.inf, np.inf), None
            try:
                gains = _fixed_gains(model, trajectory, box, lockstep, rates[i], decays[j])
            except ParameterError:
                return tried[i, j][0]
            beyond = torque_of(model, trajectory, box, gains) - model.limits.torque
            tried[i, j] = (max(float(np.max(beyond)), 0.0), float(np.max(gains.e_bound))), gains
        return tried[i, j][0]

    at = (0, 0)
    for k in range(max(len(rates), len(decays))):  # the stiffest that have a bound at all
        at = (min(k, len(rates) - 1), min(k, len(decays) - 1))
        if np.isfinite(score(*at)[1]):
            break
    while True:
        i, j = at
        best = min(((i + 1, j), (i, j + 1), (i - 1, j), (i, j - 1)), key=lambda near: score(*near))
        if not score(*best) < score(*at):
            break
        at = best
    gains = tried[at][1]
    if gains is None:
        # Says why, for the configuration's own gains.
        return _fixed_gains(model, trajectory, box, lockstep, K_r, kappa)
    return gains


def _fixed_gains(
    model: RobotModel,
    trajectory: QuinticTrajectory,
    box: ParameterBox,
    lockstep: bool,
    K_r: ArrayLike | None,
    kappa: float | None,
) -> ControllerGains:
    """Those of :func:`gains_for_motion` for given K_r and kappa; None: the configuration's."""
    r_bound = np.zeros(model.n)
    for _ in range(_ROUNDS):
        motion_hypotheses = hypotheses_of(model, trajectory, box, r_bound=r_bound, K_r=K_r, kappa=kappa)
        gains = design_gains(model, lockstep, box=box, motion_hypotheses=motion_hypotheses, K_r=K_r, kappa=kappa)
        # A larger bound costs a larger bound: go on until what was assumed covers what came out.
        if np.all(gains.r_bound <= r_bound):
            return gains
        r_bound = 1.03 * gains.r_bound
    raise ParameterError(
        "no tracking bound found for this motion: its tracking error asks for more than its hypotheses; "
        "slow the motion down, or shrink the box"
    )
