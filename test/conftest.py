"""What holds for every test: a ROS 2 network of its own, no files at home, the same examples each time."""

from __future__ import annotations

import contextlib
import gc
import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import hypothesis
import pytest

# Under nohup it is ignored, and so it would be by the nodes that tests start and hang up on.
signal.signal(signal.SIGHUP, signal.SIG_DFL)

ROOT = Path(__file__).resolve().parent.parent
CI = os.environ.get("CI", "").lower() not in ("", "0", "false", "no")

# Done at import: it must precede the first import of rclpy or numba, and children inherit it.


def _isolate() -> tuple[int, contextlib.ExitStack]:
    """Keep the tests away from the user's robots, home directory and screen; the domain is ours as long as we live."""
    stack = contextlib.ExitStack()
    scratch = stack.enter_context(tempfile.TemporaryDirectory(prefix="safe_sysid_test_"))
    # The older ROS_LOCALHOST_ONLY would override the range, and warns on every start.
    for name in ("ROS_LOCALHOST_ONLY", "ROS_STATIC_PEERS", "ROS_DISCOVERY_SERVER"):
        os.environ.pop(name, None)
    os.environ["ROS_AUTOMATIC_DISCOVERY_RANGE"] = "LOCALHOST"
    os.environ["ROS_LOG_DIR"] = os.path.join(scratch, "ros_log")
    os.environ["MPLBACKEND"] = "Agg"
    # Two workers and their nodes on two cores: a library's threads would spend most of the time waiting for each other.
    for library in ("OPENBLAS", "OMP", "MKL"):
        os.environ.setdefault(f"{library}_NUM_THREADS", "1")
    os.environ.setdefault("AMENT_PREFIX_PATH", sys.prefix)
    # Children (nodes, the command line) must find this clone even where it is not installed.
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH", "")]))
    # numba keeps compiled kernels beside the source; where it cannot write there, it compiles each time.
    if "NUMBA_CACHE_DIR" not in os.environ and not os.access(ROOT / "safe_sysid", os.W_OK):
        writable = sys.prefix if os.access(sys.prefix, os.W_OK) else tempfile.gettempdir()
        os.environ["NUMBA_CACHE_DIR"] = os.path.join(writable, "cache", f"numba_{os.getuid()}")
    from safe_sysid.bring_up.arrangement import quick_discovery
    from safe_sysid.bring_up.domain import own_domain

    os.environ.update(quick_discovery())
    domain = stack.enter_context(own_domain())
    os.environ["ROS_DOMAIN_ID"] = str(domain)
    return domain, stack


_DOMAIN, _STACK = _isolate()
_UNPROVED = "\npytestmark = pytest.mark.unproved\n"
gc.disable()  # until the tests are collected: nothing of that is garbage

# The same examples on every machine: a failure in CI is a failure of the change, and can be repeated at home.
# New examples: `--hypothesis-profile explore`.
hypothesis.settings.register_profile(
    "safe_sysid",
    deadline=None,  # the first example compiles
    suppress_health_check=[hypothesis.HealthCheck.too_slow],
    derandomize=True,
    max_examples=40,
    database=None,
    print_blob=True,
)
hypothesis.settings.register_profile(
    "explore", parent=hypothesis.settings.get_profile("safe_sysid"), derandomize=False, max_examples=200
)
hypothesis.settings.load_profile("safe_sysid")


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add `--all`."""
    parser.addoption("--all", action="store_true", help="run every test")


def pytest_configure(config: pytest.Config) -> None:
    """Before a run of the whole suite with few kernels in the cache: compile those that nearly all tests need.

    And let pytest rewrite and compile the tests' own files, which each worker would do for itself.
    """
    from suite_times import SuiteTimes

    from safe_sysid.bring_up.kernels import compiled_kernels

    config.pluginmanager.register(SuiteTimes())
    if config.getoption("numprocesses", None) and not hasattr(config, "workerinput") and compiled_kernels() < 100:
        commands = [[sys.executable, str(ROOT / "test" / "first_kernels.py"), half] for half in "01"]
        commands.append([sys.executable, "-m", "pytest", "--collect-only", "-q", "-n", "0", str(ROOT / "test")])
        for process in [subprocess.Popen(command, stdout=subprocess.DEVNULL) for command in commands]:
            process.wait()


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Files that are left out as a whole need not be imported."""
    left_out = collection_path.suffix == ".py" and "unproved" in _left_out(config)
    return True if left_out and _UNPROVED in collection_path.read_text(encoding="utf-8") else None


def pytest_collection_finish() -> None:
    """Keep what was imported and collected, half a million objects, out of every search for garbage from here on."""
    gc.freeze()
    gc.enable()


def pytest_report_header(config: pytest.Config) -> str:
    """Say what this run is, so that a log can be understood without its machine."""
    without = " and ".join(_left_out(config))
    which = f"without {without} tests (--all runs them)" if without else "all tests"
    return f"safe_sysid: {which}; ROS domain {_DOMAIN}, this machine only; {os.cpu_count()} cores"


def pytest_xdist_auto_num_workers(config: pytest.Config) -> int:
    """With `-n auto` one for each of two to four cores, and one for the tests with nodes, which mostly wait."""
    return min(max(2, os.cpu_count() or 2), 4) + 1


def pytest_itemcollected(item: pytest.Item) -> None:
    """Keep tests of one file together where there are several workers: they share fixtures.

    Those that start nodes come one after the other in two workers, which have ROS domains of their own: in lock-step
    only one of a set's processes works at a time.
    """
    name = item.path.name
    if item.get_closest_marker("ros") is not None:
        name = "ros, first half" if name < "test_nodes_g" else "ros, second half"
    item.add_marker(pytest.mark.xdist_group(name))


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out slow tests unless asked for by `--all`, by `-m` or by name; those with nodes begin, then the types.

    Those of what nothing proved rests on are left out of the whole suite only: they run where their file is named.
    """
    items.sort(key=lambda item: (item.get_closest_marker("ros") is None, item.path.name != "test_style.py"))
    without = _left_out(config)

    def left_out(item: pytest.Item) -> bool:
        return any(item.get_closest_marker(name) for name in without)

    if gone := [item for item in items if left_out(item)]:
        config.hook.pytest_deselected(items=gone)
        items[:] = [item for item in items if not left_out(item)]


def _left_out(config: pytest.Config) -> list[str]:
    """The markers whose tests this run leaves out: nobody asked for them by `--all`, by `-m` or by name."""
    if config.getoption("--all"):
        return []
    part_of_name, asked = {"slow": "::", "unproved": ".py"}, config.getoption("-m") or ""
    return [
        marker
        for marker, part in part_of_name.items()
        if marker not in asked and not any(part in argument for argument in config.args)
    ]


@pytest.fixture(scope="module")
def model() -> object:
    """The arm of most tests; a module may have its own."""
    from safe_sysid.robot.loading import load_robot

    return load_robot("kinova_gen3")


@pytest.fixture(scope="module")
def errors(model: Any) -> object:
    """Of measurement, as the module's arm declares them."""
    from safe_sysid.identification.equations.measurement_errors import MeasurementErrors

    return MeasurementErrors.from_model(model)


@pytest.fixture(scope="module")
def gains(model: Any) -> object:
    """Of the module's arm, for a plant that waits for every command."""
    from safe_sysid.control.gains.design import design_gains

    return design_gains(model, lockstep=True)
