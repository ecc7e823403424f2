"""Planner node: parameters, topics, services and logs. It requests the next plan while the controller tracks the last.

:mod:`~.planner.scheduler` decides when to request a plan. A second process (:mod:`~.solver_process.process`) searches
for it. All callbacks run in the executor's thread.
"""

from __future__ import annotations

import json
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
from sensor_msgs.msg import JointState
from std_msgs.msg import Float64MultiArray
from trajectory_msgs.msg import JointTrajectory
from visualization_msgs.msg import MarkerArray

from safe_sysid.control.trajectory import notice_of
from safe_sysid.errors import ConfigError
from safe_sysid.nodes.common.base import ERROR, LATCHED, LATCHED_INPUT, OK, STREAM, WARN
from safe_sysid.nodes.common.digest import plan_digest
from safe_sysid.nodes.common.lifecycle import ManagedNode
from safe_sysid.nodes.common.messages import conversions
from safe_sysid.nodes.common.messages.contents import MessageRefusedError
from safe_sysid.nodes.common.messages.time_base import TimeBase, to_ns
from safe_sysid.nodes.planner.goals import GoalServer
from safe_sysid.nodes.planner.markers import path_markers, swept_markers
from safe_sysid.nodes.planner.objectives import ExcitationObjective, TaskObjective
from safe_sysid.nodes.planner.plan_record import certificate_message, plan_record
from safe_sysid.nodes.planner.scene_server import SceneServer
from safe_sysid.nodes.planner.scheduler import PlanScheduler
from safe_sysid.nodes.planner.scheduler_parts import SchedulerSettings
from safe_sysid.nodes.planner.solver_client import SolverClient
from safe_sysid.planning.costs import CostSpec
from safe_sysid.planning.results import PlannerOptions, PlannerResult
from safe_sysid.planning.solver_process import jobs
from safe_sysid.planning.solver_process.process import Event, PlannerProcess
from safe_sysid.robot.parameters import ParameterBox, zero_box_problem
from safe_sysid.robot.scenes.scene import Scene
from safe_sysid.trajectories.plan import Plan
from safe_sysid.trajectories.quintic import QuinticTrajectory

__all__ = ["PlannerNode"]

#: A first start compiles, s.
_START = 600.0
#: What a task after the identification waits for beyond the use of all data, s.
_DIGEST = 0.1
#: How often the deadline is looked at, s.
_WATCH = 0.01


