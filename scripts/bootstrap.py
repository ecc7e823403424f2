"""Makes the environment of this clone on the first call, then runs safe-sysid, or the tests, in it.

Started by `./safe-sysid`. Only the standard library: at this point there is nothing else. What it leaves
behind lies in one directory (`.venv`, or $SAFE_SYSID_VENV), with a lock and a log beside it; all of that may
be deleted at any time.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import fcntl
import hashlib
import html
import importlib.util
import json
import os
import platform
import re
import selectors
import shutil
import signal
import subprocess
import sys
import time
import urllib.parse
import urllib.request
from collections import deque
from collections.abc import Callable, Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
CONSTRAINTS = ROOT / "scripts" / "constraints.txt"
INPUTS = (ROOT / "pyproject.toml", ROOT / "setup.py", ROOT / "setup.cfg", CONSTRAINTS)
SUPPORTED = ((3, 11), (3, 12))
EXTRAS_RUN = ("ros", "sim")
EXTRAS_TEST = ("dev", "ros", "sim")
STAMP = "safe-sysid.json"
DISK_NEEDED = 2.5e9  # bytes: 1.4 GB installed, and what pip unpacks on the way
HEARTBEAT = 5.0  # seconds between progress lines where the output is not a terminal

# Settings of a sourced ROS 2 installation or of another environment: this one would load foreign modules.
FOREIGN = (
    "_ROS_WHEELS_BOOTSTRAP_COMPLETE",
    "AMENT_PREFIX_PATH",
    "PIP_PREFIX",
    "PIP_REQUIRE_VIRTUALENV",
    "PIP_TARGET",
    "PIP_USER",
    "PYTHONHOME",
    "PYTHONPATH",
    "VIRTUAL_ENV",
)


class SetupError(Exception):
    """The environment cannot be made; the text says why and what helps."""


class Progress:
    """Tells what is going on: one moving line on a terminal, a line now and then elsewhere."""

    def __init__(self) -> None:
        self._start = time.monotonic()
        self._last = self._start
        self._live = sys.stderr.isatty() and os.environ.get("TERM", "dumb") != "dumb"
        self._drawn = False

    def say(self, text: str) -> None:
        """A line that stays."""
        self.clear()
        print(f"safe-sysid: {text}", file=sys.stderr, flush=True)
        self._last = time.monotonic()

    def tick(self, text: str) -> None:
        """What is being done now; cheap to call often."""
        now = time.monotonic()
        if not self._live and now - self._last < HEARTBEAT:
            return
        line = f"  [{now - self._start:4.0f} s] {text}"
        if self._live:
            width = shutil.get_terminal_size().columns - 1
            print("\r\033[K" + line[:width], end="", file=sys.stderr, flush=True)
            self._drawn = True
        else:
            print(line, file=sys.stderr, flush=True)
        self._last = now

    def clear(self) -> None:
        """Remove the moving line, if there is one."""
        if self._drawn:
            print("\r\033[K", end="", file=sys.stderr, flush=True)
            self._drawn = False

    @property
    def elapsed(self) -> float:
        """Seconds since the start."""
        return time.monotonic() - self._start


# -------------------------------------------------------------------------------------- what is there already


def environment_directory() -> Path:
    """Where the environment lies or will lie."""
    return Path(os.path.abspath(os.environ.get("SAFE_SYSID_VENV") or ROOT / ".venv"))


def inputs_hash() -> str:
    """Changes when the files change that say what must be installed."""
    digest = hashlib.sha256()
    for path in INPUTS:
        digest.update(path.name.encode() + b"\0" + (path.read_bytes() if path.exists() else b"") + b"\0")
    return digest.hexdigest()


def python_of(venv: Path) -> str | None:
    """Version `3.11` of the environment's Python; None if there is none, or it does not run any more."""
    command = [
        str(venv / "bin" / "python"),
        "-I",
        "-S",
        "-c",
        "import sys; print('%d.%d' % sys.version_info[:2])",
    ]
    try:
        version = subprocess.run(
            command, capture_output=True, text=True, timeout=60, check=True
        ).stdout.strip()
    except (OSError, subprocess.SubprocessError):
        return None
    # After an upgrade of the system's Python the link still works, but its modules are looked for elsewhere.
    return version if (venv / "lib" / f"python{version}" / "site-packages").is_dir() else None


