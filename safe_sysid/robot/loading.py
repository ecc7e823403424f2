"""Loading of robots: from a URDF file and a YAML file to a :class:`RobotModel`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pinocchio as pin
from numpy.typing import NDArray

from safe_sysid.core.layout import ParameterLayout
from safe_sysid.errors import ConfigError, ModelError
from safe_sysid.resources import share_directory
from safe_sysid.robot.config import JointSettings, Settings, load_settings, per_joint
from safe_sysid.robot.files.packages import is_package_uri, package_file
from safe_sysid.robot.files.urdf import UrdfChain, UrdfJoint, read_urdf
from safe_sysid.robot.files.yaml_file import validate
from safe_sysid.robot.model import MAX_JOINTS, JointLimits, Kinematics, Motors, RobotModel
from safe_sysid.robot.parameters import ParameterBox
from safe_sysid.robot.scenes.scene import config_path
from safe_sysid.robot.shapes.geometry import build_bodies
from safe_sysid.robot.shapes.pairs import allowed_pairs
from safe_sysid.robot.unknowns import Unknowns

__all__ = ["find_urdf", "load_robot", "with_declared"]

FloatArray = NDArray[np.float64]
#: How far beyond its position limits a prismatic joint may be for bounds over all configurations, as a share of them:
#: what measurement errors, and the look ahead of the control law, need. Data beyond it make no equations.
TRAVEL_MARGIN = 0.05


def load_robot(name_or_path: str | Path, **overrides: Any) -> RobotModel:
    """Load an arm.

    Args:
        name_or_path: name of a packaged robot (``kinova_gen3``), or path of a YAML file.
        overrides: settings that replace the file's, as ``measurement={"torque_abs": 0.2}`` or
            ``**{"measurement.torque_abs": 0.2}``.

    Raises:
        ConfigError: a setting that is missing, unknown, out of range or does not fit the URDF.
        ModelError: a URDF that is no serial arm of 1 to 9 moving joints, or is broken.
    """
    path = config_path(name_or_path, "config")
    settings = load_settings(path, overrides)
    chain = read_urdf(find_urdf(path, settings), settings.locked, str(path), settings.base_link, settings.tip_link)
    return _build(str(path), settings, chain)


def with_declared(model: RobotModel, values: Mapping[str, Any]) -> RobotModel:
    """The same arm with other declared errors, without reading its files again.

    ``values``: of keys ``measurement.KEY`` and ``identification.KEY``, on which nothing else of a model depends.

    Raises:
        ConfigError: a value out of range.
    """
    changed = {}
    for name in ("measurement", "identification"):
        section = getattr(model.settings, name)
        own = {key.partition(".")[2]: value for key, value in values.items() if key.startswith(f"{name}.")}
        changed[name] = validate(f"{model.name}: {name}", section.model_dump() | own, type(section))
    return replace(model, settings=model.settings.model_copy(update=changed))


def find_urdf(config: Path, settings: Settings) -> Path:
    """The URDF that a robot's file names. ``config``: the robot's file.

    Raises:
        ConfigError: there is no such file, or package.
    """
    if is_package_uri(settings.urdf):
        try:
            return package_file(settings.urdf, config)
        except ModelError as error:
            raise ConfigError(str(config), "urdf", settings.urdf, error.expected) from error
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
    model = _pinocchio_model(settings, chain)
    names = tuple(joint.name for joint in chain.joints)
    if tuple(model.names)[1:] != names or model.nv != n or model.nq != n:
        raise ModelError(f"{chain.file}: Pinocchio finds joints {list(model.names)[1:]}: expected {list(names)}")

    joints = [settings.joints[name] for name in names]
    limits = _limits(file, chain, joints)
    _check_home(file, settings, chain, limits)
    theta = _theta_nominal(model, joints)
    bodies = build_bodies(chain, model, settings, file)
    kinematics = _kinematics(model, settings, _travel(chain, limits))
    motors, gears = _motors(file, model, joints, chain, kinematics)
    exact = gears[:, 0] == gears[:, 1]
    kinematics = kinematics._replace(motors=Motors(*(x[exact] for x in motors)))
    without = [name for name, joint in zip(names, joints, strict=True) if joint.proved.link_lower is None]
    if 0 < len(without) < n:
        expected = "bounds, as other joints have some (what is proved of one link rests on the others), or none for all"
        raise ConfigError(file, f"joints.{without[0]}.proved.link_lower", None, expected)
    if not without:
        kinematics = kinematics._replace(excess=np.array([joint.proved.link_excess for joint in joints], float))
    prior = _arm_prior(theta, settings, joints)
    held = settings.payload.link
    return RobotModel(
        name=settings.name,
        joint_names=names,
        kinematics=kinematics,
        limits=limits,
        continuous=np.isinf(limits.position_upper),
        theta_nominal=theta,
        arm_prior=prior,
        friction_transition_velocity=settings.friction_transition_velocity,
        flange=_placement(model, settings.tool_frame),
        bodies=bodies,
        allowed_pairs=allowed_pairs(bodies, kinematics, chain.joined, settings.allowed_pairs, file),
        settings=settings,
        payload_placement=None if held is None or held == settings.tool_frame else _placement(model, held),
        unknowns=_unknowns(joints, Motors(*(x[~exact] for x in motors)), gears[~exact], prior),
    )


def _unknowns(joints: list[JointSettings], motors: Motors, gears: FloatArray, prior: ParameterBox) -> Unknowns:
    """Zeros that are not known exactly, and the reactions of motors of which a range (U, 2) of 1 / ratio is known."""
    inertia = np.stack([prior.lower, prior.upper], axis=1)[prior.layout.rotor_inertia][motors.joint]
    corners = (inertia[:, :, None] * gears[:, None, :]).reshape(len(gears), 4)
    reaction = np.stack([corners.min(axis=1), corners.max(axis=1)], axis=1)
    # Two operations on floats, each rounded: 1 / ratio, and the product.
    reaction = reaction + 4e-16 * np.abs(reaction) * np.array([-1.0, 1.0])
    return Unknowns(
        np.array([joint.zero_error for joint in joints]), motors._replace(gear=np.ones(len(gears))), reaction
    )


def _placement(model: pin.Model, link: str) -> tuple[FloatArray, FloatArray]:
    """Rotation (3, 3) and translation (3,) of a link in the frame of the joint that moves it."""
    place = model.frames[model.getFrameId(link, pin.FrameType.BODY)].placement
    return _read_only(place.rotation), _read_only(place.translation)


def _pinocchio_model(settings: Settings, chain: UrdfChain) -> pin.Model:
    """Pinocchio's model of the mounted arm, links behind locked joints lumped with those that carry them."""
    place = settings.mounting
    mounting = None if place is None else (place.xyz, place.rpy)
    try:
        model = pin.buildModelFromXML(chain.text_for_pinocchio(tuple(chain.link_joint), mounting))
        if not chain.locked:
            return model
        q = pin.neutral(model)
        for name, value in chain.locked.items():
            q[model.joints[model.getJointId(name)].idx_q] = value
        return pin.buildReducedModel(model, [model.getJointId(name) for name in chain.locked], q)
    except Exception as error:  # what Pinocchio raises differs from version to version
        raise ModelError(f"{chain.file}: Pinocchio cannot read it ({error}): expected a URDF file") from error


