r"""The same quantities in 40 digits: decides what floats cannot, and finds an enclosure that forgot its rounding.

Newton-Euler in classical accelerations, polarised; nothing is shared with the enclosures or with the regressors that
the controller uses. Floats of the configuration are taken as they are.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import mpmath  # type: ignore[import-untyped]
import numpy as np
from numpy.typing import NDArray

from safe_sysid.core.arrays import FloatArray
from safe_sysid.core.layout import COULOMB, OFFSET, ROTOR, VISCOUS, ParameterLayout
from safe_sysid.robot.model import Kinematics
from safe_sysid.studies.campaign.reachability.tube import Tube
from safe_sysid.trajectories.quintic import QuinticTrajectory

__all__ = [
    "ExactStates",
    "digits",
    "exact",
    "exact_desired",
    "exact_poses",
    "exact_regressor",
    "exact_states",
    "floats",
    "number",
    "root",
]

#: Arrays of mpmath numbers.
Exact = NDArray[np.object_]
_DIGITS = 40
_to = np.frompyfunc(mpmath.mpf, 1, 1)


def digits() -> Any:
    """Context in which numbers have 40 digits."""
    return mpmath.workdps(_DIGITS)


def number(value: float) -> Any:
    """A float as an exact number."""
    return mpmath.mpf(float(value))


def root(value: Any) -> Any:
    """Square root of an exact number."""
    return mpmath.sqrt(value)


def exact(values: Any) -> Exact:
    """Floats as exact numbers."""
    return np.asarray(_to(np.asarray(values, dtype=float)), dtype=object)


def floats(values: Exact) -> FloatArray:
    """Rounded to the nearest floats."""
    return np.asarray(values, dtype=float)


class ExactStates(NamedTuple):
    """As :class:`~safe_sysid.studies.campaign.reachability.tube.States`, one state (n,)."""

    q: Exact
    qd: Exact
    acceleration: Exact
    jerk: Exact
    q_m: Exact
    qd_m: Exact
    qd_a: Exact
    qdd_a: Exact
    r_m: Exact


def exact_desired(trajectory: QuinticTrajectory, time: float) -> Exact:
    """(4, n) position .. jerk at one time."""
    with digits():
        if time >= trajectory.duration:
            out = exact(np.zeros((4, trajectory.n)))
            out[0] = exact(trajectory.knots[-1, 0])
            return out
        times = trajectory.times
        segment = int(np.clip(np.searchsorted(times, time, side="right") - 1, 0, len(times) - 2))
        local = mpmath.mpf(time) - mpmath.mpf(float(times[segment]))
        c = exact(trajectory.coefficients[segment])
        out = np.empty((4, trajectory.n), dtype=object)
        for order in range(4):
            value = c[:, -1]
            for i in range(c.shape[1] - 2, -1, -1):
                value = value * local + c[:, i]
            out[order] = value
            c = c[:, 1:] * np.arange(1, c.shape[1])
        return out


def exact_states(tube: Tube, time: float, x: FloatArray) -> ExactStates:
    """The state for symbols (size,), all of them floats taken exactly."""
    n = tube.n
    with digits():
        d = exact_desired(tube.trajectory, time)
        e, r, dq, dv = (
            exact(x[1 + i * n : 1 + (i + 1) * n]) * exact(axes)
            for i, axes in enumerate((tube.e, tube.r, tube.dq, tube.dv))
        )
        k = exact(tube.k_r)
        de = r - k * e
        e_m, de_m = e - dq, de - dv
        return ExactStates(
            d[0] - e,
            d[1] - de,
            d[2],
            d[3],
            d[0] - e + dq,
            d[1] - de + dv,
            d[1] + k * e_m,
            d[2] + k * de_m + number(tube.own_damping) * (de_m + k * e_m),
            de_m + k * e_m,
        )


def _cross(a: Exact, b: Exact) -> Exact:
    return np.array([a[1] * b[2] - a[2] * b[1], a[2] * b[0] - a[0] * b[2], a[0] * b[1] - a[1] * b[0]], dtype=object)


def _joint_rotations(kin: Kinematics, q: Exact) -> list[Exact]:
    out = []
    identity = exact(np.eye(3))
    for j in range(len(kin.axis)):
        a = exact(kin.axis[j])
        c, s = mpmath.cos(q[j]), mpmath.sin(q[j])
        skew = np.array([[0, -a[2], a[1]], [a[2], 0, -a[0]], [-a[1], a[0], 0]], dtype=object)
        turn = c * identity + s * skew + (1 - c) * np.outer(a, a)
        out.append(exact(kin.rotation[j]) @ turn)
    return out


def exact_poses(kin: Kinematics, q: Exact, base: int = 0) -> tuple[list[Exact], list[Exact]]:
    """Rotations and origins of the frames base .. n in frame ``base`` (0 the world, j + 1 joint frame j).

    ``q``: (n,) exact; ``base``: index of the frame of reference.
    """
    with digits():
        turns = _joint_rotations(kin, q)
        rotations, origins = [exact(np.eye(3))], [exact(np.zeros(3))]
        for j in range(base, len(turns)):
            origins.append(origins[-1] + rotations[-1] @ exact(kin.translation[j]))
            rotations.append(rotations[-1] @ turns[j])
        return rotations, origins


def exact_regressor(kin: Kinematics, states: ExactStates, transition: float) -> Exact:
    """W_s (n, 14 n) at measured states."""
    n = len(kin.axis)
    with digits():
        turns = _joint_rotations(kin, states.q_m)
        zero = exact(np.zeros(3))
        w, u, alpha, acc = zero, zero, zero, -exact(kin.gravity)
        layout = ParameterLayout(n)
        out = exact(np.zeros((n, layout.size)))
        kept = []
        half = mpmath.mpf("0.5")
        for j in range(n):
            t, a, back = exact(kin.translation[j]), exact(kin.axis[j]), turns[j].T
            carried = acc + _cross(alpha, t) + half * (_cross(w, _cross(u, t)) + _cross(u, _cross(w, t)))
            w, u, alpha, acc = back @ w, back @ u, back @ alpha, back @ carried
            alpha = alpha + states.qdd_a[j] * a + half * (_cross(w, a) * states.qd_a[j] + _cross(u, a) * states.qd_m[j])
            w, u = w + states.qd_m[j] * a, u + states.qd_a[j] * a
            kept.append((w, u, alpha, acc))
        for link in range(n):
            force, moment = _columns(*kept[link], half)
            for j in range(link, -1, -1):
                out[j, layout.link(link)] = exact(kin.axis[j]) @ moment
                if j > 0:
                    force, moment = turns[j] @ force, turns[j] @ moment
                    t = exact(kin.translation[j])
                    for c in range(4):
                        moment[:, c] = moment[:, c] + _cross(t, force[:, c])
        for j in range(n):
            out[j, COULOMB * n + j] = _friction_sign(states.qd_a[j], transition)
            out[j, VISCOUS * n + j], out[j, ROTOR * n + j] = states.qd_a[j], states.qdd_a[j]
            out[j, OFFSET * n + j] = mpmath.mpf(1)
        for j, carrier, gear, axis in zip(*kin.motors, strict=True):
            # Momentum gear qd z of a rotor in its carrier, polarised from the moment that turning it takes.
            w, u, alpha, _ = kept[carrier]
            z, ratio = exact(axis), number(float(gear))
            rates = states.qd_m[j], states.qd_a[j]
            both = _cross(w + u, z) * (rates[0] + rates[1])
            gyroscopic = half * (both - _cross(w, z) * rates[0] - _cross(u, z) * rates[1])
            moment = ratio * (states.qdd_a[j] * z + gyroscopic)
            out[j, ROTOR * n + j] += ratio * (z @ alpha)
            for i in range(carrier, -1, -1):
                out[i, ROTOR * n + j] += exact(kin.axis[i]) @ moment
                moment = turns[i] @ moment
        return out


def _columns(w: Exact, u: Exact, alpha: Exact, acc: Exact, half: Any) -> tuple[Exact, Exact]:
    """Force (3, 4) of m, h and moment (3, 10) of all parameters of a link, about its frame's origin."""
    unit = exact(np.eye(3))
    force, moment = exact(np.zeros((3, 4))), exact(np.zeros((3, 10)))
    force[:, 0] = acc
    for h in range(3):
        e = unit[h]
        force[:, 1 + h] = _cross(alpha, e) + half * (_cross(w, _cross(u, e)) + _cross(u, _cross(w, e)))
        moment[:, 1 + h] = _cross(e, acc)
    for column, (a, b) in enumerate(((0, 0), (0, 1), (1, 1), (0, 2), (1, 2), (2, 2)), start=4):
        inertia = exact(np.zeros((3, 3)))
        inertia[a, b] = inertia[b, a] = mpmath.mpf(1)
        moment[:, column] = inertia @ alpha + half * (_cross(w, inertia @ u) + _cross(u, inertia @ w))
    return force, moment


def _friction_sign(v: Any, transition: float) -> Any:
    if transition > 0.0:
        return max(mpmath.mpf(-1), min(mpmath.mpf(1), v / mpmath.mpf(transition)))
    return mpmath.sign(v)