def read_stamp(venv: Path) -> dict[str, object]:
    """What an earlier call has written about the environment; empty if nothing, or nothing readable."""
    try:
        stamp = json.loads((venv / STAMP).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return stamp if isinstance(stamp, dict) else {}


def is_ready(venv: Path, extras: tuple[str, ...]) -> bool:
    """True if the environment holds what this clone asks for now."""
    stamp = read_stamp(venv)
    return (
        stamp.get("state") == "ready"
        and stamp.get("inputs") == inputs_hash()
        and stamp.get("clone") == str(ROOT)
        and set(extras) <= set(stamp.get("extras") or ())  # type: ignore[call-overload]
        and stamp.get("python") is not None
        and stamp.get("python") == python_of(venv)
    )


def write_stamp(venv: Path, state: str, extras: tuple[str, ...]) -> None:
    """Say what the environment is; whole or not at all, since a call may be interrupted anywhere."""
    stamp = {
        "state": state,
        "inputs": inputs_hash(),
        "clone": str(ROOT),
        "extras": sorted(extras),
        "python": python_of(venv),
    }
    partial = venv / (STAMP + ".part")
    partial.write_text(json.dumps(stamp, indent=1) + "\n", encoding="utf-8")
    partial.replace(venv / STAMP)


@contextlib.contextmanager
def locked(venv: Path, progress: Progress) -> Iterator[None]:
    """One installer at a time. The lock lies beside the environment, which may be deleted and made again."""
    path = venv.with_name(venv.name + ".lock")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
    except OSError as error:
        raise SetupError(
            f"cannot write {path}: {error.strerror}.\n"
            "  Choose another place for the environment:  SAFE_SYSID_VENV=~/safe-sysid-env ./safe-sysid ..."
        ) from error
    try:
        told = False
        while True:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except OSError as error:
                if error.errno not in (errno.EWOULDBLOCK, errno.EACCES):
                    break  # a file system without locks: better unlocked than not at all
            if not told:
                progress.say(f"another call is setting up {venv}; waiting for it.")
                told = True
            progress.tick("waiting for the other call")
            time.sleep(0.5)
        yield
    finally:
        os.close(descriptor)


# ------------------------------------------------------------------------------------------- running commands


def clean_environment(venv: Path) -> dict[str, str]:
    """The caller's variables without those that would pull in foreign modules or libraries."""
    env = {key: value for key, value in os.environ.items() if key not in FOREIGN}
    libraries = [
        entry
        for entry in env.pop("LD_LIBRARY_PATH", "").split(os.pathsep)
        if entry and not (Path(entry) / "librcl.so").exists() and not re.search(r"/ros_\w+\.libs/?$", entry)
    ]
    if libraries:
        env["LD_LIBRARY_PATH"] = os.pathsep.join(libraries)
    if env.get("RMW_IMPLEMENTATION", "rmw_fastrtps_cpp") != "rmw_fastrtps_cpp":
        del env["RMW_IMPLEMENTATION"]  # the only one that the wheels have
    env["AMENT_PREFIX_PATH"] = str(venv)
    env["PATH"] = os.pathsep.join([str(venv / "bin"), env.get("PATH", os.defpath)])
    env["VIRTUAL_ENV"] = str(venv)
    env.setdefault("NUMBA_CACHE_DIR", str(venv / "cache" / "numba"))
    return env


def run(
    command: list[str], doing: str, log: Path, progress: Progress, env: dict[str, str] | None = None
) -> tuple[int, list[str]]:
    """Run a command, tell how far pip is, keep everything in the log. Returns exit status and last lines."""
    tail: deque[str] = deque(maxlen=400)
    with log.open("a", encoding="utf-8") as sink:
        sink.write(f"$ {' '.join(command)}\n")
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            cwd=ROOT,
            env=env,
        )
        try:
            stage = [doing]
            for line in _lines(process, lambda: progress.tick(stage[0])):
                sink.write(line + "\n")
                sink.flush()
                tail.append(line)
                stage[0] = _what_pip_does(line) or stage[0]
            return process.wait(), list(tail)
        finally:
            if process.poll() is None:
                process.terminate()
                with contextlib.suppress(subprocess.TimeoutExpired):
                    process.wait(10)
                process.kill()
            progress.clear()


