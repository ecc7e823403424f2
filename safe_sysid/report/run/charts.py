"""Charts of a run: plans, torques, clearance, tracking and timing; and the picture of its intervals over time."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from markupsafe import Markup

from safe_sysid.core.arrays import FloatArray
from safe_sysid.core.layout import PAYLOAD_NAMES, PAYLOAD_UNITS
from safe_sysid.decimals import share_at_most, width_share
from safe_sysid.picture_style import INK, new_figure, save_figure, style_axis
from safe_sysid.report.drawing.chart import AMBER, BLUE, GREY, MUTED, RED, SOFT, VIOLET, chart, markup, thinned
from safe_sysid.report.run.logs import PlanEntry
from safe_sysid.report.run.summary import TimeHistogram

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = [
    "clearance_drawing",
    "histogram_drawing",
    "plot_bounds",
    "share_drawing",
    "timeline_drawing",
    "torque_drawing",
]


_BOUND, _TRUTH, _PRIOR = "#1f6fb4", "#d1495b", "#eceff3"
_MATH = dict(
    zip(
        PAYLOAD_NAMES,
        ("m", "m c_x", "m c_y", "m c_z", "I_{xx}", "I_{xy}", "I_{yy}", "I_{xz}", "I_{yz}", "I_{zz}"),
        strict=True,
    )
)


def plot_bounds(
    path: str | Path,
    time: FloatArray,
    lower: FloatArray,
    nominal: FloatArray,
    upper: FloatArray,
    prior: tuple[FloatArray, FloatArray],
    truth: FloatArray | None,
    end: float,
    title: str,
) -> None:
    """Ten panels: bounds over time.

    Args:
        time: (U,) s, when each update came.
        lower: (U, 10) of the updates. nominal, upper: the same.
        nominal: (U, 10).
        upper: (U, 10).
        prior: lower and upper, (10,) each, what holds before the first update.
        truth: (10,), or None if it is not known.
        end: s, where the time axis ends.
    """
    figure = new_figure(16.0, 7.2, title)
    axes = figure.subplots(2, 5, sharex=True)
    times = np.concatenate([[0.0], time, [max(end, float(time[-1]) if len(time) else end)]])
    for i, axis in enumerate(axes.flat):
        low, high = float(prior[0][i]), float(prior[1][i])
        lo = np.concatenate([[low], lower[:, i], [lower[-1, i] if len(time) else low]])
        hi = np.concatenate([[high], upper[:, i], [upper[-1, i] if len(time) else high]])
        share = width_share(lo[-1], hi[-1], low, high)
        axis.axhspan(low, high, color=_PRIOR, lw=0, label="prior")
        axis.fill_between(times, lo, hi, step="post", color=_BOUND, alpha=0.25, lw=0, label="guaranteed bounds")
        axis.step(times, lo, where="post", color=_BOUND, lw=1.3)
        axis.step(times, hi, where="post", color=_BOUND, lw=1.3)
        if len(time):
            axis.step(
                np.append(time, times[-1]),
                np.append(nominal[:, i], nominal[-1, i]),
                where="post",
                color=INK,
                lw=1.0,
                ls=":",
                label="nominal",
            )
        if truth is not None:
            axis.axhline(truth[i], color=_TRUTH, lw=1.6, label="truth")
        pad = 0.06 * (high - low or 1.0)
        axis.set_ylim(low - pad, high + pad)
        axis.set_xlim(0.0, times[-1] or 1.0)
        unit = PAYLOAD_UNITS[i].replace("^2", "²")
        axis.set_title(f"${_MATH[PAYLOAD_NAMES[i]]}$  [{unit}]", fontsize=11, loc="left")
        axis.set_title(f"{share_at_most(share, places=0)} of prior", fontsize=9, loc="right", color=_BOUND)
        style_axis(axis)
    for axis in axes[-1]:
        axis.set_xlabel("time [s]")
    _legend(figure, axes.flat[0])
    save_figure(figure, path)


def _legend(figure: Figure, axis: Axes) -> None:
    handles, labels = axis.get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=max(len(labels), 1), frameon=False, fontsize=10)


_STATES = {"holding": GREY, "tracking": BLUE, "braking": AMBER, "fault": RED}
_PLAN = "#7aa7d3"


def timeline_drawing(
    plans: Sequence[PlanEntry], states: Sequence[tuple[str, float, float]], updates: Sequence[float], end: float
) -> Markup:
    """What went on: plans until their hand-over and their braking ends, states of the controller, updates.

    Args:
        states: of the controller: name, begin and end, s.
        updates: times of the updates, s.
        end: of the axis, s.
    """
    axis = chart(128.0, "", width=680.0, left=64.0)
    axis.set(xlim=(0.0, max(end, 1e-3)), ylim=(0.0, 5.0), yticks=[0.5, 2.0, 4.0])
    axis.set_yticklabels(["bounds", "controller", "plans"])
    axis.grid(False, axis="y")
    axis.grid(True, axis="x", color="#dfe4ea")
    axis.xaxis.set_major_formatter("{x:g} s")
    for plan in (plan for plan in plans if plan.planned):
        start, over = plan.start, plan.hand_over or plan.start
        row = (4.1 if plan.sequence % 2 == 0 else 3.2, 0.7)
        axis.broken_barh([(start, max((plan.end or 0.0) - start, 0.0))], row, color=SOFT, lw=0)
        colour = VIOLET if plan.purpose == "task" else _PLAN
        axis.broken_barh([(start, max(over - start, 0.0))], row, color=colour, lw=0)
        if over - start > 0.025 * end:
            axis.text(start + 0.005 * end, row[0] + 0.35, str(plan.sequence), va="center", fontsize=10.0)
    for colour in _STATES.values():
        spans = [(a, max(b - a, 0.0)) for name, a, b in states[:500] if _STATES.get(name, GREY) == colour]
        axis.broken_barh(spans, (1.65, 0.7), color=colour, lw=0)
    axis.plot(list(updates)[:500], [0.5] * len(updates[:500]), "D", ms=5.0, color=BLUE, lw=0)
    return markup(axis, "plans, states of the controller and updates of the bounds over time")


def torque_drawing(time: FloatArray, torque: FloatArray, limit: float | None, name: str) -> Markup:
    """Torque of one joint between its limits.

    ``time``: (K,) s; ``torque``: (K,) N m or N; ``limit``: N m or N; None if not known.
    """
    axis = chart(96.0)
    finite = torque[np.isfinite(torque)]
    most = max(float(np.max(np.abs(finite), initial=0.0)), 1e-6)
    size = 1.12 * (max(limit, most) if limit is not None else most)
    axis.set(xlim=_span(time), ylim=(-size, size))
    axis.plot(*thinned(time, torque), color=BLUE, lw=1.3)
    if limit is not None:
        axis.set_yticks([-limit, 0.0, limit])
        axis.hlines([-limit, limit], *_span(time), color=RED, lw=1.2, ls="dashed")
    else:
        axis.locator_params(axis="y", nbins=3)
    return markup(axis, f"torque of {name} over time")


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
    axis = chart(190.0, top=22.0)
    known = 1e3 * np.concatenate([clearance[np.isfinite(clearance)], certified[np.isfinite(certified)]])
    top = float(np.clip(1.15 * np.max(known, initial=10.0), 10.0, 250.0))
    low = min(0.0, float(np.min(known, initial=0.0)))
    axis.set(xlim=_span(time), ylim=(low, top))
    axis.plot(*thinned(time, np.minimum(1e3 * clearance, top)), color=BLUE, lw=1.3, label="measured")
    axis.plot(
        *thinned(certified_time, np.minimum(1e3 * certified, top)),
        color="#8a5a00",
        lw=1.4,
        label="certified: never below",
    )
    axis.axhline(0.0, color=RED, lw=1.2, ls="dashed")
    return markup(axis, "smallest clearance over time, measured and certified")


def share_drawing(curves: Sequence[tuple[str, FloatArray, FloatArray]], label: str) -> Markup:
    """Shares of a proved bound over time, logarithmic, with 100 % as the limit.

    ``curves``: at most two: name, time (K,) s, share (K,), 1 is the bound.
    """
    axis = chart(190.0, top=22.0)
    known = np.concatenate([share[np.isfinite(share)] for _, _, share in curves])
    times = np.concatenate([time for _, time, _ in curves])
    axis.set(xlim=_span(times), yscale="log", ylim=(0.01, 100.0 * max(2.0, 1.5 * np.max(known, initial=0.0))))
    axis.set_yticks([0.01, 0.1, 1.0, 10.0, 100.0], ["0.01 %", "0.1 %", "1 %", "10 %", "100 %"])
    axis.minorticks_off()
    for (name, time, share), colour in zip(curves, (BLUE, VIOLET), strict=False):
        axis.plot(*thinned(time, 100.0 * np.where(share > 1e-4, share, np.nan)), color=colour, lw=1.3, label=name)
    axis.axhline(100.0, color=RED, lw=1.2, ls="dashed")
    return markup(axis, label)


def histogram_drawing(histogram: TimeHistogram, label: str) -> Markup:
    """Counts of times; heights are logarithmic so that single late ones show. ``histogram``: of the 1 kHz loop."""
    texts = [_micro(upper) for upper in histogram.upper_us]
    texts.append(f"> {texts[-1]}" if texts else "all")
    axis = chart(130.0, "", left=10.0, top=16.0)
    axis.grid(False)
    axis.set_yticks([])
    if len(histogram.counts) == len(texts):
        places = np.arange(len(texts))
        bars = axis.bar(places, np.log10(np.array(histogram.counts, float) + 1.0), width=0.9, color=_PLAN)
        axis.bar_label(bars, [_short(count) for count in histogram.counts], color=MUTED, fontsize=10.0)
        axis.set_xticks(places[::2], texts[::2])
    return markup(axis, label)


def _span(time: FloatArray) -> tuple[float, float]:
    low = float(np.min(time, initial=0.0))
    return low, max(float(np.max(time, initial=low)), low + 1e-3)


def _micro(value: float) -> str:
    return f"{1e-3 * value:g} ms" if value >= 1000.0 else f"{value:g} \N{MICRO SIGN}s"


def _short(count: int) -> str:
    return "" if not count else str(count) if count < 10_000 else f"{count / 1000:.0f}k"
