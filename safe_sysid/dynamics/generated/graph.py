"""Expressions as a graph without repetitions, from which straight-line code is written.

Tracing a computation with :class:`Value` s in place of numbers folds constants, drops what is multiplied by zero, keeps
signs out of the nodes (``a - b`` and ``b - a`` are one node) and finds equal subexpressions. What depends on parameters
and constants alone is told from what depends on the state: it is computed once per set of parameters.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

__all__ = ["Count", "Graph", "Value"]


@dataclass(frozen=True)
class Count:
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

    def state(self, text: str) -> Value:
        """An input that changes from call to call, written as ``text`` in code."""
        return Value(self, 1.0, self.node("v", text))

    def parameter(self, text: str) -> Value:
        """An input that code prepared for a set of parameters has read already."""
        value = self.state(text)
        self.fixed[value.index] = True
        return value

    def constant(self, x: float) -> Value:
        """A number."""
        return Value(self, -1.0 if x < 0 else 1.0, self.node("k", abs(float(x))))

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

    def count(self, values: list[Value]) -> Count:
        """Operations for some values, given the state."""
        kinds = [self.nodes[i][0] for i in self.needed([v.index for v in values]) if not self.fixed[i]]
        return Count(kinds.count("*"), kinds.count("+") + kinds.count("-"), kinds.count("/"))


class Value:
    """A node with a sign; arithmetic with numbers and other values of one graph makes new ones."""

    __slots__ = ("graph", "index", "sign")

    def __init__(self, graph: Graph, sign: float, index: int) -> None:
        """``sign * node``."""
        self.graph, self.sign, self.index = graph, sign, index

    def _number(self) -> float | None:
        key = self.graph.nodes[self.index]
        return self.sign * key[1] if key[0] == "k" else None

    def _other(self, other: Value | float) -> Value:
        return other if isinstance(other, Value) else self.graph.constant(other)

    def __neg__(self) -> Value:
        return Value(self.graph, -self.sign, self.index)

    def __pos__(self) -> Value:
        return self

    def __add__(self, other: Value | float) -> Value:
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
            return Value(self.graph, a.sign, self.graph.node("+", a.index, b.index))
        return Value(self.graph, a.sign, self.graph.node("-", a.index, b.index))

    def __sub__(self, other: Value | float) -> Value:
        return self + -self._other(other)

    def __mul__(self, other: Value | float) -> Value:
        other = self._other(other)
        x, y = self._number(), other._number()
        if x is not None and y is not None:
            return self.graph.constant(x * y)
        for number, value in ((x, other), (y, self)):
            if number == 0.0:
                return self.graph.constant(0.0)
            if number in (1.0, -1.0):
                return value if number > 0 else -value
        a, b = sorted((self.index, other.index))
        return Value(self.graph, self.sign * other.sign, self.graph.node("*", a, b))

    def __truediv__(self, other: Value) -> Value:
        if self._number() == 0.0:
            return self
        return Value(self.graph, self.sign * other.sign, self.graph.node("/", self.index, other.index))

    __radd__ = __add__
    __rmul__ = __mul__

    def __rsub__(self, other: float) -> Value:
        return -self + other

    def __rtruediv__(self, other: float) -> Value:
        return self.graph.constant(other) / self
