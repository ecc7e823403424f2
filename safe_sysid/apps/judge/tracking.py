"""Judge of tracking: the true error and energy of every tick against the bounds of the controller's theorem."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from safe_sysid.apps.judge.record import JudgeRecord
from safe_sysid.control.tube import MeasuredTube, TrackingTube, tubes_of
from safe_sysid.core.arrays import FloatArray
from safe_sysid.decimals import at_least, at_most
from safe_sysid.dynamics import dynamics_of
from safe_sysid.report.run.logs import BRAKING, ControllerLog, PlantLog
from safe_sysid.report.run.summary import Tracking
from safe_sysid.robot.model import RobotModel

__all__ = ["judge_tracking"]


#: Two logs mean the same tick if their stamps agree to this, s.
_SAME_TICK = 1e-6
_START = 0.1  # s: until commands flow
_CHUNK = 2000


def _common_ticks(plant: PlantLog, controller: ControllerLog) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """Rows of plant and controller that belong to one stamp, guarantee in force."""
    rows = np.flatnonzero(controller.guaranteed)
    stamps = controller.time[rows]
    after = np.clip(np.searchsorted(plant.time, stamps - _SAME_TICK), 0, plant.time.size - 1)
    same = np.abs(plant.time[after] - stamps) <= _SAME_TICK
    return after[same], rows[same]


def judge_tracking(
    record: JudgeRecord, plant: PlantLog, controller: ControllerLog, model: RobotModel, gains: TrackingTube
) -> tuple[dict[str, Tracking | None], tuple[FloatArray, FloatArray, FloatArray, FloatArray]]:
    """True errors and true energy V of every tick against the bounds that the controller's theorem gives.

    Returns the worst of each kind (docs/understand/guarantees.md), and of the K ticks that were judged:
    times (K,) s, errors of position and velocity over their bounds (K, n), and V over its bound (K,).
    """
    ours, theirs = _common_ticks(plant, controller)
    guaranteed = int(np.count_nonzero(controller.guaranteed))
    n = model.n
    if theirs.size == 0:
        record.gaps.append("tracking: no tick of the controller's log, guarantee in force, is in the plant's log")
        nothing = (np.zeros(0), np.zeros((0, n)), np.zeros((0, n)), np.zeros(0))
        return dict.fromkeys(("position", "velocity", "energy")), nothing
    if theirs.size < guaranteed:
        record.gaps.append(f"tracking: {guaranteed - theirs.size} ticks of the controller are not in the plant's log")
    skipped = _skipped(plant, controller, ours, model.settings.timing.period_s)
    if skipped:
        record.gaps.append(skipped)
    faults = np.flatnonzero(controller.state == "fault")
    if faults.size:
        record.gaps.append(f"controller: fault at {controller.time[faults[0]]:.3f} s, no guarantee from then on")
    q, qd = plant.q[ours], plant.qd[ours]
    e = model.shortest_way(controller.q_d[theirs] - q)
    de = controller.qd_d[theirs] - qd
    time = plant.time[ours]
    # The bounds of the tube that was claimed at each tick.
    tubes = tubes_of(model, gains)
    claimed = np.clip(controller.tube[theirs] if controller.tube.size else np.zeros(time.size, int), 0, len(tubes) - 1)
    e_bound, de_bound = (np.stack([getattr(tube, x) for tube in tubes])[claimed] for x in ("e_bound", "de_bound"))
    position, velocity, share = np.abs(e) / e_bound, np.abs(de) / de_bound, np.zeros(time.size)
    energy, V_max = np.zeros(time.size), np.ones(time.size)
    if not isinstance(gains, MeasuredTube):
        energy = _energy(model, plant.theta_true, q, de + gains.K_r * e)
        V_max = np.array([tube.V_max for tube in tubes if not isinstance(tube, MeasuredTube)])[claimed]
        share = energy / V_max
    # NaN must count as a violation: "not (<= 1)".
    bad = ~((position <= 1.0).all(axis=1) & (velocity <= 1.0).all(axis=1) & (share <= 1.0))
    if isinstance(gains, MeasuredTube):
        _judge_acceleration(record, plant, controller, gains, ours)
    result: dict[str, Tracking | None] = {}
    cases = (("position", position, e, e_bound, "rad"), ("velocity", velocity, de, de_bound, "rad/s"))
    for kind, shares, value, bound, unit in cases:
        k, j = divmod(int(np.argmax(np.nan_to_num(shares, nan=np.inf))), n)
        result[kind] = _worst(shares[k, j], model.joint_names[j], time[k], abs(value[k, j]), bound[k, j], unit)
    result["energy"] = None
    if not isinstance(gains, MeasuredTube):
        k = int(np.argmax(np.nan_to_num(share, nan=np.inf)))
        result["energy"] = _worst(share[k], "all joints", time[k], energy[k], V_max[k], "J")
    if np.any(bad):
        first = int(np.flatnonzero(bad)[0])
        worst = max((item for item in result.values() if item is not None), key=lambda item: item.percent)
        record.add(
            "tracking",
            int(np.count_nonzero(bad)),
            f"{worst.joint} off by {at_least(worst.value, 4)} {worst.unit} at {worst.time_s:.3f} s, "
            f"bound {at_most(worst.bound, 4)}; "
            f"{np.count_nonzero(bad)} ticks, first at {time[first]:.3f} s",
        )
    return result, (time, position, velocity, share)


def _judge_acceleration(
    record: JudgeRecord, plant: PlantLog, controller: ControllerLog, tube: MeasuredTube, ours: NDArray[np.intp]
) -> None:
    """True errors of acceleration at every tick of the plant: samples do not show them."""
    inside = slice(int(ours[0]), int(ours[-1]) + 1)
    time = plant.time[inside]
    if time.size < 2:
        return
    middle, found = 0.5 * (time[1:] + time[:-1]), np.diff(plant.qd[inside], axis=0) / np.diff(time)[:, None]
    wanted = np.stack([np.interp(middle, controller.time, column) for column in controller.qdd_d.T], axis=1)
    share = np.max(np.abs(found - wanted) / tube.dde_bound, axis=1)
    if not np.all(share <= 1.0):
        first = int(np.argmax(~(share <= 1.0)))
        record.add(
            "tracking",
            int(np.count_nonzero(~(share <= 1.0))),
            f"acceleration {np.max(share):.3g} times as far off as the outer tube, first at {middle[first]:.3f} s",
        )


def _worst(share: float, joint: str, time: float, value: float, bound: float, unit: str) -> Tracking:
    big = 1e300  # JSON has no infinity
    return Tracking(
        percent=float(np.nan_to_num(100.0 * share, nan=big, posinf=big)),
        joint=joint,
        time_s=float(time),
        value=float(np.nan_to_num(value, nan=big, posinf=big)),
        bound=float(bound),
        unit=unit,
    )


def _skipped(plant: PlantLog, controller: ControllerLog, ours: NDArray[np.intp], period: float) -> str | None:
    """Ticks of the plant under guarantee that the controller did not log, or that nobody commanded."""
    inside = np.zeros(plant.time.size, bool)
    inside[ours[0] : ours[-1] + 1] = True
    alone = np.flatnonzero(inside & (plant.mode == BRAKING))
    alone = alone[plant.time[alone] > plant.time[ours[0]] + _START]
    if alone.size:
        return f"plant: braked by itself at {plant.time[alone[0]]:.3f} s, commands had stopped"
    logged = np.zeros(plant.time.size, bool)
    logged[ours] = True
    gone = np.flatnonzero(inside & ~logged)
    # A slow driver sees fewer ticks than the plant has.
    seen = (
        0.95 * min(float(np.median(np.diff(plant.time))) / period * (1.0 + 1e-6), 1.0) if plant.time.size > 1 else 0.95
    )
    if gone.size > (1.0 - seen) * np.count_nonzero(inside):
        return (
            f"tracking: the controller's log has {ours.size} of {np.count_nonzero(inside)} ticks, "
            f"the first gap at {plant.time[gone[0]]:.3f} s"
        )
    return None


def _energy(model: RobotModel, theta: FloatArray, q: FloatArray, r: FloatArray) -> FloatArray:
    """``V = r^T H r / 2`` with the true parameters, (N,), J."""
    energy = np.empty(len(q))
    for start in range(0, len(q), _CHUNK):
        part = slice(start, start + _CHUNK)
        momentum = dynamics_of(model.kinematics).momentum_regressor(
            np.ascontiguousarray(q[part]), np.ascontiguousarray(r[part])
        )
        energy[part] = 0.5 * np.einsum("kj,kj->k", r[part], momentum @ theta)
    return energy
