"""rviz, and a page in a browser, for an arm that runs: sim.launch.py, gazebo.launch.py or a real arm's driver.

ros2 launch safe_sysid view.launch.py robot:=kinova_gen3 namespace:=arm_1
"""

import sys
from pathlib import Path
from typing import Any

from launch import LaunchContext, LaunchDescription
from launch.actions import OpaqueFunction

# launch loads this file by its path, so its neighbours are found by theirs.
sys.path.insert(0, str(Path(__file__).resolve().parent))

from safe_sysid_launch.arguments import declare, text
from safe_sysid_launch.arm_files import load_arm
from safe_sysid_launch.managed import picture

ARGUMENTS = declare("robot", "namespace", "use_sim_time", "web", "web_port", rviz="true", state_publisher="auto")


def start(context: LaunchContext) -> list[Any]:
    """robot_state_publisher unless the driver has one (state_publisher:=false), and rviz."""
    return picture(context, load_arm(text(context, "robot")))


def generate_launch_description() -> LaunchDescription:
    """What ``ros2 launch`` asks for."""
    return LaunchDescription([*ARGUMENTS, OpaqueFunction(function=start)])
