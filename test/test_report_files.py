"""Summary, tables and pictures: complete, readable, whole or not at all."""

from __future__ import annotations

import io
import json
import re
import time
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from demo_support import clean_logs, oracle, rig
from matplotlib.image import imread
from pydantic import BaseModel, ValidationError
from rich.console import Console

from safe_sysid.apps import progress
from safe_sysid.apps.judge.evaluation import evaluate
from safe_sysid.core.layout import PAYLOAD_NAMES, PAYLOAD_UNITS
from safe_sysid.demo.options import DemoOptions, Setup
from safe_sysid.demo.state import BoxSeen, NodeStatus, PlanSeen, RunState
from safe_sysid.demo.summarise import draw_pictures, summarise
from safe_sysid.demo.supervisor import RunClock
from safe_sysid.report.run import summary as schema
from safe_sysid.report.run.logs import RunLogs
from safe_sysid.report.run.summary import Exit, Summary, write_summary
from safe_sysid.report.run.table import print_report, safety_rows
from safe_sysid.robot.scenes.scene import Scene
from safe_sysid.whole_files import replacing, write_text

pytestmark = pytest.mark.unproved

ROOT = Path(__file__).resolve().parent.parent


def setup_for(run_dir: Path, **options: object) -> Setup:
    model = rig().model
    home = np.array(model.settings.home)
    return Setup(DemoOptions(**options), model, Scene("open"), rig().gains, "8lb", home, run_dir)


def summary_of(logs: RunLogs, run_dir: Path, reason: str = "", **options: object) -> Summary:
    setup = setup_for(run_dir, **options)
    evaluation = evaluate(logs, setup.model, setup.gains, oracle)
    end = Exit(status=1 if reason else 0, reason=reason)
    return summarise(setup, logs, evaluation, RunClock(3.0, 4.8, 2.4), ["planner: slow"], end)


def test_a_summary_says_how_often_a_feed_forward_was_followed(tmp_path: Path) -> None:
    logs = clean_logs()
    assert summary_of(logs, tmp_path).feed_forward is None
    ticks = ("feed-forward late: 12", "feed-forward failed: ValueError: no: 1", "followed: 987")
    controller = replace(logs.controller, feed_forward="residual", feed_forward_ticks=ticks)
    summary = summary_of(replace(logs, controller=controller), tmp_path)
    assert summary.feed_forward.name == "residual"
    assert summary.feed_forward.followed == 987
    assert summary.feed_forward.not_followed == {"feed-forward late": 12, "feed-forward failed: ValueError: no": 1}
    assert safety_rows(summary)[-1] == (
        "feed-forward residual",
        "98.7 %",
        "followed in 987 of 1000 ticks; feed-forward late: 12; feed-forward failed: ValueError: no: 1",
    )


def test_summary_has_what_was_promised(tmp_path: Path) -> None:
    write_summary(tmp_path / "deep" / "summary.json", summary_of(clean_logs(), tmp_path))
    data = json.loads((tmp_path / "deep" / "summary.json").read_text())
    assert data["schema"] == 1
    assert [row["name"] for row in data["parameters"]] == list(PAYLOAD_NAMES)
    assert [row["unit"] for row in data["parameters"]] == list(PAYLOAD_UNITS)
    columns = {"name", "unit", "truth", "lower", "nominal", "upper", "prior_lower", "prior_upper"}
    for row in data["parameters"]:
        assert set(row) == columns
        assert row["prior_lower"] <= row["lower"] <= row["truth"] <= row["upper"] <= row["prior_upper"]
    assert data["violations"] == dict.fromkeys(
        ("position", "velocity", "torque", "clearance", "tracking", "contact", "bounds"), 0
    )
    assert len(data["plans"]) == 2
    assert data["exit"] == {"status": 0, "reason": ""}
    assert {"timing", "safety", "robot", "scene", "payload", "seed", "noise", "mode"} <= set(data)
    assert Summary.model_validate(data).violations.total == 0


