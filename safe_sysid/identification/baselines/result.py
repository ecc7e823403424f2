"""Result of a comparison method."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from safe_sysid.core.arrays import FloatArray
from safe_sysid.errors import ParameterError
from safe_sysid.robot.parameters import frozen_array

__all__ = ["BaselineResult"]


@dataclass(frozen=True, eq=False)
class BaselineResult:
    """Estimate and interval of theta_e by one method.

    Raises:
        ParameterError: lower above upper, NaN, or a guarantee without bounds.
    """

    method: str
    estimate: FloatArray  #: (10,) theta_e
    lower: FloatArray  #: (10,) of the interval; minus infinity where the method gives none
    upper: FloatArray  #: (10,) of the interval
    guaranteed: bool  #: whether the interval is proved to hold the truth under the declared errors
    #: probability with which each component's interval is meant to hold it, if errors were as the method assumes; None
    #: for methods that do not speak of probability
    confidence: float | None
    message: str  #: why it is guaranteed, or why not
    consistent: bool = False  #: whether the estimate is physically consistent
    iterations: int = 0
    boundary: bool = False  #: whether the estimate lies on the boundary of the consistent set
    timings: Mapping[str, float] = field(default_factory=dict)  #: seconds, by stage

    def __post_init__(self) -> None:
        object.__setattr__(self, "estimate", frozen_array(self.estimate, (10,), "BaselineResult.estimate"))
        for name in ("lower", "upper"):
            value = frozen_array(getattr(self, name), (10,), f"BaselineResult.{name}", finite=False)
            object.__setattr__(self, name, value)
        if not np.all(self.lower <= self.upper):  # also false for NaN
            raise ParameterError(
                f"{self.method}: lower = {self.lower.tolist()}: expected at most upper = {self.upper.tolist()}"
            )
        if self.guaranteed and self.confidence is not None:
            raise ParameterError(f"{self.method}: guaranteed with confidence {self.confidence!r}: expected one of both")

    @property
    def half_widths(self) -> FloatArray:
        """(10,) half of upper minus lower."""
        return 0.5 * (self.upper - self.lower)

    def contains(self, theta: FloatArray) -> bool:
        """Whether theta_e (10,) lies in the interval."""
        return bool(np.all(self.lower <= theta) and np.all(theta <= self.upper))
