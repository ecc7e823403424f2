"""HTML pieces of the panel. All foreign text passes :func:`escaped`."""

from __future__ import annotations

import math

import numpy as np

from safe_sysid.core.layout import PAYLOAD_NAMES, PAYLOAD_UNITS
from safe_sysid.decimals import at_least, interval_text, share_at_most, width_share
from safe_sysid.view.snapshot import OLD, NodeView, Snapshot
from safe_sysid.view.text import escaped

__all__ = ["STOP", "STYLE", "header", "intervals", "margins", "node_cards", "notices", "torques"]

#: Ids and classes start with ``ss-``: the page has its own.
STYLE = """<style>
.ss{font-size:13px;line-height:1.35;color:#1f2933;padding:2px 12px 4px;font-variant-numeric:tabular-nums}
.ss b{font-weight:600}
.ss-title{display:flex;align-items:baseline;justify-content:space-between;gap:8px;padding-top:4px}
.ss-title span:first-child{font-size:16px;font-weight:650;letter-spacing:-.01em}
.ss-dim{color:#616e7c}
.ss-phase{display:flex;align-items:center;gap:9px;margin-top:6px;padding:8px 11px;border-radius:9px;background:#eef2f6;
font-weight:600}
.ss-phase small{display:block;font-weight:400;color:#52606d;font-size:12px}
.ss-dot{flex:none;width:9px;height:9px;border-radius:50%;background:#9aa5b1}
.ss-0 .ss-dot,.ss-dot.ss-0{background:#27a567}.ss-1 .ss-dot,.ss-dot.ss-1{background:#e0a100}
.ss-2 .ss-dot,.ss-dot.ss-2{background:#d64545}
.ss-phase.ss-0{background:#e7f6ee}.ss-phase.ss-1{background:#fdf4da}.ss-phase.ss-2{background:#fde8e8}
.ss-node{display:flex;gap:9px;padding:4px 0;align-items:baseline}
.ss-node .ss-dot{position:relative;top:-1px}
.ss-node>div{min-width:0;overflow-wrap:anywhere}
.ss-head{display:flex;justify-content:space-between;font-size:11px;letter-spacing:.05em;text-transform:uppercase;
color:#7b8794;margin:2px 0 3px}
.ss-row{display:grid;grid-template-columns:26px 1fr 136px 38px;gap:8px;align-items:center;height:21px}
.ss-row.ss-two{height:29px;grid-template-columns:26px 1fr 174px 54px}
.ss-bar.ss-zoom{margin-top:2px;background:#2f7de1;height:11px}
.ss-zoom u{width:3px}.ss-zoom u.ss-true{background:#7ff0a5}
.ss-row.ss-t{grid-template-columns:30px 1fr 96px}
.ss-row>span:last-child,.ss-num{text-align:right;white-space:nowrap}
.ss-row .ss-num{font-size:12px}
.ss-mass{font-size:22px;font-weight:700;letter-spacing:-.02em;margin-top:2px}
.ss-mass small{font-size:13px;font-weight:400;letter-spacing:0;color:#52606d}
.ss-bar{position:relative;height:9px;border-radius:5px;background:#e4e9ee;overflow:hidden}
.ss-bar i{position:absolute;top:0;bottom:0;display:block;background:#2f7de1;border-radius:5px;min-width:4px}
.ss-bar u{position:absolute;top:-1px;bottom:-1px;width:2px;margin-left:-1px;background:#0b2f66}
.ss-bar u.ss-true{background:#16a34a}
.ss-bar i.ss-warm{background:#e0a100}.ss-bar i.ss-hot{background:#d64545}
.ss-bar s{position:absolute;top:0;bottom:0;width:1px;background:#9aa5b1}
.ss-note{margin:4px 0;padding:7px 10px;border-radius:8px;background:#fdf4da;overflow-wrap:anywhere}
.ss-note.ss-bad{background:#fde8e8}
.ss-foot{color:#7b8794;font-size:11.5px;margin-top:3px}
.ss-tags{display:flex;flex-wrap:wrap;gap:5px;margin-top:5px}
.ss-tags span{background:#eef2f6;border-radius:6px;padding:2px 7px;font-size:12px}
div:has(>.ss-stop)+div>button{height:56px!important;font-size:18px!important;font-weight:800;letter-spacing:.02em}
@media(max-width:600px){.mantine-Paper-root:has(.ss){width:100%!important;max-height:44%!important}
.mantine-Paper-root:has(.ss) .mantine-ScrollArea-content>div{width:100%!important}
body:has(.ss) div:has(>div>canvas){height:58vh!important}}
</style>"""
#: Stands before the button that everybody must find.
STOP = '<div class="ss-stop"></div>'

