"""``safe-sysid experiment pso``: tables, records, going on, refusals; and whole trials in a work cell."""

from __future__ import annotations

import json

import command_support
import numpy as np
import pytest

from safe_sysid.commands import experiment as command
from safe_sysid.commands.experiment import pso
from safe_sysid.errors import ConfigError, SafeSysIdError
from safe_sysid.studies.campaign.results import CampaignError, read_results
from safe_sysid.studies.experiments import trial
from safe_sysid.studies.experiments.cell import workcell
from safe_sysid.studies.experiments.cell.workcell import load_workcell
from safe_sysid.studies.experiments.methods import ExperimentError
from safe_sysid.studies.experiments.runner import FIGURES, TABLES, experiment
from safe_sysid.studies.experiments.trial import only, run_trial, seeds_of

pytestmark = pytest.mark.unproved


def run(*arguments):
    return command_support.called(command, "pso", *arguments)


@pytest.fixture(autouse=True)
def here(monkeypatch):
    command_support.in_this_process(monkeypatch)


def made_up(seed, index, options):
    """A trial in no time; the second method fails, the third raises."""
    from safe_sysid.studies.experiments.runner import case

    which = case("task", options, index)
    if which["method"] == "adap-1":
        raise SafeSysIdError("broken on purpose")
    good = which["method"] == "ours"
    placement = {
        "payload": "4lb", "success": good, "reason": "" if good else "off", "category": "" if good else "placement",
        "attempted": True, "truth": [1.0] * 10, "identification": {}, "phases": {},
    }  # fmt: skip
    return {
        "index": index, **which, "seed": seed, "success": good, "reason": "", "placements": [placement],
        "seconds": 0.1, "series": {},
    }  # fmt: skip


def test_the_command_offers_the_tables_that_there_are():
    assert (*TABLES, *FIGURES) == pso._TABLES


def test_table_four_runs_goes_on_and_is_refused_without_being_told_to(tmp_path, capsys):
    out, summary = tmp_path / "run", tmp_path / "found.json"
    assert run("--table", "4", "--trials", 3, "--out", out) == 0
    with pytest.raises(CampaignError, match="--resume"):
        run("--table", "4", "--trials", 4, "--out", out)
    before = read_results(out / "results.jsonl")[1]
    assert run("--table", "4", "--trials", 4, "--out", out, "--resume", "--json", summary) == 0
    after = read_results(out / "results.jsonl")[1]
    assert sorted(after) == [0, 1, 2, 3]
    assert {i: after[i] for i in before} == before
    told = json.loads(summary.read_text())
    assert (told["runs"], told["errors"], len(told["trials"])) == (4, 0, 4)
    assert "0.9994" in capsys.readouterr().out
    with pytest.raises(CampaignError, match="seed = 1: expected 0, as in the file"):
        run("--table", "4", "--trials", 4, "--out", out, "--resume", "--seed", 1)


def test_failures_of_methods_are_results_and_errors_are_not(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(trial, "run_trial", made_up)
    found = tmp_path / "found.json"
    given = ("--table", "3", "--experiments", "a", "--payloads", "4lb", "--trials", 2, "--json", found)
    assert run(*given, "--methods", "ours,wrong", "--out", tmp_path / "x") == 0
    text = capsys.readouterr().out
    assert "fail at 8lb" in text  # the paper's
    assert "fail at 4lb (placement)" in text
    records = json.loads(found.read_text())["trials"]
    assert len(records) == 4
    assert {"experiment", "method", "payload", "seed", "success", "reason"} <= set(records[0])
    assert run(*given, "--methods", "wrong,ours,adap-1", "--out", tmp_path / "y") == 1
    text = capsys.readouterr().out
    assert "method adap-1) and 1 more: SafeSysIdError: broken on purpose" in text
    assert json.loads(found.read_text())["errors"] == 2
    before = read_results(tmp_path / "y" / "results.jsonl")[1]
    monkeypatch.setattr(trial, "run_trial", lambda *a: {**made_up(0, 0, {**a[2], "methods": ["ours"]}), "index": a[1]})
    assert run(*given, "--methods", "wrong,ours,adap-1", "--out", tmp_path / "y", "--resume") == 0
    after = read_results(tmp_path / "y" / "results.jsonl")[1]
    assert [i for i in after if after[i] != before[i]] == [i for i in before if "error" in before[i]]


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        ("--table 3 --methods best", ExperimentError),
        ("--table 3 --payloads 4lb,6lb", ExperimentError),
        ("--table 5 --noise none", ExperimentError),
        ("--table 4 --trials 2", ExperimentError),
        ("--table 4 --law armour", ExperimentError),
        *(
            (f"--table {table} --robot {robot}", ConfigError)
            for table in ("3", "4", "5", "fig6")
            for robot in ("nonexist.yaml", "nonexist")
        ),
    ],
)
def test_what_there_is_not_is_refused_before_anything_is_made(tmp_path, monkeypatch, arguments, error):
    """What else there is not, with the words that say so: test_experiments_tables.py."""
    monkeypatch.chdir(tmp_path)
    with pytest.raises(error, match="nonexist" if error is ConfigError else None):
        run(*arguments.split())
    assert list(tmp_path.iterdir()) == []


