"""Format of plan files: one JSON file with everything that is needed to certify the plan again.

What is read is not trusted: size, types and shapes are checked, nothing is unpickled. What it takes to believe it is in
:mod:`safe_sysid.planning.plan_files.plan_check`.
"""

from __future__ import annotations

import base64
import binascii
import json
import math
import zlib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
from pydantic import Field

from safe_sysid import __version__
from safe_sysid.control.tube import TrackingTube
from safe_sysid.core.arrays import FloatArray
from safe_sysid.core.layout import ParameterLayout
from safe_sysid.errors import ConfigError, PlanError, SafeSysIdError
from safe_sysid.input_limits import parse_json, read_regular
from safe_sysid.planning.certification.certificate import FAMILIES, PlanCertificate
from safe_sysid.planning.plan_files.plan_statement import gains_statement, robot_statement, scene_statement
from safe_sysid.robot.files.yaml_file import validate
from safe_sysid.robot.identity import digest
from safe_sysid.robot.margin import Margin, MarginRecord
from safe_sysid.robot.model import MAX_JOINTS, RobotModel
from safe_sysid.robot.parameters import ParameterBox, zero_box_problem
from safe_sysid.robot.scenes.scene import Scene
from safe_sysid.schema.fields import Name, StrictModel
from safe_sysid.trajectories.plan import Plan
from safe_sysid.trajectories.quintic import QuinticTrajectory
from safe_sysid.whole_files import write_text

__all__ = ["SCHEMA", "PlanFile", "PlanFileError", "file_name", "read_plan", "write_plan"]

SCHEMA = "safe_sysid/plan/2"
_MAX_BYTES = 64 << 20
_MAX_KNOTS = 1024
_MAX_CELLS = 1 << 14
_MAX_PAIRS = 1 << 14
#: A margin is claimed this much smaller than it was found, relative and absolute: another machine rounds differently.
_MODEST = 1e-9

Numbers = list[float]
Angle = Annotated[float, Field(ge=-1e6, le=1e6)]
Row = Annotated[list[Angle], Field(min_length=1, max_length=MAX_JOINTS)]
Count = Annotated[int, Field(ge=0, lt=10**9)]


class PlanFileError(PlanError):
    """A plan file cannot be written or read; the message names file, field, value and expectation."""


class _PlanPart(StrictModel):
    sequence: Count
    start_time: Annotated[float, Field(ge=-1e12, le=1e12)]
    t_plan: float
    times: Annotated[Numbers, Field(min_length=2, max_length=_MAX_KNOTS)]
    knots: Annotated[
        list[Annotated[list[Row], Field(min_length=3, max_length=3)]], Field(min_length=2, max_length=_MAX_KNOTS)
    ]
    k: Row
    tube: Annotated[int, Field(ge=1, lt=1000)] | None = None  # None: the widest


class _BoxPart(StrictModel):
    epoch: Count
    seq: Count
    lower: Annotated[Numbers, Field(min_length=14, max_length=14 * MAX_JOINTS)]
    upper: Annotated[Numbers, Field(min_length=14, max_length=14 * MAX_JOINTS)]


class _CertificatePart(StrictModel):
    intervals: Annotated[int, Field(ge=1, le=4096)]
    clearance_margin: Annotated[float, Field(ge=0.0)]
    families: dict[Name, MarginRecord]


class _WitnessPart(StrictModel):
    pairs: Annotated[int, Field(ge=0, le=_MAX_PAIRS)]
    grid: Annotated[Numbers, Field(min_length=2, max_length=_MAX_CELLS)]
    directions: str


class _PlanFileFields(StrictModel):
    schema_name: Annotated[Literal["safe_sysid/plan/2"], Field(alias="schema")]
    written_by: str
    robot: dict[str, Any]
    scene: dict[str, Any]
    gains: dict[str, Any]
    plan: _PlanPart
    box: _BoxPart
    certificate: _CertificatePart
    witness: _WitnessPart | None
    sha256: Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]


@dataclass(frozen=True, eq=False)
class PlanFile:
    """What a plan file says; types, sizes and shapes are checked, nothing else."""

    path: Path
    plan: Plan  #: with its trajectory's knots to the last bit
    box: ParameterBox
    #: robot, scene, gains: as stated, see :mod:`safe_sysid.planning.plan_files.plan_statement`
    robot: Mapping[str, Any]
    scene: Mapping[str, Any]
    gains: Mapping[str, Any]
    intervals: int  #: of the certificate, before any splitting
    clearance_margin: float  #: that the certificate asked for, m
    claims: Mapping[str, Margin]  #: smallest margins, by family
    grid: FloatArray | None  #: (M + 1,) borders of the final cells, s, or None
    directions: FloatArray | None  #: (M, P, 3) separating directions of the final cells and pairs, or None
    written_by: str

    @property
    def robot_name(self) -> str:
        """Name of the robot, as stated."""
        return str(self.robot.get("name"))

    @property
    def scene_name(self) -> str:
        """Name of the scene, as stated."""
        return str(self.scene.get("name"))

    @property
    def timing(self) -> str:
        """What its gains are for, as stated: ``real-time`` or ``lock-step``."""
        return str(self.gains.get("timing"))


