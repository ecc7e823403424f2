"""Where the environment lies, what it holds, and who is working on it."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import hashlib
import json
import os
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

from progress import Progress, SetupError

ROOT = Path(__file__).resolve().parents[2]
CONSTRAINTS = ROOT / "scripts" / "constraints.txt"
INPUTS = (ROOT / "pyproject.toml", ROOT / "setup.py", ROOT / "setup.cfg", CONSTRAINTS)
STAMP = "safe-sysid.json"


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
    command = [str(venv / "bin" / "python"), "-I", "-S", "-c", "import sys; print('%d.%d' % sys.version_info[:2])"]
    try:
        version = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True).stdout.strip()
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
        way_out = (
            "Choose another place for the environment:  SAFE_SYSID_VENV=~/safe-sysid-env ./safe-sysid ..."
            if os.access(ROOT, os.W_OK)
            else "Clone the repository to a place where you may write."
        )
        raise SetupError(f"cannot write {path}: {error.strerror}.\n  {way_out}") from error
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
