"""The functions of an arm, each by pseudo-symbolic code and by a specialised recursion, and the faster of the two."""

from __future__ import annotations

import ctypes
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from safe_sysid.core.arrays import FloatArray
from safe_sysid.dynamics.generated.c_code import Graph, GraphValue, OperationCount, Source, write_c
from safe_sysid.dynamics.generated.compiled import load
from safe_sysid.dynamics.generated.factored import FactoredArm
from safe_sysid.dynamics.generated.model import PseudoSymbolicModel
from safe_sysid.dynamics.generated.recursion import TracedArm, solve

__all__ = ["FUNCTIONS", "METHODS", "Candidates", "candidates", "inverse_operations", "measure"]


FUNCTIONS = ("inverse", "gravity", "induced", "mass", "regressor", "forward")
METHODS = ("recursion", "psdm")
#: Functions y of a model up to which pseudo-symbolic code is tried, and that of the regressor.
_LARGEST, _LARGEST_REGRESSOR = 60_000, 2_000
_STATES, _ROUNDS = 1000, 15


@dataclass(frozen=True)
class Candidates:
    """Functions in one graph. ``values``: (function, method) -> entries of the result, row by row."""

    graph: Graph
    joints: int
    values: dict[tuple[str, str], list[Any]]

    def count(self, function: str, method: str) -> OperationCount:
        """Operations of one evaluation, sines and cosines not counted."""
        return self.graph.count([v for v in self.values[function, method] if isinstance(v, GraphValue)])

    def fewest(self) -> dict[str, str]:
        """The method of each function that takes fewer operations."""
        return self.least({key: self.count(*key).total for key in self.values})

    def least(self, cost: Mapping[tuple[str, str], float]) -> dict[str, str]:
        """The method of each function that costs less; ``cost`` by (function, method)."""
        out = {}
        for f in [f for f in FUNCTIONS if any(g == f for g, _ in cost)]:
            out[f] = min((cost[f, m], m) for m in METHODS if (f, m) in cost)[1]
        return out

    def source(self, chosen: dict[str, str], prefix: str = "arm", transition: float = 0.0) -> Source:
        """The code of one method for each function."""
        values = {f: self.values[f, m] for f, m in chosen.items()}
        return write_c(self.graph, self.joints, values, prefix, transition)


def candidates(
    model: PseudoSymbolicModel, rotors: bool, methods: tuple[str, ...] = METHODS, friction: bool = False
) -> Candidates:
    """Trace all functions with both methods, pseudo-symbolic ones of very large models left out.

    Args:
        model: of the arm; of its recursion only the selected base parameters are used.
        rotors: whether rotors are among the parameters.
        friction: after the base parameters come Coulomb and viscous friction and offsets of all joints.
    """
    graph = Graph()
    arms: dict[str, Any] = {}
    if "recursion" in methods and not model.masked:
        arms["recursion"] = TracedArm(model.chain, model.selected.tolist(), rotors, graph)
    if model.p <= _LARGEST or "recursion" not in methods:
        arms["psdm"] = FactoredArm(model, graph)
    values: dict[tuple[str, str], list[Any]] = {}
    still = [0.0] * model.n
    tau = [graph.state(f"tau[{j}]") for j in range(model.n)]
    n, lost = model.n, [graph.constant(0.0)] * model.n
    columns: list[list[Any]] = [[] for _ in range(n)]
    if friction:
        fc, fv, beta = ([graph.parameter(f"b[{model.l + k * n + j}]") for j in range(n)] for k in range(3))
        sign, qd = ([graph.state(f"{name}[{j}]") for j in range(n)] for name in ("sg", "qd"))
        lost = [fc[j] * sign[j] + fv[j] * qd[j] + beta[j] for j in range(n)]
        for i in range(n):
            own = [[x if i == j else 0.0 for j in range(n)] for x in (sign[i], qd[i], 1.0)]
            columns[i] = [x for part in own for x in part]
    for method, arm in arms.items():
        inertia, moving = arm.mass_matrix(), arm.torque(arm.qd, still)
        induced = [x + y for x, y in zip(moving, lost, strict=True)]
        values["inverse", method] = [x + y for x, y in zip(arm.torque(arm.qd, arm.qdd), lost, strict=True)]
        values["gravity", method] = arm.torque(still, still)
        values["induced", method] = induced
        values["mass", method] = [x for row in inertia for x in row]
        if method == "recursion" or model.p <= _LARGEST_REGRESSOR or model.masked:
            values["regressor", method] = [
                x for i, row in enumerate(arm.regressor(arm.qd, arm.qdd)) for x in (*row, *columns[i])
            ]
        # A reduced model may have lost all of a joint's inertia: it accelerates nothing.
        if all(isinstance(inertia[j][j], GraphValue) for j in range(n)):
            rest = [t - x for t, x in zip(tau, induced, strict=True)]
            values["forward", method] = solve(graph, inertia, rest)
    return Candidates(graph, model.n, values)


def inverse_operations(model: PseudoSymbolicModel) -> int:
    """Operations of the pseudo-symbolic inverse dynamics of a model."""
    arm = FactoredArm(model)
    return arm.graph.count([v for v in arm.torque(arm.qd, arm.qdd) if isinstance(v, GraphValue)]).total


def measure(found: Candidates, base: int) -> dict[tuple[str, str], float]:
    """Seconds that each candidate takes per state on this machine: the least of 15 batches of 1000 states.

    ``base``: l, number of base parameters.

    Raises:
        NoCompilerError: there is none, or it fails.
    """
    names = {f"{f}_{m}": value for (f, m), value in found.values.items()}
    source = write_c(found.graph, found.joints, names)
    library = load(source)
    n, rng = found.joints, np.random.default_rng(3)
    b, k = rng.uniform(0.5, 1.0, base), np.empty(source.prepared)
    library.arm_prepare(_at(b), _at(k))
    states, seconds = rng.uniform(-1.0, 1.0, (3, _STATES, n)), dict.fromkeys(found.values, np.inf)
    out = np.empty(_STATES * max(len(value) for value in found.values.values()))
    for _ in range(_ROUNDS):
        for f, m in found.values:
            start = time.perf_counter()
            getattr(library, f"arm_{f}_{m}")(ctypes.c_long(_STATES), _at(k), *(_at(x) for x in states), _at(out))
            seconds[f, m] = min(seconds[f, m], (time.perf_counter() - start) / _STATES)
    return seconds


def _at(array: FloatArray) -> ctypes.c_void_p:
    return ctypes.c_void_p(array.ctypes.data)
