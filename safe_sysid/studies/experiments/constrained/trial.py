"""One seed of one limb: a true arm, logs of it, an identification, and what the tables compare.

As in the paper, of a leg motors and friction are identified and the links are the manufacturer's, which are right; of
an arm everything is, and nothing of the manufacturer's is right. What is off is off by 5 to 30 %
(:func:`~safe_sysid.studies.experiments.constrained.truth.perturbed`). Seeds fix all that is drawn.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np

from safe_sysid.core.arrays import BoolArray, FloatArray, IntArray
from safe_sysid.dynamics.closed_chain import ClosureError, Mechanism, load_mechanism
from safe_sysid.dynamics.closed_chain.forward import ForwardDynamics
from safe_sysid.errors import ParameterError
from safe_sysid.identification.arm.base_parameters import base_parameters
from safe_sysid.identification.arm.estimates.estimate import ArmPrior, estimate
from safe_sysid.identification.arm.excitation.motions import SineWaves, box_of_motions, exciting
from safe_sysid.identification.arm.logs.preparation import ArmData, prepare
from safe_sysid.identification.equations.measurements import Measurements
from safe_sysid.studies.experiments.constrained.truth import Sensors, TrueLimb, perturbed

__all__ = ["LIMBS", "SPEEDS", "SimulatedArm", "run_trial"]

Result = dict[str, Any]
#: Whose links are off, too.
LIMBS = {"leg": False, "four_joint_arm": True, "four_bar": True, "palletiser": True}
SPEEDS = (1.8, 3.0, 5.0)
SEGMENTS, SEGMENT = 31, 0.5  # of table II, s
_SECONDS = 10.0
_TRACKED = 4.0  # s
_GAIN, _DAMPING = 0.5, 0.03  # of the joint's largest torque, 1/rad and s/rad
#: Below this velocity the sign of friction is smooth in what the identified models simulate and track with, rad/s.
TRANSITION = 0.01


@dataclass
class SimulatedArm:
    """A true arm, its logs and its identification; each part is made when it is asked for."""

    seed: int
    limb: str
    sensors: Sensors = field(default_factory=Sensors)

    def rng(self, purpose: int) -> np.random.Generator:
        """Draws for one purpose, the same whatever else is asked for."""
        return np.random.default_rng([self.seed, list(LIMBS).index(self.limb), purpose])

    @cached_property
    def mechanism(self) -> Mechanism:
        """With the manufacturer's parameters."""
        return load_mechanism(self.limb)

    @cached_property
    def truth(self) -> FloatArray:
        """(14 n,) true parameters."""
        m = self.mechanism
        return perturbed(m.theta_nominal, m.layout, LIMBS[self.limb], self.rng(0))

    @cached_property
    def fixed(self) -> BoolArray:
        """(14 n,) what is not identified: links of a leg; rotors and offsets of joints without motors."""
        m = self.mechanism
        fixed = np.zeros(m.layout.size, bool)
        if not LIMBS[self.limb]:
            fixed[m.layout.links] = True
        for block in (m.layout.rotor_inertia, m.layout.offset):
            fixed[np.arange(m.layout.size)[block][m.passive]] = True
        return fixed

    @cached_property
    def arm(self) -> TrueLimb:
        """That moves."""
        return TrueLimb(self.limb, self.truth, self.mechanism.actuated)

    def columns(self) -> IntArray:
        """Independent columns of what is identified, from random states."""
        m, rng = self.mechanism, self.rng(1)
        low, high = box_of_motions(m)
        count = 60
        q = 0.5 * (low + high) + 0.45 * (high - low) * rng.uniform(-1, 1, (count, len(low)))
        motion = m.motion(q, rng.normal(size=q.shape), rng.normal(size=q.shape))
        regressor = m.regressor(motion).reshape(-1, m.layout.size)
        free = np.flatnonzero(~self.fixed)
        return np.asarray(free[base_parameters(regressor[:, free]).independent])

    def record(self, waves: SineWaves, seconds: float, theta: FloatArray, purpose: int) -> Measurements:
        """A log of a motion that is tracked with feed-forward of a model and a PD law [eq. 34].

        ``seconds``: how long; ``theta``: (14 n,) of the model.
        """
        m = self.mechanism
        t = 1e-3 * np.arange(round(seconds / 1e-3), dtype=np.float64)
        q, qd, qdd = waves.at(t)
        motion = m.motion(q, qd, qdd, t)
        ahead = m.regressor(motion, TRANSITION) @ theta
        gain, damping = _GAIN * self.arm.torque_limit, _DAMPING * self.arm.torque_limit

        def law(k: int, seen: FloatArray, rate: FloatArray) -> FloatArray:
            return np.asarray(ahead[k] + gain * (q[k] - seen) + damping * (qd[k] - rate))

        return self.arm.run(motion.q[0], motion.qd[0], seconds, law, self.sensors, self.rng(purpose))

    @cached_property
    def identification(self) -> ArmData:
        """Samples of two exciting motions."""
        logs, columns = [], self.columns()
        for k in range(2):
            waves = exciting(self.mechanism, columns, self.rng(10 + k), _SECONDS)
            logs.append(self.record(waves, _SECONDS, self.mechanism.theta_nominal, 20 + k))
        return prepare(logs, self.mechanism.actuated_names)

    @cached_property
    def validation(self) -> ArmData:
        """Samples of another motion."""
        waves = exciting(self.mechanism, self.columns(), self.rng(12), _SECONDS, tries=3)
        # What the filter's edges take is added.
        log = self.record(waves, SEGMENTS * SEGMENT + 0.5, self.mechanism.theta_nominal, 22)
        return prepare([log], self.mechanism.actuated_names)

    @cached_property
    def identified(self) -> FloatArray:
        """(14 n,) parameters by the semidefinite program of eq. 32, rows reweighted."""
        m, data = self.mechanism, self.identification
        regressor = m.regressor(data.motion(m)).reshape(-1, m.layout.size)
        known = ArmPrior(nominal=np.array(m.theta_nominal), fixed=self.fixed)
        found = estimate(regressor, data.torque.ravel(), m.layout, len(m.actuated), known)
        return found.theta


