"""Detection of velocities that are mere differences of positions, whose error nobody declared."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from safe_sysid.core.arrays import FloatArray
from safe_sysid.identification.equations.measurement_errors import MeasurementErrors
from safe_sysid.logs.checks.findings import Finding
from safe_sysid.logs.log import Log

__all__ = ["check_derived"]

_RELATIVE = 1e-9
_ENOUGH = 20  # samples that can tell
_SHARE = 0.9


def check_derived(
    log: Log, errors: MeasurementErrors, steps: NDArray[np.intp], j: int, rate_hz: float, continuous: bool
) -> Finding | None:
    """A finding if the velocities of a joint are forward, backward or central differences of its positions.

    Such a velocity is a mean over the time h of a step, at most ``a h / 2`` from that at the stamp (a: acceleration
    bound), plus what the errors of positions and stamps make of it: where that much is declared, all is well.

    Args:
        log: of the robot's joints.
        steps: indices k of steps from sample k to k + 1 that can be used.
        rate_hz: declared, which may have been divided by instead of the stamps.
        continuous: whether positions wrap.
    """
    m = log.measurements
    k = steps[np.isin(steps + 1, steps)]
    if len(k) < _ENOUGH:
        return None
    h1, h2 = m.stamps[k + 1] - m.stamps[k], m.stamps[k + 2] - m.stamps[k + 1]
    d1, d2 = _turns(m.q[k + 1, j] - m.q[k, j], continuous), _turns(m.q[k + 2, j] - m.q[k + 1, j], continuous)
    v = m.qd[k + 1, j]
    curved = np.abs(m.qd[k + 2, j] - 2.0 * v + m.qd[k, j])  # else exact velocities are differences, too
    rounding = 8.0 * float(np.spacing(np.max(np.abs(m.q[k, j]))))
    clock = 2.0 * float(np.spacing(np.max(np.abs(m.stamps[k]))))
    usual = float(np.median(h1))
    for nominal in (None, usual, 1.0 / rate_hz):
        a, b = (h1, h2) if nominal is None else (np.full(len(k), nominal), np.full(len(k), nominal))
        for name, change, time in (
            ("backward", d1, a),
            ("forward", d2, b),
            ("central", d1 + d2, a + b),
            ("central", d1 * b / a + d2 * a / b, a + b),
        ):
            tolerance = _RELATIVE * np.abs(v) * time + rounding + clock * np.abs(v)
            telling = curved * time > 100.0 * tolerance
            count = int(np.sum(telling))
            same = np.abs(v * time - change) <= tolerance
            if count < _ENOUGH or np.sum(same & telling) < _SHARE * count:
                continue
            longest, shortest = float(np.max([h1, h2])), float(np.min([h1, h2]))
            needed = 0.5 * float(errors.acceleration[j]) * longest + 2.0 * float(errors.position[j]) / shortest
            relative = 2.0 * errors.stamp / shortest
            relative += 0.0 if nominal is None else max(longest / nominal - 1.0, 1.0 - shortest / nominal)
            needed += relative * float(np.max(np.abs(v)))
            if float(errors.velocity[j]) >= needed * (1.0 - 1e-9):
                return None
            return Finding(
                "error",
                "velocity_derived",
                log.column("qd", j),
                f"{name} differences of {log.column('q', j)} ({100.0 * np.sum(same & telling) / count:.3g} % of the "
                "samples that can tell)",
                "measured velocities, or the error of such differences declared",
                f"record the robot's own velocities, or --velocity-error {1.05 * needed:.2g}",
                float(m.stamps[k[0]]),
                count,
            )
    return None


def _turns(change: FloatArray, continuous: bool) -> FloatArray:
    return change - 2.0 * np.pi * np.round(change / (2.0 * np.pi)) if continuous else change
