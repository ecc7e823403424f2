"""Viewer state: what the viewer has received, as plain data of bounded size. Messages go in, a snapshot comes out."""

from __future__ import annotations

import math
import re
import time
from collections import Counter

import numpy as np
from diagnostic_msgs.msg import DiagnosticArray
from sensor_msgs.msg import JointState
from std_msgs.msg import Float64MultiArray
from trajectory_msgs.msg import JointTrajectory
from visualization_msgs.msg import Marker, MarkerArray

from safe_sysid.core.arrays import FloatArray
from safe_sysid.nodes.common.digest import difference
from safe_sysid.nodes.common.messages.contents import MessageRefusedError
from safe_sysid.nodes.common.messages.conversions import JointReader, read_bounds, read_plan
from safe_sysid.robot.frames import rotation_from_quaternion
from safe_sysid.robot.margin import UNITS, Margin
from safe_sysid.robot.model import RobotModel
from safe_sysid.view.snapshot import OLD, BoundsView, DrawnSolid, NodeView, RunOutcome, Snapshot
from safe_sysid.view.text import plain

__all__ = ["ViewerState"]

#: Of this package's diagnostics.
_OURS = re.compile(r"(?P<node>[A-Za-z0-9_/]{1,200}): safe_sysid")
_NODES = ("controller", "planner", "identifier", "plant", "recorder")
_MOST_VALUES, _MOST_MARKERS, _MOST_POINTS, _FARTHEST = 60, 4000, 20_000, 100.0
_KINDS = {
    Marker.CUBE: "box",
    Marker.SPHERE: "sphere",
    Marker.CYLINDER: "cylinder",
    Marker.LINE_STRIP: "line",
    Marker.TRIANGLE_LIST: "triangles",
}
#: Namespaces of markers that are drawn, and how many; the rest there is made of what we hear ourselves.
DRAWN = {"obstacles": 600, "plan": 10, "swept": 2000}
#: Frames of what is drawn; who says none means the world.
_WORLD = ("world", "")
#: A stamp that is older by so much is of another run, ns; by less, it came late. And one that is newer by a day: after
#: a simulation, an arm.
_BACK, _FORTH = 1_000_000_000, 86_400_000_000_000
_ABOUT = re.compile(r"plan (\d{1,9}), box (\d{1,9}:\d{1,9}), start (\d{1,19}) ns")
_FAMILY = re.compile(r"([A-Za-z_][A-Za-z_ ]{0,39}) \[([^\]]{1,16})\]")


