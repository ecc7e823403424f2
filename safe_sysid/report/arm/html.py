"""The report of an arm's identification: torques and residuals that one can look at, in one file."""

from __future__ import annotations

from typing import Any

import numpy as np
from markupsafe import Markup

from safe_sysid.core.arrays import FloatArray
from safe_sysid.decimals import interval_text
from safe_sysid.identification.arm.identify import ArmIdentification
from safe_sysid.report.drawing.chart import BLUE, chart, markup, two_curves
from safe_sysid.report.drawing.page import render_page

__all__ = ["arm_html", "intervals_text"]

_WORD = 0.1  # share of a residual's variance from which on it is drawn over what it goes with
_OVER = {"velocity": "rad/s", "load": "N m", "position": "rad", "acceleration": "rad/s^2"}

_TEMPLATE = """{% from "blocks.html" import rows, lines %}
<h1>Identification of {{ r.robot }}</h1>
<p class="muted">{{ r.logs|join(", ") }}; method {{ r.method }}; safe_sysid {{ r.version }}</p>
<p class="verdict{{ "" if r.consistent and not r.warnings else " weak" }}">{{ verdict }}</p>
{% if r.warnings %}<h2>Warnings</h2>{{ lines(r.warnings) }}{% endif %}
<h2>Held-out torques</h2>
<p class="muted">Root mean square of measured less modelled torque on samples that were not fitted, N m.</p>
<div class="scroll"><table><tr><th>joint</th><th>drawing</th><th>identified</th><th>white?</th>
<th>left over</th></tr>
{% for joint, before, after, white, left in table %}<tr><td>{{ joint }}</td><td>{{ before }}</td><td>{{ after }}</td>
<td>{{ white }}</td><td>{{ left }}</td></tr>{% endfor %}</table></div>
<p class="muted">White: neighbouring residuals are no more alike than those of white noise of the torques behind the
log's filter ({{ noise }}). Left over: share of the residual's variance that goes with velocity, load, position,
acceleration or time.</p>
{% for joint, figures in joints %}<details class="part"{{ " open" if joint == worst else "" }}>
<summary>{{ joint }}: torques and residual</summary><div class="grid wide">
{% for figure in figures %}<figure>{{ figure.drawing }}<figcaption>{{ figure.text }}</figcaption></figure>
{% endfor %}</div></details>
{% endfor %}{% if r.further_friction %}<h2>Taken into the model</h2>{{ lines(r.further_friction) }}{% endif %}
{% if open %}<h2>Not excited by these logs</h2>{{ lines(open) }}{% endif %}
<h2>Base parameters</h2>
<p class="muted">Combinations that torques depend on. Standard errors allow for coloured residuals; they are no
bounds. {{ intervals }}</p>
<details class="part"><summary>All {{ bounds|length }} in numbers</summary>
<div class="scroll"><table><tr><th>base parameter</th><th>estimate</th><th>standard error</th><th>at least</th>
<th>at most</th><th>unit</th></tr>
{% for p, low, high in bounds %}<tr><td>{{ p.name }}</td><td>{{ "%.5g"|format(p.estimate) }}</td>
<td>{{ "not known" if p.standard_error is none else "%.2g"|format(p.standard_error) }}</td>
<td>{{ low }}</td><td>{{ high }}</td><td>{{ p.unit|unit }}</td></tr>
{% endfor %}</table></div></details>
"""


def arm_html(found: ArmIdentification, result: dict[str, Any]) -> str:
    """The page. ``result``: as of ``--json``."""
    joints = []
    time = found.held_out.stamps - found.held_out.stamps[0]
    breaks = found.held_out.segments[1:-1]
    time = time.copy()
    time[breaks] = np.nan
    for j, x in enumerate(found.residuals):
        figures = [{
            "drawing": two_curves(time, found.measured[:, j], found.modelled[:, j], f"torques of {x.joint}"),
            "text": f"{x.joint}: measured (violet) and modelled torque, N m, over held-out time, s",
        }]  # fmt: skip
        residual = found.measured[:, j] - found.modelled[:, j]
        key = max((key for key in _OVER if x.shares[key] > _WORD), key=lambda key: x.shares[key], default="velocity")
        over = {"load": found.modelled, "position": found.held_out.q, "acceleration": found.held_out.qdd}
        figures.append({
            "drawing": _against(over.get(key, found.held_out.qd)[:, j], residual, x.joint, key),
            "text": f"{x.joint}: residual, N m, over {key}, with which it goes most" if x.shares[key] > _WORD
            else f"{x.joint}: residual, N m, over {key}; steps at zero or a bend would be friction that is missing",
        })  # fmt: skip
        joints.append((x.joint, figures))
    table = [
        (
            x.joint,
            f"{before:.3f}",
            f"{after:.3f}",
            "yes" if x.white else f"no ({x.correlation:.2f})",
            "; ".join(x.missing) or "nothing that stands out",
        )
        for x, before, after in zip(found.residuals, found.rms_before, found.rms, strict=True)
    ]
    verdict = (
        f"{len(found.names)} base parameters; "
        + ("all links are real bodies." if found.estimate.consistent else "some links are no real bodies.")
        + f" Held-out torques are {100 * found.left_over:.0f} % of the drawing's in the median joint."
    )
    left = [f"{found.names[x.index]}: {x.motion}" for x in found.unexcited]
    bounds = [
        (p, *(("-", "-") if p["lower"] is None else interval_text(p["lower"], p["upper"], 2)))
        for p in result["parameters"]
    ]
    worst = found.residuals[int(np.argmax(found.left_over_by_joint))].joint
    values = {
        "worst": worst, "r": result, "verdict": verdict, "table": table, "joints": joints, "open": left,
        "bounds": bounds,
        "intervals": intervals_text(result), "noise": f"{found.residuals[0].correlation_of_noise:.2f}",
    }  # fmt: skip
    return render_page(f"Identification of {result['robot']}", _TEMPLATE, values)


def intervals_text(result: dict[str, Any]) -> str:
    """What the guaranteed intervals rest on, or why there are none. ``result``: as of ``--json``."""
    said = result["intervals"]
    if not said["proved"]:
        return f"No guaranteed intervals: {said['reason']}."
    outside = sum(not p["lower"] <= p["estimate"] <= p["upper"] for p in result["parameters"])
    return (
        f"Guaranteed intervals of all base parameters from {said['equations']} equations, if the arm is within the "
        "robot file's `uncertainty` (or its `proved`) and errors are at most those of its `measurement`; "
        + (f"{outside} estimates lie outside theirs." if outside else "all estimates lie inside theirs.")
    )


def _against(values: FloatArray, residual: FloatArray, joint: str, key: str) -> Markup:
    axis = chart(172.0, _OVER[key], width=360.0)
    keep = np.linspace(0, len(values) - 1, min(len(values), 800)).astype(int)
    axis.plot(values[keep], residual[keep], ".", ms=2.0, color=BLUE)
    return markup(axis, f"residual of {joint} over {key}")