def test_every_field_is_documented() -> None:
    text = (ROOT / "docs" / "refer" / "summary_json.md").read_text(encoding="utf-8")
    told = set(re.findall(r"`([a-z0-9_]+)`", text))
    models = [m for m in vars(schema).values() if isinstance(m, type) and issubclass(m, BaseModel)]
    assert len(models) > 10
    assert {field.alias or name for model in models for name, field in model.model_fields.items()} <= told


def test_summary_refuses_what_it_does_not_know(tmp_path: Path) -> None:
    data = json.loads(summary_of(clean_logs(), tmp_path).to_json())
    first, *others = data["parameters"]
    for spoil in (
        {"extra": 1},
        {"schema": 2},
        {"violations": {**data["violations"], "torque": -1}},
        {"parameters": data["parameters"][:9]},
        {"parameters": data["parameters"][::-1]},
        {"parameters": [{**first, "unit": "g"}, *others]},
        {"parameters": [{**first, "lower": float("nan")}, *others]},
        {"mode": "slow motion"},
    ):
        with pytest.raises(ValidationError):
            Summary.model_validate({**data, **spoil})


def test_a_run_without_any_log_still_has_a_summary(tmp_path: Path) -> None:
    logs = RunLogs(None, None, (), (), ("plant.npz: not written", "controller.npz: not written"))
    data = json.loads(summary_of(logs, tmp_path, "controller was killed by SIGKILL").to_json())
    assert data["exit"] == {"status": 1, "reason": "controller was killed by SIGKILL"}
    for row in data["parameters"]:
        assert row["truth"] is None
        assert (row["lower"], row["upper"]) == (row["prior_lower"], row["prior_upper"])
    assert data["safety"]["torque"] is None


def test_real_time_statistics(tmp_path: Path) -> None:
    logs = clean_logs()
    logs.plant.mode[100:107] = 1
    loop = summary_of(logs, tmp_path, lockstep=False).timing.controller
    assert loop.missed == 7
    assert loop.period_us is not None
    assert loop.period_us.p50 == pytest.approx(1000.0)
    loop = summary_of(logs, tmp_path).timing.controller
    assert (loop.missed, loop.period_us) == (None, None)  # in lock-step the wall clock says nothing


def printed(summary: Summary, width: int) -> str:
    console = Console(width=width, record=True, file=io.StringIO())
    print_report(console, summary)
    return console.export_text()


def test_tables_show_everything(tmp_path: Path) -> None:
    logs = clean_logs()
    logs.plant.applied[300, 0] = 60.0
    text = printed(summary_of(logs, tmp_path, "violations"), 160)
    for name in PAYLOAD_NAMES:
        assert re.search(rf"^ *{name} ", text, re.M)
    for word in ("truth", "nominal", "prior", "30.0 %", "payload - post", "105.8 %", "torque 1", "planner: slow"):
        assert word in text
    assert "violation  torque: joint_1 at 60 N m, limit 56.7" in text


def test_tables_fit_a_small_terminal(tmp_path: Path) -> None:
    text = printed(summary_of(clean_logs(), tmp_path), 80)
    assert "…" not in text
    assert all(len(line) <= 80 for line in text.splitlines())
    assert re.search(r"mcz +kg m +(-?\d\.\d{2,6} +){5}", text), "as many digits as the width has to say"


def is_picture(path: Path) -> bool:
    """A PNG of a fair size that is not blank."""
    pixels = imread(path)[..., :3]
    colours = (255 * pixels).astype(np.int64) @ np.array([1, 256, 65536])
    return pixels.shape[0] > 400 and pixels.shape[1] > 800 and np.unique(colours).size > 50


@pytest.mark.slow
@pytest.mark.parametrize("broke_off", [False, True])
def test_pictures_of_a_run_whole_or_broken_off(tmp_path: Path, broke_off: bool) -> None:
    logs = clean_logs()
    if broke_off:
        logs = RunLogs(logs.plant, None, (), (), ("controller.npz: not written",))
    assert draw_pictures(setup_for(tmp_path), logs) == ["bounds.png"]
    assert [path.name for path in tmp_path.iterdir()] == ["bounds.png"], "no temporary file is left"
    assert is_picture(tmp_path / "bounds.png")


