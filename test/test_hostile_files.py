"""Files that were made to hurt: each is refused in words that name the file, within little time and memory.

All of these once hung, filled the memory, ended the process, or raised what nobody expects.
"""

from __future__ import annotations

import contextlib
import io
import os
import struct
import tracemalloc
import zipfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from fuzz_targets import DAE, OBJ, PLY_HEAD, TARGETS, _arm, _stl, _thing

from safe_sysid.errors import ModelError, SafeSysIdError
from safe_sysid.input_limits import open_regular, read_arrays, read_regular
from safe_sysid.logs.bags.bag_limits import check_bag
from safe_sysid.robot.files.meshes import mesh_path, read_mesh
from safe_sysid.robot.files.urdf import read_urdf
from safe_sysid.robot.files.yaml_file import parse_yaml

FILES = sorted(name for name, target in TARGETS.items() if target.suffix and not name.startswith("run "))


@pytest.mark.parametrize("name", FILES)
@pytest.mark.parametrize("kind", ["pipe", "device", "directory", "missing"])
def test_what_is_no_file_is_refused_at_once(name: str, kind: str, tmp_path: Path) -> None:
    path = tmp_path / f"x{TARGETS[name].suffix}"
    if kind == "pipe":
        os.mkfifo(path)  # opening it to read would wait for a writer for ever
    elif kind == "device":
        path.symlink_to("/dev/zero")
    elif kind == "directory":
        path.mkdir()
    with pytest.raises(SafeSysIdError):
        TARGETS[name].read(path)


def refused(name: str, content: bytes, folder: Path) -> str:
    """The words of a refusal."""
    path = folder / f"x{TARGETS[name].suffix}"
    path.write_bytes(content)
    with pytest.raises(SafeSysIdError) as caught:
        TARGETS[name].read(path if TARGETS[name].suffix else content)
    text = str(caught.value)
    assert len(text) < 2000
    return text


def record(kind: int, body: bytes) -> bytes:
    """Of an mcap file."""
    return struct.pack("<BQ", kind, len(body)) + body


MAGIC = b"\x89MCAP0\r\n"
LAUGH = b"a0: &a0 [x, x, x, x, x, x, x, x, x]\n" + b"".join(
    b"a%d: &a%d [%s]\n" % (i, i, b", ".join([b"*a%d" % (i - 1)] * 9)) for i in range(1, 12)
)
DEEP = 50_000


@pytest.mark.parametrize("name", ["urdf", "urdf of a new arm", "urdf of a payload", "payload", "mesh dae"])
@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        (b"<?xml version", b"<!DOCTYPE r><?xml version", ""),
        (b'"1.0"?>', b'"1.0"?><!DOCTYPE r>', "document type"),
        (b'"1.0"?>', b'"1.0"?><!DOCTYPE r [<!ENTITY a "b">]>', "document type"),
        (b'"1.0"?>', b'"1.0"?><!DOCTYPE r SYSTEM "file:///etc/passwd">', "document type"),
        (b'"1.0"?>', b'"1.0" encoding="utf-7"?>', "encoding"),
        (b'"1.0"?>', b'"1.0"' + b" " * 300 + b'encoding="cp1252"?>', "encoding"),
        (b"</", b"<z>" * DEEP + b"</z>" * DEEP + b"</", "in each other"),
        (b"</", b'<z a="' + b"x" * 5000 + b'"/></', "4096"),
        (b"</", b"<z " + b" ".join(b'a%d=""' % i for i in range(100)) + b"/></", "attributes"),
    ],
)
def test_doubtful_xml_is_refused(name: str, old: bytes, new: bytes, words: str, tmp_path: Path) -> None:
    head = b"" if TARGETS[name].seeds()[0].startswith(b"<?xml") else b'<?xml version="1.0"?>'
    assert words in refused(name, (head + TARGETS[name].seeds()[0]).replace(old, new, 1), tmp_path)


@pytest.mark.parametrize("number", ["1_0", "\u0661", "0x10", "nan", "1e999", "1 2", "1\u00a0"])
def test_numbers_that_two_parsers_read_differently_are_refused(number: str, tmp_path: Path) -> None:
    text = _arm().decode().replace('mass value="1"', f'mass value="{number}"')
    assert "mass" in refused("urdf", text.encode(), tmp_path)


