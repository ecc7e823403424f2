"""Tracking experiments [Hybrid, section V]: set-point motions with every model as feed-forward, at three gains."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from safe_sysid.core.arrays import FloatArray
from safe_sysid.core.layout import ParameterLayout
from safe_sysid.errors import ModelError, ParameterError
from safe_sysid.input_limits import ARRAY_ERRORS, read_arrays
from safe_sysid.learning.gaussian_process.file import read_model
from safe_sysid.learning.lip import TorquePredictor
from safe_sysid.learning.neural.dataset import Dataset, MeasuredMotion
from safe_sysid.learning.neural.file import read_hybrid
from safe_sysid.learning.neural.stepping import SteppingModel
from safe_sysid.robot.model import RobotModel
from safe_sysid.simulation.flexible import FlexibleArm, read_effects
from safe_sysid.studies.campaign.summary import finished
from safe_sysid.studies.hybrid.drive import GAINS, ModelFeedForward, Predictor, drive, guard, impedance
from safe_sysid.studies.hybrid.make_data import load_panda
from safe_sysid.studies.hybrid.motions import set_points
from safe_sysid.studies.hybrid.rigid_models import drawing, identified, rigid_torque, write_rigid

__all__ = [
    "DURATIONS",
    "RIGID",
    "averages",
    "check_models",
    "load_model",
    "run_trial",
    "torques_along",
    "total",
    "trained_models",
    "write_rigid_models",
]

Result = dict[str, Any]
#: s of a set-point motion: slow and fast.
DURATIONS = (10.0, 2.0)
#: Rigid models by name, and the terms that they identify besides links; None: the drawing.
RIGID: dict[str, str | None] = {
    "drawing": None,
    "RBD 2S": "links",
    "RBD+Sign 2S": "coulomb",
    "RBD, all friction": "all",
}
#: What a model's name has between its own and the seed of its training; trials of several seeds are one row.
SEED = ", seed "
#: The paper's names of what its table 2 trains.
_TRAINED = {
    "rbd_sign_lstm_2s": "RBD+LSTM+Sign 2S",
    "rbd_sign_lstm_e2e": "RBD+LSTM+Sign E2E",
    "rbd_sign_mlp_2s": "RBD+MLP+Sign 2S",
    "lstm_e2e": "LSTM",
}
#: Periods that a position is held before a motion, so that memories know the state [Hybrid, section V].
SETTLE = 500
#: Degrees: an arm that is so far away has failed.
_LOST = 120.0
_THIN = 20  # rows of data that one is taken of


def write_rigid_models(folder: Path, dataset: Dataset | None) -> dict[str, str]:
    """Identify the rigid models of a data set, unless that was done; returns their files by name.

    Args:
        folder: of the files, one per model: ``theta``.
        dataset: whose training motions tell; None: the drawing alone.

    Raises:
        SafeSysIdError: data that no real arm fits.
    """
    model, files = load_panda(), {}
    for name, kind in RIGID.items():
        if kind is not None and dataset is None:
            continue
        path = folder / f"{name}.npz"
        files[name] = str(path.resolve())
        if path.is_file():
            continue
        if kind is None or dataset is None:
            theta = drawing(model)
        else:
            motions = (dataset.motion(entry) for entry in dataset.of("train"))
            thin = [(m.q[::_THIN], m.qd[::_THIN], m.qdd[::_THIN], m.tau[::_THIN]) for m in motions]
            theta, _ = identified(model, thin, kind)
        write_rigid(path, theta)
    return files


def trained_models(folder: Path) -> dict[str, str]:
    """Files of the models that table 2 has trained, by the paper's names and seeds; rigid parts of E2E ones, too.

    ``folder``: of table 2's trainings: ``rbd_sign_lstm_2s_0/model.npz`` and others.
    """
    files = {}
    for path in sorted(folder.glob("*/model.npz")):
        kind, _, seed = path.parent.name.rpartition("_")
        if kind not in _TRAINED:
            continue
        files[f"{_TRAINED[kind]}{SEED}{seed}"] = str(path.resolve())
        if kind == "rbd_sign_lstm_e2e":
            theta = np.array(read_hybrid(path).theta)
            for name in ("RBD+Sign E2E", "RBD E2E"):
                part = folder / f"{name}{SEED}{seed}.npz"
                write_rigid(part, theta)
                files[part.stem] = str(part.resolve())
                theta[ParameterLayout.of_size(len(theta)).coulomb] = 0.0
    return dict(sorted(files.items()))


def load_model(model: RobotModel, path: Path) -> tuple[FloatArray, Predictor | None]:
    """What the law inverts, and what is fed forward besides: a rigid model's file, or a learned one's.

    Returns (14 n,) parameters, and the torque (n,), N m, of q, qd and qdd, (n,) each; None where nothing is added.

    Raises:
        SafeSysIdError: the file is neither, or another arm's.
    """
    try:
        arrays = read_arrays(path)
    except ARRAY_ERRORS as error:
        raise ParameterError(f"{path}: expected a model's file ({error})") from None
    if set(arrays) == {"theta"} and arrays["theta"].shape == (model.layout.size,):
        return np.asarray(arrays["theta"], float), None
    if "log_noise" in arrays:
        process = read_model(path)
        process.check_joints(model.joint_names, [bool(s) for s in model.sliding])
        return drawing(model), TorquePredictor(process.process, np.arange(1)).torque
    learned = read_hybrid(path, model.joint_names)
    # The feedback of a black box takes its inertia from the drawing: the law knows no truth.
    theta = drawing(model) if learned.theta is None else np.array(learned.theta, float)
    stepping = SteppingModel(learned, model.kinematics, theta, model.friction_transition_velocity)
    return theta, stepping.torque


def torques_along(model: RobotModel, path: Path, motion: MeasuredMotion) -> FloatArray:
    """(N, n) torques of a model's file along a motion, a memory empty at its start."""
    theta, predict = load_model(model, path)
    if predict is None:
        return rigid_torque(model, theta, motion.q, motion.qd, motion.qdd)
    return np.array([predict(*at).copy() for at in zip(motion.q, motion.qd, motion.qdd, strict=True)])


