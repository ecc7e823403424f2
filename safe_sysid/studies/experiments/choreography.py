"""Sequence of a work cell: grasp, lift, identify, carry, hold, release, judge and return, for each dumbbell."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import numpy as np

from safe_sysid.core.arrays import FloatArray
from safe_sysid.dynamics import dynamics_of
from safe_sysid.errors import ModelError
from safe_sysid.planning.motions.fast_motion import LimitDistances, MotionLimits, MotionRefusedError, fast_motion
from safe_sysid.studies.experiments.cell.simulation import CellSimulation
from safe_sysid.studies.experiments.cell.workcell import APPROACH_PACE, reversed_motion
from safe_sysid.studies.experiments.interfaces import (
    CarryTask,
    CellReport,
    Driver,
    DumbbellPhase,
    Identification,
    Placement,
    Recording,
)
from safe_sysid.studies.experiments.judge import intended, judge
from safe_sysid.trajectories.quintic import QuinticTrajectory

__all__ = ["OwnController", "run_workcell", "ticks", "way_back"]

#: Velocity, acceleration (rad/s, rad/s^2) of the way back to the ready pose, and how clear it must be, m.
_SLOW, _GENTLE, _CLEAR = 0.5, 0.7, 0.02
#: Or this share of the clearance that its ends have.
_SHARE = 0.8
#: References that differ by less are the same place, rad.
_SAME = 1e-6


class OwnController:
    """The robot's own position controller for the empty hand: it knows its own parameters. No method sees it."""

    def __init__(self, cell: CellSimulation) -> None:
        """``cell`` tells it the arm's true parameters."""
        self._cell, self._dynamics = cell, dynamics_of(cell.model.kinematics)

    def torque(self, reference: FloatArray) -> FloatArray:
        """Torque (n,) towards a reference (>= 3, n)."""
        cell = self._cell
        m = cell.measurement
        wanted = reference[2] + 20.0 * (reference[1] - m.qd) + 100.0 * (reference[0] - m.q)
        w = self._dynamics.torque_regressor(m.q, m.qd, wanted, cell.model.friction_transition_velocity)
        return np.asarray(w @ cell.theta_arm)


def ticks(cell: CellSimulation, motion: QuinticTrajectory) -> int:
    """Periods until a motion is over: its last fraction of a period is at rest but for rounding."""
    return math.ceil(motion.duration / cell.period - 1e-9)


class _DumbbellFailed(Exception):  # noqa: N818 - no error: the dumbbell's way ends here
    """A dumbbell's way ends early, with the reason."""


@dataclass
class _DumbbellRun:
    """What one dumbbell's way leaves behind."""

    cell: CellSimulation
    driver: Driver
    task: CarryTask
    recording: Recording | None
    tracking_error: float = 0.0
    notes: dict = field(default_factory=dict)

    def follow(self, phase: DumbbellPhase, motion: QuinticTrajectory) -> None:
        """Track a motion with the driver; afterwards stop if something went wrong."""
        cell, driver = self.cell, self.driver
        cell.phase = phase
        start = cell.time
        if phase not in (DumbbellPhase.GRASP, DumbbellPhase.HOLD):
            reason = driver.motion(phase, motion, start)
            if reason:
                raise _DumbbellFailed(f"{phase.value} refused: {reason}")
        for k in range(ticks(cell, motion)):
            measurement = cell.measurement
            reference = motion.state(k * cell.period)
            torque = np.asarray(driver.torque(measurement, reference), float)
            if phase is DumbbellPhase.CARRY:
                self.tracking_error = max(self.tracking_error, float(np.abs(reference[0] - cell.state[0]).max()))
            if self.recording is not None:
                self._record(phase, reference, torque)
            cell.step(torque)
        self.check()

    def identify(self) -> Identification:
        """Let the driver have the arm."""
        self.cell.phase = DumbbellPhase.IDENTIFY
        found = self.driver.identify(self.cell, self.cell.workcell.ready)
        self.notes = dict(found.notes)
        if found.failure:
            raise _DumbbellFailed(f"identification: {found.failure}")
        self.check()
        return found

    def check(self) -> None:
        """Stop at a touch that is not intended."""
        if any(not intended(self.cell.workcell, contact) for contact in self.cell.touched()):
            raise _DumbbellFailed("")

    def _record(self, phase: DumbbellPhase, reference: FloatArray, torque: FloatArray) -> None:
        recording, (q, qd) = self.recording, self.cell.state
        if recording is not None:
            recording.dumbbell.append(self.task.dumbbell)
            recording.phase.append(phase.value)
            recording.stamp.append(self.cell.time)
            recording.reference.append(reference[:3].copy())
            recording.q.append(q)
            recording.qd.append(qd)
            recording.torque.append(torque.copy())


