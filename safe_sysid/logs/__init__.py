"""Recorded measurements: files of several formats in, one kind of log out, and what is wrong with it."""

from safe_sysid.logs.formats.npz import read_log, write_log
from safe_sysid.logs.log import Log, LogError

__all__ = ["Log", "LogError", "read_log", "write_log"]
