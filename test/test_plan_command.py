"""``safe-sysid plan`` and ``safe-sysid verify`` on plans: what users see, and what a run directory must hold."""

from __future__ import annotations

import argparse
import json
import shlex
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stdout
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from safe_sysid.cli import main
from safe_sysid.commands import plan as plan_command
from safe_sysid.commands import verify as verify_command
from safe_sysid.decimals import at_least
from safe_sysid.dynamics import dynamics_of
from safe_sysid.dynamics.closed_chain import load_mechanism
from safe_sysid.identification.arm.bounds.intervals import base_of
from safe_sysid.planning.plan_files.plan_file import read_plan
from safe_sysid.report.verify_command import plans_command
from safe_sysid.robot import RobotModel, load_robot
from safe_sysid.robot.identity import digest


def call(command: ModuleType, *arguments: str) -> int:
    """Exit status of the command with these words."""
    return main([command.__name__.rpartition(".")[2], *arguments])


@contextmanager
def without_pictures() -> Iterator[None]:
    """Plans are written without a picture of the motion."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("safe_sysid.apps.plan.plan.draw_motion", lambda *arguments: None)
        yield


@pytest.fixture(scope="module")
def planned(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A short motion there and back in the open; beside its directory what was said."""
    folder = tmp_path_factory.mktemp("planned")
    there = ",".join(str(x) for x in (0.3, 0.26, 3.1416, -2.27, 0.2, 0.96, 1.2))
    out = folder / "run"
    words = ["--to", there, "--to", "home", "--out", str(out), "--json", str(folder / "copy.json"), "--quiet"]
    with (folder / "said.txt").open("w") as said, redirect_stdout(said):
        assert call(plan_command, *words) == 0
    return out


