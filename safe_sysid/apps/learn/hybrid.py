"""``safe-sysid learn hybrid``: from logs to a hybrid model of torques; and training of any model on any data set."""

from __future__ import annotations

import importlib.util
import json
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from rich.console import Console
from scipy.signal import butter, sosfiltfilt

from safe_sysid import __version__
from safe_sysid.apps.arm.logs import ArmLogOptions, make_directory, output_directory, read_logs, refused
from safe_sysid.apps.learn.rigid_part import fit_rigid_part
from safe_sysid.apps.progress import steps
from safe_sysid.core.arrays import FloatArray
from safe_sysid.dynamics.protocol import coulomb_direction
from safe_sysid.dynamics.recursion import RecursiveDynamics
from safe_sysid.errors import ParameterError
from safe_sysid.identification.arm.logs.checks import check_log
from safe_sysid.identification.arm.logs.preparation import DataError, Processing, prepare
from safe_sysid.learning.neural.dataset import SPLITS, Dataset, DatasetEntry, MeasuredMotion, write_index, write_motion
from safe_sysid.learning.neural.file import write_hybrid
from safe_sysid.learning.neural.models import MODELS, OPTIMIZATIONS, TRANSITION, Learned
from safe_sysid.learning.neural.scaling import scaling_of
from safe_sysid.learning.neural.stepping import SteppingModel
from safe_sysid.report.learning import hybrid_html
from safe_sysid.robot.loading import load_robot
from safe_sysid.robot.model import RobotModel
from safe_sysid.whole_files import write_text

if TYPE_CHECKING:
    from safe_sysid.learning.neural.training.fit import Epoch, Schedule

__all__ = [
    "LearnHybridOptions", "TrainedModel", "dataset_from_logs", "errors_of", "identified", "learn_hybrid", "need_torch",
    "train",
]  # fmt: skip

#: Of the zero-phase filter of accelerations, Hz [Hybrid section IV-B], and its order.
CUTOFF_HZ, _ORDER = 5.0, 2
#: Samples that the semidefinite program is of, evenly spaced: more tell nothing new of a hundred parameters.
_SAMPLES = 40_000
#: Of a joint's velocity limit: a motion that stays below it is slow.
_SLOW = 0.2
INSTALL = (
    "torch is not installed, and training needs it: pip install 'safe_sysid[learn]' "
    "--extra-index-url https://download.pytorch.org/whl/cpu (without a graphics card), or pip install torch"
)


@dataclass(frozen=True, eq=False)
class TrainedModel:
    """A model, how it was trained and how far off it is."""

    learned: Learned
    #: of each split: ``nmse``, ``nmse_per_joint`` and ``rms_per_joint``, along whole trajectories
    errors: dict[str, dict[str, Any]]
    #: the same of its rigid part, ``rbd``, and with friction, ``rbd_sign``; empty without a rigid part
    parts: dict[str, dict[str, dict[str, Any]]]
    history: tuple[Any, ...]  #: of the training, epoch by epoch; empty where nothing was trained by gradients
    seconds: float
    ended: str  #: why the training ended
    file: Path | None  #: written, where there is one


def need_torch(device: str = "cpu") -> None:
    """Refuse in one sentence where torch, or the graphics card that it is to work on, is missing.

    Raises:
        ParameterError: it is.
    """
    if importlib.util.find_spec("torch") is None:
        raise ParameterError(INSTALL)
    if device != "cpu":
        from safe_sysid.learning.neural.training.fit import check_device

        check_device(device)


