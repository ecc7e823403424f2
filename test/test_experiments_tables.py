"""What is made of results: which trials there are, words and tables beside the paper's, series and pictures."""

from __future__ import annotations

import io
import itertools
import json
import pickle

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from safe_sysid.robot.loading import load_robot
from safe_sysid.studies.campaign.results import CampaignError
from safe_sysid.studies.campaign.runner import Campaign
from safe_sysid.studies.experiments.conditions import run_motion
from safe_sysid.studies.experiments.correlation import DRAWS, TABLE_FOUR, Correlations, motion_conditions
from safe_sysid.studies.experiments.interfaces import Contact, DumbbellPhase, Placement
from safe_sysid.studies.experiments.methods import ExperimentError
from safe_sysid.studies.experiments.results import tables
from safe_sysid.studies.experiments.results.figures import draw
from safe_sysid.studies.experiments.results.paper import EXPERIMENTS, METHOD_NAMES, PAYLOADS, TABLE_THREE
from safe_sysid.studies.experiments.results.series import SeriesStore
from safe_sysid.studies.experiments.runner import case, cases, experiment
from safe_sysid.studies.experiments.trial import category

pytestmark = pytest.mark.unproved


def shown(table):
    console = Console(width=200, record=True, file=io.StringIO())
    console.print(table)
    return console.export_text()


def placed(payload, success=True, why="", attempted=True, **more):
    return {
        "payload": payload, "success": success, "reason": why, "category": why, "attempted": attempted,
        "truth": [1.0] * 10, "identification": {}, "phases": {}, **more,
    }  # fmt: skip


def trial(method, where, failed=None, why="placement", index=0, repeat=0):
    """A trial that fails at a dumbbell, or at none."""
    payloads = ["8lb"] if where == "c" else [*PAYLOADS]
    end = payloads.index(failed) if failed else len(payloads)
    words = [*[""] * end, why, *["not tried"] * len(payloads)]
    placements = [placed(p, k < end, words[k], k <= end) for k, p in enumerate(payloads)]
    return {
        "index": index, "experiment": where, "method": method, "trial": repeat, "seed": 0, "success": not failed,
        "reason": why if failed else "", "placements": placements, "seconds": 1.0,
    }  # fmt: skip


# --- which trials --------------------------------------------------------------------------------------------------


def test_table_three_is_every_method_in_every_work_cell_as_often_as_the_paper():
    which, repeats = experiment("3", robot="kinova_gen3")
    assert repeats == 5
    found = cases(which.kind, which.options, repeats)
    assert len(found) == 5 * 3 * 11
    assert {(c["experiment"], c["method"]) for c in found} == {(e, m) for e in EXPERIMENTS for m in METHOD_NAMES}


@given(st.integers(1, 4), st.integers(1, 5), st.sets(st.sampled_from(METHOD_NAMES), min_size=1))
def test_numbers_of_trials_stay_when_more_repeats_are_asked_for(few, more, methods):
    which, _ = experiment("3", methods=methods, experiments=["a", "c"])
    first = cases(which.kind, which.options, few)
    assert cases(which.kind, which.options, few + more)[: len(first)] == first
    assert [case(which.kind, which.options, i) for i in range(len(first))] == first


def test_more_repeats_go_on_with_the_same_file_and_other_methods_do_not():
    header = experiment("3", 1, methods=["ours"])[0].header()
    assert header == experiment("3", 1, methods=["ours"])[0].header()
    assert header != experiment("3", 1, methods=["ours", "wrong"])[0].header()
    assert header != experiment("3", 2, methods=["ours"])[0].header()
    assert json.loads(json.dumps(header)) == header
    assert set(header["options"]["workcells"]) == set(EXPERIMENTS)


def test_workers_find_the_trials_function():
    for table in ("3", "4", "5", "fig6"):
        which = pickle.loads(pickle.dumps(experiment(table)[0]))
        assert callable(which.function())
    with pytest.raises(CampaignError, match="unheard"):
        Campaign("unheard", 0).function()


def test_the_narrow_course_is_left_out_where_its_dumbbell_is():
    assert experiment("3", payloads=["4lb", "5lb"])[0].options["experiments"] == ["a", "b"]
    assert experiment("3", payloads=["7lb", "8lb"])[0].options["experiments"] == ["a", "b", "c"]
    assert experiment("fig6", payloads=["4lb", "8lb"])[0].options["payloads"] == ["4lb", "8lb"]


