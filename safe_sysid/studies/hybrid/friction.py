"""What the best model of friction is worth: the arm's own friction, known exactly, as feed-forward at soft gains.

No network can know friction better than this. Where it tracks worse than Coulomb's, the loop is the reason and not what
was learned.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from numba import njit
from rich.table import Table

from safe_sysid.core.arrays import FloatArray
from safe_sysid.errors import ModelError
from safe_sysid.simulation.flexible import Effects, FlexibleArm, read_effects
from safe_sysid.simulation.flexible.kernel import joint_friction
from safe_sysid.studies.hybrid.drive import drive, guard, impedance
from safe_sysid.studies.hybrid.make_data import load_panda
from safe_sysid.studies.hybrid.motions import set_points
from safe_sysid.studies.hybrid.tracking import DURATIONS, SETTLE

__all__ = ["ARMS", "SOURCES", "run_trial", "table"]

Result = dict[str, Any]
#: Arms: whether motors and gears have waves, and whether friction falls with velocity (Stribeck).
ARMS = {
    "as in the file": (True, True),
    "without waves": (False, True),
    "without Stribeck": (True, False),
    "without both": (False, False),
}
#: What is fed forward: Coulomb's friction as eq. 13 has it, or the arm's own; and of which motion.
SOURCES = ("Coulomb, measured", "its own, measured", "its own, desired")
GAINS = ("soft", "medium")
_STEPS = 10  # of the bristles in a period


@njit(cache=True)
def _follow(friction: FloatArray, velocity: FloatArray, h: float, steps: int, z: FloatArray, out: FloatArray) -> None:
    """Friction (n,) after a period at a velocity; bristles ``z`` (n,) move on."""
    for j in range(z.size):
        for _ in range(steps):
            out[j], bending = joint_friction(friction, j, velocity[j], z[j])
            z[j] += h * bending


class OwnFriction:
    """Dynamic friction of a velocity that is measured, or desired, in the seam of feed-forwards."""

    def __init__(self, friction: FloatArray, desired: bool, period: float) -> None:
        """Bristles are not bent. ``friction``: (6, n) of the arm."""
        self._friction, self._desired, self._h = friction, desired, period / _STEPS
        self._bristles, self._torque = np.zeros(friction.shape[1]), np.zeros(friction.shape[1])

    def __call__(
        self, q: FloatArray, qd: FloatArray, q_d: FloatArray, qd_d: FloatArray, qdd_d: FloatArray, t: float
    ) -> tuple[FloatArray, float]:
        """See :class:`safe_sysid.control.feed_forward.FeedForward`."""
        velocity = qd_d if self._desired else qd
        _follow(self._friction, velocity, self._h, _STEPS, self._bristles, self._torque)
        return self._torque, 1.0


def _effects(theta: FloatArray, waves: bool, stribeck: bool) -> Effects:
    whole = read_effects("panda_effects", theta, 1.0)
    joints = whole.joints
    if not waves:
        none = np.array([1.0, 0.0, 1.0])  # amplitudes
        joints = joints._replace(gear=joints.gear * none, ripple=joints.ripple * none, cogging=joints.cogging * none)
    if not stribeck:
        friction = joints.friction.copy()
        friction[1] = friction[0]
        joints = joints._replace(friction=friction)
    return replace(whole, joints=joints)


def run_trial(seed: int, index: int, options: dict[str, Any]) -> Result:
    """One arm, one source of friction; links, rotors and viscous friction are fed forward as they are.

    ``seed``: of the set-points; ``options``: ``motions``.
    Returns mean over joints of root mean squares along motions, degrees, by gains and duration; None: the arm ran away.
    """
    arm_name, source = list(ARMS)[index // len(SOURCES)], SOURCES[index % len(SOURCES)]
    model = load_panda()
    effects = _effects(model.theta_nominal, *ARMS[arm_name])
    theta = np.array(model.theta_nominal)
    own = not source.startswith("Coulomb")
    known = effects.joints.friction.copy()
    known[5] = 0.0  # viscous friction is the rigid model's
    if own:
        theta[model.layout.coulomb] = 0.0
    out: Result = {"index": index, "arm": arm_name, "friction": source, "rmse": {}}
    for gains in GAINS:
        for duration in DURATIONS:
            motions = set_points(model, duration, options["motions"], seed=seed)
            reference = motions.reference()
            arm = FlexibleArm(model, effects, motions.points[0])
            friction = OwnFriction(known, source.endswith("desired"), arm.period)
            added = guard(model, friction) if own else None
            value = None
            try:
                run = drive(arm, impedance(model, gains), theta, reference, added, settle=SETTLE)
                error = np.degrees(run.true - reference[:, 0])
                value = float(np.sqrt(np.mean(error**2, axis=0)).mean())
            except ModelError:
                pass
            out["rmse"][f"{gains}, {duration:g} s"] = value
    return out


def table(told: Result) -> Table:
    """For people."""
    out = Table(
        title="Tracking with friction known exactly",
        caption="root mean square along motions, mean over joints, degrees; links and rotors are fed forward exactly",
    )
    columns = [f"{gains}, {duration:g} s" for gains in GAINS for duration in DURATIONS]
    for head in ("arm", "friction that is fed forward", *columns):
        out.add_column(head, justify="right" if head in columns else "left")
    for row in told["rows"]:
        cells = ["ran away" if (x := row["rmse"][column]) is None else f"{x:.2f}" for column in columns]
        out.add_row(row["arm"], row["friction"], *cells)
    return out
