"""One trial: a forged run directory, or a log that ends in contradiction; `verify` must not say PASS. Their summary."""

from __future__ import annotations

import shutil
import tempfile
import time
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from rich.table import Table

from safe_sysid.apps.verify.verification import VerifyStatus
from safe_sysid.identification.identifier import UpdateStatus
from safe_sysid.studies.campaign.breaks import BREAKS
from safe_sysid.studies.campaign.cases.case import build_case
from safe_sysid.studies.campaign.cases.settings import generator
from safe_sysid.studies.campaign.summary import ascending, count_table, finished, must_be_zero, shown, totals
from safe_sysid.studies.forgeries.directory import SMALL, answer_to, honest_run, identify_and_write, log_of, trusting
from safe_sysid.studies.forgeries.edits import EDITS, ForgeryScene

__all__ = [
    "PER_ARM",
    "as_json",
    "complaint",
    "contradict",
    "forge",
    "is_missed",
    "is_sound",
    "passes",
    "summarise",
    "table",
]


_COLUMNS = ("trials", "passed", "missed", "errors", "noticed")


def is_sound(trial: dict[str, Any]) -> bool:
    """Whether nothing passed that must not, and the identifier saw every contradiction that its checker proves."""
    return "error" not in trial and not passes(trial) and not is_missed(trial)


def complaint(trial: dict[str, Any]) -> dict[str, Any]:
    """What is wrong with a trial, in short."""
    return {key: trial[key] for key in ("error", "way", "what", "answer", "resurrected", "empty") if key in trial}


def summarise(trials: Iterable[dict[str, Any]]) -> dict[str, Any]:
    """Counts over trials. ``trials``: results.

    Returns:
        ``trials``; ``passed``: that must not; ``missed``: contradictions that only the checker saw; ``errors``:
        raised; ``noticed``: refused, or ended in contradiction; ``seconds`` of one core.
    """
    trials = list(trials)
    ran = finished(trials)
    return {
        **totals(trials),
        "passed": sum(passes(trial) for trial in ran),
        "missed": sum(is_missed(trial) for trial in ran),
        "noticed": sum(trial.get("empty", trial["answer"] != "PASS") for trial in ran),
        "answers": dict(Counter(trial["answer"] for trial in ran)),
    }


def _by_way(trials: list[dict[str, Any]]) -> dict[str, list[dict[str, Any]]]:
    groups: dict[str, list[dict[str, Any]]] = {}
    for trial in trials:
        groups.setdefault(trial.get("way", "error"), []).append(trial)
    return dict(sorted(groups.items()))


def as_json(header: dict[str, Any], trials: Iterable[dict[str, Any]]) -> dict[str, Any]:
    """Everything of a campaign: what it was, the counts, the counts by way, and all trials by index."""
    trials = ascending(trials)
    by = {way: summarise(part) for way, part in _by_way(trials).items()}
    return {**header, **summarise(trials), "by": by, "results": trials}


def table(trials: Iterable[dict[str, Any]], title: str) -> Table:
    """Counts by way."""
    trials = list(trials)
    columns = {name: (must_be_zero if name in ("passed", "missed", "errors") else shown)(name) for name in _COLUMNS}
    return count_table(title, trials, summarise, columns, {"": _by_way(trials).items()}, "way")


#: Forgeries of one arm's run.
PER_ARM = 100
#: What changes half-way through a log, so that no parameters agree with all of it.
CHANGES = ("slip", "exchange", "wear")


