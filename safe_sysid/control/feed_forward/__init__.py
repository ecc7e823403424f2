r"""Feed-forward torques: interface, declared bound and smooth switching of torque that is added to a law's.

A feed-forward returns a torque and how far to trust it. The added torque approaches ``trust * torque``, clipped to
``+-bound``, no faster than ``rate``; without a usable answer (late, not finite, not trusted, of another shape, an
exception) it approaches zero. The tracking theorem rests on ``bound`` alone ("Feed-forward" in
docs/understand/guarantees.md), so a feed-forward may be as wrong as it likes.

An answer that is only late fades at ``rate``: late ones are common on a busy machine, and each would shake the arm.
One that is wrong or not trusted is withdrawn at ``back``, which may be much faster.
"""

from __future__ import annotations

from collections import Counter
from typing import Final, Protocol

import numpy as np
from numba import njit

from safe_sysid.core.arrays import FloatArray
from safe_sysid.errors import ParameterError

__all__ = ["LATE", "AddedTorque", "AnswerSource", "FeedForward", "FeedForwardInTick"]

#: Why there is no answer where there only is none yet.
LATE: Final = "feed-forward late"
_USABLE, _NOT_FINITE, _NOT_TRUSTED = 0, 1, 2
_WORDS = {_NOT_FINITE: "feed-forward not finite", _NOT_TRUSTED: "feed-forward not trusted"}


class FeedForward(Protocol):
    """What computes the torque to add; a function will do."""

    def __call__(
        self, q: FloatArray, qd: FloatArray, q_d: FloatArray, qd_d: FloatArray, qdd_d: FloatArray, t: float
    ) -> tuple[FloatArray, float]:
        """Torque to add to the law's, and how far to trust it.

        Returns (n,) N m or N, and the share of it to add, from 0 (not trusted) to 1.

        Args:
            q: (n,) measured, rad or m.
            qd: (n,) measured, rad/s or m/s.
            q_d: (n,) desired, rad or m.
            qd_d: (n,) desired, rad/s or m/s.
            qdd_d: (n,) desired, rad/s^2 or m/s^2.
            t: stamp of the measurement, s.
        """


class AnswerSource(Protocol):
    """Where a tick gets the feed-forward's answer from."""

    torque: FloatArray  #: (n,) of the last answer, N m; overwritten by the next
    trust: float

    def ask(self, t: float, q: FloatArray, qd: FloatArray, reference: FloatArray) -> str:
        """Get an answer; why there is none, "" if there is one. Never raises.

        Args:
            t: stamp of the measurement, s.
            q: (n,) measured.
            qd: (n,) measured.
            reference: (>= 3, n) desired position, velocity, acceleration.
        """

    def reset(self) -> None:
        """Control begins: what was said before does not count any more."""

    def close(self) -> None:
        """No tick will ask any more."""


class FeedForwardInTick:
    """Calls the feed-forward in the tick: in simulated time, in a process of its own, or one whose steps are counted.

    What raises, or answers in another form, is not asked again before the next start: programs do not heal.
    """

    def __init__(self, feed_forward: FeedForward, n: int) -> None:
        """For ``n`` joints."""
        self._feed_forward, self._failed = feed_forward, ""
        self._inputs = np.empty((5, n))  # copies: a feed-forward may write on what it is given
        self.torque, self.trust = np.zeros(n), 0.0

    def ask(self, t: float, q: FloatArray, qd: FloatArray, reference: FloatArray) -> str:
        """See :class:`AnswerSource`."""
        if self._failed:
            return self._failed
        inputs = self._inputs
        inputs[0], inputs[1], inputs[2:] = q, qd, reference[:3]
        try:
            torque, trust = self._feed_forward(inputs[0], inputs[1], inputs[2], inputs[3], inputs[4], t)
            if np.shape(torque) != self.torque.shape:
                raise ParameterError(f"torque of shape {np.shape(torque)}: expected {self.torque.shape}")
            self.torque[:], self.trust = torque, float(trust)
        except Exception as error:  # whatever it is, the arm goes on without it
            self._failed = f"feed-forward failed: {type(error).__name__}: {error}"
        return self._failed

    def reset(self) -> None:
        """See :class:`AnswerSource`."""
        self._failed = ""

    def close(self) -> None:
        """See :class:`AnswerSource`."""


