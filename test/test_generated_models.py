"""Pseudo-symbolic models: the paper's counts, its plain method, its examples, and arms drawn at random."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from safe_sysid.dynamics import dynamics_of
from safe_sysid.dynamics.generated.chain import chain_of, dh_kinematics
from safe_sysid.dynamics.generated.derive import derive
from safe_sysid.dynamics.generated.model import GRAVITY, POWERS, accelerations
from safe_sysid.dynamics.generated.polynomials import DIGITS
from safe_sysid.errors import ModelError, ParameterError
from safe_sysid.robot.model import Kinematics, Motors
from safe_sysid.studies.experiments.psdm.arms import PSDM_ARMS

pytestmark = pytest.mark.unproved


def rotation(rng):
    matrix = np.linalg.qr(rng.standard_normal((3, 3)))[0]
    return matrix * np.linalg.det(matrix)


def random_arm(rng, n):
    """Random axes and placements, some joints parallel, at right angles, in line or sliding."""
    turns, moves, axes = [], [], []
    for _ in range(n):
        axis = rng.standard_normal(3) if rng.random() < 0.5 else np.eye(3)[rng.integers(3)]
        axes.append(axis / np.linalg.norm(axis))
        turns.append(rotation(rng) if rng.random() < 0.4 else np.eye(3)[rng.permutation(3)])
        if np.linalg.det(turns[-1]) < 0:
            turns[-1] = -turns[-1]
        moves.append(rng.standard_normal(3) * (rng.random(3) < 0.6))
    travel = np.where(rng.random((n, 1)) < 0.3, [-2.0, 2.0], [-np.inf, np.inf])
    gravity = rng.standard_normal(3) if rng.random() < 0.5 else np.array([0.0, 0.0, -9.81])
    return Kinematics.chain(np.array(turns), np.array(moves), np.array(axes), gravity, travel)


def relative_error(kin, model, rng, theta, states=6):
    n, worst, size = model.n, 0.0, 0.0
    for _ in range(states):
        q, qd, qdd = rng.standard_normal((3, n))
        expected = dynamics_of(kin, "pinocchio").inverse_dynamics(theta, q, qd, qdd)
        got = model.regressor(q, qd, qdd) @ model.base_parameters(theta)
        worst, size = max(worst, np.abs(got - expected).max()), max(size, np.abs(expected).max())
    return worst / size


@pytest.mark.parametrize(
    ("name", "masked", "p", "base"),
    [
        ("kr6", False, 6086, 36),
        ("lbr7", False, 21295, 43),
        ("sr6ia", False, 69, 8),
        ("two_link", False, 18, 6),
        ("two_link", True, 10, 4),
    ],
)
def test_counts_and_torques_are_those_of_the_paper(name, masked, p, base):
    arm = PSDM_ARMS[name]
    kin, rng = arm.kinematics(), np.random.default_rng(1)
    model = derive(kin, arm.zero if masked else None)
    assert (model.p, model.l) == (p, base)
    theta = arm.parameters()
    if masked:
        theta[:20][arm.zero] = 0.0
    assert relative_error(kin, model, rng, theta) < 1e-13


def test_velocity_terms_are_as_many_as_a_minus_gives():
    """With the plus that the paper prints in eq. 19 they would be 5086."""
    model = derive(PSDM_ARMS["kr6"].kinematics())
    assert np.sum(model.acceleration > model.n) == 4823


def plain_method(kin, zero, rng):
    """Section 2.2.1 as it stands: all functions of Y(2) but squared sines, one linear system per acceleration."""
    n, reference = len(kin.axis), dynamics_of(kin)
    theta = np.zeros(14 * n)
    theta[: 10 * n] = rng.uniform(0.1, 1.0, 10 * n) * ~zero
    still, found = np.zeros(n), set()
    degrees = [3 if slides else 5 for slides in kin.sliding]
    functions = list(itertools.product(*map(range, degrees)))
    powers = [np.array(POWERS[bool(s)]) for s in kin.sliding]
    q = rng.uniform(-np.pi, np.pi, (2 * len(functions), n))
    values = np.ones((len(q), len(functions)))
    for j in range(n):
        generators = np.stack([q[:, j], np.sin(q[:, j]), np.cos(q[:, j])], axis=1)
        by_digit = np.prod(generators[:, None] ** powers[j], axis=2)
        values *= by_digit[:, [f[j] for f in functions]]

    def torque(qd, qdd):
        tile = np.broadcast_to
        return reference.inverse_dynamics(theta, q, tile(qd, q.shape), tile(qdd, q.shape))

    weight, unit = torque(still, still), np.eye(n)
    for number, factors in enumerate(accelerations(n)):
        if number == GRAVITY:
            samples = weight
        elif len(factors) == 1:
            samples = torque(still, unit[factors[0]]) - weight
        else:
            i, j = factors
            samples = torque(unit[i] + unit[j], still) - weight
            if i == j:
                samples = torque(unit[i], still) - weight
            else:
                samples -= torque(unit[i], still) + torque(unit[j], still) - 2 * weight
        solution = np.linalg.lstsq(values, samples, rcond=None)[0]
        for f in np.nonzero(np.abs(solution).max(axis=1) > 1e-8)[0]:
            found.add((number, sum(d * DIGITS**j for j, d in enumerate(functions[f]))))
    return found


@pytest.mark.parametrize("arm", [*range(4), "sr6ia", "two_link"])
def test_the_plain_method_finds_the_same_functions(arm):
    """Of random arms, by seed; of a SCARA; of an arm that is masked."""
    random = isinstance(arm, int)
    rng = np.random.default_rng(arm if random else 8)
    kin = random_arm(rng, 2 + arm % 2) if random else PSDM_ARMS[arm].kinematics()
    zero = None if random else PSDM_ARMS[arm].zero
    model = derive(kin, zero)
    found = set(zip(model.acceleration.tolist(), model.code.tolist(), strict=True))
    assert found == plain_method(kin, np.zeros(10 * len(kin.axis), bool) if zero is None else zero, rng)


def error_against_pinocchio(kin, rng, **options):
    """Relative; base parameters must be as many as the rank of Pinocchio's regressor."""
    model, theta = derive(kin), np.zeros(14 * len(kin.axis))
    theta[: 10 * model.n] = rng.standard_normal(10 * model.n)
    error = relative_error(kin, model, rng, theta, **options)
    assert model.l == pinocchio_rank(kin, rng)
    return error


