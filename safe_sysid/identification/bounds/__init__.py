"""From equations and consistency cuts to proved intervals, and what proves them."""
