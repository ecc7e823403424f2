"""``safe-sysid config check``: finds errors in a file of settings before a robot does."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from safe_sysid.apps.check.parameters import check_parameters, is_parameter_file
from safe_sysid.apps.check.robot import judge
from safe_sysid.errors import ConfigError
from safe_sysid.robot.files.yaml_file import read_yaml
from safe_sysid.robot.loading import load_robot
from safe_sysid.robot.scenes.scene import SECTIONS, Scene, config_path, count_obstacles, load_scene
from safe_sysid.robot.shapes.pairs import unchecked
from safe_sysid.robot.suspicious import suspicions

__all__ = ["check_file"]


def check_file(file: str, robot: str, say: Callable[[str], None]) -> list[str]:
    """Check a file; returns what speaks against using it.

    ``file``: YAML file of a robot, a scene or node parameters, or name of a packaged robot or scene.

    Raises SafeSysIdError: the file cannot be used at all.
    """
    path, is_scene = _find(file)
    data = read_yaml(path)
    if is_parameter_file(data):
        return check_parameters(data, say)
    if is_scene or _looks_like_scene(data):
        scene, model = load_scene(file), load_robot(robot)
        scene.check(model)
        say(f"scene {scene.name}: {count_obstacles(scene)}, {len(scene.allowed_pairs)} allowed pairs")
    else:
        model, scene = load_robot(file), Scene("nothing around")
        joints = ", ".join(
            f"{name}{' (continuous)' if turns else ''}"
            for name, turns in zip(model.joint_names, model.continuous, strict=True)
        )
        say(f"robot {model.name}: {model.n} joints ({joints}), {len(model.bodies)} bodies")
        for line in unchecked(model):
            say(f"assumed: {line}")
        for doubt in suspicions(model, path):
            say(f"warning: {doubt}")
    return judge(model, scene, say)


def _find(file: str) -> tuple[Path, bool]:
    """The file, and whether it is one of the packaged scenes; a name is looked up among the robots first."""
    try:
        return config_path(file, "config"), False
    except ConfigError as error:
        try:
            return config_path(file, "config/scenes"), True
        except ConfigError:
            raise error from None


def _looks_like_scene(data: Mapping[str, Any]) -> bool:
    """Scenes have obstacles, if under a misspelt key."""
    sections = list(SECTIONS.values())
    return any(difflib.get_close_matches(str(key), sections, 1, 0.75) for key in data)
