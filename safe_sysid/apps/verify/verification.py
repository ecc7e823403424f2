"""Verification of files and directories: checks certificates again, from the logs on.

Three answers: everything is proved; or everything that was looked at is, *if* something holds that nothing there
proves; or something is not.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import track

from safe_sysid.apps.progress import bar
from safe_sysid.apps.verify.arm_verdict import arm_problem, print_arm_verdict
from safe_sysid.apps.verify.bounds_verdict import print_bounds_verdict
from safe_sysid.apps.verify.plan_verdict import print_verdict
from safe_sysid.apps.verify.published import CertificateChain, published_problem, refuted
from safe_sysid.identification.certificates.arm_check import check_arm_certificate
from safe_sysid.identification.certificates.chain import ChainChecker, ChainVerdict
from safe_sysid.identification.certificates.files.arm import ARM_SCHEMA, ArmCertificate, read_arm_certificate
from safe_sysid.identification.certificates.files.update import (
    BoundsCertificate,
    CertificateError,
    read_certificate,
    read_header,
)
from safe_sysid.identification.certificates.log_view import LogView
from safe_sysid.identification.certificates.row_check import LogBook, NamedLog
from safe_sysid.identification.equations.measurement_errors import MeasurementErrors
from safe_sysid.input_limits import MAX_JSON_BYTES, parse_json, read_regular_text
from safe_sysid.logs.formats.npz import read_log
from safe_sysid.logs.log import Log, LogError
from safe_sysid.planning.plan_files.plan_chain import Proved, box_ground, chain_problem, mixture_problem
from safe_sysid.planning.plan_files.plan_check import PlanChecker, PlanReport
from safe_sysid.planning.plan_files.plan_file import PlanFileError, read_content, read_plan
from safe_sysid.robot.identity import digest, identity
from safe_sysid.robot.loading import load_robot
from safe_sysid.robot.model import RobotModel
from safe_sysid.robot.scenes.scene import load_scene

__all__ = ["Verification", "VerifyStatus"]


class VerifyStatus(IntEnum):
    """What was found; the value is the exit status."""

    PASS = 0
    FAIL = 1
    CONDITIONAL = 3


def worst(answers: Sequence[VerifyStatus]) -> VerifyStatus:
    """What a whole is, of its parts: refuted, else conditional, else proved."""
    return next((a for a in (VerifyStatus.FAIL, VerifyStatus.CONDITIONAL) if a in answers), VerifyStatus.PASS)


@dataclass
class Verification:
    """Checks files with what is trusted; a robot and its gains are made once."""

    console: Console
    #: name or file of the trusted description, or the robot; None: the packaged one that a file names
    robot: str | RobotModel | None = None
    #: name or file of the trusted scene, or ``stated``; None: the packaged one that a file names
    scene: str | None = None
    lockstep: bool = False  #: plans are for a plant that waits for every command
    settings: Mapping[str, Any] = field(default_factory=dict)  #: of the robot instead of its file's, by key
    logs: Sequence[str] = ()  #: of runs, besides what lies beside the certificates
    tare_logs: Sequence[str] = ()  #: likewise, of the empty hand
    quiet: bool = False
    #: what was proved of the hand's content in the last call of :meth:`check`, by box and directory
    bounds: dict[str, Proved] = field(default_factory=dict)
    _plans: PlanChecker | None = field(default=None, repr=False)
    _verdicts: dict[tuple[Any, ...], list[ChainVerdict]] = field(default_factory=dict, repr=False)

    def check(self, names: Sequence[str | Path]) -> VerifyStatus:
        """Check files and directories, in this order; the worst answer counts.

        Raises SafeSysIdError: something could not be checked: a log is missing, another robot, ...

        Args:
            names: certificates, plans, or directories with any of them. Bounds of a directory may be used by plans of
                those after it.
        """
        answers: list[VerifyStatus] = []
        elsewhere: dict[str, Proved] = {}
        for name in (Path(name) for name in names):
            proved: dict[str, Proved] = {}
            if name.is_dir() and (reason := refuted(name)) is not None:
                self._say(f"FAIL: {name / reason}")
                answers.append(VerifyStatus.FAIL)
                continue
            for schema, paths in _collect(name):
                if schema == ARM_SCHEMA:
                    answers += [self._check_arm(path) for path in paths]
                elif schema == _BOUNDS:
                    answers.append(self._check_bounds(paths, name, proved))
                else:
                    answers.append(self._check_plans(paths, name, proved, elsewhere))
            if name.is_dir() and (stray := _stray(name)) is not None:
                self._say(f"FAIL: {stray}")
                answers.append(VerifyStatus.FAIL)
            elsewhere |= {f"{box} of {name}": bounds for box, bounds in proved.items()}
        self.bounds = elsewhere
        return worst(answers)

    def _say(self, text: str) -> None:
        self.console.print(text, markup=False)

    def _check_arm(self, path: Path) -> VerifyStatus:
        """Check the intervals of an arm's own parameters."""
        try:
            certificate = read_arm_certificate(path)
        except CertificateError as error:
            self._say(f"FAIL: {error}")
            return VerifyStatus.FAIL
        model = self._robot_of(certificate)
        book = LogBook([named_log for named_log, _ in self._logs_beside([path])[0]])
        with bar("rebuilding rows", self.quiet) as progress:
            verdict = check_arm_certificate(certificate, model, book, progress)
        wrong = arm_problem(certificate, model) if verdict.reason is None else None
        print_arm_verdict(self.console, model, certificate, verdict, wrong)
        return VerifyStatus.PASS if verdict.reason is None and wrong is None else VerifyStatus.FAIL

    # -- bounds -------------------------------------------------------------------------------------------------

    def _check_bounds(self, paths: Sequence[Path], named: Path, proved: dict[str, Proved]) -> VerifyStatus:
        """Check a chain; ``proved`` gets the bounds of every certificate that is proved, by the identity of its box."""
        certificates, broken = [], None
        for path in paths:
            try:
                certificates.append(read_certificate(path))
            except CertificateError as error:
                broken = broken or str(error)
        certificates.sort(key=lambda c: (c.header["epoch"], c.header["seq"]))
        if broken is not None:
            self._say(f"FAIL: {broken}")
            return VerifyStatus.FAIL
        model = self._robot_of(certificates[0])
        runs, tares = self._logs_beside(paths)
        book, tare_book = LogBook([named_log for named_log, _ in runs]), LogBook([t for t, _ in tares])
        # The same bytes, for the same robot, are proved once.
        given = (id(model), *(c.sha256 for c in certificates), "logs", *(log.sha256 for log, _ in runs))
        given = (*given, "tare", *(log.sha256 for log, _ in tares))
        verdicts = self._verdicts.get(given, [])
        if not verdicts:
            verdicts = self._verdicts[given] = self._walk(model, certificates, book, tare_book)
        wrong, open_end = None, None
        if verdicts[-1].passed:
            last = certificates[-1]
            found = book.find(last.header["log"]["sha256"], last.header["log"]["samples"], str(last.path))
            log = next(log for named_log, log in runs if named_log is found)
            left = _uncovered(model, certificates, book)
            if named.is_dir():
                wrong = left or _other_epochs(certificates, named)
                wrong = wrong or published_problem(named, _chain(model, certificates, log))
            else:
                open_end = left
        if verdicts[-1].passed and wrong is None:
            of = digest(identity(model, "bounds"))
            proved |= {v.identity: Proved(v.proved_lower, v.proved_upper, of) for v in verdicts}
        print_bounds_verdict(self.console, model, certificates, verdicts, wrong, open_end)
        if wrong is not None or not all(verdict.passed for verdict in verdicts):
            return VerifyStatus.FAIL
        return VerifyStatus.PASS if open_end is None else VerifyStatus.CONDITIONAL

    def _walk(
        self, model: RobotModel, certificates: Sequence[BoundsCertificate], book: LogBook, tares: LogBook
    ) -> list[ChainVerdict]:
        verdicts: list[ChainVerdict] = []
        with bar("rebuilding rows", self.quiet) as progress:
            count = len(certificates)
            checker = ChainChecker(model, book, lambda share: progress((len(verdicts) + 0.99 * share) / count), tares)
            for verdict in checker.check(certificates):
                verdicts.append(verdict)
                progress(len(verdicts) / count)
        return verdicts

    def _robot_of(self, certificate: BoundsCertificate | ArmCertificate) -> RobotModel:
        """The trusted description. A certificate may only name a packaged one, never a file."""
        if self.robot is None:
            name = str(certificate.header["robot"].get("name"))
            if not name.isidentifier():
                raise CertificateError(
                    f"{certificate.path}: robot.name = {name!r}: say with --robot which file describes it"
                )
            return load_robot(name, **self.settings)
        return self._trusted(self.robot)

    def _trusted(self, robot: str | RobotModel) -> RobotModel:
        return robot if isinstance(robot, RobotModel) else load_robot(robot, **self.settings)

    def _logs_beside(self, paths: Sequence[Path]) -> tuple[list[tuple[NamedLog, Log]], list[tuple[NamedLog, Log]]]:
        """Logs of runs and of tares: named, or beside the certificates, where other files may lie as well.

        Which log is of the empty hand is the user's word, or the name ``tare_log.npz``; never a certificate's.
        """
        logs: list[tuple[NamedLog, Log]] = []
        tares: list[tuple[NamedLog, Log]] = []
        for names, book in ((self.logs, logs), (self.tare_logs, tares)):
            for name in names:
                log = read_log(name)
                book.append((NamedLog(str(name), log.joint_names, log.measurements), log))
        arrays = {path.with_suffix(".npz") for path in paths}
        for folder in dict.fromkeys(path.parent for path in paths):
            for candidate in sorted(folder.glob("*.npz")):
                if candidate in arrays or candidate.with_suffix(".json").is_file():
                    continue
                try:
                    log = read_log(candidate)
                except LogError:
                    continue
                book = tares if candidate.name == "tare_log.npz" else logs
                book.append((NamedLog(str(candidate), log.joint_names, log.measurements), log))
        return logs, tares

    # -- plans --------------------------------------------------------------------------------------------------

    def _checker(self, paths: Sequence[Path]) -> PlanChecker:
        if self._plans is None:
            robot = self.robot
            if robot is None and self.settings:
                robot = _named_robot(paths[0])
            stated = self.scene == "stated"
            scene = None if self.scene is None or stated else load_scene(self.scene)
            model = None if robot is None else self._trusted(robot)
            self._plans = PlanChecker(model, scene, stated, self.lockstep)
        return self._plans

    def _check_plans(
        self, paths: Sequence[Path], named: Path, proved: Mapping[str, Proved], elsewhere: Mapping[str, Proved]
    ) -> VerifyStatus:
        checker, stderr = self._checker(paths), Console(stderr=True)
        reports: list[PlanReport] = []
        for path in track(paths, "certifying plans", console=stderr, transient=True, disable=self.quiet):
            reports.append(checker.check(path))
            if not reports[-1].passed:
                break
        wrong: str | None = None
        assumed: list[str] = []
        conditions: list[str] = []
        if all(report.passed for report in reports):
            broken, beginning = chain_problem(reports, not named.is_dir())
            wrong, assumed = mixture_problem(reports) or broken, [*beginning]
            for report in reports:
                ground = box_ground(report, checker.robot_of(report), proved, elsewhere)
                if ground.wrong:
                    wrong = wrong or f"{report.path.name}: {ground.text}"
                (assumed if ground.proved else conditions).append(ground.text)
            if reports[0].named_scene and reports[0].scene is not None:
                scene = reports[0].scene.name
                conditions.append(
                    f"what stands around the arm is scene {scene}, which the plans name themselves (say --scene "
                    f"{scene} if it is, or --scene FILE)"
                )
        print_verdict(self.console, reports, wrong, assumed, tuple(dict.fromkeys(conditions)))
        if wrong is not None or not all(report.passed for report in reports):
            return VerifyStatus.FAIL
        return VerifyStatus.CONDITIONAL if conditions else VerifyStatus.PASS


