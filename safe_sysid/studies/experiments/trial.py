"""One trial: one method in one work cell, dumbbell by dumbbell, until one fails; a record for JSON and series."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Any

import numpy as np

from safe_sysid.core.arrays import FloatArray
from safe_sysid.robot.loading import load_robot
from safe_sysid.robot.model import RobotModel
from safe_sysid.simulation.noise import NoiseModel
from safe_sysid.simulation.plant import Plant
from safe_sysid.studies.experiments.carry_proof import CarryProof
from safe_sysid.studies.experiments.cell.simulation import CellSimulation, draw_arm, in_hand
from safe_sysid.studies.experiments.cell.workcell import Workcell, load_workcell
from safe_sysid.studies.experiments.choreography import run_workcell
from safe_sysid.studies.experiments.drivers import UNTIL_IDENTIFIED, MethodDriver
from safe_sysid.studies.experiments.interfaces import Cell, DumbbellPhase, Placement, Recording
from safe_sysid.studies.experiments.methods import METHODS, ExperimentError
from safe_sysid.studies.experiments.results.paper import EXPERIMENTS
from safe_sysid.studies.experiments.runner import case

__all__ = ["category", "only", "run_trial", "seeds_of"]

#: Ticks between points of a series.
_EVERY = 4


@lru_cache(maxsize=2)
def _robot(name: str) -> RobotModel:
    return load_robot(name)


def only(workcell: Workcell, payloads: Sequence[str]) -> Workcell:
    """The work cell with only some dumbbells to move; those before them stand where they belong already.

    ``payloads``: names, neighbours in the stack.

    Raises ExperimentError: none of them is in the work cell, or one in between is missing.
    """
    tasks = tuple(task for task in workcell.tasks if task.dumbbell in payloads)
    names = [task.dumbbell for task in workcell.tasks]
    if not tasks:
        raise ExperimentError(f"payloads {', '.join(payloads)}: work cell {workcell.name} has {', '.join(names)}")
    first, last = names.index(tasks[0].dumbbell), names.index(tasks[-1].dumbbell)
    if last - first + 1 != len(tasks):
        missing = ", ".join(name for name in names[first : last + 1] if name not in payloads)
        raise ExperimentError(f"payloads: {missing} missing: expected neighbours in the stack of {workcell.name}")
    dumbbells = tuple(
        replace(item, position=workcell.target(item.name), rotation=workcell.place_rotation)
        if item.name in names[:first]
        else item
        for item in workcell.dumbbells
    )
    return replace(workcell, tasks=tasks, dumbbells=dumbbells)


class _Rehearsal:
    """Makes the arm with a dumbbell outside of the cell, with noise of its own."""

    def __init__(self, workcell: Workcell, model: RobotModel, seed: int, noise: str) -> None:
        self._workcell, self._model, self._seed, self._noise = workcell, model, seed, noise

    def __call__(self, dumbbell: str, cell: Cell, q: FloatArray) -> Plant:
        settings = self._model.settings
        return Plant(
            self._model,
            getattr(cell, "theta_true"),  # noqa: B009 - the truth is no part of what a driver may see
            in_hand(self._workcell.dumbbell(dumbbell).payload),
            cell.scene(),
            self._seed,
            NoiseModel.declared(settings, self._noise),
            q,
            period=settings.timing.period_s,
            torque_source=settings.measurement.torque_source,
            actuator_mode="random",
            actuator_abs=settings.actuator.torque_abs,
            actuator_rel=settings.actuator.torque_rel,
        )


def seeds_of(seed: int, repeat: int, experiment: str) -> tuple[int, ...]:
    """Four seeds: of the true arm, of errors in the cell, of plans and of the rehearsal's errors; for all methods."""
    sequence = np.random.SeedSequence([seed, repeat, EXPERIMENTS.index(experiment)])
    return tuple(int(value) for value in sequence.generate_state(4))


def run_trial(seed: int, index: int, options: dict[str, Any]) -> dict[str, Any]:
    """Run it.

    Args:
        seed: of all trials; arm, errors and plans of a trial depend on it, on the repeat and on the work cell, not on
            the method.
        index: of the trial, see :func:`~safe_sysid.studies.experiments.runner.case`.
        options: ``experiments``, ``methods``, ``payloads``, ``robot``, ``law``, ``noise`` and ``until``.

    Returns:
        ``experiment``, ``method``, ``trial`` (repeat), ``seed``, ``success``, ``reason``, ``placements`` (one record
        per dumbbell), ``seconds`` of computing, and ``series`` (arrays by name).
    """
    began = time.perf_counter()
    which = case("task", options, index)
    model, workcell = _robot(options["robot"]), load_workcell(which["experiment"])
    arm_seed, cell_seed, plan_seed, rehearsal_seed = seeds_of(seed, which["trial"], which["experiment"])
    payloads = [task.dumbbell for task in workcell.tasks if task.dumbbell in options["payloads"]]
    only(workcell, payloads or options["payloads"])  # what is asked for in vain is said before anything runs
    theta = draw_arm(model, [in_hand(item.payload) for item in workcell.dumbbells], arm_seed)
    # Where only the identification is asked for, nothing is placed: each dumbbell is a run of its own.
    runs = [[name] for name in payloads] if options["until"] == "identified" else [payloads]
    placements: list[dict[str, Any]] = []
    series: dict[str, Any] = {
        "prior": np.stack([model.arm_prior.payload_lower, model.arm_prior.payload_upper]),
        "torque_limit": np.array(workcell.criteria.torque),
    }
    for names in runs:
        chosen = only(workcell, names)
        cell = CellSimulation(chosen, model, theta, cell_seed, options["noise"])
        cell.leave()
        cell.approach(names[0])
        rehearsal = _Rehearsal(chosen, model, rehearsal_seed, options["noise"])
        driver = _TruthKeeper(
            METHODS[which["method"]],
            model,
            plan_seed,
            rehearsal,
            options["law"],
            options["until"],
            proof=CarryProof.of(model, workcell),
        )
        report = run_workcell(cell, driver, record=True)
        for placement in report.placements:
            placements.append(_record(placement, driver, report.recording))
            series |= _series(placement, driver, report.recording)
        placements += [_not_tried(name, report.reason) for name in names[len(report.placements) :]]
    bad = next((p for p in placements if not p["success"]), None)
    return {
        "index": index,
        **which,
        "seed": seed,
        "law": options["law"],
        "success": bad is None,
        "reason": "" if bad is None else f"{bad['payload']}: {bad['reason']}",
        "placements": placements,
        "seconds": round(time.perf_counter() - began, 2),
        "series": series,
    }


