r"""Why no parameters agree with all equations: which joint, when, and which single change of a declaration explains it.

With elastic programs: s >= 0 as small as possible such that ``|A x - t| <= slack + s d`` for some x, where d is the
part of the slack that a declaration stands for (or a parameter may leave its prior by s). The multipliers at
the optimum say which equations contradict each other. Explanations are compared by how much slack they add to all
equations on average: the true cause tends to be the cheapest, but a diagnosis is advice and proves nothing.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from safe_sysid.identification.bounds.drift import drift_of, drifting
from safe_sysid.identification.bounds.joint_rows import unscaled_rows
from safe_sysid.identification.diagnosis.elastic import ElasticProgram, ElasticSolution
from safe_sysid.identification.diagnosis.explanations import Candidate, Explanation, candidates
from safe_sysid.identification.equations.measurement_errors import MeasurementErrors
from safe_sysid.identification.equations.momentum import MomentumRows
from safe_sysid.identification.equations.row_errors import ERROR_CAUSES
from safe_sysid.robot.model import RobotModel
from safe_sysid.robot.parameters import ParameterBox

__all__ = ["Diagnosis", "Suspect", "diagnose_rows", "format_diagnosis", "scaled_problem"]

FloatArray = NDArray[np.float64]
_TOLERANCE = 1e-6  # of slack: below it rows agree
_PROGRAMS = 40  # explanations that are computed exactly
_SHOWN = 4
_BISECTIONS = 8
_SPLIT_COST, _SIGN_COST = 0.05, 0.02  # what a change of payload, a wrong sign cost in mean slack
_EXTRA = 20  # columns of theta_h and of the hand's opening


@dataclass(frozen=True)
class Suspect:
    """An equation that takes part in the contradiction.

    Attributes:
        joint: index. start, end: of its window, s. share: of the contradiction. tare: it is of the tare's log.
    """

    joint: int
    start: float
    end: float
    share: float
    tare: bool = False


@dataclass(frozen=True, eq=False)
class Diagnosis:
    """What is wrong with a set of equations.

    Attributes:
        joint_names: n names.
        empty: no parameters agree with the equations.
        margin: share of every slack that can be given up before no parameters agree; negative if none do.
        noise_scale: smallest factor on the declared torque noise of all joints with which some do; infinite if none.
        joint_scales: (n,) the same factor on one joint alone.
        joint_shares: (n,) parts of the joints in the contradiction. cause_shares: of the causes of error.
        suspects: the equations with the largest parts.
        explanations: single changes that make the data consistent, the cheapest first.
        remarks: further lines.
    """

    joint_names: tuple[str, ...]
    empty: bool
    margin: float
    noise_scale: float = 1.0
    joint_scales: FloatArray | None = None
    joint_shares: FloatArray | None = None
    cause_shares: FloatArray | None = None
    suspects: tuple[Suspect, ...] = ()
    explanations: tuple[Explanation, ...] = ()
    remarks: tuple[str, ...] = ()


def scaled_problem(
    model: RobotModel, errors: MeasurementErrors, rows: MomentumRows, box: ParameterBox
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Scaled matrix (M, 14 n + 10 + D) and target (M,), and the radii (14 n + 10,) that scale theta and theta_h.

    The last D unknowns, zero without a tare, are the drift of friction since then.

    Args:
        model: gives the hand's prior and the drift.
        errors: declared.
        rows: of the run, and of a tare where ``log`` is 1.
        box: of theta.
    """
    lower, upper = model.hand_prior
    middle = np.concatenate([box.mid, 0.5 * (lower + upper)])
    radius = np.concatenate([box.rad, 0.5 * (upper - lower)])
    columns, drift = drifting(drift_of(model, errors) * np.any(rows.log == 1))
    matrix = unscaled_rows(rows, box.size, columns)
    moved = matrix[:, box.size + 20 :] * drift
    matrix = matrix[:, : box.size + 10]
    target = (rows.target - matrix @ middle) / rows.slack
    return np.concatenate([matrix * radius, moved], axis=1) / rows.slack[:, None], target, radius


