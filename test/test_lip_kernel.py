"""Kernels of energies, derived by hand, against their definitions differentiated numerically in a hundred digits."""

from __future__ import annotations

import sys
from itertools import product

import mpmath
import numpy as np
import pytest

from safe_sysid.errors import ParameterError
from safe_sysid.learning.gaussian_process.chain_kernel import fill_chain_torques
from safe_sysid.learning.gaussian_process.kernels import ChainPart, LagrangianPart, LinearPart, SumKernel, lip_kernel
from safe_sysid.learning.gaussian_process.lagrangian_kernel import fill_torques
from safe_sysid.learning.gaussian_process.motions import MotionSamples
from safe_sysid.learning.gaussian_process.regression import likelihood_gradient
from safe_sysid.learning.gaussian_process.tensors import TensorLikelihood, kernel_matrix

pytestmark = pytest.mark.unproved

STEP = mpmath.mpf(10) ** -15  # differences of fourth order lose 60 of the 100 digits, and err by STEP^2


class Chain:
    """Energies of a chain: every joint's velocity meets the positions of those behind it."""

    part = ChainPart

    @staticmethod
    def kinetic(parameters, slides, x, y):
        speeds, links, position, _, _ = (exact(np.ravel(p)) for p in parameters)
        h = total = mpmath.mpf(0)
        for i in range(len(slides)):
            h = factor(position[3 * i : 3 * i + 3], slides[i], x[0][i], y[0][i]) * h + speeds[i] * x[1][i] * y[1][i]
            total += links[i] * h**2
        return total

    @staticmethod
    def potential(parameters, slides, x, y):
        _, _, _, positions, heights = parameters
        return sum(z * place(positions[: i + 1], slides, x, y) for i, z in enumerate(exact(heights)))


class Published:
    """Energies as [LIP] has them, eqs. (21), (24) and (25)."""

    part = LagrangianPart

    @staticmethod
    def kinetic(parameters, slides, x, y):
        weights, position, _ = parameters
        total = mpmath.mpf(0)
        for i in range(len(slides)):
            speed = sum(mpmath.mpf(float(weights[i, b])) * x[1][b] * y[1][b] for b in range(i + 1))
            total += speed**2 * place(position[i, : i + 1], slides, x, y) ** 2
        return total

    @staticmethod
    def potential(parameters, slides, x, y):
        return place(parameters[2], slides, x, y)


BOTH = pytest.mark.parametrize("kind", [Chain, Published], ids=["chain", "published"])


def factor(row, slides, q, other):
    sigma, c, s = row
    if slides:
        return sigma + c * q * other
    return sigma + c * mpmath.cos(q) * mpmath.cos(other) + s * mpmath.sin(q) * mpmath.sin(other)


def place(position, slides, x, y):
    result = mpmath.mpf(1)
    for b, row in enumerate(position):
        result *= factor(exact(row), slides[b], x[0][b], y[0][b])
    return result


def lagrange(a, q, v, acc):
    """Weights and arguments of a stencil for d/dt (d/dv_a) - d/dq_a at a state."""
    unit = [STEP if b == a else mpmath.mpf(0) for b in range(len(q))]
    points = []
    for t, e in product((1, -1), (1, -1)):
        moved = [x + t * STEP * y for x, y in zip(q, v, strict=True)]
        faster = [x + t * STEP * y + e * u for x, y, u in zip(v, acc, unit, strict=True)]
        points.append((t * e / (4 * STEP**2), (moved, faster)))
    for e in (1, -1):
        points.append((-e / (2 * STEP), ([x + e * u for x, u in zip(q, unit, strict=True)], v)))
    return points


def exact(values):
    return [mpmath.mpf(float(x)) for x in values]


def torque_kernel_by_definition(kind, parameters, slides, x, y):
    def lagrangian(*at):
        return kind.kinetic(*at) + kind.potential(*at)

    n, out = len(slides), np.empty((len(slides), len(slides)))
    with mpmath.workdps(100):
        left = [lagrange(a, *map(exact, x)) for a in range(n)]
        right = [lagrange(b, *map(exact, y)) for b in range(n)]
        for a, b in product(range(n), range(n)):
            pairs = product(left[a], right[b])
            out[a, b] = sum(wa * wb * lagrangian(parameters, slides, xa, yb) for (wa, xa), (wb, yb) in pairs)
    return out


def energy_covariance_by_definition(kind, parameters, slides, x, y):
    """Cov[T(x), tau(y)], Cov[V(x), tau(y)] with tau = G (T - V)."""
    n = len(slides)
    out = np.empty((2, n))
    with mpmath.workdps(100):
        here = (exact(x[0]), exact(x[1]))
        for b in range(n):
            stencil = lagrange(b, *map(exact, y))
            out[0, b] = float(sum(w * kind.kinetic(parameters, slides, here, point) for w, point in stencil))
            out[1, b] = float(-sum(w * kind.potential(parameters, slides, here, point) for w, point in stencil))
    return out


