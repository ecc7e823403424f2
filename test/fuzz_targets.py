"""Every parser of files as a target for fuzzing: a valid file to begin with, and what reads it.

One registry for the tests (hypothesis) and for campaigns (``benchmarks/fuzz_files.py``, atheris): a target takes bytes
and either returns or raises :class:`SafeSysIdError`; anything else is a bug.
"""

from __future__ import annotations

import io
import json
import shutil
import struct
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from safe_sysid.core.layout import PAYLOAD_NAMES, PAYLOAD_UNITS
from safe_sysid.errors import SafeSysIdError
from safe_sysid.identification.certificates.files.update import read_certificate
from safe_sysid.identification.tare.file import read_tare
from safe_sysid.logs.bags.bag_recovery import recover_bag
from safe_sysid.logs.bags.rosbag import read_bag
from safe_sysid.logs.bounds_file import read_bounds
from safe_sysid.logs.formats.csv import read_csv
from safe_sysid.logs.formats.npz import read_log
from safe_sysid.logs.formats.reading import read_mapping
from safe_sysid.logs.online.configuration import read_configuration
from safe_sysid.logs.online.journal import read_entry
from safe_sysid.new_arm.arm_facts import look_at
from safe_sysid.planning.plan_files.plan_file import read_plan
from safe_sysid.report.run.logs import read_logs
from safe_sysid.resources import resource_path
from safe_sysid.robot.config import load_settings
from safe_sysid.robot.files.meshes import mesh_path, read_mesh
from safe_sysid.robot.files.rigid_body import rigid_body_text
from safe_sysid.robot.files.urdf import read_urdf
from safe_sysid.robot.scenes.scene import load_scene
from safe_sysid.simulation.payloads import payload_from_spec
from safe_sysid.studies.campaign.results import SCHEMA as CAMPAIGN_SCHEMA
from safe_sysid.studies.campaign.results import read_results
from safe_sysid.studies.experiments.cell.workcell import load_workcell

__all__ = ["TARGETS", "Target", "run"]

JOINTS = ("a", "b")


@dataclass(frozen=True)
class Target:
    """One parser.

    Attributes:
        name: of the target.
        suffix: of the file; empty if a text is read.
        read: reads a path, or a text.
        seeds: valid inputs.
        words: pieces that mutations put in.
    """

    name: str
    suffix: str
    read: Callable[[Any], object]
    seeds: Callable[[], tuple[bytes, ...]]
    words: tuple[bytes, ...] = ()


XML_WORDS = (
    b"<!DOCTYPE r [<!ENTITY a 'b'>]>", b"&a;", b"<?xml version='1.0' encoding='utf-7'?>", b"<mujoco/>", b"nan",
    b"1e999", b"1_0", b"\xd9\xa1", b"<link/>", b"<joint/>", b"</robot>", b"<!--", b"<![CDATA[", b'name=""',
    b"-1", b"&#1;", b"\0",
)  # fmt: skip
YAML_WORDS = (
    b"&a ", b"*a", b"<<: ", b"!!binary ", b"!!python/object:x ", b"[", b"{", b"? ", b".nan", b".inf", b"1e999",
    b"0x" + b"f" * 500, b"9" * 500, b"- ", b": ", b"\n", b"null", b"2026-99-99", b"!!bool x", b"!!timestamp x",
)  # fmt: skip
JSON_WORDS = (
    b"NaN",
    b"1e999",
    b"9" * 5000,
    b"[" * 2000,
    b"{",
    b"}",
    b"null",
    b'"',
    b"\\ud800",
    b"-1",
    b"[]",
    b"{}",
    b"true",
)
BYTES = (b"\xff\xff\xff\xff", b"\0\0\0\0", b"\xff" * 8, b"\x7f", b"\x00\x00\x80\x7f")


