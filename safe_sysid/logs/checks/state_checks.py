"""Checks of positions and velocities: units, signs, scales, and whether they fit each other."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from safe_sysid.core.arrays import FloatArray
from safe_sysid.identification.equations.measurement_errors import MeasurementErrors
from safe_sysid.identification.equations.measurements import GAP
from safe_sysid.identification.equations.step_states import MeanVelocities, mean_velocities
from safe_sysid.logs.checks.derived_checks import check_derived
from safe_sysid.logs.checks.findings import Finding
from safe_sysid.logs.checks.stamp_checks import good_steps
from safe_sysid.logs.log import Log
from safe_sysid.robot.model import RobotModel

__all__ = ["check_states"]

_SAMPLES = 100_000  # looked at, spread over the log
_BLOCK_S = 0.1  # s, over which velocities are integrated
_DEGREE = math.pi / 180.0
#: What a velocity per change of position may be instead of 1, and why.
_SCALES = (
    (-1.0, "the sign is the other one", "turn the velocity's sign around"),
    (1.0 / _DEGREE, "velocities in deg/s, positions in rad", "convert the velocities to rad/s"),
    (_DEGREE, "positions in deg, velocities in rad/s", "convert the positions to rad"),
    (1000.0, "velocities per s, stamps in ms", "see --time-unit"),
    (0.001, "velocities per ms", "convert the velocities to rad/s"),
    (1.0 / (2.0 * math.pi), "velocities in turns per s", "convert the velocities to rad/s"),
    (60.0 / (2.0 * math.pi), "velocities in turns per minute", "convert the velocities to rad/s"),
)


def check_states(log: Log, model: RobotModel, errors: MeasurementErrors) -> list[Finding]:
    """Constant columns, degrees, limits, velocities against differences of positions.

    Args:
        log: of the robot's joints.
        errors: declared bounds, which say how far velocities and positions may disagree.
    """
    m = log.measurements
    good = good_steps(log)
    rows = np.flatnonzero(good)
    if len(rows) < 3:
        return []
    thin = rows[:: max(1, len(rows) // _SAMPLES)]
    step_ends = np.flatnonzero(good[1:] & good[:-1])
    h = m.stamps[step_ends + 1] - m.stamps[step_ends]
    if h.size:
        step_ends = step_ends[(h > 0.0) & (h < GAP * 2.0 * max(float(np.median(h)), 1e-12))]
    out: list[Finding] = []
    if len(step_ends):
        ends = step_ends + 1
        delta, h = model.shortest_way(m.q[ends] - m.q[step_ends]), m.stamps[ends] - m.stamps[step_ends]
        means = mean_velocities(delta, m.qd[step_ends], m.qd[ends], h, np.full(len(h), errors.stamp), errors)
        for j in range(log.measurements.n):
            out += _joint(log, model, errors, step_ends, delta[:, j], means, j)
    related = not any(finding.code in ("velocity_scale", "velocity_unrelated", "constant") for finding in out)
    degrees = _degrees(log, model, thin, related)
    if degrees:  # then the differences mean nothing
        return degrees + [finding for finding in out if finding.level == "error"]
    return out + _limits(log, model, thin)


def _degrees(log: Log, model: RobotModel, rows: NDArray[np.intp], related: bool) -> list[Finding]:
    """Positions far outside limits that they would be inside of in degrees; else speeds that go with positions."""
    m, limits = log.measurements, model.limits
    q, qd = m.q[rows], m.qd[rows]
    low, high = q.min(axis=0), q.max(axis=0)
    speed = np.quantile(np.abs(qd), 0.999, axis=0)
    slack = 0.05
    largest = np.maximum(np.abs(limits.position_lower), np.abs(limits.position_upper))
    outside = np.maximum(np.abs(low), np.abs(high)) > 2.0 * largest + slack
    inside = (low * _DEGREE >= limits.position_lower - slack) & (high * _DEGREE <= limits.position_upper + slack)
    fast = speed > 3.0 * limits.velocity
    suspects = outside & inside & ~model.sliding
    if related and not np.any(suspects) and np.any(fast) and np.all(speed * _DEGREE <= 1.1 * limits.velocity):
        suspects = fast & ((np.abs(q).max(axis=0) > 4.0 * math.pi) | (speed > 10.0 * limits.velocity))
    out = []
    for j in np.flatnonzero(suspects):
        unit = model.position_units[j]
        if outside[j]:
            name, value = "q", f"from {low[j]:.4g} to {high[j]:.4g}"
            expected = f"[{limits.position_lower[j]:.4g}, {limits.position_upper[j]:.4g}] {unit}"
            bad = np.abs(m.q[rows, j]) > 2.0 * largest[j] + slack
        else:
            name, value = "qd", f"up to {speed[j]:.4g}"
            expected = f"at most {limits.velocity[j]:.4g} {unit}/s"
            bad = np.abs(m.qd[rows, j]) > limits.velocity[j]
        out.append(
            Finding(
                "error",
                "degrees",
                log.column(name, int(j)),
                value,
                expected,
                "these look like degrees: --angles deg"
                if related
                else "these look like degrees, the velocities do not: convert the positions to rad",
                float(m.stamps[rows[bad]][0]) if np.any(bad) else None,
                int(np.sum(bad)),
            )
        )
    return out


def _limits(log: Log, model: RobotModel, rows: NDArray[np.intp]) -> list[Finding]:
    m, limits = log.measurements, model.limits
    out = []
    for name, low, high, units in (
        ("q", limits.position_lower, limits.position_upper, ("rad", "m")),
        ("qd", -limits.velocity, limits.velocity, ("rad/s", "m/s")),
        ("effort", -limits.torque, limits.torque, ("N m", "N")),
    ):
        values = getattr(m, name)[rows]
        room = 0.05 * np.where(np.isfinite(high), np.abs(high), 0.0)
        bad = (values < low - room) | (values > high + room)
        for j in np.flatnonzero(bad.any(axis=0)):
            at, unit = int(np.argmax(bad[:, j])), units[int(model.sliding[j])]
            out.append(
                Finding(
                    "warning",
                    "limits",
                    log.column(name, int(j)),
                    f"{values[at, j]:.5g} {unit}",
                    f"within the joint's limits [{low[j]:.5g}, {high[j]:.5g}] {unit}",
                    "is this the robot's file of this arm, and the unit right?",
                    float(m.stamps[rows[at]]),
                    int(np.sum(bad[:, j])),
                )
            )
    return out


def _joint(
    log: Log,
    model: RobotModel,
    errors: MeasurementErrors,
    steps: NDArray[np.intp],
    delta: FloatArray,
    means: MeanVelocities,
    j: int,
) -> list[Finding]:
    """One joint: constant columns, scale of the velocity, and steps where it contradicts the positions."""
    m = log.measurements
    h = m.stamps[steps + 1] - m.stamps[steps]
    out = []
    still_q, still_v = not np.any(delta), bool(np.ptp(m.qd[steps, j]) == 0.0)
    if np.ptp(m.effort[steps, j]) == 0.0:
        out.append(
            Finding(
                "error" if not still_q else "warning",
                "constant",
                log.column("effort", j),
                f"always {m.effort[steps[0], j]:.6g}",
                "a measured torque, which is never exactly constant",
                "is it the right column?",
            )
        )
    if still_q and still_v:
        return [
            *out,
            Finding(
                "warning",
                "constant",
                log.column("q", j),
                f"always {m.q[steps[0], j]:.6g}",
                "a joint that moves",
                "without motion of all joints some parameters stay wide",
            ),
        ]
    if still_v or still_q:
        name, value = ("qd", m.qd[steps[0], j]) if still_v else ("q", m.q[steps[0], j])
        other = "positions" if still_v else "velocities"
        return [
            *out,
            Finding(
                "error",
                "constant",
                log.column(name, j),
                f"always {value:.6g}, while the {other} change",
                "a measurement of the joint's motion",
                "is it the right column? Velocities are not made from positions: their error would be unknown",
            ),
        ]
    scale = _scale(log, errors, delta, means.by_v[:, j] * h, h, j)
    if scale is not None:
        return [*out, scale]
    derived = check_derived(log, errors, steps, j, model.settings.measurement.rate_hz, bool(model.continuous[j]))
    if derived is not None:
        return [*out, derived]
    return out + _contradictions(log, errors, steps, means, j, model.position_units[j])


def _scale(
    log: Log, errors: MeasurementErrors, delta: FloatArray, by_v: FloatArray, h: FloatArray, j: int
) -> Finding | None:
    """Least-squares factor between integrated velocities and changes of position, over blocks: noise averages out."""
    block = max(1, round(_BLOCK_S / float(np.median(h))))
    count = len(h) // block
    if count < 10:
        block, count = max(1, len(h) // 10), min(len(h), 10)
    change, integral, length = (x[: count * block].reshape(count, block).sum(axis=1) for x in (delta, by_v, h))
    size_q, size_v = float(np.sqrt(np.mean(change**2))), float(np.sqrt(np.mean(integral**2)))
    # What the declared errors may do to the quotient; beyond a third nothing can be told.
    allowed = 2.0 * float(errors.position[j]) + float(errors.velocity[j]) * float(np.max(length))
    if size_q < 3.0 * allowed + 1e-9 or size_v < 1e-9 * float(np.mean(length)):
        return None
    product = float(np.mean(change * integral))
    correlation = product / (size_q * size_v)
    if abs(correlation) < 0.8:
        if size_q < 1e-3:
            return None
        return Finding(
            "error",
            "velocity_unrelated",
            log.column("qd", j),
            f"correlation {correlation:.2f} with the changes of {log.column('q', j)}",
            "close to 1",
            "another joint's column, or joints in another order?",
        )
    factor = product / size_q**2
    if abs(factor - 1.0) < 0.05 + 1.5 * allowed / size_q:
        return None
    why, hint = "an unknown factor", "correct the unit"
    for value, reason, advice in _SCALES:
        if abs(factor / value - 1.0) < 0.05:
            why, hint = reason, advice
    return Finding(
        "error",
        "velocity_scale",
        log.column("qd", j),
        f"{factor:.5g} times the rate of change of {log.column('q', j)} ({why})",
        "1",
        hint,
    )


def _contradictions(
    log: Log, errors: MeasurementErrors, steps: NDArray[np.intp], means: MeanVelocities, j: int, unit: str
) -> list[Finding]:
    """Steps that the declared errors and the acceleration bound do not allow: their windows are left out."""
    m, a = log.measurements, float(errors.acceleration[j])
    h = m.stamps[steps + 1] - m.stamps[steps]
    jump = np.abs(m.qd[steps + 1, j] - m.qd[steps, j])
    apart, allowed = np.abs(means.by_q - means.by_v)[:, j], (means.rho_q + means.rho_v)[:, j]
    out = []
    for code, bad, value, bound, what, hint in (
        (
            "velocity_error",
            means.apart[:, j],
            apart,
            allowed,
            f"{unit}/s between velocity and difference of positions",
            "declare velocity_error or position_error as large as they are, or stamps are jittery",
        ),
        (
            "acceleration",
            means.jumps[:, j],
            jump / h,
            np.full(len(h), a),
            f"{unit}/s^2",
            "declare a larger acceleration_bound or velocity_error",
        ),
    ):
        count = int(np.sum(bad))
        if count:
            at = int(np.argmax(np.where(bad, value / bound, 0.0)))
            out.append(
                Finding(
                    "error" if count > 0.2 * len(steps) else "warning",
                    code,
                    log.column("qd", j),
                    f"{value[at]:.5g} {what} ({100.0 * count / len(steps):.3g} % of the steps contradict)",
                    f"at most {bound[at]:.5g}, by the declared errors",
                    hint,
                    float(m.stamps[steps[at]]),
                    count,
                )
            )
    return out
