"""The certificate: what it refuses, that it names the culprit, and that nothing breaks what it grants."""

from __future__ import annotations

import dataclasses
from types import SimpleNamespace

import numpy as np
import pytest
from arm_factory import random_arm
from plan_support import certify, gains_for, narrow_box, plan_of, reach_out, wild, with_limits
from reachability_attack import body_distances, sample_symbols, states_of
from reachability_support import random_box

from safe_sysid.dynamics import dynamics_of
from safe_sysid.errors import ConfigError, PlanError
from safe_sysid.planning.certification.certificate import FAMILIES, start_check, verify_plan
from safe_sysid.reachability.cells import TrackingSet, time_cells
from safe_sysid.reachability.clearance import clearance_pairs
from safe_sysid.robot.model import JointLimits, RobotModel
from safe_sysid.robot.parameters import ParameterBox
from safe_sysid.robot.scenes.scene import Scene, SceneBox, load_scene
from safe_sysid.trajectories.quintic import QuinticTrajectory

INF = np.inf


@pytest.fixture(scope="module")
def box(model: RobotModel) -> ParameterBox:
    return narrow_box(model)


def test_a_gentle_plan_is_certified_and_attacks_find_nothing(model: RobotModel, box: ParameterBox) -> None:
    scene = load_scene("six_boxes")
    trajectory = reach_out(model, np.asarray(scene.start), 0.1, seed=4)
    gains = gains_for(model, box, 0.02)
    certificate = verify_plan(plan_of(trajectory, box), model, box, scene, gains, clearance_margin=0.002)
    assert certificate.ok, certificate.summary()
    assert certificate.status == "certified"
    assert set(certificate.families) == set(certificate.margins) == set(FAMILIES)
    assert certificate.box_identity == "0:3"
    for family in FAMILIES:
        smallest, margins = certificate.families[family].value, certificate.margins[family]
        assert smallest == margins.min() >= 0.0
        assert margins.shape == (128, len(certificate.labels[family]))
        assert not margins.flags.writeable
        assert family in certificate.summary()

    rng = np.random.default_rng(5)
    cells, tracking, n = time_cells(trajectory, 128), TrackingSet.of(gains, model.n), model.n
    which = np.repeat(np.arange(128), 40)
    x = sample_symbols(len(which), n, rng)
    # The theorem bounds e by the ball that torque and clearance use, and by its own box.
    x[:, 1 : n + 1] = np.clip(x[:, 1 : n + 1], -gains.e_bound / tracking.e, gains.e_bound / tracking.e)
    borders = np.stack([cells.grid[which], cells.grid[which + 1]], axis=1)
    q, qd, qd_a, qdd_a, r = states_of(trajectory, borders, tracking, x)
    w = dynamics_of(model.kinematics).slotine_li_regressor(q, qd, qd_a, qdd_a, model.friction_transition_velocity)
    worst = np.abs(w @ box.mid + gains.K_d * r) + np.abs(w) @ box.rad
    actual = worst * (1 + gains.assumptions.actuator_rel) + gains.assumptions.actuator_abs
    assert np.all(model.limits.torque - actual >= certificate.margins["torque"][which] - 1e-9)
    assert np.all(model.limits.velocity - np.abs(qd) >= certificate.margins["velocity"][which] - 1e-9)
    room = np.minimum(q - model.limits.position_lower, model.limits.position_upper - q)
    assert np.all(room >= certificate.margins["position"][which] - 1e-9)
    shapes, pairs = clearance_pairs(model, scene)
    own = np.array([shapes[a].kind != "box" for a, _ in pairs])
    for family, chosen in (("clearance", ~own), ("self_clearance", own)):
        columns = np.flatnonzero(chosen)
        for c in np.argsort(certificate.margins[family].min(axis=0))[:5]:
            a, b = pairs[columns[c]]
            for k in range(0, len(which), 200):
                distance = body_distances(model.kinematics, shapes[a], shapes[b], q[k : k + 1])[0]
                assert distance - 0.002 >= certificate.margins[family][which[k], c] - 2e-6


