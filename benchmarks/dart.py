"""What Gazebo's default physics engine does with an arm: its dynamics and its integrator's error beside ours.

    pip install dartpy; python benchmarks/dart.py [--robot three_joint] [--seconds 3]

The arm of the robot's URDF without rotors and Coulomb friction, as Gazebo simulates it, is led along sines by torques
held for 1 ms. "one step": what DART's step differs by from our inverse dynamics at its beginning, N m; viscous friction
is implicit there. "momentum": what the balance that identification rests on is off by, over windows of 0.1 s sampled at
1 kHz, N m: an identifier of this arm must declare at least so much as a torque error besides the sensors'.
"""

from __future__ import annotations

import argparse
import sys

import numpy as np
from defusedxml import ElementTree
from rich.console import Console
from rich.table import Table

from safe_sysid.dynamics import dynamics_of
from safe_sysid.robot.loading import find_urdf, load_robot
from safe_sysid.robot.scenes.scene import config_path

WINDOW = 100  # ms


def main() -> int:
    """Simulate and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--robot", default="three_joint")
    parser.add_argument("--seconds", type=float, default=3.0)
    options = parser.parse_args()
    try:
        import dartpy
    except ImportError:
        print("dartpy is not installed: pip install dartpy", file=sys.stderr)
        return 2
    model = load_robot(options.robot)
    n, layout, dynamics = model.n, model.layout, dynamics_of(model.kinematics)
    kind = dartpy.utils.DartLoader.RootJointType
    settings = dartpy.utils.DartLoader.Options()
    settings.mDefaultRootJointType = getattr(kind, "Fixed", None) or kind.FIXED
    loader = dartpy.utils.DartLoader()
    loader.setOptions(settings)
    urdf = find_urdf(config_path(options.robot, "config"), model.settings)
    arm = loader.parseSkeleton(str(urdf))
    dofs = [arm.getDof(name) for name in model.joint_names]
    if arm.getNumDofs() != n or any(dof is None for dof in dofs):
        print(f"{urdf}: expected the joints {', '.join(model.joint_names)} and no others", file=sys.stderr)
        return 2
    empty = [
        link.get("name") for link in ElementTree.parse(urdf).getroot().iter("link") if link.find("inertial") is None
    ]
    for name in empty:  # 1 kg in DART, nothing in Gazebo
        if (body := arm.getBodyNode(name)) is not None:
            body.setInertia(dartpy.dynamics.Inertia(1e-9, np.zeros(3), 1e-12 * np.eye(3)))
    world = dartpy.simulation.World()
    world.addSkeleton(arm)
    world.setGravity(np.array(model.kinematics.gravity))
    table = Table(
        title=f"{options.robot} without rotors, DART {dartpy.__version__}, largest of {options.seconds:g} s, N m"
    )
    for name in ("viscous friction", "step, ms", "one step", "momentum", "largest velocity", "largest torque"):
        table.add_column(name)
    for damping in (0.0, 2.0):
        theta = np.array(model.theta_nominal)
        theta[layout.joint_terms] = 0.0
        theta[layout.viscous] = damping
        for dof in dofs:
            dof.setDampingCoefficient(damping)
        for h in (1e-3, 1e-4):
            world.setTimeStep(h)
            q, qd, torque = simulate(
                world, arm, dofs, dynamics, theta, np.array(model.settings.home), h, options.seconds
            )
            step = dynamics.inverse_dynamics(theta, q[:-1], qd[:-1], np.diff(qd, axis=0) / h) - torque
            off = momentum_error(dynamics, theta, q, qd, torque, round(1e-3 / h))
            largest = (
                f"{x:.2g}" for x in (np.abs(step).max(), np.abs(off).max(), np.abs(qd).max(), np.abs(torque).max())
            )
            table.add_row(f"{damping:g}", f"{1e3 * h:g}", *largest)
    Console(width=120).print(table)
    return 0


def simulate(world, arm, dofs, dynamics, theta, home, h, seconds):
    """Positions, velocities (T + 1, n) and torques (T, n) at every step."""
    n, steps, held = len(home), round(seconds / h), round(1e-3 / h)
    q, qd, torque = np.zeros((steps + 1, n)), np.zeros((steps + 1, n)), np.zeros((steps, n))
    places = [dof.getIndexInSkeleton() for dof in dofs]
    for place, position in zip(places, home, strict=True):
        arm.setPosition(place, position)
        arm.setVelocity(place, 0.0)
    rate = 2.0 * np.pi * (0.5 + 0.2 * np.arange(n))
    stiffness = np.diag(dynamics.mass_matrix(theta, home)) * 40.0
    for i in range(steps + 1):
        q[i], qd[i] = arm.getPositions()[places], arm.getVelocities()[places]
        if i == steps:
            break
        if i % held == 0:
            error = home + 0.5 * (1.0 - np.cos(rate * i * h)) - q[i]
            command = dynamics.gravity(theta, q[i]) + stiffness * (
                error + 0.3 * (0.5 * rate * np.sin(rate * i * h) - qd[i])
            )
        torque[i] = command
        forces = np.zeros(n)
        forces[places] = command
        arm.setForces(forces)
        world.step()
    return q, qd, torque


def momentum_error(dynamics, theta, q, qd, torque, held):
    """(K, n) error of the momentum balance over windows, per second of them, N m; samples at 1 ms, Simpson's rule."""
    momentum = (dynamics.momentum_regressor(q, qd) @ theta)[::held]
    rate = (dynamics.momentum_rate_regressor(q, qd) @ theta)[::held]
    torque = torque[::held]
    weights = np.ones(WINDOW + 1)
    weights[1:-1:2], weights[2:-1:2] = 4.0, 2.0
    weights *= 1e-3 / 3.0
    out = []
    for k in range(0, len(torque) - WINDOW, WINDOW // 4):
        given = 1e-3 * torque[k : k + WINDOW].sum(axis=0) + weights @ rate[k : k + WINDOW + 1]
        out.append((momentum[k + WINDOW] - momentum[k] - given) / (1e-3 * WINDOW))
    return np.array(out)


if __name__ == "__main__":
    sys.exit(main())
