"""Methods that are compared, behind one interface: from a trajectory to a function of motions."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Protocol

import numpy as np

from safe_sysid.core.arrays import FloatArray
from safe_sysid.errors import SafeSysIdError
from safe_sysid.learning.gaussian_process.kernels import (
    ChainPart,
    LagrangianPart,
    LinearPart,
    SquaredExponentialPart,
    SumKernel,
    friction_features,
    lip_kernel,
)
from safe_sysid.learning.gaussian_process.motions import MotionSamples
from safe_sysid.learning.gaussian_process.regression import Units
from safe_sysid.learning.gaussian_process.training import TrainingOptions, train
from safe_sysid.studies.lip.geometric import GeometricPart
from safe_sysid.studies.lip.lagrangian_exponential import LagrangianExponentialPart

__all__ = ["KNOW_ENERGIES", "METHODS", "Predictor", "Regressor", "kernel_of", "learn", "training"]

#: Features (N n, P) of a rigid body's parameters.
Regressor = Callable[[MotionSamples], FloatArray]
#: In the order of the tables: chain is the kernel that `learn lip` has, LIP the paper's. ID knows the arm's kinematics,
#: the others nothing but which joints slide.
METHODS = ("chain", "LIP", "GIP", "SE", "LSE", "ID", "DeLaN")
#: Whose energies are learned, too.
KNOW_ENERGIES = ("chain", "LIP")
#: Share of the rate of training: from larger steps GIP's likelihood is not found.
_SLOWER = {"GIP": 0.25}
_RIDGE = 1e-10  # of the largest singular value: what no sample tells stays zero


class Predictor(Protocol):
    """What was learned."""

    def predict(self, x: MotionSamples) -> FloatArray:
        """Torque (N, n), N m. ``x``: N samples."""


class _Identified:
    """Least squares in the parameters of rigid bodies, those that no torque tells of zero."""

    def __init__(self, regressor: Regressor, friction: bool, x: MotionSamples, torque: FloatArray) -> None:
        self._features = regressor if not friction else self._with_friction(regressor)
        theta = np.linalg.lstsq(self._features(x), torque.ravel(), rcond=_RIDGE)[0]
        self._theta = theta

    @staticmethod
    def _with_friction(regressor: Regressor) -> Regressor:
        return lambda x: np.hstack([regressor(x), friction_features(x)])

    def predict(self, x: MotionSamples) -> FloatArray:
        return np.asarray((self._features(x) @ self._theta).reshape(len(x), x.n))


def kernel_of(method: str, n: int, friction: bool) -> SumKernel:
    """The kernel of a Gaussian process among the methods.

    Args:
        method: chain, LIP, GIP, SE or LSE.
        n: joints.
        friction: with it, and (LIP, GIP) a squared exponential, as on real arms, eqs. (34) and (35).

    Raises:
        SafeSysIdError: another method.
    """
    if method in KNOW_ENERGIES:
        energies = ChainPart if method == "chain" else LagrangianPart
        return lip_kernel(n, friction=friction, residual=friction, energies=energies)
    extra = (LinearPart(friction_features, 2 * n),) if friction else ()
    if method == "SE":
        return SumKernel((SquaredExponentialPart(n), *extra))
    if method == "LSE":
        return SumKernel((LagrangianExponentialPart(n), *extra))
    if method == "GIP":
        return SumKernel((GeometricPart(n), *extra, *([SquaredExponentialPart(n)] if friction else [])))
    raise SafeSysIdError(f"method {method!r}: expected one of {', '.join((*METHODS, 'SP'))}")


def training(method: str, options: Mapping[str, Any], seed: int) -> TrainingOptions:
    """How a method is trained. ``options``: of the experiment; ``seed``: of batches, or of a network."""
    if method == "DeLaN":
        return TrainingOptions(epochs=options["network_epochs"], seed=seed)
    rate = options["rate"] * _SLOWER.get(method, 1.0)
    return TrainingOptions(
        options["epochs"], options["batch"], rate, seed, starts=options["starts"], finish=options["finish"]
    )


def _semiparametric(x: MotionSamples, regressor: Regressor) -> SumKernel:
    """Eq. (32) of [LIP]: rigid bodies and friction, linear, and a squared exponential of each joint."""
    parts = (
        LinearPart(regressor, regressor(x[:1]).shape[1]),
        LinearPart(friction_features, 2 * x.n),
        SquaredExponentialPart(x.n),
    )
    return SumKernel(parts)


def learn(
    method: str,
    x: MotionSamples,
    torque: FloatArray,
    how: TrainingOptions,
    regressor: Regressor,
    friction: bool = False,
) -> Predictor:
    """Learn.

    Args:
        method: of METHODS, or SP, which knows the kinematics, too.
        x: N samples.
        torque: (N, n) measured.
        how: training of Gaussian processes; of DeLaN seed and epochs.
        regressor: of the arm's rigid bodies, for ID and SP.
        friction: the arm has friction.

    Raises:
        SafeSysIdError: an unknown method, a covariance without a factor, or DeLaN without torch.
    """
    if method == "ID":
        return _Identified(regressor, friction, x, torque)
    if method == "SP":  # gravity's acceleration is in SI units
        return train(_semiparametric(x, regressor), x, torque, how, units=Units())
    if method == "DeLaN":
        try:
            from safe_sysid.learning.neural.training.delan_fit import Network
        except ImportError as error:
            raise SafeSysIdError("DeLaN needs torch: pip install 'safe_sysid[learn]'") from error
        return Network(x, torque, how.epochs, how.seed)
    return train(kernel_of(method, x.n, friction), x, torque, how)
