"""Quick margins of poses and motions, for proposals: distances by balls, efforts at the desired motion. No proof."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from safe_sysid.control.tube import TrackingTube, torque_reserve
from safe_sysid.core.arrays import FloatArray
from safe_sysid.dynamics import dynamics_of
from safe_sysid.dynamics.magnitudes import rotor_ceiling
from safe_sysid.planning.distances.proximity import Proximity
from safe_sysid.planning.optimiser.effort import inertia_share_kernel
from safe_sysid.robot.frames import forward_kinematics
from safe_sysid.robot.model import RobotModel
from safe_sysid.robot.parameters import ParameterBox

__all__ = ["PoseMargins"]

_FAR = 1e3  # m, where there is nothing to hit


@dataclass(frozen=True, eq=False)
class PoseMargins:
    """Margins of many states at once. ``proximity``: its geometry and the scene's."""

    model: RobotModel
    proximity: Proximity
    gains: TrackingTube
    box: ParameterBox
    _reserve: FloatArray = field(init=False, repr=False)
    _spare: FloatArray = field(init=False, repr=False)

    def __post_init__(self) -> None:
        g = self.gains
        rotor = rotor_ceiling(self.model.kinematics, self.box)
        # What the tracking error may cost, as if joints did not couple.
        object.__setattr__(self, "_reserve", torque_reserve(self.model, g, self.box))
        object.__setattr__(self, "_spare", np.maximum(g.assumptions.inertia_upper - rotor, 1e-9))

    def clearance(self, q: FloatArray) -> FloatArray:
        """Distances (N, 2) to obstacles and of the arm to itself at angles (N, n), tracking error taken off, m."""
        near = self.proximity.distances(*forward_kinematics(self.model.kinematics, q), self.gains.e_bound)
        return np.column_stack([values.min(axis=1, initial=_FAR) for values in (near.clearance, near.self_clearance)])

    def position(self, q: FloatArray) -> FloatArray:
        """Room (N,) to the nearest joint limit, tracking error taken off, rad."""
        limits = self.model.limits
        room = np.minimum(q - limits.position_lower, limits.position_upper - q) - self.gains.e_bound
        return np.asarray(room.min(axis=1))

    def effort(self, q: FloatArray, qd: FloatArray, qdd: FloatArray) -> FloatArray:
        """Room (N, 3) over the whole box, as shares: of the torque limits, and of S and inertia of the tracking proof.

        At the desired motion; the tracking error's part of the torque is guessed, its part of S left out.
        """
        model, assume = self.model, self.gains.assumptions
        w = dynamics_of(model.kinematics).torque_regressor(q, qd, qdd, model.friction_transition_velocity)
        spread = np.abs(w) @ self.box.rad
        effort = np.abs(w @ self.box.mid) + spread + self._reserve + assume.feed_forward
        room = 1.0 - (effort * (1.0 + assume.actuator_rel) + assume.actuator_abs) / model.limits.torque
        measure = np.sqrt(np.square(spread) @ (1.0 / self.gains.inertia_lower))
        share = np.empty(len(q))
        r, p = forward_kinematics(model.kinematics, q)
        inertia_share_kernel(model.kinematics.axis, r, p, self.box.mid, self.box.rad, self._spare, share)
        return np.column_stack([room.min(axis=1), 1.0 - measure / assume.uncertainty, 1.0 - share])
