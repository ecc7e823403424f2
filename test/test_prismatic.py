"""Prismatic joints: every bound that takes a lever's length, every room that takes turning, on mixed random arms."""

from __future__ import annotations

import dataclasses
import re
import sys
from pathlib import Path

import mujoco
import numpy as np
import pinocchio as pin
import pytest
from arm_factory import positions, random_arm
from identification_plant import random_consistent_box
from rigid_arm import pinocchio_model
from sliding_support import SLIDE, write_sliding_arm

from safe_sysid.cli import main
from safe_sysid.control.checks.measurement_watch import MeasurementStatus, MeasurementWatch
from safe_sysid.control.checks.start import check_static_gravity
from safe_sysid.control.gains import design
from safe_sysid.control.laws.interval_newton_euler import interval_newton_euler
from safe_sysid.control.torque_rate import clip_torque
from safe_sysid.dynamics import dynamics_of
from safe_sysid.dynamics.magnitudes import inertia_share, link_norms, torque_sensitivity
from safe_sysid.dynamics.newton_euler import newton_euler
from safe_sysid.errors import ConfigError, ModelError, ParameterError
from safe_sysid.identification.certificates.log_view import LogView
from safe_sysid.identification.certificates.rebuild import RowRebuilder, Window
from safe_sysid.identification.diagnosis.elastic import scaled_problem
from safe_sysid.identification.diagnosis.explanations import candidates
from safe_sysid.identification.diagnosis.log import rows_of_log
from safe_sysid.identification.equations.linearisation import DERIVATIVES, derivative_bounds
from safe_sysid.identification.equations.measurement_errors import MeasurementErrors, sensor_prior
from safe_sysid.identification.equations.measurements import Measurements
from safe_sysid.identification.equations.momentum import momentum_rows
from safe_sysid.identification.equations.step_states import step_states
from safe_sysid.planning import Planner, start_check
from safe_sysid.reachability.rotations import rotation_parts
from safe_sysid.report.identification.output import declared_texts
from safe_sysid.robot import ParameterBox, RobotModel, Scene
from safe_sysid.robot.loading import TRAVEL_MARGIN, load_robot
from safe_sysid.robot.unknowns import Unknowns
from safe_sysid.simulation import NO_PAYLOAD, Plant, draw_truth, payload_from_spec
from safe_sysid.studies.campaign.summary import is_sound
from safe_sysid.studies.campaign.trial import run_trial

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "benchmarks"))

import tracking

SCENE = Scene("open")


@pytest.fixture(scope="module")
def arm_file(tmp_path_factory) -> Path:
    return write_sliding_arm(tmp_path_factory.mktemp("sliding"), "prrp", np.random.default_rng(0))


@pytest.fixture(scope="module")
def model(arm_file) -> RobotModel:
    return load_robot(arm_file)


# --- the model ---


def test_loaded_as_the_urdf_says(arm_file, model):
    """Frames and torques at random states against Pinocchio reading the same file."""
    oracle = pin.buildModelFromUrdf(str(arm_file.parent / "arm.urdf"))
    data, rng, n = oracle.createData(), np.random.default_rng(1), model.n
    assert model.sliding.tolist() == [True, False, False, True]
    assert model.limits.position_lower[0] == SLIDE[0]
    room = TRAVEL_MARGIN * (SLIDE[1] - SLIDE[0])
    np.testing.assert_allclose(model.kinematics.travel[3], [SLIDE[0] - room, SLIDE[1] + room], rtol=1e-15)
    theta = model.theta_nominal.copy()
    theta[10 * n :] = 0.0
    for q in positions(model.kinematics, rng, 20):
        qd, qdd = rng.normal(size=(2, n))
        ours = dynamics_of(model.kinematics).slotine_li_regressor(q, qd, qd, qdd) @ theta
        np.testing.assert_allclose(ours, pin.rnea(oracle, data, q, qd, qdd), atol=1e-10)