def test_no_picture_without_a_record_of_the_plant(tmp_path: Path) -> None:
    assert draw_pictures(setup_for(tmp_path), RunLogs(None, None, (), ())) == []


def test_errors_name_the_file_that_was_asked_for(tmp_path: Path) -> None:
    (tmp_path / "a.json").mkdir()
    (tmp_path / "a.json" / "full").touch()
    with pytest.raises(IsADirectoryError) as refused:
        write_text(tmp_path / "a.json", "text")
    assert refused.value.filename == str(tmp_path / "a.json")
    assert [path.name for path in tmp_path.iterdir()] == ["a.json"]


def test_progress_is_told_where_nobody_can_draw(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(progress, "_PERIOD", 0.02)
    with progress.steps("reading") as tell:
        tell("bounding", 0.25)
        time.sleep(0.2)  # a step that says nothing of itself meanwhile
    said = capsys.readouterr().err.splitlines()
    assert len(said) > 2
    assert set(said) == {"bounding: 25%"}
    with progress.steps("reading", quiet=True):
        time.sleep(0.1)
    assert capsys.readouterr().err == ""


def test_files_appear_whole_or_not_at_all(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    write_text(path, "old")

    def half() -> None:
        with replacing(path) as temporary:
            temporary.write_text("half")
            raise RuntimeError

    with pytest.raises(RuntimeError):
        half()
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]
    write_text(path, "new")
    assert path.read_text() == "new"
    assert path.stat().st_mode & 0o444 == 0o444


def run_state(**values: object) -> RunState:
    settings = SimpleNamespace(identification=SimpleNamespace(update_s=1.5, take_after_s=0.5))
    state = RunState(settings, 2)
    for name, value in values.items():
        setattr(state, name, value)
    return state


def test_a_run_is_over_when_all_of_the_motion_has_been_learnt_from() -> None:
    first, second, failed = PlanSeen(1.5, 4.5, "0:0"), PlanSeen(3.0, 6.0, "0:1"), PlanSeen(3.0, None, "0:1")

    def over(
        now: float, plans: list[PlanSeen], batches: list[int], lockstep: bool = True, state: str = "holding"
    ) -> bool:
        boxes = [BoxSeen(0.0, f"0:{batch}", batch, *(np.zeros(10),) * 3) for batch in batches]
        nodes = {"controller": NodeStatus(0, state, {"state": state})}
        return run_state(time=now, plans=plans, boxes=boxes, nodes=nodes).finished(lockstep)

    assert not run_state().finished(True)
    for now, plans, batches, expected in (
        (1.0, [], [], False),  # holding before the first plan is no end
        (8.0, [first], [], False),  # another plan is wanted
        (6.01, [first, second], [3], False),  # the last batch ends with the motion at 6.0 s
        (6.01, [first, second], [3, 4], True),
        (6.7, [first, second], [], True),  # bounds that never come do not keep the run for ever
        (4.6, [first, failed], [3], True),  # a planner that finds nothing more ends it as well
    ):
        assert over(now, plans, batches) is expected
    assert not over(6.01, [first, second], [3, 4], state="braking")
    assert run_state(plans=[first, failed]).warnings
    # In real time an identifier may be behind: what comes after the motion may be of data from before it.
    for now, batches, expected in ((9.0, [1, 2], False), (9.0, [1, 2, 3], True), (4.5 + 1.5 + 10.0, [], True)):
        assert over(now, [first, failed], batches, lockstep=False) is expected


def test_a_run_whose_arm_never_starts_is_given_up() -> None:
    def told(phase: str, refused: int | None) -> str:
        values = {"state": phase} | ({} if refused is None else {"refused start: refused": str(refused)})
        return run_state(nodes={"controller": NodeStatus(1, f"{phase}: joint_2 moves", values)}).start_refused

    assert run_state().start_refused == ""
    assert told("idle", None) == told("idle", 1) == ""  # it tries again
    assert told("idle", 10) == "joint_2 moves"
    assert told("holding", 10) == ""
