"""ROS parameters of a node: declared from the schema, checked like a configuration, changed only where that is safe."""

from __future__ import annotations

import difflib
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

from rcl_interfaces.msg import SetParametersResult
from rclpy.node import Node
from rclpy.parameter import Parameter as RosParameter

from safe_sysid.errors import ConfigError, SafeSysIdError
from safe_sysid.nodes.common.descriptors import node_descriptor, settings_parameters
from safe_sysid.nodes.common.realtime.scheduling import RealtimeOptions
from safe_sysid.nodes.settings import KINDS, ManagedSettings, parameters_of
from safe_sysid.robot.loading import load_robot
from safe_sysid.robot.model import RobotModel
from safe_sysid.robot.overrides import SETTINGS, given_settings, overrides_of
from safe_sysid.robot.scenes.scene import Scene, load_scene
from safe_sysid.schema import Parameter, SchemaError
from safe_sysid.schema.parameter import WHEN

__all__ = ["CommonOptions", "NodeParameters", "empty_lists_refused"]

#: Parameters that every ROS node has, or whose meaning is not the node's.
_ROS = ("use_sim_time", "qos_overrides", "start_type_description_service")
_NOT_OURS = (*_ROS, SETTINGS)


@contextmanager
def empty_lists_refused(name: str) -> Iterator[None]:
    """Make a node that declares what it is given: rcl gives an empty list no type, and rclpy declares none without.

    Raises ConfigError: an empty list was given.
    """
    try:
        yield
    except ValueError as error:
        raise ConfigError(f"parameters of {name}", "a list", "[]", 'the text "[]" for one without entries') from error


