"""The view without ROS and without a browser: shapes, skins, texts, and HTML that nobody else can write into."""

from __future__ import annotations

import argparse
from html.parser import HTMLParser
from typing import Any
from unittest.mock import MagicMock

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.spatial.transform import Rotation

from safe_sysid.commands.view import _namespace
from safe_sysid.core.layout import PAYLOAD_NAMES
from safe_sysid.robot import load_robot
from safe_sysid.robot.frames import forward_kinematics
from safe_sysid.robot.margin import Margin
from safe_sysid.view import pieces
from safe_sysid.view.arm_shapes import arm_shapes
from safe_sysid.view.history import WidthHistory
from safe_sysid.view.scene import ArmScene
from safe_sysid.view.skin import skin_of_boxes
from safe_sysid.view.snapshot import BoundsView, DrawnSolid, NodeView, RunOutcome, Snapshot
from safe_sysid.view.solids import ball, box, capsule, cylinder, joined, rounded_hull
from safe_sysid.view.text import escaped, plain

PRIOR = -np.ones(10), np.ones(10)
EVIL = "<img src=x onerror=alert(1)></div><script>alert(2)</script>\"'`&"


def volume(mesh: tuple[np.ndarray, np.ndarray]) -> float:
    """By Gauss: positive where faces point outward."""
    a, b, c = (mesh[0][mesh[1][:, i]] for i in range(3))
    return float(np.einsum("ij,ij->", a, np.cross(b, c)) / 6.0)


@pytest.mark.parametrize(
    ("mesh", "expected"),
    [
        (ball(0.5), 4.0 / 3.0 * np.pi * 0.125),
        (cylinder(0.5, 2.0), 0.5 * np.pi),
        (capsule(0.5, 2.0), 0.5 * np.pi + 4.0 / 3.0 * np.pi * 0.125),
        (box(np.array([1.0, 2.0, 3.0])), 6.0),
        (rounded_hull(np.array([[0.0, 0, 0], [0, 3.0, 4.0]]), 0.5), 1.25 * np.pi + 4.0 / 3.0 * np.pi * 0.125),
        (rounded_hull(np.array([[1.0, 2, 3]]), 0.5), 4.0 / 3.0 * np.pi * 0.125),
    ],
    ids=["ball", "cylinder", "capsule", "box", "hull of two", "hull of one"],
)
def test_shapes_have_their_volume_and_face_outward(mesh: tuple, expected: float) -> None:
    assert volume(mesh) == pytest.approx(expected, rel=0.02)
    assert volume(joined([mesh, mesh])) == pytest.approx(2.0 * volume(mesh))


@settings(max_examples=4, deadline=None)
@given(st.lists(st.tuples(*[st.floats(-1, 1)] * 3, *[st.floats(0.05, 0.6)] * 3), min_size=1, max_size=12))
def test_the_skin_lies_around_the_boxes_and_near_them(boxes: list[tuple[float, ...]]) -> None:
    """No corner of a box outside, and the skin nowhere farther off than some voxels."""
    rows = np.array(boxes)
    lower, upper = rows[:, :3], rows[:, :3] + rows[:, 3:]
    vertices, faces = skin_of_boxes(lower, upper)
    voxel = float((upper.max(axis=0) - lower.min(axis=0)).max()) / 90
    gap = np.maximum(lower[None] - vertices[:, None], vertices[:, None] - upper[None]).max(axis=-1).min(axis=1)
    assert np.all(gap < 4.0 * voxel), "the skin is near the union"
    assert np.all(gap > -2.0 * voxel), "and not inside it"
    edges = np.sort(np.concatenate([faces[:, [0, 1]], faces[:, [1, 2]], faces[:, [2, 0]]]), axis=1)
    _, counts = np.unique(edges, axis=0, return_counts=True)
    assert np.all(counts % 2 == 0), "it has no hole"
    union = float(np.prod(upper - lower, axis=1).max())
    assert volume((vertices, faces)) > union, "it faces outward, and holds the largest box"


def test_no_boxes_have_no_skin() -> None:
    assert [len(part) for part in skin_of_boxes(np.zeros((0, 3)), np.zeros((0, 3)))] == [0, 0]


@pytest.mark.parametrize("robot", ["kinova_gen3", "ur5e", "three_joint"])
def test_an_arm_is_drawn_where_its_bodies_are(robot: str) -> None:
    """Every joint carries something, within the reach of the bodies that cover it."""
    model = load_robot(robot)
    shapes = arm_shapes(model, robot)
    assert {shape.joint for shape in shapes} >= {body.joint for body in model.bodies if body.kind != "payload"}
    for shape in shapes:
        near = [b for b in model.bodies if b.joint == shape.joint and b.kind != "payload"]
        low = np.min([b.points.min(axis=0) - b.radius for b in near], axis=0)
        high = np.max([b.points.max(axis=0) + b.radius for b in near], axis=0)
        assert np.all(shape.vertices > low - 0.02)
        assert np.all(shape.vertices < high + 0.02)


