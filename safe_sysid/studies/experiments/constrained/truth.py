"""The arm that is identified: Pinocchio's constrained dynamics, friction, held torques and sensors; no code of ours.

What the identification uses (loops, projection, regressors) is in none of it: loops are Pinocchio's constraints with
Baumgarte's correction, links are its inertias, rotors its armature. Coulomb friction is smooth below 0.01 rad/s, which
the identified model is not told.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pinocchio as pin

from safe_sysid.core.arrays import FloatArray, IntArray
from safe_sysid.core.layout import ParameterLayout
from safe_sysid.dynamics.closed_chain.files import mechanism_path, pinocchio_model, read_mechanism_file
from safe_sysid.identification.equations.measurements import Measurements
from safe_sysid.resources import resource_path
from safe_sysid.robot.files.urdf import read_tree

__all__ = ["Sensors", "TrueLimb", "perturbed"]

_SLIDES = 0.01  # rad/s
_STEP = 1e-3  # s: torques are held for one, integrated by Runge and Kutta
_CORRECTION = 50.0  # 1/s, Baumgarte's


def _away(rng: np.random.Generator, size: int | tuple[int, ...]) -> FloatArray:
    """Factors that are 5 to 30 % off."""
    return 1.0 + rng.uniform(0.05, 0.30, size) * rng.choice([-1.0, 1.0], size)


def perturbed(theta: FloatArray, layout: ParameterLayout, links: bool, rng: np.random.Generator) -> FloatArray:
    """Parameters 5 to 30 % off: friction, rotors and offsets, and of the links masses and lengths.

    Links stay physically consistent: the mass takes one factor, each axis of its distribution is stretched by the
    root of one.

    ``theta``: (14 n,) of the manufacturer; ``links``: whether links are off, too.
    """
    out = np.array(theta)
    out[layout.joint_terms] *= _away(rng, out[layout.joint_terms].size)
    for j in range(layout.n) if links else ():
        stretch = np.sqrt(_away(rng, 3))
        mass = float(_away(rng, 1)[0])
        m, x, y, z, xx, xy, yy, xz, yz, zz = theta[layout.link(j)]
        half = 0.5 * (xx + yy + zz)
        second = np.array([[half - xx, -xy, -xz], [-xy, half - yy, -yz], [-xz, -yz, half - zz]])
        second = mass * second * np.outer(stretch, stretch)
        inertia = np.trace(second) * np.eye(3) - second
        out[layout.link(j)] = [
            mass * m, *(mass * stretch * [x, y, z]),
            inertia[0, 0], inertia[0, 1], inertia[1, 1], inertia[0, 2], inertia[1, 2], inertia[2, 2],
        ]  # fmt: skip
    return out


@dataclass(frozen=True)
class Sensors:
    """Errors of what is recorded."""

    counts: int = 2**18  #: of an encoder per turn
    velocity: float = 0.003  #: standard deviation, rad/s
    torque: float = 0.004  #: standard deviation, as a share of the joint's largest torque


class TrueLimb:
    """One mechanism with true parameters that can be moved and recorded."""

    def __init__(self, name: str, theta: FloatArray, actuated: IntArray) -> None:
        """Make Pinocchio's model. ``theta``: (14 n,) true parameters; ``actuated``: (n_a,) joints with motors."""
        path = mechanism_path(name)
        settings = read_mechanism_file(path)
        tree = read_tree(resource_path(f"urdf/{settings.urdf}"))
        model = pinocchio_model(tree, settings, str(path))
        layout = ParameterLayout(model.nv)
        for j in range(model.nv):
            model.inertias[j + 1] = pin.Inertia.FromDynamicParameters(np.array(theta[layout.link(j)]))
        self._coulomb, self._viscous, rotor, self._offset = layout.by_term(np.array(theta))
        model.armature = np.array(rotor)
        self._model, self._data, self._actuated = model, model.createData(), actuated
        self._constraints, self._datas = pin.StdVec_RigidConstraintModel(), pin.StdVec_RigidConstraintData()
        for loop in settings.loops:
            ends = []
            for end in (loop.first, loop.second):
                frame = model.frames[model.getFrameId(end.link, pin.FrameType.BODY)]
                shift = pin.SE3(pin.rpy.rpyToMatrix(np.array(end.rpy)), np.array(end.xyz))
                ends += [frame.parentJoint, frame.placement * shift]
            kind = pin.ContactType.CONTACT_6D if loop.kind == "6D" else pin.ContactType.CONTACT_3D
            constraint = pin.RigidConstraintModel(kind, model, *ends, pin.ReferenceFrame.LOCAL)
            constraint.m_baumgarte_parameters.Kp = _CORRECTION**2
            constraint.m_baumgarte_parameters.Kd = 2.0 * _CORRECTION
            self._constraints.append(constraint)
        self._datas.extend(constraint.createData() for constraint in self._constraints)
        pin.initConstraintDynamics(model, self._data, self._constraints, self._datas)
        self._accuracy = pin.ProximalSettings(1e-12, 1e-10, 50)
        joints = {joint.name: joint for joint in tree.joints}
        names = list(model.names)[1:]
        self.torque_limit: FloatArray = np.array([joints[names[j]].effort or 1.0 for j in actuated])

    def _acceleration(self, q: FloatArray, qd: FloatArray, motors: FloatArray) -> FloatArray:
        tau = -self._coulomb * np.tanh(qd / _SLIDES) - self._viscous * qd - self._offset
        tau[self._actuated] += motors
        if not len(self._constraints):
            return np.asarray(pin.aba(self._model, self._data, q, qd, tau))
        return np.asarray(
            pin.constraintDynamics(self._model, self._data, q, qd, tau, self._constraints, self._datas, self._accuracy)
        )

    def run(
        self,
        q: FloatArray,
        qd: FloatArray,
        seconds: float,
        law: Callable[[int, FloatArray, FloatArray], FloatArray],
        sensors: Sensors,
        rng: np.random.Generator,
    ) -> Measurements:
        """Move the arm for some time, 1 kHz.

        Returns positions, velocities and torques of the joints with motors; torque k holds from stamp k on.

        Args:
            q: (n,) to begin with, loops closed.
            qd: (n,) likewise.
            seconds: how long.
            law: number of the sample, measured positions and velocities (n_a,) of the motors to their torques (n_a,).
            sensors: errors of what is recorded, and of what the law sees.
        """
        steps, motors = round(seconds / _STEP), len(self._actuated)
        q, qd = np.array(q), np.array(qd)
        log = np.empty((3, steps, motors))
        count = 2.0 * np.pi / sensors.counts
        for k in range(steps):
            seen = np.round(q[self._actuated] / count) * count
            rate = qd[self._actuated] + rng.normal(0.0, sensors.velocity, motors)
            torque = np.clip(law(k, seen, rate), -self.torque_limit, self.torque_limit)
            log[:, k] = seen, rate, torque + rng.normal(0.0, sensors.torque, motors) * self.torque_limit
            k1 = self._acceleration(q, qd, torque)
            v2 = qd + 0.5 * _STEP * k1
            k2 = self._acceleration(q + 0.5 * _STEP * qd, v2, torque)
            v3 = qd + 0.5 * _STEP * k2
            k3 = self._acceleration(q + 0.5 * _STEP * v2, v3, torque)
            v4 = qd + _STEP * k3
            k4 = self._acceleration(q + _STEP * v3, v4, torque)
            q = q + _STEP / 6.0 * (qd + 2.0 * v2 + 2.0 * v3 + v4)
            qd = qd + _STEP / 6.0 * (k1 + 2.0 * k2 + 2.0 * k3 + k4)
        return Measurements(_STEP * np.arange(steps, dtype=np.float64), *log)