def _lines(process: subprocess.Popen[bytes], idle: Callable[[], None]) -> Iterator[str]:
    """Lines of a process as they come, calling `idle` at least four times a second."""
    stream = process.stdout
    if stream is None:
        return
    buffer = b""
    with selectors.DefaultSelector() as selector:
        selector.register(stream, selectors.EVENT_READ)
        while True:
            if selector.select(0.25):
                chunk = os.read(stream.fileno(), 65536)
                if not chunk:
                    break
                *complete, buffer = (buffer + chunk).split(b"\n")
                for line in complete:
                    yield line.decode("utf-8", "replace").rstrip()
            idle()
    if buffer:
        yield buffer.decode("utf-8", "replace").rstrip()


def _what_pip_does(line: str) -> str | None:
    """Turn a line of pip into a few words, None if it is no news."""
    if match := re.match(r"\s*Downloading (\S+)(?: \(([^)]*)\))?", line):
        name = re.split(r"-\d", match[1].rsplit("/", 1)[-1])[0]
        return f"downloading {name}" + (f" ({match[2]})" if match[2] else "")
    if match := re.match(r"\s*(?:Collecting|Using cached) (\S+)", line):
        name = match[1].rsplit("/", 1)[-1]
        return "choosing versions: " + re.split(r"[\s<>=!~;\[(]|-\d", name)[0]
    if line.startswith("Obtaining file:"):
        return "reading what this package needs"
    if line.startswith("Installing collected packages"):
        return f"unpacking {line.count(',') + 1} packages (takes a minute)"
    return None


# ------------------------------------------------------------------------------------------- making the thing


def check_machine() -> None:
    """Stop before a long download that cannot end well."""
    if sys.platform != "linux" or platform.machine() not in ("x86_64", "AMD64"):
        raise SetupError(
            f"this is {platform.system()} on {platform.machine()}; the ROS 2 wheels are for Linux x86_64.\n"
            "  With ROS 2 Jazzy installed, use colcon instead: README.md, section for ROS 2 users."
        )
    if sys.version_info[:2] not in SUPPORTED:
        raise SetupError(f"needs Python 3.11 or 3.12; {sys.executable} is {platform.python_version()}.")


def missing_libraries() -> list[str]:
    """Debian packages of system libraries that the wheels need and do not bring."""
    missing = []
    for library, package in (("libgomp.so.1", "libgomp1"), ("libstdc++.so.6", "libstdc++6")):
        try:
            ctypes.CDLL(library)
        except OSError:
            missing.append(package)
    return missing


def install_system_packages(packages: list[str], why: str, log: Path, progress: Progress) -> None:
    """Have apt-get install packages if this user may, else say what to type."""
    command = "apt-get install " + " ".join(packages)
    apt = shutil.which("apt-get")
    if apt is None or os.geteuid() != 0:
        raise SetupError(f"{why}. Install it, then run this command again:\n\n    sudo {command}\n")
    progress.say(f"{why}: {command}")
    env = dict(os.environ, DEBIAN_FRONTEND="noninteractive")
    run([apt, "update", "-q"], "apt-get update", log, progress, env)  # lists of a fresh container are empty
    status, lines = run(
        [apt, "install", "-q", "-y", "--no-install-recommends", *packages], command, log, progress, env
    )
    if status != 0:
        raise SetupError(
            failure(command, status, lines, log, "Install it in another way, then run this again.")
        )


def create(venv: Path, log: Path, progress: Progress) -> None:
    """Make an empty environment with pip in it, in whatever way this machine offers."""
    python = f"python{sys.version_info[0]}.{sys.version_info[1]}"
    inside = str(venv / "bin" / "python")
    make = [sys.executable, "-I", "-m", "venv", "--without-pip", str(venv)]

    def attempt(command: list[str]) -> bool:
        env = {key: value for key, value in clean_environment(venv).items() if key != "VIRTUAL_ENV"}
        return run(command, "making the environment", log, progress, env)[0] == 0 and has_pip(venv)

    made = (
        importlib.util.find_spec("venv") is not None
        and run(make, "making the environment", log, progress)[0] == 0
    )
    if made:
        # Debian and Ubuntu ship venv, but keep ensurepip in a package of its own.
        if importlib.util.find_spec("ensurepip") and attempt([inside, "-Im", "ensurepip", "--default-pip"]):
            return
        if attempt([sys.executable, "-m", "pip", "--python", inside, "install", "--no-input", "pip"]):
            return
    if attempt([sys.executable, "-m", "virtualenv", str(venv)]):
        return
    wheel = download_pip(venv) if made else None
    if wheel and attempt([inside, str(wheel / "pip"), "install", "--no-input", "--no-index", str(wheel)]):
        wheel.unlink()
        return
    install_system_packages([f"{python}-venv"], "this Python cannot make environments", log, progress)
    status, lines = run(
        [sys.executable, "-I", "-m", "venv", str(venv)], "making the environment", log, progress
    )
    if status != 0 or not has_pip(venv):
        raise SetupError(failure(f"{python} -m venv", status, lines, log))


