"""``safe-sysid identify-arm``: from logs to files and a verdict."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console

from safe_sysid import __version__
from safe_sysid.apps.arm.guaranteed_intervals import Bounding
from safe_sysid.apps.arm.logs import (
    ArmLogOptions,
    check_samples,
    make_directory,
    output_directory,
    processing_of,
    read_logs,
    refused,
    split_samples,
)
from safe_sysid.apps.progress import steps
from safe_sysid.dynamics.closed_chain import Mechanism, check_uniqueness, load_mechanism
from safe_sysid.dynamics.closed_chain.files import mechanism_path, mechanism_urdf
from safe_sysid.errors import ConfigError
from safe_sysid.identification.arm.bounds.control_box import ControlBox
from safe_sysid.identification.arm.identify import ArmIdentification, ArmOptions, identify_samples
from safe_sysid.identification.arm.logs.preparation import prepare
from safe_sysid.identification.arm.torque_constants import TorqueConstant, torque_constants
from safe_sysid.identification.arm.wrong_columns import common_scale
from safe_sysid.logs.log import Log
from safe_sysid.report.arm.files import mechanism_file, mjcf_model, robot_file, urdf_with
from safe_sysid.report.arm.html import arm_html, intervals_text
from safe_sysid.robot.config import load_settings
from safe_sysid.robot.loading import find_urdf, load_robot
from safe_sysid.robot.model import RobotModel
from safe_sysid.robot.scenes.scene import config_path
from safe_sysid.whole_files import write_text

__all__ = ["IdentifyArmOptions", "identify_arm", "result_of"]

#: Of base parameters: with more of them open, a log identifies no arm.
_MOST_OPEN = 1.0 / 3.0
_SAMPLED = 50  # positions of motors at which other branches of loops are searched
_REST = 0.05  # of the held-out samples: more of them at rest are told


@dataclass(frozen=True)
class IdentifyArmOptions(ArmLogOptions):
    """Options of the command; see ``safe-sysid identify-arm --help``."""

    loops: Path | None = None
    joints: tuple[str, ...] = ()
    method: str = "sdp"
    regularisation: float | None = None
    known_links: tuple[str, ...] = ()
    motors_only: bool = False
    plain_friction: bool = False
    estimates_only: bool = False
    thorough: bool = False
    loaded: tuple[Path, ...] = ()
    known_mass: float | None = None


def identify_arm(options: IdentifyArmOptions) -> int:
    """Read, check, identify, validate, write, tell.

    ``options``: of the command. Returns the exit status: 0 identified, 2 logs with errors.

    Raises:
        SafeSysIdError: something cannot be used; one line says what.
    """
    begin = time.perf_counter()
    console = Console(width=None if sys.stdout.isatty() else 110, highlight=False)
    with steps("reading", options.quiet) as tell:
        model, mechanism = _arm(options)
        logs = read_logs(options, mechanism.actuated_names)
        transition = 0.0 if model is None else model.friction_transition_velocity
        constants = _torque_constants(options, mechanism, logs[: len(options.logs)], transition)
        options = _with_constants(options, constants)
        samples, held_out = split_samples(logs, mechanism.actuated_names, options, transition)
        link_side = model is not None and model.settings.measurement.torque_source == "link"
        findings = check_samples(logs, mechanism, samples, link_side)
        if refused(options, "identify-arm", [finding.message for finding in findings], "identified"):
            return 2
        tell("identifying", 0.05)
        choices = ArmOptions(
            options.method, options.regularisation, options.known_links, options.motors_only,
            not options.plain_friction, transition, link_side,
        )  # fmt: skip
        bounding = Bounding(
            model, logs, dict(options.torque_per_effort), options.estimates_only,
            lambda share: tell("bounding", 0.4 + 0.5 * share),
            "of closed loops there are estimates alone" if mechanism.closures
            else "a URDF does not declare how wrong it may be; a robot file does (`safe-sysid config init`)",
            options.thorough,
        )  # fmt: skip
        found = identify_samples(
            mechanism,
            samples,
            held_out,
            choices,
            lambda share: tell("identifying", 0.05 + 0.35 * share),
            bounding.prove,
        )
    out = output_directory(options, "identify-arm")
    result = result_of(found, [str(path) for path in options.logs], time.perf_counter() - begin)
    result["intervals"] = bounding.write(out, found)
    result["torque_per_effort"] = _told_constants(options, constants)
    result["findings"] = [finding.message for finding in findings]
    scale = common_scale(mechanism, samples)
    if scale and not findings and not constants:
        result["warnings"].insert(0, scale)
    if mechanism.closures:
        result["uniqueness"], told = _uniqueness(mechanism)
        result["warnings"] += told
    too_little = len(found.unexcited) > _MOST_OPEN * len(found.names)
    if too_little:
        result["warnings"].insert(
            0,
            f"{len(found.unexcited)} of {len(found.names)} base parameters are not excited: these logs identify no arm",
        )
    no_robot_file = _no_robot_file(model, bounding.control_box)
    result["warnings"] += [no_robot_file] if no_robot_file else []
    _write(out, found, result, model, options, bounding.control_box, not no_robot_file)
    if options.json_file is not None:
        write_text(options.json_file, json.dumps(result, indent=1) + "\n")
    _tell(console, found, result, out, options.quiet)
    return 2 if too_little and not options.force else 0


def _arm(options: IdentifyArmOptions) -> tuple[RobotModel | None, Mechanism]:
    urdf = options.robot if _is_urdf(options) else None
    if options.joints and (urdf is None or options.loops is not None):
        raise ConfigError("--joints", "joints", ",".join(options.joints), "a URDF as --robot, and no --loops")
    if options.loops is not None or urdf is not None:
        return None, load_mechanism(options.loops, urdf, options.joints)
    model = load_robot(options.robot)
    return model, Mechanism.of_robot(model)


def _uniqueness(mechanism: Mechanism) -> tuple[dict[str, Any], list[str]]:
    """What sampling says of the loops' branches, and a line where they may be closed in other ways than in the log."""
    found = check_uniqueness(mechanism, _SAMPLED)
    said = {key: getattr(found, key) for key in ("samples", "none", "several", "off_branch", "holds")}
    if found.several + found.off_branch == 0:
        return said, []
    return said, [
        f"loops: at {found.several} of {found.samples} positions of the motors passive joints have more than one "
        f"position within their limits, at {found.off_branch} another one than the motion from `start` leads to: the "
        "log is taken to be on the branch of `start`; narrower limits of passive joints leave one"
    ]


