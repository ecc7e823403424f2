"""Tables 1, 2 and 4 of ``safe-sysid experiment hybrid``: models that are trained."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from safe_sysid.commands.batch import collect, show_table

if TYPE_CHECKING:
    from rich.console import Console

    from safe_sysid.studies.hybrid.make_data import Dataset

__all__ = ["sizes", "trainings"]


def trainings(which: str, options: argparse.Namespace, dataset: Dataset, console: Console) -> int:
    """Train, or go on with, the models of a table; print it.

    Returns:
        Exit status.
    """
    from safe_sysid.studies.campaign.results import write_summary
    from safe_sysid.studies.hybrid import model_tables

    folder = options.out / f"models_{which}_{dataset.folder.name}"
    campaign = model_tables.model_experiment(
        which, options.seed, options.seeds, dataset, folder, options.minutes
    )
    folder.mkdir(parents=True, exist_ok=True)
    found, interrupted = collect(
        campaign, campaign.total, options.out / f"models_{which}.jsonl", model_tables.is_sound, options,
        chunk=1, redo=lambda result: not model_tables.is_sound(result),
    )  # fmt: skip
    told = model_tables.summary(which, campaign.header(), found)
    if options.json is not None:
        write_summary(options.json, told)
    for error in dict.fromkeys(told["errors"]):
        console.print(f"a training raised: {error}", soft_wrap=True, markup=False)
    show_table(console, model_tables.table(which, told))
    if interrupted:
        console.print(
            f"interrupted after {len(found)} of {campaign.total} trainings; go on with --resume",
            soft_wrap=True,
        )
        return 130
    return 1 if told["errors"] else 0


def sizes(which: str, options: argparse.Namespace, dataset: Dataset, console: Console) -> int:
    """Print sizes of networks, data and torques.

    Returns:
        Exit status.
    """
    from safe_sysid.studies.campaign.results import write_summary
    from safe_sysid.studies.hybrid.model_tables import table_4

    told = table_4(dataset)
    if options.json is not None:
        write_summary(options.json, told)
    console.print_json(data=told)
    return 0
