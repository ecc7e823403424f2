"""Supervisor of a run: starts its processes, watches until it is over, and ends all of them."""

from __future__ import annotations

import time
from dataclasses import dataclass
from functools import partial
from typing import Any

import yaml

from safe_sysid.bring_up.arrangement import MANAGED, REALTIME
from safe_sysid.bring_up.domain import environment_of, ros_environment
from safe_sysid.bring_up.fork_server import ForkServer
from safe_sysid.bring_up.kernels import CompilationNotice
from safe_sysid.bring_up.processes import ProcessGroup
from safe_sysid.control.states import COMMAND_TOPICS, longest_braking
from safe_sysid.demo.options import Setup
from safe_sysid.demo.progress import Progress
from safe_sysid.demo.state import RunState
from safe_sysid.errors import SafeSysIdError

__all__ = ["RunClock", "RunFailedError", "node_parameters", "supervise"]

#: The plant comes last: with its first measurement the controller can take the arm over, and the run begins.
RECORDER = "recorder"
NODES = ("controller", "planner", "identifier", "plant")
#: How often a controller that refuses to become active is asked again, and for how long, s: the arm may come to rest.
_AGAIN, _INSIST = 0.3, 15.0
_POLL = 0.1
_SOON = 0.02  # s between two looks while nodes start
_SILENCE = 120.0  # s of wall time without any news: something hangs
_LISTENS = 60.0  # s for the recorder to find what is told once
_MATCHED = 0.5  # s from there until those who are listened to know it, too
#: Besides commands: of a stream each message counts, of what is latched only the newest can be had later.
_TOLD_ONCE = ("joint_states", "reference", "bounds", "bounds_active", "plan", "certificate")
_ARMS = {"random": "uniform"}


class RunFailedError(SafeSysIdError):
    """A run did not come to its end."""


@dataclass
class RunClock:
    """Wall-clock times of a run, s; filled as it goes on."""

    startup: float = 0.0
    run: float = 0.0
    simulated: float = 0.0


def node_parameters(setup: Setup, node: str) -> dict[str, Any]:
    """ROS parameters of a node. What the hand holds, and how the plant errs, goes to the plant alone."""
    if node == RECORDER:
        # Nicer than all who have a deadline.
        return {"bag": str(setup.run_dir / "bag"), "compression": setup.options.compression, "realtime": {"nice": 2}}
    options = setup.options
    parameters: dict[str, Any] = {
        "robot": options.robot,
        "scene": options.scene,
        "lockstep": options.lockstep,
        "run_dir": str(setup.run_dir),
        "seed": options.seed,
    }
    if options.overrides:
        parameters["robot_settings"] = options.overrides
    if node == "plant":
        arm = _ARMS.get(options.arm, options.arm)
        parameters |= {"payload": options.payload, "noise": options.noise, "arm": arm, "engine": options.engine}
        if options.steady_pace:
            parameters["lockstep_pace"] = options.steady_pace
    elif node == "planner":
        parameters |= {"plans": options.plans, "then_goal": options.then_goal}
    if not options.lockstep:
        parameters["realtime"] = dict(REALTIME[node])
    return parameters


def supervise(
    setup: Setup, server: ForkServer, progress: Progress, clock: RunClock, state: RunState, domain: int
) -> None:
    """Run the nodes in a ROS domain until the run is over; ``clock`` and ``state`` are filled, whatever happens.

    Raises:
        ProcessDiedError: a node ended before that; with its last lines.
        RunFailedError: time-out, or nothing happened for long.
    """
    options = setup.options
    began = time.monotonic()
    deadline = began + options.timeout
    with ProcessGroup(server) as group:
        environment = ros_environment(domain, setup.run_dir / "log" / "ros", options.lockstep)

        def start(names: tuple[str, ...]) -> None:
            for name in names:
                file = setup.run_dir / "parameters" / f"{name}.yaml"
                file.parent.mkdir(exist_ok=True)
                file.write_text(yaml.safe_dump({"/**": {"ros__parameters": node_parameters(setup, name)}}))
                arguments = ("--ros-args", "--params-file", str(file))
                moves = name in ("controller", "plant")
                braking = longest_braking(setup.model.settings.planner.t_f, options.lockstep) if moves else 0.0
                group.start(name, arguments, environment, setup.run_dir / "log" / f"{name}.log", braking)

        progress.say(
            f"starting {', '.join(NODES[:-1])} in ROS domain {domain}; look at them with "
            f"ROS_DOMAIN_ID={domain} ROS_AUTOMATIC_DISCOVERY_RANGE=LOCALHOST ros2 topic list"
        )
        start(((RECORDER,) if options.record else ()) + NODES[:-1])
        from safe_sysid.demo.watch import Watcher  # rclpy: while the nodes start

        with environment_of(environment):
            watcher = Watcher(state, domain, setup.model.n, options.lockstep)
            transitions = watcher.transitions(MANAGED)
        lead = partial(_lead, watcher=watcher, transitions=transitions, group=group, progress=progress, end=deadline)
        try:
            _await_ready(group, progress, deadline)
            lead(MANAGED, "configure")
            start(NODES[-1:])
            _await_ready(group, progress, deadline)
            if options.record:
                _await_recorder(watcher, group, progress, COMMAND_TOPICS[setup.model.settings.controller.interface])
            for name in MANAGED:
                lead((name,), "activate", insist=_INSIST)
            clock.startup = time.monotonic() - began
            progress.say(f"all four work after {clock.startup:.1f} s; the arm is on its own now")
            begin = time.monotonic()
            try:
                _follow(watcher, group, progress, state, deadline, options.lockstep)
            finally:
                clock.run, clock.simulated = time.monotonic() - begin, state.time
                progress.close()
        finally:
            watcher.close()
        killed = group.stop()
        if killed:
            progress.say(f"{', '.join(killed)} did not end when asked, and had to be killed")


