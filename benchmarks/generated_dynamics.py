"""Generated dynamics beside Pinocchio's RNEA, ABA and regressor in C++, in one program; medians of 301 rounds.

python benchmarks/generated_dynamics.py [--eigen DIR] [--json FILE]

Pinocchio's headers come with its wheel; Eigen's do not: name their directory, or install them (libeigen3-dev). CasADi's
code is timed beside if it can be imported: it is no dependency of this package.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import pinocchio
from rich.console import Console
from rich.table import Table

from safe_sysid.dynamics.generated.c_code import write_c
from safe_sysid.dynamics.generated.choice import candidates
from safe_sysid.dynamics.generated.compiled import FLAGS
from safe_sysid.dynamics.generated.derive import derive
from safe_sysid.studies.experiments.psdm.arms import PSDM_ARMS
from safe_sysid.studies.experiments.psdm.tables import casadi_code

HERE = Path(__file__).resolve().parent
CASES = (*(("kr6", n) for n in range(2, 7)), *(("lbr7", n) for n in range(2, 8)), ("sr6ia", 4))
PEER = {"inverse": "inverse", "forward": "forward", "regressor": "regressor"}
#: How many times faster than the peer the best of ours is to be, at six and seven joints.
WANTED = {"inverse": 3.0, "forward": 2.0, "regressor": 5.0}
DEFINES = ("FUSION_INVOKE_MAX_ARITY=10", "MPL_LIMIT_LIST_SIZE=30", "MPL_CFG_NO_PREPROCESSED_HEADERS")


def build(folder: Path, eigen: list[Path]) -> Path:
    """The program in C++."""
    include = Path(pinocchio.__file__).resolve()
    include = next(p for p in include.parents if (p / "include" / "pinocchio").is_dir()) / "include"
    program = folder / "bench"
    flags = [flag for flag in FLAGS if flag not in ("-std=c99", "-fPIC", "-shared")]
    # NDEBUG: as Pinocchio is built for use; without it Eigen checks every index.
    command = ["g++", "-std=c++17", "-DNDEBUG", "-w", *flags, *(f"-DBOOST_{d}" for d in DEFINES), f"-I{include}"]
    command += [f"-isystem{place}" for place in (*eigen, Path("/usr/include/eigen3"))]
    subprocess.run([*command, str(HERE / "generated_dynamics.cpp"), "-ldl", "-o", str(program)], check=True)
    return program


def case(name: str, n: int, program: Path, folder: Path) -> dict:
    """Times of one arm, ns."""
    arm = PSDM_ARMS[name]
    kin, theta = arm.kinematics(n), arm.parameters(n)
    model = derive(kin)
    found, chain = candidates(model, False), model.chain
    functions = {f"{f}_{m}": v for (f, m), v in found.values.items() if f in PEER}
    code = write_c(found.graph, n, functions).text
    names = list(functions)
    if (text := casadi_code(chain, chain.link_parameters() @ theta[: 10 * n])) is not None:
        code, names = code + text, [*names, "inverse_casadi", "forward_casadi"]
    (folder / "arm.c").write_text(code)
    subprocess.run(["cc", *FLAGS, "-o", str(folder / "arm.so"), str(folder / "arm.c"), "-lm"], check=True)
    poses = [poses_at_zero(chain, j) for j in range(n)]
    links = (chain.link_parameters() @ theta[: 10 * n]).reshape(n, 10)
    lines = [[n, model.l], chain.gravity, model.base_parameters(theta)]
    for j in range(n):
        lines += [[float(chain.sliding[j])], poses[j].ravel(), links[j]]
    text = "\n".join(" ".join(repr(float(x)) for x in line) for line in lines)
    (folder / "arm.txt").write_text(text + "\n" + " ".join(names) + "\n")
    ran = subprocess.run(
        [str(program), str(folder / "arm.txt"), str(folder / "arm.so")], check=True, capture_output=True, text=True
    )
    return {"arm": name, "joints": n, **json.loads(ran.stdout)}


def poses_at_zero(chain, j: int) -> np.ndarray:
    """Pose (4, 4) of frame j in the one before at q = 0."""
    (ca, sa), (cp, sp), a, r = chain.alpha[j], chain.turn(j), chain.a[j], chain.r[j]
    before = np.array([[1, 0, 0, a], [0, ca, -sa, 0], [0, sa, ca, 0], [0, 0, 0, 1.0]])
    return before @ np.array([[cp, -sp, 0, 0], [sp, cp, 0, 0], [0, 0, 1, r], [0, 0, 0, 1.0]])


def main() -> int:
    """Run all arms and print what is reached."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--eigen", type=Path, action="append", default=[], metavar="DIR")
    parser.add_argument("--json", type=Path, metavar="FILE")
    options = parser.parse_args()
    rows = []
    with tempfile.TemporaryDirectory() as place:
        program = build(Path(place), options.eigen)
        for name, n in CASES:
            rows.append(case(name, n, program, Path(place)))
            print(f"{name} {n}", file=sys.stderr, flush=True)
    if options.json:
        options.json.write_text(json.dumps(rows, indent=1))
    console = Console(width=160, highlight=False)
    for function, peer in (("inverse", "RNEA"), ("forward", "ABA"), ("regressor", "its regressor")):
        table = Table(title=f"{function}: ns a single call (of a state in a batch), Pinocchio's {peer} beside")
        for column in ("arm", "joints", "Pinocchio", "PSDM", "recursion", "CasADi", "best is faster by", "wanted"):
            table.add_column(column)
        for row in rows:
            ours, base = row["ours"], row["pinocchio"][PEER[function]]
            cells = [
                f"{ours[key][0]:.0f} ({ours[key][1]:.0f})" if (key := f"{function}_{m}") in ours else "-"
                for m in ("psdm", "recursion", "casadi")
            ]
            best = min(ours[f"{function}_{m}"][0] for m in ("psdm", "recursion") if f"{function}_{m}" in ours)
            wanted = f"{WANTED[function]:g}" if row["joints"] >= 6 else "1" if function == "inverse" else ""
            table.add_row(row["arm"], str(row["joints"]), f"{base:.0f}", *cells, f"{base / best:.2f}", wanted)
        console.print(table)
    worst = max(value[2] for row in rows for key, value in row["ours"].items())
    console.print(f"largest relative difference from Pinocchio: {worst:.1e}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
