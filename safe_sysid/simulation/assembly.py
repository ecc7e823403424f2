"""Assembly of a simulated arm from a seed: its parameters, errors and scene, as the settings declare them."""

from __future__ import annotations

from typing import Any

import numpy as np

from safe_sysid.errors import ParameterError
from safe_sysid.extensions import ENGINES, chosen
from safe_sysid.robot.model import RobotModel
from safe_sysid.robot.scenes.scene import Scene
from safe_sysid.simulation.arms import draw_truth
from safe_sysid.simulation.noise import NoiseModel, error_bound
from safe_sysid.simulation.payloads import Payload
from safe_sysid.simulation.plant import Plant

__all__ = ["build_plant", "declared_errors"]


def declared_errors(model: RobotModel, mode: str, engine: str) -> NoiseModel:
    """Errors as large as declared, less what the engine's integration takes of ``measurement.torque_abs``.

    Raises:
        ParameterError: the engine takes more than is declared.
    """
    if mode == "none":
        return NoiseModel(mode)
    taken = chosen(ENGINES, engine, "plant engine").integration_error(model)
    rest = error_bound(model.settings.measurement.torque_abs, "torque_abs", model.n) - taken
    if np.any(rest < 0.0):
        step = f"in steps of {model.settings.timing.period_s:g} s"
        raise ParameterError(
            f"{model.name}: measurement.torque_abs = {model.settings.measurement.torque_abs}: expected at least "
            f"{taken.max():.3g} N m, by which engine {engine} may be off {step}"
        )
    return NoiseModel.declared(model.settings, mode, torque_abs=rest.tolist())


def build_plant(
    model: RobotModel,
    payload: Payload,
    scene: Scene,
    seed: int,
    noise: str | NoiseModel = "uniform",
    draw: str = "uniform",
    actuator: str = "random",
    **options: Any,
) -> Plant:
    """Plant with everything that the model's settings declare, at the scene's start pose.

    Args:
        seed: of all that is random; the arm's parameters do not depend on the kind of noise.
        noise: mode of measurement errors with the declared bounds, or a noise model of one's own.
        draw: of the true parameters, see :func:`draw_truth`.
        actuator: mode of the actuator errors with the declared bounds.
        options: further arguments of :class:`Plant`, or replacements of those chosen here.

    Raises:
        SafeSysIdError: the payload does not fit the prior, or the scene does not fit the arm.
    """
    arm_seed, plant_seed = np.random.SeedSequence(seed).generate_state(2)
    settings = model.settings
    if isinstance(noise, str):
        noise = declared_errors(model, noise, options.get("engine", "mujoco"))
    arguments: dict[str, Any] = {
        "q0": scene.start_for(model),
        "period": settings.timing.period_s,
        "torque_source": settings.measurement.torque_source,
        "actuator_mode": actuator,
        "actuator_abs": settings.actuator.torque_abs,
        "actuator_rel": settings.actuator.torque_rel,
    }
    theta = draw_truth(model, payload, int(arm_seed), draw)
    return Plant(model, theta, payload, scene, int(plant_seed), noise, **{**arguments, **options})