def _lead(
    names: tuple[str, ...],
    transition: str,
    watcher: Any,
    transitions: Any,
    group: ProcessGroup,
    progress: Progress,
    end: float,
    insist: float = 0.0,
) -> None:
    """Take nodes through a transition, all at once; ask one that refuses again for ``insist`` seconds.

    Raises:
        ProcessDiedError: a node ended meanwhile.
        RunFailedError: one does not go there, with its reason; or time-out.
    """
    notice, began = CompilationNotice(progress.say), time.monotonic()
    waiting, told = dict.fromkeys(names, ""), ""
    for name in names:
        transitions.ask(name, transition)
    while waiting:
        watcher.spin(_SOON)
        group.check()
        for name in list(waiting):
            answer = transitions.answer(name)
            if answer:
                del waiting[name]
                progress.say(f"{name}: {transitions.reasons[name] or f'{transition}: done'}")
            elif answer is False:
                told = f"{name}: {transitions.reasons[name]}"
                if time.monotonic() - began > insist:
                    raise RunFailedError(told)
                if told != waiting[name]:
                    waiting[name] = told
                    progress.say(f"{told}; asking again")
                watcher.spin(_AGAIN)
                transitions.ask(name, transition)
        if waiting and time.monotonic() > end:
            raise RunFailedError(f"time-out: {', '.join(waiting)} asked to {transition} in vain; {told}")
        if waiting:
            notice.tell(f"waiting for {', '.join(waiting)} to {transition}")


def _await_recorder(watcher: Any, group: ProcessGroup, progress: Progress, command: str) -> None:
    """Nobody commands before the recorder listens to commands and all else that is told once.

    A run without it is a run all the same.
    """
    end = time.monotonic() + _LISTENS
    while not all(watcher.heard_by(topic, "recorder") for topic in (command, *_TOLD_ONCE)):
        if time.monotonic() > end:
            progress.say(f"the recorder does not listen after {_LISTENS:g} s; going on")
            return
        watcher.spin(_POLL)
        group.check()
    watcher.spin(_MATCHED)


def _await_ready(group: ProcessGroup, progress: Progress, deadline: float) -> None:
    notice = CompilationNotice(progress.say)
    told: set[str] = {process.name for process in group.processes if process.ready}
    while True:
        group.check()
        waiting = []
        for process in group.processes:
            if process.check_ready():
                if process.name not in told:
                    told.add(process.name)
                    progress.say(f"{process.name} is ready")
            else:
                waiting.append(process.name)
        if not waiting:
            group.remember_shared_memory()
            return
        if time.monotonic() > deadline:
            raise RunFailedError(f"time-out: {', '.join(waiting)} not ready")
        notice.tell(f"waiting for {', '.join(waiting)}")
        time.sleep(_SOON)


def _follow(
    watcher: Any, group: ProcessGroup, progress: Progress, state: RunState, deadline: float, lockstep: bool
) -> None:
    """Watch until the run is over."""
    last_news, last_seen = time.monotonic(), (0.0, 0, 0)
    notice = CompilationNotice(progress.say)
    while True:
        watcher.spin(_POLL)
        progress.update(state)
        group.check()
        if state.finished(lockstep):
            return
        if state.phase == "fault":
            raise RunFailedError(f"the controller is in fault: {state.value('controller', 'reason')}")
        if state.start_refused:
            raise RunFailedError(f"the controller does not start: {state.start_refused}")
        now, seen = time.monotonic(), (state.time, len(state.plans), len(state.boxes))
        if seen != last_seen:
            last_news, last_seen = now, seen
            notice.restart()
        notice.tell(f"at {state.time:.2f} s of simulated time: {_waiting(state)}")
        if now > deadline:
            raise RunFailedError(f"time-out at {state.time:.2f} s of simulated time, {_words(state)}")
        if now - last_news > _SILENCE:
            raise RunFailedError(f"nothing has happened for {_SILENCE:.0f} s, {_words(state)}")


def _waiting(state: RunState) -> str:
    """What the controller, or else the planner, waits for."""
    for name in ("controller", "planner"):
        text = state.nodes[name].text if name in state.nodes else ""
        if "waiting for " in text:
            return f"{name} is waiting for {text.rpartition('waiting for ')[2]}"
    return "waiting for the nodes"


def _words(state: RunState) -> str:
    """What every node said last."""
    return "; ".join(f"{name}: {status.text}" for name, status in sorted(state.nodes.items())) or "no node spoke"
