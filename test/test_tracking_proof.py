"""Every step of the tracking theorem's proof (docs/understand/guarantees.md), each against what it bounds.

With a constant K_d, as the proof is written; test_own_inertia.py has what ships: damping by the arm's own inertia.
"""

import functools
import itertools
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from arm_factory import random_arm
from hypothesis import given, settings
from hypothesis import strategies as st

from safe_sysid.control.gains import ControllerGains
from safe_sysid.control.gains.design import design_gains
from safe_sysid.control.gains.power_loss import ClosedLoop, RegressorChange, _mean_distance
from safe_sysid.control.laws.robust import robust_torque
from safe_sysid.dynamics import dynamics_of
from safe_sysid.dynamics.magnitudes import inertia_floor
from safe_sysid.robot.loading import load_robot
from safe_sysid.robot.model import RobotModel
from safe_sysid.robot.parameters import ParameterBox
from safe_sysid.simulation.arms import draw_truth
from safe_sysid.simulation.payloads import payload_from_spec

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "benchmarks"))

import starts
import tracking

SEEDS = st.integers(0, 2**32 - 1)


@pytest.fixture(scope="module")
def model() -> RobotModel:
    return load_robot("kinova_gen3", **starts.CONSTANT["kinova_gen3"])


@pytest.fixture(scope="module")
def gains(model: RobotModel) -> ControllerGains:
    return design_gains(model)


@pytest.fixture(scope="module")
def loop(model: RobotModel, gains: ControllerGains) -> ClosedLoop:
    g = gains
    return ClosedLoop(
        model.kinematics, g.box, g.assumptions, g.inertia_lower, g.K_r, g.K_d, g.kappa,
        model.friction_transition_velocity,
    )  # fmt: skip


@functools.cache
def draw(model: RobotModel, seed: int) -> np.ndarray:
    return draw_truth(model, payload_from_spec("8lb"), np.random.default_rng(seed), mode="corner")


@settings(deadline=None, max_examples=200)
@given(SEEDS)
def test_robust_term_of_the_law(seed: int) -> None:
    """Steps 3 and 4 for what the law computes: U <= Z <= 2 S and r^T u <= c h (S Z - Z^2), any regressor and box."""
    rng = np.random.default_rng(seed)
    n, size = int(rng.integers(1, 8)), int(rng.integers(1, 40))
    w = rng.normal(size=(n, size)) * 10.0 ** rng.uniform(-2, 1, (n, 1)) * (rng.random((n, size)) < 0.6)
    rad = rng.random(size) * (rng.random(size) < 0.8) * 10.0 ** rng.uniform(-2, 1, size)
    lam, damping, r = (rng.uniform(0.1, 9, n), rng.uniform(0, 9, n), rng.normal(size=n) * 10.0 ** rng.uniform(-4, 0))
    mid, gain, torque = rng.normal(size=size), float(10.0 ** rng.uniform(-4, -1)), np.empty(n)
    S = robust_torque(w, mid, rad, r, damping, lam, gain, torque)
    rows = np.abs(w) @ rad
    assert pytest.approx(np.sqrt(np.sum(rows**2 / lam)), rel=1e-12) == S
    weight = np.abs(w).T @ (rows / lam)
    assert weight @ rad == pytest.approx(S * S, rel=1e-9, abs=1e-300)
    with np.errstate(all="ignore"):
        s = rad * np.clip(np.where(weight * rad > 0, (r @ w) / (gain * weight), 0.0), -1, 1)
    np.testing.assert_allclose(torque, w @ (mid + s) + damping * r, atol=1e-9 * (1 + np.abs(torque).max()))
    theta = mid + rad * np.where(rng.random(size) < 0.5, rng.choice([-1.0, 1.0], size), rng.uniform(-1, 1, size))
    rho = theta - mid - s
    u = w @ rho
    U = np.sqrt(np.sum(u * u / lam))
    with np.errstate(all="ignore"):
        Z = np.sqrt(np.sum(np.where(rad > 0, weight * rho * rho / rad, 0.0)))
    slack = 1e-9 * (1.0 + S + abs(r @ u))
    assert Z + slack >= U
    assert 2.0 * S + slack >= Z
    assert r @ u <= gain * (S * Z - Z * Z) + slack


