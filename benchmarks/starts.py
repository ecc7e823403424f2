"""Which poses may be started from: random poses at which the drives hold every payload of the prior.

Kept are poses within the position limits, where gravity of any parameters of the prior takes at most 90 % of each
drive's torque, and all bodies are at least 10 mm apart: nothing of physics forbids to rest there. Asked is what the
start check says (:func:`safe_sysid.planning.certification.certificate.may_rest`), with the gains of lock-step and of
real time; what it refuses is counted by the first margin that speaks against it. With ``--weighed`` it is asked as the
controller asks in real time once the identifier has seen two seconds of the arm's efforts at that pose: an arm and a
payload of the prior, friction at rest anywhere within Coulomb's, efforts wrong by all that is declared; in any tube.

    python benchmarks/starts.py --poses 300
    python benchmarks/starts.py --robots kinova_gen3 --set controller.uncertainty=11 controller.inertia_ratio=4
    python benchmarks/starts.py --constant --json starts.json
    python benchmarks/starts.py --weighed
"""

from __future__ import annotations

import argparse
import json
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import yaml
from rich.console import Console
from rich.table import Table

from safe_sysid.control.gains.design import design_gains
from safe_sysid.dynamics import dynamics_of
from safe_sysid.errors import ParameterError
from safe_sysid.identification.equations.measurements import Measurements
from safe_sysid.identification.identifier import Identifier
from safe_sysid.planning.certification.certificate import may_rest, start_tube
from safe_sysid.planning.distances.proximity import Proximity
from safe_sysid.robot.frames import forward_kinematics
from safe_sysid.robot.loading import load_robot
from safe_sysid.robot.model import RobotModel
from safe_sysid.robot.parameters import ParameterBox
from safe_sysid.robot.scenes.scene import Scene
from safe_sysid.simulation.payloads import payload_from_spec, theta_e_with_payload

ROBOTS = ("kinova_gen3", "ur5e", "franka_panda", "three_joint", "three_joint_wall")
_KEYS = tuple(f"controller.{key}" for key in ("damping", "K_r", "inertia_ratio", "uncertainty"))
#: Changes of the files: damping by a constant K_d, with the hypotheses that it has room for.
CONSTANT: dict[str, dict[str, Any]] = {
    robot: dict(zip(_KEYS, ("constant", *values), strict=True))
    for robot, values in {
        "kinova_gen3": (2.5, [2.25, 2.25, 2.2, 2.25, 2.0, 1.75, 1.7], 7.4), "ur5e": (5.0, 3.8, 6.6),
        "franka_panda": (6.0, 3.5, 4.5), "three_joint": (6.0, 2.6, 8.0), "three_joint_wall": (6.0, 2.6, 9.5),
    }.items()
}  # fmt: skip
SPARE, APART = 0.1, 0.01  # of the torque; m
#: Of a drawn payload: radius of gyration, m; and seconds at rest, as the identifier takes them in.
_GYRATION, _AT_REST = 0.03, 2.0
_BATCH = 100


def restful(model: RobotModel, scene: Scene, count: int, rng: np.random.Generator) -> np.ndarray:
    """Poses (count, n) that nothing of physics forbids to rest at."""
    limits, box, kin = model.limits, model.arm_prior, model.kinematics
    lower = np.where(model.continuous, -np.pi, limits.position_lower)
    upper = np.where(model.continuous, np.pi, limits.position_upper)
    proximity, found = Proximity.build(model, scene, 0.0), np.empty((0, model.n))
    while len(found) < count:
        q = rng.uniform(lower, upper, (_BATCH, model.n))
        w = dynamics_of(kin).torque_regressor(q, 0.0 * q, 0.0 * q, model.friction_transition_velocity)
        held = np.abs(w @ box.mid) + np.abs(w) @ box.rad <= (1.0 - SPARE) * model.limits.torque
        near = proximity.distances(*forward_kinematics(kin, q), np.zeros(model.n))
        apart = [values.min(axis=1, initial=np.inf) >= APART for values in (near.clearance, near.self_clearance)]
        found = np.concatenate([found, q[held.all(axis=1) & apart[0] & apart[1]]])
    return found[:count]


def ask(model: RobotModel, scene: Scene, poses: np.ndarray, lockstep: bool) -> dict[str, Any]:
    """How many poses the start check refuses, and why."""
    try:
        gains = design_gains(model, lockstep)
    except ParameterError as error:
        return {"poses": len(poses), "refused": len(poses), "why": {str(error)[:40]: len(poses)}}
    free, against = may_rest(model, model.arm_prior, scene, gains, poses)
    why = Counter(f"{found[0].family}: {found[0].culprit}".split(": the ")[0] for found in against if found)
    return {
        "poses": len(poses), "refused": int(np.sum(~free)), "why": dict(why.most_common()),
        "tube, mrad": 1e3 * float(gains.e_bound.max()), "nu": float(np.sqrt(2.0 * gains.V_max)),
    }  # fmt: skip


