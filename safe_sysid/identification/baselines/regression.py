r"""Regression problems ``Y theta_e = U(m)``, ``U = T - R theta_r``: PSO's by Euler sums, and ours with proved rows.

PSO, equations 20 to 24: over a window of h samples ``Y = W_m(end) - W_m(start) - sum W_c(t_j) dt``,
``U = sum tau(t_j) dt - R theta_r``. (The sums of the paper have h + 1 terms over h steps; h are meant.) This package's
rotor inertia is part of H, so the paper's term ``Ia (qd(end) - qd(start))`` is among the columns of R. The torque that
acts from t_j on is the one reported at t_{j+1}: effort here is the mean over the step *before* its stamp.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from safe_sysid.core.arrays import FloatArray, IntArray
from safe_sysid.dynamics import dynamics_of
from safe_sysid.errors import ParameterError
from safe_sysid.identification.equations.measurement_errors import MeasurementErrors, torque_interval
from safe_sysid.identification.equations.measurements import Measurements, SampleScreen
from safe_sysid.identification.equations.stream import MomentumStream
from safe_sysid.robot.model import RobotModel
from safe_sysid.robot.parameters import ParameterBox, frozen_array

__all__ = ["BaselineResult", "Regression", "euler_regression", "proved_regression"]


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


_CHUNK = 4000  # samples whose regressors are held at once


@dataclass(frozen=True, eq=False)
class Regression:
    """``payload theta_e + arm theta_r = target`` up to ``slack`` row by row."""

    payload: FloatArray  #: (M, 10) columns Y of theta_e
    arm: FloatArray  #: (M, P - 10) columns R of all other parameters
    target: FloatArray  #: (M,) T, N m s
    slack: FloatArray  #: (M,) half width of T: of the torque noise alone for Euler sums, of every error for proved rows
    joint: IntArray  #: (M,) index of the joint
    proved: bool  #: whether slack covers every declared error, quadrature included

    def __len__(self) -> int:
        return len(self.target)

    def response(self, theta_r: FloatArray) -> FloatArray:
        """(M,) U at the measured torques for arm parameters theta_r (P - 10,)."""
        return self.target - self.arm @ theta_r

    def require_rank(self) -> None:
        """Check that least squares has one solution.

        Raises:
            ParameterError: fewer than ten independent rows.
        """
        scale = np.linalg.norm(self.payload, axis=0) if len(self) else np.zeros(10)
        safe = np.where(scale > 0.0, scale, 1.0)
        rank = int(np.linalg.matrix_rank(self.payload / safe)) if len(self) else 0
        if rank < 10:
            raise ParameterError(
                f"log with {len(self)} equations: rank {rank} of 10: expected a motion that excites all ten parameters"
            )


def split(values: FloatArray, box: ParameterBox) -> tuple[FloatArray, FloatArray]:
    """Last axis (P) into theta_e's part (10) and the rest (P - 10)."""
    payload = box.layout.payload
    rest = np.concatenate([values[..., : payload.start], values[..., payload.stop :]], axis=-1)
    return values[..., payload], rest


def euler_regression(
    model: RobotModel, errors: MeasurementErrors, measurements: Measurements, window: float
) -> Regression:
    """PSO's observation matrix and response.

    Args:
        errors: declared bounds; only the torque's is used, as in the paper.
        measurements: the log; runs without a gap are cut into windows back to back, what is left over is dropped.
        window: length of a window, s.

    Raises:
        ParameterError: a window shorter than a sample period.
    """
    n, period = model.n, 1.0 / model.settings.measurement.rate_hz
    h = round(window / period)
    if h < 1:
        raise ParameterError(f"window = {window!r} s: expected at least one period, {period:g} s")
    parts = []
    screen = SampleScreen(model.continuous, period)
    for found in screen.runs(measurements):
        run = found.samples
        count = (len(run) - 1) // h
        step = max(1, _CHUNK // h)
        for first in range(0, count, step):
            some = min(step, count - first)
            parts.append(_euler_rows(model, errors, run[first * h : (first + some) * h + 1], h, some))
    if not parts:
        raise ParameterError(f"log of {len(measurements)} samples: expected at least one window of {window:g} s")
    matrix, target, slack = (np.concatenate([part[i] for part in parts]) for i in range(3))
    payload, arm = split(matrix, model.arm_prior)
    return Regression(payload, arm, target, slack, np.tile(np.arange(n), len(target) // n), False)


def _euler_rows(
    model: RobotModel, errors: MeasurementErrors, data: Measurements, h: int, count: int
) -> tuple[FloatArray, FloatArray, FloatArray]:
    n, kin = model.n, model.kinematics
    dt = np.diff(data.stamps)
    rate = dynamics_of(kin).momentum_rate_regressor(data.q[:-1], data.qd[:-1], errors.transition)
    sums = (rate * dt[:, None, None]).reshape(count, h, n, model.layout.size).sum(axis=1)
    ends = dynamics_of(kin).momentum_regressor(data.q[::h], data.qd[::h])
    torque, radius = torque_interval(data.effort[1:], errors)
    matrix = ends[1:] - ends[:-1] - sums
    target = (torque * dt[:, None]).reshape(count, h, n).sum(axis=1)
    slack = (radius * dt[:, None]).reshape(count, h, n).sum(axis=1)
    return matrix.reshape(count * n, model.layout.size), target.ravel(), slack.ravel()


def proved_regression(
    model: RobotModel, errors: MeasurementErrors, measurements: Measurements, window: float
) -> Regression:
    """The identifier's momentum equations for adjacent windows of one length (s); the slack holds every error.

    Raises:
        ParameterError: no window fits.
    """
    box = model.arm_prior
    rows = MomentumStream(model, errors, (window,)).push(measurements, box)
    if rows is None:
        raise ParameterError(f"log of {len(measurements)} samples: expected at least one window of {window:g} s")
    payload, arm = split(rows.matrix, box)
    return Regression(payload, arm, rows.target.copy(), rows.slack.copy(), rows.joint.copy(), True)
