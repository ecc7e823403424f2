"""What the arm does in the experiments: Fourier series that excite, and the sines that are tracked."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from safe_sysid.dynamics.closed_chain import Mechanism

__all__ = ["Waves", "exciting", "sines"]

FloatArray = NDArray[np.float64]
_HARMONICS, _ROOM = 5, 0.85


@dataclass(frozen=True, eq=False)
class Waves:
    """Sums of sines per joint with a motor: ``q_j = middle_j + sum_k size_jk sin(w_jk t + phase_jk)``.

    Attributes:
        middle: (n_a,) rad.
        size: (n_a, K) rad.
        frequency: (n_a, K) rad/s.
        phase: (n_a, K) rad.
    """

    middle: FloatArray
    size: FloatArray
    frequency: FloatArray
    phase: FloatArray

    def at(self, t: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Positions, velocities and accelerations (N, n_a) at N times.

        Args:
            t: (N,) s.
        """
        angle = self.frequency * t[:, None, None] + self.phase
        rate = self.size * self.frequency
        return (
            self.middle + np.sum(self.size * np.sin(angle), axis=2),
            np.sum(rate * np.cos(angle), axis=2),
            -np.sum(rate * self.frequency * np.sin(angle), axis=2),
        )


def _box(mechanism: Mechanism) -> tuple[FloatArray, FloatArray]:
    low, high = (x[mechanism.actuated] for x in (mechanism.position_lower, mechanism.position_upper))
    return np.maximum(low, -2.0), np.minimum(high, 2.0)


def exciting(
    mechanism: Mechanism,
    columns: NDArray[np.int64],
    rng: np.random.Generator,
    seconds: float = 10.0,
    velocity: float = 4.0,
    tries: int = 25,
) -> Waves:
    """A Fourier series within the limits, the best of some by the determinant of what it says of base parameters.

    Limits are kept at samples; loops are followed at samples.

    Args:
        mechanism: that moves.
        columns: of the regressor that are independent and wanted.
        rng: draws the series.
        seconds: its period.
        velocity: largest, rad/s.
        tries: series that are drawn.
    """
    low, high = _box(mechanism)
    count, middle = len(low), 0.5 * (low + high)
    t = np.linspace(0.0, seconds, 400)
    best, chosen = -np.inf, None
    for _ in range(tries):
        base = 2.0 * np.pi / seconds * np.arange(1, 4 * _HARMONICS + 1)
        picked = np.stack([rng.choice(base, _HARMONICS, replace=False) for _ in range(count)])
        series = Waves(
            middle, rng.normal(size=picked.shape) / picked, picked, rng.uniform(0, 2 * np.pi, picked.shape)
        )
        q, qd, _ = series.at(t)
        reach = np.max(np.abs(q - middle), axis=0) / (0.5 * _ROOM * (high - low))
        rush = np.max(np.abs(qd), axis=0) / velocity
        series = Waves(middle, series.size / np.maximum(reach, rush)[:, None], picked, series.phase)
        rows = mechanism.regressor(mechanism.motion(*series.at(t), t))[:, :, columns].reshape(
            -1, len(columns)
        )
        scale = np.linalg.norm(rows, axis=0)
        if np.any(scale == 0.0):
            continue
        value = float(np.linalg.slogdet((rows / scale).T @ (rows / scale))[1]) + 0.5 * float(
            np.sum(np.log(scale))
        )
        if value > best:
            best, chosen = value, series
    if chosen is None:
        raise RuntimeError("no series excites every wanted parameter")
    return chosen


def sines(mechanism: Mechanism, velocity: float, rng: np.random.Generator) -> Waves:
    """One sine per joint with a given largest velocity.

    Args:
        mechanism: that moves.
        velocity: rad/s.
        rng: draws phases and sizes.
    """
    low, high = _box(mechanism)
    size = np.minimum(0.5 * (high - low) * rng.uniform(0.6, 0.8, len(low)), 0.8)
    frequency = velocity / size
    phase = rng.uniform(0, 2 * np.pi, len(low))
    return Waves(0.5 * (low + high), size[:, None], frequency[:, None], phase[:, None])
