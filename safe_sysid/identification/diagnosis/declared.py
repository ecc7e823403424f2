"""Contradictions with the declared payload: which declaration of hand and payload the equations contradict.

As everything here, advice: "agree" means that no contradiction was found.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from safe_sysid.core.arrays import FloatArray
from safe_sysid.core.layout import UnknownsLayout
from safe_sysid.decimals import at_least, at_most, interval_text
from safe_sysid.identification.bounds.drift import drift_of
from safe_sysid.identification.bounds.feasible_set import FeasibleSet
from safe_sysid.identification.bounds.payload_constraints import PayloadBox, PayloadConstraints
from safe_sysid.identification.diagnosis.elastic import ElasticProgram, scaled_problem
from safe_sysid.identification.equations.measurement_errors import MeasurementErrors
from safe_sysid.identification.equations.momentum import MomentumRows
from safe_sysid.robot.model import RobotModel
from safe_sysid.robot.parameters import ParameterBox

__all__ = ["Contradiction", "PayloadExtent", "contradicted_payload", "payload_extent"]

_UPDATES = 3  # of nested bounds, before a set counts as not empty
_STEPS = 8  # towards a bound of the centre: quadratic convergence
_WIDER = 10.0  # times the declared uncertainty of the hand: what is tried
_LEAST_MASS = 1e-3  # kg, below which a centre says nothing


@dataclass(frozen=True, eq=False)
class PayloadExtent:
    """Mass and centre of the payload by the equations alone, without its declarations."""

    mass: FloatArray  #: (2,) least and largest, kg
    centre: FloatArray | None  #: (3, 2) of the centre of mass in the tool frame, m; None where the mass may be zero

    def text(self, box: PayloadBox | None) -> str:
        """Description in words. ``box``: declared one to compare with; None for none."""
        out = f"payload of {at_least(self.mass[0])} to {at_most(self.mass[1])} kg"
        if self.centre is None:
            return out
        parts, outside = [], []
        for i, (axis, (low, high)) in enumerate(zip("xyz", self.centre, strict=True)):
            shown = interval_text(low, high, places=3)
            parts.append(f"{axis} in [{shown[0]}, {shown[1]}]")
            if box is not None:
                edges = box.center[i] + 0.5 * box.size[i] * np.array([-1.0, 1.0])
                if low > edges[1] or high < edges[0]:
                    outside.append(f"{axis} is outside the box ({edges[0]:.3f} .. {edges[1]:.3f})")
        out += f", its centre at {', '.join(parts)} m of the tool frame"
        return out + (f": {' and '.join(outside)}" if outside else "")


@dataclass(frozen=True, eq=False)
class Contradiction:
    """A declaration that contradicts the equations: they agree without it."""

    #: "density", "box", "hand", "body" or "earlier" (bounds known before); "together" if no single one explains it
    kind: str
    text: str


def contradicted_payload(
    model: RobotModel,
    errors: MeasurementErrors,
    rows: MomentumRows,
    box: ParameterBox,
    payload_constraints: PayloadConstraints | None = None,
) -> list[Contradiction]:
    """Find declarations that contradict the equations, one at a time. The equations must agree with each other.

    ``rows``: of the run, and of a tare where ``log`` is 1; ``payload_constraints``: of hand and payload; None for what
    the model declares.
    """
    known = PayloadConstraints.from_model(model) if payload_constraints is None else payload_constraints
    method = model.settings.identification.method
    if not np.any(rows.log == 0) or not _empty(model, errors, rows, box, known, method):
        return []
    found = [
        Contradiction(kind, text)
        for kind, text, other, how in _without(known, method)
        if not _empty(model, errors, rows, box, other, how)
    ]
    if any(c.kind == "density" for c in found):
        found = [c for c in found if c.kind != "box"]  # a box without density would say less than needed
    return found or [Contradiction("together", "box, hand and consistency of the payload")]


def _without(known: PayloadConstraints, method: str) -> Iterator[tuple[str, str, PayloadConstraints, str]]:
    """Variants with one declaration less: kind, words, constraints, method; likeliest false ones first."""
    hand = (known.hand_lower, known.hand_upper, known.opening)
    if known.box is not None:
        if np.isfinite(known.box.density):
            box = replace(known.box, density=np.inf)
            yield (
                "density",
                f"the declared density ({known.box.density:g} kg/m^3 at most)",
                PayloadConstraints(*hand, box),
                method,
            )
        low, high = known.box.center - 0.5 * known.box.size, known.box.center + 0.5 * known.box.size
        edges = ", ".join(f"{a} {b:.3f} .. {c:.3f}" for a, b, c in zip("xyz", low, high, strict=True))
        yield "box", f"the declared payload box ({edges} m)", PayloadConstraints(*hand, None), method
    middle, radius = 0.5 * (hand[0] + hand[1]), 0.5 * (hand[1] - hand[0])
    lower, upper = middle - _WIDER * radius, middle + _WIDER * radius
    lower[0] = max(lower[0], 0.0)
    wider = PayloadConstraints(lower, upper, _WIDER * known.opening, known.box)
    yield ("hand", "what is declared of the empty hand (its inertia, its uncertainty, hand_opening)", wider, method)
    if method == "sdp":
        text = "that the payload is a real, rigid body (or a wrong torque, or friction, is taken for inertia)"
        yield "body", text, known, "lp"


def _empty(
    model: RobotModel,
    errors: MeasurementErrors,
    rows: MomentumRows,
    box: ParameterBox,
    payload_constraints: PayloadConstraints,
    method: str,
) -> bool:
    """Whether the equations contradict each other."""
    tare = rows.take(rows.log == 1)
    others = (tare, drift_of(model, errors)) if len(tare) else (None, None)
    polytope = FeasibleSet(box, max(len(rows), 1), payload_constraints, method, *others)
    polytope.add(rows.take(rows.log == 0))
    payload = box.layout.payload
    for _ in range(_UPDATES):
        bounds = polytope.bound(np.arange(payload.start, payload.stop), box)
        if bounds.empty:
            return True
        box = box.with_payload(bounds.lower, bounds.upper)
    return False


def payload_extent(
    model: RobotModel,
    errors: MeasurementErrors,
    rows: MomentumRows,
    box: ParameterBox,
    opening: FloatArray | None = None,
) -> PayloadExtent | None:
    """Mass and centre of the payload alone by the equations and the hand's bounds, without anything else declared.

    Returns None if the equations contradict each other.

    Args:
        rows: of the run, and of a tare where ``log`` is 1.
        opening: (10,) what the hand's opening changes; None for what is configured.
    """
    opening = np.array(model.settings.payload.hand_opening) if opening is None else opening
    matrix, target, radius = scaled_problem(model, errors, rows, box)
    x, columns = UnknownsLayout(box.layout), matrix.shape[1]
    program = ElasticProgram(np.concatenate([matrix, np.zeros((len(matrix), 10))], axis=1), target)
    lower, upper = model.hand_prior
    last = box.layout.payload
    middle = box.mid[last] - 0.5 * (lower + upper)
    # theta_p = middle + part @ z
    part = np.zeros((10, columns + 10))
    part[:, last] = np.diag(radius[last])
    part[:, x.hand] -= np.diag(radius[x.hand])
    part[:, columns:] -= np.diag(opening)
    masses = np.zeros(2)
    for k, sign in enumerate((1.0, -1.0)):
        found = program.minimise(sign * part[0])
        if not found.feasible:
            return None
        masses[k] = middle[0] + sign * found.value
    masses[0] = max(masses[0], 0.0)
    if masses[0] < _LEAST_MASS:
        return PayloadExtent(masses, None)
    rotation, translation = model.payload_frame
    centre = np.zeros((3, 2))
    for i in range(3):
        # Tool axis a: centre along it = (a . first moment - (a . translation) m) / m.
        row = np.zeros(10)
        row[0], row[1:4] = -rotation[:, i] @ translation, rotation[:, i]
        for k, sign in enumerate((1.0, -1.0)):
            centre[i, k] = sign * _least_ratio(program, sign * row, part, middle)
    return PayloadExtent(masses, centre)


def _least_ratio(program: ElasticProgram, row: FloatArray, part: FloatArray, middle: FloatArray) -> float:
    """The smallest ``row . theta_p / m`` over the program, m > 0 there: Dinkelbach's iteration."""
    ratio, unit = 0.0, np.eye(10)[0]
    for _ in range(_STEPS):
        found = program.minimise((row - ratio * unit) @ part)
        if not found.feasible:
            break
        theta = middle + part @ found.z
        last, ratio = ratio, float(row @ theta / max(theta[0], _LEAST_MASS))
        if abs(ratio - last) < 1e-5:
            break
    return ratio
