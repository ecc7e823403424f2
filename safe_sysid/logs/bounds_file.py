"""Bounds of the last link with hand and payload as a YAML file: what identification writes and the nodes load."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import yaml
from numpy.typing import NDArray
from pydantic import Field, model_validator

from safe_sysid.errors import ConfigError
from safe_sysid.logs.log import LogError
from safe_sysid.robot.fields import StrictModel, problem
from safe_sysid.robot.model import RobotModel
from safe_sysid.robot.parameters import PAYLOAD_NAMES, PAYLOAD_UNITS, ParameterBox, frozen_array
from safe_sysid.robot.yaml_file import read_yaml, validate
from safe_sysid.whole_files import write_text

__all__ = ["SCHEMA", "Bounds", "bounds_box", "prior_digest", "read_bounds", "write_bounds"]

FloatArray = NDArray[np.float64]
SCHEMA = 1
_HEAD = """# Bounds of the inertial parameters of the last link with hand and payload, in the frame of {joint}.
# Inertia about its origin. `safe-sysid identify` wrote them; nodes load them as `bounds_file` (docs/identify.md).
"""


@dataclass(frozen=True, eq=False)
class Bounds:
    """Contents of a bounds file.

    Attributes:
        robot: name of the robot.
        prior: digest of the prior box that they start from, :func:`prior_digest`.
        joint: name of the last joint, whose frame they are in.
        epoch, seq: identity of the box that they come from.
        lower, upper, nominal: (10,), order of ``PAYLOAD_NAMES``.
        method: how they were found.
        guaranteed: whether the method proves them.
        certificate: path of the certificate, relative to the file; empty if there is none.
    """

    robot: str
    prior: str
    joint: str
    epoch: int
    seq: int
    lower: FloatArray
    upper: FloatArray
    nominal: FloatArray
    method: str
    guaranteed: bool
    certificate: str = ""

    def __post_init__(self) -> None:
        """Freeze the arrays."""
        for name in ("lower", "upper", "nominal"):
            object.__setattr__(self, name, frozen_array(getattr(self, name), (10,), f"Bounds.{name}"))


class _Entry(StrictModel):
    unit: str
    lower: float
    nominal: float
    upper: float

    @model_validator(mode="after")
    def _ordered(self) -> _Entry:
        if not self.lower <= self.nominal <= self.upper:
            raise problem(
                f"lower <= nominal <= upper, {self.lower} <= {self.nominal} <= {self.upper}",
                below=("nominal",),
                value=self.nominal,
            )
        return self


class _File(StrictModel):
    schema_version: Annotated[int, Field(alias="schema", ge=SCHEMA, le=SCHEMA)]
    robot: str
    prior: Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]
    joint: str
    epoch: Annotated[int, Field(ge=0)]
    seq: Annotated[int, Field(ge=0)]
    method: str
    guaranteed: bool
    certificate: str = ""
    bounds: dict[str, _Entry]

    @model_validator(mode="after")
    def _ten(self) -> _File:
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


def prior_digest(model: RobotModel) -> str:
    """SHA-256 over what bounds depend on: joint names, kinematics and prior box; bounds fit only the same arm."""
    digest = hashlib.sha256("\n".join(model.joint_names).encode())
    box, kin = model.arm_prior, model.kinematics
    travel = (kin.travel,) if np.any(kin.sliding) else ()
    for array in (kin.rotation, kin.translation, kin.axis, kin.gravity, *travel, box.lower, box.upper):
        digest.update(np.ascontiguousarray(array, "<f8").tobytes())
    return digest.hexdigest()


def write_bounds(path: str | Path, bounds: Bounds) -> None:
    """Write a bounds file, whole or not at all; every number is written so that it reads back the same.

    Args:
        path: of the YAML file.
        bounds: its contents.

    Raises:
        LogError: it cannot be written.
    """
    path = Path(path)
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
    for name in ("robot", "prior", "joint", "epoch", "seq", "method", "guaranteed", "certificate"):
        data[name] = getattr(bounds, name)
    data["bounds"] = entries
    text = _HEAD.format(joint=bounds.joint) + yaml.safe_dump(data, sort_keys=False, width=120)
    try:
        write_text(path, text)
    except OSError as error:
        raise LogError(f"{path}: cannot be written: {error.strerror or error}") from error


def read_bounds(path: str | Path) -> Bounds:
    """Read a bounds file.

    Args:
        path: of the YAML file.

    Raises:
        ConfigError: not YAML, a key or number missing, of the wrong kind or out of order.
    """
    file = validate(str(path), read_yaml(path), _File)
    rows = [file.bounds[name] for name in PAYLOAD_NAMES]
    return Bounds(
        file.robot,
        file.prior,
        file.joint,
        file.epoch,
        file.seq,
        np.array([row.lower for row in rows]),
        np.array([row.upper for row in rows]),
        np.array([row.nominal for row in rows]),
        file.method,
        file.guaranteed,
        file.certificate,
    )


def bounds_box(bounds: Bounds, model: RobotModel, file: str, epoch: int = 0) -> ParameterBox:
    """The box that a run with the same payload may start with: the prior, cut by the bounds.

    Args:
        bounds: read from a file.
        model: the arm.
        file: for messages.
        epoch: of the box.

    Raises:
        ConfigError: they are for another robot or prior, are not guaranteed, or contradict the prior.
    """
    if bounds.robot != model.name or bounds.joint != model.joint_names[-1]:
        raise ConfigError(
            file, "robot", bounds.robot, f"{model.name}, with last joint {model.joint_names[-1]}"
        )
    if bounds.prior != prior_digest(model):
        raise ConfigError(
            file, "prior", bounds.prior[:12], f"{prior_digest(model)[:12]}, the prior of this arm"
        )
    if not bounds.guaranteed:
        raise ConfigError(file, "guaranteed", False, "bounds that are proved (method lp or sdp)")
    prior = model.arm_prior
    lower = np.maximum(bounds.lower, prior.payload_lower)
    upper = np.minimum(bounds.upper, prior.payload_upper)
    for i in np.flatnonzero(lower > upper):
        raise ConfigError(
            file,
            f"bounds.{PAYLOAD_NAMES[i]}",
            [float(bounds.lower[i]), float(bounds.upper[i])],
            f"an interval that meets the prior [{prior.payload_lower[i]:g}, {prior.payload_upper[i]:g}]",
        )
    return ParameterBox(prior.lower, prior.upper, epoch, 0).with_payload(lower, upper, 0)
