"""Bounds proved in an earlier run for the payload that is still in the hand; they narrow those of a new run."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np

from safe_sysid.core.layout import PAYLOAD_NAMES
from safe_sysid.decimals import bracketed
from safe_sysid.identification.identifier import UpdateResult, UpdateStatus
from safe_sysid.logs.bounds_file import bounds_box, read_bounds
from safe_sysid.robot.model import RobotModel
from safe_sysid.robot.parameters import ParameterBox, frozen_array

__all__ = ["AnnouncedBounds", "KnownBounds"]


class KnownBounds:
    """Intersects every update of one epoch with a bounds file.

    Two proved boxes of one payload both hold the truth, so does their intersection. The identifier itself starts from
    the prior, so that its certificates stand alone; the file's own certificate proves the rest. Sequence numbers are
    one higher than the identifier's: number 1 is the file's box.
    """

    def __init__(self, path: Path, model: RobotModel, epoch: int = 0) -> None:
        """Read the file. ``epoch``: the only one in which the payload is the file's.

        Raises:
            ConfigError: not a bounds file, or of another robot or prior, or not proved.
        """
        self.path: Path | str = path
        self.epoch = epoch
        box = bounds_box(read_bounds(path), model, str(path))
        self.first = ParameterBox(box.lower, box.upper, epoch, 1)
        self._latest = self.first

    def narrow(self, result: UpdateResult) -> UpdateResult:
        """The update as it is to be published."""
        if result.box.epoch != self.epoch:
            return result
        lower = np.maximum(result.box.payload_lower, self._latest.payload_lower)
        upper = np.minimum(result.box.payload_upper, self._latest.payload_upper)
        empty = np.flatnonzero(lower > upper)
        status, message, box = result.status, result.message, self._latest
        if empty.size:
            i = int(empty[0])
            status = UpdateStatus.EMPTY_SET
            message = (
                f"{status.value}; {self.path} says {PAYLOAD_NAMES[i]} in "
                f"{bracketed(self.first.payload_lower[i], self.first.payload_upper[i], 3)}, the measurements "
                f"{bracketed(result.box.payload_lower[i], result.box.payload_upper[i], 3)}: is the payload another one?"
            )
        else:
            box = self._latest.with_payload(lower, upper, max(self._latest.seq, result.box.seq + self.first.seq))
        self._latest = box
        nominal = np.clip(result.nominal, box.payload_lower, box.payload_upper)
        return replace(
            result,
            status=status,
            message=message,
            box=box,
            nominal=frozen_array(nominal, (10,), "nominal"),
            nominal_consistent=result.nominal_consistent and bool(np.all(nominal == result.nominal)),
            widths=frozen_array(box.payload_upper - box.payload_lower, (10,), "widths"),
        )


class AnnouncedBounds(KnownBounds):
    """The same with a box that the controller works with: what an identifier before this one has proved."""

    def __init__(self, box: ParameterBox) -> None:
        """Sequence numbers go on from the box's."""
        self.path, self.epoch = "bounds_active", box.epoch
        self.first = self._latest = box
