"""Base parameters and estimates of an arm: exact data, noise, outliers, consistency, what is known, closed chains."""

from __future__ import annotations

import numpy as np
import pinocchio as pin
import pytest
from arm_factory import random_arm
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.signal import lfilter

from safe_sysid.core.layout import ParameterLayout
from safe_sysid.dynamics import dynamics_of
from safe_sysid.identification.arm.base_parameters import base_parameters, parameter_words, random_states
from safe_sysid.identification.arm.estimates.consistent import LinkBoxes
from safe_sysid.identification.arm.estimates.estimate import ArmEstimate, ArmPrior, estimate
from safe_sysid.robot.model import Kinematics

pytestmark = pytest.mark.unproved

SEEDS = st.integers(0, 10**6)
few = settings(max_examples=5, deadline=None)


class Log:
    """A random arm in a random motion; torques are Pinocchio's own, exact."""

    def __init__(self, seed: int, n: int = 3, seconds: float = 10.0, speed: float = 1.0) -> None:
        self.rng = rng = np.random.default_rng(seed)
        self.kin, model, theta = random_arm(n, rng)
        self.layout = ParameterLayout(n)
        t = np.arange(0.0, seconds, 0.01)[:, None, None]
        rate, phase = speed * rng.uniform(1.0, 6.0, (n, 4)), rng.uniform(0.0, 6.0, (n, 4))
        size = rng.uniform(0.1, 0.6, (n, 4))
        self.q = (size * np.sin(rate * t + phase)).sum(axis=-1)
        self.qd = (size * rate * np.cos(rate * t + phase)).sum(axis=-1)
        self.qdd = -(size * rate**2 * np.sin(rate * t + phase)).sum(axis=-1)
        self.theta = theta.copy()
        fc, fv, ia, beta = self.layout.by_term(self.theta)
        data = model.createData()
        rigid = np.array([pin.rnea(model, data, *x) for x in zip(self.q, self.qd, self.qdd, strict=True)])
        friction = fc * np.sign(self.qd) + fv * self.qd + ia * self.qdd + beta
        self.torque = (rigid + friction).ravel()
        self.dynamics = dynamics_of(self.kin)
        self.regressor = self.dynamics.torque_regressor(self.q, self.qd, self.qdd).reshape(-1, self.layout.size)

    def noisy(self, size: float) -> np.ndarray:
        return self.torque + size * self.rng.normal(size=self.torque.size)

    def fit(self, torque: np.ndarray, known: ArmPrior | None = None, **options: object) -> ArmEstimate:
        return estimate(self.regressor, torque, self.layout, known=known, **options)

    def nominal(self, wrong: float = 0.2) -> np.ndarray:
        theta = self.theta.copy()
        for j in range(self.layout.n):
            theta[self.layout.link(j)] *= self.rng.uniform(1.0 - wrong, 1.0 + wrong)
        terms = self.layout.joint_terms
        theta[terms] *= self.rng.uniform(1.0 - wrong, 1.0 + wrong, 4 * self.layout.n)
        return theta


@given(SEEDS, st.integers(1, 5))
@few
def test_base_parameters_are_all_that_torques_depend_on(seed: int, n: int) -> None:
    kin, _, theta = random_arm(n, np.random.default_rng(seed), slides=0.3)
    regressor = random_states(n, dynamics_of(kin).torque_regressor)
    base = base_parameters(regressor)
    assert len(base) == np.linalg.matrix_rank(regressor / np.maximum(np.linalg.norm(regressor, axis=0), 1e-9))
    independent, dependent = regressor[:, base.independent], regressor[:, base.dependent]
    assert np.allclose(independent @ base.combination, dependent, rtol=0, atol=1e-9 * np.abs(regressor).max())
    values = base.values(theta)
    assert np.allclose(independent @ values, regressor @ theta, rtol=0, atol=1e-8 * np.abs(regressor @ theta).max())
    assert np.allclose(base.matrix @ theta, values, rtol=1e-12)
    other = base.parameters(values, np.random.default_rng(seed).normal(size=len(base.dependent)))
    assert np.allclose(base.values(other), values, rtol=0, atol=1e-9 * np.abs(values).max())


def test_base_parameters_have_the_names_of_a_textbook() -> None:
    # Two joints about z, 0.4 m apart, gravity along z: moments of inertia alone, and 0.16 m^2 of the second mass.
    kin = Kinematics.turning(
        np.tile(np.eye(3), (2, 1, 1)), np.array([[0.0, 0, 0], [0.4, 0, 0]]), np.tile([0.0, 0, 1], (2, 1)),
        np.array([0.0, 0, -9.81]),
    )  # fmt: skip
    base = base_parameters(random_states(2, dynamics_of(kin).torque_regressor))
    words = parameter_words(ParameterLayout(2), ["shoulder", "elbow"])
    names = base.names(words)
    assert len(base) == 11  # Fc, Fv, beta of both, mcx, mcy and Izz of link 2, Ia of the elbow, and this one:
    assert "Izz of link 1 + 0.16 m of link 2 + rotor inertia of shoulder" in names
    assert "mcx of link 2" in names
    assert {words[p] for p in base.unseen} >= {"m of link 1", "mcz of link 2", "Ixy of link 1"}


@pytest.mark.parametrize("method", ["ols", "wls", "sdp"])
@given(seed=SEEDS, n=st.integers(1, 5))
@few
def test_exact_data_give_base_parameters_to_one_in_a_million(method: str, seed: int, n: int) -> None:
    log = Log(seed, n)
    found = log.fit(log.torque, ArmPrior(log.nominal()), method=method)
    truth = found.base.values(log.theta)
    assert np.abs(found.values - truth).max() <= 1e-6 * np.abs(truth).max()
    assert np.abs(log.regressor @ found.theta - log.torque).max() <= 1e-6 * np.abs(log.torque).max()


