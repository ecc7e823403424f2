"""The identifier node over real topics: a tare by its services, an identification that starts tighter, refusals."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("rclpy")

from identification_plant import exciting_plans, noisy, simulate
from ros_harness import Probe, running
from sensor_msgs.msg import JointState
from std_msgs.msg import Float64MultiArray

from safe_sysid.identification.equations.measurements import Measurements
from safe_sysid.nodes.common.base import LATCHED_INPUT, measurement_qos
from safe_sysid.nodes.common.messages.conversions import JointStateWriter, read_bounds
from safe_sysid.robot import RobotModel, load_robot
from safe_sysid.simulation.arms import draw_link, draw_truth, hand_box
from safe_sysid.simulation.payloads import dumbbell, theta_e_with_payload

pytestmark = pytest.mark.ros

LAST = slice(60, 70)
UPDATE = {"identification": {"update_s": 1.0}}


def logs(model: RobotModel) -> tuple[np.ndarray, Measurements, Measurements]:
    """True theta_e, a log with the empty hand, and one with the payload."""
    rng, out = np.random.default_rng(2), []
    theta = draw_truth(model, dumbbell(8), rng)
    hand = draw_link(rng, *hand_box(model), model.theta_nominal[LAST], "uniform")
    for last in (hand, theta_e_with_payload(model, hand, dumbbell(8))):
        theta[LAST] = last
        plans = exciting_plans(np.array(model.settings.home), rng, n_plans=1, t_f=2.1)
        v_c = model.friction_transition_velocity
        log = simulate(model.kinematics, theta, v_c, plans, rng=rng, chatter=0.5)
        out.append(noisy(log, 0.05, 0.025, rng))
    return theta[LAST].copy(), out[0], out[1]


def send(probe: Probe, model: RobotModel, publisher: Any, data: Measurements, start: float) -> None:
    writer = JointStateWriter(model.joint_names)
    for k in range(len(data)):
        stamp = round(1e9 * (start + data.stamps[k]))
        publisher.publish(writer.fill(stamp, data.q[k], data.qd[k], data.effort[k]))
        if k % 50 == 0:
            probe.spin(0.005)


@pytest.mark.slow  # what a tare gives: test_tare.py
def test_a_tare_by_services_makes_the_next_identification_tighter_and_its_run_verifiable(tmp_path: Path) -> None:
    model = load_robot("kinova_gen3")
    theta_e, empty, loaded = logs(model)
    node = {"identifier": {"tare_file": str(tmp_path / "tare.npz"), "method": "lp", "start_on_activation": False}}
    with running(tmp_path, node, UPDATE) as processes, Probe() as probe:
        processes["identifier"].wait_ready()
        size = model.arm_prior.size
        boxes = probe.heard(Float64MultiArray, "bounds", LATCHED_INPUT, lambda m: read_bounds(m, size))
        publisher = probe.publisher(JointState, "joint_states", measurement_qos(True, history=True))
        probe.wait(lambda: publisher.get_subscription_count() == 1, "the connection")
        refused = probe.call("identifier/tare_finish")
        assert not refused.success
        assert "expected tare_start before" in refused.message
        assert probe.call("identifier/tare_start").success
        assert "under way" in probe.call("identifier/tare_start").message
        send(probe, model, publisher, empty, 0.001)
        probe.wait(lambda: len(boxes) >= 2, "answers while the hand is empty")
        assert np.array_equal(boxes[-1].box.lower, model.arm_prior.lower)
        assert probe.call("identifier/tare_finish").success
        probe.wait(lambda: "equations of" in probe.value("identifier", "tare"), "the tare")
        assert "rotor inertia to" in probe.value("identifier", "tare")
        probe.wait(lambda: probe.value("identifier", "state") == "waiting for start", "the state")
        assert probe.call("identifier/start").success
        send(probe, model, publisher, loaded, 10.0)
        probe.wait(lambda: "updated" in probe.value("identifier", "status"), "bounds")
        probe.wait(lambda: probe.value("identifier", "slack") != "no equations yet", "the margin")
        probe.wait(lambda: probe.value("identifier", "diagnosis 1") != "", "what is hardly excited")
        again = probe.call("identifier/tare_start")
        assert not again.success
        assert "samples of its payload" in again.message
        box = boxes[-1].box
        assert processes["identifier"].end()[0] == 0
    assert np.all((box.payload_lower <= theta_e) & (theta_e <= box.payload_upper))
    assert box.payload_upper[0] - box.payload_lower[0] < 0.5  # kg; 0.35 to 0.7 without a tare after so little motion
    assert (tmp_path / "log.npz").is_file()
    assert (tmp_path / "tare_log.npz").is_file()
    assert list(tmp_path.glob("certificate_0_*.json"))
