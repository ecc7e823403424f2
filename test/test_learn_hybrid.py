"""``safe-sysid learn hybrid`` from logs to a file that a controller runs."""

from __future__ import annotations

import importlib.util
import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from safe_sysid.cli import main
from safe_sysid.dynamics import dynamics_of
from safe_sysid.identification.equations.measurements import Measurements
from safe_sysid.learning.neural.dataset import read_dataset
from safe_sysid.learning.neural.file import read_hybrid
from safe_sysid.logs.formats.npz import write_log
from safe_sysid.robot import load_robot

pytestmark = pytest.mark.unproved

RATE = 100.0


def written(path: Path, seed: int = 0, seconds: float = 60.0, change: Callable[[dict], object] = len) -> Path:
    """A log of the three-joint arm with its own friction, noise, and velocities measured."""
    model, rng = load_robot("three_joint"), np.random.default_rng(seed)
    t = np.arange(0.0, seconds, 1.0 / RATE)
    size, wave, phase = (rng.uniform(0.3, 0.8, (4, 3)), rng.uniform(0.4, 2.0, (4, 3)), rng.uniform(0.0, 6.0, (4, 3)))
    x = wave * t[:, None, None] + phase
    q, qd, qdd = ((size * y).sum(axis=1) for y in (np.sin(x), wave * np.cos(x), -(wave**2) * np.sin(x)))
    theta = np.array(model.theta_nominal)
    theta[model.layout.viscous] = theta[model.layout.offset] = 0.0
    tau = dynamics_of(model.kinematics).inverse_dynamics(theta, q, qd, qdd, 0.02)
    arrays = {"stamps": t, "q": q, "qd": qd, "effort": tau + 0.05 * rng.normal(size=q.shape)}
    change(arrays)
    write_log(path, tuple(model.joint_names), Measurements(**arrays), 0)
    return path


def learn(*arguments: object) -> int:
    return main(["learn", "hybrid", *map(str, arguments), "--robot", "three_joint", "--quiet"])


@pytest.mark.slow  # what it fits: test_hybrid_training.py; what a wrong model may do: test_hybrid_attack.py
def test_from_logs_to_a_rigid_arm_without_torch(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    logs = [written(tmp_path / f"{k}.npz", k) for k in range(2)]
    out = tmp_path / "out"
    assert learn(*logs, "--model", "rbd_sign", "--optimization", "2s", "--out", out, "--json", tmp_path / "r.json") == 0
    assert str(out / "model.npz") in capsys.readouterr().out.replace("\n", "")
    result = json.loads((out / "result.json").read_text())
    assert result == json.loads((tmp_path / "r.json").read_text())
    assert result["errors"]["test"]["nmse"] < 1e-4
    assert np.all(np.array(result["errors"]["test"]["rms_per_joint"]) < 0.2)
    page = (out / "report.html").read_text()
    assert all(name in page for name in load_robot("three_joint").joint_names)
    assert page.count("<img") == 3, "a curve for each joint, and no losses: nothing was trained by gradients"
    learned, model = read_hybrid(out / "model.npz"), load_robot("three_joint")
    assert learned.provenance["logs"] == ", ".join(map(str, logs))
    assert learned.rate_hz == pytest.approx(RATE)
    coulomb = learned.theta[model.layout.coulomb]
    np.testing.assert_allclose(coulomb, model.theta_nominal[model.layout.coulomb], rtol=0.1, atol=0.05)
    data = read_dataset(out / "data")
    assert [entry.split for entry in data.trajectories] == ["train"] * 2 + ["validation"] * 2 + ["test"] * 2
    motion = data.motion(data.trajectories[0])
    assert len(motion) == pytest.approx(0.7 * 60.0 * RATE, abs=10)
    kept = dict(np.load(logs[0]))
    first = int(np.argmin(np.abs(kept["q"] - motion.q[0]).sum(axis=1)))
    np.testing.assert_array_equal(kept["effort"][first : first + len(motion)], motion.tau)  # nothing is filtered


def test_logs_that_cannot_be_used_are_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    some = ("--model", "rbd", "--optimization", "2s", "--out", tmp_path / "out")
    short = written(tmp_path / "short.npz", seconds=4.0)
    fast = written(tmp_path / "fast.npz")
    slow = written(tmp_path / "slow.npz", change=lambda a: a.update(stamps=2.0 * a["stamps"], qd=0.5 * a["qd"]))
    for words, expected in (
        ((short,), "expected longer logs"),
        ((fast, slow), "expected 100 Hz, as the first log"),
        ((fast, "--cutoff", 60), "--cutoff 60"),
    ):
        assert learn(*words, *some) == 2
        assert expected in capsys.readouterr().err


@pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="torch is not installed")
@pytest.mark.slow
def test_from_logs_to_a_network(tmp_path: Path) -> None:
    logs = [written(tmp_path / f"{k}.npz", k) for k in range(2)]
    out = tmp_path / "out"
    assert learn(*logs, "--minutes", 0.1, "--out", out) == 0
    result = json.loads((out / "result.json").read_text())
    assert result["ended"] in ("time", "early stopping")
    assert set(result["parts"]) == {"rbd", "rbd_sign"}
    assert read_hybrid(out / "model.npz").weights["memory.weight_hh_l0"].shape == (200, 50)


def test_without_torch_one_line_says_how_to_get_it(tmp_path: Path, monkeypatch, capsys) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    assert learn(written(tmp_path / "log.npz"), "--out", tmp_path / "out") == 2
    assert "torch is not installed" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()
