"""Context of a cost: the arm, the present bounds, and the information gathered already."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partialmethod

import numpy as np

from safe_sysid.core.arrays import FloatArray
from safe_sysid.core.layout import ParameterLayout
from safe_sysid.errors import PlanError
from safe_sysid.planning.costs.condition import ConditionCost, payload_scale
from safe_sysid.planning.costs.goal import GoalCost
from safe_sysid.planning.costs.joint_set import InformationCost, Kind
from safe_sysid.planning.optimiser.family import TrajectoryFamily
from safe_sysid.robot.model import RobotModel
from safe_sysid.robot.parameters import ParameterBox, frozen_array

__all__ = ["CostContext", "CostMemory"]


@dataclass(frozen=True, eq=False)
class CostMemory:
    """What was learned of one payload so far, in the costs' own terms; decides nothing about safety."""

    information: FloatArray  #: (14 n, 14 n) about all parameters: rows over their allowed errors, squared and summed
    payload: FloatArray  #: (10, 10) the same of theta_e's columns of the plain torque regressor, integrated over time

    def __post_init__(self) -> None:
        """Validate and freeze.

        Raises:
            ParameterError: shapes, or entries that are not finite.
        """
        size = np.shape(self.information)[:1]
        information = frozen_array(self.information, size + size, "information of all parameters")
        object.__setattr__(self, "information", information)
        object.__setattr__(self, "payload", frozen_array(self.payload, (10, 10), "payload information"))

    @classmethod
    def none(cls, n: int) -> CostMemory:
        """Nothing, for n joints."""
        size = ParameterLayout(n).size
        return cls(np.zeros((size, size)), np.zeros((10, 10)))


@dataclass(frozen=True, eq=False)
class CostContext:
    """Everything that costs depend on besides k."""

    model: RobotModel
    family: TrajectoryFamily
    box: ParameterBox  #: what is known now
    prior: ParameterBox  #: what was known before the data in ``memory``
    memory: CostMemory
    horizon: float  #: s, data are taken from [0, horizon]
    samples: int = 128  #: of the horizon, for the condition number
    window: int = 8  #: samples per row of ``condition_momentum``
    goal: FloatArray | None = None  #: (n,) rad, for the cost of that name

    def __post_init__(self) -> None:
        """Validate.

        Raises:
            PlanError: sizes that disagree.
        """
        n = self.model.n
        if self.family.n != n or self.box.n != n or self.prior.n != n:
            raise PlanError(
                f"cost of {n} joints: family has {self.family.n}, box {self.box.n}, prior {self.prior.n}: "
                "expected the same number"
            )
        found, size = self.memory.information.shape, self.model.layout.size
        if found != (size, size):
            raise PlanError(f"cost memory: shape {found}: expected {(size, size)}")

    def condition(self, window: int = 1) -> ConditionCost:
        """The condition number over samples (``window = 1``: PSO's) or over means of so many."""
        return ConditionCost(
            self.model.kinematics,
            self.family,
            payload_scale(self.box),
            self.memory.payload,
            self.horizon,
            self.samples,
            window,
        )

    def condition_momentum(self) -> ConditionCost:
        """The condition number of the rows that the identifier uses: means over windows."""
        return self.condition(self.window)

    def goal_cost(self) -> GoalCost:
        """The distance to the goal.

        Raises:
            PlanError: none is given.
        """
        if self.goal is None:
            raise PlanError("cost 'goal': no goal is given: expected joint positions")
        return GoalCost(self.family, self.goal, self.model.continuous)

    def joint_set(self, kind: Kind) -> InformationCost:
        """The cost of the joint set of a kind."""
        return InformationCost(
            self.model,
            self.family,
            self.box,
            self.prior,
            self.memory.information,
            self.horizon,
            self.model.settings.identification.window_s,
            kind=kind,
        )

    width = partialmethod(joint_set, "width")
    payload_information = partialmethod(joint_set, "information")
    log_determinant = partialmethod(joint_set, "log_determinant")
    smallest_eigenvalue = partialmethod(joint_set, "smallest_eigenvalue")
    arm = partialmethod(joint_set, "arm")
    arm_condition = partialmethod(joint_set, "arm_condition")

    def after(self, k: FloatArray, until: float) -> CostMemory:
        """The memory once trajectory k (n,) has been driven until ``until``, s."""
        driven = replace(self, horizon=until)
        return CostMemory(
            self.memory.information + driven.width().information(k),
            self.memory.payload + driven.condition().information(k),
        )
