"""Dynamics of an arm behind one protocol (:class:`Dynamics`), and the backends that fulfil it.

A new backend is one file with a class that is made from :class:`~safe_sysid.robot.model.Kinematics`, and one line in
:data:`~safe_sysid.extensions.DYNAMICS`. Certificates are no users of this room: they have dynamics code of their own,
on purpose.
"""

from __future__ import annotations

from safe_sysid.dynamics.protocol import Dynamics
from safe_sysid.errors import ParameterError
from safe_sysid.extensions import DYNAMICS, loaded
from safe_sysid.robot.model import Kinematics

__all__ = ["Dynamics", "dynamics_of"]


def dynamics_of(kin: Kinematics, backend: str = "recursion") -> Dynamics:
    """The dynamics of an arm. ``backend``: a name in :data:`~safe_sysid.extensions.DYNAMICS`.

    Raises:
        ParameterError: there is no such backend.
    """
    if backend not in DYNAMICS:
        raise ParameterError(f"dynamics backend {backend!r}: expected one of {', '.join(DYNAMICS)}")
    made: Dynamics = loaded(DYNAMICS[backend])(kin)
    return made
