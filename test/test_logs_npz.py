"""Our own log format: what is written reads back the same; of every format, what is broken is refused in one line."""

import io
import pickle
import tempfile
import zipfile

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from log_support import JOINTS, csv_columns, outcome, random_measurements, write_bag, write_csv

from safe_sysid.identification.equations.measurements import Measurements
from safe_sysid.logs import Log, LogError, read_log, write_log
from safe_sysid.logs.formats.reading import Reading, load_log


def same(a, b):
    return all(np.array_equal(getattr(a, k), getattr(b, k), equal_nan=True) for k in ("stamps", "q", "qd", "effort"))


def test_round_trip_is_exact_with_bad_samples_and_order_of_arrival(tmp_path):
    m = random_measurements(np.random.default_rng(0))
    stamps, q = np.array(m.stamps), np.array(m.q)
    stamps[[3, 9]] = stamps[[9, 3]]
    q[5, 2], q[6, 1] = np.nan, np.inf
    m = Measurements(stamps, q, m.qd, m.effort)
    write_log(tmp_path / "a.npz", JOINTS, m, 123)
    log = read_log(tmp_path / "a.npz")
    assert log.joint_names == JOINTS
    assert log.origin_ns == 123
    assert same(log.measurements, m)
    assert [path.name for path in tmp_path.iterdir()] == ["a.npz"]  # no temporary file is left


def test_joints_are_selected_by_name(tmp_path):
    rng = np.random.default_rng(1)
    m = random_measurements(rng, n=9)
    names = ("finger", *JOINTS, "rail")
    order = rng.permutation(9)
    shuffled = Measurements(m.stamps, m.q[:, order], m.qd[:, order], m.effort[:, order])
    write_log(tmp_path / "a.npz", [names[i] for i in order], shuffled)
    log = read_log(tmp_path / "a.npz").select(JOINTS)
    assert same(log.measurements, Measurements(m.stamps, m.q[:, 1:8], m.qd[:, 1:8], m.effort[:, 1:8]))
    with pytest.raises(LogError, match=r"'elbow' is not in the log.*joint_1"):
        log.select(["elbow"])


@pytest.mark.parametrize("names", [(), ("a", "a"), ("a", ""), ("a",)])
def test_names_must_fit(names):
    with pytest.raises(LogError, match=r"names|joints"):
        Log(names, Measurements(np.zeros(2), *np.zeros((3, 2, 2))))


def good_arrays(n=2, count=4):
    x = np.arange(count * n, dtype=float).reshape(count, n)
    names = np.array([f"j{i}" for i in range(n)])
    return {
        "schema": np.int64(1),
        "joint_names": names,
        "stamps": np.arange(float(count)),
        "q": x,
        "qd": x,
        "effort": x,
    }


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({"q": None}, "no array 'q'"),
        ({"schema": np.int64(2)}, "schema = 2"),
        ({"q": np.zeros((4, 3))}, r"'q' has shape \(4, 3\): expected \(4, 2\)"),
        ({"stamps": np.zeros((4, 1))}, "'stamps' has shape"),
        ({"effort": np.array([["a", "b"]] * 4)}, "'effort' has type"),
        ({"qd": np.zeros((4, 2), complex)}, "'qd' has type"),
        ({"joint_names": np.array([1, 2])}, "'joint_names' has type"),
        ({"joint_names": np.array(["a", "a"])}, "expected different"),
        ({"joint_names": np.zeros(0, "U1"), "q": np.zeros((4, 0))}, "joint_names has 0 entries"),
    ],
)
def test_wrong_arrays_are_named(tmp_path, change, expected):
    arrays = {key: value for key, value in {**good_arrays(), **change}.items() if value is not None}
    np.savez(tmp_path / "a.npz", **arrays)
    with pytest.raises(LogError, match=expected):
        read_log(tmp_path / "a.npz")


