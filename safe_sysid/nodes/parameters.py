"""ROS parameters of the nodes: declared with a description, read once at the start, judged like a configuration."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from rcl_interfaces.msg import ParameterDescriptor, SetParametersResult
from rclpy.node import Node
from rclpy.parameter import Parameter

from safe_sysid.errors import ConfigError
from safe_sysid.nodes.realtime import RealtimeOptions
from safe_sysid.robot.loading import load_robot
from safe_sysid.robot.model import RobotModel
from safe_sysid.robot.scene import Scene, load_scene

__all__ = ["CommonOptions", "choice", "declare", "number", "numbers", "refuse_changes"]


_Number = TypeVar("_Number", int, float)


def declare(node: Node, name: str, default: Any, description: str) -> Any:
    """Declare a read-only parameter and return its value, of the default's type.

    Raises:
        ConfigError: a value of another type.
    """
    descriptor = ParameterDescriptor(description=description, read_only=True, dynamic_typing=True)
    value = node.declare_parameter(name, default, descriptor).value
    if isinstance(default, float) and isinstance(value, int) and not isinstance(value, bool):
        value = float(value)
    if type(value) is not type(default):
        raise _wrong(node, name, value, f"a value of type {type(default).__name__} ({description})")
    return value


def number(node: Node, name: str, default: _Number, description: str, lowest: float = 0.0) -> _Number:
    """A number of at least ``lowest``, whole if the default is."""
    value = declare(node, name, default, description)
    if not lowest <= value < 1e12:
        raise _wrong(node, name, value, f"a number of at least {lowest:g} ({description})")
    return value


def choice(node: Node, name: str, default: str, known: tuple[str, ...], description: str) -> str:
    """One of several words."""
    value = declare(node, name, default, description)
    if value not in known:
        raise _wrong(node, name, value, f"one of {', '.join(word or '(empty)' for word in known)}")
    return value


def numbers(node: Node, name: str, count: int, description: str) -> list[float] | None:
    """``count`` numbers as an array, or as JSON text; empty text for none."""
    descriptor = ParameterDescriptor(description=description, read_only=True, dynamic_typing=True)
    value = node.declare_parameter(name, "", descriptor).value
    if value == "":
        return None
    try:
        values = [float(entry) for entry in (json.loads(value) if isinstance(value, str) else value)]
    except (TypeError, ValueError):
        raise _wrong(node, name, value, f"{count} numbers") from None
    if len(values) != count:
        raise _wrong(node, name, value, f"{count} numbers")
    return values


def refuse_changes(node: Node) -> None:
    """From now on no parameter is changed: what a node computed from them at its start would not change with them."""

    def refuse(parameters: list[Parameter]) -> SetParametersResult:
        names = ", ".join(parameter.name for parameter in parameters)
        reason = f"{names}: parameters of {node.get_name()} are read at its start: expected a restart"
        return SetParametersResult(successful=False, reason=reason)

    node.add_on_set_parameters_callback(refuse)


@dataclass(frozen=True)
class CommonOptions:
    """Parameters that all nodes have.

    Attributes:
        robot: name of a packaged robot or path of a YAML file.
        scene: the same for a scene; "" for an open one.
        overrides: settings that replace the robot file's.
        lockstep: plant and controller wait for each other; otherwise real time.
        patience: in lock-step, wall seconds after which a node that is waited for is taken for dead.
        run_dir: where logs are written; None for nowhere.
        seed: of every random choice.
        realtime: what the node asks the system's scheduler for.
    """

    robot: str
    scene: str
    overrides: Mapping[str, Any]
    lockstep: bool
    patience: float
    run_dir: Path | None
    seed: int
    realtime: RealtimeOptions

    @classmethod
    def of(cls, node: Node) -> CommonOptions:
        """Declare and read.

        Raises:
            ConfigError: a value that cannot be used.
        """
        text = declare(node, "overrides", "", "JSON object of settings that replace the robot file's")
        try:
            overrides = json.loads(text) if text else {}
        except ValueError as error:
            raise _wrong(node, "overrides", text, f"JSON text ({error})") from None
        if not isinstance(overrides, dict):
            raise _wrong(node, "overrides", text, "a JSON object")
        run_dir = declare(node, "run_dir", "", "directory for logs, empty for none")
        if run_dir:
            Path(run_dir).mkdir(parents=True, exist_ok=True)
        return cls(
            declare(node, "robot", "kinova_gen3", "name of a packaged robot, or path of a YAML file"),
            declare(node, "scene", "", "name of a packaged scene, or path of a YAML file"),
            overrides,
            declare(node, "lockstep", False, "simulated time waits for every node"),
            number(
                node, "lockstep_patience_s", 60.0, "wall time after which a silent node is taken for dead, s"
            ),
            Path(run_dir) if run_dir else None,
            number(node, "seed", 0, "of every random choice"),
            _realtime(node),
        )

    def load_model(self) -> RobotModel:
        """The robot, with the overrides."""
        return load_robot(self.robot, **self.overrides)

    def load_scene(self, model: RobotModel) -> Scene:
        """The scene, checked against the robot."""
        scene = load_scene(self.scene) if self.scene else Scene("open")
        scene.check(model)
        return scene


def _realtime(node: Node) -> RealtimeOptions:
    priority = number(node, "realtime.priority", 0, "SCHED_FIFO priority of the loop, 1 to 99; 0: normal")
    nice = number(node, "realtime.nice", 0, "how much nicer than others all threads are, 0 to 19")
    text = declare(node, "realtime.cpus", "", "processors to run on, as 0,1; empty: all")
    lock = declare(node, "realtime.lock_memory", False, "keep memory from being swapped out")
    if priority > 99:
        raise _wrong(node, "realtime.priority", priority, "0 to 99")
    if nice > 19:
        raise _wrong(node, "realtime.nice", nice, "0 to 19")
    if priority and nice:
        raise _wrong(node, "realtime.nice", nice, "0 beside a realtime.priority")
    try:
        cpus = tuple(sorted({int(part) for part in text.split(",")})) if text else ()
    except ValueError:
        raise _wrong(node, "realtime.cpus", text, "whole numbers, as 0,1") from None
    if any(cpu < 0 for cpu in cpus):
        raise _wrong(node, "realtime.cpus", text, "whole numbers from 0, as 0,1")
    return RealtimeOptions(priority, nice, cpus, lock)


def _wrong(node: Node, name: str, value: object, expected: str) -> ConfigError:
    return ConfigError(f"parameters of {node.get_name()}", name, value, expected)
