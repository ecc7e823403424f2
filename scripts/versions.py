"""Tries the package with the lowest or the newest versions of what it needs, in an environment of its own.

    .venv/bin/python scripts/versions.py lowest [--python 3.12] [--keep DIRECTORY] [--no-demo] [--note] [of pytest]

`lowest` takes of every requirement of setup.py the lowest version that has a wheel, `newest` the newest that the
bounds allow; neither looks at scripts/constraints.txt. Then it runs the tests named in TESTS, or those asked for, and
a demo of one plan. `--note` keeps versions and results in scripts/versions_tried.json, for docs/refer/dependencies.md.
"""

from __future__ import annotations

import argparse
import datetime
import importlib.metadata
import importlib.util
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT / "scripts"), str(ROOT / "scripts" / "bootstrap")]

from commands import clean_environment  # noqa: E402
from installation import link_shared  # noqa: E402
from requirements import name_of, requirements  # noqa: E402

TRIED = ROOT / "scripts" / "versions_tried.json"
#: What is tried: all that runs on a user's machine, and the tools of the tests below.
EXTRAS = ("ros", "sim", "view", "cluster", "test")
#: At least one file for every library: who is behind it, and how it is used, shows here first.
TESTS = (
    "test/test_schema.py",  # pydantic, PyYAML
    "test/test_loading.py",  # pin
    "test/test_regressors.py",  # numba, pin
    "test/test_meshes.py",  # coal
    "test/test_intervals.py",  # numpy's rounding, mpmath
    "test/test_identification_bounds.py",  # highspy
    "test/test_arm_estimate.py",  # cvxpy
    "test/test_identification_consistency.py",  # clarabel
    "test/test_sqp.py",  # osqp
    "test/test_quintic.py",
    "test/test_simulation_payloads.py",  # mujoco
    "test/test_logs_rosbag.py",  # rosbags
    "test/test_campaign_runner.py",  # distributed
    "test/test_report_files.py",  # Jinja2, matplotlib
    "test/test_view_guard.py",  # viser, websockets, msgspec
    "test/test_view_parts.py",  # trimesh
    "test/test_nodes_wire.py",  # rclpy and messages
    "test/test_recording_bags.py",  # rosbags as writer
    *("-k", "not test_campaign_runner or dask"),
)


class VersionsError(Exception):
    """A step failed; the text says which."""


def uv() -> str:
    """The program uv, beside this Python or on the path."""
    if importlib.util.find_spec("uv"):
        return str(importlib.import_module("uv").find_uv_bin())
    if found := shutil.which("uv"):
        return found
    raise VersionsError("uv is needed (pip install uv; ./safe-sysid test installs it)")


def run(command: list[str], **options: object) -> subprocess.CompletedProcess[str]:
    """Run a command to its end, standard output and errors shown and kept together."""
    print("$ " + " ".join(command), flush=True)
    environment = dict(options.pop("env", os.environ), UV_PYTHON_DOWNLOADS="never")  # type: ignore[call-overload]
    process = subprocess.Popen(
        command, cwd=ROOT, env=environment, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    )
    lines = []
    for line in process.stdout or ():
        print(line, end="", flush=True)
        lines.append(line)
    return subprocess.CompletedProcess(command, process.wait(), "".join(lines))


def make_environment(venv: Path, which: str, python: str) -> None:
    """An environment with the lowest or newest versions, and this clone in it, editable.

    Args:
        venv: where; nothing may be there yet.
        which: `lowest` or `newest`.
        python: version or path of the Python.

    Raises:
        VersionsError: nothing fits, or the index was not reached.
    """
    wanted = venv / "requirements.in"
    resolution = {"lowest": "lowest-direct", "newest": "highest"}[which]
    install = [uv(), "pip", "install", "--quiet", "--python", str(venv)]
    # A version without wheel for this Python was never meant for it; building it would only cost an hour.
    wheels = [word for text in requirements(EXTRAS) for word in ("--only-binary", name_of(text))]
    steps = (
        [uv(), "venv", "--quiet", "--python", python, str(venv)],
        [*install, *wheels, "--resolution", resolution, "-r", str(wanted)],
        [*install, "setuptools>=68", "wheel"],
        [*install, "--no-deps", "--no-build-isolation", "-e", "."],
    )
    for step in steps:
        if run(step).returncode:
            raise VersionsError(f"{' '.join(step[:3])} failed, see above")
        if not wanted.exists():
            wanted.write_text("\n".join(requirements(EXTRAS)) + "\n", encoding="utf-8")
    link_shared(venv)


