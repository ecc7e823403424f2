"""An interval of one of the ten parameters, against its prior, as files of results have it."""

from __future__ import annotations

from fractions import Fraction
from typing import TypeVar

import numpy as np
from numpy.typing import ArrayLike
from pydantic import BaseModel, ConfigDict, FiniteFloat

from safe_sysid.core.layout import PAYLOAD_NAMES, PAYLOAD_UNITS
from safe_sysid.decimals import width_share

__all__ = ["IntervalRow", "Record"]


RowT = TypeVar("RowT", bound="IntervalRow")


class Record(BaseModel):
    """Base of what files of results are made of: known keys, finite numbers, never changed."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)


class IntervalRow(Record):
    """One of the ten parameters of last link, hand and payload, in the last joint's frame."""

    name: str
    unit: str
    lower: FiniteFloat
    nominal: FiniteFloat
    upper: FiniteFloat
    prior_lower: FiniteFloat
    prior_upper: FiniteFloat

    @classmethod
    def ten(cls: type[RowT], **columns: ArrayLike | None) -> list[RowT]:
        """All of them, from a column (10,) for each field but name and unit; None: a field that says nothing."""
        return [
            cls.model_validate(
                {"name": name, "unit": unit}
                | {key: None if column is None else float(np.asarray(column)[i]) for key, column in columns.items()}
            )
            for i, (name, unit) in enumerate(zip(PAYLOAD_NAMES, PAYLOAD_UNITS, strict=True))
        ]

    @property
    def width_share(self) -> Fraction:
        """Width over that of the prior, exactly."""
        return width_share(self.lower, self.upper, self.prior_lower, self.prior_upper)
