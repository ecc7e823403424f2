"""What ``import safe_sysid`` offers: the use cases of the command line, for scripts and notebooks.

An :class:`Arm` comes first, then what is known of its payload (:func:`identify`), motions (:func:`plan`,
:func:`excite`, :func:`certify`), a simulated run (:func:`simulate`) and an independent check of files
(:func:`verify`). SI units and radians; ``n`` joints, ``N`` samples. Every error is a
:class:`~safe_sysid.errors.SafeSysIdError` that names the value and what was expected.
"""

from __future__ import annotations

import io
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from rich.console import Console

from safe_sysid.apps.identify.methods import PROVED, identify_log
from safe_sysid.apps.plan.plan import PlannedMotion, go, goals_of, write_motion
from safe_sysid.apps.plan.plan import excite as _excite
from safe_sysid.apps.verify.verification import Verification, VerifyStatus
from safe_sysid.control.gains.design import design_gains
from safe_sysid.core.arrays import FloatArray
from safe_sysid.core.layout import PAYLOAD_NAMES, PAYLOAD_UNITS
from safe_sysid.decimals import estimate_text
from safe_sysid.errors import SafeSysIdError
from safe_sysid.identification.equations.measurement_errors import MeasurementErrors
from safe_sysid.identification.equations.measurements import Measurements
from safe_sysid.logs.bounds_file import bounds_box, read_bounds
from safe_sysid.logs.checks.checks import check_log
from safe_sysid.logs.formats.reading import load_log, reading_of
from safe_sysid.logs.log import Log, LogError
from safe_sysid.planning.certification.certificate import PlanCertificate
from safe_sysid.planning.planner import Planner, PlannerOptions
from safe_sysid.report.identification.output import write_all
from safe_sysid.report.identification.result import IdentificationResult, payload_alone
from safe_sysid.robot.loading import load_robot
from safe_sysid.robot.model import RobotModel
from safe_sysid.robot.parameters import ParameterBox
from safe_sysid.robot.scenes.scene import load_scene
from safe_sysid.trajectories.plan import Plan
from safe_sysid.trajectories.quintic import QuinticTrajectory


@dataclass(frozen=True, eq=False, repr=False)
class Arm:
    """A robot arm with everything that is declared about it; :func:`load_arm` makes one."""

    model: RobotModel

    @property
    def name(self) -> str:
        """Of the robot."""
        return self.model.name

    @property
    def joints(self) -> tuple[str, ...]:
        """Names of the n joints, base to tip: the order of every array."""
        return tuple(self.model.joint_names)

    @property
    def home(self) -> FloatArray:
        """(n,) pose that runs start from, rad."""
        return np.array(self.model.settings.home)

    @property
    def prior(self) -> Intervals:
        """What is known of the payload before anything is measured."""
        box = self.model.arm_prior
        lower, upper = box.payload_lower, box.payload_upper
        return Intervals(self, lower, 0.5 * (lower + upper), upper, "prior", True, box)

    def __repr__(self) -> str:
        """One line."""
        return f"Arm({self.name!r}, {self.model.n} joints: {self.joints[0]} .. {self.joints[-1]})"


@dataclass(frozen=True, eq=False, repr=False)
class Intervals:
    """Ten inertial parameters of the last link with hand and payload, in the frame of the last joint.

    Order: ``m, m cx, m cy, m cz, Ixx, Ixy, Iyy, Ixz, Iyz, Izz``, inertia about that frame's origin; kg, kg m, kg m^2.
    """

    arm: Arm
    #: lower, estimate, upper: (10,); the truth is between ``lower`` and ``upper`` if ``guaranteed``
    lower: FloatArray
    estimate: FloatArray
    upper: FloatArray
    method: str
    guaranteed: bool  #: whether the method proves them
    box: ParameterBox | None  #: for the planner; None where nothing is proved
    result: IdentificationResult | None = None  #: everything that the report shows; None for a prior or a file
    folder: Path | None = None  #: where files and certificates were written; None: nowhere

    @property
    def payload_mass(self) -> tuple[float, float, float]:
        """Lower end, estimate and upper end of the mass of the payload alone, without the hand, kg."""
        found = self.result.payload if self.result is not None else None
        alone = found or payload_alone(self.arm.model, self.lower, self.estimate, self.upper)
        return alone.lower[0], alone.nominal[0], alone.upper[0]

    def __repr__(self) -> str:
        """One line: the mass of the payload."""
        low, estimate, high = estimate_text(*self.payload_mass, 3)
        word = "guaranteed" if self.guaranteed else "not guaranteed"
        return f"Intervals({self.arm.name}: payload {estimate} kg, in [{low}, {high}] kg, {word}, {self.method})"

    def __str__(self) -> str:
        """The payload's mass, then one line for each of the ten parameters, rounded outward."""
        lines = [repr(self)[len("Intervals(") : -1]]
        for name, unit, *values in zip(
            PAYLOAD_NAMES, PAYLOAD_UNITS, self.lower, self.estimate, self.upper, strict=True
        ):
            low, middle, high = estimate_text(float(values[0]), float(values[1]), float(values[2]), 3)
            lines.append(f"  {name:>5} {middle:>10}  in [{low:>10}, {high:>10}] {unit}")
        return "\n".join(lines)


