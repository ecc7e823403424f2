"""Cuts and the dual expression: accepted is only what holds, proved only what follows."""

from __future__ import annotations

import ast
import sys
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import linprog

import safe_sysid.identification.certificates as certificates
from safe_sysid.identification.bounds.consistency import box_cuts, density_cuts, semidefinite_cuts, tangent_cuts
from safe_sysid.identification.bounds.payload_constraints import PayloadBox
from safe_sysid.identification.certificates.cuts import PayloadDeclaration, cut_coefficients, cut_refusal
from safe_sysid.identification.certificates.dual import proved_lower, proved_upper
from safe_sysid.identification.certificates.interval_dynamics.arrays import IntervalArray
from safe_sysid.robot.parameters import pseudo_inertia

FOLDER = Path(certificates.__file__).parent
ONE = np.array([0.0, 0.0, 0.0, 1.0])


def declaration(rng, density=np.inf):
    """(declared box, the same as the identifier's PayloadBox) in a random pose."""
    rotation = np.linalg.qr(rng.normal(size=(3, 3)))[0]
    rotation *= np.sign(np.linalg.det(rotation))
    translation, center, size = (rng.uniform(-0.3, 0.3, 3), rng.uniform(-0.1, 0.1, 3), rng.uniform(0.02, 0.3, 3))
    signs = np.array([[a, b, c] for a in (-1, 1) for b in (-1, 1) for c in (-1, 1)])
    corners = (center + 0.5 * signs * size) @ rotation.T + translation
    near = (IntervalArray(x - 1e-15, x + 1e-15) for x in (corners, rotation))
    declared = PayloadDeclaration(*near, size, density)
    return declared, PayloadBox(center, size, rotation, translation, density)


def body(rng, box, count=6):
    """(10,) of point masses in a box: what any payload in it is made of."""
    local = box.center + 0.5 * box.size * np.sign(rng.normal(size=(count, 3))) * rng.uniform(0, 1, (count, 3)) ** 0.2
    theta = np.zeros(10)
    for p, m in zip(local @ box.rotation.T + box.translation, rng.uniform(0.0, 2.0, count), strict=True):
        i = m * (p @ p * np.eye(3) - np.outer(p, p))
        theta += [m, *(m * p), i[0, 0], i[0, 1], i[1, 1], i[0, 2], i[1, 2], i[2, 2]]
    return theta


def refusals(cuts, declared):
    return [
        cut_refusal(cuts.u[k], cuts.v[k], cuts.mass[k], cuts.constant[k], str(cuts.kind[k]), declared)
        for k in range(len(cuts))
    ]


@given(seed=st.integers(0, 2**31))
@settings(max_examples=100, deadline=None)
def test_coefficients_are_those_of_the_pseudo_inertia(seed):
    rng = np.random.default_rng(seed)
    u, v, mass, theta = rng.normal(size=4), rng.normal(size=4), rng.normal(), rng.normal(size=10)
    g = cut_coefficients(u, v, mass)
    expected = u @ pseudo_inertia(theta) @ v - mass * theta[0]
    assert g.lo @ theta == pytest.approx(expected, abs=1e-12)
    assert np.all(g.hi - g.lo <= 1e-14 * (1 + np.abs(g.hi)))


@pytest.mark.parametrize("seed", range(5))
def test_the_identifiers_own_cuts_are_accepted(seed):
    rng = np.random.default_rng(seed)
    declared, box = declaration(rng, 3000.0)
    assert refusals(box_cuts(box.functions()), declared) == 28 * [None]
    assert refusals(semidefinite_cuts(rng.normal(size=(5, 4))), PayloadDeclaration()) == 5 * [None]
    assert refusals(density_cuts(box.size, 3000.0), declared) == [None]
    edges = [np.append(box.rotation[:, j], rng.uniform(-0.2, 0.2)) for j in range(3)]
    areas = [float(np.prod(np.delete(box.size, j))) for j in range(3)]
    tangents = tangent_cuts(np.array(edges), np.array(areas), rng.uniform(0.1, 3.0, 3), 3000.0)
    assert refusals(tangents, declared) == 3 * [None]


@given(seed=st.integers(0, 2**31), kind=st.sampled_from(["semidefinite", "box"]), same=st.booleans())
@settings(max_examples=150, deadline=None)
def test_accepted_cuts_hold_for_every_body_in_the_box(seed, kind, same):
    rng = np.random.default_rng(seed)
    declared, box = declaration(rng)
    u = np.append(rng.normal(size=3), rng.uniform(0, 0.8)) if rng.random() < 0.7 else box.functions()[rng.integers(7)]
    v = u if same else np.append(rng.normal(size=3), rng.uniform(0, 0.8))
    mass, constant = -rng.random() * (rng.random() < 0.3), -rng.random() * (rng.random() < 0.3)
    if cut_refusal(u, v, mass, constant, kind, declared) is None:
        for _ in range(10):
            theta = body(rng, box)
            assert u @ pseudo_inertia(theta) @ v >= mass * theta[0] + constant - 1e-12


