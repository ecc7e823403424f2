"""Check of a plan file: certifies its motion again with this machine's robot, scene and controller.

The file's own word is taken for nothing but the motion, the box of parameters and the separating directions (any
direction gives a valid bound, so a bad one can only lose). Gains are synthesised anew, the scene is the trusted one,
and margins are recomputed; what the file claims must not be better.
"""

from __future__ import annotations

import math
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from safe_sysid.control.bound_status import added_text
from safe_sysid.control.laws import make_law
from safe_sysid.control.laws.law import Proves
from safe_sysid.control.tube import MeasuredTube, TrackingTube, tracking_tube, tubes_of
from safe_sysid.decimals import at_most
from safe_sysid.errors import ConfigError, ParameterError, PlanError, SafeSysIdError
from safe_sysid.planning.certification.certificate import FAMILIES, PlanCertificate, verify_plan
from safe_sysid.planning.optimiser.family import TrajectoryFamily
from safe_sysid.planning.plan_files.plan_file import PlanFile, PlanFileError, read_plan
from safe_sysid.planning.plan_files.plan_statement import (
    LOCKSTEP,
    REAL_TIME,
    SAME,
    gains_statement,
    robot_statement,
    scene_statement,
    stated_scene,
)
from safe_sysid.robot.config import per_joint
from safe_sysid.robot.identity import disagreements
from safe_sysid.robot.loading import load_robot
from safe_sysid.robot.margin import Margin
from safe_sysid.robot.model import RobotModel
from safe_sysid.robot.parameters import zero_box_problem
from safe_sysid.robot.scenes.scene import Scene, load_scene
from safe_sysid.robot.shapes.pairs import unchecked

__all__ = ["PlanChecker", "PlanReport"]


@dataclass(frozen=True, eq=False)
class PlanReport:
    """What became of one plan file."""

    path: Path
    reason: str | None  #: why it is not proved: the first thing that is not; None if everything is
    file: PlanFile | None = None  #: what it says; None if it cannot even be read
    certificate: PlanCertificate | None = None  #: recomputed; None if it did not come to that
    gains: TrackingTube | None = None  #: that were synthesised; None if it did not come to that
    scene: Scene | None = None  #: that it was checked in; None if it did not come to that
    assumed: tuple[str, ...] = ()
    seconds: float = 0.0
    #: the scene is the packaged one that the file names: nobody else has said that it is the right one
    named_scene: bool = False

    @property
    def passed(self) -> bool:
        """Whether everything that the file claims is proved."""
        return self.reason is None


