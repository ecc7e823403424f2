"""Judges one dumbbell by the criteria of its work cell's file. Nothing here depends on the method."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from safe_sysid.core.arrays import FloatArray
from safe_sysid.studies.experiments.cell.dumbbells import angle_between
from safe_sysid.studies.experiments.cell.simulation import CellSimulation
from safe_sysid.studies.experiments.cell.workcell import Workcell
from safe_sysid.studies.experiments.interfaces import CarryTask, Contact, DumbbellPhase, Placement

__all__ = ["intended", "judge", "misplaced"]

_BEFORE_LIFTED = (DumbbellPhase.GRASP, DumbbellPhase.LIFT)


def intended(cell: Workcell, contact: Contact) -> bool:
    """Whether a touch is part of the task: the dumbbell stands on its rack until it is lifted."""
    return contact.phase in _BEFORE_LIFTED and contact.one == "payload" and contact.two in cell.supports


def misplaced(simulation: CellSimulation, name: str) -> tuple[float, float]:
    """How far a dumbbell is from where it belongs: m and rad. ``simulation``: as it is now."""
    cell = simulation.workcell
    position, rotation = simulation.pose(name)
    off = float(np.linalg.norm(position - cell.target(name)))
    return off, angle_between(rotation, cell.place_rotation)


def judge(
    simulation: CellSimulation,
    task: CarryTask,
    start: float,
    peak_torque: FloatArray,
    tracking_error: float,
    troubles: Sequence[str] = (),
    notes: dict[str, Any] | None = None,
    finished: bool = True,
) -> Placement:
    """How one dumbbell went.

    Args:
        simulation: after everything has come to rest.
        start: stamp of the grasp, s.
        peak_torque: (n,) largest commands from grasp to release, N m.
        tracking_error: of the carry, rad.
        finished: whether it was carried to its end.
    """
    cell = simulation.workcell
    criteria = cell.criteria
    contacts = tuple(c for c in simulation.touched() if not intended(cell, c))
    failures = list(troubles)
    for c in sorted(contacts, key=lambda contact: contact.time):
        failures.append(f"{c.one} touched {c.two} ({c.phase.value}, {1e3 * c.depth:.1f} mm)")
    ratio = peak_torque / criteria.torque
    if np.any(ratio > 1.0):
        j = int(np.argmax(ratio))
        name = simulation.model.joint_names[j]
        failures.append(f"torque of {name} {peak_torque[j]:.1f} N m: expected at most {criteria.torque[j]:.1f}")
    off, angle = math.nan, math.nan
    if finished:
        off, angle = misplaced(simulation, task.dumbbell)
        failures += _compare(task.dumbbell, off, angle, criteria.position, criteria.angle)
    stack = math.nan
    for item in cell.dumbbells:
        if item.name == task.dumbbell or not cell.release or not finished:
            break
        item_off, item_angle = misplaced(simulation, item.name)
        stack = float(np.nanmax([stack, item_off]))
        failures += _compare(f"stacked {item.name}", item_off, item_angle, criteria.position, criteria.angle)
    return Placement(
        dumbbell=task.dumbbell,
        success=not failures,
        reason=failures[0] if failures else "",
        failures=tuple(failures),
        position_error=off,
        angle_error=angle,
        stack_error=stack,
        torque_ratio=float(ratio.max()),
        tracking_error=tracking_error,
        contacts=contacts,
        start=start,
        end=simulation.time,
        identification=dict(notes or {}),
    )


def _compare(name: str, off: float, angle: float, most: float, most_angle: float) -> list[str]:
    found = []
    if not off <= most:
        found.append(f"{name} is {1e3 * off:.1f} mm off its place: expected at most {1e3 * most:.1f}")
    if not angle <= most_angle:
        found.append(
            f"{name} is {math.degrees(angle):.1f} degrees off: expected at most {math.degrees(most_angle):.1f}"
        )
    return found
