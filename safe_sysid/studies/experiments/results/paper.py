"""Figures printed in the PSO paper: tables I, II and III, and where the others are.

Tables IV and V are beside the code that reproduces them: :data:`~.correlation.TABLE_FOUR`
and :data:`~safe_sysid.studies.experiments.results.tables.TABLE_FIVE`.
"""

from __future__ import annotations

__all__ = ["EXPERIMENTS", "METHOD_NAMES", "NOMINAL_TABLE_ONE", "PAYLOADS", "TABLE_THREE", "TABLE_TWO"]

EXPERIMENTS = ("a", "b", "c")
#: The five dumbbells, in the order in which they are stacked.
PAYLOADS = ("4lb", "5lb", "6lb", "7lb", "8lb")

#: Table I, first column, in the order of :data:`~safe_sysid.core.layout.PAYLOAD_NAMES`.
NOMINAL_TABLE_ONE = (3.2, 0.0, 0.0, -0.5, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0)

#: Table II: method to controller, robot model, its uncertainty and exciting trajectories.
TABLE_TWO = {
    "ours": ("ARMOUR robust", "from Algorithm 1", "from Algorithm 1", "Algorithm 2"),
    "wrong": ("ARMOUR robust", "no payload", "0 %", "N/A"),
    "conservative": ("ARMOUR robust", "nominal of Table I", "interval of Table I", "N/A"),
    "random": ("ARMOUR robust", "from Algorithm 1", "from Algorithm 1", "random"),
    "adap-1": ("adaptive (Slotine-Li)", "by the controller", "N/A", "N/A"),
    "adap-1-excit": ("adaptive (Slotine-Li)", "by the controller", "N/A", "Algorithm 2"),
    "adap-2": ("adaptive (Abdelwahab)", "by the controller", "N/A", "N/A"),
    "adap-2-excit": ("adaptive (Abdelwahab)", "by the controller", "N/A", "Algorithm 2"),
    "grav-pid": ("gravity compensated PID", "no payload", "N/A", "N/A"),
    "grav-pid-ours": ("gravity compensated PID", "from Algorithm 1", "N/A", "Algorithm 2"),
    "grav-pid-excit": ("gravity compensated PID", "from Algorithm 1", "N/A", "Fourier series"),
}
METHOD_NAMES = tuple(TABLE_TWO)

#: Table III: method to its cells for experiments (a), (b) and (c).
TABLE_THREE = {
    "ours": ("success", "success", "success"),
    "wrong": ("fail at 8lb", "fail at 8lb", "collide"),
    "conservative": ("fail at 8lb", "fail at 8lb", "collide"),
    "random": ("success", "fail at 8lb", "collide"),
    "adap-1": ("success", "fail at 8lb", "collide"),
    "adap-1-excit": ("success", "success", "collide"),
    "adap-2": ("fail at 8lb", "fail at 4lb", "collide"),
    "adap-2-excit": ("fail at 8lb", "fail at 4lb", "collide"),
    "grav-pid": ("success", "fail at 6lb", "collide"),
    "grav-pid-ours": ("success", "success", "collide"),
    "grav-pid-excit": ("fail at 4lb", "fail at 4lb", "collide"),
}
