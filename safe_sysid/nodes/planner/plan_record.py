"""Record of a plan: its entry in ``planner.json`` and its message on ``certificate``."""

from __future__ import annotations

from typing import Any

import numpy as np
from std_msgs.msg import Float64MultiArray, MultiArrayDimension

from safe_sysid.planning.certification.certificate import PlanCertificate
from safe_sysid.planning.results import PlannerResult
from safe_sysid.robot.margin import margin_records
from safe_sysid.robot.parameters import ParameterBox
from safe_sysid.trajectories.plan import Plan

__all__ = ["certificate_message", "plan_record"]


def plan_record(result: PlannerResult, sequence: int, start_ns: int, box: ParameterBox, purpose: str) -> dict[str, Any]:
    """One entry of ``planner.json``; ``purpose``: what the motion is for."""
    plan, certificate = result.plan, result.certificate
    entry: dict[str, Any] = {
        "sequence": sequence, "status": result.status.value, "start_ns": start_ns, "box": box.identity,
        "purpose": purpose,
        "planning_s": result.wall_time, "optimise_s": result.optimise_time, "certify_s": result.certify_time,
        "first_s": result.first_time if np.isfinite(result.first_time) else None,
        "iterations": result.iterations,
        "certificates": result.certificates, "reasons": list(result.reasons),
        "summary": "", "margins": {},
    }  # fmt: skip
    if certificate is not None:
        entry["summary"] = certificate.summary()
        entry["margins"] = margin_records(certificate.families)
    if plan is not None:
        times, knots = plan.trajectory.times.tolist(), plan.trajectory.knots.tolist()
        entry |= {"t_plan": plan.t_plan, "duration": plan.trajectory.duration, "times": times}
        entry |= {
            "knots": knots,
            "k": plan.k.tolist(),
            "tube": plan.tube,
            "cost": result.cost,
            "condition": result.condition,
        }
    return entry


def certificate_message(plan: Plan, certificate: PlanCertificate, start_ns: int) -> Float64MultiArray:
    """A row per family of constraints: smallest margin (inf: nothing constrains it), trajectory time of it in s.

    The first label says of which plan, for which box and from when; the second has the families and units, in order.
    """
    rows = [(m.value, m.time) for m in certificate.families.values()]
    names = ", ".join(f"{m.family} [{m.unit}]" for m in certificate.families.values())
    message = Float64MultiArray(data=[float(x) for row in rows for x in row])
    about = f"plan {plan.sequence}, box {plan.box_identity}, start {start_ns} ns"
    message.layout.dim = [
        MultiArrayDimension(label=about, size=len(rows), stride=2 * len(rows)),
        MultiArrayDimension(label=names, size=2, stride=2),
    ]
    return message
