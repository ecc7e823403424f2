"""Dynamics compiled for one arm, as a backend: specialised recursions in C, checked against the package's own."""

from __future__ import annotations

import ctypes
import warnings

import numpy as np

from safe_sysid.core.arrays import FloatArray
from safe_sysid.core.layout import COULOMB, OFFSET, PER_LINK, ROTOR, VISCOUS, ParameterLayout
from safe_sysid.dynamics.generated.c_code import Source, write_c
from safe_sysid.dynamics.generated.chain import chain_of
from safe_sysid.dynamics.generated.compiled import NoCompilerError, load
from safe_sysid.dynamics.generated.derive import base_columns, parameter_order
from safe_sysid.dynamics.generated.recursion import TracedArm, solve
from safe_sysid.dynamics.protocol import add_further, as_parameters, coulomb_direction
from safe_sysid.dynamics.recursion import RecursiveDynamics
from safe_sysid.errors import ModelError
from safe_sysid.robot.frames import as_batch
from safe_sysid.robot.model import Kinematics

__all__ = ["GeneratedDynamics", "drawn_parameters"]


#: What generated code may differ by from the recursion, of the largest entry of a result.
_ALLOWED = 1e-9
_STATES = 5


class GeneratedDynamics(RecursiveDynamics):
    """The backend (a :class:`~safe_sysid.dynamics.Dynamics`): for laws and estimates, never for a certificate.

    Torque, gravity, mass matrix, torque regressor and forward dynamics are generated; regressors of two velocities and
    of momentum are the recursion's. Without a C compiler all are, and a warning says so once.

    Attributes:
        source: the C code; None without a compiler.
        base: (l, P): base parameters are ``base theta``.
    """

    def __init__(self, kin: Kinematics) -> None:
        """Derive, compile and check.

        Raises:
            ModelError: the arm is no chain; or the code differs from the recursion by more than 1e-9.
        """
        super().__init__(kin)
        n, chain, rng = self._n, chain_of(kin), np.random.default_rng(5)
        links = np.zeros((11 * n, ParameterLayout(n).size))
        links[: 10 * n, : 10 * n] = chain.link_parameters()
        links[10 * n :, ROTOR * n : (ROTOR + 1) * n] = np.eye(n)
        # About the chain's frames: W theta = (W L^-1) (L theta).
        samples = super().torque_regressor(*rng.uniform(-2.0, 2.0, (3, 20 * n, n)))
        inverse = np.linalg.inv(links[: 10 * n, : 10 * n])
        rows = np.concatenate(
            [samples[..., : 10 * n] @ inverse, samples[..., ROTOR * n : (ROTOR + 1) * n]], axis=-1
        ).reshape(-1, 11 * n)
        size = np.linalg.norm(rows, axis=0)
        rows[:, size < 1e-11 * size.max()] = 0.0
        selected, combination = base_columns(rows, parameter_order(n))
        self.base: FloatArray = combination @ links
        self._l, still = len(selected), [0.0] * n
        arm = TracedArm(chain, selected.tolist(), True)
        inertia, induced = arm.mass_matrix(), arm.torque(arm.qd, still)
        rest = [t - x for t, x in zip(arm.tau, induced, strict=True)]
        self.source: Source | None = write_c(
            arm.graph,
            n,
            {
                "inverse": arm.torque(arm.qd, arm.qdd),
                "gravity": arm.torque(still, still),
                "mass": [x for row in inertia for x in row],
                "regressor": [x for row in arm.regressor(arm.qd, arm.qdd) for x in row],
                "forward": solve(arm.graph, inertia, rest),
            },
        )
        try:
            self._library = load(self.source)
        except NoCompilerError as error:
            warnings.warn(f"dynamics are not generated but by the recursion in numba: {error}", stacklevel=2)
            self.source = None
            return
        for name in ("prepare", *self.source.functions):
            getattr(self._library, f"arm_{name}").restype = None
        self._check(rng)

    def _call(
        self, name: str, width: int, theta: FloatArray | None, q: FloatArray, qd: FloatArray, x: FloatArray
    ) -> FloatArray:
        """One generated function over a batch (N, n); ``theta``: for those that take parameters."""
        prepared = np.empty(self.source.prepared if self.source else 0)
        if theta is not None:
            base = np.ascontiguousarray(self.base @ theta)
            self._library.arm_prepare(_at(base), _at(prepared))
        out = np.empty((len(q), width))
        states = [np.ascontiguousarray(a, dtype=np.float64) for a in (q, qd, x)]
        getattr(self._library, f"arm_{name}")(ctypes.c_long(len(q)), _at(prepared), *(_at(a) for a in states), _at(out))
        return out

    def _check(self, rng: np.random.Generator) -> None:
        """Compare with the recursion at random states and parameters.

        Raises:
            ModelError: they differ by more than 1e-9 of the largest entry.
        """
        n, plain = self._n, RecursiveDynamics(self.kin)
        q, qd, qdd = rng.uniform(-3.0, 3.0, (3, _STATES, n))
        theta = drawn_parameters(n, rng)
        torque, inertia = plain.inverse_dynamics(theta, q, qd, qdd), plain.mass_matrix(theta, q)
        ours = {
            "inverse dynamics": (self.inverse_dynamics(theta, q, qd, qdd), torque),
            "gravity": (self.gravity(theta, q), plain.gravity(theta, q)),
            "the mass matrix": (self.mass_matrix(theta, q), inertia),
            "the regressor": (self.torque_regressor(q, qd, qdd), plain.torque_regressor(q, qd, qdd)),
            "forward dynamics": (
                np.einsum("kij,kj->ki", inertia, self.forward_dynamics(theta, q, qd, torque)),
                np.einsum("kij,kj->ki", inertia, qdd),
            ),
        }
        for name, (found, expected) in ours.items():
            gap = float(np.abs(found - expected).max()) / max(float(np.abs(expected).max()), 1e-300)
            if not gap <= _ALLOWED:
                raise ModelError(
                    f"generated code for {name} differs from the recursion by {gap:.1e} of its largest entry: "
                    f"refused, expected at most {_ALLOWED:g}"
                )

    def _friction(self, theta: FloatArray, qd: FloatArray, transition: float) -> FloatArray:
        n = self._n
        sign = coulomb_direction(qd, transition)
        fc, fv, beta = (theta[k * n : (k + 1) * n] for k in (COULOMB, VISCOUS, OFFSET))
        out: FloatArray = fc * sign + fv * qd + beta
        for part, term in ParameterLayout(n).further:
            if term.torque is not None:
                out += theta[part] * term.torque(qd, transition)
        return out

    def inverse_dynamics(
        self, theta: FloatArray, q: FloatArray, qd: FloatArray, qdd: FloatArray, transition: float = 0.0
    ) -> FloatArray:
        """As :meth:`safe_sysid.dynamics.Dynamics.inverse_dynamics`."""
        if self.source is None:
            return super().inverse_dynamics(theta, q, qd, qdd, transition)
        (q, qd, qdd), single = as_batch(self.kin, q, qd, qdd)
        theta = as_parameters(self.kin, theta)
        out = self._call("inverse", self._n, theta, q, qd, qdd) + self._friction(theta, qd, transition)
        return out[0] if single else out

    def forward_dynamics(
        self, theta: FloatArray, q: FloatArray, qd: FloatArray, torque: FloatArray, transition: float = 0.0
    ) -> FloatArray:
        """Accelerations (n,), rad/s^2, that motor torques (n,), N m, give: ``H^-1 (tau - C qd - g - friction)``.

        Args:
            theta: (14 n,) parameters.
            q: (n,) or (N, n) rad.
            qd: likewise, rad/s.
            torque: likewise, N m.
            transition: friction transition velocity, rad/s.

        Raises:
            ParameterError: shapes that do not match.
        """
        (q, qd, torque), single = as_batch(self.kin, q, qd, torque)
        theta = as_parameters(self.kin, theta)
        if self.source is None:
            rest = torque - super().inverse_dynamics(theta, q, qd, np.zeros_like(q), transition)
            solved = np.linalg.solve(self.mass_matrix(theta, q), rest[..., None])[..., 0]
            out = np.asarray(solved, dtype=np.float64)
        else:
            free = torque - self._friction(theta, qd, transition)
            out = self._call("forward", self._n, theta, q, qd, free)
        return out[0] if single else out

    def gravity(self, theta: FloatArray, q: FloatArray) -> FloatArray:
        """As :meth:`safe_sysid.dynamics.Dynamics.gravity`."""
        if self.source is None:
            return super().gravity(theta, q)
        (q,), single = as_batch(self.kin, q)
        out = self._call("gravity", self._n, as_parameters(self.kin, theta), q, q, q)
        return out[0] if single else out

    def mass_matrix(self, theta: FloatArray, q: FloatArray) -> FloatArray:
        """As :meth:`safe_sysid.dynamics.Dynamics.mass_matrix`."""
        if self.source is None:
            return super().mass_matrix(theta, q)
        (q,), single = as_batch(self.kin, q)
        n = self._n
        out = self._call("mass", n * n, as_parameters(self.kin, theta), q, q, q).reshape(-1, n, n)
        return out[0] if single else out

    def torque_regressor(self, q: FloatArray, qd: FloatArray, qdd: FloatArray, transition: float = 0.0) -> FloatArray:
        """As :meth:`safe_sysid.dynamics.Dynamics.torque_regressor`: ``Y base``, and friction."""
        if self.source is None:
            return super().torque_regressor(q, qd, qdd, transition)
        (q, qd, qdd), single = as_batch(self.kin, q, qd, qdd)
        n = self._n
        out: FloatArray = self._call("regressor", n * self._l, None, q, qd, qdd).reshape(-1, n, self._l) @ self.base
        joints = np.arange(n)
        sign = coulomb_direction(qd, transition)
        out[:, joints, COULOMB * n + joints] = sign
        out[:, joints, VISCOUS * n + joints] = qd
        out[:, joints, OFFSET * n + joints] = 1.0
        add_further(out, qd, transition, 1.0)
        return out[0] if single else out


def drawn_parameters(n: int, rng: np.random.Generator) -> FloatArray:
    """(14 n,) of bodies of 1 to 2 kg and rotors without friction, whose mass matrix is definite."""
    theta = np.zeros(ParameterLayout(n).size)
    for j in range(n):
        points, m = rng.standard_normal((4, 3)), rng.uniform(0.25, 0.5)
        spread = m * (np.sum(points**2) * np.eye(3) - points.T @ points)
        block = [4.0 * m, *(m * points.sum(axis=0)), *spread[[0, 0, 1, 0, 1, 2], [0, 1, 1, 2, 2, 2]]]
        theta[PER_LINK * j : PER_LINK * (j + 1)] = block
    theta[ROTOR * n : (ROTOR + 1) * n] = rng.uniform(0.5, 1.0, n)
    return theta


def _at(array: FloatArray) -> ctypes.c_void_p:
    return ctypes.c_void_p(array.ctypes.data)
