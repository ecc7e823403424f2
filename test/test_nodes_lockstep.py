"""Real node processes in lock-step: tracking within the proved bounds, and runs that repeat bit for bit."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("rclpy")
pytest.importorskip("mujoco")

from fault_bench import plan_ahead
from ros_harness import Probe, end_all, running
from rosgraph_msgs.msg import Clock
from sensor_msgs.msg import JointState
from std_msgs.msg import Float64MultiArray, MultiArrayDimension
from trajectory_msgs.msg import JointTrajectory

from safe_sysid.dynamics import dynamics_of
from safe_sysid.nodes.common.base import LATCHED, STREAM
from safe_sysid.nodes.common.messages.contents import JointSample
from safe_sysid.nodes.common.messages.conversions import JointReader, read_plan, stamp_to_ns
from safe_sysid.robot import load_robot

pytestmark = pytest.mark.ros

KINOVA = load_robot("kinova_gen3").joint_names
#: Short trajectories that are planned in a second.
FAST: dict[str, Any] = {
    "planner": {"t_f": 1.0, "t_p": 0.5, "intervals": 32, "k_range": 0.1, "iteration_budget": 6, "plans": 2},
    "identification": {"update_s": 0.5, "take_after_s": 0.3},
}
_TIMES = ("compute", "period", "latency")
_NOT_COMPARED = [f"{name}_{kind}" for name in _TIMES for kind in ("us", "histogram")]


def load(path: Path) -> dict[str, np.ndarray]:
    with np.load(path) as data:
        return dict(data)


def references(probe: Probe, topic: str = "reference", names: Sequence[str] = KINOVA) -> list[JointSample]:
    """Everything that the controller says about its reference from now on: one at least.

    Endpoints match one by one: a latched answer of another topic may be heard long before the first reference is.
    """
    seen = probe.heard(JointState, topic, STREAM, JointReader(names).read)
    probe.wait(lambda: bool(seen), f"something on {topic}")
    return seen


def attack(probe: Probe) -> None:
    """Commands that the plant must not obey, and tells of, each kind.

    Five at a time: of eleven, the controller's answer with them, its queue of ten would lose the first.
    """
    told: Counter[str] = Counter()
    publisher = probe.publisher(Float64MultiArray, "effort_command")
    commands = [
        ("wrong tick", "1", [40.0] * 7),
        ("wrong tick", "", [40.0] * 7),
        ("wrong tick", "9" * 18, [40.0] * 7),
        ("bad label", "now", [40.0] * 7),
        ("bad label", "-5", [40.0] * 7),
        ("wrong length", "1", [40.0] * 6),
        ("wrong length", "1", [40.0] * 70),
        ("too long", "1", [40.0] * 150_000),
        ("not finite", "1", [float("nan")] * 7),
        ("not finite", "1", [*[0.0] * 6, float("inf")]),
    ]
    for some in (commands[:5], commands[5:]):
        for reason, label, data in some:
            message = Float64MultiArray(data=data)
            message.layout.dim = [MultiArrayDimension(label=label)]
            publisher.publish(message)
            told[f"refused effort_command: {reason}"] += 1
        for key, count in told.items():
            probe.wait(lambda key=key, n=count: probe.value("plant", key) == str(n), f"{count} x {key}")


def test_a_plan_from_a_topic_is_tracked_within_the_proved_bounds(tmp_path: Path) -> None:
    times = {"planner": {"t_f": 2.0, "t_p": 1.0}}
    model = load_robot("kinova_gen3", **times)
    nodes = {
        "plant": {"payload": "8lb", "noise": "adversarial", "arm": "corner", "seed": 3},
        "controller": {"await_plans": False, "await_bounds": False},
    }
    with running(tmp_path, nodes, times) as processes, Probe() as probe:
        seen, clock = references(probe), probe.heard(Clock, "/clock", read=lambda message: stamp_to_ns(message.clock))
        publisher = probe.publisher(JointTrajectory, "plan", LATCHED)
        plan = plan_ahead(model, seen[-1], np.array([0.2, -0.15, 0.17, 0.15, -0.2, 0.17, 0.2]), 1.0, 1.0)
        start_ns, trajectory = stamp_to_ns(plan.header.stamp), read_plan(plan, model.joint_names).trajectory
        publisher.publish(plan)
        probe.wait(lambda: seen[-1].stamp_ns > start_ns + 500_000_000, "motion")
        attack(probe)
        probe.wait(lambda: seen[-1].stamp_ns > start_ns + 2_200_000_000, "the end of the plan")
        endings = end_all(processes)
    assert all(status == 0 for status, _ in endings.values()), endings

    # Simulated time is on /clock, tick by tick, once someone listens.
    assert clock[-1] > start_ns
    steps = np.diff(clock[-1000:])
    assert np.median(steps) == 1e6
    assert not np.any(steps % 1_000_000)  # a busy listener may miss one

    control, plant = load(tmp_path / "controller.npz"), load(tmp_path / "plant.npz")
    states = control["states"][control["state"]]
    order = [states[i] for i in np.flatnonzero(np.append(True, states[1:] != states[:-1]))]
    assert order == ["holding", "tracking", "braking", "holding"]
    # Row k of the plant is time k ms, the controller's first tick answers the second measurement.
    rows = np.rint(1e3 * (1e-9 * control["stamp"] - plant["t"][0])).astype(int)
    assert np.array_equal(rows, np.arange(rows[0], rows[0] + len(rows)))
    q, qd = plant["q"][rows], plant["qd"][rows]
    e, de = control["q_d"] - q, control["qd_d"] - qd
    share = max(np.max(np.abs(e) / control["e_bound"]), np.max(np.abs(de) / control["de_bound"]))
    r = de + e * np.array(model.settings.controller.K_r)
    energy = 0.5 * np.sum(r * (dynamics_of(model.kinematics).momentum_regressor(q, r) @ plant["theta_true"]), axis=1)
    print(f"largest share of the error bounds {share:.3f}, of V_max {np.max(energy) / control['V_max']:.4f}")
    assert share <= 1.0
    assert np.max(energy) <= control["V_max"]
    assert np.all(control["energy"] <= energy + 1e-12)  # what the controller knows of V is a lower bound
    np.testing.assert_allclose(control["q_d"][-1], trajectory.knots[-1, 0], atol=1e-12)
    tracked = (start_ns <= control["stamp"]) & (control["stamp"] <= start_ns + 2_000_000_000)
    expected = trajectory.states(1e-9 * (control["stamp"][tracked] - start_ns))
    np.testing.assert_allclose(control["q_d"][tracked], expected[:, 0], atol=1e-9)
    assert np.all(np.abs(plant["tau_applied"]) <= model.limits.torque)
    assert np.all(np.abs(plant["qd"]) <= model.limits.velocity)
    assert not np.any(plant["contacts"])
    # Every command was applied in the period after its measurement, none was lost or late.
    assert np.array_equal(plant["tau_commanded"][rows[:-1] + 1], control["torque"][:-1])


def entries(path: Path, key: str) -> list[dict[str, Any]]:
    """Entries of a JSON log without what the machine's speed decides."""
    clock = ("planning_s", "optimise_s", "certify_s", "first_s", "seconds", "timings")
    return [{k: v for k, v in e.items() if k not in clock} for e in json.loads(path.read_text())[key]]


