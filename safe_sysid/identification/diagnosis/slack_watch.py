"""Slack watch: how much of the declared errors the data leave unused, as an early warning of a contradiction."""

from __future__ import annotations

from safe_sysid.identification.diagnosis.elastic import scaled_problem
from safe_sysid.identification.diagnosis.structural import margin
from safe_sysid.identification.equations.measurement_errors import MeasurementErrors, sensor_prior
from safe_sysid.identification.equations.momentum import MomentumRows
from safe_sysid.robot.model import RobotModel
from safe_sysid.robot.parameters import ParameterBox

__all__ = ["SlackWatch"]

#: A margin that was at least as large at first, and one that is used up: shares of the declared errors. Between the two
#: more data explain it: the largest of more errors is larger.
_LARGE, _LITTLE = 0.25, 0.05


class SlackWatch:
    """Remembers the margin: the share of every slack that could be given up before no parameters agree.

    Noise that fills its declared bounds leaves hardly any margin (7 % after the first update, 1 % after some): that is
    no fault. A margin that was large and is used up is: something has changed that the declarations did not foresee.
    """

    def __init__(self, model: RobotModel, errors: MeasurementErrors) -> None:
        self._model, self._errors = model, errors
        self.margins: list[float] = []

    def reset(self) -> None:
        """Forget the margin, because the payload is another one."""
        self.margins = []

    def update(self, rows: MomentumRows, box: ParameterBox) -> float:
        """Margin now, 1 without equations, negative if none agree.

        ``box``: the prior, or any box that holds the truth.
        """
        if not len(rows):
            return 1.0
        matrix, target, _ = scaled_problem(self._model, self._errors, rows, sensor_prior(box, self._errors))
        solution = margin(matrix, target)
        if not solution.feasible:
            return self.margins[-1] if self.margins else 1.0  # the solver gave up
        # Rows that were forgotten since do not give any margin back.
        self.margins.append(min([-solution.value, *self.margins[-1:]]))
        return self.margins[-1]

    @property
    def falling(self) -> bool:
        """Whether a margin that was large at first is used up."""
        return len(self.margins) > 1 and self.margins[0] >= _LARGE and self.margins[-1] < _LITTLE

    def text(self) -> str:
        """Description in words."""
        if not self.margins:
            return "no equations yet"
        text = f"{100.0 * self.margins[-1]:.2g} % of the declared errors left unused"
        if self.falling:
            text += f", was {100.0 * self.margins[0]:.2g} % at first: errors are larger than before"
        return text
