"""Data for the models [Hybrid, section IV-B]: 26 exciting series, slow and fast, driven on the flexible arm.

First a short run with the drawing's parameters, from which a rigid model is identified; with it as feed-forward and the
stiff gains, all series are driven. One process per core; each motion is a file that is written whole or not at all, so
that a run that was stopped goes on where it was.
"""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from scipy.signal import butter, sosfiltfilt

from safe_sysid.core.arrays import FloatArray
from safe_sysid.errors import ParameterError
from safe_sysid.input_limits import read_arrays
from safe_sysid.learning.neural.dataset import (
    INDEX,
    Dataset,
    DatasetEntry,
    MeasuredMotion,
    read_dataset,
    write_index,
    write_motion,
)
from safe_sysid.parent import end_with_spawner
from safe_sysid.resources import resource_path
from safe_sysid.robot.loading import load_robot
from safe_sysid.robot.model import RobotModel
from safe_sysid.simulation.flexible import FlexibleArm, read_effects
from safe_sysid.studies.hybrid.drive import drive, impedance
from safe_sysid.studies.hybrid.motions import FAST, SLOW, exciting_series, slower
from safe_sysid.studies.hybrid.rigid_models import drawing, identified, write_rigid
from safe_sysid.trajectories.fourier import FourierTrajectory

__all__ = [
    "SIZES",
    "DataSize",
    "Dataset",
    "acceleration",
    "driven_series",
    "entries",
    "load_panda",
    "make_data",
    "open_data",
]

_EFFECTS = "panda_effects"


@dataclass(frozen=True)
class DataSize:
    """How much data."""

    series: int
    period: float  #: of a fast one, s; a slow one takes four times as long
    repeats: int
    harmonics: int
    tests: int = 2
    validations: int = 2  #: series whose both speeds are for validation, and as many of which one speed is
    improvements: int = 50


#: Half an hour and five hours, split as in [Hybrid]: 42, 6 and 4 motions. `tiny` is for tests.
SIZES = {
    "tiny": DataSize(4, 0.8, 1, 2, tests=1, validations=1, improvements=2),
    "small": DataSize(26, 13.846, 1, 5),
    "full": DataSize(26, 34.615, 4, 12),
}


def load_panda() -> RobotModel:
    """The rigid part of the arm of the experiments."""
    return load_robot(resource_path("config/hybrid/panda.yaml"))


def entries(size: DataSize) -> list[DatasetEntry]:
    """The files of a data set, and what each is for."""
    out = []
    for k in range(size.series):
        for speed in ("slow", "fast"):
            split = "train"
            if k < size.tests:
                split = "test"
            elif k < size.tests + (2 if speed == ("slow", "fast")[k % 2] else 1) * size.validations:
                split = "validation"
            out.append(DatasetEntry(f"{k:02d}_{speed}.npz", speed, split))
    return out


def acceleration(qd: FloatArray, rate: float = 1000.0, cutoff: float = 5.0) -> FloatArray:
    """Accelerations (N, n) of measured velocities, by a Butterworth filter of order 2 forwards and backwards.

    ``qd``: (N, n) rad/s; ``rate``: samples per second; ``cutoff``: Hz, of the filter.
    """
    smooth = sosfiltfilt(butter(2, cutoff, fs=rate, output="sos"), qd, axis=0)
    return np.asarray(np.gradient(smooth, 1.0 / rate, axis=0))


def _series(model: RobotModel, size: DataSize, k: int, speed: str) -> FourierTrajectory:
    fast = exciting_series(model, k, size.period, size.harmonics, improvements=size.improvements)
    return fast if speed == "fast" else slower(fast, FAST / SLOW)


