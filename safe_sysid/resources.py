"""Packaged files: where robots, settings and scenes are, however the package was installed."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from safe_sysid.errors import SafeSysIdError

__all__ = ["ResourceError", "resource_path", "share_directory"]

_PACKAGE = "safe_sysid"


class ResourceError(SafeSysIdError):
    """A file that belongs to the package cannot be found."""


def _candidates() -> Iterator[Path]:
    """Directories that may be the share directory, the most specific first."""
    here = Path(__file__)
    for package in dict.fromkeys((here.parent, here.resolve().parent)):
        # A source tree: plain clone, editable install, colcon --symlink-install.
        yield package.parent
        # An installation prefix lies above site-packages: a virtual environment, /usr/local, ~/.local, a
        # colcon install space or the target of `pip install --target`.
        for prefix in package.parents:
            yield prefix / "share" / _PACKAGE
    for prefix_text in filter(None, os.environ.get("AMENT_PREFIX_PATH", "").split(os.pathsep)):
        yield Path(prefix_text) / "share" / _PACKAGE


def _is_share(directory: Path) -> bool:
    return (directory / "package.xml").is_file() and (directory / "config").is_dir()


def share_directory() -> Path:
    """Directory that holds `config/`, `urdf/` and `package.xml` of this installation.

    Raises:
        ResourceError: none of the places where an installer could have put them has them.
    """
    for directory in _candidates():
        if _is_share(directory):
            return directory
    searched = "\n  ".join(str(directory) for directory in _candidates())
    raise ResourceError(
        f"the files of {_PACKAGE} (config/, urdf/, package.xml) were not found; install the package with pip"
        f" or colcon, or run it from a clone. Searched:\n  {searched}"
    )


def resource_path(relative: str | os.PathLike[str]) -> Path:
    """Path of one file of the share directory, for example `resource_path("config/kinova_gen3.yaml")`.

    Raises:
        ResourceError: the file does not exist; the message lists what its directory does hold.
    """
    share = share_directory()
    path = share / relative
    if path.exists():
        return path
    siblings = sorted(entry.name for entry in path.parent.iterdir()) if path.parent.is_dir() else []
    raise ResourceError(f"{path}: no such file; {path.parent} holds {', '.join(siblings) or 'nothing'}")
