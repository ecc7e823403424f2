"""Measurements in, nested proved bounds of what the hand holds out. No ROS; clocks only time the stages."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum

import numpy as np
from numpy.typing import NDArray

from safe_sysid.identification.feasible_set import FeasibleSet
from safe_sysid.identification.measurement_errors import MeasurementErrors
from safe_sysid.identification.measurements import Measurements
from safe_sysid.identification.nominal import NominalEstimate
from safe_sysid.identification.stream import MomentumStream, default_windows
from safe_sysid.robot.model import RobotModel
from safe_sysid.robot.parameters import ParameterBox, frozen_array

__all__ = ["Identifier", "UpdateResult", "UpdateStatus"]

FloatArray = NDArray[np.float64]


class UpdateStatus(Enum):
    """What became of an update."""

    OK = "bounds updated"
    NO_DATA = "no new equation since the last update"
    EMPTY_SET = "no parameters agree with all measurements: a declared assumption is false"
    SOLVER_FAILED = "the solver gave no usable answer; the last bounds stand"


@dataclass(frozen=True, eq=False)
class UpdateResult:
    """One update.

    Attributes:
        status: what became of it.
        message: one line for people.
        box: all 14 n parameters; only the theta_e block ever changes within an epoch, and only shrinks.
        nominal: (10,) a plausible theta_e inside the bounds.
        nominal_consistent: whether it is physically consistent.
        widths: (10,) upper minus lower of theta_e.
        rejected: samples and windows rejected so far, by reason.
        rows: equations in the feasible set.
        timings: seconds, by stage.
    """

    status: UpdateStatus
    message: str
    box: ParameterBox
    nominal: FloatArray
    nominal_consistent: bool
    widths: FloatArray
    rejected: Mapping[str, int]
    rows: int
    timings: Mapping[str, float] = field(default_factory=dict)


class Identifier:
    """Keeps the polytope of parameters that agree with the measurements of one payload (one epoch)."""

    def __init__(
        self,
        model: RobotModel,
        errors: MeasurementErrors | None = None,
        windows: tuple[float, ...] | None = None,
        max_rows: int = 6000,
        epoch: int = 0,
    ) -> None:
        """Start with the prior.

        Args:
            model: the arm; its ``arm_prior`` holds the truth.
            errors: declared bounds; None for those of the configuration.
            windows: lengths of the momentum windows, s; None for :func:`default_windows`.
            max_rows: equations kept between updates.
            epoch: of the first box.
        """
        self._model = model
        self._errors = MeasurementErrors.from_model(model) if errors is None else errors
        self._windows = default_windows(model, self._errors) if windows is None else windows
        self._max_rows = max_rows
        self._start(ParameterBox(model.arm_prior.lower, model.arm_prior.upper, epoch, 0))

    def _start(self, prior: ParameterBox) -> None:
        self.box = prior
        self._stream = MomentumStream(self._model, self._errors, self._windows)
        self._set = FeasibleSet(prior, self._max_rows)
        self._estimate = NominalEstimate(prior)
        self._nominal, self._consistent = self._estimate.estimate(prior)
        self._fresh = 0
        self._empty: str | None = None
        self._row_seconds = 0.0

    def reset(self) -> ParameterBox:
        """Forget this payload: new epoch, prior bounds. Only at rest; the caller sees to that."""
        prior = self._model.arm_prior
        self._start(ParameterBox(prior.lower, prior.upper, self.box.epoch + 1, 0))
        return self.box

    def add(self, measurements: Measurements) -> int:
        """Take samples in, in order of arrival; returns how many equations they completed.

        Costs some milliseconds however few they are: feed batches of 0.1 s or more, not single samples.

        Raises:
            ParameterError: the number of joints is not the arm's.
        """
        start = time.perf_counter()
        rows = self._stream.push(measurements, self.box)
        if rows is not None:
            self._set.add(rows)
            self._estimate.add(rows)
            self._fresh += len(rows)
        self._row_seconds += time.perf_counter() - start
        return 0 if rows is None else len(rows)

    def update(self) -> UpdateResult:
        """Bound theta_e by all equations so far. Never raises for what the data say."""
        timings = {"rows": self._row_seconds}
        self._row_seconds = 0.0
        if self._empty is not None:
            return self._result(UpdateStatus.EMPTY_SET, self._empty, timings)
        if not self._fresh:
            return self._result(UpdateStatus.NO_DATA, UpdateStatus.NO_DATA.value, timings)
        payload = self.box.payload_slice
        start = time.perf_counter()
        bounds = self._set.bound(np.arange(payload.start, payload.stop), self.box)
        timings["programs"] = time.perf_counter() - start
        if bounds.empty:
            self._empty = f"{UpdateStatus.EMPTY_SET.value}; {self._blame(bounds.culprit)}"
            return self._result(UpdateStatus.EMPTY_SET, self._empty, timings)
        if not bounds.solved:
            return self._result(UpdateStatus.SOLVER_FAILED, UpdateStatus.SOLVER_FAILED.value, timings)
        self._fresh = 0
        self.box = self.box.with_payload(bounds.lower, bounds.upper, self.box.seq + 1)
        start = time.perf_counter()
        self._nominal, self._consistent = self._estimate.estimate(self.box)
        timings["nominal"] = time.perf_counter() - start
        start = time.perf_counter()
        self._set.prune()
        timings["prune"] = time.perf_counter() - start
        message = f"{UpdateStatus.OK.value}: {bounds.solved} programs solved, {len(self._set)} equations kept"
        return self._result(UpdateStatus.OK, message, timings)

    def _blame(self, row: int) -> str:
        if row < 0:
            return "no single window stands out"
        rows = self._set.rows
        return (
            f"largest part in the proof: joint {self._model.joint_names[int(rows.joint[row])]}, "
            f"window {rows.start[row]:.4f} .. {rows.end[row]:.4f} s"
        )

    def _result(self, status: UpdateStatus, message: str, timings: Mapping[str, float]) -> UpdateResult:
        # Clipped again: after an update that failed the nominal belongs to an older, larger box.
        nominal = np.clip(self._nominal, self.box.payload_lower, self.box.payload_upper)
        return UpdateResult(
            status=status,
            message=message,
            box=self.box,
            nominal=frozen_array(nominal, (10,), "nominal"),
            nominal_consistent=self._consistent,
            widths=frozen_array(self.box.payload_upper - self.box.payload_lower, (10,), "widths"),
            rejected=dict(self._stream.rejected),
            rows=len(self._set),
            timings=timings,
        )
