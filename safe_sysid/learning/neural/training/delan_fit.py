"""DeLaN, a baseline of [LIP], after its table II but for fewer epochs and two hidden layers; torch, extra `learn`."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor, nn

from safe_sysid.core.arrays import FloatArray
from safe_sysid.learning.gaussian_process.motions import MotionSamples
from safe_sysid.learning.neural.training.delan import DeLaN

__all__ = ["Network"]

_WIDTH, _BATCH, _RATE, _DECAY = 64, 100, 5e-4, 1e-5


class Network:
    """A deep Lagrangian network that was trained; torques in one unit for all joints, or Lagrange's equations break."""

    def __init__(self, x: MotionSamples, torque: FloatArray, epochs: int, seed: int) -> None:
        """Train with Adam: squared errors of torques over their variances, and of their power over its variance.

        Args:
            x: N samples.
            torque: (N, n) N m.
            epochs: passes over the data; the paper's are 200,000.
            seed: of weights and batches.
        """
        torch.set_num_threads(1)
        torch.manual_seed(seed)
        self._unit = float(np.sqrt(np.mean(torque**2))) or 1.0
        self._net = DeLaN(x.n, _WIDTH)
        for module in self._net.modules():
            if isinstance(module, nn.Linear):
                nn.init.xavier_normal_(module.weight)
                nn.init.zeros_(module.bias)
        state, wanted = self._tensors(x), torch.tensor(torque / self._unit, dtype=torch.float32)
        variance = wanted.var(0) + 1e-12
        power = (wanted * state[1]).sum(1).var() + 1e-12
        optimiser = torch.optim.Adam(self._net.parameters(), _RATE, weight_decay=_DECAY)
        for _ in range(epochs):
            for batch in torch.randperm(len(x)).split(_BATCH):
                error = self._net(*(a[batch] for a in state)) - wanted[batch]
                loss = (error**2 / variance).sum(1).mean()
                loss = loss + ((error * state[1][batch]).sum(1) ** 2).mean() / power
                optimiser.zero_grad()
                loss.backward()
                optimiser.step()

    @staticmethod
    def _tensors(x: MotionSamples) -> tuple[Tensor, ...]:
        return tuple(torch.tensor(np.array(a), dtype=torch.float32) for a in (x.q, x.qd, x.qdd))

    def predict(self, x: MotionSamples) -> FloatArray:
        """Torque (N, n), N m, at N samples."""
        with torch.no_grad():
            return self._unit * self._net(*self._tensors(x)).double().numpy()
