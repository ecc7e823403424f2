"""A data set as training takes it: sequences of equal length in torch, and units from the training data."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from safe_sysid.core.layout import PER_LINK
from safe_sysid.dynamics.recursion import RecursiveDynamics
from safe_sysid.errors import ParameterError
from safe_sysid.learning.neural.dataset import Dataset, Motion
from safe_sysid.learning.neural.models import TRANSITION, Scaling
from safe_sysid.learning.neural.training.rigid import row_space
from safe_sysid.robot.model import Kinematics

__all__ = ["Batch", "Sequences", "arm_basis", "torques_of"]

FloatArray = NDArray[np.float64]
#: Bytes of regressors that are kept; of more data they are computed again for every batch.
_KEPT = 3 << 30
_CHUNK = 4096


@dataclass(frozen=True)
class Batch:
    """Sequences of one step of training, float32.

    Attributes:
        x: (B, T, 3 n) normalised ``[q, qd, qdd]``.
        target: (B, T, n) torque in units of its range.
        states: (3, B, T, n) ``q``, ``qd``, ``qdd`` as they are.
        sign: (B, T, n) ``sat(qd / transition)``.
        regressor: (B, T, n, b), or None where no rigid part needs it.
    """

    x: Tensor
    target: Tensor
    states: Tensor
    sign: Tensor
    regressor: Tensor | None


def arm_basis(kin: Kinematics) -> FloatArray:
    """(10 n, b) orthonormal basis of what an arm's torques depend on of its links.

    Args:
        kin: of the arm.
    """
    n = len(kin.axis)
    rng = np.random.default_rng(0)
    q, qd, qdd = rng.uniform(-np.pi, np.pi, (40 * n, n)), *rng.normal(0.0, 3.0, (2, 40 * n, n))
    rows = RecursiveDynamics(kin).torque_regressor(q, qd, qdd)[:, :, : PER_LINK * n]
    return row_space(rows.reshape(-1, PER_LINK * n))


def torques_of(kin: Kinematics, theta: FloatArray | None, motion: Motion) -> FloatArray:
    """(N, n) torque of rigid parameters along a motion, N m, friction as in eq. 13; zeros for None.

    Args:
        kin: of the arm.
        theta: (14 n,) or None.
        motion: of the arm.
    """
    if theta is None:
        return np.zeros_like(motion.q)
    return RecursiveDynamics(kin).inverse_dynamics(theta, motion.q, motion.qd, motion.qdd, TRANSITION)


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
        known: Callable[[Motion], FloatArray],
        basis: FloatArray | None,
        device: str,
    ) -> None:
        """Read the split; what is left of a motion at its end is not used.

        Args:
            dataset: to read.
            split: one of its splits.
            steps: T of a sequence.
            scaling: units.
            kin: of the arm.
            known: (N, n) torque along a motion that is not to be learned, N m.
            basis: of regressors (:func:`arm_basis`); None for none.
            device: of torch.

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
            count = len(motion) // steps * steps
            samples += count
            states = np.stack([motion.q, motion.qd, motion.qdd])[:, :count]
            x = (np.concatenate(list(states), axis=1) - scaling.mean) / scaling.deviation
            target = (motion.tau - known(motion))[:count] / scaling.torque_range
            sign = np.clip(states[1] / TRANSITION, -1.0, 1.0)
            shape = (-1, steps, n)
            for part, values in zip(
                parts,
                (
                    x.reshape(-1, steps, 3 * n),
                    target.reshape(shape),
                    states.reshape(3, *shape),
                    sign.reshape(shape),
                ),
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
        """Some sequences.

        Args:
            index: (B,) which.
        """
        regressor, states = None, self._states[:, index]
        if self._regressor is not None:
            regressor = self._regressor[index]
        elif self.basis is not None:
            raw = self._regressors(states.flatten(1, 2).cpu().numpy())
            regressor = torch.as_tensor(raw.reshape(*states.shape[1:], -1), device=self._device)
        return Batch(self._x[index], self._target[index], states, self._sign[index], regressor)
