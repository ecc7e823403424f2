"""Logs of an arm that holds a dumbbell, simulated once and kept in the user's cache: what the benchmarks here run on.

The plant is Pinocchio's forward dynamics, RK4 at 1 kHz with the torque held for each period: no code of this package.
Motions are four quintics towards random goals in receding horizon (7.5 s), tracked by computed torque. The true arm is
drawn from the consistent part of the declared uncertainty, so it differs from the nominal in every parameter. Of some
random goals each plan takes the one with the smallest condition number of the torque regressor, PSO's cost.
"""

from __future__ import annotations

import hashlib
import os
import tempfile
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pinocchio as pin
from numpy.typing import NDArray

from safe_sysid.dynamics import dynamics_of
from safe_sysid.identification.equations.measurements import Measurements
from safe_sysid.robot.model import RobotModel
from safe_sysid.simulation.arms import draw_truth
from safe_sysid.simulation.noise import NoiseModel
from safe_sysid.simulation.payloads import NO_PAYLOAD, payload_from_spec, theta_e_with_payload
from safe_sysid.trajectories.quintic import QuinticTrajectory

FloatArray = NDArray[np.float64]
NOISE = ("uniform", "adversarial")
VERSION = 2  # of what is stored


@dataclass(frozen=True, eq=False)
class TrueLog:
    """What happened: (N,) stamps and (N, n) states; ``torque[k]`` was held over the period before ``stamps[k]``."""

    stamps: FloatArray
    q: FloatArray
    qd: FloatArray
    torque: FloatArray
    truth: FloatArray


def truth_of(model: RobotModel, payload: str, seed: int, empty: bool = False) -> FloatArray:
    """(14 n,) true parameters; with ``empty`` those of the *same* arm with nothing in its hand."""
    drawn = draw_truth(model, payload_from_spec(payload), np.random.default_rng([seed, 1]), "uniform")
    if not empty:
        return drawn
    held = drawn.copy()
    last = model.layout.payload
    held[last] = drawn[last] - (_payload_part(model, payload) - _payload_part(model, None))
    return held


def _payload_part(model: RobotModel, payload: str | None) -> FloatArray:
    body = NO_PAYLOAD if payload is None else payload_from_spec(payload)
    return theta_e_with_payload(model, np.zeros(10), body)


def log_of(
    model: RobotModel,
    payload: str,
    seed: int,
    *,
    empty: bool = False,
    motion: int | None = None,
    plans: int = 4,
    candidates: int = 16,
) -> TrueLog:
    """A log from the cache, or simulated now.

    Args:
        model: the arm.
        payload: name of a dumbbell.
        seed: of arm and motion.
        empty: the same arm with an empty hand, for a tare.
        motion: seed of the motion, if not ``seed``: the same arm and payload moved otherwise.
        plans: trajectories, 1.5 s each, the last one 3 s.
        candidates: random goals of each plan, the most exciting is taken.
    """
    motion = seed if motion is None else motion
    truth = truth_of(model, payload, seed, empty)
    key = hashlib.sha256(
        truth.tobytes() + model.theta_nominal.tobytes() + f"{VERSION} {motion} {plans} {candidates}".encode()
    ).hexdigest()[:24]
    base = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "safe_sysid" / "benchmark_logs"
    path = base / f"{model.name}-{key}.npz"
    if path.exists():
        with np.load(path) as stored:
            return TrueLog(*(stored[name] for name in ("stamps", "q", "qd", "torque", "truth")))
    log = simulate(model, truth, np.random.default_rng([motion, 2]), plans, candidates)
    base.mkdir(parents=True, exist_ok=True)
    with tempfile.NamedTemporaryFile(dir=base, suffix=".part", delete=False) as file:
        np.savez(file, stamps=log.stamps, q=log.q, qd=log.qd, torque=log.torque, truth=log.truth)
    os.replace(file.name, path)
    return log


