"""Whether the tracking bound is claimed: its hypotheses on S and H are a certificate's to prove, and none holds an arm.

A plan's certificate proves them along the plan and at the rest after it, for its box. Before the first plan, and once
bounds are reset, an arm is held where nobody has looked: so S is looked at in every step, and H at the pose.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from safe_sysid.control.design import law_offset
from safe_sysid.control.gains import ControllerGains
from safe_sysid.control.law import ControlLaw
from safe_sysid.control.robust import RobustLaw
from safe_sysid.robot.magnitudes import inertia_floor, inertia_share
from safe_sysid.robot.model import RobotModel
from safe_sysid.robot.parameters import ParameterBox

__all__ = ["Claim"]

FloatArray = NDArray[np.float64]


class Claim:
    """What is claimed of a controller's last step.

    Attributes:
        possible: the law is the one that the bound is proved for.
        why_not: the bound is not claimed; "" if it is.
    """

    def __init__(self, model: RobotModel, gains: ControllerGains, law: ControlLaw) -> None:
        """Of the law alone.

        Args:
            model: of the arm.
            gains: of its controller.
            law: in use.
        """
        self._model, self._gains, self._law, self._pose = model, gains, law, ""
        self.possible = isinstance(law, RobustLaw)
        self.why_not = "" if self.possible else f"not for the law {law.name}"

    def hold(self, box: ParameterBox, q: FloatArray) -> None:
        """A pose is held that no certificate is known for; the law has been evaluated there, or will be.

        Args:
            box: that holds the parameters, the largest one from now on.
            q: (n,) held, rad.
        """
        if self.possible:
            self._pose = self.why_not = _why_not_at_pose(self._model, self._gains, box, q)

    def follow(self) -> None:
        """A certified plan begins."""
        self._pose = ""

    def step(self) -> bool:
        """After the law's: whether S is above the assumed."""
        above = ""
        if isinstance(self._law, RobustLaw):
            above = _why_not_now(self._gains, self._law.uncertainty)
            self.why_not = above or self._pose
        return bool(above)


def _why_not_now(gains: ControllerGains, uncertainty: float) -> str:
    """Why the tracking bound is not claimed at a tick, "" if it is: without a certificate S may be anything.

    Args:
        gains: of the controller.
        uncertainty: S of the tick, sqrt(W/s).
    """
    assumed = gains.assumptions.uncertainty
    if uncertainty <= assumed * (1.0 + 1e-9):
        return ""
    return f"S = {uncertainty:.3g} is above the assumed {assumed:.3g}: the box is too large for this pose"


def _why_not_at_pose(model: RobotModel, gains: ControllerGains, box: ParameterBox, q: FloatArray) -> str:
    """Why the tracking bound is not claimed while a pose is held, "" if it is: H is not what was assumed.

    Args:
        model: of the arm.
        gains: of its controller.
        box: that holds the parameters.
        q: (n,) held, rad.
    """
    n, a, reach = model.n, gains.assumptions, gains.e_bound + gains.assumptions.position_error
    # The bounds of the dynamics are those within the travel: the arm must be in it, and the state that the law takes.
    far = gains.e_bound + law_offset(gains)
    for j in np.flatnonzero(model.sliding & ~_within(q - far, q + far, model.kinematics.travel)):
        low, high = model.kinematics.travel[j]
        return (
            f"{model.joint_names[j]} is held at {q[j]:.4f} m and the control law may take a position {far[j]:.4g} m "
            f"away: expected it within the travel [{low:.4f}, {high:.4f}] m that bounds of the dynamics rest on"
        )
    spare = a.inertia_upper - box.upper[12 * n : 13 * n]
    share = np.inf
    if np.all(spare > 0.0):
        share = float(inertia_share(model.kinematics, box, spare, q[None], reach[None])[0])
    if share > 1.0:
        return f"inertia may be {share:.3g} times what is assumed at this pose (controller.inertia_ratio)"
    if np.all(box.lower[12 * n : 13 * n] >= gains.inertia_lower):
        return ""
    floor = float(inertia_floor(model.kinematics, box, gains.inertia_lower, q[None], reach[None])[0])
    if floor >= 1.0:
        return ""
    return f"inertia may be below controller.inertia_lower at this pose ({floor:.3g} of it)"


def _within(lower: FloatArray, upper: FloatArray, travel: FloatArray) -> NDArray[np.bool_]:
    return (lower >= travel[:, 0]) & (upper <= travel[:, 1])
