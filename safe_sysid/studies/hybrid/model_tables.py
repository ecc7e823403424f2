"""Tables I, II and IV, figures 2 and 3 of [Hybrid]: torques predicted offline, models trained in one or two steps."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from rich.table import Table

from safe_sysid.apps.learn.hybrid import need_torch, train
from safe_sysid.learning.neural.dataset import SPLITS, Dataset, read_dataset
from safe_sysid.learning.neural.models import MODELS
from safe_sysid.learning.neural.scaling import scaling_of
from safe_sysid.picture_style import new_figure, save_figure, style_axis
from safe_sysid.studies.campaign.runner import Campaign
from safe_sysid.studies.campaign.summary import finished
from safe_sysid.studies.hybrid.make_data import load_panda
from safe_sysid.studies.hybrid.tracking import torques_along

__all__ = [
    "PAPER",
    "draw_figure_2",
    "draw_figure_3",
    "model_experiment",
    "run_trial",
    "summary",
    "summary_joints",
    "table",
    "table_4",
    "table_joints",
    "table_parts",
    "total",
]

Result = dict[str, Any]
#: What a table trains: models and optimizations. Those without a network in two steps are solved, not trained.
TRAINED: dict[str, tuple[tuple[str, str], ...]] = {
    "1": (("rbd", "2s"), ("rbd", "e2e"), ("nea", "e2e"), ("delan", "e2e")),
    "2": (("rbd_sign_lstm", "e2e"), ("rbd_sign_lstm", "2s"), ("rbd_sign_mlp", "2s"), ("lstm", "e2e")),
    "parts": (("rbd_lstm", "e2e"), ("nea_lstm", "e2e"), ("delan_lstm", "e2e")),
}
#: Epochs without a better validation loss after which a training of a table ends.
PATIENCE = {"1": 10, "2": 30, "parts": 30}
#: Of the rows of Table II, those that show the rigid part of the hybrid model.
PARTS = ("rbd_sign", "rbd")
#: NMSE of training, validation and test [Hybrid tables I and II].
PAPER: dict[str, dict[tuple[str, str], tuple[float, float, float]]] = {
    "1": {
        ("rbd", "2s"): (0.0070, 0.0074, 0.0085),
        ("rbd", "e2e"): (0.0071, 0.0075, 0.0086),
        ("nea", "e2e"): (0.0071, 0.0075, 0.0087),
        ("delan", "e2e"): (0.0081, 0.13066, 0.2718),
    },
    "2": {
        ("rbd_sign_lstm", "e2e"): (0.0021, 0.0025, 0.0033),
        ("rbd_sign_lstm", "2s"): (0.0013, 0.0022, 0.0035),
        ("rbd_sign_mlp", "2s"): (0.0004, 0.0030, 0.0065),
        ("rbd_sign", "e2e"): (0.0038, 0.0036, 0.0037),
        ("rbd_sign", "2s"): (0.0035, 0.0036, 0.0035),
        ("rbd", "e2e"): (0.0082, 0.0076, 0.0082),
        ("rbd", "2s"): (0.0080, 0.0075, 0.0081),
        ("lstm", "e2e"): (0.0036, 0.0056, 0.0089),
    },
}


def total(options: Result) -> int:
    """Number of trials: every model of a table with every seed. ``options``: as of :func:`run_trial`."""
    return len(TRAINED[options["table"]]) * int(options["seeds"])


def model_experiment(
    which: str, seed: int, seeds: int, dataset: Dataset, out: Path, minutes: float | None, as_paper: bool = False,
    device: str = "cpu",
) -> Campaign:  # fmt: skip
    """The trials of a table.

    Args:
        which: table.
        seed: first one.
        seeds: how many.
        dataset: to learn from.
        out: directory of checkpoints and models.
        minutes: that a training may take; None: until it stops.
        as_paper: whether networks see positions and step at every tick.
        device: of torch.

    Raises:
        ParameterError: torch or its device is missing.
    """
    need_torch(device)
    options = {
        "table": which, "seeds": seeds, "data": str(dataset.folder.resolve()), "out": str(out.resolve()),
        "minutes": minutes, "as_paper": as_paper, "device": device,
    }  # fmt: skip
    return Campaign("hybrid_models", seed, options)


def run_trial(seed: int, index: int, options: dict[str, Any]) -> Result:
    """Train one model with one seed; goes on from its checkpoint where there is one.

    Returns NMSE of the splits, those of the rigid part, epochs, seconds and why the training ended.

    Args:
        seed: the first one.
        index: of the trial.
        options: ``table``, ``seeds``, ``data``, ``out``, ``minutes``, ``as_paper`` and ``device``.
    """
    from safe_sysid.learning.neural.training.fit import Schedule

    which = options["table"]
    later, case = divmod(index, len(TRAINED[which]))
    name, optimization = TRAINED[which][case]
    dataset, folder = read_dataset(options["data"]), f"{name}_{optimization}_{seed + later}"
    schedule = Schedule.as_paper if options["as_paper"] else Schedule
    found = train(
        name, dataset, optimization=optimization, seed=seed + later, model=load_panda(),
        out=Path(options["out"]) / folder, max_minutes=options["minutes"],
        schedule=schedule(patience=PATIENCE[which]), device=options["device"], threads=1,  # one training per core
    )  # fmt: skip
    return {
        "index": index, "model": name, "optimization": optimization, "seed": seed + later,
        "errors": found.errors, "parts": found.parts, "epochs": len(found.history), "seconds": found.seconds,
        "ended": found.ended, "rigid": [epoch.rigid for epoch in found.history],
    }  # fmt: skip


def _rows(which: str, results: Sequence[Result]) -> list[Result]:
    """One row per model, optimization and seed, the rigid parts of hybrid models included (Table II)."""
    rows = []
    for result in finished(results):
        shown = {result["model"]: result["errors"]}
        if which == "2" and result["model"] == "rbd_sign_lstm":
            shown |= {part: result["parts"][part] for part in PARTS}
        for name, errors in shown.items():
            row = {"model": name, "optimization": result["optimization"], "seed": result["seed"]}
            row |= {split: errors[split]["nmse"] for split in SPLITS}
            row["test_per_joint"] = errors["test"]["nmse_per_joint"]
            if name == result["model"]:
                row |= {key: result[key] for key in ("epochs", "seconds", "ended")}
                if which == "parts":
                    row["rigid"] = result["rigid"]
            rows.append(row)
    return rows


def summary(which: str, header: Result, results: Sequence[Result]) -> Result:
    """All that came out, for programs.

    Returns ``rows``: model, optimization, seed, and NMSE of training, validation and test; ``errors`` of trials.

    Args:
        which: table.
        header: of the campaign.
        results: of its trials.
    """
    errors = [result["error"] for result in results if "error" in result]
    return {"table": which, **header, "rows": _rows(which, results), "errors": errors}


def table(which: str, told: Result) -> Table:
    """Means and deviations over seeds, the paper's numbers in brackets.

    ``which``: table; ``told``: of :func:`summary`.
    """
    out = Table(
        title=f"Table {'I' * int(which)}: NMSE of torques along whole trajectories, ours (the paper)",
        caption="Square of the error over that of the torque's range in the training data; deviation over seeds.",
    )
    for name in ("model", "", "seeds", *SPLITS):
        out.add_column(name)
    for (name, optimization), paper in PAPER[which].items():
        rows = [r for r in told["rows"] if (r["model"], r["optimization"]) == (name, optimization)]
        cells = []
        for split, theirs in zip(SPLITS, paper, strict=True):
            values = [row[split] for row in rows]
            ours = f"{np.mean(values):.5f} ± {np.std(values):.5f}" if values else "-"
            cells.append(f"{ours} ({theirs:g})")
        words = "Deep Lagrangian network" if name == "delan" else MODELS[name].words
        words = "rigid arm, semidefinite program" if (which, name, optimization) == ("1", "rbd", "2s") else words
        out.add_row(words, optimization, str(len(rows)), *cells)
    return out


def table_parts(told: Result) -> Table:
    """Validation loss of the rigid parts of hybrid models after some epochs (figure 2)."""
    out = Table(title="Rigid part of a hybrid model, end to end: its validation loss alone, by epoch")
    epochs = (1, 3, 10, 30)
    for name in ("model", "seed", *map(str, epochs), "last"):
        out.add_column(name, justify="left" if name == "model" else "right")
    for row in told["rows"]:
        losses = row["rigid"]
        shown = [f"{losses[k - 1]:.5f}" if k <= len(losses) else "-" for k in epochs]
        out.add_row(MODELS[row["model"]].words, str(row["seed"]), *shown, f"{losses[-1]:.5f} ({len(losses)})")
    return out


def draw_figure_2(told: Result, out: Path) -> Path | None:
    """Those losses over epochs; None if nothing was trained."""
    if not told["rows"]:
        return None
    page = new_figure(7.0, 4.0, "Validation loss of the rigid part inside a hybrid model, by epoch")
    axis = page.subplots()
    for (name, _), colour in zip(TRAINED["parts"], ("#1f6fb4", "#2a9d4b", "#c1121f"), strict=True):
        label = MODELS[name].words
        for row in told["rows"]:
            if row["model"] == name:
                axis.plot(np.arange(1, len(row["rigid"]) + 1), row["rigid"], color=colour, lw=1.0, label=label)
                label = "_"
    axis.set_xscale("log")
    axis.set_yscale("log")
    axis.legend(fontsize=7)
    style_axis(axis)
    path = out / "figure_2.png"
    save_figure(page, path)
    return path


def table_4(dataset: Dataset) -> Result:
    """Sizes of the networks, of the data and of torques (Table IV). ``dataset``: to describe.

    Raises:
        ParameterError: torch is missing.
    """
    need_torch()
    from safe_sysid.learning.neural.training.delan import DeLaN
    from safe_sysid.learning.neural.training.fit import Schedule
    from safe_sysid.learning.neural.training.networks import Feedforward, Recurrent, weights_of

    n, scaling = len(dataset.joints), scaling_of(dataset)
    steps = Schedule().steps
    counts = {split: sum(len(dataset.motion(entry)) // steps for entry in dataset.of(split)) for split in SPLITS[:2]}
    sizes = {"lstm": weights_of(Recurrent(3 * n, n)), "mlp": weights_of(Feedforward(3 * n, n))}
    sizes["delan"] = weights_of(DeLaN(n))
    return {
        "table": "4",
        "weights": sizes,
        "paper_weights": {"lstm": 33_358, "mlp": 46_008, "delan": 47_629},
        "training_samples": [counts["train"], steps, 3 * n],
        "validation_samples": [counts["validation"], steps, 3 * n],
        "paper_training_samples": [135_210, 100, 21],
        "paper_validation_samples": [25_930, 100, 21],
        "torque_min": scaling.torque_low.tolist(),
        "torque_max": scaling.torque_high.tolist(),
        "paper_torque_min": [-10.0, -63.8, -28.24, -24.98, -3.95, -4.21, -1.36],
        "paper_torque_max": [9.78, 61.37, 27.64, 27.9, 3.94, 3.84, 1.84],
    }


#: Of models in figure 3.
_COLOURS = ("#c1121f", "#1f6fb4", "#2a9d4b", "#e0a100", "#7b3fa0", "#5c6b73", "#d97aa6", "#0b7a75")


def summary_joints(models: Mapping[str, str], dataset: Dataset) -> dict[str, Any]:
    """Errors on the test motions, for programs.

    Returns ``rows``: model, ``joints`` (mean squares of errors over squared ranges), their mean.
    """
    model = load_panda()
    tests = [dataset.motion(entry) for entry in dataset.of("test")]
    span = scaling_of(dataset).torque_range
    rows = []
    for name, path in models.items():
        errors = [(torques_along(model, Path(path), motion) - motion.tau) / span for motion in tests]
        joints = np.mean(np.concatenate(errors) ** 2, axis=0)
        rows.append({"model": name, "joints": joints.tolist(), "mean": float(joints.mean())})
    return {"table": "joints", "rows": rows}


def table_joints(told: dict[str, Any]) -> Table:
    """For people."""
    out = Table(title="Torque error on test motions", caption="mean squares over squared ranges, times 1000")
    for head in ("model", *(f"joint {j}" for j in range(1, 8)), "mean"):
        out.add_column(head, justify="left" if head == "model" else "right")
    for row in told["rows"]:
        out.add_row(row["model"], *(f"{1e3 * x:.3f}" for x in (*row["joints"], row["mean"])))
    return out


def draw_figure_3(told: dict[str, Any], out: Path) -> Path:
    """Bars, joint by joint."""
    page = new_figure(10.0, 4.0, "Torque error on test motions, mean squares over squared ranges")
    axis = page.subplots()
    width = 0.8 / len(told["rows"])
    for k, row in enumerate(told["rows"]):
        at = np.arange(1, len(row["joints"]) + 1) + (k - 0.5 * (len(told["rows"]) - 1)) * width
        axis.bar(at, row["joints"], width, color=_COLOURS[k % len(_COLOURS)], label=row["model"])
    axis.set_yscale("log")
    axis.set_xlabel("joint")
    axis.legend(fontsize=7)
    style_axis(axis)
    path = out / "figure_3.png"
    save_figure(page, path)
    return path
