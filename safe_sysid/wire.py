"""Pickled messages between a process and its child, with read-only arrays."""

from __future__ import annotations

import io
import pickle
from types import MappingProxyType
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["dumps", "loads"]


def _read_only(array: NDArray[Any]) -> NDArray[Any]:
    array.setflags(write=False)
    return array


def _read_only_mapping(values: dict[Any, Any]) -> MappingProxyType[Any, Any]:
    return MappingProxyType(values)


class _Pickler(pickle.Pickler):
    """Nouns hold read-only arrays and read-only mappings: the first would come out writable, the second not at all."""

    def reducer_override(self, value: Any) -> Any:
        if isinstance(value, MappingProxyType):
            return _read_only_mapping, (dict(value),)
        if type(value) is np.ndarray and not value.flags.writeable and not value.dtype.hasobject:
            return _read_only, (value.copy(),)
        return NotImplemented


def dumps(value: Any) -> bytes:
    """Bytes for :func:`loads`, in another process of the same environment."""
    stream = io.BytesIO()
    _Pickler(stream, protocol=pickle.HIGHEST_PROTOCOL).dump(value)
    return stream.getvalue()


def loads(data: bytes) -> Any:
    """Inverse of :func:`dumps`; only for what one's own child or parent has sent."""
    return pickle.loads(data)
