"""Bags: joints by name, header stamps, all storages; broken ones: test_logs_npz.py, too."""

import numpy as np
import pytest
from log_support import EPOCH_NS, JOINTS, joint_state, random_measurements, write_bag
from rosbags.rosbag2 import StoragePlugin, Writer
from rosbags.typesys import Stores, get_typestore

from safe_sysid.identification.equations.measurements import Measurements
from safe_sysid.logs import LogError
from safe_sysid.logs.bags.rosbag import read_bag
from safe_sysid.logs.formats.reading import Reading, load_log

NAMES = ("finger", *JOINTS, "rail")
STORE, KIND = get_typestore(Stores.ROS2_JAZZY), "sensor_msgs/msg/JointState"


def shuffled(rng):
    order = rng.permutation(9)
    return [NAMES[i] for i in order], [int(i) - 1 if 1 <= i <= 7 else -1 for i in order]


def expect(log, m):
    ns = np.round(m.stamps * 1e9).astype(np.int64) + EPOCH_NS
    assert np.max(np.abs(log.measurements.stamps - (ns - log.origin_ns) * 1e-9)) < 1e-12
    for key in ("q", "qd", "effort"):
        assert np.array_equal(getattr(log.measurements, key), getattr(m, key))


@pytest.mark.parametrize("plugin", ["mcap", "sqlite3"])
@pytest.mark.parametrize("seed", [0, 1])
def test_round_trip_in_any_order_with_extra_joints(tmp_path, plugin, seed):
    rng = np.random.default_rng(seed)
    m = random_measurements(rng, 60)
    path = write_bag(tmp_path / "bag", m, *shuffled(rng), plugin=plugin)
    expect(load_log(path, JOINTS), m)
    (storage,) = [file for file in path.iterdir() if file.suffix in (".mcap", ".db3")]
    expect(load_log(storage, JOINTS), m)


@pytest.mark.parametrize("plugin", ["mcap", "sqlite3"])
@pytest.mark.parametrize("mode", ["FILE", "MESSAGE"])
def test_compressed_bags(tmp_path, plugin, mode):
    m = random_measurements(np.random.default_rng(2), 30)
    path = write_bag(tmp_path / "bag", m, JOINTS, range(7), plugin=plugin, compression=mode)
    expect(load_log(path, JOINTS), m)


def test_order_that_changes_from_message_to_message(tmp_path):
    rng = np.random.default_rng(3)
    m = random_measurements(rng, 40)
    with Writer(tmp_path / "bag", version=9, storage_plugin=StoragePlugin.MCAP) as writer:
        connection = writer.add_connection("/js", KIND, typestore=STORE)
        for k in range(40):
            names, columns = shuffled(rng)
            rows = [[0.0 if c < 0 else x[k, c] for c in columns] for x in (m.q, m.qd, m.effort)]
            frame = "b" * int(rng.integers(0, 9))  # shifts every field behind it
            stamp = EPOCH_NS + round(float(m.stamps[k]) * 1e9)
            writer.write(connection, stamp, joint_state(STORE, stamp, names, *rows, frame=frame))
            if k % 5 == 0:  # the gripper speaks on the same topic
                writer.write(connection, stamp + 1, joint_state(STORE, stamp, ["finger"], [1], [2], [3]))
    log = read_bag(tmp_path / "bag", JOINTS)
    expect(log, m)
    assert log.columns["lacking"] == ["8"]


def bag_with(tmp_path, topics):
    """{topic: names} with 5 messages each."""
    m, more = random_measurements(np.random.default_rng(0), 5), []
    for topic, names in topics.items():
        zeros, stamps = np.zeros((3, len(names))), range(EPOCH_NS, EPOCH_NS + 5)
        more.append((topic, KIND, [(stamp, joint_state(STORE, stamp, names, *zeros)) for stamp in stamps]))
    return m, write_bag(tmp_path / "bag", m, JOINTS, range(7), topic="/arm/joint_states", more=more)


def test_the_topic_with_the_robots_joints_is_taken(tmp_path):
    m, path = bag_with(tmp_path, {"/gripper/joint_states": ["finger"], "/base": ["wheel_l", "wheel_r"]})
    expect(read_bag(path, JOINTS), m)


def test_two_topics_that_fit_are_not_guessed(tmp_path):
    m, path = bag_with(tmp_path, {"/arm2/joint_states": list(JOINTS)})
    with pytest.raises(LogError, match="several have all joints: say which with --topic"):
        read_bag(path, JOINTS)
    expect(load_log(path, JOINTS, Reading(topic="/arm/joint_states")), m)
    with pytest.raises(LogError, match=r"'/nope' of type .* is not there: expected one of /arm"):
        read_bag(path, JOINTS, "/nope")


def test_missing_joints_velocities_and_stamps(tmp_path):
    m = random_measurements(np.random.default_rng(0), 5)
    path = write_bag(tmp_path / "a", m, JOINTS[:6], range(6))
    with pytest.raises(LogError, match="5 messages, none with all joints"):
        read_bag(path, JOINTS)
    empty = [(EPOCH_NS, joint_state(STORE, EPOCH_NS, JOINTS, np.zeros(7), [], np.zeros(7)))]
    path = write_bag(tmp_path / "b", m[:0], JOINTS, range(7), topic="/x", more=[("/y", KIND, empty)])
    with pytest.raises(LogError, match="has 0 numbers in velocity: expected 7"):
        read_bag(path, JOINTS, "/y")
    still = Measurements(np.full(5, -1.7e9), m.q, m.qd, m.effort)
    with pytest.raises(LogError, match=r"header stamps .* are 0.000000000 s"):
        read_bag(write_bag(tmp_path / "c", still, JOINTS, range(7)), JOINTS)
    with pytest.raises(LogError, match="/x has no messages"):
        read_bag(path, JOINTS, "/x")


def test_what_is_no_bag(tmp_path):
    for name, text in (("a.mcap", b""), ("a.db3", b""), ("b.mcap", b"junk" * 50), ("b.db3", b"junk" * 50)):
        (tmp_path / name).write_bytes(text)
        with pytest.raises(LogError, match="not a readable ROS 2 bag"):
            load_log(tmp_path / name, JOINTS)
    (tmp_path / "c.bag").write_bytes(b"#ROSBAG V2.0\n")
    with pytest.raises(LogError, match="ROS 1 bag"):
        load_log(tmp_path / "c.bag", JOINTS)
    with pytest.raises(LogError, match="no such file"):
        load_log(tmp_path / "none.mcap", JOINTS)
    with pytest.raises(LogError, match=r"a directory without metadata\.yaml"):
        load_log(tmp_path, JOINTS)
    bag = tmp_path / "d"
    bag.mkdir()
    (bag / "metadata.yaml").write_text("rosbag2_bagfile_information: [1")
    with pytest.raises(LogError, match="not a readable ROS 2 bag"):
        load_log(bag, JOINTS)
