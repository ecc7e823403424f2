"""``safe-sysid config check``: what is wrong with a robot's or scene's file, before a robot finds out."""

from __future__ import annotations

import difflib
from collections.abc import Callable

from safe_sysid.control.design import ControllerGains, design_gains
from safe_sysid.demo.options import start_reasons
from safe_sysid.errors import ConfigError
from safe_sysid.robot.loading import load_robot
from safe_sysid.robot.model import RobotModel
from safe_sysid.robot.scene import SECTIONS, Scene, config_path, count_obstacles, load_scene
from safe_sysid.robot.yaml_file import read_yaml

__all__ = ["check_file"]


def check_file(file: str, robot: str, say: Callable[[str], None]) -> list[str]:
    """Check a file; returns what speaks against using it.

    Args:
        file: YAML file, or name of a packaged robot or scene.
        robot: that a scene is checked with.
        say: gets lines about what was found.

    Raises:
        SafeSysIdError: the file cannot be used at all.
    """
    if _is_scene(file):
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
    return _judge(model, scene, say)


def _judge(model: RobotModel, scene: Scene, say: Callable[[str], None]) -> list[str]:
    gains = design_gains(model)
    say("proved tracking error (rad): " + " ".join(f"{bound:.4f}" for bound in gains.e_bound))
    start = scene.start_for(model)
    reasons = [f"start pose: {reason}" for reason in start_reasons(model, scene, gains, start)]
    if not reasons:
        say("start pose: can be held with every payload of the prior, clear of everything")
    return reasons + _judge_goal(model, scene, gains, say)


def _judge_goal(
    model: RobotModel, scene: Scene, gains: ControllerGains, say: Callable[[str], None]
) -> list[str]:
    if scene.goal is None:
        return []
    reasons = start_reasons(model, scene, gains, scene.goal)
    # Tighter bounds lower what holding may need and the tracking theorem's terms; they move no limits, no obstacles.
    heavy = [text for text in reasons if ": holding may need " in text or text.startswith("tracking, ")]
    if len(heavy) < len(reasons):
        return [f"goal pose: {reason}" for reason in reasons if reason not in heavy]
    if heavy:
        say(
            "warning: goal pose: clear of everything, but it cannot be held with every payload of the prior; tighter "
            f"bounds may allow it: {'; '.join(heavy)}"
        )
    else:
        say("goal pose: can be held with every payload of the prior, clear of everything")
    return []


def _is_scene(file: str) -> bool:
    """Scenes have obstacles, if under a misspelt key; a name is looked up among the robots first."""
    try:
        path = config_path(file, "config")
    except ConfigError as error:
        try:
            config_path(file, "config/scenes")
        except ConfigError:
            raise error from None
        return True
    sections = list(SECTIONS.values())
    return any(difflib.get_close_matches(str(key), sections, 1, 0.75) for key in read_yaml(path))
