"""Results of a certificate in the optimiser's terms: the worst margin of each family, joint by joint."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from safe_sysid.control.tube import TrackingTube
from safe_sysid.core.arrays import FloatArray
from safe_sysid.planning.certification.certificate import PlanCertificate
from safe_sysid.planning.optimiser.constraints import Margins

__all__ = ["PlanVerdict", "verdict_of"]


@dataclass(frozen=True, eq=False)
class PlanVerdict:
    """What a certifier says about one k."""

    certified: bool  #: whether the trajectory may be driven. Nothing else decides.
    #: worst margin per family (see :mod:`safe_sysid.planning.optimiser.constraints`), as far as known
    margins: Mapping[str, FloatArray] = field(default_factory=dict)
    certificate: PlanCertificate | None = None
    reasons: tuple[str, ...] = ()  #: why not, for people


def verdict_of(
    certificate: PlanCertificate,
    gains: TrackingTube,
    frame_of: Mapping[str, int] | None = None,
    settled: frozenset[tuple[str, str]] = frozenset(),
) -> PlanVerdict:
    """A certificate in the optimiser's terms: worst margin over time per joint, in physical units.

    The tracking theorem's hypotheses are shares of what it assumes there, absolute here. Anything that is not found
    under the expected name is left out: it would only make the optimiser's first guess worse.

    Args:
        frame_of: number of the moving frame (:class:`~.proximity.Proximity`) of each moving body;
            None: one smallest clearance for all.
        settled: pairs of the arm's bodies that the optimiser does not see.
    """
    margins: Margins = {}
    worst = {
        name: dict(zip(certificate.labels[name], values.min(axis=0), strict=True)) if values.size else {}
        for name, values in certificate.margins.items()
    }
    for name in ("position", "velocity", "torque"):
        if worst.get(name):
            margins[name] = np.array(list(worst[name].values()))
    own = [margin for pair, margin in worst.get("self_clearance", {}).items() if pair not in settled]
    if own:
        margins["self_clearance"] = np.array([min(own)])
    if worst.get("clearance"):
        margins["clearance"] = _by_frame(worst["clearance"], frame_of)
    tracking, a = worst.get("tracking", {}), gains.assumptions
    joints = certificate.labels.get("position", ())
    for name, assumed in (("velocity", a.velocity), ("acceleration", a.acceleration), ("jerk", a.jerk)):
        shares = [tracking.get((name, joint)) for joint, _ in joints]
        if shares and None not in shares:
            absolute = np.array(shares, float) * assumed
            margins[name] = np.minimum(margins[name], absolute) if name in margins else absolute
    if ("uncertainty", "") in tracking:
        margins["tracking"] = np.array([tracking["uncertainty", ""] * a.uncertainty])
    if ("inertia", "") in tracking:
        margins["inertia"] = np.array([tracking["inertia", ""]])
    reasons = () if certificate.ok else (certificate.status,)
    return PlanVerdict(certificate.ok, margins, certificate, reasons)


def _by_frame(worst: Mapping[tuple[str, str], float], frame_of: Mapping[str, int] | None) -> FloatArray:
    """Smallest margin of each frame's bodies to any obstacle; infinite where a frame has none near."""
    if not frame_of:
        return np.array([min(worst.values())])
    out = np.full(max(frame_of.values()) + 1, np.inf)
    for pair, margin in worst.items():
        for body in pair:
            if body in frame_of:
                # NaN stays: it certifies nothing and teaches nothing.
                out[frame_of[body]] = np.minimum(out[frame_of[body]], margin)
    return out
