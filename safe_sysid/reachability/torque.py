r"""Enclosure of the commanded torque over time cells, for every parameter vector of a box.

The law commands ``W_s(q_m + lead qd_m, qd_m, qd_a,m, qdd_a,m) theta' + K_d r_m`` with *some* ``theta'`` in the
controller's box, which may be any box nested in the one given here: ``theta' = mid + d``, ``|d_p| <= rad_p``: row j in
``(W_s mid + K_d r)_j +- sum_p |W_s,jp| rad_p``. Both parts stay affine forms in (time, e, r) until they are added: the
torque's dependence on its own tracking error is not counted twice ("Plans" and "The commanded torque lies in the image
of the box" in docs/understand/guarantees.md; [ARMOUR] encloses the same law with polynomial zonotopes).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from safe_sysid.core.arrays import FloatArray
from safe_sysid.core.layout import ParameterLayout
from safe_sysid.errors import ParameterError
from safe_sysid.reachability.cells import ErrorBox, TimeCells, TrackingSet, affine_motion
from safe_sysid.reachability.rotations import rotation_parts
from safe_sysid.reachability.torque_kernel import EnclosedArm, EnclosedLaw, EnclosedMotion, TorqueForms, torque_kernel
from safe_sysid.robot.model import Kinematics, Motors
from safe_sysid.robot.parameters import ParameterBox

__all__ = ["TorqueEnclosure", "TorqueTask", "enclose_torque", "form_ranges", "uncertainty_measure"]

_EPS = 2.0**-52
_UP = 1.0 + 8 * _EPS
#: The controller evaluates the law in floats: a few hundred roundings deep, of terms that may cancel to a thousandth.
_CONTROLLER_ROUNDING = 1e-10


@dataclass(frozen=True)
class TorqueEnclosure:
    """What the torque certificate and the tracking theorem need, per cell."""

    torque: FloatArray  #: (M, n, 2) commanded torque, N m
    nominal: FloatArray  #: (M, n, 2) range of ``W_s mid + K_d r`` alone (for reports: where a violation comes from)
    spread: FloatArray  #: (M, n) upper bound of ``sum_p |W_s,jp| rad_p``
    measure: FloatArray  #: (M,) upper bound of ``S = sqrt(sum_j spread_j^2 / inertia_lower_j)``
    qd: FloatArray  #: (M, n, 2) ranges of the motion
    qd_a: FloatArray  #: (M, n, 2) ranges of the motion
    qdd_a: FloatArray  #: (M, n, 2) ranges of the motion
    regressor: FloatArray | None  #: (M, n, 14 n, 2) ranges of W_s, if asked for


def form_ranges(forms: FloatArray, n: int) -> FloatArray:
    """Ranges (..., 2) of forms (..., K + 2) over n joints: the vectorised :func:`affine.affine_range`."""
    centre, rho = forms[..., 0], forms[..., -1]
    first, second = forms[..., 2 : min(n + 2, forms.shape[-1] - 1)], forms[..., n + 2 : -1]
    radius = np.abs(forms[..., 1]) + np.linalg.norm(first, axis=-1) + np.linalg.norm(second, axis=-1) + rho
    radius = radius + (forms.shape[-1] + 12) * _EPS * (np.abs(centre) + radius) + 1e-150
    return np.stack([centre - radius, centre + radius], axis=-1)


class TorqueTask:
    """The torque enclosure in three steps, so that the long one, :meth:`run`, may go on in other threads."""

    @np.errstate(invalid="ignore", over="ignore")
    def __init__(
        self,
        kin: Kinematics,
        box: ParameterBox,
        cells: TimeCells,
        tracking: TrackingSet | ErrorBox,
        damping: FloatArray,
        inertia_lower: FloatArray,
        friction_transition: float,
        want_regressor: bool = False,
        lead: float = 0.0,
    ) -> None:
        """Prepare; arguments and errors as in :func:`enclose_torque`."""
        n = len(kin.axis)
        damping = np.array(np.broadcast_to(np.asarray(damping, float), (n,)))
        inertia = np.broadcast_to(np.asarray(inertia_lower, float), (n,))
        parameters = ParameterLayout(n).size
        if box.size != parameters or len(tracking.e) != n:
            raise ParameterError(
                f"box of {box.size} parameters, tracking set of {len(tracking.e)}: expected {parameters}, {n}"
            )
        box.layout.require_compiled("the torque certificate", box.lower, box.upper)
        if not np.all(inertia > 0.0):
            raise ParameterError(f"inertia_lower = {inertia.tolist()}: expected positive numbers")
        q, qd, qd_a, qdd_a = affine_motion(cells, tracking)
        if lead != 0.0:
            q = _ahead(q, qd, lead)
        rates = form_ranges(qd_a, n)
        count, _, size = q.shape
        self.n, self.count, self.want_regressor = n, count, want_regressor
        self.ranges = form_ranges(qd, n), rates, form_ranges(qdd_a, n)
        # Copies of frozen arrays: numba would compile everything once more for read-only ones.
        motors = kin.motors
        self.arm = EnclosedArm(
            *rotation_parts(kin),
            np.array(kin.translation),
            np.array(kin.axis),
            np.array(kin.gravity),
            Motors(np.array(motors.joint), np.array(motors.carrier), np.array(motors.gear), np.array(motors.axis)),
        )
        self.motion = EnclosedMotion(
            _own_symbols(q, n),
            _own_symbols(qd, n),
            _own_symbols(qd_a, n),
            _own_symbols(qdd_a, n),
            _true_sign_range(rates, friction_transition)
            if isinstance(tracking, ErrorBox)
            else _sign_range(rates, friction_transition),
        )
        r_bound = np.zeros(n) if isinstance(tracking, ErrorBox) else np.array(tracking.r)
        self.law = EnclosedLaw(np.array(box.mid), np.array(box.rad), damping, r_bound)
        self.weights = _UP / inertia
        self.forms = TorqueForms(
            np.empty((count, n, size)),
            np.empty((count, n, size)),
            np.zeros((count if want_regressor else 0, n, parameters, 2)),
        )

    def run(self, first: int = 0, last: int | None = None) -> None:
        """Do the cells ``first`` to before ``last``; without Python's lock but for a moment."""
        part = slice(first, last)
        motion = EnclosedMotion(*(x[part] for x in self.motion))
        torque_kernel(self.arm, motion, self.law, TorqueForms(*(x[part] for x in self.forms)))

    @np.errstate(invalid="ignore", over="ignore")  # what breaks down becomes NaN or inf, and certifies nothing
    def enclosure(self) -> TorqueEnclosure:
        """The result, once all cells are done."""
        n, (nominal_forms, spread_forms, ranges) = self.n, self.forms
        torque = _torque_range(nominal_forms, spread_forms, n)
        spread, nominal = form_ranges(spread_forms, n)[..., 1], form_ranges(nominal_forms, n)
        rounding = _CONTROLLER_ROUNDING * (1.0 + np.abs(nominal).max(axis=-1) + spread)
        torque = np.stack([torque[..., 0] - rounding, torque[..., 1] + rounding], axis=-1)
        regressor = ranges if self.want_regressor else None
        measure = uncertainty_measure(spread, self.weights)
        return TorqueEnclosure(torque, nominal, spread, measure, *self.ranges, regressor)


