"""Rehearsals: calls what controller and identifier will call, so that nothing is compiled while the arm moves."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from safe_sysid.control.controller import Controller
from safe_sysid.control.feed_forward import AddedTorque
from safe_sysid.control.gains import ControllerGains
from safe_sysid.control.gains.design import design_gains
from safe_sysid.control.laws import make_law
from safe_sysid.control.laws.law import ControlLaw
from safe_sysid.control.trajectory import TrajectoryController
from safe_sysid.control.tube import MeasuredTube
from safe_sysid.identification.equations.measurements import Measurements
from safe_sysid.identification.identifier import Identifier
from safe_sysid.robot.loading import load_robot
from safe_sysid.robot.model import RobotModel
from safe_sysid.trajectories.plan import Plan
from safe_sysid.trajectories.quintic import QuinticTrajectory

__all__ = ["rehearse", "rehearse_controller", "rehearse_identifier", "rehearse_trajectories"]


def rehearse_controller(
    model: RobotModel, gains: ControllerGains, make_law: Callable[[], ControlLaw], added: AddedTorque | None = None
) -> None:
    """Do what the 1 kHz loop will do: what it compiles, or reads from a cache, would stall it.

    Args:
        make_law: of control; a new one each time.
        added: to the law's torque; forgets what was asked here at the next start.
    """
    scratch, zero = Controller(model, gains, law=make_law(), added=added), np.zeros(model.n)
    home, effort = np.array(model.settings.home), zero
    scratch.start(0.0, home, zero, zero)  # refused, but compiled
    scratch.start(0.0, home, zero)
    for k in range(1, 51):  # a blend, and commands that are found again in the efforts
        out = scratch.step(1e-3 * k, home, zero, effort if k > 1 else None)
        effort = effort if out.torque is None else out.torque.copy()
        if k == 1:
            scratch.offer_box(replace(model.arm_prior, seq=1), 1e-3)


def rehearse_trajectories(model: RobotModel, tube: MeasuredTube) -> None:
    """The same for an arm that follows trajectories by itself: a start, some samples, a plan."""
    scratch, zero, home = TrajectoryController(model, tube), np.zeros(model.n), np.array(model.settings.home)
    scratch.start(0.0, home, zero, zero)  # refused, but compiled
    scratch.start(0.0, home, zero)
    hold = QuinticTrajectory.to_rest(np.stack([home, zero, zero]), home, 2.0)
    scratch.offer_plan(Plan(hold, scratch.notice + 1.0, 1.0, "0:0", 0, zero), 0.0)
    for k in range(1, 4):
        scratch.step(k * scratch.period, home, zero)


def rehearse_identifier(model: RobotModel) -> None:
    """Identify from 0.3 s of an arm that stands still."""
    scratch, count = Identifier(model), 300
    q, zero = np.tile(model.settings.home, (count, 1)), np.zeros((count, model.n))
    scratch.add(Measurements(np.linspace(0.0, 0.299, count), q, zero, zero))
    scratch.update()


def rehearse(robot: str = "kinova_gen3") -> None:
    """Rehearse both with a packaged robot: kernels are the same for all."""
    model = load_robot(robot)
    rehearse_identifier(model)
    gains = design_gains(model, lockstep=True)
    rehearse_controller(model, gains, lambda: make_law(model.settings.controller.law, model, gains))