_SECTION = '<div class="ss">{}</div>'
#: That are there always, and sometimes.
_NODES, _MORE_NODES = ("controller", "planner", "identifier"), ("plant", "recorder")


def header(robot: str, where: str, snapshot: Snapshot, payload: tuple[float, float] | None = None) -> str:
    """Name, time, mass of the payload, and in one sentence what the arm does. ``payload``: bounds of the mass, kg."""
    level, title, more = _phase(snapshot)
    clock = "" if snapshot.time is None else f"{snapshot.time:.1f} s"
    if snapshot.speed is not None and snapshot.time is not None:
        clock += f" · {snapshot.speed:.2g}× real time" if snapshot.simulated else " · real time"
    mass = ""
    if payload is not None:
        low, high = interval_text(*payload, 3)
        mass = f'<div class="ss-mass" id="ss-mass">{low} .. {high} kg <small>payload alone</small></div>'
    return _SECTION.format(
        f'<div class="ss-title"><span>{escaped(robot, 40)}</span>'
        f'<span class="ss-dim" id="ss-clock">{clock}</span></div>'
        f'<div class="ss-dim">{escaped(where, 120)}</div>'
        f'{mass}<div class="ss-phase ss-{level}" id="ss-phase"><span class="ss-dot"></span><div>{title}'
        f"<small>{more}</small></div></div>"
    )


_STATES = {
    "idle": "Idle: the controller commands nothing",
    "holding": "Holding still",
    "tracking": "Following a certified plan",
    "braking": "Braking along the certified tail",
    "fault": "Fault: the drives brake",
}


def _phase(snapshot: Snapshot) -> tuple[int, str, str]:
    """Level, title and more, the last two as HTML."""
    if snapshot.verdict is not None:
        facts = " · ".join(escaped(fact, 80) for fact in snapshot.verdict.facts[:6])
        return (0 if snapshot.verdict.good else 2), escaped(snapshot.verdict.text), facts
    controller = snapshot.nodes.get("controller")
    if controller is None:
        return 3, "No controller is heard", escaped(snapshot.missing[0]) if snapshot.missing else ""
    if controller.age >= OLD:
        return (3, "The controller is silent", f"last heard {controller.age:.0f} s ago: {escaped(controller.text)}")
    state = controller.values.get("state", "")
    title = _STATES.get(state, state or controller.values.get("lifecycle", "") or controller.text)
    level = 2 if state == "fault" else controller.level
    # What it warns of stands in its line, not in the reason of its state.
    more = controller.text if level else controller.values.get("reason", "") or snapshot.plan
    return level, escaped(title, 80), escaped(more)


def node_cards(nodes: dict[str, NodeView]) -> str:
    """A line per node: colour, name, its own words; and how old they are, if they are old."""
    rows = []
    for name in (*_NODES, *(name for name in _MORE_NODES if name in nodes)):
        node = nodes.get(name)
        level, text = (3, "not heard") if node is None else (node.level, node.text)
        age = "" if node is None or node.age < OLD else f' <span class="ss-dim">({node.age:.0f} s ago)</span>'
        if node is not None and node.age >= OLD:
            level = 3
        rows.append(
            f'<div class="ss-node"><span class="ss-dot ss-{level}"></span><div><b>{name}</b> '
            f'<span id="ss-node-{name}">{escaped(text)}</span>{age}</div></div>'
        )
    return _SECTION.format("".join(rows))


def notices(snapshot: Snapshot) -> str:
    """What is missing, what does not fit; empty if all is well."""
    lines = [f'<div class="ss-note ss-bad">{escaped(text)}</div>' for text in snapshot.warnings[:6]]
    lines += [f'<div class="ss-note">{escaped(text)}</div>' for text in snapshot.missing[:6]]
    if snapshot.dropped:
        text = ", ".join(f"{count} × {reason}" for reason, count in sorted(snapshot.dropped.items())[:8])
        lines.append(f'<div class="ss-foot">not shown: {escaped(text)}</div>')
    return _SECTION.format(f'<div id="ss-notices">{"".join(lines)}</div>') if lines else ""


