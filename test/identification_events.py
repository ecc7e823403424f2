"""A plant whose sampling and torque switches happen at any times, and errors on their bounds in the worst signs.

Shares no dynamics code with what it attacks: Pinocchio's RNEA and CRBA, rotors as bodies, RK4 between events.
"""

from __future__ import annotations

import numpy as np
import pinocchio as pin
from identification_plant import Wave, geared, random_arm, random_consistent_box

from safe_sysid.identification.equations.measurement_errors import MeasurementErrors
from safe_sysid.identification.equations.measurements import Measurements, SampleRun
from safe_sysid.identification.equations.momentum import RowSource
from safe_sysid.studies.campaign.cases.rotor_bodies import RotorBodies

#: Declared errors.
CASES = {
    "exact": {},
    "everything": {
        "position": 1e-5, "velocity": 1e-3, "stamp": 1e-7, "torque_bias": 0.1, "torque_abs": 0.01, "torque_rel": 0.01,
    },
}  # fmt: skip


class Attack:
    """A random arm and log; true times, states, torques, from which measurements with any admissible error follow."""

    def __init__(
        self, seed, n, period=1e-3, count=40, v_c=0.02, coulomb=1.0, chatter=2.0, jitter=0.2, delay=0.0,
        switch_jitter=0.0, gravity=(0.0, 0.0), substeps=2, speed=1.0, motors=False,
    ):  # fmt: skip
        self.rng = rng = np.random.default_rng(seed)
        self.n, self.v_c, self.delay, self.switch_jitter = n, v_c, delay, switch_jitter
        self.kin, theta = random_arm(rng, n, coulomb=coulomb)
        if motors:
            self.kin = geared(rng, self.kin)
        self.theta, self.box = random_consistent_box(rng, theta, n)
        self.gravity = gravity
        axis = np.cross(rng.normal(size=3), self.kin.gravity)
        turn = pin.exp3(axis / np.linalg.norm(axis) * gravity[0])
        self.true_kin = self.kin._replace(gravity=turn @ self.kin.gravity * (1.0 + gravity[1]))
        self.t = 0.5 + np.cumsum(period * rng.uniform(1.0 - jitter, 1.0 + jitter, count))
        switches = self.t + delay + switch_jitter * rng.choice([-1.0, 1.0], count)
        self._simulate(switches, chatter, substeps, speed)

    def _simulate(self, switches, chatter, substeps, speed):
        n, theta = self.n, self.theta
        bodies = RotorBodies(self.true_kin, theta)
        fc, fv, beta = theta[10 * n : 11 * n], theta[11 * n : 12 * n], theta[13 * n :]
        wave = Wave(self.rng, n)
        wave.omega *= speed

        def friction(v):
            return fc * (np.clip(v / self.v_c, -1, 1) if self.v_c > 0 else np.sign(v)) + fv * v + beta

        def rate(v, state):
            return bodies.acceleration(state, v, tau - friction(v))

        def law(t, q, v):
            ref = wave.state(t)
            a = ref[2] + 40.0 * (ref[1] - v) + 400.0 * (ref[0] - q)
            return bodies.torque(q, v, a) + friction(v) + chatter * self.rng.uniform(-1, 1, n)

        events = sorted([(t, 0, k) for k, t in enumerate(self.t)] + [(t, 1, k) for k, t in enumerate(switches)])
        now = events[0][0]
        q, v = wave.state(now)[:2]
        tau = law(now, q, v)
        count = len(self.t)
        self.q, self.qd, self.torque = np.zeros((count, n)), np.zeros((count, n)), np.zeros((count, n))
        self.acceleration = np.zeros(n)
        for t, kind, k in events:
            if t > now:
                h = (t - now) / substeps
                for _ in range(substeps):
                    k1 = rate(v, q)
                    v2 = v + 0.5 * h * k1
                    k2 = rate(v2, q + 0.5 * h * v)
                    v3 = v + 0.5 * h * k2
                    k3 = rate(v3, q + 0.5 * h * v2)
                    v4 = v + h * k3
                    k4 = rate(v4, q + h * v3)
                    q, v = q + h / 6 * (v + 2 * v2 + 2 * v3 + v4), v + h / 6 * (k1 + 2 * k2 + 2 * k3 + k4)
                    self.acceleration = np.maximum(self.acceleration, np.abs([k1, k2, k3, k4]).max(axis=0))
                now = t
            if kind == 0:
                self.q[k], self.qd[k] = q, v
            else:  # the torque before this switch is what sample k reports
                self.torque[k] = tau
                tau = law(t, q, v)

    def errors(self, **changes):
        declared = {
            "torque_source": "motor", "torque_abs": 1e-9, "torque_rel": 0.0, "position": 0.0, "velocity": 0.0,
            "acceleration": 1.05 * self.acceleration, "transition": self.v_c, "stamp": 0.0,
            "torque_delay": abs(self.delay), "torque_jitter": self.switch_jitter,
            "gravity_angle": self.gravity[0], "gravity_relative": abs(self.gravity[1]),
        }  # fmt: skip
        return MeasurementErrors(self.n, **(declared | changes))

    def measure(self, e, signs):
        """Measurements with every error on its bound; ``signs`` (3 n + 1, N) in [-1, 1]: q, qd, torque, stamp."""
        n = self.n
        s_q, s_v, s_tau, s_t = signs[:n].T, signs[n : 2 * n].T, signs[2 * n : 3 * n].T, signs[3 * n]
        torque = self.torque + s_tau * (e.torque_abs + e.torque_drift + e.torque_rel * np.abs(self.torque))
        if e.torque_source == "command":  # the torque errs by so much of the command: the other way round
            torque = self.torque / (1.0 + 0.999 * s_tau * e.torque_rel) + s_tau * (e.torque_abs + e.torque_drift)
            torque = np.where(
                np.abs(torque - self.torque)
                <= np.maximum(np.abs(torque), np.abs(self.torque)) * e.torque_rel + e.torque_abs + e.torque_drift,
                torque,
                self.torque,
            )
        bias = self.bias_sign * e.torque_bias if np.any(e.torque_bias) else 0.0
        return Measurements(
            self.t + s_t * e.stamp, self.q + s_q * e.position, self.qd + s_v * e.velocity, torque + bias
        )

    bias_sign = 1.0

    def truth(self, e):
        """Parameters with the sensors' constant bias in the offsets."""
        theta = self.theta.copy()
        theta[13 * self.n :] += self.bias_sign * e.torque_bias
        return theta

    def ratios(self, e, signs, windows, ramp):
        """Error / slack (W, n) of windows."""
        run = SampleRun(self.measure(e, signs), False, 3)
        rows = RowSource(self.kin, self.box, e, run, ramp > 0.0).rows(windows, ramp)
        assert len(rows) == self.n * len(windows), (rows.rejected_acceleration, rows.rejected_delay)
        return ((rows.matrix @ self.truth(e) - rows.target) / rows.slack).reshape(-1, self.n)

    def worst(self, e, window, ramp, joint, sweeps=1):
        """Largest |error|/slack of one row that coordinate ascent over all signs finds from a random start."""
        first, last = window
        best = 0.0
        for direction in (1.0, -1.0):
            signs = self.rng.choice([-1.0, 1.0], (3 * self.n + 1, len(self.t)))
            windows = np.array([window])
            value = direction * self.ratios(e, signs, windows, ramp)[0, joint]
            for _ in range(sweeps):
                for k in range(max(first - 1, 0), last + 2):
                    for row in range(3 * self.n + 1):
                        if not self._matters(e, row):
                            continue
                        signs[row, k] *= -1.0
                        other = direction * self.ratios(e, signs, windows, ramp)[0, joint]
                        if other > value:
                            value = other
                        else:
                            signs[row, k] *= -1.0
            best = max(best, value)
        return best

    def _matters(self, e, row):
        bounds = np.concatenate([e.position, e.velocity, e.torque_abs + e.torque_rel, [e.stamp]])
        return bounds[row] > 1e-8 or (row == 3 * self.n and e.stamp > 0.0)