def drawn(model: RobotModel, rng: np.random.Generator) -> np.ndarray:
    """An arm (14 n,) whose hand holds a payload that the prior allows."""
    prior = model.arm_prior
    arm = rng.uniform(prior.lower, prior.upper)
    hand = model.theta_nominal[prior.layout.payload]
    size = model.settings.payload.envelope
    while True:
        mass = rng.uniform(0.0, prior.payload_upper[0] - hand[0])
        centre = size.center + (0.5 * np.array(size.size) - _GYRATION) * rng.uniform(-1.0, 1.0, 3)
        spin = mass * _GYRATION**2
        payload = payload_from_spec(",".join(str(x) for x in (mass, *centre, spin, 0.0, spin, 0.0, 0.0, spin)))
        arm[prior.layout.payload] = theta_e_with_payload(model, hand, payload)
        if prior.contains(arm):
            return arm


def weigh(model: RobotModel, q: np.ndarray, theta: np.ndarray, rng: np.random.Generator) -> ParameterBox:
    """What is known of the payload once the drives have held the arm (14 n,) at q (n,) for a while."""
    m, layout = model.settings.measurement, model.layout
    held = (
        dynamics_of(model.kinematics).torque_regressor(q, 0.0 * q, 0.0 * q, model.friction_transition_velocity) @ theta
    )
    held = held + rng.uniform(-1.0, 1.0, model.n) * theta[layout.coulomb]
    absolute, relative = m.torque_error(model.n)
    t = np.arange(0.0, _AT_REST, 1.0 / m.rate_hz)
    effort = np.tile(held + rng.choice([-1.0, 1.0], model.n) * (absolute + relative * np.abs(held)), (len(t), 1))
    rest = np.tile(q, (len(t), 1))
    identifier = Identifier(model)
    identifier.add(Measurements(t, rest, 0.0 * rest, effort))
    box = identifier.update().box
    if not box.contains(theta):
        raise AssertionError(f"the truth is not in box {box.identity} at {q.tolist()}: a defect")
    return box


def ask_weighed(model: RobotModel, scene: Scene, poses: np.ndarray, seed: int) -> dict[str, Any]:
    """How many poses are refused as starts in real time once the payload was weighed there."""
    gains, rng, refused = design_gains(model), np.random.default_rng(seed), []
    for q in poses:
        reasons, _ = start_tube(model, weigh(model, q, drawn(model, rng), rng), scene, gains, q)
        refused += [reasons[0].split(":")[0]] if reasons else []
    return {
        "poses": len(poses), "refused": len(refused), "why": dict(Counter(refused).most_common()),
        "tube, mrad": 1e3 * float(gains.e_bound.max()),
    }  # fmt: skip


def main() -> None:
    """Ask and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--robots", nargs="+", default=ROBOTS)
    parser.add_argument("--poses", type=int, default=300)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--set", nargs="*", default=[], metavar="KEY=VALUE", help="changes of the robots' files")
    parser.add_argument("--weighed", action="store_true", help="real time, after the payload was weighed at the pose")
    parser.add_argument("--constant", action="store_true", help="controller.damping: constant, with its hypotheses")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    changes = {key: yaml.safe_load(value) for key, value in (text.split("=", 1) for text in options.set)}
    table, found = Table(title="poses refused as starts"), {}
    for column in ("robot", "gains", "refused", "tube, mrad", "why"):
        table.add_column(column)
    for name in options.robots:
        own = CONSTANT.get(name, {_KEYS[0]: "constant"}) if options.constant else {}
        model, scene = load_robot(name, **(own | changes)), Scene("open")
        poses = restful(model, scene, options.poses, np.random.default_rng(options.seed))
        for gains, lockstep in (("lock-step", True), ("real time", False)):
            if options.weighed and lockstep:
                continue
            one = (
                ask_weighed(model, scene, poses, options.seed)
                if options.weighed
                else ask(model, scene, poses, lockstep)
            )
            found[f"{name}, {gains}"] = one
            why = ", ".join(f"{count} {text}" for text, count in list(one["why"].items())[:4])
            share = one["refused"] / one["poses"]
            table.add_row(name, gains, f"{share:.0%}", f"{one.get('tube, mrad', np.nan):.1f}", why)
    Console().print(table)
    if options.json is not None:
        options.json.write_text(json.dumps(found, indent=1))


if __name__ == "__main__":
    main()