@given(st.text(max_size=2000))
def test_texts_are_cut_to_one_plain_line(text: str) -> None:
    line = plain(text, 80)
    assert len(line) <= 80
    assert line == line.strip()
    assert not any(ord(c) < 32 or 0x7F <= ord(c) < 0xA0 for c in line)
    assert not set("‪‫‬‭‮⁦⁧⁨⁩") & set(line)
    assert not set("<>\"'") & set(escaped(text, 80))


def test_long_texts_and_towers_of_accents_are_cut() -> None:
    assert plain("x" * 10**7, 50) == "x" * 49 + "…"
    assert len(plain("a" + "\u0301" * 1000, 50)) < 5


class _Tags(HTMLParser):
    """Tags and attributes of a page."""

    def __init__(self) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.attributes: set[str] = set()
        self.depth = 0

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes |= {key for key, _ in attrs}
        self.depth += 1

    def handle_endtag(self, tag: str) -> None:
        self.depth -= 1


def snapshot_of(text: str, bounds: BoundsView | None = None) -> Snapshot:
    """Everything that can be a text is this one."""
    node = NodeView(2, text, {"state": text, "reason": text, "lifecycle": text}, 0.5)
    bounds = bounds or BoundsView(text, -0.5 * np.ones(10), np.zeros(10), 0.5 * np.ones(10))
    return Snapshot(
        time=1.0, nodes=dict.fromkeys(("controller", "planner", "identifier", "plant"), node), prior=PRIOR,
        bounds=bounds, margins=(Margin("torque", text, text, 1.0, 0.0),), plan=text, missing=(text,), warnings=(text,),
        verdict=None, dropped={text: 3},
    )  # fmt: skip


@settings(max_examples=25, deadline=None)
@given(st.one_of(st.just(EVIL), st.text(max_size=60).map(lambda t: t + EVIL)))
def test_texts_of_others_are_shown_and_never_obeyed(text: str) -> None:
    snapshot = snapshot_of(text)
    verdict = RunOutcome(False, text, (text,), np.zeros(10))
    over = Snapshot(time=1.0, verdict=verdict, prior=snapshot.prior, bounds=snapshot.bounds)
    for page in (
        pieces.header(text, text, snapshot),
        pieces.header(text, text, over),
        pieces.header(text, text, Snapshot(missing=(text,))),
        pieces.notices(snapshot),
        pieces.node_cards(snapshot.nodes),
        pieces.intervals(snapshot),
        pieces.intervals(over),
        pieces.margins(snapshot),
        pieces.torques(snapshot, np.ones(7), ("N m",) * 7),
    ):
        reader = _Tags()
        reader.feed(page)
        assert set(reader.tags) <= {"div", "span", "b", "i", "u", "s", "small"}
        assert reader.attributes <= {"class", "id", "style", "title"}
        assert reader.depth == 0, "tags are closed"


@settings(deadline=None)
@given(st.integers(0, 9), st.floats(-5, 5), st.floats(0, 5), st.floats(0, 1))
def test_the_page_tells_the_exact_interval(i: int, low: float, width: float, share: float) -> None:
    lower, upper = np.zeros(10), np.ones(10)
    lower[i], upper[i] = low, low + width
    nominal = np.clip(lower + share * (upper - lower), lower, upper)
    page = pieces.intervals(snapshot_of("", BoundsView("0:1", lower, nominal, upper)))
    assert f'id="ss-interval-{PAYLOAD_NAMES[i]}" title="{float(lower[i])!r} {float(upper[i])!r}"' in page


def test_what_is_old_is_not_shown_as_if_it_were_now() -> None:
    now, old = (NodeView(0, "tracking: plan 1", {"state": "tracking"}, age) for age in (0.3, 9.0))
    assert "Following a certified plan" in pieces.header("arm", "here", Snapshot(nodes={"controller": now}))
    page = pieces.header("arm", "here", Snapshot(nodes={"controller": old}))
    assert "silent" in page
    assert "ss-phase ss-3" in page
    assert "9 s ago" in pieces.node_cards({"controller": old})


def test_what_the_controller_warns_of_stands_at_the_top() -> None:
    words = {"state": "holding", "reason": "at rest"}
    for level in (0, 1, 2):
        node = NodeView(level, "no measurement for 4.0 s; holding: at rest", words, 0.1)
        page = pieces.header("arm", "here", Snapshot(nodes={"controller": node}))
        assert ("no measurement for 4.0 s" in page) == (level > 0)
        assert "Holding still" in page