_BOUNDS, _PLAN = "safe_sysid/identification-certificate/1", "safe_sysid/plan/2"
#: What files of a schema are called: one that cannot be read says so by its name, and reading it will say why.
_NAMED = {_BOUNDS: "certificate_", ARM_SCHEMA: "arm_certificate", _PLAN: "plan_"}


def _collect(path: Path) -> list[tuple[str, list[Path]]]:
    """What was named by schema, bounds first: all files that belong together, in any order.

    Raises CertificateError: nothing there that can be checked.
    """
    expected = f"expected a certificate or a directory with some ({', '.join(_NAMED)})"
    if path.is_dir():
        found: dict[str, list[Path]] = {schema: [] for schema in _NAMED}
        for candidate in sorted(path.glob("*.json")):
            schema = _schema(candidate)
            if schema not in _NAMED:
                schema = next((s for s, name in _NAMED.items() if candidate.name.startswith(name)), None)
            if schema is not None:
                found[schema].append(candidate)
        if not any(found.values()):
            raise CertificateError(f"{path}: no certificate in it{_told_by_motion(path)}: {expected}")
        return [(schema, paths) for schema, paths in found.items() if paths]
    if not path.is_file():
        raise CertificateError(f"{path}: no such file: {expected}")
    schema = _schema(path)
    if schema is not None and schema.startswith("safe_sysid/plan/"):  # reading it says what is wrong with another one
        return [(_PLAN, [path])]
    header, _ = read_header(path)
    if schema not in _NAMED:
        raise CertificateError(f"{path}: schema = {schema!r}: {expected}")
    if schema == ARM_SCHEMA:
        return [(ARM_SCHEMA, [path])]
    return [(_BOUNDS, [*_before(path, header), path])]


