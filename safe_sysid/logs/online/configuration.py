"""Configuration of a node as text: latched on ``~/configuration``, kept in bags, read again by a replay.

Without ROS: a bag is read without it.
"""

from __future__ import annotations

import platform
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import numpy as np
import yaml
from pydantic import BaseModel

from safe_sysid import __version__
from safe_sysid.errors import ConfigError, SafeSysIdError, short
from safe_sysid.identification.certificates.files.robot_identity import robot_to_json
from safe_sysid.logs.online.journal import file_digest
from safe_sysid.robot.files.yaml_file import parse_yaml
from safe_sysid.robot.identity import digest, identity
from safe_sysid.robot.loading import load_robot
from safe_sysid.robot.model import RobotModel
from safe_sysid.robot.scenes.scene import config_path

__all__ = ["Configuration", "ConfigurationError", "configuration_text", "machine", "proof_digest", "read_configuration"]

FORMAT = 2
#: Whose last digit may depend on their version.
_LIBRARIES = ("numpy", "scipy", "numba", "pin", "highspy", "clarabel")


class ConfigurationError(SafeSysIdError):
    """A text that is no configuration, or one that this installation cannot build the robot of."""


def settings_of(model: RobotModel) -> dict[str, Any]:
    """All settings of a robot, defaults filled in and overrides applied, as plain values; repr keeps every bit."""
    return {name: _plain(value) for name, value in model.settings}


def proof_digest(model: RobotModel, lockstep: bool, release: str = __version__) -> str:
    """SHA-256 of all that proofs of bounds, tracking and plans rest on: two nodes that differ must not work together.

    Everything of the scope ``run`` (:mod:`safe_sysid.robot.identity`). Not in it: the controller's gains, which an
    identifier never computes: they are a function of what is in it, this package's version included. Nor the scene,
    which bounds do not rest on (:func:`~safe_sysid.robot.identity.scene_identity`).

    Args:
        model: the arm, overrides applied; its ``controller.law`` is the law in force.
        lockstep: whether the gains are those of a simulation that waits for every command.
    """
    return digest({**identity(model, "run"), "lockstep": lockstep, "version": release})


def configuration_text(
    node: str,
    kind: str,
    model: RobotModel,
    *,
    robot: str,
    lockstep: bool,
    parameters: Mapping[str, Any],
    files: Mapping[str, Path | None] | None = None,
) -> str:
    """YAML text of everything that what a node does depends on. Returns text that :func:`read_configuration` reads.

    Args:
        kind: ``controller``, ``planner``, ``identifier``, ``plant`` or ``recorder``.
        robot: name of the packaged robot or path of the YAML file, as the node was given it.
        parameters: of the node, by name; plain values.
        files: that the node read at its start (tare, bounds, scene), by parameter; None or missing ones are left out.
    """
    path = config_path(robot, "config")
    read = {
        name: {"path": str(file.resolve()), "sha256": file_digest(file)}
        for name, file in (files or {}).items()
        if file is not None and file.is_file()
    }
    content = {
        "format": FORMAT,
        "package": {"name": "safe_sysid", "version": __version__},
        "node": node,
        "kind": kind,
        "robot": {
            "name": model.name,
            "given": str(robot),
            "file": str(path.resolve()),
            "urdf_sha256": robot_to_json(model)["urdf_sha256"],
            "proofs_sha256": proof_digest(model, lockstep),
        },
        "lockstep": lockstep,
        "files": read,
        "parameters": {name: _plain(value) for name, value in sorted(parameters.items())},
        "settings": settings_of(model),
        "machine": machine(),
    }
    return yaml.safe_dump(content, sort_keys=False, allow_unicode=True, width=120)


def machine() -> dict[str, str]:
    """What the last digits of a computation may depend on beside its input: libraries and processor."""
    found = {"python": platform.python_version(), "processor": _processor()}
    for name in _LIBRARIES:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            found[name] = "not installed"
    return found


def _processor() -> str:
    try:
        with open("/proc/cpuinfo", encoding="utf-8", errors="replace") as stream:
            for line in stream:
                if line.startswith("model name"):
                    return line.partition(":")[2].strip()
    except OSError:
        pass
    return platform.processor() or platform.machine()


