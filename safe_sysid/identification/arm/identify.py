"""Identification of an arm: estimate, friction model, residuals, and what the log leaves open."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from safe_sysid.core.arrays import BoolArray, FloatArray
from safe_sysid.core.layout import ParameterLayout
from safe_sysid.dynamics.closed_chain import Mechanism, MechanismMotion
from safe_sysid.errors import ParameterError
from safe_sysid.identification.arm.base_parameters import BaseParameters, parameter_units, parameter_words
from safe_sysid.identification.arm.bounds.intervals import ArmIntervals
from safe_sysid.identification.arm.estimates.consistent import ProvedSet
from safe_sysid.identification.arm.estimates.estimate import (
    ArmEstimate,
    ArmPrior,
    agreeing,
    estimate,
    estimates,
    normal_solution,
)
from safe_sysid.identification.arm.estimates.friction import Column, at_rest, candidates, choose, columns_of
from safe_sysid.identification.arm.estimates.residuals import ResidualFinding, diagnose_residuals, filtered_noise
from safe_sysid.identification.arm.excitation.open_parameters import Unexcited, unexcited
from safe_sysid.identification.arm.logs.preparation import ArmData
from safe_sysid.identification.equations.measurement_errors import sensor_prior

__all__ = ["ArmIdentification", "ArmOptions", "identify_samples"]

#: Samples' worth of information of the drawing that are tried where none is said.
_PULLS = (0.0, 10.0, 1000.0)
#: Of the held-out residual: a stronger pull must not cost more.
_FREE = 1e-3
#: Held-out residual of a joint over that of plain least squares, and the power of sigma that is tried beyond it.
_WORSE, _WEAKER = 1.1, 0.25
_ROUNDING = 1e-6  # of a joint's torque: less is no residual
_HIT = 10.0  # standard deviations of a torque that something else than the arm needs
_SPEED = 1.0  # rad/s of joints whose log has no faster one
_TRIED = 200  # positions of other motions


@dataclass(frozen=True)
class ArmOptions:
    """Options that the user may choose."""

    method: str = "sdp"  #: one of :data:`~safe_sysid.identification.arm.estimates.estimate.METHODS`
    #: samples' worth of information of the drawing; None: chosen by held-out samples
    regularisation: float | None = None
    known_links: tuple[str, ...] = ()  #: names of joints whose links are as drawn
    motors_only: bool = False  #: all links are as drawn; friction and rotor inertia are estimated
    further: bool = True  #: whether friction beyond Coulomb and viscous, and geared rotors, are tried
    transition: float = 0.0  #: friction transition velocity, rad/s
    link_side: bool = False  #: torques are measured behind gears and friction: these are as drawn


@dataclass(frozen=True, eq=False)
class ArmIdentification:
    """Result of identifying an arm: everything that its report shows."""

    mechanism: Mechanism  #: as it was drawn
    estimate: ArmEstimate  #: of its parameters, and of ``columns``
    columns: tuple[Column, ...]  #: K further columns whose parameters come after the layout's
    names: tuple[str, ...]  #: (nb,) of base parameters, for people
    units: tuple[str, ...]  #: (nb,)
    rms: FloatArray  #: (n_a,) N m, on held-out samples in which the joint moves, of the estimate
    rms_before: FloatArray  #: (n_a,) of the drawing
    mean: FloatArray  #: (n_a,) N m, of the held-out residual, with sign
    rest: FloatArray  #: (n_a,) share of the held-out samples in which the joint stands still, which do not count
    residuals: tuple[ResidualFinding, ...]  #: of each motor, on held-out samples
    unexcited: tuple[Unexcited, ...]  #: base parameters that the log does not tell
    #: (first, last, row) of samples that fit nothing else: s, and the number of the motor
    collisions: tuple[tuple[float, float, int], ...]
    regularisation: float  #: that was used
    held_out: ArmData  #: samples
    #: measured, modelled, drawn: (N, n_a) N m, of the held-out samples
    measured: FloatArray
    modelled: FloatArray
    drawn: FloatArray
    intervals: ArmIntervals | None = None  #: guaranteed ones of the base parameters; None where there are none

    @property
    def theta(self) -> FloatArray:
        """(14 n,) parameters, without further columns."""
        return self.estimate.theta[: self.mechanism.layout.size]

    @property
    def left_over(self) -> float:
        """Held-out torque that the estimate does not explain, as a share of the drawing's, in the median joint."""
        return float(np.median(self.left_over_by_joint))

    @property
    def left_over_by_joint(self) -> FloatArray:
        """(n,) the same of each joint."""
        return self.rms / np.maximum(self.rms_before, 1e-300)