def test_a_work_cell_that_cannot_be_read_is_refused_before_anything_is_made(tmp_path, monkeypatch):
    def broken(name):
        raise ConfigError(f"pso_{name}.yaml", "boxes", None, "boxes")

    monkeypatch.setattr(workcell, "load_workcell", broken)
    with pytest.raises(ConfigError, match="pso_b"):
        run("--table", "3", "--experiments", "b", "--out", tmp_path / "out")
    assert list(tmp_path.iterdir()) == []


def test_titles_are_whole_however_narrow_the_table(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(trial, "run_trial", made_up)
    given = ("--table", "3", "--experiments", "a", "--payloads", "4lb", "--methods", "ours", "--out", tmp_path)
    monkeypatch.setenv("COLUMNS", "40")
    assert run(*given, "--trials", 1) == 0
    title = "PSO Table III: the paper's hardware, and 1 simulated repeat"
    assert title in capsys.readouterr().out.splitlines()
    assert run(*given, "--trials", 2, "--resume") == 0
    assert "up to 2 simulated repeats" in capsys.readouterr().out


def test_arguments_that_cannot_be_read_end_with_two(capsys):
    empty = [("--table", "3", name, text) for name in ("--methods", "--payloads") for text in ("", " ", ",")]
    for wrong in (
        ("--table", "6"), ("--table", "3", "--law", "mine"), ("--table", "3", "--trials", "0"), (), *empty,
        ("--table", "3", "--experiments", ","),
    ):  # fmt: skip
        with pytest.raises(SystemExit) as stop:
            run(*wrong)
        assert stop.value.code == 2
        capsys.readouterr()


# --- whole trials --------------------------------------------------------------------------------------------------


def test_a_part_of_the_stack_has_what_is_below_in_place():
    cell = load_workcell("a")
    part = only(cell, ["6lb", "7lb"])
    assert [task.dumbbell for task in part.tasks] == ["6lb", "7lb"]
    assert np.allclose(part.dumbbell("5lb").position, cell.target("5lb"))
    assert np.allclose(part.dumbbell("6lb").position, cell.dumbbell("6lb").position)
    assert np.allclose(part.target("7lb"), cell.target("7lb"))
    with pytest.raises(ExperimentError, match="5lb missing"):
        only(cell, ["4lb", "6lb"])
    with pytest.raises(ExperimentError, match="has 8lb"):
        only(load_workcell("c"), ["4lb"])


def options_of(**given):
    return experiment("3", robot="kinova_gen3", law="robust", noise="uniform", **given)[0].options


@pytest.mark.slow  # of the paper's comparison
def test_a_robust_law_that_knows_its_uncertainty_stacks_a_dumbbell_and_everything_of_it_is_told():
    """The second dumbbell alone, on the first, by a method that identifies nothing."""
    placed = run_trial(0, 0, options_of(experiments=["a"], methods=["conservative"], payloads=["5lb"]))
    series = dict(placed["series"])
    record = json.loads(json.dumps({key: value for key, value in placed.items() if key != "series"}))
    assert (record["experiment"], record["method"], record["trial"]) == ("a", "conservative", 0)
    assert [p["payload"] for p in record["placements"]] == ["5lb"]
    told = record["placements"][0]
    assert record["success"]
    assert told["success"], told["failures"]
    assert not told["failures"]
    assert told["position_error_mm"] < 5.0
    assert told["stack_error_mm"] < 5.0
    assert told["truth"][0] == pytest.approx(1.28 + 5 * 0.4536, abs=0.1)
    assert told["torque_ratio"] > 0.1
    assert {"grasp", "lift", "carry", "hold"} <= set(told["phases"])
    assert told["phases"]["carry"][1] - told["phases"]["carry"][0] == pytest.approx(2.0, abs=0.01)
    rows = len(series["5lb/time"])
    assert rows > 400
    assert series["5lb/error"].shape == series["5lb/torque"].shape == (rows, 7)
    assert np.rad2deg(np.abs(series["5lb/error"])).max() <= told["tracking_error_deg"] + 1e-3
    assert np.array_equal(series["5lb/mass"], [[0.0, 3.2]])


@pytest.mark.slow
def test_a_trial_is_the_same_again_and_every_method_has_the_same_arm():
    given = options_of(experiments=["c"], methods=["grav-pid", "adap-2"])
    one, again, other = (run_trial(0, i, given) for i in (0, 0, 1))

    def plain(result):
        return {key: value for key, value in result.items() if key not in ("series", "seconds")}

    assert plain(one) == plain(again)
    assert one["placements"][0]["truth"] == other["placements"][0]["truth"]
    assert plain(one) != plain(other)


def test_seeds_differ_between_repeats_and_work_cells():
    found = {seeds_of(seed, repeat, where) for seed in (0, 1) for repeat in range(3) for where in "abc"}
    assert len({value for seeds in found for value in seeds}) == 4 * 2 * 3 * 3


@pytest.mark.slow
def test_ours_identifies_and_succeeds_in_the_narrow_course():
    result = run_trial(0, 0, options_of(experiments=["c"], methods=["ours"]))
    told = result["placements"][0]
    assert told["identification"]["plans"] == 4
    lower, upper = (np.array(told["identification"][key]) for key in ("lower", "upper"))
    assert np.all((lower <= told["truth"]) & (told["truth"] <= upper))
    assert result["success"], told["failures"]
