"""Tick log: what the controller did at each tick and how long it took, for ``controller.npz`` and diagnostics."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from safe_sysid.control.controller import Controller, ControllerOutput, ControllerState
from safe_sysid.control.following import PlanFollower
from safe_sysid.control.trajectory import TrajectoryController, TrajectoryOutput
from safe_sysid.nodes.common.realtime.histograms import Histogram
from safe_sysid.nodes.common.realtime.row_recorder import Recorder

__all__ = ["TickLog", "TorqueTickLog", "TubeTickLog"]

_STATES = tuple(ControllerState)
#: Longer than so many periods: one was missed.
_MISSED = 1.5
_INDEX = {state: float(i) for i, state in enumerate(_STATES)}


class TickLog:
    """Period from arrival to arrival, computing time from arrival to command, latency from stamp to command."""

    def __init__(
        self,
        core: PlanFollower,
        lockstep: bool,
        now_ns: Callable[[], int] | None,
        most: int | None,
        vectors: tuple[str, ...],
        scalars: tuple[str, ...],
    ) -> None:
        """Nothing has happened yet.

        Args:
            lockstep: simulated time waits for answers, there is no latency to speak of.
            now_ns: the clock of stamps, ns; None: the wall clock.
            most: rows that are kept, the oldest go; None: all.
            vectors, scalars: columns of n numbers and of one, in the order in which a row has them; after these come
                the times of the tick, us.
        """
        self._follower, self._lockstep, self._now_ns = core, lockstep, now_ns or time.time_ns
        self.period, self.compute, self.latency = Histogram(), Histogram(), Histogram()
        self.ticks, self.missed, self.last_arrival = 0, 0, 0
        self._too_long = _MISSED * core.model.settings.timing.period_s
        self._scalars = np.zeros(len(scalars) + 3)
        columns = dict.fromkeys(vectors, core.model.n) | dict.fromkeys(scalars, 1)
        self._rows = Recorder(columns | dict.fromkeys(("compute_us", "period_us", "latency_us"), 1), most)

    def command_sent(self, arrival: int, stamp_ns: int, commanding: bool) -> None:
        """Right after the command has gone.

        ``commanding``: whether one was given; if not, and control goes on, the last one stays in force.
        """
        compute = 1e-9 * (time.perf_counter_ns() - arrival)
        latency = np.nan if self._lockstep else 1e-9 * (self._now_ns() - stamp_ns)
        period = 1e-9 * (arrival - self.last_arrival) if self.last_arrival else 0.0
        self._scalars[-3:] = 1e6 * compute, 1e6 * period, 1e6 * latency
        self.last_arrival, self.ticks = arrival, self.ticks + 1
        self.compute.add(compute)
        if period:
            self.period.add(period)
            self.missed += period > self._too_long
        if not self._lockstep:
            self.latency.add(latency)
            self._judge_latency(latency, stamp_ns, commanding)

    def _judge_latency(self, latency: float, stamp_ns: int, commanding: bool) -> None:
        """Real time: whether the command was late for the proof."""

    def add(self, stamp_ns: int, out: Any) -> None:
        """One row; the answered measurement's stamp and what became of it."""
        raise NotImplementedError

    def values(self) -> dict[str, object]:
        """For diagnostics."""
        values: dict[str, object] = {"ticks": self.ticks, "period": self.period, "compute": self.compute}
        if not self._lockstep:
            values["latency"] = self.latency
            values[f"periods longer than {1e3 * self._too_long:g} ms"] = self.missed
        return values

    def save(self, path: Path, refusals: Mapping[str, int], scheduling: str) -> None:
        """Write ``controller.npz``; ``scheduling`` is what the system granted."""
        core = self._follower
        self._rows.save(
            path,
            state=self._rows.columns()["state"].astype(np.int8),
            states=np.array([state.value for state in _STATES]),
            joint_names=np.array(core.model.joint_names),
            counts=np.array(_texts(core.counts), dtype=str),
            refused=np.array(_texts(refusals), dtype=str),
            forgotten=self._rows.forgotten,
            scheduling=np.array(scheduling), histogram_bin_us=1e6 * Histogram.BIN,
            period_histogram=self.period.counts, latency_histogram=self.latency.counts,
            compute_histogram=self.compute.counts,
            **self._more(),
        )  # fmt: skip

    def _more(self) -> dict[str, Any]:
        """What else is written: the bounds that are claimed, and since when they are not."""
        raise NotImplementedError


