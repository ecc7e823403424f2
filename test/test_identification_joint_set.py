"""The joint set of arm, payload and hand: truth inside, the optimum of a conic solver, lies without effect."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from identification_plant import plain_rows
from test_identification_consistency import UNITS, cloud, payload_box

from safe_sysid.core.layout import ParameterLayout, UnknownsLayout
from safe_sysid.errors import ParameterError
from safe_sysid.identification.bounds.drift import enlarged
from safe_sysid.identification.bounds.feasible_set import FeasibleSet
from safe_sysid.identification.bounds.joint_rows import cut_rows, unscaled_rows
from safe_sysid.identification.bounds.payload_constraints import PayloadConstraints
from safe_sysid.identification.bounds.programs import Programs, Solution
from safe_sysid.identification.equations.momentum import MomentumRows
from safe_sysid.robot.parameters import ParameterBox, from_log_cholesky, inertia_from_com

SIZE = np.array([5.0, 5.0, 5.0, 1.0])  # 1 over a typical length, m


class Case:
    """An arm of one joint: theta_e is hand, opening and payload; rows of random directions; all unequal."""

    def __init__(self, seed, payload="any", corner=False, rows=40, box=False, tare=0, width=0.3):
        rng = self.rng = np.random.default_rng(seed)
        self.box = payload_box(rng) if box else None
        hand = from_log_cholesky(rng.normal(0, 0.3, 10))
        rad = rng.uniform(0.01, 0.1, 10) * np.abs(hand)
        self.opening = rng.uniform(0.0, 0.05, 10) * np.abs(hand)
        pick = (lambda *s: rng.choice([-1.0, 1.0], s)) if corner else (lambda *s: rng.uniform(-1, 1, s))
        self.hand_lower, self.hand_upper = hand - rad, hand + rad
        self.hand = np.clip(hand + rad * pick(10), self.hand_lower, self.hand_upper)
        if payload == "flat":  # on the boundary of the cone
            self.p = inertia_from_com(rng.uniform(0.5, 2), rng.uniform(-0.3, 0.3, 3), np.zeros((3, 3)))
        else:
            self.p = from_log_cholesky(rng.normal(0, 0.4, 10))
        if box:
            self.p = cloud(rng, self.box, "anywhere")
        theta_e = self.hand + self.opening * pick(10) + self.p
        self.theta = np.concatenate([theta_e, rng.uniform(0.1, 1.0, 4)])
        rad = np.concatenate([rng.uniform(0.5, 2.0, 10) * (np.abs(theta_e) + 0.1), 0.05 * self.theta[10:]])
        shift = rng.uniform(-0.8, 0.8, 14) * rad
        self.prior = ParameterBox(self.theta + shift - rad, self.theta + shift + rad)
        self.rows = self._rows(rows, self.theta, 0, width)
        self.tare = self._rows(tare, np.concatenate([self.hand, self.theta[10:]]), 1, width) if tare else None

    def _rows(self, count, theta, log, width):
        rng = self.rng
        matrix = rng.normal(size=(count, 14)) * 10.0 ** rng.uniform(-1, 1, (count, 1)) / self.prior.rad
        slack = width * np.abs(matrix * self.prior.rad).sum(axis=1) * rng.uniform(0.3, 1.0, count)
        return plain_rows(matrix, matrix @ theta + slack * rng.uniform(-0.999, 0.999, count), slack, log)

    def holds(self, bounds):
        """The truth's values lie within bounds of the first parameters, or of those of arm and hand."""
        truth = np.concatenate([self.theta, self.hand])[: len(bounds.lower)]
        return not bounds.empty and np.all((bounds.lower <= truth) & (truth <= bounds.upper))

    def payload_constraints(self, opening=True):
        return PayloadConstraints(self.hand_lower, self.hand_upper, self.opening if opening else None, self.box)

    def set(self, method="sdp", opening=True, tare=True, **options):
        out = FeasibleSet(
            self.prior, 4000, self.payload_constraints(opening), method, self.tare if tare else None, **options
        )
        out.add(self.rows)
        return out


