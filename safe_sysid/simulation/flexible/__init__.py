"""A simulated arm with what rigid models miss: flexible joints, stick-slip, ripple, cogging, sensors' errors."""

from safe_sysid.simulation.flexible.arm import FlexibleArm
from safe_sysid.simulation.flexible.effects import Effects, read_effects

__all__ = ["Effects", "FlexibleArm", "read_effects"]