def _arm(more: str = "") -> bytes:
    inertial = (
        '<inertial><origin xyz="0 0 0.1" rpy="0 0 0"/><mass value="1"/>'
        '<inertia ixx="0.1" ixy="0" ixz="0" iyy="0.1" iyz="0" izz="0.1"/></inertial>'
    )
    links = '<link name="base"/>' + "".join(
        f'<link name="l_{j}">{inertial}<collision><geometry><cylinder radius="0.05" length="0.2"/></geometry>'
        "</collision></link>"
        for j in JOINTS
    )
    parents = ("base", "l_a")
    joints = "".join(
        f'<joint name="{j}" type="revolute"><parent link="{p}"/><child link="l_{j}"/><origin xyz="0 0 0.2"/>'
        '<axis xyz="0 1 0"/><limit lower="-2" upper="2" effort="10" velocity="1"/></joint>'
        for j, p in zip(JOINTS, parents, strict=True)
    )
    tool = '<link name="tool0"/><joint name="t" type="fixed"><parent link="l_b"/><child link="tool0"/></joint>'
    return f'<?xml version="1.0"?><robot name="r">{links}{joints}{tool}{more}</robot>'.encode()


def _thing() -> bytes:
    return (
        b'<robot name="t"><link name="x"><inertial><mass value="1"/><inertia ixx="1" ixy="0" ixz="0" iyy="1" iyz="0" '
        b'izz="1"/></inertial><collision><geometry><box size="1 1 1"/></geometry></collision></link></robot>'
    )


def _tetrahedron() -> np.ndarray:
    return np.array([[0.0, 0, 0], [1, 0, 0], [0, 1, 0], [0, 0, 1]])[[0, 2, 1, 0, 1, 3, 1, 2, 3, 2, 0, 3]]


def _stl() -> tuple[bytes, ...]:
    corners = _tetrahedron().reshape(-1, 9).astype("<f4")
    body = b"".join(bytes(12) + row.tobytes() + bytes(2) for row in corners)
    text = "solid x\n" + "".join(
        "facet normal 0 0 0\nouter loop\n"
        + "".join(f"vertex {p[0]} {p[1]} {p[2]}\n" for p in row.reshape(3, 3))
        + "endloop\nendfacet\n"
        for row in corners
    )
    return bytes(80) + struct.pack("<I", len(corners)) + body, (text + "endsolid x\n").encode()


OBJ = b"mtllib x.mtl\nv 0 0 0\nv 1 0 0\nv 0 1 0 1\nv 0 0 1\nf 1/1 2/2 3/3\nf -4 -3 -1\nf 1 3 4\nf 2 3 4\n"
PLY_HEAD = (
    "ply\nformat {} 1.0\ncomment x\nelement vertex 4\nproperty float x\nproperty float y\nproperty float z\n"
    "element face 2\nproperty list uchar int vertex_indices\nend_header\n"
)
PLY = (
    PLY_HEAD.format("ascii").encode() + b"0 0 0\n1 0 0\n0 1 0\n0 0 1\n3 0 1 2\n4 0 1 2 3\n",
    PLY_HEAD.format("binary_little_endian").encode()
    + np.array([[0, 0, 0], [1, 0, 0], [0, 1, 0], [0, 0, 1]], "<f4").tobytes()
    + struct.pack("<BiiiBiii", 3, 0, 1, 2, 3, 1, 2, 3),
)
DAE = (
    b'<?xml version="1.0"?><COLLADA><asset><unit meter="1"/></asset><library_geometries><geometry id="g"><mesh>'
    b'<source id="p"><float_array id="a" count="12">0 0 0 1 0 0 0 1 0 0 0 1</float_array><technique_common>'
    b'<accessor source="#a" count="4" stride="3"><param name="X"/><param name="Y"/><param name="Z"/></accessor>'
    b'</technique_common></source><vertices id="v"><input semantic="POSITION" source="#p"/></vertices>'
    b'<triangles count="2"><input semantic="VERTEX" source="#v" offset="0"/><p>0 1 2 0 1 3</p></triangles>'
    b'<polylist count="1"><input semantic="VERTEX" source="#v" offset="0"/><vcount>4</vcount><p>0 1 2 3</p></polylist>'
    b'</mesh></geometry></library_geometries><library_visual_scenes><visual_scene id="s"><node id="n">'
    b'<instance_geometry url="#g"/></node></visual_scene></library_visual_scenes></COLLADA>'
)


