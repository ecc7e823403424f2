"""Arguments that the launch files share, each declared once, and what they come to."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import yaml
from ament_index_python.packages import PackageNotFoundError, get_package_share_directory
from launch import LaunchContext
from launch.actions import DeclareLaunchArgument, LogInfo
from launch.substitutions import LaunchConfiguration

from safe_sysid.errors import ConfigError
from safe_sysid.nodes.settings import parameters_of

__all__ = [
    "boolean",
    "declare",
    "full_name",
    "installed",
    "number",
    "of_node",
    "run_directory",
    "seconds",
    "text",
    "value",
]

_BOOLEAN = ("true", "false")
#: Name -> (default, description, choices).
_SHARED: dict[str, tuple[str, str, Sequence[str] | None]] = {
    "robot": ("kinova_gen3", "name of a packaged robot, or path of a robot file (YAML)", None),
    "scene": ("", "name of a packaged scene, or path of a scene file (YAML); empty: nothing around the arm", None),
    "namespace": ("", "of all nodes and topics, such as arm_1; one for each arm where there are several", None),
    "run_dir": ("", "directory for logs and certificates; a namespace gets its own below; empty: none", None),
    "params_file": ("", "ROS parameter file for the nodes; what it says goes before what arguments say", None),
    "use_sim_time": ("false", "whether the nodes' ROS clock is /clock", _BOOLEAN),
    "rviz": ("false", "whether to start rviz", _BOOLEAN),
    "web": ("false", "whether to show the arm in a browser of this machine, at the address that is printed", _BOOLEAN),
    "web_port": ("8080", "port of that; 0 takes any that is free", None),
    "state_publisher": (
        "auto",
        "whether to start robot_state_publisher; auto: if it is installed",
        ("auto", *_BOOLEAN),
    ),
    "record": ("false", "whether to record every topic of the namespace (rosbag2, mcap) below run_dir", _BOOLEAN),
    "lockstep": (
        "true",
        "true: simulated time waits for every node, and runs are repeatable; false: real time, 1 kHz",
        _BOOLEAN,
    ),
    "log_level": ("info", "of all nodes", ("debug", "info", "warn", "error", "fatal")),
    "activate": ("true", "whether to activate planner, identifier and controller", _BOOLEAN),
    "respawns": ("3", "how often planner and identifier, each, are started again when they die; 0: never", None),
    "patience": ("30.0", "for how long a refused activation is tried again, s", None),
}


def declare(*names: str, **defaults: str) -> list[DeclareLaunchArgument]:
    """Declarations of shared arguments; keywords give one another default."""
    found = []
    for name in (*names, *defaults):
        default, description, choices = _SHARED[name]
        found.append(
            DeclareLaunchArgument(
                name,
                default_value=defaults.get(name, default),
                description=description,
                choices=None if choices is None else list(choices),
            )
        )
    return found


def of_node(kind: str, *names: str, **defaults: str) -> list[DeclareLaunchArgument]:
    """Arguments that are parameters of a node: description, choices and default are the schema's.

    Args:
        kind: of the node, such as ``plant``.
        names: of parameters.
        defaults: parameter to another default than the schema's.
    """
    schema = {parameter.path: parameter for parameter in parameters_of(kind)}
    found = []
    for name in (*names, *defaults):
        parameter = schema[name]
        default = defaults.get(name, _words(parameter.default))
        choices = list(parameter.choices) or (list(_BOOLEAN) if parameter.type == "bool" else None)
        unset = f"; {default or 'empty'}: {parameter.unset}" if parameter.unset and name not in defaults else ""
        description = f"{parameter.description}{unset} ({kind} node)"
        found.append(DeclareLaunchArgument(name, default_value=default, description=description, choices=choices))
    return found


def _words(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def text(context: LaunchContext, name: str) -> str:
    """Value of an argument."""
    return LaunchConfiguration(name).perform(context)


def value(context: LaunchContext, kind: str, name: str) -> Any:
    """Value of an argument of :func:`of_node`, as that parameter has it.

    Args:
        context: of the launch.
        kind: of the node.
        name: of parameter and argument.

    Raises:
        ConfigError: it may not have this value.
    """
    parameter = next(parameter for parameter in parameters_of(kind) if parameter.path == name)
    given = text(context, name)
    found = given if parameter.type == "text" else parameter.convert(yaml.safe_load(given))
    if reason := parameter.why_not(found):
        raise ConfigError("arguments of the launch", name, given, reason)
    return found


def boolean(context: LaunchContext, name: str) -> bool:
    """Value of an argument that is true or false."""
    return text(context, name) == "true"


def seconds(context: LaunchContext, name: str) -> float:
    """Value of an argument that is a time, s.

    Raises:
        ConfigError: it is none.
    """
    try:
        found = float(text(context, name))
    except ValueError:
        found = -1.0
    if not 0.0 <= found < 1e9:
        raise ConfigError("arguments of the launch", name, text(context, name), "a time in s, 0 or more")
    return found


def number(context: LaunchContext, name: str) -> int:
    """Value of an argument that is a number, 0 or more.

    Raises:
        ConfigError: it is none.
    """
    if not text(context, name).isdecimal():
        raise ConfigError("arguments of the launch", name, text(context, name), "a whole number, 0 or more")
    return int(text(context, name))


def full_name(namespace: str, node: str) -> str:
    """Name of a node with its namespace, from the root."""
    inside = namespace.strip("/")
    return f"/{inside}/{node}" if inside else f"/{node}"


def run_directory(context: LaunchContext) -> Path | None:
    """Directory of this arm's logs, absolute, made; None for none."""
    given, inside = text(context, "run_dir"), text(context, "namespace").strip("/")
    if not given:
        return None
    directory = Path(given).expanduser().absolute() / inside
    directory.mkdir(parents=True, exist_ok=True)
    return directory


def installed(package: str, purpose: str) -> tuple[bool, list[Any]]:
    """Whether a ROS package is there; if not, a line that says what is left out for it."""
    try:
        get_package_share_directory(package)
    except PackageNotFoundError:
        return False, [LogInfo(msg=f"{package} is not installed: {purpose}")]
    return True, []