@dataclass(frozen=True, eq=False, repr=False)
class Motion:
    """Certified trajectories, one after the other; :func:`plan` and :func:`excite` make them."""

    arm: Arm
    planned: PlannedMotion

    @property
    def plans(self) -> tuple[Plan, ...]:
        """The certified plans, in order."""
        return tuple(answer.plan for _, answer in self.planned.steps if answer.plan is not None)

    @property
    def duration(self) -> float:
        """From the first plan's start to rest, s."""
        return self.planned.duration

    @property
    def reached(self) -> bool:
        """Whether everything that was asked for is planned; if not, ``reasons`` says why."""
        return self.planned.reached

    @property
    def reasons(self) -> tuple[str, ...]:
        """Why something was refused, for people."""
        return self.planned.reasons

    def at(self, times: ArrayLike) -> FloatArray:
        """Reference positions, velocities, accelerations (N, 3, n) at times (N,), s from the start."""
        plans, asked = self.plans, np.atleast_1d(np.asarray(times, float))
        if not plans:
            raise SafeSysIdError(f"a motion without plans has no positions: {'; '.join(self.reasons)}")
        clock = asked + plans[0].start_time
        last = np.searchsorted([p.hand_over_time for p in plans[:-1]], clock, side="right")
        return np.array(
            [
                plans[i].trajectory.states(np.array([t - plans[i].start_time]))[0][:3]
                for i, t in zip(last, clock, strict=True)
            ]
        )

    def save(self, folder: str | Path) -> Path:
        """Write plan files, a picture and ``motion.json``; :func:`verify` checks the folder."""
        write_motion(self.planned, Path(folder), repr(self))
        return Path(folder)

    def __repr__(self) -> str:
        """One line."""
        state = "certified" if self.reached else f"refused: {'; '.join(self.reasons)}"
        return f"Motion({self.arm.name}: {len(self.plans)} plans, {self.duration:.1f} s, {state})"


@dataclass(frozen=True, eq=False, repr=False)
class Run:
    """A simulated run; the simulation knows the truth and judges."""

    arm: Arm
    log: Log  #: what its sensors said, (N,) samples
    found: Intervals  #: intervals at the end; the prior if nothing was identified
    truth: FloatArray  #: (10,) parameters of last link, hand and payload
    wrong: tuple[str, ...]  #: violations of limits and failures, for people; empty in a good run
    planned: PlannedMotion

    @property
    def bounds_held(self) -> bool:
        """Whether the truth lies inside the intervals."""
        return bool(np.all((self.found.lower <= self.truth) & (self.truth <= self.found.upper)))

    def __repr__(self) -> str:
        """One line."""
        held = "bounds held" if self.bounds_held else "BOUNDS FAILED"
        wrong = "; ".join(self.wrong) or "no limit violated"
        return f"Run({self.arm.name}: {len(self.log)} samples, {held}, {wrong}; {self.found!r})"


@dataclass(frozen=True)
class Verdict:
    """Answer of an independent check."""

    proved: bool  #: everything in the files holds, under the declared assumptions alone
    text: str = field(repr=False)
    conditional: bool = False  #: it holds if something does that the text names

    def __bool__(self) -> bool:
        """Whether everything is proved."""
        return self.proved

    def __str__(self) -> str:
        """The answer; how much is assumed; ``text`` has it all."""
        lines = self.text.splitlines()
        assumed = sum(line.startswith("assumed: ") for line in lines)
        told = [line for line in lines if line.startswith(("PASS", "FAIL", "CONDITIONAL"))]
        return "\n".join([*told, f"{assumed} assumptions, in .text"] if told else lines)


def load_arm(robot: str | Path = "kinova_gen3", **settings: Any) -> Arm:
    """Load a packaged arm by name, or an arm of your own from its YAML file (``safe-sysid config init`` makes one).

    Args:
        settings: in place of the file's, dots as two underscores: ``measurement__torque_abs=0.2``.

    Raises:
        ConfigError: no such arm, or a key or value that cannot be.
    """
    return Arm(load_robot(str(robot), **{key.replace("__", "."): value for key, value in settings.items()}))