def file_name(plan: Plan) -> str:
    """Name of a plan's file in a run directory, such as ``plan_00003.json``."""
    return f"plan_{plan.sequence:05d}.json"


def write_plan(
    path: str | Path,
    plan: Plan,
    certificate: PlanCertificate,
    model: RobotModel,
    box: ParameterBox,
    scene: Scene,
    gains: TrackingTube,
    *,
    intervals: int | None = None,
    clearance_margin: float | None = None,
) -> Path:
    """Write a certified plan, whole or not at all. Returns the path of the file.

    Args:
        gains: of the controller, the widest tube: the plan names its own of theirs.
        path: of the ``.json`` file, or an existing directory, where it gets the name :func:`file_name`.
        certificate: of the plan, by :func:`safe_sysid.planning.certification.certificate.verify_plan`.
        intervals: of the certificate; None: the model's setting.
        clearance_margin: of the certificate, m; None: the model's setting.

    Raises:
        PlanFileError: the plan is not certified, or for another box, or the file cannot be written.
    """
    path = Path(path)
    if path.is_dir():
        path = path / file_name(plan)
    if not certificate.ok:
        raise PlanFileError(f"{path}: certificate: {certificate.status}: expected a certified plan")
    if plan.tube != certificate.tube:
        raise PlanFileError(f"{path}: tube: plan {plan.tube}, certificate {certificate.tube}: expected the same")
    if not plan.box_identity == box.identity == certificate.box_identity:
        raise PlanFileError(
            f"{path}: box: plan {plan.box_identity}, box {box.identity}, certificate {certificate.box_identity}: "
            "expected them to be the same"
        )
    wrong = zero_box_problem(box, model.arm_prior)
    if wrong is not None:
        raise PlanFileError(f"{path}: {wrong}")
    settings = model.settings.planner
    trajectory = plan.trajectory
    content: dict[str, Any] = {
        "schema": SCHEMA,
        "written_by": f"safe_sysid {__version__}",
        "plan": {
            "sequence": plan.sequence,
            "start_time": float(plan.start_time),
            "t_plan": float(plan.t_plan),
            "times": trajectory.times.tolist(),
            "knots": trajectory.knots.tolist(),
            "k": plan.k.tolist(),
            **({"tube": plan.tube} if plan.tube else {}),
        },
        "certificate": {
            "intervals": settings.intervals if intervals is None else int(intervals),
            "clearance_margin": float(settings.clearance_margin if clearance_margin is None else clearance_margin),
            "families": {name: _claim(certificate.families[name]) for name in FAMILIES},
        },
        "box": {"epoch": box.epoch, "seq": box.seq, "lower": box.lower.tolist(), "upper": box.upper.tolist()},
        "gains": gains_statement(gains, model),
        "scene": scene_statement(scene),
        "robot": robot_statement(model),
        "witness": _packed(certificate),
    }
    content["sha256"] = digest(content)
    try:
        write_text(path, _pretty(content) + "\n")
    except OSError as error:
        raise PlanFileError(f"{path}: cannot be written: {error.strerror or error}") from error
    return path


def _claim(margin: Margin) -> dict[str, Any]:
    modest = max(0.0, margin.value - _MODEST * (1.0 + margin.value))
    return MarginRecord.of(replace(margin, value=modest) if margin.value < math.inf else margin).model_dump()


def _packed(certificate: PlanCertificate) -> dict[str, Any]:
    """Cells, and separating directions in each, every bit of them."""
    directions = np.ascontiguousarray(certificate.witness, "<f8")
    packed = base64.b64encode(zlib.compress(directions.tobytes(), 6)).decode("ascii")
    return {"pairs": directions.shape[1], "grid": certificate.grid.tolist(), "directions": packed}


def _pretty(content: Mapping[str, Any]) -> str:
    """One line per entry of the sections: short enough to read, long enough to be found in."""
    sections = []
    for name, section in content.items():
        if isinstance(section, dict):
            lines = [f"  {json.dumps(k)}: {json.dumps(v, allow_nan=False)}" for k, v in section.items()]
            sections.append(f" {json.dumps(name)}: {{\n" + ",\n".join(lines) + "\n }")
        else:
            sections.append(f" {json.dumps(name)}: {json.dumps(section)}")
    return "{\n" + ",\n".join(sections) + "\n}"


