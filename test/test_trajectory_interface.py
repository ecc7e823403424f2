"""The trajectory interface: measured tubes, certificates over them, the watch, and what may be concluded from means."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

import numpy as np
import pytest

from safe_sysid.apps.arm.tube import (
    TrackedLog,
    TubeMargins,
    measure_tube,
    read_tracked,
    require_room,
    tube_text,
    write_tube,
)
from safe_sysid.apps.judge.record import JudgeRecord
from safe_sysid.apps.judge.tracking import _judge_acceleration
from safe_sysid.cli import main
from safe_sysid.control.checks.tube_activation import TubeActivationChecks
from safe_sysid.control.states import ControllerState
from safe_sysid.control.trajectory import TrajectoryController, points_of
from safe_sysid.control.tube import MeasuredTube, measured_tube
from safe_sysid.demo.measured_arm import (
    _motions,
    _write_table,
    heaviest_payload,
    of_sensors,
    servo_settings,
    write_measured_arm,
)
from safe_sysid.demo.options import DemoOptions
from safe_sysid.dynamics import dynamics_of
from safe_sysid.errors import ConfigError, ParameterError
from safe_sysid.identification.equations.measurement_errors import MeasurementErrors
from safe_sysid.identification.equations.measurements import Measurements, Sample
from safe_sysid.identification.equations.momentum import momentum_rows
from safe_sysid.logs.log import LogError
from safe_sysid.planning.certification.cell_margins import MarginFinder
from safe_sysid.reachability.cells import ErrorBox, time_cells
from safe_sysid.reachability.torque import enclose_torque
from safe_sysid.robot.files.yaml_file import read_yaml
from safe_sysid.robot.loading import load_robot
from safe_sysid.robot.model import RobotModel
from safe_sysid.robot.parameters import ParameterBox
from safe_sysid.robot.scenes.scene import config_path, load_scene
from safe_sysid.simulation.arms import draw_truth
from safe_sysid.simulation.payloads import NO_PAYLOAD, check_inside_prior
from safe_sysid.simulation.plant import Plant
from safe_sysid.simulation.servo import ServoArm, _Spline
from safe_sysid.trajectories.plan import Plan
from safe_sysid.trajectories.quintic import QuinticTrajectory

RATE = 500.0
TUBE: dict[str, Any] = {
    "position": 0.004, "velocity": 0.02, "acceleration": 0.3, "inner_position": 0.003, "inner_velocity": 0.012,
    "largest_velocity": 0.8, "largest_acceleration": 1.0, "largest_jerk": 6.0, "heaviest": 3.6, "latency_s": 0.01,
    "origin": "a test",
}  # fmt: skip


def arm(tube: dict[str, Any] | None = None) -> RobotModel:
    settings = servo_settings(RATE)
    settings["controller"] = {"interface": "trajectory", "tube": {**TUBE, **(tube or {})}}
    return load_robot("three_joint", **settings, **{"identification.acceleration_bound": 2.0})


@pytest.fixture(scope="module")
def model() -> RobotModel:
    return arm()


@pytest.fixture(scope="module")
def tube(model: RobotModel) -> MeasuredTube:
    return measured_tube(model)


def plan_from(model: RobotModel, start: float, q: Any = None, far: float = 0.3, sequence: int = 0) -> Plan:
    q = np.array(model.settings.home if q is None else q, float)
    state = np.stack([q, 0 * q, 0 * q])
    return Plan(QuinticTrajectory.to_rest(state, q + far, 2.0), start, 1.0, "0:0", sequence, np.zeros(model.n))


def next_plan(plan: Plan, far: float = -0.2) -> Plan:
    state = plan.trajectory.state(plan.t_plan)[:3]
    trajectory = QuinticTrajectory.to_rest(state, state[0] + far, 2.0)
    return Plan(trajectory, plan.hand_over_time, 1.0, "0:0", plan.sequence + 1, np.zeros(plan.trajectory.n))


# -- the declaration -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("declared", "told"),
    [
        ({"heaviest": 3.59}, "mass up to 3.6 kg"),
        ({"largest_velocity": [0.8, 0.7, 0.8]}, "controller.velocity = 0.8 rad/s of shoulder"),
        ({"largest_jerk": 5.9}, "controller.jerk"),
        ({"acceleration": 1.3}, "acceleration_bound"),
        ({"position": 0.0031}, "controller.tube.position"),
        ({"velocity": 0.0121}, "controller.tube.velocity"),
    ],
)
def test_a_tube_that_does_not_cover_what_is_asked_for_is_refused(declared: dict[str, Any], told: str) -> None:
    with pytest.raises(ParameterError, match=told):
        measured_tube(arm(declared))


def test_what_an_identified_arms_real_hand_may_weigh_more_than_its_box_counts(model: RobotModel) -> None:
    excess = np.zeros((model.n, 3))
    excess[-1, 0] = 0.1
    with pytest.raises(ParameterError, match=r"mass up to 3\.7 kg"):
        measured_tube(replace(model, kinematics=model.kinematics._replace(excess=excess)))


def test_without_a_tube_there_are_no_plans() -> None:
    with pytest.raises(ParameterError, match="safe-sysid tube"):
        measured_tube(load_robot("three_joint", **servo_settings(RATE), **{"controller.interface": "trajectory"}))


def test_torque_that_nothing_bounds_between_samples_gives_no_interval() -> None:
    with pytest.raises(ConfigError, match="between samples"):
        load_robot("three_joint", **{"controller.interface": "trajectory"})
    sampled = {"controller.interface": "trajectory", "measurement.effort": "sampled", "measurement.torque_rate": 900.0}
    load_robot("three_joint", **sampled)
    for key, value in (("torque_delay_s", 1e-3), ("torque_rate", 100.0), ("jerk", 10.0)):
        with pytest.raises(ConfigError, match=key):
            load_robot("three_joint", **{"measurement.effort": "mean", f"measurement.{key}": value})


# -- certificates over a tube ----------------------------------------------------------------------------


def _torques(
    model: RobotModel, box: ParameterBox, plan: Plan, errors: ErrorBox, rng: np.random.Generator, count: int
) -> Any:
    """Cells of random times, and true torques at corners of the tube, of the box and of friction."""
    t = rng.uniform(0.0, plan.trajectory.duration, count)
    states = np.array([plan.trajectory.state(x) for x in t])
    signs = rng.choice([-1.0, 1.0], (3, count, model.n))
    q, qd, qdd = (states[:, i] + signs[i] * bound for i, bound in enumerate((errors.e, errors.de, errors.dde)))
    low, high = box.lower, box.upper
    w = dynamics_of(model.kinematics).torque_regressor(q, qd, qdd, 0.0)
    columns = np.arange(model.n), model.layout.coulomb
    slow = np.abs(qd) < model.friction_transition_velocity  # there friction is whatever it likes
    liked = np.where(slow, rng.choice([-1.0, 1.0], slow.shape), np.sign(qd))
    w[:, columns[0], np.arange(low.size)[columns[1]]] = liked
    # Parameters that raise or lower the torque of one joint the most.
    aim = w[np.arange(count), rng.integers(0, model.n, count)] * rng.choice([-1.0, 1.0], (count, 1))
    return t, np.einsum("kjp,kp->kj", w, np.where(aim > 0.0, high, low))


def test_certified_torques_hold_every_motion_in_the_tube(model: RobotModel) -> None:
    plan, prior = plan_from(model, 0.0), model.arm_prior
    known = replace(prior, lower=prior.mid, upper=prior.mid)
    errors = ErrorBox(0.02 * np.ones(3), 0.05 * np.ones(3), 0.5 * np.ones(3))
    cells = time_cells(plan.trajectory, 300)

    def outside(declared: ErrorBox, box: ParameterBox, true: ErrorBox) -> int:
        transition = model.friction_transition_velocity
        found = enclose_torque(model.kinematics, box, cells, declared, np.zeros(3), np.ones(3), transition)
        t, torque = _torques(model, box, plan, true, np.random.default_rng(3), 4000)
        at = np.clip(np.searchsorted(cells.grid, t, side="right") - 1, 0, cells.count - 1)
        low, high = found.torque[at, :, 0], found.torque[at, :, 1]
        return int(np.sum((torque < low) | (torque > high)))

    assert outside(errors, prior, errors) == outside(errors, known, errors) == 0
    # The same attack finds a tube that is declared too small in any of its parts.
    for k in range(3):
        e, de, dde = (x if i == k else 0.0 * x for i, x in enumerate((errors.e, errors.de, errors.dde)))
        assert outside(ErrorBox(e, de, dde), known, ErrorBox(e, de, dde)) == 0
        assert outside(ErrorBox(0.2 * e, 0.2 * de, 0.2 * dde), known, ErrorBox(e, de, dde)) > 0


def test_the_outer_tube_is_taken_off_positions_speeds_and_distances(model: RobotModel, tube: MeasuredTube) -> None:
    scene, plan = load_scene("open"), plan_from(model, 0.0)

    def margins(given: MeasuredTube) -> dict[str, Any]:
        find = MarginFinder(plan.trajectory, model, model.arm_prior, scene, given, 0.0)
        cells = find(np.array([[0.0, 1.0], [1.0, 2.0]]))
        return {name: cells.values[name].min(axis=0) for name in ("position", "velocity", "tracking", "self_clearance")}

    one = margins(tube)
    two = margins(replace(tube, e_bound=3.0 * tube.e_bound, de_bound=3.0 * tube.de_bound))
    np.testing.assert_allclose(one["velocity"] - two["velocity"], 2.0 * tube.de_bound, rtol=1e-6)
    limited = np.isfinite(one["position"])
    lost = one["position"][limited] - two["position"][limited]
    np.testing.assert_allclose(lost, 2.0 * tube.e_bound[limited], rtol=1e-6)
    assert np.all(two["self_clearance"] <= one["self_clearance"])
    # Faster than what it was measured with: no certificate.
    slow = replace(tube, assumptions=replace(tube.assumptions, acceleration=0.4 * np.ones(3)))
    assert margins(slow)["tracking"].min() < 0.0 <= one["tracking"].min()


# -- what is sent, and the watch -------------------------------------------------------------------------


def test_what_is_sent_is_the_plan_and_the_next_one_with_its_braking_tail(model: RobotModel) -> None:
    first = plan_from(model, 10.0)
    second = next_plan(first)
    sent = points_of([first, second], 10.3)
    assert sent.times[0] == 10.3
    assert sent.times[-1] == second.end_time
    assert not np.any(sent.knots[-1, 1:])
    assert np.max(np.diff(sent.times)) <= 0.1 + 1e-9
    spline = _Spline(10.3, sent.knots[0], sent)
    for t in np.linspace(10.3, second.end_time + 0.2, 400):
        plan = first if t < first.hand_over_time else second
        np.testing.assert_allclose(spline.state(t), plan.trajectory.state(t - plan.start_time)[:3], atol=1e-9)


class Bench:
    """A controller with samples that follow its reference, but for what a test adds."""

    def __init__(self, model: RobotModel, tube: MeasuredTube) -> None:
        self.model, self.t, self.q = model, 0.0, np.array(model.settings.home)
        self.core = TrajectoryController(model, tube)
        assert self.core.start(0.0, self.q, np.zeros(3), None, self.q) == []
        self.sent: list[Any] = []

    def run(self, until: float, off: float = 0.0, fast: float = 0.0) -> None:
        """Samples on the desired motion, but for an error of position and velocity."""
        core = self.core
        while self.t < until - 1e-9:
            self.t += 1.0 / RATE
            plan, due = core.plan, core.pending_plan
            plan = due if due is not None and self.t >= due.start_time - 1e-9 else plan
            state = np.zeros((2, 3)) if plan is None else plan.trajectory.state(self.t - plan.start_time)[:2]
            self.q = self.q if plan is None else state[0]
            out = core.step(self.t, self.q - off, state[1] - fast)
            if out.send is not None:
                self.sent.append(out.send)


def moving(model: RobotModel, tube: MeasuredTube, until: float) -> tuple[Bench, TrajectoryController, Plan]:
    """On the way along a plan that began at 0.4 s."""
    bench, plan = Bench(model, tube), plan_from(model, 0.4)
    assert bench.core.offer_plan(plan, 0.0) is None
    bench.run(until)
    return bench, bench.core, plan


def followed(model: RobotModel, tube: MeasuredTube, begin: float, until: float) -> tuple[Bench, Plan, Plan]:
    """On the way along a plan that another one is to follow, which was offered meanwhile."""
    bench, core, plan = moving(model, tube, begin)
    following = next_plan(plan)
    assert core.offer_plan(following, bench.t) is None
    bench.run(until)
    return bench, plan, following


def test_leaving_the_inner_tube_stops_on_the_certified_tail_and_keeps_the_claim(model: RobotModel, tube: Any) -> None:
    bench, core, plan = moving(model, tube, 0.9)
    assert core.state is ControllerState.TRACKING
    bench.run(0.902, off=0.0035)
    assert core.state is ControllerState.BRAKING
    assert "inner tube" in core.reason
    assert "inner tube" in core.offer_plan(next_plan(plan), bench.t)
    bench.run(2.5)
    assert core.state is ControllerState.HOLDING
    assert not core.claim_lost
    np.testing.assert_array_equal(bench.sent[-1].knots[-1, 0], plan.trajectory.knots[-1, 0])


@pytest.mark.parametrize(("off", "fast"), [(0.0045, 0.0), (0.0, 0.021), (0.0, 0.003)])
def test_leaving_the_outer_tube_ends_the_claim_and_says_so(
    model: RobotModel, tube: Any, off: float, fast: float
) -> None:
    """The last case: 3 mrad/s within one sample are 1.5 rad/s^2, though the velocity is inside."""
    bench, core, _ = moving(model, tube, 0.0)
    bench.run(0.9, off=0.6 * off)
    bench.run(0.902, off=off, fast=fast)
    assert core.claim_lost
    assert "outer tube" in core.claim_lost[0]
    assert core.state is ControllerState.BRAKING
    bench.run(2.5)
    assert core.state is ControllerState.FAULT
    # Since the last sample inside, and once more with the fault; what is told is the first.
    assert [float(lost.split(" s:")[0]) for lost in core.claim_lost] == [0.9, pytest.approx(2.4, abs=0.005)]
    assert core.status["measured tube"] == f"lost at {core.claim_lost[0]}"
    assert core.counts["fault"] == 1


def test_a_stop_before_the_hand_over_takes_the_next_plan_back(model: RobotModel, tube: Any) -> None:
    bench, plan, following = followed(model, tube, 0.9, 0.95)
    core = bench.core
    np.testing.assert_array_equal(bench.sent[-1].knots[-1, 0], following.trajectory.knots[-1, 0])
    core.stop()
    bench.run(1.0)
    np.testing.assert_array_equal(bench.sent[-1].knots[-1, 0], plan.trajectory.knots[-1, 0])
    assert bench.sent[-1].times[0] >= 0.95 + 0.01
    assert core.state is ControllerState.BRAKING
    assert core.plan is plan


def test_a_stop_too_late_to_take_the_next_plan_back_brakes_on_its_tail(model: RobotModel, tube: Any) -> None:
    bench, _, _ = followed(model, tube, 1.2, 1.35)
    core, count = bench.core, len(bench.sent)
    core.stop()
    bench.run(1.5)
    assert core.plan.sequence == 1
    assert core.state is ControllerState.BRAKING
    assert len(bench.sent) == count
    assert core.offer_plan(next_plan(core.plan), bench.t) is not None


def test_late_plans_and_missing_samples(model: RobotModel, tube: Any) -> None:
    bench = Bench(model, tube)
    core, plan = bench.core, plan_from(model, 0.4)
    assert "in time" in core.offer_plan(replace(plan, start_time=0.1), 0.0)
    assert core.offer_plan(plan, 0.0) is None
    bench.run(0.9)
    assert "in time" in core.offer_plan(next_plan(plan), 1.3)
    bench.t += 0.01  # late, not stale: counted
    bench.run(bench.t + 0.01)
    assert core.counts["samples missing"] == 1
    assert not core.claim_lost
    before = bench.t
    bench.t += 0.05
    bench.run(bench.t + 0.01)
    assert core.claim_lost[0].startswith(f"{before:.3f} s: no measurement for 0.052 s")
    assert core.state is ControllerState.BRAKING


def test_a_start_where_the_set_point_is_not_known_moves_it_to_the_arm_first(model: RobotModel, tube: Any) -> None:
    """And a plan that comes after that begins there."""
    core, home = TrajectoryController(model, tube), np.array(model.settings.home)
    assert core.start(0.0, home, np.zeros(3)) == []
    hold = core.step(0.002, home, np.zeros(3)).send
    assert hold is not None
    np.testing.assert_array_equal(hold.knots, np.stack([home, 0 * home, 0 * home])[None])
    assert hold.times[0] == pytest.approx(0.802) == core.rests_until(0.0)
    assert "brought to its pose" in core.offer_plan(plan_from(model, 0.8), 0.002)
    assert core.offer_plan(plan_from(model, 0.81), 0.002) is None
    core = TrajectoryController(model, tube)
    assert core.start(0.0, home, np.zeros(3), None, home) == []
    assert core.step(0.002, home, np.zeros(3)).send is None


def test_boxes_need_no_step_while_nothing_is_sent(model: RobotModel, tube: Any) -> None:
    """A session calls none before the start: what was weighed, and a reset, are in force at once."""
    core, prior = TrajectoryController(model, tube), model.arm_prior
    middle = 0.5 * (prior.payload_lower + prior.payload_upper)
    box = prior.with_payload(middle, middle, 1)
    assert core.offer_box(box, 0.0) is None
    assert (core.box, core.blending) == (box, False)
    assert core.reset_box() is None
    assert (core.box.identity, core.blending) == ("1:0", False)
    # What was to be announced with the next step, when control ends.
    q = np.array(model.settings.home)
    assert core.start(0.0, q, 0.0 * q) == []
    assert core.reset_box() is None
    assert core.box.identity == "1:0"
    core.release("test")
    assert core.box.identity == "2:0"


def test_an_emergency_stop_takes_the_next_plan_back_and_ends_the_claim(model: RobotModel, tube: Any) -> None:
    bench, plan, _ = followed(model, tube, 0.9, 0.95)
    core = bench.core
    core.emergency_stop()
    assert core.state is ControllerState.FAULT
    assert not core.proved
    out = core.step(bench.t + 0.002, bench.q, np.zeros(3))
    assert not out.commanding
    np.testing.assert_array_equal(out.send.knots[-1, 0], plan.trajectory.knots[-1, 0])
    assert core.step(bench.t + 0.004, bench.q, np.zeros(3)).send is None
    # Too late to take anything back: the arm ends as the next plan does, and nothing is sent.
    late, _, _ = followed(model, tube, 1.2, 1.35)
    late.core.emergency_stop()
    assert late.core.step(late.t + 0.002, late.q, np.zeros(3)).send is None


def test_a_trajectory_command_comes_back_to_a_nanosecond(model: RobotModel) -> None:
    pytest.importorskip("rclpy")
    from rclpy.serialization import deserialize_message, serialize_message
    from trajectory_msgs.msg import JointTrajectory

    from safe_sysid.nodes.common.messages.contents import MessageRefusedError
    from safe_sysid.nodes.common.messages.time_base import TimeBase
    from safe_sysid.nodes.common.messages.trajectories import TrajectoryReader, TrajectoryWriter

    names, stamp = list(model.joint_names), 1_700_000_000_123_456_789
    base, reader = TimeBase(lockstep=False), TrajectoryReader(names)
    now = base.seconds(stamp)
    first = plan_from(model, now + 0.3)
    points = points_of([first, next_plan(first)], now + 0.2)
    message = TrajectoryWriter(names, base).fill(stamp, points)
    wire = deserialize_message(serialize_message(message), JointTrajectory)
    answered, found = reader.read(wire, base.origin_ns)
    assert answered == stamp
    np.testing.assert_allclose(found.times, points.times, atol=1e-9, rtol=0.0)
    np.testing.assert_array_equal(found.knots, points.knots)
    assert reader.read(TrajectoryWriter(names, base).fill(stamp, None)) == (stamp, None)
    message.joint_names = names[::-1]
    np.testing.assert_array_equal(reader.read(message, base.origin_ns)[1].knots, points.knots[:, :, ::-1])

    def refused(change: Any) -> str:
        bad = TrajectoryWriter(names, base).fill(stamp, points)
        change(bad)
        with pytest.raises(MessageRefusedError) as told:
            reader.read(bad)
        return str(told.value)

    assert "at rest" in refused(lambda m: m.points.pop())
    assert "increasing" in refused(lambda m: m.points.reverse() or m.points.append(m.points[0]))
    for value in (np.nan, np.inf, 1e300):
        assert "finite" in refused(lambda m, value=value: m.points[1].velocities.__setitem__(0, value))
    assert "expected at most" in refused(lambda m: m.points.extend(m.points * 100))
    assert "joints" in refused(lambda m: m.joint_names.pop())
    assert "positions" in refused(lambda m: m.points[2].positions.pop())


def test_samples_later_than_the_tube_leaves_room_for_refuse_an_activation(model: RobotModel, tube: Any) -> None:
    def reasons(delay: float, rate: float = RATE, moving: float = 0.0) -> str:
        checks = TubeActivationChecks(model, tube, None, lockstep=False, simulated=True)
        effort = -(dynamics_of(model.kinematics).momentum_rate_regressor(home, np.zeros(3), 1.0) @ model.theta_nominal)
        for k in range(1, 200):
            stamp = round(1e9 * k / rate)
            checks.add(stamp, stamp + round(1e9 * delay), home, np.full(3, moving), effort)
        return "; ".join(checks.reasons())

    home = np.array(model.settings.home)
    assert reasons(0.009) == ""
    assert "controller.tube.latency_s" in reasons(0.011)
    assert "measurement.rate_hz" in reasons(0.009, 400.0)
    assert "inner tube" in reasons(0.009, moving=0.013)
    assert "before their stamp" in reasons(-0.001)


# -- a servo, and what its means say ---------------------------------------------------------------------


def servo(model: RobotModel, payload: Any = None, **options: Any) -> ServoArm:
    theta = draw_truth(model, NO_PAYLOAD, 5)
    held = NO_PAYLOAD
    if payload:
        theta, held, _ = heaviest_payload(model, theta)
    plant = Plant(model, theta, held, load_scene("open"), 1, q0=model.settings.home, period=1e-3, start_time=-1.0)
    return ServoArm(plant, RATE, None, 2, latency_s=0.01, **options)


class Driven(NamedTuple):
    """A plan driven to its end: what was desired and measured, samples of mean torques, and of those at an instant."""

    log: TrackedLog
    means: list[Sample]
    instants: list[Sample]
    theta: np.ndarray


def drive(robot: ServoArm) -> Driven:
    plan = plan_from(robot.model, robot.plant.time + 0.3, robot.desired)
    send, rows, means, instants = points_of([plan], plan.start_time), [], [], []
    for _ in range(round(2.5 * RATE)):
        sample, send = robot.step(send), None
        state = plan.trajectory.state(max(sample.stamp - plan.start_time, 0.0))
        rows.append((sample.stamp, sample.q, sample.qd, state[0], state[1]))
        means.append(sample)
        instants.append(sample._replace(effort=robot.plant.measurement.effort))
    log = TrackedLog("drive", *(np.array(column) for column in zip(*rows, strict=True)))
    return Driven(log, means, instants, np.array(robot.plant.theta_true))


@pytest.fixture(scope="module")
def driven(model: RobotModel) -> list[Driven]:
    """Without a payload, and with the heaviest."""
    return [drive(servo(model, payload=load)) for load in (False, True)]


def test_motions_for_a_tube_begin_at_every_packaged_home() -> None:
    """Of ur5e two wrist links are 5.6 mm apart in every pose: nothing wider may be asked for than of plans."""
    model = load_robot("ur5e")
    home = np.array(model.settings.home)
    plant = Plant(model, model.theta_nominal, NO_PAYLOAD, load_scene("open"), q0=home)
    assert 0.005 < plant.clearance(home)[0] < 0.006
    assert _motions(model, plant, home, 0.5, 2.6, np.random.default_rng(0))


PACKAGED = ("franka_panda", "kinova_gen3", "kinova_gen3_gazebo", "three_joint", "three_joint_wall", "ur5e")


@pytest.mark.parametrize("name", PACKAGED)
def test_the_heaviest_payload_is_in_the_prior_of_the_hand_that_is_simulated(name: str) -> None:
    model = load_robot(name)
    part, upper = model.layout.payload, model.arm_prior.payload_upper[0]
    for seed, draw in enumerate(("nominal", "uniform", "corner", "uniform", "corner")):
        theta, ball, mass = heaviest_payload(model, draw_truth(model, NO_PAYLOAD, seed, draw))
        check_inside_prior(model, theta[part], ball)
        assert mass == theta[part.start] == upper


def test_a_heaviest_payload_that_the_moments_forbid_is_refused_by_name() -> None:
    model = load_robot(
        "three_joint", **{"payload.prior_upper": [3.6, 0.2, 0.05, 0.05, 0.05, 0.02, 0.45, 0.02, 0.01, 0.45]}
    )
    with pytest.raises(ParameterError, match=r"prior_upper of three_joint: mass up to 3.6 kg.*mcx = "):
        heaviest_payload(model, np.array(model.theta_nominal))


def test_an_acceleration_that_sensors_make_up_is_said_with_what_makes_it_less() -> None:
    def told(error: float) -> str:
        settings = {**servo_settings(RATE), "controller": {"interface": "trajectory", "tube": TUBE}}
        return of_sensors(load_robot("three_joint", **settings, **{"measurement.velocity_error": error}))

    assert "velocity_error = 0.001 rad/s at 500 Hz makes up to 3 rad/s^2" in told(1e-3)
    assert told(1e-5) == ""


def test_torques_are_not_asked_of_an_arm_that_follows_trajectories(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["demo", "--robot", "kinova_gen3_gazebo", "--interface", "torque", "--quiet"]) == 2
    told = capsys.readouterr().err
    assert "--interface torque: kinova_gen3_gazebo follows trajectories" in told
    assert "expected no --interface" in told


@pytest.mark.slow
@pytest.mark.parametrize("name", PACKAGED)
def test_the_tube_of_every_packaged_arm_can_be_measured(name: str, tmp_path: Path) -> None:
    if name == "kinova_gen3_gazebo":
        pytest.importorskip("dartpy")
    engine = "dart" if name == "kinova_gen3_gazebo" else "mujoco"
    options = DemoOptions(robot=name, interface="trajectory", engine=engine)
    model = load_robot(write_measured_arm(options, load_scene("open"), tmp_path, str))
    assert model.settings.controller.tube.heaviest == model.arm_prior.payload_upper[0]
    measured_tube(model)


def test_a_start_is_refused_where_efforts_are_no_torques_or_the_arm_is_not_where_it_should_be(
    model: RobotModel, tube: MeasuredTube
) -> None:
    robot = servo(model)
    sample, core = robot.measurement, TrajectoryController(model, tube)
    good = (sample.stamp, sample.q, sample.qd)
    for lie in (-sample.effort, 0.0 * sample.effort, sample.effort + 30.0, np.full(3, np.nan)):
        assert any("effort" in reason for reason in core.start(*good, lie, robot.desired))
    for wrong in ((sample.stamp, sample.q + 0.0031, sample.qd), (sample.stamp, sample.q, sample.qd + 0.013)):
        assert any("inner tube" in reason for reason in core.start(*wrong, sample.effort, robot.desired))
    assert core.state is ControllerState.IDLE
    assert core.start(*good, sample.effort, robot.desired) == []


def test_samples_at_half_the_declared_rate_are_counted(model: RobotModel, tube: MeasuredTube) -> None:
    core, q = TrajectoryController(model, tube), np.array(model.settings.home)
    assert core.start(0.0, q, np.zeros(3)) == []
    for k in range(1, 11):
        core.step(2.0 * k / RATE, q, np.zeros(3))
    assert core.counts["samples missing"] == 10


def test_silence_ends_at_rest_where_the_plan_ends(driven: list[Driven]) -> None:
    log = driven[1].log
    assert np.abs(log.q_d[-1] - log.q[-1]).max() < 0.004
    assert np.abs(log.qd[-1]).max() < 1e-3
    assert np.abs(log.q_d - log.q).max() < 0.01  # it did follow


def test_equations_of_mean_torques_hold_the_truth_and_of_instants_do_not(
    model: RobotModel, driven: list[Driven]
) -> None:
    errors = replace(MeasurementErrors.from_model(model), torque_abs=1e-9, torque_rel=0.0, acceleration=np.full(3, 2.0))
    worst = []
    for samples in (driven[0].means, driven[0].instants):
        data = Measurements.of(samples)
        windows = [(i, i + 50) for i in range(0, len(samples) - 51, 25)]
        rows = momentum_rows(model.kinematics, model.arm_prior, errors, data, windows)
        gap = np.abs(rows.matrix @ driven[0].theta - rows.target) - rows.slack
        assert len(gap) > 30
        worst.append(float(gap.max()))
    assert worst[0] <= 0.0 < worst[1]
    with pytest.raises(ParameterError, match="mean"):
        momentum_rows(model.kinematics, model.arm_prior, errors, data, windows, 0.02)


@pytest.fixture(scope="module")
def seen(driven: list[Driven]) -> dict[float, MeasuredTube]:
    return tubes_of(*driven)


def tubes_of(free: Driven, loaded: Driven) -> dict[float, MeasuredTube]:
    """The tube of this servo, measured, by the margin of its inner part."""
    tubes = {}
    for inner in (1.5, 3.0):
        found = measure_tube(arm(), [free.log], [loaded.log], 3.6, TubeMargins(inner, 2.0 * inner, latency_s=0.02))
        faster = {"largest_velocity": 0.8, "largest_acceleration": 1.0, "largest_jerk": 6.0, "heaviest": 3.6}
        tubes[inner] = measured_tube(arm({**found, **faster}))
    return tubes


def test_a_servo_that_weakens_is_caught_by_the_watch(model: RobotModel, seen: dict[float, MeasuredTube]) -> None:
    def watched(weaken: float) -> TrajectoryController:
        robot = servo(model, payload=True)
        core, sample = TrajectoryController(model, seen[1.5]), robot.measurement
        assert core.start(sample.stamp, sample.q, sample.qd, None, robot.desired) == []
        assert core.offer_plan(plan_from(model, 0.3, robot.desired), sample.stamp) is None
        send = None
        for k in range(round(1.4 * RATE)):
            if k == round(0.7 * RATE):
                robot._kp *= weaken
            sample = robot.step(send)
            send = core.step(sample.stamp, sample.q, sample.qd).send
        return core

    good = watched(1.0)
    assert not good.claim_lost
    assert good.state is ControllerState.BRAKING  # no plan came for the hand-over
    assert not good.counts["inner tube left"]
    weak = watched(0.4)
    assert weak.counts["inner tube left"] or weak.claim_lost
    assert weak.reason != good.reason


FAULTS = ("none", "weak", "slack", "deaf", "restarted", "pushed", "slipped", "late stamps", "one stamp back", "stuck")
#: The others end as one of these does; all of them over topics: benchmarks/faults.py --interface trajectory.
OTHERS = ("weak", "restarted", "late stamps", "one stamp back", "stuck")


@pytest.mark.parametrize("fault", [pytest.param(x, marks=pytest.mark.slow) if x in OTHERS else x for x in FAULTS])
def test_an_arm_that_leaves_its_tube_is_claimed_no_more_and_comes_to_rest(
    model: RobotModel, seen: dict[float, MeasuredTube], fault: str
) -> None:
    """Servo, messages and sensors fail at a random instant of a chain of plans; the truth is the plant's."""
    rng = np.random.default_rng(FAULTS.index(fault))
    tube = seen[3.0]  # these motions are faster than the logs'
    robot, core = servo(model, payload=bool(rng.integers(2))), TrajectoryController(model, tube)
    sample, begin = robot.measurement, robot.desired
    assert core.start(sample.stamp, sample.q, sample.qd, None, begin) == []
    plan, when, send, stuck = plan_from(model, 0.3, begin, rng.uniform(-0.15, 0.15)), rng.uniform(0.5, 1.5), None, None
    assert core.offer_plan(plan, sample.stamp) is None
    outside = []
    while robot.plant.time < max(when, plan.end_time) + 0.4:  # all that was sent has ended, and a while at rest
        now, before = robot.plant.time, robot.plant.time - 1.0 / RATE
        fails, first = now > when, before <= when < now
        q, qd = robot.plant.state
        if first and fault in ("weak", "slack"):
            robot._kp *= {"weak": 0.05, "slack": 0.0}[fault]
        elif first and fault == "restarted":  # it holds where it is
            robot._mail.clear()
            robot._spline, robot._state = None, np.stack([q, 0 * q, 0 * q])
        elif first and fault == "pushed":
            robot.plant.engine.place(q, qd + rng.choice([-1.0, 1.0], 3))
        elif first and fault == "slipped":
            robot.plant.engine.place(q + rng.choice([-0.05, 0.05], 3), qd)
        sample = robot.step(None if fails and fault == "deaf" else send)
        stamp, measured = sample.stamp, (sample.q, sample.qd)
        if fails and fault == "stuck":
            stuck = measured if stuck is None else stuck
            measured = stuck
        stamp += {"late stamps": 0.05 * fails, "one stamp back": -0.1 * first}.get(fault, 0.0)
        send = core.step(stamp, *measured).send
        if core.state is ControllerState.TRACKING and core._next is None and plan.hand_over_time - 0.6 < now < 2.0:
            later = next_plan(plan, rng.uniform(-0.15, 0.15))
            plan = later if core.offer_plan(later, sample.stamp) is None else plan
        under_way = core._plan
        desired = core._hold if under_way is None else under_way.trajectory.state(sample.stamp - under_way.start_time)
        q, qd = robot.plant.state
        left = np.any(np.abs(desired[0] - q) > tube.e_bound) or np.any(np.abs(desired[1] - qd) > tube.de_bound)
        if left and core.state.commands:
            outside.append(sample.stamp)
    # None of this was missed, and none of it was made up. A claim ends with the last sample that could be used.
    assert bool(core.claim_lost) is (fault not in ("none", "one stamp back"))
    lost = [float(told.split(" s:")[0]) - 0.05 * (fault == "late stamps") for told in core.claim_lost]
    assert all(told >= when - 0.06 for told in lost)
    assert min(outside, default=np.inf) >= min(lost, default=np.inf) - 1e-3
    assert outside or fault in ("none", "one stamp back", "stuck", "weak", "late stamps")
    if fault != "slack":  # a servo without stiffness comes to rest nowhere
        assert np.abs(robot.plant.state[1]).max() < 0.02


