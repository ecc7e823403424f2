"""Planner, identifier and controller as the launch files start them, and what goes with an arm.

Planner and identifier are started again when they die: the controller brakes along its certified tail meanwhile, and
holds. When the controller or the simulated arm ends, all do; each of the two brings the arm to rest before it ends.
"""

from __future__ import annotations

import atexit
import importlib.util
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import yaml
from launch import Event, LaunchContext, LaunchDescriptionEntity
from launch.actions import ExecuteProcess, LogInfo, SetEnvironmentVariable, Shutdown
from launch.events.process import ProcessExited
from launch.logging import get_logger
from launch_ros.actions import LifecycleNode, Node
from launch_ros.parameter_descriptions import ParameterValue
from safe_sysid_launch.arguments import boolean, full_name, installed, number, run_directory, seconds, text
from safe_sysid_launch.arm_files import Arm, robot_description, rviz_picture
from safe_sysid_launch.bring_up import bring_up
from safe_sysid_launch.declarations import declared_arm

from safe_sysid.bring_up.arrangement import MANAGED, REALTIME, WRITES, quick_discovery, transport_without_shared_memory
from safe_sysid.control.states import longest_braking
from safe_sysid.errors import ConfigError
from safe_sysid.parent import LAUNCH, ONE_THREAD

__all__ = [
    "MANAGED",
    "arm_of",
    "command_guard",
    "enclave",
    "environment",
    "managed_nodes",
    "node",
    "picture",
    "record",
    "rviz",
    "web",
    "working_directory",
    "write_yaml",
]


def environment(lockstep: bool) -> list[SetEnvironmentVariable]:
    """Each library computes in one thread; in real time no shared memory, whose locks stall a loop.

    And nodes know whose end is theirs, too: at SIGTERM launch leaves them alone.
    """
    values = {key: value for key, value in ONE_THREAD.items() if key not in os.environ}
    values[LAUNCH] = str(os.getpid())
    quick = quick_discovery()
    if all(os.environ.get(key, ours) == ours for key, ours in quick.items()):
        if os.environ.get("ROS_AUTOMATIC_DISCOVERY_RANGE") == "LOCALHOST":
            # That range brings shared memory with it.
            values |= quick if lockstep else transport_without_shared_memory()
        elif not lockstep and "FASTDDS_BUILTIN_TRANSPORTS" not in os.environ:
            values["FASTDDS_BUILTIN_TRANSPORTS"] = "UDPv4"
    return [SetEnvironmentVariable(key, value) for key, value in values.items()]


def arm_of(context: LaunchContext) -> Arm:
    """The arm as the nodes will have it, by the arguments ``robot``, ``params_file`` and ``namespace``."""
    return declared_arm(text(context, "robot"), text(context, "params_file"), text(context, "namespace"))


def command_guard(context: LaunchContext, arm: Arm, topic: str, controller: str) -> list[Any]:
    """A program that deactivates the effort controller when commands cease, where ros2_control is installed.

    Args:
        context: of the launch.
        arm: declares the time without commands.
        topic: of the commands.
        controller: that takes them.
    """
    if importlib.util.find_spec("controller_manager_msgs") is None:
        return [
            LogInfo(
                msg=f"controller_manager_msgs is not installed: nobody deactivates {controller} when commands cease"
            )
        ]
    namespace = text(context, "namespace")
    name = full_name(namespace, "command_guard")
    words = [
        *("--topic", topic, "--controller", controller, "--manager", text(context, "controller_manager")),
        *("--silence", str(arm.settings.driver.command_timeout_s or 0.0)),
        *("--braking", str(longest_braking(arm.settings.planner.t_f, lockstep=False))),
        *("--ros-args", "-r", f"__ns:={name.rpartition('/')[0] or '/'}"),
    ]
    program = Path(__file__).with_name("command_guard.py")
    return [
        ExecuteProcess(
            cmd=[sys.executable, str(program), *words],
            name="command_guard",
            output="screen",
            **_patience(context, lockstep=False),
            on_exit=lambda _, context: (
                None
                if context.is_shutdown
                else [LogInfo(msg=f"{name} ended: nobody deactivates {controller} when commands cease")]
            ),
        )
    ]


