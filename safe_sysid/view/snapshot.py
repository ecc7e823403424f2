"""Snapshot of what the view shows at one moment, as plain data. Texts are foreign and not escaped yet."""

from __future__ import annotations

from dataclasses import dataclass, field

from safe_sysid.core.arrays import FloatArray
from safe_sysid.robot.margin import Margin

__all__ = ["OLD", "BoundsView", "NodeView", "RunOutcome", "Snapshot", "Solid"]

#: What was said longer ago is history, s of wall time.
OLD = 3.0


@dataclass(frozen=True)
class NodeView:
    """Latest words of a node on /diagnostics.

    Attributes:
        level: 0 fine, 1 warning, 2 error, 3 stale.
        age: since it spoke, s of wall time.
    """

    level: int
    text: str
    values: dict[str, str]
    age: float


@dataclass(frozen=True, eq=False)
class BoundsView:
    """A box of theta_e (last link, hand and payload), each (10,); ``identity`` is ``epoch:seq``."""

    identity: str
    lower: FloatArray
    nominal: FloatArray
    upper: FloatArray


@dataclass(frozen=True, eq=False)
class Solid:
    """Something drawn in the world.

    Attributes:
        kind: "box", "sphere", "cylinder", "line" or "triangles".
        position: (3,) m.
        rotation: (3, 3).
        size: (3,) m; of a line the first is its width.
        points: (m, 3) m in the solid's frame, of lines and triangles.
    """

    kind: str
    position: FloatArray
    rotation: FloatArray
    size: FloatArray
    points: FloatArray


@dataclass(frozen=True, eq=False)
class RunOutcome:
    """How a simulated run ended.

    Attributes:
        good: whether every bound held and nothing was violated.
        truth: (10,) of theta_e, which the plant alone knew; None where it left no record.
    """

    good: bool
    text: str
    facts: tuple[str, ...]
    truth: FloatArray | None


@dataclass(frozen=True, eq=False)
class Snapshot:
    """Everything that the page shows.

    Attributes:
        time: of the plant's clock, s; of a real one since it was first heard; None: nothing heard.
        speed: plant's seconds per second of wall time; None: not known.
        simulated: whether someone publishes /clock, or did in this run.
        nodes: by name: controller, planner, identifier, plant, recorder.
        prior: (10,), (10,) of theta_e.
        bounds: the box that the controller works with; None until it is heard.
        torque: (n,) commanded torque, N m (N where a joint slides); None: not heard, or not any more.
        margins: of the last plan, without culprits.
        missing: sentences: what is not heard, and where it was looked for.
        warnings: sentences: what does not fit together.
        dropped: what was not shown because it is too much or malformed, with counts.
    """

    time: float | None = None
    speed: float | None = None
    simulated: bool = False
    nodes: dict[str, NodeView] = field(default_factory=dict)
    prior: tuple[FloatArray, FloatArray] | None = None
    bounds: BoundsView | None = None
    torque: FloatArray | None = None
    margins: tuple[Margin, ...] = ()
    plan: str = ""
    missing: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    verdict: RunOutcome | None = None
    dropped: dict[str, int] = field(default_factory=dict)