def run_workcell(cell: CellSimulation, driver: Driver, *, record: bool = False) -> CellReport:
    """Run a work cell until all its dumbbells are placed, or one fails.

    ``record``: whether to keep every tick of the driver's motions.

    Raises SafeSysIdError: driver or files are wrong (a failure of the method is no exception but a report).
    """
    recording = Recording() if record else None
    placements: list[Placement] = []
    own = OwnController(cell)
    for i, task in enumerate(cell.workcell.tasks):
        placements.append(_one(cell, driver, own, task, recording))
        last = placements[-1]
        if not last.success:
            break
        if i + 1 < len(cell.workcell.tasks):
            _go_to_next(cell, own, cell.workcell.tasks[i + 1])
            touched = cell.touched()
            if touched:
                raise ModelError(
                    f"work cell {cell.workcell.name}: the empty hand touched {touched[0].two} on its way to "
                    f"{cell.workcell.tasks[i + 1].dumbbell}: expected a free way"
                )
    bad = next((p for p in placements if not p.success), None)
    return CellReport(
        cell.workcell.name,
        driver.name,
        bad is None,
        "" if bad is None else f"{bad.dumbbell}: {bad.reason}",
        tuple(placements),
        recording,
    )


def _one(
    cell: CellSimulation, driver: Driver, own: OwnController, task: CarryTask, recording: Recording | None
) -> Placement:
    """One dumbbell, from the grasp to the judgement."""
    timing, ready = cell.workcell.timing, cell.workcell.ready
    cell.forget()
    start, troubles = cell.time, []
    run = _DumbbellRun(cell, driver, task, recording)
    peak = cell.peak_torque
    try:
        cell.phase = DumbbellPhase.GRASP
        cell.grasp(task.dumbbell)
        driver.begin(task, cell)
        run.follow(DumbbellPhase.GRASP, QuinticTrajectory.hold(task.pick, timing.grasp))
        run.follow(DumbbellPhase.LIFT, task.lift)
        rest = run.identify().rest
        if np.abs(rest - ready).max() > _SAME:
            run.follow(DumbbellPhase.RETURN, way_back(cell, rest, ready))
        run.follow(DumbbellPhase.CARRY, task.carry)
        run.follow(DumbbellPhase.HOLD, QuinticTrajectory.hold(task.carry.knots[-1, 0], timing.hold))
        peak = cell.peak_torque.copy()
        if cell.workcell.release:
            _let_go(cell, own, task)
    except _DumbbellFailed as stop:
        troubles += [str(stop)] if str(stop) else []
        stopped = True
    except ModelError as error:  # the simulation diverged
        troubles.append(str(error))
        stopped = True
    else:
        stopped = False
    return judge(cell, task, start, np.array(peak), run.tracking_error, troubles, run.notes, finished=not stopped)


def _drive_own(cell: CellSimulation, own: OwnController, motion: QuinticTrajectory) -> None:
    for k in range(ticks(cell, motion)):
        cell.step(own.torque(motion.state(k * cell.period)))


def _let_go(cell: CellSimulation, own: OwnController, task: CarryTask) -> None:
    """Open the hand, let the dumbbell settle, draw the hand back."""
    timing = cell.workcell.timing
    cell.phase = DumbbellPhase.RELEASE
    cell.release()
    here = cell.measurement.q.copy()
    hold = QuinticTrajectory.hold(here).state(0.0)
    begin = cell.time
    while cell.time < begin + timing.settle or (cell.still_falling() and cell.time < begin + timing.settle_most):
        cell.step(own.torque(hold))
    cell.settled()
    cell.phase = DumbbellPhase.RETRACT
    if task.retract is not None:
        knots = task.retract.knots.copy()
        knots[0] = here, 0.0 * here, 0.0 * here
        _drive_own(cell, own, QuinticTrajectory(task.retract.times, knots))


def _go_to_next(cell: CellSimulation, own: OwnController, following: CarryTask) -> None:
    """From the ready pose to the next dumbbell in the rack."""
    cell.forget()
    cell.phase = DumbbellPhase.APPROACH
    cell.leave()
    cell.approach(following.dumbbell)
    _drive_own(cell, own, reversed_motion(following.lift, APPROACH_PACE))
    _drive_own(cell, own, QuinticTrajectory.hold(following.pick, 0.3))


def way_back(cell: CellSimulation, rest: FloatArray, ready: FloatArray) -> QuinticTrajectory:
    """Slow motion from rest to rest with what is held, clear of everything.

    ``cell``: as it is now; ``rest``: (n,) rad, where the reference rests; ``ready``: (n,) rad, where to go.
    Raises SafeSysIdError: no way was found.
    """
    way = float(np.abs(ready - rest).max())
    duration = max(1.875 * way / _SLOW, np.sqrt(5.774 * way / _GENTLE), 0.5)
    straight = QuinticTrajectory.to_rest(np.stack([rest, 0.0 * rest, 0.0 * rest]), ready, duration)
    samples = straight.states(np.linspace(0.0, duration, 60))[:, 0]
    ends = min(cell.clearance(q)[0] for q in (rest, ready))
    if min(cell.clearance(q)[0] for q in samples) > min(_CLEAR, _SHARE * ends):
        return straight
    model = cell.model
    limits = MotionLimits.of(model, velocity=_SLOW, acceleration=_GENTLE)
    pieces = (0.75 * duration, 0.75 * duration)
    try:
        return fast_motion(
            model, cell.theta_nominal, cell.scene(), rest, ready, pieces, limits, LimitDistances(clearance=_CLEAR)
        ).trajectory
    except MotionRefusedError as error:
        raise _DumbbellFailed(f"no way back to the ready pose: {error}") from error
