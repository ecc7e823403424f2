"""MuJoCo as the engine of a simulated arm: Runge-Kutta steps, rotors, smooth Coulomb friction."""

from __future__ import annotations

import mujoco
import numpy as np

from safe_sysid.core.arrays import FloatArray
from safe_sysid.errors import ParameterError
from safe_sysid.robot.model import RobotModel
from safe_sysid.robot.scenes.scene import Scene
from safe_sysid.simulation.engines.contact_search import ContactSearch
from safe_sysid.simulation.engines.gear_reaction import GearReaction
from safe_sysid.simulation.engines.mujoco_world import build_world
from safe_sysid.simulation.payloads import Payload

__all__ = ["MujocoEngine"]


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
        """None worth declaring: SMOOTH_RESIDUAL_BOUND of the plant."""
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
        """Go to a state."""
        self.q[:], self.qd[:] = q, qd

    def advance(self, torque: FloatArray, steps: int) -> None:
        """Integrate over so many Runge-Kutta steps."""
        self._torque[:] = torque
        self._search.prepare(self.q, self.qd)
        if self.gears is None:
            mujoco.mj_step(self.model, self._data, nstep=steps)
        else:
            self.gears.advance(self._data, steps)

    def follow(self, velocity: FloatArray, most: FloatArray, steps: int) -> None:
        """Not here."""
        raise ParameterError("engine mujoco: it has no servos of velocity: expected engine dart")

    def clearance(self, q: FloatArray) -> tuple[float, tuple[str, str] | None]:
        """Smallest distance (m) over all pairs at ``q``, and the pair."""
        return self.world.clearance(q)
