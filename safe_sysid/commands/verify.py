"""``safe-sysid verify``: certificates re-checked from the logs on."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from safe_sysid.commands.arguments import key_value

if TYPE_CHECKING:
    from rich.console import Console

    from safe_sysid.identification.certificates.chain import Verdict
    from safe_sysid.identification.certificates.file import Certificate
    from safe_sysid.identification.certificates.row_check import LogBook
    from safe_sysid.robot.model import RobotModel

__all__ = ["DESCRIPTION", "FORMATTER", "HELP", "configure", "run"]

HELP = "re-check published bounds and plans from their certificates"
FORMATTER = argparse.RawDescriptionHelpFormatter
DESCRIPTION = """Believes nothing that a file claims, and prints PASS, or the first thing that is not proved.

Certificates of bounds (of `identify`, or of a run): rebuilds every equation of the chain from the logs, in interval
arithmetic and without Pinocchio or a solver, evaluates what their multipliers prove, and walks from the prior to the
last bounds.

Plans (plan_NNNNN.json, of `plan`, or of a run): synthesises the controller's gains anew, encloses positions,
velocities, torques and distances along the motion again, for every instant, tracking error and parameter of the box,
and compares all margins with what is claimed. In a directory: also that all are of one robot, scene and timing, that
each begins where an earlier one leaves the arm, and that their boxes hold the bounds that the certificates beside them
prove; bounds that plans were made with by `--bounds` are proved by the directory of `identify` if it is named first.

Exit status: 0 everything is proved, 1 something is not, 2 it could not be checked (a log is missing, another robot or
scene than the packaged ones, wrong arguments).

examples:
  safe-sysid verify runs/20260504-identify-run
  safe-sysid verify runs/20260504-plan-six_boxes/plan_00002.json --lockstep
  safe-sysid verify runs/20260504-plan-cell --scene cell.yaml --robot my_arm.yaml
  safe-sysid verify runs/20260504-identify-run runs/20260504-plan-six_boxes --lockstep
"""


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the options."""
    parser.add_argument(
        "files",
        nargs="+",
        metavar="FILE",
        help="a certificate (.json; those before it are looked for beside it), a plan, or a directory with any of them",
    )
    parser.add_argument(
        "--log",
        action="append",
        default=[],
        metavar="LOG.npz",
        help="log of the run; may be given again (default: whatever .npz beside the certificates has the right digest)",
    )
    parser.add_argument(
        "--tare-log",
        action="append",
        default=[],
        metavar="LOG.npz",
        help="log of the tare, in which you know the hand to be empty (default: tare_log.npz beside the certificates)",
    )
    parser.add_argument(
        "--robot",
        metavar="NAME|FILE",
        help="trusted description (default: the packaged one of the same name)",
    )
    parser.add_argument(
        "--scene",
        metavar="NAME|FILE",
        help="trusted scene of the plans (default: the packaged one of the same name); `stated` to believe the "
        "obstacles that the plan itself states",
    )
    parser.add_argument(
        "--lockstep",
        action="store_true",
        help="the plans are for a simulation that waits for every command (of `plan`, or of a demo in lock-step), not "
        "for an arm with the timing that the robot's file declares",
    )
    parser.add_argument(
        "--set",
        action="append",
        default=[],
        metavar="KEY=VALUE",
        help="setting of the robot that was in force instead of its file's, as measurement.torque_abs=0.2; may be "
        "given again",
    )


def run(options: argparse.Namespace) -> int:
    """Check all files; the worst result counts."""
    from rich.console import Console

    console = Console(width=None if sys.stdout.isatty() else 140, highlight=False, soft_wrap=True)
    good = True
    elsewhere: dict[str, Any] = {}
    for name in options.files:
        proved: dict[str, Any] = {}
        for schema, paths in _collect(Path(name)):
            if schema == _BOUNDS:
                good &= _check_identification(paths, options, console, proved)
                if good and Path(name).is_dir():
                    good &= _no_strays(Path(name), console)
            else:
                alone = not Path(name).is_dir()
                good &= _check_plans(paths, options, console, proved, elsewhere, alone)
        elsewhere |= {f"{identity} of {name}": bounds for identity, bounds in proved.items()}
    return 0 if good else 1


_BOUNDS, _PLAN = "safe_sysid/identification-certificate/1", "safe_sysid/plan/1"
#: What files of a schema are called: one that cannot be read says so by its name, and reading it will say why.
_NAMED = {_BOUNDS: "certificate_", _PLAN: "plan_"}


