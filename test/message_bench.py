"""Every callback of every node in one process, without a network: for floods of broken messages and requests.

The controller answers a simulated arm in lock-step all the while, so that what broken messages change can be seen.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from builtin_interfaces.msg import Time
from geometry_msgs.msg import PoseStamped
from rcl_interfaces.msg import Parameter, ParameterValue
from rclpy.serialization import deserialize_message, serialize_message
from rclpy.service import Service
from ros_harness import nodes_here
from sensor_msgs.msg import JointState
from std_msgs.msg import Float64MultiArray
from trajectory_msgs.msg import JointTrajectory, JointTrajectoryPoint
from visualization_msgs.msg import Marker, MarkerArray

from safe_sysid.nodes.common.base import BaseNode
from safe_sysid.nodes.common.digest import plan_digest
from safe_sysid.nodes.common.messages import conversions
from safe_sysid.nodes.controller.node import ControllerNode
from safe_sysid.nodes.identifier.node import IdentifierNode
from safe_sysid.nodes.planner.planner_node import PlannerNode
from safe_sysid.nodes.plant.node import PlantNode
from safe_sysid.robot import load_scene
from safe_sysid.robot.parameters import ParameterBox
from safe_sysid.simulation import NoiseModel, Plant, draw_truth, payload_from_spec
from safe_sysid.trajectories import Plan, QuinticTrajectory

ROBOT, MS = "three_joint", 1_000_000
TYPES: dict[str, type] = {
    "joint_states": JointState,
    "reference": JointState,
    "effort_command": Float64MultiArray,
    "bounds": Float64MultiArray,
    "bounds_active": Float64MultiArray,
    "plan": JointTrajectory,
    "goal_joints": JointTrajectory,
    "goal_pose": PoseStamped,
    "scene": MarkerArray,
}


class _Solver:
    """A solver process that takes every job and never answers."""

    pid, restarts, ready, busy = 1, 0, True, False

    def __init__(self) -> None:
        self.on_event: Any = None
        self._tickets = 0

    def configure(self, name: str, job: Any) -> int:
        self._tickets += 1
        return self._tickets

    def submit(self, job: Any, limit: float | None = None) -> int:
        return self.configure("", job)

    def cancel(self, grace: float = 1.0) -> None: ...

    def wait(self, ticket: int, timeout: float) -> None: ...

    def close(self) -> None: ...


class _HeardCommands:
    """In place of the publisher of commands."""

    def __init__(self) -> None:
        self.heard: Any = None

    def publish(self, message: Any) -> None:
        self.heard = deserialize_message(message, Float64MultiArray) if isinstance(message, bytes) else message


class MessageBench:
    """Controller, identifier, planner and plant, configured and active, with nothing between them."""

    def __init__(self, directory: Path) -> None:
        given = {"robot": ROBOT, "lockstep": "true", "run_dir": directory, "await_plans": "false"}
        # Where the file of logs is switched off, thousands of refusals a second cost nothing.
        quiet = ("--log-level", "fatal", "--disable-external-lib-logs", "--disable-rosout-logs")
        self._ros = nodes_here(*quiet, **given, await_bounds="false")
        self._ros.__enter__()
        self.controller = ControllerNode()
        self.planner = PlannerNode(_Solver())  # type: ignore[arg-type]
        self.identifier, self.plant_node = IdentifierNode(), PlantNode()
        self.nodes: list[BaseNode] = [self.controller, self.identifier, self.planner, self.plant_node]
        for node in (self.controller, self.identifier, self.planner):
            node.trigger_configure()
            assert node.lifecycle == "inactive", node._refused
        model = self.model = self.controller.model
        payload = payload_from_spec("4lb")
        self.plant = Plant(
            model, draw_truth(model, payload, 1, "uniform"), payload, load_scene("open"), 1,
            NoiseModel.declared(model.settings, "uniform"), np.array(model.settings.home),
        )  # fmt: skip
        self.commands = _HeardCommands()
        self.controller._commands = self.commands
        self.tick, self.torque = 0, None
        self._writer = conversions.JointStateWriter(model.joint_names)
        self.measure(None)
        for node in (self.controller, self.identifier, self.planner):
            node.trigger_activate()
            assert node.active, node._refused
        self.identifier._run(True)
        assert self.planner._scheduler is not None
        self.planner._scheduler.start()
        self.without_rates()

    def close(self) -> None:
        for node in self.nodes:
            node.close()
            node.destroy_node()
        self._ros.__exit__(None, None, None)

    def without_rates(self) -> None:
        """Let everything through that is not too long: what is in it is to be tried, not how often it comes."""
        for node in self.nodes:
            for message_filter in node.rate_limiter.filters.values():
                message_filter._bucket = None

    # -- the arm ------------------------------------------------------------------------------------------------

    def measure(self, torque: Any) -> None:
        """One period of the arm, and the controller's answer."""
        self.tick += 1
        x = self.plant.step(torque)
        self.commands.heard = None
        state = self._writer.fill(self.tick * MS, x.q, x.qd, x.effort)
        self.controller.rate_limiter.receivers["joint_states"](serialize_message(state))
        self.torque = None
        if self.commands.heard is not None:
            stamp, self.torque = conversions.read_command(self.commands.heard, self.model.n)
            assert stamp == self.tick * MS

    def step(self) -> None:
        """One period; what is commanded must be a torque that the arm has."""
        self.measure(self.torque)
        assert self.commands.heard is not None, f"no answer to tick {self.tick}: {self.controller.status()[1]}"
        if self.torque is not None:
            assert np.all(np.isfinite(self.torque))
            assert np.all(np.abs(self.torque) <= self.model.limits.torque)

    # -- what is sent -------------------------------------------------------------------------------------------

    def seeds(self, topic: str) -> list[Any]:
        """Sound messages of a topic."""
        model, box = self.model, self.controller.session.core.box
        names, n = list(model.joint_names), model.n
        home, zero = np.array(model.settings.home), np.zeros(n)
        stamp = Time()
        conversions.write_stamp(stamp, (self.tick + 1) * MS)
        if TYPES[topic] is JointState:
            state = JointState(name=names, position=home.tolist(), velocity=[0.0] * n, effort=[1.0] * n)
            state.header.stamp, state.header.frame_id = stamp, box.identity
            return [state]
        if topic == "effort_command":
            return [conversions.CommandWriter(n).fill((self.tick + 1) * MS, zero)]
        if topic in ("bounds", "bounds_active"):
            inner = ParameterBox(box.lower, box.upper, box.epoch, box.seq + 1)
            return [
                conversions.bounds_message(inner, inner.mid, 1, self.controller.digest),
                conversions.bounds_message(box, box.mid, digest="0" + self.controller.digest[1:]),
            ]
        if topic == "plan":
            start = np.stack([home, zero, zero])
            plan = Plan(QuinticTrajectory.to_rest(start, home + 0.05, 1.0), 0.0, 0.5, box.identity, 0, zero)
            digest, at = plan_digest(self.controller.digest), (self.tick + 200) * MS
            return [
                conversions.plan_message(plan, names, at, digest),
                conversions.empty_plan_message(at, box.identity, names, at + 500 * MS, digest),
            ]
        if topic == "goal_joints":
            return [JointTrajectory(joint_names=names, points=[JointTrajectoryPoint(positions=home.tolist())] * 3)]
        if topic == "goal_pose":
            pose = PoseStamped()
            pose.header.frame_id, pose.pose.orientation.w = "world", 1.0
            return [pose]
        markers = [Marker(ns=f"a{i}", id=i, type=kind) for i, kind in enumerate((1, 2, 3, 10))]
        for marker in markers:
            marker.header.frame_id, marker.pose.orientation.w, marker.pose.position.x = "world", 1.0, 3.0
            marker.scale.x = marker.scale.y = marker.scale.z = 0.1
            marker.mesh_resource = "package://safe_sysid/../../etc/passwd" if marker.type == 10 else ""
        return [MarkerArray(markers=markers)]

    def topics(self) -> list[tuple[BaseNode, str]]:
        """All that is listened to, but the measurements: in lock-step they are the clock."""
        pairs = [(node, topic) for node in self.nodes for topic in node.rate_limiter.receivers]
        return [(node, topic) for node, topic in pairs if (node, topic) != (self.controller, "joint_states")]

    def services(self) -> list[tuple[BaseNode, Service]]:
        """All that is offered, but what answers later."""
        found = [(node, service) for node in self.nodes for service in node.services]
        return [(node, service) for node, service in found if not service.srv_name.endswith("planner/plan")]

    def send(self, node: BaseNode, topic: str, data: bytes) -> None:
        """Give a node a message as it would come."""
        node.rate_limiter.receivers[topic](data)

    def ask(self, service: Service, data: bytes) -> None:
        """Give a service a request as it would come; what the middleware cannot read never arrives."""
        try:
            request = deserialize_message(data, service.srv_type.Request)
        except Exception:
            return
        response = service.callback(request, service.srv_type.Response())
        assert isinstance(response, service.srv_type.Response)
        serialize_message(response)

    def healthy(self) -> None:
        """The nodes say what they have to say, in reasonable length and without letters that a terminal obeys."""
        for node in self.nodes:
            _, text, values = node.overview()
            told = [text, *map(str, values.values()), node._last_refusal]
            assert max(map(len, told)) < 20_000
            assert len(node.refusals) < 200
        self.planner._scenes.scene.check(self.model)


