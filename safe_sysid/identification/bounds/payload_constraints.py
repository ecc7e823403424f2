r"""Payload constraints: what is declared about hand and payload, and the cuts that follow. Imports no solver."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from safe_sysid.core.arrays import FloatArray
from safe_sysid.errors import ParameterError
from safe_sysid.identification.bounds.consistency import (
    CutSet,
    box_cuts,
    density_cuts,
    face_functions,
    semidefinite_cuts,
    tangent_cuts,
)
from safe_sysid.intervals import check_interval
from safe_sysid.robot.model import RobotModel
from safe_sysid.robot.parameters import frozen_array, pseudo_inertia

__all__ = ["PayloadBox", "PayloadConstraints"]

_LENGTH = 0.1  # m, makes masses, first moments and inertias comparable: only the choice of cuts depends on it
_SCALE = np.array([1.0 / _LENGTH] * 3 + [1.0])
_UNITS = np.stack([pseudo_inertia(unit) for unit in np.eye(10)])


@dataclass(frozen=True, eq=False)
class PayloadBox:
    """A box that holds the payload."""

    #: center, size: (3,) centre and full edge lengths in the tool frame, m
    center: FloatArray
    size: FloatArray
    #: rotation, translation: (3, 3), (3,) pose of the tool frame in the last joint's frame
    rotation: FloatArray
    translation: FloatArray
    density: float = np.inf  #: largest density of the payload anywhere, kg/m^3; infinite if nothing is known

    def __post_init__(self) -> None:
        """Validate and freeze.

        Raises:
            ParameterError: a shape, no rotation, an edge length or a density that is not positive.
        """
        for name, shape in (("center", (3,)), ("size", (3,)), ("rotation", (3, 3)), ("translation", (3,))):
            object.__setattr__(self, name, frozen_array(getattr(self, name), shape, f"PayloadBox.{name}"))
        if not np.max(np.abs(self.rotation @ self.rotation.T - np.eye(3))) < 1e-12:
            raise ParameterError(f"PayloadBox.rotation = {self.rotation.tolist()}: expected a rotation")
        if not np.all(self.size > 0.0):
            raise ParameterError(f"PayloadBox.size = {self.size.tolist()} m: expected positive numbers")
        if not self.density > 0.0:
            raise ParameterError(f"PayloadBox.density = {self.density!r} kg/m^3: expected a positive number")

    def functions(self) -> FloatArray:
        """(7, 4) functions that are >= 0 on the payload, last joint's frame."""
        return face_functions(self.center, self.size, self.rotation, self.translation)


class PayloadConstraints:
    """Bounds of the empty hand, and what separates impossible payloads from possible ones."""

    def __init__(
        self,
        hand_lower: FloatArray,
        hand_upper: FloatArray,
        opening: FloatArray | None = None,
        box: PayloadBox | None = None,
    ) -> None:
        """Store the declarations and derive the fixed cuts.

        Args:
            hand_lower: (10,) of the last link with the empty hand, last joint's frame.
            hand_upper: (10,) likewise.
            opening: (10,) largest change of it between any two openings of the hand; None for none.
            box: of the payload; None if nothing is known.

        Raises:
            ParameterError: shapes, bounds that cross, a negative opening.
        """
        self.hand_lower = frozen_array(hand_lower, (10,), "hand lower")
        self.hand_upper = frozen_array(hand_upper, (10,), "hand upper")
        check_interval(self.hand_lower, self.hand_upper, "hand")
        self.opening = frozen_array(np.zeros(10) if opening is None else opening, (10,), "hand opening")
        if np.any(self.opening < 0.0):
            raise ParameterError(f"hand opening = {self.opening.tolist()}: expected numbers >= 0")
        self.box = box
        self.fixed = self._fixed()

    @classmethod
    def from_model(cls, model: RobotModel) -> PayloadConstraints:
        """Read the declarations of the robot's configuration."""
        settings = model.settings.payload
        shape = settings.envelope if settings.box == "envelope" else settings.box
        box = None
        if shape is not None:
            density = np.inf if settings.density is None else settings.density[1]
            box = PayloadBox(np.array(shape.center), np.array(shape.size), *model.payload_frame, density)
        return cls(*model.hand_prior, np.array(settings.hand_opening), box)

    def _fixed(self) -> CutSet:
        """Cuts that are known beforehand; the mass is never negative, whatever else is known."""
        if self.box is None:
            return box_cuts(np.array([[0.0, 0.0, 0.0, 1.0]]))
        parts = [box_cuts(self.box.functions())]
        if np.isfinite(self.box.density):
            parts.append(density_cuts(self.box.size, self.box.density))
        return CutSet.concatenate(parts)

    def separate(self, theta_p: FloatArray, tolerance: float) -> CutSet:
        """Cuts of the cone and of the density that some of the points (K, 10) break by a relative tolerance."""
        scaled = np.einsum("kp,pij->kij", theta_p, _UNITS) * np.outer(_SCALE, _SCALE)
        values, vectors = np.linalg.eigh(scaled)
        size = np.abs(values).max(axis=1) + 1e-12
        point, which = np.nonzero(values < -tolerance * size[:, None])
        parts = [semidefinite_cuts(vectors[point, :, which] * _SCALE)]
        if self.box is not None and np.isfinite(self.box.density):
            parts.append(_tangents(theta_p, tolerance, self.box))
        return CutSet.concatenate(parts)


def _tangents(theta_p: FloatArray, tolerance: float, box: PayloadBox) -> CutSet:
    """Tangents of the density's bound that points (K, 10) break, each about the point's own centre of mass."""
    mass = np.maximum(theta_p[:, 0], 0.0)
    parts = []
    for axis in range(3):
        a = box.rotation[:, axis]
        offset = -(theta_p[:, 1:4] @ a) / np.maximum(mass, 1e-6)
        functions = np.column_stack([np.tile(a, (len(mass), 1)), np.clip(offset, -8.0, 8.0)])
        area = float(np.prod(np.delete(box.size, axis)))
        moment = np.einsum("ki,kp,pij,kj->k", functions, theta_p, _UNITS, functions)
        broken = moment < mass**3 / (12.0 * (box.density * area) ** 2) * (1.0 - tolerance)
        parts.append(tangent_cuts(functions[broken], np.full(int(broken.sum()), area), mass[broken], box.density))
    return CutSet.concatenate(parts)
