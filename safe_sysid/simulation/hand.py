"""Payload in the simulated hand: gripped where the robot's file says, or chosen to suit the arm."""

from __future__ import annotations

import numpy as np

from safe_sysid.errors import ParameterError
from safe_sysid.robot.model import RobotModel
from safe_sysid.simulation.arms import hand_box, is_simulable
from safe_sysid.simulation.payloads import (
    DUMBBELLS,
    NO_PAYLOAD,
    Payload,
    check_inside_prior,
    payload_from_spec,
    theta_e_with_payload,
)
from safe_sysid.simulation.shapes import Shape

__all__ = ["AUTO", "payload_in_hand"]


#: The heaviest dumbbell that the robot's prior holds, else a ball in the middle of it.
AUTO = "auto"
#: Balls that are tried: shares of the largest mass, and radii as shares of the largest that the envelope takes.
_MASSES = np.linspace(0.02, 0.98, 49)
_RADII = (0.25, 0.5, 1.0)


def payload_in_hand(model: RobotModel, spec: str) -> Payload:
    """Payload from what a user types, dumbbells gripped in the middle of the robot's payload envelope.

    ``spec``: :data:`AUTO`, or what :func:`~safe_sysid.simulation.payloads.payload_from_spec` takes.

    Raises:
        ParameterError: the text is none of these, describes no physical body, or nothing suits the robot.
    """
    grip = model.settings.payload.envelope.center
    if spec.strip().lower() != AUTO:
        return payload_from_spec(spec, grip)
    dumbbells = (payload_from_spec(name, grip) for name in reversed(DUMBBELLS))
    fitting = next((payload for payload in dumbbells if _room(model, payload) >= 0.0), None)
    if fitting is not None:
        return fitting
    ball = max(_balls(model), key=lambda payload: _room(model, payload), default=NO_PAYLOAD)
    for payload in (ball, NO_PAYLOAD):
        if _room(model, payload) >= 0.0:
            return payload
    raise ParameterError(
        f"payload {spec!r}: no dumbbell and no ball fits the prior of robot {model.name}, whose payload.prior_lower "
        "and prior_upper must hold the last link with its hand and what it grips: expected numbers or a URDF file"
    )


def _balls(model: RobotModel) -> list[Payload]:
    """Balls in the middle of the envelope, from almost nothing to the heaviest that the prior may hold."""
    envelope = model.settings.payload.envelope
    largest = float(model.arm_prior.payload_upper[0] - hand_box(model)[1][0])
    if not largest > 0.0:
        return []
    balls = []
    for share in _RADII:
        shape = Shape("sphere", (0.5 * share * min(envelope.size),), np.array(envelope.center), np.eye(3))
        for mass in largest * _MASSES:
            mass = float(f"{mass:.3g}")
            theta = shape.inertial(mass)
            if is_simulable(theta):
                balls.append(Payload(f"ball of {mass:g} kg", theta, (shape,)))
    return balls


def _room(model: RobotModel, payload: Payload) -> float:
    """How far from the prior's bounds hand and payload are, as a share of the prior's width; negative: outside.

    For every hand within its tolerances, and for the parameter that has the least room.
    """
    prior = model.arm_prior
    low, high = (theta_e_with_payload(model, hand, payload) for hand in hand_box(model))
    try:
        check_inside_prior(model, low, payload)
        check_inside_prior(model, high, payload)
    except ParameterError:
        return -1.0
    room = np.minimum(low - prior.payload_lower, prior.payload_upper - high)
    return float(np.min(room / np.maximum(prior.payload_upper - prior.payload_lower, 1e-12)))
