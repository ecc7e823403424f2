r"""Recursions of one arm, traced: constants folded, base parameters only, zeros removed [KhalilKleinfinger1987].

Frames are those of :mod:`safe_sysid.dynamics.generated.chain`, links' parameters base parameters: those that are not
base are zero. Newton-Euler gives torques; the composite rigid bodies the mass matrix; forward dynamics solves
with it by ``L D L^T``. Regressors need no wrenches carried down the chain: entry (j, p) is the twist of joint j
seen in link p's frame, times the wrench per unit of the parameter. :func:`two_velocity_regressor` does the same in the
joints' own frames, for all parameters and two velocities: what the robust law takes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from safe_sysid.core.layout import PER_LINK
from safe_sysid.dynamics.generated.c_code import Graph, GraphValue
from safe_sysid.dynamics.generated.chain import Chain
from safe_sysid.errors import ModelError
from safe_sysid.robot.model import Kinematics

__all__ = ["TracedArm", "solve", "two_velocity_regressor"]

Number = GraphValue | float
Vector = list[Any]  # of numbers: values and floats


def _cross(a: Vector, b: Vector) -> Vector:
    return [a[1] * b[2] - a[2] * b[1], a[2] * b[0] - a[0] * b[2], a[0] * b[1] - a[1] * b[0]]


def _add(a: Vector, b: Vector) -> Vector:
    return [x + y for x, y in zip(a, b, strict=True)]


def _dot(a: Vector, b: Vector) -> Number:
    return a[0] * b[0] + a[1] * b[1] + a[2] * b[2]


def _times(matrix: Sequence[Vector], v: Vector) -> Vector:
    return [_dot(row, v) for row in matrix]


@dataclass(frozen=True)
class _LinkInertia:
    """Mass, first moment and inertia of a link, or of all links behind a joint."""

    m: Number
    h: Vector
    inertia: Vector  # Ixx, Ixy, Iyy, Ixz, Iyz, Izz

    def matrix(self) -> list[Vector]:
        xx, xy, yy, xz, yz, zz = self.inertia
        return [[xx, xy, xz], [xy, yy, yz], [xz, yz, zz]]


@dataclass(frozen=True)
class _LinkMotion:
    """Angular velocity, its rate, linear acceleration less gravity, and ``U = [dw x] + [w x]^2``, in a link's frame."""

    w: Vector
    dw: Vector
    dv: Vector
    u: list[Vector]
    products: Vector  # wx wy, wx wz, wy wz, wx^2, wy^2, wz^2


