"""Arms with prismatic joints as URDF and YAML files: settings of the packaged robot, another chain."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import yaml
from urdf_factory import numbers, random_inertial, random_origin

from safe_sysid.resources import resource_path
from safe_sysid.robot.files.yaml_file import read_yaml

#: Position limits of prismatic joints, m, and of turning ones, rad.
SLIDE, TURN = (-0.15, 0.35), (-2.0, 2.0)


def write_sliding_arm(folder: Path, kinds: str, rng: np.random.Generator, **settings: object) -> Path:
    """An arm of prismatic (p), revolute (r) and continuous (c) joints; returns the path of its YAML file.

    Rotors, friction, payload prior and control are the packaged robot's: gains exist.
    """
    links, joints, entries = ['<link name="base"/>'], [], {}
    for j, kind in enumerate(kinds):
        name = {"p": "prismatic", "r": "revolute", "c": "continuous"}[kind]
        low, high = SLIDE if kind == "p" else TURN
        ball = f'<collision>{random_origin(rng)}<geometry><sphere radius="0.02"/></geometry></collision>'
        links.append(f'<link name="link {j}">{random_inertial(rng)}{ball}</link>')
        parent = f"link {j - 1}" if j else "base"
        axis = rng.normal(size=3)
        joints.append(
            f'<joint name="joint {j}" type="{name}"><parent link="{parent}"/><child link="link {j}"/>'
            f'{random_origin(rng)}<axis xyz="{numbers(axis)}"/>'
            f'<limit lower="{low}" upper="{high}" effort="150" velocity="1.5"/></joint>'
        )
        entries[f"joint {j}"] = {"rotor_inertia": 9.0, "viscous": 8.0, "coulomb": 0.5, "offset": 0.0}
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "arm.urdf").write_text(f'<robot name="sliding">{"".join(links + joints)}</robot>', encoding="utf-8")
    config = read_yaml(resource_path("config/kinova_gen3.yaml"))
    n = len(kinds)
    config |= {
        "name": "sliding", "urdf": "arm.urdf", "base_link": "base", "tool_frame": f"link {n - 1}", "joints": entries,
        "home": [0.1] * n,
    }  # fmt: skip
    config["controller"] |= {"inertia_ratio": 2.4, "uncertainty": 16.0}
    config["payload"] |= {"prior_lower": [1.0, *[-0.6] * 3, *[-0.3] * 6], "prior_upper": [7.0, *[0.6] * 3, *[0.3] * 6]}
    config["identification"]["acceleration_bound"] = 40.0
    config |= settings
    path = folder / "arm.yaml"
    path.write_text(yaml.safe_dump(config, sort_keys=False), encoding="utf-8")
    return path
