"""Faults, what each does to the controller's surroundings, and what must come of it in each state."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from fault_bench import MS, FaultBench, Outcome
from rosgraph_msgs.msg import Clock
from sensor_msgs.msg import JointState

from safe_sysid.nodes.common.messages.conversions import bounds_message, write_stamp
from safe_sysid.robot.parameters import ParameterBox
from safe_sysid.simulation.payloads import NO_PAYLOAD, Payload, theta_e_with_payload

STATES = ("idle", "holding", "tracking", "braking", "fault")
#: What happens anyway: the plan ends, and none follows.
USUAL = {
    "idle": "", "holding": "", "tracking": "braking holding", "braking": "holding", "fault": "",
}  # fmt: skip
#: Always the same: nothing more is commanded.
FAULT = {"idle": "", "holding": "fault", "tracking": "fault", "braking": "fault", "fault": ""}


@dataclass(frozen=True)
class Fault:
    """One fault.

    Attributes:
        name: for people.
        act: does the harm.
        after: states that follow, by the state before; several possibilities are separated by "|".
        reason: pattern of the first transition's, where it is not what comes anyway.
        refused: whether something must be counted as refused.
        states: in which it can happen.
    """

    name: str
    act: Callable[[FaultBench], object]
    after: dict[str, str] = field(default_factory=lambda: USUAL)
    reason: str = ""
    refused: bool = False
    states: tuple[str, ...] = STATES

    def outcome(self, bench: FaultBench, state: str) -> Outcome:
        """What follows in that state: states, reason and refusal are as they must be, and the controller lives on."""
        bench.enter(state)
        before = bench.refusals()
        self.act(bench)
        found = bench.settle(state)
        assert " ".join(found.after) in self.after[state].split("|"), found
        if self.reason and found.after and state == "tracking":
            assert re.search(self.reason, found.reason), found
        if self.refused and not (state in ("idle", "fault") and "plan" in self.name):
            bench.probe.wait(lambda: bench.refusals() > before, "the refusal to be told", 20.0)
        assert bench.controller.process.poll() is None
        return found


def _box(bench: FaultBench, change: str) -> None:
    prior = bench.model.arm_prior
    epoch, seq = map(int, bench.box.split(":"))
    if change == "wider":
        box = ParameterBox(prior.lower - 1.0, prior.upper, epoch, seq + 99)
    else:
        box = ParameterBox(prior.lower, prior.upper, epoch, seq)
    nominal = box.mid
    if change == "old":  # not the label of the one in force: that is no news
        box = ParameterBox(box.lower, box.mid, epoch, 0) if seq else box
    bench.bounds.publish(bounds_message(box, nominal, digest=bench.digest))
    bench.run(5)


def _plan(bench: FaultBench, ahead_ms: int, **how: Any) -> None:
    bench.plans.publish(bench.plan(bench.stamp + ahead_ms * MS, **how))
    bench.run(5)


def _entry(name: str, joint: int, value: float, add: bool = False) -> Callable[[JointState], None]:
    def change(message: JointState) -> None:
        values = getattr(message, name)
        values[joint] = value + (values[joint] if add else 0.0)

    return change


def _distort(bench: FaultBench, change: Callable[[JointState], object]) -> None:
    bench.distort = change


def _straggler(bench: FaultBench) -> None:
    message = bench.message()
    stamp = bench.stamp - 50 * MS
    write_stamp(message.header.stamp, stamp)
    bench.states.publish(message)
    bench.run(5)


def _clock(bench: FaultBench, jump_ms: int) -> None:
    bench.stamp += jump_ms * MS


def _simulated_clock(bench: FaultBench) -> None:
    for seconds in (5000, 10, 7000, 1):
        message = Clock()
        message.clock.sec = seconds
        bench.clock.publish(message)
        bench.run(3)


def _parameters(bench: FaultBench) -> None:
    for name, text in (
        ("controller.law", "armour"),
        ("robot", "other_arm"),
        ("robot_settings.timing.hold_max_s", "1.0"),
        ("use_sim_time", "false"),
        ("new", "1"),
    ):
        result = bench.set_parameter(name, text)
        assert not result.successful
        assert result.reason
        bench.run(2)


def _restart_plant(bench: FaultBench) -> None:
    bench.fresh_plant()
    bench.stamp = 0


def _exchange(bench: FaultBench, payload: Payload) -> None:
    plant, last = bench.plant, bench.model.layout.payload
    hand = plant.theta_true[last] - theta_e_with_payload(bench.model, np.zeros(10), plant.payload)
    theta = plant.theta_true.copy()
    theta[last] = theta_e_with_payload(bench.model, hand, payload)
    plant.exchange(theta, payload)


def _heavy() -> Payload:
    ball = 0.4 * 12.0 * 0.04**2
    return Payload("12 kg", np.array([12.0, 0.0, 0.0, 12.0 * 0.14, ball + 12.0 * 0.14**2, 0.0,
                                      ball + 12.0 * 0.14**2, 0.0, 0.0, ball]))  # fmt: skip


def _announced_exchange(bench: FaultBench) -> None:
    box = bench.box
    answer = bench.call("reset_bounds")
    if not answer.success:
        assert "state is" in answer.message
        return
    for _ in range(400):
        if bench.box != box:
            break
        bench.tick()
    assert int(bench.box.split(":")[0]) == int(box.split(":")[0]) + 1
    _exchange(bench, NO_PAYLOAD)


def _stop(bench: FaultBench) -> None:
    """Where nothing is commanded there is nothing to stop: the answer says so."""
    answer = bench.call("stop")
    assert answer.success == (bench.entered not in ("idle", "fault")), answer.message
    assert answer.success or answer.message.startswith(f"state is {bench.entered}: expected")


def _start_with(bench: FaultBench, change: Callable[[JointState], object], told: str) -> None:
    bench.distort = change
    assert bench.call("start").success
    bench.run(5)
    bench.probe.wait(lambda: told in bench.probe.message("controller"), told, 20.0)
    bench.call("stop")  # want it no more


def _effort(factor: float) -> Callable[[JointState], None]:
    def change(message: JointState) -> None:
        message.effort = (factor * np.array(message.effort)).tolist()

    return change


NAN = _entry("velocity", 2, float("nan"))
_REST = {"idle": "", "fault": ""}
#: Too long without a measurement: what is held goes on being held, what moves has left its path meanwhile.
_GAP = {**_REST, "holding": "", "tracking": "fault|braking holding", "braking": "fault|holding"}
_AWAY = {**_REST, "holding": "", "tracking": "fault", "braking": "fault"}
_MAYBE = {**_REST, "holding": "|fault", "tracking": "braking holding|fault", "braking": "holding|fault"}
_INACTIVE = ("idle", "fault")

FAULTS = (
    Fault("plan too late", lambda b: _plan(b, -20), refused=True),
    Fault("plan that does not connect", lambda b: _plan(b, b.ahead + 10, row=0), refused=True),
    Fault("plan for another payload", lambda b: _plan(b, b.ahead + 10, box="77:0"), refused=True),
    Fault("box that is not nested", lambda b: _box(b, "wider"), refused=True),
    Fault("one NaN", lambda b: b.tick(NAN, answered=False), refused=True),
    Fault("NaN for 60 ms", lambda b: b.run(60, change=NAN, answered=False), _GAP, "V is at least|no meas", True),
    Fault("joint misnamed", lambda b: b.tick(lambda m: m.name.__setitem__(2, "joint"), answered=False), refused=True),
    Fault("no measurement for 5 ms", lambda b: b.silence(5)),
    Fault("no measurement for 15 ms", lambda b: b.silence(15)),
    Fault("no measurement for 60 ms", lambda b: b.silence(60), _GAP, "V is at least|no measurement"),
    Fault("no measurement for 2 s", lambda b: b.silence(2000), _GAP, "V is at least|no measurement"),
    Fault(
        "position jumps by 0.05 rad once", lambda b: b.tick(_entry("position", 2, 0.05, add=True)), reason="jumped by"
    ),
    Fault(
        "position jumps for good",
        lambda b: _distort(b, _entry("position", 1, 0.05, add=True)),
        {**FAULT, "tracking": "braking fault"},
        "jumped by",
    ),
    Fault(
        "velocity beyond the limit once",
        lambda b: b.tick(_entry("velocity", 2, 9.0)),
        reason="velocity of joint_3 is 9",
    ),
    Fault(
        "velocity wrong by 0.5 rad/s once",
        lambda b: b.tick(_entry("velocity", 2, 0.5, add=True)),
        FAULT,
        "an assumption is false",
    ),
    Fault("measurement overtaken", _straggler),
    Fault("clock jumps ahead by 10 s", lambda b: _clock(b, 10_000), _AWAY, "V is at least"),
    Fault("clock jumps back by 10 s", lambda b: _clock(b, -10_000), FAULT, "went back"),
    Fault("/clock jumps both ways", _simulated_clock),
    Fault("parameters set at run time", _parameters),
    Fault("stop", _stop, reason="stop requested"),
    Fault("commands lost for 10 ms", lambda b: b.run(10, lose=True), _MAYBE),
    Fault("commands lost for 60 ms", lambda b: b.run(60, lose=True), FAULT, "commands do not reach|V is at least"),
    Fault("plant restarted", _restart_plant, FAULT, "went back"),
    Fault("payload released after a reset", _announced_exchange),
    Fault("payload released without one", lambda b: _exchange(b, NO_PAYLOAD), _MAYBE),
    Fault(
        "payload of 12 kg, beyond the prior",
        lambda b: _exchange(b, _heavy()),
        FAULT,
        "V is at least|torque of|commands",
    ),
    Fault(
        "start with reversed efforts",
        lambda b: _start_with(b, _effort(-1.0), "wrong sign"),
        refused=True,
        states=_INACTIVE,
    ),
    Fault(
        "start with efforts in mN m", lambda b: _start_with(b, _effort(1e3), "in mN m"), refused=True, states=_INACTIVE
    ),
    Fault(
        "start without torque",
        lambda b: _start_with(b, _effort(0.0), "no torque at all"),
        refused=True,
        states=_INACTIVE,
    ),
    Fault("emergency stop", lambda b: b.call("emergency_stop"), {**FAULT, "idle": "fault"}, "emergency stop"),
)