class TracedArm:
    """One arm in one graph: every method traces one function. ``n``: number of joints."""

    def __init__(self, chain: Chain, base: Sequence[int], rotors: bool, graph: Graph | None = None) -> None:
        """Declare the inputs ``q qd qdd tau s c b`` of the code to be.

        Args:
            base: numbers of the base parameters, of ten for each link, then the rotors.
            rotors: whether rotors are among the parameters.
            graph: to trace into; None: one of its own.
        """
        self.graph, self.chain, self.n = graph if graph is not None else Graph(), chain, chain.n
        self.base, self.rotors = list(base), rotors
        g, n = self.graph, chain.n
        self._values: Vector = [0.0] * (11 * n)
        for k, p in enumerate(self.base):
            self._values[p] = g.parameter(f"b[{k}]")
        self.qd = [g.state(f"qd[{j}]") for j in range(n)]
        self.qdd = [g.state(f"qdd[{j}]") for j in range(n)]
        self.tau = [g.state(f"tau[{j}]") for j in range(n)]
        self._turn: list[tuple[Number, Number]] = []  # cosine and sine of the whole turn about each axis
        self._shift: list[Vector] = []  # origin of frame j in the one before
        for j in range(n):
            cp, sp = chain.turn(j)
            along: Number = float(chain.r[j])
            if chain.sliding[j]:
                self._turn.append((cp, sp))
                along = g.state(f"q[{j}]") + along
            else:
                c, s = g.state(f"c[{j}]"), g.state(f"s[{j}]")
                self._turn.append((c * cp - s * sp, s * cp + c * sp))
            ca, sa = map(float, chain.alpha[j])
            self._shift.append([float(chain.a[j]), along * -sa, along * ca])

    def _down(self, j: int, v: Vector) -> Vector:
        """Components in frame j - 1 of a vector given in frame j."""
        (c, s), (ca, sa) = self._turn[j], map(float, self.chain.alpha[j])
        x, y, z = c * v[0] - s * v[1], s * v[0] + c * v[1], v[2]
        return [x, y * ca - z * sa, y * sa + z * ca]

    def _up(self, j: int, v: Vector) -> Vector:
        """Components in frame j of a vector given in frame j - 1."""
        (c, s), (ca, sa) = self._turn[j], map(float, self.chain.alpha[j])
        x, y, z = v[0], v[1] * ca + v[2] * sa, v[2] * ca - v[1] * sa
        return [c * x + s * y, c * y - s * x, z]

    def _link(self, j: int) -> _LinkInertia:
        m, hx, hy, hz, *inertia = self._values[PER_LINK * j : PER_LINK * (j + 1)]
        return _LinkInertia(m, [hx, hy, hz], inertia)

    def _rotor(self, j: int) -> Number:
        return self._values[PER_LINK * self.n + j]

    def _motions(self, qd: Vector, qdd: Vector, gravity: bool = True) -> list[_LinkMotion]:
        w: Vector = [0.0, 0.0, 0.0]
        dw: Vector = [0.0, 0.0, 0.0]
        dv: Vector = [-float(x) if gravity else 0.0 for x in self.chain.gravity]
        u: list[Vector] = [[0.0] * 3 for _ in range(3)]
        out = []
        for j in range(self.n):
            dv = self._up(j, _add(dv, _times(u, self._shift[j])))
            w, dw = self._up(j, w), self._up(j, dw)
            if self.chain.sliding[j]:
                dv = _add(dv, [2.0 * (w[1] * qd[j]), -2.0 * (w[0] * qd[j]), qdd[j]])
            else:
                dw = _add(dw, [w[1] * qd[j], -(w[0] * qd[j]), qdd[j]])
                w = [w[0], w[1], w[2] + qd[j]]
            xx, yy, zz = w[0] * w[0], w[1] * w[1], w[2] * w[2]
            xy, xz, yz = w[0] * w[1], w[0] * w[2], w[1] * w[2]
            u = [
                [-(yy + zz), xy - dw[2], xz + dw[1]],
                [xy + dw[2], -(xx + zz), yz - dw[0]],
                [xz - dw[1], yz + dw[0], -(xx + yy)],
            ]
            out.append(_LinkMotion(w, dw, dv, u, [xy, xz, yz, xx, yy, zz]))
        return out

    def torque(self, qd: Vector, qdd: Vector, gravity: bool = True) -> Vector:
        """Newton-Euler: inverse dynamics (n,) without friction."""
        motions, forces, moments, extra = self._motions(qd, qdd, gravity), [], [], [0.0] * self.n
        for j, motion in enumerate(motions):
            body, (xy, xz, yz, sxx, syy, szz) = self._link(j), motion.products
            xx, ixy, yy, ixz, iyz, zz = body.inertia
            u, dw = motion.u, motion.dw
            forces.append(_add([body.m * x for x in motion.dv], _times(u, body.h)))
            turning = [
                xx * dw[0] + (zz - yy) * yz - ixy * u[2][0] + ixz * u[1][0] + iyz * (syy - szz),
                yy * dw[1] + (xx - zz) * xz + ixy * u[2][1] - iyz * u[0][1] + ixz * (szz - sxx),
                zz * dw[2] + (yy - xx) * xy - ixz * u[1][2] + iyz * u[0][2] + ixy * (sxx - syy),
            ]
            moments.append(_add(turning, _cross(body.h, motion.dv)))
        if self.rotors:
            for j in range(self.n):
                extra[j] = self._rotor(j) * qdd[j]
            for j, carrier, gear, axis in zip(*self.chain.motors, strict=True):
                spin, z = self._rotor(int(j)) * float(gear), [float(x) for x in axis]
                extra[j] = extra[j] + spin * _dot(z, motions[carrier].dw)
                across = [qd[j] * x for x in _cross(motions[carrier].w, z)]
                moment = [spin * (qdd[j] * x + y) for x, y in zip(z, across, strict=True)]
                moments[carrier] = _add(moments[carrier], moment)
        torque: Vector = [0.0] * self.n
        for j in range(self.n - 1, -1, -1):
            torque[j] = extra[j] + (forces[j][2] if self.chain.sliding[j] else moments[j][2])
            if j > 0:
                force, moment = self._down(j, forces[j]), self._down(j, moments[j])
                moments[j - 1] = _add(moments[j - 1], _add(moment, _cross(self._shift[j], force)))
                forces[j - 1] = _add(forces[j - 1], force)
        return torque

    def _carried(self, j: int, body: _LinkInertia) -> _LinkInertia:
        """A body given in frame j, in the one before."""
        (c, s), (ca, sa) = self._turn[j], map(float, self.chain.alpha[j])
        p, h = self._shift[j], self._down(j, body.h)
        xx, xy, yy, xz, yz, zz = body.inertia
        # Rot_z of a symmetric matrix: the difference of the diagonal turns twice as fast.
        cc, cs = c * c, c * s
        gap = cc * (xx - yy) - 2.0 * (cs * xy)
        tx, ty = gap + yy, xx - gap
        txy = cs * (xx - yy) + xy * (2.0 * cc - 1.0)
        txz, tyz = c * xz - s * yz, s * xz + c * yz
        # Rot_x likewise.
        rxy, rxz = ca * txy - sa * txz, sa * txy + ca * txz
        mix = (ca * ca) * (ty - zz) - (2.0 * ca * sa) * tyz
        ryy, rzz = mix + zz, ty - mix
        ryz = (ca * sa) * (ty - zz) + (2.0 * ca * ca - 1.0) * tyz
        # Steiner: I + (2 h.p + m p.p) 1 - (h p^T + p h^T + m p p^T), with k = h + m p.
        k = [a + body.m * b for a, b in zip(h, p, strict=True)]
        first = [h[i] * p[i] + k[i] * p[i] for i in range(3)]
        return _LinkInertia(
            body.m,
            k,
            [
                tx + first[1] + first[2],
                rxy - h[0] * p[1] - k[1] * p[0],
                ryy + first[0] + first[2],
                rxz - h[0] * p[2] - k[2] * p[0],
                ryz - h[1] * p[2] - k[2] * p[1],
                rzz + first[0] + first[1],
            ],
        )

    def mass_matrix(self) -> list[Vector]:
        """Composite rigid bodies: D (n, n)."""
        n = self.n
        out: list[Vector] = [[0.0] * n for _ in range(n)]
        body = self._link(n - 1)
        for j in range(n - 1, -1, -1):
            h, (_, _, _, xz, yz, zz) = body.h, body.inertia
            if self.chain.sliding[j]:
                force, moment, out[j][j] = [0.0, 0.0, body.m], [h[1], -h[0], 0.0], body.m
            else:
                force, moment, out[j][j] = [-h[1], h[0], 0.0], [xz, yz, zz], zz
            for i in range(j - 1, -1, -1):
                force, moment = self._down(i + 1, force), self._down(i + 1, moment)
                moment = _add(moment, _cross(self._shift[i + 1], force))
                out[i][j] = out[j][i] = force[2] if self.chain.sliding[i] else moment[2]
            if j > 0:
                other, seen = self._link(j - 1), self._carried(j, body)
                body = _LinkInertia(other.m + seen.m, _add(other.h, seen.h), _add(other.inertia, seen.inertia))
        if self.rotors:
            for j in range(n):
                out[j][j] = out[j][j] + self._rotor(j)
            for j, carrier, gear, axis in zip(*self.chain.motors, strict=True):
                z: Vector = [self._rotor(int(j)) * (float(gear) * float(x)) for x in axis]
                for i in range(int(carrier), -1, -1):
                    if not self.chain.sliding[i]:
                        out[i][j] = out[j][i] = out[i][j] + z[2]
                    z = self._down(i, z)
        return out

    def regressor(self, qd: Vector, qdd: Vector) -> list[Vector]:
        """``Y`` (n, l) of the base parameters."""
        n, motions = self.n, self._motions(qd, qdd)
        out: list[Vector] = [[0.0] * len(self.base) for _ in range(n)]
        columns = {p: k for k, p in enumerate(self.base)}
        for j in range(n):
            turning = not self.chain.sliding[j]
            w: Vector = [0.0, 0.0, 1.0 if turning else 0.0]
            v: Vector = [0.0, 0.0, 0.0 if turning else 1.0]
            for k in range(j, n):
                if k > j:
                    v, w = self._up(k, _add(v, _cross(w, self._shift[k]))), self._up(k, w)
                _add_columns(out[j], columns, k, motions[k], v, w)
        if self.rotors:
            for j in range(n):
                if (own := columns.get(PER_LINK * n + j)) is not None:
                    out[j][own] = out[j][own] + qdd[j]
            for j, carrier, gear, axis in zip(*self.chain.motors, strict=True):
                column, z = columns.get(PER_LINK * n + int(j)), [float(gear) * float(x) for x in axis]
                if column is None:
                    continue
                out[j][column] = out[j][column] + _dot(z, motions[carrier].dw)
                moment = _add([qdd[j] * x for x in z], [qd[j] * x for x in _cross(motions[carrier].w, z)])
                for i in range(int(carrier), -1, -1):
                    if not self.chain.sliding[i]:
                        out[i][column] = out[i][column] + moment[2]
                    moment = self._down(i, moment)
        return out


