"""``safe-sysid learn lip``: from logs to a model of torques, and how far it can be believed."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console

from safe_sysid import __version__
from safe_sysid.apps.arm.logs import ArmLogOptions, make_directory, output_directory, read_logs, refused, split_samples
from safe_sysid.apps.progress import steps
from safe_sysid.core.arrays import FloatArray, IntArray
from safe_sysid.errors import ConfigError
from safe_sysid.identification.arm.logs.checks import check_log
from safe_sysid.identification.arm.logs.preparation import ArmData, DataError
from safe_sysid.learning.gaussian_process.file import HandOver, LearnedModel, write_model
from safe_sysid.learning.gaussian_process.kernels import lip_kernel
from safe_sysid.learning.gaussian_process.motions import MotionSamples
from safe_sysid.learning.gaussian_process.regression import TorqueProcess, informative
from safe_sysid.learning.gaussian_process.training import TrainingOptions, train
from safe_sysid.learning.lip import hand_over
from safe_sysid.logs.log import Log
from safe_sysid.report.learning import learned_html
from safe_sysid.robot.loading import load_robot
from safe_sysid.whole_files import write_text

__all__ = ["LearnLipOptions", "learn_lip"]

#: Samples that are looked at for the informative ones; held-out samples that errors are of; torques of a process with
#: all samples, for comparison.
_CANDIDATES, _HELD_OUT, _WHOLE = 2000, 1000, 5000
_DISTINCT = 100_000  # samples that are searched for duplicates, evenly spaced
_FEWEST = 20  # samples
_EARLY = 0.05  # share of the epochs before the first report


@dataclass(frozen=True)
class LearnLipOptions(ArmLogOptions):
    """Options of the command; see ``safe-sysid learn lip --help``."""

    joints: str | None = None
    samples: int = 500
    epochs: int = TrainingOptions.epochs
    batch: int = 100
    finish: int = TrainingOptions.finish
    no_friction: bool = False
    residual: bool = False
    seed: int = 0
    starts: int = 2
    device: str | None = None


@dataclass(frozen=True)
class _TrainingSamples:
    x: MotionSamples
    torque: FloatArray
    stamps: FloatArray  # nan where a segment begins

    def __getitem__(self, index: IntArray) -> _TrainingSamples:
        return _TrainingSamples(self.x[index], self.torque[index], self.stamps[index])


def learn_lip(options: LearnLipOptions) -> int:
    """Read, check, train, choose samples, validate, write, tell. Exit status: 0 learned, 2 logs with errors.

    Raises:
        SafeSysIdError: something cannot be used; one line says what.
    """
    begin = time.perf_counter()
    robot, names, slides = _arm(options)
    out = output_directory(options, "learn lip")
    console = Console(width=None if sys.stdout.isatty() else 110, highlight=False)
    with steps("reading", options.quiet) as tell:
        logs = read_logs(options, names)
        findings = [finding.message for log in logs for finding in check_log(log.measurements, names)]
        findings += [text for log in logs for text in _constant(log, names)]
        if refused(options, "learn lip", findings, "learned"):
            return 2
        parts = split_samples(logs, names, options)
        given, held_out = (_samples(part, slides) for part in parts)
        samples, duplicates = _distinct(given[_even(len(given.x), _DISTINCT)])
        if len(samples.x) < _FEWEST:
            raise DataError(f"{len(samples.x)} samples to learn from: expected at least {_FEWEST}, of a longer log")
        make_directory(out)
        dropped = sum(effect.dropped for effect in parts[0].effects)
        common = {
            "schema": "safe_sysid/learned-lip/1", "version": __version__, "robot": robot,
            "logs": [str(path) for path in options.logs],
            "warnings": [*findings, *_warnings(duplicates, dropped)],
        }  # fmt: skip
        learning = _Learning(options, samples, held_out[_even(len(held_out.x), _HELD_OUT)], names, common)

        def told(first: float, share: float, text: str) -> Any:
            return lambda epoch, value: tell(f"{text}, likelihood {-value:.4g}", first + share * (epoch + 1))

        kernel = lip_kernel(len(names), friction=not options.no_friction, residual=options.residual)
        some = samples[_even(len(samples.x), options.samples)]
        early = max(1, round(_EARLY * options.epochs))
        share = 0.9 / (early + options.starts * options.epochs + options.finish)
        how = learning.training(early, 1, 0)
        process = train(kernel, some.x, some.torque, how, told(0.02, share, "first epochs"))
        learning.write(out, process, "after the first epochs", [])
        how = learning.training(options.epochs, options.starts, 0)
        process = train(kernel, some.x, some.torque, how, told(0.02 + share * early, share, "training"))
        process = learning.finished(process, told(0.92 - share * options.finish, share, "finish"))
        tell("choosing samples", 0.93)
        process, subsets = learning.chosen(process)
        result = learning.write(out, process, "learned", subsets, time.perf_counter() - begin)
    provenance = {"logs": ", ".join(common["logs"]), "version": __version__, "robot": robot}
    write_model(out / "model.npz", LearnedModel(process, names, provenance, learning.hand_over(process)))
    if options.json_file is not None:
        write_text(options.json_file, json.dumps(result, indent=1) + "\n")
    _tell(console, result, out, options.quiet)
    return 0


def _arm(options: LearnLipOptions) -> tuple[str, tuple[str, ...], tuple[bool, ...]]:
    """Name, joints, and which of them slide.

    Raises:
        ConfigError: ``--joints`` is malformed.
    """
    if options.joints is None:
        model = load_robot(options.robot)
        return model.name, tuple(model.joint_names), tuple(bool(s) for s in model.sliding)
    names, slides = [], []
    for word in options.joints.split(","):
        name, colon, kind = word.strip().partition(":")
        if not name or name in names or (colon and kind not in ("slides", "turns")):
            raise ConfigError("--joints", "joint", word, "different names, each with :slides if it does")
        names.append(name)
        slides.append(kind == "slides")
    return f"arm of {len(names)} joints", tuple(names), tuple(slides)


def _samples(data: ArmData, slides: Sequence[bool]) -> _TrainingSamples:
    stamps = data.stamps - data.stamps[0]
    stamps[data.segments[1:-1]] = np.nan
    return _TrainingSamples(
        MotionSamples(data.q, data.qd, data.qdd, slides, data.direction), np.asarray(data.torque), stamps
    )


def _distinct(samples: _TrainingSamples) -> tuple[_TrainingSamples, int]:
    """Without samples that are there twice: they would be believed twice."""
    rows = np.hstack([samples.x.inputs, samples.torque])
    kept = np.sort(np.unique(rows, axis=0, return_index=True)[1])
    return samples[kept], len(rows) - len(kept)


def _constant(log: Log, names: Sequence[str]) -> list[str]:
    """Joints whose torque never changes."""
    torques = [column[np.isfinite(column)] for column in log.measurements.effort.T]
    return [
        f"{name}: its torque is {torque[0]:.3g} throughout: expected one that was measured"
        for name, torque in zip(names, torques, strict=True)
        if len(torque) and np.ptp(torque) == 0.0
    ]


def _warnings(duplicates: int, dropped: int) -> list[str]:
    found = []
    if dropped:
        found.append(f"{dropped} samples of the logs are not used: not finite, or stamps that repeat or go back")
    if duplicates:
        found.append(f"{duplicates} samples are there more than once: each is used once")
    return found


def _even(count: int, most: int) -> IntArray:
    return np.unique(np.linspace(0, count - 1, min(most, count)).astype(np.int64))


class _Learning:
    """What all steps share."""

    def __init__(
        self,
        options: LearnLipOptions,
        samples: _TrainingSamples,
        held_out: _TrainingSamples,
        names: tuple[str, ...],
        common: dict[str, Any],
    ) -> None:
        self._options, self._samples, self._held_out = options, samples, held_out
        self._names, self._common = names, common
        self._finish: dict[str, Any] = {"iterations": 0, "kept": False}

    def training(self, epochs: int, starts: int, finish: int) -> TrainingOptions:
        o = self._options
        return TrainingOptions(epochs, o.batch, seed=o.seed, starts=starts, finish=finish, device=o.device)

    def finished(self, process: TorqueProcess, progress: Callable[[int, float], None]) -> TorqueProcess:
        """The process after L-BFGS, if held-out torques are likelier with it, and how likely they are with both.

        Noise and intervals are more honest after it where errors are noise. Where they go with the motion (ripple,
        flexible joints) it learns them by heart, which only other motions tell.
        """
        held, most = self._held_out, self._options.finish
        if not most:
            return process
        how = self.training(0, 1, most)
        then = train(process.kernel, process.x, process.torque, how, progress, start=process)
        before, after = (p.log_density(held.x, held.torque) for p in (process, then))
        self._finish = {"iterations": most, "kept": after > before, "log_density": [before, after]}
        return then if after > before else process

    def chosen(self, process: TorqueProcess) -> tuple[TorqueProcess, list[dict[str, Any]]]:
        """The process with the most informative samples, and errors with fewer, others and all."""
        candidates = self._samples[_even(len(self._samples.x), _CANDIDATES)]
        most, found = self._options.samples, []

        def of(which: str, index: IntArray) -> TorqueProcess:
            some = candidates[index]
            made = TorqueProcess(process.kernel, process.log, process.log_noise, some.x, some.torque, process.units)
            found.append({"which": which, "samples": len(index), "nmse": float(np.mean(self._nmse(made)))})
            return made

        if len(candidates.x) <= most:
            for share in (4, 2):
                of("evenly spaced", _even(len(candidates.x), max(1, len(candidates.x) // share)))
            return of("all", np.arange(len(candidates.x))), found
        order = informative(process.kernel, process.log, process.log_noise, candidates.x, most, process.units)
        for share in (4, 2):
            of("most informative", order[: max(1, most // share)])
        of("evenly spaced", _even(len(candidates.x), most))
        if len(candidates.x) * candidates.x.n <= _WHOLE:
            of("all", np.arange(len(candidates.x)))
        return of("most informative", np.sort(order)), found

    def _nmse(self, process: TorqueProcess) -> FloatArray:
        error = process.predict(self._held_out.x) - self._held_out.torque
        variance = np.var(self._held_out.torque, axis=0)
        return np.asarray(np.mean(error**2, axis=0) / np.where(variance > 0.0, variance, 1.0))

    def hand_over(self, process: TorqueProcess) -> HandOver:
        return hand_over(process, self._held_out.x, self._held_out.torque)

    def write(
        self, out: Path, process: TorqueProcess, stage: str, subsets: list[dict[str, Any]], seconds: float = 0.0
    ) -> dict[str, Any]:
        """Result and report of what is known now."""
        held = self._held_out
        predicted = process.predict(held.x)
        error = predicted - held.torque
        within = process.within_95(held.x, held.torque)
        few = _even(len(held.x), 50)
        positive = [np.linalg.eigvalsh(process.mass_matrix(held.x.q[k]))[0] > 0.0 for k in few]
        joints: dict[str, dict[str, float]] = {}
        for j, (name, nmse) in enumerate(zip(self._names, self._nmse(process), strict=True)):
            joints[name] = {
                "nmse": float(nmse),
                "rms": float(np.sqrt(np.mean(error[:, j] ** 2))),
                "torque_deviation": float(np.std(held.torque[:, j])),
                "noise": float(process.noise[j]),
                "within_95": float(within[j]),
            }
        if not self._options.no_friction:
            mean, deviation = process.friction()
            for name, m, d in zip(self._names, mean, deviation, strict=True):
                joints[name] |= {
                    "viscous": float(m[0]), "viscous_deviation": float(d[0]),
                    "coulomb": float(m[1]), "coulomb_deviation": float(d[1]),
                }  # fmt: skip
        worse = [f"{name}: held-out torques are predicted no better than by their mean" for name, j in joints.items()
                 if j["nmse"] >= 1.0]  # fmt: skip
        result = self._common | {
            "warnings": [*self._common["warnings"], *worse], "stage": stage,
            "method": f"{self._options.epochs} epochs{_finish_text(self._finish)}", "finish": self._finish,
            "samples": len(process.x), "samples_of": len(self._samples.x), "joints": joints, "subsets": subsets,
            "mass_positive": float(np.mean(positive)), "jitter": process.jitter, "seconds": seconds,
        }  # fmt: skip
        write_text(out / "result.json", json.dumps(result, indent=1) + "\n")
        energies = process.energies(held.x).mean
        write_text(out / "report.html", learned_html(result, held.stamps, held.torque, predicted, energies))
        return result


def _finish_text(finish: dict[str, Any]) -> str:
    iterations = finish["iterations"]
    if not iterations:
        return ""
    return f", {iterations} iterations" + ("" if finish["kept"] else " not kept: held-out torques were less likely")


def _tell(console: Console, result: dict[str, Any], out: Path, quiet: bool) -> None:
    if not quiet:
        console.print("held-out torque:                      nMSE   error RMS   in 95 %")
        for name, j in result["joints"].items():
            console.print(
                f"  {name:<32} {100 * j['nmse']:>7.3g} % {j['rms']:>9.3g}   {100 * j['within_95']:>5.0f} %",
                soft_wrap=True, markup=False,
            )  # fmt: skip
        for text in result["warnings"]:
            console.print(f"  warning: {text}", soft_wrap=True, markup=False)
    mean = np.mean([j["nmse"] for j in result["joints"].values()])
    console.print(
        f"{result['samples']} of {result['samples_of']} samples; mean nMSE of held-out torques {100 * mean:.3g} %; "
        f"{out / 'model.npz'}, {out / 'report.html'}",
        soft_wrap=True, markup=False,
    )  # fmt: skip
