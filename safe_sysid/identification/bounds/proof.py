r"""Proof of one update: the rows, cuts and multipliers that prove its 20 bounds from the logs.

Unknowns ``x = (theta (14 n), theta_h (10), d (10), f (3 n), z (E))``, ``theta_e`` the last link's ten of theta. Known:
``theta`` in ``box``, ``theta_h`` in ``[hand_lower, hand_upper]``, ``|d| <= opening``, ``|f| <= drift``, z in the arm's
:class:`~safe_sysid.robot.unknowns.Unknowns`; where a
constant sensor error is declared, ``box`` is first widened by :func:`sensor_prior`. For each row ``|a.x - target| <=
slack`` (a row with ``log = 1`` is of a tare: its ten theta_e columns multiply theta_h instead, and its columns Fc, Fv,
beta multiply theta and f: friction at the tare was theta + f); for each cut
``g.(theta_e - theta_h - d) >= constant`` with g from :meth:`CutSet.coefficients`.

Signs. Row k of the multipliers, k < 10, proves a lower bound of ``c.x = theta_e[k]``; row 10 + k an upper one. With y
the multipliers of rows, of either sign, and lambda >= 0 those of cuts,

* lower: ``c.x >= sum_i min(y_i lo_i, y_i hi_i) + sum_j lambda_j constant_j + min r.x``, ``r = c - A^T y - C^T lambda``,
* upper: ``c.x <= sum_i max(y_i lo_i, y_i hi_i) - sum_j lambda_j constant_j + max r.x``, ``r = c - A^T y + C^T lambda``,

with ``lo, hi = target -+ slack`` and ``r.x`` over the four boxes. A bound that no program improved has zeros only: it
is that of ``box``, and the formulas give it.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from safe_sysid.core.arrays import FloatArray
from safe_sysid.errors import ParameterError
from safe_sysid.identification.bounds.consistency import CutSet
from safe_sysid.identification.equations.momentum import MomentumRows
from safe_sysid.robot.parameters import ParameterBox, frozen_array

__all__ = ["MARGIN", "UpdateProof"]

#: Share of the prior's width by which published bounds lie outside the proved ones: room for the rounding of a checker
#: that rebuilds the rows with interval kinematics.
MARGIN = 1e-7


@dataclass(frozen=True, eq=False)
class UpdateProof:
    """What an independent checker needs besides the logs."""

    rows: MomentumRows  #: those with a non-zero multiplier in one of the 20 programs
    cuts: CutSet
    #: (20, M) first ten for lower, last ten for upper bounds; signs as in the module's text
    row_multipliers: FloatArray
    cut_multipliers: FloatArray  #: (20, K) >= 0
    box: ParameterBox  #: of all 14 n parameters, in force when solved: the last one published
    hand_lower: FloatArray  #: (10,) prior of theta_h
    hand_upper: FloatArray  #: (10,) prior of theta_h
    opening: FloatArray  #: (10,) what opening the hand changes
    drift: FloatArray  #: (3 n,) by how much Fc, Fv, beta may have changed since the tare; zeros without one
    lower: FloatArray  #: (10,) published
    upper: FloatArray  #: (10,) published

    def __post_init__(self) -> None:
        """Validate and freeze.

        Raises:
            ParameterError: a shape, or a negative multiplier of a cut.
        """
        for name, shape in (
            ("row_multipliers", (20, len(self.rows))),
            ("cut_multipliers", (20, len(self.cuts))),
            ("drift", self.box.layout.drifting.shape),
            *((name, (10,)) for name in ("hand_lower", "hand_upper", "opening", "lower", "upper")),
        ):
            object.__setattr__(self, name, frozen_array(getattr(self, name), shape, f"UpdateProof.{name}"))
        if np.any(self.cut_multipliers < 0.0):
            raise ParameterError("UpdateProof.cut_multipliers: expected numbers >= 0")
