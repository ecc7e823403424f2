"""Learned models as files: what is written is read, what is not one is refused with a reason."""

from __future__ import annotations

import numpy as np
import pytest

from safe_sysid.learning.gaussian_process.file import LearnedModel, ModelFileError, read_model, write_model
from safe_sysid.learning.gaussian_process.kernels import LinearPart, lip_kernel
from safe_sysid.learning.gaussian_process.motions import MotionSamples
from safe_sysid.learning.gaussian_process.regression import TorqueProcess, Units

pytestmark = pytest.mark.unproved

NAMES, SLIDES = ("shoulder", "slide"), [False, True]


def model(extra=()):
    rng = np.random.default_rng(0)
    kernel = lip_kernel(2, friction=True, residual=True, extra=extra)
    x = MotionSamples(*rng.normal(size=(3, 6, 2)), SLIDES)
    log = 0.2 * rng.normal(size=kernel.count)
    process = TorqueProcess(kernel, log, [-2.0, -3.0], x, rng.normal(size=(6, 2)), Units(4.0, 0.3))
    return LearnedModel(process, NAMES, {"log": "monday.npz", "version": "0.1.0"})


@pytest.fixture
def written(tmp_path):
    write_model(tmp_path / "arm.gp", model())
    return tmp_path / "arm.gp"


def test_a_model_comes_back_as_it_went(written):
    there, back = model(), read_model(written)
    far = MotionSamples(*np.random.default_rng(1).normal(size=(3, 5, 2)), SLIDES)
    assert np.array_equal(back.process.predict(far), there.process.predict(far))
    assert np.array_equal(back.process.covariance(far), there.process.covariance(far))
    assert back.joint_names == NAMES
    assert back.provenance == there.provenance


def test_another_arm_is_refused(written):
    back = read_model(written)
    back.check_joints(NAMES, SLIDES)
    with pytest.raises(ModelFileError, match="slide, shoulder"):
        back.check_joints(NAMES[::-1], SLIDES[::-1])
    with pytest.raises(ModelFileError, match="joint slide slides in the model"):
        back.check_joints(NAMES, [False, False])


def test_features_of_ones_own_are_not_written(tmp_path):
    own = model([LinearPart(lambda x: np.ones((2 * len(x), 1)), 1)])
    with pytest.raises(ModelFileError, match="own features"):
        write_model(tmp_path / "arm.gp", own)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        ("schema", np.array("safe_sysid gaussian process 99"), "schema"),
        ("parts", np.array(["lagrangian", "magic"]), "magic"),
        ("joint_names", np.array(["one", "one"]), "joint_names"),
        ("slides", np.array([False]), "slides"),
        ("units", np.array([1.0, 0.0]), "units"),
        ("log", np.zeros(3), "parameters"),
        ("log", np.array(["no number"]), "log has type"),
        ("log_noise", np.array([0.0, np.nan]), "noise"),
        ("q", np.full((6, 2), np.inf), "finite"),
        ("torque", np.zeros((5, 2)), "torque"),
        ("torque", None, "no array 'torque'"),
        ("provenance", np.array([["a"]]), "provenance"),
    ],
)
def test_a_file_that_is_no_model_is_refused(written, name, value, said):
    arrays = dict(np.load(written))
    if value is None:
        del arrays[name]
    elif name == "schema":
        arrays = {name: value}  # another version may have other arrays
    else:
        arrays[name] = value
    with written.open("wb") as file:
        np.savez(file, **arrays)
    with pytest.raises(ModelFileError, match=said):
        read_model(written)


@pytest.mark.parametrize("content", [b"", b"not a zip", b"PK\x03\x04 nearly"])
def test_bytes_that_are_no_archive_are_refused(tmp_path, content):
    (tmp_path / "arm.gp").write_bytes(content)
    with pytest.raises(ModelFileError):
        read_model(tmp_path / "arm.gp")
    with pytest.raises(ModelFileError, match="no such file"):
        read_model(tmp_path / "none.gp")


def test_a_file_cut_off_or_changed_anywhere_is_read_whole_or_refused(written):
    content = written.read_bytes()
    rng, there = np.random.default_rng(2), model()
    for _ in range(40):
        cut = content[: rng.integers(len(content))]
        at = int(rng.integers(len(content)))
        for broken in (cut, content[:at] + bytes([content[at] ^ 255]) + content[at + 1 :]):
            written.write_bytes(broken)
            try:
                back = read_model(written)
            except ModelFileError:
                continue
            assert np.array_equal(back.process.dual, there.process.dual)
