"""Tables I, II and IV of [Hybrid]: trials, rows, what is resumed, what the command prints."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path

import pytest

from safe_sysid.cli import main
from safe_sysid.commands.learn import hybrid as command
from safe_sysid.learning.neural.dataset import DatasetEntry, write_index
from safe_sysid.learning.neural.models import MODELS, OPTIMIZATIONS
from safe_sysid.studies.hybrid import model_tables
from safe_sysid.studies.hybrid.make_data import make_data

pytestmark = pytest.mark.unproved

needs_torch = pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="torch is not installed")


def test_the_command_knows_what_can_be_learned() -> None:
    assert set(command.MODELS) == {name for name, kind in MODELS.items() if kind.rigid != "delan"}


def test_every_row_of_the_paper_is_a_model_that_is_trained_or_a_part_of_one() -> None:
    for which, rows in model_tables.PAPER.items():
        trained = set(model_tables.TRAINED[which])
        parts = {(part, o) for part in model_tables.PARTS for o in OPTIMIZATIONS} if which == "2" else set()
        assert set(rows) == trained | parts
        assert all(name in MODELS for name, _ in rows)


def errors(value: float) -> dict[str, dict[str, object]]:
    return {split: {"nmse": value, "nmse_per_joint": [value]} for split in ("train", "validation", "test")}


def trial(index: int, name: str, optimization: str, seed: int, value: float, **more: object) -> dict[str, object]:
    return {
        "index": index, "model": name, "optimization": optimization, "seed": seed, "errors": errors(value),
        "parts": {}, "epochs": 3, "seconds": 1.0, "ended": "epochs", **more,
    }  # fmt: skip


def test_rows_and_their_table() -> None:
    found = [
        trial(index, "rbd_sign_lstm", "e2e", seed, x, parts={"rbd": errors(3.0 * x), "rbd_sign": errors(2.0 * x)})
        for index, seed, x in ((0, 0, 0.25), (4, 1, 0.75))
    ]
    found += [trial(3, "lstm", "e2e", 0, 0.125), {"index": 1, "error": "no"}]
    told = model_tables.summary("2", {"kind": "x"}, found)
    assert told["errors"] == ["no"]
    assert [(r["model"], r["optimization"], r["seed"], r["test"]) for r in told["rows"]] == [
        ("rbd_sign_lstm", "e2e", 0, 0.25), ("rbd_sign", "e2e", 0, 0.5), ("rbd", "e2e", 0, 0.75),
        ("rbd_sign_lstm", "e2e", 1, 0.75), ("rbd_sign", "e2e", 1, 1.5), ("rbd", "e2e", 1, 2.25),
        ("lstm", "e2e", 0, 0.125),
    ]  # fmt: skip
    shown = model_tables.table("2", told)
    cells = {(name, how): cell for name, how, cell in zip(*(shown.columns[k]._cells for k in (0, 1, 5)), strict=True)}
    assert cells["rigid arm with friction and a network with memory", "e2e"] == "0.50000 ± 0.25000 (0.0033)"
    assert cells["rigid arm with friction and a network with memory", "2s"] == "- (0.0035)"


def test_figure_2_follows_the_rigid_part(tmp_path: Path) -> None:
    found = [
        trial(k, *which, 0, 0.5, rigid=[0.5, 0.25, 0.125]) for k, which in enumerate(model_tables.TRAINED["parts"])
    ]
    told = model_tables.summary("parts", {}, found)
    assert [row["rigid"] for row in told["rows"]] == [[0.5, 0.25, 0.125]] * 3
    assert [next(iter(c._cells)) for c in model_tables.table_parts(told).columns][2:] == [
        "0.50000", "0.12500", "-", "-", "0.12500 (3)",
    ]  # fmt: skip
    path = model_tables.draw_figure_2(told, tmp_path)
    assert path.stat().st_size > 1000
    assert model_tables.draw_figure_2({"rows": []}, tmp_path) is None


def test_without_torch_the_command_says_how_to_get_it(tmp_path: Path, monkeypatch, capsys) -> None:
    data = tmp_path / "data"
    data.mkdir()
    names = [f"panda_joint{k}" for k in range(1, 8)]
    write_index(data, "panda", names, 1000.0, 1.0, [DatasetEntry("0.npz", "fast", "train")])
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    for which in ("1", "2", "4"):
        status = main(["experiment", "hybrid", "--table", which, "--data", str(data), "--out", str(tmp_path / "out")])
        assert status == 2
        assert "pip install 'safe_sysid[learn]'" in capsys.readouterr().err


@needs_torch
@pytest.mark.slow
def test_tables_are_made_resumed_and_written(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    data = make_data(tmp_path / "data", "tiny", jobs=1)
    out, written = tmp_path / "out", tmp_path / "table.json"
    arguments = ["experiment", "hybrid", "--data", str(data.folder), "--out", str(out), "--json", str(written)]
    arguments += ["--jobs", "1", "--minutes", "0.02"]
    assert main([*arguments, "--table", "2", "--seeds", "1"]) == 0
    assert "Table II" in capsys.readouterr().out
    first = json.loads(written.read_text())
    assert {(r["model"], r["optimization"]) for r in first["rows"]} == set(model_tables.PAPER["2"])
    for row in first["rows"]:
        assert {"model", "optimization", "seed", "train", "validation", "test"} <= set(row)
    assert main([*arguments, "--table", "2", "--seeds", "1", "--resume"]) == 0
    assert json.loads(written.read_text()) == first
    assert main([*arguments, "--table", "4"]) == 0
    told = json.loads(written.read_text())
    assert told["weights"] == told["paper_weights"]
