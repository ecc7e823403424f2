"""The simulated arm: it takes the place of the real one and alone knows the true parameters."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from numpy.typing import ArrayLike, NDArray

from safe_sysid.core.arrays import FloatArray
from safe_sysid.dynamics import dynamics_of
from safe_sysid.errors import ModelError, ParameterError
from safe_sysid.extensions import ENGINES, chosen
from safe_sysid.identification.equations.measurements import Sample
from safe_sysid.robot.model import RobotModel
from safe_sysid.robot.scenes.scene import Scene
from safe_sysid.simulation.actuator import Actuator, QuickStop
from safe_sysid.simulation.engines import Engine, EngineMaker
from safe_sysid.simulation.log import TruthLog
from safe_sysid.simulation.noise import NoiseModel, error_bound
from safe_sysid.simulation.payloads import Payload

__all__ = ["SMOOTH_RESIDUAL_BOUND", "Plant"]


#: Declared bound of the integrator's error in the momentum balance over 0.1 s, friction apart, N m s (tested).
SMOOTH_RESIDUAL_BOUND = 1e-8
#: Modes of a step, as logged.
COMMANDED, HELD, BRAKING = 0, 1, 2
_COULOMB_STIFFNESS = 0.5  # largest h Fc / (v_s inertia) of one Runge-Kutta step; the method is stable below 2.7
_MAX_SUBSTEPS = 64
_COULOMB_SHARE = 0.1  # of the friction transition velocity: v_s, where nothing asks for more
_INERTIA_SAMPLES = 32
_SATURATION = 1.7  # drives' hard limit over the limit that is guaranteed (Gen3: 100/56.7 and 50/29.4)


class Plant:
    """Arm with payload in a scene, stepped at the control period.

    A command is held for one period. Without a new one the last is held, and after ``watchdog_s`` the drives brake
    by themselves (:class:`QuickStop`). Until the first command they hold the start position.
    """

    def __init__(
        self,
        model: RobotModel,
        theta: ArrayLike,
        payload: Payload,
        scene: Scene,
        seed: int = 0,
        noise: NoiseModel | None = None,
        q0: ArrayLike | None = None,
        *,
        period: float = 1e-3,
        substeps: int | None = None,
        watchdog_s: float = 0.02,
        coulomb_velocity: ArrayLike | None = None,
        torque_limit: ArrayLike | None = None,
        actuator_mode: str = "none",
        actuator_abs: ArrayLike = 0.0,
        actuator_rel: ArrayLike = 0.0,
        torque_source: str = "motor",
        start_time: float = 0.0,
        log_rows: int | None = None,
        engine: str = "mujoco",
    ) -> None:
        """Build the plant at rest.

        Args:
            theta: (14 n,) true parameters with the payload, from :func:`~safe_sysid.simulation.arms.draw_truth`.
            payload: what is in the hand; here only for its shapes.
            noise: of the measurements; default: none.
            q0: (n,) start position, rad; default zeros.
            period: of commands and measurements, s.
            substeps: the engine's steps per period, at least; stiff Coulomb friction raises it. None: the engine's own.
            watchdog_s: age of the last command at which the drives brake, s.
            coulomb_velocity: (n,) v_s, rad/s: Coulomb friction is Fc sat(qd / v_s). Default: a tenth of the model's
                friction transition velocity, or as much of it as the steps can follow.
            torque_limit: (n,) where the drives saturate, N m; default: 1.7 times the model's limit, which is a warning
                threshold: a plant that saturated there could never show that it was crossed.
            actuator_mode: see :class:`Actuator`.
            actuator_abs: a_u, N m.
            torque_source: "motor": effort is the torque at the motor; "command": an echo of the command; "link": what
                the link feels, where the engine tells.
            start_time: stamp of the first measurement, s.
            log_rows: rows of :meth:`truth` that are kept, the oldest go; None: all.
            engine: one of :data:`safe_sysid.extensions.ENGINES`.
        """
        n = model.n
        self.model, self.payload, self.scene = model, payload, scene
        self.theta_true = np.array(_vector(theta, self.model.layout.size, "theta"))
        self.theta_true.setflags(write=False)
        self.period = _positive(period, "period")
        self._watchdog = _positive(watchdog_s, "watchdog_s")
        self._maker: EngineMaker = chosen(ENGINES, engine, "plant engine")
        self._source = torque_source
        self._limit = (
            _SATURATION * model.limits.torque if torque_limit is None else _vector(torque_limit, n, "torque_limit")
        )
        self.coulomb_velocity = self._friction_velocity(coulomb_velocity)
        self._may_widen = coulomb_velocity is None
        self._least_substeps = self._maker.steps if substeps is None else substeps
        if self._least_substeps < 1:
            raise ParameterError(f"plant substeps = {substeps!r}: expected at least 1")
        self.substeps = self._choose_substeps(self._least_substeps)
        self._start_time, self._step_count = float(start_time), 0
        self._build(np.zeros(n) if q0 is None else _vector(q0, n, "q0"), np.zeros(n))
        sources = ("motor", "command") if self.engine.link_torque is None else ("motor", "command", "link")
        if torque_source not in sources:
            expected = f"{' or '.join(sources)} with engine {engine}"
            raise ParameterError(f"plant torque_source = {torque_source!r}: expected {expected}")
        streams = np.random.SeedSequence(seed).spawn(2)
        self._noise = (noise or NoiseModel("none")).stream(model.kinematics, np.random.default_rng(streams[0]))
        a_u, b_u = error_bound(actuator_abs, "actuator_abs", n), error_bound(actuator_rel, "actuator_rel", n)
        self._actuator = Actuator(actuator_mode, a_u, b_u, self._limit, np.random.default_rng(streams[1]))
        braking_limit = (np.minimum(self._limit, model.limits.torque) - a_u) / (
            1.0 + b_u
        )  # errors of the drive included
        if np.any(braking_limit <= 0.0):
            raise ParameterError(f"plant actuator_abs = {a_u.tolist()}: expected less than the torque limits")
        self._drive = QuickStop(self.nominal_inertia(), braking_limit, period)
        self._age = np.inf  # of the last command
        self._command = self._in_force = self._holding_torque()
        self.rejected_commands = 0
        self.contact_steps = 0
        self.contact_names: set[tuple[str, str]] = set()
        self.contacts = 0
        self._log = TruthLog(n, log_rows)
        self._drive.trip(self._qpos, self._qvel, self._command)
        # At rest nothing moves that would have friction; an offset is on the motor's side.
        self._link = self._command - self._offset
        self.measurement = self._measure(self._command, self._command, BRAKING)

    def _build(self, q: FloatArray, qd: FloatArray) -> None:
        """Simulated world for the parameters, payload and scene of now, in a given state."""
        self.engine: Engine = self._maker(
            self.model, self.theta_true, self.payload, self.scene, self.coulomb_velocity, self.period, self.substeps
        )
        self._qpos, self._qvel = self.engine.q, self.engine.qd
        self._offset = self.theta_true[self.model.layout.offset]
        self.engine.place(q, qd)

    def exchange(self, theta: ArrayLike, payload: Payload, scene: Scene | None = None) -> None:
        """Between two periods: another payload in the hand, or none; commands, errors and log go on.

        What is taken up was at rest, so that momentum is kept: the arm slows down. What is let go leaves with the
        velocity that it has.

        Args:
            theta: (14 n,) true parameters from now on.
            payload: what they hold; :data:`~safe_sysid.simulation.payloads.NO_PAYLOAD` for an empty hand.
            scene: what stands around from now on; None: as before.

        Raises:
            SafeSysIdError: parameters that are no solid body's, or a scene that the base stands in.
        """
        n = self.model.n
        new = np.array(_vector(theta, self.model.layout.size, "theta"))
        q, qd = self._qpos.copy(), self._qvel.copy()
        if new[self.model.layout.payload.start] > self.theta_true[self.model.layout.payload.start]:
            columns = dynamics_of(self.model.kinematics).momentum_regressor(np.tile(q, (n, 1)), np.eye(n))
            qd = np.asarray(np.linalg.solve(columns @ new, (columns @ self.theta_true) @ qd), dtype=float)
        new.setflags(write=False)
        self.theta_true, self.payload = new, payload
        self.scene = self.scene if scene is None else scene
        self.substeps = self._choose_substeps(self._least_substeps)
        self._build(q, qd)

    @property
    def time(self) -> float:
        """Simulated time, s."""
        return self._start_time + self._step_count * self.period

    @property
    def state(self) -> tuple[FloatArray, FloatArray]:
        """True position and velocity now, (n,) each; copies."""
        return self._qpos.copy(), self._qvel.copy()

    @property
    def command_in_force(self) -> FloatArray:
        """Torque (n,) that was asked of the drives in the last period, N m; read only."""
        return self._in_force

    @property
    def braking(self) -> bool:
        """Whether the drives brake or hold by themselves."""
        return self._drive.active

    def step(self, torque: ArrayLike | None, late: float = 0.0) -> Sample:
        """Advance by one period.

        Args:
            torque: (n,) command, N m; None if none came. A command that is not n finite numbers counts as none.
            late: s into the period at which the command takes effect, rounded up to a Runge-Kutta step; until then
                that of the last period acts on. Log and measurement then hold the mean torque of the period.
        """
        before = self._in_force
        command, mode = self._accept(torque)
        self._in_force = command
        wait = int(np.ceil(min(late / self.period, 1.0) * self.substeps - 1e-9)) if mode == COMMANDED else 0
        if wait > 0:
            share = wait / self.substeps
            early, link = share * self._advance(before, wait), share * self._link
            applied = early + (1.0 - share) * self._advance(command, self.substeps - wait)
            self._link = link + (1.0 - share) * self._link
            command = share * before + (1.0 - share) * command
        else:
            applied = self._advance(command, self.substeps)
        return self._arrive(command, applied, mode)

    def follow(self, velocity: FloatArray) -> Sample:
        """Advance by one period under the engine's own servos, which reach a velocity (n,), rad/s, within a step.

        Raises:
            ParameterError: the engine has none.
        """
        self.engine.follow(velocity, self.model.limits.torque, self.substeps)
        felt = self.engine.link_torque
        self._link = np.zeros_like(velocity) if felt is None else felt
        coulomb, viscous = (self.theta_true[part] for part in (self.model.layout.coulomb, self.model.layout.viscous))
        motor = self._link + self._offset + viscous * self._qvel + coulomb * np.sign(self._qvel)
        self._command, self._age, self._in_force = motor, 0.0, motor
        self._drive.release()
        return self._arrive(motor, motor, COMMANDED)

    def _arrive(self, command: FloatArray, applied: FloatArray, mode: int) -> Sample:
        """The end of a period: judge the state, measure, log."""
        self._step_count += 1
        if not np.isfinite(self._qvel).all():
            raise ModelError(
                f"robot {self.model.name}: simulated velocity {self._qvel.tolist()} at t = {self.time:.3f} s: expected "
                f"finite numbers (torques {applied.tolist()}, {self.substeps} steps per period)"
            )
        self.contacts = self._count_contacts()
        self.measurement = self._measure(command, applied, mode)
        return self.measurement

    @property
    def contact_list(self) -> list[tuple[str, str, float]]:
        """Solids that touch now, by name, with the depth, m."""
        return self.engine.touching

    def clearance(self, q: ArrayLike) -> tuple[float, tuple[str, str] | None]:
        """Smallest distance (m) at position ``q`` between solids that must stay apart, and their names.

        Payload and scene included, by the engine's own geometry: shares no code with the planner's certificate.
        """
        return self.engine.clearance(_vector(q, self.model.n, "q"))

    @property
    def watched_pairs(self) -> list[tuple[str, str]]:
        """Pairs of solids that must stay apart."""
        return self.engine.pairs

    def truth(self) -> dict[str, NDArray]:
        """True states and torques so far, read-only; see :class:`TruthLog` for the columns."""
        return self._log.arrays()

    def save_log(self, path: str | Path) -> None:
        """Write :meth:`truth` with the true parameters to an ``.npz`` file."""
        names = np.array(sorted(" / ".join(pair) for pair in self.contact_names), dtype=str)
        self._log.save(
            Path(path),
            theta_true=self.theta_true,
            joint_names=np.array(self.model.joint_names),
            payload=np.array(self.payload.name),
            scene=np.array(self.scene.name),
            contact_names=names,
            coulomb_velocity=self.coulomb_velocity,
        )

    def _advance(self, command: FloatArray, substeps: int) -> FloatArray:
        """Integrate under a command; returns the torque (n,) that was applied, reused by the next call."""
        applied = self._actuator.apply(self.time, command, self._qvel)
        if substeps:
            self.engine.advance(applied - self._offset, substeps)
            if self._source == "link" and (felt := self.engine.link_torque) is not None:
                self._link = felt
        return applied

    def _accept(self, torque: ArrayLike | None) -> tuple[FloatArray, int]:
        """Command in force for the coming period, and the mode."""
        if torque is not None:
            command = np.array(torque, dtype=float)
            if command.shape == self._qvel.shape and np.isfinite(command).all():
                self._command, self._age = command, 0.0
                self._drive.release()
                return command, COMMANDED
            self.rejected_commands += 1
        self._age += self.period
        if self._age < self._watchdog and not self._drive.active:
            return self._command, HELD
        self._drive.trip(self._qpos, self._qvel, self._command)
        return self._drive.torque(self._qpos, self._qvel), BRAKING

    def _measure(self, command: FloatArray, applied: FloatArray, mode: int) -> Sample:
        stamp = self.time
        torque = {"command": command, "motor": applied, "link": self._link}[self._source]
        measured = self._noise.measure(stamp, self._qpos, self._qvel, torque)
        self._log.append(stamp, self._qpos, self._qvel, command, applied, measured, self.contacts, mode)
        return Sample(stamp, *measured)

    def _count_contacts(self) -> int:
        """Contacts with penetration; their pairs are remembered."""
        touching = self.engine.touching
        self.contact_names.update((one, two) for one, two, _ in touching)
        self.contact_steps += bool(touching)
        return len(touching)

    def _friction_velocity(self, value: ArrayLike | None) -> FloatArray:
        """v_s; only joints with Coulomb friction need one."""
        n = self.model.n
        if value is None:
            value = np.full(n, _COULOMB_SHARE * self.model.friction_transition_velocity)
        v_s = _vector(value, n, "coulomb_velocity")
        fc = self.theta_true[self.model.layout.coulomb]
        if np.any((v_s <= 0.0) & (fc > 0.0)):
            j = int(np.flatnonzero((v_s <= 0.0) & (fc > 0.0))[0])
            raise ModelError(
                f"joint {self.model.joint_names[j]}: Coulomb friction {fc[j]:.6g} {self.model.torque_units[j]} with "
                f"coulomb_velocity {v_s[j]!r}: expected a positive velocity (the simulator's friction needs one)"
            )
        return np.where(v_s > 0.0, v_s, 1.0)

    def _choose_substeps(self, least: int) -> int:
        """Enough Runge-Kutta steps for the steepest friction: rate of decay of H qdd = -Fc qd / v_s, at its worst.

        Where they are too many, v_s grows up to the friction transition velocity: below it friction may be anything.
        """
        n = self.model.n
        slope = self.theta_true[self.model.layout.coulomb] / self.coulomb_velocity
        if not (self._maker.smooth_friction and np.any(slope)):
            return least
        q = np.random.default_rng(0).uniform(-np.pi, np.pi, (_INERTIA_SAMPLES, n))
        states = np.repeat(q, n, axis=0), np.tile(np.eye(n), (_INERTIA_SAMPLES, 1))
        inertia = (dynamics_of(self.model.kinematics).momentum_regressor(*states) @ self.theta_true).reshape(-1, n, n)
        root = np.sqrt(slope)
        rate = np.linalg.eigvalsh(root[:, None] * np.linalg.inv(inertia) * root)[:, -1].max()
        if self._may_widen and (steps := rate * self.period / _COULOMB_STIFFNESS) > _MAX_SUBSTEPS:
            before, most = self.coulomb_velocity, self.model.friction_transition_velocity
            self.coulomb_velocity = np.minimum(1.01 * steps / _MAX_SUBSTEPS * before, most)
            rate *= before[0] / self.coulomb_velocity[0]  # one for all joints
        needed = int(np.ceil(rate * self.period / _COULOMB_STIFFNESS))
        if needed > _MAX_SUBSTEPS:
            raise ModelError(
                f"robot {self.model.name}: Coulomb friction turns round within {1.0 / rate:.3g} s at coulomb_velocity "
                f"{self.coulomb_velocity.tolist()}: {needed} steps per period, expected at most {_MAX_SUBSTEPS}; "
                "with a larger friction_transition_velocity, less Coulomb friction or more rotor inertia they are "
                "fewer; engine dart has no such limit"
            )
        return max(least, needed)

    def nominal_inertia(self) -> FloatArray:
        """Inertia (n,), kg m^2, that each joint sees where it is now, nominal arm: what a manufacturer tunes with.

        Rotors that the arm's file does not know are known to him.
        """
        n, theta, rotors = self.model.n, self.model.arm_prior.mid.copy(), self.model.layout.rotor_inertia
        if self.model.settings.drives == "unknown":
            theta[rotors] = self.theta_true[rotors]
        q = np.tile(np.array(self._qpos), (n, 1))
        columns = dynamics_of(self.model.kinematics).momentum_regressor(q, np.eye(n)) @ theta
        return np.maximum(np.diag(columns), 1e-3)

    def _holding_torque(self) -> FloatArray:
        """Torque that keeps the arm where it stands at the start: its brakes carry exactly that."""
        rate = dynamics_of(self.model.kinematics).momentum_rate_regressor(
            np.array(self._qpos), np.zeros(self.model.n), 1.0
        )
        return np.clip(-(rate @ self.theta_true), -self._limit, self._limit)


def _vector(value: ArrayLike, size: int, name: str) -> FloatArray:
    try:
        array = np.array(value, dtype=float)
    except (TypeError, ValueError):
        raise ParameterError(f"plant {name} = {value!r}: expected {size} numbers") from None
    if array.shape != (size,) or not np.all(np.isfinite(array)):
        raise ParameterError(f"plant {name} = {array.tolist()}: expected {size} finite numbers")
    return array


def _positive(value: float, name: str) -> float:
    if not (np.isfinite(value) and value > 0.0):
        raise ParameterError(f"plant {name} = {value!r}: expected a positive time in seconds")
    return float(value)
