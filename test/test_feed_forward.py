"""Torque added to a law's: whatever a feed-forward says, every claim holds; the guard, the process beside the loop."""

from __future__ import annotations

import functools
import itertools
import time
import tracemalloc
from collections.abc import Callable
from pathlib import Path

import feed_forward_makers as makers
import numpy as np
import pytest
from rigid_arm import RigidArm

from safe_sysid.control.controller import Controller, ControllerState
from safe_sysid.control.feed_forward import LATE, AddedTorque, FeedForward, FeedForwardInTick
from safe_sysid.control.feed_forward.by_name import make_added_torque, make_feed_forward
from safe_sysid.control.feed_forward.process import FeedForwardProcess
from safe_sysid.control.gains import ControllerGains
from safe_sysid.control.gains.design import design_gains
from safe_sysid.control.laws.law import Proves
from safe_sysid.control.laws.robust import RobustLaw
from safe_sysid.episode import Episode
from safe_sysid.errors import ConfigError, ParameterError
from safe_sysid.extensions import FEED_FORWARDS
from safe_sysid.planning import Planner, PlannerResult
from safe_sysid.planning.plan_files.plan_statement import gains_statement
from safe_sysid.robot import load_robot, load_scene
from safe_sysid.robot.model import RobotModel
from safe_sysid.simulation.assembly import build_plant
from safe_sysid.simulation.payloads import payload_from_spec

BOUND, RATE, N = 1.0, 4000.0, 3
Answer = tuple[object, object]


def arm_with(**settings: object) -> RobotModel:
    return load_robot("three_joint", **{f"controller.feed_forward.{key}": x for key, x in settings.items()})


@pytest.fixture(scope="module")
def model() -> RobotModel:
    return arm_with(bound=BOUND)


@pytest.fixture(scope="module")
def found(model: RobotModel, gains: ControllerGains) -> PlannerResult:
    home = np.array(model.settings.home)
    planner = Planner(model, load_scene("open"), gains, seed=1)
    at_rest = np.stack([home, 0 * home, 0 * home])
    answer = planner.plan_next(at_rest, start_time=0.5, box=model.arm_prior, sequence=0)
    assert answer.plan is not None, answer.reasons
    return answer


def added(gains: ControllerGains, feed_forward: FeedForward, bound: float = BOUND, rate: float = RATE) -> AddedTorque:
    return guard_of(feed_forward, bound, rate, gains.assumptions.hold_max)


def guard_of(
    feed_forward: FeedForward, bound: float = 1.0, rate: float = 100.0, longest: float = 2e-3, **more: object
) -> AddedTorque:
    source = FeedForwardInTick(feed_forward, N)
    return AddedTorque("said", source, np.full(N, bound), np.full(N, rate), longest, **more)


# --- what a feed-forward may say ------------------------------------------------------------------------------------


class Attacks:
    """Feed-forwards that mean ill, by name; r as the law measures it."""

    def __init__(self, gains: ControllerGains, seed: int = 0) -> None:
        self.K_r, self.rng = gains.K_r, np.random.default_rng(seed)
        self.ticks = 0

    def r(self, *state: object) -> np.ndarray:
        q, qd, q_d, qd_d, *_ = state
        return qd_d - qd + self.K_r * (q_d - q)

    def outward(self, *state: object) -> Answer:
        return -1e6 * np.sign(self.r(*state)), 1.0

    def inward(self, *state: object) -> Answer:
        return 1e6 * np.sign(self.r(*state)), 1.0

    def with_the_motion(self, *state: object) -> Answer:
        return 1e3 * np.sign(state[1]), 1.0

    def switching(self, *state: object) -> Answer:
        self.ticks += 1
        return np.full(N, (-1.0) ** self.ticks * 1e3), 1.0

    def random(self, *state: object) -> Answer:
        return self.rng.choice([-1e3, 1e3], N), self.rng.uniform()

    def now_and_then_nan(self, *state: object) -> Answer:
        self.ticks += 1
        return -1e6 * np.sign(self.r(*state)) * (np.nan if self.ticks % 7 == 0 else 1.0), 1.0

    def trust_beyond_one(self, *state: object) -> Answer:
        return -np.sign(self.r(*state)), 1e9

    def trust_is_nan(self, *state: object) -> Answer:
        return -np.sign(self.r(*state)), np.nan

    def raises(self, *state: object) -> Answer:
        self.ticks += 1
        if self.ticks > 700:
            raise RuntimeError("no idea")
        return self.outward(*state)

    def writes_on_its_inputs(self, *state: object) -> Answer:
        answer = self.outward(*state)
        for given in state[:5]:
            given[:] = np.nan  # type: ignore[index]
        return answer


