"""Projection of an estimate into the proved set: the nearest consistent arm with base parameters in their intervals."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from safe_sysid.core.layout import ParameterLayout
from safe_sysid.identification.arm.estimates.consistent import Fit, ProvedSet, fit_consistent
from safe_sysid.identification.arm.estimates.estimate import ArmEstimate, ArmPrior, never_negative

__all__ = ["agreeing"]


def agreeing(found: ArmEstimate, layout: ParameterLayout, known: ArmPrior, inside: ProvedSet) -> ArmEstimate:
    """Find the consistent arm inside the proved set that is nearest to the estimate, measured in standard errors.

    ``found``: estimate of the layout's parameters alone, consistent.

    Raises:
        ParameterError: the solver finds none.
    """
    fixed = np.zeros(layout.size, bool) if known.fixed is None else np.asarray(known.fixed, bool)
    errors = found.standard_errors
    shares = np.where(np.isfinite(errors), 1.0 / np.maximum(errors, 1e-300), 0.0)
    fit = Fit(np.diag(shares), found.base.matrix, found.values)
    never = never_negative(layout, known)
    theta = fit_consistent(fit, layout, found.theta, fixed, never, known.boxes, 0.0, inside)
    values = found.base.matrix @ np.where(fixed, 0.0, theta)
    return replace(found, theta=theta, values=values)
