"""What made intervals wide, what the motion hardly excited, and motions that would excite it, in plain words."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from safe_sysid.core.arrays import FloatArray
from safe_sysid.core.layout import PAYLOAD_NAMES
from safe_sysid.decimals import at_most, share_at_most
from safe_sysid.dynamics import dynamics_of
from safe_sysid.identification.bounds.proof import UpdateProof
from safe_sysid.identification.diagnosis.elastic import ElasticProgram, scaled_problem
from safe_sysid.identification.equations.measurement_errors import MeasurementErrors, sensor_prior
from safe_sysid.identification.equations.momentum import MomentumRows
from safe_sysid.identification.equations.row_errors import ERROR_CAUSES
from safe_sysid.robot.config import per_joint
from safe_sysid.robot.model import RobotModel
from safe_sysid.robot.parameters import ParameterBox

__all__ = ["CAUSES", "WeakCombination", "WidthCauses", "describe_excitation", "weak_combinations"]

CAUSES = ("torque error", "arm parameters", "friction", "velocity and position errors", "sampling", "excitation")
_TORQUE, _ARM, _FRICTION, _STATE, _SAMPLING, _EXCITATION = range(len(CAUSES))
_OF_SLACK = {
    "torque": _TORQUE,
    "drift": _TORQUE,
    "delay": _TORQUE,
    "coulomb": _FRICTION,
    "friction": _FRICTION,
    "momentum": _STATE,
    "gravity": _STATE,
}


class WidthCauses:
    r"""Follows the widths of theta_e through updates, cause by cause, with the multipliers of their proofs.

    An update proves ``c.x <= y.(A x) + r.x`` with ``r = c - A^T y +- C^T lambda``: of the width, row i has
    ``2 |y_i| slack_i``, and slack is made of parts by cause; unknown k of arm and hand has ``2 |r_k| rad_k``, and a
    component of theta_e ``|r_k|`` times the causes of its own width before the update, which are the prior's at first.
    Means of lower and upper bound; they add up to the width where cuts and centres leave nothing, else to a little
    more, so shares are told.
    """

    def __init__(self, prior: ParameterBox) -> None:
        """Start with the prior, all of which the motion has yet to excite. ``prior``: box of all 14 n parameters."""
        self._parts = np.zeros((10, len(CAUSES)))
        self._parts[:, _EXCITATION] = prior.payload_upper - prior.payload_lower
        layout = prior.layout
        self._unknown = np.full(layout.size, _ARM)
        for block in (layout.coulomb, layout.viscous, layout.offset):
            self._unknown[block] = _FRICTION

    def add(self, proof: UpdateProof) -> None:
        """Add the proof of an update."""
        box, rows = proof.box, proof.rows
        payload = box.layout.payload
        slack = np.zeros((len(rows), len(CAUSES)))
        for k, cause in enumerate(ERROR_CAUSES):
            slack[:, _OF_SLACK.get(cause, _SAMPLING)] += rows.parts[:, k]
        tare = rows.log == 1
        found = np.zeros_like(self._parts)
        for k in range(20):
            y = proof.row_multipliers[k]
            if not (np.any(y) or np.any(proof.cut_multipliers[k])):
                found[k % 10] += 0.5 * self._parts[k % 10]  # as it was
                continue
            cut = proof.cut_multipliers[k] @ proof.cuts.coefficients() * (-1.0 if k < 10 else 1.0)
            rest = -(y @ rows.matrix)
            hand = rest[payload] + y[~tare] @ rows.matrix[~tare][:, payload] - cut
            rest[payload] = cut - y[~tare] @ rows.matrix[~tare][:, payload]
            rest[payload][k % 10] += 1.0
            widths = np.abs(rest) * 2.0 * box.rad
            widths[payload] = 0.0
            whole = 2.0 * np.abs(y) @ slack + np.abs(rest[payload]) @ self._parts
            np.add.at(whole, self._unknown[: len(widths)], widths)
            whole[_ARM] += np.abs(hand) @ (proof.hand_upper - proof.hand_lower) + 2.0 * np.abs(cut) @ proof.opening
            found[k % 10] += 0.5 * whole
        # Bounds of an update may be those of the last one: the causes then, too, but never more than before.
        self._parts = found

    def shares(self, component: int = 0) -> dict[str, float]:
        """Shares of the width of a component of theta_e by cause, the largest first; they add up to 1.

        ``component``: of the ten; 0: the mass.
        """
        parts = self._parts[component]
        total = float(parts.sum()) or 1.0
        order = np.argsort(-parts, kind="stable")
        return {CAUSES[k]: float(parts[k]) / total for k in order}


_GROUPS = ((slice(0, 1), "kg"), (slice(1, 4), "kg m"), (slice(4, 10), "kg m^2"))
_WORTH_SAYING = 0.3  # of the largest coefficient
_POSTURES = 300
_NEAR = 2.0  # s: a posture is as far from home as the arm gets in this time at the velocity of plans
_LARGE = 0.25  # share of the prior's width above which a combination counts as hardly excited
_MOSTLY = 0.5  # of a width: the cause to name


@dataclass(frozen=True, eq=False)
class WeakCombination:
    """The least known combination of parameters that share a unit."""

    coefficients: FloatArray  #: (10,) of theta_e, the largest 1
    unit: str  #: of the combination. half_width, prior: to which it is known, and was before any motion.
    half_width: float
    prior: float
    advice: str  #: what motion would show it; empty if none was found

    @property
    def name(self) -> str:
        """As in ``Ixx + 0.9 Iyy``."""
        text = ""
        for name, c in zip(PAYLOAD_NAMES, self.coefficients, strict=True):
            if abs(c) < _WORTH_SAYING:
                continue
            size = "" if abs(c) > 0.995 else f"{abs(c):.2g} "
            sign = "-" if c < 0.0 else "+" if text else ""
            text += f" {sign} {size}{name}" if text else f"{sign}{size}{name}"
        return text

    @property
    def share(self) -> float:
        """Half width over the prior's."""
        return self.half_width / self.prior if self.prior > 0.0 else 0.0