@pytest.mark.parametrize("seed", range(6))
def test_random_arms_agree_with_pinocchio_and_base_parameters_are_as_many_as_its_rank(seed):
    rng = np.random.default_rng(100 + seed)
    assert error_against_pinocchio(random_arm(rng, 2 + seed % 4), rng) < 1e-9


@pytest.mark.parametrize("seed", range(3))
def test_rotors_in_moving_links_are_parameters_like_others(seed):
    rng = np.random.default_rng(200 + seed)
    n = 4
    kin = random_arm(rng, n)
    axis = rng.standard_normal((2, 3))
    axis /= np.linalg.norm(axis, axis=1)[:, None]
    kin = kin._replace(motors=Motors(np.array([1, 3]), np.array([0, 1]), np.array([0.02, -0.5]), axis))
    model, theta = derive(kin, rotors=True), np.zeros(14 * n)
    theta[: 10 * n], theta[12 * n : 13 * n] = rng.standard_normal(10 * n), rng.random(n)
    assert relative_error(kin, model, rng, theta) < 1e-10


def test_exponents_and_reduction_of_the_papers_fifth_example():
    """[PSDM eq. 53, 54]: ten functions, four parameters, factors 1, 1.2 and 2.4, and g, which the paper leaves in y."""
    arm = PSDM_ARMS["two_link"]
    model = derive(arm.kinematics(), arm.zero)
    assert [model.term(k) for k in range(model.p)] == [
        "qdd1", "c2 qdd1", "qdd2", "c2 qdd2", "s2 qd1^2", "s2 qd1 qd2", "s2 qd2^2", "c1", "s1 s2", "c1 c2",
    ]  # fmt: skip
    assert model.exponents.shape == (10, 10)
    rows, reduction = model.rows_as_parameters()
    sizes = np.unique(np.round(np.abs(reduction.data), 9))
    ratios = {round(x, 6) for x in sizes}
    assert ratios <= {1.0, 0.5, round(1.2 / 9.81, 6), round(2.4 / 9.81, 6)}
    # theta_b are the selected entries of theta_p, so these rows of P_* are those of the identity.
    np.testing.assert_array_equal(reduction[rows].toarray(), np.eye(4))


def test_a_model_prints_as_formulas():
    arm = PSDM_ARMS["two_link"]
    text = str(derive(arm.kinematics(), arm.zero))
    assert "tau_2 = b4 qdd1 + 1.2 b3 c2 qdd1 + b4 qdd2 + 1.2 b3 s2 qd1^2 + " in text
    assert "b2 = Izz_1 + 1.44 m_2" in text


def test_a_branch_is_refused_and_so_is_a_mask_of_another_size():
    kin = PSDM_ARMS["kr6"].kinematics()
    with pytest.raises(ModelError, match="joint 4 follows joint 2: a branch"):
        chain_of(kin._replace(parent=np.array([-1, 0, 1, 1, 3, 4])))
    with pytest.raises(ParameterError, match="expected \\(60,\\)"):
        derive(kin, np.zeros(3, bool))
    with pytest.raises(ModelError, match="DH table"):
        dh_kinematics(np.zeros((2, 3)), np.zeros(2, bool), np.zeros(3))


@pytest.mark.slow
def test_a_thousand_random_arms_agree_with_pinocchio_and_base_parameters_are_as_many_as_its_rank():
    worst = 0.0
    for seed in range(1000):
        rng = np.random.default_rng(10_000 + seed)
        n = 2 + seed % 5
        kin = random_arm(rng, n) if seed % 2 else random_table(rng, n)
        worst = max(worst, error := error_against_pinocchio(kin, rng, states=2))
        assert error < 1e-9, seed
    print(f"largest relative error of 1000 arms: {worst:.1e}")


def random_table(rng, n):
    """A DH table with the angles and lengths that arms have, some of them odd."""
    quarter = 0.5 * np.pi * rng.integers(-1, 3, (n, 2))
    angles = np.where(rng.random((n, 2)) < 0.7, quarter, rng.uniform(-3, 3, (n, 2)))
    lengths = rng.uniform(-0.5, 0.5, (n, 2)) * (rng.random((n, 2)) < 0.6)
    table = np.stack([angles[:, 0], lengths[:, 0], lengths[:, 1], angles[:, 1]], axis=1)
    return dh_kinematics(table, rng.random(n) < 0.3, np.array([0.0, 0.0, -9.81]))[0]


def pinocchio_rank(kin, rng):
    n = len(kin.axis)
    samples = dynamics_of(kin, "pinocchio").torque_regressor(*rng.standard_normal((3, 60, n)))
    stacked = samples[..., : 10 * n].reshape(-1, 10 * n)
    scale = np.linalg.norm(stacked, axis=0)
    # A column of rounding errors is none.
    kept = scale > 1e-12 * scale.max()
    values = np.linalg.svd(stacked[:, kept] / scale[kept], compute_uv=False)
    return np.sum(values > 1e-9 * values[0])
