r"""Causes of wide intervals: each width is split by cause, with the multipliers of its proof.

An update proves ``c.x <= y.(A x) + r.x`` with ``r = c - A^T y +- C^T lambda``: of the width, row i has
``2 |y_i| slack_i``, and slack is made of parts by cause; unknown k of arm and hand has ``2 |r_k| rad_k``, and a
component of theta_e ``|r_k|`` times the causes of its own width before the update, which are the prior's at first.
Means of lower and upper bound; they add up to the width where cuts and centres leave nothing, else to a little more, so
shares are told.
"""

from __future__ import annotations

import numpy as np

from safe_sysid.identification.bounds.proof import UpdateProof
from safe_sysid.identification.equations.row_errors import ERROR_CAUSES
from safe_sysid.robot.parameters import ParameterBox

__all__ = ["CAUSES", "WidthCauses"]

CAUSES = ("torque error", "arm parameters", "friction", "velocity and position errors", "sampling", "excitation")
_TORQUE, _ARM, _FRICTION, _STATE, _SAMPLING, _EXCITATION = range(len(CAUSES))
_OF_SLACK = {
    "torque": _TORQUE,
    "drift": _TORQUE,
    "delay": _TORQUE,
    "coulomb": _FRICTION,
    "friction": _FRICTION,
    "momentum": _STATE,
    "gravity": _STATE,
}


class WidthCauses:
    """Follows the widths of theta_e through updates, cause by cause."""

    def __init__(self, prior: ParameterBox) -> None:
        """Start with the prior, all of which the motion has yet to excite. ``prior``: box of all 14 n parameters."""
        self._parts = np.zeros((10, len(CAUSES)))
        self._parts[:, _EXCITATION] = prior.payload_upper - prior.payload_lower
        layout = prior.layout
        self._unknown = np.full(layout.size, _ARM)
        for block in (layout.coulomb, layout.viscous, layout.offset):
            self._unknown[block] = _FRICTION

    def add(self, proof: UpdateProof) -> None:
        """Add the proof of an update."""
        box, rows = proof.box, proof.rows
        payload = box.layout.payload
        slack = np.zeros((len(rows), len(CAUSES)))
        for k, cause in enumerate(ERROR_CAUSES):
            slack[:, _OF_SLACK.get(cause, _SAMPLING)] += rows.parts[:, k]
        tare = rows.log == 1
        found = np.zeros_like(self._parts)
        for k in range(20):
            y = proof.row_multipliers[k]
            if not (np.any(y) or np.any(proof.cut_multipliers[k])):
                found[k % 10] += 0.5 * self._parts[k % 10]  # as it was
                continue
            cut = proof.cut_multipliers[k] @ proof.cuts.coefficients() * (-1.0 if k < 10 else 1.0)
            rest = -(y @ rows.matrix)
            hand = rest[payload] + y[~tare] @ rows.matrix[~tare][:, payload] - cut
            rest[payload] = cut - y[~tare] @ rows.matrix[~tare][:, payload]
            rest[payload][k % 10] += 1.0
            widths = np.abs(rest) * 2.0 * box.rad
            widths[payload] = 0.0
            whole = 2.0 * np.abs(y) @ slack + np.abs(rest[payload]) @ self._parts
            np.add.at(whole, self._unknown[: len(widths)], widths)
            whole[_ARM] += np.abs(hand) @ (proof.hand_upper - proof.hand_lower) + 2.0 * np.abs(cut) @ proof.opening
            found[k % 10] += 0.5 * whole
        # Bounds of an update may be those of the last one: the causes then, too, but never more than before.
        self._parts = found

    def shares(self, component: int = 0) -> dict[str, float]:
        """Shares of the width of a component of theta_e by cause, the largest first; they add up to 1.

        ``component``: of the ten; 0: the mass.
        """
        parts = self._parts[component]
        total = float(parts.sum()) or 1.0
        order = np.argsort(-parts, kind="stable")
        return {CAUSES[k]: float(parts[k]) / total for k in order}
