r"""Rigorous magnitude and Lipschitz bounds of the dynamics, over all configurations or near one.

Every point x of link l moves with the joints. If the most distal of joints i, j, .., k = max(i, j, ..), turns, any
derivative of x with respect to them is the vector from its axis to x, turned by cross products with unit axes; if it
slides, the unit vector along it, turned likewise. It is zero if k is beyond the link, or a joint before k slides, or k
slides and is named twice. So in the norm of L2(dm), by Minkowski,

``|| d_i d_j .. x ||_l <= a[l, k] = sqrt(m_l) d[l, k] + sqrt(lambda_max(I_l))``, or ``sqrt(m_l)`` if k slides,

with d[l, k] an upper bound of the distance between axis k and the link's origin, prismatic joints between them anywhere
in their travel. Each factor carries the units of its joints, so sums over joints need no others. Since
``H_ij = sum_l <d_i x, d_j x>`` and ``Gamma_ijk = sum_l <d_i x, d_j d_k x>`` exactly, Cauchy-Schwarz and Leibniz bound
every entry and every derivative without sampling. Physical consistency of the true links is used in two places: the
inner product exists at all, and ``lambda_max(I) <= tr(I) / 2``. Where the box holds what moves as the arm does and
need not exist, ``Kinematics.excess`` says what the true links may have more.

A motor of joint j, ratio 1 / gear, on a moving link adds ``kappa (e_j w^T + w e_j^T)`` to H, ``kappa = Ia_j gear``,
``w_i = z . z_i`` for the turning joints i up to its carrier (:mod:`safe_sysid.dynamics.recursion`). Unit vectors that
are turned by the joints stay unit vectors, so ``|w_i| <= 1`` and so are all its derivatives; what does not turn
against each other has none (:func:`torque_sensitivity`). Gershgorin's rows of it bound H (:func:`rotor_floor`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numba import njit

from safe_sysid.core.arrays import FloatArray
from safe_sysid.core.layout import ParameterLayout
from safe_sysid.dynamics import dynamics_of
from safe_sysid.robot.model import Kinematics, Motors
from safe_sysid.robot.parameters import ParameterBox

__all__ = [
    "InMass",
    "LinkNorms",
    "TorqueSensitivity",
    "inertia_floor",
    "inertia_growth",
    "inertia_share",
    "link_norms",
    "rotor_ceiling",
    "rotor_floor",
    "spin_shares",
    "torque_sensitivity",
]

#: Relative head-room for rounding of the sums below (at most 1e4 operations of 1.2e-16 each, all of one sign).
_ROUND = 1.0 + 1e-11
#: Relative head-room for the regressors' rounding in :func:`inertia_share` (cancelling sums; measured 1e-14).
_REGRESSOR_ROUND = 1e-9
#: Absolute head-room for angles between unit vectors and their cosines, rad (measured 1e-15).
_ANGLE_ROUND = 1e-12


@dataclass(frozen=True)
class LinkNorms:
    """Bounds per link l and joint k, zero for k > l, over a box of parameters.

    Attributes:
        a: (n, n) of ``|| d_k x ||`` in L2(dm), sqrt(kg) m; sqrt(kg) if joint k slides.
        b: (n, n) of ``| int d_k x dm |``, kg m; kg if joint k slides.
        kappa: (M,) of ``|Ia gear|`` of the motors on moving links, kg m^2; kg m if the motor's joint slides.
        shares: (M, n) of :func:`spin_shares`, -1 for joints that slide.
    """

    a: FloatArray
    b: FloatArray
    kappa: FloatArray
    shares: FloatArray


def link_norms(kin: Kinematics, lower: FloatArray, upper: FloatArray) -> LinkNorms:
    """Bounds over all configurations and all physically consistent parameters in the box (each (14 n,)).

    Or of real links that exceed those of the box by at most ``kin.excess``.

    Prismatic joints are in their travel.
    """
    n = len(kin.axis)
    layout = ParameterLayout(n)
    # From frame to frame; convex in the position of a prismatic joint, so longest at an end of its travel.
    ends = np.repeat(kin.translation[:, None, :], 2, axis=1)
    for j in np.flatnonzero(kin.sliding):
        ends[j] += np.outer(kin.travel[j], kin.rotation[j] @ kin.axis[j])
    # Ends that cancel the step's own part are off by some units of the travel.
    room = 1e-12 * np.where(kin.sliding, np.max(np.abs(kin.travel), axis=1), 0.0)[:, None]
    lengths = np.linalg.norm(ends, axis=2) + room
    steps = lengths.max(axis=1)
    # The part along axis k of the step to the next frame does not lie between the axis and the link.
    along = np.array([ends[k + 1] @ kin.axis[k] for k in range(n - 1)] + [np.zeros(2)])
    across = np.sqrt(np.maximum(lengths[1:] ** 2 - along[:-1] ** 2, 0.0) + 1e-15).max(axis=1)
    a, b = np.zeros((n, n)), np.zeros((n, n))
    excess = kin.excess_by_link
    for link in range(n):
        lo, hi = lower[layout.link(link)], upper[layout.link(link)]
        mass = max(hi[0] + excess[link, 0], 0.0)
        moment = np.linalg.norm(np.maximum(np.abs(lo[1:4]), np.abs(hi[1:4]))) + excess[link, 1]
        inertia = max(0.5 * (hi[4] + hi[6] + hi[9] + excess[link, 2]), 0.0)
        for k in range(link + 1):
            if kin.sliding[k]:
                a[link, k], b[link, k] = np.sqrt(mass), mass
                continue
            distance = across[k] + steps[k + 2 : link + 1].sum() if k < link else 0.0
            a[link, k] = np.sqrt(mass) * distance + np.sqrt(inertia)
            b[link, k] = mass * distance + moment
    rotor = np.maximum(np.abs(lower), np.abs(upper))[layout.rotor_inertia][kin.motors.joint]
    kappa, shares = rotor * np.abs(kin.motors.gear) * _ROUND, np.where(kin.sliding, -1.0, spin_shares(kin))
    return LinkNorms(a * _ROUND, b * _ROUND, kappa, shares)


def spin_shares(kin: Kinematics) -> FloatArray:
    """Bounds (M, n) of ``|w_i| = |z . z_i|`` of every motor and joint over all configurations; 0 behind the carrier.

    Joint i + 1 turns z about an axis that keeps its angle to z_i, so by the triangle inequality of the sphere the
    angle between z and z_i is within that of z and z_i+1 give or take that of the two axes, joint by joint.
    """
    shares = np.zeros((len(kin.motors.joint), len(kin.axis)))
    for m, carrier in enumerate(kin.motors.carrier):
        # ``seen``: the last axis that turned, in frame i; [low, high]: the angle between z and it.
        seen, low, high = kin.motors.axis[m], 0.0, 0.0
        for i in range(carrier, -1, -1):
            if not kin.sliding[i]:
                turn = np.arctan2(np.linalg.norm(np.cross(seen, kin.axis[i])), seen @ kin.axis[i])
                low, high = (max(turn - high, low - turn, 0.0), min(high + turn, 2.0 * np.pi - low - turn, np.pi))
                shares[m, i] = min(max(np.cos(low), -np.cos(high)) + _ANGLE_ROUND, 1.0)
                seen = kin.axis[i]
            seen = kin.rotation[i] @ seen
    return shares


def rotor_floor(kin: Kinematics, box: ParameterBox) -> FloatArray:
    """A diagonal (n,) with ``diag(rotor_floor) <= H - M``, M being H without rotors, for all q and the whole box.

    Rotor inertia from below, less Gershgorin's sum of what motors on moving links couple joints by; so
    ``H >= diag(rotor_floor)``, M being positive semidefinite. Where nothing is coupled it is ``box``'s lower Ia. It may
    be negative: then rotors alone prove nothing. In kg m^2, kg of prismatic joints.
    """
    return _rotor_diagonal(kin, box, -1.0)


def rotor_ceiling(kin: Kinematics, box: ParameterBox) -> FloatArray:
    """A diagonal (n,) with ``H - M <= diag(rotor_ceiling)``, as :func:`rotor_floor`."""
    return _rotor_diagonal(kin, box, 1.0)


def _rotor_diagonal(kin: Kinematics, box: ParameterBox, sign: float) -> FloatArray:
    """Bound of the rotors' part of H from above (``sign`` 1) or below (-1)."""
    n = len(kin.axis)
    lower, upper = box.lower[box.layout.rotor_inertia], box.upper[box.layout.rotor_inertia]
    largest = np.maximum(np.abs(lower), np.abs(upper))
    # Entries of one Ia_j in row j have one factor, so they are extreme at an end of its interval.
    own, others = np.ones(n), np.zeros(n)
    for joint, gear, shares in zip(kin.motors.joint, kin.motors.gear, spin_shares(kin), strict=True):
        own[joint] += sign * np.abs(gear) * shares.sum()
        others += np.abs(gear) * largest[joint] * shares
    diagonal = np.where((own > 0.0) == (sign > 0.0), upper, lower) * own + sign * others
    room = (_ROUND - 1.0) * (largest + others) if len(kin.motors.joint) > 0 else 0.0
    return np.asarray(diagonal + sign * room)


