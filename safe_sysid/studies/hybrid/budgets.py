"""Which model when: the same arm, models from 1, 5 and 30 minutes of data, in and out of their distribution."""

from __future__ import annotations

import importlib.util
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from rich.table import Table

from safe_sysid.apps.learn.hybrid import train
from safe_sysid.core.arrays import FloatArray
from safe_sysid.input_limits import read_arrays
from safe_sysid.learning.gaussian_process.file import LearnedModel, write_model
from safe_sysid.learning.gaussian_process.kernels import lip_kernel
from safe_sysid.learning.gaussian_process.motions import MotionSamples
from safe_sysid.learning.gaussian_process.regression import TorqueProcess, informative
from safe_sysid.learning.gaussian_process.training import TrainingOptions
from safe_sysid.learning.gaussian_process.training import train as fit_process
from safe_sysid.learning.neural.dataset import (
    Dataset,
    DatasetEntry,
    MeasuredMotion,
    read_dataset,
    write_index,
    write_motion,
)
from safe_sysid.learning.neural.scaling import scaling_of
from safe_sysid.robot.model import RobotModel
from safe_sysid.studies.hybrid.drive import GAINS
from safe_sysid.studies.hybrid.make_data import driven_series, load_panda
from safe_sysid.studies.hybrid.motions import exciting_series
from safe_sysid.studies.hybrid.rigid_models import drawing, identified, rigid_torque, write_rigid
from safe_sysid.studies.hybrid.tracking import DURATIONS, RIGID, load_model, run_trial, torques_along

__all__ = ["BUDGETS", "learnable", "normalised_error", "run_budget", "table_which", "total", "train_part"]

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
#: Of a learned model, which a law adds to a rigid one's torque.
_ADDED = "nothing of its torque; under `robust` the tracking bound, with room for `feed_forward.bound`"
#: Learned models by name: model and optimization of a network; None: the Gaussian process.
LEARNED: dict[str, tuple[str, str] | None] = {
    "LIP": None,
    "hybrid 2S": ("rbd_sign_lstm", "2s"),
    "hybrid E2E": ("rbd_sign_lstm", "e2e"),
    "memory alone": ("lstm", "e2e"),
}
#: Samples of the Gaussian process, and those that they are chosen from.
_SAMPLES, _CANDIDATES = 500, 2000
#: Speed, share of the limits, of motions that are out of distribution: data have at most 0.4.
_FASTER, _FASTER_SEEDS = 0.6, (2000, 2001)
_THIN = 20


def train_part(dataset: Dataset, minutes: float) -> list[MeasuredMotion]:
    """Training motions of a budget: fast ones first, as somebody with little time would record; the last one is cut."""
    left, out = round(60.0 * minutes * dataset.rate_hz), []
    for entry in sorted(dataset.of("train"), key=lambda entry: entry.speed):
        if left < 2:
            break
        motion = dataset.motion(entry)
        count = min(left, len(motion))
        out.append(MeasuredMotion(*(x[:count] for x in (motion.stamp, motion.q, motion.qd, motion.qdd, motion.tau))))
        left -= count
    return out


def normalised_error(predicted: Sequence[FloatArray], motions: Sequence[MeasuredMotion], span: FloatArray) -> float:
    """Mean square of the torque's error, each joint's divided by its range in the training data [Hybrid, IV-C].

    ``predicted``: (N, n) of each motion; ``span``: (n,) N m.
    """
    errors = [((p - m.tau) / span) ** 2 for p, m in zip(predicted, motions, strict=True)]
    return float(np.mean(np.concatenate(errors)))


def _faster(model: RobotModel, folder: Path, scale: float, theta: FloatArray) -> list[MeasuredMotion]:
    """Motions that are faster than all data, driven as these; kept in files."""
    out = []
    for seed in _FASTER_SEEDS:
        path = folder / f"faster_{seed}.npz"
        if not path.is_file():
            series = exciting_series(model, seed, 8.0, 5, _FASTER, draws=10, improvements=10)
            write_motion(path, driven_series(model, series, scale, theta))
        arrays = read_arrays(path)
        out.append(MeasuredMotion(*(arrays[key] for key in ("stamp", "q", "qd", "qdd", "tau"))))
    return out


def learnable() -> list[str]:
    """Names of the learned models that can be trained here: networks need torch."""
    torch = importlib.util.find_spec("torch") is not None
    return [name for name, what in LEARNED.items() if what is None or torch]


def total(options: dict[str, Any]) -> int:
    """Number of trials: every model with every budget; the drawing once. ``options``: as of :func:`run_budget`."""
    return 1 + len(_taught(options)) * len(BUDGETS)


def _taught(options: dict[str, Any]) -> list[str]:
    return [*(name for name, kind in RIGID.items() if kind is not None), *options["learned"]]


