"""An arm in Gazebo Sim (gz_ros2_control) with planner, identifier and controller. Not run by us: docs/use/launch.md.

ros2 launch safe_sysid gazebo.launch.py robot:=my_arm.yaml
"""

import sys
from pathlib import Path
from typing import Any

from launch import LaunchContext, LaunchDescription
from launch.actions import (
    DeclareLaunchArgument,
    IncludeLaunchDescription,
    LogInfo,
    OpaqueFunction,
    RegisterEventHandler,
)
from launch.event_handlers import OnProcessExit
from launch.launch_description_sources import PythonLaunchDescriptionSource
from launch.substitutions import PathJoinSubstitution
from launch_ros.actions import Node
from launch_ros.substitutions import FindPackageShare

# launch loads this file by its path, so its neighbours are found by theirs.
sys.path.insert(0, str(Path(__file__).resolve().parent))

from safe_sysid_launch.arguments import boolean, declare, full_name, text
from safe_sysid_launch.arm_files import (
    BROADCASTER,
    EFFORT,
    controllers,
    gazebo_description,
    gazebo_differences,
    gazebo_world,
)
from safe_sysid_launch.managed import arm_of, environment, managed_nodes, picture, record, working_directory, write_yaml

from safe_sysid.errors import SafeSysIdError
from safe_sysid.robot.scenes.scene import load_scene

ARGUMENTS = [
    *declare("robot", "scene", "namespace", "run_dir", "params_file"),
    DeclareLaunchArgument(
        "world",
        default_value="",
        description="SDF file of the world; empty: the packaged one with the scene's obstacles",
    ),
    DeclareLaunchArgument(
        "gazebo",
        default_value="true",
        choices=["true", "false"],
        description="false: Gazebo runs already (a second arm in the same world, by another namespace)",
    ),
    DeclareLaunchArgument(
        "gui", default_value="true", choices=["true", "false"], description="whether Gazebo opens a window"
    ),
    DeclareLaunchArgument(
        "differences",
        default_value="refuse",
        choices=["refuse", "accept"],
        description="accept: also an arm that Gazebo simulates otherwise than the robot file says (no rotor inertia"
        " there); then nothing is proved",
    ),
    *declare(activate="false", patience="30.0", use_sim_time="true", state_publisher="true"),
    *declare("respawns", "rviz", "web", "web_port", "record", "log_level"),
]


def start(context: LaunchContext) -> list[Any]:
    """World, arm, ros2_control's controllers one after the other, then our nodes between their topics."""
    arm, namespace = arm_of(context), text(context, "namespace").strip("/")
    remarks = _judge(gazebo_differences(arm), text(context, "differences"), str(arm.file))
    directory = working_directory()
    file = write_yaml(directory / "controllers.yaml", controllers(arm.joint_names, 1.0 / arm.settings.timing.period_s))
    description = gazebo_description(arm, file, namespace)
    command = f"{EFFORT}/commands"
    return [
        *remarks,
        *environment(lockstep=False),
        *_world(context, directory),
        *picture(context, arm, description),
        *_arm(namespace, arm.settings.name, file),
        *record(context),
        *managed_nodes(
            context, remappings=[("effort_command", command)], parameters={"planner": {"start_on_activation": False}}
        ),
    ]


def _judge(differences: list[str], what: str, file: str) -> list[LogInfo]:
    if not differences:
        return []
    words = f"Gazebo's arm is not the one of {file}: {'; '.join(differences)}"
    if what == "refuse":
        raise SafeSysIdError(
            f"{words}: expected a robot file for Gazebo, or differences:=accept (nothing is proved then)"
        )
    return [LogInfo(msg=f"{words}: no bound and no tracking error is proved in this run")]


def _world(context: LaunchContext, directory: Path) -> list[Any]:
    """Gazebo and its clock, unless they run already."""
    if not boolean(context, "gazebo"):
        return []
    world = text(context, "world")
    if not world:
        file = directory / "world.sdf"
        scene = text(context, "scene")
        file.write_text(gazebo_world(load_scene(scene) if scene else None), encoding="utf-8")
        world = str(file)
    arguments = f"-r {'' if boolean(context, 'gui') else '-s '}{world}"
    path = PathJoinSubstitution([FindPackageShare("ros_gz_sim"), "launch", "gz_sim.launch.py"])
    simulator = IncludeLaunchDescription(
        PythonLaunchDescriptionSource(path), launch_arguments={"gz_args": arguments, "on_exit_shutdown": "true"}.items()
    )
    clock = Node(
        package="ros_gz_bridge",
        executable="parameter_bridge",
        name="clock_bridge",
        arguments=["/clock@rosgraph_msgs/msg/Clock[gz.msgs.Clock"],
        output="screen",
    )
    return [simulator, clock]


def _arm(namespace: str, name: str, file: Path) -> list[Any]:
    """Spawn it, then the broadcaster, then the effort controller, inactive: until it works Gazebo holds the joints."""
    spawn = Node(
        package="ros_gz_sim",
        executable="create",
        namespace=namespace,
        arguments=["-topic", full_name(namespace, "robot_description"), "-name", namespace or name],
        output="screen",
    )
    manager = full_name(namespace, "controller_manager")
    broadcaster, effort = (
        Node(
            package="controller_manager",
            executable="spawner",
            namespace=namespace,
            arguments=[controller, "--controller-manager", manager, "--param-file", str(file), *more],
            output="screen",
        )
        for controller, more in ((BROADCASTER, ()), (EFFORT, ("--inactive",)))
    )
    return [
        spawn,
        RegisterEventHandler(OnProcessExit(target_action=spawn, on_exit=[broadcaster])),
        RegisterEventHandler(OnProcessExit(target_action=broadcaster, on_exit=[effort])),
    ]


def generate_launch_description() -> LaunchDescription:
    """What ``ros2 launch`` asks for."""
    return LaunchDescription([*ARGUMENTS, OpaqueFunction(function=start)])
