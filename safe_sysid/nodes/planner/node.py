"""Executable ``planner_node``: starts the solver process first, so that both processes import at the same time."""

from __future__ import annotations

import sys

from safe_sysid.planning.solver_process.process import PlannerProcess

__all__ = ["main"]


def main(args: list[str] | None = None) -> int:
    """Entry point of the executable ``planner_node``."""
    process = PlannerProcess(preload=("safe_sysid.planning.solver_process.jobs",))
    from safe_sysid.nodes.common.process import run_node
    from safe_sysid.nodes.planner.planner_node import PlannerNode

    def planner_node() -> PlannerNode:
        return PlannerNode(process)

    return run_node(planner_node, args)


if __name__ == "__main__":
    sys.exit(main())