def _config(name: str) -> Callable[[], tuple[bytes, ...]]:
    return lambda: (resource_path(name).read_bytes(),)


SCENE = (
    b"name: s\nboxes:\n- {name: table, xyz: [0, 0, -0.1], size: [1, 1, 0.1]}\nspheres:\n- {name: ball, xyz: [1, 0, 0], "
    b"radius: 0.1}\ncapsules: []\nzonotopes:\n- {name: z, xyz: [0, 0, 2], generators: [[0.1, 0, 0], [0, 0.1, 0]]}\n"
)


def _bounds() -> tuple[bytes, ...]:
    rows = "".join(
        f"  {name}: {{unit: {unit}, lower: 0.0, nominal: 0.5, upper: 1.0}}\n"
        for name, unit in zip(PAYLOAD_NAMES, PAYLOAD_UNITS, strict=True)
    )
    head = f"schema: 2\nrobot: r\nidentity: '{'0' * 64}'\njoint: b\nepoch: 0\nseq: 1\nmethod: lp\nguaranteed: true\n"
    return (f"{head}bounds:\n{rows}assumed: {{gravity: [0.0, 0.0, -9.81]}}\n".encode(),)


def _npz() -> tuple[bytes, ...]:
    arrays: dict[str, Any] = {name: np.arange(6.0).reshape(3, 2) for name in ("q", "qd", "effort")}
    arrays |= {
        "stamps": np.arange(3.0),
        "joint_names": np.array(JOINTS),
        "schema": np.int64(1),
        "origin_ns": np.int64(5),
    }
    plain, packed = io.BytesIO(), io.BytesIO()
    np.savez(plain, **arrays)
    np.savez_compressed(packed, **arrays)
    return plain.getvalue(), packed.getvalue()


def _tare() -> tuple[bytes, ...]:
    names = ("matrix", "target", "slack", "sigma", "parts", "start", "end", "joint", "first", "last", "ramp", "box_seq")
    arrays: dict[str, Any] = {name: np.zeros(1) for name in (*names, "drift", "before", "after")}
    head = {"schema": 1, "robot": "r", "arm": {}, "log_hash": "0", "errors": {}, "samples": 3, "joint_names": ["a"]}
    out = io.BytesIO()
    np.savez(out, json=np.array(json.dumps(head)), **arrays)
    return (out.getvalue(),)


CSV = (
    b"time,a.position,b.position,a.velocity,b.velocity,a.effort,b.effort\n0,1,2,3,4,5,6\n0.1,1,2,3,4,5,6\n",
    b'# x\nstamp;a_pos;b_pos;a_vel;b_vel;a_eff;b_eff\n1700000000.123456789;1;2;3;4;5;"6"\n',
)


@cache
def _bag_store() -> Any:
    from rosbags.typesys import Stores, get_typestore

    return get_typestore(Stores.ROS2_JAZZY)


def _bag(plugin: str) -> tuple[bytes, ...]:
    from rosbags.rosbag2 import StoragePlugin, Writer

    store = _bag_store()
    types = store.types
    kind = "sensor_msgs/msg/JointState"
    with tempfile.TemporaryDirectory() as folder:
        bag = Path(folder) / "bag"
        with Writer(bag, version=9, storage_plugin=StoragePlugin[plugin]) as writer:
            connection = writer.add_connection("/joint_states", kind, typestore=store)
            for i in range(3):
                stamp = types["builtin_interfaces/msg/Time"](i, 0)
                header = types["std_msgs/msg/Header"](stamp, "")
                message = types[kind](header, list(JOINTS), np.ones(2), np.ones(2), np.ones(2))
                writer.write(connection, i * 10**9, store.serialize_cdr(message, kind))
        return tuple(file.read_bytes() for file in bag.iterdir() if file.suffix in (".mcap", ".db3"))


