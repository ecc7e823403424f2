"""``safe-sysid identify-arm`` from a log to files, and logs that are not what they say."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from pathlib import Path

import mujoco
import numpy as np
import pinocchio as pin
import pytest
import yaml
from log_support import run_identify
from rigid_arm import pinocchio_model

from safe_sysid.cli import main
from safe_sysid.commands.identify_arm import METHODS as OFFERED
from safe_sysid.core.layout import ParameterLayout
from safe_sysid.dynamics import dynamics_of
from safe_sysid.dynamics.closed_chain import Mechanism
from safe_sysid.identification.arm.base_parameters import parameter_units
from safe_sysid.identification.arm.estimates.estimate import METHODS
from safe_sysid.identification.arm.estimates.residuals import diagnose_residuals
from safe_sysid.identification.arm.identify import ArmOptions, identify_samples
from safe_sysid.identification.arm.logs.preparation import prepare
from safe_sysid.identification.equations.measurements import Measurements
from safe_sysid.logs.formats.npz import write_log
from safe_sysid.logs.formats.reading import load_log, read_mapping
from safe_sysid.logs.log import LogError
from safe_sysid.robot.loading import load_robot
from safe_sysid.robot.parameters import inertia_from_com, is_consistent

pytestmark = pytest.mark.unproved

RATE = 500.0


@cache
def recorded(amplitude: float = 1.0, load: float = 0.0) -> tuple[Measurements, np.ndarray]:
    """A log of an arm that is not as drawn, with a load (kg), and its parameters without; torques by Pinocchio."""
    model = load_robot("kinova_gen3")
    rng, layout, n = np.random.default_rng(3), model.layout, model.n
    theta = model.theta_nominal.copy()
    for j in range(n):
        theta[layout.link(j)] *= rng.uniform(0.75, 1.3)
    theta[layout.coulomb] = rng.uniform(0.5, 2.0, n)
    theta[layout.viscous] *= rng.uniform(0.7, 1.3, n)
    theta[layout.rotor_inertia] *= rng.uniform(0.7, 1.3, n)
    theta[layout.offset] = rng.uniform(-0.5, 0.5, n)
    t = np.arange(0.0, 20.0, 1.0 / RATE)[:, None, None]
    rate, phase = rng.uniform(0.4, 3.0, (n, 5)), rng.uniform(0.0, 6.0, (n, 5))
    size = amplitude * rng.uniform(0.1, 0.5, (n, 5)) / rate
    x = rate * t + phase
    q, qd, qdd = ((size * y).sum(axis=-1) for y in (np.sin(x), rate * np.cos(x), -(rate**2) * np.sin(x)))
    held = theta.copy()
    held[layout.payload] += load * inertia_from_com(1.0, [0.05, -0.04, 0.12], np.diag([0.01, 0.01, 0.005]))
    oracle = pinocchio_model(model, held)
    data = oracle.createData()
    fc, fv, ia, beta = layout.by_term(theta)
    rigid = np.array([pin.rnea(oracle, data, *x) for x in zip(q, qd, qdd, strict=True)])
    torque = rigid + fc * np.sign(qd) + fv * qd + ia * qdd + beta
    noisy = [x + s * rng.normal(size=x.shape) for x, s in ((q, 2e-5), (qd, 1e-3), (torque, 0.3))]
    return Measurements(t[:, 0, 0], *noisy), theta


def written(path: Path, change: Callable[[dict], object] = len, samples: int = 10_000, **kwargs: float) -> Path:
    """The log's first samples as a file, after a change of its arrays."""
    log = recorded(**kwargs)[0][:samples]
    arrays = {name: np.array(getattr(log, name)) for name in ("stamps", "q", "qd", "effort")}
    change(arrays)
    write_log(path, load_robot("kinova_gen3").joint_names, Measurements(**arrays), 0)
    return path


def test_torques_of_coupled_motors_are_told_apart(tmp_path: Path) -> None:
    names = load_robot("kinova_gen3").joint_names
    matrix = np.array([[0.5, 0.5], [0.7, -0.6]])

    def couple(arrays: dict) -> None:
        arrays["effort"][:, 5:] = arrays["effort"][:, 5:] @ matrix.T

    written(tmp_path / "a.npz", couple)
    shares = {names[5 + k]: dict(zip(names[5:], matrix[k].tolist(), strict=True)) for k in range(2)}
    (tmp_path / "map.yaml").write_text(yaml.safe_dump({"motors": shares}))
    log = load_log(tmp_path / "a.npz", names, read_mapping(tmp_path / "map.yaml"))
    assert np.allclose(log.measurements.effort, recorded()[0].effort, rtol=0.0, atol=1e-12)
    for wrong in ({names[5]: {names[6]: 1.0}}, {names[5]: {names[5]: 0.0}}, {"x": {"x": 1.0}}):
        (tmp_path / "map.yaml").write_text(yaml.safe_dump({"motors": wrong}))
        with pytest.raises(LogError, match="motors"):
            load_log(tmp_path / "a.npz", names, read_mapping(tmp_path / "map.yaml"))


