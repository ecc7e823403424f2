"""Costs of a plan: how much it tells about the payload, and how near it comes to a goal."""

from safe_sysid.planning.costs.base import Cost
from safe_sysid.planning.costs.condition import ConditionCost
from safe_sysid.planning.costs.context import CostContext, CostMemory
from safe_sysid.planning.costs.goal import GoalCost
from safe_sysid.planning.costs.joint_set import InformationCost
from safe_sysid.planning.costs.specification import COST_NAMES, CostSpec, MixedCost, build_cost

__all__ = [
    "COST_NAMES",
    "ConditionCost",
    "Cost",
    "CostContext",
    "CostMemory",
    "CostSpec",
    "GoalCost",
    "InformationCost",
    "MixedCost",
    "build_cost",
]
