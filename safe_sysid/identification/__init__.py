"""Log to momentum equations to proved bounds and a nominal estimate of what the hand holds."""

from safe_sysid.identification.equations.measurement_errors import MeasurementErrors
from safe_sysid.identification.equations.measurements import REJECT_REASONS, Measurements
from safe_sysid.identification.equations.momentum import MomentumRows, momentum_rows
from safe_sysid.identification.equations.row_errors import ERROR_CAUSES
from safe_sysid.identification.identifier import Identifier, UpdateResult, UpdateStatus

__all__ = [
    "ERROR_CAUSES",
    "REJECT_REASONS",
    "Identifier",
    "MeasurementErrors",
    "Measurements",
    "MomentumRows",
    "UpdateResult",
    "UpdateStatus",
    "momentum_rows",
]
