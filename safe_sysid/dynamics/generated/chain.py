r"""The chain in frames that make its dynamics short: modified Denavit-Hartenberg ones [KhalilDombre2004].

Frame j is fixed to link j with z along joint axis j and x along the common normal of the axes j and j + 1. From frame
to frame lie ``Rot_x(alpha) Trans_x(a) Rot_z(phi + q) Trans_z(r)``, or ``Rot_z(phi) Trans_z(r + q)`` if it slides;
frame 0 is frame 1 at ``q = 0``. Angles within 1e-12 of a quarter turn, and lengths within 1e-12 of zero, count as such:
generated code then has no terms for them, and its check against the recursion covers what that changes.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from safe_sysid.core.arrays import BoolArray, FloatArray
from safe_sysid.core.layout import PER_LINK
from safe_sysid.errors import ModelError
from safe_sysid.robot.model import NO_MOTORS, Kinematics, Motors

__all__ = ["Chain", "chain_of", "dh_kinematics", "inertia_transfer", "kronecker", "skew"]

_TINY = 1e-12


@dataclass(frozen=True)
class Chain:
    """A serial arm in frames of its own."""

    sliding: BoolArray  #: (n,) bool
    alpha: FloatArray  #: (n, 2) cosine and sine of the twist before each joint
    a: FloatArray  #: (n,) m, along x
    phi: FloatArray  #: (n,) rad, at q = 0
    r: FloatArray  #: (n,) m, along z
    gravity: FloatArray  #: (3,) m/s^2 in frame 0
    #: (n, 4, 4) of each frame in the joint's frame of the :class:`~safe_sysid.robot.model.Kinematics`
    placement: FloatArray
    motors: Motors = NO_MOTORS  #: with axes in the frames of this chain

    @property
    def n(self) -> int:
        """Number of joints."""
        return len(self.a)

    def turn(self, j: int) -> tuple[float, float]:
        """Cosine and sine of ``phi`` of joint j, those of quarter turns exact."""
        return _snap(np.cos(self.phi[j])), _snap(np.sin(self.phi[j]))

    def link_parameters(self) -> FloatArray:
        """(10 n, 10 n): the links' parameters about this chain's frames from those about the joints' frames."""
        out = np.zeros((PER_LINK * self.n, PER_LINK * self.n))
        for j in range(self.n):
            block = slice(PER_LINK * j, PER_LINK * (j + 1))
            out[block, block] = inertia_transfer(np.linalg.inv(self.placement[j]))
        return out


def _snap(x: float) -> float:
    nearest = float(np.round(x))
    return nearest if abs(x - nearest) < _TINY else float(x)


def skew(v: FloatArray) -> FloatArray:
    """``v x`` as a matrix (3, 3)."""
    return np.array([[0.0, -v[2], v[1]], [v[2], 0.0, -v[0]], [-v[1], v[0], 0.0]])


#: Pseudo-inertia ``[[Sigma, h], [h^T, m]]`` (16,) from the ten parameters, and the way back.
_ROWS = ((4, 5, 7), (5, 6, 8), (7, 8, 9))
PSEUDO = np.zeros((16, PER_LINK))
for _i in range(3):
    PSEUDO[4 * _i + 3, 1 + _i] = PSEUDO[12 + _i, 1 + _i] = 1.0
    for _j in range(3):
        PSEUDO[4 * _i + _j, _ROWS[_i][_j]] -= 1.0
        if _i == _j:
            PSEUDO[4 * _i + _j, [4, 6, 9]] += 0.5
PSEUDO[15, 0] = 1.0
UNPSEUDO = np.zeros((PER_LINK, 16))
UNPSEUDO[0, 15] = 1.0
for _i in range(3):
    UNPSEUDO[1 + _i, 4 * _i + 3] = 1.0
    for _j in range(_i, 3):
        if _i == _j:
            UNPSEUDO[_ROWS[_i][_i], [5 * k for k in range(3) if k != _i]] = 1.0
        else:
            UNPSEUDO[_ROWS[_i][_j], 4 * _i + _j] = -1.0


def kronecker(x: FloatArray, y: FloatArray) -> FloatArray:
    """Kronecker's product of two square matrices, in a tenth of the time of numpy's for small ones."""
    size = len(x) * len(y)
    return (x[:, None, :, None] * y[None, :, None, :]).reshape(size, size)


def inertia_transfer(pose: FloatArray) -> FloatArray:
    """(10, 10): a body's parameters about a parent's frame from those about a child's frame.

    ``pose``: (4, 4) of the child in the parent.
    """
    return UNPSEUDO @ kronecker(pose, pose) @ PSEUDO


def _pose(rotation: FloatArray, translation: FloatArray) -> FloatArray:
    out = np.eye(4)
    out[:3, :3], out[:3, 3] = rotation, translation
    return out


def _perpendicular(z: FloatArray, hint: FloatArray) -> FloatArray:
    """Unit vector across z, the part of ``hint`` if it has one."""
    for guess in (hint, *np.eye(3)):
        x = guess - (guess @ z) * z
        if np.linalg.norm(x) > 1e-6:
            return x / np.linalg.norm(x)
    raise ModelError("a joint axis of no length", z.tolist(), "a unit vector")


