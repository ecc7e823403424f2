"""Bounds in a bag: messages on ``bounds``, and whether they are those that were published."""

from __future__ import annotations

import re
from collections import defaultdict, deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from safe_sysid.core.arrays import FloatArray
from safe_sysid.logs.log import LogError

__all__ = ["PublishedBounds", "compare_bounds", "read_published"]

_BATCH = re.compile(r"(?:^|\s|,|;)batch:(\d{1,9})\b")
_ROWS = ("lower", "nominal", "upper")


@dataclass(frozen=True, eq=False)
class PublishedBounds:
    """One message."""

    identity: str  #: ``epoch:seq`` of the box
    batch: int | None  #: that it answers, None for none
    values: FloatArray  #: (3, P) lower, nominal, upper
    sure: bool = True  #: of what must have been published; a node that never became active keeps known bounds to itself

    @property
    def name(self) -> str:
        """For people."""
        return f"box {self.identity}" + ("" if self.batch is None else f" of batch {self.batch}")


def read_published(message: Any) -> PublishedBounds:
    """Convert a std_msgs/Float64MultiArray.

    Raises:
        LogError: not 3 rows, or no label.
    """
    labels = [dim.label for dim in message.layout.dim]
    data = np.array(message.data, float)
    if len(labels) != 2 or data.size % 3 or not data.size:
        raise LogError(f"bounds: {len(labels)} labels, {data.size} numbers: expected 2, and 3 rows of numbers")
    batch = _BATCH.search(labels[1])
    return PublishedBounds(labels[0], None if batch is None else int(batch[1]), data.reshape(3, -1))


def compare_bounds(expected: Sequence[PublishedBounds], found: Sequence[PublishedBounds]) -> list[str]:
    """What the bag has else than what must have been published, one line each.

    ``expected``: in the order of publishing; ``found``: in the order of the bag.
    """
    said = {(message.identity, message.values.tobytes()) for message in expected}
    by_key: defaultdict[tuple[str, int | None], deque[PublishedBounds]] = defaultdict(deque)
    for message in found:
        by_key[message.identity, message.batch].append(message)
    lines: list[str] = []
    for ours in expected:
        queue = by_key[ours.identity, ours.batch]
        if not queue:
            lines += [f"bounds: {ours.name} was published and is not in the bag"] * ours.sure
            continue
        theirs = queue.popleft()
        if theirs.values.tobytes() != ours.values.tobytes():
            lines.append(f"bounds: {ours.name}: {_difference(theirs.values, ours.values)}")
    lines += [
        f"bounds: {message.name} is in the bag and does not come out again"
        for queue in by_key.values()
        for message in queue
        if (message.identity, message.values.tobytes()) not in said  # said again: lock-step waits for answers
    ]
    return lines


def _difference(theirs: FloatArray, ours: FloatArray) -> str:
    if theirs.shape != ours.shape:
        return f"{theirs.shape[1]} parameters in the bag: expected {ours.shape[1]}"
    different = np.argwhere(theirs.view(np.int64) != ours.view(np.int64))
    size = np.abs(theirs - ours)
    row, parameter = different[np.argmax(size[tuple(different.T)])]
    return (
        f"{len(different)} numbers differ, most {_ROWS[row]} of parameter {parameter}: {theirs[row, parameter]!r} in "
        f"the bag, {ours[row, parameter]!r} when run again"
    )
