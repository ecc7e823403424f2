"""Random arms of the campaign: kinematics with special cases, true parameters, and a model whose prior holds them."""

from __future__ import annotations

import copy
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

import numpy as np

from safe_sysid.core.arrays import BoolArray, FloatArray
from safe_sysid.core.layout import ParameterLayout
from safe_sysid.errors import ParameterError
from safe_sysid.robot.config import Settings
from safe_sysid.robot.files.yaml_file import read_yaml
from safe_sysid.robot.model import JointLimits, Kinematics, Motors, RobotModel
from safe_sysid.robot.parameters import ParameterBox, frozen_array, pseudo_inertia_to_theta, transform_inertial
from safe_sysid.robot.scenes.scene import config_path
from safe_sysid.robot.unknowns import NO_UNKNOWNS
from safe_sysid.studies.campaign.cases.payloads import DrawnPayload
from safe_sysid.studies.campaign.cases.unknowns import TrueUnknowns

__all__ = ["CHAINS", "TrueArm", "arm_model", "draw_arm", "draw_motors", "prior_around", "with_sliding"]


#: Kinds of chain: anything; axes along the frames' own; a wrist of axes through one point; parallel axes.
CHAINS = ("random", "orthogonal", "wrist", "planar")


@dataclass(frozen=True, eq=False)
class TrueArm:
    """An arm as it is, payload in hand."""

    kinematics: Kinematics
    theta: FloatArray  #: (14 n,) true parameters
    hand: FloatArray  #: (10,) last link with the empty hand, last joint's frame
    opening: FloatArray  #: (10,) largest change by the hand's opening; the true one is within
    #: rotation (3, 3) and translation (3,) of the tool frame in the last joint frame
    flange: tuple[FloatArray, FloatArray]
    payload: DrawnPayload
    uncertainty: float  #: relative part of the declared uncertainty

    def __post_init__(self) -> None:
        object.__setattr__(self, "theta", frozen_array(self.theta, (self.layout.size,), "TrueArm.theta"))

    @property
    def n(self) -> int:
        """Number of joints."""
        return len(self.kinematics.axis)

    @property
    def layout(self) -> ParameterLayout:
        """Where everything lies in theta."""
        return ParameterLayout(self.n)


def draw_arm(rng: np.random.Generator, n: int, chain: str, payload: DrawnPayload, coulomb: float) -> TrueArm:
    """A random arm. ``chain``: one of :data:`CHAINS`; ``coulomb``: size of the Coulomb friction, N m.

    Raises ParameterError: unknown kind of chain.
    """
    if chain not in CHAINS:
        raise ParameterError(f"chain = {chain!r}: expected one of {', '.join(CHAINS)}")
    kinematics = _kinematics(rng, n, chain)
    layout = ParameterLayout(n)
    theta = np.empty(layout.size)
    size = rng.uniform(0.02, 0.15)
    for j in range(n):
        points = rng.normal(0.0, size, (8, 3)) + rng.normal(0.0, 0.1, 3)
        theta[layout.link(j)] = _cloud(points, rng.uniform(0.02, 0.6) * rng.dirichlet(np.ones(8)) * 8.0)
    theta[layout.coulomb] = coulomb * rng.uniform(0.1, 1.0, n)
    theta[layout.viscous] = rng.uniform(0.0, 8.0, n) * rng.choice([0.0, 1.0], p=[0.1, 0.9])
    theta[layout.rotor_inertia] = rng.choice([0.05, 0.5, 5.0]) * rng.uniform(0.2, 2.0, n)
    theta[layout.offset] = rng.uniform(-0.5, 0.5, n)
    last = layout.payload
    flange = (_rotation(rng), rng.uniform(-0.1, 0.1, 3))
    # A finger that moves: a small mass at one place in the empty hand, at another one round the payload.
    mass, places = rng.uniform(0.0, 0.05), rng.uniform(-0.1, 0.1, (2, 3))
    hand = theta[last] + _cloud(places[:1], np.array([mass]))
    moved = _cloud(places, np.array([-mass, mass]))
    theta[last] = hand + moved + transform_inertial(*flange, payload.theta)
    opening = np.abs(moved) * rng.choice([1.0, 1.5]) * (1.0 + 1e-12)
    return TrueArm(kinematics, theta, hand, opening, flange, payload, float(rng.choice([0.01, 0.05, 0.1])))