def _normal(
    z: FloatArray, o: FloatArray, x: FloatArray, z_next: FloatArray, p_next: FloatArray, free: bool
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Direction x of the frame on axis (o, z), its origin, and that of the next frame: feet of the common normal.

    Args:
        z: unit axis.
        o: a point on it, the foot of the normal before.
        x: wanted direction where there is a choice.
        z_next: unit axis that follows.
        free: the next axis may be anywhere, only its direction counts: it is put through ``o``.
    """
    if free:
        p_next = o
    gap, across = p_next - o, np.cross(z, z_next)
    if np.linalg.norm(across) < _TINY:
        normal = gap - (gap @ z) * z
        foot = o + normal  # on the next axis, abreast of o
        if np.linalg.norm(normal) < _TINY:
            return _perpendicular(z, x), o, foot
        return _perpendicular(z, normal), o, foot
    direction = across / np.linalg.norm(across)
    along = np.linalg.lstsq(np.stack([z, -z_next], axis=1), gap - (gap @ direction) * direction, rcond=None)[0]
    here, there = o + along[0] * z, p_next + along[1] * z_next
    normal = (there - here) @ direction
    direction = direction if normal > _TINY or (abs(normal) <= _TINY and direction @ x >= 0.0) else -direction
    return direction, here, there


def chain_of(kin: Kinematics) -> Chain:
    """The frames of an arm.

    Raises:
        ModelError: the joints are no chain: a branch.
    """
    n = len(kin.axis)
    if list(kin.parent) != list(range(-1, n - 1)):
        joint = next(j for j in range(n) if kin.parent[j] != j - 1)
        raise ModelError(
            f"joint {joint + 1} follows joint {int(kin.parent[joint]) + 1}: a branch; expected one joint after the "
            "other: code is generated for serial chains"
        )
    world, z, p, pose = [], [], [], np.eye(4)
    for j in range(n):
        pose = pose @ _pose(kin.rotation[j], kin.translation[j])
        world.append(pose)
        z.append(pose[:3, :3] @ kin.axis[j])
        p.append(pose[:3, 3])
    frames, x, o = [], _perpendicular(z[0], world[0][:3, 0]), p[0]
    for j in range(n):
        after = o
        if j + 1 < n:
            x, o, after = _normal(z[j], o, x, z[j + 1], p[j + 1], bool(kin.sliding[j + 1]))
        else:
            x = _perpendicular(z[j], x)
        frames.append(_pose(np.stack([x, np.cross(z[j], x), z[j]], axis=1), o))
        o = after
    alpha, a, phi, r = np.zeros((n, 2)), np.zeros(n), np.zeros(n), np.zeros(n)
    alpha[0, 0] = 1.0
    for j in range(1, n):
        step = np.linalg.inv(frames[j - 1]) @ frames[j]
        alpha[j] = _snap(step[2, 2]), _snap(-step[1, 2])
        a[j] = _snap(step[0, 3]) if abs(step[0, 3]) < _TINY else step[0, 3]
        phi[j] = np.arctan2(_snap(-step[0, 1]), _snap(step[0, 0]))
        along = alpha[j, 0] * step[2, 3] - alpha[j, 1] * step[1, 3]
        r[j] = 0.0 if abs(along) < _TINY else along
    placement = np.stack([np.linalg.inv(w) @ f for w, f in zip(world, frames, strict=True)])
    axes = [placement[c, :3, :3].T @ z for c, z in zip(kin.motors.carrier, kin.motors.axis, strict=True)]
    motors = kin.motors._replace(axis=np.array(axes).reshape(-1, 3))
    gravity = frames[0][:3, :3].T @ kin.gravity
    gravity = np.where(np.abs(gravity) < _TINY * np.linalg.norm(kin.gravity), 0.0, gravity)
    return Chain(np.array(kin.sliding), alpha, a, phi, r, gravity, placement, motors)


def dh_kinematics(table: FloatArray, sliding: BoolArray, gravity: FloatArray) -> tuple[Kinematics, FloatArray]:
    """An arm from a table of (standard) Denavit-Hartenberg parameters [SpongHutchinson2006].

    Returns the kinematics, and (n, 4, 4) the table's frame of each link in the joint's frame.

    Args:
        table: (n, 4) theta (rad), d (m), a (m), alpha (rad) of each joint; the joint's position adds to theta, or to d
            if it slides.
        sliding: (n,) prismatic joints.
        gravity: (3,) m/s^2 in frame 0.

    Raises:
        ModelError: shapes that do not match, or numbers that are not finite.
    """
    table, sliding = np.asarray(table, float), np.asarray(sliding, bool)
    if table.ndim != 2 or table.shape != (len(sliding), 4) or not np.all(np.isfinite(table)):
        raise ModelError(f"DH table of shape {table.shape}: expected {(len(sliding), 4)} finite numbers")
    n, before, rotation, translation, ends = len(table), np.eye(4), [], [], []
    for theta, d, a, alpha in table:
        c, s = _snap(np.cos(theta)), _snap(np.sin(theta))
        ca, sa = _snap(np.cos(alpha)), _snap(np.sin(alpha))
        turn = _pose(np.array([[c, -s, 0.0], [s, c, 0.0], [0.0, 0.0, 1.0]]), np.array([0.0, 0.0, d]))
        link = _pose(np.array([[1.0, 0.0, 0.0], [0.0, ca, -sa], [0.0, sa, ca]]), np.array([a, 0.0, 0.0]))
        # The joint's frame lies before what the joint turns; a constant turn and offset about the axis come first.
        pose, before = before @ turn, link
        rotation.append(pose[:3, :3])
        translation.append(pose[:3, 3])
        ends.append(link)
    travel = np.where(sliding[:, None], [-10.0, 10.0], [-np.inf, np.inf])
    kin = Kinematics.chain(
        np.array(rotation), np.array(translation), np.tile([0.0, 0.0, 1.0], (n, 1)), np.asarray(gravity, float), travel
    )
    return kin, np.array(ends)
