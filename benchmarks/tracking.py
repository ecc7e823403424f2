"""Attacks on the tracking theorem in closed loop: parameters at corners of the box, every error on its bound.

Each run draws, from its number: lock-step or real-time gains, with or without measurement errors; a true arm; a box
that holds it, or parameters that jump to the worst corner of the box at every command, which no arm does but the proof
allows for; the fastest motion that the theorem's hypotheses allow, or a pose to hold; a start at rest or on
``V = V_start``; measurement and actuator errors (pushing the error outward, flipping with it, or random) and delays and
holds (longest, random, or both in turn). Pinocchio integrates; checked is every claim of docs/understand/guarantees.md:

- V, e, de, r and qdd in their bounds, at every instant looked at;
- per tick, U <= Z and the lemma ``r_hat^T u <= c h (S Z - Z^2)``, u found from the command and the true parameters;
- per hold, how far r moved, and the mean of dV/dt + r^T (K_k + Fv) r against D, K_k = kappa H; with ``--constant`` the
  damping is ``K_d r`` instead of ``kappa H r``.

A broken law (half of the damping, no robust term, robust term half as steep, commands delayed and held for twice as
long, a law that does not know the reaction of rotors on moving links, a feed-forward that the gains leave no room for)
must break a claim in the same runs. With ``--feed-forward`` so many N m are added to every joint's torque, with the
worst sign; the last two lines of the table are its price: the proved tube, and the torque of law and feed-forward.
With ``--tube`` the bounds are those of a narrower tube, and the box is as small as that asks for.
One JSON line per run as it ends; an interrupted benchmark goes on where it stopped.

    python benchmarks/tracking.py --runs 500 --out tracking.jsonl --json tracking.json
    python benchmarks/tracking.py --runs 40 --break damping --out broken.jsonl
    python benchmarks/tracking.py --runs 100 --gears 50 --out geared.jsonl
    python benchmarks/tracking.py --runs 100 --feed-forward 1 --out added.jsonl
    python benchmarks/tracking.py --runs 500 --constant --out constant.jsonl
    python benchmarks/tracking.py --runs 500 --tube 3 --out narrow.jsonl
    python benchmarks/tracking.py --runs 500 --robot franka_panda --out panda.jsonl
"""

from __future__ import annotations

import argparse
import functools
import json
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pinocchio as pin
from rich.console import Console
from rich.progress import Progress
from rich.table import Table
from starts import CONSTANT

from safe_sysid.control.gains import ControllerGains
from safe_sysid.control.gains.design import design_gains
from safe_sysid.control.gains.power_loss import ClosedLoop, PowerLoss
from safe_sysid.control.laws.law import ModelInUse
from safe_sysid.control.laws.robust import RobustLaw
from safe_sysid.control.tube import MeasuredTube, tubes_of
from safe_sysid.dynamics import dynamics_of
from safe_sysid.errors import SafeSysIdError
from safe_sysid.robot.loading import load_robot
from safe_sysid.robot.model import NO_MOTORS, RobotModel
from safe_sysid.robot.parameters import ParameterBox
from safe_sysid.simulation.arms import draw_truth
from safe_sysid.simulation.payloads import payload_from_spec
from safe_sysid.trajectories import QuinticTrajectory
from safe_sysid.trajectories.extrema import derivative_range

#: Ways to break the law or the loop; None is the real one.
BREAKS = (None, "damping", "robust", "steepness", "delay", "gears", "room")
#: Claims: share of the bound that was reached, above one is a violation.
CLAIMS = ("S", "V", "e", "de", "r", "qdd", "lemma", "U", "movement", "mean power", "age")
KINDS = ("constant, rest", "constant, border", "jumping, rest", "jumping, border")
KINOVA = "kinova_gen3"
#: A payload that the priors of the other packaged arms hold.
SMALL = "0.4,0,0,0.14,2e-4,0,2e-4,0,0,2e-4"
NOISE = {"measurement": {"position_error": 2e-5, "velocity_error": 1e-3}}
_STEP = 8e-4  # s, longest step of the quadrature; two of the integration
_ROUND = 1.0 + 1e-6


