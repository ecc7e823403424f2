"""Studies of what a plan is chosen by: which cost narrows the bounds fastest, and PSO's tables IV and V."""
