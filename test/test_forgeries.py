"""Forged run directories, and logs that end in contradiction: nothing of them passes `verify`."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from safe_sysid.apps.verify.published import TOLD
from safe_sysid.apps.verify.verification import VerifyStatus
from safe_sysid.studies.campaign.cases.case import build_case
from safe_sysid.studies.forgeries import trial as summary
from safe_sysid.studies.forgeries.directory import SMALL, answer_to, honest_run, identify_and_write, log_of, trusting
from safe_sysid.studies.forgeries.edits import EDITS, leaves, pattern_of
from safe_sysid.studies.forgeries.trial import CHANGES, contradict, forge


@pytest.mark.parametrize("first", [0, pytest.param(6, marks=pytest.mark.slow)])
@pytest.mark.parametrize("way", EDITS)
def test_no_forgery_passes(way: str, first: int) -> None:
    """Some of each kind; the campaign tries thousands."""
    trials = [forge(0, index, {"fixed": way}) for index in range(first, first + 6)]
    assert [trial for trial in trials if not summary.is_sound(trial)] == []
    assert all(trial["answer"] in ("FAIL", "refused") for trial in trials)


@pytest.fixture
def result(tmp_path: Path) -> Path:
    """Of a copy of an honest run."""
    return Path(shutil.copytree(honest_run(0, 0).folder, tmp_path / "run")) / "result.json"


def test_every_field_of_a_result_is_recomputed_or_said_to_be_told(result: Path) -> None:
    """Each leaf of result.json changed by itself: refused, unless it is in the list of what is only told."""
    content, seen = json.loads(result.read_text()), set()
    for leaf, value in leaves(content):
        pattern = pattern_of(leaf)
        if pattern in seen:
            continue
        seen.add(pattern)
        forged = json.loads(json.dumps(content))
        part = forged
        for key in leaf[:-1]:
            part = part[key]
        part[leaf[-1]] = (
            not value if isinstance(value, bool)
            else value + 1 if isinstance(value, (int, float))
            else f"{value}x"
        )  # fmt: skip
        result.write_text(json.dumps(forged))
        answer, text = answer_to(result.parent, honest_run(0, 0).verification)
        told = any(pattern == name or pattern.startswith((f"{name}.", f"{name}[")) for name in TOLD)
        assert told or answer is not VerifyStatus.PASS, f"{pattern}: {text}"
    assert {"payload.lower[]", "log.sha256", "parameters[].unit", "frame", "method", "updates[].time_s"} <= seen


def test_a_truthful_change_of_files_passes(result: Path) -> None:
    """The attack is not refused for being touched: what a run only tells may be anything."""
    content = json.loads(result.read_text())
    content["seconds"]["identify"] = 1e3
    content["message"] = "another one"
    result.write_text(json.dumps(content))
    assert answer_to(result.parent, honest_run(0, 0).verification)[0] is VerifyStatus.PASS


@pytest.mark.parametrize("index", [366, 1524])
def test_what_the_campaign_found_is_refused(index: int) -> None:
    """The method of a certificate before the last one; a field that has a default and is gone."""
    assert forge(0, index, {})["answer"] in ("FAIL", "refused")


@pytest.mark.parametrize("arm", [18, 24])
def test_honest_runs_pass_whatever_hand_their_estimate_supposes(arm: int) -> None:
    """An estimate is possible if some hand leaves a possible payload; the whole need not be a body by itself."""
    assert honest_run(0, arm).folder.is_dir()


@pytest.mark.parametrize("way", CHANGES)
def test_nothing_of_a_contradiction_passes(way: str) -> None:
    """Where the set became empty no certificate is left, and those from before do not pass beside the whole log."""
    trials = [contradict(0, index, {"fixed": way}) for index in range(1, 4)]
    assert [trial for trial in trials if not summary.is_sound(trial)] == []
    empty = [trial for trial in trials if trial["empty"]]
    assert empty, "the change is large enough in some"
    for trial in empty:
        assert trial["answer"] == "FAIL"
        assert trial["certificates"] == 0
        assert trial["resurrected"] != "PASS"
    assert any(trial["before"] for trial in empty), "certificates had been written"


@pytest.mark.parametrize(
    "index", [39, 843, pytest.param(2091, marks=pytest.mark.slow)]
)  # of eleven; some need held torques
def test_the_identifier_sees_every_contradiction_that_the_checker_sees(index: int) -> None:
    """The campaign's logs whose bounds crossed with the checker's narrower rows only: m >= 6.97 and <= 3.90 kg."""
    # Of arms whose ratios and zeros are known: others were not drawn when these were found.
    trial = contradict(20261123, index, {"settings": {"ratios": False, "zero": 0.0}})
    assert (trial["empty"], trial["certificates"], trial["answer"]) == (True, 0, "FAIL")
    assert trial["resurrected"] != "PASS"
    unseen = trial | {"empty": False, "certificates": 2, "resurrected": "-"}
    assert summary.is_sound(unseen)
    unseen["words"] = "FAIL: certificate 0:2: the assumptions contradict the logs, and a contradiction proves nothing"
    assert not summary.is_sound(unseen)
    assert summary.summarise([trial, unseen])["missed"] == 1


def test_a_withdrawal_says_why_and_outlives_a_restart(tmp_path: Path) -> None:
    for index in range(8):
        settings = {key: value for key, value in SMALL.items() if key not in ("noise", "motion")}
        model, log = log_of(build_case(0, index, {"fixed": settings, "break": "wear"}))
        run = identify_and_write(tmp_path / str(index), model, log, 2)
        if run.empty:
            break
    assert run.empty
    folder = tmp_path / str(index)
    content = json.loads((folder / "withdrawn_0.json").read_text())
    assert "no parameters agree" in content["reason"]
    assert content["log"]["samples"] == run.samples
    assert not list(folder.glob("certificate_*"))
    assert not (folder / "bounds.yaml").exists()
    assert (folder / "log.npz").is_file(), "what contradicts is kept"
    answer, text = answer_to(folder, trusting(model))
    assert answer is VerifyStatus.FAIL
    assert "were withdrawn" in text
