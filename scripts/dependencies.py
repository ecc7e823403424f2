"""Writes docs/refer/dependencies.md: every library, its versions, its licence and what it is for.

    .venv/bin/python scripts/dependencies.py

From setup.py (what is asked for), scripts/constraints.txt (what was tested), scripts/versions_tried.json (what
scripts/versions.py has tried) and what installed packages say of themselves. A package that is not installed here, or
is in another version, keeps what the page says of it, so the page can be renewed, and checked by a test, on all.
"""

from __future__ import annotations

import importlib.metadata
import json
import re
import sys
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path

from packaging.requirements import Requirement

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT / "scripts")]

from licences import WEAK, licence_of  # noqa: E402
from requirements import name_of, normal, requirements, setup_arguments  # noqa: E402

PAGE = ROOT / "docs" / "refer" / "dependencies.md"
PYTHONS = ("3.11", "3.12")
#: Extras in the order of the page, and when they are installed. "" is what `pip install .` brings.
GROUPS = {
    "": "always",
    "sim": "the simulated arm: `./safe-sysid`, `pip install '.[sim]'`",
    "dart": "the simulated arm in Gazebo's engine: `--engine dart`; in the environment of the tests",
    "view": "`safe-sysid view`",
    "ros": "ROS 2 Jazzy as wheels, where no ROS 2 is installed",
    "cluster": "`safe-sysid campaign --scheduler`",
    "learn": "`safe-sysid learn hybrid`; not in the environment of the tests ([hybrid models](../use/learn_hybrid.md))",
    "docs": "`./safe-sysid docs`",
    "dev": "`./safe-sysid test`",
}
RUNNING = ("", "sim", "view", "ros", "cluster")
USES = {
    "clarabel": "semidefinite programs of physical consistency",
    "coal": "distances and separating directions; the certificate checks them",
    "colcon-package-information": "the package as colcon sees it",
    "colcon-ros": "the package as colcon builds it",
    "cvxpy": "semidefinite programs of an arm's own parameters",
    "dartpy": "DART, Gazebo's engine, under the simulated arm",
    "defusedxml": "XML without entities and bombs",
    "distributed": "campaigns on a cluster",
    "example-robot-data": "URDFs of other arms",
    "furo": "looks of the docs site",
    "highspy": "linear programs: the bounds, made safe by our own arithmetic",
    "hypothesis": "examples that look for the counter-example",
    "jinja2": "reports",
    "matplotlib": "pictures of runs",
    "mcap-ros2-support": "a second reader of our bags",
    "mpmath": "rounding checked in many digits",
    "msgspec": "the view's messages, read before viser reads them",
    "mujoco": "the simulated arm",
    "myst-parser": "docs in Markdown",
    "numba": "compiled kernels of the 1 kHz loop and of the enclosures",
    "numpy": "arrays",
    "osqp": "quadratic programs of the planner",
    "pin": "Pinocchio: kinematics and dynamics",
    "playwright": "drives Chromium in tests of view, report and docs",
    "pycollada": "trimesh's reader of COLLADA, beside ours",
    "pydantic": "settings, checked",
    "pyrefly": "types",
    "pytest": "tests",
    "pytest-timeout": "no test hangs",
    "pytest-xdist": "tests on all cores",
    "pyyaml": "settings, read",
    "rich": "the terminal",
    "ros-diagnostic-msgs": "messages",
    "ros-geometry-msgs": "messages",
    "ros-lifecycle-msgs": "messages",
    "ros-rclpy": "nodes",
    "ros-rosgraph-msgs": "messages",
    "ros-sensor-msgs": "messages",
    "ros-std-msgs": "messages",
    "ros-std-srvs": "messages",
    "ros-trajectory-msgs": "messages",
    "ros-visualization-msgs": "messages",
    "rosbags": "recordings, without ROS",
    "ruff": "format and lint",
    "scipy": "least squares, sparse matrices, special functions",
    "setuptools": "builds the package",
    "sphinx": "docs site",
    "sphinx-copybutton": "a button that copies commands",
    "torch": "training of hybrid models",
    "trimesh": "simple shapes in the view; its readers beside ours",
    "uv": "./safe-sysid installs by it; environments of `scripts/versions.py`",
    "viser": "the live view in 3D",
    "websockets": "the view's server, with our checks before it",
    "wheel": "builds the package",
    "xacro": "robots written with xacro, in tests",
}