@given(SEEDS, st.sampled_from([0.1, 3.0]), st.sampled_from([0.05, 1.0]))
@few
def test_estimates_are_always_a_real_arm(seed: int, noise: float, speed: float) -> None:
    log = Log(seed, 4, seconds=4.0, speed=speed)
    torque, prior = log.noisy(noise), ArmPrior(log.nominal())
    found = log.fit(torque, prior)
    assert found.consistent
    for j in range(4):
        body = pin.Inertia.FromDynamicParameters(found.theta[log.layout.link(j)])
        pin.PseudoInertia.FromInertia(body)
        assert body.mass > 0.0
        moments = np.linalg.eigvalsh(body.inertia)
        assert moments[0] > -1e-12
        assert moments[0] + moments[1] >= moments[2] * (1.0 - 1e-9)
    # No worse on the log than the drawing, and no better than what may be inconsistent.
    free = log.fit(torque, prior, method="wls")
    sigma = np.tile(free.sigma, len(torque) // 4)
    misfit = [np.sum(free.weights * ((log.regressor @ x.theta - torque) / sigma) ** 2) for x in (free, found)]
    assert misfit[0] <= misfit[1] * (1.0 + 1e-9)
    assert np.all(found.rms <= 1.05 * free.rms + 1e-9)
    assert free.weights.min() >= 0.0


def test_standard_errors_are_those_of_repeated_noise_also_where_it_is_coloured() -> None:
    log, spread, stated = Log(5, 3, seconds=20.0), [], []
    for _ in range(40):
        noise = lfilter([0.3], [1.0, -0.9], log.rng.normal(size=(len(log.q), 3)), axis=0).ravel()
        found = log.fit(log.torque + noise, method="wls")
        spread.append(found.values - found.base.values(log.theta))
        stated.append(found.standard_errors)
    ratio = np.std(spread, axis=0) / np.median(stated, axis=0)
    assert 0.6 < np.median(ratio) < 1.6, ratio
    assert ratio.max() < 2.5


def test_rows_of_a_collision_are_left_out() -> None:
    log = Log(8, 3)
    hit = log.noisy(0.1).reshape(-1, 3)
    hit[400:440] += 60.0
    plain, robust = (log.fit(hit.ravel(), method=method) for method in ("ols", "wls"))
    error = [np.sqrt(np.mean((log.regressor @ x.theta - log.torque) ** 2)) for x in (plain, robust)]
    assert error[1] < 0.05 < 1.0 < error[0]
    assert robust.weights.reshape(-1, 3)[400:440].max() == 0.0


def test_what_is_known_stays_and_friction_alone_is_found() -> None:
    log = Log(3, 4)
    torque, nominal = log.noisy(0.05), log.nominal(0.3)
    nominal[log.layout.links] = log.theta[log.layout.links]
    fixed = np.zeros(log.layout.size, bool)
    fixed[log.layout.links] = True
    found = log.fit(torque, ArmPrior(nominal, fixed))
    assert np.array_equal(found.theta[fixed], nominal[fixed])
    assert len(found.base) == 16
    assert np.all(np.abs(found.values - log.theta[found.base.independent]) < 6.0 * found.standard_errors)


def test_boxes_of_masses_and_centres_hold() -> None:
    log = Log(4, 3)
    boxes = LinkBoxes(np.array([[3.0, 3.1]] * 3), np.tile([-0.02, 0.02], (3, 3, 1)))
    found = log.fit(log.torque, ArmPrior(log.nominal(), boxes=boxes))
    links = found.theta[log.layout.links].reshape(3, 10)
    assert np.all((links[:, 0] >= 3.0 - 1e-6) & (links[:, 0] <= 3.1 + 1e-6))
    assert np.abs(links[:, 1:4]).max() <= 0.02 * 3.1 + 1e-6


def test_regularisation_pulls_towards_the_drawing() -> None:
    log = Log(6, 3, seconds=2.0, speed=0.2)
    torque, nominal = log.noisy(1.0), log.nominal(0.05)
    found = [log.fit(torque, ArmPrior(nominal, regularisation=g)).theta for g in (0.0, 30.0, 1e5)]
    distance = [np.abs(theta - nominal)[log.layout.links].max() for theta in found]
    assert distance[0] > distance[1] > distance[2]
    assert distance[2] < 0.02


def test_log_cholesky_and_the_semidefinite_program_fit_alike() -> None:
    log = Log(7, 2)
    torque, prior = log.noisy(0.5), ArmPrior(log.nominal(0.05))
    a, b = (log.fit(torque, prior, method=method) for method in ("sdp", "log_cholesky"))
    assert np.allclose(a.rms, b.rms, rtol=1e-3)


def test_fewer_rows_than_joints_as_of_closed_chains() -> None:
    log = Log(9, 3)
    # A transmission q2 = 0.5 q1: power is preserved, u = G^T tau.
    motion = np.array([[1.0, 0.0], [0.0, 1.0], [0.0, 0.5]])
    regressor = np.einsum("ja,kjp->kap", motion, log.regressor.reshape(-1, 3, log.layout.size))
    torque = (log.torque.reshape(-1, 3) @ motion).ravel()
    found = estimate(
        regressor.reshape(-1, log.layout.size), torque, log.layout, rows_per_sample=2, known=ArmPrior(log.nominal())
    )
    assert found.rms.shape == (2,)
    assert found.rms.max() < 1e-6
    assert found.consistent
