"""Bags that the recorder writes: every byte comes back through stock readers, the metadata are what rosbag2 reads."""

from __future__ import annotations

import numpy as np
import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st
from log_support import outcome
from recording_support import STATE, TEXT, Run, measured, pieces, robot, two_epochs, write
from rosbags.rosbag2 import Reader

from safe_sysid.errors import SafeSysIdError
from safe_sysid.logs.bags.bag_writer import METADATA_VERSION, BagWriter, UnknownTypeError
from safe_sysid.logs.bags.rosbag import read_bag
from safe_sysid.logs.online.configuration import configuration_text, proof_digest, read_configuration
from safe_sysid.robot import load_robot


def read(path):
    with Reader(path) as reader:
        return [(c.topic, t, bytes(raw)) for c, t, raw in reader.messages()]


@settings(max_examples=20)
@given(
    st.lists(st.tuples(st.integers(0, 2), st.integers(0, 10**18), st.binary(max_size=40)), min_size=1, max_size=30),
    st.sampled_from(["none", "zstd"]),
    st.integers(1, 30),
)
def test_every_byte_comes_back_in_the_order_of_writing(tmp_path_factory, messages, compression, flush_every):
    path = tmp_path_factory.mktemp("bag") / "bag"
    writer, expected, latest = BagWriter(path, compression), [], 0
    topics = [writer.topic(f"/t{k}", TEXT) for k in range(3)]
    for k, (topic, time, data) in enumerate(messages):
        writer.write(topics[topic], time, data)
        latest = max(latest, time)  # a clock that is set back must not bring messages out of order
        expected.append((f"/t{topic}", latest, data))
        if k % flush_every == 0:
            writer.flush()
    writer.close({"note": "x"})
    writer.close()
    assert read(path) == expected
    assert (writer.written, writer.bytes) == (len(messages), sum(len(m[2]) for m in messages))


def test_metadata_have_the_fields_that_rosbag2_reads(tmp_path):
    """As its reader takes them, with their types, from metadata of this version."""
    _, messages = two_epochs()
    path = write(tmp_path / "bag", messages)
    info = yaml.safe_load((path / "metadata.yaml").read_text())["rosbag2_bagfile_information"]
    when = {
        "duration": {"nanoseconds": 10**6 * (len(messages) - 1)},
        "starting_time": {"nanoseconds_since_epoch": 10**9},
        "message_count": len(messages),
    }
    expected = {
        "version": METADATA_VERSION, "storage_identifier": "mcap", "compression_format": "", "compression_mode": "",
        "relative_file_paths": ["bag.mcap"], "files": [{"path": "bag.mcap", **when}], **when,
    }  # fmt: skip
    assert METADATA_VERSION == 8
    assert {key: info[key] for key in expected} == expected
    assert all(isinstance(key, str) and isinstance(text, str) for key, text in (info["custom_data"] or {}).items())
    assert isinstance(info["ros_distro"], str)
    counts = {}
    for entry in info["topics_with_message_count"]:
        about = entry["topic_metadata"]
        counts[about["name"]] = entry["message_count"]
        assert about["serialization_format"] == "cdr"
        assert isinstance(about["offered_qos_profiles"], str)
        assert about["type_description_hash"].startswith("RIHS01_")
    assert counts == {t: sum(m.topic == t for m in messages) for t in {m.topic for m in messages}}


@pytest.mark.parametrize("compression", ["none", "zstd"])
def test_foxglove_s_reader_finds_definitions_and_decodes(tmp_path, compression):
    """The library of the format's makers, with what it needs to decode: definitions in the file, nothing else."""
    pytest.importorskip("mcap_ros2")
    from mcap.reader import make_reader
    from mcap_ros2.decoder import DecoderFactory

    run = Run()
    run.add(pieces(1)[0])
    path = write(tmp_path / "bag", run.messages, compression)
    with (path / "bag.mcap").open("rb") as stream:
        reader = make_reader(stream, decoder_factories=[DecoderFactory()])
        summary = reader.get_summary()
        assert summary.statistics.message_count == len(run.messages)
        assert {schema.encoding for schema in summary.schemas.values()} == {"ros2msg"}
        text = next(s.data.decode() for s in summary.schemas.values() if s.name == STATE)
        assert "float64[] effort" in text
        assert "MSG: std_msgs/Header" in text
        states = [m for _, channel, _, m in reader.iter_decoded_messages() if channel.topic == "/joint_states"]
    assert len(states) == 250
    assert [list(m.effort) for m in states] == measured().effort[:250].tolist()
    assert list(states[0].name) == list(robot().joint_names)