def draw_motors(rng: np.random.Generator, n: int) -> Motors:
    """Rotors that turn in moving links: any link before the joint, any axis, ratios of both signs, 5 to 160."""
    joints = np.flatnonzero(rng.random(n) < 0.8)
    joints = joints[joints > 0]
    axis = rng.normal(size=(len(joints), 3))
    along = rng.random(len(joints)) < 0.3  # a frame's own axis, as most motors have
    axis[along] = np.eye(3)[rng.integers(0, 3, int(along.sum()))]
    ratio = rng.choice([-1.0, 1.0], len(joints)) * 5.0 * 32.0 ** rng.random(len(joints))
    return Motors(
        joints.astype(np.int64),
        rng.integers(0, joints, dtype=np.int64) if len(joints) else np.zeros(0, np.int64),
        1.0 / ratio,
        axis / np.linalg.norm(axis, axis=1, keepdims=True),
    )


def _kinematics(rng: np.random.Generator, n: int, chain: str) -> Kinematics:
    rotation = np.stack([_rotation(rng) for _ in range(n)])
    translation = rng.uniform(-0.35, 0.35, (n, 3))
    axis = rng.normal(size=(n, 3))
    axis /= np.linalg.norm(axis, axis=1, keepdims=True)
    if chain == "orthogonal":
        quarter = np.array([[1.0, 0.0, 0.0], [0.0, 0.0, -1.0], [0.0, 1.0, 0.0]])
        cycle = np.array([[0.0, 0.0, 1.0], [1.0, 0.0, 0.0], [0.0, 1.0, 0.0]])
        choices = np.stack([np.eye(3), quarter, quarter.T, cycle, cycle.T])
        rotation = choices[rng.integers(0, len(choices), n)]
        axis = np.eye(3)[rng.integers(0, 3, n)] * rng.choice([-1.0, 1.0], (n, 1))
        translation = translation * np.eye(3)[rng.integers(0, 3, n)]
    elif chain == "wrist":
        translation[max(1, n - 3) + 1 :] = 0.0
    elif chain == "planar":
        axis[:] = axis[0]
        rotation[:] = np.eye(3)
    gravity = rng.normal(size=3)
    gravity *= 9.81 / np.linalg.norm(gravity)
    return Kinematics.turning(rotation, translation, axis, gravity)


def _rotation(rng: np.random.Generator) -> FloatArray:
    q, r = np.linalg.qr(rng.normal(size=(3, 3)))
    q = q * np.sign(np.diag(r))
    return q if np.linalg.det(q) > 0.0 else -q


def _cloud(points: FloatArray, masses: FloatArray) -> FloatArray:
    lifted = np.column_stack([points, np.ones(len(points))])
    return pseudo_inertia_to_theta((lifted * masses[:, None]).T @ lifted)


def prior_around(rng: np.random.Generator, arm: TrueArm, place: FloatArray | None = None) -> ParameterBox:
    """A box that holds the truth: unequal widths, a payload prior some ten times wider than the rest.

    ``place``: (14 n,) where the truth lies in the box, -1 at its lower, 1 at its upper end; None: anywhere.
    """
    theta = arm.theta
    rad = arm.uncertainty * rng.uniform(0.2, 1.0, theta.size) * np.abs(theta)
    rad += rng.choice([0.0, 1.0]) * rng.uniform(0.0, 1e-3, theta.size)
    rad[arm.layout.payload] = np.array([2.0, *(0.4,) * 3, *(0.2,) * 6]) * rng.uniform(0.5, 1.0, 10)
    where = rng.uniform(-1.0, 1.0, theta.size)  # drawn in any case: what follows must not depend on `place`
    where = where if place is None else np.clip(place, -1.0, 1.0)
    mid = theta - where * rad
    lower, upper = np.minimum(mid - rad, theta), np.maximum(mid + rad, theta)
    not_negative = arm.layout.never_negative
    lower[not_negative] = np.minimum(np.maximum(lower[not_negative], 0.0), theta[not_negative])
    return ParameterBox(lower, upper)


