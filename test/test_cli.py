"""The command line: answers at once, refuses wrong values in one line and before anything is started."""

from __future__ import annotations

import errno
import io
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest
import yaml

import safe_sysid
from safe_sysid.cli import main
from safe_sysid.resources import resource_path


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Runs in an empty directory; starting a process is a failure."""
    monkeypatch.chdir(tmp_path)

    def never(*_: object, **__: object) -> None:
        raise AssertionError("a process was started")

    monkeypatch.setattr("safe_sysid.bring_up.processes.NodeProcess.__init__", never)
    return tmp_path


def refused(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    """The one line that says why, after exit status 2; nothing is left behind."""
    before = sorted(Path.cwd().rglob("*"))
    assert main(arguments) == 2
    error = capsys.readouterr().err
    assert error.endswith("\n")
    assert error.count("\n") == 1, error
    assert "Traceback" not in error
    assert "error: " in error
    assert sorted(Path.cwd().rglob("*")) == before, "an error leaves no run directory"
    return error


@pytest.mark.parametrize("arguments", [["--help"], ["demo", "--help"], ["config", "check", "--help"]])
def test_help(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(arguments) == 0
    text = capsys.readouterr().out
    assert text.startswith("usage: safe-sysid")
    if arguments[0] == "demo":
        options = "payload robot scene seed noise torque-noise velocity-error arm plans lockstep real-time json out"
        assert [name for name in options.split(" ") if f"--{name}" not in text] == []


def test_version_and_which_commands_there_are(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--version"]) == 0
    assert capsys.readouterr().out == f"safe-sysid {safe_sysid.__version__}\n"
    assert main([]) == 2
    assert "demo" in capsys.readouterr().out


@pytest.mark.parametrize("arguments", [["--help"], ["demo", "--help"], ["--version"]])
def test_nothing_heavy_is_imported_to_answer(arguments: list[str]) -> None:
    program = (
        "import sys; from safe_sysid.cli import main; main(ARGUMENTS); "
        "heavy = {'numpy', 'numba', 'pinocchio', 'rclpy', 'mujoco', 'matplotlib', 'rich', 'pydantic'}; "
        "sys.exit(', '.join(sorted(heavy & set(sys.modules))) or 0)"
    ).replace("ARGUMENTS", repr(arguments))
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60)
    assert result.returncode == 0, result.stderr


def test_the_first_line_comes_at_once(tmp_path: Path) -> None:
    """Before anything is imported that takes long; here it ends in an error soon after."""
    command = [sys.executable, "-u", "-m", "safe_sysid", "demo", "--payload", "90lb"]
    began = time.monotonic()
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, cwd=tmp_path, text=True) as run:
        line = run.stdout.readline()
        first = time.monotonic() - began
        _, error = run.communicate(timeout=120)
    assert "kinova_gen3 grips '90lb'" in line
    assert first < 2.0
    assert run.returncode == 2
    assert "outside the prior" in error


NUMBERS = "2.5,0,0,0.14,0.02,0,0.02,0,0,0.02"


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--payload=brick"], ["'brick'", "2kg, 300g or 8lb", "ten numbers"]),
        (["--payload=xlb"], ["'xlb'", "2kg, 300g or 8lb"]),
        (["--payload=90lb"], ["m = ", "outside the prior", "[1.2, 5.2]"]),
        (["--payload=1,2,3"], ["3 numbers", "expected ten"]),
        ([f"--payload={NUMBERS.replace('2.5', 'heavy')}"], ["m = 'heavy'", "expected a number"]),
        ([f"--payload={NUMBERS.replace('2.5', 'nan')}"], ["m = 'nan'", "finite"]),
        ([f"--payload={NUMBERS.replace('2.5', '-1')}"], ["m = -1.0 kg", "positive"]),
        ([f"--payload={NUMBERS.replace('2.5', '60')}"], ["m = ", "outside the prior", "[1.2, 5.2]"]),
        ([f"--payload={NUMBERS.replace('0.14', '0.9')}"], ["mcz", "outside the prior"]),
        (["--payload=2.5,0,0,0.14,0.02,0,0.02,0,0,0.9"], ["not physically consistent", "triangle inequality"]),
        (["--payload=2.5,0,0,0.14,-0.02,0,0.02,0,0,0.02"], ["not physically consistent", "negative principal moment"]),
        (["--payload=missing.urdf"], ["missing.urdf", "no such file"]),
        (["--robot", "ur99"], ["'ur99'", "kinova_gen3"]),
        (["--robot", "missing.yaml"], ["missing.yaml"]),
        (["--scene", "kitchen"], ["'kitchen'", "open, six_boxes"]),
        (["--scene", "missing.yaml"], ["missing.yaml"]),
        (["--noise", "loud"], ["'loud'", "uniform"]),
        (["--arm", "left"], ["'left'", "corner"]),
        (["--seed", "-1"], ["--seed", "'-1'", "from 0"]),
        (["--seed", "1.5"], ["--seed", "whole number"]),
        (["--plans", "0"], ["--plans", "from 1"]),
        (["--torque-noise", "0.05"], ["--torque-noise", "two numbers"]),
        (["--torque-noise", "0.05,1.0"], ["torque_rel", "< 1"]),
        (["--torque-noise", "nan,0.1"], ["--torque-noise", "finite"]),
        (["--velocity-error", "-0.1"], ["--velocity-error", ">= 0"]),
        (["--velocity-error", "10"], ["no tracking bound exists", "lower"]),
        (["--lockstep", "--real-time"], ["--real-time", "not allowed with"]),
        (["--timeout", "soon"], ["--timeout", "a number"]),
        (["--gravity", "0"], ["--gravity"]),
        (["--scene", "trap.yaml"], ["may not start in scene trap", "crate"]),
        # Stretched out horizontally with anything in the hand that the prior allows.
        (["--scene", "stretched.yaml"], ["joint_2", "beyond the limit of 56.7 N m"]),
    ],
)
def test_what_a_demo_cannot_have(arguments: list[str], words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    crate = {"name": "crate", "xyz": [0.4, 0.0, 0.4], "size": [0.5, 0.5, 0.5]}
    start = [0.0, 1.5708, 0.0, 0.0, 0.0, 0.0, 0.0]
    for scene in ({"name": "trap", "boxes": [crate]}, {"name": "stretched", "start": start, "boxes": []}):
        Path(f"{scene['name']}.yaml").write_text(yaml.safe_dump(scene))
    error = refused(capsys, "demo", *arguments)
    for word in words:
        assert word in error


def test_unknown_command(capsys: pytest.CaptureFixture[str]) -> None:
    assert "'dance'" in refused(capsys, "dance")


def test_output_that_would_overwrite(capsys: pytest.CaptureFixture[str]) -> None:
    Path("old").mkdir()
    Path("old/summary.json").write_text("{}")
    assert "not empty" in refused(capsys, "demo", "--out", "old")
    assert "is a directory" in refused(capsys, "demo", "--json", "old")
    Path("file").write_text("")
    assert "file" in refused(capsys, "demo", "--out", "file")


def test_declared_bounds_become_overrides_of_every_node() -> None:
    from safe_sysid.demo.options import DemoOptions, prepare
    from safe_sysid.demo.supervisor import NODES, node_parameters

    options = DemoOptions(torque_noise=(0.2, 0.01), velocity_error=1e-5, arm="corner", noise="adversarial", plans=2)
    setup = prepare(options)
    measurement = setup.model.settings.measurement
    assert (measurement.torque_abs, measurement.torque_rel, measurement.velocity_error) == (0.2, 0.01, 1e-5)
    for node in NODES:
        parameters = node_parameters(setup, node)
        assert parameters["robot_settings"] == {
            "measurement": {"torque_abs": 0.2, "torque_rel": 0.01, "velocity_error": 1e-5}
        }
        # What the nodes must find out is told to the plant alone.
        assert ({"payload", "noise", "arm"} <= set(parameters)) == (node == "plant")
        assert ({"payload", "noise", "arm"} & set(parameters) == set()) == (node != "plant")
    assert setup.run_dir.name.endswith("-8lb-0")
    assert setup.run_dir.parent == Path.cwd() / "runs"
    second = prepare(options)
    assert second.run_dir != setup.run_dir


def test_config_check(capsys: pytest.CaptureFixture[str]) -> None:
    # In real time the gains are wider than in lock-step: whatever the verdict, it names joints and numbers.
    status = main(["config", "check", "kinova_gen3"])
    out, error = capsys.readouterr()
    assert "robot kinova_gen3: 7 joints" in out
    assert "proved tracking error" in out
    assert (status == 0) == ("can be held" in out) == (error == "")


def test_config_check_names_file_key_value_and_expectation(capsys: pytest.CaptureFixture[str]) -> None:
    text = resource_path("config/kinova_gen3.yaml").read_text(encoding="utf-8")
    assert "velocity: 1.7453" in text
    Path("broken.yaml").write_text(text.replace("velocity: 1.7453", "velocity: fast", 1), encoding="utf-8")
    assert main(["config", "check", "broken.yaml"]) == 2
    error = capsys.readouterr().err
    for word in ("broken.yaml", "joints.joint_1.velocity", "'fast'", "expected"):
        assert word in error
    assert main(["config", "check", "nothing"]) == 2
    assert "nothing" in capsys.readouterr().err


def test_config_check_refuses_a_torque_rate_that_no_arm_can_start_with(capsys: pytest.CaptureFixture[str]) -> None:
    text = resource_path("config/kinova_gen3.yaml").read_text(encoding="utf-8")
    text = text.replace("urdf: kinova_gen3.urdf", f"urdf: {resource_path('urdf/kinova_gen3.urdf')}", 1)
    assert "torque_rate: 1.0e4" in text
    for rate in ("1.0e-3", "2834.0"):
        Path("slow.yaml").write_text(text.replace("torque_rate: 1.0e4", f"torque_rate: {rate}", 1))
        assert main(["config", "check", "slow.yaml"]) == 1
        assert "expected at least 2835, its torque limit of 56.7 N m" in capsys.readouterr().err
        assert main(["demo", "--robot", "slow.yaml"]) == 2
        assert "controller.torque_rate is" in capsys.readouterr().err


def test_config_check_of_a_scene(capsys: pytest.CaptureFixture[str]) -> None:
    main(["config", "check", "six_boxes"])
    assert "scene six_boxes: 6 boxes" in capsys.readouterr().out
    Path("scene.yaml").write_text("boxes: [{name: a, xyz: [0, 0, 0], size: [0, 1, 1]}]")
    assert main(["config", "check", "scene.yaml"]) == 2
    assert "size" in capsys.readouterr().err


def test_environment_of_the_nodes_leads_nowhere_else(monkeypatch: pytest.MonkeyPatch) -> None:
    from safe_sysid.bring_up.domain import own_domain, ros_environment

    monkeypatch.setenv("ROS_LOCALHOST_ONLY", "0")
    monkeypatch.setenv("ROS_STATIC_PEERS", "10.0.0.1")
    with own_domain() as one, own_domain() as two:
        assert one != two
        assert 1 <= one <= 100
        assert str(one) != os.environ.get("ROS_DOMAIN_ID")
        environment = ros_environment(one, Path("log"))
    assert environment["ROS_DOMAIN_ID"] == str(one)
    assert environment["ROS_AUTOMATIC_DISCOVERY_RANGE"] == "LOCALHOST"
    assert not {"ROS_LOCALHOST_ONLY", "ROS_STATIC_PEERS"} & set(environment)


def test_a_value_that_begins_with_a_minus_gets_a_hint(capsys: pytest.CaptureFixture[str]) -> None:
    error = refused(capsys, "identify", "log.csv", "--payload-box", "-1,.2,.1,0,0,0")
    assert "write --payload-box=-1,.2,.1,0,0,0" in error
    assert "write" not in refused(capsys, "identify", "log.csv", "--payload-box")


@pytest.mark.parametrize(
    "arguments",
    [
        ["identify", "log.csv", "--quiet", "--json"],
        ["campaign", "identification", "--json"],
        ["campaign", "identification", "--out"],
        ["campaign", "identification", "--only", "0", "--save-log"],
    ],
)
def test_files_in_directories_that_do_not_exist(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert "a directory that exists" in refused(capsys, *arguments, "nowhere/x.json")
    Path("there").mkdir()
    assert "this is a directory" in refused(capsys, *arguments, "there")


def test_a_pipe_that_nobody_reads_is_no_other_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(_: object) -> int:
        raise BrokenPipeError

    monkeypatch.setattr("safe_sysid.commands.config.run", broken)
    for stream in ("stderr", "stdout"):
        monkeypatch.setattr(sys, stream, io.StringIO())
    assert main(["config", "check", "kinova_gen3"]) == 141


def test_a_full_disk_is_one_line(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    def full(_: object) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), "result.json")

    def wrong(_: object) -> int:
        raise OSError(errno.ENOTCONN, os.strerror(errno.ENOTCONN))

    monkeypatch.setattr("safe_sysid.commands.config.run", full)
    assert main(["config", "check", "kinova_gen3"]) == 2
    assert capsys.readouterr().err == "safe-sysid config: error: result.json: No space left on device\n"
    monkeypatch.setattr("safe_sysid.commands.config.run", wrong)
    with pytest.raises(OSError, match="not connected"):  # a fault of the program keeps its traceback
        main(["config", "check", "kinova_gen3"])


def test_kinds_of_noise_in_the_help_are_those_that_there_are() -> None:
    from safe_sysid.commands.campaign import _NOISES
    from safe_sysid.studies.campaign.cases.noise import NOISES

    assert _NOISES == NOISES