def case(kind, seed, slides, samples):
    rng = np.random.default_rng(seed)
    n = len(slides)
    part = kind.part(n)
    return part, rng.normal(size=part.count) * 0.5, MotionSamples(*rng.uniform(-2.0, 2.0, (3, samples, n)), slides)


ARMS = [[False], [True], [False, True], [True, True, False]]
ARMS += [pytest.param(slides, marks=pytest.mark.slow) for slides in ([False, False, True, False], [False] * 7)]


@BOTH
@pytest.mark.parametrize("slides", ARMS)
def test_torques_and_energies_are_those_of_the_definition(kind, slides):
    part, log, x = case(kind, len(slides), slides, 20)  # more than fit into the lanes at once
    n, parameters = len(slides), part.unpack(log)
    rows, columns = x[:3], x[3:]
    found = SumKernel((part,)).matrix(log, rows, columns).reshape(3, n, 17, n)
    energies = part.energies(log, rows, columns).reshape(2, 3, 17, n)
    kernels = part.energy_kernels(log, rows, columns)
    for r, j in [(0, 0), (1, 16), (2, 8)][: 1 if n > 4 else 3]:
        at = [(m.q[k], m.qd[k], m.qdd[k]) for m, k in ((rows, r), (columns, j))]
        want = torque_kernel_by_definition(kind, parameters, slides, *at)
        assert np.allclose(found[r, :, j], want, rtol=1e-12, atol=1e-13 * np.max(np.abs(want)))
        want = energy_covariance_by_definition(kind, parameters, slides, *at)
        assert np.allclose(energies[:, r, j], want, rtol=1e-12, atol=1e-13 * np.max(np.abs(want)))
        places = [(exact(q), exact(v)) for q, v, _ in at]
        assert kernels[0, r, j] == pytest.approx(float(kind.kinetic(parameters, slides, *places)), rel=1e-13)
        assert kernels[1, r, j] == pytest.approx(float(kind.potential(parameters, slides, *places)), rel=1e-13)


@BOTH
@pytest.mark.parametrize("gap", [0.0, 1e-13, 1e-5])
def test_factors_that_vanish_are_no_division_by_zero(kind, gap):
    slides = [False, False]
    part = kind.part(2)
    q = np.array([[0.0, 0.3], [np.pi + gap, -0.4]])  # 1 + cos 0 cos pi = 0
    x = MotionSamples(q, [[0.7, -0.2], [0.4, 1.1]], [[0.1, 0.5], [-0.8, 0.6]], slides)
    log = np.zeros(part.count)
    found = SumKernel((part,)).matrix(log, x[:1], x[1:])
    at = [(x.q[k], x.qd[k], x.qdd[k]) for k in range(2)]
    want = torque_kernel_by_definition(kind, part.unpack(log), slides, *at)
    assert np.allclose(found, want, rtol=1e-9, atol=1e-14)


@BOTH
@pytest.mark.parametrize("slides", ARMS)
def test_kernel_is_symmetric_and_positive_semidefinite(kind, slides):
    part, log, x = case(kind, 7, slides, 40)
    kernel = SumKernel((part,))
    full, half = kernel.matrix(log, x, x), kernel.matrix(log, x)
    scale = np.max(np.abs(full))
    assert np.max(np.abs(full - full.T)) <= 1e-14 * scale
    lower = np.tril_indices(len(full))
    assert np.max(np.abs((half - full)[lower])) <= 1e-14 * scale
    assert np.linalg.eigvalsh(full)[0] >= -1e-12 * scale * len(full)


@pytest.mark.parametrize(("kind", "fill"), [(Chain, fill_chain_torques), (Published, fill_torques)])
def test_shares_of_any_number_make_the_same_matrix(kind, fill):
    part, log, x = case(kind, 1, [False, True, False], 70)
    parameters, whole = part.unpack(log), SumKernel((part,)).matrix(log, x, x)
    out = np.zeros(whole.shape)
    for share in range(3):
        fill(share, 3, False, x.rows, x.columns, *parameters, out)
    assert np.array_equal(out, whole)


def likelihood(kernel, log, x, y):
    """(log det C + y^T C^-1 y) / 2 and C^-1, for noise of variance 0.5."""
    lower = np.tril(kernel.matrix(log, x))
    c = lower + np.tril(lower, -1).T + 0.5 * np.eye(len(lower))
    inverse = np.linalg.inv(c)
    return 0.5 * (np.linalg.slogdet(c)[1] + y @ inverse @ y), inverse


