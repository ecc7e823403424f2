"""What an identification found, as a validated structure: `result.json` is this and nothing else (docs/identify.md)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, Field, FiniteFloat

from safe_sysid.robot.model import RobotModel
from safe_sysid.robot.parameters import PAYLOAD_NAMES, PAYLOAD_UNITS
from safe_sysid.robot.payload_alone import payload_bounds
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
    """The payload without the hand, in the tool frame: :func:`safe_sysid.robot.payload_alone.payload_bounds`.

    Args:
        model: with the hand's prior and the flange.
        lower: (10,) of theta_e, last joint's frame.
        nominal: (10,) of theta_e.
        upper: (10,) of theta_e.
    """
    alone = payload_bounds(model, lower, nominal, upper)
    return PayloadAlone(
        frame=model.settings.tool_frame,
        names=list(PAYLOAD_NAMES),
        units=list(PAYLOAD_UNITS),
        lower=alone.lower.tolist(),
        nominal=alone.nominal.tolist(),
        upper=alone.upper.tolist(),
        consistent=alone.consistent,
    )
