"""C files of an arm: pseudo-symbolic code, what is chosen, the self-test, and what happens when something fails."""

from __future__ import annotations

import errno
import os
import subprocess

import numpy as np
import pytest
from test_generated_models import random_arm

from safe_sysid.apps.generate import arm_of
from safe_sysid.cli import main
from safe_sysid.dynamics import dynamics_of
from safe_sysid.dynamics.generated import files, making
from safe_sysid.dynamics.generated.backend import drawn_parameters
from safe_sysid.dynamics.generated.c_code import GraphValue
from safe_sysid.dynamics.generated.chain import dh_kinematics
from safe_sysid.dynamics.generated.choice import candidates
from safe_sysid.dynamics.generated.derive import derive
from safe_sysid.dynamics.generated.factored import FactoredArm
from safe_sysid.dynamics.generated.making import ArmToGenerate, derived, generate
from safe_sysid.errors import ModelError
from safe_sysid.studies.experiments.psdm.arms import PSDM_ARMS

pytestmark = pytest.mark.unproved


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.delenv("CC", raising=False)


def evaluate(graph, values, inputs):
    """What traced values are, by walking the graph."""
    known = []
    for key in graph.nodes:
        if key[0] == "v":
            known.append(inputs.get(key[1], np.nan))
        elif key[0] == "k":
            known.append(key[1])
        else:
            a, b = known[key[1]], known[key[2]]
            known.append({"+": a + b, "-": a - b, "*": a * b, "/": a / b if key[0] == "/" else 0.0}[key[0]])
    return np.array([v.sign * known[v.index] if isinstance(v, GraphValue) else v for v in values])


@pytest.mark.parametrize("seed", range(3))
def test_pseudo_symbolic_code_is_the_recursion_of_pinocchio(seed):
    rng = np.random.default_rng(300 + seed)
    n = 2 + seed % 3
    kin = random_arm(rng, n)
    model, theta = derive(kin), drawn_parameters(n, rng)
    theta[12 * n : 13 * n] = 0.0
    found, theirs = candidates(model, False), dynamics_of(kin, "pinocchio")
    q, qd, qdd = rng.uniform(-2, 2, (3, n))
    torque = theirs.inverse_dynamics(theta, q, qd, qdd)
    inputs = {f"b[{k}]": x for k, x in enumerate(model.base_parameters(theta))}
    for name, vector in (("q", q), ("s", np.sin(q)), ("c", np.cos(q)), ("qd", qd), ("qdd", qdd), ("tau", torque)):
        inputs |= {f"{name}[{j}]": x for j, x in enumerate(vector)}
    expected = {
        "inverse": torque,
        "gravity": theirs.gravity(theta, q),
        "induced": theirs.inverse_dynamics(theta, q, qd, np.zeros(n)),
        "mass": theirs.mass_matrix(theta, q).ravel(),
        "regressor": model.regressor(q, qd, qdd).ravel(),
        "forward": qdd,
    }
    for (function, method), values in found.values.items():
        got, scale = evaluate(found.graph, values, inputs), np.abs(expected[function]).max() + 1e-6
        assert np.abs(got - expected[function]).max() < 1e-9 * scale, (function, method)


@pytest.mark.parametrize(
    ("name", "multiplications", "additions", "share"),
    [("kr6", 6043, 4142, 7), ("lbr7", 18387, 13981, 16), ("sr6ia", 126, 84, 2)],
)
def test_common_factors_take_a_fraction_of_the_papers_operations(name, multiplications, additions, share):
    arm = FactoredArm(derive(PSDM_ARMS[name].kinematics()))
    count = arm.graph.count([v for v in arm.torque(arm.qd, arm.qdd) if isinstance(v, GraphValue)])
    assert count.multiplications * share <= multiplications
    assert count.additions * share <= additions


def scara(tmp_path):
    path = tmp_path / "scara.csv"
    path.write_text("# kind,theta,d,a,alpha\nrevolute,0,0.16,0.35,0\nprismatic,0,0,0.3,0\nrevolute,0,0,0,0.5\n")
    return path


def test_files_compile_and_their_self_test_tells_right_from_wrong(tmp_path, capsys):
    out = tmp_path / "made"
    words = ["dynamics", "generate", str(scara(tmp_path)), "--out", str(out), "--name", "small", "--friction"]
    assert main(words) == 0
    said = capsys.readouterr().out
    assert "3 joints" in said
    assert said.count("ok  ") == 6
    names = {"small.c", "small.h", "small_test.c", "README.md"}
    assert {path.name for path in out.iterdir()} == names
    assert "Joints that slide: 2" in (out / "README.md").read_text()
    assert "Fv_2" in (out / "README.md").read_text()

    def test(text):
        (tmp_path / "small.c").write_text(text)
        command = ["cc", "-std=c99", "-pedantic", "-Wall", "-Wextra", "-Werror", f"-I{out}", str(tmp_path / "small.c")]
        subprocess.run([*command, str(out / "small_test.c"), "-lm", "-o", str(tmp_path / "t")], check=True)
        return subprocess.run([str(tmp_path / "t")], capture_output=True, text=True, check=False)

    code = (out / "small.c").read_text()
    for heavy in ("malloc", "#include <", "if (", "goto"):
        assert heavy not in code
    assert test(code).returncode == 0
    start = code.index("static void one_mass")
    broken = test(code[:start] + code[start:].replace(" * ", " + ", 1))
    assert broken.returncode == 1
    assert "FAIL mass" in broken.stdout


