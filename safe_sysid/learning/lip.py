"""The residual model ``lip``: torque of a learned process less the rigid model's, and where it can be trusted.

Its trust falls from one to zero where the process knows less than it did on held-out samples: for every tenth motion,
the torque's deviation is found from a subset of the samples, in parts, one a tick, with a kernel that has back what
training took away (:meth:`.kernels.ChainPart.widened`): few samples need few functions, but away from them others may
show. Fewer samples and a larger kernel never leave less variance, so that is an upper bound of the deviation that all
samples leave.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
from scipy.linalg import solve_triangular

from safe_sysid.core.arrays import FloatArray, IntArray
from safe_sysid.dynamics import dynamics_of
from safe_sysid.errors import ParameterError
from safe_sysid.learning.gaussian_process import factor as factors
from safe_sysid.learning.gaussian_process.chain_kernel import chain_workspace, walk_size
from safe_sysid.learning.gaussian_process.compiled import (
    add_cross_squared_exponential,
    add_mean_squared_exponential,
    cross_torques,
    features_of,
    lanes_of,
    mean_torques,
)
from safe_sysid.learning.gaussian_process.file import HandOver, LearnedModel, ModelFileError, read_model
from safe_sysid.learning.gaussian_process.kernels import (
    ChainPart,
    LagrangianPart,
    LinearPart,
    SquaredExponentialPart,
    friction_features,
)
from safe_sysid.learning.gaussian_process.lagrangian_kernel import FEATURES, LANES
from safe_sysid.learning.gaussian_process.motions import MotionSamples
from safe_sysid.learning.gaussian_process.regression import TorqueProcess, informative
from safe_sysid.robot.model import RobotModel

__all__ = ["LipResidual", "TorquePredictor", "hand_over"]


_SURE, _AWAY = (0.995, 2.0)  # quantile of held-out deviations up to which all is trusted; times that: nothing is
_LEAST = 0.01  # of the noise: smaller deviations are rounding
_IN_TICK = 3500, 420  # torques of all samples and of the subset that a controller's tick has time for
_FACTOR = 5.0  # deviations that an error may be, at least: away from the samples hyperparameters err, too


@dataclass(frozen=True)
class _Parts:
    """Parameters of a kernel's parts, those that are not there with no variance; in the process's units."""

    lagrangian: tuple[FloatArray, ...]
    wide: tuple[FloatArray, ...]  #: the same of deviations: :meth:`.kernels.ChainPart.widened`
    log: FloatArray  #: of the whole kernel, for deviations
    friction: FloatArray
    variance: FloatArray
    rates: FloatArray

    @classmethod
    def of(cls, process: TorqueProcess) -> _Parts:
        n = process.x.n
        lagrangian, wide, friction = None, (), np.zeros((n, 2))
        logs: list[FloatArray] = []
        variance, rates = np.zeros(n), np.zeros((n, 3 * n))
        for part, own in zip(process.kernel.parts, process.kernel.split(process.log), strict=True):
            if isinstance(part, ChainPart):
                lagrangian, own = part.unpack(own), part.widened(own)
                wide = part.unpack(own)
            elif isinstance(part, LinearPart) and part.features is friction_features:
                friction = np.exp(own).reshape(n, 2)
            elif isinstance(part, SquaredExponentialPart):
                rows = own.reshape(n, -1)
                variance, rates = np.exp(rows[:, 0]), np.exp(-rows[:, 1:])
            elif isinstance(part, LinearPart):
                raise ParameterError("a kernel with a LinearPart of its own features cannot be compiled")
            else:
                raise ParameterError(
                    f"a kernel with {type(part).__name__} cannot be compiled: expected a chain's energies; learn anew"
                )
            logs.append(own)
        if lagrangian is None:
            raise ParameterError("the kernel has no energies: expected those of a chain")
        return cls(lagrangian, wide, np.concatenate(logs), friction, variance, np.ascontiguousarray(rates))


class TorquePredictor:
    """Mean torque of a process at one motion, and a bound of its deviation; arrays are made once and overwritten."""

    def __init__(self, process: TorqueProcess, subset: IntArray) -> None:
        """Prepare.

        Args:
            process: with energies, and friction or a squared exponential or both.
            subset: (m,) samples that the deviation is from.

        Raises:
            ParameterError: another part in the kernel.
        """
        n, self._units = process.x.n, process.units
        self._parts, self._noise = _Parts.of(process), np.exp(process.log_noise) + process.jitter
        inside = process.units.inside(process.x)
        dual = process.dual.reshape(-1, n)
        self._blocks = lanes_of(inside, dual)
        self._dual, self._inputs = np.ascontiguousarray(dual), inside.inputs
        self._mean_friction = np.zeros((n, 2))
        if np.any(self._parts.friction > 0.0):
            self._mean_friction = process.friction()[0]
        self._slides = np.array(process.x.slides)
        few = inside[subset]
        self._groups = [few[k : k + LANES] for k in range(0, len(few), LANES)]
        covariance, _ = factors.cholesky(lambda: self._covariance(process, few))
        identity = np.eye(len(covariance))
        self._whitener = np.ascontiguousarray(
            solve_triangular(np.tril(covariance), identity, lower=True, check_finite=False)
        )
        self._row, self._x = np.zeros(n * FEATURES), np.zeros(3 * n)
        self._work, self._block_work = np.zeros(int(walk_size(n))), np.zeros(int(chain_workspace(n)))
        self._cross, self._white = np.zeros((len(few) * n, n)), np.zeros((len(few) * n, n))
        self._own = np.zeros((n, n))
        self._torque, self._deviation = np.zeros(n), np.zeros(n)
        self._known, self._squares = np.zeros(n), np.zeros(n)
        self._asked, self._asked_x = np.zeros(n * FEATURES), np.zeros(3 * n)

    def _covariance(self, process: TorqueProcess, few: MotionSamples) -> FloatArray:
        c = process.kernel.matrix(self._parts.log, few)
        np.einsum("ii->i", c)[:] += np.tile(self._noise, len(few))
        return c

    def _take(self, q: FloatArray, qd: FloatArray, qdd: FloatArray) -> None:
        n, time = len(q), self._units.time
        x = self._x
        x[:n] = q
        np.multiply(qd, time, out=x[n : 2 * n])
        np.multiply(qdd, time**2, out=x[2 * n :])
        features_of(x[:n], x[n : 2 * n], x[2 * n :], self._slides, self._row)

    def torque(self, q: FloatArray, qd: FloatArray, qdd: FloatArray) -> FloatArray:
        """(n,) N m or N that are expected, the same array every time.

        Args:
            q: (n,) rad or m.
            qd: (n,) rad/s or m/s.
            qdd: (n,) rad/s^2 or m/s^2.
        """
        self._take(q, qd, qdd)
        parts, out = self._parts, self._torque
        mean_torques(self._row, self._blocks, *parts.lagrangian, self._work, out)
        if parts.variance[0] > 0.0:
            add_mean_squared_exponential(self._x, self._inputs, self._dual, parts.variance, parts.rates, out)
        out *= self._units.torque
        friction = self._mean_friction
        out += friction[:, 0] * qd + friction[:, 1] * np.sign(qd)
        return out

    @property
    def parts(self) -> int:
        """In so many parts :meth:`deviation_part` finds a deviation."""
        return len(self._groups)

    def deviation(self, q: FloatArray, qd: FloatArray, qdd: FloatArray) -> FloatArray:
        """(n,) N m or N, at least the deviation that the process leaves, noise not included; the same array always.

        Args:
            q: (n,) rad or m.
            qd: (n,) rad/s or m/s.
            qdd: (n,) rad/s^2 or m/s^2.
        """
        for part in range(self.parts):
            self.deviation_part(part, q, qd, qdd)
        return self._deviation

    def deviation_part(self, part: int, q: FloatArray, qd: FloatArray, qdd: FloatArray) -> FloatArray:
        """One part of the work of :meth:`deviation`, whose result is there after the last; the same array always.

        A part takes some of the subset's samples: their covariance with the torque, and what is known of it by them and
        those before.

        Args:
            part: 0 to `parts` - 1, one after the other; the motion is that of the first.
            q: (n,) rad or m.
            qd: (n,) rad/s or m/s.
            qdd: (n,) rad/s^2 or m/s^2.
        """
        n, row, x = len(q), self._asked, self._asked_x
        if part == 0:
            self._take(q, qd, qdd)
            row[:], x[:] = self._row, self._x
            self._covariance_with(row.reshape(-1, 1), x.reshape(1, -1), np.sign(qd).reshape(1, -1), self._own)
            np.copyto(self._known, 0.0)
        few, start = self._groups[part], part * LANES * n
        end = start + len(few) * n
        self._covariance_with(few.columns, few.inputs, few.direction, self._cross[start:end])
        np.matmul(self._whitener[start:end, :end], self._cross[:end], out=self._white[start:end])
        np.einsum("rj,rj->j", self._white[start:end], self._white[start:end], out=self._squares)
        self._known += self._squares
        if part == self.parts - 1:
            np.subtract(np.einsum("jj->j", self._own), self._known, out=self._deviation)
            np.maximum(self._deviation, 0.0, out=self._deviation)
            np.sqrt(self._deviation, out=self._deviation)
            self._deviation *= self._units.torque
        return self._deviation

    def _covariance_with(self, columns: FloatArray, inputs: FloatArray, direction: FloatArray, out: FloatArray) -> None:
        """Covariance (M n, n) of torques at M samples with the one that is asked for."""
        parts = self._parts
        cross_torques(self._asked, columns, direction, *parts.wide, parts.friction, self._block_work, out)
        if parts.variance[0] > 0.0:
            add_cross_squared_exponential(self._asked_x, inputs, parts.variance, parts.rates, out)


def hand_over(process: TorqueProcess, held_out: MotionSamples, torque: FloatArray, most: int = 60) -> HandOver:
    """Where a process is to be believed, from samples that it was not learned from.

    ``torque``: (M, n) measured there, N m or N.
    """
    subset = np.sort(informative(process.kernel, process.log, process.log_noise, process.x, most, process.units))
    predictor = TorquePredictor(process, subset)
    deviations = np.array(
        [predictor.deviation(*at).copy() for at in zip(held_out.q, held_out.qd, held_out.qdd, strict=True)]
    )
    errors = np.abs(process.predict(held_out) - torque)
    sure = np.maximum(np.quantile(deviations, _SURE, axis=0), _LEAST * process.noise)
    factor = np.max(errors / np.sqrt(deviations**2 + process.noise**2), axis=0)
    bound = np.maximum(factor, _FACTOR) * np.sqrt((_AWAY * sure) ** 2 + process.noise**2)
    return HandOver(subset, sure, _AWAY * sure, bound)


class LipResidual:
    """A :class:`safe_sysid.learning.ResidualModel`: a learned process less the rigid nominal model.

    Attributes:
        bound: (n,) N m or N: on held-out samples no torque that was trusted at all was off by more.
        in_tick: whether an evaluation is short enough for the controller's tick (:class:`..ResidualModel`).
    """

    def __init__(self, model: RobotModel, learned: LearnedModel, every: int = 10) -> None:
        """Prepare. ``learned``: of the same joints, with a hand-over; ``every``: so many predictions share a deviation.

        Raises:
            ModelFileError: other joints, or nothing says where the process is to be believed.
        """
        learned.check_joints(model.joint_names, [bool(s) for s in model.sliding])
        if any(isinstance(part, LagrangianPart) for part in learned.process.kernel.parts):
            raise ModelFileError(
                "learned with the kernel of [LIP], which controllers no longer have: expected a model of today's "
                "`safe-sysid learn lip`: learn anew"
            )
        if learned.hand_over is None:
            raise ModelFileError(
                "nothing says where the model is to be believed: expected one of `safe-sysid learn lip`"
            )
        self._hand_over, self._every, self._since = learned.hand_over, every, 0
        self._predictor = TorquePredictor(learned.process, self._hand_over.subset)
        self._rigid, self._theta = dynamics_of(model.kinematics), model.theta_nominal
        self._transition = model.friction_transition_velocity
        self._width = self._hand_over.none - self._hand_over.all
        self._share, self._trust, self._torque = np.empty(model.n), 0.0, np.empty(model.n)
        self.bound = self._hand_over.bound
        sizes = len(learned.process.x), len(self._hand_over.subset)
        self.in_tick = all(size * model.n <= most for size, most in zip(sizes, _IN_TICK, strict=True))

    @classmethod
    def read(cls, model: RobotModel, path: Path) -> LipResidual:
        """From a file of ``safe-sysid learn lip``.

        Raises:
            ModelFileError: it cannot be read, or is of another arm.
        """
        try:
            return cls(model, read_model(path))
        except ModelFileError as error:
            text = str(error)
            raise ModelFileError(text if text.startswith(str(path)) else f"{path}: {text}") from None

    def reset(self) -> None:
        """Forget how sure it was: the next motion is another one, or some were missed."""
        self._since, self._trust = 0, 0.0

    def predict(self, q: FloatArray, qd: FloatArray, qdd: FloatArray) -> tuple[FloatArray, float]:
        """Torque (n,), the same array every time, and how far it is to be believed.

        Args:
            q: (n,) rad or m.
            qd: (n,) rad/s or m/s.
            qdd: (n,) rad/s^2 or m/s^2.
        """
        predictor, part = self._predictor, self._since % self._every
        if self._since == 0 or self._every < predictor.parts:  # the first, and where there is no time for parts
            if part == 0:
                self._trust_in(predictor.deviation(q, qd, qdd))
        elif self._since >= self._every and part < predictor.parts:
            deviation = predictor.deviation_part(part, q, qd, qdd)
            if part == predictor.parts - 1:
                self._trust_in(deviation)
        self._since += 1
        learned = self._predictor.torque(q, qd, qdd)
        np.subtract(learned, self._rigid.inverse_dynamics(self._theta, q, qd, qdd, self._transition), out=self._torque)
        return self._torque, self._trust

    def _trust_in(self, deviation: FloatArray) -> None:
        np.subtract(self._hand_over.none, deviation, out=self._share)
        self._share /= self._width
        least = float(np.min(self._share))
        self._trust = min(1.0, least) if least > 0.0 else 0.0  # NaN is no trust