def _collect(path: Path) -> list[tuple[str, list[Path]]]:
    """What was named by schema, bounds first: all files that belong together, in any order.

    Raises:
        CertificateError: nothing there that can be checked.
    """
    from safe_sysid.identification.certificates.file import CertificateError, read_header

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
    if schema == _PLAN:
        return [(_PLAN, [path])]
    header, _ = read_header(path)
    if schema not in _NAMED:
        raise CertificateError(f"{path}: schema = {schema!r}: {expected}")
    return [(_BOUNDS, [*_before(path, header), path])]


def _told_by_motion(folder: Path) -> str:
    """Why `plan` left no plan in a directory, if its ``motion.json`` is there and says so."""
    from safe_sysid.input_limits import MAX_JSON_BYTES, read_regular_text

    try:
        content = json.loads(read_regular_text(folder / "motion.json", MAX_JSON_BYTES))
        if content["steps"] == [] and content["reached"] is True:
            return ": its motion.json says that there was nothing to drive"
        if content["steps"] == [] and content["reasons"]:
            return f": its motion.json says that the motion was refused ({'; '.join(content['reasons'])})"
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        pass
    return ""


def _schema(path: Path) -> str | None:
    """What a file says that it is; None if it says nothing."""
    from safe_sysid.planning.plan_file import PlanFileError, read_content

    try:
        schema = read_content(path).get("schema")
    except PlanFileError:
        return None
    return schema if isinstance(schema, str) else None


def _check_plans(
    paths: Sequence[Path],
    options: argparse.Namespace,
    console: Console,
    proved: Mapping[str, Any],
    elsewhere: Mapping[str, Any],
    alone: bool,
) -> bool:
    from rich.console import Console as AnyConsole
    from rich.progress import track

    from safe_sysid.planning.plan_chain import box_problem, chain_problem, mixture_problem
    from safe_sysid.planning.plan_check import PlanChecker
    from safe_sysid.report.plan_verdict import print_verdict
    from safe_sysid.robot.loading import load_robot
    from safe_sysid.robot.scene import load_scene

    stated = options.scene == "stated"
    overrides = _overrides(options)
    if overrides and options.robot is None:
        options.robot = _named_robot(paths[0])
    robot = None if options.robot is None else load_robot(options.robot, **overrides)
    scene = None if options.scene is None or stated else load_scene(options.scene)
    checker = PlanChecker(robot, scene, stated, options.lockstep)
    reports = []
    for path in track(paths, "certifying plans", console=AnyConsole(stderr=True), transient=True):
        reports.append(checker.check(path))
        if not reports[-1].passed:
            break
    wrong: str | None = None
    assumed: list[str] = []
    if all(report.passed for report in reports):
        broken, beginning = chain_problem(reports, alone)
        wrong, assumed = mixture_problem(reports) or broken, [*beginning]
        for report in reports:
            problem, assumption = box_problem(report, checker.robot_of(report), proved, elsewhere)
            wrong = wrong or (None if problem is None else f"{report.path.name}: {problem}")
            assumed += [] if assumption is None else [assumption]
    print_verdict(console, reports, wrong, assumed)
    return wrong is None and all(report.passed for report in reports)


def _no_strays(folder: Path, console: Console) -> bool:
    """Whether no arrays lie there whose certificate is gone."""
    for arrays in sorted(folder.glob("certificate_*.npz")):
        if not arrays.with_suffix(".json").is_file():
            console.print(f"FAIL: {arrays.with_suffix('.json')}: missing, its arrays are there", markup=False)
            return False
    return True


def _before(path: Path, header: Mapping[str, Any]) -> list[Path]:
    """Certificates that precede this one, by the hashes that they name; as far back as they are there."""
    from safe_sysid.identification.certificates.file import CertificateError, read_header

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


def _check_identification(
    paths: Sequence[Path], options: argparse.Namespace, console: Console, proved: dict[str, Any]
) -> bool:
    """Check a chain; ``proved`` gets the bounds of every certificate that is proved, by the identity of its box."""
    from rich.console import Console as AnyConsole
    from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

    from safe_sysid.identification.certificates.chain import ChainChecker
    from safe_sysid.identification.certificates.file import CertificateError, read_certificate
    from safe_sysid.report.bounds_verdict import print_bounds_verdict

    certificates, broken = [], None
    for path in paths:
        try:
            certificates.append(read_certificate(path))
        except CertificateError as error:
            broken = broken or str(error)
    certificates.sort(key=lambda c: (c.header["epoch"], c.header["seq"]))
    if broken is not None:
        console.print(f"FAIL: {broken}", markup=False)
        return False
    model = _robot(options, certificates[0])
    book, tares = _logs(options, paths)
    verdicts: list[Verdict] = []
    columns = (TextColumn("{task.description}"), BarColumn(), TimeRemainingColumn())
    with Progress(*columns, console=AnyConsole(stderr=True), transient=True) as bar:
        task = bar.add_task("rebuilding rows", total=len(certificates))
        checker = ChainChecker(
            model, book, lambda share: bar.update(task, completed=len(verdicts) + 0.99 * share), tares
        )
        for verdict in checker.check(certificates):
            verdicts.append(verdict)
            bar.update(task, completed=len(verdicts))
            if verdict.passed:
                proved[verdict.identity] = (verdict.proved_lower, verdict.proved_upper)
    wrong = None
    if verdicts[-1].passed and paths[0].parent in [Path(name) for name in options.files]:
        wrong = _published(paths[0].parent, verdicts[-1])
    print_bounds_verdict(console, model, certificates, verdicts, wrong)
    return wrong is None and all(verdict.passed for verdict in verdicts)


