"""Makes the environment of this clone on the first call, then runs safe-sysid, the tests or the docs in it.

Started by `./safe-sysid`. Only the standard library: at this point there is nothing else. What it leaves
behind lies in one directory (`.venv`, or $SAFE_SYSID_VENV), with a lock and a log beside it; all of that may
be deleted at any time.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

from commands import clean_environment
from creation import prepare
from installation import install
from machine import BROWSER, DISK_NEEDED, browser_wanted, check_machine, install_system_packages, missing_libraries
from progress import Progress, SetupError
from state import ROOT, environment_directory, is_ready, locked, read_stamp, write_stamp

EXTRAS_RUN = ("ros", "sim", "view")
EXTRAS_TEST = ("dart", "dev", "ros", "sim", "view")
EXTRAS_DOCS = ("docs",)
SITE = ROOT / "build" / "site"


def ensure(venv: Path, extras: tuple[str, ...]) -> None:
    """Have the environment ready for this clone; does nothing, fast, if it is."""
    if is_ready(venv, extras):
        return
    progress = Progress()
    fresh = read_stamp(venv).get("state") != "ready"
    size = "about 300 MB to download, 1.4 GB on disk, 1 to 5 minutes" if fresh else "usually less than a minute"
    progress.say(f"{'setting up' if fresh else 'bringing up to date'} its environment in {venv}, once ({size}).")
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
            install_system_packages(missing, f"a system library is missing ({', '.join(missing)})", log, progress)
        previous = read_stamp(venv)
        if previous.get("clone") == str(ROOT) and isinstance(previous.get("extras"), list):
            extras = tuple(sorted({*extras, *previous["extras"]}))  # type: ignore[misc]
        prepare(venv, log, progress)
        write_stamp(venv, "installing", extras)
        install(venv, extras, log, progress)
        write_stamp(venv, "ready", extras)
        progress.say(f"environment ready after {progress.elapsed:.0f} s.")


def ensure_browser(venv: Path) -> None:
    """Have the browser that some tests drive, where CI is set; elsewhere those tests are skipped and say why."""
    if browser_wanted():
        progress = Progress()
        with locked(venv, progress):
            why = "tests of the live view and of reports need a browser, and CI is set"
            install_system_packages([BROWSER], why, venv.with_name(venv.name + ".log"), progress)


def docs(arguments: list[str], venv: Path) -> int:
    """Build the docs site, every warning an error; `--serve` shows it to this machine alone until Ctrl-C."""
    python, env = str(venv / "bin" / "python"), clean_environment(venv)
    build = [python, "-m", "sphinx", "--fail-on-warning", "--keep-going", "--quiet", "-b", "html"]
    if status := subprocess.call([*build, str(ROOT / "docs"), str(SITE)], env=env):
        return status
    print(f"docs: {SITE / 'index.html'}", flush=True)
    if not arguments:
        return 0
    os.execve(python, [python, "-m", "http.server", "--bind", "127.0.0.1", "--directory", str(SITE)], env)


def main(arguments: list[str]) -> int:
    """Set up, then become the command that was asked for."""
    venv = environment_directory()
    what = arguments[0] if arguments else ""
    if what == "docs" and set(arguments[1:]) - {"--serve"}:
        print("usage: ./safe-sysid docs [--serve]", file=sys.stderr)
        return 2
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    try:
        ensure(venv, {"test": EXTRAS_TEST, "docs": EXTRAS_DOCS}.get(what, EXTRAS_RUN))
        if what == "test":
            ensure_browser(venv)
    except SetupError as error:
        print(f"safe-sysid: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("\nsafe-sysid: interrupted; the next call goes on from here.", file=sys.stderr)
        return 130
    if what == "docs":
        return docs(arguments[1:], venv)
    if what == "test":
        os.chdir(ROOT)
        # The whole suite runs on all cores, what is asked for by name in one process, where --pdb works.
        whole = all(a in ("--all", "-q", "-v", "-x") or a.startswith("--durations") for a in arguments[1:])
        # In the order of test/conftest.py: long ones first, or the last of them keeps all but one core waiting.
        workers = ["--numprocesses", "auto", "--dist", "loadgroup", "--no-loadscope-reorder"] if whole else []
        command = [str(venv / "bin" / "python"), "-m", "pytest", *workers, *arguments[1:]]
    else:
        command = [str(venv / "bin" / "safe-sysid"), *arguments]
    sys.stdout.flush()
    sys.stderr.flush()
    os.execve(command[0], command, clean_environment(venv))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
