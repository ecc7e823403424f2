r"""Further columns for a regressor: friction beyond Coulomb and viscous, and geared rotors; chosen by held-out samples.

Per joint with a motor: ``|qd|`` (viscous friction that depends on the direction; Coulomb friction: an offset),
``sigma(qd) exp(-(qd / v)^2)`` at a few v [Stribeck], ``|tau_load| sigma(qd)`` with the joint's torque without friction
(of gears that are loaded), and ``kappa`` of a rotor that turns in the link before the joint, about its axis: see
:mod:`safe_sysid.dynamics.protocol`. Of wrists whose gears couple two joints: Coulomb and viscous friction and inertia
of a motor that turns with ``qd_k +- qd_j``, on both joints. Of torque sensors on the link side: Coulomb and viscous
friction behind them. All are linear. A column is taken where it makes the
torques of its joint on held-out samples better by a given share, and has the sign that it must have.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from safe_sysid.core.arrays import BoolArray, FloatArray
from safe_sysid.dynamics import dynamics_of
from safe_sysid.dynamics.closed_chain import Mechanism, MechanismMotion
from safe_sysid.dynamics.protocol import coulomb_direction
from safe_sysid.identification.arm.logs.preparation import ArmData
from safe_sysid.robot.model import Motors

__all__ = ["Column", "at_rest", "candidates", "choose", "columns_of"]

_SPEEDS = (0.03, 0.1, 0.3)  # rad/s, of Stribeck's term
#: Share of a joint's squared held-out residual that a column must take away.
#: Less may be what filters leave of reversals.
_WORTH = 0.1
_COUPLED = {
    "coupled_coulomb": ("Coulomb friction", "N m"),
    "coupled_viscous": ("viscous friction", "N m s/rad"),
    "coupled_inertia": ("rotor inertia", "kg m^2"),
}
_MOVING = 100  # samples: with fewer of them in motion a joint counts as moving throughout
_STILL, _LASTING = 0.01, 0.1  # of the largest velocity; s: slower than this for so long, a joint is at rest


@dataclass(frozen=True)
class Column:
    """A candidate column of the regressor."""

    #: "direction", "stribeck", "load", "gear", "coulomb", "viscous", "coupled_coulomb", "coupled_viscous" or
    #: "coupled_inertia"
    kind: str
    row: int  #: number of the motor whose torque it is of
    joint: str  #: name
    speed: float = 0.0  #: of Stribeck's term, rad/s
    sign: float = 1.0  #: with which a coupled motor turns with this joint
    driven: tuple[int, str] = (-1, "")  #: row and name of the joint that the coupled motor drives

    @property
    def words(self) -> str:
        """Name of the column for tables."""
        if self.kind in _COUPLED:
            what, _ = _COUPLED[self.kind]
            sign = "plus" if self.sign > 0.0 else "minus"
            return f"{what} of the motor of {self.driven[1]}, which turns with it {sign} {self.joint}"
        return {
            "direction": f"viscous friction's difference between directions of {self.joint}",
            "stribeck": f"Stribeck friction below {self.speed:g} rad/s of {self.joint}",
            "load": f"friction per load of {self.joint}",
            "gear": f"rotor inertia over gear ratio of {self.joint}",
            "coulomb": f"Coulomb friction behind the torque sensor of {self.joint}",
            "viscous": f"viscous friction behind the torque sensor of {self.joint}",
        }[self.kind]

    @property
    def unit(self) -> str:
        """Unit of its parameter."""
        if self.kind in _COUPLED:
            return _COUPLED[self.kind][1]
        return {
            "direction": "N m s/rad", "stribeck": "N m", "load": "1", "gear": "kg m^2", "coulomb": "N m",
            "viscous": "N m s/rad",
        }[self.kind]  # fmt: skip

    @property
    def signed(self) -> bool:
        """Whether its parameter may be negative."""
        return self.kind in ("direction", "gear")


def at_rest(data: ArmData) -> BoolArray:
    """(N, n_a) where a joint stands still. Friction is then unknown up to Coulomb's, so the torque gives no equation.

    A joint that hardly ever moves counts as moving; otherwise nothing would be known of it.

    ``data``: samples.
    """
    slow = np.abs(data.qd) < _STILL * np.max(np.abs(data.qd), axis=0)
    rest = np.zeros_like(slow)
    for part in data.parts():
        stamps = data.stamps[part]
        step = float(np.median(np.diff(stamps))) if len(stamps) > 1 else _LASTING
        least = max(2, round(_LASTING / step))
        for j in range(slow.shape[1]):
            edges = np.flatnonzero(np.diff(np.concatenate([[0], slow[part, j].astype(np.int8), [0]])))
            for a, b in edges.reshape(-1, 2).tolist():
                rest[part.start + a : part.start + b, j] = b - a >= least
    rest[:, np.sum(~rest, axis=0) < _MOVING] = False
    return rest


def candidates(mechanism: Mechanism, link_side: bool = False) -> list[Column]:
    """All candidate columns.

    ``mechanism``: of the joints; ``link_side``: whether torques are measured behind gears and friction.
    """
    found = []
    declared = mechanism.kinematics.motors.joint
    for row, joint in enumerate(mechanism.actuated):
        name = mechanism.joint_names[joint]
        found.append(Column("direction", row, name))
        found += [Column("stribeck", row, name, speed) for speed in _SPEEDS]
        found.append(Column("load", row, name))
        if link_side:
            found += [Column("coulomb", row, name), Column("viscous", row, name)]
        if joint > 0 and not mechanism.closures and joint not in declared:
            found.append(Column("gear", row, name))
    last = mechanism.n - 1
    rows = {int(joint): row for row, joint in enumerate(mechanism.actuated)}
    for joint in range(max(1, last - 1), last + 1) if not (mechanism.closures or link_side) else ():
        if (
            mechanism.kinematics.parent[joint] == joint - 1
            and {joint - 1, joint} <= set(rows)
            and not mechanism.kinematics.sliding[[joint - 1, joint]].any()
        ):
            names = mechanism.joint_names
            found += [
                Column(kind, rows[joint - 1], names[joint - 1], 0.0, sign, (rows[joint], names[joint]))
                for kind in _COUPLED
                for sign in (1.0, -1.0)
            ]
    return found


def columns_of(
    chosen: list[Column],
    mechanism: Mechanism,
    motion: MechanismMotion,
    load: FloatArray,
    transition: float,
    direction: FloatArray | None = None,
    link_side: bool = False,
) -> FloatArray:
    """Values (N n_a, K) of the columns along a motion.

    Args:
        chosen: K columns.
        mechanism: of the joints.
        motion: N states.
        load: (N, n_a) torque without friction and offset, N m.
        transition: friction transition velocity, rad/s.
        direction: (N, n_a) signs of the velocities, filtered; None: as they are.
        link_side: as of :func:`candidates`: a rotor's own joint does not feel it.
    """
    qd = motion.qd[:, mechanism.actuated]
    sign = coulomb_direction(qd, transition) if direction is None else direction
    out = np.zeros((*qd.shape, len(chosen)))
    for k, column in enumerate(chosen):
        j = column.row
        if column.kind == "direction":
            out[:, j, k] = np.abs(qd[:, j])
        elif column.kind == "coulomb":
            out[:, j, k] = sign[:, j]
        elif column.kind == "viscous":
            out[:, j, k] = qd[:, j]
        elif column.kind == "stribeck":
            out[:, j, k] = sign[:, j] * np.exp(-((qd[:, j] / column.speed) ** 2))
        elif column.kind == "load":
            out[:, j, k] = np.abs(load[:, j]) * sign[:, j]
        elif column.kind in _COUPLED:
            at, rate = column.driven[0], motion.qd if column.kind != "coupled_inertia" else motion.qdd
            turns = rate[:, mechanism.actuated[at]] + column.sign * rate[:, mechanism.actuated[j]]
            of_motor = coulomb_direction(turns, transition) if column.kind == "coupled_coulomb" else turns
            out[:, at, k], out[:, j, k] = of_motor, column.sign * of_motor
    geared = [k for k, column in enumerate(chosen) if column.kind == "gear"]
    if geared:
        out[:, :, geared] = _gear_columns([chosen[k] for k in geared], mechanism, motion)
        if link_side:
            out[:, [chosen[k].row for k in geared], geared] = 0.0
    return out.reshape(qd.size, len(chosen))


def _gear_columns(chosen: list[Column], mechanism: Mechanism, motion: MechanismMotion) -> FloatArray:
    """(N, n_a, G) part of a rotor inertia's column that comes from the rotor's spin, for a gear ratio of one."""
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
    held_out: tuple[FloatArray, FloatArray, FloatArray, BoolArray],
    columns: list[Column],
) -> list[int]:
    """Choose columns by forward selection: fit by least squares on the samples, judge on held-out samples.

    Args:
        base: (M, nb) independent columns.
        extra: (M, K) candidates.
        torque: (M,) N m.
        shares: (M,) square roots of weights.
        held_out: the first three for other samples, and which of their rows count.
        columns: K candidates.
    """
    rows = max(column.row for column in columns) + 1
    nb, everything = base.shape[1], np.column_stack([base, extra, torque])
    everything *= shares[:, None]
    gram = everything.T @ everything
    scale = np.sqrt(np.maximum(np.diag(gram), 1e-300))
    gram /= np.outer(scale, scale)
    other = np.column_stack(held_out[:3]) / scale * held_out[3][:, None]
    judges = [other[row::rows].T @ other[row::rows] for row in range(rows)]

    def judged(chosen: list[int]) -> tuple[FloatArray, FloatArray]:
        """Mean squared residual of the held-out rows, and the scaled parameters."""
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
            again = column.kind == "stribeck" and any(
                columns[c].kind == "stribeck" and columns[c].row == column.row for c in chosen
            )
            if k in chosen or again:
                continue
            after, values = judged([*chosen, k])
            taken = [*chosen, k]
            if any(value < 0.0 and not columns[c].signed for c, value in zip(taken, values[nb:], strict=True)):
                continue
            gain = 1.0 - after[column.row] / max(before[column.row], 1e-300)
            worse = np.sum(np.maximum(after / np.maximum(before, 1e-300) - 1.0, 0.0))
            if gain > _WORTH and gain - worse > best and before[column.row] > 1e-20 * judges[column.row][-1, -1]:
                best, found = gain - worse, k
        if found < 0:
            break
        chosen.append(found)
        before, _ = judged(chosen)
    return sorted(chosen)
