"""Files named as ``package://NAME/PATH``: in ROS workspaces, beside the file that names them, in Python's prefix.

A name can only point *into* a package's folder: ``..`` and absolute paths are refused, percent signs undone before.
Links inside a package are followed, wherever they lead: ``colcon build --symlink-install`` makes nothing else.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path, PurePosixPath
from urllib.parse import unquote

from safe_sysid.errors import ModelError

__all__ = ["SCHEME", "is_package_uri", "package_directories", "package_file"]

SCHEME = "package://"
#: REP 144, and hyphens, which registry packages have.
_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_-]*")
_FORM = f"{SCHEME}NAME/PATH with a package's name and a path inside it, without `..`"


def is_package_uri(text: str) -> bool:
    """Whether a file's name is one that :func:`package_file` is for."""
    return text.lower().startswith(SCHEME)


def package_directories(package: str, beside: str | Path, package_dirs: Sequence[str | Path] = ()) -> list[Path]:
    """Existing folders that may be a package's, the most specific first.

    Args:
        beside: file that names it; a package's own files find their package in the folders above them.
        package_dirs: folders that hold packages, or are packages, looked at first.

    Returns:
        Those of ``package_dirs``, ``share/NAME`` under ``AMENT_PREFIX_PATH``, ``ROS_PACKAGE_PATH``, packages (folders
        with a ``package.xml``) above or beside ``beside``, and ``share/NAME`` of this Python's prefix and of what was
        installed into it.
    """
    found: dict[Path, None] = {}
    for candidate in _candidates(package, Path(beside), package_dirs):
        if candidate.is_dir():
            found[candidate] = None
    return list(found)


def _candidates(package: str, beside: Path, package_dirs: Sequence[str | Path]) -> Iterator[Path]:
    for folder in map(Path, package_dirs):
        yield folder / package
        yield folder / "share" / package
        if folder.name == package:
            yield folder
    for prefix in _listed("AMENT_PREFIX_PATH"):
        yield prefix / "share" / package
    for folder in _listed("ROS_PACKAGE_PATH"):
        yield folder / package
        if folder.name == package:
            yield folder
    for folder in beside.resolve().parents[:-1]:  # the last is the root of the file system
        # Nobody named these: only what says that it is a package is one, or `package://etc/passwd` would be a file.
        for candidate in (folder / package, folder):
            if candidate.name == package and (candidate / "package.xml").is_file():
                yield candidate
    yield Path(sys.prefix) / "share" / package
    for entry in map(Path, filter(None, sys.path)):
        # Robotics packages of the registry bring a prefix of their own, beside the Python code.
        yield entry / "cmeel.prefix" / "share" / package


def _listed(variable: str) -> list[Path]:
    return [Path(part) for part in os.environ.get(variable, "").split(os.pathsep) if part]


def package_file(uri: str, beside: str | Path, package_dirs: Sequence[str | Path] = ()) -> Path:
    """Path of the file that ``package://NAME/PATH`` names.

    Args:
        beside: file that it stands in, for the search and for messages.
        package_dirs: as in :func:`package_directories`.

    Raises:
        ModelError: another form, a path that leaves the package, or no such file; has the value and what was expected.
    """
    # Known URDFs write package:///NAME/PATH, too.
    named = uri[len(SCHEME) :].removeprefix("/") if is_package_uri(uri) else ""
    package, _, rest = named.partition("/")
    path = PurePosixPath(unquote(rest))
    if not _NAME.fullmatch(package) or path.is_absolute() or not path.parts or ".." in path.parts or "\0" in str(path):
        raise ModelError(f"{beside}: {uri!r}: expected {_FORM}", uri, _FORM)
    folders = package_directories(package, beside, package_dirs)
    for folder in folders:
        if (folder / path).is_file():
            return folder / path
    if folders:
        searched = "looked in " + ", ".join(map(str, folders))
    else:
        searched = f"no package {package}: install it, or name its folder in AMENT_PREFIX_PATH or ROS_PACKAGE_PATH"
    expected = f"a file that exists ({searched})"
    raise ModelError(f"{beside}: {uri!r}: expected {expected}", uri, expected)
