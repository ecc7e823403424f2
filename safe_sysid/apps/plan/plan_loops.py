"""Exciting motions of an arm with closed loops: Fourier series from rest to rest, in samples, not certified."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import numpy as np

from safe_sysid.core.arrays import FloatArray, IntArray
from safe_sysid.dynamics.closed_chain import Mechanism, load_mechanism
from safe_sysid.identification.arm.base_parameters import excitable_columns
from safe_sysid.identification.arm.excitation.motions import RAMP, box_of_motions, exciting
from safe_sysid.planning.costs.observation import condition_number
from safe_sysid.whole_files import write_text

__all__ = ["plan_loops"]

#: Samples that are written, and looked at, Hz; random configurations that base parameters are found from.
_RATE, _LOOKS = 100.0, 60
_CRITERIA = {"logdet": "determinant", "condition": "condition"}
_CHECKED = (
    f"limits of the motors' positions and velocities, of passive joints, and the loops were looked at {_RATE:g} times "
    "a second; torques, collisions, and what is between samples were not"
)


def plan_loops(loops: str, count: int, period: float, criterion: str, seed: int, out: Path) -> dict[str, Any]:
    """Write motions of the joints with motors as CSV files, and ``motion.json``; returns what that says.

    Args:
        loops: file of loops, or name of a packaged mechanism.
        count: of motions, each the best of some for what those before leave open.
        period: s, of each.
        criterion: ``logdet`` or ``condition``.
        out: folder.

    Raises:
        ConfigError: a file that cannot be used.
        ModelError: loops that do not close.
        ParameterError: no series within the limits excites all base parameters.
    """
    mechanism = load_mechanism(loops)
    columns = _base_columns(mechanism)
    names, count_t = mechanism.actuated_names, round(period * _RATE) + 1
    t = np.linspace(0.0, period, count_t)
    gram, rows, motions = np.zeros((len(columns), len(columns))), [], []
    for k in range(count):
        rng = np.random.default_rng([seed, k])
        waves = exciting(
            mechanism, columns, rng, period, criterion=_CRITERIA[criterion], before=gram, ramp=RAMP, samples=count_t
        )
        q, qd, qdd = waves.at(t)
        told = mechanism.regressor(mechanism.motion(q, qd, qdd, t))[:, :, columns].reshape(-1, len(columns))
        rows.append(told)
        gram = gram + told.T @ told
        out.mkdir(parents=True, exist_ok=True)
        path = out / f"motion_{k:05d}.csv"
        _write(path, names, t, q, qd, qdd)
        motions.append({
            "file": path.name, "seconds": period, "lower": q.min(axis=0).tolist(), "upper": q.max(axis=0).tolist(),
            "velocity": np.abs(qd).max(axis=0).tolist(), "acceleration": np.abs(qdd).max(axis=0).tolist(),
        })  # fmt: skip
    every = np.concatenate(rows)
    told_all = {
        "mechanism": mechanism.name,
        "joints": list(names),
        "certified": False,
        "checked": _CHECKED,
        "criterion": criterion,
        "base_parameters": len(columns),
        "condition": condition_number(every, 1.0 / np.linalg.norm(every, axis=0)),
        "motions": motions,
    }
    write_text(out / "motion.json", json.dumps(told_all, indent=1) + "\n")
    return told_all


def _base_columns(mechanism: Mechanism) -> IntArray:
    """Independent columns of the regressor at random configurations in which the loops close."""
    rng, (low, high) = np.random.default_rng(0), box_of_motions(mechanism)
    looks = max(_LOOKS, 2 * mechanism.layout.size // len(low))
    q = 0.5 * (low + high) + 0.45 * (high - low) * rng.uniform(-1, 1, (looks, len(low)))
    motion = mechanism.motion(q, rng.normal(size=q.shape), rng.normal(size=q.shape))
    return excitable_columns(mechanism.regressor(motion).reshape(-1, mechanism.layout.size))


def _write(path: Path, names: tuple[str, ...], t: FloatArray, *parts: FloatArray) -> None:
    heads = [f"{name}.{what}" for what in ("position", "velocity", "acceleration") for name in names]
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["time", *heads])
        writer.writerows(np.column_stack([t, *parts]).tolist())