def test_a_type_that_nobody_knows_and_a_bag_that_exists_are_one_line(tmp_path):
    writer = BagWriter(tmp_path / "bag")
    with pytest.raises(UnknownTypeError, match="/x: no definition of nobody_msgs/msg/Thing: expected a type of ROS 2"):
        writer.topic("/x", "nobody_msgs/msg/Thing")
    writer.close()
    with pytest.raises(SafeSysIdError, match="exists: expected a new directory for the bag"):
        BagWriter(tmp_path / "bag")
    (tmp_path / "file").write_text("")
    with pytest.raises(SafeSysIdError, match="expected a place to write a bag"):
        BagWriter(tmp_path / "file" / "bag")
    with pytest.raises(SafeSysIdError, match="compression = 'rar': expected one of none, zstd"):
        BagWriter(tmp_path / "other", "rar")


def test_identify_takes_the_measured_joints_and_not_the_reference(tmp_path):
    """Both are JointState with all the joints; what is called joint_states is meant."""
    run = Run()
    run.add(pieces(1)[0])
    reference = [m for m in run.messages if m.kind == STATE]
    messages = [*run.messages, *(type(m)("/reference", m.kind, m.data) for m in reference)]
    path = write(tmp_path / "bag", messages)
    log = read_bag(path, robot().joint_names)
    assert np.array_equal(log.measurements.effort, measured().effort[:250])
    assert log.columns["stamps"] == ["/joint_states header.stamp"]
    two = [*messages, *(type(m)("/left/joint_states", m.kind, m.data) for m in reference)]
    with pytest.raises(SafeSysIdError, match="say which with --topic"):
        read_bag(write(tmp_path / "two", two), robot().joint_names)
    assert read_bag(tmp_path / "two", robot().joint_names, "/left/joint_states").origin_ns == 0


# -- configuration ----------------------------------------------------------------------------------------------


def text_of(model, lockstep=True, **changes):
    options = {"robot": "three_joint", "lockstep": lockstep, "parameters": {"seed": 3, "temperature": float("nan")}}
    return configuration_text("/left/identifier", "identifier", model, **{**options, **changes})


def test_a_configuration_says_all_that_makes_the_same_robot_again(tmp_path):
    model = load_robot("three_joint", measurement={"torque_abs": 0.1 + 0.2, "velocity_error": [0.1, 1e-9, 2.0 / 3.0]})
    (tmp_path / "tare.npz").write_bytes(b"x")
    files = {"tare_file": tmp_path / "tare.npz", "bounds_file": None}
    found = read_configuration(text_of(model, files=files))
    assert (found.node, found.kind, found.lockstep) == ("/left/identifier", "identifier", True)
    assert list(found.files) == ["tare_file"]
    again = found.load_model()
    assert again.settings == model.settings
    assert again.theta_nominal.tobytes() == model.theta_nominal.tobytes()
    assert again.arm_prior.lower.tobytes() == model.arm_prior.lower.tobytes()
    assert found.machine_differences() == []


def test_the_digest_of_what_proofs_rest_on_changes_with_every_setting_that_they_rest_on():
    model = load_robot("three_joint")
    digest = proof_digest(model, True)
    assert digest == proof_digest(load_robot("three_joint"), True)
    assert digest != proof_digest(model, False)
    assert digest != proof_digest(model, True, "another version")
    assert digest != proof_digest(load_robot("three_joint", **{"controller.law": "armour"}), True)
    for change in (
        {"measurement.torque_abs": 0.06}, {"measurement.torque_source": "link"}, {"controller.K_r": 5.1},
        {"timing.delay_max_s": 0.0001}, {"planner.k_range": 0.5}, {"gravity": [0.0, 0.1, -9.81]},
        {"payload.prior_upper": [3.7, 1.1, 0.05, 0.05, 0.05, 0.02, 0.45, 0.02, 0.01, 0.45]},
        {"uncertainty.relative": 0.06}, {"joints.elbow.viscous": 1.6}, {"actuator.torque_abs": 0.03},
        {"identification.window_s": 0.11}, {"identification.acceleration_bound": 59.0},
    ):  # fmt: skip
        assert proof_digest(load_robot("three_joint", **change), True) != digest, change
    for change in ({"planner.plans": 7}, {"planner.iteration_budget": 9}, {"home": [0.1, -0.6, 1.8]}):
        assert proof_digest(load_robot("three_joint", **change), True) == digest, change


@settings(max_examples=20)
@given(st.data())
def test_what_is_no_configuration_is_refused_in_one_line(data):
    content = yaml.safe_load(text_of(robot()))
    key = data.draw(st.sampled_from(sorted(content)))
    content[key] = data.draw(st.sampled_from([None, 7, "x", [], {}, [1], {"a": 1}, -1.0]))
    found, text = outcome(read_configuration, yaml.safe_dump(content))
    if found is not None and key in ("robot", "settings"):
        _, text = outcome(found.load_model)
    assert text is None or "\n" not in text
    with pytest.raises(SafeSysIdError):
        read_configuration(data.draw(st.text(max_size=30)))