@pytest.mark.parametrize(
    ("change", "key", "expected"),
    [
        ({"joints.joint 0.position": "continuous"}, "joints.joint 0.position", "m: a prismatic joint"),
        ({"home": [0.36, 0.1, 0.1, 0.1]}, "home[0]", "joint 0 within [-0.15, 0.35] m"),
    ],
)
def test_mistakes_are_told_in_metres(arm_file, change, key, expected):
    with pytest.raises(ConfigError) as caught:
        load_robot(arm_file, **change)
    assert caught.value.key == key
    assert expected in caught.value.expected


def test_a_prismatic_joint_without_limits_is_refused(tmp_path):
    path = write_sliding_arm(tmp_path, "rp", np.random.default_rng(0))
    urdf = tmp_path / "arm.urdf"
    urdf.write_text(urdf.read_text().replace(f'lower="{SLIDE[0]}" upper="{SLIDE[1]}" ', ""))
    with pytest.raises(ConfigError, match=r"joints\.joint 1\.position = 'missing': expected \[lower, upper\] in m"):
        load_robot(path)
    assert load_robot(path, **{"joints.joint 1.position": [0.0, 0.2]}).limits.position_upper[1] == 0.2


def test_torque_without_regressor_and_its_enclosure():
    for seed in range(12):
        rng = np.random.default_rng(seed)
        n = 1 + seed % 6
        kin, _, theta = random_arm(n, rng, 0.5)
        q, (qd, qd_a, qdd) = positions(kin, rng, 1)[0], rng.normal(size=(3, n))
        expected = dynamics_of(kin).slotine_li_regressor(q, qd, qd_a, qdd, 0.01) @ theta
        torque, bounds = np.empty(n), np.empty((n, 2))
        newton_euler(kin.packed, q, qd, qd_a, qdd, qd_a, 0.01, theta, torque)
        np.testing.assert_allclose(torque, expected, atol=1e-11)
        box = np.stack([theta, theta + 0.1 * np.abs(theta)], axis=-1)
        interval_newton_euler(kin.packed, q, qd, qd_a, qdd, qd_a, 0.01, True, box, bounds)
        for _ in range(20):
            inside = rng.uniform(box[:, 0], box[:, 1])
            value = dynamics_of(kin).slotine_li_regressor(q, qd, qd_a, qdd, 0.01) @ inside
            assert np.all((bounds[:, 0] - 1e-10 <= value) & (value <= bounds[:, 1] + 1e-10))


def test_plant_agrees_with_pinocchio_and_a_mounted_base_is_only_another_gravity(arm_file):
    """Forward dynamics in MuJoCo at random states; the base tilted, or gravity turned the other way."""
    rpy = (0.4, -0.3, 1.1)
    mounted = load_robot(arm_file, mounting={"xyz": [0.3, -0.2, 0.5], "rpy": list(rpy)})
    turn = pin.rpy.rpyToMatrix(*rpy)
    level = load_robot(arm_file, gravity=(turn.T @ np.array([0.0, 0.0, -9.81])).tolist())
    rng, n = np.random.default_rng(3), mounted.n
    theta = draw_truth(mounted, NO_PAYLOAD, 5, "corner")
    fc, fv, rotor, beta = theta[10 * n :].reshape(4, n)
    plants = [Plant(m, theta, NO_PAYLOAD, SCENE, 0) for m in (mounted, level)]
    oracle = pinocchio_model(mounted, theta)
    oracle.gravity.linear = np.array(mounted.kinematics.gravity)
    oracle.armature = np.array(rotor)
    data = oracle.createData()
    for q in positions(mounted.kinematics, rng, 10):
        qd, tau = rng.choice([-1.0, 1.0], n) * rng.uniform(0.1, 0.6, n), 20.0 * rng.normal(size=n)
        expected = pin.aba(oracle, data, q, qd, tau - fc * np.sign(qd) - fv * qd - beta)
        for plant in plants:
            simulated = mujoco.MjData(plant.engine.model)
            simulated.qpos[:], simulated.qvel[:], simulated.qfrc_applied[:] = q, qd, tau - beta
            mujoco.mj_forward(plant.engine.model, simulated)
            np.testing.assert_allclose(simulated.qacc, expected, rtol=1e-9, atol=1e-9 * np.abs(expected).max())


