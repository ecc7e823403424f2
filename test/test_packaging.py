"""The package as pip, colcon and a newcomer see it."""

from __future__ import annotations

import ast
import json
import os
import re
import runpy
import shutil
import subprocess
import sys
import sysconfig
import xml.etree.ElementTree as ElementTree
import zipfile
from itertools import chain
from pathlib import Path
from typing import Any

import pytest

import safe_sysid
from safe_sysid import resources

ROOT = Path(__file__).resolve().parent.parent
NODES = ("planner_node", "controller_node", "identifier_node", "plant_node", "recorder_node", "viewer_node")


def normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


@pytest.fixture(scope="module")
def setup_arguments() -> dict[str, Any]:
    """Arguments that setup.py gives to setuptools.setup."""
    pytest.importorskip("setuptools")
    return dict(runpy.run_path(str(ROOT / "scripts" / "requirements.py"))["setup_arguments"]())


@pytest.fixture(scope="module")
def manifest() -> ElementTree.Element:
    """The root element of package.xml."""
    return ElementTree.parse(ROOT / "package.xml").getroot()


def files_in(*tops: str) -> list[Path]:
    """All files of folders of the clone, relative to it."""
    return [path.relative_to(ROOT) for top in tops for path in (ROOT / top).rglob("*") if path.is_file()]


def printed(program: str, *arguments: str, **how: Any) -> str:
    """What a program of Python says, in a process of its own."""
    command = [sys.executable, "-c", program, *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=True, **how).stdout.strip()


def bash_blocks() -> list[str]:
    return re.findall(r"^```(?:bash|sh|console)\n(.*?)^```", (ROOT / "README.md").read_text(), re.M | re.S)


# --------------------------------------------------------------------------------------------------- metadata


def test_versions_agree(setup_arguments: dict[str, Any], manifest: ElementTree.Element) -> None:
    newest = re.search(r"^## (\S+)", (ROOT / "CHANGELOG.md").read_text(), re.M)
    assert newest
    versions = {setup_arguments["version"], manifest.findtext("version"), safe_sysid.__version__, newest[1]}
    assert len(versions) == 1, versions


def test_ros_tools_accept_the_manifest(setup_arguments: dict[str, Any], manifest: ElementTree.Element) -> None:
    """One thing that catkin_pkg refuses, and colcon quietly takes this for a plain Python package."""
    assert manifest.findtext("name") == setup_arguments["name"] == "safe_sysid"
    assert manifest.findtext("export/build_type") == "ament_python"
    address = manifest.find("maintainer").get("email")  # type: ignore[union-attr]
    assert address == setup_arguments["author_email"]
    assert re.fullmatch(
        r"[-a-zA-Z0-9_%+]+(\.[-a-zA-Z0-9_%+]+)*@[-a-zA-Z0-9%]+(\.[-a-zA-Z0-9%]+)*\.[a-zA-Z]{2,}", address
    )
    catkin_pkg = pytest.importorskip("catkin_pkg.package")
    warnings: list[str] = []
    package = catkin_pkg.parse_package(str(ROOT / "package.xml"), warnings=warnings)
    package.validate(warnings=warnings)
    assert warnings == []


#: Looked up in rosdep's python.yaml and in the distribution file of Jazzy on 2026-11-21. One unknown key, and
#: `rosdep install` stops for all.
KNOWN_KEYS = {
    "builtin_interfaces", "coal", "controller_manager", "controller_manager_msgs", "diagnostic_msgs",
    "forward_command_controller", "geometry_msgs", "gz_ros2_control", "joint_state_broadcaster", "launch",
    "launch_ros", "lifecycle_msgs", "pinocchio", "python3-defusedxml", "python3-hypothesis", "python3-jinja2",
    "python3-matplotlib", "python3-mujoco-pip", "python3-numpy", "python3-pydantic", "python3-pytest",
    "python3-pytest-timeout", "python3-rich", "python3-rosbags-pip", "python3-scipy", "python3-yaml",
    "rcl_interfaces", "rclpy", "robot_state_publisher", "ros2launch", "ros_gz_bridge", "ros_gz_sim",
    "rosgraph_msgs", "rviz2", "sensor_msgs", "std_msgs", "std_srvs", "trajectory_msgs",
    "visualization_msgs", "xacro",
}  # fmt: skip


