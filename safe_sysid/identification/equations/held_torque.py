r"""Bound of the acceleration within a step of held torque, from the arm's equations of motion.

``|qdd| <= acceleration`` is declared for all motions, the fastest included. On a step of a held torque more is known:
``tau`` is within noise of its middle at all times, and Coulomb friction is constant where no velocity comes near zero,
else anything within Fc, which then counts as noise. With p the momentum, rotor inertias included, H its matrix, and f
as in :mod:`~safe_sysid.identification.equations.remainders`,

``H qdd = middle + delta + s``, ``|delta| <= noise``, ``s = f - Hdot qd - Fv qd - Fc sign - beta``.

So ``qdd = a + b``, ``H b = delta``, and ``H a = middle + s`` has a derivative, ``H adot = sdot - Hdot a``. As
``d/dt(Hdot qd) + Hdot qdd = D^2 p[(qd, qdd), (qd, qdd)] + Dp[(qdd, 0)]`` and ``a = qdd - b``,

``|H adot| <= f1(V, A) + Fv A + p2((V, A), (V, A)) + p1(A, 0)``, all at V, ``+ p1(V, 0)`` at velocities |b|.
f1 depends on gravity by its norm alone, in one term of its sum: times ``1 + gravity_relative`` it is of the true one.

``H >= D = diag(Ia)``, as no motion of the links has a negative energy. Then for ``y = H^-1 r``, from ``y.H y = y.r``,
``|D^1/2 y| <= |D^-1/2 r|`` (Euclidean norms), so ``|y_j| <= sqrt(sum_i r_i^2/Ia_i)/sqrt(Ia_j)``. This gives ``|b| <=
e`` from the noise, and ``|adot| <= J`` from the sum. A function with Lipschitz constant J is within ``J H/2`` of its
mean over a step of at most H, b within ``2 e`` of its own, and the mean of qdd is the change of qd over the duration:

``|qdd| <= (|qd1 - qd0| + 2 dv)/(h - 2 sigma) + J H/2 + 2 e``.

The smaller of this and A takes the place of A, here in a second round, then in everything that A is for. The mean of
qd differs from that of its ends by at most ``J H^2/12 + e H/4``: trapezoids of a function whose slope has the Lipschitz
constant J, and of one that has the Lipschitz constant e. Not for link-side torques (the motor's is not measured),
sampled ones, nor where delay or jitter let a torque switch within a step; nor with rotors on moving links, where
``H >= D`` is false, friction that has further terms, or prismatic joints: whether these stay in their travel, which the
bounds assume, is concluded from the acceleration.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from safe_sysid.core.arrays import BoolArray, FloatArray
from safe_sysid.identification.equations.measurement_errors import MeasurementErrors, torque_interval
from safe_sysid.identification.equations.measurements import Measurements
from safe_sysid.identification.equations.remainders import Magnitudes, motion_bounds
from safe_sysid.identification.equations.step_states import HeldMotion, StepStates, coulomb_sign
from safe_sysid.robot.model import Kinematics
from safe_sysid.robot.parameters import ParameterBox

__all__ = ["held_motion"]

_ROUNDS = 2


def held_motion(
    kin: Kinematics,
    data: Measurements,
    states: StepStates,
    errors: MeasurementErrors,
    size: Magnitudes,
    box: ParameterBox,
) -> HeldMotion | None:
    """Bounds of the motion on each step, none larger than those of ``states``; None: nothing more is known.

    Args:
        data: the samples, m + 1.
        states: with the declared bound.
        size: of the box.
        box: holds the true, physically consistent parameters.
    """
    layout = box.layout
    rotor = box.lower[layout.rotor_inertia]
    late = errors.effort != "held" or errors.torque_delay + errors.torque_jitter > 0.0
    more = size.kappa.size or layout.further or np.any(np.isfinite(kin.travel))
    if late or errors.torque_source == "link" or more or not np.all(rotor > 0.0):
        return None
    largest = np.maximum(np.abs(box.lower), np.abs(box.upper))
    sticking = np.where(coulomb_sign(data, states, errors) == 0.0, largest[layout.coulomb], 0.0)
    shortest = np.maximum(states.h - 2.0 * states.stamp, 1e-300)[:, None]
    out = HeldMotion(np.array(states.acceleration), np.full(states.acceleration.shape, np.inf))
    _lower(
        size,
        largest[layout.viscous],
        rotor,
        states.h + 2.0 * states.stamp,
        np.abs(states.mean) + states.rho,
        torque_interval(data.effort, errors)[1][1:] + sticking,
        (np.abs(np.diff(data.qd, axis=0)) + 2.0 * errors.velocity) / shortest,
        ~states.wrong,
        1.0 + errors.gravity_relative,
        out.acceleration,
        out.chord,
    )
    return out


@njit(cache=True, nogil=True)
def _lower(
    size: Magnitudes,
    viscous: FloatArray,
    rotor: FloatArray,
    longest: FloatArray,
    speed: FloatArray,
    noise: FloatArray,
    change: FloatArray,
    known: BoolArray,
    heavier: float,
    out: FloatArray,
    chord: FloatArray,
) -> None:
    """Lower ``out`` and ``chord`` where the arm's equations allow for less.

    Args:
        viscous: (n,) largest. rotor: (n,) least, > 0.
        longest: (m,) H, s.
        speed: (m, n) bound of the mean velocity.
        noise: (m, n) half width of the torque, with the Coulomb friction of which the sign is not certain.
        change: (m, n) bound of the mean acceleration.
        known: (m,) where measurements agree with what is declared.
        heavier: true gravity over the declared one at most, >= 1.
        out: (m, n) bound of the acceleration. chord: (m, n) see :class:`HeldMotion`.
    """
    n = viscous.size
    zero, v, e = np.zeros(n), np.empty(n), np.empty(n)
    along, turned, still = np.empty((6, n)), np.empty((6, n)), np.empty((6, n))
    for k in range(longest.size):
        if not known[k]:
            continue
        total = 0.0
        for j in range(n):
            total += noise[k, j] ** 2 / rotor[j]
        for j in range(n):
            e[j] = np.sqrt(total / rotor[j])
        for _ in range(_ROUNDS):
            for j in range(n):
                v[j] = speed[k, j] + 0.5 * out[k, j] * longest[k]
            motion_bounds(size, v, v, out[k], v, out[k], along)
            motion_bounds(size, v, out[k], zero, zero, zero, turned)
            motion_bounds(size, e, v, zero, zero, zero, still)
            total = 0.0
            for i in range(n):
                r = heavier * along[4, i] + viscous[i] * out[k, i] + along[2, i] + turned[1, i] + still[1, i]
                total += r * r / rotor[i]
            for j in range(n):
                jerk = np.sqrt(total / rotor[j])
                bound = change[k, j] + 0.5 * longest[k] * jerk + 2.0 * e[j]
                out[k, j] = min(out[k, j], bound * (1.0 + 1e-11))
                bound = longest[k] * (longest[k] * jerk / 12.0 + 0.25 * e[j])
                chord[k, j] = min(chord[k, j], bound * (1.0 + 1e-11))
