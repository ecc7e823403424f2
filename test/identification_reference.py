"""Rows and slacks again, straight from the formulas in plain Python: slow, no kernels, one row at a time.

Shares with the code under test only the regressors and link norms of ``safe_sysid.robot``. Leibniz bounds are summed
term by term, without cumulative sums.
"""

from __future__ import annotations

import functools

import numpy as np

from safe_sysid.dynamics import dynamics_of
from safe_sysid.dynamics.magnitudes import link_norms


class Leibniz:
    """Terms ``a[l, max(i, k, m, ..)] v_k x_m ..`` summed over all joints and links, with nested loops."""

    def __init__(self, kin, box):
        norms = link_norms(kin, box.lower, box.upper)
        self.a, self.b = (np.maximum.accumulate(x[:, ::-1], axis=1)[:, ::-1] for x in (norms.a, norms.b))
        self.g = float(np.linalg.norm(kin.gravity))
        self.n = box.n

    def total(self, norms, start, *factors):
        """``sum_{k, m, ..} norms[l, max(start, k, m, ..)] f_k g_m ..`` for every link l."""
        if not factors:
            return norms[:, start]
        out = 0.0
        for k in range(self.n):
            if factors[0][k]:
                out = out + factors[0][k] * self.total(norms, max(start, k), *factors[1:])
        return out if np.ndim(out) else np.zeros(len(norms))

    def c(self, i, v, x, y):
        return self.total(self.a, i, v, x) + self.total(self.a, i, y)

    def e(self, i, v, x, y, x2, y2):
        s = self.total
        return s(self.a, i, v, x, x2) + s(self.a, i, y, x2) + s(self.a, i, y2, x)

    def p0(self, v):
        return np.array([sum(self.total(self.a, i) * self.total(self.a, 0, v)) for i in range(self.n)])

    def f0(self, v):
        s = self.total
        return np.array([
            sum(s(self.a, i, v) * s(self.a, 0, v) + self.g * s(self.b, i)) for i in range(self.n)
        ])  # fmt: skip

    def p1(self, v, x, y):
        s = self.total
        return np.array([
            sum(s(self.a, i, x) * s(self.a, 0, v) + s(self.a, i) * self.c(0, v, x, y)) for i in range(self.n)
        ])  # fmt: skip

    def f1(self, v, x, y):
        s = self.total
        return np.array([
            sum(
                self.c(i, v, x, y) * s(self.a, 0, v)
                + s(self.a, i, v) * self.c(0, v, x, y)
                + self.g * s(self.b, i, x)
            )
            for i in range(self.n)
        ])  # fmt: skip

    def p2(self, v, x, y, x2, y2):
        s = self.total
        return np.array([
            sum(
                s(self.a, i, x, x2) * s(self.a, 0, v)
                + s(self.a, i, x) * self.c(0, v, x2, y2)
                + s(self.a, i, x2) * self.c(0, v, x, y)
                + s(self.a, i) * self.e(0, v, x, y, x2, y2)
            )
            for i in range(self.n)
        ])  # fmt: skip

    def f2(self, v, x, y, x2, y2):
        s = self.total
        return np.array([
            sum(
                self.e(i, v, x, y, x2, y2) * s(self.a, 0, v)
                + self.c(i, v, x, y) * self.c(0, v, x2, y2)
                + self.c(i, v, x2, y2) * self.c(0, v, x, y)
                + s(self.a, i, v) * self.e(0, v, x, y, x2, y2)
                + self.g * s(self.b, i, x, x2)
            )
            for i in range(self.n)
        ])  # fmt: skip


