"""Certificates of arms whose rotors turn in moving links: columns, derivatives and bounds of the checker's own code."""

import dataclasses

import numpy as np
import pytest
from arm_factory import random_arm
from certificate_support import declaring, random_log, random_model, verdicts, write_chain
from identification_plant import geared
from test_certificates_regressors import Exact

from safe_sysid.dynamics import dynamics_of
from safe_sysid.identification.certificates.files.update import CertificateError
from safe_sysid.identification.certificates.interval_dynamics.arrays import exactly
from safe_sysid.identification.certificates.interval_dynamics.derivatives import derivatives_at
from safe_sysid.identification.certificates.interval_dynamics.link_bounds import LinkBounds
from safe_sysid.identification.certificates.interval_dynamics.regressors import (
    interval_kinematics,
    interval_momentum,
    interval_momentum_rate,
)
from safe_sysid.identification.equations.remainders import magnitudes, motion_bounds
from safe_sysid.robot.model import NO_MOTORS
from safe_sysid.robot.parameters import ParameterBox


def arm(n, seed, slides=0.0):
    rng = np.random.default_rng(seed)
    kin, _, theta = random_arm(n, rng, slides)
    return rng, geared(rng, kin), theta


class Spinning(Exact):
    """The energy that a spinning rotor has more than one that is stuck, from positions of its moving points alone."""

    def more(self, q, qd, m):
        mp, step, motors = self.mp, self.mp.mpf(10) ** -14, self.kin.motors
        carrier, driven = int(motors.carrier[m]), int(motors.joint[m])
        ratio = 1 / mp.mpf(float(motors.gear[m]))
        z = mp.matrix(motors.axis[m].tolist())
        z = z / mp.norm(z)
        k = mp.matrix([[0, -z[2], z[1]], [z[2], 0, -z[0]], [-z[1], z[0], 0]])
        # A ring about z of spin inertia 1 / ratio^2: the joint sees one of 1.
        second = (mp.eye(3) - z * z.T) / (2 * ratio**2)

        def rotor(t, spins):
            r, _ = self.frames([a + t * b for a, b in zip(q, qd, strict=True)])[carrier]
            angle = ratio * t * qd[driven] if spins else mp.mpf(0)
            return r * (mp.eye(3) + mp.sin(angle) * k + (1 - mp.cos(angle)) * k * k)

        energy = []
        for spins in (True, False):
            w = (rotor(step, spins) - rotor(-step, spins)) / (2 * step)
            moving = w * second * w.T
            energy.append((moving[0, 0] + moving[1, 1] + moving[2, 2]) / 2)
        return energy[0] - energy[1] - qd[driven] ** 2 / 2


@pytest.mark.parametrize(("n", "slides"), [(2, 0.0), (3, 0.0), (3, 0.5)])
def test_columns_enclose_the_energy_of_spinning_points_in_60_digits(n, slides):
    rng, kin, _ = arm(n, 10 + n, slides)
    exact = Spinning(kin)
    mp = exact.mp
    q, qd = rng.uniform(-3, 3, n), rng.uniform(-2, 2, n)
    bounds = [f(kin, q[None], q[None], qd[None], qd[None]) for f in (interval_momentum, interval_momentum_rate)]
    q, qd, h = [mp.mpf(float(x)) for x in q], [mp.mpf(float(x)) for x in qd], mp.mpf(10) ** -12
    for m in range(len(kin.motors.joint)):
        for i in range(n):
            unit = [h if k == i else mp.mpf(0) for k in range(n)]
            ends = [
                [exact.more([a + s * b * (1 - p) for a, b in zip(q, unit, strict=True)],
                            [a + s * b * p for a, b in zip(qd, unit, strict=True)], m) for s in (1, -1)]
                for p in (1, 0)
            ]  # fmt: skip
            for (a, b), (lower, upper) in zip(ends, bounds, strict=True):
                low, high = (mp.mpf(float(side[0, i, 10 * n + m])) for side in (lower, upper))
                assert low - mp.mpf("1e-20") <= (a - b) / (2 * h) <= high + mp.mpf("1e-20"), (m, i)
                assert high - low < 1e-10


