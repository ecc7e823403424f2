"""Training: hyperparameters of the largest marginal likelihood, by Adam over batches as in [LIP], or by L-BFGS."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike
from scipy.optimize import minimize

from safe_sysid.core.arrays import FloatArray, IntArray
from safe_sysid.errors import ParameterError
from safe_sysid.learning.gaussian_process.kernels import SumKernel
from safe_sysid.learning.gaussian_process.motions import MotionSamples
from safe_sysid.learning.gaussian_process.regression import TorqueProcess, Units, check_size, likelihood_gradient
from safe_sysid.learning.gaussian_process.tensors import TensorLikelihood

__all__ = ["TrainingOptions", "train"]


_FARTHEST = 25.0  # logarithms stay within +- this
_NOISE = 0.1  # deviation of the noise to begin with, relative to the largest torque's
_QUIETER = 0.1  # that of every further start, relative to the one before


@dataclass(frozen=True)
class TrainingOptions:
    """How hyperparameters are looked for."""

    method: str = "adam"
    epochs: int = 400  #: passes over the data of Adam; iterations of L-BFGS
    batch: int = 100  #: samples of a step of Adam; L-BFGS takes all
    rate: float = 0.06  #: of Adam at the start
    seed: int = 0
    last: float = 0.02  #: share of it at the end, where half a cosine leads; 1: the same rate throughout, as in [LIP]
    starts: int = 1  #: trainings from different noises, each as long; the likelihood of all samples picks one
    device: str | None = None  #: of torch, as "cuda", that likelihoods are found on; None: this processor, compiled


def _adam(
    gradient: Callable[[FloatArray, IntArray], tuple[float, FloatArray]],
    start: FloatArray,
    samples: int,
    how: TrainingOptions,
    progress: Callable[[int, float], None],
) -> FloatArray:
    z, m, v, steps = start.copy(), np.zeros(start.shape), np.zeros(start.shape), 0
    rng, batch = np.random.default_rng(how.seed), min(how.batch, samples)
    total = how.epochs * (samples // batch)
    for epoch in range(how.epochs):
        order, values = rng.permutation(samples), []
        for k in range(0, samples - batch + 1, batch):  # what is left over waits for another epoch
            value, g = gradient(z, np.sort(order[k : k + batch]))
            rate = how.rate * (how.last + (1.0 - how.last) * 0.5 * (1.0 + np.cos(np.pi * steps / total)))
            steps += 1
            m = 0.9 * m + 0.1 * g
            v = 0.999 * v + 0.001 * g * g
            z = z - rate * (m / (1.0 - 0.9**steps)) / (np.sqrt(v / (1.0 - 0.999**steps)) + 1e-8)
            z = np.clip(z, -_FARTHEST, _FARTHEST)
            values.append(value)
        progress(epoch, float(np.mean(values)))
    return z


def _lbfgs(
    gradient: Callable[[FloatArray], tuple[float, FloatArray]],
    start: FloatArray,
    how: TrainingOptions,
    progress: Callable[[int, float], None],
) -> FloatArray:
    steps = iter(range(how.epochs + 1))
    return np.asarray(
        minimize(
            gradient, start, jac=True, method="L-BFGS-B", bounds=[(-_FARTHEST, _FARTHEST)] * len(start),
            options={"maxiter": how.epochs},
            callback=lambda intermediate_result: progress(next(steps), float(intermediate_result.fun)),
        ).x
    )  # fmt: skip


def train(
    kernel: SumKernel,
    x: MotionSamples,
    torque: ArrayLike,
    how: TrainingOptions | None = None,
    progress: Callable[[int, float], None] | None = None,
    units: Units | None = None,
    start: TorqueProcess | None = None,
) -> TorqueProcess:
    """Find hyperparameters from data, and condition the process on it.

    Args:
        x: N samples.
        torque: (N, n) N m or N.
        how: None: as :class:`TrainingOptions` has it.
        progress: called with epoch (iteration), of all starts, and negative log likelihood (of a batch).
        units: of the parameters; None: those of `start`, or torques and velocities have a mean square of one.
        start: a process whose hyperparameters to begin with.

    Raises:
        ParameterError: shapes that do not fit, numbers that are not finite, or an unknown method.
        NotPositiveDefiniteError: a covariance has no factor.
    """
    how = how or TrainingOptions()
    if how.method not in ("adam", "lbfgs"):
        raise ParameterError(f"method = {how.method!r}: expected adam or lbfgs")
    torque = np.atleast_2d(np.asarray(torque, float))
    if torque.shape != (len(x), x.n) or not len(x):
        raise ParameterError(f"torque: shape {torque.shape}, expected {(len(x), x.n)}, and at least one sample")
    if not np.all(np.isfinite(torque)):
        r, j = np.argwhere(~np.isfinite(torque))[0]
        raise ParameterError(f"torque[{r}, {j}] = {torque[r, j]}: expected a finite number")
    check_size(torque.size, torque.size)  # before the training, not after it
    if units is None:
        units = Units.of(x, torque) if start is None else start.units
    inside, y, every = units.inside(x), torque / units.torque, np.arange(len(x))
    if start is not None:
        begin = np.concatenate([start.log, start.log_noise])
    else:
        noise = np.full(x.n, 2.0 * np.log(max(_NOISE * np.max(np.std(y, axis=0)), 1e-3)))
        begin = np.concatenate([kernel.start(inside), noise])
    find = likelihood_gradient if how.device is None else TensorLikelihood(how.device).gradient

    def gradient(z: FloatArray, some: IntArray) -> tuple[float, FloatArray]:
        value, *by = find(kernel, z[: kernel.count], z[kernel.count :], inside[some], y[some])
        return value, np.concatenate(by)

    found: list[tuple[float, FloatArray]] = []
    for k in range(how.starts):

        def tell(epoch: int, value: float, done: int = k * how.epochs) -> None:
            if progress is not None:
                progress(done + epoch, value)

        first = begin.copy()
        first[kernel.count :] += 2.0 * k * np.log(_QUIETER)
        if how.method == "adam":
            z = _adam(gradient, first, len(x), how, tell)
        else:
            z = _lbfgs(lambda z: gradient(z, every), first, how, tell)
        value = gradient(z, every)[0] if how.starts > 1 else 0.0
        found.append((value, z))
    z = min(found, key=lambda pair: pair[0])[1]
    return TorqueProcess(kernel, z[: kernel.count], z[kernel.count :], x, torque, units)
