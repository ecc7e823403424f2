r"""Reachable sets over *all* trajectories of a family at once, sliced at one k afterwards: [ARMOUR]'s order of work.

The package slices first: at a given k only time and tracking error are left. Here k stays a symbol through sine and
cosine and the whole recursion, as in the paper; the sets are built once per start state, and slicing is cheap. Both
enclose the same quantities, so their widths can be compared; ``benchmarks/enclosures.py`` does. No remainder is lost.

Two choices of symbols. ``shared``: one for time, then e and r, each in its ellipsoid, shared by q, qd, qd_a and qdd_a
as in the package, so that only *when* k is sliced differs. ``armour``: as in the paper, for each joint one symbol each
for q, qd, qd_a, qdd_a, into which time and tracking error both go, every one in its own interval.
"""

from __future__ import annotations

import argparse
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray
from polynomial_sets import Basis, PolySet, stack

from safe_sysid.planning.optimiser.family import TrajectoryFamily
from safe_sysid.reachability.cells import TimeCells, TrackingSet, cells_between, time_cells
from safe_sysid.reachability.rotations import rotation_parts
from safe_sysid.robot.model import Kinematics
from safe_sysid.robot.parameters import ParameterBox
from safe_sysid.trajectories.quintic import QuinticTrajectory

__all__ = ["OverAllK", "SlicedTorque", "way"]

FloatArray = NDArray[np.float64]
Symbols = Literal["shared", "armour"]
_EPS = 2.0**-52


@dataclass(frozen=True)
class SlicedTorque:
    """Torque at one k.

    Attributes:
        torque: (M, n, 2) range of ``W_s theta' + K_d r``, N m.
        nominal: (M, n) half width of ``W_s mid + K_d r``.
        spread: (M, n) bound of ``sum_p |W_jp| rad_p``.
    """

    torque: FloatArray
    nominal: FloatArray
    spread: FloatArray


@dataclass(frozen=True, eq=False)
class OverAllK:
    """Sets over all k of one family.

    Attributes:
        basis: monomials.
        kinematics: of the arm.
        box: of parameters.
        friction_transition: rad/s.
        rates, accelerations: (M, n) qd_a, qdd_a.
        nominal: (M, n) ``W_s mid`` without Coulomb friction, plus ``K_d r``.
        columns: per joint, (M, 10 (n - j)) entries of the regressor's row for links j and up; empty if not asked for.
        rotations, origins: (M, n, 3, 3), (M, n, 3) poses of the joint frames in the world.
    """

    basis: Basis
    kinematics: Kinematics
    box: ParameterBox
    friction_transition: float
    rates: PolySet
    accelerations: PolySet
    nominal: PolySet
    columns: tuple[PolySet, ...]
    rotations: PolySet
    origins: PolySet

    @classmethod
    def build(
        cls,
        kin: Kinematics,
        box: ParameterBox,
        family: TrajectoryFamily,
        intervals: int,
        tracking: TrackingSet,
        damping: ArrayLike,
        friction_transition: float,
        degree: int = 3,
        symbols: Symbols = "shared",
        order: int = 0,
        parameters: bool = True,
    ) -> OverAllK:
        """Build the sets.

        Args:
            kin: of the arm.
            box: (14 n) parameters.
            family: trajectories; k in [-1, 1]^n.
            intervals: number of time cells of the duration.
            tracking: errors, as for :func:`safe_sysid.reachability.torque.enclose_torque`.
            damping: (n,) K_d, N m s / rad.
            friction_transition: velocity below which Coulomb's sign is a ramp, rad/s.
            degree: of the polynomials in k.
            symbols: see the module.
            order: monomials kept per set, 0 for all.
            parameters: also the regressor's entries, which the spread by unknown parameters needs.
        """
        n = family.n
        groups = (1, n, n) if symbols == "shared" else (1,) * (4 * n)
        basis = Basis(n, groups, degree, order)
        base = time_cells(family.trajectory(np.zeros(n)), intervals)
        step = np.zeros((3, 1))
        unit = cells_between(QuinticTrajectory.to_rest(step, [1.0], family.duration), base.borders)
        motion = _motion(basis, base, unit, family.k_range, tracking, symbols)
        r_form = basis.constant(np.zeros((base.count, n)))
        if symbols == "shared":
            for j in range(n):
                r_form.c[:, j, basis.pure + 1 + n + j] = tracking.r[j]
        else:
            r_form.rho[:] = tracking.r
        nominal, columns, rotations, origins = _dynamics(kin, box, motion, r_form.scaled(damping), parameters)
        rates, accelerations = motion[2:]
        return cls(
            basis, kin, box, friction_transition, rates, accelerations, nominal, columns, rotations, origins
        )

    def torque(self, k: ArrayLike) -> SlicedTorque:
        """Slice the torque at k (n,)."""
        n, box = len(self.kinematics.axis), self.box
        rates = _range(self.rates, k)
        sigma = _sign(rates, self.friction_transition)
        spread = np.zeros(rates.shape[:2])
        for j, column in enumerate(self.columns):
            size = np.abs(_range(column, k)).max(axis=-1)
            spread[:, j] = size @ box.rad[box.layout.link(j).start : box.layout.links.stop]
        fc, fv, ia, beta = box.layout.by_term(np.arange(box.size))
        if self.columns:
            spread += np.abs(sigma).max(axis=-1) * box.rad[fc] + np.abs(rates).max(axis=-1) * box.rad[fv]
            spread += np.abs(_range(self.accelerations, k)).max(axis=-1) * box.rad[ia] + box.rad[beta]
        spread *= 1.0 + 20 * n * _EPS
        nominal = _range(self.nominal, k) + np.sort(sigma * box.mid[fc][:, None], axis=-1)
        nominal += 8 * _EPS * np.abs(nominal).max(axis=-1, keepdims=True) * np.array([-1.0, 1.0])
        torque = nominal + spread[..., None] * np.array([-1.0, 1.0]) * (1.0 + 8 * _EPS)
        return SlicedTorque(torque, 0.5 * (nominal[..., 1] - nominal[..., 0]), spread)

    def points(self, joints: ArrayLike, points: ArrayLike, k: ArrayLike) -> FloatArray:
        """(M, P, 3, 2): boxes in the world that hold the points (P, 3) of the frames ``joints`` (P,) at k."""
        joints, points = np.asarray(joints, int), np.asarray(points, float)
        world = self.rotations[:, joints].scaled(points[:, None, :]).sum(axis=3) + self.origins[:, joints]
        return _range(world, k)


