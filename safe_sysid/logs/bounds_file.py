"""Bounds of the last link with hand and payload as a YAML file: what identification writes and the nodes load."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import yaml
from pydantic import Field, model_validator

from safe_sysid.core.arrays import FloatArray
from safe_sysid.core.layout import PAYLOAD_NAMES, PAYLOAD_UNITS
from safe_sysid.decimals import bracketed
from safe_sysid.errors import ConfigError
from safe_sysid.logs.log import LogError
from safe_sysid.robot.files.yaml_file import read_yaml, validate
from safe_sysid.robot.identity import differences, digest, identity
from safe_sysid.robot.model import RobotModel
from safe_sysid.robot.parameters import ParameterBox, frozen_array
from safe_sysid.schema.fields import StrictModel, problem
from safe_sysid.whole_files import write_text

__all__ = ["SCHEMA", "SavedBounds", "bounds_box", "bounds_of", "bounds_text", "read_bounds", "write_bounds"]

SCHEMA = 2
_HEAD = """# Bounds of the inertial parameters of the last link with hand and payload, in the frame of {joint}.
# Inertia about its origin. `safe-sysid identify` wrote them; nodes load them as `bounds_file` (docs/use/identify.md).
"""
_ASSUMED = "# Declared when they were found: they hold under this, and are refused where anything else is declared.\n"


@dataclass(frozen=True, eq=False)
class SavedBounds:
    """Contents of a bounds file."""

    robot: str
    identity: str  #: digest of all of the robot that they rest on, scope ``bounds`` of :mod:`safe_sysid.robot.identity`
    joint: str  #: name of the last joint, whose frame they are in
    #: epoch, seq: identity of the box that they come from; box 0 of an epoch is the prior
    epoch: int
    seq: int
    #: lower, upper, nominal: (10,), order of ``PAYLOAD_NAMES``
    lower: FloatArray
    upper: FloatArray
    nominal: FloatArray
    method: str  #: how they were found
    guaranteed: bool  #: whether the method proves them
    certificate: str = ""  #: path of the certificate, relative to the file; empty if there is none
    assumed: Mapping[str, Any] = field(default_factory=dict)  #: what was declared about it, of the same

    def __post_init__(self) -> None:
        for name in ("lower", "upper", "nominal"):
            object.__setattr__(self, name, frozen_array(getattr(self, name), (10,), f"Bounds.{name}"))


class _SavedBound(StrictModel):
    unit: str
    lower: float
    nominal: float
    upper: float

    @model_validator(mode="after")
    def _ordered(self) -> _SavedBound:
        if not self.lower <= self.nominal <= self.upper:
            raise problem(
                f"lower <= nominal <= upper, {self.lower} <= {self.nominal} <= {self.upper}",
                below=("nominal",),
                value=self.nominal,
            )
        return self


class _BoundsFile(StrictModel):
    schema_version: Annotated[int, Field(alias="schema", ge=SCHEMA, le=SCHEMA)]
    robot: str
    identity: Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]
    joint: str
    epoch: Annotated[int, Field(ge=0)]
    seq: Annotated[int, Field(ge=0)]
    method: str
    guaranteed: bool
    certificate: str = ""
    bounds: dict[str, _SavedBound]
    assumed: dict[str, Any]

    @model_validator(mode="after")
    def _ten(self) -> _BoundsFile:
        if tuple(self.bounds) != PAYLOAD_NAMES:
            raise problem(
                f"the ten parameters {', '.join(PAYLOAD_NAMES)}, in this order",
                below=("bounds",),
                value=list(self.bounds),
            )
        for name, unit in zip(PAYLOAD_NAMES, PAYLOAD_UNITS, strict=True):
            if self.bounds[name].unit != unit:
                raise problem(f"unit {unit}", below=("bounds", name, "unit"), value=self.bounds[name].unit)
        return self


def bounds_of(
    model: RobotModel,
    values: tuple[FloatArray, FloatArray, FloatArray],
    box: tuple[int, int],
    method: str,
    guaranteed: bool,
    certificate: str,
) -> SavedBounds:
    """Contents of the bounds file of a robot: what it is of, and under which assumptions, follows from the robot.

    Args:
        values: lower, nominal, upper, each (10,).
        box: epoch and sequence number of the box that they come from.
        method: how they were found.
        guaranteed: whether the method proves them.
        certificate: name of the last certificate; empty if there is none.
    """
    content = identity(model, "bounds")
    lower, nominal, upper = values
    return SavedBounds(
        robot=model.name,
        identity=digest(content),
        joint=model.joint_names[-1],
        epoch=box[0],
        seq=box[1],
        lower=lower,
        upper=upper,
        nominal=nominal,
        method=method,
        guaranteed=guaranteed,
        certificate=certificate,
        assumed=content["declared"],
    )


def bounds_text(bounds: SavedBounds) -> str:
    """The whole text of a bounds file; every number is written so that it reads back the same."""
    entries = {
        name: {
            "unit": unit,
            "lower": float(bounds.lower[i]),
            "nominal": float(bounds.nominal[i]),
            "upper": float(bounds.upper[i]),
        }
        for i, (name, unit) in enumerate(zip(PAYLOAD_NAMES, PAYLOAD_UNITS, strict=True))
    }
    data: dict[str, Any] = {"schema": SCHEMA}
    for name in ("robot", "identity", "joint", "epoch", "seq", "method", "guaranteed", "certificate"):
        data[name] = getattr(bounds, name)
    head = _HEAD.format(joint=bounds.joint) + yaml.safe_dump(data | {"bounds": entries}, sort_keys=False, width=120)
    assumed = yaml.safe_dump({"assumed": dict(bounds.assumed)}, sort_keys=False, width=120)
    return head + _ASSUMED + assumed


def write_bounds(path: str | Path, bounds: SavedBounds) -> None:
    """Write a bounds file, whole or not at all.

    Raises:
        LogError: it cannot be written.
    """
    path = Path(path)
    try:
        write_text(path, bounds_text(bounds))
    except OSError as error:
        raise LogError(f"{path}: cannot be written: {error.strerror or error}") from error


def read_bounds(path: str | Path) -> SavedBounds:
    """Read a bounds file.

    Raises:
        ConfigError: not YAML, a key or number missing, of the wrong kind or out of order.
    """
    file = validate(str(path), read_yaml(path), _BoundsFile)
    rows = [file.bounds[name] for name in PAYLOAD_NAMES]
    return SavedBounds(
        file.robot,
        file.identity,
        file.joint,
        file.epoch,
        file.seq,
        np.array([row.lower for row in rows]),
        np.array([row.upper for row in rows]),
        np.array([row.nominal for row in rows]),
        file.method,
        file.guaranteed,
        file.certificate,
        file.assumed,
    )


def bounds_box(bounds: SavedBounds, model: RobotModel, file: str) -> ParameterBox:
    """The box that a run with the same payload may start with: the prior, cut by the bounds; of the file's identity.

    Raises:
        ConfigError: they are for another robot or under other assumptions, are not guaranteed, say that they are the
            prior (box 0 of an epoch), or contradict the prior.
    """
    if bounds.robot != model.name or bounds.joint != model.joint_names[-1]:
        raise ConfigError(file, "robot", bounds.robot, f"{model.name}, with last joint {model.joint_names[-1]}")
    content = identity(model, "bounds")
    for key, theirs, ours in differences(dict(bounds.assumed), content["declared"]):
        raise ConfigError(
            file,
            f"assumed.{key}",
            theirs,
            f"{ours!r}, as {model.name} declares here: bounds hold under what they were identified with (give the "
            "same settings, as --set or robot_settings)",
        )
    if bounds.identity != (ours := digest(content)):
        raise ConfigError(
            file, "identity", bounds.identity[:12], f"{ours[:12]}, that of this arm's kinematics and prior"
        )
    if not bounds.guaranteed:
        raise ConfigError(file, "guaranteed", False, "bounds that are proved (method lp or sdp)")
    if bounds.seq == 0:
        raise ConfigError(file, "seq", 0, "at least 1: box 0 of an epoch is the robot's prior")
    prior = model.arm_prior
    lower = np.maximum(bounds.lower, prior.payload_lower)
    upper = np.minimum(bounds.upper, prior.payload_upper)
    for i in np.flatnonzero(lower > upper):
        raise ConfigError(
            file,
            f"bounds.{PAYLOAD_NAMES[i]}",
            [float(bounds.lower[i]), float(bounds.upper[i])],
            f"an interval that meets the prior {bracketed(prior.payload_lower[i], prior.payload_upper[i], 3)}",
        )
    box = ParameterBox(prior.lower, prior.upper, bounds.epoch, 0)
    return box.with_payload(lower, upper, bounds.seq)
