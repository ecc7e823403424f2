"""Scene server: obstacles from a file and from markers, changed only while the arm rests and nothing is planned."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from visualization_msgs.msg import Marker, MarkerArray

from safe_sysid.errors import SafeSysIdError
from safe_sysid.nodes.common.base import BaseNode
from safe_sysid.nodes.common.messages.contents import MessageRefusedError
from safe_sysid.nodes.planner.goals import check_frame, known_frames
from safe_sysid.nodes.planner.markers import scene_markers
from safe_sysid.nodes.planner.scheduler import PlanScheduler
from safe_sysid.nodes.planner.solver_client import SolverClient
from safe_sysid.planning.solver_process import jobs
from safe_sysid.robot.model import RobotModel
from safe_sysid.robot.scenes.scene import Scene
from safe_sysid.robot.scenes.scene_updates import SceneMarker, scene_from_markers

__all__ = ["MAX_MARKERS", "SceneServer", "read_markers"]

#: More obstacles than this are no scene that a plan could be certified in, in time.
MAX_MARKERS = 200
_MAX_NAME = 80
_KINDS = {Marker.CUBE: "cube", Marker.SPHERE: "sphere", Marker.CYLINDER: "cylinder", Marker.MESH_RESOURCE: "mesh"}
_ACTIONS = {Marker.ADD: "add", Marker.DELETE: "delete", Marker.DELETEALL: "delete_all"}


class SceneServer:
    """Keeps the scene; a change is checked here, told to the solver and drawn."""

    def __init__(self, node: BaseNode, scheduler: PlanScheduler, solver: SolverClient, scene: Scene) -> None:
        """``scene``: the solver knows it already."""
        self._node, self._scheduler, self._solver = node, scheduler, solver
        self.scene = scene
        self._drawn = 0
        self._publisher: Callable[[MarkerArray], None] | None = None
        # Not latched: an old change is nobody's wish any more.
        node.listen(MarkerArray, "scene", self._on_markers, 10)
        node.serve("reload_scene", self._reload)

    def draw_to(self, publish: Callable[[MarkerArray], None]) -> None:
        """Draw the scene, now and after each change."""
        self._publisher = publish
        self._draw()

    def _on_markers(self, msg: MarkerArray) -> None:
        markers = read_markers(msg, self._node.model)
        reason = self._scheduler.not_at_rest()
        if reason:
            raise MessageRefusedError("not at rest", reason)
        if not self._solver.ready:
            raise MessageRefusedError("not ready", "the solver takes in the last change: expected it to be ready")
        try:
            scene = scene_from_markers(markers, self.scene)
            self._use(scene)
        except MessageRefusedError:
            raise
        except SafeSysIdError as error:
            raise MessageRefusedError("bad marker", str(error)) from None

    def _reload(self) -> str | None:
        reason = self._scheduler.not_at_rest()
        if not reason:
            self._use(self._node.options.load_scene(self._node.model))
        return reason or None

    def _use(self, scene: Scene) -> None:
        if len(scene.obstacles) > MAX_MARKERS:
            raise MessageRefusedError("too long", f"{len(scene.obstacles)} obstacles: expected at most {MAX_MARKERS}")
        scene.check(self._node.model)
        self.scene = scene
        # Before the solver has answered it plans nothing; and nothing at all if it cannot.
        self._solver.process.configure("scene", partial(jobs.set_scene, scene=scene))
        self._scheduler.scene_changed()
        self._draw()
        self._node.say(f"scene {scene.name}: {len(scene.obstacles)} obstacles")

    def _draw(self) -> None:
        if self._publisher is None:
            return
        array = scene_markers(self.scene)
        count = len(array.markers)
        for number in range(count, self._drawn):
            array.markers.append(Marker(ns="obstacles", id=number, action=Marker.DELETE))
        self._drawn = count
        self._publisher(array)


def read_markers(msg: MarkerArray, model: RobotModel) -> list[SceneMarker]:
    """Convert what needs ROS; sizes and poses are judged by :func:`~.scene_updates.scene_from_markers`.

    Raises:
        MessageRefusedError: too many, another frame than the world's, a type or action that is no obstacle's, a limited
            lifetime: what vanishes unseen is no obstacle.
    """
    if len(msg.markers) > MAX_MARKERS:
        raise MessageRefusedError("too long", f"{len(msg.markers)} markers: expected at most {MAX_MARKERS}")
    return [_read(i, marker, model) for i, marker in enumerate(msg.markers)]


def _read(i: int, marker: Marker, model: RobotModel) -> SceneMarker:
    where = f"markers[{i}]"
    if marker.action not in _ACTIONS:
        raise MessageRefusedError("bad action", f"{where}.action = {marker.action}: expected one of {sorted(_ACTIONS)}")
    if len(marker.ns) > _MAX_NAME:
        raise MessageRefusedError("too long", f"{where}.ns of {len(marker.ns)} letters: expected at most {_MAX_NAME}")
    action = _ACTIONS[marker.action]
    if action != "add":
        return SceneMarker(marker.ns, marker.id, action)
    check_frame(marker.header.frame_id, model)
    if marker.type not in _KINDS:
        expected = ", ".join(f"{number} ({name})" for number, name in sorted(_KINDS.items()))
        raise MessageRefusedError("bad type", f"{where}.type = {marker.type}: expected one of {expected}")
    if marker.lifetime.sec or marker.lifetime.nanosec:
        text = f"{where}.lifetime = {marker.lifetime.sec} s {marker.lifetime.nanosec} ns: expected 0, for ever"
        raise MessageRefusedError("bad lifetime", text)
    p, o, s = marker.pose.position, marker.pose.orientation, marker.scale
    return SceneMarker(
        marker.ns,
        marker.id,
        action,
        _KINDS[marker.type],
        known_frames(model)[0],
        (p.x, p.y, p.z),
        (o.x, o.y, o.z, o.w),
        (s.x, s.y, s.z),
        marker.mesh_resource,
    )