def read_plan(path: str | Path) -> PlanFile:
    """Read a plan file. Nothing is certified by that: :class:`~.plan_check.PlanChecker`.

    Raises:
        PlanFileError: it cannot be read, is too large, not of this schema, or inconsistent in itself.
    """
    path = Path(path)
    content = read_content(path)
    if content.get("schema") != SCHEMA:
        raise PlanFileError(
            f"{path}: schema = {str(content.get('schema'))[:60]!r}: expected {SCHEMA!r} (plans of older versions "
            "state less of the robot: plan again)"
        )
    try:
        file = validate(str(path), content, _PlanFileFields)
        found = digest({key: value for key, value in content.items() if key != "sha256"})
    except ConfigError as error:
        raise PlanFileError(f"{path}: {error.key} = {_short(error.value)}: expected {error.expected}") from None
    except (RecursionError, OverflowError, ValueError) as error:
        raise PlanFileError(f"{path}: {str(error)[:100]}: expected a plan") from None
    if found != file.sha256:
        raise PlanFileError(f"{path}: sha256 = {file.sha256}: expected {found}: the file was changed or damaged")
    for name in set(file.certificate.families).symmetric_difference(FAMILIES):
        raise PlanFileError(
            f"{path}: certificate.families.{name[:40]}: expected margins of {', '.join(FAMILIES)}, each once"
        )
    try:
        claims = {name: record.margin(name) for name, record in file.certificate.families.items()}
    except ValueError as error:
        raise PlanFileError(f"{path}: certificate.families.{error}") from None
    part, box = file.plan, file.box
    n = len(part.k)
    if any(len(row) != n for knot in part.knots for row in knot) or len(part.knots) != len(part.times):
        raise PlanFileError(f"{path}: plan.knots: expected {len(part.times)} of 3 x {n} numbers")
    size = ParameterLayout(n).size
    if len(box.lower) != size or len(box.upper) != size:
        raise PlanFileError(f"{path}: box: {len(box.lower)} and {len(box.upper)} numbers: expected {size}")
    if np.max(np.abs(part.k)) > 1.0:
        raise PlanFileError(f"{path}: plan.k = {part.k}: expected numbers in [-1, 1]")
    try:
        trajectory = QuinticTrajectory(np.array(part.times), np.array(part.knots))
        parameters = ParameterBox(np.array(box.lower), np.array(box.upper), box.epoch, box.seq)
        plan = Plan(
            trajectory, part.start_time, part.t_plan, parameters.identity, part.sequence, np.array(part.k),
            part.tube or 0,
        )  # fmt: skip
    except SafeSysIdError as error:
        raise PlanFileError(f"{path}: {error}") from None
    return PlanFile(
        path,
        plan,
        parameters,
        file.robot,
        file.scene,
        file.gains,
        file.certificate.intervals,
        file.certificate.clearance_margin,
        claims,
        None if file.witness is None else np.array(file.witness.grid),
        None if file.witness is None else _unpacked(path, file.witness),
        file.written_by,
    )


def read_content(path: Path) -> dict[str, Any]:
    """JSON object of a file, without doubtful readings: no key twice, no NaN, no number too large for a float.

    Raises:
        PlanFileError: anything else.
    """
    try:
        content = parse_json(read_regular(path, _MAX_BYTES).decode("utf-8"))
    except OSError as error:
        raise PlanFileError(f"{path}: cannot be read: {error.strerror or error}") from None
    except (ValueError, RecursionError) as error:
        raise PlanFileError(f"{path}: not JSON ({str(error)[:100]}): expected a plan") from None
    if not isinstance(content, dict):
        raise PlanFileError(f"{path}: {type(content).__name__}: expected a JSON object")
    return content


def _unpacked(path: Path, part: _WitnessPart) -> FloatArray:
    cells = len(part.grid) - 1
    size = 24 * cells * part.pairs
    what = f"{path}: witness.directions"
    if size > _MAX_BYTES:
        raise PlanFileError(f"{what}: {cells} x {part.pairs} directions: too many")
    try:
        unpack = zlib.decompressobj()
        data = unpack.decompress(base64.b64decode(part.directions, validate=True), size + 1)
    except (binascii.Error, ValueError, zlib.error) as error:
        raise PlanFileError(f"{what}: {error}: expected compressed numbers") from None
    if len(data) != size or not unpack.eof:
        raise PlanFileError(f"{what}: expected {cells} x {part.pairs} x 3 numbers")
    directions = np.frombuffer(data, "<f8").reshape(cells, part.pairs, 3).astype(float)
    if not np.all(np.isfinite(directions)):
        raise PlanFileError(f"{what}: not finite: expected directions")
    directions.setflags(write=False)
    return directions


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 80 else text[:77] + "..."