def train(
    name: str,
    dataset: Dataset,
    *,
    optimization: str,
    seed: int,
    out: Path | None = None,
    progress: Callable[[Epoch], None] | None = None,
    max_minutes: float | None = None,
    model: RobotModel | None = None,
    schedule: Schedule | None = None,
    device: str = "cpu",
    threads: int | None = None,
    splits: Sequence[str] = SPLITS,
    provenance: Mapping[str, str] | None = None,
) -> TrainedModel:
    """Train a model and measure its errors along whole trajectories.

    Args:
        name: in :data:`~safe_sysid.learning.neural.models.MODELS`.
        optimization: "e2e", or "2s": the rigid part by a semidefinite program, then the network.
        out: directory of checkpoint and file; None: none are kept.
        progress: called after each epoch.
        max_minutes: the training ends after this time; None: when validation gets no better.
        model: of the arm; None: the one that the data set names.
        schedule: of training; None: the paper's.
        threads: of torch on the processor; None: as torch has them.
        provenance: where the data are from, in words by key; kept in the file.

    Raises:
        ParameterError: unknown name or optimization, a combination that does not exist, or torch is missing.
        ConfigError: the data or a checkpoint cannot be used.
    """
    if name not in MODELS:
        raise ParameterError(f"model {name!r}: expected one of {', '.join(MODELS)}")
    kind = MODELS[name]
    if optimization not in OPTIMIZATIONS or (optimization == "2s" and kind.rigid != "bary"):
        expected = "e2e" if kind.rigid != "bary" else " or ".join(OPTIMIZATIONS)
        raise ParameterError(f"optimization {optimization!r} of {name}: expected {expected}")
    model = load_robot(dataset.robot) if model is None else model
    begin = time.perf_counter()
    theta = identified(model, dataset, kind.friction) if optimization == "2s" else None
    predict: Callable[[MeasuredMotion], FloatArray] | None = None
    history: tuple[Any, ...] = ()
    if theta is not None and kind.network is None:
        scaling, robot = scaling_of(dataset), {"robot": dataset.robot}
        learned = Learned(name, "2s", seed, dataset.joints, dataset.rate_hz, theta, scaling, {}, robot)
        ended = "semidefinite program"
    else:
        need_torch(device)
        from safe_sysid.learning.neural.training.fit import fit

        done = fit(
            name, dataset, model, seed=seed, theta=theta, schedule=schedule, out=out, progress=progress,
            max_minutes=max_minutes, device=device, threads=threads,
        )  # fmt: skip
        learned, history, predict, ended = done.learned, done.history, done.predict, done.ended
    seconds = time.perf_counter() - begin
    learned = replace(learned, provenance={**learned.provenance, **(provenance or {})})
    errors, parts = errors_of(learned, dataset, model, splits, predict)
    file = None
    if out is not None and kind.rigid != "delan":
        file = out / "model.npz"
        write_hybrid(file, learned)
    return TrainedModel(learned, errors, parts, history, seconds, ended, file)


