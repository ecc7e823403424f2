r"""Deep Lagrangian network [Lutter2019]: kinetic and potential energy by one network, torques by Lagrange's equations.

``M = L L^T`` with positive diagonal, ``tau = M qdd + dM/dt qd - d(qd^T M qd)/dq / 2 + dV/dq``: conservative only. One
body of two layers of 200 with softplus, heads for V, the diagonal of L and what is below it: 47,629 weights for seven
joints, as Table IV of [Hybrid] counts.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn.functional import softplus

__all__ = ["DeLaN"]

#: Least diagonal entry of L.
_FLOOR = 1e-3


class DeLaN(nn.Module):
    """Torque of a conservative system with n coordinates."""

    def __init__(self, n: int, width: int = 200) -> None:
        super().__init__()
        self.n = n
        self.first, self.second = nn.Linear(n, width), nn.Linear(width, width)
        self.potential, self.diagonal = nn.Linear(width, 1), nn.Linear(width, n)
        self.below = nn.Linear(width, n * (n - 1) // 2)
        self.register_buffer("places", torch.tril_indices(n, n, -1))
        self.places: Tensor

    def _energies(self, q: Tensor) -> tuple[Tensor, Tensor]:
        """Potential energy (B,) and L (B, n, n)."""
        body = softplus(self.second(softplus(self.first(q))))
        factor = torch.diag_embed(softplus(self.diagonal(body)) + _FLOOR)
        i, j = self.places[0], self.places[1]
        strict = torch.zeros_like(factor).index_put(
            (torch.arange(len(q), device=q.device)[:, None], i[None], j[None]), self.below(body)
        )
        return self.potential(body)[:, 0], factor + strict

    def mass_matrix(self, q: Tensor) -> Tensor:
        """(B, n, n) of (B, n)."""
        factor = self._energies(q)[1]
        return factor @ factor.transpose(1, 2)

    def forward(self, q: Tensor, qd: Tensor, qdd: Tensor) -> Tensor:
        """Torque (B, n) of states (B, n), in the units that it was trained in."""

        def lagrangian(at: Tensor) -> Tensor:
            potential, factor = self._energies(at)
            return (0.5 * ((factor.transpose(1, 2) @ qd[:, :, None]) ** 2).sum((1, 2)) - potential).sum()

        slope = torch.func.grad(lagrangian)(q)
        inertia, rate = torch.func.jvp(self.mass_matrix, (q,), (qd,))
        return (inertia @ qdd[:, :, None] + rate @ qd[:, :, None])[:, :, 0] - slope