class NodeParameters:
    """All parameters of a node, as :mod:`safe_sysid.nodes.settings` declares them, and the robot's settings in force.

    Attributes:
        kind: of the node: ``controller``, ``planner``, ``identifier``, ``plant`` or ``recorder``.
        state: of the lifecycle, set by the node: what is declared as ``configure`` changes in ``unconfigured`` only.
    """

    def __init__(self, node: Node, kind: str) -> None:
        """Declare everything; what was given at the start (``-p``, parameter files, launch) is judged here.

        Raises ConfigError: a value of the wrong type or out of range, or a name that looks misspelt.
        """
        self.kind, self.state = kind, "unconfigured"
        self._node, self._managed = node, ManagedSettings in KINDS[kind]
        self._declared = {parameter.path: parameter for parameter in parameters_of(kind)}
        self._checks: dict[str, Callable[[Any], object]] = {}
        self._callbacks: dict[str, Callable[[Any], object]] = {}
        self._given = self._take_given()
        self._settings: list[str] = []
        self._refuse_misspelt()
        for parameter in self._declared.values():
            self._declare(parameter)
        node.add_pre_set_parameters_callback(self._convert)
        node.add_on_set_parameters_callback(self._judge)
        node.add_post_set_parameters_callback(self._tell)

    # -- values -------------------------------------------------------------------------------------------------

    def __getitem__(self, name: str) -> Any:
        """The value in force; None where the default stands for something else (``unset`` in the schema)."""
        parameter, value = self._declared[name], self._node.get_parameter(name).value
        value = list(value) if parameter.type == "floats" else value
        return None if parameter.unset and parameter.is_default(value) else value

    def values(self) -> Mapping[str, Any]:
        """All values in force, by name; see :meth:`__getitem__`.

        Raises ConfigError: a value that a check of the node (:meth:`check`) refuses.
        """
        values = {name: self[name] for name in self._declared}
        for name, judge in self._checks.items():
            if values[name] is not None:
                self._try(judge, name, values[name])
        return MappingProxyType(values)

    def check(self, name: str, judge: Callable[[Any], object]) -> None:
        """Have values judged by the node too: ``judge`` raises a :class:`SafeSysIdError` for what it cannot use.

        ``judge``: gets a new value before it comes into force; never None.
        """
        self._checks[self._declared[name].path] = judge

    def on_change(self, name: str, callback: Callable[[Any], object]) -> None:
        """Call with the new value (None: unset) when it has come into force.

        ``callback``: runs in the executor's thread, and must not fail.

        Raises SchemaError: the parameter never changes while the node works.
        """
        if self._declared[name].when != "live":
            raise SchemaError(f"{name}: {self._declared[name].when}: expected a live parameter")
        self._callbacks[name] = callback

    def _try(self, judge: Callable[[Any], object], name: str, value: object) -> None:
        try:
            judge(value)
        except SafeSysIdError as error:
            raise self._wrong(name, value, str(error)) from error

    def _wrong(self, name: str, value: object, expected: str) -> ConfigError:
        return ConfigError(f"parameters of {self._node.get_name()}", name, value, expected)

    @property
    def realtime(self) -> RealtimeOptions:
        """What the node asks the system's scheduler for.

        Raises ConfigError: a list of processors that is none, or a nice node with real-time priority.
        """
        priority, nice, text = (self[f"realtime.{name}"] for name in ("priority", "nice", "cpus"))
        if priority and nice:
            raise self._wrong("realtime.nice", nice, "0 beside a realtime.priority")
        try:
            cpus = tuple(sorted({int(part) for part in text.split(",")})) if text else ()
        except ValueError:
            raise self._wrong("realtime.cpus", text, "whole numbers, as 0,1") from None
        if any(cpu < 0 for cpu in cpus):
            raise self._wrong("realtime.cpus", text, "whole numbers from 0, as 0,1")
        return RealtimeOptions(priority, nice, cpus, self["realtime.lock_memory"])

    # -- the robot's settings -----------------------------------------------------------------------------------

    @property
    def overrides(self) -> dict[str, Any]:
        """What ``robot_settings.*`` given at the start says, as :func:`safe_sysid.robot.load_robot` takes it."""
        return overrides_of({path: given.value for path, given in given_settings(self._given).items()})

    def declare_settings(self, model: RobotModel) -> None:
        """Show the settings in force as read-only parameters ``robot_settings.<section>.<key>``.

        ``model``: the robot, overrides included; the settings of an earlier call are forgotten.
        """
        self.undeclare_settings()
        entries = settings_parameters(model)
        self._settings = [f"{SETTINGS}.{name}" for name, _, _ in entries]
        self._node.declare_parameters(SETTINGS, entries, ignore_override=True)

    def undeclare_settings(self) -> None:
        """Show no settings: the node is unconfigured."""
        for name in self._settings:
            self._node.describe_parameter(name).read_only = False  # the stored one: else it cannot go
            self._node.undeclare_parameter(name)
        self._settings = []

    # -- declaring ----------------------------------------------------------------------------------------------

    def _take_given(self) -> dict[str, RosParameter]:
        """What was given at the start, which rclpy has declared as it came: these declarations are taken back."""
        given = {
            name: parameter
            for name, parameter in self._node.get_parameters_by_prefix("").items()
            if name.split(".")[0] not in _ROS
        }
        for name in given:
            self._node.undeclare_parameter(name)
        return given

    def _refuse_misspelt(self) -> None:
        """ROS ignores parameters that a node does not have; one that looks like one of ours is a mistake."""
        everyones = {parameter.path for kind in KINDS for parameter in parameters_of(kind)}
        for name, given in self._given.items():
            if name in everyones or name.split(".")[0] in _NOT_OURS or name in _NOT_OURS:
                continue
            close = difflib.get_close_matches(name, sorted(self._declared), 1, 0.8)
            head, dot, rest = name.partition(".")
            prefix = difflib.get_close_matches(head, [SETTINGS], 1, 0.8)
            if not close and dot and prefix:
                close = [f"{prefix[0]}.{rest}"]
            if close:
                raise self._wrong(name, given.value, f"a parameter of this node, as {close[0]}")
            self._node.get_logger().warning(f"parameter {name}: {self.kind} has none of this name; ignored")

    def _declare(self, parameter: Parameter) -> None:
        name, value = parameter.path, parameter.default
        if name in self._given:
            value = parameter.convert(_plain(self._given[name]))
            expected = parameter.why_not(value)
            if expected:
                raise self._wrong(name, value, f"{expected}: {parameter.description}")
        read_only = parameter.when == "start" or (parameter.when == "configure" and not self._managed)
        descriptor = node_descriptor(parameter, read_only)
        if parameter.type != "floats":
            self._node.declare_parameter(name, value, descriptor, ignore_override=True)
            return
        # An empty list has no type that rclpy could find out: declare the type, then set the value.
        descriptor.read_only = False
        self._node.declare_parameter(name, RosParameter.Type.DOUBLE_ARRAY, descriptor, ignore_override=True)
        self._node.set_parameters([RosParameter(name, RosParameter.Type.DOUBLE_ARRAY, list(value))])
        self._node.describe_parameter(name).read_only = read_only

    # -- changes ------------------------------------------------------------------------------------------------

    def _convert(self, parameters: list[RosParameter]) -> list[RosParameter]:
        """Numbers as they are declared: ``ros2 param set NODE seconds 1`` sends a whole one."""
        converted = []
        for given in parameters:
            parameter = self._declared.get(given.name)
            value = None if parameter is None else parameter.convert(_plain(given))
            if parameter is None or value is given.value:
                converted.append(given)
            elif parameter.type == "floats":
                converted.append(RosParameter(given.name, RosParameter.Type.DOUBLE_ARRAY, value))
            else:
                converted.append(RosParameter(given.name, value=value))
        return converted

    def _judge(self, parameters: list[RosParameter]) -> SetParametersResult:
        for given in parameters:
            reason = self._why_not(given)
            if reason:
                return SetParametersResult(successful=False, reason=reason)
        return SetParametersResult(successful=True)

    def _why_not(self, given: RosParameter) -> str:
        name = given.name
        if name == "use_sim_time":
            return f"{name}: {WHEN['start']}: expected a restart with another value"
        parameter = self._declared.get(name)
        if parameter is None:
            return ""  # rclpy's own, and settings that are being declared
        if parameter.when == "configure" and self.state != "unconfigured":
            return f"{name}: {WHEN['configure']}: expected a cleanup first, {self._node.get_name()} is {self.state}"
        value = _plain(given)
        expected = parameter.why_not(value)
        if expected:
            return f"{name} = {value!r}: expected {expected}"
        judge = self._checks.get(name)
        if judge is not None and not (parameter.unset and parameter.is_default(value)):
            try:
                judge(value)
            except SafeSysIdError as error:
                return f"{name} = {value!r}: {error}"
        return ""

    def _tell(self, parameters: list[RosParameter]) -> None:
        for given in parameters:
            callback = self._callbacks.get(given.name)
            if callback is None:
                continue
            try:
                callback(self[given.name])
            except Exception:  # the parameter is set: the node goes on, and says what it could not do with it
                text = traceback.format_exc(limit=-4)
                self._node.get_logger().error(f"parameter {given.name}: {text}")


