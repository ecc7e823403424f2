"""Hybrid models in a control process: the kernel against its definition and against torch, files, trust, the guard."""

from __future__ import annotations

import subprocess
import sys
import tracemalloc
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hybrid_support import by_numpy, made_up

from safe_sysid.control.feed_forward import AddedTorque, FeedForwardInTick
from safe_sysid.control.feed_forward.by_name import make_added_torque, make_feed_forward
from safe_sysid.control.gains.design import design_gains
from safe_sysid.dynamics import dynamics_of
from safe_sysid.errors import SafeSysIdError
from safe_sysid.learning.neural.file import HybridFileError, _checksum, read_hybrid, write_hybrid
from safe_sysid.learning.neural.models import TRANSITION, Learned
from safe_sysid.learning.neural.stepping import WARM_UP, HybridResidual, SteppingModel
from safe_sysid.robot import load_robot
from safe_sysid.robot.model import RobotModel

pytestmark = pytest.mark.unproved

REFERENCE = Path(__file__).parent / "frozen" / "hybrid_reference.npz"


@pytest.fixture(scope="module")
def model() -> RobotModel:
    return load_robot("three_joint")


def stepping(model: RobotModel, learned: Learned) -> SteppingModel:
    return SteppingModel(learned, model.kinematics, model.theta_nominal, model.friction_transition_velocity)


@pytest.fixture
def path(model: RobotModel, tmp_path: Path) -> Path:
    """A model's file."""
    write_hybrid(tmp_path / "model.npz", made_up(model))
    return tmp_path / "model.npz"


def motion(n: int, samples: int = 60) -> np.ndarray:
    """(3, N, n) of q, qd and qdd."""
    return np.random.default_rng(3).uniform(-2.0, 2.0, (3, samples, n))


@pytest.mark.parametrize(
    ("name", "sees", "every"),
    [
        ("rbd_sign_lstm", "positions", 1),
        ("rbd_sign_lstm", "directions", 7),
        ("rbd_sign_mlp", "directions", 1),
        ("lstm", "positions", 3),
        ("rbd_sign", "positions", 1),
    ],
)
def test_a_tick_is_the_definition(model: RobotModel, name: str, sees: str, every: int) -> None:
    learned = replace(made_up(model, name), sees=sees, every=every)
    one, states = stepping(model, learned), motion(model.n)
    states[1, ::2] *= 0.01  # where directions are neither -1 nor 1
    network = by_numpy(learned, np.column_stack(list(states))) if learned.weights else np.zeros(states[0].shape)
    np.testing.assert_allclose(one.along(*states), network, atol=1e-12)
    dynamics = dynamics_of(model.kinematics)
    rigid = 0.0 if learned.theta is None else dynamics.inverse_dynamics(learned.theta, *states, TRANSITION)
    nominal = dynamics.inverse_dynamics(model.theta_nominal, *states, model.friction_transition_velocity)
    expected = network + rigid
    assert np.ptp(expected) > 1.0
    for _ in range(2):  # again after a reset: nothing is left of the first time
        for k, state in enumerate(zip(*states, strict=True)):
            np.testing.assert_allclose(one.torque(*state), expected[k], atol=1e-11)
        one.reset()
    for k, state in enumerate(zip(*states, strict=True)):
        np.testing.assert_allclose(one.residual(*state)[0], (expected - nominal)[k], atol=1e-11)


def test_a_tick_is_what_torch_computed() -> None:
    """Weights, inputs and outputs of torch's own layers, kept in a file: also where torch is not installed."""
    kept = dict(np.load(REFERENCE))
    arm = load_robot("three_joint")
    for network in ("lstm", "mlp"):
        name = "rbd_sign_" + network
        weights = {k.partition(":")[2]: v for k, v in kept.items() if k.startswith(network + ":")}
        learned = replace(made_up(arm, name), weights=weights)
        s = learned.scaling
        states = kept["x"] * s.deviation + s.mean
        found = stepping(arm, learned).along(*np.split(states, 3, axis=1))
        assert np.ptp(kept[network]) > 0.1
        np.testing.assert_allclose(found / s.torque_range, kept[network], atol=1e-6)


def test_the_residual_is_zero_of_a_model_that_is_the_nominal_arm(model: RobotModel) -> None:
    learned = replace(made_up(model, "rbd_sign"), theta=np.array(model.theta_nominal))
    one = SteppingModel(learned, model.kinematics, model.theta_nominal, TRANSITION)
    for state in zip(*motion(model.n, 5), strict=True):
        assert not np.any(one.residual(*state)[0])


