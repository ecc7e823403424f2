"""The robust law in C: equal to the package's own under attack, and silent where numbers are none."""

from __future__ import annotations

import ctypes
import shutil
import subprocess
from dataclasses import dataclass
from itertools import product
from pathlib import Path

import numpy as np
import pytest
from arm_factory import positions, random_arm
from identification_plant import geared
from test_generated_code import evaluate

from safe_sysid.cli import main
from safe_sysid.control.checks.start import judge_rest
from safe_sysid.control.gains import ControllerGains
from safe_sysid.control.gains.design import design_gains
from safe_sysid.control.laws import c_code
from safe_sysid.control.laws.c_code import FLAGS, drawn, examples, write_law
from safe_sysid.dynamics import dynamics_of
from safe_sysid.dynamics.generated.c_code import Graph
from safe_sysid.dynamics.generated.compiled import compiler_here
from safe_sysid.dynamics.generated.recursion import two_velocity_regressor
from safe_sysid.errors import ModelError
from safe_sysid.robot.loading import load_robot
from safe_sysid.robot.model import RobotModel

needs_compiler = pytest.mark.skipif(compiler_here() is None, reason="no C compiler on this machine")
TOLERANCE = 1e-12


@dataclass
class Written:
    """The files of an arm, and their library."""

    model: RobotModel
    gains: ControllerGains
    folder: Path
    library: ctypes.CDLL

    def step(self, box: np.ndarray, state: np.ndarray) -> tuple[int, np.ndarray]:
        """Flags, and torque, e, de, r, V and S in one array; the box as the C file takes it."""
        kept, out = np.zeros(2 * self.model.layout.size), np.full(4 * self.model.n + 2, 99.0)
        assert self.set_box(kept, *box) == 0
        rows = [at(np.ascontiguousarray(row)) for row in state]
        return self.library.law_step(at(kept), *rows, at(out)), out

    def set_box(self, kept: np.ndarray, lower: np.ndarray, upper: np.ndarray) -> int:
        return self.library.law_set_box(at(kept), at(np.ascontiguousarray(lower)), at(np.ascontiguousarray(upper)))


def at(array: np.ndarray) -> ctypes.c_void_p:
    # Arrays are alive as long as their caller's names are.
    return array.ctypes.data_as(ctypes.c_void_p)


@pytest.fixture(scope="module", params=["three_joint", pytest.param("kinova_gen3", marks=pytest.mark.slow)])
def written(request, tmp_path_factory):
    if compiler_here() is None:
        pytest.skip("no C compiler on this machine")
    model, folder = load_robot(request.param), tmp_path_factory.mktemp("law") / "made"
    gains = design_gains(model)
    assert write_law(model, gains, folder).startswith("ok: 8 states")
    library = folder / "law.so"
    # Other options than those of the self-test.
    command = [compiler_here(), "-std=c99", "-O1", "-Wall", "-Wextra", "-Werror", "-fPIC", "-shared"]
    subprocess.run([*command, "-o", str(library), str(folder / "law.c"), "-lm"], check=True)
    return Written(model, gains, folder, ctypes.CDLL(str(library)))


def differs(written, found, box, state) -> None:
    (expected,) = examples(written.model, written.gains, [box], [state])
    flags, out = found
    n = written.model.n
    assert flags == expected.flags
    np.testing.assert_allclose(out[3 * n : 4 * n], expected.r, rtol=TOLERANCE, atol=TOLERANCE)
    np.testing.assert_allclose(out[4 * n], expected.V, rtol=TOLERANCE)
    if not flags & FLAGS["ABOVE_V_MAX"]:
        np.testing.assert_allclose(out[4 * n + 1], expected.S, rtol=TOLERANCE)
    scale = max(1.0, float(np.abs(expected.torque).max()))
    np.testing.assert_allclose(out[:n], expected.torque, rtol=0.0, atol=TOLERANCE * scale)


