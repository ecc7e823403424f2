"""The rule by which the comparison laws were tuned, and that the defaults are among its candidates."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "benchmarks"))

import tune_laws

from safe_sysid.control.settings import LawsSettings

ROBUST = {"chatter": 4.0, "rms": 1.0}


def row(rms: float, chatter: float = 1.0, torque: float = 0.5) -> dict[str, Any]:
    return {"rms": rms, "chatter": chatter, "torque": torque, "settings": {}}


def test_the_most_accurate_wins_however_much_better_than_ours() -> None:
    rows = [row(0.9), row(0.1), row(0.01), row(0.5)]
    assert tune_laws.choose(rows, ROBUST) is rows[2]


def test_ties_go_to_the_first_and_what_is_not_admitted_counts_for_nothing() -> None:
    rows = [row(0.112), row(0.109), row(0.1), row(0.01, chatter=4.1), row(0.01, torque=1.0), row(np.inf)]
    assert tune_laws.choose(rows, ROBUST) is rows[1]
    assert [r["good"] for r in rows] == [True, True, True, False, False, False]
    assert tune_laws.choose(rows[3:], ROBUST) is None


@pytest.mark.parametrize("name", [name for name, grid in tune_laws.GRIDS.items() if grid])
def test_defaults_are_candidates_inside_of_the_ranges(name: str) -> None:
    """With gains from the end of a range somebody would have to widen it first."""
    chosen, grid = getattr(LawsSettings(), name), tune_laws.GRIDS[name]
    settings = {key: getattr(chosen, key) for key in grid}
    assert all(value in grid[key] for key, value in settings.items())
    assert getattr(chosen, "damping_ratio", 1.0) == 1.0
    assert tune_laws.at_the_end(name, settings) == []
    assert tune_laws.at_the_end(name, {**settings, next(iter(grid)): next(iter(grid.values()))[-1]})
