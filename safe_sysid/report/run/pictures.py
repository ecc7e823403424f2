"""Pictures of a run: bounds over time with the truth in them, torques with their limits, clearance and tracking."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter
from numpy.typing import NDArray

from safe_sysid.core.layout import PAYLOAD_NAMES, PAYLOAD_UNITS
from safe_sysid.decimals import at_least, share_at_most, width_share
from safe_sysid.picture_style import INK, new_figure, save_figure, style_axis

__all__ = ["plot_bounds", "plot_safety", "plot_torques"]

FloatArray = NDArray[np.float64]

_BOUND, _TRUTH, _LIMIT, _PRIOR = "#1f6fb4", "#d1495b", "#c1121f", "#eceff3"
_JOINTS = ("#1f6fb4", "#e08e0b", "#2a9d5c", "#8a4fbe", "#b5651d", "#d1609c", "#5c6770", "#9aa516", "#17a2b8")
_MATH = dict(
    zip(
        PAYLOAD_NAMES,
        ("m", "m c_x", "m c_y", "m c_z", "I_{xx}", "I_{xy}", "I_{yy}", "I_{xz}", "I_{yz}", "I_{zz}"),
        strict=True,
    )
)
_MAX_POINTS = 4000  # per line: a pixel cannot show more


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
        path: of the PNG file.
        time: (U,) s, when each update came.
        lower: (U, 10) of the updates. nominal, upper: the same.
        nominal: (U, 10).
        upper: (U, 10).
        prior: lower and upper, (10,) each, what holds before the first update.
        truth: (10,), or None if it is not known.
        end: s, where the time axis ends.
        title: of the figure.
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
        axis.fill_between(
            times, lo, hi, step="post", color=_BOUND, alpha=0.25, lw=0, label="guaranteed bounds"
        )
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


def plot_torques(
    path: str | Path,
    time: FloatArray,
    applied: FloatArray,
    limits: FloatArray,
    joint_names: Sequence[str],
    units: Sequence[str],
    plan_starts: Sequence[float],
    title: str,
) -> None:
    """One panel per joint: applied torque between its limits.

    Args:
        path: of the PNG file.
        time: (N,) s.
        applied: (N, n).
        limits: (n,).
        joint_names: n names.
        units: of their torques.
        plan_starts: s, when a new trajectory began.
        title: of the figure.
    """
    n = len(joint_names)
    columns = min(4, n)
    rows = math.ceil(n / columns)
    figure = new_figure(4.0 * columns, 2.7 * rows + 1.2, title)
    axes = np.atleast_1d(figure.subplots(rows, columns, sharex=True, squeeze=False)).ravel()
    kept = _thin(time, applied)
    for j, axis in enumerate(axes):
        if j >= n:
            axis.set_axis_off()
            continue
        limit = float(limits[j])
        axis.axhspan(limit, 2.0 * limit, color=_LIMIT, alpha=0.10, lw=0)
        axis.axhspan(-2.0 * limit, -limit, color=_LIMIT, alpha=0.10, lw=0)
        for sign in (-1.0, 1.0):
            axis.axhline(sign * limit, color=_LIMIT, lw=1.3, ls="--", label="limit" if sign > 0 else None)
        _plan_lines(axis, plan_starts)
        axis.plot(time[kept], applied[kept, j], color=_BOUND, lw=1.0, label="torque")
        axis.axhline(0.0, color=INK, lw=0.5, alpha=0.4)
        largest = float(np.max(np.abs(applied[:, j]))) if len(time) else 0.0
        axis.set_ylim(-1.15 * max(limit, largest), 1.15 * max(limit, largest))
        axis.set_xlim(*_span(time))
        axis.set_title(f"{joint_names[j]}  [{units[j]}]", fontsize=10.5, loc="left")
        axis.set_title(
            f"up to {share_at_most(largest / limit, places=0)}", fontsize=9, loc="right", color=_BOUND
        )
        style_axis(axis)
    for j in range(max(n - columns, 0), n):
        axes[j].set_xlabel("time [s]")
        axes[j].tick_params(labelbottom=True)
    _legend(figure, axes[0])
    save_figure(figure, path)


def plot_safety(
    path: str | Path,
    clearance: tuple[FloatArray, FloatArray],
    certified: FloatArray,
    tracking_time: FloatArray,
    position_share: FloatArray,
    energy_share: FloatArray,
    joint_names: Sequence[str],
    plan_starts: Sequence[float],
    title: str,
) -> None:
    """Clearance over time, and true tracking errors as a share of their proved bounds.

    Args:
        path: of the PNG file.
        clearance: times (C,) s and distances (C,) m.
        certified: (C,) m, what the certificates promise at these times; NaN where they say nothing.
        tracking_time: (K,) s.
        position_share: (K, n) |e| over its bound.
        energy_share: (K,) V over V_max.
        joint_names: n names.
        plan_starts: s.
        title: of the figure.
    """
    figure = new_figure(12.0, 8.2, title)
    top, bottom = figure.subplots(2, 1, sharex=True)
    time, distance = clearance
    finite = np.isfinite(distance)
    span = _span(np.concatenate([time, tracking_time]))
    if np.any(finite):
        top.axhspan(-1e3, 0.0, color=_LIMIT, alpha=0.10, lw=0)
        top.axhline(0.0, color=_LIMIT, lw=1.3, ls="--", label="contact")
        if np.any(np.isfinite(certified)):
            top.plot(time, 1e3 * certified, color=INK, lw=1.1, ls="-.", label="certified clearance")
        top.plot(time[finite], 1e3 * distance[finite], color=_BOUND, lw=1.4, label="measured clearance")
        k = int(np.argmin(np.where(finite, distance, np.inf)))
        top.plot(time[k], 1e3 * distance[k], "o", color=_BOUND, ms=5)
        _note(top, f"{at_least(distance[k], scale=1000, places=1)} mm", (time[k], 1e3 * distance[k]), span)
        largest = 1e3 * float(np.max(distance[finite]))
        smallest = 1e3 * float(np.min(distance[finite]))
        top.set_ylim(min(0.0, smallest) - 0.08 * largest, 1.1 * largest)
    top.set_title("smallest clearance, arm, payload and scene  [mm]", fontsize=10.5, loc="left")
    bottom.axhspan(100.0, 1e9, color=_LIMIT, alpha=0.10, lw=0)
    bottom.axhline(100.0, color=_LIMIT, lw=1.3, ls="--", label="proved bound")
    floor = 1e-3  # percent
    kept = _thin(tracking_time, position_share)
    for j, name in enumerate(joint_names):
        if len(kept):
            shares = np.maximum(100.0 * position_share[kept, j], floor)
            bottom.plot(tracking_time[kept], shares, color=_JOINTS[j % len(_JOINTS)], lw=0.9, label=name)
    if len(kept):
        energy = np.maximum(100.0 * energy_share[kept], floor)
        bottom.plot(tracking_time[kept], energy, color=INK, lw=1.3, alpha=0.8, label=r"$V / V_{\max}$")
    bottom.set_yscale("log")
    bottom.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    worst = 100.0 * max(float(np.max(position_share, initial=0.0)), float(np.max(energy_share, initial=0.0)))
    bottom.set_ylim(0.01, max(300.0, 2.0 * worst))
    bottom.set_title("true tracking error  [% of its proved bound]", fontsize=10.5, loc="left")
    bottom.set_xlabel("time [s]")
    for axis in (top, bottom):
        _plan_lines(axis, plan_starts)
        axis.set_xlim(*span)
        style_axis(axis)
        if axis.get_legend_handles_labels()[0]:
            axis.legend(loc="upper left", bbox_to_anchor=(1.0, 1.0), frameon=False, fontsize=9)
    save_figure(figure, path)


def _legend(figure: Figure, axis: Axes) -> None:
    handles, labels = axis.get_legend_handles_labels()
    figure.legend(
        handles, labels, loc="outside lower center", ncols=max(len(labels), 1), frameon=False, fontsize=10
    )


def _note(axis: Axes, text: str, point: tuple[float, float], span: tuple[float, float]) -> None:
    """A label beside a point, on the side where there is room."""
    right = point[0] > 0.5 * (span[0] + span[1])
    axis.annotate(
        text,
        point,
        xytext=(-8 if right else 8, 10),
        textcoords="offset points",
        ha="right" if right else "left",
        fontsize=9,
        color=INK,
    )


def _plan_lines(axis: Axes, starts: Sequence[float]) -> None:
    for i, start in enumerate(starts):
        axis.axvline(start, color=INK, lw=0.8, ls=":", alpha=0.55, label="new trajectory" if i == 0 else None)


def _span(time: FloatArray) -> tuple[float, float]:
    if not len(time):
        return 0.0, 1.0
    low, high = float(np.min(time)), float(np.max(time))
    return low, high if high > low else low + 1.0


def _thin(time: FloatArray, values: FloatArray) -> NDArray[np.intp]:
    """Indices to draw: all, or of each stretch the rows with the extreme values, so that no peak is lost."""
    size = len(time)
    if size <= _MAX_POINTS:
        return np.arange(size)
    stretches = np.array_split(np.arange(size), _MAX_POINTS // (2 * values.shape[1]))
    kept = [0, size - 1]
    for rows in stretches:
        kept += [*(rows[0] + np.argmin(values[rows], axis=0)), *(rows[0] + np.argmax(values[rows], axis=0))]
    return np.unique(kept)