# --- bounds over all configurations ---


def test_first_and_second_derivatives_stay_in_their_bounds_and_levers_count_the_travel():
    """Sampled derivatives of the torque; without the travel in the levers the same samples break the bounds."""
    broken = 0
    for seed in range(30):
        rng = np.random.default_rng(seed)
        n = int(rng.integers(2, 6))
        kin, _, theta = random_arm(n, rng, 0.5)
        if not np.any(kin.sliding):
            continue
        kin = kin._replace(travel=kin.travel * 6.0)  # rails of metres: what is left out shows
        bare = theta.copy()
        bare[10 * n :] = 0.0
        norms = link_norms(kin, theta, theta)
        travel = np.where(kin.sliding[:, None], kin.travel * 1e-6, kin.travel)
        short = link_norms(kin._replace(travel=travel), theta, theta)
        for q in positions(kin, rng, 6):
            qd, qd_a, qdd = rng.uniform(-1, 1, (3, n))
            speeds = (np.abs(qd) + 1e-3, np.abs(qd_a) + 1e-3, np.abs(qdd) + 1e-3)
            sens, less = (torque_sensitivity(kin, x, *speeds) for x in (norms, short))
            for i, name in enumerate(("q", "qd", "qd_a", "qdd_a")):
                for j in range(n):
                    shift = np.zeros((4, n))
                    shift[i, j] = 1e-4
                    states = np.stack([q, qd, qd_a, qdd])
                    plus = dynamics_of(kin).slotine_li_regressor(*(states + shift)) @ bare
                    slope = np.abs(plus - dynamics_of(kin).slotine_li_regressor(*(states - shift)) @ bare) / 2e-4
                    assert np.all(slope <= getattr(sens, name)[:, j] * (1.0 + 1e-6) + 1e-8)
                    broken += bool(np.any(slope > getattr(less, name)[:, j] * (1.0 + 1e-6) + 1e-8))
    assert broken > 50


def test_inertia_share_near_a_pose():
    for seed in range(10):
        rng = np.random.default_rng(seed)
        n = int(rng.integers(2, 6))
        kin, _, theta = random_arm(n, rng, 0.5)
        box = ParameterBox(theta - 0.05 * np.abs(theta), theta + 0.05 * np.abs(theta))
        spare, dq = rng.uniform(1.0, 4.0, n), rng.uniform(0.0, 0.1, n)
        low = np.where(kin.sliding, kin.travel[:, 0] + dq, -3.0)
        high = np.where(kin.sliding, np.maximum(kin.travel[:, 1] - dq, low), 3.0)
        dq = np.where(kin.sliding & (kin.travel[:, 1] - kin.travel[:, 0] < 2.0 * dq), 0.0, dq)
        q = np.clip(rng.uniform(low, high), np.where(kin.sliding, kin.travel[:, 0], -3), high)
        share = inertia_share(kin, box, spare, q, dq)[0]
        for _ in range(10):
            at = q + rng.choice([-1.0, 1.0], n) * dq
            true = rng.uniform(box.lower, box.upper)
            true[10 * n :] = 0.0
            h = dynamics_of(kin).momentum_regressor(np.tile(at, (n, 1)), np.eye(n)) @ true
            assert np.linalg.eigvalsh(h / np.sqrt(spare)[:, None] / np.sqrt(spare))[-1] <= share


