"""The C files of an arm: code, header, README and a self-test, made, compiled and run before they are put in place."""

from __future__ import annotations

import os
import subprocess
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from safe_sysid.core.layout import ROTOR
from safe_sysid.dynamics.generated.backend import drawn_parameters
from safe_sysid.dynamics.generated.c_code import Source
from safe_sysid.dynamics.generated.choice import FUNCTIONS, METHODS, Candidates, candidates, measure
from safe_sysid.dynamics.generated.compiled import FLAGS, NoCompilerError, compiler_here
from safe_sysid.dynamics.generated.derive import derive
from safe_sysid.dynamics.generated.model import PseudoSymbolicModel
from safe_sysid.dynamics.recursion import RecursiveDynamics
from safe_sysid.errors import ModelError
from safe_sysid.robot.model import Kinematics

__all__ = ["MOST_JOINTS", "Arm", "Generated", "choices", "derived", "generate", "predicted"]

FloatArray = NDArray[np.float64]

#: More joints than these are derived only when told to.
MOST_JOINTS = 8
_ALLOWED = 1e-9
_STATES = 5
_MEANING = {
    "inverse": ("n", "torque that accelerations x take, gravity included"),
    "gravity": ("n", "torque that holds the arm; qd and x are not read"),
    "induced": ("n", "torque of velocities and gravity; x is not read"),
    "mass": ("n n", "mass matrix, row by row; qd and x are not read"),
    "regressor": ("n l", "Y, row by row: torque = Y b with accelerations x; k is not read"),
    "forward": ("n", "accelerations that torques x give"),
}


@dataclass(frozen=True)
class Arm:
    """What code is generated for.

    Attributes:
        name: for texts.
        kin: a chain.
        theta: (14 n,) parameters that the code holds as nominal ones; None: it holds none.
        rotors: rotor inertias are base parameters too.
    """

    name: str
    kin: Kinematics
    theta: FloatArray | None = None
    rotors: bool = False


@dataclass(frozen=True)
class Generated:
    """What was made.

    Attributes:
        model: derived.
        derived_s: processor time of the derivation.
        chosen: function -> method.
        seconds: (function, method) -> time of one evaluation on this machine; empty without a compiler.
        found: both methods, for operations.
        tested: what the self-test said; None without a compiler.
    """

    model: PseudoSymbolicModel
    derived_s: float
    chosen: dict[str, str]
    seconds: dict[tuple[str, str], float]
    found: Candidates
    tested: str | None


def predicted(kin: Kinematics) -> tuple[float, float]:
    """Processor time (s) and memory (GB) that the derivation of a long arm will take, within a factor of some three.

    Its first five and six joints are derived, and what the sixth costs is taken to be what each further one does.
    """
    counts, seconds = [], 0.0
    for n in (5, 6):
        short = Kinematics.chain(
            kin.rotation[:n], kin.translation[:n], kin.axis[:n], kin.gravity, kin.travel[:n]
        )
        start = time.process_time()
        model = derive(short)
        seconds = time.process_time() - start
        counts.append(sum(matrix.nnz for matrix in model.reduction))
    growth = max(counts[1] / counts[0], 3.0)
    entries = counts[1] * growth ** (len(kin.axis) - 6)
    return seconds + 2e-6 * entries, 0.1 + 3e-7 * entries


def derived(arm: Arm, yes: bool = False) -> tuple[PseudoSymbolicModel, float]:
    """The model of an arm, and the processor time that took.

    Args:
        arm: of a chain.
        yes: derive more than eight joints, too.

    Raises:
        ModelError: a branch, or more than eight joints and no ``yes``.
    """
    n = len(arm.kin.axis)
    if n > MOST_JOINTS and not yes:
        if list(arm.kin.parent) != list(range(-1, n - 1)):
            yes = True  # refused below, with a better reason
        else:
            seconds, memory = predicted(arm.kin)
            raise ModelError(
                f"{arm.name}: {n} joints: the derivation will take some {seconds:.2g} s and {memory:.2g} GB; "
                f"expected at most {MOST_JOINTS} joints, or --yes to go on"
            )
    start = time.process_time()
    return derive(arm.kin, rotors=arm.rotors), time.process_time() - start


