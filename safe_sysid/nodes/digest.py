"""Same configuration everywhere: a digest of all that proofs rest on, which travels with every box of parameters.

Whoever hears another digest than its own does not work with that box: bounds, plans and gains are proved for one model
and one set of declared errors. The digest says which sections of the robot file differ, too.
"""

from __future__ import annotations

import hashlib
import json

from safe_sysid.identification.certificates.robot_identity import robot_to_json
from safe_sysid.logs.configuration import proof_digest, settings_of
from safe_sysid.robot.model import RobotModel

__all__ = ["LONGEST", "configuration_digest", "difference"]

#: Characters; a longer label is refused unread.
LONGEST = 1000
_WHOLE, _SECTION = 32, 6


def configuration_digest(model: RobotModel, lockstep: bool) -> str:
    """``HEX,section=hex,...``: the first part decides, the rest is for people.

    Args:
        model: the arm, overrides applied.
        lockstep: whether the gains are those of a simulation that waits for every command.
    """
    sections = {**settings_of(model), "URDF": robot_to_json(model)["urdf"], "lockstep": lockstep}
    for name in ("name", "urdf", "home"):
        sections.pop(name, None)
    parts = [f"{name}={_short(value)}" for name, value in sorted(sections.items())]
    return ",".join([proof_digest(model, lockstep)[:_WHOLE], *parts])


def _short(value: object) -> str:
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()[:_SECTION]


def difference(theirs: str, ours: str) -> str:
    """What differs, in words; "" if nothing does that proofs rest on.

    Args:
        theirs: digest that was heard; "" for none.
        ours: of this node.
    """
    if theirs.partition(",")[0] == ours.partition(",")[0]:
        return ""
    if not theirs:
        return "it says nothing of its configuration: expected a digest"
    found, own = _sections(theirs), _sections(ours)
    names = [name for name in {**own, **found} if found.get(name) != own.get(name)]
    return ", ".join(sorted(names)) or "something that is not a setting (another version of this package?)"


def _sections(digest: str) -> dict[str, str]:
    return dict(part.split("=", 1) for part in digest.split(",")[1:] if "=" in part)
