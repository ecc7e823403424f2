"""What the arguments of a launch and its parameter file declare of an arm, judged before anything starts; no ROS."""

from __future__ import annotations

from pathlib import Path

from safe_sysid_launch.arm_files import Arm, load_arm

from safe_sysid.apps.check.parameters import given_to_nodes, is_parameter_file
from safe_sysid.errors import ConfigError
from safe_sysid.resources import resource_path
from safe_sysid.robot.files.yaml_file import read_yaml
from safe_sysid.robot.overrides import SETTINGS, given_settings, overrides_of

__all__ = ["UNKNOWN_TIMEOUT", "declared_arm", "refuse_simulated", "why_not_commanded"]

#: Parameters of all nodes with which real time refuses to become active.
UNKNOWN_TIMEOUT = {f"{SETTINGS}.driver.command_timeout_s": "null"}
_ARGUMENTS = "arguments of the launch"


def declared_arm(robot: str, params_file: str = "", namespace: str = "") -> Arm:
    """The arm as the nodes will have it: the robot file with the settings that the parameter file replaces.

    Args:
        robot: name of a packaged robot, or path of a robot file.
        params_file: ROS parameter file for the nodes; "" for none.
        namespace: of the nodes.

    Raises:
        ConfigError: the parameter file names another robot, or has settings that not all nodes get.
        SafeSysIdError: what cannot be used, by file, key and value.
    """
    if not params_file:
        return load_arm(robot)
    data = read_yaml(Path(params_file))
    if not is_parameter_file(data):
        raise ConfigError(params_file, "file", sorted(map(str, data)), "ROS parameters (ros__parameters)")
    given = given_to_nodes(data, namespace.strip("/"))
    nodes = [given[kind] for kind in ("controller", "planner", "identifier")]
    for values in nodes:
        if values.get("robot", robot) != robot:
            raise ConfigError(params_file, "robot", values["robot"], f"{robot}, or none: the argument robot:= says it")
    settings = [given_settings(values) for values in nodes]
    if settings[0] != settings[1] or settings[0] != settings[2]:
        differing = sorted({key for one in settings for key in one if any(key not in s for s in settings)})
        raise ConfigError(
            params_file, SETTINGS, differing or "values", "the same for all nodes, under /**, as they must agree"
        )
    return load_arm(robot, overrides_of(settings[0]))


def refuse_simulated(arm: Arm, accepted: bool) -> None:
    """Refuse a packaged robot file for a real arm: it declares what the simulation does.

    Args:
        arm: as the nodes will have it.
        accepted: whether the user knows.

    Raises:
        ConfigError: it is one, and the user does not.
    """
    packaged = resource_path("config").resolve()
    if accepted or packaged not in arm.file.resolve().parents:
        return
    driver, measurement = arm.settings.driver, arm.settings.measurement
    raise ConfigError(
        _ARGUMENTS,
        "robot",
        str(arm.file),
        "a robot file of your own, for this one declares the simulation "
        f"(driver.command_timeout_s: {driver.command_timeout_s}, measurement.position_error: "
        f"{measurement.position_error}, measurement.velocity_error: {measurement.velocity_error}): copy it and declare "
        "what your arm and its driver do; simulated_declarations:=accept is for a simulated arm in the driver's place",
    )


def why_not_commanded(arm: Arm, stops: bool, activate: bool, controller: str) -> str:
    """Why the controller must not become active, "" if nothing the user says speaks against it.

    Args:
        arm: as the nodes will have it.
        stops: whether the user declares that the arm stops when commands cease.
        activate: whether the launch is to activate the nodes.
        controller: what takes the commands.

    Raises:
        ConfigError: the launch is to activate what must not become active.
    """
    if stops:
        return ""
    expected = (
        f"driver_stops_without_commands:=yes, once it is true: that the arm brakes or holds by itself when no command "
        f"has come through {controller} for driver.command_timeout_s ({arm.settings.driver.command_timeout_s} s); "
        "ros2_control's forward_command_controller keeps the last torque for ever (docs/use/launch.md)"
    )
    if activate:
        raise ConfigError(_ARGUMENTS, "driver_stops_without_commands", "no", expected)
    return f"the controller will refuse to become active: expected {expected}"
