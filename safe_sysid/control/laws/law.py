"""Interface of control laws: measured state, reference and parameter box in, torque out; and what several share.

A law has no clock and does no I/O. It allocates nothing that grows; the array it returns is its own and is overwritten
by the next step. A law says what it proves: a controller claims that, and nothing else, of the arm that it moves.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Protocol, runtime_checkable

import numpy as np

from safe_sysid.core.arrays import FloatArray
from safe_sysid.dynamics import dynamics_of
from safe_sysid.robot.model import RobotModel

__all__ = ["ControlLaw", "ModelInUse", "Proves", "StepTime", "TrackingLaw", "joint_inertia"]


class Proves(Enum):
    """What is proved of an arm that a law moves."""

    #: Errors and energy are measured and reported; nothing is claimed.
    NOTHING = "nothing"
    #: "Tracking" in docs/understand/guarantees.md: under its hypotheses, and with the controller's gains, V stays below
    #: V_max. The law is a :class:`TrackingLaw`.
    TRACKING = "tracking"


@dataclass(frozen=True, eq=False)
class ModelInUse:
    """What a law may know of the parameters at this tick; boxes may blend between ticks, so every step gets it."""

    nominal: FloatArray  #: (14 n,) best estimate (order of :mod:`safe_sysid.robot.parameters`)
    mid: FloatArray  #: (14 n,) centre of the box in use
    rad: FloatArray  #: (14 n,) its half widths

    def __post_init__(self) -> None:
        """Arrays that cannot be written, whoever made them: kernels of laws are compiled for one kind of array."""
        for name in ("nominal", "mid", "rad"):
            view = getattr(self, name).view()
            view.setflags(write=False)
            object.__setattr__(self, name, view)


@runtime_checkable
class ControlLaw(Protocol):
    """One control law for one arm."""

    name: str  #: of the law, as ``controller.law`` has it
    proves: Proves  #: what is claimed while it commands
    #: (n,) torque besides the law's own that the proof tolerates per joint, N m or N: what a feed-forward may add.
    #: Zeros where nothing is proved.
    residual_bound: FloatArray

    def reset(self, t: float, q: FloatArray, qd: FloatArray) -> None:
        """Forget the past: integrals, estimates, filters. Called at every start."""

    def step(self, t: float, q: FloatArray, qd: FloatArray, reference: FloatArray, model: ModelInUse) -> FloatArray:
        """Torque to command. Returns (n,) N m, not clipped; the same array every time.

        Args:
            t: stamp of the measurement, s.
            q: (n,) measured, rad.
            qd: (n,) measured, rad/s.
            reference: (>= 3, n) desired position, velocity, acceleration.
        """


@runtime_checkable
class TrackingLaw(ControlLaw, Protocol):
    """A law that proves the tracking bound, given that S keeps the hypothesis.

    Its torque must be ``W_s theta' + K_d r`` with some theta' in the box in use, W_s taken at
    ``qdd_a + own_damping r`` (zero but for ``controller.damping: inertia``): plans are certified for that image.
    """

    uncertainty: float  #: S of the last step, sqrt(W/s)


def joint_inertia(model: RobotModel) -> FloatArray:
    """Diagonal of the nominal H at home (n,), kg m^2, rotors included."""
    home = np.asarray(model.settings.home, float)
    inertia = np.empty(model.n)
    for j in range(model.n):
        unit = np.zeros(model.n)
        unit[j] = 1.0
        inertia[j] = np.ravel(dynamics_of(model.kinematics).momentum_regressor(home, unit) @ model.theta_nominal)[j]
    return inertia


class StepTime:
    """Time since the step before, never negative, and bounded: after a gap nothing is integrated that was not seen."""

    def __init__(self, longest: float) -> None:
        """``longest``: s."""
        self._longest = longest
        self._last: float | None = None

    def reset(self) -> None:
        """The next step is the first."""
        self._last = None

    @property
    def is_first(self) -> bool:
        """Whether no step was made since the reset."""
        return self._last is None

    def since_last(self, t: float) -> float:
        """Time since the last call, s; 0 at the first after a reset. ``t``: now, s."""
        last, self._last = self._last, t
        return 0.0 if last is None else min(max(t - last, 0.0), self._longest)