class InMass(NamedTuple):
    """A torque's change by dx as a sum y + z: y by how much its power would move the links, z joint by joint.

    Virtual work of inertial forces f at a pose is ``y^T z' = <sum_i z'_i d_i x, f>`` for any z', so by Cauchy-Schwarz
    ``y^T M^-1 y <= ||f||^2``, M being the inertia of the links there. No joint's own inertia divides it: a light joint
    that carries much is no worse than a heavy one.
    """

    rows: FloatArray  #: (links, n) ``(y^T M^-1 y)^1/2 <= | rows |dx| |``, sqrt(kg) m/s^2 for each unit of x
    entries: FloatArray  #: (n, n) ``|z_i| <= sum_j entries_ij |dx_j|``


@dataclass(frozen=True)
class TorqueSensitivity:
    """Bounds of ``|d tau_i / d x_j|`` for the inertial part of ``W_s theta``, x = q, qd, qd_a, qdd_a; each (n, n).

    ``q`` includes gravity; ``qdd_a`` bounds ``|H|`` without ``diag(Ia)`` and ``qd_a`` bounds ``|C(q, qd)|``;
    what motors on moving links add is in all four.

    Attributes:
        q_in_mass, qd_in_mass, qd_a_in_mass: other bounds of the same changes.
    """

    q: FloatArray
    qd: FloatArray
    qd_a: FloatArray
    qdd_a: FloatArray
    q_in_mass: InMass
    qd_in_mass: InMass
    qd_a_in_mass: InMass


