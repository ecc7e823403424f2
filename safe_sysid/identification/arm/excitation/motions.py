"""Motions that excite an arm's parameters: Fourier series within limits of positions and velocities.

Limits, loops and the information are looked at in samples: nothing here is certified, and nothing knows of obstacles.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from safe_sysid.core.arrays import FloatArray, IntArray
from safe_sysid.dynamics.closed_chain import ClosureError, Mechanism
from safe_sysid.errors import ParameterError

__all__ = ["CRITERIA", "RAMP", "SineWaves", "box_of_motions", "exciting"]

#: What the best series is chosen by: the determinant of the information, or the condition number of the regressor's
#: columns [Ayusawa2017], both of columns of length one; the determinant counts their lengths, too, half.
CRITERIA = ("determinant", "condition")
_HARMONICS, _ROOM, _SAMPLES, _WIDEST = 5, 0.85, 400, 2.0
#: s, in which a motion from rest to rest grows to its size and shrinks again.
RAMP = 1.5


@dataclass(frozen=True, eq=False)
class SineWaves:
    """Sums of sines per joint with a motor: ``q_j = middle_j + sum_k size_jk sin(w_jk t + phase_jk)``."""

    middle: FloatArray  #: (n_a,) rad
    size: FloatArray  #: (n_a, K) rad
    frequency: FloatArray  #: (n_a, K) rad/s
    phase: FloatArray  #: (n_a, K) rad
    seconds: float = 0.0  #: after which it ends, if it begins and ends at rest in the middle
    ramp: float = 0.0  #: s, in which it grows from there; 0: it never rests

    def at(self, t: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Positions, velocities and accelerations (N, n_a) at N times. ``t``: (N,) s."""
        angle = self.frequency * t[:, None, None] + self.phase
        rate = self.size * self.frequency
        away = np.sum(self.size * np.sin(angle), axis=2)
        speed = np.sum(rate * np.cos(angle), axis=2)
        bend = -np.sum(rate * self.frequency * np.sin(angle), axis=2)
        if self.ramp > 0.0:
            s, ds, dds = self._share(t)
            away, speed, bend = s * away, s * speed + ds * away, s * bend + 2.0 * ds * speed + dds * away
        return self.middle + away, speed, bend

    def _share(self, t: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray]:
        """(N, 1) amplitude of the sines from 0 to 1 and back, smooth at both ends, with its first two derivatives."""
        left, right = t / self.ramp, (self.seconds - t) / self.ramp
        x, sign = np.clip(np.minimum(left, right), 0.0, 1.0), np.where(left < right, 1.0, -1.0) / self.ramp
        s = x**3 * (10.0 - 15.0 * x + 6.0 * x**2)
        ds, dds = 30.0 * x**2 * (1.0 - x) ** 2, 60.0 * x * (1.0 - x) * (1.0 - 2.0 * x)
        return s[:, None], (sign * ds)[:, None], (sign**2 * dds)[:, None]


def box_of_motions(mechanism: Mechanism) -> tuple[FloatArray, FloatArray]:
    """Lower and upper positions (n_a,) of the motors for exciting motions: the limits, and at most 2 rad from 0."""
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
    before: FloatArray | None = None,
    ramp: float = 0.0,
    samples: int = _SAMPLES,
) -> SineWaves:
    """Draw several Fourier series within the limits and return the best one.

    Args:
        columns: of the regressor that are independent and wanted.
        velocity: largest, rad/s; of a motor that the URDF knows to be slower, that.
        before: (c, c) Gram matrix of these columns along motions before, as of so many samples.
        ramp: s, in which it leaves rest, and comes to it at the end; 0: it never rests.
        samples: that limits and loops are looked at in, ends included.

    Raises:
        ParameterError: an unknown criterion, a ramp that is too long, or no series that excites all columns.
    """
    if not 0.0 <= 2.0 * ramp < seconds:
        raise ParameterError(f"ramp = {ramp!r} s: expected 0 to less than half of {seconds} s")
    if criterion not in CRITERIA:
        raise ParameterError(f"criterion = {criterion!r}: expected one of {', '.join(CRITERIA)}")
    low, high = box_of_motions(mechanism)
    count, middle = len(low), 0.5 * (low + high)
    fastest = np.minimum(velocity, mechanism.velocity_upper[mechanism.actuated])
    t = np.linspace(0.0, seconds, samples)
    best, chosen = -np.inf, None
    for _ in range(tries):
        base = 2.0 * np.pi / seconds * np.arange(1, 4 * _HARMONICS + 1)
        picked = np.stack([rng.choice(base, _HARMONICS, replace=False) for _ in range(count)])
        phase, size = rng.uniform(0, 2 * np.pi, picked.shape), rng.normal(size=picked.shape) / picked
        q, qd, _ = SineWaves(middle, size, picked, phase, seconds, ramp).at(t)
        reach = np.max(np.abs(q - middle), axis=0) / (0.5 * _ROOM * (high - low))
        rush = np.max(np.abs(qd), axis=0) / fastest
        series = SineWaves(middle, size / np.maximum(reach, rush)[:, None], picked, phase, seconds, ramp)
        try:
            motion = mechanism.motion(*series.at(t), t)
        except ClosureError:
            continue
        rows = mechanism.regressor(motion)[:, :, columns].reshape(-1, len(columns))
        value = _worth(rows.T @ rows + (0.0 if before is None else before), criterion)
        if value > best:
            best, chosen = value, series
    if chosen is None:
        raise ParameterError(
            f"{mechanism.name}: none of {tries} series excites all {len(columns)} wanted parameters: expected one"
        )
    return chosen


def _worth(gram: FloatArray, criterion: str) -> float:
    """Value of a Gram matrix of regressor columns; minus infinity if columns are zero or dependent."""
    scale = np.sqrt(np.diag(gram))
    if np.any(scale == 0.0):
        return -np.inf
    values = np.linalg.eigvalsh(gram / scale / scale[:, None])
    if values[0] <= 1e-14:
        return -np.inf
    if criterion == "condition":
        return -float(values[-1] / values[0])
    return float(np.sum(np.log(values)) + 0.5 * np.sum(np.log(scale)))