# -- breaking things --------------------------------------------------------------------------------------------

FLOATS = (math.nan, math.inf, -math.inf, 0.0, -0.0, 1e308, -1e308, 5e-324, 1e-200, 1.0, -1.0, 1e6)
INTEGERS = (0, 1, -1, 2, 3, 4, 127, 255, 1_000_000_000, 999_999_999, 2**31 - 1, -(2**31), 2**32 - 1, 2**63)
TEXTS = (
    "", "\x00", "\x1b[2J\x1b]0;pwned\x07", "<script>alert(1)</script>", "0:0", "0:1", "-1:0", "1:99999999999999999999",
    "world", "../../etc/passwd", "\u202egnol", "\U0001f916" * 50, "x" * 3000, "file:///etc/passwd", "a\nb", "{{7*7}}",
)  # fmt: skip
LENGTHS = (0, 1, 2, 15, 255, 65535, 2**20, 2**28, 2**31 - 1, 2**32 - 1)


def break_fields(rng: random.Random, message: Any, times: int = 2) -> Any:
    """Replace fields of a message, at any depth, by others that its type allows."""
    for _ in range(rng.randint(1, times)):
        holder = message
        for _ in range(8):
            name = rng.choice(list(holder.get_fields_and_field_types()))
            value = getattr(holder, name)
            if hasattr(value, "get_fields_and_field_types"):
                holder = value
                continue
            if (
                isinstance(value, list)
                and value
                and hasattr(value[0], "get_fields_and_field_types")
                and rng.random() < 0.8
            ):
                holder = rng.choice(value)
                continue
            _replace(rng, holder, name, value)
            break
    return message