def forge(seed: int, index: int, options: dict[str, Any]) -> dict[str, Any]:
    """Forge the run of one arm in one way.

    Returns ``index``, ``way``, ``what`` was done, ``answer`` of `verify`, its last words, ``seconds``.

    Args:
        index: of the trial; a hundred in a row are of one arm.
        options: ``fixed``: the way, a key of :data:`~safe_sysid.studies.forgeries.edits.EDITS`.
    """
    began = time.thread_time()
    arm = index // PER_ARM
    run, other = honest_run(seed, arm), honest_run(seed, arm + 1)
    rng = generator(seed, index, 20)
    names, shares = list(EDITS), [share for _, share in EDITS.values()]
    way = options.get("fixed") or str(rng.choice(names, p=shares))
    with tempfile.TemporaryDirectory(prefix="safe_sysid_forgery_") as place:
        folder = Path(place) / "run"
        shutil.copytree(run.folder, folder)
        what = EDITS[way][0](ForgeryScene(folder, run, other, rng))
        answer, text = answer_to(folder, run.verification)
    return {
        "index": index,
        "way": way,
        "what": what,
        "answer": "refused" if answer is None else answer.name,
        "words": text.strip().splitlines()[-1][:300] if text.strip() else "",
        "seconds": round(time.thread_time() - began, 4),
    }


def contradict(seed: int, index: int, options: dict[str, Any]) -> dict[str, Any]:
    """Identify a log whose payload or friction changes half-way, look at what is left, and put back what was withdrawn.

    ``options``: ``fixed``: what changes, one of :data:`CHANGES`; ``settings``: of the arm and its log, not drawn.

    Returns:
        As :func:`forge`; ``way`` is what changed, ``empty`` whether the set became empty, ``certificates`` how many
        files were left after that, ``before`` how many had been written, ``resurrected`` what `verify` says once they
        are back.
    """
    began = time.thread_time()
    way = options.get("fixed") or CHANGES[int(generator(seed, index, 21).integers(len(CHANGES)))]
    settings = {key: value for key, value in SMALL.items() if key not in ("noise", "motion")}
    settings |= options.get("settings", {})
    case = build_case(seed, index, {"fixed": settings, "break": way})
    model, log = log_of(case)
    verification, resurrected = trusting(model), "-"
    with tempfile.TemporaryDirectory(prefix="safe_sysid_contradiction_") as place:
        folder, kept = Path(place) / "run", Path(place) / "kept"
        # What a run of the first half leaves, and what the whole log makes of it.
        identify_and_write(kept, model, log if len(log) < 4 else _half(log), 1)
        before = len(list(kept.glob("certificate_*.json")))
        run = identify_and_write(folder, model, log, 2)
        empty = any(record.status == UpdateStatus.EMPTY_SET.name for record in run.records)
        count = len(list(folder.glob("certificate_*")))
        answer, text = answer_to(folder, verification)
        if empty and before:
            for path in [*kept.glob("certificate_*"), kept / "bounds.yaml", kept / "payload.urdf"]:
                if path.is_file():
                    shutil.copy(path, folder / path.name)
            for name in ("withdrawn_0.json", "result.json"):  # even where the run's own word is gone
                (folder / name).unlink(missing_ok=True)
            if (kept / "result.json").is_file():
                shutil.copy(kept / "result.json", folder / "result.json")
            again, _ = answer_to(folder, verification)
            resurrected = "refused" if again is None else again.name
    return {
        "index": index,
        "way": way,
        "what": BREAKS[way],
        "empty": empty,
        "certificates": count,
        "before": before,
        "resurrected": resurrected,
        "answer": "refused" if answer is None else answer.name,
        "words": text.strip().splitlines()[-1][:300] if text.strip() else "",
        "seconds": round(time.thread_time() - began, 4),
    }


def _half(log: Any) -> Any:
    """The first half of a log."""
    from dataclasses import replace

    return replace(log, measurements=log.measurements[: len(log) // 2])


def is_missed(trial: dict[str, Any]) -> bool:
    """Whether only the checker saw a contradiction: the identifier published bounds of a set that is proved empty."""
    return not trial.get("empty", True) and "a contradiction proves nothing" in trial["words"]


def passes(trial: dict[str, Any]) -> bool:
    """Whether something passed that must not: a forgery, or what is left of a contradiction.

    A log in which the change is too small to contradict anything is identified, and passes rightly.
    """
    if "empty" not in trial:
        return bool(trial["answer"] == VerifyStatus.PASS.name)
    bad = trial["answer"] == VerifyStatus.PASS.name or trial["certificates"] > 0
    return bool((trial["empty"] and bad) or trial["resurrected"] == VerifyStatus.PASS.name)
