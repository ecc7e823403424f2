r"""Parameter layout: the only module that knows where each parameter is in the vector of an arm.

For ``n`` joints: ten inertial parameters for each link, then one block of ``n`` numbers for each line of
:data:`JOINT_TERMS`: ``theta = [link 1 (10) | ... | link n (10) | Fc (n) | Fv (n) | Ia (n) | beta (n)]``. The last link
is the *payload block*: link, hand and payload together.

Python code takes slices from :class:`ParameterLayout`. Compiled code takes the numbers of blocks: link ``i`` begins at
``PER_LINK * i``, and joint ``j``'s Coulomb friction is entry ``COULOMB * n + j``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from safe_sysid.core.arrays import FloatArray, IntArray
from safe_sysid.errors import ParameterError

__all__ = [
    "COULOMB",
    "JOINT_TERMS",
    "OFFSET",
    "PAYLOAD_NAMES",
    "PAYLOAD_UNITS",
    "PER_LINK",
    "ROTOR",
    "VISCOUS",
    "JointTerm",
    "ParameterLayout",
    "UnknownsLayout",
]

#: Inertial parameters of one link, in Pinocchio's order: inertia about the origin of the joint's frame.
PAYLOAD_NAMES = ("m", "mcx", "mcy", "mcz", "Ixx", "Ixy", "Iyy", "Ixz", "Iyz", "Izz")
PAYLOAD_UNITS = ("kg", *("kg m",) * 3, *("kg m^2",) * 6)
PER_LINK = len(PAYLOAD_NAMES)


@dataclass(frozen=True)
class JointTerm:
    """A parameter that every joint has one of, and that its torque is linear in."""

    key: str
    symbol: str
    words: str
    unit: str  #: for a turning joint; " or ", for a sliding one
    signed: bool  #: whether it may be below zero
    drifts: bool  #: whether it may differ between a tare and a later run
    #: its torque per unit at velocities (..., n), the second argument the transition velocity below which Coulomb
    #: friction is not known. None: it is one of the four that compiled code has columns for.
    torque: Callable[[FloatArray, float], FloatArray] | None = None
    #: smallest and largest such torque over velocities from a first to a second argument, and whatever friction does
    #: below the transition velocity, the third one
    bounds: Callable[[FloatArray, FloatArray, float], tuple[FloatArray, FloatArray]] | None = None


#: In the order of the parameter vector; a further one is a line here, after these four.
JOINT_TERMS = (
    JointTerm("coulomb", "Fc", "Coulomb friction", "N m or N", signed=False, drifts=True),
    JointTerm("viscous", "Fv", "viscous friction", "N m s/rad or N s/m", signed=False, drifts=True),
    JointTerm("rotor_inertia", "Ia", "rotor inertia", "kg m^2 or kg", signed=False, drifts=False),
    JointTerm("offset", "beta", "torque offset", "N m or N", signed=True, drifts=True),
)
#: Numbers of the first four blocks, for compiled code: entry ``COULOMB * n + j`` is joint j's.
COULOMB, VISCOUS, ROTOR, OFFSET = range(PER_LINK, PER_LINK + 4)


@dataclass(frozen=True)
class ParameterLayout:
    """Where everything lies in the parameter vector of an arm. ``n``: number of joints."""

    n: int

    @classmethod
    def of_size(cls, size: int) -> ParameterLayout:
        """Layout of a vector of ``size`` parameters.

        Raises:
            ParameterError: no arm has this many.
        """
        n, rest = divmod(size, PER_LINK + len(JOINT_TERMS))
        if rest or n < 1:
            expected = f"a multiple of {PER_LINK + len(JOINT_TERMS)}, all of one joint"
            raise ParameterError(f"a vector of {size} parameters: expected {expected}")
        return cls(n)

    @property
    def size(self) -> int:
        """Number of parameters."""
        return (PER_LINK + len(JOINT_TERMS)) * self.n

    @property
    def links(self) -> slice:
        """Inertial parameters of all links."""
        return slice(0, PER_LINK * self.n)

    def link(self, j: int) -> slice:
        """Inertial parameters of the link behind joint ``j``."""
        return slice(PER_LINK * j, PER_LINK * (j + 1))

    @property
    def payload(self) -> slice:
        """Inertial parameters theta_e: those of the last link with hand and payload."""
        return self.link(self.n - 1)

    @property
    def joint_terms(self) -> slice:
        """All that is not inertial, kind by kind."""
        return slice(PER_LINK * self.n, self.size)

    @property
    def terms(self) -> tuple[JointTerm, ...]:
        """Of each joint, in order: :data:`JOINT_TERMS`."""
        return JOINT_TERMS

    def block(self, number: int) -> slice:
        """Term ``number - PER_LINK`` of :data:`JOINT_TERMS` of all joints: the first is ``COULOMB``."""
        return slice(number * self.n, (number + 1) * self.n)

    @property
    def further(self) -> list[tuple[slice, JointTerm]]:
        """Where the terms after the first four lie: those that compiled code knows nothing of."""
        return [(self.block(k), term) for k, term in enumerate(JOINT_TERMS, PER_LINK) if k > OFFSET]

    @property
    def coulomb(self) -> slice:
        """Coulomb friction Fc of all joints."""
        return self.block(COULOMB)

    @property
    def viscous(self) -> slice:
        """Viscous friction Fv of all joints."""
        return self.block(VISCOUS)

    @property
    def rotor_inertia(self) -> slice:
        """Rotor inertia Ia of all joints."""
        return self.block(ROTOR)

    @property
    def offset(self) -> slice:
        """Torque offset beta of all joints."""
        return self.block(OFFSET)

    def by_term(self, theta: NDArray) -> NDArray:
        """(terms, n) view of all that is not inertial: ``fc, fv, ia, beta = layout.by_term(theta)``."""
        return theta[self.joint_terms].reshape(-1, self.n)

    @property
    def drifting(self) -> IntArray:
        """Indices of what may differ between a tare and a later run, in order."""
        return self._indices([self.block(k) for k, term in enumerate(JOINT_TERMS, PER_LINK) if term.drifts])

    @property
    def never_negative(self) -> IntArray:
        """Indices of masses and of all terms that cannot be below zero, in order."""
        unsigned = [self.block(k) for k, term in enumerate(JOINT_TERMS, PER_LINK) if not term.signed]
        return self._indices([slice(0, PER_LINK * self.n, PER_LINK), *unsigned])

    def _indices(self, slices: list[slice]) -> IntArray:
        return np.concatenate([np.arange(self.size)[part] for part in slices])

    def links_and_rotors(self, joints: IntArray) -> IntArray:
        """Indices of all links' inertial parameters, then of the rotor inertias of some joints."""
        return np.concatenate([np.arange(PER_LINK * self.n), ROTOR * self.n + joints])

    def names(self, joint_names: Sequence[str]) -> list[str]:
        """Names of all parameters, in order, for messages and tables."""
        links = [f"{joint}.{name}" for joint in joint_names for name in PAYLOAD_NAMES]
        return links + [f"{joint}.{term.symbol}" for term in JOINT_TERMS for joint in joint_names]

    def require_compiled(self, what: str, lower: FloatArray, upper: FloatArray) -> None:
        """Refuse what would be claimed as if a further term were not there.

        ``lower``: (size,) bounds of all parameters; ``upper``: likewise.

        Raises:
            ParameterError: a further term may be other than zero.
        """
        for part, term in self.further:
            if np.any(lower[part]) or np.any(upper[part]):
                interval = f"[{float(lower[part].min())!r}, {float(upper[part].max())!r}] {term.unit}"
                raise ParameterError(f"{what}: {term.words} in {interval}: expected zero, {what} has no such term")

    def locate(self, p: int) -> tuple[int, int | JointTerm]:
        """Joint of parameter ``p``, and which one it is: number 0..9 of an inertial parameter, or a term."""
        if p < PER_LINK * self.n:
            return divmod(p, PER_LINK)
        kind, j = divmod(p - PER_LINK * self.n, self.n)
        return j, JOINT_TERMS[kind]


@dataclass(frozen=True)
class UnknownsLayout:
    """Where everything lies in the unknowns ``x = (theta, theta_h, d, f, z)`` of a log and its tare."""

    arm: ParameterLayout  #: layout of theta, all parameters of the arm with its payload
    drifts: int = 0  #: number of parameters in f, by which what may drift was larger at the tare
    further: int = 0  #: number of the arm's unknown constants z that are no parameters

    @property
    def size(self) -> int:
        """Number of unknowns."""
        return self.constants.stop

    @property
    def hand(self) -> slice:
        """theta_h: the last link with the empty hand."""
        return slice(self.arm.size, self.arm.size + PER_LINK)

    @property
    def opening(self) -> slice:
        """d: what opening the hand changes of its inertial parameters."""
        return slice(self.hand.stop, self.hand.stop + PER_LINK)

    @property
    def drift(self) -> slice:
        """f: changes between tare and run."""
        return slice(self.opening.stop, self.opening.stop + self.drifts)

    @property
    def constants(self) -> slice:
        """z: unknown constants of the arm that are no parameters."""
        return slice(self.drift.stop, self.drift.stop + self.further)
