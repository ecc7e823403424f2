r"""Rigid arms that gradients may change and that stay real: DiffBary [Hybrid eq. 12] and DiffNEA [Sutanto2020].

Both make the ten parameters of every link from ten free numbers. DiffBary: ``S = A A^T + r 1`` is the link's
pseudo-inertia, A lower triangular, and torques are linear in what it holds. (The paper's eq. 19 and 21 print the second
entry of S's last column as ``c h + i b``; ``A A^T`` has ``e h + b i`` there.) DiffNEA: mass ``mu^2 + r``, centre free,
covariance about the centre ``C C^T + r 1``; torques by a recursion of torch operations.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor, nn

from safe_sysid.core.arrays import FloatArray
from safe_sysid.robot.model import Kinematics

__all__ = ["LEAST", "Barycentric", "NewtonEuler", "SmoothCoulombFriction", "row_space"]

#: r of eq. 12: the least that an eigenvalue may be, kg or kg m^2.
LEAST = 1e-8
#: Standard deviation of the free numbers at the start (appendix A).
_START = 1e-3


def _triangles(free: Tensor, size: int) -> Tensor:
    """(n, size, size) lower triangles: first the diagonals, as the paper's a to d, then what is below, row by row."""
    out = free.new_zeros((len(free), size, size))
    at = torch.arange(size)
    rows, columns = np.tril_indices(size, -1)
    out[:, at, at] = free[:, :size]
    out[:, torch.as_tensor(rows), torch.as_tensor(columns)] = free[:, size:]
    return out


def _packed(mass: Tensor, moment: Tensor, inertia: Tensor) -> Tensor:
    """(n, 10) in Pinocchio's order from (n,), (n, 3) and (n, 3, 3)."""
    i, j = [0, 0, 1, 0, 1, 2], [0, 1, 1, 2, 2, 2]
    return torch.cat([mass[:, None], moment, inertia[:, i, j]], dim=1)


def _trace_minus(second: Tensor) -> Tensor:
    """``tr(X) 1 - X``: inertia from second moments of mass."""
    trace = torch.diagonal(second, dim1=-2, dim2=-1).sum(-1)
    return trace[:, None, None] * torch.eye(3, dtype=second.dtype, device=second.device) - second


class SmoothCoulombFriction(nn.Module):
    """Coulomb friction that rises to its value below a transition velocity [Hybrid eq. 13], never negative."""

    def __init__(self, n: int) -> None:
        """For n joints, nearly none at the start."""
        super().__init__()
        self.root = nn.Parameter(torch.full((n,), 0.1))

    def coulomb(self) -> Tensor:
        """(n,) N m or N."""
        return self.root**2

    def forward(self, sign: Tensor) -> Tensor:
        """Torque (..., n), N m, from ``sat(qd / transition)``."""
        return self.coulomb() * sign


class Barycentric(nn.Module):
    """DiffBary: torques linear in parameters that are always some arm's."""

    def __init__(self, n: int, basis: FloatArray) -> None:
        """For n links.

        ``basis``: (10 n, b) orthonormal, of the combinations that torques depend on (:func:`row_space`).
        """
        super().__init__()
        self.free = nn.Parameter(_START * torch.randn(n, 10))
        self.register_buffer("basis", torch.as_tensor(basis))
        self.basis: Tensor

    def links(self) -> Tensor:
        """(n, 10) parameters of the links."""
        a = _triangles(self.free, 4)
        s = a @ a.transpose(1, 2) + LEAST * torch.eye(4, dtype=a.dtype, device=a.device)
        return _packed(s[:, 3, 3], s[:, :3, 3], _trace_minus(s[:, :3, :3]))

    def forward(self, regressor: Tensor) -> Tensor:
        """Torque (..., n), N m. ``regressor``: (..., n, b) of the links' parameters, times the basis."""
        return regressor @ (self.links().reshape(-1) @ self.basis.to(self.free.dtype))