def test_a_network_with_memory_says_at_most_the_sum_of_its_last_weights(model: RobotModel) -> None:
    learned = made_up(model, size=30.0)
    w, unit = learned.weights, learned.scaling.torque_range
    most = (np.abs(w["last.weight"]).sum(axis=1) + np.abs(w["last.bias"])) * unit
    found = np.abs(stepping(model, learned).along(*1e3 * motion(model.n, 300)))
    assert np.all(found <= most)
    assert np.any(found > 0.3 * most)


# --- files ----------------------------------------------------------------------------------------------------------


def test_what_is_written_is_read(model: RobotModel, tmp_path: Path) -> None:
    for name in ("rbd_sign_lstm", "rbd_sign_mlp", "lstm", "rbd"):
        learned = replace(made_up(model, name), sees="directions", every=2)
        write_hybrid(tmp_path / "model.npz", learned)
        again = read_hybrid(tmp_path / "model.npz", model.joint_names)
        states = motion(model.n, 5)
        one, other = stepping(model, learned), stepping(model, again)
        for state in zip(*states, strict=True):
            np.testing.assert_array_equal(one.torque(*state), other.torque(*state))
        assert dict(again.provenance) == {"robot": model.name}


def _forged(path: Path, change: Callable[[dict[str, Any]], Any]) -> None:
    """The file changed, with a checksum that fits."""
    arrays = dict(np.load(path))
    change(arrays)
    arrays["checksum"] = np.array(_checksum(arrays))
    np.savez(path, **arrays)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda a: a.update(schema=np.array("other")), "schema"),
        (lambda a: a.update(name=np.array("rbd_sign_mlp")), "weights"),
        (lambda a: a.update(name=np.array("gpt")), "name = 'gpt'"),
        (lambda a: a.update(name=np.array("delan")), "a model that is run"),
        (lambda a: a.update(optimization=np.array("luck")), "optimization"),
        (lambda a: a.update(joint_names=np.array(["x", "y", "z"])), "joints of the model"),
        (lambda a: a.update(joint_names=np.array(["turn", "turn", "elbow"])), "different, non-empty names"),
        (lambda a: a.update(rate_hz=np.array(-1.0)), "rate_hz"),
        (lambda a: a.update(sees=np.array("stars")), "sees = 'stars'"),
        (lambda a: a.update(every=np.array(0)), "every = 0"),
        (lambda a: a.pop("theta"), "no array 'theta'"),
        (lambda a: a.update(theta=np.zeros(0)), "theta"),
        (lambda a: a.update(theta=-a["theta"]), "those of a real body"),
        (lambda a: a.update(extra=np.zeros(1)), "extra"),
        (lambda a: a["weight:last.bias"].__setitem__(0, np.nan), "finite"),
        (lambda a: a["weight:last.weight"].__setitem__(0, np.inf), "finite"),
        (lambda a: a.update({"weight:last.weight": a["weight:last.weight"].T}), "last.weight"),
        (lambda a: a.update({"weight:first.weight": a["weight:first.weight"][:, :-1]}), "first.weight"),
        (lambda a: a.update({"weight:last.bias": a["weight:last.bias"].astype(np.float32)}), "float32"),
        (lambda a: a.pop("weight:norm.bias"), "weights"),
        (lambda a: a.update(deviation=0.0 * a["deviation"]), "deviation"),
        (lambda a: a.update(deviation=1e-300 * a["deviation"]), "deviation"),
        (lambda a: a.update(torque_high=a["torque_low"]), "torque_low"),
        (lambda a: a.update(torque_low=np.full(3, -1e308), torque_high=np.full(3, 1e308)), "at most 1e"),
        (lambda a: a["weight:last.weight"].__setitem__(0, -1e300), "at most 1e"),
        (lambda a: _widen(a, 500), "weights: expected at most 200000"),
    ],
)  # fmt: skip
def test_a_forged_file_is_refused(model: RobotModel, path: Path, change: Callable[[dict], Any], said: str) -> None:
    _forged(path, change)
    with pytest.raises(HybridFileError, match=said) as found:
        read_hybrid(path, model.joint_names)
    assert str(path) in str(found.value)