#: What is said whatever the arm does.
SAID: dict[str, object] = {
    "stuck": (np.array([1.0, -1.0, 1.0]) * 1e300, 1.0),
    "not_a_number": (np.full(N, np.nan), 1.0),
    "infinite_in_one": (np.array([0.0, np.inf, 0.0]), 1.0),
    "trust_is_no_number": (np.zeros(N), "yes"),
    "too_many_joints": (np.zeros(N + 1), 1.0),
    "one_number": (1.0, 1.0),
    "says_nothing": None,
    "texts": (["a", "b", "c"], 1.0),
}
ATTACKS = [name for name, entry in vars(Attacks).items() if callable(entry) and name not in ("__init__", "r")]


def attack_of(gains: ControllerGains, name: str) -> FeedForward:
    return (lambda *_: SAID[name]) if name in SAID else getattr(Attacks(gains), name)  # type: ignore[return-value]


def outward_attack(model: RobotModel) -> FeedForward:
    return Attacks(design_gains(model, lockstep=True)).outward


class Late:
    """A source whose answers come when they like, and stay away for good."""

    def __init__(self, source: FeedForwardInTick) -> None:
        self._source, self._rng, self._asked = source, np.random.default_rng(0), 0
        self.torque, self.trust = source.torque, 1.0

    def ask(self, t: float, q: np.ndarray, qd: np.ndarray, reference: np.ndarray) -> str:
        self._asked += 1
        if self._asked > 700 or self._rng.random() < 0.5:
            return "feed-forward late"
        return self._source.ask(t, q, qd, reference)

    def reset(self) -> None: ...

    def close(self) -> None: ...


# --- closed loop: claims hold ---------------------------------------------------------------------------------------


class Seen:
    """What one run under attack showed, each as a share of what is claimed."""

    def __init__(self) -> None:
        self.energy = self.r = self.e = self.de = self.added = 0.0
        self.why: set[str] = set()