def _plan() -> tuple[bytes, ...]:
    head: dict[str, Any] = {
        "schema": "safe_sysid/plan/2",
        "written_by": "x",
        "robot": {"name": "r"},
        "scene": {},
        "gains": {},
    }
    knots = [[[0.0], [0.0], [0.0]], [[1.0], [0.0], [0.0]]]
    head["plan"] = {"sequence": 0, "start_time": 0.0, "t_plan": 1.0, "times": [0.0, 1.0], "knots": knots, "k": [0.5]}
    head["box"] = {"epoch": 0, "seq": 0, "lower": [0.0] * 14, "upper": [1.0] * 14}
    claim = {"smallest": 0.1, "unit": "m", "time": 0.0, "culprit": "x"}
    head["certificate"] = {"intervals": 1, "clearance_margin": 0.0, "families": {"torque": claim}}
    head |= {"witness": {"pairs": 1, "grid": [0.0, 1.0], "directions": "eJw="}, "sha256": "0" * 64}
    return (json.dumps(head).encode(),)


def _certificate() -> tuple[bytes, ...]:
    head: dict[str, Any] = {"schema": "safe_sysid/identification-certificate/1", "epoch": 0, "seq": 0, "method": "lp"}
    head |= {
        "robot": {"urdf": {"joint_names": ["a"]}},
        "log": {"sha256": "0" * 64, "samples": 1},
        "previous_sha256": None,
    }
    head["arrays"] = {"sha256": "0" * 64, "rows": 1, "cuts": 0}
    head["bounds"] = [
        {"name": n, "unit": u, "lower": 0.0, "upper": 1.0} for n, u in zip(PAYLOAD_NAMES, PAYLOAD_UNITS, strict=True)
    ]
    return (json.dumps(head).encode(),)


def _entry() -> tuple[bytes, ...]:
    head = {"number": 0, "before": "", "utc": "2026-05-01T14:00:00+00:00"}
    jobs: tuple[dict[str, Any], ...] = (
        {"job": "begin", "method": "lp", "temperature": None, "tare": None, "bounds": None},
        {"job": "samples", "origin_ns": 0, "stamps": [0, [[1, 2]]], "sha256": "0"},
        {"job": "resume", "box": "0:1", "lower": [0.0], "upper": [1.0]},
    )
    return tuple(json.dumps(head | job).encode() for job in jobs)


CONFIGURATION = (
    b"format: 2\npackage: {version: '1'}\nnode: n\nkind: k\nrobot: {name: r, given: r, file: f, urdf_sha256: '', "
    b"proofs_sha256: ''}\nlockstep: true\nfiles: {}\nparameters: {}\nsettings: {}\nmachine: {}\n"
)
RESULTS = json.dumps({"schema": CAMPAIGN_SCHEMA}).encode() + b'\n{"index": 0}\n{"index": 1}\n'


def _stamps(entry: Any) -> object:
    """A journal entry with everything that is made of it."""
    found = read_entry(entry)
    return found.stamps if found.job == "samples" else found.box if found.job == "resume" else None


def _recover(path: Path) -> object:
    out = path.parent / "out"
    try:
        return recover_bag(path, out)
    finally:
        shutil.rmtree(out, ignore_errors=True)


def _run_directory(name: str) -> Callable[[Path], object]:
    def read(path: Path) -> object:
        folder = path.parent / "run"
        folder.mkdir(exist_ok=True)
        (folder / name).write_bytes(path.read_bytes())
        return read_logs(folder, 2)

    return read


def _updates() -> tuple[bytes, ...]:
    update = {"stamp_ns": 1, "lower": [0.0] * 10, "nominal": [0.0] * 10, "upper": [0.0] * 10}
    return (json.dumps({"updates": [update]}).encode(),)


def _plans() -> tuple[bytes, ...]:
    plan = {"sequence": 1, "status": "planned", "start_ns": 1, "t_plan": 1.0, "duration": 2.0, "k": [0.1]}
    return (json.dumps({"plans": [plan], "task": "x"}).encode(),)


def _text(read: Callable[[str], object]) -> Callable[[bytes], object]:
    return lambda content: read(content.decode("utf-8", "replace"))


