r"""The estimate of a whole log: best fit inside the proved set, with a statistical standard error; no guarantee.

Unknowns are all parameters of arm, payload, friction and hand within their intervals, and for each joint a gain of its
torque sensor: ``t = (1 + g_j) a.theta + e``. (As a factor of t, which has the noise, gains and masses would be fitted
too small.) Equations are momentum balances of windows that do not overlap. Errors e have a scale per joint that is
unknown, and outliers: Huber's weights, iterated [Huber1981]; the scale begins at the torque's own, so that what priors
and gains explain as well is not taken for payload. While the sign of a velocity is not certain, friction may be
anything within Fc: windows count less by that. Priors are those of uniform distributions on the declared
intervals, the gain's is the declared relative torque error. The minimum is taken over boxes and cone: published bounds
for theta_e, a payload that is a real body (:mod:`.projected`).

The standard error is that of the same fit without boxes and cone, larger by what neighbouring windows have in common:
right if errors are random with a memory of a window or two. Torque errors that are constant offsets are the arm's own
unknown offset.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from safe_sysid.core.arrays import FloatArray, IntArray
from safe_sysid.identification.bounds.payload_constraints import PayloadConstraints
from safe_sysid.identification.equations.momentum import MomentumRows
from safe_sysid.identification.equations.row_errors import ERROR_CAUSES
from safe_sysid.identification.estimates.nominal import NominalEstimate
from safe_sysid.identification.estimates.quadratic import PRIOR_WEIGHT, Quadratic
from safe_sysid.robot.parameters import ParameterBox

__all__ = ["BestFit", "best_fit"]

_HUBER = 1.345  # 95 % efficient under normal errors [Huber1981]
_MAD = 1.482602218505602  # standard deviation over median absolute deviation of a normal distribution
_ROUNDS = 30
_MOST_MEMORY = 10.0  # of the variance, by which neighbouring windows may raise it


@dataclass(frozen=True, eq=False)
class BestFit:
    """Best-fit estimate of theta_e."""

    theta: FloatArray  #: (10,) inside the bounds
    standard_error: FloatArray  #: (10,) of it, statistical
    payload_mass_error: float  #: standard error of the payload's mass alone, kg
    consistent: bool  #: whether the payload alone (theta_e where the hand is unknown) is a real body
    scale: FloatArray  #: (n,) standard deviation of a window's mean torque that is left, N m
    unknowns: FloatArray  #: (14 n,) all parameters of the fit without boxes and cone
    gains: FloatArray  #: (n,) of the torque sensors, as a share: measured torques are ``1 + gains`` times the fit's


def best_fit(
    rows: MomentumRows,
    prior: ParameterBox,
    box: ParameterBox,
    gain: FloatArray,
    payload_constraints: PayloadConstraints | None = None,
) -> BestFit:
    """Fit all unknowns to equations of windows that do not overlap, in order of time.

    Args:
        rows: over all 14 n parameters.
        prior: of them; a sensor's constant error is part of the joint's offset.
        box: the same with the bounds that were proved.
        gain: (n,) largest relative error of each joint's torque.
        payload_constraints: of hand and payload; None: theta_e as a whole is the body.
    """
    estimate = NominalEstimate(prior, payload_constraints, "projected")
    normal, n = estimate.normal, len(gain)
    rows = normal.usable(rows)
    length = np.maximum(rows.end - rows.start, 1e-12)
    # Friction is anything within Fc where the sign of a velocity is not certain.
    unknown = rows.parts[:, ERROR_CAUSES.index("coulomb")] / length
    model = _Model(normal.columns(rows) / length[:, None], rows.joint, gain, normal.mid, normal.scale, unknown)
    size = len(normal.mid)
    hessian, linear, scale, residual = _robust(model, rows.target / length)
    joint = rows.joint
    kept = Quadratic(hessian, linear).reduced(slice(0, size)).definite()
    theta, consistent = estimate.project(kept, box)
    # Of a log almost without noise rounding can hide the prior's own part, below which no eigenvalue is.
    values, vectors = np.linalg.eigh(hessian)
    inverse = (vectors / np.maximum(values, PRIOR_WEIGHT)) @ vectors.T
    covariance = inverse[:size, :size] * np.outer(normal.scale, normal.scale)
    covariance = covariance * _memory(residual, joint, n)
    body, _ = estimate.body()
    whole = body / normal.scale  # of the parameters themselves
    payload = box.layout.payload
    free = np.linalg.solve(hessian, linear)
    return BestFit(
        theta,
        np.sqrt(np.diag(covariance)[payload]),
        float(np.sqrt(whole[0] @ covariance @ whole[0])),
        consistent,
        scale,
        (normal.mid + normal.scale * free[:size])[: len(prior.mid)],
        gain * free[size:],
    )


@dataclass(frozen=True, eq=False)
class _Model:
    """Mean torques of windows: ``(1 + gain_j g_j) a.(mid + scale z)``, scaled unknowns ``x = [z (P,) | g (n,)]``."""

    columns: FloatArray  #: (M, P) a
    joint: IntArray  #: (M,) whose sensor measured it
    gain: FloatArray  #: (n,) largest relative error of its torque
    mid: FloatArray  #: (P,) of the parameters
    scale: FloatArray  #: (P,) of the parameters
    unknown: FloatArray  #: (M,) by how much the mean torque may be another than the model's, N m, besides errors

    def spread(self, scale: FloatArray) -> FloatArray:
        """(M,) standard deviation of each mean torque's error; ``scale`` (n,) that of what the unknown is not."""
        return np.hypot(scale[self.joint], self.unknown / np.sqrt(3.0))

    def linear(self, x: FloatArray) -> tuple[FloatArray, FloatArray]:
        """(M, P + n), (M,): ``matrix y + offset`` is the model near x."""
        size, rows = len(self.mid), np.arange(len(self.joint))
        torque = self.columns @ (self.mid + self.scale * x[:size])
        gain = (self.gain * x[size:])[self.joint]
        matrix = np.zeros((len(rows), len(x)))
        matrix[:, :size] = self.columns * self.scale * (1.0 + gain)[:, None]
        matrix[rows, size + self.joint] = torque * self.gain[self.joint]
        return matrix, (1.0 + gain) * (self.columns @ self.mid) - gain * torque


