"""Whether a carry is proved safe, and against what: the limits and shapes that the work cell's file declares."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any

import numpy as np

from safe_sysid.control.gains import ControllerGains
from safe_sysid.control.gains.design import gains_for_motion
from safe_sysid.core.arrays import FloatArray
from safe_sysid.identification.equations.measurements import Sample
from safe_sysid.planning.certification.certificate import verify_plan
from safe_sysid.robot.model import Body, RobotModel
from safe_sysid.robot.parameters import ParameterBox
from safe_sysid.robot.scenes.obstacles import box_corners
from safe_sysid.robot.scenes.scene import Scene
from safe_sysid.simulation.payloads import Payload
from safe_sysid.studies.experiments.cell.dumbbells import in_hand
from safe_sysid.studies.experiments.cell.workcell import Workcell
from safe_sysid.trajectories.plan import Plan
from safe_sysid.trajectories.quintic import QuinticTrajectory

__all__ = ["CarryProof", "start_share", "with_box_around"]

#: Outwards on every side of a payload's box, m: far more than bounds of solids and turning them round.
_OUTWARDS = 1e-9


def with_box_around(model: RobotModel, payload: Payload) -> RobotModel:
    """The arm with the bounding box of a payload's solids, in the tool's axes, in the place of the envelope.

    ``payload``: in the tool frame; of its solids only, its mass is not looked at.
    """
    bounds = [shape.bounding_box() for shape in payload.shapes]
    low = np.min([low for low, _ in bounds], axis=0) - _OUTWARDS
    high = np.max([high for _, high in bounds], axis=0) + _OUTWARDS
    rotation, position = model.flange
    points = position + (0.5 * (low + high) + box_corners(high - low)) @ rotation.T
    bodies = [body for body in model.bodies if body.kind != "payload"]
    return replace(model, bodies=(*bodies, Body("payload", model.n - 1, points, 0.0, "payload")))


def start_share(gains: ControllerGains, carry: QuinticTrajectory, measurement: Sample) -> float:
    """What share of the tracking error that the theorem lets a motion begin with is there, at most: energy or tube.

    Gains change when a carry begins: what other gains left of an error has to be inside of the new ones' theorem.
    """
    a, (q, qd, *_) = gains.assumptions, carry.state(0.0)
    r = np.abs(qd - measurement.qd + gains.K_r * (q - measurement.q))
    r = r + a.velocity_error + gains.K_r * a.position_error
    energy = 0.5 * float(np.sum(a.inertia_upper * r * r))
    spread = gains.K_r * (np.abs(q - measurement.q) + a.position_error) / gains.r_bound
    return max(energy / gains.V_start, float(spread @ spread)) if gains.V_start > 0.0 else np.inf


@dataclass(frozen=True, eq=False)
class CarryProof:
    """What carries are proved against."""

    model: RobotModel  #: the arm as its file says; its torque limits are the drives' warning thresholds
    torque: FloatArray | None = None  #: (n,) N m, that no command shall exceed; None: the model's
    #: name to solids in the tool frame; for others the configuration's envelope stands
    payloads: Mapping[str, Payload] = field(default_factory=lambda: MappingProxyType({}))

    @classmethod
    def of(cls, model: RobotModel, workcell: Workcell) -> CarryProof:
        """Against what a work cell's file declares: its criterion's torque, and its dumbbells' shapes."""
        shapes = {item.name: in_hand(item.payload) for item in workcell.dumbbells}
        return cls(model, workcell.criteria.torque, MappingProxyType(shapes))

    def arm(self, payload: str) -> RobotModel:
        """The arm with these limits, and with the payload's box where its solids are known."""
        arm = self.model
        if self.torque is not None:
            arm = replace(arm, limits=replace(arm.limits, torque=self.torque))
        return with_box_around(arm, self.payloads[payload]) if payload in self.payloads else arm

    def gains(self, payload: str, carry: QuinticTrajectory, box: ParameterBox) -> ControllerGains:
        """Gains for a carry in lock-step. Raises ParameterError: no tracking bound exists."""
        return gains_for_motion(self.arm(payload), carry, box, lockstep=True)

    def judge(
        self,
        payload: str,
        carry: QuinticTrajectory,
        box: ParameterBox,
        gains: ControllerGains,
        scene: Scene,
        measurement: Sample | None = None,
    ) -> dict[str, Any]:
        """Certificate of a carry and of the rest at its end, as plain data.

        No clearance is asked for beyond what is proved: the claim is that nothing is touched until the release.

        ``measurement``: when the carry begins; None: not looked at.

        Returns:
            ``certified``, ``margins`` by family, ``warning_margin`` (N m, of the torque to the drives' warning
            thresholds), ``certificate`` in words; with a measurement ``start``, see :func:`start_share`, which has to
            be at most 1.
        """
        arm = self.arm(payload)
        plan = Plan(carry, 0.0, carry.duration, box.identity, 0, np.zeros(arm.n))
        found = verify_plan(plan, arm, box, scene, gains, clearance_margin=0.0)
        beyond = np.asarray(arm.limits.torque) - np.asarray(self.model.limits.torque)
        start = {} if measurement is None else {"start": start_share(gains, carry, measurement)}
        return {
            "certified": bool(found.ok) and all(share <= 1.0 for share in start.values()),
            "margins": {name: family.value for name, family in found.families.items()},
            "warning_margin": float(np.min(found.margins["torque"] - beyond)),
            "certificate": found.summary(),
            **start,
        }
