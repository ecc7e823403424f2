"""The eleven methods of PSO Table II: which law, with which model and uncertainty, after which exciting motion.

What the paper leaves open is decided here, the same for all methods (docs/understand/experiments.md): before its data
are used, a method that identifies knows Table I; an adaptive law begins at Table I's nominal; the arm's own
parameters are the configuration's, with its uncertainty where a law uses one and with none where Table II says 0 %.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum

import numpy as np
from numpy.typing import ArrayLike

from safe_sysid.control.laws.law import ModelInUse
from safe_sysid.errors import SafeSysIdError
from safe_sysid.robot.model import RobotModel
from safe_sysid.robot.parameters import ParameterBox
from safe_sysid.simulation.arms import hand_box
from safe_sysid.studies.experiments.results.paper import NOMINAL_TABLE_ONE

__all__ = [
    "METHODS",
    "Excitation",
    "ExperimentError",
    "Method",
    "ModelSource",
    "choose",
    "empty_hand",
    "identified",
    "model_before",
    "table_one",
]


class ExperimentError(SafeSysIdError):
    """An experiment cannot be run as asked."""


class ModelSource(Enum):
    """Where a law's model of hand and payload comes from."""

    EMPTY_HAND = "no payload"
    TABLE_ONE = "Table I"
    IDENTIFIED = "Algorithm 1"
    ADAPTED = "the law's own estimate, from Table I on"


class Excitation(Enum):
    """Motion between lifting and the task."""

    NONE = "none"
    OURS = "Algorithm 2"
    RANDOM = "random"
    FOURIER = "Fourier series"


@dataclass(frozen=True)
class Method:
    """A row of Table II."""

    name: str  #: in the paper
    law: str  #: of the task, a name of :func:`safe_sysid.control.laws.make_law`
    model: ModelSource  #: where its model of hand and payload comes from
    uncertain: bool  #: whether it is told the model's uncertainty; without, it takes the model for exact
    excitation: Excitation = Excitation.NONE  #: before the task
    identifying_law: str = ""  #: what tracks the exciting motion and holds the arm before it

    @property
    def first_law(self) -> str:
        """The law from the grasp until the excitation ends: the task's where there is none."""
        return self.identifying_law or self.law

    @property
    def identifies(self) -> bool:
        """Whether the data of the exciting motion go into Algorithm 1 (our identifier)."""
        return self.model is ModelSource.IDENTIFIED


_ROBUST, _PID, _ADAPTIVE_1, _ADAPTIVE_2 = (
    "robust", "gravity_pid", "passivity_adaptive", "adaptive_robust",
)  # fmt: skip
_E, _T, _I, _A = ModelSource.EMPTY_HAND, ModelSource.TABLE_ONE, ModelSource.IDENTIFIED, ModelSource.ADAPTED
_OURS, _RANDOM, _FOURIER = Excitation.OURS, Excitation.RANDOM, Excitation.FOURIER

METHODS = {
    method.name: method
    for method in (
        Method("ours", _ROBUST, _I, True, _OURS, _ROBUST),
        Method("wrong", _ROBUST, _E, False),
        Method("conservative", _ROBUST, _T, True),
        Method("random", _ROBUST, _I, True, _RANDOM, _ROBUST),
        Method("adap-1", _ADAPTIVE_1, _A, True),
        Method("adap-1-excit", _ADAPTIVE_1, _A, True, _OURS, _ADAPTIVE_1),
        Method("adap-2", _ADAPTIVE_2, _A, True),
        Method("adap-2-excit", _ADAPTIVE_2, _A, True, _OURS, _ADAPTIVE_2),
        Method("grav-pid", _PID, _E, False),
        # Algorithm 2 is the whole of planner, identifier and robust controller; the PID takes over for the task.
        Method("grav-pid-ours", _PID, _I, False, _OURS, _ROBUST),
        Method("grav-pid-excit", _PID, _I, False, _FOURIER, _PID),
    )
}


def choose(names: Iterable[str], known: tuple[str, ...], what: str) -> tuple[str, ...]:
    """Names in the paper's order, each once. ``known``: all there are: methods, experiments or payloads.

    Raises ExperimentError: unknown name, or none at all.
    """
    asked = list(names)
    for name in asked:
        if name not in known:
            raise ExperimentError(f"{what} {name!r}: expected some of {', '.join(known)}")
    if not asked:
        raise ExperimentError(f"{what}: none given: expected some of {', '.join(known)}")
    return tuple(name for name in known if name in asked)


def _model_in_use(model: RobotModel, nominal_e: ArrayLike, box: ParameterBox, uncertain: bool) -> ModelInUse:
    nominal = np.array(model.theta_nominal, float)
    nominal[box.layout.payload] = nominal_e
    nominal = np.clip(nominal, box.lower, box.upper)
    if uncertain:
        return ModelInUse(nominal, box.mid, box.rad)
    return ModelInUse(nominal, nominal, np.zeros_like(nominal))


def empty_hand(model: RobotModel, uncertain: bool) -> ModelInUse:
    """Nothing in the hand, as wrong and grav-pid assume, and as all methods know when they have let go.

    ``uncertain``: with the hand's own uncertainty, that of every other link; else taken for exact.
    """
    lower, upper = hand_box(model)
    box = model.arm_prior.with_payload(lower, upper)
    return _model_in_use(model, model.theta_nominal[box.layout.payload], box, uncertain)


def table_one(model: RobotModel, uncertain: bool) -> ModelInUse:
    """Table I, clipped to the configuration's prior.

    ``uncertain``: with its intervals; else its nominal is taken for exact.
    """
    return _model_in_use(model, NOMINAL_TABLE_ONE, model.arm_prior, uncertain)


def identified(model: RobotModel, box: ParameterBox, nominal: ArrayLike, uncertain: bool) -> ModelInUse:
    """What an identification found.

    ``nominal``: (10,) estimate of theta_e; ``uncertain``: with the bounds; else the estimate is taken for exact.
    """
    return _model_in_use(model, nominal, box, uncertain)


def model_before(method: Method, model: RobotModel) -> ModelInUse:
    """What a method knows when it takes hold of a dumbbell."""
    if method.model is ModelSource.EMPTY_HAND:
        return empty_hand(model, method.uncertain)
    # Before the task the robust law knows Table I's intervals, whatever the task's law will use of the result.
    return table_one(model, method.uncertain or method.first_law == _ROBUST)
