"""The work cell at work: arm, dumbbells, table, platform and obstacles in MuJoCo, with contact.

Two simulations run side by side. The *arm*, with what it holds welded to its last link, is the plant of all other
tests (:class:`~safe_sysid.simulation.plant.Plant`): same drawn parameters, friction, drives and sensors, exact rigid
weld; around it stand the boxes of the work cell and the dumbbells that it does not hold, and it cannot push them: any
touch but those that the choreography intends ends in failure anyway. *Dumbbells that were let go* are free bodies
(:mod:`~.experiments.settling`) that fall, slide, topple and come to rest on the platform and on each other.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import ArrayLike, NDArray

from safe_sysid.core.arrays import FloatArray
from safe_sysid.errors import SafeSysIdError
from safe_sysid.identification.equations.measurements import Sample
from safe_sysid.robot.frames import forward_kinematics
from safe_sysid.robot.model import RobotModel
from safe_sysid.robot.scenes.scene import Scene
from safe_sysid.simulation.noise import NoiseModel
from safe_sysid.simulation.payloads import NO_PAYLOAD, Payload, theta_e_with_payload
from safe_sysid.simulation.plant import Plant
from safe_sysid.studies.experiments.cell.dumbbells import angle_between, box_around, draw_arm, in_hand, solids_of
from safe_sysid.studies.experiments.cell.settling import BodyState, Settling
from safe_sysid.studies.experiments.cell.workcell import GRIP, Workcell, check_fits, tool_axes
from safe_sysid.studies.experiments.interfaces import Contact, DumbbellPhase

__all__ = ["CellSimulation", "GraspError", "draw_arm", "in_hand"]

#: The hand closes around a handle that is this near, m and rad, at less than that speed, rad/s.
_NEAR, _NEAR_ANGLE, _STILL = 5e-3, 0.05, 0.02


class GraspError(SafeSysIdError):
    """The hand is not where it could take, or holds nothing to let go."""


class CellSimulation:
    """One run of a work cell. The hand is empty and, unless told otherwise, at the first dumbbell's pick pose."""

    def __init__(
        self,
        workcell: Workcell,
        model: RobotModel,
        theta_arm: ArrayLike,
        seed: int = 0,
        noise: str | NoiseModel = "uniform",
        actuator: str = "random",
        q0: ArrayLike | None = None,
    ) -> None:
        """Build it, at rest. Raises SafeSysIdError: work cell, arm and parameters do not fit each other.

        Args:
            workcell: what stands where.
            theta_arm: (14 n,) true parameters with an empty hand, as of :func:`.dumbbells.draw_arm`.
            noise: mode of the measurement errors with the declared bounds, or a noise model of one's own.
            actuator: mode of the actuator errors with the declared bounds.
            q0: (n,) rad; None for the first task's pick pose.
        """
        check_fits(workcell, model)
        self.workcell, self.model = workcell, model
        self.theta_arm = np.array(theta_arm, float)
        self.theta_arm.setflags(write=False)
        self._resting = {d.name: (d.position, d.rotation) for d in workcell.dumbbells}
        self._held: tuple[str, FloatArray, FloatArray] | None = None
        self._falling: Settling | None = None
        self._near_hand = {workcell.tasks[0].dumbbell}  # may overlap the hand: being taken, or just let go
        settings = model.settings
        if isinstance(noise, str):
            noise = NoiseModel.declared(settings, noise)
        self._plant = Plant(
            model,
            self.theta_arm,
            NO_PAYLOAD,
            self._solids(),
            seed,
            noise,
            workcell.tasks[0].pick if q0 is None else q0,
            period=settings.timing.period_s,
            torque_source=settings.measurement.torque_source,
            torque_limit=workcell.criteria.drive_torque,
            actuator_mode=actuator,
            actuator_abs=settings.actuator.torque_abs,
            actuator_rel=settings.actuator.torque_rel,
        )
        self.period = self._plant.period
        self.phase = DumbbellPhase.APPROACH
        self.peak_torque = np.zeros(model.n)
        self._touched: dict[tuple[DumbbellPhase, str, str], Contact] = {}

    @property
    def time(self) -> float:
        """Simulated time, s."""
        return self._plant.time

    @property
    def measurement(self) -> Sample:
        """The last one."""
        return self._plant.measurement

    @property
    def held(self) -> str | None:
        """Name of the dumbbell in the hand."""
        return None if self._held is None else self._held[0]

    @property
    def state(self) -> tuple[FloatArray, FloatArray]:
        """True position (n,) in rad and velocity (n,) in rad/s."""
        return self._plant.state

    @property
    def theta_true(self) -> FloatArray:
        """True parameters (14 n,) now, with what the hand holds."""
        return self._plant.theta_true

    @property
    def theta_nominal(self) -> FloatArray:
        """Nominal arm (14 n,) with the heaviest dumbbell of the work cell in its hand: what motions are made with."""
        theta = self.model.theta_nominal.copy()
        hand = self.model.layout.payload
        heaviest = max(self.workcell.dumbbells, key=lambda item: item.payload.theta[0])
        theta[hand] = theta_e_with_payload(self.model, theta[hand], in_hand(heaviest.payload))
        return theta

    @property
    def braking(self) -> bool:
        """Whether the drives brake or hold by themselves."""
        return self._plant.braking

    def truth(self) -> dict[str, NDArray]:
        """True states and torques so far; see :class:`~safe_sysid.simulation.log.TruthLog`."""
        return self._plant.truth()

    def measure(self) -> Sample:
        """The last measurement."""
        return self._plant.measurement

    def step(self, torque: ArrayLike | None) -> Sample:
        """Advance by one period. ``torque``: (n,) N m; None: no command came, the drives hold or brake by themselves.

        Raises ModelError: the simulation has diverged.
        """
        measurement = self._plant.step(torque)
        np.maximum(self.peak_torque, np.abs(self._plant.command_in_force), out=self.peak_torque)
        if self._plant.contacts:
            for one, two, depth in self.contacts():
                self._remember(one, two, depth)
        if self._falling is not None:
            self._falling.advance(self.period)
        return measurement

    def contacts(self) -> list[tuple[str, str, float]]:
        """What the arm, or what it holds, touches now: names and depth, m; the arm's part or "payload" first."""
        fixed = {_plain(obstacle.name) for obstacle in self._plant.scene.obstacles}
        out = []
        for a, b, depth in self._plant.contact_list:
            one, two = _plain(a), _plain(b)
            out.append((two, one, depth) if one in fixed else (one, two, depth))
        return out

    def touched(self) -> tuple[Contact, ...]:
        """All contacts since the last :meth:`forget`, first touch of each pair in each phase."""
        return tuple(self._touched.values())

    def forget(self) -> None:
        """Begin new books of contacts and torques."""
        self._touched.clear()
        self.peak_torque[:] = 0.0

    def pose(self, name: str) -> tuple[FloatArray, FloatArray]:
        """Middle (3,) in m and axes (3, 3) of a dumbbell now."""
        if self._held is not None and self._held[0] == name:
            rotation, position = self._tool()
            return position + rotation @ self._held[1], rotation @ self._held[2]
        if self._falling is not None:
            state = self._falling.states()[name]
            return state.position, state.rotation
        self.workcell.dumbbell(name)
        position, rotation = self._resting[name]
        return position.copy(), rotation.copy()

    def clearance(self, q: ArrayLike) -> tuple[float, tuple[str, str] | None]:
        """Smallest distance (m) at angles ``q`` (n,) of arm and payload from everything, and between what."""
        return self._plant.clearance(q)

    def scene(self) -> Scene:
        """What stands around now, dumbbells included (as boxes around them), the one in the hand left out."""
        cell = self.workcell
        boxes = [box_around(item, *self.pose(item.name)) for item in cell.dumbbells if item.name != self.held]
        return replace(cell.scene, obstacles=(*cell.scene.obstacles, *boxes))

    def approach(self, name: str) -> None:
        """From now on the open hand may reach around this dumbbell."""
        self._near_hand.add(self.workcell.dumbbell(name).name)
        self._rebuild()

    def leave(self) -> None:
        """From now on the hand must keep clear of every dumbbell."""
        self._near_hand.clear()
        self._rebuild()

    def grasp(self, name: str) -> None:
        """Weld a dumbbell to the hand, as it stands in the hand now.

        Raises GraspError: the hand is full, not around the handle, or moving.
        """
        item = self.workcell.dumbbell(name)
        rotation, position = self._tool()
        place, axes = self.pose(name)
        relative_p, relative_r = rotation.T @ (place - position), rotation.T @ axes
        off = float(np.linalg.norm(relative_p - GRIP))
        turned = angle_between(relative_r, tool_axes(np.eye(3)).T)
        speed = float(np.abs(self.state[1]).max())
        if self._held is not None or self._falling is not None:
            raise GraspError(f"grasp of {name}: expected an empty hand, and nothing that falls")
        if not (off <= _NEAR and turned <= _NEAR_ANGLE and speed <= _STILL):
            raise GraspError(
                f"grasp of {name}: the hand is {off:.4f} m and {turned:.4f} rad off at {speed:.4f} rad/s: expected at "
                f"most {_NEAR} m, {_NEAR_ANGLE} rad, {_STILL} rad/s"
            )
        self._held = (name, relative_p, relative_r)
        self._near_hand.discard(name)
        self._rebuild(in_hand(item.payload, relative_p, relative_r))

    def release(self) -> None:
        """Open the hand: from now on the dumbbell is a free body with the velocity that it has.

        Raises GraspError: the hand is empty.
        """
        if self._held is None:
            raise GraspError("release: the hand is empty: expected a dumbbell in it")
        name, _, _ = self._held
        bodies = {}
        for item in self.workcell.dumbbells:
            position, rotation = self.pose(item.name)
            state = BodyState.at_rest(position, rotation)
            if item.name == name:
                state = BodyState(position, rotation, *self._velocity(position))
            bodies[item.name] = (item.payload, state)
        cell = self.workcell
        self._falling = Settling(bodies, cell.scene.obstacles, cell.friction, self.model.kinematics.gravity)
        self._held = None
        self._near_hand.add(name)
        self._rebuild(NO_PAYLOAD)

    def still_falling(self) -> bool:
        """Whether a dumbbell that was let go still moves."""
        return self._falling is not None and self._falling.speed() > 2e-3

    def settled(self) -> None:
        """End the fall: dumbbells stay from now on where they are."""
        if self._falling is not None:
            self._resting = {k: (s.position, s.rotation) for k, s in self._falling.states().items()}
            self._falling = None
            self._rebuild()

    def _remember(self, one: str, two: str, depth: float) -> None:
        key = (self.phase, one, two)
        before = self._touched.get(key)
        if before is None:
            self._touched[key] = Contact(self.time, self.phase, one, two, depth)
        elif depth > before.depth:
            self._touched[key] = replace(before, depth=depth)

    def _tool(self) -> tuple[FloatArray, FloatArray]:
        rotation, position = forward_kinematics(self.model.kinematics, self.state[0])
        flange_r, flange_p = self.model.flange
        return rotation[-1] @ flange_r, position[-1] + rotation[-1] @ flange_p

    def _velocity(self, point: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Velocity and angular velocity, (3,) each, of a point that moves with the hand."""
        q, qd = self.state
        rotation, position = forward_kinematics(self.model.kinematics, q)
        axes = np.einsum("jab,jb->ja", rotation, self.model.kinematics.axis)
        sliding = self.model.sliding[:, None]
        linear = np.where(sliding, axes, np.cross(axes, point - position))
        return qd @ linear, qd @ np.where(sliding, 0.0, axes)

    def _solids(self) -> Scene:
        """Everything that the arm could touch, dumbbells by their own solids; those that fall are left out."""
        cell, obstacles, pairs = self.workcell, list(self.workcell.scene.obstacles), []
        hand = [body.name for body in self.model.bodies if body.kind == "hand"]
        for item in cell.dumbbells:
            if item.name == self.held or (self._falling is not None and item.name in self._near_hand):
                continue
            solids = solids_of(item, *self._resting[item.name])
            obstacles += solids
            if item.name in self._near_hand:
                pairs += [frozenset((solid.name, body)) for solid in solids for body in hand]
        return replace(
            cell.scene, obstacles=tuple(obstacles), allowed_pairs=cell.scene.allowed_pairs | frozenset(pairs)
        )

    def _rebuild(self, payload: Payload | None = None) -> None:
        payload = self._plant.payload if payload is None else payload
        theta = self.theta_arm.copy()
        hand = self.model.layout.payload
        if self._held is not None:
            theta[hand] = theta_e_with_payload(self.model, theta[hand], payload)
        self._plant.exchange(theta, payload, self._solids())


def _plain(name: str) -> str:
    """Name of a dumbbell or body from that of one of its solids."""
    return name.partition("/")[0]