@njit(cache=True)
def _sensitivity_kernel(
    a: FloatArray,
    b: FloatArray,
    g: float,
    qd: FloatArray,
    qd_a: FloatArray,
    qdd_a: FloatArray,
    out_q: FloatArray,
    out_qd: FloatArray,
    out_qda: FloatArray,
    out_qdda: FloatArray,
    turned: FloatArray,
    rows_q: FloatArray,
    rows_qd: FloatArray,
    rows_qda: FloatArray,
) -> None:
    """Fill the sums over links (n, n) and, zeros before, what they are made of.

    ``turned``: the part of ``out_q`` in which forces meet a direction that turns, and gravity; ``rows_*``: the change
    of each link's inertial forces.
    """
    n = qd.shape[0]
    for link in range(n):
        d = a[link]
        acc = 0.0
        acc_q, by_qd, by_qda = rows_q[link], rows_qd[link], rows_qda[link]
        for k in range(link + 1):
            acc += d[k] * qdd_a[k]
            for i in range(link + 1):
                acc_q[i] += d[max(i, k)] * qdd_a[k]
            for m in range(link + 1):
                product = qd[k] * qd_a[m]
                km = max(k, m)
                acc += d[km] * product
                by_qd[k] += d[km] * qd_a[m]
                by_qda[m] += d[km] * qd[k]
                for i in range(link + 1):
                    acc_q[i] += d[max(i, km)] * product
        for i in range(link + 1):
            for j in range(link + 1):
                ij = max(i, j)
                turned[i, j] += d[ij] * acc + g * b[link, ij]
                out_q[i, j] += d[ij] * acc + d[i] * acc_q[j] + g * b[link, ij]
                out_qd[i, j] += d[i] * by_qd[j]
                out_qda[i, j] += d[i] * by_qda[j]
                out_qdda[i, j] += d[i] * d[j]


