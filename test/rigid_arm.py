"""An arm integrated with Pinocchio alone: the plant of the control tests, independent of our regressors."""

from __future__ import annotations

import numpy as np
import pinocchio as pin

from safe_sysid.control.laws.law import ModelInUse
from safe_sysid.dynamics import dynamics_of
from safe_sysid.robot.model import RobotModel
from safe_sysid.robot.parameters import ParameterBox, com_and_inertia


def in_use(box: ParameterBox, nominal: np.ndarray | None = None) -> ModelInUse:
    """What a law is told: a box, and its middle if no other estimate is."""
    return ModelInUse(box.mid if nominal is None else nominal, box.mid, box.rad)


def slotine_li(
    model: RobotModel, K_r: np.ndarray | float, q: np.ndarray, qd: np.ndarray, reference: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """W_s (n, 14 n) and r (n,) of a state and a reference (3, n)."""
    e, de = reference[0] - q, reference[1] - qd
    motion = q, qd, reference[1] + K_r * e, reference[2] + K_r * de
    transition = model.friction_transition_velocity
    return dynamics_of(model.kinematics).slotine_li_regressor(*motion, transition), de + K_r * e


def pinocchio_model(model: RobotModel, theta: np.ndarray) -> pin.Model:
    """The chain of ``model`` with the inertial parameters of ``theta`` (14 n,)."""
    kin, out = model.kinematics, pin.Model()
    for j in range(model.n):
        placement = pin.SE3(np.array(kin.rotation[j]), np.array(kin.translation[j]))
        kind = pin.JointModelPrismaticUnaligned if kin.sliding[j] else pin.JointModelRevoluteUnaligned
        out.addJoint(j, kind(np.array(kin.axis[j])), placement, model.joint_names[j])
        mass, com, inertia = com_and_inertia(theta[10 * j : 10 * j + 10])
        out.appendBodyToJoint(j + 1, pin.Inertia(mass, com, inertia), pin.SE3.Identity())
    return out


class RigidArm:
    """``H qdd + C qd + g + Fc sat(qd / v_s) + Fv qd + beta = tau``, RK4, torque held over a step."""

    def __init__(self, model: RobotModel, theta: np.ndarray, q: np.ndarray, substeps: int = 2) -> None:
        n = model.n
        self._model = pinocchio_model(model, theta)
        self._data = self._model.createData()
        self._fc, self._fv, self._rotor, self._beta = theta[10 * n :].reshape(4, n)
        self._is_upper, self._rotors = np.triu(np.ones((n, n), bool)), np.diag(self._rotor)
        self._with_rotors = self._model.copy()
        self._with_rotors.armature = self._rotor.copy()
        self._aba = self._with_rotors.createData()
        self._v_s = max(model.friction_transition_velocity, 1e-9)
        self._substeps = substeps
        self.q, self.qd = np.array(q, float), np.zeros(n)

    def inertia(self, q: np.ndarray) -> np.ndarray:
        """H (n, n) with rotors."""
        upper = pin.crba(self._model, self._data, q)
        return np.where(self._is_upper, upper, upper.T) + self._rotors

    def acceleration(self, q: np.ndarray, qd: np.ndarray, torque: np.ndarray) -> np.ndarray:
        """Qdd (n,)."""
        share = np.minimum(np.maximum(qd / self._v_s, -1.0), 1.0)
        friction = self._fc * share + self._fv * qd + self._beta
        return np.array(pin.aba(self._with_rotors, self._aba, q, qd, torque - friction))

    def step(self, torque: np.ndarray, dt: float) -> None:
        """Advance by ``dt`` s."""
        h = dt / self._substeps
        for _ in range(self._substeps):
            q, v = self.q, self.qd
            a1 = self.acceleration(q, v, torque)
            v2 = v + 0.5 * h * a1
            a2 = self.acceleration(q + 0.5 * h * v, v2, torque)
            v3 = v + 0.5 * h * a2
            a3 = self.acceleration(q + 0.5 * h * v2, v3, torque)
            v4 = v + h * a3
            a4 = self.acceleration(q + h * v3, v4, torque)
            self.q = q + h * (v + 2 * v2 + 2 * v3 + v4) / 6
            self.qd = v + h * (a1 + 2 * a2 + 2 * a3 + a4) / 6
