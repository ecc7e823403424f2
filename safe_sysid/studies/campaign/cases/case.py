"""Case of a trial: an arm, its true motion, the sensors' data, and what the identifier is told."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from safe_sysid.core.arrays import BoolArray, FloatArray, IntArray
from safe_sysid.identification.equations.measurements import Measurements
from safe_sysid.robot.model import RobotModel
from safe_sysid.robot.parameters import ParameterBox
from safe_sysid.studies.campaign.breaks import Break
from safe_sysid.studies.campaign.cases.arms import TrueArm, arm_model, draw_arm, draw_motors, prior_around, with_sliding
from safe_sysid.studies.campaign.cases.motions import TrueMotion, draw_motion
from safe_sysid.studies.campaign.cases.noise import Levels, Signs, draw_levels, draw_signs, measure
from safe_sysid.studies.campaign.cases.payloads import draw_payload
from safe_sysid.studies.campaign.cases.plant import TrueRecord, exact_record, instants
from safe_sysid.studies.campaign.cases.settings import TrialSettings, draw_settings, generator
from safe_sysid.studies.campaign.cases.simulation import simulated_record
from safe_sysid.studies.campaign.cases.unknowns import TrueUnknowns, draw_unknowns

__all__ = ["IdentificationCase", "build_case", "on_cone"]

_STEP = 2.5e-4  # s, of integration


@dataclass(frozen=True, eq=False)
class IdentificationCase:
    """Everything that a trial is made of; logs may be taken with other signs of the errors."""

    settings: TrialSettings
    arm: TrueArm  #: as declared (the truth, unless an assumption is broken)
    theta: FloatArray  #: (14 n,) true parameters
    record: TrueRecord
    levels: Levels
    acceleration: FloatArray  #: (n,) declared bound, rad/s^2
    continuous: BoolArray  #: (n,) joints that wrap
    beyond: float  #: factor on all errors
    broken: Break
    seeds: tuple[int, int]  #: seed and index
    #: the record under another true gravity (3,); None where that would be another motion, or another tare
    remake: Callable[[FloatArray], TrueRecord] | None = None
    #: parameters and record of a motion before this one, with the empty hand; None without a tare
    empty_handed: tuple[FloatArray, TrueRecord] | None = None
    constants: TrueUnknowns | None = None  #: that the identifier is told intervals of; None: there are none

    @property
    def has_state_errors(self) -> bool:
        """Whether positions, velocities or stamps are in error."""
        levels = self.levels
        return bool(np.any(levels.position) or np.any(levels.velocity) or levels.stamp > 1e-9)

    def row_theta(self, signs: Signs) -> FloatArray:
        """(14 n,) what the equations are in: the truth, a sensor's constant bias added to the offset."""
        theta = self.theta.copy()
        theta[self.arm.layout.offset] += self.beyond * self.levels.bias * signs.bias
        return theta

    @property
    def viscous(self) -> FloatArray:
        """(n,) Fv as the torques see it, N m s/rad."""
        n = self.arm.n
        return np.zeros(n) if self.settings.source == "link" else self.arm.theta[self.arm.layout.viscous]

    def rng(self, stream: int) -> np.random.Generator:
        """The same numbers at every call."""
        return generator(*self.seeds, stream)

    def torque(self, signs: Signs) -> FloatArray:
        """True torques (N+1, n), N m; row 0 says nothing if torques are means."""
        return self.record.torque(signs.stick, self.settings.source == "link")

    def log(self, signs: Signs) -> tuple[Measurements, IntArray]:
        """What arrives, and which sample each entry is."""
        s, torque = self.settings, self.torque(signs)
        relative = s.source == "command" and self.seeds[1] % 2 == 0
        record = self._seen(self.record)
        data = measure(record, torque, self.levels, signs, self.beyond, relative, self.continuous)
        data = self.broken.measurements(data, self.levels)
        order = np.arange(len(data), dtype=np.int64)
        return _with_losses(self.rng(6), data) if s.lost else (data, order)

    def tare_log(self) -> Measurements | None:
        """Log of the motion with the empty hand; the sensors' bias may be another then."""
        if self.empty_handed is None:
            return None
        s, record = self.settings, self.empty_handed[1]
        rng = self.rng(10)
        torque = record.torque(rng.choice([-1.0, 1.0], record.q.shape), s.source == "link")
        signs = draw_signs(rng, s.noise, record, torque)
        return measure(self._seen(record), torque, self.levels, signs, self.beyond, False, self.continuous)

    def _seen(self, record: TrueRecord) -> TrueRecord:
        """The record as sensors without noise would have it: joints whose zeros are off."""
        off = self.broken.offset(self.arm.n)
        if self.constants is not None:
            off = off + self.constants.offset
        return replace(record, q=record.q - off) if np.any(off) else record

    @property
    def unknowns(self) -> FloatArray:
        """(E,) true constants."""
        return np.zeros(0) if self.constants is None else self.constants.values

    def model(self, place: FloatArray | None) -> RobotModel:
        """What the identifier knows; ``place`` (14 n,) puts the truth somewhere in the prior."""
        s = self.settings
        rng = self.rng(7)
        if place is None and s.prior == "corner":
            place = rng.choice([-1.0, 1.0], self.arm.theta.size)
        prior = prior_around(self.rng(8), self.arm, place)
        if self.empty_handed is not None:  # the arm of then is within the prior too
            terms = self.arm.layout.joint_terms
            then = self.empty_handed[0][terms]
            lower, upper = prior.lower.copy(), prior.upper.copy()
            lower[terms] = np.minimum(lower[terms], then)
            upper[terms] = np.maximum(upper[terms], then)
            prior = ParameterBox(lower, upper)
        payload: dict[str, Any] = {}
        if s.box:
            body = self.arm.payload
            payload["box"] = {"center": body.center.tolist(), "size": body.size.tolist()}
            if s.density and np.isfinite(body.density):
                payload["density"] = [0.0, body.density * (1.0 + 1e-12)]
        declared = {"torque_source": s.source, "rate_hz": s.rate, "effort": s.declared_effort}
        measurement = self.levels.settings() | declared
        if s.effort == "sampled" and self.record.rate is not None and self.record.jerk is not None:
            measurement["torque_rate"] = (self.record.rate[s.source == "link"] + 1e-6).tolist()
            if s.margin > 1e-3:
                measurement["jerk"] = (self.record.jerk * (1.0 + 1e-9) + 1e-9).tolist()
        sections = {
            "measurement": measurement,
            "identification": {"method": s.method, "acceleration_bound": self.acceleration.tolist()},
            "payload": payload,
        }
        return arm_model(rng, self.arm, prior, self.continuous, sections, s.transition, self.constants)


