"""Attack on ranges of motion, torque, its nominal part and spread, and the measure S."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from safe_sysid.core.arrays import FloatArray, IntArray
from safe_sysid.dynamics import dynamics_of
from safe_sysid.reachability.cells import TimeCells
from safe_sysid.reachability.torque import TorqueEnclosure
from safe_sysid.studies.campaign.reachability.case import ReachabilityCase
from safe_sysid.studies.campaign.reachability.exact import (
    digits,
    exact,
    exact_desired,
    exact_regressor,
    exact_states,
    number,
    root,
)
from safe_sysid.studies.campaign.reachability.record import AttackRecord, climb
from safe_sysid.studies.campaign.reachability.tube import States, desired
from safe_sysid.trajectories.extrema import interval_ranges

__all__ = ["TorqueTruth", "attack_ranges", "attack_torque_forms", "attack_torques", "extreme_times"]

_ORDERS = ("desired position", "desired velocity", "desired acceleration", "desired jerk")


class TorqueTruth:
    """Torque over the box, and S, at given states: the worst parameter is a corner that is known."""

    def __init__(self, case: ReachabilityCase) -> None:
        self.case, self.tube = case, case.tube
        box, n = case.box, case.n
        self.mid, self.rad = 0.5 * (box.lower + box.upper), 0.5 * (box.upper - box.lower)
        self.damping = np.broadcast_to(case.gains.K_d, (n,)) * 1.0
        self.weight = np.broadcast_to(case.gains.inertia_lower, (n,)) * 1.0

    def regressor(self, states: States) -> FloatArray:
        """W_s (N, n, 14 n) as the controller computes it."""
        model = self.case.model
        return dynamics_of(model.kinematics).slotine_li_regressor(
            states.q_m, states.qd_m, states.qd_a, states.qdd_a, model.friction_transition_velocity
        )

    def parts(self, states: States) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Nominal torque (N, n), its spread over the box (N, n), S (N,)."""
        w = self.regressor(states)
        nominal = w @ self.mid + self.damping * states.r_m
        spread = np.abs(w) @ self.rad
        return nominal, spread, np.sqrt((spread**2 / self.weight).sum(axis=1))

    def exact(self, time: float, x: FloatArray) -> tuple[Any, Any, Any]:
        """Upper and lower torque (n,), nominal and spread likewise, and S, in 40 digits."""
        with digits():
            states = exact_states(self.tube, time, x)
            model, box = self.case.model, self.case.box
            w = exact_regressor(model.kinematics, states, model.friction_transition_velocity)
            lower, upper = exact(box.lower), exact(box.upper)
            mid, rad = (lower + upper) / 2, (upper - lower) / 2
            nominal = w @ mid + exact(self.damping) * states.r_m
            spread = np.abs(w) @ rad
            return (nominal, spread, root(sum(v * v / number(i) for v, i in zip(spread, self.weight, strict=True))))


def extreme_times(case: ReachabilityCase, cells: TimeCells) -> list[list[FloatArray]]:
    """Per order and joint, times (N,), s, at which that derivative of the desired position can be extreme in a cell."""
    t, out = case.trajectory, []
    for order in range(4):
        joints = []
        for j in range(t.n):
            times = [cells.grid]
            for s in range(len(t.times) - 1):
                c = t.coefficients[s, j]
                for _ in range(order + 1):
                    c = c[1:] * np.arange(1.0, len(c))
                size = np.abs(c) * (t.times[s + 1] - t.times[s]) ** np.arange(len(c))
                # Leading coefficients that are nothing would send roots to infinity: their change is below rounding.
                while len(c) > 1 and size[len(c) - 1] <= 1e-14 * size.max():
                    c = c[:-1]
                if len(c) > 1:
                    roots = np.roots(c[::-1])
                    real = roots.real[np.abs(roots.imag) < 1e-4 * (1.0 + np.abs(roots.real))]
                    times.append(np.clip(t.times[s] + real, t.times[s], t.times[s + 1]))
            joints.append(np.unique(np.concatenate(times)))
        out.append(joints)
    return out