def test_damping_and_turning_in_units_of_the_inertia(
    model: RobotModel, gains: ControllerGains, loop: ClosedLoop
) -> None:
    """Step 5: H^-1 K_d is c_d but for e_d, and H changes along a motion by less than g."""
    rng, root, nu = np.random.default_rng(0), loop.root, float(np.sqrt(2 * gains.V_max))
    inertia, closest = dynamics_of(model.kinematics).mass_matrix, 0.0
    for seed in range(30):
        q, theta = rng.uniform(-2.5, 2.5, model.n), draw(model, seed % 4)
        h = inertia(theta, q)
        low, high = np.linalg.eigvalsh(h / root[:, None] / root)[[0, -1]]
        assert low >= 1.0
        if np.linalg.eigvalsh(h - np.diag(gains.assumptions.inertia_upper))[-1] > 0.0:
            continue
        closest = max(closest, high / loop.mu)
        scaled = root[:, None] * np.linalg.solve(h, np.diag(gains.K_d)) / root
        assert np.linalg.norm(scaled - loop.c_d * np.eye(model.n), 2) <= loop.e_d
        qd = rng.choice([-1.0, 1.0], model.n) * gains.assumptions.velocity
        age = gains.assumptions.hold_max
        turn = np.linalg.norm((inertia(theta, q + age * qd) - h) / root[:, None] / root, 2)
        assert turn <= 2.0 * loop.motion_bounds(nu).qd_a.gain * age
    assert closest > 0.5


@pytest.mark.parametrize("seed", range(6))
def test_change_since_the_measurement(model: RobotModel, gains: ControllerGains, loop: ClosedLoop, seed: int) -> None:
    """Step 6: Delta' along motions that are as fast as allowed, measurement errors included."""
    rng, n, a = np.random.default_rng(seed), model.n, gains.assumptions
    errors = 1e-3 * rng.random(n), 1e-2 * rng.random(n)
    noisy = ClosedLoop(
        model.kinematics, gains.box,
        tracking.replace(a, position_error=errors[0], velocity_error=errors[1]),
        gains.inertia_lower, rng.uniform(1.5, 4.0, n) if seed % 2 else gains.K_r, gains.K_d, gains.kappa,
        model.friction_transition_velocity, 10.0 if seed > 3 else 0.0,
    )  # fmt: skip
    nu, age_max, lead, speed = float(np.sqrt(2 * gains.V_max)), 3e-3, float(rng.uniform(0, 2e-3)), 20.0
    bound = noisy.change(nu, speed, age_max, lead)
    theta, kr, root, reached = draw(model, seed), noisy.K_r, noisy.root, 0.0
    dynamics = dynamics_of(model.kinematics)
    regressor = functools.partial(dynamics.slotine_li_regressor, transition=model.friction_transition_velocity)

    def unit() -> np.ndarray:
        x = rng.normal(size=n) if rng.random() < 0.5 else rng.choice([-1.0, 1.0], n)
        return x / np.linalg.norm(x) / root

    for _ in range(150):
        age = float(rng.uniform(0.0, age_max))
        signs = rng.choice([-1.0, 1.0], (4, n))
        r0, dr = 0.5 * nu * unit(), min(speed, 0.5 * nu / age_max) * unit()
        ke = 0.5 * nu * unit()  # K_r e
        q0, qd0 = rng.uniform(-2.5, 2.5, n), signs[0] * a.velocity * rng.uniform(0.5, 0.98)
        qdd_d0, jerk = signs[1] * a.acceleration * rng.uniform(0.5, 0.98), signs[2] * a.jerk
        e0 = ke / kr
        de0 = r0 - ke
        # The motion with r(t) = r0 + t dr and the given desired motion, to far below what is bounded.
        e = e0
        for i in range(20):
            e = e + age / 20 * (r0 + (i + 0.5) / 20 * age * dr - kr * e)
        r1 = r0 + age * dr
        de1 = r1 - kr * e
        qd_d0 = qd0 + de0
        qd_d1 = qd_d0 + age * qdd_d0 + 0.5 * age**2 * jerk
        q_d1 = q0 + e0 + age * qd_d0 + 0.5 * age**2 * qdd_d0 + age**3 / 6 * jerk
        q1, qd1 = q_d1 - e, qd_d1 - de1
        if np.any(np.abs(qd1) > a.velocity):
            continue
        noise = signs[3] * errors[0], rng.choice([-1.0, 1.0], n) * errors[1]
        q_m, qd_m = q0 + noise[0], qd0 + noise[1]
        e_m, de_m = e0 - noise[0], de0 - noise[1]
        r_m = de_m + kr * e_m
        before = regressor(q_m + lead * qd_m, qd_m, qd_d0 + kr * e_m, qdd_d0 + kr * de_m)
        after = regressor(q1, qd1, qd_d1 + kr * e, qdd_d0 + age * jerk + kr * de1)
        delta = r1 - r_m
        middle = noisy.k * dynamics.mass_matrix(theta, q1) @ delta
        found = np.linalg.norm(((after - before) @ theta - middle) / root)
        size = np.linalg.norm((np.abs(delta) + kr * errors[0] + errors[1]) * root)
        allowed = bound.moved * abs(age - lead) + bound.aged * age + bound.fixed + bound.by_r * size
        reached = max(reached, found / allowed)
        assert found <= allowed
    assert reached > 0.03


