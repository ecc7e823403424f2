"""Logs of the 1 kHz loop: every row is kept, exactly, and none costs more than another."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from safe_sysid.logs.online.rows import GrowingRows
from safe_sysid.simulation.log import TruthLog


@given(st.integers(1, 700), st.lists(st.integers(0, 300), max_size=6))
def test_every_row_is_kept_whenever_they_are_looked_at(width: int, counts: list[int]) -> None:
    rows, expected = GrowingRows(width), []
    for count in counts:
        for _ in range(count):
            row = rows.new()
            row[:] = len(expected)
            expected.append(float(len(expected)))
        values = rows.array()
        assert values.shape == (len(expected), width)
        assert len(rows) == len(expected)
        np.testing.assert_array_equal(values, np.repeat(np.array(expected)[:, None], width, axis=1))
        assert rows.array() is not None  # looked at twice: the same
        np.testing.assert_array_equal(rows.array(), values)


def test_rows_are_never_moved_while_they_come() -> None:
    """What was measured to stop the loop: an array that is copied as it grows. Here old rows stay where they are."""
    rows = GrowingRows(47)
    first = rows.new()
    places = {first.__array_interface__["data"][0]}
    for _ in range(20_000):
        places.add(rows.new().__array_interface__["data"][0])
    assert len(places) == 20_001
    first[:] = 7.0
    assert np.all(rows.array()[0] == 7.0)
    assert rows._block.nbytes <= 1 << 16


def test_the_plants_log_keeps_every_column() -> None:
    rng, log = np.random.default_rng(0), TruthLog(3)
    kept = [rng.normal(size=(7, 3)) for _ in range(1500)]
    for k, v in enumerate(kept):
        log.append(1e-3 * k, v[0], v[1], v[2], v[3], (v[4], v[5], v[6]), k % 5, k % 3)
    columns = log.arrays()
    names = ("q", "qd", "tau_commanded", "tau_applied", "q_measured", "qd_measured", "effort")
    for which, name in enumerate(names):
        np.testing.assert_array_equal(columns[name], [v[which] for v in kept])
    np.testing.assert_array_equal(columns["t"], 1e-3 * np.arange(1500))
    np.testing.assert_array_equal(columns["contacts"], np.arange(1500) % 5)
    np.testing.assert_array_equal(columns["mode"], np.arange(1500) % 3)
    assert columns["contacts"].dtype == np.int64
    assert columns["mode"].dtype == np.int8
