"""Bound status: whether the tracking bound is proved at this step. A certificate proves its hypotheses on S and H.

The law says what may be claimed at all: what it proves, and how much a feed-forward may add to its torque.

A plan's certificate proves the hypotheses along the plan and at the rest after it, for its box. Before the first plan,
and after bounds were reset, the arm is held at a pose that no certificate covers: so S is checked in every step, and H
at that pose.

The theorem assumes a start. After a late command that is not covered, its conclusion is no longer proved, and every
later step would rest on it: so the claim is lost until the next start. Whatever reports the claim asks this module.
The theorem: "Tracking" in docs/understand/guarantees.md.
"""

from __future__ import annotations

import numpy as np

from safe_sysid.control.gains import ControllerGains
from safe_sysid.control.gains.design import law_offset
from safe_sysid.control.laws.law import ControlLaw, Proves, TrackingLaw
from safe_sysid.core.arrays import BoolArray, FloatArray
from safe_sysid.decimals import at_least, at_most
from safe_sysid.dynamics.magnitudes import inertia_floor, inertia_share, rotor_ceiling, rotor_floor
from safe_sysid.errors import ParameterError
from safe_sysid.robot.model import RobotModel
from safe_sysid.robot.parameters import ParameterBox

__all__ = ["BoundStatus", "added_text"]

_NOT_SEEN = "V was not seen to be small again since the bound was not claimed"
#: Losses of the claim that are remembered for the run's log.
MOST_LOSSES = 100


class BoundStatus:
    """What is claimed of a controller's last step.

    Attributes:
        possible: the law proves the bound, whatever is added to its torque.
        lost: since when the bound is not claimed although law, S and H allow it, and why; "" if it is not lost.
        losses: the same of late commands, of all starts, the first :data:`MOST_LOSSES`.
        starts: how many there were.
        late: commands since the start that came late and were not covered; ``covered``: those that were.
    """

    def __init__(
        self, model: RobotModel, gains: ControllerGains, law: ControlLaw, added: FloatArray | None = None
    ) -> None:
        """Of the law, and of what is added to its torque, alone.

        ``added``: (n,) the most that a feed-forward adds to the law's torque, N m; None: there is none.

        Raises:
            ParameterError: the law says that it proves the bound, and does not say its S.
        """
        self._model, self._gains, self._pose = model, gains, ""
        self._claimed = gains
        self._was_not = False  # claimed, and V was not looked at since
        self._law = law if isinstance(law, TrackingLaw) and law.proves is Proves.TRACKING else None
        if self._law is None and law.proves is Proves.TRACKING:
            raise ParameterError(f"control law {law.name} proves tracking: expected its S as `uncertainty`")
        self._added = "" if added is None else f", with a feed-forward of up to {added_text(model, added)}"
        self._now = _why_not_ever(model, law, added)
        self.possible = not self._now
        self.lost, self.late, self.covered = "", 0, 0
        self.losses: list[str] = []
        self.starts = 0

    @property
    def holds(self) -> bool:
        """Whether law, S and H are what the theorem assumes, whatever was late before."""
        return not self._now

    @property
    def why_not(self) -> str:
        """Why the bound is not claimed, "" if it is: since when, where that matters."""
        return "; ".join(reason for reason in (self.lost, self._now) if reason)

    @property
    def text(self) -> str:
        """For people."""
        if self.lost:
            return f"not proved since {self.why_not}"
        return f"not proved: {self._now}" if self._now else f"proved{self._added}"

    def begin(self) -> None:
        """A start: V was looked at, and no command has been late since."""
        self.lost, self.late, self.covered = "", 0, 0
        self._was_not = False
        if self.possible:
            self._now = ""
        self.starts += 1

    def note_late(self, stamp: float, covered: bool, what: str) -> None:
        """A command came late.

        Args:
            stamp: of the measurement that it answers, or that shows it, s on the controller's clock.
            covered: whether the theorem covers it.
        """
        self.covered += covered
        self.late += not covered
        if not covered and self.possible and not self.lost:
            self.lose(stamp, f"{what}, and the state before was not quiet enough for that")
            if len(self.losses) < MOST_LOSSES:
                self.losses.append(self.lost)

    def lose(self, stamp: float, why: str) -> None:
        """Nothing is claimed from now on; what was said first stays.

        ``stamp``: s on the controller's clock; infinite before the first measurement.
        """
        when = f"{stamp:.3f} s" if np.isfinite(stamp) else "the beginning"
        self.lost = self.lost or f"{when}: {why}"

    def hold(self, box: ParameterBox, q: FloatArray) -> None:
        """A pose is held that no certificate is known for; the law has been evaluated there, or will be.

        ``box``: that holds the parameters, the largest one from now on; ``q``: (n,) held, rad.
        """
        if self.possible:
            self._pose = _why_not_at_pose(self._model, self._gains, box, q)
            self._now = self._pose or self._now  # until the next step says otherwise

    def follow(self) -> None:
        """A certified plan begins."""
        self._pose = ""

    @property
    def waits(self) -> bool:
        """Whether nothing speaks against the claim but that V was not looked at since something did."""
        return self._now == _NOT_SEEN

    def seen(self) -> None:
        """V is small enough, now and as long as commands count: the claim begins again."""
        self._was_not = False
        if self.waits:
            self._now = ""

    def use(self, gains: ControllerGains) -> None:
        """Claim the bound of these gains from now on: of the same law, for another bound of S."""
        self._claimed = gains

    def step(self) -> bool:
        """After the law's: whether S is above the assumed."""
        above = ""
        if self.possible and self._law is not None:
            above = _why_not_now(self._claimed, self._law.uncertainty)
            self._now = above or self._pose
            self._was_not = self._was_not or bool(self._now)
            if self._was_not and not self._now:
                self._now = _NOT_SEEN
        return bool(above)