def drive(
    model: RobotModel,
    gains: ControllerGains,
    found: PlannerResult,
    attached: AddedTorque | None,
    *,
    seconds: float = 3.6,
    seed: int = 0,
    own_simulator: bool = False,
) -> tuple[Seen, np.ndarray]:
    """The plan is driven under attack; what is claimed is checked in every tick. Returns the commands, too."""
    payload, home = payload_from_spec("4lb"), np.array(model.settings.home)
    plant = build_plant(
        model, payload, load_scene("open"), seed, noise="none", draw="corner", actuator="adversarial", q0=home
    )
    free = RigidArm(model, plant.theta_true, home, substeps=1)
    a, own = gains.assumptions, RobustLaw(model.kinematics, gains, model.friction_transition_velocity)
    controller = Controller(model, gains, added=attached)
    m = plant.measurement
    assert controller.start(m.stamp, m.q, m.qd, m.effort) == []
    if not own_simulator:
        m = plant.step(None)
    assert controller.offer_plan(found.plan, m.stamp) is None
    stamp, q, qd = m.stamp, m.q.copy(), m.qd.copy()
    if own_simulator:
        stamp += 1e-3
    seen, commands, before = Seen(), [], None
    for _ in range(round(seconds * 1e3)):
        ramp = controller.taking_over
        out = controller.step(stamp, q, qd)
        assert out.torque is not None, controller.reason
        assert controller.proved, controller.bound_status.why_not
        command = out.torque.copy()
        commands.append(command)
        law = own.step(stamp, q, qd, out.reference, controller._blend.model)
        if not ramp:
            assert np.all(np.abs(command - law) <= BOUND * (1.0 + 1e-12) + 1e-9)
            seen.added = max(seen.added, float(np.max(np.abs(command - law))) / BOUND)
            if before is not None:  # no jump but the law's own
                step = np.abs((command - law) - before)
                assert np.all(step <= RATE * 1e-3 * (1.0 + 1e-6) + 1e-9)
            before = command - law
        assert np.all(np.abs(command) * (1 + a.actuator_rel) + a.actuator_abs <= model.limits.torque)
        e, de = out.reference[0] - q, out.reference[1] - qd
        r = de + gains.K_r * e
        energy = 0.5 * r @ free.inertia(q) @ r
        seen.energy = max(seen.energy, energy / gains.V_max)
        for name, share in (("r", r / gains.r_bound), ("e", e / gains.e_bound), ("de", de / gains.de_bound)):
            setattr(seen, name, max(getattr(seen, name), float(np.max(np.abs(share)))))
        assert max(seen.energy, seen.r, seen.e, seen.de) <= 1.0
        if attached is not None and attached.why_not:
            seen.why.add(attached.why_not)
        if own_simulator:
            push = -np.sign(r) * (a.actuator_abs + a.actuator_rel * np.abs(command))
            free.step(command + push, 1e-3)
            stamp, q, qd = stamp + 1e-3, free.q.copy(), free.qd.copy()
        else:
            m = plant.step(command)
            stamp, q, qd = m.stamp, m.q.copy(), m.qd.copy()
    assert controller.state is not ControllerState.FAULT
    return seen, np.array(commands)


Driving = Callable[..., tuple[Seen, np.ndarray]]


@pytest.fixture(scope="module")
def driving(model: RobotModel, gains: ControllerGains, found: PlannerResult) -> Driving:
    return functools.partial(drive, model, gains, found)


@pytest.mark.parametrize("name", [*ATTACKS, *SAID])
def test_whatever_a_feed_forward_says_every_claim_holds(gains: ControllerGains, driving: Driving, name: str) -> None:
    attack = attack_of(gains, name)
    useless = name in ("not_a_number", "infinite_in_one", "too_many_joints", "says_nothing", "texts", "one_number")
    whole = name == "outward"  # the others through the plan's first second, or its beginning
    seen, _ = driving(added(gains, attack), seconds=3.6 if whole else 0.8 if useless else 1.5)
    assert seen.e > 0.0
    if name in ("outward", "inward", "with_the_motion", "stuck", "switching"):
        assert seen.added > 0.9  # it had its way, up to the bound
        assert seen.why == set()
    if useless:
        assert seen.added < 1e-6
        assert len(seen.why) == 1


@pytest.mark.parametrize(
    ("name", "seed"),
    [
        ("outward", 1),
        ("switching", 1),
        pytest.param("stuck", 2, marks=pytest.mark.slow),
        pytest.param("raises", 2, marks=pytest.mark.slow),
    ],
)
def test_claims_hold_in_a_simulation_that_shares_nothing_with_the_plant(
    gains: ControllerGains, driving: Driving, name: str, seed: int
) -> None:
    attack = attack_of(gains, name)
    seconds = 3.6 if name == "outward" else 1.5
    seen, _ = driving(added(gains, attack), seconds=seconds, seed=seed, own_simulator=True)
    assert seen.added > 0.9