def reaction(f, kin, q, qd, theta, own=True):
    """(n,) or (N, n): what motors on moving links add, without links and without ``diag(Ia)``."""
    n = len(kin.axis)
    plain = kin._replace(motors=NO_MOTORS)
    columns, without = (getattr(dynamics_of(x), f)(q, qd) for x in (kin, plain))
    columns = (columns - without)[..., 12 * n : 13 * n]
    if not own:
        columns[..., kin.motors.joint, kin.motors.joint] = 0.0
    return columns @ theta[12 * n : 13 * n]


@pytest.mark.parametrize("own", [True, False])
@pytest.mark.parametrize(("n", "slides"), [(2, 0.0), (5, 0.0), (8, 0.4)])
def test_derivatives_and_bounds_of_the_reaction_alone(n, slides, own):
    """Links without mass, which would hide a term that is missing; against differences, and the identifier's bounds."""
    rng, kin, theta = arm(n, 20 + n, slides)
    kin = kin._replace(gravity=np.zeros(3))
    theta[: 12 * n], theta[13 * n :] = 0.0, 0.0
    links, box = LinkBounds(kin, theta, theta, own), ParameterBox(theta, theta)
    facts = theta[np.r_[0 : 10 * n, 12 * n + kin.motors.joint]]
    low = np.where(kin.sliding, kin.travel[:, 0], -3.0)
    high = np.where(kin.sliding, kin.travel[:, 1], 3.0)
    for _ in range(20):
        q, qd = rng.uniform(low, high), rng.uniform(-2, 2, n)
        d = derivatives_at(
            interval_kinematics(kin, own), exactly(q[None]).stacked(), exactly(qd[None]).stacked(),
            np.stack([facts, facts], axis=-1), True, True, False,
        )  # fmt: skip
        step = 1e-5
        for j, e in enumerate(np.eye(n) * step):
            for f, by_q, by_qd in (
                ("momentum_regressor", d.p_q, d.p_qd), ("momentum_rate_regressor", d.f_q, d.f_qd),
            ):  # fmt: skip
                for found, a, b in ((by_q, e, 0 * e), (by_qd, 0 * e, e)):
                    slope = (reaction(f, kin, q + a, qd + b, theta, own)
                             - reaction(f, kin, q - a, qd - b, theta, own)) / (2 * step)  # fmt: skip
                    np.testing.assert_allclose(found[0, :, j], np.abs(slope), rtol=1e-5, atol=1e-6)
        v, x, y = np.abs(qd), rng.uniform(0, 0.3, n), rng.uniform(0, 0.3, n)
        b, theirs = links.over(v[None], x[None], y[None]), np.empty((6, n))
        motion_bounds(magnitudes(kin, box, own), v, x, y, x, y, theirs)
        for ours, other in zip((b.p0, b.p1, b.p2, b.f0, b.f1, b.f2), theirs, strict=True):
            np.testing.assert_allclose(ours[0], other, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize(("n", "link"), [(3, False), (4, True)])
def test_chains_pass_and_say_which_motors_they_are_for(n, link, tmp_path):
    rng = np.random.default_rng(30 + n)
    model, theta = random_model(rng, n)
    model = declaring(model, torque_source="link" if link else "motor")
    model = dataclasses.replace(model, kinematics=geared(rng, model.kinematics))
    data = random_log(rng, model, theta, 0.8)
    paths, box = write_chain(tmp_path, model, data, 400)
    assert len(paths) == 3
    assert np.all((box.payload_lower <= theta[box.layout.payload]) & (theta[box.layout.payload] <= box.payload_upper))
    found = verdicts(model, paths, data)
    assert [v.reason for v in found] == [None] * 3
    gear = model.kinematics.motors.gear * (1.0 + 1e-6)
    other = model.kinematics._replace(motors=model.kinematics.motors._replace(gear=gear))
    with pytest.raises(CertificateError, match=r"another robot.*motor\.gear"):
        verdicts(dataclasses.replace(model, kinematics=other), paths, data)
