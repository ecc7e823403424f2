r"""Learned models tick by tick: compiled, with memory, without torch and without allocation.

Inner loops run over outputs, so that they are vectorised without reordering any sum. A network's numbers lie in one
array: arrays that come from Python cost time at every call.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
from numba import njit

from safe_sysid.core.arrays import FloatArray
from safe_sysid.dynamics.newton_euler import newton_euler
from safe_sysid.learning.neural.file import HybridFileError, read_hybrid
from safe_sysid.learning.neural.models import TRANSITION, Learned
from safe_sysid.robot.model import Kinematics, PackedKinematics, RobotModel

__all__ = ["WARM_UP", "HybridResidual", "SteppingModel"]

#: Ticks after which the memory has forgotten that it began empty [Hybrid section V].
WARM_UP = 500
#: rad or m that a desired position moves in a tick: more is another motion, and the memory begins anew.
_JUMP = 0.05
#: Of a range of the training data: so far outside of it nothing is trusted any more.
_MARGIN = 0.25
_RATE = 0.02  # of a rate: so far may that of the data be from the controller's
_NONE, _LSTM, _MLP = 0, 1, 2
_NETWORKS = {None: _NONE, "lstm": _LSTM, "mlp": _MLP}


@njit(cache=True)
def _affine(flat: FloatArray, at: int, x: FloatArray, out: FloatArray) -> int:
    """``out = W x + b``, W stored by columns, b behind it; returns where the next numbers begin."""
    rows, columns = out.size, x.size
    bias = at + rows * columns
    for i in range(rows):
        out[i] = flat[bias + i]
    for j in range(columns):
        v = x[j]
        column = at + j * rows
        for i in range(rows):
            out[i] += flat[column + i] * v
    return bias + rows


@njit(cache=True)
def _layer_norm(flat: FloatArray, at: int, x: FloatArray) -> int:
    """``x`` normalised in place, with its weights and biases."""
    size = x.size
    mean = 0.0
    for i in range(size):
        mean += x[i]
    mean /= size
    variance = 0.0
    for i in range(size):
        variance += (x[i] - mean) ** 2
    scale = 1.0 / np.sqrt(variance / size + 1e-5)
    for i in range(size):
        x[i] = (x[i] - mean) * scale * flat[at + i] + flat[at + size + i]
    return at + 2 * size


@njit(cache=True)
def _rectify(flat: FloatArray, at: int, x: FloatArray) -> None:
    for i in range(x.size):
        if x[i] < 0.0:
            x[i] *= flat[at]


@njit(cache=True)
def _sigmoid(x: float) -> float:
    if x >= 0.0:
        return 1.0 / (1.0 + np.exp(-x))
    e = np.exp(x)
    return e / (1.0 + e)


@njit(cache=True)
def _network(
    kind: int, flat: FloatArray, x: FloatArray, state: FloatArray, work: FloatArray, width: int, out: FloatArray
) -> None:
    """``out`` (n,) in units of the torque's range; ``state`` (2 h,) goes one step on."""
    a = work[:width]
    at = _affine(flat, 0, x, a)
    if kind == _MLP:
        b = work[width : 2 * width]
        _rectify(flat, flat.size - 1, a)
        at = _affine(flat, at, a, b)
        _rectify(flat, flat.size - 1, b)
        _affine(flat, at, b, out)
        return
    memory = state.size // 2
    hidden, cell = state[:memory], state[memory:]
    at = _layer_norm(flat, at, a)
    _rectify(flat, flat.size - 1, a)
    at = _layer_norm(flat, at, a)
    gates, more = work[width : width + 4 * memory], work[width + 4 * memory : width + 8 * memory]
    at = _affine(flat, at, a, gates)
    at = _affine(flat, at, hidden, more)
    for i in range(memory):
        write = _sigmoid(gates[i] + more[i])
        keep = _sigmoid(gates[memory + i] + more[memory + i])
        new = np.tanh(gates[2 * memory + i] + more[2 * memory + i])
        read = _sigmoid(gates[3 * memory + i] + more[3 * memory + i])
        cell[i] = keep * cell[i] + write * new
        hidden[i] = read * np.tanh(cell[i])
    _affine(flat, at, hidden, out)