@BOTH
@pytest.mark.parametrize("slides", [[True], [False, True, False], [False] * 5])
def test_derivatives_by_parameters_are_those_of_differences(kind, slides):
    rng = np.random.default_rng(3)
    n = len(slides)
    x = MotionSamples(*rng.uniform(-2.0, 2.0, (3, 12, n)), slides)
    anything = rng.normal(size=(12 * n, 4))
    extra = LinearPart(lambda motions: anything[: len(motions) * n], 4)
    kernel = lip_kernel(n, friction=True, residual=True, extra=[extra], energies=kind.part)
    log, y = 0.3 * rng.normal(size=kernel.count), 3.0 * rng.normal(size=12 * n)
    inverse = likelihood(kernel, log, x, y)[1]
    found = kernel.pull(log, x, np.tril(inverse), inverse @ y)  # nothing above the diagonal is read
    up, down = ([likelihood(kernel, log + e, x, y)[0] for e in s * np.eye(kernel.count)] for s in (1e-5, -1e-5))
    want = (np.array(up) - down) / 2e-5
    assert np.allclose(found, want, rtol=1e-6, atol=1e-8 * np.max(np.abs(want)))


@pytest.mark.parametrize(("kind", "close"), [(Chain, 1e-8), (Published, 1e-5)])  # the latter's are divided by p
def test_derivatives_are_right_where_factors_vanish(kind, close):
    """At the weights that training begins with, p is zero for positions of 1 and -1 m, and half a turn apart."""
    rng, slides = np.random.default_rng(8), [False, True, False]
    q = np.column_stack(
        [rng.choice(np.pi / 2.0 * np.arange(4), 12), rng.choice([-1.0, 0.0, 1.0], 12), rng.normal(size=12)]
    )
    x = MotionSamples(q, *rng.normal(size=(2, 12, 3)), slides)
    kernel, y = lip_kernel(3, energies=kind.part), rng.normal(size=36)
    log = kernel.start(x)
    inverse = likelihood(kernel, log, x, y)[1]
    found = kernel.pull(log, x, np.tril(inverse), inverse @ y)
    up, down = ([likelihood(kernel, log + e, x, y)[0] for e in s * np.eye(kernel.count)] for s in (1e-4, -1e-4))
    want = (np.array(up) - down) / 2e-4
    assert np.allclose(found, want, rtol=0.0, atol=close * np.max(np.abs(want)))


def whole_kernel(kind, slides, samples):
    """All kinds of parts, any parameters, motions and torques."""
    n, rng = len(slides), np.random.default_rng(11)
    kernel = lip_kernel(n, friction=True, residual=True, energies=kind.part)
    x = MotionSamples(*rng.uniform(-2.0, 2.0, (3, samples, n)), slides)
    return kernel, 0.4 * rng.normal(size=kernel.count), rng.uniform(-8.0, -2.0, n), x, rng.normal(size=(samples, n))


@BOTH
@pytest.mark.parametrize("slides", ARMS)
def test_operations_on_whole_arrays_make_the_same_matrix(kind, slides):
    kernel, log, _, x, _ = whole_kernel(kind, slides, 12)
    want = kernel.matrix(log, x[:5], x[5:])
    assert np.max(np.abs(kernel_matrix(np, kernel, log, x[:5], x[5:]) - want)) < 1e-13 * np.max(np.abs(want))


@BOTH
@pytest.mark.parametrize("slides", ARMS)
def test_torch_finds_the_same_likelihood_and_derivatives(kind, slides):
    pytest.importorskip("torch")
    kernel, log, noise, x, y = whole_kernel(kind, slides, 12)
    value, *by = likelihood_gradient(kernel, log, noise, x, y)
    found, *by_torch = TensorLikelihood("cpu").gradient(kernel, log, noise, x, y)
    assert found == pytest.approx(value, rel=1e-12)
    by, by_torch = np.concatenate(by), np.concatenate(by_torch)
    # Where a factor p is near zero, both divide by it and lose digits.
    assert np.max(np.abs(by - by_torch)) < 1e-8 * np.max(np.abs(by))
    with pytest.raises(ParameterError, match="device 'nonsense'"):
        TensorLikelihood("nonsense")


def test_a_device_needs_torch(monkeypatch):
    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(ParameterError, match="'cuda' needs torch"):
        TensorLikelihood("cuda")


def test_parts_add_what_they_say():
    rng = np.random.default_rng(4)
    x = MotionSamples(*rng.uniform(-2.0, 2.0, (3, 5, 2)), [False, False])
    kernel = lip_kernel(2, friction=True, residual=True)
    log = 0.3 * rng.normal(size=kernel.count)
    _, friction, se = kernel.split(log)
    rest = kernel.matrix(log, x, x) - SumKernel(kernel.parts[:1]).matrix(kernel.split(log)[0], x, x)
    for r, j, a, b in product(range(5), range(5), range(2), range(2)):
        want = 0.0
        if a == b:
            gamma, part = np.exp(friction[2 * a : 2 * a + 2]), np.exp(se.reshape(2, 7)[a])
            phi = [np.array([m, np.sign(m)]) for m in (x.qd[r, a], x.qd[j, a])]
            want = float(phi[0] @ (gamma * phi[1]))
            want += part[0] * np.exp(-np.sum(((x.inputs[r] - x.inputs[j]) / part[1:]) ** 2))
        assert rest[2 * r + a, 2 * j + b] == pytest.approx(want, abs=1e-12)
