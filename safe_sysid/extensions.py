"""Extension points: what can be chosen by name, and its module. A new one is a file and a line here (extending.md).

Places are ``module:attribute`` and imported when they are chosen: settings take the names from here, and know no code.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache, reduce
from importlib import import_module
from typing import Any, Final

from safe_sysid.errors import ParameterError

__all__ = ["COSTS", "DYNAMICS", "ENGINES", "FEED_FORWARDS", "LAWS", "RESIDUAL_MODELS", "chosen", "loaded"]

#: ``controller.law``: made from the arm and its section of ``controller.laws``, or, without a section, the gains.
LAWS: Final[dict[str, str]] = {
    "robust": "safe_sysid.control.laws.robust:make_robust_law",
    "armour": "safe_sysid.control.laws.armour:ArmourLaw",
    "passivity_adaptive": "safe_sysid.control.laws.passivity_adaptive:PassivityAdaptiveLaw",
    "adaptive_robust": "safe_sysid.control.laws.adaptive_robust:AdaptiveRobustLaw",
    "gravity_pid": "safe_sysid.control.laws.gravity_pid:GravityPidLaw",
    "computed_torque": "safe_sysid.control.laws.inverse_dynamics:ComputedTorqueLaw",
    "impedance": "safe_sysid.control.laws.inverse_dynamics:ImpedanceLaw",
}
#: ``controller.feed_forward.name``: made from the arm.
FEED_FORWARDS: Final[dict[str, str]] = {"residual": "safe_sysid.control.feed_forward.by_name:ResidualFeedForward"}
#: ``controller.feed_forward.residual``: made from the arm and the path of its file.
RESIDUAL_MODELS: Final[dict[str, str]] = {
    "ripple": "safe_sysid.learning.ripple:TorqueRipple.read",
    "lip": "safe_sysid.learning.lip:LipResidual.read",
    "hybrid": "safe_sysid.learning.neural.stepping:HybridResidual.read",
}
#: Terms of a planning cost (``--cost``, the planner's ``cost``): made from a :class:`.CostContext`.
COSTS: Final[dict[str, str]] = {
    "condition": "safe_sysid.planning.costs:CostContext.condition",
    "condition_momentum": "safe_sysid.planning.costs:CostContext.condition_momentum",
    "goal": "safe_sysid.planning.costs:CostContext.goal_cost",
    "width": "safe_sysid.planning.costs:CostContext.width",
    "information": "safe_sysid.planning.costs:CostContext.payload_information",
    "log_determinant": "safe_sysid.planning.costs:CostContext.log_determinant",
    "smallest_eigenvalue": "safe_sysid.planning.costs:CostContext.smallest_eigenvalue",
    "arm": "safe_sysid.planning.costs:CostContext.arm",
    "arm_condition": "safe_sysid.planning.costs:CostContext.arm_condition",
}
#: Backends of :func:`safe_sysid.dynamics.dynamics_of`: made from the arm's kinematics.
DYNAMICS: Final[dict[str, str]] = {
    "recursion": "safe_sysid.dynamics.recursion:RecursiveDynamics",
    "pinocchio": "safe_sysid.dynamics.pinocchio_backend:PinocchioDynamics",
    "generated": "safe_sysid.dynamics.generated.backend:GeneratedDynamics",
}
#: Physics engines of the simulated arm (``--engine``, the plant's ``engine``).
ENGINES: Final[dict[str, str]] = {
    "mujoco": "safe_sysid.simulation.engines.mujoco:MujocoEngine",
    "dart": "safe_sysid.simulation.engines.dart:DartEngine",
}


def chosen(table: Mapping[str, str], name: str | None, key: str) -> Any:
    """What makes the one of a name.

    Raises:
        ParameterError: no such name.
    """
    if name is None or name not in table:
        raise ParameterError(f"{key} = {name!r}: expected one of {', '.join(table)}")
    return loaded(table[name])


@cache
def loaded(place: str) -> Any:
    """What stands at a place. ``place``: ``module:attribute``, of a line of a table."""
    module, _, attribute = place.partition(":")
    return reduce(getattr, attribute.split("."), import_module(module))
