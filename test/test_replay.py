"""A recorded identification comes out again bit for bit; what is changed, missing or cut off is noticed and named."""

from __future__ import annotations

import itertools
import json
from dataclasses import replace
from datetime import datetime, timedelta, timezone

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from log_support import EPOCH_NS, joint_state
from recording_support import (
    ARRAY,
    STATE,
    STORE,
    Message,
    Run,
    bounds_message,
    changed,
    measured,
    pieces,
    robot,
    run_replay,
    text_message,
    two_epochs,
    write,
)

from safe_sysid.errors import SafeSysIdError
from safe_sysid.logs.bags.bag_recovery import is_unfinished, recover_bag
from safe_sysid.logs.bags.replay_bag import replay_bag
from safe_sysid.logs.online import replay as core
from safe_sysid.logs.online.journal import Journal, JournalError, read_entry, samples_digest

pytestmark = pytest.mark.unproved


@pytest.fixture(scope="module")
def two():
    return two_epochs()


@pytest.fixture(scope="module")
def bag(two, tmp_path_factory):
    return write(tmp_path_factory.mktemp("two") / "bag", two[1])


def journal(messages):
    return [k for k, message in enumerate(messages) if message.topic.endswith("/journal")]


def job(messages, name, number=0):
    """Place of the ``number``-th journal entry of a job."""
    return [k for k in journal(messages) if json.loads(messages[k].text)["job"] == name][number]


# -- the same ---------------------------------------------------------------------------------------------------


def test_it_comes_out_again_bit_for_bit(bag, capsys):
    (result,) = replay_bag(bag)
    assert result.problems == []
    assert result.notes == []
    assert (result.node, result.robot, result.lockstep) == ("/identifier", "three_joint", True)
    assert [(u.batch, u.box) for u in result.updates] == [(1, "0:1"), (2, "0:2"), (3, "1:1")]
    assert result.samples == 6 * 250 - 4
    prior = robot().arm_prior
    assert all(u.upper[0] - u.lower[0] < prior.payload_upper[0] - prior.payload_lower[0] for u in result.updates)
    assert run_replay(bag) == 0
    assert "3 updates of 1 identifier bit for bit the same" in capsys.readouterr().out


def test_the_order_in_which_topics_reached_the_recorder_does_not_matter(two, tmp_path):
    """Per topic the order is the sender's; between topics it is an accident."""
    messages, rng = two[1], np.random.default_rng(0)
    for k in range(2):
        times = np.cumsum(rng.exponential(1.0, len(messages)))
        delay = {topic: rng.uniform(0.0, 400.0) for topic in {m.topic for m in messages}}
        order = np.argsort([t + delay[m.topic] for t, m in zip(times, messages, strict=True)], kind="stable")
        (result,) = replay_bag(write(tmp_path / f"bag{k}", [messages[i] for i in order]))
        assert result.problems == []


def test_strangers_repetitions_and_other_identifiers_do_not_matter(two, tmp_path):
    """What the plant says twice in lock-step, a gripper on the same topic, another arm's identifier."""
    _, messages = two
    zeros = np.zeros(2)
    gripper = Message("/joint_states", STATE, bytes(joint_state(STORE, 5, ["finger", "thumb"], zeros, zeros, zeros)))
    other, _ = two_epochs(namespace="/left", origin_ns=EPOCH_NS)
    mixed = [other.configuration(lockstep=False)]
    for mine, theirs in itertools.zip_longest(messages, other.messages):
        mixed += [mine] * (2 if mine is not None and mine.topic == "/joint_states" else 1) if mine else []
        mixed += [gripper] if mine else []
        mixed += [theirs] if theirs else []
    path = write(tmp_path / "bag", mixed, "zstd")
    results = replay_bag(path)
    assert [result.problems for result in results] == [[], []]
    assert [result.lockstep for result in results] == [True, False]
    assert results[0].updates[0].lower == results[1].updates[0].lower
    expected = "no identifier /right/identifier: expected one of /identifier, /left/identifier"
    assert run_replay(path, "--node", "/right/identifier") == f"{path}: {expected}"


