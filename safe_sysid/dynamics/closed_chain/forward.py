"""Forward dynamics of a mechanism in the coordinates of its motors, under held torques."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
from scipy.integrate import solve_ivp

from safe_sysid.core.arrays import FloatArray
from safe_sysid.dynamics import dynamics_of
from safe_sysid.dynamics.closed_chain.kernels import close, derivatives
from safe_sysid.dynamics.closed_chain.mechanism import Mechanism
from safe_sysid.dynamics.closed_chain.parts import ClosureError
from safe_sysid.errors import ParameterError

__all__ = ["ForwardDynamics"]


class ForwardDynamics:
    """Accelerations and motions for given torques: ``G^T H G qdd_a = u - G^T (C qd + g + friction + H dG/dt qd_a)``."""

    def __init__(self, mechanism: Mechanism, theta: FloatArray, transition: float = 0.01) -> None:
        """Prepare.

        Args:
            theta: (14 n,) its parameters.
            transition: velocity below which Coulomb friction is proportional to velocity, rad/s.
        """
        self._mechanism, self._theta = mechanism, np.ascontiguousarray(theta, float)
        self._dynamics, self._transition = dynamics_of(mechanism.kinematics), transition
        self._near = np.array(mechanism.start)

    def acceleration(self, q_a: FloatArray, qd_a: FloatArray, torque: FloatArray) -> FloatArray:
        """``qdd_a`` (n_a,) rad/s^2.

        Passive joints are found near where the last call left them.

        Args:
            q_a: (n_a,) rad.
            qd_a: (n_a,) rad/s.
            torque: (n_a,) of the motors, N m.

        Raises:
            ClosureError: a loop does not close.
        """
        m, n_a = self._mechanism, len(q_a)
        q = np.array(self._near)
        q[m.actuated] = q_a
        qd, qdd = np.zeros((1, m.n)), np.zeros((1, m.n))
        transmission = np.zeros((1, m.n, n_a))
        if m.closures:
            passive = np.empty((len(m.passive), n_a))
            if close(m.kinematics, m.loops, q, passive) == 0.0:
                names = ", ".join(m.actuated_names)
                raise ClosureError(f"{m.name}: a loop does not close for {names} = {q_a}", 0, None, names)
            jacobian = np.empty((1, len(m.passive), len(m.passive)))
            still = np.zeros((1, n_a))
            derivatives(m.kinematics, m.loops, q[None], qd_a[None].copy(), still, jacobian, transmission, qd, qdd)
        else:
            transmission[0] = np.eye(m.n)[:, m.actuated]
            qd[0, m.actuated] = qd_a
        self._near = q
        g = transmission[0]
        # One state at velocity, then those that the inertia's columns are differences of: all in one call.
        states, velocities, accelerations = (
            np.tile(q, (n_a + 2, 1)),
            np.zeros((n_a + 2, m.n)),
            np.zeros((n_a + 2, m.n)),
        )
        velocities[0], accelerations[0], accelerations[2:] = qd[0], qdd[0], g.T
        forces = self._dynamics.inverse_dynamics(self._theta, states, velocities, accelerations, self._transition)
        inertia = (forces[2:] - forces[1]) @ g
        return np.asarray(np.linalg.solve(inertia, torque - g.T @ forces[0]))

    def simulate(
        self, stamps: FloatArray, q_a: FloatArray, qd_a: FloatArray, torque: FloatArray, start: FloatArray
    ) -> FloatArray:
        """Positions (N, n_a) at N stamps under held torques, by scipy's LSODA, a solver for stiff equations.

        Args:
            stamps: (N,) s, rising.
            q_a: (n_a,) to begin with.
            qd_a: (n_a,) likewise.
            torque: (N, n_a); row k holds from stamp k on.
            start: (n,) position of all joints near which the loops close.

        Raises:
            ParameterError: the solver does not reach the end.
        """
        self._near = np.array(start)
        n_a = len(q_a)

        state, out = np.concatenate([q_a, qd_a]), np.empty((len(stamps), n_a))
        out[0] = q_a
        for k, (begin, end) in enumerate(pairwise(stamps)):  # anew for each hold, within which all is smooth

            def rate(_: float, x: FloatArray, held: FloatArray = torque[k]) -> FloatArray:
                return np.concatenate([x[n_a:], self.acceleration(x[:n_a].copy(), x[n_a:].copy(), held)])

            found = solve_ivp(rate, (begin, end), state, method="LSODA", rtol=1e-5, atol=1e-6)
            if not found.success:
                raise ParameterError(f"forward simulation at {begin:g} s: {found.message}: expected it to go on")
            state = found.y[:, -1]
            out[k + 1] = state[:n_a]
        return out
