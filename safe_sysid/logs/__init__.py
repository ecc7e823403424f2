"""Recorded measurements: several file formats in, one kind of log out, and checks of it."""

from safe_sysid.logs.formats.npz import read_log, write_log
from safe_sysid.logs.log import Log, LogError

__all__ = ["Log", "LogError", "read_log", "write_log"]
