"""How settings are declared: once, by the room that reads them, as fields of a :class:`Section`."""

from safe_sysid.schema.parameter import REQUIRED, Parameter, Range
from safe_sysid.schema.reading import Schema, load_schema
from safe_sysid.schema.section import Keys, SchemaError, Section, entries, setting

__all__ = [
    "REQUIRED",
    "Keys",
    "Parameter",
    "Range",
    "Schema",
    "SchemaError",
    "Section",
    "entries",
    "load_schema",
    "setting",
]