def test_rosdep_knows_every_key(manifest: ElementTree.Element) -> None:
    keys = {element.text for element in manifest if element.tag.endswith("depend")}
    assert keys - KNOWN_KEYS == set(), "not looked up yet, or unknown to rosdep"


def test_tested_versions_are_within_the_declared_bounds(setup_arguments: dict[str, Any]) -> None:
    unbounded = [text for text in setup_arguments["install_requires"] if not re.search(r"[>=~]=", text)]
    assert unbounded == []
    packaging = pytest.importorskip("packaging.requirements")
    lines = (ROOT / "scripts" / "constraints.txt").read_text().splitlines()
    pinned = dict(line.split("==") for line in lines if line and not line.startswith("#"))
    pinned = {normal(name): version for name, version in pinned.items()}
    required = [*setup_arguments["install_requires"], *chain(*setup_arguments["extras_require"].values())]
    for text in required:
        requirement = packaging.Requirement(text)
        version = pinned.get(normal(requirement.name))
        if normal(requirement.name) in ("setuptools", "wheel"):
            continue  # tools that come with the environment
        assert version, f"{text}: no tested version in scripts/constraints.txt"
        assert version in requirement.specifier, f"{text}: tested with {version}"


@pytest.mark.skipif(os.geteuid() != 0, reason="only root installs packages")
@pytest.mark.parametrize(
    ("ci", "programs", "wanted"),
    [("true", "apt-get", True), ("true", "apt-get chromium", False), ("true", "", False), ("", "apt-get", False)],
)
def test_a_browser_is_installed_for_ci_alone(tmp_path: Path, ci: str, programs: str, wanted: bool) -> None:
    for name in programs.split():
        (tmp_path / name).touch(0o755)
    program = "import machine; print(machine.browser_wanted())"
    environment = {"PATH": str(tmp_path), "PYTHONPATH": str(ROOT / "scripts" / "bootstrap"), "CI": ci}
    assert printed(program, env=environment) == str(wanted)


@pytest.mark.parametrize(
    ("config", "expected"),
    [
        ("", True),
        ("global.timeout='60'\ndownload.no-such='1'", True),
        ("global.index-url='https://own.example/simple'", ["--default-index", "https://own.example/simple"]),
        (":env:.extra-index-url='https://a.example https://b.example'", ["--index", "https://b.example"]),
        (":env:.cert='/etc/own.pem'", ["SSL_CERT_FILE=/etc/own.pem"]),
        ("global.proxy='http://proxy.example:3128'", False),  # pip knows how
        ("install.no-index='true'", False),
    ],
)
def test_uv_looks_where_pip_is_told_to_look(config: str, expected: list[str] | bool) -> None:
    program = "import installation, sys; print(installation.uv_command('python', sys.argv[1]))"
    options = ast.literal_eval(printed(program, config, env={"PYTHONPATH": str(ROOT / "scripts" / "bootstrap")}))
    assert bool(options) == bool(expected)
    if isinstance(expected, list):
        assert set(expected) <= set(options)


def test_console_scripts_exist(setup_arguments: dict[str, Any]) -> None:
    scripts = dict(
        re.split(r"\s*=\s*", text, maxsplit=1) for text in setup_arguments["entry_points"]["console_scripts"]
    )
    assert set(scripts) == {"safe-sysid", *NODES}
    for name, target in scripts.items():
        module, function = target.split(":")
        source = (ROOT / Path(*module.split("."))).with_suffix(".py").read_text()
        assert re.search(rf"^def {function}\(", source, re.M), f"{name} = {target}: no such function"


def test_every_shared_file_is_installed(setup_arguments: dict[str, Any]) -> None:
    installed = {Path(name) for _, names in setup_arguments["data_files"] for name in names}
    present = {path for path in files_in("config", "urdf", "launch", "rviz") if not path.name.startswith((".", "_"))}
    present = {path for path in present if "__pycache__" not in path.parts}
    assert present, "no configuration at all"
    assert present <= installed
    assert {Path("package.xml"), Path("resource/safe_sysid")} <= installed
    assert all((ROOT / name).is_file() for name in installed)