def test_it_is_the_packages_law_at_random_states_and_boxes(written):
    rng = np.random.default_rng(0)
    seen = set()
    for box, state in zip(*drawn(written.model, written.gains, 150, rng, share=1.02), strict=True):
        state[4] *= rng.choice([1.0, 1.0, 30.0, 1000.0])
        found = written.step(box, state)
        differs(written, found, box, state)
        seen.add(found[0])
    # Torques at their limits and faults are among them, or nothing is said about these.
    assert {0, FLAGS["ABOVE_V_MAX"], FLAGS["UNPROVED"] | FLAGS["CLIPPED"]} <= seen


def test_it_is_the_packages_law_where_the_law_bends(written):
    """Point boxes, the whole prior, boxes of the smallest width, r = 0, friction's sign, far turns."""
    rng, model, prior = np.random.default_rng(1), written.model, written.gains.box
    n, width = model.n, model.friction_transition_velocity
    _, states = drawn(model, written.gains, 12, rng)
    point = np.tile(prior.mid, (2, 1))
    thin = np.array([prior.mid, np.nextafter(prior.mid, np.inf)])
    for state in states:
        calm = state.copy()
        calm[0], calm[1] = calm[2], calm[3]  # r = 0
        slow = state.copy()
        slow[3] = rng.choice([-1.0, -0.5, 0.0, 0.5, 1.0], n) * width
        slow[0], slow[1] = slow[2], slow[3]
        still = np.array([state[2], 0 * state[2], state[2], 0 * state[2], 0 * state[2]])
        far = state.copy()
        far[[0, 2]] += 2.0 * np.pi * np.where(model.sliding, 0.0, 1000.0)
        for case in (state, calm, slow, still, far):
            for box in (point, thin, np.array([prior.lower, prior.upper]), np.array([prior.upper, prior.upper])):
                differs(written, written.step(box, case), box, case)


def test_numbers_that_are_none_command_nothing(written):
    rng, n = np.random.default_rng(2), written.model.n
    boxes, states = drawn(written.model, written.gains, 3, rng)
    for box, state in zip(boxes, states, strict=True):
        for row, bad in product(range(5), (np.nan, np.inf, -np.inf)):
            broken = state.copy()
            broken[row, rng.integers(n)] = bad
            flags, out = written.step(box, broken)
            assert flags == FLAGS["BAD_INPUT"]
            assert np.all(out[:n] == 0.0)
            assert out[4 * n] == out[4 * n + 1] == np.inf
        for row, size in product(range(5), (1e7, 1e200, 1e308)):
            broken = state.copy()
            broken[row] = size * rng.choice([-1.0, 1.0], n)
            flags, out = written.step(box, broken)
            assert np.all(np.isfinite(out[:n]))
            faults = flags & (FLAGS["BAD_INPUT"] | FLAGS["ABOVE_V_MAX"])
            # An acceleration that is too large, but a number, is clipped and not claimed.
            assert faults or flags == FLAGS["CLIPPED"] | FLAGS["UNPROVED"]
            assert bool(faults) == bool(np.all(out[:n] == 0.0))
    spoiled = np.full(2 * written.model.layout.size, np.nan)
    out = np.empty(4 * n + 2)
    assert written.library.law_step(at(spoiled), *(at(row) for row in states[0]), at(out)) == FLAGS["BAD_INPUT"]
    assert np.all(out[:n] == 0.0)


def test_a_box_that_is_none_is_refused_and_the_one_before_is_kept(written):
    prior, rng = written.gains.box, np.random.default_rng(3)
    kept = np.zeros(2 * prior.size)
    assert written.set_box(kept, prior.lower, prior.upper) == 0
    before = kept.copy()
    for p in rng.integers(prior.size, size=20):
        wrong = [(bound, bad) for bound in range(2) for bad in (np.nan, np.inf, -np.inf)]
        for bound, value in [*wrong, (1, np.nextafter(prior.upper[p], np.inf))]:
            box = np.array([prior.lower, prior.upper])
            box[bound, p] = value
            assert written.set_box(kept, *box) == 1
    swapped, wide = np.array([prior.lower, prior.upper]), np.flatnonzero(prior.upper > prior.lower)[0]
    swapped[:, wide] = swapped[::-1, wide]
    assert written.set_box(kept, *swapped) == 1
    np.testing.assert_array_equal(kept, before)