@njit(cache=True)
def _reaction_sensitivity_kernel(
    motors: Motors,
    kappa: FloatArray,
    shares: FloatArray,
    qd: FloatArray,
    qd_a: FloatArray,
    qdd_a: FloatArray,
    out_q: FloatArray,
    out_qd: FloatArray,
    out_qda: FloatArray,
    out_qdda: FloatArray,
) -> None:
    """Add what motors on moving links do: ``tau_j`` is ``kappa z . alpha``, ``tau_i`` that of the carrier's moment.

    ``alpha`` is ``sum_k z_k qdd_k + sum_{k < m} (z_k x z_m) (qd_k qda_m + qd_m qda_k) / 2``, the moment ``qdd_j z +
    (qd_j omega_a + qda_j omega) x z / 2``. An inner product of z, z_k, z_m changes with q_l only if l is beyond the
    first of its joints, and with a unit vector's rate at most. Joints that slide do not turn: ``shares < 0``.
    """
    for m in range(kappa.shape[0]):
        j, last, kap = motors.joint[m], motors.carrier[m], kappa[m]
        for k in range(last + 1):
            w = shares[m, k]
            if w < 0.0:
                continue
            out_qdda[j, k] += kap * w
            out_qdda[k, j] += kap * w
            for i in range(k + 1, last + 1):
                if shares[m, i] >= 0.0:
                    out_q[j, i] += kap * qdd_a[k]  # d(z . z_k) / dq_i
                    out_q[k, i] += kap * qdd_a[j]
            for i in range(last + 1):
                if i == k or shares[m, i] < 0.0:
                    continue
                half = 0.5 * kap
                # tau_j: (z_k x z_i) . z, counted once for (k, i) and once for (i, k), half of it each.
                out_qd[j, k] += half * qd_a[i]
                out_qda[j, k] += half * qd[i]
                # tau_i: (z_k x z) . z_i.
                out_qd[i, j] += half * qd_a[k]
                out_qd[i, k] += half * qd_a[j]
                out_qda[i, j] += half * qd[k]
                out_qda[i, k] += half * qd[j]
                for turned in range(min(i, k) + 1, last + 1):
                    if shares[m, turned] >= 0.0:
                        out_q[j, turned] += 0.5 * half * (qd[k] * qd_a[i] + qd[i] * qd_a[k])
                        out_q[i, turned] += half * (qd[j] * qd_a[k] + qd_a[j] * qd[k])


def torque_sensitivity(
    kin: Kinematics, norms: LinkNorms, qd: FloatArray, qd_a: FloatArray, qdd_a: FloatArray
) -> TorqueSensitivity:
    """Bound the derivatives for all q and all ``|qd| <= qd`` etc., arguments (n,) >= 0 in rad/s, rad/s^2.

    Prismatic joints are in their travel, m, m/s and m/s^2.
    """
    n = len(kin.axis)
    outs, (turned, *rows), reactions = np.zeros((4, n, n)), np.zeros((4, n, n)), np.zeros((4, n, n))
    g = float(np.linalg.norm(kin.gravity)) * _ROUND
    states = [np.ascontiguousarray(np.abs(x), dtype=float) for x in (qd, qd_a, qdd_a)]
    _sensitivity_kernel(norms.a, norms.b, g, *states, *outs, turned, *rows)
    if len(norms.kappa) > 0:
        _reaction_sensitivity_kernel(kin.motors, norms.kappa, norms.shares, *states, *reactions)
    entries = (turned + reactions[0], reactions[1], reactions[2])
    in_mass = (InMass(row * _ROUND, own * _ROUND) for row, own in zip(rows, entries, strict=True))
    return TorqueSensitivity(*((outs + reactions) * _ROUND), *in_mass)


def inertia_share(kin: Kinematics, box: ParameterBox, spare: FloatArray, q: FloatArray, dq: FloatArray) -> FloatArray:
    r"""Bound ``lambda_max(D^-1/2 M D^-1/2)``, D = diag(spare), for all joints within ``dq`` of ``q``.

    M is H without rotors, so ``spare`` is what a bound of H leaves above :func:`rotor_ceiling`; a value up to 1 proves
    ``M <= D``. At q, with theta's midpoint and radius,
    ``lambda_max(M) <= lambda_max(M(mid)) + ||sum_p |dM/dtheta_p| rad_p||``. Away from q: for a unit z,
    ``sqrt(z^T M z) = (sum_l || sum_k z_k d_k x ||_l^2)^1/2`` is a norm whose derivative with respect to joint j is at
    most ``(sum_l (sum_k |z_k| a[l, max(j, k)])^2)^1/2``, and joint 0 moves everything alike, so it does not count.

    Args:
        box: parameters; the true, physically consistent ones lie inside.
        spare: (n,) kg m^2, positive.
        q: (M, n) centres, rad.
        dq: (M, n) half widths, rad.

    Returns:
        (M,) bounds, dimensionless.
    """
    q, dq = np.atleast_2d(q), np.atleast_2d(dq)
    centre, spread, growth = _scaled_inertia(kin, box, spare, q)
    largest = np.linalg.eigvalsh(centre)[:, -1]
    at_centre = np.maximum(largest, 0.0) + spread
    return (np.sqrt(at_centre * _ROUND) + dq @ growth) ** 2 * _ROUND


