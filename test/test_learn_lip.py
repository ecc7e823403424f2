"""``safe-sysid learn lip`` from a log to a model, and logs that are not what they say."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import cache
from pathlib import Path

import numpy as np
import pinocchio as pin
import pytest
from arm_factory import random_arm

from safe_sysid.cli import main
from safe_sysid.identification.equations.measurements import Measurements
from safe_sysid.learning.gaussian_process.file import read_model
from safe_sysid.logs.formats.npz import write_log

pytestmark = pytest.mark.unproved

JOINTS = ("shoulder", "elbow")
QUICK = ("--joints", ",".join(JOINTS), "--samples", "60", "--epochs", "20", "--batch", "60", "--quiet")
VISCOUS, COULOMB = np.array([0.7, 0.3]), np.array([0.5, 1.2])


@cache
def recorded(seed: int = 0) -> dict[str, np.ndarray]:
    """Sixty seconds of two joints at 100 Hz, torques by Pinocchio with friction."""
    _, model, _ = random_arm(2, np.random.default_rng(7))
    model.armature[:] = 0.0
    rng, t = np.random.default_rng(seed), np.arange(0.0, 60.0, 0.01)[:, None, None]
    rate, phase = rng.uniform(0.4, 3.0, (2, 5)), rng.uniform(0.0, 6.0, (2, 5))
    size = rng.uniform(0.3, 0.8, (2, 5)) / rate
    x = rate * t + phase
    q, qd, qdd = ((size * y).sum(axis=-1) for y in (np.sin(x), rate * np.cos(x), -(rate**2) * np.sin(x)))
    data = model.createData()
    torque = np.array([pin.rnea(model, data, *at) for at in zip(q, qd, qdd, strict=True)])
    torque = torque + VISCOUS * qd + COULOMB * np.sign(qd) + 0.02 * rng.normal(size=q.shape)
    return {"stamps": t[:, 0, 0], "q": q, "qd": qd, "effort": torque}


def written(path: Path, change: Callable[[dict], object] = len, samples: int = 6000) -> Path:
    arrays = {name: array[:samples].copy() for name, array in recorded().items()}
    change(arrays)
    write_log(path, JOINTS, Measurements(**arrays), 0)
    return path


@pytest.fixture(scope="module")
def learned(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict]:
    folder = tmp_path_factory.mktemp("lip")

    def spoil(arrays: dict) -> None:
        arrays["effort"][100:110, 0] = np.nan

    log = written(folder / "log.npz", spoil)
    out = folder / "out"
    assert main(["learn", "lip", str(log), str(log), *QUICK, "--out", str(out)]) == 0
    return out, json.loads((out / "result.json").read_text())


def test_held_out_torques_and_friction_are_found(learned: tuple[Path, dict]) -> None:
    _, result = learned
    for j, joint in enumerate(JOINTS):
        found = result["joints"][joint]
        assert found["nmse"] < 0.01
        assert abs(found["viscous"] - VISCOUS[j]) < max(0.1, 4.0 * found["viscous_deviation"])
        assert abs(found["coulomb"] - COULOMB[j]) < max(0.1, 4.0 * found["coulomb_deviation"])
        assert found["within_95"] > 0.9
    assert result["mass_positive"] > 0.9  # nothing makes it so; test before use
    assert result["stage"] == "learned"


@pytest.mark.slow
def test_the_finish_is_kept_where_held_out_torques_are_likelier(learned: tuple[Path, dict], tmp_path: Path) -> None:
    _, result = learned
    before, after = result["finish"]["log_density"]
    assert result["finish"]["kept"]  # errors are noise
    assert after > before
    assert result["method"] == "20 epochs, 20 iterations"

    def noisy(arrays: dict) -> None:
        arrays["effort"] += np.random.default_rng(1).normal(size=arrays["effort"].shape)

    logs = [str(written(tmp_path / "a.npz")), "--validation", str(written(tmp_path / "b.npz", noisy))]
    assert main(["learn", "lip", *logs, *QUICK, "--epochs", "2", "--out", str(tmp_path)]) == 0
    found = json.loads((tmp_path / "result.json").read_text())
    before, after = found["finish"]["log_density"]
    assert after < before
    assert not found["finish"]["kept"]
    assert "not kept" in found["method"]


def test_the_most_informative_samples_are_kept_and_what_was_wrong_with_others_is_told(learned) -> None:
    out, result = learned
    text = " ".join(result["warnings"])
    assert "20 samples of the logs are not used" in text  # ten of each
    assert "more than once" in text  # the log was given twice
    assert result["samples"] == 60
    assert result["samples_of"] > 300
    errors = {(s["which"], s["samples"]): s["nmse"] for s in result["subsets"]}
    assert errors["most informative", 60] < errors["most informative", 15]
    model = read_model(out / "model.npz")
    assert model.joint_names == JOINTS
    assert len(model.process.x) == 60
    page = (out / "report.html").read_text()
    assert page.count('class="chart"') == 3
    assert "Learned friction" in page


@pytest.mark.parametrize(
    ("names", "joint", "factor", "samples", "words"),
    [
        (("q", "qd"), 1, 0.0, 6000, "elbow moves by"),
        (("effort",), 0, 0.0, 6000, "shoulder: its torque is 0 throughout"),
        (("qd",), 0, -1.0, 6000, "reversed sign"),
        (("q",), 0, np.nan, 6000, "shoulder"),
        (("effort",), 0, np.nan, 6000, "shoulder has no efforts"),
        ((), 0, 1.0, 45, "samples to learn from"),
    ],
)
def test_logs_that_teach_nothing_are_named(names, joint, factor, samples, words, tmp_path, capsys) -> None:
    """A joint's columns multiplied, or few samples."""

    def change(arrays: dict) -> None:
        for name in names:
            arrays[name][:, joint] = factor * arrays[name][:, joint] + 0.0  # no -0

    log = written(tmp_path / "log.npz", change, samples)
    assert main(["learn", "lip", str(log), *QUICK, "--out", str(tmp_path / "out")]) == 2
    assert words in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("joints", ["shoulder,shoulder", "shoulder,elbow:bends", "shoulder,"])
def test_joints_that_make_no_arm_are_refused(joints: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    log = written(tmp_path / "log.npz")
    assert main(["learn", "lip", str(log), "--joints", joints]) == 2
    assert "--joints" in capsys.readouterr().err
