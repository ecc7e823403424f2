"""The attack on enclosures and certificates: finds nothing in them, and every breakage put there on purpose."""

from __future__ import annotations

import dataclasses
import json
import math
from functools import partial

import command_support
import mpmath
import numpy as np
import pytest
from reachability_mutants import fresh_modules, replace, set_everywhere

from safe_sysid.commands import campaign as command
from safe_sysid.dynamics import dynamics_of
from safe_sysid.robot.frames import forward_kinematics
from safe_sysid.studies.campaign import runner
from safe_sysid.studies.campaign.reachability import breaks, places, trial
from safe_sysid.studies.campaign.reachability.case import build_case
from safe_sysid.studies.campaign.reachability.distance import nearest_points
from safe_sysid.studies.campaign.reachability.exact import exact_poses, exact_regressor, exact_states, floats
from safe_sysid.studies.campaign.reachability.record import AttackRecord, complaint, is_sound, summarise
from safe_sysid.studies.campaign.reachability.settings import MOTIONS
from safe_sysid.studies.campaign.reachability.trial import run_trial
from safe_sysid.studies.campaign.reachability.tube import desired

SMALL = {
    "robot": "random", "joints": 2, "intervals": 2, "obstacles": "none", "bodies": "capsules", "far": False,
    "chain": "random", "coulomb": 0.0, "errors": False,
}  # fmt: skip
#: Nothing but time in short cells; nothing but large errors; both, with parameters.
TIME = {"box": "point", "tracking": "tiny", "motion": "rest", "intervals": 4, "joints": 3}
ERRORS = {"box": "point", "tracking": "large", "motion": "hold", "intervals": 1}
BOX = {"box": "wide", "tracking": "large", "motion": "hold", "intervals": 1}
CRAWL = {"box": "usual", "tracking": "large", "motion": "crawl", "transition": 0.0, "coulomb": 4.0}


# --- it finds nothing where nothing is wrong -------------------------------------------------------------------------


@pytest.mark.parametrize("first", [0, *(pytest.param(k, marks=pytest.mark.slow) for k in (3, 6))])
def test_no_enclosure_and_no_certificate_is_broken(first):
    """A small campaign, of packaged robots too; `safe-sysid campaign reachability` is the large one."""
    trials = [run_trial(11, index, {}) for index in range(first, first + 3)]
    assert [complaint(t) for t in trials if not is_sound(t)] == []
    counts = summarise(trials)
    assert counts["enclosures"] > 300
    assert counts["exact"] > 30
    assert {"torque", "S", "pose", "relative pose", "clearance", "self clearance", "swept volume"} <= set(
        counts["families"]
    )


@pytest.mark.slow
def test_every_kind_of_motion_is_attacked():
    for i, motion in enumerate(MOTIONS):
        fixed = {"motion": motion, "joints": 2, "intervals": 3, "robot": "random"}
        assert is_sound(run_trial(12, i, {"fixed": fixed})), motion


def test_wide_limits_give_certified_plans_too():
    fixed = {"limits": "wide", "tracking": "usual", "box": "usual", "motion": "rest", "obstacles": "none", "joints": 3}
    trials = [run_trial(13, i, {"fixed": fixed | {"robot": "random", "intervals": 32}}) for i in range(2)]
    assert any(t["certified"] for t in trials)
    assert all(is_sound(t) for t in trials)


# --- it finds what is told wrongly -----------------------------------------------------------------------------------

TOLD = {
    "tracking": {},
    "measurement": {"errors": True, "tracking": "large"},
    "actuator": {"errors": True},
    "feed_forward": {"errors": True},
    "box": {"box": "wide"},
    "coulomb": {"transition": 0.0, "coulomb": 4.0},
    "axis": {"joints": 3},
    "gravity": {},
    "radius": {"joints": 4},
    "payload": {"joints": 4, "obstacles": "boxes"},
    "inertia": {"box": "wide"},
    "gears": {"gears": True, "joints": 3},
}