@pytest.mark.slow  # in one process: test_episode.py; an identification from a bag: test_replay.py
def test_the_same_seed_gives_the_same_run_bit_for_bit(tmp_path: Path) -> None:
    """All four nodes, twice at the same time, in each other's way: the machine is busy in different ways.

    Two exciting trajectories, then steps to a goal; plans are made by processes that are not these.
    """
    nodes = {"plant": {"payload": "8lb"}, "controller": {}, "identifier": {}, "planner": {"then_goal": True}}
    # Until then nobody has told them to end, which makes them brake, and comes when it comes.
    first, second, seconds = tmp_path / "first", tmp_path / "second", 3.7
    goal = [0.1, *load_robot("kinova_gen3").settings.home[1:]]
    (tmp_path / "near.yaml").write_text(json.dumps({"name": "near", "goal": goal, "boxes": []}))
    common = {"seed": 7, "scene": str(tmp_path / "near.yaml")}
    with (
        running(first, nodes, FAST, namespace="/first", **common) as one,
        running(second, nodes, FAST, namespace="/second", **common) as two,
        Probe() as probe,
    ):
        seen = [references(probe, f"/{name}/reference") for name in ("first", "second")]
        probe.wait(lambda: all(s[-1].stamp_ns > seconds * 1e9 for s in seen), f"{seconds} s of both runs")
        endings = [*end_all(one).values(), *end_all(two).values()]
    assert all(status == 0 for status, _ in endings), endings

    for name in ("plant.npz", "controller.npz"):
        a, b = load(first / name), load(second / name)
        count = min(len(a["q" if "q" in a else "q_d"]), len(b["q" if "q" in b else "q_d"]))
        assert count > 3500
        count = min(count, int(1000 * seconds))
        assert a.keys() == b.keys()
        for key in a.keys() - set(_NOT_COMPARED):
            long = a[key].ndim and len(a[key]) >= count
            x, y = (a[key][:count], b[key][:count]) if long else (a[key], b[key])
            assert x.tobytes() == y.tobytes(), f"{name}: {key}"
    plans, updates = ([entries(d / file, key) for d in (first, second)] for file, key in (
        ("planner.json", "plans"), ("identifier.json", "updates")))  # fmt: skip
    plans = [[p for p in made if p["start_ns"] <= seconds * 1e9] for made in plans]
    updates = [[u for u in made if u["stamp_ns"] <= seconds * 1e9] for made in updates]
    count = min(len(plans[0]), len(plans[1]))
    assert plans[0][:count] == plans[1][:count]
    count = min(len(updates[0]), len(updates[1]))
    assert updates[0][:count] == updates[1][:count]
    # And it was the run that it should be.
    assert {p["status"] for p in plans[0]} == {"planned"}
    assert [p["purpose"] for p in plans[0][:3]] == ["excitation", "excitation", "task"]
    assert [p["start_ns"] for p in plans[0][:3]] == [500_000_000, 1_000_000_000, 3_150_000_000]
    assert count >= 3
    control, plant = load(first / "controller.npz"), load(first / "plant.npz")
    assert set(control["states"][control["state"]]) == {"holding", "tracking", "braking"}
    payload = slice(60, 70)
    for update in updates[0]:
        assert np.all(np.array(update["lower"]) <= plant["theta_true"][payload])
        assert np.all(plant["theta_true"][payload] <= np.array(update["upper"]))
    assert updates[0][count - 1]["upper"][0] - updates[0][count - 1]["lower"][0] < 1.0