class PlannerNode(ManagedNode):
    """Publishes one certified plan after another; the controller's reference says when the next one is due.

    While inactive it hears the controller and keeps the solver ready, but plans nothing.
    """

    has_scene = True

    def __init__(self, process: PlannerProcess) -> None:
        """``process`` plans; it is ended here, whatever happens."""
        self._solver = SolverClient(process)
        try:
            super().__init__("planner")
        except BaseException:
            self._solver.process.close()
            raise
        self._solver.attach(self)
        self._scheduler: PlanScheduler | None = None
        self.parameters.check("cost", CostSpec.parse)

    def configure(self) -> None:
        """The solver gets robot and scene; topics."""
        options, values = self.options, self.values
        scene = self.scene
        build = self._configure_solver()
        built = self._solver.process.configure("scene", partial(jobs.set_scene, scene=scene))
        self._reader = conversions.JointReader(self.model.joint_names, with_effort=False)
        self._early: list[float] = []  # s, how long before their hand-over plans were published
        self._answers: list[dict[str, Any]] = []
        self._drawn = 0  # boxes of the swept volume
        self._draws = values["markers"]
        self._goals: GoalServer | None = None
        self._scheduler = PlanScheduler(self._settings(scene), self, self._solver, TimeBase(options.lockstep))
        self._topics(scene, self._scheduler)
        self._warm_up()
        self._solver.process.wait(build, _START)
        self._solver.process.wait(built, _START)
        self.parameters.on_change("plans", self._set_plans)
        self.parameters.on_change("markers", self._set_markers)

    def _configure_solver(self) -> int:
        """Robot and options for the plans from now on; returns the ticket."""
        options, parameters, settings = self.options, self.parameters, self.model.settings
        budget = parameters["iteration_budget"] or settings.planner.iteration_budget
        planner = settings.planner.model_copy(update={"iteration_budget": budget})  # no proof rests on it
        build = partial(
            jobs.build,
            model=replace(self.model, settings=settings.model_copy(update={"planner": planner})),
            lockstep=options.lockstep,
            options=PlannerOptions(cost=parameters["cost"]),
            seed=options.seed,
            nice=options.realtime.nice,
        )
        return self._solver.process.configure("planner", build)

    def _set_plans(self, plans: int | None) -> None:
        if self._scheduler is not None:
            self._scheduler.set_plans(plans or self.model.settings.planner.plans)

    def _set_markers(self, draws: bool) -> None:
        self._draws = draws

    def _settings(self, scene: Scene) -> SchedulerSettings:
        options, planner, values = self.options, self.model.settings.planner, self.values
        identification, blend = self.model.settings.identification, self.model.settings.controller.blend_s
        then_goal = values["then_goal"]
        if then_goal and scene.goal is None:
            raise ConfigError("parameters of planner", "then_goal", True, f"a goal in scene {scene.name}")
        return SchedulerSettings(
            lockstep=options.lockstep,
            plans=values["plans"] or planner.plans,
            t_p_ns=to_ns(planner.t_p),
            first_ns=to_ns(values["first_plan_time"] or planner.t_p),
            margin=values["deadline_margin_s"] + notice_of(self.model),
            patience=options.patience,
            seed=options.seed,
            then_goal=scene.goal if then_goal else None,
            update_ns=to_ns(identification.update_s),
            digest_ns=to_ns(identification.take_after_s + blend + _DIGEST),
        )

    def _topics(self, scene: Scene, scheduler: PlanScheduler) -> None:
        self._publisher = self.create_publisher(JointTrajectory, "plan", LATCHED)
        # A publisher for each kind of picture: a late listener gets the newest message of each.
        self._way, self._swept, self._obstacles = (
            self.create_publisher(MarkerArray, "markers", LATCHED) for _ in range(3)
        )
        self._certificates = self.create_publisher(Float64MultiArray, "certificate", LATCHED)
        self.listen(Float64MultiArray, "bounds_active", self._on_active, LATCHED_INPUT)
        self.listen(JointState, "reference", lambda msg: scheduler.on_reference(self._reader.read(msg)), STREAM)
        self.exclusive_publishers.watch("bounds_active")
        self.exclusive_publishers.watch("plan")
        self.serve("start", scheduler.start)
        self.serve("stop", self._stop_planning)
        self._goals = GoalServer(self, scheduler, self._solver)
        self._scenes = SceneServer(self, scheduler, self._solver, scene)
        self._scenes.draw_to(self._draw_scene)
        self.every(_WATCH, scheduler.watch)

    def _stop_planning(self, reason: str = "stopped") -> None:
        if self._goals is not None:
            self._goals.drop(reason)
        if self._scheduler is not None:
            self._scheduler.stop(reason)

    def _on_active(self, msg: Float64MultiArray) -> None:
        """The box that the controller works with, unless it has another idea of the arm."""
        answer = conversions.read_bounds(msg, self.model.arm_prior.size)
        if self._scheduler is None:
            return
        self.trust("bounds_active")
        try:
            self.check_digest("the controller", answer.digest)
        except MessageRefusedError:
            self._stop_planning()
            self._scheduler.forget_boxes()
            raise
        reason = zero_box_problem(answer.box, self.model.arm_prior)
        if reason is not None:  # a plan for it would be taken for one that holds for the prior
            raise MessageRefusedError("not the prior", reason)
        self._scheduler.on_box(answer.box)

    def _draw_scene(self, array: MarkerArray) -> None:
        if self._draws:
            self._obstacles.publish(array)

    # -- transitions --------------------------------------------------------------------------------------------

    def activate(self) -> list[str]:
        """Plan as soon as the arm holds still, unless the controller works with another configuration."""
        return self.foreign

    def activated(self) -> None:
        """Exciting trajectories, if they are wanted at once."""
        if self._scheduler is None:
            return
        self._scheduler.activate()
        if self.values["start_on_activation"]:
            self._scheduler.start()
        else:
            self._scheduler.tell_idle()

    def deactivate(self) -> list[str]:
        """No further plan: the arm brakes along the one under way."""
        self._stop_planning("the planner was deactivated")
        if self._scheduler is not None:
            self._scheduler.deactivate()
        return []

    def _warm_up(self) -> None:
        """Compile (or load) what pictures need: a plan must not wait for that."""
        home = np.zeros((3, self.model.n))
        home[0] = self.model.settings.home
        trajectory = QuinticTrajectory.to_rest(home, home[0], 1.0)
        path_markers(self.model, Plan(trajectory, 0.0, 0.5, "0:0", 0, home[1]))

    # -- answers ------------------------------------------------------------------------------------------------

    def publish_plan(self, start_ns: int, box: ParameterBox, result: PlannerResult, purpose: str) -> str:
        """A certified plan, its certificate and its picture; returns a line about it."""
        if not self.active:
            raise RuntimeError(f"a plan while {self.lifecycle}: expected never to get here")
        plan, certificate = result.plan, result.certificate
        if plan is None or certificate is None or not certificate.ok or plan.box_identity != box.identity:
            raise RuntimeError("a plan without a certificate for the box in force: expected never to get here")
        self._publisher.publish(
            conversions.plan_message(plan, self.model.joint_names, start_ns, plan_digest(self.digest))
        )
        record = plan_record(result, plan.sequence, start_ns, box, purpose)
        if not self.options.lockstep:
            self._early.append(1e-9 * (start_ns - self.now_ns()))
            record["published_before_s"] = self._early[-1]
        self._answers.append(record)
        self._certificates.publish(certificate_message(plan, certificate, start_ns))
        if self._draws:
            self._way.publish(path_markers(self.model, plan))
            self._solver.submit(partial(jobs.sweep, plan=plan), self._on_swept)
        if self.options.run_dir is not None:
            keep = partial(jobs.write_file, plan=plan, certificate=certificate, box=box)
            self._solver.submit_aside(partial(keep, directory=self.options.run_dir), "plan file")
        text = f"plan {plan.sequence} in {result.wall_time:.2f} s, cost {result.cost:.4g}"
        self.say(f"{text}: {record['summary']}")
        return text

    def _on_swept(self, event: Event) -> None:
        if event.kind == "failed":
            self.refuse("swept volume", "failed", event.text)
        elif event.kind == "done":
            array = swept_markers(event.value, drawn=self._drawn)
            self._drawn = max(self._drawn, len(array.markers))
            if self._draws:
                self._swept.publish(array)

    def publish_none(self, start_ns: int, identity: str, next_ns: int | None) -> None:
        """There is no plan for this hand-over; the next one begins at ``next_ns``, or none will."""
        self._publisher.publish(
            conversions.empty_plan_message(
                start_ns, identity, self.model.joint_names, next_ns, plan_digest(self.digest)
            )
        )

    def note_failure(self, start_ns: int, box: ParameterBox, result: PlannerResult, purpose: str) -> None:
        """Nothing was certified: for the log."""
        sequence = 0 if self._scheduler is None else self._scheduler.sequence
        self._answers.append(plan_record(result, sequence, start_ns, box, purpose))

    # -- telling ------------------------------------------------------------------------------------------------

    def status(self) -> tuple[bytes, str, dict[str, object]]:
        """What is planned, and how the last attempts ended."""
        scheduler, process, scene = self._scheduler, self._solver.process, self._scenes.scene
        if scheduler is None:
            return OK, "nothing planned", {}
        values: dict[str, object] = {"phase": scheduler.phase, "plans": scheduler.sequence, "busy": scheduler.busy}
        objective = scheduler.objective
        if isinstance(objective, ExcitationObjective):
            values["left"] = objective.left
        if isinstance(objective, TaskObjective) and objective.distance is not None:
            values["distance"] = f"{objective.distance:.3f} rad"
        if scheduler.outcome:
            values["task"] = scheduler.outcome
        if scheduler.failure:
            values["excitation"] = scheduler.failure
        if self._early:
            values["published before the hand-over"] = f"{min(self._early):.3f} s at least"
        for answer in self._answers[-3:]:
            text = f"{answer['purpose']}, {answer['status']}; {answer['summary']}"
            values[f"plan {answer['sequence']}"] = text
        values["goal"] = "none" if self._goals is None else self._goals.text
        values["scene"] = f"{scene.name}, {len(scene.obstacles)} obstacles"
        values["solver"] = f"process {process.pid}, started again {process.restarts} times"
        if process.ready:
            refused = bool(self._answers) and "knots" not in self._answers[-1]
            return ERROR if scheduler.failure else WARN if refused else OK, scheduler.text, values
        level = ERROR if process.pid is None else WARN
        return level, f"{scheduler.text}; the solver process is not ready", values

    def cleanup(self) -> None:
        """Write ``planner.json``; the solver process stays warm."""
        scheduler, self._scheduler = self._scheduler, None
        if scheduler is None:
            return
        self._stop_planning("the planner is cleaned up")
        scheduler.deactivate()
        if self.options.run_dir is not None:
            told = {"task": scheduler.outcome, "failure": scheduler.failure, "refused": dict(self.refusals)}
            record = {"plans": self._answers} | told
            (self.options.run_dir / "planner.json").write_text(json.dumps(record, indent=1))

    def close(self) -> None:
        """End the solver too."""
        try:
            super().close()
        finally:
            self._solver.process.close()
