"""Estimates of an arm's parameters: least squares, consistent with physics, friction's form, residuals."""