class _TruthKeeper(MethodDriver):
    """The driver, and what only the record may know."""

    def __init__(self, *args: Any, **named: Any) -> None:
        super().__init__(*args, **named)
        self.truths: dict[str, FloatArray] = {}

    def begin(self, task: Any, cell: Cell) -> None:
        super().begin(task, cell)
        theta = np.asarray(getattr(cell, "theta_true"))  # noqa: B009
        self.truths[task.dumbbell] = theta[self._model.arm_prior.layout.payload].copy()


def _record(placement: Placement, driver: _TruthKeeper, recording: Recording | None) -> dict[str, Any]:
    name = placement.dumbbell
    identified_only = any(UNTIL_IDENTIFIED in failure for failure in placement.failures)
    success = placement.success or (identified_only and len(placement.failures) == 1)
    return {
        "payload": name,
        "attempted": True,
        "success": success,
        "reason": "" if success else placement.reason,
        "category": "" if success else category(placement),
        "failures": list(placement.failures),
        "position_error_mm": _number(1e3 * placement.position_error),
        "angle_error_deg": _number(math.degrees(placement.angle_error)),
        "stack_error_mm": _number(1e3 * placement.stack_error),
        "torque_ratio": _number(placement.torque_ratio),
        "tracking_error_deg": _number(math.degrees(placement.tracking_error)),
        "contacts": [[c.phase.value, c.one, c.two, round(c.depth, 6)] for c in placement.contacts],
        "duration_s": round(placement.end - placement.start, 3),
        "truth": driver.truths[name].tolist(),
        "phases": _phases(placement, recording),
        "identification": placement.identification,
        **driver.notes[name],
    }


def _not_tried(name: str, reason: str) -> dict[str, Any]:
    return {
        "payload": name,
        "attempted": False,
        "success": False,
        "reason": f"not tried, the run ended before: {reason}",
        "category": "not tried",
    }


def category(placement: Placement) -> str:
    """One word for why a dumbbell's way failed: what came first counts, but a collision counts before all."""
    if placement.contacts:
        return "collision"
    reason = placement.reason
    if placement.torque_ratio > 1.0:
        return "saturation"
    if reason.startswith("identification"):
        return "identification"
    if "stacked" in reason:
        return "stack"
    if "off" in reason and math.isfinite(placement.position_error):
        return "placement"
    return "other"


def _number(value: float) -> float | None:
    """JSON has no nan."""
    return round(float(value), 6) if math.isfinite(value) else None


def _phases(placement: Placement, recording: Recording | None) -> dict[str, list[float]]:
    """Begin and end of each phase, s since the grasp."""
    spans: dict[str, list[float]] = {}
    if recording is None:
        return spans
    for dumbbell, phase, stamp in zip(recording.dumbbell, recording.phase, recording.stamp, strict=True):
        if dumbbell == placement.dumbbell:
            spans.setdefault(phase, [stamp, stamp])[1] = stamp
    identified = placement.identification.get("stamps")
    if identified and DumbbellPhase.LIFT.value in spans:
        spans[DumbbellPhase.IDENTIFY.value] = [spans[DumbbellPhase.LIFT.value][1], identified[-1]]
    return {
        name: [round(start - placement.start, 4), round(end - placement.start, 4)]
        for name, (start, end) in spans.items()
    }


def _series(placement: Placement, driver: MethodDriver, recording: Recording | None) -> dict[str, Any]:
    """Error and torque of the carry, and the mass believed in, over time."""
    name = placement.dumbbell
    out: dict[str, Any] = {}
    masses = np.array(driver.estimates[name], float).reshape(-1, 2)
    out[f"{name}/mass"] = masses - [placement.start, 0.0]
    if recording is None:
        return out
    rows = [
        k
        for k, (dumbbell, phase) in enumerate(zip(recording.dumbbell, recording.phase, strict=True))
        if dumbbell == name and phase in (DumbbellPhase.CARRY.value, DumbbellPhase.HOLD.value)
    ][::_EVERY]
    if rows:
        stamps = np.array([recording.stamp[k] for k in rows])
        out[f"{name}/time"] = stamps - stamps[0]
        out[f"{name}/error"] = np.array([recording.reference[k][0] - recording.q[k] for k in rows], np.float32)
        out[f"{name}/torque"] = np.array([recording.torque[k] for k in rows], np.float32)
    return out