# ---------------------------------------------------------------------------------------- installing for real


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the files that make the package, so that building leaves nothing in the clone."""
    copy = tmp_path_factory.mktemp("source") / "safe_sysid"
    hidden = shutil.ignore_patterns(
        ".*", "__pycache__", "build", "dist", "*.egg-info", "install", "log", "runs", "test"
    )
    shutil.copytree(ROOT, copy, ignore=hidden)
    return copy


@pytest.fixture(scope="module")
def wheel(tree: Path) -> Path:
    """A wheel built from the clone, without network."""
    pytest.importorskip("setuptools")
    pytest.importorskip("wheel")
    command = [sys.executable, "-m", "pip", "wheel", "--no-deps", "--no-build-isolation", "-q", "-w", "out", "."]
    result = subprocess.run(command, cwd=tree, capture_output=True, text=True)
    assert result.returncode == 0, result.stdout + result.stderr
    (built,) = (tree / "out").glob("*.whl")
    return built


@pytest.mark.slow
def test_wheel_holds_code_files_and_scripts(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        names = {re.sub(r"^safe_sysid-[^/]*\.data/data/", "<prefix>/", name): name for name in archive.namelist()}
        modules = {str(path.relative_to(ROOT)) for path in (ROOT / "safe_sysid").rglob("*.py")}
        assert modules <= set(names), "modules without __init__.py in their directory stay behind"
        assert "<prefix>/share/ament_index/resource_index/packages/safe_sysid" in names
        assert "<prefix>/share/safe_sysid/package.xml" in names
        assert {f"<prefix>/share/safe_sysid/{path}" for path in files_in("config", "urdf")} <= set(names)
        for node in NODES:
            member = archive.getinfo(names[f"<prefix>/lib/safe_sysid/{node}"])
            assert member.external_attr >> 16 & 0o111, f"{node} would not be executable"


@pytest.mark.slow
def test_installed_package_finds_its_files(wheel: Path, tmp_path: Path) -> None:
    """Installed under a prefix, away from the clone: files and executables are where they are looked for."""
    prefix = tmp_path / "prefix"
    command = [sys.executable, "-m", "pip", "install", "--no-deps", "--no-index", "-q", "--ignore-installed"]
    result = subprocess.run([*command, "--prefix", prefix, wheel], capture_output=True, text=True, cwd=tmp_path)
    assert result.returncode == 0, result.stdout + result.stderr
    (package,) = prefix.glob("**/site-packages/safe_sysid") or prefix.glob("**/dist-packages/safe_sysid")
    program = (
        "import json, safe_sysid; from safe_sysid.resources import resource_path, share_directory;"
        "print(json.dumps([safe_sysid.__file__, str(share_directory()), str(resource_path('config'))]))"
    )
    environment = dict(os.environ, PYTHONPATH=str(package.parent))
    environment.pop("AMENT_PREFIX_PATH", None)
    file, share, config = map(Path, json.loads(printed(program, cwd=tmp_path, env=environment)))
    assert prefix in file.parents
    assert prefix in share.parents
    assert {path.name for path in config.iterdir()} == {path.name for path in (ROOT / "config").iterdir()}
    assert (share.parent / "ament_index/resource_index/packages/safe_sysid").is_file()
    for node in NODES:
        # pip writes bin/<node>; the script under lib, where `ros2 run` looks, must hand over to exactly that.
        script = next(prefix.glob(f"**/bin/{node}"))
        script.write_text('#!/bin/sh\necho "started $0 with $*"\n')
        forwarded = next(prefix.glob(f"**/lib/safe_sysid/{node}"))
        answer = subprocess.check_output([forwarded, "--ros-args", "a b"], text=True, cwd=tmp_path)
        assert Path(answer.split()[1]).resolve() == script.resolve()
        assert answer.strip().endswith("with --ros-args a b")


@pytest.mark.slow
def test_colcon_builds_an_ament_python_package(tree: Path, tmp_path: Path) -> None:
    pytest.importorskip("colcon_core")
    pytest.importorskip("colcon_ros")
    program = shutil.which("colcon", path=sysconfig.get_path("scripts"))
    colcon = [program] if program else [sys.executable, "-m", "colcon"]
    workspace = tmp_path / "workspace"
    (workspace / "src").mkdir(parents=True)
    shutil.copytree(tree, workspace / "src" / "safe_sysid")

    def run(*arguments: str) -> str:
        result = subprocess.run([*colcon, *arguments], cwd=workspace, capture_output=True, text=True, env=plain)
        assert result.returncode == 0, result.stdout + result.stderr
        return result.stdout

    plain = {key: value for key, value in os.environ.items() if key not in ("PYTHONPATH", "AMENT_PREFIX_PATH")}
    assert "(ros.ament_python)" in run("list")
    run("build", "--event-handlers", "console_direct+")
    installed = workspace / "install" / "safe_sysid"
    for name in (*NODES, "safe-sysid"):
        assert os.access(installed / "lib" / "safe_sysid" / name, os.X_OK)
    assert (installed / "share/ament_index/resource_index/packages/safe_sysid").is_file()
    assert (installed / "share/safe_sysid/package.xml").is_file()
    assert all((installed / "share/safe_sysid" / path).is_file() for path in files_in("config", "urdf"))


# ------------------------------------------------------------------------------------------------ first steps


def test_readme_starts_with_the_two_commands() -> None:
    assert [block.strip() for block in bash_blocks()[:2]] == ["./safe-sysid demo", "./safe-sysid test"]


def test_ci_calls_exactly_the_readme_command() -> None:
    lines = [line.strip() for line in (ROOT / ".ci" / "run").read_text().splitlines()]
    commands = [line for line in lines if line and not line.startswith(("#", "set ", "cd ", "export ", "exec <"))]
    assert commands == [bash_blocks()[1].strip()]
    for script in (".ci/run", "safe-sysid"):
        assert os.access(ROOT / script, os.X_OK), f"{script} is not executable"


@pytest.fixture
def bare_clone(tmp_path: Path) -> Path:
    """A clone with nothing but what the launcher needs, on a path that needs quoting."""
    clone = tmp_path / "a clone"
    shutil.copytree(ROOT / "scripts", clone / "scripts", ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("safe-sysid", "setup.py", "setup.cfg", "pyproject.toml"):
        shutil.copy(ROOT / name, clone / name)
    return clone


def launch(clone: Path, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run ./safe-sysid of a clone with the Python of these tests."""
    env = {"PATH": "/usr/bin:/bin", "HOME": str(clone), "SAFE_SYSID_PYTHON": sys.executable, **environment}
    return subprocess.run(
        [clone / "safe-sysid", *arguments], env=env, cwd="/", capture_output=True, text=True, stdin=subprocess.DEVNULL
    )


