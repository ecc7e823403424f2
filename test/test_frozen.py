"""The frozen set: bounds, certificates and plans of 20 logs and 40 plans are those of the day when they were frozen.

To the last bit where this machine's arithmetic is that of the machine that froze them (:mod:`frozen_arithmetic`).
Elsewhere another BLAS kernel or C library makes last bits different. Then statuses, verdicts, margins, torques and
bounds are compared, numbers closely (:class:`Tolerances`), but not which plan a search ends at: it may be another
optimum. A failure says which of the two was done, and the run warns where it was the second. Results that are *meant*
to change are frozen again by ``test/frozen/make.py``.
"""

from __future__ import annotations

import json
import warnings
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from frozen_set import ARMS, ARMS_THAT_PLAN, FOLDER, LOGS, MOTIONS, PLANNED, compute

pytestmark = pytest.mark.timeout(1200)  # everything is computed before the first test, kernels compiled
FROZEN = json.loads((FOLDER / "outcomes.json").read_text(encoding="utf-8"))
NAMES = (
    *(f"log {case.name}" for case in LOGS),
    *(f"plan {arm} {motion}" for arm in ARMS_THAT_PLAN for motion in MOTIONS),
    *(f"plan {name}" for name in PLANNED),
    *(f"laws {arm}" for arm in ARMS),
)
#: Logs that take a second or more each: by `--all`.
LONG = ("kinova_tare", "three_tare", "sliding_tare", "kinova_known", "kinova_link", "kinova_command")


class Tolerances:
    """How far numbers may be from the frozen ones under another arithmetic, and what other kernels were seen to do.

    Attributes:
        width: bounds, as a share of the interval's width: 2e-13.
        choice: the same where equations were chosen among near equals (a tare's, or others were kept): 4e-4.
        margin: margins of given motions, gains and torques, relative, or absolute below one: 6e-16.
    """

    width, choice, margin = 1e-7, 1e-2, 1e-9


@pytest.fixture(scope="module")
def now(request: pytest.FixtureRequest) -> dict[str, Any]:
    """All that this run compares, again, in one process."""
    cases = (getattr(item, "callspec", None) for item in request.session.items if item.path == request.path)
    found = compute([case.params["name"] for case in cases if case and "name" in case.params])
    different = _different_arithmetic(found)
    if different:
        warnings.warn(f"frozen set compared closely, not to the last bit: {', '.join(different)} differ", stacklevel=1)
    return found


def _different_arithmetic(found: dict[str, Any]) -> list[str]:
    return [name for name, value in FROZEN["arithmetic"].items() if found["arithmetic"].get(name) != value]


def test_the_set_is_whole() -> None:
    """20 logs, 40 plans, on three arms each."""
    assert tuple(FROZEN["outcomes"]) == NAMES
    assert len(LOGS) == 20
    assert len({case.arm for case in LOGS}) == 3
    assert len(ARMS_THAT_PLAN) * len(MOTIONS) + len(PLANNED) == 40


@pytest.mark.parametrize(
    "name", [pytest.param(x, marks=pytest.mark.slow) if x.removeprefix("log ") in LONG else x for x in NAMES]
)
def test_frozen(now: dict[str, Any], name: str) -> None:
    frozen, found = FROZEN["outcomes"][name], now["outcomes"][name]
    other = _different_arithmetic(now)
    if other:
        wrong = list(_far(frozen, found))
        how = f"compared closely, as {', '.join(other)} differ from the machine that froze"
    else:
        wrong, how = list(_unequal(frozen, found)), "compared to the last bit"
    assert not wrong, f"{name}, {how}:\n" + "\n".join(wrong)


