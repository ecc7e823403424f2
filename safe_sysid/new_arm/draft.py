"""A configuration under construction: the numbers of a robot file, and the model that they make."""

from __future__ import annotations

import math
import os
import re
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import yaml

from safe_sysid.core.arrays import FloatArray
from safe_sysid.errors import ConfigError, ModelError
from safe_sysid.new_arm.arm_facts import ArmFacts
from safe_sysid.new_arm.drives import RELATIVE, TRANSITION, DriveGuess, simulated_drives
from safe_sysid.new_arm.hypotheses import Hypotheses, PlanReach
from safe_sysid.new_arm.payload import PayloadGuess
from safe_sysid.new_arm.shapes import FittedHull
from safe_sysid.robot.loading import load_robot
from safe_sysid.robot.model import RobotModel

__all__ = ["Draft", "check_name", "check_out", "short", "urdf_for"]

#: Timing that gains are looked for with; a first guess for a 1 kHz interface, to be measured.
_TIMING = {"period_s": 0.001, "hold_max_s": 0.00125, "delay_max_s": 0.0002}
_UNKNOWN = 1e5  # rad/s^2, while no gains are known


def short(values: FloatArray | float, digits: int = 4) -> Any:
    """Plain numbers for a file. ``values``: a number, or (m,)."""
    if np.ndim(values) == 0:
        return float(f"{float(values):.{digits}g}") + 0.0
    return [float(f"{float(value):.{digits}g}") + 0.0 for value in np.asarray(values)]


