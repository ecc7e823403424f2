r"""The motion in time cells: desired trajectory plus every tracking error, as affine forms.

In cell m, with ``tau_`` the time from its centre, every desired quantity is its centre's Taylor form: value and slope
kept, the rest enclosed. With the tracking errors e and r, exactly,

``q = q_d - e``, ``qd_a = qd_d + K_r e``, ``qd = qd_a - r``, ``qdd_a = qdd_d + K_r (r - K_r e)``.

The controller computes with measured q and qd: its e_m = q_d - q_m and r_m obey the same four equations, only their
bounds are larger (:meth:`TrackingSet.enlarged`). Symbols: 1 the time in the cell, then n for e, then n for r.
("Plans" in docs/understand/guarantees.md; [ARMOUR] takes polynomial zonotopes in the place of affine forms.)
"""

from __future__ import annotations

from dataclasses import dataclass
from math import factorial
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from safe_sysid.core.arrays import FloatArray
from safe_sysid.errors import PlanError
from safe_sysid.trajectories.extrema import knot_slack
from safe_sysid.trajectories.quintic import QuinticTrajectory

__all__ = ["ErrorBox", "TimeCells", "TrackingSet", "affine_motion", "cells_between", "time_cells"]

_EPS = 2.0**-52
_UP = 1.0 + 8 * _EPS


@dataclass(frozen=True)
class TrackingSet:
    r"""What a controller has proved of its tracking error: e and r each in an ellipsoid, at every instant.

    .. math:: \sum_j (e_j / e^{max}_j)^2 \le 1, \qquad \sum_j (r_j / r^{max}_j)^2 \le 1.

    Attributes:
        e, r: (n,) semi-axes, rad and rad/s.
        k_r: (n,) K_r, 1/s.
        own_damping: the law asks for so much times r of acceleration more, 1/s.
    """

    e: FloatArray
    r: FloatArray
    k_r: FloatArray
    own_damping: float = 0.0

    @classmethod
    def of(cls, gains: Any, n: int) -> TrackingSet:
        r"""The true error's set from a controller's gains (``r_bound``, ``e_bound``, ``K_r``).

        The theorem bounds ``r^T H r <= 2 V_max``, and ``H >= diag(inertia_lower)``: r lies in the ellipsoid whose
        semi-axes are ``r_bound``, not only in its box. For e: ``f_j = K_j e_j`` follows r_j through the unit-mass
        kernel ``K_j exp(-K_j s)``; by Jensen's inequality
        ``sum (f_j / r_bound_j)^2 <= int max_j K_j exp(-K_j s) ds <= 1 + ln(K_max / K_min) / e`` (with e Euler's number;
        the maximum over all K between is 1 / (s e)), if it holds at the start.

        Raises:
            PlanError: bounds or gains that are not positive and finite.
        """
        names = ("e_bound", "r_bound", "K_r")
        e, r, k_r = (np.broadcast_to(np.asarray(getattr(gains, name), float), (n,)).copy() for name in names)
        for name, value in zip(names, (e, r, k_r), strict=True):
            if not (np.all(value > 0.0) and np.all(np.isfinite(value))):
                raise PlanError(f"gains.{name} = {value.tolist()}: expected positive numbers")
        spread = np.sqrt(1.0 + np.log(k_r.max() / k_r.min()) / np.e * (1.0 + 1e-12)) if np.ptp(k_r) > 0.0 else 1.0
        return cls(np.maximum(r / k_r, e) * spread * _UP**2, r, k_r, float(gains.own_damping))

    def enlarged(self, position_error: ArrayLike, velocity_error: ArrayLike) -> TrackingSet:
        """The set of the *measured* errors: e off by at most dq, r by ``dv + K_r dq``, each in a box.

        Scaling an ellipsoid by ``1 + |d / semi-axes|`` makes room for any d of the box.

        ``position_error``: dq, (n,) or one for all, rad; ``velocity_error``: dv, likewise, rad/s.
        """
        dq, dv = np.abs(np.asarray(position_error, float)), np.abs(np.asarray(velocity_error, float))
        by_e = 1.0 + float(np.linalg.norm(dq / self.e)) * (1.0 + 1e-14)
        by_r = 1.0 + float(np.linalg.norm((dv + self.k_r * dq) / self.r)) * (1.0 + 1e-14)
        return TrackingSet(self.e * by_e * _UP, self.r * by_r * _UP, self.k_r, self.own_damping)