def test_the_judge_sees_errors_of_acceleration_between_samples(tube: MeasuredTube) -> None:
    """A jolt of 2 ms of the true velocity, inside one period of a slow driver."""
    time, slow = np.arange(0.0, 1.0, 1e-3), np.arange(0.0, 1.0, 1e-2)
    controller: Any = SimpleNamespace(time=slow, qdd_d=np.full((slow.size, 3), 0.2))
    found = []
    for jolt in (0.9, 1.1):
        qd = np.outer(0.2 * time, np.ones(3))
        qd[504:506, 1] += jolt * 1e-3 * tube.dde_bound[1]
        record = JudgeRecord()
        plant: Any = SimpleNamespace(time=time, qd=qd)
        _judge_acceleration(record, plant, controller, tube, np.arange(0, time.size, 10))
        found.append((record.counts.get("tracking", 0), record.findings))
    assert found[0] == (0, [])
    assert found[1][0] == 2
    assert "1.1 times as far off as the outer tube, first at 0.50" in found[1][1][0]


# -- measuring -------------------------------------------------------------------------------------------


def _log(model: RobotModel, seed: int, e: float) -> TrackedLog:
    rng, t = np.random.default_rng(seed), np.arange(0.0, 3.0, 1.0 / RATE)
    q_d, qd_d = 0.3 * np.sin(np.outer(t, [1.0, 1.1, 1.2])), 0.3 * np.cos(np.outer(t, [1.0, 1.1, 1.2])) * [1.0, 1.1, 1.2]
    off = e * np.sin(np.outer(t, rng.uniform(3.0, 5.0, 3)))
    return TrackedLog("log", t, q_d - off, qd_d - np.gradient(off, t, axis=0), q_d, qd_d)


