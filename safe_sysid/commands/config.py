"""``safe-sysid config``: files of robots, scenes and node parameters."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

from safe_sysid.commands.shared.arguments import OneLineParser, check_output, joint_value, non_negative

__all__ = ["DESCRIPTION", "HELP", "configure", "run"]

HELP = "check, show and make files of settings"
DESCRIPTION = "Files of robots, scenes and node parameters; every parameter is listed in docs/refer/parameters.md."


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the actions."""
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True, parser_class=OneLineParser)
    _check_arguments(actions)
    _show_arguments(actions)
    _init_arguments(actions)
    _reference_arguments(actions)
    _schema_arguments(actions)


def _pair(text: str) -> tuple[str, str]:
    """``link_a,link_b``."""
    names = tuple(text.split(","))
    if len(names) != 2 or not all(names):
        raise argparse.ArgumentTypeError(f"{text!r}: expected two links, as A,B")
    return names


def _check_arguments(actions: Any) -> None:
    check = actions.add_parser(
        "check",
        help="check a robot's, scene's or node parameters' YAML file",
        description="Reads a robot's file with its URDF, computes gains, judges the start pose, and warns of what is "
        "allowed but probably not meant; or reads a scene and judges its start and goal; or judges a file of node "
        "parameters (ros__parameters) and the robot as the nodes will have it. Exit status 0: usable, 1: not, "
        "2: unreadable.",
    )
    check.add_argument("file", help="YAML file, or the name of a packaged one")
    check.add_argument("--robot", default="kinova_gen3", help="that a scene is checked with (default: %(default)s)")
    check.add_argument("--strict", action="store_true", help="warnings count as errors")


def _show_arguments(actions: Any) -> None:
    show = actions.add_parser(
        "show",
        help="show the values that a robot's file comes to",
        description="Every value in force: what the file says, defaults, and limits of the URDF; with unit, source and "
        "meaning.",
    )
    show.add_argument("file", help="robot's YAML file, or the name of a packaged one")
    show.add_argument(
        "--key", action="append", default=[], metavar="KEY", help="only this key or section; may be repeated"
    )
    form = show.add_mutually_exclusive_group()
    form.add_argument("--yaml", action="store_true", help="as a complete robot file, with comments")
    form.add_argument("--json", action="store_true", help="as a list of objects")


def _init_arguments(actions: Any) -> None:
    init = actions.add_parser(
        "init",
        help="write a configuration for another arm, from its URDF",
        description="Writes a commented robot file: limits from the URDF, collision geometry fitted by capsules, "
        "friction and rotor inertia unknown within wide intervals. Such a file is for identification only; with "
        "--drives or --simulated-drives hypotheses of the tracking theorem are chosen such that gains exist. Then: "
        "safe-sysid config check FILE.",
    )
    init.add_argument("--urdf", required=True, metavar="FILE", help="URDF file, or package://NAME/PATH")
    init.add_argument("--out", type=Path, required=True, metavar="FILE", help="YAML file to write")
    init.add_argument(
        "--tool-frame", "--tool-link", metavar="LINK", help="flange that payloads are gripped at (default: guessed)"
    )
    init.add_argument(
        "--base-link", metavar="LINK", help="link that the arm begins at, with --tip-link (default: the root)"
    )
    own = init.add_mutually_exclusive_group()
    own.add_argument(
        "--tip-link", metavar="LINK", help="link that the arm ends at: of a robot with more than one chain"
    )
    own.add_argument(
        "--joints",
        "--arm-joints",
        metavar="A,B,...",
        help="joints of the arm, all others are locked (default: the longest chain, without a gripper's)",
    )
    init.add_argument(
        "--lock",
        type=joint_value,
        action="append",
        default=[],
        metavar="JOINT=VALUE",
        help="position of a joint that is not the arm's, rad or m; may be repeated",
    )
    init.add_argument("--payload-kg", type=non_negative, metavar="KG", help="largest payload (default: guessed)")
    init.add_argument(
        "--package-dir",
        type=Path,
        action="append",
        default=[],
        metavar="DIR",
        help="folder with packages that package:// names; may be repeated",
    )
    init.add_argument(
        "--allow-pair",
        type=_pair,
        action="append",
        default=[],
        metavar="A,B",
        help="two links that are not checked against each other; may be repeated",
    )
    init.add_argument("--srdf", type=Path, metavar="FILE", help="whose disabled collisions are not checked")
    drives = init.add_mutually_exclusive_group()
    drives.add_argument(
        "--gear-ratio",
        type=joint_value,
        action="append",
        default=[],
        metavar="JOINT=R",
        help="narrows the rotor inertia of drives that are unknown; may be repeated",
    )
    drives.add_argument(
        "--drives", type=Path, metavar="FILE", help="robot file whose friction and rotor inertia were measured"
    )
    drives.add_argument(
        "--simulated-drives",
        action="store_true",
        help="choose friction and rotor inertia for a simulation, true of no real arm",
    )
    init.add_argument("--name", help="of the robot (default: that of the file)")
    init.add_argument("--overwrite", action="store_true", help="replace FILE if it exists")


