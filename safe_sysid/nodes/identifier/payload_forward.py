"""Tells an arm's own controller what its hand holds, through the service that its driver has for it.

Each driver has its own service type for this. The configuration names the type, and the node imports it when it is
configured, so nothing here depends on a driver. Fields are filled by their names.
"""

from __future__ import annotations

import importlib
import re
import time
from collections.abc import Callable
from typing import Any

import numpy as np
from geometry_msgs.msg import Inertia, InertiaStamped

from safe_sysid.core.arrays import FloatArray
from safe_sysid.errors import ConfigError
from safe_sysid.nodes.common.base import BaseNode

__all__ = ["PayloadForward", "fill", "with_hand"]

Answer = Callable[[bool, str], None]

#: So long a driver may take, s: a UR's waits for its controller box.
_PATIENCE = 10.0
_ROWS = (("ixx", 0, 0), ("ixy", 0, 1), ("ixz", 0, 2), ("iyy", 1, 1), ("iyz", 1, 2), ("izz", 2, 2))
#: Fields that may keep what a new request has.
_LEFT = ("transition_time",)


def with_hand(payload: Inertia, hand: FloatArray) -> Inertia:
    """Payload and hand as one body, inertia about its centre of mass.

    Args:
        payload: inertia about its centre.
        hand: (4,) mass, kg, and centre, m, in the same frame; its inertia about its own centre is taken for zero.
    """
    parts = [(payload.m, np.array([payload.com.x, payload.com.y, payload.com.z])), (float(hand[0]), hand[1:])]
    mass = payload.m + float(hand[0])
    centre = sum(m * c for m, c in parts) / mass if mass > 0.0 else np.zeros(3)
    inertia = np.zeros((3, 3))
    for name, i, j in _ROWS:
        inertia[i, j] = inertia[j, i] = getattr(payload, name)
    for m, c in parts:
        d = c - centre
        inertia += m * (d @ d * np.eye(3) - np.outer(d, d))
    out = Inertia(m=mass)
    out.com.x, out.com.y, out.com.z = (float(x) for x in centre)
    for name, i, j in _ROWS:
        setattr(out, name, float(inertia[i, j]))
    return out


def fill(request: Any, told: InertiaStamped) -> str:
    """Fill a driver's request by the names and types of its fields; returns what stands in the way, "" if nothing does.

    Known are a mass with a centre (``ur_msgs/srv/SetPayload``), with a centre and nine numbers of an inertia
    (``franka_msgs/srv/SetLoad``), and whole ``geometry_msgs/Inertia`` and ``InertiaStamped``.
    """
    body, has_mass = told.inertia, False
    centre = [body.com.x, body.com.y, body.com.z]
    for name, kind in request.get_fields_and_field_types().items():
        if kind == "geometry_msgs/InertiaStamped":
            setattr(request, name, told)
        elif kind == "geometry_msgs/Inertia":
            setattr(request, name, body)
        elif name == "mass" and kind in ("float", "double"):
            setattr(request, name, body.m)
        elif name in ("center_of_gravity", "center_of_mass") and kind == "geometry_msgs/Vector3":
            vector = getattr(request, name)
            vector.x, vector.y, vector.z = centre
        elif name in ("center_of_gravity", "center_of_mass") and kind == "double[3]":
            setattr(request, name, centre)
        elif name in ("load_inertia", "inertia") and kind == "double[9]":
            rows = [body.ixx, body.ixy, body.ixz, body.ixy, body.iyy, body.iyz, body.ixz, body.iyz, body.izz]
            setattr(request, name, rows)  # symmetric: by rows or by columns
        elif name not in _LEFT:
            return f"its field {name} ({kind}) is none that a payload could fill"
        has_mass |= name == "mass" or kind.startswith("geometry_msgs/Inertia")
    return "" if has_mass else "it has no field for a mass"


class PayloadForward:
    """One client of a driver's service, as ``forward.*`` of the parameters says; none where nothing is set."""

    def __init__(self, node: BaseNode) -> None:
        """Import the type and look at its fields.

        Raises ConfigError: it is not installed, is no type, or has fields that a payload cannot fill.
        """
        given = node.values
        self._service, self._hand = given["forward.service"], np.array(given["forward.hand"] or (), float)
        self._client: Any = None
        self._pending: tuple[Answer, float] | None = None
        if not self._service:
            return
        where = "parameters of identifier"
        if len(self._hand) not in (0, 4) or np.any(self._hand[:1] < 0.0):
            raise ConfigError(
                where, "forward.hand", self._hand.tolist(), "mass (kg) and centre x, y, z (m), or nothing"
            )
        self._kind = _type_of(given["forward.type"] or "", where)
        if why := fill(self._kind.Request(), InertiaStamped()):
            raise ConfigError(where, "forward.type", given["forward.type"], f"a type for payloads; {why}")
        try:
            self._client = node.create_client(self._kind, self._service)
        except Exception as error:  # its libraries may be missing, or the name be none
            told = f"{given['forward.type']} at {self._service}"
            raise ConfigError(where, "forward", told, f"a type and a name that are usable ({error})") from None
        node.every(1.0, self._give_up)

    def send(self, told: InertiaStamped | None, answer: Answer) -> None:
        """Ask the driver, and answer with what it says.

        Args:
            told: the payload alone, all zero where the hand is empty; None: there is no estimate.
            answer: called once, with success and words.
        """
        if self._client is None:
            answer(False, "refused: forward.service is not set")
        elif told is None:
            answer(False, "refused: no possible body was found inside the bounds")
        elif self._pending is not None:
            answer(False, "refused: the driver has not answered yet")
        elif not self._client.service_is_ready():
            answer(False, f"refused: there is no service {self._service}")
        else:
            if len(self._hand):
                told.inertia = with_hand(told.inertia, self._hand)
            request = self._kind.Request()
            fill(request, told)
            self._pending = answer, time.monotonic()
            mass = told.inertia.m
            self._client.call_async(request).add_done_callback(lambda future: self._answered(future, mass))

    def _answered(self, future: Any, mass: float) -> None:
        if self._pending is None:
            return  # too late
        (answer, _), self._pending = self._pending, None
        response = future.result()
        words = getattr(response, "error", "") or getattr(response, "message", "")
        if getattr(response, "success", False):
            answer(True, f"{self._service}: {mass:.4g} kg")
        else:
            answer(False, f"refused by {self._service}{': ' if words else ''}{words[:200]}")

    def _give_up(self) -> None:
        if self._pending is not None and time.monotonic() - self._pending[1] > _PATIENCE:
            (answer, _), self._pending = self._pending, None
            answer(False, f"{self._service} has not answered for {_PATIENCE:g} s: what it knows is not known")


def _type_of(name: str, where: str) -> Any:
    match = re.fullmatch(r"([a-z][a-z0-9_]*)/srv/([A-Z][A-Za-z0-9]*)", name)
    if match is None:
        raise ConfigError(where, "forward.type", name, "package/srv/Name, as ur_msgs/srv/SetPayload")
    try:
        return getattr(importlib.import_module(f"{match[1]}.srv"), match[2])
    except (ImportError, AttributeError) as error:
        raise ConfigError(where, "forward.type", name, f"a type that is installed ({error})") from None
