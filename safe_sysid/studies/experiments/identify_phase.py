"""Identification phase of Table II: exciting motions between lifting and the task, and the resulting bounds.

``Algorithm 2`` is the in-process loop of :mod:`safe_sysid.episode`: plans, controller and identifier as in the nodes,
in lock-step. ``random`` is the same with plans that nobody chose. Adaptive laws follow the plans that ``Algorithm 2``
makes for the same arm and payload in a rehearsal, a simulation without the cell. Exciting plans end anywhere: the way
back to where they began is planned and certified for the payload as identified. The Fourier series knows velocity and
acceleration limits only, and ends where it began; its data go through the same identifier.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, cast

import numpy as np
from numpy.typing import ArrayLike

from safe_sysid.control.laws.law import ControlLaw, ModelInUse
from safe_sysid.core.arrays import FloatArray
from safe_sysid.episode import Episode, EpisodeResult
from safe_sysid.errors import SafeSysIdError
from safe_sysid.identification.equations.measurements import Measurements, Sample
from safe_sysid.identification.identifier import Identifier, UpdateResult
from safe_sysid.planning.costs.observation import MomentumObservation, condition_number
from safe_sysid.planning.excitation.random_excitation import RandomPlanner
from safe_sysid.robot.model import RobotModel
from safe_sysid.robot.parameters import ParameterBox
from safe_sysid.simulation.plant import Plant
from safe_sysid.studies.experiments.interfaces import Cell
from safe_sysid.trajectories.plan import Plan

__all__ = [
    "LearnedPayload",
    "RecordingCell",
    "chain",
    "follow",
    "identify_from",
    "plan_and_identify",
    "rehearsed_plans",
]

Reference = Callable[[float], FloatArray]


@dataclass(frozen=True, eq=False)
class LearnedPayload:
    """What an identification phase ended with."""

    box: ParameterBox  #: proved bounds of all parameters; the prior where nothing was learned
    nominal: FloatArray  #: (10,) estimate of theta_e inside them
    rest: FloatArray  #: (n,) rad, the reference at which the arm rests now
    failure: str = ""  #: "" or why it was given up
    notes: dict[str, Any] = field(default_factory=dict)


class RecordingCell:
    """A cell that remembers what was measured in it; for :class:`Episode` it is the plant."""

    def __init__(self, cell: Cell, sampled: Callable[[float], None] | None = None) -> None:
        """Begin with an empty log.

        ``sampled``: called with the stamp of every measurement, for what others want to note then.
        """
        self.cell, self._sampled = cell, sampled
        self.measurement = cell.measurement
        self.log: list[Sample] = []

    def step(self, torque: ArrayLike | None) -> Sample:
        """Advance by one period. ``torque``: (n,) N m; None: none came."""
        self.measurement = self.cell.step(torque)
        self.log.append(self.measurement)
        if self._sampled is not None:
            self._sampled(self.measurement.stamp)
        return self.measurement

    def measurements(self) -> Measurements:
        """Everything so far."""
        return Measurements.of(self.log)

    def condition(self, model: RobotModel) -> float:
        """Condition number of PSO's Y, unscaled, of the phase; nan without two windows of data."""
        settings = model.settings
        samples = round(settings.identification.window_s / settings.timing.period_s)
        if len(self.log) <= 2 * samples:
            return float("nan")
        data = self.measurements()
        rows = MomentumObservation(model.kinematics, data.stamps, data.q, data.qd).rows(samples)
        return condition_number(rows)


def plan_and_identify(
    model: RobotModel, tap: RecordingCell, ready: FloatArray, seed: int, random: bool = False, plans: int | None = None
) -> LearnedPayload:
    """Algorithm 2, or the same with random plans: from rest to rest, and back to where it began.

    Args:
        model: the arm, as believed.
        ready: (n,) rad, the reference at which the arm rests.
        random: whether plans are drawn instead of chosen.
        plans: exciting ones; None for the configuration's.
    """
    scene, prior = tap.cell.scene(), model.arm_prior
    plant = cast(Plant, tap)  # Episode asks no more of one than a tap has
    episode = Episode(model, plant, scene, plans, seed, waypoints=ready[None])
    if random:
        episode.planner = RandomPlanner(model, scene, episode.gains, seed=seed)
    nominal = 0.5 * (prior.payload_lower + prior.payload_upper)
    try:
        result = episode.run()
    except SafeSysIdError as error:
        return LearnedPayload(prior, nominal, ready, f"identification: {error}")
    last = result.updates[-1][1] if result.updates else None
    box = episode.controller.box
    if last is not None:
        nominal = np.clip(last.nominal, box.payload_lower, box.payload_upper)
    rest = result.reference[-1, 0] if len(result.reference) else ready
    failure = "; ".join([*result.refusals, *([result.failure] if result.failure else [])])
    notes = {**_told(result.updates), **_plans_told(result), "condition": tap.condition(model)}
    return LearnedPayload(box, nominal, rest, failure and f"identification: {failure}", notes)


