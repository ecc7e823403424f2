"""Cholesky factors of covariances, in place: with jitter where needed, grown and shrunk by samples."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from numba import njit
from scipy.linalg import lapack, solve_triangular

from safe_sysid.core.arrays import FloatArray
from safe_sysid.errors import SafeSysIdError

__all__ = ["JITTERS", "NotPositiveDefiniteError", "append", "cholesky", "invert", "remove", "solve"]


#: Shares of the mean of the diagonal that are added to it, one after the other.
JITTERS = (0.0, 1e-13, 1e-12, 1e-11, 1e-10, 1e-9, 1e-8, 1e-7, 1e-6)


class NotPositiveDefiniteError(SafeSysIdError):
    """A covariance has no Cholesky factor, whatever little is added to its diagonal."""


def cholesky(make: Callable[[], FloatArray], jitters: Sequence[float] = JITTERS) -> tuple[FloatArray, float]:
    """Lower factor of a covariance, and what had to be added to its diagonal.

    ``make``: a new covariance (m, m), C-ordered, right at and below the diagonal; called again after every failure;
    ``jitters``: as :data:`JITTERS`.
    Returns (m, m), right at and below the diagonal, and the jitter, in the units of the covariance.

    Raises:
        NotPositiveDefiniteError: the largest jitter is not enough, or a number is not finite.
    """
    jitter = 0.0
    for share in jitters:
        c = make()
        diagonal = np.einsum("ii->i", c)
        if not np.all(np.isfinite(diagonal)):
            raise NotPositiveDefiniteError("the covariance has entries that are not finite")
        jitter = share * float(np.mean(diagonal))
        diagonal += jitter
        _, info = lapack.dpotrf(c.T, lower=0, clean=0, overwrite_a=1)
        if info == 0 and np.all(np.isfinite(diagonal)):
            return c, jitter
    raise NotPositiveDefiniteError(
        f"a covariance of {len(c)} torques is not positive definite, even with {jitter:.3g} added to its diagonal"
    )


def solve(factor: FloatArray, y: FloatArray) -> FloatArray:
    """``(L L^T)^-1 y``. ``factor``: (m, m) L; ``y``: (m,) or (m, k)."""
    return lapack.dpotrs(factor.T, y, lower=0)[0].reshape(y.shape)


def invert(factor: FloatArray) -> FloatArray:
    """``(L L^T)^-1`` at and below the diagonal, in the place of the factor. ``factor``: (m, m) L, overwritten."""
    lapack.dpotri(factor.T, lower=0, overwrite_c=1)
    return factor


def append(factor: FloatArray, cross: FloatArray, own: FloatArray) -> FloatArray:
    """Factor of a covariance with further rows and columns.

    Args:
        factor: (m, m) of the covariance so far.
        cross: (k, m) covariance of what is new with what was there.
        own: (k, k) of what is new; right at and below the diagonal.

    Raises:
        NotPositiveDefiniteError: what is new follows from what was there.
    """
    m, k = len(factor), len(own)
    out = np.zeros((m + k, m + k))
    out[:m, :m] = np.tril(factor)
    out[m:, :m] = solve_triangular(factor, cross.T, lower=True, check_finite=False).T
    rest = np.ascontiguousarray(own - out[m:, :m] @ out[m:, :m].T)
    corner, jitter = cholesky(rest.copy)
    if jitter:
        raise NotPositiveDefiniteError("what is added to a covariance follows from what was there")
    out[m:, m:] = np.tril(corner)
    return out


@njit(cache=True, nogil=True)
def _add_square(factor: FloatArray, v: FloatArray) -> None:
    """Make L the factor of ``L L^T + v v^T``, both overwritten."""
    for k in range(len(v)):
        r = np.hypot(factor[k, k], v[k])
        c, s = factor[k, k] / r, v[k] / r
        factor[k, k] = r
        for i in range(k + 1, len(v)):
            below = factor[i, k]
            factor[i, k] = c * below + s * v[i]
            v[i] = c * v[i] - s * below


def remove(factor: FloatArray, start: int, stop: int) -> FloatArray:
    """Factor of a covariance without some of its rows and columns.

    ``factor``: (m, m); ``stop``: first after it that stays.
    """
    kept = np.r_[0:start, stop : len(factor)]
    out = np.ascontiguousarray(np.tril(factor)[np.ix_(kept, kept)])
    corner = np.ascontiguousarray(out[start:, start:])
    for column in range(start, stop):
        _add_square(corner, np.ascontiguousarray(factor[stop:, column]))
    out[start:, start:] = corner
    return out