@pytest.mark.slow
def test_a_known_mass_tells_torque_per_effort_where_it_loads_joints(tmp_path: Path) -> None:
    """Efforts are currents, told in other constants than the arm's; of the mass neither centre nor inertia is known."""
    model = load_robot("kinova_gen3")
    scale = np.random.default_rng(5).uniform(5.0, 15.0, model.n)

    def currents(arrays: dict) -> None:
        arrays["effort"] /= scale

    for name, load in (("free", 0.0), ("loaded", 2.0)):
        written(tmp_path / f"{name}.npz", currents, 6000, load=load)
    command = [tmp_path / "free.npz", "--out", tmp_path / "out", "--quiet", "--estimates-only"]
    command += [x for name in model.joint_names for x in ("--torque-per-effort", f"{name}=10")]
    command += ["--known-mass", "2.0", "--loaded"]
    assert run_identify(*command, tmp_path / "loaded.npz", "--force", command="identify-arm") == 0
    found = json.loads((tmp_path / "out" / "result.json").read_text())["torque_per_effort"]
    told = {name for name, one in found.items() if one["identified"]}
    assert {"joint_2", "joint_4"} <= told
    assert not told & {"joint_6", "joint_7"}
    for j, name in enumerate(model.joint_names):
        if name in told:
            assert abs(found[name]["factor"] - scale[j]) < 4.0 * found[name]["standard_error"]
            assert found[name]["standard_error"] < 0.05 * scale[j]
        else:
            assert found[name]["factor"] == 10.0
    assert run_identify(*command, tmp_path / "free.npz", command="identify-arm") == 2


@pytest.fixture(scope="module")
def outcome(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict]:
    folder = tmp_path_factory.mktemp("arm")
    log = written(folder / "log.npz")
    assert main(["identify-arm", str(log), "--out", str(folder / "out"), "--json", str(folder / "r.json")]) == 0
    return folder / "out", json.loads((folder / "r.json").read_text())


@pytest.mark.slow
def test_held_out_torques_are_those_of_the_noise(outcome: tuple[Path, dict]) -> None:
    _, result = outcome
    rms, before = result["validation"]["rms"], result["validation"]["rms_before"]
    assert result["consistent"] is True
    assert all(rms[joint] < 0.5 * before[joint] for joint in rms)
    # Torque noise of 0.3 N m through the filter, and what is left of noise in accelerations.
    assert max(rms.values()) < 0.35
    assert result["warnings"] == []
    for parameter in result["parameters"]:
        assert set(parameter) == {"name", "unit", "estimate", "standard_error", "lower", "upper"}


def test_files_are_read_by_those_they_are_for(outcome: tuple[Path, dict]) -> None:
    folder, result = outcome
    model = load_robot(folder / "robot.yaml")
    drawn = load_robot("kinova_gen3")
    for j in range(7):
        assert is_consistent(model.theta_nominal[model.layout.link(j)])
    q, qd, qdd = np.random.default_rng(0).uniform(-1.0, 1.0, (3, 20, 7))
    truth = recorded()[1]
    dynamics = dynamics_of(drawn.kinematics)
    torque = [dynamics.inverse_dynamics(x, q, qd, 0 * qdd) for x in (model.theta_nominal, drawn.theta_nominal, truth)]
    assert np.abs(torque[0] - torque[2]).max() < 0.2 * np.abs(torque[1] - torque[2]).max()
    for j, name in enumerate(model.joint_names):
        assert model.theta_nominal[model.layout.coulomb][j] == result["joints"][name]["coulomb"]
    simulator = mujoco.MjModel.from_xml_path(str(folder / "arm_mjcf.xml"))
    simulator.opt.disableflags |= mujoco.mjtDisableBit.mjDSBL_CONTACT
    state, urdf = mujoco.MjData(simulator), pin.buildModelFromUrdf(str(folder / "arm.urdf"))
    names = [joint for joint in urdf.names if joint in model.joint_names]
    urdf = pin.buildReducedModel(urdf, [k for k, x in enumerate(urdf.names) if k and x not in names], pin.neutral(urdf))
    fc, fv, ia, beta = model.layout.by_term(model.theta_nominal)
    for x in zip(q, qd, qdd, strict=True):
        state.qpos, state.qvel, state.qacc = x
        mujoco.mj_inverse(simulator, state)
        rigid = dynamics.inverse_dynamics(model.theta_nominal, *x) - fc * np.sign(x[1]) - beta
        free = state.qfrc_inverse + state.qfrc_constraint  # frictionloss is a constraint
        assert np.allclose(free, rigid, atol=1e-9)
        configuration = np.concatenate([[np.cos(a), np.sin(a)] if joint.nq == 2 else [a]
                                        for a, joint in zip(x[0], urdf.joints[1:], strict=True)])  # fmt: skip
        alone = pin.rnea(urdf, urdf.createData(), configuration, *x[1:])
        assert np.allclose(alone, rigid - fv * x[1] - ia * x[2], atol=1e-9)
    page = (folder / "report.html").read_text()
    assert page.count('class="chart"') == 14
    assert "rotor inertia of joint_1" in page


