"""Feed-forwards for a process beside the loop: a module of few imports, which that process has to load."""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from safe_sysid.control.feed_forward import FeedForward
    from safe_sysid.robot.model import RobotModel

Answer = tuple[object, object]


def steady(model: RobotModel) -> FeedForward:
    """Until it raises, at 0.5 s."""

    def answer(q: np.ndarray, *state: object) -> Answer:
        if state[-1] > 0.5:
            raise RuntimeError("no idea")
        return np.full(q.size, 0.5) + q, 0.75

    return answer


def slow(model: RobotModel) -> FeedForward:
    def answer(q: np.ndarray, *_: object) -> Answer:
        time.sleep(0.3)
        return np.zeros(q.size), 1.0

    return answer


def dies_later(model: RobotModel) -> FeedForward:
    def answer(q: np.ndarray, *state: object) -> Answer:
        if state[-1] > 0.5:
            os._exit(3)
        return np.zeros(q.size), 1.0

    return answer


def cannot_be_made(model: RobotModel) -> FeedForward:
    raise ValueError("no such file")
