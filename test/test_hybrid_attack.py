"""Hybrid models that mean ill: under the robust law every claim holds, under the impedance law the guard's bounds."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hybrid_support import made_up
from test_feed_forward import BOUND, RATE, driving, found, model  # noqa: F401  (fixtures)

from safe_sysid.control.feed_forward import AddedTorque, FeedForward, FeedForwardInTick
from safe_sysid.control.gains import ControllerGains
from safe_sysid.control.laws.law import ModelInUse
from safe_sysid.errors import ModelError, SafeSysIdError
from safe_sysid.learning.neural.file import read_hybrid, write_hybrid
from safe_sysid.learning.neural.models import Learned
from safe_sysid.learning.neural.stepping import HybridResidual, SteppingModel
from safe_sysid.robot.model import RobotModel
from safe_sysid.simulation.flexible import FlexibleArm, read_effects
from safe_sysid.studies.hybrid.drive import guard, impedance
from safe_sysid.studies.hybrid.make_data import load_panda

pytestmark = pytest.mark.unproved

KINDS = ("shuffled", "saturated", "outward", "state", "resonant")


class Wicked:
    """A model in the guard whose weights, memory or both are chosen to harm; never waits, and is always trusted."""

    def __init__(self, arm: RobotModel, gain: float, kind: str, seed: int) -> None:
        self.kind, self.rng, self.gain, self.n = kind, np.random.default_rng(seed), gain, arm.n
        name = "rbd_sign_mlp" if seed % 3 == 2 else "rbd_sign_lstm"
        sees, every = ("positions", 1) if seed % 4 < 2 else ("directions", 1 + seed % 10)
        learned = self._chosen(replace(made_up(arm, name, seed, size=5.0), sees=sees, every=every))
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
        scaling = replace(learned.scaling, low=np.full_like(learned.scaling.low, -1e6), high=1e6 - learned.scaling.low)
        if self.kind == "outward":
            scaling = replace(scaling, torque_low=np.full(self.n, -1e6), torque_high=np.full(self.n, 1e6))
        return replace(learned, weights=weights, scaling=scaling)

    def __call__(self, q, qd, q_d, qd_d, qdd_d, t):  # type: ignore[no-untyped-def]
        if self.kind == "state":
            self.stepping._state[:] = self.rng.normal(size=self.stepping._state.size) * 10.0 ** self.rng.uniform(-3, 9)
        if self.kind == "outward":  # the last layer's biases follow the arm's error: the worst that weights can do
            r = qd_d - qd + self.gain * (q_d - q)
            self.stepping._flat[-self.n - 1 : -1] = -1e3 * np.sign(r)
        with np.errstate(all="ignore"):
            return self.residual.predict(q_d, qd_d, qdd_d)


def attached(gains: ControllerGains, wicked: Wicked) -> AddedTorque:
    source = FeedForwardInTick(wicked, 3)
    return AddedTorque("hybrid", source, np.full(3, BOUND), np.full(3, RATE), gains.assumptions.hold_max)


@pytest.mark.slow  # test_feed_forward attacks the same guard with whatever can be said
@pytest.mark.parametrize("kind", KINDS)
def test_whatever_weights_and_memory_say_every_claim_holds(model, gains, driving, kind):  # noqa: F811
    """Tracking bounds, energy, torque limits and the guard's bound and rate, in every tick (`drive`)."""
    seen, _ = driving(attached(gains, Wicked(model, gains.K_r, kind, 1)), seconds=1.5)
    assert seen.e > 0.0
    if kind in ("outward", "shuffled"):
        assert seen.added > 0.9  # it had its way, up to the bound


