"""Cuts: every real payload satisfies them, mutated ones are found."""

from fractions import Fraction
from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from safe_sysid.errors import ConfigError, ParameterError
from safe_sysid.identification.bounds.consistency import (
    GRID,
    CutSet,
    box_cuts,
    density_cuts,
    face_functions,
    on_grid,
    semidefinite_cuts,
    tangent_cuts,
)
from safe_sysid.identification.bounds.payload_constraints import PayloadBox, PayloadConstraints
from safe_sysid.robot import load_robot
from safe_sysid.robot.parameters import inertia_from_com, pseudo_inertia
from safe_sysid.simulation.arms import hand_box

UNITS = np.stack([pseudo_inertia(unit) for unit in np.eye(10)])


def rotation(rng):
    q, r = np.linalg.qr(rng.normal(size=(3, 3)))
    q = q * np.sign(np.diag(r))
    return q * np.linalg.det(q)


def payload_box(rng, density=np.inf):
    size = rng.uniform(0.02, 0.4, 3)
    return PayloadBox(rng.uniform(-0.2, 0.2, 3), size, rotation(rng), rng.uniform(-0.3, 0.3, 3), density)


def place(box, points):
    """Points (K, 3) of the box's own coordinates in [-1, 1]^3, in the last joint's frame."""
    return (box.center + 0.5 * box.size * points) @ box.rotation.T + box.translation


def cloud(rng, box, mode):
    """A payload of point masses inside the box: anywhere, on faces, at corners, or one point."""
    count = 1 if mode == "point" else int(rng.integers(1, 9))
    points = rng.uniform(-1, 1, (count, 3))
    if mode == "faces":
        points[np.arange(count), rng.integers(0, 3, count)] = rng.choice([-1.0, 1.0], count)
    if mode in ("corners", "point"):
        points = rng.choice([-1.0, 1.0], (count, 3))
    masses = 10.0 ** rng.uniform(-3, 1, count)
    return sum(inertia_from_com(m, x, np.zeros((3, 3))) for m, x in zip(masses, place(box, points), strict=True))


def solid(rng, box, mode):
    """A payload of density at most the box's: a grid of cells, each full, partly full or empty."""
    cells = rng.integers(1, 4, 3)
    fill = rng.uniform(0, 1, cells) if mode == "any" else rng.integers(0, 2, cells).astype(float)
    if mode == "slab":  # the worst case of the second moment: a layer across one edge, full
        axis, share = int(rng.integers(3)), rng.uniform(0.05, 1.0)
        half = np.ones(3)
        half[axis] = share
        return cell(box, np.zeros(3), half, 1.0)
    if not fill.any():
        fill[0, 0, 0] = 1.0
    theta = np.zeros(10)
    for index in product(*(range(c) for c in cells)):
        theta += cell(box, (2 * np.array(index) + 1) / cells - 1.0, 1.0 / cells, fill[index])
    return theta


def cell(box, middle, half, share):
    size = half * box.size
    mass = share * box.density * float(np.prod(size))
    moments = np.diag([np.sum(np.delete(size, k) ** 2) for k in range(3)]) * mass / 12.0
    return inertia_from_com(mass, place(box, middle[None])[0], box.rotation @ moments @ box.rotation.T)


def excess(cuts, theta):
    """(K,) left side less right side, over the size of what is added up."""
    g = cuts.coefficients()
    return (g @ theta - cuts.constant) / (np.abs(g) @ np.abs(theta) + np.abs(cuts.constant) + 1e-300)


ROUNDING = 1e-14  # of the test's own payloads


@settings(max_examples=150, deadline=None)
@given(st.integers(0, 2**32 - 1), st.sampled_from(["anywhere", "faces", "corners", "point"]))
def test_every_payload_in_the_box_satisfies_every_cut(seed, mode):
    rng = np.random.default_rng(seed)
    box = payload_box(rng)
    theta = cloud(rng, box, mode)
    cuts = [box_cuts(box.functions()), semidefinite_cuts(rng.normal(size=(20, 4)))]
    cuts.append(semidefinite_cuts(np.linalg.eigh(pseudo_inertia(theta))[1].T))  # where it is nearest to being broken
    assert np.all(excess(CutSet.concatenate(cuts), theta) >= -ROUNDING)