class TubeTickLog(TickLog):
    """Of an arm that follows trajectories by itself."""

    def __init__(
        self,
        core: TrajectoryController,
        lockstep: bool,
        now_ns: Callable[[], int] | None = None,
        most: int | None = None,
    ) -> None:
        """Nothing has happened yet; see :class:`TickLog`."""
        super().__init__(core, lockstep, now_ns, most, ("q_d", "qd_d", "qdd_d", "e", "de"), ("state",))
        self._core = core

    def add(self, stamp_ns: int, out: TrajectoryOutput) -> None:
        """One row, while the arm is under control."""
        if out.commanding:
            self._scalars[0] = _INDEX[self._core.state]
            self._rows.append(stamp_ns, (*out.reference[:3], *self._core.tracking_error, self._scalars))

    def _more(self) -> dict[str, Any]:
        tube = self._core.tube
        bounds = {name: getattr(tube, name) for name in ("e_bound", "de_bound", "dde_bound")}
        return {**bounds, "claim_lost": np.array(self._core.claim_lost, dtype=str)}


class TorqueTickLog(TickLog):
    """Of the torque law: energy, S, and late commands judged as the theorem covers them."""

    def __init__(
        self, core: Controller, lockstep: bool, now_ns: Callable[[], int] | None = None, most: int | None = None
    ) -> None:
        """Nothing has happened yet; see :class:`TickLog`."""
        # By how much the command is older than its stamp is `mixed_us`.
        scalars = ("state", "energy", "uncertainty", "mixed_us", "tube")
        super().__init__(core, lockstep, now_ns, most, ("q_d", "qd_d", "qdd_d", "e", "de", "torque"), scalars)
        self._core = core
        a = core.gains.assumptions
        self._r_error = np.broadcast_to(a.velocity_error + core.gains.K_r * a.position_error, (core.model.n,))
        self._r_before, self._stamp_before = np.full(core.model.n, np.inf), 0
        self._start = core.bound_status.starts
        #: S of the command before the last and of the last; inf counts as the assumed one.
        self._uncertainty, self._proved_before = (np.inf, np.inf), False
        #: Age that the command before the last one reached, s, and by how much the last one is older than its stamp.
        self._oldest, self._mixed_for = 0.0, 0.0

    def _judge_latency(self, latency: float, stamp_ns: int, commanding: bool) -> None:
        if not self._core.state.commands or self._start != self._core.bound_status.starts:
            self._stamp_before, self._start = (0, self._core.bound_status.starts)  # nothing was in force before
        if self._core.state.commands and commanding:
            if self._stamp_before:
                self._judge(latency, 1e-9 * (stamp_ns - self._stamp_before) + latency)
            else:
                self._uncertainty, self._oldest = (np.inf, np.inf), 0.0

    def _judge(self, latency: float, age: float) -> None:
        """Late: what was in force had become too old. The theorem covers that where the arm was quiet before."""
        gains = self._core.claimed
        # A command that the rate cut is a mix with older ones.
        before, self._oldest = self._oldest, age + self._mixed_for
        if latency <= gains.assumptions.delay_max and age <= gains.assumptions.hold_max:
            return
        oldest = max(before, self._oldest if self._mixed_for else 0.0)
        oldest = oldest if oldest > gains.assumptions.hold_max else 0.0
        longest = gains.longest_covered_gap(self._r_before, max(self._uncertainty), oldest)
        covered = bool(self._proved_before and self._core.bound_status.holds and age <= longest)
        self._core.note_late(
            covered,
            f"a command came {1e3 * latency:.3g} ms after its measurement, the one before was {1e3 * age:.3g} ms old",
            age,
        )

    def add(self, stamp_ns: int, out: ControllerOutput) -> None:
        """One row; the answered measurement's stamp and what became of it."""
        if out.torque is None:
            return
        core = self._core
        self._mixed_for, mixed = core.followed.older, core.followed.mixed
        self._uncertainty, self._proved_before = (self._uncertainty[1], mixed), core.bound_status.holds
        known = mixed if np.isfinite(mixed) else np.nan
        self._scalars[:5] = _INDEX[core.state], out.energy, known, 1e6 * self._mixed_for, core.tube
        error, error_rate, r = core.tracking_error
        self._r_before, self._stamp_before = np.abs(r) + self._r_error, stamp_ns
        desired = out.reference
        self._rows.append(stamp_ns, (desired[0], desired[1], desired[2], error, error_rate, out.torque, self._scalars))

    def values(self) -> dict[str, object]:
        """For diagnostics."""
        status = self._core.bound_status
        late: dict[str, object] = {"commands late, covered": status.covered, "commands late, not covered": status.late}
        return super().values() | late

    def _more(self) -> dict[str, Any]:
        core, g = self._core, self._core.gains
        return {
            "V_max": g.V_max, "e_bound": g.e_bound, "de_bound": g.de_bound, "r_bound": g.r_bound,
            "hold_max": g.assumptions.hold_max, "delay_max": g.assumptions.delay_max,
            "feed_forward": "" if core.added is None else core.added.name,
            "feed_forward_ticks": np.array([] if core.added is None else _texts(core.added.ticks), dtype=str),
            "claim_lost": np.array(core.bound_status.losses, dtype=str),
        }  # fmt: skip


def _texts(counts: Mapping[str, int]) -> list[str]:
    return [f"{key}: {count}" for key, count in sorted(counts.items())]
