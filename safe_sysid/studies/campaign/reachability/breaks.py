"""Wrong inputs to enclosures, on purpose: a working attack must notice each of them."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import numpy as np

from safe_sysid.errors import ParameterError
from safe_sysid.robot.model import NO_MOTORS
from safe_sysid.robot.parameters import ParameterBox
from safe_sysid.studies.campaign.reachability.case import ReachabilityCase

__all__ = ["BREAKS", "told"]

#: What is told wrongly, and by how much.
BREAKS = {
    "tracking": "tracking errors a tenth smaller than they may be",
    "measurement": "no errors of measured positions and velocities",
    "actuator": "no error of the actuator",
    "feed_forward": "nothing is added to the law's torque",
    "box": "parameters a tenth nearer to the middle of their box",
    "coulomb": "no Coulomb friction",
    "axis": "the axes of two neighbouring joints are swapped",
    "gravity": "the base is upright although it is not",
    "radius": "bodies a tenth thinner",
    "payload": "the payload's box has half its size",
    "inertia": "rotors a tenth heavier in the measure of torques",
    "gears": "rotors on moving links do not react on what carries them",
}


def told(case: ReachabilityCase, name: str | None) -> ReachabilityCase:
    """The case as the enclosures get to know it. ``name``: one of :data:`BREAKS`; None for the truth.

    Raises ParameterError: no such break.
    """
    if name is None:
        return case
    if name not in _CHANGES:
        raise ParameterError(f"break = {name!r}: expected one of {', '.join(BREAKS)}")
    return _CHANGES[name](case)


def _gains(case: ReachabilityCase, **changes: Any) -> ReachabilityCase:
    return dataclasses.replace(case, gains=dataclasses.replace(case.gains, **changes))


def _assume(case: ReachabilityCase, **changes: Any) -> ReachabilityCase:
    return _gains(case, assumptions=dataclasses.replace(case.gains.assumptions, **changes))


def _tracking(case: ReachabilityCase) -> ReachabilityCase:
    g = case.gains
    return _gains(case, r_bound=0.9 * g.r_bound, e_bound=0.9 * g.e_bound, de_bound=0.9 * g.de_bound)


def _measurement(case: ReachabilityCase) -> ReachabilityCase:
    return _assume(case, position_error=np.zeros(case.n), velocity_error=np.zeros(case.n))


def _actuator(case: ReachabilityCase) -> ReachabilityCase:
    return _assume(case, actuator_abs=np.zeros(case.n), actuator_rel=np.zeros(case.n))


def _feed_forward(case: ReachabilityCase) -> ReachabilityCase:
    return _assume(case, feed_forward=np.zeros(case.n))


def _box(case: ReachabilityCase) -> ReachabilityCase:
    lower, upper = case.box.lower, case.box.upper
    half = 0.5 * (upper - lower)
    return dataclasses.replace(case, box=ParameterBox(lower + 0.1 * half, upper - 0.1 * half))


def _coulomb(case: ReachabilityCase) -> ReachabilityCase:
    lower, upper, coulomb = case.box.lower.copy(), case.box.upper.copy(), case.box.layout.coulomb
    lower[coulomb] = upper[coulomb] = 0.0
    return dataclasses.replace(case, box=ParameterBox(lower, upper))


def _axis(case: ReachabilityCase) -> ReachabilityCase:
    kin = case.model.kinematics
    axis = kin.axis.copy()
    axis[-2:] = axis[-2:][::-1]
    return dataclasses.replace(case, model=dataclasses.replace(case.model, kinematics=kin._replace(axis=axis)))


def _gravity(case: ReachabilityCase) -> ReachabilityCase:
    kin = case.model.kinematics
    gravity = np.array([0.0, 0.0, -float(np.linalg.norm(kin.gravity))])
    return dataclasses.replace(case, model=dataclasses.replace(case.model, kinematics=kin._replace(gravity=gravity)))


def _radius(case: ReachabilityCase) -> ReachabilityCase:
    bodies = tuple(dataclasses.replace(body, radius=0.9 * body.radius) for body in case.model.bodies)
    return dataclasses.replace(case, model=dataclasses.replace(case.model, bodies=bodies))


def _payload(case: ReachabilityCase) -> ReachabilityCase:
    bodies = []
    for body in case.model.bodies:
        centre = body.points.mean(axis=0)
        small = centre + 0.5 * (body.points - centre)
        bodies.append(dataclasses.replace(body, points=small) if body.kind == "payload" else body)
    return dataclasses.replace(case, model=dataclasses.replace(case.model, bodies=tuple(bodies)))


def _inertia(case: ReachabilityCase) -> ReachabilityCase:
    return _gains(case, inertia_lower=1.1 * case.gains.inertia_lower)


def _gears(case: ReachabilityCase) -> ReachabilityCase:
    kinematics = case.model.kinematics._replace(motors=NO_MOTORS)
    return dataclasses.replace(case, model=dataclasses.replace(case.model, kinematics=kinematics))


_CHANGES: dict[str, Callable[[ReachabilityCase], ReachabilityCase]] = {
    "tracking": _tracking,
    "measurement": _measurement,
    "actuator": _actuator,
    "feed_forward": _feed_forward,
    "box": _box,
    "coulomb": _coulomb,
    "axis": _axis,
    "gravity": _gravity,
    "radius": _radius,
    "payload": _payload,
    "inertia": _inertia,
    "gears": _gears,
}
