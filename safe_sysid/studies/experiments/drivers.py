"""A method of Table II at work in a work cell: which law with which knowledge in which phase."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from safe_sysid.control.gains import ControllerGains
from safe_sysid.control.gains.design import design_gains
from safe_sysid.control.laws import make_law
from safe_sysid.control.laws.law import ControlLaw, ModelInUse
from safe_sysid.core.arrays import FloatArray
from safe_sysid.errors import ParameterError
from safe_sysid.identification.equations.measurements import Sample
from safe_sysid.planning.excitation.fourier_excitation import FourierExcitation, classical_fourier
from safe_sysid.planning.motions.motion_limits import MotionLimits
from safe_sysid.robot.model import RobotModel
from safe_sysid.robot.parameters import ParameterBox
from safe_sysid.simulation.plant import Plant
from safe_sysid.studies.experiments.carry_proof import CarryProof
from safe_sysid.studies.experiments.identify_phase import (
    LearnedPayload,
    RecordingCell,
    chain,
    follow,
    identify_from,
    plan_and_identify,
    rehearsed_plans,
)
from safe_sysid.studies.experiments.interfaces import CarryTask, Cell, DumbbellPhase, Identification
from safe_sysid.studies.experiments.methods import Excitation, Method, ModelSource, identified, model_before
from safe_sysid.trajectories.quintic import QuinticTrajectory

__all__ = ["UNTIL_IDENTIFIED", "MethodDriver"]

#: Makes the arm with a dumbbell, at rest at a pose, outside of the cell: (dumbbell, cell, pose) -> plant.
Rehearsal = Callable[[str, Cell, FloatArray], Plant]

#: Why a run ends that was asked to end with the identification.
UNTIL_IDENTIFIED = "ends with the identification, as asked"
_ROBUST = "robust"
_NOTE_EVERY = 20  # ticks between notes of an adaptive law's estimate
#: Fourier series: as long as Algorithm 2's four plans, with the Gen3's own acceleration limits, rad/s^2.
_PERIOD = 7.5
_ACCELERATION = np.deg2rad([297.94] * 4 + [572.95] * 3)


class MethodDriver:
    """A :class:`~safe_sysid.studies.experiments.interfaces.Driver` for one method.

    Attributes:
        estimates: dumbbell to (stamp, estimated mass of hand and payload) over time.
    """

    def __init__(
        self,
        method: Method,
        model: RobotModel,
        seed: int,
        rehearsal: Rehearsal,
        robust: str = _ROBUST,
        until: str = "end",
        certify: bool = True,
        proof: CarryProof | None = None,
    ) -> None:
        """Prepare.

        Args:
            model: the arm, as believed.
            robust: law of the methods with a robust controller: "robust" (ours) or "armour" (as published).
            until: "end", or "identified": no task.
            certify: whether to try to prove the task's motion, where the law comes with a proof.
            proof: limits and shapes that it is proved against; None: the model's own.
        """
        self.name = method.name
        self._method, self._model, self._seed = method, model, seed
        self._rehearsal, self._robust, self._until, self._certify = rehearsal, robust, until, certify
        self._proof = CarryProof(model) if proof is None else proof
        self._prior_gains = design_gains(model, lockstep=True)
        self.notes: dict[str, dict[str, Any]] = {}
        self.estimates: dict[str, list[tuple[float, float]]] = {}
        self._ticks = 0
        self._series: FourierExcitation | None = None

    # -- the protocol ----------------------------------------------------------------------------------------------

    def begin(self, task: CarryTask, cell: Cell) -> None:
        """Forget the last payload."""
        self._task, self._cell = task, cell
        self._box = self._model.arm_prior
        self._known = model_before(self._method, self._model)
        self._law_name = ""
        self.notes[task.dumbbell], self.estimates[task.dumbbell] = {}, []
        self._use(self._method.first_law, self._prior_gains, cell.measurement)
        self._note_mass(cell.time)

    def motion(self, phase: DumbbellPhase, trajectory: QuinticTrajectory, start_time: float) -> str:
        """Prepare the task's law for its motion; never refuses. ``start_time``: stamp at which it begins, s."""
        if phase is DumbbellPhase.CARRY and self._method.law == _ROBUST:
            gains = self._gains_for(trajectory)
            self._use(_ROBUST, gains, self._cell.measurement)
            if self._certify and self._method.uncertain and self._robust == _ROBUST:
                self._judge(trajectory, gains)
        return ""

    def torque(self, measurement: Sample, reference: FloatArray) -> FloatArray:
        """Torque (n,) of the law at work, N m.

        Args:
            reference: (4, n) desired position .. jerk.
        """
        m = measurement
        self._note_now_and_then(m.stamp)
        return np.array(self._law.step(m.stamp, m.q, m.qd, reference, self._known))

    def identify(self, cell: Cell, ready: FloatArray) -> Identification:
        """The method's exciting motion, and what it teaches.

        ``ready``: (n,) rad, the reference at which the arm rests.
        """
        if self._method.excitation is Excitation.NONE:
            return self._ended(LearnedPayload(self._box, self._nominal, ready))
        tap = RecordingCell(cell, self._note_now_and_then)
        # Every dumbbell has a seed of its own: five times the same random motion would be one draw, not five.
        seed = int(np.random.SeedSequence([self._seed, len(self.notes)]).generate_state(1)[0])
        kind = self._method.excitation
        if kind is Excitation.FOURIER:
            return self._ended(self._fourier(tap, ready))
        if self._method.model is ModelSource.ADAPTED:
            return self._ended(self._rehearsed(tap, ready, seed))
        learned = plan_and_identify(self._model, tap, ready, seed, random=kind is Excitation.RANDOM)
        return self._ended(learned)

    # -- phases ----------------------------------------------------------------------------------------------------

    def _ended(self, learned: LearnedPayload) -> Identification:
        """Take over what was learned, for the task."""
        name = self._task.dumbbell
        if self._method.identifies and not learned.failure:
            self._box = learned.box
            self._known = identified(self._model, learned.box, learned.nominal, self._method.uncertain)
            masses = zip(learned.notes.get("stamps", []), learned.notes.get("nominal", []), strict=True)
            self.estimates[name] += [(stamp, nominal[0]) for stamp, nominal in masses]
        if self._law_name != self._method.law:
            self._use(self._method.law, self._prior_gains, self._cell.measurement)
        failure = learned.failure or (UNTIL_IDENTIFIED if self._until == "identified" else "")
        return Identification(learned.rest, failure, learned.notes)

    def _rehearsed(self, tap: RecordingCell, ready: FloatArray, seed: int) -> LearnedPayload:
        plant = self._rehearsal(self._task.dumbbell, tap.cell, ready)
        plans, reasons = rehearsed_plans(self._model, plant, ready, seed)
        notes: dict[str, Any] = {"plans": len(plans), "plan_reasons": list(reasons)}
        rest = ready
        if plans:
            reference, duration = chain(plans)
            rest = follow(tap, self._law, self._known, reference, duration)
            notes["condition"] = tap.condition(self._model)
        return LearnedPayload(self._box, self._nominal, rest, "", notes)

    def _fourier(self, tap: RecordingCell, ready: FloatArray) -> LearnedPayload:
        """The classical way: nobody looks at torques, obstacles or the arm itself."""
        if self._series is None or not np.array_equal(self._series.series.start, ready):
            limits = MotionLimits.of(self._model, acceleration=_ACCELERATION)
            self._series = classical_fourier(self._model, ready, limits, _PERIOD, seed=self._seed)
        series = self._series.series
        rest = follow(tap, self._law, self._known, series.state, series.duration)
        learned = identify_from(self._model, tap, rest)
        learned.notes["condition_planned"] = self._series.condition
        return learned

    @property
    def _nominal(self) -> FloatArray:
        """(10,) theta_e that is believed in now."""
        return np.array(self._known.nominal[self._box.layout.payload])

    # -- laws and proofs -------------------------------------------------------------------------------------------

    def _use(self, name: str, gains: ControllerGains, measurement: Sample) -> None:
        actual = self._robust if name == _ROBUST else name
        self._law: ControlLaw = make_law(actual, self._model, gains)
        self._law.reset(measurement.stamp, measurement.q, measurement.qd)
        self._law_name = name

    def _gains_for(self, trajectory: QuinticTrajectory) -> ControllerGains:
        """For the motion and the knowledge at hand; where no tracking bound exists, those of the prior."""
        told = self.notes[self._task.dumbbell]
        try:
            box = _box_of(self._known, self._box)
            gains = self._proof.gains(self._task.dumbbell, trajectory, box)
        except ParameterError as error:
            told["gains"] = f"the prior's: {error}"
            return self._prior_gains
        told["gains"] = "for the motion"
        told["tracking_bound"] = float(np.max(gains.e_bound))
        told["K_r"], told["kappa"] = float(np.max(gains.K_r)), gains.kappa
        return gains

    def _judge(self, trajectory: QuinticTrajectory, gains: ControllerGains) -> None:
        """Whether the motion is proved safe with the law as published; only said, not acted upon."""
        name, cell = self._task.dumbbell, self._cell
        told = self._proof.judge(name, trajectory, self._box, gains, cell.scene(), cell.measurement)
        self.notes[name] |= told

    # -- notes -----------------------------------------------------------------------------------------------------

    def _note_now_and_then(self, stamp: float) -> None:
        self._ticks += 1
        if self._ticks % _NOTE_EVERY == 0:
            self._note_mass(stamp)

    def _note_mass(self, stamp: float) -> None:
        """Mass that an adaptive law believes in now; others change it only when they identify."""
        if self._method.model is ModelSource.ADAPTED:
            estimate = np.asarray(getattr(self._law, "estimate"))  # noqa: B009 - not part of the protocol
            self.estimates[self._task.dumbbell].append((stamp, float(estimate[self._box.layout.payload][0])))
        elif not self.estimates[self._task.dumbbell]:
            self.estimates[self._task.dumbbell].append((stamp, float(self._nominal[0])))


def _box_of(known: ModelInUse, box: ParameterBox) -> ParameterBox:
    """What a law takes for certain to hold the truth; where it is told no uncertainty, a point."""
    if np.any(known.rad > 0.0):
        return box
    return ParameterBox(known.nominal, known.nominal, box.epoch, box.seq)
