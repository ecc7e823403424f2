r"""PSO Table IV: does a motion that conditions the torque regressor well condition the momentum regressor well, too?

Random Fourier series, ``q_j(t) = q0_j + sum_l (a_jl sin(l w t) - b_jl cos(l w t)) / (l w)`` [PSO's reference 5], are
sampled for 10 s at 1 ms. The paper does not say how its coefficients are drawn; here they are uniform.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from safe_sysid.core.arrays import FloatArray
from safe_sysid.planning.costs.observation import MomentumObservation, condition_number, torque_observation
from safe_sysid.robot.model import RobotModel

__all__ = ["DRAWS", "TABLE_FOUR", "Correlations", "FourierDraw", "motion_conditions"]


#: PSO Table IV: forward integration horizon h (samples of 1 ms) to Pearson's correlation of cond(W) and cond(Y).
TABLE_FOUR = {1: 1.0000, 5: 1.0000, 10: 0.9994, 20: 0.9934, 50: 0.9540, 100: 0.6709, 200: 0.3537, 500: 0.2789}


@dataclass(frozen=True)
class FourierDraw:
    """How random Fourier motions are drawn."""

    duration: float = 10.0  #: s
    period: float = 1e-3  #: s, of the samples
    base: float = 10.0  #: s, period of the first harmonic
    harmonics: int = 5  #: how many
    coefficient: float = 0.3  #: rad/s, a and b are uniform in its negative to it

    def motion(
        self, centre: FloatArray, rng: np.random.Generator
    ) -> tuple[FloatArray, FloatArray, FloatArray, FloatArray]:
        """Times (N,) s and q, qd, qdd, each (N, n), of one draw about a centre (n,), rad."""
        steps = round(self.duration / self.period)
        times = np.asarray(np.arange(steps + 1) * self.period, dtype=np.float64)
        harmonic = np.arange(1, self.harmonics + 1, dtype=np.float64)
        w = np.asarray(2.0 * np.pi / self.base * harmonic, dtype=np.float64)
        a, b = rng.uniform(-self.coefficient, self.coefficient, (2, self.harmonics, len(centre)))
        sine, cosine = np.sin(np.outer(times, w)), np.cos(np.outer(times, w))
        q: FloatArray = centre + (sine / w) @ a - (cosine / w) @ b
        qd: FloatArray = cosine @ a + sine @ b
        qdd: FloatArray = (-sine * w) @ a + (cosine * w) @ b
        return times, q, qd, qdd


#: Slow motions, as an arm is usually excited, and fast ones, whose shortest period is no longer far from the windows.
DRAWS = {"slow": FourierDraw(), "fast": FourierDraw(base=1.0, harmonics=10, coefficient=3.0)}


@dataclass(frozen=True, eq=False)
class Correlations:
    """Condition numbers of T motions, and what they have in common."""

    torque: FloatArray  #: (T,) cond(W)
    momentum: FloatArray  #: (T, H) cond(Y), W_c integrated by left rectangles as in the paper
    trapezoid: FloatArray  #: (T, H) the same by trapezoids: what is left when the error of integration is gone

    def pearson(self, rule: str = "euler") -> FloatArray:
        """(H,) correlation of cond(W) and cond(Y)."""
        other = self.momentum if rule == "euler" else self.trapezoid
        return np.array([np.corrcoef(self.torque, column)[0, 1] for column in other.T])

    def spearman(self, rule: str = "euler") -> FloatArray:
        """(H,) the same of ranks: what matters for choosing a motion, and a few wild ones do not decide it."""
        other = self.momentum if rule == "euler" else self.trapezoid
        ranks = np.argsort(np.argsort(self.torque))
        return np.array([np.corrcoef(ranks, np.argsort(np.argsort(column)))[0, 1] for column in other.T])


def motion_conditions(
    model: RobotModel,
    seed: int,
    index: int,
    horizons: Sequence[int] = tuple(TABLE_FOUR),
    draw: FourierDraw | None = None,
) -> tuple[float, FloatArray, FloatArray]:
    """Condition numbers of one random motion about the arm's home.

    ``draw``: how motions are drawn; None for the default.
    Returns cond(W), and cond(Y) (H,) by left rectangles and (H,) by trapezoids.
    """
    draw = FourierDraw() if draw is None else draw
    kin, centre = model.kinematics, np.array(model.settings.home, float)
    times, q, qd, qdd = draw.motion(centre, np.random.default_rng([seed, index]))
    observed = MomentumObservation(kin, times, q, qd)
    euler = np.array([condition_number(observed.rows(h)) for h in horizons])
    trapezoid = np.array([condition_number(observed.rows(h, "trapezoid")) for h in horizons])
    return condition_number(torque_observation(kin, q, qd, qdd)), euler, trapezoid