class Arm:
    """The rigid arm with rotors and friction, by Pinocchio's own algorithms.

    A rotor on a moving link is a body with a joint of its own, held to its gear: ``turns`` gives the motion of all
    joints from the arm's. What carries it holds it, so it is taken out of that link's parameters.
    """

    def __init__(self, model: RobotModel, theta: np.ndarray, q: np.ndarray, qd: np.ndarray) -> None:
        n, kin = model.n, model.kinematics
        self.pin, self.theta = pin.Model(), theta
        for j in range(n):
            placement = pin.SE3(np.array(kin.rotation[j]), np.array(kin.translation[j]))
            kind = pin.JointModelPrismaticUnaligned if kin.sliding[j] else pin.JointModelRevoluteUnaligned
            self.pin.addJoint(j, kind(np.array(kin.axis[j])), placement, model.joint_names[j])
            link = pin.Inertia.FromDynamicParameters(np.array(theta[model.layout.link(j)]))
            self.pin.appendBodyToJoint(j + 1, link, pin.SE3.Identity())
        self.pin.gravity.linear = np.array(kin.gravity)
        self.coulomb, self.viscous, self.rotor, self.offset = model.layout.by_term(theta).copy()
        turns = [*np.eye(n)]
        for j, carrier, gear, axis in zip(*kin.motors, strict=True):
            spin = self.rotor[j] * gear**2
            inertia = 0.6 * spin * np.eye(3) + 0.4 * spin * np.outer(axis, axis)
            rotor = pin.Inertia(0.1, np.zeros(3), inertia)
            place = pin.SE3(np.eye(3), np.array([0.03, -0.02, 0.05]))
            kind = pin.JointModelRevoluteUnaligned(np.array(axis))
            added = self.pin.addJoint(int(carrier) + 1, kind, place, f"rotor of {model.joint_names[j]}")
            self.pin.appendBodyToJoint(added, rotor, pin.SE3.Identity())
            held = pin.Inertia.FromDynamicParameters(-place.act(rotor).toDynamicParameters())
            self.pin.appendBodyToJoint(int(carrier) + 1, held, pin.SE3.Identity())
            turns.append(np.eye(n)[j] / gear)
            self.rotor[j] = 0.0
        self.turns = np.array(turns)
        self.data = self.pin.createData()
        self.geared = len(turns) > n
        self.with_rotors = self.pin.copy()
        self.with_rotors.armature = np.zeros(self.pin.nv) if self.geared else self.rotor.copy()
        self.aba_data = self.with_rotors.createData()
        self.slow = max(model.friction_transition_velocity, 1e-9)
        self.q, self.qd, self.qdd = q.copy(), qd.copy(), np.zeros(n)

    def inertia(self, q: np.ndarray) -> np.ndarray:
        """H (n, n) with rotors."""
        upper = np.triu(pin.crba(self.pin, self.data, self.turns @ q))
        return self.turns.T @ (upper + np.triu(upper, 1).T) @ self.turns + np.diag(self.rotor)

    def acceleration(self, q: np.ndarray, qd: np.ndarray, torque: np.ndarray) -> np.ndarray:
        """(n,) rad/s^2."""
        friction = self.coulomb * np.clip(qd / self.slow, -1, 1) + self.viscous * qd + self.offset
        if not self.geared:
            return np.array(pin.aba(self.with_rotors, self.aba_data, q, qd, torque - friction))
        bias = self.turns.T @ pin.nonLinearEffects(self.pin, self.data, self.turns @ q, self.turns @ qd)
        return np.linalg.solve(self.inertia(q), torque - bias - friction)

    def advance(self, torque: np.ndarray, duration: float) -> None:
        """One step of RK4 with a constant torque."""
        dt, q, v = duration, self.q, self.qd
        a1 = self.acceleration(q, v, torque)
        v2 = v + 0.5 * dt * a1
        a2 = self.acceleration(q + 0.5 * dt * v, v2, torque)
        v3 = v + 0.5 * dt * a2
        a3 = self.acceleration(q + 0.5 * dt * v2, v3, torque)
        v4 = v + dt * a3
        a4 = self.acceleration(q + dt * v3, v4, torque)
        self.q = q + dt * (v + 2 * v2 + 2 * v3 + v4) / 6
        self.qd = v + dt * (a1 + 2 * a2 + 2 * a3 + a4) / 6
        self.qdd = np.maximum(self.qdd, np.abs(a1))


