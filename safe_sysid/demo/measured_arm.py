"""``demo --interface trajectory``: an arm as it is sold gets its robot file, with the tube measured on this very arm.

As one does with a real one: random motions at no load and with the heaviest payload of the prior. The tables and the
robot file stay in the run directory, for ``safe-sysid tube`` and ``safe-sysid verify``.
"""

from __future__ import annotations

import csv
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import yaml

from safe_sysid.apps.arm.tube import TrackedLog, TubeMargins, measure_tube, speed_table
from safe_sysid.control.trajectory import points_of
from safe_sysid.core.arrays import FloatArray
from safe_sysid.decimals import declared_text
from safe_sysid.demo.options import DemoOptions
from safe_sysid.errors import ParameterError
from safe_sysid.robot.config import load_settings, per_joint
from safe_sysid.robot.files.yaml_file import merge, read_yaml
from safe_sysid.robot.loading import find_urdf, load_robot
from safe_sysid.robot.model import RobotModel
from safe_sysid.robot.scenes.scene import Scene, config_path
from safe_sysid.simulation.payloads import NO_PAYLOAD, Payload, check_inside_prior, theta_e_with_payload
from safe_sysid.simulation.plant import Plant
from safe_sysid.simulation.servo import DRIVER_LATENCY_S, SETTLE_S, ServoArm, build_servo_arm
from safe_sysid.simulation.shapes import Shape
from safe_sysid.trajectories.plan import Plan
from safe_sysid.trajectories.quintic import QuinticTrajectory

__all__ = ["heaviest_payload", "of_sensors", "record_motions", "servo_settings", "write_measured_arm"]

_FIRST, _PARTS = (2.6, 1.6, 1.2), 4  # chains for the tube, from rest to rest, handed over in between: s, quintics
#: Quintics of these durations (s), as far as the configured velocity, acceleration and jerk allow, and a little more.
_DURATIONS, _BEYOND = (1.6, 2.0, 2.6, 3.2), 1.08
#: Radii of the heaviest ball that are tried, as shares of the envelope's smallest side; and places for each.
_RADII, _PLACES = (0.4, 0.2, 0.1, 0.05), 11


def servo_settings(rate_hz: float) -> dict[str, Any]:
    """What a driver of this rate changes in an arm's file: efforts are means over its samples."""
    period = 1.0 / rate_hz
    return {
        "measurement": {
            "torque_source": "motor",
            "effort": "mean",
            "rate_hz": rate_hz,
            "max_age_s": max(0.02, 3.0 * period),
        },
        "timing": {"period_s": period, "hold_max_s": 1.5 * period, "delay_max_s": 0.0},
    }


def heaviest_payload(model: RobotModel, theta: FloatArray) -> tuple[FloatArray, Payload, float]:
    """The arm ``theta`` (14 n,) of an empty hand with a ball that makes its last link the prior's heaviest.

    The ball is as far out in the payload envelope, and as large, as the prior of the moments allows.

    Returns parameters with it, the ball, and the last link's mass, kg.

    Raises:
        ParameterError: no such ball leaves the last link inside the prior.
    """
    part, out = model.layout.payload, np.array(theta)
    upper, told = float(model.arm_prior.payload_upper[0]), ""
    for ball in _balls(model, upper - float(theta[part.start])):
        out[part] = theta_e_with_payload(model, theta[part], ball)
        out[part.start] = upper  # the sum rounds
        try:
            check_inside_prior(model, out[part], ball)
        except ParameterError as error:
            told = str(error)
            continue
        return out, ball, upper
    raise ParameterError(
        f"payload.prior_upper of {model.name}: mass up to {declared_text(upper)} kg (last link, hand and payload), but "
        "no ball in payload.envelope makes the last link so heavy and leaves it inside the prior: expected less mass, "
        f"or wider moments ({told})"
    )


def _balls(model: RobotModel, mass: float) -> Iterator[Payload]:
    """Balls in the payload envelope: from its centre towards the last joint, the largest first."""
    envelope, (rotation, position) = model.settings.payload.envelope, model.payload_frame
    centre, size = np.array(envelope.center), np.array(envelope.size)
    way = -rotation.T @ position - centre
    for share in _RADII:
        radius = share * float(size.min())
        room = np.divide(0.5 * size - radius, np.abs(way), out=np.full(3, np.inf), where=way != 0.0)
        for part in np.linspace(0.0, min(1.0, float(room.min())), _PLACES):
            ball = Shape("sphere", (radius,), centre + part * way, np.eye(3))
            yield Payload("heaviest", ball.inertial(mass), (ball,))