@pytest.mark.parametrize(
    ("table", "arguments", "told"),
    [
        ("7", {}, "fig12"),
        ("3", {"methods": ["best"]}, "grav-pid-ours"),
        ("3", {"methods": ["ours", "theirs"]}, "grav-pid-excit"),
        ("3", {"experiments": ["d"]}, "a, b, c"),
        ("3", {"payloads": ["9lb"]}, "8lb"),
        ("5", {"methods": ["wrong"]}, "table 5 'wrong': expected some of ours, random"),
        ("fig6", {"methods": ["wrong"]}, "fig6 'wrong': expected some of ours, random"),
        ("fig5", {"methods": ["grav-pid"]}, "fig5 'grav-pid': expected some of ours, random, adap-1"),
        ("3", {"methods": []}, "none given"),
        ("3", {"payloads": []}, "none given"),
        ("3", {"experiments": []}, "none given"),
        ("4", {"methods": ["ours"]}, "no methods"),
        ("5", {"experiments": ["a"]}, "no experiments"),
    ],
)
def test_what_there_is_not_is_refused_with_what_there_is(table, arguments, told):
    with pytest.raises(ExperimentError, match=told):
        experiment(table, **arguments)


# --- Table III -----------------------------------------------------------------------------------------------------


def test_outcomes_are_the_papers_words():
    assert tables.outcome(trial("ours", "a")) == "success"
    assert tables.outcome(trial("wrong", "b", "8lb", "collision")) == "fail at 8lb"
    assert tables.outcome(trial("wrong", "a", "4lb")) == "fail at 4lb"
    assert tables.outcome(trial("wrong", "c", "8lb", "collision")) == "collide"
    assert tables.outcome(trial("wrong", "c", "8lb", "saturation")) == "saturation"
    assert tables.outcome({"index": 3, "error": "ModelError: x"}) == "error"


def test_a_run_as_in_the_paper_agrees_in_every_cell_and_one_repeat_less_does_not():
    results = []
    for method, cells in TABLE_THREE.items():
        for where, cell in zip(EXPERIMENTS, cells, strict=True):
            failed = None if cell == "success" else cell.removeprefix("fail at ").replace("collide", "8lb")
            results += [trial(method, where, failed, "collision", len(results), k) for k in range(2)]
    assert tables.agreement(results) == {"cells": 33, "as_in_the_paper": 33}
    text = shown(tables.success_table(results))
    for method in METHOD_NAMES:
        assert method in text
    results[0] = trial("ours", "a", "6lb")
    assert tables.agreement(results)["as_in_the_paper"] == 32
    text = shown(tables.success_table(results))
    assert "success 1x" in text
    assert "fail at 6lb 1x" in text


def test_what_was_not_run_is_not_claimed():
    text = shown(tables.success_table([trial("ours", "b", index=0), trial("wrong", "a", "5lb", index=1)]))
    assert "not run" in text
    assert "grav-pid" not in text
    assert "(c)" not in text


def test_records_are_one_per_dumbbell_and_complete():
    results = [trial("wrong", "a", "6lb"), {"index": 1, "error": "boom"}]
    found = tables.records(results)
    assert [r.get("payload") for r in found] == [*PAYLOADS, None]
    assert all({"experiment", "method", "payload", "seed", "success", "reason"} <= set(r) for r in found[:-1])
    assert found[-1]["error"] == "boom"
    summary = json.loads(json.dumps(tables.summary_of({"kind": "task"}, results)))
    assert summary["errors"] == 1
    assert len(summary["trials"]) == 6
    assert summary["table_3"] == {"wrong": {"a": "fail at 6lb (placement)"}}
    assert summary["table_3_paper"]["wrong"]["a"] == "fail at 8lb"


def judged(**given):
    basis = {
        "dumbbell": "4lb", "success": False, "reason": "x", "failures": ("x",), "position_error": 0.001,
        "angle_error": 0.0, "stack_error": np.nan, "torque_ratio": 0.5, "tracking_error": 0.0, "contacts": (),
        "start": 0.0, "end": 1.0,
    }  # fmt: skip
    return Placement(**{**basis, **given})


def test_the_word_for_a_failure_is_what_weighs_most():
    touch = Contact(1.0, DumbbellPhase.CARRY, "payload", "obstacle", 1e-3)
    assert category(judged(contacts=(touch,), torque_ratio=2.0)) == "collision"
    assert category(judged(torque_ratio=1.01, reason="4lb is 12.0 mm off its place")) == "saturation"
    assert category(judged(reason="4lb is 12.0 mm off its place: expected at most 10.0")) == "placement"
    assert category(judged(reason="stacked 4lb is 12.0 mm off its place")) == "stack"
    assert category(judged(reason="identification: no plan")) == "identification"


def test_json_has_no_numbers_that_are_none():
    result = trial("ours", "a")
    result["placements"][0] |= {"stack_error_mm": np.nan, "margins": [1.0, np.inf, {"x": (np.nan,)}]}
    told = json.dumps(tables.summary_of({"kind": "task"}, [result]), allow_nan=False)
    first = json.loads(told)["trials"][0]
    assert first["stack_error_mm"] is None
    assert first["margins"] == [1.0, None, {"x": [None]}]