def test_comparisons_see_the_last_bit_and_what_is_far() -> None:
    """Both comparisons fail where they should, and say what and by how much."""
    outcome = FROZEN["outcomes"]["log kinova_motor"]
    next_up = float(np.nextafter(float.fromhex(outcome["lower"][3]), np.inf)).hex()
    one_ulp = {**outcome, "lower": [*outcome["lower"][:3], next_up, *outcome["lower"][4:]]}
    assert list(_unequal(outcome, outcome)) == []
    (told,) = _unequal(outcome, one_ulp)
    assert "lower[3]" in told
    assert "1 ulp" in told
    assert list(_far(outcome, one_ulp)) == []
    lower, upper = (float.fromhex(outcome[end][0]) for end in ("lower", "upper"))
    wider = upper + 1e-6 * (upper - lower)
    assert list(_far(outcome, {**outcome, "upper": [wider.hex(), *outcome["upper"][1:]]}))
    plan = FROZEN["outcomes"]["plan ur5e gentle"]
    margins = {**plan["margins"], "torque": (float.fromhex(plan["margins"]["torque"]) * (1 + 1e-6)).hex()}
    assert list(_far(plan, {**plan, "margins": margins}))
    assert list(_far(plan, {**plan, "ok": False}))


def _unequal(frozen: Any, found: Any, path: str = "") -> Iterator[str]:
    """Every place that is not the same, in words."""
    if isinstance(frozen, dict) and isinstance(found, dict):
        for key in [*frozen, *(k for k in found if k not in frozen)]:
            yield from _unequal(frozen.get(key), found.get(key), f"{path}.{key}" if path else str(key))
    elif isinstance(frozen, list) and isinstance(found, list) and len(frozen) == len(found):
        for k, (a, b) in enumerate(zip(frozen, found, strict=True)):
            yield from _unequal(a, b, f"{path}[{k}]")
    elif frozen != found:
        yield f"  {path}: {frozen!r} became {found!r}{_by(frozen, found)}"


def _by(frozen: Any, found: Any) -> str:
    """By how much a number changed; "" if these are none."""
    try:
        a, b = float.fromhex(frozen), float.fromhex(found)
    except (TypeError, ValueError):
        return ""
    if "p" not in frozen or not np.isfinite([a, b]).all():
        return ""
    return f" ({a:.9g} by {b - a:+.3g}, {abs(b - a) / np.spacing(max(abs(a), abs(b))):.3g} ulp)"


def _far(frozen: Any, found: Any) -> Iterator[str]:
    """What other arithmetic does not explain."""
    if isinstance(frozen, list):  # what planners found, one after the other
        if len(frozen) != len(found):
            yield f"  {len(frozen)} answers became {len(found)}"
        for a, b in zip(frozen, found, strict=False):
            yield from _far(a, b)
        return
    for key in ("ok", "start", "proved"):
        yield from _unequal(frozen.get(key), found.get(key), key)
    if "ok" not in frozen:  # beside it `status` is the margins in words
        yield from _unequal(frozen.get("status"), found.get("status"), "status")
    chosen = "tare" in frozen.get("bits", ())
    for a, b in zip(frozen.get("updates", ()), found.get("updates", ()), strict=True):
        chosen |= a["rows"] != b["rows"]
        for key in ("status", "rejected"):
            yield from _unequal(a[key], b[key], key)
    if "lower" in frozen:
        lower, upper = _numbers(frozen["lower"]), _numbers(frozen["upper"])
        for key, bound in (("lower", lower), ("upper", upper)):
            off = (_numbers(found[key]) - bound) / (upper - lower)
            if np.abs(off).max() > (Tolerances.choice if chosen else Tolerances.width):
                yield f"  {key}: off by {off.tolist()} of the widths"
    if "certificate" in frozen:
        yield from _unequal(frozen["certificate"]["ok"], found["certificate"]["ok"], "certificate.ok")
    if "k" in frozen:  # a search's
        return
    for key in ("margins", "torques"):
        for name, value in frozen.get(key, {}).items():
            yield from _off(f"{key}.{name}", value, found[key][name])
    yield from _off("numbers", frozen.get("numbers", []), found.get("numbers", []))


def _off(path: str, frozen: Any, found: Any) -> Iterator[str]:
    a, b = _numbers(frozen), _numbers(found)
    with np.errstate(invalid="ignore"):
        off = np.where(a == b, 0.0, np.abs(b - a) / np.maximum(np.abs(a), 1.0))
    off[np.isnan(a) & np.isnan(b)] = 0.0
    if not np.all(off <= Tolerances.margin):
        yield f"  {path}: {a.tolist()} became {b.tolist()}, off by {off.tolist()}"


def _numbers(values: Any) -> np.ndarray:
    return np.array([float.fromhex(x) for x in ([values] if isinstance(values, str) else values)])
