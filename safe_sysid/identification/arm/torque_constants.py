r"""Torque per unit of effort of each joint, from logs with and without a known mass in the hand.

Efforts u of joint j are its torque times an unknown s: ``u = s (W theta + m w + W_h h)``, with w the torque of a mass
of 1 kg at the origin of the last joint's frame, and W_h those of its first moment and inertia there, of which nothing
needs to be known. W theta acts in all samples, the load in some of them: ``u = W b + w (s m) + W_h c`` is linear in
``b = s theta``, ``s m`` and c, of this joint alone, errors are those of u, and s m has a standard error. Nothing is
said where the mass hardly loads a joint, or its columns are combinations of others.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from safe_sysid.core.arrays import FloatArray
from safe_sysid.dynamics.closed_chain import Mechanism
from safe_sysid.errors import ParameterError
from safe_sysid.identification.arm.estimates.estimate import ArmPrior, estimate
from safe_sysid.identification.arm.estimates.friction import at_rest
from safe_sysid.identification.arm.logs.preparation import ArmData

__all__ = ["TorqueConstant", "torque_constants"]

#: A standard error that is a larger share of the estimate says nothing.
_TOLD = 0.05


@dataclass(frozen=True)
class TorqueConstant:
    """Finding for one joint."""

    joint: str
    factor: float  #: N m per unit of what the samples have as torque; 1 if that is torque
    standard_error: float  #: of it; infinite where the logs do not tell it
    load: float  #: root mean square of the mass's torque on this joint, N m
    told: bool  #: whether it is known well enough to be used


def torque_constants(mechanism: Mechanism, free: ArmData, loaded: ArmData, mass: float) -> list[TorqueConstant]:
    """Find the torque per unit of effort of every joint.

    Args:
        mechanism: an open chain; the mass is fixed to its last link.
        free: samples with the hand as it always is.
        loaded: with the mass in it, more or less the same motion.
        mass: kg.

    Raises:
        ParameterError: closed loops, or a mass that is not positive.
    """
    if mechanism.closures or not (np.isfinite(mass) and mass > 0.0):
        raise ParameterError(f"a known mass of {mass!r} kg: expected a positive one, on an arm without closed loops")
    layout, n = mechanism.layout, mechanism.n
    rows, samples = [], (free, loaded)
    for part in samples:
        regressor = mechanism.regressor(part.motion(mechanism))
        if part.direction is not None:
            regressor[:, np.arange(n), layout.coulomb.start + np.arange(n)] = part.direction
        rows.append(regressor)
    hand = [regressor[:, :, layout.payload] * is_loaded for regressor, is_loaded in zip(rows, (0.0, 1.0), strict=True)]
    resting = np.concatenate([at_rest(part) for part in samples])
    whole, load = np.concatenate(rows), np.concatenate(hand)
    effort = np.concatenate([part.torque for part in samples])
    return [
        _of_joint(mechanism, j, whole[:, j], load[:, j], effort[:, j], ~resting[:, j], mass, len(loaded))
        for j in range(n)
    ]


def _of_joint(
    mechanism: Mechanism,
    j: int,
    arm: FloatArray,
    load: FloatArray,
    effort: FloatArray,
    real: np.ndarray,
    mass: float,
    count: int,
) -> TorqueConstant:
    layout, size = mechanism.layout, mechanism.layout.size
    felt = mass * float(np.sqrt(np.mean(load[-count:, 0] ** 2)))
    nothing = TorqueConstant(mechanism.joint_names[j], 1.0, np.inf, felt, False)
    # What the joint's efforts do not depend on, and the mass's column last, so that it is no one else's combination.
    columns = np.column_stack([arm, load[:, 1:], load[:, :1]])
    norms = np.linalg.norm(columns, axis=0)
    if norms[-1] <= 1e-6 * norms.max():
        return nothing
    known = ArmPrior(np.zeros(columns.shape[1]), norms <= 1e-9 * norms.max())
    try:
        found = estimate(columns, effort, layout, 1, known, "wls", real=real)
    except ParameterError:
        return nothing
    at = np.flatnonzero(found.base.independent == size + 9)
    if len(at) != 1 or np.any(found.base.combination[at[0]] != 0.0):
        return nothing
    value, error = float(found.values[at[0]]) / mass, float(found.standard_errors[at[0]]) / mass
    if value == 0.0 or not np.isfinite(error):
        return nothing
    told = error <= _TOLD * abs(value)
    return TorqueConstant(mechanism.joint_names[j], 1.0 / value, error / value**2, felt, told)