def added_text(model: RobotModel, added: FloatArray) -> str:
    """The most that a feed-forward adds, for people. ``added``: (n,) N m or N."""
    parts = [f"{at_most(x)} {unit}" for x, unit in zip(added.tolist(), model.torque_units, strict=True)]
    if len(set(parts)) == 1:
        return parts[0]
    return ", ".join(f"{part} at {name}" for part, name in zip(parts, model.joint_names, strict=True))


def _why_not_ever(model: RobotModel, law: ControlLaw, added: FloatArray | None) -> str:
    """Why the bound is never claimed with a law and what is added to its torque, "" if it may be."""
    if law.proves is not Proves.TRACKING:
        return f"not for the law {law.name}"
    if added is None or not np.any(added > law.residual_bound):
        return ""
    j = int(np.argmax(added - law.residual_bound))
    return (
        f"a feed-forward may add {added[j]:g} {model.torque_units[j]} at {model.joint_names[j]}: expected at most "
        f"{law.residual_bound[j]:g}, which the proof of the law {law.name} tolerates"
    )


def _why_not_now(gains: ControllerGains, uncertainty: float) -> str:
    """Why the tracking bound is not claimed at a tick, "" if it is: without a certificate S may be anything.

    ``uncertainty``: S of the tick, sqrt(W/s).
    """
    assumed = gains.assumptions.uncertainty
    if uncertainty <= assumed * (1.0 + 1e-9):
        return ""
    return f"S = {at_most(uncertainty)} is above the assumed {at_least(assumed)}: the box is too large for this pose"


def _why_not_at_pose(model: RobotModel, gains: ControllerGains, box: ParameterBox, q: FloatArray) -> str:
    """Why the tracking bound is not claimed while a pose is held, "" if it is: H is not what was assumed.

    ``q``: (n,) held, rad.
    """
    a, reach = gains.assumptions, gains.e_bound + gains.assumptions.position_error
    # The bounds of the dynamics are those within the travel: the arm must be in it, and the state that the law takes.
    far = gains.e_bound + law_offset(gains)
    for j in np.flatnonzero(model.sliding & ~_within(q - far, q + far, model.kinematics.travel)):
        low, high = model.kinematics.travel[j]
        return (
            f"{model.joint_names[j]} is held at {q[j]:.4f} m and the control law may take a position {far[j]:.4g} m "
            f"away: expected it within the travel [{low:.4f}, {high:.4f}] m that bounds of the dynamics rest on"
        )
    spare = a.inertia_upper - rotor_ceiling(model.kinematics, box)
    share = np.inf
    if np.all(spare > 0.0):
        share = float(inertia_share(model.kinematics, box, spare, q[None], reach[None])[0])
    if share > 1.0:
        return f"inertia may be {at_most(share)} times what is assumed at this pose (controller.inertia_ratio)"
    if np.all(rotor_floor(model.kinematics, box) >= gains.inertia_lower):
        return ""
    floor = float(inertia_floor(model.kinematics, box, gains.inertia_lower, q[None], reach[None])[0])
    if floor >= 1.0:
        return ""
    return f"inertia may be below controller.inertia_lower at this pose ({at_least(floor)} of it)"


def _within(lower: FloatArray, upper: FloatArray, travel: FloatArray) -> BoolArray:
    return (lower >= travel[:, 0]) & (upper <= travel[:, 1])