def test_claims_hold_where_answers_are_late(gains: ControllerGains, driving: Driving) -> None:
    late = Late(FeedForwardInTick(Attacks(gains).outward, N))
    guard = AddedTorque("late", late, np.full(N, BOUND), np.full(N, RATE), gains.assumptions.hold_max)
    seen, _ = driving(guard, seconds=1.5)
    assert seen.added > 0.5
    assert seen.why == {"feed-forward late"}
    assert not np.any(guard.torque)  # it stayed away for good


def test_the_attack_has_teeth(model: RobotModel, gains: ControllerGains, driving: Driving) -> None:
    """Outward torque beyond what the theorem leaves room for is not survived: the checks of `drive` find it."""
    wild = added(gains, Attacks(gains).outward, bound=60.0 * BOUND, rate=9e3)
    wild_claim = Controller(model, gains, added=wild).bound_status
    assert not wild_claim.possible
    assert "a feed-forward may add 60 N m at turn: expected at most 1" in wild_claim.why_not
    wild.bound = np.full(N, BOUND)  # what it is said to be, and is not
    wild._rate = np.full(N, 9e3)
    wild._source.ask = lambda *_: ""  # type: ignore[method-assign]
    lying = type("Lying", (AddedTorque,), {"next": lambda self, t, q, qd, ref, dt: self.torque.__setitem__(
        slice(None), -60.0 * np.sign(ref[1] - qd + gains.K_r * (ref[0] - q)))})  # fmt: skip
    wild.__class__ = lying
    with pytest.raises(AssertionError):
        driving(wild)


def test_a_feed_forward_of_zero_changes_no_bit(gains: ControllerGains, driving: Driving) -> None:
    _, without = driving(None, seconds=1.0)
    _, with_zero = driving(added(gains, lambda q, *_: (0.0 * q, 1.0)), seconds=1.0)
    np.testing.assert_array_equal(without, with_zero)


def test_without_a_bound_gains_and_statements_say_nothing_of_it() -> None:
    plain = load_robot("three_joint")
    gains = design_gains(plain, lockstep=True)
    assert not np.any(gains.assumptions.feed_forward)
    assert "feed_forward" not in gains_statement(gains, plain)["assumptions"]
    room = arm_with(bound=[0.5, 0.0, 0.0])
    stated = gains_statement(design_gains(room, lockstep=True), room)["assumptions"]
    assert stated["feed_forward"] == [0.5, 0.0, 0.0]


def test_more_room_costs_more() -> None:
    designed = [design_gains(arm_with(bound=bound), lockstep=True) for bound in (0.0, 0.5, 2.0)]
    for less, more in itertools.pairwise(designed):
        assert less.e_bound[0] < more.e_bound[0]
        assert less.late_rates[0] < more.late_rates[0]


@pytest.mark.parametrize("source", ["command", pytest.param("motor", marks=pytest.mark.slow)])
def test_bounds_hold_the_truth_while_torque_is_added(monkeypatch: pytest.MonkeyPatch, source: str) -> None:
    """Identification works with the whole torque: rows know of no law."""
    monkeypatch.setitem(FEED_FORWARDS, "residual", "test_feed_forward:outward_attack")
    attacked = {"name": "residual", "bound": BOUND, "rate": RATE}
    arm = load_robot("three_joint", **{"controller.feed_forward": attacked, "measurement.torque_source": source})
    scene = load_scene("open")
    plant = build_plant(arm, payload_from_spec("4lb"), scene, 3, draw="corner")
    result = Episode(arm, plant, scene, plans=1, seed=3).run()
    assert result.refusals == []
    assert result.updates
    for _, update in result.updates:
        assert update.box.contains(plant.theta_true)
    last, prior = result.updates[-1][1].box, arm.arm_prior
    assert last.payload_upper[0] - last.payload_lower[0] < 0.7 * (prior.payload_upper[0] - prior.payload_lower[0])


# --- the guard alone ------------------------------------------------------------------------------------------------