def test_a_second_life_goes_on_from_the_box_that_is_in_force(tmp_path):
    first = Run()
    for piece in pieces(2):
        first.add(piece)
    first.update(1)
    second = Run()
    second.messages = first.messages + second.messages[-1:]
    assert second.session.resume(first.session.core.box)
    for piece in pieces(2, 2):
        second.add(piece)
    second.update(2)
    (result,) = replay_bag(write(tmp_path / "bag", [second.configuration(), *second.messages]))
    assert result.problems == []
    (gap,) = result.gaps  # the first life had no end: it may have done more
    assert "a session begins after entry 3 (update) of the one before, which has no end" in gap
    assert result.updates[-1].box == "0:2"
    assert np.all(np.array(result.updates[1].lower) >= result.updates[0].lower)


def test_a_tare_of_the_run_is_made_again_and_the_clock_is_that_of_the_run(tmp_path, monkeypatch):
    """A replay weeks later must neither refuse the tare for its age nor write over the file of the run."""
    then = datetime.now(timezone.utc) - timedelta(days=40)
    path = tmp_path / "tare.npz"
    run = Run(tare_file=path, clock=lambda: then)
    made = []
    # What a tare does is tested elsewhere: here it only has to be made of the same samples at the same time.
    monkeypatch.setattr("safe_sysid.identification.tare.tare.TareRecorder.finish", lambda self, t, now: (self.log, now))
    monkeypatch.setattr("safe_sysid.logs.online.session.write_tare", lambda file, tare: made.append((file, tare)))
    monkeypatch.setattr("safe_sysid.logs.online.session.gained", lambda tare: "much")

    def begin(session, epoch, plain=core.IdentifierSession._begin):
        session.tare = None
        plain(session, epoch)

    monkeypatch.setattr(core.IdentifierSession, "_begin", begin)
    run.session.start_tare()
    run.add(pieces(1)[0])
    run.session.finish_tare()
    run.session.start()
    for piece in pieces(2, 1):
        run.add(piece)
    run.update(1)
    (result,) = replay_bag(write(tmp_path / "bag", [run.configuration(), *run.messages]))
    assert result.problems == []
    (file, (log, now)), (file_again, (log_again, now_again)) = made
    assert file == path
    assert file_again != path
    assert now_again == now == then
    assert samples_digest(log) == samples_digest(log_again)


def test_without_journal_configuration_or_joint_states_it_is_said_what_is_missing(two, tmp_path):
    _, messages = two
    for name, words in (
        ("journal", "no topic .../journal: expected a bag with the topics of an identifier"),
        ("configuration", "no message on /identifier/configuration: expected one, or --robot"),
        ("joint_states", "no topic /joint_states of type sensor_msgs/msg/JointState: expected the joint states"),
    ):
        path = write(tmp_path / name, [m for m in messages if not m.topic.endswith(name)])
        assert words in run_replay(path)
    path = tmp_path / "configuration"
    (result,) = replay_bag(path, robot="three_joint")
    assert result.problems == []
    assert "is believed to be the run's robot" in result.notes[0]


# -- not the same -----------------------------------------------------------------------------------------------


def _sample(messages):
    """A sample that was used, with one bit of one number changed."""
    k = [k for k, message in enumerate(messages) if message.topic == "/joint_states"][300]
    return k, changed(messages[k], len(messages[k].data) - 16, messages[k].data[-16] ^ 1)


