"""Hypotheses of the tracking theorem that one motion needs: the gains are synthesised for them.

Wider hypotheses make the tracking bound larger, narrower ones forbid motions. Those of the configuration suit exciting
plans at the prior's uncertainty; :func:`hypotheses_of` finds those of one trajectory, e.g. of a fast one with an
identified payload. No guarantee rests on them: a certificate proves that a motion keeps the hypotheses of its gains.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from safe_sysid.control.gains import ControllerGains
from safe_sysid.core.arrays import FloatArray
from safe_sysid.dynamics import dynamics_of
from safe_sysid.dynamics.magnitudes import inertia_share, rotor_ceiling, rotor_floor
from safe_sysid.errors import ParameterError
from safe_sysid.robot.config import per_joint
from safe_sysid.robot.model import RobotModel
from safe_sysid.robot.parameters import ParameterBox, frozen_array
from safe_sysid.trajectories.extrema import derivative_range
from safe_sysid.trajectories.quintic import QuinticTrajectory

__all__ = ["MotionHypotheses", "configured_hypotheses", "hypotheses_of", "torque_of"]

#: Times at which S and the inertia are looked at along a trajectory, and random tracking errors at each.
_TIMES, _ERRORS = 160, 8


@dataclass(frozen=True, eq=False)
class MotionHypotheses:
    """Bounds that a motion, its tracking error included, shall keep.

    Attributes:
        velocity, acceleration, jerk: (n,) of |qd|, |qdd_d|, |qddd_d|; rad/s, rad/s^2, rad/s^3.
        uncertainty: of S, sqrt(W/s).
        inertia_upper: (n,) h with H <= diag(h), kg m^2.
        inertia_lower: (n,) L with H >= diag(L), kg m^2; None: the lower rotor inertia of the box.
    """

    velocity: FloatArray
    acceleration: FloatArray
    jerk: FloatArray
    uncertainty: float
    inertia_upper: FloatArray
    inertia_lower: FloatArray | None = None

    def __post_init__(self) -> None:
        """Validate and freeze.

        Raises:
            ParameterError: not positive, not finite, or not of one size.
        """
        n = np.size(self.velocity)
        for name in ("velocity", "acceleration", "jerk", "inertia_upper", "inertia_lower"):
            if getattr(self, name) is None:
                continue
            value = frozen_array(getattr(self, name), (n,), f"motion_hypotheses.{name}")
            # A rotor inertia of zero makes the declared H zero too: the synthesis names the joint.
            if np.any(value < 0.0) or (name not in ("inertia_upper", "inertia_lower") and np.any(value == 0.0)):
                raise ParameterError(f"motion_hypotheses.{name} = {value.tolist()}: expected positive numbers")
            object.__setattr__(self, name, value)
        if not (np.isfinite(self.uncertainty) and self.uncertainty >= 0.0):
            raise ParameterError(f"motion_hypotheses.uncertainty = {self.uncertainty!r}: expected a number >= 0")


def configured_hypotheses(model: RobotModel) -> MotionHypotheses:
    """The hypotheses that a robot's configuration declares (section ``controller``).

    Raises:
        ParameterError: a bound that is not positive, or sizes that do not match.
    """
    s, n = model.settings.controller, model.n
    lower = _declared_lower(model, model.arm_prior)
    return MotionHypotheses(
        velocity=per_joint(s.velocity, n),
        acceleration=per_joint(s.acceleration, n),
        jerk=per_joint(s.jerk, n),
        uncertainty=s.uncertainty,
        inertia_upper=per_joint(s.inertia_ratio, n) * lower,
        inertia_lower=lower,
    )


def _declared_lower(model: RobotModel, box: ParameterBox) -> FloatArray:
    """L (n,): declared, or the rotors' of a box."""
    declared = model.settings.controller.inertia_lower
    return rotor_floor(model.kinematics, box) if declared is None else per_joint(declared, model.n)


