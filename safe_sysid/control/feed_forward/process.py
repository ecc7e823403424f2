"""Feed-forward in a process of its own: the control loop takes the newest answer and never waits for it.

Why not inside of the tick, with a limit on its time? Then the first late answer would delay a tick, and one that never
comes would stop the loop. Why not in a thread? It would share Python's lock with the loop. (The package's own compiled
models take the same few steps every time; the tick calls those itself.)

Each tick takes the answer that is there and, if the last question was answered, sends the next one: packets of floats
through a socket, without waiting. An answer is used until ``late_s`` after its question.
"""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable

import numpy as np

from safe_sysid.control.feed_forward import LATE, FeedForward, FeedForwardInTick
from safe_sysid.core.arrays import FloatArray
from safe_sysid.parent import child_environment
from safe_sysid.robot.model import RobotModel
from safe_sysid.wire import dumps, loads

__all__ = ["FeedForwardProcess", "serve"]

#: Longest text of a failure, bytes; longer than any answer.
_TEXT = 4096
#: A process that is told to end may take so long, s.
_PATIENCE = 1.0
#: Who takes longer for one answer hangs, and ends; the first, for which things may be compiled, may take longer, s.
_LONGEST, _LONGEST_FIRST = 10.0, 600.0


class FeedForwardProcess:
    """The loop's side (:class:`safe_sysid.control.feed_forward.AnswerSource`); starts the process."""

    def __init__(self, maker: Callable[[RobotModel], FeedForward], model: RobotModel, late_s: float) -> None:
        """Start the process; until it is ready it is late.

        Args:
            maker: of the feed-forward, called there; a function of a module.
            late_s: age of a question, s, after which its answer does not count any more.
        """
        n = model.n
        self._late, self._failed = late_s, ""
        self._question, self._answer = np.empty(5 * n + 1), np.empty(max(n + 1, _TEXT // 8))
        self._bytes, self._said, self._size = self._question.data, self._answer.data.cast("B"), 8 * (n + 1)
        self.torque, self.trust = np.zeros(n), 0.0
        self._requested, self._answered, self._waits = -np.inf, -np.inf, False
        self._socket, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._socket.setblocking(False)
        with theirs:
            self.process = subprocess.Popen(
                [sys.executable, "-m", __name__, str(theirs.fileno())],
                stdin=subprocess.PIPE,
                env=child_environment(),
                pass_fds=(theirs.fileno(),),
            )
        # Written by a pipe, not as a packet: a model is larger than what a packet holds.
        if self.process.stdin is not None:
            with contextlib.suppress(OSError), self.process.stdin as pipe:
                pipe.write(dumps((maker, model)))

    def ask(self, t: float, q: FloatArray, qd: FloatArray, reference: FloatArray) -> str:
        """See :class:`safe_sysid.control.feed_forward.AnswerSource`."""
        if self._failed:
            return self._failed
        now = time.monotonic()
        self._take()
        if not self._waits and not self._failed:
            n, question = self.torque.size, self._question
            question[:n], question[n : 2 * n], question[-1] = q, qd, t
            question[2 * n : 5 * n] = reference[:3].ravel()
            with contextlib.suppress(OSError):  # a process that has ended: the next tick reads what it said last
                self._socket.send(self._bytes)
                self._requested, self._waits = now, True
        return self._failed or ("" if now - self._answered <= self._late else LATE)

    def _take(self) -> None:
        """What was said since the last tick: the answer to the last question, why there will be none, or nothing."""
        try:
            count = self._socket.recv_into(self._said)
        except (BlockingIOError, ConnectionResetError):  # reset: its last words can be read next time
            return
        except OSError:
            count = 0
        if count == self._size:
            self.torque[:], self.trust = self._answer[1 : self.torque.size + 1], float(self._answer[0])
            self._answered, self._waits = self._requested, False
        else:
            said = bytes(self._said[:count]).decode(errors="replace")
            self._failed = said or "feed-forward failed: its process has ended"

    def reset(self) -> None:
        """See :class:`safe_sysid.control.feed_forward.AnswerSource`; a process that has ended is not started again."""

    def close(self) -> None:
        """End the process."""
        self._failed = self._failed or "feed-forward failed: closed"
        self._socket.close()
        try:
            self.process.wait(_PATIENCE)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


def serve(connection: socket.socket, feed_forward: FeedForward, model: RobotModel) -> None:
    """The other side: answer until the loop's side has gone, or the feed-forward fails."""
    n = model.n
    source, question, answer = FeedForwardInTick(feed_forward, n), np.empty(5 * n + 1), np.empty(n + 1)
    home = np.asarray(model.settings.home, float)
    motion = question[2 * n : 5 * n].reshape(3, n)
    # Once before it counts: what it compiles is compiled then.
    signal.setitimer(signal.ITIMER_REAL, _LONGEST_FIRST)
    failed = source.ask(0.0, home, 0.0 * home, np.stack([home, 0.0 * home, 0.0 * home]))
    signal.setitimer(signal.ITIMER_REAL, 0.0)
    while connection.recv_into(question.data):
        if not failed:
            signal.setitimer(signal.ITIMER_REAL, _LONGEST)
            failed = source.ask(float(question[-1]), question[:n], question[n : 2 * n], motion)
            signal.setitimer(signal.ITIMER_REAL, 0.0)
        if failed:
            connection.send(failed.encode()[:_TEXT])
            return
        answer[0], answer[1:] = source.trust, source.torque
        connection.send(answer.data)


def main() -> None:
    """The process: file number of its socket; what to make comes on standard input. It ends when the socket closes."""
    # Ctrl-C, which a terminal sends to everyone, is its owner's business; the kernel ends who hangs, wherever.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    with contextlib.suppress(AttributeError, OSError):  # the loop's priority is the loop's
        os.sched_setscheduler(0, os.SCHED_OTHER, os.sched_param(0))
    with socket.socket(fileno=int(sys.argv[1])) as connection, contextlib.suppress(OSError):
        try:
            maker, model = loads(sys.stdin.buffer.read())
            feed_forward = maker(model)
        except Exception as error:
            connection.send(f"feed-forward failed: {type(error).__name__}: {error}".encode()[:_TEXT])
            return
        serve(connection, feed_forward, model)


if __name__ == "__main__":
    main()
