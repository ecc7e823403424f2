"""A small `ros2`: what the docs show of the stock tools, done through rclpy with live nodes.

The command line of ROS 2 is in no package registry. What is understood here are the commands and options of `ros2cli`
0.32 (Jazzy) that it has; anything else is refused, and the test that met it fails.
"""

from __future__ import annotations

import argparse
import runpy
import shlex
import time
from collections.abc import Callable
from typing import Any
from unittest import mock

import yaml
from lifecycle_msgs.srv import GetAvailableTransitions, GetState
from rcl_interfaces.msg import ParameterType
from rcl_interfaces.srv import DescribeParameters, GetParameters, ListParameters, SetParameters
from rclpy.parameter import Parameter, get_parameter_value, parameter_value_to_python
from rclpy.qos import DurabilityPolicy, QoSProfile, ReliabilityPolicy, qos_check_compatible

from docs_commands.launch_files import why_not
from docs_commands.live_nodes import PATIENCE, Graph
from docs_commands.pages import ROOT, Command
from docs_commands.values import field, filled, message_type, type_name
from docs_commands.workspace import Outcome, Workspace

_KINDS = {"1": "Boolean", "2": "Integer", "3": "Double", "4": "String"}


class _Parser(argparse.ArgumentParser):
    """Wrong arguments are an exception, not the end of the process."""

    def error(self, message: str) -> Any:
        raise ValueError(f"{self.prog}: {message}")


def _parser() -> argparse.ArgumentParser:
    top = _Parser(prog="ros2", add_help=False)
    areas = top.add_subparsers(dest="area", required=True)

    def area(name: str) -> Callable[..., Any]:
        verbs = areas.add_parser(name, add_help=False).add_subparsers(dest="verb", required=True)

        def verb(name: str, *positional: str, flags: str = "", values: str = "") -> None:
            parser = verbs.add_parser(name, add_help=False)
            for word in positional:
                parser.add_argument(word.rstrip("?*"), **({"nargs": word[-1]} if word[-1] in "?*" else {}))
            for word in flags.split():
                parser.add_argument(*word.split("|"), action="store_true")
            for word in values.split():
                parser.add_argument(*word.split("|"))

        return verb

    verb = area("topic")
    verb("list", flags="-t|--show-types -c|--count-topics --include-hidden-topics -v|--verbose")
    verb("info", "topic", flags="-v|--verbose")
    verb(
        "echo", "topic", "type?",
        flags="--once -f|--full-length --no-arr --no-str --flow-style --csv --raw -i|--include-message-info",
        values="--qos-profile --qos-depth --qos-history --qos-reliability --qos-durability --field -l|--truncate-length"
        " --timeout --filter",
    )  # fmt: skip
    verb("hz", "topic", flags="--wall-time", values="-w|--window --filter")
    verb(
        "pub", "topic", "type", "values?",
        flags="-1|--once",
        values="-r|--rate -p|--print -t|--times -w|--wait-matching-subscriptions --keep-alive --qos-reliability"
        " --qos-durability",
    )  # fmt: skip
    verb = area("service")
    verb("list", flags="-t|--show-types -c|--count-services --include-hidden-services")
    verb("call", "service", "type", "values?", values="-r|--rate")
    verb = area("param")
    verb("list", "node?", flags="--param-type --include-hidden-nodes", values="--filter --param-prefixes")
    verb("get", "node", "name", flags="--hide-type")
    verb("set", "node", "name", "value")
    verb("describe", "node", "names*")
    verb("dump", "node")
    verb = area("lifecycle")
    verb("nodes", flags="-a|--all -c|--count-nodes")
    verb("get", "node?")
    verb("set", "node", "transition")
    verb("list", "node", flags="-a|--all")
    verb = area("node")
    verb("list", flags="-a|--all -c|--count-nodes")
    verb("info", "node", flags="--include-hidden")
    verb = area("pkg")
    verb("executables", "package")
    return top


