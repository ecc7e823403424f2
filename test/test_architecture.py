"""The house rules of docs/refer/development.md: imports flow one way, the core knows no ROS, all is declared."""

from __future__ import annotations

import ast
import functools
import importlib.util
import os
import re
import runpy
import subprocess
import sys
import xml.etree.ElementTree as ElementTree
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = ROOT / "safe_sysid"

# A room may import the rooms before it and itself, nothing else. A new room gets its place here, on purpose.
ROOMS = (
    "errors",
    "core",  # what every room is built on, without robots: the order of parameters
    "input_limits",
    "resources",
    "whole_files",
    "parent",
    "wire",
    "extensions",  # names of what can be added, and where it is: settings and nodes take the names
    "picture_style",
    "decimals",
    "intervals",
    "schema",  # what may be set, declared once; the robot's settings and the nodes' parameters are made from it
    "robot",
    "dynamics",  # of the arm, behind one protocol; certificates have code of their own
    "trajectories",
    "learning",  # before control: a feed-forward evaluates a residual model; no certificate imports either
    "control",  # before planning: the planner takes the tracking bound from the controller's own synthesis
    "identification",
    "logs",
    "reachability",
    "planning",
    "new_arm",
    "simulation",
    "episode",
    "report",  # what is left for people and programs
    "apps",  # use cases without ROS
    "api",  # the same, for `import safe_sysid`
    "view",  # pictures in a browser, of plain data: the node that feeds it comes after
    "studies",  # what attacks and compares: nothing that an arm needs
    "nodes",
    "bring_up",  # starts nodes and leads them from state to state, for the demo and for launch files
    "demo",
    "commands",
    "cli",
    "__main__",
)
# Rooms that may speak ROS: the nodes, and those that start them and watch them from outside.
ROS_ROOMS = ("nodes", "bring_up", "demo")
# State machines of nodes: used and tested where rclpy is not installed; time comes from outside.
STATE_MACHINES = {
    "controller": ("session", "timing"),
    "planner": ("scheduler", "scheduler_parts", "plan_requests", "timing", "objectives"),
}
# Where a room declares the settings that it reads: leaves that import `schema` and one another alone, so that the
# robot, which comes before these rooms, reads a file with all of them.
SETTINGS = ("control", "identification", "planning", "nodes")
# What may evaluate what was learned, by path: certificates and verdicts rest on none of it.
USE_LEARNING = ("learning/", "control/", "apps/learn/", "report/learning.py", "studies/")
# The only modules that may import torch, an extra; what uses them imports them when it trains.
TORCH = ("learning/neural/training/", "learning/gaussian_process/tensors.py")
#: Places of extras that may be missing, and what they bring.
MISSING = tuple(
    place for place, extra in ((TORCH[0], "torch"), ("simulation/engines/dart.py", "dartpy"))
    if importlib.util.find_spec(extra) is None
)  # fmt: skip
NOT_IMPORTED_BY_OTHERS = ("nodes", "__main__")
ROS_PACKAGES = (
    "action_msgs", "ament_index_python", "builtin_interfaces", "diagnostic_msgs", "geometry_msgs", "launch",
    "launch_ros", "lifecycle_msgs", "rcl_interfaces", "rclpy", "rosgraph_msgs", "rosidl_runtime_py",
    "sensor_msgs", "std_msgs", "std_srvs", "tf2_ros", "trajectory_msgs", "visualization_msgs",
)  # fmt: skip


#: What an installation may bring besides what is always there.
EXTRAS = ("ros", "sim", "view", "cluster", "learn", "dart")
# module: (requirement of setup.py, dependency of package.xml)
DISTRIBUTIONS = {
    "backports": ("rosbags", "python3-rosbags-pip"),
    "coal": ("coal", "coal"),
    "compression": ("rosbags", "python3-rosbags-pip"),
    "lz4": ("rosbags", "python3-rosbags-pip"),
    "markupsafe": ("jinja2", "python3-jinja2"),
    "mujoco": ("mujoco", "python3-mujoco-pip"),
    "pinocchio": ("pin", "pinocchio"),
    "pydantic_core": ("pydantic", "python3-pydantic"),
    "rosbags": ("rosbags", "python3-rosbags-pip"),
    "yaml": ("pyyaml", "python3-yaml"),
    "builtin_interfaces": ("ros-rclpy", "rclpy"),  # these two come with it in every installation
    "rcl_interfaces": ("ros-rclpy", "rclpy"),
}
DISTRIBUTIONS |= {name: (f"ros-{name.replace('_', '-')}", name) for name in (
    "diagnostic_msgs", "geometry_msgs", "lifecycle_msgs", "rclpy", "rosgraph_msgs", "sensor_msgs", "std_msgs",
    "std_srvs", "trajectory_msgs", "visualization_msgs",
)}  # fmt: skip
DISTRIBUTIONS |= {name: (name, f"python3-{name}") for name in (
    "defusedxml", "jinja2", "matplotlib", "numpy", "pydantic", "rich", "scipy",
)}  # fmt: skip
# No rosdep key exists, Ubuntu has too old ones (numba, websockets), or it is an extra (dartpy, distributed, torch).
DISTRIBUTIONS |= {name: (name, None) for name in (
    "clarabel", "cvxpy", "dartpy", "distributed", "highspy", "mpmath", "msgspec", "numba", "osqp", "torch", "trimesh",
    "viser", "websockets",
)}  # fmt: skip