def versions_in(venv: Path) -> dict[str, str]:
    """Version of every direct requirement, as it stands in the environment."""
    (site,) = (venv / "lib").glob("python*/site-packages")
    there = {
        name_of(found.metadata["Name"]): found.version for found in importlib.metadata.distributions(path=[str(site)])
    }
    return {name: there[name] for name in sorted({name_of(text) for text in requirements(EXTRAS)})}


def try_out(venv: Path, arguments: list[str], demo: bool = True) -> dict[str, object]:
    """Tests and demo in the environment.

    Args:
        venv: with the package in it.
        arguments: of pytest; TESTS if empty.
        demo: run a demo too.

    Returns:
        `tests`: pytest's last line without its seconds; `failed`: its exit status; `demo`: the demo's exit status, None
        without one; `seconds`: of both.
    """
    environment = clean_environment(venv)
    begin = time.monotonic()
    python = str(venv / "bin" / "python")
    tests = run([python, "-m", "pytest", "-q", *(arguments or TESTS)], env=environment)
    last = tests.stdout.strip().splitlines()[-1:] or [""]
    shown = None
    if demo:
        with tempfile.TemporaryDirectory() as directory:
            command = [str(venv / "bin" / "safe-sysid"), "demo", "--plans", "1", "--out", f"{directory}/run"]
            shown = run(command, env=environment).returncode
    return {
        "tests": re.sub(r" in [\d.]+s.*|=", "", last[0]).strip(),
        "failed": tests.returncode,
        "demo": shown,
        "seconds": round(time.monotonic() - begin),
    }


def main(arguments: list[str] | None = None) -> int:
    """Make the environment, try it, say how it went. Returns the exit status."""
    parser = argparse.ArgumentParser(
        prog="scripts/versions.py", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("which", choices=("lowest", "newest"))
    parser.add_argument("--python", default=sys.executable, help="version or path (default: this one)")
    parser.add_argument("--keep", type=Path, help="make the environment here and leave it")
    parser.add_argument("--no-demo", action="store_true", help="tests only")
    parser.add_argument("--note", action="store_true", help=f"keep the result in {TRIED.relative_to(ROOT)}")
    options, rest = parser.parse_known_args(arguments)
    with tempfile.TemporaryDirectory(prefix="safe_sysid_versions_") as scratch:
        venv = options.keep.resolve() if options.keep else Path(scratch) / options.which
        try:
            make_environment(venv, options.which, options.python)
        except VersionsError as error:
            print(f"versions: {error}", file=sys.stderr)
            return 1
        versions = versions_in(venv)
        result = try_out(venv, rest, not options.no_demo)
        (site,) = (venv / "lib").glob("python*")
    python = site.name.removeprefix("python")
    print(
        f"{options.which} on Python {python}:", *(f"  {name} {version}" for name, version in versions.items()), sep="\n"
    )
    print(json.dumps(result))
    if options.note:
        tried = json.loads(TRIED.read_text(encoding="utf-8")) if TRIED.exists() else {}
        date = datetime.date.today().isoformat()
        tried[f"{options.which} {python}"] = {"date": date, **result, "versions": versions}
        TRIED.write_text(json.dumps(tried, indent=1, sort_keys=True) + "\n", encoding="utf-8")
    return 1 if result["failed"] or result["demo"] else 0


if __name__ == "__main__":
    sys.exit(main())
