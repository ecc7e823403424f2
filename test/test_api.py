"""`import safe_sysid`: what scripts call does what the commands do, and the examples run."""

from __future__ import annotations

import json
import os
import runpy
import sys
from pathlib import Path

import numpy as np
import pytest

import safe_sysid

ROOT = Path(__file__).resolve().parents[1]
SCRIPTS = sorted((ROOT / "examples").glob("*.py"))
NOTEBOOKS = sorted((ROOT / "examples").glob("*.ipynb"))


@pytest.fixture(scope="module")
def run() -> safe_sysid.Run:
    """A small arm that has driven one exciting trajectory."""
    return safe_sysid.simulate(safe_sysid.load_arm("three_joint"), plans=1)


@pytest.fixture(scope="module")
def found(run: safe_sysid.Run, tmp_path_factory: pytest.TempPathFactory) -> safe_sysid.Intervals:
    """Its log, identified, with certificates."""
    return safe_sysid.identify(run.arm, run.log, folder=tmp_path_factory.mktemp("api") / "found")


def test_every_name_is_there_and_says_what_it_is() -> None:
    for name in safe_sysid.__all__:
        assert getattr(safe_sysid, name).__doc__
        assert name in dir(safe_sysid)
    with pytest.raises(AttributeError, match=r"identfy.*expected one of.*identify"):
        _ = safe_sysid.identfy  # type: ignore[attr-defined]


def test_a_simulated_run_is_judged_by_the_truth(run: safe_sysid.Run) -> None:
    assert run.bounds_held
    assert run.wrong == ()
    low, estimate, high = run.found.payload_mass
    assert low <= estimate <= high
    prior = run.arm.prior
    assert np.all(run.found.upper - run.found.lower <= prior.upper - prior.lower)
    assert run.found.upper[0] - run.found.lower[0] < 0.5 * (prior.upper[0] - prior.lower[0])
    broken = safe_sysid.Run(run.arm, run.log, run.found, run.found.upper + 1e-6, ("1 torque violations",), run.planned)
    assert not broken.bounds_held
    assert "BOUNDS FAILED" in repr(broken)
    assert "1 torque violations" in repr(broken)


def test_what_is_written_is_proved_and_forgeries_are_not(run: safe_sysid.Run, found: safe_sysid.Intervals) -> None:
    assert np.all((found.lower <= run.truth) & (run.truth <= found.upper))
    assert found.folder is not None
    verdict = safe_sysid.verify(found.folder)
    assert verdict
    assert str(verdict).startswith("PASS")
    assert "assumed: " in verdict.text
    result = found.folder / "result.json"
    written = result.read_text()
    forged = json.loads(written)
    forged["parameters"][0]["lower"] += 1e-3
    result.write_text(json.dumps(forged))
    assert not safe_sysid.verify(found.folder)
    result.write_text(written)


@pytest.mark.slow
def test_a_log_that_contradicts_is_an_error(run: safe_sysid.Run) -> None:
    m = run.log.measurements
    log = safe_sysid.log_from_arrays(run.arm, m.stamps, m.q, m.qd, m.effort + 3.0 * np.sin(50.0 * m.stamps)[:, None])
    with pytest.raises(safe_sysid.SafeSysIdError, match=r"empty set|expected"):
        safe_sysid.identify(run.arm, log, force=True)


@pytest.mark.slow
def test_motions_are_certified_for_what_was_found(found: safe_sysid.Intervals, tmp_path: Path) -> None:
    arm = found.arm
    goal = arm.home + 0.3
    motion = safe_sysid.plan(arm, goal, payload=found)
    assert motion.reached
    times = np.linspace(0.0, motion.duration, 2001)
    states = motion.at(times)
    np.testing.assert_allclose(states[0, 0], arm.home, atol=1e-9)
    np.testing.assert_allclose(states[-1, 0], goal, atol=0.02)
    slopes = np.gradient(states[:, 0], times, axis=0)
    assert np.abs(slopes - states[:, 1])[1:-1].max() < 1e-3
    assert safe_sysid.verify(motion.save(tmp_path / "moved"), scene="open").text.count("proved") >= len(motion.plans)
    rest = 0.0 * goal
    slow = safe_sysid.certify(arm, [0, 3], [[arm.home, rest, rest], [goal, rest, rest]], payload=found)
    fast = safe_sysid.certify(arm, [0, 0.1], [[arm.home, rest, rest], [goal, rest, rest]], payload=found)
    assert slow
    assert not fast
    assert "torque" in fast.text


def test_what_people_see_is_short(run: safe_sysid.Run, found: safe_sysid.Intervals) -> None:
    motion = safe_sysid.Motion(run.arm, run.planned)
    for thing in (run.arm, run.found, found, motion, run):
        assert "\n" not in repr(thing)
        assert len(repr(thing)) < 250
    assert len(str(found).splitlines()) == 11


def test_what_cannot_be_used_is_said(run: safe_sysid.Run) -> None:
    estimate = safe_sysid.identify(run.arm, run.log, method="ols")
    assert not estimate.guaranteed
    with pytest.raises(safe_sysid.SafeSysIdError, match="expected intervals that are guaranteed"):
        safe_sysid.plan(run.arm, run.arm.home, payload=estimate)
    with pytest.raises(safe_sysid.SafeSysIdError, match="torque_ab"):
        safe_sysid.load_arm("three_joint", measurement__torque_ab=1.0)


def test_examples_are_short() -> None:
    assert len(SCRIPTS) >= 7
    assert len(NOTEBOOKS) >= 1
    for script in SCRIPTS:
        assert len(script.read_text(encoding="utf-8").splitlines()) < 15, script.name


@pytest.mark.slow
@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.stem)
def test_an_example_runs(
    script: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    words = [str(script)]
    if script.stem == "identify_log":
        from safe_sysid.logs.formats.npz import write_log

        log = safe_sysid.simulate(safe_sysid.load_arm("three_joint"), plans=1).log
        write_log(tmp_path / "log.npz", log.joint_names, log.measurements, log.origin_ns)
        words += ["log.npz", "three_joint"]
    monkeypatch.setattr(sys, "argv", words)
    runpy.run_path(str(script), run_name="__main__")
    printed = capsys.readouterr().out
    assert 0 < len(printed.splitlines()) < 40


@pytest.mark.slow
@pytest.mark.parametrize("notebook", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_runs_and_keeps_no_outputs(notebook: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setitem(os.environ, "MPLBACKEND", "Agg")
    names: dict[str, object] = {"__name__": "__main__"}
    for cell in json.loads(notebook.read_text(encoding="utf-8"))["cells"]:
        if cell["cell_type"] == "code":
            assert cell["outputs"] == []
            exec(compile("".join(cell["source"]), f"{notebook.name}:{cell['id']}", "exec"), names)
