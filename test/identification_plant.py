"""A small plant for the identifier's tests: Pinocchio's ABA, RK4, torque held for a period. Shares no dynamics code.

Everything here is independent of ``safe_sysid.dynamics``; friction is ``Fc sat(qd/v_c) + Fv qd + beta``.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pinocchio as pin

from safe_sysid.identification.equations.measurements import Measurements
from safe_sysid.identification.equations.momentum import MomentumRows
from safe_sysid.identification.equations.row_errors import ERROR_CAUSES
from safe_sysid.robot.model import Kinematics, Motors
from safe_sysid.robot.parameters import ParameterBox, inertia_from_com
from safe_sysid.studies.campaign.cases.rotor_bodies import RotorBodies
from safe_sysid.trajectories.quintic import QuinticTrajectory


def pinocchio_model(kin, theta):
    """Pinocchio model of a serial arm with true parameters theta (14 n,), rotor inertia included."""
    n = len(kin.axis)
    model = pin.Model()
    model.gravity.linear = np.array(kin.gravity)
    parent = 0
    for j in range(n):
        placement = pin.SE3(np.array(kin.rotation[j]), np.array(kin.translation[j]))
        kind = pin.JointModelPrismaticUnaligned if kin.sliding[j] else pin.JointModelRevoluteUnaligned
        joint = kind(np.array(kin.axis[j]))
        parent = model.addJoint(parent, joint, placement, f"j{j}")
        link = pin.Inertia.FromDynamicParameters(theta[10 * j : 10 * j + 10])
        model.appendBodyToJoint(parent, link, pin.SE3.Identity())
    model.armature = np.array(theta[12 * n : 13 * n])
    return model


@dataclass
class TrueLog:
    """Samples at the end of each period; ``torque[k]`` was held over ``(t_{k-1}, t_k]``."""

    stamps: np.ndarray
    q: np.ndarray
    qd: np.ndarray
    torque: np.ndarray
    link_torque: np.ndarray
    largest_acceleration: np.ndarray


def simulate(kin, theta, v_c, plans, dt=1e-3, substeps=2, rng=None, chatter=0.0):
    """Track ``plans`` [(trajectory, duration), ..] by computed torque; ``chatter`` N m of random torque steps."""
    n = len(kin.axis)
    model = pinocchio_model(kin, theta)
    data = model.createData()
    bodies = RotorBodies(kin, theta)
    spinning = len(kin.motors.joint) > 0
    fc, fv, beta = theta[10 * n : 11 * n], theta[11 * n : 12 * n], theta[13 * n : 14 * n]
    rng = np.random.default_rng(0) if rng is None else rng

    def friction(v):
        share = np.minimum(np.maximum(v / v_c, -1.0), 1.0) if v_c > 0 else np.sign(v)
        return fc * share + fv * v + beta

    def acceleration(q, v, tau):
        rubs = friction(v)
        if spinning:
            return bodies.acceleration(q, v, tau - rubs), rubs
        return pin.aba(model, data, q, v, tau - rubs), rubs

    q, v = plans[0][0].state(0.0)[:2].copy()
    out = [[], [], [], [], []]
    largest = np.zeros(n)
    tau, link = np.zeros(n), np.zeros(n)
    count = 0

    def record():
        for store, value in zip(out, (count * dt, q.copy(), v.copy(), tau.copy(), link.copy()), strict=True):
            store.append(value)

    record()
    for trajectory, duration in plans:
        for step in range(round(duration / dt)):
            ref = trajectory.state(step * dt)
            a_ref = ref[2] + 40.0 * (ref[1] - v) + 400.0 * (ref[0] - q)
            tau = bodies.torque(q, v, a_ref) + friction(v) + chatter * rng.uniform(-1, 1, n)
            h = dt / substeps
            own = bodies.own_momentum(q, v)
            f_int = np.zeros(n)
            for _ in range(substeps):
                k1, f1 = acceleration(q, v, tau)
                v2 = v + 0.5 * h * k1
                k2, f2 = acceleration(q + 0.5 * h * v, v2, tau)
                v3 = v + 0.5 * h * k2
                k3, f3 = acceleration(q + 0.5 * h * v2, v3, tau)
                v4 = v + h * k3
                k4, f4 = acceleration(q + h * v3, v4, tau)
                f_int += h / 6 * (f1 + 2 * f2 + 2 * f3 + f4)
                q = q + h / 6 * (v + 2 * v2 + 2 * v3 + v4)
                v = v + h / 6 * (k1 + 2 * k2 + 2 * k3 + k4)
                largest = np.maximum.reduce([largest, *np.abs((k1, k2, k3, k4))])
            # Mean of what a link-side sensor sees: motor torque less friction (not offset) and what rotors take.
            link = tau - f_int / dt + beta - (bodies.own_momentum(q, v) - own) / dt
            count += 1
            record()
    stamps, q, qd, torque, link = (np.array(x) for x in out)
    return TrueLog(stamps, q, qd, torque, link, largest)


def exciting_plans(start, rng, n_plans=4, t_f=3.0, t_p=1.5, amplitude=0.785):
    """Receding-horizon quintics as in the paper: the next one takes over after ``t_p``; the last runs to its end."""
    state = np.stack([start, 0 * start, 0 * start])
    plans = []
    for i in range(n_plans):
        goal = start + amplitude * rng.uniform(-1, 1, len(start))
        trajectory = QuinticTrajectory.to_rest(state, goal, t_f)
        plans.append((trajectory, t_f if i == n_plans - 1 else t_p))
        state = trajectory.state(t_p)[:3]
    return plans


def noisy(log, a, b, rng, mode="uniform", position=0.0, velocity=0.0, signs=None, link=False):
    """Measurements whose errors are inside ``a + b |tau|`` (true torque) and the state bounds."""
    torque = log.link_torque if link else log.torque
    shape = torque.shape
    if signs is None:
        if mode == "uniform":
            signs = rng.uniform(-1, 1, shape)
        elif mode == "random_sign":
            signs = rng.choice([-1.0, 1.0], shape)
        elif mode == "constant":
            signs = np.broadcast_to(rng.choice([-1.0, 1.0], shape[1]), shape)
        elif mode == "shrink":
            signs = -np.sign(torque)
        elif mode == "grow":
            signs = np.sign(torque)
        else:
            signs = np.zeros(shape)

    def state_error(bound):
        if bound == 0.0:
            return 0.0
        return bound * (rng.uniform(-1, 1, shape) if mode == "uniform" else rng.choice([-1.0, 1.0], shape))

    e_q, e_v = state_error(position), state_error(velocity)
    effort = torque + signs * (a + b * np.abs(torque))
    return Measurements(log.stamps, log.q + e_q, log.qd + e_v, effort)


def plain_rows(matrix, target, slack, log=0):
    """Momentum rows of which only equations and half widths matter. ``log``: 0 of the run, 1 of a tare."""
    m, start = len(target), np.zeros(len(target))
    parts, joint = np.zeros((m, len(ERROR_CAUSES))), np.zeros(m, np.int64)
    return MomentumRows(
        matrix, target, slack, slack / np.sqrt(3.0), parts, start, start + 1.0, joint, log=np.full(m, log)
    )


def random_arm(rng, n, coulomb=1.0):
    """Kinematics with random axes and offsets, and consistent nominal parameters (14 n,), all joints unequal."""
    rotation = np.stack([pin.exp3(rng.normal(0, 1.5, 3)) for _ in range(n)])
    axis = rng.normal(size=(n, 3))
    axis /= np.linalg.norm(axis, axis=1, keepdims=True)
    kin = Kinematics.turning(rotation, rng.uniform(-0.3, 0.3, (n, 3)), axis, np.array([0.3, -0.2, -9.7]))
    theta = np.empty(14 * n)
    for j in range(n):
        points = rng.normal(0, 0.1, (8, 3)) + rng.normal(0, 0.1, 3)
        mass = rng.uniform(0.05, 0.5, 8)
        theta[10 * j : 10 * j + 10] = sum(
            inertia_from_com(m, p, 1e-4 * np.eye(3)) for m, p in zip(mass, points, strict=True)
        )
    theta[10 * n : 11 * n] = coulomb * rng.uniform(0.1, 1.0, n)
    theta[11 * n : 12 * n] = rng.uniform(0.5, 5.0, n)
    theta[12 * n : 13 * n] = rng.uniform(0.3, 2.0, n)
    theta[13 * n :] = rng.uniform(-0.5, 0.5, n)
    return kin, theta


def geared(rng, kin, ratios=(3.0, 20.0)):
    """The chain with a motor of either sign, any axis and any carrier for each joint but the first."""
    n = len(kin.axis)
    joints = np.arange(1, n)
    gear = rng.choice([-1.0, 1.0], n - 1) / rng.uniform(*ratios, n - 1)
    axis = rng.normal(size=(n - 1, 3))
    axis /= np.linalg.norm(axis, axis=1, keepdims=True)
    carrier = np.array([rng.integers(0, j) for j in joints], np.int64)
    return kin._replace(motors=Motors(joints, carrier, gear, axis)).read_only


def random_consistent_box(rng, theta, n):
    """Truth and a box with unequal, off-centre uncertainties that holds it; the truth's links are consistent."""
    rad = rng.uniform(0.01, 0.1, theta.size) * np.abs(theta) + rng.uniform(0, 1e-4, theta.size)
    rad[10 * (n - 1) : 10 * n] *= 5.0
    shift = rng.uniform(-1, 1, theta.size) * rad
    return theta, ParameterBox(theta + shift - rad, theta + shift + rad)


class Wave:
    """Sines, slow enough to pass through zero velocity often."""

    def __init__(self, rng, n):
        self.amplitude, self.phase = rng.uniform(0.1, 0.4, n), rng.uniform(0, 6, n)
        self.omega = rng.uniform(2.0, 6.0, n)

    def state(self, t):
        a, w, x = self.amplitude, self.omega, self.omega * t + self.phase
        return np.stack([a * np.sin(x), a * w * np.cos(x), -a * w * w * np.sin(x), -a * w**3 * np.cos(x)])


def wavy_plans(rng, n, duration):
    return [(Wave(rng, n), duration)]