class PlanChecker:
    """Checks many files with one robot and scene; gains are synthesised once."""

    def __init__(
        self, robot: RobotModel | None = None, scene: Scene | None = None, stated: bool = False, lockstep: bool = False
    ) -> None:
        """Say what is trusted.

        Args:
            robot: None: the packaged one of the name that a file gives.
            scene: None: likewise.
            stated: believe the obstacles that each file states.
            lockstep: plans are for a plant that waits for every command, not for the declared timing.
        """
        self._robot, self._scene, self._stated, self._lockstep = robot, scene, stated, lockstep
        self._gains: dict[int, TrackingTube] = {}
        self._robots: dict[str, RobotModel] = {}
        self._scenes: dict[str, Scene] = {}

    def check(self, path: str | Path) -> PlanReport:
        """Certify one file again.

        Raises:
            PlanFileError: no trusted robot or scene of that name, or the file is of another robot than the one named.
        """
        began, path = time.perf_counter(), Path(path)
        try:
            file = read_plan(path)
        except PlanFileError as error:
            return PlanReport(path, str(error).removeprefix(f"{path}: "))
        model, scene = self._trusted_robot(file), self._trusted_scene(file)
        reason, gains, certificate = self._judge(file, model, scene)
        return PlanReport(
            path,
            reason,
            file,
            certificate,
            gains,
            scene,
            (*_begun(file, model, gains), *_assumed(model, scene, self._stated, self._lockstep, gains)),
            time.perf_counter() - began,
            self._scene is None and not self._stated,
        )

    def _trusted_robot(self, file: PlanFile) -> RobotModel:
        name = file.robot_name
        if self._robot is None and not name.isidentifier():
            raise PlanFileError(f"{file.path}: robot.name = {name!r}: say with --robot which file describes it")
        if self._robot is None and name not in self._robots:
            try:
                self._robots[name] = load_robot(name)
            except ConfigError:
                raise PlanFileError(
                    f"{file.path}: of robot {name!r}, which is no packaged one: say with --robot which file "
                    "describes it"
                ) from None
        model = self._robots[name] if self._robot is None else self._robot
        different = disagreements(file.robot, robot_statement(model), SAME)
        if different:
            raise PlanFileError(
                f"{file.path}: of another robot, or with other settings, than the one it is checked with "
                f"({model.name}): {different[0]}" + (f"; and {len(different) - 1} more" if different[1:] else "")
            )
        return model

    def robot_of(self, report: PlanReport) -> RobotModel:
        """The robot that a file was checked with.

        Raises:
            PlanFileError: it could not.
        """
        if self._robot is not None:
            return self._robot
        if report.file is None:
            raise PlanFileError(f"{report.path}: not read: expected a file that was checked")
        return self._robots[report.file.robot_name]

    def _trusted_scene(self, file: PlanFile) -> Scene:
        name = file.scene_name
        if self._stated:
            try:
                return stated_scene(file.scene)
            except SafeSysIdError as error:
                raise PlanFileError(f"{file.path}: scene: {error}") from None
        if self._scene is not None:
            return self._scene
        if not name.isidentifier():
            raise PlanFileError(f"{file.path}: scene.name = {name!r}: say with --scene which file describes it")
        if name not in self._scenes:
            try:
                self._scenes[name] = load_scene(name)
            except ConfigError:
                raise PlanFileError(
                    f"{file.path}: in scene {name!r}, which is no packaged one: say with --scene which file "
                    "describes it; or `--scene stated`, to believe the plan's own obstacles"
                ) from None
        return self._scenes[name]

    def _judge(
        self, file: PlanFile, model: RobotModel, scene: Scene
    ) -> tuple[str | None, TrackingTube | None, PlanCertificate | None]:
        """The first thing that is not proved; gains and certificate as far as it came."""
        scene.check(model)
        different = disagreements(file.scene, scene_statement(scene), SAME)
        if different:
            return f"scene: another one than {scene.name}: {different[0]}", None, None
        if file.plan.trajectory.n != model.n:
            return f"plan: {file.plan.trajectory.n} joints: expected {model.n}", None, None
        wrong = zero_box_problem(file.box, model.arm_prior) or _unlike_planner(file, model)
        if wrong is not None:
            return wrong, None, None
        gains, other = self._gains_for(file, model)
        if gains is None:
            return other, None, None
        if file.clearance_margin < model.settings.planner.clearance_margin:
            required = model.settings.planner.clearance_margin
            return (f"certificate.clearance_margin = {file.clearance_margin} m: expected {required} m", gains, None)
        try:
            certificate = _certify(file, model, scene, gains)
        except PlanError as error:
            return str(error), gains, None
        if not certificate.ok:
            return certificate.status, gains, certificate
        return _overclaimed(file, certificate), gains, certificate

    def _gains_for(self, file: PlanFile, model: RobotModel) -> tuple[TrackingTube | None, str]:
        """Our own gains for the timing that the user named, or why the file's are not those.

        What a file says never picks the timing: gains of lock-step have a narrower tube than an arm with delays keeps.
        """
        expected = LOCKSTEP if self._lockstep else REAL_TIME
        if file.timing == LOCKSTEP and expected == REAL_TIME:
            return None, (
                f"gains.timing = {LOCKSTEP!r}: expected {REAL_TIME!r}, as {model.name} declares its timing: certified "
                "only for a plant that waits for every command; to check it for such a simulation, say so (verify: "
                "--lockstep)"
            )
        other = f"gains: other than those that {model.name}'s settings give ({expected}): "
        try:
            if id(model) not in self._gains:
                self._gains[id(model)] = tracking_tube(model, self._lockstep)
        except ParameterError as error:
            return None, f"{other}{error}"
        gains = self._gains[id(model)]
        lines = disagreements(file.gains, gains_statement(gains, model), SAME)
        return (gains, "") if not lines else (None, other + lines[0])


def _unlike_planner(file: PlanFile, model: RobotModel) -> str | None:
    """What in a plan is not as a planner with the robot's settings makes it."""
    settings, plan = model.settings.planner, file.plan
    if abs(plan.t_plan - settings.t_p) > SAME:
        return (
            f"plan.t_plan = {plan.t_plan} s: expected {settings.t_p} s, the robot's planner.t_p; for plans of a "
            f"planner with its own, load the robot with planner.t_p = {plan.t_plan} (verify: --set)"
        )
    trajectory = plan.trajectory
    if len(trajectory.times) == 2:
        k_range = np.broadcast_to(np.asarray(settings.k_range, float), (model.n,))
        family = TrajectoryFamily(trajectory.knots[0], k_range, trajectory.duration)
        gap = np.abs(family.goal(plan.k) - trajectory.knots[-1, 0])
        if not np.all(gap <= SAME):
            return (
                f"plan.k = {plan.k.tolist()}: expected the parameter that ends at the last knot with the robot's "
                f"planner.k_range = {settings.k_range}; for plans of a planner with its own, load the robot with that "
                "(verify: --set)"
            )
    return None