def has_pip(venv: Path) -> bool:
    """True if pip runs in the environment."""
    command = [str(venv / "bin" / "python"), "-I", "-m", "pip", "--version"]
    env = dict(clean_environment(venv), _ROS_WHEELS_BOOTSTRAP_COMPLETE="1")
    try:
        return subprocess.run(command, capture_output=True, timeout=120, check=False, env=env).returncode == 0
    except (OSError, subprocess.SubprocessError):
        return False


def download_pip(venv: Path) -> Path | None:
    """Fetch the newest pip wheel from the package index and compare its checksum; None if that fails."""
    index = os.environ.get("PIP_INDEX_URL", "https://pypi.org/simple").rstrip("/") + "/pip/"
    try:
        # HTML is what every index speaks; there, each link carries the checksum of its file.
        request = urllib.request.Request(index, headers={"Accept": "text/html"})
        with urllib.request.urlopen(request, timeout=30) as answer:
            page = answer.read().decode("utf-8", "replace")
        found = []
        for tag in re.findall(r"<a\s[^>]*>", page):
            link = re.search(
                r'href="([^"#]*/(pip-(\d+(?:\.\d+)*)-py3-none-any\.whl))#sha256=([0-9a-f]{64})"', tag
            )
            if link and "data-yanked" not in tag:
                found.append(
                    ([int(part) for part in link[3].split(".")], html.unescape(link[1]), link[2], link[4])
                )
        if not found:
            return None
        _, address, name, checksum = max(found)
        with urllib.request.urlopen(urllib.parse.urljoin(index, address), timeout=60) as answer:
            content = answer.read()
    except (OSError, ValueError):  # no network, no such address, no certificate
        return None
    if hashlib.sha256(content).hexdigest() != checksum:
        return None
    path = venv / name
    path.write_bytes(content)
    return path


def prepare(venv: Path, log: Path, progress: Progress) -> None:
    """Leave a working, possibly empty, environment at `venv`; never delete what is not an environment."""
    if python_of(venv) is not None and has_pip(venv):
        version = python_of(venv)
        if version not in [f"{major}.{minor}" for major, minor in SUPPORTED]:
            raise SetupError(
                f"{venv} is an environment of Python {version}; 3.11 or 3.12 is needed. Delete or move it."
            )
        return
    if venv.exists() and any(venv.iterdir()):
        if not (venv / STAMP).exists() and not (venv / "pyvenv.cfg").exists():
            raise SetupError(
                f"{venv} exists and is not a Python environment; move it or set SAFE_SYSID_VENV."
            )
        progress.say(f"{venv} does not work any more (another Python, or interrupted): making it again.")
        shutil.rmtree(venv)
    venv.mkdir(parents=True, exist_ok=True)
    write_stamp(venv, "creating", ())
    create(venv, log, progress)


def install(venv: Path, extras: tuple[str, ...], log: Path, progress: Progress) -> None:
    """Install this clone, editable: changes count at once, and resource files are found where they are."""
    target = f".[{','.join(extras)}]"
    command = [str(venv / "bin" / "python"), "-m", "pip", "install", "--no-input", "--progress-bar", "off"]
    command += ["--disable-pip-version-check"]
    attempts = [[*command, "-c", str(CONSTRAINTS), "-e", target]] if CONSTRAINTS.exists() else []
    attempts.append([*command, "-e", target])
    for number, attempt in enumerate(attempts):
        status, lines = run(attempt, "asking the package index", log, progress, clean_environment(venv))
        if status == 0:
            link_shared(venv)
            return
        text = "\n".join(lines)
        # The index answered, but lacks a version that was tested: whatever fits instead is worth a try.
        unavailable = "ResolutionImpossible" in text or re.search(r"\(from versions: (?!none\))", text)
        if number + 1 < len(attempts) and unavailable:
            progress.say("the tested versions are not all available here; taking the newest that fit.")
            continue
        raise SetupError(failure("pip install", status, lines, log))