class ViewerState:
    """Everything that was heard last.

    Attributes:
        q: (n,) measured, or None.
        changed: namespaces of markers that changed since somebody looked.
        dropped: what is not shown, by reason.
        heard: when something last came on a topic, s on the monotonic clock.
        verdict: how the demo ended, once it has.
    """

    def __init__(self, model: RobotModel, namespace: str, digests: tuple[str, str]) -> None:
        """Of nothing yet.

        Args:
            namespace: whose nodes are looked at, without slashes at its ends.
            digests: of this side's configuration, in lock-step and in real time.
        """
        self._model, self._namespace, self._digests = model, namespace, digests
        self._states = JointReader(model.joint_names, with_effort=None)
        self._references = JointReader(model.joint_names, with_effort=None)
        self.q: FloatArray | None = None
        self._torque: FloatArray | None = None
        self._bounds: BoundsView | None = None
        self._theirs = ""
        self._nodes: dict[str, tuple[float, NodeView]] = {}
        self._margins: tuple[Margin, ...] = ()
        self._plan = ""
        self.solids: dict[tuple[str, int], DrawnSolid] = {}
        self._counts: Counter[str] = Counter()
        self.changed: set[str] = set()
        self.dropped: Counter[str] = Counter()
        self._first: int | None = None
        self._last: tuple[int, float] = (0, 0.0)
        self._pace: tuple[int, float] | None = None
        self._speed: float | None = None
        self._simulated = False
        self.heard: dict[str, float] = {}
        self.verdict: RunOutcome | None = None

    # -- messages; each may raise RefusedError ------------------------------------------------------------------

    def joint_states(self, message: JointState) -> None:
        """Pose and time."""
        sample = self._states.read(message)
        self.q = sample.q
        self._note_time(sample.stamp_ns)

    def _note_time(self, stamp: int) -> None:
        now = time.monotonic()
        # Another plant, or the same one started again.
        if self._first is None or not -_BACK <= stamp - self._last[0] <= _FORTH:
            self._simulated = False
            self._first, self._pace, self._speed, self._last = stamp, None, None, (0, now)
            self._forget_plan()
        if stamp > self._last[0]:
            self._last = (stamp, now)
        if self._pace is None:
            self._pace = (stamp, now)
        elif now - self._pace[1] > 1.0:
            self._speed = 1e-9 * (stamp - self._pace[0]) / (now - self._pace[1])
            self._pace = (stamp, now)

    def _forget_plan(self) -> None:
        """What was planned in another run leads nowhere; obstacles stay until somebody takes them away."""
        self._plan, self._margins = "", ()
        for key in [key for key in self.solids if key[0] != "obstacles"]:
            del self.solids[key]
            self._counts[key[0]] -= 1
            self.changed.add(key[0])

    def reference(self, message: JointState) -> None:
        """Commanded torque."""
        self._torque = self._references.read(message).effort

    def bounds_active(self, message: Float64MultiArray) -> None:
        """The box that the controller works with."""
        answer = read_bounds(message, self._model.layout.size)
        box, last = answer.box, self._model.layout.payload
        self._bounds = BoundsView(box.identity, box.lower[last], answer.nominal[last], box.upper[last])
        self._theirs = answer.digest

    def plan(self, message: JointTrajectory) -> None:
        """What the planner said last."""
        if not message.points:
            self._plan, self._margins = "no certified plan for this hand-over: the arm brakes", ()
            return
        answer = read_plan(message, self._model.joint_names)
        if answer.trajectory is not None:
            self._plan = f"plan of {answer.trajectory.duration:.2f} s, certified for box {answer.box_identity}"

    def certificate(self, message: Float64MultiArray) -> None:
        """Margins of the last plan."""
        dim = message.layout.dim
        if len(dim) != 2 or _ABOUT.fullmatch(dim[0].label) is None or len(dim[1].label) > 2000:
            raise MessageRefusedError("bad layout", "expected a certificate's two labels")
        names = _FAMILY.findall(dim[1].label)
        if not names or len(message.data) != 2 * len(names):
            raise MessageRefusedError("wrong length", f"{len(message.data)} numbers for {len(names)} families")
        for name, unit in names:
            if UNITS.get(name) != unit:
                raise MessageRefusedError("bad layout", f"{name} [{unit}]: expected families and units of {UNITS}")
        rows = np.reshape(np.asarray(message.data, float), (-1, 2)).tolist()
        self._margins = tuple(Margin(name, "", "", *row) for (name, _), row in zip(names, rows, strict=True))

    def diagnostics(self, message: DiagnosticArray) -> None:
        """What this namespace's nodes say."""
        for status in message.status[:100]:
            match = _OURS.fullmatch(status.name)
            if match is None:
                continue
            namespace, _, node = match["node"].rpartition("/")
            if namespace.strip("/") != self._namespace or node not in _NODES:
                continue
            raw = status.level
            level = raw[0] if isinstance(raw, (bytes, bytearray)) else int(raw)
            pairs = {plain(item.key, 80): plain(item.value, 400) for item in status.values[:_MOST_VALUES]}
            self._nodes[node] = (time.monotonic(), NodeView(min(max(level, 0), 3), plain(status.message), pairs, 0.0))

    def markers(self, message: MarkerArray) -> None:
        """Obstacles, the flange's way, the swept volume."""
        if (more := len(message.markers) - _MOST_MARKERS) > 0:
            self.dropped["marker: too many"] += more
        for marker in message.markers[:_MOST_MARKERS]:
            if marker.ns not in DRAWN and marker.action != Marker.DELETEALL:
                continue
            if marker.action == Marker.DELETEALL:
                gone = [key for key in self.solids if not marker.ns or key[0] == marker.ns]
                self.changed |= {namespace for namespace, _ in gone}
                for key in gone:
                    del self.solids[key]
                    self._counts[key[0]] -= 1
                continue
            key = (marker.ns, int(marker.id))
            if marker.action == Marker.DELETE:
                if self.solids.pop(key, None) is not None:
                    self.changed.add(marker.ns)
                    self._counts[marker.ns] -= 1
                continue
            try:
                solid = _solid(marker)
            except MessageRefusedError as refused:
                self.dropped[f"marker: {refused.reason}"] += 1
                continue
            if key not in self.solids and self._counts[marker.ns] >= DRAWN[marker.ns]:
                self.dropped["marker: too many"] += 1
                continue
            self._counts[marker.ns] += key not in self.solids
            self.solids[key] = solid
            self.changed.add(marker.ns)

    def drawn(self, namespace: str) -> list[DrawnSolid]:
        """Markers of a namespace, by id; from now on it is unchanged."""
        self.changed.discard(namespace)
        return [solid for key, solid in sorted(self.solids.items()) if key[0] == namespace]

    # -- what there is to see -----------------------------------------------------------------------------------

    def snapshot(self, missing: tuple[str, ...], simulated: bool) -> Snapshot:
        """Of this moment.

        Args:
            missing: sentences about what is not there.
            simulated: whether somebody publishes /clock. What was once simulated is that to the end of its run: its
                time does not begin anew because the plant has ended.
        """
        now = time.monotonic()
        self._simulated |= simulated
        last = self._model.layout.payload
        prior = self._model.arm_prior
        moves = now - self._last[1] < 2.0
        return Snapshot(
            time=None if self._first is None else 1e-9 * (self._last[0] - (0 if self._simulated else self._first)),
            speed=self._speed if moves else None,
            simulated=self._simulated,
            nodes={name: _aged(view, now - when) for name, (when, view) in self._nodes.items()},
            prior=(prior.lower[last], prior.upper[last]),
            bounds=self._bounds,
            torque=self._torque if self.verdict is not None or not self.silent("reference") else None,
            margins=self._margins,
            plan=self._plan,
            missing=() if self.verdict is not None else missing,
            verdict=self.verdict,
            warnings=self._warnings(),
            dropped=dict(self.dropped),
        )

    def silent(self, topic: str) -> bool:
        """Whether nothing comes on a topic, or nothing any more."""
        return time.monotonic() - self.heard.get(topic, -math.inf) > OLD

    @property
    def bounds_now(self) -> BoundsView | None:
        """The box in force."""
        return self._bounds

    def _warnings(self) -> tuple[str, ...]:
        if self._bounds is None or not self._theirs:
            return ()
        reasons = [difference(self._theirs, own) for own in self._digests]
        reason = min(reasons, key=len)
        return (f"configured differently from this view: {reason}",) if reason else ()


