"""Motions that excite an arm's parameters: Fourier series within limits of positions and velocities.

Limits, loops and the information are looked at in samples: nothing here is certified, and nothing knows of obstacles.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from safe_sysid.core.arrays import FloatArray, IntArray
from safe_sysid.dynamics.closed_chain import ClosureError, Mechanism
from safe_sysid.errors import ParameterError

__all__ = ["CRITERIA", "Waves", "box_of_motions", "exciting"]

#: What the best series is chosen by: the determinant of the information, or the condition number of the regressor's
#: columns [Ayusawa2017], both of columns of length one; the determinant counts their lengths, too, half.
CRITERIA = ("determinant", "condition")
_HARMONICS, _ROOM, _SAMPLES, _WIDEST = 5, 0.85, 400, 2.0


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
        """Positions, velocities and accelerations (N, n_a) at N times. ``t``: (N,) s."""
        angle = self.frequency * t[:, None, None] + self.phase
        rate = self.size * self.frequency
        return (
            self.middle + np.sum(self.size * np.sin(angle), axis=2),
            np.sum(rate * np.cos(angle), axis=2),
            -np.sum(rate * self.frequency * np.sin(angle), axis=2),
        )


def box_of_motions(mechanism: Mechanism) -> tuple[FloatArray, FloatArray]:
    """Lower and upper positions (n_a,) of the motors that motions stay within: limits, at most 2 rad from 0."""
    low, high = (x[mechanism.actuated] for x in (mechanism.position_lower, mechanism.position_upper))
    return np.maximum(low, -_WIDEST), np.minimum(high, _WIDEST)


def exciting(
    mechanism: Mechanism,
    columns: IntArray,
    rng: np.random.Generator,
    seconds: float = 10.0,
    velocity: float = 4.0,
    tries: int = 25,
    criterion: str = "determinant",
) -> Waves:
    """A Fourier series within the limits, the best of some.

    Args:
        columns: of the regressor that are independent and wanted.
        velocity: largest, rad/s.

    Raises:
        ParameterError: an unknown criterion, or no series that excites all columns.
    """
    if criterion not in CRITERIA:
        raise ParameterError(f"criterion = {criterion!r}: expected one of {', '.join(CRITERIA)}")
    low, high = box_of_motions(mechanism)
    count, middle = len(low), 0.5 * (low + high)
    t = np.linspace(0.0, seconds, _SAMPLES)
    best, chosen = -np.inf, None
    for _ in range(tries):
        base = 2.0 * np.pi / seconds * np.arange(1, 4 * _HARMONICS + 1)
        picked = np.stack([rng.choice(base, _HARMONICS, replace=False) for _ in range(count)])
        phase, size = rng.uniform(0, 2 * np.pi, picked.shape), rng.normal(size=picked.shape) / picked
        q, qd, _ = Waves(middle, size, picked, phase).at(t)
        reach = np.max(np.abs(q - middle), axis=0) / (0.5 * _ROOM * (high - low))
        rush = np.max(np.abs(qd), axis=0) / velocity
        series = Waves(middle, size / np.maximum(reach, rush)[:, None], picked, phase)
        try:
            motion = mechanism.motion(*series.at(t), t)
        except ClosureError:
            continue
        value = _worth(mechanism.regressor(motion)[:, :, columns].reshape(-1, len(columns)), criterion)
        if value > best:
            best, chosen = value, series
    if chosen is None:
        raise ParameterError(
            f"{mechanism.name}: none of {tries} series excites all {len(columns)} wanted parameters: expected one"
        )
    return chosen


def _worth(rows: FloatArray, criterion: str) -> float:
    """Of a regressor's rows; minus infinity where columns are zero or dependent."""
    scale = np.linalg.norm(rows, axis=0)
    if np.any(scale == 0.0):
        return -np.inf
    values = np.linalg.eigvalsh((rows / scale).T @ (rows / scale))
    if values[0] <= 1e-14:
        return -np.inf
    if criterion == "condition":
        return -float(values[-1] / values[0])
    return float(np.sum(np.log(values)) + 0.5 * np.sum(np.log(scale)))