@pytest.mark.parametrize(
    ("family", "culprit"),
    [
        ("position", "joint_4"), ("velocity", "joint_2"), ("torque", "joint_6"), ("clearance", "wall"),
        ("self_clearance", " - "), ("tracking", "velocity of joint_2"), ("tracking", "jerk of"),
        ("tracking", "uncertainty"), ("tracking", "inertia below"),
    ],
)  # fmt: skip
def test_each_family_can_refuse_and_says_who(model: RobotModel, box: ParameterBox, family: str, culprit: str) -> None:
    def at(j: int, value: float, others: float) -> np.ndarray:
        return np.where(np.arange(7) == j, value, others)

    home, free = np.array(model.settings.home), np.full(7, INF)
    wall = SceneBox("wall", np.array([0.6, 0.0, 0.4]), np.zeros(3), np.array([0.02, 2.0, 2.0]))
    worse = {
        "joint_4": {"model": with_limits(model, position_lower=at(3, home[3] - 1e-6, -INF), position_upper=free)},
        "joint_2": {"model": with_limits(model, velocity=at(1, 1e-3, 9.0))},
        "joint_6": {"model": with_limits(model, torque=at(5, 5.0, 999.0))},
        "wall": {"scene": Scene("wall", (wall,))},
        " - ": {"clearance_margin": 0.5},
        "velocity of joint_2": {"gains": gains_for(model, box, velocity=at(1, 0.02, 2.0))},
        "jerk of": {"gains": gains_for(model, box, jerk=np.full(7, 1e-3))},
        "uncertainty": {"gains": gains_for(model, box, uncertainty=0.1)},
        "inertia below": {"gains": gains_for(model, box, inertia_lower=box.lower[84:91] * at(4, 1.01, 1.0))},
    }
    plain = {"model": model, "box": box, "gains": gains_for(model, box), "intervals": 32}
    good, bad = certify(**plain), certify(**plain | worse[culprit])
    assert good.ok, good.summary()
    assert not bad.ok
    assert bad.status.startswith("not certified: ")
    assert not bad.families[family].ok
    assert culprit in bad.families[family].culprit
    assert bad.families[family].value < 0.0
    assert culprit in bad.status
    assert family in bad.status
    others = set(FAMILIES) - {family}
    assert all(bad.families[name].ok for name in others), bad.summary()


def test_a_box_beyond_that_of_the_gains_is_not_certified(model: RobotModel, box: ParameterBox) -> None:
    """Friction enters the tracking theorem as that of the box the gains were made for: a point box far out, too."""
    fv = 11 * model.n + 1
    theta = box.mid.copy()
    theta[fv] = 1.01 * box.upper[fv]
    gains = gains_for(model, box)
    bad = certify(model, ParameterBox(theta, theta), gains=gains)
    assert not bad.ok
    assert bad.families["tracking"].culprit == "joint_2.Fv within the box of the gains"
    theta[fv] = box.upper[fv]
    assert certify(model, ParameterBox(theta, theta), gains=gains).ok


def test_a_scene_that_would_switch_pairs_of_the_arm_off_is_refused(model: RobotModel, box: ParameterBox) -> None:
    arm = frozenset(body.name for body in model.bodies)
    for pair in (frozenset(("forearm_link", "base_link")), frozenset(("payload", "base_link"))):
        assert pair <= arm
        with pytest.raises(ConfigError, match="allowed_pairs"):
            certify(model, box, scene=Scene("open", allowed_pairs=frozenset((pair,))))


def test_nan_certifies_nothing(model: RobotModel, box: ParameterBox) -> None:
    for field in ("K_d", "de_bound", "actuator_abs", "jerk", "velocity", "uncertainty"):
        broken = np.nan if field == "uncertainty" else np.array([1.0, 1, 1, np.nan, 1, 1, 1])
        gains = gains_for(model, box, **{field: broken})
        assert not certify(model, box, gains=gains, intervals=8, clearance_margin=0.0).ok, field
    with pytest.raises(PlanError, match="e_bound"):
        certify(model, box, gains=gains_for(model, box, e_bound=np.full(7, np.nan)), clearance_margin=0.0)
    assert not certify(model, box, wild(), intervals=8).ok


def test_a_plan_for_another_box_is_not_certified(model: RobotModel, box: ParameterBox) -> None:
    trajectory = reach_out(model, np.array(model.settings.home))
    plan = dataclasses.replace(plan_of(trajectory, box), box_identity="1:0")
    certificate = verify_plan(plan, model, box, Scene("open"), gains_for(model, box))
    assert not certificate.ok
    assert "1:0" in certificate.summary()
    assert "0:3" in certificate.summary()


def test_sizes_that_do_not_fit_are_errors(model: RobotModel, box: ParameterBox) -> None:
    with pytest.raises(PlanError, match="6 joints"):
        certify(model, box, QuinticTrajectory.hold(np.zeros(6)))
    with pytest.raises(PlanError, match="clearance_margin"):
        certify(model, box, QuinticTrajectory.hold(np.zeros(7)), clearance_margin=np.nan)