def test_pinocchio_gets_the_numbers_that_were_checked(tmp_path: Path) -> None:
    path = tmp_path / "x.urdf"
    path.write_bytes(_arm().replace(b'xyz="0 0 0.1"', b'xyz="&#9;0&#10;0  0.1"'))
    assert 'xyz="0.0 0.0 0.1"' in read_urdf(path).text_for_pinocchio(())


def test_long_chains_do_not_reach_pinocchio(tmp_path: Path) -> None:
    links = "".join(
        f'<link name="k{i}"/><joint name="f{i}" type="fixed"><parent link="{"x" if i == 0 else f"k{i - 1}"}"/>'
        f'<child link="k{i}"/></joint>'
        for i in range(1001)
    )
    content = _thing().replace(b"</robot>", links.encode() + b"</robot>")
    assert "more than 1000" in refused("payload", content, tmp_path)  # its recursion ended the process
    assert "mesh" in refused("payload", content.replace(b'<box size="1 1 1"/>', b'<mesh filename="/etc/passwd"/>')
                             .replace(links.encode(), b""), tmp_path)  # fmt: skip


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (LAUGH.decode(), "aliases written out"),
        ("a: &a [*a]", "alias of itself"),
        ("a: " + "[" * DEEP, "levels"),
        ("a: " + "{a: " * DEEP, "levels"),
        ("a: !!bool x", "YAML"),
        ("a: !!timestamp x", "YAML"),
        ("a: !!binary eA==", "binary"),
        ("a: !!set {x}", "set"),
        ("a: 0x" + "f" * 5000, "digits"),
        ("a: " + "9" * 5000, "digits"),
        ("a: x\n" * 100_000, "at most"),
        (
            "b: &b {" + ",".join(f"k{i}: 1" for i in range(2000)) + "}\nm: {<<: [" + ",".join(["*b"] * 100) + "]}",
            "aliases",
        ),
    ],
)
def test_yaml_that_grows_is_refused(text: str, words: str) -> None:
    with pytest.raises(SafeSysIdError, match=words):
        parse_yaml(text, "x.yaml")


STL = _stl()[0]


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("mesh stl", STL[:80] + b"\xff\xff\xff\xff" + STL[84:]),
        ("mesh stl", b"solid x\n" + b"vertex 0 0 0\n" * 3),
        ("mesh stl", DAE.replace(b'meter="1"', b'meter="0.0254"')),  # another format, in units that STL has not
        ("mesh ply", PLY_HEAD.format("ascii").replace("vertex 4", "vertex 100000000").encode() + b"0 0 0\n"),
        ("mesh ply", PLY_HEAD.format("ascii").replace("face 2", "face 4000000000").encode()),
        ("mesh ply", b"ply\nformat ascii 1.0\n" + b"comment x\n" * 10),
        ("mesh ply", PLY_HEAD.format("ascii").encode() + b"0 0 0\n1 0 0\n0 1 0\n0 0 1\n3 0 1 77\n3 0 1 2\n"),
        ("mesh obj", OBJ + b"f 1 2 99999999\n"),
        ("mesh obj", OBJ + b"f " + b"1 " * 20_000 + b"\n"),
        ("mesh obj", OBJ.replace(b"v 1 0 0", b"v 1e30 0 0")),
        ("mesh dae", DAE.replace(b'count="4"', b'count="4000000000"')),
        ("mesh dae", DAE.replace(b">0 1 2 0 1 3<", b">0 1 2 0 1 99<")),
        ("mesh dae", DAE.replace(b'<node id="n">', b'<node id="n">' + b"<node>" * 900 + b"</node>" * 900)),
    ],
)
def test_meshes_that_lie_are_refused(name: str, content: bytes, tmp_path: Path) -> None:
    assert "mesh" in refused(name, content, tmp_path)


def test_nodes_that_show_themselves_are_no_trouble(tmp_path: Path) -> None:
    path = tmp_path / "x.dae"
    path.write_bytes(DAE.replace(b'<node id="n">', b'<node id="n"><instance_node url="#n"/>'))
    assert len(read_mesh(path)[1]) == 4


