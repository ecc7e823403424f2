"""True motion of a trial by forward dynamics, with torques held as by a digital controller."""

from __future__ import annotations

import numpy as np

from safe_sysid.core.arrays import FloatArray
from safe_sysid.studies.campaign.cases.arms import TrueArm
from safe_sysid.studies.campaign.cases.motions import TrueMotion
from safe_sysid.studies.campaign.cases.plant import TrueRecord
from safe_sysid.studies.campaign.cases.rotor_bodies import RotorBodies

__all__ = ["simulated_record"]


def simulated_record(
    arm: TrueArm,
    theta: FloatArray,
    motion: TrueMotion,
    times: FloatArray,
    switches: FloatArray,
    transition: float,
    chatter: FloatArray,
    gravity: FloatArray,
    longest: float,
) -> TrueRecord:
    """A motion tracked by computed torque that is held between switches: ABA and Runge-Kutta, as a robot would move.

    Args:
        theta: (14 n,) true parameters.
        times: (N+1,) of the samples, s.
        switches: (N,) when the torque that is reported with sample k + 1 comes into force, increasing, s.
        transition: velocity over which the Coulomb torque grows to Fc, rad/s, > 0.
        chatter: (N, n) torque added to the command, N m.
        gravity: (3,) true gravity, m/s^2.
        longest: integration step, s.
    """
    n, count = arm.n, len(switches)
    fc, fv, _, beta = arm.layout.by_term(theta)
    bodies = RotorBodies(arm.kinematics, theta, gravity)

    def friction(v: FloatArray) -> FloatArray:
        return fc * np.clip(v / transition, -1.0, 1.0) + fv * v + beta

    def acceleration(q: FloatArray, v: FloatArray, torque: FloatArray) -> FloatArray:
        return bodies.acceleration(q, v, torque - friction(v))

    def command(q: FloatArray, v: FloatArray, at: float) -> FloatArray:
        aim_q, aim_v, aim_a = (x[0] for x in motion.state(np.array([at])))
        wanted = aim_a + 40.0 * (aim_v - v) + 400.0 * (aim_q - q)
        return bodies.torque(q, v, wanted) + friction(v)

    q, v = np.zeros((count + 1, n)), np.zeros((count + 1, n))
    lost, largest = np.zeros((count + 1, n)), np.zeros(n)
    reported = np.zeros((count + 1, n))
    start = min(float(times[0]), float(switches[0]))
    x, y = (state[0] for state in motion.state(np.array([start]))[:2])
    now = command(x, y, start)
    events = sorted(
        [(float(t), 1, k) for k, t in enumerate(times)] + [(float(t), 0, k) for k, t in enumerate(switches)]
    )
    at, sample = start, 0
    for event, kind, k in events:
        steps = max(1, int(np.ceil((event - at) / longest))) if event > at else 0
        h = (event - at) / max(steps, 1)
        for _ in range(steps):
            k1 = acceleration(x, y, now)
            y2 = y + 0.5 * h * k1
            k2 = acceleration(x + 0.5 * h * y, y2, now)
            y3 = y + 0.5 * h * k2
            k3 = acceleration(x + 0.5 * h * y2, y3, now)
            y4 = y + h * k3
            k4 = acceleration(x + h * y3, y4, now)
            lost[sample] += h / 6.0 * (friction(y) + 2.0 * friction(y2) + 2.0 * friction(y3) + friction(y4))
            x = x + h / 6.0 * (y + 2.0 * y2 + 2.0 * y3 + y4)
            y = y + h / 6.0 * (k1 + 2.0 * k2 + 2.0 * k3 + k4)
            largest = np.maximum(largest, np.abs([k1, k2, k3, k4]).max(axis=0))
        at = event
        if kind:
            q[k], v[k] = x, y
            sample = min(k + 1, count)
        else:
            now = command(x, y, event) + chatter[k]
            reported[k + 1] = now
    periods = np.diff(times)[:, None]
    lost[1:] /= periods
    lost[0] = 0.0
    spin = np.array([bodies.own_momentum(*state) for state in zip(q, v, strict=True)])
    rotor = np.vstack([np.zeros((1, n)), np.diff(spin, axis=0) / periods])
    return TrueRecord(times, q, v, reported - lost - rotor, lost, np.zeros_like(lost), rotor, beta, largest)