@settings(max_examples=4, deadline=None)
@given(
    st.integers(0, 2**32 - 1), st.sampled_from(["any", "flat"]), st.booleans(), st.booleans(), st.sampled_from([0, 12])
)
def test_truth_stays_in_the_set(seed, payload, corner, box, tare):
    case = Case(seed, payload, corner, box=box, tare=tare)
    index = np.r_[0:10, 14:24, 10, 24]
    truth = np.concatenate([case.theta, case.hand])
    for method in ("lp", "sdp"):
        feasible = case.set(method)
        for _ in range(2):  # the second starts from the first's bases
            bounds = feasible.bound(index, case.prior)
            assert not bounds.empty
            assert np.all((bounds.lower[:21] <= truth[index[:21]]) & (truth[index[:21]] <= bounds.upper[:21]))
            feasible.prune()


def test_an_opening_left_out_is_found():
    excluded = 0
    for seed in range(6):
        case = Case(seed, "flat", True, rows=200, width=1e-4)
        # The hand exactly known: what its opening changes is all that can break the cone.
        case.hand_lower = case.hand_upper = case.hand
        for opening in (True, False):
            inside = case.holds(case.set(opening=opening).bound(np.arange(10), case.prior))
            assert inside or not opening
            excluded += not inside
    assert excluded >= 3


def conic(case, index, sign, method):
    """Optimum by cvxpy and Clarabel."""
    cp = pytest.importorskip("cvxpy", reason="pip install -e '.[dev]'")
    z = cp.Variable(34)  # in units of the boxes: the conic solver's tolerances are absolute
    lower = np.concatenate([case.prior.lower, case.hand_lower, -case.opening])
    upper = np.concatenate([case.prior.upper, case.hand_upper, case.opening])
    x = 0.5 * (lower + upper) + cp.multiply(0.5 * (upper - lower), z)
    theta_p = x[:10] - x[14:24] - x[24:]
    rows = case.rows if case.tare is None else MomentumRows.concatenate([case.rows, case.tare])
    constraints = [
        cp.abs(cp.multiply(1 / rows.slack, unscaled_rows(rows) @ x - rows.target)) <= 1, cp.abs(z) <= 1
    ]  # fmt: skip
    if method == "sdp":
        constraints.append(sum(theta_p[k] * (UNITS[k] * np.outer(SIZE, SIZE)) for k in range(10)) >> 0)
    fixed = case.payload_constraints().fixed
    matrix = cut_rows(fixed, UnknownsLayout(ParameterLayout(1)))
    norm = np.abs(matrix * (upper - lower)).max(axis=1)
    constraints.append(cp.multiply(1 / norm, matrix @ x - fixed.constant) >= 0)
    problem = cp.Problem(cp.Minimize(sign * x[index]), constraints)
    problem.solve(solver=cp.CLARABEL, tol_gap_abs=1e-7, tol_gap_rel=1e-7, tol_feas=1e-7)
    assert problem.status == "optimal"
    return sign * problem.value


@pytest.mark.parametrize(
    ("seed", "box", "tare", "method"),
    [
        pytest.param(0, False, 0, "sdp", marks=pytest.mark.slow),
        (1, True, 0, "sdp"),
        (2, False, 25, "sdp"),
        (3, True, 25, "lp"),
    ],
)
def test_published_is_the_optimum_of_a_conic_solver(seed, box, tare, method):
    case = Case(seed, box=box, tare=tare, corner=True)
    width = case.prior.upper - case.prior.lower
    bounds = case.set(method, improvement=0.0, rounds=80).bound(np.arange(10), case.prior)
    plain = case.set("lp").bound(np.arange(10), case.prior)
    gain = 0
    for k in range(10):
        low, high = conic(case, k, 1.0, method), conic(case, k, -1.0, method)
        assert low - 1e-4 * width[k] <= bounds.lower[k] <= low + 1e-5 * width[k]
        assert high - 1e-5 * width[k] <= bounds.upper[k] <= high + 1e-4 * width[k]
        gain += plain.upper[k] - plain.lower[k] > 1.05 * (bounds.upper[k] - bounds.lower[k])
    assert gain >= 2 or method == "lp" or box  # the cone does something that a box does not


