"""Verification of an arm's own intervals: the certificate by the checker, and what is published beside it."""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table

from safe_sysid.core.arrays import FloatArray
from safe_sysid.decimals import interval_text
from safe_sysid.identification.arm.base_parameters import combination_names, parameter_units, parameter_words
from safe_sysid.identification.certificates.arm_check import ArmVerdict, box_problem
from safe_sysid.identification.certificates.files.arm import ARM_SCHEMA, ArmCertificate
from safe_sysid.input_limits import MAX_JSON_BYTES, parse_json, read_regular_text
from safe_sysid.robot.config import JointSettings, PayloadSettings, ProvedSettings, load_settings
from safe_sysid.robot.model import RobotModel

__all__ = ["arm_problem", "print_arm_verdict"]


def arm_problem(certificate: ArmCertificate, model: RobotModel) -> str | None:
    """What certificate, and ``result.json`` or ``robot.yaml`` beside it, say besides and is not so; None: nothing.

    ``model``: trusted.
    """
    layout, matrix, stated = (model.layout, certificate.arrays["combinations"], certificate.header["parameters"])
    names = combination_names(matrix, parameter_words(layout, model.joint_names))
    units = parameter_units(layout, model.kinematics.sliding)
    for i, (one, name) in enumerate(zip(stated, names, strict=True)):
        if one["name"] != name:
            return f"{certificate.path.name}: parameters[{i}].name = {one['name']!r}: expected {name!r}"
        possible = {unit for unit, c in zip(units, matrix[i].tolist(), strict=True) if c == 1.0}
        if one["unit"] not in possible:
            where = f"{certificate.path.name}: parameters[{i}].unit"
            return f"{where} = {one['unit']!r}: expected one of {sorted(possible)}"
    if certificate.path.stem.endswith("_of_box"):
        return _robot_problem(certificate, model)
    return _result_problem(certificate)


def _robot_problem(certificate: ArmCertificate, model: RobotModel) -> str | None:
    """Of ``robot.yaml``: what it says is proved."""
    path = certificate.path.with_name("robot.yaml")
    if not path.exists():
        return None
    settings, layout = load_settings(path, {}), model.layout
    joints = settings.joints
    lower, upper = np.full(layout.size, -np.inf), np.full(layout.size, np.inf)
    if all(joint.proved == ProvedSettings() for joint in joints.values()):
        return None
    for j, name in enumerate(model.joint_names):
        proved = joints[name].proved if name in joints else ProvedSettings()
        if proved.link_lower is None or proved.link_upper is None:
            return f"robot.yaml: joints.{name}.proved.link_lower: expected bounds, as other joints have some"
        lower[layout.link(j)], upper[layout.link(j)] = proved.link_lower, proved.link_upper
        for k, key in enumerate(("coulomb", "viscous", "rotor_inertia", "offset")):
            at = layout.joint_terms.start + k * layout.n + j
            lower[at], upper[at] = getattr(proved, key) or (-1e300, 1e300)
    wrong = box_problem(certificate, model, lower, upper)
    if wrong is not None:
        return f"robot.yaml: {wrong}"
    # Without exchanges the box holds the arm itself, and what is declared stays.
    exchanged = len(certificate.arrays["combinations"]) < layout.size
    return _excess_problem(model, joints, lower, upper, exchanged) or _payload_problem(
        model, settings.payload, lower[layout.payload], upper[layout.payload], exchanged
    )


def _excess_problem(
    model: RobotModel, joints: Mapping[str, JointSettings], lower: FloatArray, upper: FloatArray, exchanged: bool
) -> str | None:
    """Whether declared links exceed those between bounds (14 n,), (14 n,) of ``robot.yaml`` by no more than it says."""
    prior, known = model.empty_handed_prior, model.kinematics.excess_by_link
    for j, name in enumerate(model.joint_names):
        link, squares = model.layout.link(j), [Fraction(0)] * 3
        if exchanged:
            low, high, least, most = (
                [Fraction(float(x)) for x in side[link]] for side in (lower, upper, prior.lower, prior.upper)
            )
            none = Fraction(0)
            mass, trace = (sum((most[i] - low[i] for i in at), none) for at in ((0,), (4, 6, 9)))
            moment = sum((max(most[i] - low[i], high[i] - least[i], none) ** 2 for i in (1, 2, 3)), none)
            squares = [max(mass, none) ** 2, moment, max(trace, none) ** 2]
        for i, (value, square) in enumerate(zip(joints[name].proved.link_excess or (), squares, strict=True)):
            rest = Fraction(value) - Fraction(float(known[j, i]))
            if rest < 0 or rest**2 < square:
                expected = f"{float(known[j, i]) + float(square) ** 0.5!r}, by which a declared link may exceed these"
                return f"robot.yaml: joints.{name}.proved.link_excess[{i}] = {value!r}: expected {expected}"
    return None


