"""Kinematics of an arm and the motors in its links, as plain arrays that the kernels take."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from safe_sysid.core.arrays import BoolArray, FloatArray, IntArray
from safe_sysid.errors import ModelError
from safe_sysid.robot.parameters import frozen_array

__all__ = ["NO_EXCESS", "NO_MOTORS", "Kinematics", "Motors", "PackedKinematics", "frozen_motors", "read_only"]


class Motors(NamedTuple):
    """Geared rotors that turn in a moving link: M motors, each of one joint; the others have no entry.

    A rotor of spin inertia ``Ia / ratio^2`` adds ``(Ia / ratio) (axis . omega) qd`` to the kinetic energy besides
    ``Ia qd^2 / 2``, omega the angular velocity of the link that carries it. That link's own ten parameters hold the
    rotor as if it did not spin.
    """

    joint: IntArray  #: (M,) index of the joint that it drives
    carrier: IntArray  #: (M,) index of the link that carries it, before the joint
    gear: FloatArray  #: (M,) 1 / ratio, signed; 1, or m/rad if the joint slides
    axis: FloatArray  #: (M, 3) unit axis of the rotor in the carrier's joint frame


def read_only(array: NDArray[Any]) -> NDArray[Any]:
    """The same numbers, C-ordered and not to be written: numba compiles a kernel for each kind of array it is given."""
    view = np.ascontiguousarray(array).view()
    view.setflags(write=False)
    return view


#: No rotor turns in a moving link, or none is declared to.
NO_MOTORS = Motors(*map(read_only, (np.zeros(0, np.int64), np.zeros(0, np.int64), np.zeros(0), np.zeros((0, 3)))))


#: Links of the box are real ones.
NO_EXCESS = read_only(np.zeros((0, 3)))

#: The fields of :class:`Motors` and :class:`Kinematics`, in their order.
PackedMotors = tuple[IntArray, IntArray, FloatArray, FloatArray]
PackedKinematics = tuple[IntArray, FloatArray, FloatArray, FloatArray, FloatArray, FloatArray, PackedMotors]


class Kinematics(NamedTuple):
    """Tree of joints as plain C-ordered arrays: what the numba kernels take. Frame -1 is the world."""

    parent: IntArray  #: (n,) joint whose frame carries joint j, smaller than j; -1 the world
    rotation: FloatArray  #: (n, 3, 3) joint frame j in its parent's at q = 0
    translation: FloatArray  #: (n, 3) origin of joint frame j in its parent's at q = 0, m
    axis: FloatArray  #: (n, 3) unit axis of joint j in its own frame, that it turns about or slides along
    gravity: FloatArray  #: (3,) gravitational acceleration in the world, m/s^2
    #: (n, 2) positions that a prismatic joint stays between, m, which bounds over all configurations rest on; infinite
    #: for a turning joint, whose frame comes round again
    travel: FloatArray
    #: (n, 3), or (0, 3) for zeros: by how much mass (kg), length of the first moment (kg m) and Ixx + Iyy + Izz
    #: (kg m^2) of a real link may exceed those of the parameters, which may move as the arm does and be no arm's;
    #: bounds over all configurations rest on real links
    excess: FloatArray = NO_EXCESS
    motors: Motors = NO_MOTORS  #: rotors whose gear reaction is declared and not zero

    @classmethod
    def chain(
        cls, rotation: FloatArray, translation: FloatArray, axis: FloatArray, gravity: FloatArray, travel: FloatArray
    ) -> Kinematics:
        """Joints one after the other, without motors on moving links.

        Args:
            rotation: (n, 3, 3).
            translation: (n, 3) m.
            axis: (n, 3).
            gravity: (3,) m/s^2.
            travel: (n, 2) m.
        """
        return cls(np.arange(len(axis)) - 1, rotation, translation, axis, gravity, travel).read_only

    @classmethod
    def turning(
        cls, rotation: FloatArray, translation: FloatArray, axis: FloatArray, gravity: FloatArray
    ) -> Kinematics:
        """A chain of revolute joints.

        Args:
            rotation: (n, 3, 3).
            translation: (n, 3) m.
            axis: (n, 3).
            gravity: (3,) m/s^2.
        """
        return cls.chain(rotation, translation, axis, gravity, np.tile([-np.inf, np.inf], (len(axis), 1)))

    @property
    def excess_by_link(self) -> FloatArray:
        """(n, 3) ``excess``, written out where it is zero."""
        return self.excess if len(self.excess) else np.zeros((len(self.axis), 3))

    @property
    def read_only(self) -> Kinematics:
        """The same arm in arrays of the one kind that kernels are compiled for."""
        parent, rotation, translation, axis, gravity, travel, excess = map(read_only, self[:-1])
        motors = Motors(*map(read_only, self.motors))
        return Kinematics(parent, rotation, translation, axis, gravity, travel, excess, motors)

    @property
    def packed(self) -> PackedKinematics:
        """The same as plain tuples, for compiled functions that Python calls with one state at a time; no ``excess``.

        Numba takes some 0.7 us for each NamedTuple that comes from Python, and next to nothing for a tuple;
        :func:`safe_sysid.robot.frames.unpacked` gives compiled code the names back.
        """
        return (*self[:6], tuple(self.motors))  # type: ignore[return-value]

    @property
    def sliding(self) -> BoolArray:
        """(n,) prismatic joints: their positions are in m, their efforts in N."""
        return np.isfinite(self.travel[:, 0])


def frozen_motors(motors: Motors, n: int) -> Motors:
    """The motors of an arm of ``n`` joints, validated and read-only.

    Raises:
        ModelError: two motors of one joint, a carrier that is no moving link before it, or an axis that is no unit
            vector.
    """
    count = len(motors.joint)
    joint, carrier = (np.array(x, dtype=np.int64) for x in (motors.joint, motors.carrier))
    for x in (joint, carrier):
        x.setflags(write=False)
    gear = frozen_array(motors.gear, (count,), "kinematics.motors.gear")
    axis = frozen_array(motors.axis, (count, 3), "kinematics.motors.axis")
    if carrier.shape != (count,) or len(set(joint.tolist())) != count:
        raise ModelError(f"kinematics.motors.joint = {joint.tolist()}: expected one motor per joint at most")
    if not np.all((carrier >= 0) & (carrier < joint) & (joint < n)):
        links = f"carriers {carrier.tolist()} of joints {joint.tolist()}"
        raise ModelError(f"kinematics.motors: {links}: expected moving links before them")
    if np.any(gear == 0.0):
        raise ModelError(f"kinematics.motors.gear = {gear.tolist()}: expected numbers other than 0")
    if np.any(np.abs(np.linalg.norm(axis, axis=1) - 1.0) > 1e-14):
        raise ModelError(f"kinematics.motors.axis = {axis.tolist()}: expected unit vectors")
    return Motors(joint, carrier, gear, axis)
