"""Explanations of a contradiction: single changes of a declaration that make the equations agree, in words."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from safe_sysid.core.arrays import FloatArray
from safe_sysid.core.layout import PAYLOAD_NAMES, PAYLOAD_UNITS
from safe_sysid.core.units import unit_for
from safe_sysid.decimals import bracketed
from safe_sysid.identification.equations.measurement_errors import MeasurementErrors
from safe_sysid.identification.equations.momentum import MomentumRows
from safe_sysid.identification.equations.row_errors import ERROR_CAUSES
from safe_sysid.robot.model import RobotModel
from safe_sysid.robot.parameters import ParameterBox

__all__ = ["Explanation", "ExplanationCandidate", "candidates"]

#: Weights of kinds: one number that explains all beats a wider noise that would explain anything.
_WEIGHT = {"offset": 1.0, "coulomb": 1.1, "viscous": 1.2, "noise": 1.5, "torque_abs": 1.6, "velocity": 2.5,
           "rotor_inertia": 1.6, "link": 2.0, "payload_prior": 2.0, "hand": 2.0, "acceleration": 3.0}  # fmt: skip
_SMALL = 0.003  # of a joint's limit: errors that may well have been declared too small by as much
_FLOORS = ("mass", *("first_moment",) * 3, *("inertia",) * 6)


@dataclass(frozen=True, eq=False)
class Explanation:
    """A change of a declaration with which the data are consistent."""

    #: "noise", "torque_abs", "offset", "coulomb", "viscous", "rotor_inertia", "velocity", "acceleration", "link",
    #: "payload_prior", "hand", "sign", "payload" or "held" (something in the hand at the tare)
    kind: str
    joint: int | None  #: index it is about, None for no single one
    text: str
    cost: float  #: mean share of slack that it adds to an equation. rank: cost times a weight of the kind.
    rank: float
    #: fields of :class:`MeasurementErrors` to replace, for trying it out
    errors: Mapping[str, Any] = field(default_factory=dict)
    #: parameter, new lower and upper bound, likewise; None where no prior changes
    prior: tuple[int, float, float] | None = None
    checked: bool | None = None  #: True if trying it out made the data consistent, False if not, None if nobody tried
    factor: float = 1.0  #: what is to be declared over what was, roughly
    #: size, resize: how much of it, and the same explanation with another size
    size: float = 0.0
    resize: Callable[[float], Explanation] | None = field(default=None, repr=False)

    @property
    def checked_text(self) -> str:
        """Text about the check of this explanation."""
        if self.checked is None:
            return ""
        return " (tried: the log is consistent then)" if self.checked else " (tried: not enough)"


@dataclass(frozen=True, eq=False)
class ExplanationCandidate:
    """A change of a declaration by s >= 0; s is not known yet."""

    kind: str  #: as of :class:`Explanation`
    joint: int | None  #: as of :class:`Explanation`
    widen: FloatArray | None  #: (M,) share of slack that s = 1 adds; None for nothing
    parameter: int | None  #: column that may leave its box by s radii; None for none
    cost: float  #: mean share of slack of s = 1
    explain: Callable[[float], Explanation]  #: from s to an explanation
    always: bool = False

    @property
    def weight(self) -> float:
        """Weight of this kind of explanation in the ranking."""
        return _WEIGHT[self.kind]


def candidates(
    model: RobotModel, errors: MeasurementErrors, rows: MomentumRows, box: ParameterBox, radius: FloatArray
) -> Iterator[ExplanationCandidate]:
    """All single changes of a declaration; those that widen slacks come first.

    ``box``: prior of theta; ``radius``: (14 n + 10,) of theta and theta_h.
    """
    n, layout = model.n, model.layout
    coulomb, offset = np.arange(layout.size)[layout.coulomb], np.arange(layout.size)[layout.offset]
    cause = {name: rows.parts[:, i] / rows.slack for i, name in enumerate(ERROR_CAUSES)}
    noise = cause["torque"]
    # A row's coefficient of its own offset is the area under its test function, s.
    area = np.abs(rows.matrix[np.arange(len(rows)), offset[rows.joint]]) / rows.slack
    yield _noise(None, noise, model, errors)
    for j in range(n):
        mine = (rows.joint == j).astype(float)
        yield _noise(j, noise * mine, model, errors)
        yield _larger("torque_abs", j, area * mine / (1.0 + errors.torque_rel[j]), model, errors)
        inertia = float(box.upper[layout.rotor_inertia][j])
        if errors.torque_source != "link" and inertia > 0.0:
            # Both ends of a window: this much at least is added by a velocity error.
            share = np.where(rows.ramp > 0.0, 0.0, 2.0 * inertia / rows.slack) * mine
            yield _larger("velocity", j, share, model, errors)
    share = cause["quadrature"] + cause["momentum"] + cause["friction"]
    yield _acceleration(share, model, errors)
    reach = np.maximum(np.abs(box.lower), np.abs(box.upper))
    for j in range(n):
        mine = rows.joint == j
        p = int(coulomb[j])
        if radius[p] > 0.0 and reach[p] > 0.0:
            # While the sign of the velocity is not certain, more friction is more error.
            share = np.where(mine, cause["coulomb"], 0.0) * radius[p] / reach[p]
            yield _parameter(p, model, rows, box, float(radius[p]), share, errors)
        p = int(offset[j])
        if radius[p] > 0.0:
            # Noise is declared relative to the true torque; what is measured is off by the bias.
            share = np.where(mine, area, 0.0) * errors.torque_rel[j] / (1.0 - errors.torque_rel[j])
            yield _parameter(p, model, rows, box, float(radius[p]), share * radius[p], errors)
    for p in np.flatnonzero(radius > 0.0).tolist():
        if p not in coulomb and p not in offset:
            yield _parameter(p, model, rows, box, float(radius[p]), None, errors)


def _make(
    kind: str, joint: int | None, widen: FloatArray, build: Callable[[float, float], Explanation], always: bool = False
) -> ExplanationCandidate:
    cost = float(np.mean(widen))
    return ExplanationCandidate(kind, joint, widen, None, cost, lambda s: build(s, s * cost), always)


def _noise(joint: int | None, widen: FloatArray, model: RobotModel, e: MeasurementErrors) -> ExplanationCandidate:
    def build(s: float, cost: float) -> Explanation:
        where = "all joints" if joint is None else model.joint_names[joint]
        which = slice(None) if joint is None else [joint]
        factor = 1.0 + s
        a, b = e.torque_abs.copy(), e.torque_rel.copy()
        a[which], b[which] = factor * a[which], factor * b[which]
        said = (
            ""
            if joint is None
            else (
                f" (torque_abs from {e.torque_abs[joint]:.3g} to {a[joint]:.3g} {model.torque_units[joint]}, "
                f"torque_rel from {e.torque_rel[joint]:.3g} to {b[joint]:.3g})"
            )
        )
        usable = bool(np.all(b < 1.0))
        return Explanation(
            "noise", joint, f"declare {factor:.3g} times the torque noise of {where}{said}", cost,
            cost * _WEIGHT["noise"], {"torque_abs": a, "torque_rel": b} if usable else {}, factor=factor,
        )  # fmt: skip

    return _make("noise", joint, widen, build, always=True)


def _larger(kind: str, joint: int, widen: FloatArray, model: RobotModel, e: MeasurementErrors) -> ExplanationCandidate:
    """A larger declared error of one joint: ``torque_abs``, or ``velocity``."""
    if kind == "velocity":
        key, unit, limit = "velocity_error", f"{model.position_units[joint]}/s", model.limits.velocity[joint]
    else:
        key, unit, limit = kind, model.torque_units[joint], model.limits.torque[joint]
    declared = getattr(e, kind)

    def build(s: float, cost: float) -> Explanation:
        new = declared.copy()
        new[joint] += s
        text = f"{key} of {model.joint_names[joint]} from {declared[joint]:.3g} to {new[joint]:.3g} {unit}"
        factor = float(new[joint] / (declared[joint] + _SMALL * limit))
        return Explanation(kind, joint, text, cost, cost * _WEIGHT[kind], {kind: new}, factor=factor)

    return _make(kind, joint, widen, build)


def _acceleration(widen: FloatArray, model: RobotModel, e: MeasurementErrors) -> ExplanationCandidate:
    def build(s: float, cost: float) -> Explanation:
        a = e.acceleration * (1.0 + s)
        largest, unit = float(np.max(e.acceleration)), model.position_units[int(np.argmax(e.acceleration))]
        text = f"acceleration_bound {1.0 + s:.3g} times as large ({largest * (1.0 + s):.3g} {unit}/s^2 at most)"
        return Explanation(
            "acceleration", None, text, cost, cost * _WEIGHT["acceleration"], {"acceleration": a}, factor=1.0 + s
        )

    return _make("acceleration", None, widen, build)


def _parameter(
    p: int,
    model: RobotModel,
    rows: MomentumRows,
    box: ParameterBox,
    radius: float,
    widen: FloatArray | None,
    errors: MeasurementErrors,
) -> ExplanationCandidate:
    layout = model.layout
    hand, payload = p >= layout.size, layout.payload
    column = payload.start + p - layout.size if hand else p
    used = (rows.log == 1) if hand else np.ones(len(rows), bool)
    last = payload.start <= column < payload.stop
    if last and not hand:
        used = rows.log == 0
    cost = float(np.mean(np.where(used, np.abs(rows.matrix[:, column]), 0.0) * radius / rows.slack))
    lower, upper = (model.hand_prior[0][p - layout.size], model.hand_prior[1][p - layout.size]) if hand else (
        box.lower[p], box.upper[p])  # fmt: skip
    kind, joint, what, unit, how = _about(model, column, hand, last)

    def explain(s: float) -> Explanation:
        by = s * radius
        text = f"{what} beyond its prior {bracketed(lower, upper, 3)} by {by:.3g} {unit}{how}"
        prior = None if hand else (p, float(lower - by), float(upper + by))
        changed: dict[str, Any] = {}
        if kind == "offset" and joint is not None:
            bias = errors.torque_bias.copy()
            bias[joint] += by
            prior, changed = None, {"torque_bias": bias}
        # Friction and offset are declared as numbers about zero: what counts is the whole, not the uncertainty.
        reach = max(abs(lower), abs(upper)) if kind in ("coulomb", "viscous", "offset") else 0.0
        small = _SMALL * float(model.limits.torque[joint]) if kind == "offset" and joint is not None else 0.0
        factor = 1.0 + by / (max(radius, reach) + small)
        return Explanation(kind, joint, text, s * cost, s * cost * _WEIGHT[kind], changed, prior, factor=factor)

    return ExplanationCandidate(
        kind, joint, widen, p, cost + (0.0 if widen is None else float(np.mean(widen))), explain
    )


def _about(model: RobotModel, column: int, hand: bool, last: bool) -> tuple[str, int | None, str, str, str]:
    """Kind, joint, name, unit and how to declare it, of one parameter."""
    names = model.joint_names
    j, which = model.layout.locate(column)
    if isinstance(which, int):
        part, unit, floor = PAYLOAD_NAMES[which], PAYLOAD_UNITS[which], _FLOORS[which]
        if last:
            if hand:
                what = f"{part} of {names[j]}'s link with the empty hand"
                return "hand", None, what, unit, f": uncertainty.floor.{floor}"
            what = f"{part} of {names[j]}'s link with hand and payload"
            return "payload_prior", None, what, unit, ": payload.prior_lower, prior_upper"
        what = f"{part} of {names[j]}'s link"
        return "link", j, what, unit, f": uncertainty.floor.{floor} larger by as much"
    kind, what, unit = which.key, f"{which.words} of {names[j]}", unit_for(which.unit, model.sliding[[j]])
    how = f": correct joints.{names[j]}.{kind}, or uncertainty.floor.{kind} larger by as much"
    return kind, j, what, unit, how + (", or measurement.torque_bias for a sensor's bias" if kind == "offset" else "")
