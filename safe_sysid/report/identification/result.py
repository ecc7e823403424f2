"""What an identification found, as a validated structure: `result.json` is this (docs/use/identify.md)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Literal

from pydantic import AliasChoices, Field, FiniteFloat

from safe_sysid.core.arrays import FloatArray
from safe_sysid.core.layout import PAYLOAD_NAMES, PAYLOAD_UNITS
from safe_sysid.decimals import bracketed, estimate_text, share_at_most
from safe_sysid.identification.payload_alone import payload_bounds
from safe_sysid.report.interval_row import IntervalRow, Record
from safe_sysid.robot.model import RobotModel
from safe_sysid.whole_files import write_text

__all__ = [
    "FindingEntry",
    "IdentificationResult",
    "LogEntry",
    "ParameterEntry",
    "PayloadAlone",
    "ResultUpdate",
    "payload_alone",
    "write_result",
]

Ten = Annotated[list[FiniteFloat], Field(min_length=10, max_length=10)]
Count = Annotated[int, Field(ge=0)]


class ParameterEntry(IntervalRow):
    """One of the ten parameters, with the statistical error of its estimate."""

    standard_error: Annotated[FiniteFloat, Field(ge=0.0)] | None = None

    @property
    def texts(self) -> tuple[str, str, str]:
        """Lower end, nominal, upper end for people, rounded outward."""
        return estimate_text(self.lower, self.nominal, self.upper, 3)

    @property
    def error_text(self) -> str:
        """Standard error for people; a dash where there is none."""
        return "-" if self.standard_error is None else f"{self.standard_error:.2g}"

    @property
    def prior_text(self) -> str:
        """The prior for people, rounded outward."""
        return bracketed(self.prior_lower, self.prior_upper, 3)

    @property
    def share_text(self) -> str:
        """Width in percent of the prior's for people, rounded up."""
        return share_at_most(self.width_share)


class PayloadAlone(Record):
    """The payload without the hand, in the tool frame, inertia about its origin; order of ``PAYLOAD_NAMES``.

    ``consistent``: the nominal difference was a possible body as it was; otherwise one inside the intervals near it
    stands there. ``possible``: it is a possible body; if not, none was found there, and it is no estimate.
    """

    frame: str
    names: list[str]
    units: list[str]
    lower: Ten
    nominal: Ten
    upper: Ten
    consistent: bool
    possible: bool

    @property
    def texts(self) -> list[tuple[str, str, str]]:
        """Lower end, nominal (a dash if it is no estimate), upper end of each parameter for people, rounded outward."""
        texts = [
            estimate_text(low, nominal, high, 3)
            for low, nominal, high in zip(self.lower, self.nominal, self.upper, strict=True)
        ]
        return texts if self.possible else [(low, "-", high) for low, _, high in texts]


class ResultUpdate(Record):
    """One update: bounds of theta_e after the samples up to ``time_s``."""

    time_s: FiniteFloat
    status: str
    lower: Ten
    nominal: Ten
    upper: Ten
    seconds: FiniteFloat
    rows: Count


class FindingEntry(Record):
    """One finding of the checks of the log."""

    level: Literal["error", "warning"]
    code: str
    column: str
    value: str
    expected: str
    suggestion: str
    time_s: FiniteFloat | None = Field(validation_alias=AliasChoices("time_s", "time"))
    count: Count
    text: str


class LogEntry(Record):
    """The log that was used."""

    path: str
    samples: Count
    start_s: FiniteFloat
    end_s: FiniteFloat
    origin_ns: int
    scaled: list[str]
    filtered_hz: FiniteFloat | None
    sha256: str | None


class IdentificationResult(Record):
    """Everything; ``exit_status`` as the command returns it.

    ``errors_used``: how much of the declared errors the data use up, the largest ``|residual| / half width`` over the
    equations kept, at the parameters of the prior that make it least; null where nothing was proved. Near 0 the log
    tests little of what is declared. ``standard_error``, ``payload_mass_error``: statistical, of the nominal; no bound.
    ``width_causes``: shares of the width of the mass, as the proofs' multipliers have it.
    """

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
    errors_used: Annotated[FiniteFloat, Field(ge=0.0)] | None
    payload_mass_error: Annotated[FiniteFloat, Field(ge=0.0)] | None = None
    width_causes: dict[str, FiniteFloat] = Field(default_factory=dict)
    payload: PayloadAlone
    updates: list[ResultUpdate]
    rejected: dict[str, int]
    findings: list[FindingEntry]
    diagnosis: list[str]
    certificate: str | None
    seconds: dict[str, FiniteFloat]


def write_result(path: str | Path, result: IdentificationResult) -> None:
    """Write ``result.json``, whole or not at all."""
    text = json.dumps(result.model_dump(mode="json"), indent=2, allow_nan=False)
    write_text(path, text + "\n")


def payload_alone(model: RobotModel, lower: FloatArray, nominal: FloatArray, upper: FloatArray) -> PayloadAlone:
    """The payload without the hand, in the tool frame: :func:`safe_sysid.identification.payload_alone.payload_bounds`.

    Args:
        model: with the hand's prior and the flange.
        lower: (10,) of theta_e, last joint's frame.
        nominal: (10,) of theta_e.
        upper: (10,) of theta_e.
    """
    alone = payload_bounds(model, lower, nominal, upper)
    return PayloadAlone(
        frame=model.payload_link,
        names=list(PAYLOAD_NAMES),
        units=list(PAYLOAD_UNITS),
        lower=alone.lower.tolist(),
        nominal=alone.nominal.tolist(),
        upper=alone.upper.tolist(),
        consistent=alone.consistent,
        possible=alone.possible,
    )
