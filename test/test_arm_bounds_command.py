"""``identify-arm`` with guaranteed intervals: lower and upper in the results, a certificate that `verify` checks."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
import yaml
from identification_plant import noisy, simulate, wavy_plans
from scipy.optimize import linprog

from safe_sysid.cli import main
from safe_sysid.dynamics import dynamics_of
from safe_sysid.dynamics.magnitudes import link_norms
from safe_sysid.errors import ConfigError
from safe_sysid.identification.arm.bounds.intervals import base_of
from safe_sysid.identification.certificates.files.arm import read_arm_certificate
from safe_sysid.identification.certificates.interval_dynamics.link_bounds import LinkBounds
from safe_sysid.identification.equations.measurements import Measurements
from safe_sysid.logs.formats.npz import write_log
from safe_sysid.robot.kinematics import NO_EXCESS
from safe_sysid.robot.loading import load_robot
from safe_sysid.robot.scenes.scene import config_path
from safe_sysid.simulation.arms import draw_truth
from safe_sysid.simulation.payloads import payload_from_spec, theta_e_with_payload


@pytest.fixture(scope="module")
def outcome(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, np.ndarray, list[Path]]:
    """Directory of `identify-arm`, the arm's true parameters, and its two logs."""
    folder, model, rng = tmp_path_factory.mktemp("arm"), load_robot("three_joint"), np.random.default_rng(4)
    box, m = model.empty_handed_prior, model.settings.measurement
    theta = box.mid + 0.5 * box.rad * rng.uniform(-1.0, 1.0, box.size)
    logs = []
    for k in range(2):
        true = simulate(model.kinematics, theta, model.friction_transition_velocity, wavy_plans(rng, 3, 1.8), rng=rng)
        logs.append(folder / f"{k}.npz")
        write_log(logs[-1], model.joint_names, noisy(true, m.torque_abs, m.torque_rel, rng))
    command = ["identify-arm", *map(str, logs), "--robot", "three_joint", "--out", str(folder / "out"), "--force"]
    assert main([*command, "--quiet"]) == 0
    return folder / "out", theta, logs


def test_lower_and_upper_hold_the_truth_and_are_verified(outcome, capsys: pytest.CaptureFixture[str]) -> None:
    out, theta, _ = outcome
    result = json.loads((out / "result.json").read_text())
    assert result["intervals"].pop("equations") > 0
    assert result["intervals"] == {"proved": True, "reason": None, "certificate": "arm_certificate.json"}
    combinations = read_arm_certificate(out / "arm_certificate.json").arrays["combinations"]
    assert len(combinations) == len(result["parameters"]) > 10
    box = load_robot("three_joint").empty_handed_prior
    shares = []
    for c, p in zip(combinations, result["parameters"], strict=True):
        assert p["lower"] <= c @ theta <= p["upper"]
        assert p["lower"] <= p["estimate"] <= p["upper"]
        shares.append((p["upper"] - p["lower"]) / (np.abs(c) @ (box.upper - box.lower)))
    assert np.quantile(shares, 0.25) < 0.5
    assert result["consistent"] is True
    found = load_robot(out / "robot.yaml").theta_nominal
    assert np.all((box.lower <= found) & (found <= box.upper))
    # Where the log says much, what is proved keeps the estimate from the filter's bias.
    wrong = np.abs(combinations @ (found - theta)) / (np.abs(combinations) @ box.rad)
    assert np.quantile(wrong, 0.5) < 0.5
    assert "at least" in (out / "report.html").read_text()
    capsys.readouterr()
    assert main(["verify", str(out)]) == 0
    said = capsys.readouterr().out
    assert "PASS: safe_sysid/arm-certificate/1 of three_joint" in said
    assert "assumed: nothing in the hand but what always is, in log_1.npz, log_2.npz" in said


