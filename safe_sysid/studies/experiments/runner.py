"""Trials of a table or figure, numbered, so that the campaigns' runners can run and resume them anywhere."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from safe_sysid.robot.scenes.scene import config_path
from safe_sysid.studies.campaign.runner import Campaign
from safe_sysid.studies.experiments.methods import ExperimentError, choose
from safe_sysid.studies.experiments.results.paper import EXPERIMENTS, METHOD_NAMES, PAYLOADS

__all__ = ["FIGURES", "TABLES", "cases", "experiment"]

TABLES = ("3", "4", "5")
FIGURES = ("fig5", "fig6", "fig11", "fig12")


@dataclass(frozen=True)
class _TrialPlan:
    """Defaults of a table or figure: which trials, how many, of what; and which methods it could have."""

    kind: str
    trials: int
    experiments: tuple[str, ...] = EXPERIMENTS
    methods: tuple[str, ...] = METHOD_NAMES
    payloads: tuple[str, ...] = PAYLOADS
    until: str = "end"
    shows: tuple[str, ...] = METHOD_NAMES  # methods of which it can show anything


#: What trials of a kind are not made of: random motions have no payload, and plans of table 5 an open scene.
_WITHOUT = {"correlation": ("experiments", "methods", "payloads"), "condition": ("experiments",)}
_PAIR = ("ours", "random")
_MASS = ("ours", "random", "adap-1", "adap-1-excit")
_STUDIES = {
    "3": _TrialPlan("task", 5),
    "4": _TrialPlan("correlation", 100),
    "5": _TrialPlan("condition", 5, methods=_PAIR, shows=_PAIR),
    "fig5": _TrialPlan("task", 1, experiments=("b",), methods=_MASS, payloads=("4lb",), shows=_MASS),
    "fig6": _TrialPlan(
        "task", 1, experiments=("b",), methods=_PAIR, payloads=("4lb",), until="identified", shows=_PAIR
    ),
    "fig11": _TrialPlan("task", 1, experiments=("a",)),
    "fig12": _TrialPlan("task", 1, experiments=("b",)),
}


def experiment(
    table: str,
    seed: int = 0,
    experiments: Iterable[str] | None = None,
    methods: Iterable[str] | None = None,
    payloads: Iterable[str] | None = None,
    **settings: Any,
) -> tuple[Campaign, int]:
    """The trials behind a table or figure.

    Returns the trials and how many times the paper (or, for table 4, we) would repeat them.

    Raises ExperimentError: an unknown table, a name that it does not have, or names of what it does not consist of.

    Args:
        table: one of :data:`TABLES` or :data:`FIGURES`.
        experiments: of "a", "b", "c"; None for those of the table.
        methods: by the paper's names; None for those of the table.
        payloads: dumbbells; None for those of the table.
        settings: further options of the trials; plain data.
    """
    if table not in _STUDIES:
        raise ExperimentError(f"table {table!r}: expected one of {', '.join(_STUDIES)}")
    study = _STUDIES[table]
    options: dict[str, Any] = dict(settings)
    given = {"experiments": experiments, "methods": methods, "payloads": payloads}
    for name in _WITHOUT.get(study.kind, ()):
        if given[name] is not None:
            raise ExperimentError(f"table {table}: expected no {name}, it is not made of any")
    if study.kind != "correlation":
        what = "method" if study.shows == METHOD_NAMES else f"method of {'table ' * (table in TABLES)}{table}"
        options["methods"] = list(choose(study.methods if methods is None else methods, study.shows, what))
        options["payloads"] = list(choose(study.payloads if payloads is None else payloads, PAYLOADS, "payload"))
    if study.kind == "task":
        asked = choose(study.experiments if experiments is None else experiments, EXPERIMENTS, "experiment")
        options["experiments"] = _possible(asked, options["payloads"], study.until, experiments is not None)
        options["until"] = study.until
        # A work cell that was changed is another experiment: results of both are never mixed.
        options["workcells"] = {name: _fingerprint(name) for name in options["experiments"]}
    return Campaign(study.kind, seed, options), study.trials


def _possible(asked: tuple[str, ...], payloads: list[str], until: str, on_purpose: bool) -> list[str]:
    """Work cells in which these dumbbells can be moved: (c) has only the heaviest, (a) and (b) need a stack."""
    heaviest = PAYLOADS[-1]
    if "c" in asked and heaviest not in payloads:
        if on_purpose:
            raise ExperimentError(f"payloads {', '.join(payloads)}: expected {heaviest}, the one of experiment c")
        asked = tuple(name for name in asked if name != "c")
    numbers = [PAYLOADS.index(name) for name in payloads]
    if until == "end" and set(asked) - {"c"} and numbers[-1] - numbers[0] + 1 != len(numbers):
        raise ExperimentError(f"payloads {', '.join(payloads)}: expected neighbours in the stack")
    return list(asked)


def _fingerprint(name: str) -> str:
    """Of a work cell's files."""
    path = config_path(f"pso_{name}", "config/experiments")
    digest = hashlib.sha256()
    for file in sorted(path.parent.glob(f"{path.stem}*{path.suffix}")):
        digest.update(file.read_bytes())
    return digest.hexdigest()[:16]


def cases(kind: str, options: dict[str, Any], repeats: int) -> list[dict[str, Any]]:
    """What each index stands for: repeats outermost, so that more of them do not renumber what is done.

    ``repeats``: of each combination; ``trial`` counts them.
    """
    if kind == "correlation":
        return [{"trial": i} for i in range(repeats)]
    over = ("experiments", "methods") if kind == "task" else ("payloads", "methods")
    names = tuple(name.removesuffix("s") for name in over)
    return [
        {"trial": i, names[0]: first, names[1]: second}
        for i in range(repeats)
        for first in options[over[0]]
        for second in options[over[1]]
    ]


def case(kind: str, options: dict[str, Any], index: int) -> dict[str, Any]:
    """The one of these with a given index."""
    per_repeat = len(cases(kind, options, 1))
    repeat, rest = divmod(index, per_repeat)
    return {**cases(kind, options, 1)[rest], "trial": repeat}