@dataclass(frozen=True)
class ErrorBox:
    r"""Tracking errors of which only bounds are known, at every instant: ``|e_j|``, ``|de_j|``, ``|dde_j|``.

    No law connects them: ``q = q_d - e``, ``qd = qd_d - de``, ``qdd = qdd_d - dde`` with independent errors, and
    ``qd_a = qd``, ``qdd_a = qdd``: ``W_s(q, qd, qd, qdd) theta`` is then the torque that moves the arm.

    Attributes:
        e, de, dde: (n,) rad, rad/s, rad/s^2.
    """

    e: FloatArray
    de: FloatArray
    dde: FloatArray


@dataclass(frozen=True)
class TimeCells:
    """Desired motion over time cells.

    Attributes:
        borders: (M, 2) first and last time of each cell, s; a grid (M + 1,) is taken for cells that meet.
        forms: (M, 4, n, 3) position .. jerk: centre, time slope (times half a cell), remainder.
    """

    borders: FloatArray
    forms: FloatArray

    def __post_init__(self) -> None:
        if self.borders.ndim == 1:
            object.__setattr__(self, "borders", np.stack([self.borders[:-1], self.borders[1:]], axis=1))

    @property
    def count(self) -> int:
        """Number of cells."""
        return len(self.forms)

    @property
    def grid(self) -> FloatArray:
        """(M + 1,) times of cells that meet, s."""
        return np.append(self.borders[:, 0], self.borders[-1:, 1])

    @property
    def centres(self) -> FloatArray:
        """(M,) middle times, s."""
        return 0.5 * (self.borders[:, 0] + self.borders[:, 1])

    def ranges(self, order: int) -> FloatArray:
        """(M, n, 2) enclosure of the order-th derivative of the desired position by its form.

        The exact range is :func:`safe_sysid.trajectories.extrema.interval_ranges`.
        """
        c, g, rho = np.moveaxis(self.forms[:, order], -1, 0)
        radius = (np.abs(g) + rho) * _UP + np.abs(c) * 2 * _EPS
        return np.stack([c - radius, c + radius], axis=-1)


def time_cells(trajectory: QuinticTrajectory, intervals: int) -> TimeCells:
    """Cut ``[0, duration]`` in ``intervals`` equal cells, and at knots; the last one includes the rest at the end.

    Raises:
        PlanError: no interval.
    """
    if intervals < 1:
        raise PlanError(f"intervals = {intervals!r}: expected at least 1")
    grid = np.union1d(np.linspace(0.0, trajectory.duration, intervals + 1), trajectory.times)
    return cells_between(trajectory, np.stack([grid[:-1], grid[1:]], axis=1))


