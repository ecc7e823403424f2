"""Pairs of links that a user, or an SRDF, says need not be checked against each other."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from safe_sysid.errors import ConfigError
from safe_sysid.robot.files.xml_file import read_xml
from safe_sysid.robot.model import RobotModel

__all__ = ["stated_pairs"]


def stated_pairs(model: RobotModel, links: Sequence[tuple[str, str]], srdf: Path | None) -> tuple[tuple[str, str], ...]:
    """Pairs of bodies of these links, those left out that are never checked.

    ``srdf``: file whose ``disable_collisions`` count too; links that are not the arm's are passed over.

    Raises:
        ConfigError: a link without body.
        ModelError: the SRDF cannot be read.
    """
    bodies: dict[str, list[str]] = {}
    for body in model.bodies:
        for key in dict.fromkeys((body.name, body.link)):
            bodies.setdefault(key, []).append(body.name)
    for pair in links:
        for name in pair:
            if name not in bodies:
                raise ConfigError("--allow-pair", "link", name, f"one of {', '.join(filter(None, bodies))}")
    every = list(links)
    if srdf is not None:
        for found in read_xml(srdf, "an SRDF file").iter("disable_collisions"):
            every.append((found.get("link1", ""), found.get("link2", "")))
    checked = {
        frozenset((a, b))
        for first, second in every
        for a in bodies.get(first, ())
        for b in bodies.get(second, ())
        if a != b
    }
    return tuple(sorted(tuple(sorted(pair)) for pair in checked - model.allowed_pairs))  # type: ignore[misc]