EVERY = slice(None)
SWAP = ([1, 3], [3, 1])


@pytest.mark.parametrize(
    ("names", "joints", "factor", "words"),
    [
        ("qd", SWAP, 1.0, "swapped"),
        ("effort", SWAP, 1.0, "efforts of joint_2 and joint_4 exchanged"),
        ("q", EVERY, 57.29578, "deg"),
        ("qd", 2, -1.0, "reversed sign"),
        ("effort", 1, -1.0, "reversed sign"),
        ("effort", 1, 100.0, "gear ratio"),
        ("q", 4, 0.0, "moves by 0 rad"),
        ("q qd", EVERY, 57.29578, "taken as degrees"),
        ("q qd", 3, 57.29578, "of joint_4 taken as degrees"),
        ("q qd effort", SWAP, 1.0, "all columns of joint_2 and joint_4 exchanged"),
        ("q qd", SWAP, 1.0, "joint_4"),
        ("q qd", 3, -1.0, "joint_4"),
        ("q qd", 3, 2.0, "of joint_4 halved (its gear ratio?)"),
        ("effort", 1, 2.5, "gear ratio"),
    ],
)
def test_a_log_that_is_not_what_it_says_is_named_not_fitted(names, joints, factor, words, tmp_path, capsys) -> None:
    """Columns of these names take those of other joints, or are multiplied."""

    def change(arrays: dict) -> None:
        to, of = joints if isinstance(joints, tuple) else (joints, joints)
        for name in names.split():
            arrays[name][:, to] = factor * arrays[name][:, of]

    log = written(tmp_path / "log.npz", change, samples=5000)
    assert main(["identify-arm", str(log), "--out", str(tmp_path / "out")]) == 2
    assert words in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


@pytest.mark.slow
def test_an_arm_that_hit_something_is_told_and_left_out(tmp_path: Path) -> None:
    def hit(arrays: dict) -> None:
        arrays["effort"][5000:5250, :4] += 25.0

    log = written(tmp_path / "log.npz", hit)
    assert run_identify(log, "--out", tmp_path / "out", "--quiet", command="identify-arm") == 0
    result = json.loads((tmp_path / "out" / "result.json").read_text())
    assert any("joint_1 from 10.0" in text and "touch" in text for text in result["warnings"])
    assert max(result["validation"]["rms"].values()) < 0.4


def test_a_log_without_excitation_is_refused(tmp_path: Path) -> None:
    log = written(tmp_path / "log.npz", amplitude=0.02, samples=3000)
    assert run_identify(log, "--out", tmp_path / "out", "--quiet", command="identify-arm") == 2
    result = json.loads((tmp_path / "out" / "result.json").read_text())
    assert "not excited" in result["warnings"][0]
    assert result["unexcited"][0]["motion"]


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["stribeck", "direction", "load"])
def test_friction_that_there_is_is_taken_in_and_none_that_is_not(kind: str) -> None:
    log = recorded()[0][:6000]
    effort, speed = np.array(log.effort), log.qd[:, 1]
    effort[:, 1] += {
        "stribeck": 2.0 * np.sign(speed) * np.exp(-((speed / 0.1) ** 2)),
        "direction": 3.0 * np.abs(speed),
        "load": 0.15 * np.abs(effort[:, 1]) * np.sign(speed),
    }[kind]
    mechanism = Mechanism.of_robot(load_robot("kinova_gen3"))
    samples = prepare([replace(log, effort=effort)], mechanism.actuated_names)
    found = identify_samples(mechanism, *samples.split(), ArmOptions(transition=0.0))
    assert [(column.kind, column.row) for column in found.columns] == [(kind, 1)]


def test_residuals_say_what_is_missing() -> None:
    rng = np.random.default_rng(0)
    q, qd, qdd, model = rng.uniform(-2.0, 2.0, (4, 4000, 2))
    residual = 0.1 * rng.normal(size=(4000, 2))
    found = diagnose_residuals(residual.copy(), model, q, qd, qdd, ("a", "b"))
    assert [x.missing for x in found] == [(), ()]
    residual[:, 1] += 0.2 * np.sin(5.0 * q[:, 1])
    found = diagnose_residuals(residual, model, q, qd, qdd, ("a", "b"))
    assert found[0].missing == ()
    (missing,) = found[1].missing
    assert "ripple" in missing


def test_the_methods_offered_are_those_there_are() -> None:
    assert OFFERED == METHODS


def test_units_are_those_of_turning_and_sliding_joints() -> None:
    layout = ParameterLayout(2)
    units = parameter_units(layout, np.array([False, True]))
    assert len(units) == layout.size
    assert [units[i] for i in np.r_[layout.rotor_inertia, layout.offset]] == ["kg m^2", "kg", "N m", "N"]
