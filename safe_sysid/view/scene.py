"""Three-dimensional scene of the page: the arm, obstacles, plan and payload."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import viser
from numpy.typing import NDArray

from safe_sysid.core.arrays import FloatArray
from safe_sysid.identification.inertia_shapes import PayloadShapes
from safe_sysid.robot.frames import quaternion_wxyz
from safe_sysid.robot.model import RobotModel
from safe_sysid.view.arm_shapes import LinkShape
from safe_sysid.view.skin import skin_of_boxes
from safe_sysid.view.snapshot import DrawnSolid
from safe_sysid.view.solids import AROUND, Mesh, ball, box, cylinder, joined, placed, rounded_hull, unindexed
from safe_sysid.view.text import plain

__all__ = ["ArmScene"]

_OBSTACLE, _GLASS, _EDGE = (132, 146, 166), (120, 144, 176), (98, 114, 136)
_SWEPT, _WAY = (245, 158, 11), (37, 99, 235)
_CENTRES, _ELLIPSOID = (220, 38, 38), (13, 148, 136)
#: Semi-axes of a picture are at least so long, m: a flat ellipsoid is to be seen, too.
_FLATTEST = 2e-3
#: rad, m; a joint that has moved by less is where it was.
_STILL = 2e-4
#: Obstacles that are drawn finely, and walls of glass; and triangles of all together: a browser is to stay quick.
_FEW, _MOST_TRIANGLES = 60, 200_000
_GHOST: dict[str, Any] = {"cast_shadow": False, "receive_shadow": False}
#: The same of the box of possible centres, which becomes a point in time, m.
_THINNEST = 4e-3


class ArmScene:
    """Draws into a viser scene; every method may be called as often as there is news."""

    def __init__(self, server: viser.ViserServer, model: RobotModel, shapes: Sequence[LinkShape]) -> None:
        """Light, floor, camera and the arm at its home. ``shapes``: what it looks like."""
        self._scene, self._model = server.scene, model
        self._frames: list[Any] = []
        self._around: list[Any] = []
        self._swept: list[Any] = []
        self._way: list[Any] = []
        self._count = 0
        #: Obstacles that are not drawn, for they are too finely made.
        self.left_out = 0
        self._set_up(server)
        self._turns = quaternion_wxyz(model.kinematics.rotation)
        self._drawn = np.full(model.n, np.inf)
        names = ["/arm"]
        self._scene.add_frame(names[0], show_axes=False)
        for j in range(model.n):
            names.append(f"{names[-1]}/{j + 1}")
            origin = model.kinematics.translation[j]
            self._frames.append(self._scene.add_frame(names[-1], show_axes=False, position=origin))
        for i, shape in enumerate(shapes):
            self._scene.add_mesh_simple(
                f"{names[shape.joint + 1]}/shape{i}", shape.vertices, shape.faces, color=shape.colour
            )
        rotation, position = model.payload_frame
        turn = quaternion_wxyz(rotation)
        tool = f"{names[-1]}/tool"
        self._scene.add_frame(tool, show_axes=False, wxyz=turn, position=position)
        self._held = _Held.added(self._scene, tool)
        self.pose(np.array(model.settings.home, float))

    def _set_up(self, server: viser.ViserServer) -> None:
        """Light from above, a floor that shows shadows, the camera framed on what the arm can reach."""
        model, scene = self._model, self._scene
        reach = float(np.linalg.norm(model.kinematics.translation, axis=1).sum() + np.linalg.norm(model.flange[1]))
        self._reach = reach = max(reach, 0.3)
        scene.set_up_direction("+z")
        scene.set_background_image(_sky(), format="jpeg")
        scene.configure_environment_map("studio", environment_intensity=0.35)
        scene.configure_default_lights(True, cast_shadow=True)
        scene.add_grid(
            "/floor",
            infinite_grid=True,
            cell_size=0.1,
            section_size=0.5,
            cell_color=(176, 189, 203),
            section_color=(146, 161, 178),
            fade_distance=4.5 * reach,
            fade_strength=1.5,
            shadow_opacity=0.28,
        )
        server.initial_camera.fov = np.deg2rad(38.0)
        server.initial_camera.look_at = (0.12 * reach, 0.0, 0.32 * reach)
        server.initial_camera.position = (1.22 * reach, -1.28 * reach, 0.72 * reach)

    # -- what moves ---------------------------------------------------------------------------------------------

    def pose(self, q: FloatArray) -> None:
        """Where the joints are; each frame hangs on the one before, so that only what has moved is told.

        ``q``: (n,) rad (m where a joint slides), finite.
        """
        kinematics = self._model.kinematics
        for j in np.flatnonzero(~(np.abs(q - self._drawn) < _STILL)):
            axis, frame = kinematics.axis[j], self._frames[j]
            if kinematics.sliding[j]:
                frame.wxyz = self._turns[j]
                frame.position = kinematics.translation[j] + kinematics.rotation[j] @ axis * q[j]
            else:
                frame.wxyz = _turned(self._turns[j], axis, float(q[j]))
            self._drawn[j] = q[j]

    # -- what others drew ---------------------------------------------------------------------------------------

    def obstacles(self, solids: Sequence[DrawnSolid]) -> None:
        """What stands around the arm."""
        self._clear(self._around)
        around = AROUND if len(solids) <= _FEW else 12
        edges, small, count = [], [], 0
        self.left_out = 0
        for solid in solids:
            mesh = placed(_mesh(solid, around), solid.rotation, solid.position)
            if count + len(mesh[1]) > _MOST_TRIANGLES:
                self.left_out += 1
            if not len(mesh[1]) or count + len(mesh[1]) > _MOST_TRIANGLES:
                continue
            count += len(mesh[1])
            # What is as large as the arm's reach would hide the arm: it is drawn as if of glass.
            large = float(np.ptp(mesh[0], axis=0).max()) > self._reach and len(self._around) < _FEW
            if solid.kind == "box":
                edges.append(_edges(np.zeros(3), solid.size) @ solid.rotation.T + solid.position)
            if not large:
                small.append(mesh)
                continue
            self._around.append(
                self._scene.add_mesh_simple(
                    self._name("around"), *mesh, color=_GLASS, opacity=0.16, side="back", **_GHOST
                )
            )
        if small:
            self._around.append(self._scene.add_mesh_simple(self._name("around"), *joined(small), color=_OBSTACLE))
        if edges:
            lines = np.concatenate(edges)
            self._around.append(
                self._scene.add_line_segments(
                    self._name("edges"), lines, colors=_EDGE, thickness=1.2, thickness_units="screen"
                )
            )

    def swept(self, solids: Sequence[DrawnSolid]) -> None:
        """All that the certificate lets the arm be in, as one skin."""
        self._clear(self._swept)
        boxes = [solid for solid in solids if solid.kind == "box"]
        if not boxes:
            return
        centre, half = np.array([s.position for s in boxes]), 0.5 * np.array([s.size for s in boxes])
        mesh = skin_of_boxes(centre - half, centre + half)
        # Its far side only: what is translucent hides what is translucent behind it, and the arm is inside.
        self._swept.append(
            self._scene.add_mesh_simple(self._name("swept"), *mesh, color=_SWEPT, opacity=0.3, side="back", **_GHOST)
        )

    def way(self, solids: Sequence[DrawnSolid]) -> None:
        """The flange's planned way: the first line of what is drawn of the plan."""
        self._clear(self._way)
        lines = [s for s in solids if s.kind == "line" and len(s.points) >= 2]
        if not lines:
            return
        points = lines[0].points @ lines[0].rotation.T + lines[0].position
        self._way.append(
            self._scene.add_line_segments(
                self._name("way"),
                np.stack([points[:-1], points[1:]], axis=1),
                colors=_WAY,
                thickness=4.0,
                thickness_units="screen",
            )
        )
        self._way.append(
            self._scene.add_icosphere(self._name("end"), 0.012, color=_WAY, position=points[-1], cast_shadow=False)
        )

    # -- what it holds ------------------------------------------------------------------------------------------

    def payload(self, shapes: PayloadShapes | None) -> None:
        """Box of possible centres of mass, ellipsoid of the nominal, and the mass in words."""
        held = self._held
        ellipsoid = None if shapes is None else shapes.ellipsoid
        held.ellipsoid.visible = ellipsoid is not None
        anchor = np.zeros(3)
        if ellipsoid is not None:
            centre, rotation, axes = ellipsoid
            held.ellipsoid.position = centre
            held.ellipsoid.wxyz = quaternion_wxyz(rotation)
            held.ellipsoid.scale = tuple(float(x) for x in np.maximum(axes, _FLATTEST))
            anchor = centre + np.array([0.0, 0.0, float(np.abs(rotation @ np.diag(axes)).sum(axis=1)[2]) + 0.02])
        bounded = shapes is not None and shapes.bounded
        held.centres.visible = held.edges.visible = bounded
        if shapes is not None and bounded:
            middle = 0.5 * (shapes.centre_lower + shapes.centre_upper)
            size = np.maximum(shapes.centre_upper - shapes.centre_lower, _THINNEST)
            held.centres.position, held.centres.scale = middle, tuple(float(x) for x in size)
            held.edges.points = _edges(middle, size).astype(np.float32)
            if ellipsoid is None:
                anchor = middle + np.array([0.0, 0.0, 0.5 * float(size[2]) + 0.02])
        held.label.visible = shapes is not None
        if shapes is not None:
            held.label.text, held.label.position = plain(shapes.mass_text, 60), anchor

    def _name(self, kind: str) -> str:
        """A new one each time: a browser may mix up a thing that goes and one of its name that comes at once."""
        self._count += 1
        return f"/{kind}{self._count}"

    def _clear(self, handles: list[Any]) -> None:
        while handles:
            handles.pop().remove()


