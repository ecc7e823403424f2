"""Gains, boxes, plans and weaker arms for the tests of a plan's certificate."""

from __future__ import annotations

import dataclasses

import numpy as np

from safe_sysid.control.gains import ControllerGains, TrackingAssumptions
from safe_sysid.planning.certification.certificate import PlanCertificate, verify_plan
from safe_sysid.robot.model import RobotModel
from safe_sysid.robot.parameters import ParameterBox
from safe_sysid.robot.scenes.scene import Scene
from safe_sysid.trajectories.plan import Plan
from safe_sysid.trajectories.quintic import QuinticTrajectory


def gains_for(model: RobotModel, box: ParameterBox, r: float = 0.03, **changes: object) -> ControllerGains:
    """Gains of a plausible size; the theorem that would prove them is not what is tested here."""
    ones, zeros = np.ones(model.n), np.zeros(model.n)
    k_r, r_bound = np.linspace(6.0, 4.0, model.n), r * np.linspace(1.0, 1.2, model.n)
    assume = TrackingAssumptions(
        velocity=1.2 * ones, acceleration=3.0 * ones, jerk=20.0 * ones, uncertainty=50.0, inertia_upper=2e3 * ones,
        position_error=zeros, velocity_error=zeros, actuator_abs=0.1 * ones, actuator_rel=0.01 * ones,
        torque_limit=model.limits.torque, feed_forward=zeros, hold_max=0.002, delay_max=0.0,
    )  # fmt: skip
    fields = {
        "assumptions": dataclasses.replace(assume, **{k: v for k, v in changes.items() if hasattr(assume, k)}),
        "K_r": k_r, "box": box, "K_d": 150.0 * ones, "kappa": 10.0, "robust_gain": 1.0,
        "inertia_lower": box.lower[box.layout.rotor_inertia], "V_max": 0.02, "power_loss": 0.1,
        "r_bound": r_bound, "e_bound": r_bound / k_r, "de_bound": 2 * r_bound,
    }  # fmt: skip
    fields |= {k: v for k, v in changes.items() if k in fields}
    names = {
        f.name for f in dataclasses.fields(ControllerGains) if f.default_factory is f.default is dataclasses.MISSING
    }
    return ControllerGains(**dict.fromkeys(names - set(fields), 5.0 * ones), **fields)


def narrow_box(model: RobotModel) -> ParameterBox:
    """The prior cut down to a known payload give or take: the whole prior is for the closed loop's tests."""
    lower, upper = model.arm_prior.payload_lower, model.arm_prior.payload_upper
    centre, half = 0.5 * (lower + upper), 0.5 * (upper - lower)
    return model.arm_prior.with_payload(centre - 0.2 * half, centre + 0.2 * half, seq=3)


def plan_of(trajectory: QuinticTrajectory, box: ParameterBox) -> Plan:
    return Plan(trajectory, 100.0, trajectory.duration / 2, box.identity, 0, np.zeros(trajectory.n))


def reach_out(model: RobotModel, q: np.ndarray, amount: float = 0.2, seed: int = 0) -> QuinticTrajectory:
    step = amount * np.random.default_rng(seed).uniform(-1, 1, model.n)
    return QuinticTrajectory.to_rest(np.stack([q, 0 * q, 0 * q]), q + step, 3.0)


def wild() -> QuinticTrajectory:
    """A motion so wild that enclosures overflow."""
    return QuinticTrajectory.to_rest(np.array([np.zeros(7), np.full(7, 1e150), np.zeros(7)]), np.zeros(7), 3.0)


def with_limits(model: RobotModel, **changes: np.ndarray) -> RobotModel:
    return dataclasses.replace(model, limits=dataclasses.replace(model.limits, **changes))


def certify(
    model: RobotModel,
    box: ParameterBox,
    trajectory: QuinticTrajectory | None = None,
    scene: Scene | None = None,
    gains: ControllerGains | None = None,
    **more: object,
) -> PlanCertificate:
    """Of a plan from home in the open, unless said otherwise; in few cells."""
    trajectory = reach_out(model, np.array(model.settings.home)) if trajectory is None else trajectory
    more = {"intervals": 16, "clearance_margin": 0.002} | more
    return verify_plan(
        plan_of(trajectory, box), model, box, scene or Scene("open"), gains or gains_for(model, box, 0.02), **more
    )
