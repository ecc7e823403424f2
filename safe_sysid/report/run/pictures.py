"""The picture of a run beside its page: the ten intervals over time, with the truth in them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from safe_sysid.core.arrays import FloatArray
from safe_sysid.core.layout import PAYLOAD_NAMES, PAYLOAD_UNITS
from safe_sysid.decimals import share_at_most, width_share
from safe_sysid.picture_style import INK, new_figure, save_figure, style_axis

__all__ = ["plot_bounds"]


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