@pytest.mark.slow
@pytest.mark.timeout(3000)
def test_a_thousand_wicked_models(model, gains, driving, tmp_path):  # noqa: F811
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
        wicked = Wicked(model, gains.K_r, KINDS[seed // 5 % len(KINDS)], seed)
        seen, _ = driving(attached(gains, wicked), seconds=0.25, seed=seed, own_simulator=True)
        added.append(seen.added)
    assert refused > 150
    assert np.mean(np.array(added) > 0.9) > 0.3


def driven_under_impedance(wicked: FeedForward, seconds: float, seed: int) -> tuple[np.ndarray, int]:
    """The flexible Panda at rest under medium gains; (n,) largest torque added, as a share of its bound, and ticks.

    Every number that reaches the arm is finite, and what is added stays within its bound and its rate; nothing is added
    from a tick on whose answer cannot be used but what the rate leaves of earlier ones.
    """
    panda, rng = load_panda(), np.random.default_rng(seed)
    effects = read_effects("panda_effects", panda.theta_nominal, 1.0)
    arm, law = FlexibleArm(panda, effects, panda.settings.home), impedance(panda, "medium")
    added = guard(panda, wicked)
    known = ModelInUse(panda.theta_nominal, panda.theta_nominal, np.zeros(len(panda.theta_nominal)))
    step, limit = added._rate * arm.period, panda.limits.torque
    reference, before, largest = np.zeros((3, 7)), np.zeros(7), np.zeros(7)
    reference[0] = panda.settings.home
    swing = rng.uniform(-0.2, 0.2, 7)
    ticks = round(seconds / arm.period)
    for k in range(ticks):
        reference[0] = panda.settings.home + swing * np.sin(6.0 * arm.time) ** 2
        reference[1] = swing * 6.0 * np.sin(12.0 * arm.time)
        reference[2] = swing * 72.0 * np.cos(12.0 * arm.time)
        command = law.step(arm.time, arm.q, arm.qd, reference, known).copy()
        added.next(arm.time, arm.q, arm.qd, reference, arm.period)
        now = added.torque
        assert np.all(np.abs(now) <= added.bound)
        assert np.all(np.abs(now - before) <= step * (1.0 + 1e-12) + 1e-12)
        if added.why_not:  # the rigid model is the aim from this very tick on
            assert np.all(np.abs(now) <= np.maximum(np.abs(before) - step, 0.0) * (1.0 + 1e-12) + 1e-12)
        command += now
        assert np.all(np.isfinite(command))
        largest, before = np.maximum(largest, np.abs(now) / added.bound), now.copy()
        try:
            arm.step(np.clip(command, -limit, limit))
        except ModelError:  # nobody promises what the arm does within the bounds
            return largest, k
    return largest, ticks


@pytest.mark.parametrize("kind", KINDS)
def test_under_impedance_the_guards_bounds_hold(kind: str) -> None:
    """The first of a thousand."""
    largest, ticks = driven_under_impedance(Wicked(load_panda(), 10.0, kind, 1), 0.1, 1)
    assert ticks > 50
    if kind == "outward":
        assert np.any(largest == 1.0), "the attack reaches the bound, so the bound is what holds it"


def wrong(kind: int, rng: np.random.Generator) -> FeedForward:
    """A feed-forward that is wrong in one way."""
    sign = rng.choice([-1.0, 1.0], 7)

    def said(q, qd, q_d, qd_d, qdd_d, t):  # type: ignore[no-untyped-def]
        q[:], qd_d[:] = np.nan, 1e9  # its arguments are its own: what it does to them stays there
        match kind:
            case 0:
                return 1e6 * np.sign(qd), 1.0  # pushes every motion on
            case 1:
                return sign * np.inf, 1.0
            case 2:
                return np.full(7, np.nan), 1.0
            case 3:
                return 200.0 * sign * np.sign(np.sin(2e3 * t)), 1.0  # as fast as it can
            case 4:
                return 50.0 * sign, float(rng.choice([np.nan, -1.0, 2.0, np.inf, 1.0]))
            case 5:
                return np.zeros(6), 1.0
            case 6:
                raise RuntimeError("corrupted")
            case _:
                return rng.normal(0.0, 10.0 ** rng.uniform(-2, 8), 7), rng.uniform()

    return said


@pytest.mark.parametrize("kind", range(8))
def test_nothing_that_is_said_breaks_the_guards_bounds(kind: int) -> None:
    """What is added stays finite, within its bound and its rate, whatever is said."""
    largest, ticks = driven_under_impedance(wrong(kind, np.random.default_rng(kind)), 0.12, kind)
    assert ticks > 40
    if kind in (1, 2, 5, 6):
        assert not np.any(largest), "nothing of what cannot be used"
    if kind == 0:
        assert np.any(largest == 1.0), "the attack reaches the bound, so the bound is what holds it"


@pytest.mark.slow
@pytest.mark.timeout(3000)
def test_a_thousand_wicked_models_under_impedance() -> None:
    panda, reached = load_panda(), []
    for seed in range(1000):
        wicked = Wicked(panda, 10.0, KINDS[seed % len(KINDS)], seed)
        reached.append(driven_under_impedance(wicked, 0.25, seed)[0].max())
    assert np.mean(np.array(reached) > 0.9) > 0.3
