"""Makes the environment of this clone on the first call, then runs safe-sysid, or the tests, in it.

Started by `./safe-sysid`. Only the standard library: at this point there is nothing else. What it leaves
behind lies in one directory (`.venv`, or $SAFE_SYSID_VENV), with a lock and a log beside it; all of that may
be deleted at any time.
"""

from __future__ import annotations

import os
import shutil
import signal
import sys
from pathlib import Path

from commands import clean_environment
from creation import prepare
from installation import install
from machine import DISK_NEEDED, check_machine, install_system_packages, missing_libraries
from progress import Progress, SetupError
from state import ROOT, environment_directory, is_ready, locked, read_stamp, write_stamp

EXTRAS_RUN = ("ros", "sim")
EXTRAS_TEST = ("dev", "ros", "sim")


def ensure(venv: Path, extras: tuple[str, ...]) -> None:
    """Have the environment ready for this clone; does nothing, fast, if it is."""
    if is_ready(venv, extras):
        return
    progress = Progress()
    fresh = read_stamp(venv).get("state") != "ready"
    size = (
        "about 300 MB to download, 1.4 GB on disk, 1 to 5 minutes" if fresh else "usually less than a minute"
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
        # The whole suite runs on all cores, what is asked for by name in one process, where --pdb works.
        whole = set(arguments[1:]) <= {"--all", "-q", "-v", "-x"}
        workers = ["--numprocesses", "auto", "--dist", "loadgroup"] if whole else []
        command = [str(venv / "bin" / "python"), "-m", "pytest", *workers, *arguments[1:]]
    else:
        command = [str(venv / "bin" / "safe-sysid"), *arguments]
    sys.stdout.flush()
    sys.stderr.flush()
    os.execve(command[0], command, clean_environment(venv))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
