"""Trajectories: exact polynomial segments, their exact ranges, and plans."""

from safe_sysid.trajectories.plan import Plan, parse_identity
from safe_sysid.trajectories.quintic import QuinticTrajectory

__all__ = ["Plan", "QuinticTrajectory", "parse_identity"]
