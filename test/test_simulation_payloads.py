"""Payloads: real solids, true inertia, and errors that say what is wrong."""

from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path

import numpy as np
import pinocchio as pin
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.spatial.transform import Rotation
from simulation_support import random_arm

from safe_sysid.errors import ParameterError
from safe_sysid.robot import Body, load_robot
from safe_sysid.robot.parameters import com_and_inertia, is_consistent
from safe_sysid.simulation.payloads import (
    DUMBBELLS,
    NO_PAYLOAD,
    POUND,
    Payload,
    check_inside_prior,
    dumbbell,
    payload_from_spec,
    theta_e_with_payload,
)
from safe_sysid.simulation.shapes import Shape

SOLIDS = pytest.mark.parametrize(
    ("kind", "size"), [("cylinder", (0.04, 0.2)), ("box", (0.1, 0.3, 0.05)), ("sphere", (0.07,))]
)
GAUSS = np.polynomial.legendre.leggauss(8)  # exact for the polynomials here


def integrate(shape: Shape, mass: float) -> np.ndarray:
    """Ten parameters of a homogeneous solid by quadrature over its volume, in the payload's frame."""
    x, w = GAUSS
    if shape.kind == "box":
        half = 0.5 * np.array(shape.size)
        grid = np.stack(np.meshgrid(*(x * h for h in half), indexing="ij"), axis=-1).reshape(-1, 3)
        weight = np.einsum("i,j,k->ijk", w, w, w).ravel() * half.prod()
    else:  # cylindrical coordinates; a sphere is a stack of discs
        angle = np.arange(16) * np.pi / 8.0
        radius = shape.size[0]
        half, points, weights = radius if shape.kind == "sphere" else 0.5 * shape.size[1], [], []
        for zi, wi in zip(x * half, w * half, strict=True):
            edge = np.sqrt(radius**2 - zi**2) if shape.kind == "sphere" else radius
            for r, wr in zip(0.5 * edge * (x + 1.0), 0.5 * edge * w, strict=True):
                points += [(r * np.cos(a), r * np.sin(a), zi) for a in angle]
                weights += [r * wr * wi * np.pi / 8.0] * len(angle)
        grid, weight = np.array(points), np.array(weights)
    position = grid @ shape.rotation.T + shape.position
    weight = weight * mass / weight.sum()
    second = np.einsum("i,ij,ik->jk", weight, position, position)
    i = np.trace(second) * np.eye(3) - second
    return np.array([weight.sum(), *(weight @ position), i[0, 0], i[0, 1], i[1, 1], i[0, 2], i[1, 2], i[2, 2]])


@SOLIDS
def test_inertia_of_a_solid_is_the_integral_over_it(kind: str, size: tuple[float, ...]) -> None:
    rng = np.random.default_rng(len(size))
    shape = Shape(kind, size, rng.normal(size=3), Rotation.random(random_state=rng).as_matrix())
    np.testing.assert_allclose(shape.inertial(2.7), integrate(shape, 2.7), rtol=0, atol=1e-12)


@SOLIDS
def test_bounding_box_touches_the_solid_and_holds_it(kind: str, size: tuple[float, ...]) -> None:
    rng = np.random.default_rng(3)
    shape = Shape(kind, size, rng.normal(size=3), Rotation.random(random_state=rng).as_matrix())
    if kind == "box":
        surface = rng.choice([-0.5, 0.5], (4000, 3)) * np.array(size)
    elif kind == "sphere":
        surface = rng.normal(size=(40000, 3))
        surface *= size[0] / np.linalg.norm(surface, axis=1)[:, None]
    else:
        angle = rng.uniform(0.0, 2.0 * np.pi, 40000)
        z = rng.choice([-0.5, 0.5], angle.size) * size[1]
        surface = np.stack([size[0] * np.cos(angle), size[0] * np.sin(angle), z], axis=1)
    points = surface @ shape.rotation.T + shape.position
    low, high = shape.bounding_box()
    assert np.all(points >= low - 1e-12)
    assert np.all(points <= high + 1e-12)
    np.testing.assert_allclose(points.min(axis=0), low, atol=1e-3)
    np.testing.assert_allclose(points.max(axis=0), high, atol=1e-3)


