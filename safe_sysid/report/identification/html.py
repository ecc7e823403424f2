"""The report of an identification: one HTML file that needs nothing else, readable on a telephone."""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence

import numpy as np
from markupsafe import Markup, escape

from safe_sysid.report.drawing.interval_cards import interval_card, narrowing_drawing, shares_of
from safe_sysid.report.drawing.page import printable, render_page
from safe_sysid.report.identification.result import IdentificationResult

__all__ = ["GUARANTEES", "identification_html"]

#: What the intervals stand on, and what they do not say.
GUARANTEES = {
    "guaranteed": (
        "Each interval holds the true value, if every declared bound below is true: torque, position, velocity and "
        "stamp errors, the acceleration bound, the torque source, the arm's prior, rigid links, and a payload that "
        "does not slip.",
        "The intervals hold together, for all ten parameters at once, and each update lies within the one before.",
        "Solver tolerances cannot make them too narrow: what is published is a bound that was verified afterwards in "
        "outward-rounded arithmetic.",
    ),
    "open": (
        "The estimates: best fits inside the intervals. Standard errors are statistical: right as far as errors are "
        "random, no bound.",
        "The residuals belong to one point inside the intervals; pictures prove nothing.",
        "If a declared bound is false, the intervals may be wrong without notice. An empty set is the notice when the "
        "data prove it; it need not come.",
    ),
    "estimate": (
        "Nothing: this method gives an estimate with intervals that are not proved. Use --method sdp or lp for bounds.",
    ),
    "sensor": (
        "Each interval holds the true value if errors are no larger than those listed under Declared. They were "
        "estimated from this log (--sensor), and a log cannot show how large errors may be: declare what you know of "
        "the sensors for a guarantee.",
    ),
    "contradicted": (
        "Nothing: the data contradict what is declared, so one of the assumptions is false. The bounds shown are those "
        "from before that was proved.",
    ),
    "forced": (
        "Nothing that you should build on: the checks found errors in the log, and --force went on all the same. The "
        "intervals are true only if what the findings say is false.",
    ),
    "filtered": (
        "Nothing: the log was filtered. The filter's error is not in the declared bounds, unless you declared it "
        "there.",
    ),
}

