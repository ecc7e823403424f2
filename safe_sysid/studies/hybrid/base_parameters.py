"""Table V of [Hybrid]: the 43 base parameters of the arm's links, as its authors combine and found them."""

from __future__ import annotations

import re
from collections.abc import Mapping
from fractions import Fraction
from typing import Any

import numpy as np
from rich.table import Table

from safe_sysid.core.arrays import FloatArray
from safe_sysid.core.layout import PAYLOAD_NAMES, PER_LINK
from safe_sysid.robot.parameters import transform_inertial

__all__ = ["ROWS", "combinations", "summary_5", "table_5"]

#: Combination (L: inertia about a link frame's origin, l: first moment), DiffBary's value, the SDP's. Two are printed
#: wrong and corrected here, as the regressor demands: the twelfth as `- 1089/160000 (-m3 - ..)`, the sixteenth with
#: `6/125 l5y`.
ROWS: tuple[tuple[str, float, float], ...] = (
    ("L1yy + L2zz", 0.1424, 0.0544),
    ("L2xx - L2zz + L3zz + 79/125 l3y + 372199/4000000 (m3 + m4 + m5 + m6 + m7)", 1.2109, 1.714),
    ("L2xy", -0.0056, -0.0004),
    ("L2xz", 0.0206, 0.0345),
    ("L2yy + L3zz + 79/125 l3y + 372199/4000000 (m3 + m4 + m5 + m6 + m7)", 1.2202, 1.7249),
    ("L2yz", -0.0622, 0.006),
    ("l2x", -0.0569, -0.0541),
    ("l2z + l3y + 79/250 (m3 + m4 + m5 + m6 + m7)", 3.4407, 3.4225),
    ("L3xx - L3zz + L4zz + 1089/160000 m3", 0.0086, -0.0089),
    ("L3xy - 33/400 l3y", -0.0105, -0.148),
    ("L3xz", -0.0001, 0.0023),
    ("L3yy + L4zz - 1089/160000 (m3 + 2m4 + 2m5 + 2m6 + 2m7)", -0.087, -0.0299),
    ("L3yz", -0.0116, 0.0057),
    ("l3x + 33/400 (m3 + m4 + m5 + m6 + m7)", 0.8456, 0.8115),
    ("l3z - l4y", -0.0084, -0.0116),
    ("L4xx - L4zz + L5zz + 96/125 l5y + 1089/160000 m4 + 617049/4000000 (m5 + m6 + m7)", 0.7681, 0.8251),
    ("L4xy + 33/400 l4y", 0.0009, -0.0037),
    ("L4xz", -0.0001, 0.0191),
    ("L4yy + L5zz + 96/125 l5y - 1089/160000 m4 + 562599/4000000 (m5 + m6 + m7)", 0.6821, 0.7754),
    ("L4yz", -0.0029, 0.0011),
    ("l4x - 33/400 (m4 + m5 + m6 + m7)", -0.5214, -0.5167),
    ("l4z + l5y + 48/125 (m5 + m6 + m7)", 2.0557, 2.059),
    ("L5xx - L5zz + L6zz - 121/15625 (m6 + m7)", 0.0367, -0.0018),
    ("L5xy", -0.0009, 0.0124),
    ("L5xz", 0.0004, 0.0008),
    ("L5yy + L6zz - 121/15625 (m6 + m7)", 0.0369, 0.0267),
    ("L5yz", 0.0053, 0.0004),
    ("l5x", 0.0071, 0.0061),
    ("l5z + l6y", -0.0887, -0.0883),
    ("L6xx - L6zz + L7yy + 107/500 l7z + 121/15625 m6 + 19193/1000000 m7", 0.0099, 0.0146),
    ("L6xy - 11/125 l6y", -0.0152, -0.0077),
    ("L6xz", -0.0176, -0.0003),
    ("L6yy + L7yy + 107/500 l7z - 121/15625 m6 + 741/200000 m7", 0.0379, 0.0155),
    ("L6yz", -0.0068, 0.0005),
    ("l6x + 11/125 (m6 + m7)", 0.2211, 0.2234),
    ("l6z + l7z + 107/1000 m7", 0.1648, 0.165),
    ("L7xx - L7yy", 0.0002, -0.0009),
    ("L7xy", -0.0004, -0.0006),
    ("L7xz", -0.0006, 0.0018),
    ("L7yz", -0.0007, 0.001),
    ("L7zz", 0.0009, 0.0043),
    ("l7x", 0.0072, 0.0086),
    ("l7y", 0.0095, 0.0099),
)
#: Frames of the table: at the far end of each link (Denavit and Hartenberg's), in our joint frames: shift along x,
#: quarter turns about x, shift along z.
_FRAMES = (
    (0.0, -1, 0.0), (0.0, 1, 0.0), (0.0825, 1, 0.0), (-0.0825, -1, 0.0), (0.0, 1, 0.0), (0.088, 1, 0.0),
    (0.0, 0, 0.107),
)  # fmt: skip
_TERM = re.compile(r"([+-]?)\s*(\d+(?:/\d+)?)?\s*(\(([^)]*)\)|[Ll]\d[xyz]+|m\d)")


