r"""Parameters that some real arm has and that fit best: semidefinite programs, by cvxpy and Clarabel.

``min |R (B theta - pi)|^2 / 2 + gamma D(theta, theta_0)`` over all parameters, with the pseudo-inertia of every link
positive definite and Fc, Fv, Ia not negative [ConstrainedSysID eq. 30, 32]. D is the entropic distance of the links
from those of a drawing, ``-log det(P P0^-1) + tr(P P0^-1) - 4`` [Lee2020], and the same in one dimension for the rest.

Many theta have one torque. Where the best fit of all is consistent, it is taken as it is, with the dependent parameters
that are nearest to the drawing: no regularisation, and no solver's tolerance, touches what the log says.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import Any

import numpy as np

from safe_sysid.core.arrays import BoolArray, FloatArray, IntArray
from safe_sysid.core.layout import PER_LINK, ParameterLayout
from safe_sysid.errors import ParameterError
from safe_sysid.robot.parameters import is_consistent, pseudo_inertia

__all__ = ["Fit", "LinkBoxes", "ProvedSet", "fit_consistent", "is_consistent_arm"]

#: Size of links nobody knows anything of, m, and the smallest eigenvalue that is asked for, in a link's own units.
_LENGTH, _LEAST = 0.1, 1e-6
_ROOM = 1e-4  # of an interval's half width, for the solver's tolerance
_BASIS = np.stack([pseudo_inertia(unit) for unit in np.eye(PER_LINK)])


@dataclass(frozen=True)
class LinkBoxes:
    """What is known of the links, besides that they are physically consistent."""

    masses: FloatArray | None = None  #: (n, 2) kg, smallest and largest; None: any
    centres: FloatArray | None = None  #: (n, 3, 2) m, of the centre of mass in the joint's frame; None: anywhere


@dataclass(frozen=True, eq=False)
class ProvedSet:
    """The proved set: parameters lie in a box, and combinations of them in intervals."""

    matrix: FloatArray  #: (nb, P) of the combinations
    lower: FloatArray  #: (nb,) of them
    upper: FloatArray  #: (nb,) of them
    box_lower: FloatArray  #: (P,) of the parameters
    box_upper: FloatArray  #: (P,) of the parameters

    def constraints(self, x: Any, scale: FloatArray) -> list[Any]:
        """Constraints on the solver's ``x = theta / scale``, a little narrower than the proved set.

        ``x``: (P,) variable; ``scale``: (P,).
        """
        out = []
        for matrix, low, high in (
            (self.matrix, self.lower, self.upper),
            (np.eye(len(scale)), self.box_lower, self.box_upper),
        ):
            half, middle = 0.5 * (high - low), 0.5 * (high + low)
            open_ = half > 0.0
            rows = matrix[open_] * scale / half[open_, None]
            away = rows @ x - middle[open_] / half[open_]
            out += [away <= 1.0 - _ROOM, away >= _ROOM - 1.0]
        return out

    def holds(self, theta: FloatArray) -> bool:
        """Whether theta (P,) lies in the proved set."""
        values = self.matrix @ theta
        combined = np.all((self.lower <= values) & (values <= self.upper))
        return bool(combined and np.all((self.box_lower <= theta) & (theta <= self.box_upper)))


@dataclass(frozen=True, eq=False)
class Fit:
    """Cost of the fit: ``|factor (matrix theta - values)|^2 / 2``."""

    factor: FloatArray  #: (nb, nb) R
    matrix: FloatArray  #: (nb, P) B of base parameters over all parameters, zero where those are known
    values: FloatArray  #: (nb,) the best base parameters


def is_consistent_arm(theta: FloatArray, layout: ParameterLayout, never_negative: IntArray) -> bool:
    """Whether every link is physically consistent [Wensing2018] and no friction or rotor inertia is negative.

    ``theta``: (P,); ``never_negative``: indices (k,) of friction and rotor inertia.
    """
    links = all(is_consistent(theta[layout.link(j)]) for j in range(layout.n))
    return links and bool(np.all(theta[never_negative] >= 0.0))


def _scales(nominal: FloatArray, layout: ParameterLayout, links: list[int]) -> FloatArray:
    """(P,) units in which every parameter is about one; congruent for links, so that their cones stay the same."""
    scale = np.maximum(np.abs(nominal), 0.1)
    for j in links:
        mass = max(float(nominal[layout.link(j)][0]), 0.1)
        spread = np.trace(pseudo_inertia(nominal[layout.link(j)])[:3, :3]) / mass
        length = float(np.clip(np.sqrt(max(spread, 0.0)), 0.02, 1.0))
        scale[layout.link(j)] = mass * np.array([1.0, *(length,) * 3, *(length**2,) * 6])
    return scale


def fit_consistent(
    fit: Fit,
    layout: ParameterLayout,
    nominal: FloatArray,
    known: BoolArray,
    never_negative: IntArray,
    boxes: LinkBoxes | None = None,
    regularisation: float = 0.0,
    inside: ProvedSet | None = None,
) -> FloatArray:
    """Find the physically consistent parameters that fit best.

    Args:
        fit: the log's part.
        layout: of the first parameters; more may follow, of friction alone.
        nominal: (P,) of the drawing; where a link is not consistent there, a round one of 0.1 m takes its place.
        known: (P,) parameters that stay at nominal.
        never_negative: indices of those that cannot be below zero, masses apart.
        regularisation: gamma; 0 for none but among parameters of the same torque.
        inside: what is proved of the parameters, kept to the last bit; None for nothing.

    Raises:
        ParameterError: the solver finds nothing, as when boxes and known parameters leave no real arm.
    """
    import cvxpy as cp

    links = [j for j in range(layout.n) if not known[layout.link(j)].all()]
    scale = _scales(nominal, layout, links)
    drawing = _drawing(nominal, layout, links, never_negative)
    x = cp.Variable(len(nominal))
    fixed = np.flatnonzero(known)
    basic: list[Any] = [x[fixed] == nominal[fixed] / scale[fixed]] if len(fixed) else []
    loose = never_negative[~known[never_negative]]
    distance: list[Any] = []
    for j in links:
        unit = scale[layout.link(j)]
        body = cp.reshape(_BASIS.reshape(PER_LINK, 16).T @ x[layout.link(j)], (4, 4), order="C")
        body = 0.5 * (body + body.T)
        basic.append(body >> _LEAST * np.eye(4))
        if boxes is not None:
            basic += _box_constraints(boxes, j, unit, x[layout.link(j)])
        pull = np.linalg.inv(_congruent(pseudo_inertia(drawing[layout.link(j)]), unit))
        distance.append(cp.trace(pull @ body) - cp.log_det(body))
    if len(loose):
        basic.append(x[loose] >= 0.0)
        # A parameter that the log alone determines is not pulled: it may be zero, where the distance is infinite.
        pulled = loose[_is_tied(fit.matrix)[loose] | ((regularisation > 0.0) & (nominal[loose] > 0.0))]
        at = drawing[pulled] / scale[pulled]
        if len(pulled):
            distance.append(cp.sum(cp.multiply(1.0 / at, x[pulled])) - cp.sum(cp.log(x[pulled])))
    if inside is not None:
        basic += inside.constraints(x, scale)
    free = np.setdiff1d(np.flatnonzero(~known), np.concatenate([_of_links(layout), loose]))
    if len(free):
        distance.append(0.5 * cp.sum_squares(x[free] - nominal[free] / scale[free]))
    entropic = cp.sum(cp.hstack(distance)) if distance else 0.0
    columns = fit.matrix * scale
    best: FloatArray | None = None
    least = np.inf
    if regularisation == 0.0:
        exact = _solve(cp.Problem(cp.Minimize(entropic), [*basic, columns @ x == fit.values]), x)
        if exact is not None:
            theta = np.where(known, nominal, exact * scale)
            theta[~known] += np.linalg.pinv(fit.matrix[:, ~known]) @ (fit.values - fit.matrix @ theta)
            rounding = (theta < 0.0) & (theta > -1e-9 * scale)
            rounding[: layout.links.stop] = False
            theta[rounding & np.isin(np.arange(len(theta)), never_negative)] = 0.0
            if is_consistent_arm(theta, layout, never_negative) and (inside is None or inside.holds(theta)):
                return theta
    # The solver's tolerance is of the objective: the second time that is one, in whatever unit it was the first time.
    size = max(float(np.linalg.norm(fit.factor @ fit.values)), 1e-300)
    for _ in range(2):
        misfit = cp.sum_squares((fit.factor / size) @ (columns @ x - fit.values)) * 0.5
        weight = max(max(regularisation, 1e-3) / size**2, 1e-10)
        solved = _solve(cp.Problem(cp.Minimize(misfit + weight * entropic), basic), x)
        if solved is None:
            break
        theta = solved * scale
        theta[known] = nominal[known]
        theta[never_negative] = np.maximum(theta[never_negative], 0.0)
        left = float(np.linalg.norm(fit.factor @ (fit.matrix @ theta - fit.values)))
        good = is_consistent_arm(theta, layout, never_negative) and (inside is None or inside.holds(theta))
        if good and left <= least:
            best, least = theta, left
        size = max(left, 1e-6 * size)
    if best is None:
        raise ParameterError(
            "consistent estimate: the solver finds no real arm within what is known of it: expected boxes and known "
            "parameters that leave one"
        )
    return best


def _of_links(layout: ParameterLayout) -> IntArray:
    return np.arange(layout.links.stop)


def _is_tied(matrix: FloatArray) -> BoolArray:
    """(P,) which parameters share a base parameter with others, or influence no torque."""
    shared = (matrix != 0.0).sum(axis=1) > 1
    return np.asarray((matrix[shared] != 0.0).any(axis=0) | ~(matrix != 0.0).any(axis=0))


def _congruent(body: FloatArray, unit: FloatArray) -> FloatArray:
    """Scale a pseudo-inertia to the units of its link."""
    length = unit[1] / unit[0]
    lever = np.array([length, length, length, 1.0])
    return np.asarray(body / (unit[0] * np.outer(lever, lever)))


def _drawing(nominal: FloatArray, layout: ParameterLayout, links: list[int], never_negative: IntArray) -> FloatArray:
    """The drawing's parameters; inconsistent links are replaced."""
    drawing = nominal.copy()
    for j in links:
        link = drawing[layout.link(j)]
        mass = max(float(link[0]), 0.1)
        round_one = pseudo_inertia(link)
        if np.linalg.eigvalsh(round_one)[0] < 1e-7 * mass * _LENGTH**2:
            inertia = 2.0 * mass * _LENGTH**2
            drawing[layout.link(j)] = [mass, 0, 0, 0, inertia, 0, inertia, 0, 0, inertia]
    drawing[never_negative] = np.where(nominal[never_negative] > 0.0, nominal[never_negative], 0.1)
    return drawing


def _box_constraints(boxes: LinkBoxes, j: int, unit: FloatArray, link: Any) -> list[Any]:
    out: list[Any] = []
    mass = link[0] * unit[0]
    if boxes.masses is not None:
        out += [mass >= boxes.masses[j, 0], mass <= boxes.masses[j, 1]]
    if boxes.centres is not None:
        for axis in range(3):
            moment = link[1 + axis] * unit[1 + axis]
            low, high = boxes.centres[j, axis]
            out += [moment >= low * mass, moment <= high * mass]
    return out


def _solve(problem: Any, x: Any) -> FloatArray | None:
    """The solver's answer, or None. Its status is not trusted: a caller checks the answer."""
    import cvxpy as cp

    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)
            problem.solve(solver=cp.CLARABEL)
    except (cp.SolverError, ValueError, ArithmeticError):
        return None
    if x.value is None or not np.all(np.isfinite(x.value)):
        return None
    return np.array(x.value, float)