def _goal(state: FloatArray, room: tuple[float, float], limits: FloatArray, duration: float, share: float,
          rng: np.random.Generator) -> float | None:  # fmt: skip
    """A random end for one joint whose quintic keeps its ``limits`` (v, a, jerk); None if none was found.

    From rest it goes as far as they allow, times ``share``: 15/8 d/T, 5.774 d/T^2 and 60 d/T^3 of a quintic over d.
    """
    reach = share * min(limits[k] * duration ** (k + 1) / c for k, c in enumerate((1.875, 5.774, 60.0)))
    brakes = state[0] + 0.5 * duration * state[1]
    for way in rng.choice([-1.0, 1.0]) * np.array([1.0, -1.0, 0.6, -0.6, 0.3, -0.3, 0.1, -0.1, 0.0]) * reach:
        goal = brakes + way
        path = QuinticTrajectory.to_rest(state[:, None], np.array([goal]), duration)
        motion = np.array([path.state(t)[:, 0] for t in np.linspace(0.0, duration * (1.0 - 1e-9), 25)])
        inside = room[0] <= motion[:, 0].min() and motion[:, 0].max() <= room[1]
        if inside and np.all(np.abs(motion[:, 1:]) <= 1.02 * limits):
            return float(goal)
    return None


def _motions(
    model: RobotModel, clear: Plant, start: FloatArray, begin: float, first: float, rng: np.random.Generator
) -> list[Plan]:
    """Random quintics handed over from one another, as fast as plans may be; the first one takes ``first`` s.

    A long one reaches the largest velocity, a shorter one the acceleration, the shortest the jerk.
    """
    control, n, state = model.settings.controller, model.n, np.zeros((3, model.n))
    state[0] = start
    rates = (control.velocity, control.acceleration, control.jerk)
    limits = _BEYOND * np.stack([per_joint(rate, n) for rate in rates], axis=1)
    low = np.where(np.isfinite(model.limits.position_lower), model.limits.position_lower + 0.05, start - 1.5)
    high = np.where(np.isfinite(model.limits.position_upper), model.limits.position_upper - 0.05, start + 1.5)
    plans: list[Plan] = []
    at = begin
    for i in range(_PARTS):
        found = None
        for tried in range(60):
            duration = first if i == 0 else float(rng.choice(_DURATIONS))
            share = 1.0 if i == 0 and tried < 40 else float(rng.uniform(0.2, 1.0))
            goals = [_goal(state[:, j], (low[j], high[j]), limits[j], duration, share, rng) for j in range(n)]
            if None in goals:
                continue
            trajectory = QuinticTrajectory.to_rest(state, np.array(goals, float), duration)
            path = [trajectory.state(t)[0] for t in np.linspace(0.0, duration, 30)]
            if min(clear.clearance(q)[0] for q in path) > model.settings.planner.clearance_margin:
                found = trajectory
                break
        if found is None:
            break
        hand_over = found.duration if i == _PARTS - 1 else 0.55 * found.duration
        plans.append(Plan(found, at, hand_over, "0:0", i, np.zeros(n)))
        state, at = found.state(hand_over)[:3], at + hand_over
    return plans


def record_motions(arm: ServoArm, name: str, seed: int) -> TrackedLog:
    """Drive random motions, handed over as plans are, and record what was desired and measured."""
    model, rng = arm.model, np.random.default_rng(seed)
    rows: list[tuple[float, FloatArray, FloatArray, FloatArray, FloatArray]] = []
    notice = 0.2
    for first in _FIRST:
        rest = arm.desired
        plans = _motions(model, arm.plant, rest, arm.plant.time + 0.5, first, rng)
        sent, end = 0, plans[-1].end_time + 0.3 if plans else arm.plant.time
        while arm.plant.time < end:
            send, now = None, arm.plant.time
            if sent < len(plans) and now + 0.3 >= plans[sent].start_time:
                sent += 1
                send = points_of(plans[max(sent - 2, 0) : sent], now + notice)
            sample = arm.step(send)
            active = [plan for plan in plans if plan.start_time <= sample.stamp]
            plan = active[-1] if active else None
            state = None if plan is None else plan.trajectory.state(sample.stamp - plan.start_time)
            q_d, qd_d = (rest, 0.0 * rest) if state is None else (state[0], state[1])
            rows.append((sample.stamp, sample.q, sample.qd, q_d, qd_d))
    if not rows:
        raise ParameterError(f"{model.name}: no motion from its start pose is clear of everything")
    columns: list[Any] = list(zip(*rows, strict=True))
    return TrackedLog(name, *(np.array(column) for column in columns))


