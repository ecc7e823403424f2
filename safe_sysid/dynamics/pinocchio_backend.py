r"""Pinocchio as a dynamics backend: somebody else's recursion, from which everything follows by polarisation.

Its joint torque regressor (:func:`pinocchio.computeJointTorqueRegressor`) is quadratic in the velocity; the symmetric
bilinear form of a quadratic one is ``B(x, y) = (Q(x + y) - Q(x - y)) / 4``. So are the parts that the links and the
rotors have in common:

- ``W_s(q, x, y, a) = A(q, a) + B(q, x, y)``, with A the regressor at rest,
- ``W_m(q, qd) = A(q, qd) - A(q, 0)``,
- row i of ``W_c``: ``(C^T qd)_i = qd^T C(q, qd) e_i = qd^T B(q, qd, e_i)``.

It loops over states in Python: for comparison and for arms that Pinocchio knows better, not for a control loop.
"""

from __future__ import annotations

import numpy as np
import pinocchio as pin

from safe_sysid.core.arrays import FloatArray
from safe_sysid.core.layout import COULOMB, OFFSET, ROTOR, VISCOUS, ParameterLayout
from safe_sysid.dynamics.protocol import add_further, as_parameters, coulomb_direction
from safe_sysid.robot.frames import as_batch
from safe_sysid.robot.model import Kinematics

__all__ = ["PinocchioDynamics"]


class PinocchioDynamics:
    """The backend (a :class:`~safe_sysid.dynamics.Dynamics`)."""

    def __init__(self, kin: Kinematics) -> None:
        self.kin, self._n, self._layout = kin, len(kin.axis), ParameterLayout(len(kin.axis))
        self._model = pin.Model()
        self._model.gravity.linear = np.array(kin.gravity)
        for j in range(self._n):
            placement = pin.SE3(np.array(kin.rotation[j]), np.array(kin.translation[j]))
            joint = pin.JointModelPrismaticUnaligned if kin.sliding[j] else pin.JointModelRevoluteUnaligned
            self._model.addJoint(int(kin.parent[j]) + 1, joint(np.array(kin.axis[j])), placement, f"joint_{j + 1}")
            # The regressor is per unit of the parameters: any body serves.
            self._model.appendBodyToJoint(j + 1, pin.Inertia.Random(), pin.SE3.Identity())
        self._data = self._model.createData()

    def _moving(self, q: FloatArray, qd: FloatArray, qdd: FloatArray) -> FloatArray:
        """``W`` (n, 14 n) at one state without friction and offsets."""
        n, out = self._n, np.zeros((self._n, self._layout.size))
        out[:, self._layout.links] = pin.computeJointTorqueRegressor(self._model, self._data, q, qd, qdd)
        joints = np.arange(n)
        out[joints, ROTOR * n + joints] = qdd
        if len(self.kin.motors.joint) == 0:
            return out
        pin.computeJointJacobians(self._model, self._data, q)
        pin.forwardKinematics(self._model, self._data, q, qd, qdd)
        for j, carrier, gear, axis in zip(*self.kin.motors, strict=True):
            # Seen from the carrier: its rotor's momentum changes by gear (qdd_j z + qd_j omega x z).
            turn = pin.getJointJacobian(self._model, self._data, int(carrier) + 1, pin.LOCAL)
            turn = np.reshape(turn, (6, -1))[3:]  # flat if there is one joint
            moment = gear * (qdd[j] * axis + qd[j] * np.cross(turn @ qd, axis))
            out[:, ROTOR * n + j] += turn.T @ moment
            out[j, ROTOR * n + j] += gear * (axis @ self._data.a[int(carrier) + 1].angular)
        return out

    def _polar(self, q: FloatArray, x: FloatArray, y: FloatArray) -> FloatArray:
        """``B(q, x, y)``."""
        still = np.zeros(self._n)
        return 0.25 * (self._moving(q, x + y, still) - self._moving(q, x - y, still))

    def _add_friction(self, out: FloatArray, qd: FloatArray, transition: float, sign: float) -> None:
        n, joints = self._n, np.arange(self._n)
        out[joints, COULOMB * n + joints] = sign * coulomb_direction(qd, transition)
        out[joints, VISCOUS * n + joints] = sign * qd
        out[joints, OFFSET * n + joints] = sign
        add_further(out, qd, transition, sign)

    def inverse_dynamics(
        self, theta: FloatArray, q: FloatArray, qd: FloatArray, qdd: FloatArray, transition: float = 0.0
    ) -> FloatArray:
        """As :meth:`safe_sysid.dynamics.Dynamics.inverse_dynamics`."""
        return self.torque_regressor(q, qd, qdd, transition) @ as_parameters(self.kin, theta)

    def gravity(self, theta: FloatArray, q: FloatArray) -> FloatArray:
        """As :meth:`safe_sysid.dynamics.Dynamics.gravity`."""
        still, links = np.zeros(np.shape(q)), self._layout.links
        return self.torque_regressor(q, still, still)[..., links] @ as_parameters(self.kin, theta)[links]

    def mass_matrix(self, theta: FloatArray, q: FloatArray) -> FloatArray:
        """As :meth:`safe_sysid.dynamics.Dynamics.mass_matrix`."""
        q, theta = np.asarray(q, dtype=np.float64), as_parameters(self.kin, theta)
        columns = [self.momentum_regressor(q, np.broadcast_to(e, q.shape)) @ theta for e in np.eye(self._n)]
        return np.stack(columns, axis=-1)

    def slotine_li_regressor(
        self, q: FloatArray, qd: FloatArray, qd_a: FloatArray, qdd_a: FloatArray, transition: float = 0.0
    ) -> FloatArray:
        """As :meth:`safe_sysid.dynamics.Dynamics.slotine_li_regressor`."""
        (q, qd, qd_a, qdd_a), single = as_batch(self.kin, q, qd, qd_a, qdd_a)
        out = np.empty((len(q), self._n, self._layout.size))
        for k in range(len(q)):
            out[k] = self._moving(q[k], np.zeros(self._n), qdd_a[k]) + self._polar(q[k], qd[k], qd_a[k])
            self._add_friction(out[k], qd_a[k], transition, 1.0)
        return out[0] if single else out

    def torque_regressor(self, q: FloatArray, qd: FloatArray, qdd: FloatArray, transition: float = 0.0) -> FloatArray:
        """As :meth:`safe_sysid.dynamics.Dynamics.torque_regressor`."""
        return self.slotine_li_regressor(q, qd, qd, qdd, transition)

    def momentum_regressor(self, q: FloatArray, qd: FloatArray) -> FloatArray:
        """As :meth:`safe_sysid.dynamics.Dynamics.momentum_regressor`."""
        (q, qd), single = as_batch(self.kin, q, qd)
        still = np.zeros(self._n)
        out = np.stack([self._moving(a, still, b) - self._moving(a, still, still) for a, b in zip(q, qd, strict=True)])
        return out[0] if single else out

    def momentum_rate_regressor(self, q: FloatArray, qd: FloatArray, transition: float = 0.0) -> FloatArray:
        """As :meth:`safe_sysid.dynamics.Dynamics.momentum_rate_regressor`."""
        (q, qd), single = as_batch(self.kin, q, qd)
        still = np.zeros(self._n)
        out = np.empty((len(q), self._n, self._layout.size))
        for k in range(len(q)):
            out[k] = -self._moving(q[k], still, still)
            for i, e in enumerate(np.eye(self._n)):
                out[k, i] += qd[k] @ self._polar(q[k], qd[k], e)
            self._add_friction(out[k], qd[k], transition, -1.0)
        return out[0] if single else out
