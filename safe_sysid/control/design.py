"""Gains from a robot's configuration: computed once, read by planner and controller alike."""

from __future__ import annotations

import numpy as np

from safe_sysid.control.gains import ControllerGains, TrackingAssumptions, synthesise
from safe_sysid.robot.config import per_joint
from safe_sysid.robot.model import RobotModel

__all__ = ["design_gains"]


def design_gains(model: RobotModel, lockstep: bool = False) -> ControllerGains:
    """Synthesise the gains for a model's own prior box and declared timing.

    Args:
        model: of the arm, with settings.
        lockstep: the plant waits for every command: a torque then acts for exactly one period, without delay.

    Raises:
        ParameterError: no tracking bound exists; the message says what to relax.
    """
    s, n, box = model.settings, model.n, model.arm_prior
    rotor = box.lower[12 * n : 13 * n]
    velocity = per_joint(s.controller.velocity, n)
    # A stamp that is wrong by this much dates the measurement wrongly: the arm has moved on in the meantime.
    stamp = s.measurement.stamp_error_s
    fastest = per_joint(s.identification.acceleration_bound, n)
    assume = TrackingAssumptions(
        velocity=velocity,
        acceleration=per_joint(s.controller.acceleration, n),
        jerk=per_joint(s.controller.jerk, n),
        uncertainty=s.controller.uncertainty,
        inertia_upper=per_joint(s.controller.inertia_ratio, n) * rotor,
        position_error=per_joint(s.measurement.position_error, n) + velocity * stamp,
        velocity_error=per_joint(s.measurement.velocity_error, n) + fastest * stamp,
        actuator_abs=per_joint(s.actuator.torque_abs, n),
        actuator_rel=per_joint(s.actuator.torque_rel, n),
        torque_limit=np.asarray(model.limits.torque),
        hold_max=s.timing.period_s if lockstep else s.timing.hold_max_s,
        delay_max=0.0 if lockstep else s.timing.delay_max_s,
    )
    return synthesise(
        model.kinematics,
        box,
        assume,
        per_joint(s.controller.K_r, n),
        s.controller.kappa,
        model.friction_transition_velocity,
        model.joint_names,
    )