def test_tube_measures_both_loads_and_writes_the_robot_file(
    tmp_path: Path, model: RobotModel, capsys: pytest.CaptureFixture[str]
) -> None:
    free, loaded = _log(model, 1, 1e-3), _log(model, 2, 2e-3)
    tables = tmp_path / "free.csv", tmp_path / "loaded.csv"
    for table, log in zip(tables, (free, loaded), strict=True):
        _write_table(table, model, log)
    np.testing.assert_array_equal(read_tracked(tables[1], model).q_d, loaded.q_d)
    source, robot = config_path("three_joint", "config"), tmp_path / "mine.yaml"
    urdf = f"urdf: {source.parent.parent}/urdf/three_joint.urdf"
    text = source.read_text(encoding="utf-8").replace("urdf: three_joint.urdf", urdf)
    robot.write_text(text, encoding="utf-8")
    command = f"tube {tables[0]} --loaded {tables[1]} --heaviest 3.6 --robot {robot} --write".split()
    assert main(command) == 2  # effort is `held` there
    assert robot.read_text(encoding="utf-8") == text
    told = capsys.readouterr()
    assert f"{robot}: measurement.effort = 'held'" in told.err
    assert "`sampled` with torque_rate" in told.err
    assert "docs/use/trajectory.md" in told.err
    assert "no load" not in told.out  # nothing was measured
    text = text.replace("torque_source: motor,", "torque_source: motor, effort: mean,")
    robot.write_text(text, encoding="utf-8")
    assert main(command) == 0
    assert main([*command, "--margin", "2"]) == 0
    written = read_yaml(robot)["controller"]
    assert written["interface"] == "trajectory"
    assert "3.6 kg" in written["tube"]["origin"]
    inner, worst = np.array(written["tube"]["inner_position"]), np.abs(loaded.q_d - loaded.q).max(axis=0)
    assert np.all((2.0 * worst <= inner) & (inner <= 2.01 * worst))
    after, section = robot.read_text(encoding="utf-8"), tube_text(written["tube"]).replace("'", '"')
    assert after.count("  tube:") == 1
    assert text.replace("controller:\n", "") == after.replace(f"controller:\n{section}", "")