@functools.cache
def modules() -> list[Path]:
    return sorted(path for path in PACKAGE.rglob("*.py") if path != PACKAGE / "__init__.py")


def room_of(path: Path) -> str:
    return path.relative_to(PACKAGE).parts[0].removesuffix(".py")


def dotted(path: Path) -> str:
    return ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")


@functools.cache
def nodes(path: Path) -> list[ast.AST]:
    """Of a module, read once for all tests: imports, attributes, asserts and keyword arguments."""
    kinds = (ast.Import, ast.ImportFrom, ast.Attribute, ast.Assert, ast.keyword)
    return [node for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))) if isinstance(node, kinds)]


def imports(path: Path) -> Iterator[tuple[int, str]]:
    """(line, absolute dotted name) of everything a module imports, at any depth, TYPE_CHECKING included."""
    package = path.relative_to(ROOT).parent.parts
    for node in nodes(path):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield node.lineno, alias.name
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                base = ".".join([*package[: len(package) - node.level + 1], *filter(None, [node.module])])
            # `from safe_sysid import robot` names a room only with its last part.
            for alias in node.names:
                yield node.lineno, f"{base}.{alias.name}"


def violations(path: Path) -> Iterator[str]:
    room = room_of(path)
    for line, name in imports(path):
        where = f"{path.relative_to(ROOT)}:{line}"
        top, _, rest = name.partition(".")
        if top == "safe_sysid":
            other, _, below = rest.partition(".")
            if other == "learning" and not path.relative_to(PACKAGE).as_posix().startswith(USE_LEARNING):
                yield f"{where}: {room} must not import learning: what is proved knows of nothing learned"
                continue
            if other in SETTINGS and below.partition(".")[0] == "settings":
                continue
            if room in SETTINGS and path.name == "settings.py":
                if other not in ("schema", "errors", "extensions"):
                    yield f"{where}: settings must not import {other}, only what declares"
                continue
            if other in ("", "__version__", room):
                continue
            if other not in ROOMS:
                yield f"{where} imports safe_sysid.{other}, which has no place in ROOMS"
            elif other in NOT_IMPORTED_BY_OTHERS or ROOMS.index(other) > ROOMS.index(room):
                yield f"{where}: {room} must not import {other}"
        elif top == "torch" and not path.relative_to(PACKAGE).as_posix().startswith(TORCH):
            yield f"{where}: {room} must not import torch; only {' and '.join(TORCH)} train"
        elif top in ROS_PACKAGES and room not in ROS_ROOMS:
            yield f"{where}: {room} must not import {top}; only {' and '.join(ROS_ROOMS)} speak ROS"


@pytest.fixture
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Path]:
    """Writes a module of another package, of which the rules hold."""
    monkeypatch.setitem(globals(), "ROOT", tmp_path)
    monkeypatch.setitem(globals(), "PACKAGE", tmp_path / "safe_sysid")

    def write(name: str, source: str) -> Path:
        module = PACKAGE / name
        module.parent.mkdir(parents=True)
        module.write_text(source)
        return module

    return write


def test_every_module_has_a_room() -> None:
    unknown = {room_of(path) for path in modules()} - set(ROOMS)
    assert not unknown, f"give {sorted(unknown)} a place in ROOMS of test_architecture.py, and say why in docs"


def test_no_two_classes_share_a_name() -> None:
    """One word, one meaning; an underscore in front does not count."""
    found = [re.findall(r"^class _*(\w+)", path.read_text(encoding="utf-8"), re.MULTILINE) for path in modules()]
    names = [name for each in found for name in each]
    assert sorted({name for name in names if names.count(name) > 1}) == []


def test_every_directory_with_modules_is_a_package() -> None:
    missing = {path.parent for path in modules() if not (path.parent / "__init__.py").exists()}
    assert not missing, f"without __init__.py neither wheels nor colcon install {sorted(map(str, missing))}"


def test_imports_flow_one_way() -> None:
    assert [text for path in modules() for text in violations(path)] == []


