"""Expressions as a graph without repetitions, and the straight-line C99 that is written from it: no heap, no libraries.

A computation traced with :class:`GraphValue` in place of numbers folds constants, drops what is multiplied by zero,
keeps signs out of the nodes (``a - b`` and ``b - a`` are one node) and finds equal subexpressions. What depends on
parameters and constants alone is told from what depends on the state: it is computed once per set of parameters.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

__all__ = ["Graph", "GraphValue", "OperationCount", "Source", "write_c"]


@dataclass(frozen=True)
class OperationCount:
    """Operations that one evaluation takes, those of the parameters alone not counted."""

    multiplications: int
    additions: int
    divisions: int

    @property
    def total(self) -> int:
        """All of them."""
        return self.multiplications + self.additions + self.divisions


@dataclass(eq=False)
class Graph:
    """Nodes ``(operation, ...)``: ``("v", text)`` an input, ``("k", number)``, or ``("+" | "-" | "*" | "/", a, b)``."""

    nodes: list[tuple] = field(default_factory=list)  #: in an order in which each comes after what it is made of
    fixed: list[bool] = field(default_factory=list)  #: whether a node depends on parameters and constants alone
    _known: dict[tuple, int] = field(default_factory=dict)

    def node(self, *key: Any) -> int:
        """The number of a node, a new one if there is none like it."""
        found = self._known.get(key)
        if found is None:
            found = self._known[key] = len(self.nodes)
            self.nodes.append(key)
            self.fixed.append(key[0] == "k" or (key[0] != "v" and all(self.fixed[i] for i in key[1:])))
        return found

    def state(self, text: str) -> GraphValue:
        """An input that changes from call to call, written as ``text`` in code."""
        return GraphValue(self, 1.0, self.node("v", text))

    def parameter(self, text: str) -> GraphValue:
        """An input that code prepared for a set of parameters has read already."""
        value = self.state(text)
        self.fixed[value.index] = True
        return value

    def constant(self, x: float) -> GraphValue:
        """A number."""
        return GraphValue(self, -1.0 if x < 0 else 1.0, self.node("k", abs(float(x))))

    def needed(self, roots: list[int]) -> list[int]:
        """Nodes that roots are made of, in order."""
        seen, stack = set(), list(roots)
        while stack:
            index = stack.pop()
            if index in seen:
                continue
            seen.add(index)
            if self.nodes[index][0] in "+-*/":
                stack.extend(self.nodes[index][1:])
        return sorted(seen)

    def count(self, values: list[GraphValue]) -> OperationCount:
        """Operations for some values, given the state."""
        kinds = [self.nodes[i][0] for i in self.needed([v.index for v in values]) if not self.fixed[i]]
        return OperationCount(kinds.count("*"), kinds.count("+") + kinds.count("-"), kinds.count("/"))


class GraphValue:
    """A node with a sign; arithmetic with numbers and other values of one graph makes new ones."""

    __slots__ = ("graph", "index", "sign")

    def __init__(self, graph: Graph, sign: float, index: int) -> None:
        """``sign * node``."""
        self.graph, self.sign, self.index = graph, sign, index

    def _number(self) -> float | None:
        key = self.graph.nodes[self.index]
        return self.sign * key[1] if key[0] == "k" else None

    def _other(self, other: GraphValue | float) -> GraphValue:
        return other if isinstance(other, GraphValue) else self.graph.constant(other)

    def __neg__(self) -> GraphValue:
        return GraphValue(self.graph, -self.sign, self.index)

    def __pos__(self) -> GraphValue:
        return self

    def __add__(self, other: GraphValue | float) -> GraphValue:
        other = self._other(other)
        x, y = self._number(), other._number()
        if x == 0.0:
            return other
        if y == 0.0:
            return self
        if x is not None and y is not None:
            return self.graph.constant(x + y)
        a, b = (self, other) if self.index <= other.index else (other, self)
        if a.index == b.index:
            return self.graph.constant(0.0) if a.sign != b.sign else self * 2.0
        if a.sign == b.sign:
            return GraphValue(self.graph, a.sign, self.graph.node("+", a.index, b.index))
        return GraphValue(self.graph, a.sign, self.graph.node("-", a.index, b.index))

    def __sub__(self, other: GraphValue | float) -> GraphValue:
        return self + -self._other(other)

    def __mul__(self, other: GraphValue | float) -> GraphValue:
        other = self._other(other)
        x, y = self._number(), other._number()
        if x is not None and y is not None:
            return self.graph.constant(x * y)
        for number, value in ((x, other), (y, self)):
            if number == 0.0:
                return self.graph.constant(0.0)
            if number == 1.0:
                return value
            if number == -1.0:
                return -value
        a, b = sorted((self.index, other.index))
        return GraphValue(self.graph, self.sign * other.sign, self.graph.node("*", a, b))

    def __truediv__(self, other: GraphValue) -> GraphValue:
        if self._number() == 0.0:
            return self
        return GraphValue(self.graph, self.sign * other.sign, self.graph.node("/", self.index, other.index))

    __radd__ = __add__
    __rmul__ = __mul__

    def __rsub__(self, other: float) -> GraphValue:
        return -self + other

    def __rtruediv__(self, other: float) -> GraphValue:
        return self.graph.constant(other) / self


#: Cody and Waite's reduction by quarter turns, then the kernels of fdlibm; below 1e6 rad to some 2e-16.
_SINES = """\
static void sines(const double *q, double *s, double *c)
{
    for (int j = 0; j < N; ++j) {
        union { double d; unsigned long long u; } t;
        t.d = q[j] * 0.63661977236758134308 + 6755399441055744.0;
        const double n = t.d - 6755399441055744.0;
        const double r = ((q[j] - n * 1.57079632673412561417e+00) - n * 6.07710050630396597660e-11)
                         - n * 2.02226624879595063154e-21;
        const double z = r * r;
        const double a = r + r * z * (-1.66666666666666324348e-01 + z * (8.33333333332248946124e-03
            + z * (-1.98412698298579493134e-04 + z * (2.75573137070700676789e-06
            + z * (-2.50507602534068634195e-08 + z * 1.58969099521155010221e-10)))));
        const double b = 1.0 - 0.5 * z + z * z * (4.16666666666666019037e-02 + z * (-1.38888888888741095749e-03
            + z * (2.48015872894767294178e-05 + z * (-2.75573143513906633035e-07
            + z * (2.08757232129817482790e-09 + z * -1.13596475577881948265e-11)))));
        const double x = (t.u & 1) ? b : a, y = (t.u & 1) ? a : b;
        s[j] = (t.u & 2) ? -x : x;
        c[j] = ((t.u + 1) & 2) ? -y : y;
    }
}
"""


#: Coulomb friction's sign, linear below the transition velocity.
_SIGNS = """\
static void signs(const double *qd, double *sg)
{
    for (int j = 0; j < N; ++j) {
        const double x = SLOPE;
        sg[j] = x > 1.0 ? 1.0 : (x < -1.0 ? -1.0 : x);
    }
}
"""


@dataclass(frozen=True)
class Source:
    """Code of an arm."""

    text: str  #: C99
    #: names, each ``void arm_NAME(long count, const double *k, const double *q, const double *qd, const double *x,
    #: double *out)`` over rows of states; x is qdd, or tau of forward dynamics
    functions: tuple[str, ...]
    prepared: int  #: numbers that ``void arm_prepare(const double *b, double *k)`` makes of base parameters


def _number(x: float) -> str:
    return repr(float(x))


def _statements(graph: Graph, wanted: Sequence[int], names: dict[int, str]) -> list[str]:
    """Declarations of nodes, in order; ``names`` gets theirs."""
    lines = []
    for index in wanted:
        if index in names:
            continue
        key = graph.nodes[index]
        if key[0] == "v":
            names[index] = str(key[1])
        elif key[0] == "k":
            names[index] = _number(key[1])
        else:
            names[index] = f"t{index}"
            lines.append(f"    const double t{index} = {names[key[1]]} {key[0]} {names[key[2]]};")
    return lines


def write_c(
    graph: Graph,
    joints: int,
    functions: Mapping[str, Sequence[GraphValue | float]],
    prefix: str = "arm",
    transition: float = 0.0,
    inner: bool = False,
) -> Source:
    """The code.

    Args:
        transition: velocity below which the sign of friction is linear, rad/s; 0: it is the sign.
        inner: only ``static void one_NAME(k, q, qd, qdd, tau, out)``, for code that follows, of values without
            parameters.
    """
    roots = {name: [v.index for v in values if isinstance(v, GraphValue)] for name, values in functions.items()}
    stored: dict[int, str] = {}
    for indices in roots.values():
        used = graph.needed(indices)
        direct = {i for k in used if not graph.fixed[k] for i in graph.nodes[k][1:] if graph.nodes[k][0] in "+-*/"}
        for index in sorted(direct | set(indices)):
            if graph.fixed[index] and graph.nodes[index][0] != "k" and index not in stored:
                stored[index] = f"k[{len(stored)}]"
    lines = [f"#define N {joints}", "", _SINES if joints else ""]
    signed = ("v", "sg[0]") in graph.nodes
    if signed:
        slope = f"qd[j] / {_number(transition)}" if transition > 0.0 else "(qd[j] > 0.0) - (qd[j] < 0.0)"
        lines += [_SIGNS.replace("SLOPE", slope)]
    names: dict[int, str] = {}
    if not inner:
        lines += [f"void {prefix}_prepare(const double *b, double *k)", "{"]
        lines += _statements(graph, graph.needed(list(stored)), names)
        lines += [f"    {place} = {names[index]};" for index, place in stored.items()]
        lines += ["}", ""]
    for name, values in functions.items():
        names = dict(stored)
        body = [i for i in graph.needed(roots[name]) if not graph.fixed[i] or graph.nodes[i][0] == "k"]
        lines += [
            f"static void one_{name}(const double *k, const double *q, const double *qd, const double *qdd,",
            "    const double *tau, double *out)",
            "{",
            "    double s[N], c[N];",
            "    sines(q, s, c);",
            *(["    double sg[N];", "    signs(qd, sg);", "    (void)sg;"] if signed else []),
            *_statements(graph, body, names),
        ]
        for place, value in enumerate(values):
            if isinstance(value, GraphValue):
                sign = "-" if value.sign < 0 else ""
                lines.append(f"    out[{place}] = {sign}{names[value.index]};")
            else:
                lines.append(f"    out[{place}] = {_number(value)};")
        lines += ["    (void)k; (void)q; (void)qd; (void)qdd; (void)tau; (void)s; (void)c;", "}", ""]
        if inner:
            continue
        lines += [
            f"void {prefix}_{name}(long count, const double *k, const double *q, const double *qd, const double *x,",
            "    double *out)",
            "{",
            "    for (long i = 0; i < count; ++i)",
            f"        one_{name}(k, q + N * i, qd + N * i, x + N * i, x + N * i, out + {len(values)} * i);",
            "}",
            "",
        ]
    return Source("\n".join(lines), tuple(functions), len(stored))