@given(st.floats(0, 1), st.floats(0, 1), st.floats(0, 1), st.floats(0, 1), st.floats(0, 5), st.floats(0, 5))
def test_four_corners_are_the_worst_holds(
    delay: float, first: float, last: float, lead: float, moved: float, aged: float
) -> None:
    """Step 8: the mean of moved |a - lead| + aged a over any admissible hold."""
    x = delay * first
    z = x + (1.0 - x) * last

    def mean(x: float, z: float) -> float:
        return moved * _mean_distance(x, z, lead) + aged * 0.5 * (x + z)

    worst = max(mean(*c) for c in ((0.0, 0.0), (0.0, 1.0), (delay, delay), (delay, 1.0)))
    assert mean(x, z) <= worst + 1e-9
    ages = np.linspace(x, z, 2001)
    assert _mean_distance(x, z, lead) == pytest.approx(np.trapezoid(np.abs(ages - lead), dx=1 / 2000), abs=1e-6)


class OneJoint(ClosedLoop):
    """A joint without gravity and friction: steps 7 to 9 alone, in which nothing is bounded crudely."""

    def motion_bounds(self, nu: float):  # type: ignore[no-untyped-def]
        return SimpleNamespace(rate=np.zeros(1), qd_a=SimpleNamespace(gain=0.0))

    def crude(self, nu: float, age: float, lead: float):  # type: ignore[no-untyped-def]
        S, by_r = self.assume.uncertainty, self.mu * self.k
        R1 = (self.mu_d * (nu + self.eta) + by_r * (self.eta + 2 * age * S)) / (1 - age * by_r)
        return R1, by_r * (self.eta + age * (2 * S + R1)), RegressorChange(0.0, 0.0, 0.0, 0.0)