def _add_columns(row: Vector, columns: dict[int, int], link: int, motion: _LinkMotion, v: Vector, w: Vector) -> None:
    """Entries of a row of the regressor for one link: the twist (v, w) times wrenches per unit."""
    u, dw, dv, (xy, xz, yz, sxx, syy, szz) = motion.u, motion.dw, motion.dv, motion.products
    moments: dict[int, Vector] = {
        4: [dw[0], xz, -xy],
        5: [-u[2][0], u[2][1], sxx - syy],
        6: [-yz, dw[1], xy],
        7: [u[1][0], szz - sxx, -u[1][2]],
        8: [syy - szz, -u[0][1], u[0][2]],
        9: [yz, -xz, dw[2]],
    }
    arms: list[Vector] = [[0.0, -dv[2], dv[1]], [dv[2], 0.0, -dv[0]], [-dv[1], dv[0], 0.0]]
    for p in range(PER_LINK):
        k = columns.get(PER_LINK * link + p)
        if k is None:
            continue
        if p == 0:
            row[k] = _dot(v, dv)
        elif p < 4:
            row[k] = _dot(v, [u[i][p - 1] for i in range(3)]) + _dot(w, arms[p - 1])
        else:
            row[k] = _dot(w, moments[p])


def solve(graph: Graph, matrix: list[Vector], right: Vector) -> Vector:
    """``matrix^-1 right`` by ``L D L^T`` of a symmetric positive definite matrix."""
    n, x = len(right), list(right)
    pivot: Vector = []
    lower: list[Vector] = [[0.0] * n for _ in range(n)]
    one = graph.constant(1.0)
    # From the last row up: rows of distal joints are the sparse ones.
    for j in range(n - 1, -1, -1):
        d = matrix[j][j]
        for k in range(j + 1, n):
            d = d - lower[k][j] * (lower[k][j] * pivot[n - 1 - k])
        pivot.append(d)
        inverse = one / d
        for i in range(j):
            e = matrix[i][j]
            for k in range(j + 1, n):
                e = e - lower[k][i] * (lower[k][j] * pivot[n - 1 - k])
            lower[j][i] = e * inverse
    # matrix = L^T D L with L[j][i], i < j, and ones.
    for j in range(n - 1, -1, -1):
        for k in range(j + 1, n):
            x[j] = x[j] - lower[k][j] * x[k]
    x = [x[j] * (one / pivot[n - 1 - j]) for j in range(n)]
    for j in range(n):
        for i in range(j):
            x[j] = x[j] - lower[j][i] * x[i]
    return x


