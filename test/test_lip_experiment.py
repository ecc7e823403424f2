"""The experiments of [LIP]: the arm, its trajectories, the baselines, and a trial of each kind."""

from __future__ import annotations

import json
import sys
from itertools import product
from pathlib import Path

import mpmath
import numpy as np
import pytest
from test_lip_kernel import exact, lagrange

from safe_sysid.cli import main
from safe_sysid.errors import SafeSysIdError
from safe_sysid.learning.gaussian_process.kernels import SumKernel
from safe_sysid.learning.gaussian_process.motions import MotionSamples
from safe_sysid.learning.gaussian_process.regression import likelihood_gradient
from safe_sysid.learning.gaussian_process.training import TrainingOptions
from safe_sysid.studies.lip.geometric import GeometricPart
from safe_sysid.studies.lip.lagrangian_exponential import LagrangianExponentialPart
from safe_sysid.studies.lip.methods import kernel_of, learn
from safe_sysid.studies.lip.panda import SETTINGS, Panda
from safe_sysid.studies.lip.tables import energies, summary, table
from safe_sysid.studies.lip.tracking import reference
from safe_sysid.studies.lip.trial import cases, run_trial

pytestmark = pytest.mark.unproved


@pytest.mark.parametrize("name", ["text", "code"])
def test_trajectories_stay_within_the_limits_and_are_derivatives_of_each_other(name: str) -> None:
    setting = SETTINGS[name]
    x = Panda(7).trajectory(setting, 3)
    assert len(x) == setting.samples
    assert np.all((x.q >= setting.low) & (x.q <= setting.high))
    assert np.all(np.abs(x.qd).max(axis=0) <= [2.175] * 4 + [2.61] * 3)
    steps = np.abs(np.gradient(x.q, 0.1, axis=0) - x.qd)[1:-1].max()
    assert steps < 0.2 * np.abs(x.qd).max()  # of a central difference over 0.2 s
    assert not np.allclose(x.q, Panda(7).trajectory(setting, 4).q)


def test_energies_of_the_arm_are_those_of_its_torques() -> None:
    """Power of the torques is the change of both energies."""
    arm, t, rate = Panda(3), np.arange(0.0, 1.0, 1e-3)[:, None], np.array([2.0, 3.0, 1.5])
    x = MotionSamples(np.sin(rate * t), rate * np.cos(rate * t), -(rate**2) * np.sin(rate * t), [False] * 3)
    total = arm.energies(x[::10]).sum(axis=0)
    power = np.sum(arm.torque(x) * x.qd, axis=1)
    work = np.concatenate([[0.0], np.cumsum(0.5e-3 * (power[1:] + power[:-1]))])[::10]
    assert np.abs(total - total[0] - work).max() < 1e-4 * np.ptp(work)


def check_gradient(kernel: SumKernel, log: np.ndarray, *rest: object) -> None:
    """The likelihood's gradient by the kernel's parameters is that of differences."""
    _, by, _ = likelihood_gradient(kernel, log, *rest)
    up, down = ([likelihood_gradient(kernel, log + e, *rest)[0] for e in s * np.eye(len(log))] for s in (1e-5, -1e-5))
    assert by == pytest.approx((np.array(up) - down) / 2e-5, rel=1e-5, abs=1e-7)


def test_gradients_of_the_geometric_kernel_are_those_of_differences() -> None:
    rng, n = np.random.default_rng(0), 2
    kernel = SumKernel((GeometricPart(n),))
    x = MotionSamples(*rng.uniform(-1.0, 1.0, (3, 5, n)), [False, True])
    log, noise, y = 0.3 * rng.normal(size=kernel.count), np.full(n, -1.0), rng.normal(size=(5, n))
    check_gradient(kernel, log, noise, x, y)
    c = np.tril(kernel.matrix(log, x))
    assert np.linalg.eigvalsh(c + np.tril(c, -1).T).min() > -1e-10