def node(
    context: LaunchContext,
    name: str,
    *,
    lockstep: bool = False,
    parameters: dict[str, Any] | None = None,
    remappings: Sequence[tuple[str, str]] = (),
    enforced: Mapping[str, Any] | None = None,
    on_exit: Callable[[Event, LaunchContext], Any] | None = None,
) -> Node:
    """One of this package's nodes; when it ends, all do, unless there is something else to do.

    Args:
        context: of the launch.
        name: of the node: planner, identifier, controller, plant.
        lockstep: whether simulated time waits for all.
        parameters: besides those that all nodes have.
        remappings: of topics.
        enforced: parameters that go before the parameter file's, too.
        on_exit: what to do instead.
    """
    namespace, directory, file = (text(context, "namespace"), run_directory(context), text(context, "params_file"))
    common: dict[str, Any] = {
        "robot": text(context, "robot"),
        "scene": text(context, "scene"),
        "lockstep": lockstep,
        "use_sim_time": boolean(context, "use_sim_time"),
        **({} if directory is None else {"run_dir": str(directory)}),
        **({} if lockstep or name not in REALTIME else {"realtime": dict(REALTIME[name])}),
        **(parameters or {}),
    }
    if lockstep and namespace.strip("/"):
        remappings = [*remappings, ("/clock", "clock")]  # each arm has its own time
    logger = full_name(namespace, name).strip("/").replace("/", ".")
    # Texts stay texts: launch would take "null" for none.
    last = {
        key: ParameterValue(value, value_type=str) if isinstance(value, str) else value
        for key, value in (enforced or {}).items()
    }
    kind = LifecycleNode if name in MANAGED else Node
    return kind(
        package="safe_sysid",
        executable=f"{name}_node",
        name=name,
        namespace=namespace,
        parameters=[common, *([file] if file else []), *([last] if last else [])],
        remappings=list(remappings),
        ros_arguments=["--log-level", f"{logger}:={text(context, 'log_level')}", *enclave(namespace, name)],
        output="screen",
        on_exit=on_exit or _end(f"{full_name(namespace, name)} ended"),
        **(_patience(context, lockstep) if name in ("controller", "plant") else {}),
    )


def _patience(context: LaunchContext, lockstep: bool) -> dict[str, str]:
    """How long launch waits for who brings the arm to rest before it ends; then comes SIGTERM, which insists."""
    longest = longest_braking(arm_of(context).settings.planner.t_f, lockstep) + WRITES
    return {"sigterm_timeout": f"{longest:.1f}", "sigkill_timeout": "5.0"}


def enclave(namespace: str, name: str) -> list[str]:
    """Where ROS security is on: a node's keys are those of its full name unless told for all (docs/use/security.md)."""
    on = os.environ.get("ROS_SECURITY_ENABLE", "").lower() == "true"
    if not on or os.environ.get("ROS_SECURITY_ENCLAVE_OVERRIDE"):
        return []
    return ["--enclave", full_name(namespace, name)]


def _end(reason: str) -> Callable[[Event, LaunchContext], list[Shutdown] | None]:
    """The launch ends with this node, once: while it ends anyway, there is nothing to say."""

    def end(_: Event, context: LaunchContext) -> list[Shutdown] | None:
        return None if context.is_shutdown else [Shutdown(reason=reason)]

    return end


def managed_nodes(
    context: LaunchContext,
    *,
    lockstep: bool = False,
    remappings: Sequence[tuple[str, str]] = (),
    parameters: dict[str, dict[str, Any]] | None = None,
    then: Sequence[LaunchDescriptionEntity] = (),
    enforced: Mapping[str, Any] | None = None,
) -> list[Any]:
    """The three managed nodes, and their transitions as the arguments ``activate`` and ``patience`` say.

    Args:
        context: of the launch.
        lockstep: whether simulated time waits for all.
        remappings: of topics.
        parameters: of one node, by its name.
        then: started when all are inactive.
        enforced: parameters of all that go before the parameter file's, too.
    """
    namespace, states = text(context, "namespace"), dict.fromkeys(MANAGED, "")

    def make(name: str, left: int = 0, **more: Any) -> Node:
        return node(
            context,
            name,
            lockstep=lockstep,
            parameters=(parameters or {}).get(name),
            remappings=remappings,
            enforced={**(enforced or {}), **more},
            on_exit=None if name == "controller" else partial(_again, make, states, name, left),
        )

    nodes = [make(name, number(context, "respawns")) for name in MANAGED]
    return [
        *nodes,
        bring_up(
            MANAGED,
            namespace=full_name(namespace, "").rstrip("/"),
            activate=boolean(context, "activate"),
            patience=seconds(context, "patience"),
            then=then,
            states=states,
        ),
    ]


