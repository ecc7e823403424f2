"""Gaussian processes of torques: kernels that know Lagrange, and regression with them."""