def enclose_torque(
    kin: Kinematics,
    box: ParameterBox,
    cells: TimeCells,
    tracking: TrackingSet | ErrorBox,
    damping: FloatArray,
    inertia_lower: FloatArray,
    friction_transition: float,
    want_regressor: bool = False,
    lead: float = 0.0,
) -> TorqueEnclosure:
    """Enclose the torque that a controller with any box nested in ``box`` may command in each cell.

    Args:
        box: (14 n) parameters.
        tracking: bounds of the *measured* tracking errors (:meth:`TrackingSet.enlarged`); of an :class:`ErrorBox` the
            true ones, and what is enclosed is then the torque that moves the arm (damping and lead zero).
        damping: (n,) K_d, N m s / rad.
        inertia_lower: (n,) positive lower bounds of the inertia's weights in the measure, kg m^2.
        friction_transition: velocity below which Coulomb's sign is a ramp, rad/s.
        lead: the controller's regressor is that of ``q + lead qd``, s.

    Raises:
        ParameterError: sizes do not match, or an inertia bound is not positive.
    """
    task = TorqueTask(kin, box, cells, tracking, damping, inertia_lower, friction_transition, want_regressor, lead)
    task.run()
    return task.enclosure()


def uncertainty_measure(spread: FloatArray, inverse_inertia: FloatArray) -> FloatArray:
    """S (M,) from upper bounds of its rows ``sum_p |W_s,jp| rad_p`` (M, n) and of 1 / inertia_lower (n,)."""
    return np.asarray(np.sqrt(np.square(spread) @ inverse_inertia) * (1.0 + 16 * _EPS) + 1e-150)


