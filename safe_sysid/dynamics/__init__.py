"""Dynamics of an arm behind one protocol (:class:`Dynamics`), and the backends that fulfil it.

A new backend is one file with a class that is made from :class:`~safe_sysid.robot.model.Kinematics`, and one line in
:data:`BACKENDS`. Certificates are no users of this room: they have dynamics code of their own, on purpose.
"""

from __future__ import annotations

from functools import cache
from importlib import import_module
from typing import Any

from safe_sysid.dynamics.protocol import Dynamics
from safe_sysid.errors import ParameterError
from safe_sysid.robot.model import Kinematics

__all__ = ["BACKENDS", "Dynamics", "dynamics_of"]

#: Name -> module and class, imported when it is asked for.
BACKENDS = {
    "recursion": "safe_sysid.dynamics.recursion:RecursiveDynamics",
    "pinocchio": "safe_sysid.dynamics.pinocchio_backend:PinocchioDynamics",
}


def dynamics_of(kin: Kinematics, backend: str = "recursion") -> Dynamics:
    """The dynamics of an arm.

    Args:
        kin: of the arm.
        backend: a name in :data:`BACKENDS`.

    Raises:
        ParameterError: there is no such backend.
    """
    if backend not in BACKENDS:
        raise ParameterError(f"dynamics backend {backend!r}: expected one of {', '.join(BACKENDS)}")
    made: Dynamics = _maker(BACKENDS[backend])(kin)
    return made


@cache
def _maker(place: str) -> Any:
    """The class that a line of the table names."""
    module, _, name = place.partition(":")
    return getattr(import_module(module), name)
