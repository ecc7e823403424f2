r"""Momentum equations: linear equations that the true parameters satisfy, each with a proved error.

For a test function phi (``windows.weights``), linear between samples, integration by
parts of ``d/dt W_m theta = tau + W_c theta`` gives, exactly,

``[phi W_m theta] - int phi' W_m theta dt - int phi W_c theta dt = int phi tau dt``.

Step by step, torque, viscous friction, offset and rotor inertia integrate exactly (to torque, position and velocity
differences); the inertial part of W_c, and of W_m on ramps, is evaluated once per step, at mid position and mean
velocity. What is not known exactly makes the half width w of ``|Y theta_e + R theta_r - T| <= w``: rates per step in
``step_errors``, sums over windows in ``row_errors``.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from safe_sysid.core.layout import ROTOR, ParameterLayout
from safe_sysid.errors import ParameterError
from safe_sysid.identification.equations.held_torque import held_motion
from safe_sysid.identification.equations.measurement_errors import MeasurementErrors, sensor_prior, torque_interval
from safe_sysid.identification.equations.measurements import Measurements, SampleRun
from safe_sysid.identification.equations.remainders import magnitudes
from safe_sysid.identification.equations.row_errors import ERROR_CAUSES, WindowRows, window_kernel
from safe_sysid.identification.equations.step_errors import Limits, StepErrors, StepTable, step_kernel
from safe_sysid.identification.equations.step_states import StepStates, coulomb_sign, step_states
from safe_sysid.intervals import mid_rad
from safe_sysid.robot.model import Kinematics
from safe_sysid.robot.parameters import ParameterBox
from safe_sysid.robot.unknowns import Unknowns

__all__ = ["MomentumRows", "RowSource", "momentum_rows"]

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]


def _no_indices() -> IntArray:
    return np.empty(0, np.int64)


@dataclass(frozen=True, eq=False)
class MomentumRows:
    """Rows ``|matrix theta - target| <= slack`` that hold for the true theta (offsets with the sensors' constant bias).

    Attributes:
        matrix: (M, 14 n). target, slack: (M,), N m s.
        constants: (M, E) coefficients of the arm's unknown constants (:class:`Unknowns`): the rows are then
            ``|matrix theta + constants z - target| <= slack``. (M, 0) where none is in them.
        sigma: (M,) standard deviation if the errors were independent and uniform; for the nominal estimate only.
        parts: (M, causes) shares of slack by :data:`ERROR_CAUSES`.
        start, end: (M,) stamps of the window, s. joint: (M,) index.
        rejected_acceleration: windows left out because they contradict the declared acceleration bound.
        first, last: (M,) indices of the window's first and last sample in its log, in order of arrival, rejected ones
            counted too; -1 where nobody knows.
        ramp: (M,) rise time of the test function, s.
        box_seq: (M,) sequence number of the box whose magnitudes sized the remainders.
        log: (M,) which log: 0 this run's, 1 the tare's.
        rejected_delay: windows left out because the torque beside them is not known.
        rejected_travel: windows left out because a prismatic joint may have left its travel.
    """

    matrix: FloatArray
    target: FloatArray
    slack: FloatArray
    sigma: FloatArray
    parts: FloatArray
    start: FloatArray
    end: FloatArray
    joint: IntArray
    rejected_acceleration: int = 0
    first: IntArray = field(default_factory=_no_indices)
    last: IntArray = field(default_factory=_no_indices)
    ramp: FloatArray = field(default_factory=lambda: np.empty(0))
    box_seq: IntArray = field(default_factory=_no_indices)
    log: IntArray = field(default_factory=_no_indices)
    rejected_delay: int = 0
    rejected_travel: int = 0
    constants: FloatArray = field(default_factory=lambda: np.empty((0, 0)))

    def __post_init__(self) -> None:
        """Rows made by hand come from no log: their provenance is filled up."""
        m = len(self.target)
        for name, unknown in (("first", -1), ("last", -1), ("ramp", 0), ("box_seq", 0), ("log", 0)):
            value = getattr(self, name)
            if len(value) != m:
                object.__setattr__(self, name, np.full(m, unknown, value.dtype))
        if len(self.constants) != m:
            object.__setattr__(self, "constants", np.zeros((m, 0)))

    def __len__(self) -> int:
        return len(self.target)

    @property
    def layout(self) -> ParameterLayout:
        """Of the columns of the matrix."""
        return ParameterLayout.of_size(self.matrix.shape[1])

    @classmethod
    def concatenate(cls, parts: list[MomentumRows]) -> MomentumRows:
        """All rows of several sets."""
        some = [p for p in parts if len(p)] or parts[:1]
        arrays: dict[str, Any] = {name: np.concatenate([getattr(p, name) for p in some]) for name in _ROW_FIELDS}
        for name in ("rejected_acceleration", "rejected_delay", "rejected_travel"):
            arrays[name] = sum(getattr(p, name) for p in parts)
        return cls(**arrays)

    def take(self, which: NDArray) -> MomentumRows:
        """Rows by index or mask."""
        return MomentumRows(**{name: getattr(self, name)[which] for name in _ROW_FIELDS})

    def with_constants(self, count: int) -> MomentumRows:
        """The same rows with ``count`` columns of unknown constants: zeros where these rows have none."""
        if self.constants.shape[1] == count:
            return self
        return replace(self, constants=np.zeros((len(self), count)))

    def without_constants(self, unknowns: Unknowns) -> MomentumRows:
        """Rows over theta alone: what unknown constants may be is taken to their slack, and their middle to the target.

        Each row then lets them be others. That is looser, and true as well where they are not the same in all rows.
        """
        if not self.constants.shape[1]:
            return self
        mid, rad = mid_rad(unknowns.lower, unknowns.upper)
        size = np.abs(self.constants)
        # Rounding of the sums, and of the target less them, relative to all terms.
        more = size @ rad + 1e-15 * unknowns.count * (size @ (np.abs(mid) + rad) + np.abs(self.target))
        more *= 1.0 + 1e-12
        parts = self.parts.copy()
        parts[:, ERROR_CAUSES.index("momentum")] += more
        return replace(
            self,
            target=self.target - self.constants @ mid,
            slack=(self.slack + more) * (1.0 + 1e-15),
            sigma=self.sigma + more,
            parts=parts,
            constants=np.zeros((len(self), 0)),
        )

    @classmethod
    def none(cls, size: int, rejected: int = 0) -> MomentumRows:
        """No rows over ``size`` parameters."""
        zero = np.empty(0)
        parts = np.empty((0, len(ERROR_CAUSES)))
        return cls(np.empty((0, size)), zero, zero, zero, parts, zero, zero, np.empty(0, np.int64), rejected)


_ROW_FIELDS = (
    "matrix", "target", "slack", "sigma", "parts", "start", "end", "joint",
    "first", "last", "ramp", "box_seq", "log", "constants",
)  # fmt: skip


def momentum_rows(
    kin: Kinematics,
    box: ParameterBox,
    errors: MeasurementErrors,
    data: Measurements,
    windows: IntArray | list[tuple[int, int]],
    ramp: float = 0.0,
    unknowns: Unknowns | None = None,
) -> MomentumRows:
    """Momentum equations of the windows of one complete run.

    Args:
        box: holds the true, physically consistent parameters; sizes the remainders.
        data: one run of ``measurements.Screen``: finite, increasing stamps, no gap,
            positions unwrapped.
        windows: (W, 2) first and last sample index of each.
        ramp: rise and fall time of the test function, s.
        unknowns: of the arm; None: there are none.

    Returns:
        n rows per window, over theta alone; windows that contradict the declared acceleration bound are left out and
        counted.
    """
    source = RowSource(kin, box, errors, SampleRun(data, False, 0), ramp > 0.0, unknowns=unknowns)
    rows = source.rows(np.asarray(windows), ramp)
    return rows if unknowns is None else rows.without_constants(unknowns)


_PER_STEP = ("rate", "slope", "ramp", "shift", "twist", "gravity", "size", "change", "torques")
_PER_SAMPLE = ("end", "momentum", "momenta")


class RowSource:
    """Computes what steps and samples of a run contribute, once, and rows of windows from it."""

    def __init__(
        self,
        kin: Kinematics,
        box: ParameterBox,
        errors: MeasurementErrors,
        run: SampleRun,
        ramps: bool,
        log: int = 0,
        unknowns: Unknowns | None = None,
    ) -> None:
        """Evaluate all steps.

        Args:
            box: holds the true, physically consistent parameters.
            run: at least two samples of one run.
            ramps: whether windows will have slopes.
            log: which log this is, for :attr:`MomentumRows.log`.
            unknowns: of the arm: rows have columns for them; None: there are none.
        """
        n = len(kin.axis)
        unknowns = Unknowns(np.zeros(n)) if unknowns is None else unknowns
        self._constants = unknowns.count
        size = magnitudes(kin, box, errors.torque_source != "link", unknowns)
        known = ROTOR * n + kin.motors.joint
        data, kin = run.samples, unknowns.applied(kin).read_only
        self._run, self._box_seq, self._log = run, box.seq, log
        self._means_only = errors.only_mean_torques
        # Columns of motors, then of zeros: those that are no parameters come behind all that are.
        self._motors = np.concatenate([known, box.size + np.arange(unknowns.count)])
        self._limits = limits = _limits(kin, box, errors, unknowns)
        states = step_states(data, errors, kin.travel, unknowns.zero)
        within, tied = held_motion(kin, data, states, errors, size, box), bool(np.any(errors.position > 0.0))
        if tied or within is not None:
            local = step_states(data, errors, kin.travel, unknowns.zero, within, tied)
            states = replace(local, wrong=states.wrong)  # that is about what is declared
        middle, half = torque_interval(data.effort, errors)
        torque, noise, loose = middle[1:], half[1:], half[1:]
        if errors.torque_rate is not None:
            torque, noise = 0.5 * (torque + middle[:-1]), 0.5 * (noise + half[:-1])
            beside = errors.torque_delay + errors.torque_jitter
            loose = noise + errors.torque_rate * (0.25 * (states.h + 2.0 * states.stamp) + beside)[:, None]
        self._wrong_before = np.concatenate([[0], np.cumsum(states.wrong)])
        steps = (
            data.stamps, states.q, states.off, data.qd, states.h, states.stamp, states.centre, states.mean, states.rho,
            states.delta, states.ride, states.ride_off, states.acceleration, coulomb_sign(data, states, errors),
            torque, noise, loose,
            *_further_torques(box.layout, states, errors.transition),
        )  # fmt: skip
        self._steps = StepTable(*(np.require(array, requirements=("C", "W")) for array in steps))
        m = len(states.delta)
        self._outside_before = np.concatenate([[0], np.cumsum(states.outside)])
        columns, per_step, per_sample = (n, limits.mid.size), np.zeros((9, m, n)), np.zeros((3, m + 1, n))
        self._errors = StepErrors(
            rate_columns=np.zeros((m, *columns)),
            momentum_columns=np.zeros((m if ramps else 0, *columns)),
            end_columns=np.zeros((m + 1, *columns)),
            **dict(zip(_PER_STEP, per_step, strict=True)),
            **dict(zip(_PER_SAMPLE, per_sample, strict=True)),
        )
        step_kernel(kin, size, limits, self._steps, ramps, self._errors)

    def rows(self, windows: IntArray, ramp: float) -> MomentumRows:
        """Equations of windows (W, 2), first and last sample of the run given; see :func:`momentum_rows`.

        Args:
            windows: (W, 2).
            ramp: s.

        Raises:
            ParameterError: a ramp where only the mean torque of each step is known.
        """
        if ramp > 0.0 and self._means_only:
            raise ParameterError(
                f"ramp = {ramp!r}: expected 0 for a torque of which only means over steps are known, "
                "or effort = 'sampled'"
            )
        n = self._steps.qd.shape[1]
        size = ParameterLayout(n).size
        width = size + self._constants
        windows = np.asarray(windows, np.int64).reshape(-1, 2)
        good = self._wrong_before[windows[:, 0]] == self._wrong_before[windows[:, 1]]
        inside = self._outside_before[windows[:, 0]] == self._outside_before[windows[:, 1]]
        rejected, beyond = int(np.sum(~good)), int(np.sum(good & ~inside))
        good &= inside
        good &= windows[:, 1] - windows[:, 0] >= (2 if ramp > 0.0 else 1)  # up and down needs a sample in between
        windows = np.ascontiguousarray(windows[good])
        count = len(windows)
        out = WindowRows(
            matrix=np.zeros((count, n, width)),
            target=np.zeros((count, n)),
            noise_square=np.zeros((count, n)),
            parts=np.zeros((count, n, len(ERROR_CAUSES))),
            valid=np.zeros(count, np.bool_),
        )
        window_kernel(windows, ramp, self._motors, self._steps, self._errors, self._limits, out)
        slack = out.parts.sum(axis=-1) * (1.0 + 1e-12)
        apart = slack - out.parts[..., 0]
        sigma = np.sqrt((out.noise_square + apart**2) / 3.0) + 1e-12
        m = count * n
        first, last = windows.T
        stamps, offset = self._steps.stamps, self._run.first
        rows = MomentumRows(
            matrix=out.matrix.reshape(m, width)[:, :size],
            target=out.target.reshape(m),
            slack=slack.reshape(m),
            sigma=sigma.reshape(m),
            parts=out.parts.reshape(m, len(ERROR_CAUSES)),
            start=np.repeat(stamps[first], n),
            end=np.repeat(stamps[last], n),
            joint=np.tile(np.arange(n), count),
            rejected_acceleration=rejected,
            first=np.repeat(first + offset, n),
            last=np.repeat(last + offset, n),
            ramp=np.full(m, float(ramp)),
            box_seq=np.full(m, self._box_seq, np.int64),
            log=np.full(m, self._log, np.int64),
            rejected_travel=beyond,
            constants=out.matrix.reshape(m, width)[:, size:],
        )
        if np.all(out.valid):
            return rows
        return replace(
            rows.take(np.repeat(out.valid, n)),
            rejected_acceleration=rejected,
            rejected_delay=int(np.sum(~out.valid)),
            rejected_travel=beyond,
        )


def _limits(kin: Kinematics, box: ParameterBox, errors: MeasurementErrors, unknowns: Unknowns) -> Limits:
    """Inputs of the kernels from box and declared errors. The last motors of ``kin`` are those with unknown ratios."""
    n, layout = box.n, box.layout
    seen = 0.0 if errors.torque_source == "link" else 1.0
    big = np.maximum(np.abs(box.lower), np.abs(box.upper))
    sensed = sensor_prior(box, errors)
    known = len(kin.motors.joint) - len(unknowns.motors.joint)
    moving = layout.links_and_rotors(kin.motors.joint[:known])
    mid, rad = mid_rad(unknowns.lower, unknowns.upper)
    return Limits(
        mid=np.concatenate([box.mid[moving], mid]),
        rad=np.concatenate([box.rad[moving], rad]),
        coulomb=seen * big[layout.coulomb],
        viscous=seen * big[layout.viscous],
        rotor=seen * big[layout.rotor_inertia],
        coulomb_mid=seen * box.mid[layout.coulomb],
        coulomb_rad=seen * box.rad[layout.coulomb],
        beta_mid=sensed.mid[layout.offset].copy(),
        beta_rad=sensed.rad[layout.offset].copy(),
        friction=seen,
        velocity=errors.velocity.copy(),
        gravity=_gravity_error(kin, errors),
        drift=errors.torque_drift.copy(),
        delay=errors.torque_delay,
        jitter=errors.torque_jitter,
        rate=np.zeros(n) if errors.torque_rate is None else errors.torque_rate.copy(),
        sampled=errors.effort == "sampled",
        shifted=unknowns.shifted,
        zero=unknowns.zero.copy(),
        **{
            name: seen * np.array([of[part] for part, _ in layout.further]).reshape(-1, n)
            for name, of in (("further", big), ("further_mid", box.mid), ("further_rad", box.rad))
        },
    )


def _further_torques(layout: ParameterLayout, states: StepStates, v_c: float) -> FloatArray:
    """(2, F, m, n) middle and half width of further terms' torques per unit over each whole step."""
    reach = (0.5 * states.acceleration * (states.h + 2.0 * states.stamp)[:, None] + states.rho) * (1.0 + 1e-12)
    out = np.zeros((2, len(layout.further), *reach.shape))
    for f, (_, term) in enumerate(layout.further):
        if term.bounds is not None:
            out[:, f] = mid_rad(*term.bounds(states.mean - reach, states.mean + reach, v_c))
    return out


def _gravity_error(kin: Kinematics, errors: MeasurementErrors) -> float:
    """Largest difference of true and configured gravity, m/s^2; a turn moves its tip by less than the arc."""
    relative = errors.gravity_relative
    norm = float(np.linalg.norm(kin.gravity))
    return norm * (relative + (1.0 + relative) * errors.gravity_angle) * (1.0 + 1e-12)
