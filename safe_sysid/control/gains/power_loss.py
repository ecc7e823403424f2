r"""The constant D of the tracking theorem: the power that the sampled loop may lose at ``V = V_max``.

Follows the proof in docs/understand/guarantees.md ("Tracking") line by line; the names are the names there.
Everything is a bound: nothing is sampled. ``|x|`` of a motion is ``sqrt(x^T L x)``, of a torque ``sqrt(y^T L^-1 y)``,
L = diag(inertia_lower).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from safe_sysid.control.gains import TrackingAssumptions
from safe_sysid.core.arrays import FloatArray
from safe_sysid.dynamics.magnitudes import InMass, inertia_growth, link_norms, rotor_floor, torque_sensitivity
from safe_sysid.robot.model import Kinematics
from safe_sysid.robot.parameters import ParameterBox

__all__ = ["ClosedLoop", "PowerLoss", "RegressorChange", "infinite"]

#: Relative head-room for rounding in the power loss (a few hundred operations on positive numbers).
_ROUND = 1.0 + 1e-10
#: R1 that is no bound worth having, sqrt(W/s): it goes on growing, until numbers overflow.
_ABSURD = 1e9


@dataclass(frozen=True)
class PowerLoss:
    """D and what comes with it; all ``inf`` where the proof's conditions fail.

    Attributes:
        power: D, W.
        excess: by how much V may exceed its value at the ends of a hold in between, J.
        acceleration: (n,) bound of |qdd|, rad/s^2.
        parts: D by cause, W, for reports.
    """

    power: float
    excess: float
    acceleration: FloatArray
    parts: dict[str, float]


def infinite(n: int) -> PowerLoss:
    """What cannot be bounded."""
    return PowerLoss(np.inf, np.inf, np.full(n, np.inf), {})


@dataclass(frozen=True)
class RegressorChange:
    """Of W_s theta since a measurement of age a: ``|Delta'| <= moved |a - lead| + aged a + fixed + by_r |delta|``.

    Without ``H K_r delta``, which is bounded apart.
    """

    moved: float
    aged: float
    fixed: float
    by_r: float


class Change(NamedTuple):
    """What a torque changes by when a state does: two bounds, of which the smaller one counts."""

    entries: FloatArray  #: (n, n) joint by joint
    in_mass: InMass | None  #: None where L is not the arm's own inertia
    gain: float  #: largest |change|_* over ``dx^T diag(root^2) dx = 1``: root^2 is constant, and at most L


class MotionBounds(NamedTuple):
    """How fast the arm may move, and what torques may change by then."""

    error_rate: FloatArray  #: (n,) of |de|, rad/s
    error_size: float  #: of |de| in inertia_lower's measure (not in L: H turns while e remembers), sqrt(J)
    rate: FloatArray  #: (n,) of |qdd_a|, rad/s^2
    q: Change
    qd: Change
    qd_a: Change


class SteadyChange(NamedTuple):
    """Of :class:`RegressorChange`, what does not depend on how fast r moves."""

    errors: FloatArray  #: (n,) their part of |d qd_a / dt|, rad/s^2
    size: float  #: the same as a motion, sqrt(J)/s
    rates: float  #: of qd and qd_a
    viscous: float  #: friction of qd_a
    rows: FloatArray  #: (n,) ``rates`` joint by joint, N m/s
    viscous_rows: FloatArray  #: (n,) likewise
    remembered: float  #: ``H K_r^2 de``
    moved: float
    fixed: float


class ClosedLoop:
    """What does not depend on V_max: arm, box, assumptions and gains."""

    _seen: tuple[float, MotionBounds] | None = None
    _steady: tuple[tuple[float, float, float], SteadyChange] | None = None

    def __init__(
        self,
        kin: Kinematics,
        box: ParameterBox,
        assume: TrackingAssumptions,
        inertia_lower: FloatArray,
        K_r: FloatArray,
        K_d: FloatArray,
        kappa: float,
        transition: float,
        own: float = 0.0,
        age: float | None = None,
    ) -> None:
        """Prepare.

        Args:
            inertia_lower: (n,) L, positive, kg m^2.
            K_r: (n,) 1/s.
            K_d: (n,) N m s/rad.
            kappa: with ``r^T (K_d + Fv) r >= 2 kappa V``, 1/s.
            transition: friction transition velocity, rad/s.
            own: the damping is ``own H r``, H the arm's own inertia, instead of ``K_d r``, 1/s; kappa then follows.
            age: oldest that a command in force may be, s; None: ``hold_max``. It matters to that damping.
        """
        self.kin, self.assume, self.K_r, self.kappa, self.own = kin, assume, K_r, kappa, own
        self.transition, self.root = transition, np.sqrt(inertia_lower)
        self.norms = link_norms(kin, box.lower, box.upper)
        self.viscous, self.coulomb = box.upper[box.layout.viscous], box.upper[box.layout.coulomb]
        # Step 5: H and K_d in units of L.
        self.mu = float(np.max(assume.inertia_upper / inertia_lower))
        damping = K_d / inertia_lower
        self.mu_d = float(np.max(damping))
        least = float(np.min(inertia_lower / assume.inertia_upper))
        middle, spread = 0.5 * (1.0 + least), 0.5 * float(np.ptp(damping))
        self.c_d = middle * 0.5 * float(np.max(damping) + np.min(damping))
        self.e_d = 0.5 * (1.0 - least) * self.mu_d + middle * spread
        self.stretch = self.across = 1.0
        self.in_mass = False
        self.swing, self.largest = 0.0, self.root
        if own > 0.0:
            self._take_own_inertia(own, box, assume.hold_max if age is None else age)
        self.k = 0.5 * float(np.max(K_r) + np.min(K_r))
        self.k_spread = 0.5 * float(np.ptp(K_r))
        self.eta = self.motion_norm(assume.velocity_error + K_r * assume.position_error)
        # To the theorem a feed-forward is a part of what the actuator errs by: any torque, within its bound.
        self.actuator = self.torque_norm(
            assume.actuator_abs + assume.actuator_rel * assume.torque_limit + assume.feed_forward
        )

    def _take_own_inertia(self, own: float, box: ParameterBox, age: float) -> None:
        """L of a hold: the arm's own inertia at the law's pose, a little less ("Damping by the arm's own inertia")."""
        a = self.assume
        h, lower = a.hold_max, np.square(self.root)
        moved = max(3.0 * h, age + h) * a.velocity + a.position_error + h * a.velocity_error
        # |z^T (H - H') z| <= 2 |z^T C(moved) z|, where one of both is above inertia_lower.
        gain = self.gain(torque_sensitivity(self.kin, self.norms, moved, 0.0 * moved, 0.0 * moved).qd_a)
        stretch = 1.0 / (1.0 - 2.0 * gain) if gain < 0.25 else np.inf
        rotor = box.lower[box.layout.rotor_inertia]
        if len(self.norms.kappa) == 0 and np.all(rotor > 0.0):
            # H = M + R, R the rotors: d |z|_M <= growth |z|_R, and 2 |z|_M |z|_R <= z^T H z.
            stretch = min(stretch, float(np.exp(inertia_growth(self.norms, rotor) @ moved)))
        self.stretch = stretch = stretch * _ROUND
        # What rotors add is not negative: H >= M.
        self.in_mass = bool(np.all(rotor_floor(self.kin, box) >= 0.0))
        if not np.isfinite(stretch):
            self.kappa = own  # no bound is found; K_d, which is zero, must not be what says so
            return
        self.mu, self.mu_d, self.kappa = stretch**2, own * stretch**3, own / stretch
        self.c_d, self.e_d = own, 2.0 * own * (stretch**3 - 1.0)
        self.swing = self.mu_d * self.e_d
        self.across = stretch * float(np.sqrt(np.max(a.inertia_upper / lower)))
        self.root, self.largest = self.root / stretch, np.sqrt(a.inertia_upper)

    def torque_norm(self, x: FloatArray) -> float:
        """Of torques bounded by x (n,)."""
        return _length(x / self.root)

    def motion_norm(self, x: FloatArray) -> float:
        """Of velocities bounded by x (n,)."""
        return _length(x * self.largest)

    def gain(self, matrix: FloatArray) -> float:
        """Largest |M x| over |x| <= 1 for an M (n, n) bounded entrywise by ``matrix`` >= 0."""
        if not matrix.any():  # no motors on moving links
            return 0.0
        return float(np.linalg.norm(matrix / self.root[:, None] / self.root[None, :], 2))

    def motion_bounds(self, nu: float) -> MotionBounds:
        """For |r| <= nu, measured values included; the last answer is kept: every step of the proof asks for it."""
        if self._seen is None or self._seen[0] != nu:
            self._seen = nu, self._motion_bounds(nu)
        return self._seen[1]

    def _motion_bounds(self, nu: float) -> MotionBounds:
        a, rho = self.assume, nu / self.root
        error_rate = 2.0 * rho
        rate = a.acceleration + self.K_r * error_rate
        noise = self.K_r * a.position_error
        sens = torque_sensitivity(
            self.kin,
            self.norms,
            a.velocity + a.velocity_error,
            a.velocity + rho + noise,
            rate + self.K_r * (a.velocity_error + noise),
        )
        # Step 11: K_r e as a motion.
        size = nu * (1.0 + math.sqrt(1.0 + math.log(float(np.max(self.K_r) / np.min(self.K_r))) / 2.718)) * _ROUND
        return MotionBounds(
            error_rate,
            size,
            rate,
            self._change(sens.q, sens.q_in_mass),
            self._change(sens.qd, sens.qd_in_mass),
            self._change(sens.qd_a, sens.qd_a_in_mass),
        )

    def _change(self, entries: FloatArray, in_mass: InMass) -> Change:
        gain = self.gain(entries)
        if not self.in_mass:
            return Change(entries, None, gain)
        rows = float(np.linalg.norm(in_mass.rows / self.root, 2))
        return Change(entries, in_mass, min(gain, self.gain(in_mass.entries) + self.stretch * rows))

    def changed(self, by: Change, x: FloatArray, errors: FloatArray | None = None, size: float = 0.0) -> float:
        """Of the torque whose state changes by x (n,), and by errors: (n,) at most, and ``size`` as a motion."""
        if errors is not None:
            return min(self.changed(by, x + errors), self.changed(by, x) + by.gain * size)
        norm = self.torque_norm(by.entries @ x)
        if by.in_mass is None:
            return norm
        return min(norm, self.torque_norm(by.in_mass.entries @ x) + self.stretch * _length(by.in_mass.rows @ x))

    def change(self, nu: float, speed: float, age_max: float, lead: float) -> RegressorChange:
        """Step 6, for |r| <= nu, |dr| <= ``speed`` and ages up to ``age_max``."""
        desired, by_q, steady = (
            self.assume.acceleration,
            self.motion_bounds(nu).q,
            self._steady_change(nu, age_max, lead),
        )
        # q_p = q_m + lead qd_m: what it is off at age a is (a - lead) qd, the curvature, and the errors.
        bend, bent = 0.5 * age_max, steady.errors + speed / self.root
        aged = self.changed(by_q, bend * desired, bend * bent, bend * (steady.size + speed))
        aged += steady.rates
        aged += steady.viscous
        rows = by_q.entries @ (bend * (desired + bent)) + steady.rows
        aged = min(aged, self.torque_norm(rows + steady.viscous_rows)) + self.mu * self.motion_norm(self.assume.jerk)
        aged += steady.remembered
        by_r = self.motion_bounds(nu).qd.gain + self.mu * self.across * self.k_spread
        return RegressorChange(steady.moved, aged, steady.fixed, by_r)

    def _steady_change(self, nu: float, age_max: float, lead: float) -> SteadyChange:
        """The last answer is kept: one bound of |dr| after the other is tried with it."""
        asked = nu, age_max, lead
        if self._steady is None or self._steady[0] != asked:
            self._steady = asked, self._computed_steady_change(*asked)
        return self._steady[1]

    def _computed_steady_change(self, nu: float, age_max: float, lead: float) -> SteadyChange:
        a, norm = self.assume, self.torque_norm
        error_rate, error_size, _, by_q, by_qd, by_qd_a = self.motion_bounds(nu)
        k_max = float(np.max(self.K_r))
        # |d qd_a / dt|, and qdd, are what is desired and the errors' part.
        desired, errors, size = a.acceleration, self.K_r * error_rate, k_max * error_size
        whole = desired + errors
        off, misplaced = self.K_r * a.position_error, a.position_error + lead * a.velocity_error
        fixed = self.changed(by_q, misplaced) + self.changed(by_qd, a.velocity_error) + self.changed(by_qd_a, off)
        fixed += norm(self.viscous * off) + self._friction_step(age_max, off, desired, errors, size)
        rows = by_q.entries @ misplaced + by_qd.entries @ a.velocity_error + by_qd_a.entries @ off + self.viscous * off
        fixed = min(fixed, norm(rows + self._most_of_friction(age_max, off, whole)))
        fixed += self.mu * k_max * k_max * self.motion_norm(a.position_error)
        return SteadyChange(
            errors,
            size,
            self.changed(by_qd, desired, errors, size) + self.changed(by_qd_a, desired, errors, size),
            self._diagonal(self.viscous, desired, errors, size),
            (by_qd.entries + by_qd_a.entries) @ whole,
            self.viscous * whole,
            self.mu * self.across * k_max * k_max * error_size,
            self.changed(by_q, a.velocity),
            fixed,
        )

    def _diagonal(self, slope: FloatArray, x: FloatArray, errors: FloatArray, size: float) -> float:
        """Of torques ``slope (x + errors)``, joint by joint; or the errors' part by their ``size`` as a motion."""
        apart = self.torque_norm(slope * x) + float(np.max(slope / self.root**2)) * size
        return min(self.torque_norm(slope * (x + errors)), apart)

    def _friction_step(
        self, age: float, off: FloatArray, desired: FloatArray, errors: FloatArray, size: float
    ) -> float:
        """Of what Coulomb friction at qd_a may have changed by within ``age``."""
        most = self.torque_norm(self._most_of_friction(age, off, desired + errors))
        if not self.transition > 0.0:
            return most
        return min(most, self._diagonal(self.coulomb / self.transition, age * desired + off, age * errors, age * size))

    def _most_of_friction(self, age: float, off: FloatArray, rate: FloatArray) -> FloatArray:
        """The same, joint by joint, N m, where qd_a changes by ``rate`` at most, rad/s^2."""
        if not self.transition > 0.0:
            return 2.0 * self.coulomb
        return np.asarray(self.coulomb * np.minimum(2.0, (age * rate + off) / self.transition))

    def crude(self, nu: float, age: float, lead: float) -> tuple[float, float, RegressorChange] | None:
        """R1, Omega and the change for commands in force up to ``age``; None if R1 cannot be bounded (step 5)."""
        S = self.assume.uncertainty * self.stretch
        if not np.isfinite(self.stretch):
            return None
        coriolis = self.motion_bounds(nu).qd_a.gain * nu
        friction = float(np.max(self.viscous / self.root**2)) * nu + 2.0 * self.torque_norm(self.coulomb)
        R1 = 0.0
        # The change needs a bound of |dr|, which needs R1: grow until it covers itself.
        for _ in range(60):
            c = self.change(nu, 2.0 * S + R1, age, lead)
            by_r = c.by_r + self.mu * self.k
            if age * by_r >= 1.0:
                return None
            omega = c.moved * max(lead, age - lead) + c.aged * age + c.fixed
            omega += self.actuator + coriolis + friction
            own = self.mu_d * (nu + self.eta)
            found = (own + omega + by_r * (self.eta + 2.0 * age * S)) / (1.0 - age * by_r)
            if not found < _ABSURD:
                return None
            if found <= R1:
                return R1, omega + by_r * (self.eta + age * (2.0 * S + R1)), c
            R1 = found * (1.0 + 1e-6)
        return None

    def power_loss(self, nu: float, robust_gain: float, lead: float) -> PowerLoss:
        """D for ``V <= nu^2 / 2``. ``nu``: sqrt(2 V_max), sqrt(J); ``lead``: s."""
        # S and Z of step 4 in units of L, and c in the same.
        h, d, S = self.assume.hold_max, self.assume.delay_max, self.assume.uncertainty * self.stretch
        c, k, mu_d, c_d, e_d, eta = robust_gain / self.stretch**2, self.k, self.mu_d, self.c_d, self.e_d, self.eta
        found = self.crude(nu, h, lead)
        y = c * h * (1.0 - d * c_d) - 0.5 * (h - d)
        if found is None or y <= 0.0 or d * c_d >= 1.0:
            return infinite(len(self.K_r))
        R1, omega, change = found
        age, own = 0.5 * (h + d), 0.5 * h
        m1, m2 = eta + h * (2.0 * S + R1), eta + 2.0 * h * (2.0 * S + R1)
        turning = 2.0 * self.motion_bounds(nu).qd_a.gain * h  # |H(t) - H(s)| L^-1
        # Coefficients of the age a, of the own age a - d_k, and of both times U (steps 7 to 9).
        by_age_U = omega + e_d * (nu + eta)
        by_own_U = e_d * nu + (c_d + k) * m1 + nu * change.by_r
        by_age = nu * (mu_d + k) * omega + k * turning * nu * (2.0 * S + R1)
        by_age += nu * change.aged + nu * change.by_r * R1
        lemma = c * h * S * S / 4.0
        by_own = k * lemma + mu_d * (mu_d + k) * nu * m1
        previous = lemma + 2.0 * S * m2  # r^T u of the command before
        delay = min(mu_d * nu * 2.0 * S, c_d * previous + e_d * nu * 2.0 * S)
        delay += k * min(nu * 2.0 * S, previous) + mu_d * (mu_d + k) * nu * m2 + nu * change.by_r * 2.0 * S
        delay += self.swing * nu * nu  # the damping of the command before was that of another pose
        X = eta + 2.0 * S * d + d * c_d * (eta + m1)
        # own <= (h - d)/2 goes with 2 S d (step 7); elsewhere own <= h/2.
        L = c * h * S + X + by_age_U * age + (e_d * nu + (c_d + k) * m1) * own + nu * change.by_r * 0.5 * (h - d)
        moved = max(
            _mean_distance(x, z, lead) * change.moved + 0.5 * (x + z) * change.aged
            for x, z in ((0.0, 0.0), (0.0, h), (d, d), (d, h))
        )
        noise = eta * nu * (mu_d + k * self.mu + change.by_r)
        growth = h * (by_age + by_own + 2.0 * S * (by_age_U + by_own_U) + 4.0 * S * S)
        excess = nu * change.moved * h * max(lead, h - lead) / 4.0
        parts = {
            "robust": L * L / (4.0 * y),
            "delay": d * delay,
            "damping": by_age * age - nu * change.aged * age + by_own * own + noise,
            "change": nu * (moved + change.fixed),
            "actuator": nu * self.actuator,
            "sticking": float(np.sum(self.coulomb)) * self.transition,
            "weighting": 2.0 * self.kappa * h * growth / 8.0 * float(np.exp(2.0 * self.kappa * h)),
            "between": 4.0 * self.kappa * excess,
        }
        qdd = _ROUND * (self.motion_bounds(nu).rate + (2.0 * S + R1) / self.root)
        return PowerLoss(_ROUND * sum(parts.values()), _ROUND * excess, qdd, parts)


def _length(x: FloatArray) -> float:
    """Euclidean, as ``numpy.linalg.norm`` has it, in a fifth of its time."""
    return math.sqrt(x.dot(x))


def _mean_distance(x: float, z: float, lead: float) -> float:
    """Mean of |a - lead| over x <= a <= z."""
    if z - x < 1e-15:
        return abs(x - lead)
    if lead <= x or lead >= z:
        return abs(0.5 * (x + z) - lead)
    return float(((lead - x) ** 2 + (z - lead) ** 2) / (2.0 * (z - x)))
