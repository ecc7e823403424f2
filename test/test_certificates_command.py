"""``safe-sysid verify`` on Kinova logs: PASS, the first thing that is not proved, or why it cannot be checked."""

from __future__ import annotations

import shutil
from functools import partial

import numpy as np
import pytest
from certificate_support import forge, write_chain
from command_support import called
from identification_plant import exciting_plans, noisy, simulate

from safe_sysid.commands import verify
from safe_sysid.errors import ConfigError, SafeSysIdError
from safe_sysid.identification.certificates.files.update import CertificateError
from safe_sysid.logs.formats.npz import write_log
from safe_sysid.robot import load_robot
from safe_sysid.simulation.arms import draw_truth
from safe_sysid.simulation.payloads import dumbbell


@pytest.fixture(scope="module")
def kinova(tmp_path_factory):
    """(folder with chain and log, model, log, certificates)."""
    folder = tmp_path_factory.mktemp("kinova")
    model = load_robot("kinova_gen3")
    rng = np.random.default_rng(5)
    theta = draw_truth(model, dumbbell(8), rng, "uniform")
    plans = exciting_plans(np.array(model.settings.home), rng, n_plans=1, t_f=0.8)
    log = simulate(model.kinematics, theta, model.friction_transition_velocity, plans, rng=rng, chatter=0.5)
    data = noisy(log, 0.05, 0.025, rng, "random_sign")
    paths, box = write_chain(folder, model, data, 401)
    assert box.contains(theta)
    assert len(paths) == 2
    write_log(folder / "log.npz", model.joint_names, data)
    return folder, model, data, paths


call = partial(called, verify)


def test_a_folder_passes(kinova, capsys):
    assert call(kinova[0]) == 0
    out = capsys.readouterr().out
    assert out.count("proved") >= 2
    assert "PASS: 2 certificates of kinova_gen3" in out
    assert "mcx" in out
    assert "kg m^2" in out
    assert "torque_abs 0.05" in out
    assert "torque_source motor" in out


def test_one_file_is_checked_with_those_before_it(kinova, capsys):
    assert call(kinova[3][1]) == 0
    assert "PASS: 2 certificates" in capsys.readouterr().out
    capsys.readouterr()
    assert call(kinova[3][0], kinova[3][1]) == 3  # nothing is said of the second half
    out = capsys.readouterr().out
    assert "CONDITIONAL: 1 certificate" in out
    assert "801 samples, of which certificate_0_00001.json covers the first 401" in out


def test_the_log_may_lie_elsewhere(kinova, tmp_path, capsys):
    folder, _, _, paths = kinova
    for path in paths:
        shutil.copy(path, tmp_path)
        shutil.copy(path.with_suffix(".npz"), tmp_path)
    with pytest.raises(CertificateError, match=r"needs a log whose first 401 samples have sha256 [0-9a-f]{64}"):
        call(tmp_path)
    (tmp_path / "other.npz").write_bytes(b"no log at all")
    assert call(tmp_path, "--log", folder / "log.npz") == 0
    assert "PASS" in capsys.readouterr().out
    with pytest.raises(SafeSysIdError, match="no such file"):
        call(tmp_path, "--log", tmp_path / "none.npz")


def test_a_forgery_fails_and_says_where(kinova, tmp_path, capsys):
    folder, _, _, paths = kinova
    shutil.copytree(folder, tmp_path / "copy")

    def edit(arrays):
        arrays["upper"][0] = 0.5 * (arrays["lower"][0] + arrays["upper"][0])

    forge(paths[1], tmp_path / "copy", edit)
    assert call(tmp_path / "copy") == 1
    out = capsys.readouterr().out
    assert "NOT PROVED" in out
    assert "PASS" not in out
    assert "FAIL: certificate_0_00002.json: certificate 0:2: upper bound of m: published" in out
    (tmp_path / "copy" / "certificate_0_00001.npz").write_bytes(b"gone")
    assert call(tmp_path / "copy") == 1
    assert "FAIL" in (out := capsys.readouterr().out)
    assert "sha256 is" in out
    assert call(folder, tmp_path / "copy") == 1  # the worst counts


def test_another_robot_and_settings_that_were_in_force(kinova, tmp_path, capsys):
    folder, _, _, paths = kinova
    with pytest.raises(CertificateError, match=r"measurement.torque_abs: certificate 0.05, robot 0.07"):
        call(paths[0], "--set", "measurement.torque_abs=0.07")
    assert call(paths[1], "--set", "measurement.torque_abs=0.05", "--robot", "kinova_gen3") == 0
    capsys.readouterr()
    for bad in ("nothing", "=3", "a=[1"):
        with pytest.raises(SystemExit):
            call(paths[0], "--set", bad)
        assert "KEY=VALUE" in capsys.readouterr().err
    with pytest.raises(ConfigError):
        call(paths[0], "--robot", "unknown_arm")

    def edit(header):
        header["robot"]["name"] = "../../evil.yaml"

    shutil.copytree(folder, tmp_path / "copy")
    with pytest.raises(CertificateError, match="say with --robot which file"):
        call(forge(paths[0], tmp_path / "copy", header=edit))


def test_what_is_no_certificate(tmp_path, capsys):
    with pytest.raises(CertificateError, match="no such file"):
        call(tmp_path / "none.json")
    with pytest.raises(CertificateError, match="no certificate in it"):
        call(tmp_path)
    (tmp_path / "plan.json").write_text('{"schema": "safe_sysid/plan/9"}')
    assert call(tmp_path / "plan.json") == 1
    assert "schema = 'safe_sysid/plan/9': expected 'safe_sysid/plan/" in capsys.readouterr().out
    with pytest.raises(CertificateError, match="no certificate in it"):
        call(tmp_path)
