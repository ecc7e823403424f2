"""Configuration of a new arm from its URDF: geometry fitted, drives unknown unless somebody says what they are."""

from safe_sysid.new_arm.configuration import NewArm, write_configuration

__all__ = ["NewArm", "write_configuration"]