def test_nominal_parameters_of_a_robot_are_in_the_code(tmp_path):
    arm = arm_of("three_joint", friction=True)
    made = generate(arm, tmp_path / "made")
    code = (tmp_path / "made" / "arm.c").read_text()
    first = made.model.base_parameters(arm.theta)[0]
    assert f"const double arm_nominal[{made.model.l + 9}] = {{{float(first)!r}," in code
    assert set(made.chosen.values()) <= {"psdm", "recursion"}
    for (function, method), seconds in made.seconds.items():
        assert made.seconds[function, made.chosen[function]] <= seconds, (function, method)


def nothing_written(tmp_path):
    return not (tmp_path / "made").exists() and not list(tmp_path.glob(".made*"))


@pytest.mark.parametrize(
    ("compiler", "said"), [("/bin/false", "failed with status 1"), ("/no/such/compiler", "does not run")]
)
def test_a_compiler_that_fails_leaves_nothing(compiler, said, tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("CC", compiler)
    assert main(["dynamics", "generate", str(scara(tmp_path)), "--out", str(tmp_path / "made")]) == 2
    assert said in capsys.readouterr().err
    assert nothing_written(tmp_path)


def test_without_a_compiler_operations_decide(tmp_path, monkeypatch):
    monkeypatch.setattr(making, "compiler_here", lambda: None)
    made = generate(arm_of(str(scara(tmp_path))), tmp_path / "made")
    assert made.tested is None
    assert made.chosen == made.found.fewest()
    assert "has not been run: there was no compiler" in (tmp_path / "made" / "README.md").read_text()


def test_a_full_disk_and_a_self_test_that_fails_leave_nothing(tmp_path, monkeypatch):
    arm = arm_of(str(scara(tmp_path)))

    def full(*_):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patch:
        patch.setattr(files.os, "replace", full)
        # The cache cannot take the library either, and says so.
        with pytest.warns(UserWarning, match="not kept in"), pytest.raises(ModelError, match="No space left"):
            generate(arm, tmp_path / "made")
    assert nothing_written(tmp_path)
    right = making._expected
    monkeypatch.setattr(making, "_expected", lambda *a: right(*a) | {"mass": 1.0 + right(*a)["mass"]})
    with pytest.raises(ModelError, match="self-test failed, nothing is written"):
        generate(arm, tmp_path / "made")
    assert nothing_written(tmp_path)


def test_a_directory_with_files_and_tables_that_are_wrong_are_refused(tmp_path, capsys):
    path = scara(tmp_path)
    assert main(["dynamics", "generate", str(path), "--out", str(tmp_path)]) == 2
    assert "expected a directory that is empty" in capsys.readouterr().err
    for text, said in (("hinge,0,0,0,0\n", "line 1"), ("", "no joints"), ("revolute,0,0,nan,0\n", "line 1")):
        path.write_text(text)
        assert main(["dynamics", "generate", str(path), "--out", str(tmp_path / "made")]) == 2
        assert said in capsys.readouterr().err
    assert nothing_written(tmp_path)


def test_more_than_eight_joints_are_told_what_they_cost(monkeypatch):
    rng = np.random.default_rng(0)
    kin = random_arm(rng, 9)
    monkeypatch.setattr(making, "predicted", lambda _: (12.0, 3.4))
    with pytest.raises(ModelError, match=r"9 joints: the derivation will take some 12 s and 3.4 GB; .* --yes"):
        derived(ArmToGenerate("long", kin))
    with pytest.raises(ModelError, match="a branch"):
        derived(ArmToGenerate("tree", kin._replace(parent=np.array([-1, 0, 0, 2, 3, 4, 5, 6, 7]))))


@pytest.mark.slow
def test_what_is_predicted_for_nine_joints_is_right_within_a_factor_of_four():
    table = np.array(PSDM_ARMS["lbr7"].table * 2)[:9]
    kin, _ = dh_kinematics(table, np.zeros(9, bool), np.array([0.0, 0.0, -9.81]))
    seconds, memory = making.predicted(kin)
    model, took = derived(ArmToGenerate("long", kin), yes=True)
    assert model.n == 9
    assert 0.25 * took < seconds < 8.0 * took
    assert memory < 1.0


def test_the_name_of_a_strangers_arm_stays_in_its_comment(tmp_path):
    """Reviewed: `*/` in a robot's name ended the comment, and what followed ran in the self-test."""
    table = np.array([[0, 0.1, 0.3, 0]])
    kin, _ = dh_kinematics(table, np.array([False]), np.array([0, 0, -9.81]))  # of one joint, too
    made = generate(ArmToGenerate("a */ int main(void) { return 0; } /*", kin), tmp_path / "c")
    assert made.model.p > 0
    assert "*/ int" not in (tmp_path / "c" / "arm.h").read_text()


def test_a_compiler_with_options_and_a_cache_that_cannot_be_read(tmp_path, monkeypatch):
    monkeypatch.setenv("CC", "cc -O1")
    kin = PSDM_ARMS["two_link"].kinematics()
    dynamics_of(kin, "generated")
    (kept,) = (tmp_path / "cache" / "safe_sysid" / "dynamics").glob("*.so")
    kept.unlink()
    kept.mkdir()  # root can read any file
    with pytest.warns(UserWarning, match="cannot be read"):
        dynamics_of(kin, "generated")


def test_what_a_compiler_made_must_be_a_library(tmp_path, monkeypatch):
    fake = tmp_path / "cc"
    fake.write_text('#!/bin/sh\nwhile [ "$1" != -o ]; do shift; done\necho garbage > "$2"\n')
    fake.chmod(0o755)
    monkeypatch.setenv("CC", str(fake))
    with pytest.warns(UserWarning, match="cannot be loaded"):
        dynamics_of(PSDM_ARMS["two_link"].kinematics(), "generated")
    assert not list((tmp_path / "cache").rglob("*.so"))