def _replace(rng: random.Random, holder: Any, name: str, value: Any) -> None:
    """One field; what its type does not take stays."""
    new: Any
    if isinstance(value, bool):
        new = not value
    elif isinstance(value, int):
        new = rng.choice((*INTEGERS, value + 1, value - 1))
    elif isinstance(value, float):
        new = rng.choice(FLOATS)
    elif isinstance(value, str):
        new = rng.choice((*TEXTS, value + "x", value[:-1]))
    elif len(value) == 0:
        return
    else:
        new = list(value)
        how = rng.randrange(5)
        if how == 0:
            new.pop(rng.randrange(len(new)))
        elif how == 1:
            new.append(rng.choice(new))
        elif how == 2:
            new = new * rng.choice((0, 2, 40))
        elif how == 3:
            rng.shuffle(new)
        elif isinstance(new[0], (str, float)):
            new[rng.randrange(len(new))] = rng.choice(TEXTS if isinstance(new[0], str) else FLOATS)
    try:
        setattr(holder, name, new)
    except (AssertionError, TypeError, ValueError, OverflowError):
        return


def break_bytes(rng: random.Random, data: bytes) -> bytes:
    """Flip, cut, insert, and lie about lengths."""
    broken = bytearray(data)
    for _ in range(rng.randint(1, 4)):
        at = rng.randrange(len(broken) + 1)
        how = rng.randrange(5)
        if how == 0 and at < len(broken):
            broken[at] = rng.randrange(256)
        elif how == 1:
            del broken[at:]
        elif how == 2:
            broken[at:at] = rng.randbytes(rng.randint(1, 9))
        elif how == 3:
            at &= ~3
            broken[at : at + 4] = rng.choice(LENGTHS).to_bytes(4, "little")
        else:
            at &= ~7
            broken[at : at + 8] = np.float64(rng.choice(FLOATS)).tobytes()
    return bytes(broken)


def broken(rng: random.Random, sound: Any) -> bytes:
    """Of a sound message one that is broken, serialised."""
    data = bytes(serialize_message(sound))
    if rng.random() < 0.6:
        copy = break_fields(rng, deserialize_message(data, type(sound)))
        try:
            data = bytes(serialize_message(copy))
        except Exception:  # a number that the field does not hold
            return break_bytes(rng, data)
        if rng.random() < 0.8:
            return data
    return break_bytes(rng, data)


def request_of(rng: random.Random, service: Service) -> Any:
    """A request, sound or nearly so. Of transitions only those that do not exist: the others are not broken."""
    request = service.srv_type.Request()
    fields: dict[str, Callable[[], Any]] = {
        "names": lambda: [rng.choice((*TEXTS, "robot", "plans", "realtime.nice")) for _ in range(rng.randrange(4))],
        "prefixes": lambda: [rng.choice((*TEXTS, "realtime"))],
        "depth": lambda: rng.choice((0, 1, 2**63)),
        "parameters": lambda: [_parameter(rng) for _ in range(rng.randrange(4))],
    }
    for name, make in fields.items():
        if hasattr(request, name):
            setattr(request, name, make())
    if hasattr(request, "transition"):
        request.transition.id = rng.choice((9, 11, 63, 90, 99, 255))
        request.transition.label = rng.choice(TEXTS)
    return request


def _parameter(rng: random.Random) -> Parameter:
    value = ParameterValue(type=rng.choice((0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 255)))
    value.double_value, value.integer_value = rng.choice(FLOATS), rng.choice((0, -1, 2**63 - 1, -(2**63)))
    value.string_value, value.bool_value = rng.choice(TEXTS), rng.random() < 0.5
    value.double_array_value = [rng.choice(FLOATS)] * rng.randrange(4)
    names = ("robot", "plans", "markers", "use_sim_time", "reference_every", "realtime.nice", "payload_to_attach")
    return Parameter(name=rng.choice((*TEXTS, *names, "robot_settings.planner.t_p", "cost", "run_dir")), value=value)