def _tampered(kind, run, messages):
    """(messages, words of the first problem)."""
    out = list(messages)
    if kind == "one bit of a sample":
        k, out[k] = _sample(messages)
        return out, "samples 250000000 to 499000000 ns are not the numbers that the identifier took in"
    if kind == "sample missing":
        k, _ = _sample(messages)
        del out[k]
        lacking = "1 of 250 samples that the identifier took in are not in the bag"
        return out, f"{lacking}, the first with stamp 300000000 ns"
    if kind == "last bit of a bound":
        k = [k for k, m in enumerate(messages) if m.kind == ARRAY][1]
        message = STORE.deserialize_cdr(messages[k].data, ARRAY)
        numbers = message.data.copy()
        numbers[3] = np.nextafter(numbers[3], np.inf)
        out[k] = replace(messages[k], data=bytes(STORE.serialize_cdr(replace(message, data=numbers), ARRAY)))
        return out, "bounds: box 0:2 of batch 2: 1 numbers differ, most lower of parameter 3"
    if kind == "bounds missing":
        del out[next(k for k, m in enumerate(messages) if m.kind == ARRAY)]
        return out, "bounds: box 0:1 of batch 1 was published and is not in the bag"
    if kind == "bounds of somebody else":
        out.append(bounds_message("/bounds", run.session.core.box, np.zeros(10), 9))
        return out, "bounds: box 1:1 of batch 9 is in the bag and does not come out again"
    if kind == "entry missing":
        del out[job(messages, "samples", 1)]
        return out, "entry 1 is followed by 3: expected 2; entries are missing"
    if kind == "entry changed":
        k = job(messages, "update", 1)
        out[k] = text_message(messages[k].topic, messages[k].text.replace('"batch":2', '"batch":5'))
        return out, "update) is not the one that entry 7 follows: one of them was changed"
    if kind == "entries exchanged":
        a, b = job(messages, "samples"), job(messages, "samples", 1)
        out[a], out[b] = out[b], out[a]
        return out, "entry 0 is followed by 2: expected 1"
    if kind == "beginning missing":
        return [messages[0], *messages[job(messages, "update") + 1 :]], "begins with entry 4: the bag lacks"
    assert kind == "no entry at all"
    out[job(messages, "update")] = text_message("/identifier/journal", "{}")
    return out, "journal entry '{}': : Unable to extract tag"


@pytest.mark.parametrize(
    "kind",
    [
        "one bit of a sample", "sample missing", "last bit of a bound", "bounds missing", "bounds of somebody else",
        "entry missing", "entry changed", "entries exchanged", "beginning missing", "no entry at all",
    ],
)  # fmt: skip
def test_what_was_changed_or_left_out_is_noticed_and_named(two, tmp_path, capsys, kind):
    messages, words = _tampered(kind, *two)
    path = write(tmp_path / "bag", messages)
    assert run_replay(path, "--json", tmp_path / "result.json") == 1
    (result,) = json.loads((tmp_path / "result.json").read_text())
    assert not result["identical"]
    assert words in result["problems"][0]
    assert result["problems"][0] in capsys.readouterr().err


def test_a_changed_update_says_which_box_was_expected(two, tmp_path):
    """Journal and samples agree, the set of equations does not: what another version of this package would do."""
    _, messages = two
    entries = [json.loads(messages[k].text) for k in journal(messages)]
    entries[3]["sha256"] = "0" * 64
    told, out = [], list(messages)
    again = Journal(told.append, lambda: datetime.now(timezone.utc))
    for entry in entries:
        rest = {k: v for k, v in entry.items() if k not in ("number", "before", "utc", "job")}
        again.order(entry["job"], **rest)
    for k, text in zip(journal(messages), told, strict=True):
        out[k] = text_message(messages[k].topic, text)
    (result,) = replay_bag(write(tmp_path / "bag", out))
    assert result.problems == ["entry 3: update of batch 1: box 0:1, OK: expected 0:1, OK, the same bit for bit"]


def test_another_robot_or_setting_is_refused(two, tmp_path):
    run, messages = two
    other = run.configuration(**{"torque_abs: 0.05\n": "torque_abs: 0.06\n"})
    told = run_replay(write(tmp_path / "set", [other, *messages[1:]]))
    assert "what proofs rest on has digest" in told
    assert "say with --robot where that robot's file is" in told
    for k, (old, new) in enumerate((("format: 2", "format: 1"), ("lockstep: true", "lockstep: 1"))):
        told = run_replay(write(tmp_path / f"bad{k}", [run.configuration(**{old: new}), *messages[1:]]))
        assert "configuration: " in told
        assert "expected" in told


