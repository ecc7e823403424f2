"""Summary, tables and pictures of a run, from its logs and verdict."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from safe_sysid.apps.judge.evaluation import Evaluation
from safe_sysid.control.gains import ControllerGains
from safe_sysid.control.tube import TrackingTube
from safe_sysid.core.arrays import FloatArray
from safe_sysid.decimals import interval_text
from safe_sysid.demo.options import Setup
from safe_sysid.demo.supervisor import RunClock
from safe_sysid.identification.payload_alone import payload_bounds
from safe_sysid.report.run.logs import COMMANDED, PlanEntry, RunLogs
from safe_sysid.report.run.summary import (
    Durations,
    Exit,
    FeedForwardUse,
    GoalSummary,
    LoopTiming,
    Noise,
    ParameterRow,
    PlanRow,
    Quantiles,
    RunTiming,
    Summary,
    TimeHistogram,
)
from safe_sysid.robot.margin import MarginRecord
from safe_sysid.robot.shapes.pairs import unchecked

__all__ = ["draw_pictures", "goal_of", "mass_line", "not_covered", "summarise", "timing_notes", "write_page"]


#: Bins of the summary's histograms, us; and from how many periods on one counts as long.
_UPPER_US = (100.0, 200.0, 300.0, 500.0, 800.0, 1000.0, 1200.0, 1500.0, 2500.0, 5000.0, 10000.0, 20000.0)
_LONG = 1.5


def summarise(
    setup: Setup, logs: RunLogs, evaluation: Evaluation, clock: RunClock, warnings: list[str], end: Exit
) -> Summary:
    """The summary of a run, complete or not."""
    options, measurement = setup.options, setup.model.settings.measurement
    bounds = {
        key: list(value) if isinstance(value := getattr(measurement, key), tuple) else value
        for key in ("torque_abs", "torque_rel", "position_error", "velocity_error")
    }
    return Summary(
        parameters=_parameters(setup, logs),
        violations=evaluation.violations,
        plans=[_plan(plan) for plan in logs.plans],
        timing=_timing(logs, clock, options.lockstep, setup.model.settings.timing.period_s),
        safety=evaluation.safety.model_copy(update={"not_checked": list(unchecked(setup.model, setup.scene))}),
        robot=setup.model.name,
        scene=setup.scene.name,
        payload=setup.payload_name,
        arm=options.arm,
        seed=options.seed,
        noise=Noise(mode=options.noise, **bounds),
        mode=options.mode,
        warnings=warnings,
        exit=end,
        goal=goal_of(setup, logs),
        feed_forward=_feed_forward(logs),
    )


def _feed_forward(logs: RunLogs) -> FeedForwardUse | None:
    log = logs.controller
    if log is None or not log.feed_forward:
        return None
    ticks = {reason: int(count) for reason, _, count in (text.rpartition(": ") for text in log.feed_forward_ticks)}
    return FeedForwardUse(name=log.feed_forward, followed=ticks.pop("followed", 0), not_followed=ticks)


def goal_of(setup: Setup, logs: RunLogs) -> GoalSummary | None:
    """Whether the arm is where it was to go: by the plant's record, and by what the planner says; None: not asked."""
    goal, plant = setup.scene.goal, logs.plant
    if not setup.options.then_goal or goal is None:
        return None
    distance = None
    if plant is not None and plant.time.size:
        distance = float(np.abs(setup.model.shortest_way(plant.q[-1] - goal)).max())
    steps = [plan for plan in logs.plans if plan.planned and plan.purpose == "task"]
    # The plan ends there to a milliradian; beyond that the arm is where it should be but for its tracking error.
    near = distance is not None and distance <= float(setup.gains.e_bound.max()) + 2e-3
    return GoalSummary(
        reached=near and logs.task == "arrived",
        distance_rad=distance,
        steps=len(steps),
        end_s=steps[-1].end if steps else None,
        text=logs.task or "not begun",
    )


def mass_line(setup: Setup, logs: RunLogs) -> str:
    """What the payload weighs, by itself: of last link and hand no torque says all, so less is known of the sum."""
    if not logs.updates:
        return "payload alone: no update"
    last = logs.updates[-1]
    alone = payload_bounds(setup.model, last.lower, last.nominal, last.upper)
    low, high = interval_text(float(alone.lower[0]), float(alone.upper[0]), 3)
    return f"payload alone: {low} to {high} kg, guaranteed"


