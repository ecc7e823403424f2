"""The two interfaces to an arm, each with its controller, its activation checks and its log.

``controller.interface`` decides: our law's torques, or trajectories that the arm's own controller follows.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from std_msgs.msg import Float64MultiArray
from trajectory_msgs.msg import JointTrajectory

from safe_sysid.apps.rehearsal import rehearse_controller, rehearse_trajectories
from safe_sysid.control.checks.activation import ActivationChecks, StartCheck
from safe_sysid.control.checks.tube_activation import TubeActivationChecks
from safe_sysid.control.controller import Controller
from safe_sysid.control.feed_forward.by_name import make_added_torque
from safe_sysid.control.gains.design import check_acceleration, design_gains
from safe_sysid.control.laws import make_law
from safe_sysid.control.states import COMMAND_TOPICS
from safe_sysid.control.trajectory import TrajectoryController
from safe_sysid.control.tube import TrackingTube, measured_tube
from safe_sysid.core.arrays import FloatArray
from safe_sysid.nodes.common.messages import conversions
from safe_sysid.nodes.common.messages.serialised import CommandBytesWriter
from safe_sysid.nodes.common.messages.time_base import TimeBase, to_ns
from safe_sysid.nodes.common.messages.trajectories import TrajectoryWriter
from safe_sysid.nodes.common.parameters import CommonOptions
from safe_sysid.nodes.controller.tick_log import TickLog, TorqueTickLog, TubeTickLog
from safe_sysid.robot.model import RobotModel
from safe_sysid.robot.parameters import ParameterBox
from safe_sysid.robot.scenes.scene import Scene

__all__ = ["Interface", "command_topic", "make_interface", "start_check_of"]


def start_check_of(options: CommonOptions, model: RobotModel, gains: TrackingTube, scene: Scene) -> StartCheck | None:
    """Real time: judges whether a pose is clear, and can be held with every payload of the box at hand.

    In simulation a pose is held that the planner then refuses to move from (docs/use/controller.md).
    """
    if options.lockstep:
        return None
    from safe_sysid.planning.certification.certificate import start_tube  # seldom needed, and takes long to import

    def check(q: FloatArray, box: ParameterBox) -> tuple[list[str], int]:
        return start_tube(model, box, scene, gains, q)

    check(np.array(model.settings.home), model.arm_prior)  # compiled now, not when it is asked
    return check


@dataclass(frozen=True, eq=False)
class Interface:
    """See the module."""

    core: Controller | TrajectoryController
    checks: ActivationChecks
    log: TickLog
    writer: Any  #: ``fill(stamp_ns, command)`` makes the message


def command_topic(model: RobotModel) -> tuple[str, type]:
    """Topic and type of the commands."""
    interface = model.settings.controller.interface
    return COMMAND_TOPICS[interface], JointTrajectory if interface == "trajectory" else Float64MultiArray


def make_interface(
    model: RobotModel,
    options: CommonOptions,
    scene: Scene,
    time_base: TimeBase,
    now_ns: Callable[[], int],
    simulated: bool,
) -> Interface:
    """That of the configuration; everything that it will call is compiled.

    Raises ParameterError: no tracking bound exists, or no tube is declared for what is asked.
    """
    settings, lockstep = model.settings, options.lockstep
    rows = to_ns(options.log_s) // to_ns(settings.timing.period_s)
    if settings.follows_trajectories:
        tube = measured_tube(model)
        rehearse_trajectories(model, tube)
        check = start_check_of(options, model, tube, scene)
        follower = TrajectoryController(model, tube)
        return Interface(
            follower,
            TubeActivationChecks(model, tube, check, lockstep, simulated),
            TubeTickLog(follower, lockstep, now_ns, rows),
            TrajectoryWriter(model.joint_names, time_base),
        )
    gains = design_gains(model, lockstep)
    check_acceleration(model, gains)
    added = make_added_torque(model, gains, lockstep)

    def law() -> Any:
        return make_law(settings.controller.law, model, gains)

    try:
        rehearse_controller(model, gains, law, added)
        check = start_check_of(options, model, gains, scene)
    except BaseException:
        if added is not None:
            added.close()
        raise
    core = Controller(model, gains, settings.controller.blend_s, law(), added)
    return Interface(
        core,
        ActivationChecks(model, gains, check, lockstep, simulated),
        TorqueTickLog(core, lockstep, now_ns, rows),
        # In real time the loop's two messages are read and written as bytes.
        conversions.CommandWriter(model.n) if lockstep else CommandBytesWriter(model.n),
    )
