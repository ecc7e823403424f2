"""A ROS 2 domain for each run, so that a demo neither moves another robot nor meets another demo."""

from __future__ import annotations

import fcntl
import os
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path

from safe_sysid.bring_up.arrangement import quick_discovery, transport_without_shared_memory
from safe_sysid.parent import ONE_THREAD

__all__ = ["environment_of", "own_domain", "ros_environment"]

_DOMAINS = 100  # 0 is everyone's; above 101 the ports collide with ephemeral ones


@contextmanager
def own_domain() -> Iterator[int]:
    """Yield a domain that no other demo or test run of this machine uses; it stays ours until the block ends."""
    first = 1 + os.getpid() % _DOMAINS
    taken = os.environ.get("ROS_DOMAIN_ID", "")
    descriptor, domain = None, first
    for offset in range(_DOMAINS):
        candidate = 1 + (first - 1 + offset) % _DOMAINS
        if str(candidate) == taken:
            continue
        path = Path(tempfile.gettempdir()) / f"safe_sysid_domain_{candidate}_{os.getuid()}.lock"
        try:
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError:
            continue
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(descriptor)
            descriptor = None
            continue
        domain = candidate
        break
    try:
        yield domain
    finally:
        if descriptor is not None:
            with suppress(OSError):
                os.close(descriptor)


def ros_environment(domain: int, log_directory: Path, lockstep: bool = True) -> dict[str, str]:
    """The environment for the nodes: this machine only, logs in the run directory, one thread per library."""
    environment = {
        key: value
        for key, value in os.environ.items()
        # The older ROS_LOCALHOST_ONLY would override the range; peers and servers would lead out of this machine.
        if key not in ("ROS_LOCALHOST_ONLY", "ROS_STATIC_PEERS", "ROS_DISCOVERY_SERVER", "ROS_NAMESPACE")
    }
    environment |= {
        "ROS_DOMAIN_ID": str(domain),
        "ROS_AUTOMATIC_DISCOVERY_RANGE": "LOCALHOST",
        "ROS_LOG_DIR": str(log_directory),
        "RCUTILS_COLORIZED_OUTPUT": "0",
        "PYTHONUNBUFFERED": "1",
        **ONE_THREAD,
    }
    if lockstep:
        return {**quick_discovery(), **environment}
    return environment | transport_without_shared_memory()


@contextmanager
def environment_of(environment: Mapping[str, str]) -> Iterator[None]:
    """This process lives in that environment until the block ends: its own node must not lead out either."""
    before = dict(os.environ)
    os.environ.clear()
    os.environ.update(environment)
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)