def _torque_constants(
    options: IdentifyArmOptions, mechanism: Mechanism, logs: Sequence[Log], transition: float
) -> list[TorqueConstant]:
    """Of every joint, where logs with a known mass were given."""
    if (options.known_mass is None) != (not options.loaded):
        raise ConfigError("--known-mass", "mass", str(options.known_mass), "--loaded LOG with it, and neither alone")
    if options.known_mass is None:
        return []
    names = mechanism.actuated_names
    loaded = read_logs(replace(options, logs=options.loaded, validation=()), names)
    free, held = (
        prepare([log.measurements for log in x], names, processing_of(options, transition)) for x in (logs, loaded)
    )
    found = torque_constants(mechanism, free, held, options.known_mass)
    if not any(constant.told for constant in found):
        raise ConfigError(
            "--known-mass", "mass", f"{options.known_mass:g} kg",
            "motions in which it loads some joint enough to tell torque per effort to 5 % (both logs moving alike)",
        )  # fmt: skip
    return found


def _with_constants(options: IdentifyArmOptions, constants: Sequence[TorqueConstant]) -> IdentifyArmOptions:
    declared = dict(options.torque_per_effort)
    told = {one.joint: declared.get(one.joint, 1.0) * one.factor for one in constants if one.told}
    return replace(options, torque_per_effort=tuple({**declared, **told}.items()))


def _told_constants(options: IdentifyArmOptions, constants: Sequence[TorqueConstant]) -> dict[str, dict[str, Any]]:
    """What ``--json`` says of them; ``factor`` is the one in use, declared where the logs do not tell it."""
    used = dict(options.torque_per_effort)
    return {
        one.joint: {
            "factor": used.get(one.joint, 1.0),
            "standard_error": abs(used[one.joint] / one.factor) * one.standard_error if one.told else None,
            "identified": one.told,
            "load_rms": one.load,
        }
        for one in constants
    }


def _is_urdf(options: IdentifyArmOptions) -> bool:
    return options.robot.endswith((".urdf", ".xml"))


def result_of(found: ArmIdentification, logs: Sequence[str], seconds: float) -> dict[str, Any]:
    """What ``--json`` writes.

    Args:
        found: of the arm.
        logs: paths.
        seconds: that it took.
    """
    joints, layout = found.mechanism.actuated_names, found.mechanism.layout
    estimate = found.estimate
    errors = [float(x) if np.isfinite(x) else None for x in estimate.standard_errors]
    nobody: list[Any] = [None] * len(errors)
    proved = found.intervals
    lower, upper = (nobody, nobody) if proved is None else (proved.lower.tolist(), proved.upper.tolist())
    base = zip(found.names, found.units, estimate.values.tolist(), errors, lower, upper, strict=True)
    terms = dict(zip((term.key for term in layout.terms), layout.by_term(found.theta).tolist(), strict=True))
    return {
        "schema": "safe_sysid/arm/1",
        "version": __version__,
        "robot": found.mechanism.name,
        "logs": list(logs),
        "parameters": [
            {
                "name": name, "unit": unit, "estimate": value, "standard_error": error,
                "lower": low, "upper": high,
            }
            for name, unit, value, error, low, high in base
        ],
        "validation": {
            "rms": dict(zip(joints, found.rms.tolist(), strict=True)),
            "rms_before": dict(zip(joints, found.rms_before.tolist(), strict=True)),
            "share_at_rest": dict(zip(joints, found.rest.tolist(), strict=True)),
        },
        "consistent": estimate.consistent,
        "method": estimate.method,
        "regularisation": found.regularisation,
        "further_friction": [column.words for column in found.columns],
        "joints": {
            name: {key: values[j] for key, values in terms.items()}
            for j, name in enumerate(found.mechanism.joint_names)
        },
        "residuals": {x.joint: {**asdict(x), "missing": list(x.missing)} for x in found.residuals},
        "unexcited": [
            {
                "name": found.names[x.index],
                "torque": x.torque if np.isfinite(x.torque) else None,
                "motion": x.motion,
            }
            for x in found.unexcited
        ],
        "warnings": _touched(found, joints),
        "seconds": seconds,
    }  # fmt: skip