@pytest.mark.parametrize("content", [OBJ, b"mtllib /dev/zero\n" + OBJ, b"mtllib ../../../etc/passwd\n" + OBJ])
def test_a_mesh_opens_no_other_file(content: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "x.obj"
    path.write_bytes(content)
    opened: list[object] = []
    original: Callable[..., int] = os.open
    monkeypatch.setattr(os, "open", lambda *a, **k: (opened.append(a[0]), original(*a, **k))[1])
    assert len(read_mesh(path)[1]) == 4
    assert opened == [path]


@pytest.mark.parametrize(
    "name",
    [
        "package://../../etc/passwd", "package://a/../../x.stl", "package://a/%2e%2e/x.stl", "package://a//etc/passwd",
        "package://..", "file://elsewhere/x.stl", "http://x/y.stl", "//[x", "file://[::1", "a\0b", "a" * 5000,
        "\ud800.stl", "/dev/zero", "file:///dev/zero",
    ],
)  # fmt: skip
def test_names_that_lead_elsewhere_are_refused(name: str, tmp_path: Path) -> None:
    with pytest.raises(ModelError):
        mesh_path(name, tmp_path / "x.urdf")


@pytest.mark.parametrize("name", ["log npz", "tare"])
@pytest.mark.parametrize(
    "header", [b"(" * 5000, b"{'descr': '<f8', 'shape': (2L,)", b"{'descr': '|O', 'fortran_order': False, 'shape': ()}"]
)
def test_array_headers_that_break_the_parser_are_refused(name: str, header: bytes, tmp_path: Path) -> None:
    array = b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header) + 1) + header + b"\n"
    with zipfile.ZipFile(tmp_path / "y.npz", "w") as archive:
        for member in ("json", "stamps", "q", "qd", "effort", "joint_names"):
            archive.writestr(f"{member}.npy", array)
    assert "x.npz" in refused(name, (tmp_path / "y.npz").read_bytes(), tmp_path)


def test_archives_that_unpack_to_much_more_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "x.npz"
    np.savez_compressed(path, stamps=np.zeros(10_000_000))  # 80 MB in 80 kB
    with pytest.raises(ValueError, match="unpacked"):
        read_arrays(path)
    assert "unpacked" in refused("log npz", path.read_bytes(), tmp_path)


def test_files_that_grow_while_they_are_read_are_refused() -> None:
    with pytest.raises(OSError, match="at most 10"):
        read_regular("/proc/cpuinfo", 10)  # says that it has 0 bytes
    with pytest.raises(OSError, match="regular"):
        open_regular("/dev/null")


def test_times_with_huge_exponents_take_no_time(tmp_path: Path) -> None:
    head = b"time,a.position,b.position,a.velocity,b.velocity,a.effort,b.effort\n"
    (tmp_path / "x.csv").write_bytes(head + b"1e400000,1,1,1,1,1,1\n1,1,1,1,1,1,1\n")
    TARGETS["log csv"].read(tmp_path / "x.csv")  # stamps that are none: the checks of the log tell


def test_bags_whose_chunks_are_bombs_are_refused(tmp_path: Path) -> None:
    zstd = pytest.importorskip("backports.zstd")
    data = zstd.compress(bytes(64 << 20))
    body = struct.pack("<QQQII", 0, 0, 100, 0, 4) + b"zstd" + struct.pack("<Q", len(data)) + data
    content = MAGIC + record(6, body) + bytes(9) + MAGIC
    assert "unpacks to" in refused("bag mcap", content, tmp_path)
    (tmp_path / "metadata.yaml").write_text("rosbag2_bagfile_information: {compression_mode: FILE}")
    (tmp_path / "x.mcap").unlink()
    (tmp_path / "x.mcap.zstd").write_bytes(zstd.compress(content))
    with pytest.raises(SafeSysIdError, match="zstd: byte 8: a chunk"):
        check_bag(tmp_path)
    assert "unpacks to" in refused("bag recovery", content[:-8], tmp_path)


