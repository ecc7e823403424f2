"""Result of a demo for its viewer: read from the summary file that the demo named, and from no other."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from safe_sysid.decimals import at_least, at_most
from safe_sysid.view.snapshot import RunOutcome
from safe_sysid.view.text import plain

__all__ = ["read_verdict"]

_LARGEST = 5_000_000


def read_verdict(path: Path) -> RunOutcome | None:
    """How the run ended; None while it has not, or where the file is none of a demo's."""
    try:
        if path.stat().st_size > _LARGEST:
            return None
        found = json.loads(path.read_text(encoding="utf-8"))
        reason = str(found["exit"]["reason"])
        good = found["exit"]["status"] == 0
        facts = tuple(_facts(found["safety"]))
        entries = [entry["truth"] for entry in found["parameters"]]
        truth = None if None in entries else np.array([float(entry) for entry in entries])
        if truth is not None and (truth.shape != (10,) or not np.all(np.isfinite(truth))):
            return None
    except (OSError, ArithmeticError, ValueError, KeyError, TypeError, RecursionError):
        return None
    text = "Every bound held, nothing was violated" if good else f"Failed: {reason}"
    return RunOutcome(good, plain(text), facts, truth)


def _facts(safety: dict[str, Any]) -> Iterator[str]:
    """What was observed; of what was not looked at, such as in a run that never moved, nothing."""
    if (torque := safety["torque"]) is not None:
        yield f"torque at most {at_most(float(torque['percent']), places=1)} % of its limit"
    if (tracking := safety["tracking_position"]) is not None:
        yield f"tracking error {at_most(float(tracking['percent']), places=1)} % of its bound"
    if (clearance := safety["clearance"]["smallest_m"]) is not None:
        yield f"clearance {at_least(float(clearance), scale=1000, places=1)} mm"
