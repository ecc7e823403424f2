"""``python launch_stand_in.py FILE name:=value ..``: a launch file run by ``launch``, or by the little that it needs.

``launch`` and ``launch_ros`` are part of ROS 2 and in no registry. Where they are not installed their place is taken by
what is below: processes are started, their ends told, coroutines run; SIGINT ends all, SIGTERM leaves them alone.
"""

from __future__ import annotations

import asyncio
import importlib.util
import itertools
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable
from logging import StreamHandler, getLogger
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

STOCK = importlib.util.find_spec("launch") is not None and importlib.util.find_spec("launch_ros") is not None


class Entity:
    """An action, a substitution or an event: what it was made with."""

    def __init__(self, *args: Any, **words: Any) -> None:
        self.args, self.words = args, words


def kind(name: str) -> type[Entity]:
    """A class of that name."""
    return type(name, (Entity,), {})


DeclareLaunchArgument, LogInfo, SetEnvironmentVariable = map(
    kind, ("DeclareLaunchArgument", "LogInfo", "SetEnvironmentVariable")
)
OpaqueFunction, OpaqueCoroutine, Shutdown = map(kind, ("OpaqueFunction", "OpaqueCoroutine", "Shutdown"))
Node, LifecycleNode, ExecuteProcess = map(kind, ("Node", "LifecycleNode", "ExecuteProcess"))
LaunchDescription, IncludeLaunchDescription, ParameterValue = map(
    kind, ("LaunchDescription", "IncludeLaunchDescription", "ParameterValue")
)


class LaunchConfiguration(Entity):
    """Value of an argument."""

    def perform(self, context: Launch) -> str:
        """As a text."""
        return context.values[self.args[0]]


class Launch:
    """The context of a launch, and the launch itself."""

    noninteractive = True

    def __init__(self, values: dict[str, str]) -> None:
        self.values, self.is_shutdown, self.node = values, False, None
        self.processes: list[tuple[subprocess.Popen[bytes], Entity]] = []
        self.tasks: list[asyncio.Task[None]] = []
        self._number, self._files = itertools.count(1), tempfile.mkdtemp()

    def visit(self, entity: Entity) -> None:
        """Do it."""
        if isinstance(entity, DeclareLaunchArgument):
            self.values.setdefault(entity.args[0], entity.words.get("default_value", ""))
        elif isinstance(entity, OpaqueFunction):
            self.visit_all(entity.words["function"](self))
        elif isinstance(entity, SetEnvironmentVariable):
            os.environ[entity.args[0]] = entity.args[1]
        elif isinstance(entity, OpaqueCoroutine):
            self.tasks.append(asyncio.ensure_future(entity.words["coroutine"](self)))
        elif isinstance(entity, Shutdown):
            self.shut_down(entity.words["reason"])
        elif isinstance(entity, (Node, LifecycleNode)):
            self.tasks.append(asyncio.ensure_future(self._run(entity)))

    def visit_all(self, entities: list[Entity] | None) -> None:
        """One after the other."""
        for entity in entities or []:
            self.visit(entity)

    async def emit_event(self, event: Entity) -> None:
        """Something was said."""
        included = event.args[0].args[0] if isinstance(event, IncludeLaunchDescription) else [event]
        self.visit_all(included)

    async def _run(self, node: Entity) -> None:
        words, number = node.words, next(self._number)
        command = [sys.executable, "-m", f"safe_sysid.nodes.{words['executable'].removesuffix('_node')}.node"]
        command += ["--ros-args", *words["ros_arguments"], "-r", f"__node:={words['name']}"]
        command += [word for old, new in words["remappings"] for word in ("-r", f"{old}:={new}")]
        for parameters in words["parameters"]:
            if isinstance(parameters, dict):
                plain = {k: v.args[0] if isinstance(v, Entity) else v for k, v in parameters.items()}
                file = Path(self._files) / f"{number}_{id(parameters)}.yaml"
                file.write_text(json.dumps({"/**": {"ros__parameters": plain}}))
                parameters = str(file)
            command += ["--params-file", parameters]
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL)
        print(f"{words['executable']} has pid {process.pid}", flush=True)
        self.processes.append((process, node))
        while process.poll() is None:
            await asyncio.sleep(0.02)
        self.visit_all(words["on_exit"](SimpleNamespace(returncode=process.returncode), self))

    def shut_down(self, reason: str) -> None:
        """End all, with the patience that each node asks for."""
        if self.is_shutdown:
            return
        print(f"shutdown: {reason}", flush=True)
        self.is_shutdown = True
        loop = asyncio.get_running_loop()
        for process, node in self.processes:
            if process.poll() is None:
                process.send_signal(signal.SIGINT)
            patience = float(node.words.get("sigterm_timeout", 5.0))
            loop.call_later(patience, process.terminate)
            loop.call_later(patience + float(node.words.get("sigkill_timeout", 5.0)), process.kill)

    async def run(self, describe: Callable[[], Entity]) -> None:
        """From the description to the end of all processes."""
        asyncio.get_running_loop().add_signal_handler(signal.SIGINT, self.shut_down, "ctrl-c (SIGINT)")
        self.visit_all(describe().args[0])
        while not (self.is_shutdown and all(process.poll() is not None for process, _ in self.processes)):
            for task in self.tasks:
                if task.done():
                    task.result()
            await asyncio.sleep(0.02)


