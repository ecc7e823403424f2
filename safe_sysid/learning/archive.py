"""Archives of learned models: arrays of a known kind and dimension under a schema, written whole and read with care."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from safe_sysid.errors import SafeSysIdError
from safe_sysid.input_limits import ARRAY_ERRORS, read_arrays
from safe_sysid.whole_files import replacing

__all__ = ["read_archive", "write_archive"]


def write_archive(path: str | Path, arrays: Mapping[str, Any], error: type[SafeSysIdError]) -> None:
    """Write arrays, whole or not at all.

    ``path``: of the file; ``.npz`` is not appended; ``error``: raised where the file cannot be written.
    """
    try:
        with replacing(path) as temporary, temporary.open("wb") as file:
            np.savez(file, **arrays)
    except OSError as reason:
        raise error(f"{path}: cannot be written: {reason.strerror or reason}") from reason


def read_archive(
    path: str | Path, what: str, schema: str, expected: Mapping[str, tuple[str, int]], error: type[SafeSysIdError]
) -> dict[str, NDArray[Any]]:
    """Read arrays that :func:`write_archive` wrote.

    Args:
        expected: kind of numpy and dimensions of each array; there may be others.
        error: raised where there is no such file or format, or an array is missing or of another kind or shape.
    """
    try:
        arrays = read_arrays(path)
    except FileNotFoundError:
        raise error(f"{path}: no such file") from None
    except ARRAY_ERRORS as reason:
        raise error(f"{path}: cannot be read as {what}: {reason}") from None
    for name, (kind, dimensions) in expected.items():
        if name not in arrays:
            raise error(f"{path}: no array {name!r}: expected {', '.join(expected)}")
        a = arrays[name]
        if a.dtype.kind != kind or a.ndim != dimensions:
            raise error(
                f"{path}: {name} has type {a.dtype} and shape {a.shape}: expected {dimensions} dimensions of {kind!r}"
            )
        if name == "schema" and str(a) != schema:
            raise error(f"{path}: schema = {str(a)[:80]!r}: expected {schema!r}")
    return arrays
