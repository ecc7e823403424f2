"""Recorder process of ``safe-sysid demo --record``."""

from __future__ import annotations

from typing import Any

from safe_sysid.demo.options import Setup

__all__ = ["RECORDER", "bag_of", "recorder_parameters"]

#: Module of safe_sysid.nodes.
RECORDER = "recorder"


def bag_of(setup: Setup) -> str:
    """Directory of the bag."""
    return str(setup.run_dir / "bag")


def recorder_parameters(setup: Setup) -> dict[str, Any]:
    """ROS parameters of the recorder; it is nicer than all who have a deadline."""
    return {"bag": bag_of(setup), "compression": setup.options.compression, "realtime": {"nice": 2}}