@njit(cache=True)
def _steps(
    kind: int,
    flat: FloatArray,
    scaling: FloatArray,
    shape: tuple[int, int, bool],
    states: FloatArray,
    state: FloatArray,
    work: FloatArray,
    out: FloatArray,
) -> None:
    """Torque of the network, ``out`` (N, n), along ``states`` (N, 3 n) one after the other.

    ``shape``: width of the first layer, ticks of a step, whether directions are seen. ``state``: the memory, (3 n,) sum
    of the states since the last step, their number, (n,) torque of the last step.
    """
    width, every, directions = shape
    size, n = states.shape[1], out.shape[1]
    x, memory = work[:size], state[: state.size - size - n - 1]
    total, held, number = state[memory.size : memory.size + size], state[state.size - n :], memory.size + size
    for k in range(len(states)):
        for i in range(size):
            total[i] += states[k, i]
        state[number] += 1.0
        if not state[number] < every:
            for i in range(size):
                x[i] = (total[i] / every - scaling[i]) / scaling[size + i]
            if directions:
                for j in range(n):
                    x[j] = min(max(total[n + j] / every / TRANSITION, -1.0), 1.0)
            _network(kind, flat, x, memory, work[size:], width, held)
            for j in range(n):
                held[j] *= scaling[4 * size + j]
            total[:] = 0.0
            state[number] = 0.0
        for j in range(n):
            out[k, j] = held[j]


@njit(cache=True)
def _trust(state: FloatArray, scaling: FloatArray) -> float:
    """1 where training data were, 0 beyond a margin around them, linear between."""
    size = state.size
    least = 1.0
    for i in range(size):
        low, high = scaling[2 * size + i], scaling[3 * size + i]
        margin = _MARGIN * (high - low) + 1e-9
        outside = max(low - state[i], state[i] - high)
        least = min(least, 1.0 - outside / margin)
    return max(0.0, least)


@njit(cache=True)
def _tick(
    arm: PackedKinematics,
    kind: int,
    flat: FloatArray,
    scaling: FloatArray,
    shape: tuple[int, int, bool],
    theta: FloatArray,
    nominal: FloatArray,
    transition: float,
    motion: FloatArray,
    state: FloatArray,
    work: FloatArray,
    out: FloatArray,
) -> float:
    """``out`` (4, n): the model's torque, the nominal one, their difference, the network's part; returns the trust.

    That is -1 where a number is not finite.
    """
    n = out.shape[1]
    q, qd, qdd = motion[:n], motion[n : 2 * n], motion[2 * n :]
    out[3] = 0.0
    if kind != _NONE:
        _steps(kind, flat, scaling, shape, motion.reshape(1, 3 * n), state, work, out[3:])
    out[0] = 0.0
    if theta.size:
        newton_euler(arm, q, qd, qd, qdd, qd, TRANSITION, theta, out[0])
    newton_euler(arm, q, qd, qd, qdd, qd, transition, nominal, out[1])
    for j in range(n):
        out[0, j] += out[3, j]
        out[2, j] = out[0, j] - out[1, j]
    if not (np.all(np.isfinite(out)) and np.all(np.isfinite(motion))):
        return -1.0
    return _trust(motion, scaling)


def _flat(learned: Learned) -> tuple[FloatArray, int, int]:
    """All numbers of a network in one array, the first layer's width, and the memory's."""
    w = learned.weights
    if not w:
        return np.zeros(1), 0, 0
    parts = [w["first.weight"].T, w["first.bias"]]
    memory = 0
    if learned.kind.network == "mlp":
        parts += [w["second.weight"].T, w["second.bias"]]
    else:
        memory = w["memory.weight_hh_l0"].shape[1]
        parts += [w[f"{norm}.{part}"] for norm in ("norm", "norm_after") for part in ("weight", "bias")]
        parts += [w["memory.weight_ih_l0"].T, w["memory.bias_ih_l0"]]
        parts += [w["memory.weight_hh_l0"].T, w["memory.bias_hh_l0"]]
    parts += [w["last.weight"].T, w["last.bias"], w["slope.weight"]]
    return np.concatenate([np.asarray(part, float).ravel() for part in parts]), len(w["first.bias"]), memory


