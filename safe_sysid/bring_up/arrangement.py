"""Arrangement of an arm's processes: order, scheduling, environment. No ROS."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from safe_sysid.resources import resource_path

__all__ = ["MANAGED", "REALTIME", "WRITES", "quick_discovery", "transport_without_shared_memory"]

#: In the order of their activation: the controller moves the arm, so everyone else has to be there.
MANAGED = ("planner", "identifier", "controller")
#: Parameters ``realtime.*`` in real time: the loop first, where the system allows it, thinking behind everything else.
REALTIME: Mapping[str, Mapping[str, Any]] = {
    "plant": {"priority": 10, "lock_memory": True},
    "controller": {"priority": 11, "lock_memory": True},
    "planner": {"nice": 5},
    "identifier": {"nice": 10},
}
#: A node that has stopped working may take so long to write its logs on a busy machine, s.
WRITES = 6.0


def transport_without_shared_memory() -> dict[str, str]:
    """Environment of real time on this machine alone.

    In shared memory a 1 kHz loop waits for locks that ordinary processes hold. The range LOCALHOST brings shared memory
    with it whatever else is set, so the profile keeps to this machine itself. Lock-step has it: it waits anyway, and is
    half as fast again.
    """
    return {"ROS_AUTOMATIC_DISCOVERY_RANGE": "SYSTEM_DEFAULT", **_profile("real_time.xml")}


def quick_discovery() -> dict[str, str]:
    """Environment in which processes of this machine find each other in a fifth of a second, not in up to three."""
    return _profile("this_machine.xml")


def _profile(name: str) -> dict[str, str]:
    path = str(resource_path(f"config/fastdds/{name}"))
    # Fast DDS 2 reads the first, from 3 on the second.
    return {"FASTRTPS_DEFAULT_PROFILES_FILE": path, "FASTDDS_DEFAULT_PROFILES_FILE": path}