def identified(model: RobotModel, dataset: Dataset, friction: bool) -> FloatArray:
    """(14 n,) the best consistent links and Coulomb friction on the training data, by a semidefinite program.

    The same squares are minimised as in training: of torques in units of their range.

    ``model``: of the arm; its rotor inertias are taken as they are; ``friction``: whether there is friction.

    Raises:
        ParameterError: the solver finds no arm.
        ConfigError: the data cannot be used.
    """
    layout, entries = model.layout, dataset.of("train")
    start = np.array(model.theta_nominal)
    for block in (layout.coulomb, layout.viscous, layout.offset):
        start[block] = 0.0
    thin = []
    for entry in entries:
        motion = dataset.motion(entry)
        every = max(1, len(motion) * len(entries) // _SAMPLES)
        thin.append((motion.q[::every], motion.qd[::every], motion.qdd[::every], motion.tau[::every]))
    unit = scaling_of(dataset).torque_range
    return fit_rigid_part(model, thin, "coulomb" if friction else "links", start, unit, TRANSITION)[0]


def errors_of(
    learned: Learned,
    dataset: Dataset,
    model: RobotModel,
    splits: Sequence[str] = SPLITS,
    predict: Callable[[MeasuredMotion], FloatArray] | None = None,
) -> tuple[dict[str, dict[str, Any]], dict[str, dict[str, dict[str, Any]]]]:
    """Errors of a model along whole trajectories, its memory empty at the start of each; by the code that control runs.

    ``predict``: (N, n) torque along a motion of what ``learned`` does not hold; None where it holds all.

    Returns:
        Of each split, and of each part of a rigid model and each split: ``nmse``, ``nmse_per_joint``,
        ``rms_per_joint``.
    """
    stepping = SteppingModel(learned, model.kinematics, model.theta_nominal, TRANSITION)
    unit, layout = learned.scaling.torque_range, model.layout
    dynamics = RecursiveDynamics(model.kinematics)
    totals: dict[str, dict[str, FloatArray]] = {}
    for split in splits:
        squares: dict[str, Any] = {}
        count = 0
        for entry in dataset.of(split):
            motion = dataset.motion(entry)
            state = motion.q, motion.qd, motion.qdd
            found = {"": stepping.along(*state)}
            if learned.theta is not None:
                rigid = dynamics.inverse_dynamics(learned.theta, *state, TRANSITION)
                sign = coulomb_direction(motion.qd, TRANSITION)
                found |= {"rbd": rigid - learned.theta[layout.coulomb] * sign, "rbd_sign": rigid}
                found[""] = found[""] + rigid
            elif predict is not None:
                found[""] = found[""] + predict(motion)
            count += len(motion)
            for part, torque in found.items():
                squares[part] = squares.get(part, 0.0) + ((torque - motion.tau) ** 2).sum(axis=0)
        totals[split] = {part: total / count for part, total in squares.items()}

    def told(mean: FloatArray) -> dict[str, Any]:
        nmse = mean / unit**2
        return {"nmse": float(nmse.mean()), "nmse_per_joint": nmse.tolist(), "rms_per_joint": np.sqrt(mean).tolist()}

    parts = {
        part: {split: told(totals[split][part]) for split in splits if part in totals[split]}
        for part in ("rbd", "rbd_sign")
        if learned.theta is not None
    }
    return {split: told(totals[split][""]) for split in splits if totals[split]}, parts


def predicted_along(learned: Learned, model: RobotModel, motion: MeasuredMotion) -> FloatArray:
    """(N, n) torque of a model along a motion, its memory empty at the start, N m.

    Args:
        learned: the model.
        model: of the arm.
        motion: of it.
    """
    stepping = SteppingModel(learned, model.kinematics, model.theta_nominal, TRANSITION)
    out = stepping.along(motion.q, motion.qd, motion.qdd)
    if learned.theta is not None:
        dynamics = RecursiveDynamics(model.kinematics)
        out += dynamics.inverse_dynamics(learned.theta, motion.q, motion.qd, motion.qdd, TRANSITION)
    return out


@dataclass(frozen=True)
class LearnHybridOptions(ArmLogOptions):
    """Options of the command; see ``safe-sysid learn hybrid --help``."""

    model: str = "rbd_sign_lstm"
    optimization: str = "e2e"
    seed: int = 0
    as_paper: bool = False
    minutes: float | None = None
    device: str = "cpu"


def dataset_from_logs(options: ArmLogOptions, model: RobotModel, folder: Path) -> tuple[Dataset, list[str]]:
    """Write a data set of logs of a real arm.

    Positions, velocities and torques stay as they were measured; accelerations are velocities through a Butterworth
    filter, forwards and backwards, and differentiated. Of each log the last part is held out, half of that for
    validation and half as test.

    Returns the data set, and what speaks against its logs.

    Raises:
        SafeSysIdError: a log cannot be used.
    """
    names = tuple(model.joint_names)
    logs = read_logs(options, names)
    findings = [finding.message for log in logs for finding in check_log(log.measurements, names)]
    if findings and not options.force:
        return Dataset(folder, model.name, names, 1.0, None, ()), findings
    processing = Processing(0.0, 1, options.velocity, dict(options.torque_per_effort))
    data = prepare([log.measurements for log in logs], names, processing)
    rate = data.effects[0].rate_hz
    for k, effect in enumerate(data.effects):
        if abs(effect.rate_hz / rate - 1.0) > 0.02:
            raise DataError(f"log {k + 1}: {effect.rate_hz:g} Hz: expected {rate:g} Hz, as the first log")
    cutoff = CUTOFF_HZ if options.cutoff is None else options.cutoff
    if not cutoff < 0.5 * rate:
        raise DataError(f"--cutoff {cutoff:g}: expected less than half the rate of the logs, {rate:g} Hz")
    held_out = list(range(len(options.logs), len(logs))) or None
    first, rest = data.split(options.share, held_out)
    validation, test = rest.split(0.5)
    entries: list[DatasetEntry] = []
    for split, part in zip(SPLITS, (first, validation, test), strict=True):
        for piece in part.parts():
            count = piece.stop - piece.start
            if count < 2 * rate / max(cutoff, 1.0) + 30:
                continue
            qd, qdd = part.qd[piece], part.qdd[piece]
            if cutoff > 0.0:
                sos = butter(_ORDER, cutoff, fs=rate, output="sos")
                qdd = np.gradient(sosfiltfilt(sos, qd, axis=0), 1.0 / rate, axis=0)
            stamp = np.arange(count) / rate
            motion = MeasuredMotion(stamp, part.q[piece], qd, qdd, part.torque[piece])
            entry = DatasetEntry(
                f"{len(entries):02}.npz",
                "slow" if np.max(np.abs(qd) / model.limits.velocity) < _SLOW else "fast",
                split,
            )
            write_motion(folder / entry.file, motion)
            entries.append(entry)
    missing = [split for split in SPLITS if all(entry.split != split for entry in entries)]
    if missing:
        raise DataError(f"no segment long enough for {missing[0]}: expected longer logs, or --validation")
    return write_index(folder, model.name, names, rate, None, entries), findings


def learn_hybrid(options: LearnHybridOptions) -> int:
    """Read, check, train, export, tell. Returns the exit status: 0 learned, 2 logs with errors.

    Raises:
        SafeSysIdError: something cannot be used; one line says what.
    """
    if options.optimization == "e2e" or MODELS[options.model].network is not None:
        need_torch(options.device)
    model = load_robot(options.robot)
    out = output_directory(options, "learn hybrid")
    make_directory(out)
    dataset, findings = dataset_from_logs(options, model, out / "data")
    if refused(options, "learn hybrid", findings, "learned"):
        return 2
    where = {"logs": ", ".join(str(path) for path in options.logs), "version": __version__}
    schedule = None
    if options.as_paper:
        need_torch()
        from safe_sysid.learning.neural.training.fit import Schedule

        schedule = Schedule.as_paper()
    with steps("training", options.quiet) as tell:

        def told(epoch: Epoch) -> None:
            tell(f"epoch {epoch.number}: training {epoch.train:.3g}, validation {epoch.validation:.3g}", None)

        trained = train(
            options.model, dataset, optimization=options.optimization, seed=options.seed, out=out, progress=told,
            max_minutes=options.minutes, model=model, device=options.device, provenance=where, schedule=schedule,
        )  # fmt: skip
    result = {
        "schema": "safe_sysid/learned-hybrid/1", "version": __version__, "robot": model.name,
        "logs": [str(path) for path in options.logs], "model": options.model, "optimization": options.optimization,
        "seed": options.seed, "epochs": len(trained.history), "ended": trained.ended, "seconds": trained.seconds,
        "joints": list(dataset.joints), "rate_hz": dataset.rate_hz, "errors": trained.errors, "parts": trained.parts,
        "warnings": findings,
    }  # fmt: skip
    for path in (out / "result.json", options.json_file):
        if path is not None:
            write_text(path, json.dumps(result, indent=1) + "\n")
    test = dataset.motion(dataset.of("test")[0])
    losses_of = [(epoch.train, epoch.validation) for epoch in trained.history]
    predicted = predicted_along(trained.learned, model, test)
    write_text(out / "report.html", hybrid_html(result, losses_of, test.stamp, test.tau, predicted))
    _tell(result, out, options.quiet)
    return 0


def _tell(result: dict[str, Any], out: Path, quiet: bool) -> None:
    console = Console(width=None if sys.stdout.isatty() else 110, highlight=False)
    test, rigid = result["errors"]["test"], result["parts"].get("rbd_sign", {}).get("test")
    if not quiet:
        console.print("test torque:                          error RMS   rigid part alone")
        for j, name in enumerate(result["joints"]):
            alone = "-" if rigid is None else f"{rigid['rms_per_joint'][j]:.3g}"
            console.print(f"  {name:<34} {test['rms_per_joint'][j]:>9.3g} {alone:>12}", soft_wrap=True, markup=False)
    console.print(
        f"{result['model']} ({result['optimization']}): {result['epochs']} epochs, ended by {result['ended']}; test "
        f"NMSE {test['nmse']:.3g}; {out / 'model.npz'}, {out / 'report.html'}",
        soft_wrap=True, markup=False,
    )  # fmt: skip
