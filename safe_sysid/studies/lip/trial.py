"""One trial: a method learns one random trajectory, and predicts another one."""

from __future__ import annotations

import time
from typing import Any

import numpy as np

from safe_sysid.learning.gaussian_process.regression import TorqueProcess
from safe_sysid.studies.lip.methods import KNOW_ENERGIES, learn, training
from safe_sysid.studies.lip.panda import NOISE, SETTINGS, Panda
from safe_sysid.studies.lip.stand_in import run_measured
from safe_sysid.studies.lip.tracking import run_tracking

__all__ = ["cases", "run_trial"]

Result = dict[str, Any]
_TEST = 1000  # added to a seed: the trajectory that is predicted
#: DeLaN has ten times the samples, as in the paper.
_DENSE = {"DeLaN": 10}
#: Seeds of methods that take long; others have all.
_SEEDS = {"LSE": 10, "DeLaN": 3}
#: Samples of figure 4.
_FEWER = (50, 100, 200, 300, 400, 500)


def cases(options: dict[str, Any]) -> list[dict[str, Any]]:
    """What the trials of an experiment are, in their order: seeds outermost, so that early results compare methods.

    ``options``: of the experiment.
    """
    if options["kind"] == "tracking":
        keys = [("amplitude", options["amplitudes"]), ("method", options["methods"])]
    elif options["kind"] == "samples":
        keys = [("joints", options["joints"]), ("samples", _FEWER), ("method", options["methods"])]
    else:
        keys = [("joints", options["joints"]), ("method", options["methods"])]
    found: list[dict[str, Any]] = [{"seed": seed} for seed in range(options["seeds"])]
    for key, values in keys:
        found = [{**case, key: value} for case in found for value in values]
    return [case for case in found if case["seed"] < _SEEDS.get(case["method"], options["seeds"])]


def run_trial(seed: int, index: int, options: dict[str, Any]) -> Result:
    """Learn and predict.

    Args:
        seed: added to that of the case.
        index: of the case.
        options: of the experiment.
    """
    case = cases(options)[index]
    case["seed"] += seed
    if options["kind"] == "tracking":
        return {"index": index, **run_tracking(case, options)}
    if options["kind"] == "measured":
        return {"index": index, **run_measured(case, options)}
    arm, setting = Panda(case["joints"]), SETTINGS[options["setting"]]
    given = arm.data(setting, case["seed"], _DENSE.get(case["method"], 1))
    asked = arm.data(setting, case["seed"] + _TEST)
    x, noisy = given.x, given.noisy
    if "samples" in case:
        x, noisy = x[: case["samples"]], noisy[: case["samples"]]
    how = training(case["method"], options, case["seed"])
    begin = time.process_time()
    found = learn(case["method"], x, noisy, how, arm.regressor)
    seconds = time.process_time() - begin
    error = found.predict(asked.x) - asked.torque
    row = {
        **case,
        "setting": options["setting"],
        "epochs": how.epochs,
        "nmse": (np.mean(error**2, axis=0) / np.var(asked.torque, axis=0)).tolist(),
        "mse": float(np.sum(np.mean(error**2, axis=0))),
        "cpu_seconds": seconds,
    }
    result: Result = {"index": index, "rows": [row]}
    if isinstance(found, TorqueProcess):
        row["noise"] = found.noise.tolist()
    if isinstance(found, TorqueProcess) and case["method"] in KNOW_ENERGIES:
        between = arm.trajectory(setting, case["seed"], 2)[np.arange(1, 2 * len(x) - 2, 2)]
        noise = np.random.default_rng(20_000 + case["seed"]).normal(0.0, NOISE, between.q.shape)
        row["within_95"] = found.within_95(between, arm.torque(between) + noise).tolist()
        row["within_95_elsewhere"] = found.within_95(asked.x, asked.noisy).tolist()
        mean = found.energies(asked.x).mean
        shift = (mean[1] - asked.energies[1]).mean()  # the potential's origin is arbitrary
        off = mean - asked.energies - np.array([[0.0], [shift]])
        row["energy_nmse"] = (np.mean(off**2, axis=1) / np.var(asked.energies, axis=1)).tolist()
        if options.get("series"):
            result["series"] = {
                "learned": (mean - np.array([[0.0], [shift]])).tolist(), "true": asked.energies.tolist(),
            }  # fmt: skip
    return result