def test_tube_refuses_what_it_cannot_measure(tmp_path: Path, model: RobotModel) -> None:
    log = _log(model, 1, 1e-3)
    with pytest.raises(LogError, match="--loaded"):
        measure_tube(model, [log], [], 3.6, TubeMargins())
    still = replace(log, qd_d=log.qd_d * [1.0, 0.0, 1.0])
    with pytest.raises(LogError, match="shoulder is never moved"):
        measure_tube(model, [still], [still], 3.6, TubeMargins())
    bad = tmp_path / "bad.csv"
    _write_table(bad, model, replace(log, q=np.where(np.arange(len(log.q))[:, None] == 7, np.nan, log.q)))
    with pytest.raises(LogError):
        read_tracked(bad, model)
    for refuse in (require_room, lambda path: write_tube(path, {})):
        with pytest.raises(ConfigError, match=f"{bad}: controller"):
            refuse(bad)
    robot = tmp_path / "mine.yaml"
    text = config_path("three_joint", "config").read_text(encoding="utf-8")
    robot.write_text(text.replace("torque_source: motor,", "torque_source: motor, effort: mean,"), encoding="utf-8")
    require_room(robot)
    with pytest.raises(ConfigError, match=f"{robot}: controller.tube.velocity"):  # not a temporary file
        write_tube(robot, {**TUBE, "velocity": -1.0})


@pytest.mark.slow
@pytest.mark.parametrize(
    ("robot", "rate", "noise"),
    [("kinova_gen3", "500", "uniform"), ("kinova_gen3", "250", "adversarial"), ("three_joint", "100", "uniform")],
)
def test_demo_identifies_a_payload_through_an_arm_as_it_is_sold(
    tmp_path: Path, robot: str, rate: str, noise: str
) -> None:
    command = ["demo", "--interface", "trajectory", "--robot", robot, "--driver-rate", rate, "--noise", noise]
    assert main([*command, "--quiet", "--seed", "4", "--out", str(tmp_path / "run")]) == 0


@pytest.mark.slow
def test_a_tube_too_wide_for_the_start_pose_is_refused_with_the_torque_it_may_need(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """At 100 Hz this servo's errors of acceleration times a Kinova's rotors are more than its wrists have to spare."""
    command = ["demo", "--interface", "trajectory", "--driver-rate", "100", "--quiet", "--out", str(tmp_path / "run")]
    assert main(command) == 2
    assert "joint_2: holding may need" in capsys.readouterr().err