def way(text: str) -> tuple[Symbols, int, int]:
    """Symbols, degree and monomials of ``SYMBOLS:DEGREE:MONOMIALS``, for command lines."""
    symbols, degree, order = text.split(":")
    if symbols not in ("shared", "armour") or int(degree) < 1 or int(order) < 0:
        raise argparse.ArgumentTypeError(f"{text!r}: expected shared|armour:DEGREE:MONOMIALS, as armour:3:40")
    return symbols, int(degree), int(order)  # type: ignore[return-value]


def _range(sets: PolySet, k: ArrayLike) -> FloatArray:
    """(..., 2) range at k."""
    centre, linear, rho = sets.slice(k)
    radius = sets.half_width(linear) + rho
    radius = radius + 8 * _EPS * (np.abs(centre) + radius)
    return np.stack([centre - radius, centre + radius], axis=-1)


def _sign(rates: FloatArray, transition: float) -> FloatArray:
    """Range of the friction sign over velocity ranges (..., 2)."""
    widened = rates + 1e-14 * np.array([-1.0, 1.0])
    return np.clip(widened / transition, -1.0, 1.0) if transition > 0.0 else np.sign(widened)


def _motion(
    basis: Basis,
    base: TimeCells,
    unit: TimeCells,
    k_range: FloatArray,
    tracking: TrackingSet,
    symbols: Symbols,
) -> tuple[PolySet, PolySet, PolySet, PolySet]:
    """q, qd, qd_a, qdd_a, each (M, n)."""
    n = len(k_range)
    e, r, k_r = tracking.e, tracking.r, tracking.k_r
    # Per quantity: order of the desired motion, coefficients of e and of r.
    table = [
        (0, -e, 0.0 * r),
        (1, k_r * e, -r),
        (1, k_r * e, 0.0 * r),
        (2, -(k_r * k_r) * e, k_r * r),
    ]
    out = []
    for kind, (order, by_e, by_r) in enumerate(table):
        sets = basis.constant(base.forms[:, order, :, 0])
        slope, rest = base.forms[:, order, :, 1], base.forms[:, order, :, 2]
        moved, tilt, loose = (unit.forms[:, order, :, i] * k_range for i in range(3))
        # Knots of the family's own trajectories are rounded: k_range k, then one more sum.
        rho = (rest + np.abs(loose)) * (1.0 + 1e-12) + 1e-12 * (1.0 + np.abs(sets.c[..., 0]) + np.abs(moved))
        for j in range(n):
            mono = 1 + j
            sets.c[:, j, mono] = moved[:, j]
            if symbols == "shared":
                sets.c[:, j, basis.pure] = slope[:, j]
                if basis.degree > 1:
                    sets.c[:, j, basis.pure + mono * basis.symbols] = tilt[:, j]
                else:
                    rho[:, j] += np.abs(tilt[:, j])
                sets.c[:, j, basis.pure + 1 + j] = by_e[j]
                sets.c[:, j, basis.pure + 1 + n + j] = by_r[j]
            else:
                radius = np.abs(slope[:, j]) + np.abs(tilt[:, j]) + rho[:, j] + abs(by_e[j]) + abs(by_r[j])
                sets.c[:, j, basis.pure + kind * n + j] = radius * (1.0 + 8 * _EPS)
                rho[:, j] = 0.0
        out.append(PolySet(basis, sets.c, rho))
    return out[0], out[1], out[2], out[3]