def pinned() -> dict[str, str]:
    """Version of every package in scripts/constraints.txt."""
    lines = (ROOT / "scripts" / "constraints.txt").read_text(encoding="utf-8").splitlines()
    pairs = (line.split("==") for line in lines if line and not line.startswith("#"))
    return {normal(name): version for name, version in pairs}


def installed() -> dict[str, importlib.metadata.Distribution]:
    """Packages of this environment that are as they were tested: others may say other things of themselves."""
    pins = pinned()
    pairs = ((normal(found.metadata["Name"]), found) for found in importlib.metadata.distributions())
    # setuptools brings copies of its own, in other versions.
    return {name: found for name, found in pairs if found.version == pins.get(name, found.version)}


def applies(requirement: Requirement, extras: Iterable[str]) -> bool:
    """True if a requirement counts on Linux with one of our Pythons, for one of these extras."""
    if requirement.marker is None:
        return True
    here = {"sys_platform": "linux", "platform_system": "Linux", "platform_machine": "x86_64", "os_name": "posix"}
    return any(
        requirement.marker.evaluate(
            {**here, "python_version": python, "python_full_version": f"{python}.9", "extra": extra}
        )
        for python in PYTHONS
        for extra in ("", *extras)
    )


def reached(wanted: Iterable[str], there: dict[str, importlib.metadata.Distribution]) -> set[str]:
    """Names of all packages that requirements bring along, as far as they are installed; and their own."""
    names: set[str] = set()
    done: set[tuple[str, frozenset[str]]] = set()
    queue = [Requirement(text) for text in wanted]
    while queue:
        requirement = queue.pop()
        name = normal(requirement.name)
        names.add(name)
        if name not in there or (name, key := frozenset(requirement.extras)) in done:
            continue
        done.add((name, key))
        found = (Requirement(text) for text in there[name].requires or ())
        queue += [one for one in found if applies(one, key)]
    return names


def told(page: str) -> tuple[dict[str, str], dict[str, bool]]:
    """Of the present page: licence of each package; whether a package brought along is for running."""
    licences: dict[str, str] = {}
    running: dict[str, bool] = {}
    for row in re.findall(r"^\| `([^`]+)` \|.*\| ([^|]+) \|$", page, re.M):
        licences[row[0]] = row[1]
    section = ""
    for line in page.splitlines():
        if line.startswith("#"):
            section = line
        elif match := re.fullmatch(r"\| ([^|`]+) \| (`[^|]+) \|", line):
            for name in re.findall(r"`([^`]+)`", match[2]):
                licences[name] = match[1]
                running[name] = "running" in section
    return licences, running


def direct_rows(extra: str, pins: dict[str, str], licences: dict[str, str], newest: dict[str, str]) -> list[str]:
    """The table of one extra."""
    wanted = requirements_of(extra)
    elsewhere = {name_of(text) for group in GROUPS if group not in ("dev", extra) for text in requirements_of(group)}
    rows = ["| package | for | asked for | tested | newest tried | licence |", "|---|---|---|---|---|---|"]
    for text in sorted(wanted, key=str.casefold):
        name = name_of(text)
        if extra == "dev" and name in elsewhere:
            continue
        asked = str(Requirement(text).specifier) or "any"
        asked = ",".join(sorted(asked.split(","), key=lambda part: part.startswith("<")))
        cells = (USES[name], f"`{asked}`", pins.get(name, "with Python"), newest.get(name, ""), licences[name])
        rows.append(f"| `{name}` | " + " | ".join(cells) + " |")
    return rows


def requirements_of(extra: str) -> list[str]:
    """What one extra adds, or `""`: what is always needed."""
    arguments = setup_arguments()
    return list(arguments["extras_require"][extra] if extra else arguments["install_requires"])


