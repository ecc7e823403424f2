r"""From samples to linear equations that the true parameters satisfy, with a proved error.

For a test function phi (:func:`safe_sysid.identification.windows.weights`), linear between samples, integration by
parts of ``d/dt W_m theta = tau + W_c theta`` gives, exactly,

``[phi W_m theta] - int phi' W_m theta dt - int phi W_c theta dt = int phi tau dt``.

Step by step, torque, viscous friction, offset and rotor inertia integrate exactly (to torque, position and velocity
differences); the inertial part of W_c, and of W_m on ramps, is evaluated once per step, at mid position and mean
velocity. What is not known exactly makes the half width w of ``|Y theta_e + R theta_r - T| <= w``, see
:mod:`safe_sysid.identification.row_errors`. Assumed: ``|qdd| <= A`` almost everywhere, and the effort at a stamp is the
mean torque over the step before it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from safe_sysid.identification.measurement_errors import (
    MeasurementErrors,
    StepStates,
    coulomb_sign,
    step_states,
    torque_interval,
)
from safe_sysid.identification.measurements import Measurements
from safe_sysid.identification.row_errors import ERROR_CAUSES, WindowFacts, row_errors
from safe_sysid.identification.windows import weights
from safe_sysid.robot.model import Kinematics
from safe_sysid.robot.parameters import ParameterBox
from safe_sysid.robot.regressors import momentum_rate_regressor, momentum_regressor

__all__ = ["MomentumRows", "momentum_rows"]

FloatArray = NDArray[np.float64]
_CHUNK = 4000  # steps handled at once: bounds the memory of padded arrays


@dataclass(frozen=True, eq=False)
class MomentumRows:
    """Rows ``|matrix theta - target| <= slack`` that hold for the true theta.

    Attributes:
        matrix: (M, 14 n). target, slack: (M,), N m s.
        sigma: (M,) standard deviation if the errors were independent and uniform; for the nominal estimate only.
        parts: (M, 7) shares of slack by :data:`ERROR_CAUSES`.
        start, end: (M,) stamps of the window, s. joint: (M,) index.
        rejected_acceleration: windows left out because they contradict the declared acceleration bound.
    """

    matrix: FloatArray
    target: FloatArray
    slack: FloatArray
    sigma: FloatArray
    parts: FloatArray
    start: FloatArray
    end: FloatArray
    joint: NDArray[np.int64]
    rejected_acceleration: int = 0

    def __len__(self) -> int:
        """Number of rows."""
        return len(self.target)

    @classmethod
    def concatenate(cls, parts: list[MomentumRows]) -> MomentumRows:
        """All rows of several sets."""
        arrays = {name: np.concatenate([getattr(p, name) for p in parts]) for name in _ROW_FIELDS}
        return cls(**arrays, rejected_acceleration=sum(p.rejected_acceleration for p in parts))

    def take(self, which: NDArray) -> MomentumRows:
        """Rows by index or mask."""
        return MomentumRows(**{name: getattr(self, name)[which] for name in _ROW_FIELDS})

    @classmethod
    def none(cls, size: int, rejected: int = 0) -> MomentumRows:
        """No rows over ``size`` parameters."""
        zero = np.empty(0)
        parts = np.empty((0, len(ERROR_CAUSES)))
        return cls(np.empty((0, size)), zero, zero, zero, parts, zero, zero, np.empty(0, np.int64), rejected)


_ROW_FIELDS = ("matrix", "target", "slack", "sigma", "parts", "start", "end", "joint")


def momentum_rows(
    kin: Kinematics,
    box: ParameterBox,
    errors: MeasurementErrors,
    data: Measurements,
    windows: list[tuple[int, int]],
    ramp: float = 0.0,
) -> MomentumRows:
    """Equations of some windows of one run.

    Args:
        kin: of the arm.
        box: holds the true, physically consistent parameters; sizes the remainders.
        errors: declared bounds.
        data: one run of :class:`~safe_sysid.identification.measurements.Screen`: finite, increasing stamps, no gap,
            positions unwrapped.
        windows: first and last sample index of each.
        ramp: rise and fall time of the test function, s.

    Returns:
        n rows per window; windows that contradict the declared acceleration bound are left out and counted.
    """
    n = len(kin.axis)
    steps = step_states(data, errors)
    wrong_before = np.concatenate([[0], np.cumsum(steps.wrong)])
    first, last = np.array(windows, dtype=np.int64).reshape(-1, 2).T
    good = wrong_before[first] == wrong_before[last]
    rejected = int(np.sum(~good))
    good &= last - first >= (2 if ramp > 0.0 else 1)  # a ramp up and down needs a sample in between
    first, last = first[good], last[good]
    if not first.size:
        return MomentumRows.none(14 * n, rejected)
    chunk = max(1, _CHUNK // int(np.max(last - first)))
    source = _Source(kin, data, steps, errors, ramp)
    parts = [source.rows(box, first[i : i + chunk], last[i : i + chunk]) for i in range(0, len(first), chunk)]
    return replace(MomentumRows.concatenate(parts), rejected_acceleration=rejected)


class _Source:
    """Regressors of all steps of a run, and the rows of windows over them."""

    def __init__(
        self, kin: Kinematics, data: Measurements, steps: StepStates, errors: MeasurementErrors, ramp: float
    ) -> None:
        self.kin, self.data, self.steps, self.errors, self.ramp = kin, data, steps, errors, ramp
        self.n = n = len(kin.axis)
        self.flat = 10 * n * n
        rigid = slice(0, 10 * n)
        self.rate = momentum_rate_regressor(kin, steps.centre, steps.mean)[:, :, rigid].reshape(-1, self.flat)
        self.momentum = None
        if ramp > 0.0:
            self.momentum = momentum_regressor(kin, steps.centre, steps.mean)[:, :, rigid].reshape(
                -1, self.flat
            )
        self.sign = coulomb_sign(steps.mean, steps.rho, steps.h, errors)
        self.torque, self.noise = torque_interval(data.effort[1:], errors)

    def rows(self, box: ParameterBox, first: NDArray[np.int64], last: NDArray[np.int64]) -> MomentumRows:
        data, steps, n, count = self.data, self.steps, self.n, len(first)
        length = int(np.max(last - first))
        sample = np.minimum(first[:, None] + np.arange(length + 1), last[:, None])
        index = sample[:, :-1]
        inside = index < last[:, None]
        index = np.where(inside, index, first[:, None])
        phi = weights(data.stamps[sample], self.ramp)
        h = steps.h[index]
        area = np.where(inside, 0.5 * (phi[:, 1:] + phi[:, :-1]) * h, 0.0)
        rise = np.where(inside, np.diff(phi, axis=1), 0.0)
        start, end = phi[:, 0], phi[:, -1]  # padding repeats the last sample

        rigid = -np.matmul(area[:, None, :], self.rate[index])[:, 0]
        if self.momentum is not None:
            rigid -= np.matmul(rise[:, None, :], self.momentum[index])[:, 0]
        for at, value in ((last, end), (first, -start)):
            if np.any(value):
                ends = momentum_regressor(self.kin, data.q[at], data.qd[at])[:, :, : 10 * n]
                rigid += value[:, None] * ends.reshape(count, self.flat)
        matrix = np.zeros((count, n, 14 * n))
        matrix[:, :, : 10 * n] = rigid.reshape(count, n, 10 * n)
        joint = np.arange(n)
        matrix[:, joint, 13 * n + joint] = area.sum(axis=1)[:, None]
        if self.errors.torque_source != "link":
            matrix[:, joint, 10 * n + joint] = np.einsum("wk,wkj->wj", area, self.sign[index])
            matrix[:, joint, 11 * n + joint] = np.einsum("wk,wkj->wj", area / h, steps.delta[index])
            matrix[:, joint, 12 * n + joint] = (
                end[:, None] * data.qd[last]
                - start[:, None] * data.qd[first]
                - np.einsum("wk,wkj->wj", rise / h, steps.delta[index])
            )
        target = np.einsum("wk,wkj->wj", area, self.torque[index])

        facts = WindowFacts(index, inside, phi, area, steps, self.sign, self.torque, self.noise)
        parts = row_errors(self.kin, box, self.errors, facts, target)
        slack = parts.sum(axis=-1) * (1.0 + 1e-12)
        sigma = np.sqrt((facts.noise_square + (slack - parts[..., 0]) ** 2) / 3.0) + 1e-12
        m = count * n
        return MomentumRows(
            matrix.reshape(m, 14 * n),
            target.reshape(m),
            slack.reshape(m),
            sigma.reshape(m),
            parts.reshape(m, len(ERROR_CAUSES)),
            np.repeat(data.stamps[first], n),
            np.repeat(data.stamps[last], n),
            np.tile(joint, count),
        )
