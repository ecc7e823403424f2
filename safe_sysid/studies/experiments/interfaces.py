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

__all__ = ["CarryTask", "Cell", "CellReport", "Contact", "Driver", "Identification", "Phase", "Placement", "Recording"]


class Phase(str, Enum):
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
    """One dumbbell's way, from the work cell's file.

    Attributes:
        dumbbell: name, such as "8lb".
        pick: (n,) rad, hand around the handle in the rack.
        lift: from pick to the work cell's ready pose.
        carry: from the ready pose to the place pose: the fast motion.
        retract: from the place pose, empty hand; None where nothing is placed (experiment c).
        place_xyz: (3,) m, where the dumbbell's centre shall be after settling (experiment c: when the carry is over).
        place_rotation: (3, 3) axes of the dumbbell there.
    """

    dumbbell: str
    pick: FloatArray
    lift: QuinticTrajectory
    carry: QuinticTrajectory
    retract: QuinticTrajectory | None
    place_xyz: FloatArray
    place_rotation: FloatArray


@dataclass(frozen=True)
class Contact:
    """The arm, or what it holds, touched something.

    Attributes:
        time: s, of the first touch.
        one: name of the arm's part, or "payload".
        two: of what was touched: an obstacle, a dumbbell, another part of the arm.
        depth: m, deepest while this pair touched in this phase.
    """

    time: float
    phase: Phase
    one: str
    two: str
    depth: float


@dataclass(frozen=True, eq=False)
class Identification:
    """What a driver's identification phase ends with.

    Attributes:
        rest: (n,) rad, the reference at which the arm rests now; the choreography moves it to the ready pose if it
            is elsewhere (phase RETURN).
        failure: "" or why the method gave up: the trial fails with this reason.
        notes: plain data for the trial's record (bounds, estimates, plans, draws).
    """

    rest: FloatArray
    failure: str = ""
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

        Args:
            torque: (n,) N m.
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

    def motion(self, phase: Phase, trajectory: QuinticTrajectory, start_time: float) -> str:
        """Announce the next motion (LIFT, RETURN, CARRY); returns "" or the reason why the method refuses it.

        HOLD and GRASP are not announced: there the reference rests at the end of the last motion.

        Args:
            start_time: stamp at which it begins, s.
        """

    def torque(self, measurement: Sample, reference: FloatArray) -> ArrayLike:
        """Torque (n,) for the coming period, N m.

        Args:
            reference: (4, n) desired position, velocity, acceleration, jerk at the measurement's stamp.
        """

    def identify(self, cell: Cell, ready: FloatArray) -> Identification:
        """Have the arm, at rest at ``ready``, for as long as wanted: step the cell, and leave the arm at rest.

        Args:
            cell: to step; every contact and every torque in it counts.
            ready: (n,) rad, the reference at which the arm rests.
        """


@dataclass(frozen=True, eq=False)
class Placement:
    """How one dumbbell went.

    Attributes:
        success: whether all criteria were met.
        reason: "" or the first criterion that was not, in words.
        failures: all that were not.
        position_error: m, of the dumbbell's centre after settling; nan if it was never released.
        angle_error: rad, the same.
        stack_error: m, largest displacement from its place of a dumbbell that was placed before; nan without any.
        torque_ratio: largest |commanded torque| over the criterion's limit, over joints and time.
        tracking_error: rad, largest |reference - true position| during the carry, over joints.
        contacts: all, with the pairs that are allowed left out.
        start, end: stamps of the grasp and of the judgement, s.
        identification: notes of the driver's identification phase.
    """

    dumbbell: str
    success: bool
    reason: str
    failures: tuple[str, ...]
    position_error: float
    angle_error: float
    stack_error: float
    torque_ratio: float
    tracking_error: float
    contacts: tuple[Contact, ...]
    start: float
    end: float
    identification: dict[str, Any] = field(default_factory=dict)


@dataclass(eq=False)
class Recording:
    """Tick by tick, for pictures: K ticks of the phases in which the driver worked (IDENTIFY left out: the driver's).

    Attributes:
        dumbbell, phase: (K,) names.
        stamp: (K,) s.
        reference: (K, 3, n) desired position, velocity, acceleration.
        q, qd: (K, n) true, rad and rad/s.
        torque: (K, n) commanded, N m.
    """

    dumbbell: list[str] = field(default_factory=list)
    phase: list[str] = field(default_factory=list)
    stamp: list[float] = field(default_factory=list)
    reference: list[FloatArray] = field(default_factory=list)
    q: list[FloatArray] = field(default_factory=list)
    qd: list[FloatArray] = field(default_factory=list)
    torque: list[FloatArray] = field(default_factory=list)


@dataclass(frozen=True, eq=False)
class CellReport:
    """How one run of a work cell went.

    Attributes:
        method: the driver's name.
        success: whether every dumbbell was placed.
        reason: "" or "<dumbbell>: <why>" of the first that was not; the run ends there.
        recording: tick by tick, where it was asked for.
    """

    workcell: str
    method: str
    success: bool
    reason: str
    placements: tuple[Placement, ...]
    recording: Recording | None = None
