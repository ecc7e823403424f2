"""The certificate of one update as two files: ``.json`` for people and identities, ``.npz`` for the arrays.

What is read is not trusted: sizes, shapes and types are checked before memory is taken, nothing is unpickled.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from safe_sysid import __version__
from safe_sysid.core.layout import PAYLOAD_NAMES, PAYLOAD_UNITS
from safe_sysid.errors import short
from safe_sysid.identification.certificates.files.archive import (
    CertificateError,
    check_common,
    is_count,
    is_hash,
    is_log,
    read_arrays,
    write_files,
)
from safe_sysid.identification.certificates.files.robot_identity import errors_to_json, robot_to_json
from safe_sysid.identification.equations.measurement_errors import MeasurementErrors
from safe_sysid.input_limits import parse_json, read_regular
from safe_sysid.robot.model import MAX_JOINTS, RobotModel

if TYPE_CHECKING:
    from safe_sysid.identification.bounds.proof import UpdateProof

__all__ = [
    "ROW_ARRAYS",
    "SCHEMA",
    "BoundsCertificate",
    "CertificateContext",
    "CertificateError",
    "read_certificate",
    "read_header",
    "write_certificate",
]

SCHEMA = "safe_sysid/identification-certificate/1"
_MAX_JSON = 4 << 20


#: Arrays of equations, in certificates of every kind.
ROW_ARRAYS: Mapping[str, tuple[str, tuple[str | int, ...]]] = {
    **dict.fromkeys(("target", "slack", "ramp"), ("f", ("M",))),
    **dict.fromkeys(("first", "last", "joint", "box_seq", "log"), ("i", ("M",))),
}
#: Arrays of the ``.npz``: kinds of dtype and shape; M rows, K cuts, P = 14 n parameters, F = 3 n of friction, X = P + E
#: with the arm's unknown constants.
_ARRAYS: Mapping[str, tuple[str, tuple[str | int, ...]]] = {
    **ROW_ARRAYS,
    "matrix": ("f", ("M", "X")),
    "cut_kind": ("U", ("K",)),
    "cut_u": ("f", ("K", 4)),
    "cut_v": ("f", ("K", 4)),
    "cut_mass": ("f", ("K",)),
    "cut_constant": ("f", ("K",)),
    "row_multipliers": ("f", (20, "M")),
    "cut_multipliers": ("f", (20, "K")),
    "box_lower": ("f", ("P",)),
    "box_upper": ("f", ("P",)),
    "hand_lower": ("f", (10,)),
    "hand_upper": ("f", (10,)),
    "opening": ("f", (10,)),
    "drift": ("f", ("F",)),
    "lower": ("f", (10,)),
    "upper": ("f", (10,)),
}


@dataclass(frozen=True, eq=False)
class CertificateContext:
    """Context of a certificate: what it states besides the proof."""

    model: RobotModel
    errors: MeasurementErrors
    epoch: int  #: of the box that is published
    seq: int  #: of the box that is published
    #: log_sha256, samples: :class:`~safe_sysid.identification.digest.LogDigest` of the samples so far, their number
    log_sha256: str
    samples: int
    method: str  #: in words, such as "linear programs and semidefinite cuts"
    #: tare_sha256, tare_samples: of the tare log; None and 0 without one
    tare_sha256: str | None = None
    tare_samples: int = 0


@dataclass(frozen=True, eq=False)
class BoundsCertificate:
    """What a certificate says; shapes, types and sizes are checked, nothing else."""

    path: Path  #: of the ``.json``
    sha256: str  #: of the ``.json``'s bytes; it names that of the arrays
    header: Mapping[str, Any]  #: content of the ``.json``
    arrays: Mapping[str, NDArray[Any]]  #: by the names of the ``.npz``

    @property
    def identity(self) -> str:
        """``epoch:seq``."""
        return f"{self.header['epoch']}:{self.header['seq']}"


def write_certificate(
    directory: str | Path, proof: UpdateProof, context: CertificateContext, previous: Path | None
) -> Path:
    """Write the certificate of one update. Returns the path of the ``.json``; the arrays lie beside it.

    Args:
        directory: made if it is not there.
        context: what else to state.
        previous: what this function returned for the preceding update of the epoch; None for the first.

    Raises:
        CertificateError: a file cannot be written, or the preceding one cannot be read.
    """
    directory = Path(directory)
    stem = f"certificate_{context.epoch}_{context.seq:05d}"
    rows, cuts = proof.rows, proof.cuts
    arrays: dict[str, Any] = {name: getattr(rows, name) for name in ("target", "slack", "ramp")}
    constants = rows.with_constants(context.model.unknowns.count).constants
    arrays["matrix"] = np.hstack([rows.matrix, constants])
    for name in ("first", "last", "joint", "box_seq", "log"):
        arrays[name] = np.asarray(getattr(rows, name), np.int64)
    arrays |= {f"cut_{name}": getattr(cuts, name) for name in ("u", "v", "mass", "constant")}
    arrays["cut_kind"] = np.array(cuts.kind, dtype="U16")
    arrays["row_multipliers"], arrays["cut_multipliers"] = proof.row_multipliers, proof.cut_multipliers
    arrays["box_lower"], arrays["box_upper"] = proof.box.lower, proof.box.upper
    arrays |= {
        name: getattr(proof, name) for name in ("hand_lower", "hand_upper", "opening", "drift", "lower", "upper")
    }
    try:
        before = None if previous is None else hashlib.sha256(Path(previous).read_bytes()).hexdigest()
    except OSError as error:
        raise CertificateError(f"{directory}/{stem}: cannot be written: {error.strerror or error}") from error
    path = directory / f"{stem}.json"
    write_files(path, arrays, lambda digest: _header(proof, context, before, digest))
    return path


def _header(proof: UpdateProof, context: CertificateContext, previous: str | None, arrays: str) -> dict[str, Any]:
    tare = None
    if context.tare_sha256 is not None:
        tare = {"sha256": context.tare_sha256, "samples": context.tare_samples}
    bounds = zip(PAYLOAD_NAMES, PAYLOAD_UNITS, proof.lower.tolist(), proof.upper.tolist(), strict=True)
    return {
        "schema": SCHEMA,
        "written_by": f"safe_sysid {__version__}",
        "epoch": context.epoch,
        "seq": context.seq,
        "method": context.method,
        "bounds": [{"name": n, "unit": u, "lower": lo, "upper": hi} for n, u, lo, hi in bounds],
        "log": {"sha256": context.log_sha256, "samples": context.samples},
        "tare_log": tare,
        "previous_sha256": previous,
        "arrays": {"sha256": arrays, "rows": len(proof.rows), "cuts": len(proof.cuts)},
        "errors": errors_to_json(context.errors),
        "robot": robot_to_json(context.model),
    }


def read_header(path: Path) -> tuple[Mapping[str, Any], str]:
    """Content of a certificate's ``.json`` and the hash of its bytes; only its being an object is checked.

    Raises:
        CertificateError: it cannot be read, is too large, or is no JSON object.
    """
    try:
        content = read_regular(path, _MAX_JSON)
        header = parse_json(content.decode("utf-8"))
    except OSError as error:
        raise CertificateError(f"{path}: cannot be read: {error.strerror or error}") from None
    except (ValueError, RecursionError) as error:
        raise CertificateError(f"{path}: not JSON ({str(error)[:100]}): expected a certificate") from None
    if not isinstance(header, dict):
        raise CertificateError(f"{path}: {type(header).__name__}: expected a JSON object")
    return header, hashlib.sha256(content).hexdigest()


def read_certificate(path: str | Path) -> BoundsCertificate:
    """Read both files. ``path``: of the ``.json``.

    Raises:
        CertificateError: anything that makes it unreadable, inconsistent in itself or too large.
    """
    path = Path(path)
    header, digest = read_header(path)
    n, unknowns = _check_header(path, header)
    arrays = read_arrays(path.with_suffix(".npz"), header["arrays"]["sha256"], n, _ARRAYS, unknowns)
    for name, count in (("rows", len(arrays["target"])), ("cuts", len(arrays["cut_kind"]))):
        if header["arrays"].get(name) != count:
            raise CertificateError(f"{path}: arrays.{name} = {header['arrays'].get(name)}: expected {count}")
    for i, bound in enumerate(header["bounds"]):
        for name in ("lower", "upper"):
            if bound[name] != arrays[name][i]:
                raise CertificateError(
                    f"{path}: bounds[{i}].{name} = {bound[name]!r}: expected {float(arrays[name][i])!r}, the array's"
                )
    return BoundsCertificate(path, digest, header, arrays)


def _check_header(path: Path, header: Mapping[str, Any]) -> tuple[int, int]:
    """Types of everything that is used; returns the numbers of joints and of the arm's unknown constants."""

    def need(good: bool, field: str, expected: str) -> None:
        if not good:
            raise CertificateError(f"{path}: {field}: expected {expected}")

    need(header.get("schema") == SCHEMA, f"schema = {short(header.get('schema'), 80)}", SCHEMA)
    for name in ("epoch", "seq"):
        need(is_count(header.get(name)), f"{name} = {short(header.get(name), 80)}", "a whole number >= 0")
    need(isinstance(header.get("method"), str), "method", "a text")
    for name in ("log", "tare_log"):
        log = header.get(name)
        if name == "tare_log" and log is None:
            continue
        need(is_log(log), name, "sha256 and number of samples")
    previous = header.get("previous_sha256")
    need(previous is None or is_hash(previous), "previous_sha256", "64 hexadecimal digits or null")
    n = check_common(need, header)
    bounds = header.get("bounds")
    good = isinstance(bounds, list) and len(bounds) == 10
    need(good, "bounds", "ten of them")
    for i, (bound, label) in enumerate(zip(bounds or [], PAYLOAD_NAMES, strict=True)):
        good = isinstance(bound, dict) and bound.get("name") == label
        need(good and bound.get("unit") == PAYLOAD_UNITS[i], f"bounds[{i}]", f"{label} in {PAYLOAD_UNITS[i]}")
        good = all(type(bound.get(side)) in (int, float) for side in ("lower", "upper"))
        need(good, f"bounds[{i}]", "numbers lower and upper")
    unknowns = header["robot"]["urdf"].get("unknowns", [])
    good = isinstance(unknowns, list) and len(unknowns) <= 2 * MAX_JOINTS
    need(good, "robot.urdf.unknowns", "two for each joint at most")
    return n, len(unknowns)
