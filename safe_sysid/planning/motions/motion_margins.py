"""Quick margins of whole motions, for proposals, and how wrong certificates found them to be. No proof."""

from __future__ import annotations

import numpy as np

from safe_sysid.core.arrays import FloatArray
from safe_sysid.planning.certification.cell_margins import SPLIT_HYPOTHESES
from safe_sysid.planning.certification.certificate import PlanCertificate
from safe_sysid.planning.distances.proximity import Proximity
from safe_sysid.planning.optimiser.family import TrajectoryFamily
from safe_sysid.planning.planner import Planner
from safe_sysid.planning.task.poses import PoseMargins
from safe_sysid.robot.parameters import ParameterBox
from safe_sysid.trajectories.plan import Plan

__all__ = ["MotionMargins"]

_SAMPLES = 21  # instants of a motion that are looked at
#: Added to what the quick margins were found to be wrong by: m, m, shares.
_CUSHION = np.array([5e-4, 5e-4, 3e-3, 1e-3, 1e-3, 1e-3])


class MotionMargins:
    """Margins (6,) of a motion: m to obstacles, m to the arm itself, shares of the torques, of S, inertia and rates.

    Attributes:
        planner: robot, scene, settings and the tube that motions are for come from it.
        reserve: (6,) what the quick margins have to be at least, by what certificates said they are worth.
    """

    def __init__(self, planner: Planner) -> None:
        """Nothing is known yet about what the quick margins are worth. ``planner``: of the arm, in the scene."""
        self.planner, self.reserve = planner, np.zeros(6)
        self._proximity = Proximity.build(planner.model, planner.scene, planner.settings.clearance_margin)

    def poses(self, box: ParameterBox) -> PoseMargins:
        """Quick margins of poses, efforts over this box."""
        return PoseMargins(self.planner.model, self._proximity, self.planner.gains, box)

    def quick(self, family: TrajectoryFamily, ks: FloatArray, margins: PoseMargins) -> FloatArray:
        """Smallest margins (N, 6) of the family's motions with parameters (N, n)."""
        sampler = family.sampler(np.linspace(0.0, family.duration * (1.0 - 1e-9), _SAMPLES))
        states = [sampler(k) for k in ks]
        q, qd, qdd = (np.concatenate([state[i] for state in states]) for i in range(3))
        assume = self.planner.gains.assumptions
        far = self.planner.settings.clearance_margin
        speed = 1.0 - (np.abs(qd) + self.planner.gains.de_bound) / assume.velocity
        rate = 1.0 - np.abs(qdd) / assume.acceleration
        jerk = 1.0 - np.abs(sampler.jerk(ks)) / assume.jerk
        rates = np.minimum(np.minimum(speed, rate), jerk).min(axis=1)
        found = np.column_stack([margins.clearance(q) - far, margins.effort(q, qd, qdd), rates])
        room = margins.position(q)
        found[room < 0.0] = np.minimum(found[room < 0.0], room[room < 0.0, None])
        return np.asarray(found.reshape(len(ks), _SAMPLES, -1).min(axis=1))

    def learn(self, quick: FloatArray, certificate: PlanCertificate) -> None:
        """Set the reserve by a motion whose quick margins (6,) and certificate are known."""
        if not certificate.families:
            return
        tracking = certificate.margins["tracking"]
        column = {label: i for i, label in enumerate(certificate.labels["tracking"])}
        rates = [i for (hypothesis, _), i in column.items() if hypothesis not in SPLIT_HYPOTHESES]
        settled = self._proximity.settled
        seen = [i for i, pair in enumerate(certificate.labels["self_clearance"]) if pair not in settled]
        worth = np.array(
            [
                certificate.families["clearance"].value,
                np.min(certificate.margins["self_clearance"][:, seen], initial=np.inf),
                np.min(certificate.margins["torque"] / self.planner.model.limits.torque),
                np.min(tracking[:, column["uncertainty", ""]]),
                np.min(tracking[:, column["inertia", ""]]),
                np.min(tracking[:, rates]),
            ]
        )
        reserve = np.where(np.isfinite(worth), quick - np.where(np.isfinite(worth), worth, 0.0), self.reserve)
        self.reserve = np.asarray(np.where(np.isnan(worth), quick + 0.05, reserve + _CUSHION))

    def calibrate(self, q: FloatArray, margins: PoseMargins) -> None:
        """First guess of the reserve: from the certificate of resting at a pose (n,)."""
        p = self.planner
        rest = np.stack([q, np.zeros_like(q), np.zeros_like(q)])
        family, k = TrajectoryFamily(rest, np.ones(len(q)), p.settings.t_f), np.zeros((1, len(q)))
        plan = Plan(family.trajectory(k[0]), 0.0, p.settings.t_p, margins.box.identity, 0, k[0], p.tube)
        self.learn(self.quick(family, k, margins)[0], p.certificate(plan, margins.box, intervals=1))
