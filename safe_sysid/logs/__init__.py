"""Recorded measurements: files of several formats in, one kind of log out, and what is wrong with it."""

from safe_sysid.logs.log import Log, LogError
from safe_sysid.logs.npz import read_log, write_log

__all__ = ["Log", "LogError", "read_log", "write_log"]