def _plans_told(result: EpisodeResult) -> dict[str, Any]:
    return {
        "plans": sum(answer.plan is not None for answer in result.plans),
        "plan_s": [round(answer.wall_time, 3) for answer in result.plans],
        "plan_reasons": [reason for answer in result.plans for reason in answer.reasons],
        "refusals": list(result.refusals),
        "way_back": "none" if result.task is None else result.task.value,
        "way_back_plans": sum(answer.plan is not None for _, answer in result.task_plans),
        "way_back_reasons": list(result.task_reasons),
    }


def _told(updates: Sequence[tuple[float, UpdateResult]]) -> dict[str, Any]:
    """Bounds over time."""
    return {
        "stamps": [float(stamp) for stamp, _ in updates],
        "nominal": [update.nominal.tolist() for _, update in updates],
        "lower": [update.box.payload_lower.tolist() for _, update in updates],
        "upper": [update.box.payload_upper.tolist() for _, update in updates],
        "statuses": [update.status.name for _, update in updates],
    }


def rehearsed_plans(
    model: RobotModel, plant: Plant, ready: FloatArray, seed: int, plans: int | None = None
) -> tuple[list[Plan], tuple[str, ...]]:
    """The plans that Algorithm 2 makes for an arm with its payload, way back included, and reasons if it made none.

    Args:
        model: the arm, as believed.
        plant: the same arm with the same payload, at rest where the phase begins.
        ready: (n,) rad, where it rests.
        plans: exciting ones; None for the configuration's.
    """
    try:
        result = Episode(model, plant, plant.scene, plans, seed, waypoints=ready[None]).run()
    except SafeSysIdError as error:
        return [], (str(error),)
    answers = [*result.plans, *(answer for _, answer in result.task_plans)]
    made = [answer.plan for answer in answers if answer.plan is not None]
    return made, tuple(reason for answer in answers for reason in answer.reasons)


def chain(plans: Sequence[Plan]) -> tuple[Reference, float]:
    """Plans one after the other, each until the next takes over: the reference from 0 s on, and when it is at rest.

    ``plans``: in order; at least one.
    """
    origin = plans[0].start_time
    starts = np.array([plan.start_time - origin for plan in plans])

    def reference(t: float) -> FloatArray:
        i = max(int(np.searchsorted(starts, t + 1e-9, side="right")) - 1, 0)
        return plans[i].trajectory.state(t - starts[i])

    return reference, float(starts[-1] + plans[-1].trajectory.duration)


def follow(tap: RecordingCell, law: ControlLaw, known: ModelInUse, reference: Reference, duration: float) -> FloatArray:
    """Track a reference, from now on; returns the position (n,) at which it ends.

    Args:
        law: at work; it is not reset.
        reference: (4, n) desired position .. jerk at times from 0 s.
        duration: s.
    """
    measurement = tap.measurement
    start, period = measurement.stamp, tap.cell.period
    while measurement.stamp < start + duration - 0.5 * period:
        desired = reference(measurement.stamp - start)
        torque = law.step(measurement.stamp, measurement.q, measurement.qd, desired, known)
        measurement = tap.step(np.array(torque))
    return np.array(reference(duration)[0])


def identify_from(model: RobotModel, tap: RecordingCell, rest: FloatArray) -> LearnedPayload:
    """What Algorithm 1 says of the data of a tap, in the batches in which the nodes give them to it.

    ``model``: the arm, as believed; ``rest``: (n,) rad, where the arm rests now.
    """
    if not tap.log:
        prior = model.arm_prior
        middle = 0.5 * (prior.payload_lower + prior.payload_upper)
        return LearnedPayload(prior, middle, rest, "identification: no data")
    identifier = Identifier(model)
    data, updates = tap.measurements(), []
    size = round(model.settings.identification.update_s / model.settings.timing.period_s)
    for first in range(0, len(data.stamps), size):
        part = slice(first, first + size)
        identifier.add(data[part])
        updates.append((float(data.stamps[part][-1]), identifier.update()))
    notes = {**_told(updates), "condition": tap.condition(model)}
    return LearnedPayload(identifier.box, np.array(updates[-1][1].nominal), rest, "", notes)