def _ahead(q: FloatArray, qd: FloatArray, lead: float) -> FloatArray:
    """Forms of ``q + lead qd`` (M, n, K + 2): four roundings per term go to the remainder."""
    out: FloatArray = q + lead * qd
    out[..., -1] = (q[..., -1] + abs(lead) * qd[..., -1]) * _UP
    size = np.abs(q[..., :-1]).sum(axis=-1) + abs(lead) * np.abs(qd[..., :-1]).sum(axis=-1)
    out[..., -1] += 4 * _EPS * size
    return out


def _torque_range(nominal: FloatArray, spread: FloatArray, n: int) -> FloatArray:
    """(M, n, 2): lower end of ``nominal - spread``, upper end of ``nominal + spread``, correlation kept."""
    total = np.abs(nominal) + np.abs(spread)
    slack = 4 * _EPS * total.sum(axis=-1)
    above, below = nominal + spread, nominal - spread
    for form in (above, below):
        form[..., -1] = (nominal[..., -1] + spread[..., -1]) * _UP + slack
    return np.stack([form_ranges(below, n)[..., 0], form_ranges(above, n)[..., 1]], axis=-1)


def _sign_range(rates: FloatArray, transition: float) -> FloatArray:
    """Range of the friction sign ``sat(v / transition)`` (monotone) over velocity ranges (..., 2)."""
    if transition > 0.0:
        ratio = rates / transition
        widened = np.stack(
            [ratio[..., 0] - np.abs(ratio[..., 0]) * _EPS, ratio[..., 1] + np.abs(ratio[..., 1]) * _EPS], -1
        )
        return np.clip(widened, -1.0, 1.0)
    return np.sign(rates)


def _true_sign_range(rates: FloatArray, transition: float) -> FloatArray:
    """Range of the true friction's s(v) over velocity ranges (..., 2): anything in [-1, 1] below the transition."""
    certain = np.stack([rates[..., 0] >= transition, rates[..., 1] <= -transition], axis=-1)
    certain &= np.stack([rates[..., 0] > 0.0, rates[..., 1] < 0.0], axis=-1)
    return np.where(certain, np.array([1.0, -1.0]), np.array([-1.0, 1.0]))


def _own_symbols(forms: FloatArray, n: int) -> FloatArray:
    """(M, n, 5) centre, time, e_j, r_j, remainder of joint motions (M, n, K + 2), which depend on no other joint's."""
    j = np.arange(n)
    own = (forms[..., 0], forms[..., 1], forms[:, j, 2 + j], forms[:, j, 2 + n + j], forms[..., -1])
    return np.stack(own, axis=-1)
