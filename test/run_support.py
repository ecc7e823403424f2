"""A run directory as nodes and judge leave it, of the run that never was (demo_support), to spoil at will."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
from demo_support import clean_logs, oracle, rig

from safe_sysid.apps.judge.evaluation import evaluate
from safe_sysid.demo.options import DemoOptions, Setup
from safe_sysid.demo.summarise import summarise
from safe_sysid.demo.supervisor import RunClock
from safe_sysid.report.run.curves import JudgedCurves, write_curves
from safe_sysid.report.run.logs import RunLogs
from safe_sysid.report.run.summary import Exit, write_summary
from safe_sysid.robot.margin import margin_records
from safe_sysid.robot.scenes.scene import Scene

__all__ = ["FILES", "write_run"]

FILES = ("summary.json", "judged.npz", "plant.npz", "controller.npz", "identifier.json", "planner.json")
_STATES = ("idle", "holding", "tracking", "braking", "fault")


def write_run(directory: Path, reason: str = "", logs: RunLogs | None = None) -> Path:
    """Write all files.

    Args:
        directory: to make.
        reason: why the run failed; empty if it did not.
        logs: of the run; None: the clean one.
    """
    directory.mkdir(parents=True, exist_ok=True)
    r, logs = rig(), logs or clean_logs()
    setup = Setup(DemoOptions(), r.model, Scene("open"), r.gains, "8lb", np.array(r.model.settings.home), directory)
    found = evaluate(logs, r.model, r.gains, oracle)
    end = Exit(status=1 if reason else 0, reason=reason)
    write_summary(
        directory / "summary.json", summarise(setup, logs, found, RunClock(3.0, 4.8, 2.4), ["planner: slow"], end)
    )
    c = found.curves
    write_curves(
        directory / "judged.npz",
        JudgedCurves.of(
            (c.clearance_time, c.clearance, c.certified), (c.tracking_time, c.position_share, c.energy_share)
        ),
    )
    write_logs(directory, logs)
    return directory


def write_logs(directory: Path, logs: RunLogs) -> None:
    """What the four nodes write."""
    r, plant, log = rig(), logs.plant, logs.controller
    assert plant is not None
    assert log is not None
    np.savez(
        directory / "plant.npz", t=plant.time, q=plant.q, qd=plant.qd, tau_commanded=plant.commanded,
        tau_applied=plant.applied, contacts=plant.contacts, mode=plant.mode, theta_true=plant.theta_true, origin_ns=0,
    )  # fmt: skip
    np.savez(
        directory / "controller.npz", stamp=np.round(1e9 * log.time).astype(np.int64), q_d=log.q_d, qd_d=log.qd_d,
        state=np.array([_STATES.index(s) for s in log.state], np.int8), states=np.array(_STATES),
        joint_names=np.array(r.model.joint_names), e=log.q_d - plant.q, torque=plant.commanded, e_bound=r.gains.e_bound,
        compute_us=1e6 * log.compute, counts=np.array(["late: 3"]), refused=np.array(["plan: stale: 2"]),
    )  # fmt: skip
    prior = r.model.arm_prior
    (directory / "identifier.json").write_text(
        json.dumps(
            {
                "updates": [
                    {
                        "stamp_ns": int(1e9 * u.time), "identity": u.identity, "status": "OK", "seconds": 0.3,
                        "lower": u.lower.tolist(), "nominal": u.nominal.tolist(), "upper": u.upper.tolist(),
                    }
                    for u in logs.updates
                ],
                "prior_lower": prior.payload_lower.tolist(), "prior_upper": prior.payload_upper.tolist(),
                "refused": {"joint_states: stale": 4},
            }
        )
    )  # fmt: skip
    plans: list[dict[str, Any]] = [
        {
            "sequence": p.sequence, "status": p.status, "start_ns": int(1e9 * p.start), "purpose": p.purpose,
            "box": p.box, "t_plan": 0.6, "duration": 1.2, "k": list(p.k),
            "margins": margin_records(p.margins), "reasons": [],
        }
        for p in logs.plans
    ]  # fmt: skip
    plans.append({"sequence": 2, "status": "no time", "start_ns": 2_000_000_000, "reasons": ["deadline", "cold"]})
    (directory / "planner.json").write_text(json.dumps({"plans": plans, "task": "", "refused": {}}))
