"""Hypotheses of the tracking theorem for a new arm: found by computation, so that gains exist for what it shall do.

What a hypothesis says of H is proved by enclosures over cells around sampled poses, what it says of S is sampled and
enlarged: along plans the certificate proves both. So nothing rests on this search but whether plans are found.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from safe_sysid.control.gains import ControllerGains, TrackingAssumptions
from safe_sysid.control.gains.design import design_gains
from safe_sysid.control.gains.motion_hypotheses import MotionHypotheses
from safe_sysid.control.gains.power_loss import ClosedLoop
from safe_sysid.core.arrays import FloatArray
from safe_sysid.dynamics import dynamics_of
from safe_sysid.dynamics.magnitudes import inertia_floor, inertia_share
from safe_sysid.errors import ParameterError
from safe_sysid.new_arm.home import inertia_matrices
from safe_sysid.robot.config import per_joint
from safe_sysid.robot.model import RobotModel
from safe_sysid.robot.parameters import ParameterBox

__all__ = ["Hypotheses", "PlanReach", "eigenvalue_bounds", "find_hypotheses", "load_inertia"]

_SAMPLES = 96
#: kg m^2 per N m of the torque limit, about what light drives have (Franka Panda, published identified values).
_DRIVE = 0.007
#: Half width of the cells that H is enclosed over, rad: what a plan's time cell and the tracking error may take.
_CELL = 0.02
#: Factors on what is sampled.
_HEADROOM = 1.2
_QUANTILE = 0.9
#: Gains that are tried, softest first, 1/s.
_K_R, _KAPPA = (2.5, 4.0, 8.0), (12.0, 20.0, 30.0)
#: Damping is by the arm's own inertia. Its share of H beyond the rotors then costs little: room for other poses.
_SPARE_INERTIA = 2.0
_ROUNDS = 8
#: sqrt(2 V_max) that are tried, sqrt(J).
_NUS = np.geomspace(0.03, 1.5, 14)
#: Of :func:`_cost`: beyond it plans will not be found.
_WORST = 1.0


@dataclass(frozen=True)
class PlanReach:
    """What exciting plans do. ``k_range``: how far a joint goes from its start, rad; ``t_f``: duration, s."""

    k_range: float
    t_f: float = 3.0

    @property
    def velocity(self) -> float:
        """Of the desired motion, rad/s: a quintic's from rest to rest, and a quarter more where plans follow."""
        return 1.25 * 1.875 * self.k_range / self.t_f

    @property
    def acceleration(self) -> float:
        """rad/s^2."""
        return 1.6 * 5.774 * self.k_range / self.t_f**2

    @property
    def jerk(self) -> float:
        """rad/s^3."""
        return 3.4 * 60.0 * self.k_range / self.t_f**3


@dataclass(frozen=True, eq=False)
class Hypotheses:
    """Section ``controller`` of a configuration, with the gains that follow."""

    K_r: float  #: 1/s
    kappa: float  #: 1/s
    inertia_ratio: FloatArray  #: (n,) H <= diag(ratio * lower rotor inertia)
    velocity: FloatArray  #: rad/s, rad/s^2, rad/s^3
    acceleration: float  #: rad/s, rad/s^2, rad/s^3
    jerk: float  #: rad/s, rad/s^2, rad/s^3
    uncertainty: float  #: S, sqrt(W/s)
    gains: ControllerGains


def load_inertia(model: RobotModel, home: FloatArray, reach: float) -> FloatArray:
    """Largest inertia (n,) that each joint moves near home, largest payload included, without rotors; kg m^2.

    At least what its torque limit speaks of: the last joint moves next to nothing, but its drive is no watch's.

    ``home``: (n,) rad; ``reach``: rad.
    """
    box = model.arm_prior
    theta = box.mid.copy()
    last = model.layout.payload
    theta[last] = box.upper[last]
    for at in (1, 2, 3, 5, 7, 8):  # the worst centre of mass is not known: the middle one
        theta[last.start + at] = box.mid[last.start + at]
    moved = inertia_matrices(model, _near(model, home, reach), theta).diagonal(axis1=1, axis2=2).max(axis=0)
    return np.asarray(np.maximum(moved, _DRIVE * model.limits.torque))


