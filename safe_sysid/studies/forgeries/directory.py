"""Run directories of made-up arms, as ``identify`` leaves them, and what ``verify`` answers, in this process."""

from __future__ import annotations

import io
import tempfile
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from rich.console import Console

from safe_sysid.apps.verify.verification import Verification, VerifyStatus
from safe_sysid.core.arrays import FloatArray
from safe_sysid.errors import SafeSysIdError
from safe_sysid.identification.equations.measurement_errors import MeasurementErrors
from safe_sysid.logs.checks.checks import check_log
from safe_sysid.logs.log import Log
from safe_sysid.logs.online.certify import CertificateWriter
from safe_sysid.logs.run import LogRun, run_log
from safe_sysid.report.identification.output import assemble_result, write_published
from safe_sysid.robot.model import RobotModel
from safe_sysid.studies.campaign.cases.case import IdentificationCase, build_case
from safe_sysid.studies.campaign.cases.noise import draw_signs

__all__ = ["SMALL", "ForgedRun", "answer_to", "honest_run", "identify_and_write", "log_of", "trusting"]

#: Small enough to be checked in some ten milliseconds; of these everything else is drawn.
SMALL: dict[str, Any] = {
    "joints": 3,
    "samples": 160,
    "rate": 200.0,
    "jitter": 0.0,
    "lost": False,
    "simulated": False,
    "tare": False,
    "source": "motor",
    "effort": "held",
    "level": "usual",
    "prismatic": 0.0,
    "motion": "wave",
    "noise": "random_sign",
}
_ATTEMPTS = 40


@dataclass(frozen=True, eq=False)
class ForgedRun:
    """A run that passes."""

    folder: Path  #: as ``identify`` leaves it, without report
    model: RobotModel
    log: Log
    verification: Verification
    #: (10,) lower and upper ends that its last certificate proves, which may be better than what it publishes
    proved: tuple[FloatArray, FloatArray]
    keep: Any  #: whose end is the folder's


def trusting(model: RobotModel) -> Verification:
    """What ``verify`` does with a trusted robot, and nothing else. ``model``: trusted."""
    return Verification(Console(file=io.StringIO(), width=10_000), model, quiet=True)


def answer_to(folder: Path, verification: Verification) -> tuple[VerifyStatus | None, str]:
    """What ``verify`` says of a directory: None and why, where it cannot be checked.

    ``verification``: with the trusted robot.
    """
    text = io.StringIO()
    verification.console = Console(file=text, width=10_000)
    try:
        return verification.check([folder]), text.getvalue()
    except SafeSysIdError as error:
        return None, str(error)


def log_of(case: IdentificationCase) -> tuple[RobotModel, Log]:
    """The arm as declared, and what its sensors said."""
    torque = case.record.torque(0.0 * case.record.q, case.settings.source == "link")
    signs = draw_signs(case.rng(9), case.settings.noise, case.record, torque)
    model = case.model(None)
    return model, Log(model.joint_names, case.log(signs)[0])


def identify_and_write(folder: Path, model: RobotModel, log: Log, updates: int) -> LogRun:
    """Identify, and leave what ``identify`` leaves for programs. ``updates``: into how many the log is divided."""
    errors = MeasurementErrors.from_model(model)
    method = model.settings.identification.method
    writer = CertificateWriter(folder, model, errors, method)
    stamps = log.measurements.stamps
    update_s = float(stamps[-1] - stamps[0]) / updates * (1.0 + 1e-6)
    run = run_log(log, model, update_s, certificates=writer)
    result = assemble_result(
        model,
        log,
        run,
        [],
        method,
        path="log.npz",
        tare=None,
        guaranteed=True,
        filtered_hz=None,
        certificates=writer,
        seconds={"identify": run.seconds},
    )
    write_published(folder, result, model, log, run)
    return run


@lru_cache(maxsize=4)
def honest_run(seed: int, number: int) -> ForgedRun:
    """A run of a made-up arm that passes: the first of some that are drawn.

    Raises SafeSysIdError: an honest run is refused, or none of those that were drawn moves its arm enough.
    """
    for attempt in range(_ATTEMPTS):
        model, log = log_of(build_case(seed, _ATTEMPTS * number + attempt, {"fixed": SMALL}))
        if any(f.level == "error" for f in check_log(log, model, MeasurementErrors.from_model(model))):
            continue
        keep = tempfile.TemporaryDirectory(prefix="safe_sysid_forgeries_")
        folder = Path(keep.name)
        run = identify_and_write(folder, model, log, 2)
        if not any(record.status == "OK" for record in run.records) or run.empty:
            continue
        verification = trusting(model)
        answer, text = answer_to(folder, verification)
        if answer is not VerifyStatus.PASS:
            raise SafeSysIdError(f"arm {number}: an honest run is refused: {text}")
        last = list(verification.bounds.values())[-1]
        return ForgedRun(folder, model, log, verification, (last.lower, last.upper), keep)
    raise SafeSysIdError(f"arm {number}: none of {_ATTEMPTS} runs can be identified: expected one")
