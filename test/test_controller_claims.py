"""What the controller claims: what is covered, where S or H is not what was assumed, what identification may assume."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest
import sliding_support
from test_controller import PERIOD

from safe_sysid.control.controller import Controller
from safe_sysid.control.coverage import Coverage
from safe_sysid.control.gains import ControllerGains
from safe_sysid.control.gains.design import check_acceleration, design_gains
from safe_sysid.dynamics import dynamics_of
from safe_sysid.errors import ParameterError
from safe_sysid.nodes.controller.tick_log import TorqueTickLog
from safe_sysid.robot.loading import load_robot
from safe_sysid.robot.model import RobotModel
from safe_sysid.robot.parameters import ParameterBox
from safe_sysid.trajectories import Plan, QuinticTrajectory

STAMP = 1_700_000_000_000_000_000


def test_what_was_in_force_before_counts_for_what_is_covered(model: RobotModel, gains: ControllerGains) -> None:
    """The command before acts for a while, too: its S, its age, and those of a mix that the rate made."""
    quiet, a = np.full(model.n, 1e-3), gains.assumptions

    def longest(before: list[tuple[float, float]], cuts: list[tuple[float, float]]) -> float:
        coverage = Coverage(gains, np.inf)
        coverage.begin(0.0, quiet)
        for stamp, s in before:
            coverage.note(stamp, quiet, s)
        for stamp, s in cuts:
            coverage.cut(stamp, s)
        covered = 0.0
        for step in (1e-4, 1e-6):
            covered += max(k for k in range(201) if coverage.covers(before[-1][0] + covered + k * step)) * step
        return covered

    small, large = (gains.longest_covered_gap(quiet, s) for s in (1.0, a.uncertainty))
    assert large < small - 1e-3
    assert longest([(0.001, 1.0), (0.002, 1.0)], []) == pytest.approx(small, abs=2e-6)
    for before, cuts in (
        ([(0.001, a.uncertainty), (0.002, 1.0)], []),
        ([(0.001, np.inf), (0.002, 1.0)], []),  # taking over
        ([(0.001, 1.0), (0.002, 1.0)], [(0.003, a.uncertainty)]),
    ):
        assert longest(before, cuts) == pytest.approx(large, abs=2e-6)
    late = longest([(0.001, 1.0), (0.015, 1.0)], [])
    assert late == pytest.approx(gains.longest_covered_gap(quiet, 1.0, 0.014 + a.delay_max), abs=2e-6)
    assert late < small - 1e-5
    # A mix goes on to act until the next command that is the law's own does: so does its S.
    coverage = Coverage(gains, np.inf)
    coverage.begin(0.0, quiet)
    coverage.note(0.001, quiet, 1.0)
    coverage.cut(0.002, a.uncertainty)
    assert (coverage.older, coverage.mixed) == (pytest.approx(0.001), a.uncertainty)
    coverage.note(0.0021, quiet, 1.0)
    assert not coverage.covers(0.0021 + 0.5 * (small + large))
    coverage.note(0.0031, quiet, 1.0)
    assert coverage.covers(0.0031 + 0.5 * (small + large))
    assert small > a.hold_max
    coverage.note(0.0041, gains.r_bound, 1.0)  # not quiet at all
    assert not coverage.covers(0.0041 + 2.0 * a.hold_max)
    assert not coverage.is_in_time(0.1, 2.1, True)
    assert coverage.lost
    assert not coverage.covers(0.0041)


def test_a_pose_whose_s_is_above_the_assumed_is_held_but_not_called_proved() -> None:
    model = load_robot("kinova_gen3", **{"controller.inertia_ratio": 2.25})  # H is above the assumed there, too
    gains = design_gains(model, lockstep=True)
    home, zero = np.array(model.settings.home), np.zeros(model.n)
    quiet = Controller(model, gains)
    assert quiet.start(0.0, home, zero) == []
    quiet.step(PERIOD, home, zero)
    assert quiet.proved
    assert not quiet.counts["S above assumed"]
    far = np.array([1.887, -1.541, -0.236, -0.164, 0.746, 0.708, -0.657])
    static = dynamics_of(model.kinematics).torque_regressor(far, zero, zero)[:, model.layout.links]
    effort = static @ model.arm_prior.mid[model.layout.links]
    for measured_effort in (None, effort):
        controller = Controller(model, gains)
        assert controller.start(0.0, far, zero, measured_effort) == []
        assert not controller.proved  # said at once
        assert "assumed" in controller.bound_status.why_not
        for k in range(1, 4):
            out = controller.step(k * PERIOD, far, zero)
            assert out.torque is not None
            assert not controller.proved
        assert controller.counts["S above assumed"] == 3
        assert "9.46 is above the assumed 9.19" in controller.bound_status.why_not
    # With a box that leaves S below it is claimed again, but for H, which only a plan's certificate settles.
    prior = model.arm_prior
    small = ParameterBox(prior.mid - 1e-3 * prior.rad, prior.mid + 1e-3 * prior.rad, 0, 1)
    assert controller.offer_box(small, 0.01) is None
    for k in range(4, 600):
        controller.step(k * PERIOD, far, zero)
    assert controller.uncertainty < 1.0
    assert "inertia" in controller.bound_status.why_not
    # Bounds that are reset are the prior's again.
    seen = controller.counts["S above assumed"]
    assert controller.reset_box() is None
    for k in range(600, 1200):
        controller.step(k * PERIOD, far, zero)
    assert controller.counts["S above assumed"] > seen
    assert not controller.proved


def test_gains_that_accelerate_beyond_what_identification_assumes_are_refused(gains: ControllerGains) -> None:
    most, key = float(np.max(gains.acceleration_bound)), "identification.acceleration_bound"
    check_acceleration(load_robot("kinova_gen3", **{key: 1.01 * most}), gains)
    said = r"identification\.acceleration_bound = .*gains\.acceleration_bound"
    with pytest.raises(ParameterError, match=said) as refused:
        check_acceleration(load_robot("kinova_gen3", **{key: 0.99 * most}), gains)
    asked = re.findall(r"expected at least ([\d.]+)", str(refused.value))
    check_acceleration(load_robot("kinova_gen3", **{key: float(asked[0])}), gains)  # what it asks for is enough
    # The error of a stamp is sized with it: then the theorem itself rests on it.
    dated = load_robot("kinova_gen3", **{key: 0.99 * most, "measurement.stamp_error_s": 1e-9})
    with pytest.raises(ParameterError, match="acceleration_bound"):
        design_gains(dated, lockstep=True)


def test_movement_that_a_ramp_leaves_costs_no_more_than_is_granted() -> None:
    """S (1 - s') over all holds of a ramp, the last one and the one after it included: T / 4 + 2 h."""
    rng = np.random.default_rng(0)
    for _ in range(2000):
        hold = 1e-3
        duration = hold * float(rng.choice([rng.uniform(0.1, 3.0), rng.uniform(3.0, 60.0)]))
        spans = hold * (1.0 if rng.random() < 0.3 else rng.random(4000))
        ends = np.cumsum(np.broadcast_to(spans, (4000,)))
        share = np.minimum(ends / duration, 1.0)
        before = np.concatenate([[0.0], share[:-1]])
        total = float(np.sum(share * (1.0 - before) * np.broadcast_to(spans, (4000,))))
        assert total <= duration / 4.0 + 2.0 * hold


def test_unequal_k_r_does_not_stretch_what_the_ramp_is_granted() -> None:
    """|K_r de|_H is at most sqrt(mu) k_max (1 + k_max / k_min) nu: with k_max nu (1 + sqrt(mu)) it is not."""
    rng, broken = np.random.default_rng(1), 0
    for _ in range(400):
        n = int(rng.integers(2, 5))
        lam, k = rng.uniform(0.5, 2.0, n), rng.uniform(0.2, 6.0, n)
        mu = float(rng.uniform(1.5, 6.0))
        x = rng.normal(size=(n, n))
        q, _ = np.linalg.qr(x)
        root = np.sqrt(lam)
        h = root[:, None] * (q * np.where(np.arange(n) < 1, mu, 1.0)) @ q.T * root
        # e at rest of its own equation for the r that pushes it, r on V = nu^2 / 2 with nu = 1.
        r = rng.normal(size=(200, n))
        r /= np.sqrt(np.einsum("ij,jk,ik->i", r, h, r))[:, None]
        e = rng.normal(size=(200, n))
        e /= np.linalg.norm(e * root, axis=1, keepdims=True) * k.min()
        de = (r - k * e) * k
        size = np.sqrt(np.einsum("ij,jk,ik->i", de, h, de)).max()
        assert size <= np.sqrt(mu) * k.max() * (1.0 + k.max() / k.min())
        broken += size > k.max() * (1.0 + np.sqrt(mu))
    assert broken


class Ticks:
    """A controller in real time whose ticks, 1 ms, are told to its log; ``now`` is what the log's clocks say, ns."""

    def __init__(self, model: RobotModel, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = STAMP
        for name in ("time_ns", "perf_counter_ns"):
            monkeypatch.setattr(f"safe_sysid.nodes.controller.tick_log.time.{name}", lambda: self.now)
        self.core = Controller(model, design_gains(model))
        self.log = TorqueTickLog(self.core, lockstep=False)
        self.zero, self.home = np.zeros(model.n), np.array(model.settings.home)

    def tick(self, k: int, q: np.ndarray, late: int = 100_000) -> None:
        """Millisecond ``k``: measured, and answered so much later."""
        stamp = STAMP + k * 1_000_000
        out = self.core.step(1e-3 * k, q, self.zero)
        self.now = stamp + late
        self.log.command_sent(stamp, stamp, out.torque is not None)
        self.log.add(stamp, out)


@pytest.fixture
def ticks(model: RobotModel, monkeypatch: pytest.MonkeyPatch) -> Ticks:
    return Ticks(model, monkeypatch)


def test_a_command_that_outlives_refused_measurements_is_judged_when_it_ends(ticks: Ticks) -> None:
    core, zero, home = ticks.core, ticks.zero, ticks.home
    assert core.start(0.0, home, zero) == []
    for k in range(1, 12):
        ticks.tick(k, home * np.nan if k in (5, 6, 10) else home)
        # In force from 4 ms to 7.1 ms: 3.1 ms old, judged when the next one goes and not before.
        assert core.bound_status.covered + core.bound_status.late == (0 if k < 7 else 1 if k < 11 else 2)
    core.fault("for the test")
    core.start(0.02, home, zero)
    assert core.bound_status.covered + core.bound_status.late == 0  # of this start
    for k in (40, 41):  # nothing was in force between
        if k == 40:
            core.fault("again")
            ticks.log.command_sent(STAMP + k * 1_000_000, STAMP + k * 1_000_000, False)
            core.start(0.0395, home, zero)
        ticks.tick(k, home)
    assert core.bound_status.covered + core.bound_status.late == 0


def test_a_command_that_was_late_and_not_covered_ends_the_claim_until_the_next_start(ticks: Ticks) -> None:
    """Reviewed: /diagnostics said `tracking bound: proved` beside `commands late, not covered: 118`."""
    core, log = ticks.core, ticks.log

    def run(first: int, late: int | None, gap: int | None = None) -> None:
        assert core.start(1e-3 * first, ticks.home, ticks.zero) == []
        log.command_sent(STAMP, STAMP + first * 1_000_000, False)
        for k in range(first + 1, first + 40):
            if gap is not None and gap <= k < gap + 30:
                continue
            ticks.tick(k, ticks.home, 30_000_000 if k == late else 100_000)
            text, told = core.bound_status.text, log.values()
            # Whatever happens, nobody tells of both.
            assert (text == "proved") == (told["commands late, not covered"] == 0), text
            assert core.proved == (text == "proved")

    run(0, late=20)
    # Those that follow are in time, and the theorem has lost its beginning all the same.
    assert core.bound_status.late == 1
    assert core.bound_status.text.startswith("not proved since 0.020 s: a command came 30 ms after its measurement")
    core.fault("for the test")
    run(100, late=None)
    assert core.bound_status.text == "proved"
    core.fault("for the test")
    run(200, late=None, gap=205)  # by stamps alone
    assert "not proved since 0.235 s: no measurement came for 31 ms" in core.bound_status.text
    assert [loss.partition(":")[0] for loss in core.bound_status.losses] == ["0.020 s", "0.235 s"]


@pytest.mark.parametrize(
    ("declared", "gap", "covered", "ramp"),
    [
        ({}, 0.0035, True, False),
        ({"driver.command_timeout_s": 0.003}, 0.0035, False, False),  # the drives may have braked meanwhile
        ({"measurement.max_age_s": 0.003}, 0.0035, False, True),
        ({}, 0.05, False, True),
    ],
)
def test_silence_after_which_another_torque_may_be_in_force_is_never_covered(
    declared: dict[str, float], gap: float, covered: bool, ramp: bool
) -> None:
    """However quiet the arm was: "late" is proved for our command in force, and a ramp for a start at rest."""
    arm = load_robot("kinova_gen3", **declared)
    core, home, zero = Controller(arm, design_gains(arm, False)), np.array(arm.settings.home), np.zeros(arm.n)
    assert core.start(0.0, home, zero) == []
    effort = zero
    for k in range(1, 60):
        out = core.step(PERIOD * k, home, zero)
        assert out.torque is not None
        effort = np.array(out.torque)
    stamp = PERIOD * 59 + gap
    other = effort + 0.5  # what the drives hold
    out = core.step(stamp, home, zero, other)
    assert out.torque is not None
    assert (core.bound_status.text == "proved") == covered, core.bound_status.text
    assert core.taking_over == ramp
    rests = core.rests_until(stamp)
    if ramp:
        assert np.abs(out.torque - other).max() < 0.1, "it departs from what is in force"
        assert rests > stamp + 0.018
        plan = QuinticTrajectory.to_rest(np.stack([home, zero, zero]), home + 0.01, 1.0)
        early, late = (Plan(plan, rests + shift, 0.5, "0:0", 0, zero) for shift in (-1e-3, 1e-3))
        reason = core.offer_plan(early, stamp)
        assert "while control is still taken over" in reason
        assert core.offer_plan(late, stamp) is None
    while stamp < rests + 0.05:
        stamp += PERIOD
        out = core.step(stamp, *out.reference[:2])
        assert core.bound_status.possible
        assert (core.bound_status.text == "proved") == covered, "until the next start"
    assert (core.plan is not None) == ramp


@pytest.mark.parametrize("lockstep", [True, False])
def test_a_sliding_joint_held_beyond_the_travel_of_the_proof_is_not_called_proved(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lockstep: bool
) -> None:
    """Reviewed: near a limit the tube of a hold leaves the travel that bounds of the dynamics rest on."""
    monkeypatch.setattr(sliding_support, "SLIDE", (0.05, 0.15))
    path = sliding_support.write_sliding_arm(tmp_path, "rp", np.random.default_rng(0))
    timing = {} if lockstep else {"timing.hold_max_s": 0.0011, "timing.delay_max_s": 0.0001}
    model = load_robot(path, **timing)
    gains = design_gains(model, lockstep)
    a, (low, high) = gains.assumptions, model.kinematics.travel[1]
    # Of the arm itself, and of what is measured and led to where the arm will be.
    far = gains.e_bound + a.position_error + gains.lead * (a.velocity + a.velocity_error)
    ends = np.array([low + far[1], high - far[1]])
    assert model.limits.position_lower[1] < ends[0] < ends[1] < model.limits.position_upper[1]
    inward = np.array([1e-6, -1e-6])
    for at, proved in zip((*(ends - inward), *(ends + inward)), (0, 0, 1, 1), strict=True):
        controller, q, zero = Controller(model, gains), np.array([0.1, at]), np.zeros(2)
        assert controller.start(0.0, q, zero) == []
        assert controller.proved == bool(proved), controller.bound_status.why_not
        for k in range(1, 4):
            controller.step(k * PERIOD, q, zero)
            assert controller.proved == bool(proved)
        if not proved:
            assert "joint 1 is held at" in controller.bound_status.why_not
            assert "expected it within the travel [0.0450, 0.1550] m" in controller.bound_status.why_not