@pytest.mark.parametrize(("h", "d", "k", "eta"), [(1e-3, 0, 0, 0), (1.5e-3, 5e-4, 3, 0), (2.5e-3, 1e-3, 3, 8e-3)])
def test_mean_power_of_one_hold_is_sharp(h: float, d: float, k: float, eta: float) -> None:
    """Whatever H, r, noise, delay and both commands are, D is not exceeded; and it nearly is."""
    S, kappa, c, rng, size = 7.4, 10.0, 1.6, np.random.default_rng(0), 3000
    loop = OneJoint.__new__(OneJoint)
    loop.assume = SimpleNamespace(hold_max=h, delay_max=d, uncertainty=S)  # type: ignore[assignment]
    loop.root, loop.K_r, loop.kappa, loop.coulomb = np.ones(1), np.full(1, k), kappa, np.zeros(1)
    loop.mu, loop.mu_d, loop.c_d, loop.e_d = 1.0, kappa, kappa, 0.0
    loop.stretch, loop.swing = 1.0, 0.0
    loop.k, loop.k_spread, loop.eta, loop.actuator, loop.transition = float(k), 0.0, eta, 0.0, 0.0
    nu = 0.01
    while np.sqrt(loop.power_loss(nu, c, 0.0).power / kappa) > nu:
        nu *= 1.01
    D = loop.power_loss(nu, c, 0.0).power

    def power(x: np.ndarray) -> np.ndarray:
        """Mean of dV/dt + r K_d r over the hold, (N,), for x (N, 7) in [-1, 1]; H = 1."""

        def command(share: np.ndarray, r_hat: np.ndarray) -> np.ndarray:
            # r_hat u <= c h (S |u| - u^2): the lemma for one parameter.
            most = np.clip(S - np.sign(share) * r_hat / (c * h), 0.0, 2.0 * S)
            return np.sign(share) * np.minimum(2.0 * S * np.abs(share), most)

        r = nu * x[:, 0]
        r_hat = r + eta * x[:, 1]
        before = r_hat + 2.0 * S * h * x[:, 2]
        u, u_before = command(x[:, 3], r_hat), command(x[:, 4], before)
        delay = 0.5 * d * (1.0 + x[:, 5])
        hold = np.maximum(0.5 * (h - delay) * (1.0 + x[:, 6]), 1e-6)
        for _ in range(10):
            r = r + delay / 10 * (u_before - kappa * before + k * (r - before))
        start, work = r, 0.0
        for _ in range(20):
            middle = r + hold / 40 * (u - kappa * r_hat + k * (r - r_hat))
            r, work = (r + hold / 20 * (u - kappa * r_hat + k * (middle - r_hat)), work + kappa * middle**2 / 20)
        found = 0.5 * (r * r - start * start) / hold + work
        return np.where(np.maximum(np.abs(start), np.abs(r)) <= nu, found, -np.inf)

    x = rng.uniform(-1, 1, (size, 7))
    value, step = power(x), 0.5
    for _ in range(120):
        other = np.clip(x + step * rng.normal(size=x.shape) * (rng.random(x.shape) < 0.4), -1, 1)
        found = power(other)
        better = found > value
        x[better], value[better] = other[better], found[better]
        step = max(0.97 * step, 0.01)
    assert 0.75 * D < value.max() <= D


def test_every_claim_holds_in_closed_loop() -> None:
    """Corners, errors on their bounds, longest and irregular holds, with and without measurement errors."""
    found = tracking.summarise([tracking.run(number, 1, duration=0.08, constant=True) for number in range(5)])
    assert found["violated"] == 0, found
    kinds = [kind for kind in tracking.KINDS if kind in found]
    reached = {claim: max(found[kind][claim] for kind in kinds) for claim in tracking.CLAIMS}
    assert min(reached[claim] for claim in ("V", "r", "lemma", "U", "movement")) > 0.3, "a weak attack"


def test_every_claim_holds_where_rotors_react_on_moving_links() -> None:
    """Real rotor bodies in Pinocchio; a law that does not know them breaks the theorem's algebra."""
    found = tracking.summarise([tracking.run(k, 1, duration=0.05, gears=20.0, constant=True) for k in range(3)])
    assert found["violated"] == 0, found
    assert tracking.run(4, 1, "gears", duration=0.02, gears=20.0, constant=True)["share"]["U"] > 1.01


def test_every_claim_holds_whatever_a_feed_forward_adds_within_its_bound() -> None:
    """Its worst sign in every tick; the same without room in the gains breaks V, and with it the tube is wider."""
    plain = tracking.summarise([tracking.run(number, 1, duration=0.08) for number in range(3)])
    added = tracking.summarise([tracking.run(number, 1, duration=0.08, added=1.0) for number in range(3)])
    assert added["violated"] == 0, added
    kinds = [kind for kind in tracking.KINDS if kind in added]
    for price in ("proved tube, mrad", "torque of its limit"):
        assert max(added[kind][price] for kind in kinds) > max(plain[kind][price] for kind in kinds)
    assert any(tracking.run(k, 1, "room", duration=0.1, added=20.0)["share"]["V"] > 1.01 for k in range(4))


@pytest.mark.parametrize(
    ("how", "claim"), [("damping", "lemma"), ("robust", "V"), ("steepness", "lemma"), ("delay", "age")]
)
def test_broken_laws_are_caught_by_the_same_runs(how: str, claim: str) -> None:
    assert any(tracking.run(k, 1, how, duration=0.1, constant=True)["share"][claim] > 1.01 for k in range(8))