@pytest.mark.parametrize("name", TOLD)
def test_an_enclosure_that_is_told_something_wrong_is_noticed(name):
    fixed = SMALL | {"intervals": 16, "tracking": "usual", "motion": "rest", "limits": "wide"} | TOLD[name]
    found = AttackRecord()
    for index in range(name in ("feed_forward", "gears"), 6):  # their first trial finds nothing
        case = build_case(21, index, {"fixed": fixed})
        claims = breaks.told(case, name)
        _, times, symbols = trial.attack_enclosures(case, claims, found)
        if not found.broken:
            trial.attack_plan(case, claims, times, symbols, found)
        if found.broken:
            break
    assert found.broken
    assert set(TOLD) == set(breaks.BREAKS) == set(command._TOLD_WRONGLY)


# --- it finds formulas that are wrong --------------------------------------------------------------------------------


def found_in(monkeypatch, modules, trials, fixed):
    """Whether the attack finds something in some small trials."""
    names = {"torques": "torque", "poses": "pose", "swept": "swept", "clearances": "clearance", "cell_module": "cells"}
    for name, module in names.items():
        monkeypatch.setattr(trial, name, modules[module])
    monkeypatch.setattr(places, "poses", modules["pose"])
    for index in trials:
        record, case = AttackRecord(), build_case(5, index, {"fixed": SMALL | fixed})
        trial.attack_enclosures(case, case, record)
        if record.broken:
            return True
    return False


# Functions that take the place of one of the package's, which they are given first.


def remainder_dropped(dot, x, y, n, out):
    """Poses: the remainders of a product's first operand forgotten."""
    x = x.copy()
    x[:, -1] = 0.0
    dot(x, y, n, out)


def torque_remainder_dropped(kernel, *arguments):
    """Torques: only what is linear in the symbols."""
    kernel(*arguments)
    arguments[-1].nominal[..., -1] = 0.0


def slope_of_the_joint_wrong(small_turn, v, axis, angle, sign, joint, *rest):
    """Torques: a turned vector depends on its own joint's error a tenth too much."""
    before = v[:, 2 + joint].copy()
    small_turn(v, axis, angle, sign, joint, *rest)
    v[:, 2 + joint] += 0.1 * (v[:, 2 + joint] - before)


def placements_exact(parts, kin):
    return parts(kin)[0], 0.0, 1.0


def cells_halved(cells_between, trajectory, borders):
    """What the expansion about the middle leaves, counted half."""
    cells = cells_between(trajectory, borders)
    return dataclasses.replace(cells, forms=cells.forms * [1.0, 1.0, 0.5])


def tail_left_out(time_cells, trajectory, intervals):
    cells = time_cells(trajectory, intervals)
    half = cells.count // 2
    return dataclasses.replace(cells, borders=cells.borders[:half], forms=cells.forms[:half])


def tracking_left_out(affine_motion, cells, tracking, with_r=True, *, part):
    return affine_motion(cells, dataclasses.replace(tracking, **{part: 0.8 * getattr(tracking, part)}), with_r)


def component_remainders(_, x):
    """A vector's remainder taken for a ball without being enlarged to one."""
    x[:, -1] = x[:, -1].max() / math.sqrt(3.0)


def axes_shifted(parts, kin):
    return parts(kin._replace(axis=np.roll(kin.axis, 1, axis=0)))


def friction_sign_of_the_middle(sign_range, rates, transition):
    return sign_range(np.repeat(rates.mean(axis=-1, keepdims=True), 2, axis=-1), transition)


def sign_of_the_middle(_, forms, row, column, size, active, radius, timed, blocks, out):
    """``|w|`` replaced by ``+-w`` with the sign at the middle."""
    w = forms[row, column]
    out[row] += radius * np.concatenate([np.sign(w[0]) * w[:-1], w[-1:]])
    return w[0] - size, w[0] + size


def measure_of_the_mean_row(_, spread, weights):
    return np.sqrt((spread**2 * weights).mean(axis=-1))