def test_the_controllers_box_holds_what_moves_as_the_true_arm_and_is_narrower(outcome) -> None:
    out, theta, _ = outcome
    found, drawn = load_robot(out / "robot.yaml"), load_robot("three_joint")
    box, hand, base = found.arm_prior, found.layout.payload, base_of(drawn).matrix
    program = {"c": 0.0 * theta, "A_eq": base, "bounds": np.stack([box.lower, box.upper], axis=1)}
    program["bounds"][hand] = np.stack(found.hand_prior, axis=1)
    like = linprog(b_eq=base @ theta, **program)
    assert like.status == 0
    # Whatever the true hand may hold, the one of the file may hold.
    for side, sign in (("lower", 1.0), ("upper", -1.0)):
        payload = getattr(drawn.arm_prior, f"payload_{side}") - theta[hand]
        payload[[0, 4, 6, 9]] = np.maximum(payload[[0, 4, 6, 9]], 0.0)
        assert np.all(sign * getattr(box, f"payload_{side}") <= sign * (like.x[hand] + payload) + 1e-12)
    moved = theta.copy()
    moved[found.layout.coulomb] += 0.3 * box.rad[found.layout.coulomb] + box.upper[found.layout.coulomb]
    assert linprog(b_eq=base @ moved, **program).status == 2
    rng = np.random.default_rng(1)
    torque = np.abs(dynamics_of(drawn.kinematics).torque_regressor(*rng.normal(size=(3, 200, 3))))
    torque[..., hand] = 0.0
    assert np.all((torque @ box.rad).max(axis=0) < 0.75 * (torque @ drawn.arm_prior.rad).max(axis=0))


@pytest.mark.parametrize("key", ["viscous", pytest.param("link_upper", marks=pytest.mark.slow)])
def test_an_interval_of_the_robot_file_that_is_not_proved_is_found(outcome, tmp_path: Path, capsys, key: str) -> None:
    path = shutil.copytree(outcome[0], tmp_path / "copy") / "robot.yaml"
    content = yaml.safe_load(path.read_text())
    proved = content["joints"]["shoulder"]["proved"]
    proved[key][-1] -= 1e-9
    path.write_text(yaml.safe_dump(content))
    assert main(["verify", str(tmp_path / "copy"), "--robot", "three_joint"]) == 1
    assert "FAIL: robot.yaml: parameter" in capsys.readouterr().out
    shutil.copy(outcome[0] / "robot.yaml", path)
    content = yaml.safe_load(path.read_text())
    for part, words in (
        (content["joints"]["elbow"]["proved"]["link_upper"], "parameter"),
        (content["payload"]["prior_upper"], "payload.prior_upper[1] = "),
        (content["joints"]["shoulder"]["proved"]["link_excess"], "joints.shoulder.proved.link_excess[1] = "),
    ):
        part[1] -= 1e-9
        path.write_text(yaml.safe_dump(content))
        assert main(["verify", str(tmp_path / "copy"), "--robot", "three_joint"]) == 1
        assert f"FAIL: robot.yaml: {words}" in capsys.readouterr().out
        part[1] += 1e-9
    proved = content["joints"]["elbow"]["proved"]
    for keys, words in ((["link_excess"], "three numbers"), (["link_upper", "link_lower"], "rests on the others")):
        for key in keys:
            del proved[key]
        path.write_text(yaml.safe_dump(content))
        with pytest.raises(ConfigError, match=words):
            load_robot(path)


def test_bounds_over_all_poses_hold_for_the_real_links_which_need_not_be_in_the_box(outcome) -> None:
    theta, found = outcome[1], load_robot(outcome[0] / "robot.yaml")
    kin, box, layout = found.kinematics, found.empty_handed_prior, found.layout
    assert any(theta[layout.link(j)][0] > box.upper[layout.link(j)][0] for j in range(found.n))  # more than the box has
    real, ours = link_norms(kin._replace(excess=NO_EXCESS), theta, theta), link_norms(kin, box.lower, box.upper)
    assert np.all(real.a <= ours.a)
    assert np.all(real.b <= ours.b)
    states = np.random.default_rng(0).uniform(0.0, 1.0, (3, 5, found.n))
    checked = [LinkBounds(k, *sides).over(*states) for k, sides in
               ((kin._replace(excess=NO_EXCESS), (theta, theta)), (kin, (box.lower, box.upper)))]  # fmt: skip
    for mine, theirs in zip(*map(vars, checked), strict=True):
        assert np.all(vars(checked[0])[mine] <= vars(checked[1])[theirs])


@pytest.mark.parametrize("mode", ["uniform", "corner"])
def test_the_simulated_arm_of_an_identified_file_has_a_hand_that_the_file_allows(outcome, mode: str) -> None:
    found = load_robot(outcome[0] / "robot.yaml")
    payload = payload_from_spec("0.5,0,0,0.1,0.003,0,0.003,0,0,0.0005")
    true = draw_truth(found, payload, 3, mode)
    hand = true[found.layout.payload] - theta_e_with_payload(found, np.zeros(10), payload)
    assert np.all((found.hand_prior[0] - 1e-12 <= hand) & (hand <= found.hand_prior[1] + 1e-12))