def identify_samples(
    mechanism: Mechanism,
    samples: ArmData,
    held_out: ArmData,
    choices: ArmOptions | None = None,
    progress: Callable[[float], None] | None = None,
    prove: Callable[[BaseParameters], ArmIntervals | None] | None = None,
) -> ArmIdentification:
    """Identify an arm.

    Args:
        mechanism: with the drawing's parameters.
        samples: to identify with.
        held_out: other samples.
        choices: of the user; None for the defaults.
        progress: called with the share that is done.
        prove: bounds base parameters where there are no further columns; None for no intervals.

    Raises:
        ParameterError: unknown links, or too few samples.
        ClosureError: a loop cannot be followed along the samples.
    """
    choices, told = choices or ArmOptions(), progress or (lambda share: None)
    motions = [part.motion(mechanism) for part in (samples, held_out)]
    regressor, other = (
        _regressor(mechanism, motion, part.direction, choices)
        for motion, part in zip(motions, (samples, held_out), strict=True)
    )
    torque, measured = samples.torque.ravel(), held_out.torque.ravel()
    real, judged = (~at_rest(part).ravel() for part in (samples, held_out))
    if len(torque) < regressor.shape[1]:
        expected = f"at least {regressor.shape[1]} equations"
        raise ParameterError(f"{len(samples)} samples of {len(mechanism.actuated)} motors: expected {expected}")
    told(0.2)
    rows, nominal = len(mechanism.actuated), mechanism.theta_nominal
    fixed = _fixed(mechanism, choices)
    first = estimate(regressor, torque, mechanism.layout, rows, ArmPrior(nominal, fixed), method="wls", real=real)
    told(0.4)
    columns: list[Column] = []
    if choices.further:
        columns, extra, extra_other = _further(
            mechanism, motions, (samples, held_out), (regressor, other), first, fixed, choices, (real, judged),
        )  # fmt: skip
        if columns:
            regressor, other = np.column_stack([regressor, extra]), np.column_stack([other, extra_other])
    told(0.6)
    size = mechanism.layout.size
    full = np.concatenate([nominal, np.zeros(len(columns))])
    never = tuple(size + k for k, column in enumerate(columns) if not column.signed)
    free = np.concatenate([fixed, np.zeros(len(columns), bool)])
    found, used = _pulled(
        regressor, torque, other, measured, mechanism, ArmPrior(full, free, None, 0.0, never), choices,
        (real, judged),
    )  # fmt: skip
    told(0.7)
    intervals = None if prove is None or columns else prove(found.base)
    if intervals is not None and choices.method in ("log_cholesky", "sdp"):
        found = _moved(found, intervals, mechanism.layout, ArmPrior(nominal, fixed))
    told(0.9)
    modelled = (other @ found.theta).reshape(-1, rows)
    truth = measured.reshape(-1, rows)
    residual, counts = truth - modelled, judged.reshape(-1, rows)
    drawn = (other[:, :size] @ nominal).reshape(-1, rows)
    names = mechanism.actuated_names
    acted = mechanism.actuated
    noise = max((filtered_noise(held_out.effects[log]) for log in set(held_out.logs.tolist())), default=0.0)
    q = motions[1].q[:, acted]
    left = diagnose_residuals(residual, modelled, q, held_out.qd, held_out.qdd, names, counts, noise)
    words = [*parameter_words(mechanism.layout, mechanism.joint_names), *(column.words for column in columns)]
    units = [*parameter_units(mechanism.layout, mechanism.kinematics.sliding), *(column.unit for column in columns)]
    speed = np.maximum(np.quantile(np.abs(samples.qd), 0.95, axis=0), _SPEED)
    other_motions = _other_motions(mechanism, columns, found, choices)
    open_ones = unexcited(found, other_motions, names, speed, _positions(mechanism, samples))
    told(1.0)
    return ArmIdentification(
        mechanism=mechanism,
        estimate=found,
        columns=tuple(columns),
        names=tuple(found.base.names(words)),
        units=tuple(units[i] for i in found.base.independent.tolist()),
        rms=np.sqrt(np.mean(residual**2, axis=0, where=counts)),
        rms_before=np.sqrt(np.mean((truth - drawn) ** 2, axis=0, where=counts)),
        mean=residual.mean(axis=0, where=counts),
        rest=1.0 - counts.mean(axis=0),
        residuals=tuple(left),
        unexcited=tuple(open_ones),
        collisions=tuple(_collisions(samples, found, torque - regressor @ found.theta, real, mechanism)),
        regularisation=used,
        held_out=held_out,
        measured=truth,
        modelled=modelled,
        drawn=drawn,
        intervals=intervals,
    )