class Derivatives:
    """Bounds of derivatives at one state; derivatives by trigonometric interpolation."""

    def __init__(self, kin, box, q, qd):
        n = box.n
        inertial = slice(0, 10 * n)
        mid, rad = box.mid[inertial], box.rad[inertial]

        def bound(d):
            return np.abs(d @ mid) + np.abs(d) @ rad

        def slope(g, j):
            # Degree two in q_j: five samples determine a0 + a1 cos + b1 sin + a2 cos 2 + b2 sin 2; b1 + 2 b2 is wanted.
            angles = 2.0 * np.pi * np.arange(5) / 5
            samples = np.array([g(q + a * np.eye(n)[j])[:, inertial] for a in angles])
            basis = np.stack([angles * 0 + 1, np.cos(angles), np.sin(angles), np.cos(2 * angles), np.sin(2 * angles)])
            coefficients = np.einsum("ab,bij->aij", np.linalg.inv(basis.T), samples)
            return coefficients[2] + 2.0 * coefficients[4]

        self.q, self.qd = q, qd
        columns = [[], [], [], []]
        for j in range(n):
            unit = np.eye(n)[j]
            columns[0].append(bound(slope(lambda x: dynamics_of(kin).momentum_regressor(x, qd), j)))
            columns[1].append(bound(dynamics_of(kin).momentum_regressor(q, unit)[:, inertial]))
            columns[2].append(bound(slope(lambda x: dynamics_of(kin).momentum_rate_regressor(x, qd), j)))
            up, down = (dynamics_of(kin).momentum_rate_regressor(q, qd + s * unit)[:, inertial] for s in (1, -1))
            columns[3].append(bound(0.5 * (up - down)))
        self.p_q, self.p_qd, self.f_q, self.f_qd = (np.stack(c, axis=1) for c in columns)
        gravity = [
            bound(dynamics_of(kin._replace(gravity=unit)).momentum_rate_regressor(q, 0 * qd)[:, inertial])
            for unit in np.eye(3)
        ]
        self.f_g = np.linalg.norm(gravity, axis=0)

    def first(self, leibniz, which, x, y):
        """``Df`` or ``Dp`` along (x, y)."""
        v = np.abs(self.qd)
        if which == "f":
            return np.minimum(leibniz.f1(v, x, y), self.f_q @ x + self.f_qd @ y)
        return np.minimum(leibniz.p1(v, x, y), self.p_q @ x + self.p_qd @ y)


def torque_interval(measured, e):
    a, b = e.torque_abs + e.torque_drift, e.torque_rel
    ends = []
    for bias in (-e.torque_bias, e.torque_bias):
        x = measured - bias
        tops = [np.where(x + a >= 0, (x + a) / (1 - b), (x + a) / (1 + b))]
        bottoms = [np.where(x - a <= 0, (x - a) / (1 - b), (x - a) / (1 + b))]
        if e.torque_source == "command":
            tops.append(x + a + b * np.abs(x))
            bottoms.append(x - a - b * np.abs(x))
        ends.append((np.min(bottoms, axis=0) + bias, np.max(tops, axis=0) + bias))
    lower, upper = np.minimum(ends[0][0], ends[1][0]), np.maximum(ends[0][1], ends[1][1])
    return 0.5 * (lower + upper), 0.5 * (upper - lower)


