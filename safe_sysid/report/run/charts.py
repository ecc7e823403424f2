"""Drawings of a run: what was planned and done when, torques, clearance, tracking and timing."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from markupsafe import Markup
from numpy.typing import NDArray

from safe_sysid.report.drawing.svg import Axes, Svg, nice_ticks, thinned
from safe_sysid.report.run.logs import PlanEntry
from safe_sysid.report.run.summary import TimeHistogram

__all__ = [
    "clearance_drawing",
    "histogram_drawing",
    "share_drawing",
    "timeline_drawing",
    "torque_drawing",
]

FloatArray = NDArray[np.float64]
_WIDTH, _LEFT, _RIGHT = 340.0, 46.0, 334.0
_STATES = {"holding": "prior", "tracking": "bound", "braking": "brake", "fault": "truth"}


def timeline_drawing(
    plans: Sequence[PlanEntry],
    states: Sequence[tuple[str, float, float]],
    updates: Sequence[float],
    end: float,
) -> Markup:
    """What went on: plans until their hand-over and their braking ends, states of the controller, updates.

    Args:
        plans: answers of the planner.
        states: of the controller: name, begin and end, s.
        updates: times of the updates, s.
        end: of the axis, s.
    """
    svg = Svg(680.0, 128.0, "plans, states of the controller and updates of the bounds over time")
    axes = Axes(svg, (0.0, max(end, 1e-3)), (0.0, 1.0), box=(64.0, 18.0, 658.0, 108.0))
    for tick in nice_ticks(0.0, max(end, 1e-3), 10):
        x = float(axes.px(tick))
        svg.line(x, 6.0, x, 108.0, "grid-line")
        svg.text(x, 122.0, f"{tick:g} s", "t-muted", "middle")
    for y, label in ((24.0, "plans"), (64.0, "controller"), (96.0, "bounds")):
        svg.text(58.0, y, label, "t-muted", "end")
    for plan in (plan for plan in plans if plan.planned):
        start, over, stop = (
            float(axes.px(t)) for t in (plan.start, plan.hand_over or plan.start, plan.end or 0.0)
        )
        y = 8.0 if plan.sequence % 2 == 0 else 26.0
        svg.rect(start, y, stop - start, 14.0, "soft", 3.0)
        svg.rect(start, y, over - start, 14.0, "task" if plan.purpose == "task" else "plan", 3.0)
        if over - start > 14.0:
            svg.text(start + 4.0, y + 11.0, str(plan.sequence))
        svg.title(start, y, stop - start, 14.0, f"plan {plan.sequence}, {plan.purpose}, {plan.start:.2f} s")
    for name, begin, stop in states[:500]:
        a, b = float(axes.px(begin)), float(axes.px(stop))
        svg.rect(a, 54.0, b - a, 14.0, _STATES.get(name, "prior"), 2.0)
        svg.title(a, 54.0, b - a, 14.0, f"{name} {begin:.2f} to {stop:.2f} s")
    for time in list(updates)[:500]:
        x = float(axes.px(time))
        svg.path((x, x + 4.5, x, x - 4.5), (86.5, 91.0, 95.5, 91.0), "bound", closed=True)
        svg.title(x - 4.5, 86.0, 9.0, 10.0, f"update at {time:.2f} s")
    return svg.markup()


def torque_drawing(time: FloatArray, torque: FloatArray, limit: float | None, name: str) -> Markup:
    """Torque of one joint between its limits.

    Args:
        time: (K,) s.
        torque: (K,) N m or N.
        limit: N m or N; None if not known.
        name: of the joint.
    """
    svg = Svg(_WIDTH, 96.0, f"torque of {name} over time")
    finite = torque[np.isfinite(torque)]
    most = max(float(np.max(np.abs(finite), initial=0.0)), 1e-6)
    size = 1.12 * (max(limit, most) if limit is not None else most)
    axes = Axes(svg, _span(time), (-size, size), box=(_LEFT, 4.0, _RIGHT, 78.0))
    mark = limit if limit is not None else nice_ticks(0.0, size, 2)[-1]
    axes.frame("s", (-mark, 0.0, mark), [f"{x:.3g}" for x in (-mark, 0.0, mark)])
    axes.line(*thinned(time, torque))
    if limit is not None:
        for sign in (-1.0, 1.0):
            y = float(axes.py(sign * limit))
            svg.line(_LEFT, y, _RIGHT, y, "limit")
    return svg.markup()


def clearance_drawing(
    time: FloatArray, clearance: FloatArray, certified_time: FloatArray, certified: FloatArray
) -> Markup:
    """Distance between solids that must stay apart, and what the certificates promised.

    Args:
        time: (A,) s.
        clearance: (A,) m.
        certified_time: (B,) s.
        certified: (B,) m, nan where nothing is promised.
    """
    svg = Svg(_WIDTH, 190.0, "smallest clearance over time, measured and certified")
    known = 1e3 * np.concatenate([clearance[np.isfinite(clearance)], certified[np.isfinite(certified)]])
    top = float(np.clip(1.15 * np.max(known, initial=10.0), 10.0, 250.0))
    low = min(0.0, float(np.min(known, initial=0.0)))
    axes = Axes(svg, _span(time), (low, top), box=(_LEFT, 22.0, _RIGHT, 168.0))
    axes.frame("time, s", [t for t in nice_ticks(low, top, 5) if t < 0.97 * top])
    axes.line(*thinned(certified_time, 1e3 * certified), "promise")
    axes.line(*thinned(time, 1e3 * clearance))
    y = float(axes.py(0.0))
    svg.line(_LEFT, y, _RIGHT, y, "limit")
    _legend(svg, (("measured", "bound"), ("certified: never below", "f-promise")))
    return svg.markup()


def share_drawing(curves: Sequence[tuple[str, FloatArray, FloatArray]], label: str) -> Markup:
    """Shares of a proved bound over time, logarithmic, with 100 % as the limit.

    Args:
        curves: at most two: name, time (K,) s, share (K,), 1 is the bound.
        label: of the drawing.
    """
    svg = Svg(_WIDTH, 190.0, label)
    known = np.concatenate([share[np.isfinite(share)] for _, _, share in curves])
    top = 100.0 * max(2.0, 1.5 * float(np.max(known, initial=0.0)))
    times = np.concatenate([time for _, time, _ in curves])
    axes = Axes(svg, _span(times), (0.01, top), box=(_LEFT, 22.0, _RIGHT, 168.0), log=True)
    axes.frame("time, s", (0.01, 0.1, 1.0, 10.0, 100.0), ("0.01 %", "0.1 %", "1 %", "10 %", "100 %"))
    for (_, time, share), style in zip(curves, ("line", "line line-2"), strict=False):
        axes.line(*thinned(time, 100.0 * np.where(share > 1e-4, share, np.nan)), style)
    y = float(axes.py(100.0))
    svg.line(_LEFT, y, _RIGHT, y, "limit")
    _legend(svg, [(name, style) for (name, _, _), style in zip(curves, ("bound", "f-2"), strict=False)])
    return svg.markup()


def histogram_drawing(histogram: TimeHistogram, label: str) -> Markup:
    """Counts of times; heights are logarithmic so that single late ones show.

    Args:
        histogram: of the 1 kHz loop.
        label: of the drawing.
    """
    svg = Svg(_WIDTH, 130.0, label)
    counts = np.array(histogram.counts, float)
    texts = [_micro(upper) for upper in histogram.upper_us]
    texts.append(f"> {texts[-1]}" if texts else "all")
    if counts.size != len(texts) or not counts.size:
        return svg.markup()
    step = (_RIGHT - 10.0) / counts.size
    height = np.log10(counts + 1.0) / max(float(np.log10(counts.max() + 1.0)), 1e-9)
    for i, (count, share) in enumerate(zip(histogram.counts, height, strict=True)):
        x, y = 10.0 + i * step, 104.0 - 84.0 * float(share)
        svg.rect(x + 1.0, y, step - 2.0, 104.0 - y, "bar", 1.5)
        if count:
            svg.text(x + 0.5 * step, y - 3.0, _short(count), "t-muted", "middle")
        if i % 2 == 0:
            last = i == counts.size - 1
            svg.text(
                _RIGHT if last else x + 0.5 * step, 119.0, texts[i], "t-muted", "end" if last else "middle"
            )
        svg.title(x, 10.0, step, 100.0, f"{count} times up to {texts[i]}")
    svg.line(10.0, 104.0, _RIGHT, 104.0, "axis")
    return svg.markup()


def _legend(svg: Svg, entries: Sequence[tuple[str, str]]) -> None:
    place = _LEFT
    for name, style in entries:
        svg.rect(place, 6.0, 12.0, 4.0, style, 1.5)
        svg.text(place + 16.0, 12.0, name, "t-muted")
        place += 30.0 + 6.3 * len(name)


def _span(time: FloatArray) -> tuple[float, float]:
    low = float(np.min(time, initial=0.0))
    return low, max(float(np.max(time, initial=low)), low + 1e-3)


def _micro(value: float) -> str:
    return f"{1e-3 * value:g} ms" if value >= 1000.0 else f"{value:g} \N{MICRO SIGN}s"


def _short(count: int) -> str:
    return str(count) if count < 10_000 else f"{count / 1000:.0f}k"