_TEMPLATE = """{% from "blocks.html" import rows, lines, interval_grid %}
<h1>{{ title }}</h1>
<p class="muted">{{ r.robot }}, {{ r.log.path }}: {{ r.log.samples }} samples,
{{ "%.4g"|format(r.log.start_s) }} to {{ "%.4g"|format(r.log.end_s) }} s
{%- if r.log.scaled %}, {{ r.log.scaled|join(", ") }}{% endif %}; method {{ r.method }};
safe_sysid {{ r.version }}</p>
<p class="verdict {{ verdict_class }}">{{ verdict }}</p>
{% if r.diagnosis %}<h2>{{ "Diagnosis" if r.status == "empty_set" else "Excitation" }}</h2>
{{ lines(r.diagnosis) }}{% endif %}
<h2>Last link with hand and payload</h2>
<p class="muted">In the frame of {{ r.frame }}, inertia about its origin. Grey: what was known before. Blue: what is
known now, below it magnified; the thin line is the nominal value.</p>
{{ interval_grid(cards) }}
{% if r.width_causes %}<p>What makes the mass's interval wide:
{% for cause, share in r.width_causes.items() if share >= 0.01 %}{{ cause }}
{{ "%.0f"|format(100 * share) }} %{% if not loop.last %}, {% endif %}{% endfor %}.</p>{% endif %}
<details class="part"><summary>The ten intervals in numbers</summary>
<div class="scroll"><table><tr><th>parameter</th><th>lower</th><th>estimate</th><th>upper</th><th>unit</th>
<th>prior</th><th>of prior</th><th>standard error</th></tr>
{% for p in r.parameters %}<tr><td>{{ p.name }}</td><td>{{ p.texts|join("</td><td>"|safe) }}</td>
<td>{{ p.unit|unit }}</td><td>{{ p.prior_text }}</td><td>{{ p.share_text }}</td>
<td>{{ p.error_text }}</td></tr>{% endfor %}</table></div></details>
<details class="part"><summary>Payload alone</summary>
<p class="muted">In the frame {{ r.payload.frame }}, inertia about its origin: the above minus a hand within its
uncertainty.{% if not r.payload.possible %} No possible body was found inside these intervals: there is no estimate.
{%- elif not r.payload.consistent %} The nominal difference was no possible body; one near it, inside the intervals,
stands here.{% endif %}</p>
<div class="scroll"><table><tr><th>parameter</th><th>lower</th><th>nominal</th><th>upper</th><th>unit</th></tr>
{% for name in r.payload.names %}<tr><td>{{ name }}</td>
<td>{{ r.payload.texts[loop.index0]|join("</td><td>"|safe) }}</td><td>{{ r.payload.units[loop.index0]|unit }}</td></tr>
{% endfor %}</table></div></details>
{% if narrowing %}<details class="part"><summary>Intervals over time</summary>
<div class="grid"><figure>{{ narrowing }}<figcaption>Width of each
interval as a share of what was known before.</figcaption></figure></div></details>{% endif %}
{% for caption, data in pictures %}<details class="part"><summary>{{ caption }}</summary>
<img alt="{{ caption }}" src="data:image/png;base64,{{ data }}"></details>{% endfor %}
{% set many = r.findings|length > 2 and not r.findings|selectattr("level", "equalto", "error")|list %}
{% if many %}<details class="part"><summary>Findings in the log: {{ r.findings|length }} warnings</summary>
{% else %}<h2>Findings in the log</h2>{% endif %}
{% if r.findings %}<ul>{% for f in r.findings %}<li class="{{ f.level }}">{{ f.text }}</li>{% endfor %}</ul>
{% else %}<p>None.</p>{% endif %}
{% if many %}</details>{% endif %}
<details class="part"><summary>Left out</summary>
{% if r.rejected %}<table>{% for reason, count in r.rejected.items() %}<tr><td>{{ reason|replace("_", " ") }}</td>
<td>{{ count }}</td></tr>{% endfor %}</table>{% else %}<p>No sample.</p>{% endif %}</details>
<details class="part"><summary>What is guaranteed, and what is not</summary>{{ lines(guaranteed) }}
<h3>Not guaranteed</h3>{{ lines(not_guaranteed) }}</details>
<details class="part"><summary>Declared</summary>
<div class="scroll"><table>{% for key, value in r.declared.items() %}<tr><td>{{ key }}</td>
<td>{{ "not declared" if value is none else value|unit }}</td></tr>{% endfor %}
</table></div></details>
<h2>Check it yourself</h2>
<p>{% if r.certificate %}<code>{{ command }}</code> recomputes every bound from the log, with
code that shares no solver with the identification.{% else %}There is no certificate.{% endif %}</p>
"""


def identification_html(
    result: IdentificationResult, verdict: str, pictures: Mapping[str, bytes], command: str, kind: str
) -> str:
    """The page.

    ``pictures``: PNG bytes by caption; ``kind``: why the intervals are guaranteed or not, a key of :data:`GUARANTEES`.
    """
    classes = {"ok": "" if kind == "guaranteed" else "weak", "empty_set": "bad", "no_data": "weak"}
    title = f"Payload of {result.robot}"
    values = {
        "r": result,
        "title": title,
        "verdict": verdict.rpartition("; see ")[0] or verdict,  # this is what one would see
        "verdict_class": classes[result.status],
        "cards": [interval_card(row) for row in result.parameters],
        "narrowing": _narrowing(result),
        "pictures": [(caption, _data(png)) for caption, png in pictures.items()],
        "guaranteed": _lines(result, kind),
        "not_guaranteed": GUARANTEES["open"],
        "command": Markup(escape(printable(command))),  # one that is cut short is no command
    }
    return render_page(f"{title}: {result.log.path}", _TEMPLATE, values)


def _data(png: bytes) -> Markup:
    """Base64 is longer than any text may be."""
    return Markup(base64.b64encode(png).decode("ascii"))


def _narrowing(result: IdentificationResult) -> Markup | None:
    if not result.updates:
        return None
    widths = np.array([u.upper for u in result.updates]) - np.array([u.lower for u in result.updates])
    times = [u.time_s for u in result.updates]
    return narrowing_drawing(times, shares_of(result.parameters, widths), result.log.end_s, result.log.start_s)


def _lines(result: IdentificationResult, kind: str) -> Sequence[str]:
    if result.status == "empty_set":
        return GUARANTEES["contradicted"]
    return GUARANTEES[kind]
