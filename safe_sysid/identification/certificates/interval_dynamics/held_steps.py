r"""Checker's bound of the acceleration on a step during which a motor holds its torque, rounded upward.

On a step ``d/dt (H qd) = tau - Fv qd - Fc sign - beta + f``, H with rotor inertias, f the rate of the rigid part. Write
``qdd = a + b``: b is what the unknown part of tau does, and Coulomb friction of a sign that is not known, ``H b =
delta``, a the rest. Then

- ``|H b| <= t``, t half the width of the torque's interval, plus Fc where no sign is known, at all times;
- ``H adot = d/dt (f - Fv qd) - (d^2/dt^2 (H qd) - H qddd) + Hdot b``, the third term without ``qddd``; all of it is at
  most ``f1 + Fv A + p2``, along (qd, qdd), plus ``p1`` along (qdd, 0), plus ``p1`` at velocities b along (qd, 0). True
  gravity may be larger than the declared one, which makes f1 larger by no more than that.

With ``D = diag(Ia) <= H``: ``b.H b = b.delta`` gives ``b.D b <= |D^-1/2 delta|^2`` and so ``|b_j| <= |D^-1/2 t| /
sqrt(Ia_j)``; adot likewise. qdd is within half a step times the bound of adot, and twice that of b, of its mean. The
mean velocity is that of its ends but for ``H^2/12`` times the bound of adot and ``H/4`` times that of b: the trapezoid
rule, for slopes that have a Lipschitz constant and for such that are bounded.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from safe_sysid.core.arrays import BoolArray, FloatArray
from safe_sysid.identification.certificates.interval_dynamics.arrays import IntervalArray, inflate
from safe_sysid.identification.certificates.interval_dynamics.link_bounds import LinkBounds

__all__ = ["HeldTorque"]

_ROUNDS = 2


@dataclass(frozen=True, eq=False)
class HeldTorque:
    """An arm without rotors on moving links and without prismatic joints, whose motors hold a torque for each step.

    Attributes:
        links: bounds of its dynamics.
        coulomb, viscous: (n,) largest friction.
        rotor: (n,) least rotor inertia, > 0.
        gravity_relative: by how much true gravity may be larger than the declared one.
    """

    links: LinkBounds
    coulomb: FloatArray
    viscous: FloatArray
    rotor: FloatArray
    gravity_relative: float

    def _over(self, force: FloatArray) -> FloatArray:
        """(S, n) bounds of ``H^-1 r`` for ``|r| <= force``."""
        return inflate(np.sqrt((force * force / self.rotor).sum(axis=1, keepdims=True) / self.rotor))

    def lower(
        self,
        a: FloatArray,
        speed: FloatArray,
        longest: FloatArray,
        torque: IntervalArray,
        sign: FloatArray,
        change: FloatArray,
        known: BoolArray,
    ) -> tuple[FloatArray, FloatArray]:
        """(S, n) bounds of the acceleration, no larger than a, and of how far mean velocities are from their chords.

        Args:
            a: (S, n) bounds that hold.
            speed: (S, n) of the mean velocity.
            longest: (S, 1) duration at most, s.
            torque: (S, n).
            sign: (S, n) of the velocity, 0 where it may be either.
            change: (S, n) bound of the mean acceleration.
            known: (S,) where the log agrees with what is declared.
        """
        out, chord = np.array(a), np.full_like(a, np.inf)
        loose = self._over(inflate(0.5 * (torque.hi - torque.lo) + np.where(sign == 0.0, self.coulomb, 0.0)))
        none = np.zeros_like(out)
        for _ in range(_ROUNDS):
            v = inflate(speed + 0.5 * out * longest)
            along = self.links.over(v, v, out)
            force = inflate(along.f1 * (1.0 + self.gravity_relative)) + self.viscous * out + along.p2
            force = force + self.links.over(v, out, none).p1 + self.links.over(loose, v, none).p1
            jerk = self._over(inflate(force))
            bound = inflate(change + 0.5 * longest * jerk + 2.0 * loose)
            out = np.where(known[:, None], np.minimum(out, bound), out)
            bound = inflate(longest * (longest * jerk / 12.0 + 0.25 * loose))
            chord = np.where(known[:, None], np.minimum(chord, bound), chord)
        return out, chord
