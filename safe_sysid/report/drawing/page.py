"""One style for all pages: a single file without scripts or network, for telephones, dark rooms and paper."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Mapping
from functools import cache
from typing import Any

from jinja2 import DictLoader, Environment, StrictUndefined, Template
from markupsafe import Markup

__all__ = ["LONGEST", "printable", "render_page", "shortened"]

#: Characters of any text that comes from a file.
LONGEST = 1000

_STYLE = """
:root { color-scheme: light dark; --ink: #1c2128; --muted: #59636e; --line: #dfe4ea; --paper: #ffffff; --card: #f7f9fb;
  --accent: #1f6fb4; --accent-soft: #cfe2f3; --prior: #e3e8ee; --truth: #c2314a; --good: #1a7f45; --good-soft: #e6f4ea;
  --bad: #b3202c; --bad-soft: #fbe9ea; --weak: #8a5a00; --weak-soft: #fdf3d9; --plan: #7aa7d3; --task: #8f79c4;
  --brake: #d9a441; }
@media (prefers-color-scheme: dark) { :root { --ink: #e3e8ee; --muted: #9aa5b1; --line: #323a44; --paper: #14181d;
  --card: #1b2027; --accent: #559fdf; --accent-soft: #24476a; --prior: #2c343e; --truth: #ff8095; --good: #5fce8c;
  --good-soft: #16301f; --bad: #ff7b86; --bad-soft: #3a1a1e; --weak: #f0bd55; --weak-soft: #382c12; --plan: #3f6f9f;
  --task: #6d5aa5; --brake: #a87a22; } }
* { box-sizing: border-box; }
body { font: 16px/1.5 system-ui, -apple-system, "Segoe UI", Roboto, sans-serif; color: var(--ink);
  background: var(--paper); max-width: 58rem; margin: 0 auto; padding: 1rem 1rem 3rem; overflow-wrap: anywhere; }
h1 { font-size: 1.55rem; line-height: 1.2; margin: 0.4rem 0 0.2rem; letter-spacing: -0.01em; }
h2 { font-size: 1.15rem; margin: 2.2rem 0 0.5rem; padding-top: 0.9rem; border-top: 1px solid var(--line); }
h3 { font-size: 0.98rem; margin: 1.2rem 0 0.3rem; }
p { margin: 0.4rem 0 0.7rem; } ul { padding-left: 1.2rem; } li { margin: 0.25rem 0; }
.muted, figcaption { color: var(--muted); } .small { font-size: 0.88rem; }
.verdict { margin: 0.9rem 0; padding: 0.8rem 1rem; border-radius: 0.5rem; border-left: 5px solid var(--good);
  background: var(--good-soft); font-size: 1.08rem; }
.verdict.bad { border-color: var(--bad); background: var(--bad-soft); }
.verdict.weak { border-color: var(--weak); background: var(--weak-soft); }
.tiles { display: grid; grid-template-columns: 1fr 1fr; gap: 0.6rem; margin: 0.9rem 0; }
@media (min-width: 42rem) { .tiles { grid-template-columns: repeat(4, 1fr); } }
.tile { background: var(--card); border: 1px solid var(--line); border-radius: 0.5rem; padding: 0.55rem 0.75rem; }
.tile b { display: block; font-size: clamp(0.95rem, 4.4vw, 1.15rem); line-height: 1.3;
  font-variant-numeric: tabular-nums; }
.tile span { color: var(--muted); font-size: 0.85rem; line-height: 1.3; display: block; }
.grid { margin: 0.8rem 0; display: grid; gap: 0.8rem;
  grid-template-columns: repeat(auto-fit, minmax(min(100%, 20rem), 1fr)); }
.wide { grid-template-columns: repeat(auto-fit, minmax(min(100%, 25rem), 1fr)); }
figure, .card { margin: 0; background: var(--card); border: 1px solid var(--line); border-radius: 0.5rem;
  padding: 0.65rem 0.75rem; min-width: 0; break-inside: avoid; }
figure svg { display: block; width: 100%; height: auto; max-width: 34rem; }
.grid > :only-child { max-width: 34rem; }
figcaption { font-size: 0.85rem; line-height: 1.35; margin-top: 0.3rem; }
.head { display: flex; flex-wrap: wrap; justify-content: space-between; gap: 0 0.6rem; align-items: baseline; }
.head > * { min-width: 0; } .head .muted { font-size: 0.85rem; }
.drawing { overflow-x: auto; } .drawing img.chart { max-width: none; min-width: 34rem; }
details { margin: 0.7rem 0; } summary { cursor: pointer; color: var(--accent); }
.part { margin: 0; border-top: 1px solid var(--line); } .part:last-of-type { border-bottom: 1px solid var(--line); }
.part > summary { color: var(--ink); font-weight: 600; padding: 0.6rem 0; }
.scroll { overflow-x: auto; max-width: 100%; }
table { border-collapse: collapse; width: 100%; font-variant-numeric: tabular-nums; font-size: 0.9rem;
  overflow-wrap: break-word; }
th, td { text-align: right; padding: 0.28rem 0.5rem; border-bottom: 1px solid var(--line); vertical-align: top; }
th { font-weight: 600; color: var(--muted); font-size: 0.82rem; } th:first-child, td:first-child { text-align: left; }
table.text td, table.text th { text-align: left; } .nowrap { white-space: nowrap; }
td.good { color: var(--good); } td.bad, li.error { color: var(--bad); } td.worst { font-weight: 700; }
code { font: 0.86em ui-monospace, SFMono-Regular, Menlo, Consolas, monospace; overflow-wrap: anywhere; }
pre { background: var(--card); border: 1px solid var(--line); border-radius: 0.5rem; padding: 0.6rem 0.75rem;
  margin: 0.4rem 0; overflow-x: auto; } pre code { overflow-wrap: normal; white-space: pre; }
img { max-width: 100%; height: auto; background: #ffffff; border-radius: 0.4rem; }
footer { margin-top: 2.5rem; border-top: 1px solid var(--line); padding-top: 0.7rem; font-size: 0.85rem; }
svg text { font: 11px system-ui, -apple-system, "Segoe UI", Roboto, sans-serif; fill: var(--ink); }
svg .t-strong { font-weight: 600; }
svg .prior { fill: var(--prior); } svg .bound { fill: var(--accent); }
svg .zoom { fill: var(--accent-soft); opacity: 0.55; }
svg .truth { fill: var(--truth); stroke: var(--card); stroke-width: 1; }
svg .nominal { stroke: var(--ink); stroke-width: 1.5; }
img.chart { display: block; width: 100%; max-width: 34rem; background: none; border-radius: 0; }
@media screen and (prefers-color-scheme: dark) { img.chart { filter: invert(0.92) hue-rotate(180deg); } }
@media (max-width: 30rem) { .grid { gap: 0.4rem; } figure { padding: 0.35rem 0.6rem; }
  .tile { padding: 0.35rem 0.6rem; } .tile span { font-size: 0.8rem; } h2 { margin-top: 1.2rem; }
  .more { display: none; } }
@media print { details::details-content { content-visibility: visible; height: auto; }
  body { max-width: none; font-size: 11pt; padding: 0; } .scroll, pre { overflow: visible; }
  pre code { white-space: pre-wrap; overflow-wrap: anywhere; } h2 { break-after: avoid; } a { color: inherit; }
  .grid { grid-template-columns: 1fr 1fr; } tr { break-inside: avoid; } }
"""

_BASE = """<!doctype html>
<html lang="en"><head><meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; img-src data:; style-src 'sha256-{{ hash }}'; \
base-uri 'none'; form-action 'none'">
<meta name="viewport" content="width=device-width, initial-scale=1"><meta name="referrer" content="no-referrer">
<title>{{ title }}</title><style>{{ style }}</style></head><body>
{{ content }}
</body></html>
"""

_BLOCKS = """
{% macro rows(pairs) %}
<div class="scroll"><table class="text">{% for key, value in pairs %}<tr><td>{{ key }}</td>
<td>{{ value }}</td></tr>{% endfor %}</table></div>
{% endmacro %}
{% macro lines(texts) %}<ul>{% for line in texts %}<li>{{ line }}</li>{% endfor %}</ul>{% endmacro %}
{% macro interval_grid(cards) %}
<div class="grid">{% for card in cards %}<figure><div class="head"><span><b>{{ card.name }}</b>
<span class="muted">{{ card.meaning }}, {{ card.unit|unit }}</span></span>
<span class="muted nowrap">{{ card.share }}<span class="more"> of prior</span></span></div>
{{ card.drawing }}</figure>{% endfor %}</div>
{% endmacro %}
"""

# The hash is what the browser compares with, so nothing may change between here and the page.
_HASH = base64.b64encode(hashlib.sha256(_STYLE.encode()).digest()).decode("ascii")


@cache
def _environment() -> Environment:
    """Everything that is not markup by type is escaped; a name that a template does not get is an error."""
    environment = Environment(
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=StrictUndefined,
        loader=DictLoader({"blocks.html": _BLOCKS}),
        finalize=lambda value: shortened(value) if isinstance(value, str) else value,
    )
    environment.filters["unit"] = _unit
    return environment


def printable(text: str, besides: str = "") -> str:
    """A text without control characters.

    ``text``: from a file that anyone may have written; ``besides``: characters that may stay.
    """
    # Characters that turn the direction of writing could make a page say the opposite.
    return "".join(c if c.isprintable() or c in besides else "\N{REPLACEMENT CHARACTER}" for c in text)


def shortened(text: str) -> str:
    """A text without control characters and not longer than :data:`LONGEST`; markup stays as it is.

    ``text``: from a file that anyone may have written.
    """
    if isinstance(text, Markup):
        return text
    plain = printable(text, "\n")
    return plain if len(plain) <= LONGEST else plain[: LONGEST - 3] + "..."


@cache
def _template(source: str) -> Template:
    return _environment().from_string(source)


def _unit(text: str) -> str:
    """``kg m^2`` with a raised two."""
    return text.replace("^2", "\N{SUPERSCRIPT TWO}").replace("^3", "\N{SUPERSCRIPT THREE}")


def render_page(title: str, template: str, values: Mapping[str, Any]) -> str:
    """A whole page.

    Args:
        template: Jinja, the body; ``blocks.html`` has macros ``rows``, ``lines`` and ``interval_grid``.
        values: for it; only :class:`markupsafe.Markup` is taken for markup.
    """
    content = Markup(_template(template).render(values))
    return _template(_BASE).render(title=title, style=Markup(_STYLE), hash=_HASH, content=content)
