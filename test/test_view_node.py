"""The viewer node in a real browser, told of an arm by the test: what it shows, what its buttons call, how it ends."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("rclpy")

from browser_support import Tab, browser, colours_in, needs_browser
from geometry_msgs.msg import Point
from ros_harness import Probe
from sensor_msgs.msg import JointState
from std_msgs.msg import Float64MultiArray
from view_support import ToldArm, viewing
from visualization_msgs.msg import Marker, MarkerArray

from safe_sysid.core.layout import PAYLOAD_NAMES
from safe_sysid.nodes.common.base import LATCHED_INPUT
from safe_sysid.nodes.common.digest import configuration_digest

#: What viser's page tries and the content security policy forbids it, harmlessly: compiling a sorter of splats.
HARMLESS = ("Evaluating a string as JavaScript", "unsafe-eval")
#: Pixels per length: a software renderer paints every one of them, all the time.
COARSE = {"device_scale_factor": 0.3}
pytestmark = pytest.mark.slow
BUTTONS = ("Emergency stop", "Reset emergency stop", "Stop", "Start control", "Start planner", "Reset bounds")


@pytest.fixture(scope="module")
def probe() -> Iterator[Probe]:
    with Probe() as running:
        yield running


@pytest.fixture(scope="module")
def open_tab() -> Iterator[Any]:
    needs_browser()
    with browser() as opened:
        yield opened


@pytest.fixture(scope="module")
def arm(probe: Probe) -> ToldArm:
    told = ToldArm(probe)
    told.serve("controller/stop", "controller/start", "controller/emergency_stop", "controller/reset_bounds")
    return told


@pytest.fixture(scope="module")
def viewer(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with viewing(tmp_path_factory.mktemp("viewer")) as (_, address):
        yield address


@pytest.fixture(scope="module")
def tab(open_tab: Any, viewer: str) -> Tab:
    return open_tab(viewer, 780, 500, **COARSE)


def until(tab: Tab, arm: ToldArm, probe: Probe, condition: Any, what: str, **told: Any) -> None:
    """Keep telling until the page shows it."""

    def step() -> Any:
        arm.tell(**told)
        probe.spin(0.1)
        return condition()

    tab.wait(step, what)


def interval(tab: Tab, name: str) -> tuple[float, float]:
    found = tab.page.query_selector(f"#ss-interval-{name}")
    words = "" if found is None else found.get_attribute("title") or ""
    low, high = (float(word) for word in words.split()) if words else (np.nan, np.nan)
    return low, high


def test_the_page_shows_the_arm_and_nothing_of_it_goes_wrong(tab: Tab, arm: ToldArm, probe: Probe) -> None:
    until(tab, arm, probe, lambda: "Holding still" in tab.text("#ss-phase"), "the state")
    tab.wait(lambda: colours_in(_canvas(tab)) > 60, "a picture that is not blank")
    assert [e for e in tab.errors if not any(known in e for known in HARMLESS)] == []
    own = tab.page.url.rstrip("/"), "data:", "blob:"
    assert [url for url in tab.requests if not url.startswith(own)] == [], "nothing is asked of anybody else"
    assert "key=" not in tab.page.url


def _canvas(tab: Tab) -> np.ndarray:
    """Where the arm is, without the panel and the page's own notices: a dozen colours without an arm."""
    picture = tab.picture()
    height, width = picture.shape[:2]
    return picture[int(0.33 * height) :, : int(0.42 * width)]


def test_the_arm_in_the_picture_moves(tab: Tab, arm: ToldArm, probe: Probe) -> None:
    tab.picture(settled=True)
    before = _canvas(tab).astype(int)
    q = np.array(arm.model.settings.home) + np.array([1.0, 0.8, -0.9])
    until(tab, arm, probe, lambda: np.mean(np.abs(_canvas(tab).astype(int) - before)) > 1.0, "a move", q=q)


def test_intervals_are_those_of_the_last_active_box(tab: Tab, arm: ToldArm, probe: Probe) -> None:
    last = arm.model.layout.payload
    for share, identity in ((1.0, (0, 0)), (0.3, (0, 1)), (0.01, (0, 2)), (1.0, (1, 0))):
        box = arm.know(share, identity)
        until(tab, arm, probe, lambda box=box: tab.text("#ss-box").lower() == f"box {box.identity}", "the box")
        for name, low, high in zip(PAYLOAD_NAMES, box.lower[last], box.upper[last], strict=True):
            assert interval(tab, name) == (low, high)


def test_nodes_that_are_configured_otherwise_are_pointed_out(tab: Tab, arm: ToldArm, probe: Probe) -> None:
    own = configuration_digest(arm.model, lockstep=True)
    for digest, shown in (("0" * 32 + ",measurement=abcdef", True), (own, False), ("0" * 32, True), (own, False)):
        arm.know(0.5, (1, 1), digest)

        def agrees(shown: bool = shown) -> bool:
            return ("configured differently" in tab.text("#ss-notices")) == shown

        until(tab, arm, probe, agrees, f"digest {digest[:40]}")


def test_what_cannot_be_read_is_counted_and_changes_nothing(tab: Tab, arm: ToldArm, probe: Probe) -> None:
    before = [interval(tab, name) for name in PAYLOAD_NAMES]
    arm.boxes.publish(Float64MultiArray(data=[float("nan")] * 3))
    arm.boxes.publish(Float64MultiArray(data=[0.0] * 100_000))
    until(tab, arm, probe, lambda: "bounds_active: too long" in tab.text("#ss-notices"), "the count")
    arm.states.publish(JointState(name=["nobody"], position=[float("inf")]))
    until(tab, arm, probe, lambda: "bounds_active: bad layout" in tab.text("#ss-notices"), "the count")
    assert [interval(tab, name) for name in PAYLOAD_NAMES] == before


