r"""Gain synthesis and the proved tracking bound: ``V = r^T H r / 2`` stays below ``V_max``.

The theorem, its assumptions and its proof are in ``docs/guarantees.md`` (section "Tracking"); the names here are the
names there. Nothing in it is sampled: it holds for every trajectory whose certificate shows the four hypotheses

- ``|qd| <= velocity``, ``|qdd_d| <= acceleration``, ``|qddd_d| <= jerk`` per joint,
- ``S = sum_p dtheta_p |W_s,p|_* <= uncertainty``, where ``|x|_*^2 = sum_j x_j^2 / inertia_lower_j``,
- ``H <= diag(inertia_upper)`` along the motion,

for parameters in the box, measurement and actuator errors in their bounds, and a command never older than ``hold_max``.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from safe_sysid.errors import ParameterError
from safe_sysid.robot.magnitudes import inertia_share, link_norms, torque_sensitivity
from safe_sysid.robot.model import Kinematics
from safe_sysid.robot.parameters import ParameterBox

__all__ = ["ControllerGains", "TrackingAssumptions", "power_demand", "synthesise", "tracking_margins"]

FloatArray = NDArray[np.float64]
#: Relative head-room for rounding in the demand (a few hundred operations on positive numbers).
_ROUND = 1.0 + 1e-10


@dataclass(frozen=True, eq=False)
class TrackingAssumptions:
    """What the tracking theorem assumes; declared in the configuration, checked by certificates and at run time.

    Attributes:
        velocity, acceleration, jerk: (n,) bounds of |qd|, |qdd_d|, |qddd_d|; rad/s, rad/s^2, rad/s^3.
        uncertainty: bound of S, sqrt(W/s).
        inertia_upper: (n,) h with H <= diag(h), kg m^2.
        position_error, velocity_error: (n,) bounds of the measurement errors, rad and rad/s.
        actuator_abs, actuator_rel: (n,) applied torque = command within abs + rel |command|, N m and 1.
        torque_limit: (n,) largest command, N m.
        hold_max: oldest measurement behind a torque in force, s.
        delay_max: longest time from a measurement to the first effect of its command, s (<= hold_max).
    """

    velocity: FloatArray
    acceleration: FloatArray
    jerk: FloatArray
    uncertainty: float
    inertia_upper: FloatArray
    position_error: FloatArray
    velocity_error: FloatArray
    actuator_abs: FloatArray
    actuator_rel: FloatArray
    torque_limit: FloatArray
    hold_max: float
    delay_max: float


@dataclass(frozen=True, eq=False)
class ControllerGains:
    """Everything that controller and planner share.

    Attributes:
        assumptions: of the theorem.
        box: of parameters that the theorem was computed for; it holds for every box inside.
        K_r: (n,) 1/s.
        K_d: (n,) N m s/rad.
        kappa: decay rate: ``r^T (K_d + Fv) r >= 2 kappa V``, 1/s.
        robust_gain: c in ``eps_p = c hold_max S w_p``.
        inertia_lower: (n,) rotor inertia from below, kg m^2; H >= diag of it.
        V_max: J.
        demand: power that the theorem must dissipate at V_max, W; < 2 kappa V_max.
        r_bound, e_bound, de_bound: (n,) bounds that hold while V <= V_max; rad/s, rad, rad/s.
        acceleration_bound: (n,) bound of |qdd| while V <= V_max, rad/s^2.
    """

    assumptions: TrackingAssumptions
    box: ParameterBox
    K_r: FloatArray
    K_d: FloatArray
    kappa: float
    robust_gain: float
    inertia_lower: FloatArray
    V_max: float
    demand: float
    r_bound: FloatArray
    e_bound: FloatArray
    de_bound: FloatArray
    acceleration_bound: FloatArray

    @property
    def capacity(self) -> float:
        """Power dissipated at V_max, W."""
        return 2.0 * self.kappa * self.V_max


def power_demand(
    kin: Kinematics,
    box: ParameterBox,
    assume: TrackingAssumptions,
    K_r: FloatArray,
    K_d: FloatArray,
    kappa: float,
    robust_gain: float,
    transition: float,
    nu: float,
) -> tuple[float, FloatArray]:
    r"""Bound D of the mean over a hold of all of dV/dt but ``-r^T (K_d + Fv) r``, for ``V <= nu^2 / 2``, in W.

    Returns D and a bound (n,) of |qdd|. Follows the proof line by line; ``inf`` where its conditions fail.
    ``transition`` is the friction transition velocity, rad/s; other arguments as in :class:`ControllerGains`.
    """
    n = box.n
    lam, h, d = box.lower[12 * n : 13 * n], assume.hold_max, assume.delay_max
    root = np.sqrt(lam)
    viscous, coulomb = box.upper[11 * n : 12 * n], box.upper[10 * n : 11 * n]
    S, c = assume.uncertainty, robust_gain
    k_r, k_r_min = float(np.max(K_r)), float(np.min(K_r))
    mean_age, mean_own = 0.5 * (h + d), 0.5 * (h - d)

    def torque_norm(x: FloatArray) -> float:
        return float(np.linalg.norm(x / root))

    def motion_norm(x: FloatArray) -> float:
        return float(np.linalg.norm(x * root))

    def gain(matrix: FloatArray) -> float:
        """Largest |M x|_* over |x|_Lambda <= 1 for a matrix bounded entrywise by ``matrix`` >= 0."""
        return float(np.linalg.norm(matrix / root[:, None] / root[None, :], 2))

    rho = nu / root
    mu = float(np.max(assume.inertia_upper / lam))
    mu_d = float(np.max(K_d / lam))
    error_rate = 2.0 * rho  # |de|
    velocity_a = assume.velocity + rho  # qd_a = qd + r
    acceleration_a = assume.acceleration + K_r * error_rate
    sens = torque_sensitivity(
        kin, link_norms(kin, box.lower, box.upper), assume.velocity, velocity_a, acceleration_a
    )
    eta = motion_norm(assume.velocity_error + K_r * assume.position_error)
    actuator = torque_norm(assume.actuator_abs + assume.actuator_rel * assume.torque_limit)
    coriolis = gain(sens.qd_a) * nu
    friction = float(np.max(viscous / lam)) * nu + 2.0 * torque_norm(coulomb)

    def change(age: float) -> float:
        """|Delta|_*: change of W_s theta since a measurement of this age, without the parts due to dr."""
        q = age * assume.velocity + assume.position_error
        qd_a = age * assume.acceleration + K_r * (age * error_rate + assume.position_error)
        rows = sens.q @ q + sens.qd @ (age * acceleration_a + assume.velocity_error)
        rows += sens.qd_a @ qd_a + viscous * qd_a
        rows += coulomb * (np.minimum(2.0, qd_a / transition) if transition > 0.0 else 2.0)
        position = age * (1.0 + k_r / k_r_min) * nu + motion_norm(assume.position_error)
        return torque_norm(rows) + mu * (age * motion_norm(assume.jerk) + k_r * k_r * position)

    by_move = mu * k_r + gain(
        sens.qd
    )  # part of Delta per unit of |delta|, the change of r since the measurement

    # R1 bounds |H dr|_* less the parameter error u, |u|_* <= 2 S; delta <= eta + h (2 S + R1): affine in R1, solvable.
    slope = h * (mu_d + by_move)
    if slope >= 1.0:
        return np.inf, np.full(n, np.inf)
    fixed = mu_d * nu + change(h) + actuator + coriolis + friction
    R1 = (fixed + (mu_d + by_move) * (eta + 2.0 * h * S)) / (1.0 - slope)
    X = eta + 2.0 * S * d + mean_age * R1
    y = c * h - mean_own
    if y <= 0.0:
        return np.inf, np.full(n, np.inf)
    damping = nu * (mu_d + by_move)
    L = c * h * S + X + damping * mean_own
    sticking = float(np.sum(coulomb)) * transition
    # Later instants of a hold weigh more in V than in the mean: at most by exp(2 kappa h).
    growth = (2.0 * S + damping) * (2.0 * S + R1) * h + nu * change(h)
    weighting = 2.0 * kappa * h * growth / 8.0 * np.exp(2.0 * kappa * h)
    mean = L * L / (4.0 * y) + damping * X + nu * (change(mean_age) + actuator) + sticking
    qdd = _ROUND * (acceleration_a + (2.0 * S + R1) / root)
    return float(_ROUND * (mean + weighting)), qdd


def synthesise(
    kin: Kinematics,
    box: ParameterBox,
    assume: TrackingAssumptions,
    K_r: FloatArray,
    kappa: float,
    transition: float,
    joint_names: tuple[str, ...] = (),
) -> ControllerGains:
    """Choose K_d, the robust gain and the smallest V_max with ``demand < 2 kappa V_max``.

    Raises:
        ParameterError: no positive rotor inertia, or no V_max exists; says which assumption to relax.
    """
    n = box.n
    lam = box.lower[12 * n : 13 * n]
    K_r = np.broadcast_to(np.asarray(K_r, float), (n,)).copy()
    if np.any(lam <= 0.0):
        j = int(np.argmin(lam))
        name = joint_names[j] if joint_names else f"joint {j}"
        raise ParameterError(
            f"{name}: rotor inertia has lower bound {lam[j]!r} kg m^2: expected a positive one, "
            "the tracking bound rests on H >= diag(rotor inertia)"
        )
    if np.any(K_r <= 0.0) or not kappa > 0.0:
        raise ParameterError(f"K_r = {K_r.tolist()}, kappa = {kappa!r}: expected positive gains")
    if not 0.0 <= assume.delay_max <= assume.hold_max:
        raise ParameterError(
            f"delay_max = {assume.delay_max!r}, hold_max = {assume.hold_max!r}: expected 0 <= delay_max <= hold_max"
        )
    K_d = np.maximum(kappa * assume.inertia_upper - box.lower[11 * n : 12 * n], 0.0)
    kappa_true = float(np.min((K_d + box.lower[11 * n : 12 * n]) / assume.inertia_upper)) * (1.0 - 1e-12)

    best: tuple[float, float, float, FloatArray] | None = None
    for c in np.linspace(0.6, 3.0, 25):
        nu, demand = 1e-3, 0.0
        for _ in range(200):
            demand, qdd = power_demand(kin, box, assume, K_r, K_d, kappa_true, c, transition, nu)
            target = np.sqrt(demand / kappa_true) * 1.001
            if not np.isfinite(target) or target > 10.0:
                break
            if target <= nu:
                if best is None or nu < best[0]:
                    best = (nu, c, demand, qdd)
                break
            nu = target * 1.001
    if best is None:
        raise ParameterError(
            "no tracking bound exists for these assumptions: relax one of controller.kappa or K_r (lower), "
            f"timing.hold_max_s = {assume.hold_max!r} (lower), measurement errors (lower), "
            f"tracking.uncertainty = {assume.uncertainty!r} (lower, i.e. a smaller prior box)"
        )
    nu, c, demand, qdd = best
    r_bound = nu / np.sqrt(lam) * _ROUND
    arrays = {
        "K_r": K_r,
        "K_d": K_d,
        "inertia_lower": lam.copy(),
        "r_bound": r_bound,
        "acceleration_bound": qdd,
    }
    arrays |= {"e_bound": r_bound / K_r * _ROUND, "de_bound": 2.0 * r_bound * _ROUND}
    for array in arrays.values():
        array.setflags(write=False)
    return ControllerGains(
        assumptions=assume,
        box=box,
        kappa=kappa_true,
        robust_gain=float(c),
        V_max=0.5 * nu * nu,
        demand=demand,
        **arrays,
    )


def tracking_margins(
    gains: ControllerGains,
    kin: Kinematics,
    box: ParameterBox,
    q_mid: FloatArray,
    q_half: FloatArray,
    qd_abs: FloatArray,
    qdd_d_abs: FloatArray,
    jerk_d_abs: FloatArray,
    uncertainty: FloatArray,
) -> dict[str, FloatArray]:
    """Margins, relative to the limit, of the tracking theorem's hypotheses along a plan; all must be >= 0.

    Args:
        gains: of the controller.
        kin: of the arm.
        box: that the controller works with.
        q_mid: (M, n) centres of the enclosures of the true positions per time cell, rad.
        q_half: (M, n) their half widths, rad.
        qd_abs: (M, n) upper bounds of the true |qd|, rad/s.
        qdd_d_abs: (M, n) upper bounds of |qdd_d|, rad/s^2.
        jerk_d_abs: (M, n) upper bounds of |qddd_d|, rad/s^3.
        uncertainty: (M,) upper bounds of S.

    Returns:
        "velocity", "acceleration", "jerk": (M, n); "uncertainty", "inertia": (M,).
    """
    a = gains.assumptions
    spare = a.inertia_upper - box.upper[12 * box.n : 13 * box.n]
    possible = bool(np.all(spare > 0.0))
    share = inertia_share(kin, box, spare, q_mid, q_half) if possible else np.full(len(q_mid), np.inf)
    return {
        "velocity": 1.0 - qd_abs / a.velocity,
        "acceleration": 1.0 - qdd_d_abs / a.acceleration,
        "jerk": 1.0 - jerk_d_abs / a.jerk,
        "uncertainty": 1.0 - uncertainty / a.uncertainty,
        "inertia": 1.0 - share,
    }
