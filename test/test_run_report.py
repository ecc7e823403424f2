"""The report of a run: true to its files, whatever is missing; and nothing in a file becomes anything but text."""

from __future__ import annotations

import base64
import functools
import hashlib
import json
import operator
import re
import shutil
from dataclasses import replace
from fractions import Fraction
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest
from browser_support import browser, colours_in, needs_browser, scrolls_sideways
from demo_support import clean_logs, rig
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from run_support import FILES, write_logs, write_run

from safe_sysid.cli import main
from safe_sysid.core.layout import PAYLOAD_NAMES
from safe_sysid.errors import SafeSysIdError
from safe_sysid.report.drawing.chart import thinned
from safe_sysid.report.drawing.interval_cards import interval_drawing
from safe_sysid.report.drawing.page import LONGEST, render_page, shortened
from safe_sysid.report.run import robot as run_robot
from safe_sysid.report.run.curves import CurvesError, JudgedCurves, read_curves, write_curves
from safe_sysid.report.run.facts import NoRunError, read_facts
from safe_sysid.report.run.html import run_html, write_run_report

pytestmark = pytest.mark.unproved
HOSTILE = "<script>alert(1)</script>\"'><img src=x onerror=alert(2)>&amp;{{ 7*7 }}{% raw %}\u202e"
#: All that a page is made of.
TAGS = """html head meta title style body header h1 h2 h3 p div span b ul li table tr th td figure figcaption details
    summary pre code footer img svg rect line path text"""
ATTRIBUTES = """lang charset http-equiv content name class viewbox role aria-label x y x1 y1 x2 y2 width height rx d
    text-anchor open alt src"""


class Page(HTMLParser):
    """Tags, attributes and texts of a page."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: set[str] = set()
        self.attributes: set[str] = set()
        self.texts: list[str] = []
        self.cells: list[list[str]] = []
        self._cell = self._style = False
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        chart = dict(attrs).get("src", "").startswith("data:image/svg+xml;base64,")
        self.tags.add(tag if tag != "img" or chart else "img from elsewhere")
        self.attributes |= {name for name, _ in attrs}
        if tag == "tr":
            self.cells.append([])
        self._cell, self._style = tag in ("td", "th"), tag == "style"

    def handle_data(self, data: str) -> None:
        if self._style:
            return
        self.texts.append(data)
        if self._cell and self.cells:
            self.cells[-1].append(data.strip())
            self._cell = False

    @property
    def text(self) -> str:
        return " ".join(" ".join(self.texts).split())

    def shows_texts_only(self) -> bool:
        return self.tags <= set(TAGS.split()) and self.attributes <= set(ATTRIBUTES.split())


@pytest.fixture(scope="module")
def run_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_run(tmp_path_factory.mktemp("runs") / "clean")


@pytest.fixture
def copy(run_dir: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(run_dir, tmp_path / "copy"))


@pytest.fixture
def without_charts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Texts are what is looked at: drawing is most of a page's time."""
    monkeypatch.setattr("matplotlib.figure.Figure.savefig", lambda *_, **__: None)


def page_of(directory: Path) -> Page:
    return Page(run_html(read_facts(directory), rig().model)[0])


def test_numbers_on_the_page_are_those_of_the_run(run_dir: Path) -> None:
    page = page_of(run_dir)
    rows = {row["name"]: row for row in json.loads((run_dir / "summary.json").read_text())["parameters"]}
    shown = {row[0]: row for row in page.cells if row and row[0] in PAYLOAD_NAMES and len(row) == 8}
    assert list(shown) == list(PAYLOAD_NAMES)
    for name, row in rows.items():
        low, nominal, high = (Fraction(text) for text in shown[name][1:4])
        assert low <= Fraction(row["lower"])
        assert Fraction(row["upper"]) <= high
        assert low <= nominal <= high
        assert high - low <= 1.01 * (row["upper"] - row["lower"])
        assert abs(Fraction(shown[name][5]) - Fraction(row["truth"])) <= Fraction(high - low) / 20
        assert shown[name][6] == "yes"
    assert re.search(r"The payload weighs [\d.]+ to [\d.]+ kg, .* every bound held and nothing was violated", page.text)
    for text in ("no plan: deadline; cold", "late: 3", "plan: stale: 2", "joint_states: stale: 4", "planner: slow"):
        assert text in page.text
    assert page.shows_texts_only()


