"""From a URDF file and a YAML file to a :class:`RobotModel`. Knows no robot by name."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pinocchio as pin
from numpy.typing import NDArray

from safe_sysid.errors import ConfigError, ModelError
from safe_sysid.resources import share_directory
from safe_sysid.robot.config import JointSettings, Settings, load_settings
from safe_sysid.robot.geometry import allowed_pairs, build_bodies
from safe_sysid.robot.model import MAX_JOINTS, JointLimits, Kinematics, RobotModel
from safe_sysid.robot.parameters import ParameterBox
from safe_sysid.robot.scene import config_path
from safe_sysid.robot.urdf import UrdfChain, UrdfJoint, read_urdf

__all__ = ["load_robot"]

FloatArray = NDArray[np.float64]


def load_robot(name_or_path: str | Path, **overrides: Any) -> RobotModel:
    """Load an arm.

    Args:
        name_or_path: name of a packaged robot (``kinova_gen3``), or path of a YAML file.
        overrides: settings that replace the file's, as ``measurement={"torque_abs": 0.2}`` or
            ``**{"measurement.torque_abs": 0.2}``.

    Raises:
        ConfigError: a setting that is missing, unknown, out of range or does not fit the URDF.
        ModelError: a URDF that is no serial arm of 1 to 9 revolute or continuous joints, or is broken.
    """
    path = config_path(name_or_path, "config")
    settings = load_settings(path, overrides)
    chain = read_urdf(_find_urdf(path, settings))
    return _build(str(path), settings, chain)


def _find_urdf(config: Path, settings: Settings) -> Path:
    given = Path(settings.urdf).expanduser()
    folders = [config.parent, config.parent.parent / "urdf", share_directory() / "urdf"]
    for candidate in [folder / given for folder in folders]:  # an absolute path swallows the folder
        if candidate.is_file():
            return candidate
    searched = ", ".join(dict.fromkeys(str(folder) for folder in folders))
    raise ConfigError(str(config), "urdf", settings.urdf, f"a URDF file (searched: {searched})")


def _build(file: str, settings: Settings, chain: UrdfChain) -> RobotModel:
    n = len(chain.joints)
    if n > MAX_JOINTS:
        raise ModelError(f"{chain.file}: {n} moving joints: expected 1 to {MAX_JOINTS}")
    _check_names(file, settings, chain)
    try:
        model = pin.buildModelFromXML(chain.text_for_pinocchio(tuple(chain.link_joint)))
    except Exception as error:  # what Pinocchio raises differs from version to version
        raise ModelError(f"{chain.file}: Pinocchio cannot read it ({error}): expected a URDF file") from error
    names = tuple(joint.name for joint in chain.joints)
    if tuple(model.names)[1:] != names or model.nv != n or model.nq != n:
        raise ModelError(
            f"{chain.file}: Pinocchio finds joints {list(model.names)[1:]}: expected {list(names)}"
        )

    joints = [settings.joints[name] for name in names]
    limits = _limits(file, chain, joints)
    _check_home(file, settings, names, limits)
    theta = _theta_nominal(model, joints)
    bodies = build_bodies(chain, model, settings, file)
    kinematics = _kinematics(model, settings)
    flange = model.frames[model.getFrameId(settings.tool_frame, pin.FrameType.BODY)].placement
    return RobotModel(
        name=settings.name,
        joint_names=names,
        kinematics=kinematics,
        limits=limits,
        continuous=np.isinf(limits.position_upper),
        theta_nominal=theta,
        arm_prior=_arm_prior(theta, settings),
        friction_transition_velocity=settings.friction_transition_velocity,
        flange=(_read_only(flange.rotation), _read_only(flange.translation)),
        bodies=bodies,
        allowed_pairs=allowed_pairs(bodies, settings.allowed_pairs, file, kinematics),
        settings=settings,
    )


def _read_only(values: Any) -> FloatArray:
    array = np.array(values, dtype=float, order="C")
    array.setflags(write=False)
    return array


def _check_names(file: str, settings: Settings, chain: UrdfChain) -> None:
    names = [joint.name for joint in chain.joints]
    for name in names:
        if name not in settings.joints:
            raise ConfigError(
                file, f"joints.{name}", "missing", f"an entry for every moving joint of {chain.file}"
            )
    for name in settings.joints:
        if name not in names:
            raise ConfigError(
                file, f"joints.{name}", name, f"only moving joints of {chain.file}: {', '.join(names)}"
            )
    if settings.base_link is not None and settings.base_link != chain.root:
        raise ConfigError(
            file, "base_link", settings.base_link, f"the root link of {chain.file}: {chain.root}"
        )
    carrier = chain.link_joint.get(settings.tool_frame)
    if carrier != len(names) - 1:
        raise ConfigError(
            file,
            "tool_frame",
            settings.tool_frame,
            f"a link of {chain.file} that the last joint {names[-1]!r} moves",
        )


def _limits(file: str, chain: UrdfChain, joints: list[JointSettings]) -> JointLimits:
    """The settings' limits, the URDF's where those say nothing."""
    lower: list[float] = []
    upper: list[float] = []
    velocity: list[float] = []
    torque: list[float] = []
    for urdf, joint in zip(chain.joints, joints, strict=True):
        low, high = _position_limits(file, chain, urdf, joint)
        lower.append(low)
        upper.append(high)
        for key, ours, theirs, values in (
            ("velocity", joint.velocity, urdf.velocity, velocity),
            ("torque", joint.torque, urdf.effort, torque),
        ):
            value = theirs if ours is None else ours
            if value is None or not value > 0.0:
                expected = f"a number > 0 here or in {chain.file} (there: {theirs})"
                raise ConfigError(file, f"joints.{urdf.name}.{key}", "missing", expected)
            values.append(value)
    return JointLimits(np.array(lower), np.array(upper), np.array(velocity), np.array(torque))


def _position_limits(
    file: str, chain: UrdfChain, urdf: UrdfJoint, joint: JointSettings
) -> tuple[float, float]:
    if joint.position == "continuous" or (joint.position is None and urdf.kind == "continuous"):
        return -np.inf, np.inf
    if joint.position is not None:
        return joint.position
    if urdf.lower is None or urdf.upper is None or not urdf.lower < urdf.upper:
        raise ConfigError(
            file,
            f"joints.{urdf.name}.position",
            "missing",
            f"[lower, upper] in rad or `continuous`, here or in {chain.file} (there: {urdf.lower}, {urdf.upper})",
        )
    return urdf.lower, urdf.upper


def _check_home(file: str, settings: Settings, names: tuple[str, ...], limits: JointLimits) -> None:
    for j, q in enumerate(settings.home):
        low, high = limits.position_lower[j], limits.position_upper[j]
        if not low <= q <= high:
            raise ConfigError(
                file, f"home[{j}]", q, f"a position of {names[j]} within [{low:g}, {high:g}] rad"
            )


def _kinematics(model: pin.Model, settings: Settings) -> Kinematics:
    placements = [model.jointPlacements[j] for j in range(1, model.njoints)]
    data = model.createData()
    pin.computeJointJacobians(model, data, pin.neutral(model))
    axes = []
    for j in range(1, model.njoints):
        jacobian = np.reshape(
            pin.getJointJacobian(model, data, j, pin.LOCAL), (6, -1)
        )  # flat if there is one joint
        turn = jacobian[3:, model.joints[j].idx_v]
        length = float(np.linalg.norm(turn))
        if not length > 0.0:
            raise ModelError(f"joint {model.names[j]!r}: axis of length {length:g}: expected a direction")
        axes.append(turn / length)
    return Kinematics(
        np.array([placement.rotation for placement in placements]),
        np.array([placement.translation for placement in placements]),
        np.array(axes),
        np.array(settings.gravity),
    )


def _theta_nominal(model: pin.Model, joints: list[JointSettings]) -> FloatArray:
    inertial = [model.inertias[j].toDynamicParameters() for j in range(1, model.njoints)]
    friction = [
        [getattr(j, key) for j in joints] for key in ("coulomb", "viscous", "rotor_inertia", "offset")
    ]
    return np.concatenate([*inertial, *friction])


def _up(values: FloatArray) -> FloatArray:
    """Next larger number: a truth at exactly 5 % must not fall out by rounding. Zero stays zero: it is exact."""
    return np.where(values == 0.0, 0.0, np.nextafter(values, np.inf))


def _arm_prior(theta: FloatArray, settings: Settings) -> ParameterBox:
    """Relative part plus floor around every entry; theta_e is the payload prior.

    Mass, Coulomb and viscous friction and rotor inertia do not go below zero.
    """
    uncertainty = settings.uncertainty
    n = theta.size // 14
    floor = uncertainty.floor
    link = [floor.mass, *(floor.first_moment,) * 3, *(floor.inertia,) * 6]
    joint = (floor.coulomb, floor.viscous, floor.rotor_inertia, floor.offset)
    floors = np.concatenate([np.tile(link, n), np.repeat(joint, n)])
    radius = _up(_up(uncertainty.relative * np.abs(theta)) + floors)
    lower, upper = -_up(radius - theta), _up(theta + radius)
    never_negative = np.zeros(theta.size, bool)
    never_negative[0 : 10 * n : 10] = True  # masses
    never_negative[10 * n : 13 * n] = True  # Fc, Fv, Ia
    lower[never_negative] = np.maximum(lower[never_negative], 0.0)
    payload = slice(10 * (n - 1), 10 * n)
    lower[payload], upper[payload] = settings.payload.prior_lower, settings.payload.prior_upper
    return ParameterBox(lower, upper)
