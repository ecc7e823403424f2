"""``safe-sysid experiment psdm``: its numbers are those of the paper where they must be, and its files are complete."""

from __future__ import annotations

import json

import pytest

from safe_sysid.cli import main
from safe_sysid.studies.experiments.psdm import tables as psdm
from safe_sysid.studies.experiments.psdm.arms import PSDM_ARMS

pytestmark = pytest.mark.unproved

KEYS = {
    "p", "l", "multiplications", "additions", "derive_s", "max_error", "mean_error", "max_error_forward", "inverse_us",
    "forward_us",
}  # fmt: skip


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


def table_2(tmp_path, names):
    told = tmp_path / "told.json"
    assert main(["experiment", "psdm", "--table", "2", "--json", str(told)]) == 0
    robots = json.loads(told.read_text())["robots"]
    assert set(robots) == names
    for name, robot in robots.items():
        assert set(robot) >= KEYS
        assert (robot["p"], robot["l"]) == (psdm.PAPER[name]["p"], psdm.PAPER[name]["l"])
        assert robot["max_error"] < 1e-12
        assert robot["max_error_forward"] < 1e-12
        for key in ("multiplications", "additions"):
            assert psdm.PAPER[name][key] is None or robot[key] <= psdm.PAPER[name][key]
    assert (robots["two_link"]["p_without_assumptions"], robots["two_link"]["l_without_assumptions"]) == (18, 6)
    return robots


def test_table_2_of_the_small_arms(tmp_path, monkeypatch, capsys):
    names = {"sr6ia", "two_link"}
    monkeypatch.setattr(psdm, "PSDM_ARMS", {name: PSDM_ARMS[name] for name in names})
    table_2(tmp_path, names)
    assert "69 (69)" in capsys.readouterr().out


@pytest.mark.slow
def test_table_2_and_how_fast_it_is_derived(tmp_path):
    robots = table_2(tmp_path, {"kr6", "lbr7", "sr6ia", "two_link"})
    for name, seconds in (("kr6", 0.3), ("lbr7", 2.0), ("sr6ia", 0.02)):
        assert robots[name]["derive_s"] < seconds


@pytest.mark.slow
@pytest.mark.parametrize("number", ["2", "4", "5", "6"])
def test_figures_are_drawn(number, tmp_path):
    told = tmp_path / "told.json"
    assert main(["experiment", "psdm", "--figure", number, "--out", str(tmp_path), "--json", str(told)]) == 0
    assert (tmp_path / f"psdm_figure_{number}.png").stat().st_size > 10_000
    found = json.loads(told.read_text())
    if number == "2":
        assert found["slow"]["share_below_1e-3_median"] > 0.5
    if number == "6":
        last = found["rows"]["lbr7"][-1]
        assert last["recursion_us"] < last["psdm_us"] < last["regressor_recursion_us"]


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_table_3_reduces_the_time_as_the_paper_does(tmp_path):
    told = tmp_path / "told.json"
    assert main(["experiment", "psdm", "--table", "3", "--json", str(told)]) == 0
    for arm in json.loads(told.read_text())["arms"].values():
        for entry in arm.values():
            assert entry["digits_95"]["us"] < entry["digits_95"]["paper_us"]
            assert entry["digits_95"]["kept"] <= entry["digits_999"]["kept"]


def test_exactly_one_table_or_figure_is_wanted(capsys):
    assert main(["experiment", "psdm"]) == 2
    assert main(["experiment", "psdm", "--table", "2", "--figure", "2"]) == 2
    assert "not allowed with" in capsys.readouterr().err