def get_ros_node(context: Launch) -> Any:
    """A node that a thread spins, as launch_ros has one."""
    import rclpy
    from rclpy.executors import ExternalShutdownException, SingleThreadedExecutor
    from rclpy.signals import SignalHandlerOptions

    if context.node is None:
        rclpy.init(args=[], signal_handler_options=SignalHandlerOptions.NO)
        context.node = rclpy.create_node("launch_stand_in")
        executor = SingleThreadedExecutor()
        executor.add_node(context.node)

        def spin() -> None:
            while rclpy.ok():
                try:
                    executor.spin_once(timeout_sec=0.1)
                except ExternalShutdownException:
                    return

        threading.Thread(target=spin, daemon=True).start()
    return context.node


def install() -> None:
    """Take the place of the packages that are not installed."""
    here = dict(globals())
    actions = ("DeclareLaunchArgument", "LogInfo", "SetEnvironmentVariable", "OpaqueFunction", "OpaqueCoroutine",
               "Shutdown", "ExecuteProcess")  # fmt: skip
    log = getLogger("launch")
    log.addHandler(StreamHandler(sys.stdout))
    log.setLevel("INFO")
    content: dict[str, dict[str, Any]] = {
        "launch": {"LaunchContext": Launch, "LaunchDescription": LaunchDescription, "Event": Entity,
                   "LaunchDescriptionEntity": Entity},
        "launch.actions": {name: here[name] for name in actions},
        "launch.events": {"IncludeLaunchDescription": IncludeLaunchDescription, "Shutdown": Shutdown},
        "launch.events.process": {"ProcessExited": Entity},
        "launch.logging": {"get_logger": log.getChild},
        "launch.substitutions": {"LaunchConfiguration": LaunchConfiguration},
        "launch_ros": {},
        "launch_ros.actions": {"Node": Node, "LifecycleNode": LifecycleNode},
        "launch_ros.parameter_descriptions": {
            "ParameterValue": lambda value, value_type: ParameterValue(value)
        },
        "launch_ros.ros_adapters": {"get_ros_node": get_ros_node},
    }  # fmt: skip
    for name, values in content.items():
        module = sys.modules[name] = ModuleType(name)
        vars(module).update(values)
        if "." in name:
            setattr(sys.modules[name.rpartition(".")[0]], name.rpartition(".")[2], module)


def main(file: str, *arguments: str) -> int:
    """Run a launch file until it has ended."""
    values = dict(argument.split(":=", 1) for argument in arguments)
    if STOCK:
        from launch import LaunchDescription as Description
        from launch import LaunchService
        from launch.actions import IncludeLaunchDescription as Include
        from launch.launch_description_sources import PythonLaunchDescriptionSource

        service = LaunchService(noninteractive=True)
        source = PythonLaunchDescriptionSource(file)
        service.include_launch_description(Description([Include(source, launch_arguments=values.items())]))
        return service.run()
    install()
    spec = importlib.util.spec_from_file_location("launch_file", file)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    asyncio.run(Launch(values).run(module.generate_launch_description))
    sys.stdout.flush()
    os._exit(0)  # rclpy's threads have nothing left to do


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
