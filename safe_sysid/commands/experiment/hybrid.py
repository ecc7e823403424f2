"""``safe-sysid experiment hybrid``: tables and figures of [Hybrid] on a simulated flexible arm."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from safe_sysid.commands.experiment.frame import add_results, begin, run_trials, write_told
from safe_sysid.commands.shared.arguments import at_least, non_negative
from safe_sysid.commands.shared.batch import show_table
from safe_sysid.errors import SafeSysIdError

if TYPE_CHECKING:
    from rich.console import Console

    from safe_sysid.studies.hybrid.make_data import Dataset

__all__ = ["DESCRIPTION", "HELP", "configure", "run"]

HELP = "hybrid inverse dynamics models on a flexible arm"
DESCRIPTION = """Data of a simulated flexible Panda, models of its torque, and tracking with them. Table 1: rigid models
and 2: hybrid ones, trained with --seeds seeds (needs torch); 3: tracking at soft, medium and stiff gains; 4: sizes of
networks and data; 5: base parameters; 6 and 7: tracking, joint by joint; joints: torque errors, joint by joint; parts:
rigid parts of hybrid models while they are trained; which: models from 1, 5 and 30 minutes of data; friction: tracking
with friction known exactly, without data. Tables 3, 5, 6, 7 and joints take the models that table 2 trained in the same
--out, and rigid ones that are identified from the data; --models names files of others. Exit status: 0 all trials ran
to their end (whatever came out), 1 some raised an error, 2 wrong arguments, 130 interrupted."""


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the options."""
    parser.add_argument("--table", choices=(*_TABLES, "friction"), help="which table")
    parser.add_argument(
        "--figure", choices=tuple(_TABLE_OF_FIGURE), help="draw it, too: 2 of parts, 3 of joints, 4 of table 3"
    )
    parser.add_argument("--make-data", action="store_true", help="make the data, and nothing else")
    parser.add_argument(
        "--data", default="small", metavar="SIZE",
        help="small (30 minutes), full (five hours), or a directory with a data set (default: small)",
    )  # fmt: skip
    parser.add_argument(
        "--effects", type=float, default=1.0, metavar="S", help="scale of what rigid models miss (default: 1)"
    )
    parser.add_argument("--models", type=Path, nargs="+", default=[], metavar="FILE", help="learned models")
    parser.add_argument("--seed", type=at_least(0), default=0, metavar="S", help="of the set-points (default: 0)")
    parser.add_argument(
        "--motions", type=at_least(1), default=5, metavar="N", help="set-point motions (default: 5, as the paper)"
    )
    parser.add_argument(
        "--seeds", type=at_least(1), default=3, metavar="K", help="trainings of a model of tables 1, 2 (default: 3)"
    )
    parser.add_argument("--minutes", type=non_negative, metavar="M", help="a training ends after this time")
    parser.add_argument(
        "--as-paper", action="store_true", help="networks of tables 1, 2 see positions and step at every tick"
    )
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu", help="of trainings (default: cpu)")
    add_results(parser, "rows", "data, models, results as they come, and pictures (default: experiment_hybrid)")


def run(options: argparse.Namespace) -> int:
    """Make data, or run, or go on with, a table; print and draw it."""
    which = options.table or _TABLE_OF_FIGURE.get(options.figure or "")
    if which is None and not options.make_data:
        raise SafeSysIdError("expected --table, --figure or --make-data")
    if options.figure and _TABLE_OF_FIGURE[options.figure] != which:
        raise SafeSysIdError(
            f"figure {options.figure} shows table {_TABLE_OF_FIGURE[options.figure]}: expected no --table {which}"
        )
    console = begin(options, "experiment_hybrid")
    from safe_sysid.studies.hybrid.make_data import open_data

    if which == "friction":
        return _friction(options, console)
    dataset = open_data(
        options.data, options.out, options.effects, options.jobs, lambda text: console.print(f"data: {text}")
    )
    return 0 if which is None else _TABLES[which](which, options, dataset, console)


def _models(options: argparse.Namespace, dataset: Dataset) -> dict[str, str]:
    """Files of models by name: rigid ones, identified if they are missing, what table 2 trained, and what is named."""
    from safe_sysid.studies.hybrid.tracking import trained_models, write_rigid_models

    found = write_rigid_models(options.out / f"rigid_{dataset.folder.name}", dataset)
    found |= trained_models(options.out / f"models_2_{dataset.folder.name}")
    for path in options.models:
        name = path.resolve().parent.name if path.stem == "model" else path.stem
        if name in found:
            raise SafeSysIdError(f"--models {path}: there is a model {name} already: expected another name")
        found[name] = str(path.resolve())
    return found