def sines(mechanism: Mechanism, velocity: float, limit: FloatArray, rng: np.random.Generator) -> SineWaves:
    """One sine per joint with a given largest velocity; of some, the one that asks for the least torque.

    Args:
        mechanism: that moves, with the manufacturer's parameters.
        velocity: rad/s.
        limit: (n_a,) largest torques, N m.
    """
    low, high = box_of_motions(mechanism)
    t, found = np.linspace(0.0, 2.0, 200), []
    for _ in range(10):
        size = np.minimum(0.5 * (high - low) * rng.uniform(0.8, 0.95, len(low)), 0.8)
        phase = rng.uniform(0, 2 * np.pi, len(low))
        waves = SineWaves(0.5 * (low + high), size[:, None], (velocity / size)[:, None], phase[:, None])
        torque = mechanism.regressor(mechanism.motion(*waves.at(t), t)) @ mechanism.theta_nominal
        found.append((float(np.max(np.abs(torque) / limit)), waves))
    return min(found, key=lambda pair: pair[0])[1]


def torque_rms(study: SimulatedArm, theta: FloatArray) -> FloatArray:
    """Table I: (n_a,) root mean square of measured less modelled torque on the validation motion, N m.

    ``theta``: (14 n,) of the model.
    """
    m, data = study.mechanism, study.validation
    residual = data.torque - m.regressor(data.motion(m)) @ theta
    return np.asarray(np.sqrt(np.mean(residual**2, axis=0)))