def test_the_library_of_mcap_unpacks_what_it_was_not_told_of() -> None:
    """Why the records are walked by our own code: limits for whole records do not stop either of these."""
    zstd = pytest.importorskip("backports.zstd")
    mcap = pytest.importorskip("mcap.stream_reader", reason="needs the extra `dev`")
    data = zstd.compress(bytes(16 << 20))
    chunk = mcap.Chunk("zstd", data, 0, 0, 0, 100)
    assert len(data) < 64 << 10
    assert mcap.get_chunk_data_stream(chunk)[1] == 16 << 20, "it is told of 100 bytes"
    index = struct.pack("<HI", 0, 1 << 19) + b"\x01" * (1 << 19)
    content = MAGIC + record(7, index)
    tracemalloc.start()
    try:
        next(iter(mcap.StreamReader(io.BytesIO(content)).records))
        assert tracemalloc.get_traced_memory()[1] > 5 * len(content), "an object for each of its entries"
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("hidden", ["chunk", "summary", "footer"])
def test_bags_whose_index_names_what_other_records_hide_are_refused(hidden: str, tmp_path: Path) -> None:
    """The library follows the index to wherever it leads, into the middle of records that hold anything."""
    data = b"zzzz"
    head = MAGIC + record(1, struct.pack("<I", 4) + b"ros2" + struct.pack("<I", 0))
    chunk = record(6, struct.pack("<QQQII", 0, 0, 4, 0, 0) + struct.pack("<Q", len(data)) + data)
    attached = {"chunk": record(9, chunk), "summary": chunk, "footer": chunk}[hidden]
    start = len(head) + (9 if hidden == "chunk" else 0)
    index = record(8, struct.pack("<QQQQIQIQQ", 0, 0, start, len(chunk), 0, 0, 0, len(data), 4))
    summary = len(head) + len(attached) + (9 if hidden == "summary" else 0)
    footer = record(2, struct.pack("<QQI", summary, 0, 0))
    tail = {"chunk": index + footer, "summary": record(9, index) + footer, "footer": record(9, index + footer)}[hidden]
    assert "an index of what is not there" in refused("bag mcap", head + attached + tail + MAGIC, tmp_path)


def test_files_that_only_the_metadata_of_a_bag_name_are_checked_too(tmp_path: Path) -> None:
    bag = tmp_path / "bag"
    bag.mkdir()
    (bag / "metadata.yaml").write_text("rosbag2_bagfile_information: {relative_file_paths: [x/data.bin]}")
    (bag / "data.bin").symlink_to("/dev/zero")
    with pytest.raises(SafeSysIdError, match=r"data\.bin.*regular file"):
        check_bag(bag)


@pytest.mark.parametrize("compression", ["", "zstd"])
def test_messages_that_are_bombs_are_refused_in_chunks(compression: str, tmp_path: Path) -> None:
    zstd = pytest.importorskip("backports.zstd")
    (tmp_path / "metadata.yaml").write_text("rosbag2_bagfile_information: {compression_mode: MESSAGE}")
    for size, fits in ((1000, True), (65 << 20, False)):
        inner = record(5, bytes(22) + zstd.compress(bytes(size)))
        data = zstd.compress(inner) if compression else inner
        head = struct.pack("<QQQII", 0, 0, len(inner), 0, len(compression)) + compression.encode()
        content = record(6, head + struct.pack("<Q", len(data)) + data)
        (tmp_path / "x.mcap").write_bytes(MAGIC + content + MAGIC)
        with contextlib.nullcontext() if fits else pytest.raises(SafeSysIdError, match="message unpacks to"):
            check_bag(tmp_path)


def test_more_polygons_than_are_drawn_are_refused_before_they_are_read(tmp_path: Path) -> None:
    corners = b"0 0 0\n1 0 0\n0 1 0\n"
    obj = b"v " + corners.strip().replace(b"\n", b"\nv ") + b"\nf 1 2 3" * 500_001 + b"\nf 9 9 9"
    assert "500001 triangles" in refused("mesh obj", obj, tmp_path)
    head = b"ply\nformat binary_little_endian 1.0\nelement vertex 3\nproperty uchar x\nproperty uchar y\n"
    head += b"property uchar z\nelement face 500001\nproperty list uchar uchar vertex_indices\nend_header\n"
    assert "500001 triangles" in refused("mesh ply", head + bytes(9 + 500_001), tmp_path)


def test_vertices_at_infinity_shift_no_others(tmp_path: Path) -> None:
    content = b"v 9 9 9 0\nv 0 0 0\nv 1 0 0\nv 0 1 0\nv 5 5 5\nf 2 3 4\n"
    assert "infinity" in refused("mesh obj", content, tmp_path)