def _write_table(path: Path, model: RobotModel, log: TrackedLog) -> None:
    words = ("position", "velocity", "desired_position", "desired_velocity", "effort")
    with path.open("w", encoding="utf-8", newline="") as file:
        table = csv.writer(file)
        table.writerow(["time", *(f"{joint}.{word}" for word in words for joint in model.joint_names)])
        arrays = (log.q, log.qd, log.q_d, log.qd_d, np.zeros_like(log.q))
        for k, stamp in enumerate(log.stamps.tolist()):
            table.writerow([repr(stamp), *(repr(x) for array in arrays for x in array[k].tolist())])


def of_sensors(model: RobotModel) -> str:
    """What to change where most of a measured tube's acceleration comes of the sensors' errors; "" where it does not.

    Two errors of velocity in two samples on end look like an acceleration.
    """
    measured, tube = model.settings.measurement, model.settings.controller.tube
    error = float(np.max(per_joint(measured.velocity_error, model.n)))
    seen = TubeMargins().acceleration * 2.0 * error * measured.rate_hz
    if tube is None or seen < 0.5 * float(np.max(per_joint(tube.acceleration, model.n))):
        return ""
    return (
        f"; measurement.velocity_error = {error:g} rad/s at {measured.rate_hz:g} Hz makes up to {seen:.3g} rad/s^2 of "
        "the measured tube's acceleration: expected a smaller --velocity-error or --driver-rate"
    )


def write_measured_arm(options: DemoOptions, scene: Scene, directory: Path, say: Callable[[str], None]) -> Path:
    """Measure the tube of the simulated arm and write its robot file, and the tables; returns the file's path.

    Args:
        options: which arm, the rate of its driver, and how it is simulated afterwards.

    Raises:
        SafeSysIdError: a setting out of range, or an arm that no tube can be measured of.
    """
    seed, draw = options.seed, "uniform" if options.arm == "random" else options.arm
    source = config_path(options.robot, "config")
    settings = servo_settings(options.driver_rate)
    if options.engine == "dart" and load_settings(source).measurement.torque_source == "link":
        settings["measurement"]["torque_source"] = "link"  # Gazebo's arm keeps Gazebo's servo
    settings = merge(settings, options.overrides)
    model = load_robot(options.robot, **settings)
    empty = build_servo_arm(model, NO_PAYLOAD, scene, seed, options.noise, draw, engine=options.engine)
    heavy, ball, load = heaviest_payload(model, empty.plant.theta_true)
    loaded = build_servo_arm(model, NO_PAYLOAD, scene, seed, options.noise, draw, engine=options.engine)
    loaded.plant.exchange(heavy, ball)
    for _ in range(round(SETTLE_S / loaded.period)):
        loaded.step(None)
    logs = []
    for name, arm in (("tube_free", empty), ("tube_loaded", loaded)):
        logs.append(record_motions(arm, name, seed))
        _write_table(directory / f"{name}.csv", model, logs[-1])
    for line in speed_table(model, logs[:1], logs[1:]):
        say(line)
    tube = measure_tube(model, logs[:1], logs[1:], load, TubeMargins(latency_s=2.0 * DRIVER_LATENCY_S))
    say(f"tube: {tube['origin']}")
    control = model.settings.controller
    # The tube says what the arm can accelerate with.
    plans = {
        name: np.minimum(per_joint(getattr(control, name), model.n), tube[f"largest_{name}"]).tolist()
        for name in ("velocity", "acceleration", "jerk")
    }
    bound = np.array(plans["acceleration"]) + np.array(tube["acceleration"])
    declared = {
        "urdf": str(find_urdf(source, model.settings).resolve()),
        "controller": {"interface": "trajectory", "tube": tube, **plans},
        "identification": {"acceleration_bound": [float(f"{1.001 * x:.6g}") for x in bound]},
    }
    file = directory / "robot.yaml"
    file.write_text(yaml.safe_dump(merge(merge(read_yaml(source), settings), declared), sort_keys=False))
    load_settings(file)
    return file