def _certify(file: PlanFile, model: RobotModel, scene: Scene, gains: TrackingTube) -> PlanCertificate:
    """On the file's own cells and with its directions, if it has any; else on as many equal cells as it says."""
    return verify_plan(
        file.plan,
        model,
        file.box,
        scene,
        gains,
        intervals=file.intervals,
        clearance_margin=file.clearance_margin,
        grid=file.grid,
        directions=file.directions,
    )


def _overclaimed(file: PlanFile, certificate: PlanCertificate) -> str | None:
    """What the file claims that is better than, or other than, what was recomputed."""
    for name in FAMILIES:
        stated, found = file.claims[name], certificate.families[name]
        if not stated.value <= found.value:
            return (
                f"certificate.families.{name}.smallest = {stated.value!r} {stated.unit} claimed, recomputed is "
                f"{found.value!r} {found.unit} ({found.culprit}, {found.time:.3f} s)"
            )
        if math.isfinite(found.value):
            wrong = _misplaced(stated, found, certificate)
            if wrong is not None:
                return f"certificate.families.{name}: {wrong}"
    return None


def _misplaced(stated: Margin, found: Margin, certificate: PlanCertificate) -> str | None:
    """Whether the smallest margin is elsewhere than the file says (where several are equal, any may be named)."""
    labels, grid = certificate.labels[stated.family], certificate.grid
    columns = [i for i, label in enumerate(labels) if label == (stated.a, stated.b)]
    if not columns:
        return f"culprit = {stated.culprit[:60]!r}: expected one of its constraints"
    cell = int(np.argmin(np.abs(grid[:-1] - stated.time)))
    there = float(certificate.margins[stated.family][cell, columns].min())
    if abs(grid[cell] - stated.time) > SAME or not there - found.value <= 1e-6 * (1.0 + abs(found.value)):
        return (
            f"smallest said to be of {stated.culprit} at {stated.time:.3f} s, recomputed is {found.culprit} at "
            f"{found.time:.3f} s"
        )
    return None


def _begun(file: PlanFile, model: RobotModel, gains: TrackingTube | None) -> tuple[str, ...]:
    """What has to hold where a plan of a narrower tube begins."""
    tubes = () if gains is None else tubes_of(model, gains)
    if not 0 < file.plan.tube < len(tubes):
        return ()
    tube = tubes[file.plan.tube]
    most = at_most(float(np.max(tube.e_bound)), 3, scale=1000)
    return (
        f"the controller begins plans of tube {file.plan.tube} only where it has seen V and S small enough for it: "
        f"tracking errors below {most} mrad, S at most {at_most(tube.assumptions.uncertainty, 3)}",
    )


def _assumed(
    model: RobotModel, scene: Scene, stated: bool, lockstep: bool, gains: TrackingTube | None
) -> tuple[str, ...]:
    """What a PASS rests on besides arithmetic; what has to hold of first states and boxes, plan_chain tells."""
    around = f"scene {scene.name}" + (", as the file itself states it" if stated else "")
    timing = model.settings.timing
    added = per_joint(model.settings.controller.feed_forward.bound, model.n)
    law = model.settings.controller.law
    if isinstance(gains, MeasuredTube):
        return (
            f"the arm's own controller stays within the tube that controller.tube declares ({gains.origin}): measured, "
            "not proved; a controller that watches it stops at its inner tube",
            *model.model_assumptions,
            f"nothing stands around the arm but {around}; what the hand holds stays within its envelope",
            *unchecked(model, scene),
        )
    proved = gains is None or make_law(law, model, gains).proves is Proves.TRACKING
    punctual = (
        "the plant waits for every command (lock-step): nothing is said about an arm with delays"
        if lockstep
        else f"a torque in force rests on a measurement at most {1e3 * timing.hold_max_s:g} ms old, and acts at most "
        f"{1e3 * timing.delay_max_s:g} ms after it (real time)"
    )
    return (
        punctual,
        f"the controller of {model.name} tracks these plans under the standing assumptions of "
        "docs/understand/guarantees.md (rigid joints, declared sensors and actuators)"
        + ("" if proved else f", and within the gains' tracking bound though its law, {law}, does not prove that"),
        *([f"a feed-forward adds at most {added_text(model, added)} to the law's torque"] if added.any() else []),
        *model.model_assumptions,
        f"nothing stands around the arm but {around}; what the hand holds stays within its envelope",
        *unchecked(model, scene),
    )
