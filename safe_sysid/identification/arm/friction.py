r"""Further columns for a regressor: friction beyond Coulomb and viscous, and geared rotors; chosen by held-out samples.

Per joint with a motor: ``|qd|`` (viscous friction that depends on the direction; Coulomb friction: an offset),
``sigma(qd) exp(-(qd / v)^2)`` at a few v [Stribeck], ``|tau_load| sigma(qd)`` with the joint's torque without friction
(of gears that are loaded), and ``kappa`` of a rotor that turns in the link before the joint, about its axis: see
:mod:`safe_sysid.dynamics.protocol`. All are linear. A column is taken where it makes the torques of its joint on
held-out samples better by a given share, and has the sign that it must have.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from safe_sysid.dynamics import dynamics_of
from safe_sysid.dynamics.closed_chain import Mechanism, MechanismMotion
from safe_sysid.dynamics.protocol import coulomb_direction
from safe_sysid.robot.model import Motors

__all__ = ["Column", "candidates", "choose", "columns_of"]

FloatArray = NDArray[np.float64]
_SPEEDS = (0.03, 0.1, 0.3)  # rad/s, of Stribeck's term
#: Share of a joint's squared held-out residual that a column must take away.
#: Less may be what filters leave of reversals.
_WORTH = 0.1


@dataclass(frozen=True)
class Column:
    """One candidate.

    Attributes:
        kind: "direction", "stribeck", "load" or "gear".
        row: number of the motor whose torque it is of.
        joint: name.
        speed: of Stribeck's term, rad/s.
    """

    kind: str
    row: int
    joint: str
    speed: float = 0.0

    @property
    def words(self) -> str:
        """For tables."""
        return {
            "direction": f"viscous friction's difference between directions of {self.joint}",
            "stribeck": f"Stribeck friction below {self.speed:g} rad/s of {self.joint}",
            "load": f"friction per load of {self.joint}",
            "gear": f"rotor inertia over gear ratio of {self.joint}",
        }[self.kind]

    @property
    def unit(self) -> str:
        """Of its parameter."""
        return {"direction": "N m s/rad", "stribeck": "N m", "load": "1", "gear": "kg m^2"}[self.kind]

    @property
    def signed(self) -> bool:
        """Whether it may be below zero."""
        return self.kind in ("direction", "gear")


def candidates(mechanism: Mechanism) -> list[Column]:
    """All columns that are tried."""
    found = []
    declared = mechanism.kinematics.motors.joint
    for row, joint in enumerate(mechanism.actuated):
        name = mechanism.joint_names[joint]
        found.append(Column("direction", row, name))
        found += [Column("stribeck", row, name, speed) for speed in _SPEEDS]
        found.append(Column("load", row, name))
        if joint > 0 and not mechanism.closures and joint not in declared:
            found.append(Column("gear", row, name))
    return found


def columns_of(
    chosen: list[Column],
    mechanism: Mechanism,
    motion: MechanismMotion,
    load: FloatArray,
    transition: float,
    direction: FloatArray | None = None,
) -> FloatArray:
    """(N n_a, K) columns at a motion.

    Args:
        chosen: K columns.
        mechanism: of the joints.
        motion: N states.
        load: (N, n_a) torque without friction and offset, N m.
        transition: friction transition velocity, rad/s.
        direction: (N, n_a) signs of the velocities, filtered; None: as they are.
    """
    qd = motion.qd[:, mechanism.actuated]
    sign = coulomb_direction(qd, transition) if direction is None else direction
    out = np.zeros((*qd.shape, len(chosen)))
    for k, column in enumerate(chosen):
        j = column.row
        if column.kind == "direction":
            out[:, j, k] = np.abs(qd[:, j])
        elif column.kind == "stribeck":
            out[:, j, k] = sign[:, j] * np.exp(-((qd[:, j] / column.speed) ** 2))
        elif column.kind == "load":
            out[:, j, k] = np.abs(load[:, j]) * sign[:, j]
    geared = [k for k, column in enumerate(chosen) if column.kind == "gear"]
    if geared:
        out[:, :, geared] = _gear_columns([chosen[k] for k in geared], mechanism, motion)
    return out.reshape(qd.size, len(chosen))


def _gear_columns(chosen: list[Column], mechanism: Mechanism, motion: MechanismMotion) -> FloatArray:
    """(N, n_a, G): what a rotor inertia's column has more with a gear of one than without."""
    kin = mechanism.kinematics
    joints = np.array([mechanism.actuated[column.row] for column in chosen], np.int64)
    axes = np.stack([kin.rotation[j] @ kin.axis[j] for j in joints])
    axes /= np.linalg.norm(axes, axis=1, keepdims=True)
    motors = Motors(joints, kin.parent[joints], np.ones(len(joints)), axes)
    places = mechanism.layout.rotor_inertia.start + joints
    out = np.empty((len(motion), len(mechanism.actuated), len(chosen)))
    with_gear, without = (dynamics_of(kin._replace(motors=m)) for m in (motors, kin.motors))
    for at in range(0, len(motion), 4000):
        q, qd, qdd = (x[at : at + 4000] for x in (motion.q, motion.qd, motion.qdd))
        more = with_gear.torque_regressor(q, qd, qdd) - without.torque_regressor(q, qd, qdd)
        out[at : at + 4000] = more[:, mechanism.actuated][:, :, places]
    return out


