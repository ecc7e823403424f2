"""The reference page of all parameters (docs/refer/parameters.md), made from the declarations."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence

from safe_sysid.schema.parameter import TYPES, Parameter
from safe_sysid.schema.section import Keys, Section, parameters

__all__ = ["reference"]

_HEAD = """# Parameters

<!-- Made by `safe-sysid config reference --out docs/refer/parameters.md`. -->

Everything that can be set, in two places: the **robot's YAML file** says what the arm is and what is declared about
it (all proofs rest on that); **ROS parameters** say how the nodes work. `safe-sysid config show FILE` prints the
values that a file comes to, `safe-sysid config check FILE` judges a robot's file, a scene, or a file of node
parameters. Editors complete and check a robot's file by `safe-sysid config schema --out robot.schema.json`: with the
first line `# yaml-language-server: $schema=robot.schema.json`.

Keys of the robot's file are ROS parameters too: `robot_settings.measurement.torque_abs` is the key `torque_abs` of
section `measurement`. Given at the start of a node (`-p robot_settings.measurement.torque_abs:=0.2`, a parameter
file, a launch file) it replaces the file's value; all nodes of one arm need the same. From configure to cleanup every
node shows the values in force there, read-only. What has no ROS type is JSON text (`"[]"`), and no value is the text
`null`.

```sh
ros2 param describe /controller robot_settings.controller.kappa
ros2 param set /planner plans 6
```

A file of node parameters is an ordinary one; what comes later in it counts more, even where it is for all nodes:

```yaml
/**:
  ros__parameters:
    robot: ur5e
    robot_settings: {measurement: {torque_abs: 0.2}}
planner:
  ros__parameters: {plans: 6}
```

"""
_WHEN = """**Changes**: *live*, at any time (`ros2 param set`); *configure*, while the node is unconfigured (nodes
without a lifecycle, `plant` and `recorder`, take it at their start); *start*, read-only: given at the start of the
process. Keys of the robot's file are *configure*, too: another file at the next configuration, or a restart with
`robot_settings`.

"""
_KEYS = """A number *per joint* is one for all joints, or a list with one for each, base to tip. Where there is no
default the key is required. Sliding joints have m and N where turning ones have rad and N m.
"""


def reference(groups: Iterable[type[Section]], keys: Keys) -> str:
    """The page, as Markdown. ``keys``: of a robot's file."""
    lines = [_HEAD + _WHEN + "## Node parameters\n"]
    for group in groups:
        lines.append(f"### {str(group.__doc__).removesuffix('.')}\n")
        lines.extend(_table((p for p in parameters(group) if p.type != "section"), with_when=True))
        lines.append("")
    lines.append("## Keys of a robot's file\n")
    lines.append(_KEYS)
    for title, description, below in _sections(tuple(keys.values())):
        lines.append(f"### {title}\n")
        if description:
            lines.append(f"{description}\n")
        if below:
            lines.extend(_table(below, with_when=False))
            lines.append("")
    return "\n".join(lines).rstrip() + "\n"


def _sections(keys: Sequence[Parameter]) -> Iterator[tuple[str, str, list[Parameter]]]:
    """Top-level sections, each with all that is below it; single keys first."""
    tops = [key for key in keys if "." not in key.path]
    yield "Top level", "", [key for key in tops if key.type != "section"]
    for top in tops:
        if top.type == "section":
            below = [key for key in keys if key.path.startswith(f"{top.path}.")]
            yield f"`{top.path}`", top.sentence, below


def _table(declared: Iterable[Parameter], with_when: bool) -> Iterator[str]:
    yield f"| name | type | unit | default | allowed |{' changes |' if with_when else ''} meaning |"
    yield f"|---|---|---|---|---|{'---|' if with_when else ''}---|"
    for parameter in declared:
        cells = [f"`{parameter.path}`", _type(parameter), parameter.unit, _default(parameter), _allowed(parameter)]
        cells += [parameter.when] if with_when else []
        cells.append(parameter.description)
        yield f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |"


def _type(parameter: Parameter) -> str:
    if parameter.type == "section":
        return "section"
    return {"per_joint": "per joint", "pose": "numbers", "floats": "numbers"}.get(parameter.type, parameter.type)


def _default(parameter: Parameter) -> str:
    if parameter.required or parameter.type == "section":
        return ""
    default = parameter.default
    text = default if isinstance(default, str) and default else json.dumps(default)
    text = "nan" if text == "NaN" else text
    return f"`{text}`: {parameter.unset}" if parameter.unset else f"`{text}`"


def _allowed(parameter: Parameter) -> str:
    if parameter.choices:
        return ", ".join(f"`{choice}`" for choice in parameter.choices)
    if parameter.range is not None:
        return parameter.range.words
    return "" if parameter.type in ("bool", "int", "float", "text", "section") else TYPES[parameter.type]