def test_exact_first_derivatives():
    for seed in range(8):
        rng = np.random.default_rng(seed)
        n = 1 + seed % 5
        kin, _, theta = random_arm(n, rng, 0.6)
        mid, rad = theta[: 10 * n], np.zeros(10 * n)
        q, qd = positions(kin, rng, 1), rng.uniform(-1, 1, (1, n))
        bounds = np.zeros((len(DERIVATIVES), n, max(n, 3)))
        slopes = np.zeros((2, *bounds.shape))
        derivative_bounds(kin, mid, rad, 1.0, True, False, q[0], qd[0], bounds, slopes)
        dynamics = dynamics_of(kin)
        for row, function, of_q in (
            (0, dynamics.momentum_regressor, True), (1, dynamics.momentum_regressor, False),
            (2, dynamics.momentum_rate_regressor, True), (3, dynamics.momentum_rate_regressor, False),
        ):  # fmt: skip
            for j in range(n):
                d = 1e-5 * np.eye(n)[j]
                a, b = (function(q[0] + s * d * of_q, qd[0] + s * d * (not of_q)) for s in (1.0, -1.0))
                slope = np.abs((a - b)[:, : 10 * n] @ mid) / 2e-5
                np.testing.assert_allclose(bounds[row, :, j], slope, atol=1e-6)


# --- what leaves the travel makes no equation ---


def outside_case():
    rng = np.random.default_rng(4)
    kin, _, theta = random_arm(2, rng)
    kin = kin._replace(travel=np.array([[-0.2, 0.2], [-np.inf, np.inf]]))
    theta, box = random_consistent_box(rng, theta, 2)
    count = 60
    q = np.stack([np.linspace(0.0, 0.21, count), np.linspace(0.0, 0.3, count)], axis=1)
    stamps = 1e-3 * np.arange(count)
    qd = np.gradient(q, stamps, axis=0)
    data = Measurements(stamps, q, qd, np.zeros((count, 2)))
    errors = MeasurementErrors(2, "motor", 1e9, 0.0, 1e-5, 1e-3, 10.0, stamp=1e-9)
    return kin, box, data, errors


def test_windows_beyond_the_travel_are_left_out_and_counted():
    kin, box, data, errors = outside_case()
    windows = [(k, k + 5) for k in (*range(0, 55, 5), 54)]
    rows = momentum_rows(kin, box, errors, data, windows)
    # At sample 57 it is beyond 0.2 m.
    assert rows.rejected_travel == 1
    assert rows.rejected_acceleration == 0
    assert rows.last.max() == 55
    late = dataclasses.replace(errors, position=np.array([0.011, 0.0]))
    assert momentum_rows(kin, box, late, data, windows).rejected_travel > 1
    states = step_states(data, errors, kin.travel)
    assert np.array_equal(np.flatnonzero(states.outside), np.arange(56, 59))


def test_a_sample_beyond_the_travel_costs_only_the_windows_that_it_is_in():
    kin, box, data, errors = outside_case()
    q = data.q.copy()
    q[0, 0] = 0.3
    spoilt = Measurements(data.stamps, q, data.qd, data.effort)
    rows = momentum_rows(kin, box, errors, spoilt, [(0, 5), (1, 6), (5, 10)])
    assert rows.rejected_travel + rows.rejected_acceleration == 1  # it is impossible, too
    assert rows.first.tolist() == [1, 1, 5, 5]


def test_the_checker_says_so_too():
    kin, box, data, errors = outside_case()
    view = LogView(data, errors, np.zeros(2, bool), 1000.0)
    inside, beyond = Window(20, 25, 0.0), Window(50, 58, 0.0)
    rebuilder = RowRebuilder(kin, view, box, [inside, beyond], Unknowns(np.zeros(len(kin.axis))))
    assert rebuilder.outside(inside) is None
    assert rebuilder.outside(beyond) == 56


# --- identification, attacked ---


