"""Margins: the form that files have comes back as what was written, and what a file may not say is refused."""

from __future__ import annotations

import json
import math

import pytest

from safe_sysid.report.run.logs import PlanEntry
from safe_sysid.report.run.tables import margin_table
from safe_sysid.robot.margin import UNITS, Margin, MarginRecord, margin_records

MARGINS = [
    Margin("position", "joint_1", "", 0.25, 0.5),
    Margin("self_clearance", "payload", "left - outer finger", -0.5, 1.5),
    Margin("tracking", "jerk", "joint_2", 0.7, 0.0),
    Margin("tracking", "joint_2.Fv within the box", "the gains", -0.1, 0.0),
    Margin.unconstrained("clearance"),
]


@pytest.mark.parametrize("margin", MARGINS, ids=str)
def test_a_margin_comes_back_from_a_file(margin: Margin) -> None:
    text = json.dumps(margin_records({margin.family: margin}), allow_nan=False)
    record = MarginRecord.model_validate(json.loads(text)[margin.family])
    assert record.margin(margin.family) == margin


def test_words_say_what_where_and_when() -> None:
    assert str(MARGINS[0]) == "position 0.25 rad (joint_1, 0.50 s)"
    assert MARGINS[1].text(" over 5 mm").startswith("self_clearance over 5 mm -0.5 m (payload - left")
    assert MARGINS[2].culprit == "jerk of joint_2"
    assert str(MARGINS[4]) == "clearance unconstrained"


def test_what_broke_down_is_neither_kept_nor_written() -> None:
    broken = Margin("torque", "joint_3", "", math.nan, 1.0)
    assert not broken.ok
    assert not MARGINS[1].ok
    assert MARGINS[4].ok
    assert margin_records({"torque": broken, "position": MARGINS[0]}).keys() == {"position"}


@pytest.mark.parametrize(
    ("family", "unit", "named"),
    [("torque", "kN m", "torque.unit = 'kN m': expected 'N m'"), ("safety", "m", "safety.unit"), ("", "m", "family")],
)  # fmt: skip
def test_a_unit_or_family_that_is_none_is_refused(family: str, unit: str, named: str) -> None:
    record = MarginRecord(smallest=0.1, unit=unit, time=0.0, culprit="joint_1")
    with pytest.raises(ValueError, match=r"expected") as refused:
        record.margin(family)
    assert named in str(refused.value)
    assert family in UNITS or "self_clearance" in str(refused.value)


def test_a_family_that_constrains_no_plan_has_no_column() -> None:
    margins = {m.family: m for m in (MARGINS[0], MARGINS[4])}
    table = margin_table([PlanEntry(0, "planned", 0.0, end=1.0, margins=margins)])
    assert table is not None
    assert table["heads"] == ["position"]
    assert len(table["tightest"]) == 1
