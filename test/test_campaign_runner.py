"""The runner: one result whatever it runs on, nothing lost when it stops, and a command that says what happened."""

import json
import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import command_support
import pytest
from rich.console import Console

from safe_sysid.commands import campaign as command
from safe_sysid.errors import ConfigError
from safe_sysid.studies.campaign import runner
from safe_sysid.studies.campaign.results import CampaignError, ResultFile, read_results, write_summary
from safe_sysid.studies.campaign.runner import Campaign, in_dask, in_processes, in_this_process, run_chunk
from safe_sysid.studies.campaign.summary import as_json, is_sound, summarise, table

SMALL = {"fixed": {"noise": "zero", "joints": 3, "samples": 60, "method": "lp", "updates": 1, "simulated": False}}
#: Of trials that are quick.
SEED = ("--seed", 2398)


def run_command(*arguments):
    return command_support.called(command, "identification", *arguments)


@pytest.fixture
def here(monkeypatch):
    command_support.in_this_process(monkeypatch)


def strip(results):
    return [{k: v for k, v in r.items() if k != "seconds"} for r in sorted(results, key=lambda r: r["index"])]


def flat(parts):
    return [result for part in parts for result in part]


# --- where it runs -------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_any_number_of_processes_gives_the_same_results():
    campaign = Campaign("identification", 3)
    one = flat(in_processes(campaign, range(6), 1, chunk=4))
    two = flat(in_processes(campaign, range(6), 2, chunk=1))
    assert strip(one) == strip(two)
    assert [r["index"] for r in strip(one)] == list(range(6))
    assert not any("error" in r for r in one)


@pytest.mark.slow
def test_a_dask_cluster_gives_the_same_results():
    distributed = pytest.importorskip("distributed")
    campaign = Campaign("identification", 3, SMALL)
    with distributed.LocalCluster(
        n_workers=1, threads_per_worker=1, processes=False, dashboard_address=None
    ) as cluster:
        there = flat(in_dask(campaign, range(5), cluster.scheduler_address, chunk=2))
    assert strip(there) == strip(flat(in_this_process(campaign, range(5))))


def test_dask_that_is_missing_or_does_not_answer_is_said(monkeypatch):
    campaign = Campaign("identification", 3, SMALL)
    if "distributed" in sys.modules or pytest.importorskip("distributed"):
        with pytest.raises(CampaignError, match="scheduler"):
            next(in_dask(campaign, range(2), "not an address"))
    monkeypatch.setitem(sys.modules, "distributed", None)
    with pytest.raises(CampaignError, match="not installed"):
        next(in_dask(campaign, range(2), "tcp://127.0.0.1:1"))


def test_a_trial_that_raises_is_a_result(monkeypatch):
    monkeypatch.setitem(runner.KINDS, "broken", ("safe_sysid.studies.campaign.runner", "run_chunk"))
    results = run_chunk(Campaign("broken", 0, {}), [4])
    assert results[0]["index"] == 4
    assert "Error" in results[0]["error"]
    assert not is_sound(results[0])
    with pytest.raises(CampaignError, match="kind of trial"):
        run_chunk(Campaign("nothing", 0), [1])


#: A campaign whose first trial is done at once and whose others end in an hour, or kill their worker.
_SLOW = """
import argparse, os, sys, time
from pathlib import Path
from safe_sysid.studies.campaign.results import CampaignError
from safe_sysid.studies.campaign.runner import Campaign, in_processes
from safe_sysid.commands.shared.batch import collect

def trial(seed, index, options):
    (Path(__file__).parent / f"pid{index}").write_text(str(os.getpid()))
    if index:
        os._exit(3) if options else time.sleep(3600)
    return {"index": index}

class Slow(Campaign):
    def function(self):
        return trial

def interrupted():
    options = argparse.Namespace(jobs=2, scheduler=None, resume=False)
    found, stopped = collect(Slow("slow", 0), 6, Path(__file__).parent / "r.jsonl", bool, options, chunk=1)
    print(f"{len(found)} done, stopped {stopped}")

def dead():
    before = dict(os.environ)
    try:
        list(in_processes(Slow("slow", 0, {"die": True}), range(4), 2, 1))
    except CampaignError as error:
        print(error)
    print("environment as before:", dict(os.environ) == before)
"""


