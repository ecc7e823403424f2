"""Training: hyperparameters of the largest marginal likelihood, by Adam over batches as in [LIP], then by L-BFGS."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike
from scipy.optimize import minimize

from safe_sysid.core.arrays import FloatArray, IntArray
from safe_sysid.errors import ParameterError
from safe_sysid.learning.gaussian_process.factor import NotPositiveDefiniteError
from safe_sysid.learning.gaussian_process.kernels import SumKernel
from safe_sysid.learning.gaussian_process.motions import MotionSamples
from safe_sysid.learning.gaussian_process.regression import TorqueProcess, Units, check_size, likelihood_gradient
from safe_sysid.learning.gaussian_process.tensors import TensorLikelihood

__all__ = ["TrainingOptions", "train"]


_FARTHEST = 25.0  # logarithms stay within +- this
_NEAR = 2.0  # logarithms move by so much at most from where Adam ended: likelihoods of few samples have empty maxima
_NO_JITTER = (0.0,)  # with jitter, noise would be looked for that is not there
_NOISE = 0.1  # deviation of the noise to begin with, relative to the largest torque's
_QUIETER = 0.1  # that of every further start, relative to the one before


@dataclass(frozen=True)
class TrainingOptions:
    """How hyperparameters are looked for."""

    epochs: int = 400  #: of Adam, passes over the data
    batch: int = 100  #: samples of a step of Adam
    rate: float = 0.06  #: of Adam at the start
    seed: int = 0
    last: float = 0.02  #: share of it at the end, where half a cosine leads; 1: the same rate throughout, as in [LIP]
    starts: int = 2  #: of Adam, from different noises, each as long; the likelihood of all samples picks one
    #: Iterations of L-BFGS after Adam, for the likelihood of all samples. That of batches alone leaves the noise found
    #: a tenth too small: in a batch there are hardly more torques than what the energies explain.
    finish: int = 20
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
    reach: float,
    how: TrainingOptions,
    progress: Callable[[int, float], None],
) -> FloatArray:
    best, steps = (np.inf, start, start), itertools.count()

    def tried(z: FloatArray) -> tuple[float, FloatArray]:
        nonlocal best
        try:
            value, g = gradient(z)
        except NotPositiveDefiniteError:  # too far: a parabola about the best so far says where to look
            if not np.isfinite(best[0]):
                raise
            away = z - best[1]
            rise = max(abs(float(best[2] @ away)), 1.0)
            return best[0] + rise, 2.0 * rise / float(away @ away) * away
        if value < best[0]:
            best = value, z.copy(), g
        return value, g

    left = how.finish
    with suppress(NotPositiveDefiniteError):  # of the start: it stays
        while left > 0:
            before = best[0]
            result = minimize(
                tried, best[1], jac=True, method="L-BFGS-B",
                bounds=[(max(z - reach, -_FARTHEST), min(z + reach, _FARTHEST)) for z in start],
                options={"maxiter": left}, callback=lambda _: progress(next(steps), best[0]),
            )  # fmt: skip
            left -= max(result.nit, 1)
            # A search along a line that met the edge of what is positive definite may give up: it begins anew there.
            if result.success or not best[0] < before:
                break
    return best[1]


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
        progress: called with the epoch or iteration, counted through, and the negative log likelihood.
        units: of the parameters; None: those of `start`, or torques and velocities have a mean square of one.
        start: a process whose hyperparameters to begin with.

    Raises:
        ParameterError: shapes that do not fit, or numbers that are not finite.
        NotPositiveDefiniteError: a covariance has no factor.
    """
    how = how or TrainingOptions()
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

    def gradient(z: FloatArray, some: IntArray, *jitters: Sequence[float]) -> tuple[float, FloatArray]:
        value, *by = find(kernel, z[: kernel.count], z[kernel.count :], inside[some], y[some], *jitters)
        return value, np.concatenate(by)

    def tell(first: int) -> Callable[[int, float], None]:
        return lambda step, value: progress(first + step, value) if progress is not None else None

    reach = _NEAR if how.epochs or start is not None else 2.0 * _FARTHEST
    found: list[tuple[float, FloatArray]] = []
    for k in range(how.starts):
        z = begin.copy()
        z[kernel.count :] += 2.0 * k * np.log(_QUIETER)
        z = _adam(gradient, z, len(x), how, tell(k * how.epochs))
        found.append((gradient(z, every)[0] if how.starts > 1 else 0.0, z))
    z = min(found, key=lambda pair: pair[0])[1]
    if how.finish:
        told = tell(how.starts * how.epochs)
        z = _lbfgs(lambda z: gradient(z, every, _NO_JITTER), z, reach, how, told)
    return TorqueProcess(kernel, z[: kernel.count], z[kernel.count :], x, torque, units)
