"""Measurements in, nested proved bounds of what the hand holds out. No ROS; clocks only time the stages."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum

import numpy as np

from safe_sysid.core.arrays import FloatArray
from safe_sysid.errors import ParameterError
from safe_sysid.identification.bounds.consistency import CutSet
from safe_sysid.identification.bounds.drift import checked_drift, enlarged
from safe_sysid.identification.bounds.feasible_set import FeasibleSet
from safe_sysid.identification.bounds.joint_rows import LinearBounds
from safe_sysid.identification.bounds.payload_constraints import PayloadConstraints
from safe_sysid.identification.bounds.proof import UpdateProof
from safe_sysid.identification.equations.measurement_errors import MeasurementErrors, sensor_prior
from safe_sysid.identification.equations.measurements import Measurements
from safe_sysid.identification.equations.momentum import MomentumRows
from safe_sysid.identification.equations.stream import MomentumStream, default_windows
from safe_sysid.identification.estimates.nominal import NominalEstimate
from safe_sysid.identification.settings import METHODS
from safe_sysid.robot.model import RobotModel
from safe_sysid.robot.parameters import ParameterBox, frozen_array

__all__ = ["Identifier", "UpdateResult", "UpdateStatus"]

#: An update that narrows no interval by this share is none; one by the second share was worth the programs: if it is
#: less, the next update waits, twice as long each time, up to so many updates.
_LEAST, _WORTH, _LONGEST_WAIT = 1e-3, 0.01, 16
#: News, in slacks and over those of the last programs, that do not wait: what contradicts is far outside.
_LOUD = 2.0
_CUT_WORDS = {
    "semidefinite": "that the payload is a real body",
    "box": "the declared box of the payload",
    "density": "its declared density",
}


class UpdateStatus(Enum):
    """Status of an update."""

    OK = "bounds updated"
    NO_DATA = "nothing new since the last update"
    EMPTY_SET = "no parameters agree with all measurements: a declared assumption is false"
    SOLVER_FAILED = "the solver gave no usable answer; the last bounds stand"


@dataclass(frozen=True, eq=False)
class UpdateResult:
    """Result of one update."""

    status: UpdateStatus
    message: str
    box: ParameterBox  #: all 14 n parameters; only the theta_e block ever changes within an epoch, and only shrinks
    nominal: FloatArray  #: (10,) a plausible theta_e inside the bounds
    nominal_consistent: bool  #: whether it is physically consistent
    widths: FloatArray  #: (10,) upper minus lower of theta_e
    rejected: Mapping[str, int]  #: samples and windows rejected so far, by reason
    rows: int  #: equations in the feasible set
    timings: Mapping[str, float] = field(default_factory=dict)  #: seconds, by stage
    proof: UpdateProof | None = None  #: of the box just published, None if none was


class Identifier:
    """Keeps the polytope of parameters that agree with the measurements of one payload (one epoch)."""

    def __init__(
        self,
        model: RobotModel,
        errors: MeasurementErrors | None = None,
        windows: tuple[float, ...] | None = None,
        max_rows: int = 4000,
        epoch: int = 0,
        method: str | None = None,
        payload_constraints: PayloadConstraints | None = None,
        tare_rows: MomentumRows | None = None,
        tare_drift: FloatArray | None = None,
        thorough: bool = False,
    ) -> None:
        """Start with the prior.

        Args:
            model: the arm; its ``arm_prior`` holds the truth.
            errors: declared bounds; None for those of the configuration.
            windows: lengths of the momentum windows, s; None for :func:`default_windows`.
            method: one of :data:`METHODS`; None for the configuration's.
            payload_constraints: of hand and payload; None for what the configuration declares.
            tare_rows: equations of the empty arm (log = 1), of which ``theta_e`` is theta_h, as their log proves them.
            tare_drift: (3 n,) by how much Fc, Fv and beta may have changed since; None for not at all.
                :meth:`~safe_sysid.identification.tare.tare.Tare.options` gives both.

            thorough: spend what time it takes on every update: offline only.

        Raises:
            ParameterError: an unknown method; tare rows that are not marked as such; a drift of another shape or
                negative.
        """
        self._method = model.settings.identification.method if method is None else method
        if self._method not in METHODS:
            raise ParameterError(f"method = {method!r}: expected one of {', '.join(METHODS)}")
        if tare_rows is not None and not np.all(tare_rows.log == 1):
            raise ParameterError("tare_rows.log: expected 1 in every row, the mark of a log of the empty hand")
        self._payload_constraints = (
            PayloadConstraints.from_model(model) if payload_constraints is None else payload_constraints
        )
        self._tare_rows = tare_rows
        self._drift = checked_drift(None if tare_rows is None else tare_drift, model.layout)
        self._model = model
        self._errors = MeasurementErrors.from_model(model) if errors is None else errors
        self._windows = default_windows(model, self._errors) if windows is None else windows
        self._max_rows, self._thorough = max_rows, thorough
        self._start(ParameterBox(model.arm_prior.lower, model.arm_prior.upper, epoch, 0))

    def _start(self, prior: ParameterBox) -> None:
        self.box = prior
        self._stream = MomentumStream(self._model, self._errors, self._windows, constants=True)
        self._set = FeasibleSet(
            self._polytope_box(prior),
            self._max_rows,
            self._payload_constraints,
            self._method,
            self._tare_rows,
            self._drift,
            unknowns=self._model.unknowns,
            thorough=self._thorough,
        )
        self._estimate = NominalEstimate(self._polytope_box(prior), self._payload_constraints)
        if self._tare_rows is not None:
            # A guess may treat what is constant as noise: the estimate has no unknowns for the drift.
            self._estimate.add(enlarged(self._tare_rows, self._drift))
        self._nominal, self._consistent = self._estimate.estimate(self._polytope_box(prior))
        self._fresh = self._unproved = 0  # equations since the last update, and since the last proof
        self._wait, self._waited, self._usual, self._violation = 0, 0, 1.0, 0.0
        self._empty: str | None = None
        self._row_seconds = 0.0

    @property
    def payload_constraints(self) -> PayloadConstraints:
        """What the bounds assume of hand and payload."""
        return self._payload_constraints

    @property
    def rows(self) -> MomentumRows:
        """Equations kept, those of a tare included: what bounds rest on, over the parameters alone."""
        return self._set.rows.without_constants(self._model.unknowns)

    @property
    def has_fresh_rows(self) -> bool:
        """Whether new rows have come since the last update."""
        return bool(self._fresh) and self._empty is None

    @property
    def method(self) -> str:
        """One of :data:`METHODS`."""
        return self._method

    def _polytope_box(self, box: ParameterBox) -> ParameterBox:
        """What the rows' unknowns lie in: a constant error of a torque sensor adds to the joint's own offset."""
        return sensor_prior(box, self._errors)

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
            if self._empty is None:  # else nothing is ever bounded again: no reason to keep rows
                self._set.add(rows)
            self._estimate.add(rows.without_constants(self._model.unknowns))
            self._fresh += len(rows)
            self._unproved += len(rows)
        self._row_seconds += time.perf_counter() - start
        return 0 if rows is None else len(rows)

    def update(self, final: bool = False) -> UpdateResult:
        """Bound theta_e by all equations so far. Never raises for what the data say.

        Args:
            final: the log ends here: its last equations get a proof too, however little they tell. Without one nobody
                could see that they do not contradict the bounds.
        """
        timings = {"rows": self._row_seconds}
        self._row_seconds = 0.0
        if self._empty is not None:
            return self._result(UpdateStatus.EMPTY_SET, self._empty, timings)
        if not (self._unproved if final else self._fresh):
            return self._result(UpdateStatus.NO_DATA, UpdateStatus.NO_DATA.value, timings)
        payload = self.box.layout.payload
        start = time.perf_counter()
        last = self.box
        self._violation = violation = max(
            self._violation, self._set.largest_violation()
        )  # and what was left waiting, or was not solved
        if not (final or self._is_worth_programs(violation)):
            self._fresh = 0
            self._set.prune()
            timings["prune"] = time.perf_counter() - start
            return self._result(UpdateStatus.NO_DATA, UpdateStatus.NO_DATA.value, timings)
        bounds = self._set.bound(np.arange(payload.start, payload.stop), self._polytope_box(last))
        timings["programs"] = time.perf_counter() - start
        if bounds.empty:
            self._empty = f"{UpdateStatus.EMPTY_SET.value}; {self._blame(bounds)}"
            return self._result(UpdateStatus.EMPTY_SET, self._empty, timings)
        if not bounds.solved:
            return self._result(UpdateStatus.SOLVER_FAILED, UpdateStatus.SOLVER_FAILED.value, timings)
        self._fresh = self._waited = 0
        width = last.payload_upper - last.payload_lower
        gain = width - (bounds.upper - bounds.lower)
        share = float(np.max(gain / np.where(width > 0.0, width, 1.0)))
        self._wait = 0 if share >= _WORTH else min(max(2 * self._wait, 1), _LONGEST_WAIT)
        self._usual, self._violation = violation if np.isfinite(violation) else 1.0, 0.0
        if share < _LEAST and not final:
            self._set.prune()
            return self._result(UpdateStatus.NO_DATA, UpdateStatus.NO_DATA.value, timings)
        self._unproved = 0
        self.box = last.with_payload(bounds.lower, bounds.upper, last.seq + 1)
        proof = self._proof(bounds, last)
        start = time.perf_counter()
        self._nominal, self._consistent = self._estimate.estimate(self._polytope_box(self.box))
        timings["nominal"] = time.perf_counter() - start
        start = time.perf_counter()
        self._set.prune()
        timings["prune"] = time.perf_counter() - start
        message = f"{UpdateStatus.OK.value}: {bounds.solved} programs solved, {len(self._set)} equations kept"
        return self._result(UpdateStatus.OK, message, timings, proof)

    def _is_worth_programs(self, violation: float) -> bool:
        """Whether what came since the last programs may tell something: at once while they do, else now and then."""
        if violation <= 0.0:
            return False
        if self._waited < self._wait and violation < _LOUD * max(self._usual, 1.0):
            self._waited += 1
            return False
        return True

    def _proof(self, bounds: LinearBounds, last: ParameterBox) -> UpdateProof:
        nothing = np.zeros((20, 0))
        return UpdateProof(
            rows=self._set.rows.take(np.zeros(0, np.int64) if bounds.rows is None else bounds.rows),
            cuts=CutSet.none() if bounds.cuts is None else bounds.cuts,
            row_multipliers=nothing if bounds.row_multipliers is None else bounds.row_multipliers,
            cut_multipliers=nothing if bounds.cut_multipliers is None else bounds.cut_multipliers,
            box=last,
            hand_lower=self._payload_constraints.hand_lower,
            hand_upper=self._payload_constraints.hand_upper,
            opening=self._payload_constraints.opening,
            drift=self._drift,
            lower=bounds.lower,
            upper=bounds.upper,
        )

    def _blame(self, bounds: LinearBounds) -> str:
        row, rows = bounds.culprit, self._set.rows
        text = "no single window stands out"
        if row >= 0:
            text = (
                f"largest part in the proof: {self._model.joint_names[int(rows.joint[row])]}, "
                f"window {rows.start[row]:.4f} .. {rows.end[row]:.4f} s"
            )
        what = [_CUT_WORDS[kind] for kind in bounds.kinds]
        return f"{text}; it also uses {' and '.join(what)}" if what else text

    def _result(
        self, status: UpdateStatus, message: str, timings: Mapping[str, float], proof: UpdateProof | None = None
    ) -> UpdateResult:
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
            proof=proof,
        )
