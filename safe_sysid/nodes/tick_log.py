"""What the controller did at each tick, and how long it took: for ``controller.npz`` and for diagnostics."""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from safe_sysid.control.controller import Controller, ControllerOutput, ControllerState
from safe_sysid.nodes.recorder import Recorder
from safe_sysid.nodes.time_base import Histogram

__all__ = ["TickLog"]

_STATES = tuple(ControllerState)


class TickLog:
    """Period from arrival to arrival, computing time from arrival to command, latency from stamp to command."""

    def __init__(self, core: Controller, lockstep: bool) -> None:
        """``lockstep``: stamps are not wall time, there is no latency to speak of."""
        self._core, self._lockstep = core, lockstep
        self.period, self.compute, self.latency = Histogram(), Histogram(), Histogram()
        self.ticks, self.late, self.last_arrival = 0, 0, 0
        self._times = np.zeros(3)  # of this tick, s
        n = core.model.n
        self._rows = Recorder(
            {"stamp": ((), np.int64), "state": ((), np.int8)}
            | dict.fromkeys(("energy", "uncertainty"), ((), np.float64))
            | dict.fromkeys(("q_d", "qd_d", "qdd_d", "e", "de", "torque"), ((n,), np.float64))
            | dict.fromkeys(("compute_us", "period_us", "latency_us"), ((), np.float32))
        )

    def command_sent(self, arrival: int, stamp_ns: int) -> None:
        """Right after the command has gone; ``arrival`` (ns, performance counter) is the measurement's."""
        compute = 1e-9 * (time.perf_counter_ns() - arrival)
        latency = np.nan if self._lockstep else 1e-9 * (time.time_ns() - stamp_ns)
        period = 1e-9 * (arrival - self.last_arrival) if self.last_arrival else 0.0
        self._times[:] = compute, period, latency
        self.last_arrival, self.ticks = arrival, self.ticks + 1
        self.compute.add(compute)
        if period:
            self.period.add(period)
        if not self._lockstep:
            self.latency.add(latency)
            self.late += latency > self._core.gains.assumptions.delay_max

    def add(self, stamp_ns: int, out: ControllerOutput) -> None:
        """One row."""
        compute, period, latency = 1e6 * self._times
        error, error_rate, _ = self._core.tracking_error
        desired = out.reference
        self._rows.append(
            stamp=stamp_ns, state=_STATES.index(self._core.state), energy=out.energy, torque=out.torque,
            uncertainty=self._core.uncertainty, q_d=desired[0], qd_d=desired[1], qdd_d=desired[2],
            e=error, de=error_rate, compute_us=compute, period_us=period, latency_us=latency,
        )  # fmt: skip

    def values(self) -> dict[str, object]:
        """For diagnostics."""
        values: dict[str, object] = {"ticks": self.ticks, "period": self.period, "compute": self.compute}
        if not self._lockstep:
            values |= {"latency": self.latency, "commands later than delay_max": self.late}
        return values

    def save(self, path: Path, refusals: Mapping[str, int]) -> None:
        """Write ``controller.npz``."""
        core, g = self._core, self._core.gains
        self._rows.save(
            path,
            states=np.array([state.value for state in _STATES]),
            joint_names=np.array(core.model.joint_names),
            V_max=g.V_max, e_bound=g.e_bound, de_bound=g.de_bound, r_bound=g.r_bound,
            hold_max=g.assumptions.hold_max, delay_max=g.assumptions.delay_max,
            counts=np.array([f"{key}: {count}" for key, count in sorted(core.counts.items())], dtype=str),
            refused=np.array([f"{key}: {count}" for key, count in sorted(refusals.items())], dtype=str),
        )  # fmt: skip