def _turn(rotation: PolySet, vector: PolySet) -> PolySet:
    """(M, 3, 3) times (M, 3) or, column by column, (M, 3, P)."""
    if len(vector.shape) == 2:
        return (rotation * vector[:, None, :]).sum(axis=2)
    return (rotation[:, :, :, None] * vector[:, None, :, :]).sum(axis=2)


def _cross(x: PolySet, y: PolySet) -> PolySet:
    """(M, 3) times (M, 3)."""
    parts = [x[:, (i + 1) % 3] * y[:, (i + 2) % 3] - x[:, (i + 2) % 3] * y[:, (i + 1) % 3] for i in range(3)]
    return stack(parts, axis=1)


def _map(matrix: FloatArray, x: PolySet) -> PolySet:
    """Exact matrix (3, 3) times (M, 3) or (M, 3, P)."""
    rows = [
        sum((x[:, k].scaled(matrix[i, k]) for k in (1, 2)), x[:, 0].scaled(matrix[i, 0])) for i in range(3)
    ]
    return stack(rows, axis=1)


def _skew(v: FloatArray) -> FloatArray:
    return np.array([[0.0, -v[2], v[1]], [v[2], 0.0, -v[0]], [-v[1], v[0], 0.0]])


def _rotations(kin: Kinematics, q: PolySet) -> PolySet:
    """(M, n, 3, 3) from child to parent."""
    parts, error, _ = rotation_parts(kin)
    sine, cosine = q.sin_cos()
    whole = cosine[:, :, None, None].scaled(parts[:, 1]) + sine[:, :, None, None].scaled(parts[:, 2])
    whole.c[..., 0] += parts[:, 0]
    return PolySet(whole.basis, whole.c, whole.rho + error + 8 * _EPS)


def _dynamics(
    kin: Kinematics,
    box: ParameterBox,
    motion: tuple[PolySet, PolySet, PolySet, PolySet],
    damping: PolySet,
    parameters: bool,
) -> tuple[PolySet, tuple[PolySet, ...], PolySet, PolySet]:
    r"""Polarised Newton-Euler as in :mod:`safe_sysid.reachability.torque_kernel`, on these sets."""
    q, qd, qd_a, qdd_a = motion
    basis, (count, n) = q.basis, q.shape
    turns = _rotations(kin, q)
    axes = [basis.constant(np.broadcast_to(kin.axis[j], (count, 3))) for j in range(n)]
    spin = reference = angular = basis.constant(np.zeros((count, 3)))
    acceleration = basis.constant(np.broadcast_to(-kin.gravity, (count, 3)))
    pose: PolySet = basis.constant(np.broadcast_to(np.eye(3), (count, 3, 3)))
    origin = basis.constant(np.zeros((count, 3)))
    centripetal: PolySet = basis.constant(np.zeros((count, 3, 3)))
    links, poses, origins = [], [], []
    for j in range(n):
        t = kin.translation[j]
        origin = origin + _turn(pose, basis.constant(np.broadcast_to(t, (count, 3))))
        pose = _turn(pose, turns[:, j])
        poses.append(pose)
        origins.append(origin)
        back = PolySet(basis, np.swapaxes(turns.c[:, j], 1, 2), np.swapaxes(turns.rho[:, j], 1, 2))
        trace = centripetal[:, 0, 0] + centripetal[:, 1, 1] + centripetal[:, 2, 2]
        lever = centripetal.scaled(t[None, :]).sum(axis=2) - trace[:, None].scaled(t)
        moved = acceleration + _map(-_skew(t), angular) + lever
        acceleration, angular = _turn(back, moved), _turn(back, angular)
        spin, reference = _turn(back, spin), _turn(back, reference)
        half = _map(-_skew(kin.axis[j]), spin) * qd_a[:, j, None]
        half = half + _map(-_skew(kin.axis[j]), reference) * qd[:, j, None]
        angular = angular + half.scaled(0.5) + axes[j] * qdd_a[:, j, None]
        spin, reference = spin + axes[j] * qd[:, j, None], reference + axes[j] * qd_a[:, j, None]
        outer = spin[:, :, None] * reference[:, None, :]
        flip = PolySet(basis, np.swapaxes(outer.c, 1, 2), np.swapaxes(outer.rho, 1, 2))
        centripetal = (outer + flip).scaled(0.5)
        links.append((angular, acceleration, centripetal))
    nominal, columns = _backward(kin, box, turns, links, parameters)
    fv, ia, beta = (box.mid[(10 + i) * n : (11 + i) * n] for i in (1, 2, 3))
    torque = stack(nominal, axis=1) + qd_a.scaled(fv) + qdd_a.scaled(ia) + damping
    torque = torque + basis.constant(np.broadcast_to(beta, (count, n)))
    return torque, tuple(columns), stack(poses, axis=1), stack(origins, axis=1)


