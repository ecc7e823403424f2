"""The certificate: what it refuses, that it names the culprit, and that nothing breaks what it grants."""

from __future__ import annotations

import dataclasses
from types import SimpleNamespace

import numpy as np
import pytest
from arm_factory import random_arm
from reachability_attack import body_distances, sample_symbols, states_of
from reachability_support import random_box

from safe_sysid.control.gains import ControllerGains, TrackingAssumptions
from safe_sysid.dynamics import dynamics_of
from safe_sysid.errors import ConfigError, PlanError
from safe_sysid.planning.certification.certificate import FAMILIES, start_check, verify_plan
from safe_sysid.reachability.cells import TrackingSet, time_cells
from safe_sysid.reachability.clearance import clearance_pairs
from safe_sysid.robot.model import JointLimits, RobotModel
from safe_sysid.robot.parameters import ParameterBox
from safe_sysid.robot.scenes.scene import Scene, SceneBox, load_scene
from safe_sysid.trajectories.plan import Plan
from safe_sysid.trajectories.quintic import QuinticTrajectory

INF = np.inf


def gains_for(model: RobotModel, box: ParameterBox, r: float = 0.03, **changes: object) -> ControllerGains:
    """Gains of a plausible size; the theorem that would prove them is not what is tested here."""
    n = model.n
    ones = np.ones(n)
    k_r = np.linspace(6.0, 4.0, n)
    assume = TrackingAssumptions(
        velocity=1.2 * ones,
        acceleration=3.0 * ones,
        jerk=20.0 * ones,
        uncertainty=50.0,
        inertia_upper=2e3 * ones,
        position_error=np.zeros(n),
        velocity_error=np.zeros(n),
        actuator_abs=0.1 * ones,
        actuator_rel=0.01 * ones,
        torque_limit=model.limits.torque,
        feed_forward=np.zeros(n),
        hold_max=0.002,
        delay_max=0.0,
    )
    r_bound = r * np.linspace(1.0, 1.2, n)
    fields = {
        "assumptions": dataclasses.replace(assume, **{k: v for k, v in changes.items() if hasattr(assume, k)}),
        "K_r": k_r,
        "box": box,
        "K_d": 150.0 * ones,
        "kappa": 10.0,
        "robust_gain": 1.0,
        "inertia_lower": box.lower[box.layout.rotor_inertia],
        "V_max": 0.02,
        "power_loss": 0.1,
        "r_bound": r_bound,
        "e_bound": r_bound / k_r,
        "de_bound": 2 * r_bound,
    }
    fields |= {k: v for k, v in changes.items() if k in fields}
    names = {
        f.name for f in dataclasses.fields(ControllerGains) if f.default_factory is f.default is dataclasses.MISSING
    }
    fields |= dict.fromkeys(names - set(fields), 5.0 * ones)
    return ControllerGains(**fields)


def narrow_box(model: RobotModel) -> ParameterBox:
    """The prior cut down to a known payload give or take: the whole prior is for the closed loop's tests."""
    lower, upper = model.arm_prior.payload_lower, model.arm_prior.payload_upper
    centre, half = 0.5 * (lower + upper), 0.5 * (upper - lower)
    return model.arm_prior.with_payload(centre - 0.2 * half, centre + 0.2 * half, seq=3)


@pytest.fixture(scope="module")
def box(model: RobotModel) -> ParameterBox:
    return narrow_box(model)


def plan_of(trajectory: QuinticTrajectory, box: ParameterBox) -> Plan:
    return Plan(trajectory, 100.0, trajectory.duration / 2, box.identity, 0, np.zeros(trajectory.n))


def reach_out(model: RobotModel, q: np.ndarray, amount: float = 0.2, seed: int = 0) -> QuinticTrajectory:
    step = amount * np.random.default_rng(seed).uniform(-1, 1, model.n)
    return QuinticTrajectory.to_rest(np.stack([q, 0 * q, 0 * q]), q + step, 3.0)


def with_limits(model: RobotModel, **changes: np.ndarray) -> RobotModel:
    old = {name: getattr(model.limits, name) for name in ("position_lower", "position_upper", "velocity", "torque")}
    return dataclasses.replace(model, limits=JointLimits(**(old | changes)))


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
        ("position", "joint_4"),
        ("velocity", "joint_2"),
        ("torque", "joint_6"),
        ("clearance", "wall"),
        ("self_clearance", " - "),
        ("tracking", "velocity of joint_2"),
        ("tracking", "jerk of"),
        ("tracking", "uncertainty"),
        ("tracking", "inertia below"),
    ],
)
def test_each_family_can_refuse_and_says_who(model: RobotModel, box: ParameterBox, family: str, culprit: str) -> None:
    q = np.array(model.settings.home)
    trajectory = reach_out(model, q)
    gains, scene, margin = gains_for(model, box), Scene("open"), 0.002
    good = verify_plan(plan_of(trajectory, box), model, box, scene, gains, clearance_margin=margin, intervals=32)
    assert good.ok, good.summary()
    if family == "position":
        model = with_limits(
            model, position_lower=np.where(np.arange(7) == 3, q - 1e-6, -INF), position_upper=np.full(7, INF)
        )
    elif family == "velocity":
        model = with_limits(model, velocity=np.array([9, 1e-3, 9, 9, 9, 9, 9.0]))
    elif family == "torque":
        model = with_limits(model, torque=np.array([999, 999, 999, 999, 999, 5, 999.0]))
    elif family == "clearance":
        scene = Scene("wall", (SceneBox("wall", np.array([0.6, 0.0, 0.4]), np.zeros(3), np.array([0.02, 2.0, 2.0])),))
    elif family == "self_clearance":
        margin = 0.5
    elif culprit == "velocity of joint_2":
        gains = gains_for(model, box, velocity=np.array([2, 0.02, 2, 2, 2, 2, 2.0]))
    elif culprit == "jerk of":
        gains = gains_for(model, box, jerk=np.full(7, 1e-3))
    elif culprit == "uncertainty":
        gains = gains_for(model, box, uncertainty=0.1)
    else:
        gains = gains_for(model, box, inertia_lower=box.lower[84:91] * np.where(np.arange(7) == 4, 1.01, 1.0))
    bad = verify_plan(plan_of(trajectory, box), model, box, scene, gains, clearance_margin=margin, intervals=32)
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
    point = ParameterBox(theta, theta)
    plan, gains = plan_of(reach_out(model, np.array(model.settings.home)), point), gains_for(model, box)
    bad = verify_plan(plan, model, point, Scene("open"), gains, clearance_margin=0.002, intervals=16)
    assert not bad.ok
    assert bad.families["tracking"].culprit == "joint_2.Fv within the box of the gains"
    theta[fv] = box.upper[fv]
    point = ParameterBox(theta, theta)
    assert verify_plan(plan, model, point, Scene("open"), gains, clearance_margin=0.002, intervals=16).ok


