"""Robot of a run: what the logs alone do not say, such as the hand."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from safe_sysid.errors import SafeSysIdError
from safe_sysid.report.run.facts import RunFacts
from safe_sysid.robot.loading import load_robot
from safe_sysid.robot.model import RobotModel
from safe_sysid.robot.overrides import overrides_of

__all__ = ["robot_of_run", "settings_of_run"]


def robot_of_run(facts: RunFacts, named: str | None = None) -> RobotModel | None:
    """Load it with the settings that the run had.

    A file that only the run's directory names is not opened: who wrote the directory may be anyone.

    ``named``: packaged robot or file; None: the packaged one that the run names.
    Returns None if the run names no packaged robot, or its settings do not fit.

    Raises SafeSysIdError: a robot was named, and cannot be loaded.
    """
    name = named or str(facts.parameters.get("robot") or facts.robot)
    if named is None and not name.isidentifier():
        return None
    try:
        return load_robot(name, **overrides_of(settings_of_run(facts)))
    except SafeSysIdError:
        if named is not None:
            raise
        return None


def settings_of_run(facts: RunFacts) -> dict[str, Any]:
    """Settings of the robot that differ from its file's, by dotted path."""
    return dict(_flat(facts.parameters.get("robot_settings")))


def _flat(value: Any, path: str = "") -> list[tuple[str, Any]]:
    if isinstance(value, Mapping):
        return [pair for key, part in value.items() for pair in _flat(part, f"{path}.{key}" if path else str(key))]
    return [(path, value)] if path else []
