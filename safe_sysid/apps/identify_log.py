"""Identification of one log by any method: what the command line and ``import safe_sysid`` share."""

from __future__ import annotations

from collections.abc import Callable

from safe_sysid.identification.equations.measurement_errors import MeasurementErrors
from safe_sysid.identification.tare.tare import Tare
from safe_sysid.logs.baselines import run_baseline
from safe_sysid.logs.log import Log
from safe_sysid.logs.online.certify import CertificateWriter
from safe_sysid.logs.run import LogRun, run_log, with_best_fit
from safe_sysid.robot.model import RobotModel

__all__ = ["PROVED", "identify_log"]

#: Methods whose intervals are proved; the others are there to compare with.
PROVED = ("lp", "sdp")


def identify_log(
    log: Log,
    model: RobotModel,
    errors: MeasurementErrors,
    method: str,
    update: float | None = None,
    progress: Callable[[float], None] | None = None,
    certificates: CertificateWriter | None = None,
    tare: Tare | None = None,
) -> LogRun:
    """Intervals and best fit of a proved method, or the estimate of another.

    Args:
        log: of the arm's joints, in the arm's order.
        update: s of data between updates; None: at most 40 of them.
        progress: gets the share that is done.
        certificates: written for each update of a proved method; None: none.
        tare: of the empty hand.

    Raises:
        ParameterError: the log's joints are not the arm's.
    """
    if method not in PROVED:
        return run_baseline(log, model, errors, method)
    known = {} if tare is None else tare.options()
    done = run_log(log, model, update, progress, certificates, method=method, **known)
    return with_best_fit(done, log, model, known.get("payload_constraints"))
