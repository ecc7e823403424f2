"""Training of hybrid models: what every epoch keeps, checkpoints, the same numbers every time. Needs torch."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from itertools import product
from pathlib import Path

import numpy as np
import pytest

from safe_sysid.apps.learn.hybrid import errors_of, identified, train
from safe_sysid.core.layout import ParameterLayout
from safe_sysid.dynamics import dynamics_of
from safe_sysid.dynamics.recursion import RecursiveDynamics
from safe_sysid.errors import ConfigError, ParameterError
from safe_sysid.learning.neural.dataset import Dataset, DatasetEntry, MeasuredMotion, write_index, write_motion
from safe_sysid.learning.neural.models import MODELS, TRANSITION
from safe_sysid.learning.neural.scaling import network_inputs, scaling_of
from safe_sysid.learning.neural.stepping import SteppingModel
from safe_sysid.robot import load_robot
from safe_sysid.robot.model import RobotModel
from safe_sysid.robot.parameters import is_consistent, pseudo_inertia

pytestmark = pytest.mark.unproved

needs_torch = pytest.mark.skipif(
    importlib.util.find_spec("torch") is None,
    reason="torch is not installed (pip install -e '.[learn]' --extra-index-url https://download.pytorch.org/whl/cpu)",
)
RATE = 100.0


@pytest.fixture(scope="module")
def model() -> RobotModel:
    return load_robot("three_joint")


def a_motion(model: RobotModel, seed: int, seconds: float, hysteresis: float) -> MeasuredMotion:
    """Sines, and torques with friction that remembers where it came from."""
    n, rng = model.n, np.random.default_rng(seed)
    stamp = np.arange(round(seconds * RATE)) / RATE
    size, wave, phase = rng.normal(size=(4, n)), rng.uniform(0.5, 2.0, (4, n)), rng.uniform(0, 6, (4, n))
    angle = wave * stamp[:, None, None] + phase
    q, qd, qdd = (size * np.sin(angle)), (size * wave * np.cos(angle)), -(size * wave**2 * np.sin(angle))
    q, qd, qdd = (x.sum(axis=1) for x in (q, qd, qdd))
    theta = np.array(model.theta_nominal)
    theta[model.layout.offset] = theta[model.layout.viscous] = 0.0
    tau = RecursiveDynamics(model.kinematics).inverse_dynamics(theta, q, qd, qdd, TRANSITION)
    bristle, bent = np.zeros_like(q), np.zeros(n)
    for k in range(len(stamp)):
        bent = bent + (qd[k] - 20.0 * np.abs(qd[k]) * bent) / RATE
        bristle[k] = bent
    return MeasuredMotion(stamp, q, qd, qdd, tau + hysteresis * bristle)


@pytest.fixture(scope="module")
def make(model: RobotModel, tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Dataset]:
    def made(seconds: float = 20.0, hysteresis: float = 20.0) -> Dataset:
        folder, entries = tmp_path_factory.mktemp("data"), []
        for k, split in enumerate(["train", "train", "train", "validation", "test"]):
            write_motion(folder / f"{k}.npz", a_motion(model, k, seconds, hysteresis))
            entries.append(DatasetEntry(f"{k}.npz", "fast", split))
        return write_index(folder, model.name, model.joint_names, RATE, 1.0, entries)

    return made


@pytest.fixture(scope="module")
def dataset(make: Callable[..., Dataset]) -> Dataset:
    return make()


# --- without torch --------------------------------------------------------------------------------------------------


def test_the_semidefinite_program_finds_the_arm(make: Callable[..., Dataset], model: RobotModel) -> None:
    exact = make(hysteresis=0.0)
    found = train("rbd_sign", exact, optimization="2s", seed=0, model=model)
    assert found.ended == "semidefinite program"
    assert found.errors["test"]["nmse"] < 1e-12
    assert found.parts["rbd"]["test"]["nmse"] > 1e-9  # the same arm without its friction
    theta, layout = found.learned.theta, model.layout
    np.testing.assert_allclose(theta[layout.coulomb], model.theta_nominal[layout.coulomb], atol=1e-6)
    assert all(is_consistent(theta[layout.link(j)]) for j in range(model.n))
    without = identified(model, exact, friction=False)
    assert not np.any(without[layout.coulomb])


def test_errors_are_what_the_paper_defines(dataset: Dataset, model: RobotModel) -> None:
    found = train("rbd", dataset, optimization="2s", seed=0, model=model)
    motion, scaling = dataset.motion(dataset.of("test")[0]), found.learned.scaling
    span = np.ptp(np.concatenate([dataset.motion(entry).tau for entry in dataset.of("train")]), axis=0)
    np.testing.assert_array_equal(scaling.torque_high - scaling.torque_low, span)
    torque = dynamics_of(model.kinematics).inverse_dynamics(found.learned.theta, motion.q, motion.qd, motion.qdd)
    nmse = np.mean(((torque - motion.tau) / span) ** 2, axis=0)
    np.testing.assert_allclose(found.errors["test"]["nmse_per_joint"], nmse)
    assert found.errors["test"]["nmse"] == pytest.approx(nmse.mean())


@pytest.mark.parametrize(
    ("name", "optimization", "said"),
    [("gpt", "e2e", "model 'gpt'"), ("rbd", "luck", "optimization 'luck'"), ("lstm", "2s", "expected e2e")],
)
def test_what_does_not_exist_is_named(dataset: Dataset, name: str, optimization: str, said: str) -> None:
    with pytest.raises(ParameterError, match=said):
        train(name, dataset, optimization=optimization, seed=0)


@needs_torch
def test_a_graphics_card_that_is_not_there_is_named(dataset: Dataset) -> None:
    import torch

    if torch.cuda.is_available():
        pytest.skip("there is one")
    with pytest.raises(ParameterError, match="--device cuda"):
        train("rbd", dataset, optimization="e2e", seed=0, device="cuda")


# --- models ---------------------------------------------------------------------------------------------------------


@needs_torch
def test_sizes_are_those_of_table_iv() -> None:
    from safe_sysid.learning.neural.training.delan import DeLaN
    from safe_sysid.learning.neural.training.networks import Feedforward, Recurrent, weights_of

    assert weights_of(Recurrent(21, 7)) == 33_358
    assert weights_of(Feedforward(21, 7)) == 46_008
    assert weights_of(DeLaN(7)) == 47_629


@needs_torch
def test_barycentric_links_are_what_the_appendix_means() -> None:
    """Written out by hand from A A^T; the printed second entry of the last column is not that of any A A^T."""
    import torch

    from safe_sysid.learning.neural.training.rigid import LEAST, Barycentric

    part = Barycentric(1, np.eye(10)).double()
    a, b, c, d, e, f, g, h, i, j = values = np.random.default_rng(0).normal(size=10)
    with torch.no_grad():
        part.free.copy_(torch.tensor(values)[None])
    found = part.links().detach().numpy()[0]
    r = LEAST
    expected = [
        h * h + i * i + j * j + d * d + r,
        a * h, e * h + b * i, f * h + g * i + c * j,
        e * e + b * b + f * f + g * g + c * c + 2 * r, -a * e, a * a + f * f + g * g + c * c + 2 * r,
        -a * f, -e * f - g * b, a * a + e * e + b * b + 2 * r,
    ]  # fmt: skip
    np.testing.assert_allclose(found, expected, atol=1e-12)
    assert abs(found[2] - (c * h + i * b)) > 0.1
    assert np.linalg.eigvalsh(pseudo_inertia(found))[0] > 0.0


@needs_torch
@pytest.mark.parametrize("name", ["Barycentric", "NewtonEuler"])
def test_rigid_parts_are_the_recursion(model: RobotModel, name: str) -> None:
    import torch

    from safe_sysid.learning.neural.training import rigid
    from safe_sysid.learning.neural.training.sequences import arm_basis

    rng, n, layout = np.random.default_rng(1), model.n, model.layout
    basis = arm_basis(model.kinematics)
    dynamics = RecursiveDynamics(model.kinematics)
    q, qd, qdd = rng.normal(size=(3, 40, n))
    part = (rigid.Barycentric(n, basis) if name == "Barycentric" else rigid.NewtonEuler(model.kinematics)).double()
    with torch.no_grad():
        part.free.copy_(torch.tensor(rng.normal(size=(n, 10))))
    theta = np.zeros(layout.size)
    theta[layout.links] = part.links().detach().numpy().ravel()
    assert all(np.linalg.eigvalsh(pseudo_inertia(theta[layout.link(j)]))[0] > 0.0 for j in range(n))
    if name == "Barycentric":
        found = part(torch.tensor(dynamics.torque_regressor(q, qd, qdd)[:, :, : 10 * n] @ basis))
    else:
        found = part(*(torch.tensor(x) for x in (q, qd, qdd)))
    np.testing.assert_allclose(
        found.detach().numpy(), dynamics.inverse_dynamics(theta, q, qd, qdd), atol=1e-11, rtol=1e-11
    )


@needs_torch
def test_a_deep_lagrangian_network_obeys_lagrange() -> None:
    """Its torque is d/dt dL/dqd - dL/dq of its own energies, by differences along a motion."""
    import torch

    from safe_sysid.learning.neural.training.delan import DeLaN

    torch.manual_seed(0)
    net = DeLaN(3, 20).double()
    q0, v0, a0 = torch.randn(3, 1, 3, dtype=torch.float64)

    def at(t: float) -> tuple[torch.Tensor, torch.Tensor]:
        return q0 + v0 * t + 0.5 * a0 * t * t, v0 + a0 * t

    def lagrangian(q: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        return (0.5 * v @ net.mass_matrix(q)[0] @ v.T).sum() - net._energies(q)[0].sum()

    h = 1e-5
    momentum = [(net.mass_matrix(q)[0] @ v[0]) for q, v in (at(-h), at(h))]
    slope = torch.stack(
        [(lagrangian(q0 + h * e, v0) - lagrangian(q0 - h * e, v0)) / (2 * h) for e in torch.eye(3, dtype=torch.float64)]
    )
    expected = (momentum[1] - momentum[0]) / (2 * h) - slope
    np.testing.assert_allclose(net(q0, v0, a0)[0].detach().numpy(), expected.detach().numpy(), atol=1e-7)
    assert torch.linalg.eigvalsh(net.mass_matrix(q0))[0, 0] > 0.0


# --- training -------------------------------------------------------------------------------------------------------


def short(epochs: int = 4, batch: int = 10, **more: object):  # type: ignore[no-untyped-def]
    from safe_sysid.learning.neural.training.fit import Schedule

    return Schedule(epochs=epochs, batch=batch, steps=50, **more)  # type: ignore[arg-type]


@needs_torch
def test_a_training_goes_on_after_a_kill_as_if_nothing_had_been(dataset, model, tmp_path: Path) -> None:
    class KilledError(Exception):
        pass

    def killed(epoch) -> None:  # type: ignore[no-untyped-def]
        if epoch.number == 2:
            raise KilledError

    arguments = {"optimization": "e2e", "seed": 3, "model": model, "schedule": short()}
    whole = train("rbd_sign_lstm", dataset, **arguments)  # type: ignore[arg-type]
    with pytest.raises(KilledError):
        train("rbd_sign_lstm", dataset, out=tmp_path, progress=killed, **arguments)  # type: ignore[arg-type]
    rest = train("rbd_sign_lstm", dataset, out=tmp_path, **arguments)  # type: ignore[arg-type]
    assert [epoch.validation for epoch in rest.history] == [epoch.validation for epoch in whole.history]
    for name, value in whole.learned.weights.items():
        np.testing.assert_array_equal(rest.learned.weights[name], value)
    np.testing.assert_array_equal(rest.learned.theta, whole.learned.theta)
    assert rest.errors == whole.errors
    assert rest.file == tmp_path / "model.npz"
    with pytest.raises(ConfigError, match="that of the same training"):
        train("rbd_sign_lstm", dataset, out=tmp_path, **{**arguments, "seed": 4})  # type: ignore[arg-type]
    (tmp_path / "checkpoint.pt").write_bytes(b"torn")
    with pytest.raises(ConfigError, match="checkpoint"):
        train("rbd_sign_lstm", dataset, out=tmp_path, **arguments)  # type: ignore[arg-type]


@needs_torch
@pytest.mark.parametrize("name", ["rbd_sign_lstm", pytest.param("nea", marks=pytest.mark.slow)])
def test_links_are_real_after_every_epoch(dataset: Dataset, model: RobotModel, name: str, monkeypatch) -> None:
    from safe_sysid.learning.neural.training import fit

    links, layout, batch = [], ParameterLayout(model.n), 10 if "lstm" in name else 500
    theta_of = fit.HybridNetwork.theta

    def seen(self, known):  # type: ignore[no-untyped-def]
        links.append(theta_of(self, known))
        return links[-1]

    monkeypatch.setattr(fit.HybridNetwork, "theta", seen)
    schedule = short(4, batch, rate=0.05)
    found = train(name, dataset, optimization="e2e", seed=0, model=model, schedule=schedule, splits=())
    assert len(links) >= 4
    for theta, j in product(links, range(model.n)):
        assert np.linalg.eigvalsh(pseudo_inertia(theta[layout.link(j)]))[0] > 0.0
    assert all(epoch.eigenvalue > 0.0 for epoch in found.history)


@needs_torch
@pytest.mark.parametrize("name", ["rbd_sign_lstm", pytest.param("rbd_sign_mlp", marks=pytest.mark.slow)])
def test_what_is_exported_is_what_torch_trained(dataset: Dataset, model: RobotModel, name: str) -> None:
    """In steps of four ticks: what it sees of one of them is held from its last tick on."""
    import torch

    from safe_sysid.learning.neural.training.networks import Feedforward, Recurrent

    found = train(name, dataset, optimization="2s", seed=0, model=model, schedule=short(2, period=0.04))
    assert (found.learned.every, found.learned.sees) == (4, "directions")
    n, s = model.n, found.learned.scaling
    motion = dataset.motion(dataset.of("test")[0])
    states = motion.q, motion.qd, motion.qdd
    kernel = SteppingModel(found.learned, model.kinematics, model.theta_nominal, 0.0).along(*states)
    means = np.array([part.reshape(-1, 4, n).mean(axis=1) for part in states])
    x = torch.tensor(network_inputs(s, "directions", means))[None]
    for dtype, tolerance in ((torch.float64, 1e-11), (torch.float32, 1e-5)):
        net = (Recurrent if name.endswith("lstm") else Feedforward)(3 * n, n).to(dtype)
        net.load_state_dict({k: torch.tensor(v) for k, v in found.learned.weights.items()})
        said = net(x.to(dtype))[0][0].detach().double().numpy()
        np.testing.assert_allclose(kernel[3::4] / s.torque_range, said, atol=tolerance)
    np.testing.assert_array_equal(kernel[3:-1].reshape(-1, 4, n), kernel[3:-4:4, None].repeat(4, axis=1))
    assert not np.any(kernel[:3])
    assert np.ptp(kernel) > 0.1


@needs_torch
def test_a_step_is_told_what_is_known_before_it(dataset: Dataset, model: RobotModel) -> None:
    """Inputs of a step are means of the ticks before it; torques, and what a rigid arm is told, are its own."""
    import torch

    from safe_sysid.learning.neural.training.sequences import Sequences

    s, entry = scaling_of(dataset), dataset.of("validation")[0]
    motion = dataset.motion(entry)
    found = Sequences(
        dataset, "validation", 50, s, model.kinematics, lambda m: 0.5 * m.tau, None, "cpu", sees="directions", every=4
    )  # fmt: skip
    step = 4 * np.arange(1, 51)  # first tick of each step of the first sequence but one
    batch = found.batch(torch.arange(1))
    for k, at in enumerate(step):
        before, now = slice(at - 4, at), slice(at, at + 4)
        direction = np.clip(motion.qd[before].mean(axis=0) / TRANSITION, -1.0, 1.0)
        np.testing.assert_allclose(batch.x[0, k, : model.n], direction, atol=1e-6)
        middle = slice(model.n, 2 * model.n)
        velocity = (motion.qd[before].mean(axis=0) - s.mean[middle]) / s.deviation[middle]
        np.testing.assert_allclose(batch.x[0, k, middle], velocity, atol=1e-5)
        half = 0.5 * motion.tau[now].mean(axis=0) / s.torque_range
        np.testing.assert_allclose(batch.target[0, k], half, atol=1e-6)
        np.testing.assert_allclose(batch.states[0, 0, k], motion.q[now].mean(axis=0), atol=1e-6)
        sign = np.clip(motion.qd[now] / TRANSITION, -1.0, 1.0).mean(axis=0)
        np.testing.assert_allclose(batch.sign[0, k], sign, atol=1e-6)
    assert len(found) == (len(motion) // 4 - 1) // 50


@needs_torch
def test_training_ends_early_and_keeps_the_best_epoch(dataset: Dataset, model: RobotModel) -> None:
    found = train("lstm", dataset, optimization="e2e", seed=0, schedule=short(200, patience=2, rate=0.2), model=model)
    losses = [epoch.validation for epoch in found.history]
    assert found.ended == "early stopping"
    assert int(np.argmin(losses)) == len(losses) - 3
    timed = train("lstm", dataset, optimization="e2e", seed=0, model=model, max_minutes=0.0)
    assert timed.ended == "time"
    assert len(timed.history) == 1


@needs_torch
@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name, kind in MODELS.items() if kind.rigid in ("nea", "delan")])
def test_every_other_model_trains(dataset: Dataset, model: RobotModel, name: str, tmp_path: Path) -> None:
    schedule = short(2, 10 if "lstm" in name else 500)
    found = train(name, dataset, optimization="e2e", seed=0, model=model, schedule=schedule, out=tmp_path)
    assert found.history[-1].train < found.history[0].train
    assert (found.file is None) == (MODELS[name].rigid == "delan")
    assert np.isfinite(found.errors["test"]["nmse"])


@needs_torch
@pytest.mark.slow
def test_a_hybrid_learns_what_a_rigid_arm_cannot(make: Callable[..., Dataset], model: RobotModel) -> None:
    data = make(60.0, 40.0)
    rigid = train("rbd_sign", data, optimization="2s", seed=0, model=model)
    schedule = short(60, slower_after=50)
    for optimization in ("2s", "e2e"):
        hybrid = train("rbd_sign_lstm", data, optimization=optimization, seed=0, model=model, schedule=schedule)
        assert hybrid.errors["test"]["nmse"] < 0.5 * rigid.errors["test"]["nmse"]
        again, _ = errors_of(hybrid.learned, data, model, ["test"])
        assert again["test"] == hybrid.errors["test"]
