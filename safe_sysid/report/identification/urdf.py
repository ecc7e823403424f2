"""The payload alone as a URDF fragment: a link with an inertial, fixed to the tool frame."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from safe_sysid.decimals import bracketed
from safe_sysid.report.identification.result import PayloadAlone
from safe_sysid.robot.parameters import com_and_inertia
from safe_sysid.whole_files import write_text

__all__ = ["payload_urdf", "write_urdf"]


def payload_urdf(payload: PayloadAlone, robot: str, guaranteed: bool) -> str:
    """A ``<robot>`` with one link that holds the payload's nominal inertial, and its intervals as a comment.

    ``payload``: in the tool frame; ``guaranteed``: whether the intervals are proved.
    """
    rows = [
        f"     {name:>3} in {bracketed(low, high, 4)} {unit}"
        for name, unit, low, high in zip(payload.names, payload.units, payload.lower, payload.upper, strict=True)
    ]
    word = "guaranteed" if guaranteed else "estimated, NOT guaranteed"
    head = [
        "<?xml version='1.0'?>",
        f"<!-- Payload of {_comment(robot)}, alone, in frame {_comment(payload.frame)}; nominal values.",
        f"     {word} intervals (inertia about the frame's origin, not about the centre of mass):",
        *rows,
        "-->",
        '<robot name="payload">',
    ]
    theta = np.array(payload.nominal)
    if not (payload.possible and theta[0] > 1e-9):
        why = "nominal mass is zero" if payload.possible else "no possible body found inside these intervals"
        return "\n".join([*head, '  <link name="payload"/>', f"  <!-- {why} -->", "</robot>", ""])
    mass, centre, inertia = com_and_inertia(theta)
    xyz = " ".join(repr(float(x)) for x in centre)
    entries = " ".join(
        f'{name}="{float(inertia[i, j])!r}"'
        for name, i, j in (("ixx", 0, 0), ("ixy", 0, 1), ("ixz", 0, 2), ("iyy", 1, 1), ("iyz", 1, 2), ("izz", 2, 2))
    )
    body = [
        '  <link name="payload">',
        "    <inertial>",
        f'      <origin xyz="{xyz}" rpy="0 0 0"/>',
        f'      <mass value="{mass!r}"/>',
        f"      <inertia {entries}/>",
        "    </inertial>",
        "  </link>",
        "</robot>",
        "",
    ]
    return "\n".join([*head, *body])


def _comment(text: str) -> str:
    """Text that cannot end an XML comment."""
    return text.replace("--", "- -").replace(">", " ")


def write_urdf(path: str | Path, payload: PayloadAlone, robot: str, guaranteed: bool) -> None:
    """Write the fragment, whole or not at all.

    ``payload``: in the tool frame; ``guaranteed``: whether the intervals are proved.
    """
    write_text(path, payload_urdf(payload, robot, guaranteed))