@pytest.fixture
def slow(tmp_path):
    """Starts a function of the above in a session of its own, as in a terminal; gives the directory and a starter."""
    (tmp_path / "slow_trials.py").write_text(_SLOW)
    path = os.pathsep.join([str(tmp_path), str(Path(runner.__file__).parents[2])])
    started = []

    def start(name):
        started.append(
            subprocess.Popen(
                [sys.executable, "-c", f"import slow_trials; slow_trials.{name}()"], text=True,
                stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True,
                env={**os.environ, "PYTHONPATH": path},
            )
        )  # fmt: skip
        return started[-1]

    yield tmp_path, start
    for process in started:
        with suppress(ProcessLookupError):  # its workers may be there without it
            os.killpg(process.pid, signal.SIGKILL)
        process.communicate()


def gone(pid):
    try:
        return "\nState:\tZ" in Path(f"/proc/{pid}/status").read_text()
    except FileNotFoundError:
        return True


@pytest.mark.parametrize("pauses", [(), (0.0,), (0.05, 0.05)], ids=["once", "twice at once", "three times"])
def test_ctrl_c_stops_at_once_however_often_it_comes(slow, pauses):
    here, start = slow
    process = start("interrupted")
    patience = time.monotonic() + 60.0
    results = here / "r.jsonl"
    while not (all((here / f"pid{i}").exists() for i in range(3)) and '"index"' in results.read_text()):
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < patience
        time.sleep(0.02)
    os.killpg(process.pid, signal.SIGINT)
    for pause in pauses:
        time.sleep(pause)
        os.killpg(process.pid, signal.SIGINT)
    told, complaints = process.communicate(timeout=60)  # trials would take an hour
    assert "interrupted: stopping" in complaints
    assert "Traceback" not in complaints
    if not pauses:  # a later one may hit the interpreter on its way out
        assert process.returncode == 0
        assert "1 done, stopped True" in told
    assert set(read_results(here / "r.jsonl")[1]) == {0}
    assert all(gone((here / f"pid{i}").read_text()) for i in range(3))


def test_workers_end_with_a_parent_that_is_killed(slow):
    here, start = slow
    process = start("interrupted")
    patience = time.monotonic() + 60.0
    while not all((here / f"pid{i}").exists() and (here / f"pid{i}").read_text() for i in range(3)):
        assert time.monotonic() < patience, process.communicate()
        time.sleep(0.02)
    process.kill()
    process.wait()
    while not all(gone((here / f"pid{i}").read_text()) for i in range(3)):
        assert time.monotonic() < patience
        time.sleep(0.02)


def test_a_worker_that_dies_is_told_with_its_trial_and_the_environment_is_put_back(slow):
    told, _ = slow[1]("dead").communicate(timeout=60)
    assert "environment as before: True" in told
    assert "a worker died in one of the trials [" in told


# --- files ---------------------------------------------------------------------------------------------------------


def test_results_survive_a_crash_in_the_middle_of_a_line(tmp_path):
    path, header = tmp_path / "r.jsonl", {"kind": "x", "seed": 1, "options": {}}
    with ResultFile(path, header, resume=False) as file:
        file.append([{"index": 0}, {"index": 2}])
    with path.open("ab") as raw:
        raw.write(b'{"index": 5, "wid')
    assert set(read_results(path)[1]) == {0, 2}
    with ResultFile(path, header, resume=True) as file:
        assert set(file.done) == {0, 2}
        file.append([{"index": 1}])
    found, trials = read_results(path)
    assert set(trials) == {0, 1, 2}
    assert found["seed"] == 1
    assert all(json.loads(line) for line in path.read_text().splitlines())


def test_files_that_do_not_fit_are_refused(tmp_path):
    path, header = tmp_path / "r.jsonl", {"kind": "x", "seed": 1, "options": {}}
    ResultFile(path, header, resume=False).__exit__(None, None, None)
    with pytest.raises(CampaignError, match="--resume"):
        ResultFile(path, header, resume=False)
    with pytest.raises(CampaignError, match="seed = 2: expected 1, as in the file"):
        ResultFile(path, header | {"seed": 2}, resume=True)
    with pytest.raises(CampaignError, match=r"options\.beyond = 1\.1: expected None") as refusal:
        ResultFile(path, header | {"options": {"beyond": 1.1}}, resume=True)
    assert "seed" not in str(refusal.value)
    other = tmp_path / "other.jsonl"
    for text in ("{}\n", '{"schema": "something"}\n', "not json\n", '{"schema": "cut'):
        other.write_text(text)
        with pytest.raises(CampaignError):
            read_results(other)
    path.write_bytes(path.read_bytes() + b"damage\n" + b'{"index": 1}\n')
    with pytest.raises(CampaignError, match="line 2"):
        read_results(path)
    with pytest.raises(CampaignError, match="expected a file"):
        read_results(tmp_path / "none")
    with pytest.raises(CampaignError):
        write_summary(tmp_path / "no directory" / "x", {})