def _robust(model: _Model, torque: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray, FloatArray]:
    """Normal equations with Huber's weights, scale (n,) of errors, residuals in it; ``torque`` (M,) as measured."""
    joint, n = model.joint, len(model.gain)
    x: FloatArray = np.zeros(len(model.mid) + n)
    prior = PRIOR_WEIGHT * np.eye(len(x))
    weight = np.ones(len(torque))
    matrix, offset = model.linear(x)
    first = torque - offset
    scale = np.array([np.std(first[joint == j]) if np.any(joint == j) else 1.0 for j in range(n)]) + 1e-9
    for _ in range(_ROUNDS):
        w = np.sqrt(weight) / model.spread(scale)
        scaled = matrix * w[:, None]
        hessian, linear = prior + scaled.T @ scaled, scaled.T @ ((torque - offset) * w)
        x = np.asarray(np.linalg.solve(hessian, linear), np.float64)
        last = scale
        matrix, offset = model.linear(x)
        residual = torque - offset - matrix @ x
        scale = np.array(
            [_MAD * np.median(np.abs(residual[joint == j])) if np.any(joint == j) else 1.0 for j in range(n)]
        )
        scale = np.maximum(scale, 1e-6 * np.max(scale) + 1e-9)
        size = np.abs(residual) / model.spread(scale)
        weight = _HUBER / np.maximum(size, _HUBER)
        if np.all(np.abs(scale - last) <= 1e-4 * last):
            break
    return hessian, linear, scale, residual / model.spread(scale)


def _memory(residual: FloatArray, joint: IntArray, n: int) -> float:
    """Factor of the variance by which errors of neighbouring windows raise it: (1 + rho) / (1 - rho), at least 1."""
    most = 1.0
    for j in range(n):
        one = np.clip(residual[joint == j], -3.0, 3.0)
        if len(one) > 4 and np.any(one):
            rho = float(np.clip(one[1:] @ one[:-1] / (one @ one), 0.0, 0.9))
            most = max(most, (1.0 + rho) / (1.0 - rho))
    return min(most, _MOST_MEMORY)