def test_files_of_the_run_are_named_when_they_are_not_there_any_more(tmp_path):
    """Known bounds, and a tare: both are read at the start, both may be gone or another one."""
    known = tmp_path / "bounds.yaml"
    known.write_text("robot: x\n")
    for name, entry in (("bounds", {"tare": None}), ("tare", {"bounds": None})):
        told = []
        digest = "0" * 64
        entry |= {name: {"path": str(known), "sha256": digest}, "method": None, "temperature": None}
        Journal(told.append, lambda: datetime.now(timezone.utc)).order("begin", **entry)
        run = Run()
        run.add(pieces(1)[0])
        states = [m for m in run.messages if m.kind == STATE]
        messages = [run.configuration(), text_message("/identifier/journal", told[0]), *states]
        (result,) = replay_bag(write(tmp_path / f"bag_{name}", messages))
        assert f"say --{name} FILE" in result.problems[0]
        assert "digest" in result.problems[0]


# -- cut off ----------------------------------------------------------------------------------------------------


def test_a_file_that_is_cut_off_is_told_and_recovered(bag, tmp_path):
    data = (bag / "bag.mcap").read_bytes()
    rng = np.random.default_rng(0)
    whole = None
    for k, size in enumerate([len(data) - 1, *rng.integers(len(data) // 3, len(data) - 8, 3)]):
        cut = tmp_path / f"cut{k}"
        cut.mkdir()
        (cut / "cut.mcap").write_bytes(data[:size])
        assert is_unfinished(cut)
        told = run_replay(cut)
        assert "the recording was not finished" in told
        assert f"safe-sysid replay {cut} --recover DIR" in told
        status = run_replay(cut, "--recover", tmp_path / f"out{k}")
        if whole is None:
            assert status == 0
            whole = replay_bag(tmp_path / f"out{k}")[0]
    assert whole.problems == []
    assert len(whole.updates) == 3
    assert not is_unfinished(bag)
    assert run_replay(bag, "--recover", bag).endswith("exists: expected a new directory for the bag")


def test_what_was_flushed_before_a_kill_is_run_again(two, tmp_path):
    _, messages = two
    half = messages[: job(messages, "update", 1) + 1]  # the entry is there, its message on bounds is not
    path = write(tmp_path / "killed", half, close=False)
    assert not (path / "metadata.yaml").exists()
    assert recover_bag(path, tmp_path / "again") == len(half)
    (result,) = replay_bag(tmp_path / "again")
    assert result.problems == []
    assert [update.box for update in result.updates] == ["0:1", "0:2"]
    assert "box 0:2 of batch 2 was being published when the recording ended" in result.notes
    assert "the recording ends before the identifier does" in result.notes


def _incomplete(kind, messages):
    """(messages, words of the first gap)."""
    states = [message for message in messages if message.kind == STATE]
    cut = job(messages, "update") + 2  # after the first update and its message on bounds
    if kind == "only a beginning":
        return [*messages[: job(messages, "begin") + 1], *states], "no update is in the journal: nothing was compared"
    if kind == "nothing but the joint states after an update":
        rest = [message for message in messages[cut:] if message.kind == STATE]
        return [*messages[:cut], *rest], "the journal has no end and joint_states go on for 1.000 s after"
    assert kind == "a session that ends after one that was cut"
    return [*messages[:cut], *messages], "a session begins after entry 3 (update) of the one before, which has no end"


@pytest.mark.parametrize(
    "kind",
    [
        "only a beginning", "nothing but the joint states after an update",
        "a session that ends after one that was cut",
    ],
)  # fmt: skip
def test_a_bag_that_lacks_what_was_done_is_not_called_the_same(two, tmp_path, capsys, kind):
    messages, words = _incomplete(kind, two[1])
    path = write(tmp_path / "bag", messages)
    assert run_replay(path, "--json", tmp_path / "result.json") == 1
    (result,) = json.loads((tmp_path / "result.json").read_text())
    assert not result["identical"]
    assert result["problems"] == []
    assert words in result["gaps"][0]
    shown = capsys.readouterr()
    assert f"INCOMPLETE: /identifier: {result['gaps'][0]}" in shown.err
    assert "bit for bit the same" not in shown.out


@pytest.mark.parametrize(
    "content", [b"", b"\x89MCAP0\r\n", b"\x89MCAP0\r\n" * 2, b"x" * 500, b"\x89MCAP0\r\n" + b"\x06" * 300]
)
def test_rubbish_is_one_line(tmp_path, content):
    (tmp_path / "bag.mcap").write_bytes(content)
    assert "bag.mcap" in run_replay(tmp_path / "bag.mcap")
    told = run_replay(tmp_path / "bag.mcap", "--recover", tmp_path / "out")
    assert told == 0 or "expected an mcap file" in told
    assert "no such file" in run_replay(tmp_path / "none")


# -- parts ------------------------------------------------------------------------------------------------------


@settings(max_examples=60)
@given(st.lists(st.integers(-(10**12), 10**12), min_size=1, max_size=40), st.integers(0, 2 * 10**18))
def test_stamps_survive_a_journal(steps, origin):
    stamps = np.cumsum(np.abs(steps)) + 5
    log, told = measured()[: len(stamps)], []
    Journal(told.append, lambda: datetime.now(timezone.utc)).samples(replace(log, stamps=stamps / 1e9), origin)
    entry = read_entry(told[0])
    assert entry.stamps.tolist() == (stamps + origin).tolist()


@settings(max_examples=60)
@given(st.lists(st.integers(0, 6), max_size=12), st.data())
def test_samples_are_found_in_order_each_once(stamps, data):
    """Against the definition: the first way to pick them in order, taken greedily."""
    keep = data.draw(st.lists(st.booleans(), min_size=len(stamps), max_size=len(stamps)))
    wanted = [s for s, k in zip(stamps, keep, strict=True) if k]
    index = core._find(np.array(stamps, np.int64), np.array(wanted, np.int64))
    assert np.all(index >= 0)
    assert np.all(np.diff(index) > 0)
    assert [stamps[i] for i in index] == wanted
    extra = core._find(np.array(stamps, np.int64), np.array([*wanted, 9], np.int64))
    assert extra[-1] == -1


@settings(max_examples=40)
@given(st.integers(0, 3), st.integers(0, 9), st.integers(0, 2), st.integers(0, 63))
def test_every_bit_of_every_number_is_in_the_digest(which, k, j, bit):
    log = measured()[:10]
    arrays = [np.array(x) for x in (log.stamps, log.q, log.qd, log.effort)]
    view = arrays[which].view(np.int64)
    at = (k,) if which == 0 else (k, j)
    view[at] ^= np.int64(-(2**63)) if bit == 63 else np.int64(1) << bit
    assert samples_digest(type(log)(*arrays)) != samples_digest(log)


@settings(max_examples=150)
@given(st.one_of(st.text(max_size=40), st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=6), inner, max_size=4), max_leaves=8,
).map(json.dumps)))  # fmt: skip
def test_whatever_is_no_entry_is_refused_in_one_line(text):
    with pytest.raises(JournalError) as caught:
        read_entry(text)
    assert "\n" not in str(caught.value)


