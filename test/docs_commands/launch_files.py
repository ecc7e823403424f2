"""What the launch files declare, found by loading them beside a stand-in for `launch`, which no registry has."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from types import ModuleType
from typing import Any
from unittest import mock

from docs_commands.pages import ROOT

LAUNCH = ROOT / "launch"


class Declared:
    """Stands for DeclareLaunchArgument."""

    found: list[Declared] = []  # noqa: RUF012  what the file that is being loaded has declared

    def __init__(self, name: str, *, choices: list[str] | None = None, default_value: Any = None, **_: Any) -> None:
        self.name, self.choices, self.default = name, choices, default_value
        Declared.found.append(self)


class _Anything(ModuleType):
    """A module in which every name is there."""

    __path__: list[str] = []  # noqa: RUF012

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return Declared if name == "DeclareLaunchArgument" else mock.MagicMock(name=name)


class _Finder:
    """Finds launch and launch_ros, and whatever is below them."""

    @staticmethod
    def find_spec(name: str, path: Any = None, target: Any = None) -> Any:
        if name.partition(".")[0] in ("launch", "launch_ros"):
            return importlib.util.spec_from_loader(name, _Finder(), is_package=True)
        return None

    @staticmethod
    def create_module(spec: Any) -> ModuleType:
        return _Anything(spec.name)

    @staticmethod
    def exec_module(module: ModuleType) -> None:
        """Nothing to do."""


@contextmanager
def _stand_in() -> Iterator[None]:
    path, modules = list(sys.path), dict(sys.modules)
    finder: Any = _Finder
    sys.meta_path.insert(0, finder)
    for name in [
        name for name in sys.modules if name.partition(".")[0] in ("launch", "launch_ros", "safe_sysid_launch")
    ]:
        del sys.modules[name]
    try:
        yield
    finally:
        sys.meta_path.remove(finder)
        for name in set(sys.modules) - set(modules):
            if name.partition(".")[0] in ("launch", "launch_ros", "safe_sysid_launch"):
                del sys.modules[name]
        sys.modules.update(modules)
        sys.path[:] = path


@cache
def declared(file: str) -> dict[str, Declared]:
    """Arguments of a launch file by name.

    Raises:
        FileNotFoundError: there is no such launch file.
    """
    path = LAUNCH / file
    if not path.is_file():
        raise FileNotFoundError(f"{file}: there are {sorted(p.name for p in LAUNCH.glob('*.launch.py'))}")
    with _stand_in():
        Declared.found = []
        spec = importlib.util.spec_from_file_location("launch_file_of_the_docs", path)
        assert spec is not None
        assert spec.loader is not None
        spec.loader.exec_module(importlib.util.module_from_spec(spec))
        return {argument.name: argument for argument in Declared.found}


def why_not(file: str, arguments: dict[str, str]) -> str:
    """What is wrong with a launch line; empty: nothing."""
    try:
        known = declared(file)
    except FileNotFoundError as error:
        return str(error)
    for name, value in arguments.items():
        if name not in known:
            return f"{file} has no argument {name!r}; it has {sorted(known)}"
        choices = known[name].choices
        if choices is not None and value not in choices:
            return f"{name} of {file} is one of {choices}, not {value!r}"
    missing = [name for name, argument in known.items() if argument.default is None and name not in arguments]
    return f"{file} needs {missing}" if missing else ""
