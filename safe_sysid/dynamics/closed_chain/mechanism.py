r"""A :class:`Mechanism`: a tree of joints, loops that close it, and the joints that motors drive.

The positions ``q_u = Gamma(q_a)`` of the passive joints follow from those of the actuated ones [ConstrainedSysID eq.
18], and so do velocities and accelerations: ``qd = G qd_a``, ``qdd = G qdd_a + dG/dt qd_a`` with ``G_a = 1``,
``G_u = -J_u^-1 J_a`` [eq. 19 to 22]. Reaction forces do no work along G, so what the motors feel is

``u = G^T W(q, qd, qdd) theta`` [eq. 23], and in momentum form ``d/dt (G^T W_m theta) - (G^T W_c + dG/dt^T W_m) theta``.

An arm without loops is a mechanism without passive joints: G is 1, and everything is as ever.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
from numpy.typing import ArrayLike

from safe_sysid.core.arrays import FloatArray, IntArray
from safe_sysid.core.layout import ParameterLayout
from safe_sysid.dynamics import dynamics_of
from safe_sysid.dynamics.closed_chain.kernels import Loops, derivatives, follow, linearise, transmission_rates
from safe_sysid.dynamics.closed_chain.parts import ClosureError, LoopClosure, MechanismMotion
from safe_sysid.errors import ModelError, ParameterError
from safe_sysid.robot.model import Kinematics, RobotModel
from safe_sysid.robot.parameters import frozen_array

__all__ = ["Mechanism"]

IndexArray = IntArray
_CLOSED = 1e-9  # largest error of a closed loop, of its length (or rad), redundant rows included
_INDEPENDENT = 1e-6  # of the largest: a combination of rows that moves less, over all samples, is redundant


@dataclass(frozen=True, eq=False)
class Mechanism:
    """A tree of n joints, of which n_a are driven and n_u follow through loops.

    Use: ``motion = mechanism.motion(q_a, qd_a, qdd_a)``, then ``mechanism.regressor(motion)`` (N, n_a, 14 n) times
    all parameters (14 n,) is the torque of the motors (N, n_a).
    """

    name: str
    joint_names: tuple[str, ...]  #: n names, parents before children
    kinematics: Kinematics
    position_lower: FloatArray  #: (n,) rad (m), minus infinity for continuous joints
    position_upper: FloatArray  #: (n,) likewise
    theta_nominal: FloatArray  #: (14 n,) in the order of :class:`~safe_sysid.core.layout.ParameterLayout`
    actuated: IndexArray  #: (n_a,) joints that motors drive, in the order of the columns of q_a
    closures: tuple[LoopClosure, ...] = ()  #: of the loops; none for an open chain
    #: (n,) near which the loops close; after construction they are closed there. It picks the branch.
    start: FloatArray = field(default_factory=lambda: np.zeros(0))
    smallest: float = 1e-3  #: singular value of J_u below which a position counts as singular
    #: (n,) rad/s (m/s), infinity where nobody says
    velocity_upper: FloatArray = field(default_factory=lambda: np.zeros(0))

    def __post_init__(self) -> None:
        """Validate, close the loops at ``start``, and drop redundant rows.

        Raises:
            ModelError: a loop that does not close, or rows that are not as many as the passive joints.
        """
        n = len(self.joint_names)
        if len(set(self.joint_names)) != n or len(self.kinematics.axis) != n:
            raise ModelError(f"{self.name}: joints {list(self.joint_names)}: expected different names, one per axis")
        if np.size(self.velocity_upper) == 0:
            object.__setattr__(self, "velocity_upper", np.full(n, np.inf))
        for name in ("position_lower", "position_upper", "velocity_upper"):
            object.__setattr__(self, name, frozen_array(getattr(self, name), (n,), f"{self.name}.{name}", finite=False))
        theta = frozen_array(self.theta_nominal, (ParameterLayout(n).size,), f"{self.name}.theta_nominal")
        object.__setattr__(self, "theta_nominal", theta)
        actuated = np.array(self.actuated, dtype=np.int64)
        if not len(actuated) or len(set(actuated.tolist())) != len(actuated):
            raise ModelError(f"{self.name}: actuated joints {actuated.tolist()}: expected different ones")
        actuated.setflags(write=False)
        object.__setattr__(self, "actuated", actuated)
        start = np.zeros(n) if np.size(self.start) == 0 else np.array(self.start, float)
        object.__setattr__(self, "start", frozen_array(start, (n,), f"{self.name}.start"))
        if self.closures:
            object.__setattr__(self, "start", frozen_array(self._closed(np.array(self.start)), (n,), "start"))
        _ = self.loops

    @classmethod
    def of_robot(cls, model: RobotModel) -> Mechanism:
        """An arm without loops."""
        return cls(
            model.name,
            model.joint_names,
            model.kinematics,
            model.limits.position_lower,
            model.limits.position_upper,
            model.theta_nominal,
            np.arange(model.n),
            velocity_upper=model.limits.velocity,
        )

    @property
    def n(self) -> int:
        """Number of joints."""
        return len(self.joint_names)

    @property
    def layout(self) -> ParameterLayout:
        """Where everything lies in vectors of all parameters."""
        return ParameterLayout(self.n)

    @property
    def actuated_names(self) -> tuple[str, ...]:
        """Names of the n_a joints that motors drive."""
        return tuple(self.joint_names[j] for j in self.actuated)

    @cached_property
    def passive(self) -> IndexArray:
        """(n_u,) joints without motors."""
        return np.setdiff1d(np.arange(self.n), self.actuated)

    @cached_property
    def loops(self) -> Loops:
        """For the kernels."""
        return self._loops(self._independent_rows())

    def _loops(self, rows: FloatArray) -> Loops:
        count = len(self.closures)
        return Loops(
            np.array([c.joints for c in self.closures], np.int64).reshape(count, 2),
            np.array([c.rotations for c in self.closures]).reshape(count, 2, 3, 3),
            np.array([c.points for c in self.closures]).reshape(count, 2, 3),
            np.array([c.kind == "6D" for c in self.closures], bool),
            np.ascontiguousarray(rows),
            np.array(self.actuated),
            self.passive,
        )

    @cached_property
    def _all_rows(self) -> Loops:
        return self._loops(np.zeros((len(self.passive), sum(c.size for c in self.closures))))

    def _linearised(self, q: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Errors (N, M) and Jacobians (N, M, n) of all rows, translations per length of their loop."""
        rows = self._all_rows.rows.shape[1]
        error, jacobian = np.empty((len(q), rows)), np.empty((len(q), rows, self.n))
        linearise(self.kinematics, self._all_rows, np.ascontiguousarray(q), error, jacobian)
        return error / self._scale, jacobian / self._scale[:, None]

    @cached_property
    def _scale(self) -> FloatArray:
        """(M,) length of its loop for each row of a translation, 1 for rotations: largest lever at q = 0."""
        rows = self._all_rows.rows.shape[1]
        error, jacobian = np.empty((1, rows)), np.empty((1, rows, self.n))
        linearise(self.kinematics, self._all_rows, np.zeros((1, self.n)), error, jacobian)
        scale, row = np.ones(rows), 0
        turning = ~self.kinematics.sliding
        for closure in self.closures:
            levers = np.linalg.norm(jacobian[0, row : row + 3][:, turning], axis=0)
            scale[row : row + 3] = max(float(levers.max(initial=0.0)), 1e-3)
            row += closure.size
        return scale

    def loop_joints(self, closure: LoopClosure) -> list[int]:
        """Joints that move one end of a loop against the other."""
        ways = []
        for joint in closure.joints:
            way = set()
            while joint >= 0:
                way.add(joint)
                joint = int(self.kinematics.parent[joint])
            ways.append(way)
        return sorted(ways[0] ^ ways[1])

    def _closed(self, q: FloatArray, tries: int = 200) -> FloatArray:
        """Gauss-Newton with all rows: positions with closed loops near ``q``, only passive joints moved.

        Raises:
            ModelError: there are none, or it does not find them.
        """
        for _ in range(tries):
            error, jacobian = self._linearised(q[None])
            if np.max(np.abs(error)) < 1e-2 * _CLOSED:
                break
            step = np.linalg.lstsq(jacobian[0][:, self.passive], -error[0], rcond=1e-9)[0]
            q[self.passive] += step * min(1.0, 0.3 / max(float(np.max(np.abs(step), initial=0.0)), 1e-300))
        error, row = self._linearised(q[None])[0][0], 0
        for closure in self.closures:
            largest = float(np.max(np.abs(error[row : row + closure.size])))
            if not largest < _CLOSED:
                raise ModelError(
                    f"{self.name}: loop {closure.name!r} is open by {largest:.3g} of its length at the start position: "
                    "expected ends that meet for some position of the passive joints near it"
                )
            row += closure.size
        return q

    def _independent_rows(self) -> FloatArray:
        """(n_u, M) orthonormal combinations of scaled rows that positions with closed loops can move.

        Raises:
            ModelError: not as many as the passive joints.
        """
        if not self.closures:
            if len(self.passive):
                names = ", ".join(self.joint_names[j] for j in self.passive)
                raise ModelError(f"{self.name}: passive joints {names}: expected loops that move them")
            return np.zeros((0, 0))
        rng, spread = np.random.default_rng(0), np.full(len(self.actuated), 0.5)
        gram, found = 0.0, 0
        for _ in range(200):
            q = np.array(self.start)
            q[self.actuated] += rng.uniform(-spread, spread) if found else 0.0
            try:
                q = self._closed(q, 30)
            except ModelError:
                spread *= 0.9
                continue
            jacobian = self._linearised(q[None])[1][0]
            gram, found = gram + jacobian @ jacobian.T, found + 1
            if found == 24:
                break
        values, vectors = np.linalg.eigh(gram)
        independent = values > _INDEPENDENT**2 * values[-1] + 1e-300
        if np.count_nonzero(independent) != len(self.passive):
            raise ModelError(
                f"{self.name}: loops {', '.join(c.name for c in self.closures)} have {np.count_nonzero(independent)} "
                f"independent rows of {len(values)}, and there are {len(self.passive)} passive joints "
                f"({', '.join(self.joint_names[j] for j in self.passive)}): expected as many"
            )
        return vectors[:, independent].T / self._scale

    def _fail(self, what: str, sample: int, joints: Sequence[int], stamps: FloatArray | None) -> ClosureError:
        time = None if stamps is None else float(stamps[sample])
        when = f"sample {sample}" if time is None else f"{time:.6g} s (sample {sample})"
        names = ", ".join(self.joint_names[j] for j in joints)
        return ClosureError(f"{self.name}: {what} at {when}: {names}", sample, time, self.joint_names[joints[0]])

    def jacobian(self, q: FloatArray) -> FloatArray:
        """J (n_u, n), the independent rows, translations per length of their loop. ``q``: (n,) closed loops."""
        return self.loops.rows @ (self._linearised(q[None])[1][0] * self._scale[:, None])

    def is_closed(self, q: FloatArray) -> bool:
        """Whether all loops are closed, redundant rows included. ``q``: (..., n) rad (m)."""
        return bool(np.all(np.abs(self._linearised(np.atleast_2d(q))[0]) < _CLOSED))

    def positions(self, q_a: ArrayLike, stamps: FloatArray | None = None) -> FloatArray:
        """All joints (N, n) along N positions of the actuated ones: eq. 18, on the branch of ``start``.

        The samples are a motion: each is reached from the one before by continuation.

        ``q_a``: (N, n_a) rad (m); ``stamps``: (N,) s, for messages.

        Raises:
            ClosureError: a branch ends, or a passive joint leaves its limits.
            ParameterError: another shape, or numbers that are not finite.
        """
        q_a = self._samples(q_a, "q_a")
        q = np.empty((len(q_a), self.n))
        q[:, self.actuated] = q_a
        if not self.closures:
            return q
        reached = follow(self.kinematics, self.loops, q_a, np.array(self.start), q)
        inside = np.all(
            (q[:reached] >= self.position_lower - 1e-6) & (q[:reached] <= self.position_upper + 1e-6)
            | np.isin(np.arange(self.n), self.actuated),
            axis=1,
        )
        if not np.all(inside):
            k = int(np.argmin(inside))
            beyond = [
                int(j)
                for j in self.passive
                if not self.position_lower[j] - 1e-6 <= q[k, j] <= self.position_upper[j] + 1e-6
            ]
            raise self._fail("passive joint beyond its limits", k, beyond, stamps)
        if reached < len(q_a):
            raise self._fail(
                "the branch of the loops ends (singular, or out of reach)",
                reached,
                self._blocked(q_a[reached], q[reached - 1] if reached else np.array(self.start)),
                stamps,
            )
        few = np.unique(np.linspace(0, len(q) - 1, min(len(q), 200)).astype(int))
        for k in few:
            if not self.is_closed(q[k]):
                raise self._fail("a loop opens across its plane", int(k), list(self.passive), stamps)
        return q

    def _blocked(self, target: FloatArray, q: FloatArray) -> list[int]:
        """Passive joints of the loop that is nearest to a singular position on the way to ``target``."""
        trial = np.array(q)
        trial[self.actuated] = target
        error = np.abs(self._linearised(trial[None])[0][0])
        ends = np.cumsum([c.size for c in self.closures])
        worst = self.closures[int(np.searchsorted(ends, int(np.argmax(error)), side="right"))]
        return [j for j in self.loop_joints(worst) if j in self.passive] or [int(self.passive[0])]

    def _samples(self, values: ArrayLike, what: str, count: int | None = None) -> FloatArray:
        # A copy: for arrays that nobody may write on, as those of logs, kernels would be compiled a second time.
        array = np.array(np.atleast_2d(np.asarray(values, float)), order="C")
        n_a = len(self.actuated)
        if array.ndim != 2 or array.shape[1] != n_a or count not in (None, len(array)):
            rows = "N" if count is None else count
            raise ParameterError(f"{what} of shape {array.shape}: expected ({rows}, {n_a})")
        if not np.all(np.isfinite(array)):
            k, j = np.argwhere(~np.isfinite(array))[0]
            raise ParameterError(f"{what}[{k}] of {self.actuated_names[j]} = {array[k, j]}: expected a finite number")
        return array

    def motion(
        self, q_a: ArrayLike, qd_a: ArrayLike, qdd_a: ArrayLike, stamps: FloatArray | None = None
    ) -> MechanismMotion:
        """States of all joints: eq. 18 to 22.

        Args:
            q_a: (N, n_a) positions of the actuated joints along a motion, rad (m).
            qd_a: (N, n_a) rad/s.
            qdd_a: (N, n_a) rad/s^2.
            stamps: (N,) s, for messages.

        Raises:
            ClosureError: a branch ends, J_u is singular, or a passive joint leaves its limits.
            ParameterError: another shape, or numbers that are not finite.
        """
        q = self.positions(q_a, stamps)
        qd_a, qdd_a = self._samples(qd_a, "qd_a", len(q)), self._samples(qdd_a, "qdd_a", len(q))
        n, count, shape = self.n, len(self.passive), (len(q), self.n)
        passive_jacobian, transmission = (np.empty((len(q), count, count)), np.empty((*shape, len(self.actuated))))
        if not self.closures:
            transmission[:] = np.eye(n)[:, self.actuated]
            qd, qdd = np.empty(shape), np.empty(shape)
            qd[:, self.actuated], qdd[:, self.actuated] = qd_a, qdd_a
            return MechanismMotion(q, qd, qdd, transmission, passive_jacobian, np.full(len(q), np.inf))
        qd, qdd = np.empty(shape), np.empty(shape)
        reached = derivatives(self.kinematics, self.loops, q, qd_a, qdd_a, passive_jacobian, transmission, qd, qdd)
        values = np.asarray(np.linalg.svd(passive_jacobian[:reached], compute_uv=False)[:, -1], np.float64)
        if reached < len(q) or np.any(values < self.smallest):
            k = int(np.argmax(values < self.smallest)) if np.any(values < self.smallest) else reached
            weakest = np.linalg.svd(passive_jacobian[k])[2][-1]
            joint = int(self.passive[int(np.argmax(np.abs(weakest)))])
            raise self._fail("singular position (J_u loses rank)", k, [joint], stamps)
        return MechanismMotion(q, qd, qdd, transmission, passive_jacobian, values)

    def transmission_rate(self, motion: MechanismMotion) -> FloatArray:
        """``dG/dt`` (N, n, n_a), 1/s."""
        out = np.zeros(motion.transmission.shape)
        if self.closures:
            transmission_rates(
                self.kinematics, self.loops, motion.q, motion.passive_jacobian, motion.transmission, motion.qd, out
            )
        return out

    def regressor(self, motion: MechanismMotion, transition: float = 0.0) -> FloatArray:
        """``Y_a = G^T W`` (N, n_a, 14 n): times all parameters it is the motors' torque, N m (eq. 23, 27).

        ``transition``: friction transition velocity, rad/s.
        """
        dynamics = dynamics_of(self.kinematics)
        out = np.empty((len(motion), len(self.actuated), self.layout.size))
        for part, block in motion.blocks():
            full = dynamics.torque_regressor(block.q, block.qd, block.qdd, transition)
            out[part] = block.transmission.transpose(0, 2, 1) @ full if self.closures else full[:, self.actuated]
        return out

    def momentum_regressors(self, motion: MechanismMotion, transition: float = 0.0) -> tuple[FloatArray, FloatArray]:
        """``G^T W_m`` and ``G^T W_c + dG/dt^T W_m``, each (N, n_a, 14 n).

        The derivative of the first less the second is :meth:`regressor`; accelerations are in neither.

        ``motion``: of this mechanism; its ``qdd`` is not used; ``transition``: friction transition velocity, rad/s.
        """
        dynamics = dynamics_of(self.kinematics)
        shape = (len(motion), len(self.actuated), self.layout.size)
        momentum, rate = np.empty(shape), np.empty(shape)
        for part, block in motion.blocks():
            w_m = dynamics.momentum_regressor(block.q, block.qd)
            w_c = dynamics.momentum_rate_regressor(block.q, block.qd, transition)
            across = block.transmission.transpose(0, 2, 1)
            momentum[part] = across @ w_m
            rate[part] = across @ w_c + self.transmission_rate(block).transpose(0, 2, 1) @ w_m
        return momentum, rate