def ask(clone: Path, expression: str) -> str:
    """What an expression over the launcher's module `state` and the environment `venv` says, in a fresh process."""
    program = (
        f"import pathlib, sys; sys.path.insert(0, {str(clone / 'scripts' / 'bootstrap')!r}); import state;"
        f"venv = pathlib.Path({str(clone / '.venv')!r}); print({expression})"
    )
    return printed(program)


def fake_environment(clone: Path) -> Path:
    """An environment that looks finished to the launcher; its commands only report."""
    venv = clone / ".venv"
    (venv / "lib" / "python{}.{}".format(*sys.version_info) / "site-packages").mkdir(parents=True)
    (venv / "bin").mkdir()
    report = f'#!/bin/sh\n[ "$3" = -c ] && exec {sys.executable} "$@"\n'
    report += 'echo "$0: $*: $AMENT_PREFIX_PATH:$LD_LIBRARY_PATH"\n'
    for name in ("python", "safe-sysid"):
        (venv / "bin" / name).write_text(report)
        (venv / "bin" / name).chmod(0o755)
    ask(clone, "state.write_stamp(venv, 'ready', ('dev', 'ros', 'sim', 'view'))")
    return venv


def test_kernels_of_another_source_are_not_used(bare_clone: Path) -> None:
    """Numba looks at the file that defines a kernel only: a changed callee elsewhere must not leave it as it was."""
    package = bare_clone / "safe_sysid"
    package.mkdir()
    (package / "words.py").write_text("A = 1\n")
    (package / "callee.py").write_text("@njit\ndef f(x): return x\n")
    place = "__import__('commands').kernels_directory(venv)"
    before = ask(bare_clone, place)
    (package / "words.py").write_text("A = 2\n")
    assert ask(bare_clone, place) == before
    (package / "callee.py").write_text("@njit\ndef f(x): return 2 * x\n")
    after = ask(bare_clone, place)
    assert after != before
    (package / "core").mkdir()
    (package / "core" / "layout.py").write_text("ROTOR = 12\n")  # a constant that kernels are compiled with
    assert ask(bare_clone, place) != after