def test_measurement_errors_cost_torque_not_clearance(model: RobotModel, box: ParameterBox) -> None:
    errors = {"position_error": np.full(7, 1e-4), "velocity_error": np.full(7, 5e-3)}
    exact, noisy = (
        certify(model, box, scene=load_scene("six_boxes"), gains=gains_for(model, box, **declared))
        for declared in ({}, errors)
    )
    assert np.all(noisy.margins["torque"] < exact.margins["torque"] - 0.5)
    assert np.all(noisy.margins["clearance"] == exact.margins["clearance"])


def test_the_knot_between_two_segments_and_the_rest_after_the_end_are_covered(
    model: RobotModel, box: ParameterBox
) -> None:
    q, step = np.array(model.settings.home), 0.3 * np.eye(7)[0]
    knots = np.stack([[q + k * step, 0 * q, 0 * q] for k in range(3)])
    certificate = certify(model, box, QuinticTrajectory(np.array([0.0, 1.37, 2.9]), knots), intervals=None)
    assert 1.37 in certificate.grid
    assert certificate.grid[-1] == 2.9
    assert len(certificate.margins["torque"]) == 129


def test_start_check_tells_reasons_in_words(model: RobotModel, box: ParameterBox) -> None:
    gains = gains_for(model, box)
    home = np.array(model.settings.home)
    assert start_check(model, box, Scene("open"), gains, home, clearance_margin=0.002) == []
    (reason,) = start_check(model, box, load_scene("six_boxes"), gains, home, clearance_margin=0.002)[:1]
    assert "post_middle" in reason
    assert "overlap" in reason
    weak = with_limits(model, torque=np.array([99, 12.0, 99, 99, 99, 99, 99]))
    (reason,) = start_check(weak, box, Scene("open"), gains, home, clearance_margin=0.002)
    assert reason.startswith("joint_2: holding may need")
    assert "limit of 12.0 N m" in reason
    bent = np.where(np.arange(7) == 3, 2.7, home)
    assert any("joint_4: 2.7000 rad" in r for r in start_check(model, box, Scene("open"), gains, bent))
    assert "expected 7 finite" in start_check(model, box, Scene("open"), gains, np.full(7, np.nan))[0]
    assert "expected 7 finite" in start_check(model, box, Scene("open"), gains, np.zeros(3))[0]
    wide = start_check(model, model.arm_prior, Scene("open"), gains_for(model, box, 0.1), home)
    assert any("unknown parameters" in r for r in wide)


@pytest.mark.parametrize("n", [1, 4, 9])
def test_random_arms_are_certified_only_within_their_limits(n: int) -> None:
    """Limits set just inside and just outside of what an attack reaches: the certificate follows the right one."""
    rng = np.random.default_rng(n)
    kin, _, theta = random_arm(n, rng)
    box = random_box(theta, rng, 0.05)
    q = rng.uniform(-1, 1, n)
    trajectory = QuinticTrajectory.to_rest(np.stack([q, 0 * q, 0 * q]), q + rng.uniform(-0.3, 0.3, n), 3.0)
    wide = JointLimits(np.full(n, -INF), np.full(n, INF), np.full(n, 9.0), np.full(n, 1e4))
    settings = SimpleNamespace(planner=SimpleNamespace(intervals=48, clearance_margin=0.0))
    model = RobotModel(
        "random", tuple(f"j{i}" for i in range(n)), kin, wide, np.ones(n, bool), theta, box, 0.02,
        (np.eye(3), np.zeros(3)), (), frozenset(), settings,
    )  # fmt: skip
    gains = gains_for(model, box, 0.02)
    certificate = verify_plan(plan_of(trajectory, box), model, box, Scene("open"), gains)
    assert certificate.ok, certificate.summary()
    assert certificate.families["clearance"].value == INF
    assert "unconstrained" in certificate.summary()
    cells, tracking = time_cells(trajectory, 48), TrackingSet.of(gains, n)
    which = np.repeat(np.arange(48), 60)
    x = sample_symbols(len(which), n, rng)
    borders = np.stack([cells.grid[which], cells.grid[which + 1]], axis=1)
    motion = states_of(trajectory, borders, tracking, x)
    w = dynamics_of(kin).slotine_li_regressor(*motion[:4], 0.02)
    actual = (np.abs(w @ box.mid + gains.K_d * motion[4]) + np.abs(w) @ box.rad) * 1.01 + 0.1
    reached = actual.max(axis=0)
    inside = dataclasses.replace(model, limits=dataclasses.replace(wide, torque=0.999 * reached))
    assert not verify_plan(plan_of(trajectory, box), inside, box, Scene("open"), gains).ok
    outside = dataclasses.replace(model, limits=dataclasses.replace(wide, torque=1.6 * reached))
    assert verify_plan(plan_of(trajectory, box), outside, box, Scene("open"), gains).ok