def _read_only(values: Any) -> FloatArray:
    array = np.array(values, dtype=float, order="C")
    array.setflags(write=False)
    return array


def _check_names(file: str, settings: Settings, chain: UrdfChain) -> None:
    names = [joint.name for joint in chain.joints]
    for name in names:
        if name not in settings.joints:
            raise ConfigError(
                file,
                f"joints.{name}",
                "missing",
                f"an entry for every moving joint of {chain.file}, or a position for it under `locked`",
            )
    for name in settings.joints:
        if name in chain.locked:
            how = "locked" if name in settings.locked else "mimicking a locked joint"
            raise ConfigError(file, f"joints.{name}", how, "a joint of the arm, which moves by itself")
        if name not in names:
            raise ConfigError(file, f"joints.{name}", name, f"only moving joints of {chain.file}: {', '.join(names)}")
    if settings.base_link is not None and settings.tip_link is None and settings.base_link != chain.root:
        expected = f"the root link of {chain.file}, {chain.root}; or any link, with a `tip_link`"
        raise ConfigError(file, "base_link", settings.base_link, expected)
    last = f"a link of {chain.file} that the last joint {names[-1]!r} moves"
    if chain.link_joint.get(settings.tool_frame) != len(names) - 1:
        raise ConfigError(file, "tool_frame", settings.tool_frame, last)
    held = settings.payload.link
    if held is not None and chain.link_joint.get(held) != len(names) - 1:
        expected = (
            f"{last}: what is unknown of a payload is unknown of that joint's link, in bounds, plans and certificates; "
            "let the arm end at an earlier link (`tip_link`) to identify what that one carries, or add it to its "
            "inertial in the URDF"
        )
        raise ConfigError(file, "payload.link", held, expected)


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


