"""Settings as classes: each field is declared once, with description, unit, range, default and when it may change."""

from __future__ import annotations

import types
import typing
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, Literal

import numpy as np
from pydantic import Field, ValidationInfo, field_validator
from pydantic.fields import FieldInfo

from safe_sysid.errors import SafeSysIdError
from safe_sysid.schema.fields import Kind, StrictModel, problem
from safe_sysid.schema.parameter import REQUIRED, Parameter, Range

__all__ = ["Keys", "SchemaError", "Section", "entries", "parameters", "setting"]

_PLAIN: Mapping[object, str] = {float: "float", int: "int", bool: "bool", str: "text"}
#: Where a field of a section carries its declaration.
_DECLARED, _EACH = "declared", "each"


class SchemaError(SafeSysIdError):
    """A declaration contradicts itself, or code asks for a setting that nobody declares."""


def setting(
    description: str,
    unit: str = "",
    range: str = "",
    *,
    default: Any = REQUIRED,
    choices: Sequence[str] = (),
    when: Literal["live", "configure", "start"] = "configure",
    unset: str = "",
) -> Any:
    """Declare a field of a :class:`Section`; its type is the field's annotation.

    Args:
        description: one line without a full stop.
        unit: SI. What depends on the joint's kind names both, the turning joint's first: ``rad/s or m/s``.
        range: ``[0, 1)`` from 0 to below 1, ``(0, inf)`` above 0; of each entry of a list.
        default: value where nothing is given; left out: it must be given.
        choices: words that are known; none: any.
        when: ``live``: it may change at any time; ``configure``: while the node is unconfigured; ``start``: never.
        unset: what the default stands for; "" for itself.

    Raises:
        SchemaError: a range that is none.
    """
    try:
        interval = Range.parse(range) if range else None
    except ValueError:
        raise SchemaError(f"{description}: range = {range!r}: expected as in [0, 1) or (0, inf)") from None
    shown = list(default) if isinstance(default, tuple) else default
    declared = Parameter("", "", when, description, unit, shown, unset, interval, tuple(choices))
    extra: dict[str, Any] = {_DECLARED: declared}
    if default is REQUIRED:
        return Field(json_schema_extra=extra)
    return Field(default=default, json_schema_extra=extra)


def entries(description: str, of: str, each: Any = None, **field: Any) -> Any:
    """Declare a field that maps names, of joints or links, to values or to sections.

    Args:
        of: what the names are of, as ``joint``.
        each: :func:`setting` of a value; None: values are sections.
        field: of pydantic's ``Field``, as ``default_factory``.
    """
    below = None if each is None else each.json_schema_extra[_DECLARED]
    default: object = {} if "default_factory" in field else REQUIRED
    declared = Parameter("", "section", "configure", description, default=default)
    extra: dict[str, Any] = {_DECLARED: declared, _EACH: (f"<{of}>", below)}
    return Field(json_schema_extra=extra, **field)


class Section(StrictModel):
    """Base of settings: values are judged by the declared ranges and choices. The docstring describes the section."""

    @field_validator("*", mode="after")
    @classmethod
    def _as_declared(cls, value: Any, info: ValidationInfo) -> Any:
        declared = _extra(cls.model_fields[str(info.field_name)]).get(_DECLARED)
        if declared is None or value is None:
            return value
        if declared.choices and value not in declared.choices:
            raise problem(f"one of {', '.join(map(repr, declared.choices))}")
        if declared.range is not None:
            for i, number in enumerate(np.atleast_1d(value)):
                if number not in declared.range:
                    index = {"index": i} if isinstance(value, tuple) else {}
                    raise problem(f"a number {declared.range.words}", **index)
        return value


def parameters(section: type[Section], path: str = "") -> Iterator[Parameter]:
    """Everything that a section declares, in order; sections within it are parameters of type ``section``.

    ``path``: of the section, dotted; "" for the whole file.

    Raises:
        SchemaError: a field without a declaration, or of a type that has no word in ``TYPES``.
    """
    for name, field in section.model_fields.items():
        own = f"{path}.{name}" if path else name
        extra, inner = _extra(field), _section_in(field.annotation)
        default: object
        if _EACH in extra:
            of, each = extra[_EACH]
            yield _named(extra[_DECLARED], own, "section")
            if inner is None:
                yield _named(each, f"{own}.{of}", _type(own, typing.get_args(field.annotation)[1]))
            else:
                yield from _section(inner, f"{own}.{of}", REQUIRED)
        elif _DECLARED in extra:
            yield _named(extra[_DECLARED], own, _type(own, field.annotation, field.metadata))
        elif inner is not None:
            default = REQUIRED if field.is_required() else None if field.default is None else {}
            yield from _section(inner, own, default)
        else:
            raise SchemaError(f"{own}: expected a declaration: setting(...)")


class Keys(dict[str, Parameter]):
    """All keys of a file by path, as ``joints.<joint>.velocity``, in order."""

    @classmethod
    def of(cls, section: type[Section]) -> Keys:
        """What a class of settings declares."""
        return cls({parameter.path: parameter for parameter in parameters(section)})

    def find(self, path: str) -> Parameter | None:
        """What declares an actual key, as ``joints.elbow.velocity``; None: nothing does."""
        if path in self:
            return self[path]
        found = [p for p in self.values() if "<" in p.path and p.pattern.fullmatch(path)]
        # Names may have dots: `joints.a.b.velocity` is the velocity of a.b, not a joint called a.b.velocity.
        return max(found, key=lambda p: p.path.count("."), default=None)


def _section(section: type[Section], path: str, default: object) -> Iterator[Parameter]:
    if not section.__doc__:
        raise SchemaError(f"{path}: expected a docstring of {section.__name__}, which describes the section")
    text = " ".join(section.__doc__.split()).removesuffix(".").replace("``", "`")
    # A sentence there, a phrase here, as descriptions of values are; acronyms stay.
    text = text[0].lower() + text[1:] if text[1].islower() else text
    yield Parameter(path, "section", "configure", text, default=default)
    yield from parameters(section, path)


def _named(declared: Parameter, path: str, kind: str) -> Parameter:
    return replace(declared, path=path, type=kind)


def _extra(field: FieldInfo) -> Mapping[str, Any]:
    return field.json_schema_extra if isinstance(field.json_schema_extra, dict) else {}


def _parts(annotation: object) -> Iterator[object]:
    """An annotation and what it is a union of, ``None`` left out."""
    if isinstance(annotation, types.UnionType) or typing.get_origin(annotation) is typing.Union:
        yield from (part for part in typing.get_args(annotation) if part is not type(None))
    else:
        yield annotation


def _section_in(annotation: object) -> type[Section] | None:
    """The class of settings in an annotation, however deep."""
    if isinstance(annotation, type) and issubclass(annotation, Section):
        return annotation
    found = (_section_in(part) for part in typing.get_args(annotation))
    return next((section for section in found if section is not None), None)


def _type(path: str, annotation: object, metadata: Sequence[object] = ()) -> str:
    """One of ``TYPES``: what the annotation is marked with, or a plain type."""
    for part in _parts(annotation):
        marks = [*metadata, *getattr(part, "__metadata__", ())]
        kind = next((mark.name for mark in marks if isinstance(mark, Kind)), "")
        plain = typing.get_args(part)[0] if typing.get_origin(part) is typing.Annotated else part
        if kind or plain in _PLAIN:
            return kind or _PLAIN[plain]
    raise SchemaError(f"{path}: type {annotation}: expected one that is marked with a Kind")
