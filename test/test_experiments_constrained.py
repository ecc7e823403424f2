"""The experiments of the constrained paper: a truth of its own, tables that identified parameters win, the command."""

from __future__ import annotations

import json
from pathlib import Path

import command_support
import numpy as np
import pytest

from safe_sysid.commands import experiment as command
from safe_sysid.dynamics.closed_chain import load_mechanism
from safe_sysid.dynamics.closed_chain.forward import ForwardDynamics
from safe_sysid.errors import SafeSysIdError
from safe_sysid.robot.parameters import is_consistent
from safe_sysid.studies.experiments.constrained import tables, trial
from safe_sysid.studies.experiments.constrained.truth import Sensors, TrueLimb, perturbed

pytestmark = pytest.mark.unproved

EXACT = Sensors(counts=2**40, velocity=0.0, torque=0.0)


@pytest.mark.parametrize("name", ["four_joint_arm", "four_bar", "palletiser", "leg"])
def test_forward_dynamics_agree_with_pinocchios_constrained_ones(name: str) -> None:
    """Two derivations: coordinates of the motors, and all joints with reaction forces."""
    m = load_mechanism(name)
    theta = perturbed(m.theta_nominal, m.layout, True, np.random.default_rng(1))
    arm, forward = TrueLimb(name, theta, m.actuated), ForwardDynamics(m, theta, 0.02)
    q_a, qd_a = m.start[m.actuated] + 0.1, 0.4 * np.ones(len(m.actuated))
    motion = m.motion(q_a, qd_a, 0.0 * qd_a)
    torque = 0.1 * arm.torque_limit
    full = arm._acceleration(motion.q[0], motion.qd[0], torque)
    passive_rate = np.abs(motion.qd[0][m.passive])
    # Smooth friction differs from that with a transition where a passive joint hardly moves; there is little of it.
    near = 1e-8 if not len(passive_rate) else 2e-2
    np.testing.assert_allclose(forward.acceleration(q_a, qd_a, torque), full[m.actuated], rtol=near, atol=near)


@pytest.mark.parametrize("name", ["four_bar", "leg"])
def test_a_simulated_motion_is_pinocchios(name: str) -> None:
    m = load_mechanism(name)
    theta = np.array(m.theta_nominal)
    theta[m.layout.coulomb] = 0.0
    q_a = m.start[m.actuated] + 0.05
    motion = m.motion(q_a, np.zeros_like(q_a), np.zeros_like(q_a))
    hold = (m.regressor(motion) @ theta)[0]
    torques = np.tile(hold, (200, 1)) + 0.5 * np.sin(np.arange(200) / 20.0)[:, None]
    log = TrueLimb(name, theta, m.actuated).run(
        motion.q[0], motion.qd[0], 0.2, lambda k, q, qd: torques[k], EXACT, np.random.default_rng(0)
    )
    ours = ForwardDynamics(m, theta).simulate(np.array(log.stamps), q_a, np.zeros_like(q_a), torques, motion.q[0])
    assert np.max(np.abs(log.q - q_a)) > 1e-3
    assert np.max(np.abs(ours - log.q)) < 2e-3 * np.max(np.abs(log.q - q_a)) + 1e-6


def test_perturbed_arms_are_real_and_5_to_30_percent_off() -> None:
    m = load_mechanism("leg")
    for seed in range(20):
        theta = perturbed(m.theta_nominal, m.layout, True, np.random.default_rng(seed))
        assert all(is_consistent(theta[m.layout.link(j)]) for j in range(m.n))
        nominal = m.theta_nominal[m.layout.joint_terms]
        off = np.abs(theta[m.layout.joint_terms][nominal != 0.0] / nominal[nominal != 0.0] - 1.0)
        assert off.min() >= 0.05
        assert off.max() <= 0.30
        mass = np.abs(theta[m.layout.links][::10] / m.theta_nominal[m.layout.links][::10] - 1.0)
        assert mass.min() >= 0.05
        assert mass.max() <= 0.30
    same = perturbed(m.theta_nominal, m.layout, False, np.random.default_rng(0))
    np.testing.assert_array_equal(same[m.layout.links], m.theta_nominal[m.layout.links])


