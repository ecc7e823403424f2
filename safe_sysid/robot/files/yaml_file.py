"""YAML files read strictly: no duplicate keys, ``1e-3`` is a number, and every complaint names the file and the key."""

from __future__ import annotations

import difflib
import math
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeVar

import yaml
from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from safe_sysid.errors import ConfigError
from safe_sysid.input_limits import MAX_YAML_BYTES, read_regular_text

__all__ = ["dotted", "flow_text", "merge", "parse_value", "parse_yaml", "read_yaml", "validate"]

ModelT = TypeVar("ModelT", bound=BaseModel)


_Safe: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # the one in C is ten times as fast
_MAX_NODES = 50_000  # with every alias written out: ten lines of aliases of aliases stand for billions
_MAX_DEPTH = 32
_MAX_DIGITS = 400  # of a whole number; all that a float can hold
#: What settings are made of; no dates that the calendar lacks, no sets, no objects.
_TAGS = frozenset(
    f"tag:yaml.org,2002:{kind}" for kind in ("bool", "float", "int", "map", "merge", "null", "seq", "str")
)
_DATE = "tag:yaml.org,2002:timestamp"


class _Loader(_Safe):
    """PyYAML's safe loader with YAML 1.2 floats: plain 1.1 takes ``1e-3`` for a string."""


_Loader.yaml_implicit_resolvers = {
    first: [(tag, regexp) for tag, regexp in resolvers if tag != "tag:yaml.org,2002:float"]
    for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
}
_Loader.add_implicit_resolver(
    "tag:yaml.org,2002:float",
    re.compile(
        r"""^(?:[-+]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][-+]?[0-9]+)?
            |[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN))$""",
        re.X,
    ),
    list("-+0123456789."),
)
# Integers first: the pattern above takes `1` as well.
for _first in "-+0123456789":
    _Loader.yaml_implicit_resolvers[_first].sort(key=lambda item: not item[0].endswith(":int"))


def _integer(loader: Any, node: yaml.ScalarNode) -> int:
    if len(node.value) > _MAX_DIGITS:
        raise ValueError(f"a whole number of {len(node.value)} digits{_line(node)}")
    return int(_Safe.construct_yaml_int(loader, node))


_Loader.add_constructor("tag:yaml.org,2002:int", _integer)


class _Dumper(yaml.SafeDumper):
    """PyYAML's safe dumper without aliases: what occurs twice is written twice."""

    def ignore_aliases(self, data: Any) -> bool:
        """Always."""
        return True


def dotted(location: tuple[int | str, ...]) -> str:
    """``("payload", "prior_lower", 3)`` as ``payload.prior_lower[3]``."""
    text = ""
    for part in location:
        text += f"[{part}]" if isinstance(part, int) else f".{part}" if text else str(part)
    return text or "(whole file)"


def _refuse_duplicates(file: str, node: yaml.Node, path: tuple[int | str, ...], seen: set[int]) -> None:
    if id(node) in seen:  # an alias: checked where it is defined
        return
    seen.add(id(node))
    if isinstance(node, yaml.MappingNode):
        first_lines: dict[str, int] = {}
        for key_node, value_node in node.value:
            key, line = str(key_node.value), key_node.start_mark.line + 1
            if key in first_lines:
                raise ConfigError(
                    file, dotted((*path, key)), f"given again in line {line}", f"one value (line {first_lines[key]})"
                )
            first_lines[key] = line
            _refuse_duplicates(file, value_node, (*path, key), seen)
    elif isinstance(node, yaml.SequenceNode):
        for i, item in enumerate(node.value):
            _refuse_duplicates(file, item, (*path, i), seen)


def _check_depth(file: str, text: str) -> None:
    """Before any tree is built: libyaml's builder in C calls itself for each level, until the program dies."""
    parser, depth = _Loader(text), 0
    try:
        while parser.check_event():
            event = parser.get_event()
            depth += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
            if depth > _MAX_DEPTH:
                raise ConfigError(
                    file, "YAML syntax", f"more than {_MAX_DEPTH} levels{_line(event)}", "valid YAML with fewer"
                )
    finally:
        parser.dispose()