def _widen(arrays: dict[str, Any], width: int) -> None:
    """A network that is right, but for its size: no tick has time for it."""
    rows = {"first.weight": (width, 9), "memory.weight_ih_l0": (4 * width, width), "last.weight": (3, width)}
    rows |= {"memory.weight_hh_l0": (4 * width, width), "memory.bias_ih_l0": (4 * width,), "first.bias": (width,)}
    rows |= {f"{norm}.{part}": (width,) for norm in ("norm", "norm_after") for part in ("weight", "bias")}
    rows |= {"memory.bias_hh_l0": (4 * width,)}
    arrays.update({f"weight:{name}": np.zeros(shape) for name, shape in rows.items()})


def test_what_is_pickled_is_not_executed_and_bombs_do_not_unpack(path: Path, tmp_path: Path) -> None:
    arrays, trace = dict(np.load(path)), tmp_path / "executed"

    class Harm:
        def __reduce__(self) -> tuple[Any, ...]:
            return open, (str(trace), "w")

    np.savez(path, **{**arrays, "extra": np.array([Harm()], dtype=object)})
    with pytest.raises(HybridFileError, match="not objects"):
        read_hybrid(path)
    assert not trace.exists()
    np.savez_compressed(path, **{**arrays, "weight:first.weight": np.zeros((600, 9000))})
    with pytest.raises(HybridFileError, match="unpacked"):
        read_hybrid(path)


def test_corrupted_files_are_refused(model: RobotModel, path: Path) -> None:
    """Whatever bytes change: refused, or the same model."""
    whole, states, rng = path.read_bytes(), motion(model.n, 3), np.random.default_rng(0)
    expected = stepping(model, made_up(model)).along(*states)
    refused = 0
    for _ in range(200):
        data = bytearray(whole)
        for _ in range(rng.integers(1, 4)):
            data[rng.integers(len(data))] = rng.integers(256)
        path.write_bytes(data[: rng.integers(1, len(data))] if rng.random() < 0.2 else data)
        try:
            read = read_hybrid(path, model.joint_names)
        except SafeSysIdError:
            refused += 1
        else:
            np.testing.assert_array_equal(stepping(model, read).along(*states), expected)
    assert refused > 120


def test_shuffled_weights_are_refused(model: RobotModel, path: Path) -> None:
    arrays = dict(np.load(path))
    one, other = "weight:memory.bias_ih_l0", "weight:memory.bias_hh_l0"
    np.savez(path, **{**arrays, one: arrays[other], other: arrays[one]})
    with pytest.raises(HybridFileError, match="checksum"):
        read_hybrid(path)


# --- as a residual model --------------------------------------------------------------------------------------------


def test_the_controller_takes_it_by_name(model: RobotModel, path: Path) -> None:
    keys = {"name": "residual", "bound": 1.0, "residual": "hybrid", "file": str(path)}
    arm = load_robot("three_joint", **{"controller.feed_forward": keys})
    learned, feed_forward, zero = made_up(model), make_feed_forward(arm), np.zeros(3)
    added = make_added_torque(arm, design_gains(arm, lockstep=False), lockstep=False)
    assert added is not None
    assert isinstance(added._source, FeedForwardInTick), "in real time, too: no tick is left out"
    q_d = np.array([0.1, 0.2, 0.3])
    for tick in range(WARM_UP + 2):
        torque, trust = feed_forward(zero, zero, q_d, zero, zero, 0.0)
        assert trust == (1.0 if tick >= WARM_UP else 0.0)
    expected = by_numpy(learned, np.tile([*q_d, *zero, *zero], (WARM_UP + 2, 1)))[-1]
    dynamics = dynamics_of(arm.kinematics)
    expected = expected + dynamics.inverse_dynamics(learned.theta, q_d, zero, zero, TRANSITION)
    expected -= dynamics.inverse_dynamics(arm.theta_nominal, q_d, zero, zero, arm.friction_transition_velocity)
    np.testing.assert_allclose(torque, expected, atol=1e-9)

    assert feed_forward(zero, zero, q_d, zero, zero, 0.04)[1] == 1.0, "a tick that was late"
    for stamp in (0.2, 0.1):  # ticks are missing, or the clock was set back
        assert feed_forward(zero, zero, q_d, zero, zero, stamp)[1] == 0.0, "its memory is of another time"