def test_launcher_without_a_suitable_python_says_what_to_do(bare_clone: Path) -> None:
    result = launch(bare_clone, "demo", SAFE_SYSID_PYTHON="/bin/false")
    assert result.returncode == 1
    assert "needs Python 3.11 or 3.12" in result.stderr
    assert "apt-get install" in result.stderr


@pytest.mark.skipif(sys.version_info[:2] not in ((3, 11), (3, 12)), reason="the launcher refuses this Python")
class TestLauncher:
    """./safe-sysid, started from another directory."""

    @pytest.mark.slow
    def test_without_a_package_index_fails_with_a_reason(self, bare_clone: Path) -> None:
        dead = {"PIP_INDEX_URL": "http://127.0.0.1:9/simple", "PIP_RETRIES": "0", "PIP_CONFIG_FILE": os.devnull}
        result = launch(bare_clone, "demo", **dead)
        assert result.returncode == 1
        assert result.stderr.startswith("safe-sysid: setting up its environment")
        assert "Traceback" not in result.stderr
        assert "could not be reached" in result.stderr or "apt-get install" in result.stderr
        # The next call must not take the unfinished environment for a finished one.
        assert json.loads((bare_clone / ".venv" / "safe-sysid.json").read_text())["state"] != "ready"

    def test_never_deletes_what_is_not_its_own(self, bare_clone: Path, tmp_path: Path) -> None:
        precious = tmp_path / "precious"
        precious.mkdir()
        (precious / "pyvenv.cfg").write_text("home = /usr/bin")
        (precious / "thesis.txt").write_text("years of work")
        result = launch(bare_clone, "demo", SAFE_SYSID_VENV=str(precious))
        assert result.returncode == 1
        assert "no working Python environment" in result.stderr
        assert (precious / "thesis.txt").read_text() == "years of work"

    def test_finished_environment_is_used_at_once(self, bare_clone: Path) -> None:
        venv = fake_environment(bare_clone)
        result = launch(bare_clone, "demo", "--payload", "a b", LD_LIBRARY_PATH="/opt/x")
        assert (result.returncode, result.stderr) == (0, "")
        assert result.stdout.startswith(f"{venv}/bin/safe-sysid: demo --payload a b: {venv}:")
        tests = launch(bare_clone, "test", "-k", "x")
        assert tests.stdout.startswith(f"{venv}/bin/python: -m pytest -k x:")

    def test_foreign_ros_installation_is_kept_out(self, bare_clone: Path, tmp_path: Path) -> None:
        venv = fake_environment(bare_clone)
        other = tmp_path / "opt" / "ros" / "lib"
        other.mkdir(parents=True)
        (other / "librcl.so").touch()
        result = launch(bare_clone, "demo", LD_LIBRARY_PATH=f"{other}:/opt/x", AMENT_PREFIX_PATH=str(other.parent))
        assert result.stdout.strip().endswith(f"{venv}:/opt/x")

    @pytest.mark.parametrize("change", ["inputs", "clone", "extras", "state", "python"])
    def test_outdated_environment_is_not_taken_for_ready(self, bare_clone: Path, change: str) -> None:
        venv = fake_environment(bare_clone)
        ready = "state.is_ready(venv, ('dev', 'ros', 'sim'))"
        assert ask(bare_clone, ready) == "True"
        stamp = json.loads((venv / "safe-sysid.json").read_text())
        stamp[change] = [] if change == "extras" else "other"
        (venv / "safe-sysid.json").write_text(json.dumps(stamp))
        assert ask(bare_clone, ready) == "False"


# -------------------------------------------------------------------------------------------------- resources


def test_missing_resource_names_what_there_is() -> None:
    with pytest.raises(resources.ResourceError, match=r"no_such\.yaml.*kinova_gen3\.yaml"):
        resources.resource_path("config/no_such.yaml")


def test_resource_is_found_through_the_ament_index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    share = tmp_path / "share" / "safe_sysid"
    (share / "config").mkdir(parents=True)
    (share / "package.xml").touch()
    monkeypatch.setattr(resources, "__file__", "/nonexistent/safe_sysid/resources.py")
    monkeypatch.delenv("AMENT_PREFIX_PATH", raising=False)
    with pytest.raises(resources.ResourceError, match="Searched"):
        resources.share_directory()
    monkeypatch.setenv("AMENT_PREFIX_PATH", f"/nonexistent{os.pathsep}{tmp_path}")
    assert resources.share_directory() == share