#: What is replaced, by what, the trials that find it, and the first of them that does where it is not the first.
MUTATIONS = {
    "remainder dropped": ("affine.dot", remainder_dropped, TIME),
    "torque's remainder dropped": ("torque_kernel.torque_kernel", torque_remainder_dropped, ERRORS),
    "slope of the joint wrong": ("turns.small_turn", slope_of_the_joint_wrong, ERRORS | {"tracking": "usual"}, 6),
    "rounding off": ("rotations.rotation_parts", placements_exact, ERRORS | {"tracking": "tiny"}),
    "remainder of the motion halved": ("cells.cells_between", cells_halved, TIME),
    "tail left out": ("cells.time_cells", tail_left_out, TIME),
    "e too small": ("cells.affine_motion", partial(tracking_left_out, part="e"), ERRORS),
    "r too small": ("cells.affine_motion", partial(tracking_left_out, part="r"), ERRORS),
    "balls not enlarged": ("rotations.to_ball", component_remainders, ERRORS),
    "axes shifted": ("rotations.rotation_parts", axes_shifted, ERRORS),
    "friction sign of the middle": ("torque._sign_range", friction_sign_of_the_middle, CRAWL, 3),
    "sign of the middle": ("magnitudes.add_magnitude", sign_of_the_middle, CRAWL),
    "quadratic dropped": ("magnitudes.quadratic_bound", lambda *_: 0.0, CRAWL),
    "S of the mean row": ("torque.uncertainty_measure", measure_of_the_mean_row, BOX | {"joints": 4}, 3),
}


def test_the_copies_are_sound_as_long_as_nothing_is_replaced(monkeypatch):
    for fixed in (TIME, ERRORS, BOX, CRAWL):
        with fresh_modules() as modules:
            assert not found_in(monkeypatch, modules, [0], fixed)


@pytest.mark.parametrize("name", MUTATIONS)
def test_a_wrong_formula_is_found(monkeypatch, name):
    place, broken, fixed, *first = MUTATIONS[name]
    with fresh_modules() as modules:
        replace(modules, *place.split("."), lambda original: partial(broken, original))
        if name == "rounding off":
            set_everywhere(modules, _EPS=0.0, _UP=1.0, _TINY=0.0, TRIG_ERROR=0.0, _CONTROLLER_ROUNDING=0.0)
            modules["cells"].knot_slack = lambda trajectory, order: np.zeros((len(trajectory.times) - 1, trajectory.n))
        assert found_in(monkeypatch, modules, range(*first, 8), fixed)


# --- the attack's own arithmetic -------------------------------------------------------------------------------------


def test_exact_values_agree_with_floats():
    for index in range(3):
        case = build_case(31, index, {"fixed": SMALL | {"joints": 3, "errors": True, "gears": index != 1}})
        tube, kin = case.tube, case.model.kinematics
        rng = np.random.default_rng(index)
        x = tube.sample(rng, 2)
        times = rng.uniform(0.0, case.trajectory.duration, 2)
        states = tube.states(times, x)
        for i in range(2):
            exact = exact_states(tube, float(times[i]), x[i])
            for name, value in exact._asdict().items():
                assert np.allclose(floats(value), getattr(states, name)[i], rtol=1e-12, atol=1e-12)
            w = dynamics_of(kin).slotine_li_regressor(
                *(getattr(states, k)[i] for k in ("q_m", "qd_m", "qd_a", "qdd_a")), 0.01
            )
            assert np.allclose(floats(exact_regressor(kin, exact, 0.01)), w, rtol=1e-9, atol=1e-11)
            r, p = forward_kinematics(kin, states.q[i])
            rotations, origins = exact_poses(kin, exact.q)
            assert np.allclose(floats(rotations[-1]), r[-1], atol=1e-13)
            assert np.allclose(floats(origins[-1]), p[-1], atol=1e-13)


def test_states_are_those_of_the_theorem():
    case = build_case(32, 1, {"fixed": SMALL | {"joints": 4, "errors": True, "tracking": "unequal"}})
    tube, gains = case.tube, case.gains
    rng = np.random.default_rng(0)
    x = tube.sample(rng, 500)
    times = rng.uniform(0.0, 1.3 * case.trajectory.duration, 500)
    s, d = tube.states(times, x), desired(case.trajectory, times)
    assert np.allclose(d[:, :3], np.stack([case.trajectory.state(t)[:3] for t in times]))
    e, de = d[:, 0] - s.q, d[:, 1] - s.qd
    room = 1.0 + 1e-9
    assert np.all(np.abs(e) <= gains.e_bound * room + 1e-15)
    assert np.all(np.abs(de) <= gains.de_bound * room + 1e-15)
    assert np.all(np.sum(((de + gains.K_r * e) / gains.r_bound) ** 2, axis=1) <= room + 1e-9)
    assert np.all(np.abs(s.q_m - s.q) <= gains.assumptions.position_error * room + 1e-15)
    assert np.all(np.abs(s.qd_m - s.qd) <= gains.assumptions.velocity_error * room + 1e-15)
    assert np.allclose(s.qd_a, d[:, 1] + gains.K_r * (d[:, 0] - s.q_m))
    assert np.allclose(s.r_m, s.qd_a - s.qd_m)


