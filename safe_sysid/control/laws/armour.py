r"""ARMOUR's robust passivity-based law [ARMOUR, section VII], with a rigorous interval Newton-Euler recursion.

``tau = W_s theta_0 + v``, ``v = lambda r / |r|``, ``lambda = max(0, |w| - alpha (V_max - V_sup) / |r|)``. ``w_j``
bounds the torque that the box leaves open in joint j, ``V_sup >= r^T H r / 2`` for all of the box, ``|.|`` is the
Euclidean norm; without ``norm``, ``sum |r_j| w_j / |r|`` stands for ``|w|``. Then ``dV/dt <= alpha (V_max - V)`` in
continuous time, so that V never leaves ``[0, V_max]`` (docs/understand/laws.md: proof, and what differs
from the paper and from the released code).
"""

from __future__ import annotations

import numpy as np
from numba import njit

from safe_sysid.control.laws.interval_newton_euler import interval_newton_euler
from safe_sysid.control.laws.law import ModelInUse, Proves
from safe_sysid.control.settings import ArmourSettings
from safe_sysid.core.arrays import FloatArray
from safe_sysid.dynamics.newton_euler import newton_euler
from safe_sysid.intervals import down, up
from safe_sysid.robot.config import per_joint
from safe_sysid.robot.model import PackedKinematics, RobotModel

__all__ = ["ArmourLaw", "robust_input"]


@njit(cache=True)
def robust_input(
    r: FloatArray, pull: float, energy: float, v_max: float, alpha: float, dead_zone: float, out: FloatArray
) -> float:
    """Add ``v`` to ``out`` (n,) and return lambda, N m.

    Args:
        r: (n,) rad/s.
        pull: bound of ``r^T (W_s theta - W_s theta_0)``, W.
        energy: ``V_sup``, J.
        v_max: J.
        alpha: 1/s.
        dead_zone: rad/s.
        out: torque, N m.
    """
    norm = np.sqrt(np.sum(r * r))
    # lambda |r|; not divided by |r| before it is known to be positive: near r = 0 the barrier needs nothing.
    power = pull - alpha * (v_max - energy)
    if not power > 0.0 or not norm > dead_zone:
        return 0.0
    for j in range(r.shape[0]):
        out[j] += power / norm * (r[j] / norm)
    return power / norm


@njit(cache=True)
def _step(
    arms: tuple[PackedKinematics, PackedKinematics],
    q: FloatArray,
    qd: FloatArray,
    reference: FloatArray,
    settings: tuple[FloatArray, FloatArray, float],
    parameters: tuple[FloatArray, FloatArray, FloatArray],
    work: tuple[FloatArray, FloatArray, FloatArray, FloatArray],
    torque: FloatArray,
) -> tuple[float, float, float]:
    """One step; returns ``|w|``, ``V_sup``, lambda.

    Args:
        arms: as it is, and without gravity.
        q: (n,) rad.
        qd: (n,) rad/s.
        reference: (>= 3, n).
        settings: K_r (n,); V_max, alpha, dead zone and whether to take the norm (4,); transition velocity.
        parameters: nominal, mid and half widths of the box, (14 n,) each.
        work: space: (3, n), (14 n, 2), (n, 2), and (n,) zeros.
        torque: (n,) output.
    """
    arm, weightless = arms
    K_r, gains, transition = settings
    nominal, mid, rad = parameters
    motion, box, bounds, still = work
    n = q.shape[0]
    r, qd_a, qdd_a = motion[0], motion[1], motion[2]
    for j in range(n):
        e, de = reference[0, j] - q[j], reference[1, j] - qd[j]
        r[j] = de + K_r[j] * e
        qd_a[j] = reference[1, j] + K_r[j] * e
        qdd_a[j] = reference[2, j] + K_r[j] * de
    for p in range(mid.size):
        box[p, 0], box[p, 1] = down(mid[p] - rad[p]), up(mid[p] + rad[p])
    newton_euler(arm, q, qd, qd_a, qdd_a, qd_a, transition, nominal, torque)
    yes = n > 0  # not a literal: one compiled recursion serves both calls
    interval_newton_euler(arm, q, qd, qd_a, qdd_a, qd_a, transition, yes, box, bounds)
    square, pull, length = 0.0, 0.0, 0.0
    for j in range(n):
        w = up(max(bounds[j, 1] - torque[j], torque[j] - bounds[j, 0]))
        square = up(square + up(w * w))
        pull = up(pull + up(abs(r[j]) * w))
        length = up(length + up(r[j] * r[j]))
    disturbance = up(np.sqrt(square))
    if gains[3] > 0.0:
        pull = up(disturbance * up(np.sqrt(length)))
    interval_newton_euler(weightless, q, still, still, r, still, 1.0, not yes, box, bounds)
    energy = 0.0
    for j in range(n):
        energy = up(energy + up(0.5 * r[j] * (bounds[j, 1] if r[j] > 0.0 else bounds[j, 0])))
    gain = robust_input(r, pull, energy, gains[0], gains[1], gains[2], torque)
    return disturbance, energy, gain


class ArmourLaw:
    """The law with its work arrays.

    Attributes:
        disturbance: ``|w|`` of the last step, N m.
        energy: ``V_sup`` of the last step, J.
        robust_gain: lambda of the last step, N m.
        torque: (n,) what the last step returned, N m.
    """

    name = "armour"
    proves = Proves.NOTHING

    def __init__(self, model: RobotModel, settings: ArmourSettings | None = None) -> None:
        """Make the law for one arm. ``settings``: None for the configuration's."""
        s = settings or model.settings.controller.laws.armour
        n = model.n
        self.K_r = per_joint(s.K_r, n)
        self.V_max, self.alpha, self.dead_zone = s.V_max, s.alpha, s.dead_zone
        gains = np.array([s.V_max, s.alpha, s.dead_zone, float(s.norm)])
        self._settings = self.K_r, gains, model.friction_transition_velocity
        nothing = np.zeros(3)
        nothing.setflags(write=False)  # as the arm's own gravity: one compiled recursion serves both
        self._arms = model.kinematics.packed, model.kinematics._replace(gravity=nothing).packed
        self._work = np.empty((3, n)), np.empty((model.layout.size, 2)), np.empty((n, 2)), np.zeros(n)
        self.torque, self.residual_bound = np.empty(n), np.zeros(n)
        self.disturbance = self.energy = self.robust_gain = 0.0

    def reset(self, t: float, q: FloatArray, qd: FloatArray) -> None:
        """Nothing to forget. ``t``: s; ``q``: (n,) rad; ``qd``: (n,) rad/s."""

    def step(self, t: float, q: FloatArray, qd: FloatArray, reference: FloatArray, model: ModelInUse) -> FloatArray:
        """Commanded torque (n,) in N m; the array is reused.

        Args:
            t: s; not used.
            q: (n,) measured, rad.
            qd: (n,) measured, rad/s.
            reference: (>= 3, n) desired position, velocity, acceleration.
        """
        self.disturbance, self.energy, self.robust_gain = _step(
            self._arms, q, qd, reference, self._settings, (model.nominal, model.mid, model.rad), self._work, self.torque
        )
        return self.torque
