"""`ros2` commands of the pages: what `ros2cli` 0.32 (Jazzy), which is in no package registry, would take of them."""

from __future__ import annotations

import argparse
import runpy
from collections.abc import Callable
from typing import Any
from unittest import mock

from docs_commands.launch_files import why_not
from docs_commands.pages import ROOT
from docs_commands.values import filled, message_type


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


def executables() -> dict[str, str]:
    """Executable to module, as setup.py declares them."""
    with mock.patch("setuptools.setup"):
        nodes = runpy.run_path(str(ROOT / "setup.py"), run_name="setup_of_the_docs")["NODES"]
    return {name: f"safe_sysid.nodes.{module}" for name, module in nodes.items()}


def refused(words: tuple[str, ...]) -> str:
    """Why the stock tool, or a node of this package, would not take a command; empty: it would."""
    area, *rest = words[1:]
    if area == "launch":
        arguments = dict(word.split(":=", 1) for word in rest[2:] if ":=" in word)
        ours = rest[0] == "safe_sysid" and "--show-args" not in rest
        return why_not(rest[1], arguments) if ours else ""
    if area == "run":
        return "" if rest[1] in executables() else f"no executable {rest[1]}"
    try:
        options = _parser().parse_args(words[1:])
        if getattr(options, "type", None) and area in ("topic", "service"):
            kind = message_type(options.type, "srv" if area == "service" else "msg")
            filled(kind.Request if area == "service" else kind, getattr(options, "values", None))
    except ValueError as error:
        return str(error)
    return ""
