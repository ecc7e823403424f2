"""Time series of trials for pictures: one compressed file per trial."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from safe_sysid.input_limits import read_arrays
from safe_sysid.whole_files import replacing

__all__ = ["SeriesStore"]


class SeriesStore:
    """A directory of ``<index>.npz``; made with the first file."""

    def __init__(self, directory: Path) -> None:
        """Name the directory. ``directory``: need not exist."""
        self.directory = directory

    def take(self, result: dict[str, Any]) -> dict[str, Any]:
        """Put a result's ``series`` away; returns the result without them. ``result``: of a trial; left as it is."""
        series = result.get("series")
        if series is None:
            return result
        if series:
            self.directory.mkdir(parents=True, exist_ok=True)
            with replacing(self._path(result["index"])) as temporary, Path(temporary).open("wb") as file:
                np.savez_compressed(file, **series)
        return {key: value for key, value in result.items() if key != "series"}

    def load(self, index: int) -> dict[str, NDArray]:
        """Arrays of a trial by name; none if it left none."""
        path = self._path(index)
        if not path.exists():
            return {}
        return read_arrays(path)

    def _path(self, index: int) -> Path:
        return self.directory / f"{index}.npz"
