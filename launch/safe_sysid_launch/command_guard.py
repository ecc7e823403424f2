"""Takes the effort controller away from the arm when commands cease: a program that real_arm.launch.py starts.

ros2_control's ``forward_command_controller`` keeps its last command in force for ever. So when this package's
controller is silent (emergency stop, fault, deactivation, death) someone has to deactivate it; then the hardware
interface does what it does without an effort command. This is a second line and proves nothing: it is a Python program
without real-time priority, and asks by a service. A driver that brakes by itself is what ``driver.command_timeout_s``
declares.

It is a process of its own, so that it outlives the launch, which at SIGINT ends its own node first. SIGINT lets it end
when commands have ceased and the controller is deactivated, or nothing was ever commanded.
"""

from __future__ import annotations

import argparse
import signal
import sys
import time
from collections.abc import Callable, Sequence
from types import FrameType
from typing import Any

__all__ = ["SILENCE", "CommandWatch", "request", "watch", "why_it_falls"]

#: Shortest silence that is taken for the end of commands, s: this program may stall longer than a drive would wait.
SILENCE = 0.05
#: At the end, besides the time for which the controller brakes the arm, s.
_PATIENCE = 3.0


class CommandWatch:
    """Whether commands have come, and have ceased since.

    Attributes:
        armed: commands came, and what takes them has not been deactivated since.
        count: of commands.
    """

    def __init__(self, silence: float) -> None:
        """Nothing has come; ``silence`` (s) without a command is their end."""
        self._silence, self._last, self.armed, self.count = silence, 0.0, False, 0

    def heard(self, now: float) -> None:
        """A command came at ``now``, s."""
        self._last, self.armed = now, True
        self.count += 1

    def ceased(self, now: float) -> bool:
        """Whether commands had ceased at ``now`` (s), if all that had come by then were heard; until :meth:`acted`."""
        return self.armed and now - self._last >= self._silence

    def acted(self) -> None:
        """The controller is deactivated."""
        self.armed = False


def request(kind: Any, controller: str) -> Any:
    """Request that deactivates a controller, and nothing else.

    Args:
        kind: ``controller_manager_msgs.srv.SwitchController``.
        controller: its name.
    """
    made = kind.Request()
    made.deactivate_controllers = [controller]
    made.strictness = kind.Request.BEST_EFFORT  # one that is inactive already is no failure
    return made


def why_it_falls(kind: str) -> str:
    """Why a controller of this type must not be deactivated on an arm that torques hold; "" if it may be.

    Read in ros2_controllers, branch jazzy: both command zero effort in ``on_deactivate``, forward_command_controller
    commands nothing more.
    """
    falls = kind.startswith("effort_controllers/") or kind.startswith("joint_trajectory_controller/")
    words = f"{kind} commands zero torque when it is deactivated, and the arm would fall: expected a forward_command_"
    return f"{words}controller/ForwardCommandController" if falls else ""


def watch(
    state: CommandWatch,
    turn: Callable[[], None],
    act: Callable[[], bool],
    ending: Callable[[], bool],
    say: Callable[[str], None],
    clock: Callable[[], float] = time.monotonic,
    patience: float = _PATIENCE,
) -> None:
    """Until the end: wait for a command, and act when there are none any more.

    Args:
        state: hears of commands while ``turn`` runs.
        turn: handle what waits, one message, or wait for one for a while.
        act: deactivate the controller; whether that is done. Asked again if not.
        ending: whether the program is to end.
        say: gets what happened.
        clock: s.
        patience: for so long it goes on when the program is to end, s.
    """
    limit, failed = float("inf"), False
    begun: list[float] = []  # the last two turns, if no command came in them
    while True:
        before = clock()
        if ending():
            limit = min(limit, before + patience)
            if not state.armed:
                return
            if before >= limit:
                say("the end, and the effort controller is NOT deactivated: stop the arm by its own means")
                return
        count = state.count
        turn()
        begun = [*begun, before][-2:] if state.count == count else []
        # This program may stall anywhere. What came before a turn that hears nothing has been heard; two such turns,
        # for one may have handled something else than a command.
        if len(begun) < 2 or not state.ceased(begun[0]):
            continue
        if act():
            state.acted()
            failed = False
            say("commands have ceased: effort controller deactivated")
        elif not failed:
            failed = True
            say(
                "commands have ceased and the effort controller could NOT be deactivated: stop the arm by its own means"
            )


def main(arguments: Sequence[str]) -> int:
    """Run it; 1 where controller_manager_msgs is not installed.

    Args:
        arguments: of the command line; what follows ``--ros-args`` is rclpy's.
    """
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--topic", required=True, help="of the commands, std_msgs/Float64MultiArray")
    parser.add_argument("--controller", required=True, help="name of the effort controller")
    parser.add_argument("--manager", required=True, help="name of the controller manager")
    parser.add_argument("--silence", type=float, required=True, help="that is the end of commands, s")
    parser.add_argument("--braking", type=float, default=0.0, help="so long commands may go on at the end, s")
    end = arguments.index("--ros-args") if "--ros-args" in arguments else len(arguments)
    options = parser.parse_args(arguments[:end])

    import rclpy
    from rclpy.qos import QoSProfile, ReliabilityPolicy
    from rclpy.signals import SignalHandlerOptions
    from std_msgs.msg import Float64MultiArray

    try:
        # Part of ros2_control and in no registry of Python: only where an arm is.
        from controller_manager_msgs.srv import ListControllers, SwitchController
    except ImportError as error:
        print(f"controller_manager_msgs is not installed: {error}", file=sys.stderr)
        return 1

    asked: list[int] = []

    def ask(signum: int, frame: FrameType | None) -> None:
        asked.append(signum)

    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, ask)
    rclpy.init(args=list(arguments[end:]), signal_handler_options=SignalHandlerOptions.NO)
    node = rclpy.create_node("command_guard", start_parameter_services=False)
    silence = max(options.silence, SILENCE)
    state = CommandWatch(silence)
    newest = QoSProfile(depth=1, reliability=ReliabilityPolicy.BEST_EFFORT)
    node.create_subscription(
        Float64MultiArray, options.topic, lambda _: state.heard(time.monotonic()), newest, raw=True
    )
    client = node.create_client(SwitchController, f"{options.manager}/switch_controller")
    lister = node.create_client(ListControllers, f"{options.manager}/list_controllers")
    log = node.get_logger()

    def act() -> bool:
        if not client.service_is_ready():
            time.sleep(0.01)
            return False
        listed = lister.call_async(ListControllers.Request())
        rclpy.spin_until_future_complete(node, listed, timeout_sec=0.5)
        answer = listed.result() if listed.done() else None
        kinds = {} if answer is None else {one.name: one.type for one in answer.controller}
        if told := why_it_falls(kinds.get(options.controller, "")):
            log.error(f"{options.controller} is NOT deactivated: {told}", once=True)
            return False
        future = client.call_async(request(SwitchController, options.controller))
        rclpy.spin_until_future_complete(node, future, timeout_sec=1.0)
        answer = future.result() if future.done() else None
        return answer is not None and bool(answer.ok)

    log.info(f"{options.controller} will be deactivated when no command came on {options.topic} for {silence:g} s")
    watch(
        state,
        lambda: rclpy.spin_once(node, timeout_sec=0.5 * silence),
        act,
        lambda: bool(asked),
        log.error,
        patience=options.braking + _PATIENCE,
    )
    node.destroy_node()
    rclpy.try_shutdown()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
