"""Progress of a run: a live panel on a terminal, plain lines elsewhere."""

from __future__ import annotations

import os
import sys
import time
from fractions import Fraction
from types import TracebackType

import numpy as np
from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from safe_sysid.core.layout import PAYLOAD_NAMES, PAYLOAD_UNITS
from safe_sysid.decimals import bracketed, interval_text, share_at_most, width_share
from safe_sysid.demo.state import BoxSeen, NodeStatus, RunState
from safe_sysid.robot.parameters import ParameterBox

__all__ = ["Progress", "make_console"]

_BAR = 36
_ERROR = 2
_PATIENCE = 1.5  # s
_SILENT = NodeStatus(0, "", {})


def make_console() -> Console:
    """For stdout; plain where nobody looks or nothing can be drawn."""
    plain = not sys.stdout.isatty() or os.environ.get("TERM", "dumb") == "dumb" or bool(os.environ.get("CI"))
    # A table needs room wherever it is written to.
    return Console(width=132 if plain else None, force_terminal=False if plain else None, highlight=False)


class Progress:
    """Tells what happens, once each."""

    def __init__(self, console: Console, prior: ParameterBox, quiet: bool = False) -> None:
        """``prior`` is what intervals are compared with."""
        self._console, self._prior, self._quiet = console, prior, quiet
        self._began = time.monotonic()
        self._live: Live | None = None
        self._state: RunState | None = None
        self._boxes, self._plans, self._phase, self._patience = 0, 0, "", 0.0
        self._warned: dict[str, str] = {}

    def say(self, text: str) -> None:
        """One line, with the wall time since the start."""
        if not self._quiet:
            self._console.print(Text(f"[{time.monotonic() - self._began:6.1f} s] {text}"), soft_wrap=True)

    def __enter__(self) -> Progress:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Leave the terminal as it was."""
        if self._live is not None:
            self._live.stop()
            self._live = None

    def update(self, state: RunState) -> None:
        """Show what is new."""
        self._state = state
        if self._quiet:
            return
        if self._live is None and self._console.is_terminal:
            self._live = Live(console=self._console, refresh_per_second=4, transient=True, get_renderable=self._panel)
            self._live.start()
        self._tell_plans(state)
        for box in state.boxes[self._boxes :]:
            self.say(f"bounds {box.identity} at {box.time:.2f} s: {self._shares(box)}")
            self._boxes += 1
        if state.nodes.get("controller") and state.phase != self._phase:
            self._phase = state.phase
            self.say(f"arm is {self._phase} at {state.time:.2f} s: {state.value('controller', 'reason')}")
        if state.time > 0.0:
            self._tell_troubles(state)

    def _tell_plans(self, state: RunState) -> None:
        """Plans come by their own topic; what the certificate says follows on another, a moment later."""
        for plan in state.plans[self._plans :]:
            number, told = self._plans + 1, state.nodes.get("planner", _SILENT).text
            sequence = sum(earlier.end is not None for earlier in state.plans[: self._plans])
            certificate = state.value("planner", f"plan {sequence}")
            there = certificate if plan.end is not None else told and not told.startswith("planning")
            if not there:
                self._patience = self._patience or time.monotonic() + _PATIENCE
                if time.monotonic() < self._patience:
                    return
            if plan.end is None:
                self.say(f"no trajectory from {plan.start:.2f} s on, the arm brakes as certified, or rests: {told}")
            else:
                margins = certificate.partition("]: ")[2] or told
                what = f"plan {sequence + 1} of {state.plans_wanted}"
                if certificate.startswith("task"):
                    what = "step to the goal"
                self.say(
                    f"{what}, {plan.start:.2f} to {plan.end:.2f} s, certified for "
                    f"box {plan.box} with margins: {margins}"
                )
            self._plans, self._patience = number, 0.0

    def _tell_troubles(self, state: RunState) -> None:
        """Warnings, each wording once."""
        for name, status in sorted(state.nodes.items()):
            counts = "; ".join(f"{key} {value}" for key, value in status.values.items() if key.startswith("count:"))
            text = status.text if status.level >= _ERROR else status.values.get("last refusal") or counts
            if status.level > 0 and text and self._warned.get(name) != text:
                self._warned[name] = text
                self.say(f"{name} warns: {text.splitlines()[0]}")

    def _shares(self, box: BoxSeen) -> str:
        """Widths in percent of the prior's."""
        share = _width_shares(box, self._prior)
        mass = f"m in {bracketed(box.lower[0], box.upper[0], 3)} kg"
        parts = " ".join(f"{name} {share_at_most(s, places=0)}" for name, s in zip(PAYLOAD_NAMES, share, strict=True))
        return f"{mass}; widths of prior: {parts}"

    def _panel(self) -> Group:
        state = self._state
        if state is None:
            return Group(Text("starting"))
        head = Text.assemble(
            (f" {state.phase:<9}", "bold cyan"),
            f" t = {state.time:6.2f} s   plan {len(state.trajectories)} of {state.plans_wanted}   "
            f"bounds {state.boxes[-1].identity if state.boxes else 'prior'}",
        )
        lines = [head]
        for name in ("planner", "identifier"):
            status = state.nodes.get(name)
            if status is not None:
                lines.append(Text(f" {name}: {status.text}", style="dim", overflow="ellipsis", no_wrap=True))
        table = Table(box=None, padding=(0, 1), header_style="bold")
        for title in ("parameter", "lower", "interval in the prior", "upper", "width"):
            table.add_column(title, justify="right" if title in ("lower", "width") else "left")
        box = state.boxes[-1] if state.boxes else _as_seen(self._prior)
        share = _width_shares(box, self._prior)
        for i, (name, unit) in enumerate(zip(PAYLOAD_NAMES, PAYLOAD_UNITS, strict=True)):
            lower, upper = interval_text(box.lower[i], box.upper[i], 3)
            table.add_row(
                f"{name} [{unit}]".replace("[", r"\["),
                lower,
                _bar(box, self._prior, i),
                upper,
                share_at_most(share[i], places=1),
            )
        return Group(*lines, table)


def _as_seen(prior: ParameterBox) -> BoxSeen:
    return BoxSeen(0.0, prior.identity, None, prior.payload_lower, prior.mid[prior.layout.payload], prior.payload_upper)


def _width_shares(box: BoxSeen, prior: ParameterBox) -> list[Fraction]:
    ends = zip(box.lower, box.upper, prior.payload_lower, prior.payload_upper, strict=True)
    return [width_share(*four) for four in ends]


def _bar(box: BoxSeen, prior: ParameterBox, i: int) -> Text:
    """The interval drawn inside the prior, with the nominal as a mark."""
    low, width = prior.payload_lower[i], prior.payload_upper[i] - prior.payload_lower[i]

    def cell(value: float) -> int:
        return int(np.clip(_BAR * (value - low) / width, 0, _BAR - 1)) if width > 0.0 else 0

    first, last, middle = cell(box.lower[i]), cell(box.upper[i]), cell(box.nominal[i])
    text = Text("·" * _BAR, style="dim")
    inside = "".join("┃" if k == middle else "━" for k in range(first, last + 1))
    return Text.assemble(text[:first], (inside, "cyan"), text[last + 1 :])
