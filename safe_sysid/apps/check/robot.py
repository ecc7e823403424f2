"""Checks of gains, start pose and goal of an arm, as the nodes perform them."""

from __future__ import annotations

from collections.abc import Callable

from safe_sysid.control.checks.start import why_not_rate
from safe_sysid.control.tube import MeasuredTube, TrackingTube, tracking_tube, tubes_of
from safe_sysid.core.arrays import FloatArray
from safe_sysid.decimals import at_most
from safe_sysid.robot.model import RobotModel
from safe_sysid.robot.scenes.scene import Scene

__all__ = ["judge", "start_reasons", "why_never", "why_no_plans"]


def judge(model: RobotModel, scene: Scene, say: Callable[[str], None]) -> list[str]:
    """What speaks against letting an arm start in a scene. Raises SafeSysIdError: there are no gains for it."""
    settings = model.settings
    if settings.drives == "unknown" and not settings.follows_trajectories:  # a measured tube asks for no gains
        say(
            "identify only: nothing is known of the drives, so there are no gains, and no pose was judged; logs, tare, "
            "verify, reports and replay work (the file says what a tracking bound would need)"
        )
        return []
    if unknown := [model.joint_names[j] for j in model.unknowns.motors.joint]:
        say(
            f"warning: {', '.join(unknown)}: with gear_ratio_range identification, tare and verify work; control and "
            "planning need gear_ratio, so the start pose was not judged"
        )
        return [reason] if (reason := why_not_rate(model)) else []
    gains = tracking_tube(model)
    units = [f" {unit}" if model.sliding.any() else "" for unit in model.position_units]
    bounds = (f"{at_most(bound, places=4)}{unit}" for bound, unit in zip(gains.e_bound, units, strict=True))
    where = "" if model.sliding.any() else " (rad)"
    kind = "measured" if isinstance(gains, MeasuredTube) else "proved"
    say(f"{kind} tracking error{where}: " + " ".join(bounds))
    narrowest = tubes_of(model, gains)[-1]
    if narrowest is not gains:
        bounds = (f"{at_most(bound, places=4)}{unit}" for bound, unit in zip(narrowest.e_bound, units, strict=True))
        say("down to, where the payload is known well: " + " ".join(bounds))
    if told := why_no_plans(model):
        say(f"warning: {told}; the start pose was not judged")
        return [reason] if (reason := why_not_rate(model)) else []
    start = scene.start_for(model)
    reasons = [f"start pose: {reason}" for reason in start_reasons(model, scene, gains, start)]
    if not reasons:
        say("start pose: can be held with every payload of the prior, clear of everything")
    return reasons + _judge_goal(model, scene, gains, say)


def _judge_goal(model: RobotModel, scene: Scene, gains: TrackingTube, say: Callable[[str], None]) -> list[str]:
    if scene.goal is None:
        return []
    if never := why_never(model, scene, gains, scene.goal):
        return [f"goal pose: {reason}" for reason in never]
    reasons = start_reasons(model, scene, gains, scene.goal)
    if reasons:
        say(
            "warning: goal pose: it cannot be held with every payload of the prior; tighter bounds may allow it: "
            f"{'; '.join(reasons)}"
        )
    else:
        say("goal pose: can be held with every payload of the prior, clear of everything")
    return []


def why_no_plans(model: RobotModel) -> str:
    """In one sentence what works with an arm that has sliding joints, and what does not; "" if it has none."""
    names = [name for name, slides in zip(model.joint_names, model.sliding, strict=True) if slides]
    if not names:
        return ""
    return (
        f"{', '.join(names)} {'slides' if len(names) == 1 else 'slide'}: identification, tare, verify and control work "
        "for prismatic joints; planning, and with it the demo, does not yet"
    )


def why_never(model: RobotModel, scene: Scene, gains: TrackingTube, q: FloatArray) -> list[str]:
    """Why the arm may not rest at q (n,), however well its payload is known.

    Tighter bounds lower what holding may need and the tracking theorem's terms, and make the tube narrower; they move
    no limits, no obstacles.
    """
    least = start_reasons(model, scene, tubes_of(model, gains)[-1], q)
    return [text for text in least if not (": holding may need " in text or text.startswith("tracking, "))]


def start_reasons(model: RobotModel, scene: Scene, gains: TrackingTube, start: FloatArray) -> list[str]:
    """Why the arm may not take over and hold its start pose with any payload of the prior; empty if it may.

    ``start``: (n,) joint angles, rad (m where a joint slides).
    """
    from safe_sysid.planning.certification.certificate import start_check

    reasons = start_check(model, model.arm_prior, scene, gains, start)
    return [*([reason] if (reason := why_not_rate(model)) else []), *reasons]
