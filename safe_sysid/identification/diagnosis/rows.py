r"""Diagnosis of contradicting equations: which joint, when, and which single change of a declaration explains it.

With elastic programs: s >= 0 as small as possible such that ``|A x - t| <= slack + s d`` for some x, where d is the
part of the slack that a declaration stands for (or a parameter may leave its prior by s). The multipliers at
the optimum say which equations contradict each other. Explanations are compared by how much slack they add to all
equations on average: the true cause tends to be the cheapest, but a diagnosis is advice and proves nothing.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from safe_sysid.core.arrays import FloatArray
from safe_sysid.identification.bounds.payload_constraints import PayloadConstraints
from safe_sysid.identification.diagnosis.declared import Contradiction, contradicted_payload, payload_extent
from safe_sysid.identification.diagnosis.elastic import ElasticProgram, scaled_problem
from safe_sysid.identification.diagnosis.explanations import Explanation, ExplanationCandidate, candidates
from safe_sysid.identification.diagnosis.structural import (
    TOLERANCE,
    earlier,
    held,
    margin,
    payload_change,
    widest,
    wrong_sign,
)
from safe_sysid.identification.equations.measurement_errors import MeasurementErrors
from safe_sysid.identification.equations.momentum import MomentumRows
from safe_sysid.identification.equations.row_errors import ERROR_CAUSES
from safe_sysid.robot.model import RobotModel
from safe_sysid.robot.parameters import ParameterBox

__all__ = ["Diagnosis", "Suspect", "diagnose_rows", "format_diagnosis", "scaled_problem"]

_PROGRAMS = 40  # explanations that are computed exactly
_SHOWN = 4
_BLUNDERS = {
    False: "wrong robot, units or signs, a wrong effort (external torques lack the arm's own weight), a payload that is"
    " not rigid or touches something, or more than one false declaration?",
    True: "was the hand empty? else wrong robot, units or signs, a wrong effort, or something touched the arm?",
}
_ALSO = {False: " and with what is declared of hand and payload", True: ""}
_LARGE = 10.0  # times what is declared: a change beyond it explains nothing


@dataclass(frozen=True)
class Suspect:
    """An equation that takes part in the contradiction."""

    joint: int  #: index. start, end: of its window, s. share: of the contradiction. tare: it is of the tare's log.
    start: float
    end: float
    share: float
    tare: bool = False


@dataclass(frozen=True, eq=False)
class Diagnosis:
    """Diagnosis of a set of equations."""

    joint_names: tuple[str, ...]
    empty: bool  #: no parameters agree with the equations and with what is declared of hand and payload
    margin: float  #: share of every slack that can be given up before no parameters agree; negative if none do
    #: smallest factor on the declared torque noise of all joints with which some do; infinite if none
    noise_scale: float = 1.0
    joint_scales: FloatArray | None = None  #: (n,) the same factor on one joint alone
    #: (n,) parts of the joints in the contradiction. cause_shares: of the causes of error.
    joint_shares: FloatArray | None = None
    cause_shares: FloatArray | None = None
    suspects: tuple[Suspect, ...] = ()  #: the equations with the largest parts
    #: single changes that make the data consistent, the cheapest first; none that is absurdly large
    explanations: tuple[Explanation, ...] = ()
    remarks: tuple[str, ...] = ()
    #: where equations agree with each other, the declarations that they contradict
    contradictions: tuple[Contradiction, ...] = ()
    extent: str = ""  #: where there are such, what the equations say of the payload, for people
    tare: bool = False  #: of a tare, with nothing in the hand


def diagnose_rows(
    model: RobotModel,
    errors: MeasurementErrors,
    rows: MomentumRows,
    box: ParameterBox,
    payload_constraints: PayloadConstraints | None = None,
) -> Diagnosis:
    """Diagnose a set of equations. It takes some seconds if they contradict each other.

    Args:
        rows: those that are there; where some were forgotten, changes that are suggested are lower bounds.
        box: of the parameters: the prior (of a run, or of the arm with its empty hand), or what was published.
        payload_constraints: of hand and payload; None for what the model declares.
    """
    if not len(rows):
        return Diagnosis(model.joint_names, False, 1.0)
    matrix, target, radius = scaled_problem(model, errors, rows, box)
    found = margin(matrix, target)
    tare = _is_tare(model, rows, box)
    if found.value <= TOLERANCE:
        agree = Diagnosis(model.joint_names, False, -found.value, tare=tare)
        return agree if tare else _declared(agree, model, errors, rows, box, payload_constraints)
    weight = np.abs(found.multipliers)
    weight /= max(weight.sum(), 1e-300)
    options = list(candidates(model, errors, rows, box, radius))  # those that widen slacks come first
    widen = np.column_stack([c.widen for c in options if c.widen is not None])
    leaving = [(c.parameter, k) for k, c in enumerate(options) if c.parameter is not None]
    program = ElasticProgram(matrix, target, widen, leaving)
    signed = found.multipliers / max(np.abs(found.multipliers).sum(), 1e-300)
    explanations, scales = _explain(program, options, matrix, signed, found.value, model.n)
    structural = [*wrong_sign(model, rows, matrix, target), *payload_change(rows, matrix, target)]
    structural += held(model, errors, rows) if tare else earlier(model, errors, rows, box)
    small = [e for e in explanations if e.factor <= _LARGE]
    everything = sorted([*small, *structural], key=lambda e: e.rank)
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
            Suspect(int(rows.joint[i]), float(rows.start[i]), float(rows.end[i]), float(weight[i]), bool(rows.log[i]))
            for i in order
            if weight[i] > 0.0
        ),
        explanations=tuple(everything),
        tare=tare,
    )


def _is_tare(model: RobotModel, rows: MomentumRows, box: ParameterBox) -> bool:
    """Whether the row comes from a tare."""
    lower, upper = model.hand_prior
    inside = np.all(box.payload_lower >= lower) and np.all(box.payload_upper <= upper)
    return bool(inside or np.all(rows.log == 1))


def _declared(
    agree: Diagnosis,
    model: RobotModel,
    errors: MeasurementErrors,
    rows: MomentumRows,
    box: ParameterBox,
    payload_constraints: PayloadConstraints | None,
) -> Diagnosis:
    """Declarations that the equations contradict although they agree with each other."""
    known = PayloadConstraints.from_model(model) if payload_constraints is None else payload_constraints
    wide = widest(model, box)
    found = contradicted_payload(model, errors, rows, wide, known)
    narrower = np.any(wide.payload_lower < box.payload_lower) or np.any(wide.payload_upper > box.payload_upper)
    if not found and narrower and contradicted_payload(model, errors, rows, box, known):
        found = [Contradiction("earlier", "the bounds known of this payload before")]
    if not found:
        return agree
    extent = payload_extent(model, errors, rows, wide, known.opening)
    text = "" if extent is None else extent.text(known.box)
    return replace(agree, empty=True, contradictions=tuple(found), extent=text)


def _explain(
    program: ElasticProgram,
    options: list[ExplanationCandidate],
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


def format_diagnosis(diagnosis: Diagnosis) -> list[str]:
    """Lines of text, the most important first; one line if nothing is wrong."""
    d, lines = diagnosis, list(diagnosis.remarks)
    if not d.empty:
        if d.margin < 1.0 or not lines:
            lines.append(
                f"equations agree with each other{_ALSO[d.tare]}; "
                f"the declared errors could be {100 * d.margin:.2g} % smaller, no more"
            )
        return lines
    if d.contradictions:
        return [*lines, *_contradictions(d)]
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
        lines.append(f"  {100 * s.share:.0f} %: {d.joint_names[s.joint]}, window {s.start:.4f} .. {s.end:.4f} s{log}")
    if d.joint_scales is not None:
        one = [
            f"{name} alone {scale:.3g}"
            for name, scale in zip(d.joint_names, d.joint_scales, strict=True)
            if scale <= _LARGE
        ]
        scale = f"{d.noise_scale:.3g} times" if d.noise_scale <= _LARGE else f"nothing below {_LARGE:g} times"
        lines.append(f"torque noise that would do: {scale} on all joints; {', '.join(one) or 'no joint alone'}")
    shown = d.explanations[:_SHOWN]
    certain = bool(shown) and shown[0].checked is not False
    if not certain:
        lines.append(f"no single small change explains it: {_BLUNDERS[d.tare]}")
    for i, e in enumerate(shown):
        lines.append(f"{'most likely' if i == 0 and certain else 'or'}: {e.text}{e.checked_text}")
    return lines


def _contradictions(d: Diagnosis) -> list[str]:
    first = d.contradictions[0]
    if first.kind == "together":
        lines = [
            f"equations agree with each other, but contradict what is declared: {first.text} together, no one alone"
        ]
    else:
        lines = [f"the equations agree without it: {first.text} contradicts them"]
        lines += [f"or they agree without another declaration: {c.text}" for c in d.contradictions[1:]]
    return [*lines, f"what the equations say: {d.extent}"] if d.extent else lines


def _shares(values: FloatArray, names: tuple[str, ...]) -> str:
    order = [i for i in np.argsort(-values)[:3] if values[i] > 0.02]
    return ", ".join(f"{names[i]} {100 * values[i]:.0f} %" for i in order)


def with_remarks(diagnosis: Diagnosis, remarks: list[str]) -> Diagnosis:
    """The diagnosis with further lines in front."""
    return replace(diagnosis, remarks=(*remarks, *diagnosis.remarks))