class Ros2:
    """Runs `ros2` commands of a page."""

    def __init__(self, graph: Graph) -> None:
        self.graph, self._parser = graph, _parser()
        self._node = graph.probe.node

    def prepare(self, block: list[Command]) -> None:
        """Have what a block asks for: an arm without a namespace, unless others are named, and states of nodes."""
        asks = [c for c in block if c.words[:1] == ("ros2",) and c.words[1] not in ("launch", "run", "pkg")]
        launched = any(c.words[1:2] == ("launch",) for c in block)
        if not launched and not self.graph.has("") and any(not self.graph.named(c.text) for c in asks):
            self.graph.arm("")
        for name, state in prepared(block).items():
            if self.graph.has(name.rpartition("/")[0]):
                self.graph.bring(name, state)

    def run(self, space: Workspace, words: list[str]) -> Outcome:
        """Run one; status 1 and a reason where the stock tool would have refused it."""
        try:
            if words[1:2] == ["launch"]:
                return self._launch(words[2:])
            if words[1:2] == ["run"]:
                return self._run(space, words[2:])
            options = self._parser.parse_args(words[1:])
            return Outcome(0, getattr(self, f"_{options.area}_{options.verb}")(options))
        except (ValueError, AssertionError) as error:  # the latter: waited in vain
            return Outcome(1, str(error))

    # -- processes ---------------------------------------------------------------------------------------------

    def _launch(self, words: list[str]) -> Outcome:
        """Files and arguments as the launch file declares them; then a simulated arm, whichever file it is."""
        package, file, *rest = words
        shows = "--show-args" in rest or "-s" in rest
        arguments = dict(word.split(":=", 1) for word in rest if ":=" in word)
        if unknown := [word for word in rest if ":=" not in word and word not in ("--show-args", "-s")]:
            return Outcome(1, f"ros2 launch: {unknown}")
        if package != "safe_sysid":
            return Outcome(1, f"Package '{package}' not found")
        if not shows and (reason := why_not(file, arguments)):
            return Outcome(1, reason)
        if not shows and file != "view.launch.py":
            namespace = f"/{arguments['namespace']}" if arguments.get("namespace") else ""
            simulated = file == "sim.launch.py"
            active = arguments.get("activate", "true" if simulated else "false") == "true"
            state = "active" if active else "inactive"
            self.graph.arm(namespace, arguments.get("payload", "4lb"), state, moving=simulated and active)
        return Outcome(0, "")

    def _run(self, space: Workspace, words: list[str]) -> Outcome:
        package, executable, *rest = words
        module = executables().get(executable) if package == "safe_sysid" else None
        if module is None:
            return Outcome(1, f"No executable found: {shlex.join(words)}")
        return Outcome(0, self.graph.beside(module, rest, space.folder))

    def _pkg_executables(self, options: argparse.Namespace) -> str:
        if options.package != "safe_sysid":
            raise ValueError(f"package {options.package!r} not found")
        return "\n".join(f"safe_sysid {name}" for name in sorted(executables()))

    # -- topics ------------------------------------------------------------------------------------------------

    def _topics(self) -> dict[str, list[str]]:
        found = dict(self._node.get_topic_names_and_types())
        return {name: kinds for name, kinds in found.items() if "/_" not in name}

    def _known(self, topic: str) -> str:
        name = topic if topic.startswith("/") else f"/{topic}"
        self.graph.probe.wait(
            lambda: any(self._foreign(name)) or name not in self._topics(), f"a publisher of {name}", PATIENCE
        )
        if name not in self._topics():
            raise ValueError(f"topic [{name}] does not appear to be published yet: {sorted(self._topics())}")
        return name

    def _foreign(self, topic: str) -> list[Any]:
        """Publishers of others."""
        return [
            i for i in self._node.get_publishers_info_by_topic(topic) if i.node_name != self._node.get_name()
        ]

    def _topic_list(self, options: argparse.Namespace) -> str:
        rows = sorted(self._topics().items())
        return "\n".join(f"{name} [{kinds[0]}]" if options.show_types else name for name, kinds in rows)

    def _topic_info(self, options: argparse.Namespace) -> str:
        name = self._known(options.topic)
        publishers, readers = self._foreign(name), self._node.get_subscriptions_info_by_topic(name)
        return (
            f"Type: {self._topics()[name][0]}\nPublisher count: {len(publishers)}\n"
            f"Subscription count: {len(readers)}\n"
            + "\n".join(f"Node name: {i.node_name}" for i in publishers)
        )

    def _messages(self, options: argparse.Namespace, count: int) -> list[Any]:
        """So many messages of a topic; echo and hz take over what the publishers offer, unless told otherwise."""
        name = self._known(options.topic)
        kind = message_type(self._topics()[name][0])
        offered = [info.qos_profile for info in self._foreign(name)]
        latched = bool(offered) and all(q.durability == DurabilityPolicy.TRANSIENT_LOCAL for q in offered)
        reliable = bool(offered) and all(q.reliability == ReliabilityPolicy.RELIABLE for q in offered)
        profile = QoSProfile(
            depth=int(getattr(options, "qos_depth", None) or 10),
            reliability=ReliabilityPolicy.RELIABLE if reliable else ReliabilityPolicy.BEST_EFFORT,
            durability=DurabilityPolicy.TRANSIENT_LOCAL if latched else DurabilityPolicy.VOLATILE,
        )
        asked = [getattr(options, f"qos_{part}", None) for part in ("reliability", "durability")]
        if any(asked):
            profile.reliability = ReliabilityPolicy.get_from_short_key(asked[0] or "best_effort")
            profile.durability = DurabilityPolicy.get_from_short_key(asked[1] or "volatile")
        for offer in offered:
            compatible, why = qos_check_compatible(offer, profile)
            if "ERROR" in str(compatible):
                raise ValueError(f"{name}: these settings do not fit what is offered: {why}")
        found: list[Any] = []
        subscription = self._node.create_subscription(kind, name, found.append, profile)
        try:
            self.graph.probe.wait(lambda: len(found) >= count, f"messages on {name}", PATIENCE)
        finally:
            self._node.destroy_subscription(subscription)
        return found

    def _topic_echo(self, options: argparse.Namespace) -> str:
        message = self._messages(options, 1)[0]
        return f"{field(message, options.field) if options.field else message}\n---"

    def _topic_hz(self, options: argparse.Namespace) -> str:
        return f"average rate: of {len(self._messages(options, 3))} messages"

    def _topic_pub(self, options: argparse.Namespace) -> str:
        name = options.topic if options.topic.startswith("/") else f"/{options.topic}"
        message = filled(message_type(options.type), options.values)
        known = self._topics().get(name, [type_name(type(message))])
        if known != [type_name(type(message))]:
            raise ValueError(f"{name} has the type {known}, not {options.type}")
        publisher = self.graph.probe.publisher(type(message), name)  # waits for somebody who listens
        publisher.publish(message)
        self.graph.probe.spin(0.5)
        return f"publishing #1: {message}"

    # -- services ----------------------------------------------------------------------------------------------

    def _service_list(self, options: argparse.Namespace) -> str:
        rows = sorted(self._node.get_service_names_and_types())
        return "\n".join(f"{name} [{kinds[0]}]" if options.show_types else name for name, kinds in rows)

    def _service_call(self, options: argparse.Namespace) -> str:
        kind = message_type(options.type, "srv")
        kinds = dict(self._node.get_service_names_and_types()).get(options.service)
        if kinds is None:
            raise ValueError(f"no service {options.service}")
        if kinds != [type_name(kind)]:
            raise ValueError(f"{options.service} has the type {kinds}, not {options.type}")
        request = filled(kind.Request, options.values)
        deadline = time.monotonic() + PATIENCE
        while (
            True
        ):  # the arm that an earlier command set in motion comes to rest first, as it would for a person
            answer = self.graph.call(kind, options.service, request)
            waits = "expected it at rest" in getattr(answer, "message", "")
            if not waits or time.monotonic() > deadline:
                break
            self.graph.probe.spin(0.5)
        return f"response:\n{answer}".replace(f"{kind.__module__.rpartition('.')[0]}.", "")

    # -- parameters --------------------------------------------------------------------------------------------

    def _ask(self, node: str, kind: Any, service: str, **fields: Any) -> Any:
        return self.graph.call(kind, f"{self._full(node)}/{service}", kind.Request(**fields))

    def _full(self, node: str) -> str:
        name = node if node.startswith("/") else f"/{node}"
        if name not in self._nodes():
            raise ValueError(f"Node not found: {name}; there are {self._nodes()}")
        return name

    def _param_list(self, options: argparse.Namespace) -> str:
        nodes = [options.node] if options.node else self._nodes()
        names = [self._ask(node, ListParameters, "list_parameters").result.names for node in nodes]
        return "\n".join(f"  {name}" for group in names for name in sorted(group))

    def _param_get(self, options: argparse.Namespace) -> str:
        value = self._ask(options.node, GetParameters, "get_parameters", names=[options.name]).values[0]
        if value.type == ParameterType.PARAMETER_NOT_SET:
            raise ValueError("Parameter not set")
        kind = _KINDS.get(str(value.type), "Array")
        return f"{kind} value is: {parameter_value_to_python(value)}"

    def _param_set(self, options: argparse.Namespace) -> str:
        value = get_parameter_value(options.value)
        parameter = Parameter(options.name, value=parameter_value_to_python(value)).to_parameter_msg()
        answer = self._ask(options.node, SetParameters, "set_parameters", parameters=[parameter]).results[0]
        if not answer.successful:
            raise ValueError(f"Setting parameter failed: {answer.reason}")
        return "Set parameter successful"

    def _param_describe(self, options: argparse.Namespace) -> str:
        answer = self._ask(options.node, DescribeParameters, "describe_parameters", names=options.names)
        rows = []
        for found in answer.descriptors:
            if found.type == ParameterType.PARAMETER_NOT_SET:
                raise ValueError(f"no parameter {found.name!r}")
            rows.append(f"Parameter name: {found.name}\n  Description: {found.description}")
        return "\n".join(rows)

    def _param_dump(self, options: argparse.Namespace) -> str:
        names = self._ask(options.node, ListParameters, "list_parameters").result.names
        values = self._ask(options.node, GetParameters, "get_parameters", names=names).values
        found = {name: parameter_value_to_python(value) for name, value in zip(names, values, strict=True)}
        return f"{self._full(options.node)}:\n  ros__parameters:\n" + yaml.safe_dump(
            {name: list(value) if hasattr(value, "tolist") else value for name, value in found.items()}
        )

    # -- lifecycle and nodes ------------------------------------------------------------------------------------

    def _nodes(self) -> list[str]:
        own = f"/{self._node.get_name()}"
        return [name for name in self.graph.names() if name != own and "/_" not in name]

    def _lifecycle_nodes(self, _: argparse.Namespace) -> str:
        services = dict(self._node.get_service_names_and_types())
        return "\n".join(node for node in self._nodes() if f"{node}/get_state" in services)

    def _lifecycle_get(self, options: argparse.Namespace) -> str:
        nodes = [options.node] if options.node else self._lifecycle_nodes(options).splitlines()
        states = [self._ask(node, GetState, "get_state").current_state for node in nodes]
        return "\n".join(f"{state.label} [{state.id}]" for state in states)

    def _transitions(self, node: str) -> list[Any]:
        kind = GetAvailableTransitions
        return list(self._ask(node, kind, "get_available_transitions").available_transitions)

    def _lifecycle_list(self, options: argparse.Namespace) -> str:
        rows = self._transitions(options.node)
        return "\n".join(
            f"- {row.transition.label} [{row.transition.id}]\n"
            f"\tStart: {row.start_state.label}\n\tGoal: {row.goal_state.label}"
            for row in rows
        )

    def _lifecycle_set(self, options: argparse.Namespace) -> str:
        found = [row.transition for row in self._transitions(options.node)]
        for transition in found:
            if options.transition in (transition.label, str(transition.id)):
                if self.graph.change(self._full(options.node), transition.id):
                    return "Transitioning successful"
                raise ValueError(f"Transitioning failed ({self.graph.reason(self._full(options.node))})")
        rows = "".join(f"\n- {transition.label} [{transition.id}]" for transition in found)
        raise ValueError(f"Unknown transition requested, available ones are:{rows}")

    def _node_list(self, _: argparse.Namespace) -> str:
        return "\n".join(self._nodes())

    def _node_info(self, options: argparse.Namespace) -> str:
        space, _, name = self._full(options.node).rpartition("/")
        ask = (name, space or "/")
        parts = (
            ("Subscribers", self._node.get_subscriber_names_and_types_by_node(*ask)),
            ("Publishers", self._node.get_publisher_names_and_types_by_node(*ask)),
            ("Service Servers", self._node.get_service_names_and_types_by_node(*ask)),
        )
        rows = [
            f"  {title}:\n" + "\n".join(f"    {n}: {k[0]}" for n, k in sorted(found))
            for title, found in parts
        ]
        return "\n".join([self._full(options.node), *rows])


def executables() -> dict[str, str]:
    """Executable to module, as setup.py declares them."""
    with mock.patch("setuptools.setup"):
        nodes = runpy.run_path(str(ROOT / "setup.py"), run_name="setup_of_the_docs")["NODES"]
    return {name: f"safe_sysid.nodes.{module}" for name, module in nodes.items()}


def parsed(words: list[str]) -> argparse.Namespace:
    """The options of a command that is neither `launch` nor `run`.

    Raises:
        ValueError: the stock tool would not take it.
    """
    return _parser().parse_args(words[1:])


def prepared(block: list[Command]) -> dict[str, str]:
    """The states in which a block finds its nodes: those from which its first transition of each leads."""
    needs = {
        "activate": "inactive",
        "configure": "unconfigured",
        "deactivate": "active",
        "cleanup": "inactive",
    }
    found: dict[str, str] = {}
    for command in block:
        words, shown = command.words, command.shown
        succeeds = shown is None or "Transitioning successful" in shown
        if succeeds and words[1:3] == ("lifecycle", "set") and words[3].startswith("/"):
            found.setdefault(words[3], needs.get(words[4], "active"))
    return found
