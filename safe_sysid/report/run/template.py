"""The page of a run, as a template."""

__all__ = ["TEMPLATE"]

TEMPLATE = """
{% from "blocks.html" import rows, lines, interval_grid %}
<header>
<h1>{{ title }}</h1>
<p class="muted">{{ subtitle }}</p>
</header>
<p class="verdict {{ verdict.level }}">{{ verdict.text }}</p>
<div class="tiles">{% for tile in tiles %}<div class="tile"><b>{{ tile.value }}</b><span>{{ tile.text }}</span></div>
{% endfor %}</div>
{% if findings %}<h2>Violations</h2><ul>{% for line in findings %}<li class="error">{{ line }}</li>{% endfor %}</ul>
{% endif %}

{% if cards %}
<h2>The ten intervals</h2>
<p>Last link, hand and payload together, in the frame of {{ frame }}, inertia about its origin. Grey: what was known
before. Blue: what is known now, below it magnified; the thin line is the nominal value{% if has_truth %}, the red
diamond the truth, which only the simulated arm knew{% endif %}.</p>
{{ interval_grid(cards) }}
<details class="part"><summary>The ten intervals in numbers</summary>
<div class="scroll"><table><tr><th></th><th>lower</th><th>nominal</th><th>upper</th><th>unit</th>
{% if has_truth %}<th>truth</th><th>inside</th>{% endif %}<th>prior</th></tr>
{% for row in numbers %}<tr><td>{{ row.name }}</td><td>{{ row.lower }}</td><td>{{ row.nominal }}</td>
<td>{{ row.upper }}</td><td class="nowrap">{{ row.unit|unit }}</td>{% if has_truth %}<td>{{ row.truth }}</td>
<td class="{{ row.level }}">{{ row.holds }}</td>{% endif %}<td class="nowrap">{{ row.prior }}</td></tr>
{% endfor %}</table></div></details>
{% if payload_note %}<p class="muted small">{{ payload_note }}</p>{% endif %}
{% if payload or narrowing %}<details class="part"><summary>The payload alone; how the intervals narrowed</summary>
<div class="grid">
{% if payload %}<div class="card"><b>The payload alone</b>
<p class="muted small">Without the hand, whose own uncertainty is taken off, in the tool frame {{ payload.frame }}.</p>
<div class="scroll"><table class="text">{% for key, value in payload.pairs %}<tr><td>{{ key }}</td>
<td class="nowrap">{{ value }}</td></tr>{% endfor %}</table></div></div>{% endif %}
{% if narrowing %}<figure><b>How they narrowed</b>{{ narrowing }}<figcaption>Width of each interval as a share of what
was known before.</figcaption></figure>{% endif %}
</div></details>{% endif %}
{% endif %}

{% if warnings %}<h3>Not as it should be</h3>{{ lines(warnings) }}{% endif %}
{% if timeline %}
<details class="part"><summary>What went on</summary>
<figure><div class="drawing">{{ timeline }}</div><figcaption>Plans: dark until the next takes over, light the
braking that is certified with it{% if has_task %}; violet ones lead to the goal{% endif %}. Controller: grey holding,
blue tracking, amber braking, red fault. Diamonds: updates of the bounds.</figcaption></figure></details>
{% endif %}
{% if events %}<details{% if bad_events %} open{% endif %}><summary>{{ events|length }} events{% if bad_events %}, \
{{ bad_events }} of them faults or refusals{% endif %}</summary>
<div class="scroll"><table class="text"><tr><th>s</th><th>who</th><th>what</th></tr>
{% for event in events %}<tr><td class="nowrap">{{ "%.2f"|format(event.time) }}</td><td>{{ event.who }}</td>
<td{% if event.level == "bad" %} class="bad"{% endif %}>{{ event.text }}</td></tr>{% endfor %}</table></div></details>
{% if left_out %}<p class="muted small">{{ left_out }} more are left out.</p>{% endif %}{% endif %}

{% if margins %}
<details class="part"><summary>Plans and their certificates</summary>
<p>Smallest proved margin of each plan: how far it stays from each limit whatever the payload within the intervals and
whatever the tracking error within its bound. {{ margin_note }}</p>
<div class="scroll"><table><tr><th>plan</th>{% for head in margins.heads %}<th>{{ head }}</th>{% endfor %}</tr>
{% for row in margins.rows %}<tr><td class="nowrap">{{ row.name }}</td>{% for cell in row.cells %}
<td class="nowrap{{ " worst" if cell.worst else "" }}">{{ cell.text }}</td>{% endfor %}</tr>
{% endfor %}</table></div>
<div class="small">{{ lines(margins.tightest) }}</div></details>
{% endif %}

{% if torques or safety %}
<details class="part"><summary>Against the limits</summary>
{% if safety %}<div class="scroll"><table class="text"><tr><th>what</th><th>worst</th><th>where</th></tr>
{% for row in safety %}<tr><td>{{ row[0] }}</td><td class="nowrap">{{ row[1] }}</td><td>{{ row[2] }}</td></tr>
{% endfor %}</table></div>{% endif %}
{% if shares %}<div class="grid wide">{% for item in shares %}<figure><b>{{ item.name }}</b>{{ item.drawing }}
<figcaption>{{ item.caption }}</figcaption></figure>{% endfor %}</div>{% endif %}
{% if torques %}<h3>Torques</h3>
<p class="muted small">{{ torque_note }}</p>
<div class="grid">{% for item in torques %}<figure><div class="head"><b>{{ item.name }}</b><span class="muted">
{{ item.use }}</span></div>{{ item.drawing }}</figure>{% endfor %}</div>{% endif %}
</details>{% endif %}

{% if timing %}
<details class="part"><summary>Timing</summary>
<p>{{ timing.text }}</p>
{% if timing.rows %}{{ rows(timing.rows) }}{% endif %}
{% if timing.drawings %}<div class="grid">{% for item in timing.drawings %}<figure><b>{{ item.name }}</b>
{{ item.drawing }}</figure>{% endfor %}</div><p class="muted small">How often, by duration; heights are logarithmic, so
that single late ones can be seen.</p>{% endif %}
</details>{% endif %}

<details class="part"><summary>What is guaranteed, and what is not</summary>
<p>If what is declared is true:</p>{{ lines(guaranteed) }}
<h3>Not guaranteed</h3>{{ lines(not_guaranteed) }}</details>

<details class="part"><summary>Check it yourself</summary>
{% for command, what in commands %}<pre><code>{{ command }}</code></pre><p class="muted small">{{ what }}.</p>
{% endfor %}</details>

<details class="part"><summary>What was run</summary>
{{ rows(settings) }}</details>
{% if missing %}<h3>What this page lacks</h3>{{ lines(missing) }}{% endif %}
<footer class="muted">{{ footer }}</footer>
"""
