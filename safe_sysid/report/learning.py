"""Reports of learned torques: errors by joint, how honest a variance is, energies, friction, losses."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from safe_sysid.core.arrays import FloatArray
from safe_sysid.report.drawing.chart import two_curves
from safe_sysid.report.drawing.page import render_page

__all__ = ["hybrid_html", "learned_html"]


_HEAD = """{% from "blocks.html" import rows, lines %}
<h1>Learned torques of {{ r.robot }}</h1>
<p class="muted">{{ r.logs|join(", ") }}; {{ method }}; safe_sysid {{ r.version }}</p>
<p class="verdict{{ " weak" if r.warnings else "" }}">{{ verdict }}</p>
{% if r.warnings %}<h2>Warnings</h2>{{ lines(r.warnings) }}{% endif %}
<h2>Held-out torques</h2>
"""
_FIGURES = """<div class="grid wide">{% for figure in figures %}<figure>{{ figure.drawing }}
<figcaption>{{ figure.text }}</figcaption></figure>{% endfor %}</div>
"""
_PROCESS = (
    _HEAD
    + """<p class="muted">nMSE: mean square of the error over the torque's variance. In 95 %: share of measured torques
within the 95 % interval of what is predicted, noise included.</p>
<div class="scroll"><table><tr><th>joint</th><th>nMSE</th><th>error, RMS</th><th>torque, deviation</th>
<th>noise found</th><th>in 95 %</th></tr>
{% for name, j in r.joints.items() %}<tr><td>{{ name }}</td><td>{{ "%.3g"|format(100 * j.nmse) }} %</td>
<td>{{ "%.3g"|format(j.rms) }}</td><td>{{ "%.3g"|format(j.torque_deviation) }}</td><td>{{ "%.3g"|format(j.noise) }}</td>
<td>{{ "%.0f"|format(100 * j.within_95) }} %</td></tr>{% endfor %}</table></div>
"""
    + _FIGURES
    + """{% if r.subsets %}<h2>How much the samples teach</h2>
<p class="muted">Mean nMSE of all joints on held-out samples, with the same hyperparameters.</p>
<div class="scroll"><table><tr><th>samples</th><th>mean nMSE</th></tr>
{% for s in r.subsets %}<tr><td>{{ s.samples }} {{ s.which }}</td><td>{{ "%.3g"|format(100 * s.nmse) }} %</td></tr>
{% endfor %}</table></div>{% endif %}
{% if friction %}<h2>Learned friction</h2>
<div class="scroll"><table><tr><th>joint</th><th>viscous, N m s/rad</th><th>Coulomb, N m</th></tr>
{% for name, viscous, coulomb in friction %}<tr><td>{{ name }}</td><td>{{ viscous }}</td><td>{{ coulomb }}</td></tr>
{% endfor %}</table></div>{% endif %}
<h2>Energies</h2>
<p class="muted">Learned from torques alone; the potential's origin is arbitrary. The mass matrix that follows is
positive definite at {{ "%.0f"|format(100 * r.mass_positive) }} % of the held-out positions.</p>
<figure>{{ energies }}<figcaption>kinetic (violet) and potential energy, J, over held-out time, s</figcaption></figure>
"""
)
_HYBRID = (
    _HEAD
    + """<p class="muted">Errors along whole trajectories that were not trained on, root mean squares in N m.</p>
<div class="scroll"><table><tr><th>joint</th><th>error</th><th>of the rigid part alone</th></tr>
{% for name, error, alone in joints %}<tr><td>{{ name }}</td><td>{{ error }}</td><td>{{ alone }}</td></tr>{% endfor %}
</table></div>
"""
    + _FIGURES
    + """{% if losses %}<h2>Training</h2>
<figure>{{ losses }}<figcaption>logarithm to base 10 of the loss of training (violet) and validation, over epochs
</figcaption></figure>{% endif %}
"""
)


def learned_html(
    result: dict[str, Any], time: FloatArray, measured: FloatArray, predicted: FloatArray, energies: FloatArray
) -> str:
    """The page.

    Args:
        result: as of ``--json``.
        time: (N,) s of held-out samples; nan where a segment begins.
        measured: (N, n) N m.
        predicted: (N, n) N m.
        energies: (2, N) kinetic and potential, J.
    """
    names = list(result["joints"])
    figures = _torques(names, time, measured, predicted)
    friction = [
        (name, *(f"{j[key]:.3g} \N{PLUS-MINUS SIGN} {j[key + '_deviation']:.2g}" for key in ("viscous", "coulomb")))
        for name, j in result["joints"].items()
        if "viscous" in j
    ]
    mean = np.mean([j["nmse"] for j in result["joints"].values()])
    values = {
        "r": result, "method": result["method"], "figures": figures, "friction": friction,
        "energies": two_curves(time, energies[0], energies[1] - energies[1].min(), "energies"),
        "verdict": f"{result['stage']}: {result['samples']} samples of {result['samples_of']}; mean nMSE of "
        f"held-out torques {100 * mean:.3g} %.",
    }  # fmt: skip
    return render_page(f"Learned torques of {result['robot']}", _PROCESS, values)


def hybrid_html(
    result: dict[str, Any],
    losses: Sequence[tuple[float, float]],
    time: FloatArray,
    measured: FloatArray,
    predicted: FloatArray,
) -> str:
    """The page of a hybrid model.

    Args:
        result: as of ``--json``.
        losses: of training and validation, epoch by epoch; empty where nothing was trained.
        time: (N,) s of a test motion.
        measured: (N, n) N m.
        predicted: (N, n) N m.
    """
    names, test = list(result["joints"]), result["errors"]["test"]
    rigid = result["parts"].get("rbd_sign", {}).get("test")
    alone = ["-"] * len(names) if rigid is None else [f"{x:.3g}" for x in rigid["rms_per_joint"]]
    drawing = None
    if len(losses) > 1:
        train, validation = np.log10(np.maximum(np.array(losses).T, 1e-300))
        drawing = two_curves(np.arange(1.0, len(train) + 1.0), train, validation, "losses", unit="")
    than = "" if rigid is None else f"; of its rigid part alone {rigid['nmse']:.3g}"
    values = {
        "r": result, "method": f"{result['model']} ({result['optimization']}), seed {result['seed']}",
        "figures": _torques(names, time, measured, predicted), "losses": drawing,
        "joints": [(n, f"{e:.3g}", a) for n, e, a in zip(names, test["rms_per_joint"], alone, strict=True)],
        "verdict": f"{result['epochs']} epochs, ended by {result['ended']}; mean square of held-out errors over the "
        f"square of the torque's range {test['nmse']:.3g}{than}.",
    }  # fmt: skip
    return render_page(f"Learned torques of {result['robot']}", _HYBRID, values)


def _torques(
    names: Sequence[str], time: FloatArray, measured: FloatArray, predicted: FloatArray
) -> list[dict[str, Any]]:
    """Drawings of measured and learned torques, joint by joint."""
    return [
        {
            "drawing": two_curves(time, measured[:, j], predicted[:, j], f"torques of {name}"),
            "text": f"{name}: measured (violet) and learned torque, N m, over held-out time, s",
        }
        for j, name in enumerate(names)
    ]