@functools.cache
def setting(
    lockstep: bool, noisy: bool, robot: str, gears: float, room: float, constant: bool = False, tube: int = 0
) -> tuple[RobotModel, ControllerGains, PowerLoss, float]:
    """Model, gains, the demand at V_max, and the bound R1."""
    packaged = load_robot(robot)
    changes: dict[str, Any] = {
        "controller.feed_forward.bound": room,
        # With errors and torque added identification would have to assume more; the theorem does not ask.
        "identification.acceleration_bound": (2.0 * packaged.acceleration_bound).tolist(),
        **(NOISE if noisy else {}),
        **(CONSTANT[robot] if constant else {}),
    }
    if gears:
        for j, name in enumerate(packaged.joint_names[1:]):
            changes[f"joints.{name}.gear_ratio"] = gears if j % 2 else -gears
            changes[f"joints.{name}.motor_axis"] = [0.6, -0.3, 0.7]
    model = load_robot(robot, **changes)
    gains = tubes_of(model, design_gains(model, lockstep))[tube]
    if isinstance(gains, MeasuredTube):
        raise SafeSysIdError("a measured tube: expected that of a torque interface")
    loop = ClosedLoop(
        model.kinematics, gains.box, gains.assumptions, gains.inertia_lower, gains.K_r, gains.K_d, gains.kappa,
        model.friction_transition_velocity, gains.own_damping,
    )  # fmt: skip
    nu = float(np.sqrt(2.0 * gains.V_max))
    crude = loop.crude(nu, gains.assumptions.hold_max, gains.lead)
    if crude is None:
        raise SafeSysIdError("gains without a bound: expected what design_gains proved")
    return model, gains, loop.power_loss(nu, gains.robust_gain, gains.lead), crude[0]


def fastest(rng: np.random.Generator, gains: ControllerGains, q: np.ndarray) -> QuinticTrajectory:
    """A motion to rest as fast as the theorem's hypotheses allow."""
    a = gains.assumptions
    way = rng.choice([-1.0, 1.0], q.size) * rng.uniform(0.2, 0.8, q.size)
    limits = (a.velocity - gains.de_bound, a.acceleration, a.jerk)
    if not np.all(limits[0] > 0.0):
        raise SafeSysIdError("controller.velocity: expected more than the tracking error's, de_bound of the gains")
    duration = 0.5
    while True:
        path = QuinticTrajectory.to_rest(np.stack([q, 0 * q, 0 * q]), q + way, duration)
        peaks = [np.abs(derivative_range(path, i, 0.0, duration)).max(axis=1) for i in (1, 2, 3)]
        if all(np.all(p <= limit) for p, limit in zip(peaks, limits, strict=True)):
            return path
        duration *= 1.05


def box_around(rng: np.random.Generator, model: RobotModel, theta: np.ndarray) -> ParameterBox:
    """The prior, or a box inside with the truth at one of its corners or faces."""
    prior, share = model.arm_prior, float(rng.choice([1.0, 1.0, 0.3, 0.0]))
    side = rng.choice([0.0, 0.0, 1.0], prior.size)
    lower = theta - share * np.where(side > 0.5, theta - prior.lower, rng.random() * (theta - prior.lower))
    upper = theta + share * np.where(side < 0.5, prior.upper - theta, rng.random() * (prior.upper - theta))
    if share == 1.0:
        return prior
    return ParameterBox(np.clip(lower, prior.lower, theta), np.clip(upper, theta, prior.upper))