class SteppingModel:
    """A learned model of an arm, one tick after the other.

    Attributes:
        learned: the model.
        has_memory: whether what it says depends on earlier ticks.
        ticks: since the memory was empty.
    """

    def __init__(self, learned: Learned, kin: Kinematics, nominal: FloatArray, transition: float) -> None:
        """With an empty memory; compiled when it is made.

        Args:
            learned: of this arm.
            kin: of the arm.
            nominal: (14 n,) parameters that :meth:`residual` is counted from.
            transition: friction transition velocity of these, rad/s.
        """
        n = len(learned.joint_names)
        s = learned.scaling
        self.learned, self.ticks, self._n = learned, 0, n
        self._arm, self._kind = kin.packed, _NETWORKS[learned.kind.network]
        self._flat, width, memory = _flat(learned)
        self._shape = width, learned.every, learned.sees == "directions"
        self._scaling = np.concatenate([s.mean, s.deviation, s.low, s.high, s.torque_range])
        self._theta = np.zeros(0) if learned.theta is None else np.array(learned.theta, float)
        self._nominal, self._transition = np.array(nominal, float), float(transition)
        self.has_memory = memory > 0 or learned.every > 1
        self._state = np.zeros(2 * memory + 4 * n + 1)
        self._work = np.zeros(3 * n + max(2 * width, width + 8 * memory))
        self._motion, self._out = np.zeros(3 * n), np.zeros((4, n))
        self._empty = np.zeros_like(self._state)
        self._torque, self._residual = self._out[0], self._out[2]
        self._step(np.zeros(n), np.zeros(n), np.zeros(n))
        self.reset()

    def reset(self) -> None:
        """Forget all ticks."""
        self._state[:] = 0.0
        self.ticks = 0

    def _step(self, q: FloatArray, qd: FloatArray, qdd: FloatArray) -> float:
        n, motion = self._n, self._motion
        motion[:n], motion[n : 2 * n], motion[2 * n :] = q, qd, qdd
        self.ticks += 1
        return float(
            _tick(
                self._arm, self._kind, self._flat, self._scaling, self._shape, self._theta, self._nominal,
                self._transition, motion, self._state, self._work, self._out,
            )
        )  # fmt: skip

    def torque(self, q: FloatArray, qd: FloatArray, qdd: FloatArray) -> FloatArray:
        """Torque (n,) of the whole model, N m, the same array every time; one tick goes by.

        Args:
            q: (n,) rad or m.
            qd: (n,) rad/s or m/s.
            qdd: (n,) rad/s^2 or m/s^2.
        """
        self._step(q, qd, qdd)
        return self._torque

    def residual(self, q: FloatArray, qd: FloatArray, qdd: FloatArray) -> tuple[FloatArray, float]:
        """Torque (n,) less that of the nominal parameters, and the trust in it, by where training data were.

        Args:
            q: (n,) rad or m.
            qd: (n,) rad/s or m/s.
            qdd: (n,) rad/s^2 or m/s^2.
        """
        return self._residual, self._step(q, qd, qdd)

    def along(self, q: FloatArray, qd: FloatArray, qdd: FloatArray) -> FloatArray:
        """Torque (N, n) of the network alone along a motion, beginning with an empty memory; changes nothing here.

        Args:
            q: (N, n) rad or m.
            qd: (N, n) rad/s or m/s.
            qdd: (N, n) rad/s^2 or m/s^2.
        """
        out = np.zeros(q.shape)
        if self._kind != _NONE:
            states = np.ascontiguousarray(np.column_stack([q, qd, qdd]))
            state, work = np.zeros_like(self._state), np.zeros_like(self._work)
            _steps(self._kind, self._flat, self._scaling, self._shape, states, state, work, out)
        return out


class HybridResidual:
    """A :class:`safe_sysid.learning.ResidualModel`: a learned model's torque less the rigid nominal one.

    Not trusted in its first :data:`WARM_UP` ticks, nor in as many after a jump of the motion, nor far from where its
    training data were.
    """

    in_tick = True  # loops of fixed lengths, compiled; and a memory must see every tick, once

    def __init__(self, stepping: SteppingModel) -> None:
        """With an empty memory. ``stepping``: the model."""
        self.stepping = stepping
        self._last = np.zeros(stepping.learned.scaling.torque_low.size)
        self._moved = np.zeros_like(self._last)
        self._need = WARM_UP if stepping.has_memory else 0

    @classmethod
    def read(cls, model: RobotModel, path: Path) -> HybridResidual:
        """From a file that ``safe-sysid learn hybrid`` wrote. ``model``: of the arm; ``path``: of the file.

        Raises:
            HybridFileError: damaged, of another arm's joints, or with a memory that steps at another rate.
        """
        learned = read_hybrid(path, model.joint_names)
        transition, rate = model.friction_transition_velocity, model.settings.measurement.rate_hz
        found = cls(SteppingModel(learned, model.kinematics, model.theta_nominal, transition))
        if found.stepping.has_memory and abs(learned.rate_hz / rate - 1.0) > _RATE:
            expected = f"{rate:g} Hz, the measurement.rate_hz of {model.name}"
            raise HybridFileError(f"{path}: rate_hz = {learned.rate_hz:g} of a model with memory: expected {expected}")
        return found

    def reset(self) -> None:
        """Forget all ticks: the next ones are of another motion, or some were missed."""
        self.stepping.reset()

    def predict(self, q: FloatArray, qd: FloatArray, qdd: FloatArray) -> tuple[FloatArray, float]:
        """Torque (n,), the same array every time, and how far to trust it; one tick goes by.

        Args:
            q: (n,) rad or m.
            qd: (n,) rad/s or m/s.
            qdd: (n,) rad/s^2 or m/s^2.
        """
        stepping = self.stepping
        np.subtract(q, self._last, out=self._moved)
        np.abs(self._moved, out=self._moved)
        self._last[:] = q
        if self._need and not self._moved.max() <= _JUMP:
            stepping.reset()
        torque, trust = stepping.residual(q, qd, qdd)
        if trust < 0.0:  # the memory is not finite any more, and would never be again
            stepping.reset()
        return torque, trust if stepping.ticks > self._need else 0.0
