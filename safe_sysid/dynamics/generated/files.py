"""The C files of an arm: code, header, README and a self-test, made, compiled and run before they are put in place."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from safe_sysid.core.arrays import FloatArray
from safe_sysid.dynamics.generated.c_code import Source
from safe_sysid.dynamics.generated.choice import FUNCTIONS, METHODS, Candidates
from safe_sysid.dynamics.generated.compiled import FLAGS, NoCompilerError, compiler_here
from safe_sysid.dynamics.generated.model import PseudoSymbolicModel
from safe_sysid.errors import ModelError

__all__ = ["STATES", "Generated", "array", "check_place", "choices", "plain", "put", "write"]


_ALLOWED = 1e-9
_ZERO = 1e-12  # where all that is expected is zero
#: Of the self-test.
STATES = 5
_MEANING = {
    "inverse": ("n", "torque that accelerations x take, gravity included"),
    "gravity": ("n", "torque that holds the arm; qd and x are not read"),
    "induced": ("n", "torque of velocities and gravity; x is not read"),
    "mass": ("n n", "mass matrix, row by row; qd and x are not read"),
    "regressor": ("n l", "Y, row by row: torque = Y b with accelerations x; k is not read"),
    "forward": ("n", "accelerations that torques x give"),
}


@dataclass(frozen=True)
class Generated:
    """What is written."""

    name: str
    model: PseudoSymbolicModel
    found: Candidates
    chosen: dict[str, str]  #: function -> method
    #: (function, method) -> time of one evaluation on this machine; empty without a compiler
    seconds: dict[tuple[str, str], float]
    #: parameters b, states q, qd, qdd and torque (5, n), and what each function gives there
    expected: dict[str, FloatArray]
    nominal: FloatArray | None  #: (l,) base parameters that the code holds; None: it holds none
    about: list[str]
    derived_s: float
    transition: float = 0.0  #: velocity below which the sign of friction is linear, rad/s
    tested: str | None = None  #: what the self-test said; None without a compiler

    @property
    def parameters(self) -> int:
        """How many there are: l, and friction's."""
        return len(self.expected["b"])


def check_place(out: Path) -> None:
    """Refuse a directory with files.

    Raises:
        ModelError: it has some, or is none.
    """
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise ModelError(f"{out}: expected a directory that is empty or does not exist yet")


def write(made: Generated, prefix: str, out: Path) -> Generated:
    """Write the files, all or none, after their self-test; returns what was given with what that said.

    ``out``: directory to make; an empty one is taken, too.

    Raises:
        ModelError: a compiler or a self-test that fails, or a directory that cannot be written.
    """
    source = made.found.source(made.chosen, prefix, made.transition)
    nominal = array(f"{prefix}_nominal", made.nominal) + "\n" if made.nominal is not None else ""
    texts = {
        f"{prefix}.c": f'#include "{prefix}.h"\n\n' + nominal + source.text,
        f"{prefix}.h": _header(made, source, prefix),
        f"{prefix}_test.c": _self_test(made, prefix),
    }
    tested = put(out, prefix, texts, lambda tested: _readme(replace(made, tested=tested), prefix), bool(made.seconds))
    return replace(made, tested=tested)


def put(
    out: Path, prefix: str, texts: Mapping[str, str], readme: Callable[[str | None], str], test: bool
) -> str | None:
    """Write files and ``README.md``, all or none, after ``PREFIX_test.c`` was run; returns what that said.

    Args:
        out: directory to make; an empty one is taken, too.
        texts: name -> content.
        readme: its content, from what the self-test said, None if it was not run.
        test: there is a compiler to run it.

    Raises:
        ModelError: a compiler or a self-test that fails, or a directory that cannot be written.
    """
    check_place(out)
    tested = None
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=out.parent, prefix=f".{out.name}.") as place:
            folder = Path(place) / "made"
            folder.mkdir()
            for name, text in texts.items():
                (folder / name).write_text(text, encoding="utf-8")
            if test:
                tested = _run_test(folder, prefix)
            (folder / "README.md").write_text(readme(tested), encoding="utf-8")
            if out.exists():
                out.rmdir()
            os.replace(folder, out)
    except OSError as error:
        raise ModelError(f"{out}: nothing is written: {error.strerror}") from None
    return tested