def _reference_arguments(actions: Any) -> None:
    reference = actions.add_parser(
        "reference",
        help="print the reference page of all parameters",
        description="The page docs/refer/parameters.md, made from the declarations.",
    )
    reference.add_argument("--out", type=Path, metavar="FILE", help="write it there")


def _schema_arguments(actions: Any) -> None:
    schema = actions.add_parser(
        "schema",
        help="print a JSON schema of robot files, for editors",
        description="JSON Schema of a robot's file: editors complete and explain keys by it, and mark what is wrong. "
        "With the YAML extension of an editor, the file's first line is then # yaml-language-server: $schema=FILE",
    )
    schema.add_argument("--out", type=Path, metavar="FILE", help="write it there")


def run(options: argparse.Namespace) -> int:
    """Do what was asked for."""
    actions = {"check": _check, "show": _show, "init": _init, "reference": _reference, "schema": _schema}
    return actions[options.action](options)


def _check(options: argparse.Namespace) -> int:
    """Check a file; prints what is wrong with it."""
    from safe_sysid.apps.check.check import check_file

    warnings = 0

    def say(text: str) -> None:
        nonlocal warnings
        warnings += text.startswith("warning: ")
        print(text)

    reasons = check_file(options.file, options.robot, say)
    if options.strict and warnings:
        reasons.append(f"{warnings} warning{'s' if warnings > 1 else ''} (--strict)")
    for reason in reasons:
        print(f"safe-sysid config check: error: {reason}", file=sys.stderr)
    return 1 if reasons else 0


def _show(options: argparse.Namespace) -> int:
    from safe_sysid.robot.effective import as_text, commented_yaml, effective_values, select
    from safe_sysid.robot.files.yaml_file import read_yaml
    from safe_sysid.robot.loading import load_robot
    from safe_sysid.robot.scenes.scene import config_path

    path = config_path(options.file, "config")
    values = select(effective_values(load_robot(options.file), read_yaml(path)), options.key, str(path))
    if options.json:
        print(json.dumps([value.as_json() for value in values], indent=1))
    elif options.yaml:
        head = f"Every value in force of {path}\n(safe-sysid config show --yaml); in brackets: where it comes from."
        print(commented_yaml(values, head), end="")
    else:
        print(as_text(values))
    return 0


def _init(options: argparse.Namespace) -> int:
    from safe_sysid.new_arm import NewArm, write_configuration

    check_output("--out", options.out)
    print(f"reading {options.urdf}", flush=True)
    arm = NewArm(
        tool_frame=options.tool_frame,
        joints=options.joints.split(",") if options.joints else None,
        locked=dict(options.lock),
        package_dirs=options.package_dir,
        payload_kg=options.payload_kg,
        name=options.name,
        base_link=options.base_link,
        tip_link=options.tip_link,
        allowed_pairs=options.allow_pair,
        srdf=options.srdf,
        gear_ratios=dict(options.gear_ratio),
        drives=options.drives,
        simulated_drives=options.simulated_drives,
    )
    remarks = write_configuration(
        options.urdf, options.out, arm, overwrite=options.overwrite, say=lambda text: print(text, flush=True)
    )
    for remark in remarks:
        print(f"remark: {remark}")
    print(f"wrote {options.out}; next: safe-sysid config check {options.out}")
    return 0


def _reference(options: argparse.Namespace) -> int:
    from safe_sysid.nodes.settings import KINDS
    from safe_sysid.robot.config import KEYS
    from safe_sysid.schema.reference import reference

    groups = dict.fromkeys(group for groups in KINDS.values() for group in groups)
    return _write(reference(groups, KEYS), options.out)


def _schema(options: argparse.Namespace) -> int:
    from safe_sysid.robot.config import KEYS
    from safe_sysid.schema.json_schema import json_schema

    return _write(json.dumps(json_schema(KEYS, filled_in=("name",)), indent=1) + "\n", options.out)


def _write(text: str, out: Path | None) -> int:
    """To a file, or to the terminal."""
    if out is None:
        print(text, end="")
    else:
        check_output("--out", out)
        out.write_text(text, encoding="utf-8")
    return 0