def tried_rows(tried: dict[str, dict[str, object]]) -> list[str]:
    """The table of what scripts/versions.py has tried."""
    if not tried:
        return ["No run is noted yet."]
    rows = ["| versions | Python | tests | demo | on |", "|---|---|---|---|---|"]
    for key in sorted(tried):
        which, python = key.split()
        one = tried[key]
        demo = "ends well" if one["demo"] == 0 else f"exit status {one['demo']}"
        rows.append(f"| {which} | {python} | {one['tests']} | {demo} | {one['date']} |")
    return rows


def page(before: str) -> str:
    """The whole page.

    Args:
        before: the present page, for packages that are not installed here.

    Raises:
        LicenceError: a package whose licence cannot be told, or does not fit.
    """
    there, pins = installed(), pinned()
    licences, running = told(before)
    direct = {name_of(text) for extra in GROUPS for text in requirements_of(extra)}
    licences.update({name: licence_of(there[name]) for name in sorted({*pins, *direct}) if name in there})
    for_running = reached(requirements(RUNNING[1:]), there)
    tried = json.loads((ROOT / "scripts" / "versions_tried.json").read_text(encoding="utf-8"))
    newest = next((tried[key]["versions"] for key in sorted(tried, reverse=True) if "newest" in key), {})
    lowest = next((tried[key]["versions"] for key in sorted(tried) if "lowest" in key), {})
    lines = [HEAD]
    for extra, when in GROUPS.items():
        lines += [f"### {extra or 'core'}", "", when[0].upper() + when[1:] + ".", ""]
        lines += [*direct_rows(extra, pins, licences, newest), ""]
    lines += [TRIED, *tried_rows(tried), ""]
    if lowest:
        chosen = (f"{name} {version}" for name, version in lowest.items() if not name.startswith("ros-"))
        lines += ["Lowest versions as they were chosen: " + ", ".join(chosen) + ".", ""]
    lines += [INDIRECT]
    for title, kept in (("running", True), ("building and testing", False)):
        groups = defaultdict(list)
        for name in sorted(set(pins) - direct):
            is_running = name in for_running if name in there else running.get(name, False)
            if is_running == kept:
                groups[licences[name]].append(f"`{name}`")
        lines += [f"### Brought along for {title}", "", "| licence | packages |", "|---|---|"]
        lines += [f"| {licence} | {', '.join(names)} |" for licence, names in sorted(groups.items())] + [""]
    lines += [LICENCES, *(f"| {licence} | {why} |" for licence, why in WEAK.items()), INSIDE]
    return "\n".join(lines) + "\n"


HEAD = """# Dependencies

Written by `scripts/dependencies.py`; a test compares. *Asked for* is what `setup.py` says; *tested* is what
`./safe-sysid` installs (`scripts/constraints.txt`) and all tests run with; *newest tried* is what `scripts/versions.py`
ran with. Of the system: a C library, `libgomp`, `libstdc++`; for tests in a browser Debian's `chromium` (BSD-3-Clause).

## Asked for
"""
TRIED = """## Lowest and newest

`scripts/versions.py` makes an environment with the lowest version of everything needed to run (that has a wheel), or
the newest that the bounds allow, runs at least one file of tests for every library, and a demo of one plan. Tools of
development are not tried so: they are used as tested.

```text
.venv/bin/python scripts/versions.py lowest
.venv/bin/python scripts/versions.py newest --python 3.12
```
"""
INDIRECT = """## Brought along

Versions: `scripts/constraints.txt`.
"""
LICENCES = """## Do the licences fit?

`safe_sysid` is under Apache-2.0 and contains no code of these libraries; they are installed beside it. A test holds the
list of licences that fit: MIT, BSD, Zlib, BSL, PSF and other permissive ones, public domain. These ask for more:

| licence | why it fits |
|---|---|"""
INSIDE = """
This is what the packages say of themselves. Their wheels carry more, each with its notice: numpy and scipy OpenBLAS
(BSD) and GCC's run-time libraries (GPL with the run-time exception), `apsw` SQLite (public domain), `viser` the scripts
of its page (MIT), `playwright` Node.js (MIT). By hand, for `benchmarks/fuzz_*.py`: `atheris`
(Apache-2.0)."""


if __name__ == "__main__":
    PAGE.write_text(page(PAGE.read_text(encoding="utf-8") if PAGE.exists() else ""), encoding="utf-8")