def _again(
    make: Callable[..., Node],
    states: Mapping[str, str],
    name: str,
    left: int,
    event: ProcessExited,
    context: LaunchContext,
) -> list[Node] | None:
    """Start a node again that died, in the state that it had; what it wrote stays beside what is written from now on.

    Args:
        make: the node, from its name, how often it may be started again, and parameters.
        states: of the lifecycle, by node, as last heard.
        name: of the node.
        left: so often it may be started again.
        event: its end.
        context: of the launch.
    """
    if context.is_shutdown:
        return None
    log, full = get_logger(name), full_name(text(context, "namespace"), name)
    held = "the controller goes on: it brakes along its certified tail and holds"
    if event.returncode == 0:
        log.warning(f"{full} was told to end, and is not started again; {held}")
        return None
    if not left:
        log.error(f"{full} died (status {event.returncode}), and is not started again (respawns); {held}")
        return None
    was = states[name] or "unconfigured"
    log.error(f"{full} died (status {event.returncode}) while {was}: started again; {held}")
    if was != "active":
        log.warning(f"when it is there: ros2 lifecycle set {full} configure")
    more: dict[str, Any] = {"autostart": was == "active"}
    if (directory := run_directory(context)) is not None:
        count = 1
        while (again := directory / f"{name}_again_{count}").exists():
            count += 1
        again.mkdir()
        more["run_dir"] = str(again)
    return [make(name, left - 1, **more)]


def picture(
    context: LaunchContext, arm: Arm, description: str | None = None, measured: str = "joint_states"
) -> list[Any]:
    """robot_state_publisher, rviz and the view, as ``state_publisher``, ``rviz`` and ``web`` say.

    Args:
        context: of the launch.
        arm: whose robot description is published.
        description: another one of it.
        measured: topic of the measurements, where the driver calls it otherwise.
    """
    found: list[Any] = []
    remappings = [("joint_states", measured)] if measured != "joint_states" else []
    namespace = text(context, "namespace")
    wanted = text(context, "state_publisher")
    if wanted == "auto":
        there, remarks = installed("robot_state_publisher", "no /tf, no robot_description")
        found += remarks
        wanted = "true" if there else "false"
    if wanted == "true":
        found.append(
            Node(
                package="robot_state_publisher",
                executable="robot_state_publisher",
                namespace=namespace,
                parameters=[
                    {
                        "robot_description": ParameterValue(description or robot_description(arm), value_type=str),
                        "use_sim_time": boolean(context, "use_sim_time"),
                    }
                ],
                remappings=remappings,
                output="screen",
            )
        )
    if boolean(context, "rviz"):
        found.append(rviz(context))
    if boolean(context, "web"):
        found.append(web(context, remappings))
    return found


def web(context: LaunchContext, remappings: Sequence[tuple[str, str]] = ()) -> Node:
    """The view in a browser; the others go on when it ends.

    Args:
        context: of the launch.
        remappings: of topics.
    """
    port = text(context, "web_port")
    if not port.isdecimal() or int(port) > 65535:
        raise ConfigError("arguments of the launch", "web_port", port, "a port, 0 to 65535")
    return Node(
        package="safe_sysid",
        executable="viewer_node",
        name="viewer",
        namespace=text(context, "namespace"),
        ros_arguments=enclave(text(context, "namespace"), "viewer"),
        parameters=[{"robot": ParameterValue(text(context, "robot"), value_type=str), "port": int(port)}],
        remappings=list(remappings),
        output="screen",
    )


def rviz(context: LaunchContext) -> Node:
    """The program rviz, with the packaged configuration, its topics in the namespace."""
    namespace = text(context, "namespace")
    inside = namespace.strip("/").replace("/", "_") or "root"
    file = working_directory() / f"{inside}.rviz"
    file.write_text(rviz_picture(namespace), encoding="utf-8")
    return Node(
        package="rviz2",
        executable="rviz2",
        namespace=namespace,
        arguments=["-d", str(file)],
        parameters=[{"use_sim_time": boolean(context, "use_sim_time")}],
        output="log",
    )


def record(context: LaunchContext) -> list[Node]:
    """The recorder, if the argument ``record`` says so."""
    if not boolean(context, "record"):
        return []
    directory = run_directory(context)
    if directory is None:
        raise ConfigError("arguments of the launch", "run_dir", "", "a directory, for record:=true")
    return [
        Node(
            package="safe_sysid",
            executable="recorder_node",
            name="recorder",
            namespace=text(context, "namespace"),
            ros_arguments=enclave(text(context, "namespace"), "recorder"),
            parameters=[
                {
                    "bag": str(directory / time.strftime("rosbag2_%Y_%m_%d-%H_%M_%S")),
                    "use_sim_time": boolean(context, "use_sim_time"),
                }
            ],
            output="screen",
        )
    ]


def working_directory() -> Path:
    """A directory for files that only the started programs read; it goes when the launch ends."""
    directory = Path(tempfile.mkdtemp(prefix="safe_sysid_launch_"))
    atexit.register(shutil.rmtree, directory, ignore_errors=True)
    return directory


def write_yaml(path: Path, content: dict[str, Any]) -> Path:
    """Write a ROS parameter file; returns its path."""
    path.write_text(yaml.safe_dump(content, sort_keys=False), encoding="utf-8")
    return path
