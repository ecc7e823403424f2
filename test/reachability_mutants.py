"""Broken copies of the reachability modules, uncompiled, so that their inner functions can be replaced."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import ModuleType
from typing import Any

import numba

ROOM = "safe_sysid.reachability"
PARTS = (
    "affine",
    "cells",
    "magnitudes",
    "rotations",
    "torque_kernel",
    "torque",
    "pose",
    "separation",
    "clearance",
    "swept",
)


def _plain(*arguments: Any, **_: Any) -> Any:
    """In numba.njit's place: nothing is compiled."""
    return arguments[0] if arguments and callable(arguments[0]) else lambda function: function


@contextmanager
def fresh_modules() -> Iterator[dict[str, ModuleType]]:
    """The modules of the room by their last names, imported once more without compilation; all is put back after."""
    kept = {name: module for name, module in sys.modules.items() if name.startswith(f"{ROOM}.")}
    package = sys.modules[ROOM] if ROOM in sys.modules else importlib.import_module(ROOM)
    attributes = {name: value for name, value in vars(package).items() if isinstance(value, ModuleType)}
    for name in kept:
        del sys.modules[name]
    compiled, numba.njit = numba.njit, _plain
    try:
        for part in PARTS:
            importlib.import_module(f"{ROOM}.{part}")
        numba.njit = compiled
        yield {
            name.removeprefix(f"{ROOM}."): module for name, module in sys.modules.items() if name.startswith(f"{ROOM}.")
        }
    finally:
        numba.njit = compiled
        for name in [name for name in sys.modules if name.startswith(f"{ROOM}.")]:
            del sys.modules[name]
        sys.modules.update(kept)
        for name, value in attributes.items():
            setattr(package, name, value)


def replace(modules: dict[str, ModuleType], where: str, name: str, change: Callable[[Any], Any]) -> None:
    """Put ``change(original)`` in the place of a function, in every module that imported it.

    Raises:
        AttributeError: there is no such function any more: the mutation has to be written anew.
    """
    original = getattr(modules[where], name)
    changed = change(original)
    for module in modules.values():
        for key, value in list(vars(module).items()):
            if value is original:
                setattr(module, key, changed)


def set_everywhere(modules: dict[str, ModuleType], **constants: float) -> None:
    """Give constants a new value in every module that has them."""
    found = set()
    for module in modules.values():
        for name, value in constants.items():
            if hasattr(module, name):
                setattr(module, name, value)
                found.add(name)
    if found != set(constants):
        raise AttributeError(f"constants {set(constants) - found}: no module has them any more")
