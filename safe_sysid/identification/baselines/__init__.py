"""PSO's sensitivity bounds and classical least squares, to compare with: docs/understand/identification.md."""

from safe_sysid.identification.baselines.least_squares import LeastSquaresFit, fit_irls, fit_ols
from safe_sysid.identification.baselines.methods import METHODS, estimate_with
from safe_sysid.identification.baselines.recursive import RecursiveLeastSquares
from safe_sysid.identification.baselines.result import BaselineResult
from safe_sysid.identification.baselines.sensitivity import VARIANTS, estimate_sensitivity

__all__ = [
    "METHODS",
    "VARIANTS",
    "BaselineResult",
    "LeastSquaresFit",
    "RecursiveLeastSquares",
    "estimate_sensitivity",
    "estimate_with",
    "fit_irls",
    "fit_ols",
]