def diagnose_rows(
    model: RobotModel, errors: MeasurementErrors, rows: MomentumRows, box: ParameterBox
) -> Diagnosis:
    """Explain a set of equations; some seconds where it is empty.

    Args:
        model: the arm.
        errors: declared.
        rows: those that are there; where some were forgotten, changes that are suggested are lower bounds.
        box: of the parameters: the prior (of a run, or of the arm with its empty hand).
    """
    if not len(rows):
        return Diagnosis(model.joint_names, False, 1.0)
    matrix, target, radius = scaled_problem(model, errors, rows, box)
    found = _margin(matrix, target)
    if found.value <= _TOLERANCE:
        return Diagnosis(model.joint_names, False, -found.value)
    weight = np.abs(found.multipliers)
    weight /= max(weight.sum(), 1e-300)
    options = list(candidates(model, errors, rows, box, radius))  # those that widen slacks come first
    widen = np.column_stack([c.widen for c in options if c.widen is not None])
    leaving = [(c.parameter, k) for k, c in enumerate(options) if c.parameter is not None]
    program = ElasticProgram(matrix, target, widen, leaving)
    signed = found.multipliers / max(np.abs(found.multipliers).sum(), 1e-300)
    explanations, scales = _explain(program, options, matrix, signed, found.value, model.n)
    structural = [
        *_wrong_sign(model, rows, matrix, target, box),
        *_payload_change(rows, matrix, target, box.n),
    ]
    everything = sorted([*explanations, *structural], key=lambda e: e.rank)
    parts = rows.parts / rows.slack[:, None]
    order = np.argsort(-weight)[:5]
    return Diagnosis(
        joint_names=model.joint_names,
        empty=True,
        margin=-found.value,
        noise_scale=scales[0],
        joint_scales=np.array(scales[1:]),
        joint_shares=np.bincount(rows.joint, weight, model.n).astype(float),
        cause_shares=weight @ parts,
        suspects=tuple(
            Suspect(
                int(rows.joint[i]),
                float(rows.start[i]),
                float(rows.end[i]),
                float(weight[i]),
                bool(rows.log[i]),
            )
            for i in order
            if weight[i] > 0.0
        ),
        explanations=tuple(everything),
    )


def _margin(matrix: FloatArray, target: FloatArray) -> ElasticSolution:
    """The s >= -1 that all slacks must grow by, relatively, before some parameters agree with all rows."""
    program = ElasticProgram(matrix, target, np.ones((len(target), 1)), lowest=np.array([-1.0]))
    return program.minimise(elastic={0: 1.0})


def _explain(
    program: ElasticProgram,
    options: list[Candidate],
    matrix: FloatArray,
    signed: FloatArray,
    violation: float,
    n: int,
) -> tuple[list[Explanation], list[float]]:
    """Explanations by one declaration or parameter each, and noise scales (1 + n,), all joints first."""
    least = np.full(len(options), np.inf)
    for i, c in enumerate(options):
        # The multipliers prove: whatever is changed by s, the contradiction shrinks by s times this.
        gain = 0.0 if c.widen is None else float(np.abs(signed) @ c.widen)
        gain += 0.0 if c.parameter is None else abs(float(signed @ matrix[:, c.parameter]))
        if gain > 1e-12:
            least[i] = violation / gain
    scales = [np.inf] * (1 + n)
    out: list[Explanation] = []
    best = np.inf
    reachable = [i for i in range(len(options)) if np.isfinite(least[i])]
    order = sorted(reachable, key=lambda i: least[i] * options[i].cost * options[i].weight)
    solved = 0
    for i in order:
        c = options[i]
        bound = least[i] * c.cost * c.weight
        if not c.always and (bound > 4.0 * best or solved >= _PROGRAMS):
            continue
        solution = program.minimise(elastic={i: 1.0})
        solved += not c.always
        if not (solution.feasible and solution.finished):
            continue
        size = solution.elastic[i] * 1.001 + 1e-9
        if c.kind == "noise":
            scales[0 if c.joint is None else 1 + c.joint] = 1.0 + size
        explanation = replace(c.explain(size), size=size, resize=c.explain)
        best = min(best, explanation.rank)
        out.append(explanation)
    return out, scales


def _wrong_sign(
    model: RobotModel, rows: MomentumRows, matrix: FloatArray, target: FloatArray, box: ParameterBox
) -> Iterator[Explanation]:
    """Joints whose effort with the other sign makes everything agree, and matters."""
    shift = (rows.target / rows.slack) * 2.0
    for j in range(model.n):
        mine = rows.joint == j
        if not np.any(mine) or np.median(np.abs(shift[mine])) < 2.0:
            continue
        flipped = target - np.where(mine, shift, 0.0)
        if _margin(matrix, flipped).value <= _TOLERANCE:
            yield Explanation(
                "sign",
                j,
                f"effort of {model.joint_names[j]} has the wrong sign: with the other one all equations agree",
                _SIGN_COST,
                _SIGN_COST,
            )