def find_hypotheses(model: RobotModel, home: FloatArray, motion: PlanReach, load: FloatArray) -> Hypotheses | None:
    """Hypotheses for which gains exist in real time, with the smallest tracking error and torque; None: none.

    Args:
        model: of the arm, with rotor inertia, friction and payload prior.
        home: (n,) rad.
        load: (n,) inertia that each joint moves, kg m^2.
    """
    box = model.arm_prior
    lower, upper = box.lower[box.layout.rotor_inertia], box.upper[box.layout.rotor_inertia]
    q = _near(model, home, 0.6 * motion.k_range)
    share = float(np.max(inertia_share(model.kinematics, box, load, q, np.full(q.shape, _CELL))))
    ratio = np.ceil(100.0 * (upper + _SPARE_INERTIA * share * load) / lower) / 100.0
    choices = []
    for K_r in _K_R:
        for kappa in _KAPPA:
            r = _quick(model, q, motion, ratio, K_r, kappa)
            if r is not None:
                choices.append((_cost(model, q, r, K_r, kappa), K_r, kappa, r))
    for cost, K_r, kappa, r in sorted(choices, key=lambda choice: choice[0]):
        if cost > _WORST:
            break
        found = _try(model, q, motion, ratio, K_r, kappa, r)
        if found is not None:
            return found
    return None


def eigenvalue_bounds(model: RobotModel, home: FloatArray, half: float) -> tuple[float, float, float]:
    """Rigorous lower bounds of the smallest eigenvalue of H, kg m^2.

    ``home``: (n,) rad; ``half``: half width of the cell around home, rad.
    Returns at every pose (the rotors alone); in the cell; in the cell without rotors (0: not proved positive).
    """
    n, box = model.n, model.arm_prior
    unit, cell = np.ones(n), np.full((1, n), half)
    # A payload is a body of its own: it only adds to H. So the empty hand is what bounds from below.
    lower, upper = box.lower.copy(), box.upper.copy()
    last, rotors = model.layout.payload, model.layout.rotor_inertia
    lower[last], upper[last] = model.hand_prior
    everywhere = float(np.min(lower[rotors])) * (1.0 - 1e-9)
    near = float(inertia_floor(model.kinematics, ParameterBox(lower, upper), unit, home[None], cell)[0])
    lower[rotors] = 0.0
    links = float(inertia_floor(model.kinematics, ParameterBox(lower, upper), unit, home[None], cell)[0])
    return everywhere, near, links


def _near(model: RobotModel, home: FloatArray, reach: float) -> FloatArray:
    """Poses (M, n) around home, home first."""
    rng = np.random.default_rng(0)
    q = home + rng.uniform(-reach, reach, (_SAMPLES, model.n))
    q[0] = home
    return np.clip(q, model.limits.position_lower, model.limits.position_upper)


def _motion_hypotheses(
    model: RobotModel, q: FloatArray, motion: PlanReach, ratio: FloatArray, K_r: float, kappa: float, r: FloatArray
) -> MotionHypotheses:
    """What motions ask for whose |r| is at most ``r`` (n,)."""
    n = model.n
    lower = model.arm_prior.lower[model.layout.rotor_inertia]
    return MotionHypotheses(
        velocity=np.ceil(1e3 * (motion.velocity + 2.1 * r)) / 1e3,
        acceleration=np.full(n, motion.acceleration),
        jerk=np.full(n, motion.jerk),
        uncertainty=float(np.ceil(10.0 * _HEADROOM * _measure(model, q, motion, r, K_r, kappa)) / 10.0),
        inertia_upper=ratio * lower,
        inertia_lower=lower,
    )


def _assumptions(model: RobotModel, motion_hypotheses: MotionHypotheses) -> TrackingAssumptions:
    """Those of a search, without errors of the measured q and qd."""
    s, n = model.settings, model.n
    return TrackingAssumptions(
        velocity=motion_hypotheses.velocity,
        acceleration=motion_hypotheses.acceleration,
        jerk=motion_hypotheses.jerk,
        uncertainty=motion_hypotheses.uncertainty,
        inertia_upper=motion_hypotheses.inertia_upper,
        position_error=np.zeros(n),
        velocity_error=np.zeros(n),
        actuator_abs=per_joint(s.actuator.torque_abs, n),
        actuator_rel=per_joint(s.actuator.torque_rel, n),
        torque_limit=np.asarray(model.limits.torque),
        feed_forward=per_joint(s.controller.feed_forward.bound, n),
        hold_max=s.timing.hold_max_s,
        delay_max=s.timing.delay_max_s,
    )