def _told_by_motion(folder: Path) -> str:
    """Why `plan` left no plan in a directory, if its ``motion.json`` is there and says so."""
    try:
        content = parse_json(read_regular_text(folder / "motion.json", MAX_JSON_BYTES))
        if content["steps"] == [] and content["reached"] is True:
            return ": its motion.json says that there was nothing to drive"
        if content["steps"] == [] and content["reasons"]:
            return f": its motion.json says that the motion was refused ({'; '.join(content['reasons'])})"
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        pass
    return ""


def _schema(path: Path) -> str | None:
    """What a file says that it is; None if it says nothing."""
    try:
        schema = read_content(path).get("schema")
    except PlanFileError:
        return None
    return schema if isinstance(schema, str) else None


def _stray(folder: Path) -> str | None:
    """Arrays that lie there without their certificate."""
    for arrays in sorted([*folder.glob("certificate_*.npz"), *folder.glob("arm_certificate*.npz")]):
        if not arrays.with_suffix(".json").is_file():
            return f"{arrays.with_suffix('.json')}: missing, its arrays are there"
    return None


def _chain(model: RobotModel, certificates: Sequence[BoundsCertificate], log: Log) -> CertificateChain:
    tare = certificates[-1].header["tare_log"]
    return CertificateChain(model, certificates, log, None if tare is None else int(tare["samples"]))


