"""What an identification found, as a validated structure: `result.json` is this and nothing else (docs/identify.md)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, Field, FiniteFloat

from safe_sysid.robot.model import RobotModel
from safe_sysid.robot.parameters import (
    PAYLOAD_NAMES,
    PAYLOAD_UNITS,
    pseudo_inertia,
    pseudo_inertia_to_theta,
    transform_inertial,
)
from safe_sysid.whole_files import write_text

__all__ = [
    "FindingEntry",
    "IdentificationResult",
    "LogEntry",
    "ParameterEntry",
    "PayloadAlone",
    "UpdateEntry",
    "payload_alone",
    "write_result",
]

FloatArray = NDArray[np.float64]
Ten = Annotated[list[FiniteFloat], Field(min_length=10, max_length=10)]
Count = Annotated[int, Field(ge=0)]


class _Model(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)


class ParameterEntry(_Model):
    """One of the ten parameters of last link, hand and payload, in the last joint's frame."""

    name: str
    unit: str
    lower: FiniteFloat
    nominal: FiniteFloat
    upper: FiniteFloat
    prior_lower: FiniteFloat
    prior_upper: FiniteFloat

    @property
    def width_share(self) -> float:
        """Width over that of the prior."""
        prior = self.prior_upper - self.prior_lower
        return (self.upper - self.lower) / prior if prior > 0.0 else 1.0


class PayloadAlone(_Model):
    """The payload without the hand, in the tool frame, inertia about its origin; order of ``PAYLOAD_NAMES``.

    ``consistent``: the nominal difference was a possible body as it was; otherwise the nearest one stands there.
    """

    frame: str
    names: list[str]
    units: list[str]
    lower: Ten
    nominal: Ten
    upper: Ten
    consistent: bool


class UpdateEntry(_Model):
    """One update: bounds of theta_e after the samples up to ``time_s``."""

    time_s: FiniteFloat
    status: str
    lower: Ten
    nominal: Ten
    upper: Ten
    seconds: FiniteFloat
    rows: Count


class FindingEntry(_Model):
    """One finding of the checks of the log."""

    level: Literal["error", "warning"]
    code: str
    column: str
    value: str
    expected: str
    suggestion: str
    time_s: FiniteFloat | None
    count: Count
    text: str


class LogEntry(_Model):
    """The log that was used."""

    path: str
    samples: Count
    start_s: FiniteFloat
    end_s: FiniteFloat
    origin_ns: int
    scaled: list[str]
    sha256: str | None


class IdentificationResult(_Model):
    """Everything; ``exit_status`` as the command returns it."""

    schema_version: int = 1
    version: str
    robot: str
    frame: str
    method: str
    guaranteed: bool
    status: Literal["ok", "empty_set", "no_data"]
    message: str
    exit_status: int
    log: LogEntry
    tare: str | None
    declared: dict[str, str | None]
    parameters: Annotated[list[ParameterEntry], Field(min_length=10, max_length=10)]
    nominal_consistent: bool
    payload: PayloadAlone
    updates: list[UpdateEntry]
    rejected: dict[str, int]
    findings: list[FindingEntry]
    diagnosis: list[str]
    certificate: str | None
    seconds: dict[str, FiniteFloat]


def write_result(path: str | Path, result: IdentificationResult) -> None:
    """Write ``result.json``, whole or not at all.

    Args:
        path: of the file.
        result: to write.
    """
    text = json.dumps(result.model_dump(mode="json"), indent=2, allow_nan=False)
    write_text(path, text + "\n")


def payload_alone(
    model: RobotModel, lower: FloatArray, nominal: FloatArray, upper: FloatArray
) -> PayloadAlone:
    """The payload without the hand, in the tool frame.

    Args:
        model: with the hand's prior and the flange.
        lower: (10,) of theta_e, last joint's frame.
        nominal: (10,) of theta_e.
        upper: (10,) of theta_e.

    Returns:
        Intervals of ``theta_e - theta_hand - opening``, carried into the tool frame (wider there, as that is linear and
        mixes components), and the nominal difference, moved to the nearest possible body if it is none.
    """
    hand_lower, hand_upper = model.hand_prior
    opening = np.asarray(model.settings.payload.hand_opening, float)
    low, high = lower - hand_upper - opening, upper - hand_lower + opening
    rotation, translation = model.flange
    back, shift = rotation.T, -rotation.T @ translation
    linear = np.column_stack([transform_inertial(back, shift, unit) for unit in np.eye(10)])
    middle, radius = linear @ (0.5 * (low + high)), np.abs(linear) @ (0.5 * (high - low))
    radius = radius * (1.0 + 1e-12) + 1e-12  # far more than the rounding of ten products
    hand = model.theta_nominal[10 * (model.n - 1) : 10 * model.n]
    theta, consistent = _possible(linear @ (nominal - hand))
    return PayloadAlone(
        frame=model.settings.tool_frame,
        names=list(PAYLOAD_NAMES),
        units=list(PAYLOAD_UNITS),
        lower=[float(x) for x in middle - radius],
        nominal=[float(x) for x in theta],
        upper=[float(x) for x in middle + radius],
        consistent=consistent,
    )


def _possible(theta: FloatArray) -> tuple[FloatArray, bool]:
    """Ten parameters with their pseudo-inertia's negative eigenvalues set to zero, and whether there were none."""
    scale = np.diag([10.0, 10.0, 10.0, 1.0])  # lengths in 0.1 m: makes moments comparable with masses
    values, vectors = np.linalg.eigh(scale @ pseudo_inertia(theta) @ scale)
    if values[0] >= 0.0:
        return theta, True
    back = np.linalg.inv(scale) @ vectors
    return pseudo_inertia_to_theta(back @ np.diag(np.maximum(values, 0.0)) @ back.T), False
