"""The schema: declared once, for ROS and for the robot's file, and nothing beside it."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from safe_sysid.errors import ConfigError
from safe_sysid.extensions import LAWS
from safe_sysid.identification.settings import METHODS
from safe_sysid.nodes.settings import KINDS, parameters_of
from safe_sysid.resources import resource_path
from safe_sysid.robot.config import KEYS, Settings
from safe_sysid.robot.effective import flat_settings
from safe_sysid.robot.files.yaml_file import merge, read_yaml, validate
from safe_sysid.schema import Keys, Parameter, Range, Section, entries, parameters, setting
from safe_sysid.schema.fields import PerJointNumbers
from safe_sysid.schema.json_schema import json_schema
from safe_sysid.schema.reference import reference
from safe_sysid.simulation import ACTUATOR_MODES, DRAW_MODES, NOISE_MODES

#: A section that files may leave out, whole: its keys can be looked at one by one.
TUBE = {
    "position": 0.01, "velocity": 0.1, "acceleration": 1.0, "inner_position": 0.005, "inner_velocity": 0.05,
    "largest_velocity": 1.0, "largest_acceleration": 2.0, "largest_jerk": 10.0, "heaviest": 9.0, "latency_s": 0.01,
    "origin": "a test",
}  # fmt: skip
DATA = merge(read_yaml(resource_path("config/kinova_gen3.yaml")), {"controller.tube": TUBE})
GROUPS = tuple(dict.fromkeys(group for groups in KINDS.values() for group in groups))
NODE_PARAMETERS = {f"{kind}: {p.path}": p for kind in KINDS for p in parameters_of(kind)}
NUMBERS = [p for p in KEYS.values() if p.range is not None]


@pytest.mark.parametrize(
    "key", [p for p in KEYS.values() if not p.required and p.type != "section"], ids=lambda key: key.path
)
def test_defaults_are_allowed(key: Parameter) -> None:
    """Pydantic takes defaults as they are: here each is judged as if a file gave it."""
    path = key.path.replace("<joint>", "joint_4")
    value = dict(flat_settings(_settings({path: key.default})))[path]
    expected = tuple(key.default) if isinstance(key.default, list) else key.default
    assert (value, type(value)) == (expected, type(expected))


@pytest.mark.parametrize("key", [key for key in KEYS.values() if key.type != "section"], ids=lambda key: key.path)
def test_null_is_allowed_where_it_means_something(key: Parameter) -> None:
    if "<link>" in key.path or key.path == "locked.<joint>":
        return
    with nullcontext() if key.nullable else pytest.raises(ConfigError):
        _settings({key.path.replace("<joint>", "joint_4"): None})


def test_choices_are_those_of_the_code() -> None:
    node = {p.path: p for kind in KINDS for p in parameters_of(kind)}
    assert node["noise"].choices == tuple(NOISE_MODES)
    assert node["actuator"].choices == tuple(ACTUATOR_MODES)
    assert node["arm"].choices == (*DRAW_MODES, "random")
    assert node["controller.law"].choices == KEYS["controller.law"].choices == tuple(LAWS)
    assert node["method"].choices == KEYS["identification.method"].choices == tuple(METHODS)


# -- JSON schema -------------------------------------------------------------------------------------------------


def _judged(value: object, schema: Any) -> bool:
    """Whether a value is what a JSON schema says; of its words those that ours uses, an unknown one fails."""
    kinds = {"object": dict, "array": list, "string": str, "boolean": bool, "null": type(None)}
    tests: dict[str, Callable[[Any], bool]] = {
        "type": lambda kind: (
            isinstance(value, int if kind == "integer" else (int, float)) and not isinstance(value, bool)
            if kind in ("number", "integer")
            else isinstance(value, kinds[kind])
        ),
        "anyOf": lambda options: any(_judged(value, option) for option in options),
        "const": lambda only: value == only,
        "enum": lambda words: value in words,
        "minLength": lambda least: len(value) >= least,
        "minItems": lambda least: len(value) >= least,
        "maxItems": lambda most: len(value) <= most,
        "items": lambda of: all(_judged(entry, of) for entry in value),
        "minimum": lambda end: value >= end,
        "maximum": lambda end: value <= end,
        "exclusiveMinimum": lambda end: value > end,
        "exclusiveMaximum": lambda end: value < end,
        "required": lambda names: set(names) <= set(value),
        "properties": lambda known: all(_judged(value[name], known[name]) for name in known if name in value),
        "additionalProperties": lambda of: (
            all(of is not False and _judged(value[name], of) for name in value if name not in schema["properties"])
            if "properties" in schema
            else all(_judged(entry, of) for entry in value.values())
        ),
    }
    words = [word for word in schema if word not in ("$schema", "description", "default")]
    return all(tests[word](schema[word]) for word in words)


EDITORS = json_schema(KEYS, filled_in=("name",))


@pytest.mark.parametrize("file", sorted(resource_path("config").glob("*.yaml")), ids=lambda path: path.name)
def test_editors_find_nothing_wrong_with_packaged_robots(file: Path) -> None:
    assert _judged(read_yaml(file), json.loads(json.dumps(EDITORS)))


@pytest.mark.parametrize(
    "wrong",
    [
        {"timming.period_s": 1.0}, {"timing.period": 1.0}, {"joints.joint_4.speed": 1.0}, {"controller.law": "best"},
        {"planner.intervals": 128.5}, {"planner.plans": True}, {"gravity": [0.0, 0.0]}, {"tool_frame": ""},
        {"joints.joint_4.viscous": None}, {"joints.joint_4.position": "endless"}, {"payload.box": {"center": [0]}},
        {"geometry": {"link": [{"points": [], "radius": 0.1}]}}, {"allowed_pairs": [["a", "b", "c"]]}, {"home": 0.0},
        {"locked": {"finger": "open"}}, {"payload.hand_joints": {"finger": [0.0]}}, {"measurement": None},
    ],
    ids=str,
)  # fmt: skip
def test_editors_mark_what_the_reader_refuses(wrong: dict[str, object]) -> None:
    assert not _judged(merge(DATA, wrong), EDITORS)
    with pytest.raises(ConfigError):
        _settings(wrong)


def test_editors_mark_what_is_missing_and_know_what_may_be() -> None:
    for key in EDITORS["required"]:
        assert not _judged({name: value for name, value in DATA.items() if name != key}, EDITORS), key
    assert "name" not in EDITORS["required"]
    for allowed in ({"mounting": None}, {"base_link": None}, {"payload.box": "envelope"}, {"locked": {}}):
        assert _judged(merge(DATA, allowed), EDITORS), allowed
        _settings(allowed)


# -- ranges ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("key", NUMBERS, ids=lambda key: key.path)
def test_a_number_outside_its_range_is_marked_by_editors_and_refused_by_name(key: Parameter) -> None:
    path, count = key.path.replace("<joint>", "joint_4"), {"vector3": 3, "vector10": 10}.get(key.type)
    assert key.range is not None
    inside = _inside(key.range)
    good: Any = round(inside) if key.type == "int" else [inside] * count if count else inside
    assert _judged(merge(DATA, {path: good}), EDITORS)
    for number in _outside(key.range, key.type == "int"):
        wrong: dict[str, Any] = {path: number}
        if count:
            wrong = {f"{path}[2]": [*good[:2], number, *good[3:]]}
        elif key.type == "per_joint":
            wrong |= {f"{path}[6]": [*[inside] * 6, number]}
        for named, value in wrong.items():
            assert not _judged(merge(DATA, {path: value}), EDITORS)
            with pytest.raises(ConfigError) as caught:
                _settings({path: value})
            assert (caught.value.key, caught.value.value) == (named, number)
            assert key.range.words in caught.value.expected


def _settings(overrides: dict[str, object]) -> Settings:
    return validate("a file", merge(DATA, overrides), Settings)


def _outside(interval: Range, whole: bool) -> list[float]:
    values: list[float] = []
    ends = (interval.lower, interval.with_lower, -math.inf), (interval.upper, interval.with_upper, math.inf)
    for end, closed, away in ends:
        if math.isfinite(end):
            beyond = int(math.copysign(1, away)) + int(end) if whole else math.nextafter(end, away)
            values.append(beyond if closed else int(end) if whole else end)
    assert values, "a range that excludes nothing"
    return values


def _inside(interval: Range) -> float:
    upper = interval.upper if math.isfinite(interval.upper) else interval.lower + 2.0
    return 0.5 * (interval.lower + upper)


ENDS = st.floats(-1e6, 1e6) | st.sampled_from([-math.inf, math.inf, 0.0])


@given(ENDS, ENDS, st.booleans(), st.booleans(), st.floats(allow_nan=False))
def test_range_is_what_it_says(lower: float, upper: float, left: bool, right: bool, x: float) -> None:
    text = f"{'[' if left else '('}{lower!r}, {upper!r}{']' if right else ')'}"
    if not lower < upper:
        with pytest.raises(ValueError, match=re.escape(text)):
            Range.parse(text)
        return
    interval = Range.parse(text)
    assert (x in interval) == ((lower <= x if left else lower < x) and (x <= upper if right else x < upper))
    assert math.nan not in interval
    assert (lower in interval, upper in interval) == (left, right)


# -- node parameters ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", NODE_PARAMETERS)
def test_defaults_are_allowed_and_other_types_are_not(name: str) -> None:
    parameter = NODE_PARAMETERS[name]
    assert parameter.why_not(parameter.default) == ""
    right = type(parameter.default)
    for value in (None, True, 3, 0.5, "text", [1.0], ["a"], {}, b"", math.inf, -math.inf, 10**400):
        if type(value) is not right:
            assert parameter.why_not(value), value
    for value in (10**400, [10**400], -(10**400)):
        if parameter.type != "text" or parameter.choices:
            assert parameter.why_not(parameter.convert(value)), "too large for any of them"
    if right in (float, int):
        assert parameter.why_not(right(0) - 10**9) or parameter.range is None


def test_every_parameter_is_read_by_some_node() -> None:
    nodes = Path(__file__).parent.parent / "safe_sysid" / "nodes"
    source = "".join(path.read_text("utf-8") for path in sorted(nodes.rglob("*.py")) if path.name != "settings.py")
    source += "".join(f'"realtime.{name}"' for name in re.findall(r'"(priority|nice|cpus)"', source))
    assert [name for name, p in NODE_PARAMETERS.items() if f'"{p.path}"' not in source] == []


@pytest.mark.parametrize("name", NODE_PARAMETERS)
def test_conversion_loses_nothing(name: str) -> None:
    parameter = NODE_PARAMETERS[name]
    for value in (True, 3, 0.5, "text", [1, 2.0], ["a"], None):
        converted = parameter.convert(value)
        assert converted == value or (parameter.type == "text" and converted == str(value))
        assert isinstance(converted, bool) == isinstance(value, bool)


# -- the file itself ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
def test_no_kind_of_node_has_a_parameter_twice(kind: str) -> None:
    paths = [parameter.path for parameter in parameters_of(kind)]
    assert len(paths) == len(set(paths))


def test_sections_are_declared_by_their_classes() -> None:
    class Inner(Section):
        """How a thing is held, in
        two lines.
        """  # noqa: D205

        grip: PerJointNumbers | None = setting("of each finger", "rad or m", "(0, 1]", default=None)

    class Outer(Section):
        hands: dict[str, Inner] = entries("all hands", of="hand")
        weights: dict[str, float] = entries("of things", of="thing", each=setting("how heavy", "kg", "[0, inf)"))

    keys = Keys.of(Outer)
    assert [(key.path, key.type, key.description) for key in keys.values()] == [
        ("hands", "section", "all hands"),
        ("hands.<hand>", "section", "how a thing is held, in two lines"),
        ("hands.<hand>.grip", "per_joint", "of each finger"),
        ("weights", "section", "of things"),
        ("weights.<thing>", "float", "how heavy"),
    ]
    grip = keys.find("hands.left.grip")
    assert grip is keys["hands.<hand>.grip"]
    assert (grip.unit, str(grip.range), grip.default) == ("rad or m", "(0, 1]", None)
    with pytest.raises(ConfigError, match=r"hands\.left\.grip\[1\].* = 2\.0.*> 0 and <= 1"):
        validate("a file", {"hands": {"left": {"grip": [0.5, 2.0]}}, "weights": {}}, Outer)


def test_nothing_that_a_proof_rests_on_changes_while_a_node_works() -> None:
    """Another live parameter must be thought over: does a certificate, a bound or the tracking theorem know of it?"""
    live = {parameter.path for parameter in NODE_PARAMETERS.values() if parameter.when == "live"}
    # The first three report; and however many plans there are, each is certified.
    assert live == {"diagnostics_period_s", "reference_every", "markers", "plans", "payload_to_attach"}
    assert {parameter.when for parameter in KEYS.values()} == {"configure"}


def test_names_with_dots_are_names() -> None:
    assert KEYS.find("joints.arm.elbow.velocity").path == "joints.<joint>.velocity"


def test_every_entry_has_a_line_of_its_own() -> None:
    """Descriptions go into descriptors and tables: one line, no full stop."""
    for declared in (*map(parameters, GROUPS), KEYS.values()):
        for parameter in declared:
            assert "\n" not in parameter.description
            assert not parameter.description.endswith(".")
            assert len(parameter.description) < 200


def test_reference_page_is_up_to_date() -> None:
    page = Path(__file__).parent.parent / "docs" / "refer" / "parameters.md"
    make = "run: safe-sysid config reference --out docs/refer/parameters.md"
    assert page.read_text(encoding="utf-8") == reference(GROUPS, KEYS), make


def test_reference_page_has_every_parameter() -> None:
    rows = [line for line in reference(GROUPS, KEYS).splitlines() if line.startswith("| `")]
    assert {row.split("`")[1] for row in rows} == {p.path for p in NODE_PARAMETERS.values()} | {
        p.path for p in KEYS.values() if p.type != "section" or "." in p.path
    }
    assert len({row.replace("\\|", "").count("|") for row in rows}) == 2, "two kinds of tables, no broken row"