def _tracking(which: str, options: argparse.Namespace, dataset: Dataset, console: Console) -> int:
    from safe_sysid.studies.campaign.runner import Campaign
    from safe_sysid.studies.hybrid import tracking, tracking_tables

    models = _models(options, dataset)
    settings: dict[str, Any] = {
        "models": models, "scale": options.effects, "motions": options.motions, "series": True,
    }  # fmt: skip
    campaign = Campaign("hybrid_tracking", options.seed, settings)
    tracking.check_models(models)

    def show(told: dict[str, Any], _: list[dict[str, Any]]) -> None:
        for text in told["failed"]:
            console.print(f"the arm failed: {text}", soft_wrap=True, markup=False)
        show_table(console, tracking_tables.table(which, told))

    def draw(_: dict[str, Any], found: list[dict[str, Any]]) -> list[Path]:
        path = tracking_tables.draw_figure_4(found, list(models), options.out) if options.figure else None
        return [path] if path else []

    return run_trials(
        campaign, tracking.total(settings), options.out / "tracking.jsonl", options, console,
        lambda found: tracking_tables.summary(which, campaign.header(), found), show, draw,
    )  # fmt: skip


def _base_parameters(which: str, options: argparse.Namespace, dataset: Dataset, console: Console) -> int:
    from safe_sysid.studies.hybrid.base_parameters import summary_5, table_5
    from safe_sysid.studies.hybrid.make_data import load_panda
    from safe_sysid.studies.hybrid.tracking import load_model

    model = load_panda()
    files = {name: path for name, path in _models(options, dataset).items() if not name.startswith("LSTM")}
    thetas = {name: load_model(model, Path(path))[0] for name, path in files.items()}
    told = summary_5(thetas, model.theta_nominal)
    write_told(options, told)
    show_table(console, table_5(told))
    return 0


def _joints(which: str, options: argparse.Namespace, dataset: Dataset, console: Console) -> int:
    from safe_sysid.studies.hybrid import model_tables

    told = model_tables.summary_joints(_models(options, dataset), dataset)
    write_told(options, told)
    show_table(console, model_tables.table_joints(told))
    if options.figure:
        console.print(f"wrote {model_tables.draw_figure_3(told, options.out)}", soft_wrap=True)
    return 0


def _budgets(which: str, options: argparse.Namespace, dataset: Dataset, console: Console) -> int:
    from safe_sysid.studies.campaign.runner import Campaign
    from safe_sysid.studies.campaign.summary import rows_and_errors
    from safe_sysid.studies.hybrid import budgets

    settings: dict[str, Any] = {
        "data": str(dataset.folder.resolve()), "out": str((options.out / "which").resolve()),
        "faster": str((options.out / "faster").resolve()), "scale": options.effects, "motions": options.motions,
        "learned": budgets.learnable(), "minutes": options.minutes,
    }  # fmt: skip
    campaign = Campaign("hybrid_which", options.seed, settings)
    return run_trials(
        campaign, budgets.total(settings), options.out / "which.jsonl", options, console,
        lambda found: rows_and_errors({"table": "which", **campaign.header()}, found),
        lambda told, _: show_table(console, budgets.table_which(told)),
    )  # fmt: skip


def _friction(options: argparse.Namespace, console: Console) -> int:
    from safe_sysid.studies.campaign.runner import Campaign
    from safe_sysid.studies.campaign.summary import rows_and_errors
    from safe_sysid.studies.hybrid import friction

    campaign = Campaign("hybrid_friction", options.seed, {"motions": options.motions})
    return run_trials(
        campaign, len(friction.ARMS) * len(friction.SOURCES), options.out / "friction.jsonl", options, console,
        lambda found: rows_and_errors({"table": "friction", **campaign.header()}, found),
        lambda told, _: show_table(console, friction.table(told)),
    )  # fmt: skip


def _trainings(which: str, options: argparse.Namespace, dataset: Dataset, console: Console) -> int:
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


def _sizes(which: str, options: argparse.Namespace, dataset: Dataset, console: Console) -> int:
    """Print sizes of networks, data and torques. Returns the exit status."""
    from safe_sysid.studies.hybrid.model_tables import table_4

    told = table_4(dataset)
    write_told(options, told)
    console.print_json(data=told)
    return 0


#: What prints a table: another is a line here.
_TABLES: dict[str, Callable[[str, argparse.Namespace, Dataset, Console], int]] = {
    "1": _trainings,
    "2": _trainings,
    "3": _tracking,
    "4": _sizes,
    "5": _base_parameters,
    "6": _tracking,
    "7": _tracking,
    "joints": _joints,
    "parts": _trainings,
    "which": _budgets,
}
#: Which table's trials a figure shows.
_TABLE_OF_FIGURE = {"2": "parts", "3": "joints", "4": "3"}