@settings(max_examples=100, deadline=None)
@given(st.integers(0, 2**32 - 1), st.sampled_from(["any", "full", "slab"]))
def test_every_payload_of_that_density_satisfies_every_cut(seed, mode):
    rng = np.random.default_rng(seed)
    box = payload_box(rng, 10.0 ** rng.uniform(2, 4))
    theta = solid(rng, box, mode)
    axis = rng.integers(0, 3, 30)
    offset = -(theta[1:4] @ box.rotation[:, axis]) / theta[0] + rng.choice([0.0, 0.1], 30) * rng.normal(size=30)
    functions = on_grid(np.column_stack([box.rotation[:, axis].T, offset]))
    areas = np.prod(box.size) / box.size[axis]
    masses = theta[0] * rng.choice([1.0, 0.5, 2.0, 1e-3], 30)
    tangents = tangent_cuts(functions, areas, masses, box.density)
    cuts = CutSet.concatenate([tangents, density_cuts(box.size, box.density), box_cuts(box.functions())])
    assert np.all(excess(cuts, theta) >= -ROUNDING)
    assert not len(PayloadConstraints(theta, theta, box=box).separate(theta[None] * np.ones((2, 1)), 1e-9))


def mutants(box, theta, what):
    if what == "box_shrunk":
        return box_cuts(face_functions(box.center, 0.9 * box.size, box.rotation, box.translation))
    if what == "wrong_frame":
        return box_cuts(face_functions(box.center, box.size, box.rotation.T, box.translation))
    if what == "wrong_origin":
        return box_cuts(face_functions(box.center, box.size, box.rotation, np.zeros(3)))
    if what == "wrong_pair":  # the product of faces of two different boxes is not positive
        faces = face_functions(box.center, box.size, box.rotation, box.translation)
        return box_cuts(np.vstack([faces, -faces[:1]]))
    if what == "density":
        return density_cuts(box.size, 0.9 * box.density)
    centre = -(theta[1:4] @ box.rotation) / theta[0]
    functions = np.column_stack([box.rotation.T, centre])
    areas = np.prod(box.size) / box.size * (0.9 if what == "section" else 1.0)
    return tangent_cuts(functions, areas, np.full(3, theta[0]), box.density)


@pytest.mark.parametrize(
    ("what", "mode", "found"),
    [("box_shrunk", "corners", 40), ("wrong_frame", "corners", 40), ("wrong_origin", "corners", 40),
     ("wrong_pair", "anywhere", 40), ("density", "slab", 1), ("section", "slab", 40), ("none", "slab", 0)],
)  # fmt: skip
def test_mutated_cuts_are_found(what, mode, found):
    broken = 0
    for seed in range(50):
        rng = np.random.default_rng(seed)
        box = payload_box(rng, 3000.0)
        theta = solid(rng, box, mode) if mode == "slab" else cloud(rng, box, mode)
        broken += bool(np.any(excess(mutants(box, theta, what), theta) < -1e-6))
    assert broken >= found
    assert found or not broken