def _position_limits(file: str, chain: UrdfChain, urdf: UrdfJoint, joint: JointSettings) -> tuple[float, float]:
    sliding = urdf.kind == "prismatic"
    if sliding and joint.position == "continuous":
        expected = "[lower, upper] in m: a prismatic joint does not come round again"
        raise ConfigError(file, f"joints.{urdf.name}.position", joint.position, expected)
    if joint.position == "continuous" or (joint.position is None and urdf.kind == "continuous"):
        return -np.inf, np.inf
    if joint.position is not None:
        return joint.position
    if urdf.lower is None or urdf.upper is None or not urdf.lower < urdf.upper:
        raise ConfigError(
            file,
            f"joints.{urdf.name}.position",
            "missing",
            f"[lower, upper] in {'m' if sliding else 'rad or `continuous`'}, here or in {chain.file} "
            f"(there: {urdf.lower}, {urdf.upper})",
        )
    return urdf.lower, urdf.upper


def _check_home(file: str, settings: Settings, chain: UrdfChain, limits: JointLimits) -> None:
    for j, q in enumerate(settings.home):
        low, high = limits.position_lower[j], limits.position_upper[j]
        if not low <= q <= high:
            name, unit = chain.joints[j].name, "m" if chain.joints[j].kind == "prismatic" else "rad"
            raise ConfigError(file, f"home[{j}]", q, f"a position of {name} within [{low:g}, {high:g}] {unit}")


def _travel(chain: UrdfChain, limits: JointLimits) -> FloatArray:
    """(n, 2): limits of prismatic joints with room for what passes them a little; infinite for the others."""
    travel = np.tile([-np.inf, np.inf], (len(chain.joints), 1))
    for j, joint in enumerate(chain.joints):
        if joint.kind == "prismatic":
            low, high = limits.position_lower[j], limits.position_upper[j]
            room = TRAVEL_MARGIN * (high - low)
            travel[j] = low - room, high + room
    return travel


def _kinematics(model: pin.Model, settings: Settings, travel: FloatArray) -> Kinematics:
    placements = [model.jointPlacements[j] for j in range(1, model.njoints)]
    data = model.createData()
    pin.computeJointJacobians(model, data, pin.neutral(model))
    axes = []
    for j in range(1, model.njoints):
        jacobian = np.reshape(pin.getJointJacobian(model, data, j, pin.LOCAL), (6, -1))  # flat if there is one joint
        along = slice(0, 3) if np.isfinite(travel[j - 1, 0]) else slice(3, 6)
        axis = jacobian[along, model.joints[j].idx_v]
        length = float(np.linalg.norm(axis))
        if not length > 0.0:
            raise ModelError(f"joint {model.names[j]!r}: axis of length {length:g}: expected a direction")
        axes.append(axis / length)
    return Kinematics.chain(
        np.array([placement.rotation for placement in placements]),
        np.array([placement.translation for placement in placements]),
        np.array(axes),
        np.array(settings.gravity),
        travel,
    )


