"""The residual model ``lip``: compiled predictions are the process's, and what it does not know it does not claim."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from safe_sysid.control.feed_forward.by_name import make_feed_forward
from safe_sysid.dynamics import dynamics_of
from safe_sysid.learning.gaussian_process.file import LearnedModel, ModelFileError, read_model, write_model
from safe_sysid.learning.gaussian_process.kernels import LagrangianPart, LinearPart, lip_kernel
from safe_sysid.learning.gaussian_process.motions import MotionSamples
from safe_sysid.learning.gaussian_process.regression import TorqueProcess, Units
from safe_sysid.learning.gaussian_process.training import TrainingOptions, train
from safe_sysid.learning.lip import LipResidual, TorquePredictor, hand_over
from safe_sysid.robot import RobotModel, load_robot

pytestmark = pytest.mark.unproved


def drawn(rng: np.random.Generator, samples: int, slides: list[bool]) -> MotionSamples:
    return MotionSamples(*rng.uniform(-1.5, 1.5, (3, samples, len(slides))), slides)


#: Whether joints slide. With five the compiled loops over joints are in two parts, of four and of what is left.
THREE, FIVE = [False, True, False], [False, True, False, False, False]


def process(slides: list[bool] = THREE, residual: bool = True) -> TorqueProcess:
    rng, n = np.random.default_rng(0), len(slides)
    x, kernel = drawn(rng, 37, slides), lip_kernel(n, friction=True, residual=residual)
    x = MotionSamples(x.q, x.qd, x.qdd, slides, np.clip(3.0 * x.qd, -1.0, 1.0))  # as a filter leaves it
    log = kernel.start(x) + 0.2 * rng.normal(size=kernel.count)
    log[4 * n] -= 9.0  # as training leaves it
    return TorqueProcess(kernel, log, rng.uniform(-5.0, -3.0, n), x, rng.normal(size=(37, n)), Units(3.0, 0.5))


@pytest.mark.parametrize(
    ("slides", "residual"),
    [(THREE, True), *(pytest.param(FIVE, residual, marks=pytest.mark.slow) for residual in (False, True))],
)
def test_compiled_predictions_are_those_of_the_process(slides: list[bool], residual: bool) -> None:
    whole, subset = process(slides, residual), np.arange(0, 37, 3)
    predictor = TorquePredictor(whole, subset)
    far = drawn(np.random.default_rng(1), 25, slides)
    torque, deviation = (
        np.array([of(*at).copy() for at in zip(far.q, far.qd, far.qdd, strict=True)])
        for of in (predictor.torque, predictor.deviation)
    )
    expected = whole.predict(far)
    assert np.abs(torque - expected).max() < 1e-12 * np.abs(expected).max()
    chain, wide = whole.kernel.parts[0], whole.log.copy()
    wide[: chain.count] = chain.widened(wide[: chain.count])
    assert np.any(wide > whole.log)
    few = TorqueProcess(whole.kernel, wide, whole.log_noise, whole.x[subset], whole.torque[subset], whole.units)
    of_few, of_all = (np.sqrt(np.einsum("rjj->rj", p.covariance(far))) for p in (few, whole))
    assert np.allclose(deviation, of_few, rtol=1e-9)
    assert np.all(deviation >= of_all * (1.0 - 1e-9))
    assert np.any(deviation > 1.05 * of_all)


def test_features_of_ones_own_are_not_compiled() -> None:
    whole = process()
    n = len(THREE)
    kernel = lip_kernel(n, extra=[LinearPart(lambda x: np.ones((n * len(x), 1)), 1)])
    own = TorqueProcess(kernel, np.zeros(kernel.count), np.zeros(n), whole.x, whole.torque)
    with pytest.raises(Exception, match="own features"):
        TorquePredictor(own, np.arange(3))


class Arm:
    """three_joint with other links and friction than its file says."""

    def __init__(self) -> None:
        self.model = load_robot("three_joint")
        rng, layout = np.random.default_rng(4), self.model.layout
        self.theta = self.model.theta_nominal.copy()
        for j in range(3):
            self.theta[layout.link(j)] *= rng.uniform(0.7, 1.4)
        self.theta[layout.coulomb] = 0.5, 0.3, 0.2
        self._dynamics = dynamics_of(self.model.kinematics)

    def motion(self, rng: np.random.Generator, t: np.ndarray, grow: float = 0.0) -> MotionSamples:
        """Sinusoids; with ``grow``, positions leave the range of the others at that rate."""
        rate, phase = rng.uniform(0.5, 2.5, (3, 4)), rng.uniform(0.0, 6.3, (3, 4))
        size, t = rng.uniform(0.1, 0.4, (3, 4)) / rate, t[:, None, None]
        q = (size * np.sin(rate * t + phase)).sum(-1)
        qd = (size * rate * np.cos(rate * t + phase)).sum(-1)
        qdd = -(size * rate**2 * np.sin(rate * t + phase)).sum(-1)
        drift = rng.choice([-1.0, 1.0], 3) * rng.uniform(0.0, grow, 3)
        s = t[:, 0]
        return MotionSamples(q + drift * s**2, qd + 2.0 * drift * s, qdd + 2.0 * drift, [False] * 3)

    def torque(self, x: MotionSamples) -> np.ndarray:
        return np.array(self._dynamics.inverse_dynamics(self.theta, x.q, x.qd, x.qdd))

    def missing(self, x: MotionSamples) -> np.ndarray:
        nominal, transition = self.model.theta_nominal, self.model.friction_transition_velocity
        return self.torque(x) - self._dynamics.inverse_dynamics(nominal, x.q, x.qd, x.qdd, transition)


def predicted(residual: LipResidual, x: MotionSamples) -> tuple[np.ndarray, np.ndarray]:
    """Torque (N, 3) and trust (N, 1) along a motion."""
    answers = [(torque.copy(), [trust]) for torque, trust in map(residual.predict, x.q, x.qd, x.qdd)]
    torque, trust = zip(*answers, strict=True)
    return np.array(torque), np.array(trust)


@pytest.fixture(scope="module")
def learned(tmp_path_factory: pytest.TempPathFactory) -> tuple[Arm, Path]:
    arm, rng, t = Arm(), np.random.default_rng(0), np.arange(0.0, 60.0, 0.4)
    x, held_out = arm.motion(rng, t), arm.motion(rng, t)
    noisy = [arm.torque(part) + 0.02 * rng.normal(size=part.q.shape) for part in (x, held_out)]
    found = train(lip_kernel(3, friction=True), x, noisy[0], TrainingOptions(epochs=80, batch=75, rate=0.05, last=1.0))
    path = tmp_path_factory.mktemp("lip") / "model.npz"
    trusted = hand_over(found, held_out, noisy[1], most=50)
    write_model(path, LearnedModel(found, tuple(arm.model.joint_names), {}, trusted))
    return arm, path


def test_within_the_training_distribution_it_is_active_and_better_than_the_rigid_model(
    learned: tuple[Arm, Path],
) -> None:
    arm, path = learned
    residual, rng = LipResidual.read(arm.model, path), np.random.default_rng(50)
    x = [arm.motion(rng, np.arange(0.0, 10.0, 0.1)) for _ in range(10)]
    torque, trust = map(np.concatenate, zip(*(predicted(residual, part) for part in x), strict=True))
    before = np.concatenate([arm.missing(part) for part in x])
    assert np.mean(trust > 0.0) >= 0.9
    assert np.mean(trust) > 0.8
    # 0.07, 0.43 and 0.24: at the highest speeds, which what was held out has not, trust falls.
    assert np.all(np.std(before - trust * torque, axis=0) < 0.5 * np.std(before, axis=0))
    assert np.all(np.std(before - torque, axis=0) < 0.15 * np.std(before, axis=0))


def test_it_hands_over_before_its_error_exceeds_the_declared_bound(learned: tuple[Arm, Path]) -> None:
    arm, path = learned
    rng, wrong, gone = np.random.default_rng(99), 0, 0
    residual = LipResidual(arm.model, read_model(path), every=1)
    for _ in range(60):
        x = arm.motion(rng, np.arange(0.0, 3.0, 0.05), grow=2.0)
        torque, trust = predicted(residual, x)
        beyond = np.any(np.abs(torque - arm.missing(x)) > residual.bound, axis=1)
        assert not np.any(beyond & (trust[:, 0] > 0.0))
        wrong += np.count_nonzero(beyond)
        gone += np.any(trust == 0.0)
    assert gone > 45  # most of these motions leave what was learned
    assert wrong > 30  # and the bound would have been broken there


def test_trust_is_smooth_between_one_and_zero(learned: tuple[Arm, Path]) -> None:
    arm, path = learned
    residual = LipResidual(arm.model, read_model(path), every=1)
    away = np.linspace(0.0, 3.0, 3001)
    still = np.zeros(3)  # at rest it knows gravity everywhere; what it does not know is how fast motions go on
    trusts = np.array([residual.predict(a * np.array([0.2, 1.0, 0.5]), a * np.ones(3), still)[1] for a in away])
    assert trusts[0] == 1.0
    assert trusts[-1] == 0.0
    assert np.abs(np.diff(trusts)).max() < 0.05
    assert np.any((trusts > 0.2) & (trusts < 0.8))


def test_trust_is_found_in_parts_from_one_motion(learned: tuple[Arm, Path]) -> None:
    arm, path = learned
    often, seldom = (LipResidual(arm.model, read_model(path), every=every) for every in (1, 10))
    assert seldom._predictor.parts == 4  # of 50 samples
    motions = [(a * np.array([0.2, 1.0, 0.5]), a * np.ones(3), np.zeros(3)) for a in np.linspace(0.3, 1.0, 40)]
    one, ten = ([residual.predict(*motion)[1] for motion in motions] for residual in (often, seldom))
    assert len({one[k] for k in (0, 10, 20, 30)}) > 2
    for k, trust in enumerate(ten):
        done = k if k < 10 else k - 3  # parts of ticks 10 to 13 are there at 13
        assert trust == pytest.approx(one[done // 10 * 10], abs=1e-9)


def test_trust_is_forgotten_where_ticks_are_missing(learned: tuple[Arm, Path]) -> None:
    arm, path = learned
    residual, still = LipResidual(arm.model, read_model(path)), np.zeros(3)
    assert [residual.predict(still, still, still)[1] for _ in range(31)][-1] == 1.0
    residual.reset()
    assert residual.predict(np.array([0.6, 3.0, 1.5]), 3.0 * np.ones(3), still)[1] == 0.0


def test_a_model_of_the_published_kernel_is_refused(learned: tuple[Arm, Path], tmp_path: Path) -> None:
    arm, path = learned
    new = read_model(path)
    kernel = lip_kernel(3, energies=LagrangianPart)
    old = TorqueProcess(kernel, kernel.start(new.process.x), np.zeros(3), new.process.x, new.process.torque)
    write_model(tmp_path / "old.npz", LearnedModel(old, new.joint_names, {}, new.hand_over))
    assert read_model(tmp_path / "old.npz").process.kernel == kernel
    with pytest.raises(ModelFileError, match=r"old.npz: learned with the kernel of \[LIP\].*learn anew"):
        LipResidual.read(arm.model, tmp_path / "old.npz")


def test_what_is_not_finite_is_not_trusted(learned: tuple[Arm, Path]) -> None:
    arm, path = learned
    residual = LipResidual.read(arm.model, path)
    assert residual.predict(np.array([np.nan, 0.0, 0.0]), np.zeros(3), np.zeros(3))[1] == 0.0


def named(path: Path) -> RobotModel:
    keys = {"name": "residual", "bound": 1.0, "residual": "lip", "file": str(path)}
    return load_robot("three_joint", **{f"controller.feed_forward.{key}": x for key, x in keys.items()})


def test_a_controller_takes_it_by_name(learned: tuple[Arm, Path], monkeypatch: pytest.MonkeyPatch) -> None:
    arm, path = learned
    feed_forward = make_feed_forward(named(path))
    assert feed_forward.in_tick
    with monkeypatch.context() as small:
        small.setattr("safe_sysid.learning.lip._IN_TICK", (449, 150))  # 150 samples of three joints
        assert not make_feed_forward(named(path)).in_tick
    x = arm.motion(np.random.default_rng(3), np.array([0.7]))
    torque, trust = feed_forward(np.zeros(3), np.zeros(3), x.q[0], x.qd[0], x.qdd[0], 0.0)
    assert trust > 0.0
    assert np.allclose(torque, arm.missing(x)[0], atol=0.3)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda a: a.update(joint_names=a["joint_names"][::-1]), "joints of the model are"),
        (lambda a: a.update(subset=np.zeros(0, np.int64), hand_over=np.zeros((3, 0))), "is to be believed"),
        (lambda a: a.update(subset=np.array([10_000])), "subset of 1 samples"),
        (lambda a: a.update(hand_over=a["hand_over"][[1, 0, 2]]), "hand_over"),
        (lambda a: a.update(q=np.full_like(a["q"], np.nan)), "expected a finite number"),
        (lambda a: a.pop("log"), "no array 'log'"),
    ],
)
def test_files_that_do_not_fit_are_refused_with_their_name(
    change, said: str, learned: tuple[Arm, Path], tmp_path: Path
) -> None:
    arm, path = learned
    with np.load(path) as file:
        arrays = dict(file)
    change(arrays)
    np.savez(tmp_path / "bad.npz", **arrays)
    with pytest.raises(ModelFileError, match=said) as error:
        LipResidual.read(arm.model, tmp_path / "bad.npz")
    assert "bad.npz" in str(error.value)


def test_a_damaged_file_is_refused(learned: tuple[Arm, Path], tmp_path: Path) -> None:
    arm, path = learned
    (tmp_path / "bad.npz").write_bytes(path.read_bytes()[:1000])
    with pytest.raises(ModelFileError, match="cannot be read as a learned model"):
        LipResidual.read(arm.model, tmp_path / "bad.npz")