def test_hostile_words_are_words(tab: Tab, arm: ToldArm, probe: Probe) -> None:
    evil = '<img src=x onerror="document.title=\'owned\'"><script>document.title="owned"</script>'
    until(tab, arm, probe, lambda: "<img src=x" in tab.text("#ss-phase"), "it as text", reason=evil, state=evil)
    arm.say("planner", evil * 1000, {"phase": evil})
    until(tab, arm, probe, lambda: "<img src=x" in tab.text("#ss-node-planner"), "it as text")
    assert tab.page.title() == "safe_sysid"
    assert tab.page.query_selector("img[src=x]") is None
    assert len(tab.text("#ss-node-planner")) < 400


def test_markers_without_measure_are_left_out(tab: Tab, arm: ToldArm, probe: Probe) -> None:
    markers = probe.publisher(MarkerArray, "/markers", LATCHED_INPUT)
    far = Marker(ns="obstacles", id=1, type=Marker.CUBE)
    far.pose.position.x = float("nan")
    long = Marker(ns="plan", id=0, type=Marker.LINE_STRIP, points=[Point()] * 30_000)
    named = Marker(ns="obstacles", id=2, type=Marker.MESH_RESOURCE, mesh_resource="file:///etc/passwd")
    many = [Marker(ns="obstacles", id=k, type=Marker.SPHERE) for k in range(5000)]
    markers.publish(MarkerArray(markers=[far, long, named, *many]))

    for reason in ("far away", "too many points", "type not drawn", "too many(?! points)"):
        until(tab, arm, probe, lambda said=f"marker: {reason}": re.search(said, tab.text("#ss-notices")), reason)
    markers.publish(MarkerArray(markers=[Marker(action=Marker.DELETEALL)]))


def test_what_stops_is_called_at_once_and_the_answer_is_shown(tab: Tab, arm: ToldArm, probe: Probe) -> None:
    arm.calls.clear()
    arm.answer = (False, "nothing is commanded <b>here</b>")
    tab.press("Stop")
    until(tab, arm, probe, lambda: arm.calls == ["controller/stop"], "the call")
    until(tab, arm, probe, lambda: arm.answer[1] in tab.text("body"), "the node's answer, as text")
    arm.answer = (True, "done")
    tab.press("Emergency stop")
    until(tab, arm, probe, lambda: arm.calls[1:] == ["controller/emergency_stop"], "the call")


def test_what_moves_the_arm_is_asked_for_twice(tab: Tab, arm: ToldArm, probe: Probe) -> None:
    arm.calls.clear()
    tab.page.get_by_text("Start, plan, reset").dispatch_event("click")
    tab.press("Start control")
    tab.wait(lambda: "Is everybody out of reach?" in tab.text("body"), "the question")
    tab.press("No")
    tab.wait(lambda: "Is everybody out of reach?" not in tab.text("body"), "its end")
    probe.spin(0.5)
    assert arm.calls == []
    tab.press("Start control")
    tab.press("Yes: start control")
    until(tab, arm, probe, lambda: arm.calls == ["controller/start"], "the call")
    tab.press("Start planner")
    tab.press("Yes: start planner")
    until(tab, arm, probe, lambda: "nobody offers" in tab.text("body"), "that nobody is there")


def test_silence_is_told(tab: Tab, arm: ToldArm, probe: Probe) -> None:
    until(tab, arm, probe, lambda: "Holding still" in tab.text("#ss-phase"), "the state")
    tab.wait(lambda: "silent" in tab.text("#ss-phase"), "that nothing comes any more")
    until(tab, arm, probe, lambda: "Holding still" in tab.text("#ss-phase"), "the state again")


def test_many_look_and_come_again(tab: Tab, open_tab: Any, viewer: str, arm: ToldArm, probe: Probe) -> None:
    """A second page has everything at once; a page that is loaded anew, too."""
    box = arm.know(0.2, (2, 0))
    until(tab, arm, probe, lambda: tab.text("#ss-box").lower() == "box 2:0", "the box")
    second = open_tab(viewer, 300, 500, **COARSE)
    second.wait(lambda: second.text("#ss-box").lower() == "box 2:0", "the box in another page")
    assert not second.page.evaluate("document.documentElement.scrollWidth > innerWidth"), "at phone width"
    second.page.context.close()
    tab.page.reload()
    tab.wait(lambda: tab.text("#ss-box").lower() == f"box {box.identity}", "the box in the page that was loaded anew")


def test_alone_it_says_what_is_missing(tmp_path: Path, open_tab: Any, arm: ToldArm, probe: Probe) -> None:
    """In a namespace without an arm, without buttons, while the other arm goes on."""
    with viewing(tmp_path, "elsewhere", read_only=True) as (_, address):
        other = open_tab(address, 800, 400, **COARSE)
        other.wait(lambda: "nobody publishes /elsewhere/joint_states" in other.text("#ss-notices"), "it")
        arm.tell()
        probe.spin(0.6)
        assert "No controller is heard" in other.text("#ss-phase"), "the other arm's words are not this one's"
        for name in BUTTONS:
            assert other.page.get_by_role("button", name=name, exact=True).count() == 0