def run_budget(seed: int, index: int, options: dict[str, Any]) -> Result:
    """One model with one budget.

    Returns torque errors (mean squares, normalised), tracking by gains (degrees), seconds to learn, seconds per tick.

    Args:
        seed: of the set-points and trainings.
        index: 0: the drawing; then models by budgets.
        options: ``data`` and ``out`` (directories), ``scale`` of the effects, ``motions`` of the tracking, ``learned``
            (names in :data:`LEARNED`) and ``minutes``, after which a training of a network ends (None: by itself).
    """
    model, dataset, out = load_panda(), read_dataset(options["data"]), Path(options["out"])
    name, budget = next(iter(RIGID)), 0.0
    if index:
        which, part = divmod(index - 1, len(BUDGETS))
        name, budget = _taught(options)[which], BUDGETS[part]
    span = scaling_of(dataset).torque_range
    out.mkdir(parents=True, exist_ok=True)
    path = out / f"{name}, {budget:g} min.npz"
    begin = time.perf_counter()
    if name in RIGID:
        _write_rigid(model, dataset, RIGID[name], budget, path)
    elif (what := LEARNED[name]) is None:
        _write_lip(model, train_part(dataset, budget), seed, path)
    else:
        some = _limited(dataset, budget, out / f"data_{budget:g}")
        folder = out / path.stem
        train(
            what[0], some, optimization=what[1], seed=seed, model=model, out=folder, splits=("validation",),
            max_minutes=options["minutes"], threads=1,
        )  # fmt: skip
        path = folder / "model.npz"
    took = time.perf_counter() - begin
    tests = [dataset.motion(entry) for entry in dataset.of("test")]
    others = _faster(model, Path(options["faster"]), options["scale"], drawing(model))
    errors = [
        normalised_error([torques_along(model, path, m) for m in motions], motions, span) for motions in (tests, others)
    ]
    tracked: dict[str, float | None] = {}
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
        "tracking": tracked, "seconds": took, "tick": _tick(model, path, tests[0]),
        "proved": _PROVED[RIGID[name]] if name in RIGID else _ADDED,
    }  # fmt: skip


def _write_rigid(model: RobotModel, dataset: Dataset, kind: str | None, budget: float, path: Path) -> None:
    if kind is None:
        theta = drawing(model)
    else:
        thin = [tuple(x[::_THIN] for x in (m.q, m.qd, m.qdd, m.tau)) for m in train_part(dataset, budget)]
        theta, _ = identified(model, thin, kind)  # type: ignore[arg-type]
    write_rigid(path, theta)


def _write_lip(model: RobotModel, motions: Sequence[MeasuredMotion], seed: int, path: Path) -> None:
    """A Gaussian process of the most informative samples, as `safe-sysid learn lip` makes it."""
    q, qd, qdd, tau = (np.concatenate([getattr(m, key) for m in motions]) for key in ("q", "qd", "qdd", "tau"))
    seen = np.linspace(0, len(q) - 1, _CANDIDATES).astype(np.int64)
    x, tau = MotionSamples(q[seen], qd[seen], qdd[seen], [bool(s) for s in model.sliding]), tau[seen]
    kernel, even = lip_kernel(model.n, friction=True), slice(None, None, _CANDIDATES // _SAMPLES)
    found = fit_process(kernel, x[even], tau[even], TrainingOptions(seed=seed))
    best = np.sort(informative(kernel, found.log, found.log_noise, x, _SAMPLES, found.units))
    process = TorqueProcess(kernel, found.log, found.log_noise, x[best], tau[best], found.units)
    write_model(path, LearnedModel(process, tuple(model.joint_names), {}))


def _limited(dataset: Dataset, minutes: float, folder: Path) -> Dataset:
    """The data set with the budget's training motions, and the same ones for validation."""
    if minutes >= BUDGETS[-1]:
        return dataset
    cut = [("train", "fast", m) for m in train_part(dataset, minutes)]
    cut += [("validation", entry.speed, dataset.motion(entry)) for entry in dataset.of("validation")]
    entries = [DatasetEntry(f"{k:02}.npz", speed, split) for k, (split, speed, _) in enumerate(cut)]
    for entry, (*_, motion) in zip(entries, cut, strict=True):
        write_motion(folder / entry.file, motion)
    return write_index(folder, dataset.robot, dataset.joints, dataset.rate_hz, dataset.effects, entries)


def _tick(model: RobotModel, path: Path, motion: MeasuredMotion) -> float:
    """Median time of one evaluation, s."""
    theta, predict = load_model(model, path)
    times = []
    if predict is None:

        def predict(q: FloatArray, qd: FloatArray, qdd: FloatArray) -> FloatArray:
            return rigid_torque(model, theta, q, qd, qdd)

    for k in range(300):
        begin = time.perf_counter()
        predict(motion.q[k], motion.qd[k], motion.qdd[k])
        times.append(time.perf_counter() - begin)
    return float(np.median(times))


def table_which(told: Result) -> Table:
    """One page for people."""
    out = Table(
        title="Which model when",
        caption="errors: mean squares of torque over its range; tracking: root mean square, degrees",
    )
    heads = ("model", "minutes", "test", "faster", *GAINS, "learned in", "tick", "what can be proved")
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