def choose(
    base: FloatArray,
    extra: FloatArray,
    torque: FloatArray,
    shares: FloatArray,
    held_out: tuple[FloatArray, FloatArray, FloatArray],
    columns: list[Column],
) -> list[int]:
    """Which columns are worth it: forward selection; least squares on samples, judged on held-out ones.

    Args:
        base: (M, nb) independent columns.
        extra: (M, K) candidates.
        torque: (M,) N m.
        shares: (M,) square roots of weights.
        held_out: the first three for other samples.
        columns: K candidates.
    """
    rows = max(column.row for column in columns) + 1
    nb, everything = base.shape[1], np.column_stack([base, extra, torque])
    everything *= shares[:, None]
    gram = everything.T @ everything
    scale = np.sqrt(np.maximum(np.diag(gram), 1e-300))
    gram /= np.outer(scale, scale)
    other = np.column_stack(held_out) / scale
    judges = [other[row::rows].T @ other[row::rows] for row in range(rows)]

    def judged(chosen: list[int]) -> tuple[FloatArray, FloatArray]:
        """Squared held-out residual per row, and the scaled values."""
        which = np.concatenate([np.arange(nb), nb + np.array(chosen, np.int64)])
        values = np.linalg.lstsq(gram[np.ix_(which, which)], gram[which, -1], rcond=1e-12)[0]
        full = np.zeros(len(scale))
        full[which], full[-1] = values, -1.0
        return np.array([full @ judge @ full for judge in judges]), values

    chosen: list[int] = []
    before, _ = judged(chosen)
    while len(chosen) < 2 * rows:
        best, found = 0.0, -1
        for k, column in enumerate(columns):
            if k in chosen:
                continue
            after, values = judged([*chosen, k])
            taken = [*chosen, k]
            if any(
                value < 0.0 and not columns[c].signed for c, value in zip(taken, values[nb:], strict=True)
            ):
                continue
            gain = 1.0 - after[column.row] / max(before[column.row], 1e-300)
            worse = np.sum(np.maximum(after / np.maximum(before, 1e-300) - 1.0, 0.0))
            if (
                gain > _WORTH
                and gain - worse > best
                and before[column.row] > 1e-20 * judges[column.row][-1, -1]
            ):
                best, found = gain - worse, k
        if found < 0:
            break
        chosen.append(found)
        before, _ = judged(chosen)
    return sorted(chosen)