def test_it_starts_where_the_controller_does(written):
    model, gains, rng = written.model, written.gains, np.random.default_rng(4)
    a, answers = gains.assumptions, []
    noise = a.velocity_error + gains.K_r * a.position_error
    low = np.where(np.isfinite(model.limits.position_lower), model.limits.position_lower, -4.0)
    high = np.where(np.isfinite(model.limits.position_upper), model.limits.position_upper, 4.0)
    for _ in range(200):
        q = np.array(rng.uniform(low - 0.01, high + 0.01))
        qd = np.array(rng.uniform(-1.0, 1.0, model.n) * rng.choice([0.0, 0.3, 3.0]) * gains.r_bound)
        reasons, _ = judge_rest(model, gains, noise, q, qd)
        assert written.library.law_why_not_start(at(q), at(qd)) == bool(reasons)
        answers.append(bool(reasons))
    assert {True, False} == set(answers)
    assert written.library.law_why_not_start(at(np.full(model.n, np.nan)), at(np.zeros(model.n))) == 1
    assert written.library.law_why_not_start(at(np.zeros(model.n)), at(np.full(model.n, np.nan))) == 1


def test_the_example_loop_is_the_law_until_a_fault(written):
    loop = written.folder / "loop"
    sources = [str(written.folder / name) for name in ("law.c", "law_loop.c")]
    options = ["-std=c99", "-O1", "-Wall", "-Werror"]
    subprocess.run([compiler_here(), *options, *sources, "-lm", "-o", str(loop)], check=True)
    model, prior, home = written.model, written.gains.box, np.array(written.model.settings.home)
    moving = np.linspace(0.0, 1.0, 20)[:, None] * np.minimum(written.gains.e_bound, 1e-3) * 0.3
    states = [np.array([home + x, 0 * home, home, 0 * home, 0 * home]) for x in moving]

    def run(given):
        text = "\n".join(" ".join(repr(float(x)) for x in state.ravel()) for state in given)
        return subprocess.run([str(loop)], input=text, capture_output=True, text=True, timeout=20, check=False)

    ran = run(states)
    assert ran.returncode == 0
    expected = examples(model, written.gains, [np.array([prior.lower, prior.upper])] * len(states), states)
    for line, example in zip(ran.stdout.splitlines(), expected, strict=True):
        numbers = [float(x) for x in line.split()]
        assert numbers[0] == example.flags
        np.testing.assert_allclose(numbers[3:], example.torque, rtol=TOLERANCE, atol=TOLERANCE * 100.0)
    broken = states[5].copy()
    broken[0, 1] = np.nan
    ran = run([*states[:5], broken, *states[6:]])
    assert ran.returncode == 1
    assert len(ran.stdout.splitlines()) == 6  # nothing after the fault
    assert "fault at tick 5: an input cannot be used" in ran.stderr
    fast = states[0].copy()
    fast[1] = 10.0
    assert "not started: moving" in run([fast]).stderr


@pytest.mark.parametrize("seed", range(6))
def test_the_regressor_is_the_recursions_on_arms_with_sliding_joints_and_geared_rotors(seed):
    rng = np.random.default_rng(seed)
    n = 1 + seed
    kin, _, _ = random_arm(n, rng, 0.4 * (seed % 2))
    kin = geared(rng, kin) if seed % 3 else kin
    graph = Graph()
    traced = [value for row in two_velocity_regressor(kin, graph) for value in row]
    (q,), (qd, qd_a, qdd) = positions(kin, rng, 1), rng.uniform(-2.0, 2.0, (3, n))
    expected = dynamics_of(kin).slotine_li_regressor(q, qd, qd_a, qdd)
    inputs = {}
    for name, vector in (("q", q), ("s", np.sin(q)), ("c", np.cos(q)), ("qd", qd), ("qdd", qdd), ("tau", qd_a)):
        inputs |= {f"{name}[{j}]": x for j, x in enumerate(vector)}
    found = evaluate(graph, traced, inputs).reshape(n, 11 * n)
    wanted = np.hstack([expected[:, : 10 * n], expected[:, 12 * n : 13 * n]])
    np.testing.assert_allclose(found, wanted, rtol=0.0, atol=1e-13 * max(1.0, float(np.abs(wanted).max())))


