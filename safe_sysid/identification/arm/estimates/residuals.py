"""Diagnosis of torque residuals: what they still depend on, and which model term would explain it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.signal import butter, sosfreqz

from safe_sysid.core.arrays import BoolArray, FloatArray
from safe_sysid.identification.arm.logs.preparation import ORDER, ProcessingEffect

__all__ = ["ResidualFinding", "diagnose_residuals", "filtered_noise"]

_BINS = 24
#: Share of a residual's variance that is worth a word.
_WORD = 0.1
_ALIKE = 0.05  # of correlations: less is no difference
_MISSING = {
    "velocity": "friction that is not linear in Coulomb, viscous and what was tried",
    "load": "friction that grows with load, or a torque constant or gear ratio that is off",
    "position": "torque ripple, a spring or cable, or a joint zero that is off",
    "acceleration": "inertia that the model has not, a flexible joint, or torques that are delayed",
    "time": "drift, as of friction of a joint that warms up",
}


@dataclass(frozen=True)
class ResidualFinding:
    """Result for one joint."""

    joint: str  #: its name
    rms: float  #: N m
    correlation: float  #: of a residual with the next one
    correlation_of_noise: float  #: what white noise of the torques would have, through the log's filter
    white: bool  #: whether neighbours are no more alike than those of white noise
    #: of its variance that a function of velocity, load, position, acceleration or time explains
    shares: dict[str, float]
    missing: tuple[str, ...]  #: in words, the largest first


def diagnose_residuals(
    residual: FloatArray,
    model: FloatArray,
    q: FloatArray,
    qd: FloatArray,
    qdd: FloatArray,
    joint_names: Sequence[str],
    counts: BoolArray | None = None,
    correlation_of_noise: float = 0.0,
) -> list[ResidualFinding]:
    """Test the residuals of every joint.

    Args:
        residual: (N, n) measured less model, in order of time, N m.
        model: (N, n) N m.
        q: (N, n) rad.
        qd: (N, n) rad/s.
        qdd: (N, n) rad/s^2.
        joint_names: n names.
        counts: (N, n) which to look at; None: all.
        correlation_of_noise: of white noise with the next sample, as :func:`filtered_noise` says.
    """
    found = []
    time = np.arange(len(residual), dtype=float)
    for j, name in enumerate(joint_names):
        part = np.ones(len(residual), bool) if counts is None else counts[:, j]
        x = residual[part, j]
        centred = x - x.mean()
        square = max(float(centred @ centred), 1e-300)
        correlation = float(centred[1:] @ centred[:-1]) / square
        independent = len(x) * (1.0 - min(max(correlation, 0.0), 0.999)) / (1.0 + max(correlation, 0.0))
        of = {
            "velocity": qd[part, j], "load": model[part, j], "position": q[part, j],
            "acceleration": qdd[part, j], "time": time[part],
        }  # fmt: skip
        shares = {key: _explained(centred, values, independent) for key, values in of.items()}
        worst = sorted(shares, key=lambda key: -shares[key])
        missing = tuple(
            f"{100.0 * shares[key]:.0f} % depends on {key}: {_MISSING[key]}" for key in worst if shares[key] > _WORD
        )
        white = correlation <= correlation_of_noise + _ALIKE + 3.0 / np.sqrt(max(len(x), 1))
        rms = float(np.sqrt(np.mean(x**2)))
        found.append(ResidualFinding(name, rms, correlation, correlation_of_noise, bool(white), shares, missing))
    return found


def filtered_noise(effect: ProcessingEffect) -> float:
    """Correlation of neighbouring samples of white noise after a log's filter and decimation.

    ``effect``: of the log's processing.
    """
    if not np.isfinite(effect.cutoff_hz):
        return 0.0
    sos = butter(ORDER, effect.cutoff_hz, fs=effect.rate_hz, output="sos")
    frequency, response = sosfreqz(sos, 4096, fs=effect.rate_hz)
    power = np.abs(response) ** 4  # forwards and backwards
    return float(power @ np.cos(2.0 * np.pi * frequency * effect.decimation / effect.rate_hz) / power.sum())


def _explained(centred: FloatArray, values: FloatArray, independent: float) -> float:
    """Share of the variance explained by means over bins of equal count, less the share that chance explains."""
    order = np.argsort(values, kind="stable")
    parts = np.array_split(centred[order], _BINS)
    between = sum(len(part) * part.mean() ** 2 for part in parts if len(part))
    share = float(between) / max(float(centred @ centred), 1e-300)
    chance = (_BINS - 1) / max(independent, _BINS)
    return float(np.clip((share - chance) / max(1.0 - chance, 1e-3), 0.0, 1.0))
