"""Obstacles of every kind hold what they stand for, hulls hold their points, scenes load and change."""

from __future__ import annotations

from itertools import product
from pathlib import Path

import numpy as np
import pytest
from geometry_support import hull_distance, random_obstacles, write_stl
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.spatial import ConvexHull
from scipy.spatial.transform import Rotation

from safe_sysid.apps.check.check import check_file
from safe_sysid.errors import ConfigError, SafeSysIdError
from safe_sysid.robot import Scene, SceneBox, SceneCapsule, SceneMesh, SceneSphere, SceneZonotope, load_scene
from safe_sysid.robot.files.meshes import read_mesh
from safe_sysid.robot.scenes.obstacles import PLACEMENT, Obstacle, box_corners
from safe_sysid.robot.scenes.scene import count_obstacles
from safe_sysid.robot.scenes.scene_updates import SceneMarker, scene_from_markers
from safe_sysid.robot.shapes.hulls import distance_to_hull, hull_triangles, hull_volume, outer_hull

SEEDS = st.integers(0, 2**32 - 1)


def on_the_unit_sphere(rng: np.random.Generator, count: int) -> np.ndarray:
    points = rng.normal(size=(count, 3))
    return points / np.linalg.norm(points, axis=1, keepdims=True)


def random_points(rng: np.random.Generator) -> np.ndarray:
    """Clouds of all ranks: one point, rods, plates, copies, grids, cubes, balls."""
    kind = rng.choice(["point", "rod", "plate", "cube", "ball", "cloud", "grid"])
    count = int(rng.integers(1, 60))
    points = rng.normal(size=(count, 3))
    if kind == "point":
        points[:] = points[0]
    elif kind == "rod":
        points = rng.normal(size=(count, 1)) * points[0]
    elif kind == "plate":
        points[:, 2] = 0.0
    elif kind == "cube":
        points = box_corners(rng.uniform(0.01, 1.0, 3))
    elif kind == "ball":
        points = on_the_unit_sphere(rng, count)
    elif kind == "grid":
        points = rng.integers(-2, 3, size=(count, 3)).astype(float)
    turned = points @ Rotation.random(random_state=rng).as_matrix().T
    return turned * 10.0 ** rng.uniform(-2, 0) + rng.normal(size=3)


@settings(max_examples=40, deadline=None)
@given(seed=SEEDS)
def test_few_corners_and_a_slack_hold_every_point(seed: int) -> None:
    rng = np.random.default_rng(seed)
    points = random_points(rng)
    limit, tolerance = int(rng.choice([8, 16, 200])), float(rng.choice([1e-4, 1e-2]))
    corners, slack = outer_hull(points, limit, tolerance)
    assert len(corners) <= limit
    assert {tuple(c) for c in corners} <= {tuple(p) for p in points}
    size = float(np.ptp(points, axis=0).max())
    for point in points[rng.permutation(len(points))[:12]]:
        gap = hull_distance(corners, point[None])
        assert gap <= slack + 2e-8 * (1.0 + size)
        assert distance_to_hull(point, corners) >= gap - 2e-8 * (1.0 + size)
    assert slack <= max(0.5 * size, 1e-12)
    if limit == 200:
        assert slack <= 1e-9


def test_a_slack_cannot_be_left_out() -> None:
    ball = on_the_unit_sphere(np.random.default_rng(0), 300)
    corners, slack = outer_hull(ball, 12)
    worst = max(hull_distance(corners, point[None]) for point in ball)
    assert 0.3 * slack < worst <= slack


