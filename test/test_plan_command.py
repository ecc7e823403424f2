"""``safe-sysid plan`` and ``safe-sysid verify`` on plans: what users see, and what a run directory must hold."""

from __future__ import annotations

import argparse
import json
import shutil
from pathlib import Path

import numpy as np
import pytest

from safe_sysid.commands import plan as plan_command
from safe_sysid.commands import verify as verify_command
from safe_sysid.commands.arguments import OneLineParser
from safe_sysid.errors import SafeSysIdError


def call(command: object, *arguments: str) -> int:
    """As the command line calls it: errors become exit status 2 and one line."""
    parser = OneLineParser(prog="safe-sysid")
    command.configure(parser)  # type: ignore[attr-defined]
    options = parser.parse_args(arguments)
    try:
        return int(command.run(options))  # type: ignore[attr-defined]
    except SafeSysIdError as error:
        import sys

        print(f"error: {error}", file=sys.stderr)
        return 2


@pytest.fixture(scope="module")
def planned(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A short motion there and back in the open."""
    folder = tmp_path_factory.mktemp("planned")
    there = ",".join(str(x) for x in (0.3, 0.26, 3.1416, -2.27, 0.2, 0.96, 1.2))
    out = folder / "run"
    status = call(
        plan_command,
        "--to",
        there,
        "--to",
        "home",
        "--out",
        str(out),
        "--json",
        str(folder / "copy.json"),
        "--quiet",
    )
    assert status == 0
    return out


def test_a_motion_leaves_files_that_verify(planned: Path, capsys: pytest.CaptureFixture[str]) -> None:
    content = json.loads((planned / "motion.json").read_text())
    assert content == json.loads((planned.parent / "copy.json").read_text())
    assert content["reached"]
    assert (planned / "motion.png").read_bytes().startswith(b"\x89PNG")
    files = sorted(path.name for path in planned.glob("plan_*.json"))
    assert files == [step["file"] for step in content["steps"]]
    assert np.allclose(content["steps"][-1]["end_rad"], content["start_rad"], atol=1e-3)
    assert call(verify_command, str(planned)) == 0
    out = capsys.readouterr().out
    assert f"PASS: {len(files)} plans of kinova_gen3 in scene open" in out
    assert "assumed: the true parameters lie in the prior" in out
    for family in ("position", "velocity", "torque", "self_clearance", "tracking"):
        assert f"smallest margin: {family}" in out


def test_one_file_is_checked_alone_and_a_forged_one_fails(
    planned: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert call(verify_command, str(planned / "plan_00001.json")) == 0
    assert "PASS: 1 plan" in capsys.readouterr().out
    forged = tmp_path / "plan_00001.json"
    forged.write_text(
        (planned / "plan_00001.json")
        .read_text()
        .replace('"torque": {"smallest": ', '"torque": {"smallest": 1')
    )
    assert call(verify_command, str(forged)) == 1
    assert "FAIL: plan_00001.json: sha256" in capsys.readouterr().out


def test_a_directory_with_a_gap_or_a_broken_file_fails(
    planned: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    moving = [
        path.name
        for path in sorted(planned.glob("plan_*.json"))
        if np.any(json.loads(path.read_text())["plan"]["knots"][0][1])
    ]
    copy = tmp_path / "run"
    shutil.copytree(planned, copy)
    if moving:
        before = int(moving[0][5:10]) - 1
        (copy / f"plan_{before:05d}.json").unlink()
        assert call(verify_command, str(copy)) == 1
        assert "begins in motion" in capsys.readouterr().out
    (copy / "plan_00099.json").write_text("{}")
    assert call(verify_command, str(copy)) == 1
    assert "plan_00099.json: schema" in capsys.readouterr().out


def test_another_robot_or_scene_is_said(planned: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert call(verify_command, str(planned), "--scene", "six_boxes") == 1
    assert "scene: another one than six_boxes" in capsys.readouterr().out
    assert call(verify_command, str(planned), "--set", "uncertainty.relative=0.2") == 2
    assert "another robot, or with other settings" in capsys.readouterr().err
    assert call(verify_command, str(planned), "--scene", "stated") == 0
    assert "as the file itself states it" in capsys.readouterr().out


def test_no_way_is_an_answer_with_reasons(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "run"
    assert call(plan_command, "--scene", "six_boxes", "--to", "home", "--out", str(out)) == 1
    told = capsys.readouterr()
    assert "REFUSED" in told.err
    assert "post_middle" in told.err
    content = json.loads((out / "motion.json").read_text())
    assert not content["reached"]
    assert content["steps"] == []
    assert any("may not be rested at" in reason for reason in content["reasons"])


def test_a_simulated_motion_is_judged(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out, goal = tmp_path / "run", "0.1,0.26,3.1416,-2.27,0.1,0.96,1.5"
    assert call(plan_command, "--to", goal, "--simulate", "--payload", "4lb", "--out", str(out)) == 0
    told = capsys.readouterr()
    assert "driven in simulation without a violation" in told.out
    assert "judged: smallest true distance" in told.err
    simulated = json.loads((out / "motion.json").read_text())["simulated"]
    assert set(simulated["violations"].values()) == {0}
    assert np.abs(np.array(simulated["final_rad"]) - [float(x) for x in goal.split(",")]).max() < 0.03
    assert call(verify_command, str(out)) == 0


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
        (["--excite", "1", "--cost", "beauty"], ["beauty"]),
        (["--to", "home", "--set", "planner"], ["--set", "KEY=VALUE"]),
        (["--to", "home", "--bounds", "nothing.yaml"], ["nothing.yaml"]),
        (["--to-pose", "5,0,0,0,0,0"], ["within reach"]),
        (["--to", "home", "--json", "no/where.json"], ["--json", "a directory that exists"]),
    ],
)
def test_wrong_options_are_refused_in_words(
    arguments: list[str],
    words: list[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    assert call(plan_command, *arguments, "--quiet") == 2
    error = capsys.readouterr().err
    for word in words:
        assert word in error
    assert list(tmp_path.iterdir()) == []


def test_old_results_are_not_overwritten(planned: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert call(plan_command, "--to", "home", "--out", str(planned)) == 2
    assert "new or empty" in capsys.readouterr().err


def test_the_help_shows_examples() -> None:
    for command in (plan_command, verify_command):
        parser = argparse.ArgumentParser(description=command.DESCRIPTION, formatter_class=command.FORMATTER)
        command.configure(parser)
        assert "examples:" in parser.format_help()
        assert "Exit status" in parser.format_help()