@pytest.mark.parametrize("lie", ["random", "negative", "huge", "nan", "ray"])
def test_lying_multipliers_stay_sound(monkeypatch, lie):
    honest = Programs.solve
    for seed in range(2):
        case = Case(seed, "flat", True, box=seed % 2 == 0, tare=12)
        rng = np.random.default_rng(seed)

        def lying(self, program, last_resort, rng=rng):
            found = honest(self, program, last_resort)
            y = {"random": rng.normal(size=found.y.size), "negative": -np.abs(found.y) * program[1],
                 "huge": found.y * 1e60, "nan": np.full(found.y.size, np.nan), "ray": found.y}[lie]  # fmt: skip
            return Solution("infeasible" if lie == "ray" else found.outcome, found.z, y)

        monkeypatch.setattr(Programs, "solve", lying)
        bounds = case.set().bound(np.arange(10), case.prior)
        monkeypatch.undo()
        assert case.holds(bounds)
        if bounds.cut_multipliers is not None:
            assert np.all(bounds.cut_multipliers >= 0.0)


def test_degenerate_data():
    """A prior with flat sides, repeated rows, no rows at all."""
    case = Case(5, "any")
    lower, upper = case.prior.lower.copy(), case.prior.upper.copy()
    lower[[0, 5, 11]] = upper[[0, 5, 11]] = case.theta[[0, 5, 11]]
    case.prior = ParameterBox(lower, upper)
    repeated, none = MomentumRows.concatenate([case.rows] * 3), plain_rows(np.zeros((0, 14)), np.zeros(0), np.zeros(0))
    for case.rows in (repeated, none):
        for method in ("lp", "sdp"):
            assert case.holds(case.set(method).bound(np.arange(14), case.prior))


def test_absurd_rows_are_dropped():
    """Numbers that no arm gives: never an exception, never a wrong bound."""
    case, index = Case(8), np.array([0, 2, 4, 9])
    absurd = [(1e30, 1.0), (1.0, 1e-300), (1e-300, 1.0), (1.0, 0.0), (1e300, 1e300), (1e14, 1e-3), (1.0, np.inf)]
    for factor, slack in absurd:
        matrix = case.rows.matrix * factor
        width = np.maximum(np.abs(matrix).sum(axis=1) * 1e-12, case.rows.slack * slack) if slack else np.zeros(40)
        rows = plain_rows(matrix, matrix @ case.theta, width)
        for method in ("lp", "sdp"):
            feasible = case.set(method)
            feasible.add(rows)
            bounds, truth = feasible.bound(index, case.prior), case.theta[index]
            assert not bounds.empty
            assert np.all((bounds.lower <= truth) & (truth <= bounds.upper)), (factor, slack, method)


def test_an_impossible_payload_is_an_empty_set_that_says_so():
    case = Case(6, "flat", rows=200, width=1e-3)
    case.hand_lower = case.hand_upper = case.hand
    case.opening = np.zeros(10)
    truth = case.theta.copy()
    truth[4] -= 0.5 * abs(case.p[4]) + 0.05  # a moment of inertia that no body has
    lower, upper = np.minimum(case.prior.lower, truth - 0.1), np.maximum(case.prior.upper, truth + 0.1)
    case.prior = ParameterBox(lower, upper)
    case.rows = plain_rows(case.rows.matrix, case.rows.matrix @ truth, case.rows.slack)
    assert not case.set("lp").bound(np.arange(10), case.prior).empty
    bounds = case.set("sdp").bound(np.arange(10), case.prior)
    assert bounds.empty
    assert "semidefinite" in bounds.kinds


