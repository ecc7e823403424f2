"""A learned process as one file: a ``.npz`` with its data, its parameters, joints and origin. Never unpickles."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from safe_sysid.core.arrays import FloatArray, IntArray
from safe_sysid.errors import SafeSysIdError
from safe_sysid.learning.archive import read_archive, write_archive
from safe_sysid.learning.gaussian_process.kernels import (
    ChainPart,
    KernelPart,
    LagrangianPart,
    LinearPart,
    SquaredExponentialPart,
    SumKernel,
    friction_features,
)
from safe_sysid.learning.gaussian_process.motions import MotionSamples
from safe_sysid.learning.gaussian_process.regression import TorqueProcess, Units

__all__ = ["SCHEMA", "HandOver", "LearnedModel", "ModelFileError", "read_model", "write_model"]


#: Version of the file format.
SCHEMA = "safe_sysid gaussian process 3"
_MAKERS: Mapping[str, Callable[[int], KernelPart]] = {
    "chain": ChainPart,
    "lagrangian": LagrangianPart,
    "friction": lambda n: LinearPart(friction_features, 2 * n),
    "squared_exponential": SquaredExponentialPart,
}
_ARRAYS = {  # kind of numpy, dimensions
    "schema": ("U", 0),
    "parts": ("U", 1),
    "joint_names": ("U", 1),
    "slides": ("b", 1),
    "provenance": ("U", 2),
    "units": ("f", 1),
    "log": ("f", 1),
    "log_noise": ("f", 1),
    "q": ("f", 2),
    "qd": ("f", 2),
    "qdd": ("f", 2),
    "direction": ("f", 2),
    "torque": ("f", 2),
    "subset": ("i", 1),  # of the hand-over; empty without
    "hand_over": ("f", 2),
}


class ModelFileError(SafeSysIdError):
    """The file of a learned model cannot be read or written."""


@dataclass(frozen=True)
class HandOver:
    """Where a process is to be believed, by the deviation of its torque that a subset of its samples leaves."""

    subset: IntArray  #: (m,) samples
    all: FloatArray  #: (n,) deviation up to which it is trusted entirely, N m or N
    none: FloatArray  #: (n,) deviation from which it is not trusted at all
    bound: FloatArray  #: (n,) N m or N that no torque on held-out samples was off by where it was trusted at all


@dataclass(frozen=True)
class LearnedModel:
    """A process, and what it is of."""

    process: TorqueProcess
    joint_names: tuple[str, ...]  #: (n,) in the order of its columns
    provenance: Mapping[str, str]  #: where it is from, in words by key
    hand_over: HandOver | None = None  #: where a controller believes it; None: nowhere

    def check_joints(self, names: Sequence[str], slides: Sequence[bool]) -> None:
        """Refuse an arm with other joints.

        ``names``: (n,) of the arm, in its order; ``slides``: (n,) whether a joint of the arm slides.

        Raises:
            ModelFileError: another number, name, order or kind of joints.
        """
        if tuple(names) != self.joint_names:
            raise ModelFileError(
                f"joints of the model are {', '.join(self.joint_names)}: expected those of the arm, {', '.join(names)}"
            )
        for name, ours, theirs in zip(names, self.process.x.slides, slides, strict=True):
            if ours != theirs:
                raise ModelFileError(f"joint {name} {'slides' if ours else 'turns'} in the model, not in the arm")


def _name(part: KernelPart) -> str:
    match part:
        case ChainPart():
            return "chain"
        case LagrangianPart():
            return "lagrangian"
        case SquaredExponentialPart():
            return "squared_exponential"
        case LinearPart(features=features) if features is friction_features:
            return "friction"
    raise ModelFileError(f"a kernel with {type(part).__name__} of its own features cannot be written to a file")


def _hand_over_arrays(h: HandOver | None) -> dict[str, Any]:
    if h is None:
        return {"subset": np.zeros(0, np.int64), "hand_over": np.zeros((3, 0))}
    return {"subset": h.subset, "hand_over": np.stack([h.all, h.none, h.bound])}


def _read_hand_over(subset: IntArray, rows: FloatArray, samples: int, n: int) -> HandOver | None:
    if not rows.size and not subset.size:
        return None
    if rows.shape != (3, n) or not np.all(np.isfinite(rows)) or not np.all((rows[0] > 0.0) & (rows[0] < rows[1])):
        raise ModelFileError(
            f"hand_over has shape {rows.shape}: expected (3, {n}), positive, the first row less than the second"
        )
    if not subset.size or subset.min() < 0 or subset.max() >= samples:
        raise ModelFileError(f"subset of {subset.size} samples: expected some of 0 to {samples - 1}")
    return HandOver(subset.astype(np.int64), *rows)


def write_model(path: str | Path, model: LearnedModel) -> None:
    """Write a model, whole or not at all. ``path``: of the file; ``.npz`` is not appended.

    Raises:
        ModelFileError: its kernel has a part that a file cannot name, or the file cannot be written.
    """
    p = model.process
    arrays: dict[str, Any] = {
        "schema": np.array(SCHEMA),
        "parts": np.array([_name(part) for part in p.kernel.parts]),
        "joint_names": np.array(model.joint_names, dtype=np.str_),
        "slides": np.array(p.x.slides, bool),
        "provenance": np.array(list(model.provenance.items()), dtype=np.str_).reshape(-1, 2),
        "units": np.array([p.units.torque, p.units.time]),
        "log": p.log,
        "log_noise": p.log_noise,
        **_hand_over_arrays(model.hand_over),
        **{"q": p.x.q, "qd": p.x.qd, "qdd": p.x.qdd, "direction": p.x.direction, "torque": p.torque},
    }
    write_archive(path, arrays, ModelFileError)


def read_model(path: str | Path) -> LearnedModel:
    """Read a model that :func:`write_model` wrote; its covariance is factored anew.

    Raises:
        ModelFileError: no such file, no such format, an array missing or of another type or shape, or numbers that make
            no process.
    """
    arrays = read_archive(path, "a learned model", SCHEMA, _ARRAYS, ModelFileError)
    try:
        return _model(arrays)
    except ModelFileError as error:
        raise ModelFileError(f"{path}: {error}") from None
    except SafeSysIdError as error:
        raise ModelFileError(f"{path}: no process can be made of it: {error}") from None


def _model(arrays: Mapping[str, NDArray[Any]]) -> LearnedModel:
    names = tuple(map(str, arrays["joint_names"]))
    slides = [bool(s) for s in arrays["slides"]]
    units = arrays["units"]
    parts = [str(part) for part in arrays["parts"]]
    unknown = [part for part in parts if part not in _MAKERS]
    if unknown or not parts:
        raise ModelFileError(f"parts = {parts}: expected one or more of {', '.join(_MAKERS)}")
    if len(names) != len(slides) or len(set(names)) != len(names) or not names:
        raise ModelFileError(f"{len(names)} joint_names, {len(slides)} slides: expected one of each for every joint")
    if units.shape != (2,) or not np.all(np.isfinite(units)) or np.any(units <= 0.0):
        raise ModelFileError(f"units = {units[:4].tolist()}: expected two positive numbers")
    if arrays["provenance"].shape[1] != 2:
        raise ModelFileError(f"provenance has shape {arrays['provenance'].shape}: expected (K, 2)")
    kernel = SumKernel(tuple(_MAKERS[part](len(names)) for part in parts))
    x = MotionSamples(arrays["q"], arrays["qd"], arrays["qdd"], slides, arrays["direction"])
    process = TorqueProcess(kernel, arrays["log"], arrays["log_noise"], x, arrays["torque"], Units(*map(float, units)))
    hand_over = _read_hand_over(arrays["subset"], arrays["hand_over"], len(x), len(names))
    return LearnedModel(process, names, {str(k): str(v) for k, v in arrays["provenance"]}, hand_over)
