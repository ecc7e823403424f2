"""Hybrid models that mean ill under the robust law: whatever weights and memory say, every claim holds."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hybrid_support import made_up
from test_feed_forward import BOUND, RATE, drive, found, model  # noqa: F401  (fixtures)

from safe_sysid.control.feed_forward import AddedTorque, FeedForwardInTick
from safe_sysid.control.gains import ControllerGains
from safe_sysid.errors import SafeSysIdError
from safe_sysid.learning.neural.file import read_hybrid, write_hybrid
from safe_sysid.learning.neural.models import Learned
from safe_sysid.learning.neural.stepping import HybridResidual, SteppingModel
from safe_sysid.planning import PlannerResult
from safe_sysid.robot.model import RobotModel

KINDS = ("shuffled", "saturated", "outward", "state", "resonant")


class Wicked:
    """A model in the guard whose weights, memory or both are chosen to harm; never waits, and is always trusted."""

    def __init__(self, arm: RobotModel, gains: ControllerGains, kind: str, seed: int) -> None:
        self.kind, self.rng, self.gains = kind, np.random.default_rng(seed), gains
        name = "rbd_sign_mlp" if seed % 3 == 2 else "rbd_sign_lstm"
        learned = self._chosen(made_up(arm, name, seed, size=5.0))
        self.stepping = SteppingModel(learned, arm.kinematics, arm.theta_nominal, 0.0)
        self.residual = HybridResidual(self.stepping)
        self.residual._need = 0

    def _chosen(self, learned: Learned) -> Learned:
        rng, weights = self.rng, {name: np.array(w) for name, w in learned.weights.items()}
        if self.kind == "shuffled":
            for w in weights.values():
                rng.shuffle(w.reshape(-1))
        elif self.kind == "saturated":
            weights = {name: np.sign(w) * 10.0 ** rng.uniform(2, 300) for name, w in weights.items()}
        elif self.kind == "resonant":  # a memory that swings by itself
            weights = {name: w * 10.0 ** rng.uniform(0, 2) for name, w in weights.items()}
        scaling = replace(
            learned.scaling, low=np.full_like(learned.scaling.low, -1e6), high=1e6 - learned.scaling.low
        )
        if self.kind == "outward":
            scaling = replace(scaling, torque_low=np.full(3, -1e6), torque_high=np.full(3, 1e6))
        return replace(learned, weights=weights, scaling=scaling)

    def __call__(self, q, qd, q_d, qd_d, qdd_d, t):  # type: ignore[no-untyped-def]
        if self.kind == "state":
            self.stepping._state[:] = self.rng.normal(
                size=self.stepping._state.size
            ) * 10.0 ** self.rng.uniform(-3, 9)
        if (
            self.kind == "outward"
        ):  # the last layer's biases follow the arm's error: the worst that weights can do
            r = qd_d - qd + self.gains.K_r * (q_d - q)
            self.stepping._flat[-4:-1] = -1e3 * np.sign(r)
        with np.errstate(all="ignore"):
            return self.residual.predict(q_d, qd_d, qdd_d)


def attached(gains: ControllerGains, wicked: Wicked) -> AddedTorque:
    source = FeedForwardInTick(wicked, 3)
    return AddedTorque("hybrid", source, np.full(3, BOUND), np.full(3, RATE), gains.assumptions.hold_max)


@pytest.mark.slow  # test_feed_forward attacks the same guard with whatever can be said
@pytest.mark.parametrize("kind", KINDS)
def test_whatever_weights_and_memory_say_every_claim_holds(
    model: RobotModel,  # noqa: F811
    gains: ControllerGains,
    found: PlannerResult,  # noqa: F811
    kind: str,
) -> None:
    """Tracking bounds, energy, torque limits and the guard's bound and rate, in every tick (`drive`)."""
    seen, _ = drive(model, gains, found, attached(gains, Wicked(model, gains, kind, 1)), seconds=1.5)
    assert seen.e > 0.0
    if kind in ("outward", "shuffled"):
        assert seen.added > 0.9  # it had its way, up to the bound


@pytest.mark.slow
@pytest.mark.timeout(3000)
def test_a_thousand_wicked_models(
    model: RobotModel,  # noqa: F811
    gains: ControllerGains,
    found: PlannerResult,  # noqa: F811
    tmp_path: Path,
) -> None:
    """A fifth of them files with flipped bits, refused or the same; the others driven under the robust law."""
    path, rng = tmp_path / "model.npz", np.random.default_rng(0)
    write_hybrid(path, made_up(model))
    whole, refused, added = path.read_bytes(), 0, []
    for seed in range(1000):
        if seed % 5 == 4:
            data = bytearray(whole)
            for _ in range(rng.integers(1, 9)):
                data[rng.integers(len(data))] ^= 1 << rng.integers(8)
            path.write_bytes(data)
            try:
                read = read_hybrid(path, model.joint_names)
            except SafeSysIdError:
                refused += 1
            else:
                for name, value in made_up(model).weights.items():
                    np.testing.assert_array_equal(read.weights[name], value)
            continue
        wicked = Wicked(model, gains, KINDS[seed // 5 % len(KINDS)], seed)
        seen, _ = drive(
            model, gains, found, attached(gains, wicked), seconds=0.25, seed=seed, own_simulator=True
        )
        added.append(seen.added)
    assert refused > 150
    assert np.mean(np.array(added) > 0.9) > 0.3