def _parameters(setup: Setup, logs: RunLogs) -> list[ParameterRow]:
    prior = setup.model.arm_prior
    part = prior.layout.payload
    lower, nominal, upper = prior.payload_lower, prior.mid[part], prior.payload_upper
    if logs.updates:
        last = logs.updates[-1]
        lower, nominal, upper = last.lower, last.nominal, last.upper
    truth = None if logs.plant is None else logs.plant.theta_true[part]
    return ParameterRow.ten(
        truth=truth, lower=lower, nominal=nominal, upper=upper,
        prior_lower=prior.payload_lower, prior_upper=prior.payload_upper,
    )  # fmt: skip


def _plan(plan: PlanEntry) -> PlanRow:
    return PlanRow(
        sequence=plan.sequence,
        status=plan.status,
        start_s=plan.start,
        hand_over_s=plan.hand_over,
        end_s=plan.end,
        box=plan.box,
        k=list(plan.k),
        cost=plan.cost,
        planning_s=plan.duration,
        margins={name: MarginRecord.of(margin) for name, margin in plan.margins.items()},
        reasons=list(plan.reasons),
        purpose=plan.purpose,
    )


def _timing(logs: RunLogs, clock: RunClock, lockstep: bool, period: float) -> RunTiming:
    log, plant = logs.controller, logs.plant
    loop = LoopTiming(ticks=0, compute_us=None, period_us=None, latency_us=None, missed=None)
    if log is not None:
        loop = LoopTiming(
            ticks=log.time.size,
            compute_us=_quantiles(log.compute),
            period_us=None if lockstep else _quantiles(log.period),
            latency_us=None if lockstep else _quantiles(log.latency),
            missed=None if lockstep or plant is None else _missed(plant.mode),
            long_periods=None if lockstep else int(np.sum(log.period > _LONG * period)),
            period_histogram=None if lockstep else _histogram(log.period),
            latency_histogram=None if lockstep else _histogram(log.latency),
            compute_histogram=_histogram(log.compute),
            scheduling=log.scheduling,
        )
    return RunTiming(
        startup_s=clock.startup,
        run_s=clock.run,
        simulated_s=clock.simulated,
        controller=loop,
        planning=_durations([plan.duration for plan in logs.plans]),
        identification=_durations([update.duration for update in logs.updates]),
    )


def timing_notes(logs: RunLogs, tubes: Sequence[TrackingTube], lockstep: bool) -> list[str]:
    """What the tracking bound assumes about timing and this run did not keep: where it was observed, not proved.

    ``tubes``: of :func:`~safe_sysid.control.tube.tubes_of`.
    """
    gains = tubes[0]
    plant, assume = logs.plant, gains.assumptions
    lost = () if logs.controller is None else logs.controller.claim_lost
    notes = [f"timing: the tracking bound is not proved since {loss}" for loss in lost]
    if lockstep or plant is None or not plant.delay.size or not isinstance(gains, ControllerGains):
        return notes
    for what, values, bound, name in (
        ("commands came", plant.delay, assume.delay_max, "delay_max_s"),
        ("torques acted", plant.age, assume.hold_max, "hold_max_s"),
    ):
        share = float(np.mean(values > bound))
        if share > 0.0:
            median = 1e3 * float(np.median(values))
            notes.append(
                f"timing: {share:.1%} of {what} later than timing.{name} = {1e3 * bound:g} ms "
                f"(median {median:.2f} ms): there the tracking bound is not proved, only observed"
            )
    late = _late(logs, gains)
    if late.size and (covered := _covered(logs, tubes, late)) is not None:
        notes.append(
            f"timing: the theorem covers {covered} of these {late.size} late commands, for the arm was quiet enough"
        )
    return notes


def not_covered(logs: RunLogs, tubes: Sequence[TrackingTube], lockstep: bool) -> int:
    """How many commands were late and, as far as is known, outside the tracking theorem.

    At least one where the controller says that it has lost its claim: the console must not say less than /diagnostics.

    ``tubes``: of :func:`~safe_sysid.control.tube.tubes_of`.
    """
    lost = 0 if logs.controller is None else len(logs.controller.claim_lost)
    if lockstep or logs.plant is None or not logs.plant.delay.size or not isinstance(tubes[0], ControllerGains):
        return lost
    late = _late(logs, tubes[0])
    return max(lost, late.size - (_covered(logs, tubes, late) or 0))


def _late(logs: RunLogs, gains: ControllerGains) -> NDArray[np.intp]:
    """Which commands of the plant's record came, or acted, later than declared."""
    plant, assume = logs.plant, gains.assumptions
    if plant is None:
        return np.zeros(0, np.intp)
    return np.flatnonzero((plant.delay > assume.delay_max) | (plant.age > assume.hold_max))


