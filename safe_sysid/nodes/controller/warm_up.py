"""Warm-up of the controller: calls every function of the loop once, so that nothing is compiled in the loop."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial

import numpy as np
from numpy.typing import NDArray

from safe_sysid.control.controller import Controller
from safe_sysid.control.feed_forward import AddedTorque
from safe_sysid.control.gains import ControllerGains
from safe_sysid.control.law import ControlLaw
from safe_sysid.nodes.common.parameters import CommonOptions
from safe_sysid.robot.model import RobotModel
from safe_sysid.robot.scenes.scene import Scene

__all__ = ["rehearse", "start_check_of"]

FloatArray = NDArray[np.float64]


def rehearse(
    model: RobotModel,
    gains: ControllerGains,
    make_law: Callable[[], ControlLaw],
    added: AddedTorque | None = None,
) -> None:
    """Do what the loop will do: what it compiles, or reads from a cache, would stall it.

    Args:
        model: of the arm.
        gains: of its controller.
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


def start_check_of(
    options: CommonOptions, model: RobotModel, gains: ControllerGains, scene: Scene
) -> Callable[[FloatArray], list[str]] | None:
    """Real time: judges whether a pose is clear, and can be held with every payload of the prior.

    In simulation a pose is held that the planner then refuses to move from (docs/controller.md).

    Args:
        options: of the node.
        model: of the arm.
        gains: of its controller.
        scene: around it, as it was configured.
    """
    if options.lockstep:
        return None
    from safe_sysid.planning.certification.certificate import (
        start_check,  # seldom needed, and takes long to import
    )

    check = partial(start_check, model, model.arm_prior, scene, gains)
    check(np.array(model.settings.home))  # compiled now, not when it is asked
    return check