@dataclass(frozen=True)
class _Held:
    """What is drawn of the payload: made once, hidden, and changed."""

    ellipsoid: Any
    centres: Any
    edges: Any
    label: Any

    @classmethod
    def added(cls, scene: viser.SceneApi, tool: str) -> _Held:
        """In the tool frame."""
        solid: dict[str, Any] = {**_GHOST, "visible": False}
        unit = _edges(np.zeros(3), np.ones(3))
        return cls(
            scene.add_mesh_simple(f"{tool}/ellipsoid", *ball(1.0), color=_ELLIPSOID, opacity=0.4, **solid),
            scene.add_mesh_simple(f"{tool}/centres", *box(np.ones(3)), color=_CENTRES, opacity=0.35, **solid),
            scene.add_line_segments(
                f"{tool}/edges", unit, colors=_CENTRES, thickness=2.5, thickness_units="screen", visible=False
            ),
            scene.add_label(f"{tool}/label", "", anchor="center-center", font_screen_scale=1.1, visible=False),
        )


def _turned(turn: FloatArray, axis: FloatArray, angle: float) -> FloatArray:
    """Unit quaternion (w, x, y, z) of a rotation by an angle about a unit axis, then by a turn."""
    w, v = turn[0], turn[1:]
    c, s = np.cos(0.5 * angle), np.sin(0.5 * angle) * axis
    return np.array([w * c - v @ s, *(w * s + c * v + np.cross(v, s))])