def test_the_page_allows_its_own_style_and_nothing_else(run_dir: Path) -> None:
    text = run_html(read_facts(run_dir))[0]
    policy = re.search(r'Content-Security-Policy" content="([^"]+)"', text)
    style = re.search(r"<style>(.*?)</style>", text, re.DOTALL)
    assert policy
    assert style
    digest = base64.b64encode(hashlib.sha256(style[1].encode()).digest()).decode()
    assert f"style-src 'sha256-{digest}'" in policy[1].replace("&#39;", "'")
    assert "default-src 'none'" in policy[1].replace("&#39;", "'")
    charts = re.sub(r'src="data:image/svg\+xml;base64,[\w+/=]+"', "", text)
    assert not re.search(r"https?://|url\(|@import|<script|<link|\ssrc=|\shref=|\son\w+=", charts)


def test_the_page_comes_out_the_same_again_and_says_so_on_the_command_line(copy: Path, capsys) -> None:
    assert main(["report", str(copy)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert "every bound held" in lines[0]
    first = (copy / "report.html").read_text()
    assert main(["report", str(copy), "--out", str(copy.parent / "again.html")]) == 0
    assert (copy.parent / "again.html").read_text() == first
    assert len(first) < 200_000


@pytest.mark.usefixtures("without_charts")
@pytest.mark.parametrize("missing", FILES)
def test_what_is_missing_is_left_out(copy: Path, missing: str) -> None:
    (copy / missing).unlink()
    page = page_of(copy)
    assert page.shows_texts_only()
    if missing not in ("summary.json", "judged.npz"):
        assert f"{missing}: not written" in page.text
    assert ("very bound held" in page.text) == (missing != "summary.json")


@pytest.mark.usefixtures("without_charts")
@pytest.mark.parametrize("only", ["summary.json", "plant.npz", "planner.json"])
def test_one_file_alone_makes_a_page(copy: Path, only: str) -> None:
    for name in FILES:
        if name != only:
            (copy / name).unlink()
    assert "Check it yourself" in page_of(copy).text


@pytest.mark.usefixtures("without_charts")
def test_without_a_judge_nothing_is_called_true(copy: Path) -> None:
    for name in ("summary.json", "judged.npz", "plant.npz"):
        (copy / name).unlink()
    page = page_of(copy)
    assert "truth" not in page.text.replace("Nobody here knows the true payload", "").partition("What is guaranteed")[0]
    assert "very bound held" not in page.text
    assert "Measured tracking error" in page.text
    assert "Commanded" in page.text


@pytest.mark.usefixtures("without_charts")
def test_verdicts_say_what_went_wrong(tmp_path: Path) -> None:
    failed = write_run(tmp_path / "failed", "violations: 3 torque")
    assert "Failed: violations: 3 torque" in page_of(failed).text
    logs = clean_logs()
    write_logs(failed, replace(logs, controller=replace(logs.controller, state=np.full(2400, "fault"))))
    (failed / "summary.json").unlink()
    assert "went to fault" in page_of(failed).text
    record = json.loads((failed / "identifier.json").read_text())
    record["updates"][-1]["status"] = "EMPTY_SET"
    (failed / "identifier.json").write_text(json.dumps(record))
    assert "contradict what is declared" in page_of(failed).text


@pytest.mark.usefixtures("without_charts")
@pytest.mark.parametrize(
    ("place", "value", "expected"),
    [
        (("parameters", 0, "truth"), 10.0, "the truth lies outside of the bounds of m"),
        (("violations", "torque"), 2, "2 violations, though"),
        (("parameters", 3, "truth"), None, "whether they hold was not judged"),
        (("safety", "evidence", "updates"), 0, "whether they hold was not judged"),
    ],
)
def test_a_judge_that_contradicts_itself_is_not_believed(
    copy: Path, place: tuple[str | int, ...], value: object, expected: str
) -> None:
    summary = json.loads((copy / "summary.json").read_text())
    assert summary["exit"]["status"] == 0
    assert not any(summary["violations"].values())
    functools.reduce(operator.getitem, place[:-1], summary)[place[-1]] = value
    (copy / "summary.json").write_text(json.dumps(summary))
    page = page_of(copy)
    # Where the file is refused as a whole the page says that there was no judge.
    assert expected in page.text or "summary.json:" in page.text
    assert "very bound held" not in page.text


@pytest.mark.usefixtures("without_charts")
def test_odd_values_in_logs_still_give_a_page(copy: Path) -> None:
    planner = json.loads((copy / "planner.json").read_text())
    planner["plans"][0]["margins"] = ["torque", 1.0]
    planner["plans"][-1]["time"] = None
    (copy / "planner.json").write_text(json.dumps(planner))
    with np.load(copy / "controller.npz") as archive:
        data = {name: archive[name] for name in archive.files}
    data["e"] = data["torque"] = np.full(len(data["stamp"]), "text")
    np.savez(copy / "controller.npz", **data)
    assert "Check it yourself" in page_of(copy).text


def test_another_payload_is_another_epoch(copy: Path) -> None:
    """Of two epochs the last counts; the widths of the first are not those of what is held now."""
    for name in ("summary.json", "judged.npz"):
        (copy / name).unlink()
    record = json.loads((copy / "identifier.json").read_text())
    record["updates"][0]["identity"] = "0:1"
    for number, update in enumerate(record["updates"][1:], 1):
        update["identity"] = f"1:{number}"
    (copy / "identifier.json").write_text(json.dumps(record))
    facts = read_facts(copy)
    assert facts.epoch == 1
    assert len(facts.updates) == 2


def test_other_directories_are_refused(tmp_path: Path, capsys) -> None:
    (tmp_path / "notes.txt").write_text("no run")
    for path, text in ((tmp_path, "not a run directory"), (tmp_path / "none", "expected the directory of a run")):
        with pytest.raises(NoRunError, match=text):
            read_facts(path)
        assert main(["report", str(path)]) == 2
        assert text in capsys.readouterr().err
    assert not list(tmp_path.glob("*.html"))


# -- hostile files ----------------------------------------------------------------------------------------------------


def spoil(directory: Path, text: str) -> None:
    """Put a text everywhere where a run directory has one."""
    summary = json.loads((directory / "summary.json").read_text())
    for key in ("robot", "scene", "payload", "arm"):
        summary[key] = text
    summary["warnings"] = [text]
    summary["exit"] = {"status": 1, "reason": text}
    summary["safety"]["findings"] = [text]
    summary["safety"]["clearance"]["pair"] = [text, text]
    summary["safety"]["torque"]["joint"] = text
    summary["timing"]["controller"]["scheduling"] = text
    summary["noise"]["mode"] = text
    (directory / "summary.json").write_text(json.dumps(summary))
    planner = json.loads((directory / "planner.json").read_text())
    for plan in planner["plans"]:
        plan |= {"purpose": text, "box": text, "reasons": [text]}
        for margin in plan.get("margins", {}).values():
            margin["culprit"] = text
    planner["plans"][-1]["status"] = text
    planner["refused"] = {text: 1}
    (directory / "planner.json").write_text(json.dumps(planner))
    identifier = json.loads((directory / "identifier.json").read_text())
    for update in identifier["updates"]:
        update |= {"identity": text, "status": text}
    (directory / "identifier.json").write_text(json.dumps(identifier))
    with np.load(directory / "controller.npz") as archive:
        data = {name: archive[name] for name in archive.files}
    data["joint_names"] = np.array([f"{i}{text}" for i in range(7)])
    data["states"] = np.array([text] * 5)
    data["counts"] = data["refused"] = np.array([text])
    np.savez(directory / "controller.npz", **data)
    (directory / "parameters").mkdir(exist_ok=True)
    given = {"robot": text, "scene": text, "robot_settings": {"measurement": {"torque_abs": text}}}
    (directory / "parameters" / "controller.yaml").write_text(json.dumps({"/**": {"ros__parameters": given}}))


def test_names_from_files_are_shown_as_text(copy: Path) -> None:
    """Those of commands, too: what would be copied is what a terminal shows."""
    spoil(copy, HOSTILE)
    for model in (rig().model, None):
        text = run_html(read_facts(copy), model)[0]
        page = Page(text)
        assert page.shows_texts_only()
        assert page.text.count("<script>alert(1)</script>") > 20
        assert "{{ 7*7 }}" in page.text
        assert "\u202e" not in text


@pytest.mark.usefixtures("without_charts")
@given(st.text(max_size=60))
@settings(max_examples=3, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_no_text_whatever_becomes_markup(copy: Path, text: str) -> None:
    spoil(copy, text.encode("utf-8", "replace").decode())
    page = page_of(copy)
    assert page.shows_texts_only()


@pytest.mark.usefixtures("without_charts")
def test_long_texts_are_cut_and_commands_are_not(copy: Path) -> None:
    spoil(copy, "x" * 8000)
    text = run_html(read_facts(copy), None)[0]
    assert len(text) < 400_000
    assert "x" * (LONGEST + 1) not in text.partition("Check it yourself")[0]
    assert shortened("a\u202eb\x00c") == "a\N{REPLACEMENT CHARACTER}b\N{REPLACEMENT CHARACTER}c"


@given(st.sampled_from(FILES), st.integers(0, 2**31), st.sampled_from(("cut", "flip", "noise", "swap")))
@settings(max_examples=4, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
def test_damaged_files_never_take_the_page_away(copy: Path, run_dir: Path, name: str, seed: int, how: str) -> None:
    rng, data = np.random.default_rng(seed), bytearray((run_dir / name).read_bytes())
    if how == "cut":
        data = data[: int(rng.integers(len(data)))]
    elif how == "flip":
        for place in rng.integers(len(data), size=5):
            data[place] ^= int(rng.integers(1, 256))
    elif how == "noise":
        data = bytearray(rng.bytes(300))
    else:
        data = bytearray((run_dir / FILES[int(rng.integers(len(FILES)))]).read_bytes())
    try:
        (copy / name).write_bytes(bytes(data))
        with np.errstate(all="ignore"):
            page = page_of(copy)
    except SafeSysIdError:
        pass  # a clear refusal, too
    else:
        assert page.shows_texts_only()
    finally:
        shutil.copy(run_dir / name, copy / name)


def test_a_run_directory_does_not_name_files_to_open(copy: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[str] = []
    monkeypatch.setattr(run_robot, "load_robot", lambda name, **_: opened.append(name))
    for name in ("/etc/passwd", "../robot.yaml", "my_arm.yaml", "package://x/y.yaml"):
        (copy / "parameters").mkdir(exist_ok=True)
        (copy / "parameters" / "controller.yaml").write_text(json.dumps({"/**": {"ros__parameters": {"robot": name}}}))
        facts = read_facts(copy)
        assert facts.parameters["robot"] == name
        run_robot.robot_of_run(facts)
    assert opened == []


def test_curves_come_back_and_bombs_do_not(tmp_path: Path) -> None:
    time = np.linspace(0.0, 9.0, 5000)
    distance = np.sin(time) + 2.0
    distance[4321] = 0.123
    shares = np.abs(np.cos(time))[:, None] * np.ones((1, 3))
    curves = JudgedCurves.of((time, distance, np.full(5000, -np.inf)), (time, shares, shares[:, 0]))
    write_curves(tmp_path / "judged.npz", curves)
    again = read_curves(tmp_path / "judged.npz")
    np.testing.assert_array_equal(again.clearance, curves.clearance)
    assert again.clearance.min() == 0.123
    assert np.all(np.isnan(again.certified))
    assert len(again.clearance_time) <= 1010
    np.savez_compressed(tmp_path / "bomb.npz", clearance_time=np.zeros(10_000_000))
    with pytest.raises(CurvesError, match=r"expected the curves of a judged run|at most 20000"):
        read_curves(tmp_path / "bomb.npz")
    np.savez(tmp_path / "odd.npz", **{**curves.__dict__, "clearance": np.zeros(3)})
    with pytest.raises(CurvesError, match="clearance has shape"):
        read_curves(tmp_path / "odd.npz")


# -- drawings ---------------------------------------------------------------------------------------------------------

NUMBERS = st.floats(-1e9, 1e9, allow_nan=False)


def places(markup: str) -> list[float]:
    without_words = re.sub(r"<text.*?</text>|aria-label=\"[^\"]*\"", "", markup)
    return [float(x) for x in re.findall(r"(?<![\w.#-])-?\d+(?:\.\d+)?", without_words)]


@given(NUMBERS, st.floats(0.0, 1e6), st.floats(0.0, 1e6), st.floats(0.0, 1e6), st.floats(-0.5, 1.5))
def test_an_interval_is_drawn_inside_its_frame(low, a, b, c, share) -> None:
    lower, upper, high = low + a, low + a + b, low + a + b + c
    nominal = lower + share * (upper - lower)
    text = str(interval_drawing("m", (lower, nominal, upper), (low, high), truth=lower))
    assert "nan" not in text
    assert all(-1.0 <= x <= 341.0 for x in places(text))


@given(st.integers(1, 3000), st.integers(0, 10_000))
def test_thinning_keeps_the_extremes(size, seed) -> None:
    values = np.random.default_rng(seed).normal(size=size)
    values[np.random.default_rng(seed + 1).random(size) < 0.1] = np.nan
    time, few = thinned(np.arange(size, dtype=float), values)
    assert few.size <= 500
    assert np.all(np.diff(time) > 0.0)
    if np.any(np.isfinite(values)):
        assert np.nanmin(few) == np.nanmin(values)
        assert np.nanmax(few) == np.nanmax(values)


def test_a_name_that_a_template_does_not_get_is_an_error() -> None:
    with pytest.raises(Exception, match="undefined"):
        render_page("t", "{{ nothing }}", {})


# -- in a browser -----------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def pages(run_dir: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("pages")
    hostile = Path(shutil.copytree(run_dir, folder / "hostile"))
    spoil(hostile, HOSTILE + "w" * 300)
    return {
        "clean": write_run_report(read_facts(run_dir), folder / "clean.html", rig().model)[0],
        "hostile": write_run_report(read_facts(hostile), folder / "hostile.html")[0],
    }


@pytest.mark.slow
def test_a_browser_shows_it_on_a_phone_and_a_desk_in_light_and_dark(pages: dict[str, Path]) -> None:
    needs_browser()
    with browser() as open_tab:
        pictures = {}
        looks = (("clean", 360, "light"), ("clean", 1100, "dark"), ("hostile", 360, "light"))
        for name, width, scheme in looks:
            path = pages[name]
            tab = open_tab(path.as_uri(), width, 800, color_scheme=scheme)
            assert not scrolls_sideways(tab), (name, width)
            assert tab.errors == []
            if name == "clean":
                assert tab.page.evaluate("document.documentElement.scrollHeight") <= 3000
            assert tab.requests == [path.as_uri()]
            assert tab.page.locator("script, iframe, object, a").count() == 0
            cut = "[...document.querySelectorAll('figure svg text')].filter(t => { const b = t.getBBox(), v = "
            cut += "t.ownerSVGElement.viewBox.baseVal; return b.x < -1 || b.x + b.width > v.width + 1; }).length"
            assert name != "clean" or tab.page.evaluate(cut) == 0, "a label is cut off"
            pictures[name, width, scheme] = tab.picture()
            assert "alert(1)" in tab.text("h1") or name == "clean"
        for picture in pictures.values():
            assert colours_in(picture) > 20
        assert pictures["clean", 360, "light"].mean() > 200.0
        assert pictures["clean", 1100, "dark"].mean() < 80.0