def _count(file: str, node: yaml.Node, known: dict[int, int]) -> int:
    """Nodes below and with one, aliases written out; refuses what has no end, and types that we have not."""
    if id(node) in known:
        if known[id(node)] < 0:
            raise ConfigError(
                file, "YAML syntax", f"an alias of itself{_line(node)}", "valid YAML whose lists and mappings end"
            )
        return known[id(node)]
    if node.tag not in _TAGS and not (node.tag == _DATE and isinstance(node, yaml.ScalarNode)):
        raise ConfigError(
            file,
            "YAML syntax",
            f"type {node.tag[:80]}{_line(node)}",
            "valid YAML of texts, numbers, lists and mappings",
        )
    known[id(node)] = -1
    total = 1
    parts = [part for pair in node.value for part in pair] if isinstance(node, yaml.MappingNode) else node.value
    for part in parts if isinstance(node, yaml.CollectionNode) else ():
        total += _count(file, part, known)
        if total > _MAX_NODES:
            raise ConfigError(
                file,
                "YAML syntax",
                f"more than {_MAX_NODES} entries, aliases written out{_line(node)}",
                "valid YAML with fewer",
            )
    known[id(node)] = total
    return total


def _line(node: yaml.Node | yaml.Event) -> str:
    mark = node.start_mark
    return "" if mark is None else f" in line {mark.line + 1}"


def read_yaml(path: str | Path) -> dict[str, Any]:
    """Read a YAML file whose top level is a mapping.

    Raises:
        ConfigError: missing or unreadable file, or as :func:`parse_yaml`.
    """
    file = str(path)
    try:
        text = read_regular_text(path, MAX_YAML_BYTES)
    except FileNotFoundError as error:
        raise ConfigError(file, "file", file, "a file that exists") from error
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(file, "file", str(error), "a readable UTF-8 text file") from error
    return parse_yaml(text, file)


def parse_yaml(text: str, file: str) -> dict[str, Any]:
    """Read a YAML text whose top level is a mapping, whoever wrote it.

    ``text``: at most :data:`~safe_sysid.input_limits.MAX_YAML_BYTES` characters.

    Raises:
        ConfigError: too long, YAML syntax, a duplicate key, too many or too deep entries (aliases count as what they
            stand for), a type that is none of ours, or a top level that is no mapping.
    """
    data = parse_value(text, file)
    if not isinstance(data, dict):
        raise ConfigError(file, "(whole file)", type(data).__name__, "a mapping of keys to values")
    return data


def parse_value(text: str, file: str) -> Any:
    """Read a YAML text of any kind: one setting, or a file. ``text``: as in :func:`parse_yaml`.

    Raises:
        ConfigError: as :func:`parse_yaml`, but for the top level.
    """
    if len(text) > MAX_YAML_BYTES:
        raise ConfigError(file, "file", f"{len(text)} characters", f"at most {MAX_YAML_BYTES}")
    try:
        _check_depth(file, text)
        loader = _Loader(text)
        try:
            node = loader.get_single_node()
            if node is not None:
                _count(file, node, {})
                _refuse_duplicates(file, node, (), set())
            return None if node is None else loader.construct_document(node)
        finally:
            loader.dispose()
    except (yaml.YAMLError, ValueError, RecursionError, KeyError, AttributeError, TypeError, OverflowError) as error:
        # Not only YAMLError: an impossible date, a number without digits, `!!bool x`.
        raise ConfigError(file, "YAML syntax", " ".join(str(error).split()), "valid YAML") from error


def flow_text(value: Any, width: float = math.inf) -> str:
    """A value as YAML on one line, or on lines of at most ``width`` characters that may be indented at will.

    ``value``: plain (numbers, texts, lists, mappings), None for null; ``width``: characters.
    """
    text: str = yaml.dump(
        value, Dumper=_Dumper, default_flow_style=True, width=width, sort_keys=False, allow_unicode=True
    )
    return text.strip().removesuffix("...").strip()