@pytest.mark.parametrize("name", DUMBBELLS)
def test_dumbbell_weighs_what_it_says_and_its_inertia_is_that_of_its_solids(name: str) -> None:
    payload = payload_from_spec(name)
    pounds = int(name[0])
    assert payload.theta[0] == pounds * 0.45359237
    handle, *heads = payload.shapes
    steel, iron = 7850.0 * handle.volume(), 7200.0 * heads[0].volume()
    assert steel + 2.0 * iron == pytest.approx(payload.theta[0], rel=1e-12)
    theta = integrate(handle, steel) + integrate(heads[0], iron) + integrate(heads[1], iron)
    np.testing.assert_allclose(payload.theta, theta, rtol=0, atol=1e-12)
    _, centre, inertia = com_and_inertia(payload.theta)
    np.testing.assert_allclose(centre, [0.0, 0.0, 0.14], atol=1e-12)
    assert inertia[1, 1] < 0.5 * inertia[0, 0]  # long along y
    assert inertia[0, 0] == pytest.approx(inertia[2, 2])
    low = np.min([s.bounding_box()[0] for s in payload.shapes], axis=0)
    high = np.max([s.bounding_box()[1] for s in payload.shapes], axis=0)
    assert 0.15 < high[1] - low[1] < 0.22  # m: as in the shop
    for head in heads:  # heads touch the handle's ends, neither overlapping nor apart
        gap = abs(head.position[1]) - 0.5 * head.size[1] - 0.5 * handle.size[1]
        assert abs(gap) < 1e-12


def test_dumbbell_goes_where_it_is_gripped() -> None:
    _, centre, _ = com_and_inertia(dumbbell(6, grip=(0.01, -0.02, 0.2)).theta)
    np.testing.assert_allclose(centre, [0.01, -0.02, 0.2], atol=1e-12)


@given(
    mass=st.floats(0.01, 20.0),
    centre=st.tuples(*[st.floats(-0.5, 0.5)] * 3),
    seconds=st.tuples(*[st.floats(1e-6, 0.5)] * 3),
    turn=st.tuples(*[st.floats(-3.0, 3.0)] * 3),
)
def test_numbers_are_mass_centre_and_inertia_about_the_centre(
    mass: float, centre: tuple[float, ...], seconds: tuple[float, ...], turn: tuple[float, ...]
) -> None:
    rotation = Rotation.from_rotvec(turn).as_matrix()
    i = rotation @ np.diag(sum(seconds) - np.array(seconds)) @ rotation.T
    text = ",".join(map(repr, map(float, (mass, *centre, i[0, 0], i[0, 1], i[1, 1], i[0, 2], i[1, 2], i[2, 2]))))
    payload = payload_from_spec(text)
    got_mass, got_centre, got_inertia = com_and_inertia(payload.theta)
    assert got_mass == mass
    np.testing.assert_allclose(got_centre, centre, atol=1e-12)
    np.testing.assert_allclose(got_inertia, i, atol=1e-12 * (1.0 + mass))
    assert is_consistent(payload.theta, 1e-12)


def test_a_flat_plate_and_a_point_are_bodies() -> None:
    payload_from_spec("1,0,0,0.1, 0.01,0,0.02,0,0,0.03")  # Izz = Ixx + Iyy exactly
    payload_from_spec("1,0,0,0.1, 0,0,0,0,0,0")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("1,2,3", r"3 numbers: expected ten, m,cx,cy,cz,Ixx,Ixy,Iyy,Ixz,Iyz,Izz"),
        ("1,0,0,0.1,0.1,0,0.1,0,0,0.1,7", r"11 numbers: expected ten"),
        ("1,0,0,zero,0.1,0,0.1,0,0,0.1", r"cz = 'zero': expected a number"),
        ("1,0,0,nan,0.1,0,0.1,0,0,0.1", r"cz = 'nan': expected a finite number"),
        ("1,0,0,0,0.1,0,inf,0,0,0.1", r"Iyy = 'inf': expected a finite number"),
        ("0,0,0,0,0.1,0,0.1,0,0,0.1", r"m = 0.0 kg: expected a positive mass"),
        ("-2,0,0,0,0.1,0,0.1,0,0,0.1", r"m = -2.0 kg: expected a positive mass"),
        ("1,0,0,0.1,0.01,0,0.01,0,0,0.03", r"0.01, 0.01, 0.03 break the triangle inequality \(0.03 > 0.02\)"),
        ("1,0,0,0.1,0.01,0.02,0.01,0,0,0.01", r"negative principal moment -0.01"),
        ("xlb", r"'xlb': expected none, a weight such as 2kg"),
        ("0g", r"0g: expected a positive weight, or none"),
        ("brick", r"'brick': expected none, a weight such as 2kg, .*, a .urdf file, or ten numbers"),
        ("/nowhere/thing.urdf", r"/nowhere/thing.urdf: no such file"),
    ],
)
def test_an_impossible_payload_is_refused_with_the_reason(text: str, message: str) -> None:
    with pytest.raises(ParameterError, match=message):
        payload_from_spec(text)


