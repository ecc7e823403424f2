"""What setup.py asks for, read from setup.py itself, without installing anything."""

from __future__ import annotations

import os
import re
import runpy
from collections.abc import Iterable
from functools import cache
from pathlib import Path
from typing import Any
from unittest import mock

ROOT = Path(__file__).resolve().parent.parent


@cache
def setup_arguments() -> dict[str, Any]:
    """Arguments that setup.py gives to setuptools.setup."""
    directory = os.getcwd()
    with mock.patch("setuptools.setup") as setup:
        try:
            os.chdir(ROOT)
            runpy.run_path(str(ROOT / "setup.py"))
        finally:
            os.chdir(directory)
    return dict(setup.call_args.kwargs)


def requirements(extras: Iterable[str]) -> list[str]:
    """Requirements of the package with these extras, each once."""
    arguments = setup_arguments()
    return list(
        dict.fromkeys(
            [*arguments["install_requires"], *(text for extra in extras for text in arguments["extras_require"][extra])]
        )
    )


def normal(name: str) -> str:
    """The name as the package index compares it."""
    return re.sub(r"[-_.]+", "-", name).lower()


def name_of(requirement: str) -> str:
    """The normal name in a requirement such as `ros-rclpy[fastrtps]==7.1.6`."""
    return normal(re.split(r"[\s\[<>=!~;(]", requirement.strip(), maxsplit=1)[0])
