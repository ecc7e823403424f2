r"""Parameters of an arm from torques linear in them, ``Y theta = tau``: from plain to consistent least squares.

Rows are weighted by how large residuals of their joint are and, against outliers, by Tukey's biweight of the residual
itself, and both are found again from the residuals that the weights give [Han2020, fig. 5]. All of this happens in
base parameters; then the wanted method finds the standard parameters, see METHODS.

Standard errors are of base parameters and stay right where residuals are coloured, as those of a filtered log are: the
log is cut into blocks, and it is the blocks' sums that are taken to be independent.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np
from scipy import linalg, optimize

from safe_sysid.core.arrays import BoolArray, FloatArray, IntArray
from safe_sysid.core.layout import ParameterLayout
from safe_sysid.errors import ParameterError
from safe_sysid.identification.arm.base_parameters import BaseParameters, base_parameters_of_factor
from safe_sysid.identification.arm.estimates.consistent import (
    Fit,
    LinkBoxes,
    ProvedSet,
    fit_consistent,
    is_consistent_arm,
)
from safe_sysid.identification.estimates.newton import log_cholesky_derivatives
from safe_sysid.robot.parameters import log_cholesky

__all__ = ["METHODS", "ArmEstimate", "ArmPrior", "agreeing", "estimate", "estimates", "normal_solution"]

#: ols: least squares; wls: rows weighted; log_cholesky: weighted, consistent by a change of variables; sdp: weighted,
#: consistent by a semidefinite program.
METHODS = ("ols", "wls", "log_cholesky", "sdp")
_TUKEY = 4.685  # standard deviations: 95 % as efficient as least squares where noise is normal
_ROUNDS, _BLOCKS = 12, 60
_ROWS = 20_000  # of a block of QR
#: Share of the largest torque below which a residual is rounding, not noise.
_EXACT = 1e-8


@dataclass(frozen=True)
class ArmPrior:
    """What is known of the arm before the log is used."""

    nominal: FloatArray | None = None  #: (P,) parameters of a drawing; None: of nothing
    fixed: BoolArray | None = None  #: (P,) parameters that are nominal exactly; None: none
    boxes: LinkBoxes | None = None  #: of masses and centres
    regularisation: float = 0.0  #: how many samples' worth of information the drawing is
    never_negative: tuple[int, ...] = ()  #: (K,) further indices, after those of the layout, that cannot be below zero


@dataclass(frozen=True, eq=False)
class ArmEstimate:
    """Estimate of an arm's parameters from its logs."""

    method: str  #: one of METHODS
    theta: FloatArray  #: (P,) all parameters
    base: BaseParameters  #: which combinations torques depend on, known parameters left out
    values: FloatArray  #: (nb,) base parameters of theta
    standard_errors: FloatArray  #: (nb,) of them, before consistency was asked for; infinite where the log does not say
    covariance: FloatArray  #: (nb, nb) of the same, zero where they are infinite
    sigma: FloatArray  #: (c,) standard deviation of the residual of each row of a sample, N m, without outliers
    rms: FloatArray  #: (c,) root mean square of the residual with theta, outliers included, N m
    weights: FloatArray  #: (M,) of rows, 0 for an outlier, without the division by sigma
    consistent: bool  #: whether every link is real and Fc, Fv, Ia are not negative


def estimate(
    regressor: FloatArray,
    torque: FloatArray,
    layout: ParameterLayout,
    rows_per_sample: int | None = None,
    known: ArmPrior | None = None,
    method: str = "sdp",
    base: BaseParameters | None = None,
    progress: Callable[[float], None] | None = None,
    real: BoolArray | None = None,
) -> ArmEstimate:
    """Estimate all parameters of an arm.

    Args:
        regressor: (N c, P) of N samples in order of time, c rows each: the joints of an open chain, or the actuated
            ones of a closed one with the projected regressor ``G^T W``. P is the layout's size, or more: further
            columns are linear friction terms.
        torque: (N c,) N m.
        layout: of the first columns.
        rows_per_sample: c; None for the layout's number of joints.
        known: about the arm; None for nothing.
        method: one of METHODS.
        base: base parameters of all columns; None: what this regressor's columns say.
        progress: called with the share that is done.
        real: (N c,) which rows are equations; None: all.

    Raises:
        ParameterError: shapes, numbers that are not finite, an unknown method, or no consistent arm.
    """
    pulls = [0.0 if known is None else known.regularisation]
    return estimates(regressor, torque, layout, rows_per_sample, known, method, base, progress, pulls, real)[0]