def attack_ranges(case: ReachabilityCase, cells: TimeCells, record: AttackRecord) -> None:
    """Every cell's ranges of the desired motion, at the exact extrema."""
    t, grid = case.trajectory, cells.grid
    if not (grid[0] == 0.0 and grid[-1] >= t.duration and np.all(np.diff(grid) > 0.0)):
        record.check("time", np.zeros(1), np.ones(1), lambda _: {"grid": [float(grid[0]), float(grid[-1])]})
    times = extreme_times(case, cells)
    _attack_spans(case, times, record)
    for order, name in enumerate(_ORDERS):
        _attack_order(case, cells, times[order], cells.ranges(order), order, f"form of {name}", record)
        exact_ranges = interval_ranges(t, cells.borders, order)
        _attack_order(case, cells, times[order], exact_ranges, order, name, record)


def _attack_spans(case: ReachabilityCase, times: list[list[FloatArray]], record: AttackRecord, count: int = 12) -> None:
    """Ranges over any interval: across knots, beyond the end, of one instant."""
    t, rng = case.trajectory, case.rng(14)
    ends = np.sort(rng.uniform(0.0, 1.2 * t.duration, (count, 2)), axis=1)
    ends[: count // 3, 0] = rng.choice(t.times, count // 3)
    ends[: count // 3, 1] = np.maximum(ends[: count // 3, 0], ends[: count // 3, 1])
    ends[-1] = ends[-1, 0]
    for order, name in enumerate(_ORDERS):
        ranges = interval_ranges(t, ends, order)
        for i, (first, last) in enumerate(ends):
            for j in range(t.n):
                at = times[order][j]
                at = np.concatenate([at[(at >= first) & (at <= last)], np.linspace(first, last, 7)])
                at = at[(at >= first) & (at <= last)]
                value = desired(t, at)[:, order, j]
                claims = np.stack([np.full(len(at), ranges[i, j, 1]), np.full(len(at), -ranges[i, j, 0])])

                def where(k: tuple[int, ...], at: Any = at, j: int = j, i: int = i) -> dict[str, Any]:
                    return {"interval": ends[i].tolist(), "joint": j, "side": 1 - 2 * k[0], "time": float(at[k[1]])}

                def precise(k: tuple[int, ...], at: Any = at, j: int = j, order: int = order) -> Any:
                    return (1 - 2 * k[0]) * exact_desired(t, float(at[k[1]]))[order, j]

                record.check(f"span of {name}", claims, np.stack([value, -value]), where, precise)
                record.extrema += 2


def _attack_order(
    case: ReachabilityCase,
    cells: TimeCells,
    times: list[FloatArray],
    ranges: FloatArray,
    order: int,
    name: str,
    record: AttackRecord,
) -> None:
    t, grid = case.trajectory, cells.grid
    for j in range(t.n):
        at = times[j]
        cell = np.clip(np.searchsorted(grid, at, side="right") - 1, 0, cells.count - 1)
        # A border belongs to both of its cells; derivatives that jump at a knot have two values there.
        left = np.clip(np.searchsorted(grid, at, side="left") - 1, 0, cells.count - 1)
        middles = np.concatenate([cells.centres, cells.centres])
        cell, at = (np.concatenate([cell, left, np.tile(np.arange(cells.count), 2)]), np.concatenate([at, at, middles]))
        inside = (grid[cell] <= at) & (at <= grid[cell + 1])
        cell, at = cell[inside], at[inside]
        smooth = ~np.isin(at, t.times) if order == 3 else np.ones(len(at), dtype=bool)
        cell, at = cell[smooth], at[smooth]
        value = desired(t, at)[:, order, j]
        claims = np.stack([ranges[cell, j, 1], -ranges[cell, j, 0]])
        found = np.stack([value, -value])

        def where(i: tuple[int, ...], cell: Any = cell, at: Any = at, j: int = j) -> dict[str, Any]:
            return {"cell": int(cell[i[1]]), "joint": j, "side": 1 - 2 * i[0], "time": float(at[i[1]])}

        def precise(i: tuple[int, ...], at: Any = at, order: int = order, j: int = j) -> Any:
            sign = 1 - 2 * i[0]
            return sign * exact_desired(t, float(at[i[1]]))[order, j]

        record.check(name, claims, found, where, precise)
        high, low = np.full(cells.count, -np.inf), np.full(cells.count, np.inf)
        np.maximum.at(high, cell, value)
        np.minimum.at(low, cell, value)
        width = ranges[:, j, 1] - ranges[:, j, 0]
        record.extrema += 2 * cells.count
        record.share(name, (high - low) / np.where(width > 1e-9 * np.abs(high), width, np.nan))


def attack_torques(
    case: ReachabilityCase,
    cells: TimeCells,
    enclosure: TorqueEnclosure,
    rng: np.random.Generator,
    record: AttackRecord,
    ascents: int = 2,
    starts: int = 2,
    samples: int = 400,
) -> tuple[FloatArray, FloatArray]:
    """Samples in every cell, then ascent in some: those where samples came nearest to the claim, and one at random.

    Returns times (N,) and symbols (N, size) of what was visited last: places worth a look by others.
    """
    truth, tube, n, count = TorqueTruth(case), case.tube, case.n, cells.count
    which = np.tile(np.arange(count), max(samples // count, 2))
    x = tube.sample(rng, len(which))
    times = tube.times(_borders(cells, which), x)
    near = _compare(truth, enclosure, which, times, x, record)
    record.samples += len(x)
    order = np.argsort(-near)
    chosen = np.unique(np.concatenate([which[order[:1]], rng.integers(0, count, ascents)])[:ascents])
    goals = 2 * n + 1
    goal = np.tile(np.repeat(np.arange(goals), starts), len(chosen))
    cell = np.repeat(chosen, goals * starts)
    x = tube.sample(rng, len(cell))
    borders = _borders(cells, cell)

    def value(rows: IntArray, at: FloatArray) -> FloatArray:
        nominal, spread, measure = truth.parts(tube.states(tube.times(borders[rows], at), at))
        every = np.concatenate([nominal + spread, spread - nominal, measure[:, None]], axis=1)
        out: FloatArray = every[np.arange(len(rows)), goal[rows]]
        return out

    x, best = climb(tube, x, value)
    times = tube.times(borders, x)
    _compare(truth, enclosure, cell, times, x, record)
    for c in chosen:
        found = np.array([best[(cell == c) & (goal == g)].max() for g in range(goals)])
        low, high = enclosure.torque[c, :, 0], enclosure.torque[c, :, 1]
        width = np.where(high - low > 1e-9 * np.abs(high), high - low, np.nan)
        record.attacked("torque", 2 * n, (found[:n] + found[n : 2 * n]) / width)
        record.attacked("S", 1, found[-1:] / enclosure.measure[c] if enclosure.measure[c] > 0.0 else None)
    return times, x


def attack_torque_forms(
    case: ReachabilityCase,
    cells: TimeCells,
    nominal: FloatArray,
    spread: FloatArray,
    axes: tuple[FloatArray, FloatArray],
    rng: np.random.Generator,
    record: AttackRecord,
    samples: int = 300,
) -> None:
    """At given symbols: the nominal torque within its form's own remainder, the spread below its form.

    Sharper than any range, as :func:`~safe_sysid.studies.campaign.reachability.places.attack_pose_forms`.

    Args:
        nominal: (M, n, K + 2) forms.
        spread: (M, n, K + 2) forms.
        axes: (n,) semi-axes of the measured e and r, whose unit balls the symbols are.
    """
    truth, tube, n = TorqueTruth(case), case.tube, case.n
    which = rng.integers(0, cells.count, samples)
    x = tube.sample(rng, samples)
    borders = _borders(cells, which)
    times = tube.times(borders, x)
    states = tube.states(times, x)
    value, extent, _ = truth.parts(states)
    e, dq = (x[:, 1 : n + 1] * tube.e, x[:, 2 * n + 1 : 3 * n + 1] * tube.dq)
    symbols = np.concatenate([x[:, :1], (e - dq) / axes[0], states.r_m / axes[1]], axis=1)
    unsure = 1e-14 + 4e-16 * borders[:, 1] / (0.5 * (borders[:, 1] - borders[:, 0]))
    for family, forms, found in (("torque form", nominal, value), ("spread form", spread, extent)):
        slopes = forms[which][..., 1:-1]
        affine = forms[which][..., 0] + np.einsum("njk,nk->nj", slopes, symbols)
        over = np.abs(found - affine) if family == "torque form" else found - affine
        # Symbols are known up to rounding, and so are large torques.
        room = np.abs(slopes).sum(axis=-1) * unsure[:, None] + 1e-12 * (1.0 + np.abs(found) + extent)
        room = room + 1e-14 * np.abs(truth.regressor(states)) @ np.abs(truth.mid)

        def where(i: tuple[int, ...]) -> dict[str, Any]:
            k = i[0]
            return {"cell": int(which[k]), "time": float(times[k]), "symbols": x[k].tolist(), "joint": i[1]}

        record.check(family, forms[which][..., -1] + room, over, where)
    record.samples += samples


def _borders(cells: TimeCells, which: IntArray) -> FloatArray:
    return np.stack([cells.grid[which], cells.grid[which + 1]], axis=1)


def _compare(
    truth: TorqueTruth,
    enclosure: TorqueEnclosure,
    cell: IntArray,
    times: FloatArray,
    x: FloatArray,
    record: AttackRecord,
) -> FloatArray:
    """All claims of the enclosure at some points; how near each point came to a torque claim (N,)."""
    tube = truth.tube
    states = tube.states(times, x)
    nominal, spread, measure = truth.parts(states)
    cache: dict[int, Any] = {}

    def precise(i: int) -> Any:
        if i not in cache:
            cache[i] = truth.exact(float(times[i]), x[i])
        return cache[i]

    def where(at: tuple[int, ...]) -> dict[str, Any]:
        entry = {"cell": int(cell[at[0]]), "time": float(times[at[0]]), "symbols": x[at[0]].tolist()}
        return entry | ({"joint": at[1]} if len(at) > 1 else {})

    def both(family: str, ranges: FloatArray, value: FloatArray, size: Any, exact_value: Callable[[int], Any]) -> None:
        claims = np.stack([ranges[cell, :, 1], -ranges[cell, :, 0]], axis=-1)
        found = np.stack([value, -value], axis=-1)
        record.check(
            family,
            claims,
            found,
            lambda at: where(at) | {"side": 1 - 2 * at[2]},
            lambda at: (1 - 2 * at[2]) * exact_value(at[0])[at[1]],
            size,
        )

    size = (np.abs(nominal) + spread)[..., None]
    record.check(
        "torque",
        np.stack([enclosure.torque[cell, :, 1], -enclosure.torque[cell, :, 0]], axis=-1),
        np.stack([nominal + spread, spread - nominal], axis=-1),
        lambda at: where(at) | {"side": 1 - 2 * at[2]},
        lambda at: (1 - 2 * at[2]) * precise(at[0])[0][at[1]] + precise(at[0])[1][at[1]],
        size,
    )
    both("nominal torque", enclosure.nominal, nominal, size, lambda i: precise(i)[0])
    record.check("spread", enclosure.spread[cell], spread, where, lambda at: precise(at[0])[1][at[1]])
    record.check("S", enclosure.measure[cell], measure, where, lambda at: precise(at[0])[2])
    motions = (
        ("qd", enclosure.qd, states.qd_m),
        ("qd_a", enclosure.qd_a, states.qd_a),
        ("qdd_a", enclosure.qdd_a, states.qdd_a),
    )
    for name, ranges, value in motions:
        attribute = "qd_m" if name == "qd" else name

        def motion(i: int, attribute: str = attribute) -> Any:
            return getattr(exact_states(tube, float(times[i]), x[i]), attribute)

        both(name, ranges, value, np.abs(value)[..., None], motion)
    with np.errstate(invalid="ignore", divide="ignore"):
        middle = enclosure.torque[cell].mean(axis=-1)
        half = 0.5 * (enclosure.torque[cell, :, 1] - enclosure.torque[cell, :, 0])
        near = (np.abs(nominal - middle) + spread) / half
    return np.nan_to_num(near, nan=-np.inf, posinf=-np.inf).max(axis=1)
