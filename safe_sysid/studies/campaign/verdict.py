"""The judge of a trial: every update against the truth, every equation too."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from safe_sysid.core.arrays import BoolArray, FloatArray
from safe_sysid.core.layout import PAYLOAD_NAMES, ParameterLayout
from safe_sysid.identification.equations.measurement_errors import MeasurementErrors
from safe_sysid.identification.equations.measurements import Measurements
from safe_sysid.identification.equations.momentum import MomentumRows
from safe_sysid.identification.equations.row_errors import ERROR_CAUSES
from safe_sysid.identification.equations.stream import MomentumStream, default_windows
from safe_sysid.identification.identifier import UpdateResult, UpdateStatus
from safe_sysid.robot.model import RobotModel
from safe_sysid.robot.parameters import ParameterBox

__all__ = ["TruthViolations"]


class TruthViolations:
    """Collects what is wrong. ``theta`` (14 n,) is the truth, in exact floats: no tolerance anywhere."""

    def __init__(
        self,
        theta: FloatArray,
        component: int,
        side: float,
        say: Callable[[str], None] | None = None,
        unknowns: FloatArray | None = None,
    ) -> None:
        """Nothing wrong so far.

        Args:
            theta: (14 n,) true parameters.
            component: index of the parameter of theta_e whose bound is attacked.
            side: 1 for the upper bound, -1 for the lower.
            unknowns: (E,) true constants of the arm; None: there are none.
        """
        self._theta, self._say = theta, say
        self._unknowns = np.zeros(0) if unknowns is None else unknowns
        self._target = component + (10 if side > 0.0 else 0)
        self._truth = theta[ParameterLayout.of_size(len(theta)).payload]
        self._last: ParameterBox | None = None
        self._prior: ParameterBox | None = None
        self._widths: FloatArray = np.ones(10)
        self._solve = 0
        self.exclusions: list[dict[str, Any]] = []
        self.broken_rows: list[dict[str, Any]] = []
        self.empty: list[str] = []
        self.faults: list[str] = []
        self.largest_row = 0.0
        self.closest = np.inf
        self.gap = np.inf
        self.updates = 0
        self.failed = 0
        self.rejected = 0

    def begin(self, model: RobotModel, data: Measurements, row_theta: FloatArray) -> None:
        """A log is about to be identified; its equations are rebuilt here and judged one by one.

        ``row_theta``: (14 n,) true unknowns of the equations.
        """
        self._last = self._prior = model.arm_prior
        self._solve += 1
        if not self._prior.contains(self._theta):
            self.faults.append("the truth is outside the prior")
        errors = MeasurementErrors.from_model(model)
        stream = MomentumStream(model, errors, default_windows(model, errors), constants=True)
        rows = stream.push(data, model.arm_prior)
        if not (np.all(model.unknowns.lower <= self._unknowns) and np.all(self._unknowns <= model.unknowns.upper)):
            self.faults.append("an unknown constant is outside its interval")
        if rows is not None:
            self.rows(rows, row_theta)

    def rows(self, rows: MomentumRows, row_theta: FloatArray) -> None:
        """Judge equations. ``row_theta``: (14 n,) true unknowns."""
        if not len(rows):
            return
        off = rows.constants @ self._unknowns if rows.constants.shape[1] else 0.0
        ratio = np.abs(rows.matrix @ row_theta + off - rows.target) / rows.slack
        worst = int(np.argmax(ratio))
        self.largest_row = max(self.largest_row, float(ratio[worst]))
        if not ratio[worst] <= 1.0:
            parts = dict(zip(ERROR_CAUSES, (rows.parts[worst] / rows.slack[worst]).round(6).tolist(), strict=True))
            self.broken_rows.append(
                {
                    "solve": self._solve, "log": int(rows.log[worst]), "ratio": float(ratio[worst]),
                    "count": int(np.sum(~(ratio <= 1.0))),
                    "joint": int(rows.joint[worst]), "start": float(rows.start[worst]),
                    "end": float(rows.end[worst]), "ramp": float(rows.ramp[worst]), "parts": parts,
                }
            )  # fmt: skip

    def update(self, result: UpdateResult) -> None:
        """Judge one answer."""
        if self._last is None or self._prior is None:
            return
        self.updates += 1
        self.rejected = sum(result.rejected.values())
        if result.status is UpdateStatus.EMPTY_SET:
            if result.message not in self.empty:  # stays so until a reset
                self.empty.append(result.message)
        elif result.status is UpdateStatus.SOLVER_FAILED:
            self.failed += 1
        box = result.box
        below, above = box.payload_lower - self._truth, self._truth - box.payload_upper
        out = np.maximum(below, above)
        width = self._prior.payload_upper - self._prior.payload_lower
        for i in np.flatnonzero(~(out <= 0.0)):
            self.exclusions.append(
                {
                    "solve": self._solve, "update": self.updates, "component": PAYLOAD_NAMES[i],
                    "side": "lower" if below[i] > 0.0 else "upper", "by": float(out[i]),
                    "of_prior": float(out[i] / width[i]),
                }
            )  # fmt: skip
        if not box.is_inside(self._last):
            self.faults.append(f"update {self.updates}: the box is not inside the last one")
        rest = np.delete(np.arange(box.size), np.arange(box.size)[box.layout.payload])
        if not np.all((box.lower[rest] <= self._theta[rest]) & (self._theta[rest] <= box.upper[rest])):
            self.faults.append(f"update {self.updates}: the arm's own parameters are outside the box")
        if not np.all((box.payload_lower <= result.nominal) & (result.nominal <= box.payload_upper)):
            self.faults.append(f"update {self.updates}: the nominal is outside the box")
        self._last = box
        self._widths = (box.payload_upper - box.payload_lower) / width
        improved = np.concatenate(
            [box.payload_lower > self._prior.payload_lower, box.payload_upper < self._prior.payload_upper]
        )
        gaps = np.concatenate([-below, -above]) / np.tile(width, 2)
        self.gap = float(gaps[self._target]) if improved[self._target] else np.inf
        if np.any(improved):
            self.closest = min(self.closest, float(gaps[improved].min()))
        if self._say is not None:
            self._say(
                f"solve {self._solve}, update {self.updates}: {result.status.name}, widths over prior "
                f"{self._widths.round(4).tolist()}, attacked bound {self.gap:.3g}, nearest {self.closest:.3g}; "
                f"{result.message}"
            )

    def nearest_bound(self, lower: FloatArray, upper: FloatArray, model: RobotModel) -> int:
        """Which of the bounds ``lower`` and ``upper``, (10,), is nearest to the truth, of those that data improved.

        Lower ones are 0 to 9, upper ones 10 to 19.
        """
        prior = model.arm_prior
        width = prior.payload_upper - prior.payload_lower
        gaps = np.concatenate([self._truth - lower, upper - self._truth]) / np.tile(width, 2)
        improved = _improved(lower, upper, prior)
        return int(np.argmin(np.where(improved, gaps, np.inf)))

    @property
    def is_sound(self) -> bool:
        """Whether nothing is wrong."""
        return not (self.exclusions or self.broken_rows or self.empty or self.faults)

    def to_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {
            "exclusions": self.exclusions,
            "empty": self.empty,
            "broken_rows": self.broken_rows,
            "faults": self.faults,
            "width_ratio": float(np.median(self._widths)),
            "widths": [float(f"{w:.6g}") for w in self._widths],
            "closest": None if np.isinf(self.closest) else float(f"{self.closest:.6g}"),
            "gap": None if np.isinf(self.gap) else float(f"{self.gap:.6g}"),
            "largest_row": float(f"{self.largest_row:.9g}"),
            "updates": self.updates,
            "failed": self.failed,
            "rejected": self.rejected,
        }


def _improved(lower: FloatArray, upper: FloatArray, prior: ParameterBox) -> BoolArray:
    return np.concatenate([lower > prior.payload_lower, upper < prior.payload_upper])