@pytest.mark.parametrize(
    ("source", "room", "found"),
    [
        ("import safe_sysid.cli", "robot", "robot must not import cli"),
        ("from safe_sysid.planning.plan import Plan", "control", "control must not import planning"),
        ("def f():\n    from safe_sysid import episode", "planning", "planning must not import episode"),
        ("from ..simulation import plant", "planning", "planning must not import simulation"),
        ("from safe_sysid.nodes.planner.node import main", "cli", "cli must not import nodes"),
        ("import rclpy.node", "episode", "episode must not import rclpy"),
        ("def f():\n    import torch", "learning", "learning must not import torch"),
        ("from sensor_msgs.msg import JointState", "cli", "cli must not import sensor_msgs"),
        ("from safe_sysid.learning import x", "identification", "identification must not import learning"),
        ("from safe_sysid.learning import x", "apps", "apps must not import learning"),
        ("from safe_sysid.attic import x", "cli", "no place in ROOMS"),
        ("from safe_sysid.control.laws import x", "robot", "robot must not import control"),
    ],
)
def test_the_rule_finds_what_it_forbids(elsewhere: Callable[..., Path], source: str, room: str, found: str) -> None:
    assert any(found in text for text in violations(elsewhere(f"{room}/offender.py", source)))


def test_settings_are_leaves(elsewhere: Callable[..., Path]) -> None:
    source = "from safe_sysid.schema import setting\nfrom safe_sysid.robot.model import x\n"
    (text,) = violations(elsewhere("control/settings.py", source))
    assert text.endswith(": settings must not import robot, only what declares")
    assert not [*violations(elsewhere("robot/config.py", "from safe_sysid.control.settings import ControllerSettings"))]


@functools.cache
def sections() -> dict[str, tuple[str, set[str]]]:
    """Each section of a robot's file: the room that declares it, and its keys."""
    from safe_sysid.robot.config import Settings

    types = {name: field.annotation for name, field in Settings.model_fields.items()}
    return {
        name: (section.__module__.split(".")[1], set(section.model_fields))
        for name, section in types.items()
        if getattr(section, "__module__", "").startswith("safe_sysid.")
    }


def upward_reads(path: Path) -> Iterator[str]:
    """Reads of a section that a room declares which comes later: ``settings.planner``, ``s.planner.t_p``."""
    room, declared = room_of(path), sections()
    attributes = [node for node in nodes(path) if isinstance(node, ast.Attribute)]
    keys = {id(node.value): node.attr for node in attributes}
    for node in attributes:
        if node.attr not in declared:
            continue
        owner, its_keys = declared[node.attr]
        of = getattr(node.value, "attr", getattr(node.value, "id", ""))
        is_read = of == "settings" or keys.get(id(node)) in its_keys
        if is_read and ROOMS.index(owner) > ROOMS.index(room):
            yield f"{path.relative_to(ROOT)}:{node.lineno}: {room} must not read {node.attr}, a section of {owner}"


def test_no_room_reads_the_settings_of_a_later_one() -> None:
    """But for the robot, which reads the file, checks its parts against each other and says what it declares."""
    found = [(room_of(path), text) for path in modules() for text in upward_reads(path)]
    assert [text for room, text in found if room != "robot"] == []
    robots = {text.partition(":")[0] for _, text in found}
    assert robots <= {"safe_sysid/robot/config.py", "safe_sysid/robot/model.py"}


@pytest.mark.parametrize(
    ("source", "found"),
    [
        ("x = model.settings.planner.t_p", True),
        ("x = model.settings.planner", True),
        ("s = model.settings\nx = s.planner.t_p", True),
        ("x = model.settings.controller.law", False),
        ("x = model.settings.measurement.rate_hz", False),
        ("x = node.planner", False),
    ],
)
def test_upward_reads_are_found(elsewhere: Callable[..., Path], source: str, found: bool) -> None:
    assert bool(list(upward_reads(elsewhere("control/offender.py", source)))) == found


def test_relative_imports_within_a_room_are_fine(elsewhere: Callable[..., Path]) -> None:
    source = "from .model import x\nfrom . import model\nfrom ..errors import ModelError\n"
    assert list(violations(elsewhere("robot/__init__.py", source))) == []


@functools.cache
def requirements() -> dict[str, Any]:
    """What scripts/requirements.py defines: it reads setup.py."""
    pytest.importorskip("setuptools")
    return runpy.run_path(str(ROOT / "scripts" / "requirements.py"))


