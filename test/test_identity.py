"""Every key of a robot's file, changed, changes the identity that bounds are loaded under, or a reason says why not."""

from __future__ import annotations

import copy
import functools
import shutil
from pathlib import Path
from typing import Any

import pytest
import yaml

from safe_sysid.control.tube import TrackingTube, tracking_tube
from safe_sysid.planning.plan_files.plan_statement import gains_statement
from safe_sysid.robot import RobotModel, load_robot
from safe_sysid.robot.config import KEYS
from safe_sysid.robot.files.yaml_file import read_yaml
from safe_sysid.robot.identity import PARTS, SCOPES, differences, digest, identity, why_not_stated
from safe_sysid.robot.scenes.scene import config_path
from safe_sysid.schema import Parameter

JOINT, LINK = "elbow", "forearm"
_RANGE = {"joints.elbow.gear_ratio_range": [50.0, 100.0]}
_GEARED = {"joints.elbow.gear_ratio": 50.0, "joints.elbow.motor_axis": [0.0, 1.0, 0.0]}
#: What is proved of one link rests on the others.
_LINKS = {
    f"joints.{joint}.proved.link_{side}": value
    for joint in ("turn", "shoulder", "elbow")
    for side, value in (("lower", [-2.0] * 10), ("upper", [2.0] * 10), ("excess", [0.1, 0.1, 0.1]))
}
#: An arm that follows trajectories by itself, within a tube that has room for each of its numbers to grow a little.
_TUBE = {
    "position": 0.02, "velocity": 0.2, "acceleration": 4.0, "inner_position": 0.01, "inner_velocity": 0.1,
    "largest_velocity": 1.0, "largest_acceleration": 2.0, "largest_jerk": 10.0, "heaviest": 9.0, "latency_s": 0.01,
    "origin": "two logs",
}  # fmt: skip
_MEASURED = {"controller.tube": _TUBE, "measurement.effort": "mean"}
_FOLLOWS = {"controller.interface": "trajectory", **_MEASURED}
#: Values where the general rule below gives none that is valid, or one that depends on another key; None: taken away.
VALUES: dict[str, dict[str, Any]] = {
    "name": {"name": "other_arm"},
    "urdf": {"urdf": "other.urdf"},
    "base_link": {"base_link": "pedestal"},
    "tip_link": {"tip_link": "forearm"},
    "tool_frame": {"tool_frame": "tip"},
    "joints.<joint>.position": {"joints.elbow.position": "continuous"},
    "joints.<joint>.gear_ratio": {"joints.elbow.gear_ratio": 50.0},
    "joints.<joint>.gear_ratio_range": {"joints.elbow.gear_ratio_range": [50.0, 100.0]},
    "joints.<joint>.gear_sign": {**_RANGE, "joints.elbow.gear_sign": "either"},
    "joints.<joint>.motor_link": {"joints.elbow.motor_link": "turntable", **_GEARED},
    "joints.<joint>.motor_axis": {**_GEARED, "joints.elbow.motor_axis": [0.0, 0.0, 1.0]},
    **{
        f"joints.<joint>.proved.{key}": {f"joints.elbow.proved.{key}": [0.0, 2.0]}
        for key in ("coulomb", "viscous", "rotor_inertia", "offset")
    },
    **{
        f"joints.<joint>.proved.link_{side}": {**_LINKS, f"joints.elbow.proved.link_{side}": value}
        for side, value in (("lower", [-3.0] * 10), ("upper", [3.0] * 10), ("excess", [0.2, 0.1, 0.1]))
    },
    "locked.<joint>": {"locked.finger": 0.3},
    "payload.hand_opening": {"payload.hand_opening": [0.0] * 9 + [1e-3], "payload.hand_joints": {}},
    "payload.hand_joints": {"payload.hand_joints": {}},
    "payload.hand_links": {"payload.hand_links": ["flange"]},
    "payload.link": {"payload.link": "tip"},
    "payload.box": {"payload.box": "envelope"},
    "payload.density": {"payload.density": [0.0, 8000.0], "payload.box": "envelope"},
    "measurement.torque_rate": {"measurement.torque_rate": 50.0, "measurement.effort": "sampled"},
    "measurement.jerk": {"measurement.jerk": 70.0, "measurement.torque_rate": 50.0, "measurement.effort": "sampled"},
    "measurement.effort": {"measurement.effort": "sampled", "measurement.torque_rate": 50.0},
    "geometry.<link>": {"geometry.forearm": [{"points": [[0.1, 0.0, 0.0]], "radius": 0.01}]},
    "allowed_pairs": {"allowed_pairs": [["pedestal", "forearm"]]},
    "home": {"home": [0.1, -0.6, 1.8]},
    "timing.period_s": {"timing.period_s": 0.0009},
}
#: What must be there before a key can be changed, as one that means nothing alone.
BEFORE: dict[str, dict[str, Any]] = {
    "joints.<joint>.gear_sign": _RANGE,
    "joints.<joint>.motor_link": _GEARED,
    "joints.<joint>.motor_axis": _GEARED,
    **{f"joints.<joint>.proved.link_{side}": _LINKS for side in ("lower", "upper", "excess")},
    "payload.density": {"payload.box": "envelope"},
    "measurement.torque_rate": {"measurement.torque_rate": 40.0, "measurement.effort": "sampled"},
    "measurement.jerk": {"measurement.torque_rate": 50.0, "measurement.effort": "sampled"},
    "controller.interface": _MEASURED,
    "controller.damping": {"identification.acceleration_bound": 200.0},  # hypotheses as wide are for damping by H
    **{f"controller.tube.{key}": _FOLLOWS for key in _TUBE},
}
#: Without effect on anything that is stated: only checked, or the same in other words.
IDLE = ("base_link", "tip_link")