def with_sliding(arm: TrueArm, sliding: BoolArray, q: FloatArray, room: FloatArray) -> TrueArm:
    """The arm with prismatic joints, whose travel is what positions need and a little room.

    Args:
        arm: of turning joints, or of the same prismatic ones.
        sliding: (n,) joints that slide.
        q: (N, n) positions that they have, m.
        room: (n,) m beyond these on either side, positive.
    """
    travel = np.where(sliding[:, None], np.stack([q.min(axis=0) - room, q.max(axis=0) + room], axis=1), 0.0)
    travel[~sliding] = -np.inf, np.inf
    return replace(arm, kinematics=arm.kinematics._replace(travel=travel))


@lru_cache(maxsize=1)
def _template() -> dict[str, Any]:
    """The packaged configuration as plain data: new settings get a sensible value here too."""
    return read_yaml(config_path("kinova_gen3", "config"))


def arm_model(
    rng: np.random.Generator,
    arm: TrueArm,
    prior: ParameterBox,
    continuous: BoolArray,
    sections: dict[str, dict[str, Any]],
    transition: float,
    constants: TrueUnknowns | None = None,
) -> RobotModel:
    """What the identifier is told: the prior, not the truth.

    Args:
        rng: generator; places the true hand within its declared uncertainty, at its ends with a chance of one half.
        continuous: (n,) joints whose measured position wraps.
        sections: settings that replace the packaged ones, by section.
        transition: friction's transition velocity, rad/s.
        constants: that it is told intervals of; None: there are none.
    """
    n = arm.n
    kinematics, unknowns = arm.kinematics, NO_UNKNOWNS
    if constants is not None:
        kinematics, unknowns = constants.declared(kinematics)
    data = copy.deepcopy(_template())
    names = tuple(f"joint_{j + 1}" for j in range(n))
    joint = {"position": "continuous", "velocity": 100.0, "torque": 1e4, "rotor_inertia": 0.0}
    data["joints"] = dict.fromkeys(names, joint | {"viscous": 0.0, "coulomb": 0.0, "offset": 0.0})
    data |= {"name": "campaign", "home": [0.0] * n, "gravity": arm.kinematics.gravity.tolist()}
    data["friction_transition_velocity"] = transition
    data["controller"] = {"uncertainty": 1.0}
    floors = {"mass": 1e-3, "first_moment": 1e-4, "inertia": 1e-5}
    data["uncertainty"] = {"relative": arm.uncertainty, "floor": floors}
    box = arm.layout.payload
    data["payload"] |= {
        "prior_lower": prior.lower[box].tolist(),
        "prior_upper": prior.upper[box].tolist(),
        "hand_opening": arm.opening.tolist(),
    }
    for key, values in sections.items():
        data[key] = data.get(key, {}) | values
    settings = Settings.model_validate(data)
    where = rng.uniform(-1.0, 1.0, 10)
    where = np.sign(where) if rng.random() < 0.5 else where
    floor = np.array([floors["mass"], *(floors["first_moment"],) * 3, *(floors["inertia"],) * 6])
    nominal = prior.mid.copy()
    nominal[box] = arm.hand - where * (arm.uncertainty * np.abs(arm.hand) + floor) / (1.0 + arm.uncertainty)
    model = RobotModel(
        name="campaign",
        joint_names=names,
        kinematics=kinematics,
        limits=JointLimits(np.full(n, -np.inf), np.full(n, np.inf), np.full(n, 100.0), np.full(n, 1e4)),
        continuous=continuous,
        theta_nominal=nominal,
        arm_prior=prior,
        friction_transition_velocity=settings.friction_transition_velocity,
        flange=arm.flange,
        bodies=(),
        allowed_pairs=frozenset(),
        settings=settings,
        unknowns=unknowns,
    )
    lower, upper = model.hand_prior
    if not np.all((lower <= arm.hand) & (arm.hand <= upper)):
        raise ParameterError("true hand outside its prior: the campaign's own drawing is wrong")
    return model
