"""Which settings of the gain synthesis matter for torque half width and swept volume, on the peer's problem.

From the settings "declared" of peer_setup.py, one change at a time; the family's widest trajectory, 128 intervals. The
last column is the smallest margin of the tracking theorem's hypotheses along it: negative, and no certificate exists.

    python benchmarks/gains_study.py [--json FILE]
"""

from __future__ import annotations

import argparse
import itertools
import json
import time
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
from peer_setup import DECLARED, SETTINGS, machine, peer_family, peer_model, said
from peer_widths import ours
from rich.console import Console
from rich.table import Table

from safe_sysid.control.design import design_gains
from safe_sysid.errors import SafeSysIdError
from safe_sysid.planning.certificate import verify_plan
from safe_sysid.robot.scene import load_scene
from safe_sysid.trajectories.plan import Plan


def study(console: Console) -> list[dict[str, Any]]:
    """One setting of the synthesis after the other, from the declared ones; widest trajectory of the family."""
    scene = load_scene("six_boxes")
    grid: list[dict[str, Any]] = [{}]
    grid += [{"controller.uncertainty": s} for s in (7.4, 4.0, 1.5, 1.0)]
    grid += [{"controller.inertia_ratio": s} for s in (2.15, 1.8, 1.4)]
    grid += [{"controller.kappa": s} for s in (15.0, 7.0, 5.0, 3.0)]
    grid += [{"controller.K_r": s} for s in (5.0, 2.0, 1.5, 1.0)]
    grid += [{"controller.velocity": 0.6, "controller.acceleration": 0.8, "controller.jerk": 6.0}]
    grid += [{"timing.period_s": 5e-4, "timing.hold_max_s": 7e-4}, {"timing.delay_max_s": 0.0}]
    grid += [{"timing.period_s": 2e-3, "timing.hold_max_s": 2.25e-3}]
    table = Table(
        title="Study of the synthesis: 'declared' with one change each; N m, mm; margin of the hypotheses"
    )
    for column in ("change", "joints", "V_max, mJ", "torque mean", "max", "growth mean", "max", "hypotheses"):
        table.add_column(column)
    rows: list[dict[str, Any]] = []
    for certain, change in itertools.product((False, True), grid):
        SETTINGS["changed"] = DECLARED | change
        model = peer_model("changed", certain)
        label = ", ".join(f"{k.split('.')[1]} {v}" for k, v in change.items()) or "none"
        try:
            gains = design_gains(model)
        except SafeSysIdError:
            rows.append({"change": change, "joints_certain": certain, "error": "no gains"})
            table.add_row(label, "exact" if certain else "5 %", "no gains exist")
            continue
        family = peer_family(scene.start_for(model), np.array(scene.goal))
        k = np.sign(family.centre - family.start[0])
        trajectory = family.trajectory(k)
        w = ours(model, gains, trajectory, 128)
        one = Plan(trajectory, 0.0, 1.0, model.arm_prior.identity, 0, k)
        tracking = verify_plan(one, model, model.arm_prior, scene, gains).families["tracking"]
        rows.append(
            {"change": change, "joints_certain": certain, "V_max": gains.V_max}
            | {"margin": tracking.value, "hypothesis": tracking.culprit}
            | asdict(w)
        )
        table.add_row(
            label,
            "exact" if certain else "5 %",
            f"{1e3 * gains.V_max:.2f}",
            f"{w.torque_mean:.2f}",
            f"{w.torque_max:.2f}",
            f"{1e3 * w.growth_mean:.1f}",
            f"{1e3 * w.growth_max:.1f}",
            f"{tracking.value:+.3f} ({tracking.culprit})",
        )
    del SETTINGS["changed"]
    console.print(table)
    return rows


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    console, began = Console(width=150), time.perf_counter()
    rows, on = study(console), machine()
    console.print(said(on, time.perf_counter() - began))
    if options.json:
        options.json.write_text(json.dumps({"machine": on, "rows": rows}, indent=1))


if __name__ == "__main__":
    main()
