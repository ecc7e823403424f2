"""A configuration for a new arm, from its URDF."""

from safe_sysid.new_arm.configuration import write_configuration

__all__ = ["write_configuration"]