@dataclass(frozen=True, eq=False)
class Draft:
    """What is decided so far; the rest has placeholders that load."""

    name: str
    urdf: str
    facts: ArmFacts
    geometry: Mapping[str, tuple[FittedHull, ...]]
    payload: PayloadGuess = field(default_factory=lambda: PayloadGuess.of(1.0))
    prior: tuple[FloatArray, FloatArray] | None = None  #: bounds (10,), (10,) of the last link with payload
    drives: DriveGuess | None = None
    load: FloatArray | None = None  #: (n,) inertia that each joint moves near home, kg m^2
    pairs: tuple[tuple[str, str], ...] = ()
    home: FloatArray | None = None  #: (n,) rad
    motion: PlanReach = field(default_factory=lambda: PlanReach(0.5))
    hypotheses: Hypotheses | None = None
    fastest: FloatArray | None = None  #: (n,) acceleration bound, rad/s^2

    @property
    def n(self) -> int:
        """Number of joints."""
        return len(self.facts.chain.joints)

    @property
    def sliding(self) -> tuple[str, ...]:
        """Names of the sliding joints."""
        return tuple(joint.name for joint in self.facts.chain.joints if joint.kind == "prismatic")

    @property
    def quickest(self) -> FloatArray:
        """(n,) rad/s^2: the velocity limit reached from rest within a tenth of a second."""
        return np.array([10.0 * self._limit(j, "velocity") for j in range(self.n)])

    @property
    def torque(self) -> FloatArray:
        """(n,) limits of the URDF, N m."""
        return np.array([self._limit(j, "effort") for j in range(self.n)])

    def _limit(self, j: int, key: str) -> float:
        joint = self.facts.chain.joints[j]
        value = joint.velocity if key == "velocity" else joint.effort
        if value is None or not value > 0.0:
            raise ModelError(
                f"{self.facts.urdf}: joint {joint.name!r}: limit {key} = {value}: expected a number > 0: "
                "add it to the "
                f"URDF's <limit>"
            )
        return value

    def _position(self, j: int) -> Any:
        joint = self.facts.chain.joints[j]
        if joint.kind == "continuous":
            return "continuous"
        if joint.lower is None or joint.upper is None or not joint.lower < joint.upper:
            raise ModelError(
                f"{self.facts.urdf}: joint {joint.name!r}: limits lower = {joint.lower}, upper = "
                f"{joint.upper}: expected "
                "lower < upper: add them to the URDF's <limit>"
            )
        # Inwards.
        return [math.ceil(joint.lower * 1e4 - 1e-9) / 1e4, math.floor(joint.upper * 1e4 + 1e-9) / 1e4]

    def data(self) -> dict[str, Any]:
        """The file's content, as YAML would read it."""
        joints, n = self.facts.chain.joints, self.n
        drives = simulated_drives(self.torque, np.ones(n), 1.0) if self.drives is None else self.drives
        unknown = drives.origin == "unknown"
        lower, upper = (np.full(10, -1.0), np.full(10, 1.0)) if self.prior is None else self.prior
        prior = [_outwards(lower, -1.0), _outwards(upper, 1.0)]
        prior[0][0] = max(prior[0][0], 0.0)
        data: dict[str, Any] = {
            "name": self.name,
            "urdf": self.urdf,
            "base_link": self.facts.base_link,
            "tool_frame": self.facts.tool_frame,
            "gravity": [0.0, 0.0, -9.81],
            "drives": drives.origin,
            "joints": {
                joint.name: {
                    "position": self._position(j),
                    "velocity": short(self._limit(j, "velocity"), 6),
                    "torque": short(self._limit(j, "effort"), 6),
                    "rotor_inertia": float(drives.rotor[j]),
                    "viscous": float(drives.viscous[j]),
                    "coulomb": float(drives.coulomb[j]),
                    "offset": float(drives.offset[j]) + 0.0,
                }
                for j, joint in enumerate(joints)
            },
            "friction_transition_velocity": TRANSITION,
            "uncertainty": {
                "relative": RELATIVE,
                "floor": {
                    "mass": 0.001,
                    "first_moment": 0.0001,
                    "inertia": 0.00001,
                    "coulomb": short(drives.coulomb_floor),
                    "viscous": short(drives.viscous_floor),
                    "rotor_inertia": short(drives.rotor_floor),
                    "offset": short(drives.offset_floor),
                },
            },
            "payload": {
                "prior_lower": prior[0],
                "prior_upper": prior[1],
                "envelope": {
                    "center": short(np.array(self.payload.center)),
                    "size": short(np.array(self.payload.size)),
                },
            },
            "measurement": {
                "torque_source": "motor",
                "rate_hz": 1000.0,
                "torque_abs": short((0.005 if unknown else 0.0005) * self.torque, 2),
                "torque_rel": 0.05 if unknown else 0.025,
                "position_error": 1e-4 if unknown else 0.0,
                "velocity_error": 0.002 if unknown else 0.0,
            },
            "actuator": {"torque_abs": short(0.0003 * self.torque, 2), "torque_rel": 0.002},
            "timing": dict(_TIMING),
            "identification": {
                "window_s": 0.1,
                "update_s": 1.5,
                "acceleration_bound": _UNKNOWN if self.fastest is None else short(self.fastest),
            },
            "controller": {"damping": "inertia", "uncertainty": 10.0},
            "planner": {
                "t_f": self.motion.t_f,
                "t_p": 0.5 * self.motion.t_f,
                "k_range": self.motion.k_range,
                "plans": 4,
            },
            "geometry": {
                link: [{"points": [list(p) for p in points], "radius": radius} for points, radius in hulls]
                for link, hulls in self.geometry.items()
            },
            "allowed_pairs": [list(pair) for pair in self.pairs],
            "home": self._home(),
        }
        if self.facts.tip_link is not None:
            data["tip_link"] = self.facts.tip_link
        if self.facts.locked:
            data["locked"] = dict(self.facts.locked)
        if self.hypotheses is not None:
            h = self.hypotheses
            data["controller"] = {
                "damping": "inertia",
                "K_r": h.K_r,
                "kappa": h.kappa,
                "inertia_ratio": short(h.inertia_ratio),
                "velocity": short(h.velocity),
                "acceleration": short(h.acceleration),
                "jerk": short(h.jerk),
                "uncertainty": short(h.uncertainty),
                "torque_rate": short(np.ceil(np.maximum(100.0 * self.torque, 1000.0)), 3),
            }
        return data

    def _home(self) -> list[float]:
        if self.home is not None:
            return [float(value) + 0.0 for value in self.home]
        home = []
        for j in range(self.n):
            limits = self._position(j)
            home.append(0.0 if limits == "continuous" else min(max(0.0, limits[0]), limits[1]))
        return home

    def model(self) -> RobotModel:
        """Load it.

        Raises:
            SafeSysIdError: as :func:`safe_sysid.robot.loading.load_robot`.
        """
        data = self.data() | {"urdf": str(self.facts.urdf.resolve())}
        with tempfile.TemporaryDirectory(prefix="safe_sysid_") as folder:
            path = Path(folder) / "robot.yaml"
            path.write_text(yaml.safe_dump(data), encoding="utf-8")
            return load_robot(path)


def _outwards(values: FloatArray, sign: float) -> list[float]:
    """Few decimals, rounded up (1) or down (-1)."""
    step = 1e-5
    return [float(f"{sign * math.ceil(sign * float(v) / step - 1e-6) * step:.5f}") + 0.0 for v in values]


def urdf_for(out: Path, urdf: str | Path, found: Path) -> str:
    """How a file names the URDF: as given if by package, relative if it is near, else absolute."""
    if str(urdf).lower().startswith("package://"):
        return str(urdf)
    target, start = found.resolve(), out.resolve().parent
    relative = os.path.relpath(target, start)
    return relative if relative.count("..") <= 2 else str(target)


def check_name(name: str) -> str:
    """A robot's name, which programs make names of files and topics of.

    Raises:
        ConfigError: it has characters that such names cannot have.
    """
    if not re.fullmatch(r"[A-Za-z0-9_-]+", name):
        raise ConfigError("--name", "name", name, "letters, digits, _ and - only, at least one")
    return name


def check_out(out: Path, overwrite: bool) -> None:
    """Refuse a file that exists, before anything is done for it. ``overwrite``: whether it may be replaced.

    Raises:
        ConfigError: it exists and may not be replaced.
    """
    if out.exists() and not overwrite:
        raise ConfigError("--out", "file", str(out), "a file that does not exist yet, or --overwrite")