def _moved(found: ArmEstimate, intervals: ArmIntervals, layout: ParameterLayout, known: ArmPrior) -> ArmEstimate:
    """Move the estimate into the proved set; return it unchanged if the solver finds no real arm there."""
    box = sensor_prior(intervals.box, intervals.errors)  # an offset with a sensor's constant bias
    inside = ProvedSet(found.base.matrix, intervals.lower, intervals.upper, box.lower, box.upper)
    if inside.holds(found.theta):
        return found
    try:
        return agreeing(found, layout, known, inside)
    except ParameterError:
        return found


def _fixed(mechanism: Mechanism, choices: ArmOptions) -> BoolArray:
    fixed = np.zeros(mechanism.layout.size, bool)
    fixed[mechanism.layout.links] = choices.motors_only
    for name in choices.known_links:
        if name not in mechanism.joint_names:
            expected = f"one of {', '.join(mechanism.joint_names)}"
            raise ParameterError(f"known link of {name!r}: expected {expected}")
        fixed[mechanism.layout.link(mechanism.joint_names.index(name))] = True
    if choices.link_side:  # what rotors do to links that carry them is felt there, too
        for block in (mechanism.layout.coulomb, mechanism.layout.viscous, mechanism.layout.rotor_inertia):
            fixed[block] = True
        fixed[mechanism.layout.rotor_inertia.start + mechanism.kinematics.motors.joint] = False
    # Passive joints have no motor; what their bearings rub is small, and not told apart.
    passive = mechanism.passive
    for block in (mechanism.layout.rotor_inertia, mechanism.layout.offset):
        fixed[block.start + passive] = True
    return fixed


def _regressor(
    mechanism: Mechanism, motion: MechanismMotion, direction: FloatArray | None, choices: ArmOptions
) -> FloatArray:
    """(N n_a, 14 n), Coulomb friction of the motors through the torque's filter."""
    layout, rows = mechanism.layout, mechanism.regressor(motion, choices.transition)
    motors = np.arange(len(mechanism.actuated))
    if direction is not None:
        rows[:, motors, layout.coulomb.start + mechanism.actuated] = direction
    if choices.link_side:
        for block in (layout.coulomb, layout.viscous, layout.rotor_inertia):
            rows[:, motors, block.start + mechanism.actuated] = 0.0
    return rows.reshape(-1, mechanism.layout.size)


def _load(mechanism: Mechanism, regressor: FloatArray, theta: FloatArray) -> FloatArray:
    """(N, n_a) torque without friction and offset."""
    layout, rigid = mechanism.layout, np.array(theta)
    for block in (layout.coulomb, layout.viscous, layout.offset):
        rigid[block] = 0.0
    return (regressor @ rigid).reshape(-1, len(mechanism.actuated))


def _further(
    mechanism: Mechanism,
    motions: Sequence[MechanismMotion],
    data: tuple[ArmData, ArmData],
    regressors: tuple[FloatArray, FloatArray],
    first: ArmEstimate,
    fixed: BoolArray,
    choices: ArmOptions,
    real: tuple[BoolArray, BoolArray],
) -> tuple[list[Column], FloatArray, FloatArray]:
    """Further columns that lower the residual of the held-out samples, for the samples and the held-out ones."""
    tried = candidates(mechanism, choices.link_side)
    extra = []
    for motion, part, regressor in zip(motions, data, regressors, strict=True):
        load = _load(mechanism, regressor, first.theta)
        extra.append(columns_of(tried, mechanism, motion, load, choices.transition, part.direction, choices.link_side))
    known = np.where(fixed, mechanism.theta_nominal, 0.0)
    targets = [part.torque.ravel() - regressor @ known for part, regressor in zip(data, regressors, strict=True)]
    shares = np.sqrt(first.weights) / np.tile(first.sigma, len(data[0])) * real[0]
    independent = first.base.independent
    chosen = choose(
        regressors[0][:, independent], extra[0], targets[0], shares,
        (regressors[1][:, independent], extra[1], targets[1], real[1]), tried,
    )  # fmt: skip
    return [tried[k] for k in chosen], extra[0][:, chosen], extra[1][:, chosen]