def test_no_payload_changes_nothing() -> None:
    model = random_arm(0, 3)
    hand = model.theta_nominal[20:30]
    assert payload_from_spec(" None ") is NO_PAYLOAD
    np.testing.assert_array_equal(theta_e_with_payload(model, hand, NO_PAYLOAD), hand)


LINK = """<link name="{name}">
  <inertial><origin xyz="0.01 0 0.02" rpy="0.3 0 0.1"/><mass value="{mass}"/>
    <inertia ixx="0.01" ixy="0.001" ixz="0" iyy="0.02" iyz="0" izz="0.015"/></inertial>
  <collision><origin xyz="0 0.1 0.03" rpy="0 0 0.5"/><geometry>{geometry}</geometry></collision>
</link>"""


def urdf(tmp_path: Path, body: str) -> str:
    path = tmp_path / "tool.urdf"
    path.write_text(f'<?xml version="1.0"?><robot name="tool">{body}</robot>')
    return str(path)


def two_links(joint: str, geometry: str = '<box size="0.1 0.2 0.3"/>') -> str:
    return (
        LINK.format(name="a", mass=1.5, geometry='<cylinder radius="0.02" length="0.1"/>')
        + LINK.format(name="b", mass=0.5, geometry=geometry)
        + f'<joint name="ab" type="{joint}"><parent link="a"/><child link="b"/>'
        '<origin xyz="0 0 0.2" rpy="0 1.2 0"/><axis xyz="0 0 1"/>'
        '<limit lower="-1" upper="1" effort="1" velocity="1"/></joint>'
    )


def test_urdf_with_fixed_links_is_one_body_in_its_root_frame(tmp_path: Path) -> None:
    payload = payload_from_spec(urdf(tmp_path, two_links("fixed")))
    local = pin.SE3(pin.rpy.rpyToMatrix(0.3, 0.0, 0.1), np.array([0.01, 0.0, 0.02]))
    about_centre = np.array([[0.01, 0.001, 0.0], [0.001, 0.02, 0.0], [0.0, 0.0, 0.015]])
    one = local.act(pin.Inertia(1.5, np.zeros(3), about_centre))
    fixed = pin.SE3(pin.rpy.rpyToMatrix(0.0, 1.2, 0.0), np.array([0.0, 0.0, 0.2]))
    two = fixed.act(local.act(pin.Inertia(0.5, np.zeros(3), about_centre)))
    np.testing.assert_allclose(payload.theta, (one + two).toDynamicParameters(), atol=1e-12)
    assert payload.name == "tool"
    assert [s.kind for s in payload.shapes] == ["cylinder", "box"]
    np.testing.assert_allclose(payload.shapes[0].position, [0.0, 0.1, 0.03])
    assert payload.shapes[0].size == (0.02, 0.1)
    assert payload.shapes[1].size == pytest.approx((0.1, 0.2, 0.3))


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (two_links("revolute"), r"moving joints ab: expected fixed joints only"),
        ('<link name="a"/>', r"total mass 0.0 kg: expected an <inertial> with positive mass"),
        ("<link", r"not a URDF that Pinocchio can read"),
        (two_links("fixed").replace('izz="0.015"', 'izz="0.5"'), r"break the triangle inequality"),
    ],
)
def test_a_urdf_that_is_no_rigid_body_is_refused(tmp_path: Path, body: str, message: str) -> None:
    with pytest.raises(ParameterError, match=message):
        payload_from_spec(urdf(tmp_path, body))


