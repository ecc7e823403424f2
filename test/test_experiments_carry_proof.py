"""What a carry is proved against is what the work cell's file declares, no more and no less."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from safe_sysid.identification.equations.measurements import Sample
from safe_sysid.studies.experiments.carry_proof import CarryProof, start_share, with_box_around
from safe_sysid.studies.experiments.cell.dumbbells import in_hand
from safe_sysid.studies.experiments.cell.make_motions import surroundings
from safe_sysid.studies.experiments.cell.workcell import load_workcell

pytestmark = pytest.mark.unproved

#: Half of what four exciting plans leave, m to Izz.
HALF = np.array([0.09, 0.0007, 0.001, 0.012, 0.009, 0.0046, 0.0106, 0.0065, 0.0057, 0.0073])


@pytest.fixture(scope="module")
def proved(model):
    """Work cell c: proof, carry, a box around the truth, gains, what stands around."""
    cell = load_workcell("c")
    proof, task, prior = CarryProof.of(model, cell), cell.tasks[0], model.arm_prior
    middle = 0.5 * (prior.payload_lower + prior.payload_upper)
    box = prior.with_payload(
        np.maximum(middle - HALF, prior.payload_lower), np.minimum(middle + HALF, prior.payload_upper), 1
    )
    gains = proof.gains("8lb", task.carry, box)
    return proof, task.carry, box, gains, surroundings(cell, "8lb")


def payload_points(arm):
    return next(body for body in arm.bodies if body.kind == "payload").points


def test_the_payload_s_box_holds_every_solid_and_nothing_to_spare(model):
    """Support in the tool's own axes is the solids', rounded outwards; in any direction at least theirs."""
    rotation, position = model.flange
    rng = np.random.default_rng(0)
    for item in load_workcell("a").dumbbells:
        payload = in_hand(item.payload)
        points = (payload_points(with_box_around(model, payload)) - position) @ rotation
        for direction in [*np.eye(3), *-np.eye(3)]:
            most = max(shape.support(direction) for shape in payload.shapes)
            assert most < np.max(points @ direction) < most + 1e-8
        for direction in rng.normal(size=(100, 3)):
            assert np.max(points @ direction) > max(shape.support(direction) for shape in payload.shapes)


def test_only_shape_and_torque_limits_are_others(model):
    cell = load_workcell("a")
    arm = CarryProof.of(model, cell).arm("5lb")
    assert np.array_equal(arm.limits.torque, cell.criteria.torque)
    assert np.array_equal(arm.limits.velocity, model.limits.velocity)
    assert np.array_equal(arm.theta_nominal, model.theta_nominal)
    assert np.array_equal(arm.arm_prior.upper, model.arm_prior.upper)
    assert [b.name for b in arm.bodies if b.kind != "payload"] == [b.name for b in model.bodies if b.kind != "payload"]
    # What is not in the file has the configuration's envelope, and the configuration's limits.
    assert CarryProof(model).arm("5lb") is model
    assert np.array_equal(payload_points(CarryProof.of(model, cell).arm("brick")), payload_points(model))


def test_a_carry_is_certified_and_a_smaller_limit_or_a_larger_payload_is_seen(proved, model):
    proof, carry, box, gains, scene = proved
    told = proof.judge("8lb", carry, box, gains, scene)
    assert told["certified"], told["certificate"]
    assert told["warning_margin"] < told["margins"]["torque"]
    less = np.asarray(proof.torque) - told["margins"]["torque"] - 0.1
    assert not replace(proof, torque=less).judge("8lb", carry, box, gains, scene)["certified"]
    lower = replace(proof, torque=np.asarray(model.limits.torque)).judge("8lb", carry, box, gains, scene)
    assert lower["margins"]["torque"] == pytest.approx(told["warning_margin"], abs=1e-6)
    big = [replace(s, size=tuple(1.3 * x for x in s.size)) for s in proof.payloads["8lb"].shapes]
    shapes = {"8lb": replace(proof.payloads["8lb"], shapes=tuple(big))}
    assert not replace(proof, payloads=shapes).judge("8lb", carry, box, gains, scene)["certified"]


@given(st.integers(0, 10**6))
@settings(max_examples=40, deadline=None)
def test_what_a_motion_may_begin_with(proved, seed):
    """A share of one is reached at the border of the theorem's start, and grows with the square of the error."""
    _, carry, _, gains, _ = proved
    rng = np.random.default_rng(seed)
    q, qd, *_ = carry.state(0.0)
    e, de = 1e-3 * rng.normal(size=(2, len(q)))

    def share(scale):
        at = Sample(0.0, q - scale * e, qd - scale * de, np.zeros(len(q)))
        return start_share(gains, carry, at)

    one = share(1.0)
    assert share(1e-6) < 1e-4 * one
    assert share(2.0) == pytest.approx(4.0 * one, rel=1e-3)
    r = de + gains.K_r * e
    assert 0.5 * np.sum(gains.inertia_lower * r * r) <= one * gains.V_start * (1.0 + 1e-9)


def test_a_carry_that_begins_with_too_large_an_error_is_not_certified(proved):
    proof, carry, box, gains, scene = proved
    q = carry.state(0.0)[0]
    for off, fits in ((0.0, True), (2.0 * float(np.max(gains.e_bound)), False)):
        at = Sample(0.0, q + off, 0.0 * q, 0.0 * q)
        told = proof.judge("8lb", carry, box, gains, scene, at)
        assert told["certified"] == (told["start"] <= 1.0) == fits