@pytest.fixture(scope="module")
def around(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A way around obstacles: plans that begin in motion."""
    out = tmp_path_factory.mktemp("around") / "run"
    with without_pictures():
        assert call(plan_command, "--to", "goal", "--scene", "six_boxes", "--out", str(out), "--quiet") == 0
    return out


def in_motion(folder: Path) -> list[Path]:
    """Plans that begin in motion."""
    files = sorted(folder.glob("plan_*.json"))
    found = [path for path in files if np.any(json.loads(path.read_text())["plan"]["knots"][0][1])]
    assert found
    return found


def test_a_motion_leaves_files_that_verify(planned: Path, capsys: Any) -> None:
    content = json.loads((planned / "motion.json").read_text())
    assert content == json.loads((planned.parent / "copy.json").read_text())
    assert content["reached"]
    assert (planned / "motion.png").read_bytes().startswith(b"\x89PNG")
    files = sorted(path.name for path in planned.glob("plan_*.json"))
    assert files == [step["file"] for step in content["steps"]]
    assert np.allclose(content["steps"][-1]["end_rad"], content["start_rad"], atol=1e-3)
    assert call(verify_command, str(planned), "--scene", "open", "--lockstep") == 0
    out = capsys.readouterr().out
    assert f"PASS: {len(files)} plans of kinova_gen3 in scene open" in out
    assert "assumed: the plant waits for every command (lock-step)" in out
    assert "lock-step" in out.split("PASS: ")[1]
    assert "assumed: the arm holds still at" in out
    assert "assumed: the true parameters lie in the prior" in out
    for family in ("position", "velocity", "torque", "self_clearance", "tracking"):
        assert f"smallest margin: {family}" in out


def test_one_file_is_checked_alone_and_a_forged_one_fails(planned: Path, tmp_path: Path, capsys: Any) -> None:
    assert call(verify_command, str(planned / "plan_00001.json"), "--scene", "open", "--lockstep") == 0
    assert "PASS: 1 plan" in capsys.readouterr().out
    forged = tmp_path / "plan_00001.json"
    honest = (planned / "plan_00001.json").read_text()
    forged.write_text(honest.replace('"torque": {"smallest": ', '"torque": {"smallest": 1'))
    assert call(verify_command, str(forged)) == 1
    assert "FAIL: plan_00001.json: sha256" in capsys.readouterr().out


def test_real_time_is_what_is_checked_unless_lock_step_is_asked_for(planned: Path, tmp_path: Path, capsys: Any) -> None:
    """The command that `plan` says is the one that fits, and no other timing passes."""
    assert call(verify_command, str(planned)) == 1
    assert "FAIL: plan_00000.json: gains.timing = 'lock-step'" in capsys.readouterr().out
    said = (planned.parent / "said.txt").read_text()
    words = shlex.split(said.split("check with: safe-sysid verify ")[1])
    assert words == [str(planned), "--scene", "open", "--lockstep"]
    words = ["--to", "0.03,0.26,3.1416,-2.27,0,0.96,1.5708", "--out", str(tmp_path / "run"), "--quiet", "--real-time"]
    with without_pictures():
        assert call(plan_command, *words) == 0
    words = shlex.split(capsys.readouterr().out.split("check with: safe-sysid verify ")[1])
    assert words == [str(tmp_path / "run"), "--scene", "open"]
    assert call(verify_command, *words) == 0
    assert "real-time" in capsys.readouterr().out.split("PASS: ")[1]
    assert call(verify_command, *words, "--lockstep") == 1
    assert "timing" in capsys.readouterr().out


@pytest.mark.slow
def test_one_plan_in_another_scene_fails_the_directory(
    planned: Path, around: Path, tmp_path: Path, capsys: Any
) -> None:
    """Each is true in the packaged scene that it names; no arm drives in both."""
    copy = tmp_path / "run"
    shutil.copytree(planned, copy)
    assert call(verify_command, str(around / "plan_00000.json"), "--scene", "six_boxes", "--lockstep") == 0
    content = json.loads((around / "plan_00000.json").read_text())
    content["plan"]["sequence"] = 99
    content["sha256"] = digest({key: value for key, value in content.items() if key != "sha256"})
    (copy / "plan_00099.json").write_text(json.dumps(content))
    capsys.readouterr()
    assert call(verify_command, str(copy), "--lockstep") == 1
    assert "FAIL: plan_00099.json: scene: of another scene than plan_00000.json" in capsys.readouterr().out


def test_a_plan_in_motion_passes_alone_only_with_its_beginning_assumed(
    around: Path, tmp_path: Path, capsys: Any
) -> None:
    moving = in_motion(around)
    assert call(verify_command, str(moving[0]), "--scene", "six_boxes", "--lockstep") == 0
    out = capsys.readouterr().out
    assert f"assumed: {moving[0].name} BEGINS IN MOTION" in out
    assert "if it begins in motion as assumed above" in out.split("PASS: ")[1]
    only = tmp_path / "run"
    only.mkdir()
    shutil.copy(moving[0], only)
    assert call(verify_command, str(only), "--lockstep") == 1
    assert "begins in motion" in capsys.readouterr().out


def test_a_directory_with_a_gap_or_a_broken_file_fails(around: Path, tmp_path: Path, capsys: Any) -> None:
    copy = tmp_path / "run"
    shutil.copytree(around, copy)
    before = int(in_motion(around)[0].name[5:10]) - 1
    (copy / f"plan_{before:05d}.json").unlink()
    assert call(verify_command, str(copy), "--lockstep") == 1
    assert "begins in motion" in capsys.readouterr().out
    (copy / "plan_00099.json").write_text("{}")
    assert call(verify_command, str(copy), "--lockstep") == 1
    assert "plan_00099.json: schema" in capsys.readouterr().out


def test_another_robot_or_scene_is_said(planned: Path, capsys: Any) -> None:
    assert call(verify_command, str(planned), "--scene", "six_boxes") == 1
    assert "scene: another one than six_boxes" in capsys.readouterr().out
    assert call(verify_command, str(planned), "--set", "uncertainty.relative=0.2") == 2
    assert "another robot, or with other settings" in capsys.readouterr().err
    capsys.readouterr()
    assert call(verify_command, str(planned), "--lockstep") == 3, "the plans' own word for what is around them"
    assert "CONDITIONAL" in capsys.readouterr().out
    assert call(verify_command, str(planned), "--scene", "stated", "--lockstep") == 0
    assert "as the file itself states it" in capsys.readouterr().out


def test_no_way_is_an_answer_with_reasons(tmp_path: Path, capsys: Any) -> None:
    out = tmp_path / "run"
    assert call(plan_command, "--scene", "six_boxes", "--to", "home", "--out", str(out)) == 1
    told = capsys.readouterr()
    assert "REFUSED" in told.err
    assert "post_middle" in told.err
    content = json.loads((out / "motion.json").read_text())
    assert not content["reached"]
    assert content["steps"] == []
    assert any("may not be rested at" in reason for reason in content["reasons"])
    assert call(verify_command, str(out), "--lockstep") == 2
    assert "motion.json says that the motion was refused (goal may not be rested at" in told_error(capsys)
    assert call(plan_command, "--to", "start", "--scene", "six_boxes", "--out", str(out)) == 0, "corrected"
    told = capsys.readouterr()
    assert "already there: nothing to drive, nothing to check" in told.out
    assert "verify" not in told.out
    assert call(verify_command, str(out), "--lockstep") == 2
    assert "motion.json says that there was nothing to drive" in told_error(capsys)
    (out / "motion.json").write_text("{}")
    assert call(plan_command, "--to", "start", "--out", str(out)) == 2, "somebody else's"


def told_error(capsys: Any) -> str:
    return capsys.readouterr().err


@pytest.mark.parametrize("what", [["--to", "goal"], ["--excite", "1"], ["--to", "goal", "--simulate"]])
def test_a_start_that_may_not_be_rested_at_is_called_so(what: list[str], tmp_path: Path, capsys: Any) -> None:
    arguments = ["--scene", "six_boxes", "--start", "home", "--out", str(tmp_path / "run"), *what]
    assert call(plan_command, *arguments) == 1
    assert "REFUSED: start may not be rested at: post_middle" in told_error(capsys)


def test_margins_of_distances_say_what_they_are_counted_from(around: Path, tmp_path: Path, capsys: Any) -> None:
    """All that is printed, by both commands, is beyond the distance that the certificate asks for."""
    assert call(verify_command, str(around / "plan_00000.json"), "--scene", "six_boxes", "--lockstep") == 0
    out = capsys.readouterr().out
    smallest = json.loads((around / "motion.json").read_text())["steps"][0]["margins"]["clearance"]["smallest"]
    assert f"smallest margin: clearance over 5 mm {at_least(smallest, 4)} m" in out
    assert "m over 5 mm" in out
    goal = "0.03,0.26,3.1416,-2.27,0,0.96,1.5708"
    margin = "planner.clearance_margin=0.01"
    with without_pictures():
        assert call(plan_command, "--to", goal, "--set", margin, "--out", str(tmp_path / "run")) == 0
    told = capsys.readouterr()
    assert "margins: clearance" in told.err
    assert "margin over 10" in " ".join(told.out.split())


@pytest.mark.slow
def test_a_simulated_motion_is_judged(tmp_path: Path, capsys: Any) -> None:
    out, goal = tmp_path / "run", "0.1,0.26,3.1416,-2.27,0.1,0.96,1.5"
    with without_pictures():
        assert call(plan_command, "--to", goal, "--simulate", "--payload", "4lb", "--out", str(out)) == 0
    told = capsys.readouterr()
    assert "driven in simulation without a violation" in told.out
    assert "judged: smallest true distance" in told.err
    simulated = json.loads((out / "motion.json").read_text())["simulated"]
    assert set(simulated["violations"].values()) == {0}
    assert np.abs(np.array(simulated["final_rad"]) - [float(x) for x in goal.split(",")]).max() < 0.03
    assert call(verify_command, str(out), "--scene", "open", "--lockstep") == 0


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--to", "1,2,3"], ["--to", "7 angles", "1,2,3"]),
        (["--to", "nowhere"], ["--to", "nowhere", "home"]),
        (["--to", "goal"], ["goal", "no goal"]),
        (["--to", "home", "--start", "0,0,0,0,0,0,nan"], ["--start", "7 angles"]),
        (["--to", "home", "--scene", "atlantis"], ["atlantis", "six_boxes"]),
        (["--to", "home", "--robot", "atlantis"], ["atlantis", "kinova_gen3"]),
        (["--to", "home", "--payload", "8lb"], ["--payload", "--simulate"]),
        (["--to", "home", "--simulate", "--real-time"], ["--real-time", "--simulate"]),
        (["--to", "home", "--cost", "width"], ["--cost", "--excite"]),
        (["--to", "home", "--cost", "goal+0.3*width"], ["--cost", "along a way"]),
        (["--excite", "1", "--cost", "beauty"], ["beauty"]),
        (["--excite", "1", "--cost", "width+0.3*goal"], ["--cost", "lead to none"]),
        (["--to", "home", "--motion", "fourier"], ["--motion", "--excite-arm"]),
        (["--excite", "1", "--cost", "width", "--criterion", "logdet"], ["--criterion", "no --cost"]),
        (["--excite-arm", "1", "--period", "5"], ["--period", "--motion fourier"]),
        (["--excite-arm", "1", "--loops", "leg"], ["--loops", "--motion fourier"]),
        (["--excite-arm", "1", "--motion", "fourier", "--loops", "leg", "--simulate"], ["--simulate", "--loops"]),
        (["--excite-arm", "1", "--motion", "fourier", "--loops", "leg", "--robot", "ur5e"], ["--robot", "--loops"]),
        (["--to", "home", "--set", "planner"], ["--set", "KEY=VALUE"]),
        (["--to", "home", "--bounds", "nothing.yaml"], ["nothing.yaml"]),
        (["--to-pose", "5,0,0,0,0,0"], ["within reach"]),
        (["--to", "home", "--json", "no/where.json"], ["--json", "a directory that exists"]),
        (["--to", "home", "--json", "/proc/x.json"], ["--json", "that can be written"]),
        (["--to", "home", "--out", "/proc/x"], ["--out", "/proc/x", "that can be written"]),
        (["--to", "home", "--out", __file__ + "/x"], ["--out", "that can be written"]),
        (["--to", "home", "--out", "x" * 300], ["--out", "that can be written"]),
    ],
)
def test_wrong_options_are_refused_in_words(
    arguments: list[str], words: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    monkeypatch.chdir(tmp_path)
    assert call(plan_command, *arguments, "--quiet") == 2
    error = capsys.readouterr().err
    for word in words:
        assert word in error
    assert list(tmp_path.iterdir()) == []


def test_the_command_that_checks_names_what_is_not_the_default(tmp_path: Path) -> None:
    settings = {"measurement.velocity_error": 5e-5, "payload.density": [1.0, 2e-7], "a.b": "adversarial"}
    words = shlex.split(plans_command(tmp_path / "a b", "my/arm.yaml", "six_boxes", settings, lockstep=True))
    assert words[:2] == ["safe-sysid", "verify"]
    parser = argparse.ArgumentParser()
    verify_command.configure(parser)
    options = parser.parse_args(words[2:])
    assert (options.files, options.robot, options.scene) == ([str(tmp_path / "a b")], "my/arm.yaml", "six_boxes")
    assert options.lockstep
    assert dict(options.set) == settings
    assert "--lockstep" not in plans_command(tmp_path, "kinova_gen3", "open", {}, lockstep=False)


def test_old_results_are_not_overwritten(planned: Path, capsys: Any) -> None:
    assert call(plan_command, "--to", "home", "--out", str(planned)) == 2
    assert "new or empty" in capsys.readouterr().err


def columns_of(model: RobotModel, states: np.ndarray) -> np.ndarray:
    """Base parameters' columns, of length one, along states (N, 4, n)."""
    rows = dynamics_of(model.kinematics).torque_regressor(states[:, 0], states[:, 1], states[:, 2])
    columns = rows[..., base_of(model).independent].reshape(len(states) * model.n, -1)
    return np.asarray(columns / np.linalg.norm(columns, axis=0))


@pytest.mark.slow
def test_trajectories_for_the_arm_teach_about_the_arm(tmp_path: Path, capsys: Any) -> None:
    """Base parameters of the arm are better conditioned along them than along those for a payload."""
    model = load_robot("three_joint")
    worth = {}
    for what in ("--excite", "--excite-arm"):
        out = tmp_path / what
        assert call(plan_command, what, "4", "--robot", "three_joint", "--scene", "open", "--out", str(out)) == 0
        plans = [read_plan(path).plan for path in sorted(out.glob("plan_*.json"))]
        states = [plan.trajectory.states(np.linspace(0.0, 1.5, 75)) for plan in plans]
        worth[what] = np.linalg.cond(columns_of(model, np.concatenate(states)))
    assert worth["--excite-arm"] < 0.5 * worth["--excite"]
    assert call(plan_command, "--excite-arm", "2", "--cost", "width", "--out", str(tmp_path / "x")) == 2
    assert "none with --excite-arm" in told_error(capsys)


@pytest.mark.slow
@pytest.mark.parametrize("criterion", ["logdet", "condition"])
def test_fourier_series_for_the_arm_are_certified_and_teach(criterion: str, tmp_path: Path) -> None:
    """Two series begin and end at rest, are proved again from their files, and are conditioned as the command says."""
    model, out = load_robot("three_joint"), tmp_path / "out"
    words = ["--robot", "three_joint", "--scene", "open"]
    asked = ["--excite-arm", "2", "--motion", "fourier", "--period", "6", "--criterion", criterion]
    with without_pictures():
        assert call(plan_command, *words, *asked, "--out", str(out)) == 0
    assert call(verify_command, str(out), *words, "--lockstep") == 0
    plans = [read_plan(path).plan for path in sorted(out.glob("plan_*.json"))]
    assert [plan.start_time for plan in plans] == [0.0, 6.0]
    for plan in plans:
        ends = plan.trajectory.states(np.array([0.0, 6.0]))
        np.testing.assert_allclose(ends[:, 1:3], 0.0, atol=1e-12)
        np.testing.assert_allclose(ends[:, 0], model.settings.home * np.ones((2, 1)), atol=1e-12)
    times = (np.arange(600) + 0.5) * 0.01
    told = json.loads((out / "motion.json").read_text())["condition"]
    both = columns_of(model, np.concatenate([plan.trajectory.states(times) for plan in plans]))
    assert told == pytest.approx(np.linalg.cond(both), rel=1e-6)
    # Eight quintics, as long, have 222 by log-determinant; and the second series is for what the first leaves open.
    assert told < 100.0
    assert told < 0.9 * np.linalg.cond(columns_of(model, plans[0].trajectory.states(times)))


@pytest.mark.slow
def test_series_are_driven_in_simulation(tmp_path: Path) -> None:
    words = ["--robot", "three_joint", "--scene", "open", "--excite-arm", "2", "--motion", "fourier", "--period", "4"]
    assert call(plan_command, *words, "--simulate", "--out", str(tmp_path / "out")) == 0
    told = json.loads((tmp_path / "out" / "motion.json").read_text())
    assert told["reached"]
    assert told["simulated"]["wrong"] == []
    assert told["simulated"]["seconds"] > 8.0
    assert len(told["steps"]) == 2


@pytest.mark.slow
@pytest.mark.parametrize("criterion", ["logdet", "condition"])
def test_closed_loops_are_sampled_and_said_to_be(criterion: str, tmp_path: Path, capsys: Any) -> None:
    out = tmp_path / "out"
    words = ["--loops", "palletiser", "--excite-arm", "2", "--motion", "fourier", "--period", "6"]
    assert call(plan_command, *words, "--criterion", criterion, "--out", str(out)) == 0
    assert "NOT CERTIFIED" in capsys.readouterr().out
    told, m = json.loads((out / "motion.json").read_text()), load_mechanism("palletiser")
    assert told["certified"] is False
    n = len(m.actuated)
    for part in told["motions"]:
        lines = (out / part["file"]).read_text().splitlines()
        assert lines[0].split(",")[: n + 1] == ["time", *(f"{name}.position" for name in m.actuated_names)]
        x = np.array([[float(value) for value in line.split(",")] for line in lines[1:]])
        t, q, qd, qdd = x[:, 0], x[:, 1 : n + 1], x[:, n + 1 : 2 * n + 1], x[:, 2 * n + 1 :]
        np.testing.assert_allclose(x[[0, -1], n + 1 :], 0.0, atol=1e-12)
        assert np.all((m.position_lower[m.actuated] < q) & (q < m.position_upper[m.actuated]))
        assert np.all(np.abs(qd) <= np.minimum(4.0, m.velocity_upper[m.actuated]) + 1e-9)
        # Central differences of sines of at most 3.3 Hz are off by less than 0.8 %.
        np.testing.assert_allclose(np.gradient(q, t, axis=0)[2:-2], qd[2:-2], atol=0.008 * np.abs(qd).max())
        np.testing.assert_allclose(np.gradient(qd, t, axis=0)[2:-2], qdd[2:-2], atol=0.008 * np.abs(qdd).max())
        m.motion(q, qd, qdd, t)  # a loop that does not close, or a passive joint beyond its limits, raises


@pytest.mark.slow
def test_lessons_of_costs_that_fall_little_are_lessons(tmp_path: Path) -> None:
    """Widths that count all that is known fall by less than a certificate is worth; rest is no lesson at all."""
    out = tmp_path / "out"
    words = ["--robot", "three_joint", "--scene", "open"]
    assert call(plan_command, *words, "--excite", "4", "--cost", "width", "--out", str(out)) == 0
    steps = json.loads((out / "motion.json").read_text())["steps"]
    assert len(steps) == 4
    assert call(verify_command, str(out), *words, "--lockstep") == 0
