"""Viewer process: beside a demo, or alone beside running nodes."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
import time
import webbrowser
from collections.abc import Callable, Mapping
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from safe_sysid.bring_up.child import PARENT
from safe_sysid.bring_up.domain import ros_environment
from safe_sysid.bring_up.fork_server import ForkServer
from safe_sysid.bring_up.processes import NodeProcess, ProcessDiedError, ProcessGroup
from safe_sysid.demo.options import Setup
from safe_sysid.parent import ONE_THREAD
from safe_sysid.robot.loading import load_robot

__all__ = ["DemoView", "ViewOptions", "run_view"]

#: Module of safe_sysid.nodes.
VIEWER = "viewer"
#: What the viewer prints when it can be opened.
ADDRESS = re.compile(r"^the view is at (http://\S+)$", re.MULTILINE)
#: s; for so long at most a viewer may take to come up: kernels may have to be compiled.
_STARTS = 240.0


@dataclass(frozen=True)
class ViewOptions:
    """Options of ``safe-sysid view``; see its help."""

    robot: str = "kinova_gen3"
    namespace: str = ""
    domain: int | None = None
    network: bool = False
    host: str = "127.0.0.1"
    port: int = 8080
    names: tuple[str, ...] = ()
    read_only: bool = False
    browser: bool = True
    overrides: Mapping[str, Any] = field(default_factory=dict)

    @property
    def parameters(self) -> dict[str, Any]:
        """ROS parameters of the viewer node."""
        found: dict[str, Any] = {
            "robot": self.robot,
            "host": self.host,
            "port": self.port,
            "names": ",".join(self.names),
            "read_only": self.read_only,
        }
        return {**found, "robot_settings": dict(self.overrides)} if self.overrides else found


class DemoView:
    """The viewer beside a demo: up before the nodes are, and still there when they have ended. Use as a context."""

    def __init__(self, setup: Setup, domain: int, say: Callable[[str], None]) -> None:
        """Nothing is started yet. ``setup``: of the run; whether there is a view at all is one of its options."""
        self._setup, self._domain, self._say = setup, domain, say
        self._running = ExitStack()
        self._process: NodeProcess | None = None
        self.address = ""

    def __enter__(self) -> DemoView:
        """Start it and wait for its address. Raises ProcessDiedError: it ended at once, as where its port is taken."""
        setup = self._setup
        options = setup.options
        if options.view is None:
            return self
        given = ViewOptions(options.robot, port=options.view, overrides=options.overrides).parameters
        given["results"] = str(setup.run_dir / "summary.json")
        file, log = setup.run_dir / "parameters" / f"{VIEWER}.yaml", setup.run_dir / "log" / f"{VIEWER}.log"
        file.parent.mkdir(exist_ok=True)
        file.write_text(yaml.safe_dump({"/**": {"ros__parameters": given}}))
        environment = ros_environment(self._domain, setup.run_dir / "log" / "ros", options.lockstep)
        with ExitStack() as starting:
            # Not the nodes' server: a browser need not wait until that has loaded, or compiled, what they begin with.
            group = starting.enter_context(ProcessGroup(starting.enter_context(ForkServer())))
            arguments = ("--ros-args", "--params-file", str(file))
            self._process = group.start(VIEWER, arguments, environment, log)
            end = time.monotonic() + _STARTS
            while not self.address:
                group.check()
                if found := ADDRESS.search(log.read_text(errors="replace")):
                    self.address = found[1]
                elif time.monotonic() > end:
                    raise ProcessDiedError(f"the view does not start within {_STARTS:g} s: expected an address")
                time.sleep(0.05)
            self._running = starting.pop_all()
        # Whatever --quiet says: the key is in it, without this line nobody can look.
        print(f"look at {self.address}", flush=True)
        return self

    def __exit__(self, *_: object) -> None:
        self._running.close()

    def stay(self) -> None:
        """Until Ctrl-C, or until the viewer ends; at once where there is none."""
        if self._process is None:
            return
        self._say(f"the view stays at {self.address}; Ctrl-C ends it")
        with suppress(KeyboardInterrupt):
            while self._process.process.poll() is None:
                time.sleep(0.1)


def environment(options: ViewOptions) -> dict[str, str]:
    """Of the viewer: this machine only, unless the network is asked for; one thread per library."""
    found = {**os.environ, "PYTHONUNBUFFERED": "1", **ONE_THREAD}
    if options.domain is not None:
        found["ROS_DOMAIN_ID"] = str(options.domain)
    if not options.network:
        # The older ROS_LOCALHOST_ONLY would override the range; peers and servers would lead out of this machine.
        for key in ("ROS_LOCALHOST_ONLY", "ROS_STATIC_PEERS", "ROS_DISCOVERY_SERVER"):
            found.pop(key, None)
        found["ROS_AUTOMATIC_DISCOVERY_RANGE"] = "LOCALHOST"
    return found


def run_view(options: ViewOptions) -> int:
    """Run the viewer until Ctrl-C; returns its exit status.

    Raises SafeSysIdError: the robot cannot be read (nothing was started).
    """
    load_robot(options.robot, **options.overrides)
    with tempfile.TemporaryDirectory(prefix="safe_sysid_view_") as directory:
        file = Path(directory) / "viewer.yaml"
        file.write_text(yaml.safe_dump({"/**": {"ros__parameters": options.parameters}}), encoding="utf-8")
        command = [sys.executable, "-m", "safe_sysid.bring_up.child", VIEWER, "--ros-args", "--params-file", str(file)]
        command += ["-r", f"__ns:=/{options.namespace}"] if options.namespace else []
        process = subprocess.Popen(
            command,
            env={**environment(options), PARENT: str(os.getpid())},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            text=True,
            encoding="utf-8",
            errors="replace",
        )
        try:
            return _follow(process, options)
        finally:
            _end(process)


def _follow(process: subprocess.Popen[str], options: ViewOptions) -> int:
    """Hand on what it says until it ends."""
    if process.stdout is None:
        return 1
    try:
        for line in process.stdout:
            if found := ADDRESS.match(line):
                shown = "without buttons" if options.read_only else "with buttons"
                print(f"safe-sysid view: open {found[1]} ({shown}; Ctrl-C ends it)", flush=True)
                if options.browser and _has_screen():
                    webbrowser.open(found[1])
            elif not line.startswith("READY"):
                print(line, end="", flush=True)
    except KeyboardInterrupt:
        return 0
    return process.wait()


def _has_screen() -> bool:
    """A browser that would take over the terminal is none to open."""
    return bool(os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY"))


def _end(process: subprocess.Popen[str]) -> None:
    process.terminate()
    try:
        process.wait(6.0)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
    if process.stdout is not None:
        process.stdout.close()