def inertia_floor(kin: Kinematics, box: ParameterBox, floor: FloatArray, q: FloatArray, dq: FloatArray) -> FloatArray:
    r"""Bound ``lambda_min(D^-1/2 H D^-1/2)`` from below, D = diag(floor), for all joints within ``dq`` of ``q``.

    H includes the rotors; a value of at least 1 proves ``H >= D``. The same two steps as in :func:`inertia_share`:
    with the rotors' lower bounds R (:func:`rotor_floor`), ``sqrt(z^T (M + R) z)`` changes with the joints at most as
    ``sqrt(z^T M z)`` does. What of R is negative is subtracted at the end.

    Args:
        box: parameters; the true, physically consistent ones lie inside.
        floor: (n,) kg m^2, positive.
        q: (M, n) centres, rad.
        dq: (M, n) half widths, rad.

    Returns:
        (M,) bounds, dimensionless; below 0 only where motors on moving links couple joints.
    """
    q, dq = np.atleast_2d(q), np.atleast_2d(dq)
    centre, spread, growth = _scaled_inertia(kin, box, floor, q)
    rotors = rotor_floor(kin, box)
    rotor, less = np.maximum(rotors, 0.0) / floor, float(np.max(np.maximum(-rotors, 0.0) / floor)) * _ROUND
    # M itself is positive semidefinite, so the rotors alone are a bound, too.
    alone = float(np.min(rotors / floor))
    alone = alone / _ROUND if alone > 0.0 else alone * _ROUND
    smallest = np.linalg.eigvalsh(centre + np.diag(rotor))
    # A symmetric eigenvalue solver errs by some n units of the largest eigenvalue.
    least = smallest[:, 0] - spread - (_ROUND - 1.0) * smallest[:, -1]
    root = np.sqrt(np.maximum(least, 0.0)) - dq @ growth * _ROUND
    return np.maximum(np.square(np.maximum(root, 0.0)) / _ROUND - less, alone)


def inertia_growth(norms: LinkNorms, scale_by: FloatArray) -> FloatArray:
    """Per joint a bound (n,) of the rate of ``sqrt(z^T M z)`` for ``z^T diag(scale_by) z = 1``; M is without rotors."""
    n, scale = len(scale_by), 1.0 / np.sqrt(scale_by)
    growth = np.zeros(n)
    for j in range(1, n):
        moved = norms.a[:, np.maximum(np.arange(n), j)] * scale  # (links, joints)
        growth[j] = np.linalg.norm(moved, ord=2)
    return growth


def _scaled_inertia(
    kin: Kinematics, box: ParameterBox, scale_by: FloatArray, q: FloatArray
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """For M (without rotors) scaled by ``diag(scale_by)^-1/2`` on both sides, at q (M, n).

    Returns:
        The box's midpoint's (M, n, n), a bound (M,) of the norm of what the box adds, and per joint a bound (n,) of the
        rate of ``sqrt(z^T M z)``.
    """
    n = len(kin.axis)
    norms = link_norms(kin, box.lower, box.upper)
    inertial = box.layout.links
    mid, rad = box.mid[inertial], box.rad[inertial]
    scale = 1.0 / np.sqrt(scale_by)
    centre, spread = np.empty((len(q), n, n)), np.empty((len(q), n, n))
    for i in range(n):
        unit = np.zeros_like(q)
        unit[:, i] = 1.0
        columns = dynamics_of(kin).momentum_regressor(q, unit)[:, :, inertial]
        centre[:, :, i] = columns @ mid
        spread[:, :, i] = np.abs(columns) @ (rad + _REGRESSOR_ROUND * np.abs(mid))
    centre *= scale[:, None] * scale
    spread *= scale[:, None] * scale
    growth = inertia_growth(norms, scale_by)
    symmetric = 0.5 * (centre + centre.transpose(0, 2, 1))
    return symmetric, np.asarray(np.linalg.norm(spread, ord=2, axis=(1, 2))), growth
