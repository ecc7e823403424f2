"""Dumbbells that nobody holds: free bodies that fall, touch, slide, topple and come to rest (MuJoCo, no arm)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import mujoco
import numpy as np
from scipy.spatial.transform import Rotation

from safe_sysid.core.arrays import FloatArray
from safe_sysid.errors import ModelError
from safe_sysid.robot.frames import quaternion_wxyz
from safe_sysid.robot.parameters import com_and_inertia
from safe_sysid.robot.scenes.obstacles import Obstacle, SceneBox
from safe_sysid.simulation.payloads import Payload
from safe_sysid.simulation.shapes import Shape

__all__ = ["BodyState", "Settling", "SurfaceFriction"]

_TIMESTEP = 1e-3  # s


@dataclass(frozen=True)
class SurfaceFriction:
    """Of every pair of surfaces: sliding (1), torsional (m) and rolling (m) coefficients."""

    sliding: float = 0.6
    torsional: float = 5e-3
    rolling: float = 1e-4


@dataclass(frozen=True, eq=False)
class BodyState:
    """Pose and velocity of a free body in the world."""

    position: FloatArray  #: (3,) of its frame's origin, m
    rotation: FloatArray  #: (3, 3) its axes
    velocity: FloatArray  #: (3,) of the origin, m/s
    turning: FloatArray  #: (3,) angular velocity in world axes, rad/s

    @classmethod
    def at_rest(cls, position: FloatArray, rotation: FloatArray) -> BodyState:
        """A body that stands still."""
        return cls(np.array(position, float), np.array(rotation, float), np.zeros(3), np.zeros(3))


class Settling:
    """Some dumbbells among boxes that stand still, from given states on."""

    def __init__(
        self,
        bodies: Mapping[str, tuple[Payload, BodyState]],
        boxes: Sequence[Obstacle],
        friction: SurfaceFriction,
        gravity: FloatArray,
    ) -> None:
        """Build the world. Raises ModelError: an obstacle that is not a box, or a body MuJoCo refuses.

        Args:
            bodies: by name: what it is (solids and parameters in its own frame), and how it moves now.
            gravity: (3,) m/s^2.
        """
        spec = mujoco.MjSpec()
        spec.compiler.degree = False
        option = spec.option
        option.timestep, option.gravity = _TIMESTEP, gravity
        option.integrator = mujoco.mjtIntegrator.mjINT_IMPLICITFAST
        option.cone = mujoco.mjtCone.mjCONE_ELLIPTIC
        # Several points per pair of faces; MuJoCo 4 does that by itself.
        option.enableflags |= int(getattr(mujoco.mjtEnableBit, "mjENBL_MULTICCD", 0))
        contact = {
            "friction": (friction.sliding, friction.torsional, friction.rolling),
            "condim": 4,
            "solref": (0.01, 1.0),
        }
        for box in boxes:
            if not isinstance(box, SceneBox):
                raise ModelError(f"obstacle {box.name} is a {box.kind}: expected a box where things are put down")
            spec.worldbody.add_geom(
                name=box.name,
                type=mujoco.mjtGeom.mjGEOM_BOX,
                size=0.5 * box.size,
                pos=box.xyz,
                quat=quaternion_wxyz(box.rotation),
                **contact,
            )
        for name, (payload, _) in bodies.items():
            _add(spec, name, payload, contact)
        try:
            self._model = spec.compile()
        except ValueError as error:
            raise ModelError(f"dumbbells {', '.join(bodies)}: MuJoCo refuses them: {error}") from error
        self._data = mujoco.MjData(self._model)
        self._names = tuple(bodies)
        for i, (_, state) in enumerate(bodies.values()):
            q, v = slice(7 * i, 7 * i + 3), slice(6 * i, 6 * i + 3)
            self._data.qpos[q], self._data.qvel[v] = state.position, state.velocity
            self._data.qpos[7 * i + 3 : 7 * i + 7] = quaternion_wxyz(state.rotation)
            self._data.qvel[6 * i + 3 : 6 * i + 6] = state.rotation.T @ state.turning

    def advance(self, duration: float) -> None:
        """Let ``duration`` s pass."""
        mujoco.mj_step(self._model, self._data, nstep=max(1, round(duration / _TIMESTEP)))

    def speed(self) -> float:
        """Fastest of all bodies: m/s, or rad/s times 0.1 m."""
        v = self._data.qvel.reshape(-1, 6)
        return float(max(np.abs(v[:, :3]).max(initial=0.0), 0.1 * np.abs(v[:, 3:]).max(initial=0.0)))

    def settle(self, least: float, most: float, quiet: float = 2e-3) -> float:
        """Let at least ``least`` and at most ``most`` s pass, until nothing is faster than ``quiet`` m/s; s passed."""
        self.advance(least)
        passed = least
        while passed < most and self.speed() > quiet:
            self.advance(0.02)
            passed += 0.02
        return passed

    def states(self) -> dict[str, BodyState]:
        """How every body moves now."""
        out = {}
        for i, name in enumerate(self._names):
            x, y = self._data.qpos[7 * i : 7 * i + 7], self._data.qvel[6 * i : 6 * i + 6]
            rotation = Rotation.from_quat([x[4], x[5], x[6], x[3]]).as_matrix()
            out[name] = BodyState(x[:3].copy(), rotation, y[:3].copy(), rotation @ y[3:])
        return out


def _add(spec: mujoco.MjSpec, name: str, payload: Payload, contact: dict) -> None:
    mass, centre, inertia = com_and_inertia(payload.theta)
    body = spec.worldbody.add_body(name=name)
    body.add_freejoint()
    body.mass, body.ipos, body.explicitinertial = mass, centre, True
    i = inertia
    body.fullinertia = (i[0, 0], i[1, 1], i[2, 2], i[0, 1], i[0, 2], i[1, 2])
    for k, shape in enumerate(payload.shapes):
        _add_solid(spec, body, f"{name}:{k}", shape, contact)


def _add_solid(spec: mujoco.MjSpec, body: mujoco.MjsBody, name: str, shape: Shape, contact: dict) -> None:
    pose = {"pos": shape.position, "quat": quaternion_wxyz(shape.rotation), "mass": 0.0, **contact}
    if shape.kind == "hexagon":
        mesh = spec.add_mesh(name=name)
        mesh.uservert = shape.corners().ravel()
        body.add_geom(name=name, type=mujoco.mjtGeom.mjGEOM_MESH, meshname=name, **pose)
        return
    kind = getattr(mujoco.mjtGeom, f"mjGEOM_{shape.kind.upper()}")
    half = {"cylinder": (shape.size[0], 0.5 * shape.size[-1], 0.0), "sphere": (shape.size[0], 0.0, 0.0)}
    size = half.get(shape.kind, tuple(0.5 * s for s in shape.size))
    body.add_geom(name=name, type=kind, size=size, **pose)