def _quick(
    model: RobotModel, q: FloatArray, motion: PlanReach, ratio: FloatArray, K_r: float, kappa: float
) -> FloatArray | None:
    """About the smallest bound of |r| (n,) that the theorem has; None: there is none. Quick."""
    n, box = model.n, model.arm_prior
    lower, none = box.lower[box.layout.rotor_inertia], np.zeros(model.n)
    for nu in _NUS:
        r = nu / np.sqrt(lower)
        assume = _assumptions(model, _motion_hypotheses(model, q, motion, ratio, K_r, kappa, r))
        loop = ClosedLoop(
            model.kinematics,
            box,
            assume,
            lower,
            np.full(n, K_r),
            none,
            kappa,
            model.friction_transition_velocity,
            kappa,
        )
        lead = 0.4 * (assume.hold_max + assume.delay_max)
        if min(loop.power_loss(nu, c, lead).power for c in (0.9, 1.4)) < loop.kappa * nu * nu:
            return r
    return None


def _try(
    model: RobotModel, q: FloatArray, motion: PlanReach, ratio: FloatArray, K_r: float, kappa: float, r: FloatArray
) -> Hypotheses | None:
    """Iterate until both agree: hypotheses grow with the tracking error, the tracking error with the hypotheses."""
    for _ in range(_ROUNDS):
        motion_hypotheses = _motion_hypotheses(model, q, motion, ratio, K_r, kappa, r)
        try:
            gains = design_gains(model, motion_hypotheses=motion_hypotheses, K_r=K_r, kappa=kappa)
        except ParameterError:
            return None
        if np.all(gains.r_bound <= r):
            return Hypotheses(
                K_r,
                kappa,
                ratio,
                motion_hypotheses.velocity,
                motion.acceleration,
                motion.jerk,
                motion_hypotheses.uncertainty,
                gains,
            )
        r = 1.04 * gains.r_bound
    return None


def _measure(model: RobotModel, q: FloatArray, motion: PlanReach, r: FloatArray, K_r: float, kappa: float) -> float:
    """S that nearly all states of such motions keep, sqrt(W/s)."""
    box = model.arm_prior
    rows = np.abs(_regressors(model, q, motion, r, K_r, kappa)) @ box.rad
    return float(np.quantile(np.sqrt(np.square(rows) @ (1.0 / box.lower[box.layout.rotor_inertia])), _QUANTILE))


def _regressors(
    model: RobotModel, q: FloatArray, motion: PlanReach, r: FloatArray, K_r: float, kappa: float
) -> FloatArray:
    """W_s (M, n, 14 n) at random states of such motions."""
    rng = np.random.default_rng(1)
    qd = rng.uniform(-1.0, 1.0, q.shape) * motion.velocity
    qdd = rng.uniform(-1.0, 1.0, q.shape) * motion.acceleration
    corner = r * rng.choice([-1.0, 1.0], q.shape)
    r_now = corner / np.sqrt(model.n)
    # Damping is the largest part, and certificates enclose it joint by joint.
    damped = qdd + 2.0 * K_r * r_now + kappa * corner
    return dynamics_of(model.kinematics).slotine_li_regressor(
        q, qd, qd + r_now, damped, model.friction_transition_velocity
    )


def _cost(model: RobotModel, q: FloatArray, r: FloatArray, K_r: float, kappa: float) -> float:
    """Tracking error against 0.1 rad, or torque at rest with what fighting it takes: the larger share."""
    box, zero = model.arm_prior, np.zeros_like(q)
    w = dynamics_of(model.kinematics).slotine_li_regressor(q, zero, zero, zero, model.friction_transition_velocity)
    still = np.quantile(np.abs(w @ box.mid) + np.abs(w) @ box.rad, 0.5, axis=0)
    moving = (kappa + 2.0 * K_r) * r * box.upper[box.layout.rotor_inertia]
    return float(max(np.max(r / K_r) / 0.1, np.max((still + moving) / (0.95 * model.limits.torque))))
