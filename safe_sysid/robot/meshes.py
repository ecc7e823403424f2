"""Triangle meshes from files (STL, OBJ, DAE, PLY; read by assimp, through coal), and where their names point to."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import unquote, urlparse

import coal
import numpy as np
from numpy.typing import NDArray

from safe_sysid.errors import ModelError
from safe_sysid.robot.collada import check_collada
from safe_sysid.robot.packages import is_package_uri, package_file

__all__ = ["mesh_path", "read_mesh"]

FloatArray = NDArray[np.float64]
#: assimp reads decimals in 32 bit floats: 4 roundings by 2^-24 with an exponent, and those of a divisor (OBJ's w).
SINGLE = 2.0**-21
#: No other: their nodes, units and compressed numbers change coordinates by what SINGLE does not hold.
_FORMATS = (".stl", ".obj", ".dae", ".ply")
_LARGEST = 200_000_000  # bytes
_READABLE = "a readable STL, OBJ, DAE or PLY file"


def mesh_path(name: str, beside: str | Path) -> Path:
    """Path of a mesh named by a URDF, a scene file or a marker.

    Args:
        name: ``package://NAME/PATH`` (:mod:`safe_sysid.robot.packages`), ``file://PATH``, or a path, relative to the
            folder of ``beside``.
        beside: file that names it.

    Raises:
        ModelError: no such file, or a scheme that is neither of these.
    """
    if is_package_uri(name):
        return package_file(name, beside)
    parsed = urlparse(name)
    if parsed.scheme == "file":
        path = Path(unquote(parsed.path))
    elif parsed.scheme and len(parsed.scheme) > 1:
        expected = "a path, file:// or package://"
        raise ModelError(f"{beside}: mesh {name!r}: expected {expected}", name, expected)
    else:
        path = Path(beside).parent / name
    if path.is_file():
        return path
    expected = f"a file that exists (looked for {path})"
    raise ModelError(f"{beside}: mesh {name!r}: expected {expected}", name, expected)


def read_mesh(
    path: str | Path, scale: float | tuple[float, ...] | FloatArray = 1.0
) -> tuple[FloatArray, NDArray[np.int64], float]:
    """Vertices (m, 3), triangles (t, 3) and the error (m) of the vertices' coordinates that reading may have caused.

    Args:
        path: of the file.
        scale: factor, or one per axis.

    Raises:
        ModelError: a file that cannot be read, is no mesh of a known format, has no triangle or numbers that are not
            finite; a COLLADA file whose numbers are not metres where they are (:func:`check_collada`).
    """
    path = Path(path)
    if path.suffix.lower() not in _FORMATS:
        raise ModelError(f"mesh {path}: {path.suffix!r}: expected {_READABLE}", str(path), _READABLE)
    factor = np.broadcast_to(np.asarray(scale, float), (3,))
    try:
        if path.stat().st_size > _LARGEST:
            raise ModelError(f"mesh {path}: {path.stat().st_size} bytes: expected at most {_LARGEST}")
        with path.open("rb"):
            pass
        if path.suffix.lower() == ".dae":
            check_collada(path)
        try:
            shape = coal.MeshLoader().load(str(path), np.ones(3))
        except Exception as error:  # its text is about the library's own code
            raise ModelError(f"mesh {path}: expected {_READABLE}", str(path), _READABLE) from error
        count = int(shape.num_vertices)
        vertices = np.array(shape.vertices(), dtype=float).reshape(count, 3) * factor
        faces = [shape.tri_indices(i) for i in range(int(shape.num_tris))]
        triangles = np.array([[int(t[0]), int(t[1]), int(t[2])] for t in faces], dtype=np.int64).reshape(
            -1, 3
        )
    except ModelError:
        raise
    except Exception as error:  # assimp's and the file system's ways of failing are many
        raise ModelError(
            f"mesh {path}: {' '.join(str(error).split())[:200]}: expected {_READABLE}", str(path), _READABLE
        ) from error
    if not len(triangles) or not np.all(np.isfinite(vertices)):
        raise ModelError(f"mesh {path}: {len(triangles)} triangles: expected some, with finite corners")
    return vertices, triangles, SINGLE * float(np.abs(vertices).max()) * np.sqrt(3.0)
