"""``safe-sysid learn``: inverse dynamics from logs. What can be learned is a module and a line here."""

from __future__ import annotations

import argparse
from types import ModuleType

from safe_sysid.commands.learn import hybrid, lip
from safe_sysid.commands.shared.arguments import OneLineParser

__all__ = ["DESCRIPTION", "HELP", "configure", "run"]

HELP = "inverse dynamics learned from logs of an arm"
DESCRIPTION = """Learns an arm's torques from logs of its motions. No bound, certificate or verdict rests on what was
learned; a controller may add it as a feed-forward within a declared bound (docs/use/learning.md)."""
#: What can be learned, in the order of the help text: modules with HELP, DESCRIPTION, configure and run.
_KINDS: dict[str, ModuleType] = {"lip": lip, "hybrid": hybrid}


def configure(parser: argparse.ArgumentParser) -> None:
    """Add what can be learned, and the options of each."""
    kinds = parser.add_subparsers(dest="what", metavar="WHAT", required=True, parser_class=OneLineParser)
    for name, module in _KINDS.items():
        kind = kinds.add_parser(
            name, help=module.HELP, description=module.DESCRIPTION, formatter_class=argparse.RawDescriptionHelpFormatter
        )
        module.configure(kind)


def run(options: argparse.Namespace) -> int:
    """Learn."""
    return int(_KINDS[options.what].run(options))