def leaves() -> list[Parameter]:
    return [key for key in KEYS.values() if key.type != "section"]


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An arm of three joints with a finger that can be locked, in two versions, and its file with every key written."""
    folder = tmp_path_factory.mktemp("arm")
    urdf = (config_path("three_joint", "config").parent.parent / "urdf" / "three_joint.urdf").read_text()
    finger = (
        '<link name="tip"/><joint name="to_tip" type="fixed"><parent link="flange"/><child link="tip"/>'
        '<origin xyz="0.02 0 0"/></joint><link name="finger"><inertial><mass value="0.1"/><origin xyz="0 0 0.05"/>'
        '<inertia ixx="1e-4" ixy="0" ixz="0" iyy="1e-4" iyz="0" izz="1e-4"/></inertial><collision><geometry>'
        '<sphere radius="0.01"/></geometry></collision></link><joint name="finger" type="revolute">'
        '<parent link="flange"/><child link="finger"/><axis xyz="1 0 0"/><limit lower="-1" upper="1" effort="1" '
        'velocity="1"/></joint></robot>'
    )
    urdf = urdf.replace("</robot>", finger)
    (folder / "arm.urdf").write_text(urdf)
    (folder / "other.urdf").write_text(urdf.replace('mass value="0.1"', 'mass value="0.11"'))
    data = read_yaml(config_path("three_joint", "config"))
    data |= {"urdf": "arm.urdf", "locked": {"finger": 0.1}, "mounting": {"xyz": [0.0, 0.0, 0.1]}}
    (folder / "arm.yaml").write_text(yaml.safe_dump(data))
    return folder


def actual(path: str) -> str:
    return path.replace("<joint>", JOINT).replace("<link>", LINK)


def value_of(settings: Any, path: str) -> Any:
    for part in path.split("."):
        settings = settings.get(part) if isinstance(settings, dict) else getattr(settings, part)
    return settings


def changed(key: Parameter, now: Any) -> Any:
    """Another value that is as good."""
    if key.choices:
        return next(choice for choice in key.choices if choice != now)
    if key.type == "bool":
        return not now
    if key.type == "int":
        return now + 1
    if key.type in ("float", "per_joint"):
        bigger = [1.01 * x for x in now] if isinstance(now, tuple) else 1.01 * (now or 0.0)
        return bigger or 0.01
    if key.type in ("vector3", "vector10"):
        return [*[float(x) for x in now[:-1]], float(now[-1]) + 1e-3]
    if key.type == "text":
        return f"{now or ''}x"
    pytest.fail(f"{key.path}: of type {key.type}: say in VALUES what to change it to")


@functools.cache
def untouched(place: Path, path: str) -> tuple[RobotModel, dict[str, Any]]:
    """The arm with what must be there before ``path`` is changed, and its identities by scope."""
    model = load_robot(place / "arm.yaml", **copy.deepcopy(BEFORE.get(path, {})))
    return model, {scope: identity(model, scope) for scope in SCOPES}


@pytest.mark.parametrize("key", leaves(), ids=lambda key: key.path)
def test_a_key_is_stated_or_a_reason_says_why_not(key: Parameter, place: Path) -> None:
    before, identities = untouched(place, key.path if key.path in BEFORE else "")
    path = actual(key.path)
    values = VALUES.get(key.path) or {path: changed(key, value_of(before.settings, path))}
    after = load_robot(place / "arm.yaml", **copy.deepcopy({**BEFORE.get(key.path, {}), **values}))
    for scope in SCOPES:
        ours, theirs = identities[scope], identity(after, scope)
        reason = why_not_stated(key.path, scope)
        if reason is None:
            declared, found = f"declared.{actual(key.path)}", [path for path, *_ in differences(theirs, ours)]
            assert any(declared.startswith(x) or x.startswith(declared) for x in found), f"{scope}: not in the content"
        follows = reason is None or (_is_in_a_part(key.path, scope) and key.path not in IDLE)
        assert (digest(ours) != digest(theirs)) == follows, f"{scope}: {reason}"


def _is_in_a_part(path: str, scope: str) -> bool:
    """Whether a part of the scope holds what a key says, and the scope does not say besides that it does not matter."""
    if any(_is_below(path, key) for key in SCOPES[scope].left_out):
        return False
    return any(_is_below(path, key) for name in SCOPES[scope].parts for key in PARTS[name].holds)


def _is_below(path: str, key: str) -> bool:
    return path == key or path.startswith(f"{key}.")


#: Keys of which a plan states nothing, and why: what its claim rests on is beside them.
BESIDE = {
    "timing.period_s": "real time: commands are `hold_max_s` and `delay_max_s` apart, however often they are tried",
    "timing.hold_max_s": "lock-step: the plant waits, a torque is in force for `period_s`",
    "timing.delay_max_s": "lock-step: the plant waits",
    "controller.blend_s": "a blend of boxes of the certified one is in the certified one, however long it takes",
    "controller.torque_rate": "cut for longer than the theorem covers is a fault, and ends the claim",
    "controller.gravity_check": "refuses starts",
    **{
        f"controller.feed_forward.{key}": "whatever is added, `bound` is what the proof rests on"
        for key in ("name", "rate", "late_s", "residual", "file")
    },
    "controller.tube.inner_position": "where the watch stops; the outer tube covers it, and is what certificates take",
    "controller.tube.inner_velocity": "where the watch stops; the outer tube covers it, and is what certificates take",
    "controller.tube.origin": "says where the tube comes from; its numbers are stated",
}


@functools.cache
def designed(law: str, path: str, lockstep: bool) -> tuple[RobotModel, TrackingTube]:
    """An arm with one law, if one is named, and what a change of ``path`` needs; and its gains, or its tube."""
    named = {"controller.law": law} if law else {}
    model = load_robot("three_joint", **named, **copy.deepcopy(BEFORE.get(path, {})))
    return model, tracking_tube(model, lockstep)


@pytest.mark.parametrize(
    ("key", "lockstep"),
    [
        # What lock-step leaves out is of `timing`; that it leaves out nothing else takes as long again.
        pytest.param(key, lockstep, id=f"{key.path}-{lockstep}", marks=pytest.mark.slow if slow else ())
        for key in leaves() if key.path.startswith(("controller.", "actuator.", "timing."))
        for lockstep, slow in ((False, False), (True, not key.path.startswith("timing.")))
    ],
)  # fmt: skip
def test_a_plan_states_what_of_the_controller_it_rests_on(key: Parameter, lockstep: bool) -> None:
    """A plan for one law, or for one law's settings, is not one for another."""
    parts = key.path.split(".")
    law = {"controller.law": parts[2]} if parts[1] == "laws" else {}
    first = copy.deepcopy(BEFORE.get(key.path, {}))
    before, gains = designed(law.get("controller.law", ""), key.path if first else "", lockstep)
    values = VALUES.get(key.path) or {key.path: changed(key, value_of(before.settings, key.path))}
    if key.path == "controller.inertia_lower":
        values = {key.path: (0.99 * gains.inertia_lower).tolist()}
    after = load_robot("three_joint", **{**law, **first, **values})
    ours, theirs = gains_statement(gains, before), gains_statement(tracking_tube(after, lockstep), after)
    said = BESIDE.get(key.path, "")
    idle = bool(said) and said.startswith("lock-step") <= lockstep and said.startswith("real time") <= (not lockstep)
    assert (ours["sha256"] == theirs["sha256"]) == idle