def weak_combinations(
    model: RobotModel, errors: MeasurementErrors, rows: MomentumRows, box: ParameterBox
) -> list[WeakCombination]:
    """The least known combination for each unit (mass, first moments, inertias); the worst comes first.

    Half widths are those of the solver, over the rows given and the box: for people, not certified.

    ``box``: in force.
    """
    wide = sensor_prior(box, errors)
    prior = np.maximum(model.arm_prior.rad[box.layout.payload], 1e-12)
    matrix, target, radius = scaled_problem(model, errors, rows, wide)
    last = np.arange(box.layout.payload.start, box.layout.payload.stop)
    # Every unknown as spread out as its box, every row as wide as its slack: only directions are taken from this.
    covariance = np.linalg.inv(matrix.T @ matrix + np.eye(matrix.shape[1]))
    spread = covariance[np.ix_(last, last)] * np.outer(radius[last], radius[last])
    program = ElasticProgram(matrix, target)
    out = []
    for group, unit in _GROUPS:
        scale = prior[group]
        _, vectors = np.linalg.eigh(spread[group, group] / np.outer(scale, scale))
        coefficients = np.zeros(10)
        coefficients[group] = vectors[:, -1] / scale
        # Small coefficients are dropped here, not only in the words: what is said is what is bounded.
        coefficients[np.abs(coefficients) < _WORTH_SAYING * np.abs(coefficients).max()] = 0.0
        coefficients /= coefficients[np.argmax(np.abs(coefficients))]
        coefficients = np.round(coefficients, 2)
        cost = np.zeros(matrix.shape[1])
        cost[last] = coefficients * radius[last]
        low, high = program.minimise(cost), program.minimise(-cost)
        if not (low.feasible and high.feasible):
            return []
        half = max(0.5 * (-high.value - low.value), 0.0)
        before = float(np.abs(coefficients) @ model.arm_prior.rad[box.layout.payload])
        uncertain = spread @ coefficients
        size = float(coefficients @ uncertain)
        move = uncertain * (half / size) if size > 0.0 else coefficients * half
        advice = _advice(model, errors, wide, move) if half > _LARGE * before else ""
        out.append(WeakCombination(coefficients, unit, half, before, advice))
    return sorted(out, key=lambda weak: -weak.share)


