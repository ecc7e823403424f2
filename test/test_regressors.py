"""Laws of the regressors on random arms, against Pinocchio, to 1e-9 relative."""

import numpy as np
import pinocchio as pin
import pytest
from arm_factory import mass_matrix, random_arm

from safe_sysid.dynamics import dynamics_of
from safe_sysid.robot.frames import forward_kinematics

#: Chance of a joint to be prismatic, by seed.
SLIDES = (0.0, 0.5, 1.0)
ARMS = [(n, seed) for n in range(1, 10) for seed in range(3)]


def close(value: np.ndarray, expected: np.ndarray, scale: float = 1.0) -> None:
    size = max(float(np.max(np.abs(expected))), scale)
    np.testing.assert_allclose(value, expected, rtol=0.0, atol=1e-9 * size)


def friction(theta: np.ndarray, n: int, qd: np.ndarray) -> np.ndarray:
    fc, fv, _, beta = theta[10 * n :].reshape(4, n)
    return fc * np.sign(qd) + fv * qd + beta


@pytest.mark.parametrize(("n", "seed"), ARMS)
def test_regressors_times_parameters_equal_pinocchio(n: int, seed: int) -> None:
    rng = np.random.default_rng(100 * n + seed)
    kin, model, theta = random_arm(n, rng, SLIDES[seed])
    data = model.createData()
    rotor = theta[12 * n : 13 * n]
    q, qd, qd_a, qdd = rng.uniform(-3, 3, (4, n))
    inertia = mass_matrix(model, q) + np.diag(rotor)
    coriolis = pin.computeCoriolisMatrix(model, data, q, qd).copy()
    gravity = pin.computeGeneralizedGravity(model, data, q).copy()

    torque = pin.rnea(model, data, q, qd, qdd) + rotor * qdd + friction(theta, n, qd)
    close(dynamics_of(kin).torque_regressor(q, qd, qdd) @ theta, torque)
    close(dynamics_of(kin).momentum_regressor(q, qd) @ theta, inertia @ qd)
    close(dynamics_of(kin).momentum_rate_regressor(q, qd) @ theta, coriolis.T @ qd - gravity - friction(theta, n, qd))
    # Christoffel's C by polarisation of Pinocchio's torque: independent of its choice of factorisation.
    z = np.zeros(n)

    def bias(x: np.ndarray) -> np.ndarray:
        return pin.rnea(model, data, q, x, z) - gravity

    christoffel = 0.5 * (bias(qd + qd_a) - bias(qd) - bias(qd_a))
    expected = inertia @ qdd + christoffel + gravity + friction(theta, n, qd_a)
    close(dynamics_of(kin).slotine_li_regressor(q, qd, qd_a, qdd) @ theta, expected)


@pytest.mark.parametrize(("n", "seed"), ARMS)
def test_derivative_of_momentum_minus_rate_is_torque(n: int, seed: int) -> None:
    rng = np.random.default_rng(7000 + 100 * n + seed)
    kin, _, _ = random_arm(n, rng, SLIDES[seed])
    q, qd, qdd = rng.uniform(-2, 2, (3, n))
    h = 1e-3
    t = np.array([-2, -1, 1, 2])[:, None] * h
    w_m = dynamics_of(kin).momentum_regressor(q + qd * t + 0.5 * qdd * t * t, qd + qdd * t)
    rate = (w_m[0] - 8 * w_m[1] + 8 * w_m[2] - w_m[3]) / (12 * h)
    left = rate - dynamics_of(kin).momentum_rate_regressor(q, qd)
    right = dynamics_of(kin).torque_regressor(q, qd, qdd)
    np.testing.assert_allclose(left, right, rtol=0, atol=1e-6 * np.max(np.abs(right)))


@pytest.mark.parametrize("n", [1, 4, 9])
def test_batches_equal_single_evaluations(n: int) -> None:
    rng = np.random.default_rng(n)
    kin, model, _ = random_arm(n, rng, 0.4)
    q, qd, qd_a, qdd = rng.uniform(-2, 2, (4, 5, n))
    batch = dynamics_of(kin).slotine_li_regressor(q, qd, qd_a, qdd, 0.01)
    rate = dynamics_of(kin).momentum_rate_regressor(q, qd, 0.01)
    rotation, origin = forward_kinematics(kin, q)
    data = model.createData()
    for i in range(5):
        alone = dynamics_of(kin).slotine_li_regressor(q[i], qd[i], qd_a[i], qdd[i], 0.01)
        np.testing.assert_array_equal(batch[i], alone)
        np.testing.assert_array_equal(rate[i], dynamics_of(kin).momentum_rate_regressor(q[i], qd[i], 0.01))
        pin.forwardKinematics(model, data, q[i])
        for j in range(n):
            np.testing.assert_allclose(rotation[i, j], data.oMi[j + 1].rotation, atol=1e-12)
            np.testing.assert_allclose(origin[i, j], data.oMi[j + 1].translation, atol=1e-12)