def test_reasons_are_about_keys_that_there_are() -> None:
    for reasons in (*(part.holds for part in PARTS.values()), *(scope.left_out for scope in SCOPES.values())):
        assert [key for key in reasons if key not in KEYS] == []
        assert all(len(reason.split()) > 3 for reason in reasons.values())


def test_what_bounds_rest_on_is_in_every_plan() -> None:
    """A plan may be certified for a box of bounds: a key that they rest on is no less one of the plan's."""
    bounds, plans, run = ({k for k in KEYS if why_not_stated(k, scope) is None} for scope in ("bounds", "plans", "run"))
    assert bounds <= plans <= run


def test_the_same_arm_from_another_place_is_the_same(place: Path, tmp_path: Path) -> None:
    for name in ("arm.yaml", "arm.urdf"):
        shutil.copy(place / name, tmp_path / name)
    for scope in SCOPES:
        ours, theirs = (identity(load_robot(folder / "arm.yaml"), scope) for folder in (place, tmp_path))
        assert ours == theirs
        assert list(differences(theirs, ours)) == []


def test_an_unknown_key_would_be_stated() -> None:
    """What nobody decided on is part of the identity."""
    from safe_sysid.robot.identity import _stated

    assert _stated({"new": {"key": 1}}, "", set()) == {"new": {"key": 1.0}}
    assert why_not_stated("new.key", "bounds") is None
    assert why_not_stated("controller.laws.armour.K_r", "bounds") is not None
    assert why_not_stated("measurement.torque_abs", "bounds") is None