def generate(arm: Arm, out: Path, prefix: str = "arm", yes: bool = False) -> Generated:
    """Write ``PREFIX.c``, ``PREFIX.h``, ``PREFIX_test.c`` and ``README.md``, all or none.

    Args:
        arm: a chain.
        out: directory to make; an empty one is taken, too.
        prefix: of files and functions, a name in C.
        yes: derive more than eight joints, too.

    Raises:
        ModelError: a branch, more than eight joints without ``yes``, a compiler that fails, a self-test that does, a
            directory that holds files or cannot be written.
    """
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise ModelError(f"{out}: expected a directory that is empty or does not exist yet")
    model, seconds = derived(arm, yes)
    found = candidates(model, arm.rotors)
    chosen = found.fewest()
    times: dict[tuple[str, str], float] = {}
    if compiler_here() is not None:
        times = measure(found, model.l)
        chosen = found.least(times)
    source = found.source(chosen, prefix)
    made = Generated(model, seconds, chosen, times, found, None)
    texts = {
        f"{prefix}.c": f'#include "{prefix}.h"\n\n' + _nominal(arm, model, prefix) + source.text,
        f"{prefix}.h": _header(arm, model, source, prefix),
        f"{prefix}_test.c": _self_test(arm, model, prefix),
    }
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=out.parent, prefix=f".{out.name}.") as place:
            folder = Path(place) / "made"
            folder.mkdir()
            for name, text in texts.items():
                (folder / name).write_text(text, encoding="utf-8")
            if times:
                made = Generated(model, seconds, chosen, times, found, _run_test(folder, prefix))
            (folder / "README.md").write_text(_readme(arm, made, prefix), encoding="utf-8")
            if out.exists():
                out.rmdir()
            os.replace(folder, out)
    except OSError as error:
        raise ModelError(f"{out}: nothing is written: {error.strerror}") from None
    return made