def total(options: dict[str, Any]) -> int:
    """Number of trials: every model, at all gains, slow and fast. ``options``: as of :func:`run_trial`."""
    return len(options["models"]) * len(GAINS) * len(DURATIONS)


def run_trial(seed: int, index: int, options: dict[str, Any]) -> Result:
    """One model, one set of gains, one duration: five motions one after the other.

    Args:
        seed: of the set-points.
        options: ``models`` (files by name), ``scale`` of the effects, ``motions``, and ``series``: whether positions
            are kept, in 50 Hz.

    Returns:
        Root mean square of each joint's error along the motions and its size at their ends, in degrees (None: the arm
        failed), and how often the guard did not follow the model.
    """
    names, kinds = list(options["models"]), list(GAINS)
    which, rest = divmod(index, len(kinds) * len(DURATIONS))
    gains, duration = kinds[rest // len(DURATIONS)], DURATIONS[rest % len(DURATIONS)]
    model = load_panda()
    theta, predict = load_model(model, Path(options["models"][names[which]]))
    motions = set_points(model, duration, options.get("motions", 5), seed=seed)
    reference = motions.reference()
    arm = FlexibleArm(model, read_effects("panda_effects", model.theta_nominal, options["scale"]), motions.points[0])
    added = None if predict is None else guard(model, ModelFeedForward(model, theta, predict), names[which])
    out: Result = {
        "index": index, "model": names[which], "gains": gains, "duration": duration, "seed": seed,
        "scale": options["scale"], "rmse": None, "final": None, "guarded": 0,
    }  # fmt: skip
    try:
        run = drive(arm, impedance(model, gains), theta, reference, added, settle=SETTLE)
    except ModelError as ran_away:
        return {**out, "failed": str(ran_away)}
    error = np.degrees(run.true - reference[:, 0])
    ends = round(duration / arm.period) * np.arange(1, len(motions.points)) - 1
    out |= {"guarded": run.guarded, "final": np.abs(error[ends]).mean(axis=0).tolist()}
    if np.abs(error).max() > _LOST:
        return {**out, "final": None, "failed": f"{np.abs(error).max():.0f} degrees away"}
    out["rmse"] = np.sqrt(np.mean(error**2, axis=0)).tolist()
    if options.get("series"):
        out["series"] = {"wanted": reference[::20, 0].tolist(), "reached": run.true[::20].tolist()}
    return out


def averages(results: Sequence[Result], key: str) -> dict[tuple[str, str], FloatArray | None]:
    """By model and gains, each joint's mean (n,) over slow and fast and over seeds, degrees; None where the arm failed.

    ``key``: ``rmse`` or ``final``.
    """
    groups: dict[tuple[str, str], list[Any]] = {}
    for result in finished(results):
        model = result["model"].partition(SEED)[0]
        groups.setdefault((model, result["gains"]), []).append(result[key])
    return {
        group: None if any(value is None for value in values) else np.mean(values, axis=0)
        for group, values in groups.items()
    }


def check_models(models: Mapping[str, str]) -> None:
    """Refuse files that are no models before anything runs.

    Raises:
        SafeSysIdError: a file is missing or no model's.
    """
    for path in models.values():
        load_model(load_panda(), Path(path))
