"""Running programs in the environment: clean variables, progress, and what their failures mean."""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import selectors
import subprocess
from collections import deque
from collections.abc import Callable, Iterator
from pathlib import Path

from progress import Progress
from state import ROOT

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
    # Without bytecode each node would compile the whole package again: two seconds of every start.
    env.pop("PYTHONDONTWRITEBYTECODE", None)
    env["AMENT_PREFIX_PATH"] = str(venv)
    env["PATH"] = os.pathsep.join([str(venv / "bin"), env.get("PATH", os.defpath)])
    env["VIRTUAL_ENV"] = str(venv)
    env.setdefault("NUMBA_CACHE_DIR", str(kernels_directory(venv)))
    return env


def kernels_directory(venv: Path) -> Path:
    """Where compiled kernels of this very source are kept.

    Numba compiles a kernel anew when the file that defines it changes, not when one that it calls does, or that it has
    constants from (all in ``core``): kernels of an older source would go on working with what is no longer there.
    """
    digest = hashlib.sha256()
    package = ROOT / "safe_sysid"
    for path in sorted(package.rglob("*.py")):
        text = path.read_bytes()
        if b"njit" in text or path.parent == package / "core":
            digest.update(str(path.relative_to(ROOT)).encode() + b"\0" + text + b"\0")
    return venv / "cache" / "numba" / digest.hexdigest()[:16]


def run(
    command: list[str], doing: str, log: Path, progress: Progress, env: dict[str, str] | None = None
) -> tuple[int, list[str]]:
    """Run a command, tell how far pip is, keep everything in the log. Returns exit status and last lines."""
    tail: deque[str] = deque(maxlen=400)
    with log.open("a", encoding="utf-8") as sink:
        sink.write(f"$ {' '.join(command)}\n")
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, cwd=ROOT, env=env
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
