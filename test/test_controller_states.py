"""``safe-sysid tube`` on bags of joint_trajectory_controller's state topic, as several years define it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from rosbags.rosbag2 import StoragePlugin, Writer
from rosbags.typesys import Stores, get_types_from_msg, get_typestore

from safe_sysid.apps.arm.tube import TrackedLog, read_tracked
from safe_sysid.logs.bags.controller_states import _JAZZY, CONTROLLER_STATE
from safe_sysid.logs.log import LogError
from safe_sysid.robot.loading import load_robot

MODEL = load_robot("three_joint")
MCAP = StoragePlugin.MCAP
NAMES = MODEL.joint_names
#: Humble has both pairs of words; before that there was one, with others.
HUMBLE = _JAZZY.replace("float64 speed_scaling_factor\n", "trajectory_msgs/JointTrajectoryPoint desired\n"
                        "trajectory_msgs/JointTrajectoryPoint actual\n")  # fmt: skip
FOXY = """std_msgs/Header header
string[] joint_names
trajectory_msgs/JointTrajectoryPoint desired
trajectory_msgs/JointTrajectoryPoint actual
trajectory_msgs/JointTrajectoryPoint error
"""


def log(k: int = 200) -> TrackedLog:
    t = 0.002 * np.arange(k)
    q_d, qd_d = np.sin(np.outer(t, [1.0, 2.0, 3.0])), np.cos(np.outer(t, [1.0, 2.0, 3.0])) * [1.0, 2.0, 3.0]
    return TrackedLog("log", 0.25 + t, q_d - 1e-3, 0.99 * qd_d, q_d, qd_d)


def bag(path: Path, tracked: TrackedLog, text: str, storage: StoragePlugin = MCAP, **change: Any) -> Path:
    """A bag with ``tracked``, its joints in another order and beside a finger; ``change``: of the tenth message."""
    store = get_typestore(Stores.ROS2_JAZZY)
    store.register(get_types_from_msg(text, CONTROLLER_STATE))
    kinds = store.types
    names, order = [NAMES[2], "finger", NAMES[0], NAMES[1]], [2, None, 0, 1]

    duration = kinds["builtin_interfaces/msg/Duration"](0, 0)
    empty = kinds["trajectory_msgs/msg/MultiDOFJointTrajectoryPoint"]([], [], [], duration)

    def point(q: np.ndarray, qd: np.ndarray) -> Any:
        numbers = [np.array([0.0 if j is None else row[j] for j in order]) for row in (q, qd)]
        return kinds["trajectory_msgs/msg/JointTrajectoryPoint"](*numbers, np.zeros(0), np.zeros(0), duration)

    kind = kinds[CONTROLLER_STATE]
    with Writer(path, version=9, storage_plugin=storage) as writer:
        connection = writer.add_connection("/jtc/controller_state", CONTROLLER_STATE, typestore=store)
        for k, stamp in enumerate(tracked.stamps):
            ns = round(1e9 * stamp)
            time = kinds["builtin_interfaces/msg/Time"](7 + ns // 10**9, ns % 10**9)
            wanted, measured = point(tracked.q_d[k], tracked.qd_d[k]), point(tracked.q[k], tracked.qd[k])
            known: dict[str, Any] = {
                "header": kinds["std_msgs/msg/Header"](time, ""), "joint_names": names, "speed_scaling_factor": 1.0,
                "reference": wanted, "desired": wanted, "feedback": measured, "actual": measured,
                "multi_dof_joint_names": [],
            }  # fmt: skip
            fields = {
                name: known.get(name, empty if name.startswith("multi") else point(np.zeros(3), np.zeros(3)))
                for name in kind.__dataclass_fields__
                if name != "__msgtype__"
            }
            if k == 9:
                fields |= change
            writer.write(connection, round(1e9 * stamp), store.serialize_cdr(kind(**fields), CONTROLLER_STATE))
    return path


@pytest.mark.parametrize(
    ("text", "storage"),
    [(_JAZZY, MCAP), (_JAZZY, StoragePlugin.SQLITE3), (HUMBLE, MCAP), (FOXY, MCAP)],
    ids=["jazzy", "jazzy sqlite", "humble", "foxy"],
)
def test_a_bag_says_what_was_desired_and_measured(tmp_path: Path, text: str, storage: StoragePlugin) -> None:
    tracked = log()
    back = read_tracked(bag(tmp_path / "bag", tracked, text, storage), MODEL)
    np.testing.assert_allclose(back.stamps, tracked.stamps, rtol=0, atol=1e-9)
    for key in ("q", "qd", "q_d", "qd_d"):
        np.testing.assert_array_equal(getattr(back, key), getattr(tracked, key))


def test_what_cannot_be_measured_from_is_refused_with_the_message(tmp_path: Path) -> None:
    def refused(name: str, **change: Any) -> str:
        with pytest.raises(LogError) as told:
            read_tracked(bag(tmp_path / name, log(20), _JAZZY, **change), MODEL)
        return str(told.value)

    slow = refused("slow", speed_scaling_factor=0.6)
    assert "message 10" in slow
    assert "speed_scaling_factor = 0.6: expected 1" in slow
    assert f"expected {NAMES[0]} once" in refused("names", joint_names=[NAMES[2], "finger", "x", NAMES[1]])
    short = bag(tmp_path / "good", log(20), _JAZZY)
    with pytest.raises(LogError, match=r"topic '/other'.*/jtc/controller_state"):
        read_tracked(short, MODEL, topic="/other")
    (tmp_path / "cut.mcap").write_bytes(next(short.glob("*.mcap")).read_bytes()[:700])
    with pytest.raises(LogError):
        read_tracked(tmp_path / "cut.mcap", MODEL)
