"""One trial of the arm's own intervals: base parameters of a made-up arm, judged by the truth in exact arithmetic."""

from __future__ import annotations

import time
from dataclasses import replace
from fractions import Fraction
from typing import Any

import numpy as np
from scipy.optimize import lsq_linear

from safe_sysid.core.arrays import FloatArray
from safe_sysid.identification.arm.bounds.control_box import control_boxes
from safe_sysid.identification.arm.bounds.intervals import ArmIntervals, ArmIntervalsError, arm_intervals, base_of
from safe_sysid.identification.equations.measurement_errors import MeasurementErrors
from safe_sysid.robot.parameters import ParameterBox
from safe_sysid.studies.campaign.ascent import field_of_rows
from safe_sysid.studies.campaign.cases.case import IdentificationCase, build_case
from safe_sysid.studies.campaign.cases.noise import draw_signs
from safe_sysid.studies.campaign.cases.rotor_bodies import RotorBodies
from safe_sysid.studies.campaign.cases.settings import generator
from safe_sysid.studies.campaign.trial import aimed, neutral, pushed
from safe_sysid.studies.campaign.verdict import TruthViolations

__all__ = ["run_trial"]

_ASCENTS = 2  # solves whose multipliers aim the next errors
_STATES = 60  # random ones, whose torques tell directions of parameters apart
_ROUNDING = 1e-11  # kg, kg m, .. that count as none
_SEEN = 1e-8  # of the largest singular value: below it a direction moves nothing


def run_trial(seed: int, index: int, options: dict[str, Any]) -> dict[str, Any]:
    """One trial from its number alone; everything but ``seconds`` is the same wherever it runs.

    The arm, its motion and the kind of errors are those of the identification campaign's trial of this number, and
    what it holds counts as its last link. Every third trial gives its samples as two logs.

    ``options``: see :func:`~safe_sysid.studies.campaign.cases.case.build_case`.
    """
    began = time.thread_time()
    case = build_case(seed, index, options)
    s = case.settings
    verdict = TruthViolations(case.theta, s.component, s.side, None, case.unknowns)
    signs = draw_signs(case.rng(9), s.noise, case.record, case.torque(neutral(case)))
    place: FloatArray | None = None
    dynamics = None
    if s.noise in ("aimed", "ascent"):
        base = base_of(case.model(None))
        wanted = int(generator(seed, index, 17).integers(len(base)))
        case, signs, place, dynamics = aimed(case, signs, s.side * base.matrix[wanted] * case.model(None).arm_prior.rad)
    directions = _directions_that_move(case)
    exclusions: list[dict[str, Any]] = []
    widths, gap = np.ones(1), np.inf
    for step in range(1 + (_ASCENTS if s.noise == "ascent" else 0)):
        model, (data, order) = case.model(place), case.log(signs)
        theta = case.row_theta(signs)
        verdict.begin(model, data, theta)
        half = len(data) // 2 if index % 3 == 0 else len(data)
        logs = [part for part in (data[:half], data[half:]) if len(part)]
        try:
            found = arm_intervals(model, MeasurementErrors.from_model(model), logs, base_of(model), model.arm_prior)
        except ArmIntervalsError as error:
            verdict.empty += [] if error.without_equations else [str(error)]
            break
        if len(logs) > 1:  # the equations are in the arm's own offsets
            theta = case.theta
        verdict.rows(found.rows, theta)
        exclusions += _exclusions(found, theta, step)
        estimate = model.arm_prior.mid + model.arm_prior.rad * generator(seed, index, 18).uniform(-1, 1, theta.size)
        for one in control_boxes(found, model, estimate):
            exclusions += _outside(one.box, case.theta, directions, step)
        widths = (found.upper - found.lower) / np.maximum(found.prior_upper - found.prior_lower, 1e-300)
        gaps = _gaps(found, theta)
        gap = min(gap, float(gaps.min(initial=np.inf)))
        if dynamics is None or place is None or not np.isfinite(gaps).any():
            break
        bound, count = int(np.argmin(gaps)), len(found.base)
        sign = 1.0 if bound >= count else -1.0
        later = np.where(found.rows.log > 0, half, 0)
        rows = replace(found.rows, first=found.rows.first + later, last=found.rows.last + later)
        field, rest = field_of_rows(
            rows, sign * found.multipliers[bound], data.stamps, order, len(case.record.times) - 1
        )
        rest += sign * found.base.matrix[bound % count]
        place = np.where(rest == 0.0, place, np.sign(rest))
        signs = pushed(case, field, place, dynamics, signs)
    return {
        "index": index,
        "settings": s.to_dict(),
        **verdict.to_dict(),
        "exclusions": exclusions,
        "width_ratio": float(np.median(widths)),
        "gap": gap if np.isfinite(gap) else None,
        "seconds": round(time.thread_time() - began, 4),
    }