def hypotheses_of(
    model: RobotModel,
    trajectory: QuinticTrajectory,
    box: ParameterBox,
    *,
    r_bound: ArrayLike = 0.0,
    K_r: ArrayLike | None = None,
    kappa: float | None = None,
    headroom: float = 1.1,
) -> MotionHypotheses:
    """What one trajectory, tracked with errors up to ``r_bound``, asks for.

    Velocity, acceleration and jerk are exact. S and the inertia are looked at along the trajectory, with random
    tracking errors, and enlarged by ``headroom``: enclosures over time cells are wider than samples. A certificate
    says whether it was enough.

    Args:
        box: of parameters that the controller will work with.
        r_bound: (n,) or one for all: bound of |r|, rad/s.
        K_r: (n,) or one for all, 1/s; None: the configuration's.
        kappa: decay rate, 1/s; None: the configuration's.
        headroom: factor >= 1 on S, on the links' share of the inertia, and on rates.

    Raises:
        ParameterError: sizes do not match, or headroom < 1.
    """
    n = model.n
    if trajectory.n != n or box.n != n:
        raise ParameterError(f"trajectory of {trajectory.n} joints, box of {box.n}: expected {n}")
    if not headroom >= 1.0:
        raise ParameterError(f"headroom = {headroom!r}: expected a number >= 1")
    r = np.broadcast_to(np.asarray(r_bound, float), (n,))
    control = model.settings.controller
    k_r = per_joint(control.K_r if K_r is None else K_r, n)  # type: ignore[arg-type]
    own = (control.kappa if kappa is None else kappa) if control.damping == "inertia" else 0.0
    rates = [np.abs(derivative_range(trajectory, order, 0.0, trajectory.duration)).max(axis=1) for order in (1, 2, 3)]
    # A joint that stands still is given a little of what the fastest needs.
    velocity, acceleration, jerk = (np.maximum(x * headroom, 0.02 * np.max(x) + 1e-3) for x in rates)
    states = trajectory.states(np.linspace(0.0, trajectory.duration, _TIMES))
    return MotionHypotheses(
        velocity=velocity + 2.0 * headroom * r,
        acceleration=acceleration,
        jerk=jerk,
        uncertainty=headroom * _largest_measure(model, states, box, r, k_r, own),
        inertia_upper=_inertia_upper(model, states[:, 0], box, r / k_r, headroom),
        inertia_lower=_declared_lower(model, box),
    )


def torque_of(
    model: RobotModel, trajectory: QuinticTrajectory, box: ParameterBox, gains: ControllerGains
) -> FloatArray:
    """Largest torque (n,) that tracking a motion may ask of the drives, about; N m.

    Evaluated at the same samples, for every parameter of the box, with all of ``K_d r``. To choose gains
    by; only a certificate encloses it.

    Args:
        box: of parameters that the controller will work with.
    """
    states = trajectory.states(np.linspace(0.0, trajectory.duration, _TIMES))
    most = np.zeros(model.n)
    for w in _regressors(model, states, gains.r_bound, gains.K_r, gains.own_damping):
        most = np.maximum(most, (np.abs(w @ box.mid) + np.abs(w) @ box.rad).max(axis=0))
    a = gains.assumptions
    command = most + gains.K_d * gains.r_bound + a.feed_forward
    return np.asarray(command * (1.0 + a.actuator_rel) + a.actuator_abs)


def _largest_measure(
    model: RobotModel, states: FloatArray, box: ParameterBox, r: FloatArray, k_r: FloatArray, own: float
) -> float:
    """Largest S of the states (N, 4, n), with tracking errors on the border of their ellipsoids."""
    weights = 1.0 / _declared_lower(model, box)
    sizes = (np.square(np.abs(w) @ box.rad) @ weights for w in _regressors(model, states, r, k_r, own))
    return float(np.sqrt(max(float(np.max(size)) for size in sizes)))


def _regressors(
    model: RobotModel, states: FloatArray, r: FloatArray, k_r: FloatArray, own: float
) -> Iterator[FloatArray]:
    """The law's W_s (N, n, 14 n) at states (N, 4, n): without errors, then with some on their ellipsoids' border.

    Where r is damping by the arm's own inertia it is at a corner: cells enclose it joint by joint.
    """
    rng = np.random.default_rng(0)
    for k in range(_ERRORS):
        error, rate = rng.normal(size=(2, len(states), model.n))
        e = 0.0 if k == 0 else r / k_r * error / np.linalg.norm(error, axis=1, keepdims=True)
        x = 0.0 if k == 0 else r * rate / np.linalg.norm(rate, axis=1, keepdims=True)
        qd_a = states[:, 1] + k_r * e
        acceleration = states[:, 2] + k_r * (x - k_r * e) + own * (0.0 if k == 0 else r * np.sign(rate))
        yield dynamics_of(model.kinematics).slotine_li_regressor(
            states[:, 0] - e, qd_a - x, qd_a, acceleration, model.friction_transition_velocity
        )


def _inertia_upper(model: RobotModel, q: FloatArray, box: ParameterBox, e: FloatArray, headroom: float) -> FloatArray:
    """``diag(rotor) + diag(spare)`` with the configuration's proportions, scaled until it covers H along q (N, n)."""
    n = model.n
    lower, upper = _declared_lower(model, box), rotor_ceiling(model.kinematics, box)
    prior = model.arm_prior
    declared = per_joint(model.settings.controller.inertia_ratio, n) * _declared_lower(model, prior)
    spare = np.maximum(declared - rotor_ceiling(model.kinematics, prior), 0.05 * lower)
    half = np.broadcast_to(e, q.shape) + np.abs(np.diff(q, axis=0, append=q[-1:]))
    share = float(np.max(inertia_share(model.kinematics, box, spare, q, half)))
    return np.asarray(upper + headroom * share * spare)
