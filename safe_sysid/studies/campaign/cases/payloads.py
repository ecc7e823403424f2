"""Payloads of the campaign, in a box of the tool frame: all physically consistent, many of them only just."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from safe_sysid.core.arrays import FloatArray
from safe_sysid.errors import ParameterError
from safe_sysid.robot.parameters import frozen_array, pseudo_inertia_to_theta

__all__ = ["PAYLOADS", "DrawnPayload", "draw_payload"]


#: Kinds of payload that :func:`draw_payload` draws.
PAYLOADS = ("solid", "block", "point", "rod", "plate", "corner", "light", "none")
_POINTS = {"solid": 12, "light": 8, "point": 1, "rod": 5, "plate": 8, "corner": 4, "none": 1}
_SHARE = {"light": 1e-6, "none": 0.0}


@dataclass(frozen=True, eq=False)
class DrawnPayload:
    """A body inside a box, both in the tool frame."""

    kind: str  #: one of :data:`PAYLOADS`
    theta: FloatArray  #: (10,) parameters about the tool frame's origin
    center: FloatArray  #: (3,) of the box, m
    size: FloatArray  #: (3,) of the box, m
    density: float  #: kg/m^3, infinite for points

    def __post_init__(self) -> None:
        for name, length in (("theta", 10), ("center", 3), ("size", 3)):
            object.__setattr__(self, name, frozen_array(getattr(self, name), (length,), f"payload {name}"))


def draw_payload(rng: np.random.Generator, kind: str) -> DrawnPayload:
    """A random payload. A rod's pseudo-inertia has rank 2, a point's rank 1: on the edge of what is possible.

    Raises ParameterError: unknown kind.

    Args:
        kind: one of :data:`PAYLOADS`; "block" has one density and may fill its box, the others are points; "corner" has
            all its mass in corners of the box, "light" a millionth of the usual mass.
    """
    center, size = rng.uniform(-0.15, 0.15, 3), rng.uniform(0.02, 0.4, 3)
    if kind == "block":
        return _block(rng, center, size)
    if kind not in _POINTS:
        raise ParameterError(f"payload = {kind!r}: expected one of {', '.join(PAYLOADS)}")
    count = _POINTS[kind]
    unit = rng.uniform(-0.5, 0.5, (count, 3))
    if kind == "rod":
        ends = rng.uniform(-0.5, 0.5, (2, 3))
        unit = ends[0] + np.linspace(0.0, 1.0, count)[:, None] * (ends[1] - ends[0])
    elif kind == "plate":
        unit[:, rng.integers(0, 3)] = rng.uniform(-0.5, 0.5)
    elif kind == "corner":
        unit = rng.choice([-0.5, 0.5], (count, 3))
    masses = rng.uniform(0.3, 4.0) * rng.dirichlet(np.ones(count)) * _SHARE.get(kind, 1.0)
    lifted = np.column_stack([center + unit * size, np.ones(count)])
    return DrawnPayload(kind, pseudo_inertia_to_theta((lifted * masses[:, None]).T @ lifted), center, size, np.inf)


def _block(rng: np.random.Generator, center: FloatArray, size: FloatArray) -> DrawnPayload:
    """A cuboid of one density; each edge is the box's with a chance of one half."""
    share = np.where(rng.random(3) < 0.5, 1.0, rng.uniform(0.1, 1.0, 3))
    edges = share * size
    middle = center + 0.5 * (size - edges) * rng.uniform(-1.0, 1.0, 3)
    density = float(np.clip(rng.uniform(0.3, 4.0) / edges.prod(), 50.0, 20000.0))
    mass = density * edges.prod()
    moments = np.zeros((4, 4))
    moments[:3, :3] = np.diag(edges**2 / 12.0) + np.outer(middle, middle)
    moments[:3, 3] = moments[3, :3] = middle
    moments[3, 3] = 1.0
    return DrawnPayload("block", pseudo_inertia_to_theta(mass * moments), center, size, density)