@pytest.mark.parametrize(
    ("certified", "trials"),
    [
        (False, range(2)),
        (True, range(1)),
        pytest.param(False, range(2, 20), marks=pytest.mark.slow),
        pytest.param(True, range(1, 8), marks=pytest.mark.slow),
    ],
)
def test_nothing_gets_out_of_an_honest_identifier(certified, trials):
    fixed = {"prismatic": 0.6, "certified": certified, "joints": 3}
    results = [run_trial(11, k, {"fixed": fixed}) for k in trials]
    assert [r for r in results if not is_sound(r)] == []
    assert max(r["largest_row"] for r in results) > 0.5


# --- control ---


def test_every_claim_of_the_theorem_in_closed_loop(arm_file):
    lines = [tracking.run(k, 2, duration=0.06, robot=str(arm_file)) for k in range(3)]
    found = tracking.summarise(lines)
    assert found["violated"] == 0, found


def test_positions_that_the_law_may_take_must_be_in_the_travel(model, gains):
    """A twentieth of half a metre: 25 mm."""

    def check(error: float) -> None:
        assumptions = dataclasses.replace(gains.assumptions, position_error=np.full(model.n, error))
        design._check_travel(model, dataclasses.replace(gains, assumptions=assumptions))

    check(0.02)
    with pytest.raises(ParameterError, match=r"joint 0: the control law may take a position 0\.02\d+ m beyond"):
        check(0.026)


# --- rooms that take turning ---


def test_planning_and_certificates_refuse_by_name(model, gains):
    with pytest.raises(ConfigError, match=r"joints\.joint 0 = 'prismatic': expected only revolute .* planning"):
        Planner(model, SCENE, gains)
    with pytest.raises(ConfigError, match=r"joint 0.*certificates"):
        start_check(model, model.arm_prior, SCENE, gains, np.asarray(model.settings.home))
    with pytest.raises(ModelError, match="joint 0 is prismatic"):
        rotation_parts(model.kinematics)


def test_what_works_is_said_in_one_sentence_and_the_demo_does_not_begin(arm_file, tmp_path, capsys):
    sentence = (
        "joint 0, joint 3 slide: identification, tare, verify and control work for prismatic joints; planning, and "
        "with it the demo, does not yet"
    )
    assert main(["config", "check", str(arm_file)]) == 0
    out = capsys.readouterr().out
    assert f"warning: {sentence}" in " ".join(out.split())
    assert re.search(r"proved tracking error: [0-9.]+ m [0-9.]+ rad [0-9.]+ rad [0-9.]+ m", " ".join(out.split()))
    assert main(["demo", "--robot", str(arm_file), "--out", str(tmp_path / "run"), "--quiet"]) == 2
    assert sentence in " ".join(capsys.readouterr().err.split())
    assert not (tmp_path / "run").exists()


def test_messages_name_metres_and_newtons(model):
    watch, q = MeasurementWatch(model), np.array(model.settings.home)
    watch.begin(0.0, q)
    slow = np.zeros(model.n)
    for j, unit in ((0, "m"), (1, "rad")):
        assert watch.judge(1e-3, q + 0.1 * np.eye(model.n)[j], slow) is MeasurementStatus.BAD
        assert re.search(rf"by 0\.1 {unit} in .* {unit}/s$", watch.reason)
        assert watch.judge(1e-3, q, 100.0 * np.eye(model.n)[j]) is MeasurementStatus.BAD
        assert f"is 100 {unit}/s" in watch.reason
    reasons = check_static_gravity(model, model.arm_prior, q, slow, np.full(model.n, 1e6))
    units = [re.search(r"effort 1e\+06 (N m|N) at", reason).group(1) for reason in reasons[:4]]
    assert units == ["N", "N m", "N m", "N"]