def _touched(found: ArmIdentification, joints: Sequence[str]) -> list[str]:
    """A line for each joint that something may have touched."""
    lines = []
    left_out = "" if found.estimate.method == "ols" else ", left out"
    for row, name in enumerate(joints):
        spans = [(first, last) for first, last, at in found.collisions if at == row]
        if not spans:
            continue
        first, last = max(spans, key=lambda span: span[1] - span[0])
        others = f" (and in {len(spans) - 1} shorter stretches)" if len(spans) > 1 else ""
        lines.append(
            f"{name} from {first:.3f} to {last:.3f} s{others}: torques that fit no model of the arm{left_out}: did it "
            "touch something, or stick?"
        )
    return lines


def _no_robot_file(model: RobotModel | None, box: ControlBox | None) -> str:
    """Why no robot file can be written; "" if one can."""
    if model is None or box is not None or model.proved_link(0) is None:
        return ""
    return (
        f"robot.yaml is not written: {model.name} has `proved` links, with which its payload.prior_lower and "
        "prior_upper were moved, and without intervals there is nothing to move them to: expected the robot file "
        "that was identified first, or guaranteed intervals"
    )


def _write(
    out: Path,
    found: ArmIdentification,
    result: dict[str, Any],
    model: RobotModel | None,
    options: IdentifyArmOptions,
    box: ControlBox | None,
    writes_robot: bool,
) -> None:
    make_directory(out)
    write_text(out / "result.json", json.dumps(result, indent=1) + "\n")
    write_text(out / "report.html", arm_html(found, result))
    write_text(out / "arm_mjcf.xml", mjcf_model(found))
    source = Path(options.robot) if _is_urdf(options) else None
    if model is not None:
        path = config_path(options.robot, "config")
        source = find_urdf(path, load_settings(path, {}))
        if writes_robot:
            write_text(out / "robot.yaml", robot_file(path, found, "arm.urdf", box))
    elif options.loops is not None:
        path = mechanism_path(options.loops)
        source = source or mechanism_urdf(path)
        write_text(out / "mechanism.yaml", mechanism_file(path, found, "arm.urdf"))
    if source is not None:
        write_text(out / "arm.urdf", urdf_with(source, found))


def _tell(console: Console, found: ArmIdentification, result: dict[str, Any], out: Path, quiet: bool) -> None:
    if not quiet:
        console.print("held-out torque, root mean square:      drawn  identified   left over")
        for x, before, after in zip(found.residuals, found.rms_before, found.rms, strict=True):
            missing = x.missing[0] if x.missing else "nothing that stands out"
            console.print(f"  {x.joint:<34} {before:>8.3f} {after:>8.3f} N m  {missing}", soft_wrap=True)
        if np.max(found.rest) > _REST:
            joint = found.mechanism.actuated_names[int(np.argmax(found.rest))]
            console.print(
                f"  samples in which a joint stands still say nothing of its friction and do not count for it: up to "
                f"{100 * np.max(found.rest):.0f} % ({joint})", soft_wrap=True,
            )  # fmt: skip
        for joint, one in result["torque_per_effort"].items():
            words = f"+- {one['standard_error']:.2g}" if one["identified"] else "as declared: the mass does not tell it"
            console.print(f"  torque per effort of {joint}: {one['factor']:.4g} {words}", soft_wrap=True)
        for text in result["further_friction"]:
            console.print(f"  taken in: {text}", soft_wrap=True, markup=False)
        for one in found.unexcited:
            console.print(f"  not excited: {found.names[one.index]}; {one.motion}", soft_wrap=True, markup=False)
        for text in result["warnings"]:
            console.print(f"  warning: {text}", soft_wrap=True, markup=False)
        console.print(f"  {intervals_text(result)}", soft_wrap=True, markup=False)
    console.print(
        f"{len(found.names)} base parameters, {'a real arm' if found.estimate.consistent else 'NO real arm'}; held-out "
        f"torques {100 * found.left_over:.0f} % of the drawing's in the median joint; {out / 'report.html'}",
        soft_wrap=True, markup=False,
    )  # fmt: skip
