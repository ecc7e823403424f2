"""Fixed units of networks, from the training data."""

from __future__ import annotations

import numpy as np

from safe_sysid.core.arrays import FloatArray
from safe_sysid.dynamics.protocol import coulomb_direction
from safe_sysid.errors import ParameterError
from safe_sysid.learning.neural.dataset import Dataset
from safe_sysid.learning.neural.models import TRANSITION, Scaling

__all__ = ["network_inputs", "scaling_of"]


def network_inputs(scaling: Scaling, sees: str, states: FloatArray) -> FloatArray:
    """(N, 3 n) what a network sees of states.

    Args:
        scaling: of the network.
        sees: one of :data:`~safe_sysid.learning.neural.models.SEEN`.
        states: (3, N, n) q, qd, qdd.
    """
    n = states.shape[2]
    x = (np.concatenate(list(states), axis=1) - scaling.mean) / scaling.deviation
    if sees == "directions":
        x[:, :n] = coulomb_direction(states[1], TRANSITION)
    return np.asarray(x)


def scaling_of(dataset: Dataset) -> Scaling:
    """Units of a data set, from its training data. ``dataset``: with at least one trajectory for training.

    Raises:
        ParameterError: nothing to train with, or a joint whose motions or torques never change.
    """
    entries = dataset.of("train")
    if not entries:
        raise ParameterError(f"{dataset.folder}: no trajectory for training: expected at least one")
    count, total, square = 0, 0.0, 0.0
    lows, highs, torques = [], [], []
    for entry in entries:
        motion = dataset.motion(entry)
        x = np.column_stack([motion.q, motion.qd, motion.qdd])
        count, total, square = count + len(x), total + x.sum(axis=0), square + (x**2).sum(axis=0)
        lows.append(x.min(axis=0))
        highs.append(x.max(axis=0))
        torques += [motion.tau.min(axis=0), motion.tau.max(axis=0)]
    mean = np.asarray(total / count)
    deviation = np.sqrt(np.maximum(square / count - mean**2, 0.0))
    low, high = np.min(torques, axis=0), np.max(torques, axis=0)
    for odd, what in (((deviation < 1e-9).reshape(3, -1).any(axis=0), "motions"), (high <= low, "torques")):
        if np.any(odd):
            name = dataset.joints[int(np.argmax(odd))]
            raise ParameterError(f"{dataset.folder}: {what} of {name} are constant: expected some that change")
    return Scaling(mean, deviation, np.min(lows, axis=0), np.max(highs, axis=0), low, high)