def _advice(model: RobotModel, errors: MeasurementErrors, box: ParameterBox, move: FloatArray) -> str:
    """The motion of one joint whose torque shows a change of theta_e best, against noise and the arm's uncertainty."""
    rng, n, settings = np.random.default_rng(0), model.n, model.settings
    speed = per_joint(settings.controller.velocity, n)
    home = np.array(settings.home)
    q = home + rng.uniform(-_NEAR, _NEAR, (_POSTURES, n)) * speed
    q = np.clip(q, np.maximum(model.limits.position_lower, -1e6), np.minimum(model.limits.position_upper, 1e6))
    acceleration = per_joint(settings.controller.acceleration, n)
    last = box.layout.payload
    others = np.ones(box.size, bool)
    others[last] = False
    best = np.zeros((n + 1, _POSTURES))
    zero = np.zeros((_POSTURES, n))
    for k in range(n + 1):
        qd, qdd = zero.copy(), zero.copy()
        if k < n:
            qd[:, k], qdd[:, k] = speed[k], acceleration[k]
        w = dynamics_of(model.kinematics).torque_regressor(q, qd, qdd, model.friction_transition_velocity)
        shown = np.abs(w[:, :, last] @ move)
        torque = np.abs(w @ box.mid)
        hidden = errors.torque_abs + errors.torque_rel * torque + np.abs(w[:, :, others]) @ box.rad[others]
        best[k] = (shown / hidden).max(axis=1)
    mean = best.mean(axis=1)
    k = int(np.argmax(mean[:n]))
    if mean[k] < 1.2 * mean[n]:
        return "hold more and different postures: gravity shows it as well as any motion"
    top = q[np.argsort(-best[k])[: _POSTURES // 10]]
    # The joint whose angle good postures agree on most, compared with all postures.
    narrow = np.std(top, axis=0) / np.maximum(np.std(q, axis=0), 1e-9)
    narrow[k] = np.inf
    m = int(np.argmin(narrow))
    text = f"move {model.joint_names[k]} faster"
    if narrow[m] < 0.8:
        text += f" while {model.joint_names[m]} is near {np.mean(top[:, m]):.1f} {model.position_units[m]}"
    return text


def describe_excitation(weak: list[WeakCombination], widths: WidthCauses | None = None) -> list[str]:
    """Describe which parameters are poorly known, and why; one line if none is.

    Args:
        weak: of :func:`weak_combinations`.
        widths: what makes the intervals wide: where it is mostly not the motion, that is said instead of a motion.
    """
    lines = []
    for w in (w for w in weak if w.share > _LARGE):
        cause, share = "excitation", 1.0
        if widths is not None:
            cause, share = next(iter(widths.shares(int(np.argmax(np.abs(w.coefficients)))).items()))
        known = f"{w.name} is known to +-{at_most(w.half_width, 2)} {w.unit} only (before: {at_most(w.prior, 2)})"
        if cause != "excitation" and share >= _MOSTLY:
            lines.append(f"wide: {known}, {share:.0%} of that for what is declared: {cause}")
        else:
            lines.append(f"hardly excited: {known}" + (f"; {w.advice}" if w.advice else ""))
    if not lines and weak:
        w = weak[0]
        lines = [
            f"all combinations were excited; the widest is {w.name}, known to +-{at_most(w.half_width, 2)} {w.unit} "
            f"({share_at_most(w.share, 2)} of the prior)"
        ]
    return lines