def driven_series(
    model: RobotModel, series: FourierTrajectory, scale: float, theta: FloatArray, repeats: int = 1
) -> MeasuredMotion:
    """Drive a series with the stiff gains, and take down what the sensors and the controller say.

    ``theta``: (14 n,) of the controller's rigid model.

    Raises ModelError: the arm ran away.
    """
    arm = FlexibleArm(model, read_effects(_EFFECTS, model.theta_nominal, scale), series.start)
    count = round(series.period / arm.period)
    # At rest at both ends of a period, so that periods follow each other.
    once = series.states(np.arange(1, count + 1) * arm.period)[:, :3]
    run = drive(arm, impedance(model, "stiff"), theta, np.tile(once, (repeats, 1, 1)), settle=100)
    return MeasuredMotion(run.stamp - run.stamp[0], run.q, run.qd, acceleration(run.qd), run.torque)


def _parameters(model: RobotModel, size: DataSize, scale: float, path: Path) -> FloatArray:
    """Of the rigid model that the data are collected with: from one fast series of its own, or the file."""
    if path.is_file():
        return np.asarray(read_arrays(path)["theta"])
    once = replace(size, period=max(size.period, 2.0), repeats=1)
    motion = driven_series(model, _series(model, once, 1000, "fast"), scale, drawing(model))
    theta, _ = identified(model, [(motion.q, motion.qd, motion.qdd, motion.tau)], "links")
    write_rigid(path, theta)
    return theta


def _task(task: tuple[str, float, str, str]) -> str:
    size_name, scale, folder, file = task
    model, size = load_panda(), SIZES[size_name]
    theta = _parameters(model, size, scale, Path(folder) / "collection.npz")
    index, _, speed = Path(file).stem.partition("_")
    motion = driven_series(model, _series(model, size, int(index), speed), scale, theta, size.repeats)
    write_motion(Path(folder) / file, motion)
    return file


def make_data(
    folder: str | Path,
    size: str = "small",
    scale: float = 1.0,
    jobs: int = 0,
    progress: Callable[[str], None] = lambda text: None,
) -> Dataset:
    """Make a data set, or what is missing of it.

    Raises ParameterError: an unknown size, or a folder with data of another size or scale.

    Args:
        folder: of the files; the index is written last.
        size: one of :data:`SIZES`.
        jobs: processes; 0: one per core.
    """
    if size not in SIZES:
        raise ParameterError(f"data = {size!r}: expected one of {', '.join(SIZES)}")
    folder, model = Path(folder), load_panda()
    folder.mkdir(parents=True, exist_ok=True)
    made, label = folder / "made.txt", f"{size} {scale!r}\n"
    if made.is_file() and made.read_text() != label:
        raise ParameterError(f"{folder} holds data {made.read_text().strip()!r}: expected {label.strip()!r}")
    made.write_text(label)
    wanted = entries(SIZES[size])
    missing = [entry.file for entry in wanted if not (folder / entry.file).is_file()]
    if missing:
        _parameters(model, SIZES[size], scale, folder / "collection.npz")
    tasks = [(size, scale, str(folder), file) for file in sorted(missing, key=lambda name: "fast" in name)]
    workers = min(jobs or multiprocessing.cpu_count(), max(len(tasks), 1))
    if workers <= 1:
        done = map(_task, tasks)
        for k, file in enumerate(done, 1):
            progress(f"{file} ({k} of {len(tasks)})")
    else:
        with multiprocessing.get_context("spawn").Pool(workers, initializer=end_with_spawner) as pool:
            for k, file in enumerate(pool.imap_unordered(_task, tasks), 1):
                progress(f"{file} ({k} of {len(tasks)})")
    return write_index(folder, model.name, model.joint_names, 1000.0, scale, wanted)


def open_data(
    named: str, out: Path, scale: float = 1.0, jobs: int = 0, progress: Callable[[str], None] = lambda text: None
) -> Dataset:
    """The data set that is named: a directory's, or one of a size, made below ``out`` if it is not there.

    ``named``: one of :data:`SIZES`, or a directory; ``progress``: as of :func:`make_data`.

    Raises SafeSysIdError: as :func:`make_data` and :func:`read_dataset`.
    """
    if named not in SIZES:
        return read_dataset(named)
    folder = out / f"data_{named}_{scale:g}"
    if (folder / INDEX).is_file():
        return read_dataset(folder)
    return make_data(folder, named, scale, jobs, progress)
