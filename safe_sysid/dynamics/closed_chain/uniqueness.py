"""Uniqueness by sampling (Assumption 1): each position of the motors allows one position of the passive joints."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from safe_sysid.core.arrays import FloatArray
from safe_sysid.dynamics.closed_chain.kernels import close
from safe_sysid.dynamics.closed_chain.mechanism import Mechanism
from safe_sysid.dynamics.closed_chain.parts import ClosureError

__all__ = ["Uniqueness", "check_uniqueness"]

_SAME = 1e-6  # rad or m: solutions nearer than this are one
_SEARCHES = 40  # starting points of Newton's method for each position
_WIDE = np.pi  # rad: where passive joints are searched that have no limits


@dataclass(frozen=True, eq=False)
class Uniqueness:
    """What sampling says; a sample is no proof."""

    samples: int  #: positions of the actuated joints that were tried
    none: int  #: how many have no solution within the passive joints' limits that any search found
    several: int  #: how many have more than one
    off_branch: int  #: how many have one, but not that which the motion from ``start`` leads to
    smallest_singular_value: float
    #: (2, n) two solutions for one position of the actuated joints, rad; None if there are none
    example: FloatArray | None

    @property
    def holds(self) -> bool:
        """Whether nothing speaks against Assumption 1."""
        return self.none == self.several == self.off_branch == 0


def check_uniqueness(mechanism: Mechanism, samples: int = 100) -> Uniqueness:
    """Sample positions of the actuated joints within their limits, and search for solutions from random places.

    A mechanism without loops has nothing that could fail.
    """
    rng = np.random.default_rng(0)
    passive, actuated = mechanism.passive, mechanism.actuated
    low = np.where(np.isfinite(mechanism.position_lower), mechanism.position_lower, mechanism.start - _WIDE)
    high = np.where(np.isfinite(mechanism.position_upper), mechanism.position_upper, mechanism.start + _WIDE)
    none = several = off_branch = 0
    smallest, example = np.inf, None
    if not mechanism.closures:
        return Uniqueness(samples, 0, 0, 0, smallest, None)
    transmission = np.empty((len(passive), len(actuated)))
    for _ in range(samples):
        q_a = rng.uniform(low[actuated], high[actuated])
        found: list[FloatArray] = []
        for _ in range(_SEARCHES):
            q = rng.uniform(low, high)
            q[actuated] = q_a
            if close(mechanism.kinematics, mechanism.loops, q, transmission) == 0.0:
                continue
            turning = passive[~mechanism.kinematics.sliding[passive]]
            middle = 0.5 * (low + high)
            q[turning] -= 2.0 * np.pi * np.round((q[turning] - middle[turning]) / (2.0 * np.pi))
            inside = np.all((q[passive] >= low[passive] - _SAME) & (q[passive] <= high[passive] + _SAME))
            if inside and mechanism.is_closed(q) and all(np.max(np.abs(q - other)) > _SAME for other in found):
                found.append(q)
        if not found:
            none += 1
            continue
        if len(found) > 1:
            several += 1
            example = np.array(found[:2])
        else:
            try:
                led = mechanism.positions(q_a)[0]
                off_branch += int(np.max(np.abs(led - found[0])) > 1e3 * _SAME)
            except ClosureError:
                off_branch += 1
        for q in found:
            reduced = mechanism.jacobian(q)[:, passive]
            smallest = min(smallest, float(np.linalg.svd(reduced, compute_uv=False)[-1]))
    return Uniqueness(samples, none, several, off_branch, smallest, example)