def reference_rows(kin, box, e, data):
    """The function of a window (first, last, ramp) that gives its matrix (n, 14 n), target (n,) and parts (n, 10)."""
    n = box.n
    inertial = slice(0, 10 * n)
    mid, rad = box.mid[inertial], box.rad[inertial]
    leibniz = Leibniz(kin, box)
    seen = 0.0 if e.torque_source == "link" else 1.0
    big = np.maximum(np.abs(box.lower), np.abs(box.upper))
    fc, fv, ia = (seen * big[(10 + i) * n : (11 + i) * n] for i in range(3))
    fc_mid, fc_rad = (seen * x[10 * n : 11 * n] for x in (box.mid, box.rad))
    offset_lower, offset_upper = box.lower[13 * n :], box.upper[13 * n :]
    if e.torque_source == "link":
        offset_lower, offset_upper = np.minimum(offset_lower, 0.0), np.maximum(offset_upper, 0.0)
    beta_mid = 0.5 * (offset_lower + offset_upper)
    beta_rad = 0.5 * (offset_upper - offset_lower) + e.torque_bias
    gamma = np.linalg.norm(kin.gravity) * (e.gravity_relative + (1 + e.gravity_relative) * e.gravity_angle)
    dq, dv, zero = e.position, e.velocity, np.zeros(n)
    t, q, qd = data.stamps, data.q, data.qd
    middle, half = torque_interval(data.effort, e)

    def times(k):
        h, sigma = t[k + 1] - t[k], e.stamp + 2.0**-52 * abs(t[k + 1])
        return h, sigma, h + 2 * sigma, 2 * sigma / h

    def velocities(k, delta, both, acc, chord):
        """Mean velocity, its error, sign; mean by velocities alone and its error. ``both``: of the change delta."""
        h, _, longest, ratio = times(k)
        by_q, by_v = delta / h, 0.5 * (qd[k] + qd[k + 1])
        rho_q = both / h + (np.abs(by_q) + both / h) * ratio / (1 - ratio)
        rho_v = np.minimum(0.25 * acc * longest, chord)
        if e.jerk is not None:
            rho_v = np.minimum(rho_v, e.jerk * longest**2 / 12)
        rho_v = rho_v + dv
        use = rho_q <= rho_v
        u, rho = np.where(use, by_q, by_v), np.where(use, rho_q, rho_v)
        reach = 0.5 * acc * longest
        sign = np.where(
            np.abs(u) - rho - reach > e.transition,
            np.sign(u),
            np.where(np.abs(by_v) - dv - reach > e.transition, np.sign(by_v), 0.0),
        )
        return u, rho, sign, by_v, rho_v

    @functools.cache
    def bounds_of(k):
        """Of the acceleration, and of the mean velocity less that of the ends."""
        _, _, longest, ratio = times(k)
        acc, chord = e.acceleration, np.full(n, np.inf)
        mean = (np.abs(qd[k + 1] - qd[k]) + 2 * dv) / ((t[k + 1] - t[k]) * (1 - ratio))
        if e.jerk is not None:
            acc = np.minimum(acc, mean + 0.5 * e.jerk * longest)
        if e.torque_source != "link" and e.effort == "held" and e.torque_delay + e.torque_jitter == 0:
            u, rho, sign, *_ = velocities(k, q[k + 1] - q[k], 2 * dq, acc, chord)
            least, speed = box.lower[12 * n : 13 * n], np.abs(u) + rho

            def over(force):
                return np.sqrt(np.sum(force**2 / least) / least)

            loose, acc = over(half[k + 1] + np.where(sign == 0.0, fc, 0.0)), np.array(acc)
            for _ in range(2):
                v = speed + 0.5 * acc * longest
                force = (1 + e.gravity_relative) * leibniz.f1(v, v, acc) + fv * acc + leibniz.p2(v, v, acc, v, acc)
                force = force + leibniz.p1(v, acc, zero) + leibniz.p1(loose, v, zero)
                acc = np.minimum(acc, mean + 0.5 * longest * over(force) + 2 * loose)
                chord = np.minimum(chord, longest * (longest * over(force) / 12 + loose / 4))
        return acc, chord

    @functools.cache
    def ridden(k):
        """Change of position by velocities, and its error."""
        h, sigma, longest, _ = times(k)
        *_, by_v, rho_v = velocities(k, q[k + 1] - q[k], 2 * dq, *bounds_of(k))
        return h * by_v, longest * rho_v + 2 * sigma * np.abs(by_v)

    @functools.cache
    def tied(k):
        """Position of a sample and its error, by all readings of up to 48 samples before."""
        if not np.any(dq > 0):
            return q[k], dq
        at, off = np.empty(n), np.empty(n)
        for j in range(n):
            low, high = q[k][j] - dq[j], q[k][j] + dq[j]
            moved, loose = 0.0, dq[j]
            for i in range(k - 1, max(k - 49, -1), -1):
                ride, error = ridden(i)
                moved, loose = moved + ride[j], loose + error[j]
                reading = q[i][j] + moved
                if max(low, reading - loose) > min(high, reading + loose):
                    break
                low, high = max(low, reading - loose), min(high, reading + loose)
            at[j], off[j] = 0.5 * (low + high), 0.5 * (high - low)
        return at, off

    @functools.cache
    def step(k):
        s = {}
        h, _, longest, _ = times(k)
        (before, off_before), (after, off_after) = tied(k), tied(k + 1)
        delta, c, both = after - before, 0.5 * (before + after), off_before + off_after
        by_q, acc = delta / h, bounds_of(k)[0]
        u, rho, sign, *_ = velocities(k, delta, both, *bounds_of(k))
        w = 0.5 * acc * longest + rho
        v = np.abs(u) + w
        x, x1 = 0.5 * v * longest + 0.5 * both, acc * longest**2 / 12 + 0.5 * both
        tau, noise = middle[k + 1], half[k + 1]
        loose = noise
        if e.effort == "sampled":
            tau, noise = 0.5 * (middle[k] + middle[k + 1]), 0.5 * (half[k] + half[k + 1])
            loose = noise + e.torque_rate * (longest / 4 + e.torque_delay + e.torque_jitter)
        at = Derivatives(kin, box, c, u)
        f = dynamics_of(kin).momentum_rate_regressor(c, u)[:, inertial]
        far_f, far_p = leibniz.f2(v, x, w, x, w), leibniz.p2(v, x, w, x, w)
        s.update(h=h, delta=delta, c=c, by_q=by_q, sign=sign, tau=tau, noise=noise, loose=loose, f=f, acc=acc)
        s["p"] = dynamics_of(kin).momentum_regressor(c, by_q)[:, inertial]
        s["rate"] = at.first(leibniz, "f", x1, rho) + 0.5 * far_f
        s["slope"] = longest**2 / 12 * at.first(leibniz, "f", v, acc) + longest / 8 * far_f
        s["ramp"] = at.first(leibniz, "p", x1, zero) + 0.5 * far_p
        more = np.maximum(off_before, off_after)
        s["shift"] = at.first(leibniz, "p", zero, more) + ia * more
        turned = leibniz.f1(zero, x1, zero) + 0.5 * leibniz.f2(zero, x, zero, x, zero)
        s["gravity"] = gamma * np.minimum(leibniz.f0(zero) / leibniz.g, at.f_g + turned / leibniz.g)
        s["x_mid"] = tau + f @ mid - beta_mid - sign * fc_mid
        unknown = np.where(sign == 0, fc, fc_rad)
        s["size"] = np.abs(s["x_mid"]) + np.abs(f) @ rad + loose + beta_rad + unknown
        s["torques"] = np.abs(tau) + loose + leibniz.f0(v) + fc + fv * v + np.abs(beta_mid) + beta_rad
        return s

    @functools.cache
    def end(k):
        at, off = tied(k)
        value = Derivatives(kin, box, at, qd[k]).first(leibniz, "p", off, dv)
        value = value + 0.5 * leibniz.p2(np.abs(qd[k]) + dv, off, dv, off, dv) + ia * dv
        p = dynamics_of(kin).momentum_regressor(at, qd[k])[:, inertial]
        momentum = np.abs(p @ mid) + np.abs(p) @ rad + ia * np.abs(qd[k]) + value
        momenta = leibniz.p0(np.abs(qd[k]) + dv) + ia * (np.abs(qd[k]) + dv)
        return value, momentum, momenta

    def row(first, last, ramp):
        def phi(k):
            if ramp <= 0:
                return 1.0
            rise = min(ramp, 0.5 * (t[last] - t[first]))
            return min(min(t[k] - t[first], t[last] - t[k]) / rise, 1.0)

        steps = {k: step(k) for k in range(first, last)}
        sigma = e.stamp + 2.0**-52 * abs(t[last])
        p, s = dict.fromkeys(range(first - 1, last + 1), 0.0), dict.fromkeys(range(first - 1, last + 1), 0.0)
        for k in range(first, last):
            p[k], s[k] = 0.5 * (phi(k) + phi(k + 1)), (phi(k + 1) - phi(k)) / steps[k]["h"]
        deviation = sigma * sum(abs(s[k] - s[k - 1]) for k in range(first, last + 1))
        matrix, target, parts = np.zeros((n, 14 * n)), np.zeros(n), np.zeros((n, 10))
        joint = np.arange(n)
        variation = phi(first) + phi(last)
        ends = tied(first)[1] + tied(last)[1]
        by_velocities = (sum(ridden(k)[1] for k in range(first, last)) < ends) & (ramp <= 0)
        for k in range(first, last):
            d = steps[k]
            h = d["h"]
            longest = h + 2 * sigma
            area, rise = p[k] * h, s[k] * h
            wide, turn = (p[k] + deviation) * longest, abs(rise) * longest / h
            variation += turn
            matrix[:, inertial] -= area * d["f"] + rise * d["p"]
            matrix[joint, 10 * n + joint] += seen * area * d["sign"]
            matrix[joint, 11 * n + joint] += seen * p[k] * np.where(by_velocities, ridden(k)[0], d["delta"])
            matrix[joint, 12 * n + joint] -= seen * s[k] * d["delta"]
            matrix[joint, 13 * n + joint] += area
            target += area * d["tau"]
            parts[:, 0] += area * (d["noise"] - e.torque_drift)
            parts[:, 1] += area * e.torque_drift
            parts[:, 3] += area * fc * (d["sign"] == 0)
            parts[:, 4] += wide * d["rate"] + turn * d["slope"]
            if e.effort == "sampled":
                parts[:, 2] += wide * e.torque_rate * (e.torque_delay + e.torque_jitter)
                parts[:, 4] += e.torque_rate * (wide * longest / 4 + turn * longest**2 / 12)
            parts[:, 5] += turn * d["ramp"]
            parts[:, 6] += fv * turn * d["acc"] * longest**2 / 12
            parts[:, 7] += wide * d["gravity"]
            parts[:, 8] += deviation * (longest * d["size"] + fv * (np.abs(d["delta"]) + tied(k)[1] + tied(k + 1)[1]))
            parts[:, 9] += area * d["torques"]
            if rise:
                parts[:, 9] += turn * (end(k)[2] + end(k + 1)[2])
        for k in range(first, last + 1):
            inside = [steps[i] for i in (k - 1, k) if i in steps]
            largest = {name: np.max([d[name] for d in inside], axis=0) for name in ("shift", "size")}
            parts[:, 6] += fv * np.where(by_velocities, 0.0, tied(k)[1] * abs(p[k] - p[k - 1]))
            if k < last:
                parts[:, 6] += fv * np.where(by_velocities, p[k] * ridden(k)[1], 0.0)
            parts[:, 8] += sigma * abs(p[k] - p[k - 1]) * largest["size"]
            if ramp > 0:
                parts[:, 5] += abs(s[k] - s[k - 1]) * largest["shift"]
            if first < k < last:
                before, after = inside
                jump = np.abs(after["sign"] - before["sign"])
                change = np.abs(
                    after["tau"] - before["tau"] + (after["f"] - before["f"]) @ mid
                    - (after["sign"] - before["sign"]) * fc_mid
                )  # fmt: skip
                change += np.abs(after["f"] - before["f"]) @ rad + after["loose"] + before["loose"] + jump * fc_rad
                change += ((after["sign"] == 0) * 1.0 + (before["sign"] == 0)) * fc
                parts[:, 8] += sigma * min(p[k], p[k - 1]) * change
                if ramp > 0:
                    twist = leibniz.p1(tied(k)[1], np.abs(after["c"] - before["c"]), zero)
                    parts[:, 5] += min(abs(s[k]), abs(s[k - 1])) * twist
        for k, sign in ((last, 1.0), (first, -1.0)):
            value, momentum, momenta = end(k)
            matrix[:, inertial] += sign * phi(k) * dynamics_of(kin).momentum_regressor(tied(k)[0], qd[k])[:, inertial]
            matrix[joint, 12 * n + joint] += seen * sign * phi(k) * qd[k]
            parts[:, 5] += phi(k) * value
            parts[:, 9] += phi(k) * momenta
            if k == last:
                parts[:, 8] += deviation * momentum
        parts[:, 9] = 1e-10 * (parts[:, 9] + np.abs(target))
        beside = e.torque_delay + e.torque_jitter
        if e.effort == "held" and beside > 0:
            need = beside + 2 * sigma
            low = max(k for k in range(first + 1) if t[first] - t[k] >= need)
            high = min(k for k in range(last, len(t)) if t[k] - t[last] >= need)
            tau, noise = middle[low + 1 : high + 1], half[low + 1 : high + 1]
            k = np.arange(low, high)
            near = np.ones(len(k), bool)
            if ramp <= 0:
                inner_high = min([j for j in range(first, last) if t[j] - t[first] >= need], default=last)
                inner_low = max([j for j in range(first + 1, last + 1) if t[last] - t[j] >= need], default=first)
                near = (k < inner_high) | (k >= inner_low)
            spread = np.max((tau + noise)[near], axis=0) - np.min((tau - noise)[near], axis=0)
            jumps = np.sum(np.abs(np.diff(tau, axis=0)) + noise[1:] + noise[:-1], axis=0)
            parts[:, 2] = (
                e.torque_delay * (0.5 * variation + deviation) * spread + e.torque_jitter * (1 + deviation) * jumps
            )
        return matrix, target, parts

    return row