def _payload_change(
    rows: MomentumRows, matrix: FloatArray, target: FloatArray, n: int
) -> Iterator[Explanation]:
    """Whether one change of theta_e, at one time, makes everything agree."""
    run = rows.log == 0
    if not np.any(run):
        return
    start, end = float(rows.start[run].min()), float(rows.end[run].max())

    def agree(mask: NDArray[np.bool_]) -> bool:
        return bool(_margin(matrix[mask], target[mask]).value <= _TOLERANCE) if np.any(mask) else True

    # The longest beginning, and the longest end, that agree with themselves.
    low, high = start, end
    for _ in range(_BISECTIONS):
        middle = 0.5 * (low + high)
        low, high = (middle, high) if agree(~run | (rows.end <= middle)) else (low, middle)
    first = low
    low, high = start, end
    for _ in range(_BISECTIONS):
        middle = 0.5 * (low + high)
        low, high = (low, middle) if agree(~run | (rows.start >= middle)) else (middle, high)
    last = high
    margin = 0.1 * (end - start)
    if last > first or first < start + margin or last > end - margin:
        return
    middle = 0.5 * (first + last)
    payload = slice(10 * (n - 1), 10 * n)
    use = ~run | (rows.end <= middle) | (rows.start >= middle)
    after = run[use] & (rows.start[use] >= middle)
    both = np.concatenate([matrix[use], np.where(after[:, None], matrix[use][:, payload], 0.0)], axis=1)
    both[after, payload] = 0.0
    if _margin(both, target[use]).value <= _TOLERANCE:
        yield Explanation(
            "payload",
            None,
            f"the payload changed, or slipped, between {last:.2f} s and {first:.2f} s: what comes before and what "
            "comes after each agree with the declarations; identify the two parts apart",
            _SPLIT_COST,
            _SPLIT_COST,
        )


def format_diagnosis(diagnosis: Diagnosis) -> list[str]:
    """Lines for people, the most important first; one line if nothing is wrong.

    Args:
        diagnosis: to tell.
    """
    d, lines = diagnosis, list(diagnosis.remarks)
    if not d.empty:
        if d.margin < 1.0 or not lines:
            lines.append(
                f"equations agree with each other; the declared errors could be {100 * d.margin:.2g} % smaller, no more"
            )
        return lines
    lines.append(
        "no parameters agree with all equations: errors would have to be "
        f"{1.0 - d.margin:.3g} times as large as declared"
    )
    if d.joint_shares is not None and d.cause_shares is not None:
        joints = _shares(d.joint_shares, d.joint_names)
        lines.append(
            f"joints in the contradiction: {joints}; half width by cause: {_shares(d.cause_shares, ERROR_CAUSES)}"
        )
    for s in d.suspects[:3]:
        log = " of the tare" if s.tare else ""
        lines.append(
            f"  {100 * s.share:.0f} %: {d.joint_names[s.joint]}, window {s.start:.4f} .. {s.end:.4f} s{log}"
        )
    if d.joint_scales is not None:
        one = [
            f"{name} alone {scale:.3g}"
            for name, scale in zip(d.joint_names, d.joint_scales, strict=True)
            if np.isfinite(scale)
        ]
        scale = f"{d.noise_scale:.3g}" if np.isfinite(d.noise_scale) else "no factor"
        lines.append(
            f"torque noise that would do: {scale} times on all joints; {', '.join(one) or 'no joint alone'}"
        )
    for i, e in enumerate(d.explanations[:_SHOWN]):
        lines.append(f"{'most likely' if i == 0 else 'or'}: {e.text}{e.checked_text}")
    if not d.explanations:
        lines.append("no single change of a declaration explains the data: more than one assumption is false")
    return lines


def _shares(values: FloatArray, names: tuple[str, ...]) -> str:
    order = [i for i in np.argsort(-values)[:3] if values[i] > 0.02]
    return ", ".join(f"{names[i]} {100 * values[i]:.0f} %" for i in order)


def with_remarks(diagnosis: Diagnosis, remarks: list[str]) -> Diagnosis:
    """The diagnosis with further lines in front.

    Args:
        diagnosis: as it is.
        remarks: to put first.
    """
    return replace(diagnosis, remarks=(*remarks, *diagnosis.remarks))
