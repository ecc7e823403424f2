"""From samples to linear equations in the parameters, each with a proved error."""
