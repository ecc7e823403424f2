"""Models that can be learned, by name, and what a learned one is. No torch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from safe_sysid.core.arrays import FloatArray

__all__ = ["MODELS", "OPTIMIZATIONS", "SEEN", "TRANSITION", "Learned", "ModelKind", "Scaling", "network_shapes"]

#: Velocity below which Coulomb friction rises to its value [Hybrid eq. 13], rad/s or m/s.
TRANSITION: Final = 0.02
#: End to end: all at once by gradients. Two steps: the rigid part by a semidefinite program, then the network.
OPTIMIZATIONS = ("e2e", "2s")
#: What a network sees besides velocities and accelerations: directions as Coulomb friction takes them (eq. 13), or
#: positions, as in [Hybrid]. A network that knows where the arm is learns its training motions by heart.
SEEN = ("directions", "positions")


@dataclass(frozen=True)
class ModelKind:
    """What a model consists of."""

    rigid: str | None  #: "bary" (DiffBary), "nea" (DiffNEA), "delan", or None
    friction: bool  #: whether it has Coulomb friction
    network: str | None  #: "lstm", "mlp" or None
    words: str  #: for people


MODELS: Final[dict[str, ModelKind]] = {
    "rbd": ModelKind("bary", False, None, "rigid arm"),
    "rbd_sign": ModelKind("bary", True, None, "rigid arm with Coulomb friction"),
    "rbd_lstm": ModelKind("bary", False, "lstm", "rigid arm and a network with memory"),
    "rbd_sign_lstm": ModelKind("bary", True, "lstm", "rigid arm with friction and a network with memory"),
    "rbd_sign_mlp": ModelKind("bary", True, "mlp", "rigid arm with friction and a network without memory"),
    "lstm": ModelKind(None, False, "lstm", "a network with memory alone"),
    "nea": ModelKind("nea", False, None, "rigid arm by DiffNEA"),
    "nea_lstm": ModelKind("nea", False, "lstm", "rigid arm by DiffNEA and a network with memory"),
    "delan": ModelKind("delan", False, None, "Deep Lagrangian network"),
    "delan_lstm": ModelKind("delan", False, "lstm", "Deep Lagrangian network and one with memory"),
}


@dataclass(frozen=True, eq=False)
class Scaling:
    """Fixed units of a network, from the training data."""

    #: mean, deviation: (3 n,) of ``[q, qd, qdd]``; a network sees ``(x - mean) / deviation``
    mean: FloatArray
    deviation: FloatArray
    low: FloatArray  #: (3 n,) smallest and largest
    high: FloatArray  #: (3 n,) smallest and largest
    #: torque_low, torque_high: (n,) smallest and largest torque; a network's one is their difference
    torque_low: FloatArray
    torque_high: FloatArray

    @property
    def torque_range(self) -> FloatArray:
        """(n,) N m or N."""
        return self.torque_high - self.torque_low


@dataclass(frozen=True, eq=False)
class Learned:
    """A model of an arm's torques that was learned."""

    name: str  #: in :data:`MODELS`
    optimization: str  #: one of :data:`OPTIMIZATIONS`
    seed: int  #: of its training
    joint_names: tuple[str, ...]  #: (n,) of the arm, in the order of columns
    rate_hz: float  #: of the data; a network with memory steps at this rate
    theta: FloatArray | None  #: (14 n,) rigid parameters, friction and rotors included; None without a rigid part
    scaling: Scaling  #: of the network
    weights: Mapping[str, FloatArray]  #: of the network by name, as torch calls them; empty without one
    provenance: Mapping[str, str] = field(default_factory=dict)  #: where it is from, in words by key
    sees: str = "positions"  #: one of :data:`SEEN`
    every: int = 1  #: ticks of a step of the network, which sees their means, and whose torque is held until the next

    @property
    def kind(self) -> ModelKind:
        """What it consists of."""
        return MODELS[self.name]


def network_shapes(network: str | None, n: int, weights: Mapping[str, FloatArray]) -> dict[str, tuple[int, ...]]:
    """Shapes that the weights of a network of an arm must have.

    Args:
        network: "lstm", "mlp" or None.
        n: joints.
        weights: of it; the first layer's and the memory's width are read from them.
    """
    if network is None:
        return {}
    width = _rows(weights.get("first.weight"))
    shapes: dict[str, tuple[int, ...]] = {"first.weight": (width, 3 * n), "first.bias": (width,), "slope.weight": (1,)}
    if network == "mlp":
        inner: Sequence[tuple[str, tuple[int, ...]]] = [("second.weight", (width, width)), ("second.bias", (width,))]
        last = width
    else:
        last = _rows(weights.get("memory.weight_hh_l0")) // 4
        inner = [
            *((f"{norm}.{part}", (width,)) for norm in ("norm", "norm_after") for part in ("weight", "bias")),
            ("memory.weight_ih_l0", (4 * last, width)),
            ("memory.weight_hh_l0", (4 * last, last)),
            ("memory.bias_ih_l0", (4 * last,)),
            ("memory.bias_hh_l0", (4 * last,)),
        ]
    return {**shapes, **dict(inner), "last.weight": (n, last), "last.bias": (n,)}


def _rows(array: FloatArray | None) -> int:
    return len(array) if array is not None and array.ndim else 0
