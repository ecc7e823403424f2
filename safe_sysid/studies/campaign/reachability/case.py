"""One trial's arm, motion, box, gains and scene, from its number alone."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np

from safe_sysid.control.gains import ControllerGains, TrackingAssumptions
from safe_sysid.core.arrays import FloatArray
from safe_sysid.core.layout import ParameterLayout
from safe_sysid.dynamics.magnitudes import rotor_ceiling, rotor_floor
from safe_sysid.robot.loading import load_robot
from safe_sysid.robot.model import JointLimits, RobotModel
from safe_sysid.robot.parameters import ParameterBox
from safe_sysid.robot.scenes.scene import Scene
from safe_sysid.studies.campaign.cases.arms import arm_model, draw_arm, draw_motors, prior_around
from safe_sysid.studies.campaign.cases.payloads import draw_payload
from safe_sysid.studies.campaign.cases.settings import generator
from safe_sysid.studies.campaign.reachability.motions import draw_motion
from safe_sysid.studies.campaign.reachability.scenery import draw_bodies, draw_scene, without_collisions
from safe_sysid.studies.campaign.reachability.settings import ReachabilitySettings, draw_reachability_settings
from safe_sysid.studies.campaign.reachability.tube import Tube, desired
from safe_sysid.trajectories.plan import Plan
from safe_sysid.trajectories.quintic import QuinticTrajectory

__all__ = ["ReachabilityCase", "build_case"]


@dataclass(frozen=True, eq=False)
class ReachabilityCase:
    """What is enclosed and attacked.

    Attributes:
        seeds: campaign's seed and trial's index.
        model, trajectory, box, gains, scene: the five arguments of a certificate.
        true: (14 n,) parameters of a physically consistent arm inside the box.
        clearance_margin: m.
    """

    seeds: tuple[int, int]
    settings: ReachabilitySettings
    model: RobotModel
    trajectory: QuinticTrajectory
    box: ParameterBox
    gains: ControllerGains
    scene: Scene
    true: FloatArray
    clearance_margin: float

    @property
    def n(self) -> int:
        """Number of joints."""
        return self.model.n

    @property
    def tube(self) -> Tube:
        """The states that the theorem allows."""
        return Tube.of(self.trajectory, self.gains)

    @property
    def plan(self) -> Plan:
        """The plan that is certified."""
        t = self.trajectory
        return Plan(t, 10.0, 0.5 * t.duration, self.box.identity, 0, np.zeros(self.n))

    def rng(self, stream: int) -> np.random.Generator:
        """Random numbers of one part of the trial."""
        return generator(*self.seeds, stream)


@lru_cache(maxsize=4)
def _packaged(name: str) -> RobotModel:
    return load_robot(name)


def build_case(seed: int, index: int, options: dict[str, Any]) -> ReachabilityCase:
    """A trial. ``options``: ``fixed``: settings that replace drawn ones."""
    s = draw_reachability_settings(seed, index, options.get("fixed"))
    rng = generator(seed, index, 1)
    if s.robot == "random":
        model, true = _random_model(rng, s)
        home = None
    else:
        model = _packaged(s.robot)
        true = np.array(model.theta_nominal)
        home = np.array(model.settings.home)
        s = dataclasses.replace(s, joints=model.n, bodies="hulls", chain="random")
    if s.gears:
        motors = draw_motors(generator(seed, index, 6), model.n)
        model = dataclasses.replace(model, kinematics=model.kinematics._replace(motors=motors))
    model = dataclasses.replace(model, friction_transition_velocity=s.transition)
    box = _box(generator(seed, index, 2), s.box, true)
    trajectory = draw_motion(
        generator(seed, index, 3), s.motion, model.n, np.minimum(model.limits.velocity, 1.5), home, s.far
    )
    added = generator(seed, index, 7).uniform(0.0, 2.0, model.n) * s.errors
    gains = _gains(generator(seed, index, 4), s, model, box, trajectory, added)
    rng = generator(seed, index, 5)
    model = _limits(rng, model, trajectory, gains, s)
    poses = desired(trajectory, rng.uniform(0.0, trajectory.duration, 8))[:, 0]
    scene = draw_scene(rng, s.obstacles, model, poses, 0.3 if s.limits == "wide" else 0.0)
    if s.limits == "wide":
        model, scene = without_collisions(model, scene, poses, 0.1)
    margin = float(rng.choice([0.0, 0.005, 0.05]))
    return ReachabilityCase((seed, index), s, model, trajectory, box, gains, scene, true, margin)


def _random_model(rng: np.random.Generator, s: ReachabilitySettings) -> tuple[RobotModel, FloatArray]:
    payload = draw_payload(rng, str(rng.choice(["solid", "block", "rod", "corner"])))
    arm = draw_arm(rng, s.joints, s.chain, payload, s.coulomb)
    model = arm_model(rng, arm, prior_around(rng, arm), np.zeros(s.joints, dtype=bool), {}, max(s.transition, 0.01))
    bodies, allowed = draw_bodies(rng, s.bodies, arm.kinematics.translation)
    model = dataclasses.replace(model, bodies=bodies, allowed_pairs=allowed)
    return model, np.array(arm.theta)


def _box(rng: np.random.Generator, kind: str, true: FloatArray) -> ParameterBox:
    layout, size = ParameterLayout.of_size(true.size), np.abs(true)
    if kind == "point":
        return ParameterBox(true, true)
    if kind == "mixed":
        low, high = (
            10.0 ** rng.uniform(-9.0, 0.5, true.size) * np.where(rng.random(true.size) < 0.5, size, 1.0)
            for _ in range(2)
        )
    else:
        share = 0.2 if kind == "wide" else rng.choice([0.01, 0.05, 0.2])
        low, high = (rng.uniform(0.0, share, true.size) * (size + 0.02) for _ in range(2))
    if kind == "wide":
        hand = layout.payload
        for half in (low, high):
            half[hand] = np.array([2.0, *(0.4,) * 3, *(0.2,) * 6]) * rng.uniform(0.3, 1.0, 10)
    sure = rng.random(true.size) < 0.1
    low[sure] = high[sure] = 0.0
    if kind == "one_sided":
        upper = rng.random(true.size) < 0.5
        low, high = np.where(upper, 0.0, low), np.where(upper, high, 0.0)
    lower, upper_end = true - low, true + high
    rotor = layout.rotor_inertia  # the theorem rests on positive ones
    lower[rotor] = np.maximum(lower[rotor], 0.2 * true[rotor])
    return ParameterBox(lower, upper_end)


def _gains(
    rng: np.random.Generator,
    s: ReachabilitySettings,
    model: RobotModel,
    box: ParameterBox,
    trajectory: QuinticTrajectory,
    added: FloatArray,
) -> ControllerGains:
    """Of plausible size and any shape; that a controller proves them is not what is on trial here."""
    n = model.n
    ones = np.ones(n)
    size = {"usual": rng.uniform(0.005, 0.08), "unequal": 0.1, "tiny": 1e-9, "large": rng.uniform(0.3, 1.5)}[s.tracking]
    r = size * rng.uniform(0.3, 1.0, n)
    k_r = rng.uniform(2.0, 9.0, n)
    if s.tracking == "unequal":
        r, k_r = r * 10.0 ** rng.uniform(-3.0, 0.0, n), k_r * 10.0 ** rng.uniform(-0.5, 0.5, n)
    elif rng.random() < 0.3:
        k_r[:] = k_r[0]
    scale = rng.choice([0.0, 0.1, 1.0]) * size
    rotor = np.maximum(rotor_floor(model.kinematics, box), 0.1 * box.lower[box.layout.rotor_inertia])
    peak = np.abs(desired(trajectory, np.linspace(0.0, trajectory.duration, 50))).max(axis=(0, 2))
    wide = s.limits == "wide"
    loose = rng.uniform(1.2 if wide else 1.0, 2.0, (3, n))
    assume = TrackingAssumptions(
        velocity=(peak[1] + 2.0 * size) * loose[0],
        acceleration=(peak[2] + 0.1) * loose[1],
        jerk=(peak[3] + 1.0) * loose[2],
        uncertainty=float(rng.uniform(1.0, 100.0)) * (100.0 if wide else 1.0),
        inertia_upper=rotor_ceiling(model.kinematics, box) + rng.uniform(0.5, 20.0, n) * (50.0 if wide else 1.0),
        position_error=scale * rng.uniform(0.0, 0.1, n) if s.errors else 0.0 * ones,
        velocity_error=scale * rng.uniform(0.0, 1.0, n) if s.errors else 0.0 * ones,
        actuator_abs=rng.uniform(0.0, 0.5, n) if s.errors else 0.0 * ones,
        actuator_rel=rng.uniform(0.0, 0.05, n) if s.errors else 0.0 * ones,
        torque_limit=np.asarray(model.limits.torque),
        feed_forward=added,
        hold_max=0.00125,
        delay_max=0.0002,
    )
    damping = rng.uniform(0.0, 200.0, n) * rng.choice([0.0, 1.0], n, p=[0.1, 0.9])
    return ControllerGains(
        assumptions=assume,
        box=box,
        K_r=k_r,
        K_d=damping,
        own_damping=0.3 * float(damping[0]),
        kappa=10.0,
        robust_gain=float(rng.uniform(0.6, 3.0)),
        inertia_lower=rotor * rng.choice([1.0, 0.7]),
        V_max=0.02,
        power_loss=0.1,
        r_bound=r,
        e_bound=r / k_r,
        de_bound=2.0 * r,
        acceleration_bound=5.0 * ones,
    )


def _limits(
    rng: np.random.Generator,
    model: RobotModel,
    trajectory: QuinticTrajectory,
    gains: ControllerGains,
    s: ReachabilitySettings,
) -> RobotModel:
    n, wide = model.n, s.limits == "wide"
    d = desired(trajectory, np.linspace(0.0, trajectory.duration, 50))
    least = 0.1 if wide else -0.01
    lower = d[:, 0].min(axis=0) - gains.e_bound - rng.uniform(least, 0.3, n)
    upper = d[:, 0].max(axis=0) + gains.e_bound + rng.uniform(least, 0.3, n)
    free = (rng.random(n) < 0.3) | s.far
    lower, upper = np.where(free, -np.inf, lower), np.where(free, np.inf, np.maximum(upper, lower + 1e-3))
    velocity = np.abs(d[:, 1]).max(axis=0) + 2.0 * gains.r_bound + rng.uniform(least, 0.5, n)
    torque = rng.uniform(10.0, 300.0, n) * (100.0 if wide else 1.0)
    limits = JointLimits(lower, upper, np.maximum(velocity, 1e-3), torque)
    return dataclasses.replace(model, limits=limits, continuous=free)
