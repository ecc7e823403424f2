"""The arm itself from logs of it: base parameters, consistent estimates, friction, residuals and intervals."""
