"""What judges whether a pose may be held, compiled before it is asked."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np

from safe_sysid.control.tube import TrackingTube
from safe_sysid.core.arrays import FloatArray
from safe_sysid.nodes.common.parameters import CommonOptions
from safe_sysid.robot.model import RobotModel
from safe_sysid.robot.scenes.scene import Scene

__all__ = ["start_check_of"]


def start_check_of(
    options: CommonOptions, model: RobotModel, gains: TrackingTube, scene: Scene
) -> Callable[[FloatArray], list[str]] | None:
    """Real time: judges whether a pose is clear, and can be held with every payload of the prior.

    In simulation a pose is held that the planner then refuses to move from (docs/use/controller.md).
    """
    if options.lockstep:
        return None
    from safe_sysid.planning.certification.certificate import start_check  # seldom needed, and takes long to import

    check = partial(start_check, model, model.arm_prior, scene, gains)
    check(np.array(model.settings.home))  # compiled now, not when it is asked
    return check
