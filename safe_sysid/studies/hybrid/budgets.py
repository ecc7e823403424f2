"""Which model when: the same arm, models from 1, 5 and 30 minutes of data, in and out of their distribution."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from rich.table import Table

from safe_sysid.input_limits import read_arrays
from safe_sysid.learning.neural.dataset import Dataset, Motion, read_dataset
from safe_sysid.robot.model import RobotModel
from safe_sysid.studies.campaign.runner import Campaign
from safe_sysid.studies.hybrid.drive import GAINS
from safe_sysid.studies.hybrid.make_data import driven_series, load_panda
from safe_sysid.studies.hybrid.motions import exciting_series
from safe_sysid.studies.hybrid.rigid_models import drawing, identified, rigid_torque
from safe_sysid.studies.hybrid.tracking import DURATIONS, RIGID, run_trial
from safe_sysid.whole_files import replacing

__all__ = [
    "BUDGETS",
    "BudgetExperiment",
    "normalised_error",
    "run_budget",
    "summary_which",
    "table_which",
    "train_part",
]

FloatArray = NDArray[np.float64]
Result = dict[str, Any]
#: Minutes of data; the last is all that a data set has for training.
BUDGETS = (1.0, 5.0, 30.0)
#: What can be proved with a model in the controller, whatever it learned.
_PROVED = {
    None: "with the law `robust`: the tracking bound, if its box holds the truth",
    "links": "consistent links (LMI); under `robust` as the nominal inside a box that holds the truth",
    "coulomb": "consistent links (LMI); under `robust` as the nominal inside a box that holds the truth",
    "all": "consistent links (LMI); `identify-arm` gives intervals of the same base parameters",
}
#: Speed, share of the limits, of motions that are out of distribution: data have at most 0.4.
_FASTER, _FASTER_SEEDS = 0.6, (2000, 2001)
_THIN = 20


def train_part(dataset: Dataset, minutes: float) -> list[Motion]:
    """Training motions of a budget: fast ones first, as somebody with little time would record; the last one is cut."""
    left, out = round(60.0 * minutes * dataset.rate_hz), []
    for entry in sorted(dataset.of("train"), key=lambda entry: entry.speed):
        if left < 2:
            break
        motion = dataset.motion(entry)
        count = min(left, len(motion))
        out.append(Motion(*(x[:count] for x in (motion.stamp, motion.q, motion.qd, motion.qdd, motion.tau))))
        left -= count
    return out


def normalised_error(predicted: Sequence[FloatArray], motions: Sequence[Motion], span: FloatArray) -> float:
    """Mean square of the torque's error, each joint's divided by its range in the training data [Hybrid, IV-C].

    Args:
        predicted: (N, n) of each motion.
        span: (n,) N m.
    """
    errors = [((p - m.tau) / span) ** 2 for p, m in zip(predicted, motions, strict=True)]
    return float(np.mean(np.concatenate(errors)))


def _faster(model: RobotModel, folder: Path, scale: float, theta: FloatArray) -> list[Motion]:
    """Motions that are faster than all data, driven as these; kept in files."""
    out = []
    for seed in _FASTER_SEEDS:
        path = folder / f"faster_{seed}.npz"
        if not path.is_file():
            series = exciting_series(model, seed, 8.0, 5, _FASTER, draws=10, improvements=10)
            motion = driven_series(model, series, scale, theta)
            with replacing(path) as temporary, temporary.open("wb") as file:
                np.savez(file, stamp=motion.stamp, q=motion.q, qd=motion.qd, qdd=motion.qdd, tau=motion.tau)
        arrays = read_arrays(path)
        out.append(Motion(*(arrays[key] for key in ("stamp", "q", "qd", "qdd", "tau"))))
    return out


@dataclass(frozen=True)
class BudgetExperiment(Campaign):
    """Trials: every rigid model with every budget; the drawing once."""

    def function(self) -> Callable[[int, int, dict[str, Any]], Result]:
        """The trial."""
        return run_budget

    @property
    def total(self) -> int:
        """Number of trials."""
        return 1 + (len(RIGID) - 1) * len(BUDGETS)


def run_budget(seed: int, index: int, options: dict[str, Any]) -> Result:
    """One model with one budget.

    Args:
        seed: of the set-points.
        index: 0: the drawing; then models by budgets.
        options: ``data`` and ``out`` (directories), ``scale`` of the effects, ``motions`` of the tracking.

    Returns:
        Torque errors (mean squares, normalised), tracking by gains (degrees), seconds to identify, seconds per tick.
    """
    model, dataset, out = load_panda(), read_dataset(options["data"]), Path(options["out"])
    names = [name for name, kind in RIGID.items() if kind is not None]
    name, budget = next(iter(RIGID)), 0.0
    if index:
        which, part = divmod(index - 1, len(BUDGETS))
        name, budget = names[which], BUDGETS[part]
    kind = RIGID[name]
    whole = [dataset.motion(entry) for entry in dataset.of("train")]
    span = np.ptp(np.concatenate([motion.tau for motion in whole]), axis=0)
    begin = time.perf_counter()
    if kind is None:
        theta = drawing(model)
    else:
        thin = [tuple(x[::_THIN] for x in (m.q, m.qd, m.qdd, m.tau)) for m in train_part(dataset, budget)]
        theta, _ = identified(model, thin, kind)  # type: ignore[arg-type]
    took = time.perf_counter() - begin
    out.mkdir(parents=True, exist_ok=True)
    path = out / f"{name}, {budget:g} min.npz"
    with replacing(path) as temporary, temporary.open("wb") as file:
        np.savez(file, theta=theta)
    tests = [dataset.motion(entry) for entry in dataset.of("test")]
    others = _faster(model, Path(options["faster"]), options["scale"], drawing(model))
    errors = [
        normalised_error([rigid_torque(model, theta, m.q, m.qd, m.qdd) for m in motions], motions, span)
        for motions in (tests, others)
    ]
    tracked = {}
    for g, gains in enumerate(GAINS):
        runs = [
            run_trial(
                seed, g * len(DURATIONS) + d,
                {"models": {name: str(path)}, "scale": options["scale"], "motions": options["motions"]},
            )
            for d in range(len(DURATIONS))
        ]  # fmt: skip
        values = [run["rmse"] for run in runs]
        tracked[gains] = None if None in values else float(np.mean(values))
    return {
        "index": index, "model": name, "minutes": budget, "test": errors[0], "faster": errors[1],
        "tracking": tracked, "seconds": took, "tick": _tick(model, theta, tests[0]), "proved": _PROVED[kind],
    }  # fmt: skip


def _tick(model: RobotModel, theta: FloatArray, motion: Motion) -> float:
    """Median time of one evaluation, s."""
    times = []
    for k in range(300):
        begin = time.perf_counter()
        rigid_torque(model, theta, motion.q[k], motion.qd[k], motion.qdd[k])
        times.append(time.perf_counter() - begin)
    return float(np.median(times))


def summary_which(header: Result, results: Sequence[Result]) -> Result:
    """All that came out, for programs."""
    return {
        "table": "which",
        **header,
        "rows": [result for result in results if "error" not in result],
        "errors": [result["error"] for result in results if "error" in result],
    }


def table_which(told: Result) -> Table:
    """One page for people."""
    out = Table(
        title="Which model when",
        caption="errors: mean squares of torque over its range; tracking: root mean square, degrees",
    )
    heads = ("model", "minutes", "test", "faster", *GAINS, "identified in", "tick", "what can be proved")
    for head in heads:
        out.add_column(head, justify="left" if head in ("model", "what can be proved") else "right")
    for row in told["rows"]:
        tracked = ["failed" if (x := row["tracking"][g]) is None else f"{x:.2f}" for g in GAINS]
        minutes = f"{row['minutes']:g}" if row["minutes"] else "none"
        out.add_row(
            row["model"], minutes, f"{row['test']:.5f}", f"{row['faster']:.5f}", *tracked,
            f"{row['seconds']:.1f} s", f"{1e6 * row['tick']:.0f} us", row["proved"],
        )  # fmt: skip
    return out
