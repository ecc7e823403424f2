"""Planner, identifier and controller for an arm whose driver runs already (ros2_control); they stay inactive.

    ros2 launch safe_sysid real_arm.launch.py robot:=my_arm.yaml driver_stops_without_commands:=yes

A robot file with ``controller.interface: trajectory`` sends to a joint_trajectory_controller instead, which needs no
such word: what it was sent ends at rest.

Nothing is commanded before ``ros2 lifecycle set /controller activate``, which is refused, with reasons, until
measurements, limits and start pose check out, and until you say that the arm stops when commands do: ros2_control's
forward_command_controller keeps the last torque for ever. Then the arm is held, and moves from ``/planner/start`` on.
Not run by us on a real arm: docs/use/launch.md.
"""

import sys
from pathlib import Path
from typing import Any

from launch import LaunchContext, LaunchDescription
from launch.actions import DeclareLaunchArgument, LogInfo, OpaqueFunction

# launch loads this file by its path, so its neighbours are found by theirs.
sys.path.insert(0, str(Path(__file__).resolve().parent))

from safe_sysid_launch.arguments import boolean, declare, text
from safe_sysid_launch.arm_files import Arm
from safe_sysid_launch.declarations import UNKNOWN_TIMEOUT, refuse_simulated, why_not_commanded
from safe_sysid_launch.managed import arm_of, command_guard, environment, managed_nodes, picture, record

ARGUMENTS = [
    DeclareLaunchArgument("robot", description="path of your robot file (YAML); there is no default"),
    DeclareLaunchArgument(
        "driver_stops_without_commands",
        default_value="no",
        choices=["yes", "no"],
        description="yes: the arm brakes or holds by itself when no command comes through the effort controller for"
        " driver.command_timeout_s; a plain forward_command_controller alone does not. no: nothing can be activated",
    ),
    DeclareLaunchArgument(
        "simulated_declarations",
        default_value="refuse",
        choices=["refuse", "accept"],
        description="accept: also a packaged robot file, which declares the simulation and not your driver",
    ),
    *declare("scene", "namespace", "run_dir", "params_file"),
    DeclareLaunchArgument(
        "joint_states",
        default_value="joint_states",
        description="topic of the measurements (sensor_msgs/JointState with effort), relative to the namespace",
    ),
    DeclareLaunchArgument(
        "effort_controller",
        default_value="effort_controller",
        description="name of the arm's forward_command_controller for efforts; takes commands on NAME/commands",
    ),
    DeclareLaunchArgument(
        "effort_command",
        default_value="",
        description="topic of the commands (std_msgs/Float64MultiArray), where it is not NAME/commands",
    ),
    DeclareLaunchArgument(
        "trajectory_controller",
        default_value="joint_trajectory_controller",
        description="controller.interface: trajectory: name of the arm's controller; takes NAME/joint_trajectory",
    ),
    DeclareLaunchArgument(
        "trajectory_command",
        default_value="",
        description="topic of the trajectories (JointTrajectory), where it is not NAME/joint_trajectory",
    ),
    DeclareLaunchArgument(
        "controller_manager",
        default_value="controller_manager",
        description="name of the controller manager, asked to deactivate the effort controller when commands cease",
    ),
    # One try: an activation that comes by itself, half a minute after somebody asked, surprises.
    *declare(activate="false", patience="0.0", state_publisher="false"),
    *declare("respawns", "use_sim_time", "rviz", "web", "web_port", "record", "log_level"),
]


def start(context: LaunchContext) -> list[Any]:
    """Three nodes between two topics of the driver, and who deactivates its effort controller when commands cease."""
    arm = arm_of(context)
    refuse_simulated(arm, text(context, "simulated_declarations") == "accept")
    if arm.follows:
        return _follower(context, arm)
    own, controller = text(context, "effort_command"), text(context, "effort_controller")
    command = own or f"{controller}/commands"
    stops = text(context, "driver_stops_without_commands") == "yes"
    reason = why_not_commanded(arm, stops, boolean(context, "activate"), own or controller)
    remarks = [LogInfo(msg=reason)] if reason else []
    guard = [] if own else command_guard(context, arm, command, controller)
    remappings = [("joint_states", text(context, "joint_states")), ("effort_command", command)]
    order = LogInfo(msg=f"commands go to {command}, in this order of joints: {', '.join(arm.joint_names)}")
    nodes = managed_nodes(
        context,
        remappings=remappings,
        parameters={"planner": {"start_on_activation": False}},
        enforced=UNKNOWN_TIMEOUT if reason else None,
    )
    begin = [order, *remarks, *environment(lockstep=False)]
    return [*begin, *guard, *record(context), *nodes, *picture(context, arm, measured=remappings[0][1])]


def _follower(context: LaunchContext, arm: Arm) -> list[Any]:
    """The same for an arm that follows trajectories by itself: what it was sent ends at rest, so nobody watches it."""
    topic = text(context, "trajectory_command") or f"{text(context, 'trajectory_controller')}/joint_trajectory"
    measured = text(context, "joint_states")
    nodes = managed_nodes(
        context,
        remappings=[("joint_states", measured), ("trajectory_command", topic)],
        parameters={"planner": {"start_on_activation": False}},
    )
    told = LogInfo(msg=f"trajectories go to {topic}, within the tube that controller.tube of {arm.file} declares")
    return [told, *environment(lockstep=False), *record(context), *nodes, *picture(context, arm, measured=measured)]


def generate_launch_description() -> LaunchDescription:
    """What ``ros2 launch`` asks for."""
    return LaunchDescription([*ARGUMENTS, OpaqueFunction(function=start)])
