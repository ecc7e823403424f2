"""Freeze today's results: run this when results are *meant* to change, and say in the commit why they are better.

A refactoring never may: results that it changes are its bug. Inputs stay as they are unless ``--inputs`` is given, for
an arm, log or motion that is added; a change of the simulator is no reason.

    python test/frozen/make.py [--inputs]
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

import numpy as np

FOLDER = Path(__file__).resolve().parent
sys.path.insert(0, str(FOLDER.parent))

from frozen_set import ARMS, ARMS_THAT_PLAN, LOGS, LogCase, arm, compute, scene_of  # noqa: E402
from identification_plant import exciting_plans, noisy, simulate  # noqa: E402

from safe_sysid.identification.equations.measurement_errors import MeasurementErrors  # noqa: E402
from safe_sysid.robot.model import RobotModel  # noqa: E402
from safe_sysid.simulation.arms import draw_link, draw_truth, hand_box  # noqa: E402
from safe_sysid.simulation.payloads import payload_from_spec, theta_e_with_payload  # noqa: E402
from safe_sysid.trajectories.quintic import QuinticTrajectory  # noqa: E402

SECONDS, PAYLOAD = 0.5, {"kinova_gen3": "8lb", "three_joint": "4lb", "sliding": "4lb"}


def main() -> None:
    """Write ``outcomes.json``, and ``inputs.npz`` if asked to."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--inputs", action="store_true", help="simulate logs and draw motions again")
    if parser.parse_args().inputs:
        np.savez_compressed(FOLDER / "inputs.npz", **_inputs())
    (FOLDER / "outcomes.json").write_text(json.dumps(compute(), indent=1) + "\n", encoding="utf-8")


def _inputs() -> dict[str, np.ndarray]:
    out: dict[str, np.ndarray] = {}
    for seed, case in enumerate(LOGS):
        out |= _logs(case, np.random.default_rng(seed))
    for seed, name in enumerate(ARMS_THAT_PLAN):
        out |= _motions(name, np.random.default_rng(100 + seed))
    for seed, name in enumerate(ARMS):
        model, rng = arm(name), np.random.default_rng(200 + seed)
        out[f"states_{name}"] = rng.normal(size=(50, 2, model.n)) * np.array([0.01, 0.05])[:, None]
    return out


def _logs(case: LogCase, rng: np.random.Generator) -> dict[str, np.ndarray]:
    model = arm(case.arm, case.changes)
    last = slice(10 * model.n - 10, 10 * model.n)
    payload = payload_from_spec(PAYLOAD[case.arm])
    truth = draw_truth(model, payload, rng)
    if not case.tare:
        return {f"log_{case.name}": _log(case, model, truth, rng)}
    hand = draw_link(rng, *hand_box(model), model.theta_nominal[last], "uniform")
    empty = truth.copy()
    empty[last], truth[last] = hand, theta_e_with_payload(model, hand, payload)
    return {f"log_{case.name}": _log(case, model, truth, rng), f"log_{case.name}_empty": _log(case, model, empty, rng)}


def _log(case: LogCase, model: RobotModel, truth: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """(N, 3 n) float32; errors are 0.9 of what is declared, so that rounding keeps them inside."""
    errors = MeasurementErrors.from_model(model)
    home, smooth = np.array(model.settings.home), errors.effort == "sampled"
    plans = exciting_plans(home, rng, n_plans=1, t_f=SECONDS, amplitude=0.25 if case.arm == "kinova_gen3" else 0.4)
    log = simulate(
        model.kinematics, truth, model.friction_transition_velocity, plans, rng=rng, chatter=0.0 if smooth else 0.3
    )  # fmt: skip
    assert np.all(log.largest_acceleration < errors.acceleration), (case.name, log.largest_acceleration)
    noise = noisy(
        log, 0.9 * errors.torque_abs, 0.9 * errors.torque_rel, rng, case.noise, link=errors.torque_source == "link"
    )  # fmt: skip
    q = noise.q + 0.9 * errors.position * rng.uniform(-1.0, 1.0, noise.q.shape)
    qd = noise.qd + 0.9 * errors.velocity * rng.uniform(-1.0, 1.0, noise.q.shape)
    effort = noise.effort + (8.0 if case.name == "three_contradiction" else 0.0)
    # Before the first command a simulated torque is zero: no smooth one begins like that.
    return np.hstack([q, qd, effort])[2 * smooth :].astype(np.float32)


def _motions(name: str, rng: np.random.Generator) -> dict[str, np.ndarray]:
    model = arm(name)
    home, still, n = np.array(model.settings.home), np.zeros(model.n), model.n
    start = scene_of(name).start_for(model)

    def to_rest(share: float, at: np.ndarray = home, seconds: float = 3.0) -> QuinticTrajectory:
        goal = at + share * rng.uniform(-1.0, 1.0, n)
        return QuinticTrajectory.to_rest(np.stack([at, still, still]), goal, seconds)

    moving = np.stack([home, rng.uniform(-0.2, 0.2, n), rng.uniform(-0.3, 0.3, n)])
    middle = np.stack([home + rng.uniform(-0.1, 0.1, n), rng.uniform(-0.1, 0.1, n), still])
    end = np.stack([home + rng.uniform(-0.2, 0.2, n), still, still])
    knots = QuinticTrajectory(np.array([0.0, 1.1, 2.7]), np.stack([np.stack([home, still, still]), middle, end]))
    trajectories = {
        "gentle": to_rest(0.1),
        "far": to_rest(0.5),
        "moving": QuinticTrajectory.to_rest(moving, home, 3.0),
        "knots": knots,
        "hold": QuinticTrajectory.hold(home),
        "too_fast": to_rest(0.6, seconds=1.0),
        "small_box": to_rest(0.3),
        "cell": to_rest(0.2, start),
    }
    out = {}
    for motion, trajectory in trajectories.items():
        out[f"motion_{name}_{motion}_times"] = np.array(trajectory.times)
        out[f"motion_{name}_{motion}_knots"] = np.array(trajectory.knots)
    return out


if __name__ == "__main__":
    main()
