"""Data sets for hybrid models: what is written is read, and what is wrong is named."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from safe_sysid.errors import ConfigError
from safe_sysid.learning.neural.dataset import (
    INDEX,
    Dataset,
    DatasetEntry,
    MeasuredMotion,
    read_dataset,
    write_index,
    write_motion,
)

pytestmark = pytest.mark.unproved

NAMES = ("a", "b")


def a_motion(samples: int = 20, **changes: Any) -> MeasuredMotion:
    rng = np.random.default_rng(1)
    arrays = {name: rng.normal(size=(samples, 2)) for name in ("q", "qd", "qdd", "tau")}
    return MeasuredMotion(**{"stamp": np.arange(samples) / 100.0, **arrays, **changes})


def a_dataset(folder: Path) -> Dataset:
    parts = (("slow", "train"), ("fast", "validation"), ("fast", "test"))
    entries = [DatasetEntry(f"{i}.npz", *part) for i, part in enumerate(parts)]
    for entry in entries:
        write_motion(folder / entry.file, a_motion())
    return write_index(folder, "two_links", NAMES, 100.0, 1.0, entries)


def test_what_is_written_is_read(tmp_path: Path) -> None:
    dataset = a_dataset(tmp_path)
    assert read_dataset(tmp_path) == dataset
    assert [entry.file for entry in dataset.of("validation")] == ["1.npz"]
    motion = dataset.motion(dataset.trajectories[0])
    for name in ("stamp", "q", "qd", "qdd", "tau"):
        np.testing.assert_array_equal(getattr(motion, name), getattr(a_motion(), name))


@pytest.mark.parametrize(
    ("change", "named"),
    [
        (lambda told: told.update(schema="other 1"), "schema"),
        (lambda told: told.update(robot=""), "robot"),
        (lambda told: told.update(joints=["a", "a"]), "joints"),
        (lambda told: told.update(rate_hz=True), "rate_hz"),
        (lambda told: told.update(effects=-1), "effects"),
        (lambda told: told.update(more=1), "keys"),
        (lambda told: told.pop("joints"), "keys"),
        (lambda told: told["trajectories"].clear(), "trajectories"),
        (lambda told: told["trajectories"][1].update(file="../0.npz"), "trajectories[1].file"),
        (lambda told: told["trajectories"][1].update(file="0.npz"), "trajectories"),
        (lambda told: told["trajectories"][1].update(speed="medium"), "trajectories[1].speed"),
        (lambda told: told["trajectories"][1].update(split="all"), "trajectories[1].split"),
        (lambda told: told["trajectories"][1].pop("split"), "trajectories[1]"),
    ],
)
def test_a_wrong_index_is_named(tmp_path: Path, change: Callable[[dict[str, Any]], Any], named: str) -> None:
    a_dataset(tmp_path)
    told = json.loads((tmp_path / INDEX).read_text())
    change(told)
    (tmp_path / INDEX).write_text(json.dumps(told))
    with pytest.raises(ConfigError) as found:
        read_dataset(tmp_path)
    assert found.value.key == named
    assert found.value.file == str(tmp_path / INDEX)


def test_a_missing_or_torn_index_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"dataset\.json"):
        read_dataset(tmp_path)
    a_dataset(tmp_path)
    text = (tmp_path / INDEX).read_text()
    (tmp_path / INDEX).write_text(text[: len(text) // 2])
    with pytest.raises(ConfigError, match="the index of a data set"):
        read_dataset(tmp_path)


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"q": np.zeros((20, 3))}, "q"),
        ({"qd": np.full((20, 2), np.nan)}, "qd[[0, 0]]"),
        ({"tau": np.zeros((19, 2))}, "tau"),
        ({"stamp": np.arange(20) / 50.0}, "stamp[1] - stamp[0]"),
        ({"stamp": np.concatenate([np.arange(10), np.arange(9, 19)]) / 100.0}, "stamp[10] - stamp[9]"),
    ],
)
def test_a_wrong_array_is_named(tmp_path: Path, changes: dict[str, Any], named: str) -> None:
    dataset = a_dataset(tmp_path)
    write_motion(tmp_path / "1.npz", a_motion(**changes))
    dataset.motion(dataset.trajectories[0])
    with pytest.raises(ConfigError) as found:
        dataset.motion(dataset.trajectories[1])
    assert found.value.key == named
    assert found.value.file == str(tmp_path / "1.npz")


def test_a_missing_array_or_file_is_named(tmp_path: Path) -> None:
    dataset = a_dataset(tmp_path)
    np.savez(tmp_path / "0.npz", stamp=np.arange(20) / 100.0, q=np.zeros((20, 2)))
    with pytest.raises(ConfigError, match="qd"):
        dataset.motion(dataset.trajectories[0])
    (tmp_path / "1.npz").write_bytes(b"no archive")
    with pytest.raises(ConfigError, match=r"1\.npz"):
        dataset.motion(dataset.trajectories[1])
    (tmp_path / "2.npz").unlink()
    with pytest.raises(ConfigError, match=r"2\.npz"):
        dataset.motion(dataset.trajectories[2])