@dataclass(frozen=True, eq=False)
class Configuration:
    """A configuration that was read."""

    node: str  #: full name of the node; kind: ``identifier``, ..
    kind: str
    version: str
    robot: Mapping[str, str]  #: name, given, file, urdf_sha256, proofs_sha256
    lockstep: bool  #: whether simulated time waited for everyone
    files: Mapping[str, Mapping[str, str]]  #: path and sha256 of what was read at the start, by parameter
    parameters: Mapping[str, Any]
    settings: Mapping[str, Any]
    machine: Mapping[str, str]

    def load_model(self, robot: str | None = None) -> RobotModel:
        """The robot with the recorded settings; from the file that the node was given, or another one.

        ``robot``: name or path of a robot file that stands for the recorded one, whose path may not exist here.

        Raises:
            ConfigurationError: the result is not the recorded robot.
            SafeSysIdError: a robot file that cannot be used.
        """
        source = robot or self._source()
        model = load_robot(source, **self.settings)
        for what, found in (
            ("urdf_sha256", robot_to_json(model)["urdf_sha256"]),
            ("proofs_sha256", proof_digest(model, self.lockstep, self.version)),
        ):
            if found != self.robot[what]:
                words = {"urdf_sha256": "its URDF", "proofs_sha256": "what proofs rest on"}[what]
                raise ConfigurationError(
                    f"robot {source}: {words} has digest {found[:16]}...: expected {self.robot[what][:16]}..., "
                    f"of the run with {self.node}; say with --robot where that robot's file is"
                )
        return model

    def _source(self) -> str:
        given, file = self.robot["given"], self.robot["file"]
        return file if Path(file).is_file() else given

    def machine_differences(self) -> list[str]:
        """Libraries and processor that are not those of the run, one line each."""
        here = machine()
        return [
            f"{name}: {theirs} in the run, {here[name]} here"
            for name, theirs in self.machine.items()
            if name in here and here[name] != theirs
        ]


def read_configuration(text: str) -> Configuration:
    """Read what :func:`configuration_text` wrote; whoever wrote it.

    ``text``: of a message on a ``configuration`` topic.

    Raises:
        ConfigurationError: not such a text; field, value and what was expected.
    """
    try:
        content = parse_yaml(text, "configuration")
    except ConfigError as error:
        raise ConfigurationError(str(error)) from None
    if content.get("format") != FORMAT:
        raise ConfigurationError(
            f"configuration: format = {short(content.get('format'), 60)}: expected {FORMAT} (recorded by another "
            "version of this package: replay it with that one)"
        )
    for key, kind in _FIELDS.items():
        if not isinstance(content.get(key), kind):
            raise ConfigurationError(f"configuration: {key} = {str(content.get(key))[:60]!r}: expected {kind.__name__}")
    texts = {"package": ("version",), "robot": ("name", "given", "file", "urdf_sha256", "proofs_sha256")}
    for section, keys in texts.items():
        for key in keys:
            if not isinstance(content[section].get(key), str):
                raise ConfigurationError(f"configuration: {section}.{key}: expected a text")
    for name, entry in content["files"].items():
        if not isinstance(entry, dict) or not all(isinstance(entry.get(key), str) for key in ("path", "sha256")):
            raise ConfigurationError(f"configuration: files.{name}: expected path and sha256")
    return Configuration(
        node=content["node"],
        kind=content["kind"],
        version=content["package"]["version"],
        robot=content["robot"],
        lockstep=content["lockstep"],
        files=content["files"],
        parameters=content["parameters"],
        settings=content["settings"],
        machine={str(key): str(value) for key, value in content["machine"].items()},
    )


_FIELDS: Mapping[str, type] = {
    "package": dict,
    "node": str,
    "kind": str,
    "robot": dict,
    "lockstep": bool,
    "files": dict,
    "parameters": dict,
    "settings": dict,
    "machine": dict,
}


def _plain(value: Any) -> Any:
    """Values that YAML and JSON know, exactly."""
    if isinstance(value, BaseModel):
        return {name: _plain(entry) for name, entry in value}
    if isinstance(value, Mapping):
        return {str(key): _plain(entry) for key, entry in value.items()}
    if isinstance(value, np.ndarray):
        return _plain(value.tolist())
    if isinstance(value, (list, tuple)):
        return [_plain(entry) for entry in value]
    if isinstance(value, np.generic):
        return value.item()
    return value if isinstance(value, (bool, int, float, str)) or value is None else str(value)
