"""The simulated Panda of [LIP section V-A] and its random trajectories, eq. (33)."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from safe_sysid.core.arrays import FloatArray
from safe_sysid.core.layout import PER_LINK, ParameterLayout
from safe_sysid.dynamics import dynamics_of
from safe_sysid.learning.gaussian_process.motions import MotionSamples
from safe_sysid.robot.loading import load_robot

__all__ = ["NOISE", "SETTINGS", "Panda", "PandaSetting", "PandaTrajectory"]


#: Deviation of the noise of training torques, N m.
NOISE = 0.01
#: Mass, centre of mass (m), and inertia (xx, xy, xz, yy, yz, zz; kg m^2) *about the joint's frame*: as in the paper's
#: public code, from identified parameters of a real Panda; no hand.
_LINKS = (
    (4.970684, (3.875e-3, 2.081e-3, -0.1750), (0.70337, -1.39e-4, 6.772e-3, 0.70661, 1.9169e-2, 9.117e-3)),
    (0.646926, (-3.141e-3, -2.872e-2, 3.495e-3), (7.962e-3, -3.925e-3, 1.0254e-2, 2.811e-2, 7.04e-4, 2.5995e-2)),
    (3.228604, (2.7518e-2, 3.9252e-2, -6.6502e-2),
     (3.7242e-2, -4.761e-3, -1.1396e-2, 3.6155e-2, -1.2805e-2, 1.083e-2)),
    (3.587895, (-5.317e-2, 1.04419e-1, 2.7454e-2), (2.5853e-2, 7.796e-3, -1.332e-3, 1.9552e-2, 8.641e-3, 2.8323e-2)),
    (1.225946, (-1.1953e-2, 4.1065e-2, -3.8437e-2), (3.5549e-2, -2.117e-3, -4.037e-3, 2.9474e-2, 2.29e-4, 8.627e-3)),
    (1.666555, (6.0149e-2, -1.4117e-2, -1.0517e-2), (1.964e-3, 1.09e-4, -1.158e-3, 4.354e-3, 3.41e-4, 5.433e-3)),
    (0.735522, (1.0517e-2, -4.252e-3, 6.1597e-2), (1.2516e-2, -4.28e-4, -1.196e-3, 1.0027e-2, -7.41e-4, 4.815e-3)),
)  # fmt: skip
_LOW = np.array([-2.9, -1.8, -2.9, -3.0, -2.9, 0.0, -2.9])
_HIGH = np.array([2.9, 1.8, 2.9, 0.0, 2.9, 3.8, 2.9])
_VELOCITY = np.array([2.175, 2.175, 2.175, 2.175, 2.61, 2.61, 2.61])
_ACCELERATION = np.array([15.0, 7.5, 10.0, 12.5, 15.0, 20.0, 20.0])
_START, _ATTEMPTS, _LESS = 0.1, 11, 0.8


@dataclass(frozen=True)
class PandaSetting:
    """How trajectories are drawn."""

    samples: int  #: of a trajectory, at 10 Hz
    frequency: float  #: fundamental, rad/s
    low: FloatArray  #: (7,) rad
    high: FloatArray  #: (7,) rad
    sinusoids: int = 50  #: of each joint


_MIDDLE, _HALF = 0.5 * (_LOW + _HIGH), 0.5 * (_HIGH - _LOW)
#: "text": as the paper says; "script": as the script that makes its public code's data does, with half the range of
#: positions; "code": with eight tenths of it and twice the sinusoids, as that script has in its comments.
SETTINGS = {
    "text": PandaSetting(
        500, 0.02, np.array([-2.3, -1.4, -2.3, -2.7, -2.3, 0.2, -2.3]), np.array([2.3, 1.4, 2.3, -0.3, 2.3, 3.2, 2.3])
    ),
    "code": PandaSetting(501, 2.0 * np.pi * 0.02, _MIDDLE - 0.8 * _HALF, _MIDDLE + 0.8 * _HALF, 100),
    "script": PandaSetting(501, 2.0 * np.pi * 0.02, _MIDDLE - 0.5 * _HALF, _MIDDLE + 0.5 * _HALF),
}


@dataclass(frozen=True)
class PandaTrajectory:
    """A trajectory."""

    x: MotionSamples  #: N samples
    torque: FloatArray  #: (N, n) without noise, N m
    noisy: FloatArray  #: (N, n) N m
    energies: FloatArray  #: (2, N) kinetic and potential, J


class Panda:
    """The arm with its first joints free, the others at rest in the middle of their range."""

    def __init__(self, joints: int) -> None:
        """Of 1 to 7 joints. ``joints``: that move."""
        self.n = joints
        self._kin = load_robot("franka_panda").kinematics
        self.dynamics = dynamics_of(self._kin)

    @cached_property
    def theta(self) -> FloatArray:
        """(98,) parameters; neither friction nor rotors."""
        theta = np.zeros(ParameterLayout(7).size)
        for j, (m, c, (xx, xy, xz, yy, yz, zz)) in enumerate(_LINKS):
            centre = m * np.array(c)
            theta[PER_LINK * j : PER_LINK * j + 10] = m, *centre, xx, xy, yy, xz, yz, zz
        return theta

    def torque(self, x: MotionSamples) -> FloatArray:
        """(N, n) N m. ``x``: N samples."""
        return np.array([self._regressor(*at) @ self.theta for at in zip(x.q, x.qd, x.qdd, strict=True)])

    def regressor(self, x: MotionSamples) -> FloatArray:
        """(N n, 98) of the links' parameters: what rigid-body identification knows. ``x``: N samples."""
        return np.concatenate([self._regressor(*at) for at in zip(x.q, x.qd, x.qdd, strict=True)])

    def _regressor(self, q: FloatArray, qd: FloatArray, qdd: FloatArray) -> FloatArray:
        whole = np.zeros((3, 7))
        whole[0] = _MIDDLE
        whole[:, : self.n] = q, qd, qdd
        return np.array(self.dynamics.torque_regressor(whole[0], whole[1], whole[2])[: self.n])

    def energies(self, x: MotionSamples) -> FloatArray:
        """(2, N) kinetic and potential energy, J; the latter is zero at the first sample. ``x``: N samples."""
        kinetic = np.empty(len(x))
        still = np.zeros(self.n)
        for r, (q, qd) in enumerate(zip(x.q, x.qd, strict=True)):
            momentum = (self._regressor(q, still, qd) - self._regressor(q, still, still)) @ self.theta
            kinetic[r] = 0.5 * qd @ momentum
        potential = np.zeros(len(x))
        nodes, weights = np.polynomial.legendre.leggauss(8)
        for r in range(1, len(x)):
            step = x.q[r] - x.q[r - 1]
            for node, weight in zip(nodes, weights, strict=True):
                at = x.q[r - 1] + 0.5 * (node + 1.0) * step
                potential[r] += 0.5 * weight * step @ (self._regressor(at, still, still) @ self.theta)
        return np.stack([kinetic, np.cumsum(potential)])

    def trajectory(self, setting: PandaSetting, seed: int, dense: int = 1) -> MotionSamples:
        """A random trajectory, eq. (33), within limits of position, velocity and acceleration.

        Args:
            setting: how it is drawn.
            seed: of it.
            dense: samples for each one of the setting; limits are looked at in the setting's.
        """
        rng = np.random.default_rng(seed)
        t = 0.1 / dense * np.arange((setting.samples - 1) * dense + 1)
        order = np.arange(1, setting.sinusoids + 1)
        w = setting.frequency * order
        sine, cosine = np.sin(np.outer(t, w)), np.cos(np.outer(t, w))
        found = np.empty((3, len(t), self.n))
        for j in range(self.n):
            middle = 0.5 * (setting.low[j] + setting.high[j])
            half = 0.5 * (setting.high[j] - setting.low[j])
            size, attempt = _START * half, 0
            while True:
                a, b = size * rng.uniform(-1.0, 1.0, (2, setting.sinusoids))
                q, qd = sine @ (a / w) - cosine @ (b / w), cosine @ a + sine @ b
                qdd = cosine @ (b * w) - sine @ (a * w)
                if (
                    np.max(np.abs(q[::dense])) < half
                    and np.max(np.abs(qd[::dense])) < _VELOCITY[j]
                    and np.max(np.abs(qdd[::dense])) < _ACCELERATION[j]
                ):
                    break
                attempt += 1
                if attempt == _ATTEMPTS:
                    size, attempt = _LESS * size, 0
            found[:, :, j] = q + middle, qd, qdd
        return MotionSamples(found[0], found[1], found[2], [False] * self.n)

    def data(self, setting: PandaSetting, seed: int, dense: int = 1) -> PandaTrajectory:
        """A trajectory with its torques.

        ``setting``: how it is drawn; ``seed``: of trajectory and noise; ``dense``: samples for each one of the setting.
        """
        x = self.trajectory(setting, seed, dense)
        torque = self.torque(x)
        noise = np.random.default_rng(10_000 + seed).normal(0.0, NOISE, torque.shape)
        return PandaTrajectory(x, torque, torque + noise, self.energies(x))