def small_box(
    rng: np.random.Generator, model: RobotModel, theta: np.ndarray, gains: ControllerGains, path: QuinticTrajectory
) -> ParameterBox:
    """Part of the prior that holds the truth, mostly at a corner, and keeps S along a motion at its bound."""
    prior = model.arm_prior
    side = rng.choice([0.0, 1.0, 1.0], prior.size)
    below, above = side * (theta - prior.lower), np.where(side > 0.5, rng.random() < 0.2, True) * (prior.upper - theta)
    states = [path.state(t) for t in np.linspace(0.0, path.duration, 9)]
    rate = gains.assumptions.acceleration + (2.0 * gains.K_r + gains.own_damping) * gains.r_bound
    rows = np.stack([
        dynamics_of(model.kinematics).slotine_li_regressor(
            s[0], s[1], s[1] + sign * gains.r_bound, s[2] + sign * rng.random(model.n) * rate,
            model.friction_transition_velocity,
        )
        for s in states for sign in (-1.0, 1.0)
    ])  # fmt: skip
    spread = np.abs(rows) @ (0.5 * (below + above))
    share = 0.9 * gains.assumptions.uncertainty / np.max(np.linalg.norm(spread / np.sqrt(gains.inertia_lower), axis=1))
    share = min(share, 1.0)
    return ParameterBox(theta - share * below, theta + share * above)


def law_of(model: RobotModel, gains: ControllerGains, how: str | None) -> RobustLaw:
    """The law, or the law with a mistake."""
    if how == "damping":
        gains = replace(gains, K_d=0.5 * gains.K_d, own_damping=0.5 * gains.own_damping)
    elif how == "steepness":
        gains = replace(gains, robust_gain=2.0 * gains.robust_gain)
    kin = model.kinematics._replace(motors=NO_MOTORS) if how == "gears" else model.kinematics
    return RobustLaw(kin, gains, model.friction_transition_velocity)


def worst_corner(
    rng: np.random.Generator,
    box: ParameterBox,
    w: np.ndarray,
    meant: np.ndarray,
    r: np.ndarray,
    gains: ControllerGains,
    inertia: np.ndarray,
    duration: float,
) -> np.ndarray:
    """The parameters of the box that, for one hold, drive V up most; found by iterating from a few directions."""
    best, most = box.mid, -np.inf
    for start in (r, -r, *rng.normal(size=(3, len(r)))):
        v = start
        for _ in range(4):
            theta = box.mid + np.where(v @ w >= 0.0, box.rad, -box.rad)
            pushed = np.linalg.solve(inertia, w @ theta - meant - gains.K_d * r) - gains.own_damping * r
            after = r + duration * pushed
            value = float(after @ inertia @ after)
            if value > most:
                best, most = theta, value
            v = after
    return best


