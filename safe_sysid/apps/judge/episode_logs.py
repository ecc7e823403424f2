"""Logs of an episode in the judge's form, so that it is judged like a demo."""

from __future__ import annotations

import numpy as np

from safe_sysid.episode import EpisodeResult
from safe_sysid.planning.planner import PlannerResult
from safe_sysid.report.run.logs import GUARANTEED, ControllerLog, PlanEntry, PlantLog, RunLogs, UpdateEntry
from safe_sysid.simulation.plant import Plant

__all__ = ["logs_of_episode"]


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
            np.array(result.states), none, none, none, qdd_d=result.reference[:, 2],
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