@given(seed=st.integers(0, 2**31))
@settings(max_examples=100, deadline=None)
def test_accepted_density_cuts_hold_for_bodies_of_that_density(seed):
    """Slabs across an edge are the worst bodies: nothing of that density is flatter."""
    rng = np.random.default_rng(seed)
    density = 10.0 ** rng.uniform(2, 4)
    declared, box = declaration(rng, density)
    j = int(rng.integers(3))
    area = float(np.prod(np.delete(box.size, j)))
    width = rng.uniform(0.05, 1.0) * box.size[j]
    mass = density * area * width
    # A solid slab: mass, mean and second moments of a box, in the last joint's frame.
    one = np.arange(3) == j
    center = box.center + 0.5 * (box.size[j] - width) * rng.uniform(-1, 1) * one
    edges = np.where(one, width, box.size)
    at = box.rotation @ center + box.translation
    sigma = mass * (box.rotation @ np.diag(edges**2 / 12.0) @ box.rotation.T + np.outer(at, at))
    j_matrix = np.zeros((4, 4))
    j_matrix[:3, :3], j_matrix[:3, 3], j_matrix[3, :3], j_matrix[3, 3] = sigma, mass * at, mass * at, mass
    a = box.rotation[:, j]
    u = np.append(a, -a @ at)
    slope = (mass / (2.0 * density * area)) ** 2
    needed = -(4.0 / 3.0) * density * area * slope**1.5
    tangent = (u, u, slope, needed * (1.0 + 1e-9), "density")
    assert cut_refusal(*tangent, declared) is None
    assert u @ j_matrix @ u >= slope * mass + tangent[3] - 1e-12
    # The slab touches: with a little less allowance the cut would be false, and is refused.
    assert cut_refusal(u, u, slope, needed * (1.0 - 1e-6), "density", declared) is not None
    assert u @ j_matrix @ u < slope * mass + needed * (1.0 - 1e-6)
    zero = np.zeros(4)
    largest = density * float(np.prod(box.size))
    assert cut_refusal(zero, zero, 1.0, -largest * (1.0 + 1e-9), "density", declared) is None
    assert cut_refusal(zero, zero, 1.0, -largest * (1.0 - 1e-9), "density", declared) is not None


def test_forged_cuts_are_refused():
    rng = np.random.default_rng(0)
    declared, box = declaration(rng, 2000.0)
    f, v = box.functions(), rng.normal(size=4)
    narrow = f[0] - [0.0, 0.0, 0.0, 1e-4]
    for u, w, mass, constant, kind, why in (
        (v, np.nextafter(v, 9.0), 0.0, 0.0, "semidefinite", "u != v"),
        (v, v, 0.0, 1e-12, "semidefinite", "right-hand side"),
        (v, v, 1e-12, 0.0, "semidefinite", "right-hand side"),
        (narrow, ONE, 0.0, 0.0, "box", "at a corner"),
        (f[0], -ONE, 0.0, 0.0, "box", "at a corner"),
        (f[0], f[1], 0.0, 1e-9, "box", "right-hand side"),
        (f[0], f[1], 0.1, -0.1, "density", "u != v"),
        (f[0], f[0], 0.1, 0.1, "density", "constant"),
    ):
        assert why in str(cut_refusal(u, w, mass, constant, kind, declared)), why
    nothing = PayloadDeclaration()
    assert "no payload box" in str(cut_refusal(f[0], ONE, 0.0, 0.0, "box", nothing))
    assert "no largest density" in str(cut_refusal(0 * f[0], 0 * f[0], 1.0, -1.0, "density", nothing))
    assert cut_refusal(ONE, ONE, 0.0, 0.0, "box", nothing) is None  # a mass is never negative


def program(rng, m=12, k=4, size=6):
    """A polytope around a known point, as interval rows, sides, cuts and box."""
    x = rng.uniform(-1, 1, size)
    a, g = rng.normal(size=(m, size)), rng.normal(size=(k, size))
    spread = 10.0 ** rng.uniform(-12, -3)
    rows = np.stack([a - spread, a + spread], axis=-1)
    slack = rng.uniform(0.01, 0.5, m)
    sides = np.column_stack([a @ x - slack, a @ x + slack])
    cuts, constants = np.stack([g, g], axis=-1), g @ x - rng.uniform(0.0, 0.3, k)
    box = np.column_stack([x - rng.uniform(0, 1, size), x + rng.uniform(0, 1, size)])
    return x, a, g, rows, sides, cuts, constants, box