def cells_between(trajectory: QuinticTrajectory, borders: FloatArray) -> TimeCells:
    """The cells with these borders (M, 2) s; one that ends at the trajectory's end includes the rest after it.

    Raises:
        PlanError: a cell outside of the trajectory, across a knot, or empty.
    """
    count, n = len(borders), trajectory.n
    # By the left border: the middle of a cell one rounding wide may be either border.
    segment = np.clip(np.searchsorted(trajectory.times, borders[:, 0], side="right") - 1, 0, len(trajectory.times) - 2)
    start, end = trajectory.times[segment], trajectory.times[segment + 1]
    inside = (start <= borders[:, 0]) & (borders[:, 0] < borders[:, 1]) & (borders[:, 1] <= end)
    if not np.all(inside):
        cell = borders[np.flatnonzero(~inside)[0]].tolist()
        raise PlanError(f"time cell {cell}: expected one between two knots of {trajectory.times.tolist()}")
    left, right = borders[:, 0] - start, borders[:, 1] - start
    x = 0.5 * (left + right)
    half = np.maximum(right - x, x - left) * _UP + np.abs(right) * 4 * _EPS
    c = trajectory.coefficients[segment]
    taylor = _shift(c, x[:, None])
    size = _shift(np.abs(c), np.abs(x)[:, None])
    # Each coefficient is a sum of terms with at most 12 roundings each.
    error = 20 * _EPS * size
    forms = np.empty((count, 4, n, 3))
    h = half[:, None]
    for order in range(4):
        factor = np.array([factorial(i) / factorial(i - order) if i >= order else 0.0 for i in range(6)])
        centre = factor[order] * taylor[..., order]
        slope = factor[order + 1] * taylor[..., order + 1] * h
        rho = factor[order] * error[..., order] + factor[order + 1] * error[..., order + 1] * h
        if order + 2 <= 5:
            # tau^2 in [0, h^2]: half of it is a shift of the centre.
            bend = 0.5 * factor[order + 2] * taylor[..., order + 2] * h * h
            centre = centre + bend
            rho = rho + np.abs(bend) + factor[order + 2] * error[..., order + 2] * h * h
        for i in range(order + 3, 6):
            rho = rho + factor[i] * (np.abs(taylor[..., i]) + error[..., i]) * h ** (i - order)
        rho = rho * _UP**4 + 8 * _EPS * (np.abs(centre) + np.abs(slope) + rho) + knot_slack(trajectory, order)[segment]
        forms[:, order] = np.stack([centre, slope, rho], axis=-1)
    return TimeCells(borders, forms)


def _shift(c: FloatArray, x: FloatArray) -> FloatArray:
    """(M, n, 6) polynomial coefficients re-expanded about x (M, 1)."""
    out = c.copy()
    for i in range(6):
        for k in range(4, i - 1, -1):
            out[..., k] += x * out[..., k + 1]
    return out


def affine_motion(cells: TimeCells, tracking: TrackingSet | ErrorBox, with_r: bool = True) -> tuple[FloatArray, ...]:
    """Affine forms of ``q, qd, qd_a, qdd_a``, each (M, n, K + 2), K = 1 + 2 n; or of q alone with K = 1 + n.

    Coefficients such as ``K_r e_bound`` are rounded once or twice: that goes to the remainder. Errors of an
    :class:`ErrorBox` are in the remainder as a whole: it is private to each joint and to each form, so qd and qd_a are
    two velocities of the same range, among them all equal ones.
    """
    n = len(tracking.e)
    symbols = 1 + (2 * n if with_r else n)
    joints = np.arange(n)
    out = []
    for name in ("q", "qd", "qd_a", "qdd_a") if with_r else ("q",):
        form = np.zeros((cells.count, n, symbols + 2))
        order = {"q": 0, "qd": 1, "qd_a": 1, "qdd_a": 2}[name]
        desired = cells.forms[:, order]
        form[..., 0], form[..., 1], form[..., -1] = desired[..., 0], desired[..., 1], desired[..., 2]
        if isinstance(tracking, ErrorBox):
            form[..., -1] = (form[..., -1] + (tracking.e, tracking.de, tracking.dde)[order]) * _UP
            out.append(form)
            continue
        by_e = {
            "q": -tracking.e,
            "qd": tracking.k_r * tracking.e,
            "qd_a": tracking.k_r * tracking.e,
            "qdd_a": -(tracking.k_r * tracking.k_r) * tracking.e,
        }[name]
        form[:, joints, 2 + joints] = by_e
        slack = np.abs(by_e)
        if with_r and name in ("qd", "qdd_a"):
            by_r = -tracking.r if name == "qd" else (tracking.k_r + tracking.own_damping) * tracking.r
            form[:, joints, 2 + n + joints] = by_r
            slack = slack + np.abs(by_r)
        form[..., -1] = form[..., -1] * _UP + 4 * _EPS * slack
        out.append(form)
    return tuple(out)