def _aged(view: NodeView, age: float) -> NodeView:
    return NodeView(view.level, view.text, view.values, age)


def _solid(marker: Marker) -> DrawnSolid:
    """One marker.

    Raises MessageRefusedError: a type that is not drawn, not in the world's frame, or numbers that cannot be.
    """
    if marker.header.frame_id not in _WORLD:
        raise MessageRefusedError("another frame", f"frame {marker.header.frame_id[:40]!r}: expected world")
    kind = _KINDS.get(marker.type)
    if kind is None:
        raise MessageRefusedError("type not drawn", f"type {marker.type}")
    if len(marker.points) > _MOST_POINTS:
        raise MessageRefusedError("too many points", f"{len(marker.points)}: expected at most {_MOST_POINTS}")
    p, o, s = marker.pose.position, marker.pose.orientation, marker.scale
    points = np.array([(v.x, v.y, v.z) for v in marker.points], float).reshape(-1, 3)
    numbers = np.array([p.x, p.y, p.z, s.x, s.y, s.z])
    turn = np.array([o.x, o.y, o.z, o.w])
    if not all(np.all(np.abs(x) <= _FARTHEST) for x in (numbers, turn, points)):  # also false for NaN
        raise MessageRefusedError("far away", f"numbers beyond {_FARTHEST:g}, or none")
    length = float(np.linalg.norm(turn))
    rotation = np.eye(3) if length < 1e-6 else rotation_from_quaternion(turn / length)
    return DrawnSolid(kind, numbers[:3], rotation, np.abs(numbers[3:]), points)