def _run_test(folder: Path, prefix: str) -> str:
    program = folder / f"{prefix}_test"
    compiler = compiler_here() or "cc"
    sources = [str(folder / f"{prefix}.c"), str(folder / f"{prefix}_test.c")]
    flags = [f for f in FLAGS if f not in ("-shared", "-fPIC")]
    made = subprocess.run(
        [compiler, *flags, "-Wall", "-Werror", "-o", str(program), *sources, "-lm"],
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


def _array(name: str, values: FloatArray) -> str:
    numbers = ", ".join(repr(float(x)) for x in np.ravel(values))
    return f"const double {name}[{np.size(values)}] = {{{numbers}}};\n"


def _nominal(arm: Arm, model: PseudoSymbolicModel, prefix: str) -> str:
    if arm.theta is None:
        return ""
    return _array(f"{prefix}_nominal", model.base_parameters(arm.theta)) + "\n"


def _header(arm: Arm, model: PseudoSymbolicModel, source: Source, prefix: str) -> str:
    upper = prefix.upper()
    lines = [
        f"/* Rigid-body dynamics of {arm.name}, without friction. SI units; see README.md. Thread-safe: no state. */",
        f"#ifndef {upper}_H", f"#define {upper}_H", "",
        f"#define {upper}_JOINTS {model.n}", f"#define {upper}_BASE {model.l}",
        f"#define {upper}_PREPARED {max(source.prepared, 1)}", "",
    ]  # fmt: skip
    if arm.theta is not None:
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
    return "\n".join([*lines, "", "#endif", ""])


def _expected(arm: Arm, model: PseudoSymbolicModel) -> dict[str, FloatArray]:
    """Inputs and results at random states, by the recursion that certificates' tests compare with too."""
    n, rng, plain = model.n, np.random.default_rng(11), RecursiveDynamics(arm.kin)
    theta = drawn_parameters(n, rng)
    if not arm.rotors:
        theta[ROTOR * n : (ROTOR + 1) * n] = 0.0
    q, qd, qdd = rng.uniform(-3.0, 3.0, (3, _STATES, n))
    base, still = model.base_map(), np.zeros_like(q)
    torque = plain.inverse_dynamics(theta, q, qd, qdd)
    return {
        "b": base @ theta,
        "q": q,
        "qd": qd,
        "qdd": qdd,
        "torque": torque,
        "inverse": torque,
        "gravity": plain.gravity(theta, q),
        "induced": plain.inverse_dynamics(theta, q, qd, still),
        "mass": plain.mass_matrix(theta, q),
        # Y base = W for all parameters, so Y is W times the pseudo-inverse.
        "regressor": _without_friction(plain.torque_regressor(q, qd, qdd), n) @ np.linalg.pinv(base),
        "forward": qdd,
    }


def _without_friction(regressor: FloatArray, n: int) -> FloatArray:
    kept = np.zeros(regressor.shape[-1], bool)
    kept[: 10 * n] = kept[ROTOR * n : (ROTOR + 1) * n] = True
    return np.where(kept, regressor, 0.0)


def _self_test(arm: Arm, model: PseudoSymbolicModel, prefix: str) -> str:
    data, upper = _expected(arm, model), prefix.upper()
    widest = model.n * max(model.n, model.l)
    lines = [
        f'#include "{prefix}.h"', "#include <math.h>", "#include <stdio.h>", "",
        *(f"static {_array(name, value)}" for name, value in data.items()),
        "static int compare(const char *what, const double *found, const double *expected, int size)", "{",
        "    double most = 0.0, gap = 0.0;",
        "    for (int i = 0; i < size; ++i) {",
        "        most = fmax(most, fabs(expected[i]));",
        "        gap = fmax(gap, fabs(found[i] - expected[i]));",
        "        if (!(fabs(found[i]) < INFINITY)) gap = INFINITY;",
        "    }",
        f"    const int ok = gap <= {_ALLOWED} * most;",
        '    printf("%s %s: off by %.1e of at most %.1e\\n", ok ? "ok  " : "FAIL", what, gap, most);',
        "    return !ok;", "}", "", "int main(void)", "{",
        f"    static double k[{upper}_PREPARED], out[{_STATES * widest}];", "    int failed = 0;",
        f"    {prefix}_prepare(b, k);",
    ]  # fmt: skip
    for name in FUNCTIONS:
        x = "torque" if name == "forward" else "qdd"
        size = int(np.size(data[name]))
        lines += [
            f"    {prefix}_{name}({_STATES}, k, q, qd, {x}, out);",
            f'    failed += compare("{name}", out, {name}, {size});',
        ]
    return "\n".join([*lines, "    return failed != 0;", "}", ""])


def choices(made: Generated) -> list[tuple[str, str, str]]:
    """(function, method, why) of each function that was written."""
    rows = []
    for f in FUNCTIONS:
        parts = []
        for m in METHODS:
            if (f, m) in made.found.values:
                time_of = f"{1e9 * made.seconds[f, m]:.0f} ns, " if made.seconds else ""
                parts.append(f"{m} {time_of}{made.found.count(f, m).total} operations")
            else:
                parts.append(f"{m} not tried, too large")
        rows.append((f, made.chosen[f], "; ".join(parts)))
    return rows


def _readme(arm: Arm, made: Generated, prefix: str) -> str:
    model, upper = made.model, prefix.upper()
    n, widest = model.n, model.n * max(model.n, model.l)
    nominal = f"{prefix}_nominal" if arm.theta is not None else "b"
    values = [""] * model.l
    if arm.theta is not None:
        values = [f" = {value!r}" for value in model.base_parameters(arm.theta).tolist()]
    sliding = ", ".join(str(j + 1) for j in np.nonzero(model.chain.sliding)[0]) or "none"
    build = f"cc -std=c99 -O2 {prefix}.c {prefix}_test.c -lm -o {prefix}_test && ./{prefix}_test"
    lines = [
        f"# Dynamics of {arm.name}", "",
        f"C99 without heap, libraries or branches: `{prefix}.c`, `{prefix}.h`. {n} joints, {model.l} base parameters.",
        "Rigid bodies" + (" and rotors" if arm.rotors else "") + " without friction. No function keeps a state: "
        "threads may call at once, each with arrays of its own.", "",
        "```c", f"double k[{upper}_PREPARED], q[{n}], qd[{n}], x[{n}], out[{widest}];",
        f"{prefix}_prepare({nominal}, k);  /* once for each set of parameters */",
        f"{prefix}_inverse(1, k, q, qd, x, out);", "```", "",
        "Units: rad, rad/s, rad/s^2 and N m of turning joints; m, m/s, m/s^2 and N of sliding ones. Arrays have an "
        "entry for each joint, from the base on; of several states, one state after the other.",
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
        *(f"- `b[{k}]` = {name}{values[k]}" for k, name in enumerate(model.parameter_names())),
        "", "## Self-test", "",
        f"`{build}` compares every function at {_STATES} states with another recursion. It leaves with 1 if one is "
        f"off by more than {_ALLOWED:g} of the largest entry.", "",
        *(["```text", made.tested, "```"] if made.tested else ["It has not been run: there was no compiler."]),
    ]  # fmt: skip
    return "\n".join([*lines, ""])
