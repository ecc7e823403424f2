"""Interface of physics engines for simulated arms; :data:`safe_sysid.extensions.ENGINES` names the engines."""

from __future__ import annotations

from typing import Protocol

from safe_sysid.core.arrays import FloatArray
from safe_sysid.robot.model import RobotModel
from safe_sysid.robot.scenes.scene import Scene
from safe_sysid.simulation.payloads import Payload

__all__ = ["Engine", "EngineMaker"]


class Engine(Protocol):
    """An arm with known parameters, its payload and its surroundings, in a state."""

    #: q, qd: (n,) position and velocity now, rad and rad/s; the same arrays for ever, to be read
    q: FloatArray
    qd: FloatArray

    @property
    def pairs(self) -> list[tuple[str, str]]:
        """Names of the solids that must stay apart."""

    @property
    def touching(self) -> list[tuple[str, str, float]]:
        """Solids that overlap now, by name, with the depth, m."""

    @property
    def link_torque(self) -> FloatArray | None:
        """(n,) mean torque that the links felt in the last :meth:`advance`, behind friction and rotors, N m.

        None: the engine does not tell.
        """

    def place(self, q: FloatArray, qd: FloatArray) -> None:
        """Go to a state: ``q`` (n,) rad, ``qd`` (n,) rad/s."""

    def advance(self, torque: FloatArray, steps: int) -> None:
        """Integrate over so many steps under a torque (n,) at the joints, N m, that is held."""

    def follow(self, velocity: FloatArray, most: FloatArray, steps: int) -> None:
        """The same under servos of the engine that reach a velocity (n,), rad/s, by at most ``most`` (n,), N m.

        Raises:
            ParameterError: the engine has none.
        """

    def clearance(self, q: FloatArray) -> tuple[float, tuple[str, str] | None]:
        """Smallest distance (m, negative: depth) over all pairs at position ``q`` (n,), and the pair; state kept."""


class EngineMaker(Protocol):
    """Class of an engine."""

    smooth_friction: bool  #: whether Coulomb friction is Fc sat(qd / v_s), which takes short steps where it is steep
    steps: int  #: of a period, at least

    def __call__(
        self,
        model: RobotModel,
        theta: FloatArray,
        payload: Payload,
        scene: Scene,
        coulomb_velocity: FloatArray,
        period: float,
        steps: int,
    ) -> Engine:
        """Build it, at rest at zero; a period (s) has so many steps.

        Raises:
            SafeSysIdError: an arm that the engine cannot simulate.
        """

    def integration_error(self, model: RobotModel) -> FloatArray:
        """(n,) N m, declared: what an identifier's window may be off by, as a mean torque, by integration alone."""