def test_volumes_of_inflated_hulls_are_those_of_balls_capsules_and_rounded_boxes() -> None:
    r, a = 0.3, np.array([1.0, 2.0, 0.5])
    ball = 4.0 / 3.0 * np.pi * r**3
    assert hull_volume(np.zeros((1, 3)), r) == pytest.approx(ball)
    assert hull_volume(np.array([[0, 0, 0], [0, 0, 2.0]]), r) == pytest.approx(ball + 2.0 * np.pi * r**2)
    faces = 2.0 * (a[0] * a[1] + a[1] * a[2] + a[0] * a[2])
    rounded = a.prod() + faces * r + np.pi * r**2 * a.sum() + ball
    assert hull_volume(box_corners(a), r) == pytest.approx(rounded)
    triangles = hull_triangles(box_corners(a))
    assert np.linalg.det(triangles).sum() / 6.0 == pytest.approx(a.prod())


def inside(obstacle: Obstacle, rng: np.random.Generator) -> np.ndarray:
    """Points (40, 3) of the real thing, most on its surface, in the world; written down once more."""
    count = 40
    v = on_the_unit_sphere(rng, count)
    if isinstance(obstacle, SceneSphere):
        return obstacle.xyz + obstacle.radius * v
    if isinstance(obstacle, SceneZonotope):
        weights = np.sign(rng.normal(size=(count, len(obstacle.generators))))
        weights[: count // 2] *= rng.random((count // 2, weights.shape[1]))
        return obstacle.xyz + weights @ obstacle.generators
    turn = Rotation.from_euler("xyz", obstacle.rpy).as_matrix()
    if isinstance(obstacle, SceneBox):
        local = np.sign(v) * obstacle.size / 2.0
        local[: count // 2] *= rng.random((count // 2, 3))
    elif isinstance(obstacle, SceneCapsule):
        local = obstacle.radius * v + np.outer(rng.choice([-0.5, 0.5, 0.2], count), [0, 0, obstacle.length])
    else:
        local = rng.dirichlet(np.full(len(obstacle.vertices), 0.05), count) @ obstacle.vertices
    return obstacle.xyz + local @ turn.T


@settings(max_examples=25, deadline=None)
@given(seed=SEEDS)
def test_every_obstacle_holds_the_real_thing_and_its_corners_belong_to_it(seed: int) -> None:
    rng = np.random.default_rng(seed)
    for obstacle in random_obstacles(rng):
        body = obstacle.body()
        assert (body.joint, body.name, body.kind) == (-1, obstacle.name, obstacle.kind)
        real = inside(obstacle, rng)
        for point in real[rng.permutation(len(real))[:10]]:
            assert hull_distance(body.points, point[None]) <= body.radius + 3e-9
        # Not much more than it: hulls of everything drawn come near every corner of boxes and zonotopes.
        if obstacle.kind == "box":
            wide = np.concatenate([inside(obstacle, rng) for _ in range(5)])
            np.testing.assert_allclose(body.points.min(axis=0), wide.min(axis=0), atol=1e-12)


def test_what_is_no_obstacle_is_refused() -> None:
    for wrong in (
        lambda: SceneBox("b", np.zeros(3), np.zeros(3), np.array([1.0, 0.0, 1.0])),
        lambda: SceneBox("b", np.array([0.0, np.nan, 0.0]), np.zeros(3), np.ones(3)),
        lambda: SceneBox("in millimetres", np.array([700.0, 0.0, 0.0]), np.zeros(3), np.ones(3)),
        lambda: SceneSphere("s", np.zeros(3), 0.0),
        lambda: SceneSphere("s", np.zeros(3), np.inf),
        lambda: SceneCapsule("c", np.zeros(3), 0.1, np.zeros(3), -1.0),
        lambda: SceneMesh("m", np.zeros(3), np.zeros(3), np.zeros((0, 3))),
        lambda: SceneMesh("m", np.zeros(3), np.zeros(3), np.zeros((3, 2))),
        lambda: SceneZonotope("z", np.zeros(3), np.ones((13, 3))),
        lambda: SceneZonotope("z", np.zeros(3), np.full((2, 3), np.inf)),
    ):
        with pytest.raises(SafeSysIdError, match="expected"):
            wrong()
    with pytest.raises(ConfigError, match=r"spheres\[0\].name = 'a': expected a name that no other obstacle has"):
        Scene("s", (SceneBox("a", np.zeros(3), np.zeros(3), np.ones(3)), SceneSphere("a", np.zeros(3), 1.0)))


FILE = """name: all kinds
boxes: [{name: table, xyz: [1, 0, 0], size: [1, 1, 0.1]}]
spheres: [{name: ball, xyz: [0, 1, 0], radius: 0.2}]
capsules: [{name: pipe, xyz: [0, 1, 1], rpy: [1.5, 0, 0], radius: 0.1, length: 0.5}]
meshes: [{name: chair, xyz: [0, -1, 0], rpy: [0, 0, 1], file: chair.stl, scale: 0.001}]
zonotopes: [{name: wedge, xyz: [-1, 0, 0], generators: [[0.1, 0, 0], [0, 0.1, 0], [0.1, 0.1, 0.1]]}]
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    cloud = np.random.default_rng(3).normal(scale=200.0, size=(40, 3))
    write_stl(str(tmp_path / "chair.stl"), cloud, ConvexHull(cloud).simplices)
    (tmp_path / "s.yaml").write_text(FILE, encoding="utf-8")
    return tmp_path


def test_a_file_with_all_kinds_loads_and_says_what_it_holds(folder: Path) -> None:
    scene = load_scene(folder / "s.yaml")
    kinds = {obstacle.name: obstacle.kind for obstacle in scene.obstacles}
    assert kinds == {"table": "box", "ball": "sphere", "pipe": "capsule", "chair": "mesh", "wedge": "zonotope"}
    assert count_obstacles(scene) == "1 box, 1 sphere, 1 capsule, 1 mesh (convex hulls), 1 zonotope"
    assert [body.name for body in scene.bodies()] == [obstacle.name for obstacle in scene.obstacles]
    chair = scene.obstacles[3]
    cloud = np.random.default_rng(3).normal(scale=200.0, size=(40, 3)).astype(np.float32)  # as the file has it
    turn = Rotation.from_euler("z", 1.0).as_matrix()
    placed = 1e-3 * cloud.astype(float) @ turn.T + [0.0, -1.0, 0.0]
    for corner in placed[ConvexHull(placed).vertices]:  # where these are, the whole cloud is
        assert np.linalg.norm(chair.points - corner, axis=1).min() <= chair.radius
    assert chair.radius < 1e-9
    assert scene.body("ball").radius == 0.2
    with pytest.raises(ConfigError, match="one of the scene's"):
        scene.body("bal")


def test_a_scene_without_boxes_is_known_as_one_and_an_empty_file_is_not(folder: Path) -> None:
    (folder / "s.yaml").write_text("spheres: [{name: ball, xyz: [0, 2, 0], radius: 0.2}]", encoding="utf-8")
    said: list[str] = []
    assert not check_file(str(folder / "s.yaml"), "kinova_gen3", said.append)
    assert said[0] == "scene s: 1 sphere, 0 allowed pairs"
    (folder / "s.yaml").write_text("name: nothing", encoding="utf-8")
    with pytest.raises(ConfigError, match=r"boxes = 'missing'.*\[\] if nothing is around"):
        load_scene(folder / "s.yaml")


@pytest.mark.parametrize(
    ("old", "new", "key", "expected"),
    [
        ("radius: 0.2", "radius: 0", "spheres[0].radius", "> 0"),
        ("radius: 0.2", "size: [1, 1, 1]", "spheres[0].radius", "required"),
        ("length: 0.5", "length: -1", "capsules[0].length", ">= 0"),
        ("radius: 0.1, ", "", "capsules[0].radius", "required"),
        ("chair.stl", "nobody.stl", "meshes[0]", "= 'nobody.stl': expected a file that exists"),
        ("chair.stl", "s.yaml", "meshes[0]", "readable STL"),
        ("chair.stl", "package://nowhere/chair.stl", "meshes[0]", "AMENT_PREFIX_PATH"),
        ("chair.stl", "http://example.org/chair.stl", "meshes[0]", "file://"),
        ("scale: 0.001", "scale: 1", "meshes[0]", "m from the origin': expected at most 100 m (lengths are in metres"),
        ("scale: 0.001", "scale: 1.0", "meshes[0]", "of a mesh in millimetres: scale: 0.001"),
        ("scale: 0.001", "scale: [1, 1]", "meshes[0]", "one per axis"),
        ("scale: 0.001", "scale: -1", "meshes[0].scale", "> 0"),
        ("[[0.1, 0, 0], ", "[[0.1, 0], ", "zonotopes[0].generators[0]", "3 numbers"),
        ("[[0.1, 0, 0], [0, 0.1, 0], [0.1, 0.1, 0.1]]", "[]", "zonotopes[0].generators", "at least 1"),
        ("name: wedge", "name: table", "zonotopes[0].name", "no other obstacle"),
        ("xyz: [0, 1, 0]", "xyz: [0, 700, 0]", "spheres[0]", "metres"),
        ("spheres", "speres", "speres", "did you mean 'spheres'"),
        ("radius: 0.2", "raduis: 0.2", "spheres[0].raduis", "did you mean 'radius'"),
        ("capsules: [{", "capsules: {", "YAML syntax", "valid YAML"),
        pytest.param(FILE, "boxs: []", "boxs", "did you mean 'boxes'", id="named before what is missing"),
    ],
)
def test_a_stranger_is_told_what_is_wrong(folder: Path, old: str, new: str, key: str, expected: str) -> None:
    assert old in FILE
    (folder / "s.yaml").write_text(FILE.replace(old, new, 1), encoding="utf-8")
    refused = refusal(folder / "s.yaml")
    assert refused.key == key
    assert "expected" not in refused.expected
    assert expected in str(refused)


def refusal(file: Path) -> ConfigError:
    with pytest.raises(ConfigError) as caught:
        check_file(str(file), "kinova_gen3", lambda _: None)
    return caught.value


def test_files_are_the_values_of_complaints_about_them(folder: Path) -> None:
    file = folder / "s.yaml"
    (folder / "fake.stl").write_text("solid nothing", encoding="utf-8")
    file.write_text(FILE.replace("chair.stl", "fake.stl"), encoding="utf-8")
    fake = refusal(file)
    assert fake.value == str(folder / "fake.stl")
    assert "coal" not in str(fake)
    assert "assimp" not in str(fake).lower()
    file.unlink()
    with pytest.raises(ConfigError, match="expected a file that exists") as caught:
        load_scene(file)
    assert caught.value.value == str(file)


DOCS = Path(__file__).resolve().parent.parent / "docs" / "use" / "scenes.md"


@pytest.fixture
def example(tmp_path: Path) -> Path:
    """The scene of docs/use/scenes.md, with a chair of 0.4 m beside it."""
    text = DOCS.read_text(encoding="utf-8").split("```yaml\n")[1].split("```")[0]
    corners = box_corners((400.0, 400.0, 400.0))
    write_stl(str(tmp_path / "chair.stl"), corners, ConvexHull(corners).simplices)
    (tmp_path / "s.yaml").write_text(text, encoding="utf-8")
    return tmp_path / "s.yaml"


def test_start_and_goal_of_the_example_of_the_docs_can_be_held(example: Path) -> None:
    said: list[str] = []
    assert not check_file(str(example), "kinova_gen3", said.append)
    assert said[-2].startswith("start pose: can be held")
    assert said[-1].startswith("goal pose: can be held")


@pytest.mark.parametrize(
    ("goal", "reason"),
    [
        ("[0, 2.6, 3.14, -2.27, 0, 0.96, 1.57]", "leaves ["),  # beyond joint 2's limits
        ("[0, 1.9, 3.14, -0.3, 0, 0.0, 1.57]", "asked for"),  # in the table
        ("[0, 1.0, 3.14, 0.0, 0, 0.0, 1.57]", ""),  # stretched out: too heavy for the prior only
    ],
)
def test_a_goal_is_judged_as_the_start_but_may_wait_for_tighter_bounds(example: Path, goal: str, reason: str) -> None:
    text = example.read_text(encoding="utf-8").replace("[0.5, 0.26, 3.14, -2.27, 0, 0.96, 1.57]", goal)
    if not reason:
        text = "boxes: []\n" + text[text.index("start:") :]
    example.write_text(text, encoding="utf-8")
    said: list[str] = []
    reasons = check_file(str(example), "kinova_gen3", said.append)
    if reason:
        assert any(reason in text for text in reasons)
        assert all(text.startswith("goal pose: ") for text in reasons)
    else:
        assert not reasons
        assert said[-1].startswith("warning: goal pose")
        assert "holding may need" in said[-1]


# --- changes by markers ---


def mark(**fields: object) -> SceneMarker:
    return SceneMarker(**({"ns": "table", "id": 3, "scale": (0.1, 0.2, 0.3)} | fields))  # type: ignore[arg-type]


def test_markers_add_move_and_delete_what_came_as_markers() -> None:
    post = SceneBox("post", np.ones(3), np.zeros(3), np.ones(3))
    scene = Scene("s", (post,), start=np.zeros(2))
    turn = Rotation.from_euler("xyz", [0.3, -1.0, 2.0])
    one = scene_from_markers([mark(orientation=tuple(turn.as_quat()), position=(1.0, 0.0, 2.0))], scene)
    assert [o.name for o in one.obstacles] == ["post", "marker:table/3"]
    np.testing.assert_allclose(one.obstacles[1].rotation, turn.as_matrix(), atol=1e-14)
    np.testing.assert_allclose(np.linalg.norm(np.diff(one.obstacles[1].points[:2], axis=0)), 0.3, atol=1e-12)
    assert np.array_equal(one.start, scene.start)
    moved = scene_from_markers([mark(position=(0.0, 0.0, 3.0)), mark(id=4, kind="sphere")], one)
    assert [o.name for o in moved.obstacles] == ["post", "marker:table/3", "marker:table/4"]
    assert moved.obstacles[1].xyz[2] == 3.0
    assert moved.obstacles[2].radius == 0.15
    fewer = scene_from_markers([mark(action="delete"), mark(action="delete", ns="post", id=0)], moved)
    assert [o.name for o in fewer.obstacles] == ["post", "marker:table/4"]
    other = scene_from_markers([mark(action="delete_all", ns="chairs")], fewer)
    assert len(other.obstacles) == 2
    assert [o.name for o in scene_from_markers([mark(action="delete_all", ns="")], fewer).obstacles] == ["post"]
    assert [o.name for o in scene.obstacles] == ["post"]


def test_delete_all_spares_namespaces_that_only_begin_alike() -> None:
    spaces = ("a", "a/b", "ab", "a/0", "")
    scene = scene_from_markers([mark(ns=ns, id=0) for ns in spaces], Scene("s"))
    for ns in ("a", "a/b", "a/0", "ab"):
        left = scene_from_markers([mark(ns=ns, action="delete_all")], scene)
        assert [o.name for o in left.obstacles] == [f"marker:{other}/0" for other in spaces if other != ns]


@settings(max_examples=150, deadline=None)
@given(seed=SEEDS, kind=st.sampled_from(["cube", "cylinder"]))
def test_a_turned_marker_is_placed_within_the_rounding_that_is_promised(seed: int, kind: str) -> None:
    rng = np.random.default_rng(seed)
    pitch = rng.choice([-1.0, 1.0]) * 0.5 * np.pi + rng.choice([0.0, 1.0]) * 10.0 ** rng.uniform(-17, 0)
    roll, yaw = rng.uniform(-np.pi, np.pi, 2)
    turn = Rotation.from_euler("xyz", [roll, pitch, yaw])
    marker = mark(kind=kind, orientation=tuple(turn.as_quat()), scale=(0.1, 0.2, 150.0))
    (shape,) = scene_from_markers([marker], Scene("s")).obstacles
    local = box_corners((0.1, 0.2, 150.0)) if kind == "cube" else np.array([[0, 0, -75.0], [0, 0, 75.0]])
    assert np.abs(shape.points - turn.apply(local)).max() < PLACEMENT


def test_a_cylinder_marker_is_inside_its_capsule() -> None:
    turn = Rotation.from_euler("xyz", [0.3, -1.0, 2.0])
    marker = mark(kind="cylinder", scale=(0.2, 0.1, 0.5), orientation=tuple(turn.as_quat()))
    (capsule,) = scene_from_markers([marker], Scene("s")).obstacles
    for angle, z in product(np.linspace(0.0, 6.0, 9), (-0.25, 0.0, 0.25)):
        rim = turn.apply([0.1 * np.cos(angle), 0.05 * np.sin(angle), z])
        assert hull_distance(capsule.points, rim[None]) <= capsule.radius + 1e-9


def test_a_mesh_marker_is_read_from_where_it_says(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package = folder / "share" / "chairs" / "meshes"
    package.mkdir(parents=True)
    (package / "chair.stl").write_bytes((folder / "chair.stl").read_bytes())
    monkeypatch.setenv("AMENT_PREFIX_PATH", str(folder))
    marker = mark(kind="mesh", mesh_resource="package://chairs/meshes/chair.stl", scale=(0.001,) * 3)
    (mesh,) = scene_from_markers([marker], Scene("s")).obstacles
    assert mesh.kind == "mesh"
    vertices, _, _ = read_mesh(folder / "chair.stl", 0.001)
    assert set(map(tuple, mesh.points)) <= set(map(tuple, vertices))
    # The same mesh, that its reader may read, by the name of a file: only scene files may.
    for name in (f"file://{folder}/chair.stl", str(folder / "chair.stl"), f"package://chairs/../../{folder.name}"):
        with pytest.raises(ConfigError, match="package://NAME/PATH"):
            scene_from_markers([mark(kind="mesh", mesh_resource=name)], Scene("s"))


@pytest.mark.parametrize(
    ("fields", "key", "expected"),
    [
        ({"kind": "line_strip"}, ".type", "cube, sphere"),
        ({"frame": "camera"}, ".frame_id", "'world'"),
        ({"orientation": (0.0, 0.0, 0.0, 0.0)}, ".orientation", "length one"),
        ({"orientation": (0.0, 0.0, 0.0, np.nan)}, ".orientation", "finite"),
        ({"position": (0.0, np.inf, 0.0)}, ".position", "finite"),
        ({"position": (0.0, 1e4, 0.0)}, "markers[1]", "metres"),
        ({"scale": (0.1, 0.0, 0.1)}, ".scale", "> 0"),
        ({"scale": (0.1, -0.1, 0.1), "kind": "sphere"}, ".scale", "> 0"),
        ({"kind": "mesh", "mesh_resource": "http://x/y.stl"}, ".mesh_resource", "package://"),
        ({"kind": "mesh", "mesh_resource": "package://nowhere/y.stl"}, "markers[1]", "exists"),
        ({"action": "modify!"}, ".action", "one of"),
    ],
)
def test_one_wrong_marker_refuses_them_all(fields: dict, key: str, expected: str) -> None:
    scene = Scene("s", (SceneBox("post", np.ones(3), np.zeros(3), np.ones(3)),))
    with pytest.raises(ConfigError) as caught:
        scene_from_markers([mark(id=1), mark(**fields)], scene)
    assert key in caught.value.key
    assert "table/3" in caught.value.key
    assert expected in str(caught.value)
    assert len(scene.obstacles) == 1