def simulated(study: SimulatedArm, theta: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Table II: stamps (31, K), measured and simulated positions (31, K, n_a) of the segments.

    A segment whose simulation runs into a singular position is not a number from its begin on.

    ``theta``: (14 n,) of the model.
    """
    m, data = study.mechanism, study.validation
    period = float(np.median(np.diff(data.stamps)))
    length = round(SEGMENT / period)
    motion = data.motion(m)
    forward = ForwardDynamics(m, theta, TRANSITION)
    stamps, measured, ours = [], [], []
    for s in range(SEGMENTS):
        part = slice(s * length, (s + 1) * length)
        t, first = data.stamps[part], s * length
        if len(t) < length:
            raise ParameterError(f"validation of {len(data)} samples: expected {SEGMENTS * length}")
        # Filtered torques held around their stamps: the mean of each interval is that of its ends.
        held = 0.5 * (data.torque[part] + np.roll(data.torque[part], -1, axis=0))
        held[-1] = data.torque[part][-1]
        try:
            found = forward.simulate(t, data.q[first], data.qd[first], held, motion.q[first])
        except (ClosureError, ParameterError, np.linalg.LinAlgError):
            found = np.full((length, len(m.actuated)), np.nan)
        stamps.append(t)
        measured.append(data.q[part])
        ours.append(found)
    return np.array(stamps), np.array(measured), np.array(ours)


def simulation_error(measured: FloatArray, ours: FloatArray) -> FloatArray:
    """Eq. 33 over all segments: (n_a,) rad; infinite where a simulation did not reach its end."""
    total = np.sqrt(np.sum((measured - ours) ** 2, axis=(0, 1)))
    return np.asarray(np.where(np.isfinite(total), total, np.inf))


def tracking(study: SimulatedArm, theta: FloatArray, speed: float) -> tuple[FloatArray, FloatArray]:
    """Tables III and IV: stamps (N,) and errors (N, n_a), degrees, of sines tracked with a model.

    ``theta``: (14 n,) of the model; ``speed``: largest velocity, rad/s.
    """
    number = SPEEDS.index(speed)
    waves = sines(study.mechanism, speed, study.arm.torque_limit, study.rng(30 + number))
    log = study.record(waves, _TRACKED, theta, 40 + number)
    return np.array(log.stamps), np.rad2deg(waves.at(np.array(log.stamps))[0] - log.q)


def _worth(value: float) -> float | None:
    return float(value) if np.isfinite(value) else None


def run_trial(seed: int, index: int, options: dict[str, Any]) -> Result:
    """One limb of one seed.

    ``options``: ``table`` ("1" to "4"), ``limbs``, and ``series``, whether curves for the figures are kept.
    """
    limbs, table = options["limbs"], options["table"]
    number, which = divmod(index, len(limbs))
    study = SimulatedArm(seed + number, limbs[which])
    models = {"identified": study.identified, "manufacturer": np.array(study.mechanism.theta_nominal)}
    names, rows, series = study.mechanism.actuated_names, [], {}
    if table == "1":
        found = {key: torque_rms(study, theta) for key, theta in models.items()}
        rows = [_row(study, names[j], {k: v[j] for k, v in found.items()}) for j in range(len(names))]
    elif table == "2":
        parts = {key: simulated(study, theta) for key, theta in models.items()}
        found = {key: simulation_error(*part[1:]) for key, part in parts.items()}
        rows = [_row(study, names[j], {k: v[j] for k, v in found.items()}) for j in range(len(names))]
        series = {"stamps": parts["identified"][0], "measured": parts["identified"][1]}
        series |= {key: part[2] for key, part in parts.items()}
    else:
        for speed in SPEEDS:
            errors = {key: tracking(study, theta, speed) for key, theta in models.items()}
            mean = {key: np.mean(np.abs(e), axis=0) for key, (_, e) in errors.items()}
            largest = {f"{key}_max": np.max(np.abs(e), axis=0) for key, (_, e) in errors.items()}
            rows += [
                {**_row(study, names[j], {k: v[j] for k, v in (mean | largest).items()}), "speed": speed}
                for j in range(len(names))
            ]
            if speed == SPEEDS[-1]:
                series = {"stamps": errors["identified"][0]} | {key: e for key, (_, e) in errors.items()}
    result: Result = {"index": index, "rows": rows}
    if options.get("series") and number == 0:
        if table == "1":
            data, m = study.validation, study.mechanism
            motion = data.motion(m)
            series = {"stamps": data.stamps, "measured": data.torque}
            series |= {key: data.torque - m.regressor(motion) @ theta for key, theta in models.items()}
        result["series"] = {key: np.where(np.isfinite(v), v, 0.0).round(6).tolist() for key, v in series.items()}
        result["joints"] = list(names)
    return result


def _row(study: SimulatedArm, joint: str, values: dict[str, float]) -> Result:
    return {
        "seed": study.seed,
        "limb": study.limb,
        "joint": joint,
        **{key: _worth(value) for key, value in values.items()},
    }
