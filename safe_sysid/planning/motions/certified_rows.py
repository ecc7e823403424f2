"""Predicted margins of a motion's certificate as rows for an optimiser, calibrated by earlier certificates. No proof.

As :mod:`.constraints`, for motions with many free numbers per joint; the same quantities, the same idea: margins at
samples less a reserve per constraint, and a certificate of one motion says what the reserve has to be.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from safe_sysid.control.tube import TrackingTube, torque_reserve
from safe_sysid.core.arrays import FloatArray
from safe_sysid.dynamics.magnitudes import rotor_ceiling
from safe_sysid.planning.certification.certificate import PlanCertificate, verify_plan
from safe_sysid.planning.certification.verdicts import verdict_of
from safe_sysid.planning.distances.pair_distances import SEARCH_DISTANCE, PairDistances
from safe_sysid.planning.motions.knot_family import MotionSampler
from safe_sysid.planning.motions.motion_limits import LimitDistances, MotionLimits
from safe_sysid.planning.motions.motion_rows import FAR, METRE, RADIAN, rate_rows
from safe_sysid.planning.optimiser.effort import box_effort_kernel, effort_slopes, inertia_share_kernel, share_slopes
from safe_sysid.robot.frames import forward_kinematics
from safe_sysid.robot.model import RobotModel
from safe_sysid.robot.parameters import ParameterBox
from safe_sysid.robot.scenes.scene import Scene
from safe_sysid.trajectories.plan import Plan

__all__ = ["CertifiedRows", "cells_of"]

_NOTHING = LimitDistances(position=0.0, velocity=0.0, acceleration=0.0, torque=0.0, clearance=0.0, self_clearance=0.0)
#: Left on top of what a certificate asks for, in the rows' units.
_CUSHION = 0.01
#: First guess of what the tracking error costs a distance, m, and shares of S and of the inertia bound.
_FIRST_DISTANCE, _FIRST_SHARE = 0.03, 0.05
#: Time cells of a certificate per s, at least.
_CELLS = 40


def cells_of(model: RobotModel, duration: float) -> int:
    """Time cells of a certificate of a motion of some duration, s, before any splitting."""
    return max(model.settings.planner.intervals, round(_CELLS * duration))


@dataclass(frozen=True, eq=False)
class CertifiedRows:
    """Margins of motions as a certificate will see them, as rows >= 0 with their Jacobian."""

    model: RobotModel  #: what a certificate is about
    box: ParameterBox  #: what a certificate is about
    scene: Scene  #: what a certificate is about
    gains: TrackingTube  #: what a certificate is about
    distances: PairDistances
    sampler: MotionSampler
    limits: MotionLimits  #: the robot's, and what the tracking theorem assumes
    reserve: Mapping[str, FloatArray]  #: per family (c,), in the rows' units, what is taken off
    _spare: FloatArray = field(repr=False)

    @classmethod
    def build(
        cls, model: RobotModel, box: ParameterBox, scene: Scene, gains: TrackingTube, sampler: MotionSampler
    ) -> CertifiedRows:
        """With first guesses of the reserves: what the tracking error may cost, as if joints did not couple."""
        a, g, n = gains.assumptions, gains, model.n
        rotor = rotor_ceiling(model.kinematics, box)
        distances = PairDistances(model, scene)
        limits = MotionLimits.of(
            model, velocity=np.minimum(model.limits.velocity, a.velocity), acceleration=a.acceleration
        )
        apart = (model.settings.planner.clearance_margin + _FIRST_DISTANCE) / METRE
        reserve = {
            "position": g.e_bound / RADIAN,
            "velocity": g.de_bound / limits.velocity,
            "acceleration": np.full(n, _CUSHION),
            "jerk": np.full(n, _FIRST_SHARE),
            "torque": torque_reserve(model, g, box) / limits.torque,
            "tracking": np.full(1, _FIRST_SHARE),
            "inertia": np.full(1, _FIRST_SHARE),
            "clearance": np.full(int(np.sum(~distances.is_self)), apart),
            "self_clearance": np.full(int(np.sum(distances.is_self)), apart),
        }
        # Links may take what the assumed inertia bound leaves beside the rotors.
        spare = np.maximum(a.inertia_upper - rotor, 1e-9)
        return cls(model, box, scene, gains, distances, sampler, limits, reserve, spare)

    def values(self, x: FloatArray) -> FloatArray:
        """(m,) at x (n m,)."""
        return np.concatenate([part.ravel() for part in self._less(self._parts(x, None)).values()])

    def values_and_jacobian(self, x: FloatArray) -> tuple[FloatArray, FloatArray]:
        """(m,) and (m, n m)."""
        slopes: list[FloatArray] = []
        parts = self._less(self._parts(x, slopes))
        values, jacobian = np.concatenate([part.ravel() for part in parts.values()]), np.concatenate(slopes)
        jacobian[values >= FAR - 1.0] = 0.0
        return values, jacobian

    def _less(self, parts: dict[str, FloatArray]) -> dict[str, FloatArray]:
        return {name: np.minimum(part, FAR) - self.reserve[name] for name, part in parts.items()}

    def _parts(self, x: FloatArray, slopes: list[FloatArray] | None) -> dict[str, FloatArray]:
        """Raw rows by family, (N, c) each; appends (N c, n m) to ``slopes`` if given."""
        model, box, a, sampler = self.model, self.box, self.gains.assumptions, self.sampler
        kin, v_c = model.kinematics, model.friction_transition_velocity
        x = np.asarray(x, float).reshape(model.n, -1)
        state = sampler.states(x)
        count = len(state[0])
        out = rate_rows(sampler, x, self.limits, _NOTHING, slopes)
        jerk = np.broadcast_to(np.asarray(a.jerk, float), (model.n,))
        out["jerk"] = 1.0 - np.abs(state[3]) / jerk
        effort, measure, share = np.empty((count, model.n)), np.empty(count), np.empty(count)
        least = self.gains.inertia_lower
        box_effort_kernel(kin.packed, *state[:3], v_c, box.mid, box.rad, least, effort, measure)
        r, p = forward_kinematics(kin, state[0])
        inertia_share_kernel(kin.axis, r, p, box.mid, box.rad, self._spare, share)
        out["torque"] = 1.0 - effort / self.limits.torque
        out["tracking"] = (1.0 - measure / a.uncertainty)[:, None]
        out["inertia"] = (1.0 - share)[:, None]
        found, by_q = self.distances.at(state[0], want_slopes=slopes is not None)
        # Beyond what is looked at only that is known.
        distance, own = np.where(found >= SEARCH_DISTANCE, FAR, found / METRE), self.distances.is_self
        out["clearance"], out["self_clearance"] = distance[:, ~own], distance[:, own]
        if slopes is not None:
            slopes.append(sampler.own(3, -np.sign(state[3]) / jerk))
            every = np.arange(count)
            by_torque, by_measure = effort_slopes(
                kin, state[:3], v_c, box, self.gains.inertia_lower, np.repeat(every[:, None], model.n, 1), every
            )
            slopes.append(sampler.chain(-by_torque / self.limits.torque[:, None, None]))
            slopes.append(sampler.chain(-by_measure[:, None] / a.uncertainty))
            slopes.append(sampler.chain(-share_slopes(kin, state[0], box, self._spare)[:, None, None]))
            for mine in (~own, own):
                slopes.append(sampler.chain(by_q[:, mine, None, :] / METRE))
        return out

    def certify(self, plan: Plan, x: FloatArray) -> tuple[PlanCertificate, CertifiedRows]:
        """The certificate of a motion, and the rows with reserves that reproduce it there, plus a cushion.

        ``x``: (n m,) its motion.
        """
        cells = cells_of(self.model, plan.trajectory.duration)
        certificate = verify_plan(plan, self.model, self.box, self.scene, self.gains, intervals=cells)
        other = copy.copy(self)
        object.__setattr__(other, "reserve", self._learned(certificate, self._parts(x, None)))
        return certificate, other

    def _learned(self, certificate: PlanCertificate, parts: Mapping[str, FloatArray]) -> dict[str, FloatArray]:
        margins = {
            name: np.atleast_1d(value) / self._unit(name)
            for name, value in verdict_of(certificate, self.gains).margins.items()
            if name not in ("clearance", "self_clearance")
        }
        for name in ("clearance", "self_clearance"):
            if name in certificate.margins and certificate.margins[name].size:
                worst = certificate.margins[name].min(axis=0)
                # Of what is far the certificate only knows that it is far.
                margins[name] = np.where(worst > 0.5 * SEARCH_DISTANCE, np.nan, worst) / METRE
        out = dict(self.reserve)
        for name, margin in margins.items():
            raw = parts[name].min(axis=0)
            known = np.isfinite(margin) & np.isfinite(raw) & (raw < FAR)
            kept = np.where(margin >= 0.0, np.minimum(_CUSHION, 0.5 * margin), _CUSHION)
            found = np.where(known, np.where(known, raw - margin + kept, 0.0), out[name])
            # A lesson of a motion that failed is not forgotten for the sake of the next one.
            out[name] = found if certificate.ok else np.maximum(found, out[name])
        return out

    def _unit(self, name: str) -> FloatArray | float:
        a = self.gains.assumptions
        if name == "position":
            return RADIAN
        if name in ("velocity", "torque", "acceleration"):
            return np.asarray(getattr(self.limits, name))
        if name == "jerk":
            return np.asarray(a.jerk, float)
        return float(a.uncertainty) if name == "tracking" else 1.0