@settings(max_examples=100)
@given(st.data())
def test_an_entry_with_a_field_of_nonsense_is_refused_or_harmless(two, data):
    _, messages = two
    content = json.loads(messages[data.draw(st.sampled_from(journal(messages)))].text)
    key = data.draw(st.sampled_from(sorted(content)))
    content[key] = data.draw(st.sampled_from([None, -1, 2**70, "x", [], [1], [1, [[2, -1]]], {}, True, 1e308]))
    try:
        entry = read_entry(json.dumps(content))
    except SafeSysIdError:
        return
    if entry.job == "samples":
        assert len(entry.stamps) < 1000


def test_a_stopped_identifier_does_not_fill_the_memory(tmp_path, monkeypatch):
    monkeypatch.setattr(core, "_MOST_KEPT", 100)
    replayer = core.Replayer([robot()], {}, tmp_path)
    for k in range(50):
        replayer.add_samples(np.arange(40) + 40 * k, np.zeros((40, 3, 3)))
        assert len(replayer._stamps) <= 100
    replayer.finish([])


def test_a_run_without_recording_says_how_to_make_one(tmp_path):
    (tmp_path / "summary.json").write_text("{}", encoding="utf-8")
    with pytest.raises(SafeSysIdError, match="--record"):
        replay_bag(tmp_path)
