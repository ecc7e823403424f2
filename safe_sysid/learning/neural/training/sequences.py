"""A data set as training takes it: sequences of equal length in torch, and units from the training data."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from safe_sysid.core.arrays import FloatArray
from safe_sysid.core.layout import PER_LINK
from safe_sysid.dynamics.protocol import coulomb_direction
from safe_sysid.dynamics.recursion import RecursiveDynamics
from safe_sysid.errors import ParameterError
from safe_sysid.learning.neural.dataset import Dataset, MeasuredMotion
from safe_sysid.learning.neural.models import TRANSITION, Scaling
from safe_sysid.learning.neural.scaling import network_inputs
from safe_sysid.learning.neural.training.rigid import row_space
from safe_sysid.robot.model import Kinematics

__all__ = ["Batch", "Sequences", "arm_basis", "torques_of"]

#: Bytes of regressors that are kept; of more data they are computed again for every batch.
_KEPT = 3 << 30
_CHUNK = 4096


@dataclass(frozen=True)
class Batch:
    """Sequences of one step of training, float32."""

    x: Tensor  #: (B, T, 3 n) what the network sees
    target: Tensor  #: (B, T, n) torque in units of its range
    states: Tensor  #: (3, B, T, n) ``q``, ``qd``, ``qdd`` as they are
    sign: Tensor  #: (B, T, n) ``sat(qd / transition)``
    regressor: Tensor | None  #: (B, T, n, b), or None where no rigid part needs it


def arm_basis(kin: Kinematics) -> FloatArray:
    """(10 n, b) orthonormal basis of what an arm's torques depend on of its links. ``kin``: of the arm."""
    n = len(kin.axis)
    rng = np.random.default_rng(0)
    q, qd, qdd = rng.uniform(-np.pi, np.pi, (40 * n, n)), *rng.normal(0.0, 3.0, (2, 40 * n, n))
    rows = RecursiveDynamics(kin).torque_regressor(q, qd, qdd)[:, :, : PER_LINK * n]
    return row_space(rows.reshape(-1, PER_LINK * n))


def torques_of(kin: Kinematics, theta: FloatArray | None, motion: MeasuredMotion) -> FloatArray:
    """(N, n) torque of rigid parameters along a motion, N m, friction as in eq. 13; zeros for None.

    Args:
        kin: of the arm.
        theta: (14 n,) or None.
        motion: of the arm.
    """
    if theta is None:
        return np.zeros_like(motion.q)
    return RecursiveDynamics(kin).inverse_dynamics(theta, motion.q, motion.qd, motion.qdd, TRANSITION)


def _means(x: FloatArray, every: int) -> FloatArray:
    """(N // every, n) means of (N, n) over that many rows; what is left is not used."""
    return x[: len(x) // every * every].reshape(-1, every, x.shape[1]).mean(axis=1)


class Sequences:
    """A split of a data set, cut into sequences.

    Attributes:
        basis: (10 n, b), or None where no regressor is needed.
    """

    def __init__(
        self,
        dataset: Dataset,
        split: str,
        steps: int,
        scaling: Scaling,
        kin: Kinematics,
        known: Callable[[MeasuredMotion], FloatArray],
        basis: FloatArray | None,
        device: str,
        *,
        sees: str = "positions",
        every: int = 1,
    ) -> None:
        """Read the split; what is left of a motion at its end is not used.

        A step of more than one tick holds the means of its ticks, and what the network sees is of the step before: its
        torque is held meanwhile.

        Args:
            dataset: to read.
            split: one of its splits.
            steps: T of a sequence.
            scaling: units.
            kin: of the arm.
            known: (N, n) torque along a motion that is not to be learned, N m.
            basis: of regressors (:func:`arm_basis`); None for none.
            device: of torch.
            sees: what the network sees, one of :data:`~safe_sysid.learning.neural.models.SEEN`.
            every: ticks of a step.

        Raises:
            ParameterError: no motion is as long as a sequence.
        """
        self._kin, self.basis, self._device = kin, basis, device
        parts: list[list[NDArray[np.float32]]] = [[], [], [], []]
        regressors = []
        entries = dataset.of(split)
        n = len(dataset.joints)
        samples = 0
        for entry in entries:
            motion = dataset.motion(entry)
            target = (motion.tau - known(motion)) / scaling.torque_range
            parts_of = motion.q, motion.qd, motion.qdd, coulomb_direction(motion.qd, TRANSITION), target
            means = np.stack([_means(part, every) for part in parts_of])
            x = network_inputs(scaling, sees, means[:3])
            if every > 1:
                x, means = x[:-1], means[:, 1:]
            count = len(x) // steps * steps
            samples += count
            x, states, sign, target = x[:count], means[:3, :count], means[3, :count], means[4, :count]
            shape = (-1, steps, n)
            for part, values in zip(
                parts,
                (x.reshape(-1, steps, 3 * n), target.reshape(shape), states.reshape(3, *shape), sign.reshape(shape)),
                strict=True,
            ):
                part.append(values.astype(np.float32))
            if basis is not None and 4 * samples * n * basis.shape[1] <= _KEPT:
                regressors.append(self._regressors(states).reshape(-1, steps, n, basis.shape[1]))
        if not samples:
            raise ParameterError(
                f"{dataset.folder}: no trajectory for {split} of {steps} samples: expected at least one"
            )
        self._x, self._target, self._states, self._sign = (
            torch.as_tensor(np.concatenate(part, axis=1 if k == 2 else 0), device=device)
            for k, part in enumerate(parts)
        )
        kept = basis is not None and sum(map(len, regressors)) == len(self)
        self._regressor = torch.as_tensor(np.concatenate(regressors), device=device) if kept else None

    def __len__(self) -> int:
        """Number of sequences."""
        return len(self._x)

    def _regressors(self, states: NDArray[np.floating]) -> NDArray[np.float32]:
        """(N, n, b) of (3, N, n)."""
        if self.basis is None:
            raise ParameterError("no basis: expected one where regressors are needed")
        dynamics, out = RecursiveDynamics(self._kin), []
        for at in range(0, states.shape[1], _CHUNK):
            q, qd, qdd = (np.asarray(x[at : at + _CHUNK], np.float64) for x in states)
            rows = dynamics.torque_regressor(q, qd, qdd)[:, :, : len(self.basis)]
            out.append((rows @ self.basis).astype(np.float32))
        return np.concatenate(out)

    def batch(self, index: Tensor) -> Batch:
        """Some sequences. ``index``: (B,) which."""
        regressor, states = None, self._states[:, index]
        if self._regressor is not None:
            regressor = self._regressor[index]
        elif self.basis is not None:
            raw = self._regressors(states.flatten(1, 2).cpu().numpy())
            regressor = torch.as_tensor(raw.reshape(*states.shape[1:], -1), device=self._device)
        return Batch(self._x[index], self._target[index], states, self._sign[index], regressor)
