"""`safe-sysid realtime-check`: what is judged of two loops' times, and one run."""

from __future__ import annotations

import importlib.util

import numpy as np
import pytest
import yaml

from safe_sysid.cli import main
from safe_sysid.demo.realtime_check import BareLoop, TimingRecord, _tables, judge, theorem
from safe_sysid.robot.loading import load_robot

MS = 1_000_000
COUNT = 10_000


def quiet(seed: int = 0) -> TimingRecord:
    """Ten seconds in which nothing stalls."""
    rng = np.random.default_rng(seed)
    stamp = 1_795_476_900_000_000_000 + MS * np.arange(COUNT)
    delay = rng.uniform(2e-4, 4e-4, COUNT)
    return TimingRecord(stamp, delay, 1e-3 + delay, stamp + 30_000, np.full(COUNT, 3e-5), 0.0, "normal")


def stalled(timing: TimingRecord, at: np.ndarray, seconds: float, bare: float) -> TimingRecord:
    """The commands to some measurements come later, and the bare loop meanwhile, too, by so much."""
    timing.delay[at] += seconds
    timing.age[at] += seconds
    timing.bare_late[at + 1] += bare
    timing.bare_stamp[at + 1] += round(1e9 * bare)
    return timing


def test_a_machine_without_stalls_keeps_what_it_shows() -> None:
    found = judge(quiet(), 1.5e-3, 5e-4, 1e-3)
    assert found.later == 0.0
    assert (found.hold_max_s, found.delay_max_s) == (1.4e-3, 4e-4)
    assert found.command_timeout_s == pytest.approx(3e-3)
    # Another period is another age.
    slow = judge(quiet(), 2.5e-3, 5e-4, 2e-3)
    assert (slow.hold_max_s, slow.later) == (2.4e-3, 0.0)


@pytest.mark.parametrize(
    ("bare", "elsewhere", "share"),
    [(4e-3, 0.0, 1.0), (2.6e-3, 0.0, 1.0), (1e-3, 0.0, 0.0), (0.0, 0.0, 0.0), (0.0, 5e-3, 0.0)],
)
def test_stalls_that_both_loops_see_at_a_time_are_the_machines(bare: float, elsewhere: float, share: float) -> None:
    at = np.arange(500, COUNT - 500, 200)
    timing = stalled(quiet(), at, 5e-3, bare)
    timing.bare_late[at + 50] += elsewhere
    found = judge(timing, 1.5e-3, 5e-4, 1e-3)
    assert found.later == pytest.approx(len(at) / COUNT)
    assert found.of_the_machine == share
    assert found.longest[0] == pytest.approx(6.4e-3, abs=2e-4)
    # Half a per cent is no reason to declare more.
    assert (found.hold_max_s, found.delay_max_s) == (1.4e-3, 4e-4)
    assert found.command_timeout_s >= 2.0 * found.longest[0]


def test_a_little_late_is_not_the_machines_because_every_loop_is_a_little_late() -> None:
    timing = quiet()
    timing.bare_late[:] = 4e-5
    found = judge(timing, 1.5e-3, 2.9e-4, 1e-3)
    assert 0.4 < found.later < 0.7
    assert found.of_the_machine == 0.0


@pytest.mark.parametrize("seed", range(5))
def test_of_what_can_be_declared_at_most_two_per_cent_come_later(seed: int) -> None:
    rng = np.random.default_rng(seed)
    timing = quiet(seed)
    timing.delay[:] = rng.lognormal(np.log(4e-4), 0.8, COUNT)
    timing.age[:] = 1e-3 + timing.delay + rng.exponential(2e-4, COUNT)
    found = judge(timing, 1.5e-3, 5e-4, 1e-3)
    again = judge(timing, found.hold_max_s, found.delay_max_s, 1e-3)
    assert again.later <= 0.02 < found.later
    assert found.hold_max_s >= 1e-3 + found.delay_max_s - 1e-12
    load_robot("kinova_gen3", **{"timing": found.settings(1e-3)})  # a file takes it
    assert (again.hold_max_s, again.delay_max_s) == (found.hold_max_s, found.delay_max_s)


def test_the_theorem_is_asked_with_a_timing() -> None:
    assert "V_max" in theorem("three_joint", None)
    slow = {"timing": {"period_s": 1e-3, "hold_max_s": 0.01, "delay_max_s": 5e-3}}
    assert theorem("three_joint", slow).startswith("no tracking bound: no tracking bound exists")


def test_the_bare_loop_wakes_up_every_millisecond() -> None:
    with BareLoop(0.05) as bare:
        pass
    assert len(bare.stamp) == 50
    assert np.all(np.diff(bare.stamp) > 0)
    assert bare.stamp[-1] - bare.stamp[0] > 40 * MS
    assert np.all(bare.late >= 0.0)


def test_what_cannot_be_measured_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["realtime-check", "--seconds", "0"]) == 2
    assert main(["realtime-check", "--robot", "no_such_arm", "--seconds", "1"]) == 2
    assert "no_such_arm" in capsys.readouterr().err


@pytest.mark.slow
@pytest.mark.ros
@pytest.mark.skipif(importlib.util.find_spec("rclpy") is None, reason="ROS 2 is not installed")
def test_a_run_is_measured_and_written(tmp_path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "timing.yaml"
    assert main(["realtime-check", "--seconds", "2", "--out", str(out)]) in (0, 1)
    said = capsys.readouterr().out
    for words in ("bare loop wakes up late", "measurement to command", "can be declared", f"wrote {out}"):
        assert words in said
    timing = yaml.safe_load(out.read_text())["timing"]
    assert timing["hold_max_s"] >= timing["period_s"] + timing["delay_max_s"] - 1e-12


def test_both_loops_are_shown_by_bins() -> None:
    timing = stalled(quiet(), np.arange(500, COUNT - 500, 200), 5e-3, 4e-3)
    _, bins = _tables(timing)
    names = [column.header for column in bins.columns[1:]]
    rows = list(zip(*(column.cells for column in bins.columns[1:]), strict=True))
    assert len(rows) == 3
    for row in rows:
        assert sum(float(cell or 0.0) for cell in row) == pytest.approx(1000.0)
    assert float(rows[0][names.index("5")]) == pytest.approx(4.5), "the bare loop's stalls"
    assert float(rows[1][names.index("10")]) == pytest.approx(4.5), "and ours at the same times"