def test_a_torque_of_rigid_bodies_is_in_the_span_of_the_geometric_kernel() -> None:
    arm, rng = Panda(2), np.random.default_rng(1)
    x, far = (MotionSamples(*rng.uniform(-1.0, 1.0, (3, samples, 2)), [False] * 2) for samples in (150, 20))
    kernel = kernel_of("GIP", 2, False)
    c = kernel.matrix(kernel.start(x), x)
    c = np.tril(c) + np.tril(c, -1).T
    dual = np.linalg.lstsq(c, arm.torque(x).ravel(), rcond=1e-13)[0]
    found = (kernel.matrix(kernel.start(x), far, x) @ dual).reshape(-1, 2)
    assert np.abs(found - arm.torque(far)).max() < 1e-4 * np.abs(arm.torque(far)).max()


def test_identification_with_the_kinematics_known_is_exact_without_noise() -> None:
    arm = Panda(4)
    x, far = (arm.trajectory(SETTINGS["code"], seed) for seed in (0, 1))
    found = learn("ID", x, arm.torque(x), TrainingOptions(), arm.regressor)
    assert np.abs(found.predict(far) - arm.torque(far)).max() < 1e-6


@pytest.mark.parametrize("slides", [[False, True], [False, False]])
def test_the_exponential_lagrangian_is_its_definition_and_its_gradients_those_of_differences(slides) -> None:
    rng, n = np.random.default_rng(2), 2
    kernel = SumKernel((LagrangianExponentialPart(n),))
    x = MotionSamples(*rng.uniform(-1.0, 1.0, (3, 4, n)), slides)
    log, noise, y = 0.3 * rng.normal(size=kernel.count), np.full(n, -1.0), rng.normal(size=(4, n))
    check_gradient(kernel, log, noise, x, y)
    lengths = [mpmath.exp(2 * mpmath.mpf(a)) for a in log[1:]]

    def inputs(q, v):
        f = [a if s else mpmath.cos(a) for a, s in zip(q, slides, strict=True)]
        return [*v, *f, *(mpmath.mpf(0) if s else mpmath.sin(a) for a, s in zip(q, slides, strict=True))]

    def lagrangian(one, other):
        pairs = zip(inputs(*one), inputs(*other), lengths, strict=True)
        return mpmath.exp(mpmath.mpf(log[0]) - sum((a - b) ** 2 / c for a, b, c in pairs))

    found = kernel.matrix(log, x).reshape(4, n, 4, n)
    with mpmath.workdps(100):
        for (r, j), a, b in product(((0, 1), (2, 2)), range(n), range(n)):
            one, other = (lagrange(c, *(exact(m[k]) for m in (x.q, x.qd, x.qdd))) for c, k in ((a, r), (b, j)))
            wanted = float(sum(u * w * lagrangian(p, q) for (u, p), (w, q) in product(one, other)))
            assert found[r, a, j, b] == pytest.approx(wanted, rel=1e-9, abs=1e-12)


def test_the_network_is_refused_without_torch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "safe_sysid.learning.neural.training.delan_fit", None)
    arm = Panda(1)
    x = arm.trajectory(SETTINGS["code"], 0)
    with pytest.raises(SafeSysIdError, match="learn"):
        learn("DeLaN", x, arm.torque(x), TrainingOptions(epochs=1), arm.regressor)


@pytest.mark.slow
def test_the_network_learns_a_pendulum() -> None:
    pytest.importorskip("torch")
    arm = Panda(2)
    x = arm.trajectory(SETTINGS["code"], 0)
    found = (learn("DeLaN", x, arm.torque(x), TrainingOptions(epochs=epochs), arm.regressor) for epochs in (1, 300))
    errors = [np.mean((network.predict(x) - arm.torque(x)) ** 2) for network in found]
    assert errors[1] < 0.1 * errors[0]


def test_unknown_methods_are_refused() -> None:
    with pytest.raises(SafeSysIdError, match="expected one of chain, LIP, GIP, SE, LSE, ID"):
        kernel_of("magic", 2, False)


OPTIONS = {
    "kind": "joints", "setting": "code", "methods": ["LIP", "ID"], "seeds": 2, "joints": [2], "epochs": 20,
    "rate": 0.06, "batch": 50, "starts": 1, "finish": 3, "amplitudes": [0.5], "series": True, "network_epochs": 5,
}  # fmt: skip