@needs_compiler
@pytest.mark.parametrize(
    ("right", "wrong"),
    [
        ("#define GAIN ", "#define GAIN 1.0001 * "),
        ("if (!good)\n        return LAW", "if (0)\n        return LAW"),
        *(
            pytest.param(*pair, marks=pytest.mark.slow)
            for pair in (
                ("good &= lower[p] >= law_prior_lower[p] &&", "good &="),
                ("lower[p] <= upper[p] &&", ""),
                ("&& upper[p] <= law_prior_upper[p]", "&& upper[p] < 1e300"),
                ("+ LEAD * qd[j]", ""),
                ("+ half[BETA + j];", ";"),
                ("= fabs(r[j]) > r_noise[j] ? fabs(r[j]) - r_noise[j] : 0.0", "= fabs(r[j])"),
                ("qd_a[j] = qd_d[j]", "qd_a[j] = qd[j]"),
                ("fabs(sign) * half[FC + j]", "2.0 * fabs(sign) * half[FC + j]"),
                ("CLIPPED : 0", "CLIPPED * 0 : 0"),
            )
        ),
    ],
)
def test_the_self_test_finds_what_is_wrong(tmp_path, monkeypatch, right, wrong):
    model = load_robot("three_joint")
    source = c_code.law_source(model, design_gains(model))
    assert right in source
    monkeypatch.setattr(c_code, "law_source", lambda *_: source.replace(right, wrong))
    monkeypatch.setattr(c_code, "_TICKS", 20)
    with pytest.raises(ModelError, match="self-test failed, nothing is written"):
        write_law(model, design_gains(model), tmp_path / "made")
    assert list(tmp_path.iterdir()) == []


@needs_compiler
def test_the_command_writes_it_and_compilers_that_drop_the_checks_are_refused(tmp_path, capsys):
    out = tmp_path / "made"
    assert main(["dynamics", "law", "three_joint", "--out", str(out)]) == 0
    said = capsys.readouterr().out
    assert "self-test: ok: 8 states" in said
    assert {path.name for path in out.iterdir()} == {"README.md", "law.c", "law.h", "law_loop.c", "law_test.c"}
    code = (out / "law.c").read_text()
    assert not any(heavy in code for heavy in ("malloc", "stdlib", "goto", "static double w"))
    for option in ("-ffast-math", "-ffinite-math-only"):
        command = [compiler_here(), option, "-c", str(out / "law.c"), "-o", str(tmp_path / "x.o")]
        ran = subprocess.run(command, capture_output=True, text=True, check=False)
        assert ran.returncode != 0
        assert "built without NaN" in ran.stderr
    assert main(["dynamics", "law", "three_joint", "--out", str(out)]) == 2
    assert "expected a directory that is empty" in capsys.readouterr().err
    shutil.rmtree(out)
    assert main(["dynamics", "law", "no_such_arm", "--out", str(out)]) == 2
    assert not out.exists()


def test_without_a_compiler_it_says_that_nothing_was_tested(tmp_path, monkeypatch):
    monkeypatch.setattr(c_code, "compiler_here", lambda: None)
    model = load_robot("three_joint")
    assert write_law(model, design_gains(model), tmp_path / "made") is None
    assert "The self-test has not been run" in (tmp_path / "made" / "README.md").read_text()


def test_a_branch_has_no_law_in_c():
    kin = load_robot("three_joint").kinematics
    with pytest.raises(ModelError, match="a branch in the arm"):
        two_velocity_regressor(kin._replace(parent=np.array([-1, 0, 0])), Graph())
