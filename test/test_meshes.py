"""Reading meshes: coordinates are off by no more than is said, and files that do more than list them are refused."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from geometry_support import write_obj
from scipy.spatial import cKDTree

from safe_sysid.errors import ConfigError, ModelError
from safe_sysid.robot import Scene, load_scene
from safe_sysid.robot.files.meshes import read_mesh
from safe_sysid.robot.scenes.scene_updates import SceneMarker, scene_from_markers

CORNERS = np.array([[0.0, 0.0, 0.0], [1.0, 0.0, 0.0], [0.0, 1.0, 0.0], [0.2, 0.3, 0.7]])
TRIANGLES = np.array([[0, 2, 1], [0, 1, 3], [1, 2, 3], [2, 0, 3]])
STILL = (
    '<matrix sid="transform">1 0 0 0 0 1 0 0 0 0 1 0 0 0 0 1</matrix><translate>0 0 -0</translate>'
    "<rotate>0 0 1 0</rotate><scale>1 1 1.0</scale>"
)


def collada(unit: str = '<unit name="m" meter="1"/>', moves: str = STILL, more: str = "") -> str:
    """A tetrahedron in a node, one more node without geometry, and ``more`` at the end of the scene."""
    numbers = " ".join(map(repr, CORNERS.ravel().tolist()))
    corners = " ".join(map(str, TRIANGLES.ravel()))
    axes = "".join(f'<param name="{axis}" type="float"/>' for axis in "XYZ")
    return f"""<?xml version="1.0"?>