def run(
    number: int,
    seed: int,
    how: str | None = None,
    duration: float = 0.25,
    robot: str = KINOVA,
    gears: float = 0.0,
    added: float = 0.0,
    constant: bool = False,
    tube: int = 0,
) -> dict[str, Any]:
    """One closed loop; shares of the claims' bounds.

    Args:
        number: of the run; everything is drawn from it.
        seed: of the benchmark.
        how: the mistake, of ``BREAKS``.
        duration: s.
        robot: name or path of its configuration.
        gears: ratio of all motors but the first joint's, each on the link before its joint, oblique; 0: as configured.
        added: by a feed-forward to the law's torque of every joint, N m.
        constant: the damping is ``K_d r``, not ``kappa H r``.
        tube: whose bounds are claimed, 0 the widest.
    """
    rng = np.random.default_rng([seed, number])
    lockstep, noisy = bool(rng.random() < 0.4), bool(rng.random() < 0.4)
    model, gains, demand, R1 = setting(lockstep, noisy, robot, gears, 0.0 if how == "room" else added, constant, tube)
    a, n = gains.assumptions, model.n
    S, h = a.uncertainty, a.hold_max
    draws = {
        "payload": str(rng.choice(["8lb", "8lb", "4lb"] if robot == KINOVA else [SMALL])),
        "truth": str(rng.choice(["corner", "corner", "uniform"])),
        "motion": str(rng.choice(["fastest", "fastest", "hold"])),
        "start": str(rng.choice(["rest", "border"])),
        "push": str(rng.choice(["outward", "inward", "random", "flip"])),
        "timing": str(rng.choice(["longest", "random", "turns"])),
        "axis": str(rng.choice(["any", "one"])),
        "parameters": str(rng.choice(["constant", "jumping"])),
    }
    theta = draw_truth(model, payload_from_spec(draws["payload"]), rng, mode=draws["truth"])
    home = np.asarray(model.settings.home, float)
    if tube == 0:  # drawn before the path: runs of a number stay what they were
        box = box_around(rng, model, theta)
    path = fastest(rng, gains, home) if draws["motion"] == "fastest" else QuinticTrajectory.hold(home)
    if tube:
        box = small_box(rng, model, theta, gains, path)
    use = ModelInUse(box.mid, box.mid, box.rad)
    arm = Arm(model, theta, home, np.zeros(n))
    size = 0.0
    if draws["start"] == "border":
        r = rng.normal(size=n) if draws["axis"] == "any" else np.eye(n)[rng.integers(n)] * rng.choice([-1.0, 1.0])
        r *= np.sqrt(2.0 * gains.V_start / (r @ arm.inertia(home) @ r)) * (1.0 - 1e-9)
        arm.qd, size = -r, 1.0
    law = law_of(model, gains, how)
    noise_r = a.velocity_error + gains.K_r * a.position_error
    eta = float(np.linalg.norm(noise_r * np.sqrt(gains.inertia_lower)))
    share, largest = dict.fromkeys(CLAIMS, 0.0), 0.0

    def claim(name: str, found: float, bound: float) -> None:
        # Where the bound is zero the found value is rounding.
        share[name] = max(share[name], found / bound if bound > 0.0 else float(found > 1e-9))

    def errors(t: float, q: np.ndarray, qd: np.ndarray) -> tuple[np.ndarray, ...]:
        d = path.state(t)
        return d[0] - q, d[1] - qd, d[1] - qd + gains.K_r * (d[0] - q)

    def energy(t: float) -> float:
        e, de, r = errors(t, arm.q, arm.qd)
        V = 0.5 * float(r @ arm.inertia(arm.q) @ r)
        claim("V", V, gains.V_max)
        for name, x, bound in (("e", e, gains.e_bound), ("de", de, gains.de_bound), ("r", r, gains.r_bound)):
            claim(name, float(np.max(np.abs(x) / bound)), 1.0)
        claim("r", float(np.linalg.norm(r / gains.r_bound)), 1.0)
        return V

    def signs(r: np.ndarray) -> np.ndarray:
        outward = np.where(r >= 0.0, 1.0, -1.0)
        return {"outward": outward, "inward": -outward, "flip": outward * rng.choice([-1.0, 1.0])}.get(
            draws["push"], rng.choice([-1.0, 1.0], n)
        )

    t, torque, beside, acts, tick = 0.0, np.zeros(n), np.zeros(n), 0.0, 0
    hold_start: tuple[float, float, float] | None = None  # time, V, damping's work so far
    work, measured_at, damping = 0.0, 0.0, np.zeros((n, n))
    r_hat = np.zeros(n)

    def travel(until: float) -> None:
        """Integrate under the torque in force, summing r^T (K_d + Fv) r by Simpson's rule."""
        nonlocal t, work
        push = np.zeros(n)
        while until - t > 1e-12:
            dt = min(_STEP, until - t)
            rates = []
            for part in range(3):
                r = errors(t, arm.q, arm.qd)[2]
                rates.append(float(r @ ((gains.K_d + arm.viscous) * r + damping @ r)))
                if part == 0:
                    push = -signs(r) * (a.actuator_abs + a.actuator_rel * np.abs(torque))
                if part < 2:
                    arm.advance(torque + push + beside, 0.5 * dt)
                    t += 0.5 * dt
                    energy(t)
                    moved = errors(t, arm.q, arm.qd)[2] - r_hat
                    length = float(np.linalg.norm(moved * np.sqrt(gains.inertia_lower)))
                    claim("movement", length, eta + (t - measured_at) * (2.0 * S + R1))
            work += dt * (rates[0] + 4.0 * rates[1] + rates[2]) / 6.0
        claim("qdd", float(np.max(arm.qdd / gains.acceleration_bound)), 1.0)

    while t < duration:
        # Measure.
        sign = signs(errors(t, arm.q, arm.qd)[2])
        q_m, qd_m = arm.q + sign * a.position_error, arm.qd + sign * a.velocity_error
        command = law.step(t, q_m, qd_m, path.state(t), use).copy()
        taken, taken_r = t, law.r.copy()
        w = dynamics_of(model.kinematics).slotine_li_regressor(
            q_m + gains.lead * qd_m, qd_m, path.state(t)[1] + gains.K_r * law.e,
            path.state(t)[2] + gains.K_r * law.de + gains.own_damping * taken_r, model.friction_transition_velocity,
        )  # fmt: skip
        if how == "robust":
            command = w @ box.mid + gains.K_d * taken_r
        rows = np.abs(w) @ box.rad
        weight = np.abs(w).T @ (rows / gains.inertia_lower)
        now_S = float(np.sqrt(np.sum(rows * rows / gains.inertia_lower)))
        claim("S", now_S, S)  # a hypothesis: where the motion does not keep it, the run says nothing
        meant = command - gains.K_d * taken_r
        u, now = w @ theta - meant, theta
        if draws["parameters"] == "jumping":
            now = worst_corner(rng, box, w, meant, taken_r, gains, arm.inertia(arm.q), h)
            u = w @ now - meant
        x = taken_r @ w
        with np.errstate(divide="ignore", invalid="ignore"):
            s = np.clip(np.where(weight > 0, x / (gains.robust_gain * h * weight), 0.0), -1.0, 1.0) * box.rad
            rho = now - box.mid - s
            Z = float(np.sqrt(np.sum(np.where(box.rad > 0, weight * rho * rho / box.rad, 0.0))))
        room = gains.robust_gain * h * (now_S * Z - Z * Z) + 1e-9
        top = gains.robust_gain * h * now_S**2 / 4.0 + 1e-9
        claim("lemma", 1.0 + (float(taken_r @ u) - room) / top, 1.0)
        U = float(np.linalg.norm(u / np.sqrt(gains.inertia_lower)))
        claim("U", U, Z + 1e-9)
        # Its delay and the end of its life.
        late = 2.0 if how == "delay" else 1.0
        tick += 1
        longest = draws["timing"] == "longest" or (draws["timing"] == "turns" and tick % 2)
        delay = late * a.delay_max * (1.0 if longest else float(rng.uniform(0.0, 1.0)))
        if tick == 1:  # until the first command acts the arm rests
            r_hat, delay = taken_r, 0.0
        acts = taken + delay
        travel(acts)
        V = energy(t)
        if hold_start is not None and t - hold_start[0] > 1e-9:
            mean = (V - hold_start[1] + work - hold_start[2]) / (t - hold_start[0])
            claim("mean power", mean, demand.power)
        damping = gains.own_damping * arm.inertia(q_m + gains.lead * qd_m)
        torque, r_hat, measured_at, beside = command - added * sign, taken_r, taken, w @ (theta - now)
        largest = max(largest, float(np.max(np.abs(torque) / model.limits.torque)))
        hold_start = (t, V, work)
        # The next measurement comes so that its command, at its latest, acts when this one is hold_max old.
        room_left = max(late * h - delay - late * a.delay_max, 0.0)
        travel(t + room_left * (1.0 if longest else float(rng.uniform(0.2, 1.0))))
        claim("age", t + (0.0 if lockstep else late * a.delay_max) - taken, h * _ROUND + 1e-12)
    drawn = {"robot": robot, "run": number, "seed": seed, "break": how, "gears": gears} | draws
    return drawn | {
        "lockstep": lockstep, "noisy": noisy,
        "border": size, "added": added, "constant": constant, "narrow": tube, "tube": 1e3 * float(gains.e_bound.max()),
        "torque": largest, "share": {k: float(v) for k, v in share.items()},
    }  # fmt: skip