def test_what_is_added_approaches_trust_times_torque_at_the_rate_and_stays_in_the_bound() -> None:
    said = [np.array([0.4, -5.0, 0.0]), 1.0]
    guard = guard_of(lambda *_: (said[0], said[1]))
    q, reference, step = np.zeros(N), np.zeros((4, N)), 0.1

    def tick(elapsed: float = 1e-3) -> np.ndarray:
        before = guard.torque.copy()
        guard.next(0.0, q, q, reference, elapsed)
        assert np.all(np.abs(guard.torque - before) <= 100.0 * min(elapsed, 2e-3) * (1 + 1e-12))
        assert np.all(np.abs(guard.torque) <= 1.0)
        return guard.torque

    for k in range(1, 30):
        np.testing.assert_allclose(tick(), [min(0.4, k * step), max(-1.0, -k * step), 0.0], atol=1e-12)
    said[1] = 0.5
    for _ in range(30):
        tick()
    np.testing.assert_allclose(guard.torque, [0.2, -1.0, 0.0], atol=1e-12)
    np.testing.assert_allclose(tick(elapsed=50.0), guard.torque)
    for bad in (0.0, -0.1, np.nan, 1.0 + 1e-12):
        said[1] = 1.0
        for _ in range(30):
            tick()
        said[1] = bad
        np.testing.assert_allclose(tick(), [0.3, -0.9, 0.0], atol=1e-12)
        assert guard.why_not == "feed-forward not trusted"
        for _ in range(30):
            tick()
        assert not np.any(guard.torque)
    assert guard.ticks == {"followed": 180, "feed-forward not trusted": 124}


@pytest.mark.parametrize("bad", [(np.full(N, np.nan), 1.0), (np.ones(N), 0.0), (np.ones(N + 1), 1.0)])
def test_what_is_wrong_is_withdrawn_within_a_tick_and_what_is_late_fades(bad: tuple[np.ndarray, float]) -> None:
    said = [(np.ones(N), 1.0)]
    guard = guard_of(lambda *_: said[0], back=np.full(N, 1000.0))
    at_rest = (0.0, np.zeros(N), np.zeros(N), np.zeros((4, N)), 1e-3)
    for _ in range(10):
        guard.next(*at_rest)
    np.testing.assert_allclose(guard.torque, 1.0, rtol=1e-12)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(guard._source, "ask", lambda *_: LATE)
        guard.next(*at_rest)
    np.testing.assert_allclose(guard.torque, 0.9, rtol=1e-12)
    said[0] = bad
    guard.next(*at_rest)
    assert not np.any(guard.torque), guard.why_not
    said[0] = np.ones(N), 1.0
    guard.begin()
    guard.next(*at_rest)
    np.testing.assert_allclose(guard.torque, 0.1, rtol=1e-12)


def test_a_tick_keeps_no_memory() -> None:
    answer = np.ones(N)
    guard = guard_of(lambda *_: (answer, 1.0))
    q, reference = np.zeros(N), np.zeros((4, N))
    for _ in range(2100):
        guard.next(0.0, q, q, reference, 1e-3)
    tracemalloc.start()
    before = tracemalloc.get_traced_memory()[0]
    for _ in range(500):
        guard.next(0.0, q, q, reference, 1e-3)
    grown = tracemalloc.get_traced_memory()[0] - before
    tracemalloc.stop()
    assert grown < 2048


def test_what_failed_is_asked_again_only_after_a_start() -> None:
    calls = []

    def failing(*state: object) -> Answer:
        calls.append(state[-1])
        raise ValueError("lost its file")

    guard = guard_of(failing)
    for k in range(5):
        guard.next(k, np.zeros(N), np.zeros(N), np.zeros((3, N)), 1e-3)
    assert guard.why_not == "feed-forward failed: ValueError: lost its file"
    assert calls == [0.0]
    guard.begin()
    guard.next(9.0, np.zeros(N), np.zeros(N), np.zeros((3, N)), 1e-3)
    assert calls == [0.0, 9.0]