def test_a_file_of_another_arm_or_rate_is_refused_at_the_start(model: RobotModel, tmp_path: Path) -> None:
    path = tmp_path / "model.npz"
    write_hybrid(path, made_up(load_robot("kinova_gen3")))
    with pytest.raises(HybridFileError, match="joints of the model"):
        HybridResidual.read(model, path)
    write_hybrid(path, replace(made_up(model), rate_hz=100.0))
    with pytest.raises(HybridFileError, match="rate_hz = 100"):
        HybridResidual.read(model, path)
    write_hybrid(path, replace(made_up(model, "rbd_sign_mlp"), rate_hz=100.0))
    HybridResidual.read(model, path)  # without memory the rate does not matter


def test_it_is_trusted_where_its_data_were(model: RobotModel) -> None:
    residual, n = HybridResidual(stepping(model, made_up(model, "rbd_sign_mlp"))), model.n
    zero = np.zeros(n)
    assert residual.predict(zero, zero, zero)[1] == 1.0
    near, far = np.array([0.0, 5.0, 0.0]), np.array([0.0, 0.0, -6.1])  # data from -4 to 4, margin 2
    assert residual.predict(near, zero, zero)[1] == pytest.approx(0.5)
    assert residual.predict(zero, near, zero)[1] == pytest.approx(0.5)
    assert residual.predict(zero, zero, far)[1] == 0.0


def test_a_jump_of_the_motion_empties_the_memory(model: RobotModel) -> None:
    residual, zero = HybridResidual(stepping(model, made_up(model))), np.zeros(model.n)
    for _ in range(WARM_UP + 1):
        trust = residual.predict(zero, zero, zero)[1]
    assert trust == 1.0
    assert residual.predict(zero + 0.2, zero, zero)[1] == 0.0
    assert residual.stepping.ticks == 1


@pytest.mark.parametrize("bad", [np.nan, np.inf, 1e308])
def test_after_a_number_that_is_none_it_falls_back_in_one_tick_and_recovers(model: RobotModel, bad: float) -> None:
    residual = HybridResidual(stepping(model, made_up(model)))
    source = FeedForwardInTick(lambda q, qd, q_d, qd_d, qdd_d, t: residual.predict(q_d, qd_d, qdd_d), model.n)
    guard = AddedTorque("hybrid", source, np.full(model.n, 1.0), np.full(model.n, 100.0), 1e-3)
    zero, reference = np.zeros(model.n), np.zeros((4, model.n))

    def torque(ticks: int) -> np.ndarray:
        for _ in range(ticks):
            guard.next(0.0, zero, zero, reference, 1e-3)
        return guard.torque.copy()

    before = np.abs(torque(WARM_UP + 100))
    assert guard.why_not == ""
    assert np.all(before > 0.1)
    reference[1, 1] = bad
    assert np.all(np.abs(torque(1)) < before)
    assert guard.why_not in ("feed-forward not trusted", "feed-forward not finite")
    reference[1, 1] = 0.0
    assert np.all(np.isfinite(torque(WARM_UP + 100)))
    assert guard.why_not == ""


def test_a_tick_keeps_no_memory(model: RobotModel) -> None:
    residual, zero = HybridResidual(stepping(model, made_up(model))), np.zeros(model.n)
    for _ in range(2100):
        residual.predict(zero, zero, zero)
    tracemalloc.start()
    before = tracemalloc.get_traced_memory()[0]
    for _ in range(500):
        residual.predict(zero, zero, zero)
    grown = tracemalloc.get_traced_memory()[0] - before
    tracemalloc.stop()
    assert grown < 2048


def test_only_training_imports_torch(path: Path) -> None:
    program = f"""
import sys
class Hidden:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] == "torch":
            raise ModuleNotFoundError("No module named 'torch' (hidden by the test)", name="torch")
sys.meta_path.insert(0, Hidden())
import numpy as np
from safe_sysid.control.controller import Controller
from safe_sysid.control.feed_forward.by_name import make_feed_forward
from safe_sysid.robot import load_robot
keys = {{"name": "residual", "bound": 1.0, "residual": "hybrid", "file": {str(path)!r}}}
arm = load_robot("three_joint", **{{"controller.feed_forward": keys}})
zero = np.zeros(3)
assert np.all(np.isfinite(make_feed_forward(arm)(zero, zero, zero, zero, zero, 0.0)[0]))
assert not any(name.startswith("safe_sysid.learning.neural.training") for name in sys.modules)
import safe_sysid.apps.learn.hybrid, safe_sysid.commands.learn.hybrid
"""
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=120)
    assert result.returncode == 0, result.stderr