class AddedTorque:
    """Between a feed-forward and the command.

    Attributes:
        bound: (n,) the most that is added, N m.
        torque: (n,) added in this tick, N m.
        why_not: why the feed-forward is not followed now, "" if it is.
        ticks: since it was made, by what came of them: "followed", or why not.
    """

    def __init__(
        self,
        name: str,
        source: AnswerSource,
        bound: FloatArray,
        rate: FloatArray,
        longest: float,
        back: FloatArray | None = None,
    ) -> None:
        """Nothing is added yet.

        Args:
            bound: (n,) the most that is added, N m.
            rate: (n,) no faster does it change, N m/s.
            longest: time that one tick counts for at most, s.
            back: (n,) so fast is withdrawn what was added, where the answer is wrong or not trusted, N m/s; None: rate.
        """
        self.name, self.bound, self._source, self._longest = name, bound, source, longest
        self._rate, self._back = rate, rate if back is None else back
        self._step, self._away = np.empty_like(bound), np.empty_like(bound)
        self.torque, self.why_not = np.zeros_like(bound), ""
        self.ticks: Counter[str] = Counter()
        _approach(self.torque, self.torque, 0.0, self.bound, rate, self._back)  # compiled before the loop runs

    @property
    def text(self) -> str:
        """For people: whether it is followed, and the largest share of its bound that is added now."""
        share = np.max(np.abs(self.torque) / np.where(self.bound > 0.0, self.bound, np.inf))
        return f"{self.name}: {self.why_not or 'followed'}; {100.0 * share:.0f} % of its bound are added"

    def begin(self) -> None:
        """Control begins."""
        self.withdraw()
        self._source.reset()

    def withdraw(self) -> None:
        """Nothing is added in this tick, whatever was before: another ramp keeps the command from jumping."""
        self.torque[:] = 0.0
        self.why_not = ""

    def next(self, t: float, q: FloatArray, qd: FloatArray, reference: FloatArray, elapsed: float) -> None:
        """Fill ``torque`` for a tick.

        Args:
            t: stamp of the measurement, s.
            q: (n,) measured.
            qd: (n,) measured.
            reference: (>= 3, n) desired position, velocity, acceleration.
            elapsed: since the last tick, s.
        """
        source = self._source
        self.why_not = source.ask(t, q, qd, reference)
        elapsed = min(max(elapsed, 0.0), self._longest)
        np.multiply(self._rate, elapsed, out=self._step)
        np.multiply(self._rate if self.why_not == LATE else self._back, elapsed, out=self._away)
        trust = 0.0 if self.why_not else source.trust
        found = _approach(self.torque, source.torque, trust, self.bound, self._step, self._away)
        if not self.why_not and found != _USABLE:
            self.why_not = _WORDS[found]
        self.ticks[self.why_not or "followed"] += 1

    def close(self) -> None:
        """No tick will come any more."""
        self._source.close()


@njit(cache=True)
def _approach(
    added: FloatArray, wanted: FloatArray, trust: float, bound: FloatArray, step: FloatArray, away: FloatArray
) -> int:
    """Move ``added`` (n,) within ``bound``; whether the answer is usable.

    By at most ``step`` towards ``trust * wanted`` where it is, by at most ``away`` towards zero where not.
    """
    found = _USABLE
    if not (0.0 < trust <= 1.0):  # NaN, too
        found = _NOT_TRUSTED
    for j in range(added.size):
        if not np.isfinite(wanted[j]):
            found = _NOT_FINITE if found == _USABLE else found
    for j in range(added.size):
        target = trust * wanted[j] if found == _USABLE else 0.0
        target = max(-bound[j], min(bound[j], target))
        most = step[j] if found == _USABLE else away[j]
        moved = added[j] + max(-most, min(most, target - added[j]))
        added[j] = max(-bound[j], min(bound[j], moved))  # once more: a sum is rounded
    return found