def _pulled(
    regressor: FloatArray,
    torque: FloatArray,
    other: FloatArray,
    measured: FloatArray,
    mechanism: Mechanism,
    known: ArmPrior,
    choices: ArmOptions,
    real: tuple[BoolArray, BoolArray],
) -> tuple[ArmEstimate, float]:
    """Choose the strongest regularisation towards the drawing that does not raise the held-out residual."""
    rows = len(mechanism.actuated)

    def judged(theta: FloatArray) -> FloatArray:
        residual = np.where(real[1], measured - other @ theta, 0.0).reshape(-1, rows)
        return np.asarray(np.sqrt(np.mean(residual**2, axis=0)))

    pulls = _PULLS if choices.regularisation is None else (choices.regularisation,)
    if choices.method in ("ols", "wls"):
        pulls = pulls[:1]
    found: list[tuple[float, ArmEstimate, float]] = []
    results = estimates(regressor, torque, mechanism.layout, rows, known, choices.method, pulls=pulls, real=real[0])
    for pull, result in zip(pulls, results, strict=True):
        score = float(np.mean(judged(result.theta) / np.maximum(result.sigma, 1e-12)))
        found.append((score, result, pull))
    least = min(score for score, _, _ in found)
    best, pull = next((result, pull) for score, result, pull in reversed(found) if score <= (1.0 + _FREE) * least)
    if choices.method == "ols":
        return best, pull
    # Where residuals are no noise, but what the model lacks, joints that have little of it must not decide on others.
    least_squares, free = np.zeros(regressor.shape[1]), best.base.independent
    if known.fixed is not None and known.nominal is not None:
        least_squares[known.fixed] = known.nominal[known.fixed]
    rest = torque - regressor @ least_squares
    least_squares[free] = normal_solution(regressor[:, free], rest, real[0].astype(float), best.values)
    plain = judged(least_squares) + _ROUNDING * judged(np.zeros(len(least_squares))) + 1e-300
    worst = np.max(judged(best.theta) / plain)
    if worst > _WORSE:
        again = estimates(
            regressor, torque, mechanism.layout, rows, known, choices.method, pulls=(pull,), real=real[0],
            weighting=_WEAKER,
        )[0]  # fmt: skip
        if np.max(judged(again.theta) / plain) < worst:
            return again, pull
    return best, pull


def _positions(mechanism: Mechanism, samples: ArmData) -> FloatArray:
    """(200, n_a) positions to try motions at: random ones within limits, or some of the log where there are loops."""
    if mechanism.closures:
        return samples.q[np.linspace(0, len(samples) - 1, _TRIED).astype(int)]
    limits = [
        np.where(np.isfinite(x), x, s * np.pi)
        for x, s in ((mechanism.position_lower, -1.0), (mechanism.position_upper, 1.0))
    ]
    low, high = (x[mechanism.actuated] for x in limits)
    return np.random.default_rng(0).uniform(low, high, (_TRIED, len(low)))


def _other_motions(
    mechanism: Mechanism, columns: list[Column], found: ArmEstimate, choices: ArmOptions
) -> Callable[[FloatArray, FloatArray, FloatArray], FloatArray]:
    def regressor(q: FloatArray, qd: FloatArray, qdd: FloatArray) -> FloatArray:
        motion = mechanism.motion(q, qd, qdd)
        rows = _regressor(mechanism, motion, None, choices)
        load = _load(mechanism, rows, found.theta[: mechanism.layout.size])
        extra = columns_of(columns, mechanism, motion, load, choices.transition, None, choices.link_side)
        return np.column_stack([rows, extra]).reshape(len(q), len(mechanism.actuated), -1)

    return regressor


def _collisions(
    samples: ArmData, found: ArmEstimate, residual: FloatArray, real: BoolArray, mechanism: Mechanism
) -> list[tuple[float, float, int]]:
    """Find stretches in which something touched the arm: most torques of a motor are far from what the arm needs.

    A joint at rest is allowed twice its Coulomb friction in addition, because friction may hold it either way.
    """
    rows = len(found.sigma)
    coulomb = found.theta[mechanism.layout.coulomb][mechanism.actuated]
    room = _HIT * found.sigma + np.where(real.reshape(-1, rows), 0.0, 2.0 * coulomb)
    far = np.abs(residual.reshape(-1, rows)) > room
    out = []
    for part in samples.parts():
        stamps = samples.stamps[part]
        for row in range(rows):
            outlier = far[part, row].astype(float)
            if len(outlier) < 5:
                continue
            dense = np.convolve(outlier, np.ones(5) / 5.0, "same") > 0.75
            edges = np.flatnonzero(np.diff(np.concatenate([[0], dense.astype(int), [0]])))
            for a, b in edges.reshape(-1, 2).tolist():
                if b - a >= 4:
                    out.append((float(stamps[a]), float(stamps[b - 1]), row))
    return out