def merge(data: Mapping[str, Any], overrides: Mapping[str, Any]) -> dict[str, Any]:
    """Data with overrides laid over it: mappings merge, everything else replaces; ``"a.b"`` is short for nesting."""
    result = dict(data)
    for key, value in overrides.items():
        head, _, rest = str(key).partition(".")
        if rest:
            value = {rest: value}
        old = result.get(head)
        if isinstance(value, Mapping):
            result[head] = merge(old if isinstance(old, Mapping) else {}, value)
        else:
            result[head] = value
    return result


_EXPECTED = {
    "missing": "a value (required)",
    "float_type": "a number",
    "int_type": "a whole number",
    "bool_type": "true or false",
    "string_type": "a text",
    "string_too_short": "a non-empty text",
    "finite_number": "a finite number",
    "dict_type": "a mapping of keys to values",
    "model_type": "a mapping of keys to values",
    "model_attributes_type": "a mapping of keys to values",
    "tuple_type": "a list",
    "list_type": "a list",
}
_COMPARISONS = {"greater_than": ">", "greater_than_equal": ">=", "less_than": "<", "less_than_equal": "<="}


def _translate(error: ErrorDetails, model: type[BaseModel]) -> tuple[str, object, str]:
    kind, location, context = error["type"], error["loc"], error.get("ctx", {})
    if location and location[-1] == "[key]":
        location = location[:-1]
    value: object = error["input"]
    if kind == "missing":
        return dotted(location), "missing", _EXPECTED[kind]
    if kind == "extra_forbidden":
        known = _known_keys(model, location[:-1])
        close = difflib.get_close_matches(str(location[-1]), known, 1)
        hint = f"; did you mean {close[0]!r}?" if close else f": {', '.join(known)}" if known else ""
        return dotted(location), value, f"no such key, only known ones{hint}"
    if kind in _COMPARISONS:
        bound = next(iter(context.values()))
        return dotted(location), value, f"a number {_COMPARISONS[kind]} {bound:g}"
    if kind in ("too_short", "too_long"):
        low, high = context.get("min_length"), context.get("max_length")
        length = context.get("actual_length")
        count = f"at least {low}" if high is None and kind == "too_short" else str(high if low is None else low)
        return dotted(location), value, f"a list of {count} entries, not {length}"
    if kind == "literal_error":
        return dotted(location), value, f"one of {context['expected']}"
    if kind == "value":  # our own checks: index of the offending entry, and the expectation
        index = context.get("index")
        if index is not None and isinstance(value, (list, tuple)):
            return dotted((*location, index)), value[index], str(context["expected"])
        return (dotted((*location, *context.get("below", ()))), context.get("value", value), str(context["expected"]))
    return dotted(location), value, _EXPECTED.get(kind, error["msg"].removeprefix("Input should be "))


def _known_keys(model: type[BaseModel], location: tuple[int | str, ...]) -> list[str]:
    for part in location:
        field = model.model_fields.get(str(part))
        nested = None
        if field is not None:
            candidates = (field.annotation, *getattr(field.annotation, "__args__", ()))
            nested = next((c for c in candidates if isinstance(c, type) and issubclass(c, BaseModel)), None)
            if nested is None:
                return []
        elif isinstance(part, (int, str)):
            continue  # a joint's name or a list index: the model is already the one of the entries
        model = nested if nested is not None else model
    return sorted(model.model_fields)


def validate(file: str, data: Mapping[str, Any], model: type[ModelT]) -> ModelT:
    """Check data against a pydantic model.

    Raises:
        ConfigError: the first thing that is wrong, with its dotted key; further ones are counted.
    """
    try:
        return model.model_validate(dict(data))
    except ValidationError as error:
        # A misspelt key is why another one is missing: it comes first.
        problems = sorted(
            error.errors(include_url=False), key=lambda problem: "did you mean" not in _translate(problem, model)[2]
        )
        key, value, expected = _translate(problems[0], model)
        if len(problems) > 1:
            more = ", ".join(dict.fromkeys(_translate(problem, model)[0] for problem in problems[1:]))
            expected += f" (and more to correct: {more})"
        raise ConfigError(file, key, value, expected) from None