def _columns(alpha: PolySet, acc: PolySet, q: PolySet) -> tuple[PolySet, PolySet]:
    """Force and moment (M, 3, 10) per unit of each inertial parameter of one link."""
    zero = alpha[:, 0].scaled(0.0)
    force = [[zero] * 10 for _ in range(3)]
    moment = [[zero] * 10 for _ in range(3)]
    for i in range(3):
        force[i][0] = acc[:, i]
    for h in range(3):
        a, b = (h + 1) % 3, (h + 2) % 3
        # Q e_h - tr(Q) e_h + alpha x e_h, and e_h x acc.
        force[h][1 + h] = -(q[:, a, a] + q[:, b, b])
        force[a][1 + h] = q[:, a, h] + alpha[:, b]
        force[b][1 + h] = q[:, b, h] - alpha[:, a]
        moment[a][1 + h], moment[b][1 + h] = -acc[:, b], acc[:, a]
    for a in range(3):
        for b in range(a, 3):
            column = 4 + b * (b + 1) // 2 + a
            for row, other in {(a, b), (b, a)}:
                # I = e_row e_other^T: I alpha = alpha_other e_row, and Q's rows crossed with e_row.
                for i, term in (
                    (row, alpha[:, other]),
                    ((row + 1) % 3, q[:, (row + 2) % 3, other]),
                    ((row + 2) % 3, -q[:, (row + 1) % 3, other]),
                ):
                    moment[i][column] = moment[i][column] + term
    whole = [stack([stack(row, axis=1) for row in rows], axis=1) for rows in (force, moment)]
    return whole[0], whole[1]


def _backward(
    kin: Kinematics,
    box: ParameterBox,
    turns: PolySet,
    links: list[tuple[PolySet, PolySet, PolySet]],
    parameters: bool,
) -> tuple[list[PolySet], list[PolySet]]:
    """Torques (M,) of the box's middle by joint, and the regressor's entries by joint."""
    n = len(links)
    force_sum: PolySet | None = None
    moment_sum: PolySet | None = None
    nominal: list[PolySet] = []
    entries: list[list[PolySet]] = [[] for _ in range(n)]
    for link in range(n - 1, -1, -1):
        force, moment = _columns(*links[link])
        own = box.mid[10 * link : 10 * link + 10]
        f, m = force.scaled(own).sum(axis=2), moment.scaled(own).sum(axis=2)
        if force_sum is not None and moment_sum is not None:
            f, m = f + force_sum, m + moment_sum
        nominal.insert(0, m.scaled(kin.axis[link]).sum(axis=1))
        force_sum, moment_sum = _pass_down(kin, turns, link, f, m)
        if not parameters:
            continue
        for j in range(link, -1, -1):
            entries[j].insert(0, moment.scaled(kin.axis[j][:, None]).sum(axis=1))
            if j > 0:
                force, moment = _pass_down(kin, turns, j, force, moment)
    if not parameters:
        return nominal, []
    return nominal, [
        PolySet(
            turns.basis,
            np.concatenate([e.c for e in rows], axis=1),
            np.concatenate([e.rho for e in rows], axis=1),
        )
        for rows in entries
    ]


def _pass_down(
    kin: Kinematics, turns: PolySet, joint: int, force: PolySet, moment: PolySet
) -> tuple[PolySet, PolySet]:
    """Force and moment of frame ``joint`` in its parent."""
    force, moment = _turn(turns[:, joint], force), _turn(turns[:, joint], moment)
    return force, moment + _map(_skew(kin.translation[joint]), force)