# --- Tables IV and V -----------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_motion_by_motion_gives_the_correlations_of_all():
    """Table IV from single trials is what the study computes in one go."""
    options = experiment("4", robot="kinova_gen3")[0].options
    results = [run_motion(5, i, options) for i in range(4)]
    model = load_robot("kinova_gen3")
    for name, draw_of in DRAWS.items():
        found = tables.correlations_of(results, name)
        motions = [motion_conditions(model, 5, i, tuple(TABLE_FOUR), draw_of) for i in range(4)]
        wanted = Correlations(*(np.array(part) for part in zip(*motions, strict=True)))
        assert np.allclose(found.pearson(), wanted.pearson())
        assert np.allclose(found.spearman(), wanted.spearman())
    text = shown(tables.correlation_table(results))
    for h, theirs in TABLE_FOUR.items():
        assert f"{h} " in text
        assert f"{theirs:.4f}" in text
    few = shown(tables.correlation_table(results[:2]))  # no correlation of two
    assert "nan" not in few
    assert f"{TABLE_FOUR[100]:.4f}" in few


def test_table_five_has_the_papers_numbers_beside_ours():
    def run(method, payload, condition, index):
        return {
            "index": index, "method": method, "trial": 0, "cost": "condition", "payload": payload, "seed": 0,
            "condition": condition, "condition_scaled": 2 * condition,
        }  # fmt: skip

    results = [run("ours", "4lb", 20.0, 0), run("ours", "4lb", 30.0, 1), run("random", "4lb", 41.0, 2)]
    text = shown(tables.condition_table([*results, {"index": 3, "error": "x"}]))
    row = next(line for line in text.splitlines() if "4lb" in line)
    for part in ("274", "25 (50)", "480", "41 (82)"):
        assert part in row


# --- series and pictures -------------------------------------------------------------------------------------------


def test_series_are_put_away_and_found_again(tmp_path):
    store = SeriesStore(tmp_path / "series")
    result = {"index": 7, "success": True, "series": {"4lb/mass": np.arange(6.0).reshape(3, 2)}}
    assert store.take(result) == {"index": 7, "success": True}
    assert np.array_equal(store.load(7)["4lb/mass"], np.arange(6.0).reshape(3, 2))
    assert store.load(8) == {}
    assert store.take({"index": 9, "error": "x"}) == {"index": 9, "error": "x"}
    assert not list((tmp_path / "series").glob("*tmp*"))


def with_series(store, method, where, index):
    """A trial with everything that a picture needs."""
    notes = {"stamps": [1.0], "nominal": [[1.0] * 10], "lower": [[0.9] * 10], "upper": [[1.1] * 10]}
    result = trial(method, where, index=index)
    result["placements"] = [
        {**p, "identification": notes if method in ("ours", "random") else {}, "phases": {"carry": [4.0, 6.0]}}
        for p in result["placements"]
    ]
    series = {"prior": np.stack([np.zeros(10), np.full(10, 2.0)]), "torque_limit": np.full(3, 50.0)}
    for payload in PAYLOADS:
        series[f"{payload}/mass"] = np.array([[0.0, 3.2], [5.0, 3.1]])
        series[f"{payload}/time"] = np.linspace(0.0, 2.0, 9)
        series[f"{payload}/error"] = np.full((9, 3), 1e-3)
        series[f"{payload}/torque"] = np.full((9, 3), 20.0)
    return store.take({**result, "series": series})


@pytest.mark.slow
def test_pictures_are_drawn_of_what_there_is_and_of_nothing_else(tmp_path):
    store = SeriesStore(tmp_path / "series")
    options = experiment("3", experiments=["a", "b"], payloads=["5lb"])[0].options
    which = enumerate(itertools.product(("ours", "random", "wrong"), "ab"))
    results = [with_series(store, method, where, i) for i, (method, where) in which]
    found = {path.name for path in draw("3", options, results, store, tmp_path)}
    assert found == {*(f"fig{k}_{e}_5lb.png" for k in (5, 6) for e in "ab"), "fig11_a.png", "fig12_b.png"}
    for name in found:
        assert (tmp_path / name).read_bytes()[:4] == b"\x89PNG"
    assert draw("fig5", options, [], store, tmp_path) == []
    assert draw("fig6", options, [trial("ours", "a", index=99)], store, tmp_path) == []


def test_bounds_that_lost_the_truth_are_told(tmp_path):
    store = SeriesStore(tmp_path / "series")
    result = with_series(store, "ours", "b", 0)
    assert "every interval held the truth" in shown(tables.width_table([result]))
    result["placements"][0]["truth"] = [5.0] * 10
    assert "NOT EVERY INTERVAL HELD THE TRUTH" in shown(tables.width_table([result]))