def _exclusions(found: ArmIntervals, theta: FloatArray, step: int) -> list[dict[str, Any]]:
    """Base parameters outside their interval; no rounding, so no tolerance."""
    exact, out = [Fraction(x) for x in theta.tolist()], []
    for i, row in enumerate(found.base.matrix):
        truth = sum((Fraction(float(row[p])) * exact[p] for p in np.flatnonzero(row).tolist()), Fraction(0))
        if not Fraction(float(found.lower[i])) <= truth <= Fraction(float(found.upper[i])):
            out.append({"solve": step, "base": i, "truth": float(truth), "lower": float(found.lower[i]),
                        "upper": float(found.upper[i])})  # fmt: skip
    return out


def _outside(box: ParameterBox, theta: FloatArray, same: FloatArray, step: int) -> list[dict[str, Any]]:
    """Whether no parameters of the control laws' box move as the true ones do.

    ``same``: of :func:`_directions_that_move`.
    """
    low, high = box.lower - theta, box.upper - theta
    if np.all((low <= 0.0) & (high >= 0.0)):
        return []
    fixed = high - low < _ROUNDING
    middle = 0.5 * (low + high)[fixed]
    # The least squares of what torques differ by. (Linear programs leave 1e-10, which is no exclusion.)
    found = lsq_linear(same[:, ~fixed], -same[:, fixed] @ middle, (low[~fixed], high[~fixed]), method="bvls", tol=1e-15)
    left = float(np.abs(found.fun).max())
    return [] if left <= _ROUNDING else [{"solve": step, "base": -1, "control_box": left}]


def _directions_that_move(case: IdentificationCase) -> FloatArray:
    """(r, P) orthonormal: parameters whose products with these agree have the same torques in all states.

    The torques are Pinocchio's, rotors being bodies of their own: no regressor of ours.
    """
    theta, layout, n = case.theta, case.arm.layout, case.arm.n
    q, qd, qdd = generator(*case.seeds, 20).normal(size=(3, _STATES, n))

    def torque(parameters: FloatArray) -> FloatArray:
        bodies = RotorBodies(case.arm.kinematics, parameters)
        return np.concatenate([bodies.torque(*state) for state in zip(q, qd, qdd, strict=True)])

    nominal, joints = torque(theta), np.eye(n)
    columns = np.empty((n * _STATES, theta.size))
    for p, step in enumerate(np.eye(theta.size)):
        columns[:, p] = torque(theta + step) - nominal  # linear in the parameters
    for j in range(n):
        for part, shape in ((layout.coulomb, np.sign(qd)), (layout.viscous, qd), (layout.offset, np.ones_like(qd))):
            columns[:, part.start + j] = (shape * joints[j]).ravel()
    _, sizes, directions = np.linalg.svd(columns, full_matrices=False)
    return np.asarray(directions[sizes > _SEEN * sizes[0]])


def _gaps(found: ArmIntervals, theta: FloatArray) -> FloatArray:
    """(2 nb,) distance of each proved bound from the truth over the prior's width; infinite where only the prior is."""
    truth = found.base.matrix @ theta
    width = np.maximum(found.prior_upper - found.prior_lower, 1e-300)
    gaps = np.concatenate([(truth - found.lower) / width, (found.upper - truth) / width])
    return np.where(found.multipliers.any(axis=1), np.maximum(gaps, 0.0), np.inf)