def _payload_problem(
    model: RobotModel, said: PayloadSettings, lower: FloatArray, upper: FloatArray, exchanged: bool
) -> str | None:
    """Whether the prior of hand and payload holds the declared payload in the hand (10,), (10,) of ``robot.yaml``."""
    least, most = model.hand_prior
    prior = model.arm_prior
    for i in range(10):
        hand, declared, (low, high) = (
            [Fraction(float(x[i])) for x in sides]
            for sides in ((lower, upper), (least, most), (prior.payload_lower, prior.payload_upper))
        )
        if exchanged:
            low, high = low - declared[1] + hand[0], high - declared[0] + hand[1]
            if i in (0, 4, 6, 9):  # the payload alone has no negative mass, or moment of inertia
                low = max(low, hand[0])
        for key, bound, good in (
            ("prior_lower", low, said.prior_lower[i] <= low),
            ("prior_upper", high, said.prior_upper[i] >= high),
        ):
            if not good:
                expected = f"{float(bound)!r}, the declared prior with this hand in the place of the declared one"
                return f"robot.yaml: payload.{key}[{i}] = {getattr(said, key)[i]!r}: expected {expected}"
    return None


def _result_problem(certificate: ArmCertificate) -> str | None:
    path, stated = certificate.path.with_name("result.json"), certificate.header["parameters"]
    if not path.exists():
        return None
    try:
        result: Any = parse_json(read_regular_text(path, MAX_JSON_BYTES))
        published = [{key: p[key] for key in ("name", "unit", "lower", "upper")} for p in result["parameters"]]
        proved = result["intervals"]["proved"]
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return "result.json: cannot be read: expected that of identify-arm"
    for i, (ours, theirs) in enumerate(zip(stated, published, strict=False)):
        if ours != theirs:
            return f"result.json: parameters[{i}] = {theirs}: expected {ours}"
    if proved is not True or len(published) != len(stated):
        return f"result.json: expected {len(stated)} proved parameters"
    return None


def print_arm_verdict(
    console: Console, model: RobotModel, certificate: ArmCertificate, verdict: ArmVerdict, wrong: str | None
) -> None:
    """Print the intervals, what is assumed, and PASS, or the first thing that is not proved.

    ``model``: trusted; ``wrong``: what is published besides and not so; None: nothing.
    """
    if verdict.reason is not None or wrong is not None:
        reason = wrong if verdict.reason is None else f"{certificate.path.name}: {verdict.reason}"
        console.print(f"FAIL: {reason}", markup=False)
        return
    table = Table(box=None, header_style="bold", pad_edge=False)
    for title in ("base parameter", "lower", "upper", "unit"):
        table.add_column(title, justify="right" if title in ("lower", "upper") else "left")
    for one in certificate.header["parameters"]:
        table.add_row(one["name"], *interval_text(one["lower"], one["upper"], 2), one["unit"])
    console.print(table)
    names = ", ".join(Path(name).name for name in verdict.logs)
    for line in (
        f"nothing in the hand but what always is, in {names}",
        "every parameter of the arm within the prior of the robot's file, and constant over all these logs",
        "errors of measurement within those of the robot's file",
        *model.model_assumptions,
        *filter(None, [model.drive_note]),
    ):
        console.print(f"assumed: {line}", markup=False)
    console.print(
        f"PASS: {ARM_SCHEMA} of {model.name}: {verdict.rows} equations and what is declared imply these intervals "
        f"({verdict.seconds:.1f} s)",
        markup=False,
    )