def two_velocity_regressor(kin: Kinematics, graph: Graph) -> list[Vector]:
    """Slotine and Li's ``W_s`` (n, 11 n) of all links' parameters about the joints' frames, then of the rotors.

    Inputs of the code to be: ``q`` (and ``s``, ``c`` of it), ``qd``, ``qdd`` and, as ``tau``, the second velocity.

    Raises:
        ModelError: the arm has a branch.
    """
    n = len(kin.axis)
    if list(kin.parent) != list(range(-1, n - 1)):
        raise ModelError("a branch in the arm: expected a chain")
    q, qd, qdd, qd_a = ([graph.state(f"{name}[{j}]") for j in range(n)] for name in ("q", "qd", "qdd", "tau"))
    zero: Vector = [graph.constant(0.0)] * 3
    x, y, dw, dv = zero, zero, zero, [graph.constant(-float(g)) for g in kin.gravity]
    u: list[Vector] = [zero, zero, zero]
    turns: list[list[Vector]] = []
    shifts: list[Vector] = []
    motions: list[tuple[_LinkMotion, Vector, Vector]] = []
    for j in range(n):
        axis, sliding = [float(a) for a in kin.axis[j]], bool(kin.sliding[j])
        turns.append(_turned(graph, kin.rotation[j], axis, j, sliding))
        shift: Vector = [float(p) for p in kin.translation[j]]
        if sliding:
            along = (kin.rotation[j] @ kin.axis[j]).tolist()
            shift = [p + a * q[j] for p, a in zip(shift, along, strict=True)]
        shifts.append(shift)
        dv = _in_child(turns[j], _add(dv, _times(u, shift)))
        x, y, dw = (_in_child(turns[j], vector) for vector in (x, y, dw))
        across = _add([qd_a[j] * a for a in _cross(x, axis)], [qd[j] * a for a in _cross(y, axis)])
        if sliding:
            dv = _add(dv, [qdd[j] * a + b for a, b in zip(axis, across, strict=True)])
        else:
            dw = _add(dw, [qdd[j] * a + 0.5 * b for a, b in zip(axis, across, strict=True)])
            x, y = _add(x, [qd[j] * a for a in axis]), _add(y, [qd_a[j] * a for a in axis])
        xx, yy, zz = (x[i] * y[i] for i in range(3))
        xy, xz, yz = (0.5 * (x[a] * y[b] + x[b] * y[a]) for a, b in ((0, 1), (0, 2), (1, 2)))
        u = [
            [-(yy + zz), xy - dw[2], xz + dw[1]],
            [xy + dw[2], -(xx + zz), yz - dw[0]],
            [xz - dw[1], yz + dw[0], -(xx + yy)],
        ]
        motions.append((_LinkMotion(x, dw, dv, u, [xy, xz, yz, xx, yy, zz]), x, y))
    out: list[Vector] = [[0.0] * (11 * n) for _ in range(n)]
    columns, spins = {p: p for p in range(PER_LINK * n)}, {int(c): [0.0] * 3 for c in kin.motors.carrier}
    turning: dict[tuple[int, int], Vector] = {}
    for i in range(n):
        axis, still = [float(a) for a in kin.axis[i]], [0.0] * 3
        w, v = (still, axis) if kin.sliding[i] else (axis, still)
        for k in range(i, n):
            if k > i:
                v, w = _in_child(turns[k], _add(v, _cross(w, shifts[k]))), _in_child(turns[k], w)
            _add_columns(out[i], columns, k, motions[k][0], v, w)
            if k in spins:
                turning[i, k] = w
        out[i][PER_LINK * n + i] = qdd[i]
    for j, carrier, gear, along in zip(*kin.motors, strict=True):
        motion, first, second = motions[carrier]
        z = [float(gear) * float(a) for a in along]
        place = PER_LINK * n + int(j)
        out[j][place] = out[j][place] + _dot(z, motion.dw)
        across = _add([qd_a[j] * a for a in _cross(first, z)], [qd[j] * a for a in _cross(second, z)])
        moment = [qdd[j] * a + 0.5 * b for a, b in zip(z, across, strict=True)]
        for i in range(int(carrier) + 1):
            out[i][place] = out[i][place] + _dot(turning[i, int(carrier)], moment)
    return out


def _turned(graph: Graph, fixed: Any, axis: list[float], j: int, sliding: bool) -> list[Vector]:
    """Rotation of joint frame j in the one before: Rodrigues' formula, numbers next to 0, 1 and -1 taken for them."""
    exact = [[float(round(a)) if abs(a - round(a)) < 1e-15 else float(a) for a in row] for row in fixed]
    if sliding:
        return [[graph.constant(a) for a in row] for row in exact]
    s, c = graph.state(f"s[{j}]"), graph.state(f"c[{j}]")
    skewed = [[0.0, -axis[2], axis[1]], [axis[2], 0.0, -axis[0]], [-axis[1], axis[0], 0.0]]
    turn = [
        [c * ((a == b) - axis[a] * axis[b]) + axis[a] * axis[b] + s * skewed[a][b] for b in range(3)] for a in range(3)
    ]
    return [[_dot(row, [turn[a][b] for a in range(3)]) for b in range(3)] for row in exact]


def _in_child(turn: list[Vector], v: Vector) -> Vector:
    """Components in a joint's frame of a vector given in the frame before."""
    return [_dot([turn[a][b] for a in range(3)], v) for b in range(3)]
