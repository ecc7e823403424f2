"""Drives a planned motion in the MuJoCo plant, in one process, and judges it as the demo does."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace

import numpy as np

from safe_sysid.apps.judge.evaluation import evaluate
from safe_sysid.apps.plan.plan import PlannedMotion
from safe_sysid.core.layout import PAYLOAD_NAMES
from safe_sysid.decimals import at_least
from safe_sysid.episode import Episode, EpisodeResult
from safe_sysid.errors import ConfigError
from safe_sysid.planning.excitation.fourier_excitation import FourierPlanner
from safe_sysid.planning.planner import PlannerOptions, PlannerResult
from safe_sysid.planning.task.series_task import SeriesTask
from safe_sysid.planning.task.task import TaskStatus
from safe_sysid.report.run.logs import GUARANTEED, ControllerLog, PlanEntry, PlantLog, RunLogs, UpdateEntry
from safe_sysid.report.run.summary import VIOLATION_KINDS
from safe_sysid.robot.parameters import ParameterBox
from safe_sysid.simulation.assembly import build_plant
from safe_sysid.simulation.hand import payload_in_hand
from safe_sysid.simulation.plant import Plant

__all__ = ["drive", "logs_of_episode"]


def logs_of_episode(result: EpisodeResult, plant: Plant) -> RunLogs:
    """Logs for :func:`safe_sysid.apps.judge.evaluation.evaluate`."""
    truth, none = plant.truth(), np.zeros(0)
    answers = [*result.plans, *(answer for _, answer in result.task_plans)]
    return RunLogs(
        PlantLog(
            truth["t"], truth["q"], truth["qd"], truth["tau_commanded"], truth["tau_applied"], truth["contacts"],
            truth["mode"], plant.theta_true, tuple(" / ".join(pair) for pair in sorted(plant.contact_names)),
        ),
        ControllerLog(
            result.stamps, result.reference[:, 0], result.reference[:, 1], np.isin(result.states, GUARANTEED),
            np.array(result.states), none, none, none, qdd_d=result.reference[:, 2], tube=result.tube,
        ),
        tuple(
            UpdateEntry(
                time, update.box.payload_lower, update.nominal, update.box.payload_upper, update.box.identity,
                update.status.name, sum(update.timings.values()),
            )
            for time, update in result.updates
        ),
        tuple(_entry(i, answer) for i, answer in enumerate(answers)),
    )  # fmt: skip


def _entry(sequence: int, answer: PlannerResult) -> PlanEntry:
    plan, certificate = answer.plan, answer.certificate
    if plan is None or certificate is None:
        return PlanEntry(sequence, answer.status.value, 0.0, None, None)
    return PlanEntry(
        plan.sequence,
        answer.status.value,
        plan.start_time,
        plan.hand_over_time,
        plan.end_time,
        margins=certificate.families,
    )


def drive(
    motion: PlannedMotion,
    box: ParameterBox | None,
    payload: str,
    plans: int,
    options: PlannerOptions,
    seed: int,
    say: Callable[[str], None],
    period: float | None = None,
) -> tuple[EpisodeResult, Plant]:
    """Plan and drive, with errors of sensors and actuators up to what is declared.

    Returns what happened, and the arm that knows the truth.

    Args:
        motion: what to do; gets the steps and what the simulation found.
        box: that is known to hold the truth; None for the prior.
        payload: in the hand, see :func:`~safe_sysid.simulation.hand.payload_in_hand`.
        plans: exciting trajectories before the waypoints; the payload is identified with them, unless they are series.
        say: gets a line now and then.
        period: s, of Fourier series that are the exciting trajectories; None for the planner's quintics.

    Raises:
        ConfigError: the payload is not within the bounds.
        PlanError: the start is refused.
    """
    model = motion.model
    held = payload_in_hand(model, payload)
    say(f"the simulated hand holds: {held.name}")
    plant = build_plant(model, held, motion.scene, seed, q0=motion.start)
    known = None if box is None else replace(box, epoch=0, seq=1)
    if known is not None and not known.contains(plant.theta_true):
        part = plant.theta_true[known.layout.payload]
        out = np.flatnonzero((part < known.payload_lower) | (part > known.payload_upper))
        name = PAYLOAD_NAMES[int(out[0])] if out.size else "a parameter of the arm"
        raise ConfigError("--payload", name, payload, "a payload within --bounds: these are of another one")
    began = time.perf_counter()
    task = None
    if period is not None:
        series = FourierPlanner(model, motion.scene, motion.gains, options=options, seed=seed, period=period)
        task, plans = SeriesTask(series, plans), 0
    episode = Episode(
        model,
        plant,
        motion.scene,
        plans=plans,
        seed=seed,
        options=options,
        progress=say,
        waypoints=motion.waypoints,
        box=known,
        task=task,
    )
    result = episode.run()
    motion.seconds = time.perf_counter() - began
    boxes = {b.identity: b for b in (model.arm_prior, *(b for _, b in result.announced))}
    for answer in result.plans:
        if answer.plan is not None:
            motion.steps.append((boxes[answer.plan.box_identity], answer))
    motion.steps += [(used, answer) for used, answer in result.task_plans if answer.plan is not None]
    planned = sum(answer.plan is not None for answer in result.plans)
    nowhere = motion.waypoints is None and task is None
    motion.reached = planned > 0 if nowhere else result.task is TaskStatus.ARRIVED
    answers = [*result.plans, *(answer for _, answer in result.task_plans)]
    failed = [reason for answer in answers if answer.plan is None for reason in answer.reasons]
    motion.reasons = () if motion.reached else (*result.task_reasons,) or tuple(failed)
    judged = evaluate(logs_of_episode(result, plant), model, result.gains, plant.clearance)
    counts = judged.violations.model_dump()
    wrong = [f"{counts[kind]} {kind} violations" for kind in VIOLATION_KINDS if counts[kind]]
    if motion.reached and not motion.steps:  # it was there already
        judged_gaps = [gap for gap in judged.gaps if not gap.startswith("planner: not one certified plan")]
    else:
        judged_gaps = list(judged.gaps)
    # Without exciting trajectories nothing is identified, and there are no bounds to judge.
    gaps = [gap for gap in judged_gaps if plans or not gap.startswith("identifier: not one update")]
    motion.simulated = {
        "payload": held.name,
        "violations": counts,
        "wrong": [*wrong, *gaps, *result.refusals],
        "clearance": judged.safety.clearance.model_dump(mode="json"),
        "final_rad": plant.truth()["q"][-1].tolist(),
        "seconds": float(result.stamps[-1] - result.stamps[0]) if len(result.stamps) else 0.0,
    }
    nearest = judged.safety.clearance
    if nearest.smallest_m is not None:
        say(f"judged: smallest true distance {at_least(nearest.smallest_m, places=4)} m ({' - '.join(nearest.pair)})")
    return result, plant
