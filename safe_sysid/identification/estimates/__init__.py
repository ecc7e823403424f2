"""Physically consistent point estimates inside the proved bounds. None of them carries a guarantee."""

from safe_sysid.identification.estimates.centre import NearRows, analytic_centre
from safe_sysid.identification.estimates.log_cholesky_map import log_cholesky_derivatives
from safe_sysid.identification.estimates.newton import LogCholeskyAnswer, cost_and_derivatives, fit_log_cholesky
from safe_sysid.identification.estimates.nominal import ESTIMATES, NominalEstimate
from safe_sysid.identification.estimates.projected import body_margin, make_consistent, project_payload, solve_convex
from safe_sysid.identification.estimates.quadratic import NormalEquations, Quadratic

__all__ = [
    "ESTIMATES",
    "LogCholeskyAnswer",
    "NearRows",
    "NominalEstimate",
    "NormalEquations",
    "Quadratic",
    "analytic_centre",
    "body_margin",
    "cost_and_derivatives",
    "fit_log_cholesky",
    "log_cholesky_derivatives",
    "make_consistent",
    "project_payload",
    "solve_convex",
]
