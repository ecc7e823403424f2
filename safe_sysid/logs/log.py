"""A recorded log: joint names and measurements, in the order of arrival."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from safe_sysid.errors import SafeSysIdError
from safe_sysid.identification.equations.measurements import Measurements

__all__ = ["Log", "LogError"]

_WORDS = {"q": "position", "qd": "velocity", "effort": "effort"}


class LogError(SafeSysIdError):
    """A log cannot be used as it is; the message names file, field, value and expectation."""


@dataclass(frozen=True, eq=False)
class Log:
    """Joint states of one recording."""

    joint_names: tuple[str, ...]  #: n names, in the order of the columns of ``measurements``
    measurements: Measurements  #: (N, n) samples in order of arrival, rejected ones included
    origin_ns: int = 0  #: what stamp zero is on the recording's own clock, ns; 0 if that is not known
    #: for each quantity ("stamps", "q", "qd", "effort") where it came from, for messages; may be empty
    columns: Mapping[str, Sequence[str]] = field(default_factory=dict)
    #: how far the file's numbers for the stamps may be from what was meant, s, where that is more than the rounding of
    #: ``measurements.stamps`` itself
    stamp_rounding: float = 0.0

    def __post_init__(self) -> None:
        """Validate.

        Raises:
            LogError: names are missing, double or not as many as joints.
        """
        names = tuple(str(name) for name in self.joint_names)
        object.__setattr__(self, "joint_names", names)
        if not names or any(not name for name in names) or len(set(names)) != len(names):
            raise LogError(f"joint_names = {list(names)}: expected different, non-empty names")
        if self.measurements.n != len(names):
            raise LogError(f"measurements of {self.measurements.n} joints: expected {len(names)}, one per name")

    def __len__(self) -> int:
        return len(self.measurements)

    def select(self, joint_names: Sequence[str]) -> Log:
        """The same log with only these joints, in this order. ``joint_names``: all of them must be in the log.

        Raises:
            LogError: a joint is not in the log.
        """
        wanted = tuple(joint_names)
        if wanted == self.joint_names:
            return self
        missing = [name for name in wanted if name not in self.joint_names]
        if missing:
            raise LogError(
                f"{missing[0]!r} is not in the log: expected all of {', '.join(wanted)}; "
                f"the log has {', '.join(self.joint_names)}"
            )
        index = np.array([self.joint_names.index(name) for name in wanted])
        m = self.measurements
        columns = {
            key: [names[i] for i in index] if len(names) == len(self.joint_names) and key != "stamps" else names
            for key, names in self.columns.items()
        }
        return Log(
            wanted,
            Measurements(m.stamps, m.q[:, index], m.qd[:, index], m.effort[:, index]),
            self.origin_ns,
            columns,
            self.stamp_rounding,
        )

    def column(self, quantity: str, joint: int) -> str:
        """How the file calls a joint's column, or ``joint.quantity`` where that is not known."""
        names = self.columns.get(quantity, ())
        if joint < len(names):
            return names[joint]
        return f"{self.joint_names[joint]}.{_WORDS[quantity]}" if quantity in _WORDS else quantity