def log_from_arrays(arm: Arm, time: ArrayLike, position: ArrayLike, velocity: ArrayLike, effort: ArrayLike) -> Log:
    """A log from arrays, columns in the order of ``arm.joints``.

    Args:
        time: (N,) s.
        position: (N, n) rad.
        velocity: (N, n) rad/s.
        effort: (N, n) N m; what it is, the arm's file says (``measurement.torque_source``, ``measurement.effort``).

    Raises:
        ParameterError: shapes that do not fit.
        LogError: as many columns as the arm has not joints.
    """
    arrays = (np.asarray(x, float) for x in (time, position, velocity, effort))
    return Log(arm.joints, Measurements(*arrays))


def read_log(arm: Arm, path: str | Path, *, topic: str | None = None, angles: str | None = None) -> Log:
    """Read a rosbag2 (mcap, sqlite3), a CSV or an npz.

    Args:
        topic: of a bag; None: the one that fits.
        angles: ``rad`` or ``deg``; None: as the columns are named.

    Raises:
        LogError: it cannot be read, or a joint is missing.
    """
    return load_log(Path(path), arm.model.joint_names, reading_of(None, topic, {}, angles, None))


def identify(
    arm: Arm, log: Log, *, method: str | None = None, folder: str | Path | None = None, force: bool = False
) -> Intervals:
    """Intervals of what the hand holds, from a log.

    Args:
        log: of :func:`read_log` or :func:`log_from_arrays`.
        method: ``sdp`` or ``lp`` (guaranteed), ``ols``, ``irls``, ``rls``, ``sensitivity`` (to compare with); None: the
            arm's.
        folder: for report, bounds and certificates; None: nothing is written. A folder that does not exist yet.
        force: go on although the checks of the log found errors; nothing is guaranteed then.

    Raises:
        LogError: the checks found errors, or the data contradict what is declared, or say nothing.
    """
    model, errors = arm.model, MeasurementErrors.from_model(arm.model)
    chosen = method or model.settings.identification.method
    findings = check_log(log, model, errors)
    wrong = [finding.text for finding in findings if finding.level == "error"]
    if wrong and not force:
        raise LogError(f"{'; '.join(wrong)} (force=True goes on all the same)")
    proved, out = chosen in PROVED and not wrong, None if folder is None else Path(folder)
    kind = "guaranteed" if proved else "forced" if wrong else "estimate"
    if out is not None:
        out.mkdir(parents=True)
    done, result = identify_log(log, model, errors, chosen, kind, findings, "a log", out)
    if out is not None:
        write_all(out, result, model, log, done, kind, f"safe-sysid verify {out}")
    if result.status != "ok":
        raise LogError(f"{result.status.replace('_', ' ')}: {result.message}")
    lower, middle, upper = (
        np.array([getattr(p, key) for p in result.parameters]) for key in ("lower", "nominal", "upper")
    )
    return Intervals(arm, lower, middle, upper, chosen, result.guaranteed, done.box if proved else None, result, out)


def plan(
    arm: Arm,
    to: ArrayLike,
    *,
    payload: Intervals | str | Path | None = None,
    scene: str | Path = "open",
    start: ArrayLike | None = None,
    tool: bool = False,
    seed: int = 0,
) -> Motion:
    """Certified motion to one or more goals, safe for every payload inside the intervals.

    Args:
        to: (n,) or (W, n) joint angles, rad; with ``tool``, (6,) or (W, 6) poses of the tool frame: x, y, z (m), roll,
            pitch, yaw (rad), in the world.
        payload: intervals of :func:`identify`, or a ``bounds.yaml``; None: the arm's prior.
        start: (n,) rad; None: the scene's.
        tool: whether ``to`` are poses of the tool.

    Raises:
        SafeSysIdError: something cannot be used. A goal that is refused is no error: the motion says why.
    """
    motion, box = _prepare(arm, payload, scene, start)
    goals = np.atleast_2d(np.asarray(to, float))
    if tool:
        goals = goals_of(motion, [tuple(map(float, goal)) for goal in goals], box, _silent, seed)
    motion.waypoints = goals
    go(motion, Planner(arm.model, motion.scene, motion.gains, seed=seed), box, _silent, seed)
    return Motion(arm, motion)


def excite(
    arm: Arm,
    count: int = 4,
    *,
    payload: Intervals | str | Path | None = None,
    scene: str | Path = "open",
    start: ArrayLike | None = None,
    seed: int = 0,
) -> Motion:
    """Certified motion that teaches about the payload; arguments as of :func:`plan`.

    Args:
        payload: what is known already; None: the arm's prior.
        start: (n,) rad; None: the scene's.
    """
    motion, box = _prepare(arm, payload, scene, start)
    _excite(motion, Planner(arm.model, motion.scene, motion.gains, seed=seed), box, count, _silent)
    return Motion(arm, motion)