def simulate(
    model: RobotModel, truth: FloatArray, rng: np.random.Generator, plans: int, candidates: int
) -> TrueLog:
    """Track random quintics by computed torque."""
    n, kin, dt = model.n, model.kinematics, 1e-3
    plant = pin.Model()
    plant.gravity.linear = np.array(kin.gravity)
    for j in range(n):
        placement = pin.SE3(np.array(kin.rotation[j]), np.array(kin.translation[j]))
        plant.addJoint(j, pin.JointModelRevoluteUnaligned(np.array(kin.axis[j])), placement, f"j{j}")
        link = pin.Inertia.FromDynamicParameters(truth[model.layout.link(j)])
        plant.appendBodyToJoint(j + 1, link, pin.SE3.Identity())
    plant.armature = np.array(truth[model.layout.rotor_inertia])
    data = plant.createData()
    coulomb, viscous, offset = (
        truth[model.layout.coulomb],
        truth[model.layout.viscous],
        truth[model.layout.offset],
    )
    transition = max(model.friction_transition_velocity, 1e-9)

    def friction(v: FloatArray) -> FloatArray:
        return coulomb * np.maximum(-1.0, np.minimum(1.0, v / transition)) + viscous * v + offset

    home = np.array(model.settings.home)
    reach = 0.785
    centre = home + rng.uniform(-0.3, 0.3, n)
    low = np.maximum(model.limits.position_lower, -50.0) + 0.1
    high = np.minimum(model.limits.position_upper, 50.0) - 0.1
    state = np.stack([centre, 0 * centre, 0 * centre])
    q, v = centre.copy(), np.zeros(n)
    out = [(q, v, np.zeros(n))]
    for i in range(plans):
        trajectory = min(
            (
                QuinticTrajectory.to_rest(state, np.clip(goal, low, high), 3.0)
                for goal in centre + reach * rng.uniform(-1, 1, (candidates, n))
            ),
            key=lambda candidate: _condition(model, candidate),
        )
        for step in range(3000 if i == plans - 1 else 1500):
            ref = trajectory.state(step * dt)
            a_ref = ref[2] + 40.0 * (ref[1] - v) + 400.0 * (ref[0] - q)
            tau = pin.rnea(plant, data, q, v, a_ref) + friction(v)
            k1 = pin.aba(plant, data, q, v, tau - friction(v))
            v2 = v + 0.5 * dt * k1
            k2 = pin.aba(plant, data, q + 0.5 * dt * v, v2, tau - friction(v2))
            v3 = v + 0.5 * dt * k2
            k3 = pin.aba(plant, data, q + 0.5 * dt * v2, v3, tau - friction(v3))
            v4 = v + dt * k3
            k4 = pin.aba(plant, data, q + dt * v3, v4, tau - friction(v4))
            q = q + dt / 6 * (v + 2 * v2 + 2 * v3 + v4)
            v = v + dt / 6 * (k1 + 2 * k2 + 2 * k3 + k4)
            out.append((q, v, tau))
        state = trajectory.state(1.5)[:3]
    columns = [np.array([sample[i] for sample in out]) for i in range(3)]
    return TrueLog(dt * np.arange(len(out)), *columns, truth)


def _condition(model: RobotModel, trajectory: QuinticTrajectory) -> float:
    """PSO's cost of a plan: condition number of theta_e's columns of the torque regressor, 128 samples."""
    states = np.array([trajectory.state(t)[:3] for t in np.linspace(0.0, 3.0, 128)])
    columns = dynamics_of(model.kinematics).torque_regressor(states[:, 0], states[:, 1], states[:, 2], 0.0)
    return float(np.linalg.cond(columns[:, :, model.layout.payload].reshape(-1, 10)))


def measured(model: RobotModel, log: TrueLog, mode: str, seed: int) -> Measurements:
    """What the declared sensors would have said.

    Args:
        model: the arm, for its declared errors.
        log: true states.
        mode: "uniform" (drawn anew at every sample) or "adversarial" (on the bounds, in a pattern drawn by seed).
        seed: of the noise.
    """
    rng = np.random.default_rng([seed, 3])
    stream = NoiseModel.declared(model.settings, mode).stream(model.kinematics, rng)
    said = [
        stream.measure(*sample) for sample in zip(log.stamps.tolist(), log.q, log.qd, log.torque, strict=True)
    ]
    return Measurements(log.stamps, *(np.array([sample[i] for sample in said]) for i in range(3)))