def _published(folder: Path, last: Verdict) -> str | None:
    """What ``bounds.yaml`` and ``result.json`` of a directory publish that the last certificate does not prove."""
    from safe_sysid.errors import SafeSysIdError
    from safe_sysid.input_limits import MAX_JSON_BYTES, read_regular_text
    from safe_sysid.robot.parameters import PAYLOAD_NAMES
    from safe_sysid.robot.yaml_file import read_yaml

    for name, section in (("bounds.yaml", "bounds"), ("result.json", "parameters")):
        path = folder / name
        if not path.is_file():
            continue
        try:
            is_json = path.suffix == ".json"
            content = json.loads(read_regular_text(path, MAX_JSON_BYTES)) if is_json else read_yaml(path)
            entries: Any = content.get(section) if isinstance(content, dict) else None
            if entries is None and name == "result.json":
                continue  # of another command
            if isinstance(entries, list):
                entries = {entry["name"]: entry for entry in entries}
            for k, parameter in enumerate(PAYLOAD_NAMES):
                low, high = float(entries[parameter]["lower"]), float(entries[parameter]["upper"])
                if not (low <= last.proved_lower[k] and last.proved_upper[k] <= high):
                    return (
                        f"{path}: {parameter} in [{low!r}, {high!r}], proved is "
                        f"[{float(last.proved_lower[k])!r}, {float(last.proved_upper[k])!r}]"
                    )
        except (OSError, ValueError, KeyError, TypeError, RecursionError, SafeSysIdError) as error:
            return f"{path}: bounds cannot be read: {type(error).__name__} {error}"
    return None


def _robot(options: argparse.Namespace, certificate: Certificate) -> RobotModel:
    """The trusted description. A certificate may only name a packaged one, never a file."""
    from safe_sysid.identification.certificates.file import CertificateError
    from safe_sysid.robot.loading import load_robot

    overrides = _overrides(options)
    name = options.robot
    if name is None:
        name = str(certificate.header["robot"].get("name"))
        if not name.isidentifier():
            raise CertificateError(
                f"{certificate.path}: robot.name = {name!r}: say with --robot which file describes it"
            )
    return load_robot(name, **overrides)


def _named_robot(path: Path) -> str:
    """The packaged robot that a plan names."""
    from safe_sysid.planning.plan_file import PlanFileError, read_plan

    name = read_plan(path).robot_name
    if not name.isidentifier():
        raise PlanFileError(f"{path}: robot.name = {name!r}: say with --robot which file describes it")
    return name


def _overrides(options: argparse.Namespace) -> dict[str, Any]:
    """Settings of ``--set``."""
    from safe_sysid.identification.certificates.file import CertificateError

    found = {}
    for text in options.set:
        if (setting := key_value(text)) is None:
            raise CertificateError(f"--set {text}: expected KEY=VALUE, as measurement.torque_abs=0.2")
        found[setting[0]] = setting[1]
    return found


def _logs(options: argparse.Namespace, paths: Sequence[Path]) -> tuple[LogBook, LogBook]:
    """Logs of runs and of tares: named, or beside the certificates, where other files may lie as well.

    Which log is of the empty hand is the user's word, or the name ``tare_log.npz``; never a certificate's.
    """
    from safe_sysid.identification.certificates.row_check import LogBook, NamedLog
    from safe_sysid.logs.log import LogError
    from safe_sysid.logs.npz import read_log

    logs: list[NamedLog] = []
    tares: list[NamedLog] = []
    for names, book in ((options.log, logs), (options.tare_log, tares)):
        for name in names:
            log = read_log(name)
            book.append(NamedLog(str(name), log.joint_names, log.measurements))
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
            book.append(NamedLog(str(candidate), log.joint_names, log.measurements))
    return LogBook(logs), LogBook(tares)
