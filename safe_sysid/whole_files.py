"""Atomic files: written beside their place, then renamed, so that no reader sees a part."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

__all__ = ["replacing", "write_text"]


@contextmanager
def replacing(path: str | Path) -> Iterator[Path]:
    """Yield the path of a temporary file in the same directory that becomes ``path`` if the block succeeds.

    Raises:
        OSError: it cannot be written; ``path`` is the file that it names, never the temporary one.
    """
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = None
    try:
        handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.stem}.", suffix=path.suffix)
        os.close(handle)
        temporary = Path(name)
        yield temporary
        umask = os.umask(0)
        os.umask(umask)
        temporary.chmod(0o666 & ~umask)  # mkstemp makes it private
        temporary.replace(path)
    except OSError as error:
        if error.filename is not None and Path(error.filename).name.startswith(f".{path.stem}."):
            raise OSError(error.errno, error.strerror, str(path)) from None
        raise
    finally:
        if temporary is not None:
            temporary.unlink(missing_ok=True)


def write_text(path: str | Path, text: str) -> None:
    """Write a text file (UTF-8), whole or not at all."""
    with replacing(path) as temporary:
        temporary.write_text(text, encoding="utf-8")