def build_case(seed: int, index: int, options: dict[str, Any]) -> IdentificationCase:
    """Draw a trial and make its motion.

    ``options``: ``beyond`` (factor on the errors), ``break`` (name of a broken assumption), ``fixed`` (settings).
    """
    s = draw_settings(seed, index, options.get("fixed"))
    broken = Break.named(options.get("break"))
    s = replace(s, **broken.settings)
    rng = generator(seed, index, 1)
    arm = draw_arm(rng, s.joints, s.chain, draw_payload(rng, s.payload), s.coulomb)
    if s.geared:
        motors = draw_motors(generator(seed, index, 16), s.joints)
        arm = replace(arm, kinematics=arm.kinematics._replace(motors=motors))
    if s.simulated:  # light rotors make stiff equations
        theta = arm.theta.copy()
        theta[arm.layout.rotor_inertia] = np.maximum(theta[arm.layout.rotor_inertia], 0.3)
        arm = replace(arm, theta=theta)
    rng = generator(seed, index, 2)
    period = 1.0 / s.rate
    count = s.samples
    motion = draw_motion(rng, s.motion, s.joints, (count + 1) * period, period, max(s.transition, 0.005))
    sliding = generator(seed, index, 14).random(s.joints) < s.prismatic
    constants: TrueUnknowns | None = None
    if (s.ratios and s.geared) or s.zero > 0.0:
        constants = draw_unknowns(generator(seed, index, 19), arm.kinematics, arm.theta, s.ratios, s.zero)
    motion = _nearer(motion, sliding)
    # Travel is told once it is known where the joints really were.
    arm = with_sliding(arm, sliding, np.zeros((1, s.joints)), np.full(s.joints, 10.0))
    times = period * (np.arange(count + 1) + 0.5 + s.jitter * rng.uniform(-0.5, 0.5, count + 1))
    levels = draw_levels(generator(seed, index, 3), s.joints, period, s.level, s.declared_effort)
    theta = broken.theta(arm.theta, arm.layout)
    remake: Callable[[FloatArray], TrueRecord] | None = None
    gravity = broken.gravity(on_cone(rng, arm.kinematics.gravity, levels))
    if s.simulated:
        chatter = rng.uniform(-1.0, 1.0, (count, s.joints)) * rng.choice([0.0, 0.5])
        late = levels.delay * rng.uniform(-1.0, 1.0) + levels.jitter * rng.uniform(-1.0, 1.0, count)
        switches = np.maximum(times[:-1] + late, 0.0)
        record = simulated_record(arm, theta, motion, times, switches, s.transition, chatter, gravity, _STEP)
    else:
        record = _record(rng, s, arm, theta, motion, times, levels, gravity)
        if broken.name == "none" and not s.tare:

            def again(gravity: FloatArray) -> TrueRecord:
                return _record(generator(seed, index, 12), s, arm, theta, motion, times, levels, gravity)

            remake = again

        changed = broken.later(arm)
        if changed is not None:
            rng = generator(seed, index, 2)
            record = record.then(_record(rng, s, arm, changed, motion, times, levels, gravity), count // 2)
    largest = record.acceleration
    empty_handed = None
    if s.tare and s.effort == "held" and not s.simulated:
        empty_handed = _empty_handed(generator(seed, index, 11), s, arm, gravity)
        largest = np.maximum(largest, empty_handed[1].acceleration)
    room = 2.0 * s.zero + 4.0 * levels.position + 2.0 * period * np.abs(record.qd).max(axis=0) + 1e-3
    places = [record.q] if empty_handed is None else [record.q, empty_handed[1].q]
    arm = broken.declared(with_sliding(arm, sliding, np.vstack(places), room))
    declared = broken.acceleration * largest * (1.0 + s.margin) + 1e-9
    rng = generator(seed, index, 4)
    continuous = (rng.random(s.joints) < (0.5 if s.continuous else 0.0)) & ~sliding
    beyond = float(options.get("beyond", 1.0))
    return IdentificationCase(
        s,
        arm,
        theta,
        record,
        levels,
        declared,
        continuous,
        beyond,
        broken,
        (seed, index),
        remake,
        empty_handed,
        constants if broken.name != "reaction" else None,
    )


def _nearer(motion: TrueMotion, sliding: BoolArray) -> TrueMotion:
    """The motion with prismatic joints about the middle of their travel: a start may be metres away else."""
    coefficients = motion.coefficients.copy()
    coefficients[:, sliding, 0] -= 0.9 * coefficients[0, sliding, 0]
    return TrueMotion(motion.knots, coefficients)


def _empty_handed(
    rng: np.random.Generator, s: TrialSettings, arm: TrueArm, gravity: FloatArray
) -> tuple[FloatArray, TrueRecord]:
    """The same arm before it gripped something; its friction has drifted since by all that is allowed."""
    n, period = arm.n, 1.0 / s.rate
    theta = arm.theta.copy()
    theta[arm.layout.payload] = arm.hand
    friction = slice(arm.layout.coulomb.start, arm.layout.viscous.stop)  # Fc and Fv
    theta[friction] *= 1.0 + 0.02 * (1.0 - 1e-9) * rng.choice([-1.0, 1.0], 2 * n)
    theta[arm.layout.offset] += 0.005 * (1.0 - 1e-9) * rng.choice([-1.0, 1.0], n)
    kind = str(rng.choice(["quintic", "wave", "bang"]))
    motion = draw_motion(rng, kind, n, 121 * period, period, max(s.transition, 0.005))
    motion = _nearer(motion, arm.kinematics.sliding)
    times: FloatArray = period * (np.arange(120.0) + 0.5)
    return theta, exact_record(arm, theta, motion, times, s.transition, s.law, gravity)


def _record(
    rng: np.random.Generator,
    s: TrialSettings,
    arm: TrueArm,
    theta: FloatArray,
    motion: TrueMotion,
    times: FloatArray,
    levels: Levels,
    gravity: FloatArray,
) -> TrueRecord:
    """With mean torques of the periods, or those of instants beside the samples."""
    if s.effort != "sampled":
        return exact_record(arm, theta, motion, times, s.transition, s.law, gravity)
    late = levels.delay * rng.uniform(-1.0, 1.0) + levels.jitter * rng.uniform(-1.0, 1.0, len(times))
    moved = np.clip(times + late, 0.0, motion.end)
    return instants(arm, theta, motion, times, moved, s.transition, gravity)


def on_cone(rng: np.random.Generator, gravity: FloatArray, levels: Levels) -> FloatArray:
    """True gravity: turned by all of the angle that is allowed, and stronger or weaker by all that is allowed.

    ``gravity``: (3,) as configured, m/s^2.
    """
    across = np.cross(gravity, rng.normal(size=3))
    across /= np.linalg.norm(across)
    size = np.linalg.norm(gravity)
    turned = gravity * np.cos(levels.angle) + across * size * np.sin(levels.angle)
    return turned * (1.0 + rng.choice([-1.0, 1.0]) * levels.relative)


def _with_losses(rng: np.random.Generator, data: Measurements) -> tuple[Measurements, IntArray]:
    """Samples lost, sent twice or not finite, as they come over a network."""
    count = len(data)
    effort = data.effort.copy()
    effort[rng.integers(0, count, 2), rng.integers(0, data.n, 2)] = np.nan
    order = np.arange(count)
    order = np.delete(order, rng.integers(1, count, 1 + count // 60))
    order = np.insert(order, rng.integers(1, len(order)), order[rng.integers(0, len(order))])
    return Measurements(data.stamps[order], data.q[order], data.qd[order], effort[order]), order
