"""Compiled code by its content: made by the system's compiler at first use, kept, checked and loaded."""

from __future__ import annotations

import ctypes
import hashlib
import os
import shlex
import shutil
import subprocess
import tempfile
import warnings
from pathlib import Path

from safe_sysid.dynamics.generated.c_code import Source
from safe_sysid.errors import ModelError

__all__ = ["FLAGS", "NoCompilerError", "compiler_here", "load"]

#: Options of the compiler.
FLAGS = ("-std=c99", "-O3", "-march=native", "-fno-math-errno", "-fPIC", "-shared")
_SECONDS = 120.0


class NoCompilerError(ModelError):
    """There is no C compiler on this machine, or it does not work."""


def _cache() -> Path:
    base = os.environ.get("XDG_CACHE_HOME", "")
    return (Path(base) if os.path.isabs(base) else Path.home() / ".cache") / "safe_sysid" / "dynamics"


def _machine() -> str:
    """What code for this very processor depends on."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        lines = []
    kinds = ("flags", "Features", "model name", "CPU part")
    return "\n".join(sorted({line for line in lines if line.split("\t")[0].strip() in kinds}))


def _compile(compiler: str, text: str, folder: Path) -> Path:
    source, library = folder / "arm.c", folder / "arm.so"
    command = [*shlex.split(compiler), *FLAGS, "-o", str(library), str(source)]
    try:
        source.write_text(text, encoding="utf-8")
        run = subprocess.run(command, capture_output=True, text=True, timeout=_SECONDS, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise NoCompilerError(f"the C compiler {compiler} does not run: {error}") from None
    if run.returncode != 0 or not library.exists():
        said = (run.stderr.strip().splitlines() or ["nothing"])[0]
        raise NoCompilerError(f"the C compiler {compiler} failed with status {run.returncode}: {said}")
    return library


def compiler_here() -> str | None:
    """``$CC``, else the C compiler of this machine; None: there is none."""
    return os.environ.get("CC") or shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def load(source: Source) -> ctypes.CDLL:
    """The library of a source.

    It lies in ``safe_sysid/dynamics`` of the user's cache under the digest of source, flags, compiler and processor,
    with the digest of its own content in its name: a file that was changed is compiled again. A cache that cannot be
    written is said and gone without.

    Raises:
        NoCompilerError: none is installed, or it failed.
    """
    compiler = compiler_here()
    if compiler is None:
        raise NoCompilerError("no C compiler (cc, gcc or clang) on this machine")
    first = (shlex.split(compiler) or [compiler])[0]  # CC may be "ccache gcc"
    place = shutil.which(first) or first
    stamp = os.stat(place) if os.path.exists(place) else None
    version = f"{compiler} {place} {stamp.st_size} {stamp.st_mtime_ns}" if stamp else compiler
    key = _digest("\n".join((source.text, *FLAGS, version, _machine())).encode())[:32]
    cache = _cache()
    for kept in sorted(cache.glob(f"{key}-*.so")):
        try:
            same = kept.stem.partition("-")[2] == _digest(kept.read_bytes())
        except OSError as error:
            warnings.warn(f"{kept} cannot be read ({error.strerror}): it is compiled again", stacklevel=2)
            break
        if same:
            return ctypes.CDLL(str(kept))
        warnings.warn(f"{kept} was changed since it was made: it is compiled again", stacklevel=2)
        try:
            kept.unlink()
        except OSError:
            break
    with tempfile.TemporaryDirectory() as folder:
        library = _compile(compiler, source.text, Path(folder))
        try:
            loaded = ctypes.CDLL(str(library))
        except OSError as error:
            raise NoCompilerError(f"what the C compiler {compiler} made cannot be loaded: {error}") from None
        content = library.read_bytes()
        final = cache / f"{key}-{_digest(content)}.so"
        try:
            cache.mkdir(parents=True, exist_ok=True)
            with tempfile.NamedTemporaryFile(dir=cache, suffix=".part", delete=False) as part:
                try:
                    part.write(content)
                    part.flush()
                    os.replace(part.name, final)
                except OSError:
                    os.unlink(part.name)
                    raise
        except OSError as error:
            warnings.warn(f"compiled dynamics are not kept in {cache}: {error.strerror}", stacklevel=2)
            return loaded  # the file itself may go
        return ctypes.CDLL(str(final))