@pytest.mark.slow  # of the paper's comparison
def test_trials_are_the_same_again_and_make_a_table() -> None:
    results = [run_trial(0, k, OPTIONS) for k in range(2)]
    again = run_trial(0, 0, OPTIONS)
    assert again["rows"][0]["nmse"] == results[0]["rows"][0]["nmse"]
    assert [row["method"] for result in results for row in result["rows"]] == ["LIP", "ID"]
    assert all(len(row["nmse"]) == 2 for result in results for row in result["rows"])
    assert max(results[0]["rows"][0]["nmse"]) < 0.01
    told = summary({"options": OPTIONS}, results)
    assert table(told).row_count == 2
    assert "kinetic" in energies(told)
    json.dumps(told)


def test_cases_name_every_trial_once() -> None:
    assert len(cases(OPTIONS)) == 4
    fewer = cases({**OPTIONS, "kind": "samples"})
    assert len({tuple(case.items()) for case in fewer}) == len(fewer) == 24
    assert len(cases({**OPTIONS, "kind": "tracking"})) == 4
    long = cases({**OPTIONS, "seeds": 20, "methods": ["LIP", "LSE", "DeLaN"]})
    assert [sum(case["method"] == name for case in long) for name in ("LIP", "LSE", "DeLaN")] == [20, 10, 3]


def test_the_reference_of_figure_9_is_differentiated_rightly() -> None:
    wanted = reference(0.6)
    for k in (0, 1):
        assert np.abs(np.gradient(wanted[:, k], 1e-3, axis=0) - wanted[:, k + 1])[1:-1].max() < 1e-4
    assert np.ptp(wanted[:, 0, 0]) == pytest.approx(1.2, rel=0.1)


@pytest.mark.slow
def test_the_command_resumes_and_draws(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["experiment", "lip", "--figure", "1", "--joints", "2", "--epochs", "3", "--jobs", "1"]
    words += ["--methods", "LIP,SE", "--out", str(tmp_path), "--json", str(tmp_path / "all.json")]
    assert main(words) == 0
    rows = json.loads((tmp_path / "all.json").read_text())["rows"]
    assert {(row["joints"], row["seed"], row["method"]) for row in rows} == {(2, 0, "LIP"), (2, 0, "SE")}
    assert (tmp_path / "figure_1.png").stat().st_size > 1000
    assert main(words) == 2  # results are there
    assert main([*words, "--resume"]) == 0
    assert "J2" in capsys.readouterr().out


@pytest.mark.slow
def test_a_learned_feed_forward_tracks_better_than_the_nominal_one() -> None:
    options = {**OPTIONS, "kind": "tracking", "methods": ["LIP", "nominal"], "epochs": 60, "batch": 100}
    learned, nominal = (run_trial(0, k, options)["rows"][0] for k in range(2))
    assert np.mean(learned["feedback"]) < 0.5 * np.mean(nominal["feedback"])
    assert np.mean(learned["nmse"]) < 0.5 * np.mean(nominal["nmse"])


@pytest.mark.slow
def test_stand_ins_are_learned_and_drawn(tmp_path: Path) -> None:
    told = tmp_path / "8.json"
    words = ["experiment", "lip", "--epochs", "15", "--jobs", "1", "--figure"]
    assert main([*words, "8", "--methods", "LIP,ID,SP", "--out", str(tmp_path / "8"), "--json", str(told)]) == 0
    rows = json.loads(told.read_text())["rows"]
    assert [row["method"] for row in rows] == ["LIP", "ID", "SP"]
    assert all(len(row["nmse"]) == 6 and np.all(np.isfinite(row["nmse"])) for row in rows)
    assert all(max(row["nmse"]) < 0.1 for row in rows[1:])  # LIP asks for more epochs
    for figure in "67":
        assert main([*words, figure, "--out", str(tmp_path / figure)]) == 0
        assert (tmp_path / figure / f"figure_{figure}.png").stat().st_size > 1000