def quiet(gains: ControllerGains, share: float, rng: np.random.Generator) -> np.ndarray:
    r = rng.normal(size=len(gains.K_r))
    return share * np.sqrt(2 * gains.V_start) * r / np.sqrt(gains.assumptions.inertia_upper @ r**2)


def test_late_commands_are_covered_from_quiet_states_only(gains: ControllerGains) -> None:
    rng = np.random.default_rng(0)
    gaps = [gains.longest_covered_gap(np.abs(quiet(gains, s, rng))) for s in (0.0, 0.1, 0.3, 0.6, 1.0)]
    assert all(a > b for a, b in itertools.pairwise(gaps))
    assert gaps[1] > 2.0 * gains.assumptions.hold_max
    assert gaps[-1] == 0.0
    r = np.abs(quiet(gains, 0.1, rng))
    S = gains.assumptions.uncertainty
    assert gains.longest_covered_gap(r, 0.3 * S) > gaps[1]
    assert gains.longest_covered_gap(r, 9.0 * S) == pytest.approx(gains.longest_covered_gap(r))
    assert np.all(np.diff(gains.late_rates) > 0.0)


@pytest.mark.parametrize("seed", range(4))
def test_v_stays_below_its_bound_through_a_covered_gap(model: RobotModel, gains: ControllerGains, seed: int) -> None:
    """One command held for as long as is covered, the arm pushed outward all the time, then one more hold."""
    rng, a = np.random.default_rng(seed), gains.assumptions
    theta, box = draw(model, seed), model.arm_prior
    path = tracking.fastest(rng, gains, np.asarray(model.settings.home, float))
    begin = 0.5 * path.duration
    desired = path.state(begin)
    r = quiet(gains, 0.2, rng)
    arm = tracking.Arm(model, theta, desired[0].copy(), desired[1] - r)
    law = tracking.RobustLaw(model.kinematics, gains, model.friction_transition_velocity)
    # The worst command that the law may give: of some parameter in the box, not of the right one.
    torque = law.step(begin, arm.q, arm.qd, desired, tracking.ModelInUse(box.mid, box.mid, box.rad)).copy()
    gap = gains.longest_covered_gap(np.abs(law.r))
    assert gap > a.hold_max
    rate, steps = float(np.interp(gap, gains.late_ages, gains.late_rates)), 20
    for k in range(1, steps + 1):
        push = -np.sign(law.r) * (a.actuator_abs + a.actuator_rel * np.abs(torque))
        arm.advance(torque + push, (gap + a.hold_max) / steps)
        t = k * (gap + a.hold_max) / steps
        state = path.state(begin + t)
        r_now = state[1] - arm.qd + gains.K_r * (state[0] - arm.q)
        size = np.sqrt(r_now @ arm.inertia(arm.q) @ r_now)
        assert size <= np.sqrt(2 * gains.V_start)
        assert size <= 0.2 * np.sqrt(2 * gains.V_start) + t * rate * 1.2


@pytest.mark.parametrize("n", [1, 2, 4, 7])
def test_inertia_floor_is_one(n: int) -> None:
    """Nothing below it anywhere in a cell; for a single link without rotor it proves something."""
    rng = np.random.default_rng(n)
    kin, _, theta = random_arm(n, rng)
    theta[12 * n : 13 * n] *= rng.choice([0.0, 0.3], n)
    box = ParameterBox(theta - 0.01 * np.abs(theta), theta + 0.01 * np.abs(theta))
    floor = rng.uniform(0.1, 2.0, n)
    q, dq = rng.uniform(-3, 3, (30, n)), 0.02 * rng.random((30, n))
    found = inertia_floor(kin, box, floor, q, dq)
    scale = 1.0 / np.sqrt(floor)
    for k in range(len(q)):
        for _ in range(6):
            at = q[k] + rng.choice([-1.0, 1.0], n) * dq[k]
            # The box is around a consistent arm: scaled copies of it are consistent, too.
            true = theta * rng.choice([0.99, 1.0, 1.01])
            h = dynamics_of(kin).mass_matrix(true, at)
            assert np.linalg.eigvalsh(scale[:, None] * h * scale)[0] >= found[k]
    assert np.max(found) > 0.0 or n > 4