def _motors(
    file: str, model: pin.Model, joints: list[JointSettings], chain: UrdfChain, kin: Kinematics
) -> tuple[Motors, FloatArray]:
    """Declared motors that are carried by moving links, and the (M, 2) numbers that their 1 / ratio is between."""
    found: list[tuple[int, int, float, FloatArray]] = []
    gears: list[tuple[float, float]] = []
    for j, (urdf, joint) in enumerate(zip(chain.joints, joints, strict=True)):
        gear = _gear(joint)
        if gear is None:
            continue
        link = urdf.parent if joint.motor_link is None else joint.motor_link
        carrier = chain.link_joint.get(link)
        if carrier is None or carrier >= j:
            before = ", ".join(name for name, moved_by in chain.link_joint.items() if moved_by < j)
            expected = f"a link of {chain.file} before the joint: {before}"
            raise ConfigError(file, f"joints.{urdf.name}.motor_link", link, expected)
        if carrier < 0:
            continue  # what carries it does not turn
        if joint.motor_axis is not None:
            frame = model.frames[model.getFrameId(link, pin.FrameType.BODY)].placement
            axis = frame.rotation @ np.array(joint.motor_axis)
        elif carrier == j - 1:
            axis = kin.rotation[j] @ kin.axis[j]
        else:
            expected = f"a direction in the frame of {link}: joints between it and {urdf.name} turn the joint's own"
            raise ConfigError(file, f"joints.{urdf.name}.motor_axis", "missing", expected)
        found.append((j, carrier, gear[0], axis / np.linalg.norm(axis)))
        gears.append(gear)
    motors = Motors(
        np.array([f[0] for f in found], np.int64),
        np.array([f[1] for f in found], np.int64),
        np.array([f[2] for f in found], float),
        np.array([f[3] for f in found], float).reshape(-1, 3),
    )
    return motors, np.array(gears).reshape(-1, 2)


def _gear(joint: JointSettings) -> tuple[float, float] | None:
    """What 1 / ratio of a joint's motor is between, both the same where the ratio is known; None: nothing is known."""
    if joint.gear_ratio is not None:
        return 1.0 / joint.gear_ratio, 1.0 / joint.gear_ratio
    if joint.gear_ratio_range is None:
        return None
    low, high = sorted(1.0 / ratio for ratio in joint.gear_ratio_range)
    if joint.gear_sign == "either":
        high = max(abs(low), abs(high))
        low = -high
    elif low == high:  # a range all the same: an unknown that an interval of one number holds
        low, high = np.nextafter(low, -np.inf), np.nextafter(high, np.inf)
    return float(low), float(high)


def _theta_nominal(model: pin.Model, joints: list[JointSettings]) -> FloatArray:
    inertial = [model.inertias[j].toDynamicParameters() for j in range(1, model.njoints)]
    # A further term that configurations do not name is zero.
    terms = ParameterLayout(len(joints)).terms
    return np.concatenate([*inertial, *([getattr(j, term.key, 0.0) for j in joints] for term in terms)])


def _up(values: FloatArray) -> FloatArray:
    """Next larger number: a truth at exactly 5 % must not fall out by rounding. Zero stays zero: it is exact."""
    return np.where(values == 0.0, 0.0, np.nextafter(values, np.inf))


def _arm_prior(theta: FloatArray, settings: Settings, joints: Sequence[JointSettings]) -> ParameterBox:
    """Relative part plus floor around every entry; theta_e is the payload prior.

    Mass, Coulomb and viscous friction and rotor inertia do not go below zero. What is proved takes its place.
    """
    uncertainty = settings.uncertainty
    layout = ParameterLayout.of_size(theta.size)
    floor = uncertainty.floor
    link = [floor.mass, *(floor.first_moment,) * 3, *(floor.inertia,) * 6]
    floors = np.concatenate(
        [np.tile(link, layout.n), *(per_joint(getattr(floor, term.key, 0.0), layout.n) for term in layout.terms)]
    )
    radius = _up(_up(uncertainty.relative * np.abs(theta)) + floors)
    lower, upper = -_up(radius - theta), _up(theta + radius)
    lower[layout.never_negative] = np.maximum(lower[layout.never_negative], 0.0)
    for j, proved in enumerate(joint.proved for joint in joints):
        for k, key in enumerate(("coulomb", "viscous", "rotor_inertia", "offset")):
            at = layout.joint_terms.start + k * layout.n + j
            lower[at], upper[at] = getattr(proved, key) or (lower[at], upper[at])
        if proved.link_lower is not None and proved.link_upper is not None:
            lower[layout.link(j)], upper[layout.link(j)] = proved.link_lower, proved.link_upper
    payload = layout.payload
    lower[payload], upper[payload] = settings.payload.prior_lower, settings.payload.prior_upper
    return ParameterBox(lower, upper)
