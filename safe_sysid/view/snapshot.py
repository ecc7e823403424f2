"""Snapshot of what the view shows at one moment, as plain data. Texts are foreign and not escaped yet."""

from __future__ import annotations

from dataclasses import dataclass, field

from safe_sysid.core.arrays import FloatArray
from safe_sysid.robot.margin import Margin

__all__ = ["OLD", "BoundsView", "DrawnSolid", "NodeView", "RunOutcome", "Snapshot"]

#: What was said longer ago is history, s of wall time.
OLD = 3.0


@dataclass(frozen=True)
class NodeView:
    """Latest words of a node on /diagnostics."""

    level: int  #: 0 fine, 1 warning, 2 error, 3 stale
    text: str
    values: dict[str, str]
    age: float  #: since it spoke, s of wall time


@dataclass(frozen=True, eq=False)
class BoundsView:
    """A box of theta_e (last link, hand and payload), each (10,); ``identity`` is ``epoch:seq``."""

    identity: str
    lower: FloatArray
    nominal: FloatArray
    upper: FloatArray


@dataclass(frozen=True, eq=False)
class DrawnSolid:
    """Something drawn in the world."""

    kind: str  #: "box", "sphere", "cylinder", "line" or "triangles"
    position: FloatArray  #: (3,) m
    rotation: FloatArray  #: (3, 3)
    size: FloatArray  #: (3,) m; of a line the first is its width
    points: FloatArray  #: (m, 3) m in the solid's frame, of lines and triangles


@dataclass(frozen=True, eq=False)
class RunOutcome:
    """How a simulated run ended."""

    good: bool  #: whether every bound held and nothing was violated
    text: str
    facts: tuple[str, ...]
    truth: FloatArray | None  #: (10,) of theta_e, which the plant alone knew; None where it left no record


@dataclass(frozen=True, eq=False)
class Snapshot:
    """Everything that the page shows."""

    time: float | None = None  #: of the plant's clock, s; of a real one since it was first heard; None: nothing heard
    speed: float | None = None  #: plant's seconds per second of wall time; None: not known
    simulated: bool = False  #: whether someone publishes /clock, or did in this run
    #: by name: controller, planner, identifier, plant, recorder
    nodes: dict[str, NodeView] = field(default_factory=dict)
    prior: tuple[FloatArray, FloatArray] | None = None  #: (10,), (10,) of theta_e
    bounds: BoundsView | None = None  #: the box that the controller works with; None until it is heard
    #: (n,) commanded torque, N m (N where a joint slides); None: not heard, or not any more
    torque: FloatArray | None = None
    margins: tuple[Margin, ...] = ()  #: of the last plan, without culprits
    plan: str = ""
    missing: tuple[str, ...] = ()  #: sentences: what is not heard, and where it was looked for
    warnings: tuple[str, ...] = ()  #: sentences: what does not fit together
    verdict: RunOutcome | None = None
    #: what was not shown because it is too much or malformed, with counts
    dropped: dict[str, int] = field(default_factory=dict)
