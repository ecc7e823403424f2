"""Random serial arms as URDF and YAML files, for tests of everything that loads them."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from numpy.typing import NDArray
from scipy.spatial.transform import Rotation

TUTORIAL = Path(__file__).resolve().parent.parent / "docs" / "start" / "tutorial.md"
#: Robots of the registry package example-robot-data; None where it is not installed.
EXAMPLE_ROBOTS = next(
    (p for q in sys.path if (p := Path(q, "cmeel.prefix/share/example-robot-data/robots")).is_dir()), None
)
needs_example_robots = pytest.mark.skipif(EXAMPLE_ROBOTS is None, reason="needs the package example-robot-data")
PRIMITIVES = ("sphere", "cylinder", "box")


def numbers(values: NDArray[np.float64]) -> str:
    return " ".join(repr(float(value)) for value in np.atleast_1d(values))


def random_inertial(rng: np.random.Generator) -> str:
    """Inertial element of a random cloud of points: physically consistent, nothing zero."""
    points = rng.normal(0.0, 0.05, (6, 3))
    weights = rng.uniform(0.1, 0.6, 6)
    mass = weights.sum()
    com = weights @ points / mass
    r = points - com
    inertia = np.einsum("p,pij->ij", weights, np.einsum("pk,pk,ij->pij", r, r, np.eye(3)) - r[:, :, None] * r[:, None])
    rpy = rng.uniform(-3, 3, 3)
    # URDF gives the inertia in axes turned by rpy.
    turned = Rotation.from_euler("xyz", rpy).as_matrix().T @ inertia @ Rotation.from_euler("xyz", rpy).as_matrix()
    entries = {"ixx": turned[0, 0], "ixy": turned[0, 1], "ixz": turned[0, 2]}
    entries |= {"iyy": turned[1, 1], "iyz": turned[1, 2], "izz": turned[2, 2]}
    attributes = " ".join(f'{key}="{value!r}"' for key, value in ((k, float(v)) for k, v in entries.items()))
    return (
        f'<inertial><origin xyz="{numbers(com)}" rpy="{numbers(rpy)}"/><mass value="{float(mass)!r}"/>'
        f"<inertia {attributes}/></inertial>"
    )


def random_collision(rng: np.random.Generator) -> str:
    a, b, c = (repr(float(value)) for value in rng.uniform(0.01, 0.2, 3))
    shape = {
        "sphere": f'<sphere radius="{a}"/>',
        "cylinder": f'<cylinder radius="{a}" length="{b}"/>',
        "box": f'<box size="{a} {b} {c}"/>',
    }[str(rng.choice(PRIMITIVES))]
    return f"<collision>{random_origin(rng)}<geometry>{shape}</geometry></collision>"


def random_origin(rng: np.random.Generator) -> str:
    return f'<origin xyz="{numbers(rng.uniform(-0.3, 0.3, 3))}" rpy="{numbers(rng.uniform(-3.1, 3.1, 3))}"/>'


def random_arm(rng: np.random.Generator, n: int) -> tuple[str, dict[str, Any]]:
    """URDF text and settings of an arm with n joints: any axes and frames, links fixed in between and on the side."""
    links, joints = [], []
    count = 0

    def add_link() -> str:
        nonlocal count
        name, count = f"link_{count}", count + 1
        collisions = "".join(random_collision(rng) for _ in range(rng.integers(1, 3)))
        links.append(f'<link name="{name}">{random_inertial(rng)}{collisions}</link>')
        return name

    def fix(parent: str) -> str:
        child = add_link()
        joints.append(
            f'<joint name="fixed_{child}" type="fixed"><parent link="{parent}"/><child link="{child}"/>'
            f"{random_origin(rng)}</joint>"
        )
        return child

    tip = add_link()
    settings: dict[str, dict[str, Any]] = {}
    for j in range(n):
        if rng.random() < 0.4:
            tip = fix(tip)  # in between: the next joint hangs on it
        if rng.random() < 0.3:
            fix(tip)  # on the side
        child = add_link()
        continuous = rng.random() < 0.4
        axis = rng.normal(size=3) if rng.random() < 0.7 else rng.choice([-1.0, 1.0]) * np.eye(3)[rng.integers(3)]
        limits = "" if continuous else ' lower="-2.5" upper="2.0"'
        joints.append(
            f'<joint name="turn {j}" type="{"continuous" if continuous else "revolute"}">'
            f'<parent link="{tip}"/><child link="{child}"/>{random_origin(rng)}<axis xyz="{numbers(axis)}"/>'
            f'<limit{limits} effort="40" velocity="2"/></joint>'
        )
        friction = rng.uniform(0.1, 3.0, 3)
        settings[f"turn {j}"] = {
            "coulomb": float(friction[0]),
            "viscous": float(friction[1]),
            "rotor_inertia": float(friction[2]),
            "offset": float(rng.normal()),
        }
        tip = child
    tool = fix(tip)
    order = rng.permutation(len(links) + len(joints))  # the order of elements in a URDF means nothing
    elements = [(links + joints)[i] for i in order]
    names = list(settings)
    rng.shuffle(names)  # nor that of keys in YAML
    config = {
        "urdf": "arm.urdf",
        "tool_frame": tool,
        "joints": {name: settings[name] for name in names},
        "friction_transition_velocity": 0.02,
        "uncertainty": {
            "relative": 0.07,
            "floor": {
                "mass": 0.01, "first_moment": 0.002, "inertia": 0.0003,
                "coulomb": 0.05, "viscous": 0.06, "rotor_inertia": 0.07, "offset": 0.08,
            },
        },
        "payload": {
            "prior_lower": [0.5, -0.5, -0.6, -0.7, -0.1, -0.2, -0.3, -0.4, -0.5, -0.6],
            "prior_upper": [4.0, 0.5, 0.6, 0.7, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6],
            "envelope": {"center": [0.0, 0.01, 0.1], "size": [0.1, 0.2, 0.3]},
        },
        "measurement": {
            "torque_source": "motor", "rate_hz": 500, "torque_abs": 0.1, "torque_rel": [0.02] * n,
            "position_error": 0, "velocity_error": 1e-3,
        },
        "actuator": {"torque_abs": 0.01, "torque_rel": 0.0},
        "timing": {"period_s": 0.001, "hold_max_s": 0.002, "delay_max_s": 0.0005},
        "identification": {"acceleration_bound": 10},
        "controller": {"uncertainty": 8.0},
        "home": [0.1] * n,
    }  # fmt: skip
    return '<robot name="random arm">' + "\n".join(elements) + "</robot>", config


def tutorial_urdf() -> str:
    """The arm of docs/start/tutorial.md, three joints."""
    return TUTORIAL.read_text(encoding="utf-8").split("```xml\n")[1].split("```")[0]


def write_arm(folder: Path, urdf: str, config: dict[str, Any]) -> Path:
    """Write both files; returns the path of the YAML file."""
    (folder / "arm.urdf").write_text(urdf, encoding="utf-8")
    path = folder / "arm.yaml"
    path.write_text(yaml.safe_dump(config, sort_keys=False), encoding="utf-8")
    return path