def estimates(
    regressor: FloatArray,
    torque: FloatArray,
    layout: ParameterLayout,
    rows_per_sample: int | None = None,
    known: ArmPrior | None = None,
    method: str = "sdp",
    base: BaseParameters | None = None,
    progress: Callable[[float], None] | None = None,
    pulls: Sequence[float] = (0.0,),
    real: BoolArray | None = None,
    weighting: float = 1.0,
) -> list[ArmEstimate]:
    """Estimate with several regularisations; the work on the samples is shared.

    Arguments are those of :func:`estimate`; ``pulls``: the regularisations, in place of ``known``'s;
    ``weighting``: power of sigma by which residuals of a row count less: 1 where they are noise.

    Raises:
        ParameterError: as :func:`estimate`, or nothing is left to estimate.
    """
    known, channels = known or ArmPrior(), rows_per_sample or layout.n
    regressor, torque = np.asarray(regressor, float), np.asarray(torque, float)
    size = _check(regressor, torque, layout, channels, known, method)
    real = np.ones(len(torque), bool) if real is None else real
    nominal = np.zeros(size) if known.nominal is None else np.asarray(known.nominal, float)
    fixed = np.zeros(size, bool) if known.fixed is None else np.asarray(known.fixed, bool)
    free = np.flatnonzero(~fixed)
    if not len(free):
        raise ParameterError("fixed: all parameters are known: expected one that is not")
    if base is None or fixed.any():
        blocks = (regressor[part][real[part]][:, free] for part in _blocks(len(regressor)))
        factor = _triangle(blocks, len(free))
        base = _lifted(base_parameters_of_factor(factor), free, size)
    target = torque - regressor[:, fixed] @ nominal[fixed]
    columns, matrix = regressor[:, base.independent], base.matrix
    start = matrix @ np.where(fixed, 0.0, nominal)
    columns[~real], target[~real] = 0.0, 0.0
    sigma, weights = _reweighted(columns, target, real, channels, start, method != "ols", progress)
    less = sigma if weighting == 1.0 else sigma**weighting * np.exp((1.0 - weighting) * np.mean(np.log(sigma)))
    shares = weights / np.tile(less, len(target) // channels)
    factor, best = _best(columns, target, shares, start)
    covariance, errors = _covariance(columns, target - columns @ best, shares, real, channels, factor)
    found = []
    for pull in pulls:
        given = replace(known, regularisation=pull)
        theta = _standard(method, Fit(factor, matrix, best), layout, nominal, fixed, given)
        values = matrix @ np.where(fixed, 0.0, theta)
        residual = target - columns @ values
        found.append(
            ArmEstimate(
                method=method,
                theta=theta,
                base=base,
                values=values,
                standard_errors=errors,
                covariance=covariance,
                sigma=sigma,
                rms=_by_channel(residual, real, channels, lambda x: float(np.sqrt(np.mean(x**2)))),
                weights=weights**2,
                consistent=is_consistent_arm(theta, layout, _never_negative(layout, known)),
            )
        )
    if progress is not None:
        progress(1.0)
    return found


def _check(
    regressor: FloatArray, torque: FloatArray, layout: ParameterLayout, channels: int, known: ArmPrior, method: str
) -> int:
    """Number of parameters."""
    if method not in METHODS:
        raise ParameterError(f"method = {method!r}: expected one of {', '.join(METHODS)}")
    if regressor.ndim != 2 or torque.shape != regressor.shape[:1] or len(torque) % channels:
        expected = f"(N {channels}, P) and (N {channels},)"
        raise ParameterError(f"regressor {regressor.shape}, torque {torque.shape}: expected {expected}")
    size = regressor.shape[1]
    if size < layout.size or len(torque) < size:
        expected = f"at least {layout.size} columns, and as many rows as columns"
        raise ParameterError(f"regressor {regressor.shape}: expected {expected}")
    if not (np.all(np.isfinite(regressor)) and np.all(np.isfinite(torque))):
        raise ParameterError("regressor or torque: expected finite numbers")
    for name in ("nominal", "fixed"):
        value = getattr(known, name)
        if value is not None and np.shape(value) != (size,):
            raise ParameterError(f"known.{name} of shape {np.shape(value)}: expected ({size},)")
    if known.nominal is None and known.fixed is not None and np.any(known.fixed):
        raise ParameterError("known.fixed without known.nominal: expected the values that are known")
    return size


def _never_negative(layout: ParameterLayout, known: ArmPrior) -> IntArray:
    """Indices of parameters that cannot be below zero, masses apart.

    ``layout``: of the first parameters; ``known``: about the arm.
    """
    return np.concatenate([layout.never_negative[layout.n :], np.array(known.never_negative, np.int64)]).astype(
        np.int64
    )


def _triangle(blocks: Iterable[FloatArray], columns: int) -> FloatArray:
    """Triangular factor of rows that come in blocks: memory stays small."""
    factor = np.zeros((0, columns))
    for rows in blocks:
        factor = np.asarray(linalg.qr(np.vstack([factor, rows]), mode="r", overwrite_a=True)[0])[:columns]
    return factor


def _blocks(count: int) -> list[slice]:
    return [slice(at, at + _ROWS) for at in range(0, count, _ROWS)]


def _lifted(base: BaseParameters, free: IntArray, size: int) -> BaseParameters:
    """Extend base parameters of some columns to all columns; no torque depends on the other columns."""
    independent = free[base.independent]
    dependent = np.setdiff1d(np.arange(size), independent)
    combination = np.zeros((len(base), len(dependent)))
    combination[:, np.searchsorted(dependent, free[base.dependent])] = base.combination
    return BaseParameters(independent, dependent, combination)


def _by_channel(residual: FloatArray, real: BoolArray, channels: int, of: Callable[[FloatArray], float]) -> FloatArray:
    """(c,) values of ``of`` for the residuals of each channel's equations; 0 for a channel without any."""
    return np.array(
        [of(residual[c::channels][real[c::channels]]) if real[c::channels].any() else 0.0 for c in range(channels)]
    )


def _spread(residual: FloatArray) -> float:
    """Robust standard deviation: from the median, or from the 90th percentile if that gives more.

    The percentile is for quantised efforts and rarely loaded joints: most of their residuals are nearly zero.
    """
    middle, most = np.quantile(np.abs(residual), [0.5, 0.9])
    return float(max(1.4826 * middle, most / 1.6449))


def _reweighted(
    columns: FloatArray,
    target: FloatArray,
    real: BoolArray,
    channels: int,
    start: FloatArray,
    weighted: bool,
    progress: Callable[[float], None] | None,
) -> tuple[FloatArray, FloatArray]:
    """Standard deviations (c,) of the channels, and the square roots of the rows' weights."""
    samples = len(target) // channels
    floor = max(_EXACT * float(np.abs(target).max()), 1e-300)
    roots, sigma = np.ones(len(target)), np.ones(channels)
    values = start
    for k in range(_ROUNDS if weighted else 1):
        shares = roots / np.tile(sigma, samples)
        after = normal_solution(columns, target, shares, start)
        residual = target - columns @ after
        if not weighted:
            return np.ones(channels), roots
        middle = _by_channel(residual, real, channels, _spread)
        sigma = np.maximum(middle, floor)
        # A joint that stands still most of the time has a median of nothing; its mean square speaks then.
        square = _by_channel(residual, real, channels, lambda x: float(np.sqrt(np.mean(x**2))))
        sigma = np.maximum(sigma, 0.05 * square)
        # The square root of Tukey's weight.
        roots = np.clip(1.0 - (residual / (_TUKEY * np.tile(sigma, samples))) ** 2, 0.0, 1.0)
        moved = np.abs(columns.T @ (columns @ (after - values)))
        settled = k > 2 and np.linalg.norm(moved) <= 1e-6 * np.linalg.norm(columns.T @ (columns @ after))
        values = after
        if progress is not None:
            progress(0.8 * (k + 1) / _ROUNDS)
        if settled:
            break
    return sigma, roots


def agreeing(found: ArmEstimate, layout: ParameterLayout, known: ArmPrior, inside: ProvedSet) -> ArmEstimate:
    """Find the consistent arm inside the proved set that is nearest to the estimate, measured in standard errors.

    ``found``: estimate of the layout's parameters alone, consistent.

    Raises:
        ParameterError: the solver finds none.
    """
    fixed = np.zeros(layout.size, bool) if known.fixed is None else np.asarray(known.fixed, bool)
    errors = found.standard_errors
    shares = np.where(np.isfinite(errors), 1.0 / np.maximum(errors, 1e-300), 0.0)
    fit = Fit(np.diag(shares), found.base.matrix, found.values)
    never = _never_negative(layout, known)
    theta = fit_consistent(fit, layout, found.theta, fixed, never, known.boxes, 0.0, inside)
    values = found.base.matrix @ np.where(fixed, 0.0, theta)
    return replace(found, theta=theta, values=values)


def normal_solution(columns: FloatArray, target: FloatArray, shares: FloatArray, start: FloatArray) -> FloatArray:
    """Weighted least squares by scaled normal equations; the start's values stay where the log is silent.

    ``columns``: (M, nb); ``target``, ``shares``: (M,), the latter square roots of weights; ``start`` and result: (nb,).
    """
    weighted = columns * shares[:, None]
    gram = weighted.T @ weighted
    scale = np.sqrt(np.maximum(np.diag(gram), 1e-300))
    right = weighted.T @ (shares * (target - columns @ start)) / scale
    step = np.linalg.lstsq(gram / np.outer(scale, scale), right, rcond=1e-13)[0]
    return start + step / scale


def _best(
    columns: FloatArray, target: FloatArray, shares: FloatArray, start: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """Triangular factor of the weighted columns, and the best values. QR does not square the condition number."""
    n = columns.shape[1]
    blocks = (
        np.column_stack([columns[part], target[part] - columns[part] @ start]) * shares[part, None]
        for part in _blocks(len(target))
    )
    factor = _triangle(blocks, n + 1)
    triangle, right = factor[:n, :n], factor[:n, n]
    scale = np.maximum(np.linalg.norm(triangle, axis=0), 1e-300)
    step = np.linalg.lstsq(triangle / scale, right, rcond=1e-11)[0] / scale
    return triangle, start + step


def _covariance(
    columns: FloatArray, residual: FloatArray, shares: FloatArray, real: BoolArray, channels: int, factor: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """Covariance of the values with blocks of the log as the unit of independence, and standard errors."""
    samples, n = len(residual) // channels, columns.shape[1]
    scores = np.zeros((_BLOCKS, n))
    edges = np.linspace(0, samples, _BLOCKS + 1).astype(int) * channels
    for block in range(_BLOCKS):
        part = slice(edges[block], edges[block + 1])
        scores[block] = columns[part].T @ (shares[part] ** 2 * residual[part])
    scale = np.maximum(np.linalg.norm(factor, axis=0), 1e-300)
    inverse = np.linalg.pinv(factor / scale, rcond=1e-11)
    seen = np.diag(inverse @ (factor / scale)) > 0.5
    outer = inverse @ inverse.T / np.outer(scale, scale)
    half = scores @ outer
    covariance = half.T @ half * (_BLOCKS / (_BLOCKS - 1))
    # Blocks are few: where their sums happen to cancel, independent rows are the least that there is.
    scatter = float(np.mean((shares * residual)[real] ** 2)) if real.any() else 0.0
    diagonal = np.maximum(np.diag(covariance), scatter * np.diag(outer))
    np.fill_diagonal(covariance, diagonal)
    covariance[~seen] = 0.0
    covariance[:, ~seen] = 0.0
    return covariance, np.where(seen, np.sqrt(diagonal), np.inf)


def _standard(
    method: str, fit: Fit, layout: ParameterLayout, nominal: FloatArray, fixed: BoolArray, known: ArmPrior
) -> FloatArray:
    """Standard parameters of all links, by the chosen method."""
    if method in ("ols", "wls"):
        theta = nominal.copy()
        theta[~fixed] += (np.linalg.pinv(fit.matrix) @ (fit.values - fit.matrix @ np.where(fixed, 0, theta)))[~fixed]
        return theta
    never = _never_negative(layout, known)
    sdp = fit_consistent(fit, layout, nominal, fixed, never, known.boxes, known.regularisation)
    return sdp if method == "sdp" else _log_cholesky(fit, layout, replace(known, nominal=nominal), fixed, sdp)


def _log_cholesky(
    fit: Fit, layout: ParameterLayout, known: ArmPrior, fixed: BoolArray, start: FloatArray
) -> FloatArray:
    """The same minimum in log-Cholesky variables [Rucker2022]; starts from the drawing's consistent links."""
    nominal = start if known.nominal is None else known.nominal
    links = [j for j in range(layout.n) if not fixed[layout.link(j)].any()]
    never = _never_negative(layout, known)
    first, begin = start.copy(), []
    for j in links:
        try:
            begin.append(log_cholesky(nominal[layout.link(j)]))
        except ParameterError:
            begin.append(log_cholesky(start[layout.link(j)]))
    others = np.setdiff1d(np.flatnonzero(~fixed), np.concatenate([np.arange(layout.links.stop), np.zeros(0, int)]))
    low = np.where(np.isin(others, never), 0.0, -np.inf)
    z0 = np.concatenate([*begin, np.maximum(first[others], low)])

    def parameters(z: FloatArray) -> tuple[FloatArray, FloatArray]:
        theta, slope = first.copy(), np.zeros((len(first), len(z)))
        for k, j in enumerate(links):
            part = slice(10 * k, 10 * k + 10)
            theta[layout.link(j)], slope[layout.link(j), part] = log_cholesky_derivatives(z[part])[:2]
        at = 10 * len(links)
        theta[others] = z[at:]
        slope[others, np.arange(at, len(z))] = 1.0
        return theta, slope

    size = max(float(np.linalg.norm(fit.factor @ fit.values)), 1e-300)
    factor = linalg.blas.dgemm(1.0 / size, fit.factor, fit.matrix)
    right = fit.factor @ fit.values / size
    moving = np.where(fixed, 0.0, 1.0)
    # Sizes within a factor of e^8 of the start: beyond, a link has no mass, and the map no slope.
    room = np.tile([8.0, 8.0, 8.0, 8.0, *(np.inf,) * 6], len(links))
    bottom = np.concatenate([z0[: len(room)] - room, low])
    top = np.concatenate([z0[: len(room)] + room, np.full(len(others), np.inf)])
    found = optimize.least_squares(
        lambda z: factor @ (parameters(z)[0] * moving) - right,
        z0,
        jac=lambda z: (factor * moving) @ parameters(z)[1],
        bounds=(bottom, top),
        max_nfev=200,
    )
    return parameters(found.x)[0]
