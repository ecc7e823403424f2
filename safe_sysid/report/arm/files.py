"""An identified arm as other programs read it: URDF with its inertias, our files, a MuJoCo model."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import numpy as np
import yaml

from safe_sysid.core.arrays import FloatArray
from safe_sysid.identification.arm.bounds.control_box import ControlBox
from safe_sysid.identification.arm.identify import ArmIdentification
from safe_sysid.robot.files.xml_file import read_xml
from safe_sysid.robot.files.yaml_file import read_yaml
from safe_sysid.robot.parameters import com_and_inertia

__all__ = ["mechanism_file", "mjcf_model", "robot_file", "urdf_with"]

_ENTRIES = (("ixx", 0, 0), ("ixy", 0, 1), ("ixz", 0, 2), ("iyy", 1, 1), ("iyz", 1, 2), ("izz", 2, 2))


def _numbers(values: FloatArray) -> str:
    return " ".join(repr(float(x)) for x in values)


def urdf_with(path: Path, found: ArmIdentification) -> str:
    """The URDF with the identified links: each has what is fixed to it; what is fixed to it has no mass of its own."""
    root: Any = read_xml(path, "a URDF file")
    joints = {joint.get("name"): joint for joint in root.findall("joint")}
    below: dict[str, list[str]] = {}
    for joint in joints.values():
        if joint.get("name") not in found.mechanism.joint_names:
            below.setdefault(joint.find("parent").get("link"), []).append(joint.find("child").get("link"))
    links = {link.get("name"): link for link in root.findall("link")}
    fc, fv, _, _ = found.mechanism.layout.by_term(found.theta)
    for j, name in enumerate(found.mechanism.joint_names):
        first = joints[name].find("child").get("link")
        fixed = list(below.get(first, []))
        while fixed:
            link = fixed.pop()
            fixed += below.get(link, [])
            for inertial in links[link].findall("inertial"):
                links[link].remove(inertial)
        for inertial in links[first].findall("inertial"):
            links[first].remove(inertial)
        links[first].insert(0, _inertial(found.theta[found.mechanism.layout.link(j)]))
        dynamics = joints[name].find("dynamics")
        dynamics = ET.SubElement(joints[name], "dynamics") if dynamics is None else dynamics
        dynamics.set("friction", repr(float(fc[j])))
        dynamics.set("damping", repr(float(fv[j])))
    for mesh in root.iter("mesh"):
        file = mesh.get("filename", "")
        if "://" not in file and not os.path.isabs(file):
            mesh.set("filename", str((path.parent / file).resolve()))
    ET.indent(root)
    return '<?xml version="1.0"?>\n' + ET.tostring(root, encoding="unicode") + "\n"


def _inertial(theta: FloatArray) -> ET.Element:
    mass, centre, inertia = com_and_inertia(theta)
    element = ET.Element("inertial")
    ET.SubElement(element, "origin", xyz=_numbers(centre), rpy="0 0 0")
    ET.SubElement(element, "mass", value=repr(mass))
    ET.SubElement(element, "inertia", {name: repr(float(inertia[i, k])) for name, i, k in _ENTRIES})
    return element


def robot_file(path: Path, found: ArmIdentification, urdf: str, law: ControlBox | None = None) -> str:
    """Our robot file with the identified friction, rotor inertias and offsets, and another URDF.

    ``path``: of the robot's file; ``law``: what is proved; its box holds the estimate.
    """
    data, proved = read_yaml(path), None if law is None else law.box
    if law is not None:
        sides = zip(("prior_lower", "prior_upper"), law.payload, strict=True)
        data["payload"] = dict(data["payload"]) | {key: side.tolist() for key, side in sides}
    data["urdf"] = urdf
    layout = found.mechanism.layout
    ia = found.theta[layout.rotor_inertia]
    for j, name in enumerate(found.mechanism.joint_names):
        joint = data["joints"][name] = dict(data["joints"][name])
        joint.pop("proved", None)
        for k, key in enumerate(("coulomb", "viscous", "rotor_inertia", "offset")):
            p = layout.joint_terms.start + k * layout.n + j
            joint[key] = float(found.theta[p])
            if proved is not None:
                joint.setdefault("proved", {})[key] = [float(proved.lower[p]), float(proved.upper[p])]
        if law is not None and proved is not None:
            sides = zip(("link_lower", "link_upper"), (proved.lower, proved.upper), strict=True)
            joint.setdefault("proved", {}).update({key: side[layout.link(j)].tolist() for key, side in sides})
            joint["proved"]["link_excess"] = law.excess[j].tolist()
    size = layout.size
    for column, kappa in zip(found.columns, found.estimate.theta[size:], strict=True):
        j = found.mechanism.joint_names.index(column.joint)
        if column.kind == "gear" and kappa != 0.0 and ia[j] > 0.0:
            joint = data["joints"][column.joint]
            joint["gear_ratio"] = float(ia[j] / kappa)
            # Of a rotor in the link before, about the joint's axis: that is what was estimated.
            for key in ("gear_ratio_range", "gear_sign", "motor_link", "motor_axis"):
                joint.pop(key, None)
    head = (
        "# Written by safe-sysid identify-arm: friction, rotor inertias, gear ratios and offsets are estimates.\n"
        "# `proved` takes the place of `uncertainty`, which was declared about other numbers and is as it was:\n"
        "# declare it anew where there is none. With it `payload.prior_lower` and `prior_upper` are the declared\n"
        "# ones with the last link of `proved` in the place of the drawing's.\n"
    )
    return head + str(yaml.safe_dump(data, sort_keys=False, default_flow_style=None, width=120))


def mechanism_file(path: Path, found: ArmIdentification, urdf: str) -> str:
    """A file of loops with the identified friction, rotor inertias and offsets, and another URDF.

    ``path``: of the file of loops.
    """
    data, mechanism = dict(read_yaml(path)), found.mechanism
    data["urdf"] = urdf
    keys = [term.key for term in mechanism.layout.terms]
    values = mechanism.layout.by_term(found.theta)
    data["joints"] = {
        name: {key: float(term[j]) for key, term in zip(keys, values, strict=True)}
        for j, name in enumerate(mechanism.joint_names)
    }
    head = "# Written by safe-sysid identify-arm: `joints` are estimates.\n"
    return head + str(yaml.safe_dump(data, sort_keys=False, default_flow_style=None, width=120))


def mjcf_model(found: ArmIdentification) -> str:
    """The arm as a MuJoCo model: links, friction, rotor inertias, loops as constraints; offsets have no place.

    Its frames are those of the joints, so q, qd and torques are the URDF's.
    """
    mechanism = found.mechanism
    kin, layout = mechanism.kinematics, mechanism.layout
    fc, fv, ia, _ = layout.by_term(found.theta)
    root = ET.Element("mujoco", model=mechanism.name)
    ET.SubElement(root, "compiler", angle="radian")
    ET.SubElement(root, "option", gravity=_numbers(kin.gravity))
    bodies = {-1: ET.SubElement(root, "worldbody")}
    for j, name in enumerate(mechanism.joint_names):
        place = _place(kin.rotation[j], kin.translation[j])
        bodies[j] = body = ET.SubElement(bodies[int(kin.parent[j])], "body", name=f"link of {name}", **place)
        mass, centre, inertia = com_and_inertia(found.theta[layout.link(j)])
        full = [inertia[i, k] for i, k in ((0, 0), (1, 1), (2, 2), (0, 1), (0, 2), (1, 2))]
        ET.SubElement(body, "inertial", pos=_numbers(centre), mass=repr(mass), fullinertia=_numbers(np.array(full)))
        ET.SubElement(
            body, "joint", name=name, type="slide" if kin.sliding[j] else "hinge", axis=_numbers(kin.axis[j]),
            armature=repr(float(ia[j])), damping=repr(float(fv[j])), frictionloss=repr(float(fc[j])),
        )  # fmt: skip
    if mechanism.closures:
        equality = ET.SubElement(root, "equality")
    for loop in mechanism.closures:
        ends = [f"{loop.name}, {end} end" for end in ("first", "second")]
        for end, joint, rotation, point in zip(ends, loop.joints, loop.rotations, loop.points, strict=True):
            ET.SubElement(bodies[joint], "site", name=end, **_place(rotation, point))
        ET.SubElement(equality, "weld" if loop.kind == "6D" else "connect", site1=ends[0], site2=ends[1])
    ET.indent(root)
    return ET.tostring(root, encoding="unicode") + "\n"


def _place(rotation: FloatArray, point: FloatArray) -> Any:
    """Of a frame in MJCF: two axes and the origin."""
    return {"pos": _numbers(point), "xyaxes": _numbers(np.concatenate([rotation[:, 0], rotation[:, 1]]))}
