"""Configuration digest: identifies everything that proofs rest on. Boxes and plans carry it, so mismatches are found.

A node refuses a box or a plan with another digest than its own: bounds, plans and gains are proved for one model and
one set of declared errors. The digest also tells which sections of the robot file differ. Controller and planner
publish the scene that they were configured with, too; the planner sends both with every plan.
"""

from __future__ import annotations

from safe_sysid import __version__
from safe_sysid.logs.online.configuration import proof_digest
from safe_sysid.robot.identity import digest, identity, scene_identity
from safe_sysid.robot.model import RobotModel
from safe_sysid.robot.scenes.scene import Scene

__all__ = ["configuration_digest", "difference", "plan_digest"]

_WHOLE, _SCENE, _SECTION = 32, 16, 6


def configuration_digest(model: RobotModel, lockstep: bool, scene: Scene | None = None) -> str:
    """``HEX,scene=hex,section=hex,...``: the first part and the scene decide, the rest is for people.

    Args:
        lockstep: whether the gains are those of a simulation that waits for every command.
        scene: that the node was configured with; None for a node whose proofs rest on none.
    """
    content = identity(model, "run")
    declared = content.pop("declared")
    sections = {**content, **declared, "lockstep": lockstep, "version": __version__}
    sections["URDF"] = sections.pop("urdf")
    parts = [f"{name}={digest(value)[:_SECTION]}" for name, value in sorted(sections.items())]
    around = [] if scene is None else [f"scene={digest(scene_identity(scene))[:_SCENE]}"]
    return ",".join([proof_digest(model, lockstep)[:_WHOLE], *around, *parts])


def plan_digest(whole: str) -> str:
    """The decisive part of a planner's digest, short enough for the header of every plan."""
    first, _, rest = whole.partition(",")
    return f"{first},scene={_sections(',' + rest)['scene']}"


def difference(theirs: str, ours: str) -> str:
    """Describe differences on which proofs rest; "" if there are none.

    ``theirs``: digest that was heard; "" for none.
    """
    if not theirs:
        return "it says nothing of its configuration: expected a digest"
    found, own = _sections(theirs), _sections(ours)
    scenes = found.pop("scene", None), own.pop("scene", None)
    around = ["scene"] if None not in scenes and scenes[0] != scenes[1] else []
    if theirs.partition(",")[0] == ours.partition(",")[0]:
        return "".join(around)
    if not found:
        return "robot, settings, mode or version: compare ~/configuration of both nodes"
    names = around + [name for name in {**own, **found} if found.get(name) != own.get(name)]
    return ", ".join(sorted(names)) or "something that is not a setting (another version of this package?)"


def _sections(whole: str) -> dict[str, str]:
    return dict(part.split("=", 1) for part in whole.split(",")[1:] if "=" in part)
