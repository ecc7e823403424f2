"""Regression with the LIP kernel: an arm's torques, energies, mass matrix and gravity, against Pinocchio's."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import numpy as np
import pinocchio as pin
import pytest
from arm_factory import random_arm
from scipy.stats import norm

from safe_sysid.errors import ParameterError
from safe_sysid.learning.gaussian_process import factor as factors
from safe_sysid.learning.gaussian_process.kernels import lip_kernel
from safe_sysid.learning.gaussian_process.motions import MotionSamples
from safe_sysid.learning.gaussian_process.regression import TorqueProcess, Units, informative, likelihood_gradient
from safe_sysid.learning.gaussian_process.training import TrainingOptions, train

pytestmark = pytest.mark.unproved


def drawn(rng, samples, slides):
    q = rng.uniform(-2.0, 2.0, (samples, len(slides))) * np.where(slides, 0.3, 1.0)
    return MotionSamples(q, *rng.uniform(-2.0, 2.0, (2, samples, len(slides))), slides)


@cache
def arm(seed=5, n=3):
    """A chain with random axes, one of them sliding, its torques by Pinocchio, without rotors and friction."""
    while True:
        _, model, _ = random_arm(n, np.random.default_rng(seed), 0.4)
        slides = [joint.shortname().startswith("JointModelP") for joint in model.joints[1:]]
        if any(slides) and not all(slides):
            model.armature[:] = 0.0
            return model, slides
        seed += 1


def torque_of(model, x):
    data = model.createData()
    return np.array([pin.rnea(model, data, *at) for at in zip(x.q, x.qd, x.qdd, strict=True)])


@cache
def learned(samples=90):
    rng = np.random.default_rng(0)
    model, slides = arm()
    x = drawn(rng, samples, slides)
    torque = torque_of(model, x) + 1e-3 * rng.normal(size=(samples, model.nv))
    how = TrainingOptions(epochs=60, batch=45, rate=0.05, last=1.0)
    return model, slides, x, torque, train(lip_kernel(model.nv), x, torque, how)


def test_torques_of_an_arm_are_learned_where_no_sample_was():
    model, slides, _, _, process = learned()
    far = drawn(np.random.default_rng(1), 200, slides)
    want = torque_of(model, far)
    error = process.predict(far) - want
    assert np.all(np.mean(error**2, axis=0) < 1e-3 * np.var(want, axis=0))


@pytest.mark.parametrize("seed", range(6))
def test_torques_of_every_chain_are_in_the_kernel(seed):
    """Random axes, joints that turn or slide, rotors: with enough samples and no noise nothing is left."""
    rng = np.random.default_rng(seed)
    _, model, _ = random_arm(2 + seed % 2, rng, 0.4)
    slides = [joint.shortname().startswith("JointModelP") for joint in model.joints[1:]]
    x, far = drawn(rng, 250, slides), drawn(rng, 50, slides)
    torque, kernel = torque_of(model, x), lip_kernel(model.nv)
    quiet = np.full(model.nv, np.log(1e-10))
    error = TorqueProcess(kernel, kernel.start(x), quiet, x, torque, Units.of(x, torque)).predict(far)
    error -= torque_of(model, far)
    assert np.all(np.abs(error) < 2e-5 * np.max(np.abs(torque), axis=0))


def test_deviations_are_those_of_the_errors():
    model, slides, _, _, process = learned()
    far = drawn(np.random.default_rng(2), 300, slides)
    error = process.predict(far) - torque_of(model, far)
    covariance = process.covariance(far)
    assert np.allclose(covariance, np.swapaxes(covariance, 1, 2), atol=1e-12 * np.max(covariance))
    assert np.min(np.linalg.eigvalsh(covariance)) > -1e-9 * np.max(covariance)
    inside = np.abs(error) <= 1.96 * np.sqrt(np.einsum("rjj->rj", covariance))
    assert 0.85 < np.mean(inside) <= 1.0
    scale = np.sqrt(np.einsum("rjj->rj", covariance) + process.noise**2)
    wanted = np.mean(norm.logpdf(torque_of(model, far), process.predict(far), scale))
    assert process.log_density(far, torque_of(model, far)) == pytest.approx(wanted, rel=1e-12)


def test_energies_mass_matrix_and_gravity_need_no_labels():
    model, slides, _, _, process = learned()
    data, x = model.createData(), drawn(np.random.default_rng(3), 60, slides)
    energies = process.energies(x)
    kinetic = np.array([pin.computeKineticEnergy(model, data, q, v) for q, v in zip(x.q, x.qd, strict=True)])
    place = np.array([pin.computePotentialEnergy(model, data, q) for q in x.q])
    offset = np.mean(energies.mean[1] - place)  # torques do not tell the origin of the potential
    assert np.std(energies.mean[0] - kinetic) < 0.02 * np.std(kinetic)
    assert np.std(energies.mean[1] - place - offset) < 0.02 * np.std(place)
    assert np.all(energies.deviation[0] < 0.2 * np.std(kinetic))
    mass = pin.crba(model, data, x.q[0])
    mass = np.triu(mass) + np.triu(mass, 1).T
    assert np.allclose(process.mass_matrix(x.q[0]), mass, atol=0.02 * np.max(mass))
    gravity = pin.computeGeneralizedGravity(model, data, x.q[0])
    assert np.allclose(process.gravity(x.q[:1])[0], gravity, atol=0.02 * np.max(np.abs(gravity)))


def test_prediction_and_covariance_are_the_textbooks():
    rng = np.random.default_rng(4)
    slides = [False, True]
    kernel, x, far = (lip_kernel(2, friction=True, residual=True), drawn(rng, 8, slides), drawn(rng, 70, slides))
    log, noise, torque = 0.3 * rng.normal(size=kernel.count), np.log([0.3, 0.2]), rng.normal(size=(8, 2))
    process = TorqueProcess(kernel, log, noise, x, torque)
    c = kernel.matrix(log, x, x) + np.diag(np.tile(np.exp(noise), 8))
    cross = kernel.matrix(log, far, x)
    assert np.allclose(process.predict(far).ravel(), cross @ np.linalg.solve(c, torque.ravel()))
    want = kernel.matrix(log, far, far) - cross @ np.linalg.solve(c, cross.T)
    assert np.allclose(process.covariance(far), np.einsum("rarb->rab", want.reshape(70, 2, 70, 2)), atol=1e-8)
    assert np.allclose(process.noise, np.sqrt([0.3, 0.2]))


def test_units_change_nothing_but_the_numbers_inside():
    rng = np.random.default_rng(5)
    x, far, n = drawn(rng, 10, [False, False]), drawn(rng, 5, [False, False]), 2
    kernel, torque, units = lip_kernel(n), rng.normal(size=(10, n)), Units(3.0, 0.5)
    log, noise = 0.2 * rng.normal(size=kernel.count), np.log([0.1, 0.2])
    # tau = torque_unit * tau'; T and V scale with the torque, velocities with 1 / time_unit.
    same = log.copy()
    same[2:4] += 2.0 * np.log(units.torque * units.time**2)  # of every link
    same[4:6] += 2.0 * np.log(units.torque)
    inside = TorqueProcess(kernel, log, noise, x, torque, units)
    outside = TorqueProcess(kernel, same, noise + 2.0 * np.log(units.torque), x, torque)
    assert np.allclose(inside.predict(far), outside.predict(far))
    assert np.allclose(inside.covariance(far), outside.covariance(far))
    assert np.allclose(inside.mass_matrix(far.q[0]), outside.mass_matrix(far.q[0]))
    assert np.allclose(inside.energies(far).mean, outside.energies(far).mean)
    assert np.allclose(inside.energies(far).deviation, outside.energies(far).deviation)


def test_likelihood_has_the_derivatives_of_differences():
    rng = np.random.default_rng(6)
    x, y = drawn(rng, 9, [False, True]), rng.normal(size=(9, 2))
    kernel = lip_kernel(2, friction=True)
    z = 0.3 * rng.normal(size=kernel.count + 2)

    def at(z):
        return kernel, z[: kernel.count], z[kernel.count :], x, y

    value, *by = likelihood_gradient(*at(z))
    c = kernel.matrix(z[: kernel.count], x, x) + np.diag(np.tile(np.exp(z[kernel.count :]), 9))
    assert value == pytest.approx(0.5 * (np.linalg.slogdet(c)[1] + y.ravel() @ np.linalg.solve(c, y.ravel())))
    up, down = ([likelihood_gradient(*at(z + e))[0] for e in s * np.eye(len(z))] for s in (1e-5, -1e-5))
    want = (np.array(up) - down) / 2e-5
    assert np.allclose(np.concatenate(by), want, rtol=1e-6, atol=1e-6)


def test_both_searches_raise_the_likelihood():
    rng = np.random.default_rng(7)
    model, slides = arm()
    x = drawn(rng, 30, slides)
    torque, kernel = torque_of(model, x), lip_kernel(3)
    units = Units.of(x, torque)

    def score(process):
        inside = units.inside(x)
        return likelihood_gradient(kernel, process.log, process.log_noise, inside, torque / units.torque)[0]

    told = []
    first = train(kernel, x, torque, TrainingOptions(epochs=1, rate=1e-6, finish=0))
    found = train(
        kernel, x, torque, TrainingOptions(epochs=0, starts=1, finish=15), lambda k, value: told.append(value)
    )
    assert score(found) < score(first) - 10.0
    assert told[-1] == pytest.approx(score(found))
    assert told == sorted(told, reverse=True)
    batches = train(kernel, x, torque, TrainingOptions(epochs=20, rate=0.05, last=1.0, finish=0))
    assert score(batches) < score(first) - 10.0
    told.clear()
    once = TrainingOptions(epochs=10, rate=0.05, finish=0)
    both = train(kernel, x, torque, replace(once, starts=2), lambda k, value: told.append(k))
    quiet = train(kernel, x, torque, replace(once, starts=1))
    assert score(both) <= score(quiet) + 1e-9
    assert told == list(range(20))


def test_intervals_hold_as_many_measured_torques_as_they_say():
    model, slides = arm()
    rng, noise = np.random.default_rng(13), np.array([0.3, 0.2, 0.1])
    x, far = drawn(rng, 240, slides), drawn(rng, 1000, slides)
    measured, others = (torque_of(model, m) + noise * rng.normal(size=m.q.shape) for m in (x, far))
    process = train(lip_kernel(3), x, measured, TrainingOptions(epochs=60, batch=40, rate=0.08))
    assert np.allclose(process.noise, noise, rtol=0.1)  # batches alone: 13 % too small, 90 % of the third joint's
    within = process.within_95(far, others)
    assert np.all((within > 0.93) & (within < 0.97)), within


def test_jitter_is_told_as_noise():
    """A covariance that rounding makes indefinite is factored with more on its diagonal than the noise."""
    rng = np.random.default_rng(15)
    x, kernel = drawn(rng, 40, [False]), lip_kernel(1)
    process = TorqueProcess(kernel, np.full(kernel.count, 3.0), [-25.0], x, rng.normal(size=(40, 1)))
    assert process.jitter > np.exp(-25.0)
    assert process.noise[0] == pytest.approx(np.sqrt(np.exp(-25.0) + process.jitter))


def test_a_filtered_torque_is_explained_by_friction_through_the_same_filter():
    """At reversals the filter makes slopes of steps; their sign alone would leave a tenth of the friction there."""
    rng = np.random.default_rng(14)
    t = np.arange(300)[:, None]
    x = MotionSamples(*(a * np.sin(0.23 * t + np.arange(2)) for a in (0.5, 1.0, -2.0)), [False, False])
    smooth = np.apply_along_axis(np.convolve, 0, np.sign(x.qd), np.ones(5) / 5.0, "same")
    torque = np.array([0.8, 0.3]) * smooth + 1e-3 * rng.normal(size=(300, 2))
    filtered, some = MotionSamples(x.q, x.qd, x.qdd, x.slides, smooth), np.arange(0, 300, 5)
    assert np.array_equal(x.direction, np.sign(x.qd))
    assert np.array_equal(filtered[some].direction, smooth[some])
    kernel, how = lip_kernel(2, friction=True), TrainingOptions(epochs=40, batch=60)
    found = [train(kernel, m[some], torque[some], how) for m in (x, filtered)]
    errors = [np.std(p.predict(m) - torque) for p, m in zip(found, (x, filtered), strict=True)]
    assert errors[1] < 0.2 * errors[0]
    assert np.allclose(found[1].friction()[0][:, 1], [0.8, 0.3], atol=0.02)


def test_friction_is_told_apart_from_the_arm():
    rng = np.random.default_rng(8)
    model, slides = arm()
    x = drawn(rng, 80, slides)
    viscous, coulomb = np.array([0.7, 0.2, 0.4]), np.array([0.5, 1.0, 0.3])
    torque = torque_of(model, x) + viscous * x.qd + coulomb * np.sign(x.qd) + 1e-3 * rng.normal(size=(80, 3))
    process = train(lip_kernel(3, friction=True), x, torque, TrainingOptions(epochs=150, batch=80, rate=0.05, last=1.0))
    assert np.allclose(process.friction()[0], np.stack([viscous, coulomb], axis=1), atol=0.02)


def test_samples_are_added_and_removed_without_a_new_factor():
    rng = np.random.default_rng(9)
    x = drawn(rng, 12, [False, True])
    kernel, torque = lip_kernel(2), rng.normal(size=(12, 2))
    log, noise = 0.2 * rng.normal(size=kernel.count), np.log([0.1, 0.2])
    far = drawn(rng, 4, [False, True])
    process = TorqueProcess(kernel, log, noise, x[:9], torque[:9]).added(x[9:], torque[9:])
    whole = TorqueProcess(kernel, log, noise, x, torque)
    assert np.allclose(process.predict(far), whole.predict(far))
    assert np.allclose(process.covariance(far), whole.covariance(far))
    kept = [k for k in range(12) if k not in (0, 5, 11)]
    for gone in (11, 5, 0):
        process = process.without(gone)
    fresh = TorqueProcess(kernel, log, noise, x[kept], torque[kept])
    assert np.allclose(process.predict(far), fresh.predict(far))
    assert np.allclose(process.covariance(far), fresh.covariance(far))
    with pytest.raises(ParameterError, match="sample 12 of 9"):
        process.without(12)


def test_covariances_without_a_factor_get_jitter_or_are_refused():
    v = np.random.default_rng(10).normal(size=(6, 3))
    singular = v @ v.T
    factor, jitter = factors.cholesky(singular.copy)
    lower = np.tril(factor)
    assert 0.0 < jitter <= 1e-6 * np.mean(np.diag(singular))
    assert np.allclose(lower @ lower.T, singular + jitter * np.eye(6), atol=1e-12)
    with pytest.raises(factors.NotPositiveDefiniteError, match="not positive definite"):
        factors.cholesky(lambda: singular - np.eye(6))
    with pytest.raises(factors.NotPositiveDefiniteError, match="not finite"):
        factors.cholesky(lambda: singular * np.nan)


def test_duplicate_samples_and_constant_columns_are_no_obstacle():
    model, slides, x, torque, _ = learned()
    twice = x[np.r_[0:20, 0:20]]
    process = train(lip_kernel(3, residual=True), twice, torque[np.r_[0:20, 0:20]], TrainingOptions(epochs=3, batch=40))
    assert np.all(np.isfinite(process.predict(x)))
    still = MotionSamples(x.q[:20], np.zeros((20, 3)), np.zeros((20, 3)), slides)
    kernel = lip_kernel(3, friction=True, residual=True)
    process = train(kernel, still, torque_of(model, still), TrainingOptions(epochs=3))
    assert np.all(np.isfinite(process.covariance(still)))


def test_an_informative_subset_says_nearly_what_all_say():
    _, slides, x, torque, process = learned()
    few = informative(process.kernel, process.log, process.log_noise, x, 45, process.units)
    assert len(set(few.tolist())) == 45
    far = drawn(np.random.default_rng(11), 50, slides)

    def spread(some):
        made = TorqueProcess(process.kernel, process.log, process.log_noise, x[some], torque[some], process.units)
        return np.mean(np.einsum("rjj->rj", made.covariance(far)))

    def told(some):
        """Twice the information that torques of some samples have of the process."""
        inside = process.units.inside(x[some])
        scale = np.tile(np.exp(-0.5 * process.log_noise), len(some))
        signal = process.kernel.matrix(process.log, inside, inside) * np.outer(scale, scale)
        return np.linalg.slogdet(signal + np.eye(len(scale)))[1]

    assert told(few) > told(np.arange(45))
    full = np.mean(np.einsum("rjj->rj", process.covariance(far)))
    assert full <= spread(few) * (1.0 + 1e-9)  # data never makes less certain


def test_a_subset_is_chosen_by_what_is_left_unknown():
    rng = np.random.default_rng(12)
    x, kernel = drawn(rng, 7, [False]), lip_kernel(1)
    log, noise = 0.3 * rng.normal(size=kernel.count), np.log([0.01])
    order = informative(kernel, log, noise, x, 7)
    assert sorted(order.tolist()) == list(range(7))
    for k in range(1, 3):
        process = TorqueProcess(kernel, log, noise, x[order[:k]], np.zeros((k, 1)))
        left = process.covariance(x).ravel()
        left[order[:k]] = -1.0
        assert left[order[k]] == pytest.approx(np.max(left))


def test_a_million_samples_are_refused_before_any_work():
    many = np.zeros((1_000_000, 1))
    x, kernel = MotionSamples(many, many, many, [False]), lip_kernel(1)
    for work in (
        lambda: train(kernel, x, many),
        lambda: TorqueProcess(kernel, np.zeros(kernel.count), [0.0], x, many),
        lambda: informative(kernel, np.zeros(kernel.count), np.zeros(1), x, 2000),
    ):
        with pytest.raises(ParameterError, match=r"1000000 .* GiB: expected at most 12; take fewer samples"):
            work()
