"""Transitions that are asked for over services which lose requests and answers now and then."""

from __future__ import annotations

import random
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("rclpy")

from lifecycle_msgs.msg import Transition
from lifecycle_msgs.srv import ChangeState, GetState
from rclpy.task import Future
from std_msgs.msg import String

from safe_sysid.bring_up.transitions import _DOUBT, _WAYS, Transitions

_NUMBERS = {name: number for number, name in enumerate(("", "configure", "cleanup", "activate", "deactivate"))}


class Managed:
    """A node named ``arm`` that does what it is told, and a network in between that loses what it is told to lose."""

    def __init__(self) -> None:
        self.state, self.asked, self.clock = 1, 0, 0.0
        self.refuses, self.fails, self.busy = "", False, 0.0
        self.loses: Callable[[str], bool] = lambda what: False
        self._tell: Callable[[String], None] = lambda message: None
        self._queue: list[tuple[Any, Any, Future]] = []
        self.transitions = Transitions(self, ("arm",), clock=lambda: self.clock)  # type: ignore[arg-type]

    def lose_first(self, what: str) -> None:
        """Lose one request or answer, and no other."""
        left = [what]
        self.loses = lambda sent: sent in left and left.remove(sent) is None

    def create_client(self, kind: Any, name: str) -> Any:
        assert name == ("/arm/change_state" if kind is ChangeState else "/arm/get_state")

        def call(request: Any) -> Future:
            future = Future()
            if not self.loses("request"):
                self._queue.append((kind, request, future))
            return future

        return SimpleNamespace(service_is_ready=lambda: True, call_async=call)

    def create_subscription(self, _: Any, name: str, keep: Callable[[String], None], __: Any) -> None:
        assert name == "/arm/transition_reason"
        self._tell = keep

    def tick(self) -> None:
        """A tenth of a second."""
        self.clock += 0.1
        while self._queue and self.clock >= self.busy:
            kind, request, future = self._queue.pop(0)
            answer = self._change(request) if kind is ChangeState else self._look()
            if not self.loses("answer"):
                future.set_result(answer)

    def _look(self) -> GetState.Response:
        answer = GetState.Response()
        answer.current_state.id = self.state
        return answer

    def _change(self, request: ChangeState.Request) -> ChangeState.Response:
        self.asked += 1
        name = next(name for name, number in _NUMBERS.items() if number == request.transition.id)
        begin, goal = _WAYS[name]
        if self.refuses or self.state != begin:
            self._tell(String(data=self.refuses or f"{name} refused"))
            return ChangeState.Response(success=False)
        self.state = 1 if self.fails else goal
        self._tell(String(data=f"{name} failed: ValueError" if self.fails else f"{name}: done"))
        return ChangeState.Response(success=not self.fails)

    def outcome(self, transition: str, patience: float = 60.0) -> bool | None:
        """Of a transition that is asked for now."""
        self.transitions.ask("arm", transition)
        end = self.clock + patience
        while self.clock < end:
            answer = self.transitions.answer("arm")
            if answer is not None:
                assert self.transitions.answer("arm") is answer, "whoever asks again hears the same"
                return answer
            self.tick()
        return None


def test_the_numbers_are_those_of_ros() -> None:
    for name, number in _NUMBERS.items():
        assert not name or number == getattr(Transition, f"TRANSITION_{name.upper()}")


@pytest.mark.parametrize("lost", ["request", "answer"])
def test_what_is_lost_is_found_out(lost: str) -> None:
    arm = Managed()
    arm.lose_first(lost)
    assert arm.outcome("configure") is True
    assert arm.state == 2
    assert arm.clock < 5 * _DOUBT
    assert arm.asked == 1, "a request that was heard is not made again"


def test_a_refusal_whose_answer_is_lost_is_a_refusal() -> None:
    arm = Managed()
    arm.refuses = "configure refused: no such robot"
    arm.lose_first("answer")
    assert arm.outcome("configure") is False
    assert "no such robot" in arm.transitions.reasons["arm"]
    assert arm.asked == 1


def test_a_failure_that_led_elsewhere_is_one() -> None:
    arm = Managed()
    arm.state, arm.fails = 2, True
    arm.lose_first("answer")
    assert arm.outcome("activate") is False
    assert arm.state == 1
    assert "failed" in arm.transitions.reasons["arm"]


def test_a_reason_that_is_lost_does_not_keep_anybody_waiting() -> None:
    arm = Managed()
    arm.refuses, arm._tell = "configure refused: no such robot", lambda message: None
    assert arm.outcome("configure") is False
    assert "did not arrive" in arm.transitions.reasons["arm"]


def test_late_news_of_the_transition_before_is_no_reason() -> None:
    arm = Managed()
    assert arm.outcome("configure") is True
    arm.refuses = "activate refused: no measurement"
    arm.transitions.ask("arm", "activate")
    arm._tell(String(data="configure: done in 3.00 s, now inactive"))
    assert arm.transitions.reasons["arm"] == ""
    assert arm.outcome("activate") is False
    assert arm.transitions.reasons["arm"] == arm.refuses


def test_who_takes_long_is_asked_once() -> None:
    arm = Managed()
    arm.busy = 100.0
    assert arm.outcome("configure", 120.0) is True
    assert arm.asked == 1


def test_one_who_never_hears_is_never_done() -> None:
    arm = Managed()
    arm.loses = lambda what: what == "request"
    assert arm.outcome("configure", 200.0) is None
    assert arm.state == 1


def test_whatever_is_lost_the_answer_is_the_truth() -> None:
    choose = random.Random(3)
    for _ in range(200):
        arm = Managed()
        share = choose.choice([0.0, 0.2, 0.6])
        arm.loses = lambda _, share=share: choose.random() < share
        for transition in ("configure", "activate", "deactivate", "cleanup", "configure"):
            assert arm.outcome(transition, 1000.0) is True, transition
            assert arm.state == _WAYS[transition][1]