def test_nearest_points_are_points_of_the_bodies_and_nearest():
    rng = np.random.default_rng(3)
    for _ in range(300):
        a = rng.normal(size=(int(rng.integers(1, 9)), 3)) * rng.choice([0.0, 1e-3, 1.0], 3) + rng.normal(size=3) * 2
        b = rng.normal(size=(int(rng.integers(1, 9)), 3)) * rng.choice([0.0, 1.0], 3)
        u, v = np.empty(len(a)), np.empty(len(b))
        distance = nearest_points(a, b, u, v)
        assert min(u.min(), v.min()) >= 0.0
        assert np.allclose([u.sum(), v.sum()], 1.0)
        gap = u @ a - v @ b
        assert distance == pytest.approx(np.linalg.norm(gap), abs=1e-12)
        if distance > 1e-6:  # no other pair is nearer: the plane across the gap separates
            assert (a @ gap).min() - (b @ gap).max() >= distance**2 - 1e-7


def test_rounding_decides_nothing():
    """Claims one unit of the last digit too small are violations, claims that floats exceed by rounding are not."""
    third = mpmath.mpf(1) / 3
    above, below = float(np.nextafter(1.0 / 3.0, 1.0)), float(np.nextafter(1.0 / 3.0, 0.0))
    for claimed, found, broken in ((above, above + 1e-15, 0), (below, below - 1e-15, 1), (math.nan, 1.0, 0)):
        record = AttackRecord()
        record.check("x", np.array([claimed]), np.array([found]), lambda at: {"at": at[0]}, lambda _: third)
        assert record.broken == broken
    record = AttackRecord()
    record.check("x", np.array([1.0]), np.array([math.nan]), lambda at: {})
    assert record.broken == 1  # an attack that breaks down is no proof


# --- the command -----------------------------------------------------------------------------------------------------

#: Of trials whose arms have one or two joints.
SMALL_SEED = 809


def run_command(*arguments):
    return command_support.called(command, "reachability", *arguments)


@pytest.fixture
def here(monkeypatch):
    command_support.in_this_process(monkeypatch)


@pytest.mark.slow
def test_the_command_runs_goes_on_and_repeats(here, tmp_path, capsys):
    path = tmp_path / "r.json"
    assert run_command("--trials", 2, "--seed", SMALL_SEED, "--json", path) == 0
    assert run_command("--trials", 3, "--seed", SMALL_SEED, "--json", path, "--resume") == 0
    whole = json.loads(path.read_text())
    assert (whole["trials"], whole["violations"], whole["errors"]) == (3, 0, 0)
    assert whole["enclosures"] > 100
    assert whole["results"][2]["repeat"] == f"safe-sysid campaign reachability --seed {SMALL_SEED} --trial 2"
    capsys.readouterr()
    assert run_command("--trial", 2, "--seed", SMALL_SEED) == 0
    again = json.loads(capsys.readouterr().out)
    for result in (again, whole["results"][2]):
        result.pop("seconds")
        result.pop("repeat", None)
    assert again == whole["results"][2]


def test_violations_are_told_and_exit_with_one(here, monkeypatch, tmp_path, capsys):
    path = tmp_path / "r.json"
    seed = ("--seed", SMALL_SEED)
    assert run_command("--trials", 1, *seed, "--break", "radius", "--json", path) == 0  # what is looked for
    assert "noticed in" in capsys.readouterr().out
    assert json.loads(path.read_text())["results"][0]["repeat"].endswith("--break radius --trial 0")
    real = runner.run_chunk
    wrong = {"violations": [{"family": "torque", "claimed": 1.0, "found": 2.0, "symbols": [0.0]}], "broken": 1}
    monkeypatch.setattr(runner, "run_chunk", lambda campaign, indices: [r | wrong for r in real(campaign, indices)])
    assert run_command("--trials", 1, *seed) == 1
    text = capsys.readouterr().out
    assert f"--seed {SMALL_SEED} --trial 0" in text
    assert "symbols" not in text
