"""A learned hybrid model as one file: a ``.npz`` with weights, units, joints and a checksum over all of it."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from safe_sysid.core.layout import ParameterLayout
from safe_sysid.errors import SafeSysIdError
from safe_sysid.learning.archive import read_archive, write_archive
from safe_sysid.learning.neural.models import MODELS, OPTIMIZATIONS, SEEN, Learned, Scaling, network_shapes
from safe_sysid.robot.parameters import is_consistent

__all__ = ["SCHEMA", "HybridFileError", "read_hybrid", "write_hybrid"]

#: Version of the file format.
SCHEMA = "safe_sysid hybrid 2"
_WEIGHT = "weight:"
_SCALING = tuple(field.name for field in fields(Scaling))
#: Kind of numpy and dimensions.
_ARRAYS = {
    "schema": ("U", 0),
    "checksum": ("U", 0),
    "name": ("U", 0),
    "optimization": ("U", 0),
    "seed": ("i", 0),
    "joint_names": ("U", 1),
    "rate_hz": ("f", 0),
    "sees": ("U", 0),
    "every": ("i", 0),
    "theta": ("f", 1),
    "provenance": ("U", 2),
    **dict.fromkeys(_SCALING, ("f", 1)),
}
#: A network has at most so many numbers (the paper's have 46,008): more do not fit into a tick.
_MOST = 200_000
#: No honest number of a model is larger, and no deviation smaller: beyond, sums of them would be no numbers any more.
_LARGEST, _SMALLEST = 1e9, 1e-9
#: Ticks that a network's torque may be held for.
_SLOWEST = 1000


class HybridFileError(SafeSysIdError):
    """The file of a hybrid model cannot be read or written, or is of another arm."""


def _checksum(arrays: Mapping[str, NDArray[Any]]) -> str:
    digest = hashlib.sha256()
    for name in sorted(set(arrays) - {"checksum"}):
        a = np.ascontiguousarray(arrays[name])
        digest.update(f"{name}\0{a.dtype.str}\0{a.shape}\0".encode())
        digest.update(a.tobytes())
    return digest.hexdigest()


def write_hybrid(path: str | Path, learned: Learned) -> None:
    """Write a model, whole or not at all. ``path``: of the file; ``.npz`` is not appended; ``learned``: to write.

    Raises:
        HybridFileError: a Deep Lagrangian network, which no control process runs, or the file cannot be written.
    """
    if learned.kind.rigid == "delan":
        raise HybridFileError(f"model {learned.name}: {learned.kind.words} is trained for comparison and has no file")
    arrays: dict[str, Any] = {
        "schema": np.array(SCHEMA),
        "name": np.array(learned.name),
        "optimization": np.array(learned.optimization),
        "seed": np.array(learned.seed, np.int64),
        "joint_names": np.array(learned.joint_names, np.str_),
        "rate_hz": np.array(learned.rate_hz),
        "sees": np.array(learned.sees),
        "every": np.array(learned.every, np.int64),
        "theta": np.zeros(0) if learned.theta is None else np.asarray(learned.theta, np.float64),
        "provenance": np.array(list(learned.provenance.items()), np.str_).reshape(-1, 2),
        **{name: np.asarray(getattr(learned.scaling, name), np.float64) for name in _SCALING},
        **{_WEIGHT + name: np.asarray(value, np.float64) for name, value in learned.weights.items()},
    }
    arrays["checksum"] = np.array(_checksum(arrays))
    write_archive(path, arrays, HybridFileError)


def read_hybrid(path: str | Path, joint_names: Sequence[str] | None = None) -> Learned:
    """Read and check a model that :func:`write_hybrid` wrote.

    ``path``: of the file; ``joint_names``: of the arm that it is for; None: any.

    Raises:
        HybridFileError: no such file or format, a checksum that does not fit, an array missing or of another type or
            shape, numbers that are not finite, links that no arm has, or other joints.
    """
    arrays = read_archive(path, "a hybrid model", SCHEMA, _ARRAYS, HybridFileError)
    if str(arrays["checksum"]) != (found := _checksum(arrays)):
        raise HybridFileError(f"{path}: checksum {str(arrays['checksum'])[:64]!r}: expected {found!r} of its content")
    try:
        learned = _learned(arrays)
        check(learned)
        if joint_names is not None and learned.joint_names != tuple(joint_names):
            ours, theirs = ", ".join(learned.joint_names), ", ".join(joint_names)
            raise HybridFileError(f"joints of the model are {ours}: expected those of the arm, {theirs}")
    except HybridFileError as error:
        raise HybridFileError(f"{path}: {error}") from None
    return learned


def _learned(arrays: Mapping[str, NDArray[Any]]) -> Learned:
    weights = {name.removeprefix(_WEIGHT): a for name, a in arrays.items() if name.startswith(_WEIGHT)}
    unknown = sorted(set(arrays) - set(_ARRAYS) - {_WEIGHT + name for name in weights})
    if unknown:
        raise HybridFileError(f"array {unknown[0][:80]!r}: expected {', '.join(_ARRAYS)} and weights")
    if arrays["provenance"].shape[1] != 2:
        raise HybridFileError(f"provenance has shape {arrays['provenance'].shape}: expected (K, 2)")
    return Learned(
        str(arrays["name"]),
        str(arrays["optimization"]),
        int(arrays["seed"]),
        tuple(map(str, arrays["joint_names"])),
        float(arrays["rate_hz"]),
        arrays["theta"] if arrays["theta"].size else None,
        Scaling(*(arrays[name] for name in _SCALING)),
        weights,
        {str(key): str(value) for key, value in arrays["provenance"]},
        str(arrays["sees"]),
        int(arrays["every"]),
    )


def check(learned: Learned) -> None:
    """Refuse a model that cannot be run. ``learned``: to check.

    Raises:
        HybridFileError: names what is wrong, its value and what was expected.
    """

    def need(good: bool, what: str, expected: str) -> None:
        if not good:
            raise HybridFileError(f"{what}: expected {expected}")

    need(learned.name in MODELS, f"name = {learned.name[:80]!r}", f"one of {', '.join(MODELS)}")
    words = f"optimization = {learned.optimization[:80]!r}"
    need(learned.optimization in OPTIMIZATIONS, words, " or ".join(OPTIMIZATIONS))
    need(learned.sees in SEEN, f"sees = {learned.sees[:80]!r}", " or ".join(SEEN))
    need(1 <= learned.every <= _SLOWEST, f"every = {learned.every}", f"1 to {_SLOWEST} ticks")
    names, kind = learned.joint_names, learned.kind
    n = len(names)
    need(n > 0 and len(set(names)) == n and all(names), f"joint_names = {names}", "different, non-empty names")
    need(bool(np.isfinite(learned.rate_hz)) and learned.rate_hz > 0.0, f"rate_hz = {learned.rate_hz}", "a rate > 0")
    need(kind.rigid != "delan", f"name = {learned.name}", "a model that is run in a control process")
    layout, theta = ParameterLayout(n), learned.theta
    need((theta is None) == (kind.rigid is None), "theta", "parameters of a rigid part where there is one")
    shapes: dict[str, tuple[int, ...]] = dict.fromkeys(("mean", "deviation", "low", "high"), (3 * n,))
    shapes |= {"torque_low": (n,), "torque_high": (n,)}
    values = {name: getattr(learned.scaling, name) for name in _SCALING}
    if theta is not None:
        shapes["theta"], values["theta"] = (layout.size,), theta
    wanted = network_shapes(kind.network, n, learned.weights)
    need(sorted(learned.weights) == sorted(wanted), f"weights {sorted(learned.weights)}", f"{sorted(wanted)}")
    for name, a in {**values, **learned.weights}.items():
        shape = {**shapes, **wanted}[name]
        need(a.dtype == np.float64 and a.shape == shape, f"{name} {a.dtype} {a.shape}", f"float64 {shape}")
        need(0 not in shape, f"{name} of shape {shape}", "at least one number")
        need(bool(np.all(np.abs(a) <= _LARGEST)), name, f"finite numbers, at most {_LARGEST:g}")
    total = sum(a.size for a in learned.weights.values())
    need(total <= _MOST, f"{total} weights", f"at most {_MOST}, which a tick has time for")
    scaling = learned.scaling
    need(bool(np.all(scaling.deviation >= _SMALLEST)), "deviation", f"numbers from {_SMALLEST:g}")
    need(bool(np.all(scaling.low <= scaling.high)), "low", "numbers not above high")
    need(bool(np.all(scaling.torque_range > 0.0)), "torque_low", "numbers below torque_high")
    if theta is not None:
        for j, name in enumerate(names):
            need(is_consistent(theta[layout.link(j)]), f"theta of the link behind {name}", "those of a real body")
        for block in (layout.coulomb, layout.viscous, layout.rotor_inertia):
            need(bool(np.all(theta[block] >= 0.0)), "theta of friction and rotors", "no negative numbers")
