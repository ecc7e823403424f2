"""The frozen set: what is computed of its inputs, all of which lie in ``test/frozen``.

20 logs (bounds, proofs, checked certificates), 40 plans (certificates of given motions, and what planners find with a
counted budget), and the torques of every control law, for a Kinova Gen3, an arm of three joints, a UR5e and an arm that
slides. ``python test/frozen_set.py`` computes everything and prints it as JSON; ``test_frozen.py`` compares.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np
from frozen_arithmetic import arithmetic, digest

from safe_sysid.control.gains import ControllerGains
from safe_sysid.control.gains.design import design_gains
from safe_sysid.control.laws import make_law
from safe_sysid.control.laws.law import ModelInUse
from safe_sysid.errors import SafeSysIdError
from safe_sysid.identification.certificates.chain import ChainChecker
from safe_sysid.identification.certificates.files.update import CertificateContext, read_certificate, write_certificate
from safe_sysid.identification.certificates.row_check import LogBook, NamedLog
from safe_sysid.identification.digest import LogDigest, log_digest
from safe_sysid.identification.equations.measurement_errors import MeasurementErrors
from safe_sysid.identification.equations.measurements import Measurements
from safe_sysid.identification.identifier import Identifier
from safe_sysid.identification.tare.tare import make_tare
from safe_sysid.logs.bounds_file import bounds_of, write_bounds
from safe_sysid.logs.online.known_bounds import KnownBounds
from safe_sysid.planning import Budget, Planner, PlannerOptions, PlannerResult, hand_over_state
from safe_sysid.planning.certification.certificate import PlanCertificate, start_check, verify_plan
from safe_sysid.planning.excitation.fourier_excitation import certified_fourier
from safe_sysid.planning.excitation.random_excitation import RandomPlanner
from safe_sysid.planning.task.task import TaskPlanner, follow
from safe_sysid.robot.loading import load_robot
from safe_sysid.robot.model import RobotModel
from safe_sysid.robot.parameters import ParameterBox
from safe_sysid.robot.scenes.scene import Scene, load_scene
from safe_sysid.trajectories.plan import Plan
from safe_sysid.trajectories.quintic import QuinticTrajectory

FOLDER = Path(__file__).resolve().parent / "frozen"
Outcome = dict[str, Any]


# --- arms and inputs ---


@cache
def inputs() -> dict[str, np.ndarray]:
    """All logs, motions and states, by name."""
    with np.load(FOLDER / "inputs.npz") as file:
        return {name: file[name] for name in file.files}


def arm(name: str, changes: dict[str, Any] | None = None) -> RobotModel:
    """One of the arms, some settings changed."""
    return _load(name, **changes) if changes else as_it_is(name)


def _load(name: str, **changes: Any) -> RobotModel:
    return load_robot(FOLDER / "sliding.yaml" if name == "sliding" else name, **changes)


@cache
def as_it_is(name: str) -> RobotModel:
    """One of the arms; loading each takes half a second, and most outcomes are of these."""
    return _load(name)


@cache
def gains_of(name: str) -> ControllerGains:
    return design_gains(arm(name), lockstep=True)


def measurements(name: str) -> Measurements:
    """A log: kept as float32, stamps as whole milliseconds."""
    data = inputs()[f"log_{name}"].astype(float)
    q, qd, effort = np.split(data, 3, axis=1)
    return Measurements(1e-3 * np.arange(len(data)), q, qd, effort)


def hexadecimal(values: Any) -> list[str]:
    return [float(x).hex() for x in np.ravel(values)]


# --- logs ---


@dataclass(frozen=True)
class LogCase:
    """One log and what is declared of it.

    Attributes:
        name: of case and log.
        arm: its name.
        changes: of the arm's settings.
        tare: whether a log of the empty hand is used.
        known: whether the first half's bounds are known when the second half begins a run of its own.
        updates: so many.
        checked: whether certificates are written and checked.
        noise: how the log's torque errors lie.
    """

    name: str
    arm: str
    changes: dict[str, Any] = field(default_factory=dict)
    tare: bool = False
    known: bool = False
    updates: int = 2
    checked: bool = False
    noise: str = "uniform"


_STATES = {"measurement.position_error": 1e-4, "measurement.velocity_error": 1e-3}
_SENSOR = {"measurement.torque_bias": 0.02, "measurement.torque_drift": 0.01}
_GRAVITY = {"measurement.gravity_angle": 0.002, "measurement.gravity_relative": 0.001}
_SAMPLED = {
    "measurement.effort": "sampled", "measurement.torque_rate": 3000.0, "measurement.jerk": 3000.0,
    "measurement.torque_delay_s": 2e-4, "measurement.torque_jitter_s": 1e-4,
}  # fmt: skip
_GEARS = {
    "joints.joint_3.gear_ratio": 100.0, "joints.joint_5.gear_ratio": -50.0,
    "joints.joint_7.gear_ratio": 80.0, "joints.joint_7.motor_axis": [0.0, 0.6, 0.8],
}  # fmt: skip
_BODY = {"payload.box": "envelope", "payload.density": [0.0, 12000.0]}
LOGS = (
    LogCase("kinova_motor", "kinova_gen3", checked=True),
    LogCase("kinova_states", "kinova_gen3", _STATES, noise="random_sign"),
    LogCase("kinova_command", "kinova_gen3", {"measurement.torque_source": "command"}, noise="grow"),
    LogCase("kinova_link", "kinova_gen3", {"measurement.torque_source": "link"}, noise="constant"),
    LogCase("kinova_gears", "kinova_gen3", _GEARS, checked=True),
    LogCase("kinova_tare", "kinova_gen3", tare=True, updates=1),
    LogCase("kinova_known", "kinova_gen3", known=True),
    LogCase("kinova_lp", "kinova_gen3", {"identification.method": "lp"}, noise="shrink"),
    LogCase("three_motor", "three_joint", checked=True, updates=3),
    LogCase("three_states", "three_joint", {**_STATES, "measurement.stamp_error_s": 2e-6}, checked=True),
    LogCase("three_sensor", "three_joint", {**_SENSOR, **_GRAVITY}, noise="random_sign"),
    LogCase("three_sampled", "three_joint", _SAMPLED),
    LogCase("three_link", "three_joint", {"measurement.torque_source": "link"}, noise="grow"),
    LogCase("three_tare", "three_joint", tare=True, checked=True),
    LogCase("three_body", "three_joint", _BODY, checked=True),
    LogCase("three_contradiction", "three_joint", {"measurement.torque_abs": 0.005, "measurement.torque_rel": 0.0}),
    LogCase("sliding_motor", "sliding", checked=True),
    LogCase("sliding_states", "sliding", _STATES, noise="constant"),
    LogCase("sliding_tare", "sliding", tare=True),
    LogCase("sliding_lp", "sliding", {"identification.method": "lp", "measurement.torque_source": "command"}),
)  # fmt: skip


def log_outcome(case: LogCase) -> Outcome:
    """Statuses, bounds and digests of every update's proof."""
    model, data = arm(case.arm, case.changes), measurements(case.name)
    errors = MeasurementErrors.from_model(model)
    out: Outcome = {"updates": [], "bits": {}}
    with tempfile.TemporaryDirectory() as folder:
        known = None
        if case.known:
            first = Identifier(model, errors)
            first.add(data[: len(data) // 2])
            result = first.update(final=True)
            bounds = (result.box.payload_lower, result.nominal, result.box.payload_upper)
            path = Path(folder) / "bounds.yaml"
            write_bounds(path, bounds_of(model, bounds, (0, result.box.seq), "sdp", True, "certificate_0_00001.json"))
            known = KnownBounds(path, model)
            data = data[len(data) // 2 :]
        options, of_tare = {}, ()
        tare_data = measurements(f"{case.name}_empty") if case.tare else None
        if tare_data is not None:
            tare = make_tare(model, errors, tare_data)
            options = tare.options()
            of_tare = (log_digest(model.joint_names, tare_data), len(tare_data))
            rows = tare.log_rows
            out["bits"]["tare"] = digest(rows.matrix, rows.target, rows.slack, tare.after)
        identifier, seen, paths = Identifier(model, errors, **options), LogDigest(model.joint_names), []
        for k in range(case.updates):
            part = data[k * len(data) // case.updates : (k + 1) * len(data) // case.updates]
            seen.update(part)
            identifier.add(part)
            result = identifier.update(final=k == case.updates - 1)
            shown = result if known is None else known.narrow(result)
            out["updates"].append({
                "status": shown.status.name, "message": shown.message.replace(folder, "FOLDER"), "rows": shown.rows,
                "rejected": {name: int(count) for name, count in shown.rejected.items()},
                "consistent": bool(shown.nominal_consistent),
            })  # fmt: skip
            out["bits"][f"box {k}"] = digest(shown.box.lower, shown.box.upper, shown.nominal)
            rows = identifier.rows
            out["bits"][f"kept {k}"] = digest(rows.matrix, rows.target, rows.slack)
            out["bits"] |= {f"{name} {k}": value for name, value in _of_proof(result.proof).items()}
            if case.checked and result.proof is not None:
                context = CertificateContext(
                    model, errors, result.box.epoch, result.box.seq, seen.hexdigest(), seen.count, "frozen", *of_tare
                )  # fmt: skip
                paths.append(write_certificate(Path(folder), result.proof, context, paths[-1] if paths else None))
        out |= {
            "lower": hexadecimal(shown.box.payload_lower), "upper": hexadecimal(shown.box.payload_upper),
            "nominal": hexadecimal(shown.nominal),
        }  # fmt: skip
        if case.checked:
            books = [LogBook([NamedLog("log", model.joint_names, x)]) for x in (data, tare_data) if x is not None]
            checker = ChainChecker(model, books[0], tare_logs=books[1] if case.tare else None)
            verdicts = list(checker.check([read_certificate(path) for path in paths]))
            out["proved"] = [v.reason or "proved" for v in verdicts]
            out["bits"]["checker"] = digest(*(x for v in verdicts for x in (v.proved_lower, v.proved_upper, v.spare)))
    return out


def _of_proof(proof: Any) -> dict[str, str]:
    if proof is None:
        return {}
    rows, cuts = proof.rows, proof.cuts
    return {
        "rows": digest(rows.matrix, rows.target, rows.slack, rows.parts, rows.first, rows.last, rows.joint, rows.log),
        "cuts": digest(cuts.u, cuts.v, cuts.mass, cuts.constant, *cuts.kind.tolist()),
        "multipliers": digest(proof.row_multipliers, proof.cut_multipliers),
        "proof": digest(proof.lower, proof.upper, proof.hand_lower, proof.hand_upper, proof.opening, proof.drift),
    }  # fmt: skip


# --- plans: certificates of given motions ---

#: What is asked of a given motion besides: how much of the box, keyword arguments of the certificate.
MOTIONS: dict[str, tuple[float, dict[str, Any]]] = {
    "gentle": (1.0, {}),
    "far": (1.0, {}),
    "moving": (1.0, {}),
    "knots": (1.0, {"intervals": 50}),
    "hold": (1.0, {}),
    "too_fast": (1.0, {}),
    "small_box": (0.5, {"intervals": 24, "splits": 3}),
    "cell": (1.0, {"clearance_margin": 0.02}),
}
ARMS_THAT_PLAN = ("kinova_gen3", "three_joint", "ur5e")


def scene_of(arm_name: str, motion: str = "cell") -> Scene:
    if motion != "cell":
        return load_scene("open")
    return load_scene("six_boxes" if arm_name == "kinova_gen3" else str(FOLDER / "cell.yaml"))


def part_of(box: ParameterBox, share: float) -> ParameterBox:
    """The box with theta_e's intervals shrunk about their middles."""
    if share == 1.0:
        return box
    middle, half = (0.5 * (box.payload_lower + box.payload_upper), 0.5 * (box.payload_upper - box.payload_lower))
    return box.with_payload(middle - share * half, middle + share * half, box.seq + 1)


def motion_outcome(arm_name: str, motion: str) -> Outcome:
    """The certificate of a motion that is given, and whether its first pose may be held."""
    model, scene = arm(arm_name), scene_of(arm_name, motion)
    share, options = MOTIONS[motion]
    box, data = part_of(model.arm_prior, share), inputs()
    name = f"motion_{arm_name}_{motion}"
    trajectory = QuinticTrajectory(data[f"{name}_times"], data[f"{name}_knots"])
    plan = Plan(trajectory, 0.0, 0.5 * trajectory.duration, box.identity, 0, np.zeros(model.n))
    certificate = verify_plan(plan, model, box, scene, gains_of(arm_name), **options)
    reasons = start_check(model, box, scene, gains_of(arm_name), trajectory.knots[0, 0])
    return of_certificate(certificate) | {"start": reasons}


def of_certificate(certificate: PlanCertificate) -> Outcome:
    """The smallest margins in words and bits, all others as digests."""
    families = certificate.families
    return {
        "ok": certificate.ok, "status": certificate.status,
        "margins": {name: float(margin.value).hex() for name, margin in families.items()},
        "where": {name: f"{margin.culprit}, {margin.time!r} s" for name, margin in families.items()},
        "bits": {
            f"margins {name}": digest(
                certificate.margins[name],
                *(replace(margin, a=a, b=b).culprit for a, b in certificate.labels[name]),
            )
            for name, margin in families.items()
        }
        | {"cells": digest(certificate.grid), "directions": digest(certificate.witness)},
    }  # fmt: skip


# --- plans: what planners find ---


def of_result(result: PlannerResult) -> Outcome:
    """A planner's answer."""
    out: Outcome = {
        "status": result.status.name, "reasons": list(result.reasons),
        "counts": [result.iterations, result.certificates], "numbers": hexadecimal([result.cost, result.condition]),
        "bits": {"information": digest(np.asarray(result.information))},
    }  # fmt: skip
    if result.plan is not None:
        out["k"] = hexadecimal(result.plan.k)
        out["bits"]["trajectory"] = digest(result.plan.trajectory.times, result.plan.trajectory.knots)
    if result.certificate is not None:
        out["certificate"] = of_certificate(result.certificate)
    return out


def _search(
    arm_name: str, scene: str, cost: str, *, plans: int = 1, goal: float | None = None, random: bool = False
) -> list[Outcome]:
    model, where = arm(arm_name), scene_of(arm_name, scene)
    options = PlannerOptions(cost=cost, starts=4, keep=1, certificates=2)
    planner = (RandomPlanner if random else Planner)(model, where, gains_of(arm_name), options=options)
    q = where.start_for(model)
    at = None if goal is None else q + goal * np.linspace(1.0, -1.0, model.n)
    out, result, box = [], None, model.arm_prior
    state, start = np.stack([q, 0.0 * q, 0.0 * q]), 0.0
    for k in range(plans):
        previous = None if result is None else result.plan
        information = None if result is None else result.information
        calibration = None if result is None else result.calibration
        result = planner.plan_next(
            state, start, box, k, previous, information, Budget(10, 2), calibration=calibration, goal=at
        )
        out.append(of_result(result))
        if result.plan is None:
            break
        state, start = hand_over_state(result.plan), result.plan.hand_over_time
        box = part_of(box, 0.7)
    return out


def _refused() -> list[Outcome]:
    """The arm's home pose reaches into a post of this scene."""
    model = arm("kinova_gen3")
    q = np.array(model.settings.home)
    planner = Planner(model, scene_of("kinova_gen3"), gains_of("kinova_gen3"))
    return [of_result(planner.plan_next(np.stack([q, 0.0 * q, 0.0 * q]), 0.0, model.arm_prior, 0))]


def _fourier() -> list[Outcome]:
    model = arm("three_joint")
    found = certified_fourier(
        model, model.arm_prior, load_scene("open"), gains_of("three_joint"), model.settings.home,
        period=5.0, harmonics=2, starts=1, iterations=10, rounds=1,
    )  # fmt: skip
    assert found.certificate is not None
    return [
        of_certificate(found.certificate)
        | {"k": hexadecimal(found.trajectory.knots[:, 0]), "numbers": hexadecimal([found.scaled])}
    ]


def _task(arm_name: str, most: int) -> list[Outcome]:
    """The first steps of a task with waypoints."""
    model, scene = arm(arm_name), scene_of(arm_name)
    options = PlannerOptions(starts=4, keep=1, certificates=2)
    planner = Planner(
        model, scene, gains_of(arm_name), model.settings.planner.model_copy(update={"iteration_budget": 10}), options
    )
    q = scene.start_for(model)
    task = TaskPlanner(planner, q + 0.3 * np.linspace(1.0, -1.0, model.n), looks=2000)
    return [of_result(answer) for answer in follow(task, q, model.arm_prior, most=most)]


PLANNED: dict[str, Callable[[], list[Outcome]]] = {
    "kinova condition": lambda: _search("kinova_gen3", "open", "condition"),
    "kinova condition_momentum": lambda: _search("kinova_gen3", "cell", "condition_momentum"),
    "kinova width": lambda: _search("kinova_gen3", "open", "width", plans=2),
    "kinova information": lambda: _search("kinova_gen3", "open", "information"),
    "kinova log_determinant": lambda: _search("kinova_gen3", "open", "log_determinant"),
    "kinova smallest_eigenvalue": lambda: _search("kinova_gen3", "cell", "smallest_eigenvalue"),
    "kinova goal": lambda: _search("kinova_gen3", "cell", "goal", goal=0.2),
    "kinova width+0.3*goal": lambda: _search("kinova_gen3", "open", "width+0.3*goal", goal=-0.3),
    "kinova refused": _refused,
    "three_joint condition": lambda: _search("three_joint", "cell", "condition", plans=2),
    "three_joint width": lambda: _search("three_joint", "open", "width", plans=3),
    "three_joint random": lambda: _search("three_joint", "cell", "condition", random=True),
    "three_joint fourier": _fourier,
    "three_joint task": lambda: _task("three_joint", 3),
    "ur5e width": lambda: _search("ur5e", "cell", "width"),
    "ur5e goal": lambda: _search("ur5e", "cell", "goal", goal=0.15),
}


# --- laws ---

LAWS = (
    "robust", "armour", "passivity_adaptive", "adaptive_robust", "gravity_pid", "computed_torque", "impedance",
)  # fmt: skip
ARMS = ("kinova_gen3", "three_joint", "ur5e", "sliding")


def law_outcome(arm_name: str) -> Outcome:
    """The gains, and every law's torques along made-up measurements."""
    model, gains = arm(arm_name), gains_of(arm_name)
    errors, home, zero = inputs()[f"states_{arm_name}"], np.array(model.settings.home), np.zeros(model.n)
    use = ModelInUse(model.theta_nominal, model.arm_prior.mid, model.arm_prior.rad)
    out: Outcome = {
        "numbers": hexadecimal([gains.V_max, gains.power_loss, *gains.K_d, *gains.r_bound]),
        "bits": {"gains": digest(
            gains.K_r, gains.K_d, gains.r_bound, gains.e_bound, gains.de_bound, gains.acceleration_bound,
            gains.late_rates,
        )},
        "torques": {},
    }  # fmt: skip
    for name in LAWS:
        try:
            law = make_law(name, model, gains)
        except SafeSysIdError as error:
            out["torques"][name] = str(error)
            continue
        law.reset(0.0, home, zero)
        torques = np.array([
            law.step(1e-3 * k, home + e[0], e[1], np.stack([home, zero, zero]), use).copy()
            for k, e in enumerate(errors)
        ])  # fmt: skip
        out["torques"][name] = hexadecimal(torques[-1])
        out["bits"][f"torques {name}"] = digest(torques)
    return out


# --- all of it ---


def makers() -> Iterator[tuple[str, Callable[[], Outcome | list[Outcome]]]]:
    """Name of every outcome, and what makes it, in a fixed order."""
    for case in LOGS:
        yield f"log {case.name}", partial(log_outcome, case)
    for arm_name in ARMS_THAT_PLAN:
        for motion in MOTIONS:
            yield f"plan {arm_name} {motion}", partial(motion_outcome, arm_name, motion)
    for name, make in PLANNED.items():
        yield f"plan {name}", make
    for arm_name in ARMS:
        yield f"laws {arm_name}", partial(law_outcome, arm_name)


def compute(names: Iterable[str] = ()) -> dict[str, Any]:
    """Arithmetic and outcomes, by a process with one thread: sums of several depend on their number.

    ``names``: of the outcomes; none: all of them.
    """
    threads = {f"{name}_NUM_THREADS": "1" for name in ("OPENBLAS", "OMP", "MKL", "NUMBA")}
    path = os.pathsep.join(filter(None, [str(FOLDER.parent.parent), os.environ.get("PYTHONPATH", "")]))
    done = subprocess.run(
        [sys.executable, __file__, *names],
        env={**os.environ, **threads, "PYTHONPATH": path},
        stdout=subprocess.PIPE,
        check=True,
    )
    return json.loads(done.stdout)


if __name__ == "__main__":
    chosen = {name: make() for name, make in makers() if name in sys.argv[1:] or not sys.argv[1:]}
    json.dump({"arithmetic": arithmetic(), "outcomes": chosen}, sys.stdout, indent=1)