def certify(
    arm: Arm,
    times: ArrayLike,
    knots: ArrayLike,
    *,
    payload: Intervals | str | Path | None = None,
    scene: str | Path = "open",
) -> Verdict:
    """Whether a trajectory of your own is safe, for every instant, tracking error and payload inside the intervals.

    Args:
        arm: that would move, in a simulation that waits for every command.
        times: (K,) s, from 0.
        knots: (K, 3, n) position, velocity, acceleration there, with a quintic between two; the last at rest.
        payload: what is known; None: the arm's prior.

    Raises:
        PlanError: knots that make no trajectory.
    """
    motion, box = _prepare(arm, payload, scene, None)
    curve = QuinticTrajectory(np.asarray(times, float), np.asarray(knots, float))
    planner = Planner(arm.model, motion.scene, motion.gains).with_tube(box)
    reasons = planner.start_reasons(curve.knots[0, 0], box)
    if reasons:
        return Verdict(False, "\n".join(f"start may not be rested at: {reason}" for reason in reasons))
    asked = Plan(curve, 0.0, curve.duration, box.identity, 0, np.zeros(arm.model.n), planner.tube)
    return _told(planner.certificate(asked, box))


def simulate(arm: Arm, payload: str = "auto", *, plans: int = 4, scene: str | Path = "open", seed: int = 0) -> Run:
    """Identify a payload in simulation: planner, controller, identifier and a MuJoCo arm, without ROS.

    Args:
        arm: that is simulated, its true parameters drawn from what is declared.
        payload: as ``8lb``, ``2kg``, ten numbers or a URDF file; ``auto``: what suits the arm.

    Raises:
        SafeSysIdError: the payload does not fit the arm, or the start is refused.
    """
    from safe_sysid.apps.plan.drive import drive  # needs MuJoCo: pip's extra `sim`

    motion, _ = _prepare(arm, None, scene, None)
    episode, plant = drive(motion, None, payload, plans, PlannerOptions(), seed, _silent)
    told, names = plant.truth(), ("t", "q_measured", "qd_measured", "effort")
    box = episode.announced[-1][1] if episode.announced else arm.model.arm_prior
    last = episode.updates[-1][1] if episode.updates else None
    lower, upper = box.payload_lower, box.payload_upper
    middle = np.clip(0.5 * (lower + upper) if last is None else last.nominal, lower, upper)
    found = Intervals(arm, lower, middle, upper, arm.model.settings.identification.method, True, box)
    truth = np.array(plant.theta_true)[box.layout.payload]
    wrong = (*motion.reasons, *(motion.simulated or {}).get("wrong", ()))
    return Run(arm, log_from_arrays(arm, *(told[name] for name in names)), found, truth, wrong, motion)


def verify(
    *files: str | Path, arm: Arm | None = None, scene: str | Path | None = None, lockstep: bool = True
) -> Verdict:
    """Check certificates and plans again, by code that shares nothing with what made them.

    Args:
        files: or folders of :func:`identify`, of :meth:`Motion.save`, or of the command line.
        arm: that you trust; None: the packaged one of the name that a file gives.
        scene: that you trust; None: the packaged one of the name that a file gives.
        lockstep: plans are for a simulation that waits for every command, as :func:`plan` makes them.

    Raises:
        SafeSysIdError: something could not be checked: a log is missing, or there is nothing to check.
    """
    page = io.StringIO()
    console = Console(file=page, width=120, highlight=False, soft_wrap=True)
    check = Verification(
        console, None if arm is None else arm.model, None if scene is None else str(scene), lockstep, quiet=True
    )
    answer = check.check(files)
    return Verdict(answer is VerifyStatus.PASS, page.getvalue().rstrip(), answer is VerifyStatus.CONDITIONAL)


def _silent(_: str) -> None:
    """Takes the lines that a command would print."""


def _prepare(
    arm: Arm, payload: Intervals | str | Path | None, scene: str | Path, start: ArrayLike | None
) -> tuple[PlannedMotion, ParameterBox]:
    """An empty motion in a scene that fits the arm, and the box that is known."""
    model, around = arm.model, load_scene(str(scene))
    around.check(model)
    if payload is None:
        box = model.arm_prior
    elif isinstance(payload, Intervals):
        if payload.box is None:
            raise SafeSysIdError(f"payload {payload!r}: expected intervals that are guaranteed")
        box = payload.box
    else:
        box = bounds_box(read_bounds(payload), model, str(payload))
    first = around.start_for(model) if start is None else np.asarray(start, float)
    return PlannedMotion(model, around, design_gains(model, lockstep=True), first, None), box


def _told(certificate: PlanCertificate) -> Verdict:
    """The smallest margin of every kind of limit."""
    tube = f" for tube {certificate.tube} of the gains, which a controller begins at rest" if certificate.tube else ""
    lines = [certificate.status + tube, *map(str, certificate.families.values())]
    return Verdict(certificate.ok, "\n  ".join(lines))