def _plain(given: RosParameter) -> Any:
    """Arrays as lists."""
    value = given.value
    return value if isinstance(value, (str, bytes)) or not isinstance(value, Sequence) else list(value)


@dataclass(frozen=True)
class CommonOptions:
    """Parameters that all nodes have."""

    robot: str  #: name of a packaged robot or path of a YAML file
    scene: str  #: the same for a scene; "" for an open one
    overrides: Mapping[str, Any]  #: settings that replace the robot file's
    lockstep: bool  #: plant and controller wait for each other; otherwise real time
    patience: float  #: in lock-step, wall seconds after which a node that is waited for is taken for dead
    run_dir: Path | None  #: where logs are written; None for nowhere
    seed: int
    log_s: float  #: time that logs hold at most, s
    realtime: RealtimeOptions  #: what the node asks the system's scheduler for

    @classmethod
    def of(cls, parameters: NodeParameters) -> CommonOptions:
        """Read them. Raises ConfigError: a value that cannot be used."""
        values = parameters.values()
        run_dir = values["run_dir"]
        if run_dir is not None:
            Path(run_dir).mkdir(parents=True, exist_ok=True)
        return cls(
            robot=values["robot"],
            scene=values["scene"] or "",
            overrides=parameters.overrides,
            lockstep=values["lockstep"],
            patience=values["lockstep_patience_s"],
            run_dir=None if run_dir is None else Path(run_dir),
            seed=values["seed"],
            log_s=values["log_s"],
            realtime=parameters.realtime,
        )

    def load_model(self) -> RobotModel:
        """The robot, with the overrides."""
        return load_robot(self.robot, **self.overrides)

    def load_scene(self, model: RobotModel) -> Scene:
        """The scene, checked against the robot."""
        scene = load_scene(self.scene) if self.scene else Scene("open")
        scene.check(model)
        return scene
