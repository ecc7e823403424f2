r"""An arm as it is sold: a position servo of its own behind a trajectory controller, around the simulated plant.

As ``joint_trajectory_controller`` does, points become quintics between neighbours, sampled at the driver's rate; a
new message replaces the old one and is entered from the controller's last own state, at the time of that. The drive
smooths its set points by the mean over a period (a quadratic spline, one to two periods late), and a servo of unknown
gains, with the maker's gravity compensation for the empty hand, follows at 1 kHz. What comes back are position,
velocity and the mean torque since the last sample.
"""

from __future__ import annotations

from collections import deque
from typing import Any, Protocol

import numpy as np

from safe_sysid.core.arrays import FloatArray
from safe_sysid.dynamics import dynamics_of
from safe_sysid.errors import ParameterError
from safe_sysid.identification.equations.measurements import Sample
from safe_sysid.robot.model import RobotModel
from safe_sysid.robot.scenes.scene import Scene
from safe_sysid.simulation.assembly import build_plant, declared_errors
from safe_sysid.simulation.noise import NoiseModel
from safe_sysid.simulation.payloads import Payload
from safe_sysid.simulation.plant import Plant

__all__ = ["DRIVER_LATENCY_S", "SERVO_TICK_S", "SETTLE_S", "ServoArm", "build_servo_arm"]

#: Of the simulated driver: from a message's sending to the first sample that obeys it, s.
DRIVER_LATENCY_S = 0.01
#: Period of the servo, s; and how long it stands before the run, s: it sags under the payload.
SERVO_TICK_S, SETTLE_S = 1e-3, 1.0

#: What makers' servos reach, drawn per joint: natural frequency, rad/s, and damping ratio.
_BANDWIDTH, _DAMPING = (40.0, 70.0), (0.8, 1.2)


class _Points(Protocol):
    @property
    def times(self) -> FloatArray: ...

    @property
    def knots(self) -> FloatArray: ...


class _Spline:
    """Interpolation of one message, entered at ``time`` from ``state`` (3, n)."""

    def __init__(self, time: float, state: FloatArray, points: _Points) -> None:
        later = points.times > time
        self._times = np.concatenate([[time], points.times[later]])
        self._knots = np.concatenate([state[None], points.knots[later]])

    def state(self, t: float) -> FloatArray:
        """(3, n) at time t; the last point's after it."""
        k = int(np.searchsorted(self._times, t, side="right")) - 1
        if k + 1 >= len(self._times):
            return np.array(self._knots[-1])
        h, x = self._times[k + 1] - self._times[k], t - self._times[k]
        (p, v, a), (p1, v1, a1) = self._knots[k], self._knots[k + 1]
        # Coefficients of a quintic with given ends, as the ROS controller has them.
        c = [
            p, v, 0.5 * a,
            (-20 * p + 20 * p1 - 3 * a * h**2 + a1 * h**2 - 12 * v * h - 8 * v1 * h) / (2 * h**3),
            (30 * p - 30 * p1 + 3 * a * h**2 - 2 * a1 * h**2 + 16 * v * h + 14 * v1 * h) / (2 * h**4),
            (-12 * p + 12 * p1 - a * h**2 + a1 * h**2 - 6 * v * h - 6 * v1 * h) / (2 * h**5),
        ]  # fmt: skip
        position = sum(c[i] * x**i for i in range(6))
        velocity = sum(i * c[i] * x ** (i - 1) for i in range(1, 6))
        return np.stack([position, velocity, sum(i * (i - 1) * c[i] * x ** (i - 2) for i in range(2, 6))])