def test_suggested_changes_and_clipped_torques_are_in_the_units_of_their_joints(model):
    errors = MeasurementErrors.from_model(model)
    stamps, home = 1e-3 * np.arange(600), np.array(model.settings.home)
    q = home + 0.05 * np.sin(4.0 * stamps[:, None] + np.arange(model.n))
    data = Measurements(stamps, q, np.gradient(q, stamps, axis=0), np.zeros_like(q))
    rows = rows_of_log(model, errors, data, model.arm_prior)
    radius = scaled_problem(model, errors, rows, sensor_prior(model.arm_prior, errors))[2]
    found = list(candidates(model, errors, rows, model.arm_prior, radius))
    texts = [(c.joint, c.kind, c.explain(1.0).text) for c in found if c.joint is not None and c.kind != "link"]
    assert {kind for _, kind, _ in texts} >= {"noise", "torque_abs", "velocity", "coulomb", "offset", "rotor_inertia"}
    for joint, _, text in texts:
        assert bool(re.search(r"rad|N m|kg m\^2", text)) == (not model.sliding[joint]), text
    for j, unit in ((0, "N"), (1, "N m")):
        torque = 1e6 * np.eye(model.n)[j]
        assert f"was 1000000.0 {unit} and was clipped" in clip_torque(torque, np.ones(model.n), model)


def test_declared_errors_are_printed_in_the_units_of_their_joints(arm_file, tmp_path):
    given = {
        "measurement": {"position_error": 0.001, "velocity_error": [0.1, 0.2, 0.3, 0.4]},
        "payload": {"box": {"center": [0.0, 0.0, 0.1], "size": [0.2, 0.2, 0.2]}},
    }
    texts = declared_texts(load_robot(arm_file, **given), with_tare=True)
    assert texts["measurement.velocity_error"] == "0.1 m/s, 0.2 rad/s, 0.3 rad/s, 0.4 m/s"
    assert texts["measurement.position_error"] == "0.001 rad or m"
    assert texts["uncertainty.floor.viscous"] == "0 N m s/rad or N s/m"
    assert texts["tare.drift.coulomb"] == "0.02", "a fraction"
    assert texts["payload.box.center"] == "0, 0, 0.1 m"
    sliding = load_robot(write_sliding_arm(tmp_path, "pp", np.random.default_rng(1)))
    texts = declared_texts(sliding, with_tare=True)
    units = {key: text.partition(" ")[2] for key, text in texts.items() if text is not None}
    assert units["measurement.velocity_error"] == "m/s"
    assert units["identification.acceleration_bound"] == "m/s^2"
    assert units["uncertainty.floor.rotor_inertia"] == "kg"
    assert units["tare.drift.offset"] == "N"
    assert not [key for key, unit in units.items() if "rad" in unit and key != "measurement.gravity_angle"]


def test_positions_in_degrees_are_guessed_of_turning_joints_alone(tmp_path):
    """Whatever gravity contradicts is explained: the rails' metres stay, angles are read in degrees."""
    guessed = 0
    for seed in range(12):
        rng = np.random.default_rng(seed)
        model = load_robot(write_sliding_arm(tmp_path, "rpr", rng))
        q = np.where(model.sliding, rng.uniform(*SLIDE, 3), rng.uniform(-1.5, 1.5, 3))
        zero = np.zeros(3)
        mid = model.arm_prior.mid
        box = ParameterBox(mid - 1e-3 * np.abs(mid), mid + 1e-3 * np.abs(mid))
        effort = dynamics_of(model.kinematics).torque_regressor(q, zero, zero) @ mid
        told = np.where(model.sliding, q, np.rad2deg(q))
        reasons = check_static_gravity(model, box, told, zero, effort)
        assert not reasons or "positions in degrees" in reasons[-1]
        guessed += bool(reasons)
    assert guessed >= 3


def test_draws_and_payloads_do_not_care(model):
    theta = draw_truth(model, payload_from_spec("4lb"), 1, "uniform")
    assert np.all((model.arm_prior.lower <= theta) & (theta <= model.arm_prior.upper))