def test_a_log_that_says_too_little_for_exchanges_leaves_the_declared_payload(tmp_path: Path, capsys) -> None:
    content = yaml.safe_load(config_path("three_joint", "config").read_text())
    content["measurement"]["torque_abs"], robot = 5.0, tmp_path / "robot.yaml"
    robot.write_text(yaml.safe_dump(content))
    model, rng = load_robot(robot), np.random.default_rng(2)
    theta = model.theta_nominal
    true = simulate(model.kinematics, theta, model.friction_transition_velocity, wavy_plans(rng, 3, 0.5), rng=rng)
    write_log(tmp_path / "log.npz", model.joint_names, noisy(true, 0.05, 0.0, rng))
    command = ["identify-arm", str(tmp_path / "log.npz"), "--robot", str(robot), "--out", str(tmp_path / "out")]
    assert main([*command, "--force", "--quiet", "--plain-friction"]) in (0, 2)
    combinations = read_arm_certificate(tmp_path / "out" / "arm_certificate_of_box.json").arrays["combinations"]
    assert len(combinations) == model.layout.size
    found = load_robot(tmp_path / "out" / "robot.yaml")
    np.testing.assert_array_equal(found.arm_prior.payload_upper, model.arm_prior.payload_upper)
    assert not found.kinematics.excess.any()
    assert main(["verify", str(tmp_path / "out"), "--robot", str(robot)]) == 0, capsys.readouterr().out


@pytest.mark.parametrize(
    ("file", "change", "words"),
    [
        (
            "result.json",
            lambda parameters: parameters[3].update(upper=parameters[3]["upper"] - 1e-9),
            "FAIL: result.json",
        ),
        ("result.json", lambda parameters: parameters[3].update(name="m of link 1"), "FAIL: result.json"),
        ("result.json", lambda parameters: parameters.pop(), "FAIL: result.json"),
        ("arm_certificate.json", lambda parameters: parameters[0].update(name="m of a link"), "parameters[0].name"),
    ],
)
def test_what_is_published_and_names_of_parameters_are_compared(
    outcome, tmp_path: Path, capsys, file: str, change, words: str
) -> None:
    path = shutil.copytree(outcome[0], tmp_path / "copy") / file
    content = json.loads(path.read_text())
    change(content["parameters"])
    path.write_text(json.dumps(content))
    assert main(["verify", str(path if "certificate" in file else path.parent)]) == 1
    assert words in capsys.readouterr().out


def test_a_false_declaration_leaves_estimates_without_intervals(outcome, tmp_path: Path) -> None:
    log = np.load(outcome[2][0])
    effort = log["effort"] + 3.0 * np.sin(np.arange(len(log["stamps"])) / 60.0)[:, None]
    model = load_robot("three_joint")
    write_log(tmp_path / "l.npz", model.joint_names, Measurements(log["stamps"], log["q"], log["qd"], effort))
    command = ["identify-arm", str(tmp_path / "l.npz"), "--robot", "three_joint", "--out", str(tmp_path / "out")]
    assert main([*command, "--quiet", "--force", "--plain-friction"]) == 0
    result = json.loads((tmp_path / "out" / "result.json").read_text())
    assert result["intervals"]["proved"] is False
    assert "a declared assumption is false" in result["intervals"]["reason"]
    assert all(p["lower"] is None and p["upper"] is None for p in result["parameters"])
    assert not (tmp_path / "out" / "arm_certificate.json").exists()


def test_of_a_file_with_proved_links_none_is_written_without_intervals(outcome, tmp_path: Path, capsys) -> None:
    command = ["identify-arm", str(outcome[2][0]), "--estimates-only", "--plain-friction", "--force"]
    for robot, written in (("three_joint", True), (str(outcome[0] / "robot.yaml"), False)):
        out = tmp_path / str(written)
        assert main([*command, "--robot", robot, "--out", str(out)]) == 0
        assert (out / "robot.yaml").exists() is written
        assert ("robot.yaml is not written: three_joint has `proved` links" in capsys.readouterr().out) is not written
        assert (out / "arm.urdf").exists()
