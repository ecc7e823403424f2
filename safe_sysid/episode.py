"""The whole loop in one process and without ROS: plant, controller, identifier, planner in lock-step.

The nodes call the same parts on the same schedule; tests and campaigns run this. Simulated time stands still while the
planner and the identifier think, so that a seed gives the same run on any machine.

Schedule, in seconds of simulated time from the start, with t_p and t_f of the planner, U = ``identification.update_s``:
plan j begins at ``T_j = (j + 1) t_p`` and is made for the box announced by ``T_{j-1}`` (plans 0 and 1: the prior, or
whatever the standing arm has taught by then); batch m of data ends at ``m U``, its bounds are taken ``take_after_s``
later and announced when they are blended in.

With waypoints a task follows, for the payload as identified: when the arm is at rest and the last bounds are in force,
a :class:`~.task.TaskPlanner` makes one plan after another, each while the one before is tracked,
until the last waypoint is reached or refused.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import ArrayLike

from safe_sysid.control.controller import Controller, ControllerState
from safe_sysid.control.feed_forward.by_name import make_added_torque
from safe_sysid.control.gains import ControllerGains
from safe_sysid.control.gains.design import check_acceleration, design_gains
from safe_sysid.core.arrays import FloatArray, IntArray
from safe_sysid.decimals import width_at_most
from safe_sysid.errors import PlanError
from safe_sysid.identification.diagnosis.narrowed import why_taught_nothing
from safe_sysid.identification.equations.measurements import Measurements, Sample
from safe_sysid.identification.identifier import Identifier, UpdateResult
from safe_sysid.planning.excitation.lessons import next_lesson
from safe_sysid.planning.planner import (
    Planner,
    PlannerOptions,
    PlannerResult,
    bounds_stopped_improving,
    hand_over_state,
)
from safe_sysid.planning.task.series_task import SeriesTask
from safe_sysid.planning.task.task import TaskPlanner, TaskStatus
from safe_sysid.robot.model import RobotModel
from safe_sysid.robot.parameters import ParameterBox
from safe_sysid.robot.scenes.scene import Scene
from safe_sysid.simulation.plant import Plant
from safe_sysid.trajectories.plan import Plan

__all__ = ["Episode", "EpisodeResult"]


@dataclass
class EpisodeResult:
    """What happened; K control ticks, n joints."""

    gains: ControllerGains
    stamps: FloatArray = field(default_factory=lambda: np.zeros(0))  #: (K,) s
    #: (K, 4, n) desired position, velocity, acceleration, jerk
    reference: FloatArray = field(default_factory=lambda: np.zeros((0, 4, 0)))
    energy: FloatArray = field(default_factory=lambda: np.zeros(0))  #: (K,) lower bound of V from the measurement, J
    states: list[str] = field(default_factory=list)  #: (K,) name of the controller's state
    uncertainty: FloatArray = field(default_factory=lambda: np.zeros(0))  #: (K,) S
    #: (K,) the tracking tube that was claimed, a place in :func:`~safe_sysid.control.tube.tubes_of`
    tube: IntArray = field(default_factory=lambda: np.zeros(0, np.int64))
    updates: list[tuple[float, UpdateResult]] = field(default_factory=list)  #: (time, result) of every identification
    #: (time, box) of every box that the controller announced
    announced: list[tuple[float, ParameterBox]] = field(default_factory=list)
    plans: list[PlannerResult] = field(default_factory=list)  #: every answer of the planner while it identified
    #: every answer to the task: (box it was asked for, answer)
    task_plans: list[tuple[ParameterBox, PlannerResult]] = field(default_factory=list)
    task: TaskStatus | None = None  #: how the task ended; None without waypoints, or if it was not begun
    task_reasons: tuple[str, ...] = ()  #: why it was given up
    #: plans or boxes that the controller refused, with reasons; empty in a healthy run
    refusals: list[str] = field(default_factory=list)
    #: why the identification failed: no plan that teaches anything, or intervals that motion should have narrowed are
    #: the prior's still; "" if it did not, or none was wanted
    failure: str = ""


class Episode:
    """One run on one plant."""

    def __init__(
        self,
        model: RobotModel,
        plant: Plant,
        scene: Scene,
        plans: int | None = None,
        seed: int = 0,
        options: PlannerOptions | None = None,
        progress: Callable[[str], None] | None = None,
        identifier: Identifier | None = None,
        sensed: Callable[[Measurements], Measurements] | None = None,
        waypoints: ArrayLike | None = None,
        box: ParameterBox | None = None,
        task: SeriesTask | None = None,
    ) -> None:
        """Prepare.

        Args:
            model: what controller, planner and identifier believe.
            plant: the arm; it alone knows the truth.
            scene: what stands around the arm.
            plans: exciting trajectories; None for the configuration's; 0 for none: only the task.
            seed: of the planner's random choices.
            options: of the planner.
            progress: called with a line now and then.
            identifier: None for one with the configuration's errors.
            sensed: what the identifier gets for what was measured (a study of worse sensors than the controller's).
            waypoints: (W, n) rad, to go to after the identification, each reached at rest; None for no task.
            box: that is known to hold the truth, inside the prior; blended in before the task. None for the prior.
            task: exciting series, instead of waypoints.

        Raises:
            PlanError: malformed waypoints, or nothing to do.
        """
        self.model, self.plant = model, plant
        self._planner_settings, self._id_settings = model.settings.planner, model.settings.identification
        self._plans = self._planner_settings.plans if plans is None else plans
        self.gains = design_gains(model, lockstep=True)
        check_acceleration(model, self.gains)
        added = make_added_torque(model, self.gains, lockstep=True)
        self.controller = Controller(model, self.gains, model.settings.controller.blend_s, added=added)
        self.identifier = identifier or Identifier(model)
        self._sensed = sensed or (lambda data: data)
        self.planner = Planner(model, scene, self.gains, options=options, seed=seed)
        self._task: TaskPlanner | SeriesTask | None = task
        if waypoints is not None:
            self._task = TaskPlanner(self.planner, waypoints, seed=seed)
        if self._plans < 1 and self._task is None:
            raise PlanError(f"plans = {self._plans}: expected at least 1 where there are no waypoints")
        self._known = box
        self._offered: Plan | None = None  # the task's last
        self._under_way: Plan | None = None  # the task's that was begun last
        self._identified, self._sequence = not self._plans, 0
        self._say = progress or (lambda line: None)
        self.result = EpisodeResult(self.gains)

    def run(self) -> EpisodeResult:
        """Run until the last plan has come to rest and its data are used.

        Raises:
            PlanError: the start pose was refused, with the reasons.
        """
        period, t_p = self.model.settings.timing.period_s, self._planner_settings.t_p
        per_plan, per_batch = round(t_p / period), round(self._id_settings.update_s / period)
        take = round(self._id_settings.take_after_s / period)
        n, controller, out = self.model.n, self.controller, self.result
        measurement = self.plant.measurement
        reasons = controller.start(measurement.stamp, measurement.q, measurement.qd, measurement.effort)
        if reasons:
            raise PlanError("start refused: " + "; ".join(reasons))
        start, rest = measurement.stamp, measurement.q.copy()
        # The first plan is made while the arm stands, so that it can begin at T_0.
        if self._plans:
            self._plan(0, start + t_p, np.stack([measurement.q, np.zeros(n), np.zeros(n)]), None)
        samples: list[Sample] = []
        log: dict[str, list] = {key: [] for key in ("reference", "energy", "S", "tube")}
        pending: list[ParameterBox] = [] if self._known is None else [self._known]
        k = 0
        while True:
            if k > 0:
                samples.append(measurement)
                if out.task is not None:
                    self._advance_task(measurement.stamp, rest)
                elif not self._identified:
                    self._offer_plan_if_due(k, per_plan, start, period)
                    if k % per_batch == 0:
                        pending += self._identify(samples[-per_batch:])
                if pending and k % per_batch == take % per_batch:
                    self._take_box(pending.pop(0), measurement.stamp)
                step = controller.step(measurement.stamp, measurement.q, measurement.qd)
                out.states.append(controller.state.value)
                log["reference"].append(np.array(step.reference))
                log["energy"].append(step.energy)
                log["S"].append(controller.uncertainty)
                log["tube"].append(controller.tube)
                if step.announce is not None:
                    out.announced.append((measurement.stamp, step.announce))
                if controller.state is ControllerState.FAULT:
                    out.refusals.append(controller.reason)
                    break
                rest = step.reference[0].copy()
                if self._is_over(k, per_plan, per_batch, bool(pending)):
                    break
                measurement = self.plant.step(step.torque)
            else:
                measurement = self.plant.step(None)  # the drives hold until the first command
            k += 1
        out.stamps, out.reference = np.array([m.stamp for m in samples]), np.array(log["reference"])
        out.energy, out.uncertainty = np.array(log["energy"]), np.array(log["S"])
        out.tube = np.array(log["tube"], np.int64)
        if self._plans:
            out.failure = self._why_nothing_learned()
            if out.failure:
                self._say(f"the identification failed: {out.failure}")
        return out

    def _why_nothing_learned(self) -> str:
        if not any(answer.plan is not None for answer in self.result.plans):
            reasons = [f"{answer.status.value}: {'; '.join(answer.reasons)}" for answer in self.result.plans]
            return "; ".join(reasons) or "no exciting plan"
        box = self.identifier.box
        return why_taught_nothing(self.model, box.payload_lower, box.payload_upper)

    def _is_over(self, k: int, per_plan: int, per_batch: int, pending: bool) -> bool:
        """Whether the run ends here; begins the task when the arm rests and its last bounds are in force."""
        controller, out = self.controller, self.result
        at_rest = controller.state is ControllerState.HOLDING and controller.plan is None
        if not self._identified and k > per_plan and k % per_batch == 0 and at_rest:
            self._identified = True  # with the data of this very batch
        if not (self._identified and at_rest):
            return False
        if self._task is None:
            return True
        if out.task is None and not (pending or controller.blending):
            out.task, self._sequence = TaskStatus.MOVING, len(out.plans)
        return out.task in (TaskStatus.ARRIVED, TaskStatus.REFUSED)

    def _advance_task(self, now: float, rest: FloatArray) -> None:
        """Offer the task's next plan as soon as the last one is under way, or the arm is at rest (at ``rest``)."""
        task, controller = self._task, self.controller
        if task is None or controller.pending_plan is not None:
            return
        resting = controller.state is ControllerState.HOLDING and controller.plan is None
        if resting:
            offered = self._offered
            not_begun = offered is not None and offered.tube > 0 and offered is not self._under_way
            if not_begun and isinstance(task, TaskPlanner):  # of series there are only so many
                task.planner = task.planner.in_widest_tube()
            previous, time = None, max(now, controller.rests_until(now))
            state = np.stack([rest, np.zeros_like(rest), np.zeros_like(rest)])
        else:
            previous = controller.plan
            begun = controller.state is ControllerState.TRACKING and previous is not self._under_way
            self._under_way = previous
            if previous is None or not begun or task.rests_after(previous):
                return
            time, state = task.start_of_next(previous)
        answer = task.next(state, time, controller.box, self._sequence, previous)
        # A task has ended when the arm rests: until then it is on its way, if only to stop.
        self.result.task = task.status if resting and answer.plan is None else TaskStatus.MOVING
        self.result.task_reasons = task.reasons
        if resting and task.status is TaskStatus.ARRIVED:
            return
        self.result.task_plans.append((controller.box, answer))
        if answer.plan is None:
            self._say(f"{now:.1f} s: task: {answer.status.value}: {'; '.join(answer.reasons)}")
            return
        self._sequence += 1
        self._say(f"{now:.1f} s: task: plan {answer.plan.sequence}{task.progress}")
        self._offered = answer.plan
        reason = controller.offer_plan(answer.plan, now)
        if reason is not None:
            self.result.refusals.append(f"plan {answer.plan.sequence}: {reason}")

    def _plan(self, sequence: int, start_time: float, state: FloatArray, previous: PlannerResult | None) -> None:
        information = sum((p.information for p in self.result.plans), np.zeros((10, 10)))
        answer = next_lesson(
            self.planner,
            state,
            start_time,
            self.controller.box,
            sequence,
            previous=previous.plan if previous else None,
            executed_information=information,
            last=sequence == self._plans - 1,
            calibration=previous.calibration if previous else None,
        )
        self.result.plans.append(answer)
        if answer.plan is None:
            self._say(f"plan {sequence}: {answer.status.value}: {'; '.join(answer.reasons)}")
            return
        self._say(f"plan {sequence}: {answer.certificate.summary() if answer.certificate else answer.status.value}")

    def _offer_plan_if_due(self, k: int, per_plan: int, start: float, period: float) -> None:
        """At T_j: hand plan j to the controller, then make plan j + 1 while it is tracked."""
        if k % per_plan or not self.result.plans:
            return
        sequence = k // per_plan - 1
        if sequence >= len(self.result.plans):
            return
        answer = self.result.plans[sequence]
        plan = answer.plan
        if plan is None:
            return
        now = start + k * period
        reason = self.controller.offer_plan(plan, now)
        if reason is not None:
            self.result.refusals.append(f"plan {sequence}: {reason}")
            return
        history = [self.model.arm_prior, *(box for _, box in self.result.announced)]
        if sequence + 1 < self._plans and not bounds_stopped_improving(history):
            self._plan(sequence + 1, plan.hand_over_time, hand_over_state(plan), answer)

    def _identify(self, samples: list[Sample]) -> list[ParameterBox]:
        self.identifier.add(self._sensed(Measurements.of(samples)))
        before = self.identifier.box
        update = self.identifier.update()
        now = samples[-1].stamp
        self.result.updates.append((now, update))
        lower, upper = update.box.payload_lower, update.box.payload_upper
        self._say(
            f"{now:.1f} s: {update.status.value}: mass within {width_at_most(lower[0], upper[0])} kg, m c_z within "
            f"{width_at_most(lower[3], upper[3])} kg m"
        )
        return [update.box] if update.box.seq > before.seq else []

    def _take_box(self, box: ParameterBox, now: float) -> None:
        reason = self.controller.offer_box(box, now)
        if reason is not None:
            self.result.refusals.append(f"bounds {box.identity}: {reason}")
