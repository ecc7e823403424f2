"""An arm in Gazebo Sim (gz_ros2_control) with planner, identifier and controller. Not run by us: docs/use/launch.md.

ros2 launch safe_sysid gazebo.launch.py
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
    TRAJECTORY,
    Arm,
    controllers,
    gazebo_description,
    gazebo_differences,
    gazebo_world,
)
from safe_sysid_launch.managed import arm_of, environment, managed_nodes, picture, record, working_directory, write_yaml

from safe_sysid.errors import SafeSysIdError
from safe_sysid.robot.loading import load_robot
from safe_sysid.robot.scenes.scene import load_scene
from safe_sysid.simulation import payload_in_hand

ARGUMENTS = [
    *declare(robot="kinova_gen3_gazebo"),
    *declare("scene", "namespace", "run_dir", "params_file"),
    DeclareLaunchArgument(
        "payload",
        default_value="auto",
        description="what the hand holds in Gazebo, and nobody is told: none, a weight (8lb), ten numbers, a URDF file;"
        " auto: what suits the robot",
    ),
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
    rate = 1.0 / arm.settings.timing.period_s
    file = write_yaml(directory / "controllers.yaml", controllers(arm.joint_names, rate, arm.follows))
    held = payload_in_hand(load_robot(arm.file), text(context, "payload"))
    description = gazebo_description(arm, file, namespace, held)
    command = ("trajectory_command", f"{TRAJECTORY}/joint_trajectory")
    if not arm.follows:
        command = ("effort_command", f"{EFFORT}/commands")
    return [
        *remarks,
        *environment(lockstep=False),
        *_world(context, directory),
        *picture(context, arm, description),
        *_arm(namespace, arm, file),
        *record(context),
        *managed_nodes(context, remappings=[command], parameters={"planner": {"start_on_activation": False}}),
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


def _arm(namespace: str, arm: Arm, file: Path) -> list[Any]:
    """Spawn it, then the broadcaster, then what moves it: a trajectory controller, which holds the arm from then on.

    Or an effort controller, inactive: until it works Gazebo holds the joints.
    """
    spawn = Node(
        package="ros_gz_sim",
        executable="create",
        namespace=namespace,
        arguments=["-topic", full_name(namespace, "robot_description"), "-name", namespace or arm.settings.name],
        output="screen",
    )
    manager = full_name(namespace, "controller_manager")
    own = (TRAJECTORY, ()) if arm.follows else (EFFORT, ("--inactive",))
    broadcaster, mover = (
        Node(
            package="controller_manager",
            executable="spawner",
            namespace=namespace,
            arguments=[controller, "--controller-manager", manager, "--param-file", str(file), *more],
            output="screen",
        )
        for controller, more in ((BROADCASTER, ()), own)
    )
    return [
        spawn,
        RegisterEventHandler(OnProcessExit(target_action=spawn, on_exit=[broadcaster])),
        RegisterEventHandler(OnProcessExit(target_action=broadcaster, on_exit=[mover])),
    ]


def generate_launch_description() -> LaunchDescription:
    """What ``ros2 launch`` asks for."""
    return LaunchDescription([*ARGUMENTS, OpaqueFunction(function=start)])
