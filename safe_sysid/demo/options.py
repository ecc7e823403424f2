"""Options of the demo, checked before any process starts."""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

from safe_sysid.apps.check.robot import start_reasons, why_never, why_no_plans
from safe_sysid.control.tube import TrackingTube, tracking_tube
from safe_sysid.core.arrays import FloatArray
from safe_sysid.errors import SafeSysIdError
from safe_sysid.robot.loading import load_robot
from safe_sysid.robot.model import RobotModel
from safe_sysid.robot.scenes.scene import Scene, load_scene

__all__ = ["DemoOptions", "Setup", "UsageError", "prepare"]


class UsageError(SafeSysIdError):
    """An option that cannot be obeyed."""


@dataclass(frozen=True)
class DemoOptions:
    """Options of ``safe-sysid demo``; see its help. Error bounds that are None are the robot file's."""

    payload: str = "auto"
    robot: str = "kinova_gen3"
    engine: str = "mujoco"
    interface: str | None = None  #: None: as the robot's file says
    driver_rate: float = 500.0
    scene: str = "open"
    plans: int = 4
    seed: int = 0
    arm: str = "random"
    noise: str = "uniform"
    torque_noise: tuple[float, float] | None = None
    velocity_error: float | None = None
    position_error: float | None = None
    lockstep: bool = True
    then_goal: bool = False
    record: bool = False
    compression: str = "none"
    json_file: Path | None = None
    out: Path | None = None
    view: int | None = None
    pace: float | None = None
    quiet: bool = False
    timeout: float = 900.0

    @property
    def mode(self) -> Literal["lockstep", "real-time"]:
        """As the summary calls it."""
        return "lockstep" if self.lockstep else "real-time"

    @property
    def steady_pace(self) -> float:
        """Lock-step: simulated seconds per second at most; 0: as fast as it goes. Who looks on sees real time."""
        if self.pace is not None:
            return self.pace
        return 0.0 if self.view is None else 1.0

    @property
    def overrides(self) -> dict[str, Any]:
        """Settings that replace the robot file's, for every node and for the plant's real noise."""
        measurement: dict[str, float] = {}
        if self.torque_noise is not None:
            measurement["torque_abs"], measurement["torque_rel"] = self.torque_noise
        if self.velocity_error is not None:
            measurement["velocity_error"] = self.velocity_error
        if self.position_error is not None:
            measurement["position_error"] = self.position_error
        # Without changing noise the simulated arm at rest gives the same numbers again and again: no fault of it.
        repeats = not self.lockstep and (self.noise != "uniform" or self.torque_noise == (0.0, 0.0))
        driver: dict[str, Any] = {"driver": {"may_repeat": True}} if repeats else {}
        return {"measurement": measurement, **driver} if measurement else driver


@dataclass(frozen=True, eq=False)
class Setup:
    """Everything that the parent may know: not the truth."""

    options: DemoOptions
    model: RobotModel
    scene: Scene
    gains: TrackingTube
    payload_name: str
    start: FloatArray
    run_dir: Path


def prepare(options: DemoOptions, say: Callable[[str], None] = lambda line: None) -> Setup:
    """Load and judge everything that can be wrong; makes the run directory last, or to measure an arm's tube.

    ``say``: called with lines of what is measured.

    Raises:
        SafeSysIdError: in one line, what is wrong and what was expected.
    """
    from safe_sysid.simulation import check_inside_prior, payload_in_hand, theta_e_with_payload

    model = load_robot(options.robot, **options.overrides)
    if told := why_no_plans(model):
        raise UsageError(f"robot {model.name}: {told}")
    if options.interface == "torque" and model.settings.follows_trajectories:
        raise UsageError(
            f"--interface torque: {model.name} follows trajectories (controller.interface in its file), and its "
            "measurements are declared for that: expected no --interface, or a robot whose file says torque, as "
            "kinova_gen3"
        )
    if options.pace is not None and not options.lockstep:
        raise UsageError("--pace: real time has its own: expected lock-step")
    scene = load_scene(options.scene)
    start = scene.start_for(model)
    if options.then_goal and scene.goal is None:
        raise UsageError(f"--then-goal: scene {scene.name} has no goal: expected a scene with one, as six_boxes")
    payload = payload_in_hand(model, options.payload)
    hand = model.theta_nominal[model.layout.payload]
    check_inside_prior(model, theta_e_with_payload(model, hand, payload), payload)
    run_dir, advice = None, ""
    if options.interface == "trajectory":
        from safe_sysid.demo.measured_arm import of_sensors, write_measured_arm

        run_dir = _run_directory(options, payload.name)
        file = write_measured_arm(options, scene, run_dir, say)
        options = replace(options, robot=str(file))
        model = load_robot(file, **options.overrides)
        advice = of_sensors(model)
    gains = tracking_tube(model, options.lockstep)
    # In real time the payload is weighed while the drives hold the arm: the controller may begin with what that shows.
    reasons = (start_reasons if options.lockstep else why_never)(model, scene, gains, start)
    if reasons:
        raise UsageError(f"the arm may not start in scene {scene.name}: {'; '.join(reasons)}{advice}")
    return Setup(options, model, scene, gains, payload.name, start, run_dir or _run_directory(options, payload.name))


def _run_directory(options: DemoOptions, payload: str) -> Path:
    if options.json_file is not None and options.json_file.is_dir():
        raise UsageError(f"--json {options.json_file}: is a directory: expected a file")
    try:
        if options.out is not None:
            path = options.out
            path.mkdir(parents=True, exist_ok=True)
            if any(path.iterdir()):
                raise UsageError(f"--out {path}: not empty: expected a new or empty directory")
        else:
            name = re.sub(r"[^A-Za-z0-9._-]+", "_", payload)
            base = Path("runs") / f"{time.strftime('%Y%m%d-%H%M%S')}-{name}-{options.seed}"
            path = base
            for number in range(2, 100):
                if not path.exists():
                    break
                path = base.with_name(f"{base.name}-{number}")
            path.mkdir(parents=True)
        return path.resolve()
    except OSError as error:
        raise UsageError(f"run directory: {error}") from error