@pytest.mark.slow
def test_identified_parameters_win_table_one_and_three_of_an_arm() -> None:
    study = trial.SimulatedArm(0, "four_joint_arm")
    ours = trial.torque_rms(study, study.identified)
    theirs = trial.torque_rms(study, study.mechanism.theta_nominal)
    floor = trial.torque_rms(study, study.truth)
    assert np.all(ours < 0.5 * theirs)
    assert np.all(ours < 1.1 * floor)
    both = (study.identified, study.mechanism.theta_nominal)
    less, more = (np.mean(np.abs(trial.tracking(study, theta, 5.0)[1]), axis=0) for theta in both)
    assert np.all(less < more)


def test_a_simulation_that_does_not_end_is_no_number_and_loses() -> None:
    measured = np.zeros((2, 3, 1))
    ours = np.array([[[0.0], [3.0], [4.0]], [[0.0], [0.0], [np.nan]]])
    assert trial.simulation_error(measured, ours).tolist() == [np.inf]
    assert trial.simulation_error(measured[:1], ours[:1]).tolist() == [5.0]
    row = {"seed": 0, "limb": "leg", "joint": "knee", "identified": None, "manufacturer": 1.0}
    told = tables.summary("2", {}, [{"index": 0, "rows": [row]}])
    assert told["lost"] == ["knee"]
    assert told["medians"][0]["better"] == 0


def run(*arguments: object) -> int:
    return command_support.called(command, "constrained", *arguments)


def made_up(seed: int, index: int, options: dict) -> dict:
    if seed + index // 2 == 3:
        raise SafeSysIdError("broken on purpose")
    limb, joints = (("leg", ["knee"]), ("four_joint_arm", ["elbow"]))[index % 2]
    row = {"seed": seed + index // 2, "limb": limb, "joint": joints[0], "identified": 1.0 + index, "manufacturer": 2.5}
    series = {"stamps": [0.0, 1.0]} | {key: [[1.0], [2.0]] for key in ("measured", "identified", "manufacturer")}
    more = {"series": series, "joints": joints} if index < 2 else {}
    return {"index": index, "rows": [row], **more}


def test_the_command_runs_goes_on_and_draws(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    command_support.in_this_process(monkeypatch)
    monkeypatch.setattr(trial, "run_trial", made_up)
    out, file = tmp_path / "out", tmp_path / "found.json"
    assert run("--table", 1, "--seeds", 1, "--out", out, "--figure", 3) == 0
    assert sorted(path.name for path in out.glob("*.png")) == ["figure_3_four_joint_arm.png", "figure_3_leg.png"]
    assert run("--table", 1, "--seeds", 2, "--out", out, "--resume", "--json", file) == 0
    told = json.loads(file.read_text())
    assert [set(row) >= {"seed", "joint", "identified", "manufacturer"} for row in told["rows"]] == [True] * 4
    medians = [(median["joint"], median["identified"], median["better"]) for median in told["medians"]]
    assert medians == [("knee", 2.0, 1), ("elbow", 3.0, 1)]
    assert told["lost"] == ["elbow"]
    assert "worse identified than the manufacturer's, in the median: elbow" in capsys.readouterr().out
    assert run("--table", 1, "--seeds", 4, "--out", out, "--resume") == 1
    with pytest.raises(SafeSysIdError, match="figure 5 shows table 3"):
        run("--table", 1, "--figure", 5, "--out", out)
    with pytest.raises(SafeSysIdError, match="--table or --figure"):
        run("--out", out)
    with pytest.raises(SafeSysIdError, match="limb 'tail'"):
        run("--table", 2, "--limbs", "tail", "--out", tmp_path / "other")
