"""The ``verify`` command line for a directory, with all options that are not the default."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

__all__ = ["plans_command"]


def plans_command(directory: Path, robot: str, scene: str, settings: Mapping[str, Any], *, lockstep: bool) -> str:
    """How to certify the plans of a directory again.

    Args:
        robot: name or file; a packaged one need not be named if no setting differs.
        scene: name or file: what stands around the arm is never the plans' own word.
        settings: of the robot that differ from its file's, by key.
        lockstep: they were planned for a plant that waits for every command.
    """
    words = ["safe-sysid", "verify", str(directory)]
    if not robot.isidentifier():
        words += ["--robot", robot]
    words += ["--scene", scene]
    for key, value in settings.items():
        # `verify` reads YAML, to which 1e-05 is a text.
        text = yaml.safe_dump([value], default_flow_style=True, width=float("inf")).strip()[1:-1]
        words += ["--set", f"{key}={text}"]
    return shlex.join([*words, *(["--lockstep"] if lockstep else [])])
