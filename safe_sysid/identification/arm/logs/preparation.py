r"""Preparation of logs for the identification of an arm: from raw samples to the samples that are used.

As in [ConstrainedSysID section IV-B]: accelerations by fourth-order central differences, a zero-phase Butterworth
filter of fourth order for all signals alike (a linear equation that holds for signals holds for filtered ones), then
one sample of ten. What real logs add comes first: stamps that jitter or repeat, gaps, velocities that are missing or
late, efforts that are currents. :class:`ProcessingEffect` says what the processing took away; :mod:`.checks` names logs
that no processing can help.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise

import numpy as np
from scipy.interpolate import CubicSpline
from scipy.signal import butter, sosfiltfilt

from safe_sysid.core.arrays import FloatArray, IntArray
from safe_sysid.dynamics.closed_chain import Mechanism, MechanismMotion
from safe_sysid.dynamics.protocol import coulomb_direction
from safe_sysid.errors import ParameterError, SafeSysIdError
from safe_sysid.identification.equations.measurements import Measurements
from safe_sysid.robot.parameters import frozen_array

__all__ = ["ORDER", "ArmData", "DataError", "Processing", "ProcessingEffect", "as_torque", "prepare"]

#: Stamps, q, qd and torque of a segment.
Signals = tuple[FloatArray, FloatArray, FloatArray, FloatArray]
ORDER = 4  # of the Butterworth filter
_GAP = 3.0  # usual periods: a longer step ends a segment
_UNIFORM = 0.02  # of a period: stamps nearer than this to a uniform clock need no resampling
_SLOWEST, _SHARE = 20.0, 0.35  # Hz, and of the rate: the cut-off where none is said is the smaller one
_LEAST = 40  # samples of a segment
_LATE = 0.3  # of a period: velocities later than this behind the positions are taken from positions


class DataError(SafeSysIdError):
    """A log cannot be used to identify the arm; the message names log, joint, value and expectation."""


@dataclass(frozen=True)
class Processing:
    """Options of the processing of logs."""

    cutoff_hz: float | None = None  #: of the Butterworth filter; None: 20 Hz, less where the rate is low; 0: no filter
    #: one sample of so many is kept; None: ten, fewer where the rate is below forty times the cut-off
    decimation: int | None = None
    velocity: str = "auto"  #: "log", "positions", or "auto": those of the log if there are any that are not late
    #: of a joint, what its effort is multiplied by, N m per unit: gear ratio times torque constant where efforts are
    #: motor currents. 1 for the others.
    torque_per_effort: Mapping[str, float] = field(default_factory=dict)
    transition: float = 0.0  #: friction transition velocity, rad/s

    def __post_init__(self) -> None:
        """Validate.

        Raises:
            ParameterError: a value that has no meaning.
        """
        if self.cutoff_hz is not None and not 0.0 <= self.cutoff_hz < np.inf:
            raise ParameterError(f"cutoff_hz = {self.cutoff_hz!r}: expected a frequency >= 0 Hz")
        if self.decimation is not None and self.decimation < 1:
            raise ParameterError(f"decimation = {self.decimation!r}: expected a whole number >= 1")
        if self.velocity not in ("log", "positions", "auto"):
            raise ParameterError(f"velocity = {self.velocity!r}: expected log, positions or auto")
        for joint, factor in self.torque_per_effort.items():
            if not (np.isfinite(factor) and factor != 0.0):
                raise ParameterError(f"torque_per_effort of {joint} = {factor!r}: expected a number, not 0")


@dataclass(frozen=True, eq=False)
class ProcessingEffect:
    """What the processing removed from one log: root mean squares per joint."""

    rate_hz: float
    cutoff_hz: float  #: of the filter; infinite without
    decimation: int  #: one sample of so many was kept
    velocity: str  #: where velocities came from, "log" or "positions"
    delay: FloatArray  #: (n,) by how much the log's velocities are behind its positions, s; nan where it has none
    jitter: float  #: root mean square of the stamps' departure from a uniform clock, s
    dropped: int  #: samples that were not used: not finite, repeated or backward stamps, too short a segment
    removed_velocity: FloatArray  #: (n,) rad/s
    removed_acceleration: FloatArray  #: (n,) rad/s^2
    removed_torque: FloatArray  #: (n,) N m
    velocity_rms: FloatArray  #: (n,) of what is left, rad/s
    acceleration_rms: FloatArray  #: (n,) rad/s^2
    torque_rms: FloatArray  #: (n,) N m


@dataclass(frozen=True, eq=False)
class ArmData:
    """Processed samples of the motorised joints, from one or several logs."""

    joint_names: tuple[str, ...]
    stamps: FloatArray  #: (N,) s, of each log by its own clock
    q: FloatArray  #: (N, n_a) rad
    qd: FloatArray  #: (N, n_a) rad/s
    qdd: FloatArray  #: (N, n_a) rad/s^2
    torque: FloatArray  #: (N, n_a) N m
    #: (S + 1,) bounds: samples ``segments[s]`` to ``segments[s + 1] - 1`` follow each other without a gap
    segments: IntArray
    logs: IntArray  #: (S,) number of the log that a segment is from
    effects: tuple[ProcessingEffect, ...] = ()
    #: (N, n_a) sign of the velocity, through the filter that the torque went through, from -1 to 1: a reversal is a
    #: step of Coulomb friction, which the filter makes a slope; None: the sign of ``qd``
    direction: FloatArray | None = None

    def __post_init__(self) -> None:
        shape = (len(self.stamps), len(self.joint_names))
        object.__setattr__(self, "stamps", frozen_array(self.stamps, shape[:1], "ArmData.stamps"))
        for name in ("q", "qd", "qdd", "torque"):
            object.__setattr__(self, name, frozen_array(getattr(self, name), shape, f"ArmData.{name}"))
        if self.direction is not None:
            object.__setattr__(self, "direction", frozen_array(self.direction, shape, "ArmData.direction"))
        segments = np.array(self.segments, np.int64)
        logs = np.array(self.logs, np.int64)
        if (
            segments.ndim != 1
            or len(logs) != len(segments) - 1
            or segments[0] != 0
            or segments[-1] != len(self)
            or np.any(np.diff(segments) < 1)
        ):
            raise ParameterError(f"ArmData.segments = {segments.tolist()}: expected 0 < .. < {len(self)}")
        for name, value in (("segments", segments), ("logs", logs)):
            value.setflags(write=False)
            object.__setattr__(self, name, value)

    def __len__(self) -> int:
        return len(self.stamps)

    def parts(self) -> list[slice]:
        """Slices of the segments."""
        return [slice(int(a), int(b)) for a, b in pairwise(self.segments)]

    def only(self, parts: Sequence[tuple[int, slice]]) -> ArmData:
        """Select samples: each new segment is given by the number of a log and a slice within one segment.

        ``parts``: in the order wanted; none empty.
        """
        index = np.concatenate([np.arange(len(self))[part] for _, part in parts])
        sizes = [len(range(*part.indices(len(self)))) for _, part in parts]
        return replace(
            self,
            stamps=self.stamps[index],
            q=self.q[index],
            qd=self.qd[index],
            qdd=self.qdd[index],
            torque=self.torque[index],
            direction=None if self.direction is None else self.direction[index],
            segments=np.concatenate([[0], np.cumsum(sizes)]),
            logs=np.array([log for log, _ in parts]),
        )

    def split(self, share: float = 0.3, validation_logs: Sequence[int] | None = None) -> tuple[ArmData, ArmData]:
        """Split into samples for identification and samples for validation.

        Args:
            share: of each log that is its last part, for validation.
            validation_logs: numbers of the logs that are for validation as a whole; ``share`` is not used then.

        Raises:
            DataError: one of the two would be empty.
        """
        pieces = [(int(log), part) for log, part in zip(self.logs, self.parts(), strict=True)]
        if validation_logs is None:
            first, last = [], []
            for log in np.unique(self.logs):
                ours = [part for number, part in pieces if number == log]
                cut = round((1.0 - share) * sum(part.stop - part.start for part in ours))
                for part in ours:
                    at = min(max(cut, 0), part.stop - part.start)
                    first.append((int(log), slice(part.start, part.start + at)))
                    last.append((int(log), slice(part.start + at, part.stop)))
                    cut -= part.stop - part.start
        else:
            first = [piece for piece in pieces if piece[0] not in validation_logs]
            last = [piece for piece in pieces if piece[0] in validation_logs]
        both = [[piece for piece in half if piece[1].stop > piece[1].start] for half in (first, last)]
        if not all(both):
            missing = "identification" if not both[0] else "validation"
            raise DataError(f"no samples for {missing}: expected some for both, see share and validation_logs")
        return self.only(both[0]), self.only(both[1])

    def motion(self, mechanism: Mechanism) -> MechanismMotion:
        """States of all joints, on the branch of the mechanism's start position.

        ``mechanism``: whose actuated joints these are, in this order.

        Raises:
            ParameterError: other joints.
            ClosureError: a loop does not close.
        """
        if mechanism.actuated_names != self.joint_names:
            raise ParameterError(
                f"joints {list(self.joint_names)}: expected {list(mechanism.actuated_names)}, those with motors"
            )
        return mechanism.motion(self.q, self.qd, self.qdd, self.stamps)


def prepare(logs: Sequence[Measurements], joint_names: Sequence[str], processing: Processing | None = None) -> ArmData:
    """Process logs into samples.

    Args:
        logs: as they were recorded, of the joints with motors.
        joint_names: n_a names, in the order of their columns.
        processing: what to do; None for the defaults.

    Raises:
        DataError: a log of other joints, without positions or torques, or too short.
    """
    processing, names = processing or Processing(), tuple(joint_names)
    for joint in processing.torque_per_effort:
        if joint not in names:
            raise DataError(f"torque_per_effort of {joint}: expected one of {', '.join(names)}")
    if not logs:
        raise DataError("no logs: expected at least one")
    found = [_one_log(k, log, names, processing) for k, log in enumerate(logs)]
    pieces = [(k, piece) for k, (pieces, _) in enumerate(found) for piece in pieces]
    stamps, q, qd, qdd, torque, direction = (np.concatenate([piece[i] for _, piece in pieces]) for i in range(6))
    return ArmData(
        names,
        stamps,
        q,
        qd,
        qdd,
        torque,
        np.concatenate([[0], np.cumsum([len(piece[0]) for _, piece in pieces])]),
        np.array([k for k, _ in pieces]),
        tuple(effect for _, effect in found),
        direction,
    )


def _one_log(
    number: int, log: Measurements, names: tuple[str, ...], processing: Processing
) -> tuple[list[tuple[FloatArray, ...]], ProcessingEffect]:
    """Process one log: segments of (stamps, q, qd, qdd, torque, direction), and what was removed."""
    if log.n != len(names):
        raise DataError(f"log {number}: {log.n} joints: expected {len(names)}: {', '.join(names)}")
    for what, values in (("positions", log.q), ("efforts", log.effort)):
        for j, name in enumerate(names):
            if not np.any(np.isfinite(values[:, j])):
                raise DataError(f"log {number}: {name} has no {what}: expected numbers")
    has_velocity = bool(np.all(np.any(np.isfinite(log.qd) & (log.qd != 0.0), axis=0)))
    if processing.velocity == "log" and not has_velocity:
        raise DataError(f"log {number}: no velocities: expected some for every joint, or velocity 'positions'")
    good = np.isfinite(log.stamps) & np.all(np.isfinite(log.q) & np.isfinite(log.effort), axis=1)
    if has_velocity:
        good &= np.all(np.isfinite(log.qd), axis=1)
    ahead = np.full(len(log), -np.inf)
    running = np.maximum.accumulate(np.where(good, log.stamps, -np.inf))
    ahead[1:] = running[:-1]
    good &= log.stamps > ahead
    log = as_torque(log[good], names, processing.torque_per_effort)
    steps = np.diff(log.stamps)
    if len(log) < _LEAST:
        raise DataError(f"log {number}: {len(log)} samples that can be used: expected at least {_LEAST}")
    period = float(np.median(steps))
    edges = [0, *(np.flatnonzero(steps > _GAP * period) + 1).tolist(), len(log)]
    segments: list[Signals] = []
    jitters, used = [], 0
    for a, b in pairwise(edges):
        if b - a >= _LEAST:
            signals, jitter = _uniform(log[a:b], period)
            segments.append(signals)
            jitters.append(jitter)
            used += b - a
    if not segments:
        raise DataError(f"log {number}: no {_LEAST} samples without a gap: expected longer segments")
    rate = 1.0 / period
    cutoff = processing.cutoff_hz
    cutoff = min(_SLOWEST, _SHARE * rate) if cutoff is None else cutoff
    if cutoff >= 0.5 * rate:
        raise DataError(f"log {number}: cut-off {cutoff:g} Hz: expected less than half its rate, {0.5 * rate:g} Hz")
    decimation = processing.decimation
    if decimation is None:
        decimation = int(np.clip(rate / (4.0 * cutoff), 1, 10)) if cutoff else 10
    delay = _delays(segments, period) if has_velocity else np.full(len(names), np.nan)
    late = bool(np.nanmax(np.abs(delay), initial=0.0) > _LATE * period)
    source = processing.velocity
    if source == "auto":
        source = "log" if has_velocity and not late else "positions"
    pieces, before, after = [], [], []
    for segment in segments:
        raw = _differentiated(segment, period, source)
        smooth = _differentiated(_filtered(segment, cutoff, rate), period, source)
        before.append(raw)
        after.append(smooth)
        direction = _directions(smooth[2], processing.transition, cutoff, rate)
        pieces.append(tuple(signal[::decimation] for signal in (*smooth, direction)))
    gone = [
        np.sqrt(
            np.mean(
                np.concatenate([a[i][_inner(a, b)] - b[i] for a, b in zip(before, after, strict=True)]) ** 2, axis=0
            )
        )
        for i in (2, 3, 4)
    ]
    left = [np.sqrt(np.mean(np.concatenate([b[i] for b in after]) ** 2, axis=0)) for i in (2, 3, 4)]
    effect = ProcessingEffect(
        rate,
        cutoff or np.inf,
        decimation,
        source,
        delay,
        float(np.sqrt(np.mean(np.square(jitters)))),
        len(good) - used,
        *gone,
        *left,
    )
    return pieces, effect


def as_torque(log: Measurements, names: Sequence[str], factors: Mapping[str, float]) -> Measurements:
    """The log with torques in place of efforts. ``factors``: N m per unit of effort, by joint; 1 for the others."""
    scale = np.array([factors.get(name, 1.0) for name in names])
    return Measurements(log.stamps, log.q, log.qd, log.effort * scale)


def _uniform(log: Measurements, period: float) -> tuple[Signals, float]:
    """(stamps, q, qd, torque) at a uniform rate, and the jitter that the stamps had, s."""
    count = len(log)
    clock = np.polyval(np.polyfit(np.arange(count), log.stamps, 1), np.arange(count))
    jitter = float(np.sqrt(np.mean((log.stamps - clock) ** 2)))
    if np.max(np.abs(log.stamps - clock)) < _UNIFORM * period and np.ptp(clock) > 0.0:
        return (np.asarray(clock, np.float64), np.array(log.q), np.array(log.qd), np.array(log.effort)), jitter
    grid = np.arange(log.stamps[0], log.stamps[-1] + 1e-9 * period, period)
    q = CubicSpline(log.stamps, log.q)(grid)
    others: list[FloatArray] = [
        np.stack([np.interp(grid, log.stamps, column) for column in values.T], axis=1)
        for values in (log.qd, log.effort)
    ]
    return (grid, np.asarray(q, np.float64), others[0], others[1]), jitter


def _central(values: FloatArray, period: float) -> FloatArray:
    """Derivative by fourth-order central differences, two samples shorter at each end."""
    return (values[:-4] - 8.0 * values[1:-3] + 8.0 * values[3:-1] - values[4:]) / (12.0 * period)


def _delays(segments: Sequence[Signals], period: float) -> FloatArray:
    """(n,) delay of the measured velocities behind the positions, s, by least squares on the acceleration."""
    across, square = 0.0, 1e-300
    for _, q, qd, _ in segments:
        velocity = _central(q, period)
        # Both smoothed alike, so that quantised positions do not hide what is looked for.
        window = np.ones(9) / 9.0
        smooth, theirs = (
            np.stack([np.convolve(column, window, "valid") for column in values.T], axis=1)
            for values in (velocity, qd[2:-2])
        )
        acceleration = np.gradient(smooth, period, axis=0)
        across = across + np.sum((smooth - theirs) * acceleration, axis=0)
        square = square + np.sum(acceleration**2, axis=0)
    return np.asarray(across / square)


def _differentiated(
    segment: Signals, period: float, source: str
) -> tuple[FloatArray, FloatArray, FloatArray, FloatArray, FloatArray]:
    """(stamps, q, qd, qdd, torque), four samples shorter at each end."""
    stamps, q, qd, torque = segment
    velocity = _central(q, period) if source == "positions" else qd[2:-2]
    return stamps[4:-4], q[4:-4], velocity[2:-2], _central(velocity, period), torque[4:-4]


def _inner(raw: tuple[FloatArray, ...], smooth: tuple[FloatArray, ...]) -> slice:
    """Indices of the raw samples that remain after filter and decimation."""
    edge = (len(raw[0]) - len(smooth[0])) // 2
    return slice(edge, edge + len(smooth[0]))


def _directions(qd: FloatArray, transition: float, cutoff: float, rate: float) -> FloatArray:
    """Signs of filtered velocities (N, n_a), through the filter of the torques."""
    sign = coulomb_direction(qd, transition)
    if cutoff == 0.0:
        return sign
    padding = min(int(3.0 * rate / cutoff), len(qd) - 1)
    smooth = sosfiltfilt(butter(ORDER, cutoff, fs=rate, output="sos"), sign, axis=0, padtype="constant", padlen=padding)
    return np.asarray(smooth)


def _filtered(segment: Signals, cutoff: float, rate: float) -> Signals:
    """Filter all signals forwards and backwards, and cut off the edges.

    Filtering comes before differentiation: the two commute except at the edges.
    """
    if cutoff == 0.0:
        return segment
    sos = butter(ORDER, cutoff, fs=rate, output="sos")
    edge = min(int(3.0 * rate / cutoff), (len(segment[0]) - 9) // 4)  # by then a transient has decayed to 1e-3
    inner = slice(edge, len(segment[0]) - edge)
    padding = min(edge + 1, len(segment[0]) - 1)
    q, qd, torque = (sosfiltfilt(sos, x, axis=0, padlen=padding)[inner] for x in segment[1:])
    return segment[0][inner], q, qd, torque