def test_the_feed_forward_gets_no_more_than_the_torque_limit_leaves(model: RobotModel, gains: ControllerGains) -> None:
    """It clips what is added, and is no saturation of the law, after which the controller would brake."""
    controller = Controller(model, gains, added=added(gains, lambda q, *_: (np.full(N, 1e3), 1.0)))
    home, zero = np.array(model.settings.home), np.zeros(N)
    assert controller.start(0.0, home, zero) == []
    limit, law = model.limits.torque, controller.law.step
    controller.law.step = lambda *args: np.copyto(law(*args), limit - 0.25) or controller.law.torque
    for k in range(1, 20):
        out = controller.step(1e-3 * k, home, zero)
        assert out.torque is not None
        assert np.all(out.torque <= limit)
    np.testing.assert_array_equal(out.torque, limit)
    assert controller.counts["saturation"] == 0
    assert controller.state is ControllerState.HOLDING


# --- beside the loop ------------------------------------------------------------------------------------------------


class Asked:
    """A process, asked until something is so."""

    def __init__(self, maker: Callable[[RobotModel], FeedForward], model: RobotModel, late_s: float) -> None:
        self.source = FeedForwardProcess(maker, model, late_s)
        self.q, self.zero = np.array([0.1, 0.2, 0.3]), np.zeros(N)

    def __call__(self, t: float = 0.0) -> str:
        return self.source.ask(t, self.q, self.zero, np.zeros((4, N)))

    def until(self, wanted: Callable[[str], bool], t: float = 0.0) -> str:
        deadline = time.monotonic() + 120.0
        while time.monotonic() < deadline:
            if wanted(why := self(t)):
                return why
            time.sleep(1e-3)
        raise AssertionError(f"still {why!r}")


@pytest.fixture
def beside(model: RobotModel):  # type: ignore[no-untyped-def]
    opened: list[Asked] = []

    def make(maker: Callable[[RobotModel], FeedForward], late_s: float = 5.0) -> Asked:
        opened.append(Asked(maker, model, late_s))
        return opened[-1]

    yield make
    for asked in opened:
        asked.source.close()
        assert asked.source.process.returncode is not None


@pytest.mark.parametrize(
    ("maker", "torque", "trust", "said"),
    [
        (makers.steady, lambda q: 0.5 + q, 0.75, "RuntimeError: no idea"),
        (makers.dies_later, lambda q: 0.0 * q, 1.0, "its process has ended"),
    ],
)
def test_answers_come_from_beside_the_loop_until_one_raises_or_the_process_dies(beside, maker, torque, trust, said):
    asked = beside(maker)
    assert asked() == "feed-forward late"  # not ready yet, and nobody waits
    asked.until(lambda why: not why)
    np.testing.assert_array_equal(asked.source.torque, torque(asked.q))
    assert asked.source.trust == trust
    # From 0.5 s on it fails: that is said, and nothing else happens.
    assert asked.until(lambda why: "failed" in why, t=1.0).startswith(f"feed-forward failed: {said}")
    asked.source.reset()
    assert asked().startswith(f"feed-forward failed: {said}")


def test_no_tick_waits_for_a_slow_answer(beside) -> None:  # type: ignore[no-untyped-def]
    asked = beside(makers.slow, late_s=0.1)
    begun = time.monotonic()
    assert {asked() for _ in range(500)} == {"feed-forward late"}
    assert time.monotonic() - begun < 60.0  # 150 s if each had waited
    time.sleep(1.0)
    assert asked() == "feed-forward late"  # the answer has come, and is too old


def test_what_cannot_be_made_there_is_said(beside) -> None:  # type: ignore[no-untyped-def]
    why = beside(makers.cannot_be_made).until(lambda why: "failed" in why)
    assert why == "feed-forward failed: ValueError: no such file"


# --- claims, configuration ------------------------------------------------------------------------------------------


