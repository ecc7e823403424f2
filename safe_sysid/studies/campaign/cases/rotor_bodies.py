"""Arms whose geared rotors are rigid bodies with joints of their own: what motors on moving links really do.

Nothing here knows of a term ``kappa (z . omega) qd`` or of columns: Pinocchio's model has a body per rotor, hinged in
its carrier, and a transmission ``positions of all joints = turns @ q`` holds its angle to the joint that it drives.
The carrier loses what the rotor weighs, since a link's ten parameters hold its rotors as if these did not spin.
"""

from __future__ import annotations

import numpy as np
import pinocchio as pin

from safe_sysid.core.arrays import FloatArray
from safe_sysid.core.layout import ParameterLayout
from safe_sysid.robot.model import Kinematics

__all__ = ["RotorBodies"]


class RotorBodies:
    """Dynamics of a chain (n joints) with its rotors, without friction.

    Attributes:
        model: of Pinocchio; depth first, each rotor right behind the joint of its carrier.
        turns: (model.nv, n) velocity of every joint per velocity of the arm's.
    """

    def __init__(self, kin: Kinematics, theta: FloatArray, gravity: FloatArray | None = None) -> None:
        """Build the tree.

        ``theta``: (14 n,) parameters; friction is not used; ``gravity``: (3,) m/s^2; None: the arm's.
        """
        n = self.n = len(kin.axis)
        layout = ParameterLayout(n)
        rotor = np.array(theta[layout.rotor_inertia])
        self.model = model = pin.Model()
        model.gravity.linear = np.array(kin.gravity if gravity is None else gravity)
        links = [pin.Inertia.FromDynamicParameters(np.array(theta[layout.link(j)])) for j in range(n)]
        parent, arm, ratios = 0, [], []
        motors = [list(zip(*kin.motors, strict=True))[m] for m in range(len(kin.motors.joint))]
        for j in range(n):
            placement = pin.SE3(np.array(kin.rotation[j]), np.array(kin.translation[j]))
            kind = pin.JointModelPrismaticUnaligned if kin.sliding[j] else pin.JointModelRevoluteUnaligned
            parent = model.addJoint(parent, kind(np.array(kin.axis[j])), placement, f"joint_{j + 1}")
            arm.append(parent)
            carried = links[j].toDynamicParameters()
            for driven, carrier, gear, axis in motors:
                if carrier != j:
                    continue
                # Any mass and size will do, what is not spin being taken from the link; a part of its own mass, as
                # Pinocchio divides by it.
                mass = 0.1 * links[j].mass
                body, at = _rotor(mass, rotor[driven] * gear**2, axis), pin.SE3(np.eye(3), _PLACE)
                spun = model.addJoint(
                    parent, pin.JointModelRevoluteUnaligned(np.array(axis)), at, f"rotor_{driven + 1}"
                )
                model.appendBodyToJoint(spun, body, pin.SE3.Identity())
                carried = carried - at.act(body).toDynamicParameters()
                ratios.append((spun, int(driven), 1.0 / gear))
            link = pin.Inertia.FromDynamicParameters(carried)
            model.appendBodyToJoint(parent, link, pin.SE3.Identity())
        self.turns = np.zeros((model.nv, n))
        self._arm = np.array([model.joints[joint].idx_v for joint in arm])
        self._rotors = np.array([model.joints[joint].idx_v for joint, _, _ in ratios], np.int64)
        self._driven = np.array([driven for _, driven, _ in ratios], np.int64)
        self._ratio = np.array([ratio for _, _, ratio in ratios])
        self.turns[self._arm, np.arange(n)] = 1.0
        self.turns[self._rotors, self._driven] = self._ratio
        #: (n,) inertia of rotors that turn in nothing that moves.
        self._resting = rotor.copy()
        self._resting[self._driven] = 0.0
        self._data = model.createData()
        self._with_rotors = model.copy()
        self._with_rotors.armature = self._resting.copy() if not ratios else np.zeros(model.nv)
        self._aba_data = self._with_rotors.createData()

    def parts(self, q: FloatArray, qd: FloatArray, qdd: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Torques (n,) behind the gears, and what the joints' own rotors take before them, N m."""
        if not len(self._rotors):
            return np.array(pin.rnea(self.model, self._data, q, qd, qdd)), self._resting * qdd
        full = (self.turns @ x for x in (q, qd, qdd))
        torque = np.asarray(pin.rnea(self.model, self._data, *full))
        own = self._resting * qdd
        own[self._driven] += self._ratio * torque[self._rotors]
        return torque[self._arm].copy(), own

    def torque(self, q: FloatArray, qd: FloatArray, qdd: FloatArray) -> FloatArray:
        """Torque (n,) of the motors, seen at the joints, N m."""
        behind, own = self.parts(q, qd, qdd)
        return behind + own

    def inertia(self, q: FloatArray) -> FloatArray:
        """H (n, n) with rotors."""
        return np.asarray(self.turns.T @ self._whole_inertia(q) @ self.turns + np.diag(self._resting))

    def own_momentum(self, q: FloatArray, qd: FloatArray) -> FloatArray:
        """Momentum (n,) of the joints' own rotors about their axes, seen at the joints: its rate is their torque."""
        own = self._resting * qd
        if len(self._rotors):
            momentum = self._whole_inertia(q) @ (self.turns @ qd)
            own[self._driven] += self._ratio * momentum[self._rotors]
        return np.asarray(own)

    def acceleration(self, q: FloatArray, qd: FloatArray, torque: FloatArray) -> FloatArray:
        """Acceleration (n,) under a torque of the motors less friction."""
        if not len(self._rotors):
            return np.array(pin.aba(self._with_rotors, self._aba_data, q, qd, torque))
        bias = self.turns.T @ np.asarray(pin.nle(self.model, self._data, self.turns @ q, self.turns @ qd))
        return np.asarray(np.linalg.solve(self.inertia(q), torque - bias), float)

    def _whole_inertia(self, q: FloatArray) -> FloatArray:
        upper = np.triu(pin.crba(self.model, self._data, self.turns @ q))
        return np.asarray(upper + np.triu(upper, 1).T)


_PLACE = np.array([0.07, -0.11, 0.05])
_ACROSS = 0.002  # kg m^2


def _rotor(mass: float, spin: float, axis: FloatArray) -> pin.Inertia:
    inertia = _ACROSS * np.eye(3) + (spin - _ACROSS) * np.outer(axis, axis)
    return pin.Inertia(mass, np.zeros(3), inertia)