class NewtonEuler(nn.Module):
    """DiffNEA: a recursion over the links."""

    def __init__(self, kin: Kinematics) -> None:
        """For an arm whose joints all turn. ``kin``: of the arm; its motors are not looked at."""
        super().__init__()
        n = len(kin.axis)
        self.free = nn.Parameter(_START * torch.randn(n, 10))
        for name in ("rotation", "translation", "axis", "gravity"):
            self.register_buffer(name, torch.tensor(np.array(getattr(kin, name))))
        self.rotation: Tensor
        self.translation: Tensor
        self.axis: Tensor
        self.gravity: Tensor

    def _parts(self) -> tuple[Tensor, Tensor, Tensor]:
        """Mass (n,), centre (n, 3), inertia about the centre (n, 3, 3)."""
        mass = self.free[:, 0] ** 2 + LEAST
        c = _triangles(self.free[:, 4:], 3)
        second = c @ c.transpose(1, 2) + LEAST * torch.eye(3, dtype=c.dtype, device=c.device)
        return mass, self.free[:, 1:4], _trace_minus(second)

    def links(self) -> Tensor:
        """(n, 10) parameters of the links, inertia about the joints' origins."""
        mass, centre, inertia = self._parts()
        second = mass[:, None, None] * centre[:, :, None] * centre[:, None, :]
        return _packed(mass, mass[:, None] * centre, inertia + _trace_minus(second))

    def forward(self, q: Tensor, qd: Tensor, qdd: Tensor) -> Tensor:
        """Torque (B, n), N m, of states (B, n)."""
        dtype = self.free.dtype
        rotation, translation, axis = (x.to(dtype) for x in (self.rotation, self.translation, self.axis))
        mass, centre, inertia = self._parts()
        zero = q.new_zeros((len(q), 3))
        omega, alpha, acceleration = zero, zero, zero - self.gravity.to(dtype)
        frames, forces, moments = [], [], []
        for j in range(q.shape[1]):
            x, y, z = axis[j]
            skew = torch.stack([0 * x, -z, y, z, 0 * x, -x, -y, x, 0 * x]).reshape(3, 3)
            sin, cos = torch.sin(q[:, j, None, None]), torch.cos(q[:, j, None, None])
            turn = torch.eye(3, dtype=dtype, device=q.device) + sin * skew + (1.0 - cos) * (skew @ skew)
            frame = rotation[j] @ turn  # joint frame in its parent's
            at = translation[j].expand_as(zero)
            acceleration = acceleration + _cross(alpha, at) + _cross(omega, _cross(omega, at))
            back = frame.transpose(1, 2)
            omega, alpha, acceleration = ((back @ v[:, :, None])[:, :, 0] for v in (omega, alpha, acceleration))
            spin = axis[j] * qd[:, j, None]
            alpha = alpha + axis[j] * qdd[:, j, None] + _cross(omega, spin)
            omega = omega + spin
            c = centre[j].expand_as(zero)
            force = mass[j] * (acceleration + _cross(alpha, c) + _cross(omega, _cross(omega, c)))
            moments.append(alpha @ inertia[j] + _cross(omega, omega @ inertia[j]) + _cross(c, force))
            forces.append(force)
            frames.append(frame)
        torques, force, moment = [], zero, zero
        for j in range(q.shape[1] - 1, -1, -1):
            force, moment = force + forces[j], moment + moments[j]
            torques.append(moment @ axis[j])
            force, moment = ((frames[j] @ v[:, :, None])[:, :, 0] for v in (force, moment))
            moment = moment + _cross(translation[j].expand_as(zero), force)
        return torch.stack(torques[::-1], dim=1)


def _cross(a: Tensor, b: Tensor) -> Tensor:
    return torch.linalg.cross(a, b)


def row_space(regressor: FloatArray) -> FloatArray:
    """(P, b) orthonormal basis of what the torque depends on.

    ``regressor``: (M, P) rows at states that excite everything.
    """
    _, sizes, rows = np.linalg.svd(np.linalg.qr(regressor, mode="r"))
    return np.ascontiguousarray(rows[: int(np.sum(sizes > 1e-10 * sizes[0]))].T)
