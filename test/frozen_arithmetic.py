"""What floating-point arithmetic does here, bit by bit: machines that agree on it should agree on all else.

The last bits of a matrix product depend on the processor (its BLAS kernel), those of a sine on the C library and on
numpy's vector kernels, those of a program's solution on the solver's version.
"""

from __future__ import annotations

import hashlib
import math
from importlib.metadata import version

import clarabel
import highspy
import numba
import numpy as np
import osqp
import pinocchio as pin
import scipy.linalg
import scipy.sparse

__all__ = ["arithmetic", "digest"]

_LIBRARIES = (
    "numpy", "scipy", "numba", "llvmlite", "pin", "coal", "highspy", "clarabel", "osqp", "cvxpy-base", "cvxpy",
)  # fmt: skip


def digest(*values: object) -> str:
    """16 hexadecimal digits of arrays and texts; every bit counts."""
    total = hashlib.sha256()
    for value in values:
        if isinstance(value, np.ndarray):
            total.update(f"{value.dtype.str}{value.shape}".encode() + np.ascontiguousarray(value).tobytes())
        else:
            total.update(str(value).encode())
    return total.hexdigest()[:16]


def arithmetic() -> dict[str, str]:
    """Versions of the libraries that compute, and digests of what they compute, by name."""
    small, large = _numbers(12, 12), _numbers(300, 300)
    spd = large @ large.T + 300.0 * np.eye(300)
    t = np.linspace(-9.0, 9.0, 1001)
    found = {
        "libraries": _versions(),
        "processor": digest(*sorted(map(str, _processor().items()))),
        "C library": digest(*(f(x).hex() for x in t.tolist() for f in (math.sin, math.cos, math.atan, math.exp))),
        "powers": digest(*(math.pow(abs(x) + 0.1, x).hex() for x in t.tolist())),
        "numpy": digest(
            np.sin(t), np.cos(t), np.exp(t), np.log(t * t + 1), np.arctan2(t, t[::-1]), np.sqrt(np.abs(t)),
            np.hypot(t, 2 * t), t.sum(), np.einsum("ij,jk->ik", small, small), np.cumsum(t), t**3,
            np.cross(large[:, :3], large[:, 3:6]),
        ),
        "numpy BLAS": digest(
            small @ small, large @ large, large @ large[0], _numbers(20, 2000) @ _numbers(2000, 20), large.T @ large,
            large[3] @ large[7],
        ),
        "numpy LAPACK": digest(
            np.linalg.cholesky(spd), np.linalg.solve(spd, large[0]), *np.linalg.eigh(spd), *np.linalg.svd(small),
            *np.linalg.qr(large[:, :40]), np.linalg.inv(small),
            np.linalg.lstsq(large[:, :70], large[:, 71], rcond=None)[0],
        ),
        "scipy LAPACK": digest(
            scipy.linalg.cho_factor(spd)[0], scipy.linalg.lu_factor(large)[0],
            scipy.linalg.solve_triangular(spd, large[1]),
        ),
        "compiled": digest(_kernel(t, large)),
        "rigid bodies": digest(_rigid_bodies()),
        "linear programs": digest(*_linear_program()),
        "cone programs": digest(_cone_program()),
        "quadratic programs": digest(_quadratic_program()),
    }  # fmt: skip
    return found


def _versions() -> str:
    out = []
    for name in _LIBRARIES:
        try:
            out.append(f"{name} {version(name)}")
        except ImportError:  # not installed under this name
            continue
    return ", ".join(out)


def _processor() -> dict[str, bool]:
    """What numpy, and OpenBLAS with it, choose their kernels by."""
    try:
        from numpy._core._multiarray_umath import __cpu_features__ as features
    except ImportError:
        from numpy.core._multiarray_umath import __cpu_features__ as features
    return dict(features)


def _numbers(rows: int, columns: int) -> np.ndarray:
    """(rows, columns) in [-1, 1), exact to the last bit everywhere: no generator, no function of a library."""
    k = np.arange(1, rows * columns + 1, dtype=np.uint64)
    return ((k * k * np.uint64(40503) + k * np.uint64(30011)) % np.uint64(65536)).astype(float).reshape(
        rows, columns
    ) / 32768.0 - 1.0


@numba.njit
def _kernel(t: np.ndarray, a: np.ndarray) -> np.ndarray:
    out = np.empty((len(t), 4))
    for i in range(len(t)):
        row = a[i % len(a)]
        total = 0.0
        for x in row:
            total += x * t[i] - x * x
        out[i, 0] = math.sin(t[i]) * total
        out[i, 1] = math.cos(t[i]) + math.sqrt(abs(total))
        out[i, 2] = np.dot(row, a[(i + 1) % len(a)])
        out[i, 3] = np.sum(row) + math.atan2(t[i], total) + abs(t[i]) ** 1.5
    return out


def _rigid_bodies() -> np.ndarray:
    model = pin.buildSampleModelManipulator()
    data, x = model.createData(), _numbers(3, model.nv)
    jacobian = pin.computeJointTorqueRegressor(model, data, x[0], x[1], x[2])
    return np.concatenate([pin.rnea(model, data, *x), pin.aba(model, data, *x), jacobian.ravel()])


def _linear_program() -> list[np.ndarray]:
    a, c = _numbers(60, 25), _numbers(25, 1)[:, 0]
    lp = highspy.HighsLp()
    lp.num_col_, lp.num_row_ = 25, 60
    lp.col_cost_, lp.col_lower_, lp.col_upper_ = c, np.full(25, -5.0), np.full(25, 5.0)
    lp.row_lower_, lp.row_upper_ = np.full(60, -1.0), np.full(60, 1.5)
    columns = scipy.sparse.csc_matrix(a)
    lp.a_matrix_.start_, lp.a_matrix_.index_, lp.a_matrix_.value_ = (columns.indptr, columns.indices, columns.data)
    solver = highspy.Highs()
    solver.setOptionValue("output_flag", False)
    solver.passModel(lp)
    solver.run()
    solution = solver.getSolution()
    return [np.array(solution.col_value), np.array(solution.row_dual)]


def _cone_program() -> np.ndarray:
    """A semidefinite and linear program of the size that physical consistency makes."""
    n, half = 10, 10
    a = np.vstack([_numbers(30, n), np.eye(n), -np.eye(n), -_numbers(half, n)])
    b = np.concatenate([np.full(30, 2.0), np.full(2 * n, 3.0), [4.0, 0.1, 4.0, 0.1, 0.1, 4.0, 0.1, 0.1, 0.1, 4.0]])
    cones = [clarabel.NonnegativeConeT(30 + 2 * n), clarabel.PSDTriangleConeT(4)]
    settings = clarabel.DefaultSettings()
    settings.verbose = False
    solver = clarabel.DefaultSolver(
        scipy.sparse.csc_matrix((n, n)), _numbers(n, 1)[:, 0], scipy.sparse.csc_matrix(a), b, cones, settings
    )
    return np.array(solver.solve().x)


def _quadratic_program() -> np.ndarray:
    a = _numbers(40, 12)
    solver = osqp.OSQP()
    solver.setup(
        scipy.sparse.csc_matrix(np.triu(a.T @ a)), _numbers(12, 1)[:, 0], scipy.sparse.csc_matrix(a),
        np.full(40, -1.0), np.full(40, 0.7), verbose=False, adaptive_rho_interval=50,
    )  # fmt: skip
    return np.asarray(solver.solve().x)
