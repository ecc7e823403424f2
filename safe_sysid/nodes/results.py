"""The end of a demo, from its summary: the file that the demo named when it started the viewer, and no other."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np

from safe_sysid.view.snapshot import Verdict
from safe_sysid.view.text import plain

__all__ = ["read_verdict"]

_LARGEST = 5_000_000


def read_verdict(path: Path) -> Verdict | None:
    """How the run ended; None while it has not, or where the file is none of a demo's.

    Args:
        path: of summary.json, which is written whole.
    """
    try:
        if path.stat().st_size > _LARGEST:
            return None
        found = json.loads(path.read_text(encoding="utf-8"))
        reason = str(found["exit"]["reason"])
        truth = np.array([float(entry["truth"]) for entry in found["parameters"]])
        safety = found["safety"]
        facts = (
            f"torque at most {float(safety['torque']['percent']):.0f} % of its limit",
            f"tracking error {float(safety['tracking_position']['percent']):.0f} % of its bound",
            *(
                [f"clearance {1e3 * float(safety['clearance']['smallest_m']):.0f} mm"]
                if safety.get("clearance")
                else []
            ),
        )
        if truth.shape != (10,) or not np.all(np.isfinite(truth)):
            return None
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return None
    good = found["exit"]["status"] == 0
    text = "Every bound held, nothing was violated" if good else f"Failed: {reason}"
    return Verdict(good, plain(text), tuple(plain(fact) for fact in facts), truth)
