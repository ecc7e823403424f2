"""``safe-sysid identify-arm --loops``: a palletiser from a log to files that others read, and wrong logs of it."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path

import mujoco
import numpy as np
import pytest

from safe_sysid.cli import main
from safe_sysid.dynamics.closed_chain import Mechanism, load_mechanism
from safe_sysid.identification.equations.measurements import Measurements
from safe_sysid.logs.formats.npz import write_log

pytestmark = pytest.mark.unproved

RATE = 100.0


@cache
def palletiser() -> Mechanism:
    """When it is needed: loading compiles kernels, and every worker imports this file."""
    return load_mechanism("palletiser")


def recorded(path: Path, motion_scale: float = 1.0, motions: float | np.ndarray = 1.0) -> tuple[Path, np.ndarray]:
    """A log of a palletiser that is not as drawn, positions and velocities multiplied by something; its parameters."""
    rng, layout, n = np.random.default_rng(1), palletiser().layout, len(palletiser().actuated)
    theta = np.array(palletiser().theta_nominal)
    for j in range(palletiser().n):
        theta[layout.link(j)] *= rng.uniform(0.75, 1.3)
    motors = [block.start + palletiser().actuated for block in (layout.coulomb, layout.viscous, layout.rotor_inertia)]
    theta[np.concatenate(motors)] *= rng.uniform(0.7, 1.3, 3 * n)
    t = np.arange(0.0, 30.0, 1.0 / RATE)[:, None, None]
    rate, phase, size = rng.uniform(0.5, 4.0, (n, 4)), rng.uniform(0.0, 6.0, (n, 4)), np.array([0.4, 0.08, 0.08, 0.5])
    x, size = rate * t + phase, motion_scale * size[:, None]
    q, qd, qdd = ((size * y).sum(axis=-1) for y in (np.sin(x), rate * np.cos(x), -(rate**2) * np.sin(x)))
    torque = palletiser().regressor(palletiser().motion(q, qd, qdd)) @ theta
    torque += 0.1 * rng.normal(size=torque.shape)
    write_log(path, palletiser().actuated_names, Measurements(t[:, 0, 0], motions * q, motions * qd, torque), 0)
    return path, theta


@pytest.fixture(scope="module")
def outcome(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict, np.ndarray]:
    folder = tmp_path_factory.mktemp("loops")
    log, theta = recorded(folder / "log.npz")
    assert main(["identify-arm", str(log), "--loops", "palletiser", "--out", str(folder / "out"), "--quiet"]) == 0
    return folder / "out", json.loads((folder / "out" / "result.json").read_text()), theta


def test_estimates_are_told_to_be_without_intervals_and_branches_were_looked_for(outcome) -> None:
    _, result, _ = outcome
    rms, before = result["validation"]["rms"], result["validation"]["rms_before"]
    assert all(rms[joint] < min(0.1, 0.7 * before[joint]) for joint in rms)
    assert result["consistent"] is True
    assert "closed loops" in result["intervals"]["reason"]
    assert all(p["lower"] is None and p["upper"] is None for p in result["parameters"])
    assert result["uniqueness"]["samples"] == 50
    assert result["uniqueness"]["holds"] is True
    assert result["warnings"] == result["unexcited"] == []
    assert all(x["white"] for x in result["residuals"].values())


def test_files_give_the_identified_torques(outcome) -> None:
    folder, _, theta = outcome
    found = load_mechanism(folder / "mechanism.yaml")
    rng = np.random.default_rng(2)
    q = np.linspace(-0.3, 0.3, 20)[:, None] * np.ones(4)
    motion = palletiser().motion(q, *rng.normal(size=(2, 20, 4)))
    regressor = palletiser().regressor(motion)
    torque, truth, drawn = (regressor @ x for x in (found.theta_nominal, theta, palletiser().theta_nominal))
    assert np.abs(torque - truth).max() < 0.2 * np.abs(drawn - truth).max()
    model = mujoco.MjModel.from_xml_path(str(folder / "arm_mjcf.xml"))
    model.opt.disableflags |= mujoco.mjtDisableBit.mjDSBL_CONSTRAINT
    data, layout = mujoco.MjData(model), found.layout
    assert model.neq == 1
    for k in range(20):
        data.qpos, data.qvel, data.qacc = motion.q[k], motion.qd[k], motion.qdd[k]
        mujoco.mj_inverse(model, data)
        rest = found.theta_nominal[layout.coulomb] * np.sign(motion.qd[k]) + found.theta_nominal[layout.offset]
        assert np.allclose(motion.transmission[k].T @ (data.qfrc_inverse + rest), torque[k], atol=1e-9)
        mujoco.mj_forward(model, data)
        assert np.allclose(data.site_xpos[0], data.site_xpos[1], atol=1e-9)


@pytest.mark.parametrize(
    ("motions", "words"),
    [
        (57.29578, "taken as degrees"),
        (np.array([1.0, 57.29578, 1.0, 1.0]), "of shoulder taken as degrees"),
        (np.array([1.0, 1.0, -1.0, 1.0]), "drive"),
    ],
)
def test_motions_that_are_not_what_they_say_are_named(motions, words: str, tmp_path: Path, capsys) -> None:
    log, _ = recorded(tmp_path / "log.npz", motions=motions)
    assert main(["identify-arm", str(log), "--loops", "palletiser", "--out", str(tmp_path / "out")]) == 2
    assert words in capsys.readouterr().err


@pytest.mark.slow
def test_motors_alone_and_motions_that_say_too_little(tmp_path: Path) -> None:
    log, _ = recorded(tmp_path / "log.npz")
    command = ["identify-arm", "--loops", "palletiser", "--quiet", "--out", str(tmp_path / "out")]
    assert main([*command, str(log), "--motors-only"]) == 0
    found, layout = load_mechanism(tmp_path / "out" / "mechanism.yaml").theta_nominal, palletiser().layout
    assert np.allclose(found[layout.links], palletiser().theta_nominal[layout.links], atol=1e-12)
    assert not np.allclose(found[layout.viscous], palletiser().theta_nominal[layout.viscous])
    small, _ = recorded(tmp_path / "small.npz", motion_scale=0.02)
    assert main([*command, str(small)]) == 2
    assert "not excited" in json.loads((tmp_path / "out" / "result.json").read_text())["warnings"][0]