def test_the_claim_names_the_feed_forward(model: RobotModel, gains: ControllerGains) -> None:
    controller = Controller(model, gains, added=added(gains, makers.steady(model)))
    home = np.array(model.settings.home)
    assert controller.start(0.0, home, np.zeros(N)) == []
    controller.step(1e-3, home, np.zeros(N))
    assert controller.bound_status.text == "proved, with a feed-forward of up to 1 N m"


def test_a_law_that_says_it_proves_tracking_must_say_its_s(model: RobotModel, gains: ControllerGains) -> None:
    class Boaster:
        name, proves, residual_bound = "boaster", Proves.TRACKING, np.zeros(N)

        def reset(self, *_: object) -> None: ...

        def step(self, *_: object) -> np.ndarray:
            return np.zeros(N)

    with pytest.raises(ParameterError, match="law boaster proves tracking: expected its S as `uncertainty`"):
        Controller(model, gains, law=Boaster())


@pytest.mark.parametrize(
    ("override", "found"),
    [
        ({"bound": 0.0}, r"feed_forward\.bound = 0\.0: expected a positive bound .* residual"),
        ({"rate": 1e5}, r"feed_forward\.rate = 100000 N m/s for turn: expected less than .*torque_rate = 10000"),
        ({}, r"feed_forward\.residual = None: expected one of ripple"),
        ({"residual": "ripple"}, r"feed_forward\.file = None: expected the file of the residual model ripple"),
    ],
)
def test_what_cannot_be_added_is_refused(override: dict[str, object], found: str) -> None:
    arm = arm_with(**{"name": "residual", "bound": 1.0, **override})
    with pytest.raises(ParameterError, match=found):
        make_added_torque(arm, design_gains(arm, lockstep=True), lockstep=True)


@pytest.mark.parametrize(
    "bad",
    [{"bound": -1.0}, {"bound": [1.0, 2.0]}, {"rate": 0.0}, {"late_s": 2.0}, {"name": "nonsense"}, {"residual": "no"}],
)
def test_values_out_of_range_are_refused_by_name(bad: dict[str, object]) -> None:
    (key,) = bad
    with pytest.raises(ConfigError, match=rf"controller\.feed_forward\.{key}"):
        arm_with(**bad)


def ripple_file(tmp_path: Path, text: str) -> RobotModel:
    path = tmp_path / "ripple.yaml"
    path.write_text(text)
    return arm_with(name="residual", bound=1.0, residual="ripple", file=str(path))


def test_ripple_is_what_its_file_says(tmp_path: Path) -> None:
    arm = ripple_file(
        tmp_path,
        "joints: {shoulder: [{period: 0.1, cos: 0.3}, {period: 0.05, sin: -0.2}], elbow: [{period: 1.0, sin: 0.1}]}",
    )
    feed_forward, rng = make_feed_forward(arm), np.random.default_rng(0)
    for _ in range(20):
        q, q_d, zero = rng.normal(size=N), rng.normal(size=N), np.zeros(N)
        torque, trust = feed_forward(q, zero, q_d, zero, zero, 0.0)
        turn = 2.0 * np.pi * q_d
        shoulder = 0.3 * np.cos(turn[1] / 0.1) - 0.2 * np.sin(turn[1] / 0.05)
        np.testing.assert_allclose(torque, [0.0, shoulder, 0.1 * np.sin(turn[2])], atol=1e-12)
        assert trust == 1.0
    for text, said in (
        ("joints: {wrist: []}", "joints = .wrist.: expected one of turn, shoulder, elbow"),
        ("joints: {elbow: [{period: 0.0}]}", r"joints\.elbow.*period"),
        ("joints: {elbow: [{period: 1.0, cos: .nan}]}", r"joints\.elbow.*cos"),
    ):
        with pytest.raises(ConfigError, match=said):
            make_feed_forward(ripple_file(tmp_path, text))
