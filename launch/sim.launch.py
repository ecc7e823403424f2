"""A simulated arm (MuJoCo) with planner, identifier and controller, until Ctrl-C.

ros2 launch safe_sysid sim.launch.py payload:=8lb
"""

import sys
from pathlib import Path
from typing import Any

from launch import LaunchContext, LaunchDescription
from launch.actions import OpaqueFunction

# launch loads this file by its path, so its neighbours are found by theirs.
sys.path.insert(0, str(Path(__file__).resolve().parent))

from safe_sysid_launch.arguments import boolean, declare, of_node, value
from safe_sysid_launch.managed import arm_of, environment, managed_nodes, node, picture, record

ARGUMENTS = [
    *declare("robot", "scene", "namespace", "run_dir", "params_file"),
    *declare("lockstep"),
    *of_node("plant", "noise", "seed", payload="auto", arm="random"),
    *of_node("planner", "plans", "then_goal"),
    *declare(
        "activate",
        "patience",
        "respawns",
        "use_sim_time",
        "rviz",
        "web",
        "web_port",
        "state_publisher",
        "record",
        "log_level",
    ),
]


def start(context: LaunchContext) -> list[Any]:
    """The plant comes when everyone else is configured: its clock is everyone's."""
    arm = arm_of(context)
    lockstep = boolean(context, "lockstep")
    seed = {"seed": value(context, "plant", "seed")}
    truth = {key: value(context, "plant", key) for key in ("payload", "noise", "arm")}
    plant = node(context, "plant", lockstep=lockstep, parameters={**truth, **seed})
    aims = {key: value(context, "planner", key) for key in ("plans", "then_goal")}
    nodes = managed_nodes(
        context,
        lockstep=lockstep,
        parameters={"planner": {**aims, **seed}, "identifier": seed, "controller": seed},
        then=[plant],
    )
    return [*environment(lockstep), *record(context), *nodes, *picture(context, arm)]


def generate_launch_description() -> LaunchDescription:
    """What ``ros2 launch`` asks for."""
    return LaunchDescription([*ARGUMENTS, OpaqueFunction(function=start)])
