"""Gazebo's default engine under the simulated arm: its dynamics and its integrator's error beside ours.

    pip install '.[dart]'; python benchmarks/dart.py [--robot three_joint] [--seconds 3]

The arm without rotors, as Gazebo simulates it, is led along sines by torques held for 1 ms. "one step": what its step
differs by from our inverse dynamics at its beginning, N m; friction is implicit there. "momentum": what the balance of
identification is off by, over windows of 0.1 s sampled at 1 kHz, N m: an identifier must declare
at least so much as a torque error besides the sensors'. "of declared": the same as a share of half a step times the
largest torque limit times the largest velocity, as the engine declares it for the plans' velocity.
"""

from __future__ import annotations

import argparse
from dataclasses import replace

import numpy as np
from rich.console import Console
from rich.table import Table

from safe_sysid.dynamics import dynamics_of
from safe_sysid.robot.loading import load_robot
from safe_sysid.robot.scenes.scene import Scene
from safe_sysid.simulation.payloads import NO_PAYLOAD
from safe_sysid.simulation.plant import Plant

WINDOW = 100  # ms


def main() -> int:
    """Simulate and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--robot", default="three_joint")
    parser.add_argument("--seconds", type=float, default=3.0)
    options = parser.parse_args()
    model = replace(load_robot(options.robot), bodies=())  # sines know nothing of what is in the way
    dynamics, layout = dynamics_of(model.kinematics), model.layout
    table = Table(title=f"{options.robot} without rotors in DART, largest of {options.seconds:g} s, N m")
    for name in ("friction", "steps a ms", "one step", "momentum", "of declared", "largest velocity", "largest torque"):
        table.add_column(name)
    for friction in ((0.0, 0.0), (2.0, 0.0), (2.0, 0.2)):
        theta = np.array(model.theta_nominal)
        theta[layout.joint_terms] = 0.0
        theta[layout.viscous], theta[layout.coulomb] = friction
        for steps in (1, 10):
            home = np.array(model.settings.home)
            plant = Plant(model, theta, NO_PAYLOAD, Scene("open"), q0=home, substeps=steps, engine="dart")
            drive(plant, round(1e3 * options.seconds))
            truth = plant.truth()
            q, qd, torque = truth["q"], truth["qd"], truth["tau_applied"][1:]
            step = dynamics.inverse_dynamics(theta, q[:-1], qd[:-1], np.diff(qd, axis=0) / 1e-3) - torque
            off = np.abs(momentum_error(dynamics, theta, q, qd, torque, layout)).max()
            speed = np.abs(qd).max()
            declared = 0.5e-3 / steps * model.limits.torque.max() * speed
            numbers = np.abs(step).max(), off, off / declared, speed, np.abs(torque).max()
            table.add_row(f"{friction[0]:g}, {friction[1]:g}", str(steps), *(f"{x:.2g}" for x in numbers))
    Console(width=120).print(table)
    return 0


def drive(plant: Plant, ticks: int) -> None:
    """Along sines, by gravity's torque and a servo."""
    model, home = plant.model, plant.state[0]
    dynamics, theta = dynamics_of(model.kinematics), plant.theta_true
    rate = 2.0 * np.pi * (0.5 + 0.2 * np.arange(model.n))
    stiffness = np.diag(dynamics.mass_matrix(theta, home)) * 40.0
    for k in range(ticks):
        (q, qd), phase = plant.state, rate * 1e-3 * k
        error = home + 0.5 * (1.0 - np.cos(phase)) - q
        plant.step(dynamics.gravity(theta, q) + stiffness * (error + 0.3 * (0.5 * rate * np.sin(phase) - qd)))


def momentum_error(dynamics, theta, q, qd, torque, layout):
    """(K, n) error of the momentum balance over windows, per second of them, N m; samples at 1 ms, Simpson's rule.

    Windows in which a joint sticks are left out: Coulomb friction is anything in [-Fc, Fc] there.
    """
    smooth = np.array(theta)
    smooth[layout.coulomb] = smooth[layout.viscous] = 0.0
    torque = torque - theta[layout.coulomb] * np.sign(qd[1:]) - theta[layout.viscous] * np.diff(q, axis=0) / 1e-3
    momentum = dynamics.momentum_regressor(q, qd) @ smooth
    rate = dynamics.momentum_rate_regressor(q, qd) @ smooth
    weights = np.ones(WINDOW + 1)
    weights[1:-1:2], weights[2:-1:2] = 4.0, 2.0
    weights *= 1e-3 / 3.0
    out = []
    sticks = np.any(np.abs(qd) < 1e-6, axis=1) & bool(np.any(theta[layout.coulomb]))
    for k in range(0, len(torque) - WINDOW, WINDOW // 4):
        if np.any(sticks[k : k + WINDOW + 1]):
            continue
        given = 1e-3 * torque[k : k + WINDOW].sum(axis=0) + weights @ rate[k : k + WINDOW + 1]
        out.append((momentum[k + WINDOW] - momentum[k] - given) / (1e-3 * WINDOW))
    return np.array(out)


if __name__ == "__main__":
    raise SystemExit(main())