<COLLADA xmlns="http://www.collada.org/2005/11/COLLADASchema" version="1.4.1"><asset>{unit}</asset>
<library_geometries><geometry id="g"><mesh><source id="p"><float_array id="a" count="12">{numbers}</float_array>
<technique_common><accessor source="#a" count="4" stride="3">{axes}</accessor></technique_common></source>
<vertices id="v"><input semantic="POSITION" source="#p"/></vertices>
<triangles count="4"><input semantic="VERTEX" source="#v" offset="0"/><p>{corners}</p></triangles></mesh></geometry>
</library_geometries><library_visual_scenes><visual_scene id="s">
<node id="lamp"><translate>4 1 6</translate></node>
<node id="part">{moves}<instance_geometry url="#g"/></node>{more}
</visual_scene></library_visual_scenes><scene><instance_visual_scene url="#s"/></scene></COLLADA>"""


@pytest.mark.parametrize("unit", ["", '<unit meter="1"/>', '<unit name="m" meter="1.000"/>'])
def test_a_collada_file_in_metres_that_moves_nothing_is_read(tmp_path: Path, unit: str) -> None:
    path = tmp_path / "a.dae"
    path.write_text(collada(unit), encoding="utf-8")
    vertices, triangles, error = read_mesh(path)
    assert len(triangles) == 4
    assert np.all(cKDTree(vertices).query(CORNERS)[0] <= error)
    assert error < 1e-6


NODE = '<node id="{}">{}<instance_geometry url="#g"/></node>'
GROUP = '<node id="group"><translate>0 0 3</translate>' + NODE.format("inner", STILL) + "</node>"


@pytest.mark.parametrize(
    ("text", "value", "expected"),
    [
        (collada('<unit name="mm" meter="0.001"/>'), "<unit meter='0.001'>", "expected 1"),
        (collada('<unit meter="10"/>'), "<unit meter='10'>", "expected 1"),
        (collada('<unit meter="one"/>'), "<unit meter='one'>", "expected 1"),
        (collada('<unit meter="nan"/>'), "<unit meter='nan'>", "expected 1"),
        (collada(moves="<matrix>1 0 0 0 0 1 0 0 0 0 1 -1000 0 0 0 1</matrix>"),
         "node 'part': <matrix> = '1 0 0 0 0 1 0 0 0 0 1 -1000 0 0 0 1'", "moves nothing"),
        (collada(moves="<matrix>1 0 0 0 0 1 0 0</matrix>"), "node 'part': <matrix>", "moves nothing"),
        (collada(moves="<translate>0 0 5</translate>"), "<translate> = '0 0 5'", "moves nothing"),
        (collada(moves="<rotate>0 0 1 90</rotate>"), "<rotate> = '0 0 1 90'", "moves nothing"),
        (collada(moves="<rotate>0 0 nan 0</rotate>"), "<rotate> = '0 0 nan 0'", "moves nothing"),
        (collada(moves="<scale>1 1 -1</scale>"), "<scale> = '1 1 -1'", "moves nothing"),
        (collada(moves="<skew>0 0 1 0 0 1 0</skew>"), "<skew>", "moves nothing"),
        (collada(moves="<lookat>0 0 1 0 0 0 0 1 0</lookat>"), "<lookat>", "moves nothing"),
        (collada(more=NODE.format("two", "<translate>9 0 0</translate>")), "node 'two'", "moves nothing"),
        (collada(more=GROUP), "node 'group': <translate>", "moves nothing"),
        (collada(more='<node id="x"><scale>2 2 2</scale><instance_node url="#part"/></node>'),
         "node 'x': <scale>", "moves nothing"),
        (collada(more='<node><instance_controller url="#c"/></node>'), "<instance_controller>", "rigid"),
        (collada() + "<", "token", "a readable STL"),
    ],
)  # fmt: skip
def test_a_collada_file_that_changes_its_numbers_is_refused(
    tmp_path: Path, text: str, value: str, expected: str
) -> None:
    path = tmp_path / "a.dae"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(ModelError) as caught:
        read_mesh(path)
    for part in (str(path), value, expected):
        assert part in str(caught.value)


def test_scenes_and_markers_refuse_it_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "a.dae").write_text(collada('<unit meter="10"/>'), encoding="utf-8")
    (tmp_path / "s.yaml").write_text("meshes: [{name: a, xyz: [0, 0, 0], file: a.dae}]", encoding="utf-8")
    with pytest.raises(ConfigError, match=r"a\.dae: <unit meter='10'>.*: expected 1"):
        load_scene(tmp_path / "s.yaml")
    package = tmp_path / "share" / "bent"
    package.mkdir(parents=True)
    (tmp_path / "a.dae").rename(package / "a.dae")
    monkeypatch.setenv("AMENT_PREFIX_PATH", str(tmp_path))
    marker = SceneMarker(kind="mesh", mesh_resource="package://bent/a.dae")
    with pytest.raises(ConfigError, match=r"a\.dae: <unit meter='10'>: expected 1"):
        scene_from_markers([marker], Scene("s"))


def test_other_formats_than_those_promised_are_refused(tmp_path: Path) -> None:
    write_obj(str(tmp_path / "a.OBJ"), CORNERS, TRIANGLES)
    assert len(read_mesh(tmp_path / "a.OBJ")[1]) == 4
    (tmp_path / "a.OBJ").rename(tmp_path / "a.off")
    with pytest.raises(ModelError, match=r"a\.off: '\.off': expected a readable STL, OBJ, DAE or PLY"):
        read_mesh(tmp_path / "a.off")


def test_thin_triangles_are_held(tmp_path: Path) -> None:
    # A needle of three different corners in a line is a face: its point counts.
    spike = np.array([[0.2, 0.3, 1.0], [0.2, 0.3, 2.0], [0.2, 0.3, 3.0]])
    write_obj(str(tmp_path / "a.obj"), np.vstack([CORNERS, spike]), np.vstack([TRIANGLES, [[4, 5, 6]]]))
    vertices, _, error = read_mesh(tmp_path / "a.obj")
    assert abs(vertices[:, 2].max() - 3.0) <= error


def write_decimals(path: Path, rows: list[str]) -> None:
    """An OBJ file with these vertices, in triangles."""
    count = len(rows) // 3
    lines = [f"v {row}" for row in rows] + [f"f {3 * i + 1} {3 * i + 2} {3 * i + 3}" for i in range(count)]
    path.write_text("\n".join(lines) + "\n", encoding="ascii")


def test_decimals_lose_no_more_than_is_said(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    for style in ("%.17g", "%.6e", "%.30f", "%.3E"):
        for size in (1e-6, 1e-2, 1.0):
            text = [[style % x for x in row] for row in rng.uniform(-size, size, (600, 3))]
            write_decimals(tmp_path / "a.obj", [" ".join(row) for row in text])
            vertices, _, error = read_mesh(tmp_path / "a.obj")
            assert np.all(cKDTree(vertices).query(np.array(text, float))[0] <= error)
    # Homogeneous coordinates: the divisor rounds too; these two lose much, in opposite directions.
    write_decimals(tmp_path / "a.obj", [" ".join(["8.348270e-03"] * 3 + ["1.224670e-04"]), "0 0 0 1", "1 0 0 1"])
    vertices, _, error = read_mesh(tmp_path / "a.obj")
    assert abs(vertices.max() - 8.348270e-03 / 1.224670e-04) * np.sqrt(3.0) <= error


FACET = "facet normal 0 0 1\n outer loop\n  vertex 0 0 0\n  vertex 1 0 0\n  vertex 0 1 {}\n endloop\nendfacet\n"
PLY = (
    "ply\nformat ascii 1.0\nelement vertex 4\nproperty float x\nproperty float y\nproperty float z\n"
    "element face 2\nproperty list uchar int vertex_indices\nend_header\n"
    "0 0 0\n1 0 0\n0 1 0\n0 0 9\n3 0 1 2\n"
)
BENT = collada().replace("0 2 1 0 1 3 1 2 3 2 0 3", "0 2 1 0 1 3 1 2 3 2 0 -1")


#: Suffix, text and height of a file, None for one that must be refused; by what trimesh makes of it.
OTHERS = {
    "a cut-off solid is left out": ("stl", f"solid a\n{FACET.format(0)}endsolid a\nsolid b\n{FACET.format(9)}", 9.0),
    "numbers slip into the next corner": (
        "stl", f"solid a\n{FACET.format('0 9').replace('1 0 0', '1 0')}endsolid a\n", None,
    ),
    "an indented face is left out": ("obj", "v 0 0 0\nv 1 0 0\nv 0 1 0\nv 0 0 9\nf 1 2 3\n\tf 2 3 4\n", 9.0),
    "relative corners count from the end of the file": (
        "obj", "v 0 0 9\nv 1 0 0\nv 0 1 0\nf -3 -2 -1\nv 0 0 0\nv 1 1 0\n", 9.0,
    ),
    "the divisor is left out": ("obj", "v 0 0 0 1\nv 1 0 0 1\nv 0 0 0.9 0.1\nf 1 2 3\n", 9.0),
    "a cut-off list of faces": ("ply", PLY, None),
    "a face of two corners is left out": ("ply", PLY + "3 0 1\n", None),
    "a corner that is not there": ("ply", PLY + "3 0 1 -1\n", None),
    "a corner that is not there, in COLLADA": ("dae", BENT, None),
    "a corner beyond 32 bits": ("dae", BENT.replace(" -1<", " 4294967295<"), None),
}  # fmt: skip


@pytest.mark.parametrize(("suffix", "text", "highest"), OTHERS.values(), ids=OTHERS)
def test_trimesh_makes_another_body_of_the_file_without_a_word(
    tmp_path: Path, suffix: str, text: str, highest: float | None
) -> None:
    """Why the readers are our own: each of these bodies would be smaller than what stands in the file, or another."""
    trimesh = pytest.importorskip("trimesh", reason="needs the extra `view`")
    if suffix == "dae":
        pytest.importorskip("collada", reason="needs the extra `dev`")
    path = tmp_path / f"a.{suffix}"
    path.write_text(text, encoding="utf-8")
    try:
        theirs = trimesh.load(path, process=False, force="scene")
        parts = [mesh.vertices[mesh.faces.reshape(-1)] for mesh in theirs.geometry.values()]
        corners = np.concatenate([part for part in parts if len(part)])
    except (ValueError, IndexError) as error:
        pytest.fail(f"trimesh tells now, our reader may not be needed: {error}")
    if highest is None:
        with pytest.raises(ModelError):
            read_mesh(path)
    else:
        assert corners[:, 2].max() < highest - 1.0
        vertices, triangles, error = read_mesh(path)
        assert abs(vertices[triangles].max() - highest) <= error
