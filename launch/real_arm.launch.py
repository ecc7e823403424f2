"""Planner, identifier and controller for an arm whose driver runs already (ros2_control); they stay inactive.

    ros2 launch safe_sysid real_arm.launch.py robot:=my_arm.yaml effort_controller:=effort_controller

Nothing is commanded before ``ros2 lifecycle set /controller activate``, which is refused, with reasons, until
measurements, limits and start pose check out. Not run by us on a real arm: docs/launch.md.
"""

import sys
from pathlib import Path
from typing import Any

from launch import LaunchContext, LaunchDescription
from launch.actions import DeclareLaunchArgument, LogInfo, OpaqueFunction

# launch loads this file by its path, so its neighbours are found by theirs.
sys.path.insert(0, str(Path(__file__).resolve().parent))

from safe_sysid_launch.arguments import declare, text
from safe_sysid_launch.arm_files import load_arm
from safe_sysid_launch.managed import environment, managed_nodes, picture, record

ARGUMENTS = [
    *declare("robot", "scene", "namespace", "run_dir", "params_file"),
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
    *declare(activate="false", patience="30.0", state_publisher="false"),
    *declare("use_sim_time", "rviz", "record", "log_level"),
]


def start(context: LaunchContext) -> list[Any]:
    """Three nodes between two topics of the driver."""
    arm = load_arm(text(context, "robot"))
    command = text(context, "effort_command") or f"{text(context, 'effort_controller')}/commands"
    remappings = [("joint_states", text(context, "joint_states")), ("effort_command", command)]
    order = LogInfo(msg=f"commands go to {command}, in this order of joints: {', '.join(arm.joint_names)}")
    nodes = managed_nodes(context, remappings=remappings)
    return [order, *environment(lockstep=False), *record(context), *nodes, *picture(context, arm)]


def generate_launch_description() -> LaunchDescription:
    """What ``ros2 launch`` asks for."""
    return LaunchDescription([*ARGUMENTS, OpaqueFunction(function=start)])
