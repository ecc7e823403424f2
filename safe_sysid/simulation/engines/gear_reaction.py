r"""Motions of an arm in MuJoCo whose geared rotors sit on moving links, derived from Newton's laws for gyrostats.

MuJoCo's armature makes a rotor heavy for its own joint only. A rotor of spin inertia I geared r : 1 to joint j also
holds the angular momentum ``h z``, ``h = I r qd_j``, about its axis z, which the carrying link turns with it. So the
carrier feels the torque ``-d(h z)/dt = -I r (qdd_j z + qd_j omega x z)``, and joint j, through the gear, r times what
turns the rotor about its own axis as the carrier turns: ``-I r d(z . omega)/dt = -I r z . alpha``, for
``(omega x z) . omega = 0``. With ``I r = Ia / r``. Nothing here is a Lagrangian or a regressor: the law, the identifier
and the certificates have theirs from the kinetic energy, and the tests compare the two.
"""

from __future__ import annotations

import mujoco
import numpy as np

from safe_sysid.core.arrays import FloatArray
from safe_sysid.robot.model import Motors

__all__ = ["GearReaction"]

_FREE = np.zeros(3)
#: Of Runge and Kutta: where the stages lie, and what each weighs.
_PLACES, _WEIGHTS = (0.0, 0.5, 0.5, 1.0), (1 / 6, 1 / 3, 1 / 3, 1 / 6)
#: The reaction is added until accelerations settle where solids touch; each round is a contraction.
_ROUNDS, _SETTLED = 50, 1e-12


class GearReaction:
    """Adds the reaction of the rotors to one MuJoCo model of hinges and slides, and integrates it."""

    def __init__(self, model: mujoco.MjModel, motors: Motors, links: list[int]) -> None:
        """Keep what does not change. ``links``: MuJoCo's body of each link, n of them."""
        self._model = model
        self._rotors = [
            (int(j), links[c], np.array(axis), float(gear * model.dof_armature[j]))
            for j, c, gear, axis in zip(*motors, strict=True)
        ]
        self._turn, self._turn_rate = np.zeros((3, model.nv)), np.zeros((3, model.nv))
        self._inertia = np.zeros((model.nv, model.nv))

    def accelerate(self, data: mujoco.MjData) -> FloatArray:
        """Accelerations (n,) in the state, and under the forces, of ``data``, rad/s^2."""
        mujoco.mj_forward(self._model, data)
        added, rest = self._reaction(data)
        if not data.nefc:
            for column, unit in zip(self._inertia, np.eye(len(rest)), strict=True):
                mujoco.mj_mulM(self._model, data, column, unit)
            return np.linalg.solve(self._inertia + added, data.qfrc_smooth - rest)
        # Contact forces depend on the acceleration: let MuJoCo find both under the reaction of the last round.
        applied, last = data.qfrc_applied.copy(), np.array(data.qacc)
        try:
            for _ in range(_ROUNDS):
                data.qfrc_applied[:] = applied - added @ last - rest
                mujoco.mj_forwardSkip(self._model, data, mujoco.mjtStage.mjSTAGE_VEL, 1)
                change = np.abs(data.qacc - last).max()
                last = np.array(data.qacc)
                if change <= _SETTLED * np.abs(last).max():
                    break
            return last
        finally:
            data.qfrc_applied[:] = applied

    def advance(self, data: mujoco.MjData, steps: int) -> None:
        """Integrate ``data`` over ``steps`` timesteps of the model, fourth order."""
        h = self._model.opt.timestep
        for _ in range(steps):
            q, qd = data.qpos.copy(), data.qvel.copy()
            rate, acceleration = np.zeros_like(q), np.zeros_like(q)
            velocity_before, acceleration_before = qd, np.zeros_like(q)
            for place, weight in zip(_PLACES, _WEIGHTS, strict=True):
                data.qpos[:] = q + place * h * velocity_before
                data.qvel[:] = qd + place * h * acceleration_before
                velocity_before = data.qvel.copy()
                acceleration_before = self.accelerate(data)
                rate += weight * velocity_before
                acceleration += weight * acceleration_before
            data.qpos[:], data.qvel[:] = q + h * rate, qd + h * acceleration
            data.time += h

    def _reaction(self, data: mujoco.MjData) -> tuple[FloatArray, FloatArray]:
        """``added`` (n, n) and ``rest`` (n,): the reaction is ``-(added qdd + rest)`` in the joints, N m."""
        model, n = self._model, self._model.nv
        added, rest = np.zeros((n, n)), np.zeros(n)
        for j, body, axis, coupling in self._rotors:
            mujoco.mj_jacBody(model, data, None, self._turn, body)
            mujoco.mj_jacDot(model, data, None, self._turn_rate, _FREE, body)
            z = data.xmat[body].reshape(3, 3) @ axis
            omega = self._turn @ data.qvel
            # On the carrier: z qdd_j + omega x z qd_j. On joint j: z . alpha, alpha = J qdd + dJ/dt qd.
            added[:, j] += coupling * (z @ self._turn)
            added[j] += coupling * (z @ self._turn)
            rest += coupling * data.qvel[j] * (np.cross(omega, z) @ self._turn)
            rest[j] += coupling * float(z @ (self._turn_rate @ data.qvel))
        return added, rest