class Bomb:
    def __reduce__(self):
        return (pytest.fail, ("a pickle was loaded",))


def test_pickles_are_never_loaded(tmp_path):
    path = tmp_path / "a.npz"
    arrays = good_arrays()
    arrays["q"] = np.array([[Bomb(), Bomb()]] * 4, dtype=object)
    np.savez(path, allow_pickle=True, **arrays)
    with pytest.raises(LogError, match="'q' has a bad header: type object"):
        read_log(path)
    path.write_bytes(pickle.dumps(Bomb()))
    with pytest.raises(LogError, match="cannot be read"):
        read_log(path)


def test_an_array_that_claims_to_be_huge_takes_no_memory(tmp_path):
    path = tmp_path / "a.npz"
    np.savez(path, **good_arrays())
    lie = io.BytesIO()
    np.lib.format.write_array_header_1_0(lie, {"descr": "<f8", "fortran_order": False, "shape": (10**12,)})
    with zipfile.ZipFile(path) as old, zipfile.ZipFile(tmp_path / "b.npz", "w", zipfile.ZIP_DEFLATED) as new:
        for name in old.namelist():
            new.writestr(name, lie.getvalue() if name == "stamps.npy" else old.read(name))
    with pytest.raises(LogError, match="claims 8000000000000 bytes"):
        read_log(tmp_path / "b.npz")


def test_missing_and_unwritable(tmp_path):
    with pytest.raises(LogError, match="no such file"):
        read_log(tmp_path / "none.npz")
    with pytest.raises(LogError, match="cannot be"):
        read_log(tmp_path)
    (tmp_path / "file").write_text("")
    with pytest.raises(LogError, match="cannot be written"):
        write_log(tmp_path / "file" / "a.npz", JOINTS, random_measurements(np.random.default_rng(0)))


def test_whole_numbers_as_stamps_lose_nothing(tmp_path):
    origin = 1_700_000_000_123_456_789
    steps = np.arange(4, dtype=np.int64) * 1_000_003
    for kind in (np.int64, np.uint64):
        np.savez(tmp_path / "a.npz", **{**good_arrays(), "stamps": (origin + steps).astype(kind)})
        log = read_log(tmp_path / "a.npz", "ns")
        assert log.origin_ns == origin // 10**9 * 10**9
        assert np.array_equal(np.rint(log.measurements.stamps * 1e9), 123_456_789 + steps)
        assert np.max(np.abs(log.measurements.stamps - (123_456_789 + steps) / 1e9)) == 0.0
        assert log.stamp_rounding == 0.0
        assert np.median(np.diff(read_log(tmp_path / "a.npz").measurements.stamps)) > 1e5  # a finding, no crash
    np.savez(tmp_path / "b.npz", **{**good_arrays(), "stamps": np.array([0, 2**63, 1, 2], np.uint64)})
    with pytest.raises(LogError, match="2\\^62"):
        read_log(tmp_path / "b.npz")


def test_the_rounding_of_stamps_in_the_file_is_kept(tmp_path):
    stamps = 1.7e9 + np.arange(4) * 1e-3
    for unit, values, least in (
        ("s", stamps, 1e-7),
        ("ms", 1e3 * stamps, 1e-7),
        ("ns", 1e9 * stamps, 1e-7),
        ("s", np.float32([0.0, 0.5, 1.0, 3.0]), 1e-7),
    ):
        np.savez(tmp_path / "a.npz", **{**good_arrays(), "stamps": values})
        log = read_log(tmp_path / "a.npz", unit)
        assert least < log.stamp_rounding < 2e-7
        assert log.select(["j1", "j0"]).stamp_rounding == log.stamp_rounding
        assert load_log(tmp_path / "a.npz", ("j1",), Reading(time_unit=unit)).stamp_rounding > least
    with pytest.raises(LogError, match="time unit"):
        read_log(tmp_path / "a.npz", "h")