def _sky() -> NDArray[np.uint8]:
    """A background that is a little darker below."""
    top, bottom = np.array([230, 235, 241]), np.array([186, 197, 209])
    share = np.linspace(0.0, 1.0, 256)[:, None, None]
    return np.broadcast_to(top + share * (bottom - top), (256, 16, 3)).astype(np.uint8)


def _mesh(solid: DrawnSolid, around: int) -> Mesh:
    """In the solid's own frame."""
    if solid.kind == "box":
        return box(solid.size)
    if solid.kind == "sphere":
        vertices, faces = ball(0.5, around)
        return vertices * solid.size, faces
    if solid.kind == "cylinder":
        vertices, faces = cylinder(0.5, 1.0, around)
        return vertices * solid.size, faces
    if solid.kind == "triangles":
        return unindexed(solid.points[: len(solid.points) // 3 * 3].reshape(-1, 3, 3))
    if solid.kind == "line" and len(solid.points):  # an obstacle of two corners; what has more is none of ours
        return rounded_hull(solid.points[[0, -1]], 0.5 * float(solid.size[0]))
    return joined([])


def _edges(centre: FloatArray, size: FloatArray) -> FloatArray:
    """(12, 2, 3) edges of a box."""
    signs = np.array([[x, y, z] for x in (-1, 1) for y in (-1, 1) for z in (-1, 1)], float)
    pairs = [(i, j) for i in range(8) for j in range(i + 1, 8) if np.abs(signs[i] - signs[j]).sum() == 2.0]
    return np.array([[centre + 0.5 * signs[i] * size, centre + 0.5 * signs[j] * size] for i, j in pairs])