def summarise(lines: list[dict[str, Any]]) -> dict[str, Any]:
    """Largest shares, by start; how many runs broke a claim; the ratio proved / observed of r."""
    out: dict[str, Any] = {"runs": len(lines)}
    out["violated"] = sum(any(v > _ROUND for v in line["share"].values()) for line in lines)
    for kind in KINDS:
        part = [line for line in lines if (line["parameters"], line["start"]) == tuple(kind.split(", "))]
        if part:
            out[kind] = {c: max(line["share"][c] for line in part) for c in CLAIMS} | {"runs": len(part)}
            share = [line["share"]["V"] for line in part]
            out[kind]["proved over observed r"] = float(1.0 / np.sqrt(max(share)))
            out[kind]["the same, median run"] = float(1.0 / np.sqrt(np.median(share)))
            out[kind]["proved tube, mrad"] = max(line["tube"] for line in part)
            out[kind]["torque of its limit"] = max(line["torque"] for line in part)
    return out


def main() -> None:
    """Run what is missing, then print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=500)
    parser.add_argument("--robot", default=KINOVA, help="name or file")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--break", dest="how", choices=BREAKS[1:])
    parser.add_argument("--gears", type=float, default=0.0, help="ratio of motors on moving links; 0: none")
    parser.add_argument("--feed-forward", type=float, default=0.0, help="N m that it adds to each joint's torque")
    parser.add_argument("--constant", action="store_true", help="controller.damping: constant")
    parser.add_argument("--tube", type=int, default=0, help="whose bounds are claimed; 0 is the widest")
    parser.add_argument("--out", type=Path, required=True, help="one JSON line per run; gone on with if it exists")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    lines = [json.loads(x) for x in options.out.read_text().splitlines()] if options.out.exists() else []
    asked = (options.robot, options.seed, options.how, options.gears, options.feed_forward, options.constant)
    asked += (options.tube,)
    keys = ("robot", "seed", "break", "gears", "added", "constant", "narrow")
    lines = [x for x in lines if tuple(x.get(key) for key in keys) == asked]
    done, began = {x["run"] for x in lines}, time.perf_counter()
    with Progress(console=Console(stderr=True)) as progress, options.out.open("a") as file:
        for number in progress.track([k for k in range(options.runs) if k not in done]):
            more = {"added": options.feed_forward, "constant": options.constant, "tube": options.tube}
            lines.append(run(number, options.seed, options.how, robot=options.robot, gears=options.gears, **more))
            file.write(json.dumps(lines[-1]) + "\n")
            file.flush()
    found = summarise(lines) | {"seconds": time.perf_counter() - began}
    kinds = [kind for kind in KINDS if kind in found]
    table = Table("share of the bound", *kinds, title=f"{len(lines)} runs, {found['violated']} broke a claim")
    for name in found[kinds[0]]:
        table.add_row(name, *(f"{found[kind][name]:.3g}" for kind in kinds))
    Console().print(table)
    if options.json:
        options.json.write_text(json.dumps(found, indent=1))


if __name__ == "__main__":
    main()