# --- the command ---------------------------------------------------------------------------------------------------


def test_a_campaign_that_was_stopped_goes_on(here, tmp_path, capsys):
    whole, parts = tmp_path / "whole.json", tmp_path / "parts.json"
    assert run_command("--trials", 3, *SEED, "--json", whole) == 0
    assert run_command("--trials", 1, *SEED, "--json", parts) == 0
    assert run_command("--trials", 3, *SEED, "--json", parts, "--resume") == 0
    both = [json.loads(path.read_text()) for path in (whole, parts)]
    assert strip(both[0]["results"]) == strip(both[1]["results"])
    assert both[0]["trials"] == 3
    assert both[0]["exclusions"] == 0
    assert set(both[0]["results"][0]) >= {"index", "settings", "exclusions", "empty", "broken_rows", "widths"}
    assert both[0]["by"]["noise"]
    assert "campaign identification" in capsys.readouterr().out
    with pytest.raises(CampaignError, match="exists"):
        run_command("--trials", 3, "--json", whole)


def test_ctrl_c_keeps_what_was_done(here, tmp_path, monkeypatch, capsys):
    def interrupted(campaign, indices, jobs):
        for i, part in enumerate(in_this_process(campaign, indices)):
            if i == 2:
                raise KeyboardInterrupt
            yield part

    monkeypatch.setattr(runner, "in_processes", interrupted)
    out = tmp_path / "r.jsonl"
    assert run_command("--trials", 6, *SEED, "--out", out, "--json", tmp_path / "s.json") == 130
    assert len(read_results(out)[1]) == 2
    assert json.loads((tmp_path / "s.json").read_text())["trials"] == 2
    assert "interrupted after 2 of 6" in capsys.readouterr().out


def test_exit_status_tells_what_was_found(here, monkeypatch, capsys):
    wrong = {"exclusions": [{"component": "m"}]}
    real = runner.run_chunk

    def found(campaign, indices):
        return [result | wrong for result in real(Campaign("identification", 3, SMALL), indices)]

    monkeypatch.setattr(runner, "run_chunk", found)
    assert run_command("--trials", 2) == 1
    text = capsys.readouterr().out
    assert "--seed 0 --trial 1" in text
    assert run_command("--trials", 2, "--beyond", 1.05) == 0  # there it is what is looked for


def test_one_trial_can_be_repeated_and_saved(here, tmp_path, capsys):
    from safe_sysid.logs.formats.npz import read_log

    log = tmp_path / "log.npz"
    assert run_command("--only", 7, "--seed", 3, "--noise", "zero", "--save-log", log) == 0
    text = capsys.readouterr().out
    assert "update 1" in text
    assert '"index": 7' in text
    truth = json.loads(log.with_suffix(".json").read_text())
    assert len(truth["theta"]) == 14 * truth["settings"]["joints"]
    assert read_log(log).measurements.n == truth["settings"]["joints"]


def test_wrong_arguments_are_refused_in_one_line(tmp_path, capsys):
    for arguments in (
        ["--trials", "0"], ["--beyond", "-1"], ["--break", "luck"], ["--jobs", "2", "--scheduler", "x"], ["--trials"],
        ["--noise", "luck"],
    ):  # fmt: skip
        with pytest.raises(SystemExit) as stop:
            run_command(*arguments)
        assert stop.value.code == 2
        assert len(capsys.readouterr().err.strip().splitlines()) == 1
    with pytest.raises(CampaignError, match="--resume"):
        run_command("--resume")
    with pytest.raises(ConfigError, match="directory that exists"):
        run_command("--json", tmp_path / "no" / "x.json")


def test_summary_counts_and_the_table_shows_them(capsys):
    trials = flat(in_this_process(Campaign("identification", 3, SMALL), range(3)))
    trials[1] |= {"exclusions": [{"component": "m"}], "empty": ["why"]}
    trials.append({"index": 9, "error": "ValueError: x"})
    counts = summarise(trials)
    assert (counts["trials"], counts["exclusions"], counts["empty_sets"], counts["caught"]) == (4, 1, 1, 0)
    assert counts["errors"] == 1
    whole = as_json({"seed": 3}, trials)
    assert whole["by"]["joints"]["3"]["trials"] == 3
    Console(width=140).print(table(trials, "title"))
    text = capsys.readouterr().out
    assert "title" in text
    assert "joints 3" in text
    assert summarise([])["median_width"] is None
