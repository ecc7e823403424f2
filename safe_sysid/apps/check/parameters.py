"""Checks of node parameter files (``ros__parameters``), before any node reads them."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from safe_sysid.apps.check.robot import judge
from safe_sysid.nodes.settings import KINDS, parameters_of
from safe_sysid.robot.loading import load_robot
from safe_sysid.robot.overrides import SETTINGS, given_settings, overrides_of
from safe_sysid.robot.scenes.scene import Scene, load_scene
from safe_sysid.schema import Parameter

__all__ = ["check_parameters", "given_to_nodes", "is_parameter_file"]

_SECTION = "ros__parameters"
#: Nodes that must agree about the arm.
_TOGETHER = ("controller", "planner", "identifier", "plant")
#: Parameters that every ROS node has.
_EVERY_NODE = ("use_sim_time", "qos_overrides", "start_type_description_service")


def is_parameter_file(data: Mapping[str, Any]) -> bool:
    """Whether a YAML file is one of ROS parameters."""
    return any(isinstance(body, Mapping) and (_SECTION in body or is_parameter_file(body)) for body in data.values())


def check_parameters(data: Mapping[str, Any], say: Callable[[str], None]) -> list[str]:
    """Judge a file of node parameters, and the robot as these nodes will have it.

    ``data``: what the file holds, by node name; ``/**`` is every node. Returns what speaks against using it.

    Raises SafeSysIdError: the robot or the scene that it names cannot be used.
    """
    reasons: list[str] = []
    nodes: list[tuple[str, dict[str, Any]]] = []
    for name, body in _nodes("", data):
        if not isinstance(body, Mapping):
            reasons.append(f"{name}: expected a section {_SECTION} with parameters")
            continue
        kinds = [kind for kind in KINDS if name.rpartition("/")[2] in ("*", "**", kind)]
        if not kinds:
            say(f"warning: {name}: no node of this package by its name; not judged")
            continue
        values = dict(_flat("", body)) if body else {}
        for path, value in values.items():
            reasons.extend(f"{name}: {reason}" for reason in _judge_value(path, value, kinds))
        nodes.append((name, values))
        say(f"{name}: {len(values)} parameters of {', '.join(kinds)}")
    arms = {namespace: _given(namespace, nodes) for namespace in _namespaces(nodes)}
    for namespace, given in arms.items():
        where = f"/{namespace}: " if namespace else ""
        reasons.extend(f"{where}{reason}" for reason in _disagreements(given))
    if not reasons:
        for given in arms.values():
            reasons.extend(_judge_arm(given["controller"] or given["planner"], say))
    return reasons


def given_to_nodes(data: Mapping[str, Any], namespace: str = "") -> dict[str, dict[str, Any]]:
    """Parameters by kind of node and dotted name, as a file gives them in a namespace; nothing is judged.

    ``namespace``: of the nodes, without slashes around it.
    """
    nodes = [(name, dict(_flat("", body))) for name, body in _nodes("", data) if isinstance(body, Mapping) and body]
    return _given(namespace, nodes)


def _namespaces(nodes: Iterable[tuple[str, Any]]) -> list[str]:
    """Of the nodes that are named, each of which is another arm; one of no name where there are patterns only."""
    parts = [name.strip("/").rpartition("/") for name, _ in nodes]
    return sorted({space for space, _, last in parts if "*" not in space and "*" not in last}) or [""]


def _given(namespace: str, nodes: Iterable[tuple[str, dict[str, Any]]]) -> dict[str, dict[str, Any]]:
    """What each kind of node in a namespace gets. As in rcl what comes later counts more, be it for /** only."""
    given: dict[str, dict[str, Any]] = {kind: {} for kind in _TOGETHER}
    for name, values in nodes:
        space, _, last = name.strip("/").rpartition("/")
        everywhere = "*" in space or (last == "**" and (not space or f"{namespace}/".startswith(f"{space}/")))
        if everywhere or space == namespace:
            for kind in _TOGETHER:
                given[kind] |= values if last in ("*", "**", kind) else {}
    return given


def _nodes(path: str, data: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """Names of nodes with what is given for them; namespaces may be written as levels."""
    for name, body in data.items():
        inner = f"{path}/{name}" if path else str(name)
        if isinstance(body, Mapping) and _SECTION in body:
            yield inner, body[_SECTION]
        elif isinstance(body, Mapping) and is_parameter_file(body):
            yield from _nodes(inner, body)
        else:
            yield inner, None


def _flat(path: str, value: Any) -> Iterator[tuple[str, Any]]:
    if isinstance(value, Mapping) and value:
        for name, inner in value.items():
            yield from _flat(f"{path}.{name}" if path else str(name), inner)
    else:
        yield path, value


def _judge_value(path: str, value: Any, kinds: list[str]) -> Iterator[str]:
    """What ROS or the nodes will refuse."""
    if value is None or value == {}:
        yield f"{path} = {value!r}: expected a value, for ROS has no null; none of a robot's setting is the text `null`"
        return
    if isinstance(value, list) and (len(set(map(type, value))) > 1 or any(isinstance(v, (list, dict)) for v in value)):
        yield f"{path} = {value!r}: expected entries of one type, as [0.0, 1.0]: ROS has no other lists"
        return
    head = path.partition(".")[0]
    if head == SETTINGS or head in _EVERY_NODE:
        return
    found = [parameter for kind in kinds for parameter in parameters_of(kind) if parameter.path == path]
    if not found:
        yield from _unknown(path, value, kinds)
        return
    yield from _refusals(path, value, found[0])


def _refusals(path: str, value: Any, parameter: Parameter) -> Iterator[str]:
    expected = parameter.why_not(parameter.convert(value))
    if expected:
        yield f"{path} = {value!r}: expected {expected} ({parameter.description})"


def _unknown(path: str, value: Any, kinds: list[str]) -> Iterator[str]:
    known = sorted({parameter.path for kind in kinds for parameter in parameters_of(kind)})
    close = difflib.get_close_matches(path, known, 1)
    hint = f"did you mean {close[0]}?" if close else f"known: {', '.join(known)}"
    yield f"{path} = {value!r}: expected a parameter of {' or '.join(kinds)}; {hint}"


def _disagreements(given: Mapping[str, Mapping[str, Any]]) -> Iterator[str]:
    """Settings that some of the nodes have, and others have not, or otherwise: they would not work together."""
    paths = {path for kind in _TOGETHER for path in given[kind] if path.startswith(f"{SETTINGS}.")}
    for path in sorted({"robot", "lockstep", *paths}):
        # Of a node that the file says nothing of, nothing is known.
        values = {kind: given[kind].get(path, "(not given)") for kind in _TOGETHER if given[kind]}
        if len({repr(value) for value in values.values()}) > 1:
            told = ", ".join(f"{kind} {value!r}" for kind, value in values.items())
            yield f"{path}: {told}: expected the same for all of them, under /**"


def _judge_arm(given: Mapping[str, Any], say: Callable[[str], None]) -> list[str]:
    overrides = overrides_of(given_settings(given))
    model = load_robot(str(given.get("robot", "kinova_gen3")), **overrides)
    scene = load_scene(str(given["scene"])) if given.get("scene") else Scene("nothing around")
    scene.check(model)
    say(f"robot {model.name} with {len(overrides)} other settings: {model.n} joints, {len(model.bodies)} bodies")
    return judge(model, scene, say)
