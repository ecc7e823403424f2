"""Access policy: which node may use which topics and services, and the SROS2 policy file made from it.

    python -m safe_sysid.nodes.common.access_policy [--namespace left --namespace right] > policy.xml

The file ``config/security/policy.xml`` is what this prints for one arm without a namespace. What the nodes really
create is compared with the table here, both ways, by test/test_security_policy.py; how to use it: docs/use/security.md.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from xml.sax.saxutils import escape

__all__ = ["ENCLAVES", "NODES", "OPTIONAL", "AccessPolicy", "policy_text"]

_PARAMETERS = (
    "describe_parameters",
    "get_parameter_types",
    "get_parameters",
    "list_parameters",
    "set_parameters",
    "set_parameters_atomically",
    "get_type_description",
)
_LIFECYCLE = ("change_state", "get_available_states", "get_available_transitions", "get_state", "get_transition_graph")
_MANAGED = ("controller", "planner", "identifier")


@dataclass(frozen=True)
class AccessPolicy:
    """Topics and services of a node. Leading ``/``: global; others: in the namespace; ``node/name``: a node's own."""

    publish: tuple[str, ...] = ()  #: topics
    subscribe: tuple[str, ...] = ()  #: topics
    serve: tuple[str, ...] = ()  #: services
    request: tuple[str, ...] = ()  #: services


def _of(node: str, names: Sequence[str]) -> tuple[str, ...]:
    return tuple(f"{node}/{name}" for name in names)


def _node(
    name: str, publish: Sequence[str] = (), subscribe: Sequence[str] = (), serve: Sequence[str] = ()
) -> AccessPolicy:
    """Access of one node, including what every node has."""
    managed = name in _MANAGED
    own = ("transition_event", "transition_reason", "configuration") if managed else ()
    services = (*_PARAMETERS, *(_LIFECYCLE if managed else ()), *serve)
    return AccessPolicy(
        ("/diagnostics", "/parameter_events", "/rosout", *publish, *_of(name, own)),
        ("/clock", *subscribe),
        _of(name, services),
    )


#: With ``controller.interface: trajectory``, in place of ``effort_command``.
TRAJECTORIES = "trajectory_command"
#: The nodes that this package starts on an arm.
NODES: dict[str, AccessPolicy] = {
    "controller": _node(
        "controller",
        ("effort_command", TRAJECTORIES, "reference", "bounds_active"),
        ("joint_states", "plan", "bounds"),
        ("start", "stop", "emergency_stop", "reset_emergency_stop", "reset_bounds"),
    ),
    "planner": _node(
        "planner",
        ("plan", "certificate", "markers"),
        ("bounds_active", "reference", "goal_joints", "goal_pose", "scene"),
        ("start", "stop", "plan", "reload_scene"),
    ),
    "identifier": _node(
        "identifier",
        ("bounds", "payload", "last_link_with_payload", "intervals", "markers", "identifier/journal"),
        ("bounds_active", "joint_states"),
        ("start", "stop", "tare_start", "tare_finish", "forward_payload"),
    ),
    "plant": _node(
        "plant",
        ("joint_states", "/clock"),
        ("effort_command", TRAJECTORIES, "plan", "bounds_active"),
        ("attach", "release"),
    ),
}
#: What a node has in some modes only: with ``use_sim_time``.
OPTIONAL = frozenset({"/clock"})

_SAID = tuple(dict.fromkeys(topic for access in NODES.values() for topic in access.publish))
_ASKED = ("goal_joints", "goal_pose", "scene")
_BUTTONS = (
    *_of("controller", ("start", "stop", "emergency_stop", "reset_emergency_stop", "reset_bounds")),
    *_of("planner", ("start", "stop", "plan")),
)
_OWN = ("/parameter_events", "/rosout")
#: All enclaves of one arm: the nodes, who looks on, and who gives orders.
ENCLAVES: dict[str, AccessPolicy] = {
    **NODES,
    # Everything, and not a word.
    "recorder": AccessPolicy(("/diagnostics", *_OWN), (*_SAID, *_ASKED), _of("recorder", _PARAMETERS)),
    # `safe-sysid view --read-only`
    "watcher": AccessPolicy(_OWN, (*_SAID, *_ASKED)),
    # `safe-sysid view`: its buttons; no parameters, no transitions, no topics.
    "viewer": AccessPolicy(_OWN, (*_SAID, *_ASKED), request=_BUTTONS),
    # A person with the ros2 command line, and `safe-sysid demo`.
    "operator": AccessPolicy(
        (*_OWN, *_ASKED),
        (*_SAID, *_ASKED),
        request=tuple(service for access in NODES.values() for service in access.serve),
    ),
}


def full_name(name: str, namespace: str = "") -> str:
    """Absolute name. ``name``: as in the table; ``namespace``: of the arm, without slashes around it; "" for none."""
    if name.startswith("/"):
        return name
    return f"/{namespace}/{name}" if namespace else f"/{name}"


def _group(tag: str, item: str, what: str, names: Sequence[str], namespace: str) -> list[str]:
    if not names:
        return []
    full = sorted(full_name(name, namespace) for name in names)
    lines = [f'          <{tag} {what}="ALLOW">']
    lines += [f"            <{item}>{escape(name)}</{item}>" for name in full]
    return [*lines, f"          </{tag}>"]


def policy_text(namespaces: Sequence[str] = ("",)) -> str:
    """The policy file. ``namespaces``: one per arm, without slashes around it; "": none."""
    lines = [
        '<?xml version="1.0" encoding="UTF-8"?>',
        "<!-- Made by python -m safe_sysid.nodes.common.access_policy, from the table there; do not edit. -->",
        '<policy version="0.2.0">',
        "  <enclaves>",
    ]
    for namespace in namespaces:
        for name, access in ENCLAVES.items():
            lines += [
                f'    <enclave path="{escape(full_name(name, namespace))}">',
                "      <profiles>",
                f'        <profile ns="/{escape(namespace)}" node="{name}">',
                *_group("services", "service", "reply", access.serve, namespace),
                *_group("services", "service", "request", access.request, namespace),
                *_group("topics", "topic", "publish", access.publish, namespace),
                *_group("topics", "topic", "subscribe", access.subscribe, namespace),
                "        </profile>",
                "      </profiles>",
                "    </enclave>",
            ]
    return "\n".join([*lines, "  </enclaves>", "</policy>", ""])


def main(args: Sequence[str] | None = None) -> int:
    """Print the policy file."""
    parser = argparse.ArgumentParser(
        prog="python -m safe_sysid.nodes.common.access_policy", description="Print the SROS2 policy."
    )
    parser.add_argument("--namespace", action="append", help="of an arm; may be given again (default: none)")
    namespaces = [name.strip("/") for name in parser.parse_args(args).namespace or [""]]
    for name in namespaces:
        if not re.fullmatch(r"(?:[A-Za-z_]\w*(?:/[A-Za-z_]\w*)*)?", name, re.ASCII):
            parser.error(f"--namespace {name!r}: expected names of letters, digits and _ with / between them")
    sys.stdout.write(policy_text(namespaces))
    return 0


if __name__ == "__main__":
    sys.exit(main())
