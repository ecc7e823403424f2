"""``safe-sysid view``: a running arm in a browser."""

from __future__ import annotations

import argparse
import re

from safe_sysid.commands.shared.arguments import at_least

__all__ = ["DESCRIPTION", "HELP", "configure", "run"]

HELP = "look at a running arm in a browser"
DESCRIPTION = """Shows what an arm's nodes say on their topics: the arm in 3D with what its plan may sweep and what
stands around it, the ten intervals, torques against their limits, and what every node says; with buttons to start, stop
and reset. It publishes nothing. It looks at this machine's nodes in the domain of ROS_DOMAIN_ID, or --domain, and
listens at 127.0.0.1; the address that it prints holds a key, which the browser keeps. It runs until Ctrl-C. Exit
status: 0, or 2 for wrong arguments and a port that is taken."""


def _namespace(text: str) -> str:
    if not re.fullmatch(r"/?([A-Za-z_][A-Za-z0-9_]*(/[A-Za-z_][A-Za-z0-9_]*)*/?)?", text):
        raise argparse.ArgumentTypeError(f"{text!r}: expected a ROS namespace, as arm_1")
    return text.strip("/")


def _host_name(text: str) -> str:
    if not re.fullmatch(r"[A-Za-z0-9.-]{1,253}", text):
        raise argparse.ArgumentTypeError(f"{text!r}: expected the name of a machine, as robot.local")
    return text


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the options."""
    arm = parser.add_argument_group("arm")
    arm.add_argument(
        "--robot", default="kinova_gen3", metavar="NAME|FILE", help="as its nodes have it (default: %(default)s)"
    )
    arm.add_argument(
        "--namespace", type=_namespace, default="", metavar="NAME", help="of its nodes, where there are several arms"
    )
    arm.add_argument("--domain", type=at_least(0, 232), metavar="N", help="ROS domain (default: ROS_DOMAIN_ID, or 0)")
    arm.add_argument(
        "--network",
        action="store_true",
        help="look for nodes on other machines too, as far as this ROS environment does; without it: on this one only",
    )
    page = parser.add_argument_group("page")
    page.add_argument(
        "--port", type=at_least(0, 65535), default=8080, metavar="P", help="0 takes one that is free (default: 8080)"
    )
    page.add_argument(
        "--host",
        default="127.0.0.1",
        metavar="ADDRESS",
        help="to listen at (default: %(default)s, browsers of this machine only; others see what is sent in between)",
    )
    page.add_argument(
        "--allow-host",
        type=_host_name,
        action="append",
        default=[],
        metavar="NAME",
        help="a name by which browsers may call this machine, beside localhost and addresses; may be repeated",
    )
    page.add_argument("--read-only", action="store_true", help="no buttons")
    page.add_argument("--no-browser", action="store_true", help="only print the address, open no browser")


def run(options: argparse.Namespace) -> int:
    """Run it."""
    from safe_sysid.demo.view import ViewOptions, run_view

    return run_view(
        ViewOptions(
            robot=options.robot,
            namespace=options.namespace,
            domain=options.domain,
            network=options.network,
            host=options.host,
            port=options.port,
            names=tuple(options.allow_host),
            read_only=options.read_only,
            browser=not options.no_browser,
        )
    )
