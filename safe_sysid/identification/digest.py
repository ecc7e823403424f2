"""Log digest: a hash of samples in order of arrival, whatever batches they came in."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence

import numpy as np

from safe_sysid.errors import ParameterError
from safe_sysid.identification.equations.measurements import Measurements

__all__ = ["LogDigest", "log_digest"]

_HEADER = b"safe_sysid log 1\n"


class LogDigest:
    """SHA-256 of a log, sample by sample.

    Hashed are a fixed first line, the joint names as a JSON list, a line feed, and then, for each sample that arrives
    (those that will be rejected too), stamp, q, qd and effort as little-endian float64.
    """

    def __init__(self, joint_names: Sequence[str]) -> None:
        """Start with no sample. ``joint_names``: n names in the order of the samples' columns."""
        self._n = len(joint_names)
        self._hash = hashlib.sha256(_HEADER + json.dumps(list(joint_names)).encode() + b"\n")
        self._count = 0

    @property
    def count(self) -> int:
        """Number of samples so far; the index that the next one will have."""
        return self._count

    def update(self, measurements: Measurements) -> None:
        """Take samples in, in order of arrival.

        ``measurements``: every sample that is pushed to the stream, in the same order.

        Raises:
            ParameterError: another number of joints than names.
        """
        if measurements.n != self._n:
            raise ParameterError(f"LogDigest.update: {measurements.n} joints: expected {self._n}")
        table = np.column_stack([measurements.stamps, measurements.q, measurements.qd, measurements.effort])
        self._hash.update(np.ascontiguousarray(table, dtype="<f8").tobytes())
        self._count += len(measurements)

    def hexdigest(self) -> str:
        """64 hexadecimal digits; more samples may follow."""
        return self._hash.hexdigest()

    def copy(self) -> LogDigest:
        """An independent copy of the state."""
        other = LogDigest([])
        other._n, other._hash, other._count = self._n, self._hash.copy(), self._count
        return other


def log_digest(joint_names: Sequence[str], measurements: Measurements) -> str:
    """Hash of a whole log, 64 hexadecimal digits.

    ``joint_names``: n names in the order of the columns; ``measurements``: all samples, in order of arrival.
    """
    digest = LogDigest(joint_names)
    digest.update(measurements)
    return digest.hexdigest()
