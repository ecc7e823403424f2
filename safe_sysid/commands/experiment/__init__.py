"""``safe-sysid experiment``: the experiments of a paper, simulated, with the paper's tables beside ours."""

from __future__ import annotations

import argparse
from types import ModuleType

from safe_sysid.commands.experiment import constrained, hybrid, lip, psdm, pso
from safe_sysid.commands.shared.arguments import OneLineParser

__all__ = ["DESCRIPTION", "HELP", "configure", "run"]

HELP = "run the experiments of the paper and print its tables beside ours"
DESCRIPTION = "Runs the experiments of a paper in simulation."
#: Papers, in the order of the help text: modules with HELP, DESCRIPTION, configure and run.
_PAPERS: dict[str, ModuleType] = {
    "pso": pso, "constrained": constrained, "psdm": psdm, "hybrid": hybrid, "lip": lip,
}  # fmt: skip


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the papers, and the options of each."""
    papers = parser.add_subparsers(dest="paper", metavar="PAPER", required=True, parser_class=OneLineParser)
    for name, module in _PAPERS.items():
        module.configure(papers.add_parser(name, help=module.HELP, description=module.DESCRIPTION))


def run(options: argparse.Namespace) -> int:
    """Run, or go on with, what a table or figure shows; print and draw it."""
    return int(_PAPERS[options.paper].run(options))