def _covered(logs: RunLogs, tubes: Sequence[TrackingTube], late: NDArray[np.intp]) -> int | None:
    """How many late commands ended a gap that the theorem covers; None: the controller's log does not say."""
    plant, log = logs.plant, logs.controller
    if plant is None or log is None or not log.e.size or not plant.answered.size:
        return None
    count = 0
    for k in late[late > 0]:
        before = int(np.searchsorted(log.time, plant.answered[k - 1] - 1e-6))
        if before < log.time.size and abs(log.time[before] - plant.answered[k - 1]) < 1e-6:
            # The narrower of the tubes before and after: the controller judges by that, too.
            gains = tubes[int(np.max(log.tube[before : before + 2])) if log.tube.size else 0]
            if not isinstance(gains, ControllerGains):
                return None
            a = gains.assumptions
            r = np.abs(log.de[before] + gains.K_r * log.e[before]) + a.velocity_error + gains.K_r * a.position_error
            # That of the command in force until this one acted counts, too, and how old it had become.
            last = slice(max(before - 1, 0), before + 1)
            known, mixed = float(np.max(log.uncertainty[last])), log.mixed[last] if log.mixed.size else (0.0,)
            oldest = float(plant.age[k - 1] + mixed[0]) if k > 1 else 0.0
            oldest = max(oldest, float(plant.age[k] + mixed[-1]) if mixed[-1] else 0.0)
            if not known > a.uncertainty * (1.0 + 1e-9):
                s, late_before = None if np.isnan(known) else known, oldest > a.hold_max
                count += plant.age[k] <= gains.longest_covered_gap(r, s, oldest if late_before else 0.0)
    return int(count)


def _histogram(seconds: FloatArray) -> TimeHistogram | None:
    if not seconds.size:
        return None
    inside = np.histogram(seconds, [-np.inf, *(1e-6 * upper for upper in _UPPER_US), np.inf])[0]
    return TimeHistogram(upper_us=list(_UPPER_US), counts=inside.tolist())


def _missed(mode: NDArray[np.int8]) -> int:
    """Periods without a new command, between the first and the last that had one."""
    commanded = np.flatnonzero(mode == COMMANDED)
    if not commanded.size:
        return 0
    return int(commanded[-1] - commanded[0] + 1 - commanded.size)


def _quantiles(seconds: FloatArray) -> Quantiles | None:
    if not seconds.size:
        return None
    p50, p99 = np.percentile(seconds, (50, 99))
    return Quantiles(p50=1e6 * float(p50), p99=1e6 * float(p99), max=1e6 * float(seconds.max()))


def _durations(values: list[float | None]) -> Durations:
    known = [value for value in values if value is not None]
    if not known:
        return Durations(count=len(values), median_s=None, max_s=None)
    return Durations(count=len(values), median_s=float(np.median(known)), max_s=max(known))


def draw_pictures(setup: Setup, logs: RunLogs) -> list[str]:
    """Write the picture of the bounds into the run directory; returns its name, nothing if the plant left no record."""
    from safe_sysid.report.run.charts import plot_bounds

    if logs.plant is None or not logs.plant.time.size:
        return []
    model, plant = setup.model, logs.plant
    options, prior = setup.options, setup.model.arm_prior
    noise = options.noise if options.noise != "none" else "no"
    where = f"{setup.payload_name}, {model.name}, scene {setup.scene.name}, {noise} noise, seed {options.seed}"
    updates = logs.updates
    lower, nominal, upper = (
        np.array([getattr(update, side) for update in updates]).reshape(-1, 10)
        for side in ("lower", "nominal", "upper")
    )
    plot_bounds(
        setup.run_dir / "bounds.png",
        np.array([update.time for update in updates]),
        lower,
        nominal,
        upper,
        (prior.payload_lower, prior.payload_upper),
        plant.theta_true[prior.layout.payload],
        float(plant.time[-1]),
        f"Guaranteed bounds of last link, hand and payload ({where})",
    )
    return ["bounds.png"]


def write_page(setup: Setup, evaluation: Evaluation) -> str:
    """Write the run's page, ``report.html``; returns its name. Call when the summary is written."""
    from safe_sysid.report.run.curves import JudgedCurves, write_curves
    from safe_sysid.report.run.facts import read_facts
    from safe_sysid.report.run.html import write_run_report

    c = evaluation.curves
    curves = JudgedCurves.of(
        (c.clearance_time, c.clearance, c.certified), (c.tracking_time, c.position_share, c.energy_share)
    )
    write_curves(setup.run_dir / "judged.npz", curves)
    path, _ = write_run_report(read_facts(setup.run_dir), model=setup.model)
    return path.name
