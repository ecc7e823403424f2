"""Inertial parameters: maps and their inverses, frames, consistency, boxes."""

from fractions import Fraction

import numpy as np
import pinocchio as pin
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from safe_sysid.errors import ParameterError
from safe_sysid.robot import (
    ParameterBox,
    com_and_inertia,
    from_log_cholesky,
    inertia_from_com,
    is_consistent,
    log_cholesky,
)
from safe_sysid.robot.parameters import pseudo_inertia, pseudo_inertia_to_theta, transform_inertial

etas = hnp.arrays(float, 10, elements=st.floats(-1.5, 1.5))


@given(etas)
def test_log_cholesky_is_consistent_and_maps_are_inverted(eta: np.ndarray) -> None:
    theta = from_log_cholesky(eta)
    assert np.linalg.eigvalsh(pseudo_inertia(theta))[0] > 0.0
    np.testing.assert_allclose(log_cholesky(theta), eta, atol=1e-9 * (1 + np.max(np.abs(theta))))
    np.testing.assert_allclose(pseudo_inertia_to_theta(pseudo_inertia(theta)), theta, atol=1e-12 * np.abs(theta).max())


def test_log_cholesky_refuses_inconsistent_parameters() -> None:
    theta = np.array([1.0, 0, 0, 0, 1.0, 0, 0.1, 0, 0, 0.1])  # violates the triangle inequality
    assert not is_consistent(theta)
    with pytest.raises(ParameterError, match="positive definite"):
        log_cholesky(theta)


@given(etas, st.integers(0, 2**31))
def test_transform_equals_pinocchio(eta: np.ndarray, seed: int) -> None:
    theta = from_log_cholesky(eta)
    rng = np.random.default_rng(seed)
    quaternion = rng.normal(size=4)
    pose = pin.SE3(pin.Quaternion(quaternion / np.linalg.norm(quaternion)).toRotationMatrix(), rng.uniform(-1, 1, 3))
    mass, com, inertia = com_and_inertia(theta)
    expected = pose.act(pin.Inertia(mass, com, inertia)).toDynamicParameters()
    found = transform_inertial(pose.rotation, pose.translation, theta)
    np.testing.assert_allclose(found, expected, atol=1e-9 * np.abs(expected).max())
    np.testing.assert_allclose(inertia_from_com(mass, com, inertia), theta, atol=1e-9 * np.abs(theta).max())


def test_point_masses_give_the_pseudo_inertia() -> None:
    rng = np.random.default_rng(3)
    points, masses = rng.normal(size=(8, 3)), rng.uniform(0.1, 1, 8)
    homogeneous = np.c_[points, np.ones(8)]
    theta = sum(inertia_from_com(m, p, np.zeros((3, 3))) for m, p in zip(masses, points, strict=True))
    np.testing.assert_allclose(pseudo_inertia(theta), (homogeneous.T * masses) @ homogeneous, atol=1e-12)


def box(n: int = 2) -> ParameterBox:
    rng = np.random.default_rng(n)
    lower = rng.normal(size=14 * n)
    return ParameterBox(lower, lower + rng.uniform(0, 2, 14 * n))


def test_box_refuses_bad_bounds_and_names_them() -> None:
    with pytest.raises(ParameterError, match=r"\[1\].*lower <= upper"):
        ParameterBox(np.array([0.0, 2.0]), np.array([1.0, 1.0]))
    with pytest.raises(ParameterError, match="finite"):
        ParameterBox(np.array([0.0, np.nan]), np.array([1.0, 1.0]))
    with pytest.raises(ParameterError, match="shape"):
        ParameterBox(np.zeros(3), np.zeros(4))
    with pytest.raises(ParameterError, match="epoch"):
        ParameterBox(np.zeros(3), np.zeros(3), epoch=-1)


@given(st.integers(0, 2**31), st.floats(0, 1))
def test_every_blend_is_nested_and_holds_the_target(seed: int, s: float) -> None:
    rng = np.random.default_rng(seed)
    outer = box()
    a, b = np.sort(rng.uniform(0, 1, (2, outer.size)), axis=0)
    ends = (np.clip(outer.lower + share * (outer.upper - outer.lower), outer.lower, outer.upper) for share in (a, b))
    inner = ParameterBox(*ends, seq=1)
    blend = outer.blend(inner, s)
    assert blend.is_inside(outer)
    assert inner.is_inside(blend)


def test_blend_refuses_boxes_that_are_not_nested() -> None:
    outer = box()
    with pytest.raises(ParameterError, match="inside"):
        outer.blend(ParameterBox(outer.lower - 1, outer.upper), 0.5)
    with pytest.raises(ParameterError, match="inside"):
        outer.blend(ParameterBox(outer.lower, outer.upper, epoch=1), 0.5)


def test_payload_block_is_the_last_link() -> None:
    outer = box(3)
    inner = outer.with_payload(outer.payload_lower, outer.payload_lower, seq=4)
    assert inner.identity == "0:4"
    assert inner.is_inside(outer)
    assert np.array_equal(inner.lower[20:30], inner.upper[20:30])


@given(st.integers(0, 2**31))
def test_mid_and_rad_cover_the_box(seed: int) -> None:
    rng = np.random.default_rng(seed)
    lower = rng.normal(size=14) * 10.0 ** rng.integers(-8, 8, 14)
    b = ParameterBox(lower, lower + np.abs(rng.normal(size=14)) * 10.0 ** rng.integers(-12, 4, 14))
    for ends in zip(b.mid, b.rad, b.lower, b.upper, strict=True):
        mid, rad, lower, upper = map(Fraction, ends)
        assert mid - rad <= lower <= upper <= mid + rad
