"""Exciting motions beside each other: ours, random certified plans, Fourier series with limits only or certified.

One line per motion: condition numbers of theta_e's torque regressor W and of PSO's Y over the windows of the
identification (unscaled columns, and scaled by the prior's radii), what the motion asks of the arm with a dumbbell
(torque left to 90 % of the hard thresholds, nearest it comes to itself and to obstacles), CPU time to make it. The last
column says whether the certificate holds for every payload of the prior.

    python benchmarks/excitation.py --scenes open six_boxes --seeds 3
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from rich.console import Console
from rich.table import Table

from safe_sysid.control.design import design_gains
from safe_sysid.control.gains import ControllerGains
from safe_sysid.planning.costs.condition import payload_scale
from safe_sysid.planning.costs.observation import MomentumObservation, condition_number, torque_observation
from safe_sysid.planning.distances.pair_distances import PairDistances
from safe_sysid.planning.excitation.fourier_excitation import certified_fourier, classical_fourier
from safe_sysid.planning.excitation.random_excitation import RandomPlanner
from safe_sysid.planning.motions.motion_limits import MotionLimits, torques
from safe_sysid.planning.planner import Planner, hand_over_state
from safe_sysid.robot.loading import load_robot
from safe_sysid.robot.model import RobotModel
from safe_sysid.robot.scenes.scene import Scene, load_scene
from safe_sysid.simulation.payloads import payload_from_spec, theta_e_with_payload

FloatArray = NDArray[np.float64]
PERIOD, PLANS = 7.5, 4  # s, of all of them
#: Of the Gen3: its user guide's acceleration limits, rad/s^2; 90 % of the hard thresholds, N m.
ACCELERATION = np.deg2rad([297.94] * 4 + [572.95] * 3)
TORQUE = np.array([90.0] * 4 + [45.0] * 3)


@dataclass(frozen=True)
class Motion:
    """States (N, 3, n) at 1 kHz, whether they are certified, and a note."""

    states: FloatArray
    certified: bool
    note: str = ""


def planned(planner: Planner, model: RobotModel, start: FloatArray) -> Motion:
    """Four plans of a planner, each followed until the next takes over."""
    state, at, previous, answers = np.stack([start, 0 * start, 0 * start]), 0.0, None, []
    information = np.zeros((10, 10))
    for sequence in range(PLANS):
        answer = planner.plan_next(
            state, at, model.arm_prior, sequence, previous, information,
            last=sequence == PLANS - 1, calibration=answers[-1].calibration if answers else None,
        )  # fmt: skip
        if answer.plan is None:
            break
        answers.append(answer)
        information = information + answer.information
        previous, state, at = answer.plan, hand_over_state(answer.plan), answer.plan.hand_over_time
    if not answers:
        return Motion(np.stack([start, 0 * start, 0 * start])[None], False, "no plan")
    times = np.arange(0.0, PERIOD, 1e-3)
    starts = np.array([answer.plan.start_time for answer in answers])
    which = np.searchsorted(starts, times, side="right") - 1
    states = [answers[i].plan.trajectory.state(t - starts[i])[:3] for i, t in zip(which, times, strict=True)]
    draws = "+".join(str(answer.iterations) for answer in answers)
    return Motion(np.array(states), True, f"{len(answers)} plans, {draws} iterations or draws")


def motions(
    model: RobotModel, scene: Scene, gains: ControllerGains, seed: int
) -> Iterator[tuple[str, Callable[[], Motion]]]:
    """All methods, to be called one by one."""
    start, box, times = scene.start_for(model), model.arm_prior, np.arange(0.0, PERIOD, 1e-3)
    limits = MotionLimits.of(model, acceleration=ACCELERATION)
    for name, scale in (("Fourier, unscaled", None), ("Fourier, scaled", payload_scale(box))):

        def classical(scale: FloatArray | None = scale) -> Motion:
            found = classical_fourier(model, start, limits, PERIOD, scale=scale, seed=seed)
            return Motion(found.trajectory.states(times)[:, :3], False)

        yield name, classical

    def certified() -> Motion:
        found = certified_fourier(model, box, scene, gains, start, PERIOD, seed=seed)
        return Motion(found.trajectory.states(times)[:, :3], True, f"{found.rounds} rounds")

    yield "Fourier, certified", certified
    yield "random", lambda: planned(RandomPlanner(model, scene, gains, seed=seed), model, start)
    yield "ours", lambda: planned(Planner(model, scene, gains, seed=seed), model, start)


def main() -> None:
    """What the command line asks for."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--scenes", nargs="+", default=["open", "six_boxes"])
    parser.add_argument("--payload", default="4lb", help="in the hand, for the torques")
    parser.add_argument("--seeds", type=int, default=1)
    options = parser.parse_args()
    model = load_robot("kinova_gen3")
    gains, console = design_gains(model, lockstep=True), Console()
    theta = np.array(model.theta_nominal)
    e = model.layout.payload
    theta[e] = theta_e_with_payload(model, theta[e], payload_from_spec(options.payload))
    table = Table(title=f"{PERIOD} s from rest to rest, {options.payload} in the hand")
    heads = ("scene", "seed", "motion", "W", "W scaled", "Y", "Y scaled", "torque left, N m", "to itself, m")
    for head in (*heads, "to obstacles, m", "CPU s", "certified", ""):
        table.add_column(head, justify="right")
    scale = payload_scale(model.arm_prior)
    window = round(model.settings.identification.window_s / 1e-3)
    for scene_name in options.scenes:
        scene = load_scene(scene_name)
        pairs = PairDistances(model, scene)
        for seed in range(options.seeds):
            for name, make in motions(model, scene, gains, seed):
                began = time.process_time()
                motion = make()
                spent = time.process_time() - began
                q, qd, qdd = (np.ascontiguousarray(motion.states[:, i]) for i in range(3))
                torque_rows = torque_observation(model.kinematics, q, qd, qdd)
                momentum = MomentumObservation(model.kinematics, np.arange(len(q)) * 1e-3, q, qd).rows(window)
                left = float(np.min(TORQUE - torques(model, theta, q, qd, qdd)))
                near, _ = pairs.at(q[::10], want_slopes=False)
                own = [float(near[:, pairs.is_self == side].min(initial=np.inf)) for side in (True, False)]
                numbers = [condition_number(r, s) for r in (torque_rows, momentum) for s in (None, scale)]
                row = [f"{x:.1f}" for x in (*numbers, left)] + [f"{x:.3f}" for x in own]
                said = "yes" if motion.certified else "no"
                table.add_row(scene_name, str(seed), name, *row, f"{spent:.1f}", said, motion.note)
    console.print(table)


if __name__ == "__main__":
    main()
