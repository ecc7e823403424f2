"""What a trial of the identification campaign is: settings drawn from (seed, index) alone, plain enough for JSON."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from safe_sysid.studies.campaign.cases.arms import CHAINS
from safe_sysid.studies.campaign.cases.motions import MOTIONS, SMOOTH
from safe_sysid.studies.campaign.cases.noise import NOISES
from safe_sysid.studies.campaign.cases.payloads import PAYLOADS

__all__ = ["TrialSettings", "draw_settings", "generator"]

_RATES = (100.0, 200.0, 500.0, 1000.0)
_SIMULATED = 0.12  # share of trials by forward dynamics
_GEARED = 0.4  # share of arms whose rotors turn in moving links
_EQUATIONS = 1500  # samples times joints of one trial, about: what 10,000 trials can afford


@dataclass(frozen=True)
class TrialSettings:
    """One trial. Random numbers follow from seed, index and these."""

    joints: int  #: of the arm. chain, payload, motion, noise: kinds, see the modules of these names.
    chain: str
    payload: str
    motion: str
    noise: str
    source: str  #: "motor", "link" or "command". effort: "held" or "sampled". level: of the noise.
    effort: str
    level: str
    rate: float  #: samples per second. samples: periods. jitter: of sampling times, in periods.
    samples: int
    jitter: float
    lost: bool  #: whether samples are lost, repeated or not finite
    law: str  #: of friction below ``transition`` (rad/s). coulomb: size, N m.
    transition: float
    coulomb: float
    margin: float  #: of the declared acceleration bound over the true supremum
    prior: str  #: where the truth lies: "inside" or at a "corner" (worst directions choose the corner themselves)
    #: component, side: of the bound that a worst direction attacks; ridge: weight of the prior in it
    component: int
    side: float
    ridge: float
    simulated: bool
    continuous: bool  #: whether positions wrap
    method: str  #: "lp" or "sdp". box, density: whether the payload's box and density are told.
    box: bool
    density: bool
    updates: int
    #: whether a motion with the empty hand came before. certified: whether certificates are written and checked.
    tare: bool
    certified: bool
    prismatic: float  #: chance of each joint to slide instead of to turn
    geared: bool  #: whether rotors turn in moving links. ratios: whether some of their ratios are not told.
    ratios: bool
    zero: float  #: largest offset that is declared of a joint's zero, rad or m; 0: all zeros are exact

    @property
    def declared_effort(self) -> str:
        """What is true of the torques: of motions in closed form, and behind the gears, means alone are known."""
        if self.effort == "sampled":
            return "sampled"
        return "held" if self.simulated and self.source != "link" else "mean"

    def to_dict(self) -> dict[str, Any]:
        """For JSON."""
        return asdict(self)


def generator(seed: int, index: int, stream: int) -> np.random.Generator:
    """Random numbers of one part of one trial; parts do not disturb each other."""
    return np.random.default_rng([seed, index, stream])


def draw_settings(seed: int, index: int, fixed: dict[str, Any] | None = None) -> TrialSettings:
    """Settings of a trial. ``fixed``: values that replace drawn ones; the rest is as without them."""
    rng = generator(seed, index, 0)
    pick = rng.choice
    joints = int(rng.integers(3, 10))
    noise = str(pick(NOISES, p=[0.08, 0.06, 0.06, 0.06, 0.06, 0.06, 0.06, 0.40, 0.16]))
    simulated = bool(rng.random() < _SIMULATED)
    level = str(pick(["usual", "tiny", "coarse", "states", "sensors", "clock"], p=[0.25, 0.23, 0.15, 0.17, 0.15, 0.05]))
    effort = "sampled" if not simulated and rng.random() < 0.15 else "held"
    rate = float(pick(_RATES))
    transition = float(pick([0.0, 0.002, 0.02]))
    values: dict[str, Any] = {
        "joints": joints,
        "chain": str(pick(CHAINS, p=[0.7, 0.1, 0.1, 0.1])),
        "payload": str(pick(PAYLOADS)),
        "motion": str(pick(MOTIONS, p=[0.3, 0.2, 0.1, 0.15, 0.1, 0.1, 0.05])),
        "noise": noise,
        "source": str(pick(["motor", "link", "command"], p=[0.6, 0.25, 0.15])),
        "effort": effort,
        "level": level,
        "rate": rate,
        "samples": int(np.clip(_EQUATIONS * rng.uniform(0.5, 1.5) / joints, 60, 400)),
        "jitter": float(pick([0.0, 0.4], p=[0.75, 0.25])),
        "lost": bool(rng.random() < 0.08),
        "law": str(pick(["saturated", "stick"])),
        "transition": transition,
        "coulomb": float(pick([0.0, 0.5, 4.0])),
        "margin": float(pick([1e-9, 0.2, 1.0])),
        "prior": str(pick(["inside", "corner"])),
        "component": int(rng.integers(0, 10)),
        "side": float(pick([-1.0, 1.0])),
        "ridge": float(pick([1e-6, 1e-3, 1e-1])),
        "simulated": simulated,
        "continuous": bool(rng.random() < 0.25),
        "method": str(pick(["lp", "sdp"], p=[0.5, 0.5])),
        "box": bool(rng.random() < 0.5),
        "density": bool(rng.random() < 0.5),
        "updates": int(pick([1, 2, 3])),
        "tare": bool(rng.random() < 0.06),
        "certified": bool(rng.random() < 0.03),
        "prismatic": float(generator(seed, index, 13).choice([0.0, 0.4, 1.0], p=[0.8, 0.17, 0.03])),
        "geared": bool(generator(seed, index, 15).random() < _GEARED),
        "ratios": bool(generator(seed, index, 20).random() < 0.5),
        "zero": float(generator(seed, index, 21).choice([0.0, 1e-4, 2e-3, 0.02], p=[0.6, 0.1, 0.15, 0.15])),
    }
    if simulated:  # a stable and accurate integration, and errors large against its own
        values |= {
            "rate": float(pick([500.0, 1000.0])), "transition": 0.05, "law": "saturated", "jitter": 0.0,
            "coulomb": float(pick([0.0, 0.5])), "motion": str(pick(["quintic", "wave", "bang"])),
        }  # fmt: skip
        values["level"] = "usual" if level == "tiny" else level
    if effort == "sampled":  # of a torque that does not jump
        values |= {"law": "saturated", "transition": 0.02, "motion": str(pick(SMOOTH))}
    values |= fixed or {}
    if values["simulated"] or values["motion"] not in SMOOTH:
        values["effort"] = "held"
    return TrialSettings(**values)