def test_a_scene_that_would_switch_pairs_of_the_arm_off_is_refused(model: RobotModel, box: ParameterBox) -> None:
    plan, gains = plan_of(reach_out(model, np.array(model.settings.home)), box), gains_for(model, box)
    arm = frozenset(body.name for body in model.bodies)
    for pair in (frozenset(("forearm_link", "base_link")), frozenset(("payload", "base_link"))):
        assert pair <= arm
        with pytest.raises(ConfigError, match="allowed_pairs"):
            verify_plan(plan, model, box, Scene("open", allowed_pairs=frozenset((pair,))), gains)


def test_nan_certifies_nothing(model: RobotModel, box: ParameterBox) -> None:
    trajectory = reach_out(model, np.array(model.settings.home))
    scene = Scene("open")
    for field in ("K_d", "de_bound", "actuator_abs", "jerk", "velocity", "uncertainty"):
        broken = np.nan if field == "uncertainty" else np.array([1.0, 1, 1, np.nan, 1, 1, 1])
        certificate = verify_plan(
            plan_of(trajectory, box), model, box, scene, gains_for(model, box, **{field: broken}),
            intervals=8, clearance_margin=0.0,
        )  # fmt: skip
        assert not certificate.ok, field
    with pytest.raises(PlanError, match="e_bound"):
        verify_plan(
            plan_of(trajectory, box), model, box, scene, gains_for(model, box, e_bound=np.full(7, np.nan)),
            intervals=8, clearance_margin=0.0,
        )  # fmt: skip
    # A motion so wild that enclosures overflow.
    wild = QuinticTrajectory.to_rest(np.array([np.zeros(7), np.full(7, 1e150), np.zeros(7)]), np.zeros(7), 3.0)
    certificate = verify_plan(plan_of(wild, box), model, box, scene, gains_for(model, box), intervals=8)
    assert not certificate.ok


def test_a_plan_for_another_box_is_not_certified(model: RobotModel, box: ParameterBox) -> None:
    trajectory = reach_out(model, np.array(model.settings.home))
    plan = dataclasses.replace(plan_of(trajectory, box), box_identity="1:0")
    certificate = verify_plan(plan, model, box, Scene("open"), gains_for(model, box))
    assert not certificate.ok
    assert "1:0" in certificate.summary()
    assert "0:3" in certificate.summary()


def test_sizes_that_do_not_fit_are_errors(model: RobotModel, box: ParameterBox) -> None:
    short = QuinticTrajectory.hold(np.zeros(6))
    with pytest.raises(PlanError, match="6 joints"):
        verify_plan(plan_of(short, box), model, box, Scene("open"), gains_for(model, box))
    with pytest.raises(PlanError, match="clearance_margin"):
        verify_plan(
            plan_of(QuinticTrajectory.hold(np.zeros(7)), box), model, box, Scene("open"), gains_for(model, box),
            clearance_margin=np.nan,
        )  # fmt: skip


def test_measurement_errors_cost_torque_not_clearance(model: RobotModel, box: ParameterBox) -> None:
    trajectory, scene = reach_out(model, np.array(model.settings.home)), load_scene("six_boxes")
    plan = plan_of(trajectory, box)
    exact = verify_plan(plan, model, box, scene, gains_for(model, box), intervals=16)
    noisy = verify_plan(
        plan, model, box, scene,
        gains_for(model, box, position_error=np.full(7, 1e-4), velocity_error=np.full(7, 5e-3)), intervals=16,
    )  # fmt: skip
    assert np.all(noisy.margins["torque"] < exact.margins["torque"] - 0.5)
    assert np.all(noisy.margins["clearance"] == exact.margins["clearance"])


def test_the_knot_between_two_segments_and_the_rest_after_the_end_are_covered(
    model: RobotModel, box: ParameterBox
) -> None:
    q = np.array(model.settings.home)
    step = np.zeros(7)
    step[0] = 0.3
    middle = np.stack([q + step, 0 * q, 0 * q])
    trajectory = QuinticTrajectory(
        np.array([0.0, 1.37, 2.9]), np.stack([[q, 0 * q, 0 * q], middle, [q + 2 * step, 0 * q, 0 * q]])
    )
    certificate = verify_plan(plan_of(trajectory, box), model, box, Scene("open"), gains_for(model, box))
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
    bent = home.copy()
    bent[3] = 2.7
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
