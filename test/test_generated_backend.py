"""Dynamics compiled for one arm: the numbers, what is refused, and what happens without a compiler or a cache."""

from __future__ import annotations

import warnings
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from arm_factory import check_agreement, random_arm
from identification_plant import geared

from safe_sysid.control.laws.inverse_dynamics import ComputedTorqueLaw, ImpedanceLaw
from safe_sysid.control.laws.law import ModelInUse
from safe_sysid.control.settings import ComputedTorqueSettings, ImpedanceSettings
from safe_sysid.dynamics import dynamics_of
from safe_sysid.dynamics.generated import backend as backends
from safe_sysid.dynamics.generated.backend import GeneratedDynamics
from safe_sysid.dynamics.generated.derive import derive
from safe_sysid.dynamics.generated.recursion import TracedArm
from safe_sysid.errors import ModelError, ParameterError
from safe_sysid.robot.loading import load_robot
from safe_sysid.studies.experiments.psdm.arms import PSDM_ARMS

pytestmark = pytest.mark.unproved

PACKAGE = Path(__file__).resolve().parent.parent / "safe_sysid"


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.delenv("CC", raising=False)
    return tmp_path / "safe_sysid" / "dynamics"


def small():
    return PSDM_ARMS["two_link"].kinematics(), PSDM_ARMS["two_link"].parameters()


@pytest.mark.parametrize("seed", [0, 1, 3, 4])
def test_every_result_is_pinocchios_on_arms_with_sliding_joints_friction_and_geared_rotors(seed):
    rng = np.random.default_rng(seed)
    n = 1 + seed
    kin, _, theta = random_arm(n, rng, 0.4 * (seed % 2))
    kin = geared(rng, kin) if seed % 3 else kin
    ours, theirs = dynamics_of(kin, "generated"), dynamics_of(kin, "pinocchio")
    check_agreement(ours, theirs, kin, theta, rng)


def test_forward_dynamics_undo_inverse_dynamics_and_angles_may_be_large():
    kin, theta = small()
    ours, rng = GeneratedDynamics(kin), np.random.default_rng(2)
    theta[2 * 10 :] = rng.uniform(0.1, 0.5, 8)
    q = rng.uniform(-1e5, 1e5, (200, 2))
    qd, qdd = rng.uniform(-3, 3, (2, 200, 2))
    torque = ours.inverse_dynamics(theta, q, qd, qdd, 0.1)
    np.testing.assert_allclose(torque, dynamics_of(kin).inverse_dynamics(theta, q, qd, qdd, 0.1), atol=1e-10)
    np.testing.assert_allclose(ours.forward_dynamics(theta, q, qd, torque, 0.1), qdd, rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(ours.forward_dynamics(theta, q[0], qd[0], torque[0], 0.1), qdd[0], rtol=1e-9)
    with pytest.raises(ParameterError, match=r"expected all \(N, 2\)"):
        ours.forward_dynamics(theta, q, qd[:, :1], torque)


@pytest.mark.parametrize(("name", "most"), [("sr6ia", 71), ("kr6", 503), ("lbr7", 572)])
def test_a_specialised_recursion_takes_a_few_hundred_operations(name, most):
    """The generated functions of [PSDM Table 2] take 210, 10185 and 32368."""
    model = derive(PSDM_ARMS[name].kinematics())
    arm = TracedArm(model.chain, model.selected.tolist(), False)
    assert arm.graph.count(arm.torque(arm.qd, arm.qdd)).total <= most


def test_code_that_gives_other_numbers_is_refused(monkeypatch):
    kin, _ = small()
    written = backends.write_c

    def broken(*arguments):
        source = written(*arguments)
        start = source.text.index("static void one_inverse")
        return replace(source, text=source.text[:start] + source.text[start:].replace(" - ", " + ", 1))

    monkeypatch.setattr(backends, "write_c", broken)
    with pytest.raises(ModelError, match=r"generated code for inverse dynamics differs .* refused"):
        GeneratedDynamics(kin)


def test_compiled_code_is_kept_and_a_changed_file_is_made_again(cache):
    kin, theta = small()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        GeneratedDynamics(kin)
        (kept,) = cache.iterdir()
        made = kept.read_bytes()
        GeneratedDynamics(kin)
    assert [path.name for path in cache.iterdir()] == [kept.name]
    kept.unlink()  # never write into a file that is mapped
    kept.write_bytes(made[:-8] + b"changed!")
    with pytest.warns(UserWarning, match="was changed since it was made"):
        again = GeneratedDynamics(kin)
    assert again.gravity(theta, np.zeros(2)) == pytest.approx(dynamics_of(kin).gravity(theta, np.zeros(2)))
    assert b"changed!" not in b"".join(path.read_bytes()[-8:] for path in cache.iterdir())


def test_a_cache_that_cannot_be_written_is_gone_without(tmp_path, monkeypatch):
    kin, theta = small()
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    with pytest.warns(UserWarning, match="compiled dynamics are not kept in .*: Not a directory"):
        found = GeneratedDynamics(kin).gravity(theta, np.zeros(2))
    np.testing.assert_allclose(found, dynamics_of(kin).gravity(theta, np.zeros(2)), atol=1e-12)


@pytest.mark.parametrize(
    ("compiler", "said"), [("/bin/false", "failed with status 1"), ("/no/such/compiler", "does not run")]
)
def test_without_a_compiler_the_recursion_serves_and_a_warning_says_so(compiler, said, monkeypatch, cache):
    kin, theta = small()
    monkeypatch.setenv("CC", compiler)
    with pytest.warns(UserWarning, match=f"recursion in numba: .*{said}"):
        ours = GeneratedDynamics(kin)
    rng = np.random.default_rng(4)
    q, qd, qdd = rng.standard_normal((3, 3, 2))
    torque = ours.inverse_dynamics(theta, q, qd, qdd)
    np.testing.assert_array_equal(torque, dynamics_of(kin).inverse_dynamics(theta, q, qd, qdd))
    np.testing.assert_array_equal(ours.torque_regressor(q, qd, qdd), dynamics_of(kin).torque_regressor(q, qd, qdd))
    np.testing.assert_allclose(ours.forward_dynamics(theta, q, qd, torque), qdd, atol=1e-9)
    assert not cache.exists()


def test_laws_that_prove_nothing_of_the_model_may_use_it():
    robot = load_robot("three_joint")
    rng = np.random.default_rng(6)
    use = ModelInUse(robot.theta_nominal, robot.arm_prior.mid, robot.arm_prior.rad)
    for law, settings in ((ComputedTorqueLaw, ComputedTorqueSettings), (ImpedanceLaw, ImpedanceSettings)):
        plain, fast = law(robot, settings()), law(robot, settings(dynamics="generated"))
        for _ in range(5):
            q, qd, reference = rng.standard_normal(3), rng.standard_normal(3), rng.standard_normal((3, 3))
            plain.external[:] = fast.external[:] = rng.standard_normal(3)
            expected = plain.step(0.0, q, qd, reference, use).copy()
            found = fast.step(0.0, q, qd, reference, use)
            np.testing.assert_allclose(found, expected, atol=1e-10 * np.abs(expected).max())


def test_certificates_and_verdicts_rest_on_no_generated_code():
    for room in ("identification", "reachability", "planning"):
        for path in (PACKAGE / room).rglob("*.py"):
            assert "dynamics.generated" not in path.read_text(encoding="utf-8"), path
