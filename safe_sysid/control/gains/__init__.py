r"""Gain synthesis and the proved tracking bound: ``V = r^T H r / 2`` stays below ``V_max``.

The theorem, its assumptions and its proof are in ``docs/understand/guarantees.md`` (section "Tracking"); the names
here are the names there. Nothing in it is sampled: it holds for every trajectory whose certificate shows the four
hypotheses

- ``|qd| <= velocity``, ``|qdd_d| <= acceleration``, ``|qddd_d| <= jerk`` per joint,
- ``S = | |W_s| dtheta |_* <= uncertainty``, where ``|x|_*^2 = sum_j x_j^2 / inertia_lower_j``,
- ``diag(inertia_lower) <= H <= diag(inertia_upper)`` along the motion,

for parameters in the box, measurement and actuator errors in their bounds, and a command never older than ``hold_max``.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from safe_sysid.core.arrays import FloatArray
from safe_sysid.dynamics.magnitudes import inertia_floor, inertia_share, rotor_ceiling, rotor_floor
from safe_sysid.robot.model import Kinematics
from safe_sysid.robot.parameters import ParameterBox

__all__ = ["ControllerGains", "TrackingAssumptions", "tracking_margins"]


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
        feed_forward: (n,) the most that a feed-forward adds to the law's torque, N m; zeros without one.
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
    feed_forward: FloatArray
    hold_max: float
    delay_max: float


@dataclass(frozen=True, eq=False)
class ControllerGains:
    """Everything that controller and planner share.

    Attributes:
        box: of parameters that the theorem was computed for; it holds for every box inside.
        K_r: (n,) 1/s.
        K_d: (n,) N m s/rad.
        kappa: decay rate: what damps takes at least ``2 kappa V``, 1/s.
        robust_gain: c in ``eps_p = c hold_max b_p``.
        inertia_lower: (n,) H >= diag of it, kg m^2: rotor inertia from below, or declared.
        V_max: J.
        power_loss: that the theorem must dissipate at V_max, W; < 2 kappa V_max.
        r_bound, e_bound, de_bound: (n,) bounds that hold while V <= V_max; rad/s, rad, rad/s.
        acceleration_bound: (n,) bound of |qdd| while V <= V_max, rad/s^2.
        lead: the law's regressor is that of ``q + lead qd``, s.
        V_start: a run may begin below this: V_max less what V may gain between two commands, J.
        own_damping: the law asks for an acceleration of so much times r more: damping by the arm's own inertia, and no
            K_d; 1/s. Zero: K_d damps.
        late_ages: (K,) ages of a command, s, and
        late_rates: (K,) bounds of ``d sqrt(2 V) / dt`` while no command in force is older, sqrt(W/s).
    """

    assumptions: TrackingAssumptions
    box: ParameterBox
    K_r: FloatArray
    K_d: FloatArray
    kappa: float
    robust_gain: float
    inertia_lower: FloatArray
    V_max: float
    power_loss: float
    r_bound: FloatArray
    e_bound: FloatArray
    de_bound: FloatArray
    acceleration_bound: FloatArray
    lead: float = 0.0
    V_start: float = 0.0
    own_damping: float = 0.0
    late_ages: FloatArray = field(default_factory=lambda: np.zeros(0))
    late_rates: FloatArray = field(default_factory=lambda: np.zeros(0))

    @property
    def capacity(self) -> float:
        """Power dissipated at V_max, W."""
        return 2.0 * self.kappa * self.V_max

    def growth_rate(self, age: float, uncertainty: float) -> float:
        """Bound of ``d sqrt(2 V) / dt`` while V <= V_max and no command in force is older, sqrt(W/s).

        Args:
            age: s.
            uncertainty: largest S of these commands, sqrt(W/s).

        Returns:
            Infinite for ages beyond :attr:`late_ages`.
        """
        older = np.flatnonzero(self.late_ages >= age * (1.0 - 1e-9))
        if not older.size:
            return np.inf
        return float(self.late_rates[older[0]]) - 2.0 * (self.assumptions.uncertainty - uncertainty)

    def longest_covered_gap(self, r_upper: FloatArray, uncertainty: float | None = None, oldest: float = 0.0) -> float:
        """How long, from a measurement, its command may stay in force with V <= V_max still proved; s.

        The crude side of the theorem: from a quiet state V cannot grow to its bound in a short time, whatever the
        delay. One more hold is included, so that the theorem goes on from there ("Late commands" in
        docs/understand/guarantees.md). Cheap: for every tick that is late, or for all.

        Args:
            r_upper: (n,) bound of |r| at the measurement: the measured one plus its error, rad/s.
            uncertainty: largest S of the commands in force since the measurement, until then; None: the assumed one.
                sqrt(W/s).
            oldest: age that a command reached which was still in force after the measurement, if that was late, s.

        Returns:
            Longest time from the measurement to the instant at which the next command acts; at least 0. Within
            ``hold_max`` the theorem needs no cover.
        """
        a = self.assumptions
        size = float(np.sqrt(np.sum(a.inertia_upper * np.square(r_upper))))
        less = 0.0 if uncertainty is None else 2.0 * max(a.uncertainty - uncertainty, 0.0)
        room = np.sqrt(2.0 * self.V_start) * (1.0 - 1e-9) - size
        if self.late_ages.size == 0 or not room > 0.0:
            return 0.0
        # S of the hold after the gap is not known yet: the assumed one.
        gaps = np.minimum(self.late_ages, (room - a.hold_max * self.late_rates) / (self.late_rates - less))
        return max(float(np.max(gaps, where=self.late_ages >= oldest, initial=0.0)), 0.0)


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
        q_mid: (M, n) centres of the enclosures of the true positions per time cell, rad.
        q_half: (M, n) their half widths, rad.
        qd_abs: (M, n) upper bounds of the true |qd|, rad/s.
        qdd_d_abs: (M, n) upper bounds of |qdd_d|, rad/s^2.
        jerk_d_abs: (M, n) upper bounds of |qddd_d|, rad/s^3.
        uncertainty: (M,) upper bounds of S.

    Returns:
        "velocity", "acceleration", "jerk": (M, n); "uncertainty", "inertia": (M,); "inertia below" (M,) where the
        rotors alone do not prove ``H >= diag(inertia_lower)``.
    """
    a = gains.assumptions
    spare = a.inertia_upper - rotor_ceiling(kin, box)
    possible = bool(np.all(spare > 0.0))
    share = inertia_share(kin, box, spare, q_mid, q_half) if possible else np.full(len(q_mid), np.inf)
    margins = {
        "velocity": 1.0 - qd_abs / a.velocity,
        "acceleration": 1.0 - qdd_d_abs / a.acceleration,
        "jerk": 1.0 - jerk_d_abs / a.jerk,
        "uncertainty": 1.0 - uncertainty / a.uncertainty,
        "inertia": 1.0 - share,
    }
    if not np.all(rotor_floor(kin, box) >= gains.inertia_lower):
        margins["inertia below"] = inertia_floor(kin, box, gains.inertia_lower, q_mid, q_half) - 1.0
    return margins
