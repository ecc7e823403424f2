"""Leaves out MuJoCo's search for contacts, four fifths of a step, in periods in which no contact is possible.

Since the last look at all distances no solid has moved by more than its lever arms times the angles by which the joints
have turned since then, whatever the way. While that is less than the clearance seen then, nothing can touch.
"""

from __future__ import annotations

import mujoco
import numpy as np

from safe_sysid.core.arrays import FloatArray
from safe_sysid.simulation.engines.mujoco_world import World

__all__ = ["ContactSearch"]

#: m: what accelerations may add to a period's way beyond twice the present speed, and an error of a clearance.
_STRIDE = 2e-3
#: Periods until distances are looked at again where something is near; contacts are searched for meanwhile.
_LOOK_EVERY = 25
_OFF = int(mujoco.mjtDisableBit.mjDSBL_CONTACT)


class ContactSearch:
    """Switches the search of one simulated world on and off."""

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