def link_shared(venv: Path) -> None:
    """Show the clone to the ament index, `ros2 run` and launch, which an editable installation leaves out."""
    index = venv / "share" / "ament_index" / "resource_index" / "packages"
    executables = venv / "lib" / "safe_sysid"
    links = {index / "safe_sysid": ROOT / "resource" / "safe_sysid", venv / "share" / "safe_sysid": ROOT}
    links |= {executables / path.name: venv / "bin" / path.name for path in (venv / "bin").glob("*_node")}
    for link, target in links.items():
        link.parent.mkdir(parents=True, exist_ok=True)
        link.unlink(missing_ok=True)
        link.symlink_to(target)


def failure(what: str, status: int, lines: list[str], log: Path, otherwise: str = "") -> str:
    """Last lines of a failed command, and what they mean as far as that can be told."""
    text = "\n".join(lines)
    if re.search(r"No space left on device|Errno 28", text):
        hint = "The disk is full: 1.4 GB are needed. SAFE_SYSID_VENV=/elsewhere/env puts it on another disk."
    elif re.search(
        r"Temporary failure in name resolution|Name or service not known|NewConnectionError"
        r"|Failed to establish"
        r"|Network is unreachable|Connection refused|timed out|ProxyError|from versions: none|Max retries",
        text,
    ):
        hint = (
            "The package index could not be reached. Check the network; behind a proxy set https_proxy,\n"
            "  with an index of your own set PIP_INDEX_URL. Then run the command again."
        )
    elif re.search(r"CERTIFICATE_VERIFY_FAILED|SSLError", text):
        hint = "The connection's certificate was refused: set PIP_CERT to your site's certificates."
    else:
        hint = otherwise or "Run the command again; if it fails the same way, the log says more."
    shown = "\n".join(f"  | {line}" for line in [line for line in lines if line.strip()][-12:])
    return f"{what} failed with status {status}; its last lines:\n{shown}\n  {hint}\n  Whole log: {log}"


def ensure(venv: Path, extras: tuple[str, ...]) -> None:
    """Have the environment ready for this clone; does nothing, fast, if it is."""
    if is_ready(venv, extras):
        return
    progress = Progress()
    fresh = read_stamp(venv).get("state") != "ready"
    size = (
        "about 400 MB to download, 1.4 GB on disk, 1 to 5 minutes" if fresh else "usually less than a minute"
    )
    progress.say(
        f"{'setting up' if fresh else 'bringing up to date'} its environment in {venv}, once ({size})."
    )
    check_machine()
    with locked(venv, progress):
        if is_ready(venv, extras):
            return
        log = venv.with_name(venv.name + ".log")
        log.write_text("", encoding="utf-8")
        free = shutil.disk_usage(venv.parent).free
        if fresh and free < DISK_NEEDED:
            raise SetupError(
                f"{venv.parent} has {free / 1e9:.1f} GB free; {DISK_NEEDED / 1e9:.1f} GB are needed.\n"
                "  Choose another place:  SAFE_SYSID_VENV=/elsewhere/env ./safe-sysid ..."
            )
        if missing := missing_libraries():
            install_system_packages(
                missing, f"a system library is missing ({', '.join(missing)})", log, progress
            )
        previous = read_stamp(venv)
        if previous.get("clone") == str(ROOT) and isinstance(previous.get("extras"), list):
            extras = tuple(sorted({*extras, *previous["extras"]}))  # type: ignore[misc]
        prepare(venv, log, progress)
        write_stamp(venv, "installing", extras)
        install(venv, extras, log, progress)
        write_stamp(venv, "ready", extras)
        progress.say(f"environment ready after {progress.elapsed:.0f} s.")


def main(arguments: list[str]) -> int:
    """Set up, then become the command that was asked for."""
    venv = environment_directory()
    testing = arguments[:1] == ["test"]
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    try:
        ensure(venv, EXTRAS_TEST if testing else EXTRAS_RUN)
    except SetupError as error:
        print(f"safe-sysid: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("\nsafe-sysid: interrupted; the next call goes on from here.", file=sys.stderr)
        return 130
    if testing:
        os.chdir(ROOT)
        command = [str(venv / "bin" / "python"), "-m", "pytest", *arguments[1:]]
    else:
        command = [str(venv / "bin" / "safe-sysid"), *arguments]
    sys.stdout.flush()
    sys.stderr.flush()
    os.execve(command[0], command, clean_environment(venv))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