def _terms(text: str) -> list[tuple[Fraction, str]]:
    out: list[tuple[Fraction, str]] = []
    for sign, number, symbol, group in _TERM.findall(text):
        factor = Fraction(number or 1) * (-1 if sign == "-" else 1)
        out += [(factor * c, s) for c, s in _terms(group)] if group else [(factor, symbol)]
    return out


def _index(symbol: str) -> int:
    """Of a symbol as L2xx, l3y or m4 in the links' parameters."""
    kind, link, axes = symbol[0], int(symbol[1]) - 1, symbol[2:]
    name = {"m": "m", "l": f"mc{axes}", "L": f"I{axes}"}[kind]
    return PER_LINK * link + PAYLOAD_NAMES.index(name)


def combinations() -> FloatArray:
    """(43, 70) of the table's rows over the links' parameters in our frames."""
    rows = np.zeros((len(ROWS), PER_LINK * len(_FRAMES)))
    for k, (text, _, _) in enumerate(ROWS):
        for factor, symbol in _terms(text):
            rows[k, _index(symbol)] += float(factor)
    moved = np.zeros((rows.shape[1], rows.shape[1]))
    for link, (x, turn, z) in enumerate(_FRAMES):
        rotation = np.array([[1.0, 0.0, 0.0], [0.0, 1.0 - abs(turn), -turn], [0.0, turn, 1.0 - abs(turn)]])
        shift, o = np.array([x, 0.0, z]), PER_LINK * link
        for i in range(PER_LINK):
            moved[o : o + PER_LINK, o + i] = transform_inertial(rotation.T, -rotation.T @ shift, np.eye(PER_LINK)[i])
    return rows @ moved


def summary_5(thetas: Mapping[str, FloatArray], truth: FloatArray) -> dict[str, Any]:
    """Base parameters of models, for programs.

    ``thetas``: (14 n,) parameters by model; ``truth``: (14 n,) of the simulated arm.
    Returns ``rows``: combination, true, ``models`` by name, and the paper's two, which are of another arm with a hand.
    """
    matrix = combinations()
    size = matrix.shape[1]
    true, found = matrix @ truth[:size], {name: matrix @ theta[:size] for name, theta in thetas.items()}
    rows = [
        {
            "combination": text,
            "true": float(true[k]),
            "models": {name: float(values[k]) for name, values in found.items()},
            "paper_diffbary": diffbary,
            "paper_sdp": sdp,
        }
        for k, (text, diffbary, sdp) in enumerate(ROWS)
    ]
    return {"table": "5", "rows": rows}


def table_5(told: dict[str, Any]) -> Table:
    """For people."""
    out = Table(title="Table V: base parameters of the links", caption="kg, kg m, kg m^2; paper: a real arm")
    out.add_column("combination")
    models = list(told["rows"][0]["models"])
    for name in ("true", *models, "paper: DiffBary", "SDP"):
        out.add_column(name, justify="right")
    for row in told["rows"]:
        values = (row["true"], *row["models"].values(), row["paper_diffbary"], row["paper_sdp"])
        out.add_row(row["combination"], *(f"{value:.4f}" for value in values))
    return out