def test_every_import_is_a_declared_dependency() -> None:
    for_pip = {requirements()["name_of"](text) for text in requirements()["requirements"](EXTRAS)}
    for_ros = {element.text for element in ElementTree.parse(ROOT / "package.xml").getroot()}
    missing = []
    for path in modules():
        for line, name in imports(path):
            module = name.partition(".")[0]
            if module in sys.stdlib_module_names or module == "safe_sysid":
                continue
            pip_name, ros_name = DISTRIBUTIONS.get(module, (f"(unknown module {module})", None))
            if pip_name not in for_pip:
                missing.append(f"{path}:{line}: setup.py does not require {pip_name}")
            if ros_name is not None and ros_name not in for_ros:
                missing.append(f"{path}:{line}: package.xml has no exec_depend {ros_name}")
    assert missing == []


def test_what_rosdep_cannot_deliver_is_in_a_file_for_pip() -> None:
    lines = (ROOT / "scripts" / "requirements.txt").read_text().splitlines()
    listed = {line for line in lines if line and not line.startswith("#")}
    from_ros = {requirements()["normal"](name) for name, key in DISTRIBUTIONS.values() if key} - {"pydantic"}
    needed = requirements()["requirements"](["view"])
    assert listed == {text for text in needed if requirements()["name_of"](text) not in from_ros}


def lines(kind: type[ast.AST], forbidden: Callable[[Any], bool]) -> list[str]:
    """Where nodes of a kind are that are forbidden."""
    found = [(path, node) for path in modules() for node in nodes(path) if isinstance(node, kind) and forbidden(node)]
    return [f"{path.relative_to(ROOT)}:{node.lineno}" for path, node in found]


def test_no_input_is_checked_with_assert() -> None:
    """`python -O` removes asserts: a guarantee must not depend on one."""
    assert lines(ast.Assert, lambda node: True) == []


def test_numba_never_relaxes_arithmetic() -> None:
    """`fastmath` may reorder sums, which voids outward rounding."""
    assert (
        lines(ast.keyword, lambda node: node.arg == "fastmath" and getattr(node.value, "value", 0) is not False) == []
    )


def test_core_imports_where_ros_is_not_installed() -> None:
    names = [
        dotted(path)
        for path in modules()
        if room_of(path) not in (*ROS_ROOMS, "__main__")
        and not path.relative_to(PACKAGE).as_posix().startswith(MISSING)
    ]
    names += [f"safe_sysid.nodes.{node}.{name}" for node, found in STATE_MACHINES.items() for name in found]
    program = f"""
import sys
class Hidden:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {ROS_PACKAGES!r}:
            raise ModuleNotFoundError(f"No module named {{name!r}} (hidden by the test)", name=name)
sys.meta_path.insert(0, Hidden())
import importlib
for name in {names!r}:
    importlib.import_module(name)
leaked = sorted(set(name.partition(".")[0] for name in sys.modules) & set({ROS_PACKAGES!r}))
assert not leaked, leaked
"""
    result = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, cwd=ROOT, env=dict(os.environ), timeout=240
    )
    assert result.returncode == 0, result.stderr


def reached(*names: str) -> set[str]:
    """Modules that these import, and those import, as far as it goes."""
    files = {dotted(path): path for path in modules()}
    found, waiting = set(), list(names)
    while waiting:
        name = waiting.pop()
        if name not in found:
            found.add(name)
            named = {part for _, whole in imports(files[name]) for part in (whole, whole.rpartition(".")[0])}
            waiting += named & set(files)
    return found


def test_the_campaigns_simulator_shares_no_dynamics_code() -> None:
    """What moves the campaign's arms is Pinocchio's; of ours it reaches names, files, settings and conversions."""
    campaign = "safe_sysid.studies.campaign"
    simulator = reached(*(f"{campaign}.cases.{name}" for name in ("plant", "simulation", "rotor_bodies")))
    rooms = (
        "dynamics", "trajectories", "identification", "reachability", "planning", "control", "simulation", "learning",
    )  # fmt: skip
    ours = {x for x in simulator if x.split(".")[1] in rooms and not x.endswith(".settings") and x.count(".") > 1}
    assert ours == set()
    assert "safe_sysid.dynamics" in reached("safe_sysid.identification.arm.bounds.intervals")


def test_state_machines_of_nodes_have_no_clock() -> None:
    for node, names in STATE_MACHINES.items():
        for name in names:
            text = (PACKAGE / "nodes" / node / f"{name}.py").read_text(encoding="utf-8")
            assert not re.search(r"^(import|from) time\b", text, re.MULTILINE), f"{node}/{name}"


def test_what_guarantees_name_is_in_the_whole_suite() -> None:
    """A file of tests that ``guarantees.md`` calls on is not one of those of what nothing proved rests on."""
    named = set(re.findall(r"\btest_\w+\.py", (ROOT / "docs/understand/guarantees.md").read_text(encoding="utf-8")))
    assert len(named) > 10
    for name in sorted(named):
        assert "mark.unproved" not in (ROOT / "test" / name).read_text(encoding="utf-8"), name