class ServoArm:
    """Steps at the driver's rate; a message is what a step is given, or None."""

    def __init__(
        self,
        plant: Plant,
        rate_hz: float,
        noise: NoiseModel | None = None,
        seed: int = 0,
        *,
        noise_seed: int | None = None,
        latency_s: float = 0.0,
        weaken: float = 1.0,
    ) -> None:
        """Settle at the plant's start position.

        Args:
            plant: with a period that divides the driver's, and no noise of its own.
            rate_hz: of the driver: set points and samples.
            noise: of the samples; None: none.
            seed: of the gains, and of the noise.
            noise_seed: of the noise; None: the same.
            latency_s: from a message's sending to the first sample that obeys it.
            weaken: factor of the servo's natural frequencies (1: as drawn), for arms that leave their tube.

        Raises:
            ParameterError: rates that do not divide each other.
        """
        ticks = 1.0 / (rate_hz * plant.period)
        self._ticks = round(ticks)
        if self._ticks < 1 or abs(ticks - self._ticks) > 1e-6:
            raise ParameterError(f"servo rate_hz = {rate_hz!r}: expected a divisor of {1.0 / plant.period:g} Hz")
        model = plant.model
        self.plant, self.model, self.period = plant, model, self._ticks * plant.period
        rng = np.random.default_rng(np.random.SeedSequence(seed).spawn(1)[0])
        w = weaken * rng.uniform(*_BANDWIDTH, model.n)
        inertia = plant.nominal_inertia()
        self._kp, self._kd = inertia * w * w, 2.0 * rng.uniform(*_DAMPING, model.n) * w * inertia
        own = rng if noise_seed is None else np.random.default_rng(noise_seed)
        self._noise = (noise or NoiseModel("none")).stream(model.kinematics, own)
        self._nominal = dynamics_of(model.kinematics), np.array(model.theta_nominal)
        self._latency = latency_s
        self._mail: deque[tuple[float, _Points]] = deque()
        q, n = plant.state[0], model.n
        self._state = np.stack([q, np.zeros(n), np.zeros(n)])
        self._spline: _Spline | None = None
        self._goals = q, q  # the drive's last two set points
        self._torque = np.zeros(n)
        for _ in range(round(SETTLE_S / self.period)):
            self._advance(q)
        self.measurement = self._measure()

    @property
    def desired(self) -> FloatArray:
        """(n,) position of the trajectory controller's set point now, as its state topic tells, rad."""
        return self._state[0].copy()

    def step(self, send: _Points | None, late: float = 0.0) -> Sample:
        """Go on to the next sample; ``send``: a message, or None. It waits for the next period, however late it is."""
        now = self.plant.time
        if send is not None:
            self._mail.append((now + self._latency, send))
        while self._mail and self._mail[0][0] <= now + 1e-9:
            self._spline = _Spline(now - self.period, self._state, self._mail.popleft()[1])
        if self._spline is not None:
            self._state = self._spline.state(now)
        self._advance(self._state[0])
        self.measurement = self._measure()
        return self.measurement

    def _advance(self, newest: FloatArray) -> None:
        """One period of the driver along the quadratic spline of the last three set points."""
        dynamics, theta = self._nominal
        n, total = self.model.n, np.zeros(self.model.n)
        first, middle = self._goals
        self._goals = middle, newest
        gravity = -(dynamics.momentum_rate_regressor(middle, np.zeros(n), 1.0) @ theta)
        step, bend = middle - first, newest - 2.0 * middle + first
        for i in range(self._ticks):
            q, qd = self.plant.state
            x = (i + 1) / self._ticks
            goal = 0.5 * (first + middle) + step * x + 0.5 * bend * x * x
            rate = (step + bend * x) / self.period
            self.plant.step(gravity + self._kp * (goal - q) + self._kd * (rate - qd))
            total += self.plant.measurement.effort
        self._torque = total / self._ticks

    def _measure(self) -> Sample:
        q, qd = self.plant.state
        return Sample(self.plant.time, *self._noise.measure(self.plant.time, q, qd, self._torque))


class GazeboServoArm(ServoArm):
    """Gazebo's arm by a position interface, as gz_ros2_control commands it: a velocity in proportion to the error.

    In each step of the world DART's servos reach ``gain rate (set point - position)``, whatever torque that takes. The
    set point is the trajectory controller's at the end of the step before, sent as it is.
    """

    #: gz_ros2_control's ``position_proportional_gain``, its default.
    GAIN = 0.1

    def _advance(self, newest: FloatArray) -> None:
        rate, total = 1.0 / self.period, np.zeros(self.model.n)
        for _ in range(self._ticks):
            self.plant.follow(self.GAIN * rate * (newest - self.plant.state[0]))
            total += self.plant.measurement.effort
        self._torque = total / self._ticks


def build_servo_arm(
    model: RobotModel,
    payload: Payload,
    scene: Scene,
    seed: int,
    noise: str = "uniform",
    draw: str = "uniform",
    actuator: str = "random",
    **options: Any,
) -> ServoArm:
    """A plant as :func:`~.assembly.build_plant` makes it, behind a servo; samples begin at time 0.

    Whose efforts are those of the links (``measurement.torque_source: link``) is Gazebo's arm, with Gazebo's servo.

    Args:
        seed: of the arm, whose servo's gains do not depend on what it holds, and of the noise.
        options: further ones of the plant.

    Raises:
        SafeSysIdError: as for a plant; or the declared rate does not divide the servo's.
    """
    measured = model.settings.measurement
    source = measured.torque_source
    options = {"period": SERVO_TICK_S, "start_time": -SETTLE_S, "torque_source": source, **options}
    plant = build_plant(model, payload, scene, seed, "none", draw, actuator, **options)
    errors = declared_errors(model, noise, options.get("engine", "mujoco"))
    kind = GazeboServoArm if source == "link" else ServoArm
    return kind(plant, measured.rate_hz, errors, seed, noise_seed=seed + 1, latency_s=DRIVER_LATENCY_S)
