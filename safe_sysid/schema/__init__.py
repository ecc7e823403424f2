"""Declarations of settings: each room declares those that it reads, once, as fields of a :class:`Section`."""

from safe_sysid.schema.parameter import REQUIRED, Parameter, Range
from safe_sysid.schema.section import Keys, SchemaError, Section, entries, parameters, setting

__all__ = ["REQUIRED", "Keys", "Parameter", "Range", "SchemaError", "Section", "entries", "parameters", "setting"]
