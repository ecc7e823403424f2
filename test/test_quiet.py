"""Nothing new to learn: no programs, no boxes, no certificates, no journal, no lines; and logs that end."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from certificate_support import verdicts
from identification_plant import exciting_plans, noisy, simulate

from safe_sysid.dynamics import dynamics_of
from safe_sysid.identification.equations.measurement_errors import MeasurementErrors
from safe_sysid.identification.equations.measurements import Measurements
from safe_sysid.identification.identifier import Identifier, UpdateStatus
from safe_sysid.logs.bags.bag_bounds import PublishedBounds, compare_bounds
from safe_sysid.logs.formats.npz import read_log
from safe_sysid.logs.online.rest_filter import RestFilter
from safe_sysid.logs.online.rows import GrowingRows
from safe_sysid.logs.online.session import IdentifierSession
from safe_sysid.nodes.common.output import LogPauses
from safe_sysid.robot import RobotModel, load_robot
from safe_sysid.simulation import draw_truth, dumbbell

PIECE = 0.25  # s


@pytest.fixture(scope="module")
def theta(model: RobotModel) -> np.ndarray:
    return draw_truth(model, dumbbell(6), np.random.default_rng(0), "uniform")


def rest(
    model: RobotModel, theta: np.ndarray, begin: float, seconds: float, seed: int, mode: str = "uniform"
) -> Measurements:
    """An arm that holds still at home, measured with noise."""
    count = round(1000 * seconds)
    q, zero = np.tile(model.settings.home, (count, 1)), np.zeros((count, model.n))
    effort = dynamics_of(model.kinematics).torque_regressor(q[:1], zero[:1], zero[:1])[0] @ theta
    stamps = begin + 1e-3 * np.arange(1, count + 1)
    rng = np.random.default_rng(seed)
    share = {
        "uniform": rng.uniform(-1.0, 1.0, (count, model.n)),
        "random_sign": rng.choice([-1.0, 1.0], (count, model.n)),
        "constant": np.ones((count, model.n)),
    }[mode]
    return Measurements(stamps, q, zero, effort + share * (0.05 + 0.025 * np.abs(effort)))


@functools.cache
def simulated(payload: int, seed: int) -> Any:
    """A motion from home and back to rest, without errors of measurement."""
    model, rng = load_robot("kinova_gen3"), np.random.default_rng(seed)
    plans = exciting_plans(np.array(model.settings.home), rng, n_plans=1, t_f=2.0, t_p=1.0)
    truth = draw_truth(model, dumbbell(payload), np.random.default_rng(0), "uniform")
    return simulate(model.kinematics, truth, model.friction_transition_velocity, plans, rng=rng, chatter=0.5)


def motion(payload: int = 6, seed: int = 1, noise: int = 0, begin: float = 0.0) -> Measurements:
    data = noisy(simulated(payload, seed), 0.05, 0.025, np.random.default_rng(noise), "uniform")
    return Measurements(data.stamps + begin, data.q, data.qd, data.effort)


def pieces(data: Measurements) -> list[Measurements]:
    step = round(1000 * PIECE)
    return [data[k : k + step] for k in range(0, len(data), step)]


def give(session: IdentifierSession, data: Measurements, updates: bool = True) -> None:
    """Piece by piece, an update after each."""
    for piece in pieces(data):
        session.take(piece)
        if updates:
            session.update()


def test_an_arm_that_rests_for_ever_is_taken_in_for_some_seconds(model: RobotModel, theta: np.ndarray) -> None:
    gate = RestFilter(model, MeasurementErrors.from_model(model), 5.0)
    for seed, mode in enumerate(("uniform", "random_sign", "constant")):
        gate.forget()
        taken = sum(gate.is_new(piece) for piece in pieces(rest(model, theta, 0.0, 60.0, seed, mode)))
        assert 5.0 <= taken * PIECE <= 5.5, mode
    # Another load, a shove and a slow drift are news, each for as long again.
    lighter = draw_truth(model, dumbbell(4), np.random.default_rng(0), "uniform")
    assert sum(gate.is_new(piece) for piece in pieces(rest(model, lighter, 60.0, 60.0, 9))) * PIECE >= 5.0
    shoved, one = rest(model, lighter, 120.0, PIECE, 10), np.arange(round(1000 * PIECE))[:, None] == 100
    assert gate.is_new(Measurements(shoved.stamps, shoved.q, shoved.qd + 0.1 * one, shoved.effort))
    still = rest(model, lighter, 121.0, 20.0, 11)
    drift = 2e-4 * (still.stamps - 121.0)[:, None]  # 4 mrad in all
    drifted = Measurements(still.stamps, still.q + drift, still.qd, still.effort)
    assert sum(gate.is_new(piece) for piece in pieces(drifted)) * PIECE > 10.0
    # What cannot be used is passed on: others count and tell it.
    broken = rest(model, lighter, 141.0, PIECE, 12)
    assert gate.is_new(Measurements(broken.stamps, broken.q, broken.qd, np.where(one, np.nan, broken.effort)))


@pytest.mark.slow
def test_a_converged_session_at_rest_does_nothing_at_all(model: RobotModel, theta: np.ndarray, tmp_path: Path) -> None:
    """Reviewed: three processes burnt a core and a half for ever, 0.5 GB of logs in 14 minutes."""
    entries: list[str] = []
    folders = {"certificates": tmp_path, "log_directory": tmp_path}
    session = IdentifierSession(model, "lp", **folders, tell=entries.append, rest_s=2.0, log_s=60.0)
    give(session, motion())
    box = session.core.box
    assert box.seq >= 3

    def stand(begin: float, seconds: float) -> tuple[int, int, int, int]:
        for k, piece in enumerate(pieces(rest(model, theta, begin, seconds, int(begin)))):
            session.take(piece)
            if k % 2:
                session.update()
        work = session.core._set._solver.programs.work
        return len(entries), len(list(tmp_path.iterdir())), work, session.samples

    first = stand(3.0, 5.0)
    assert stand(8.0, 30.0) == first
    assert session.core.box.contains(theta)
    # Whatever happens next is seen, and proved.
    give(session, motion(seed=4, begin=70.0))
    assert session.samples > first[3]
    assert session.core.box.contains(theta)
    assert session.core.box.is_inside(box)
    # A payload that is lost while the arm rests is a contradiction, though rests are left out.
    lighter = draw_truth(model, dumbbell(4), np.random.default_rng(0), "uniform")
    stand(80.0, 10.0)
    give(session, rest(model, lighter, 90.0, 3.0, 3), updates=False)
    assert session.update().status is UpdateStatus.EMPTY_SET
    count = len(entries)
    give(session, rest(model, lighter, 93.0, 10.0, 3))
    assert len(entries) <= count + 8  # the samples of its first seconds


def test_certificates_across_a_rest_that_was_left_out_are_proved(
    model: RobotModel, theta: np.ndarray, tmp_path: Path
) -> None:
    """The log that they name has a gap there, as where messages were lost."""
    session = IdentifierSession(model, "lp", certificates=tmp_path, log_directory=tmp_path, rest_s=0.5, log_s=60.0)
    parts = [motion()[:750], rest(model, theta, 1.0, 6.0, 5), motion(seed=4, begin=7.5)[:750]]
    for part in parts:
        give(session, part, updates=False)
        session.update()
    session.close()
    assert session.samples < sum(map(len, parts)) - 4000
    data = read_log(tmp_path / "log.npz").measurements
    paths = sorted(tmp_path.glob("certificate_0_*.json"))
    assert len(paths) >= 2
    assert all(verdict.passed for verdict in verdicts(model, paths, data))


@pytest.mark.parametrize("payload", [6, 4])
def test_the_end_of_an_epoch_tells_what_its_last_samples_prove(
    model: RobotModel, theta: np.ndarray, tmp_path: Path, payload: int
) -> None:
    """Its certificate, or a contradiction that takes all of them back, was in no record of the node."""
    session = IdentifierSession(model, "lp", certificates=tmp_path, log_directory=tmp_path)
    give(session, motion()[:900], updates=False)
    first = session.update()
    give(session, motion(payload, seed=4, begin=1.0)[:900], updates=False)
    last = session.close()
    assert last is not None
    if payload == 6:
        assert last.status is UpdateStatus.OK
        assert last.box.is_inside(first.box)
        assert last.box.contains(theta)
        names = [f"certificate_0_{box.seq:05d}.json" for box in (first.box, last.box)]
        assert sorted(path.name for path in tmp_path.glob("certificate_*.json")) == names
    else:
        assert last.status is UpdateStatus.EMPTY_SET
        assert not list(tmp_path.glob("certificate_*"))
        assert (tmp_path / "withdrawn_0.json").exists()


def test_a_full_log_takes_in_no_more_and_the_bounds_stand(model: RobotModel, tmp_path: Path) -> None:
    data = motion()
    session = IdentifierSession(model, "lp", log_directory=tmp_path, rest_s=2.0, log_s=0.5)
    unlimited = IdentifierSession(model, "lp", rest_s=2.0, log_s=0.5)  # nothing is kept for a log
    give(session, data, updates=False)
    give(unlimited, data, updates=False)
    assert session.log_is_full
    assert session.samples == 500
    assert unlimited.samples == len(data)
    assert not unlimited.log_is_full
    assert session.update().status is UpdateStatus.OK
    session.reset(1)
    assert not session.log_is_full


@pytest.mark.slow
def test_a_motion_that_says_nothing_new_is_answered_without_a_program(model: RobotModel, theta: np.ndarray) -> None:
    """Fresh noise is news, and takes its time to be none; the same four measurements again and again are not."""
    identifier = Identifier(model, method="lp")
    worked, published = [], []
    for k in range(28):
        identifier.add(motion(noise=k % 4, begin=10.0 * k)[:700])
        before = identifier._set._solver.programs.work
        status = identifier.update().status
        assert status in (UpdateStatus.OK, UpdateStatus.NO_DATA)
        worked.append(identifier._set._solver.programs.work > before)
        published.append(status is UpdateStatus.OK)
        assert identifier.box.contains(theta)
        assert len(identifier._set) <= 4500
    assert sum(worked[:4]) >= 1
    assert sum(worked[20:]) <= 2
    assert sum(published[20:]) <= 1
    identifier.add(motion(payload=4, begin=1000.0)[:700])
    assert identifier.update().status is UpdateStatus.EMPTY_SET


def test_lines_that_repeat_grow_rare_and_begin_anew_after_a_silence() -> None:
    pauses, day = LogPauses(), 86_400
    written = [t for t in np.arange(0.0, 3600.0, 0.1) if pauses.is_due("plan: stale", float(t))]
    assert written[:4] == pytest.approx([0.0, 1.0, 3.0, 7.0], abs=0.11)
    assert len(written) <= 70
    assert np.diff(written)[10:] == pytest.approx(60.0, abs=0.2)
    assert pauses.is_due("another", 3600.0)
    assert not pauses.is_due("plan: stale", 3600.5)
    assert pauses.is_due("plan: stale", float(day))
    assert pauses.is_due("plan: stale", day + 1.1)


@pytest.mark.parametrize("most", [1000, 5000])
def test_rows_beyond_the_most_are_the_oldest(most: int) -> None:
    rows, count, width = GrowingRows(9, most), 40_000, 9
    for k in range(count):
        rows.new()[:] = k
        if k == 20_000:
            rows.array()  # somebody looked
        assert len(rows) + rows.forgotten == k + 1
    kept = rows.array()
    block = (1 << 16) // (8 * width)
    assert most <= len(kept) <= most + 2 * block + 1
    np.testing.assert_array_equal(kept[:, 0], np.arange(count - len(kept), count))


def test_bounds_that_are_told_again_are_no_difference_and_changed_ones_are(model: RobotModel) -> None:
    """Lock-step waits for an answer to every batch: one that nothing was learnt from is not in the journal."""
    prior = model.arm_prior
    values = np.stack([prior.lower, prior.mid, prior.upper])
    expected = [PublishedBounds("0:0", None, values, sure=False), PublishedBounds("0:1", 3, 0.5 * values)]
    told = [PublishedBounds("0:0", batch, values) for batch in (1, 2)]
    told += [PublishedBounds("0:1", batch, 0.5 * values) for batch in (3, 4, 5)]
    assert compare_bounds(expected, told) == []
    changed = 0.5 * values
    changed[0, 7] = np.nextafter(changed[0, 7], 1.0)
    for foreign in (PublishedBounds("0:1", 6, changed), PublishedBounds("0:2", 6, 0.5 * values)):
        (line,) = compare_bounds(expected, [*told, foreign])
        assert "does not come out again" in line
    (line,) = compare_bounds(expected, told[:2])
    assert "box 0:1 of batch 3 was published and is not in the bag" in line
