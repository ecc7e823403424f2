"""Dense linear algebra of the excitation costs, compiled: matrices of a few hundred rows and at most 126 columns."""

from __future__ import annotations

import numpy as np
from numba import njit

from safe_sysid.core.arrays import FloatArray

__all__ = ["back_to_rows", "solve_posterior"]


# BLAS would start threads for matrices of this size; beside a controller on two cores it then waits for them ten times
# longer than these loops take (12 ms against 1 ms per cost with both cores busy).
@njit(cache=True)
def solve_posterior(flat: FloatArray, total: FloatArray, columns: FloatArray) -> None:
    """``columns <- (total + flat^T flat)^-1 columns`` by Cholesky; ``total`` (P, P) is overwritten."""
    size, count = total.shape[0], columns.shape[1]
    for r in range(flat.shape[0]):
        for i in range(size):
            x = flat[r, i]
            if x != 0.0:
                for j in range(i, size):
                    total[i, j] += x * flat[r, j]
    # Upper triangle: total = U^T U, row by row.
    for i in range(size):
        pivot = np.sqrt(total[i, i])
        for j in range(i, size):
            total[i, j] /= pivot
        for k in range(i + 1, size):
            x = total[i, k]
            for j in range(k, size):
                total[k, j] -= x * total[i, j]
    for i in range(size):
        for c in range(count):
            columns[i, c] /= total[i, i]
        for k in range(i + 1, size):
            for c in range(count):
                columns[k, c] -= total[i, k] * columns[i, c]
    for i in range(size - 1, -1, -1):
        for k in range(i + 1, size):
            for c in range(count):
                columns[i, c] -= total[i, k] * columns[k, c]
        for c in range(count):
            columns[i, c] /= total[i, i]


@njit(cache=True)
def back_to_rows(flat: FloatArray, columns: FloatArray, slope: FloatArray, out: FloatArray) -> None:
    """``out = flat columns slope columns^T`` (R, P)."""
    size, count = columns.shape
    left, middle = np.empty(count), np.empty(count)
    for r in range(flat.shape[0]):
        left[:] = 0.0
        for i in range(size):
            for c in range(count):
                left[c] += flat[r, i] * columns[i, c]
        middle[:] = 0.0
        for c in range(count):
            for d in range(count):
                middle[d] += left[c] * slope[c, d]
        for i in range(size):
            x = 0.0
            for c in range(count):
                x += middle[c] * columns[i, c]
            out[r, i] = x