def test_tangents_touch():
    """The bound on the second moment is attained by a full layer: it cannot be raised."""
    rng = np.random.default_rng(3)
    box = payload_box(rng, 2000.0)
    theta = cell(box, np.zeros(3), np.array([0.3, 1.0, 1.0]), 1.0)
    a = box.rotation[:, 0]
    function = np.array([[*a, -(a @ theta[1:4]) / theta[0]]])
    cut = tangent_cuts(function, [box.size[1] * box.size[2]], [theta[0]], box.density)
    moment = on_grid(function)[0] @ pseudo_inertia(theta) @ on_grid(function)[0]
    assert 0.0 <= cut.coefficients()[0] @ theta - cut.constant[0] <= 1e-3 * moment


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 2**32 - 1))
def test_coefficients_are_exact(seed):
    rng = np.random.default_rng(seed)
    u, v = on_grid(rng.uniform(-32, 32, (2, 3, 4)) * 10.0 ** rng.uniform(-5, 0, (2, 3, 4)))
    mass = on_grid(rng.uniform(0, 1, 3))
    g = CutSet(u, v, mass, np.zeros(3), np.full(3, "box")).coefficients()
    for k, p in product(range(3), range(10)):
        exact = sum(
            Fraction(u[k, i]) * Fraction(UNITS[p, i, j]) * Fraction(v[k, j]) for i in range(4) for j in range(4)
        ) - (Fraction(mass[k]) if p == 0 else 0)
        assert Fraction(g[k, p]) == exact


def test_cuts_off_the_grid_are_refused():
    zero = np.zeros((1, 4))
    for u in (np.full((1, 4), 0.1), np.full((1, 4), 64.0), np.full((1, 4), np.nan)):
        with pytest.raises(ParameterError, match=r"CutSet\.u"):
            CutSet(u, zero, np.zeros(1), np.zeros(1), np.array(["box"]))
    with pytest.raises(ParameterError, match="payload box"):
        face_functions([20.0, 0, 0], [1, 1, 1], np.eye(3), np.zeros(3))


def test_faces_are_positive_at_the_exact_corners():
    for seed in range(40):
        rng = np.random.default_rng(seed)
        box = payload_box(rng)
        middle, size, turn, shift, faces = (
            np.vectorize(Fraction)(x) for x in (box.center, box.size, box.rotation, box.translation, box.functions())
        )
        for signs in product((-1, 1), repeat=3):
            corner = turn @ (middle + size * signs / 2) + shift
            for f in faces:
                value = f[:3] @ corner + f[3]
                assert value >= 0
                assert value <= 1 or f[3] != 1.0


# --- configuration ----------------------------------------------------------------------------------------------------


def test_configuration_of_payload_knowledge():
    model = load_robot("kinova_gen3")
    plain = PayloadConstraints.from_model(model)
    assert plain.box is None
    assert np.array_equal(plain.opening, model.settings.payload.hand_opening)
    assert np.all(plain.hand_lower <= model.theta_nominal[60:70])
    assert np.all(model.theta_nominal[60:70] <= plain.hand_upper)
    for drawn, declared, sign in zip(hand_box(model), model.hand_prior, (1.0, -1.0), strict=True):
        assert np.all(sign * (drawn - declared) >= 0.0)  # what the simulation draws from lies inside
    boxed = PayloadConstraints.from_model(load_robot("kinova_gen3", **{"payload.box": "envelope"}))
    assert np.array_equal(boxed.box.size, model.settings.payload.envelope.size)
    assert np.isinf(boxed.box.density)
    given = {"payload.box": {"center": [0.0, 0.0, 0.1], "size": [0.1, 0.1, 0.1]}, "payload.density": [0.0, 8000.0]}
    dense = PayloadConstraints.from_model(load_robot("kinova_gen3", **given))
    assert dense.box.density == 8000.0
    assert len(dense.fixed) == len(boxed.fixed) + 1
    for bad in (
        {"payload.density": [0.0, 8000.0]},
        {"payload.box": "envelope", "payload.density": [9.0, 8.0]},
        {"payload.box": "everything"},
        {"payload.hand_opening": [-1.0] + 9 * [0.0]},
        {"identification.method": "guess"},
    ):
        with pytest.raises(ConfigError):
            load_robot("kinova_gen3", **bad)


def test_grid_keeps_what_matters():
    assert GRID == 2.0**-20
    assert not len(semidefinite_cuts(np.zeros((2, 4))))
    assert not len(semidefinite_cuts(np.full((1, 4), np.nan)))
