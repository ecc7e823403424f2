"""MuJoCo as the engine of a simulated arm: Runge-Kutta steps, rotors, smooth Coulomb friction."""

from __future__ import annotations

import mujoco
import numpy as np

from safe_sysid.core.arrays import FloatArray
from safe_sysid.errors import ParameterError
from safe_sysid.robot.model import RobotModel
from safe_sysid.robot.scenes.scene import Scene
from safe_sysid.simulation.engines.gear_reaction import GearReaction
from safe_sysid.simulation.engines.mujoco_world import World, build_world
from safe_sysid.simulation.payloads import Payload

__all__ = ["ContactSearch", "MujocoEngine"]


class MujocoEngine:
    """See :class:`~safe_sysid.simulation.engines.Engine`.

    Attributes:
        model: MuJoCo's.
        gears: what geared rotors on moving links add; None: nothing.
    """

    smooth_friction = True
    steps = 2
    link_torque = None

    def __init__(
        self,
        model: RobotModel,
        theta: FloatArray,
        payload: Payload,
        scene: Scene,
        coulomb_velocity: FloatArray,
        period: float,
        steps: int,
    ) -> None:
        """Compile the world; see :func:`~safe_sysid.simulation.engines.mujoco_world.build_world`."""
        self.world = world = build_world(model, theta, payload, scene, coulomb_velocity, period / steps)
        self.model, self._data = world.model, mujoco.MjData(world.model)
        self.q, self.qd, self._torque = self._data.qpos, self._data.qvel, self._data.qfrc_applied
        self._search = ContactSearch(world, period)
        motors = model.kinematics.motors
        links = [world.model.body(f"link:{name}").id for name in model.joint_names]
        self.gears = GearReaction(world.model, motors, links) if len(motors.joint) else None

    @staticmethod
    def integration_error(model: RobotModel) -> FloatArray:
        """(n,) zeros, N m: what MuJoCo is off by is not worth declaring (``plant.SMOOTH_RESIDUAL_BOUND``)."""
        return np.zeros(model.n)

    @property
    def pairs(self) -> list[tuple[str, str]]:
        """Names of the solids that must stay apart."""
        return self.world.pairs

    @property
    def touching(self) -> list[tuple[str, str, float]]:
        """Solids that overlap now, by name, with the depth, m."""
        return self.world.touching(self._data) if self._data.ncon else []

    def place(self, q: FloatArray, qd: FloatArray) -> None:
        """Go to a state: ``q`` (n,) rad, ``qd`` (n,) rad/s."""
        self.q[:], self.qd[:] = q, qd

    def advance(self, torque: FloatArray, steps: int) -> None:
        """Integrate over so many Runge-Kutta steps under a torque (n,) that is held, N m."""
        self._torque[:] = torque
        self._search.prepare(self.q, self.qd)
        if self.gears is None:
            mujoco.mj_step(self.model, self._data, nstep=steps)
        else:
            self.gears.advance(self._data, steps)

    def follow(self, velocity: FloatArray, most: FloatArray, steps: int) -> None:
        """MuJoCo has no such servos.

        Raises:
            ParameterError: always.
        """
        raise ParameterError("engine mujoco: it has no servos of velocity: expected engine dart")

    def clearance(self, q: FloatArray) -> tuple[float, tuple[str, str] | None]:
        """Smallest distance (m) over all pairs at ``q``, and the pair."""
        return self.world.clearance(q)


#: m: what accelerations may add to a period's way beyond twice the present speed, and an error of a clearance.
_STRIDE = 2e-3
#: Periods until distances are looked at again where something is near; contacts are searched for meanwhile.
_LOOK_EVERY = 25
_OFF = int(mujoco.mjtDisableBit.mjDSBL_CONTACT)


class ContactSearch:
    """Leaves out MuJoCo's search for contacts, four fifths of a step, in periods in which no contact is possible.

    Since the last look at all distances no solid has moved by more than its lever arms times the angles by which the
    joints have turned since then, whatever the way. While that is less than the clearance seen then, nothing can touch.
    """

    def __init__(self, world: World, period: float) -> None:
        """``period``: s, for which each decision holds."""
        self._world, self._option, self._period = world, world.model.opt, period
        self._looked_at, self._room = np.zeros(world.model.nv), -np.inf
        self._wait = 0

    def prepare(self, q: FloatArray, qd: FloatArray) -> None:
        """Decide for the coming period. ``q``: (n,) true position, rad; ``qd``: (n,) true velocity, rad/s."""
        reach = self._world.reach
        stride = 2.0 * self._period * float(np.abs(qd) @ reach) + _STRIDE
        # Written so that a state that is not finite any more is searched, too.
        clear = float(np.abs(q - self._looked_at) @ reach) + stride < self._room
        self._wait -= 1
        if not clear and self._wait <= 0:
            self._room, _ = self._world.clearance(q)
            self._looked_at[:] = q
            clear = stride < self._room
            self._wait = _LOOK_EVERY
        flags = self._option.disableflags
        self._option.disableflags = flags | _OFF if clear else flags & ~_OFF
