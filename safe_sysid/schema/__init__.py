"""What may be set, declared once in ``parameters.yaml``: parameters of the nodes, keys of a robot's file."""

from safe_sysid.schema.parameter import REQUIRED, Parameter, Range
from safe_sysid.schema.reading import Schema, SchemaError, load_schema

__all__ = ["REQUIRED", "Parameter", "Range", "Schema", "SchemaError", "load_schema"]
