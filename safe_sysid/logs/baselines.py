"""Comparison methods on a whole log: one estimate with intervals that carry no guarantee."""

from __future__ import annotations

import time

import numpy as np

from safe_sysid.identification.baselines.methods import estimate_with
from safe_sysid.identification.equations.measurement_errors import MeasurementErrors
from safe_sysid.logs.log import Log
from safe_sysid.logs.run import LogRun, UpdateRecord
from safe_sysid.robot.model import RobotModel

__all__ = ["run_baseline"]


def run_baseline(log: Log, model: RobotModel, errors: MeasurementErrors, method: str) -> LogRun:
    """Estimate by another method. ``log``: of the robot's joints; ``method``: one of those of :func:`estimate_with`.

    Raises:
        ParameterError: an unknown method, or the log does not excite all parameters, or has no window.
    """
    begin = time.perf_counter()
    m = log.measurements
    answer = estimate_with(method, model, errors, m)
    seconds = time.perf_counter() - begin
    prior = model.arm_prior
    lower = np.where(np.isfinite(answer.lower), answer.lower, prior.payload_lower)
    upper = np.where(np.isfinite(answer.upper), answer.upper, prior.payload_upper)
    finite = m.stamps[np.isfinite(m.stamps)]
    end = float(np.max(finite)) if finite.size else 0.0
    nominal = np.clip(answer.estimate, lower, upper)
    record = UpdateRecord(end, lower, nominal, upper, "ESTIMATE", seconds, 0)
    return LogRun((record,), None, prior, len(m), seconds, False, answer.message)