@given(seed=st.integers(0, 2**31))
@settings(max_examples=30, deadline=None)
def test_any_multipliers_are_sound_and_good_ones_tight(seed):
    rng = np.random.default_rng(seed)
    x, a, g, rows, sides, cuts, constants, box = program(rng)
    for index in range(3):
        y, multipliers = rng.normal(size=12), rng.uniform(0, 1, 4)
        up = proved_upper(index, rows, sides, y, cuts, constants, multipliers, box)
        low = proved_lower(index, rows, sides, y, cuts, constants, multipliers, box)
        assert low <= x[index] <= up
        assert box[index, 0] <= low
        assert up <= box[index, 1]
        # Multipliers of the linear program: what they prove is its optimum, up to the rows' widths.
        exact, right = np.stack([a, a], axis=-1), np.concatenate([sides[:, 1], -sides[:, 0], -constants])
        for sign, proved in ((-1.0, proved_upper), (1.0, proved_lower)):
            found = linprog(sign * np.eye(6)[index], np.vstack([a, -a, -g]), right, bounds=box)
            dual = -found.ineqlin.marginals
            y = sign * (dual[12:24] - dual[:12])
            best = proved(index, exact, sides, y, cuts, constants, dual[24:], box)
            assert found.fun - 1e-7 <= sign * best <= found.fun + 1e-12


@given(seed=st.integers(0, 2**31))
@settings(max_examples=60, deadline=None)
def test_no_rounding_is_lost(seed):
    """The expression in exact fractions, for rows anywhere in their intervals, is never beyond what is proved."""
    rng = np.random.default_rng(seed)
    _, _, _, rows, sides, cuts, constants, box = program(rng, 5, 2, 4)
    y, multipliers = rng.normal(size=5) * 10.0 ** rng.integers(-3, 6), rng.uniform(0, 1, 2)
    wide = box + np.array([-1e6, 1e6])
    proved = proved_upper(1, rows, sides, y, cuts, constants, multipliers, wide)
    where = rng.choice([0, 1], (5, 4))
    a = np.take_along_axis(rows, where[..., None], axis=-1)[..., 0]
    f = Fraction
    r = [f(int(p == 1)) for p in range(4)]
    total = f(0)
    for i in range(5):
        r = [r[p] - f(float(y[i])) * f(float(a[i, p])) for p in range(4)]
        total += max(f(float(y[i])) * f(float(s)) for s in sides[i])
    for k in range(2):
        r = [r[p] + f(float(multipliers[k])) * f(float(cuts[k, p, 0])) for p in range(4)]
        total -= f(float(multipliers[k])) * f(float(constants[k]))
    total += sum(max(r[p] * f(float(b)) for b in wide[p]) for p in range(4))
    assert f(proved) >= min(total, f(float(wide[1, 1])))


def test_useless_multipliers_prove_the_box_and_negative_ones_nothing():
    rng = np.random.default_rng(0)
    _, _, _, rows, sides, cuts, constants, box = program(rng)
    none, zero = np.zeros(12), np.zeros(4)
    assert proved_upper(2, rows, sides, none, cuts, constants, zero, box) == box[2, 1]
    assert proved_lower(2, rows, sides, none, cuts, constants, zero, box) == box[2, 0]
    for bad in (np.nan, np.inf):
        assert proved_upper(2, rows, sides, none + bad, cuts, constants, zero, box) == box[2, 1]
    assert proved_upper(2, rows, sides, none, cuts, constants, zero - 1e-9, box) == np.inf
    assert proved_upper(2, rows, sides, none + 1e300, cuts, constants, zero, box) == box[2, 1]


ALLOWED = {
    "safe_sysid", "safe_sysid.errors", "safe_sysid.input_limits", "safe_sysid.whole_files", "safe_sysid.intervals",
    "safe_sysid.core.arrays",
    "safe_sysid.core.layout",  # the order of parameters: what their names mean, nothing that is computed from them
    "safe_sysid.robot.config", "safe_sysid.robot.model", "safe_sysid.robot.parameters", "safe_sysid.robot.unknowns",
    "safe_sysid.robot.identity", "safe_sysid.identification.digest",
    "safe_sysid.identification.equations.measurement_errors",
    "safe_sysid.identification.equations.measurements",
}  # fmt: skip


@pytest.mark.parametrize("path", sorted(FOLDER.rglob("*.py")), ids=lambda path: f"{path.parent.name}-{path.stem}")
def test_the_checker_shares_nothing_with_what_it_checks(path):
    """No solver, no Pinocchio, no row, regressor or bound of the identifier: only declarations and plain data."""
    imported = set()
    skipped: set[ast.AST] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING":
            skipped |= set(ast.walk(node))
        if node in skipped:
            continue
        if isinstance(node, ast.Import):
            imported |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            imported.add(str(node.module))
    ours = {name for name in imported if name.startswith("safe_sysid")}
    foreign = {name.partition(".")[0] for name in imported - ours} - set(sys.stdlib_module_names)
    assert foreign <= {"numpy", "numba", "pydantic"}
    assert {name for name in ours if not name.startswith("safe_sysid.identification.certificates.")} <= ALLOWED


def test_only_declarations_come_from_the_identifiers_modules():
    """Of those modules no function that a bound rests on is used."""
    for path in FOLDER.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ImportFrom) and str(node.module).endswith(("measurement_errors", "measurements")):
                assert {alias.name for alias in node.names} <= {"MeasurementErrors", "Measurements"}
