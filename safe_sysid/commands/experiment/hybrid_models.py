"""Tables 1, 2 and 4 and figure 2 of ``safe-sysid experiment hybrid``: models that are trained."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from safe_sysid.commands.experiment.frame import run_trials, write_told
from safe_sysid.commands.shared.batch import show_table

if TYPE_CHECKING:
    from rich.console import Console

    from safe_sysid.studies.hybrid.make_data import Dataset

__all__ = ["sizes", "trainings"]


def trainings(which: str, options: argparse.Namespace, dataset: Dataset, console: Console) -> int:
    """Train, or go on with, the models of a table; print it. Returns the exit status."""
    from safe_sysid.studies.hybrid import model_tables

    how = "_as_paper" if options.as_paper else ""
    folder = options.out / f"models_{which}_{dataset.folder.name}{how}"
    campaign = model_tables.model_experiment(
        which, options.seed, options.seeds, dataset, folder, options.minutes, options.as_paper, options.device
    )
    folder.mkdir(parents=True, exist_ok=True)
    return run_trials(
        campaign, model_tables.total(campaign.options), options.out / f"models_{which}{how}.jsonl", options, console,
        lambda found: model_tables.summary(which, campaign.header(), found),
        lambda told, _: show_table(
            console, model_tables.table_parts(told) if which == "parts" else model_tables.table(which, told)
        ),
        lambda told, _: filter(None, [model_tables.draw_figure_2(told, options.out) if options.figure else None]),
        what="training",
    )  # fmt: skip


def sizes(which: str, options: argparse.Namespace, dataset: Dataset, console: Console) -> int:
    """Print sizes of networks, data and torques. Returns the exit status."""
    from safe_sysid.studies.hybrid.model_tables import table_4

    told = table_4(dataset)
    write_told(options, told)
    console.print_json(data=told)
    return 0