TARGETS: dict[str, Target] = {
    target.name: target
    for target in (
        Target("urdf", ".urdf", read_urdf, lambda: (_arm(),), XML_WORDS),
        Target("urdf of a new arm", ".urdf", look_at, lambda: (_arm(),), XML_WORDS),
        Target("urdf of a payload", ".urdf", rigid_body_text, lambda: (_thing(),), XML_WORDS),
        Target("payload", ".urdf", lambda path: payload_from_spec(str(path)), lambda: (_thing(),), XML_WORDS),
        Target(
            "payload text",
            "",
            _text(payload_from_spec),
            lambda: (b"1,0,0,0,1,0,1,0,0,1", b"5lb", b"none"),
            (b",", b"nan", b"lb"),
        ),
        Target("mesh stl", ".stl", read_mesh, _stl, BYTES),
        Target(
            "mesh obj", ".obj", read_mesh, lambda: (OBJ,), (b"f ", b"v ", b"99999999999", b"-1", b"/", b"nan", b"1e400")
        ),
        Target(
            "mesh ply",
            ".ply",
            read_mesh,
            lambda: PLY,
            (*BYTES, b"element x 9999999999\n", b"property list int int y\n"),
        ),
        Target("mesh dae", ".dae", read_mesh, lambda: (DAE,), (*XML_WORDS, b'"4000000000"', b"<node>", b"<polygons>")),
        Target(
            "mesh path",
            "",
            _text(lambda text: mesh_path(text, "/nowhere/x.urdf")),
            lambda: (b"package://a/b.stl", b"file:///x.stl", b"../x.stl"),
            (b"..", b"%2e", b"\0", b"//[", b"%00", b"/"),
        ),
        Target("robot", ".yaml", load_settings, _config("config/kinova_gen3.yaml"), YAML_WORDS),
        Target("scene", ".yaml", load_scene, lambda: (SCENE,), YAML_WORDS),
        Target(
            "work cell",
            ".yaml",
            lambda path: load_workcell(path, False),
            _config("config/experiments/pso_a.yaml"),
            YAML_WORDS,
        ),
        Target("bounds", ".yaml", read_bounds, _bounds, YAML_WORDS),
        Target(
            "mapping",
            ".yaml",
            read_mapping,
            lambda: (b"time: t\njoints: {a: {position: x}}\nscale: {a: {effort: 2}}",),
            YAML_WORDS,
        ),
        Target("configuration", "", _text(read_configuration), lambda: (CONFIGURATION,), YAML_WORDS),
        Target("log npz", ".npz", read_log, _npz, BYTES),
        Target(
            "log csv",
            ".csv",
            lambda path: read_csv(path, JOINTS),
            lambda: CSV,
            (b",", b"\n", b'"', b"nan", b"1e400000", b"\0", b"#"),
        ),
        Target("bag mcap", ".mcap", lambda path: read_bag(path, JOINTS), lambda: _bag("MCAP"), BYTES),
        Target("bag sqlite", ".db3", lambda path: read_bag(path, JOINTS), lambda: _bag("SQLITE3"), BYTES),
        Target("bag recovery", ".mcap", _recover, lambda: _bag("MCAP"), BYTES),
        Target("journal entry", "", _text(_stamps), _entry, JSON_WORDS),
        Target("plan", ".json", read_plan, _plan, JSON_WORDS),
        Target("certificate", ".json", read_certificate, _certificate, JSON_WORDS),
        Target("tare", ".npz", read_tare, _tare, BYTES),
        Target("campaign results", ".jsonl", read_results, lambda: (RESULTS,), JSON_WORDS),
        Target("run updates", ".json", _run_directory("identifier.json"), _updates, JSON_WORDS),
        Target("run plans", ".json", _run_directory("planner.json"), _plans, JSON_WORDS),
        Target("run plant", ".npz", _run_directory("plant.npz"), _npz, BYTES),
    )
}


def run(target: Target, content: bytes, folder: Path) -> str:
    """Give one input to a parser.

    Args:
        target: whose.
        content: of the file, or of the text.
        folder: for the file.

    Returns:
        "read" or "refused".

    Raises:
        Exception: whatever is no refusal: a bug.
    """
    try:
        if target.suffix:
            path = folder / f"x{target.suffix}"
            path.write_bytes(content)
            target.read(path)
        else:
            target.read(content)
    except SafeSysIdError as error:
        if len(str(error)) > 5000:
            raise AssertionError(f"a message of {len(str(error))} characters") from error
        return "refused"
    return "read"
