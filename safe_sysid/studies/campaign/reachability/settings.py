"""What a trial of the reachability campaign is: settings drawn from (seed, index) alone, plain enough for JSON."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from safe_sysid.studies.campaign.cases.arms import CHAINS
from safe_sysid.studies.campaign.cases.settings import generator

__all__ = ["BODIES", "BOXES", "MOTIONS", "OBSTACLES", "TRACKINGS", "ReachabilitySettings", "draw_reachability_settings"]

#: Kinds of desired motion, see :mod:`~safe_sysid.studies.campaign.reachability.motions`.
MOTIONS = ("rest", "knots", "hold", "limits", "extrema", "low_order", "short", "long", "crawl")
#: Tracking errors: as gains give them; axes a thousand to one; next to nothing; so large that nothing is linear.
TRACKINGS = ("usual", "unequal", "tiny", "large")
#: Boxes of parameters: one point; per cent; a payload's prior; from the truth to one side; all sizes mixed.
BOXES = ("point", "usual", "wide", "one_sided", "mixed")
#: Bodies of the arm: capsules; hulls; points, segments and flat hulls; all of them.
BODIES = ("capsules", "hulls", "degenerate", "mixed")
#: What stands around.
OBSTACLES = ("none", "boxes", "flat", "all")


@dataclass(frozen=True)
class ReachabilitySettings:
    """One trial. Random numbers follow from seed, index and these."""

    robot: str
    joints: int  #: of a random arm, 1 to 9. chain: one of :data:`~safe_sysid.studies.campaign.cases.arms.CHAINS`.
    chain: str
    motion: str  #: kinds, see above
    tracking: str  #: kinds, see above
    box: str  #: kinds, see above
    bodies: str  #: kinds, see above
    obstacles: str  #: kinds, see above
    far: bool  #: whether joints are many turns from zero
    #: whether position and velocity are measured with errors, and feed-forward and actuator have their shares
    errors: bool
    transition: float  #: friction's transition velocity, rad/s. coulomb: size of the Coulomb friction, N m.
    coulomb: float
    gears: bool  #: whether rotors turn in moving links
    limits: str  #: "near" what the motion needs, so that margins of both signs occur, or "wide", so that plans pass
    intervals: int  #: cells of a plan before any splitting

    def to_dict(self) -> dict[str, Any]:
        """For JSON."""
        return asdict(self)


def draw_reachability_settings(seed: int, index: int, fixed: dict[str, Any] | None = None) -> ReachabilitySettings:
    """Settings of a trial. ``fixed``: values that replace drawn ones; the rest is as without them."""
    rng = generator(seed, index, 0)
    pick = rng.choice
    values: dict[str, Any] = {
        "robot": str(pick(["random", "kinova_gen3"], p=[0.85, 0.15])),
        "joints": int(rng.integers(1, 10)),
        "chain": str(pick(CHAINS, p=[0.6, 0.15, 0.15, 0.1])),
        "motion": str(pick(MOTIONS, p=[0.2, 0.2, 0.1, 0.1, 0.1, 0.1, 0.05, 0.05, 0.1])),
        "tracking": str(pick(TRACKINGS, p=[0.45, 0.2, 0.2, 0.15])),
        "box": str(pick(BOXES, p=[0.15, 0.35, 0.2, 0.15, 0.15])),
        "bodies": str(pick(BODIES)),
        "obstacles": str(pick(OBSTACLES, p=[0.1, 0.3, 0.2, 0.4])),
        "far": bool(rng.random() < 0.15),
        "errors": bool(rng.random() < 0.5),
        "transition": float(pick([0.0, 0.01, 0.2])),
        "coulomb": float(pick([0.0, 0.5, 4.0])),
        "limits": str(pick(["near", "wide"])),
        "intervals": int(pick([1, 2, 5, 16, 48, 128], p=[0.1, 0.1, 0.15, 0.25, 0.25, 0.15])),
        "gears": bool(rng.random() < 0.4),  # drawn last: other settings of a number are those of earlier campaigns
    }
    values |= fixed or {}
    return ReachabilitySettings(**values)
