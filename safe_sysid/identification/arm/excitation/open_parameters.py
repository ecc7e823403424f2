"""Which base parameters a log leaves open, and motions that would tell them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from safe_sysid.core.arrays import FloatArray
from safe_sysid.identification.arm.estimates.estimate import ArmEstimate

__all__ = ["Unexcited", "unexcited"]

#: Share of the torques that motions of this arm need, above which what a parameter leaves open is worth a word.
_OPEN = 0.1
_LOOKS = 12  # configurations in which a motion is tried


@dataclass(frozen=True)
class Unexcited:
    """A base parameter that the log leaves open."""

    index: int
    torque: float  #: what it leaves open at other motions, root mean square, N m
    motion: str


def unexcited(
    found: ArmEstimate,
    regressor: Callable[[FloatArray, FloatArray, FloatArray], FloatArray],
    joint_names: Sequence[str],
    speed: FloatArray,
    positions: FloatArray,
) -> list[Unexcited]:
    """Find the base parameters whose standard errors matter for other motions.

    Args:
        regressor: of (N, n) positions, velocities and accelerations of the motors' joints, (N, n, P).
        speed: (n,) rad/s that the joints may have.
        positions: (N, n) rad (m) at which motions are tried.
    """
    n, count, rng = len(joint_names), len(positions), np.random.default_rng(0)
    qd, qdd = rng.uniform(-1.0, 1.0, (2, count, n)) * speed
    columns = regressor(positions, qd, 4.0 * qdd).reshape(count * n, -1)
    usual = float(np.sqrt(np.mean((columns @ found.theta) ** 2)))
    columns = columns[:, found.base.independent]
    size = np.sqrt(np.mean(columns**2, axis=0))
    left = np.where(np.isfinite(found.standard_errors), found.standard_errors * size, np.inf)
    out = []
    for i in np.flatnonzero(left > _OPEN * usual).tolist():
        direction = np.zeros(len(found.base))
        direction[i] = 1.0
        if np.isfinite(found.standard_errors[i]):
            direction = found.covariance[i] / found.standard_errors[i] ** 2
        error = found.standard_errors[i]
        least = 0.0 if not np.isfinite(error) else 0.01 * usual / error
        few = positions[np.sort(rng.choice(count, _LOOKS))]
        motion = _motion(direction, found, regressor, joint_names, speed, few, least)
        out.append(Unexcited(i, float(left[i]), motion))
    return out


def _motion(
    direction: FloatArray,
    found: ArmEstimate,
    regressor: Callable[[FloatArray, FloatArray, FloatArray], FloatArray],
    joint_names: Sequence[str],
    speed: FloatArray,
    q: FloatArray,
    least: float,
) -> str:
    """The simple motion whose torques depend most on a combination of base parameters, if more than ``least``."""
    n = len(joint_names)
    best, words = least, "none: what is not known of it hardly changes any torque, alone it does not matter"
    still = np.zeros(n)
    tries: list[tuple[str, FloatArray, FloatArray]] = [("hold still at many poses", still, still)]
    for j, name in enumerate(joint_names):
        one = np.zeros(n)
        one[j] = speed[j]
        tries += [
            (f"move {name} slowly and steadily, both ways", 0.1 * one, still),
            (f"move {name} fast and steadily", one, still),
            (f"reverse {name} hard", still, 4.0 * one),
        ]
        for k in range(j):
            two = one.copy()
            two[k] = speed[k]
            tries.append((f"move {joint_names[k]} and {name} fast at once", two, still))
    for text, qd, qdd in tries:
        rows = regressor(q, np.tile(qd, (len(q), 1)), np.tile(qdd, (len(q), 1))).reshape(len(q) * n, -1)
        told = float(np.sqrt(np.mean((rows[:, found.base.independent] @ direction) ** 2)))
        # Simple motions are named first, and kept unless another tells clearly more.
        if told > 1.3 * best:
            best, words = told, text
    return words
