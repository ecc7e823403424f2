"""Triangle meshes from files (STL, OBJ, DAE, PLY), and where their names point to."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from urllib.parse import unquote, urlparse

import numpy as np

from safe_sysid.core.arrays import FloatArray, IntArray
from safe_sysid.errors import ModelError, short
from safe_sysid.input_limits import MAX_MESH_BYTES, read_regular
from safe_sysid.robot.files.collada import read_collada
from safe_sysid.robot.files.mesh_files import Mesh, read_obj, read_ply, read_stl
from safe_sysid.robot.files.packages import is_package_uri, package_file

__all__ = ["mesh_path", "read_mesh"]

#: Decimals are rounded once, divided (OBJ's w) and scaled, in double precision.
ROUNDED = 2.0**-50
_READERS: dict[str, Callable[[bytes], Mesh]] = {".stl": read_stl, ".obj": read_obj, ".ply": read_ply}
_FARTHEST = 1e4  # m; no arm's part, and nothing that bounds are computed for
_READABLE = "a readable STL, OBJ, DAE or PLY file"


def mesh_path(name: str, beside: str | Path) -> Path:
    """Path of a mesh named by a URDF or a scene file; markers name packages' files only.

    Args:
        name: ``package://NAME/PATH`` (:mod:`~.files.packages`), ``file://PATH``, or a path, relative to the
            folder of ``beside``.

    Raises:
        ModelError: no such file, or a scheme that is neither of these.
    """
    if is_package_uri(name):
        return package_file(name, beside)
    try:
        parsed = urlparse(name)
    except ValueError:  # brackets
        parsed = urlparse("")
    if parsed.scheme == "file" and parsed.netloc in ("", "localhost"):
        path = Path(unquote(parsed.path))
    elif parsed.scheme and len(parsed.scheme) > 1:
        expected = "a path, file:///PATH or package://"
        raise ModelError(f"{beside}: mesh {short(name)}: expected {expected}", name, expected)
    else:
        path = Path(beside).parent / name
    try:
        if path.is_file():
            return path
    except (OSError, ValueError):  # names that are too long, or have zero bytes or lone surrogates
        pass
    expected = f"a file that exists (looked for {str(path)[:500]})"
    raise ModelError(f"{beside}: mesh {short(name)}: expected {expected}", name, expected)


def read_mesh(
    path: str | Path, scale: float | tuple[float, ...] | FloatArray = 1.0
) -> tuple[FloatArray, IntArray, float]:
    """Different vertices (m, 3), triangles (t, 3) and the error (m) of the coordinates that reading may have caused.

    ``scale``: factor, or one per axis.

    Raises:
        ModelError: a file that cannot be read, is no mesh of a known format, has no triangle or numbers that are not
            finite; a COLLADA file whose numbers are not metres where they are.
    """
    path = Path(path)
    suffix = path.suffix.lower()
    if suffix not in (*_READERS, ".dae"):
        raise ModelError(f"mesh {path}: {path.suffix!r}: expected {_READABLE}", str(path), _READABLE)
    factor = np.broadcast_to(np.asarray(scale, float), (3,))
    try:
        content = read_regular(path, MAX_MESH_BYTES)
        found, triangles = read_collada(content, str(path)) if suffix == ".dae" else _READERS[suffix](content)
        used, inverse = np.unique(triangles, return_inverse=True)
        if len(used) and not (used[0] >= 0 and used[-1] < len(found)):
            raise ValueError(f"vertex {int(used[-1])} of {len(found)}")
        vertices, merged = np.unique(found[used] + 0.0, axis=0, return_inverse=True)
        with np.errstate(over="ignore", invalid="ignore"):
            vertices = vertices * factor
    except OSError as error:
        raise ModelError(
            f"mesh {path}: {error.strerror or error}: expected {_READABLE}", str(path), _READABLE
        ) from error
    except (ValueError, IndexError, OverflowError, ZeroDivisionError, KeyError, MemoryError) as error:
        text = " ".join(str(error).split())[:200]
        raise ModelError(f"mesh {path}: {text}: expected {_READABLE}", str(path), _READABLE) from error
    if not len(triangles) or not np.all(np.isfinite(vertices)):
        expected = "some, with finite corners"
        raise ModelError(f"mesh {path}: {len(triangles)} triangles: expected {expected}", str(path), expected)
    largest = float(np.abs(vertices).max())
    if largest > _FARTHEST:
        raise ModelError(f"mesh {path}: a corner {largest:g} m away: expected at most {_FARTHEST:g} m; say a scale")
    indices = merged.reshape(-1)[inverse.reshape(-1)].reshape(-1, 3).astype(np.int64)
    return vertices, indices, ROUNDED * largest * np.sqrt(3.0)