@given(st.floats(1e-9, 1e9), st.sampled_from((1.0, -1.0)))
def test_a_margin_is_never_shown_larger_than_it_is(size: float, sign: float) -> None:
    page = pieces.margins(Snapshot(margins=(Margin("torque", "", "", sign * size, 0.0),)))
    shown = float(page.partition("≥ ")[2].partition(" ")[0])
    assert shown <= sign * size
    assert shown == pytest.approx(sign * size, rel=0.02)


def test_without_a_record_of_the_truth_none_is_shown() -> None:
    bounds = BoundsView("0:1", PRIOR[0], np.zeros(10), PRIOR[1])
    for truth in (None, np.zeros(10)):
        over = RunOutcome(False, "the plant died", (), truth)
        page = pieces.intervals(Snapshot(prior=PRIOR, bounds=bounds, verdict=over))
        assert ("ss-true" in page) == ("which only the plant knew" in page) == (truth is not None)


def test_an_obstacle_of_two_corners_is_drawn_and_what_is_not_is_counted() -> None:
    stand_in = MagicMock()
    scene = ArmScene(stand_in, load_robot("three_joint"), ())

    def drawn(*solids: DrawnSolid) -> int:
        stand_in.scene.add_mesh_simple.reset_mock()
        scene.obstacles(solids)
        return sum(len(call.args[2]) for call in stand_in.scene.add_mesh_simple.call_args_list)

    ends = np.array([[0.0, 0.0, 0.0], [0.0, 0.0, 0.4]])
    line = DrawnSolid("line", np.zeros(3), np.eye(3), np.array([0.02, 0.0, 0.0]), ends)
    assert drawn(line) > 0
    assert scene.left_out == 0
    heap = DrawnSolid("triangles", np.zeros(3), np.eye(3), np.ones(3), np.tile(ends[[0, 1, 0]], (150_000, 1)))
    assert drawn(line, heap, heap) > 0
    assert scene.left_out == 1
    drawn()
    assert scene.left_out == 0


def test_namespaces_are_taken_without_slashes_at_their_ends_and_others_are_refused_at_once() -> None:
    for name in ("arm_1", "/arm_1", "/arm_1/", "site/arm_1", "", "/"):
        assert _namespace(name) == name.strip("/")
    for name in ("1", "a//b", "a b", "a" * 10_000 + "-"):
        with pytest.raises(argparse.ArgumentTypeError):
            _namespace(name)


def test_a_history_begins_anew_with_an_epoch_and_stays_short() -> None:
    history, zero = WidthHistory(), np.zeros(10)

    def add(time: float, identity: str, width: float) -> bool:
        bounds = BoundsView(identity, zero, zero, np.full(10, width))
        return history.add(Snapshot(time=time, prior=(zero, np.ones(10)), bounds=bounds))

    assert all(len(column) > 1 for column in history.data()), "axes, before anything is known"
    for k in range(2000):
        add(0.6 * k, f"0:{k}", 1.0 / (k + 1))
    times, mass = history.data()[:2]
    assert len(times) <= 400
    assert times[-1] == pytest.approx(0.6 * 1999)
    assert mass[-1] == pytest.approx(100.0 / 2000)
    assert np.all(np.diff(mass) <= 0.0)
    assert add(1200.0, "1:0", 1.0)
    assert history.data()[1][0] == 100.0


def test_frames_hang_where_the_kinematics_put_them() -> None:
    """The chain of relative poses that the scene tells comes to forward kinematics."""
    model = load_robot("kinova_gen3")
    rng = np.random.default_rng(3)
    told: dict[str, Any] = {}

    class Frame:
        def __init__(self, name: str, position: Any = (0.0, 0.0, 0.0), wxyz: Any = (1.0, 0.0, 0.0, 0.0), **_: Any):
            self.position, self.wxyz = position, wxyz
            told[name] = self

    stand_in = MagicMock()
    stand_in.scene.add_frame = Frame
    scene = ArmScene(stand_in, model, arm_shapes(model, "kinova_gen3"))
    joints = sorted((name for name in told if name.split("/")[-1].isdigit()), key=len)
    assert len(joints) == model.n
    for _ in range(5):
        q = rng.uniform(-3.0, 3.0, model.n)
        scene.pose(q)
        rotation, position = np.eye(3), np.zeros(3)
        expected = forward_kinematics(model.kinematics, q)
        for j, name in enumerate(joints):
            position = position + rotation @ np.asarray(told[name].position)
            rotation = rotation @ Rotation.from_quat(np.roll(told[name].wxyz, -1)).as_matrix()
            np.testing.assert_allclose(rotation, expected[0][j], atol=1e-9)
            np.testing.assert_allclose(position, expected[1][j], atol=1e-9)
