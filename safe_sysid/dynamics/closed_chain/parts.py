"""Data types of mechanisms: closures, motions, and the error for a loop that does not close."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from safe_sysid.core.arrays import FloatArray
from safe_sysid.errors import ModelError, SafeSysIdError
from safe_sysid.robot.parameters import frozen_array

__all__ = ["ClosureError", "LoopClosure", "MechanismMotion"]

_BLOCK = 2048  # samples whose full regressors are held at once


class ClosureError(SafeSysIdError):
    """A loop does not close: a singular position, a lost branch, or a passive joint beyond its limits.

    Attributes:
        sample: number of the sample.
        time: its stamp, s; None if there are no stamps.
    """

    def __init__(self, message: str, sample: int, time: float | None, joint: str) -> None:
        self.sample, self.time, self.joint = sample, time, joint
        super().__init__(message)


@dataclass(frozen=True, eq=False)
class LoopClosure:
    """A frame on one link that stays at a frame on another."""

    name: str
    kind: str  #: "3D", the two origins coincide; or "6D", the two frames do
    joints: tuple[int, int]  #: the two joints whose frames carry the ends; -1 the world
    rotations: FloatArray  #: (2, 3, 3) of the ends in those frames
    points: FloatArray  #: (2, 3) their origins, m

    def __post_init__(self) -> None:
        if self.kind not in ("3D", "6D"):
            raise ModelError(f"loop {self.name!r}: kind {self.kind!r}: expected 3D or 6D")
        rotations = frozen_array(self.rotations, (2, 3, 3), f"loop {self.name!r}: rotations")
        object.__setattr__(self, "rotations", rotations)
        object.__setattr__(self, "points", frozen_array(self.points, (2, 3), f"loop {self.name!r}: points"))

    @property
    def size(self) -> int:
        """Number of rows."""
        return 6 if self.kind == "6D" else 3


@dataclass(frozen=True, eq=False)
class MechanismMotion:
    """N states of all joints, loops closed."""

    q: FloatArray  #: (N, n) rad (m of sliding joints)
    qd: FloatArray  #: (N, n) rad/s
    qdd: FloatArray  #: (N, n) rad/s^2
    transmission: FloatArray  #: (N, n, n_a), G: what the joints do per unit of the actuated ones
    passive_jacobian: FloatArray  #: (N, n_u, n_u), J_u, translations per length of their loop
    smallest_singular_value: FloatArray  #: (N,) of J_u; infinite without loops

    def __len__(self) -> int:
        return len(self.q)

    def blocks(self) -> Iterator[tuple[slice, MechanismMotion]]:
        """The same in parts whose full regressors fit into memory."""
        for begin in range(0, len(self), _BLOCK):
            part = slice(begin, begin + _BLOCK)
            yield (
                part,
                MechanismMotion(
                    self.q[part],
                    self.qd[part],
                    self.qdd[part],
                    self.transmission[part],
                    self.passive_jacobian[part],
                    self.smallest_singular_value[part],
                ),
            )