def intervals(snapshot: Snapshot) -> str:
    """Ten rows: the prior as a bar, the present interval in it, the nominal as a mark, numbers, share of the prior."""
    bounds, prior = snapshot.bounds, snapshot.prior
    box = "nothing heard yet" if bounds is None else f"box {bounds.identity}"
    rows = [
        '<div class="ss-head"><span>Last link, hand and payload</span>'
        f'<span id="ss-box">{escaped(box, 30)}</span></div>'
    ]
    known = None if snapshot.verdict is None else snapshot.verdict.truth
    for i, (name, unit) in enumerate(zip(PAYLOAD_NAMES, PAYLOAD_UNITS, strict=True)):
        if bounds is None or prior is None:
            rows.append(_interval_row(name, "", "", "–", ""))
            continue
        low, high = float(bounds.lower[i]), float(bounds.upper[i])
        full = float(prior[1][i] - prior[0][i])
        share = (high - low) / full if full > 0.0 else 1.0
        start = (low - float(prior[0][i])) / full if full > 0.0 else 0.0
        place = _within(float(bounds.nominal[i]), low, high)
        bar = f'<i style="left:{_percent(start)};width:{_percent(share)}"></i>'
        zoom = f'<u style="left:{_percent(place)}"></u>'
        if known is not None:
            zoom += f'<u class="ss-true" style="left:{_percent(_within(float(known[i]), low, high))}"></u>'
        text = " .. ".join(interval_text(low, high, 3))
        told = share_at_most(width_share(low, high, float(prior[0][i]), float(prior[1][i])), 2)
        rows.append(_interval_row(name, bar, zoom, f"{text} {unit.replace('^2', '²')}", told, f"{low!r} {high!r}"))
    green = ", the green one the truth, which only the plant knew" if known is not None else ""
    rows.append(
        '<div class="ss-foot">Grey: what was known before, blue what is left of it, below magnified; the dark mark is '
        f"the estimate{green}. Right: share of before.</div>"
    )
    return _SECTION.format("".join(rows))


def _within(value: float, low: float, high: float) -> float:
    """Where a value lies between two ends, as a share."""
    return (value - low) / (high - low) if high > low else 0.5


def _interval_row(name: str, bar: str, zoom: str, text: str, share: str, exact: str = "") -> str:
    below = f'<div class="ss-bar ss-zoom">{zoom}</div>' if zoom else ""
    return (
        f'<div class="ss-row ss-two" id="ss-interval-{name}" title="{exact}"><b>{name}</b>'
        f'<div><div class="ss-bar">{bar}</div>{below}</div>'
        f'<span class="ss-num">{text}</span><span class="ss-dim">{share}</span></div>'
    )


def _percent(share: float) -> str:
    return f"{100.0 * min(max(share, 0.0), 1.0):.2f}%"


def torques(snapshot: Snapshot, limits: np.ndarray, units: tuple[str, ...]) -> str:
    """A row per joint: commanded torque against its limit."""
    rows = ['<div class="ss-head"><span>Torque of each joint</span><span>limit</span></div>']
    for j, limit in enumerate(limits):
        value = math.nan if snapshot.torque is None else float(snapshot.torque[j])
        bar, text = "<s style='left:50%'></s>", "–"
        if math.isfinite(value):
            part = min(abs(value) / float(limit), 1.0)
            tone = "ss-hot" if part > 0.97 else "ss-warm" if part > 0.8 else ""
            left = 50.0 - 50.0 * part if value < 0.0 else 50.0
            bar = f'<i class="{tone}" style="left:{left:.1f}%;width:{50.0 * part:.1f}%"></i>' + bar
            text = f"{value:+.1f} / {limit:g} {units[j]}"
        rows.append(
            f'<div class="ss-row ss-t"><b>{j + 1}</b><div class="ss-bar">{bar}</div>'
            f'<span class="ss-num">{text}</span></div>'
        )
    return _SECTION.format("".join(rows))


def margins(snapshot: Snapshot) -> str:
    """What the certificate of the last plan leaves of each limit."""
    if not snapshot.margins:
        return ""
    tags = []
    for margin in snapshot.margins[:12]:
        if math.isfinite(margin.value):
            name = margin.family.replace("_", " ")
            tags.append(f"<span>{name} ≥ {at_least(margin.value)} {margin.unit}</span>")
    return _SECTION.format(
        '<div class="ss-head"><span>Certified margins of the last plan</span></div>'
        f'<div class="ss-tags" id="ss-margins">{"".join(tags)}</div>'
    )