def test_hand_and_payload_add_up_in_the_last_joint_frame() -> None:
    model = random_arm(5, 4)
    payload = payload_from_spec("1.3,0.1,-0.2,0.05,0.02,0.003,0.03,-0.001,0.002,0.025")
    flange = pin.SE3(np.array(model.flange[0]), np.array(model.flange[1]))
    hand = model.theta_nominal[30:40]
    total = pin.Inertia.FromDynamicParameters(hand) + flange.act(pin.Inertia.FromDynamicParameters(payload.theta))
    np.testing.assert_allclose(theta_e_with_payload(model, hand, payload), total.toDynamicParameters(), atol=1e-12)


def test_a_payload_outside_the_prior_is_refused_by_name() -> None:
    model = load_robot("kinova_gen3")
    prior = "outside the prior"
    for numbers, message in (
        ("5.5,0,0,0.05,0.01,0,0.01,0,0,0.01", rf"payload numbers: m = 6.78\d+ kg .*joint_7\): {prior} \[1.2, 5.2\]"),
        ("3,0.3,0,0.1,0.01,0,0.01,0,0,0.01", rf"mcx = 0.8999\d+ kg m .*{prior} \[-0.4, 0.4\]"),
    ):
        payload = payload_from_spec(numbers)
        theta = theta_e_with_payload(model, model.theta_nominal[60:70], payload)
        with pytest.raises(ParameterError, match=message):
            check_inside_prior(model, theta, payload)


def test_a_payload_that_reaches_out_of_the_envelope_is_refused() -> None:
    rng = np.random.default_rng(0)
    bare = random_arm(1, 2)
    rotation, position = bare.flange
    corners = np.array([[x, y, z] for x in (-0.1, 0.1) for y in (-0.2, 0.2) for z in (0.0, 0.1)])
    envelope = Body("payload", 1, corners @ rotation.T + position, 0.0, "payload")
    model = random_arm(1, 2, bodies=(envelope,), allowed=frozenset())
    theta = model.theta_nominal[10:20]
    inside = Shape("cylinder", (0.05, 0.399), [0.0, 0.0, 0.05], Rotation.from_euler("x", 90, degrees=True).as_matrix())
    check_inside_prior(model, theta, Payload("in", np.zeros(10), (inside,)))
    outside = Shape("cylinder", (0.05, 0.401), inside.position, inside.rotation)
    with pytest.raises(ParameterError, match=r"payload out: a cylinder reaches from .*outside the envelope from"):
        check_inside_prior(model, theta, Payload("out", np.zeros(10), (inside, outside)))
    for _ in range(50):  # however turned: refused exactly when a point of it is outside
        box = Shape("box", (0.05, 0.1, 0.02), rng.uniform(-0.1, 0.15, 3), Rotation.random(random_state=rng).as_matrix())
        signs = np.array([[x, y, z] for x in (-0.5, 0.5) for y in (-0.5, 0.5) for z in (-0.5, 0.5)])
        points = (signs * box.size) @ box.rotation.T + box.position
        fits = bool(np.all(points >= corners.min(axis=0)) and np.all(points <= corners.max(axis=0)))
        with nullcontext() if fits else pytest.raises(ParameterError):
            check_inside_prior(model, theta, Payload("box", np.zeros(10), (box,)))


@pytest.mark.parametrize(
    ("text", "mass", "pieces"),
    [
        *(("2kg", 2.0, 3), ("1.5 kg", 1.5, 3), ("800g", 0.8, 3), ("4.4lb", 4.4 * POUND, 3)),
        *(("500g", 0.5, 1), ("1 g", 1e-3, 1), ("1lb", POUND, 1)),  # no more than a handle: a piece of one
    ],
)
def test_a_weight_is_a_dumbbell_or_a_piece_of_a_handle(text: str, mass: float, pieces: int) -> None:
    payload = payload_from_spec(text)
    assert payload.theta[0] == pytest.approx(mass, rel=1e-12)
    assert payload.name == text.replace(" ", "")
    assert len(payload.shapes) == pieces
    rod = payload.shapes[0]
    assert pieces > 1 or np.pi * rod.size[0] ** 2 * rod.size[1] * 7850.0 == pytest.approx(mass, rel=1e-12)
