"""The packaged arm with three joints, with more links fixed to its own."""

from __future__ import annotations

import re
from pathlib import Path

import yaml

from safe_sysid.resources import resource_path
from safe_sysid.robot.files.yaml_file import read_yaml


def three_joint_with(folder: Path, elements: str, torque: float | None = None, **settings: object) -> Path:
    """Write URDF and YAML file; returns the path of the latter.

    Args:
        folder: where to.
        elements: links and joints to add to the URDF.
        torque: limit of every joint, N m; None: the URDF's.
        settings: that replace the YAML file's.
    """
    urdf = resource_path("urdf/three_joint.urdf").read_text(encoding="utf-8")
    if torque is not None:
        urdf = re.sub(r'effort="[^"]*"', f'effort="{torque!r}"', urdf)
    (folder / "arm.urdf").write_text(urdf.replace("</robot>", f"{elements}</robot>"), encoding="utf-8")
    config = read_yaml(resource_path("config/three_joint.yaml")) | {"name": "arm", "urdf": "arm.urdf"}
    path = folder / "arm.yaml"
    path.write_text(yaml.safe_dump(config | settings, sort_keys=False), encoding="utf-8")
    return path