class SmoothAttack(Attack):
    """A motion in closed form, so a torque with bounded rate; its effort is sampled, off by the delay."""

    def __init__(self, seed, n, link=False, **options):
        self.link = link
        super().__init__(seed, n, **options)

    def _simulate(self, switches, chatter, substeps, speed):
        n, theta = self.n, self.theta
        bodies = RotorBodies(self.true_kin, theta)
        fc, fv, beta = theta[10 * n : 11 * n], theta[11 * n : 12 * n], theta[13 * n :]
        wave = Wave(self.rng, n)
        wave.omega *= speed

        def torque(t):
            q, v, a = wave.state(t)[:3]
            behind, own = bodies.parts(q, v, a)
            if self.link:
                return behind + beta
            return behind + own + fc * np.clip(v / self.v_c, -1, 1) + fv * v + beta

        grid = np.linspace(self.t[0] - 0.01, self.t[-1] + 0.01, 1500)
        values = np.array([torque(t) for t in grid])
        self.rate = 1.02 * np.abs(np.diff(values, axis=0)).max(axis=0) / (grid[1] - grid[0])
        states = np.array([wave.state(t) for t in grid])
        self.acceleration, self.jerk = (np.abs(states[:, 2]).max(axis=0), 1.02 * np.abs(states[:, 3]).max(axis=0))
        self.q, self.qd = np.array([wave.state(t)[:2] for t in self.t]).swapaxes(0, 1)
        self.torque = np.array([torque(t) for t in switches])

    def errors(self, **changes):
        declared = {"effort": "sampled", "torque_rate": self.rate, "torque_source": "link" if self.link else "motor"}
        return super().errors(**(declared | changes))