def _run_test(folder: Path, prefix: str) -> str:
    program = folder / f"{prefix}_test"
    compiler = compiler_here() or "cc"
    sources = [str(folder / f"{prefix}.c"), str(folder / f"{prefix}_test.c")]
    flags = [f for f in FLAGS if f not in ("-shared", "-fPIC")]
    made = subprocess.run(
        [*shlex.split(compiler), *flags, "-Wall", "-Werror", "-o", str(program), *sources, "-lm"],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    if made.returncode != 0:
        said = (made.stderr.strip().splitlines() or ["nothing"])[0]
        raise NoCompilerError(f"the C compiler {compiler} failed on the self-test: {said}")
    ran = subprocess.run([str(program)], capture_output=True, text=True, check=False, timeout=60)
    program.unlink()
    if ran.returncode != 0:
        raise ModelError(f"the self-test failed, nothing is written: {ran.stdout.strip() or ran.returncode}")
    return ran.stdout.strip()


def plain(name: str) -> str:
    """A name that ends no comment: a stranger's file may have any."""
    return re.sub(r"[^\w .-]", "_", name, flags=re.ASCII)


def array(name: str, values: FloatArray) -> str:
    """A constant of C; infinite numbers need ``math.h``."""
    numbers = ", ".join(repr(float(x)).replace("inf", "INFINITY") for x in np.ravel(values))
    return f"const double {name}[{np.size(values)}] = {{{numbers}}};\n"


def _header(made: Generated, source: Source, prefix: str) -> str:
    upper, model = prefix.upper(), made.model
    lines = [
        f"/* Rigid-body dynamics of {plain(made.name)}. SI units; see README.md. Thread-safe: no state. */",
        f"#ifndef {upper}_H", f"#define {upper}_H", "",
        "#ifdef __cplusplus", 'extern "C" {', "#endif", "",
        f"#define {upper}_JOINTS {model.n}", f"#define {upper}_BASE {made.parameters}",
        f"#define {upper}_PREPARED {max(source.prepared, 1)}", "",
    ]  # fmt: skip
    if made.nominal is not None:
        lines += [f"extern const double {prefix}_nominal[{upper}_BASE]; /* base parameters */", ""]
    lines += [
        "/* Once for each set of base parameters b: the numbers k that the functions read. */",
        f"void {prefix}_prepare(const double *b, double *k);",
        "",
        "/* Of `count` states, one after the other: q, qd and x have n numbers each. */",
    ]
    for name in source.functions:
        size, what = _MEANING[name]
        lines += [
            f"/* {what}; {size.replace(' ', ' x ')} numbers for each state. */",
            f"void {prefix}_{name}(long count, const double *k, const double *q, const double *qd, const double *x,",
            "    double *out);",
        ]
    return "\n".join([*lines, "", "#ifdef __cplusplus", "}", "#endif", "", "#endif", ""])


def _self_test(made: Generated, prefix: str) -> str:
    model, upper = made.model, prefix.upper()
    unused = () if "forward" in made.chosen else ("torque",)
    data = {
        key: x for key, x in made.expected.items() if key not in unused and (key not in FUNCTIONS or key in made.chosen)
    }
    widest = model.n * max(model.n, made.parameters)
    lines = [
        f'#include "{prefix}.h"', "#include <math.h>", "#include <stdio.h>", "",
        *(f"static {array(name, value)}" for name, value in data.items()),
        "static int compare(const char *what, const double *found, const double *expected, int size)", "{",
        "    double most = 0.0, gap = 0.0;",
        "    for (int i = 0; i < size; ++i) {",
        "        most = fmax(most, fabs(expected[i]));",
        "        gap = fmax(gap, fabs(found[i] - expected[i]));",
        "        if (!(fabs(found[i]) < INFINITY)) gap = INFINITY;",
        "    }",
        f"    const int ok = gap <= {_ALLOWED} * most + {_ZERO};",
        '    printf("%s %s: off by %.1e of at most %.1e\\n", ok ? "ok  " : "FAIL", what, gap, most);',
        "    return !ok;", "}", "", "int main(void)", "{",
        f"    static double k[{upper}_PREPARED], out[{STATES * widest}];", "    int failed = 0;",
        f"    {prefix}_prepare(b, k);",
    ]  # fmt: skip
    for name in made.chosen:
        x = "torque" if name == "forward" else "qdd"
        size = int(np.size(data[name]))
        lines += [
            f"    {prefix}_{name}({STATES}, k, q, qd, {x}, out);",
            f'    failed += compare("{name}", out, {name}, {size});',
        ]
    return "\n".join([*lines, "    return failed != 0;", "}", ""])


def choices(made: Generated) -> list[tuple[str, str, str]]:
    """(function, method, why) of each function that was written."""
    rows = []
    for f in made.chosen:
        parts = []
        for m in METHODS:
            if (f, m) in made.found.values:
                time_of = f"{1e9 * made.seconds[f, m]:.0f} ns, " if made.seconds else ""
                parts.append(f"{m} {time_of}{made.found.count(f, m).total} operations")
            else:
                parts.append(f"{m} not tried, too large")
        rows.append((f, made.chosen[f], "; ".join(parts)))
    return rows


def _readme(made: Generated, prefix: str) -> str:
    model, upper = made.model, prefix.upper()
    n, widest = model.n, model.n * max(model.n, made.parameters)
    nominal = f"{prefix}_nominal" if made.nominal is not None else "b"
    values = [""] * made.parameters
    if made.nominal is not None:
        values = [f" = {value!r}" for value in made.nominal.tolist()]
    sliding = ", ".join(str(j + 1) for j in np.nonzero(model.chain.sliding)[0]) or "none"
    build = f"cc -std=c99 -O2 {prefix}.c {prefix}_test.c -lm -o {prefix}_test && ./{prefix}_test"
    lines = [
        f"# Dynamics of {plain(made.name)}", "",
        f"C99 without heap, libraries or branches: `{prefix}.c`, `{prefix}.h`. {n} joints, "
        f"{made.parameters} parameters.",
        "Rigid bodies; rotors and friction where the parameters have Ia, Fc, Fv and beta. No function keeps a state: "
        "threads may call at once, each with arrays of its own.", "",
        "```c", f"double k[{upper}_PREPARED], q[{n}], qd[{n}], x[{n}], out[{widest}];",
        f"{prefix}_prepare({nominal}, k);  /* once for each set of parameters */",
        f"{prefix}_inverse(1, k, q, qd, x, out);", "```", "",
        "Units: rad, rad/s, rad/s^2 and N m of turning joints; m, m/s, m/s^2 and N of sliding ones. Arrays have an "
        "entry for each joint, from the base on; of several states, one state after the other.",
        "Sines and cosines hold up to 1e6 rad.",
        f"Joints that slide: {sliding}. Gravity in frame 0, m/s^2: {model.chain.gravity.tolist()}.", "",
        "| function | `out` for each state | method | why |", "|---|---|---|---|",
    ]  # fmt: skip
    for f, m, why in choices(made):
        size, what = _MEANING[f]
        lines.append(f"| `{prefix}_{f}` | {size.replace(' ', ' x ')}: {what} | {m} | {why} |")
    lines += [
        "",
        "Operations do not count sines and cosines. Times are of batches, on the machine that made these files.",
        "", "## Base parameters", "",
        "Sums of the links' mass (kg), m c (kg m) and inertia (kg m^2) about these frames: z along the joint's axis, "
        "x along the common normal to the next axis.", "",
        *(f"- `b[{k}]`: {what}{values[k]}" if k < made.parameters else f"- {what}"
          for k, what in enumerate(made.about)),
        "", "## Self-test", "",
        f"`{build}` compares every function at {STATES} states with numbers found otherwise. It leaves with 1 if one "
        f"is off by more than {_ALLOWED:g} of the largest entry.", "",
        *(["```text", made.tested, "```"] if made.tested else ["It has not been run: there was no compiler."]),
    ]  # fmt: skip
    return "\n".join([*lines, ""])
