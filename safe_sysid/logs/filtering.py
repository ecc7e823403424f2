"""Zero-phase low-pass filter, on request only: no declared error covers what it does to the data."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from safe_sysid.identification.equations.measurements import GAP, Measurements
from safe_sysid.logs.checks.stamp_checks import good_steps
from safe_sysid.logs.log import Log, LogError
from safe_sysid.robot.model import RobotModel

__all__ = ["low_pass"]

_ORDER = 4


def low_pass(log: Log, model: RobotModel, cutoff_hz: float) -> Log:
    """The same log, low-passed: positions, velocities and efforts alike, so that they stay in step.

    Args:
        log: without gaps or missing numbers.
        cutoff_hz: of a Butterworth filter of order 4, applied forwards and backwards.

    Raises:
        LogError: the log has gaps or missing numbers, is too short, or the cut-off is not below half the rate.
    """
    rate = model.settings.measurement.rate_hz
    if not 0.0 < cutoff_hz < 0.5 * rate:
        raise LogError(f"--filter {cutoff_hz:g}: expected a frequency between 0 and {0.5 * rate:g} Hz")
    m = log.measurements
    if not np.all(good_steps(log)) or (len(m) > 1 and np.max(np.diff(m.stamps)) > GAP / rate):
        raise LogError("--filter: the log has gaps or missing numbers: expected an unbroken one (see --from and --to)")
    from scipy.signal import butter, sosfiltfilt  # takes a second to import, and is rarely asked for

    sos = butter(_ORDER, cutoff_hz, fs=rate, output="sos")
    if len(m) < 100:
        raise LogError(f"--filter: {len(m)} samples: expected at least 100")
    q = np.array(m.q)
    q[:, model.continuous] = np.unwrap(q[:, model.continuous], axis=0)
    q, qd, effort = (sosfiltfilt(sos, values, axis=0) for values in (q, m.qd, m.effort))
    return replace(log, measurements=Measurements(m.stamps, q, qd, effort))