def test_a_file_may_lack_velocities_where_that_is_allowed(tmp_path):
    arrays = {"stamps": np.arange(3.0), "q": np.ones((3, 1)), "effort": np.zeros((3, 1))}
    np.savez(tmp_path / "a.npz", joint_names=np.array(["j1"]), **arrays)
    with pytest.raises(LogError, match="no array 'qd'"):
        load_log(tmp_path / "a.npz", ("j1",))
    found = load_log(tmp_path / "a.npz", ("j1",), Reading(may_lack_velocity=True)).measurements
    assert np.all(np.isnan(found.qd))
    assert np.array_equal(found.q, arrays["q"])


_BAG = "rosbag2_bagfile_information: {version: 5, storage_identifier: mcap, relative_file_paths: [x.mcap.zstd], "
BROKEN = {
    "a.npz": b"PK\x03\x04junk",
    "b.csv": b"time,q0\n1,x\n",
    "c.mcap": b"\x89MCAP0\r\njunk",
    "d.db3": b"SQLite format 3\0" + b"x" * 200,
    "e.csv": b"\xff\xfe\x00abc",
    "packed": b"\x28\xb5\x2f\xfdnothing",
}


@pytest.mark.parametrize("name", BROKEN)
def test_what_is_broken_is_named_by_its_own_name(tmp_path, name):
    """A packed bag is unpacked somewhere, a table may be copied: the message names the user's file alone."""
    path = tmp_path / name
    if name == "packed":
        path.mkdir()
        (path / "x.mcap.zstd").write_bytes(BROKEN[name])
        metadata = _BAG + "compression_format: zstd, compression_mode: FILE, topics_with_message_count: [], "
        metadata += "message_count: 0, duration: {nanoseconds: 0}, starting_time: {nanoseconds_since_epoch: 0}}"
        (path / "metadata.yaml").write_text(metadata, encoding="utf-8")
    else:
        path.write_bytes(BROKEN[name])
    with pytest.raises(LogError) as caught:
        load_log(path, JOINTS, Reading())
    told = str(caught.value)
    assert str(path) in told
    assert tempfile.gettempdir() not in told.replace(str(tmp_path), "")


@pytest.fixture(scope="module")
def sound(tmp_path_factory):
    """Bytes of a small log of each kind, by its suffix."""
    folder, m = tmp_path_factory.mktemp("sound"), random_measurements(np.random.default_rng(0), 8)
    write_log(folder / "a.npz", JOINTS, m)
    write_csv(folder / "a.csv", m.stamps, csv_columns(m, lambda word, joint, _: f"{joint}.{word}"))
    bags = [write_bag(folder / plugin, m, JOINTS, range(7), plugin=plugin) for plugin in ("mcap", "sqlite3")]
    return {path.suffix: path.read_bytes() for place in (folder, *bags) for path in place.glob("*.*")}


@pytest.mark.parametrize("suffix", [".npz", ".csv", ".mcap", ".db3"])
@settings(max_examples=150)
@given(data=st.data())
def test_no_junk_gets_past_as_anything_but_one_line(tmp_path_factory, sound, suffix, data):
    content = bytearray(sound[suffix])
    match data.draw(st.sampled_from(["flip", "cut", "text", "noise"])):
        case "flip":
            for _ in range(data.draw(st.integers(1, 20))):
                content[data.draw(st.integers(0, len(content) - 1))] ^= data.draw(st.integers(1, 255))
        case "cut":
            content = content[: data.draw(st.integers(0, len(content) - 1))]
        case "text":
            content = data.draw(st.text(max_size=200)).encode("utf-8", "surrogatepass")
        case "noise":
            content = data.draw(st.binary(max_size=300))
    path = tmp_path_factory.mktemp("junk") / f"a{suffix}"
    path.write_bytes(content)
    log, reason = outcome(load_log, path, JOINTS)
    assert log.joint_names == JOINTS if reason is None else reason and "\n" not in reason