def test_rows_of_a_tare_bound_the_hand():
    case = Case(7, tare=60, width=0.002)
    with_tare = case.set("sdp").bound(np.arange(34), case.prior)
    without = case.set("sdp", tare=False).bound(np.arange(34), case.prior)
    hand = slice(14, 24)
    assert np.median((with_tare.upper - with_tare.lower)[hand] / (without.upper - without.lower)[hand]) < 0.9
    assert np.all(with_tare.upper[:10] - with_tare.lower[:10] <= 1.02 * (without.upper - without.lower)[:10] + 1e-9)


def test_many_rows_at_once_are_as_good_as_batch_by_batch():
    """More than may wait: the set asks itself which rows matter, and does not keep the first ones that came."""
    widths = []
    for batches in (1, 12):
        case = Case(9, rows=2400, width=0.05)
        feasible = FeasibleSet(case.prior, 100, case.payload_constraints(), "sdp")
        box = case.prior
        for part in np.array_split(np.arange(2400), batches):
            for some in np.array_split(part, 12 // batches):
                feasible.add(case.rows.take(some))
            bounds = feasible.bound(np.arange(10), box)
            assert case.holds(bounds)
            box = box.with_payload(bounds.lower, bounds.upper)
            feasible.prune()
            assert len(feasible) <= 12 * 100
        widths.append((box.upper - box.lower)[:10])
    assert np.all(widths[0] <= 1.1 * widths[1])


def test_a_contradiction_found_while_rows_pile_up_is_told():
    case = Case(10, rows=1500, width=0.01)
    feasible = FeasibleSet(case.prior, 100, case.payload_constraints(), "lp")
    other = case.rows.matrix @ (case.theta + 0.5 * (case.prior.upper - case.theta))
    feasible.add(plain_rows(case.rows.matrix, np.where(np.arange(1500) % 2, case.rows.target, other), case.rows.slack))
    assert feasible.bound(np.arange(10), case.prior).empty
    feasible.add(case.rows)
    assert feasible.bound(np.arange(10), case.prior).empty


def test_a_solver_that_takes_cuts_for_equations_is_no_danger(monkeypatch):
    """Its multipliers of cuts are good ones, of the wrong sign: they must count as zero."""
    honest = Programs.add_rows

    def lying(self, matrix, lower, upper):
        honest(self, matrix, lower, np.where(np.isinf(upper), lower, upper))

    monkeypatch.setattr(Programs, "add_rows", lying)
    wrong = 0
    for seed in range(8):
        case = Case(seed, box=True, rows=60, width=0.05)
        feasible = case.set()
        assert case.holds(feasible.bound(np.arange(10), case.prior))
        truth = (case.theta[:10] - feasible._mid[:10]) / feasible._scale[:10]
        wrong += sum(sign * z[k] > sign * truth[k] for (k, sign), z in feasible._vertices.items())
    assert wrong >= 5  # the lie bites: optima of the wrong problem exclude the truth


class DriftCase(Case):
    """The same arm, its friction at the tare another one: by the whole drift, at a random corner."""

    def __init__(self, seed, scale=0.02, **options):
        super().__init__(seed, **options)
        self.drift = scale * self.rng.uniform(0.3, 1.0, 3)
        self.f = self.drift * self.rng.choice([-1.0, 1.0], 3)
        then = np.concatenate([self.hand, self.theta[10:]])
        then[[10, 11, 13]] += self.f
        self.tare = self._rows(60, then, 1, options.get("width", 0.3))

    def drifted(self, drift, method="lp", **options):
        out = FeasibleSet(
            self.prior, 4000, self.payload_constraints(), method, self.tare, self.drift if drift else None, **options
        )
        out.add(self.rows)
        return out


@settings(max_examples=6, deadline=None)
@given(st.integers(0, 2**32 - 1), st.sampled_from([0.3, 0.01]), st.sampled_from(["lp", "sdp"]))
def test_friction_that_drifted_to_its_bound_excludes_nothing_true(seed, width, method):
    case = DriftCase(seed, corner=True, width=width)
    truth = np.concatenate([case.theta, case.hand])
    feasible = case.drifted(True, method)
    for _ in range(2):
        bounds = feasible.bound(np.r_[0:24, 34:37], case.prior)
        assert not bounds.empty
        assert np.all((bounds.lower[:24] <= truth) & (truth <= bounds.upper[:24]))
        assert np.all((bounds.lower[24:] <= case.f) & (case.f <= bounds.upper[24:]))
        feasible.prune()


def test_a_drift_left_out_is_found():
    excluded = 0
    for seed in range(4):
        case = DriftCase(seed, corner=True, width=0.003, scale=0.05)
        excluded += not case.holds(case.drifted(False).bound(np.arange(24), case.prior))
        assert case.holds(case.drifted(True).bound(np.arange(24), case.prior))
    assert excluded >= 3


def test_drift_as_unknowns_is_the_optimum_of_a_linear_program_and_tighter_than_wide_slack():
    from scipy.optimize import linprog

    ratios = []
    for seed in range(6):
        case = DriftCase(seed, width=0.02)
        bounds = case.drifted(True, improvement=0.0, rounds=80).bound(np.arange(10), case.prior)
        # Built here again: (theta, theta_h, d, f).
        run = np.hstack([case.rows.matrix, np.zeros((len(case.rows), 23))])
        m = case.tare.matrix
        tare = np.hstack([np.zeros((60, 10)), m[:, 10:], m[:, :10], np.zeros((60, 10)), m[:, [10, 11, 13]]])
        a = np.vstack([run, tare])
        target, slack = (np.concatenate([getattr(r, k) for r in (case.rows, case.tare)]) for k in ("target", "slack"))
        lower = np.concatenate([case.prior.lower, case.hand_lower, -case.opening, -case.drift])
        upper = np.concatenate([case.prior.upper, case.hand_upper, case.opening, case.drift])
        mass = np.zeros(37)
        mass[[0, 14, 24]] = -1.0, 1.0, 1.0
        matrix = np.vstack([a / slack[:, None], -a / slack[:, None], mass])
        side = np.concatenate([target / slack + 1.0, 1.0 - target / slack, [0.0]])
        width = case.prior.upper - case.prior.lower
        for k in range(seed % 3, 10, 3):
            for sign, found in ((1.0, bounds.lower[k]), (-1.0, bounds.upper[k])):
                best = sign * linprog(sign * np.eye(37)[k], matrix, side, bounds=np.column_stack([lower, upper])).fun
                assert -1e-4 * width[k] <= sign * (best - found) <= 1e-3 * width[k]
        wide = FeasibleSet(case.prior, 4000, case.payload_constraints(), "lp", enlarged(case.tare, case.drift))
        wide.add(case.rows)
        loose = wide.bound(np.arange(10), case.prior)
        ratios.append((bounds.upper - bounds.lower) / (loose.upper - loose.lower))
    assert np.all(np.array(ratios) < 1.01)
    assert np.median(ratios) < 0.98


def test_what_does_not_drift_is_no_unknown():
    case = DriftCase(0)
    known = (case.prior, 4000, case.payload_constraints(), "lp")
    for drift, count in ((np.zeros(3), 34), (np.array([0.0, 0.1, 0.0]), 35), (case.drift, 37), (None, 34)):
        assert len(FeasibleSet(*known, case.tare, drift)._mid) == count
    assert len(FeasibleSet(*known, None, case.drift)._mid) == 34
    for wrong in (np.zeros(2), -case.drift, np.full(3, np.nan)):
        with pytest.raises(ParameterError, match="tare_drift"):
            FeasibleSet(*known, case.tare, wrong)
