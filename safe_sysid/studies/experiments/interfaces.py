"""Interfaces between work cell and methods of an experiment: plain data and protocols.

The work cell (:mod:`~safe_sysid.studies.experiments.cell.simulation`) owns the truth, the choreography
(:mod:`~.experiments.choreography`) the sequence of events; a :class:`Driver` is a method of Table II at work:
from the grasp to the release it alone supplies torques. The empty hand is moved by the robot's own position
controller, the same for all methods, and is not judged.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from typing import Any, Protocol, runtime_checkable

from numpy.typing import ArrayLike

from safe_sysid.core.arrays import FloatArray
from safe_sysid.identification.equations.measurements import Sample
from safe_sysid.robot.model import RobotModel
from safe_sysid.robot.scenes.scene import Scene
from safe_sysid.trajectories.quintic import QuinticTrajectory

__all__ = [
    "CarryTask",
    "Cell",
    "CellReport",
    "Contact",
    "Driver",
    "DumbbellPhase",
    "Identification",
    "Placement",
    "Recording",
]


class DumbbellPhase(str, Enum):
    """What happens to one dumbbell, in this order; the driver is at work from GRASP to HOLD."""

    APPROACH = "approach"  #: empty hand, robot's own controller
    GRASP = "grasp"  #: at rest at the pick pose, dumbbell welded to the hand, still standing on its rack
    LIFT = "lift"  #: slow, from the rack to the ready pose
    IDENTIFY = "identify"  #: as the driver likes; methods without identification skip it
    RETURN = "return"  #: slow, from where the identification ended to the ready pose, if that is elsewhere
    CARRY = "carry"  #: the pre-planned fast motion: two quintics of 1 s
    HOLD = "hold"  #: at rest over the place pose, before the release
    RELEASE = "release"  #: the dumbbell falls the gap and settles; the robot's own controller holds the arm
    RETRACT = "retract"  #: empty hand, robot's own controller


@dataclass(frozen=True, eq=False)
class CarryTask:
    """One dumbbell's way, from the work cell's file."""

    dumbbell: str  #: name, such as "8lb"
    pick: FloatArray  #: (n,) rad, hand around the handle in the rack
    lift: QuinticTrajectory  #: from pick to the work cell's ready pose
    carry: QuinticTrajectory  #: from the ready pose to the place pose: the fast motion
    retract: QuinticTrajectory | None  #: from the place pose, empty hand; None where nothing is placed (experiment c)


@dataclass(frozen=True)
class Contact:
    """The arm, or what it holds, touched something."""

    time: float  #: s, of the first touch
    phase: DumbbellPhase
    one: str  #: name of the arm's part, or "payload"
    two: str  #: of what was touched: an obstacle, a dumbbell, another part of the arm
    depth: float  #: m, deepest while this pair touched in this phase


@dataclass(frozen=True, eq=False)
class Identification:
    """What a driver's identification phase ends with."""

    #: (n,) rad, the reference at which the arm rests now; the choreography moves it to the ready pose if it is
    #: elsewhere (phase RETURN)
    rest: FloatArray
    failure: str = ""  #: "" or why the method gave up: the trial fails with this reason
    #: plain data for the trial's record (bounds, estimates, plans, draws)
    notes: dict[str, Any] = field(default_factory=dict)


@runtime_checkable
class Cell(Protocol):
    """The running work cell as a driver sees it; ``step``, ``measurement``, ``time``, ``period`` are the plant's."""

    model: RobotModel
    period: float

    @property
    def measurement(self) -> Sample:
        """The last one."""

    @property
    def time(self) -> float:
        """Simulated time, s."""

    @property
    def held(self) -> str | None:
        """Name of the dumbbell in the hand."""

    def step(self, torque: ArrayLike | None) -> Sample:
        """Advance by one period; None: no command came, the drives hold or brake by themselves.

        ``torque``: (n,) N m.
        """

    def scene(self) -> Scene:
        """What stands around now, dumbbells included (as boxes around them), the one in the hand left out."""

    def contacts(self) -> list[tuple[str, str, float]]:
        """What the arm, or what it holds, touches now: names and depth, m."""

    def pose(self, name: str) -> tuple[FloatArray, FloatArray]:
        """Centre (3,) in m and axes (3, 3) of a dumbbell now."""


@runtime_checkable
class Driver(Protocol):
    """A method at work on one dumbbell after the other. All times are stamps of the cell."""

    name: str

    def begin(self, task: CarryTask, cell: Cell) -> None:
        """A new unknown payload was welded to the hand (at rest at ``task.pick``); forget the last one."""

    def motion(self, phase: DumbbellPhase, trajectory: QuinticTrajectory, start_time: float) -> str:
        """Announce the next motion (LIFT, RETURN, CARRY); returns "" or the reason why the method refuses it.

        HOLD and GRASP are not announced: there the reference rests at the end of the last motion.

        ``start_time``: stamp at which it begins, s.
        """

    def torque(self, measurement: Sample, reference: FloatArray) -> ArrayLike:
        """Torque (n,) for the coming period, N m.

        ``reference``: (4, n) desired position, velocity, acceleration, jerk at the measurement's stamp.
        """

    def identify(self, cell: Cell, ready: FloatArray) -> Identification:
        """Have the arm, at rest at ``ready``, for as long as wanted: step the cell, and leave the arm at rest.

        Args:
            cell: to step; every contact and every torque in it counts.
            ready: (n,) rad, the reference at which the arm rests.
        """


@dataclass(frozen=True, eq=False)
class Placement:
    """How one dumbbell went."""

    dumbbell: str
    success: bool  #: whether all criteria were met
    reason: str  #: "" or the first criterion that was not, in words
    failures: tuple[str, ...]  #: all that were not
    position_error: float  #: m, of the dumbbell's centre after settling; nan if it was never released
    angle_error: float  #: rad, the same
    stack_error: float  #: m, largest displacement from its place of a dumbbell that was placed before; nan without any
    torque_ratio: float  #: largest |commanded torque| over the criterion's limit, over joints and time
    tracking_error: float  #: rad, largest |reference - true position| during the carry, over joints
    contacts: tuple[Contact, ...]  #: all, with the pairs that are allowed left out
    #: start, end: stamps of the grasp and of the judgement, s
    start: float
    end: float
    identification: dict[str, Any] = field(default_factory=dict)  #: notes of the driver's identification phase


@dataclass(eq=False)
class Recording:
    """Tick by tick, for pictures: K ticks of the phases in which the driver worked, without IDENTIFY (the driver's)."""

    dumbbell: list[str] = field(default_factory=list)  #: (K,) names
    phase: list[str] = field(default_factory=list)  #: (K,) names
    stamp: list[float] = field(default_factory=list)  #: (K,) s
    reference: list[FloatArray] = field(default_factory=list)  #: (K, 3, n) desired position, velocity, acceleration
    q: list[FloatArray] = field(default_factory=list)  #: (K, n) true, rad and rad/s
    qd: list[FloatArray] = field(default_factory=list)  #: (K, n) true, rad and rad/s
    torque: list[FloatArray] = field(default_factory=list)  #: (K, n) commanded, N m


@dataclass(frozen=True, eq=False)
class CellReport:
    """How one run of a work cell went."""

    workcell: str
    method: str  #: the driver's name
    success: bool  #: whether every dumbbell was placed
    reason: str  #: "" or "<dumbbell>: <why>" of the first that was not; the run ends there
    placements: tuple[Placement, ...]
    recording: Recording | None = None  #: tick by tick, where it was asked for