def _other_epochs(certificates: Sequence[BoundsCertificate], folder: Path) -> str | None:
    """Certificates of several payloads beside bounds of one."""
    epochs = sorted({c.header["epoch"] for c in certificates})
    if len(epochs) > 1 and (folder / "bounds.yaml").is_file():
        return f"bounds.yaml: certificates of epochs {', '.join(map(str, epochs))} are with it: expected those of one"
    return None


def _uncovered(model: RobotModel, certificates: Sequence[BoundsCertificate], book: LogBook) -> str | None:
    """Samples of an epoch's log that came after its last certificate: they may contradict what it says.

    So few that they make no equation of ``identification.window_s`` are not held against it.
    """
    last = {c.header["epoch"]: c for c in certificates}
    for certificate in last.values():
        named = certificate.header["log"]
        log = book.find(named["sha256"], named["samples"], str(certificate.path))
        covered, count = int(named["samples"]), len(log.measurements)
        if covered == count:
            continue
        rate = model.settings.measurement.rate_hz
        view = LogView(log.measurements, MeasurementErrors.from_model(model), model.continuous, rate)
        if view.longest_run(max(covered - 1, 0)) >= model.settings.identification.window_s:
            return (
                f"{Path(log.name).name}: {count} samples, of which {certificate.path.name} covers the first {covered}: "
                f"the other {count - covered} are covered by no certificate, and may contradict it"
            )
    return None


def _before(path: Path, header: Mapping[str, Any]) -> list[Path]:
    """Certificates that precede this one, by the hashes that they name; as far back as they are there."""
    by_hash = {}
    for candidate in path.parent.glob("*.json"):
        try:
            content, digest = read_header(candidate)
        except CertificateError:
            continue
        by_hash[digest] = (candidate, content)
    chain: list[Path] = []
    while header.get("previous_sha256") in by_hash:
        before, header = by_hash.pop(str(header["previous_sha256"]))
        chain.insert(0, before)
    return chain


def _named_robot(path: Path) -> str:
    """The packaged robot that a plan names."""
    name = read_plan(path).robot_name
    if not name.isidentifier():
        raise PlanFileError(f"{path}: robot.name = {name!r}: say with --robot which file describes it")
    return name
