"""Tables: every common style of names finds its columns, in any order; what is not certain is refused, not guessed."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from log_support import JOINTS, csv_columns, random_measurements, write_csv

from safe_sysid.errors import SafeSysIdError
from safe_sysid.identification.equations.measurements import Measurements
from safe_sysid.logs import LogError
from safe_sysid.logs.formats.csv import read_csv
from safe_sysid.logs.formats.header import find_columns
from safe_sysid.logs.formats.reading import Reading, load_log, read_mapping

SHORT = {"position": "q", "velocity": "dq", "effort": "tau"}
POS = {"position": "pos", "velocity": "vel", "effort": "torque"}
STYLES = {
    "plotjuggler_names": lambda w, j, i: f"/joint_states/{j}/{w}",
    "plotjuggler_numbers": lambda w, j, i: f"/joint_states/{w}[{i}]",
    "plotjuggler_dots": lambda w, j, i: f"/joint_states/{w}.{i}",
    "dotted": lambda w, j, i: f"{j}.{w}",
    "suffix": lambda w, j, i: f"{j}_{POS[w]}",
    "prefix": lambda w, j, i: f"{w}_{j}",
    "short_glued": lambda w, j, i: f"{SHORT[w]}{i + 1}",
    "short_brackets": lambda w, j, i: f"{SHORT[w]}[{i}]",
    "ur": lambda w, j, i: f"actual_{ {'position': 'q', 'velocity': 'qd', 'effort': 'torque'}[w] }_{i}",
    "rostopic": lambda w, j, i: f"field.{w}{i}",
    "units": lambda w, j, i: f"{w.upper()} {j} [{ {'position': 'rad', 'velocity': 'rad/s', 'effort': 'Nm'}[w] }]",
    "q_dot": lambda w, j, i: f"{ {'position': 'q', 'velocity': 'q_dot', 'effort': 'tau'}[w] }_{i}",
}


def exact(log, m):
    return all(np.array_equal(getattr(log.measurements, k), getattr(m, k)) for k in ("stamps", "q", "qd", "effort"))


@pytest.mark.parametrize("style", STYLES)
@pytest.mark.parametrize("delimiter", [",", ";", "\t"])
def test_every_style_is_read_exactly_in_any_order_with_strangers(tmp_path, style, delimiter):
    rng = np.random.default_rng(sum(map(ord, style)))
    m = random_measurements(rng)
    columns = csv_columns(m, STYLES[style], rng.permutation(7))
    strangers = {"battery": rng.normal(size=50), "/joint_states/finger/position": rng.normal(size=50)}
    strangers |= {"target_q_3": rng.normal(size=50), "joint_1_temperature": rng.normal(size=50)}
    write_csv(tmp_path / "a.csv", m.stamps, {**strangers, **columns}, delimiter)
    log = read_csv(tmp_path / "a.csv", JOINTS)
    assert log.joint_names == JOINTS
    assert exact(log, m)


@settings(max_examples=40)
@given(order=st.permutations(list(range(10))), style=st.sampled_from(["dotted", "prefix", "suffix"]))
def test_names_that_begin_alike_are_told_apart(order, style):
    joints = tuple(f"joint_{i}" for i in range(1, 11))  # joint_1 and joint_10
    names = [STYLES[style](w, joints[j], j) for j in order for w in ("position", "velocity", "effort")]
    found = find_columns(["t", *names], joints, {}, "here")
    for quantity, word in (("q", "position"), ("qd", "velocity"), ("effort", "effort")):
        assert [(["t", *names])[i] for i in found.joints[quantity]] == [
            STYLES[style](word, joint, j) for j, joint in enumerate(joints)
        ]
    assert not found.by_index


@pytest.mark.parametrize(
    ("name", "scale", "option"),
    [
        *[(name, 1.0, None) for name in ("time", "t", "header.stamp", "__time")],
        *[("timestamp_ns", 1e9, None), ("stamp_ms", 1e3, None), ("time_us", 1e6, None), ("Timestamp [ns]", 1e9, None)],
        ("stamp", 1e3, "ms"),
    ],
)
def test_stamps_and_their_units(tmp_path, name, scale, option):
    m = random_measurements(np.random.default_rng(0))
    write_csv(tmp_path / "a.csv", m.stamps * scale, csv_columns(m, STYLES["dotted"]))
    text = (tmp_path / "a.csv").read_text().replace("time", name, 1)
    (tmp_path / "a.csv").write_text(text)
    log = read_csv(tmp_path / "a.csv", JOINTS, time_unit=option)
    assert np.allclose(log.measurements.stamps, m.stamps, rtol=1e-12, atol=0)


@pytest.mark.parametrize("form", ["ns", "s", "sec_nanosec"])
def test_stamps_since_1970_keep_their_nanoseconds(tmp_path, form):
    m = random_measurements(np.random.default_rng(0))
    ns = 1_700_000_000_000_000_000 + np.round(m.stamps * 1e9).astype(np.int64)
    columns = csv_columns(m, STYLES["dotted"])
    if form == "ns":
        header, stamps = "stamp_ns", [str(x) for x in ns]
    elif form == "s":
        header, stamps = "stamp", [f"{x // 10**9}.{x % 10**9:09d}" for x in ns]
    else:
        header, stamps = "header.stamp.sec", [str(x // 10**9) for x in ns]
        columns = {"header.stamp.nanosec": [str(x % 10**9) for x in ns], **columns}
    write_csv(tmp_path / "a.csv", stamps, columns)
    (tmp_path / "a.csv").write_text((tmp_path / "a.csv").read_text().replace("time", header, 1))
    log = read_csv(tmp_path / "a.csv", JOINTS)
    assert log.origin_ns == 1_700_000_000_000_000_000
    assert np.max(np.abs(log.measurements.stamps - (ns - log.origin_ns) * 1e-9)) < 1e-12


def test_degrees_by_name_and_by_option(tmp_path):
    m = random_measurements(np.random.default_rng(0))
    degrees = Measurements(m.stamps, np.rad2deg(m.q), np.rad2deg(m.qd), m.effort)
    write_csv(tmp_path / "a.csv", m.stamps, csv_columns(degrees, STYLES["dotted"]))
    named = csv_columns(degrees, lambda w, j, i: f"{j}_{w}" + ("" if w == "effort" else "_deg"))
    write_csv(tmp_path / "b.csv", m.stamps, named)
    for log in (read_csv(tmp_path / "a.csv", JOINTS, angles="deg"), read_csv(tmp_path / "b.csv", JOINTS)):
        assert np.allclose(log.measurements.q, m.q, rtol=1e-14)
        assert np.allclose(log.measurements.qd, m.qd, rtol=1e-14)
        assert np.array_equal(log.measurements.effort, m.effort)


def test_explicit_columns_and_mapping_file_say_the_same(tmp_path):
    m = random_measurements(np.random.default_rng(0))
    columns = csv_columns(m, lambda w, j, i: f"{'abc'[('position', 'velocity', 'effort').index(w)]}{'xyzuvwr'[i]}")
    write_csv(tmp_path / "a.csv", m.stamps, columns)
    explicit = {
        f"{j}.{w}": f"{c}{'xyzuvwr'[i]}" for i, j in enumerate(JOINTS) for w, c in zip(SHORT, "abc", strict=True)
    }
    assert exact(read_csv(tmp_path / "a.csv", JOINTS, explicit), m)
    lines = ["time: time", "joints:"]
    for i, j in enumerate(JOINTS):
        lines.append(f"  {j}: {{position: a{'xyzuvwr'[i]}, velocity: b{'xyzuvwr'[i]}, effort: c{'xyzuvwr'[i]}}}")
    (tmp_path / "map.yaml").write_text("\n".join(lines))
    assert exact(load_log(tmp_path / "a.csv", JOINTS, read_mapping(tmp_path / "map.yaml")), m)
    with pytest.raises(LogError, match="no column 'nix'"):
        read_csv(tmp_path / "a.csv", JOINTS, {**explicit, "joint_1.position": "nix"})
    with pytest.raises(LogError, match=r"meant twice|used"):
        read_csv(tmp_path / "a.csv", JOINTS, {**explicit, "joint_1.position": "ay"})
    with pytest.raises(LogError, match=r"expected time, or JOINT\.position"):
        read_csv(tmp_path / "a.csv", JOINTS, {**explicit, "elbow.position": "ay"})


def test_rename_maps_the_files_joints_to_the_robots(tmp_path):
    m = random_measurements(np.random.default_rng(0))
    theirs = tuple(f"arm_{letter}" for letter in "abcdefg")
    write_csv(tmp_path / "a.csv", m.stamps, csv_columns(m, STYLES["dotted"], joints=theirs))
    rename = dict(zip(theirs, JOINTS, strict=True))
    assert exact(load_log(tmp_path / "a.csv", JOINTS, Reading(rename=rename)), m)
    with pytest.raises(LogError, match="rename"):
        load_log(tmp_path / "a.csv", JOINTS, Reading(rename={"arm_a": "elbow"}))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("nonsense: 1", "no such key"),
        ("joints: {joint_1: {place: a}}", "expected one of position"),
        ("joints: [1]", "expected a mapping"),
        ("angles: grad", "angles"),
        ("time: 3", "expected a name"),
    ],
)
def test_mapping_files_are_checked(tmp_path, text, expected):
    (tmp_path / "map.yaml").write_text(text)
    with pytest.raises(SafeSysIdError, match=expected):
        read_mapping(tmp_path / "map.yaml")


def written(path, change=lambda text: text, count=50):
    """A table of so many samples with its text changed, and its measurements."""
    m = random_measurements(np.random.default_rng(3), count)
    write_csv(path, m.stamps, csv_columns(m, STYLES["dotted"]))
    path.write_text(change(path.read_text()))
    return m


def with_lines(change):
    """The change of a text that changes its lines so."""
    return lambda text: "\n".join(change(text.splitlines())) + "\n"


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (lambda x: [], "empty"),
        (lambda x: ["", ""], "empty"),
        (lambda x: x[:1], "no samples"),
        (lambda x: x[1:], "holds numbers: expected column names"),
        (lambda x: [*x[:5], x[5].rpartition(",")[0], *x[6:]], "line 6 has 21 columns: expected 22"),
        (lambda x: [*x[:5], x[5] + ",1", *x[6:]], "line 6 has 23 columns"),
        (lambda x: [*x[:5], x[5].replace(x[5].split(",")[2], "abc"), *x[6:]],
         "line 6, column 'joint_1.velocity': 'abc'"),
        (lambda x: [x[0].replace("joint_3.effort", "joint_3.current"), *x[1:]], "no column for effort of joint_3"),
        (lambda x: [x[0].replace("joint_3.effort", "joint_2.tau"), *x[1:]], "could both be the effort of joint_2"),
        (lambda x: [x[0].replace("joint_3.effort", "joint_2.effort"), *x[1:]], "appears twice"),
        (lambda x: [x[0].replace("time", "epoch"), *x[1:]], "no time column"),
        (lambda x: [x[0].replace("joint_3.effort", "t"), *x[1:]], "no column for effort of joint_3"),
        (lambda x: [x[0].replace(".effort", ".tau_ext_hat_filtered"), *x[1:]],
         "external torques are no efforts, which"),
        (lambda x: [x[0].replace("joint_3.effort", "wrench.force.x"), *x[1:]], "a wrench at the tool and external"),
    ],
)  # fmt: skip
def test_malformed_files_are_refused_where_they_are_wrong(tmp_path, change, expected):
    written(tmp_path / "a.csv", with_lines(change))
    with pytest.raises(LogError, match=expected):
        read_csv(tmp_path / "a.csv", JOINTS)


def test_numbers_that_do_not_count_up_are_not_guessed(tmp_path):
    m = random_measurements(np.random.default_rng(0), n=8)
    names = [f"joint_{i}" for i in range(8)]
    write_csv(tmp_path / "a.csv", m.stamps, csv_columns(m, STYLES["plotjuggler_numbers"], joints=names))
    with pytest.raises(LogError, match=r"numbered \[0, 1, 2, 3, 4, 5, 6, 7\]: expected 0..6 or 1..7"):
        read_csv(tmp_path / "a.csv", JOINTS)


def test_missing_cells_stay_missing_and_other_topics_lines_are_skipped(tmp_path):
    def change(lines):
        cells = lines[4].split(",")
        cells[3] = ""
        other = lines[6].split(",")[0] + "," * 21
        return [*lines[:4], ",".join(cells), *lines[5:6], other, *lines[6:]]

    m = written(tmp_path / "a.csv", with_lines(change))
    got = read_csv(tmp_path / "a.csv", JOINTS).measurements
    assert len(got) == len(m)
    assert np.isnan(got.effort[3, 0])
    assert np.isnan(got.effort).sum() == 1
    assert np.array_equal(got.q, m.q)


def test_decimal_commas_are_explained(tmp_path):
    m = random_measurements(np.random.default_rng(0), 5)
    write_csv(tmp_path / "a.csv", m.stamps, csv_columns(m, STYLES["dotted"]), ";")
    head, *rest = (tmp_path / "a.csv").read_text().splitlines()
    (tmp_path / "a.csv").write_text("\n".join([head, *(line.replace(".", ",") for line in rest)]))
    with pytest.raises(LogError, match="with a decimal point"):
        read_csv(tmp_path / "a.csv", JOINTS)


def test_huge_numbers_are_refused_with_their_place(tmp_path):
    m = random_measurements(np.random.default_rng(0))
    qd = np.array(m.qd)
    qd[7, 2] = 1e200
    write_csv(tmp_path / "a.csv", m.stamps, csv_columns(Measurements(m.stamps, m.q, qd, m.effort), STYLES["dotted"]))
    with pytest.raises(LogError, match=r"joint_3.velocity = 1e\+200 at .* \(sample 7\)"):
        load_log(tmp_path / "a.csv", JOINTS)


def test_an_incomplete_last_line_is_left_out_wherever_it_ends(tmp_path):
    path = tmp_path / "a.csv"
    for cut in (1, 3, 40, 300):
        m = written(path, lambda text, cut=cut: text[:-cut])
        log = read_csv(path, JOINTS)
        assert np.array_equal(log.measurements.effort, m.effort[:49])
        assert log.columns["cut"]
    written(path)
    assert len(read_csv(path, JOINTS)) == 50
    assert "cut" not in read_csv(path, JOINTS).columns


@pytest.mark.parametrize("before", ["# robot: mine, date\n#\n", "# one\n\n", "#"])
def test_leading_comments_are_skipped_and_names_in_one_are_found(tmp_path, before):
    m = written(tmp_path / "a.csv", lambda text: before + text)
    assert np.array_equal(read_csv(tmp_path / "a.csv", JOINTS).measurements.q, m.q)
    written(tmp_path / "b.csv", lambda text: "# robot: mine\n# " + text)
    assert np.array_equal(read_csv(tmp_path / "b.csv", JOINTS).measurements.q, m.q)


def test_a_table_separated_by_blanks_is_read(tmp_path):
    for blank in (" ", "   "):
        m = written(tmp_path / "a.csv", lambda text, blank=blank: text.replace(",", blank))
        assert np.array_equal(read_csv(tmp_path / "a.csv", JOINTS).measurements.effort, m.effort)
